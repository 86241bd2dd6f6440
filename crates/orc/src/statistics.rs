//! Statistics of a column's values, for a row group, a stripe or the file. Readers prune by them, so values
//! that have no exact representation are omitted.

use crate::proto;

/// Longer texts are recorded as bounds of this many bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Statistics of one column.
#[derive(Debug, Clone)]
pub(crate) struct Statistics {
    /// Non-null values.
    pub count: u64,
    pub has_null: bool,
    pub values: Values,
}

/// Statistics by kind of column; `range` is `None` while there are no values.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    Counted,
    Booleans {
        set: u64,
    },
    Integers {
        range: Option<(i64, i64)>,
        sum: Option<i64>,
    },
    Floats {
        range: Option<(f64, f64)>,
        sum: f64,
        has_nan: bool,
    },
    Decimals {
        range: Option<(i128, i128)>,
        sum: Option<i128>,
        scale: u32,
    },
    Texts {
        range: Option<(Bound, Bound)>,
        bytes: Option<i64>,
        is_bounded: bool,
    },
    Binaries {
        bytes: Option<i64>,
    },
    Days {
        range: Option<(i32, i32)>,
    },
    /// Milliseconds, rounded down, and the nanoseconds within them.
    Times {
        range: Option<((i64, i32), (i64, i32))>,
        is_bounded: bool,
    },
}

/// A value, or a lower or upper bound of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    text: Vec<u8>,
    is_exact: bool,
}

impl Values {
    pub fn integers() -> Self {
        Self::Integers { range: None, sum: Some(0) }
    }

    pub fn floats() -> Self {
        Self::Floats { range: None, sum: 0.0, has_nan: false }
    }

    pub fn decimals(scale: u32) -> Self {
        Self::Decimals { range: None, sum: Some(0), scale }
    }

    pub fn texts() -> Self {
        Self::Texts { range: None, bytes: Some(0), is_bounded: true }
    }

    pub fn times() -> Self {
        Self::Times { range: None, is_bounded: true }
    }

    /// The same kind without values.
    fn none(&self) -> Self {
        match self {
            Self::Counted => Self::Counted,
            Self::Booleans { .. } => Self::Booleans { set: 0 },
            Self::Integers { .. } => Self::integers(),
            Self::Floats { .. } => Self::floats(),
            Self::Decimals { scale, .. } => Self::decimals(*scale),
            Self::Texts { .. } => Self::texts(),
            Self::Binaries { .. } => Self::Binaries { bytes: Some(0) },
            Self::Days { .. } => Self::Days { range: None },
            Self::Times { .. } => Self::times(),
        }
    }

    pub fn boolean(&mut self, value: bool) {
        if let Self::Booleans { set } = self {
            *set += u64::from(value);
        }
    }

    pub fn integer(&mut self, value: i64) {
        if let Self::Integers { range, sum } = self {
            widen(range, value, value);
            *sum = sum.and_then(|sum| sum.checked_add(value));
        }
    }

    pub fn float(&mut self, value: f64) {
        if let Self::Floats { range, sum, has_nan } = self {
            if value.is_nan() {
                *has_nan = true;
            } else {
                // Some readers order -0 before 0, others take them as equal.
                let (low, high) = if value == 0.0 { (-0.0, 0.0) } else { (value, value) };
                widen(range, low, high);
                *sum += value;
            }
        }
    }

    pub fn decimal(&mut self, value: i128) {
        if let Self::Decimals { range, sum, .. } = self {
            widen(range, value, value);
            *sum = sum.and_then(|sum| sum.checked_add(value));
        }
    }

