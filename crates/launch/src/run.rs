//! Runs a program to its end or until a timeout.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The outcome of a run.
#[derive(Debug)]
pub struct Run {
    pub success: bool,
    /// Whether it was terminated after the timeout.
    pub timed_out: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `command` to its end; sends SIGTERM after `patience`.
///
/// Panics: the program does not start.
pub fn finish(mut command: Command, patience: Duration) -> Run {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = read_in_thread(child.stdout.take().expect("piped"));
    let stderr = read_in_thread(child.stderr.take().expect("piped"));
    let started = Instant::now();
    let (success, timed_out) = loop {
        if let Some(status) = child.try_wait().expect("the program is ours") {
            break (status.success(), false);
        }
        if started.elapsed() > patience {
            // SIGTERM, so that a launcher ends its ranks, which hold the pipes open.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            child.wait().expect("the program is ours");
            break (false, true);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Run { success, timed_out, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
}

fn read_in_thread(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// A command with default handling of terminal signals, even if the tests run under `nohup` or a CI system
/// that ignores them: ignored signals are inherited. With `env` of coreutils before 8.31 it runs the program
/// directly.
pub fn with_default_signals(program: impl AsRef<OsStr>) -> Command {
    const DEFAULT_SIGNALS: &str = "--default-signal=INT,QUIT,HUP";
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    let probe = || Command::new("env").args([DEFAULT_SIGNALS, "true"]).stderr(Stdio::null()).status();
    if !*IS_SUPPORTED.get_or_init(|| probe().is_ok_and(|status| status.success())) {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.arg(DEFAULT_SIGNALS).arg(program);
    command
}

/// Concatenates the files in `folder`.
///
/// Panics: a file cannot be read.
pub fn output_of_ranks(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.map(|file| std::fs::read_to_string(file.expect("listed").path()).expect("text")).collect()
}

/// The path of an example of the calling test's crate: tests are in `target/<profile>/deps`, examples in
/// `target/<profile>/examples`. `cargo test --test …` alone does not build examples.
///
/// Panics: it has not been built.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.ancestors().nth(2).expect("the test lies in target/<profile>/deps");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --examples makes it", path.display());
    path
}

/// Default seed of tests, so that every run is the same. The soak test uses others; `HARRIER_SEED` overrides
/// it.
pub const SEED: u64 = 1;

/// `HARRIER_SEED`, or [`SEED`].
///
/// Panics: the variable is not a number.
pub fn seed() -> u64 {
    match std::env::var("HARRIER_SEED") {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("HARRIER_SEED={seed} is no number")),
        Err(_) => SEED,
    }
}

/// `count` seeds from [`SEED`] on, or only `HARRIER_SEED` if set.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var_os("HARRIER_SEED") {
        Some(_) => vec![seed()],
        None => (SEED..SEED + count).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, patience: Duration) -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        finish(command, patience)
    }

    #[test]
    fn runs_return_output_and_status() {
        const LONG: Duration = Duration::from_secs(600);
        let well = run("echo out; echo err >&2", LONG);
        assert!(well.success && !well.timed_out, "{well:?}");
        assert_eq!((well.stdout.as_str(), well.stderr.as_str()), ("out\n", "err\n"));
        let failed = run("echo out; exit 3", LONG);
        assert!(!failed.success && !failed.timed_out && failed.stdout == "out\n", "{failed:?}");
        assert!(!run("kill -9 $$", LONG).success);
        let slow = run("exec sleep 600", Duration::from_millis(1));
        assert!(!slow.success && slow.timed_out, "{slow:?}");
    }
}
