//! Driver of a running `harrier sql` that answers one statement at a time, embedded or under a launcher such
//! as `mpirun`.
//!
//! The binary is started with `--format lines`, its protocol for programs: every request is one line on
//! stdin, a JSON string with one SQL statement; every answer is one line on stdout, a JSON object of one of
//! these shapes:
//! ```text
//! {"columns":["a","b"],"types":["Int64","Utf8View"],"rows":[["1",null],["2","x"]]}
//! {"tag":"CREATE TABLE"}
//! {"error":{"sqlstate":"42P01","message":"table \"x\" does not exist"}}
//! ```
//! `types` are Arrow's names, values are the text of `--format csv`, null is null. An error ends the
//! statement and not the process; the end of stdin ends the process.
//!
//! Order of calls: [`Session::start`], any number of [`Session::run`], drop. Errors: a statement's error is a
//! [`Failure`] with its SQLSTATE; a process that ended, sent an invalid answer, or did not answer in time is
//! a [`Failure`] with [`LOST`]. Cancellation: dropping ends the process group, after ten seconds by force.

use std::error::Error;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::Launcher;
use serde_json::Value;

use crate::binary;
use crate::rows::{Cell, Rows};

/// SQLSTATE of a failed process instead of a failed statement: PostgreSQL's connection_failure.
pub const LOST: &str = "08006";

/// Timeout of an answer; no statement of the tests takes this long, even on a shared machine.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(120);

/// Time for a process to end after its stdin was closed.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// A way to run the binary: the same tests run under several of these.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Also the label for `skipif` and `onlyif` in `.slt` files.
    pub name: String,
    /// Command before the binary, such as `mpirun -n 3`; empty for an embedded run.
    pub launcher: Vec<String>,
    /// Arguments of `harrier sql`, such as `--memory 64MiB` or `--set key=value`.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// The working folder; `None` for the test's own.
    pub folder: Option<PathBuf>,
    /// The folder of the warehouse; `None` for tables that end with the session.
    pub warehouse: Option<PathBuf>,
    /// The database of the catalog, instead of the folder: `postgres://…`.
    pub catalog: Option<String>,
}

impl Configuration {
    /// One process without options.
    pub fn embedded() -> Self {
        Self {
            name: "embedded".to_owned(),
            launcher: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            warehouse: None,
            catalog: None,
        }
    }

    /// Runs on the ranks of `launcher`, with every scan distributed over all of them, however small.
    ///
    /// Errors: the launcher is not installed; the message says how to install it, or to run without.
    pub fn on_ranks(name: &str, launcher: &Launcher) -> Result<Self, String> {
        let words =
            launcher.words().map_err(|reason| format!("{name}: {reason}, or set HARRIER_SKIP_MPI=1"))?;
        Ok(Self::embedded()
            .with_name(name)
            .launched_by(words)
            .with_setting("harrier.distribute_bytes_min", "0"))
    }

    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// For example `["mpirun", "-n", "3"]`.
    pub fn launched_by<S: Into<String>>(mut self, launcher: impl IntoIterator<Item = S>) -> Self {
        self.launcher = launcher.into_iter().map(Into::into).collect();
        self
    }

    /// `--set key=value`.
    pub fn with_setting(self, key: &str, value: &str) -> Self {
        self.with_arguments(["--set".to_owned(), format!("{key}={value}")])
    }

    /// `--memory`, for example `64MiB`.
    pub fn with_memory(self, memory: &str) -> Self {
        self.with_arguments(["--memory", memory])
    }

    pub fn with_arguments<S: Into<String>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Uses a persistent warehouse in this folder.
    pub fn with_warehouse(mut self, folder: impl Into<PathBuf>) -> Self {
        self.warehouse = Some(folder.into());
        self
    }

    /// Uses a warehouse whose catalog is in this database, instead of a folder.
    pub fn with_catalog(mut self, url: impl Into<String>) -> Self {
        self.warehouse = None;
        self.catalog = Some(url.into());
        self
    }

    /// The command line before the arguments that choose what is run, for tests that start the binary
    /// themselves.
    ///
    /// Errors: there is no binary.
    pub fn command(&self) -> Result<Command, Failure> {
        let binary = binary::harrier().map_err(Failure::connection_failure)?;
        let mut command = match self.launcher.split_first() {
            None => Command::new(binary),
            Some((launcher, arguments)) => {
                let mut command = Command::new(launcher);
                command.args(arguments).arg(binary);
                command
            }
        };
        command.arg("sql");
        match &self.catalog {
            Some(catalog) => command.args(["--catalog", catalog]),
            None => command.arg("--warehouse").arg(self.warehouse.as_deref().unwrap_or(":memory:".as_ref())),
        };
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        Ok(command)
    }
}