    pub fn text(&mut self, value: &[u8]) {
        let Self::Texts { range, bytes, is_bounded } = self else { return };
        *bytes = bytes.and_then(|bytes| bytes.checked_add_unsigned(value.len() as u64));
        match range {
            None => {
                let high = Bound::above(value);
                *is_bounded &= high.is_some();
                let low = Bound::below(value);
                *range = Some((low.clone(), high.unwrap_or(low)));
            }
            Some((low, high)) => {
                if value < low.text.as_slice() {
                    *low = Bound::below(value);
                }
                if value > high.text.as_slice() {
                    match Bound::above(value) {
                        Some(above) => *high = above,
                        None => *is_bounded = false,
                    }
                }
            }
        }
    }

    pub fn binary(&mut self, value: &[u8]) {
        if let Self::Binaries { bytes } = self {
            *bytes = bytes.and_then(|bytes| bytes.checked_add_unsigned(value.len() as u64));
        }
    }

    pub fn day(&mut self, value: i32) {
        if let Self::Days { range } = self {
            widen(range, value, value);
        }
    }

    /// Adds a timestamp: seconds, rounded down, and the nanoseconds within them.
    pub fn time(&mut self, seconds: i64, nanos: i64) {
        if let Self::Times { range, is_bounded } = self {
            let millis = seconds.checked_mul(1000).and_then(|millis| millis.checked_add(nanos / 1_000_000));
            match millis {
                Some(millis) => {
                    let value = (millis, (nanos % 1_000_000) as i32);
                    widen(range, value, value);
                }
                None => *is_bounded = false,
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Booleans { set }, Self::Booleans { set: more }) => *set += more,
            (Self::Integers { range, sum }, Self::Integers { range: other, sum: more }) => {
                merge(range, other);
                *sum = sum.zip(*more).and_then(|(sum, more)| sum.checked_add(more));
            }
            (
                Self::Floats { range, sum, has_nan },
                Self::Floats { range: other, sum: more, has_nan: nan },
            ) => {
                merge(range, other);
                *sum += more;
                *has_nan |= nan;
            }
            (Self::Decimals { range, sum, .. }, Self::Decimals { range: other, sum: more, .. }) => {
                merge(range, other);
                *sum = sum.zip(*more).and_then(|(sum, more)| sum.checked_add(more));
            }
            (
                Self::Texts { range, bytes, is_bounded },
                Self::Texts { range: other, bytes: more, is_bounded: bounded },
            ) => {
                *bytes = bytes.zip(*more).and_then(|(bytes, more)| bytes.checked_add(more));
                *is_bounded &= bounded;
                match (range, other) {
                    (range @ None, other) => range.clone_from(other),
                    (Some((low, high)), Some((other_low, other_high))) => {
                        if other_low.text < low.text {
                            low.clone_from(other_low);
                        }
                        if other_high.text > high.text {
                            high.clone_from(other_high);
                        }
                    }
                    (Some(_), None) => {}
                }
            }
            (Self::Binaries { bytes }, Self::Binaries { bytes: more }) => {
                *bytes = bytes.zip(*more).and_then(|(bytes, more)| bytes.checked_add(more));
            }
            (Self::Days { range }, Self::Days { range: other }) => merge(range, other),
            (Self::Times { range, is_bounded }, Self::Times { range: other, is_bounded: bounded }) => {
                merge(range, other);
                *is_bounded &= bounded;
            }
            _ => {}
        }
    }
}

impl Statistics {
    pub fn new(values: Values) -> Self {
        Self { count: 0, has_null: false, values }
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.has_null |= other.has_null;
        self.values.merge(&other.values);
    }

    /// Returns the statistics and resets them.
    pub fn take(&mut self) -> Self {
        let none = Self::new(self.values.none());
        std::mem::replace(self, none)
    }

