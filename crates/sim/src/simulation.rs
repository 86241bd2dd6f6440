//! A gang over a simulated network: one thread steps the drivers and runs the tasks, and time is virtual.

use crate::network::{Network, Weather};
use futures::FutureExt;
use harrier_interconnect::transport::{Arena, Joined, Lending, Window};
use harrier_interconnect::{Driver, Interconnect, Ledger, Peer};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Rounds in which nothing moves before time passes: tasks may need several turns until they send something.
const IDLE_ROUNDS: u32 = 20;

/// How far time goes at once when nothing is due: to the next look at the heartbeats.
const PAUSE: Duration = Duration::from_millis(250);

/// Virtual time after which work hangs that has not ended: longer than all patiences of the interconnect
/// together. Heartbeats go on for ever, so that something always moves.
const VIRTUAL_PATIENCE: Duration = Duration::from_secs(300);

/// Real time that work has at least: tasks may wait for threads that read files, or work, on a machine that
/// has much else to do.
const REAL_PATIENCE: Duration = Duration::from_secs(60);

/// Addresses of a rank's shared memory, bytes: more than the blocks of any exchange here. What finds no room
/// travels as frames.
const ARENA_BYTES: usize = 1 << 30;

/// The work did not end though nothing moves any more.
#[derive(Debug)]
pub struct Hang {
    /// Of every rank that lives.
    pub ledgers: Vec<(usize, Ledger)>,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing moves any more, with {:?}", self.ledgers)
    }
}

impl std::error::Error for Hang {}

/// The ranks of a gang in one process.
pub struct Simulation {
    pub network: Network,
    pub ranks: Vec<Interconnect>,
    /// How far time goes at once while nothing moves, each time after a millisecond of real time; zero: at
    /// once to what comes next. For work that waits for threads, which read files: without it hours would
    /// pass for the ranks meanwhile.
    pub pace: Duration,
    /// By rank; none of them where they share no memory.
    arenas: Vec<Arc<Arena>>,
    drivers: Vec<Driver>,
    runtime: Runtime,
}

impl Simulation {
    /// On one host, without shared memory.
    pub fn new(seed: u64, ranks: usize, weather: Weather) -> Simulation {
        Self::of(seed, ranks, weather, true, vec![])
    }

    /// On one host, whose ranks lend each other blocks. A rank that is killed here only stands still: its
    /// tasks may run on, and what they were lent is written again meanwhile. So it is for work that stops
    /// with its rank, or bears to read anything.
    ///
    /// Panics: there is no shared memory to be had.
    pub fn sharing(seed: u64, ranks: usize, weather: Weather) -> Simulation {
        let arena = |_| Arena::create(ARENA_BYTES).expect("shared memory can be had");
        Self::of(seed, ranks, weather, true, (0..ranks).map(arena).collect())
    }

    /// On a host for each rank.
    pub fn apart(seed: u64, ranks: usize, weather: Weather) -> Simulation {
        Self::of(seed, ranks, weather, false, vec![])
    }

    fn of(seed: u64, ranks: usize, weather: Weather, here: bool, arenas: Vec<Arc<Arena>>) -> Simulation {
        let network = Network::new(seed, ranks, weather);
        let peer = |rank| Peer { host: "simulated".to_string(), pid: rank as u32, here };
        let (ranks, drivers) = (0..ranks)
            .map(|rank| {
                Interconnect::over(Joined {
                    rank,
                    peers: (0..ranks).map(peer).collect(),
                    description: format!("simulated, seed {seed}"),
                    lending: lending(rank, &arenas),
                    transport: Box::new(network.endpoint(rank)),
                })
                .expect("an eventfd can be had")
            })
            .unzip();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Simulation { network, ranks, pace: Duration::ZERO, arenas, drivers, runtime }
    }

    /// Where the ranks' tasks are to be spawned.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Runs the gang until `work` is done.
    ///
    /// Errors: it never will be.
    pub fn run<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Hang> {
        let Simulation { network, ranks, pace, drivers, runtime, .. } = self;
        runtime.block_on(async {
            let mut work = pin!(work);
            let (mut idle_rounds, mut virtual_wait, real_wait) = (0, Duration::ZERO, Instant::now());
            loop {
                if let Some(done) = work.as_mut().now_or_never() {
                    return Ok(done);
                }
                tokio::task::yield_now().await;
                if step(network, drivers) {
                    idle_rounds = 0;
                    continue;
                }
                idle_rounds += 1;
                if idle_rounds < IDLE_ROUNDS {
                    continue;
                }
                idle_rounds = 0;
                if !pace.is_zero() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                virtual_wait += network.pass_time(if pace.is_zero() { PAUSE } else { *pace });
                if virtual_wait > VIRTUAL_PATIENCE {
                    if real_wait.elapsed() > REAL_PATIENCE {
                        let living = (0..ranks.len()).filter(|rank| network.is_alive(*rank));
                        return Err(Hang {
                            ledgers: living.map(|rank| (rank, ranks[rank].ledger())).collect(),
                        });
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        })
    }

    /// Ranks that live and of which something is not given back when nothing moves any more, what the dead
    /// were lent included.
    pub fn unsettled(&mut self) -> Vec<(usize, Ledger)> {
        let ranks = self.ranks.clone();
        let network = self.network.clone();
        let arenas = self.arenas.clone();
        let left = move || -> Vec<(usize, Ledger)> {
            let (living, dead): (Vec<usize>, Vec<usize>) =
                (0..ranks.len()).partition(|rank| network.is_alive(*rank));
            let ledger = |rank: usize| {
                let mut ledger = ranks[rank].ledger();
                if let Some(arena) = arenas.get(rank) {
                    let to_dead: usize = dead.iter().map(|reader| arena.lent_to(*reader)).sum();
                    ledger.blocks_lent = ledger.blocks_lent.max(to_dead as u64);
                }
                (rank, ledger)
            };
            living.into_iter().map(ledger).filter(|(_, ledger)| !ledger.is_clear()).collect()
        };
        let settled = self.run(async {
            while !left().is_empty() {
                tokio::task::yield_now().await;
            }
        });
        settled.err().map_or(vec![], |hang| hang.ledgers)
    }
}

/// What a rank lends and borrows of those that have `arenas`, if any do.
fn lending(rank: usize, arenas: &[Arc<Arena>]) -> Lending {
    let Some(mine) = arenas.get(rank) else { return Lending::default() };
    let others = arenas.iter().enumerate();
    let window = |(other, arena): (usize, &Arc<Arena>)| {
        let open = || Window::open(std::process::id(), arena.descriptor());
        (other != rank).then(|| open().expect("it is this process's own"))
    };
    let readers = (0..arenas.len()).map(|other| other != rank).collect();
    Lending::new(Some(Arc::clone(mine)), readers, others.map(window).collect())
}

/// Lets every rank do what it can, in an order that the seed says. Returns whether anything moved.
fn step(network: &Network, drivers: &mut [Driver]) -> bool {
    let first = network.draw(drivers.len());
    let mut moved = false;
    for at in 0..drivers.len() {
        let rank = (first + at) % drivers.len();
        if !network.stands_still(rank) {
            moved |= drivers[rank].step();
        }
    }
    moved
}
