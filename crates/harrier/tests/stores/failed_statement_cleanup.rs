//! Cleanup after failed statements and transactions: no file and no upload is left in a store once the
//! process has ended.

use harrier_servers::{Fault, Rule};
use harrier_testkit::session::Session;

use crate::warehouses::{Bucket, on_ranks, run};

/// Files of several writers, each a multipart upload.
const LARGE: &str =
    "SELECT v AS id, md5(v::text) || md5((v + 1)::text) AS t FROM generate_series(1, 1200000) AS g(v)";

fn assert_clean(bucket: &Bucket) {
    assert_eq!(bucket.objects(), 0, "{:?}", bucket.server.objects(&bucket.name));
    assert_eq!(bucket.server.uploads(&bucket.name), 0);
}

fn check(bucket: &Bucket, start: impl Fn() -> Session) {
    let start = || {
        let mut session = start();
        run(&mut session, "SET datafusion.execution.target_partitions = 2");
        session
    };
    let mut session = start();
    run(&mut session, "CREATE TABLE t (id BIGINT, t TEXT)");
    // Every upload fails on completion.
    bucket.proxy.add(Rule::new(Fault::Status(400)).of("POST").on("uploadId"));
    session.run(&format!("INSERT INTO t {LARGE}")).unwrap_err();
    drop(session);
    bucket.proxy.clear();
    assert_clean(bucket);

    // One writer has finished when another one fails.
    let mut session = start();
    let late = "SELECT v, 'early' FROM generate_series(1, 2000) AS g(v) \
                UNION ALL SELECT 1 / (1500000 - v), 'late' FROM generate_series(1, 1500000) AS g(v)";
    assert_eq!(session.run(&format!("INSERT INTO t {late}")).unwrap_err().sqlstate, "22012");
    drop(session);
    assert_clean(bucket);

    // A transaction without an end, after a successful or a failed statement.
    for last in ["SELECT 1 / 0", "SELECT 1"] {
        let mut session = start();
        run(&mut session, "BEGIN");
        run(&mut session, "INSERT INTO t SELECT v, 'x' FROM generate_series(1, 1000) AS g(v)");
        assert!(bucket.objects() > 0);
        drop(session.run(last));
        drop(session);
        assert_clean(bucket);
    }

    let mut session = start();
    run(&mut session, "DROP TABLE t");
}

#[test]
fn failed_statements_leave_nothing_in_one_process() {
    let Some(bucket) = Bucket::new() else { return };
    check(&bucket, || bucket.session());
}

#[test]
fn failed_statements_leave_nothing_on_two_ranks() {
    let Some(bucket) = Bucket::new() else { return };
    let Some(ranks) = on_ranks(&bucket.configuration()) else { return };
    let _turn = harrier_launch::gang_slot();
    check(&bucket, || Session::start(&ranks).unwrap());
}
