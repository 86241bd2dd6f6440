//! Number of requests of statements by kind: requests cost money and time. Files known from the catalog are
//! neither listed nor stat'ed before they are read.

use harrier_testkit::session::Session;

use crate::warehouses::{Bucket, one, run};

/// Requests of one statement, as `GET 2, LIST 1`; those for the writer locks of an external table as `LOCK`.
fn requests(bucket: &Bucket, session: &mut Session, sql: &str) -> String {
    bucket.proxy.reset();
    run(session, sql);
    let mut counts = std::collections::BTreeMap::new();
    for request in bucket.proxy.requests() {
        let kind = if request.path.contains(".harrier-") { "LOCK".to_string() } else { request.kind };
        *counts.entry(kind).or_insert(0) += 1;
    }
    counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn statements_make_few_requests() {
    let Some(bucket) = Bucket::new() else { return };
    let mut session = bucket.session();
    let at = |name: &str| format!("s3://{}/{name}", bucket.name);
    let rows = "SELECT v AS id, v % 7 AS k FROM generate_series(1, 1000) AS g(v)";
    // The first statement also creates the catalog and the marker of the data folder.
    run(&mut session, "CREATE TABLE t (id BIGINT, k BIGINT)");
    run(&mut session, &format!("INSERT INTO t {rows}"));
    let mut failures = Vec::new();
    for (sql, expected) in [
        (format!("COPY ({rows}) TO '{}'", at("f/a.parquet")), "PUT 1"),
        (format!("SELECT sum(id) FROM '{}'", at("f/a.parquet")), "GET 2, HEAD 1"),
        // The footer is cached.
        (format!("SELECT sum(id) FROM '{}'", at("f/")), "GET 1, LIST 1, LOCK 2"),
        (format!("INSERT INTO t {rows}"), "PUT 1"),
        ("SELECT sum(id) FROM t".to_string(), "GET 4"),
        ("SELECT count(*) FROM t".to_string(), ""),
        ("DELETE FROM t WHERE id = 5".to_string(), "GET 4"),
    ] {
        let actual = requests(&bucket, &mut session, &sql);
        if actual != expected {
            failures.push(format!("{sql}: {actual} instead of {expected}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "1998");
}

/// A query sees files written just before, and one that names a file twice lists it once.
#[test]
fn listings_are_cached_within_one_query() {
    let Some(bucket) = Bucket::new() else { return };
    let mut session = bucket.session();
    let folder = format!("s3://{}/x/", bucket.name);
    let count = format!("SELECT count(*) FROM '{folder}'");
    for files in 1..4 {
        run(&mut session, &format!("COPY (SELECT 1 AS v) TO '{folder}{files}.parquet'"));
        assert_eq!(one(&mut session, &count), files.to_string());
    }
    let file = format!("'{folder}1.parquet'");
    let twice = requests(&bucket, &mut session, &format!("SELECT count(*) FROM {file} AS a, {file} AS b"));
    assert!(twice.contains("HEAD 1"), "{twice}");
    run(
        &mut session,
        &format!(
            "CREATE EXTERNAL TABLE e (v BIGINT, k INT) STORED AS PARQUET PARTITIONED BY (k) LOCATION '{folder}e/'"
        ),
    );
    for inserted in 1..4 {
        run(&mut session, &format!("INSERT INTO e VALUES ({inserted}, {inserted})"));
        assert_eq!(one(&mut session, "SELECT count(*) FROM e"), inserted.to_string());
    }
}
