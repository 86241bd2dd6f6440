//! The audit log: logins, failed authentication, statements and their outcomes, as JSON lines.
//!
//! ```text
//!   connect ─► statement, statement, … ─► disconnect          authentication failed
//! ```
//!
//! # Invariants
//! Complete lines are appended by one writer at a time, ordered by the end of events. Passwords and keys in
//! statements are masked ([`mask`]). Statements that fail to parse or plan are logged, too: whoever probes a
//! server leaves a trace.
//!
//! # Errors
//! The server does not start if the log cannot be opened. A line that cannot be written is buffered, and no
//! client or statement is admitted until the whole buffer is in the log ([`Audit::check`]): unaudited events
//! do not happen.
//!
//! # Crash
//! Lines are written without fsync: they survive a crash of the server, not of the machine.

mod mask;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use harrier_error::{SqlError, SqlState};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::config::values::AuditStatements;
pub use mask::{mask, mask_message};

/// Maximum lines buffered while the log cannot be written. Only running statements may end meanwhile; nothing
/// else happens.
const BACKLOG_MAX: usize = 100_000;

/// An event, as named in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Connect,
    Disconnect,
    AuthenticationFailed,
    Statement,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::AuthenticationFailed => "authentication failed",
            Self::Statement => "statement",
        }
    }
}

/// The session and client of an event.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// `None`: before there is a session.
    pub session: Option<i32>,
    pub role: &'a str,
    pub database: &'a str,
    /// `None`: over a local socket.
    pub client: Option<SocketAddr>,
    pub application: &'a str,
}

/// A statement and its outcome.
#[derive(Debug, Clone, Copy)]
pub struct StatementOutcome<'a> {
    pub id: u64,
    /// Masked, see [`mask`].
    pub text: &'a str,
    /// SQLSTATE, if it failed.
    pub failure: Option<SqlState>,
    pub rows: u64,
    pub duration: Duration,
}

/// An open audit log.
#[derive(Debug)]
pub struct Audit {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    statements: AuditStatements,
    file: File,
    /// Unwritten lines, the oldest first.
    backlog: VecDeque<Vec<u8>>,
    /// Bytes of the oldest already written.
    written_bytes: usize,
    lost: u64,
}

impl Audit {
    /// Opens the log at `path`; creates it readable only by its owner.
    pub fn open(path: &Path, statements: AuditStatements) -> io::Result<Self> {
        let inner = Inner {
            path: path.to_path_buf(),
            statements,
            file: open(path)?,
            backlog: VecDeque::new(),
            written_bytes: 0,
            lost: 0,
        };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Continues in the file now at `path`, after log rotation.
    ///
    /// Errors: it cannot be opened; the current file stays in use.
    pub fn reopen(&self, path: &Path, statements: AuditStatements) -> io::Result<()> {
        let file = open(path)?;
        let mut inner = self.inner.lock();
        inner.file = file;
        inner.path = path.to_path_buf();
        inner.statements = statements;
        Ok(())
    }

    /// Checks that new events can be logged.
    ///
    /// Errors: they cannot (58030), and must not happen.
    pub fn check(&self) -> Result<(), SqlError> {
        let mut inner = self.inner.lock();
        if inner.backlog.is_empty() {
            return Ok(());
        }
        inner.write_backlog().map_err(|error| {
            SqlError::new(
                SqlState::IO_ERROR,
                "the audit log cannot be written, and nothing is done without it",
            )
            .with_detail(format!("{}: {error}", inner.path.display()))
        })
    }

    /// Logs a login, a disconnect, or a rejection with its `reason`.
    pub fn session(&self, event: Event, subject: Subject<'_>, reason: Option<&SqlError>) {
        let mut line = line(event, subject);
        if let Some(failure) = reason {
            line.insert("sqlstate".to_string(), json!(failure.sqlstate.as_str()));
            line.insert("reason".to_string(), json!(failure.message));
        }
        self.inner.lock().add(line);
    }

    /// Logs the end of a statement, if its kind is audited.
    pub fn statement(&self, subject: Subject<'_>, outcome: StatementOutcome<'_>) {
        let mut inner = self.inner.lock();
        let is_written = match inner.statements {
            AuditStatements::None => false,
            AuditStatements::Ddl => changes_definitions(outcome.text),
            AuditStatements::All => true,
        };
        if !is_written {
            return;
        }
        let mut line = line(Event::Statement, subject);
        line.insert("statement_id".to_string(), json!(outcome.id));
        line.insert("statement".to_string(), json!(outcome.text));
        line.insert(
            "sqlstate".to_string(),
            json!(outcome.failure.unwrap_or(SqlState::SUCCESSFUL_COMPLETION).as_str()),
        );
        line.insert("rows".to_string(), json!(outcome.rows));
        line.insert("duration_ms".to_string(), json!(outcome.duration.as_secs_f64() * 1000.0));
        inner.add(line);
    }
}

impl Inner {
    fn add(&mut self, line: Map<String, Value>) {
        let mut bytes = Value::Object(line).to_string().into_bytes();
        bytes.push(b'\n');
        if self.backlog.len() >= BACKLOG_MAX {
            self.lost += 1;
            tracing::error!(
                lost = self.lost,
                "a line of the audit log is lost: {}",
                String::from_utf8_lossy(&bytes)
            );
            return;
        }
        let is_first = self.backlog.is_empty();
        self.backlog.push_back(bytes);
        if let Err(error) = self.write_backlog()
            && is_first
        {
            let path = self.path.display();
            tracing::error!(%path, %error, "the audit log cannot be written; nothing is done until it can");
        }
    }

