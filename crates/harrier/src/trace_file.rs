//! Output file of `harrier sql --trace`: every statement's events, appended when the statement ends.
//!
//! The file is valid at any time, so that the trace of an aborted run can be read. Write errors are logged
//! once, and the run continues without a trace.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use harrier_exec::monitor::statement_history::{Listener, PastStatement};
use harrier_exec::transport::clock_offset::now_ns;
use harrier_server::trace::{Trace, Traced};
use parking_lot::Mutex;

const HEAD: &str = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
const TAIL: &str = "\n]}\n";

/// A growing trace.
pub(crate) struct TraceFile {
    file: File,
    trace: Trace,
    is_empty: bool,
}

impl TraceFile {
    /// Creates an empty trace. Errors, as a line for the user: the file cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        let create = || -> io::Result<File> {
            let mut file = File::create(path)?;
            file.write_all(HEAD.as_bytes())?;
            file.write_all(TAIL.as_bytes())?;
            Ok(file)
        };
        let file = create()
            .map_err(|error| format!("58030: could not write file \"{}\": {error}", path.display()))?;
        Ok(Self { file, trace: Trace::new(now_ns()), is_empty: true })
    }

    /// A listener that appends finished statements.
    pub(crate) fn listener(self) -> Listener {
        let file = Mutex::new(Some(self));
        Arc::new(move |past| {
            let mut file = file.lock();
            if let Some(Err(error)) = file.as_mut().map(|file| file.add(past)) {
                tracing::warn!(%error, "the trace is not written any further");
                *file = None;
            }
        })
    }

    fn add(&mut self, past: &PastStatement) -> io::Result<()> {
        let events = self.trace.events(Traced {
            number: past.number,
            text: &past.text,
            began_ns: past.began_ns,
            ended_ns: past.ended_ns,
            work: &past.snapshot,
        });
        let mut text = String::new();
        for event in events {
            text.push_str(if std::mem::take(&mut self.is_empty) { "\n" } else { ",\n" });
            text.push_str(&event.to_string());
        }
        text.push_str(TAIL);
        self.file.seek(SeekFrom::End(-(TAIL.len() as i64)))?;
        self.file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harrier_session_api::query_profile::QueryProfile;

    #[test]
    fn trace_file_is_valid_at_any_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let events = || {
            let text = std::fs::read_to_string(&path).unwrap();
            let trace: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            trace["traceEvents"].as_array().unwrap().len()
        };
        let listener = TraceFile::create(&path).unwrap().listener();
        assert_eq!(events(), 0);
        let past = |number| PastStatement {
            number,
            text: "SELECT '\"'".to_string(),
            failed: false,
            began_ns: now_ns(),
            ended_ns: now_ns(),
            snapshot: QueryProfile::default(),
        };
        listener(&past(1));
        let first = events();
        assert!(first > 1);
        listener(&past(2));
        assert_eq!(events(), first + 1);
        assert!(TraceFile::create(&folder.path().join("no/such/folder.json")).is_err());
    }
}
