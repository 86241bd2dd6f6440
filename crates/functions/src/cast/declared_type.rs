//! Declared column types: text lengths, UUIDs, which are texts, and time precisions, to which values are cast
//! or against which they are checked.
//!
//! A `char(n)` is stored without trailing blanks, which are added when it is displayed, so that it is
//! compared, grouped and concatenated as in PostgreSQL, where they are insignificant.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StringViewBuilder};
use datafusion::arrow::compute::{cast, unary};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::datetime::infinity::infinity_of;
use crate::uuid_text;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Maximum length of a text type in characters, as in PostgreSQL.
pub const LENGTH_MAX: u64 = 10_485_760;
/// Maximum digits of seconds: times are counted in microseconds.
pub const DIGITS_MAX: u64 = 6;

/// 2000-01-01 in microseconds, PostgreSQL's epoch.
const MILLENNIUM: i64 = 946_684_800_000_000;
const DAY: i64 = 86_400_000_000;

/// A declared type, with its type modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeclaredType {
    /// Maximum characters; `None`: unlimited.
    Varchar(Option<u32>),
    /// Blank-padded characters; `None`: unlimited.
    Char(Option<u32>),
    /// Digits of seconds.
    Time(u32),
    Timestamp(u32),
    TimestampTz(u32),
    Uuid,
}

impl DeclaredType {
    /// PostgreSQL's name of the type in `pg_type`, with its modifier: `varchar(5)`.
    pub fn name(self) -> String {
        let (name, size) = match self {
            Self::Varchar(size) => ("varchar", size),
            Self::Char(size) => ("bpchar", size),
            Self::Time(digits) => ("time", Some(digits)),
            Self::Timestamp(digits) => ("timestamp", Some(digits)),
            Self::TimestampTz(digits) => ("timestamptz", Some(digits)),
            Self::Uuid => ("uuid", None),
        };
        match size {
            Some(size) => format!("{name}({size})"),
            None => name.to_string(),
        }
    }

    /// Whether values of an Arrow type can have this declared type.
    pub fn is_of(self, kind: &DataType) -> bool {
        match self {
            Self::Varchar(_) | Self::Char(_) | Self::Uuid => kind.is_string(),
            Self::Time(_) => *kind == DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp(_) => *kind == DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz(_) => matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, Some(_))),
        }
    }

    /// Whether a value may have to be changed or refused.
    pub fn limits(self) -> bool {
        match self {
            Self::Varchar(size) => size.is_some(),
            Self::Char(_) | Self::Uuid => true,
            Self::Time(digits) | Self::Timestamp(digits) | Self::TimestampTz(digits) => {
                u64::from(digits) < DIGITS_MAX
            }
        }
    }

    /// A text cast to this type.
    fn cut(self, text: &str) -> &str {
        match self {
            Self::Varchar(Some(size)) => first(text, size),
            Self::Char(size) => size.map_or(text, |size| first(text, size)).trim_end_matches(' '),
            _ => text,
        }
    }

    /// A text cast to this type, for casts and comparisons.
    ///
    /// Errors: not a UUID (22P02).
    pub fn normal(self, text: &str) -> Result<Cow<'_, str>> {
        match self {
            Self::Uuid => uuid_text::normal(text).map(Cow::Owned),
            _ => Ok(Cow::Borrowed(self.cut(text))),
        }
    }

    /// A text assigned to a column of this type.
    ///
    /// Errors: it is longer, apart from blanks (22001); not a UUID (22P02).
    pub fn assign(self, text: &str) -> Result<Cow<'_, str>> {
        let kept = match self {
            Self::Uuid => return self.normal(text),
            _ => self.cut(text),
        };
        // A char may have been stripped of blanks that fit.
        if kept.len() < text.len() && text[kept.len()..].bytes().any(|byte| byte != b' ') {
            let message = format!("value too long for type {self}");
            return Err(SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message).into_datafusion());
        }
        Ok(Cow::Borrowed(kept))
    }
}

