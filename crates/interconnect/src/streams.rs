//! Flow-controlled streams: one sending rank to one receiving rank of one motion, each with its own credit
//! window, whose backpressure stops the producer.
//!
//! # Invariants
//! - The opener (the receiving rank) allocates the stream's id; with its rank it identifies the stream on
//!   both sides.
//! - A stream has a window: the bytes of its blocks that may be in flight or unread. A producer sends a block
//!   only while some of the window is left, however little; the block may exceed it. Windows belong to one
//!   stream, so no stream can starve another, and many small blocks fit. Credit returns the bytes that were
//!   read.
//! - Blocks are numbered, and so are credits: one out of sequence is a violation. A credit, a stop or a
//!   message may cross the producer's end on the wire: the stream is then unknown, which is not a violation.
//! - A stream ends exactly once, by one `End` or `Fail` frame of its producer, or by the loss of a rank. An
//!   opener that wants no more sends `Stop`, drops what still arrives, and keeps the stream until the
//!   producer's `End` or `Fail`.
//!
//! ```text
//!  opener     what happens             does               becomes │ producer   what happens     does            becomes
//!  ───────────────────────────────────────────────────────────────┼─────────────────────────────────────────────────────
//!  open       Block                    queue, wake        open    │ open       credit, batch    Block           open
//!  open       block taken              Credit now & then  open    │ open       finish           End             gone
//!  open       End, Fail                queue the end      ended   │ open       fail, drop       Fail            gone
//!  open       receiver dropped         Stop               stopped │ open       next Credit      wake            open
//!  stopped    Block                    drop               stopped │ open       Stop             wake            stopped
//!  stopped    End, Fail                                   gone    │ stopped    finish, drop     End             gone
//!  ended      receiver dropped                            gone    │ any        rank lost        wake            gone
//!  any        rank lost                queue the loss     ended   │ gone       Credit, Stop                     gone
//! ```
//! Any other block, end or credit is a violation: its sender is lost. A call is a stream whose opener also
//! sends messages, each of which wakes the producer's side.
//!
//! # Memory bound
//! An opener holds at most the window plus one block of unread blocks per stream, charged to its [`Budget`];
//! a producer holds as much that the carrier has not sent, and charges its own budget for bytes not known to
//! be read. Messages of a call are not charged: callers send few, which the callee usually takes at once, and
//! the sum of pending ones is bounded ([`MESSAGES_BYTES_MAX`]). Without a receiver they are dropped.
//!
//! # Cancellation
//! Dropping a receiver stops the stream, dropping a sender fails it. Neither blocks.

use crate::codec::Codec;
use crate::counts::{CreditWait, InQueue, StreamCells, StreamCounts};
use crate::error::{Failure, StreamError};
use crate::frame::{Header, Kind};
use crate::limits::*;
use crate::{Body, OpenRequest, Shared};
use bytes::Bytes;
use futures::Stream;
use harrier_error::SqlState;
use harrier_mpi::{Block, Channel};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// A memory budget: charged on the receiving side until blocks are read, on the sending side until they are
/// known to be read.
pub trait Budget: Send + Sync {
    fn grow(&self, bytes: usize);
    fn shrink(&self, bytes: usize);
}

/// The bytes that a producer has charged; released when its stream is gone.
struct Charge {
    budget: Arc<dyn Budget>,
    bytes: u64,
}

impl Charge {
    fn grow(&mut self, bytes: u64) {
        self.budget.grow(bytes as usize);
        self.bytes += bytes;
    }

    fn shrink(&mut self, bytes: u64) {
        self.budget.shrink(bytes as usize);
        self.bytes -= bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.shrink(self.bytes as usize);
    }
}

/// An item that a stream yields to its opener.
#[derive(Debug)]
pub enum Received {
    /// The stream's schema, as Arrow IPC; precedes the first block it describes.
    Schema(Bytes),
    Block {
        rows: usize,
        payload: Bytes,
        /// Codec of the payload.
        codec: Option<Codec>,
    },
}

/// All streams of one rank, both sides.
#[derive(Default)]
pub(crate) struct Table {
    inbound: Mutex<HashMap<u64, Arc<Inbound>>>,
    outbound: Mutex<HashMap<(usize, u64), Arc<Outbound>>>,
}

