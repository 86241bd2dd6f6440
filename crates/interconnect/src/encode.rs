//! Encodes a record batch once into an aligned block that the receiver can use in place.
//!
//! A batch's payload is its Arrow buffers in pre-order of the schema's fields, each padded to
//! [`BUFFER_ALIGNMENT_BYTES`], followed by a footer of little-endian `u64` words that [`crate::decode`] walks
//! along the schema:
//!
//! ```text
//! │ buffer │pad│ buffer │pad│ … │ word │ word │ … │ word count │
//! ```
//! Every array contributes the words: length, 1 if a validity bitmap follows, then the byte length of each of
//! its buffers. Only the visible part of the batch is copied: slices are trimmed, offsets are rebased to
//! zero, string views are compacted to the bytes they reference, unreferenced dictionary values are dropped.
//!
//! The same walk runs twice: over a sink that counts, so that a block of the right size is allocated once,
//! and over one that writes.

use crate::limits::{BLOCK_BYTES_HARD_MAX, BLOCK_BYTES_MAX, BLOCK_BYTES_TARGET, BUFFER_ALIGNMENT_BYTES};
use arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::{ArrowNativeType, DataType, ToByteSlice, UnionMode};
use arrow::error::ArrowError;
use harrier_mpi::Block;

/// Splits `batch` into row ranges that each fit one block, in order. Most batches are one range.
///
/// Errors: a single row beyond [`BLOCK_BYTES_HARD_MAX`].
pub fn split(batch: RecordBatch) -> Result<Vec<Piece>, ArrowError> {
    let mut pieces = Vec::with_capacity(1);
    split_into(Piece::new(batch)?, &mut pieces)?;
    Ok(pieces)
}

fn split_into(piece: Piece, pieces: &mut Vec<Piece>) -> Result<(), ArrowError> {
    let rows = piece.batch.num_rows();
    if piece.payload_bytes <= BLOCK_BYTES_MAX || rows <= 1 {
        if piece.payload_bytes > BLOCK_BYTES_HARD_MAX {
            return Err(ArrowError::InvalidArgumentError(format!(
                "one row of {} bytes is larger than a motion can carry ({BLOCK_BYTES_HARD_MAX} bytes)",
                piece.payload_bytes
            )));
        }
        pieces.push(piece);
        return Ok(());
    }
    let parts = piece.payload_bytes.div_ceil(BLOCK_BYTES_TARGET).min(rows);
    let rows_each = rows.div_ceil(parts);
    for start in (0..rows).step_by(rows_each) {
        let part = piece.batch.slice(start, rows_each.min(rows - start));
        split_into(Piece::new(part)?, pieces)?;
    }
    Ok(())
}

/// A batch whose encoded size is known.
pub struct Piece {
    batch: RecordBatch,
    columns: Vec<ArrayData>,
    payload_bytes: usize,
}

impl Piece {
    fn new(batch: RecordBatch) -> Result<Piece, ArrowError> {
        let columns: Vec<ArrayData> = batch
            .columns()
            .iter()
            .map(|column| compact(column).map(|c| c.to_data()))
            .collect::<Result<_, _>>()?;
        let mut counter = Counter::default();
        for column in &columns {
            walk(column, 0, column.len(), &mut counter)?;
        }
        let payload_bytes = counter.bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES) + (counter.words + 1) * 8;
        Ok(Piece { batch, columns, payload_bytes })
    }

    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    pub(crate) fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Exact number of bytes that [`Piece::encode`] appends.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Appends the payload to `block`, whose length must be a multiple of [`BUFFER_ALIGNMENT_BYTES`].
    pub fn encode(&self, block: &mut Block) -> Result<(), ArrowError> {
        assert!(block.len().is_multiple_of(BUFFER_ALIGNMENT_BYTES), "payload must start aligned");
        let start = block.len();
        let mut writer = Writer { block, words: Vec::with_capacity(self.columns.len() * 4) };
        for column in &self.columns {
            walk(column, 0, column.len(), &mut writer)?;
        }
        let Writer { block, words } = writer;
        block.pad_to(BUFFER_ALIGNMENT_BYTES);
        for word in words.iter().chain([&(words.len() as u64)]) {
            block.extend_from_slice(&word.to_le_bytes());
        }
        assert_eq!(block.len() - start, self.payload_bytes, "the counting walk and the writing walk differ");
        Ok(())
    }
}