/// Result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Rows {
        columns: Vec<String>,
        /// Arrow's names of the types.
        types: Vec<String>,
        rows: Vec<Vec<Cell>>,
    },
    /// The command tag of a statement without rows.
    Command(String),
}

impl Answer {
    /// The rows to compare; none for a command.
    pub fn into_rows(self) -> Rows {
        match self {
            Self::Command(_) => Rows::default(),
            Self::Rows { columns, rows, .. } => Rows { columns, rows },
        }
    }
}

/// A failed statement or process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub sqlstate: String,
    pub message: String,
}

impl Failure {
    fn connection_failure(message: impl Into<String>) -> Self {
        Self { sqlstate: LOST.to_owned(), message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.sqlstate)
    }
}

impl Error for Failure {}

/// A session with initial statements, restarted after its process was lost.
///
/// Long runs of statements continue with the next one when an answer costs the process.
pub struct RestartingSession {
    configuration: Configuration,
    /// Initial statements, such as those of [`crate::plain::create_tables`].
    initial_statements: Vec<String>,
    session: Option<Session>,
}

impl RestartingSession {
    /// One process, and three ranks unless MPI is skipped, for comparison with an oracle. Each runs the
    /// statements `tables` first.
    ///
    /// Panics: Open MPI is not installed.
    pub fn one_and_three_ranks(tables: &[String]) -> Vec<Self> {
        let mut configurations = vec![Configuration::embedded()];
        match harrier_launch::mpi_skipped() {
            true => eprintln!("skipped: 3-ranks needs MPI, and HARRIER_SKIP_MPI is set"),
            false => configurations.push(
                Configuration::on_ranks("3-ranks", &Launcher::open_mpi(3))
                    .unwrap_or_else(|reason| panic!("{reason}")),
            ),
        }
        configurations.into_iter().map(|way| Self::new(way, tables.to_vec())).collect()
    }

    /// Starts nothing yet.
    pub fn new(configuration: Configuration, initial_statements: Vec<String>) -> Self {
        Self { configuration, initial_statements, session: None }
    }

    /// Name of the configuration.
    pub fn name(&self) -> &str {
        &self.configuration.name
    }

    /// Runs one statement. Errors: as [`Session::run`]; also those of the initial statements.
    pub fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                let mut session = Session::start(&self.configuration)?;
                for statement in &self.initial_statements {
                    session.run(statement)?;
                }
                session
            }
        };
        let answer = session.run(sql);
        let lost = answer.as_ref().is_err_and(|failure| failure.sqlstate == LOST);
        self.session = (!lost).then_some(session);
        answer
    }

    /// Process id; `None` if there is no process now.
    pub fn id(&self) -> Option<u32> {
        self.session.as_ref().map(Session::id)
    }

    /// Everything the current process wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.session.as_ref().map(Session::stderr).unwrap_or_default()
    }

    /// As [`RestartingSession::run`], with rows to compare.
    pub fn rows(&mut self, sql: &str) -> Result<Rows, String> {
        self.run(sql).map(Answer::into_rows).map_err(|failure| failure.to_string())
    }
}

/// A running process.
pub struct Session {
    child: Child,
    /// `None` once the process is being ended.
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Its stderr output.
    errors: Arc<Mutex<String>>,
}

