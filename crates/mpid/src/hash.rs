//! The hash of a key's bytes: the same in every process, so that all ranks send a key to the same A task. And what keys are compared by: short
//! ones, which most are, as numbers.
//!
//! Source: the multiply-and-fold step of wyhash (Wang Yi, 2019), over eight bytes at a time.

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const ODD: u64 = 0xD6E8_FEB8_6659_FD93;

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Bytes of keys that their fingerprints say whole.
const SHORT_BYTES_MAX: usize = 16;

/// What keys are compared by: with its length, two numbers that say all bytes of a short key, and of a longer one its hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fingerprint {
    pub low: u64,
    pub high: u64,
    pub length: u32,
}

impl PartialEq for Fingerprint {
    /// Without a branch for each of them, of which none could be foreseen.
    #[inline]
    fn eq(&self, other: &Fingerprint) -> bool {
        (self.low ^ other.low) | (self.high ^ other.high) | u64::from(self.length ^ other.length) == 0
    }
}

impl Fingerprint {
    #[inline]
    pub fn of(key: &[u8]) -> Fingerprint {
        let length = key.len();
        let half = |at: usize| u64::from(u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes")));
        // First and last bytes may overlap.
        let (low, high) = match length {
            0 => (0, 0),
            1..=3 => {
                (u64::from(key[0]) << 16 | u64::from(key[length / 2]) << 8 | u64::from(key[length - 1]), 0)
            }
            4..=7 => (half(0), half(length - 4)),
            8..=SHORT_BYTES_MAX => (word(key), word(&key[length - 8..])),
            _ => (hash_of_long(key), 0),
        };
        Fingerprint { low, high, length: u32::try_from(length).unwrap_or(u32::MAX) }
    }

    /// Whether keys of the same fingerprint are equal.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.length as usize <= SHORT_BYTES_MAX
    }

    #[inline]
    pub fn hash(&self) -> u64 {
        match self.is_whole() {
            true => fold(fold(start(self.length as usize) ^ self.low, ODD ^ self.high), SEED),
            false => self.low,
        }
    }

    /// The bytes of a short key, and what `length` says are none of it.
    #[inline]
    fn bytes(&self) -> [u8; SHORT_BYTES_MAX] {
        let length = self.length as usize;
        let mut bytes = [0; SHORT_BYTES_MAX];
        match length {
            0 => {}
            1..=3 => {
                bytes[0] = (self.low >> 16) as u8;
                bytes[length / 2] = (self.low >> 8) as u8;
                bytes[length - 1] = self.low as u8;
            }
            4..=7 => {
                bytes[..4].copy_from_slice(&(self.low as u32).to_le_bytes());
                bytes[length - 4..length].copy_from_slice(&(self.high as u32).to_le_bytes());
            }
            _ => {
                bytes[..8].copy_from_slice(&self.low.to_le_bytes());
                bytes[length - 8..length].copy_from_slice(&self.high.to_le_bytes());
            }
        }
        bytes
    }
}

/// A key that is looked for, or was found.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    pub hash: u64,
    pub print: Fingerprint,
    /// The bytes of a key that is not short.
    pub long: &'k [u8],
}

impl<'k> Key<'k> {
    #[inline]
    pub fn of(bytes: &'k [u8]) -> Key<'k> {
        let print = Fingerprint::of(bytes);
        Key { hash: print.hash(), print, long: if print.is_whole() { &[] } else { bytes } }
    }

    /// Its bytes; those of a short one are written into `room`.
    #[inline]
    pub fn bytes<'b>(&'b self, room: &'b mut Room) -> &'b [u8] {
        if !self.print.is_whole() {
            return self.long;
        }
        room.0 = self.print.bytes();
        &room.0[..self.print.length as usize]
    }
}

/// Where the bytes of a short key have room.
#[derive(Default)]
pub struct Room([u8; SHORT_BYTES_MAX]);

#[inline]
fn start(length: usize) -> u64 {
    SEED ^ (length as u64).wrapping_mul(ODD)
}

fn hash_of_long(key: &[u8]) -> u64 {
    let mut state = start(key.len());
    let mut rest = key;
    while rest.len() > 16 {
        state = fold(state ^ word(rest), ODD ^ word(&rest[8..]));
        rest = &rest[16..];
    }
    // What is left, up to 16 bytes; the last eight may be read a second time.
    let first = if rest.len() >= 8 { word(rest) } else { 0 };
    fold(fold(state ^ first, ODD ^ word(&key[key.len() - 8..])), SEED)
}

/// 64 bits of which each depends on every byte of `key`.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    Fingerprint::of(key).hash()
}

/// One of `parts`, evenly, from the upper bits of a hash; tables use the lower ones.
#[inline]
pub fn part_of(hash: u64, parts: usize) -> usize {
    ((u128::from(hash) * parts as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn fingerprints_say_whole_keys() {
        for length in 0..40usize {
            let key: Vec<u8> = (1..=length as u8).collect();
            let (print, mut room) = (Key::of(&key), Room::default());
            assert_eq!(print.bytes(&mut room), key, "{length}");
            assert_eq!(print.hash, hash(&key));
            assert_eq!(print.print.is_whole(), length <= 16);
            assert_eq!(print.print, Fingerprint::of(&key));
            assert_ne!(print.print, Fingerprint::of(&vec![0; length + 1]));
            for at in 0..length {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert_ne!(print.print, Fingerprint::of(&other), "{length}, {at}");
            }
        }
    }

    #[test]
    fn keys_spread_and_lengths_differ() {
        let mut seen = HashSet::new();
        let mut parts = [0usize; 7];
        let mut slots = [0usize; 8];
        for number in 0..70_000u64 {
            let value = hash(number.to_string().as_bytes());
            assert!(seen.insert(value), "{number}");
            parts[part_of(value, 7)] += 1;
            slots[value as usize % 8] += 1;
        }
        assert!(parts.iter().all(|count| (9_000..11_000).contains(count)), "{parts:?}");
        assert!(slots.iter().all(|count| (8_000..9_500).contains(count)), "{slots:?}");
        // Zero bytes only: nothing but the length tells them apart.
        assert_eq!((0..64).map(|length| hash(&vec![0; length])).collect::<HashSet<_>>().len(), 64);
        // Every byte matters at every length.
        for length in 1..70usize {
            let mut all: HashSet<u64> = (0..length)
                .map(|at| {
                    let mut key = vec![0u8; length];
                    key[at] = 1;
                    hash(&key)
                })
                .collect();
            all.insert(hash(&vec![0; length]));
            assert_eq!(all.len(), length + 1, "{length}");
        }
    }
}
