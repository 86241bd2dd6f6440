//! A window of load: so many clients, each with a connection and one statement after the other, for so long.
//!
//! ```text
//!        connect          not counted                  counted                     ends what runs
//! ──────────────────┼───────────────────┼─────────────────────────────────┼────────────────────────►
//!                 start               + warm                           + timed
//! ```
//!
//! All clients share one thread of this process, so that the servers have the machine. Statements that end
//! within the counted time are counted, with their whole time; one that runs at its end is canceled and
//! counts with the time it had taken until then, which is less than it would have needed: quantiles of long
//! statements are rather too low where many are unfinished.
//!
//! Rows that are inserted go into a table that is made before the window and dropped after it. Then there
//! have to be as many rows as inserts were acknowledged, whenever that was; those whose outcome nobody heard
//! may be there or not, those that were refused may not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use harrier_error::SqlState;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::hive::HiveClient;
use super::statements::{Load, PREPARED, Script, Source, Statement, insert_table, prepared_text};
use super::systems::{Protocol, System, Target};
use super::wire::{Canceler, Counted, PgClient, Trouble};
use crate::answers::Rows;
use crate::measure::quantile;

/// How long statements may go on after they were canceled, before their connections are closed.
const CANCEL_PATIENCE: Duration = Duration::from_secs(20);
/// How often they are canceled in that time.
const CANCEL_PAUSE: Duration = Duration::from_millis(300);
/// The SQLSTATE of a commit whose outcome the server does not know.
const COMPLETION_UNKNOWN: SqlState = SqlState::COMPLETION_UNKNOWN;
/// Failures in a row after which a client gives up.
const FAILURES_MAX: u32 = 5;

/// A connection of either kind.
pub enum Client {
    Pg(Box<PgClient>),
    Hive(Box<HiveClient>),
}

impl Client {
    pub async fn connect(target: &Target) -> Result<Self, Trouble> {
        Ok(match target.protocol {
            Protocol::Postgresql => Self::Pg(Box::new(PgClient::connect(target).await?)),
            Protocol::Hive => Self::Hive(Box::new(HiveClient::connect(target).await?)),
        })
    }

    /// Runs a text.
    pub async fn query(&mut self, sql: &str, keep: Option<&mut Rows>) -> Result<Counted, Trouble> {
        match self {
            Self::Pg(client) => client.query(sql, keep).await,
            Self::Hive(client) => client.query(sql, keep).await,
        }
    }

    async fn prepare(&mut self) -> Result<(), Trouble> {
        match self {
            Self::Pg(client) => client.prepare(PREPARED, &prepared_text()).await,
            Self::Hive(_) => Err(Trouble::broken("the protocol has no prepared statements")),
        }
    }

