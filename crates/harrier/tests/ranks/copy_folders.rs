//! COPY … TO a folder on ranks under a real launcher: canceled, or with a rank that is killed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::gang::{Gang, data, session, surviving_session};

/// How long writing may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);

/// The names of all files and folders below `folder`.
fn names(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // A folder may be removed meanwhile.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.insert(entry.path().display().to_string());
        found.extend(names(&entry.path()));
    }
    found
}

/// Rows that take minutes to write, on every rank.
fn long(to: &Path, options: &str) -> String {
    let lineitem = format!("'{}/lineitem/'", data().display());
    format!(
        "COPY (SELECT a.* FROM {lineitem} a JOIN {lineitem} b ON a.l_partkey % 16 = b.l_partkey % 16) TO '{}/' {options}",
        to.display()
    )
}

/// Begins a copy, and waits until each of `ranks` has begun a file.
fn begin(gang: &mut Gang, to: &Path, options: &str, ranks: usize) {
    gang.ask(&long(to, options));
    let begun = Instant::now();
    while names(to).iter().filter(|name| name.ends_with(".csv.staged")).count() < ranks {
        assert!(begun.elapsed() < PATIENCE, "no files: {:?}; {}", names(to), gang.stderr());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn canceled_copies_leave_nothing() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (new, kept) = (folder.path().join("new"), folder.path().join("kept"));
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("old.csv"), "").unwrap();
    let before = names(folder.path());
    let mut gang = session(3, &["--threads", "1", "--set", "harrier.distribute_bytes_min=0"]);
    for to in [&new, &kept] {
        begin(&mut gang, to, "STORED AS CSV", 3);
        gang.signal_rank(0, Signal::SIGINT);
        let (code, message) = gang.wait_for_answer().unwrap_err();
        assert_eq!(code, "57014", "{message}");
        assert_eq!(names(folder.path()), before);
    }
    // What a canceled statement leaves of its writers writes nothing later.
    gang.wait_until_idle();
    assert_eq!(names(folder.path()), before);
    gang.end();
    gang.leaves_nothing();
}

#[test]
fn copies_of_a_killed_rank_leave_nothing() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut gang = surviving_session(3, &["--threads", "1", "--set", "harrier.distribute_bytes_min=0"]);
    let to = folder.path().join("x");
    begin(&mut gang, &to, "STORED AS CSV", 3);
    gang.signal_rank(2, Signal::SIGKILL);
    let (code, message) = gang.wait_for_answer().unwrap_err();
    assert_eq!(code, "57P02", "{message}");
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    gang.wait_until_idle();
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    let lineitem = format!("'{}/lineitem/'", data().display());
    gang.answer(&format!("COPY (SELECT * FROM {lineitem}) TO '{}/' STORED AS CSV", to.display())).unwrap();
    let count = gang.answer(&format!("SELECT count(*) FROM '{}/'", to.display())).unwrap();
    assert_eq!(count[0][0].as_deref(), Some("299814"));
    gang.end();
    gang.leaves_nothing();
}
