//! A window of load: a number of clients, each with a connection and sequential statements, for a fixed time.
//!
//! ```text
//!        connect          not counted                  counted                     cancel what runs
//! ──────────────────┼───────────────────┼─────────────────────────────────┼────────────────────────►
//!                 start               + warm                           + timed
//! ```
//!
//! All clients share one thread of this process, to leave the machine to the servers. Statements that end
//! within the counted time are counted, with their whole duration; one still running at its end is canceled
//! and counted with its duration until then, which underestimates it: quantiles of long statements are too
//! low if many are unfinished.
//!
//! Inserted rows go into a table that is created before the window and dropped after it. At the end it must
//! have as many rows as inserts were acknowledged, at any time; rows of unknown outcome may be there or not,
//! rows of refused inserts must not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use harrier_error::SqlState;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::hive::HiveClient;
use super::statements::{Load, PREPARED, Script, Source, Statement, insert_table, prepared_text};
use super::systems::{Protocol, System, Target};
use super::wire::{AnswerSize, Canceler, ClientError, PgClient};
use crate::answers::Rows;
use crate::measure::quantile;

/// Time for canceled statements to end, before their connections are closed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between cancel requests in that time.
const CANCEL_PAUSE: Duration = Duration::from_millis(300);
/// SQLSTATE of a commit of unknown outcome.
const COMPLETION_UNKNOWN: SqlState = SqlState::COMPLETION_UNKNOWN;
/// Consecutive failures after which a client gives up.
const FAILURES_MAX: u32 = 5;

/// A connection of either protocol.
pub enum Client {
    Pg(Box<PgClient>),
    Hive(Box<HiveClient>),
}

impl Client {
    pub async fn connect(target: &Target) -> Result<Self, ClientError> {
        Ok(match target.protocol {
            Protocol::Postgresql => Self::Pg(Box::new(PgClient::connect(target).await?)),
            Protocol::Hive => Self::Hive(Box::new(HiveClient::connect(target).await?)),
        })
    }

    /// Runs a statement.
    pub async fn query(&mut self, sql: &str, keep: Option<&mut Rows>) -> Result<AnswerSize, ClientError> {
        match self {
            Self::Pg(client) => client.query(sql, keep).await,
            Self::Hive(client) => client.query(sql, keep).await,
        }
    }

    async fn prepare(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Pg(client) => client.prepare(PREPARED, &prepared_text()).await,
            Self::Hive(_) => Err(ClientError::unusable("the protocol has no prepared statements")),
        }
    }

    async fn run(&mut self, statement: &Statement) -> Result<AnswerSize, ClientError> {
        match (statement, self) {
            (Statement::Text(sql), client) => client.query(sql, None).await,
            (Statement::Prepared(value), Self::Pg(client)) => {
                client.execute(PREPARED, &[value], false, None).await
            }
            (Statement::Prepared(_), Self::Hive(_)) => {
                Err(ClientError::unusable("the protocol has no prepared statements"))
            }
        }
    }

    fn canceler(&self) -> Option<Canceler> {
        match self {
            Self::Pg(client) => Some(client.canceler()),
            Self::Hive(_) => None,
        }
    }
}

/// Parameters of a window.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub load: Load,
    pub clients: usize,
    pub warm: Duration,
    pub timed: Duration,
    pub seed: u64,
}

/// Result of a window.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Statements that ended within the counted time.
    pub done: u64,
    pub failed: u64,
    /// Statements canceled at the end.
    pub unfinished: u64,
    /// Latencies of the done and the unfinished statements, in ascending order.
    pub latencies: Vec<Duration>,
    /// The counted time.
    pub timed: Duration,
    /// The first failure.
    pub problem: Option<String>,
    /// Statements acknowledged by the server, including those outside the counted time.
    pub acknowledged: u64,
    /// Statements of unknown outcome.
    pub outcome_unknown: u64,
}

