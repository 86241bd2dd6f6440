//! Range and list partitioning of tables, and `harrier_table_partition(…)`, which routes a row to its table
//! partition.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, StringArray, make_comparator,
};
use datafusion::arrow::compute::{SortColumn, SortOptions, cast_with_options, lexsort_to_indices, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{
    DataFusionError, Result, ScalarValue, internal_datafusion_err, internal_err, plan_err,
};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::column_stats::text_of;
use super::write_files::EXACT;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The limit on ranges or listed values of a table. All of them are read with the head of the catalog: some
/// hundred kilobytes.
pub const TABLE_PARTITIONS_MAX: usize = 4096;

const NAME: &str = "harrier_table_partition";

/// The partitioning of a table by the values of one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePartitions {
    /// The column's id.
    pub column: i64,
    pub by: DividedBy,
    pub partitions: Vec<TablePartition>,
    /// The next unused partition id.
    pub next: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DividedBy {
    Range,
    List,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePartition {
    /// Prefixes the names of its files; never reused in its table.
    pub id: i64,
    pub name: String,
    pub holds: Holds,
    /// Options of its files that override the table's, by the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// The values of a table partition, as text in the catalog's encoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// From one bound to the other; `None` is unbounded.
    Range(Option<Cut>, Option<Cut>),
    /// The listed values; `None` is NULL.
    Values(Vec<Option<String>>),
    /// The default partition.
    Rest,
}

/// A bound just before or just after a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    pub value: String,
    pub after: bool,
}

/// Two conflicting partitions, or an invalid one.
#[derive(Debug, PartialEq, Eq)]
pub enum InvalidPartitions {
    /// Indexes of the partitions.
    Overlap(usize, usize),
    /// Its lower bound is not below its upper one.
    Empty(usize),
}

impl TablePartitions {
    /// Parses the catalog's text.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            let message = format!("the table partitions in the catalog cannot be read: {error}");
            SqlError::new(SqlState::DATA_CORRUPTED, message).into_datafusion()
        })
    }

    pub fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| internal_datafusion_err!("table partitions: {error}"))
    }

    /// The size that [`TABLE_PARTITIONS_MAX`] limits.
    pub fn size(&self) -> usize {
        let size = |partition: &TablePartition| match &partition.holds {
            Holds::Values(values) => values.len().max(1),
            Holds::Range(..) | Holds::Rest => 1,
        };
        self.partitions.iter().map(size).sum()
    }

    pub fn rest(&self) -> Option<&TablePartition> {
        self.partitions.iter().find(|partition| partition.holds == Holds::Rest)
    }

    /// Finds overlapping or empty partitions; `kind` is the column's type.
    pub fn fault(&self, kind: &DataType) -> Result<Option<InvalidPartitions>> {
        Lookup::new(self, kind)?.fault()
    }

    /// Returns the partition id of each value, if there is one.
    pub fn of(&self, values: &ArrayRef) -> Result<Int64Array> {
        Lookup::new(self, values.data_type())?.of(values)
    }
}

/// A search index of partitions, sorted by their values.
#[derive(Debug)]
struct Lookup {
    /// Bounds of disjoint intervals; a listed value is an interval of its own. NULL: unbounded.
    lower: ArrayRef,
    upper: ArrayRef,
    lower_after: BooleanArray,
    upper_after: BooleanArray,
    /// The index of the partition of each interval.
    owners: Vec<usize>,
    ids: Vec<i64>,
    null_partition: Option<i64>,
    default_partition: Option<i64>,
}

