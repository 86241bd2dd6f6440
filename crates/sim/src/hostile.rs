//! A rank whose peer says anything at all: the frames that reach it follow from arbitrary bytes, for tests
//! and fuzzers.
//!
//! Whatever arrives, the rank neither panics nor hangs; a message that is no frame costs its sender its place
//! in the gang, as does a credit that is not the next of its stream and the return of what was not lent,
//! while a right one does not; and when the sender is gone, nothing is left of what it began or was lent.

use futures::{FutureExt, StreamExt};
use harrier_interconnect::frame::{Header, Kind, decode_loan, decode_words};
use harrier_interconnect::limits::{
    BLOCK_OVERHEAD_BYTES, HEADER_BYTES, SHARED_BYTES_MIN, WINDOW_BYTES_MAX, block_cost,
};
use harrier_interconnect::transport::{
    Arena, Block, Channel, InFlight, Joined, Lending, Progress, Rest, Transport, Window,
};
use harrier_interconnect::{
    BatchReceiver, Departure, Incoming, Interconnect, MessageReceiver, MessageSender, MessageStream, Peer,
    ReadOptions, Service, StreamReceiver, StreamSender,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The membership epoch in which ranks meet.
const EPOCH: u32 = 1;

/// Who says anything at all, to rank 0; rank 2 says nothing.
const HOSTILE: usize = 1;
const RANKS: usize = 3;

/// Frames that one input makes at most: an input of a fuzzer is short, and every frame tells of the ones
/// before.
const FRAMES_MAX: usize = 400;

/// Blocks that one frame is answered with at most: windows are for thousands of small ones.
const ANSWERS_MAX: usize = 20;

/// Frames of a bundle at most.
const BUNDLED_MAX: usize = 4;

/// Addresses of a rank's shared memory, bytes: not much more than the hostile rank may be lent, so that it
/// may be all lent, too.
const ARENA_BYTES: usize = 1 << 22;

/// One in so many blocks, of the first stream of every open, is lent.
const LENT_ONE_IN: usize = 4;

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
    fn message(&mut self, known: &Known) -> Vec<u8> {
        if self.below(8) > 0 {
            return self.frame(known);
        }
        let mut bundle = vec![0; HEADER_BYTES];
        for _ in 0..self.below(BUNDLED_MAX + 1) {
            bundle.extend(self.frame(known));
            bundle.resize(bundle.len().next_multiple_of(HEADER_BYTES), 0);
        }
        let mut header = Header::new(Kind::Bundle, EPOCH, 0);
        header.payload_bytes = (bundle.len() - HEADER_BYTES) as u64;
        bundle[..HEADER_BYTES].copy_from_slice(&header.encode());
        bundle
    }

    fn frame(&mut self, known: &Known) -> Vec<u8> {
        let style = self.below(16);
        match style {
            0 => {
                let length = self.below(2 * HEADER_BYTES);
                return self.bytes(length);
            }
            4 if !known.unread.is_empty() => return self.credit(known),
            5 if !known.lent.is_empty() => {
                let offset = known.lent[self.below(known.lent.len())];
                return frame(Header::new(Kind::Return, EPOCH, 0), &offset.to_le_bytes());
            }
            6 => {
                let mut header = Header::new(Kind::Block, EPOCH, self.number());
                header.flags = Header::FLAG_SHARED;
                header.sequence = self.number();
                header.a = self.number();
                let loan = [self.number(), self.number()].map(u64::to_le_bytes);
                return frame(header, loan.as_flattened());
            }
            _ => {}
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
        let mut message = frame(header, &payload);
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

impl Decisions<'_> {
    /// The next one of a stream that has something to be credited; sometimes the last one again.
    fn credit(&mut self, known: &Known) -> Vec<u8> {
        let at = self.below(known.unread.len());
        let (stream, unread) = known.unread.iter().nth(at).expect("there are more");
        let mut header = Header::new(Kind::Credit, EPOCH, *stream);
        header.sequence = unread.credits - u64::from(unread.credits > 0 && self.below(8) == 0);
        header.a = match self.below(3) {
            0 => unread.bytes,
            _ => self.number().min(unread.bytes),
        };
        frame(header, &[])
    }
}

fn frame(mut header: Header, payload: &[u8]) -> Vec<u8> {
    header.payload_bytes = payload.len() as u64;
    [&header.encode()[..], payload].concat()
}

/// The frames of a message, up to the first that is none.
fn frames(message: &[u8]) -> Vec<Option<(Header, &[u8])>> {
    let Ok(header) = Header::decode(message, EPOCH) else { return vec![None] };
    let mut rest = &message[HEADER_BYTES..];
    if header.kind != Kind::Bundle {
        return vec![Some((header, rest))];
    }
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let header = Header::decode_first(rest, EPOCH).ok().filter(|header| header.kind != Kind::Bundle);
        let Some(header) = header else {
            frames.push(None);
            break;
        };
        let end = HEADER_BYTES + header.payload_bytes as usize;
        frames.push(Some((header, &rest[HEADER_BYTES..end])));
        rest = rest.get(end.next_multiple_of(HEADER_BYTES)..).unwrap_or_default();
    }
    frames
}

/// What the hostile rank knows of what it was sent, and what follows from it for what it says.
#[derive(Default)]
struct Known {
    /// Streams that it has got blocks of, and no end.
    unread: BTreeMap<u64, Unread>,
    /// Where the blocks lie that it was lent and has not given back.
    lent: Vec<u64>,
    /// It has said goodbye: what it says breaks nothing any more.
    left: bool,
}

#[derive(Default)]
struct Unread {
    /// Of the window, what no credit was given for.
    bytes: u64,
    credits: u64,
}

/// What a message has to come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    /// Credits and returns only, all as they should be: nothing comes of them.
    Right,
    /// It costs its sender its place.
    Wrong,
    #[default]
    Open,
}

