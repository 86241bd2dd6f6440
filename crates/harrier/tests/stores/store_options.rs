//! Store options of tables and sessions on real servers, which override the environment: embedded, on ranks,
//! and on a server with ranks in other processes.

use harrier_launch::Launcher;
use harrier_servers::{ACCESS_KEY, REGION, S3, SECRET_KEY};
use harrier_testkit::session::{Answer, Configuration, Failure, Session};

use crate::test_server::TestServer;

/// Environment with an endpoint at which nothing listens.
const ELSEWHERE: [(&str, &str); 6] = [
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ("AWS_ACCESS_KEY_ID", "of the environment"),
    ("AWS_SECRET_ACCESS_KEY", "of the environment"),
    ("AWS_REGION", "nowhere-1"),
    ("AWS_ALLOW_HTTP", "true"),
    ("HARRIER_STORE_RETRIES", "0"),
];

const GANG: &[&str] = &["--ranks", "2", "--threads", "1", "--set", "harrier.distribute_bytes_min=1"];

fn embedded() -> Configuration {
    let mut configuration = Configuration::embedded();
    configuration.environment.extend(ELSEWHERE.map(|(name, value)| (name.to_string(), value.to_string())));
    configuration
}

/// The same embedded and, unless MPI is skipped, on two ranks.
fn configurations() -> Vec<Configuration> {
    let one = embedded();
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return vec![one];
    }
    let words = Launcher::open_mpi(2).words().unwrap_or_else(|reason| panic!("{reason}"));
    let two =
        one.clone().with_name("2-ranks").launched_by(words).with_setting("harrier.distribute_bytes_min", "0");
    vec![one, two]
}

fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
}

fn one(session: &mut Session, sql: &str) -> String {
    match session.run(sql) {
        // SHOW returns the name before the value.
        Ok(Answer::Rows { rows, .. }) => rows[0].last().cloned().flatten().unwrap(),
        other => panic!("{other:?} of {sql}"),
    }
}

/// Asserts that the message contains no keys and no internal option names.
fn fails(session: &mut Session, sql: &str) -> Failure {
    let failure = session.run(sql).expect_err(sql);
    let message = failure.to_string();
    assert!(!message.contains(SECRET_KEY) && !message.contains("options-"), "{message}");
    failure
}

fn options(endpoint: &str) -> String {
    format!(
        "OPTIONS ('s3.endpoint' '{endpoint}', 's3.access_key_id' '{ACCESS_KEY}', 's3.secret_access_key' '{SECRET_KEY}', \
         's3.region' '{REGION}')"
    )
}

fn set_all(session: &mut Session, endpoint: &str) {
    run(session, &format!("SET s3.endpoint = '{endpoint}'"));
    run(session, &format!("SET s3.access_key_id = '{ACCESS_KEY}'"));
    run(session, &format!("SET s3.secret_access_key = '{SECRET_KEY}'"));
    run(session, &format!("SET s3.region = '{REGION}'"));
}

#[test]
fn session_options_open_s3() {
    let Some(server) = S3::shared_instance() else { return };
    for configuration in configurations() {
        let _turn = harrier_launch::gang_slot();
        let bucket = server.new_bucket();
        let mut session = Session::start(&configuration).unwrap();
        let file = format!("s3://{bucket}/a b/rows.parquet");
        let copy = format!("COPY (SELECT v, v % 7 AS k FROM generate_series(1, 1000) AS g(v)) TO '{file}'");
        fails(&mut session, &copy);
        set_all(&mut session, &server.endpoint());
        run(&mut session, &copy);
        assert_eq!(server.objects(&bucket), ["a b/rows.parquet"]);
        assert_eq!(one(&mut session, &format!("SELECT sum(v) FROM '{file}'")), "500500");
        assert_eq!(one(&mut session, &format!("SELECT count(DISTINCT k) FROM 's3://{bucket}/a b/'")), "7");
        run(&mut session, "CREATE TABLE rows (v BIGINT, k BIGINT)");
        run(&mut session, &format!("COPY rows FROM '{file}'"));
        assert_eq!(one(&mut session, "SELECT sum(v) FROM rows"), "500500");

        // The first statement of a session that reads with its options.
        let mut other = Session::start(&configuration).unwrap();
        set_all(&mut other, &server.endpoint());
        assert_eq!(one(&mut other, &format!("SELECT sum(v) FROM '{file}'")), "500500");
        drop(other);

        assert_eq!(one(&mut session, "SHOW s3.region"), REGION);
        assert_eq!(one(&mut session, "SHOW s3.secret_access_key"), "********");
        assert_eq!(fails(&mut session, "SET s3.nosuch = 'x'").sqlstate, "42704");
        assert_eq!(fails(&mut session, "RESET s3.nosuch").sqlstate, "42704");

        // A table keeps the options of the session that created it.
        let folder = format!("s3://{bucket}/a b/");
        run(&mut session, &format!("CREATE EXTERNAL TABLE kept STORED AS PARQUET LOCATION '{folder}'"));
        run(&mut session, "SET s3.secret_access_key = 'wrong'");
        assert_eq!(fails(&mut session, &format!("SELECT sum(v) FROM '{file}'")).sqlstate, "42501");
        run(&mut session, "RESET ALL");
        fails(&mut session, &format!("SELECT sum(v) FROM '{file}'"));
        assert_eq!(one(&mut session, "SELECT sum(v) FROM kept"), "500500");
    }
}

