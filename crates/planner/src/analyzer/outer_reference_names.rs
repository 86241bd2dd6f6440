//! Columns that a correlated subquery compares with the rows outside, under names of their own.
//!
//! DataFusion decorrelates a subquery by pulling its conditions up into a join, above an alias of the
//! subquery that takes the tables' names away. Two columns of one name, as in `EXISTS (SELECT 1 FROM x JOIN y
//! … WHERE x.n = o.n AND y.n = o.n)`, were one there, and the answer that of `x.n = o.n AND x.n = o.n`;
//! beside a column of the output that has the name, `SELECT x.id AS n FROM x WHERE x.n = o.n`, it was
//! ambiguous (42702). Here such columns get other names below the condition, and have their own again above
//! it.
//!
//! ```text
//!   Filter: x.n = o.n AND y.n = o.n      Projection: …, _harrier_correlated_0 AS x.n, _harrier_correlated_1 AS y.n
//!     Join: x, y                           Filter: _harrier_correlated_0 = o.n AND _harrier_correlated_1 = o.n
//!                                            Projection: …, x.n AS _harrier_correlated_0, y.n AS _harrier_correlated_1
//!                                              Join: x, y
//! ```
//!
//! `OuterReferenceNames` can go when pulled up conditions name columns apart; no exact issue found; akin:
//! apache/datafusion#21206, apache/datafusion#21208, apache/datafusion#20315.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, HashMap, HashSet, TableReference, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Projection, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::analyzer::decorrelation::references::{has_subquery, map_subquery};

/// What the names begin with.
const PREFIX: &str = "_harrier_correlated_";

/// The rule; to stand behind those that write subqueries.
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
                expr.transform_up(|expr| map_subquery(expr, |subquery| named_apart(subquery, &mut count)))
            })?;
            plan.transform_data(|plan| match plan {
                // That of LATERAL.
                LogicalPlan::Subquery(mut subquery) => {
                    let changed = named_apart(&mut subquery, &mut count)?;
                    Ok(Transformed::new_transformed(LogicalPlan::Subquery(subquery), changed))
                }
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// Renames columns of one subquery where they would be mistaken for others. Returns whether it did.
fn named_apart(subquery: &mut Subquery, count: &mut usize) -> Result<bool> {
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
        LogicalPlan::Filter(filter) => renamed(filter, &names),
        other => Ok(Transformed::no(other)),
    })?;
    subquery.subquery = Arc::new(changed.data);
    Ok(changed.transformed)
}

/// The columns of a subquery's correlated conditions.
#[derive(Default)]
struct Correlated {
    columns: Vec<Column>,
    /// By the name of such a column, the tables of the columns of that name which it meets on its way up.
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

/// The subquery's own columns in those parts of a condition that speak of rows outside.
fn correlated_columns(predicate: &Expr) -> Vec<Column> {
    let parts = split_conjunction(predicate).into_iter();
    let correlated = parts.filter(|part| part.contains_outer() && !has_subquery(part));
    correlated.flat_map(|part| part.column_refs().into_iter().cloned()).collect()
}

fn renamed(filter: Filter, names: &HashMap<Column, String>) -> Result<Transformed<LogicalPlan>> {
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
    // Subqueries know the columns by their own names.
    let (nested, plain): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate).into_iter().partition(has_subquery);
    let is_named = |column: &Column| names.get(column).filter(|_| columns.contains(column));
    let Some(plain) = conjunction(plain) else { return internal_err!("no correlated condition") };
    let plain = plain.transform_up(|expr| match &expr {
        Expr::Column(column) => Ok(match is_named(column) {
            Some(name) => Transformed::yes(Expr::Column(Column::from_name(name))),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    })?;
    // Joins that these become would not pass the other names on, so they stay below.
    let input = match conjunction(nested) {
        Some(nested) => Arc::new(LogicalPlan::Filter(Filter::try_new(nested, filter.input)?)),
        None => filter.input,
    };
    let input = LogicalPlan::Projection(Projection::try_new(below, input)?);
    let filter = LogicalPlan::Filter(Filter::try_new(plain.data, Arc::new(input))?);
    let above = Projection::try_new(restored, Arc::new(filter))?;
    Ok(Transformed::yes(LogicalPlan::Projection(above)))
}
