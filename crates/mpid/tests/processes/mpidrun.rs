//! `mpidrun` under the installed launchers: it ends with its ranks on signals, and restarts lost ranks only.
//!
//! A launcher that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.

use harrier_launch::{Launcher, Run, absent, finish, gang_slot, on_path, with_default_signals};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = env!("CARGO_BIN_EXE_mpid-programs");
const MPIDRUN: &str = env!("CARGO_BIN_EXE_mpidrun");

/// Timeout of a run, which takes a second or two.
const TIME_MAX: Duration = Duration::from_secs(90);

const RANKS: usize = 2;

/// A program of [`RANKS`] ranks, each of which adds its process id to a file and waits; without the library,
/// which would end it without others.
const WAITS: &str = "echo $$ >>\"$1\"; exec sleep 1000";

/// The installed launchers, without the options that tests give them.
fn launchers() -> Vec<String> {
    let all = [Launcher::open_mpi, Launcher::mpich, Launcher::open_mpi_wheel, Launcher::mpich_wheel];
    all.map(|launcher| launcher(RANKS).words())
        .into_iter()
        .filter_map(|words| words.inspect_err(|reason| absent(reason)).ok())
        .map(|words| words[0].clone())
        .collect()
}

fn mpidrun(launcher: &str) -> Command {
    let mut command = with_default_signals(MPIDRUN);
    command.env("HARRIER_MPIRUN", launcher).args(["-n", &RANKS.to_string()]);
    command.stdin(Stdio::null());
    command
}

/// A process whose group is killed when the test fails.
struct ChildProcess(Child);

impl ChildProcess {
    fn spawn(mut command: Command) -> ChildProcess {
        ChildProcess(command.process_group(0).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn wait_for_exit(mut self) -> ExitStatus {
        wait_for("the end of mpidrun", || self.0.try_wait().unwrap())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.pid().to_string()).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begin.elapsed() < TIME_MAX, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Complete lines of a file.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| Some(line.strip_suffix('\n')?.to_string())).collect()
}

fn running(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The running children of a process.
fn children(process: u32) -> Vec<String> {
    let stderr_text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    stderr_text.split_whitespace().filter(|child| running(child)).map(str::to_string).collect()
}

/// Starts ranks that wait. Returns the processes that have to end: the launcher and its ranks.
fn start_waiting(command: impl FnOnce(&[&str]) -> Command, folder: &Path) -> (ChildProcess, Vec<String>) {
    let ranks = folder.join("ranks");
    let _ = std::fs::remove_file(&ranks);
    let started = ChildProcess::spawn(command(&["sh", "-c", WAITS, "sh", ranks.to_str().unwrap()]));
    let mut processes = wait_for("the ranks", || Some(lines(&ranks)).filter(|ranks| ranks.len() == RANKS));
    processes.extend(children(started.pid()));
    assert!(processes.len() > RANKS, "{processes:?}");
    (started, processes)
}

fn send(signal: &str, to: &str) {
    assert!(Command::new("kill").args(["-s", signal, "--", to]).status().unwrap().success());
}

/// Whether `mpidrun` alone gets the signal or all of its process group, the ranks end, and the exit status
/// has the signal.
#[test]
fn signals_end_the_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for launcher in launchers() {
        for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
            for to_all in [false, true] {
                let _turn = gang_slot();
                let (started, processes) = start_waiting(
                    |program| {
                        let mut command = mpidrun(&launcher);
                        command.args(program).stderr(Stdio::null());
                        command
                    },
                    folder.path(),
                );
                let pid = started.pid();
                send(signal, &if to_all { format!("-{pid}") } else { pid.to_string() });
                let context = format!("{launcher} {signal} {to_all}");
                assert_eq!(started.wait_for_exit().code(), Some(128 + number), "{context}");
                let running_processes: Vec<_> = processes.iter().filter(|process| running(process)).collect();
                assert!(running_processes.is_empty(), "{context}: {running_processes:?} of {processes:?}");
            }
        }
    }
}

