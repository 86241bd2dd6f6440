//! Signals and resource limits of the system: which ones end the process, with which exit status and message.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::Folder;

/// Sends `signal` to a process that has answered one statement, then another statement. Returns the shell's
/// exit status, the answer, and standard error.
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
    // A terminated process ends by the signal, not by the end of its input.
    let ends = ![Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGXFSZ].contains(&signal);
    if !ends {
        input.write_all(b"SELECT 2 b;\n").unwrap();
        input.flush().unwrap();
    }
    let answer = lines(2);
    drop(input);
    let output_at_exit = child.wait_with_output().unwrap();
    let status =
        output_at_exit.status.code().unwrap_or_else(|| 128 + output_at_exit.status.signal().unwrap());
    (status, answer, String::from_utf8_lossy(&output_at_exit.stderr).into_owned())
}

#[test]
fn ignored_signals() {
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGXFSZ] {
        assert_eq!(after(signal), (0, "b\n2\n".to_string(), String::new()), "{signal}");
    }
}

#[test]
fn termination_signals_are_reported() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGXCPU] {
        let (status, _, error_output) = after(signal);
        assert_eq!(status, 128 + signal as i32, "{error_output}");
        assert_eq!(error_output, format!("ERROR 57P01: {signal} ended the process\n"));
    }
}

/// If threads could not be started, the process used to wait for them.
#[test]
fn address_space_limit_is_reported() {
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
fn file_size_limit_fails_the_statement() {
    let folder = Folder::new();
    let rows = "SELECT md5(v::text) a, md5((v + 1)::text) b FROM generate_series(1, 100000) g(v)";
    folder.write("rows.sql", &format!("CREATE TABLE t AS {rows} LIMIT 0; INSERT INTO t {rows};"));
    folder.write("copy.sql", &format!("COPY ({rows}) TO 'x.csv';"));
    for (file, warehouse) in [("rows.sql", "w"), ("copy.sql", ":memory:")] {
        // Units of 512 or 1024 bytes, depending on the shell.
        let run = folder.shell(&format!("ulimit -f 1000; $HARRIER sql --warehouse {warehouse} -f {file}"));
        assert_eq!(run.status, Some(1), "{run:?}");
        assert!(run.stderr.contains("ERROR 53100") || run.stderr.contains("ERROR 58030"), "{run:?}");
    }
    let count = folder.sql(&["--warehouse", "w", "--format", "csv", "-c", "SELECT count(*) n FROM t"]);
    assert_eq!(count.stdout, "n\n0\n", "{count:?}");
}
