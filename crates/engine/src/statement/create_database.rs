//! CREATE DATABASE: the planner would create a catalog of the session; in PostgreSQL it needs an attribute
//! that no role has here.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;

use crate::session::Session;
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;

impl Session {
    pub(crate) async fn create_database(
        &self,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if let Some(warehouse) = self.warehouse() {
            warehouse.names.role().viewer().check_superuser("create database")?;
        }
        Box::pin(self.run_planned(sql, statement)).await
    }
}
