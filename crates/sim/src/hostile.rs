//! A rank whose peer says anything at all: the frames that reach it follow from arbitrary bytes, for tests and fuzzers.
//!
//! Whatever arrives, the rank neither panics nor hangs; a message that is no frame costs its sender its place in the gang;
//! and when the sender is gone, nothing is left of what it began.

use futures::{FutureExt, StreamExt};
use harrier_interconnect::frame::{Header, Kind};
use harrier_interconnect::limits::{BLOCK_OVERHEAD_BYTES, HEADER_BYTES, WINDOW_BYTES_MAX};
use harrier_interconnect::transport::{Block, Channel, InFlight, Joined, Lending, Progress, Rest, Transport};
use harrier_interconnect::{
    BatchReceiver, Departure, Incoming, Interconnect, MessageReceiver, MessageSender, MessageStream, Peer,
    ReadOptions, Service, StreamReceiver, StreamSender,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The membership epoch in which ranks meet.
const EPOCH: u32 = 1;

/// Who says anything at all, to rank 0; rank 2 says nothing.
const HOSTILE: usize = 1;
const RANKS: usize = 3;

/// Frames that one input makes at most: an input of a fuzzer is short, and every frame tells of the ones before.
const FRAMES_MAX: usize = 400;

/// Blocks that one frame is answered with at most: windows are for thousands of small ones.
const ANSWERS_MAX: usize = 20;

/// Frames of a bundle at most.
const BUNDLED_MAX: usize = 4;

/// Numbers at which something changes.
const EDGES: [u64; 10] = [
    0,
    1,
    BLOCK_OVERHEAD_BYTES,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MAX + 1,
    1 << 16,
    (1 << 16) + 1,
    u32::MAX as u64,
    u64::MAX / 2 + 1,
    u64::MAX,
];

const KINDS: [Kind; 14] = [
    Kind::Open,
    Kind::Block,
    Kind::End,
    Kind::Fail,
    Kind::Credit,
    Kind::Stop,
    Kind::Message,
    Kind::MessagesEnd,
    Kind::Ping,
    Kind::Alive,
    Kind::Leave,
    Kind::Return,
    Kind::Lost,
    Kind::Bundle,
];

/// Takes decisions off the front of the input; zeros when it is used up.
struct Decisions<'a>(&'a [u8]);

impl Decisions<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// Mostly small, as the numbers of a sane peer are.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..200 => u64::from(small % 10),
            edge => EDGES[usize::from(edge) % EDGES.len()],
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// What is sent next; not always a frame.
    fn message(&mut self) -> Vec<u8> {
        if self.below(8) > 0 {
            return self.frame();
        }
        let mut bundle = vec![0; HEADER_BYTES];
        for _ in 0..self.below(BUNDLED_MAX + 1) {
            bundle.extend(self.frame());
            bundle.resize(bundle.len().next_multiple_of(HEADER_BYTES), 0);
        }
        let mut header = Header::new(Kind::Bundle, EPOCH, 0);
        header.payload_bytes = (bundle.len() - HEADER_BYTES) as u64;
        bundle[..HEADER_BYTES].copy_from_slice(&header.encode());
        bundle
    }

    fn frame(&mut self) -> Vec<u8> {
        let style = self.below(16);
        if style == 0 {
            let length = self.below(2 * HEADER_BYTES);
            return self.bytes(length);
        }
        let mut header = Header::new(KINDS[self.below(KINDS.len())], EPOCH, self.number());
        header.flags = if self.below(4) == 0 { self.byte() } else { 0 };
        header.sequence = self.number();
        header.a = self.number();
        let length = match self.below(4) {
            0 => self.below(200),
            1 => 8 * self.below(8),
            _ => 0,
        };
        let payload = self.bytes(length);
        header.payload_bytes = payload.len() as u64;
        let mut message = [&header.encode()[..], &payload].concat();
        match style {
            1 => message.truncate(self.below(message.len() + 1)),
            2 => {
                let place = self.below(message.len());
                message[place] ^= self.byte();
            }
            3 => message.extend_from_slice(&[0; 8]),
            _ => {}
        }
        message
    }
}

/// What the rank is given and asked.
#[derive(Default)]
struct Stage {
    arriving: VecDeque<Vec<u8>>,
    /// The hostile rank's process ends.
    ends: bool,
}

struct Endpoint(Arc<Mutex<Stage>>);

impl Transport for Endpoint {
    fn send(&mut self, _: usize, _: Channel, _: Arc<Block>, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let message = self.0.lock().arriving.pop_front();
        let moved = message.is_some();
        arrived.extend(message.map(|message| {
            let mut block = Block::with_capacity(message.len());
            block.extend_from_slice(&message);
            (HOSTILE, block)
        }));
        Ok(Progress { moved, ..Progress::default() })
    }

