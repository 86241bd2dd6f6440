//! Signals and limits of the system: which of them end a process, how, and with what word.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::Folder;

/// A process that has answered one statement hears `signal`, and then gets another one. Returns its status as
/// a shell tells it, what it answered to that, and what it said.
fn after(signal: Signal) -> (i32, String, String) {
    let folder = Folder::new();
    let mut child = folder
        .command(&["--warehouse", ":memory:", "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = |count: usize| {
        let mut text = String::new();
        for _ in 0..count {
            output.read_line(&mut text).unwrap();
        }
        text
    };
    input.write_all(b"SELECT 1 a;\n").unwrap();
    input.flush().unwrap();
    assert_eq!(lines(2), "a\n1\n");
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    // Who is to end does so by the signal, not because its input has ended.
    let ends = ![Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGXFSZ].contains(&signal);
    if !ends {
        input.write_all(b"SELECT 2 b;\n").unwrap();
        input.flush().unwrap();
    }
    let answer = lines(2);
    drop(input);
    let ended = child.wait_with_output().unwrap();
    let status = ended.status.code().unwrap_or_else(|| 128 + ended.status.signal().unwrap());
    (status, answer, String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn warnings_are_outlived() {
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGXFSZ] {
        assert_eq!(after(signal), (0, "b\n2\n".to_string(), String::new()), "{signal}");
    }
}

#[test]
fn who_is_asked_to_end_says_so() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGXCPU] {
        let (status, _, said) = after(signal);
        assert_eq!(status, 128 + signal as i32, "{said}");
        assert_eq!(said, format!("ERROR 57P01: {signal} ended the process\n"));
    }
}

/// Threads that cannot be started left the process waiting for them.
#[test]
fn a_limit_of_address_space_is_heard() {
    let folder = Folder::new();
    let limited = |kib: u32, rest: &str| folder.shell(&format!("ulimit -v {kib}; $HARRIER {rest}"));
    let statement = "sql --warehouse :memory: --format csv -c 'SELECT 1 a'";
    let run = limited(1_200_000, &format!("{statement} --threads 2"));
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "a\n1\n"), "{run:?}");
    let run = limited(600_000, &format!("{statement} --threads 4"));
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.contains("ERROR 53200") && run.stderr.contains("ulimit -v"), "{run:?}");
    let run = limited(1_200_000, "doctor");
    assert!(run.stdout.contains("1.1GiB at most (ulimit -v)"), "{run:?}");
}

#[test]
fn a_file_that_may_not_grow_fails_its_statement() {
    let folder = Folder::new();
    let rows = "SELECT md5(v::text) a, md5((v + 1)::text) b FROM generate_series(1, 100000) g(v)";
    folder.write("rows.sql", &format!("CREATE TABLE t AS {rows} LIMIT 0; INSERT INTO t {rows};"));
    folder.write("copy.sql", &format!("COPY ({rows}) TO 'x.csv';"));
    for (file, warehouse) in [("rows.sql", "w"), ("copy.sql", ":memory:")] {
        // In units of 512 or 1024 bytes, as the shell likes it.
        let run = folder.shell(&format!("ulimit -f 1000; $HARRIER sql --warehouse {warehouse} -f {file}"));
        assert_eq!(run.status, Some(1), "{run:?}");
        assert!(run.stderr.contains("ERROR 53100") || run.stderr.contains("ERROR 58030"), "{run:?}");
    }
    let count = folder.sql(&["--warehouse", "w", "--format", "csv", "-c", "SELECT count(*) n FROM t"]);
    assert_eq!(count.stdout, "n\n0\n", "{count:?}");
}
