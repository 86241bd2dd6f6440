//! Serialization of plans: encoded and decoded with a rank's functions, they return the same rows.
#![allow(clippy::await_holding_lock)] // Each test has a runtime of its own, and the lock lets those of this program run together.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use harrier_engine::{Engine, EngineOptions, Session};
use harrier_exec::functions;
use harrier_exec::transport::plan_codec;
use harrier_sql::nesting::THREAD_STACK_BYTES;

use crate::share_cpu_time;

/// Groups of several rows, NULLs in each column but `id`, and duplicate values.
pub(crate) const TABLE: &str = "(VALUES (1, 1, 10, true, 'a'), (2, 2, 20, true, 'b'), (3, 1, NULL, NULL, 'c'), (4, 2, 40, false, NULL), \
     (5, 1, 50, true, 'e'), (6, 2, NULL, true, 'f'), (7, 1, 10, false, 'a'), (8, 2, 20, false, 'h'), (9, NULL, 90, true, 'i')) \
     AS t (id, g, v, p, s)";

pub(crate) const AGGREGATES: [&str; 16] = [
    "count(*)",
    "count(v)",
    "sum(v)",
    "avg(v)",
    "min(v)",
    "max(s)",
    "bool_and(p)",
    "bool_or(p)",
    "bit_xor(v)",
    "stddev(v)",
    "var_pop(v)",
    "corr(v, id)",
    "regr_slope(v, id)",
    "median(v)",
    "array_agg(v)",
    "string_agg(s, ',')",
];

/// Aggregates that can retract rows, as frames with a moving start need.
const MOVING: [&str; 7] = ["count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(s)", "array_agg(v)"];

/// Aggregates that do not support DISTINCT.
pub(crate) const NO_DISTINCT: [&str; 6] =
    ["count(*)", "corr(v, id)", "regr_slope(v, id)", "stddev(v)", "var_pop(v)", "bit_xor(v)"];

const FUNCTIONS: [&str; 13] = [
    "row_number()",
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
    "ntile(2)",
    "lag(v)",
    "lag(v, 2, -1)",
    "lead(v)",
    "lead(v, 2, -1)",
    "first_value(v)",
    "last_value(v)",
    "nth_value(v, 2)",
];

/// Windows, and for each one in the opposite order.
const WINDOWS: [(&str, &str); 4] = [
    ("PARTITION BY g ORDER BY id", "PARTITION BY g ORDER BY id DESC"),
    ("ORDER BY id DESC", "ORDER BY id"),
    (
        "PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        "PARTITION BY g ORDER BY id DESC",
    ),
    ("ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING", "ORDER BY id DESC"),
];

fn session() -> Session {
    Engine::try_new(EngineOptions::default()).expect("an engine").session()
}

