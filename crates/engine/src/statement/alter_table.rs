//! ALTER TABLE and ALTER VIEW.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_session_api::statement::Completion;

use crate::session::Session;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn alter_table(
        &self,
        alter: &ast::AlterTable,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        let ddl = self.ddl(warehouse, statement);
        let clauses = statement.clauses.as_ref();
        self.begin_distributed().await?;
        if let Some(dml) = ddl.rows_to_delete(alter, clauses).await? {
            self.write_at_once(dml, statement, warehouse).await?;
        }
        let notices = ddl.alter_table(alter, clauses, statement.renames_view).await?;
        let tag = if statement.renames_view { "ALTER VIEW" } else { "ALTER TABLE" };
        Ok(Outcome::Command(Completion::new(tag).with_notices(notices)))
    }
}
