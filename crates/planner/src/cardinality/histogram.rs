//! Column histograms: built from a sample of values, and used to estimate the selectivity of comparisons.
//!
//! The most common values are stored with their shares. The others form equi-depth buckets, within which
//! values are assumed to be evenly distributed. Values of later writes are assumed to lie between the bounds
//! that ANALYZE saw and those of the data files, if these are wider.
//!
//! Source: PostgreSQL's `analyze.c` and `selfuncs.c`, for what is stored, how much of it, and how a text maps
//! to a number.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt32Array};
use datafusion::arrow::compute::{cast, concat, partition, sort, take};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use harrier_exec::data_files::text_of;
use harrier_functions::parse::text_array::parse_array;

/// The maximum number of common values, and of buckets for the others. A bucket holds 300 sample values.
pub const BUCKETS: usize = 100;
/// The maximum length of a text in characters. Longer ones are compared up to here, and are never common
/// values.
pub const CHARACTERS_MAX: usize = 256;
/// The minimum number of occurrences of a common value in a sample: its share is then known to about a third.
const COMMON_MIN: usize = 10;
/// A common value occurs this many times as often as the mean.
const COMMON_FACTOR: f64 = 1.25;

/// Whether histograms support the order of a type.
pub fn is_ordered(kind: &DataType) -> bool {
    kind.is_numeric()
        || kind.is_string()
        || matches!(
            kind,
            DataType::Boolean | DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..)
        )
}

/// The stored histogram of a column.
#[derive(Debug)]
pub struct SampledHistogram {
    /// The most common values in descending order of frequency, with their shares of all rows.
    pub common: Vec<(String, f64)>,
    /// The equi-depth bucket bounds of the other values, in ascending order, including minimum and maximum.
    pub bounds: Vec<String>,
}

/// A sorted sample of the non-null values.
pub struct SortedSample {
    values: ArrayRef,
    /// The ranges of equal values.
    runs: Vec<Range<usize>>,
}

impl SortedSample {
    pub fn of(sample: &ArrayRef) -> Result<Self> {
        let values = sort(sample, None)?;
        let runs = match values.len() {
            0 => vec![],
            _ => partition(&[Arc::clone(&values)])?.ranges(),
        };
        Ok(Self { values, runs })
    }

    /// Whether the sample truncated some of its texts.
    pub fn is_truncated(&self) -> bool {
        let texts = self.values.as_string_opt::<i32>();
        texts.is_some_and(|texts| texts.iter().flatten().any(is_long))
    }

    /// Estimates the number of distinct values among all `values` from which the sample was taken.
    ///
    /// Source: Haas and Stokes, "Estimating the number of classes in a finite population", the estimator
    /// Duj1, as in PostgreSQL.
    pub fn distinct(&self, values: i64) -> i64 {
        let seen = self.values.len() as f64;
        let different = self.runs.len() as f64;
        let once = self.runs.iter().filter(|run| run.len() == 1).count() as f64;
        if self.values.len() as i64 >= values || once == 0.0 {
            return self.runs.len() as i64;
        }
        let estimate = seen * different / (seen - once + once * seen / values as f64);
        (estimate.round() as i64).clamp(self.runs.len() as i64, values)
    }

    /// Builds the histogram, or `None` if a value cannot be stored. `is_all`: the sample contains all values.
    /// `share`: the share of non-null rows.
    pub fn histogram(&self, is_all: bool, share: f64) -> Result<Option<SampledHistogram>> {
        let texts = self.texts(self.runs.iter().map(|run| run.start))?;
        let common = self.common(is_all, &texts);
        let is_common: HashSet<usize> = common.iter().copied().collect();
        let others = self.runs.iter().enumerate().filter(|(at, _)| !is_common.contains(at));
        let others: Vec<(usize, &Range<usize>)> = others.collect();
        let total = self.values.len() as f64;
        let histogram = SampledHistogram {
            common: common
                .iter()
                .map(|at| (texts.value(*at).to_string(), self.runs[*at].len() as f64 / total * share))
                .collect(),
            bounds: bounds(&others).into_iter().map(|at| texts.value(at).to_string()).collect(),
        };
        // The catalog's text type cannot store NUL characters.
        let is_kept = |text: &String| !text.contains('\0');
        let is_kept =
            histogram.common.iter().all(|(text, _)| is_kept(text)) && histogram.bounds.iter().all(is_kept);
        Ok(is_kept.then_some(histogram))
    }

