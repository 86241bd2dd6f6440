//! Simulated ranks: threads over a simulated network, with random knobs from a seed. `HARRIER_SEED` repeats a
//! run of one seed.

use harrier_mpid::{Config, World};
use harrier_sim::{Simulation, Weather};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Runs `work` on every rank of a simulated gang. Returns the results by rank, after asserting that nothing
/// leaks.
pub fn on_ranks<R: Send + 'static>(
    seed: u64,
    ranks: usize,
    work: impl Fn(&World) -> R + Send + Sync + 'static,
) -> Vec<R> {
    if ranks == 1 {
        return vec![work(&World::alone())];
    }
    let weather = if seed.is_multiple_of(2) { Weather::CALM } else { Weather::ROUGH };
    let mut simulation = Simulation::new(seed, ranks, weather);
    let work = Arc::new(work);
    let results: Vec<_> = simulation
        .ranks
        .iter()
        .map(|gang| {
            let (gang, work) = (gang.clone(), Arc::clone(&work));
            let (done, result) = oneshot::channel();
            std::thread::spawn(move || {
                let world = World::over(gang).expect("threads can be had");
                let outcome = work(&world);
                let leave_result = world.leave(0);
                let _ = done.send(leave_result.map(|()| outcome));
            });
            result
        })
        .collect();
    let outcomes = simulation.run(async {
        let mut outcomes = Vec::new();
        for result in results {
            outcomes.push(result.await.expect("no panic").expect("no rank is lost"));
        }
        outcomes
    });
    let outcomes = outcomes.unwrap_or_else(|hang| panic!("seed {seed}: {hang}"));
    assert_eq!(simulation.leaks(), [], "seed {seed}, {ranks} ranks");
    outcomes
}

pub fn seeds(count: u64) -> Vec<u64> {
    let seeds = harrier_launch::seeds(count);
    println!("seeds {seeds:?}");
    seeds
}

/// Knobs from a seed: small blocks, queues and memory limits, so that every path is taken.
pub fn config(random: &mut StdRng, folder: &std::path::Path) -> Config {
    Config {
        memory_bytes: Some(*[1 << 12, 1 << 16, 1 << 30].choose(random).expect("some")),
        send_queue_blocks: random.random_range(1..7),
        block_bytes: *[1024, 4096, 1 << 18].choose(random).expect("some"),
        run_bytes: *[1, 3000, 1 << 20].choose(random).expect("some"),
        combine_bytes: *[1, 20_000, 1 << 22].choose(random).expect("some"),
        blocking: random.random_ratio(1, 4),
        threads: Some(random.random_range(1..4)),
        spill_folders: vec![folder.join("a"), folder.join("b")],
        ..Config::default()
    }
}
