//! A program's run, to its end or to the end of a test's patience.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    pub success: bool,
    /// It was ended because it took too long.
    pub timed_out: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `command` to its end; after `patience` it is asked to end.
///
/// Panics: the program does not start.
pub fn finish(mut command: Command, patience: Duration) -> Run {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = read_aside(child.stdout.take().expect("piped"));
    let stderr = read_aside(child.stderr.take().expect("piped"));
    let started = Instant::now();
    let (success, timed_out) = loop {
        if let Some(status) = child.try_wait().expect("the program is ours") {
            break (status.success(), false);
        }
        if started.elapsed() > patience {
            // SIGTERM, so that a launcher ends its ranks; they hold the pipes open.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            child.wait().expect("the program is ours");
            break (false, true);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Run { success, timed_out, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
}

fn read_aside(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// A command that hears the signals of a terminal, even if whoever started the tests has all programs ignore
/// them, as `nohup` and some CI systems do: ignored signals are inherited. Where `env` of coreutils before
/// 8.31 is all there is, it is the program itself.
pub fn hearing_signals(program: impl AsRef<OsStr>) -> Command {
    const LISTENING: &str = "--default-signal=INT,QUIT,HUP";
    static IS_KNOWN: OnceLock<bool> = OnceLock::new();
    let known = || Command::new("env").args([LISTENING, "true"]).stderr(Stdio::null()).status();
    if !*IS_KNOWN.get_or_init(|| known().is_ok_and(|status| status.success())) {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.arg(LISTENING).arg(program);
    command
}

/// What the files in `folder` hold, one after another.
///
/// Panics: one cannot be read.
pub fn printed(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.map(|file| std::fs::read_to_string(file.expect("listed").path()).expect("text")).collect()
}

/// An example of the crate whose test calls this: tests are in `target/<profile>/deps`, examples in
/// `target/<profile>/examples`. `cargo test --test …` alone does not build them.
///
/// Panics: it has not been built.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.ancestors().nth(2).expect("the test lies in target/<profile>/deps");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is missing: cargo build --examples makes it", path.display());
    path
}

/// Of what a test draws, unless `HARRIER_SEED` says another one: every run of the tests is the same. The soak
/// draws others.
pub const SEED: u64 = 1;

/// `HARRIER_SEED`, or [`SEED`].
///
/// Panics: the variable is no number.
pub fn seed() -> u64 {
    match std::env::var("HARRIER_SEED") {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("HARRIER_SEED={seed} is no number")),
        Err(_) => SEED,
    }
}

/// So many seeds from [`SEED`] on, or the one that `HARRIER_SEED` says.
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
    fn a_run_is_what_its_program_says() {
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
