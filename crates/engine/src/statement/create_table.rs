//! CREATE TABLE [AS] in the warehouse.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{CreateMemoryTable, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::session::Session;
use crate::statement::ddl::StoredDefaults;
use crate::statement::outcome::{Outcome, with_notices};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::case_collisions;
use crate::warehouse::dml::Dml;
use crate::warehouse::keys::declaration;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::table::WarehouseTable;

impl Session {
    pub(crate) async fn create_table(
        &self,
        create: &CreateMemoryTable,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let ddl = self.ddl(warehouse, statement);
        let mut notices = vec![];
        let has_rows = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
        let mut create = create.clone();
        if has_rows {
            // Final types of the rows are known only after optimization.
            create.input = Arc::new(self.context().state().optimize(&create.input)?);
        }
        let defaults = ddl.stored_defaults(executed, &statement.text)?;
        let declared = declaration::extract_keys(&Statement::Statement(Box::new(executed.clone())))?.1;
        let table = ddl.create_table(&create, statement.clauses.as_ref(), has_rows, &defaults).await?;
        let Some(table) = table else {
            notices.push(format!("relation \"{}\" already exists, skipping", create.name.table()));
            return Ok(with_notices(("CREATE TABLE", notices)));
        };
        notices.extend(case_collisions::notice(None, &table));
        notices.extend(ddl.declare(&table, &declared).await?);
        let like = statement.clauses.as_ref().and_then(|clauses| clauses.like);
        if let (Some(options), StoredDefaults::Like(source)) = (like, &defaults) {
            notices.extend(ddl.copy_constraints(&table, source, options).await?);
        }
        for comment in statement.clauses.iter().flat_map(|clauses| &clauses.comments) {
            let parts = create.name.schema().into_iter().chain([create.name.table()]);
            let parts = parts.chain(comment.column.as_deref());
            let name = parts.map(|part| ast::Ident::with_quote('"', part)).collect::<Vec<_>>();
            let about = match comment.column {
                Some(_) => ast::CommentObject::Column,
                None => ast::CommentObject::Table,
            };
            ddl.comment(&about, &name.into(), Some(comment.text.clone())).await?;
        }
        if has_rows {
            let target = WarehouseTable::try_new(self.context().state(), &warehouse.names.snapshot(), table)?;
            let dml = Dml::insert(target, LogicalPlan::clone(&create.input), InsertOp::Append)?;
            return self.write(dml, "SELECT", statement, warehouse).await;
        }
        Ok(with_notices(("CREATE TABLE", notices)))
    }
}
