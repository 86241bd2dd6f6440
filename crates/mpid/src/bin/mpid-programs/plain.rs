//! Single-threaded WordCount without the library: the performance baseline, and the check.

use crate::InOut;
use crate::output::Sums;
use harrier_mpid::{BoxError, hash, input};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The library's hash function, so that the baseline is not slowed down by the standard one.
#[derive(Default)]
struct Fast(u64);

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    fn write_u8(&mut self, _: u8) {}

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

pub fn count(io: &InOut) -> Result<Sums, BoxError> {
    let mut counts: HashMap<Box<[u8]>, u64, BuildHasherDefault<Fast>> = HashMap::default();
    for split in input::splits(&io.input, u64::MAX)? {
        let mut lines = split.lines()?;
        while let Some((_, text)) = lines.next_lines()? {
            for word in words(text) {
                match counts.get_mut(word) {
                    Some(count) => *count += 1,
                    None => {
                        counts.insert(word.into(), 1);
                    }
                }
            }
        }
    }
    let mut sums = Sums::default();
    for (word, count) in counts {
        sums.add(&line(&word, count));
    }
    Ok(sums)
}

pub fn line(word: &[u8], count: u64) -> Vec<u8> {
    [word, b"\t", count.to_string().as_bytes(), b"\n"].concat()
}

pub fn wordcount(io: &InOut) -> Result<String, BoxError> {
    let Sums { lines, checksum } = count(io)?;
    Ok(format!("plain wordcount: {lines} lines, checksum {checksum:016x}"))
}
