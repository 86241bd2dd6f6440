//! How large the result of a function is at most, for each row, by what its arguments are.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use super::sizes::{ELEMENT_BYTES, bytes_of, items_of, nodes_of};

/// Bytes of a character at most.
const CHARACTER_BYTES_MAX: u64 = 4;

/// Bytes of a place in a text.
const PLACE_BYTES: u64 = 8;

/// Bytes of the text of a number or a time at most: a decimal has 76 digits.
const NUMBER_TEXT_BYTES_MAX: u64 = 96;

const HOUR_NS: i128 = 3_600_000_000_000;

const DAY_NS: i128 = 24 * HOUR_NS;

/// From one local time to the same of the next day, at least.
const DAY_NS_MIN: i128 = 22 * HOUR_NS;

/// Days of a month at least.
const MONTH_DAYS_MIN: i128 = 28;

/// From so many bytes on, what a text is cut at or replaced in is counted, not estimated.
const COUNTED_FROM: u64 = 1 << 16;

/// What a function does with the sizes of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A text, a number of times.
    Repeat,
    /// A text, filled up to a number of characters.
    Pad,
    /// All arguments, one behind the other.
    Texts,
    /// The same with the first argument between them.
    JoinedTexts,
    /// One text in a text by another.
    Replace,
    /// What a pattern matches, by a text with parts of what it matched.
    ReplacePattern,
    /// Each byte, or character, by so many bytes at most.
    Factor(u64),
    /// The parts of a text.
    Split,
    /// The elements of an array as a text, with another one between them.
    Join,
    /// Numbers or times.
    Series {
        includes_end: bool,
    },
    /// One element, a number of times.
    RepeatElement,
    /// An array, filled up to a number of elements.
    Resize,
    /// Elements, and those of arrays.
    Elements,
    /// An array with elements replaced: one, some, or all.
    ReplaceOne,
    ReplaceSome,
    ReplaceAll,
}

/// Of one row's result, at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub bytes: u64,
    /// What the offsets of its type count: elements of a list, bytes of a text.
    pub items: u64,
    /// Bytes of the value by itself, as PostgreSQL counts it; 0 where that is not known.
    pub value: u64,
}

impl Bound {
    fn text(bytes: u64) -> Self {
        Self { bytes, items: bytes, value: bytes }
    }

    fn list(bytes: u64, items: u64) -> Self {
        Self { bytes, items, value: bytes }
    }

    /// The value may be much smaller.
    fn estimated(self) -> Self {
        Self { value: 0, ..self }
    }
}

impl Rule {
    /// Whether a result is as large as its bound, or nearly.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::Replace | Self::ReplacePattern | Self::Split | Self::Join | Self::Pad)
    }

    /// How often a byte of an argument is in the result at most, where that is a small number.
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
                // Where characters have several bytes, it is written down where each begins.
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
                Bound::text(matched.saturating_add(times.saturating_mul(bytes(2)))).estimated()
            }
            Self::Factor(factor) => Bound::text(sum(0).saturating_mul(factor).saturating_add(4)),
            Self::Split => {
                let items = match arguments.get(1).is_some_and(|delimiter| delimiter.is_null(row)) {
                    // Its characters.
                    true => bytes(0) + 1,
                    false => pieces(arguments, row),
                };
                Bound::list(bytes(0).saturating_add(items.saturating_mul(ELEMENT_BYTES)), items).estimated()
            }
            Self::Join => {
                let nodes = arguments.first().map_or(0, |array| array.nodes(row));
                let each = NUMBER_TEXT_BYTES_MAX.saturating_add(bytes(1)).saturating_add(bytes(2));
                Bound::text(bytes(0).saturating_add(nodes.saturating_mul(each))).estimated()
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

/// Bytes of an element that is NULL in the array of the first argument.
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
        // As many as it has columns, or a list of a fixed length.
        (None, DataType::Struct(fields)) => 16 * fields.len() as u64,
        (None, DataType::FixedSizeList(_, width)) => 16 * u64::try_from(*width).unwrap_or(0),
        _ => 1,
    }
}

/// In how many pieces the second argument cuts the first, at most.
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

/// How many values `range` and `generate_series` make, at most.
fn series(arguments: &[Argument<'_>], row: usize, includes_end: bool) -> u64 {
    let at = |at: usize| arguments.get(at).and_then(|argument| argument.time(row));
    let (from, to, step) = match arguments.len() {
        1 => (Some(0), at(0), Some(1)),
        2 => (at(0), at(1), Some(1)),
        _ => match arguments[2].interval(row) {
            Some((months, days, ns)) => {
                // Days have no times.
                let ns = if arguments[0].is_date() { 0 } else { ns };
                let parts = [i128::from(months), i128::from(days), i128::from(ns)];
                let least = (parts[0] * MONTH_DAYS_MIN + parts[1]) * DAY_NS_MIN + parts[2];
                // Forwards and backwards by turns: it may never arrive.
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
        // Rounded, and what is no number has no end.
        return if items < 0.0 { 0 } else { (items + 2.0) as u64 };
    }
    let (Some(from), Some(to), Some(step)) = (from, to, step) else { return 0 };
    if step == 0 || (to - from).signum() == -step.signum() {
        return 0;
    }
    let items = (to - from).unsigned_abs() / step.unsigned_abs() + 1 + u128::from(includes_end);
    u64::try_from(items).unwrap_or(u64::MAX)
}

/// An argument, one value for all rows or one for each.
pub(crate) struct Argument<'a> {
    value: &'a ColumnarValue,
    /// The value or values; none of a text that stands for all rows, which is not copied.
    array: Option<ArrayRef>,
    bytes: Vec<u64>,
    nodes: Vec<u64>,
    items: Vec<u64>,
    numbers: Option<ArrayRef>,
    /// Numbers with digits behind the point, as doubles.
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

    /// Of the value as a text.
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

    /// The number, or the moment in nanoseconds.
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

    /// What one of its numbers is, where they count a time.
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

    /// How often; a number below 0 is none.
    fn count(&self, row: usize) -> u64 {
        self.time(row).map_or(0, |number| u64::try_from(number.max(0)).unwrap_or(u64::MAX))
    }
}

fn text_of(scalar: &ScalarValue) -> Option<&str> {
    scalar.try_as_str().flatten()
}

/// Whole numbers, days and moments as 64 bits.
fn ticks(array: &ArrayRef) -> Result<Option<ArrayRef>> {
    Ok(match array.data_type() {
        kind if kind.is_integer() => Some(cast(array, &DataType::Int64)?),
        DataType::Date32 => Some(cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?),
        DataType::Date64 | DataType::Timestamp(..) => Some(cast(array, &DataType::Int64)?),
        _ => None,
    })
}
