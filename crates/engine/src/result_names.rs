//! What the columns of rows are called that go where no two may have one name: into files, and into keys of JSON.
//!
//! They are called as PostgreSQL calls the columns of a result, and numbered from the second of a name on: `sum`, `sum_1`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast;

/// Names of their own for columns, in their order.
pub fn numbered(names: &[String]) -> Vec<String> {
    let given: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut seen: HashSet<String> = HashSet::with_capacity(names.len());
    let mut own = Vec::with_capacity(names.len());
    for name in names {
        let mut next = name.clone();
        let mut number = 0;
        while seen.contains(&next) || number > 0 && given.contains(next.as_str()) {
            number += 1;
            next = format!("{name}_{number}");
        }
        seen.insert(next.clone());
        own.push(next);
    }
    own
}

/// The plan of a query, `asked`, with names of their own for its columns.
pub(crate) fn told_apart(plan: LogicalPlan, asked: Option<&ast::Statement>) -> Result<LogicalPlan> {
    let Some(asked) = asked else { return Ok(plan) };
    let schema = Arc::clone(plan.schema());
    let planned: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let names = numbered(&harrier_pgcatalog::column_names(asked, &planned));
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

/// What says the names of the columns that a statement returns, or writes as a COPY, before anything is done to it.
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

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn no_two_names_are_one() {
        let check = |names: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            assert_eq!(numbered(&names), expected);
        };
        check(&["sum", "count", "sum", "sum"], &["sum", "count", "sum_1", "sum_2"]);
        check(&["a", "a", "a_1"], &["a", "a_2", "a_1"]);
        check(&["a_1", "a", "a"], &["a_1", "a", "a_2"]);
        check(&["?column?", "?column?"], &["?column?", "?column?_1"]);
        check(&[], &[]);
    }
}