/// The first `size` characters.
fn first(text: &str, size: u32) -> &str {
    let size = size as usize;
    // Every character has at least one byte.
    if text.len() <= size {
        return text;
    }
    match text.char_indices().nth(size) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The SQL name: `character varying(5)`.
impl fmt::Display for DeclaredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Varchar(Some(size)) => write!(f, "character varying({size})"),
            Self::Varchar(None) => f.write_str("character varying"),
            Self::Char(Some(size)) => write!(f, "character({size})"),
            Self::Char(None) => f.write_str("bpchar"),
            Self::Time(digits) => write!(f, "time({digits}) without time zone"),
            Self::Timestamp(digits) => write!(f, "timestamp({digits}) without time zone"),
            Self::TimestampTz(digits) => write!(f, "timestamp({digits}) with time zone"),
            Self::Uuid => f.write_str("uuid"),
        }
    }
}

/// Parses the `pg_type` name or the SQL name.
impl FromStr for DeclaredType {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (word, size, rest) = match text.split_once('(') {
            Some((word, rest)) => {
                let (size, rest) = rest.split_once(')').ok_or(())?;
                (word, Some(size.parse::<u32>().map_err(drop)?), rest)
            }
            None => (text, None, ""),
        };
        match (word.trim(), size, rest.trim()) {
            ("varchar" | "character varying", size, "") => Ok(Self::Varchar(size)),
            ("bpchar", size, "") => Ok(Self::Char(size)),
            ("uuid", None, "") => Ok(Self::Uuid),
            ("character", size, "") => Ok(Self::Char(Some(size.unwrap_or(1)))),
            ("time", Some(digits), "" | "without time zone") => Ok(Self::Time(digits)),
            ("timestamp", Some(digits), "" | "without time zone") => Ok(Self::Timestamp(digits)),
            ("timestamptz", Some(digits), "") | ("timestamp", Some(digits), "with time zone") => {
                Ok(Self::TimestampTz(digits))
            }
            _ => Err(()),
        }
    }
}

/// Purpose of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    Cast,
    /// As a cast, with NULL for values that cannot be cast.
    TryCast,
    Assign,
    Show,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Cast => CAST,
            Self::TryCast => TRY_CAST,
            Self::Assign => "harrier_assigned",
            Self::Show => SHOWN,
        }
    }
}

/// The name of the function of [`cast_to_declared`].
pub const CAST: &str = "harrier_declared";
/// The name of the function of [`try_cast_to_declared`].
pub const TRY_CAST: &str = "harrier_try_declared";
const SHOWN: &str = "harrier_padded";

/// Casts `value`, of the Arrow type, to the declared type: texts are truncated, times rounded.
pub fn cast_to_declared(value: Expr, to: DeclaredType) -> Expr {
    function(Purpose::Cast).call(vec![value, lit(to.name())])
}

/// The same with NULL for values that cannot be cast.
pub fn try_cast_to_declared(value: Expr, to: DeclaredType) -> Expr {
    function(Purpose::TryCast).call(vec![value, lit(to.name())])
}

/// Converts a value for assignment to a column. It is computed for exactly the rows that are written.
///
/// Errors: a text is longer, apart from blanks (22001).
pub fn assign(value: Expr, to: DeclaredType) -> Expr {
    function(Purpose::Assign).call(vec![value, lit(to.name())])
}

/// Converts a value for display: `char(n)` is padded with blanks.
pub fn pad_for_display(value: Expr, of: DeclaredType) -> Expr {
    function(Purpose::Show).call(vec![value, lit(of.name())])
}

/// The declared type of a call, if its function is that of [`cast_to_declared`] or [`pad_for_display`].
pub fn type_of_call(name: &str, arguments: &[Expr]) -> Option<DeclaredType> {
    match (name, arguments) {
        (CAST | TRY_CAST | SHOWN, [_, Expr::Literal(to, _)]) => to.try_as_str()??.parse().ok(),
        _ => None,
    }
}

/// The functions available when statements are planned.
pub(crate) fn planner_functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Purpose::Cast, Purpose::TryCast].into_iter().map(function)
}

/// All functions; ranks know them by their names.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Purpose::Cast, Purpose::TryCast, Purpose::Assign, Purpose::Show].into_iter().map(function)
}

