//! Sums and averages of floats: NaN has no sign, as in PostgreSQL, an infinite sum of finite numbers is out
//! of range (22003), and a sum of 32-bit floats is a 32-bit float, computed with 64 bits and rounded once, so
//! that it depends neither on the order of rows nor on how many ranks share them.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::math::checked::{as_reals, without_signed_nan};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The intermediate field of floats; `None`: `field` is of another type.
pub(crate) fn wide(field: &FieldRef) -> Option<FieldRef> {
    is_float(field.data_type()).then(|| Arc::new(Field::new(field.name(), DataType::Float64, true)))
}

pub(crate) fn is_float(kind: &DataType) -> bool {
    matches!(kind, DataType::Float32 | DataType::Float64)
}

/// Wraps an accumulator of 64-bit floats into one whose result is of the type `kind`.
pub(crate) fn accumulator(inner: Box<dyn Accumulator>, kind: &DataType) -> Box<dyn Accumulator> {
    Box::new(Floats { inner, kind: kind.clone(), has_infinite: false })
}

/// Wraps an accumulator of many groups likewise.
pub(crate) fn groups(inner: Box<dyn GroupsAccumulator>, kind: &DataType) -> Box<dyn GroupsAccumulator> {
    Box::new(FloatGroups { inner, kind: kind.clone(), infinite: Vec::new() })
}

/// Accumulator of a sliding frame: its sum or, if `is_mean`, its average.
pub(crate) fn sliding(is_mean: bool, kind: &DataType) -> Box<dyn Accumulator> {
    Box::new(Frame { is_mean, kind: kind.clone(), ..Frame::default() })
}

fn widen(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|values| Ok(cast(values, &DataType::Float64)?)).collect()
}

/// Errors: a number is too large for its type (22003).
fn narrow(values: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let values = without_signed_nan(values)?;
    if *kind == DataType::Float32 { as_reals(&values) } else { Ok(values) }
}

/// Whether the value at a position is infinite or NaN; for a list, whether any element is.
fn is_beyond(values: &ArrayRef, at: usize) -> bool {
    match (values.as_primitive_opt::<Float64Type>(), values.as_list_opt::<i32>()) {
        (Some(values), _) => values.is_valid(at) && !values.value(at).is_finite(),
        (_, Some(lists)) => lists.is_valid(at) && has_beyond(&lists.value(at)),
        _ => false,
    }
}

/// Whether any value of a column of floats is infinite or NaN.
fn has_beyond(values: &ArrayRef) -> bool {
    match (values.as_primitive_opt::<Float64Type>(), values.as_list_opt::<i32>()) {
        (Some(values), _) => values.values().iter().any(|value| !value.is_finite()),
        (_, Some(lists)) => has_beyond(lists.values()),
        _ => false,
    }
}

/// Errors: a sum is infinite without an infinite or NaN input, as reported by `is_known` (22003).
fn check(sums: &ArrayRef, is_known: impl Fn(usize) -> bool) -> Result<()> {
    if !has_beyond(sums) || (0..sums.len()).all(|at| !is_beyond(sums, at) || is_known(at)) {
        return Ok(());
    }
    let message = "value out of range: overflow";
    Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).into_datafusion())
}

#[derive(Debug)]
struct Floats {
    inner: Box<dyn Accumulator>,
    kind: DataType,
    /// Whether an infinite or NaN value was added, or merged from another state.
    has_infinite: bool,
}