struct Inbound {
    peer: usize,
    /// Bytes, see [`block_cost`].
    window: u64,
    /// Codec that blocks may use.
    codec: Option<Codec>,
    budget: Option<Arc<dyn Budget>>,
    state: Mutex<InboundState>,
}

#[derive(Default)]
struct InboundState {
    queue: VecDeque<Received>,
    end: Option<Result<(), StreamError>>,
    waker: Option<Waker>,
    stopped: bool,
    /// Bytes of the window taken by the reader and not credited yet.
    uncredited: u64,
    /// Bytes of the window received and not credited yet: less than the window whenever a block arrives.
    unreturned: u64,
    /// Number of blocks received.
    received: u64,
    /// Number of credits sent.
    credits: u64,
    /// The producer's latest counters.
    counts: StreamCounts,
}

struct Outbound {
    /// Bytes, see [`block_cost`].
    window: u64,
    /// Codec that its reader requested.
    codec: Option<Codec>,
    /// Its reader sends messages.
    is_call: bool,
    state: Mutex<OutboundState>,
}

#[derive(Default)]
struct OutboundState {
    /// Bytes of the window in flight or unread, as far as is known here: less than the window when a block
    /// may be sent.
    used: u64,
    /// The same bytes, charged to a budget if there is one.
    charge: Option<Charge>,
    /// Number of credits received.
    credits: u64,
    stopped: bool,
    lost: Option<String>,
    waker: Option<Waker>,
    messages: VecDeque<Bytes>,
    /// Pending message bytes, bounded by [`MESSAGES_BYTES_MAX`].
    message_bytes: u64,
    messages_ended: bool,
    message_waker: Option<Waker>,
}

