//! A shell script that starts servers, obeys commands, and stops them when the last holder of its pipe exits.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

/// The keeper process of servers in a private folder, which it removes on exit.
///
/// Order of calls: [`Keeper::start`] returns when the script has printed `up`; then [`Keeper::send`] sends a
/// command and waits for `done`. Signals to this process's group do not reach it, so that it can clean up.
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
    /// Errors: the script's output if it does not print `up`.
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

    /// The folder with the servers' files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a command to the script; blocks until it is done.
    ///
    /// Panics: the command fails.
    pub fn send(&self, word: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let commands = inner.commands.as_mut().expect("it is open until this is dropped");
        writeln!(commands, "{word}").expect("the keeper listens");
        inner.wait_for("done").unwrap_or_else(|said| panic!("the keeper was told to {word}: {said}"));
    }
}

/// Where a server runs: under a keeper of this process, or shared by a whole test run.
pub struct Place {
    keeper: Option<Keeper>,
    folder: PathBuf,
}

impl Place {
    pub fn new(keeper: Keeper) -> Self {
        let folder = keeper.folder().to_path_buf();
        Self { keeper: Some(keeper), folder }
    }

    /// Reads the ports and folder of a shared server from a variable, as `PORT:PORT:…:FOLDER`. `None`: the
    /// variable is not set.
    ///
    /// Panics: the value is malformed.
    pub fn from_variable<const PORTS: usize>(variable: &str) -> Option<(Self, [u16; PORTS])> {
        let value = std::env::var(variable).ok()?;
        let mut fields = value.splitn(PORTS + 1, ':');
        let mut field = || fields.next().unwrap_or_else(|| panic!("{variable}={value}: too few fields"));
        let ports =
            [(); PORTS].map(|()| field().parse().unwrap_or_else(|_| panic!("{variable}={value}: no port")));
        let folder = PathBuf::from(field());
        Some((Self { keeper: None, folder }, ports))
    }

    /// The value of the variable that [`Place::from_variable`] reads.
    pub fn variable(&self, ports: &[u16]) -> String {
        let ports: String = ports.iter().map(|port| format!("{port}:")).collect();
        format!("{ports}{}", self.folder.display())
    }

    /// The folder with the server's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a command as [`Keeper::send`] does.
    ///
    /// Panics: the server is shared with other processes.
    pub fn send(&self, word: &str) {
        self.keeper
            .as_ref()
            .expect("a server that is shared is not stopped: take one of your own")
            .send(word);
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
