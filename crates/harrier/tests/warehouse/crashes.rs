//! Crash tests: a process is killed at any of its file system calls, and at any message to a server of its
//! warehouse. A transaction over several tables and table partitions is then committed as a whole or not at
//! all, `CHECK TABLE` finds no damage, the next statement is correct, and VACUUM leaves no unreferenced file.
//! OPTIMIZE, expire_snapshots and VACUUM change no row wherever they crash, and finish when they are run
//! again. The same holds when a server of the catalog or store is killed: statements wait for one that
//! restarts, fail in time with the name of one that does not, and find the state before or after the
//! transaction when it is up again.
//!
//! `crash.c` is preloaded into the process, counts its steps, and kills it, or a server, at one of them. On
//! local files one in [`STEPS_EVERY`] steps is tried, from a random start; on stores and with a catalog in
//! PostgreSQL, where each takes longer, as many as [`stores`] says. `HARRIER_CRASH_EVERY=1` tries all of
//! them, `HARRIER_SEED` repeats an earlier run:
//!
//! ```text
//! HARRIER_CRASH_EVERY=1 cargo test --release -p harrier --test warehouse crashes:: -- --nocapture
//! ```

mod crash_fixture;
mod sequences;
mod stores;
mod transaction;

use std::collections::BTreeSet;
use std::process::Command;

use crash_fixture::{CrashFixture, Local, TIMEOUT};
use harrier_launch::{Launcher, absent, finish, gang_slot};
use sequences::Sequences;
use transaction::{TABLES, Transaction, Victim};
pub use transaction::{crash_library, steps_in, steps_to_try};

const STEPS_EVERY: usize = 3;

/// With fewer steps of one process on local files, `crash.c` does not see its calls.
const STEPS_MIN: usize = 50;

#[test]
fn crash_of_a_process_at_every_step_of_a_transaction() {
    let every = |steps: usize| {
        assert!(steps > STEPS_MIN, "{steps} steps only: calls are not seen");
        STEPS_EVERY
    };
    Transaction::new(Local).crash_at_steps(Victim::Process, every).expect("it needs no launcher");
}

#[test]
fn crash_of_a_rank_at_every_step_of_a_transaction() {
    let _turn = gang_slot();
    let transaction = Transaction::new(Local);
    for rank in [0, 2] {
        if let Err(reason) = transaction.crash_at_steps(Victim::Rank(rank), |_| STEPS_EVERY) {
            return absent(&reason);
        }
    }
}

/// Number of steps tried of a process, and of the rank that takes values.
const OF_SEQUENCES: usize = 24;
const OF_SEQUENCES_RANK: usize = 6;

#[test]
fn crash_at_every_step_of_statements_with_sequences() {
    let sequences = Sequences::new(Local);
    sequences.crash_at_steps(Victim::Process, OF_SEQUENCES).expect("it needs no launcher");
    let _turn = gang_slot();
    if let Err(reason) = sequences.crash_at_steps(Victim::Rank(0), OF_SEQUENCES_RANK) {
        absent(&reason);
    }
}

/// Statements after [`TABLES`]: small files, files with deleted rows, inlined rows, files of a dropped table.
const WORN: [&str; 9] = [
    "INSERT INTO a SELECT x % 4, x FROM generate_series(1001, 1200) AS g(x)",
    "INSERT INTO b SELECT x, x FROM generate_series(1001, 1200) AS g(x)",
    "DELETE FROM a WHERE v % 3 = 0",
    "DELETE FROM b WHERE k % 3 = 0",
    "CREATE TABLE c (v BIGINT)",
    "INSERT INTO c VALUES (1), (2)",
    "INSERT INTO c VALUES (3)",
    "CREATE TABLE gone AS SELECT x FROM generate_series(1, 100) AS g(x)",
    "DROP TABLE gone",
];

const UPKEEP: [&str; 6] = [
    "OPTIMIZE a",
    "OPTIMIZE b",
    "OPTIMIZE c",
    "CALL expire_snapshots('0 seconds')",
    "SET harrier.vacuum_age_seconds = 0",
    "VACUUM",
];

/// Queries that maintenance must not change.
const ROWS: [&str; 6] = [
    "SELECT p, count(*) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p",
    "SELECT count(*) AS rows, sum(k) AS keys, sum(v) AS sum FROM b",
    "SELECT count(*) AS rows, sum(v) AS sum FROM c",
    "CHECK TABLE a",
    "CHECK TABLE b",
    "CHECK TABLE c",
];

/// State of maintenance in the catalog, and number of files.
fn progress(fixture: &CrashFixture) -> (String, usize) {
    let counts = "SELECT (SELECT count(*) FROM sys.data_files) AS files, (SELECT count(*) FROM sys.snapshots) AS snapshots, \
                  (SELECT sum(kept_rows) FROM sys.tables) AS kept";
    (fixture.query_output(&[counts]), fixture.files().len())
}

#[test]
fn crash_at_every_step_of_maintenance() {
    let setup: Vec<&str> = TABLES.into_iter().chain(WORN).collect();
    let fixture = CrashFixture::new(Local, &setup);
    let rows = fixture.query_output(&ROWS);
    let upkeep = || -> Command {
        let mut command = fixture.command(&Launcher::none(), &UPKEEP).expect("it needs no launcher");
        command.env("LD_PRELOAD", crash_library()).env("HARRIER_CRASH_BELOW", "/warehouse/");
        command
    };
    let count = fixture.work().join("count");
    let mut command = upkeep();
    command.env("HARRIER_CRASH_COUNT", &count);
    let run = finish(command, TIMEOUT);
    assert!(run.success, "{run:#?}");
    let steps = steps_in(&count).len();
    assert!(steps > STEPS_MIN, "{steps} steps only: calls are not seen");
    assert_eq!(fixture.query_output(&ROWS), rows, "undisturbed");
    let final_state = progress(&fixture);
    // One file per table partition, per bucket, and for the inlined rows.
    assert_eq!(final_state, ("files,snapshots,kept\n9,1,0\n".to_string(), 9));
    let (mut died, mut places) = (0, BTreeSet::new());
    for step in steps_to_try("upkeep", steps, STEPS_EVERY) {
        fixture.restore();
        let mut command = upkeep();
        command.env("HARRIER_CRASH_AT", step.to_string());
        let run = finish(command, TIMEOUT);
        let context = format!("step {step} of {steps}");
        assert_eq!(fixture.query_output(&ROWS), rows, "{context}");
        if run.success {
            continue;
        }
        died += 1;
        places.insert(progress(&fixture).0);
        fixture.query_output(&UPKEEP);
        assert_eq!(fixture.query_output(&ROWS), rows, "{context}, and once more");
        assert_eq!(progress(&fixture), final_state, "{context}, and once more");
        fixture.query_output(&[
            "INSERT INTO a VALUES (9, 9)",
            "DELETE FROM b WHERE k = 1",
            "CHECK TABLE a",
            "CHECK TABLE b",
        ]);
    }
    println!("{died} died, in {places:?}");
    // Before the end of each of the three OPTIMIZE, of expire_snapshots, and of VACUUM.
    assert!(places.len() >= 5, "{places:?}");
}
