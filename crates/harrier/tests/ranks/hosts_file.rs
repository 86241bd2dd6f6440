//! Ranks that connect by a hosts file over QUIC, without MPI: the real binary, all ranks on this host.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::Hosts;

use crate::command::{BINARY, Folder, Run};

/// Timeout of every wait.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Processor time, in hundredths of a second, after which a rank has surely started and executes a statement.
const BEGUN_CPU_TICKS: u64 = 100;

/// Distributes small tables too, and checks the ledgers after each statement.
const SETTINGS: [&str; 4] = ["--set", "harrier.distribute_bytes_min=1", "--set", "harrier.check_ledger=true"];

const COUNT: &str =
    "select l_returnflag, count(*), sum(l_quantity) from 'tpch/lineitem/' group by 1 order by 1";

fn data(scale: &str) -> Folder {
    let folder = Folder::new();
    let generation = folder.run(&["generate", "tpch", "--scale", scale, "--out", "tpch"]);
    assert_eq!(generation.status, Some(0), "{generation:?}");
    folder
}

/// Starts one rank, for which other ranks wait.
fn rank(hosts: &Hosts, rank: usize, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = hosts.command(BINARY, rank);
    command.arg("sql").args(SETTINGS).args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the ranks from `first` on, which work for rank 0.
fn followers(hosts: &Hosts, first: usize, folder: &Path) -> Vec<Child> {
    (first..hosts.addresses().len()).map(|number| rank(hosts, number, folder, &[]).spawn().unwrap()).collect()
}

/// Waits for a process, and kills it after a timeout.
#[track_caller]
fn end(mut child: Child) -> Run {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > WATCHDOG {
            child.kill().unwrap();
            panic!("it hangs: {:?}", Run::from(child.wait_with_output().unwrap()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

#[test]
fn answers_equal_those_of_one_process() {
    let _turn = harrier_launch::gang_slot();
    let folder = data("0.01");
    let sql = "select o_orderpriority, count(*), sum(l_extendedprice) from 'tpch/orders/' join 'tpch/lineitem/' \
               on l_orderkey = o_orderkey group by 1 order by 1";
    let alone = folder.sql(&["--format", "csv", "-c", COUNT, "-c", sql]);
    assert_eq!(alone.status, Some(0), "{alone:?}");
    for shared in ["1", "0"] {
        let hosts = Hosts::new(3);
        let shared = ("HARRIER_SHARED_MEMORY", shared);
        let arguments = ["--format", "csv", "-c", COUNT, "-c", sql];
        let file = hosts.file();
        let spawn = |number: usize| {
            let mut command = rank(&hosts, number, folder.path(), &arguments);
            command.env(shared.0, shared.1);
            // The option and the variable are equivalent.
            if number == 1 {
                command.env_remove("HARRIER_HOSTS").arg("--hosts").arg(&file);
            }
            command.spawn().unwrap()
        };
        let ranks: Vec<Child> = (0..3).map(spawn).collect();
        for (number, child) in ranks.into_iter().enumerate() {
            let run = end(child);
            assert_eq!(run.status, Some(0), "rank {number}: {run:?}");
            assert_eq!(
                (&run.stdout[..], &run.stderr[..]),
                (if number == 0 { &alone.stdout } else { "" }, "")
            );
        }
    }
}

#[test]
fn a_rank_that_is_killed_fails_the_statement() {
    let _turn = harrier_launch::gang_slot();
    let folder = data("0.05");
    let hosts = Hosts::new(3);
    // Billions of pairs over two motions.
    let endless = "select sum(a.l_quantity * b.l_tax) from 'tpch/lineitem/' a join 'tpch/lineitem/' b \
                   on a.l_partkey % 16 = b.l_partkey % 16";
    let coordinator = rank(&hosts, 0, folder.path(), &["-c", endless]).spawn().unwrap();
    let mut others = followers(&hosts, 1, folder.path());
    let start = Instant::now();
    while cpu_ticks(others[1].id()) < BEGUN_CPU_TICKS {
        assert!(start.elapsed() < WATCHDOG, "it does not begin");
        thread::sleep(Duration::from_millis(5));
    }
    others[1].kill().unwrap();
    let run = end(coordinator);
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(run.stderr.starts_with("ERROR 57P02: ") && run.stderr.contains("rank 2 is lost"), "{run:?}");
    let other = end(others.swap_remove(0));
    assert_eq!(other.status, Some(3), "{other:?}");
    let _ = others.pop().unwrap().wait();
}

/// User and system processor time, in hundredths of a second.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[test]
fn next_statement_runs_on_remaining_ranks() {
    let _turn = harrier_launch::gang_slot();
    let folder = data("0.01");
    let expected = folder.sql(&["--format", "csv", "-c", COUNT]).stdout;
    let hosts = Hosts::new(3);
    // Rows are printed before the ledgers are checked, and a rank lost in between would fail the statement.
    let arguments = ["--set", "harrier.check_ledger=false", "--format", "csv", "-f", "-"];
    let mut coordinator = rank(&hosts, 0, folder.path(), &arguments);
    let mut coordinator = coordinator.stdin(Stdio::piped()).spawn().unwrap();
    let mut others = followers(&hosts, 1, folder.path());
    let mut stdin = coordinator.stdin.take().unwrap();
    let mut stdout = BufReader::new(coordinator.stdout.take().unwrap());
    let mut answer = |sql: &str, count: usize| -> String {
        writeln!(stdin, "{sql};").unwrap();
        stdin.flush().unwrap();
        let mut lines = String::new();
        for _ in 0..count {
            stdout.read_line(&mut lines).unwrap();
        }
        lines
    };
    let count = expected.lines().count();
    assert_eq!(answer(COUNT, count), expected);
    // The answer to this statement shows that the one before it has ended.
    assert_eq!(answer("select 1 as one", 2), "one\n1\n");
    others[1].kill().unwrap();
    others[1].wait().unwrap();
    assert_eq!(answer(COUNT, count), expected);
    drop(stdin);
    let run = end(coordinator);
    assert_eq!((run.status, &run.stderr[..]), (Some(0), ""));
    assert_eq!(end(others.swap_remove(0)).status, Some(0));
}

/// Runs one rank that cannot join, and compares the first line of its error output.
#[track_caller]
fn refuses(command: &mut Command, status: i32, error: &str) {
    let run: Run = command.output().unwrap().into();
    assert_eq!(run.status, Some(status), "{run:?}");
    assert_eq!(run.stderr.lines().next(), Some(error), "{run:?}");
    assert!(run.stderr.contains("\nHINT: "), "{run:?}");
}

#[test]
fn errors_of_hosts_files_and_connections() {
    let folder = Folder::new();
    let hosts = Hosts::new(2);
    let run = || rank(&hosts, 0, folder.path(), &["-c", "select 1"]);
    folder.write("hosts", "alpha\nbeta slots=none\n");
    refuses(
        run().env("HARRIER_HOSTS", "hosts"),
        2,
        "ERROR F0000: line 2 of the hosts file hosts: slots= takes 1 to 1024, not \"slots=none\"",
    );
    refuses(run().env_remove("HARRIER_TOKEN"), 2, "ERROR F0000: HARRIER_TOKEN is not set");
    refuses(run().env("HARRIER_TOKEN", "short"), 2, "ERROR F0000: the token has 5 bytes");
    refuses(run().env_remove("HARRIER_RANK"), 2, "ERROR F0000: HARRIER_RANK is not set");
    refuses(run().env("HARRIER_RANK", "2"), 2, "ERROR F0000: there is no rank 2 of 2");
    let other = hosts.addresses()[1];
    let expected_error = format!("ERROR 08001: rank 1 ({other}) did not come within 1 s");
    refuses(run().env("HARRIER_START_SECONDS", "1"), 3, &expected_error);
}

#[test]
fn other_cluster_token_is_refused() {
    let _turn = harrier_launch::gang_slot();
    let folder = Folder::new();
    let hosts = Hosts::new(2);
    let first = rank(&hosts, 0, folder.path(), &["-c", "select 1"]).env("HARRIER_START_SECONDS", "3").spawn();
    let mut second = rank(&hosts, 1, folder.path(), &[]);
    let expected_error =
        format!("ERROR 28000: rank 0 ({}) was started with another token", hosts.addresses()[0]);
    refuses(second.env("HARRIER_TOKEN", "a token that nobody else has"), 3, &expected_error);
    let run = end(first.unwrap());
    assert_eq!(run.status, Some(3), "{run:?}");
    assert!(run.stderr.contains("\nDETAIL: another token was used from 127.0.0.1:"), "{run:?}");
}
