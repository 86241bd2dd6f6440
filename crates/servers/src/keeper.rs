//! A shell script that starts servers, obeys a few words, and ends them when nobody holds the pipe to it any
//! more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

/// The keeper of servers in a folder of their own, which it removes when it ends.
///
/// Order of calls: [`Keeper::start`] returns when the script has said `up`; then [`Keeper::tell`] says a word
/// and waits for `done`. A signal to this process's group does not reach it, so that it can clean up.
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

/// Where a server runs: under a keeper of this process, or as one of those that a whole run of the tests
/// shares.
pub struct Place {
    keeper: Option<Keeper>,
    folder: PathBuf,
}

impl Place {
    pub fn own(keeper: Keeper) -> Self {
        let folder = keeper.folder().to_path_buf();
        Self { keeper: Some(keeper), folder }
    }

    /// What a variable says of a server that is shared: its ports and its folder, as `PORT:PORT:…:FOLDER`.
    /// `None`: it is not set.
    ///
    /// Panics: it has another form.
    pub fn shared<const PORTS: usize>(variable: &str) -> Option<(Self, [u16; PORTS])> {
        let value = std::env::var(variable).ok()?;
        let mut fields = value.splitn(PORTS + 1, ':');
        let mut field = || fields.next().unwrap_or_else(|| panic!("{variable}={value}: too few fields"));
        let ports =
            [(); PORTS].map(|()| field().parse().unwrap_or_else(|_| panic!("{variable}={value}: no port")));
        let folder = PathBuf::from(field());
        Some((Self { keeper: None, folder }, ports))
    }

    /// The value of the variable that [`Place::shared`] reads.
    pub fn variable(&self, ports: &[u16]) -> String {
        let ports: String = ports.iter().map(|port| format!("{port}:")).collect();
        format!("{ports}{}", self.folder.display())
    }

    /// Where the server has its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// As of [`Keeper::tell`].
    ///
    /// Panics: others use the server, too.
    pub fn tell(&self, word: &str) {
        self.keeper
            .as_ref()
            .expect("a server that is shared is not stopped: take one of your own")
            .tell(word);
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
