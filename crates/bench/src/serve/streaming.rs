//! Throughput of large results to a client that discards them: over the PostgreSQL protocol, and over Arrow
//! Flight.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::systems::{Protocol, System};
use super::wire::{ClientError, PgClient};
use crate::cell::median;
use crate::configuration::Configuration;

/// The query.
pub const STATEMENT: &str = "SELECT * FROM lineitem";

/// The same for psql.
const COPY: &str = "COPY lineitem TO STDOUT";

/// Timeout of one answer.
const TIMEOUT: Duration = Duration::from_secs(120);

const MB: f64 = 1e6;

/// One client on one server.
#[derive(Debug, Clone)]
pub struct StreamingResult {
    pub system: String,
    pub way: String,
    pub bytes: u64,
    pub rows: u64,
    pub mb_per_s: Vec<f64>,
    pub problem: Option<String>,
}

impl StreamingResult {
    pub fn median_mb_per_s(&self) -> Option<f64> {
        median(self.mb_per_s.clone())
    }

    pub fn json(&self) -> Value {
        json!({
            "system": self.system, "way": self.way, "bytes": self.bytes, "rows": self.rows,
            "mb_per_s": self.mb_per_s, "mb_per_s_median": self.median_mb_per_s(), "problem": self.problem,
        })
    }

    fn add(&mut self, bytes: u64, rows: u64, elapsed: Duration) {
        (self.bytes, self.rows) = (bytes, rows);
        self.mb_per_s.push(bytes as f64 / MB / elapsed.as_secs_f64().max(f64::MIN_POSITIVE));
    }
}

/// Client of the PostgreSQL protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Text,
    Binary,
    Psql,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Text, "PostgreSQL protocol, text"),
    (Way::Binary, "PostgreSQL protocol, binary"),
    (Way::Psql, "psql, COPY TO STDOUT"),
];

/// Reads from all servers with the PostgreSQL protocol, in turn; bytes are those of its messages.
pub async fn over_postgresql(
    systems: &[System],
    rounds: u32,
    progress: &mut dyn FnMut(String),
) -> Vec<StreamingResult> {
    let mut streamed = Vec::new();
    for (way, name) in WAYS {
        // The server in Python supports only text.
        let readers: Vec<&System> = systems
            .iter()
            .filter(|system| system.target.protocol == Protocol::Postgresql)
            .filter(|system| way == Way::Text || !system.engine.contains("Python"))
            .collect();
        let mut lines: Vec<StreamingResult> = readers
            .iter()
            .map(|system| StreamingResult {
                system: system.name.clone(),
                way: name.to_owned(),
                bytes: 0,
                rows: 0,
                mb_per_s: Vec::new(),
                problem: None,
            })
            .collect();
        // Round 0 warms up.
        for round in 0..=rounds {
            for (system, line) in readers.iter().zip(&mut lines) {
                if line.problem.is_some() {
                    continue;
                }
                progress(format!("{name} from {}", system.name));
                let read = match way {
                    Way::Psql => psql(system),
                    _ => match timeout(TIMEOUT, read_once(system, way == Way::Binary)).await {
                        Ok(read) => read.map_err(|client_error| client_error.to_string()),
                        Err(_) => Err(format!("not done in {} s", TIMEOUT.as_secs())),
                    },
                };
                match read {
                    Ok((bytes, rows, elapsed)) if round > 0 => line.add(bytes, rows, elapsed),
                    Ok(_) => {}
                    Err(problem) => line.problem = Some(problem),
                }
            }
        }
        streamed.extend(lines);
    }
    streamed
}

async fn read_once(system: &System, binary: bool) -> Result<(u64, u64, Duration), ClientError> {
    let mut client = PgClient::connect(&system.target).await?;
    if binary {
        client.prepare("all", STATEMENT).await?;
    }
    let start = Instant::now();
    let counted = match binary {
        true => client.execute("all", &[], true, None).await?,
        false => client.query(STATEMENT, None).await?,
    };
    Ok((counted.bytes, counted.rows, start.elapsed()))
}

/// Runs `psql` and discards its output; bytes are those of the lines.
fn psql(system: &System) -> Result<(u64, u64, Duration), String> {
    let target = &system.target;
    let start = Instant::now();
    let mut child = Command::new("psql")
        .args(["-h", "127.0.0.1", "-p", &target.port.to_string(), "-U", &target.user, "-d", &target.database])
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", COPY])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("psql: {error}"))?;
    let mut output = child.stdout.take().ok_or("psql has no output")?;
    let mut piece = vec![0; 256 << 10];
    let (mut bytes, mut rows) = (0, 0);
    loop {
        let length = output.read(&mut piece).map_err(|error| error.to_string())?;
        if length == 0 {
            break;
        }
        bytes += length as u64;
        rows += piece[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    let elapsed = start.elapsed();
    match child.wait() {
        Ok(status) if status.success() => Ok((bytes, rows, elapsed)),
        Ok(status) => Err(format!("psql: {status}")),
        Err(error) => Err(format!("psql: {error}")),
    }
}

/// Runs another program that reads over Arrow Flight SQL; bytes are those of the batches in its memory.
pub fn over_flight(reader: &Configuration, system: &System, rounds: u32) -> Vec<StreamingResult> {
    let line = |way: &str| StreamingResult {
        system: system.name.clone(),
        way: format!("Arrow Flight, {way}"),
        bytes: 0,
        rows: 0,
        mb_per_s: Vec::new(),
        problem: None,
    };
    let failed = |problem: String| vec![StreamingResult { problem: Some(problem), ..line(&reader.name) }];
    let Some(port) = system.flight else {
        return failed("the server does not speak it".to_owned());
    };
    let output = match reader.command() {
        Ok(mut command) => command
            .args([&port.to_string(), &system.target.user, STATEMENT, &rounds.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output(),
        Err(failure) => return failed(failure.error.message),
    };
    let reply = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return failed(error.to_string()),
    };
    let Some(Value::Array(ways)) =
        serde_json::from_str::<Value>(reply.trim()).ok().map(|reply| reply["ways"].clone())
    else {
        return failed("the reader tells nothing".to_owned());
    };
    ways.iter()
        .map(|way| {
            let mut line = line(way["name"].as_str().unwrap_or_default());
            let (bytes, rows) = (way["bytes"].as_u64().unwrap_or(0), way["rows"].as_u64().unwrap_or(0));
            for seconds in way["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64) {
                line.add(bytes, rows, Duration::from_secs_f64(seconds));
            }
            line.problem = way["problem"].as_str().map(str::to_owned);
            line
        })
        .collect()
}
