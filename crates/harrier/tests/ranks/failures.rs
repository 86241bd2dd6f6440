//! Failures of ranks: the real binary under the real launcher, with ranks that are killed, stopped, of
//! different builds, or out of memory or disk.
//!
//! Each case ends with an SQLSTATE for its cause, and leaves no process, temporary file or shared memory. If
//! the gang survives, the next statement succeeds and nothing of the failed one is left on any rank
//! (`harrier.check_ledger`). `HARRIER_SKIP_MPI=1` leaves out what needs MPI, which otherwise has to be there.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use harrier_launch::Hosts;
use nix::sys::signal::Signal;

use crate::command::{BINARY, Folder, Run};
use crate::gang::{Gang, IDLE_CPU_MAX, Start, data, running, session, session_by_hosts, surviving_session};

macro_rules! needs_mpi {
    () => {
        if env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1") {
            eprintln!("skipped: needs MPI, and HARRIER_SKIP_MPI is set");
            return;
        }
    };
}

fn table(name: &str) -> String {
    format!("'{}/{name}/'", data().display())
}

/// Billions of pairs over two motions: never ends within a test, and keeps every rank computing.
fn endless() -> String {
    let lineitem = table("lineitem");
    format!(
        "select sum(a.l_quantity * b.l_tax) from {lineitem} a join {lineitem} b on a.l_partkey % 16 = b.l_partkey % 16"
    )
}