    /// Encodes the statistics. Without minimum and maximum, the typed part is omitted as a whole: some
    /// readers would take it for a column without values.
    pub fn message(&self) -> proto::ColumnStatistics {
        let mut message = proto::ColumnStatistics {
            number_of_values: Some(self.count),
            has_null: Some(self.has_null),
            ..Default::default()
        };
        match &self.values {
            Values::Counted => {}
            Values::Booleans { set } => {
                message.bucket_statistics = Some(proto::BucketStatistics { count: vec![*set] });
            }
            Values::Integers { range, sum } => {
                message.int_statistics = range.map(|(low, high)| proto::IntegerStatistics {
                    minimum: Some(low),
                    maximum: Some(high),
                    sum: *sum,
                });
            }
            Values::Floats { has_nan: true, .. } => {}
            Values::Floats { range, sum, .. } => {
                message.double_statistics = range.map(|(low, high)| proto::DoubleStatistics {
                    minimum: Some(low),
                    maximum: Some(high),
                    sum: sum.is_finite().then_some(*sum),
                });
            }
            Values::Decimals { range, sum, scale } => {
                message.decimal_statistics = range.map(|(low, high)| proto::DecimalStatistics {
                    minimum: Some(decimal_text(low, *scale)),
                    maximum: Some(decimal_text(high, *scale)),
                    // Readers hold 38 digits.
                    sum: sum
                        .filter(|sum| sum.unsigned_abs() < 10u128.pow(38))
                        .map(|sum| decimal_text(sum, *scale)),
                });
            }
            Values::Texts { range, bytes, is_bounded } => {
                if let (Some((low, high)), true) = (range, is_bounded) {
                    let text = |bound: &Bound, is_exact: bool| {
                        (bound.is_exact == is_exact)
                            .then(|| String::from_utf8(bound.text.clone()).ok())
                            .flatten()
                    };
                    message.string_statistics = Some(proto::StringStatistics {
                        minimum: text(low, true),
                        maximum: text(high, true),
                        sum: *bytes,
                        lower_bound: text(low, false),
                        upper_bound: text(high, false),
                    });
                }
            }
            Values::Binaries { bytes } => {
                message.binary_statistics = Some(proto::BinaryStatistics { sum: *bytes });
            }
            Values::Days { range } => {
                message.date_statistics = range
                    .map(|(low, high)| proto::DateStatistics { minimum: Some(low), maximum: Some(high) });
            }
            Values::Times { range, is_bounded } => {
                message.timestamp_statistics =
                    range.filter(|_| *is_bounded).map(|(low, high)| proto::TimestampStatistics {
                        minimum_utc: Some(low.0),
                        maximum_utc: Some(high.0),
                        minimum_nanos: Some(low.1 + 1),
                        maximum_nanos: Some(high.1 + 1),
                    });
            }
        }
        message
    }
}

fn widen<T: PartialOrd + Copy>(range: &mut Option<(T, T)>, low: T, high: T) {
    match range {
        None => *range = Some((low, high)),
        Some((least, most)) => {
            if low < *least {
                *least = low;
            }
            if high > *most {
                *most = high;
            }
        }
    }
}

fn merge<T: PartialOrd + Copy>(range: &mut Option<(T, T)>, other: &Option<(T, T)>) {
    if let Some((low, high)) = other {
        widen(range, *low, *high);
    }
}

impl Bound {
    fn exact(value: &[u8]) -> Option<Self> {
        (value.len() <= TEXT_BYTES_MAX).then(|| Self { text: value.to_vec(), is_exact: true })
    }

    /// A value, or a prefix that is a lower bound of it.
    fn below(value: &[u8]) -> Self {
        Self::exact(value).unwrap_or_else(|| Self { text: prefix(value).to_vec(), is_exact: false })
    }

    /// A value, or an upper bound of it; `None` if no text of this length is greater.
    fn above(value: &[u8]) -> Option<Self> {
        Self::exact(value).or_else(|| {
            let mut text: Vec<char> = std::str::from_utf8(prefix(value)).ok()?.chars().collect();
            while let Some(last) = text.pop() {
                // There are no characters between D800 and DFFF.
                let next =
                    if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(last as u32 + 1) };
                if let Some(next) = next {
                    text.push(next);
                    let text = String::from_iter(text).into_bytes();
                    return Some(Self { text, is_exact: false });
                }
            }
            None
        })
    }
}

