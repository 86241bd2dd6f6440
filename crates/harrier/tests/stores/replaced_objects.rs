//! An object that is replaced while a statement reads it: the statement fails with 40001, or has the rows of
//! one version.
//!
//! A proxy holds one request of the statement back, each in its turn, until the object is another one.

use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use harrier_servers::{Fault, Proxy, Request, Rule, S3};
use harrier_testkit::session::{Configuration, Session};

use crate::failed_copies::environment;
use crate::test_server::PATIENCE;

/// So long a request is held back.
const HELD: Duration = Duration::from_secs(1);
/// Requests that are held back, one in each statement.
const REQUESTS: usize = 3;

/// Writes an object, whose two versions have as many bytes. No statistics of a column tell all that is in it.
fn write(session: &mut Session, url: &str, version: u32) {
    let rows =
        format!("SELECT v AS id, {version}000 + v % 7 AS mark FROM generate_series(100000, 160000) AS g(v)");
    session.run(&format!("COPY ({rows}) TO '{url}'")).unwrap();
}

fn check(configuration: &Configuration, names: &[&str]) {
    let Some(server) = S3::shared() else { return };
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
        let mut refused = 0;
        for at in 0..REQUESTS {
            // Nothing is remembered of another object's footer.
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
                let begun = Instant::now();
                while !statement.is_finished() && proxy.requests().iter().filter(is_read).count() <= at {
                    assert!(begun.elapsed() < PATIENCE, "{sql} asks for nothing");
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
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "{name} was never replaced while it was read: {:?}", proxy.requests());
    }
}

#[test]
fn embedded() {
    check(&Configuration::embedded(), &["x.parquet", "x.csv", "x.json", "x.orc", "x.avro"]);
}

#[test]
fn three_ranks() {
    match Configuration::on_ranks("three ranks", &Launcher::open_mpi(3)) {
        Ok(configuration) => check(
            &configuration.with_setting("harrier.distribute_bytes_min", "0"),
            &["x.parquet", "x.csv", "x.orc"],
        ),
        Err(reason) => harrier_launch::absent(&reason),
    }
}
