//! Round trip of COPY to a store and reading from it, in every readable format: embedded and on ranks.

use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use harrier_servers::{ACCESS_KEY, Fault, Proxy, REGION, Rule, S3, SECRET_KEY};
use harrier_testkit::session::{Configuration, Session};

use crate::test_server::PATIENCE;

const FILES: [&str; 6] = ["x.parquet", "x.csv", "x.json", "x.arrow", "x.orc", "x.avro"];

/// Embedded and, unless MPI is skipped, on two ranks.
fn configurations(environment: &[(&str, &str)]) -> Vec<Configuration> {
    let mut one = Configuration::embedded();
    one.environment.extend(environment.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return vec![one];
    }
    let words = Launcher::open_mpi(2).words().unwrap_or_else(|reason| panic!("{reason}"));
    let two =
        one.clone().with_name("2-ranks").launched_by(words).with_setting("harrier.distribute_bytes_min", "0");
    vec![one, two]
}

fn check(session: &mut Session, folder: &str) {
    for name in FILES {
        let url = format!("{folder}/{name}");
        let copy = format!(
            "COPY (SELECT v AS id, 'text ' || v AS t FROM generate_series(1, 3000) AS g(v)) TO '{url}'"
        );
        session.run(&copy).unwrap_or_else(|error| panic!("{error} of {copy}"));
        let read = format!("SELECT count(*), sum(id), max(t) FROM '{url}'");
        let rows = session.run(&read).unwrap_or_else(|error| panic!("{error} of {read}")).into_rows().rows;
        let expected = ["3000", "4501500", "text 999"].map(|value| Some(value.to_string()));
        assert_eq!(rows, [expected], "{url}");
    }
}

#[test]
fn copy_round_trip_on_s3() {
    let Some(server) = S3::shared_instance() else { return };
    let endpoint = server.endpoint();
    let environment = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    for configuration in configurations(&environment) {
        let _turn = harrier_launch::gang_slot();
        let mut session = Session::start(&configuration).unwrap();
        check(&mut session, &format!("s3://{}", server.new_bucket()));
    }
}

#[test]
fn copy_round_trip_on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    for (number, configuration) in configurations(&[]).into_iter().enumerate() {
        let _turn = harrier_launch::gang_slot();
        let mut session = Session::start(&configuration).unwrap();
        check(
            &mut session,
            &format!("{}/formats-{}-{number}", server.url(), harrier_servers::process_name()),
        );
    }
}

/// Files replaced by shorter ones after they were listed: no rows are lost without an error, and nothing
/// panics.
#[test]
fn files_replaced_during_a_read() {
    let Some(server) = S3::shared_instance() else { return };
    let proxy = Proxy::start(server.address());
    let endpoint = proxy.endpoint();
    let environment = [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    let mut configuration = Configuration::embedded();
    configuration
        .environment
        .extend(environment.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let bucket = server.new_bucket();
    let mut session = Session::start(&configuration).unwrap();
    let lines = |count: usize| (0..count).map(|v| format!("{v},row {v}\n")).collect::<String>();
    server.put_object(&bucket, "rows.csv", format!("a,b\n{}", lines(1000)).as_bytes());
    session.run("CREATE TABLE t (a BIGINT, b TEXT)").unwrap();
    let copy = format!("COPY t FROM 's3://{bucket}/rows.csv'");
    // Holds the request for the rows until the object is replaced.
    proxy.add(Rule::new(Fault::Late(Duration::from_secs(4))).of("GET").on("rows.csv"));
    let before = proxy.count("GET");
    let copying = std::thread::spawn(move || {
        let failure = session.run(&copy);
        (session, failure)
    });
    let deadline = Instant::now() + PATIENCE;
    while proxy.count("GET") == before {
        assert!(Instant::now() < deadline, "the file is not read");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.put_object(&bucket, "rows.csv", format!("a,b\n{}", lines(500)).as_bytes());
    let (mut session, copied) = copying.join().unwrap();
    let failure = copied.expect_err("a file that was replaced");
    assert_eq!(failure.sqlstate, "40001", "{failure}");
    assert!(failure.message.contains("rows.csv"), "{failure}");
    proxy.clear();
    let rows = session.run("SELECT count(*) FROM t").unwrap().into_rows().rows;
    assert_eq!(rows[0][0].as_deref(), Some("0"));
}

/// An invalid endpoint is an error, not a panic.
#[test]
fn endpoint_without_a_scheme_is_an_error() {
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        let mut configuration = Configuration::embedded();
        configuration.environment.push((name.to_string(), "127.0.0.1:9".to_string()));
        let mut session = Session::start(&configuration).unwrap();
        let failure = session.run("SELECT * FROM 's3://bucket/x.parquet'").expect_err("no endpoint");
        assert_eq!(failure.sqlstate, "22023", "{failure}");
        assert!(
            failure.message.contains("\"127.0.0.1:9\" does not begin with https:// or http://"),
            "{failure}"
        );
    }
}
