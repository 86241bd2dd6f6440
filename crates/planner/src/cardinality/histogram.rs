//! Histograms: how a sample of a column's values becomes one, and how many rows a comparison leaves by it.
//!
//! The most common values are told one by one with their shares. The others are cut into buckets of equally
//! many rows, between whose bounds they are taken to lie evenly. Values that come with later writes are taken
//! to lie beyond those that ANALYZE has seen, where the bounds of data files go beyond them.
//!
//! Source: PostgreSQL's `analyze.c` and `selfuncs.c`, for what is kept, how much of it, and how a text
//! becomes a number.

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

/// Common values that are kept, and buckets of the others. Three hundred values of a sample are in a bucket.
pub const BUCKETS: usize = 100;
/// Characters of a text that count. Longer ones are only looked at so far, and are never common values.
pub const CHARACTERS_MAX: usize = 256;
/// A value that is common in a sample of a column has to be there this often: its share is then known to
/// about a third.
const COMMON_MIN: usize = 10;
/// A common value has so many times the rows of a mean one.
const COMMON_FACTOR: f64 = 1.25;

/// Whether values of this type have an order that histograms know.
pub fn is_ordered(kind: &DataType) -> bool {
    kind.is_numeric()
        || kind.is_string()
        || matches!(
            kind,
            DataType::Boolean | DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..)
        )
}

/// What is kept of a column's values.
#[derive(Debug)]
pub struct SampledHistogram {
    /// The most common values, the most common first, with the share of all rows that has them.
    pub common: Vec<(String, f64)>,
    /// Of the other values: between two neighbours lie equally many rows. In their order, the least and the
    /// greatest included.
    pub bounds: Vec<String>,
}

/// A sample of the values that are not null, in order.
pub struct Sorted {
    values: ArrayRef,
    /// Where equal values are.
    runs: Vec<Range<usize>>,
}

impl Sorted {
    pub fn of(sample: &ArrayRef) -> Result<Self> {
        let values = sort(sample, None)?;
        let runs = match values.len() {
            0 => vec![],
            _ => partition(&[Arc::clone(&values)])?.ranges(),
        };
        Ok(Self { values, runs })
    }

    /// Whether some of its texts are longer than what was taken of them.
    pub fn has_cut(&self) -> bool {
        let texts = self.values.as_string_opt::<i32>();
        texts.is_some_and(|texts| texts.iter().flatten().any(is_cut))
    }

    /// Different values among all `values` that the sample was taken of.
    ///
    /// Source: Haas and Stokes, "Estimating the number of classes in a finite population", the estimator
    /// Duj1, which PostgreSQL takes.
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

    /// The histogram, if all values can be kept. `is_all`: the sample has all values. `share`: of the rows
    /// that are not null.
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
        // What cannot be in the text of a catalog.
        let is_kept = |text: &String| !text.contains('\0');
        let is_kept =
            histogram.common.iter().all(|(text, _)| is_kept(text)) && histogram.bounds.iter().all(is_kept);
        Ok(is_kept.then_some(histogram))
    }

    /// The runs of the common values, the most common first.
    fn common(&self, is_all: bool, texts: &StringArray) -> Vec<usize> {
        let values = self.values.len();
        let different = self.runs.len();
        let is_cut = |at: usize| self.values.data_type().is_string() && is_cut(texts.value(at));
        let is_flag = *self.values.data_type() == DataType::Boolean;
        let fits = different <= BUCKETS && different < values && !(0..different).any(is_cut);
        let least = match fits || is_flag {
            true => 1,
            false => {
                let mean = (COMMON_FACTOR * values as f64 / different as f64).ceil() as usize;
                // What fills a bucket by itself is common anyway.
                mean.min(values.div_ceil(BUCKETS)).max(if is_all { 2 } else { COMMON_MIN })
            }
        };
        let mut common: Vec<usize> =
            (0..different).filter(|at| self.runs[*at].len() >= least && !is_cut(*at)).collect();
        common.sort_by_key(|at| std::cmp::Reverse(self.runs[*at].len()));
        common.truncate(BUCKETS);
        common
    }

    fn texts(&self, rows: impl Iterator<Item = usize>) -> Result<StringArray> {
        let rows = UInt32Array::from_iter_values(rows.map(|row| row as u32));
        text_of(&take(&self.values, &rows, None)?)
    }
}

fn is_cut(text: &str) -> bool {
    text.len() >= CHARACTERS_MAX && text.chars().count() >= CHARACTERS_MAX
}

/// The runs at whose values the buckets of these runs end.
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

/// A value as a place in the order of its column.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Point {
    Number(f64),
    Text(String),
}

