//! CREATE SCHEMA.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::CreateCatalogSchema;
use datafusion::sql::sqlparser::ast;
use harrier_sql::identifier;

use crate::session::Session;
use crate::statement::outcome::{Outcome, with_notices};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::session::WarehouseSession;

impl Session {
    pub(crate) async fn create_schema(
        &self,
        create: &CreateCatalogSchema,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        // The plan joins the parts of the name with dots, which a quoted part may contain.
        let name = match executed {
            ast::Statement::CreateSchema { schema_name, .. } => schema_named(schema_name),
            _ => None,
        };
        let name = name.unwrap_or_else(|| create.schema_name.clone());
        let mut notices = vec![];
        if !self.ddl(warehouse, statement).create_schema(&name, create.if_not_exists).await? {
            notices.push(format!("schema \"{name}\" already exists, skipping"));
        }
        Ok(with_notices(("CREATE SCHEMA", notices)))
    }
}

/// The new schema's name: the last part; the first may be the catalog.
fn schema_named(name: &ast::SchemaName) -> Option<String> {
    match name {
        ast::SchemaName::Simple(name) | ast::SchemaName::NamedAuthorization(name, _) => {
            name.0.last().and_then(|part| part.as_ident()).map(identifier::plain)
        }
        ast::SchemaName::UnnamedAuthorization(_) => None,
    }
}
