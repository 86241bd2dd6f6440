//! A fuzz harness of the interconnect: a hostile peer sends a rank frames generated from arbitrary bytes.
//!
//! Whatever arrives, the rank neither panics nor hangs. A malformed message, a credit out of sequence, or the
//! return of a block that was not lent evicts the sender from the gang; valid ones do not. When the sender is
//! gone, no state of its streams or loans remains.

use futures::{FutureExt, StreamExt};
use harrier_interconnect::frame::{Header, Kind, decode_loan, decode_words};
use harrier_interconnect::limits::{
    BLOCK_OVERHEAD_BYTES, HEADER_BYTES, SHARED_BYTES_MIN, WINDOW_BYTES_MAX, block_cost,
};
use harrier_interconnect::transport::{
    Arena, Block, Channel, InFlight, Joined, Lending, Progress, SleepParameters, Transport, Window,
};
use harrier_interconnect::{
    BatchReceiver, Departure, Incoming, Interconnect, MessageReceiver, MessageSender, MessageStream, Peer,
    ReadOptions, Service, StreamReceiver, StreamSender,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The membership epoch of the handshake.
const EPOCH: u32 = 1;

/// The hostile rank, which sends to rank 0; rank 2 is silent.
const HOSTILE: usize = 1;
const RANKS: usize = 3;

/// Frames generated per input at most: fuzzer inputs are short, and every frame depends on the previous ones.
const FRAMES_MAX: usize = 400;

/// Blocks sent in answer to one frame at most: windows allow thousands of small ones.
const ANSWERS_MAX: usize = 20;

/// Frames per bundle at most.
const BUNDLED_MAX: usize = 4;

/// Size of a rank's shared memory, bytes: little more than the hostile rank may borrow, so that it can run
/// out.
const ARENA_BYTES: usize = 1 << 22;

/// One in this many blocks, of the first stream of every open, is lent.
const LENT_ONE_IN: usize = 4;

/// Boundary values.
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

/// Consumes decisions from the input; zeros at its end.
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

    /// Mostly small, as numbers of a valid peer are.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..200 => u64::from(small % 10),
            edge => EDGES[usize::from(edge) % EDGES.len()],
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// The next message; not always a valid frame.
    fn message(&mut self, model: &StreamModel) -> Vec<u8> {
        if self.below(8) > 0 {
            return self.frame(model);
        }
        let mut bundle = vec![0; HEADER_BYTES];
        for _ in 0..self.below(BUNDLED_MAX + 1) {
            bundle.extend(self.frame(model));
            bundle.resize(bundle.len().next_multiple_of(HEADER_BYTES), 0);
        }
        let mut header = Header::new(Kind::Bundle, EPOCH, 0);
        header.payload_bytes = (bundle.len() - HEADER_BYTES) as u64;
        bundle[..HEADER_BYTES].copy_from_slice(&header.encode());
        bundle
    }

    fn frame(&mut self, model: &StreamModel) -> Vec<u8> {
        let style = self.below(16);
        match style {
            0 => {
                let length = self.below(2 * HEADER_BYTES);
                return self.bytes(length);
            }
            4 if !model.unread.is_empty() => return self.credit(model),
            5 if !model.loans.is_empty() => {
                let offset = model.loans[self.below(model.loans.len())];
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
    /// The next credit of a stream that is owed one; sometimes a duplicate.
    fn credit(&mut self, model: &StreamModel) -> Vec<u8> {
        let at = self.below(model.unread.len());
        let (stream, unread) = model.unread.iter().nth(at).expect("there are more");
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

/// Splits a message into frames, up to the first invalid one.
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

/// The state of the streams as the hostile rank sees it; decides which messages are valid.
#[derive(Default)]
struct StreamModel {
    /// Streams that have received blocks and no end.
    unread: BTreeMap<u64, Unread>,
    /// Addresses of blocks lent to the hostile rank and not returned.
    loans: Vec<u64>,
    /// It has said goodbye: further messages are ignored.
    has_left: bool,
}

#[derive(Default)]
struct Unread {
    /// Bytes of the window not credited yet.
    bytes: u64,
    credits: u64,
}

/// The expected effect of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    /// Valid credits and returns only: no effect on the sender.
    Valid,
    /// Evicts its sender.
    Violation,
    #[default]
    Unspecified,
}

impl StreamModel {
    fn observe(&mut self, message: &[u8]) {
        for (header, payload) in frames(message).into_iter().flatten() {
            match header.kind {
                Kind::Block if header.flags & Header::FLAG_SCHEMA == 0 => {
                    let mut bytes = payload.len();
                    if header.flags & Header::FLAG_SHARED != 0 {
                        let loan = decode_loan(payload).expect("this rank's are");
                        self.loans.push(loan.offset);
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
        if self.has_left {
            return Verdict::Unspecified;
        }
        let mut verdict = Verdict::Valid;
        for frame in frames(message) {
            let Some((header, payload)) = frame else { return Verdict::Violation };
            match header.kind {
                Kind::Credit => {
                    let Some(unread) = self.unread.get_mut(&header.stream) else {
                        verdict = Verdict::Unspecified;
                        continue;
                    };
                    if header.sequence != unread.credits || header.a == 0 || header.a > unread.bytes {
                        return Verdict::Violation;
                    }
                    unread.credits += 1;
                    unread.bytes -= header.a;
                }
                Kind::Return => {
                    let Some(offsets) = decode_words(payload) else { return Verdict::Violation };
                    for offset in offsets {
                        let Some(at) = self.loans.iter().position(|lent| *lent == offset) else {
                            return Verdict::Violation;
                        };
                        self.loans.swap_remove(at);
                    }
                }
                Kind::Leave => {
                    self.has_left = true;
                    return Verdict::Unspecified;
                }
                _ => verdict = Verdict::Unspecified,
            }
        }
        verdict
    }
}

/// Messages to deliver and the state observed by the test.
#[derive(Default)]
struct EndpointState {
    arriving: VecDeque<Vec<u8>>,
    model: StreamModel,
    /// Verdict of the message delivered last.
    verdict: Verdict,
    /// The hostile rank's process exits.
    exited: bool,
}

struct Endpoint(Arc<Mutex<EndpointState>>);

impl Transport for Endpoint {
    fn send(&mut self, to: usize, _: Channel, frame: Arc<Block>, _: bool) -> Result<(), String> {
        if to == HOSTILE {
            self.0.lock().model.observe(frame.as_slice());
        }
        Ok(())
    }

    fn progress(&mut self, arrived: &mut Vec<(usize, Block)>) -> Result<Progress, String> {
        let mut endpoint = self.0.lock();
        let message = endpoint.arriving.pop_front();
        let moved = message.is_some();
        // Judged at delivery: frames that the rank has sent meanwhile count.
        endpoint.verdict =
            message.as_ref().map_or(Verdict::Unspecified, |message| endpoint.model.judge(message));
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

    fn sleep(&mut self, _: &SleepParameters<'_>) -> Result<Vec<usize>, String> {
        Ok(if std::mem::take(&mut self.0.lock().exited) { vec![HOSTILE] } else { vec![] })
    }

    fn kill(&mut self, _: usize) -> bool {
        false
    }

    fn lose(&mut self, _: usize) {}

    fn close(self: Box<Self>, _: bool) {}
}

/// Streams that peers opened on this rank.
#[derive(Default)]
struct OpenedStreams(Mutex<Vec<(Vec<StreamSender>, MessageReceiver)>>);

impl Service for OpenedStreams {
    fn open(&self, incoming: Incoming) {
        self.0.lock().push((incoming.senders, incoming.messages));
    }
}

/// Streams that this rank opened on the hostile peer.
enum OpenRead {
    Batches(BatchReceiver),
    Raw(StreamReceiver),
    Call(MessageSender, MessageStream),
}

impl OpenRead {
    /// Drains the stream. Returns whether more may follow.
    fn drain(&mut self) -> bool {
        loop {
            let ended = match self {
                OpenRead::Batches(batches) => batches.next().now_or_never().map(|read| read.is_none()),
                OpenRead::Raw(blocks) => blocks.next().now_or_never().map(|read| read.is_none()),
                OpenRead::Call(messages, answers) => {
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

/// Feeds a rank with messages generated from `input`.
///
/// Panics: the rank violates a property stated in this module's header.
pub fn attack(input: &[u8]) {
    let mut decisions = Decisions(input);
    let endpoint = Arc::new(Mutex::new(EndpointState::default()));
    let peer = |pid| Peer { host: "simulated".to_string(), pid, here: true };
    let arena = || Arena::create(ARENA_BYTES).expect("shared memory can be had");
    let (arena, hostile_arena) = (arena(), arena());
    let window =
        Window::open(std::process::id(), hostile_arena.descriptor()).expect("it is this process's own");
    // Blocks that it lends, or claims to.
    let mut hostile_block = hostile_arena.allocate(EDGES[5] as usize).expect("there is room");
    hostile_block.extend_from_slice(&input[..input.len().min(EDGES[5] as usize)]);
    let (gang, mut driver) = Interconnect::over(Joined {
        rank: 0,
        peers: (0..RANKS as u32).map(peer).collect(),
        description: String::new(),
        lending: Lending::new(
            Some(Arc::clone(&arena)),
            vec![false, true, false],
            vec![None, Some(window), None],
        ),
        transport: Box::new(Endpoint(Arc::clone(&endpoint))),
    })
    .expect("an eventfd can be had");
    let opened = Arc::new(OpenedStreams::default());
    gang.serve(Arc::clone(&opened) as Arc<dyn Service>);
    let mut reading: Vec<OpenRead> = Vec::new();
    let mut sending: Vec<(Vec<StreamSender>, MessageReceiver)> = Vec::new();
    for _ in 0..FRAMES_MAX {
        if decisions.0.is_empty() {
            break;
        }
        match decisions.below(16) {
            0 => {
                let streams =
                    gang.open(HOSTILE, b"rows", 1 + decisions.below(3), ReadOptions::window(1 << 20));
                let batches = |stream| OpenRead::Batches(BatchReceiver::new(stream, |_| {}));
                reading.extend(streams.into_iter().map(batches));
            }
            1 => reading.extend(
                gang.open(HOSTILE, b"rows", 1, ReadOptions::window(1 << 20)).into_iter().map(OpenRead::Raw),
            ),
            2 => {
                let (messages, answers) = gang.call(HOSTILE, b"well?");
                reading.push(OpenRead::Call(messages, answers));
            }
            3 if !reading.is_empty() => drop(reading.swap_remove(decisions.below(reading.len()))),
            4 if !sending.is_empty() => drop(sending.swap_remove(decisions.below(sending.len()))),
            _ => {}
        }
        let message = decisions.message(&endpoint.lock().model);
        let understood = Header::decode(&message, EPOCH);
        let departed = gang.departure(HOSTILE).now_or_never();
        let was_connected = !matches!(departed, Some(Departure::Lost { .. }));
        let left = departed.is_some();
        endpoint.lock().arriving.push_back(message.clone());
        driver.step();
        let departure = gang.departure(HOSTILE).now_or_never();
        let lost = matches!(departure, Some(Departure::Lost { .. }));
        if !left && let Err(malformed) = understood {
            assert!(lost, "{malformed}, and its sender stays: {message:?}");
        }
        match endpoint.lock().verdict {
            _ if left => {}
            Verdict::Valid => assert!(!lost, "nothing is wrong with {message:?}, but: {departure:?}"),
            Verdict::Violation => assert!(lost, "it is wrong, and its sender stays: {message:?}"),
            Verdict::Unspecified => {}
        }
        if !was_connected {
            // Messages after this are ignored.
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
        reading.retain_mut(OpenRead::drain);
    }
    endpoint.lock().exited = true;
    for _ in 0..4 {
        driver.step();
    }
    drop((reading, sending, std::mem::take(&mut *opened.0.lock())));
    for _ in 0..4 {
        driver.step();
    }
    assert!(gang.ledger().is_clear(), "something is left: {:?}", gang.ledger());
    assert_eq!(arena.loans_to(HOSTILE), 0, "its process has ended");
}
