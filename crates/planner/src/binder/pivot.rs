//! Planner of `FROM t PIVOT (…)` and `FROM t UNPIVOT (…)`, as DuckDB and Snowflake have them.
//!
//! ```text
//! t PIVOT (sum(x) FOR c IN ('a', 'b' AS d))  ─►  Aggregate: groupBy=[what is left of t],
//!                                                          aggr=[sum(x) FILTER (c = 'a') AS a,
//!                                                                sum(x) FILTER (c = 'b') AS d]
//! t UNPIVOT (v FOR n IN (a, b AS d))  ─►  Filter: v IS NOT NULL
//!                                           Projection: what is left of t, n,
//!                                                       CASE n WHEN 'a' THEN a WHEN 'd' THEN b END AS v
//!                                             CrossJoin: t, ('a'), ('d')
//! ```
//!
//! Columns of PIVOT are called like DuckDB's: by the value, and with several aggregates, or names of them, by
//! the value and the name of the aggregate, as in `a_sum`.

use std::collections::HashSet;

use datafusion::common::{Column, DFSchema};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::conditional_expressions::CaseBuilder;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, lit, when};
use datafusion::sql::sqlparser::ast::{
    self, ExprWithAlias, NullInclusion, PivotValueSource, TableFactor, Value,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// The relation of the names that UNPIVOT gives its rows.
const NAMES: &str = "_harrier_names";

/// Plans PIVOT and UNPIVOT.
#[derive(Debug)]
pub struct PivotPlanner;

impl RelationPlanner for PivotPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (plan, alias) = match relation {
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source,
                default_on_null,
                alias,
            } => {
                let PivotValueSource::List(values) = value_source else {
                    let message = "PIVOT over the values that a query finds is not supported";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_hint("PIVOT (… FOR column IN (value, …)) lists them")
                        .into_datafusion());
                };
                let input = context.plan(*table)?;
                let pivot =
                    Pivot { aggregates: aggregate_functions, columns: value_column, values, default_on_null };
                (pivot.plan(input, context)?, alias)
            }
            TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } => {
                let ast::Expr::Identifier(value) = value else {
                    let message = "UNPIVOT into several columns is not supported";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_hint("UNPIVOT (value FOR name IN (column, …))")
                        .into_datafusion());
                };
                let input = context.plan(*table)?;
                let (value, name) = (context.normalize_ident(value), context.normalize_ident(name));
                let keeps_nulls = matches!(null_inclusion, Some(NullInclusion::IncludeNulls));
                (unpivot(input, &value, &name, columns, keeps_nulls, context)?, alias)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

struct Pivot {
    aggregates: Vec<ExprWithAlias>,
    columns: Vec<ast::Expr>,
    values: Vec<ExprWithAlias>,
    default_on_null: Option<ast::Expr>,
}

impl Pivot {
    /// Errors: a value does not have as many parts as there are columns (42601); those of planning.
    fn plan(self, input: LogicalPlan, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let schema = input.schema().as_ref().clone();
        let columns = self.columns.into_iter().map(|column| context.sql_to_expr(column, &schema));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let default = match self.default_on_null {
            Some(default) => Some(context.sql_to_expr(default, &DFSchema::empty())?),
            None => None,
        };
        let mut aggregates = Vec::with_capacity(self.aggregates.len());
        let is_named = self.aggregates.len() > 1;
        for ExprWithAlias { expr, alias } in self.aggregates {
            let name = match (alias, &expr) {
                (Some(alias), _) => Some(context.normalize_ident(alias)),
                (None, ast::Expr::Function(function)) if is_named => {
                    Some(function.name.to_string().to_ascii_lowercase())
                }
                (None, expr) => is_named.then(|| expr.to_string()),
            };
            aggregates.push((context.sql_to_expr(expr, &schema)?, name));
        }
        let mut used = HashSet::new();
        columns.iter().for_each(|column| used.extend(column.column_refs()));
        aggregates.iter().for_each(|(aggregate, _)| used.extend(aggregate.column_refs()));
        let rest: Vec<Column> =
            schema.columns().into_iter().filter(|column| !used.contains(column)).collect();
        let mut pivoted = vec![];
        for ExprWithAlias { expr, alias } in self.values {
            let parts = match expr {
                ast::Expr::Tuple(parts) if columns.len() > 1 => parts,
                ast::Expr::Nested(inner) if columns.len() == 1 => vec![*inner],
                other => vec![other],
            };
            if parts.len() != columns.len() {
                let message = "a value of PIVOT has as many parts as there are columns behind FOR";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
            }
            let value_name = match alias {
                Some(alias) => context.normalize_ident(alias),
                None => parts.iter().map(text_of).collect::<Vec<_>>().join("_"),
            };
            let mut condition: Option<Expr> = None;
            for (column, part) in columns.iter().zip(parts) {
                let value = context.sql_to_expr(part, &DFSchema::empty())?;
                let operator = match &value {
                    Expr::Literal(value, _) if value.is_null() => Operator::IsNotDistinctFrom,
                    _ => Operator::Eq,
                };
                let is_value = binary_expr(column.clone(), operator, value);
                condition = Some(match condition {
                    Some(condition) => condition.and(is_value),
                    None => is_value,
                });
            }
            for (aggregate, name) in &aggregates {
                let name = match name {
                    Some(name) => format!("{value_name}_{name}"),
                    None => value_name.clone(),
                };
                pivoted.push((of_rows(aggregate.clone(), condition.clone())?, name));
            }
        }
        let aggregated: Vec<Expr> =
            pivoted.iter().map(|(aggregate, name)| aggregate.clone().alias(name)).collect();
        let plan = LogicalPlanBuilder::from(input)
            .aggregate(rest.iter().cloned().map(Expr::Column), aggregated)?
            .build()?;
        let Some(default) = default else { return Ok(plan) };
        let results = pivoted.iter().map(|(_, name)| {
            let value = Expr::Column(Column::new_unqualified(name));
            coalesce(vec![value, default.clone()]).alias(name)
        });
        let all = rest.into_iter().map(Expr::Column).chain(results).collect::<Vec<_>>();
        LogicalPlanBuilder::from(plan).project(all)?.build()
    }
}

