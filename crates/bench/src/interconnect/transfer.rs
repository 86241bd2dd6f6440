//! Parameters of a transfer: which ranks send to which, over how many streams, in batches of which size.

use std::str::FromStr;

use serde_json::{Value, json};

/// Size of one value: batches have one column of 64-bit integers.
pub const VALUE_BYTES: u64 = 8;

/// Communication pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Rank 0 to rank 1.
    OneToOne,
    /// Rank 0 to all others: a broadcast of a small table.
    OneToMany,
    /// All others to rank 0: a gather.
    ManyToOne,
    /// Each rank to each other one: a redistribution.
    ManyToMany,
}

impl Pattern {
    pub const ALL: [Pattern; 4] =
        [Pattern::OneToOne, Pattern::OneToMany, Pattern::ManyToOne, Pattern::ManyToMany];

    pub fn name(self) -> &'static str {
        match self {
            Pattern::OneToOne => "one-to-one",
            Pattern::OneToMany => "one-to-many",
            Pattern::ManyToOne => "many-to-one",
            Pattern::ManyToMany => "many-to-many",
        }
    }

    /// Number of ranks that take part, of at most `many`.
    pub fn ranks(self, many: usize) -> usize {
        if self == Pattern::OneToOne { 2 } else { many }
    }

    /// Sending and reading rank of each edge. No rank sends to itself.
    pub fn pairs(self, ranks: usize) -> Vec<(usize, usize)> {
        match self {
            Pattern::OneToOne => vec![(0, 1)],
            Pattern::OneToMany => (1..ranks).map(|to| (0, to)).collect(),
            Pattern::ManyToOne => (1..ranks).map(|from| (from, 0)).collect(),
            Pattern::ManyToMany => (0..ranks)
                .flat_map(|from| (0..ranks).filter(move |to| *to != from).map(move |to| (from, to)))
                .collect(),
        }
    }

    /// Ranks that `rank` sends to.
    pub fn readers(self, ranks: usize, rank: usize) -> Vec<usize> {
        self.pairs(ranks).into_iter().filter(|(from, _)| *from == rank).map(|(_, to)| to).collect()
    }

    /// Ranks that send to `rank`.
    pub fn senders(self, ranks: usize, rank: usize) -> Vec<usize> {
        self.pairs(ranks).into_iter().filter(|(_, to)| *to == rank).map(|(from, _)| from).collect()
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Pattern::ALL.into_iter().find(|pattern| pattern.name() == text);
        let names = Pattern::ALL.map(Pattern::name).join(", ");
        found.ok_or_else(|| format!("there is no pattern \"{text}\": {names}"))
    }
}

/// One run, the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub pattern: Pattern,
    /// Streams from each sender to each of its readers.
    pub streams: usize,
    /// Bytes of the values in a batch; a multiple of [`VALUE_BYTES`].
    pub payload_bytes: u64,
    /// Batches of each stream.
    pub batches: u64,
    /// Whether to compare every value in order; otherwise only their sum. Not for timed runs.
    pub compare: bool,
}

impl Transfer {
    pub fn to_json(self) -> Value {
        json!({
            "pattern": self.pattern.name(),
            "streams": self.streams,
            "payload_bytes": self.payload_bytes,
            "batches": self.batches,
            "compare": self.compare,
        })
    }

    /// Errors: a missing or invalid field.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        let number = |key: &str| value[key].as_u64().ok_or_else(|| format!("a transfer has no {key}"));
        Ok(Self {
            pattern: value["pattern"].as_str().unwrap_or_default().parse()?,
            streams: number("streams")? as usize,
            payload_bytes: number("payload_bytes")?,
            batches: number("batches")?,
            compare: value["compare"] == true,
        })
    }

    /// Bytes of all batches of one stream.
    pub fn stream_bytes(&self) -> u64 {
        self.payload_bytes * self.batches
    }

    /// Bytes of all batches of all streams.
    pub fn bytes(&self, ranks: usize) -> u64 {
        self.pattern.pairs(ranks).len() as u64 * self.streams as u64 * self.stream_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_edges() {
        let check = |pattern: Pattern, ranks, pairs: &[(usize, usize)]| {
            assert_eq!(pattern.pairs(ranks), pairs);
            assert_eq!(pattern.name().parse(), Ok(pattern));
        };
        check(Pattern::OneToOne, 4, &[(0, 1)]);
        check(Pattern::OneToMany, 3, &[(0, 1), (0, 2)]);
        check(Pattern::ManyToOne, 3, &[(1, 0), (2, 0)]);
        check(Pattern::ManyToMany, 3, &[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        assert_eq!(Pattern::ManyToMany.readers(3, 1), [0, 2]);
        assert!(Pattern::ManyToOne.senders(3, 1).is_empty());
        assert!("all".parse::<Pattern>().is_err());
    }

    #[test]
    fn bytes_are_those_of_the_values() {
        let transfer = Transfer {
            pattern: Pattern::ManyToMany,
            streams: 2,
            payload_bytes: 1024,
            batches: 10,
            compare: false,
        };
        assert_eq!(transfer.bytes(3), 6 * 2 * 10 * 1024);
        assert_eq!(Transfer::from_json(&transfer.to_json()), Ok(transfer));
        assert!(Transfer::from_json(&json!({"pattern": "one-to-one"})).is_err());
    }
}
