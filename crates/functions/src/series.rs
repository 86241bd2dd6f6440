//! `generate_series(first, last, step)` as a list of its values, with PostgreSQL's argument types.
//!
//! | first, last | step | values |
//! |---|---|---|
//! | integers | an integer, 1 by default | `BIGINT` |
//! | numerics | a numeric, 1 by default | numerics of the largest scale |
//! | doubles | a double, 1 by default | doubles; not in PostgreSQL |
//! | timestamps, texts beside one | an interval | timestamps |
//! | timestamptz, dates, texts | an interval | timestamptz |
//!
//! Months and days of a step are added in local time of the session's zone, as `+` does: a series at 02:30
//! continues at 02:30, also across DST changes. DataFusion's function supports only integers, dates and
//! nanoseconds, ends a series at a DST gap, and does not accept texts.

use std::sync::Arc;

use chrono::{DateTime, Days, Months};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, ListArray, PrimitiveArray, PrimitiveBuilder,
};
use datafusion::arrow::array::{ArrayBuilder, NullBufferBuilder};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::zone_offset::{offset_then, offset_there, zone_of};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Digits of a numeric in a series.
const DIGITS: u8 = 38;

/// Scale of an integer.
const WHOLE_SCALE: i8 = 0;

const MONTH_DAYS: i128 = 30;
const DAY_US: i128 = 86_400_000_000;
const SECOND_US: i64 = 1_000_000;

/// The function; ranks know it by its name.
///
/// Errors: a step of zero (22023), other types (42883).
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Series::new("UTC".into())))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    /// The session's zone, which defines days.
    zone: Arc<str>,
    signature: Signature,
}

impl Series {
    fn new(zone: Arc<str>) -> Self {
        Self { zone, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// The type of the values; `None`: there are no such series.
    fn kind(&self, arguments: &[DataType]) -> Option<DataType> {
        let (ends, step) = match arguments {
            [first, last] => ([first, last], None),
            [first, last, step] => ([first, last], Some(step)),
            _ => return None,
        };
        let is_open = |kind: &DataType| kind.is_null() || kind.is_string();
        let is_time = |kind: &DataType| {
            matches!(kind, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)) || is_open(kind)
        };
        let is_of_times = ends.into_iter().any(|kind| !is_open(kind) && is_time(kind))
            || matches!(step, Some(DataType::Interval(_)));
        if is_of_times {
            let has_step = step.is_some_and(|step| matches!(step, DataType::Interval(_)) || is_open(step));
            return (has_step && ends.into_iter().all(is_time)).then(|| self.kind_of_times(ends));
        }
        let is_number = |kind: &&DataType| kind.is_numeric() || is_open(kind);
        if !arguments.iter().all(|kind| is_number(&kind)) || arguments.iter().all(DataType::is_string) {
            return None;
        }
        if arguments.iter().any(DataType::is_floating) {
            return Some(DataType::Float64);
        }
        let scales = arguments.iter().filter_map(|kind| match kind {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => Some(*scale),
            _ => None,
        });
        Some(match scales.max() {
            Some(scale) => DataType::Decimal128(DIGITS, scale.max(WHOLE_SCALE)),
            None => DataType::Int64,
        })
    }

    fn kind_of_times(&self, ends: [&DataType; 2]) -> DataType {
        let zone = ends.into_iter().find_map(|kind| match kind {
            DataType::Timestamp(_, Some(zone)) => Some(Arc::clone(zone)),
            _ => None,
        });
        let is_local = ends.into_iter().any(|kind| matches!(kind, DataType::Timestamp(_, None)));
        let zone = zone.or_else(|| (!is_local).then(|| Arc::clone(&self.zone)));
        DataType::Timestamp(TimeUnit::Microsecond, zone)
    }
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        "generate_series"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let zone = config.execution.time_zone.as_deref()?;
        Some(ScalarUDF::new_from_impl(Self::new(zone.into())))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Some(kind) = self.kind(arguments) else {
            let given: Vec<String> = arguments.iter().map(DataType::to_string).collect();
            let message = format!("function generate_series({}) does not exist", given.join(", "));
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion());
        };
        let step = match &kind {
            DataType::Timestamp(..) => DataType::Interval(IntervalUnit::MonthDayNano),
            kind => kind.clone(),
        };
        Ok([kind.clone(), kind, step].into_iter().take(arguments.len()).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(kind) => Ok(DataType::List(Arc::new(Field::new_list_field(kind.clone(), true)))),
            None => internal_err!("generate_series has arguments"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { arguments.number_rows };
        let given = arguments.args.iter().map(|argument| argument.to_array(rows));
        let given = given.collect::<Result<Vec<_>>>()?;
        let [first, last, step @ ..] = given.as_slice() else {
            return internal_err!("generate_series of {} arguments", given.len());
        };
        let (kind, step) = (first.data_type(), step.first());
        let lists: ArrayRef = match kind {
            DataType::Int64 => {
                let lists = Lists::<Int64Type>::of(first, last, step, Some(1), |first, last, step| {
                    numbers(first, last, step, i64::checked_add)
                });
                Arc::new(lists?)
            }
            DataType::Decimal128(_, scale) => {
                let one = 10_i128.checked_pow(u32::try_from(*scale).unwrap_or(0));
                let lists = Lists::<Decimal128Type>::of(first, last, step, one, |first, last, step| {
                    numbers(first, last, step, i128::checked_add)
                });
                Arc::new(lists?)
            }
            DataType::Float64 => Arc::new(Lists::<Float64Type>::of(first, last, step, Some(1.0), doubles)?),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let Some(step) = step else { return internal_err!("a series of times without a step") };
                let zone = zone.as_deref().map(zone_of).transpose()?;
                Arc::new(times(first, last, step, zone.as_ref())?)
            }
            other => return internal_err!("a series of {other}"),
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?),
            false => ColumnarValue::Array(lists),
        })
    }
}

