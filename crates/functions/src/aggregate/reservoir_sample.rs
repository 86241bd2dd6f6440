//! `harrier_sample(value)`: a uniform random sample of the non-null values, as a list.
//!
//! Every value draws a random number, and those with the smallest are kept: samples of parts of a table are
//! merged by the same rule, on any rank.
//!
//! Memory bound: twice [`SAMPLE_VALUES`] values and those of one batch, for every output partition that
//! aggregates.
//!
//! Source: Duffield, Lund and Thorup, "Priority sampling for estimation of arbitrary subset sums", with equal
//! weights.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, UInt32Array, UInt64Array, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, concat, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// Values in a sample. The error of a histogram of a hundred buckets is then less than half a bucket in 99 of
/// 100 samples: 300 values a bucket, as in PostgreSQL (Chaudhuri, Motwani and Narasayya, "Random sampling for
/// histogram construction").
pub const SAMPLE_VALUES: usize = 30_000;

/// The function; plans name it by its name, so every session that decodes one needs it too.
pub fn sample() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Sample { signature: Signature::any(1, Volatility::Volatile) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sample {
    signature: Signature,
}

impl AggregateUDFImpl for Sample {
    fn name(&self) -> &str {
        "harrier_sample"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [kind] = arguments else { return internal_err!("a sample of {} columns", arguments.len()) };
        Ok(DataType::List(element(stored_type(kind))))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let DataType::List(field) = args.return_field.data_type() else {
            return internal_err!("a sample as {}", args.return_field.data_type());
        };
        Ok(Box::new(Sampler::new(field.data_type().clone(), RandomState::new().hash_one(SAMPLE_VALUES))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let priorities = DataType::List(element(DataType::UInt64));
        Ok(vec![
            Arc::new(Field::new(format!("{}[priorities]", args.name), priorities, true)),
            Arc::new(Field::new(
                format!("{}[values]", args.name),
                args.return_field.data_type().clone(),
                true,
            )),
        ])
    }
}

fn element(kind: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(kind, true))
}

/// The type in which values are kept: a text view would keep the whole batch alive.
fn stored_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        other => other.clone(),
    }
}

#[derive(Debug)]
struct Sampler {
    kind: DataType,
    /// State of the random number generator.
    state: u64,
    /// Only smaller random numbers can still enter the sample.
    limit: u64,
    priorities: Vec<u64>,
    /// As many as `priorities`, in the same order.
    values: Vec<ArrayRef>,
}

impl Sampler {
    fn new(kind: DataType, seed: u64) -> Self {
        Self { kind, state: seed, limit: u64::MAX, priorities: vec![], values: vec![] }
    }

    /// The next random number (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Adds the values with priorities below the limit.
    fn add(&mut self, values: &ArrayRef, mut priority: impl FnMut(&mut Self, usize) -> u64) -> Result<()> {
        let mut rows = Vec::new();
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let drawn = priority(self, row);
            if drawn < self.limit {
                self.priorities.push(drawn);
                rows.push(row as u32);
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let picked = take(values, &UInt32Array::from(rows), None)?;
        self.values.push(if *picked.data_type() == self.kind { picked } else { cast(&picked, &self.kind)? });
        if self.priorities.len() >= 2 * SAMPLE_VALUES { self.shrink() } else { Ok(()) }
    }

    /// Reduces the candidates to the sample, in one array.
    fn shrink(&mut self) -> Result<()> {
        let parts: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        let all = if parts.is_empty() { new_empty_array(&self.kind) } else { concat(&parts)? };
        if self.priorities.len() <= SAMPLE_VALUES {
            self.values = vec![all];
            return Ok(());
        }
        let mut rows: Vec<u32> = (0..self.priorities.len() as u32).collect();
        rows.select_nth_unstable_by_key(SAMPLE_VALUES - 1, |row| self.priorities[*row as usize]);
        rows.truncate(SAMPLE_VALUES);
        self.priorities = rows.iter().map(|row| self.priorities[*row as usize]).collect();
        self.limit = self.priorities.iter().copied().max().unwrap_or(u64::MAX);
        self.values = vec![take(&all, &UInt32Array::from(rows), None)?];
        Ok(())
    }

    /// The sample as a list.
    fn list(&mut self) -> Result<ScalarValue> {
        self.shrink()?;
        Ok(list_of(Arc::clone(&self.values[0])))
    }
}

fn list_of(values: ArrayRef) -> ScalarValue {
    let field = element(values.data_type().clone());
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    ScalarValue::List(Arc::new(ListArray::new(field, offsets, values, None)))
}

impl Accumulator for Sampler {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("a sample of {} columns", values.len()) };
        self.add(values, |sampler, _| sampler.draw())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [priorities, values] = states else {
            return internal_err!("{} states of a sample", states.len());
        };
        let (priorities, values) = (priorities.as_list::<i32>(), values.as_list::<i32>());
        for row in (0..priorities.len()).filter(|row| priorities.is_valid(*row)) {
            let drawn = priorities.value(row);
            let drawn = drawn.as_primitive::<UInt64Type>();
            self.add(&values.value(row), |_, at| drawn.value(at))?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.list()?;
        Ok(vec![list_of(Arc::new(UInt64Array::from(self.priorities.clone()))), values])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.list()
    }

    fn size(&self) -> usize {
        let values: usize = self.values.iter().map(|values| values.get_array_memory_size()).sum();
        size_of_val(self) + values + self.priorities.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn numbers(range: std::ops::Range<i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(range))
    }

    fn sample_of(sampler: &mut Sampler) -> Result<ArrayRef> {
        match sampler.evaluate()? {
            ScalarValue::List(list) => Ok(list.value(0)),
            other => internal_err!("{other}"),
        }
    }

    #[test]
    fn small_inputs_are_sampled_completely() -> Result<()> {
        let mut sampler = Sampler::new(DataType::Utf8, 1);
        let values: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("a"), None, Some("a text of some length")]));
        sampler.update_batch(&[values])?;
        assert_eq!(sample_of(&mut sampler)?.as_string::<i32>().iter().flatten().count(), 2);
        assert_eq!(sample_of(&mut Sampler::new(DataType::Int64, 1))?.len(), 0);
        Ok(())
    }

    #[test]
    fn merged_samples_are_as_one() -> Result<()> {
        let mut whole = Sampler::new(DataType::Int64, 0);
        for (seed, range) in [(1, 0..100_000), (2, 100_000..110_000), (3, 110_000..400_000)] {
            let mut part = Sampler::new(DataType::Int64, seed);
            for start in range.clone().step_by(8192) {
                part.update_batch(&[numbers(start..range.end.min(start + 8192))])?;
            }
            let state = part.state()?;
            assert!(part.size() < 64 * SAMPLE_VALUES);
            let state: Vec<ArrayRef> = state.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
            whole.merge_batch(&state)?;
        }
        let sample = sample_of(&mut whole)?;
        assert_eq!(sample.len(), SAMPLE_VALUES);
        // A quarter of the values: 7500, with a standard deviation of 75.
        let first =
            sample.as_primitive::<Int64Type>().values().iter().filter(|value| **value < 100_000).count();
        assert!((7_000..8_000).contains(&first), "{first}");
        Ok(())
    }
}
