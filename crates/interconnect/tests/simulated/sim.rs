//! Contract of streams over a simulated network: every seed in calm and rough weather, with and without
//! shared memory, and a fault injected at every frame until none fires.
//!
//! `HARRIER_SEED` repeats a run of one seed.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use harrier_interconnect::encode::split;
use harrier_interconnect::limits::{
    BLOCK_BYTES_MAX, BROADCAST_BYTES_MAX, SHARED_BYTES_MIN, block_cost, window_for,
};
use harrier_interconnect::{BatchReceiver, BatchSender, Codec, Incoming, ReadOptions, SendOutcome, Service};
use harrier_sim::contract::{self, Exchange, Meter, Problem, WINDOW_BYTES};
use harrier_sim::{Fault, Simulation, Weather};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Where the ranks are: one of [`Simulation`]'s constructors.
type Start = fn(u64, usize, Weather) -> Simulation;

/// Results of an exchange by rank; `None` for a dead rank.
type Outcome = Vec<Option<Result<usize, Problem>>>;

struct Run {
    simulation: Simulation,
    outcome: Outcome,
    /// The meter of all ranks together.
    sent: Arc<Meter>,
    received: Arc<Meter>,
}

fn run(
    start: Start,
    exchange: Exchange,
    ranks: usize,
    weather: Weather,
    prepare: impl FnOnce(&Simulation),
) -> Run {
    let mut simulation = start(exchange.seed, ranks, weather);
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
                contract::barrier(&gang, done).await;
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

/// Blocks in shared memory that other ranks have borrowed.
fn shared_blocks(simulation: &Simulation) -> u64 {
    simulation.ranks.iter().map(|gang| gang.counters().blocks_lent).sum()
}

#[test]
fn rows_arrive_despite_delays_and_reordering() {
    check_rows_arrive(Simulation::new, false);
}

#[test]
fn rows_arrive_through_shared_memory() {
    check_rows_arrive(Simulation::with_shared_memory, true);
}

fn check_rows_arrive(start: Start, shares: bool) {
    for seed in seeds(30) {
        for (ranks, weather) in [(2, Weather::CALM), (3, Weather::ROUGH), (5, Weather::ROUGH)] {
            let exchange = Exchange { seed, rounds: 2, streams: 3, rows_log2: 12, codec: None };
            let Run { mut simulation, outcome, sent, received } =
                run(start, exchange, ranks, weather, |_| {});
            assert_eq!(shared_blocks(&simulation) > 0, shares, "seed {seed}, {ranks} ranks");
            for (rank, outcome) in outcome.into_iter().enumerate() {
                let streams = outcome.expect("nobody dies").unwrap_or_else(|problem| {
                    panic!("seed {seed}, rank {rank} of {ranks}: {problem}");
                });
                assert_eq!(streams, 2 * 3 * (ranks - 1));
            }
            assert_eq!(simulation.leaks(), [], "seed {seed}, {ranks} ranks");
            // A rank reads one round at a time; the round before may still be stopping at its sender.
            let windows = ranks * (ranks - 1) * 3 * (window_for(3, WINDOW_BYTES) as usize + BLOCK_BYTES_MAX);
            let broadcasts = ranks * (BROADCAST_BYTES_MAX + BLOCK_BYTES_MAX);
            let sides = [("sent", sent, 2 * (windows + broadcasts)), ("received", received, windows)];
            for (side, meter, most) in sides {
                assert_eq!(meter.present(), 0, "seed {seed}, {ranks} ranks: {side}");
                assert!(
                    (1..=most).contains(&meter.peak()),
                    "seed {seed}, {ranks} ranks: {} bytes were {side} and not known to be read",
                    meter.peak()
                );
            }
        }
    }
}

/// Half of every batch is one repeated text.
#[test]
fn frames_between_hosts_are_compressed() {
    for seed in seeds(5) {
        let of = |codec| {
            let exchange = Exchange { seed, rounds: 2, streams: 3, rows_log2: 12, codec };
            let Run { mut simulation, outcome, .. } =
                run(Simulation::on_separate_hosts, exchange, 3, Weather::CALM, |_| {});
            for outcome in outcome {
                outcome.expect("nobody dies").unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
            }
            assert_eq!(simulation.leaks(), [], "seed {seed}");
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

/// Injects a fault at frame 0, 1, 2, … until the exchange completes before it: every stream ends, either as
/// scripted or by the loss of a rank that the fault concerns, nothing leaks, and nothing hangs.
#[test]
fn faults_at_every_frame() {
    assert_eq!(inject_faults(Simulation::new, 10), 0);
}

/// Blocks that a dead rank has borrowed are returned as well.
#[test]
fn faults_at_every_frame_through_shared_memory() {
    let shared_blocks = inject_faults(Simulation::with_shared_memory, 12);
    assert!(shared_blocks > 1000, "only {shared_blocks} blocks were lent");
}

/// Returns how many blocks were shared in all.
fn inject_faults(start: Start, rows_log2: u32) -> u64 {
    let mut blocks_lent = 0;
    let faults = [
        Fault::Kill(0),
        Fault::Kill(2),
        Fault::Break(0),
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
                let exchange = Exchange { seed, rounds: 1, streams: 2, rows_log2, codec: None };
                let context = format!("seed {seed}, {fault:?} at frame {frame}");
                let Run { mut simulation, outcome, .. } =
                    run(start, exchange, 3, Weather::ROUGH, |simulation| {
                        simulation.network.plan(frame, fault);
                    });
                if !simulation.network.fault_fired() {
                    break;
                }
                fired += 1;
                for (rank, outcome) in outcome.into_iter().enumerate() {
                    match outcome {
                        None | Some(Ok(_)) => {}
                        Some(Err(Problem::Lost { rank: lost_rank, .. })) => {
                            assert!(
                                may_report_loss(fault, rank, lost_rank),
                                "{context}: rank {rank} lost {lost_rank}"
                            );
                        }
                        Some(Err(Problem::Wrong(what))) => panic!("{context}: rank {rank}: {what}"),
                    }
                }
                assert_eq!(simulation.leaks(), [], "{context}");
                blocks_lent += shared_blocks(&simulation);
            }
            assert!(fired > 20, "{fault:?} fired only {fired} times");
        }
    }
    blocks_lent
}

/// Whether `rank` may report `lost_rank` as lost because of `fault`.
fn may_report_loss(fault: Fault, rank: usize, lost_rank: usize) -> bool {
    match fault {
        // The coordinator's death ends every rank.
        Fault::Kill(0) => true,
        Fault::Kill(dead) => lost_rank == dead,
        // A broken rank may report any rank as lost.
        Fault::Break(broken) => rank == broken || lost_rank == broken,
        // The coordinator monitors all ranks, and is the first to report a silent one.
        Fault::Cut(0, other) => rank == other || lost_rank == other,
        Fault::Cut(one, other) => [one, other].contains(&lost_rank) || [one, other].contains(&rank),
        // Shorter than the silence timeout.
        Fault::Stall(_, time) if time < Duration::from_secs(4) => false,
        Fault::Stall(still, _) => rank == still || lost_rank == still,
        Fault::Damage(_) => true,
    }
}

/// Whatever a frame is changed into, no rank hangs or panics. Rows that do arrive are not checked: their
/// integrity is the network's task, by its checksums.
#[test]
fn corrupt_frames_end_streams() {
    inject_corruption(Simulation::new, 64);
}

/// Corrupts headers of shared blocks as well, and the offsets that come back.
#[test]
fn corrupt_frames_end_streams_through_shared_memory() {
    inject_corruption(Simulation::with_shared_memory, 80);
}

fn inject_corruption(start: Start, places: usize) {
    let mut ended = 0;
    for seed in seeds(1) {
        for place in 0..places {
            for frame in (0..60).step_by(7) {
                let exchange = Exchange { seed, rounds: 1, streams: 2, rows_log2: 12, codec: None };
                let Run { mut simulation, outcome, .. } =
                    run(start, exchange, 3, Weather::CALM, |simulation| {
                        simulation.network.plan(frame, Fault::Damage(place));
                    });
                assert_eq!(simulation.leaks(), [], "seed {seed}, byte {place} of frame {frame}");
                ended += usize::from(outcome.iter().flatten().any(Result::is_err));
            }
        }
    }
    // Not all bytes of all frames matter, but many do.
    assert!(ended > places / 2, "only {ended} exchanges were ended");
}

/// For slow readers: batches of each stream, and the maximum of rows in one.
const BACKPRESSURE_BATCHES: usize = 100;
const BACKPRESSURE_ROWS_MAX: usize = 2048;

/// Streams from each rank to each other one, and the window of each.
const BACKPRESSURE_STREAMS: usize = 3;
const BACKPRESSURE_WINDOW_BYTES: usize = 64 * 1024;

fn backpressure_batch(rows: usize) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(0..rows as i64);
    RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).expect("the column fits")
}

