//! Planner of `FROM t TABLESAMPLE BERNOULLI (10) REPEATABLE (42)`: a sample of about 10 % of the rows. Each
//! row is sampled independently, even with SYSTEM, which samples blocks in PostgreSQL. With a seed the
//! decision depends on the row's values, so equal rows are sampled together.
//!
//! ```text
//! t TABLESAMPLE BERNOULLI (10)  ─►  Filter: random() < 10 / 100
//!                                     TableScan: t
//! t TABLESAMPLE SYSTEM (10) REPEATABLE (42)  ─►  Filter: harrier_row_sample(42, t.*) < 10 / 100
//!                                                  TableScan: t
//! ```
//!
//! `TableSamplePlanner` can go when DataFusion plans TABLESAMPLE (apache/datafusion#13563,
//! apache/datafusion#24754, open).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::math;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, binary_expr, cast, lit};
use datafusion::sql::sqlparser::ast::{self, TableFactor, TableSample, TableSampleKind, TableSampleMethod};
use harrier_error::{SqlError, SqlState};
use harrier_functions::hash::table_sample;
use harrier_sqlstate::IntoDataFusionError;

/// Plans a TABLESAMPLE clause.
#[derive(Debug)]
pub struct TableSamplePlanner;

impl RelationPlanner for TableSamplePlanner {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let sample = match &mut relation {
            TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => sample.take(),
            _ => None,
        };
        let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
            sample
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        if !matches!(relation, TableFactor::Table { args: None, .. }) {
            let message = "TABLESAMPLE clause can only be applied to tables and materialized views";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into_datafusion());
        }
        let share = share(&sample, context)?;
        let plan = context.plan(relation)?;
        let number = random_number(&sample, &plan)?;
        let is_taken = binary_expr(number, Operator::Lt, share);
        let plan = LogicalPlanBuilder::from(plan).filter(is_taken)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// The share of rows to sample, from 0 to 1.
///
/// Errors: out of range or NULL (2202H); unknown or unsupported method (42704, 0A000).
fn share(sample: &TableSample, context: &mut dyn RelationPlannerContext) -> Result<Expr> {
    let quantity =
        sample.quantity.as_ref().filter(|quantity| quantity.parenthesized && quantity.unit.is_none());
    let (Some(TableSampleMethod::Bernoulli | TableSampleMethod::System), Some(quantity), None, None) =
        (&sample.name, quantity, &sample.bucket, &sample.offset)
    else {
        let message = "a sample is told by its method and a percentage";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("TABLESAMPLE BERNOULLI (10)")
            .into_datafusion());
    };
    let nothing = DFSchema::empty();
    let percentage = context.sql_to_expr(quantity.value.clone(), &nothing)?;
    if let Expr::Literal(value, _) = &percentage {
        let percent = match value.cast_to(&DataType::Float64)? {
            ScalarValue::Float64(Some(percent)) => percent,
            _ => return Err(invalid("TABLESAMPLE parameter cannot be null")),
        };
        if !(0.0..=100.0).contains(&percent) {
            return Err(invalid("sample percentage must be between 0 and 100"));
        }
    }
    Ok(binary_expr(cast(percentage, DataType::Float64), Operator::Divide, lit(100.0)))
}

/// A pseudo-random number from 0 to 1 for each row.
///
/// Errors: the seed is not a number (2202G).
fn random_number(sample: &TableSample, plan: &LogicalPlan) -> Result<Expr> {
    let Some(seed) = &sample.seed else { return Ok(math::random().call(vec![])) };
    let seed = match &seed.value.value {
        ast::Value::Number(text, _) => text.parse::<f64>().ok(),
        _ => None,
    };
    let Some(seed) = seed else {
        let message = "TABLESAMPLE REPEATABLE parameter has to be a number";
        return Err(SqlError::new(SqlState::INVALID_TABLESAMPLE_REPEAT, message).into_datafusion());
    };
    let columns = plan.schema().iter().map(|(table, field)| Expr::Column(Column::from((table, field))));
    Ok(table_sample::function().call(std::iter::once(lit(seed)).chain(columns).collect()))
}

fn invalid(message: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::INVALID_TABLESAMPLE_ARGUMENT, message).into_datafusion()
}
