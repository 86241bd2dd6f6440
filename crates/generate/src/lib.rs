//! The data of TPC-H and TPC-DS as Parquet, CSV or the benchmark's own text files; it must never know a query
//! engine, a catalog or a command line.
//!
//! One folder per table, `DIR/<table>/<table>.<n>.<format>`, n from 1. The parts of all tables are dealt to
//! one thread per core, largest table first. Rows and their order depend on scale and number of parts alone,
//! and the number of parts on the scale alone, so two machines make the same files.
//!
//! Invariants: a file under its final name is whole, because it is written in `DIR/.harrier-generate`,
//! synced, and then renamed. A table's folder holds the files of one benchmark, scale, format and number of
//! parts, because those are written down in `DIR/.harrier-generate/<table>.json` before its first file
//! appears, and who asks for others is refused unless [`Options::overwrite`] is set.
//! Order of calls: [`Files::prepare`], then [`Files::make`]. One at a time in a folder, from the one to the
//! end of the other; a second one, in this process or another, is refused.
//! Memory bound: one row group per thread.
//! Errors: nothing is retried; the first error stops all threads.
//! Cancellation: [`Progress::is_stopped`] stops all threads at the next batch and is reported as an error.
//! Crash: what was finished stays and is not made again by the next call, which also sweeps what was not
//! finished.
//!
//! The program `harrier-generate` (`main.rs`) depends on nothing else of the workspace, so that it makes
//! files while the rest of it is being compiled.

mod error;
mod files;
mod sources;

pub use error::Error;
pub use files::{Files, Progress};
pub use sources::{Part, Table};

/// Rows of a file beyond which a table gets more files.
const FILE_ROWS_MAX: u64 = 6_000_000;

/// A table with more rows than this gets more files too, but at most [`SMALL_FILES_MAX`], so that several
/// cores make it.
const SMALL_FILE_ROWS: u64 = 750_000;
const SMALL_FILES_MAX: u64 = 4;

/// Below this TPC-H has less than ten suppliers and its rule that gives each part four of them has no
/// meaning.
const SCALE_MIN: f64 = 0.001;
/// The largest scale that both specifications define.
const SCALE_MAX: f64 = 100_000.0;

/// Whose tables they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// TPC-H, of 8 tables.
    Tpch,
    /// TPC-DS, of 24 tables.
    Tpcds,
}

impl Benchmark {
    /// As it is written down beside the files: `tpch` or `tpcds`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
        }
    }

    /// Its tables, those with the most rows first.
    pub fn tables(self) -> &'static [Table] {
        match self {
            Self::Tpch => sources::TPCH,
            Self::Tpcds => sources::TPCDS,
        }
    }
}

/// The kind of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    /// Comma-separated with a header line.
    Csv,
    /// The benchmark's own text: fields ended by `|`, no header line.
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

/// What to generate.
#[derive(Debug, Clone)]
pub struct Options {
    /// 1 is about 1 GB as text; from 0.001 to 100 000.
    pub scale: f64,
    pub format: Format,
    /// Files per table, at least 1; small tables have one. Without it the table's size decides, or what is
    /// there already.
    pub parts: Option<u32>,
    /// Only these tables; without any, all.
    pub tables: Vec<String>,
    /// Whether what is there already is made again, and other data replaced.
    pub overwrite: bool,
}

impl Options {
    /// All tables at a scale, as Parquet, where they are missing.
    pub fn new(scale: f64) -> Self {
        Self { scale, format: Format::Parquet, parts: None, tables: Vec::new(), overwrite: false }
    }

    /// The tables that are asked for, in the order of [`Benchmark::tables`].
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

    /// The number of files of a table: one for every 6 million rows, and up to four for every 750 000.
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
    fn what_no_table_can_be_is_refused() {
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