async fn plan_statement(session: &Session, sql: &str) -> Arc<dyn ExecutionPlan> {
    let plan_statement = async { session.context().sql(sql).await?.create_physical_plan().await };
    plan_statement.await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn execute_to_text(sql: &str, plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> String {
    let batches = collect(plan, context).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).expect("a table").to_string()
}

/// Rows of a statement, after asserting that its encoded and decoded plan returns the same.
async fn rows(session: &Session, sql: &str) -> String {
    let plan = plan_statement(session, sql).await;
    let bytes = plan_codec::encode(&plan).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let here = execute_to_text(sql, plan, session.context().task_ctx()).await;
    let mut rank = SessionStateBuilder::new_with_default_features();
    functions::install(&mut rank);
    let context = rank.build().task_ctx();
    let plan = plan_codec::decode(&bytes, &context).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(execute_to_text(sql, plan, context).await, here, "{sql}");
    here
}

/// Asserts that calls of one function in one statement, over a window and beside another window, return the
/// same rows as alone.
async fn check_windows_beside(session: &Session, calls: &[String], window: &str, other: &str) {
    let columns: Vec<String> =
        calls.iter().enumerate().map(|(at, call)| format!("{call} OVER ({window}) AS c{at}")).collect();
    let columns = columns.join(", ");
    let alone = format!("SELECT id, {columns} FROM {TABLE} ORDER BY id");
    let names: Vec<String> = (0..calls.len()).map(|at| format!("c{at}")).collect();
    let both = format!(
        "SELECT id, {} FROM (SELECT id, {columns}, row_number() OVER ({other}) AS r FROM {TABLE}) AS q \
         WHERE r > 0 ORDER BY id",
        names.join(", ")
    );
    assert_eq!(rows(session, &both).await, rows(session, &alone).await, "{both}");
}

#[tokio::test]
async fn window_functions_round_trip() {
    let _together = share_cpu_time();
    let session = session();
    for (window, other) in WINDOWS {
        for function in AGGREGATES {
            if window.contains("2 PRECEDING") && !MOVING.contains(&function) {
                continue;
            }
            let calls = [
                function.to_string(),
                format!("{function} FILTER (WHERE p)"),
                format!("{function} FILTER (WHERE v > 15 AND id <> 2)"),
                format!("{function} FILTER (WHERE NULL)"),
            ];
            check_windows_beside(&session, &calls, window, other).await;
        }
        for function in FUNCTIONS {
            let mut calls = vec![function.to_string()];
            if function.contains("(v") {
                calls.push(format!("{function} IGNORE NULLS"));
            }
            check_windows_beside(&session, &calls, window, other).await;
        }
    }
    let distinct = ["count(DISTINCT v)", "sum(DISTINCT v)", "count(DISTINCT s) FILTER (WHERE p)"];
    check_windows_beside(&session, &distinct.map(String::from), WINDOWS[0].0, WINDOWS[0].1).await;
}

#[tokio::test]
async fn aggregates_round_trip() {
    let _together = share_cpu_time();
    let session = session();
    for function in AGGREGATES {
        let (name, arguments) = function.split_once('(').expect("a call");
        let mut calls = vec![function.to_string(), format!("{function} FILTER (WHERE p)")];
        if !NO_DISTINCT.contains(&function) {
            calls.push(format!("{name}(DISTINCT {arguments}"));
        }
        if matches!(name, "array_agg" | "string_agg") {
            calls.pop();
            let arguments = arguments.trim_end_matches(')');
            calls.push(format!("{name}({arguments} ORDER BY id DESC)"));
            calls.push(format!("{name}({arguments} ORDER BY p, id) FILTER (WHERE id > 2)"));
        }
        for call in calls {
            rows(&session, &format!("SELECT g, {call} FROM {TABLE} GROUP BY g ORDER BY g")).await;
            let sets = format!(
                "SELECT g, p, {call} FROM {TABLE} GROUP BY ROLLUP (g, p) ORDER BY g, p, grouping(g, p)"
            );
            rows(&session, &sets).await;
        }
    }
    for function in ["first_value", "last_value"] {
        let sql = format!(
            "SELECT g, {function}(v ORDER BY id DESC), {function}(v ORDER BY id) IGNORE NULLS FROM {TABLE} \
             GROUP BY g ORDER BY g"
        );
        rows(&session, &sql).await;
    }
    rows(&session, &format!("SELECT nth_value(v, 2 ORDER BY id DESC) FROM {TABLE}")).await;
}

/// On a thread with the stack size of the program's threads.
#[test]
fn deep_plans_round_trip() {
    let _together = share_cpu_time();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES);
    let thread = thread.spawn(move || runtime.block_on(compare_deep_plans())).expect("a thread");
    thread.join().expect("plans that stay the same");
}