impl Accumulator for Floats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = widen(values)?;
        self.has_infinite |= values.iter().any(has_beyond);
        self.inner.update_batch(&values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.has_infinite |= states.iter().any(has_beyond);
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&widen(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.inner.state()?;
        for value in &state {
            check(&value.to_array()?, |_| self.has_infinite)?;
        }
        Ok(state)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?.to_array()?;
        check(&value, |_| self.has_infinite)?;
        ScalarValue::try_from_array(&narrow(&value, &self.kind)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

struct FloatGroups {
    inner: Box<dyn GroupsAccumulator>,
    kind: DataType,
    /// Whether an infinite or NaN value was added, by group, up to the last such group.
    infinite: Vec<bool>,
}

impl FloatGroups {
    fn note(&mut self, values: &[ArrayRef], groups: &[usize], filter: Option<&BooleanArray>) {
        let is_taken = |at: usize| filter.is_none_or(|filter| filter.is_valid(at) && filter.value(at));
        for values in values.iter().filter(|values| has_beyond(values)) {
            for (_, group) in
                groups.iter().enumerate().filter(|(at, _)| is_taken(*at) && is_beyond(values, *at))
            {
                self.infinite.resize(self.infinite.len().max(group + 1), false);
                self.infinite[*group] = true;
            }
        }
    }

    /// Errors: as [`check`].
    fn check_emitted(&mut self, sums: &[ArrayRef], emit: EmitTo) -> Result<()> {
        for sums in sums {
            check(sums, |at| self.infinite.get(at) == Some(&true))?;
        }
        let gone = match emit {
            EmitTo::All => self.infinite.len(),
            EmitTo::First(groups) => groups.min(self.infinite.len()),
        };
        self.infinite.drain(..gone);
        Ok(())
    }
}

impl GroupsAccumulator for FloatGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let values = widen(values)?;
        self.note(&values, groups, filter);
        self.inner.update_batch(&values, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = self.inner.evaluate(emit)?;
        self.check_emitted(std::slice::from_ref(&sums), emit)?;
        narrow(&sums, &self.kind)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let state = self.inner.state(emit)?;
        self.check_emitted(&state, emit)?;
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> Result<()> {
        self.note(states, groups, None);
        self.inner.merge_batch(states, groups, groups_total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&widen(values)?, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.infinite.capacity() + self.inner.size()
    }
}

/// The rows of a sliding frame. Values cannot simply be subtracted: infinity minus infinity is NaN, and `1e20
/// + 1 - 1e20` is 0.
#[derive(Debug)]
struct Frame {
    is_mean: bool,
    kind: DataType,
    values: VecDeque<f64>,
    /// Sum of the finite values, and its rounding error.
    sum: f64,
    rest: f64,
    nans: usize,
    infinite: usize,
    negative_infinite: usize,
}

impl Default for Frame {
    fn default() -> Self {
        let (values, kind) = (VecDeque::new(), DataType::Float64);
        let (nans, infinite, negative_infinite) = (0, 0, 0);
        Self { is_mean: false, kind, values, sum: 0.0, rest: 0.0, nans, infinite, negative_infinite }
    }
}

impl Frame {
    /// Maximum number of rows of a frame that are summed anew, in order, as PostgreSQL does.
    const ADDED_MAX: usize = 1 << 10;

    fn count(&mut self, value: f64) -> Option<&mut usize> {
        match value {
            f64::INFINITY => Some(&mut self.infinite),
            f64::NEG_INFINITY => Some(&mut self.negative_infinite),
            _ if value.is_nan() => Some(&mut self.nans),
            _ => None,
        }
    }

    /// Adds a finite number (Neumaier's summation).
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.rest += match self.sum.abs() >= value.abs() {
            true => (self.sum - sum) + value,
            false => (value - sum) + self.sum,
        };
        self.sum = sum;
    }

    fn sum(&self) -> f64 {
        match (self.nans, self.infinite, self.negative_infinite) {
            (0, 0, 0) if self.values.len() <= Self::ADDED_MAX => self.values.iter().sum(),
            (0, 0, 0) => self.sum + self.rest,
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

fn floats(values: &[ArrayRef]) -> Result<Float64Array> {
    let [values] = widen(values)?.try_into().or_else(|_| internal_err!("a sum of several columns"))?;
    Ok(values.as_primitive::<Float64Type>().clone())
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in floats(values)?.iter().flatten() {
            self.values.push_back(value);
            match self.count(value) {
                Some(count) => *count += 1,
                None => self.add(value),
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in floats(values)?.iter().flatten() {
            self.values.pop_front();
            match self.count(value) {
                Some(count) => *count -= 1,
                None => self.add(-value),
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = match (self.values.len(), self.is_mean) {
            (0, _) => None,
            (rows, true) => Some(self.sum() / rows as f64),
            (_, false) => Some(self.sum()),
        };
        let value: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        check(&value, |_| self.nans + self.infinite + self.negative_infinite > 0)?;
        ScalarValue::try_from_array(&narrow(&value, &self.kind)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame is of one rank")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame is of one rank")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_retract_rows_that_leave() {
        let one = |value: f64| -> Vec<ArrayRef> { vec![Arc::new(Float64Array::from(vec![value]))] };
        let mut frame = sliding(false, &DataType::Float64);
        let mut large = sliding(false, &DataType::Float64);
        large.update_batch(&[Arc::new(Float64Array::from(vec![0.0; Frame::ADDED_MAX]))]).unwrap();
        for frame in [&mut frame, &mut large] {
            for (gone, new, expected) in
                [(None, 1e20, 1e20), (None, 1.0, 1e20), (Some(1e20), f64::INFINITY, f64::INFINITY)]
            {
                gone.iter().for_each(|gone| frame.retract_batch(&one(*gone)).unwrap());
                frame.update_batch(&one(new)).unwrap();
                assert_eq!(frame.evaluate().unwrap(), ScalarValue::from(expected), "{new}");
            }
        }
        frame.update_batch(&one(f64::NEG_INFINITY)).unwrap();
        assert_eq!(frame.evaluate().unwrap(), ScalarValue::from(f64::NAN));
        frame.retract_batch(&one(1.0)).unwrap();
        frame.retract_batch(&one(f64::INFINITY)).unwrap();
        assert_eq!(frame.evaluate().unwrap(), ScalarValue::from(f64::NEG_INFINITY));
        frame.retract_batch(&one(f64::NEG_INFINITY)).unwrap();
        assert_eq!(frame.evaluate().unwrap(), ScalarValue::Float64(None));
    }

    #[test]
    fn reals_are_rounded_once() {
        let sums: ArrayRef = Arc::new(Float64Array::from(vec![0.1, -f64::NAN]));
        let reals = narrow(&sums, &DataType::Float32).unwrap();
        assert_eq!(ScalarValue::try_from_array(&reals, 0).unwrap(), ScalarValue::from(0.1_f32));
        let too_large: ArrayRef = Arc::new(Float64Array::from(vec![1e39]));
        assert!(narrow(&too_large, &DataType::Float32).is_err());
    }
}
