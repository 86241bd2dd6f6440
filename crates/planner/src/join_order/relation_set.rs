//! Sets of relations, which are numbered from 0: one bit for each.

use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

/// A set of relations with numbers below [`RelationSet::CAPACITY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationSet(u128);

impl RelationSet {
    /// How many relations there may be.
    pub const CAPACITY: usize = 128;
    /// The set of no relation.
    pub const EMPTY: Self = Self(0);

    /// The set of one relation.
    ///
    /// # Panics
    /// If the number is not below [`RelationSet::CAPACITY`].
    pub fn single(relation: usize) -> Self {
        assert!(relation < Self::CAPACITY, "relation {relation} does not fit into a set");
        Self(1 << relation)
    }

    /// The set of the relations 0 to `count` - 1.
    pub fn first(count: usize) -> Self {
        match count {
            0 => Self::EMPTY,
            count if count >= Self::CAPACITY => Self(u128::MAX),
            count => Self((1 << count) - 1),
        }
    }

    /// How many relations are in it.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no relation is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this relation is in it.
    pub fn contains(self, relation: usize) -> bool {
        relation < Self::CAPACITY && self.0 & (1 << relation) != 0
    }

    /// Whether all its relations are in the other set.
    pub fn is_subset(self, of: Self) -> bool {
        self.0 & !of.0 == 0
    }

    /// Whether a relation is in both.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The relation with the lowest number.
    pub fn lowest(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// The relation with the highest number.
    pub fn highest(self) -> Option<usize> {
        (self.0 != 0).then(|| Self::CAPACITY - 1 - self.0.leading_zeros() as usize)
    }

    /// Its relations, lowest number first.
    pub fn iter(self) -> Relations {
        Relations(self)
    }

    /// Its subsets but the empty one, each after all of its own subsets.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let next = move |subset: u128| subset.wrapping_sub(self.0) & self.0;
        let first = next(0);
        std::iter::successors((first != 0).then_some(first), move |subset| {
            let subset = next(*subset);
            (subset != 0).then_some(subset)
        })
        .map(Self)
    }
}

/// The relations of a set, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Relations(RelationSet);

impl Iterator for Relations {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let relation = self.0.lowest()?;
        self.0 = self.0 - RelationSet::single(relation);
        Some(relation)
    }
}

impl DoubleEndedIterator for Relations {
    fn next_back(&mut self) -> Option<usize> {
        let relation = self.0.highest()?;
        self.0 = self.0 - RelationSet::single(relation);
        Some(relation)
    }
}

impl BitOr for RelationSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for RelationSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for RelationSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for RelationSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<usize> for RelationSet {
    fn from_iter<I: IntoIterator<Item = usize>>(relations: I) -> Self {
        relations.into_iter().fold(Self::EMPTY, |set, relation| set | Self::single(relation))
    }
}