    async fn run(&mut self, statement: &Statement) -> Result<Counted, Trouble> {
        match (statement, self) {
            (Statement::Text(sql), client) => client.query(sql, None).await,
            (Statement::Prepared(value), Self::Pg(client)) => {
                client.execute(PREPARED, &[value], false, None).await
            }
            (Statement::Prepared(_), Self::Hive(_)) => {
                Err(Trouble::broken("the protocol has no prepared statements"))
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

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub load: Load,
    pub clients: usize,
    pub warm: Duration,
    pub timed: Duration,
    pub seed: u64,
}

/// What came of a window.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Statements that ended within the counted time.
    pub done: u64,
    pub failed: u64,
    /// Statements that were canceled at the end.
    pub unfinished: u64,
    /// Of those done and of those unfinished, in ascending order.
    pub latencies: Vec<Duration>,
    /// The counted time.
    pub timed: Duration,
    /// The first failure.
    pub problem: Option<String>,
    /// Statements that the server said were done, before and after the counted time too.
    pub acknowledged: u64,
    /// Statements of which nobody knows whether they were done.
    pub unheard: u64,
}

impl Sample {
    pub fn throughput(&self) -> f64 {
        self.done as f64 / self.timed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Seconds that so much of the statements took at most; `None` of nothing.
    pub fn quantile_s(&self, part: f64) -> Option<f64> {
        quantile(&self.latencies, part).map(|latency| latency.as_secs_f64())
    }

    /// Whether all rows are there that were acknowledged, and none that was refused; a failure if not.
    fn check_rows(&mut self, rows: Option<u64>) {
        let (least, most) = (self.acknowledged, self.acknowledged + self.unheard);
        if rows.is_none_or(|rows| !(least..=most).contains(&rows)) {
            self.failed += 1;
            let rows = rows.map_or_else(|| "no number of".to_owned(), |rows| rows.to_string());
            let unheard = self.unheard;
            let problem =
                format!("wrong answer: {rows} rows of {least} inserts, and {unheard} of unknown outcome");
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

/// What the clients of a window share.
struct Course {
    start: Instant,
    counted: Instant,
    end: Instant,
    running: Cell<usize>,
    /// Statements of all clients: begun, done, and certainly not done.
    asked: Cell<u64>,
    acknowledged: Cell<u64>,
    refused: Cell<u64>,
}

/// Runs a window. Errors: not all clients could connect, or there is no table for their rows.
pub async fn window(system: &mut System, source: &Source, window: Window) -> Result<Sample, Trouble> {
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

async fn crowd(system: &mut System, source: &Source, window: Window) -> Result<Sample, Trouble> {
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
    let course = Rc::new(Course {
        start,
        counted,
        end: counted + window.timed,
        running: Cell::new(clients.len()),
        asked: Cell::new(0),
        acknowledged: Cell::new(0),
        refused: Cell::new(0),
    });
    let local = LocalSet::new();
    let tasks: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(number, client)| {
            let (source, course) = (source.clone(), Rc::clone(&course));
            let seed = window.seed.wrapping_mul(1000).wrapping_add(number as u64);
            local.spawn_local(async move {
                let sample = ask(client, Script::new(&source, window.load, seed), &course).await;
                course.running.set(course.running.get() - 1);
                sample
            })
        })
        .collect();
    let aborts: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
    local
        .run_until(async {
            tokio::time::sleep_until(course.end).await;
            let give_up = course.end + CANCEL_PATIENCE;
            while course.running.get() > 0 && Instant::now() < give_up {
                sleep(CANCEL_PAUSE).await;
                if course.running.get() == 0 {
                    break;
                }
                system.cancel();
                for canceler in &cancelers {
                    if course.running.get() == 0 {
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
                    // Its connection was closed while it waited.
                    Err(_) => sample.unfinished += 1,
                }
            }
            sample.latencies.sort();
            sample.acknowledged = course.acknowledged.get();
            sample.unheard = course.asked.get() - course.acknowledged.get() - course.refused.get();
            Ok(sample)
        })
        .await
}

/// One client, until the end of the window.
async fn ask(mut client: Client, mut script: Script<'_>, course: &Course) -> Sample {
    let mut sample = Sample::default();
    let mut failures = 0;
    tokio::time::sleep_until(course.start).await;
    loop {
        let begun = Instant::now();
        if begun >= course.end {
            return sample;
        }
        let statement = script.next();
        course.asked.set(course.asked.get() + 1);
        let ran = client.run(&statement).await;
        match &ran {
            Ok(_) => course.acknowledged.set(course.acknowledged.get() + 1),
            Err(Trouble::Refused { sqlstate, .. }) if COMPLETION_UNKNOWN != sqlstate.as_str() => {
                course.refused.set(course.refused.get() + 1);
            }
            Err(_) => {}
        }
        let ended = Instant::now();
        if ended > course.end {
            sample.unfinished += 1;
            sample.latencies.push(course.end - begun);
            return sample;
        }
        let is_counted = ended >= course.counted;
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
            Err(trouble) => {
                failures += 1;
                sample.failed += 1;
                let is_broken = matches!(trouble, Trouble::Broken(_));
                sample.problem.get_or_insert(trouble.to_string());
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
            let mut sample = Sample { acknowledged: 5, unheard: 2, ..Sample::default() };
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
