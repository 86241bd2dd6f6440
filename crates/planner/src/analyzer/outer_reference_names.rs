//! Renames columns in correlated conditions of subqueries, so that their names are unique.
//!
//! DataFusion decorrelates a subquery by pulling its conditions up into a join, above an alias that drops
//! table qualifiers. Two columns of the same name, as in `EXISTS (SELECT 1 FROM x JOIN y … WHERE x.n = o.n
//! AND y.n = o.n)`, became one, so the result was that of `x.n = o.n AND x.n = o.n`. Together with an output
//! column of the same name, `SELECT x.id AS n FROM x WHERE x.n = o.n`, it was ambiguous (42702). This rule
//! renames such columns below the condition, and restores their names above it.
//!
//! ```text
//!   Filter: x.n = o.n AND y.n = o.n      Projection: …, _harrier_correlated_0 AS x.n, _harrier_correlated_1 AS y.n
//!     Join: x, y                           Filter: _harrier_correlated_0 = o.n AND _harrier_correlated_1 = o.n
//!                                            Projection: …, x.n AS _harrier_correlated_0, y.n AS _harrier_correlated_1
//!                                              Join: x, y
//! ```
//!
//! `OuterReferenceNames` can go when pulled up conditions keep column names unique; no exact issue found;
//! related: apache/datafusion#21206, apache/datafusion#21208, apache/datafusion#20315.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, HashMap, HashSet, TableReference, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Projection, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decorrelation::references::{has_subquery, map_subquery};

/// The prefix of the new names.
const PREFIX: &str = "_harrier_correlated_";

/// The analyzer rule; runs after all that rewrite subqueries.
#[derive(Debug)]
pub struct OuterReferenceNames;

impl AnalyzerRule for OuterReferenceNames {
    fn name(&self) -> &str {
        "outer_reference_names"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut count = 0;
        let changed = plan.transform_up_with_subqueries(|plan| {
            let plan = plan.map_expressions(|expr| {
                expr.transform_up(|expr| map_subquery(expr, |subquery| disambiguate(subquery, &mut count)))
            })?;
            plan.transform_data(|plan| match plan {
                // A LATERAL subquery.
                LogicalPlan::Subquery(mut subquery) => {
                    let changed = disambiguate(&mut subquery, &mut count)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Subquery(subquery), changed))
                }
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// Renames ambiguous columns of one subquery. Returns whether it did.
fn disambiguate(subquery: &mut Subquery, count: &mut usize) -> Result<bool> {
    let mut found = Correlated::default();
    found.collect(&subquery.subquery, &mut Vec::new());
    let ambiguous: HashSet<&String> =
        found.relations.iter().filter(|(_, of)| of.len() > 1).map(|(name, _)| name).collect();
    let mut names = HashMap::new();
    for column in found.columns {
        if ambiguous.contains(&column.name) && !names.contains_key(&column) {
            names.insert(column, format!("{PREFIX}{count}"));
            *count += 1;
        }
    }
    if names.is_empty() {
        return Ok(false);
    }
    let plan = Arc::unwrap_or_clone(Arc::clone(&subquery.subquery));
    let changed = plan.transform_up(|plan| match plan {
        LogicalPlan::Filter(filter) => rename_filter(filter, &names),
        other => Ok(Transformed::no(other)),
    })?;
    subquery.subquery = Arc::new(changed.data);
    Ok(changed.transformed)
}

/// The columns of a subquery's correlated conditions.
#[derive(Default)]
struct Correlated {
    columns: Vec<Column>,
    /// By column name: the tables of all columns of that name on the way up.
    relations: HashMap<String, HashSet<Option<TableReference>>>,
}

impl Correlated {
    fn collect(&mut self, plan: &LogicalPlan, above: &mut Vec<DFSchemaRef>) {
        if let LogicalPlan::Filter(filter) = plan {
            for column in correlated_columns(&filter.predicate) {
                let relations = self.relations.entry(column.name.clone()).or_default();
                relations.insert(column.relation.clone());
                for schema in above.iter().chain([filter.input.schema()]) {
                    let same = schema.iter().filter(|(_, field)| *field.name() == column.name);
                    relations.extend(same.map(|(relation, _)| relation.cloned()));
                }
                self.columns.push(column);
            }
        }
        above.push(Arc::clone(plan.schema()));
        for input in plan.inputs() {
            self.collect(input, above);
        }
        above.pop();
    }
}

/// The subquery's own columns in the correlated parts of a condition.
fn correlated_columns(predicate: &Expr) -> Vec<Column> {
    let parts = split_conjunction(predicate).into_iter();
    let correlated = parts.filter(|part| part.contains_outer() && !has_subquery(part));
    correlated.flat_map(|part| part.column_refs().into_iter().cloned()).collect()
}

fn rename_filter(filter: Filter, names: &HashMap<Column, String>) -> Result<Transformed<LogicalPlan>> {
    let columns = correlated_columns(&filter.predicate);
    if !columns.iter().any(|column| names.contains_key(column)) {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let (mut below, mut restored) = (Vec::new(), Vec::new());
    for column in filter.input.schema().columns() {
        match names.get(&column).filter(|_| columns.contains(&column)) {
            Some(name) => {
                let (relation, own) = (column.relation.clone(), column.name.clone());
                below.push(Expr::Column(column).alias(name));
                restored.push(Expr::Column(Column::from_name(name)).alias_qualified(relation, own));
            }
            None => {
                below.push(Expr::Column(column.clone()));
                restored.push(Expr::Column(column));
            }
        }
    }
    // Nested subqueries refer to the columns by their original names.
    let (nested, plain): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate).into_iter().partition(has_subquery);
    let new_name = |column: &Column| names.get(column).filter(|_| columns.contains(column));
    let Some(plain) = conjunction(plain) else { return internal_err!("no correlated condition") };
    let plain = plain.transform_up(|expr| match &expr {
        Expr::Column(column) => Ok(match new_name(column) {
            Some(name) => Transformed::yes(Expr::Column(Column::from_name(name))),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    })?;
    // These become joins that would drop the new names, so they stay below.
    let input = match conjunction(nested) {
        Some(nested) => Arc::new(LogicalPlan::Filter(Filter::try_new(nested, filter.input)?)),
        None => filter.input,
    };
    let input = LogicalPlan::Projection(Projection::try_new(below, input)?);
    let filter = LogicalPlan::Filter(Filter::try_new(plain.data, Arc::new(input))?);
    let above = Projection::try_new(restored, Arc::new(filter))?;
    Ok(Transformed::yes(LogicalPlan::Projection(above)))
}
