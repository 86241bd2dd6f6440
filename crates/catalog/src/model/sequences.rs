//! Sequences: their definitions, and ranges of their values.

use std::sync::{Arc, Mutex, PoisonError};

use harrier_error::{SqlError, SqlState};

use crate::error::{Error, Result};
use crate::model::ids::{ColumnId, ObjectId};

/// The data type of a sequence's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceType {
    SmallInt,
    Integer,
    BigInt,
}

impl SequenceType {
    const ALL: [Self; 3] = [Self::SmallInt, Self::Integer, Self::BigInt];

    /// The type with this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// PostgreSQL's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
        }
    }

    /// The minimum and maximum value.
    pub fn bounds(self) -> (i64, i64) {
        match self {
            Self::SmallInt => (i16::MIN.into(), i16::MAX.into()),
            Self::Integer => (i32::MIN.into(), i32::MAX.into()),
            Self::BigInt => (i64::MIN, i64::MAX),
        }
    }
}

/// The definition of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub id: ObjectId,
    pub uuid: String,
    pub schema: ObjectId,
    pub name: String,
    pub kind: SequenceType,
    pub start: i64,
    /// Never 0.
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    /// Minimum number of values that a session allocates at once; from 1.
    pub cache: i64,
    pub cycles: bool,
    pub owner: Option<SequenceOwner>,
    pub comment: Option<String>,
}

/// The column that owns a sequence: the sequence is dropped with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceOwner {
    pub table: ObjectId,
    pub column: ColumnId,
    /// It belongs to an identity column, and cannot be altered or dropped by itself.
    pub is_identity: bool,
}

/// The current value of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceValue {
    pub last: i64,
    /// Whether `last` was returned: if not, it is the next one.
    pub is_called: bool,
}

/// The value of an uncommitted sequence. Shared by clones: rolling back to a savepoint returns no values.
pub type UncommittedValue = Arc<Mutex<SequenceValue>>;

/// An allocated range: `first`, `first + increment`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    pub first: i64,
    pub increment: i64,
    /// At least 1.
    pub count: u64,
}

impl ValueRange {
    /// The value at this index, from 0, which is below `count`.
    pub fn value(&self, at: u64) -> i64 {
        (i128::from(self.first) + i128::from(self.increment) * i128::from(at)) as i64
    }

    /// The rest after the first `count` values; `None` if there are none.
    pub fn skip(&self, count: u64) -> Option<Self> {
        (count < self.count).then(|| Self { first: self.value(count), count: self.count - count, ..*self })
    }
}

impl Sequence {
    /// Its start value.
    pub fn start_value(&self) -> SequenceValue {
        SequenceValue { last: self.start, is_called: false }
    }

    /// Allocates up to `wanted` values, fewer at its end.
    ///
    /// Errors: there is none left (2200H).
    pub fn allocate(&self, value: &mut SequenceValue, wanted: u64) -> Result<ValueRange> {
        let (increment, min, max) = (i128::from(self.increment), i128::from(self.min), i128::from(self.max));
        let ascends = increment > 0;
        let mut next = i128::from(value.last) + if value.is_called { increment } else { 0 };
        if (ascends && next > max) || (!ascends && next < min) {
            if !self.cycles {
                let (which, bound) = if ascends { ("maximum", max) } else { ("minimum", min) };
                let message =
                    format!("nextval: reached {which} value of sequence \"{}\" ({bound})", self.name);
                return Err(Error::Refused(Box::new(SqlError::new(
                    SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                    message,
                ))));
            }
            next = if ascends { min } else { max };
        }
        let room = if ascends { (max - next) / increment } else { (next - min) / -increment };
        let count = i128::from(wanted.max(1)).min(room + 1);
        // Both are within the bounds, or between them and the set value.
        *value = SequenceValue { last: (next + increment * (count - 1)) as i64, is_called: true };
        Ok(ValueRange { first: next as i64, increment: self.increment, count: count as u64 })
    }
}

/// A shared value of an uncommitted sequence.
pub fn uncommitted_value(value: SequenceValue) -> UncommittedValue {
    Arc::new(Mutex::new(value))
}

/// Its current value.
pub fn get(value: &UncommittedValue) -> SequenceValue {
    *value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sequence {
    /// Errors: the value is out of the bounds (22003).
    pub fn check(&self, value: i64) -> Result<()> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        let message = format!(
            "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
            self.name, self.min, self.max
        );
        Err(Error::Refused(Box::new(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(increment: i64, min: i64, max: i64, cycles: bool) -> Sequence {
        let start = if increment > 0 { min } else { max };
        Sequence {
            id: 1,
            uuid: String::new(),
            schema: 0,
            name: "s".to_string(),
            kind: SequenceType::BigInt,
            start,
            increment,
            min,
            max,
            cache: 1,
            cycles,
            owner: None,
            comment: None,
        }
    }

    fn allocations(sequence: &Sequence, wanted: &[u64]) -> Vec<Vec<i64>> {
        let mut value = sequence.start_value();
        let take = |wanted: &u64| match sequence.allocate(&mut value, *wanted) {
            Ok(taken) => (0..taken.count).map(|at| taken.value(at)).collect(),
            Err(_) => vec![],
        };
        wanted.iter().map(take).collect()
    }

    #[test]
    fn ranges_end_at_the_bounds() {
        assert_eq!(
            allocations(&sequence(1, 1, 5, false), &[2, 1, 5, 1]),
            [vec![1, 2], vec![3], vec![4, 5], vec![]]
        );
        assert_eq!(allocations(&sequence(1, 1, 3, true), &[2, 2, 2]), [vec![1, 2], vec![3], vec![1, 2]]);
        assert_eq!(allocations(&sequence(-2, -5, 0, false), &[2, 2, 1]), [vec![0, -2], vec![-4], vec![]]);
        assert_eq!(allocations(&sequence(10, 1, 25, true), &[9, 9]), [vec![1, 11, 21], vec![1, 11, 21]]);
        let whole = sequence(i64::MAX, i64::MIN, i64::MAX, false);
        assert_eq!(allocations(&whole, &[9, 1]), [vec![i64::MIN, -1, i64::MAX - 1], vec![]]);
    }
}
