//! The target folder: which files exist, which are missing, and the threads that make them.
//!
//! The layout of the Parquet files is explained, with measurements, at [`ROW_GROUP_ROWS_MAX`] and
//! [`parquet_properties`].

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use arrow::csv::WriterBuilder;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::error::Failure;
use crate::{Benchmark, Error, Format, Options, Part, Table};

/// Maximum rows of a Parquet row group; a file's row groups are all about the same size.
///
/// A row group is the unit that DataFusion prunes by statistics and the smallest unit of work for a core or a
/// rank, so the ranks' work is even only with several row groups each. Measured at scale 1 (CPU seconds of
/// DataFusion 55, two partitions): five scans and joins over lineitem and orders take the same with 2^17,
/// 2^18 and 2^20 rows (2.3, 2.2, 2.2), a search for a range of keys half as long as with 2^20.
const ROW_GROUP_ROWS_MAX: u64 = 1 << 17;

/// Folder inside the target folder for unfinished files, the lock, and the recorded parameters.
const STATE_FOLDER: &str = ".harrier-generate";

/// Progress callback. Called by several threads concurrently; a call that blocks stalls its thread.
pub trait Progress: Sync {
    /// Adds newly written rows: some thousand, or the rest of a part.
    fn advance(&self, rows: u64);
    /// Reports a line without a line feed: a finished table, as in `lineitem: 6001215 rows, 4 files, 217.0
    /// MB`, or the end of the run.
    fn report(&self, line: &str);
    /// Whether to stop; checked after every [`Progress::advance`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A benchmark's files in a folder, which stays locked until this is dropped.
pub struct Files {
    scale: f64,
    targets: Vec<Target>,
    _lock: File,
}

impl Files {
    /// Prepares the folder for the missing files. Does I/O for each table; writes no rows.
    ///
    /// Errors: those of [`Options::tables_of`]; [`Error::Busy`]; [`Error::ForeignFile`] and
    /// [`Error::OtherData`], before which other tables may have been prepared; [`Error::Io`].
    pub fn prepare(benchmark: Benchmark, folder: &Path, options: &Options) -> Result<Self, Error> {
        let tables = options.tables_of(benchmark)?;
        let state = folder.join(STATE_FOLDER);
        fs::create_dir_all(&state).map_err(|e| Error::io("create folder", &state, e))?;
        let lock = lock(&state)?;
        sweep(&state)?;

        let mut targets = Vec::with_capacity(tables.len());
        for table in tables {
            targets.push(Target::prepare(benchmark, table, options, &state)?);
        }
        Ok(Self { scale: options.scale, targets, _lock: lock })
    }

    /// Returns the approximate number of missing rows.
    pub fn rows(&self) -> u64 {
        self.jobs().map(|(target, _)| (target.table.rows)(self.scale) / u64::from(target.parts)).sum()
    }

    /// Makes all missing files with one thread per core; blocks until every file exists.
    ///
    /// Errors: [`Error::Stopped`], [`Error::Io`], [`Error::Write`]; files finished before stay.
    pub fn make(self, progress: &dyn Progress) -> Result<(), Error> {
        let start = Instant::now();
        for target in self.targets.iter().filter(|target| target.missing.is_empty()) {
            progress.report(&target.summary());
        }

        let jobs: Vec<(&Target, u32)> = self.jobs().collect();
        let next = AtomicUsize::new(0);
        let error = Mutex::new(None);
        let watch = Watch { progress, failed: AtomicBool::new(false) };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((target, part)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let made =
                            watch.check_stopped().and_then(|()| target.make(*part, self.scale, &watch));
                        if let Err(e) = made {
                            // Record the error first: otherwise another thread would report `Stopped`
                            // instead.
                            error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                            watch.failed.store(true, Ordering::Release);
                            return;
                        }
                        if target.remaining.fetch_sub(1, Ordering::Relaxed) == 1 {
                            progress.report(&target.summary());
                        }
                    }
                });
            }
        });
        if !jobs.is_empty() && watch.check_stopped().is_ok() {
            progress.report(&format!("generated in {:.1} s", start.elapsed().as_secs_f64()));
        }
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Iterates over the missing parts, each with its table.
    fn jobs(&self) -> impl Iterator<Item = (&Target, u32)> {
        self.targets.iter().flat_map(|target| target.missing.iter().map(move |part| (target, *part)))
    }
}

/// Stop conditions that the threads check.
struct Watch<'a> {
    progress: &'a dyn Progress,
    /// A thread has hit an error.
    failed: AtomicBool,
}

