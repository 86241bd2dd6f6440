//! Protocol between the driver of a benchmark and its workers: one JSON object a line.
//!
//! ```text
//! driver ─► worker                              worker ─► driver
//!                                               {"engine": "duckdb 1.4.0"}                 once, when it can take requests
//! {"tables": {"lineitem": "/data/lineitem"}}    {"ok": true}                               a Parquet file or a folder of them
//! {"run": "select …"}                           {"wall_s": 0.31, "rows": 4}                one statement, its rows kept; ranks
//!                                                                                          may add "transport_share": 0.05
//! {"answer": true}                              {"answer": [["A", "F", "377.00", null]]}   the rows of the last run, as text
//! {"transfer": {"pattern": "one-to-one", …}}     {"moved_bytes": 1048576, "wall_s": 0.1, "cpu_s": 0.1}   batches between ranks
//! {"round_trips": 1000}                         {"p50_ns": 1000, "p99_ns": 2000}           half of each, between ranks 0 and 1
//! {"ping_pong": {"bytes": 4, "seconds": 0.3}}   {"p50_ns": 1000, "p99_ns": 2000}           half a round trip of so many bytes
//! {"packets": {"bytes": 4, "total_bytes": 1024, "seconds": 0.3}}
//!                                               {"moved_bytes": 1024, "wall_s": 0.1, "cpu_s": 0}
//!                                               {"error": "42P01: table \"x\" …"}          instead of any of these
//! end of input                                  exits with status 0
//! ```
//!
//! The wall time is from the statement's text to its last row; converting the rows to text is excluded, since
//! that is a separate request. A worker either runs statements or moves batches.

use std::time::Duration;

use serde_json::{Value, json};

use super::interconnect::transfer::Transfer;

/// A request of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Registers tables: names, and absolute paths of Parquet files or folders of them.
    Tables(Vec<(String, String)>),
    /// Runs a statement and keeps its rows.
    Run(String),
    /// Returns the rows of the last run.
    Answer,
    /// Moves batches between the ranks.
    Transfer(Transfer),
    /// Measures this many round trips of small messages between ranks 0 and 1, after some to warm up.
    RoundTrips(u64),
    /// Measures round trips of a message for this long.
    PingPong { bytes: usize, time: Duration },
    /// Moves bytes one way in packets, until all have arrived or the time is up.
    Packets { bytes: usize, total_bytes: u64, time: Duration },
}

/// A reply of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Engine(String),
    Ok,
    /// `transport_share`: share of moving rows in the CPU time of all ranks, if the worker measures it.
    Ran {
        wall: Duration,
        rows: u64,
        transport_share: Option<f64>,
    },
    Answer(Vec<Vec<Option<String>>>),
    Moved(Moved),
    Latency(Latency),
    Error(String),
}

/// Result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// Bytes of the values in the batches, without frames, footers and headers.
    pub bytes: u64,
    pub wall: Duration,
    /// CPU time of all ranks' processes, user and system.
    pub cpu: Duration,
}

/// Half round trip times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    pub p50_ns: f64,
    pub p99_ns: f64,
}

impl Request {
    pub fn to_line(&self) -> String {
        match self {
            Self::Tables(tables) => {
                let tables = tables.iter().map(|(name, path)| (name.clone(), json!(path))).collect();
                json!({ "tables": Value::Object(tables) })
            }
            Self::Run(sql) => json!({ "run": sql }),
            Self::Answer => json!({ "answer": true }),
            Self::Transfer(transfer) => json!({ "transfer": transfer.to_json() }),
            Self::RoundTrips(count) => json!({ "round_trips": count }),
            Self::PingPong { bytes, time } => {
                json!({ "ping_pong": { "bytes": bytes, "seconds": time.as_secs_f64() } })
            }
            Self::Packets { bytes, total_bytes, time } => {
                let seconds = time.as_secs_f64();
                json!({ "packets": { "bytes": bytes, "total_bytes": total_bytes, "seconds": seconds } })
            }
        }
        .to_string()
    }

    /// Errors: a message about the line.
    pub fn parse(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|e| format!("not a request: {e}"))?;
        if let Some(sql) = value["run"].as_str() {
            Ok(Self::Run(sql.to_owned()))
        } else if let Some(tables) = value["tables"].as_object() {
            let path = |path: &Value| path.as_str().unwrap_or_default().to_owned();
            Ok(Self::Tables(tables.iter().map(|(name, value)| (name.clone(), path(value))).collect()))
        } else if value["answer"] == true {
            Ok(Self::Answer)
        } else if value["transfer"].is_object() {
            Transfer::from_json(&value["transfer"]).map(Self::Transfer)
        } else if let Some(count) = value["round_trips"].as_u64() {
            Ok(Self::RoundTrips(count))
        } else if let Some((bytes, time)) = sizes(&value["ping_pong"]) {
            Ok(Self::PingPong { bytes, time })
        } else if let Some((bytes, time)) = sizes(&value["packets"]) {
            let total_bytes = value["packets"]["total_bytes"].as_u64().unwrap_or_default();
            Ok(Self::Packets { bytes, total_bytes, time })
        } else {
            Err(format!("not a request: {line}"))
        }
    }
}

