//! A script run through psql, and what it printed for each statement.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::script::Part;

/// For a whole file; no statement has more than its `statement_timeout`.
const PATIENCE: Duration = Duration::from_secs(400);

/// Where psql connects to.
pub struct Address {
    pub port: u16,
    pub user: String,
    pub database: String,
    /// What replaces the beginning of the data files' names.
    pub data: String,
    /// For each statement, seconds.
    pub time_limit: u32,
}

/// What a statement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What psql printed: names of columns, rows, the command's tag.
    Done(Vec<Vec<String>>),
    Failed {
        sqlstate: String,
        message: String,
    },
    /// psql has not come to its end: the connection was lost, or the time was up.
    Lost,
}

/// Runs parts of a script one after the other; an outcome for each statement, in their order.
///
/// Panics: psql cannot be run.
pub fn run(address: &Address, parts: &[&Part], folder: &Path) -> Vec<Outcome> {
    let started = Instant::now();
    let mut outcomes = vec![None; parts.len()];
    let mut begin = 0;
    // psql ends with its connection; what comes behind the lost statement then runs in another.
    while begin < parts.len() && started.elapsed() < PATIENCE {
        let printed = run_once(address, &parts[begin..], folder, PATIENCE.saturating_sub(started.elapsed()));
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

fn run_once(address: &Address, parts: &[&Part], folder: &Path, patience: Duration) -> String {
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
        if started.elapsed() > patience {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    String::from_utf8_lossy(&fs::read(&printed).unwrap()).into_owned()
}

/// What stands between the marks, by the number of its part.
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

/// Records of values separated by commas, quoted where they have to be.
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
    fn what_psql_prints_is_read() {
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