/// Drops unreferenced dictionary values if the dictionary is larger than the rows can need.
fn compact(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.as_any_dictionary_opt() {
        Some(dictionary) if dictionary.values().len() > column.len() => {
            arrow_select::dictionary::garbage_collect_any_dictionary(dictionary)
        }
        _ => Ok(column.clone()),
    }
}

/// Receives the parts found by [`walk`], in the order in which the decoder reads them.
trait Sink {
    fn word(&mut self, word: u64);
    fn bytes(&mut self, bytes: &[u8]);
    fn bits(&mut self, bits: &BooleanBuffer);
    /// Offsets, rebased so that the first is zero.
    fn offsets<O: ArrowNativeType + std::ops::Sub<Output = O>>(&mut self, offsets: &[O]);
    /// Views, compacted: the bytes of all long values that `valid` admits, in order, become one buffer.
    fn views(&mut self, views: &[u128], valid: &dyn Fn(usize) -> bool, has_nulls: bool, data: &[Buffer]);
}

/// Walks `len` rows of `data` from row `from` on. Ranges are passed down instead of slicing the
/// [`ArrayData`]: for structs its own slicing moves both the parent's offset and the children.
fn walk(data: &ArrayData, from: usize, len: usize, sink: &mut impl Sink) -> Result<(), ArrowError> {
    let offset = data.offset() + from;
    let nulls = data.nulls().map(|nulls| nulls.slice(from, len)).filter(|nulls| nulls.null_count() > 0);
    sink.word(len as u64);
    match &nulls {
        Some(nulls) => {
            sink.word(1);
            sink.bits(nulls.inner());
        }
        None => sink.word(0),
    }
    let buffers = data.buffers();
    let children = data.child_data();
    match data.data_type() {
        DataType::Null => {}
        DataType::Boolean => sink.bits(&BooleanBuffer::new(buffers[0].clone(), offset, len)),
        DataType::Utf8 | DataType::Binary => byte_array::<i32>(data, offset, len, sink),
        DataType::LargeUtf8 | DataType::LargeBinary => byte_array::<i64>(data, offset, len, sink),
        DataType::Utf8View | DataType::BinaryView => {
            let views = &buffers[0].typed_data::<u128>()[offset..offset + len];
            let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            sink.views(views, &valid, nulls.is_some(), &buffers[1..]);
        }
        DataType::FixedSizeBinary(width) => {
            let width = *width as usize;
            sink.bytes(&buffers[0].as_slice()[offset * width..(offset + len) * width]);
        }
        DataType::List(_) | DataType::Map(_, _) => {
            let (from, to) = list_offsets::<i32>(data, offset, len, sink);
            walk(&children[0], from, to - from, sink)?;
        }
        DataType::LargeList(_) => {
            let (from, to) = list_offsets::<i64>(data, offset, len, sink);
            walk(&children[0], from, to - from, sink)?;
        }
        DataType::ListView(_) | DataType::LargeListView(_) => {
            let width = if matches!(data.data_type(), DataType::ListView(_)) { 4 } else { 8 };
            for buffer in &buffers[..2] {
                sink.bytes(&buffer.as_slice()[offset * width..(offset + len) * width]);
            }
            walk(&children[0], 0, children[0].len(), sink)?;
        }
        DataType::FixedSizeList(_, width) => {
            let width = *width as usize;
            walk(&children[0], offset * width, len * width, sink)?;
        }
        DataType::Struct(_) => {
            // Arrays convert their structs to ArrayData with the children already sliced.
            assert_eq!(data.offset(), 0, "a struct with an offset of its own");
            for child in children {
                walk(child, from, len, sink)?;
            }
        }
        DataType::Dictionary(key, _) => {
            let width = fixed_width(key)?;
            sink.bytes(&buffers[0].as_slice()[offset * width..(offset + len) * width]);
            walk(&children[0], 0, children[0].len(), sink)?;
        }
        DataType::RunEndEncoded(run_ends, _) => {
            let (ends, first, count) = runs(data, offset, len, run_ends.data_type())?;
            sink.bytes(&ends);
            walk(&children[1], first, count, sink)?;
        }
        DataType::Union(_, mode) => {
            sink.bytes(&buffers[0].as_slice()[offset..offset + len]);
            match mode {
                UnionMode::Dense => {
                    sink.bytes(&buffers[1].as_slice()[offset * 4..(offset + len) * 4]);
                    for child in children {
                        walk(child, 0, child.len(), sink)?;
                    }
                }
                UnionMode::Sparse => {
                    for child in children {
                        walk(child, offset, len, sink)?;
                    }
                }
            }
        }
        other => {
            let width = fixed_width(other)?;
            sink.bytes(&buffers[0].as_slice()[offset * width..(offset + len) * width]);
        }
    }
    Ok(())
}

