//! Run length encoders: integers (version 2), bytes and bits.
//!
//! Each buffers [`WINDOW`] values and then cuts them into runs. A position in a stream is the start of the
//! last window plus the number of values before it in the present one: readers skip that many values, across
//! as many runs as these are in.

use crate::chunks::{Mark, Stream};

/// Most values of an integer run.
const WINDOW: usize = 512;
/// With fewer values of equal differences, a run of their own does not save the header of the next one.
const EVEN_MIN: usize = 10;
/// Lengths of a SHORT_REPEAT run.
const REPEAT: std::ops::RangeInclusive<usize> = 3..=10;

/// Integer run length encoder, version 2.
#[derive(Debug)]
pub(crate) struct Integers {
    is_signed: bool,
    window: Vec<i64>,
    output: Stream,
}

impl Integers {
    pub fn of_signed() -> Self {
        Self { is_signed: true, window: Vec::new(), output: Stream::default() }
    }

    /// An encoder for non-negative values.
    pub fn of_unsigned() -> Self {
        Self { is_signed: false, window: Vec::new(), output: Stream::default() }
    }

    pub fn push(&mut self, value: i64) {
        debug_assert!(self.is_signed || value >= 0);
        self.window.push(value);
        if self.window.len() == WINDOW {
            self.flush();
        }
    }

    pub fn mark(&self) -> Mark {
        Mark { skip: Some(self.window.len()), ..self.output.mark() }
    }

    /// Bytes in memory; those of the current window are estimated.
    pub fn size(&self) -> usize {
        self.output.len() + self.window.len() * size_of::<i64>()
    }

    /// Returns the encoded stream and resets the encoder.
    pub fn finish(&mut self) -> Stream {
        self.flush();
        std::mem::take(&mut self.output)
    }

    fn flush(&mut self) {
        let window = std::mem::take(&mut self.window);
        let (mut literals, mut at) = (0, 0);
        while at < window.len() {
            let (length, difference) = even(&window[at..]);
            if length >= EVEN_MIN {
                self.literals(&window[literals..at]);
                if difference == 0 && REPEAT.contains(&length) {
                    self.short_repeat(window[at], length);
                } else {
                    self.delta_header(0, length);
                    self.base(window[at]);
                    self.output.varint(zigzag(difference).into());
                }
                at += length;
                literals = at;
            } else {
                // The last value of a run may start the next one.
                at += (length - 1).max(1);
            }
        }
        self.literals(&window[literals..]);
        self.window = window;
        self.window.clear();
    }

    /// Encodes values without a long run of equal differences, as DELTA or DIRECT.
    fn literals(&mut self, values: &[i64]) {
        let Some((first, rest)) = values.split_first() else { return };
        if REPEAT.contains(&values.len()) && rest.iter().all(|value| value == first) {
            return self.short_repeat(*first, values.len());
        }
        let raw = |value: &i64| if self.is_signed { zigzag(*value) } else { *value as u64 };
        let bits = fixed_bits(values.iter().map(raw).fold(0, |all, raw| all | raw));
        if let Some(steps) = steps(values) {
            // Width 0 means equal differences, and width 1 has no code of its own.
            let step_bits = fixed_bits(steps.largest).max(2);
            if step_bits * (values.len() - 2) + 2 * 64 < bits * values.len() {
                self.delta_header(step_bits, values.len());
                self.base(*first);
                self.output.varint(zigzag(steps.first).into());
                let rest = values[1..].windows(2).map(|pair| pair[0].abs_diff(pair[1]));
                return pack(rest, step_bits, &mut self.output);
            }
        }
        let raws = values.iter().map(raw);
        let length = values.len() - 1;
        self.output.push(0x40 | code(bits) << 1 | (length >> 8) as u8);
        self.output.push(length as u8);
        pack(raws, bits, &mut self.output);
    }

    fn short_repeat(&mut self, value: i64, length: usize) {
        let raw = if self.is_signed { zigzag(value) } else { value as u64 };
        let bytes = (8 - raw.leading_zeros() as usize / 8).max(1);
        self.output.push(((bytes - 1) << 3 | (length - REPEAT.start())) as u8);
        self.output.extend(&raw.to_be_bytes()[8 - bytes..]);
    }

    /// Writes the header of a DELTA run. `bits`: 0 means equal differences.
    fn delta_header(&mut self, bits: usize, length: usize) {
        let code = if bits == 0 { 0 } else { code(bits) };
        self.output.push(0xC0 | code << 1 | ((length - 1) >> 8) as u8);
        self.output.push((length - 1) as u8);
    }

    fn base(&mut self, value: i64) {
        let raw = if self.is_signed { zigzag(value) } else { value as u64 };
        self.output.varint(raw.into());
    }
}

