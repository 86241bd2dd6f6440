//! Fault injection with real statements over a simulated network: whatever fails at whichever frame, a
//! statement returns its rows or fails with 57P02, and the next one is right and leaks nothing on any rank.
//!
//! The ranks are engines of this process; everything but the transport of frames is what runs below a
//! launcher. A fault is injected at frame 0, 1, 2, … until the statement completes before it. Some kinds, all
//! of them with delayed and reordered frames, and all of the statement with most frames, are injected only at
//! a sample of frames. `HARRIER_FAULT_STEP` sets the step of all of them: 1 tries every frame, as `make soak
//! PART=faults` does. `HARRIER_SEED` sets the seed of delays; failures print it.
//!
//! Shared memory is off: tasks of a dead rank run on here, and would read blocks that are overwritten
//! (`interconnect/tests/simulated/sim.rs` injects the same faults into streams through shared memory).

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::time::Duration;

use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, WarehouseOptions};
use harrier_exec::Gang;
use harrier_sim::{Fault, Simulation, Weather};

use crate::{on_statement_stack, share_cpu_time};

const RANKS: usize = 3;

/// Simulated silence timeout per real millisecond.
const PACE: Duration = Duration::from_millis(50);

/// SQLSTATE of a statement that has lost a rank.
const LOST: &str = "57P02";

/// A stall below the silence timeout: it must have no effect.
const SHORT: Fault = Fault::Stall(1, Duration::from_secs(2));

/// Bytes of a frame's header whose damage cannot yield another valid frame: the first, and the lowest of the
/// length.
const MAGIC: Fault = Fault::Damage(0);
const LENGTH: Fault = Fault::Damage(32);

/// Step for the statement that redistributes and broadcasts, which has three times the frames of the others.
const LONG_SAMPLE: usize = 3;

/// Step for the faults that are not tried at every frame: in calm weather and in rough.
const SAMPLE: usize = 5;
const ROUGH_SAMPLE: usize = 12;

/// Step between the frames tried.
fn step(usual: usize) -> usize {
    std::env::var("HARRIER_FAULT_STEP").map_or(usual, |step| step.parse().expect("a number"))
}

