//! Contract of an exchange between ranks, seen from statements: over the simulated network, and between the
//! ranks of one process. `harrier/tests/ranks/contract.rs` runs the same with the real binary over MPI, QUIC
//! and gRPC.
//!
//! Here a statement can be dropped at any frame, and before its rows are polled.

use std::path::Path;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::util::display::array_value_to_string;
use futures::StreamExt;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError};
use harrier_exec::Gang;
use harrier_sim::{Simulation, Weather};

use crate::exchange_contract::{Answer, Contract, Exceptions, Ranks};
use crate::lock_cpu_time;

const RANKS: usize = 3;
const THREADS: usize = 2;
const SEED: u64 = 1;

/// Simulated silence timeout per real millisecond in which no frame moves: tasks wait for threads that read
/// files.
const PACE: Duration = Duration::from_millis(50);

/// A statement is dropped at every frame of this step.
const STEP: usize = 3;

/// Timeout of one statement, longer than anything here takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Interval of a look at this process's CPU time, all threads together; how much counts as idle and as busy.
const LOOK: Duration = Duration::from_millis(500);
const IDLE_CPU_NS: u64 = 100_000_000;
const BUSY_CPU_NS: u64 = 300_000_000;

fn options(gang: Option<Gang>) -> EngineOptions {
    let mut options = EngineOptions::default();
    options.threads = THREADS;
    options.gang = gang;
    let settings = [("harrier.check_ledger", "true"), ("harrier.distribute_bytes_min", "0")];
    options.settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    options
}

/// The contract, with tables in `folder` that an engine without ranks creates.
fn contract(folder: &Path) -> Contract {
    let contract = Contract::new(folder, Exceptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let single_rank = Engine::try_new(options(None)).expect("an engine");
    let session = single_rank.session();
    for sql in contract.tables() {
        runtime
            .block_on(text_rows(&session, &sql))
            .unwrap_or_else(|error| panic!("{}", error.report(Some(&sql))));
    }
    contract
}

/// All rows of a statement as text.
async fn text_rows(session: &Session, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let statement = session.statements(sql)?.pop().expect("a statement");
    let mut stream = match session.execute(&statement).await? {
        Outcome::Rows { stream, .. } => stream,
        Outcome::Write(write) => return write.finish().await.map(|_| vec![]),
        _ => panic!("{sql}: neither rows nor a write"),
    };
    let mut text_rows = vec![];
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| harrier_engine::in_statement(&error, sql))?;
        text_rows.extend((0..batch.num_rows()).map(|row| {
            let text = |column: &ArrayRef| array_value_to_string(column, row).expect("a text");
            let columns = batch.columns().iter();
            columns.map(|column| (!column.is_null(row)).then(|| text(column))).collect::<Vec<_>>()
        }));
    }
    Ok(text_rows)
}

/// Runs a statement as every client's connection does.
async fn answer(session: &Session, sql: &str) -> Answer {
    let answer = text_rows(session, sql).await;
    let answer = session.settle().await.and(answer);
    answer.map_err(|error| (error.sqlstate.as_str().to_string(), error.message))
}

/// Opens a statement's stream, and drops it before the first poll.
async fn drop_unpolled(session: &Session, sql: &str) {
    let statement = session.statements(sql).expect(sql).pop().expect("a statement");
    drop(session.execute(&statement).await.expect(sql));
    session.settle().await.expect(sql);
}

/// Engines of this process as ranks of a gang over the simulated network.
struct SimulatedRanks {
    simulation: Simulation,
    /// By rank.
    _engines: Vec<Engine>,
    session: Session,
}

impl SimulatedRanks {
    fn start(mut simulation: Simulation) -> SimulatedRanks {
        simulation.pace = PACE;
        let runtime = simulation.runtime().handle().clone();
        let _entered = runtime.enter();
        let engine = |rank: usize| {
            let gang = Gang::from_interconnect(simulation.ranks[rank].clone(), 0);
            let engine = Engine::try_new(options(Some(gang))).expect("an engine");
            engine.attach();
            engine
        };
        let engines: Vec<Engine> = (0..RANKS).map(engine).collect();
        let session = engines[0].session();
        SimulatedRanks { simulation, _engines: engines, session }
    }

