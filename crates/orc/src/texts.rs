//! Text columns: dictionary-encoded per stripe while that saves bytes, else direct.

use std::hash::{BuildHasher, RandomState};

use crate::chunks::{Mark, Stream};
use crate::proto::{ColumnEncoding, EncodingKind, StreamKind};
use crate::rle::Integers;

/// A larger dictionary saves little and takes memory.
const DICTIONARY_BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Texts {
    bytes: Stream,
    lengths: Integers,
    /// Positions of the row groups in `bytes` and `lengths`.
    marks: Vec<[Mark; 2]>,
    /// The dictionary of the current stripe.
    dictionary: Option<Dictionary>,
    /// Whether the next stripe starts with a dictionary.
    tries_dictionary: bool,
}

/// An encoded text column of a stripe.
pub(crate) struct EncodedTexts {
    pub encoding: ColumnEncoding,
    pub streams: Vec<(StreamKind, Stream)>,
    /// By row group, in the order in which readers expect them.
    pub marks: Vec<Vec<(StreamKind, Mark)>>,
}

impl Texts {
    pub fn new() -> Self {
        Self {
            bytes: Stream::default(),
            lengths: Integers::of_unsigned(),
            marks: Vec::new(),
            dictionary: Some(Dictionary::default()),
            tries_dictionary: true,
        }
    }

    pub fn push(&mut self, value: &[u8]) {
        match &mut self.dictionary {
            Some(dictionary) => {
                dictionary.push(value);
                if dictionary.text.len() > DICTIONARY_BYTES_MAX {
                    self.abandon_dictionary();
                }
            }
            None => self.append(value),
        }
    }

    fn append(&mut self, value: &[u8]) {
        self.bytes.extend(value);
        self.lengths.push(value.len() as i64);
    }

    pub fn begin_group(&mut self) {
        if self
            .dictionary
            .as_ref()
            .is_some_and(|dictionary| !dictionary.groups.is_empty() && !dictionary.pays())
        {
            self.abandon_dictionary();
        }
        match &mut self.dictionary {
            Some(dictionary) => dictionary.groups.push(dictionary.places.len()),
            None => self.marks.push([self.bytes.mark(), self.lengths.mark()]),
        }
    }

    /// Abandons the dictionary: writes its rows out directly.
    fn abandon_dictionary(&mut self) {
        let Some(dictionary) = self.dictionary.take() else { return };
        self.tries_dictionary &= dictionary.places.is_empty();
        let mut groups = dictionary.groups.iter().peekable();
        for (at, place) in dictionary.places.iter().enumerate() {
            while groups.next_if(|group| **group == at).is_some() {
                self.marks.push([self.bytes.mark(), self.lengths.mark()]);
            }
            self.append(dictionary.value(*place));
        }
        self.marks.extend(groups.map(|_| [self.bytes.mark(), self.lengths.mark()]));
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, Dictionary::size);
        self.bytes.len() + self.lengths.size() + dictionary
    }

    /// Ends a stripe and begins the next one.
    pub fn finish(&mut self) -> EncodedTexts {
        if self.dictionary.as_ref().is_some_and(|dictionary| !dictionary.pays()) {
            self.abandon_dictionary();
        }
        let encoded = match self.dictionary.take() {
            Some(dictionary) => dictionary.encode(),
            None => EncodedTexts {
                encoding: ColumnEncoding { kind: Some(EncodingKind::DirectV2.into()), dictionary_size: None },
                streams: vec![
                    (StreamKind::Data, std::mem::take(&mut self.bytes)),
                    (StreamKind::Length, self.lengths.finish()),
                ],
                marks: std::mem::take(&mut self.marks)
                    .into_iter()
                    .map(|[bytes, lengths]| vec![(StreamKind::Data, bytes), (StreamKind::Length, lengths)])
                    .collect(),
            },
        };
        self.dictionary = self.tries_dictionary.then(Dictionary::default);
        encoded
    }
}

#[derive(Debug, Default)]
struct Dictionary {
    /// Distinct values, concatenated.
    text: Vec<u8>,
    /// End offsets of the values.
    ends: Vec<usize>,
    /// Open-addressing hash table of indexes into `ends`, plus one. At most half full.
    slots: Vec<u32>,
    hasher: RandomState,
    /// The dictionary index of each row.
    places: Vec<u32>,
    /// Rows before each row group.
    groups: Vec<usize>,
    /// Bytes of all rows.
    bytes: usize,
}

impl Dictionary {
    fn value(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[place]]
    }

    fn push(&mut self, value: &[u8]) {
        if self.slots.len() < 2 * (self.ends.len() + 1) {
            self.grow();
        }
        let mut slot = self.slot(value);
        let place = loop {
            match self.slots[slot].checked_sub(1) {
                None => {
                    self.text.extend_from_slice(value);
                    self.ends.push(self.text.len());
                    self.slots[slot] = self.ends.len() as u32;
                    break self.ends.len() as u32 - 1;
                }
                Some(place) if self.value(place) == value => break place,
                Some(_) => slot = (slot + 1) & (self.slots.len() - 1),
            }
        };
        self.places.push(place);
        self.bytes += value.len();
    }

    fn slot(&self, value: &[u8]) -> usize {
        self.hasher.hash_one(value) as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 2).max(64)];
        for place in 0..self.ends.len() as u32 {
            let mut slot = self.slot(self.value(place));
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = place + 1;
        }
    }

    fn size(&self) -> usize {
        self.text.len()
            + size_of::<u32>() * (self.places.len() + self.slots.len())
            + size_of::<usize>() * self.ends.len()
    }

    /// Whether it takes clearly fewer bytes than direct encoding.
    fn pays(&self) -> bool {
        let index_bits = usize::BITS - self.ends.len().leading_zeros();
        let with = self.text.len() + self.ends.len() + self.places.len() * index_bits as usize / 8;
        let without = self.bytes + self.places.len();
        !self.places.is_empty() && with * 5 < without * 4
    }

    /// Values are sorted: some readers look them up.
    fn encode(self) -> EncodedTexts {
        let mut sorted: Vec<u32> = (0..self.ends.len() as u32).collect();
        sorted.sort_unstable_by(|a, b| self.value(*a).cmp(self.value(*b)));
        let mut ranks = vec![0; sorted.len()];
        let (mut text, mut lengths) = (Stream::default(), Integers::of_unsigned());
        for (rank, place) in sorted.iter().enumerate() {
            ranks[*place as usize] = rank as i64;
            let value = self.value(*place);
            text.extend(value);
            lengths.push(value.len() as i64);
        }
        let mut indices = Integers::of_unsigned();
        let mut marks = Vec::new();
        let mut groups = self.groups.iter().peekable();
        for (at, place) in self.places.iter().enumerate() {
            while groups.next_if(|group| **group == at).is_some() {
                marks.push(vec![(StreamKind::Data, indices.mark())]);
            }
            indices.push(ranks[*place as usize]);
        }
        marks.extend(groups.map(|_| vec![(StreamKind::Data, indices.mark())]));
        let encoding = ColumnEncoding {
            kind: Some(EncodingKind::DictionaryV2.into()),
            dictionary_size: Some(sorted.len() as u32),
        };
        let streams = vec![
            (StreamKind::Data, indices.finish()),
            (StreamKind::Length, lengths.finish()),
            (StreamKind::DictionaryData, text),
        ];
        EncodedTexts { encoding, streams, marks }
    }
}