impl Lookup {
    fn new(partitions: &TablePartitions, kind: &DataType) -> Result<Self> {
        let mut intervals: Vec<(Option<Cut>, Option<Cut>, usize)> = Vec::new();
        let (mut null_partition, mut default_partition) = (None, None);
        for (at, partition) in partitions.partitions.iter().enumerate() {
            match &partition.holds {
                Holds::Range(start, end) => intervals.push((start.clone(), end.clone(), at)),
                Holds::Values(values) => {
                    for value in values {
                        let Some(value) = value else {
                            null_partition = Some(partition.id);
                            continue;
                        };
                        let cut = |after| Some(Cut { value: value.clone(), after });
                        intervals.push((cut(false), cut(true), at));
                    }
                }
                Holds::Rest => default_partition = Some(partition.id),
            }
        }
        let bounds = |pick: fn(&(Option<Cut>, Option<Cut>, usize)) -> &Option<Cut>| {
            let cuts = || intervals.iter().map(move |interval| pick(interval).as_ref());
            let texts: StringArray = cuts().map(|cut| cut.map(|cut| cut.value.as_str())).collect();
            let after: BooleanArray = cuts().map(|cut| Some(cut.is_some_and(|cut| cut.after))).collect();
            Ok::<_, DataFusionError>((cast_with_options(&texts, kind, &EXACT)?, after))
        };
        let (lower, lower_after) = bounds(|interval| &interval.0)?;
        let (upper, upper_after) = bounds(|interval| &interval.1)?;
        let ascending = Some(SortOptions { descending: false, nulls_first: true });
        let order = lexsort_to_indices(
            &[
                SortColumn { values: Arc::clone(&lower), options: ascending },
                SortColumn { values: Arc::new(lower_after.clone()), options: ascending },
            ],
            None,
        )?;
        let owners = order.values().iter().map(|at| intervals[*at as usize].2).collect();
        Ok(Self {
            lower: take(&lower, &order, None)?,
            upper: take(&upper, &order, None)?,
            lower_after: take(&lower_after, &order, None)?.as_boolean().clone(),
            upper_after: take(&upper_after, &order, None)?.as_boolean().clone(),
            owners,
            ids: partitions.partitions.iter().map(|partition| partition.id).collect(),
            null_partition,
            default_partition,
        })
    }

    fn fault(&self) -> Result<Option<InvalidPartitions>> {
        let compare = make_comparator(&self.upper, &self.lower, SortOptions::default())?;
        // Whether one interval's upper bound is beyond another's lower bound.
        let is_beyond = |upper: usize, lower: usize| match compare(upper, lower) {
            _ if self.upper.is_null(upper) || self.lower.is_null(lower) => true,
            Ordering::Equal => self.upper_after.value(upper) && !self.lower_after.value(lower),
            order => order.is_gt(),
        };
        let count = self.owners.len();
        if let Some(at) = (0..count).find(|at| !is_beyond(*at, *at)) {
            return Ok(Some(InvalidPartitions::Empty(self.owners[at])));
        }
        let overlap = (1..count).find(|at| is_beyond(at - 1, *at));
        Ok(overlap.map(|at| InvalidPartitions::Overlap(self.owners[at - 1], self.owners[at])))
    }

    fn of(&self, values: &ArrayRef) -> Result<Int64Array> {
        let with_lower = make_comparator(values, &self.lower, SortOptions::default())?;
        let with_upper = make_comparator(values, &self.upper, SortOptions::default())?;
        // A NULL bound is less than every value.
        let begins_before = |row: usize, at: usize| match with_lower(row, at) {
            Ordering::Equal => !self.lower_after.value(at),
            order => order.is_gt(),
        };
        let ends_after = |row: usize, at: usize| match with_upper(row, at) {
            _ if self.upper.is_null(at) => true,
            Ordering::Equal => self.upper_after.value(at),
            order => order.is_lt(),
        };
        let find = |row: usize| {
            let (mut low, mut high) = (0, self.owners.len());
            while low < high {
                let middle = low + (high - low) / 2;
                match begins_before(row, middle) {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            let at = low.checked_sub(1).filter(|at| ends_after(row, *at))?;
            Some(self.ids[self.owners[at]])
        };
        let nulls = values.logical_nulls();
        let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        Ok((0..values.len())
            .map(|row| if is_null(row) { self.null_partition } else { find(row) }.or(self.default_partition))
            .collect())
    }
}

/// An expression for the partition id of rows to be written, by the `value` in `column`; NULL for rows that
/// are not written.
///
/// Errors, if `table` names the table: 23514 for a row without a partition. Otherwise NULL for those, too.
pub fn table_partition(
    is_written: Expr,
    value: Expr,
    partitions: &TablePartitions,
    column: &str,
    table: Option<&str>,
) -> Result<Expr> {
    // Binary: displayed plans truncate it.
    let partitions = ScalarValue::Binary(Some(partitions.text()?.into_bytes()));
    let table = ScalarValue::Utf8(table.map(str::to_string));
    Ok(function().call(vec![is_written, value, lit(partitions), lit(column), lit(table)]))
}

/// The function; plans name it when sent to ranks.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(RowsPartition::default()))
}

#[derive(Debug)]
struct RowsPartition {
    signature: Signature,
    /// Cache of the last lookup, which the next batch nearly always shares.
    last_lookup: Mutex<Option<(Vec<u8>, DataType, Arc<Lookup>)>>,
}

impl Default for RowsPartition {
    fn default() -> Self {
        // Volatile: it must not be evaluated early, or for rows that are not written.
        Self { signature: Signature::any(5, Volatility::Volatile), last_lookup: Mutex::default() }
    }
}

impl PartialEq for RowsPartition {
    fn eq(&self, other: &Self) -> bool {
        self.signature == other.signature
    }
}

impl Eq for RowsPartition {}

impl Hash for RowsPartition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl RowsPartition {
    fn lookup(&self, text: &[u8], kind: &DataType) -> Result<Arc<Lookup>> {
        let mut known = self.last_lookup.lock();
        if let Some((known_text, known_kind, lookup)) = known.as_ref()
            && known_text == text
            && known_kind == kind
        {
            return Ok(Arc::clone(lookup));
        }
        let partitions: TablePartitions = serde_json::from_slice(text)
            .map_err(|error| internal_datafusion_err!("table partitions in a plan: {error}"))?;
        let lookup = Arc::new(Lookup::new(&partitions, kind)?);
        *known = Some((text.to_vec(), kind.clone(), Arc::clone(&lookup)));
        Ok(lookup)
    }
}

impl ScalarUDFImpl for RowsPartition {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Boolean, _, DataType::Binary, DataType::Utf8, DataType::Utf8] => Ok(DataType::Int64),
            _ => plan_err!("{NAME} does not take {arguments:?}"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [
            is_written,
            value,
            ColumnarValue::Scalar(ScalarValue::Binary(Some(partitions))),
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(column))),
            ColumnarValue::Scalar(ScalarValue::Utf8(table)),
        ] = arguments.args.as_slice()
        else {
            return internal_err!("{NAME} has other arguments");
        };
        let rows = arguments.number_rows;
        let values = value.to_array(rows)?;
        let is_written = is_written.to_array(rows)?;
        let is_written = is_written.as_boolean();
        let is_written = |row: usize| is_written.is_valid(row) && is_written.value(row);
        let found = self.lookup(partitions, values.data_type())?.of(&values)?;
        let without = (0..rows).find(|row| found.is_null(*row) && is_written(*row));
        if let (Some(row), Some(table)) = (without, table) {
            return Err(no_partition(table, column, &values.slice(row, 1))?.into_datafusion());
        }
        let found: Int64Array =
            (0..rows).map(|row| (found.is_valid(row) && is_written(row)).then(|| found.value(row))).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

