//! What statements put into columns: only values of types that PostgreSQL converts there by itself. The
//! planner casts whatever can be cast, a number to a day as well.
//!
//! Where it has cast VALUES and what UPDATE sets, its casts look like those of the user, who may cast more:
//! the statement as it was parsed tells them apart.

use crate::types::names::type_name;
use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{DmlStatement, Expr, ExprSchemable, LogicalPlan, Values, WriteOp};
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::json;
use harrier_sql::identifier::plain;

const HINT: &str = "you will need to rewrite or cast the expression";

/// Types whose values are converted into each other wherever they are assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Number,
    Text,
    Boolean,
    Date,
    Timestamp,
    Time,
    Interval,
    Bytes,
}

/// `None`: NULL of no type, and nested types.
fn family(kind: &DataType) -> Option<Family> {
    Some(match kind {
        kind if kind.is_numeric() => Family::Number,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Family::Text,
        DataType::Boolean => Family::Boolean,
        DataType::Date32 | DataType::Date64 => Family::Date,
        DataType::Timestamp(..) => Family::Timestamp,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Interval(_) | DataType::Duration(_) => Family::Interval,
        kind if kind.is_binary() => Family::Bytes,
        DataType::Dictionary(_, values) => return family(values),
        DataType::RunEndEncoded(_, values) => return family(values.data_type()),
        _ => return None,
    })
}

/// Whether values of a type are assigned to one of another. A text is: nothing tells it from a literal, whose
/// type is not known yet.
pub(crate) fn fits(from: &DataType, to: &DataType) -> bool {
    use Family::{Date, Interval, Text, Time, Timestamp};
    match (family(from), family(to)) {
        (None, _) | (_, None) => true,
        (Some(from), Some(to)) => {
            from == to
                || from == Text
                || to == Text
                || matches!(
                    (from, to),
                    (Date, Timestamp) | (Timestamp, Date | Time) | (Time, Interval) | (Interval, Time)
                )
        }
    }
}

/// A value of `kind` for parameter `number`, which is `expected`.
///
/// Errors: it is not converted to that (42804).
pub(crate) fn check_parameter(number: usize, kind: &DataType, expected: &DataType) -> Result<()> {
    if fits(kind, expected) {
        return Ok(());
    }
    let (kind, expected) = (type_name(kind), type_name(expected));
    let message =
        format!("parameter ${number} of type {kind} cannot be coerced to the expected type {expected}");
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(HINT).into_datafusion())
}