async fn compare_deep_plans() {
    let session = session();
    let terms = |count: usize, term: &dyn Fn(usize) -> String, between: &str| {
        (0..count).map(term).collect::<Vec<_>>().join(between)
    };
    let sum = terms(200, &|at| format!("id * {at}"), " + ");
    let cases = terms(100, &|at| format!("CASE WHEN id = {at} THEN {at} ELSE 0 END"), " + ");
    let either = terms(150, &|at| format!("id * {at} = v"), " OR ");
    let nested =
        (0..16).fold("id".to_string(), |inner, at| format!("CASE WHEN id > {at} THEN {inner} ELSE {at} END"));
    let joins = terms(
        40,
        &|at| format!("LEFT JOIN {} ON t{at}.id = t.id", TABLE.replace("AS t", &format!("AS t{at}"))),
        " ",
    );
    for sql in [
        format!("SELECT id, {sum} AS a, {cases} AS b FROM {TABLE} WHERE {either} OR id > 3 ORDER BY id"),
        format!("SELECT sum({sum}) AS a, max({nested}) AS b FROM {TABLE} GROUP BY g ORDER BY ({sum}) % 3, 1"),
        format!("SELECT id, count(*) OVER (PARTITION BY {cases} ORDER BY {sum}) FROM {TABLE} ORDER BY id"),
        format!("SELECT count(*) FROM {TABLE} {joins}"),
    ] {
        let sql = sql.replace(" GROUP BY g ORDER BY ", " GROUP BY id ORDER BY ");
        rows(&session, &sql).await;
    }
    let mut plan = plan_statement(&session, &format!("SELECT id FROM {TABLE}")).await;
    for _ in 0..500 {
        plan = Arc::new(datafusion::physical_plan::limit::LocalLimitExec::new(plan, 7));
    }
    let bytes = plan_codec::encode(&plan).expect("bytes");
    let context = session.context().task_ctx();
    let decoded = plan_codec::decode(&bytes, &context).expect("a plan");
    assert_eq!(
        execute_to_text("", decoded, Arc::clone(&context)).await,
        execute_to_text("", plan, context).await
    );
}

#[tokio::test]
async fn generate_series_round_trips() {
    let _together = share_cpu_time();
    let session = session();
    for sql in [
        "SELECT count(*) FROM generate_series(1, 10)",
        "SELECT 7 AS c FROM generate_series(5, 1, -2)",
        "SELECT 7 AS c FROM generate_series(1, NULL)",
        "SELECT 7 AS c FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day')",
        "SELECT 7 AS c FROM generate_series(date '2024-01-01', date '2024-03-01', interval '1 month')",
        "SELECT sum(r * value) FROM (SELECT value, rank() OVER (PARTITION BY value ORDER BY value) AS r \
         FROM generate_series(3, 1, -1)) q",
        "SELECT value FROM generate_series(timestamp '2024-01-01', timestamp '2024-01-05', interval '1 day') \
         ORDER BY value",
    ] {
        rows(&session, sql).await;
    }
}

/// Values that a join of this process has learnt stay local: other ranks have others.
#[tokio::test]
async fn dynamic_filters_are_sent_without_values() {
    let _together = share_cpu_time();
    let session = session();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rows) in [("few", 3), ("many", 300)] {
        let file = folder.path().join(name).with_extension("parquet");
        let rows = format!(
            "SELECT value AS n, value + 1 AS m, CASE WHEN value < 100 THEN 'text ' || value END AS t FROM generate_series(1, {rows})"
        );
        for sql in [
            format!("COPY ({rows}) TO '{}' STORED AS PARQUET", file.display()),
            format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'", file.display()),
        ] {
            session.context().sql(&sql).await.expect("a plan").collect().await.expect("rows in a file");
        }
    }
    for on in ["a.t = b.t", "a.t IS NOT DISTINCT FROM b.t", "a.m = b.m AND a.t = b.t"] {
        let sql = format!("SELECT count(*) FROM few a JOIN many b ON {on}");
        let plan = plan_statement(&session, &sql).await;
        let context = session.context().task_ctx();
        let here = execute_to_text(&sql, Arc::clone(&plan), Arc::clone(&context)).await;
        let plan_text = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(false).to_string();
        let has_values =
            plan_text(&plan).contains("DynamicFilter [") && !plan_text(&plan).contains("[ empty ]");
        assert!(has_values, "{}", plan_text(&plan));
        let bytes = plan_codec::encode(&plan).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let decoded = plan_codec::decode(&bytes, &context).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(plan_text(&decoded).contains("DynamicFilter [ empty ]"), "{}", plan_text(&decoded));
        assert_eq!(execute_to_text(&sql, decoded, context).await, here, "{sql}");
    }
}
