//! Pool of batches to send, and their verification by the reader.
//!
//! Every rank has the same pool of pseudo-random integers. A stream's batches are consecutive slices of it,
//! starting at an offset of the stream's own and wrapping around, so that making batches costs nothing next
//! to the transport, and a reader knows what to expect.
//!
//! A reader sums every value it gets, as the processing of rows that the figures include, and compares the
//! sum with the expected one. That detects lost, duplicated and damaged values, not swapped ones: for those,
//! an untimed transfer compares value by value.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::transfer::{Transfer, VALUE_BYTES};

/// Size of the pool: larger than a core's L2 cache, so that no transport finds all its data there.
pub const POOL_BYTES: u64 = 8 * 1024 * 1024;

/// Distance between the first batches of streams: a prime, so that streams do not overlap.
const STREAM_DISTANCE: u64 = 127;

/// The pool; identical on every rank.
pub struct Pool {
    values: ScalarBuffer<i64>,
    /// Prefix sums of the values.
    sums: Vec<i64>,
    pub schema: SchemaRef,
}

/// Identity of a stream of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamName {
    pub from: usize,
    pub to: usize,
    /// Index among the streams between the same two ranks.
    pub number: usize,
}

impl Pool {
    pub fn new() -> Self {
        let mut state = 0u64;
        let values: Vec<i64> = (0..POOL_BYTES / VALUE_BYTES).map(|_| split_mix(&mut state) as i64).collect();
        let sum = |sum: &mut i64, value: &i64| {
            *sum = sum.wrapping_add(*value);
            Some(*sum)
        };
        let sums = std::iter::once(0).chain(values.iter().scan(0, sum)).collect();
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        Self { values: values.into(), sums, schema }
    }

    /// Returns the batches of one stream, in order.
    pub fn batches(
        self: &Arc<Self>,
        transfer: &Transfer,
        stream: StreamName,
    ) -> impl Iterator<Item = RecordBatch> + Send + 'static {
        let pool = Arc::clone(self);
        let slices = pool.slices(transfer);
        let rows = (transfer.payload_bytes / VALUE_BYTES) as usize;
        let first = first_slice(stream, slices);
        (0..transfer.batches).map(move |number| {
            let start = ((first + number) % slices) as usize * rows;
            let column = Int64Array::new(pool.values.slice(start, rows), None);
            RecordBatch::try_new(Arc::clone(&pool.schema), vec![Arc::new(column)]).expect("the column fits")
        })
    }

    /// Returns the values of batch `number` of a stream.
    pub fn slice(&self, transfer: &Transfer, stream: StreamName, number: u64) -> &[i64] {
        let slices = self.slices(transfer);
        let rows = (transfer.payload_bytes / VALUE_BYTES) as usize;
        let start = ((first_slice(stream, slices) + number) % slices) as usize * rows;
        &self.values[start..start + rows]
    }

    /// Number of whole slices in the pool.
    fn slices(&self, transfer: &Transfer) -> u64 {
        POOL_BYTES / transfer.payload_bytes
    }
}

fn first_slice(stream: StreamName, slices: u64) -> u64 {
    ((stream.from * 64 + stream.to) * 64 + stream.number) as u64 * STREAM_DISTANCE % slices
}

/// Verifying reader of one stream.
pub struct Reader<'a> {
    pool: &'a Pool,
    transfer: Transfer,
    stream: StreamName,
    sum: i64,
    values: u64,
    /// First differing value, if values are compared.
    difference: Option<u64>,
}

impl<'a> Reader<'a> {
    pub fn new(pool: &'a Pool, transfer: Transfer, stream: StreamName) -> Self {
        Self { pool, transfer, stream, sum: 0, values: 0, difference: None }
    }

