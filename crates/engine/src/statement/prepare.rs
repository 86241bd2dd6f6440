//! PREPARE.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};

impl Session {
    /// PREPARE. `sent`: the statement as the client sent it.
    pub(crate) async fn prepare(
        &self,
        statement: &ast::Statement,
        sent: &Option<Arc<ast::Statement>>,
    ) -> Result<Outcome> {
        self.prepared_statements().prepare(&self.context().state(), statement, sent.clone()).await?;
        Ok(command("PREPARE"))
    }
}
