//! CREATE INDEX, ALTER INDEX and REINDEX: indexes are declared and never built.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_sql::parser::index::{ReindexStatement, RenameIndexStatement};

use crate::session::Session;
use crate::statement::ABOUT_WAREHOUSE;
use crate::statement::outcome::{Outcome, with_notices};
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn run_index(
        &self,
        executed: Option<&ast::Statement>,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if let (Some(warehouse), Some(executed)) = (self.warehouse(), executed)
            && let Some(outcome) = self.ddl(warehouse, statement).index_statement(executed).await?
        {
            return Ok(with_notices(outcome));
        }
        Box::pin(self.run_planned(sql, statement)).await
    }

    pub(crate) fn reindex(&self, reindex: &ReindexStatement, statement: &ParsedStatement) -> Result<Outcome> {
        let warehouse = self.require_warehouse(ABOUT_WAREHOUSE)?;
        self.ddl(warehouse, statement).reindex(reindex).map(with_notices)
    }

    pub(crate) async fn rename_index(
        &self,
        rename: &RenameIndexStatement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let warehouse = self.require_warehouse(ABOUT_WAREHOUSE)?;
        self.ddl(warehouse, statement).rename_index(&rename.name, &rename.to, true).await.map(with_notices)
    }
}
