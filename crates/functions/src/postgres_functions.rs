//! Scalar functions of PostgreSQL that DataFusion lacks or implements differently: tables of definitions,
//! evaluated row by row by one type.
//!
//! Ranks know them by their names. A name that is another function for other arguments is rewritten before
//! planning (`desugar/calls.rs` of crate sql).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::datetime::zone_offset::{offset_then, zone_of};
use crate::interruptible::flag;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

mod arrays;
mod bytes;
mod numbers;
mod texts;
mod times;

const SECOND_US: i64 = 1_000_000;

/// The type of an argument or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bytes,
    /// 64-bit integer, also for narrower arguments.
    Int,
    /// 32-bit integer.
    Int4,
    Double,
    /// Decimal of 38 digits and scale 0.
    Whole,
    /// Unchanged: integers and decimals, which have no type of their own here.
    Number,
    Bool,
    /// Months, days and nanoseconds.
    Interval,
    /// Microseconds since 1970; for an argument with a zone, its local time there.
    Timestamp,
    /// Microseconds since midnight.
    Time,
    List,
    /// Days since 1970.
    Date,
    /// A list of texts.
    Texts,
    Any,
}

use Kind::{
    Any, Bool, Bytes, Date, Double, Int, Int4, Interval, List, Number, Text, Texts, Time, Timestamp, Whole,
};

impl Kind {
    /// The type to which an argument of this kind is coerced; `None`: not accepted.
    fn coerce(self, given: &DataType) -> Option<DataType> {
        let is_open = given.is_null() || given.is_string();
        let fits = match self {
            Any => return Some(given.clone()),
            Number | List if given.is_null() => return Some(given.clone()),
            Number => return (given.is_integer() || given.is_decimal()).then(|| given.clone()),
            List => {
                return match given {
                    DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                        Some(DataType::List(Arc::clone(item)))
                    }
                    _ => None,
                };
            }
            Text => is_open,
            Bytes => given.is_binary() || is_open,
            // A string literal takes the expected type.
            Int | Int4 => given.is_integer() || is_open,
            Double => given.is_numeric() || is_open,
            Whole => given.is_integer() || given.is_null(),
            Bool => *given == DataType::Boolean || given.is_null(),
            Interval => matches!(given, DataType::Interval(_) | DataType::Duration(_)) || is_open,
            Timestamp => matches!(given, DataType::Timestamp(..) | DataType::Date32) || is_open,
            Date => *given == DataType::Date32 || is_open,
            Texts => given.is_null(),
            Time => matches!(given, DataType::Time64(_) | DataType::Time32(_)) || is_open,
        };
        fits.then(|| match (self, given) {
            // Local time requires a known zone.
            (Timestamp, DataType::Timestamp(_, zone)) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => self.data_type(),
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Text => DataType::Utf8,
            Bytes => DataType::Binary,
            Int => DataType::Int64,
            Int4 => DataType::Int32,
            Double => DataType::Float64,
            Whole => DataType::Decimal128(38, 0),
            Bool => DataType::Boolean,
            Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Time => DataType::Time64(TimeUnit::Microsecond),
            Date => DataType::Date32,
            Texts => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            Number | List | Any => DataType::Null,
        }
    }
}

/// A function for certain argument types.
pub(crate) struct Definition {
    name: &'static str,
    arguments: &'static [Kind],
    /// Minimum number of arguments; variadic in the last type if there are none.
    least: usize,
    /// `List`: the type of the first argument. `Number`: the same, or a decimal with the largest scale of the
    /// arguments.
    result: Kind,
    /// Evaluates values of the argument types, none of which is NULL unless [`Definition::takes_nulls`].
    evaluate: fn(&[ScalarValue]) -> Result<ScalarValue>,
}

impl Definition {
    pub(crate) const fn new(
        name: &'static str,
        arguments: &'static [Kind],
        result: Kind,
        evaluate: fn(&[ScalarValue]) -> Result<ScalarValue>,
    ) -> Self {
        Self { name, arguments, least: arguments.len(), result, evaluate }
    }

