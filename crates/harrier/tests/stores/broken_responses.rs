//! Broken responses of an object store: truncated bodies, slow responses, and "another put is under way".
//! They are retried without effect on statements; an unreachable store is reported with its cause.

use std::process::Command;
use std::time::Duration;

use harrier_servers::{Fault, Rule};
use harrier_testkit::session::Session;

use crate::warehouses::{Bucket, on_ranks, one, run};

/// A response that is truncated once, by request kind and a part of the path.
const CUT: [(&str, &str); 5] = [
    ("LIST", "list-type"),
    // Start and completion of multipart uploads.
    ("POST", "?uploads"),
    ("POST", "uploadId"),
    ("PUT", ""),
    ("DELETE-MANY", ""),
];

/// Runs statements that list, read, write in one request and in parts, and delete.
fn statements(session: &mut Session, bucket: &Bucket, name: &str) {
    let at = |path: &str| format!("s3://{}/{name}/{path}", bucket.name);
    // More than one request uploads.
    let rows =
        "SELECT v AS id, md5(v::text) || md5((v + 1)::text) AS t FROM generate_series(1, 400000) AS g(v)";
    run(session, &format!("COPY ({rows}) TO '{}'", at("out/a.csv")));
    assert_eq!(one(session, &format!("SELECT count(*) FROM '{}'", at("out/*.csv"))), "400000");
    run(
        session,
        &format!(
            "CREATE EXTERNAL TABLE e (id BIGINT, k INT) STORED AS PARQUET PARTITIONED BY (k) LOCATION '{}'",
            at("e/")
        ),
    );
    run(session, "INSERT INTO e SELECT v, v % 3 FROM generate_series(1, 999) AS g(v)");
    assert_eq!(one(session, "SELECT count(*) FROM e"), "999");
    // Overwritten partitions lose their rows; the third one stays.
    run(session, "INSERT OVERWRITE e SELECT v, v % 2 FROM generate_series(1, 500) AS g(v)");
    assert_eq!(one(session, "SELECT count(*) FROM e"), "833");
    run(session, "DROP TABLE e");
    run(session, "CREATE TABLE t (id BIGINT, t TEXT)");
    run(session, &format!("INSERT INTO t {rows}"));
    assert_eq!(one(session, "SELECT sum(id) FROM t"), "80000200000");
    run(session, "DROP TABLE t");
    run(session, "CALL expire_snapshots('0 seconds')");
    run(session, "SET harrier.vacuum_age_seconds = 0");
    run(session, "VACUUM");
}

fn all_faults(bucket: &Bucket, mut session: Session, name: &str) {
    for (number, (kind, path)) in CUT.into_iter().enumerate() {
        bucket.proxy.clear();
        for at in 0..3 {
            bucket.proxy.add(Rule::new(Fault::CutWithin(20)).of(kind).on(path).after(at * 2).times(1));
        }
        statements(&mut session, bucket, &format!("{name}-{number}"));
    }
    // A concurrent put.
    bucket.proxy.clear();
    for at in 0..4 {
        bucket.proxy.add(Rule::new(Fault::Status(409)).of("PUT").after(at).times(1));
    }
    statements(&mut session, bucket, &format!("{name}-409"));
    bucket.proxy.clear();
}

#[test]
fn truncated_responses_are_retried() {
    let Some(bucket) = Bucket::new() else { return };
    all_faults(&bucket, bucket.session(), "one");
}

#[test]
fn truncated_responses_are_retried_on_ranks() {
    let Some(bucket) = Bucket::new() else { return };
    let Some(ranks) = on_ranks(&bucket.configuration()) else { return };
    let _turn = harrier_launch::gang_slot();
    all_faults(&bucket, Session::start(&ranks).unwrap(), "ranks");
}

/// Reads that are truncated repeatedly are retried as long as each attempt returns some bytes.
#[test]
fn reads_are_retried_while_they_make_progress() {
    let Some(bucket) = Bucket::new() else { return };
    let mut configuration = bucket.configuration();
    configuration.environment.push(("HARRIER_STORE_RETRIES".into(), "2".into()));
    let mut session = Session::start(&configuration).unwrap();
    let file = format!("s3://{}/rows.csv", bucket.name);
    run(
        &mut session,
        &format!("COPY (SELECT v, 'row ' || v FROM generate_series(1, 100000) AS g(v)) TO '{file}'"),
    );
    bucket.proxy.add(Rule::new(Fault::CutWithin(100_000)).of("GET").on("rows.csv"));
    run(&mut session, "CREATE TABLE t (a BIGINT, b TEXT)");
    run(&mut session, &format!("COPY t FROM '{file}'"));
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "100000");
}

/// Error output of `harrier sql` for a failing statement.
fn error_output(bucket: &Bucket, own: &[(&str, &str)]) -> String {
    let read = format!("SELECT count(*) FROM 's3://{}/x.parquet'", bucket.name);
    let configuration = bucket.configuration();
    let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
    command.args(["sql", "-c", &read]).envs(configuration.environment).env("HARRIER_STORE_RETRIES", "0");
    let output = command.envs(own.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn unreachable_stores_are_reported_with_cause() {
    let Some(bucket) = Bucket::new() else { return };
    for (endpoint, word) in [
        ("http://127.0.0.1:1", "refused"),
        ("http://nosuch.invalid", "lookup"),
        ("https://127.0.0.1:1", "refused"),
    ] {
        let message = error_output(&bucket, &[("AWS_ENDPOINT_URL", endpoint)]);
        assert!(message.contains("ERROR 58030") && message.contains(word), "{endpoint}: {message}");
    }
    bucket.proxy.add(Rule::new(Fault::Delay(Duration::from_secs(30))));
    let message = error_output(&bucket, &[("HARRIER_STORE_REQUEST_SECONDS", "1")]);
    assert!(message.contains("timed out: the server has said nothing"), "{message}");
}