/// Parses the size of a message, and the time to send it for.
fn sizes(value: &Value) -> Option<(usize, Duration)> {
    let time = Duration::try_from_secs_f64(value["seconds"].as_f64()?).ok()?;
    Some((value["bytes"].as_u64()? as usize, time))
}

impl Reply {
    pub fn to_line(&self) -> String {
        match self {
            Self::Engine(engine) => json!({ "engine": engine }),
            Self::Ok => json!({ "ok": true }),
            Self::Ran { wall, rows, transport_share: None } => {
                json!({ "wall_s": wall.as_secs_f64(), "rows": rows })
            }
            Self::Ran { wall, rows, transport_share } => {
                json!({ "wall_s": wall.as_secs_f64(), "rows": rows, "transport_share": transport_share })
            }
            Self::Answer(rows) => json!({ "answer": rows }),
            Self::Moved(Moved { bytes, wall, cpu }) => {
                json!({ "moved_bytes": bytes, "wall_s": wall.as_secs_f64(), "cpu_s": cpu.as_secs_f64() })
            }
            Self::Latency(Latency { p50_ns, p99_ns }) => json!({ "p50_ns": p50_ns, "p99_ns": p99_ns }),
            Self::Error(error) => json!({ "error": error }),
        }
        .to_string()
    }

    /// `None` for a line that is not a reply: launchers print warnings of their own.
    pub fn parse(line: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(line).ok()?;
        if let Some(error) = value["error"].as_str() {
            Some(Self::Error(error.to_owned()))
        } else if let Some(bytes) = value["moved_bytes"].as_u64() {
            let time = |key: &str| Duration::try_from_secs_f64(value[key].as_f64()?).ok();
            Some(Self::Moved(Moved { bytes, wall: time("wall_s")?, cpu: time("cpu_s")? }))
        } else if let (Some(p50_ns), Some(p99_ns)) = (value["p50_ns"].as_f64(), value["p99_ns"].as_f64()) {
            Some(Self::Latency(Latency { p50_ns, p99_ns }))
        } else if let (Some(wall_s), Some(rows)) = (value["wall_s"].as_f64(), value["rows"].as_u64()) {
            let transport_share = value["transport_share"].as_f64();
            Some(Self::Ran { wall: Duration::try_from_secs_f64(wall_s).ok()?, rows, transport_share })
        } else if let Some(Value::Array(rows)) = value.get_mut("answer").map(Value::take) {
            let cell = |cell: Value| match cell {
                Value::Null => None,
                Value::String(text) => Some(text),
                other => Some(other.to_string()),
            };
            rows.into_iter()
                .map(|row| match row {
                    Value::Array(cells) => Some(cells.into_iter().map(cell).collect()),
                    _ => None,
                })
                .collect::<Option<_>>()
                .map(Self::Answer)
        } else if let Some(engine) = value["engine"].as_str() {
            Some(Self::Engine(engine.to_owned()))
        } else {
            (value["ok"] == true).then_some(Self::Ok)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interconnect::transfer::Pattern;

    #[test]
    fn requests_and_replies_round_trip() {
        let tables = vec![("lineitem".to_owned(), "/data/line item".to_owned())];
        let transfer = Transfer {
            pattern: Pattern::ManyToOne,
            streams: 2,
            payload_bytes: 1024,
            batches: 7,
            compare: true,
        };
        for request in [
            Request::Tables(tables),
            Request::Run("select \"a\"\n".to_owned()),
            Request::Answer,
            Request::Transfer(transfer),
            Request::RoundTrips(10),
            Request::PingPong { bytes: 7, time: Duration::from_millis(300) },
            Request::Packets { bytes: 7, total_bytes: 1 << 40, time: Duration::from_millis(300) },
        ] {
            assert_eq!(Request::parse(&request.to_line()), Ok(request));
        }
        let wall = Duration::from_millis(1500);
        let rows = vec![vec![Some("a".to_owned()), None], vec![]];
        for reply in [
            Reply::Engine("x 1".to_owned()),
            Reply::Ok,
            Reply::Ran { wall, rows: 3, transport_share: None },
            Reply::Ran { wall, rows: 3, transport_share: Some(0.25) },
            Reply::Answer(rows),
            Reply::Moved(Moved { bytes: 1 << 40, wall, cpu: wall }),
            Reply::Latency(Latency { p50_ns: 1.5, p99_ns: 2000.0 }),
            Reply::Error("no".to_owned()),
        ] {
            assert_eq!(Reply::parse(&reply.to_line()), Some(reply));
        }
    }

    #[test]
    fn other_lines_are_neither() {
        assert!(Request::parse("{}").is_err());
        assert!(Request::parse("select 1").is_err());
        for line in ["", "WARNING: no fabric", "{}", "[1]", "{\"wall_s\": -1, \"rows\": 1}"] {
            assert_eq!(Reply::parse(line), None, "{line}");
        }
    }
}
