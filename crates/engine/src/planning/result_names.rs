//! What the columns of rows are called that go where no two may have one name: into files, and into keys of
//! JSON.
//!
//! They are called as PostgreSQL calls the columns of a result, and numbered from the second of a name on:
//! `sum`, `sum_1`.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;
use harrier_exec::formats::distinct_names::distinct_names;

/// The plan of a query, `asked`, with names of their own for its columns.
pub(crate) fn told_apart(plan: LogicalPlan, asked: Option<&ast::Statement>) -> Result<LogicalPlan> {
    let Some(asked) = asked else { return Ok(plan) };
    let schema = Arc::clone(plan.schema());
    let planned: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let names = harrier_sql::column_names::column_names(asked, &planned);
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

/// The same of what a COPY, or an EXPLAIN ANALYZE of one, writes down.
pub(crate) fn copied(mut plan: LogicalPlan, asked: Option<&ast::Statement>) -> Result<LogicalPlan> {
    match &mut plan {
        LogicalPlan::Copy(copy) => {
            copy.input = Arc::new(told_apart(LogicalPlan::clone(&copy.input), asked)?);
        }
        LogicalPlan::Analyze(analyze) if matches!(analyze.input.as_ref(), LogicalPlan::Copy(_)) => {
            analyze.input = Arc::new(copied(LogicalPlan::clone(&analyze.input), asked)?);
        }
        _ => {}
    }
    Ok(plan)
}

/// What says the names of the columns that a statement returns, or writes as a COPY, before anything is done
/// to it.
pub(crate) fn asked(statement: &Statement) -> Option<ast::Statement> {
    match statement {
        Statement::Statement(sent) => Some(ast::Statement::clone(sent)),
        Statement::Explain(explain) => match explain.statement.as_ref() {
            copy @ Statement::CopyTo(_) => asked(copy),
            _ => None,
        },
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => Some(ast::Statement::Query(query.clone())),
            CopyToSource::Relation(_) => None,
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => None,
    }
}
