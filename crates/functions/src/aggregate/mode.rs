//! `mode(value)`: the most frequent value; among equally frequent ones the first in sort order, or the last
//! with `mode(value, true)`. NULLs are ignored.
//!
//! Memory: every distinct value once, with its count.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// Bytes of a hash table entry in addition to its value.
const ENTRY_BYTES: usize = 32;

/// The function; ranks know it by its name.
pub(crate) fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Mode { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [_] | [_, DataType::Boolean] => Ok(given.to_vec()),
            _ => {
                let given: Vec<String> = given.iter().map(DataType::to_string).collect();
                plan_err!("function mode({}) does not exist", given.join(", "))
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [kind, ..] => Ok(kind.clone()),
            [] => plan_err!("function mode() does not exist"),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type().clone();
        Ok(Box::new(Counts { kind, counts: HashMap::new(), bytes: 0, is_last: false }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let values =
            DataType::List(Arc::new(Field::new_list_field(args.return_field.data_type().clone(), true)));
        let counts = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
        Ok(vec![
            Arc::new(Field::new(format!("{}[values]", args.name), values, true)),
            Arc::new(Field::new(format!("{}[counts]", args.name), counts, true)),
            Arc::new(Field::new(format!("{}[is_last]", args.name), DataType::Boolean, true)),
        ])
    }
}

#[derive(Debug)]
struct Counts {
    kind: DataType,
    counts: HashMap<ScalarValue, i64>,
    /// Bytes of the values.
    bytes: usize,
    is_last: bool,
}

impl Counts {
    fn add(&mut self, value: ScalarValue, count: i64) {
        match self.counts.get_mut(&value) {
            Some(known) => *known += count,
            None => {
                self.bytes += value.size();
                self.counts.insert(value, count);
            }
        }
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values, order @ ..] = values else { return Ok(()) };
        if let Some(order) = order.first().and_then(|order| order.as_boolean_opt()) {
            self.is_last |= order.iter().flatten().next().unwrap_or(false);
        }
        for at in (0..values.len()).filter(|at| values.is_valid(*at)) {
            self.add(ScalarValue::try_from_array(values, at)?.compacted(), 1);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let earlier = |one: &ScalarValue, other: &ScalarValue| match one.partial_cmp(other) {
            Some(Ordering::Less) => !self.is_last,
            Some(Ordering::Greater) => self.is_last,
            _ => false,
        };
        let mut best: Option<(&ScalarValue, i64)> = None;
        for (value, count) in &self.counts {
            let is_better = match best {
                None => true,
                Some((other, most)) => *count > most || *count == most && earlier(value, other),
            };
            if is_better {
                best = Some((value, *count));
            }
        }
        match best {
            Some((value, _)) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.kind),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.counts.capacity() * ENTRY_BYTES
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let counts = std::mem::take(&mut self.counts);
        self.bytes = 0;
        let (values, counts): (Vec<ScalarValue>, Vec<i64>) = counts.into_iter().unzip();
        let values = ScalarValue::new_list_nullable(&values, &self.kind);
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        Ok(vec![
            ScalarValue::List(values),
            SingleRowListArrayBuilder::new(counts).build_list_scalar(),
            ScalarValue::from(self.is_last),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts, is_last] = states else { return Ok(()) };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        self.is_last |= is_last.as_boolean().iter().flatten().any(|is_last| is_last);
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let (values, counts) = (values.value(row), counts.value(row));
            for (at, count) in counts.as_primitive::<Int64Type>().values().iter().enumerate() {
                self.add(ScalarValue::try_from_array(&values, at)?.compacted(), *count);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::BooleanArray;

    use super::*;

    fn counts() -> Counts {
        Counts { kind: DataType::Int64, counts: HashMap::new(), bytes: 0, is_last: false }
    }

    #[test]
    fn parts_are_merged_by_their_counts() {
        let values = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let (mut one, mut other, mut empty) = (counts(), counts(), counts());
        one.update_batch(&[values(vec![Some(1), Some(1), Some(2), None, None, None])]).unwrap();
        other.update_batch(&[values(vec![Some(2), Some(3), Some(2)])]).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::from(1_i64));
        let mut all = counts();
        for part in [&mut one, &mut other, &mut empty] {
            let state: Vec<ArrayRef> =
                part.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
            all.merge_batch(&state).unwrap();
        }
        assert_eq!(all.evaluate().unwrap(), ScalarValue::from(2_i64));
        assert_eq!(counts().evaluate().unwrap(), ScalarValue::Int64(None));
    }

    #[test]
    fn the_first_or_the_last_of_several_is_taken() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![2, 1, 3]));
        let mut first = counts();
        first.update_batch(&[Arc::clone(&values)]).unwrap();
        assert_eq!(first.evaluate().unwrap(), ScalarValue::from(1_i64));
        let mut last = counts();
        last.update_batch(&[values, Arc::new(BooleanArray::from(vec![true; 3]))]).unwrap();
        assert_eq!(last.evaluate().unwrap(), ScalarValue::from(3_i64));
    }
}