/// Ctrl-C in a terminal goes to the whole process group.
#[test]
fn ctrl_c_ends_the_ranks() {
    if on_path("script").is_none() {
        return absent("script, of util-linux");
    }
    let folder = tempfile::tempdir().unwrap();
    for launcher in launchers() {
        let _turn = gang_slot();
        let ranks = folder.path().join("ranks");
        let _ = std::fs::remove_file(&ranks);
        let mut command = with_default_signals("script");
        let line = format!(
            "HARRIER_MPIRUN={launcher} exec {MPIDRUN} -n {RANKS} sh -c '{WAITS}' sh {}",
            ranks.display()
        );
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut started = ChildProcess::spawn(command);
        let processes = wait_for("the ranks", || Some(lines(&ranks)).filter(|ranks| ranks.len() == RANKS));
        // It stays open: at the end of its input `script` ends, too.
        let mut terminal = started.0.stdin.take().unwrap();
        terminal.write_all(b"\x03").unwrap();
        assert_eq!(started.wait_for_exit().code(), Some(130), "{launcher}");
        let running_processes: Vec<_> = processes.iter().filter(|process| running(process)).collect();
        assert!(running_processes.is_empty(), "{launcher}: {running_processes:?}");
    }
}

/// A killed `mpidrun` cannot signal the launcher, which ends nevertheless.
#[test]
fn ranks_end_with_a_killed_mpidrun() {
    let folder = tempfile::tempdir().unwrap();
    for launcher in launchers() {
        let _turn = gang_slot();
        let (started, processes) = start_waiting(
            |program| {
                let mut command = mpidrun(&launcher);
                command.args(program).stderr(Stdio::null());
                command
            },
            folder.path(),
        );
        send("KILL", &started.pid().to_string());
        assert_eq!(started.wait_for_exit().signal(), Some(9));
        wait_for(&format!("the end of the ranks of {launcher}"), || {
            (!processes.iter().any(|process| running(process))).then_some(())
        });
    }
}

/// Signals that the parent has ignored stay ignored.
#[test]
fn ignored_signals_stay_ignored() {
    let folder = tempfile::tempdir().unwrap();
    for launcher in launchers().into_iter().take(1) {
        let _turn = gang_slot();
        let (started, processes) = start_waiting(
            |program| {
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", MPIDRUN, "-n", &RANKS.to_string()]);
                command.env("HARRIER_MPIRUN", &launcher).args(program);
                command.stdin(Stdio::null()).stderr(Stdio::null());
                command
            },
            folder.path(),
        );
        let pid = started.pid().to_string();
        send("HUP", &pid);
        send("TERM", &pid);
        assert_eq!(started.wait_for_exit().code(), Some(143));
        assert!(!processes.iter().any(|process| running(process)));
    }
}

