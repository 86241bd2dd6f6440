//! Recovery of programs with a killed rank, which `mpidrun` restarts: common to those in C and in Python.
//!
//! Such a program has [`O_TASKS`] O tasks, and gets a folder. O task 0 writes its process id to `victim`
//! there if that file does not exist yet, and waits to be killed. The others wait for `go`, and add their
//! numbers to `ran` when they are done. So the kill comes when some of them are in the checkpoint, and not at
//! a lucky instant. O task `i` sends 1000 pairs, of keys 0 to 99 in turn, with the value `i + 1`; A tasks
//! print `A number keys sum`, each in one line.

use crate::library_path::library;
use harrier_launch::{Launcher, Run, absent, finish, gang_slot};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const O_TASKS: usize = 8;

/// Timeout of two runs of a second each.
const TIME_MAX: Duration = Duration::from_secs(90);

/// The path of cargo's `mpidrun`, which is in another package than these tests.
fn mpidrun() -> Option<PathBuf> {
    let library = library();
    let built =
        library.ancestors().skip(1).take(2).map(|folder| folder.join("mpidrun")).find(|path| path.exists());
    if built.is_none() {
        absent("mpidrun (cargo build --release -p harrier-mpid)");
    }
    built
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

/// Bytes of the list of committed O tasks, of the one job; 0 before there is any.
fn bytes_committed(checkpoint: &Path) -> u64 {
    let Ok(jobs) = std::fs::read_dir(checkpoint) else { return 0 };
    jobs.flatten().filter_map(|job| Some(job.path().join("commits").metadata().ok()?.len())).sum()
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // Complete lines only.
    text.split_inclusive('\n').filter_map(|line| Some(line.strip_suffix('\n')?.to_string())).collect()
}

/// The installed launchers, without the options that tests give them.
pub fn launchers() -> Vec<String> {
    let all = [Launcher::open_mpi, Launcher::mpich, Launcher::open_mpi_wheel, Launcher::mpich_wheel];
    let words = all.map(|launcher| launcher(3).words().inspect_err(|reason| absent(reason)));
    words.into_iter().flatten().map(|words| words[0].clone()).collect()
}

/// Command for `mpidrun` with this launcher on three ranks, with a checkpoint in `folder` and restarts;
/// `program` is its last arguments. `None`: the launcher is absent.
pub fn with_restarts(launcher: &str, folder: &Path, program: &[&str]) -> Option<Command> {
    let mut command = Command::new(mpidrun()?);
    command.env("HARRIER_MPIRUN", launcher).args(["-n", "3", "-O", &O_TASKS.to_string(), "-A", "4"]);
    command.arg("-checkpoint").arg(folder.join("checkpoint")).args(["-restarts", "2"]).args(program);
    Some(command)
}

/// Starts the program, with the folder as its last argument, and kills the rank of O task 0. `None`:
/// something is absent.
pub fn run_with_killed_rank(launcher: &str, program: &[&str], variables: &[(&str, PathBuf)]) -> Option<Run> {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, ran) = (folder.path().join("checkpoint"), folder.path().join("ran"));
    let mut command = with_restarts(launcher, folder.path(), program)?;
    command.arg(folder.path());
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    let _turn = gang_slot();
    let run = std::thread::spawn(move || finish(command, TIME_MAX));
    let hangs =
        |what: &str, run: &std::thread::JoinHandle<Run>| assert!(!run.is_finished(), "{what}: it has ended");
    let victim = wait_for("a victim", || {
        hangs("no victim", &run);
        lines(&folder.path().join("victim")).pop()
    });
    let before = bytes_committed(&checkpoint);
    assert!(before > 0, "there is no checkpoint");
    std::fs::write(folder.path().join("go"), "").unwrap();
    wait_for("the other O tasks", || {
        hangs("not all run", &run);
        (lines(&ran).len() == O_TASKS - 1 && bytes_committed(&checkpoint) > before).then_some(())
    });
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success());
    let run = run.join().unwrap();
    assert!(run.stderr.contains("started again"), "{run:#?}");
    // Of the seven that had run, those in the checkpoint did not run again.
    let ran = lines(&ran);
    assert!(ran.iter().filter(|task| *task == "0").count() == 1, "{ran:?}: {run:#?}");
    assert!(ran.len() >= O_TASKS && ran.len() < 2 * O_TASKS - 1, "{ran:?}: {run:#?}");
    let checkpoint_files = std::fs::read_dir(&checkpoint).map_or(0, Iterator::count);
    assert!(checkpoint_files == 0, "the checkpoint stays: {run:#?}");
    Some(run)
}

/// Asserts the result of a run without a kill.
pub fn check(run: &Run) {
    assert!(run.success, "{run:#?}");
    let totals: Vec<Vec<u64>> = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("A "))
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    let sum = |at: usize| totals.iter().map(|numbers| numbers[at]).sum::<u64>();
    let expected = (1..=O_TASKS as u64).map(|value| 1000 * value).sum::<u64>();
    assert_eq!((totals.len(), sum(1), sum(2)), (4, 100, expected), "{run:#?}");
}
