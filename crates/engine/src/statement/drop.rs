//! DROP of one relation or several.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, DropCatalogSchema, DropTable, DropView, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_session_api::statement::Completion;

use crate::session::Session;
use crate::statement::outcome::{Outcome, command, with_notices};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::session::WarehouseSession;

impl Session {
    /// DROP TABLE, VIEW, SCHEMA and INDEX.
    pub(crate) async fn drop_relations(
        &self,
        drop: &ast::Statement,
        sql: &Statement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        let Some(warehouse) = self.warehouse() else {
            return Box::pin(self.run_planned(sql, statement)).await;
        };
        if matches!(drop, ast::Statement::Drop { object_type: ast::ObjectType::Index, .. })
            && let Some(outcome) = self.ddl(warehouse, statement).index_statement(drop).await?
        {
            return Ok(with_notices(outcome));
        }
        match drop {
            ast::Statement::Drop { names, .. } if names.len() > 1 => {
                self.drop_several(drop, statement, warehouse).await
            }
            _ => Box::pin(self.change(Some(drop), sql, statement)).await,
        }
    }

    /// DROP of several objects, one by one. If one fails, none is dropped, since a failed statement is rolled
    /// back.
    async fn drop_several(
        &self,
        drop: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let mut one = drop.clone();
        let (mut last, mut all_notices) = ("DROP".to_string(), Vec::new());
        let ast::Statement::Drop { names, .. } = drop else { return Ok(command(&last)) };
        for name in names {
            if let ast::Statement::Drop { names, .. } = &mut one {
                *names = vec![name.clone()];
            }
            let drop_statement = Statement::Statement(Box::new(one.clone()));
            let plan = self.plan(&drop_statement, &statement.values).await?;
            let outcome = match Box::pin(self.change_warehouse(plan, &one, statement, warehouse)).await? {
                Some(outcome) => outcome,
                // A temporary object.
                None => {
                    let plan = self.plan(&drop_statement, &statement.values).await?;
                    let tag = if matches!(&plan, LogicalPlan::Ddl(DdlStatement::DropView(_))) {
                        "DROP VIEW"
                    } else {
                        "DROP TABLE"
                    };
                    self.context().execute_logical_plan(plan).await?;
                    command(tag)
                }
            };
            if let Outcome::Command(Completion { tag, notices, .. }) = outcome {
                last = tag;
                all_notices.extend(notices);
            }
        }
        Ok(Outcome::Command(Completion::new(last).with_notices(all_notices)))
    }

    pub(crate) async fn drop_table(
        &self,
        drop: &DropTable,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let ddl = self.ddl(warehouse, statement);
        let mut notices = vec![];
        if let ast::Statement::Drop { cascade, .. } = executed {
            notices.extend(ddl.check_references(
                &drop.name,
                *cascade,
                &dropped_tables(executed, statement),
            )?);
        }
        if !ddl.drop_table(&drop.name, drop.if_exists).await? {
            notices.push(skip_notice("table", drop.name.table()));
        }
        Ok(with_notices(("DROP TABLE", notices)))
    }

    pub(crate) async fn drop_view(
        &self,
        drop: &DropView,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let is_dropped = self.ddl(warehouse, statement).drop_view(&drop.name, drop.if_exists).await?;
        let notices = if is_dropped { vec![] } else { vec![skip_notice("view", drop.name.table())] };
        Ok(with_notices(("DROP VIEW", notices)))
    }

    pub(crate) async fn drop_schema(
        &self,
        drop: &DropCatalogSchema,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let name = drop.name.schema_name();
        let is_dropped =
            self.ddl(warehouse, statement).drop_schema(name, drop.if_exists, drop.cascade).await?;
        let notices = if is_dropped { vec![] } else { vec![skip_notice("schema", name)] };
        Ok(with_notices(("DROP SCHEMA", notices)))
    }
}

fn skip_notice(kind: &str, name: &str) -> String {
    format!("{kind} \"{name}\" does not exist, skipping")
}

/// All tables that the whole DROP statement names; `one` is a part of it.
fn dropped_tables(one: &ast::Statement, statement: &ParsedStatement) -> Vec<ast::ObjectName> {
    let drop_statement = match &statement.form {
        harrier_sql::Statement::Sql(Statement::Statement(drop_statement)) => drop_statement.as_ref(),
        _ => one,
    };
    match drop_statement {
        ast::Statement::Drop { names, .. } => names.clone(),
        _ => vec![],
    }
}
