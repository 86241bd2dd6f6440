//! Runs a script through psql and splits its output by statement.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::script::Part;

/// Timeout for a whole file; each statement has its `statement_timeout`.
const TIMEOUT: Duration = Duration::from_secs(400);

/// Connection parameters of psql.
pub struct Address {
    pub port: u16,
    pub user: String,
    pub database: String,
    /// Replaces the prefix of data file paths.
    pub data: String,
    /// `statement_timeout` in seconds.
    pub time_limit: u32,
}

/// Outcome of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Output of psql: column names, rows, command tag.
    Done(Vec<Vec<String>>),
    Failed {
        sqlstate: String,
        message: String,
    },
    /// psql did not finish: the connection was lost, or the timeout passed.
    Lost,
}

/// Runs parts of a script in order; returns an outcome for each statement.
///
/// Panics: psql cannot be started.
pub fn run(address: &Address, parts: &[&Part], folder: &Path) -> Vec<Outcome> {
    let started = Instant::now();
    let mut outcomes = vec![None; parts.len()];
    let mut begin = 0;
    // psql ends with its connection; the rest of the script runs in a new one.
    while begin < parts.len() && started.elapsed() < TIMEOUT {
        let printed = run_once(address, &parts[begin..], folder, TIMEOUT.saturating_sub(started.elapsed()));
        let mut reached = begin;
        for (at, outcome) in outcomes_of(&printed) {
            outcomes[begin + at] = Some(outcome);
            reached = begin + at + 1;
        }
        let is_lost = |at: &usize| matches!(parts[*at], Part::Statement(_));
        match (reached..parts.len()).find(is_lost) {
            Some(lost) => begin = lost + 1,
            None => break,
        }
    }
    let statements = parts.iter().zip(outcomes).filter(|(part, _)| matches!(part, Part::Statement(_)));
    statements.map(|(_, outcome)| outcome.unwrap_or(Outcome::Lost)).collect()
}

fn run_once(address: &Address, parts: &[&Part], folder: &Path, timeout: Duration) -> String {
    let mut script = String::new();
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Command(command) => script.push_str(&format!("{command}\n")),
            Part::Statement(statement) => script.push_str(&format!(
                "\\echo '@@@ {at} begin'\n{}\n{}\\echo\n\\echo '@@@ {at} end' :SQLSTATE :LAST_ERROR_MESSAGE\n\\echo '@@@'\n",
                statement.text, statement.data
            )),
        }
    }
    let [script_file, printed, said] = ["script.sql", "printed", "said"].map(|name| folder.join(name));
    fs::write(&script_file, script).unwrap();
    let mut child = Command::new("psql")
        .args(["-X", "--csv", "-P", "null=(null)", "-h", "127.0.0.1", "-p", &address.port.to_string()])
        .args(["-U", &address.user, "-d", &address.database, "-f"])
        .arg(&script_file)
        .env("PG_ABS_SRCDIR", &address.data)
        .env("PGTZ", "PST8PDT")
        .env("PGOPTIONS", format!("-c statement_timeout={}s", address.time_limit))
        .env("PGCLIENTENCODING", "UTF8")
        .stdin(Stdio::null())
        .stdout(fs::File::create(&printed).unwrap())
        .stderr(fs::File::create(said).unwrap())
        .spawn()
        .expect("psql runs");
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > timeout {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    String::from_utf8_lossy(&fs::read(&printed).unwrap()).into_owned()
}

/// Output between the marks, by number of the part.
fn outcomes_of(printed: &str) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::new();
    let mut rest = printed;
    while let Some((_, after)) = rest.split_once("@@@ ") {
        let Some((number, after)) = after.split_once(" begin\n") else { break };
        let end = format!("\n@@@ {number} end ");
        let Some((body, after)) = after.split_once(&end) else { break };
        let Some((said, after)) = after.split_once("\n@@@\n") else { break };
        let (sqlstate, message) = said.split_once(' ').unwrap_or((said, ""));
        let outcome = match sqlstate {
            "00000" => Outcome::Done(records(body)),
            _ => Outcome::Failed { sqlstate: sqlstate.to_string(), message: message.to_string() },
        };
        if let Ok(number) = number.parse() {
            outcomes.push((number, outcome));
        }
        rest = after;
    }
    outcomes
}

/// Parses CSV records.
fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut value = String::new();
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                value.push('"');
                chars.next();
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut value)),
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut value));
                records.push(std::mem::take(&mut record));
            }
            _ => value.push(c),
        }
    }
    if !value.is_empty() || !record.is_empty() {
        record.push(value);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psql_output_is_parsed() {
        let printed = "@@@ 0 begin\na,b\n1,\"x,\"\"y\n\"\n\n@@@ 0 end 00000 \n@@@\n@@@ 2 begin\n\n@@@ 2 end 22012 division by zero\n@@@\n@@@ 3 begin\nha";
        let row = |values: &[&str]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>();
        assert_eq!(
            outcomes_of(printed),
            [
                (0, Outcome::Done(vec![row(&["a", "b"]), row(&["1", "x,\"y\n"])])),
                (2, Outcome::Failed { sqlstate: "22012".into(), message: "division by zero".into() }),
            ]
        );
    }
}