impl Watch<'_> {
    fn check_stopped(&self) -> Result<(), Error> {
        match self.failed.load(Ordering::Acquire) || self.progress.is_stopped() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

/// Locks the folder until the returned file is closed.
fn lock(state: &Path) -> Result<File, Error> {
    let path = state.join("lock");
    let file = File::create(&path).map_err(|e| Error::io("create file", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Busy { folder: state.parent().unwrap_or(state).to_owned() })
        }
        Err(TryLockError::Error(e)) => Err(Error::io("lock file", &path, e)),
    }
}

/// Removes unfinished files of an earlier call.
fn sweep(state: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(state).map_err(|e| Error::io("read folder", state, e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io("read folder", state, e))?.path();
        if path.extension().is_some_and(|extension| extension == "partial") {
            fs::remove_file(&path).map_err(|e| Error::io("remove file", &path, e))?;
        }
    }
    Ok(())
}

/// A table, its folder, and its progress.
struct Target {
    table: &'static Table,
    format: Format,
    folder: PathBuf,
    /// Folder of unfinished files.
    state: PathBuf,
    parts: u32,
    /// Parts to make; the others exist.
    missing: Vec<u32>,
    remaining: AtomicU32,
    rows: AtomicU64,
}

impl Target {
    /// Prepares the table's folder for its missing parts. Changes nothing unless the existing files match the
    /// parameters or may be overwritten.
    fn prepare(
        benchmark: Benchmark,
        table: &'static Table,
        options: &Options,
        state: &Path,
    ) -> Result<Self, Error> {
        let folder = state.parent().unwrap_or(state).join(table.name);
        let description = state.join(format!("{}.json", table.name));
        fs::create_dir_all(&folder).map_err(|e| Error::io("create folder", &folder, e))?;

        let described = match fs::read_to_string(&description) {
            Ok(text) => serde_json::from_str::<serde_json::Value>(&text).ok(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io("read file", &description, e)),
        };
        let described_parts = described
            .as_ref()
            .filter(|_| !options.overwrite && options.parts.is_none())
            .and_then(|described| described["parts"].as_u64())
            .and_then(|parts| u32::try_from(parts).ok());
        let parts = described_parts.unwrap_or_else(|| options.parts_of(table));
        let wanted = serde_json::json!({
            "benchmark": benchmark.name(),
            "scale": options.scale,
            "format": options.format.extension(),
            "parts": parts,
        });

        let present = files(&folder)?;
        if described.as_ref() != Some(&wanted) || options.overwrite {
            if let Some(foreign) = present.iter().find(|name| !is_ours(name, table.name)) {
                return Err(Error::ForeignFile { folder, file: foreign.clone() });
            }
            if !present.is_empty() && !options.overwrite {
                let present = described.map(|described| described.to_string());
                return Err(Error::OtherData { folder, present, wanted: wanted.to_string() });
            }
            remove(&description)?;
            for name in &present {
                remove(&folder.join(name))?;
            }
            let partial = Partial::new(state.join(format!("{}.json.partial", table.name)));
            fs::write(&partial.path, format!("{wanted}\n"))
                .map_err(|e| Error::io("write file", &partial.path, e))?;
            partial.rename(&description)?;
        }

        let mut target = Self {
            table,
            format: options.format,
            folder,
            state: state.to_owned(),
            parts,
            missing: Vec::new(),
            remaining: AtomicU32::new(0),
            rows: AtomicU64::new(0),
        };
        target.missing = (1..=parts).filter(|part| !target.path(*part).exists()).collect();
        target.remaining = AtomicU32::new(target.missing.len() as u32);
        Ok(target)
    }

    fn file_name(&self, part: u32) -> String {
        format!("{}.{part}.{}", self.table.name, self.format.extension())
    }

    fn path(&self, part: u32) -> PathBuf {
        self.folder.join(self.file_name(part))
    }

    /// Makes one part: writes it to a partial file, syncs, and renames it.
    fn make(&self, part: u32, scale: f64, watch: &Watch<'_>) -> Result<(), Error> {
        let partial = Partial::new(self.state.join(format!("{}.partial", self.file_name(part))));
        let file = File::create(&partial.path).map_err(|e| Error::io("create file", &partial.path, e))?;
        let part_of_table = Part { scale, part, parts: self.parts };
        let written = match self.format {
            Format::Parquet => self.write_parquet(part_of_table, file, watch),
            Format::Csv => self.write_csv(part_of_table, file, watch),
            Format::Tbl => self.write_text(part_of_table, file, watch),
        };
        let synced = written.and_then(|file| file.sync_all().map_err(Into::into));
        synced.map_err(|e| Error::of_writing(&self.path(part), e))?;
        partial.rename(&self.path(part))
    }

