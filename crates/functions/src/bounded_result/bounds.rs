//! Upper bounds of result sizes per row, computed from the arguments.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use super::sizes::{ELEMENT_BYTES, bytes_of, items_of, nodes_of};

/// Maximum bytes of a character.
const CHARACTER_BYTES_MAX: u64 = 4;

/// Bytes of a position in a text.
const PLACE_BYTES: u64 = 8;

/// Maximum bytes of a number or a time as text: a decimal has 76 digits.
const NUMBER_TEXT_BYTES_MAX: u64 = 96;

const HOUR_NS: i128 = 3_600_000_000_000;

const DAY_NS: i128 = 24 * HOUR_NS;

/// Minimum duration of a local day.
const DAY_NS_MIN: i128 = 22 * HOUR_NS;

/// Minimum number of days in a month.
const MONTH_DAYS_MIN: i128 = 28;

/// From this size on, split and replace results are counted exactly, not estimated.
const COUNTED_FROM: u64 = 1 << 16;

/// How a function's result size depends on its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A text, a number of times.
    Repeat,
    /// A text, padded to a number of characters.
    Pad,
    /// Concatenation of all arguments.
    Texts,
    /// Concatenation with the first argument as separator.
    JoinedTexts,
    /// Replacement of one text in a text by another.
    Replace,
    /// Replacement of matches by a text that may contain captures.
    ReplacePattern,
    /// Each byte, or character, becomes at most so many bytes.
    Factor(u64),
    /// The parts of a text.
    Split,
    /// The elements of an array as a text, with a separator.
    Join,
    /// A series of numbers or times.
    Series {
        includes_end: bool,
    },
    /// One element, a number of times.
    RepeatElement,
    /// An array, padded to a number of elements.
    Resize,
    /// Elements, and those of arrays.
    Elements,
    /// An array with elements replaced: one, some, or all.
    ReplaceOne,
    ReplaceSome,
    ReplaceAll,
}

/// Upper bound of one row's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub bytes: u64,
    /// Units of the type's offsets: elements of a list, bytes of a text.
    pub items: u64,
    /// Bytes of the value as PostgreSQL counts it; 0 if unknown.
    pub value: u64,
}

impl Bound {
    fn text(bytes: u64) -> Self {
        Self { bytes, items: bytes, value: bytes }
    }

    fn list(bytes: u64, items: u64) -> Self {
        Self { bytes, items, value: bytes }
    }

    /// Marks the value as possibly much smaller.
    fn as_estimate(self) -> Self {
        Self { value: 0, ..self }
    }
}

