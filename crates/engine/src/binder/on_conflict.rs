//! `INSERT … ON CONFLICT`. The planner does not know the clause: the INSERT is planned without it, and the
//! SET and WHERE of DO UPDATE as those of a MERGE of the table with itself, whose source is then replaced by
//! the rows of the INSERT. `harrier_planner::binder::on_conflict` finds the rows that conflict.
//!
//! Keys are declared and not enforced (`docs/decisions/0037-keys-that-are-not-enforced.md`): two statements
//! at once may insert the same key.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::{
    InsertOp, MergeIntoAction, MergeIntoClause, MergeIntoClauseKind, MergeIntoOp,
};
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, ConflictTarget, Ident, Merge, MergeAction, MergeClause, MergeClauseKind, MergeUpdateExpr,
    OnConflict, OnConflictAction, OnInsert, TableFactor, TableObject,
};
use harrier_error::{SqlError, SqlState};
use harrier_planner::binder::on_conflict::{self, Key, Rows};
use harrier_sql::ast_builder;
use harrier_sql::identifier::{last_part, plain};
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::delete_alias;
use crate::warehouse::dml::rows_of_values;
use crate::warehouse::keys::Keys;
use crate::warehouse::table::WarehouseTable;

/// What the rows to insert are called.
const EXCLUDED: &str = "excluded";

