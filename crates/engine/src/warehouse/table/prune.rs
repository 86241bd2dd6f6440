//! File pruning by the catalog's column statistics.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column as ColumnName, ScalarValue, ToDFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, expr_to_columns, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use harrier_catalog::StatsRef;
use harrier_catalog::state::{Column, ColumnId, Table, Transform};
use harrier_catalog::types::ColumnType;
use harrier_functions::hash::bucket::bucket_of;

use crate::types::columns::{has_stats, has_unreliable_buckets};
use crate::warehouse::table::stored_values;

/// Statistics of files for pruning.
#[derive(Default)]
pub(crate) struct Candidates<'a> {
    /// Rows of each file, including deleted ones.
    pub rows: Vec<i64>,
    /// Statistics of a column in each file.
    pub stats: BTreeMap<ColumnId, Vec<Option<StatsRef<'a>>>>,
    /// The type of a column when each file was written, for columns whose type has changed.
    pub written: BTreeMap<ColumnId, Vec<ColumnType>>,
}

/// The columns in `filters` for which the catalog has statistics.
pub(crate) fn columns_in<'a>(filters: &[Expr], columns: &'a [Column]) -> Vec<&'a Column> {
    let mut names = HashSet::new();
    for filter in filters {
        // A filter that cannot be traversed does not prune.
        let _ = expr_to_columns(filter, &mut names);
    }
    columns
        .iter()
        .filter(|column| has_stats(column) && names.iter().any(|name| name.name == column.name))
        .collect()
}

/// Which of `files` may contain rows that pass all of `filters`; all if the filters do not prune.
pub(crate) fn may_match(
    session: &dyn Session,
    filters: &[Expr],
    schema: &SchemaRef,
    columns: &[Column],
    files: &Candidates<'_>,
) -> Result<Vec<bool>> {
    let all = vec![true; files.rows.len()];
    // Statistics refer to columns without a table's name or alias.
    let filters: Vec<Expr> = filters.iter().cloned().map(unqualify).collect::<Result<_>>()?;
    let Some(filter) = conjunction(filters) else {
        return Ok(all);
    };
    let df_schema = Arc::clone(schema).to_dfschema()?;
    let Ok(predicate) = session.create_physical_expr(filter, &df_schema) else {
        return Ok(all);
    };
    let pruning = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let Some(predicate) = pruning.build(predicate) else {
        return Ok(all);
    };
    let known = FileStatistics { schema: Arc::clone(schema), columns, files };
    Ok(predicate.prune(&known).unwrap_or(all))
}

/// The buckets of a table that may contain rows passing all of `filters`; `None` for all.
pub(crate) fn matching_buckets(filters: &[Expr], table: &Table, schema: &SchemaRef) -> Option<BTreeSet<u32>> {
    let (key, count) = table.partition.iter().find_map(|key| match key.transform {
        Transform::Bucket(count) => Some((key, count)),
        _ => None,
    })?;
    let column = table.columns.iter().find(|column| column.id == key.column)?;
    if has_unreliable_buckets(column) {
        return None;
    }
    let kind = schema.field_with_name(&column.name).ok()?.data_type();
    let buckets = Buckets { column: &column.name, kind, count };
    let each = filters.iter().flat_map(split_conjunction).filter_map(|filter| buckets.of_filter(filter));
    each.reduce(|one, other| one.intersection(&other).copied().collect())
}

/// Bucket computation for a table's bucket key.
struct Buckets<'a> {
    column: &'a str,
    kind: &'a DataType,
    count: u32,
}

impl Buckets<'_> {
    /// The buckets that may contain rows passing `filter`; `None` for all.
    fn of_filter(&self, filter: &Expr) -> Option<BTreeSet<u32>> {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                let value =
                    if self.is_key(left) { right } else { Some(left).filter(|_| self.is_key(right))? };
                self.of_value(value)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let (mut either, or) = (self.of_filter(left)?, self.of_filter(right)?);
                either.extend(or);
                Some(either)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                match (self.of_filter(left), self.of_filter(right)) {
                    (Some(one), Some(other)) => Some(one.intersection(&other).copied().collect()),
                    (one, other) => one.or(other),
                }
            }
            Expr::InList(list) if !list.negated && self.is_key(&list.expr) => {
                let each: Option<Vec<BTreeSet<u32>>> =
                    list.list.iter().map(|value| self.of_value(value)).collect();
                each.map(|each| each.into_iter().flatten().collect())
            }
            _ => None,
        }
    }

    fn is_key(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Column(own) if own.name == self.column)
    }

    /// The buckets in which the key equals a value: none for NULL.
    fn of_value(&self, value: &Expr) -> Option<BTreeSet<u32>> {
        match value {
            Expr::Literal(value, _) if value.is_null() => Some(BTreeSet::new()),
            Expr::Literal(value, _) if is_alike(&value.data_type(), self.kind) => {
                let number = bucket_of(&value.cast_to(self.kind).ok()?, self.count).ok()??;
                Some(BTreeSet::from([number]))
            }
            _ => None,
        }
    }
}