    /// Makes the arguments from this position on optional.
    pub(crate) const fn from(mut self, least: usize) -> Self {
        self.least = least;
        self
    }

    #[cfg(test)]
    pub(crate) fn name(&self) -> &str {
        self.name
    }

    #[cfg(test)]
    pub(crate) fn value(&self, values: &[ScalarValue]) -> Result<ScalarValue> {
        (self.evaluate)(values)
    }

    /// Whether it accepts any number of arguments, including NULL.
    fn takes_nulls(&self) -> bool {
        self.least == 0
    }

    fn coerce(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        if self.takes_nulls() {
            return (!given.is_empty()).then(|| given.to_vec());
        }
        let fits = (self.least..=self.arguments.len()).contains(&given.len());
        let pairs = self.arguments.iter().zip(given);
        fits.then(|| pairs.map(|(kind, given)| kind.coerce(given)).collect()).flatten()
    }
}

/// All definitions of one name.
pub(crate) struct Function {
    name: String,
    overloads: Vec<&'static Definition>,
    signature: Signature,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Definitions for bytes of a function of texts.
pub(crate) fn of_bytes(name: &str) -> Function {
    let overloads = bytes::OF_TEXTS_TOO.iter().filter(|definition| definition.name == name);
    Function { overloads: overloads.collect(), ..Function::none(name) }
}

/// The function of this name, which is one of [`functions`].
fn by_name(name: &str) -> Arc<ScalarUDF> {
    functions().find(|function| function.name() == name).unwrap_or_else(|| unreachable!("{name} is one"))
}

/// LIKE of bytes: (bytes, pattern) or (bytes, pattern, text with the escape).
pub fn like_of_bytes() -> Arc<ScalarUDF> {
    by_name(bytes::LIKE)
}

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let tables = [
        arrays::DEFINITIONS,
        bytes::DEFINITIONS,
        numbers::DEFINITIONS,
        texts::DEFINITIONS,
        times::DEFINITIONS,
    ];
    of_tables(tables)
}

/// The functions of tables of definitions.
pub(crate) fn of_tables(
    tables: impl IntoIterator<Item = &'static [Definition]>,
) -> impl Iterator<Item = Arc<ScalarUDF>> {
    let all: Vec<&'static Definition> = tables.into_iter().flatten().collect();
    let mut functions: Vec<Function> = Vec::with_capacity(all.len());
    for definition in all {
        match functions.iter_mut().find(|function| function.name == definition.name) {
            Some(function) => function.overloads.push(definition),
            None => {
                functions.push(Function { overloads: vec![definition], ..Function::none(definition.name) });
            }
        }
    }
    functions.into_iter().map(|function| Arc::new(ScalarUDF::new_from_impl(function)))
}

impl Function {
    /// A function without arguments.
    pub(crate) fn none(name: &str) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name: name.to_string(), overloads: Vec::new(), signature }
    }

    fn of(&self, given: &[DataType]) -> Result<(&'static Definition, Vec<DataType>)> {
        let mut fitting = self.overloads.iter();
        match fitting.find_map(|one| one.coerce(given).map(|coerced| (*one, coerced))) {
            Some(found) => Ok(found),
            None => {
                let given: Vec<String> = given.iter().map(DataType::to_string).collect();
                plan_err!("function {}({}) does not exist", self.name, given.join(", "))
            }
        }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        self.of(given).map(|(_, coerced)| coerced)
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let (definition, _) = self.of(given)?;
        Ok(match (definition.result, given) {
            (List, [first, ..]) => first.clone(),
            (Number, [first, ..]) => {
                let decimals = given.iter().filter(|kind| kind.is_decimal());
                let scale = decimals.map(scale_of).max();
                scale.map_or_else(
                    || first.clone(),
                    |scale| DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
                )
            }
            (result, _) => result.data_type(),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = arguments.args.iter().map(ColumnarValue::data_type).collect();
        let (definition, _) = self.of(&types)?;
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let canceled = flag(&arguments.config_options);
        let result = arguments.return_field.data_type();
        let null = ScalarValue::try_from(result)?;
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            canceled.check()?;
            let row = columns.iter().map(|column| ScalarValue::try_from_array(column, row));
            let row = row.collect::<Result<Vec<_>>>()?;
            let is_null = !definition.takes_nulls() && row.iter().any(ScalarValue::is_null);
            values.push(match is_null {
                true => null.clone(),
                false => of_kind((definition.evaluate)(&row)?, definition, result)?,
            });
        }
        if is_constant {
            let Some(value) = values.pop() else { return internal_err!("{} has no value", self.name) };
            return Ok(ColumnarValue::Scalar(value));
        }
        match values.is_empty() {
            true => Ok(ColumnarValue::Array(datafusion::arrow::array::new_empty_array(result))),
            false => Ok(ColumnarValue::Array(ScalarValue::iter_to_array(values)?)),
        }
    }
}

