//! `sum` and `avg` of intervals: months, days and time are summed separately; in an average, the remainder of
//! months becomes days, and that of days time. DataFusion plans the sum, but cannot compute it.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::StateFieldsArgs;

use crate::math::checked::divide;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Nanoseconds, wide enough for any number of intervals.
const TIME: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The type in which intervals are summed; `None`: `kind` is not an interval. Differences of timestamps are
/// intervals, too.
pub(crate) fn sum_type(kind: &DataType) -> Option<DataType> {
    matches!(kind, DataType::Interval(_) | DataType::Duration(_)).then_some(INTERVAL)
}

pub(crate) fn accumulator(is_mean: bool, is_distinct: bool) -> Box<dyn Accumulator> {
    match is_distinct {
        true => Box::new(DistinctIntervals { is_mean, all: HashMap::new() }),
        false => Box::new(Total { is_mean, ..Total::default() }),
    }
}

pub(crate) fn state_fields(args: &StateFieldsArgs) -> Vec<FieldRef> {
    let field = |part: &str, kind| Arc::new(Field::new(format!("{}[{part}]", args.name), kind, true));
    match args.is_distinct {
        true => vec![field("intervals", DataType::List(Arc::new(Field::new_list_field(INTERVAL, true))))],
        false => vec![
            field("months", DataType::Int64),
            field("days", DataType::Int64),
            field("time", TIME),
            field("count", DataType::Int64),
        ],
    }
}

/// Sum and count of intervals.
#[derive(Debug, Default)]
struct Total {
    is_mean: bool,
    months: i64,
    days: i64,
    nanoseconds: i128,
    count: i64,
}

impl Total {
    fn add(&mut self, values: &[ArrayRef], sign: i64) -> Result<()> {
        let [values] = values else { return internal_err!("a sum of {} columns", values.len()) };
        for interval in values.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
            self.count += sign;
        }
        Ok(())
    }

    /// Errors: an interval cannot hold it (22008).
    fn value(&self) -> Result<Option<IntervalMonthDayNano>> {
        if self.count == 0 {
            return Ok(None);
        }
        let parts = (i32::try_from(self.months), i32::try_from(self.days), i64::try_from(self.nanoseconds));
        let (Ok(months), Ok(days), Ok(nanoseconds)) = parts else {
            return Err(
                SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range").into_datafusion()
            );
        };
        let sum = IntervalMonthDayNano::new(months, days, nanoseconds);
        Ok(Some(if self.is_mean { divide(sum, self.count as f64)? } else { sum }))
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::from(self.months),
            ScalarValue::from(self.days),
            ScalarValue::Decimal128(Some(self.nanoseconds), DECIMAL128_MAX_PRECISION, 0),
            ScalarValue::from(self.count),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [months, days, time, counts] = states else {
            return internal_err!("a sum of intervals with {} states", states.len());
        };
        let sum = |parts: &ArrayRef| parts.as_primitive::<Int64Type>().iter().flatten().sum::<i64>();
        self.months += sum(months);
        self.days += sum(days);
        self.nanoseconds += time.as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        self.count += sum(counts);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.value()?))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Distinct intervals; a day equals 24 hours, and a month 30 days.
#[derive(Debug)]
struct DistinctIntervals {
    is_mean: bool,
    all: HashMap<i128, IntervalMonthDayNano>,
}

impl DistinctIntervals {
    fn insert(&mut self, intervals: &ArrayRef) {
        const DAY: i128 = 86_400_000_000_000;
        for interval in intervals.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            let days = 30 * i128::from(interval.months) + i128::from(interval.days);
            self.all.entry(DAY * days + i128::from(interval.nanoseconds)).or_insert(interval);
        }
    }
}

impl Accumulator for DistinctIntervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("a sum of {} columns", values.len()) };
        self.insert(values);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all: Vec<ScalarValue> =
            self.all.values().map(|interval| ScalarValue::IntervalMonthDayNano(Some(*interval))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list(&all, &INTERVAL, true))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists] = states else {
            return internal_err!("a sum of intervals with {} states", states.len());
        };
        lists.as_list::<i32>().iter().flatten().for_each(|list| self.insert(&list));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut total = Total { is_mean: self.is_mean, ..Total::default() };
        let all: IntervalMonthDayNanoArray = self.all.values().map(|interval| Some(*interval)).collect();
        total.update_batch(&[Arc::new(all)])?;
        total.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.all.capacity() * size_of::<(i128, IntervalMonthDayNano)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate_rows(is_mean: bool, is_distinct: bool, all: &[(i32, i32, i64)]) -> Result<ScalarValue> {
        let of = |(months, days, ns): &(i32, i32, i64)| IntervalMonthDayNano::new(*months, *days, *ns);
        let mut merged = accumulator(is_mean, is_distinct);
        for one in all {
            let mut part = accumulator(is_mean, is_distinct);
            part.update_batch(&[Arc::new(IntervalMonthDayNanoArray::from(vec![of(one)]))])?;
            let state = part.state()?.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
            merged.merge_batch(&state)?;
        }
        merged.evaluate()
    }

    fn interval(months: i32, days: i32, ns: i64) -> ScalarValue {
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, ns)))
    }

    #[test]
    fn parts_are_added_up_by_themselves() {
        let hour = 3_600_000_000_000;
        let all = [(1, 1, 20 * hour), (0, 0, 20 * hour)];
        assert_eq!(evaluate_rows(false, false, &all).unwrap(), interval(1, 1, 40 * hour));
        assert_eq!(evaluate_rows(true, false, &all).unwrap(), interval(0, 15, 32 * hour));
        assert_eq!(evaluate_rows(false, false, &[]).unwrap(), ScalarValue::IntervalMonthDayNano(None));
        let all = [(0, 1, 0), (0, 0, 24 * hour)];
        assert_eq!(evaluate_rows(false, true, &all[..1]).unwrap(), interval(0, 1, 0));
        assert_eq!(evaluate_rows(true, true, &all).unwrap(), interval(0, 1, 0));
        let error = evaluate_rows(false, false, &[(i32::MAX, 0, 0), (1, 0, 0)]).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::DATETIME_FIELD_OVERFLOW);
    }
}