    /// Drops a statement as soon as `reached`. Returns false if it had ended before, with its rows.
    fn drop_when(&mut self, sql: &str, mut reached: impl FnMut() -> bool) -> bool {
        let SimulatedRanks { simulation, session, .. } = self;
        let work = async {
            let is_reached = async {
                while !reached() {
                    tokio::task::yield_now().await;
                }
            };
            let dropped = tokio::select! {
                biased;
                () = is_reached => Ok(true),
                ended = text_rows(session, sql) => ended.map(|_| false),
            };
            session.settle().await.and(dropped)
        };
        let dropped = simulation.run(work).unwrap_or_else(|hang| panic!("{sql}: {hang}"));
        dropped.unwrap_or_else(|error| panic!("{sql}: {}", error.message))
    }
}

impl Ranks for SimulatedRanks {
    fn run(&mut self, sql: &str) -> Answer {
        let SimulatedRanks { simulation, session, .. } = self;
        simulation.run(answer(session, sql)).unwrap_or_else(|hang| panic!("{sql}: {hang}"))
    }

    fn cancel(&mut self, sql: &str) {
        let others = self.simulation.ranks[1..].to_vec();
        let is_under_way = move || others.iter().all(|rank| rank.ledger().streams_out > 0);
        assert!(self.drop_when(sql, is_under_way), "it ends: {sql}");
    }

    fn rest(&mut self) {
        assert_eq!(self.simulation.leaks(), []);
    }
}

/// All ranks in one process, which exchange rows in memory.
struct InProcessRanks {
    runtime: tokio::runtime::Runtime,
    session: Session,
}

impl InProcessRanks {
    fn start() -> InProcessRanks {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let entered = runtime.enter();
        let engine = Engine::try_new(options(Some(Gang::in_process(RANKS)))).expect("an engine");
        engine.attach();
        drop(entered);
        InProcessRanks { session: engine.session(), runtime }
    }
}

impl Ranks for InProcessRanks {
    fn run(&mut self, sql: &str) -> Answer {
        self.runtime.block_on(answer(&self.session, sql))
    }

    fn cancel(&mut self, sql: &str) {
        let session = &self.session;
        self.runtime.block_on(async {
            let start_ns = harrier_exec::process_cpu_ns();
            let busy = async {
                while harrier_exec::process_cpu_ns() < start_ns + BUSY_CPU_NS {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                biased;
                () = busy => {}
                answer = text_rows(session, sql) => panic!("it ends: {answer:?}"),
            }
            session.settle().await.expect(sql);
        });
    }

    fn rest(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = harrier_exec::process_cpu_ns();
            std::thread::sleep(LOOK);
            if harrier_exec::process_cpu_ns() - before < IDLE_CPU_NS {
                return;
            }
            assert!(Instant::now() < deadline, "ranks compute for statements that have ended");
        }
    }
}

#[test]
fn contract_over_simulated_network() {
    let _turn = lock_cpu_time();
    let folder = tempfile::tempdir().expect("a folder");
    let contract = contract(folder.path());
    contract.check(&mut SimulatedRanks::start(Simulation::new(SEED, RANKS, Weather::ROUGH)));
    contract.check(&mut SimulatedRanks::start(Simulation::with_shared_memory(SEED, RANKS, Weather::CALM)));
}

#[test]
fn contract_in_one_process() {
    let _turn = lock_cpu_time();
    let folder = tempfile::tempdir().expect("a folder");
    let contract = contract(folder.path());
    let mut ranks = InProcessRanks::start();
    contract.check(&mut ranks);
    ranks.runtime.block_on(drop_unpolled(&ranks.session, &contract.every_motion()));
    contract.is_right(&mut ranks);
}

#[test]
fn dropped_before_the_first_poll() {
    let _turn = lock_cpu_time();
    let folder = tempfile::tempdir().expect("a folder");
    let contract = contract(folder.path());
    let mut ranks = SimulatedRanks::start(Simulation::new(SEED, RANKS, Weather::CALM));
    for sql in [contract.every_motion(), contract.endless()] {
        let SimulatedRanks { simulation, session, .. } = &mut ranks;
        simulation.run(drop_unpolled(session, &sql)).unwrap_or_else(|hang| panic!("{sql}: {hang}"));
        ranks.rest();
        contract.is_right(&mut ranks);
    }
}

#[test]
fn dropped_at_any_frame() {
    let _turn = lock_cpu_time();
    let folder = tempfile::tempdir().expect("a folder");
    let contract = contract(folder.path());
    let mut ranks = SimulatedRanks::start(Simulation::new(SEED, RANKS, Weather::CALM));
    let network = ranks.simulation.network.clone();
    for frame in (0..).step_by(STEP) {
        let last = network.frames() + frame;
        let dropped = ranks.drop_when(&contract.every_motion(), || network.frames() >= last);
        ranks.rest();
        if !dropped {
            assert!(frame > 0, "it has no frames");
            break;
        }
    }
    contract.is_right(&mut ranks);
}
