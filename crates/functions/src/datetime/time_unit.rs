//! Timestamps rounded to whole time units, for columns without finer ones, and for comparisons with them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Rounding direction of a timestamp between two units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Floor,
    Ceiling,
    /// Half rounds up, to the later one.
    Nearest,
}

/// (timestamp) → the same in `unit`, which is no finer than its own.
pub fn function(unit: TimeUnit, side: Side) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Whole {
        unit,
        side,
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

/// All of them, for sessions that decode plans.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    units
        .into_iter()
        .flat_map(|unit| [Side::Floor, Side::Ceiling, Side::Nearest].map(|side| function(unit, side)))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    unit: TimeUnit,
    side: Side,
    signature: Signature,
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        match (self.unit, self.side) {
            (TimeUnit::Second, Side::Floor) => "harrier_floor_s",
            (TimeUnit::Second, Side::Ceiling) => "harrier_ceiling_s",
            (TimeUnit::Second, Side::Nearest) => "harrier_nearest_s",
            (TimeUnit::Millisecond, Side::Floor) => "harrier_floor_ms",
            (TimeUnit::Millisecond, Side::Ceiling) => "harrier_ceiling_ms",
            (TimeUnit::Millisecond, Side::Nearest) => "harrier_nearest_ms",
            (TimeUnit::Microsecond, Side::Floor) => "harrier_floor_us",
            (TimeUnit::Microsecond, Side::Ceiling) => "harrier_ceiling_us",
            (TimeUnit::Microsecond, Side::Nearest) => "harrier_nearest_us",
            (TimeUnit::Nanosecond, Side::Floor) => "harrier_floor_ns",
            (TimeUnit::Nanosecond, Side::Ceiling) => "harrier_ceiling_ns",
            (TimeUnit::Nanosecond, Side::Nearest) => "harrier_nearest_ns",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Timestamp(_, zone)] => Ok(DataType::Timestamp(self.unit, zone.clone())),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let whole = self.whole(&value.to_array()?)?;
                ScalarValue::try_from_array(&whole, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(values)] => self.whole(values).map(ColumnarValue::Array),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }
}

impl Whole {
    fn whole(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let DataType::Timestamp(unit, zone) = values.data_type() else {
            return internal_err!("{} of {}", self.name(), values.data_type());
        };
        let parts = in_a_second(*unit) / in_a_second(self.unit);
        if parts == 0 {
            return internal_err!("{} of {}", self.name(), values.data_type());
        }
        let counts = cast(values, &DataType::Int64)?;
        let whole = counts.as_primitive::<Int64Type>().unary::<_, Int64Type>(|count| {
            let part = count.rem_euclid(parts);
            let is_next = match self.side {
                Side::Floor => false,
                Side::Ceiling => part != 0,
                Side::Nearest => part >= parts - part,
            };
            count.div_euclid(parts) + i64::from(is_next)
        });
        Ok(cast(&whole, &DataType::Timestamp(self.unit, zone.clone()))?)
    }
}

/// Units of a second.
pub fn in_a_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{TimestampMicrosecondArray, TimestampSecondArray};

    use super::*;

    #[test]
    fn units_are_whole_before_1970_too() {
        let moments = [Some(1_500_000), Some(2_000_000), Some(-1), Some(-2_000_000), Some(i64::MAX), None];
        let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(moments.to_vec()));
        let of = |side: Side| {
            let signature = Signature::any(1, Volatility::Immutable);
            Whole { unit: TimeUnit::Second, side, signature }.whole(&moments).unwrap()
        };
        let expected = |seconds: [i64; 5]| {
            let seconds = seconds.map(Some).into_iter().chain([None]);
            Arc::new(seconds.collect::<TimestampSecondArray>()) as ArrayRef
        };
        assert_eq!(&of(Side::Floor), &expected([1, 2, -1, -2, 9_223_372_036_854]));
        assert_eq!(&of(Side::Ceiling), &expected([2, 2, 0, -2, 9_223_372_036_855]));
        assert_eq!(&of(Side::Nearest), &expected([2, 2, 0, -2, 9_223_372_036_855]));
    }
}
