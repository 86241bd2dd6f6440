//! LOCK TABLE: statements read a snapshot, so that nothing needs to be locked against readers.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn lock(
        &self,
        lock: &ast::Lock,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        self.ddl(warehouse, statement).lock(lock)?;
        Ok(command("LOCK TABLE"))
    }
}
