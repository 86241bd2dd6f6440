//! Temporary folder and session with a new warehouse, for examples that are run.

use std::path::PathBuf;

use futures::TryStreamExt;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, WarehouseOptions};
use harrier_session_api::session::SessionIdentity;

use crate::output::{Format, row_writer};
use crate::serve::Additions;
use crate::serve::authentication::password_verifier;
use crate::sql::{SHUTDOWN, runtime};

/// Temporary folder, the current directory of the process until dropped; removed on drop.
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    pub(super) fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("harrier-reference-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        std::env::set_current_dir(&folder).map_err(|error| error.to_string())?;
        Ok(Self { folder })
    }

    /// Runs `work` in a session of an engine with everything that a server has.
    pub(super) fn run<T>(&self, work: impl AsyncFnOnce(&Session) -> Result<T, String>) -> Result<T, String> {
        let mut options = EngineOptions::default();
        options.password_verifier = Some(password_verifier);
        // Plans are then the same on every machine.
        options.threads = 1;
        options.warehouse = Some(WarehouseOptions::folder(&self.folder.join("warehouse")));
        std::fs::create_dir_all(self.folder.join("warehouse")).map_err(|error| error.to_string())?;
        let additions = Additions::without_clients();
        options.server_tables = additions.tables;
        options.server_functions = additions.functions;
        options.waiting_functions = additions.waiting_functions;
        let engine = Engine::try_new(options).map_err(|error| error.report(None))?;
        let runtime = runtime(1, "harrier-reference")?;
        let done = runtime.block_on(async {
            let session = engine.session();
            let identity = SessionIdentity {
                role: "maria".to_string(),
                database: "warehouse".to_string(),
                process: 1,
                client: None,
                server: None,
            };
            let done = match session.begin(identity, additions.surroundings, &[]) {
                Ok(()) => work(&session).await,
                Err(error) => Err(error.report(None)),
            };
            engine.close().await;
            done
        });
        runtime.shutdown_timeout(SHUTDOWN);
        engine.remove_temporary_files();
        done
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir("/");
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Result of a statement.
pub(super) struct Answer {
    /// PostgreSQL's command tag, with its numbers.
    pub(super) tag: String,
    /// The rows as `harrier sql` prints them, in CSV without the header.
    pub(super) rows: Vec<String>,
}

/// Runs one statement to completion.
pub(super) async fn run(session: &Session, sql: &str) -> Result<Answer, String> {
    let in_statement = |error: SqlError| format!("{sql}: {}", error.report(None));
    let statements = session.statements(sql).map_err(in_statement)?;
    let [statement] = statements.as_slice() else {
        return Err(format!("{sql}: it is {} statements", statements.len()));
    };
    let mut answer = Answer { tag: statement.tag().to_string(), rows: Vec::new() };
    match session.execute(statement).await.map_err(in_statement)? {
        Outcome::Rows { schema, stream, .. } => {
            let schema = statement.rename_columns(&schema);
            let batches: Vec<_> =
                stream.try_collect().await.map_err(|error| in_statement(harrier_engine::sql_error(error)))?;
            let mut text = Vec::new();
            let mut writer = row_writer(Format::Csv, &schema, "NULL");
            for batch in &batches {
                writer.batch(&mut text, batch).map_err(|_| format!("{sql}: a value has no text"))?;
            }
            writer.end(&mut text).map_err(|_| format!("{sql}: the rows have no end"))?;
            let text = String::from_utf8(text).map_err(|error| error.to_string())?;
            answer.rows = text.lines().skip(1).map(str::to_string).collect();
            if let Some(tag) = statement.returning_tag(answer.rows.len()) {
                answer.tag = tag;
            }
        }
        Outcome::Write(write) => answer.tag = write.finish().await.map_err(in_statement)?.tag,
        Outcome::Command(completion) => answer.tag = completion.tag,
        _ => return Err(format!("{sql}: it wants a client")),
    }
    Ok(answer)
}