/// Seed of delays and of the schedule.
fn seed() -> u64 {
    std::env::var("HARRIER_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

/// A gang whose ranks share one folder.
struct Ranks {
    simulation: Simulation,
    /// By rank.
    _engines: Vec<Engine>,
    session: Session,
}

impl Ranks {
    fn start(folder: &Path, weather: Weather) -> Ranks {
        let mut simulation = Simulation::new(seed(), RANKS, weather);
        simulation.pace = PACE;
        let runtime = simulation.runtime().handle().clone();
        let _entered = runtime.enter();
        let engines: Vec<Engine> = simulation
            .ranks
            .iter()
            .map(|rank| {
                let mut options = options(folder);
                options.gang = Some(Gang::from_interconnect(rank.clone(), 0));
                let engine = Engine::try_new(options).expect("an engine");
                engine.attach();
                engine
            })
            .collect();
        let session = engines[0].session();
        Ranks { simulation, _engines: engines, session }
    }

    /// Runs a statement and settles, as every client's connection does.
    fn run(&mut self, sql: &str) -> Result<String, SqlError> {
        self.run_unless_killed(sql).unwrap_or_else(|| panic!("{sql}: the coordinator is dead"))
    }

    /// As [`Ranks::run`]; `None` if the coordinator is killed before the statement completes.
    fn run_unless_killed(&mut self, sql: &str) -> Option<Result<String, SqlError>> {
        let Ranks { simulation, session, .. } = self;
        let network = simulation.network.clone();
        let dead = async {
            while network.is_alive(0) {
                tokio::task::yield_now().await;
            }
        };
        let statement = async {
            let result = run(session, sql).await;
            // A rank loss after the statement's end is not its failure: what it has committed stays.
            if let Err(error) = session.settle().await {
                assert_eq!(error.sqlstate.as_str(), LOST, "{sql}: {}", error.message);
            }
            result
        };
        let work = async {
            tokio::select! {
                biased;
                () = dead => None,
                result = statement => Some(result),
            }
        };
        simulation.run(work).unwrap_or_else(|hang| panic!("{sql}: {hang}"))
    }

    /// Retries while rank losses are new: a loss that one statement did not notice may be found during the
    /// next one.
    fn retry_until_stable(&mut self, sql: &str) -> String {
        for _ in 0..RANKS {
            match self.run(sql) {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.sqlstate.as_str(), LOST, "{sql}: {}", error.message),
            }
        }
        panic!("{sql} fails with every rank")
    }
}

fn options(folder: &Path) -> EngineOptions {
    let mut options = EngineOptions::default();
    options.threads = 2;
    options.warehouse = Some(WarehouseOptions::folder(&folder.join("warehouse")));
    let settings = [("harrier.check_ledger", "true"), ("harrier.distribute_bytes_min", "0")];
    options.settings = settings.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
    options
}

async fn run(session: &Session, sql: &str) -> Result<String, SqlError> {
    let statement = session.statements(sql)?.pop().expect("a statement");
    match session.execute(&statement).await? {
        Outcome::Rows { stream, .. } => {
            let batches = stream.try_collect::<Vec<_>>().await;
            let batches = batches.map_err(|error| harrier_engine::in_statement(&error, sql))?;
            Ok(pretty_format_batches(&batches).expect("rows").to_string())
        }
        Outcome::Write(write) => write.finish().await.map(|written| written.tag),
        Outcome::Command(completion) => Ok(completion.tag),
        _ => panic!("{sql}: neither rows nor a write"),
    }
}

/// Creates two tables of files and an empty one of the warehouse, by an engine without ranks.
fn tables(folder: &Path) {
    let single_rank = Engine::try_new(options(folder)).expect("an engine");
    let session = single_rank.session();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for table in ["facts", "groups"] {
        std::fs::create_dir(folder.join(table)).expect("a folder");
    }
    let folder = folder.display();
    let facts = (0..4).map(|part| {
        let rows = format!("select value as k, value % 7 as g from generate_series({part}000, {part}999)");
        format!("copy ({rows}) to '{folder}/facts/{part}.parquet'")
    });
    let groups = "select value as g, 'group ' || value as name from generate_series(0, 6)";
    let groups = format!("copy ({groups}) to '{folder}/groups/0.parquet'");
    let kept = "create table kept (k bigint, g bigint)".to_string();
    for sql in facts.chain([groups, kept]) {
        runtime.block_on(run(&session, &sql)).unwrap_or_else(|error| panic!("{}", error.report(Some(&sql))));
    }
}

/// Injects a fault at every frame of `sql`, or at every `every`th; its plan must have all of `motions`.
/// `check` runs the next statement, with whether `sql` completed since the last check.
fn inject_faults(folder: &Path, sql: &str, every: usize, motions: &[&str], check: &dyn Fn(&mut Ranks, bool)) {
    let right = {
        let mut ranks = Ranks::start(folder, Weather::CALM);
        let plan = ranks.run(&format!("explain {sql}")).expect(sql);
        for motion in motions {
            assert!(plan.contains(motion), "there is no {motion} in {plan}");
        }
        check(&mut ranks, false);
        let right = ranks.run(sql).expect(sql);
        check(&mut ranks, true);
        right
    };
    let at_every_frame = [
        Fault::Kill(1),
        Fault::Kill(2),
        Fault::Break(2),
        Fault::Cut(0, 1),
        Fault::Cut(1, 2),
        SHORT,
        Fault::Stall(2, Duration::from_secs(40)),
    ];
    let at_some = [Fault::Break(1), MAGIC, LENGTH];
    let tries = at_every_frame.map(|fault| (fault, Weather::CALM, step(every))).into_iter();
    let tries = tries.chain(at_some.map(|fault| (fault, Weather::CALM, step(SAMPLE))));
    let in_rough = at_every_frame.into_iter().chain(at_some);
    let tries = tries.chain(in_rough.map(|fault| (fault, Weather::ROUGH, step(ROUGH_SAMPLE))));
    for (fault, weather, step) in tries {
        let (mut fired, mut failed) = (0, 0);
        for frame in (0..).step_by(step) {
            let context = context(fault, frame, weather, sql);
            let mut ranks = Ranks::start(folder, weather);
            check(&mut ranks, false);
            let first = ranks.simulation.network.frames();
            ranks.simulation.network.plan(first + frame, fault);
            let outcome = ranks.run(sql);
            if !ranks.simulation.network.fault_fired() {
                check(&mut ranks, outcome.is_ok());
                break;
            }
            fired += 1;
            match &outcome {
                Ok(answer) => assert_eq!(*answer, right, "{context}"),
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.sqlstate.as_str(), LOST, "{context}: {}", error.message);
                    assert_ne!(fault, SHORT, "{context}: {}", error.message);
                }
            }
            check(&mut ranks, outcome.is_ok());
        }
        println!("{fault:?}, {weather:?}: {fired} times, of which the statement failed {failed} times");
        assert!(fired > 0, "{fault:?} fired {fired} times in {sql}");
    }
}

