//! Grouped `min` and `max` of floats: NaN is greater than all other numbers, and infinity is a number, as in
//! PostgreSQL; and `min` and `max` of arrays of arrays, which DataFusion's do not compare. For other types,
//! and of floats without groups, they are DataFusion's.
//!
//! DataFusion's start with the least and the greatest finite number, and replace NaN by any later value, so
//! that the result depends on the order of rows.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array, make_comparator,
};
use datafusion::arrow::compute::{SortOptions, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
};

use crate::aggregate::float_sum::is_float;
use crate::delegation::delegate_aggregate;

/// `min` and `max`, replacing DataFusion's; plans name them by their names, so every session that decodes one
/// needs them too.
pub fn functions() -> impl Iterator<Item = Arc<AggregateUDF>> {
    [min_udaf(), max_udaf()].into_iter().map(|inner| Arc::new(AggregateUDF::from(Extreme { inner })))
}

/// Whether DataFusion's accumulator cannot compare values of this type.
fn is_array_of_arrays(kind: &DataType) -> bool {
    matches!(kind, DataType::List(item) if item.data_type().is_nested())
}

/// The least or the greatest array of arrays, NULL elements being greater than others.
#[derive(Debug)]
struct NestedExtreme {
    is_greatest: bool,
    value: ScalarValue,
}

impl Accumulator for NestedExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("an extreme of {} columns", values.len()) };
        // The value so far is the last one.
        let own = self.value.to_array()?;
        let all = concat(&[values.as_ref(), own.as_ref()])?;
        let order = SortOptions { descending: self.is_greatest, nulls_first: self.is_greatest };
        let compare = make_comparator(&all, &all, order)?;
        let rows = (0..all.len()).filter(|row| all.is_valid(*row));
        if let Some(best) = rows.min_by(|left, right| compare(*left, *right)) {
            self.value = ScalarValue::try_from_array(&all, best)?;
            self.value.compact();
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Extreme {
    delegate_aggregate!(
        name,
        signature,
        coerce_types,
        return_type,
        state_fields,
        groups_accumulator_supported,
        is_descending,
        order_sensitivity,
        set_monotonicity,
        value_from_stats,
        documentation
    );

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type();
        match is_array_of_arrays(kind) {
            true => {
                let value = ScalarValue::try_new_null(kind)?;
                Ok(Box::new(NestedExtreme { is_greatest: self.name() == "max", value }))
            }
            false => self.inner.accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let kind = args.return_field.data_type().clone();
        if !is_float(&kind) {
            return self.inner.create_groups_accumulator(args);
        }
        let return_field = Arc::new(Field::new(args.return_field.name(), DataType::Int64, true));
        let inner = self.inner.create_groups_accumulator(AccumulatorArgs { return_field, ..args })?;
        Ok(Box::new(FloatGroups { inner, kind }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// An integer key that orders floats; all NaNs have the same key. Negative zero comes before zero, so that
/// the sign of an extreme does not depend on the order of rows.
fn key(number: f64) -> i64 {
    let number = if number.is_nan() { f64::NAN } else { number };
    let bits = number.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The float of a key.
fn number(key: i64) -> f64 {
    f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64)
}

/// Accumulator of floats by their keys.
struct FloatGroups {
    inner: Box<dyn GroupsAccumulator>,
    kind: DataType,
}

impl FloatGroups {
    fn keys(&self, values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return internal_err!("an extreme of {} columns", values.len()) };
        let keys: Int64Array = match values.data_type() {
            DataType::Float32 => values.as_primitive::<Float32Type>().unary(|number| key(number.into())),
            _ => values.as_primitive::<Float64Type>().unary(key),
        };
        Ok(vec![Arc::new(keys)])
    }

    fn numbers(&self, keys: &ArrayRef) -> ArrayRef {
        let keys = keys.as_primitive::<Int64Type>();
        match self.kind {
            DataType::Float32 => {
                let numbers: Float32Array = keys.unary(|key| number(key) as f32);
                Arc::new(numbers)
            }
            _ => {
                let numbers: Float64Array = keys.unary(number);
                Arc::new(numbers)
            }
        }
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
        self.inner.update_batch(&self.keys(values)?, groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let keys = self.inner.evaluate(emit)?;
        Ok(self.numbers(&keys))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.inner.state(emit)?;
        Ok(states.iter().map(|keys| self.numbers(keys)).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> Result<()> {
        self.inner.merge_batch(&self.keys(states)?, groups, groups_total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let states = self.inner.convert_to_state(&self.keys(values)?, filter)?;
        Ok(states.iter().map(|keys| self.numbers(keys)).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_the_numbers() {
        let ordered = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            5e-324,
            1.5,
            f64::MAX,
            f64::INFINITY,
        ];
        let keys = ordered.map(key);
        assert!(keys.is_sorted() && key(f64::NAN) > keys[9]);
        assert_eq!(ordered, keys.map(number));
        assert!(key(-0.0) < key(0.0) && number(key(-0.0)).is_sign_negative());
        assert_eq!(key(-f64::NAN), key(f64::NAN));
    }
}