fn no_partition(table: &str, column: &str, value: &dyn Array) -> Result<SqlError> {
    let text = text_of(value)?;
    let value = if text.is_valid(0) { text.value(0) } else { "null" };
    let error = SqlError::new(
        SqlState::CHECK_VIOLATION,
        format!("no partition of relation \"{table}\" found for row"),
    );
    Ok(match column {
        "" => error,
        column => {
            error.with_detail(format!("Partition key of the failing row contains ({column}) = ({value})."))
        }
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Date32Array, Int32Array, StringViewArray};
    use datafusion::arrow::datatypes::{Field, Int64Type};
    use datafusion::config::ConfigOptions;

    use super::*;

    fn range_bound(value: &str, after: bool) -> Option<Cut> {
        Some(Cut { value: value.to_string(), after })
    }

    fn partitions_by(by: DividedBy, holds: Vec<Holds>) -> TablePartitions {
        let partitions: Vec<_> = (1..)
            .zip(holds)
            .map(|(id, holds)| TablePartition { id, name: format!("p{id}"), holds, options: BTreeMap::new() })
            .collect();
        TablePartitions { column: 1, by, next: partitions.len() as i64 + 1, partitions }
    }

    fn partition_ids(partitions: &TablePartitions, values: ArrayRef) -> Vec<Option<i64>> {
        partitions.of(&values).unwrap().iter().collect()
    }

    #[test]
    fn rows_are_in_their_ranges() {
        let ranges = partitions_by(
            DividedBy::Range,
            vec![
                Holds::Range(range_bound("10", false), range_bound("20", false)),
                Holds::Range(None, range_bound("5", true)),
                Holds::Range(range_bound("20", true), range_bound("30", true)),
            ],
        );
        assert_eq!(ranges.fault(&DataType::Int32).unwrap(), None);
        let values = [
            Some(-7),
            Some(5),
            Some(6),
            Some(9),
            Some(10),
            Some(19),
            Some(20),
            Some(21),
            Some(30),
            Some(31),
            None,
        ];
        let expected = [Some(2), Some(2), None, None, Some(1), Some(1), None, Some(3), Some(3), None, None];
        assert_eq!(partition_ids(&ranges, Arc::new(Int32Array::from(values.to_vec()))), expected);
    }

    #[test]
    fn rows_are_in_their_lists_or_in_the_rest() {
        let text = |value: &str| Some(value.to_string());
        let lists = partitions_by(
            DividedBy::List,
            vec![
                Holds::Values(vec![text("z"), text("a"), None]),
                Holds::Rest,
                Holds::Values(vec![text("m")]),
            ],
        );
        assert_eq!(lists.fault(&DataType::Utf8View).unwrap(), None);
        let values = StringViewArray::from_iter([Some("a"), Some("b"), Some("m"), Some("z"), Some(""), None]);
        let expected = [Some(1), Some(2), Some(3), Some(1), Some(2), Some(1)];
        assert_eq!(partition_ids(&lists, Arc::new(values)), expected);
    }

    #[test]
    fn text_round_trip() {
        let day = |value: &str| range_bound(value, false);
        let ranges = partitions_by(
            DividedBy::Range,
            vec![Holds::Range(day("2024-01-01"), day("2024-02-01")), Holds::Rest],
        );
        let again = TablePartitions::parse(&ranges.text().unwrap()).unwrap();
        assert_eq!(again, ranges);
        assert_eq!(
            partition_ids(&again, Arc::new(Date32Array::from(vec![19723, 19753, 19754, 0]))),
            [Some(1), Some(1), Some(2), Some(2)]
        );
        let damaged = TablePartitions::parse("{}").unwrap_err();
        assert_eq!(harrier_sqlstate::of(&damaged), SqlState::DATA_CORRUPTED);
    }

    #[test]
    fn invalid_partitions_are_detected() {
        let range = |start, end| Holds::Range(range_bound(start, false), range_bound(end, false));
        let fault = |holds| partitions_by(DividedBy::Range, holds).fault(&DataType::Int64).unwrap();
        assert_eq!(fault(vec![range("1", "5"), range("5", "9")]), None);
        assert_eq!(fault(vec![range("4", "9"), range("1", "5")]), Some(InvalidPartitions::Overlap(1, 0)));
        assert_eq!(fault(vec![range("5", "5")]), Some(InvalidPartitions::Empty(0)));
        assert_eq!(fault(vec![range("9", "5")]), Some(InvalidPartitions::Empty(0)));
        let open = Holds::Range(range_bound("5", false), None);
        assert_eq!(fault(vec![open.clone(), range("7", "9")]), Some(InvalidPartitions::Overlap(0, 1)));
        assert_eq!(fault(vec![Holds::Range(None, None), open]), Some(InvalidPartitions::Overlap(0, 1)));
        let one = Holds::Range(range_bound("5", false), range_bound("5", true));
        let beyond = Holds::Range(range_bound("5", true), range_bound("6", false));
        assert_eq!(fault(vec![one, beyond, range("3", "5")]), None);
        let twice =
            partitions_by(DividedBy::List, vec![Holds::Values(vec![Some("1".into()), Some("1".into())])]);
        assert_eq!(twice.fault(&DataType::Int64).unwrap(), Some(InvalidPartitions::Overlap(0, 0)));
    }

    fn invoke(written: Vec<Option<bool>>, values: Vec<Option<i32>>, table: Option<&str>) -> Result<ArrayRef> {
        let ranges = partitions_by(
            DividedBy::Range,
            vec![Holds::Range(range_bound("1", false), range_bound("5", false))],
        );
        let rows = values.len();
        let field = |kind| Arc::new(Field::new("", kind, true));
        let answer = function().inner().invoke_with_args(ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Array(Arc::new(BooleanArray::from(written))),
                ColumnarValue::Array(Arc::new(Int32Array::from(values))),
                ColumnarValue::Scalar(ScalarValue::Binary(Some(ranges.text()?.into_bytes()))),
                ColumnarValue::Scalar(ScalarValue::from("a")),
                ColumnarValue::Scalar(ScalarValue::Utf8(table.map(str::to_string))),
            ],
            arg_fields: vec![],
            number_rows: rows,
            return_field: field(DataType::Int64),
            config_options: Arc::new(ConfigOptions::default()),
        })?;
        answer.into_array(rows)
    }

    #[test]
    fn rows_without_a_partition_are_not_written() {
        let error = invoke(vec![Some(true); 2], vec![Some(1), Some(5)], Some("t")).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::CHECK_VIOLATION);
        assert!(invoke(vec![Some(true)], vec![None], Some("t")).is_err());
        let only = |rows: ArrayRef| rows.as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        let written = vec![Some(true), Some(false), None];
        let answer = invoke(written.clone(), vec![Some(4), None, Some(9)], Some("t")).unwrap();
        assert_eq!(only(answer), [Some(1), None, None]);
        let answer = invoke(written, vec![Some(9), Some(4), Some(4)], None).unwrap();
        assert_eq!(only(answer), [None, None, None]);
    }
}
