//! An object that is replaced during a statement: the statement fails with 40001, or returns the rows of one
//! version.
//!
//! A proxy holds one request of the statement, each in turn, until the object is replaced.

use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use harrier_servers::{Fault, Proxy, Request, Rule, S3};
use harrier_testkit::session::{Configuration, Session};

use crate::failed_copies::environment;
use crate::test_server::PATIENCE;

/// Time that a request is held.
const HELD: Duration = Duration::from_secs(1);
/// Held requests, one per statement.
const REQUESTS: usize = 3;

/// Writes an object of two versions with equal length. Column statistics do not reveal all values.
fn write(session: &mut Session, url: &str, version: u32) {
    let rows =
        format!("SELECT v AS id, {version}000 + v % 7 AS mark FROM generate_series(100000, 160000) AS g(v)");
    session.run(&format!("COPY ({rows}) TO '{url}'")).unwrap();
}

fn check(configuration: &Configuration, names: &[&str]) {
    let Some(server) = S3::shared_instance() else { return };
    let bucket = server.new_bucket();
    let proxy = Proxy::start(server.address());
    let mut writing = Configuration::embedded();
    writing.environment.extend(environment(&server.endpoint()));
    let mut writer = Session::start(&writing).unwrap();
    let mut configuration = configuration.clone();
    configuration.environment.extend(environment(&proxy.endpoint()));
    let mut session = Session::start(&configuration).unwrap();
    session.run("SET datafusion.optimizer.repartition_file_min_size = 1000").unwrap();
    for name in names {
        let mut conflict_count = 0;
        for at in 0..REQUESTS {
            // A new object name, so that no footer is cached.
            let object = format!("{at}-{name}");
            let url = format!("s3://{bucket}/{object}");
            write(&mut writer, &url, 1);
            proxy.clear();
            proxy.reset();
            proxy.add(Rule::new(Fault::Late(HELD)).of("GET").on(&object).after(at).times(1));
            let sql = format!("SELECT DISTINCT mark / 1000 FROM '{url}'");
            let answer = std::thread::scope(|scope| {
                let statement = scope.spawn(|| session.run(&sql));
                let is_read = |request: &&Request| request.kind == "GET" && request.path.contains(&object);
                let start = Instant::now();
                while !statement.is_finished() && proxy.requests().iter().filter(is_read).count() <= at {
                    assert!(start.elapsed() < PATIENCE, "{sql} asks for nothing");
                    std::thread::sleep(Duration::from_millis(5));
                }
                write(&mut writer, &url, 2);
                statement.join().unwrap()
            });
            match answer {
                Ok(answer) => {
                    let rows = answer.into_rows().rows;
                    assert_eq!(rows.len(), 1, "{sql} has rows of two versions, request {at} held back");
                }
                Err(failure) => {
                    assert_eq!(failure.sqlstate, "40001", "{failure} of {sql}");
                    assert!(failure.message.contains(&object), "{failure}");
                    conflict_count += 1;
                }
            }
        }
        assert!(conflict_count > 0, "{name} was never replaced while it was read: {:?}", proxy.requests());
    }
}

#[test]
fn replaced_objects_embedded() {
    check(&Configuration::embedded(), &["x.parquet", "x.csv", "x.json", "x.orc", "x.avro"]);
}

#[test]
fn replaced_objects_on_three_ranks() {
    match Configuration::on_ranks("three ranks", &Launcher::open_mpi(3)) {
        Ok(configuration) => check(
            &configuration.with_setting("harrier.distribute_bytes_min", "0"),
            &["x.parquet", "x.csv", "x.orc"],
        ),
        Err(reason) => harrier_launch::absent(&reason),
    }
}
