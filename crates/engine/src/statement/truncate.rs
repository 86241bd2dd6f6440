//! TRUNCATE.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn truncate(
        &self,
        truncate: &ast::Truncate,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        for uuid in self.ddl(warehouse, statement).truncate(truncate).await? {
            warehouse.sequences.forget_cached(&uuid);
        }
        Ok(command("TRUNCATE TABLE"))
    }
}