    fn write_parquet(&self, part: Part, file: File, watch: &Watch<'_>) -> Result<File, Failure> {
        let batches = (self.table.batches)(part);
        // Without the embedded Arrow schema the file does not mention string views, and each engine reads its
        // own string type.
        let file_rows = (self.table.rows)(part.scale).div_ceil(u64::from(part.parts));
        let options = ArrowWriterOptions::new()
            .with_properties(parquet_properties(file_rows))
            .with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(file, batches.schema(), options)?;
        for batch in batches {
            let batch = batch?;
            writer.write(&batch)?;
            self.count_rows(batch.num_rows(), watch)?;
        }
        Ok(writer.into_inner()?)
    }

    fn write_csv(&self, part: Part, mut file: File, watch: &Watch<'_>) -> Result<File, Failure> {
        let batches = (self.table.batches)(part);
        // Format each batch in memory, because the CSV writer turns a file error into text.
        let mut text = Vec::new();
        WriterBuilder::new().build(&mut text).write(&RecordBatch::new_empty(batches.schema()))?;
        for batch in batches {
            let batch = batch?;
            WriterBuilder::new().with_header(false).build(&mut text).write(&batch)?;
            file.write_all(&text)?;
            text.clear();
            self.count_rows(batch.num_rows(), watch)?;
        }
        file.write_all(&text)?;
        Ok(file)
    }

    fn write_text(&self, part: Part, file: File, watch: &Watch<'_>) -> Result<File, Failure> {
        let mut writer = LineCounter {
            file: BufWriter::with_capacity(1 << 20, file),
            lines: 0,
            every: |lines| self.count_rows(lines, watch),
        };
        (self.table.text)(part, &mut writer)?;
        self.count_rows(writer.lines, watch)?;
        Ok(writer.file.into_inner().map_err(io::IntoInnerError::into_error)?)
    }

    fn count_rows(&self, rows: usize, watch: &Watch<'_>) -> Result<(), Error> {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        watch.progress.advance(rows as u64);
        watch.check_stopped()
    }

    /// Returns the line for a finished table, as in `lineitem: 6001215 rows, 4 files, 217.0 MB`.
    fn summary(&self) -> String {
        let bytes: u64 = (1..=self.parts)
            .filter_map(|part| fs::metadata(self.path(part)).ok())
            .map(|metadata| metadata.len())
            .sum();
        let files = if self.parts == 1 { "file" } else { "files" };
        let size = format!("{} {files}, {:.1} MB", self.parts, bytes as f64 / 1e6);
        let name = self.table.name;
        match self.parts as usize - self.missing.len() {
            0 => format!("{name}: {} rows, {size}", self.rows.load(Ordering::Relaxed)),
            _ if self.missing.is_empty() => format!("{name}: {size}, there already"),
            there => format!("{name}: {size}, {there} there already"),
        }
    }
}

