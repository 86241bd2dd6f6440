//! What stands in VALUES beside constants. `VALUES ((SELECT …))`: to the planner all are constants, which it
//! works out before a subquery has run; rows with subqueries are those of a SELECT each here, and so are
//! values of sequences computed above the others. `VALUES (1.5), (CASE …)`: what is computed is cast to the
//! type of its column in any case, for the planner compares the two before it has found out what is computed.
//!
//! ```text
//! Values: (1), ((SELECT …))  ─►  Union: Projection: CAST(1 AS t) AS column1
//!                                       Projection: CAST((SELECT …) AS t) AS column1
//! Values: (nextval(s), 1), (nextval(s), 2)  ─►  Projection: nextval(s) AS column1, column2
//!                                                 Values: (NULL, 1), (NULL, 2)
//! Values: (1.5), (CASE …)  ─►  Values: (1.5), (CAST(CASE … AS t))
//! ```
//! t is the type of the column.
//!
//! `ValuesSubqueries` can go when VALUES takes subqueries and coerces what it computes; no issue found.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::cast;
use datafusion::logical_expr::{EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Values};
use datafusion::optimizer::AnalyzerRule;

use super::decorrelation::references::has_subquery;

/// The rule; to stand before those that look at subqueries.
#[derive(Debug)]
pub(crate) struct ValuesSubqueries {
    /// Whether an expression takes a value of a sequence.
    pub(crate) takes_sequence_value: fn(&Expr) -> bool,
}

impl AnalyzerRule for ValuesSubqueries {
    fn name(&self) -> &str {
        "values_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|node| self.selected(node))?.data)
    }
}

impl ValuesSubqueries {
    fn selected(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Values(values) if values.values.iter().flatten().any(self.takes_sequence_value) => {
                match self.above(values)? {
                    Some(above) => self.selected(above),
                    None => Ok(Transformed::yes(of_rows(values)?)),
                }
            }
            LogicalPlan::Values(values) if values.values.iter().flatten().any(has_subquery) => {
                Ok(Transformed::yes(of_rows(values)?))
            }
            LogicalPlan::Values(values) => {
                let mut rows = values.values.clone();
                let mut is_changed = false;
                for (value, field) in
                    rows.iter_mut().flat_map(|row| row.iter_mut().zip(values.schema.fields()))
                {
                    if !matches!(value, Expr::Literal(..) | Expr::Placeholder(_) | Expr::Cast(_)) {
                        *value = cast(std::mem::take(value), field.data_type().clone());
                        is_changed = true;
                    }
                }
                let schema = Arc::clone(&values.schema);
                Ok(match is_changed {
                    true => Transformed::yes(LogicalPlan::Values(Values { schema, values: rows })),
                    false => Transformed::no(plan),
                })
            }
            _ => Ok(Transformed::no(plan)),
        }
    }

    /// Columns that are the next value of one sequence in all rows, above the others: so all rows take theirs
    /// at once, in their order. `None`: other values are computed with sequences as well.
    fn above(&self, values: &Values) -> Result<Option<LogicalPlan>> {
        let takes = self.takes_sequence_value;
        let Some(first) = values.values.first() else { return Ok(None) };
        let is_same = |at: usize| takes(&first[at]) && values.values.iter().all(|row| row[at] == first[at]);
        let lifted: Vec<bool> = (0..first.len()).map(is_same).collect();
        let mut below = values.clone();
        for row in &mut below.values {
            for ((value, field), _) in
                row.iter_mut().zip(values.schema.fields()).zip(&lifted).filter(|(_, lifted)| **lifted)
            {
                *value = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
            }
        }
        if below.values.iter().flatten().any(|value| takes(value) || has_subquery(value)) {
            return Ok(None);
        }
        let nothing = DFSchema::empty();
        let columns =
            values.schema.iter().zip(first).zip(&lifted).map(|(((relation, field), value), lifted)| {
                Ok(match lifted {
                    true => value
                        .clone()
                        .cast_to(field.data_type(), &nothing)?
                        .alias_qualified(relation.cloned(), field.name()),
                    false => Expr::Column(Column::new(relation.cloned(), field.name())),
                })
            });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(LogicalPlan::Values(below)).project(columns)?.build().map(Some)
    }
}

/// The rows, each by itself.
fn of_rows(values: &Values) -> Result<LogicalPlan> {
    let rows = values.values.iter().map(|row| row_of(row, values));
    let all = rows.reduce(|all, row| all?.union(row?.build()?)).transpose()?;
    all.map_or_else(|| Ok(LogicalPlan::Values(values.clone())), LogicalPlanBuilder::build)
}

/// One row, with the names and types of all.
fn row_of(row: &[Expr], values: &Values) -> Result<LogicalPlanBuilder> {
    let nothing = Arc::new(DFSchema::empty());
    let columns = row.iter().zip(values.schema.fields()).map(|(value, field)| {
        Ok(value.clone().cast_to(field.data_type(), nothing.as_ref())?.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let one = EmptyRelation { produce_one_row: true, schema: nothing };
    LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(one)).project(columns)
}