#[test]
fn table_options_open_s3() {
    let Some(server) = S3::shared_instance() else { return };
    for configuration in configurations() {
        let _turn = harrier_launch::gang_slot();
        let bucket = server.new_bucket();
        let mut session = Session::start(&configuration).unwrap();
        let place = format!("LOCATION 's3://{bucket}/t/'");
        run(
            &mut session,
            &format!(
                "CREATE EXTERNAL TABLE t (v BIGINT, k BIGINT) STORED AS PARQUET PARTITIONED BY (k) {place} {}",
                options(&server.endpoint())
            ),
        );
        run(&mut session, "INSERT INTO t SELECT v, v % 3 FROM generate_series(1, 300) AS g(v)");
        run(&mut session, "INSERT OVERWRITE t SELECT v, 1 FROM generate_series(1, 10) AS g(v)");
        assert_eq!(one(&mut session, "SELECT count(*) || ' ' || sum(v) FROM t"), "210 30255");
        run(&mut session, "OPTIMIZE t");
        assert_eq!(one(&mut session, "SELECT count(*) || ' ' || sum(v) FROM t"), "210 30255");
        assert!(!server.objects(&bucket).is_empty());
        // Other objects are opened as before.
        fails(&mut session, &format!("SELECT * FROM 's3://{bucket}/t/'"));

        for (options, sqlstate) in
            [("'s3.nosuch' 'x'", "22023"), ("'hdfs.retries' '1'", "22023"), ("'s3.retries' 'many'", "22023")]
        {
            let sql = format!("CREATE EXTERNAL TABLE u (v BIGINT) STORED AS CSV {place} OPTIONS ({options})");
            assert_eq!(fails(&mut session, &sql).sqlstate, sqlstate, "{options}");
        }
        let credentials = format!("SELECT * FROM 's3://{ACCESS_KEY}:{SECRET_KEY}@{bucket}/t/'");
        assert_eq!(fails(&mut session, &credentials).sqlstate, "22023");
        let private_url =
            format!("SELECT * FROM 's3://options-00000000000000000000000000000000@{bucket}/t/'");
        session.run(&private_url).expect_err("a name of options");
    }
}

#[test]
fn table_options_name_hdfs_namenodes() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let address = server.url().trim_start_matches("hdfs://").to_string();
    let options = format!(
        "OPTIONS ('dfs.ha.namenodes.cluster' 'only', 'dfs.namenode.rpc-address.cluster.only' '{address}', \
         'hdfs.retries' '2')"
    );
    for (number, configuration) in configurations().into_iter().enumerate() {
        let _turn = harrier_launch::gang_slot();
        let mut session = Session::start(&configuration).unwrap();
        let place = format!("hdfs://cluster/opened-{number}/t/");
        fails(&mut session, &format!("SELECT * FROM '{place}'"));
        run(
            &mut session,
            &format!("CREATE EXTERNAL TABLE t (v BIGINT) STORED AS PARQUET LOCATION '{place}' {options}"),
        );
        run(&mut session, "INSERT INTO t SELECT v FROM generate_series(1, 300) AS g(v)");
        assert_eq!(one(&mut session, "SELECT sum(v) FROM t"), "45150");
    }
}

#[test]
fn store_options_reach_ranks_of_a_server() {
    let Some(server) = S3::shared_instance() else { return };
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let _turn = harrier_launch::gang_slot();
    let bucket = server.new_bucket();
    let test_server = TestServer::start_with(tempfile::tempdir().unwrap(), GANG, &ELSEWHERE);
    test_server.wait_for_ranks(2);
    let mut client = test_server.client();
    for sql in [
        format!("SET s3.endpoint = '{}'", server.endpoint()),
        format!("SET s3.access_key_id = '{ACCESS_KEY}'"),
        format!("SET s3.secret_access_key = '{SECRET_KEY}'"),
        format!("SET s3.region = '{REGION}'"),
        format!("COPY (SELECT v FROM generate_series(1, 1000) AS g(v)) TO 's3://{bucket}/1.parquet'"),
        format!("COPY (SELECT v FROM generate_series(1, 1000) AS g(v)) TO 's3://{bucket}/2.parquet'"),
    ] {
        client.query(&sql).unwrap_or_else(|error| panic!("{error:?} of {sql}"));
    }
    assert_eq!(client.one(&format!("SELECT sum(v) FROM 's3://{bucket}/'")).unwrap(), "1001000");
    assert_eq!(
        client.one("SELECT setting FROM pg_settings WHERE name = 's3.secret_access_key'").unwrap_or_default(),
        ""
    );
    assert!(!test_server.log().contains(SECRET_KEY), "{}", test_server.log());
}