/// Returns the length of the leading run (at least one value) of equal differences, and the difference.
fn even(values: &[i64]) -> (usize, i64) {
    let Some(difference) = values.get(1).and_then(|second| second.checked_sub(values[0])) else {
        return (1, 0);
    };
    let more = values.windows(2).skip(1).take_while(|pair| pair[1].checked_sub(pair[0]) == Some(difference));
    (2 + more.count(), difference)
}

struct Steps {
    first: i64,
    /// Absolute value.
    largest: u64,
}

/// Returns the steps of a monotonic run; `None` if the values go up and down, overflow, or are too few for a
/// DELTA run.
fn steps(values: &[i64]) -> Option<Steps> {
    if values.len() < 3 {
        return None;
    }
    // The first step's sign is that of all. Readers differ in how they take 0, and in whether they hold the
    // largest value.
    let first = values[1].checked_sub(values[0]).filter(|first| *first != 0)?;
    let mut largest = first.unsigned_abs();
    for pair in values[1..].windows(2) {
        let step = pair[1].checked_sub(pair[0])?;
        if step != 0 && (step < 0) != (first < 0) {
            return None;
        }
        largest = largest.max(step.unsigned_abs());
    }
    (largest < 1 << 62).then_some(Steps { first, largest })
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The smallest width with a code that holds a value.
fn fixed_bits(value: u64) -> usize {
    match 64 - value.leading_zeros() as usize {
        0 => 1,
        bits @ 1..=24 => bits,
        bits @ 25..=32 => bits.next_multiple_of(2),
        bits => bits.next_multiple_of(8),
    }
}

/// The code of a width that [`fixed_bits`] returned.
fn code(bits: usize) -> u8 {
    match bits {
        1..=24 => bits as u8 - 1,
        25..=32 => (24 + (bits - 26) / 2) as u8,
        _ => (28 + (bits - 40) / 8) as u8,
    }
}

/// Writes values of `bits` bits each, most significant first, padded to a whole byte.
fn pack(values: impl Iterator<Item = u64>, bits: usize, output: &mut Stream) {
    let (mut gathered, mut held) = (0u128, 0);
    for value in values {
        gathered = gathered << bits | u128::from(value);
        held += bits;
        while held >= 8 {
            held -= 8;
            output.push((gathered >> held) as u8);
        }
        gathered &= (1 << held) - 1;
    }
    if held > 0 {
        output.push((gathered << (8 - held)) as u8);
    }
}

/// Byte run length encoder.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    window: Vec<u8>,
    output: Stream,
}

/// Lengths of a run, and of a list of literal bytes.
const RUN: std::ops::RangeInclusive<usize> = 3..=130;
const LITERALS_MAX: usize = 128;

impl Bytes {
    pub fn push(&mut self, byte: u8) {
        self.window.push(byte);
        if self.window.len() == WINDOW {
            self.flush();
        }
    }

    pub fn mark(&self) -> Mark {
        Mark { skip: Some(self.window.len()), ..self.output.mark() }
    }

    pub fn size(&self) -> usize {
        self.output.len() + self.window.len()
    }

    pub fn finish(&mut self) -> Stream {
        self.flush();
        std::mem::take(&mut self.output)
    }

    fn flush(&mut self) {
        let window = std::mem::take(&mut self.window);
        let (mut literals, mut at) = (0, 0);
        while at < window.len() {
            let equal = window[at..].iter().take(*RUN.end()).take_while(|byte| **byte == window[at]).count();
            if RUN.contains(&equal) {
                self.literals(&window[literals..at]);
                self.output.push((equal - RUN.start()) as u8);
                self.output.push(window[at]);
                literals = at + equal;
            }
            at += equal;
        }
        self.literals(&window[literals..]);
        self.window = window;
        self.window.clear();
    }

    fn literals(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(LITERALS_MAX) {
            self.output.push((bytes.len() as u8).wrapping_neg());
            self.output.extend(bytes);
        }
    }
}

/// Bit run length encoder; the first bit is the most significant of its byte.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    byte: u8,
    used: u8,
    bytes: Bytes,
}

impl Bits {
    pub fn push(&mut self, bit: bool) {
        self.byte |= u8::from(bit) << (7 - self.used);
        self.used += 1;
        if self.used == 8 {
            self.flush_byte();
        }
    }

    /// Appends `count` ones.
    pub fn fill(&mut self, mut count: usize) {
        while count > 0 {
            if self.used == 0 && count >= 8 {
                self.bytes.push(0xFF);
                count -= 8;
            } else {
                self.push(true);
                count -= 1;
            }
        }
    }

    fn flush_byte(&mut self) {
        self.bytes.push(std::mem::take(&mut self.byte));
        self.used = 0;
    }

    pub fn mark(&self) -> Mark {
        Mark { bit: Some(self.used), ..self.bytes.mark() }
    }

    pub fn size(&self) -> usize {
        self.bytes.size()
    }

    pub fn finish(&mut self) -> Stream {
        if self.used > 0 {
            self.flush_byte();
        }
        self.bytes.finish()
    }
}
