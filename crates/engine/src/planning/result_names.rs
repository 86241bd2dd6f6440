//! Distinct column names for results that go to files or become keys of JSON objects.
//!
//! Columns have the names that PostgreSQL gives to result columns; duplicates are numbered from the second
//! on: `sum`, `sum_1`.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;
use harrier_exec::formats::distinct_names::distinct_names;

/// Gives the columns of a query's plan distinct names. `original`: the query as the client sent it.
pub(crate) fn with_distinct_names(
    plan: LogicalPlan,
    original: Option<&ast::Statement>,
) -> Result<LogicalPlan> {
    let Some(original) = original else { return Ok(plan) };
    let schema = Arc::clone(plan.schema());
    let planned: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let names = harrier_sql::column_names::column_names(original, &planned);
    let names = distinct_names(names.iter()).unwrap_or(names);
    if names == planned {
        return Ok(plan);
    }
    let columns = schema.columns().into_iter().zip(names);
    let columns = columns.map(|(column, name)| match column.name == name {
        true => Expr::Column(column),
        false => Expr::Column(column).alias(name),
    });
    LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()
}

/// Gives distinct names to the rows that a COPY, or an EXPLAIN ANALYZE of one, writes.
pub(crate) fn with_distinct_names_in_copy(
    mut plan: LogicalPlan,
    original: Option<&ast::Statement>,
) -> Result<LogicalPlan> {
    match &mut plan {
        LogicalPlan::Copy(copy) => {
            copy.input = Arc::new(with_distinct_names(LogicalPlan::clone(&copy.input), original)?);
        }
        LogicalPlan::Analyze(analyze) if matches!(analyze.input.as_ref(), LogicalPlan::Copy(_)) => {
            analyze.input =
                Arc::new(with_distinct_names_in_copy(LogicalPlan::clone(&analyze.input), original)?);
        }
        _ => {}
    }
    Ok(plan)
}

/// The statement that determines the names of the result columns, or of the rows that COPY writes, before any
/// rewrite.
pub(crate) fn original_statement(statement: &Statement) -> Option<ast::Statement> {
    match statement {
        Statement::Statement(sent) => Some(ast::Statement::clone(sent)),
        Statement::Explain(explain) => match explain.statement.as_ref() {
            copy @ Statement::CopyTo(_) => original_statement(copy),
            _ => None,
        },
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(ast::Statement::Query(query.clone())),
            CopyToSource::Relation(_) => None,
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => None,
    }
}