/// Plans a statement as [`delete_alias::plan`] does, and ON CONFLICT.
///
/// Errors: those of planning; the table has no such key (42P10, 42704), or it is deferrable (55000); it is
/// none of the warehouse (0A000).
pub(crate) async fn plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    let Some(clause) = take_clause(&mut statement) else {
        return delete_alias::plan(state, statement).await;
    };
    let update = clause.as_merge()?;
    let insert = delete_alias::plan(state, statement).await?;
    let update = match update {
        Some(update) => Some(delete_alias::plan(state, Statement::Statement(Box::new(update))).await?),
        None => None,
    };
    let planned = insert.transform_down(|node| match node {
        LogicalPlan::Dml(insert) if matches!(insert.op, WriteOp::Insert(_)) => {
            let planned = clause.apply(insert, update.as_ref())?;
            Ok(Transformed::new(planned, true, TreeNodeRecursion::Jump))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(planned.data)
}

/// An ON CONFLICT clause with its table.
struct Clause {
    table: TableFactor,
    conflict: OnConflict,
}

/// Removes the clause from an INSERT, also within EXPLAIN or PREPARE; `None` for other statements.
fn take_clause(statement: &mut Statement) -> Option<Clause> {
    let insert = match statement {
        Statement::Explain(explain) => return take_clause(&mut explain.statement),
        Statement::Statement(statement) => match statement.as_mut() {
            ast::Statement::Insert(insert) => insert,
            ast::Statement::Prepare { statement, .. } => match statement.as_mut() {
                ast::Statement::Insert(insert) => insert,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let TableObject::TableName(name) = &insert.table else { return None };
    let mut table = ast_builder::table_named(name).pop()?.relation;
    match insert.on.take() {
        Some(OnInsert::OnConflict(conflict)) => {
            if let (Some(given), TableFactor::Table { alias, .. }) = (insert.table_alias.take(), &mut table) {
                *alias = Some(ast_builder::table_alias(given.alias));
            }
            Some(Clause { table, conflict })
        }
        other => {
            insert.on = other;
            None
        }
    }
}

impl Clause {
    /// DO UPDATE as a MERGE of the table with itself; `None` for DO NOTHING.
    ///
    /// Errors: it names no key (42601).
    fn as_merge(&self) -> Result<Option<ast::Statement>> {
        let OnConflictAction::DoUpdate(update) = &self.conflict.action else { return Ok(None) };
        if self.conflict.conflict_target.is_none() {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .with_hint("For example, ON CONFLICT (column_name).")
                .into_datafusion());
        }
        let mut source = self.table.clone();
        if let TableFactor::Table { alias, .. } = &mut source {
            *alias = Some(ast_builder::table_alias(Ident::new(EXCLUDED)));
        }
        let clause = MergeClause {
            when_token: AttachedToken::empty(),
            clause_kind: MergeClauseKind::Matched,
            predicate: update.selection.clone(),
            action: MergeAction::Update(MergeUpdateExpr {
                update_token: AttachedToken::empty(),
                assignments: update.assignments.clone(),
                update_predicate: None,
                delete_predicate: None,
            }),
        };
        Ok(Some(ast::Statement::Merge(Merge {
            merge_token: AttachedToken::empty(),
            optimizer_hints: vec![],
            into: true,
            table: self.table.clone(),
            source,
            on: Box::new(ast_builder::boolean(true)),
            clauses: vec![clause],
            output: None,
        })))
    }

    /// The plan of `insert` with this clause. `update`: the MERGE of DO UPDATE.
    fn apply(&self, insert: DmlStatement, update: Option<&LogicalPlan>) -> Result<LogicalPlan> {
        let provider = source_as_provider(&insert.target)?;
        let name = insert.table_name.table();
        let Some(table) = provider.downcast_ref::<WarehouseTable>() else {
            let message =
                format!("ON CONFLICT is for tables of the warehouse, and \"{name}\" is none: it has no keys");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("MERGE INTO … USING … ON … takes any condition")
                .into_datafusion());
        };
        if !matches!(insert.op, WriteOp::Insert(InsertOp::Append)) {
            let message = "ON CONFLICT of INSERT OVERWRITE or REPLACE is not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let keys = self.keys(table, name)?;
        if keys.is_empty() {
            return Ok(LogicalPlan::Dml(insert));
        }
        let rows = Rows::of(&insert.input, rows_of_values(&insert.input));
        let DmlStatement { table_name, target, input, .. } = insert;
        let input = Arc::unwrap_or_clone(input);
        let Some(update) = update else {
            let other_rows = table.with_all_rows(self.conflict.conflict_target.is_none());
            let input = on_conflict::without_conflicts(input, rows, &other_rows, &keys)?;
            let op = WriteOp::Insert(InsertOp::Append);
            return Ok(LogicalPlan::Dml(DmlStatement::new(table_name, target, op, Arc::new(input))));
        };
        let (LogicalPlan::Dml(DmlStatement { table_name, target, op: WriteOp::MergeInto(merge), .. }), [key]) =
            (update, keys.as_slice())
        else {
            return Err(DataFusionError::Internal("DO UPDATE was planned as something else".to_string()));
        };
        let mut clauses = merge.clauses.clone();
        let fields = target.schema();
        clauses.push(MergeIntoClause {
            kind: MergeIntoClauseKind::NotMatched,
            predicate: None,
            action: MergeIntoAction::Insert {
                columns: vec![],
                values: fields
                    .fields()
                    .iter()
                    .map(|field| on_conflict::excluded_column(field.name()))
                    .collect(),
            },
        });
        let merge = MergeIntoOp { on: on_conflict::on_key(table_name, key), clauses };
        let input = Arc::new(on_conflict::excluded_rows(input, rows, key)?);
        let op = WriteOp::MergeInto(Box::new(merge));
        Ok(LogicalPlan::Dml(DmlStatement::new(table_name.clone(), Arc::clone(target), op, input)))
    }

    /// The keys that the clause is about: one of each set of columns.
    fn keys(&self, table: &WarehouseTable, name: &str) -> Result<Vec<Key>> {
        let table = table.table();
        let declared = Keys::of(table).unique(table);
        let chosen: Vec<_> = match &self.conflict.conflict_target {
            None => declared.iter().collect(),
            Some(ConflictTarget::Columns(columns)) => {
                let mut wanted: Vec<String> = columns.iter().map(plain).collect();
                if let Some(unknown) =
                    wanted.iter().find(|wanted| table.columns.iter().all(|column| column.name != **wanted))
                {
                    let message = format!("column \"{unknown}\" does not exist");
                    return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
                }
                wanted.sort_unstable();
                wanted.dedup();
                let is_wanted = |columns: &[String]| {
                    let mut columns = columns.to_vec();
                    columns.sort_unstable();
                    columns.dedup();
                    columns == wanted
                };
                declared.iter().filter(|key| is_wanted(&key.columns)).take(1).collect()
            }
            Some(ConflictTarget::OnConstraint(constraint)) => {
                let constraint = last_part(constraint);
                let found = declared.iter().find(|key| key.constraint.as_ref() == Some(&constraint));
                if found.is_none() {
                    let is_other = Keys::of(table).constraint(&constraint).is_some();
                    let (state, message) = match is_other {
                        true => (
                            SqlState::WRONG_OBJECT_TYPE,
                            "constraint in ON CONFLICT clause has no associated index".to_string(),
                        ),
                        false => (
                            SqlState::UNDEFINED_OBJECT,
                            format!("constraint \"{constraint}\" for table \"{name}\" does not exist"),
                        ),
                    };
                    return Err(SqlError::new(state, message).into_datafusion());
                }
                found.into_iter().collect()
            }
        };
        if chosen.is_empty() && self.conflict.conflict_target.is_some() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
                .with_hint("ALTER TABLE … ADD UNIQUE (…) declares a key")
                .into_datafusion());
        }
        if chosen.iter().any(|key| key.is_deferrable) {
            let message = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints \
                           as arbiters";
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into_datafusion());
        }
        let mut keys: Vec<Key> = vec![];
        for key in chosen {
            let key = Key { columns: key.columns.clone(), nulls_equal: key.nulls_equal };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}