fn function(purpose: Purpose) -> Arc<ScalarUDF> {
    // A failing function must not be evaluated earlier, for more rows, or for none.
    let volatility = match purpose {
        Purpose::Assign => Volatility::Volatile,
        Purpose::Cast | Purpose::TryCast | Purpose::Show => Volatility::Immutable,
    };
    Arc::new(ScalarUDF::new_from_impl(Declared { purpose, signature: Signature::any(2, volatility) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Declared {
    purpose: Purpose,
    signature: Signature,
}

impl ScalarUDFImpl for Declared {
    fn name(&self) -> &str {
        self.purpose.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, DataType::Utf8 | DataType::Utf8View] => Ok(value.clone()),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, ColumnarValue::Scalar(to)] = arguments.args.as_slice() else {
            return internal_err!("{} has other arguments", self.name());
        };
        let Some(Ok(to)) = to.try_as_str().flatten().map(str::parse::<DeclaredType>) else {
            return internal_err!("{} knows no type {to}", self.name());
        };
        match value {
            // Nothing is written without a row.
            ColumnarValue::Scalar(_) if arguments.number_rows == 0 && self.purpose == Purpose::Assign => {
                Ok(value.clone())
            }
            ColumnarValue::Scalar(value) => {
                let values = convert_array(self.purpose, &value.to_array()?, to)?;
                ScalarValue::try_from_array(&values, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(values) => convert_array(self.purpose, values, to).map(ColumnarValue::Array),
        }
    }
}

fn convert_array(purpose: Purpose, values: &ArrayRef, to: DeclaredType) -> Result<ArrayRef> {
    match to {
        DeclaredType::Uuid if let DataType::List(item) = values.data_type() => {
            let lists = values.as_list::<i32>();
            let items = texts(purpose, lists.values(), to)?;
            let (item, nulls) = (Arc::clone(item), lists.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(item, lists.offsets().clone(), items, nulls)?))
        }
        DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid => texts(purpose, values, to),
        DeclaredType::Time(digits) | DeclaredType::Timestamp(digits) | DeclaredType::TimestampTz(digits) => {
            round_times(values, digits)
        }
    }
}

fn texts(purpose: Purpose, values: &ArrayRef, to: DeclaredType) -> Result<ArrayRef> {
    let texts = cast(values, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let mut made = StringViewBuilder::with_capacity(texts.len());
    let mut is_changed = false;
    let mut line = String::new();
    for text in texts {
        let Some(text) = text else {
            made.append_null();
            continue;
        };
        let kept = match (purpose, to) {
            (Purpose::Show, DeclaredType::Char(Some(size))) => {
                line.clear();
                line.push_str(text);
                let missing = (size as usize).saturating_sub(text.chars().count());
                line.extend(std::iter::repeat_n(' ', missing));
                Cow::Borrowed(line.as_str())
            }
            (Purpose::Show, _) => Cow::Borrowed(text),
            (Purpose::Cast, _) => to.normal(text)?,
            (Purpose::TryCast, _) => match to.normal(text) {
                Ok(text) => text,
                Err(_) => {
                    is_changed = true;
                    made.append_null();
                    continue;
                }
            },
            (Purpose::Assign, _) => to.assign(text)?,
        };
        is_changed |= kept != text;
        made.append_value(kept);
    }
    match is_changed {
        true => Ok(cast(&(Arc::new(made.finish()) as ArrayRef), values.data_type())?),
        false => Ok(Arc::clone(values)),
    }
}

/// Rounds times to so many digits of seconds; halves away from PostgreSQL's epoch.
///
/// Errors: a time is rounded up to the end of the day (0A000).
fn round_times(values: &ArrayRef, digits: u32) -> Result<ArrayRef> {
    let kind = values.data_type();
    if !matches!(
        kind,
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(TimeUnit::Microsecond)
    ) {
        return internal_err!("{kind} has no digits of seconds");
    }
    let Some(unit) = 10i64.checked_pow((DIGITS_MAX as u32).saturating_sub(digits)) else {
        return internal_err!("{digits} digits");
    };
    let infinity = infinity_of(kind);
    let counts = cast(values, &DataType::Int64)?;
    let is_time = matches!(kind, DataType::Time64(_));
    let zero = if is_time { 0 } else { MILLENNIUM };
    let counts = unary::<_, _, Int64Type>(counts.as_primitive::<Int64Type>(), |count| {
        match infinity.is_some_and(|infinity| count == infinity || count == -infinity) {
            true => count,
            false => round_to(count, unit, zero),
        }
    });
    if is_time && counts.iter().flatten().any(|count| count >= DAY) {
        let message = "24:00:00, which a time is rounded to, is not supported";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    Ok(cast(&(Arc::new(counts) as ArrayRef), kind)?)
}

/// The multiple of `unit`, counted from `zero`, nearest to `count`; halves go away from `zero`.
fn round_to(count: i64, unit: i64, zero: i64) -> i64 {
    let half = unit / 2;
    let rounded = count.checked_sub(zero).and_then(|count| {
        let moved = if count < 0 { count.checked_sub(half) } else { count.checked_add(half) }?;
        (moved / unit * unit).checked_add(zero)
    });
    rounded.unwrap_or(count)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{StringArray, StringViewArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn declared_types_are_parsed() {
        use DeclaredType::*;
        for kind in [
            Varchar(Some(5)),
            Varchar(None),
            Char(Some(3)),
            Char(None),
            Time(0),
            Timestamp(3),
            TimestampTz(6),
            Uuid,
        ] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        for text in ["text", "varchar(", "varchar(x)", "varchar(-1)", "time", "timestamp(1) with"] {
            assert_eq!(text.parse::<DeclaredType>(), Err(()), "{text}");
        }
    }

    #[test]
    fn texts_are_cut_checked_and_filled_up() {
        use DeclaredType::*;
        let of = |purpose, to, text: &str| {
            let values = Arc::new(StringViewArray::from(vec![Some(text), None])) as ArrayRef;
            let made = convert_array(purpose, &values, to)?;
            assert!(made.is_null(1));
            Ok::<_, datafusion::error::DataFusionError>(made.as_string_view().value(0).to_string())
        };
        for (purpose, to, text, expected) in [
            (Purpose::Cast, Varchar(Some(3)), "äöüß", "äöü"),
            (Purpose::Cast, Varchar(Some(3)), "a    ", "a  "),
            (Purpose::Cast, Char(Some(3)), "ab cd", "ab"),
            (Purpose::Cast, Char(None), "ab  ", "ab"),
            (Purpose::Assign, Varchar(Some(4)), "äöüß", "äöüß"),
            (Purpose::Assign, Varchar(Some(3)), "ab     ", "ab "),
            (Purpose::Assign, Char(Some(3)), "ab     ", "ab"),
            (Purpose::Show, Char(Some(3)), "ä", "ä  "),
            (Purpose::Show, Varchar(Some(3)), "ä", "ä"),
        ] {
            assert_eq!(of(purpose, to, text).unwrap(), expected, "{text}");
        }
        for (to, text) in [(Varchar(Some(3)), "äöüß"), (Varchar(Some(3)), "ab  c"), (Char(Some(1)), "ab")]
        {
            let error = of(Purpose::Assign, to, text).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::STRING_DATA_RIGHT_TRUNCATION, "{text}");
        }
        let values = Arc::new(StringArray::from(vec!["abc"])) as ArrayRef;
        assert_eq!(texts(Purpose::Cast, &values, Varchar(Some(1))).unwrap().data_type(), &DataType::Utf8);
    }

    #[test]
    fn times_are_rounded_away_from_zero() {
        let infinity = infinity_of(&DataType::Timestamp(TimeUnit::Microsecond, None)).unwrap();
        let values = TimestampMicrosecondArray::from(vec![
            MILLENNIUM + 1_500_000,
            MILLENNIUM - 1_500_000,
            1_499_999,
            1_500_000,
            infinity,
        ]);
        let made = round_times(&(Arc::new(values) as ArrayRef), 0).unwrap();
        let made = cast(&made, &DataType::Int64).unwrap();
        let made = made.as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(made, [MILLENNIUM + 2_000_000, MILLENNIUM - 2_000_000, 1_000_000, 1_000_000, infinity]);
    }
}