fn byte_array<O: ArrowNativeType + std::ops::Sub<Output = O>>(
    data: &ArrayData,
    offset: usize,
    len: usize,
    sink: &mut impl Sink,
) {
    let (from, to) = list_offsets::<O>(data, offset, len, sink);
    sink.bytes(&data.buffers()[1].as_slice()[from..to]);
}

/// Writes the rebased offsets of the rows to the sink and returns the range of the child they cover. An empty
/// array may have an empty offsets buffer.
fn list_offsets<O: ArrowNativeType + std::ops::Sub<Output = O>>(
    data: &ArrayData,
    offset: usize,
    len: usize,
    sink: &mut impl Sink,
) -> (usize, usize) {
    let all = data.buffers()[0].typed_data::<O>();
    if all.is_empty() {
        sink.offsets(&[O::default()]);
        return (0, 0);
    }
    let offsets = &all[offset..offset + len + 1];
    sink.offsets(offsets);
    (offsets[0].as_usize(), offsets[len].as_usize())
}

/// The rebased run ends of `len` logical rows from `offset` on, with the first run and the number of runs.
fn runs(
    data: &ArrayData,
    offset: usize,
    len: usize,
    run_end_type: &DataType,
) -> Result<(Vec<u8>, usize, usize), ArrowError> {
    let width = fixed_width(run_end_type)?;
    let run_ends = &data.child_data()[0];
    let bytes = &run_ends.buffers()[0].as_slice()[run_ends.offset() * width..];
    let end = |run: usize| {
        let at = &bytes[run * width..(run + 1) * width];
        match width {
            2 => i16::from_le_bytes(at.try_into().expect("two bytes")) as usize,
            4 => i32::from_le_bytes(at.try_into().expect("four bytes")) as usize,
            _ => i64::from_le_bytes(at.try_into().expect("eight bytes")) as usize,
        }
    };
    let mut ends = Vec::new();
    let (mut first, mut count) = (0, 0);
    if len > 0 {
        first = (0..run_ends.len()).find(|run| end(*run) > offset).unwrap_or(0);
        for run in first..run_ends.len() {
            let rebased = (end(run) - offset).min(len);
            ends.extend_from_slice(&(rebased as i64).to_le_bytes()[..width]);
            count += 1;
            if rebased == len {
                break;
            }
        }
    }
    Ok((ends, first, count))
}

fn fixed_width(data_type: &DataType) -> Result<usize, ArrowError> {
    data_type
        .primitive_width()
        .ok_or_else(|| ArrowError::NotYetImplemented(format!("a motion cannot carry the type {data_type}")))
}

#[derive(Default)]
struct Counter {
    bytes: usize,
    words: usize,
}

