//! Contract of the exchange between ranks as statements observe it, run by every transport.
//!
//! `harrier_sim::contract` tests streams, and every transport that carries Harrier's streams runs it. gRPC
//! carries none of them: it uses datafusion-distributed's own client and server. This contract tests all
//! transports with statements: each row arrives once, rows of a stream keep their order, and each stream of a
//! statement ends exactly once, however the statement ends. Those who implement [`Ranks`] set
//! `harrier.check_ledger`, so that a stream that did not end fails its statement. The next statement must
//! succeed.
//!
//! Run by `harrier/tests/ranks/contract.rs` with the real binary, and by
//! `engine/tests/in_process/contract.rs` within one process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Rows as text, or SQLSTATE and message of a failure.
pub type Answer = Result<Vec<Vec<Option<String>>>, (String, String)>;

/// A session on a gang whose tables are distributed over its ranks, however small they are.
pub trait Ranks {
    /// Runs a statement to its end. Fails if it leaves anything on a rank.
    fn run(&mut self, sql: &str) -> Answer;

    /// Starts an endless statement, and cancels it once the ranks are computing.
    fn cancel(&mut self, sql: &str);

    /// Waits until no rank works on finished statements.
    fn rest(&mut self);
}

/// Guarantees that a transport does not give, each with the reason.
#[derive(Clone, Copy, Default)]
pub struct Exceptions {
    /// A sort-preserving merge completes while all of its streams but one wait.
    pub merge: Option<&'static str>,
    /// A panic of an operator fails its statement.
    pub panic: Option<&'static str>,
}

/// Rows of `facts`, numbered from 1.
const ROWS: u64 = 120_000;

/// Files of each large table.
const FILES: u64 = 4;

/// Rows of `many`; a self-join of it takes minutes.
const MANY: u64 = 600_000;

/// Prefix of each text of `facts`.
const BEGINNING: &str = "abcdefghij";
const BEGINNINGS: usize = 20;

/// Tables and the statements that check the contract.
pub struct Contract {
    folder: PathBuf,
    exceptions: Exceptions,
}

impl Contract {
    /// Uses tables in `folder`, created by [`Contract::tables`].
    pub fn new(folder: &Path, exceptions: Exceptions) -> Contract {
        Contract { folder: folder.to_path_buf(), exceptions }
    }

    /// Statements that create the tables, to be run once in order.
    pub fn tables(&self) -> Vec<String> {
        for table in ["facts", "many", "groups"] {
            fs::create_dir_all(self.folder.join(table)).expect("a folder");
        }
        let folder = self.folder.display();
        let parts = |table: &str, rows: u64, columns: &str| -> Vec<String> {
            let part = |file: u64| {
                let (from, to) = (file * rows / FILES + 1, (file + 1) * rows / FILES);
                let select = format!("SELECT {columns} FROM generate_series({from}, {to}) r(x)");
                format!("COPY ({select}) TO '{folder}/{table}/{file}.parquet'")
            };
            (0..FILES).map(part).collect()
        };
        let text = format!("repeat('{BEGINNING}', {BEGINNINGS}) || x AS s");
        let facts = parts("facts", ROWS, &format!("x, x % 1000 AS k, x % 7 AS g, {text}"));
        let groups = "SELECT x AS g, 'group ' || x AS name FROM generate_series(0, 6) r(x)";
        let groups = format!("COPY ({groups}) TO '{folder}/groups/0.parquet'");
        [facts, parts("many", MANY, "x"), vec![groups]].concat()
    }

    fn table(&self, name: &str) -> String {
        format!("'{}/{name}/'", self.folder.display())
    }

    /// Runs the whole contract.
    pub fn check(&self, ranks: &mut impl Ranks) {
        self.is_right(ranks);
        self.every_row_arrives_once(ranks);
        self.merges_are_complete(ranks);
        self.limits_end_producers(ranks);
        self.errors_keep_their_code(ranks);
        self.panics_fail_their_statement(ranks);
        self.what_is_never_read_ends(ranks);
        ranks.cancel(&self.endless());
        ranks.rest();
        self.is_right(ranks);
    }

    /// Endless statement: billions of pairs in little memory.
    pub fn endless(&self) -> String {
        let many = self.table("many");
        format!("SELECT sum(a.x * b.x % 7) FROM {many} a JOIN {many} b ON a.x % 16 = b.x % 16")
    }

    /// Statement with every kind of motion.
    pub fn every_motion(&self) -> String {
        format!(
            "SELECT f.k % 5, n.name, count(*), sum(f.x) FROM {} f JOIN {} n ON f.g = n.g GROUP BY 1, 2 ORDER BY 1, 2",
            self.table("facts"),
            self.table("groups")
        )
    }

    /// Asserts that the next statement returns the correct rows.
    pub fn is_right(&self, ranks: &mut impl Ranks) {
        let mut expected: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
        for x in 1..=ROWS {
            let (count, sum) = expected.entry((x % 1000 % 5, format!("group {}", x % 7))).or_default();
            (*count, *sum) = (*count + 1, *sum + x);
        }
        let expected: Vec<_> = expected
            .into_iter()
            .map(|((k, name), (count, sum))| {
                vec![Some(k.to_string()), Some(name), Some(count.to_string()), Some(sum.to_string())]
            })
            .collect();
        let sql = self.every_motion();
        let plan = rows(ranks, &format!("EXPLAIN {sql}")).into_iter().flatten().flatten();
        let plan: Vec<String> = plan.collect();
        let plan = plan.join("\n");
        for motion in ["gather", "redistribute", "broadcast"] {
            assert!(plan.contains(motion), "there is no {motion} in {plan}");
        }
        assert_eq!(rows(ranks, &sql), expected);
    }

