//! A shell script that starts servers, obeys a few words, and ends them when nobody holds the pipe to it any more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

/// The keeper of servers in a folder of their own, which it removes when it ends.
///
/// Order of calls: [`Keeper::start`] returns when the script has said `up`; then [`Keeper::tell`] says a word and waits for
/// `done`. A signal to this process's group does not reach it, so that it can clean up.
pub struct Keeper {
    inner: Mutex<Inner>,
    folder: TempDir,
}

struct Inner {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Runs `script` with the folder as its first argument and `arguments` after it.
    ///
    /// Errors: what the script has said instead of `up`.
    pub fn start(
        script: &str,
        folder: TempDir,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut child = Command::new("sh")
            .args(["-c", script, "keeper"])
            .arg(folder.path())
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let commands = child.stdin.take();
        let stdout = child.stdout.take().ok_or("no pipe from the keeper")?;
        let mut inner = Inner { child, commands, answers: BufReader::new(stdout) };
        inner.wait_for("up")?;
        Ok(Self { inner: Mutex::new(inner), folder })
    }

    /// Where the servers have their files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Has the script do something; blocks until it is done.
    ///
    /// Panics: it is not done.
    pub fn tell(&self, word: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let commands = inner.commands.as_mut().expect("it is open until this is dropped");
        writeln!(commands, "{word}").expect("the keeper listens");
        inner.wait_for("done").unwrap_or_else(|said| panic!("the keeper was told to {word}: {said}"));
    }
}

impl Inner {
    fn wait_for(&mut self, word: &str) -> Result<(), String> {
        let mut said = String::new();
        while self.answers.read_line(&mut said).map_err(|error| error.to_string())? > 0 {
            if said.lines().last() == Some(word) {
                return Ok(());
            }
        }
        let _ = self.child.wait();
        Err(said)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop(inner.commands.take());
        let _ = inner.child.wait();
    }
}