impl Sample {
    pub fn throughput(&self) -> f64 {
        self.done as f64 / self.timed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Latency quantile in seconds; `None` if there are no statements.
    pub fn quantile_s(&self, part: f64) -> Option<f64> {
        quantile(&self.latencies, part).map(|latency| latency.as_secs_f64())
    }

    /// Records a failure if an acknowledged row is missing or a refused one is there.
    fn check_rows(&mut self, rows: Option<u64>) {
        let (least, most) = (self.acknowledged, self.acknowledged + self.outcome_unknown);
        if rows.is_none_or(|rows| !(least..=most).contains(&rows)) {
            self.failed += 1;
            let rows = rows.map_or_else(|| "no number of".to_owned(), |rows| rows.to_string());
            let outcome_unknown = self.outcome_unknown;
            let problem = format!(
                "wrong answer: {rows} rows of {least} inserts, and {outcome_unknown} of unknown outcome"
            );
            self.problem.get_or_insert(problem);
        }
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.latencies.extend(other.latencies);
        self.problem = self.problem.take().or(other.problem);
    }
}

/// State shared by the clients of a window.
struct WindowState {
    start: Instant,
    counted: Instant,
    end: Instant,
    running: Cell<usize>,
    /// Statements of all clients: sent, acknowledged, and refused.
    sent: Cell<u64>,
    acknowledged: Cell<u64>,
    refused: Cell<u64>,
}

/// Runs a window. Errors: a client could not connect, or there is no table for the rows.
pub async fn window(system: &mut System, source: &Source, window: Window) -> Result<Sample, ClientError> {
    if window.load != Load::Insert {
        return crowd(system, source, window).await;
    }
    let table = insert_table();
    let mut client = Client::connect(&system.target).await?;
    client.query(&format!("CREATE TABLE {table} (client BIGINT, number BIGINT, word TEXT)"), None).await?;
    let sample = crowd(system, source, window).await;
    let mut rows = Rows::new();
    let counted = client.query(&format!("SELECT count(*) FROM {table}"), Some(&mut rows)).await;
    client.query(&format!("DROP TABLE {table}"), None).await?;
    counted?;
    let mut sample = sample?;
    let number = rows.first().and_then(|row| row.first()).and_then(Option::as_ref);
    sample.check_rows(number.and_then(|number| number.parse().ok()));
    Ok(sample)
}

async fn crowd(system: &mut System, source: &Source, window: Window) -> Result<Sample, ClientError> {
    let mut clients = Vec::with_capacity(window.clients);
    for _ in 0..window.clients {
        let mut client = Client::connect(&system.target).await?;
        if window.load == Load::Prepared {
            client.prepare().await?;
        }
        clients.push(client);
    }
    let cancelers: Vec<Canceler> = clients.iter().filter_map(Client::canceler).collect();
    let start = Instant::now();
    let counted = start + window.warm;
    let state = Rc::new(WindowState {
        start,
        counted,
        end: counted + window.timed,
        running: Cell::new(clients.len()),
        sent: Cell::new(0),
        acknowledged: Cell::new(0),
        refused: Cell::new(0),
    });
    let local = LocalSet::new();
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| {
            let (source, state) = (source.clone(), Rc::clone(&state));
            let seed = window.seed.wrapping_mul(1000).wrapping_add(number as u64);
            local.spawn_local(async move {
                let sample = ask(client, Script::new(&source, window.load, seed), &state).await;
                state.running.set(state.running.get() - 1);
                sample
            })
        })
        .collect();
    let aborts: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
    local
        .run_until(async {
            tokio::time::sleep_until(state.end).await;
            let give_up = state.end + CANCEL_TIMEOUT;
            while state.running.get() > 0 && Instant::now() < give_up {
                sleep(CANCEL_PAUSE).await;
                if state.running.get() == 0 {
                    break;
                }
                system.cancel();
                for canceler in &cancelers {
                    if state.running.get() == 0 {
                        break;
                    }
                    let _ = timeout(CANCEL_PAUSE, canceler.cancel()).await;
                }
            }
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
            let mut sample = Sample { timed: window.timed, ..Sample::default() };
            for task in tasks {
                match task.await {
                    Ok(one) => sample.add(one),
                    // Its connection was closed while it was waiting.
                    Err(_) => sample.unfinished += 1,
                }
            }
            sample.latencies.sort();
            sample.acknowledged = state.acknowledged.get();
            sample.outcome_unknown = state.sent.get() - state.acknowledged.get() - state.refused.get();
            Ok(sample)
        })
        .await
}

/// Runs one client, until the end of the window.
async fn ask(mut client: Client, mut script: Script<'_>, state: &WindowState) -> Sample {
    let mut sample = Sample::default();
    let mut failures = 0;
    tokio::time::sleep_until(state.start).await;
    loop {
        let begun = Instant::now();
        if begun >= state.end {
            return sample;
        }
        let statement = script.next();
        state.sent.set(state.sent.get() + 1);
        let ran = client.run(&statement).await;
        match &ran {
            Ok(_) => state.acknowledged.set(state.acknowledged.get() + 1),
            Err(ClientError::Statement { sqlstate, .. }) if COMPLETION_UNKNOWN != sqlstate.as_str() => {
                state.refused.set(state.refused.get() + 1);
            }
            Err(_) => {}
        }
        let ended = Instant::now();
        if ended > state.end {
            sample.unfinished += 1;
            sample.latencies.push(state.end - begun);
            return sample;
        }
        let is_counted = ended >= state.counted;
        match ran {
            Ok(counted) => match script.rows() {
                Some(rows) if rows != counted.rows => {
                    sample.failed += 1;
                    let problem = format!("wrong answer: {} rows instead of {rows}", counted.rows);
                    sample.problem.get_or_insert(problem);
                }
                _ => {
                    failures = 0;
                    if is_counted {
                        sample.done += 1;
                        sample.latencies.push(ended - begun);
                    }
                }
            },
            Err(client_error) => {
                failures += 1;
                sample.failed += 1;
                let is_broken = matches!(client_error, ClientError::Broken(_));
                sample.problem.get_or_insert(client_error.to_string());
                if is_broken || failures == FAILURES_MAX {
                    return sample;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_acknowledged() {
        let check = |rows, is_right| {
            let mut sample = Sample { acknowledged: 5, outcome_unknown: 2, ..Sample::default() };
            sample.check_rows(rows);
            assert_eq!(sample.failed == 0, is_right, "{rows:?}: {:?}", sample.problem);
        };
        check(Some(4), false);
        check(Some(5), true);
        check(Some(7), true);
        check(Some(8), false);
        check(None, false);
    }

    #[test]
    fn throughput_is_of_the_counted_time() {
        let mut sample = Sample { timed: Duration::from_millis(500), ..Sample::default() };
        sample.add(Sample { done: 7, problem: Some("first".to_owned()), ..Sample::default() });
        sample.add(Sample { done: 3, problem: Some("second".to_owned()), ..Sample::default() });
        assert_eq!(sample.throughput(), 20.0);
        assert_eq!(sample.problem.as_deref(), Some("first"));
    }
}