    /// Sort-preserving merge: rows in order, each once.
    fn every_row_arrives_once(&self, ranks: &mut impl Ranks) {
        let sorted = rows(ranks, &format!("SELECT x FROM {} ORDER BY x", self.table("facts")));
        let sorted: Vec<u64> = sorted.iter().map(|row| number(&row[0])).collect();
        let wrong = sorted.iter().copied().zip(1_u64..).find(|(row, place)| row != place);
        assert_eq!((sorted.len() as u64, wrong), (ROWS, None), "the first row that is wrong, and its place");
    }

    /// Each file holds a disjoint range of the order, so the merge reads one stream to its end while the
    /// others wait, each with more rows than its credit (backpressure).
    fn merges_are_complete(&self, ranks: &mut impl Ranks) {
        if let Some(reason) = self.exceptions.merge {
            return eprintln!("not promised: that a merge is complete while streams wait: {reason}");
        }
        let sql = format!(
            "SELECT count(*), count(p), max(s) FROM (SELECT x, s, lag(x) OVER (ORDER BY x) AS p FROM {}) o \
             WHERE p IS NULL OR x = p + 1",
            self.table("facts")
        );
        // The greatest text, which is not that of the greatest number.
        let last = format!("{}99999", BEGINNING.repeat(BEGINNINGS));
        let expected = vec![Some(ROWS.to_string()), Some((ROWS - 1).to_string()), Some(last)];
        assert_eq!(rows(ranks, &sql), [expected]);
    }

    /// LIMIT stops producers: the first statement would compute for minutes after its rows are sent.
    fn limits_end_producers(&self, ranks: &mut impl Ranks) {
        let (facts, many) = (self.table("facts"), self.table("many"));
        for sql in [
            format!("SELECT a.x FROM {many} a JOIN {many} b ON a.x % 16 = b.x % 16 LIMIT 5"),
            format!("SELECT s FROM (SELECT s FROM {facts} UNION ALL SELECT s FROM {facts}) u LIMIT 5"),
        ] {
            assert_eq!(rows(ranks, &sql).len(), 5, "{sql}");
            ranks.rest();
            self.is_right(ranks);
        }
    }

    /// SQLSTATEs of errors in late rows, below motions, and on the build side of a join while the probe side
    /// waits.
    fn errors_keep_their_code(&self, ranks: &mut impl Ranks) {
        let (facts, groups) = (self.table("facts"), self.table("groups"));
        for (sql, expected) in [
            (format!("SELECT k, sum(1 / (x - 100000)) FROM {facts} GROUP BY k"), "22012"),
            (format!("SELECT k, max(CAST(s AS bigint)) FROM {facts} GROUP BY k"), "22P02"),
            (format!("SELECT count(*) FROM {facts} WHERE CAST(s AS date) > '1995-01-01'"), "22007"),
            (
                format!(
                    "SELECT count(*) FROM {facts} f JOIN (SELECT 1 / (g - 3) AS q FROM {groups}) n ON f.g = n.q"
                ),
                "22012",
            ),
            (
                format!(
                    "SELECT count(*) FROM {facts} f JOIN (SELECT x, 1 / (x - 100000) AS q FROM {facts}) n ON f.x = n.x + n.q"
                ),
                "22012",
            ),
        ] {
            let (actual, message) = ranks.run(&sql).expect_err(&sql);
            assert_eq!(actual, expected, "{sql}: {message}");
            self.is_right(ranks);
        }
    }

    /// In DataFusion 55 the end of this window frame overflows, and slicing its rows panics. If that is fixed
    /// upstream, use another panic.
    fn panics_fail_their_statement(&self, ranks: &mut impl Ranks) {
        let sql = format!(
            "SELECT sum(m) FROM (SELECT max(x) OVER (PARTITION BY k ORDER BY x \
             ROWS BETWEEN CURRENT ROW AND 18446744073709551610 FOLLOWING) AS m FROM {}) w",
            self.table("facts")
        );
        let answer = ranks.run(&sql);
        match self.exceptions.panic {
            None => {
                let (actual, message) = answer.expect_err(&sql);
                assert_eq!(actual, "XX000", "{message}");
                // An internal error with the same SQLSTATE.
                assert!(!message.contains("left of a statement that has ended"), "{message}");
            }
            Some(reason) => eprintln!("not promised: that a panic fails its statement: {reason}"),
        }
        self.is_right(ranks);
    }

    /// A join with an empty build side never reads its probe side, whose streams are open.
    fn what_is_never_read_ends(&self, ranks: &mut impl Ranks) {
        let facts = self.table("facts");
        let grouped = |filter: &str| format!("(SELECT k, count(*) AS c FROM {facts}{filter} GROUP BY k)");
        let sql = format!(
            "SELECT count(*) FROM {} e JOIN {} f ON e.k = f.k",
            grouped(" WHERE x % 10 = 11"),
            grouped("")
        );
        assert_eq!(rows(ranks, &sql), [[Some("0".to_string())]]);
        ranks.rest();
        self.is_right(ranks);
    }
}

/// Rows of a statement that must succeed.
fn rows(ranks: &mut impl Ranks, sql: &str) -> Vec<Vec<Option<String>>> {
    ranks.run(sql).unwrap_or_else(|(state, message)| panic!("{sql}: {state} {message}"))
}

fn number(value: &Option<String>) -> u64 {
    let text = value.as_deref().unwrap_or("null");
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}