fn scale_of(kind: &DataType) -> i8 {
    match kind {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// Converts a number to the result type.
///
/// Errors: it does not fit (22003).
fn of_kind(value: ScalarValue, definition: &Definition, kind: &DataType) -> Result<ScalarValue> {
    if definition.result != Number || value.data_type() == *kind {
        return Ok(value);
    }
    value.cast_to(kind).map_err(|_| {
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range").into_datafusion()
    })
}

/// The type of a list's field.
fn field_of(kind: &DataType) -> Option<&Field> {
    match kind {
        DataType::List(field) => Some(field),
        _ => None,
    }
}

pub(crate) fn text(value: &ScalarValue) -> &str {
    value.try_as_str().flatten().unwrap_or_default()
}

pub(crate) fn int(value: &ScalarValue) -> i64 {
    match value {
        ScalarValue::Int64(Some(value)) => *value,
        _ => 0,
    }
}

pub(crate) fn double(value: &ScalarValue) -> f64 {
    match value {
        ScalarValue::Float64(Some(value)) => *value,
        _ => 0.0,
    }
}

pub(crate) fn bytes(value: &ScalarValue) -> &[u8] {
    match value {
        ScalarValue::Binary(Some(value)) => value,
        _ => &[],
    }
}

/// Months, days and nanoseconds.
fn interval(value: &ScalarValue) -> (i32, i32, i64) {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(value)) => (value.months, value.days, value.nanoseconds),
        _ => (0, 0, 0),
    }
}

/// Microseconds of local time since 1970.
///
/// Errors: an unknown zone; a year out of range.
fn timestamp(value: &ScalarValue) -> Result<i64> {
    let ScalarValue::TimestampMicrosecond(Some(us), zone) = value else { return Ok(0) };
    let Some(zone) = zone else { return Ok(*us) };
    let ahead = offset_then(&zone_of(zone)?, us.div_euclid(SECOND_US));
    match ahead.and_then(|seconds| us.checked_add(seconds * SECOND_US)) {
        Some(us) => Ok(us),
        None => {
            Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range").into_datafusion())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_overload_is_used() {
        let of = |name: &str, given: &[DataType]| {
            let function = functions().find(|function| function.name() == name).unwrap();
            function.coerce_types(given).map_err(|error| error.to_string())
        };
        assert_eq!(of("sind", &[DataType::Int32]).unwrap(), [DataType::Float64]);
        assert_eq!(
            of("make_time", &[DataType::Utf8, DataType::Int8, DataType::Utf8]).unwrap()[0],
            DataType::Int64
        );
        assert!(
            of("sind", &[DataType::Date32]).unwrap_err().contains("function sind(Date32) does not exist")
        );
        let kinds = [DataType::Int64, DataType::Int64, DataType::Int64, DataType::Int32];
        assert_eq!(of("width_bucket", &kinds).unwrap()[3], DataType::Int64);
        assert_eq!(of("num_nulls", &[DataType::Null, DataType::Utf8]).unwrap().len(), 2);
    }
}