fn no_step() -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into_datafusion()
}

/// A list for each row.
struct Lists<T: ArrowPrimitiveType> {
    values: PrimitiveBuilder<T>,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Lists<T> {
    /// A builder for values of the type of `like`.
    fn new(like: &ArrayRef) -> Self {
        Self {
            values: PrimitiveBuilder::<T>::new().with_data_type(like.data_type().clone()),
            ends: vec![0],
            nulls: NullBufferBuilder::new(like.len()),
        }
    }

    /// Builds the list of `made` for each row whose arguments are all non-null; missing steps are `one`.
    fn of<I: Iterator<Item = T::Native>>(
        first: &ArrayRef,
        last: &ArrayRef,
        step: Option<&ArrayRef>,
        one: Option<T::Native>,
        made: impl Fn(T::Native, T::Native, T::Native) -> Result<I>,
    ) -> Result<ListArray> {
        let [from, to] = [first.as_primitive::<T>(), last.as_primitive::<T>()];
        let steps = step.map(|step| step.as_primitive::<T>());
        let value = |array: &PrimitiveArray<T>, row: usize| array.is_valid(row).then(|| array.value(row));
        let mut lists = Self::new(first);
        for row in 0..first.len() {
            let step = steps.map_or(one, |steps| value(steps, row));
            match (value(from, row), value(to, row), step) {
                (Some(from), Some(to), Some(step)) => lists.push(made(from, to, step)?)?,
                _ => lists.push_null(),
            }
        }
        lists.finish()
    }

    /// Errors: more values than a list can have (54000).
    fn push(&mut self, values: impl Iterator<Item = T::Native>) -> Result<()> {
        for value in values {
            self.values.append_value(value);
        }
        let end = i32::try_from(self.values.len())
            .map_err(|_| {
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a series has too many values for an array")
            })
            .map_err(harrier_sqlstate::external)?;
        self.ends.push(end);
        self.nulls.append_non_null();
        Ok(())
    }

    fn push_null(&mut self) {
        self.ends.push(self.ends[self.ends.len() - 1]);
        self.nulls.append_null();
    }

    fn finish(mut self) -> Result<ListArray> {
        let values = self.values.finish();
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let ends = OffsetBuffer::new(self.ends.into());
        Ok(ListArray::try_new(field, ends, Arc::new(values), self.nulls.finish())?)
    }
}

/// Values from `first` to `last`; ends if the next one is out of range.
fn numbers<N: Copy + PartialOrd + Default>(
    first: N,
    last: N,
    step: N,
    sum: impl Fn(N, N) -> Option<N>,
) -> Result<impl Iterator<Item = N>> {
    let zero = N::default();
    if step == zero {
        return Err(no_step());
    }
    let is_within = move |value: &N| if step > zero { *value <= last } else { *value >= last };
    Ok(std::iter::successors(Some(first), move |value| sum(*value, step)).take_while(is_within))
}

fn doubles(first: f64, last: f64, step: f64) -> Result<impl Iterator<Item = f64>> {
    if step == 0.0 {
        return Err(no_step());
    }
    // Multiplied, so that errors do not accumulate.
    let values = (0_u32..).map(move |count| step.mul_add(f64::from(count), first));
    Ok(values.take_while(move |value| if step > 0.0 { *value <= last } else { *value >= last }))
}

fn times(first: &ArrayRef, last: &ArrayRef, step: &ArrayRef, zone: Option<&Tz>) -> Result<ListArray> {
    let [from, to] = [first, last].map(|times| times.as_primitive::<TimestampMicrosecondType>());
    let step = cast(step, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let steps = step.as_primitive::<IntervalMonthDayNanoType>();
    let mut lists = Lists::<TimestampMicrosecondType>::new(first);
    for row in 0..first.len() {
        if from.is_null(row) || to.is_null(row) || steps.is_null(row) {
            lists.push_null();
            continue;
        }
        let step = Step::new(IntervalMonthDayNanoType::to_parts(steps.value(row)));
        let last = to.value(row);
        let is_within = |time: &i64| if step.sign > 0 { *time <= last } else { *time >= last };
        match step.sign {
            0 => return Err(no_step()),
            _ => {
                let next = |time: &i64| step.after(*time, zone);
                lists.push(std::iter::successors(Some(from.value(row)), next).take_while(is_within))?;
            }
        }
    }
    lists.finish()
}

struct Step {
    months: i32,
    days: i32,
    us: i64,
    /// Sign of the whole step, with months of 30 days.
    sign: i128,
}

/// Rounds to microseconds, the precision of PostgreSQL's intervals: smaller steps are zero.
fn rounded_to_us(ns: i64) -> i64 {
    let (us, rest) = (ns.div_euclid(1000), ns.rem_euclid(1000));
    us + i64::from(rest >= 500)
}

impl Step {
    fn new((months, days, ns): (i32, i32, i64)) -> Self {
        let us = rounded_to_us(ns);
        let all = (i128::from(months) * MONTH_DAYS + i128::from(days)) * DAY_US + i128::from(us);
        Self { months, days, us, sign: all.signum() }
    }

    /// The time one step later, in microseconds; `None`: the year is out of range.
    fn after(&self, time: i64, zone: Option<&Tz>) -> Option<i64> {
        if self.months == 0 && self.days == 0 {
            return time.checked_add(self.us);
        }
        let ahead = zone.map_or(Some(0), |zone| offset_then(zone, time.div_euclid(SECOND_US)))?;
        let local = time.checked_add(ahead * SECOND_US)?;
        let local = DateTime::from_timestamp_micros(local)?.naive_utc();
        let months = Months::new(self.months.unsigned_abs());
        let local = match self.months < 0 {
            true => local.checked_sub_months(months)?,
            false => local.checked_add_months(months)?,
        };
        let days = Days::new(self.days.unsigned_abs().into());
        let local = match self.days < 0 {
            true => local.checked_sub_days(days)?,
            false => local.checked_add_days(days)?,
        };
        let local = local.and_utc().timestamp_micros();
        let ahead = zone.map_or(Some(0), |zone| offset_there(zone, local.div_euclid(SECOND_US)))?;
        local.checked_sub(ahead * SECOND_US)?.checked_add(self.us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
    }

    #[test]
    fn steps_of_months_and_days_go_by_the_clocks() {
        let berlin = zone_of("Europe/Berlin").unwrap();
        let after = |from: &str, parts, zone: Option<&Tz>| {
            let time = Step::new(parts).after(at(from), zone).unwrap();
            DateTime::from_timestamp_micros(time).unwrap().format("%F %T").to_string()
        };
        // 02:30 on the day before the DST gap; the day after, 02:30 again.
        assert_eq!(after("2024-03-30T01:30:00Z", (0, 1, 0), Some(&berlin)), "2024-03-31 01:30:00");
        assert_eq!(after("2024-03-31T01:30:00Z", (0, 1, 0), Some(&berlin)), "2024-04-01 01:30:00");
        assert_eq!(after("2024-03-30T23:00:00Z", (0, 1, 0), Some(&berlin)), "2024-03-31 22:00:00");
        assert_eq!(
            after("2024-03-30T23:00:00Z", (0, 0, 86_400_000_000_000), Some(&berlin)),
            "2024-03-31 23:00:00"
        );
        assert_eq!(after("2024-01-31T00:00:00Z", (1, 0, 0), None), "2024-02-29 00:00:00");
        assert_eq!(after("2024-03-31T00:00:00Z", (-1, -1, 0), None), "2024-02-28 00:00:00");
        assert_eq!(Step::new((1, 0, 0)).after(i64::MAX, None), None);
        assert_eq!(Step::new((1, -30, 0)).sign, 0);
    }

    #[test]
    fn steps_are_of_whole_microseconds() {
        let step = |ns| Step::new((0, 0, ns));
        for (ns, us) in [(1, 0_i64), (-1, 0), (499, 0), (500, 1), (1500, 2), (-1501, -2), (2000, 2)] {
            assert_eq!((step(ns).us, step(ns).sign), (us, i128::from(us.signum())), "{ns}");
        }
    }

    #[test]
    fn types_are_postgresqls() {
        let series = Series::new("Asia/Tokyo".into());
        let moments = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        let interval = DataType::Interval(IntervalUnit::MonthDayNano);
        let check = |arguments: &[DataType], expected: Option<DataType>| {
            assert_eq!(series.kind(arguments), expected, "{arguments:?}");
        };
        check(&[DataType::Int32, DataType::Null], Some(DataType::Int64));
        check(&[DataType::Int32, DataType::Utf8], Some(DataType::Int64));
        check(&[DataType::Int32, DataType::Decimal128(4, 2)], Some(DataType::Decimal128(38, 2)));
        check(&[DataType::Date32, DataType::Utf8, interval.clone()], Some(moments("Asia/Tokyo")));
        check(&[DataType::Utf8, DataType::Utf8, interval.clone()], Some(moments("Asia/Tokyo")));
        check(&[DataType::Date32, local.clone(), interval.clone()], Some(local.clone()));
        check(&[moments("UTC"), local.clone(), DataType::Utf8], Some(moments("UTC")));
        for wrong in [
            vec![DataType::Date32, DataType::Date32],
            vec![DataType::Date32, DataType::Int32, interval.clone()],
            vec![DataType::Utf8, DataType::Utf8],
            vec![DataType::Int32, DataType::Int32, interval],
            vec![DataType::Boolean, DataType::Int32],
            vec![DataType::Int32],
        ] {
            check(&wrong, None);
        }
    }

    #[test]
    fn series_end_at_the_type_bounds() {
        let all =
            |first, last, step| numbers(first, last, step, i64::checked_add).unwrap().collect::<Vec<_>>();
        assert_eq!(all(i64::MAX - 1, i64::MAX, 1), [i64::MAX - 1, i64::MAX]);
        assert_eq!(all(3, 1, -2), [3, 1]);
        assert_eq!(all(3, 1, 1), [0_i64; 0]);
        assert!(numbers(1, 2, 0, i64::checked_add).is_err());
        assert_eq!(doubles(0.0, 0.3, 0.1).unwrap().count(), 3);
    }
}
