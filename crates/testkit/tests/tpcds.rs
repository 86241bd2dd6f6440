//! All TPC-DS queries run on plain DataFusion over generated data, so that what fails elsewhere fails there alone.

use std::path::Path;

use harrier_testkit::plain::Plain;
use harrier_testkit::tpcds;

#[test]
fn plain_datafusion_runs_every_query() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tpcds");
    tpcds::generate(&folder, tpcds::SCALE).expect("data");
    let plain = Plain::open(&folder).expect("tables");
    let (mut failures, mut with_rows) = (Vec::new(), 0);
    for query in tpcds::queries() {
        match plain.run(query.sql) {
            Ok(rows) => with_rows += usize::from(!rows.rows.is_empty()),
            Err(e) => failures.push(format!("{}: {e}", query.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{with_rows} of {} queries return rows", tpcds::queries().len());
}