impl OutboundState {
    fn wake(&mut self) {
        for waker in [self.waker.take(), self.message_waker.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// A frame that breaks the contract of its stream: the peer cannot be trusted any more.
pub(crate) struct Violation(pub String);

impl Table {
    /// Numbers of open streams on this rank: as opener, as producer.
    pub fn open(&self) -> (usize, usize) {
        (self.inbound.lock().len(), self.outbound.lock().len())
    }

    /// Whether no stream is open. Does not wait: false while another thread changes the table.
    pub fn is_idle(&self) -> bool {
        self.inbound.try_lock().is_some_and(|streams| streams.is_empty())
            && self.outbound.try_lock().is_some_and(|streams| streams.is_empty())
    }

    /// The ranks that this rank has a stream with.
    pub fn peers(&self, ranks: usize) -> Vec<bool> {
        let mut peers = vec![false; ranks];
        self.inbound.lock().values().for_each(|stream| peers[stream.peer] = true);
        self.outbound.lock().keys().for_each(|(peer, _)| peers[*peer] = true);
        peers
    }

    pub fn on_block(&self, header: &Header, source: usize, payload: Bytes) -> Result<(), Violation> {
        let Some(stream) = self.inbound.lock().get(&header.stream).cloned() else {
            return Err(Violation(format!("a block of stream {}, which is not open", header.stream)));
        };
        if stream.peer != source {
            return Err(Violation(format!(
                "a block of stream {}, which rank {} feeds",
                header.stream, stream.peer
            )));
        }
        let mut state = stream.state.lock();
        state.counts = header.counts;
        let received = if header.flags & Header::FLAG_SCHEMA != 0 {
            Received::Schema(payload)
        } else {
            if state.end.is_some() || header.sequence != state.received {
                return Err(Violation(format!(
                    "block {} of stream {} after {} of them",
                    header.sequence, header.stream, state.received
                )));
            }
            state.received += 1;
            if state.unreturned >= stream.window {
                return Err(Violation(format!("a block without credit on stream {}", header.stream)));
            }
            state.unreturned += block_cost(payload.len());
            let is_compressed = header.flags & Header::FLAG_COMPRESSED != 0;
            if is_compressed && stream.codec.is_none() {
                return Err(Violation(format!("a compressed block on stream {}", header.stream)));
            }
            let codec = stream.codec.filter(|_| is_compressed);
            Received::Block { rows: header.a as usize, payload, codec }
        };
        if state.stopped {
            return Ok(());
        }
        if let (Some(budget), Received::Block { payload, .. }) = (&stream.budget, &received) {
            budget.grow(payload.len());
        }
        state.queue.push_back(received);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    pub fn on_end(
        &self,
        header: &Header,
        source: usize,
        end: Result<(), StreamError>,
    ) -> Result<(), Violation> {
        let id = header.stream;
        let mut inbound = self.inbound.lock();
        let Some(stream) = inbound.get(&id).filter(|stream| stream.peer == source).cloned() else {
            return Err(Violation(format!("the end of stream {id}, which is not open to it")));
        };
        let mut state = stream.state.lock();
        if end.is_ok() && header.sequence != state.received {
            return Err(Violation(format!(
                "the end of stream {id} after {} blocks, of which {} arrived",
                header.sequence, state.received
            )));
        }
        if state.end.is_some() {
            return Err(Violation(format!("a second end of stream {id}")));
        }
        state.end = Some(end);
        state.counts = header.counts;
        if state.stopped {
            inbound.remove(&id);
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Credits, stops and messages may cross a producer's end on the wire: an unknown stream is not a
    /// violation.
    pub fn on_credit(&self, header: &Header, source: usize) -> Result<(), Violation> {
        let Header { stream: id, sequence, a: bytes, .. } = *header;
        let Some(stream) = self.outbound.lock().get(&(source, id)).cloned() else {
            return Ok(());
        };
        let mut state = stream.state.lock();
        if sequence != state.credits {
            let credits = state.credits;
            return Err(Violation(format!("credit {sequence} of stream {id} after {credits} of them")));
        }
        if bytes == 0 || bytes > state.used {
            let used = state.used;
            return Err(Violation(format!("credit of {bytes} bytes for stream {id}, which used {used}")));
        }
        state.credits += 1;
        state.used -= bytes;
        if let Some(charge) = &mut state.charge {
            charge.shrink(bytes);
        }
        state.wake();
        Ok(())
    }

    pub fn on_stop(&self, source: usize, id: u64) {
        self.with_outbound(source, id, |state| {
            state.stopped = true;
            state.messages_ended = true;
        });
    }

    pub fn on_message(&self, source: usize, id: u64, payload: Bytes) -> Result<(), Violation> {
        let Some(stream) = self.outbound.lock().get(&(source, id)).cloned() else {
            return Ok(());
        };
        if !stream.is_call {
            return Err(Violation(format!("a message on stream {id}, which is no call")));
        }
        let mut state = stream.state.lock();
        if state.messages_ended {
            return Ok(());
        }
        if state.message_bytes >= MESSAGES_BYTES_MAX {
            let waiting = state.messages.len();
            return Err(Violation(format!("one more message on stream {id}, where {waiting} wait")));
        }
        state.message_bytes += block_cost(payload.len());
        state.messages.push_back(payload);
        state.wake();
        Ok(())
    }

    pub fn on_messages_end(&self, source: usize, id: u64) {
        self.with_outbound(source, id, |state| state.messages_ended = true);
    }

    fn with_outbound(&self, source: usize, id: u64, change: impl FnOnce(&mut OutboundState)) {
        if let Some(stream) = self.outbound.lock().get(&(source, id)).cloned() {
            let mut state = stream.state.lock();
            change(&mut state);
            state.wake();
        }
    }

    /// Ends every stream with `rank`.
    pub fn on_lost(&self, rank: usize, reason: &str) {
        self.inbound.lock().retain(|_, stream| {
            if stream.peer != rank {
                return true;
            }
            let mut state = stream.state.lock();
            if state.end.is_none() {
                state.end = Some(Err(StreamError::Lost { rank, reason: reason.to_string() }));
            }
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
            !state.stopped
        });
        self.outbound.lock().retain(|(peer, _), stream| {
            if *peer == rank {
                let mut state = stream.state.lock();
                state.lost = Some(reason.to_string());
                state.messages_ended = true;
                state.wake();
            }
            *peer != rank
        });
    }

    pub fn open_inbound(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        first: u64,
        peer: usize,
        opening: &OpenRequest,
        budget: Option<Arc<dyn Budget>>,
    ) -> Vec<StreamReceiver> {
        let OpenRequest { streams, window, codec, .. } = *opening;
        let mut inbound = self.inbound.lock();
        (first..first + streams as u64)
            .map(|id| {
                let stream = Arc::new(Inbound {
                    peer,
                    window,
                    codec,
                    budget: budget.clone(),
                    state: Mutex::default(),
                });
                inbound.insert(id, Arc::clone(&stream));
                StreamReceiver { shared: Arc::clone(shared), id, stream, finished: false }
            })
            .collect()
    }

    /// The producer's side of an `Open`.
    pub fn open_outbound(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        source: usize,
        header: &Header,
    ) -> Result<(Vec<StreamSender>, MessageReceiver), Violation> {
        let Header { stream: first, a: streams, sequence: window, .. } = *header;
        let ids = match first.checked_add(streams) {
            Some(end) if (1..=STREAMS_PER_OPEN_MAX as u64).contains(&streams) => first..end,
            _ => return Err(Violation(format!("an open of {streams} streams from {first} on"))),
        };
        if !(WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX).contains(&window) {
            return Err(Violation(format!("an open with a window of {window} bytes")));
        }
        let mut outbound = self.outbound.lock();
        if let Some(id) = ids.clone().find(|id| outbound.contains_key(&(source, *id))) {
            return Err(Violation(format!("an open of stream {id}, which is open")));
        }
        let codec = Codec::from_flags(header.flags);
        let is_call = header.flags & Header::FLAG_CALL != 0;
        let mut messages = None;
        let senders = ids
            .map(|id| {
                let stream = Arc::new(Outbound { window, codec, is_call, state: Mutex::default() });
                outbound.insert((source, id), Arc::clone(&stream));
                messages.get_or_insert_with(|| MessageReceiver { stream: Arc::clone(&stream) });
                StreamSender {
                    shared: Arc::clone(shared),
                    to: source,
                    id,
                    stream,
                    blocks: 0,
                    unsignalled_bytes: 0,
                    counts: Arc::default(),
                    credit_wait: CreditWait::default(),
                    ended: false,
                }
            })
            .collect();
        Ok((senders, messages.expect("a stream is opened")))
    }
}

/// The opener's end: yields schema and blocks in the order of sending. Dropping it stops the stream.
pub struct StreamReceiver {
    shared: Arc<Shared>,
    id: u64,
    stream: Arc<Inbound>,
    finished: bool,
}

impl StreamReceiver {
    /// The rank that feeds this stream.
    pub fn peer(&self) -> usize {
        self.stream.peer
    }

    /// The producer's counters as of the last frame that arrived, which may not have been read yet.
    pub fn counts(&self) -> StreamCounts {
        self.stream.state.lock().counts
    }
}

impl Stream for StreamReceiver {
    type Item = Result<Received, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.finished {
            return Poll::Ready(None);
        }
        let stream = Arc::clone(&self.stream);
        let mut state = stream.state.lock();
        match state.queue.pop_front() {
            Some(received) => {
                if let Received::Block { payload, .. } = &received {
                    if let Some(budget) = &stream.budget {
                        budget.shrink(payload.len());
                    }
                    state.uncredited += block_cost(payload.len());
                    // Half a window at a time: a control frame for every block would cost as much as a small
                    // block.
                    if state.end.is_none() && state.uncredited * 2 >= stream.window {
                        let mut header = self.shared.header(Kind::Credit, self.id);
                        header.sequence = state.credits;
                        header.a = state.uncredited;
                        state.credits += 1;
                        state.unreturned -= state.uncredited;
                        state.uncredited = 0;
                        self.shared.send(stream.peer, Channel::Control, header, &[]);
                    }
                }
                Poll::Ready(Some(Ok(received)))
            }
            None => match state.end.clone() {
                Some(end) => {
                    drop(state);
                    self.finished = true;
                    self.shared.table.inbound.lock().remove(&self.id);
                    Poll::Ready(end.err().map(Err))
                }
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        let mut inbound = self.shared.table.inbound.lock();
        let mut state = self.stream.state.lock();
        state.stopped = true;
        for received in state.queue.drain(..) {
            if let (Some(budget), Received::Block { payload, .. }) = (&self.stream.budget, &received) {
                budget.shrink(payload.len());
            }
        }
        if state.end.is_some() {
            inbound.remove(&self.id);
        } else {
            let header = self.shared.header(Kind::Stop, self.id);
            self.shared.send(self.stream.peer, Channel::Control, header, &[]);
        }
    }
}

/// The producer's end. Every exit sends exactly one ending frame: [`StreamSender::finish`],
/// [`StreamSender::fail`], or a failure on drop.
pub struct StreamSender {
    shared: Arc<Shared>,
    to: usize,
    id: u64,
    stream: Arc<Outbound>,
    blocks: u64,
    /// Bytes of frames that the driver was not woken for.
    unsignalled_bytes: usize,
    counts: Arc<StreamCells>,
    credit_wait: CreditWait,
    ended: bool,
}

/// Why a producer should stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The opener wants no more.
    Stopped,
    /// The opener's rank is lost.
    Lost(String),
}

impl StreamSender {
    /// The rank that reads this stream.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Charges `budget` with blocks sent from now on until they are known to be read.
    pub(crate) fn charge_to(&self, budget: Arc<dyn Budget>) {
        self.stream.state.lock().charge = Some(Charge { budget, bytes: 0 });
    }

    /// Codec that its reader requested.
    pub(crate) fn codec(&self) -> Option<Codec> {
        self.stream.codec
    }

    /// Ready when a block may be sent. A producer is polled only after this, so that one without credit does
    /// not run.
    pub fn poll_credit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let mut state = self.stream.state.lock();
        let ready = match closed_reason(&state) {
            Some(closed) => Some(Err(closed)),
            None => (state.used < self.stream.window).then_some(Ok(())),
        };
        let Some(ready) = ready else {
            state.waker = Some(cx.waker().clone());
            drop(state);
            self.credit_wait.begin(&self.counts, &self.shared.counters);
            self.flush();
            return Poll::Pending;
        };
        drop(state);
        self.credit_wait.end(&self.counts, &self.shared.counters);
        Poll::Ready(ready)
    }

    /// Adds to the encode time.
    pub(crate) fn add_encode_time(&self, ns: u64) {
        self.counts.add_encode_time(&self.shared.counters, ns);
    }

    /// See [`StreamSender::poll_credit`]. Cancel-safe.
    pub async fn credit(&mut self) -> Result<(), Closed> {
        std::future::poll_fn(|cx| self.poll_credit(cx)).await
    }

    /// Ready when the reader wants no more. Cancel-safe; shares its waker with [`StreamSender::poll_credit`],
    /// so only one of the two may be awaited at a time.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        let mut state = self.stream.state.lock();
        match closed_reason(&state) {
            Some(closed) => Poll::Ready(closed),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// An empty block with room for `payload_bytes` behind the header.
    pub(crate) fn block(payload_bytes: usize) -> Block {
        let mut block = Block::with_capacity(HEADER_BYTES + payload_bytes);
        block.push_zeros(HEADER_BYTES);
        block
    }

    pub(crate) fn shared_state(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// An empty block with room for `payload_bytes` behind the header, in the memory that reaches this
    /// stream's reader fastest. Its first [`HEADER_BYTES`] bytes are for the header, which is written when it
    /// is sent.
    pub fn block_for(&self, payload_bytes: usize) -> Block {
        self.shared.block_for(self.to, payload_bytes)
    }

    /// Sends `block` (from [`StreamSender::block_for`] or [`crate::Interconnect::block_for`]) for one credit,
    /// which must be available: see [`StreamSender::credit`]. `rows` is passed to the reader with the block.
    pub fn send(&mut self, rows: usize, block: Block) {
        self.send_without_wake(rows, Body::Own(block), false);
        self.flush();
    }

    /// Like [`StreamSender::send`], but the driver may not be woken for it before [`StreamSender::flush`],
    /// the next wait for credit, or the end of the stream. `is_compressed`: with the stream's codec.
    pub(crate) fn send_without_wake(&mut self, rows: usize, body: Body, is_compressed: bool) {
        let bytes = body.payload_bytes();
        let mut state = self.stream.state.lock();
        assert!(state.used < self.stream.window, "a block needs a credit");
        let cost = block_cost(bytes);
        state.used += cost;
        if let Some(charge) = &mut state.charge {
            charge.grow(cost);
        }
        drop(state);
        let mut header = self.shared.header(Kind::Block, self.id);
        header.sequence = self.blocks;
        header.a = rows as u64;
        if is_compressed {
            header.flags |= Header::FLAG_COMPRESSED;
        }
        self.blocks += 1;
        self.shared.queue_block(self.to, header, body, InQueue::new(&self.counts));
        self.unsignalled_bytes += HEADER_BYTES + bytes;
        if self.unsignalled_bytes >= UNSIGNALLED_BYTES_MAX {
            self.flush();
        }
    }

    /// Wakes the driver for frames that it was not woken for yet.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.unsignalled_bytes) > 0 {
            self.shared.wake.wake();
        }
    }

    /// Sends one message of a call, waiting for credit.
    pub async fn send_message(&mut self, message: &[u8]) -> Result<(), Closed> {
        self.credit().await?;
        let mut block = Self::block(message.len());
        block.extend_from_slice(message);
        self.send(0, block);
        Ok(())
    }

    /// Sends the schema of the blocks that follow. Takes no credit.
    pub(crate) fn send_schema(&mut self, schema: &[u8]) {
        let mut header = self.shared.header(Kind::Block, self.id);
        header.flags = Header::FLAG_SCHEMA;
        self.shared.send(self.to, Channel::Data, header, schema);
    }

    /// Ends the stream successfully.
    pub fn finish(mut self) {
        let mut header = self.shared.header(Kind::End, self.id);
        header.sequence = self.blocks;
        self.close(header, &[]);
    }

    /// Ends the stream with a failure that its opener receives.
    pub fn fail(mut self, failure: &Failure) {
        let header = self.shared.header(Kind::Fail, self.id);
        self.close(header, &failure.encode());
    }

    fn close(&mut self, header: Header, payload: &[u8]) {
        self.ended = true;
        self.shared.table.outbound.lock().remove(&(self.to, self.id));
        self.credit_wait.end(&self.counts, &self.shared.counters);
        let mut state = self.stream.state.lock();
        // The opener relies on the end of stream that nothing is charged any more.
        state.charge = None;
        let is_lost = state.lost.is_some();
        drop(state);
        if !is_lost {
            let frame = self.shared.frame(header, payload);
            self.shared.queue(self.to, Channel::Data, frame, Some(InQueue::new(&self.counts)));
        }
    }
}

fn closed_reason(state: &OutboundState) -> Option<Closed> {
    match &state.lost {
        Some(reason) => Some(Closed::Lost(reason.clone())),
        None => state.stopped.then_some(Closed::Stopped),
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        if !self.ended {
            let failure = Failure::new(SqlState::INTERNAL_ERROR, "the producer of a motion went away");
            let header = self.shared.header(Kind::Fail, self.id);
            self.close(header, &failure.encode());
        }
    }
}

/// The messages of a call on the callee's side. Ends when the caller ends them, stops the call or is lost.
/// Messages that arrive after it was dropped are discarded.
pub struct MessageReceiver {
    stream: Arc<Outbound>,
}

impl Stream for MessageReceiver {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.stream.state.lock();
        if let Some(message) = state.messages.pop_front() {
            state.message_bytes -= block_cost(message.len());
            return Poll::Ready(Some(message));
        }
        if state.messages_ended {
            return Poll::Ready(None);
        }
        state.message_waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        let mut state = self.stream.state.lock();
        state.messages_ended = true;
        state.message_bytes = 0;
        let unread = std::mem::take(&mut state.messages);
        drop(state);
        drop(unread);
    }
}

/// The caller's side of a call's messages. Dropping it ends them.
pub struct MessageSender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) to: usize,
    pub(crate) id: u64,
}

impl MessageSender {
    /// Queues one message. Never blocks. The callee takes messages as they come; a caller with more than
    /// [`MESSAGES_BYTES_MAX`] of pending messages is declared lost.
    pub fn send(&self, message: &[u8]) {
        let header = self.shared.header(Kind::Message, self.id);
        self.shared.send(self.to, Channel::Control, header, message);
    }
}

impl Drop for MessageSender {
    fn drop(&mut self) {
        let header = self.shared.header(Kind::MessagesEnd, self.id);
        self.shared.send(self.to, Channel::Control, header, &[]);
    }
}

/// The answers of a call as plain bytes.
pub struct MessageStream(pub(crate) StreamReceiver);

impl Stream for MessageStream {
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll_next(cx)).map(|received| {
            received.map(|received| match received {
                Received::Schema(payload) | Received::Block { payload, .. } => payload,
            })
        }))
    }
}