/// Lists the names of the files in a folder.
fn files(folder: &Path) -> Result<Vec<String>, Error> {
    let error = |e: io::Error| Error::io("read folder", folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(error)? {
        names.push(entry.map_err(error)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Whether this is a file name that the generator makes for the table, in any format.
fn is_ours(name: &str, table: &str) -> bool {
    name.strip_prefix(table)
        .and_then(|rest| rest.strip_prefix('.'))
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(part, extension)| {
            part.parse::<u32>().is_ok() && ["parquet", "csv", "tbl"].contains(&extension)
        })
}

/// An unfinished file: removed on drop unless renamed to its final name.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn rename(self, to: &Path) -> Result<(), Error> {
        fs::rename(&self.path, to).map_err(|e| Error::io("create file", to, e))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename there is no file under this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Counts lines and calls `every` once per some thousand.
struct LineCounter<F> {
    file: BufWriter<File>,
    lines: usize,
    every: F,
}

impl<F: FnMut(usize) -> Result<(), Error>> Write for LineCounter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.lines += bytes[..written].iter().filter(|byte| **byte == b'\n').count();
        if self.lines >= 8192 {
            (self.every)(std::mem::take(&mut self.lines)).map_err(io::Error::other)?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writer properties besides [`ROW_GROUP_ROWS_MAX`]. The defaults: statistics per page and a page index for
/// all columns, dictionaries while they are small, and pages of 20 000 rows.
///
/// Snappy: every reader supports it. Measured as above: zstd at level 1 makes the files 24 % smaller (200
/// instead of 262 MB) and the queries 13 % slower (2.45 instead of 2.18 s); LZ4 is as large and 5 % faster,
/// but many readers lack it.
fn parquet_properties(file_rows: u64) -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(concat!("harrier ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(row_group_rows(file_rows)))
        .build()
}

/// Returns the rows per row group of a file with about `file_rows` rows: slightly more than an even share, so
/// that a few extra rows do not form a row group of their own.
fn row_group_rows(file_rows: u64) -> usize {
    let groups = file_rows.div_ceil(ROW_GROUP_ROWS_MAX).max(1);
    (file_rows.div_ceil(groups) * 101 / 100).max(1) as usize
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove file", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ignores progress.
    struct NoProgress;

    impl Progress for NoProgress {
        fn advance(&self, _: u64) {}

        fn report(&self, _: &str) {}
    }

    fn options() -> Options {
        let tables = vec!["orders".into(), "region".into()];
        Options { format: Format::Csv, tables, ..Options::new(0.01) }
    }

    fn tpch(folder: &Path, options: &Options) -> Result<(), Error> {
        Files::prepare(Benchmark::Tpch, folder, options)?.make(&NoProgress)
    }

    #[test]
    fn generation_resumes_with_missing_files() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { parts: Some(3), ..options() };
        tpch(folder.path(), &options).unwrap();
        let read = |n| fs::read(folder.path().join(format!("orders/orders.{n}.csv"))).unwrap();
        let before: Vec<_> = (1..=3).map(read).collect();
        fs::remove_file(folder.path().join("orders/orders.2.csv")).unwrap();
        fs::write(folder.path().join("orders/orders.1.csv"), "kept").unwrap();
        // One file that is made again, and one that is no longer part of the table.
        for n in [2, 3] {
            let partial = format!(".harrier-generate/orders.{n}.csv.partial");
            fs::write(folder.path().join(partial), "half").unwrap();
        }

        tpch(folder.path(), &Options { parts: None, ..options }).unwrap();
        assert_eq!(read(1), b"kept");
        assert_eq!(read(2), before[1]);
        assert_eq!(read(3), before[2]);
        let unfinished = files(&folder.path().join(STATE_FOLDER)).unwrap();
        assert_eq!(unfinished, ["lock", "orders.json", "region.json"]);
    }

    #[test]
    fn other_data_is_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        tpch(folder.path(), &options()).unwrap();
        let second = Options { format: Format::Tbl, ..options() };
        let refused = tpch(folder.path(), &second);
        assert!(matches!(refused, Err(Error::OtherData { present: Some(_), .. })), "{refused:?}");
        tpch(folder.path(), &Options { overwrite: true, ..second.clone() }).unwrap();
        assert_eq!(files(&folder.path().join("orders")).unwrap(), ["orders.1.tbl"]);

        fs::write(folder.path().join("orders/notes.txt"), "mine").unwrap();
        let refused = tpch(folder.path(), &Options { overwrite: true, ..second });
        assert!(matches!(refused, Err(Error::ForeignFile { .. })), "{refused:?}");
    }

    #[test]
    fn row_groups_are_even() {
        assert_eq!(row_group_rows(0), 1);
        assert_eq!(row_group_rows(150_000), 75_750);
        let rows = row_group_rows(1_500_000) as u64;
        assert_eq!(1_500_000_u64.div_ceil(rows), 12);
    }

    #[test]
    fn concurrent_generation_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let held = Files::prepare(Benchmark::Tpch, folder.path(), &options()).unwrap();
        let refused = tpch(folder.path(), &options());
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        drop(held);
        tpch(folder.path(), &options()).unwrap();
    }

    #[test]
    fn interrupted_generation_leaves_no_partial_files() {
        /// Stops when there are rows.
        #[derive(Default)]
        struct Hasty(AtomicBool);

        impl Progress for Hasty {
            fn advance(&self, _: u64) {
                self.0.store(true, Ordering::Release);
            }

            fn report(&self, _: &str) {}

            fn is_stopped(&self) -> bool {
                self.0.load(Ordering::Acquire)
            }
        }

        for format in [Format::Parquet, Format::Csv, Format::Tbl] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options { format, ..options() };
            let files_to_make = Files::prepare(Benchmark::Tpch, folder.path(), &options).unwrap();
            let stopped = files_to_make.make(&Hasty::default());
            assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
            let state = files(&folder.path().join(STATE_FOLDER)).unwrap();
            assert_eq!(state, ["lock", "orders.json", "region.json"]);
            assert!(files(&folder.path().join("orders")).unwrap().is_empty());
        }
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = tpch(&file, &options());
        assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    }
}
