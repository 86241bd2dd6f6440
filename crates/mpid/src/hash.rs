//! Hash of a key's bytes: identical in every process, so that all ranks send a key to the same A task.
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

/// Returns 64 bits, each of which depends on every byte of `key`.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    let length = key.len();
    let mut state = SEED ^ (length as u64).wrapping_mul(ODD);
    if length >= 8 {
        let mut rest = key;
        while rest.len() > 16 {
            state = fold(state ^ word(rest), ODD ^ word(&rest[8..]));
            rest = &rest[16..];
        }
        // The remaining bytes, up to 16; the last eight may be read twice.
        let first = if rest.len() >= 8 { word(rest) } else { 0 };
        return fold(fold(state ^ first, ODD ^ word(&key[length - 8..])), SEED);
    }
    let (low, high) = match length {
        4.. => {
            let half =
                |at: usize| u64::from(u32::from_le_bytes(key[at..at + 4].try_into().expect("four bytes")));
            (half(0), half(length - 4))
        }
        1.. => (u64::from(key[0]) << 16 | u64::from(key[length / 2]) << 8 | u64::from(key[length - 1]), 0),
        0 => (0, 0),
    };
    fold(fold(state ^ low, ODD ^ high), SEED)
}

/// Maps a hash evenly to one of `parts`, by its upper bits; tables use the lower ones.
#[inline]
pub fn part_of(hash: u64, parts: usize) -> usize {
    ((u128::from(hash) * parts as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
        // All bytes are zero, so that only the length differs.
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
