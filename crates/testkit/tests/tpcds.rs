//! Differential test of TPC-DS: every query returns on one rank and on three what plain DataFusion returns.

use std::path::Path;

use harrier_testkit::plain::{self, Plain};
use harrier_testkit::session::RestartingSession;
use harrier_testkit::tpcds;

#[test]
fn tpcds_queries_match_datafusion() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tpcds");
    tpcds::generate(&folder, tpcds::SCALE).expect("data");
    let plain = Plain::open(&folder).expect("tables");
    let tables = plain::create_tables(&folder).expect("tables");
    let mut ways = RestartingSession::one_and_three_ranks(&tables);

    // HARRIER_TPCDS=q39 runs only the queries with that in their names.
    let name_part = std::env::var("HARRIER_TPCDS").unwrap_or_default();
    let queries: Vec<_> = tpcds::queries().iter().filter(|query| query.name.contains(&name_part)).collect();
    let (mut failures, mut with_rows) = (Vec::new(), 0);
    for query in &queries {
        let mut expected = None;
        for way in &mut ways {
            let oracle = |sql: &str| expected.get_or_insert_with(|| plain.run(sql)).clone();
            if let Err(difference) = query.check(oracle, |sql| way.rows(sql)) {
                failures.push(format!("{} on {}: {difference}", query.name, way.name()));
            }
        }
        with_rows += usize::from(expected.is_some_and(|rows| rows.is_ok_and(|rows| !rows.rows.is_empty())));
    }
    println!("{with_rows} of {} queries return rows", queries.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
