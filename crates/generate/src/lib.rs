//! Generator of TPC-H and TPC-DS data as Parquet, CSV or the benchmark's own text files. It must not depend
//! on a query engine, a catalog or a command line.
//!
//! One folder per table: `DIR/<table>/<table>.<n>.<format>`, n from 1. One thread per core takes parts from a
//! common queue, largest table first. Rows and their order depend only on scale and number of parts, and the
//! default number of parts depends only on the scale, so two machines make the same files.
//!
//! Invariants: a file under its final name is complete, because it is written in `DIR/.harrier-generate`,
//! synced, and then renamed. A table's folder holds the files of one benchmark, scale, format and number of
//! parts: these are recorded in `DIR/.harrier-generate/<table>.json` before the first file appears, and a
//! request for other data is refused unless [`Options::overwrite`] is set.
//! Order of calls: [`Files::prepare`], then [`Files::make`]. The folder is locked from the first to the end
//! of the second; a concurrent call, in this process or another, is refused.
//! Memory bound: one row group per thread.
//! Errors: nothing is retried; the first error stops all threads.
//! Cancellation: [`Progress::is_stopped`] stops all threads at the next batch and is reported as an error.
//! Crash: finished files stay and are not made again by the next call, which also removes unfinished ones.
//!
//! The program `harrier-generate` (`main.rs`) depends on nothing else of the workspace, so it can make files
//! while the rest is being compiled.

mod error;
mod files;
mod sources;

pub use error::Error;
pub use files::{Files, Progress};
pub use sources::{Part, Table};

/// Maximum rows per file; a larger table gets more files.
const FILE_ROWS_MAX: u64 = 6_000_000;

/// A table with more rows than this is split into up to [`SMALL_FILES_MAX`] files, so that several cores
/// generate it.
const SMALL_FILE_ROWS: u64 = 750_000;
const SMALL_FILES_MAX: u64 = 4;

/// Below this scale TPC-H has fewer than ten suppliers, and its rule of four suppliers per part cannot hold.
const SCALE_MIN: f64 = 0.001;
/// Largest scale that both specifications define.
const SCALE_MAX: f64 = 100_000.0;

/// The benchmark that defines the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// TPC-H, 8 tables.
    Tpch,
    /// TPC-DS, 24 tables.
    Tpcds,
}

impl Benchmark {
    /// Name in the state files and on the command line: `tpch` or `tpcds`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
        }
    }

    /// The benchmark's tables, largest first.
    pub fn tables(self) -> &'static [Table] {
        match self {
            Self::Tpch => sources::TPCH,
            Self::Tpcds => sources::TPCDS,
        }
    }
}

/// File format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    /// Comma-separated with a header line.
    Csv,
    /// The benchmark's own text format: fields ended by `|`, no header line.
    Tbl,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Tbl => "tbl",
        }
    }
}

/// Parameters of a generator run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Scale factor, from 0.001 to 100 000; 1 is about 1 GB as text.
    pub scale: f64,
    pub format: Format,
    /// Files per table, at least 1; small tables have one. `None`: derived from the table's size, or taken
    /// from the existing files.
    pub parts: Option<u32>,
    /// Tables to generate; empty means all.
    pub tables: Vec<String>,
    /// Whether to make existing files again and to replace other data.
    pub overwrite: bool,
}

impl Options {
    /// All tables at a scale, as Parquet, keeping existing files.
    pub fn new(scale: f64) -> Self {
        Self { scale, format: Format::Parquet, parts: None, tables: Vec::new(), overwrite: false }
    }

    /// Returns the requested tables, in the order of [`Benchmark::tables`].
    ///
    /// Errors: [`Error::Scale`], [`Error::Parts`], [`Error::NoTable`].
    pub fn tables_of(&self, benchmark: Benchmark) -> Result<Vec<&'static Table>, Error> {
        if !(SCALE_MIN..=SCALE_MAX).contains(&self.scale) {
            return Err(Error::Scale { scale: self.scale });
        }
        if self.parts == Some(0) || self.parts.is_some_and(|parts| parts > i32::MAX as u32) {
            return Err(Error::Parts);
        }
        let tables = benchmark.tables();
        if let Some(name) = self.tables.iter().find(|name| !tables.iter().any(|table| table.name == **name)) {
            return Err(Error::NoTable { benchmark, table: name.clone() });
        }
        let is_wanted =
            |table: &&Table| self.tables.is_empty() || self.tables.iter().any(|n| n == table.name);
        Ok(tables.iter().filter(is_wanted).collect())
    }

    /// Returns a table's number of files: one per 6 million rows, or up to four at one per 750 000.
    pub fn parts_of(&self, table: &Table) -> u32 {
        if !(table.divisible)(self.scale) {
            return 1;
        }
        self.parts.unwrap_or_else(|| {
            let rows = (table.rows)(self.scale);
            let parts = rows.div_ceil(SMALL_FILE_ROWS).min(SMALL_FILES_MAX).max(rows.div_ceil(FILE_ROWS_MAX));
            parts.max(1) as u32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            let tables = Options::new(scale).tables_of(Benchmark::Tpch);
            assert!(matches!(tables, Err(Error::Scale { .. })), "{scale}");
        }
        for parts in [0, u32::MAX] {
            let options = Options { parts: Some(parts), ..Options::new(1.0) };
            assert!(matches!(options.tables_of(Benchmark::Tpch), Err(Error::Parts)), "{parts}");
        }
        let options = Options { tables: vec!["order".to_owned()], ..Options::new(1.0) };
        assert!(matches!(options.tables_of(Benchmark::Tpch), Err(Error::NoTable { .. })));
    }

    #[test]
    fn parts_grow_with_the_table() {
        let check = |scale, name: &str, parts| {
            let table = Benchmark::Tpch.tables().iter().find(|table| table.name == name).unwrap();
            assert_eq!(Options::new(scale).parts_of(table), parts, "{name} at {scale}");
        };
        check(0.01, "lineitem", 1);
        check(0.2, "lineitem", 2);
        check(1.0, "lineitem", 4);
        check(4.0, "lineitem", 4);
        check(10.0, "lineitem", 10);
        check(10.0, "nation", 1);
    }
}
