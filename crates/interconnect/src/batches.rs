//! Streams of record batches: an encoder on top of [`StreamSender`], a decoder on top of [`StreamReceiver`].

use crate::broadcast::{Broadcast, EncodedPiece, Position, Share};
use crate::counts::StreamCounts;
use crate::encode::split;
use crate::error::{Failure, StreamError};
use crate::limits::HEADER_BYTES;
use crate::streams::{Budget, Closed, Received, StreamReceiver, StreamSender};
use crate::{Body, decode, encode};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// Sends batches over one stream.
pub struct BatchSender {
    /// Dropped before the end of stream is announced, since its observers rely on the charged bytes.
    share: Option<Share>,
    sender: StreamSender,
    schema: Option<SchemaRef>,
    /// Number of batches sent.
    batches: u64,
}

/// The outcome of sending a batch.
#[derive(Debug)]
pub enum SendOutcome {
    Sent,
    /// The reader wants no more.
    Closed(Closed),
    /// The batch cannot be encoded.
    Unfit(ArrowError),
}

impl BatchSender {
    pub fn new(sender: StreamSender) -> Self {
        BatchSender { share: None, sender, schema: None, batches: 0 }
    }

    /// A sender that charges `budget` with unacknowledged bytes.
    pub fn with_budget(sender: StreamSender, budget: Arc<dyn Budget>) -> Self {
        sender.charge_to(budget);
        Self::new(sender)
    }

    /// Declares that the other streams of `broadcast` send the same batches in the same order, so that each
    /// is encoded once.
    pub fn with_broadcast(mut self, broadcast: Arc<Broadcast>) -> Self {
        self.share = Some(Share::of(broadcast));
        self
    }

    /// Waits for credit before a batch is produced. Cancel-safe.
    pub async fn credit(&mut self) -> Result<(), Closed> {
        self.sender.credit().await
    }

    /// Wakes the driver for frames that it was not woken for yet. Call it before waiting for anything other
    /// than this sender: small batches are delayed until there are many of them, or the sender waits for
    /// credit, or ends.
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Ready when the reader wants no more.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        self.sender.poll_closed(cx)
    }

    /// Encodes `batch` into blocks and sends them, waiting for a credit for each. See [`BatchSender::flush`].
    pub async fn send(&mut self, batch: RecordBatch) -> SendOutcome {
        let start = Instant::now();
        let schema = batch.schema();
        if self.schema.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &schema) && *known != schema) {
            self.sender.send_schema(&schema_bytes(&schema));
        }
        self.schema = Some(schema);
        let pieces = match split(batch) {
            Ok(pieces) => pieces,
            Err(error) => return SendOutcome::Unfit(error),
        };
        self.sender.add_encode_time(start.elapsed().as_nanos() as u64);
        for (at, piece) in pieces.iter().enumerate() {
            if let Err(closed) = self.sender.credit().await {
                return SendOutcome::Closed(closed);
            }
            if let Err(error) = self.send_piece((self.batches, at), piece) {
                return SendOutcome::Unfit(error);
            }
        }
        self.batches += 1;
        SendOutcome::Sent
    }

    fn send_piece(&mut self, place: Position, piece: &encode::Piece) -> Result<(), ArrowError> {
        let start = Instant::now();
        let (body, is_compressed) = match &self.share {
            Some(share) => {
                let shared = self.sender.shared_state();
                let gathered = share.get_or_encode(place, piece, || EncodedPiece::new(shared, piece))?;
                gathered.body(&self.sender)
            }
            None => {
                let mut block = self.sender.block_for(piece.payload_bytes());
                piece.encode(&mut block)?;
                let payload = &block.as_slice()[HEADER_BYTES..];
                let compressed = self.sender.codec().and_then(|codec| codec.compress(payload));
                let is_compressed = compressed.is_some();
                (Body::Own(compressed.unwrap_or(block)), is_compressed)
            }
        };
        // Before it is sent: the block's header carries the total.
        self.sender.add_encode_time(start.elapsed().as_nanos() as u64);
        self.sender.send_without_wake(piece.rows(), body, is_compressed);
        Ok(())
    }

    pub fn finish(self) {
        drop(self.share);
        self.sender.finish();
    }

    pub fn fail(self, failure: &Failure) {
        drop(self.share);
        self.sender.fail(failure);
    }
}

fn schema_bytes(schema: &SchemaRef) -> Vec<u8> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options)
        .ipc_message
}

/// Reads batches from one stream. Dropping it stops the stream.
pub struct BatchReceiver {
    receiver: StreamReceiver,
    schema: Option<SchemaRef>,
    on_batch: Box<dyn FnMut(Arrival) + Send>,
}

/// An event that the receiver reports for metrics.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// `sent`: the producer's counters so far.
    Batch {
        bytes: usize,
        decode_ns: u64,
        sent: StreamCounts,
    },
    End {
        sent: StreamCounts,
    },
}

impl BatchReceiver {
    /// `on_batch` is called for every batch and once at the end, whether the stream succeeded or failed.
    pub fn new(receiver: StreamReceiver, on_batch: impl FnMut(Arrival) + Send + 'static) -> Self {
        BatchReceiver { receiver, schema: None, on_batch: Box::new(on_batch) }
    }

    fn malformed_error(&self, error: impl std::fmt::Display) -> StreamError {
        StreamError::Malformed { rank: self.receiver.peer(), reason: error.to_string() }
    }
}

impl Stream for BatchReceiver {
    type Item = Result<RecordBatch, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.receiver).poll_next(cx)) {
                None => {
                    let sent = self.receiver.counts();
                    (self.on_batch)(Arrival::End { sent });
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    let sent = self.receiver.counts();
                    (self.on_batch)(Arrival::End { sent });
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(Received::Schema(payload))) => {
                    match arrow::ipc::convert::try_schema_from_flatbuffer_bytes(&payload) {
                        Ok(schema) => self.schema = Some(Arc::new(schema)),
                        Err(error) => return Poll::Ready(Some(Err(self.malformed_error(error)))),
                    }
                }
                Some(Ok(Received::Block { rows, payload, codec })) => {
                    let start = Instant::now();
                    let Some(schema) = &self.schema else {
                        return Poll::Ready(Some(Err(self.malformed_error("a block before its schema"))));
                    };
                    let decoded = match codec.map_or(Ok(payload.clone()), |codec| codec.decompress(&payload))
                    {
                        Ok(unpacked) => decode::decode(schema, rows, &unpacked),
                        Err(error) => return Poll::Ready(Some(Err(self.malformed_error(error)))),
                    };
                    let decode_ns = start.elapsed().as_nanos() as u64;
                    let sent = self.receiver.counts();
                    (self.on_batch)(Arrival::Batch { bytes: payload.len(), decode_ns, sent });
                    return Poll::Ready(Some(decoded.map_err(|error| self.malformed_error(error))));
                }
            }
        }
    }
}
