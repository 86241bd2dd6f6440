//! `harrier sql --format lines`: one statement in, one answer out, for programs that drive a whole session.
//!
//! Every line of standard input is a JSON string with one statement, or an array of a statement and the rows
//! of its COPY; every line of standard output is the answer:
//! ```text
//! {"columns":["a","b"],"types":["Int64","Utf8View"],"rows":[["1",null],["2","x"]]}
//! {"tag":"CREATE TABLE"}
//! {"error":{"sqlstate":SqlState::UNDEFINED_TABLE,"message":"table \"x\" does not exist"}}
//! ```
//! Values are in the text form of `--format csv`. An error ends its statement only; the end of the input ends
//! the process. SIGINT cancels the running statement (57014), and is ignored between statements.

use std::io::{self, BufRead, Write};

use arrow::array::{Array, AsArray};
use futures::StreamExt;
use harrier_engine::{CopyIn, Outcome, Session, SqlError, SqlState};
use harrier_session_api::statement::Completion;
use serde_json::{Value, json};

use crate::interrupt::Interrupts;
use crate::output::{OutputError, texts};

/// Answers until the input ends. Errors: only I/O errors of standard input and output.
pub(crate) async fn run(session: &Session, mut interrupts: Interrupts) -> io::Result<()> {
    // Standard input may block for long: reads run outside of the threads that run statements.
    while let Some(line) = tokio::task::spawn_blocking(next_line).await.map_err(io::Error::other)?? {
        let request = match serde_json::from_str(&line) {
            Ok(Value::String(sql)) => Some((sql, String::new())),
            Ok(other) => serde_json::from_value::<(String, String)>(other).ok(),
            Err(_) => None,
        };
        interrupts.discard();
        let answer = match request {
            Some((sql, input)) => {
                let answer = tokio::select! {
                    biased;
                    () = interrupts.wait() => Err(SqlError::canceled_by_user()),
                    done = answer(session, &sql, input) => done,
                };
                session.settle().await.and(answer).unwrap_or_else(|error| failure(&error))
            }
            None => failure(&SqlError::new(SqlState::SYNTAX_ERROR, "a JSON string was expected")),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn next_line() -> io::Result<Option<String>> {
    let mut line = String::new();
    Ok((io::stdin().lock().read_line(&mut line)? > 0).then_some(line))
}

fn failure(error: &SqlError) -> Value {
    json!({"error": {"sqlstate": error.sqlstate.to_string(), "message": error.message}})
}

async fn answer(session: &Session, sql: &str, input: String) -> Result<Value, SqlError> {
    let mut answer = json!({"tag": ""});
    for statement in session.statements(sql)? {
        answer = match session.execute(&statement).await? {
            Outcome::Rows { schema, mut stream, .. } => {
                let mut rows = Vec::new();
                while let Some(batch) = stream.next().await {
                    let batch =
                        batch.map_err(|error| harrier_engine::in_statement(&error, &statement.text))?;
                    let columns = batch.columns().iter().map(texts).collect::<Result<Vec<_>, _>>();
                    let columns = columns.map_err(|error| match OutputError::from(error) {
                        OutputError::Io(error) => {
                            harrier_engine::sql_error(datafusion::error::DataFusionError::IoError(error))
                        }
                        OutputError::Value(error) => {
                            harrier_engine::sql_error(datafusion::error::DataFusionError::from(error))
                        }
                    })?;
                    rows.extend((0..batch.num_rows()).map(|row| {
                        let cell = |column: &arrow::array::ArrayRef| {
                            let texts = column.as_string::<i32>();
                            if texts.is_null(row) { Value::Null } else { Value::from(texts.value(row)) }
                        };
                        columns.iter().map(cell).collect::<Value>()
                    }));
                }
                let schema = statement.rename_columns(&schema);
                let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                let types: Vec<String> =
                    schema.fields().iter().map(|field| field.data_type().to_string()).collect();
                json!({"columns": columns, "types": types, "rows": rows})
            }
            Outcome::Write(write) => tag(&write.finish().await?),
            Outcome::CopyIn(copy) => {
                let CopyIn { input: rows, write, .. } = copy;
                let text = input.clone().into_bytes().into();
                // Dropping the sender ends the rows.
                let feed = async move { drop(rows.send(text).await) };
                let (written, ()) = tokio::join!(write.finish(), feed);
                tag(&written?)
            }
            Outcome::CopyOut(mut copy) => {
                let mut text = Vec::new();
                while let Some(piece) = copy.next().await? {
                    text.extend_from_slice(&piece);
                }
                json!({"tag": copy.tag(), "text": String::from_utf8_lossy(&text)})
            }
            Outcome::Command(completion) => json!({"tag": completion.tag}),
            _ => answer,
        };
    }
    Ok(answer)
}

fn tag(written: &Completion) -> Value {
    match written.notices.first() {
        Some(notice) => json!({"tag": written.tag, "notice": notice}),
        None => json!({"tag": written.tag}),
    }
}