    /// The runs of the common values, the most common first.
    fn common(&self, is_all: bool, texts: &StringArray) -> Vec<usize> {
        let values = self.values.len();
        let different = self.runs.len();
        let is_long = |at: usize| self.values.data_type().is_string() && is_long(texts.value(at));
        let is_flag = *self.values.data_type() == DataType::Boolean;
        let fits = different <= BUCKETS && different < values && !(0..different).any(is_long);
        let least = match fits || is_flag {
            true => 1,
            false => {
                let mean = (COMMON_FACTOR * values as f64 / different as f64).ceil() as usize;
                // A value that fills a bucket counts as common.
                mean.min(values.div_ceil(BUCKETS)).max(if is_all { 2 } else { COMMON_MIN })
            }
        };
        let mut common: Vec<usize> =
            (0..different).filter(|at| self.runs[*at].len() >= least && !is_long(*at)).collect();
        common.sort_by_key(|at| std::cmp::Reverse(self.runs[*at].len()));
        common.truncate(BUCKETS);
        common
    }

    fn texts(&self, rows: impl Iterator<Item = usize>) -> Result<StringArray> {
        let rows = UInt32Array::from_iter_values(rows.map(|row| row as u32));
        text_of(&take(&self.values, &rows, None)?)
    }
}

fn is_long(text: &str) -> bool {
    text.len() >= CHARACTERS_MAX && text.chars().count() >= CHARACTERS_MAX
}

/// The runs at which equi-depth buckets of these runs end.
fn bounds(runs: &[(usize, &Range<usize>)]) -> Vec<usize> {
    if runs.len() < 2 {
        return vec![];
    }
    let values: usize = runs.iter().map(|(_, run)| run.len()).sum();
    let count = values.min(BUCKETS + 1);
    let (mut at, mut before) = (0, 0);
    let mut bounds = Vec::with_capacity(count);
    for bound in 0..count {
        let row = bound * (values - 1) / (count - 1);
        while before + runs[at].1.len() <= row {
            before += runs[at].1.len();
            at += 1;
        }
        bounds.push(runs[at].0);
    }
    bounds
}

/// A position in the order of a column.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Point {
    Number(f64),
    Text(String),
}

impl Point {
    /// `None`: null, or a type without an order.
    pub fn of(value: &ScalarValue) -> Option<Self> {
        if value.is_null() {
            return None;
        }
        if let Some(text) = value.try_as_str() {
            return text.map(|text| Self::Text(text.to_string()));
        }
        if !is_ordered(&value.data_type()) {
            return None;
        }
        Some(Self::Number(number(&value.to_array().ok()?)?))
    }

    pub fn order(&self, other: &Self) -> Ordering {
        self.partial_cmp(other).unwrap_or(Ordering::Equal)
    }