fn context(fault: Fault, frame: u64, weather: Weather, sql: &str) -> String {
    format!("HARRIER_SEED={}: {fault:?} at frame {frame} in {weather:?} of {sql}", seed())
}

/// Injects faults of the coordinator itself at some frames of the read-only statement `sql`: statements on
/// its gang fail from then on, its client gets 57P02 unless it was killed with the coordinator, and the other
/// ranks release their resources.
///
/// For statements that write this cannot tell what a killed coordinator has committed: its threads run on.
fn inject_coordinator_faults(folder: &Path, sql: &str) {
    let right = Ranks::start(folder, Weather::CALM).run(sql).expect(sql);
    for fault in [Fault::Kill(0), Fault::Break(0)] {
        let (mut fired, mut failed) = (0, 0);
        for frame in (0..).step_by(step(SAMPLE)) {
            let context = context(fault, frame, Weather::CALM, sql);
            let mut ranks = Ranks::start(folder, Weather::CALM);
            let first = ranks.simulation.network.frames();
            ranks.simulation.network.plan(first + frame, fault);
            let outcome = ranks.run_unless_killed(sql);
            if !ranks.simulation.network.fault_fired() {
                break;
            }
            fired += 1;
            match &outcome {
                Some(Ok(answer)) => assert_eq!(*answer, right, "{context}"),
                Some(Err(error)) => {
                    failed += 1;
                    assert_eq!(error.sqlstate.as_str(), LOST, "{context}: {}", error.message);
                }
                // The other ranks end a broken one for its silence.
                None => failed += 1,
            }
            match ranks.run_unless_killed(sql) {
                Some(Ok(_)) => panic!("{context}: the gang is lost, and goes on"),
                Some(Err(error)) => {
                    assert_eq!(error.sqlstate.as_str(), LOST, "{context}: {}", error.message);
                    assert_eq!(fault, Fault::Break(0), "{context}");
                }
                None => {}
            }
            assert_eq!(ranks.simulation.leaks(), [], "{context}");
        }
        println!("{fault:?}: {fired} times, of which the statement failed {failed} times");
        assert!(failed > 0, "{fault:?} fired {fired} times in {sql}");
    }
}

/// Checks that `sql` returns the same whatever happened before.
fn returns_same(sql: &str) -> impl Fn(&mut Ranks, bool) {
    let right = OnceCell::new();
    move |ranks, _| {
        let answer = ranks.retry_until_stable(sql);
        assert_eq!(right.get_or_init(|| answer.clone()), &answer, "{sql}");
    }
}

#[test]
fn gather() {
    on_statement_stack(|| {
        let _turn = share_cpu_time();
        let folder = tempfile::tempdir().expect("a folder");
        tables(folder.path());
        let sql = format!("select sum(k), count(*), max(g) from '{}/facts/'", folder.path().display());
        inject_faults(folder.path(), &sql, 1, &["gather"], &returns_same(&sql));
        inject_coordinator_faults(folder.path(), &sql);
    });
}

#[test]
fn redistribute_and_broadcast() {
    on_statement_stack(|| {
        let _turn = share_cpu_time();
        let folder = tempfile::tempdir().expect("a folder");
        tables(folder.path());
        let sql = format!(
            "select f.k % 5, n.name, count(*) from '{0}/facts/' f join '{0}/groups/' n on f.g = n.g group by 1, 2 order by 1, 2",
            folder.path().display()
        );
        inject_faults(folder.path(), &sql, LONG_SAMPLE, &["redistribute", "broadcast"], &returns_same(&sql));
        inject_coordinator_faults(folder.path(), &sql);
    });
}

/// INSERT is atomic: all its rows are there or none, whatever failed.
#[test]
fn insert() {
    on_statement_stack(|| {
        let _turn = share_cpu_time();
        const ROWS: i64 = 1334;
        let folder = tempfile::tempdir().expect("a folder");
        tables(folder.path());
        let facts = format!("{}/facts/", folder.path().display());
        let sql = format!("insert into kept select k, g from '{facts}' where k % 3 = 0");
        let rows_before = Cell::new(0);
        let check = |ranks: &mut Ranks, done: bool| {
            let answer = ranks.retry_until_stable("select count(*) from kept");
            let count = answer.lines().nth(3).and_then(|line| line.split('|').nth(1)?.trim().parse().ok());
            let rows: i64 = count.unwrap_or_else(|| panic!("no count: {answer}"));
            let expected = rows_before.get() + if done { ROWS } else { 0 };
            assert_eq!(rows, expected);
            rows_before.set(rows);
        };
        inject_faults(folder.path(), &sql, 1, &["gather"], &check);
    });
}
