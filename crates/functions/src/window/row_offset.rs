//! `lag`, `lead`, `nth_value` and `ntile` with non-constant arguments. DataFusion's require literals.
//!
//! As in PostgreSQL, `lag` and `lead` evaluate the argument of each row, `nth_value` too, and `ntile` that of
//! the first row of its partition with a non-null one. Ranks know them by their names.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{cast, is_not_null, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Lag,
    Lead,
    NthValue,
    Ntile,
}

const KINDS: [(Kind, &str, &str); 4] = [
    (Kind::Lag, "lag", "lag_by_rows"),
    (Kind::Lead, "lead", "lead_by_rows"),
    (Kind::NthValue, "nth_value", "nth_value_by_rows"),
    (Kind::Ntile, "ntile", "ntile_by_rows"),
];

/// The replacement of a function of this name; its arguments are the same, the default of `lag` and `lead`
/// being of the type of the value. `None`: it is none of them.
pub fn in_place_of(name: &str) -> Option<Arc<WindowUDF>> {
    let found = KINDS.into_iter().find(|(_, plain, _)| *plain == name);
    found.map(|(kind, _, name)| function(kind, name))
}

pub(crate) fn functions() -> impl Iterator<Item = Arc<WindowUDF>> {
    KINDS.into_iter().map(|(kind, _, name)| function(kind, name))
}

fn function(kind: Kind, name: &'static str) -> Arc<WindowUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(WindowUDF::from(ByRows { kind, name, signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByRows {
    kind: Kind,
    name: &'static str,
    signature: Signature,
}

impl WindowUDFImpl for ByRows {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(match self.kind {
            Kind::Lag => Box::new(Shifted { is_lag: true }),
            Kind::Lead => Box::new(Shifted { is_lag: false }),
            Kind::NthValue => Box::new(NthOfFrame { row: 0 }),
            Kind::Ntile => Box::new(Tiles),
        })
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        match (self.kind, args.input_fields()) {
            (Kind::Ntile, [_]) => Ok(Arc::new(Field::new(args.name(), DataType::Int32, true))),
            (Kind::Lag | Kind::Lead | Kind::NthValue, [value, _, ..]) => {
                Ok(Arc::new(value.as_ref().clone().with_name(args.name()).with_nullable(true)))
            }
            (_, given) => internal_err!("{} of {} arguments", self.name, given.len()),
        }
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

fn integers(values: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// (value, offset, default)
#[derive(Debug)]
struct Shifted {
    is_lag: bool,
}

impl PartitionEvaluator for Shifted {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [all, offsets, defaults @ ..] = values else {
            return internal_err!("a row before others by {} arguments", values.len());
        };
        let offsets = integers(offsets)?;
        let place = |row: usize| -> Option<u32> {
            let offset = offsets.value(row);
            let place = match self.is_lag {
                true => (row as i64).checked_sub(offset),
                false => (row as i64).checked_add(offset),
            };
            place.and_then(|place| u32::try_from(place).ok()).filter(|place| (*place as usize) < rows)
        };
        let place_of = |row: usize| if offsets.is_valid(row) { place(row) } else { None };
        let places: UInt32Array = (0..rows).map(place_of).collect();
        let found = take(all, &places, None)?;
        let Some(defaults) = defaults.first() else { return Ok(found) };
        // A NULL offset returns NULL.
        let defaults = zip(&is_not_null(&offsets)?, defaults, &new_null_array(defaults.data_type(), rows))?;
        Ok(zip(&is_not_null(&places)?, &found, &defaults)?)
    }
}

/// (value, n)
#[derive(Debug)]
struct NthOfFrame {
    /// The next row to evaluate: rows are evaluated in order.
    row: usize,
}

impl PartitionEvaluator for NthOfFrame {
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let [all, numbers, ..] = values else {
            return internal_err!("a value of a frame by {} arguments", values.len());
        };
        let row = self.row;
        self.row += 1;
        let null = || ScalarValue::try_new_null(all.data_type());
        let number = integers(&numbers.slice(row, 1))?;
        if number.is_null(0) {
            return null();
        }
        let number = number.value(0);
        if number <= 0 {
            let message = "argument of nth_value must be greater than zero";
            return Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_NTH_VALUE, message).into_datafusion());
        }
        let place = usize::try_from(number - 1).ok().and_then(|place| range.start.checked_add(place));
        match place.filter(|place| *place < range.end) {
            Some(place) => ScalarValue::try_from_array(all, place),
            None => null(),
        }
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}

/// (number of buckets)
#[derive(Debug)]
struct Tiles;

impl PartitionEvaluator for Tiles {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [counts] = values else { return internal_err!("ntile of {} arguments", values.len()) };
        let counts = integers(counts)?;
        let Some(first) = (0..rows).find(|row| counts.is_valid(*row)) else {
            return Ok(Arc::new(Int32Array::new_null(rows)));
        };
        let count = counts.value(first);
        if count <= 0 {
            let message = "argument of ntile must be greater than zero";
            return Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_NTILE, message).into_datafusion());
        }
        let (size, larger) = (rows as i64 / count, rows as i64 % count);
        // The first buckets have one row more.
        let of_larger = larger * (size + 1);
        let tile = |row: i64| match row < of_larger {
            true => row / (size + 1),
            false => larger + (row - of_larger) / size.max(1),
        };
        let tiles = (0..rows).map(|row| {
            let from_first = row.checked_sub(first)? as i64;
            i32::try_from(tile(from_first) + 1).ok()
        });
        Ok(Arc::new(tiles.collect::<Int32Array>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    #[test]
    fn lag_with_offsets_and_defaults() {
        let all = ints(vec![Some(10), Some(20), Some(30), Some(40)]);
        let offsets = ints(vec![Some(1), None, Some(2), Some(-1)]);
        let defaults = ints(vec![Some(0); 4]);
        let found = Shifted { is_lag: true }.evaluate_all(&[all, offsets, defaults], 4).unwrap();
        assert_eq!(&found, &ints(vec![Some(0), None, Some(10), Some(0)]));
    }

    #[test]
    fn ntile_starts_at_the_first_known_count() {
        let tiles = |counts: Vec<Option<i64>>| {
            let rows = counts.len();
            let tiles = Tiles.evaluate_all(&[ints(counts)], rows).unwrap();
            tiles.as_primitive::<datafusion::arrow::datatypes::Int32Type>().iter().collect::<Vec<_>>()
        };
        let some = |tiles: &[i32]| tiles.iter().map(|tile| Some(*tile)).collect::<Vec<_>>();
        assert_eq!(tiles(vec![Some(2), Some(9), Some(9), None, None]), some(&[1, 1, 1, 2, 2]));
        assert_eq!(tiles(vec![Some(9), Some(1)]), some(&[1, 2]));
        assert_eq!(tiles(vec![None, None]), [None, None]);
        assert_eq!(tiles(vec![None, Some(3), Some(3)]), [None, Some(1), Some(2)]);
    }
}
