//! A gang over a simulated network: one thread steps the drivers and polls the tasks, in virtual time.

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

/// Idle rounds before time advances: tasks may need several polls until they send something.
const IDLE_ROUNDS: u32 = 20;

/// Largest step of time when nothing is due: the heartbeat interval.
const TIME_STEP_MAX: Duration = Duration::from_millis(250);

/// Virtual time after which unfinished work counts as hung: longer than all timeouts of the interconnect
/// together. Heartbeats never stop, so something always moves.
const VIRTUAL_TIMEOUT: Duration = Duration::from_secs(300);

/// Minimum real time before work counts as hung: tasks may wait for threads that read files or compute, on a
/// busy machine.
const REAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Size of a rank's shared memory, bytes: more than the blocks of any exchange here. Blocks that do not fit
/// travel as frames.
const ARENA_BYTES: usize = 1 << 30;

/// The work did not finish although nothing moves any more.
#[derive(Debug)]
pub struct Hang {
    /// Ledgers of the ranks that are alive.
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
    /// Largest step of time while nothing moves, each after a millisecond of real time; zero jumps to the
    /// next event. For work that waits for threads that read files: without it hours would pass for the ranks
    /// meanwhile.
    pub pace: Duration,
    /// By rank; empty without shared memory.
    arenas: Vec<Arc<Arena>>,
    drivers: Vec<Driver>,
    runtime: Runtime,
}

impl Simulation {
    /// Ranks on one host, without shared memory.
    pub fn new(seed: u64, ranks: usize, weather: Weather) -> Simulation {
        Self::of(seed, ranks, weather, true, vec![])
    }

    /// Ranks on one host that lend each other blocks. A killed rank only stops being stepped: its tasks may
    /// run on while blocks lent to them are overwritten. Use it for work that stops with its rank, or
    /// tolerates arbitrary data.
    ///
    /// Panics: shared memory is not available.
    pub fn with_shared_memory(seed: u64, ranks: usize, weather: Weather) -> Simulation {
        let arena = |_| Arena::create(ARENA_BYTES).expect("shared memory can be had");
        Self::of(seed, ranks, weather, true, (0..ranks).map(arena).collect())
    }

    /// Each rank on its own host.
    pub fn on_separate_hosts(seed: u64, ranks: usize, weather: Weather) -> Simulation {
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

    /// The runtime to spawn the ranks' tasks on.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Runs the gang until `work` is done.
    ///
    /// Errors: it hangs.
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
                virtual_wait += network.advance_time(if pace.is_zero() { TIME_STEP_MAX } else { *pace });
                if virtual_wait > VIRTUAL_TIMEOUT {
                    if real_wait.elapsed() > REAL_TIMEOUT {
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

    /// Live ranks with resources not returned once nothing moves any more, including blocks lent to dead
    /// ranks.
    pub fn leaks(&mut self) -> Vec<(usize, Ledger)> {
        let ranks = self.ranks.clone();
        let network = self.network.clone();
        let arenas = self.arenas.clone();
        let left = move || -> Vec<(usize, Ledger)> {
            let (living, dead): (Vec<usize>, Vec<usize>) =
                (0..ranks.len()).partition(|rank| network.is_alive(*rank));
            let ledger = |rank: usize| {
                let mut ledger = ranks[rank].ledger();
                if let Some(arena) = arenas.get(rank) {
                    let to_dead: usize = dead.iter().map(|reader| arena.loans_to(*reader)).sum();
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

/// The arenas that a rank lends from and borrows from; none without shared memory.
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

/// Steps every rank once, in an order drawn from the seed. Returns whether anything moved.
fn step(network: &Network, drivers: &mut [Driver]) -> bool {
    let first = network.draw(drivers.len());
    let mut moved = false;
    for at in 0..drivers.len() {
        let rank = (first + at) % drivers.len();
        if !network.is_stalled(rank) {
            moved |= drivers[rank].step();
        }
    }
    moved
}
