//! A window of load: so many clients, each with a connection and one statement after the other, for so long.
//!
//! ```text
//!        connect          not counted                  counted                     ends what runs
//! ──────────────────┼───────────────────┼─────────────────────────────────┼────────────────────────►
//!                 start               + warm                           + timed
//! ```
//!
//! All clients share one thread of this process, so that the servers have the machine. Statements that end within the counted time are
//! counted, with their whole time; one that runs at its end is canceled and counts with the time it had taken until then, which is less
//! than it would have needed: quantiles of long statements are rather too low where many are unfinished.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::hive::HiveClient;
use super::statements::{Load, PREPARED, Script, Source, Statement, prepared_text};
use super::systems::{Protocol, System, Target};
use super::wire::{Canceler, Counted, PgClient, Trouble};
use crate::bench::answers::Rows;

/// How long statements may go on after they were canceled, before their connections are closed.
const CANCEL_PATIENCE: Duration = Duration::from_secs(20);
/// How often they are canceled in that time.
const CANCEL_PAUSE: Duration = Duration::from_millis(300);
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
}

impl Sample {
    pub fn throughput(&self) -> f64 {
        self.done as f64 / self.timed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Seconds that so much of the statements took at most; `None` of nothing.
    pub fn quantile_s(&self, part: f64) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        // The nearest rank: the least value that no more than `1 - part` of all are above.
        let rank = (part * self.latencies.len() as f64).ceil() as usize;
        Some(self.latencies[rank.saturating_sub(1).min(last)].as_secs_f64())
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
}

/// Runs a window. Errors: not all clients could connect.
pub async fn window(system: &mut System, source: &Source, window: Window) -> Result<Sample, Trouble> {
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
    let course =
        Rc::new(Course { start, counted, end: counted + window.timed, running: Cell::new(clients.len()) });
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
        let ran = client.run(&statement).await;
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
    fn quantiles_are_the_nearest_rank() {
        let sample = |count: u64| Sample {
            latencies: (1..=count).map(Duration::from_secs).collect(),
            ..Sample::default()
        };
        assert_eq!(sample(0).quantile_s(0.5), None);
        assert_eq!(sample(1).quantile_s(0.99), Some(1.0));
        assert_eq!(sample(100).quantile_s(0.5), Some(50.0));
        assert_eq!(sample(100).quantile_s(0.99), Some(99.0));
        assert_eq!(sample(1000).quantile_s(0.999), Some(999.0));
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
