//! CALL of a procedure: `expire_snapshots`, `adopt_data_folder`.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::maintenance::{folder_ownership, vacuum};

impl Session {
    pub(crate) async fn call(
        &self,
        call: &ast::Function,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        let viewer = warehouse.names.role().viewer();
        let catalog = || warehouse.names.snapshot().catalog;
        match call.name.to_string().to_ascii_lowercase().as_str() {
            "expire_snapshots" => {
                viewer.check_superuser("expire snapshots")?;
                let age = vacuum::span(&only_text(call)?)?;
                let count = match catalog() {
                    Some(catalog) => vacuum::expire(&catalog, age).await?,
                    None => 0,
                };
                Ok(command(&format!("CALL {count}")))
            }
            "adopt_data_folder" => {
                viewer.check_superuser("adopt a data folder")?;
                if let Some(catalog) = catalog() {
                    folder_ownership::adopt(&catalog, self.engine().runtime_env()).await?;
                }
                Ok(command("CALL"))
            }
            _ => Box::pin(self.run_planned(sql, statement)).await,
        }
    }
}

/// The single text argument of a procedure call.
pub(crate) fn only_text(call: &ast::Function) -> Result<String> {
    if let ast::FunctionArguments::List(list) = &call.args
        && let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Value(value)))] =
            list.args.as_slice()
        && let ast::Value::SingleQuotedString(text) = &value.value
    {
        return Ok(text.clone());
    }
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("{} takes one text", call.name))
        .into_datafusion())
}