    fn in_flight(&self) -> InFlight {
        InFlight::default()
    }

    fn rest(&mut self, _: &Rest<'_>) -> Result<Vec<usize>, String> {
        Ok(if std::mem::take(&mut self.0.lock().ends) { vec![HOSTILE] } else { vec![] })
    }

    fn kill(&mut self, _: usize) -> bool {
        false
    }

    fn lose(&mut self, _: usize) {}

    fn close(self: Box<Self>, _: bool) {}
}

/// What others opened here.
#[derive(Default)]
struct Opened(Mutex<Vec<(Vec<StreamSender>, MessageReceiver)>>);

impl Service for Opened {
    fn open(&self, incoming: Incoming) {
        self.0.lock().push((incoming.senders, incoming.messages));
    }
}

/// What this rank opened there.
enum Reading {
    Batches(BatchReceiver),
    Raw(StreamReceiver),
    Call(MessageSender, MessageStream),
}

impl Reading {
    /// Reads all there is. Returns whether there may be more.
    fn read(&mut self) -> bool {
        loop {
            let ended = match self {
                Reading::Batches(batches) => batches.next().now_or_never().map(|read| read.is_none()),
                Reading::Raw(blocks) => blocks.next().now_or_never().map(|read| read.is_none()),
                Reading::Call(messages, answers) => {
                    messages.send(b"and then?");
                    answers.next().now_or_never().map(|read| read.is_none())
                }
            };
            match ended {
                None => return true,
                Some(true) => return false,
                Some(false) => {}
            }
        }
    }
}

/// Lets a rank hear what follows from `input`.
///
/// Panics: the rank does not do what this module promises.
pub fn attack(input: &[u8]) {
    let mut decisions = Decisions(input);
    let stage = Arc::new(Mutex::new(Stage::default()));
    let peer = |pid| Peer { host: "simulated".to_string(), pid, here: true };
    let (gang, mut driver) = Interconnect::over(Joined {
        rank: 0,
        peers: (0..RANKS as u32).map(peer).collect(),
        description: String::new(),
        lending: Lending::default(),
        transport: Box::new(Endpoint(Arc::clone(&stage))),
    })
    .expect("an eventfd can be had");
    let opened = Arc::new(Opened::default());
    gang.serve(Arc::clone(&opened) as Arc<dyn Service>);
    let mut reading: Vec<Reading> = Vec::new();
    let mut sending: Vec<(Vec<StreamSender>, MessageReceiver)> = Vec::new();
    for _ in 0..FRAMES_MAX {
        if decisions.0.is_empty() {
            break;
        }
        match decisions.below(16) {
            0 => {
                let streams =
                    gang.open(HOSTILE, b"rows", 1 + decisions.below(3), ReadOptions::window(1 << 20));
                let batches = |stream| Reading::Batches(BatchReceiver::new(stream, |_| {}));
                reading.extend(streams.into_iter().map(batches));
            }
            1 => reading.extend(
                gang.open(HOSTILE, b"rows", 1, ReadOptions::window(1 << 20)).into_iter().map(Reading::Raw),
            ),
            2 => {
                let (messages, answers) = gang.call(HOSTILE, b"well?");
                reading.push(Reading::Call(messages, answers));
            }
            3 if !reading.is_empty() => drop(reading.swap_remove(decisions.below(reading.len()))),
            4 if !sending.is_empty() => drop(sending.swap_remove(decisions.below(sending.len()))),
            _ => {}
        }
        let message = decisions.message();
        let understood = Header::decode(&message, EPOCH);
        let departed = gang.departed(HOSTILE).now_or_never();
        let heard = !matches!(departed, Some(Departure::Lost { .. }));
        let left = departed.is_some();
        stage.lock().arriving.push_back(message.clone());
        driver.step();
        if !left && let Err(malformed) = understood {
            let departure = gang.departed(HOSTILE).now_or_never();
            let lost = matches!(departure, Some(Departure::Lost { .. }));
            assert!(lost, "{malformed}, and its sender stays: {message:?}");
        }
        if !heard {
            // Nothing that it says is looked at any more.
            break;
        }
        sending.append(&mut opened.0.lock());
        for (senders, messages) in &mut sending {
            while let Some(Some(_)) = messages.next().now_or_never() {}
            for sender in senders {
                for _ in 0..ANSWERS_MAX {
                    let Some(Ok(())) = sender.send_message(b"here").now_or_never() else { break };
                }
            }
        }
        reading.retain_mut(Reading::read);
    }
    stage.lock().ends = true;
    for _ in 0..4 {
        driver.step();
    }
    drop((reading, sending, std::mem::take(&mut *opened.0.lock())));
    for _ in 0..4 {
        driver.step();
    }
    assert!(gang.ledger().is_clear(), "something is left: {:?}", gang.ledger());
}
