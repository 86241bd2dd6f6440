//! Concurrent DDL of several processes: each statement is retried after a conflict, as if it had waited for a
//! lock.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Warehouse, column, run};

const SESSIONS: usize = 4;
const ROUNDS: usize = 6;

#[test]
fn concurrent_ddl_statements_all_succeed() {
    let warehouse = Warehouse::new();
    let (together, created_count) = (Barrier::new(SESSIONS), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for who in 0..SESSIONS {
            let (warehouse, together, created_count) = (&warehouse, &together, &created_count);
            scope.spawn(move || {
                let mut session = warehouse.session();
                for round in 0..ROUNDS {
                    together.wait();
                    run(&mut session, &format!("CREATE TABLE IF NOT EXISTS t{round} (a INT)"));
                    run(&mut session, &format!("ALTER TABLE t{round} ADD COLUMN IF NOT EXISTS b INT"));
                    run(&mut session, &format!("COMMENT ON TABLE t{round} IS 'of {who}'"));
                    run(
                        &mut session,
                        &format!("CREATE OR REPLACE VIEW v AS SELECT a, {who} AS who FROM t{round}"),
                    );
                    run(&mut session, &format!("CREATE SCHEMA IF NOT EXISTS s{round}"));
                    together.wait();
                    match session.run(&format!("CREATE TABLE once{round} (a INT)")) {
                        Ok(_) => drop(created_count.fetch_add(1, Ordering::Relaxed)),
                        Err(failure) => assert_eq!(failure.sqlstate, "42P07", "{failure}"),
                    }
                    run(&mut session, &format!("ALTER TABLE once{round} ADD COLUMN b{who} INT"));
                    together.wait();
                    run(&mut session, &format!("DROP TABLE IF EXISTS t{round}"));
                }
            });
        }
    });
    assert_eq!(created_count.into_inner(), ROUNDS);
    let mut session = warehouse.session();
    let columns = "SELECT count(*)::text FROM information_schema.columns WHERE table_name LIKE 'once%' GROUP BY table_name";
    assert_eq!(column(&mut session, columns), vec![(1 + SESSIONS).to_string(); ROUNDS]);
}