/// The longest prefix of whole characters within the limit.
fn prefix(value: &[u8]) -> &[u8] {
    let mut end = TEXT_BYTES_MAX;
    while end > 0 && value[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    &value[..end]
}

fn decimal_text(value: i128, scale: u32) -> String {
    let scale = scale as usize;
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    let point = if scale == 0 { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_decimal(value: i128, scale: u32, expected: &str) {
        assert_eq!(decimal_text(value, scale), expected);
    }

    #[test]
    fn decimals_have_all_their_digits() {
        check_decimal(0, 0, "0");
        check_decimal(-5, 2, "-0.05");
        check_decimal(12345, 2, "123.45");
        check_decimal(-100, 2, "-1.00");
    }

    fn text_statistics(texts: &[&str]) -> Option<proto::StringStatistics> {
        let mut values = Statistics::new(Values::texts());
        for text in texts {
            let mut one = Statistics::new(Values::texts());
            one.values.text(text.as_bytes());
            values.merge(&one);
            values.count += 1;
        }
        let mut at_once = Statistics::new(Values::texts());
        texts.iter().for_each(|text| at_once.values.text(text.as_bytes()));
        assert_eq!(values.message().string_statistics, at_once.message().string_statistics);
        values.message().string_statistics
    }

    #[test]
    fn long_texts_are_bounds() {
        let short = text_statistics(&["b", "a", "ä"]).unwrap();
        assert_eq!((short.minimum.as_deref(), short.maximum.as_deref()), (Some("a"), Some("ä")));
        assert_eq!((short.lower_bound, short.upper_bound, short.sum), (None, None, Some(4)));
        // Two bytes a character: the last one that fits ends at byte 1023.
        let long = format!("x{}", "ä".repeat(600));
        let bounds = text_statistics(&[&long, "y"]).unwrap();
        assert_eq!(bounds.minimum, None);
        assert_eq!(bounds.lower_bound, Some(format!("x{}", "ä".repeat(511))));
        assert_eq!((bounds.maximum.as_deref(), bounds.upper_bound), (Some("y"), None));
        let bounds = text_statistics(&[&long, "a"]).unwrap();
        assert_eq!(bounds.upper_bound, Some(format!("x{}å", "ä".repeat(510))));
        // No text of this length is greater.
        assert_eq!(text_statistics(&[&"\u{10FFFF}".repeat(300), "a"]), None);
        assert_eq!(text_statistics(&["a", &"\u{10FFFF}".repeat(300)]), None);
        let last_before_surrogates = format!("{}\u{D7FF}{}", "a".repeat(1021), "b".repeat(9));
        assert_eq!(
            text_statistics(&[&last_before_surrogates]).unwrap().upper_bound,
            Some(format!("{}\u{E000}", "a".repeat(1021)))
        );
    }

    #[test]
    fn inexact_statistics_are_omitted() {
        let mut integers = Statistics::new(Values::integers());
        assert_eq!(integers.message().int_statistics, None);
        integers.values.integer(i64::MAX);
        integers.values.integer(1);
        let message = integers.message().int_statistics.unwrap();
        assert_eq!((message.minimum, message.maximum, message.sum), (Some(1), Some(i64::MAX), None));
        let mut floats = Statistics::new(Values::floats());
        floats.values.float(0.0);
        let message = floats.message().double_statistics.unwrap();
        assert_eq!(message.minimum.map(f64::to_bits), Some((-0.0f64).to_bits()));
        floats.values.float(f64::NAN);
        assert_eq!(floats.message().double_statistics, None);
        let mut times = Statistics::new(Values::times());
        times.values.time(-1, 1_500);
        let message = times.message().timestamp_statistics.unwrap();
        assert_eq!((message.minimum_utc, message.minimum_nanos), (Some(-1000), Some(1501)));
        times.values.time(i64::MAX, 0);
        assert_eq!(times.message().timestamp_statistics, None);
    }
}
