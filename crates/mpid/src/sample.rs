//! Range partitioner from samples: key ranges with about the same number of pairs, for a global order over
//! all A tasks.

use crate::Datum;
use crate::error::Error;
use crate::runs::KeyOrder;
use crate::world::World;
use std::sync::Arc;

/// Partitions the key order into one range for each A task. The same on every rank. Cheap to clone.
#[derive(Clone)]
pub struct Ranges {
    /// The first key of every range but the first, encoded, in order.
    edges: Arc<Vec<Vec<u8>>>,
}

impl Ranges {
    /// Builds ranges from the samples of all ranks. Collective. More samples make more even ranges; a hundred
    /// per range keep the largest within about a quarter of the mean.
    ///
    /// Keys are in byte order. Errors: a rank is lost.
    pub fn from_samples<K: Datum + ?Sized>(
        world: &World,
        samples: &[impl std::borrow::Borrow<K>],
        ranges: usize,
    ) -> Result<Ranges, Error> {
        assert!(K::BYTE_ORDER, "ranges are made of keys in the order of their bytes");
        let mut mine = Vec::new();
        for sample in samples {
            let mut scratch = Vec::new();
            crate::records::push_pair(&mut mine, sample.borrow().encode(&mut scratch), &[]);
        }
        let mut all: Vec<Vec<u8>> = Vec::new();
        for theirs in world.gather(&mine)? {
            for pair in crate::records::Pairs::new(&theirs) {
                let damaged = |damaged: crate::Damaged| Error::Damaged {
                    rank: world.own_launcher_rank(),
                    message: damaged.to_string(),
                };
                all.push(pair.map_err(damaged)?.0.to_vec());
            }
        }
        all.sort_unstable_by(|left, right| KeyOrder::Bytes.compare(left, right));
        let edges = match all.len() {
            0 => vec![],
            count => (1..ranges).map(|range| all[range * count / ranges].clone()).collect(),
        };
        Ok(Ranges { edges: Arc::new(edges) })
    }

    /// Returns the range of an encoded key.
    pub fn of(&self, key: &[u8]) -> usize {
        self.edges.partition_point(|edge| &edge[..] <= key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_even_and_in_order() {
        let samples: Vec<u32> = (0..1000).map(|at| at * 7919 % 1000).collect();
        let ranges = Ranges::from_samples::<u32>(&World::alone(), &samples, 4).unwrap();
        let mut counts = [0; 4];
        let mut last = 0;
        for key in 0..1000u32 {
            let range = ranges.of(&key.to_be_bytes());
            assert!(range >= last);
            last = range;
            counts[range] += 1;
        }
        assert_eq!(counts, [250; 4]);
        let none = Ranges::from_samples::<u32>(&World::alone(), &[] as &[u32], 4).unwrap();
        assert_eq!(none.of(b"any"), 0);
    }
}
