//! The ledger of a gang: what a rank still holds after statements have ended is found and told until it is
//! given back, and ranks are asked only after something was asked of them.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use harrier_exec::Gang;
use harrier_exec::Retained;
use harrier_sim::{Simulation, Weather};

use crate::together;

const RANKS: usize = 3;

/// A gang whose ranks have memory that nobody uses.
struct Ranks {
    simulation: Simulation,
    gangs: Vec<Gang>,
    memory: Vec<Arc<RuntimeEnv>>,
}

impl Ranks {
    fn start() -> Ranks {
        let mut simulation = Simulation::new(1, RANKS, Weather::CALM);
        // Patience with what is left is real time.
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

    /// As if a statement that has ended had left a byte on `rank`.
    fn leave_something(&self, rank: usize) -> MemoryReservation {
        let left = MemoryConsumer::new("left").register(&self.memory[rank].memory_pool);
        left.grow(1);
        left
    }

    /// Asks something of every other rank, as a statement does that runs there.
    fn use_all(&mut self) {
        let gang = self.gangs[0].clone();
        let reports = self.simulation.run(async move { gang.reports().await });
        assert_eq!(reports.expect("it ends").expect("all answer").len(), RANKS);
    }

    /// What is said of the ledger, and how many frames that took.
    fn check(&mut self) -> (Result<(), String>, u64) {
        let before = self.simulation.network.frames();
        let gang = self.gangs[0].clone();
        let checked = self.simulation.run(async move { gang.check_ledger(Retained::Nothing).await });
        let checked = checked.expect("it ends").map_err(|error| error.to_string());
        (checked, self.simulation.network.frames() - before)
    }
}

#[test]
fn ranks_are_asked_after_they_were_used() {
    let _turn = together();
    let mut ranks = Ranks::start();
    assert_eq!(ranks.check(), (Ok(()), 0), "nothing was asked of anybody yet");
    for _ in 0..2 {
        ranks.use_all();
        let (checked, frames) = ranks.check();
        assert_eq!(checked, Ok(()));
        assert!(
            frames >= 2 * (RANKS as u64 - 1),
            "a question and an answer of each rank, not {frames} frames"
        );
        assert_eq!(ranks.check(), (Ok(()), 0), "they are known to hold nothing");
    }
}

#[test]
fn what_another_rank_holds_is_told_until_it_is_given_back() {
    let _turn = together();
    let mut ranks = Ranks::start();
    for rank in 1..RANKS {
        ranks.use_all();
        let left = ranks.leave_something(rank);
        for _ in 0..2 {
            let told = ranks.check().0.expect_err("something is left");
            assert!(told.contains(&format!("rank {rank} has 0 streams, 0 frames, 1 bytes")), "{told}");
        }
        drop(left);
        assert_eq!(ranks.check().0, Ok(()));
    }
}

#[test]
fn what_the_coordinator_holds_is_told_though_nobody_was_asked_anything() {
    let _turn = together();
    let mut ranks = Ranks::start();
    let left = ranks.leave_something(0);
    let told = ranks.check().0.expect_err("something is left");
    assert!(told.contains("rank 0 has 0 streams, 0 frames, 1 bytes"), "{told}");
    drop(left);
    assert_eq!(ranks.check().0, Ok(()));
}
