//! Rewrites of plans that must not change the rows: grouping sets by the finest one, sums of a column with
//! constants, and subplans that are run once. Each is compared with a statement that is not rewritten.
#![allow(clippy::await_holding_lock)] // Each test has a runtime of its own, and the lock lets those of this program run together.

use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::displayable;
use harrier_engine::{Engine, EngineOptions, Session};

use crate::plans::{AGGREGATES, NO_DISTINCT, TABLE};
use crate::share_cpu_time;

fn session(threads: usize) -> Session {
    let mut options = EngineOptions::default();
    options.threads = threads;
    Engine::try_new(options).expect("an engine").session()
}

/// Rows as texts, sorted.
async fn sorted_rows(session: &Session, sql: &str) -> Vec<String> {
    let batches = async { session.context().sql(sql).await?.collect().await };
    let batches = batches.await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("a text"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<_> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort();
    rows
}

async fn plan_text(session: &Session, sql: &str) -> String {
    let plan = async { session.context().sql(sql).await?.create_physical_plan().await };
    let plan = plan.await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    displayable(plan.as_ref()).indent(false).to_string()
}

/// Calls of a function, with options. Results that depend on the order of additions are rounded.
fn calls(function: &str) -> Vec<String> {
    let (name, arguments) = function.split_once('(').expect("a call");
    if matches!(name, "array_agg" | "string_agg") {
        let arguments = arguments.trim_end_matches(')');
        return vec![format!("{name}({arguments} ORDER BY id DESC) FILTER (WHERE id > 2)")];
    }
    let mut calls = vec![function.to_string(), format!("{function} FILTER (WHERE p)")];
    if !NO_DISTINCT.contains(&function) {
        calls.push(format!("{name}(DISTINCT {arguments}"));
    }
    if matches!(name, "stddev" | "var_pop" | "corr" | "regr_slope") {
        calls.iter_mut().for_each(|call| *call = format!("round(CAST({call} AS numeric(38, 10)), 6)"));
    }
    calls
}

/// Grouping sets of the columns g and p, and what one group by for each of them has.
const SETS: [(&str, &[&str]); 5] = [
    ("ROLLUP (g, p)", &["g, p", "g", ""]),
    ("CUBE (g, p)", &["g, p", "g", "p", ""]),
    ("GROUPING SETS ((g, p), (p), (p), (g, p))", &["g, p", "p", "p", "g, p"]),
    ("GROUPING SETS ((p), (g), ())", &["p", "g", ""]),
    ("GROUPING SETS ((g, p), (), ())", &["g, p", "", ""]),
];

#[tokio::test]
async fn grouping_sets_equal_unions_of_groups() {
    let _together = share_cpu_time();
    let sessions = [session(1), session(4)];
    sorted_rows(&sessions[1], "SET datafusion.execution.batch_size = 2").await;
    for session in &sessions {
        let sql = format!("SELECT g, p, sum(v) FROM {TABLE} GROUP BY ROLLUP (g, p)");
        assert!(plan_text(session, &sql).await.contains("GroupingSetsExec"), "{sql}");
    }
    for filter in ["", "WHERE false", "WHERE g = 2"] {
        for call in AGGREGATES.iter().flat_map(|function| calls(function)) {
            for (sets, groups) in SETS {
                let parts: Vec<_> = groups
                    .iter()
                    .map(|keys| {
                        let column = |name: &str, kind: &str| match keys.contains(name) {
                            true => name.to_string(),
                            false => format!("CAST(NULL AS {kind})"),
                        };
                        let (g, p) = (column("g", "bigint"), column("p", "boolean"));
                        let by = if keys.is_empty() { String::new() } else { format!("GROUP BY {keys}") };
                        format!("SELECT {g} AS g, {p} AS p, {call} FROM {TABLE} {filter} {by}")
                    })
                    .collect();
                let expected = sorted_rows(&sessions[0], &parts.join(" UNION ALL ")).await;
                let sql = format!("SELECT g, p, {call} FROM {TABLE} {filter} GROUP BY {sets}");
                for session in &sessions {
                    assert_eq!(sorted_rows(session, &sql).await, expected, "{sql}");
                }
            }
        }
    }
}

#[tokio::test]
async fn sums_with_constants_equal_sums_alone() {
    let _together = share_cpu_time();
    let session = session(2);
    let terms = ["x", "x + 1", "x - 3", "5 - x", "2147483647 + x", "x + 3000000000", "y + 1", "y - 1", "y"];
    let table = "(SELECT CAST(a AS int) AS x, CAST(b AS smallint) AS y, g FROM (VALUES (1, 2, 'a'), (NULL, 3, 'a'), \
                 (2147483647, -32768, 'b'), (-2147483648, NULL, 'b'), (NULL, NULL, 'c')) AS t (a, b, g)) AS s";
    for (group, filter) in [("GROUP BY g", "true"), ("", "true"), ("", "false")] {
        let key = if group.is_empty() { "1" } else { "g" };
        let calls: Vec<_> = terms.iter().map(|term| format!("sum({term})")).collect();
        let sql = format!("SELECT {key}, {} FROM {table} WHERE {filter} {group}", calls.join(", "));
        let text = plan_text(&session, &sql).await;
        assert!(text.contains("count("), "it is not rewritten: {text}");
        let together = sorted_rows(&session, &sql).await;
        let mut alone: Vec<String> = Vec::new();
        for call in &calls {
            let sql = format!("SELECT {key}, {call} FROM {table} WHERE {filter} {group}");
            let rows = sorted_rows(&session, &sql).await;
            if alone.is_empty() {
                alone = rows;
                continue;
            }
            for (row, sum) in alone.iter_mut().zip(rows) {
                row.push_str(sum.split_once('|').map_or("", |(key, _)| &sum[key.len()..]));
            }
        }
        assert_eq!(together, alone, "{sql}");
    }
    let overflow = "SELECT sum(x + 1), sum(x + 2), sum(x + 3) FROM (VALUES (9223372036854775807)) AS t (x)";
    let error = async { session.context().sql(overflow).await?.collect().await };
    assert!(error.await.is_err(), "64-bit columns are checked for each row");
}

/// A WITH query over 60 000 rows, and a statement that reads it in several places.
const WITH: &str = "WITH a AS (SELECT x % 1000 AS k, sum(x) AS s, count(*) AS n FROM generate_series(1, 60000) AS t (x) \
                    GROUP BY 1)";
const READERS: [&str; 6] = [
    "SELECT a.k, a.s + b.n FROM a JOIN a AS b ON a.k = b.k + 1",
    "SELECT k, s FROM a WHERE s > (SELECT avg(s) FROM a)",
    "SELECT * FROM a UNION ALL SELECT * FROM a UNION ALL SELECT k, n, s FROM a",
    "SELECT a.k, b.n, c.s FROM a LEFT JOIN a AS b ON a.s = b.s JOIN a AS c ON b.k = c.k WHERE a.k IN (SELECT k FROM a)",
    "SELECT a.k FROM a, a AS b WHERE a.k < b.k AND b.k < 3",
    "(SELECT * FROM a ORDER BY s LIMIT 3) UNION ALL (SELECT * FROM a ORDER BY s DESC LIMIT 3)",
];

#[tokio::test]
async fn shared_subplans_return_the_same_rows() {
    let _together = share_cpu_time();
    for threads in [1, 3] {
        let (shared, copied) = (session(threads), session(threads));
        sorted_rows(&copied, "SET harrier.shared_subplans = false").await;
        let mut shared_plans = 0;
        for reader in READERS {
            let sql = format!("{WITH} {reader}");
            shared_plans += usize::from(plan_text(&shared, &sql).await.contains("SharedSubplanExec"));
            assert!(!plan_text(&copied, &sql).await.contains("SharedSubplanExec"), "{sql}");
            assert_eq!(sorted_rows(&shared, &sql).await, sorted_rows(&copied, &sql).await, "{sql}");
        }
        assert!(shared_plans >= 4, "{shared_plans} of {} plans are shared", READERS.len());
    }
}

#[tokio::test]
async fn volatile_and_small_subplans_are_not_shared() {
    let _together = share_cpu_time();
    let session = session(2);
    for sql in [
        "WITH a AS (SELECT x % 10 AS k, max(random()) AS r FROM generate_series(1, 60000) AS t (x) GROUP BY 1) \
         SELECT * FROM a UNION ALL SELECT * FROM a",
        "WITH a AS (SELECT x % 10 AS k, sum(x) AS s FROM (VALUES (1), (12), (22)) AS t (x) GROUP BY 1) \
         SELECT * FROM a UNION ALL SELECT * FROM a",
        "SELECT x FROM generate_series(1, 60000) AS t (x) UNION ALL SELECT x FROM generate_series(1, 60000) AS t (x)",
    ] {
        assert!(!plan_text(&session, sql).await.contains("SharedSubplanExec"), "{sql}");
    }
}
