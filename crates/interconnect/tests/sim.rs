//! The contract over a simulated network: every seed in fair weather and foul, and a fault at every frame until none fires.
//!
//! `HARRIER_SEED` repeats a run of one seed.

use harrier_interconnect::Codec;
use harrier_sim::contract::{self, Exchange, Meter, Problem};
use harrier_sim::{Fault, Simulation, Weather};
use std::sync::Arc;
use std::time::Duration;

/// What came of an exchange: by rank; `None` for a rank that is dead.
type Outcome = Vec<Option<Result<usize, Problem>>>;

struct Run {
    simulation: Simulation,
    outcome: Outcome,
    /// What all ranks together were charged with.
    sent: Arc<Meter>,
    received: Arc<Meter>,
}

fn run(exchange: Exchange, ranks: usize, weather: Weather, prepare: impl FnOnce(&Simulation)) -> Run {
    let mut simulation = match exchange.codec {
        Some(_) => Simulation::apart(exchange.seed, ranks, weather),
        None => Simulation::new(exchange.seed, ranks, weather),
    };
    prepare(&simulation);
    let (sent, received) = (Arc::<Meter>::default(), Arc::<Meter>::default());
    let runtime = simulation.runtime().handle().clone();
    let work: Vec<_> = simulation
        .ranks
        .iter()
        .map(|gang| {
            let done = contract::serve(gang, exchange, runtime.clone(), Arc::clone(&sent));
            let gang = gang.clone();
            let received = Arc::clone(&received);
            runtime.spawn(async move {
                let outcome = contract::exchange(&gang, exchange, received).await;
                contract::part(&gang, done).await;
                outcome
            })
        })
        .collect();
    let network = simulation.network.clone();
    let outcome = simulation.run(async move {
        let mut outcome = Outcome::new();
        for (rank, mut work) in work.into_iter().enumerate() {
            let dead = async {
                while network.is_alive(rank) {
                    tokio::task::yield_now().await;
                }
            };
            outcome.push(tokio::select! {
                done = &mut work => Some(done.expect("no panic")),
                () = dead => None,
            });
            work.abort();
        }
        outcome
    });
    let outcome = outcome.unwrap_or_else(|hang| panic!("seed {}: {hang}", exchange.seed));
    Run { simulation, outcome, sent, received }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let only = std::env::var("HARRIER_SEED").ok().map(|seed| seed.parse().expect("a number"));
    (0..count).map(move |seed| only.unwrap_or(seed)).take(if only.is_some() { 1 } else { usize::MAX })
}

#[test]
fn rows_arrive_in_any_weather() {
    for seed in seeds(30) {
        for (ranks, weather) in [(2, Weather::CALM), (3, Weather::ROUGH), (5, Weather::ROUGH)] {
            let exchange = Exchange { seed, rounds: 2, streams: 3, rows_log2: 12, codec: None };
            let Run { mut simulation, outcome, sent, received } = run(exchange, ranks, weather, |_| {});
            for (rank, outcome) in outcome.into_iter().enumerate() {
                let streams = outcome.expect("nobody dies").unwrap_or_else(|problem| {
                    panic!("seed {seed}, rank {rank} of {ranks}: {problem}");
                });
                assert_eq!(streams, 2 * 3 * (ranks - 1));
            }
            assert_eq!(simulation.unsettled(), [], "seed {seed}, {ranks} ranks");
            for (side, meter) in [("sent", sent), ("received", received)] {
                assert_eq!(meter.present(), 0, "seed {seed}, {ranks} ranks: {side}");
                assert!(
                    meter.most() > 0,
                    "seed {seed}, {ranks} ranks: nobody was charged for what was {side}"
                );
            }
        }
    }
}

