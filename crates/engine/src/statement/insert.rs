//! INSERT, also of rows with fewer values than the table has columns.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_sql::desugar::insert_values;
use harrier_sql::identifier;

use crate::external::hive::table::FolderTable;
use crate::session::Session;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    /// INSERT. `executed`: the statement itself, or the one that EXECUTE runs.
    pub(crate) async fn insert(
        &self,
        insert: &ast::Insert,
        executed: Option<&ast::Statement>,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        // EXECUTE must be planned as EXECUTE to bind its parameters.
        let is_executed =
            matches!(sql, Statement::Statement(sql) if !matches!(sql.as_ref(), ast::Statement::Insert(_)));
        let is_short = self.warehouse().is_some()
            && statement.partition.is_none()
            && !is_executed
            && insert_values::has_bare_rows(insert);
        match is_short {
            true => Box::pin(self.change(executed, &self.with_columns(insert).await, statement)).await,
            false => Box::pin(self.change(executed, sql, statement)).await,
        }
    }

    /// Adds the column list to an INSERT whose rows may have fewer values than the table has columns. `None`
    /// for other statements.
    pub(crate) async fn with_column_list(&self, statement: &Statement) -> Option<Statement> {
        match statement {
            Statement::Statement(written) => match written.as_ref() {
                ast::Statement::Insert(insert)
                    if self.warehouse().is_some() && insert_values::has_bare_rows(insert) =>
                {
                    Some(self.with_columns(insert).await)
                }
                _ => None,
            },
            _ => None,
        }
    }

    async fn with_columns(&self, insert: &ast::Insert) -> Statement {
        let mut insert = insert.clone();
        if let ast::TableObject::TableName(name) = &insert.table {
            let name = name.0.iter().filter_map(|part| part.as_ident()).map(identifier::plain);
            let name =
                name.map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".");
            let is_values =
                insert.source.as_ref().is_some_and(|query| matches!(*query.body, ast::SetExpr::Values(_)));
            // A query's rows must include the key columns of a folder.
            if let Ok(table) = self.context().table_provider(name).await
                && (is_values || table.downcast_ref::<FolderTable>().is_none())
            {
                let columns = table.schema();
                let columns: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
                insert_values::name_columns(&mut insert, &columns);
            }
        }
        Statement::Statement(Box::new(ast::Statement::Insert(insert)))
    }
}

/// The column list of an INSERT.
pub(crate) fn column_list(insert: &ast::Insert) -> Option<Vec<String>> {
    let names = insert.columns.iter().map(|name| match name.0.last().and_then(|part| part.as_ident()) {
        Some(name) => identifier::plain(name),
        None => name.to_string(),
    });
    (!insert.columns.is_empty()).then(|| names.collect())
}