impl Rule {
    /// Whether results are as large as the bound, or nearly.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::Replace | Self::ReplacePattern | Self::Split | Self::Join | Self::Pad)
    }

    /// Maximum number of copies of an argument's byte in the result, if that is a small number.
    pub fn factor(self) -> Option<u64> {
        match self {
            Self::Texts | Self::ReplaceOne => Some(1),
            Self::Factor(factor) => Some(factor),
            Self::Elements => Some(1 + ELEMENT_BYTES),
            _ => None,
        }
    }

    pub fn bound(self, arguments: &[Argument<'_>], row: usize) -> Bound {
        let bytes = |at: usize| arguments.get(at).map_or(0, |argument| argument.bytes(row));
        let number = |at: usize| arguments.get(at).map_or(0, |argument| argument.count(row));
        let sum = |each: u64| {
            let bytes = arguments.iter().map(|argument| argument.bytes(row).saturating_add(each));
            bytes.fold(0, u64::saturating_add)
        };
        match self {
            Self::Repeat => Bound::text(bytes(0).saturating_mul(number(1))),
            Self::Pad => {
                let is_ascii = [0, 2].iter().all(|at| arguments.get(*at).is_none_or(Argument::is_ascii));
                // For multi-byte texts, the start of each character is recorded.
                let width = if is_ascii { 1 } else { CHARACTER_BYTES_MAX + PLACE_BYTES };
                let filled = bytes(0).saturating_add(number(1).saturating_mul(width));
                Bound { value: number(1).saturating_mul(CHARACTER_BYTES_MAX), ..Bound::text(filled) }
            }
            Self::Texts => {
                let texts = arguments.iter().map(|argument| argument.text_bytes(row));
                Bound::text(texts.fold(0, u64::saturating_add))
            }
            Self::JoinedTexts => {
                let texts =
                    arguments.iter().map(|argument| argument.text_bytes(row).saturating_add(bytes(0)));
                Bound::text(texts.fold(0, u64::saturating_add))
            }
            Self::Replace => {
                let times = pieces(arguments, row);
                Bound::text(bytes(0).saturating_add(times.saturating_mul(bytes(2))))
            }
            Self::ReplacePattern => {
                let times = match arguments.get(3).map(|flags| flags.text(row)) {
                    None => 1,
                    Some(Some(flags)) if !flags.contains('g') => 1,
                    Some(_) => bytes(0) + 1,
                };
                let parts = arguments
                    .get(2)
                    .and_then(|by| by.text(row))
                    .map_or(0, |by| by.bytes().filter(|byte| matches!(byte, b'$' | b'\\')).count() as u64);
                let matched = bytes(0).saturating_mul(1 + parts);
                Bound::text(matched.saturating_add(times.saturating_mul(bytes(2)))).as_estimate()
            }
            Self::Factor(factor) => Bound::text(sum(0).saturating_mul(factor).saturating_add(4)),
            Self::Split => {
                let items = match arguments.get(1).is_some_and(|delimiter| delimiter.is_null(row)) {
                    // Its characters.
                    true => bytes(0) + 1,
                    false => pieces(arguments, row),
                };
                Bound::list(bytes(0).saturating_add(items.saturating_mul(ELEMENT_BYTES)), items).as_estimate()
            }
            Self::Join => {
                let nodes = arguments.first().map_or(0, |array| array.nodes(row));
                let each = NUMBER_TEXT_BYTES_MAX.saturating_add(bytes(1)).saturating_add(bytes(2));
                Bound::text(bytes(0).saturating_add(nodes.saturating_mul(each))).as_estimate()
            }
            Self::Series { includes_end } => {
                let items = series(arguments, row, includes_end);
                let is_decimal = arguments.first().is_some_and(|first| first.value.data_type().is_decimal());
                Bound::list(items.saturating_mul(if is_decimal { 16 } else { 8 }), items)
            }
            Self::RepeatElement => {
                let times = number(1);
                Bound::list(times.saturating_mul(bytes(0).saturating_add(ELEMENT_BYTES)), times)
            }
            Self::Resize => {
                let each = bytes(2).saturating_add(element_bytes(arguments)).saturating_add(ELEMENT_BYTES);
                Bound::list(bytes(0).saturating_add(number(1).saturating_mul(each)), number(1))
            }
            Self::Elements => {
                let items = arguments.iter().map(|argument| argument.items(row).saturating_add(1));
                Bound::list(sum(ELEMENT_BYTES), items.fold(0, u64::saturating_add))
            }
            Self::ReplaceOne | Self::ReplaceSome | Self::ReplaceAll => {
                let items = arguments.first().map_or(0, |array| array.items(row));
                let replaced = match self {
                    Self::ReplaceOne => items.min(1),
                    Self::ReplaceSome => items.min(number(3)),
                    _ => items,
                };
                Bound::list(bytes(0).saturating_add(replaced.saturating_mul(bytes(2))), items)
            }
        }
    }
}

/// Bytes of a NULL element in the array of the first argument.
fn element_bytes(arguments: &[Argument<'_>]) -> u64 {
    let kind = match arguments.first().map(|array| array.value.data_type()) {
        Some(DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _)) => {
            field.data_type().clone()
        }
        _ => return 8,
    };
    match (kind.primitive_width(), &kind) {
        (Some(width), _) => width as u64,
        (None, DataType::FixedSizeBinary(width)) => u64::try_from(*width).unwrap_or(0),
        // A struct has one per field, a fixed-size list one per element.
        (None, DataType::Struct(fields)) => 16 * fields.len() as u64,
        (None, DataType::FixedSizeList(_, width)) => 16 * u64::try_from(*width).unwrap_or(0),
        _ => 1,
    }
}