impl Counter {
    fn add(&mut self, bytes: usize) {
        self.words += 1;
        self.bytes = self.bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES) + bytes;
    }
}

impl Sink for Counter {
    fn word(&mut self, _: u64) {
        self.words += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len());
    }

    fn bits(&mut self, bits: &BooleanBuffer) {
        self.add(bits.len().div_ceil(8));
    }

    fn offsets<O: ArrowNativeType + std::ops::Sub<Output = O>>(&mut self, offsets: &[O]) {
        self.add(size_of_val(offsets));
    }

    fn views(&mut self, views: &[u128], valid: &dyn Fn(usize) -> bool, has_nulls: bool, data: &[Buffer]) {
        self.add(size_of_val(views));
        let long = match (data.is_empty(), has_nulls) {
            (true, _) => 0,
            (false, false) => views.iter().map(|view| long_bytes(*view)).sum(),
            (false, true) => views
                .iter()
                .enumerate()
                .filter(|(row, _)| valid(*row))
                .map(|(_, view)| long_bytes(*view))
                .sum(),
        };
        self.add(long);
    }
}

struct Writer<'a> {
    block: &'a mut Block,
    words: Vec<u64>,
}

impl Sink for Writer<'_> {
    fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.block.pad_to(BUFFER_ALIGNMENT_BYTES);
        self.block.extend_from_slice(bytes);
        self.words.push(bytes.len() as u64);
    }

    fn bits(&mut self, bits: &BooleanBuffer) {
        let bytes = bits.len().div_ceil(8);
        self.bytes(&bits.sliced().as_slice()[..bytes]);
    }

    fn offsets<O: ArrowNativeType + std::ops::Sub<Output = O>>(&mut self, offsets: &[O]) {
        let first = offsets[0];
        if first == O::default() {
            return self.bytes(offsets.to_byte_slice());
        }
        let rebased: Vec<O> = offsets.iter().map(|offset| *offset - first).collect();
        self.bytes(rebased.to_byte_slice());
    }

    fn views(&mut self, views: &[u128], valid: &dyn Fn(usize) -> bool, has_nulls: bool, data: &[Buffer]) {
        if !has_nulls && (data.is_empty() || views.iter().all(|view| long_bytes(*view) == 0)) {
            self.bytes(views.to_byte_slice());
            return self.bytes(&[]);
        }
        // Two passes over the views: the first writes them with their new offsets, the second appends the
        // bytes.
        let is_long = |row: usize, view: u128| long_bytes(view) > 0 && (!has_nulls || valid(row));
        self.block.pad_to(BUFFER_ALIGNMENT_BYTES);
        let mut next = 0;
        let mut chunk = [0u128; 128];
        for (start, part) in views.chunks(chunk.len()).enumerate().map(|(i, part)| (i * 128, part)) {
            for (at, view) in part.iter().enumerate() {
                chunk[at] = if has_nulls && !valid(start + at) {
                    0
                } else if long_bytes(*view) > 0 {
                    let moved = (*view & u128::from(u64::MAX)) | (u128::from(next as u32) << 96);
                    next += long_bytes(*view);
                    moved
                } else {
                    *view
                };
            }
            self.block.extend_from_slice(chunk[..part.len()].to_byte_slice());
        }
        self.words.push(size_of_val(views) as u64);
        self.block.pad_to(BUFFER_ALIGNMENT_BYTES);
        for (_, view) in views.iter().enumerate().filter(|(row, view)| is_long(*row, **view)) {
            let from = (*view >> 96) as usize;
            let buffer = &data[(*view >> 64) as u32 as usize];
            self.block.extend_from_slice(&buffer.as_slice()[from..from + long_bytes(*view)]);
        }
        self.words.push(next as u64);
    }
}

/// Bytes that a view keeps out of line: its length if above the twelve that fit inline, else 0.
fn long_bytes(view: u128) -> usize {
    let length = view as u32 as usize;
    if length > 12 { length } else { 0 }
}