impl Session {
    /// Starts the binary; returns before it is ready.
    ///
    /// Errors: the binary or the launcher cannot be started.
    pub fn start(configuration: &Configuration) -> Result<Self, Failure> {
        let mut command = configuration.command()?;
        let mut child = command
            .args(["--format", "lines"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| Failure::connection_failure(format!("{}: {e}", command.get_program().display())))?;

        let (sender, answers) = channel();
        let stdout = child.stdout.take();
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|s| BufReader::new(s).lines()) {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let (stderr, kept) = (child.stderr.take(), Arc::clone(&errors));
        thread::spawn(move || {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..n]);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Ok(Self { stdin: child.stdin.take(), child, answers, errors })
    }

    /// Runs one statement. Blocks until it is answered, at most two minutes.
    pub fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let request = format!("{}\n", Value::from(sql));
        let sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(request.as_bytes()).and_then(|()| stdin.flush()),
            None => return Err(Failure::connection_failure("the process was ended")),
        };
        if let Err(e) = sent {
            return Err(self.connection_failure(&format!("the statement could not be sent: {e}")));
        }
        match self.answers.recv_timeout(ANSWER_WAIT_MAX) {
            Ok(line) => parse(&line)
                .unwrap_or_else(|| Err(self.connection_failure(&format!("this is no answer: {line}")))),
            Err(RecvTimeoutError::Timeout) => {
                let failure = self.connection_failure("the statement was not answered in time");
                self.end_by_force();
                Err(failure)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map(|status| status.to_string());
                let status = status.unwrap_or_else(|e| e.to_string());
                Err(self.connection_failure(&format!("the process ended with {status}")))
            }
        }
    }

    /// Process id of the binary, or of its launcher.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything the process wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn connection_failure(&self, what: &str) -> Failure {
        match self.stderr().trim() {
            "" => Failure::connection_failure(what),
            stderr => Failure::connection_failure(format!("{what}; its stderr:\n{stderr}")),
        }
    }

    fn end_by_force(&mut self) {
        self.stdin = None;
        // Kills the process group, so that ranks end with their launcher.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stdin = None;
        let start = Instant::now();
        while start.elapsed() < END_WAIT_MAX {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        self.end_by_force();
    }
}

/// `None` for a line that is not an answer.
fn parse(line: &str) -> Option<Result<Answer, Failure>> {
    let answer: Value = serde_json::from_str(line).ok()?;
    if let Some(error) = answer.get("error") {
        return Some(Err(Failure {
            sqlstate: error.get("sqlstate")?.as_str()?.to_owned(),
            message: error.get("message")?.as_str()?.to_owned(),
        }));
    }
    if let Some(tag) = answer.get("tag") {
        return Some(Ok(Answer::Command(tag.as_str()?.to_owned())));
    }
    let texts = |key: &str| -> Option<Vec<String>> {
        let values = answer.get(key)?.as_array()?.iter();
        values.map(|value| value.as_str().map(str::to_owned)).collect()
    };
    let cell = |value: &Value| match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        _ => None,
    };
    let rows = answer.get("rows")?.as_array()?.iter();
    let rows = rows.map(|row| row.as_array()?.iter().map(cell).collect::<Option<Vec<_>>>());
    Some(Ok(Answer::Rows {
        columns: texts("columns")?,
        types: texts("types")?,
        rows: rows.collect::<Option<Vec<_>>>()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed() {
        let line = r#"{"columns":["a","b"],"types":["Int64","Utf8"],"rows":[["1",null],["2","x"]]}"#;
        let answer = parse(line).unwrap().unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            answer,
            Answer::Rows {
                columns: vec!["a".into(), "b".into()],
                types: vec!["Int64".into(), "Utf8".into()],
                rows: vec![vec![text("1"), None], vec![text("2"), text("x")]],
            }
        );
        assert_eq!(parse(r#"{"tag":"SET"}"#).unwrap(), Ok(Answer::Command("SET".into())));
        let failure = parse(r#"{"error":{"sqlstate":"42601","message":"m"}}"#).unwrap().unwrap_err();
        assert_eq!(failure.to_string(), "m (42601)");
        for other in ["", "1", "{}", r#"{"columns":[],"types":[],"rows":[[1]]}"#] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn foreign_output_is_a_failure() {
        let fake = |script: &str| {
            // The launcher gets the binary and its arguments as $0 and following, and ignores them.
            let configuration = Configuration::embedded().launched_by(["sh", "-c", script]);
            let mut session = Session::start(&configuration)?;
            session.run("SELECT 1")
        };
        if binary::harrier().is_err() {
            return;
        }
        let failure = fake("read line; echo hello; cat >/dev/null").unwrap_err();
        assert_eq!(failure.sqlstate, LOST);
        assert!(failure.message.contains("this is no answer: hello"), "{failure}");
        let failure = fake("echo oops >&2; read line; exit 3").unwrap_err();
        assert!(failure.message.contains("exit status: 3"), "{failure}");
        let answer = fake(r#"read line; echo "{\"tag\":\"$(echo $line | cut -c2-9)\"}""#);
        assert_eq!(answer, Ok(Answer::Command("SELECT 1".into())));
    }
}
