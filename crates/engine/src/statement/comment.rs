//! COMMENT ON.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn comment(
        &self,
        comment: &ast::Statement,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let (Some(warehouse), ast::Statement::Comment { object_type, object_name, comment, .. }) =
            (self.warehouse(), comment)
        else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        self.ddl(warehouse, statement).comment(object_type, object_name, comment.clone()).await?;
        Ok(command("COMMENT"))
    }
}
