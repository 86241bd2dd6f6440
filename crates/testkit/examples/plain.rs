//! Runs the queries of a benchmark with plain DataFusion over generated data and prints what each returned.
//!
//! ```text
//! cargo run --release -p harrier-testkit --example plain -- tpch DIR     scale 1: compared with the published answers
//! cargo run --release -p harrier-testkit --example plain -- tpcds DIR
//! ```

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use harrier_testkit::plain::Plain;
use harrier_testkit::rows::Rows;
use harrier_testkit::{tpcds, tpch};

/// Says whether the rows are right.
type Check = Box<dyn Fn(&Rows) -> Result<(), String>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let queries: Vec<(String, &str, Check)> = match arguments.first().map(String::as_str) {
        Some("tpch") => tpch::queries()
            .iter()
            .map(|query| {
                let number = query.number;
                let check: Check = Box::new(move |rows| tpch::compare(number, rows));
                (format!("q{number:02}"), query.sql, check)
            })
            .collect(),
        Some("tpcds") => tpcds::queries()
            .iter()
            .map(|query| {
                let check: Check = Box::new(|_| Ok(()));
                (query.name.to_owned(), query.sql, check)
            })
            .collect(),
        _ => Vec::new(),
    };
    let [_, folder] = &arguments[..] else {
        eprintln!("usage: plain tpch|tpcds DIR");
        return ExitCode::from(2);
    };
    let plain = match Plain::open(Path::new(folder)) {
        Ok(plain) => plain,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };

    let start = Instant::now();
    let mut failed = 0;
    for (name, sql, check) in queries {
        let before = Instant::now();
        let result = plain.run(sql).and_then(|rows| check(&rows).map(|()| rows.rows.len()));
        let took = before.elapsed().as_secs_f64();
        match result {
            Ok(rows) => println!("{name:5} {took:7.3} s {rows:7} rows"),
            Err(e) => {
                failed += 1;
                println!("{name:5} {took:7.3} s {e}");
            }
        }
    }
    println!("all   {:7.3} s {failed:7} failed", start.elapsed().as_secs_f64());
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
