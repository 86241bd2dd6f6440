//! Ledger of a gang: resources leaked on a rank are reported until they are released, and ranks are queried
//! only after they were used.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use harrier_exec::Gang;
use harrier_exec::Retained;
use harrier_sim::{Simulation, Weather};

use crate::share_cpu_time;

const RANKS: usize = 3;

/// A gang with a memory pool for each rank, all unused.
struct Ranks {
    simulation: Simulation,
    gangs: Vec<Gang>,
    memory: Vec<Arc<RuntimeEnv>>,
}

impl Ranks {
    fn start() -> Ranks {
        let mut simulation = Simulation::new(1, RANKS, Weather::CALM);
        // The grace period for leaks is real time.
        simulation.pace = Duration::from_millis(1);
        let runtime = simulation.runtime().handle().clone();
        let _entered = runtime.enter();
        let memory: Vec<Arc<RuntimeEnv>> = (0..RANKS).map(|_| Arc::new(RuntimeEnv::default())).collect();
        let gangs: Vec<Gang> =
            simulation.ranks.iter().map(|rank| Gang::from_interconnect(rank.clone(), 0)).collect();
        for (gang, memory) in gangs.iter().zip(&memory) {
            gang.attach(Arc::clone(memory), None);
        }
        Ranks { simulation, gangs, memory }
    }

    /// Leaks a byte on `rank`, as a statement that has ended might.
    fn leak_byte(&self, rank: usize) -> MemoryReservation {
        let leak = MemoryConsumer::new("left").register(&self.memory[rank].memory_pool);
        leak.grow(1);
        leak
    }

    /// Queries every other rank, as a statement does that runs there.
    fn query_all_ranks(&mut self) {
        let gang = self.gangs[0].clone();
        let reports = self.simulation.run(async move { gang.reports().await });
        assert_eq!(reports.expect("it ends").expect("all answer").len(), RANKS);
    }

    /// The result of a check of the ledger, and the number of its frames.
    fn check_ledger(&mut self) -> (Result<(), String>, u64) {
        let before = self.simulation.network.frames();
        let gang = self.gangs[0].clone();
        let checked = self.simulation.run(async move { gang.check_ledger(Retained::Nothing).await });
        let checked = checked.expect("it ends").map_err(|error| error.to_string());
        (checked, self.simulation.network.frames() - before)
    }
}

#[test]
fn ranks_are_queried_only_after_use() {
    let _turn = share_cpu_time();
    let mut ranks = Ranks::start();
    assert_eq!(ranks.check_ledger(), (Ok(()), 0), "nothing was asked of anybody yet");
    for _ in 0..2 {
        ranks.query_all_ranks();
        let (checked, frames) = ranks.check_ledger();
        assert_eq!(checked, Ok(()));
        assert!(
            frames >= 2 * (RANKS as u64 - 1),
            "a question and an answer of each rank, not {frames} frames"
        );
        assert_eq!(ranks.check_ledger(), (Ok(()), 0), "they are known to hold nothing");
    }
}

#[test]
fn leaks_of_other_ranks_are_reported_until_released() {
    let _turn = share_cpu_time();
    let mut ranks = Ranks::start();
    for rank in 1..RANKS {
        ranks.query_all_ranks();
        let leak = ranks.leak_byte(rank);
        for _ in 0..2 {
            let report = ranks.check_ledger().0.expect_err("something is left");
            assert!(report.contains(&format!("rank {rank} has 0 streams, 0 frames, 1 bytes")), "{report}");
        }
        drop(leak);
        assert_eq!(ranks.check_ledger().0, Ok(()));
    }
}

#[test]
fn leaks_of_the_coordinator_are_reported_without_queries() {
    let _turn = share_cpu_time();
    let mut ranks = Ranks::start();
    let leak = ranks.leak_byte(0);
    let report = ranks.check_ledger().0.expect_err("something is left");
    assert!(report.contains("rank 0 has 0 streams, 0 frames, 1 bytes"), "{report}");
    drop(leak);
    assert_eq!(ranks.check_ledger().0, Ok(()));
}