impl Known {
    fn hear(&mut self, message: &[u8]) {
        for (header, payload) in frames(message).into_iter().flatten() {
            match header.kind {
                Kind::Block if header.flags & Header::FLAG_SCHEMA == 0 => {
                    let mut bytes = payload.len();
                    if header.flags & Header::FLAG_SHARED != 0 {
                        let loan = decode_loan(payload).expect("this rank's are");
                        self.lent.push(loan.offset);
                        bytes = loan.len as usize - HEADER_BYTES;
                    }
                    self.unread.entry(header.stream).or_default().bytes += block_cost(bytes);
                }
                Kind::End | Kind::Fail => drop(self.unread.remove(&header.stream)),
                _ => {}
            }
        }
    }

    fn judge(&mut self, message: &[u8]) -> Verdict {
        if self.left {
            return Verdict::Open;
        }
        let mut verdict = Verdict::Right;
        for frame in frames(message) {
            let Some((header, payload)) = frame else { return Verdict::Wrong };
            match header.kind {
                Kind::Credit => {
                    let Some(unread) = self.unread.get_mut(&header.stream) else {
                        verdict = Verdict::Open;
                        continue;
                    };
                    if header.sequence != unread.credits || header.a == 0 || header.a > unread.bytes {
                        return Verdict::Wrong;
                    }
                    unread.credits += 1;
                    unread.bytes -= header.a;
                }
                Kind::Return => {
                    let Some(offsets) = decode_words(payload) else { return Verdict::Wrong };
                    for offset in offsets {
                        let Some(at) = self.lent.iter().position(|lent| *lent == offset) else {
                            return Verdict::Wrong;
                        };
                        self.lent.swap_remove(at);
                    }
                }
                Kind::Leave => {
                    self.left = true;
                    return Verdict::Open;
                }
                _ => verdict = Verdict::Open,
            }
        }
        verdict
    }
}

/// What the rank is given and asked.
#[derive(Default)]
struct Stage {
    arriving: VecDeque<Vec<u8>>,
    known: Known,
    /// Of the message that arrived last.
    verdict: Verdict,
    /// The hostile rank's process ends.
    ends: bool,
}

struct Endpoint(Arc<Mutex<Stage>>);

impl Transport for Endpoint {
    fn send(&mut self, to: usize, _: Channel, frame: Arc<Block>, _: bool) -> Result<(), String> {
        if to == HOSTILE {
            self.0.lock().known.hear(frame.as_slice());
        }
        Ok(())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let mut stage = self.0.lock();
        let message = stage.arriving.pop_front();
        let moved = message.is_some();
        // Now, not before: what the rank has sent meanwhile counts.
        stage.verdict = message.as_ref().map_or(Verdict::Open, |message| stage.known.judge(message));
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
    let arena = || Arena::create(ARENA_BYTES).expect("shared memory can be had");
    let (arena, hostile_arena) = (arena(), arena());
    let window =
        Window::open(std::process::id(), hostile_arena.descriptor()).expect("it is this process's own");
    // What it lends, or says that it does.
    let mut lies = hostile_arena.allocate(EDGES[5] as usize).expect("there is room");
    lies.extend_from_slice(&input[..input.len().min(EDGES[5] as usize)]);
    let (gang, mut driver) = Interconnect::over(Joined {
        rank: 0,
        peers: (0..RANKS as u32).map(peer).collect(),
        description: String::new(),
        lending: Lending::new(
            Some(Arc::clone(&arena)),
            vec![false, true, false],
            vec![None, Some(window), None],
        ),
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
        let message = decisions.message(&stage.lock().known);
        let understood = Header::decode(&message, EPOCH);
        let departed = gang.departed(HOSTILE).now_or_never();
        let heard = !matches!(departed, Some(Departure::Lost { .. }));
        let left = departed.is_some();
        stage.lock().arriving.push_back(message.clone());
        driver.step();
        let departure = gang.departed(HOSTILE).now_or_never();
        let lost = matches!(departure, Some(Departure::Lost { .. }));
        if !left && let Err(malformed) = understood {
            assert!(lost, "{malformed}, and its sender stays: {message:?}");
        }
        match stage.lock().verdict {
            _ if left => {}
            Verdict::Right => assert!(!lost, "nothing is wrong with {message:?}, but: {departure:?}"),
            Verdict::Wrong => assert!(lost, "it is wrong, and its sender stays: {message:?}"),
            Verdict::Open => {}
        }
        if !heard {
            // Nothing that it says is looked at any more.
            break;
        }
        sending.append(&mut opened.0.lock());
        for (senders, messages) in &mut sending {
            while let Some(Some(_)) = messages.next().now_or_never() {}
            for (stream, sender) in senders.iter_mut().enumerate() {
                for answer in 0..ANSWERS_MAX {
                    let Some(Ok(())) = sender.credit().now_or_never() else { break };
                    let is_lent = stream == 0 && answer % LENT_ONE_IN == 0;
                    let mut block = sender.block_for(if is_lent { SHARED_BYTES_MIN } else { 0 });
                    block.extend_from_slice(b"here");
                    sender.send(0, block);
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
    assert_eq!(arena.lent_to(HOSTILE), 0, "its process has ended");
}