    /// Adds a batch. Transports may split batches but must keep their order.
    pub fn take(&mut self, batch: &RecordBatch) {
        match batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>()) {
            Some(column) if column.null_count() == 0 => self.take_values(column.values()),
            _ => self.difference = self.difference.or(Some(self.values)),
        }
    }

    pub fn take_values(&mut self, values: &[i64]) {
        if self.transfer.compare {
            self.compare(values);
        }
        self.sum = self.sum.wrapping_add(sum(values));
        self.values += values.len() as u64;
    }

    fn compare(&mut self, values: &[i64]) {
        let rows = self.transfer.payload_bytes / VALUE_BYTES;
        let (mut at, mut rest) = (self.values, values);
        while !rest.is_empty() && self.difference.is_none() {
            let expected = &self.pool.slice(&self.transfer, self.stream, at / rows)[(at % rows) as usize..];
            let length = expected.len().min(rest.len());
            if expected[..length] != rest[..length] {
                self.difference = Some(at);
            }
            at += length as u64;
            rest = &rest[length..];
        }
    }

    /// Returns the bytes received. Errors: they differ from those sent.
    pub fn finish(self) -> Result<u64, String> {
        let Self { pool, transfer, stream, sum, values, difference } = self;
        let name = format!("stream {} from rank {} to rank {}", stream.number, stream.from, stream.to);
        let bytes = values * VALUE_BYTES;
        if bytes != transfer.stream_bytes() {
            return Err(format!("{name}: {bytes} bytes instead of {}", transfer.stream_bytes()));
        }
        if let Some(at) = difference {
            return Err(format!("{name}: value {at} is not the one that was sent"));
        }
        let slices = pool.slices(&transfer);
        let rows = transfer.payload_bytes / VALUE_BYTES;
        let sum_to = |slice: u64| pool.sums[(slice * rows) as usize];
        let first = first_slice(stream, slices);
        let end = first + transfer.batches;
        let rounds = sum_to(slices).wrapping_mul((end / slices) as i64);
        let expected = rounds.wrapping_add(sum_to(end % slices)).wrapping_sub(sum_to(first));
        match sum == expected {
            true => Ok(bytes),
            false => Err(format!("{name}: the sum of its values is {sum} instead of {expected}")),
        }
    }
}

/// Four independent sums, to avoid a dependency chain.
fn sum(values: &[i64]) -> i64 {
    let mut sums = [0i64; 4];
    let chunks = values.chunks_exact(4);
    let rest = chunks.remainder().iter().fold(0i64, |sum, value| sum.wrapping_add(*value));
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*value);
        }
    }
    sums.into_iter().fold(rest, i64::wrapping_add)
}

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interconnect::transfer::Pattern;

    const STREAM: StreamName = StreamName { from: 1, to: 2, number: 3 };

    fn transfer(payload_bytes: u64, batches: u64, compare: bool) -> Transfer {
        Transfer { pattern: Pattern::ManyToMany, streams: 4, payload_bytes, batches, compare }
    }

    fn read(batches: &[RecordBatch], transfer: Transfer) -> Result<u64, String> {
        let pool = Pool::new();
        let mut reader = Reader::new(&pool, transfer, STREAM);
        batches.iter().for_each(|batch| reader.take(batch));
        reader.finish()
    }

    #[test]
    fn sent_batches_verify_whole_or_sliced() {
        let pool = Arc::new(Pool::new());
        for (payload_bytes, batches) in [(1024, 20_000), (4 * 1024 * 1024, 5), (3000, 7)] {
            let transfer = transfer(payload_bytes, batches, true);
            let whole: Vec<RecordBatch> = pool.batches(&transfer, STREAM).collect();
            assert_eq!(read(&whole, transfer), Ok(payload_bytes * batches));
            let cut: Vec<RecordBatch> = whole
                .iter()
                .flat_map(|batch| [batch.slice(0, 100), batch.slice(100, batch.num_rows() - 100)])
                .collect();
            assert_eq!(read(&cut, transfer), Ok(payload_bytes * batches));
        }
    }

    #[test]
    fn corrupt_batches_are_detected() {
        let pool = Arc::new(Pool::new());
        let mut sent: Vec<RecordBatch> = pool.batches(&transfer(1024, 4, true), STREAM).collect();
        assert!(
            read(&sent[1..], transfer(1024, 4, false)).unwrap_err().contains("3072 bytes instead of 4096")
        );
        sent.swap(1, 2);
        assert_eq!(read(&sent, transfer(1024, 4, false)), Ok(4096));
        assert!(read(&sent, transfer(1024, 4, true)).unwrap_err().contains("value 128 "));
        sent[2] = sent[1].clone();
        assert!(read(&sent, transfer(1024, 4, false)).unwrap_err().contains("the sum"));
    }
}
