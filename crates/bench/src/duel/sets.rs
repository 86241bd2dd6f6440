//! The sets of `harrier bench duel`: their data, their tables, and how their answers are compared.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use harrier_error::SqlError;

use super::compare::Same;
use super::films::Films;
use super::tables;
use super::visits::Visits;
use crate::{Failure, generate, workload};

/// Statements over tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// The 22 queries of TPC-H.
    Tpch,
    /// The 103 statements of TPC-DS.
    Tpcds,
    /// 15 statements over up to 11 tables, each with its tables in three orders.
    Joins,
    /// 43 statements over one wide table.
    Visits,
}

impl Set {
    pub const ALL: [Self; 4] = [Self::Tpch, Self::Tpcds, Self::Joins, Self::Visits];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
            Self::Joins => "joins",
            Self::Visits => "visits",
        }
    }

    /// Returns the folder of the set's data below `folder`, such as `joins-sf1`, after generating what is
    /// missing. Blocks until it is done.
    pub fn generate(self, scale: f64, folder: &Path) -> Result<PathBuf, Failure> {
        if matches!(self, Self::Tpch | Self::Tpcds) {
            return generate(self.name(), scale, folder);
        }
        let data = folder.join(format!("{}-sf{scale}", self.name()));
        if !data.exists() {
            let source: Box<dyn tables::Source> = match self {
                Self::Visits => Box::new(Visits::new(scale)),
                _ => Box::new(Films::new(scale)),
            };
            tables::write(source.as_ref(), &data)?;
        }
        Ok(data)
    }

    /// Returns the tables in such a folder: names and absolute paths. Errors: a table is missing.
    pub fn tables(self, data: &Path) -> Result<Vec<(String, String)>, SqlError> {
        match self {
            Self::Tpch => workload::tables(data),
            Self::Tpcds => workload::tpcds_tables(data),
            Self::Joins => workload::joins_tables(data),
            Self::Visits => workload::visits_tables(data),
        }
    }

    /// What of the answers to a statement has to be the same. Page visits are in a full order wherever they
    /// are in any.
    pub fn same(self, sql: &str) -> Same {
        match self {
            Self::Visits if sql.contains("order by") => Same::RowsInOrder,
            Self::Visits if sql.contains("limit") => Same::Count,
            _ => Same::Rows,
        }
    }
}

impl FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|set| set.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("there is no set \"{text}\": {names}"))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{ParquetReadOptions, SessionContext};

    use super::*;
    use crate::workload::Workload;

    /// Every statement runs over its generated tables, with DataFusion alone.
    #[tokio::test]
    async fn statements_run_over_the_generated_tables() {
        let folder = tempfile::tempdir().unwrap();
        for set in [Set::Joins, Set::Visits] {
            let told = |failure: Failure| panic!("{}", failure.error.message);
            let data = set.generate(0.001, folder.path()).unwrap_or_else(told);
            assert_eq!(data, folder.path().join(format!("{}-sf0.001", set.name())));
            // A second time it is there.
            set.generate(0.001, folder.path()).unwrap_or_else(told);
            let context = SessionContext::new();
            for (name, path) in set.tables(&data).unwrap_or_else(|error| panic!("{}", error.message)) {
                context.register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
            }
            for query in Workload::new(set.name(), 0.001).queries {
                let answer = context.sql(query.sql.trim_end().trim_end_matches(';')).await;
                let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", query.name));
                answer.collect().await.unwrap_or_else(|error| panic!("{}: {error}", query.name));
            }
        }
    }

    #[test]
    fn one_statement_has_nondeterministic_rows() {
        let count = |same: Same| {
            let queries = Workload::new("visits", 1.0).queries;
            queries.iter().filter(|query| Set::Visits.same(&query.sql) == same).count()
        };
        assert_eq!((count(Same::Count), count(Same::RowsInOrder)), (1, 32));
        assert_eq!(Set::Tpch.same("select 1 order by 1 limit 1"), Same::Rows);
        assert!("tpch".parse::<Set>().is_ok() && "tpc".parse::<Set>().is_err());
    }
}
