//! PREPARE and DEALLOCATE.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast;
use harrier_sql::identifier;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};

impl Session {
    /// PREPARE and DEALLOCATE. `sent`: the statement as the client sent it.
    pub(crate) async fn prepare(
        &self,
        statement: &ast::Statement,
        sent: &Option<Arc<ast::Statement>>,
    ) -> Result<Outcome> {
        Ok(command(match statement {
            ast::Statement::Deallocate { name, .. } => {
                let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
                let name = identifier::plain(name);
                self.prepared_statements().deallocate((!is_all).then_some(name.as_str()))?;
                if is_all { "DEALLOCATE ALL" } else { "DEALLOCATE" }
            }
            prepare => {
                self.prepared_statements().prepare(&self.context().state(), prepare, sent.clone()).await?;
                "PREPARE"
            }
        }))
    }
}
