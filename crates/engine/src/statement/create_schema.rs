//! CREATE SCHEMA.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::CreateCatalogSchema;
use datafusion::sql::sqlparser::ast;
use harrier_error::SqlState;
use harrier_sql::identifier;
use harrier_sqlstate::error;

use crate::session::Session;
use crate::statement::outcome::{Outcome, with_notices};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::explain;
use crate::warehouse::session::WarehouseSession;

impl Session {
    pub(crate) async fn create_schema(
        &self,
        create: &CreateCatalogSchema,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let owner = match executed {
            ast::Statement::CreateSchema { schema_name, .. } => owner_named(schema_name, warehouse).await?,
            _ => None,
        };
        // The plan joins the parts of the name with dots, which a quoted part may contain.
        let name = match executed {
            ast::Statement::CreateSchema { schema_name, .. } => schema_named(schema_name),
            _ => None,
        };
        let name = name.or_else(|| owner.clone()).unwrap_or_else(|| create.schema_name.clone());
        let mut notices = vec![];
        if !self
            .ddl(warehouse, statement)
            .create_schema(&name, owner.as_deref(), create.if_not_exists)
            .await?
        {
            notices.push(format!("schema \"{name}\" already exists, skipping"));
        }
        Ok(with_notices(("CREATE SCHEMA", notices)))
    }
}

/// The role behind AUTHORIZATION.
///
/// Errors: there is no such role (42704).
async fn owner_named(name: &ast::SchemaName, warehouse: &WarehouseSession) -> Result<Option<String>> {
    let (ast::SchemaName::NamedAuthorization(_, role) | ast::SchemaName::UnnamedAuthorization(role)) = name
    else {
        return Ok(None);
    };
    let session = warehouse.names.role();
    let viewer = session.viewer();
    let role_name = identifier::plain(role);
    let is_word = |words: &[&str]| role.quote_style.is_none() && words.contains(&role_name.as_str());
    let own = if is_word(&["current_user", "current_role", "user"]) {
        viewer.name().map(str::to_string)
    } else if is_word(&["session_user"]) {
        session.login().map(str::to_string)
    } else {
        // Whoever connects before there are roles has a name.
        let is_role = viewer.name() == Some(&role_name) || {
            let catalog = warehouse.transactions.catalog_for_access().await?;
            catalog.access().await.map_err(explain)?.role(&role_name).is_some()
        };
        return match is_role {
            true => Ok(Some(role_name)),
            false => Err(error(SqlState::UNDEFINED_OBJECT, format!("role \"{role_name}\" does not exist"))),
        };
    };
    match (own, name) {
        (None, ast::SchemaName::UnnamedAuthorization(_)) => {
            Err(error(SqlState::UNDEFINED_OBJECT, "this session is for no role"))
        }
        (own, _) => Ok(own),
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
