//! Object names with special characters, and glob patterns: equal on S3, HDFS and a disk.

use std::path::Path;

use harrier_servers::{ACCESS_KEY, REGION, S3, SECRET_KEY};
use harrier_testkit::session::{Answer, Configuration, Failure, Session};

fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
}

fn one(session: &mut Session, sql: &str) -> String {
    match session.run(sql) {
        Ok(Answer::Rows { rows, .. }) => rows[0][0].clone().unwrap(),
        other => panic!("{other:?} of {sql}"),
    }
}

fn fails(session: &mut Session, sql: &str) -> Failure {
    session.run(sql).expect_err(sql)
}

fn s3_configuration(endpoint: &str) -> Configuration {
    let mut configuration = Configuration::embedded();
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ] {
        configuration.environment.push((name.to_string(), value.to_string()));
    }
    configuration
}

/// Writes ten rows to each file.
fn write(session: &mut Session, place: &str, names: &[&str]) {
    for name in names {
        run(session, &format!("COPY (SELECT v FROM generate_series(1, 10) AS g(v)) TO '{place}/{name}'"));
    }
}

/// `place`: an empty folder without a trailing `/`.
fn check_patterns(session: &mut Session, place: &str) {
    write(session, place, &["raw/a.parquet", "raw/b.parquet", "raw/2026/c.parquet", "raw/2026/d/e.parquet"]);
    write(session, place, &["parted/k=1/x.parquet", "parted/k=2/y.parquet"]);
    for (pattern, rows) in [
        ("raw/*.parquet", 20),
        ("raw/[ab].parquet", 20),
        ("raw/[!a].parquet", 10),
        ("raw/?.parquet", 20),
        ("raw/*/*.parquet", 10),
        ("raw/**/*.parquet", 40),
        ("raw/**", 40),
        ("r*/20*/c.parquet", 10),
        ("**/c.parquet", 10),
        ("parted/*.parquet", 20),
        ("parted/k=1/*.parquet", 10),
        ("parted/*/x.parquet", 10),
    ] {
        let count = one(session, &format!("SELECT count(*) FROM '{place}/{pattern}'"));
        assert_eq!(count, rows.to_string(), "{place}/{pattern}");
        run(session, "CREATE TEMPORARY TABLE t (v BIGINT)");
        if !pattern.starts_with("parted") {
            run(session, &format!("COPY t FROM '{place}/{pattern}' (FORMAT parquet)"));
            assert_eq!(one(session, "SELECT count(*) FROM t"), rows.to_string(), "{place}/{pattern}");
        }
        run(session, "DROP TABLE t");
    }
    for pattern in ["raw/*.parquet", "raw/**/*.parquet"] {
        run(session, &format!("CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{place}/{pattern}'"));
        assert!(one(session, "SELECT sum(v) FROM e").parse::<i64>().unwrap() >= 110, "{place}/{pattern}");
        run(session, "DROP TABLE e");
    }
    for pattern in ["raw/*.csv", "raw/x*/*.parquet", "nothing/*.parquet", "raw/a.parquet?versionId=1"] {
        let failure = fails(session, &format!("SELECT count(*) FROM '{place}/{pattern}'"));
        assert_eq!(failure.sqlstate, "58P01", "{place}/{pattern}: {failure}");
    }
}

/// `place` as in [`check_patterns`].
fn check_special_characters(session: &mut Session, place: &str) {
    let names = ["a#1", "#2", "%41", "a%2Fb", "a b+c", "[1]", "a&b=c;d", "ü"];
    for name in names {
        let file = format!("{place}/{name}.parquet");
        run(session, &format!("COPY (SELECT '{name}' AS name) TO '{file}'"));
    }
    for name in names {
        let file = format!("{place}/{name}.parquet");
        assert_eq!(one(session, &format!("SELECT name FROM '{file}'")), name, "{place}");
    }
    let all = one(session, &format!("SELECT count(*) FROM '{place}/'"));
    assert_eq!(all, names.len().to_string(), "{place}");
    // Characters that HDFS refuses, escaped as by Hive and Spark.
    let table = format!("{place}-parted/");
    run(
        session,
        &format!(
            "CREATE EXTERNAL TABLE parted (id BIGINT, ts TIMESTAMP) STORED AS PARQUET PARTITIONED BY (ts) LOCATION '{table}'"
        ),
    );
    for _ in 0..2 {
        run(session, "INSERT OVERWRITE parted VALUES (1, '2024-01-01 10:00:00')");
        assert_eq!(
            one(session, "SELECT count(*) FROM parted WHERE ts = '2024-01-01 10:00:00'"),
            "1",
            "{place}"
        );
    }
    let one_folder = format!("{table}ts=2024-01-01%2010%3A00%3A00/");
    assert_eq!(one(session, &format!("SELECT count(*) FROM '{one_folder}'")), "1", "{place}");
    run(session, "DROP TABLE parted");
    let folder = format!("{place}-by-time/ts=10%3A00%3A00");
    write(session, &folder, &["x.parquet"]);
    for name in [format!("{folder}/x.parquet"), format!("{folder}/")] {
        assert_eq!(one(session, &format!("SELECT count(*) FROM '{name}'")), "10", "{name}");
    }
}

#[test]
fn patterns_and_special_characters_on_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(&Configuration::embedded()).unwrap();
    let place = |name: &str| Path::join(folder.path(), name).display().to_string();
    check_patterns(&mut session, &place("patterns"));
    check_special_characters(&mut session, &place("signs"));
}

#[test]
fn patterns_and_special_characters_on_s3() {
    let Some(server) = S3::shared_instance() else { return };
    let bucket = server.new_bucket();
    let mut session = Session::start(&s3_configuration(&server.endpoint())).unwrap();
    check_patterns(&mut session, &format!("s3://{bucket}/patterns"));
    check_special_characters(&mut session, &format!("s3://{bucket}/signs"));
    let objects = server.objects(&bucket);
    assert!(objects.contains(&"signs/a%2Fb.parquet".to_string()), "{objects:?}");
    assert!(objects.contains(&"signs/#2.parquet".to_string()), "{objects:?}");
    // Files of other programs beside the data.
    for name in ["patterns/raw/_SUCCESS", "patterns/raw/.a.parquet.crc", "patterns/raw/2026_$folder$"] {
        server.put_object(&bucket, name, b"");
    }
    let count = one(&mut session, &format!("SELECT count(*) FROM 's3://{bucket}/patterns/raw/*'"));
    assert_eq!(count, "20");
}

#[test]
fn patterns_and_special_characters_on_hdfs() {
    let Some((_alone, server)) = crate::hdfs() else { return };
    let mut session = Session::start(&Configuration::embedded()).unwrap();
    check_patterns(&mut session, &format!("{}/patterns", server.url()));
    check_special_characters(&mut session, &format!("{}/signs", server.url()));
}