/// Half of every batch is one text again and again.
#[test]
fn rows_travel_compressed_between_hosts() {
    for seed in seeds(5) {
        let of = |codec| {
            let exchange = Exchange { seed, rounds: 2, streams: 3, rows_log2: 12, codec };
            let Run { mut simulation, outcome, .. } = run(exchange, 3, Weather::CALM, |_| {});
            for outcome in outcome {
                outcome.expect("nobody dies").unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
            }
            assert_eq!(simulation.unsettled(), [], "seed {seed}");
            simulation.ranks.iter().map(|gang| gang.counters().bytes_sent).sum::<u64>()
        };
        let plain = of(None);
        for codec in [Codec::Lz4, Codec::Zstd] {
            let compressed = of(Some(codec));
            assert!(
                compressed < plain * 9 / 10,
                "seed {seed}: {compressed} bytes by {codec:?}, {plain} without"
            );
        }
    }
}

/// A fault at frame 0, 1, 2, … until the exchange is over before it: every stream ends, either as its script says or by the
/// loss of a rank that had to do with the fault, nothing is left, and nobody waits for ever.
#[test]
fn a_fault_at_every_frame() {
    let faults = [
        Fault::Kill(0),
        Fault::Kill(2),
        Fault::Break(1),
        Fault::Cut(0, 1),
        Fault::Cut(1, 2),
        Fault::Stall(1, Duration::from_secs(3)),
        Fault::Stall(2, Duration::from_secs(40)),
    ];
    for seed in seeds(2) {
        for fault in faults {
            let mut fired = 0;
            for frame in 0.. {
                let exchange = Exchange { seed, rounds: 1, streams: 2, rows_log2: 10, codec: None };
                let context = format!("seed {seed}, {fault:?} at frame {frame}");
                let Run { mut simulation, outcome, .. } = run(exchange, 3, Weather::ROUGH, |simulation| {
                    simulation.network.plan(frame, fault);
                });
                if !simulation.network.fired() {
                    break;
                }
                fired += 1;
                for (rank, outcome) in outcome.into_iter().enumerate() {
                    match outcome {
                        None | Some(Ok(_)) => {}
                        Some(Err(Problem::Lost { rank: lost, .. })) => {
                            assert!(may_lose(fault, rank, lost), "{context}: rank {rank} lost {lost}");
                        }
                        Some(Err(Problem::Wrong(what))) => panic!("{context}: rank {rank}: {what}"),
                    }
                }
                assert_eq!(simulation.unsettled(), [], "{context}");
            }
            assert!(fired > 20, "{fault:?} fired only {fired} times");
        }
    }
}

/// Whether `rank` may hold `lost` lost because of `fault`.
fn may_lose(fault: Fault, rank: usize, lost: usize) -> bool {
    match fault {
        // The coordinator's end is everybody's.
        Fault::Kill(0) => true,
        Fault::Kill(dead) => lost == dead,
        // Its own losses are all of them.
        Fault::Break(broken) => rank == broken || lost == broken,
        // The coordinator watches everybody, and is the first to say who is silent.
        Fault::Cut(0, other) => rank == other || lost == other,
        Fault::Cut(one, other) => [one, other].contains(&lost) || [one, other].contains(&rank),
        // Short of the patience of the others.
        Fault::Stall(_, time) if time < Duration::from_secs(4) => false,
        Fault::Stall(still, _) => rank == still || lost == still,
        Fault::Damage(_) => true,
    }
}

/// Whatever a frame is turned into, no rank hangs or panics, and what does arrive as rows is not checked: that is the
/// network's business, as its checksums are.
#[test]
fn damaged_frames_end_something() {
    for seed in seeds(1) {
        for place in 0..64 {
            for frame in (0..60).step_by(7) {
                let exchange = Exchange { seed, rounds: 1, streams: 2, rows_log2: 10, codec: None };
                let Run { mut simulation, .. } = run(exchange, 3, Weather::CALM, |simulation| {
                    simulation.network.plan(frame, Fault::Damage(place));
                });
                assert_eq!(simulation.unsettled(), [], "seed {seed}, byte {place} of frame {frame}");
            }
        }
    }
}
