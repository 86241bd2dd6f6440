//! Recovery time after a rank was killed: a client sends statements that need all ranks, one after the other.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::systems::System;
use super::wire::{ClientError, PgClient};
use crate::answers::Rows;
use crate::cell::median;

/// The statement sent.
const STATEMENT: &str = "SELECT l_returnflag, count(*), sum(l_quantity) FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag";

/// Timeout for the gang to be complete again.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Recovery from one killed rank.
#[derive(Debug, Clone)]
pub struct RankRecovery {
    pub rank: usize,
    /// Seconds until the next right answer of a statement sent after the kill.
    pub answered_s: f64,
    /// Seconds until the first such answer computed by the gang.
    pub gang_answered_s: f64,
    /// Errors of the statements until then.
    pub failures: Vec<String>,
}

/// All recoveries.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    pub killed: Vec<RankRecovery>,
    pub problem: Option<String>,
}

impl Recovery {
    pub fn median_s(&self) -> Option<f64> {
        median(self.killed.iter().map(|killed| killed.answered_s).collect())
    }

    pub fn longest_s(&self) -> Option<f64> {
        self.killed.iter().map(|killed| killed.answered_s).reduce(f64::max)
    }

    pub fn gang_median_s(&self) -> Option<f64> {
        median(self.killed.iter().map(|killed| killed.gang_answered_s).collect())
    }

    pub fn json(&self) -> Value {
        let killed = |killed: &RankRecovery| {
            json!({
                "rank": killed.rank, "answered_s": killed.answered_s,
                "gang_answered_s": killed.gang_answered_s, "failures": killed.failures,
            })
        };
        json!({
            "statement": STATEMENT,
            "killed": self.killed.iter().map(killed).collect::<Vec<_>>(),
            "answered_s_median": self.median_s(), "answered_s_longest": self.longest_s(),
            "gang_answered_s_median": self.gang_median_s(), "problem": self.problem,
        })
    }
}

/// Kills a rank, one at a time, `kills` times. `ranks`: number of ranks of a complete gang.
pub async fn measure(
    system: &System,
    ranks: usize,
    kills: u32,
    seed: u64,
    progress: &mut dyn FnMut(String),
) -> Recovery {
    let mut recovery = Recovery::default();
    let mut random = StdRng::seed_from_u64(seed);
    for number in 1..=kills {
        progress(format!("kill {number} of {kills}"));
        match kill_rank(system, ranks, &mut random).await {
            Ok(killed) => recovery.killed.push(killed),
            Err(client_error) => {
                recovery.problem = Some(client_error.to_string());
                break;
            }
        }
    }
    recovery
}

async fn kill_rank(system: &System, ranks: usize, random: &mut StdRng) -> Result<RankRecovery, ClientError> {
    let mut client = PgClient::connect(&system.target).await?;
    let pids = wait_for_ranks(&mut client, ranks).await?;
    let mut expected = Rows::new();
    client.query(STATEMENT, Some(&mut expected)).await?;
    if !on_gang(&mut client).await? {
        return Err(ClientError::unusable("the statement runs without the gang"));
    }
    // Let statements be running when the rank dies.
    let mut under_way = PgClient::connect(&system.target).await?;
    let busy = async { under_way.query(STATEMENT, None).await };
    let kill_soon = async {
        sleep(Duration::from_millis(random.random_range(0..30))).await;
        let rank = random.random_range(0..pids.len());
        let _ = kill(Pid::from_raw(pids[rank]), Signal::SIGKILL);
        (rank, Instant::now())
    };
    let (interrupted, (rank, killed_at)) = tokio::join!(busy, kill_soon);
    let mut failures: Vec<String> =
        interrupted.err().map(|client_error| client_error.to_string()).into_iter().collect();
    let mut answered_s = None;
    let gang_answered_s = loop {
        if killed_at.elapsed() > TIMEOUT {
            return Err(ClientError::unusable(format!("no right answer in {} s", TIMEOUT.as_secs())));
        }
        let mut rows = Rows::new();
        match client.query(STATEMENT, Some(&mut rows)).await {
            Ok(_) if rows != expected => {
                return Err(ClientError::unusable(format!("wrong answer: {rows:?}")));
            }
            Ok(_) => {
                let after_s = killed_at.elapsed().as_secs_f64();
                answered_s.get_or_insert(after_s);
                if on_gang(&mut client).await? {
                    break after_s;
                }
            }
            Err(ClientError::Statement { sqlstate, message }) => {
                failures.push(format!("{sqlstate} {message}"))
            }
            Err(broken) => return Err(broken),
        }
    };
    Ok(RankRecovery { rank, answered_s: answered_s.unwrap_or(gang_answered_s), gang_answered_s, failures })
}

/// Waits until this many ranks are running; returns their process ids.
async fn wait_for_ranks(client: &mut PgClient, ranks: usize) -> Result<Vec<i32>, ClientError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut rows = Rows::new();
        client
            .query("SELECT pid FROM sys.ranks WHERE state = 'working' ORDER BY rank", Some(&mut rows))
            .await?;
        let pid = |row: &Vec<Option<String>>| row.first()?.as_ref()?.parse().ok();
        let pids: Vec<i32> = rows.iter().filter_map(pid).collect();
        if pids.len() == ranks {
            return Ok(pids);
        }
        if Instant::now() > deadline {
            return Err(ClientError::unusable(format!("{} of {ranks} ranks work", pids.len())));
        }
        sleep(PAUSE).await;
    }
}

/// Whether the last such statement of any client ran on the gang.
async fn on_gang(client: &mut PgClient) -> Result<bool, ClientError> {
    let mut rows = Rows::new();
    let sql =
        "SELECT on_gang FROM sys.statements WHERE text LIKE 'SELECT l_returnflag%' ORDER BY id DESC LIMIT 1";
    client.query(sql, Some(&mut rows)).await?;
    Ok(rows.first().is_some_and(|row| row[0].as_deref() == Some("t")))
}
