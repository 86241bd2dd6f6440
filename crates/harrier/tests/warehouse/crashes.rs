//! A process may die at any of its calls that change files, and at any message to a server of its warehouse:
//! a transaction over several tables and table partitions has then happened or not, `CHECK TABLE` is content,
//! the next statement is right, and VACUUM leaves no file that nothing refers to. OPTIMIZE, expire_snapshots
//! and VACUUM change no row, wherever they end, and are finished when they are run again. The same is true
//! when a server dies, of the catalog or of the store: one that comes back is waited for, one that stays away
//! fails the statement in time, by its name, and nothing is between before and after when it is there again.
//!
//! `crash.c` is preloaded into the process, counts its steps, and ends it by SIGKILL at one of them, or a
//! server instead. Of the steps upon local files one in [`STEPS_EVERY`] is tried, from a seed on; upon stores
//! and with a catalog in PostgreSQL, where each takes longer, so many as [`stores`] says.
//! `HARRIER_CRASH_EVERY=1` tries all of them, `HARRIER_SEED` those of an earlier run:
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

use crash_fixture::{Ground, Local, PATIENCE};
use harrier_launch::{Launcher, absent, finish, gang_slot};
use sequences::Sequences;
use transaction::{Dying, TABLES, Transaction};
pub use transaction::{crashing, steps_in, tried};

const STEPS_EVERY: usize = 3;

/// Fewer steps of one process upon local files: its calls are not seen.
const STEPS_MIN: usize = 50;

#[test]
fn a_process_dies_at_every_step_of_a_transaction() {
    let every = |steps: usize| {
        assert!(steps > STEPS_MIN, "{steps} steps only: calls are not seen");
        STEPS_EVERY
    };
    Transaction::new(Local).dies(Dying::Process, every).expect("it needs no launcher");
}

#[test]
fn a_rank_dies_at_every_step_of_a_transaction() {
    let _turn = gang_slot();
    let transaction = Transaction::new(Local);
    for rank in [0, 2] {
        if let Err(reason) = transaction.dies(Dying::Rank(rank), |_| STEPS_EVERY) {
            return absent(&reason);
        }
    }
}

/// How many of the steps of a process, and of the rank that takes values.
const OF_SEQUENCES: usize = 24;
const OF_SEQUENCES_RANK: usize = 6;

#[test]
fn a_process_dies_at_every_step_of_statements_with_sequences() {
    let sequences = Sequences::new(Local);
    sequences.die(Dying::Process, OF_SEQUENCES).expect("it needs no launcher");
    let _turn = gang_slot();
    if let Err(reason) = sequences.die(Dying::Rank(0), OF_SEQUENCES_RANK) {
        absent(&reason);
    }
}

/// After [`TABLES`]: small files, files with deleted rows, rows kept in the catalog, files of a table that is
/// gone.
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

/// What upkeep does not change.
const ROWS: [&str; 6] = [
    "SELECT p, count(*) AS rows, sum(v) AS sum FROM a GROUP BY p ORDER BY p",
    "SELECT count(*) AS rows, sum(k) AS keys, sum(v) AS sum FROM b",
    "SELECT count(*) AS rows, sum(v) AS sum FROM c",
    "CHECK TABLE a",
    "CHECK TABLE b",
    "CHECK TABLE c",
];

/// How far upkeep is, as the catalog has it, and how many files there are.
fn progress(ground: &Ground) -> (String, usize) {
    let counts = "SELECT (SELECT count(*) FROM sys.data_files) AS files, (SELECT count(*) FROM sys.snapshots) AS snapshots, \
                  (SELECT sum(kept_rows) FROM sys.tables) AS kept";
    (ground.told(&[counts]), ground.files().len())
}

#[test]
fn a_process_dies_at_every_step_of_upkeep() {
    let made: Vec<&str> = TABLES.into_iter().chain(WORN).collect();
    let ground = Ground::new(Local, &made);
    let rows = ground.told(&ROWS);
    let upkeep = || -> Command {
        let mut command = ground.command(&Launcher::none(), &UPKEEP).expect("it needs no launcher");
        command.env("LD_PRELOAD", crashing()).env("HARRIER_CRASH_BELOW", "/warehouse/");
        command
    };
    let count = ground.work().join("count");
    let mut command = upkeep();
    command.env("HARRIER_CRASH_COUNT", &count);
    let run = finish(command, PATIENCE);
    assert!(run.success, "{run:#?}");
    let steps = steps_in(&count).len();
    assert!(steps > STEPS_MIN, "{steps} steps only: calls are not seen");
    assert_eq!(ground.told(&ROWS), rows, "undisturbed");
    let done = progress(&ground);
    // One file for each table partition, for each bucket, and for the rows that were kept.
    assert_eq!(done, ("files,snapshots,kept\n9,1,0\n".to_string(), 9));
    let (mut died, mut places) = (0, BTreeSet::new());
    for step in tried("upkeep", steps, STEPS_EVERY) {
        ground.restore();
        let mut command = upkeep();
        command.env("HARRIER_CRASH_AT", step.to_string());
        let run = finish(command, PATIENCE);
        let context = format!("step {step} of {steps}");
        assert_eq!(ground.told(&ROWS), rows, "{context}");
        if run.success {
            continue;
        }
        died += 1;
        places.insert(progress(&ground).0);
        ground.told(&UPKEEP);
        assert_eq!(ground.told(&ROWS), rows, "{context}, and once more");
        assert_eq!(progress(&ground), done, "{context}, and once more");
        ground.told(&[
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
