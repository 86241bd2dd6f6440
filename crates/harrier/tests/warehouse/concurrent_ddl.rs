//! Statements about tables that several processes run at the same time: each begins again where another one
//! came before it, as one that waits for a lock does.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Warehouse, column, run};

const SESSIONS: usize = 4;
const ROUNDS: usize = 6;

#[test]
fn definitions_of_several_processes_all_happen() {
    let warehouse = Warehouse::new();
    let (together, made) = (Barrier::new(SESSIONS), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for who in 0..SESSIONS {
            let (warehouse, together, made) = (&warehouse, &together, &made);
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
                        Ok(_) => drop(made.fetch_add(1, Ordering::Relaxed)),
                        Err(failure) => assert_eq!(failure.sqlstate, "42P07", "{failure}"),
                    }
                    run(&mut session, &format!("ALTER TABLE once{round} ADD COLUMN b{who} INT"));
                    together.wait();
                    run(&mut session, &format!("DROP TABLE IF EXISTS t{round}"));
                }
            });
        }
    });
    assert_eq!(made.into_inner(), ROUNDS);
    let mut session = warehouse.session();
    let columns = "SELECT count(*)::text FROM information_schema.columns WHERE table_name LIKE 'once%' GROUP BY table_name";
    assert_eq!(column(&mut session, columns), vec![(1 + SESSIONS).to_string(); ROUNDS]);
}