/// The aggregate over the rows for which a condition is true.
///
/// Errors: it is none (42803).
fn of_rows(aggregate: Expr, condition: Option<Expr>) -> Result<Expr> {
    match aggregate {
        Expr::AggregateFunction(mut function) => {
            let own = function.params.filter.take().map(|own| *own);
            function.params.filter = match (own, condition) {
                (Some(own), Some(condition)) => Some(Box::new(own.and(condition))),
                (own, condition) => own.or(condition).map(Box::new),
            };
            Ok(Expr::AggregateFunction(function))
        }
        Expr::Alias(alias) => of_rows(*alias.expr, condition),
        other => {
            let message = format!("PIVOT needs an aggregate function, which {other} is not");
            Err(SqlError::new(SqlState::GROUPING_ERROR, message).into_datafusion())
        }
    }
}

/// What a value is called as a column.
fn text_of(value: &ast::Expr) -> String {
    match value {
        ast::Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            Value::Null => "NULL".to_string(),
            other => other.to_string(),
        },
        ast::Expr::Cast { expr, .. } | ast::Expr::Nested(expr) => text_of(expr),
        ast::Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

fn unpivot(
    input: LogicalPlan,
    value: &str,
    name: &str,
    columns: Vec<ExprWithAlias>,
    keeps_nulls: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let schema = input.schema().as_ref().clone();
    let (mut used, mut names) = (HashSet::new(), vec![]);
    let called = || Expr::Column(Column::new(Some(NAMES), name));
    let mut case: Option<CaseBuilder> = None;
    for ExprWithAlias { expr, alias } in columns {
        let column = context.sql_to_expr(expr, &schema)?;
        let own = match (alias, &column) {
            (Some(alias), _) => match alias.quote_style {
                Some('\'') => alias.value,
                _ => context.normalize_ident(alias),
            },
            (None, Expr::Column(column)) => column.name.clone(),
            (None, other) => other.to_string(),
        };
        used.extend(column.column_refs().into_iter().cloned());
        let is_own = called().eq(lit(own.as_str()));
        case = Some(match case {
            Some(mut case) => case.when(is_own, column),
            None => when(is_own, column),
        });
        names.push(vec![lit(own)]);
    }
    let Some(case) = case else {
        return Err(DataFusionError::Internal("UNPIVOT of no columns".to_string()));
    };
    let rest = schema.columns().into_iter().filter(|column| !used.contains(column)).map(Expr::Column);
    let rest: Vec<Expr> = rest.collect();
    let names = LogicalPlanBuilder::values(names)?;
    let only = names.schema().columns().into_iter().map(|column| Expr::Column(column).alias(name));
    let only: Vec<Expr> = only.collect();
    let names = names.project(only)?.alias(NAMES)?.build()?;
    let all = rest.into_iter().chain([called().alias(name), case.end()?.alias(value)]);
    let plan = LogicalPlanBuilder::from(input).cross_join(names)?.project(all)?;
    match keeps_nulls {
        true => plan.build(),
        false => plan.filter(Expr::Column(Column::new_unqualified(value)).is_not_null())?.build(),
    }
}