/// Checks the plan of a statement that writes rows, or of its EXPLAIN. `statement`: as it was parsed, if it
/// was.
///
/// Errors: a value is not converted to the type of its column (42804).
pub(crate) fn check(plan: &LogicalPlan, statement: Option<&ast::Statement>) -> Result<()> {
    match plan {
        LogicalPlan::Explain(asked) => check(&asked.plan, statement),
        LogicalPlan::Analyze(asked) => check(&asked.input, statement),
        LogicalPlan::Dml(dml) => match (&dml.op, statement) {
            (WriteOp::Insert(_), Some(ast::Statement::Insert(insert))) => {
                check_rows(dml)?;
                check_listed(dml, insert)
            }
            (WriteOp::Insert(_), _) => check_rows(dml),
            (WriteOp::Update, Some(ast::Statement::Update(update))) => check_update(dml, &update.assignments),
            (WriteOp::MergeInto(merge), _) => check_merge(dml, merge),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Checks the columns that a statement assigns to.
///
/// Errors: it assigns to one of them twice (42601).
pub(crate) fn check_targets(statement: &ast::Statement) -> Result<()> {
    match statement {
        ast::Statement::Update(update) => no_target_twice(&update.assignments),
        ast::Statement::Merge(merge) => merge.clauses.iter().try_for_each(|clause| match &clause.action {
            ast::MergeAction::Update(update) => no_target_twice(&update.assignments),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn no_target_twice(assignments: &[ast::Assignment]) -> Result<()> {
    let mut columns = HashSet::new();
    match assignments.iter().filter_map(target).find(|column| !columns.insert(column.clone())) {
        Some(column) => {
            let message = format!("multiple assignments to same column \"{column}\"");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion())
        }
        None => Ok(()),
    }
}

/// What the planner casts above the rows of an INSERT.
fn check_rows(dml: &DmlStatement) -> Result<()> {
    let LogicalPlan::Projection(projection) = dml.input.as_ref() else { return Ok(()) };
    let schema = dml.target.schema();
    for (field, value) in schema.fields().iter().zip(&projection.expr) {
        // Another than a column is a default.
        if let Expr::Cast(cast) = unaliased(value)
            && matches!(cast.expr.as_ref(), Expr::Column(_))
        {
            check_value(field, &cast.expr, projection.input.schema())?;
        }
    }
    Ok(())
}

/// Lists of VALUES in an INSERT, which the planner casts to the columns of the table wherever they stand.
fn check_listed(dml: &DmlStatement, insert: &ast::Insert) -> Result<()> {
    let schema = dml.target.schema();
    let named = |name: &ast::ObjectName| {
        let name = plain(name.0.last()?.as_ident()?);
        schema.fields().find(&name).map(|(_, field)| field)
    };
    let fields: Vec<&FieldRef> = match insert.columns.is_empty() {
        true => schema.fields().iter().collect(),
        false => insert.columns.iter().filter_map(named).collect(),
    };
    let no_columns = DFSchema::empty();
    dml.input.apply(|node| {
        let LogicalPlan::Values(values) = node else { return Ok(TreeNodeRecursion::Continue) };
        for (row, listed) in values.values.iter().enumerate() {
            for (at, (field, value)) in fields.iter().zip(listed).enumerate() {
                let checked = check_value(field, uncast(value), &no_columns);
                if checked.is_err() && !is_cast_in(insert, values, (row, at), casts(value)) {
                    return checked.map(|()| TreeNodeRecursion::Continue);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_update(dml: &DmlStatement, assignments: &[ast::Assignment]) -> Result<()> {
    let LogicalPlan::Projection(projection) = dml.input.as_ref() else { return Ok(()) };
    let schema = dml.target.schema();
    for (field, value) in schema.fields().iter().zip(&projection.expr) {
        let value = unaliased(value);
        let checked = check_value(field, uncast(value), projection.input.schema());
        let is_cast = || {
            let assigned =
                assignments.iter().find(|assignment| target(assignment).as_ref() == Some(field.name()));
            assigned.is_some_and(|assignment| written_casts(&assignment.value) >= casts(value))
        };
        if checked.is_err() && !is_cast() {
            return checked;
        }
    }
    Ok(())
}

/// The planner casts none of the values.
fn check_merge(dml: &DmlStatement, merge: &MergeIntoOp) -> Result<()> {
    let own = dml.target.schema();
    let schema = DFSchema::try_from_qualified_schema(dml.table_name.clone(), &own)?;
    let schema = schema.join(dml.input.schema())?;
    let check = |column: &str, value: &Expr| match own.fields().find(column) {
        Some((_, field)) => check_value(field, value, &schema),
        None => Ok(()),
    };
    for clause in &merge.clauses {
        match &clause.action {
            MergeIntoAction::Update(assignments) => {
                assignments.iter().try_for_each(|(column, value)| check(column, value))?;
            }
            MergeIntoAction::Insert { columns, values } if columns.is_empty() => {
                own.fields().iter().zip(values).try_for_each(|(field, value)| check(field.name(), value))?;
            }
            MergeIntoAction::Insert { columns, values } => {
                columns.iter().zip(values).try_for_each(|(column, value)| check(column, value))?;
            }
            MergeIntoAction::Delete => {}
        }
    }
    Ok(())
}

fn check_value(field: &Field, value: &Expr, schema: &DFSchema) -> Result<()> {
    // What has no type has parameters without values.
    let Ok(kind) = value.get_type(schema) else { return Ok(()) };
    if fits(&kind, field.data_type()) && json::takes(field, &kind) {
        return Ok(());
    }
    let given = match value {
        // As PostgreSQL takes numbers that stand in a statement.
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok() => {
            type_name(&DataType::Int32)
        }
        Expr::Literal(ScalarValue::Float64(Some(_)), _) => "numeric".to_string(),
        _ => type_name(&kind),
    };
    let expected =
        Kind::of_field(field).map_or_else(|| type_name(field.data_type()), |kind| kind.name().to_string());
    let message =
        format!("column \"{}\" is of type {expected} but expression is of type {given}", field.name());
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(HINT).into_datafusion())
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// What the outermost cast is of.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => &cast.expr,
        other => other,
    }
}

/// How many casts an expression ends with.
fn casts(expr: &Expr) -> usize {
    match expr {
        Expr::Cast(cast) => 1 + casts(&cast.expr),
        _ => 0,
    }
}

/// The same of an expression as it was written.
fn written_casts(expr: &ast::Expr) -> usize {
    match expr {
        ast::Expr::Nested(inner) => written_casts(inner),
        ast::Expr::Cast { expr, .. } => 1 + written_casts(expr),
        _ => 0,
    }
}

/// Whether all casts of a value that a list has at `place`, row and column, were written there.
fn is_cast_in(insert: &ast::Insert, values: &Values, place: (usize, usize), casts: usize) -> bool {
    let (row, at) = place;
    let mut lists = Lists::default();
    if let Some(source) = &insert.source {
        let _ = source.visit(&mut lists);
    }
    let is_same = |list: &ast::Values| list.rows.len() == values.values.len();
    lists.0.iter().filter(|list| is_same(list)).any(|list| {
        let written = list.rows[row].content.get(at);
        casts > 0 && written.is_some_and(|written| written_casts(written) >= casts)
    })
}

/// The lists of VALUES in a query.
#[derive(Default)]
struct Lists(Vec<ast::Values>);

impl Lists {
    fn take(&mut self, body: &ast::SetExpr) {
        match body {
            ast::SetExpr::Values(values) => self.0.push(values.clone()),
            ast::SetExpr::SetOperation { left, right, .. } => {
                self.take(left);
                self.take(right);
            }
            _ => {}
        }
    }
}

impl Visitor for Lists {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.take(&query.body);
        ControlFlow::Continue(())
    }
}

/// The column that a value is assigned to.
fn target(assignment: &ast::Assignment) -> Option<String> {
    match &assignment.target {
        ast::AssignmentTarget::ColumnName(name) => Some(plain(name.0.last()?.as_ident()?)),
        ast::AssignmentTarget::Tuple(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{IntervalUnit, TimeUnit};

    #[test]
    fn types_are_assigned_as_in_postgresql() {
        let timestamp = || DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = || DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()));
        let time = || DataType::Time64(TimeUnit::Microsecond);
        let interval = || DataType::Interval(IntervalUnit::MonthDayNano);
        let list = || DataType::new_list(DataType::Int32, true);
        for (from, to) in [
            (DataType::Int64, DataType::Int16),
            (DataType::Float64, DataType::Decimal128(5, 2)),
            (DataType::Null, DataType::Date32),
            (DataType::Utf8, DataType::Date32),
            (DataType::Boolean, DataType::Utf8View),
            (DataType::Binary, DataType::Utf8View),
            (DataType::Date32, timestamp()),
            (timestamp(), DataType::Date32),
            (zoned(), timestamp()),
            (timestamp(), time()),
            (time(), interval()),
            (DataType::Int64, list()),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), time()),
        ] {
            assert!(fits(&from, &to), "{from} to {to}");
        }
        for (from, to) in [
            (DataType::Int64, DataType::Date32),
            (DataType::Date32, DataType::Int32),
            (DataType::Int64, DataType::Boolean),
            (DataType::Boolean, DataType::Int64),
            (DataType::Int64, timestamp()),
            (timestamp(), DataType::Float64),
            (time(), DataType::Int64),
            (DataType::Int64, interval()),
            (DataType::Date32, time()),
            (time(), timestamp()),
            (DataType::Binary, DataType::Int32),
            (DataType::Boolean, DataType::Date32),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64)), DataType::Date32),
        ] {
            assert!(!fits(&from, &to), "{from} to {to}");
        }
    }
}