/// Runs the next statement of a session after a failure: on all ranks, with a motion.
#[track_caller]
fn is_well(gang: &mut Gang) {
    let sql = format!("select l_returnflag, count(*) from {} group by 1 order by 1", table("lineitem"));
    let rows = gang.answer(&sql).unwrap();
    let counts: Vec<u64> = rows.iter().map(|row| row[1].as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!((rows.len(), counts.iter().sum::<u64>()), (3, 299_814));
}

#[track_caller]
fn assert_statement_succeeds_and_ends(mut gang: Gang) {
    let status = gang.end();
    assert_eq!(status.code(), Some(0), "{}", gang.stderr());
    gang.leaves_nothing();
}

#[test]
fn a_rank_is_killed() {
    needs_mpi!();
    let mut gang = running(3, &endless());
    gang.wait_until_started();
    gang.signal_rank(1, Signal::SIGKILL);
    // The launcher's exit status: that of the signal.
    assert_eq!(gang.end().code(), Some(128 + 9));
    gang.fails("57P02", "rank 1 is lost");
    gang.leaves_nothing();
}

#[test]
fn a_rank_is_stopped() {
    needs_mpi!();
    let mut gang = running(3, &endless());
    gang.wait_until_started();
    gang.signal_rank(2, Signal::SIGSTOP);
    // Its peers kill it after their failure detection timeout.
    assert_eq!(gang.end().code(), Some(128 + 9));
    gang.fails("57P02", "rank 2 is lost");
    gang.leaves_nothing();
}

/// If the launcher lets them live, the others continue: first with the spare, then with fewer ranks.
#[test]
fn surviving_ranks_continue() {
    needs_mpi!();
    let mut gang = surviving_session(4, &["--spares", "1"]);
    is_well(&mut gang);
    let deaths = [(1, Signal::SIGKILL, [1, 2]), (2, Signal::SIGSTOP, [2, 3]), (3, Signal::SIGABRT, [3, 0])];
    for (victim, signal, busy) in deaths {
        gang.ask(&endless());
        gang.wait_until_busy(&busy);
        gang.signal_rank(victim, signal);
        let (code, message) = gang.wait_for_answer().unwrap_err();
        assert_eq!(code, "57P02", "{message}");
        assert!(message.starts_with(&format!("rank {victim} is lost: process ")), "{message}");
        is_well(&mut gang);
    }
    gang.end();
    gang.leaves_nothing();
}

/// An idle rank's death fails no statement.
#[test]
fn an_idle_rank_is_replaced() {
    needs_mpi!();
    let mut gang = surviving_session(3, &["--spares", "1"]);
    is_well(&mut gang);
    gang.kill_rank(1);
    is_well(&mut gang);
    gang.end();
    gang.leaves_nothing();
}

#[test]
fn the_coordinator_is_killed() {
    needs_mpi!();
    let mut gang = running(2, &endless());
    gang.wait_until_started();
    gang.signal_rank(0, Signal::SIGKILL);
    assert_eq!(gang.end().code(), Some(128 + 9));
    gang.leaves_nothing();
}

#[test]
fn the_coordinator_is_stopped() {
    needs_mpi!();
    let mut gang = running(2, &endless());
    gang.wait_until_started();
    gang.signal_rank(0, Signal::SIGSTOP);
    assert_eq!(gang.end().code(), Some(128 + 9));
    gang.leaves_nothing();
}

#[test]
fn an_idle_rank_is_killed() {
    needs_mpi!();
    let mut gang = session(2, &[]);
    is_well(&mut gang);
    gang.signal_rank(1, Signal::SIGKILL);
    assert_eq!(gang.end().code(), Some(128 + 9));
    gang.leaves_nothing();
}

/// There is no process left to report the failure.
#[test]
fn the_launcher_is_killed() {
    needs_mpi!();
    let mut gang = running(2, &endless());
    gang.wait_until_started();
    gang.signal_launcher(Signal::SIGKILL);
    assert_eq!(gang.end().code(), None);
    gang.leaves_nothing();
}

/// Ctrl-C goes to the launcher, which terminates every rank.
#[test]
fn the_launcher_is_interrupted() {
    needs_mpi!();
    let mut gang = running(2, &endless());
    gang.wait_until_started();
    gang.signal_launcher(Signal::SIGINT);
    assert_ne!(gang.end().code(), Some(0));
    gang.fails("57P01", "the launcher ended the gang");
    gang.leaves_nothing();
}

/// SIGTERM to all ranks, as `srun` or a start script sends it; whichever notices first reports.
#[test]
fn all_ranks_get_sigterm() {
    for round in 0..6 {
        let hosts = Hosts::new(3);
        let mut gang = session_by_hosts(&hosts, &["--format", "lines"]);
        is_well(&mut gang);
        if round % 2 == 0 {
            gang.ask(&endless());
            gang.wait_until_busy(&[0, 1, 2]);
        }
        gang.record_names();
        for rank in [0, 1, 2] {
            gang.signal_rank(rank, Signal::SIGTERM);
        }
        let statuses = [vec![gang.end()], gang.wait_for_others()].concat();
        let codes: Vec<_> = statuses.iter().map(|status| status.code()).collect();
        assert_eq!(codes, [Some(128 + 15); 3], "{}", gang.stderr());
        gang.fails("57P01", "SIGTERM ended the gang");
        gang.leaves_nothing();
    }
}

#[test]
fn ranks_of_different_builds() {
    needs_mpi!();
    let mut gang = Start {
        options: &[],
        ranks: 3,
        arguments: &["-c", "select 1"],
        environment: &[],
        wrapper: "test $OMPI_COMM_WORLD_RANK != 2 || export HARRIER_PRETEND_BUILD=0.0.1+other; exec \"$@\"",
    }
    .gang();
    assert_eq!(gang.end().code(), Some(3), "{}", gang.stderr());
    gang.fails("55000", "rank 2 0.0.1+other");
    gang.leaves_nothing();
}

#[test]
fn the_mpi_library_cannot_be_loaded() {
    needs_mpi!();
    for (library, message) in
        [("/nowhere/libmpi.so", "no MPI library found"), ("libc.so.6", "is no MPI library")]
    {
        let mut gang = Start {
            options: &[],
            ranks: 2,
            arguments: &["-c", "select 1"],
            environment: &[("HARRIER_MPI_LIBRARY", library)],
            wrapper: "",
        }
        .gang();
        assert_eq!(gang.end().code(), Some(3), "{}", gang.stderr());
        gang.fails("58000", message);
        gang.leaves_nothing();
    }
}

#[test]
fn a_benchmark_without_a_launcher() {
    let folder = Folder::new();
    let run: Run = Command::new(BINARY)
        .args(["bench", "tpch", "--ranks", "2", "--scale", "0.01"])
        .env_remove("HARRIER_MPIRUN")
        .env("PATH", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.status, Some(3), "{run:?}");
    let first = run.stderr.lines().find(|line| line.starts_with("ERROR ")).unwrap_or_default();
    assert!(first.starts_with("ERROR 58000: ") && first.contains("mpirun"), "{run:?}");
}

#[test]
fn an_operator_fails_on_a_remote_rank() {
    needs_mpi!();
    let mut gang = session(3, &[]);
    let lineitem = table("lineitem");
    for (sql, expected) in [
        // In late rows, below a motion.
        (format!("select l_returnflag, sum(1 / (l_orderkey - 250016)) from {lineitem} group by 1"), "22012"),
        (format!("select l_shipmode, max(cast(l_comment as bigint)) from {lineitem} group by 1"), "22P02"),
        (
            format!(
                "select count(*) from {lineitem} a join {lineitem} b on a.l_orderkey / (b.l_linenumber - 7) = 3"
            ),
            "22012",
        ),
        (format!("select count(*) from {lineitem} where cast(l_shipmode as date) > '1995-01-01'"), "22007"),
    ] {
        let answer = gang.answer(&sql);
        let (actual, message) = answer.expect_err(&sql);
        assert_eq!(actual, expected, "{sql}: {message}");
        is_well(&mut gang);
    }
    assert_statement_succeeds_and_ends(gang);
}

/// A panic of an operator fails its statement on any rank, and the rank survives.
///
/// In DataFusion 55 the end of this window frame overflows, and slicing its rows panics. If that is fixed
/// upstream, use another panic.
#[test]
fn an_operator_panics_on_a_remote_rank() {
    needs_mpi!();
    let mut gang = session(3, &[]);
    is_well(&mut gang);
    let ranks = gang.rank_processes();
    for class in 0..16 {
        let sql = format!(
            "select sum(m) from (select max(l_quantity) over (partition by l_partkey order by l_orderkey \
             rows between current row and 18446744073709551610 following) as m \
             from {} where l_partkey % 2500 = {class})",
            table("lineitem")
        );
        let (actual, message) = gang.answer(&sql).expect_err(&sql);
        assert_eq!(actual, "XX000", "{message}");
        is_well(&mut gang);
    }
    assert_eq!(gang.rank_processes(), ranks);
    assert_eq!(gang.end().code(), Some(0), "{}", gang.stderr());
    gang.leaves_nothing();
    // Each class has keys on several ranks, and the first panic stops the others; with so many classes, at
    // least one panic is not on rank 0.
    let log = gang.stderr();
    let of_others = |line: &str| ["rank 1: ", "rank 2: "].iter().any(|prefix| line.starts_with(prefix));
    assert!(log.lines().any(|line| of_others(line) && line.contains("panic")), "{log}");
}

/// Cancellation while every rank computes with open streams: nothing is left of the statement
/// (`harrier.check_ledger`).
#[test]
fn a_statement_is_canceled() {
    needs_mpi!();
    let mut gang = session(3, &[]);
    is_well(&mut gang);
    let ranks = gang.rank_processes();
    for _ in 0..3 {
        gang.ask(&endless());
        gang.wait_until_busy(&[0, 1, 2]);
        gang.signal_rank(0, Signal::SIGINT);
        let (code, message) = gang.wait_for_answer().expect_err("it would go on for minutes");
        assert_eq!(code, "57014", "{message}");
        is_well(&mut gang);
    }
    assert_eq!(gang.rank_processes(), ranks);
    assert_statement_succeeds_and_ends(gang);
}

#[test]
fn a_rank_runs_out_of_memory() {
    needs_mpi!();
    let mut gang = session(2, &["--memory", "8MiB"]);
    let lineitem = table("lineitem");
    for sql in [
        // The build side of a hash join cannot spill.
        format!(
            "select count(*) from {lineitem} a join {lineitem} b on a.l_orderkey = b.l_orderkey \
             and a.l_comment < b.l_comment"
        ),
        format!("select count(*) from {lineitem} a join {lineitem} b on a.l_comment = b.l_comment"),
    ] {
        let answer = gang.answer(&sql);
        let (actual, message) = answer.expect_err(&sql);
        assert_eq!(actual, "53200", "{sql}: {message}");
        is_well(&mut gang);
    }
    assert_statement_succeeds_and_ends(gang);
}

/// RLIMIT_FSIZE of 256 KiB, with an error instead of SIGXFSZ. MPI runs without shared memory here, whose
/// files are larger.
#[test]
fn the_disk_is_full() {
    needs_mpi!();
    let mut gang = Start {
        options: &[],
        ranks: 2,
        arguments: &["--format", "lines", "--set", "harrier.check_ledger=true", "--memory", "16MiB"],
        environment: &[("OMPI_MCA_btl", "self,tcp")],
        wrapper: "trap '' XFSZ; ulimit -f 512; exec \"$@\"",
    }
    .gang();
    is_well(&mut gang);
    let sql = format!(
        "select count(*), max(length(l_comment)), max(n) from \
         (select *, row_number() over (order by l_comment, l_orderkey) as n from {}) where n % 3 = 0",
        table("lineitem")
    );
    let (actual, message) = gang.answer(&sql).expect_err(&sql);
    assert_eq!(actual, "53100", "{message}");
    is_well(&mut gang);
    assert_statement_succeeds_and_ends(gang);
}

#[test]
fn the_spill_folder_cannot_be_written() {
    needs_mpi!();
    let arguments = ["-c", "select 1", "--spill-dir", "/proc/nowhere"];
    let mut gang = Start { ranks: 2, arguments: &arguments, environment: &[], ..Start::default() }.gang();
    assert_eq!(gang.end().code(), Some(2), "{}", gang.stderr());
    gang.fails("58P01", "cannot write temporary files to folder \"/proc/nowhere\"");
    gang.leaves_nothing();
}

/// With one wrong folder, the other ranks cannot know.
#[test]
fn the_spill_folder_of_one_rank_cannot_be_written() {
    needs_mpi!();
    let mut gang = Start {
        options: &[],
        ranks: 3,
        arguments: &["-c", "select 1", "--spill-dir", "/proc/self/fd/9/spill"],
        environment: &[],
        wrapper: "exec 9<.; test $OMPI_COMM_WORLD_RANK != 1 || exec 9</proc; exec \"$@\"",
    }
    .gang();
    assert!(matches!(gang.end().code(), Some(2 | 3)), "{}", gang.stderr());
    let expected = "ERROR 58P01: cannot write temporary files to folder \"/proc/self/fd/9/spill\"";
    assert!(gang.stderr().contains(expected), "{}", gang.stderr());
    gang.leaves_nothing();
}

/// Creates a folder with many links to few files, so that a scan opens one after the other for long.
fn many_files(folder: &Folder, count: usize) -> String {
    let source = fs::read_dir(data().join("lineitem")).unwrap().flatten().next().unwrap().path();
    let many = folder.path().join("many");
    fs::create_dir(&many).unwrap();
    let first = many.join("000.parquet");
    fs::copy(source, &first).unwrap();
    (1..count).for_each(|n| fs::hard_link(&first, many.join(format!("{n:03}.parquet"))).unwrap());
    many.to_str().unwrap().to_owned()
}

fn slow_scan(folder: &str) -> String {
    format!(
        "select l_returnflag, count(distinct sha512(concat(l_comment, l_shipdate))) from '{folder}/' group by 1"
    )
}

#[test]
fn files_vanish_while_they_are_read() {
    needs_mpi!();
    let folder = Folder::new();
    let many = many_files(&folder, 200);
    let mut gang = running(2, &slow_scan(&many));
    gang.wait_until_started();
    for entry in fs::read_dir(&many).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    assert_eq!(gang.end().code(), Some(1), "{}", gang.stderr());
    gang.fails("58P01", ".parquet");
    gang.leaves_nothing();
}

#[test]
fn files_are_truncated_while_they_are_read() {
    needs_mpi!();
    let folder = Folder::new();
    let many = many_files(&folder, 200);
    let mut gang = running(2, &slow_scan(&many));
    gang.wait_until_started();
    let file = fs::File::options().write(true).open(Path::new(&many).join("000.parquet")).unwrap();
    file.set_len(1000).unwrap();
    assert_eq!(gang.end().code(), Some(1), "{}", gang.stderr());
    // The file differs from the one that was listed. Truncated after the check of its size, pages end early
    // or lie beyond the end.
    let stderr = gang.stderr();
    let is_told = |code: &&str| stderr.contains(&format!("ERROR {code}: "));
    gang.fails(["40001", "58030"].into_iter().find(is_told).unwrap_or("XX001"), "");
    gang.leaves_nothing();
}

/// Time that producers may continue after LIMIT is satisfied.
const STOP_PATIENCE: Duration = Duration::from_millis(200);

#[test]
fn limit_stops_producers_over_a_motion() {
    needs_mpi!();
    let mut gang = session(3, &[]);
    let lineitem = table("lineitem");
    for sql in [
        format!(
            "select * from {lineitem} a join {lineitem} b on a.l_partkey % 16 = b.l_partkey % 16 limit 5"
        ),
        format!("select * from (select * from {lineitem} union all select * from {lineitem}) limit 5"),
        format!("select a.l_comment from {lineitem} a, {lineitem} b limit 5"),
    ] {
        for _ in 0..3 {
            assert_eq!(gang.answer(&sql).map(|rows| rows.len()), Ok(5), "{sql}");
            // The rest is stopped: the first of these statements would compute for minutes.
            thread::sleep(STOP_PATIENCE);
            let before = gang.cpu_time_of_ranks();
            thread::sleep(Duration::from_secs(1));
            let cpu_used = gang.cpu_time_of_ranks() - before;
            assert!(cpu_used < IDLE_CPU_MAX, "{sql}: the ranks computed for {cpu_used:?} after its end");
            is_well(&mut gang);
        }
    }
    assert_statement_succeeds_and_ends(gang);
}

#[test]
fn log_lines_name_their_rank() {
    needs_mpi!();
    let log = [("HARRIER_LOG", "info")];
    let mut gang =
        Start { ranks: 2, arguments: &["-c", "select 1"], environment: &log, ..Start::default() }.gang();
    assert_eq!(gang.end().code(), Some(0));
    for rank in 0..2 {
        let prefix = format!("rank {rank}: ");
        assert!(gang.stderr().lines().any(|line| line.starts_with(&prefix)), "{}", gang.stderr());
    }
    gang.leaves_nothing();
    drop(gang);
    let folder = Folder::new();
    let alone = folder.command(&["-c", "select 1"]).envs(log).output().unwrap();
    assert!(!String::from_utf8_lossy(&alone.stderr).contains("rank "), "{alone:?}");
}