/// Whether casts between the types are injective.
fn is_alike(one: &DataType, other: &DataType) -> bool {
    one == other || one.is_string() && other.is_string() || one.is_integer() && other.is_integer()
}

fn unqualify(expr: Expr) -> Result<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    expr.transform(|expr| {
        Ok(match expr {
            Expr::Column(column) if column.relation.is_some() => {
                Transformed::yes(Expr::Column(ColumnName::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    })
    .map(|transformed| transformed.data)
}

struct FileStatistics<'a> {
    schema: SchemaRef,
    columns: &'a [Column],
    files: &'a Candidates<'a>,
}

impl FileStatistics<'_> {
    fn stats(&self, column: &ColumnName) -> Option<(&Column, DataType, &[Option<StatsRef<'_>>])> {
        let own = self.columns.iter().find(|own| own.name == column.name)?;
        let kind = self.schema.field_with_name(&column.name).ok()?.data_type().clone();
        Some((own, kind, self.files.stats.get(&own.id)?))
    }

    fn bounds<'s>(
        &'s self,
        column: &ColumnName,
        is_lower: bool,
        pick: impl Fn(&StatsRef<'s>) -> Option<&'s str>,
    ) -> Option<ArrayRef> {
        let (own, kind, stats) = self.stats(column)?;
        // NaN is the greatest value here and not covered by the bounds.
        let is_sure = |stats: &&StatsRef<'s>| !kind.is_floating() || stats.nan == Some(false);
        let texts: StringArray =
            stats.iter().map(|stats| stats.as_ref().filter(is_sure).and_then(&pick)).collect();
        let written = self.files.written.get(&own.id).map(Vec::as_slice);
        stored_values::bounds(texts, own, &kind, written, is_lower).ok()
    }
}

impl PruningStatistics for FileStatistics<'_> {
    fn min_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, true, |stats| stats.min)
    }

    fn max_values(&self, column: &ColumnName) -> Option<ArrayRef> {
        self.bounds(column, false, |stats| stats.max)
    }

    fn num_containers(&self) -> usize {
        self.files.rows.len()
    }

    fn null_counts(&self, column: &ColumnName) -> Option<ArrayRef> {
        let (_, _, stats) = self.stats(column)?;
        let nulls: UInt64Array =
            stats.iter().map(|stats| stats.and_then(|stats| stats.nulls).map(|nulls| nulls as u64)).collect();
        Some(Arc::new(nulls))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows: UInt64Array = self.files.rows.iter().map(|rows| Some(*rows as u64)).collect();
        Some(Arc::new(rows))
    }

    fn contained(&self, _: &ColumnName, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::{col, lit};

    #[test]
    fn buckets_are_pruned_by_filter_values() {
        let kind = DataType::Int64;
        let buckets = Buckets { column: "k", kind: &kind, count: 6 };
        let of = |filter: Expr| buckets.of_filter(&filter).map(|set| set.into_iter().collect::<Vec<_>>());
        let key = |value: i64| col("k").eq(lit(value));
        let null = || lit(ScalarValue::Int64(None));
        let cases: [(Expr, Option<Vec<u32>>); 12] = [
            (key(1), Some(vec![2])),
            (lit(12).eq(col("k")), Some(vec![4])),
            (key(1).or(key(12)), Some(vec![2, 4])),
            (key(5).or(key(8)), Some(vec![5])),
            (key(1).or(col("n").eq(lit(1))), None),
            (key(1).or(key(12).and(col("n").gt(lit(1)))), Some(vec![2, 4])),
            (key(1).or(key(12)).and(key(5).or(key(12))), Some(vec![4])),
            (col("k").in_list(vec![lit(1_i64), lit(12_i64), null()], false), Some(vec![2, 4])),
            (col("k").in_list(vec![lit(1_i64)], true), None),
            (col("k").in_list(vec![lit(1_i64), col("n")], false), None),
            (col("k").eq(null()), Some(vec![])),
            (col("k").gt(lit(1_i64)), None),
        ];
        for (filter, expected) in cases {
            assert_eq!(of(filter.clone()), expected, "{filter}");
        }
    }
}
