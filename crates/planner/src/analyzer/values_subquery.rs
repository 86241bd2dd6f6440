//! Supports non-constant expressions in VALUES. For `VALUES ((SELECT …))`, DataFusion evaluates all rows
//! before subqueries run; rows with subqueries become a UNION of SELECTs, and sequence values are computed in
//! a projection above. For `VALUES (1.5), (CASE …)`, computed values are always cast to the column type,
//! because DataFusion compares types before it has coerced the expression.
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
//! `ValuesSubqueries` can go when VALUES accepts subqueries and coerces computed values; no issue found.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::cast;
use datafusion::logical_expr::{EmptyRelation, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Values};
use datafusion::optimizer::AnalyzerRule;

use super::decorrelation::references::has_subquery;

/// The analyzer rule; runs before those that visit subqueries.
#[derive(Debug)]
pub(crate) struct ValuesSubqueries {
    /// Whether an expression draws a value of a sequence.
    pub(crate) takes_sequence_value: fn(&Expr) -> bool,
}

impl AnalyzerRule for ValuesSubqueries {
    fn name(&self) -> &str {
        "values_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|node| self.rewrite_values(node))?.data)
    }
}

impl ValuesSubqueries {
    fn rewrite_values(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Values(values) if values.values.iter().flatten().any(self.takes_sequence_value) => {
                match self.sequence_projection(values)? {
                    Some(above) => self.rewrite_values(above),
                    None => Ok(Transformed::yes(union_of_rows(values)?)),
                }
            }
            LogicalPlan::Values(values) if values.values.iter().flatten().any(has_subquery) => {
                Ok(Transformed::yes(union_of_rows(values)?))
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

    /// Computes columns that draw from the same sequence in all rows in a projection above, so that all rows
    /// draw at once and in order. `None`: other values also depend on sequences.
    fn sequence_projection(&self, values: &Values) -> Result<Option<LogicalPlan>> {
        let takes = self.takes_sequence_value;
        let Some(first) = values.values.first() else { return Ok(None) };
        let is_same = |at: usize| takes(&first[at]) && values.values.iter().all(|row| row[at] == first[at]);
        let is_sequence: Vec<bool> = (0..first.len()).map(is_same).collect();
        let mut below = values.clone();
        for row in &mut below.values {
            for ((value, field), _) in row
                .iter_mut()
                .zip(values.schema.fields())
                .zip(&is_sequence)
                .filter(|(_, is_sequence)| **is_sequence)
            {
                *value = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
            }
        }
        if below.values.iter().flatten().any(|value| takes(value) || has_subquery(value)) {
            return Ok(None);
        }
        let nothing = DFSchema::empty();
        let columns = values.schema.iter().zip(first).zip(&is_sequence).map(
            |(((relation, field), value), is_sequence)| {
                Ok(match is_sequence {
                    true => value
                        .clone()
                        .cast_to(field.data_type(), &nothing)?
                        .alias_qualified(relation.cloned(), field.name()),
                    false => Expr::Column(Column::new(relation.cloned(), field.name())),
                })
            },
        );
        let columns = columns.collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(LogicalPlan::Values(below)).project(columns)?.build().map(Some)
    }
}

/// Plans each row separately.
fn union_of_rows(values: &Values) -> Result<LogicalPlan> {
    let rows = values.values.iter().map(|row| select_row(row, values));
    let all = rows.reduce(|all, row| all?.union(row?.build()?)).transpose()?;
    all.map_or_else(|| Ok(LogicalPlan::Values(values.clone())), LogicalPlanBuilder::build)
}

/// Plans one row with the column names and types of all.
fn select_row(row: &[Expr], values: &Values) -> Result<LogicalPlanBuilder> {
    let nothing = Arc::new(DFSchema::empty());
    let columns = row.iter().zip(values.schema.fields()).map(|(value, field)| {
        Ok(value.clone().cast_to(field.data_type(), nothing.as_ref())?.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let one = EmptyRelation { produce_one_row: true, schema: nothing };
    LogicalPlanBuilder::from(LogicalPlan::EmptyRelation(one)).project(columns)
}
