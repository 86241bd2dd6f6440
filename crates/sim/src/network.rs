//! A deterministic in-process network: every delay and fault follows from a seed and the number of frames
//! sent.
//!
//! Frames of one channel from one rank to another keep their order; all others may be reordered. Nothing is
//! lost unless a rank is killed or a pair is partitioned, as the transport contract requires.

use harrier_interconnect::transport::{Block, Channel, InFlight, Progress, SleepParameters, Transport};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Delays of delivered frames.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Maximum delay of a frame.
    pub delay_max: Duration,
    /// One in this many frames takes a hundred times as long; 0: none.
    pub stragglers: u32,
}

impl Weather {
    /// Zero delay.
    pub const CALM: Weather = Weather { delay_max: Duration::ZERO, stragglers: 0 };
    pub const ROUGH: Weather = Weather { delay_max: Duration::from_millis(2), stragglers: 20 };
}

/// A fault, injected once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rank's process exits.
    Kill(usize),
    /// The rank stalls for this long, then resumes.
    Stall(usize, Duration),
    /// The two ranks are partitioned from each other.
    Cut(usize, usize),
    /// The rank's transport fails.
    Break(usize),
    /// Flips the byte at this offset of the frame being sent.
    Damage(usize),
}

/// Handle shared by the ranks and the test.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

struct State {
    random: StdRng,
    weather: Weather,
    now: Instant,
    ranks: Vec<RankState>,
    /// By receiver, sender and channel.
    lanes: BTreeMap<(usize, usize, usize), VecDeque<QueuedFrame>>,
    cut: BTreeSet<(usize, usize)>,
    frames: u64,
    plan: Option<(u64, Fault)>,
    fault_fired: bool,
}

struct RankState {
    alive: bool,
    broken: bool,
    stalled_until: Instant,
    /// Ranks whose exit was reported to this one.
    exits_reported: BTreeSet<usize>,
}

struct QueuedFrame {
    due: Instant,
    bytes: Vec<u8>,
}

impl Network {
    pub fn new(seed: u64, ranks: usize, weather: Weather) -> Network {
        let now = Instant::now();
        let rank =
            |_| RankState { alive: true, broken: false, stalled_until: now, exits_reported: BTreeSet::new() };
        let state = State {
            random: StdRng::seed_from_u64(seed),
            weather,
            now,
            ranks: (0..ranks).map(rank).collect(),
            lanes: BTreeMap::new(),
            cut: BTreeSet::new(),
            frames: 0,
            plan: None,
            fault_fired: false,
        };
        Network { state: Arc::new(Mutex::new(state)) }
    }

    /// Injects `fault` when the frame with this number, counted from 0, is sent.
    pub fn plan(&self, frame: u64, fault: Fault) {
        self.state.lock().plan = Some((frame, fault));
    }

    /// Whether the planned fault has happened.
    pub fn fault_fired(&self) -> bool {
        self.state.lock().fault_fired
    }

    /// Frames sent so far.
    pub fn frames(&self) -> u64 {
        self.state.lock().frames
    }

    pub fn inject(&self, fault: Fault) {
        self.state.lock().inject(fault);
    }

    pub fn is_alive(&self, rank: usize) -> bool {
        self.state.lock().ranks[rank].alive
    }

    /// Whether the rank is stalled now.
    pub(crate) fn is_stalled(&self, rank: usize) -> bool {
        let state = self.state.lock();
        !state.ranks[rank].alive || state.ranks[rank].stalled_until > state.now
    }

    /// Advances time to the next event, but by no more than `at_most`. Returns the step.
    pub(crate) fn advance_time(&self, at_most: Duration) -> Duration {
        let mut state = self.state.lock();
        let now = state.now;
        let arrivals = state.lanes.values().filter_map(|lane| lane.front()).map(|queued| queued.due);
        let stalls = state.ranks.iter().map(|rank| rank.stalled_until);
        let next = arrivals.chain(stalls).filter(|moment| *moment > now).min();
        let passed = next.map_or(at_most, |next| (next - now).min(at_most));
        state.now += passed;
        passed
    }

