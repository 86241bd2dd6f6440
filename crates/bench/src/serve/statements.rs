//! Statements of the clients of `bench serve`, over the tables of TPC-H.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::workload::Query;

/// Kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Catalog queries only.
    Catalog,
    /// An order by its key.
    Point,
    /// The same by a prepared statement, with a binary answer if the protocol has one.
    Prepared,
    /// The orders of a month by priority.
    Aggregate,
    /// Point lookups and small aggregates in turn.
    Small,
    /// The queries of TPC-H, in a different order for each client.
    Tpch,
    /// One row into a table that all clients share, each in a transaction of its own.
    Insert,
}

pub const LOADS: [Load; 7] =
    [Load::Catalog, Load::Point, Load::Prepared, Load::Aggregate, Load::Small, Load::Tpch, Load::Insert];

/// Name of a client's prepared statement.
pub const PREPARED: &str = "point";

const COLUMNS: &str = "o_orderkey, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority";

/// Months of the order dates: January 1992 to July 1998.
const MONTHS: Range<u32> = 0..79;

impl Load {
    pub fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Point => "point",
            Self::Prepared => "prepared",
            Self::Aggregate => "aggregate",
            Self::Small => "small",
            Self::Tpch => "tpch",
            Self::Insert => "insert",
        }
    }

    /// Title for the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Catalog => "Catalog only",
            Self::Point => "Point lookup",
            Self::Prepared => "Point lookup, prepared",
            Self::Aggregate => "Small aggregate",
            Self::Small => "Small mix",
            Self::Tpch => "TPC-H mix",
            Self::Insert => "Small inserts",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let found = LOADS.into_iter().find(|load| load.name() == text);
        let names = LOADS.map(Self::name).join(", ");
        found.ok_or_else(|| format!("there is no load \"{text}\"; there are {names}"))
    }
}

/// A client's next statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Text(String),
    /// The prepared statement, with its one parameter.
    Prepared(String),
}

/// Table for inserted rows; unique to this process, as a warehouse outlives it.
pub fn insert_table() -> String {
    format!("bench_insert_{}", std::process::id())
}

/// The statement that a client prepares.
pub fn prepared_text() -> String {
    format!("SELECT {COLUMNS} FROM orders WHERE o_orderkey = CAST($1 AS bigint)")
}

/// Properties of the data that loads need.
#[derive(Debug, Clone)]
pub struct Source {
    pub queries: Vec<Query>,
    /// Number of orders.
    pub orders: u64,
    /// Catalog query, specific to the kind of server.
    pub catalog: &'static str,
}

/// Endless sequence of one client's statements, determined by its seed.
pub struct Script<'a> {
    source: &'a Source,
    load: Load,
    /// Distinguishes clients.
    seed: u64,
    random: StdRng,
    /// Queries left in this round.
    round: Vec<usize>,
    count: u64,
}

impl<'a> Script<'a> {
    pub fn new(source: &'a Source, load: Load, seed: u64) -> Self {
        Self { source, load, seed, random: StdRng::seed_from_u64(seed), round: Vec::new(), count: 0 }
    }

    pub fn next(&mut self) -> Statement {
        self.count += 1;
        match self.load {
            Load::Catalog => Statement::Text(self.source.catalog.to_owned()),
            Load::Point => self.point(),
            Load::Prepared => Statement::Prepared(self.key().to_string()),
            Load::Aggregate => self.aggregate(),
            Load::Small if self.count % 2 == 1 => self.point(),
            Load::Small => self.aggregate(),
            Load::Tpch => {
                if self.round.is_empty() {
                    self.round = (0..self.source.queries.len()).collect();
                    self.round.shuffle(&mut self.random);
                }
                let next = self.round.pop().unwrap_or_default();
                Statement::Text(self.source.queries[next].sql.clone())
            }
            Load::Insert => {
                let (table, client, number) = (insert_table(), self.seed, self.count);
                let word = self.key();
                Statement::Text(format!("INSERT INTO {table} VALUES ({client}, {number}, 'word {word}')"))
            }
        }
    }

    /// Expected number of rows, if known.
    pub fn rows(&self) -> Option<u64> {
        match self.load {
            Load::Point | Load::Prepared => Some(1),
            _ => None,
        }
    }

    /// Returns an existing key: of every 32 numbers the first 8 are used (TPC-H 4.2.3), and the first order
    /// is number 1.
    fn key(&mut self) -> u64 {
        let order = self.random.random_range(1..=self.source.orders);
        order / 8 * 32 + order % 8
    }

    fn point(&mut self) -> Statement {
        let key = self.key();
        Statement::Text(format!("SELECT {COLUMNS} FROM orders WHERE o_orderkey = {key}"))
    }

    fn aggregate(&mut self) -> Statement {
        let month = self.random.random_range(MONTHS);
        let first = |month: u32| format!("DATE '{}-{:02}-01'", 1992 + month / 12, month % 12 + 1);
        Statement::Text(format!(
            "SELECT o_orderpriority, count(*), sum(o_totalprice) FROM orders \
             WHERE o_orderdate >= {} AND o_orderdate < {} GROUP BY o_orderpriority ORDER BY o_orderpriority",
            first(month),
            first(month + 1)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let query = |number: usize| Query { number, name: "q", sql: number.to_string(), answer: None };
        Source { queries: (1..=5).map(query).collect(), orders: 1500, catalog: "SHOW x" }
    }

    #[test]
    fn clients_ask_the_same_for_the_same_seed() {
        let source = source();
        for load in LOADS {
            let statements = |seed| -> Vec<Statement> {
                let mut script = Script::new(&source, load, seed);
                (0..20).map(|_| script.next()).collect()
            };
            assert_eq!(statements(7), statements(7), "{load:?}");
            assert!(load == Load::Catalog || statements(7) != statements(8), "{load:?}");
            assert_eq!(Load::parse(load.name()), Ok(load));
        }
        assert!(Load::parse("nosuch").is_err());
    }

    #[test]
    fn every_query_comes_once_a_round() {
        let source = source();
        let mut script = Script::new(&source, Load::Tpch, 1);
        let mut round: Vec<String> = (0..5)
            .map(|_| match script.next() {
                Statement::Text(text) => text,
                other => panic!("{other:?}"),
            })
            .collect();
        round.sort();
        assert_eq!(round, ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn keys_are_those_of_orders() {
        let source = source();
        let mut script = Script::new(&source, Load::Point, 3);
        for _ in 0..1000 {
            let key = script.key();
            assert!((1..=6004).contains(&key) && key % 32 < 8, "{key}");
        }
    }

    #[test]
    fn months_follow_each_other() {
        let source = source();
        let mut script = Script::new(&source, Load::Aggregate, 3);
        let texts: Vec<String> = (0..1000).map(|_| format!("{:?}", script.aggregate())).collect();
        assert!(texts.iter().any(|text| text.contains("'1995-12-01' AND o_orderdate < DATE '1996-01-01'")));
        assert!(!texts.iter().any(|text| text.contains("-13-")));
    }
}
