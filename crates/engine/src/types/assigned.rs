//! Values as columns of a declared type take them: cut off, filled up, rounded, or refused.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column as ColumnName, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use harrier_catalog::state::{Column, Table};
use harrier_functions::cast::declared_type::{DeclaredType, assigned};

use crate::types::declared::of_column;

/// The rows of an INSERT, which has the table's columns in their order, as they are written.
pub(crate) fn assigned_rows(table: &Table, input: LogicalPlan) -> Result<LogicalPlan> {
    let limits: Vec<_> = table.columns.iter().map(limit_of).collect();
    if limits.iter().all(Option::is_none) {
        return Ok(input);
    }
    let columns = input.schema().columns().into_iter().enumerate();
    let values = columns.map(|(at, column)| match limits.get(at).cloned().flatten() {
        Some(limit) => {
            let ColumnName { relation, name, .. } = column.clone();
            limit.put(Expr::Column(column)).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    let values: Vec<Expr> = values.collect();
    LogicalPlanBuilder::from(input).project(values)?.build()
}

/// What an UPDATE of the table `name` sets, as it is written: columns stay what they are.
pub(crate) fn assigned_values(table: &Table, name: &TableReference, values: &mut [Expr]) {
    for (column, value) in table.columns.iter().zip(values) {
        let Some(limit) = limit_of(column) else { continue };
        let (inner, relation, called) = match std::mem::take(value) {
            Expr::Alias(alias) => (*alias.expr, alias.relation, alias.name),
            other => {
                let (relation, called) = other.qualified_name();
                (other, relation, called)
            }
        };
        let stays = matches!(&inner, Expr::Column(own)
            if own.name == column.name && own.relation.as_ref() == Some(name));
        let written = if stays { inner } else { limit.put(inner) };
        *value = written.alias_qualified(relation, called);
    }
}

/// What a MERGE sets and inserts, as it is written.
pub(crate) fn assigned_merge(table: &Table, merge: &MergeIntoOp) -> MergeIntoOp {
    let mut merge = merge.clone();
    let put_into = |name: &str, value: &mut Expr| {
        let column = table.columns.iter().find(|column| column.name == name);
        if let Some(limit) = column.and_then(limit_of) {
            *value = limit.put(std::mem::take(value));
        }
    };
    for clause in &mut merge.clauses {
        match &mut clause.action {
            MergeIntoAction::Update(values) => {
                values.iter_mut().for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Insert { columns, values } if columns.is_empty() => {
                let own = table.columns.iter().map(|column| column.name.as_str());
                own.zip(values).for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Insert { columns, values } => {
                columns.iter().zip(values).for_each(|(column, value)| put_into(column, value));
            }
            MergeIntoAction::Delete => {}
        }
    }
    merge
}

/// The default of a column as it is written.
pub(crate) fn assigned_default(table: &Table, column: &str, value: &Expr) -> Expr {
    let column = table.columns.iter().find(|own| own.name == column);
    match column.and_then(limit_of) {
        Some(limit) => limit.put(value.clone()),
        None => value.clone(),
    }
}

/// A text that all rows of a new column have.
///
/// Errors: it is too long (22001).
pub(crate) fn assigned_text(column: &Column, text: Option<String>) -> Result<Option<String>> {
    match (of_column(column), text) {
        (
            Some(declared @ (DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid)),
            Some(text),
        ) => declared.assigned(&text).map(|text| Some(text.to_string())),
        (_, text) => Ok(text),
    }
}

/// What the values of a column are brought to.
#[derive(Clone)]
pub(crate) struct Limit {
    declared: DeclaredType,
    kind: DataType,
}

impl Limit {
    fn put(&self, value: Expr) -> Expr {
        assigned(cast(value, self.kind.clone()), self.declared)
    }
}

pub(crate) fn limit_of(column: &Column) -> Option<Limit> {
    let declared = of_column(column).filter(|declared| declared.limits())?;
    let kind = crate::types::columns::type_of(column, false).ok()?;
    declared.is_of(&kind).then_some(Limit { declared, kind })
}
