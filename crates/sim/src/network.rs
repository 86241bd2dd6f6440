//! A network in one process: every delay and every fault follows from a seed and from the number of frames so
//! far.
//!
//! Frames of one channel from one rank to another keep their order; all others overtake one another. Nothing
//! is lost unless a rank is killed or two are cut off from each other, as the contract of a transport has it.

use harrier_interconnect::transport::{Block, Channel, InFlight, Progress, Rest, Transport};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the network treats frames that it does deliver.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// A frame takes up to this long.
    pub delay_max: Duration,
    /// One in so many frames takes a hundred times as long; 0: none does.
    pub stragglers: u32,
}

impl Weather {
    /// Frames arrive at once.
    pub const CALM: Weather = Weather { delay_max: Duration::ZERO, stragglers: 0 };
    pub const ROUGH: Weather = Weather { delay_max: Duration::from_millis(2), stragglers: 20 };
}

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rank's process ends.
    Kill(usize),
    /// The rank stands still for so long, and then goes on.
    Stall(usize, Duration),
    /// The two ranks do not hear each other any more.
    Cut(usize, usize),
    /// The rank's transport cannot go on.
    Break(usize),
    /// The byte at this place of the frame that is just sent is another.
    Damage(usize),
}

/// Shared by the ranks and by who watches them.
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
    lanes: BTreeMap<(usize, usize, usize), VecDeque<Flying>>,
    cut: BTreeSet<(usize, usize)>,
    frames: u64,
    plan: Option<(u64, Fault)>,
    fired: bool,
}

struct RankState {
    alive: bool,
    broken: bool,
    stalled_until: Instant,
    /// Whose end it has been told.
    told: BTreeSet<usize>,
}

struct Flying {
    due: Instant,
    bytes: Vec<u8>,
}

impl Network {
    pub fn new(seed: u64, ranks: usize, weather: Weather) -> Network {
        let now = Instant::now();
        let rank = |_| RankState { alive: true, broken: false, stalled_until: now, told: BTreeSet::new() };
        let state = State {
            random: StdRng::seed_from_u64(seed),
            weather,
            now,
            ranks: (0..ranks).map(rank).collect(),
            lanes: BTreeMap::new(),
            cut: BTreeSet::new(),
            frames: 0,
            plan: None,
            fired: false,
        };
        Network { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets `fault` happen when the frame with this number, counted from 0, is sent.
    pub fn plan(&self, frame: u64, fault: Fault) {
        self.state.lock().plan = Some((frame, fault));
    }

    /// Whether the planned fault has happened.
    pub fn fired(&self) -> bool {
        self.state.lock().fired
    }

    /// Frames sent so far.
    pub fn frames(&self) -> u64 {
        self.state.lock().frames
    }

    pub fn strike(&self, fault: Fault) {
        self.state.lock().strike(fault);
    }

    pub fn is_alive(&self, rank: usize) -> bool {
        self.state.lock().ranks[rank].alive
    }

    /// Whether the rank does nothing at this moment.
    pub(crate) fn stands_still(&self, rank: usize) -> bool {
        let state = self.state.lock();
        !state.ranks[rank].alive || state.ranks[rank].stalled_until > state.now
    }

    /// Goes on to the next moment in which something happens, but by no more than `at_most`. Returns how far.
    pub(crate) fn pass_time(&self, at_most: Duration) -> Duration {
        let mut state = self.state.lock();
        let now = state.now;
        let arrivals = state.lanes.values().filter_map(|lane| lane.front()).map(|flying| flying.due);
        let stalls = state.ranks.iter().map(|rank| rank.stalled_until);
        let next = arrivals.chain(stalls).filter(|moment| *moment > now).min();
        let passed = next.map_or(at_most, |next| (next - now).min(at_most));
        state.now += passed;
        passed
    }

    /// A number below `bound`, from the seed.
    pub(crate) fn draw(&self, bound: usize) -> usize {
        self.state.lock().random.random_range(0..bound)
    }

    pub(crate) fn endpoint(&self, rank: usize) -> Endpoint {
        Endpoint { network: self.clone(), rank }
    }
}

impl State {
    fn strike(&mut self, fault: Fault) {
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
            self.fired = true;
            self.strike(fault);
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
        lane.push_back(Flying { due, bytes });
    }

    /// What has arrived at `rank`, one frame of each lane in turn.
    fn receive(&mut self, rank: usize) -> Vec<(usize, Block)> {
        let now = self.now;
        let mut arrived = Vec::new();
        for (&(to, from, _), lane) in self.lanes.range_mut((rank, 0, 0)..(rank + 1, 0, 0)) {
            // What was sent before the cut is lost with it.
            if self.cut.contains(&(from, to)) {
                lane.clear();
            }
            if lane.front().is_some_and(|flying| flying.due <= now) {
                let flying = lane.pop_front().expect("there is one");
                let mut block = Block::with_capacity(flying.bytes.len());
                block.extend_from_slice(&flying.bytes);
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

    fn rest(&mut self, _: &Rest<'_>) -> Result<Vec<usize>, String> {
        let mut state = self.network.state.lock();
        let ended: Vec<usize> = (0..state.ranks.len()).filter(|rank| !state.ranks[*rank].alive).collect();
        let told = &mut state.ranks[self.rank].told;
        Ok(ended.into_iter().filter(|rank| told.insert(*rank)).collect())
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
