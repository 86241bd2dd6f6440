//! The servers that `bench serve` compares: Harrier itself, and peers that report their ports.
//!
//! ```text
//! driver ── HARRIER_BENCH_DATA, HARRIER_BENCH_FOLDER ──► peer: one line of JSON when ready for clients (bench/peers/server.py)
//!        ── "cancel" on its standard input, where clients cannot cancel; its end of input ends the peer
//! ```
//!
//! Crash: peers end with their standard input; Harrier's server is asked to stop, and killed if it does not.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::Failure;
use crate::configuration::{self, Configuration};

/// Startup timeout: a peer loads its tables in that time.
const START_TIMEOUT: Duration = Duration::from_secs(240);
/// Shutdown timeout.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Client protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Postgresql,
    Hive,
}

/// Address for clients, on the loopback interface.
#[derive(Debug, Clone)]
pub struct Target {
    pub protocol: Protocol,
    pub port: u16,
    pub user: String,
    pub database: String,
}

/// A running server.
pub struct System {
    pub name: String,
    pub engine: String,
    pub target: Target,
    /// Port of Arrow Flight SQL; only for Harrier.
    pub flight: Option<u16>,
    /// Time from its start until it is ready, including loading.
    pub started: Duration,
    child: Child,
    stdin: Option<ChildStdin>,
    ends_with_stdin: bool,
}

/// Options of Harrier's server.
#[derive(Debug, Clone)]
pub struct HarrierOptions {
    pub warehouse: PathBuf,
    /// Added to those that every server has.
    pub arguments: Vec<String>,
    /// Folder of its temporary files and its log.
    pub folder: PathBuf,
}

impl System {
    /// Starts `harrier serve` of this program.
    pub fn harrier(options: &HarrierOptions, waiting: &mut dyn FnMut()) -> Result<Self, Failure> {
        let log = options.folder.join("serve.log");
        let failed = |what: String| Failure::dead(format!("harrier serve {what}"));
        let log_file = std::fs::File::create(&log).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(configuration::this_binary()?);
        command
            .arg("serve")
            .args(["--listen", "127.0.0.1:0", "--http", "off", "--flight", "127.0.0.1:0"])
            .arg("--warehouse")
            .arg(&options.warehouse)
            .args(&options.arguments)
            .env("TMPDIR", &options.folder)
            .stdin(Stdio::null())
            .stderr(log_file);
        let mut flight = None;
        let (child, started) = start(command, waiting, |line| {
            if let Some(port) = line.strip_prefix("Arrow Flight SQL: grpc://127.0.0.1:") {
                flight = port.parse::<u16>().ok();
                return None;
            }
            let ready = line.strip_prefix("ready: psql -h 127.0.0.1 -p ")?;
            Some((ready.split(' ').next()?.parse().ok()?, flight?))
        })
        .map_err(|what| failed(format!("{what}; its log is {}", log.display())))?;
        let ((port, flight), started) = started;
        let target = Target {
            protocol: Protocol::Postgresql,
            port,
            user: own_name(),
            database: "warehouse".to_owned(),
        };
        Ok(Self {
            name: "harrier".to_owned(),
            engine: format!("harrier {}", env!("CARGO_PKG_VERSION")),
            target,
            flight: Some(flight),
            started,
            child,
            stdin: None,
            ends_with_stdin: false,
        })
    }