/// Upper bound on the pieces into which the second argument splits the first.
fn pieces(arguments: &[Argument<'_>], row: usize) -> u64 {
    let [text, by, ..] = arguments else { return 1 };
    let estimate = text.bytes(row) / by.bytes(row).max(1) + 1;
    match (text.text(row), by.text(row)) {
        (Some(text), Some(by)) if estimate >= COUNTED_FROM && !by.is_empty() => {
            text.matches(by).count() as u64 + 1
        }
        _ => estimate,
    }
}

/// Upper bound on the values of `range` and `generate_series`.
fn series(arguments: &[Argument<'_>], row: usize, includes_end: bool) -> u64 {
    let at = |at: usize| arguments.get(at).and_then(|argument| argument.time(row));
    let (from, to, step) = match arguments.len() {
        1 => (Some(0), at(0), Some(1)),
        2 => (at(0), at(1), Some(1)),
        _ => match arguments[2].interval(row) {
            Some((months, days, ns)) => {
                // Dates ignore the time of a step.
                let ns = if arguments[0].is_date() { 0 } else { ns };
                let parts = [i128::from(months), i128::from(days), i128::from(ns)];
                let least = (parts[0] * MONTH_DAYS_MIN + parts[1]) * DAY_NS_MIN + parts[2];
                // Mixed signs: it may never reach the end.
                if parts.iter().any(|part| *part > 0) && parts.iter().any(|part| *part < 0) {
                    return u64::MAX;
                }
                (at(0), at(1), Some(least))
            }
            None => (at(0), at(1), at(2)),
        },
    };
    let real = |at: usize| arguments.get(at).and_then(|argument| argument.real(row));
    if let (Some(from), Some(to)) = (real(0), real(1)) {
        let step = if arguments.len() < 3 { Some(1.0) } else { real(2) };
        // A step of 0 is an error of the function.
        let items = step.filter(|step| *step != 0.0).map_or(0.0, |step| (to - from) / step);
        // Rounded up; NaN means no end.
        return if items < 0.0 { 0 } else { (items + 2.0) as u64 };
    }
    let (Some(from), Some(to), Some(step)) = (from, to, step) else { return 0 };
    if step == 0 || (to - from).signum() == -step.signum() {
        return 0;
    }
    let items = (to - from).unsigned_abs() / step.unsigned_abs() + 1 + u128::from(includes_end);
    u64::try_from(items).unwrap_or(u64::MAX)
}

/// An argument: one value for all rows or one for each.
pub(crate) struct Argument<'a> {
    value: &'a ColumnarValue,
    /// The value or values; `None` for a scalar text, which is not copied.
    array: Option<ArrayRef>,
    bytes: Vec<u64>,
    nodes: Vec<u64>,
    items: Vec<u64>,
    numbers: Option<ArrayRef>,
    /// Non-integer numbers, as doubles.
    reals: Option<ArrayRef>,
}

impl<'a> Argument<'a> {
    pub fn new(value: &'a ColumnarValue) -> Result<Self> {
        let array = match value {
            ColumnarValue::Array(array) => Some(array.clone()),
            ColumnarValue::Scalar(scalar) if scalar.try_as_str().flatten().is_some() => None,
            ColumnarValue::Scalar(scalar) => Some(scalar.to_array()?),
        };
        let bytes = match (&array, value) {
            (Some(array), _) => bytes_of(array),
            (None, ColumnarValue::Scalar(scalar)) => {
                vec![text_of(scalar).map_or(0, |text| text.len() as u64)]
            }
            (None, ColumnarValue::Array(_)) => Vec::new(),
        };
        let nested = array.as_ref().filter(|array| array.data_type().is_nested());
        let nodes = nested.map_or_else(Vec::new, |array| nodes_of(array));
        let items = nested.map_or_else(Vec::new, |array| items_of(array));
        let numbers = match &array {
            Some(array) => ticks(array)?,
            None => None,
        };
        let reals = match &array {
            Some(array) if array.data_type().is_floating() || array.data_type().is_decimal() => {
                Some(cast(array, &DataType::Float64)?)
            }
            _ => None,
        };
        Ok(Self { value, array, bytes, nodes, items, numbers, reals })
    }

    fn at(&self, row: usize) -> usize {
        match self.value {
            ColumnarValue::Array(_) => row,
            ColumnarValue::Scalar(_) => 0,
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.array.as_ref().is_some_and(|array| array.is_null(self.at(row)) || array.data_type().is_null())
    }

    fn bytes(&self, row: usize) -> u64 {
        self.bytes[self.at(row)]
    }

    /// Bytes of the value as text.
    fn text_bytes(&self, row: usize) -> u64 {
        match self.value.data_type() {
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView => self.bytes(row),
            _ => self.bytes(row).saturating_add(NUMBER_TEXT_BYTES_MAX),
        }
    }

    fn nodes(&self, row: usize) -> u64 {
        self.nodes.get(self.at(row)).copied().unwrap_or(0)
    }

    fn items(&self, row: usize) -> u64 {
        self.items.get(self.at(row)).copied().unwrap_or(0)
    }

    fn text(&self, row: usize) -> Option<&str> {
        let Some(array) = &self.array else {
            return match self.value {
                ColumnarValue::Scalar(scalar) => text_of(scalar),
                ColumnarValue::Array(_) => None,
            };
        };
        let at = self.at(row);
        if array.is_null(at) {
            return None;
        }
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(at)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(at)),
            DataType::Utf8View => Some(array.as_string_view().value(at)),
            _ => None,
        }
    }

    fn is_ascii(&self) -> bool {
        let Some(array) = &self.array else {
            return self.text(0).is_none_or(str::is_ascii);
        };
        match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().is_ascii(),
            DataType::LargeUtf8 => array.as_string::<i64>().is_ascii(),
            DataType::Utf8View => array.as_string_view().is_ascii(),
            _ => false,
        }
    }

    /// The number, or the timestamp in nanoseconds.
    fn time(&self, row: usize) -> Option<i128> {
        let (numbers, at) = (self.numbers.as_ref()?, self.at(row));
        if numbers.is_null(at) {
            return None;
        }
        Some(i128::from(numbers.as_primitive::<Int64Type>().value(at)) * self.unit_ns())
    }

    fn real(&self, row: usize) -> Option<f64> {
        let (reals, at) = (self.reals.as_ref()?, self.at(row));
        reals.is_valid(at).then(|| reals.as_primitive::<Float64Type>().value(at))
    }

    /// Nanoseconds of one unit of its numbers, for time types.
    fn unit_ns(&self) -> i128 {
        match self.value.data_type() {
            DataType::Date32 => DAY_NS,
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => 1_000_000,
            DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
            DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
            _ => 1,
        }
    }

    fn is_date(&self) -> bool {
        matches!(self.value.data_type(), DataType::Date32 | DataType::Date64)
    }

    fn interval(&self, row: usize) -> Option<(i32, i32, i64)> {
        let (array, at) = (self.array.as_ref()?, self.at(row));
        if *array.data_type() != DataType::Interval(IntervalUnit::MonthDayNano) || array.is_null(at) {
            return None;
        }
        let interval = array.as_primitive::<IntervalMonthDayNanoType>().value(at);
        Some(IntervalMonthDayNanoType::to_parts(interval))
    }

    /// A repeat count; negative ones count as 0.
    fn count(&self, row: usize) -> u64 {
        self.time(row).map_or(0, |number| u64::try_from(number.max(0)).unwrap_or(u64::MAX))
    }
}

fn text_of(scalar: &ScalarValue) -> Option<&str> {
    scalar.try_as_str().flatten()
}

/// Integers, dates and timestamps as 64 bits.
fn ticks(array: &ArrayRef) -> Result<Option<ArrayRef>> {
    Ok(match array.data_type() {
        kind if kind.is_integer() => Some(cast(array, &DataType::Int64)?),
        DataType::Date32 => Some(cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?),
        DataType::Date64 | DataType::Timestamp(..) => Some(cast(array, &DataType::Int64)?),
        _ => None,
    })
}
