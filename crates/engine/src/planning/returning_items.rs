//! The select list of RETURNING.

use datafusion::sql::sqlparser::ast::{self, OutputClause, SelectItem};
use harrier_sql::ast_builder;

/// The RETURNING list of a statement.
pub(crate) fn items(statement: &ast::Statement) -> Option<&Vec<SelectItem>> {
    match statement {
        ast::Statement::Insert(insert) => insert.returning.as_ref(),
        ast::Statement::Update(update) => update.returning.as_ref(),
        ast::Statement::Delete(delete) => delete.returning.as_ref(),
        ast::Statement::Merge(merge) => match &merge.output {
            Some(OutputClause::Returning { select_items, .. }) => Some(select_items),
            _ => None,
        },
        _ => None,
    }
}

/// A query with the RETURNING list of the original statement as its select list, to derive column names from.
pub(crate) fn as_query(statement: &ast::Statement) -> Option<ast::Statement> {
    let written = match statement {
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(written)
            | ast::SetExpr::Update(written)
            | ast::SetExpr::Delete(written)
            | ast::SetExpr::Merge(written) => written,
            _ => return None,
        },
        written => written,
    };
    let query = ast_builder::query_of(items(written)?.clone(), vec![]);
    Some(ast::Statement::Query(Box::new(query)))
}