    /// The relative position between `low` and `high`, from 0 to 1.
    fn between(&self, low: &Self, high: &Self) -> f64 {
        let (low, at, high) = match (low, self, high) {
            (Self::Number(low), Self::Number(at), Self::Number(high)) => (*low, *at, *high),
            (Self::Text(low), Self::Text(at), Self::Text(high)) => {
                let same = low.bytes().zip(high.bytes()).take_while(|(one, other)| one == other).count();
                (fraction(low, same), fraction(at, same), fraction(high, same))
            }
            _ => return 0.5,
        };
        let share = (at - low) / (high - low);
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// Maps a one-row array to a number, preserving order.
fn number(value: &ArrayRef) -> Option<f64> {
    let kind = value.data_type();
    let is_number = kind.is_numeric() || *kind == DataType::Boolean;
    let number = match is_number {
        true => cast(value, &DataType::Float64).ok()?.as_primitive::<Float64Type>().value(0),
        false => {
            let days = matches!(kind, DataType::Date32);
            let value = if days { cast(value, &DataType::Int32).ok()? } else { Arc::clone(value) };
            cast(&value, &DataType::Int64).ok()?.as_primitive::<Int64Type>().value(0) as f64
        }
    };
    // NaN sorts above all numbers.
    Some(if number.is_nan() { f64::MAX } else { number })
}

/// Maps the bytes of a text from `from` on to a fraction.
fn fraction(text: &str, from: usize) -> f64 {
    let bytes = text.as_bytes().iter().skip(from).take(size_of::<u64>());
    bytes.zip(1..).map(|(byte, place)| f64::from(*byte) / 256_f64.powi(place)).sum()
}

/// Rows written after ANALYZE with values outside the range that it saw.
#[derive(Debug)]
struct NewRows {
    share: f64,
    low: Point,
    high: Point,
}

/// The value distribution of a column.
#[derive(Debug)]
pub struct ColumnHistogram {
    common: Vec<(Point, f64)>,
    bounds: Vec<Point>,
    /// The share of rows with values that are not common.
    others: f64,
    others_distinct: f64,
    newer: Option<NewRows>,
    pub(crate) nulls: f64,
    pub(crate) distinct: f64,
    /// Sample values (the common values, the bounds, and a null) with the shares that they represent.
    pub(crate) samples: (ArrayRef, Vec<f64>),
}

/// The current bounds of a column's files, and how much it has grown since ANALYZE.
pub struct CurrentStatistics {
    pub min: Option<ScalarValue>,
    pub max: Option<ScalarValue>,
    pub distinct: f64,
    /// The share of rows written since ANALYZE.
    pub newer: f64,
}

impl ColumnHistogram {
    /// `common` and `bounds`: as in [`SampledHistogram`]. `nulls`: their share of the rows that ANALYZE saw.
    pub fn new(
        common: &[(String, f64)],
        bounds: &[String],
        kind: &DataType,
        nulls: f64,
        now: &CurrentStatistics,
    ) -> Result<Self> {
        let parsed = |texts: Vec<&str>| parse_array(&StringArray::from(texts), kind);
        let common_values = parsed(common.iter().map(|(text, _)| text.as_str()).collect())?;
        let bound_values = parsed(bounds.iter().map(String::as_str).collect())?;
        let shares = || common.iter().map(|(_, share)| *share);
        let common_points = points(&common_values)?.into_iter().zip(shares());
        let common_points: Vec<(Point, f64)> =
            common_points.filter_map(|(point, share)| Some((point?, share))).collect();
        let bound_points: Vec<Point> = points(&bound_values)?.into_iter().flatten().collect();
        let others = (1.0 - nulls - shares().sum::<f64>()).max(0.0);
        let each = others / bound_values.len().max(1) as f64;
        let weights = shares().chain(bounds.iter().map(|_| each)).chain([nulls]).collect();
        let null = ScalarValue::try_new_null(kind)?.to_array()?;
        let samples = concat(&[common_values.as_ref(), bound_values.as_ref(), null.as_ref()])?;
        let newer = new_rows(&common_points, &bound_points, now);
        Ok(Self {
            others_distinct: (now.distinct - common.len() as f64).max(1.0),
            samples: (samples, weights),
            common: common_points,
            bounds: bound_points,
            others,
            newer,
            nulls,
            distinct: now.distinct.max(1.0),
        })
    }

    /// Converts a value of any type to a position in this column's order.
    pub fn point(&self, value: &ScalarValue) -> Option<Point> {
        Point::of(&value.cast_to(self.samples.0.data_type()).ok()?)
    }

    /// The minimum selectivity of a condition that no sample value satisfies.
    pub fn selectivity_min(&self) -> f64 {
        match self.bounds.len() {
            0 => 0.0,
            told => self.others / (2 * told) as f64,
        }
    }

    /// The share of rows that equal a value.
    pub fn equal(&self, value: &Point) -> f64 {
        let known = self.common.iter().find(|(common, _)| common == value).map(|(_, share)| *share);
        let known = known.unwrap_or_else(|| if self.is_among_others(value) { self.one() } else { 0.0 });
        match &self.newer {
            None => known,
            Some(newer) if *value < newer.low || *value > newer.high => known * (1.0 - newer.share),
            Some(newer) => known * (1.0 - newer.share) + newer.share / self.others_distinct,
        }
    }

    /// The share of rows for each value that is not common.
    fn one(&self) -> f64 {
        self.others / self.others_distinct
    }

    fn is_among_others(&self, value: &Point) -> bool {
        match (self.bounds.first(), self.bounds.last()) {
            (Some(first), Some(last)) => first <= value && value <= last,
            _ => true,
        }
    }

    /// The share of rows with smaller (or, with `or_equal`, equal) values.
    pub fn below(&self, value: &Point, or_equal: bool) -> f64 {
        let is_below = |common: &Point| match common.order(value) {
            Ordering::Less => true,
            Ordering::Equal => or_equal,
            Ordering::Greater => false,
        };
        let common: f64 =
            self.common.iter().filter(|(common, _)| is_below(common)).map(|(_, share)| share).sum();
        let known = common + self.others * self.others_below(value, or_equal);
        match &self.newer {
            None => known,
            Some(newer) => known * (1.0 - newer.share) + newer.share * value.between(&newer.low, &newer.high),
        }
    }

    /// The same among the values that are not common, as a share of them.
    fn others_below(&self, value: &Point, or_equal: bool) -> f64 {
        let Some(buckets) = self.bounds.len().checked_sub(1).filter(|buckets| *buckets > 0) else {
            // Without two bounds, their distribution is unknown.
            return 0.5;
        };
        let before = self.bounds.partition_point(|bound| bound < value);
        let smaller = match before {
            0 => 0.0,
            _ if before > buckets => 1.0,
            _ => {
                let within = value.between(&self.bounds[before - 1], &self.bounds[before]);
                ((before - 1) as f64 + within) / buckets as f64
            }
        };
        let is_there = or_equal && self.is_among_others(value);
        // Equal bounds delimit buckets that contain only that value.
        let equal = self.bounds.partition_point(|bound| bound <= value).saturating_sub(before + 1);
        let equal = (equal as f64 / buckets as f64).max(1.0 / self.others_distinct);
        if is_there { (smaller + equal).min(1.0) } else { smaller }
    }
}

fn points(values: &ArrayRef) -> Result<Vec<Option<Point>>> {
    (0..values.len()).map(|row| Ok(Point::of(&ScalarValue::try_from_array(values, row)?))).collect()
}

fn new_rows(common: &[(Point, f64)], bounds: &[Point], now: &CurrentStatistics) -> Option<NewRows> {
    let known = || common.iter().map(|(point, _)| point).chain(bounds.first()).chain(bounds.last());
    let first = known().min_by(|one, other| one.order(other))?;
    let last = known().max_by(|one, other| one.order(other))?;
    let min = now.min.as_ref().and_then(Point::of);
    let max = now.max.as_ref().and_then(Point::of);
    let (low, high) = match (min, max) {
        _ if now.newer <= 0.0 => return None,
        (_, Some(max)) if max > *last => (last.clone(), max),
        (Some(min), _) if min < *first => (min, first.clone()),
        _ => return None,
    };
    Some(NewRows { share: now.newer, low, high })
}