/// Sends more than windows allow, as fast as backpressure permits.
struct FastSender {
    seed: u64,
    runtime: Handle,
    sent: Arc<Meter>,
}

impl Service for FastSender {
    fn open(&self, incoming: Incoming) {
        for (stream, sender) in incoming.senders.into_iter().enumerate() {
            let mut random = StdRng::seed_from_u64(self.seed ^ ((incoming.from * 16 + stream) as u64) << 32);
            let mut sender = BatchSender::with_budget(sender, Arc::clone(&self.sent) as _);
            self.runtime.spawn(async move {
                for _ in 0..BACKPRESSURE_BATCHES {
                    let batch = backpressure_batch(random.random_range(1..=BACKPRESSURE_ROWS_MAX));
                    if !matches!(sender.send(batch).await, SendOutcome::Sent) {
                        return;
                    }
                }
                sender.finish();
            });
        }
    }
}

/// Reads one stream after the other, slowly, as a merge of consecutive files does: the others wait with full
/// windows.
async fn read_slowly(streams: Vec<BatchReceiver>) -> usize {
    let mut batches = 0;
    for mut stream in streams {
        while let Some(batch) = stream.next().await {
            batch.expect("nothing goes wrong");
            batches += 1;
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
        }
    }
    batches
}

/// Each stream buffers at most its window and one block on either side, whatever readers do: a fifth of the
/// sent bytes or less.
#[test]
fn backpressure_bounds_buffered_bytes() {
    let block_bytes =
        split(backpressure_batch(BACKPRESSURE_ROWS_MAX)).expect("it can be carried")[0].payload_bytes();
    assert!(block_bytes > SHARED_BYTES_MIN, "some blocks are lent");
    let starts: [Start; 3] = [Simulation::new, Simulation::with_shared_memory, Simulation::on_separate_hosts];
    for seed in seeds(3) {
        for (place, start) in starts.into_iter().enumerate() {
            for weather in [Weather::CALM, Weather::ROUGH] {
                let context = format!("seed {seed}, place {place}, {weather:?}");
                let mut simulation = start(seed, 3, weather);
                let runtime = simulation.runtime().handle().clone();
                let meters: Vec<[Arc<Meter>; 2]> =
                    simulation.ranks.iter().map(|_| [Arc::default(), Arc::default()]).collect();
                let reads: Vec<_> = simulation
                    .ranks
                    .iter()
                    .zip(&meters)
                    .map(|(gang, [sent, received])| {
                        let sent = Arc::clone(sent);
                        gang.serve(Arc::new(FastSender { seed, runtime: runtime.clone(), sent }));
                        let others = gang.members().into_iter().filter(|other| *other != gang.rank());
                        let options = ReadOptions {
                            window_bytes: BACKPRESSURE_STREAMS * BACKPRESSURE_WINDOW_BYTES,
                            codec: None,
                            budget: Some(Arc::clone(received) as _),
                        };
                        let streams = others.flat_map(|other| {
                            gang.open(other, b"plenty", BACKPRESSURE_STREAMS, options.clone())
                        });
                        let streams = streams.map(|stream| BatchReceiver::new(stream, |_| {})).collect();
                        runtime.spawn(read_slowly(streams))
                    })
                    .collect();
                let read = simulation.run(async {
                    for read in reads {
                        assert_eq!(
                            read.await.expect("no panic"),
                            2 * BACKPRESSURE_STREAMS * BACKPRESSURE_BATCHES,
                            "{context}"
                        );
                    }
                });
                read.unwrap_or_else(|hang| panic!("{context}: {hang}"));
                assert_eq!(simulation.leaks(), [], "{context}");
                assert_eq!(shared_blocks(&simulation) > 0, place == 1, "{context}");
                let streams = 2 * BACKPRESSURE_STREAMS;
                // Blocks are sent and taken while some of the window is left.
                let window_bytes = BACKPRESSURE_WINDOW_BYTES - 1;
                for [sent, received] in &meters {
                    assert_eq!((sent.present(), received.present()), (0, 0), "{context}");
                    let sent_max = streams * (window_bytes + block_cost(block_bytes) as usize);
                    let received_max = streams * (window_bytes + block_bytes);
                    let carried =
                        streams * BACKPRESSURE_BATCHES * BACKPRESSURE_ROWS_MAX / 2 * size_of::<i64>();
                    assert!(carried > 5 * sent_max, "the windows matter");
                    for (side, most, max) in
                        [("sent", sent.peak(), sent_max), ("received", received.peak(), received_max)]
                    {
                        assert!(most <= max, "{context}: {most} bytes {side}, of {max}");
                        assert!(most > max / 2, "{context}: {most} bytes {side}: nobody waited");
                    }
                }
            }
        }
    }
}