impl Point {
    /// `None`: null, or of a type without an order.
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

    /// How far it is on the way from `low` to `high`, from 0 to 1.
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

/// The first value of one row as a number that keeps its order.
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
    // NaN is greater than all numbers.
    Some(if number.is_nan() { f64::MAX } else { number })
}

/// The bytes of a text from the `from`th on as a fraction.
fn fraction(text: &str, from: usize) -> f64 {
    let bytes = text.as_bytes().iter().skip(from).take(size_of::<u64>());
    bytes.zip(1..).map(|(byte, place)| f64::from(*byte) / 256_f64.powi(place)).sum()
}

/// Rows that came after ANALYZE, with values beyond those that it saw.
#[derive(Debug)]
struct Newer {
    share: f64,
    low: Point,
    high: Point,
}

/// What is known of the values of a column.
#[derive(Debug)]
pub struct Spread {
    common: Vec<(Point, f64)>,
    bounds: Vec<Point>,
    /// The share of the rows with values that are not common.
    others: f64,
    others_distinct: f64,
    newer: Option<Newer>,
    pub(crate) nulls: f64,
    pub(crate) distinct: f64,
    /// The common values, then the bounds, and a null, with the shares they stand for.
    pub(crate) examples: (ArrayRef, Vec<f64>),
}

/// What a column's files say, and how much it has grown since ANALYZE.
pub struct Now {
    pub min: Option<ScalarValue>,
    pub max: Option<ScalarValue>,
    pub distinct: f64,
    /// Of all rows those that ANALYZE did not see.
    pub newer: f64,
}

impl Spread {
    /// `common` and `bounds`: as in [`SampledHistogram`]. `nulls`: their share of the rows that ANALYZE saw.
    pub fn new(
        common: &[(String, f64)],
        bounds: &[String],
        kind: &DataType,
        nulls: f64,
        now: &Now,
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
        let examples = concat(&[common_values.as_ref(), bound_values.as_ref(), null.as_ref()])?;
        let newer = newer(&common_points, &bound_points, now);
        Ok(Self {
            others_distinct: (now.distinct - common.len() as f64).max(1.0),
            examples: (examples, weights),
            common: common_points,
            bounds: bound_points,
            others,
            newer,
            nulls,
            distinct: now.distinct.max(1.0),
        })
    }

    /// A value of any type in the order of this column's.
    pub fn point(&self, value: &ScalarValue) -> Option<Point> {
        Point::of(&value.cast_to(self.examples.0.data_type()).ok()?)
    }

    /// What a condition leaves that is true for no value that is told.
    pub fn least(&self) -> f64 {
        match self.bounds.len() {
            0 => 0.0,
            told => self.others / (2 * told) as f64,
        }
    }

    /// The share of the rows that equal a value.
    pub fn equal(&self, value: &Point) -> f64 {
        let known = self.common.iter().find(|(common, _)| common == value).map(|(_, share)| *share);
        let known = known.unwrap_or_else(|| if self.is_among_others(value) { self.one() } else { 0.0 });
        match &self.newer {
            None => known,
            Some(newer) if *value < newer.low || *value > newer.high => known * (1.0 - newer.share),
            Some(newer) => known * (1.0 - newer.share) + newer.share / self.others_distinct,
        }
    }

    /// The share of the rows with one value that is not common.
    fn one(&self) -> f64 {
        self.others / self.others_distinct
    }

    fn is_among_others(&self, value: &Point) -> bool {
        match (self.bounds.first(), self.bounds.last()) {
            (Some(first), Some(last)) => first <= value && value <= last,
            _ => true,
        }
    }

    /// The share of the rows with smaller values, or values that are not greater.
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

    /// The same of those values that are not common, as a share of them.
    fn others_below(&self, value: &Point, or_equal: bool) -> f64 {
        let Some(buckets) = self.bounds.len().checked_sub(1).filter(|buckets| *buckets > 0) else {
            // Of one value or of a few nothing is known but that they are there.
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
        // Equal bounds are the ends of buckets that have the one value alone.
        let equal = self.bounds.partition_point(|bound| bound <= value).saturating_sub(before + 1);
        let equal = (equal as f64 / buckets as f64).max(1.0 / self.others_distinct);
        if is_there { (smaller + equal).min(1.0) } else { smaller }
    }
}

fn points(values: &ArrayRef) -> Result<Vec<Option<Point>>> {
    (0..values.len()).map(|row| Ok(Point::of(&ScalarValue::try_from_array(values, row)?))).collect()
}

fn newer(common: &[(Point, f64)], bounds: &[Point], now: &Now) -> Option<Newer> {
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
    Some(Newer { share: now.newer, low, high })
}