/// A run that is ended by a signal has not lost ranks: it is not restarted, and leaves no file but the
/// checkpoint.
#[test]
fn signaled_runs_are_not_restarted() {
    for launcher in launchers() {
        let _turn = gang_slot();
        let folder = tempfile::tempdir().unwrap();
        let (pipe, checkpoint) = (folder.path().join("events"), folder.path().join("checkpoint"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = mpidrun(&launcher);
        command.arg("-checkpoint").arg(&checkpoint).args(["-restarts", "3", PROGRAMS, "sliding", "--input"]);
        command.arg(&pipe).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut started = ChildProcess::spawn(command);
        let mut stderr = started.0.stderr.take().unwrap();
        // Opened for both directions, so that it does not wait for a reader. Its data never ends.
        let _events = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let files = || std::fs::read_dir(&checkpoint).map_or(0, Iterator::count);
        wait_for("ranks that have met", || (files() > 0).then_some(()));
        send("TERM", &started.pid().to_string());
        assert_eq!(started.wait_for_exit().code(), Some(143), "{launcher}");
        assert_eq!(files(), 0, "{launcher}");
        let mut stderr_text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut stderr_text).unwrap();
        assert!(!stderr_text.contains("started again"), "{launcher}: {stderr_text}");
    }
}

/// Runs `program` with restarts. Its ranks may each add a line to the file in its last argument. Returns the
/// lines, too.
fn with_restarts(launcher: &str, program: &[&str]) -> (Run, Vec<String>) {
    let _turn = gang_slot();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let mut command = mpidrun(launcher);
    command.arg("-checkpoint").arg(folder.path().join("checkpoint")).args(["-restarts", "3"]);
    command.args(program).arg(&file);
    let run = finish(command, TIME_MAX);
    (run, lines(&file))
}

/// Programs that exit by themselves, with whatever status, are not restarted; nor are those that cannot be
/// started.
#[test]
fn exited_programs_are_not_restarted() {
    for launcher in launchers() {
        for how in ["exit 3", "exit 130", "exit 143", "kill -9 $$"] {
            // They stay a moment: Hydra's launcher can crash if one ends before it looks.
            let script = format!("echo x >>\"$1\"; sleep 0.5; {how}");
            let (run, starts) = with_restarts(&launcher, &["sh", "-c", &script, "sh"]);
            assert!(!run.success && !run.timed_out, "{launcher} {how}: {run:#?}");
            assert!((1..=RANKS).contains(&starts.len()), "{launcher} {how}: {starts:?}, {run:#?}");
            assert!(!run.stderr.contains("started again"), "{launcher} {how}: {run:#?}");
        }
        for program in
            [&["/no/such/program"][..], &["no-such-program"], &[PROGRAMS, "nosuch"], &["/etc/passwd"]]
        {
            let (run, _) = with_restarts(&launcher, program);
            assert!(!run.success && !run.timed_out, "{launcher} {program:?}: {run:#?}");
            assert!(!run.stderr.contains("started again"), "{launcher} {program:?}: {run:#?}");
        }
    }
}

/// The loss of a single rank is a loss as well.
#[test]
fn a_single_rank_is_restarted() {
    for launcher in launchers() {
        let _turn = gang_slot();
        let folder = tempfile::tempdir().unwrap();
        let (pipe, checkpoint) = (folder.path().join("events"), folder.path().join("checkpoint"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = with_default_signals(MPIDRUN);
        command.env("HARRIER_MPIRUN", &launcher).args(["-n", "1", "-checkpoint"]).arg(&checkpoint);
        command.args(["-restarts", "1", PROGRAMS, "sliding", "--input"]).arg(&pipe);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut started = ChildProcess::spawn(command);
        let mut stderr = started.0.stderr.take().unwrap();
        let mut events = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        // A rank that reads, and so has joined.
        let rank = || {
            let reads = |entry: std::fs::DirEntry| {
                let line = std::fs::read(entry.path().join("cmdline")).ok()?;
                let mut open = std::fs::read_dir(entry.path().join("fd")).ok()?.flatten();
                let has = open.any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path == pipe));
                (has && line.starts_with(PROGRAMS.as_bytes()))
                    .then(|| entry.file_name().into_string().ok())?
            };
            std::fs::read_dir("/proc").unwrap().flatten().find_map(reads)
        };
        let first = wait_for("a rank", rank);
        send("KILL", &first);
        wait_for("another rank", || rank().filter(|second| *second != first));
        events.write_all(b"1\ta\n").unwrap();
        drop(events);
        assert!(started.wait_for_exit().success(), "{launcher}");
        let mut stderr_text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut stderr_text).unwrap();
        assert!(stderr_text.contains("started again"), "{launcher}: {stderr_text}");
    }
}

/// A launcher that stays without its ranks is ended, and so is one whose ranks wait for another that has
/// died; one whose ranks have met is not.
#[test]
fn hanging_launchers_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = folder.path().join("launcher");
    let of_parts = |begins: &str| format!("{begins}; sleep 1 & sleep 9 & wait");
    for (script, words) in [
        ("sleep 1; while :; do :; done", Some("all ranks are gone")),
        (&of_parts(":"), Some("the others wait for it to join")),
        (&of_parts("echo joined >\"$HARRIER_MPID_OUTCOME\""), None),
    ] {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\n{script}\n"
        );
        std::fs::write(&launcher, script).unwrap();
        std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = mpidrun(launcher.to_str().unwrap());
        command.arg("-checkpoint").arg(folder.path().join("checkpoint")).arg("true");
        let run = finish(command, TIME_MAX);
        assert!(!run.success && !run.timed_out, "{run:#?}");
        assert_eq!(run.stderr.contains("it is ended"), words.is_some(), "{run:#?}");
        assert!(run.stderr.contains(words.unwrap_or_default()), "{run:#?}");
    }
}
