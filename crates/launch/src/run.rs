//! A program's run, to its end or to the end of a test's patience.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

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

/// `HARRIER_SEED`, which repeats a run, or a number that no earlier run had.
pub fn fresh_seed() -> String {
    std::env::var("HARRIER_SEED").unwrap_or_else(|_| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("after 1970").as_micros().to_string()
    })
}
