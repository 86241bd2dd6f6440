//! Assignment casts to declared column types: truncate, pad, round, or reject values.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column as ColumnName, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use harrier_catalog::state::{Column, Table};
use harrier_functions::cast::declared_type::{DeclaredType, assign};

use crate::types::declared::of_column;

/// Casts the rows of an INSERT, which has the table's columns in their order, to the declared types.
pub(crate) fn assign_rows(table: &Table, input: LogicalPlan) -> Result<LogicalPlan> {
    let limits: Vec<_> = table.columns.iter().map(limit_of).collect();
    if limits.iter().all(Option::is_none) {
        return Ok(input);
    }
    let columns = input.schema().columns().into_iter().enumerate();
    let values = columns.map(|(at, column)| match limits.get(at).cloned().flatten() {
        Some(limit) => {
            let ColumnName { relation, name, .. } = column.clone();
            limit.apply(Expr::Column(column)).alias_qualified(relation, name)
        }
        None => Expr::Column(column),
    });
    let values: Vec<Expr> = values.collect();
    LogicalPlanBuilder::from(input).project(values)?.build()
}

/// Casts the values that an UPDATE of the table `name` sets. Columns assigned to themselves stay as they are.
pub(crate) fn assign_values(table: &Table, name: &TableReference, values: &mut [Expr]) {
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
        let written = if stays { inner } else { limit.apply(inner) };
        *value = written.alias_qualified(relation, called);
    }
}

/// Casts the values that a MERGE sets and inserts.
pub(crate) fn assign_merge(table: &Table, merge: &MergeIntoOp) -> MergeIntoOp {
    let mut merge = merge.clone();
    let assign_to = |name: &str, value: &mut Expr| {
        let column = table.columns.iter().find(|column| column.name == name);
        if let Some(limit) = column.and_then(limit_of) {
            *value = limit.apply(std::mem::take(value));
        }
    };
    for clause in &mut merge.clauses {
        match &mut clause.action {
            MergeIntoAction::Update(values) => {
                values.iter_mut().for_each(|(column, value)| assign_to(column, value));
            }
            MergeIntoAction::Insert { columns, values } if columns.is_empty() => {
                let own = table.columns.iter().map(|column| column.name.as_str());
                own.zip(values).for_each(|(column, value)| assign_to(column, value));
            }
            MergeIntoAction::Insert { columns, values } => {
                columns.iter().zip(values).for_each(|(column, value)| assign_to(column, value));
            }
            MergeIntoAction::Delete => {}
        }
    }
    merge
}

/// Casts the default of a column.
pub(crate) fn assign_default(table: &Table, column: &str, value: &Expr) -> Expr {
    let column = table.columns.iter().find(|own| own.name == column);
    match column.and_then(limit_of) {
        Some(limit) => limit.apply(value.clone()),
        None => value.clone(),
    }
}

/// Checks and casts a text that all rows of a new column get.
///
/// Errors: the text is too long (22001).
pub(crate) fn assign_text(column: &Column, text: Option<String>) -> Result<Option<String>> {
    match (of_column(column), text) {
        (
            Some(declared @ (DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid)),
            Some(text),
        ) => declared.assign(&text).map(|text| Some(text.to_string())),
        (_, text) => Ok(text),
    }
}

/// The type that a column's values are cast to.
#[derive(Clone)]
pub(crate) struct Limit {
    declared: DeclaredType,
    kind: DataType,
}

impl Limit {
    fn apply(&self, value: Expr) -> Expr {
        assign(cast(value, self.kind.clone()), self.declared)
    }
}

pub(crate) fn limit_of(column: &Column) -> Option<Limit> {
    let declared = of_column(column).filter(|declared| declared.limits())?;
    let kind = crate::types::columns::type_of(column, false).ok()?;
    declared.is_of(&kind).then_some(Limit { declared, kind })
}