    /// A random number below `bound`, from the seed.
    pub(crate) fn draw(&self, bound: usize) -> usize {
        self.state.lock().random.random_range(0..bound)
    }

    pub(crate) fn endpoint(&self, rank: usize) -> Endpoint {
        Endpoint { network: self.clone(), rank }
    }
}

impl State {
    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(rank) => self.ranks[rank].alive = false,
            Fault::Stall(rank, time) => self.ranks[rank].stalled_until = self.now + time,
            Fault::Cut(one, other) => self.cut.extend([(one, other), (other, one)]),
            Fault::Break(rank) => self.ranks[rank].broken = true,
            Fault::Damage(_) => {}
        }
    }

    fn send(&mut self, from: usize, to: usize, channel: Channel, frame: &[u8]) {
        let mut bytes = frame.to_vec();
        if let Some((at, fault)) = self.plan
            && at == self.frames
        {
            self.fault_fired = true;
            self.inject(fault);
            if let Fault::Damage(place) = fault {
                let place = place % bytes.len();
                bytes[place] ^= 0x55;
            }
        }
        self.frames += 1;
        if !self.ranks[from].alive || self.cut.contains(&(from, to)) {
            return;
        }
        let mut delay = self.weather.delay_max.mul_f64(self.random.random());
        if self.weather.stragglers > 0 && self.random.random_ratio(1, self.weather.stragglers) {
            delay *= 100;
        }
        let lane = self.lanes.entry((to, from, channel as usize)).or_default();
        let due = (self.now + delay).max(lane.back().map_or(self.now, |last| last.due));
        lane.push_back(QueuedFrame { due, bytes });
    }

    /// Delivers frames due at `rank`, one frame of each lane in turn.
    fn receive(&mut self, rank: usize) -> Vec<(usize, Block)> {
        let now = self.now;
        let mut arrived = Vec::new();
        for (&(to, from, _), lane) in self.lanes.range_mut((rank, 0, 0)..(rank + 1, 0, 0)) {
            // Frames sent before the partition are lost too.
            if self.cut.contains(&(from, to)) {
                lane.clear();
            }
            if lane.front().is_some_and(|queued| queued.due <= now) {
                let queued = lane.pop_front().expect("there is one");
                let mut block = Block::with_capacity(queued.bytes.len());
                block.extend_from_slice(&queued.bytes);
                arrived.push((from, block));
            }
        }
        arrived
    }
}

/// One rank's end of the network.
pub(crate) struct Endpoint {
    network: Network,
    rank: usize,
}

impl Transport for Endpoint {
    fn send(&mut self, to: usize, channel: Channel, frame: Arc<Block>, _: bool) -> Result<(), String> {
        self.network.state.lock().send(self.rank, to, channel, frame.as_slice());
        Ok(())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let mut state = self.network.state.lock();
        if state.ranks[self.rank].broken {
            return Err("its network is broken".to_string());
        }
        let received = state.receive(self.rank);
        let moved = !received.is_empty();
        arrived.extend(received);
        Ok(Progress { moved, ..Progress::default() })
    }

    fn in_flight(&self) -> InFlight {
        InFlight::default()
    }

    fn sleep(&mut self, _: &SleepParameters<'_>) -> Result<Vec<usize>, String> {
        let mut state = self.network.state.lock();
        let ended: Vec<usize> = (0..state.ranks.len()).filter(|rank| !state.ranks[*rank].alive).collect();
        let exits_reported = &mut state.ranks[self.rank].exits_reported;
        Ok(ended.into_iter().filter(|rank| exits_reported.insert(*rank)).collect())
    }

    fn kill(&mut self, peer: usize) -> bool {
        self.network.state.lock().ranks[peer].alive = false;
        true
    }

    fn lose(&mut self, _: usize) {}

    fn now(&self) -> Instant {
        self.network.state.lock().now
    }

    fn close(self: Box<Self>, _: bool) {}
}
