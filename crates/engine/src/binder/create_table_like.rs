//! `CREATE TABLE t (LIKE u)`: an empty table with the columns of another one.

use std::sync::Arc;

use datafusion::common::ToDFSchema;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, EmptyRelation, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, CreateTableLikeDefaults, CreateTableLikeKind, ObjectName};
use harrier_error::{SqlError, SqlState};

use crate::planning::default_values::table_provider;
use crate::types::declared::declared_schema_of;
use crate::warehouse::table::WarehouseTable;

/// The LIKE clause: the source table and its options.
pub(crate) struct LikeClause {
    name: ObjectName,
    with_defaults: bool,
}

/// Splits a statement into itself without the LIKE clause, and the clause; `None` if it has none.
pub(crate) fn split_like_clause(statement: &Statement) -> Option<(Statement, LikeClause)> {
    let Statement::Statement(statement) = statement else { return None };
    let ast::Statement::CreateTable(create) = statement.as_ref() else { return None };
    let (CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)) =
        create.like.as_ref()?;
    let with_defaults = matches!(like.defaults, Some(CreateTableLikeDefaults::Including));
    let mut create = create.clone();
    create.like = None;
    let statement = Statement::Statement(Box::new(ast::Statement::CreateTable(create)));
    Some((statement, LikeClause { name: like.name.clone(), with_defaults }))
}

impl LikeClause {
    /// Adds the source table's columns to the plan of the statement without the clause: names, types, NOT
    /// NULL and, with INCLUDING DEFAULTS, defaults.
    ///
    /// Errors: the source table does not exist (42P01).
    pub(crate) async fn fill(&self, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
        let table = table_provider(state, &self.name).await?.ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", self.name);
            harrier_sqlstate::external(SqlError::new(SqlState::UNDEFINED_TABLE, message))
        })?;
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(mut create)) = plan else { return Ok(plan) };
        // Scan schemas are nullable; read NOT NULL from the table itself.
        let schema = match table.downcast_ref::<WarehouseTable>() {
            Some(own) => declared_schema_of(&own.table().columns)?,
            None => table.schema(),
        };
        if self.with_defaults {
            let default = |name: &String| Some((name.clone(), table.get_column_default(name)?.clone()));
            create.column_defaults =
                schema.fields().iter().filter_map(|field| default(field.name())).collect();
        }
        let schema = Arc::new(schema.to_dfschema()?);
        create.input = Arc::new(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }));
        Ok(LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)))
    }
}