    /// Starts a peer, in an empty folder of its own.
    pub fn peer(
        configuration: &Configuration,
        data: &Path,
        folder: &Path,
        waiting: &mut dyn FnMut(),
    ) -> Result<Self, Failure> {
        let failed = |what: String| Failure::dead(format!("peer {} {what}", configuration.name));
        let folder = folder.join(&configuration.name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| failed(error.to_string()))?;
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        // Redirect standard error: servers log every canceled statement.
        let log = folder.with_extension("log");
        let log_file = std::fs::File::create(&log).map_err(|error| failed(error.to_string()))?;
        let mut command = configuration.command()?;
        command
            .env("HARRIER_BENCH_DATA", absolute(data))
            .env("HARRIER_BENCH_FOLDER", absolute(&folder))
            .env("HARRIER_BENCH_BINARY", configuration::this_binary()?)
            .stdin(Stdio::piped())
            .stderr(log_file);
        let (mut child, (facts, started)) =
            start(command, waiting, |line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object))
                .map_err(|what| failed(format!("{what}; its log is {}", log.display())))?;
        let text = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
        let protocol = match text("protocol").as_str() {
            "hive" => Protocol::Hive,
            _ => Protocol::Postgresql,
        };
        let port = facts["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or_else(|| failed(format!("does not tell its port: {facts}")))?;
        let target = Target { protocol, port, user: text("user"), database: text("database") };
        let stdin = child.stdin.take();
        Ok(Self {
            name: configuration.name.clone(),
            engine: text("engine"),
            target,
            flight: None,
            started,
            child,
            stdin,
            ends_with_stdin: true,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks a peer to cancel all its statements.
    pub fn cancel(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"cancel\n").and_then(|()| stdin.flush());
        }
    }
}

/// Starts a server and reads its output until `ready` parses a line. Later output is discarded.
///
/// Errors: it exits before, or prints nothing for too long; it is ended then.
fn start<T>(
    mut command: Command,
    waiting: &mut dyn FnMut(),
    mut ready: impl FnMut(&str) -> Option<T>,
) -> Result<(Child, (T, Duration)), String> {
    let begun = Instant::now();
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("did not start: {error}"))?;
    let output = child.stdout.take().ok_or("has no output")?;
    let (sender, lines) = sync_channel(16);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The receiver may be gone; keep draining the pipe.
            let _ = sender.try_send(line);
        }
    });
    let why = loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                if let Some(parsed) = ready(&line) {
                    return Ok((child, (parsed, begun.elapsed())));
                }
            }
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < START_TIMEOUT => waiting(),
            Err(RecvTimeoutError::Timeout) => {
                break format!("was not ready within {} s", START_TIMEOUT.as_secs());
            }
            Err(RecvTimeoutError::Disconnected) => break "ended before it was ready".to_owned(),
        }
    };
    drop(child.stdin.take());
    end(&mut child, Duration::from_secs(2));
    Err(why)
}

/// Waits for a stopping process, and kills it after `patience`.
fn end(child: &mut Child, patience: Duration) {
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Name of the current user, whom a server of the same user accepts without a password.
fn own_name() -> String {
    let output = Command::new("id").arg("-un").output();
    let name =
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if name.is_empty() { "root".to_owned() } else { name }
}

impl Drop for System {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if !self.ends_with_stdin
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        end(&mut self.child, END_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(script: &str, folder: &Path) -> Result<System, Failure> {
        let configuration = Configuration::peer(&format!("test=sh -c \"{script}\"")).unwrap();
        System::peer(&configuration, folder, folder, &mut || {})
    }

    #[test]
    fn peers_print_their_address() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo noise; printf '{\\042engine\\042: \\042test 1\\042, \\042protocol\\042: \\042hive\\042, \\042port\\042: 7}\\n'; \
                      read word; echo $word >$HARRIER_BENCH_FOLDER/said; read rest";
        let mut system = peer(script, folder.path()).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!((system.engine.as_str(), system.target.port), ("test 1", 7));
        assert_eq!(system.target.protocol, Protocol::Hive);
        system.cancel();
        drop(system);
        assert_eq!(std::fs::read_to_string(folder.path().join("test/said")).unwrap(), "cancel\n");
    }

    #[test]
    fn ended_peers_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let failure = peer("exit 3", folder.path()).err().expect("it has ended");
        assert!(failure.error.message.contains("ended before"), "{}", failure.error.message);
    }
}