    fn write_backlog(&mut self) -> io::Result<()> {
        while let Some(line) = self.backlog.front() {
            match self.file.write(&line[self.written_bytes..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.written_bytes == line.len() {
                self.written_bytes = 0;
                self.backlog.pop_front();
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn line(event: Event, subject: Subject<'_>) -> Map<String, Value> {
    let now = chrono::DateTime::<chrono::Utc>::from(SystemTime::now());
    let fields = [
        ("time", json!(now.to_rfc3339_opts(chrono::SecondsFormat::Micros, true))),
        ("event", json!(event.name())),
        ("session", json!(subject.session)),
        ("role", json!(subject.role)),
        ("database", json!(subject.database)),
        ("client", json!(subject.client.map(|client| client.to_string()))),
        ("application", json!(subject.application)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// Whether a statement changes definitions or privileges, judged by its first word.
fn changes_definitions(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "alter", "call", "comment", "create", "drop", "grant", "optimize", "reassign", "revoke", "truncate",
        "vacuum",
    ];
    let word = mask::words(text).next().unwrap_or_default();
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject<'static> {
        Subject { session: Some(7), role: "ann", database: "warehouse", client: None, application: "psql" }
    }

    fn outcome(text: &str) -> StatementOutcome<'_> {
        StatementOutcome { id: 1, text, failure: None, rows: 3, duration: Duration::from_millis(5) }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn audit_events_are_one_line_each() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::open(&path, AuditStatements::Ddl).unwrap();
        audit.session(Event::Connect, subject(), None);
        audit.statement(subject(), outcome("SELECT 1"));
        audit.statement(subject(), outcome(&mask("/* new */ create role ben password 'hunter2'")));
        let refused = SqlError::fatal(SqlState::INVALID_PASSWORD, "no");
        audit.session(Event::AuthenticationFailed, Subject { session: None, ..subject() }, Some(&refused));
        let found = lines(&path);
        let events: Vec<_> = found.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["connect", "statement", "authentication failed"]);
        assert_eq!(found[0]["role"], "ann");
        assert_eq!(found[1]["statement"], "/* new */ create role ben password '***'");
        assert_eq!((&found[1]["sqlstate"], &found[1]["rows"]), (&json!("00000"), &json!(3)));
        assert_eq!((&found[2]["sqlstate"], &found[2]["session"]), (&json!("28P01"), &Value::Null));
        // As logrotate does.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        audit.session(Event::Disconnect, subject(), None);
        audit.reopen(&path, AuditStatements::All).unwrap();
        audit.statement(subject(), outcome("SELECT 1"));
        assert_eq!(lines(&folder.path().join("old")).len(), 4);
        assert_eq!(lines(&path).len(), 1);
        assert!(audit.reopen(&folder.path().join("no/where"), AuditStatements::All).is_err());
        audit.statement(subject(), outcome("SELECT 2"));
        assert_eq!(lines(&path).len(), 2);
    }

    #[test]
    fn statements_fail_when_the_audit_log_fails() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return eprintln!("skipped: there is no /dev/full");
        }
        let audit = Audit::open(full, AuditStatements::All).unwrap();
        audit.check().unwrap();
        audit.session(Event::Connect, subject(), None);
        audit.statement(subject(), outcome("SELECT 1"));
        assert_eq!(audit.check().unwrap_err().sqlstate, "58030");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        audit.reopen(&path, AuditStatements::All).unwrap();
        audit.check().unwrap();
        assert_eq!(lines(&path).len(), 2, "nothing was lost");
    }
}
