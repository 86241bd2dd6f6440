//! `DELETE FROM t AS q WHERE …`: the planner supports no alias in DELETE. The statement is planned as an
//! UPDATE without assignments, whose plan is then converted to that of a DELETE.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Delete, FromTable, TableFactor, Update};

use crate::planning::cast_names;

/// Plans a statement.
///
/// Errors: those of planning.
pub(crate) async fn plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    let deletes = convert_to_update(&mut statement);
    let plan = cast_names::plan(state, statement).await?;
    if deletes { Ok(plan.transform_down(convert_to_delete)?.data) } else { Ok(plan) }
}

/// Converts a DELETE with an alias, also within EXPLAIN or PREPARE, to an UPDATE. Returns whether it was one.
fn convert_to_update(statement: &mut Statement) -> bool {
    match statement {
        Statement::Explain(explain) => convert_to_update(&mut explain.statement),
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::Prepare { statement, .. } => update(statement),
            statement => update(statement),
        },
        _ => false,
    }
}

fn update(statement: &mut ast::Statement) -> bool {
    let ast::Statement::Delete(delete) = statement else { return false };
    let Delete {
        delete_token,
        tables,
        from,
        using: None,
        selection,
        returning: None,
        output: None,
        order_by,
        limit: None,
        ..
    } = delete
    else {
        return false;
    };
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = from;
    let [table] = from.as_slice() else { return false };
    let is_aliased = matches!(&table.relation, TableFactor::Table { alias: Some(_), .. });
    if !is_aliased || !table.joins.is_empty() || !tables.is_empty() || !order_by.is_empty() {
        return false;
    }
    *statement = ast::Statement::Update(Update {
        update_token: delete_token.clone(),
        optimizer_hints: vec![],
        table: table.clone(),
        assignments: vec![],
        from: None,
        selection: selection.take(),
        returning: None,
        output: None,
        or: None,
        order_by: vec![],
        limit: None,
    });
    true
}

fn convert_to_delete(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Dml(DmlStatement { table_name, target, op: WriteOp::Update, input, .. }) = &plan else {
        return Ok(Transformed::no(plan));
    };
    // The projection above only copies the columns.
    let rows = match input.as_ref() {
        LogicalPlan::Projection(values) => &values.input,
        _ => input,
    };
    let delete = DmlStatement::new(table_name.clone(), Arc::clone(target), WriteOp::Delete, Arc::clone(rows));
    Ok(Transformed::new(LogicalPlan::Dml(delete), true, TreeNodeRecursion::Jump))
}
