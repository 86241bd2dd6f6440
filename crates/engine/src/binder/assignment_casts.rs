//! Assignment casts: statements that write rows may only assign values that PostgreSQL converts to the
//! column's type implicitly. DataFusion's planner inserts any possible cast, even from a number to a date.
//!
//! In VALUES and in UPDATE's assignments the planner's casts look like explicit casts, which may convert
//! more: the parsed statement distinguishes them.

use crate::types::names::type_name;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{DmlStatement, Expr, ExprSchemable, LogicalPlan, Values, WriteOp};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_planner::binder::on_conflict::inserted_rows;
use harrier_planner::rewrite::strip_alias;
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::json;
use crate::planning::default_values;
use harrier_sql::identifier::plain;
use harrier_sql::on_conflict;

const HINT: &str = "you will need to rewrite or cast the expression";

/// Types that convert into each other on assignment.
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

/// `None`: untyped NULL, and nested types.
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

/// Whether a value of type `from` can be assigned to type `to`. Text always can: it is indistinguishable from
/// a literal of unknown type.
pub(crate) fn is_assignable(from: &DataType, to: &DataType) -> bool {
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

/// Checks that a value of type `kind` converts to `expected`, the type of parameter `number`.
///
/// Errors: it does not (42804).
pub(crate) fn check_parameter(number: usize, kind: &DataType, expected: &DataType) -> Result<()> {
    if is_assignable(kind, expected) {
        return Ok(());
    }
    let (kind, expected) = (type_name(kind), type_name(expected));
    let message =
        format!("parameter ${number} of type {kind} cannot be coerced to the expected type {expected}");
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(HINT).into_datafusion())
}

/// Checks the plan of a statement that writes rows, or of its EXPLAIN. `statement`: the parsed statement, if
/// there is one.
///
/// Errors: a value does not convert to the type of its column (42804).
pub(crate) fn check(plan: &LogicalPlan, statement: Option<&ast::Statement>) -> Result<()> {
    match plan {
        LogicalPlan::Explain(explain) => check(&explain.plan, statement),
        LogicalPlan::Analyze(explain) => check(&explain.input, statement),
        LogicalPlan::Dml(dml) => match (&dml.op, statement) {
            (WriteOp::Insert(_), Some(ast::Statement::Insert(insert))) => {
                check_rows(dml)?;
                check_listed(dml, insert)
            }
            (WriteOp::MergeInto(merge), Some(ast::Statement::Insert(insert))) => {
                check_rows(dml)?;
                check_listed(dml, insert)?;
                check_merge(dml, merge)
            }
            (WriteOp::Insert(_), _) => check_rows(dml),
            (WriteOp::Update, Some(ast::Statement::Update(update))) => check_update(dml, &update.assignments),
            (WriteOp::MergeInto(merge), _) => check_merge(dml, merge),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// An error of planning a statement that writes rows, with the column if it says that a value does not
/// convert to the type of one: the planner names the types alone.
pub(crate) async fn with_column(
    state: &SessionState,
    statement: Option<&ast::Statement>,
    error: DataFusionError,
) -> DataFusionError {
    let named = match (types_of(&error), statement) {
        (Some((from, to)), Some(statement)) => {
            column_of(state, statement, &from, &to).await.map(|field| (field, from))
        }
        _ => None,
    };
    named.map_or(error, |(field, from)| mismatch(&field, type_name(&from)))
}

/// The type of a value and that of its column, of the planner's error.
fn types_of(error: &DataFusionError) -> Option<(DataType, DataType)> {
    let text = match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => return types_of(inner),
        DataFusionError::Plan(text) | DataFusionError::Execution(text) => text.lines().next()?,
        _ => return None,
    };
    let (from, to) = match text.split_once("Cannot automatically convert ") {
        Some((_, types)) => types.split_once(" to ")?,
        None => text.split_once("received data of type ")?.1.split_once(" for field of type ")?,
    };
    Some((from.parse().ok()?, to.trim().parse().ok()?))
}

/// The column that the value is for: the only one of its type that is written, or the one whose column of the
/// query has the type of the value.
async fn column_of(
    state: &SessionState,
    statement: &ast::Statement,
    from: &DataType,
    to: &DataType,
) -> Option<FieldRef> {
    let (table, written, source) = match statement {
        ast::Statement::Insert(ast::Insert {
            table: ast::TableObject::TableName(table),
            columns,
            source,
            ..
        }) => {
            let names = columns.iter().map(|name| Some(plain(name.0.last()?.as_ident()?)));
            (table, names.collect::<Option<Vec<_>>>()?, source.as_deref())
        }
        ast::Statement::Update(update) => match &update.table.relation {
            ast::TableFactor::Table { name, .. } => {
                (name, update.assignments.iter().filter_map(target).collect(), None)
            }
            _ => return None,
        },
        _ => return None,
    };
    let schema = default_values::table_provider(state, table).await.ok()??.schema();
    let fields: Vec<FieldRef> = match written.is_empty() {
        true => schema.fields().iter().cloned().collect(),
        false => written
            .iter()
            .map(|name| schema.fields().find(name).map(|(_, field)| Arc::clone(field)))
            .collect::<Option<_>>()?,
    };
    let of_type = |field: &&FieldRef| field.data_type() == to;
    if let [field] = fields.iter().filter(of_type).collect::<Vec<_>>()[..] {
        return Some(Arc::clone(field));
    }
    let query = Statement::Statement(Box::new(ast::Statement::Query(Box::new(source?.clone()))));
    let plan = state.statement_to_plan(query).await.ok()?;
    let pairs = fields.iter().zip(plan.schema().fields());
    pairs
        .filter(|(field, value)| of_type(field) && value.data_type() == from)
        .map(|(field, _)| Arc::clone(field))
        .next()
}

/// Checks the target columns of a statement's assignments.
///
/// Errors: one column is assigned twice (42601).
pub(crate) fn check_targets(statement: &ast::Statement) -> Result<()> {
    match statement {
        ast::Statement::Update(update) => check_distinct_targets(&update.assignments),
        ast::Statement::Insert(insert) => check_distinct_targets(on_conflict::assignments(insert)),
        ast::Statement::Merge(merge) => merge.clauses.iter().try_for_each(|clause| match &clause.action {
            ast::MergeAction::Update(update) => check_distinct_targets(&update.assignments),
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

fn check_distinct_targets(assignments: &[ast::Assignment]) -> Result<()> {
    let mut columns = HashSet::new();
    match assignments.iter().filter_map(target).find(|column| !columns.insert(column.clone())) {
        Some(column) => {
            let message = format!("multiple assignments to same column \"{column}\"");
            Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion())
        }
        None => Ok(()),
    }
}

/// Checks the casts that the planner puts above the source rows of an INSERT.
fn check_rows(dml: &DmlStatement) -> Result<()> {
    let rows = inserted_rows(&dml.input).unwrap_or(&dml.input);
    let LogicalPlan::Projection(projection) = rows else { return Ok(()) };
    let schema = dml.target.schema();
    for (field, value) in schema.fields().iter().zip(&projection.expr) {
        // Any other expression than a column is a default.
        if let Expr::Cast(cast) = strip_alias(value)
            && matches!(cast.expr.as_ref(), Expr::Column(_))
        {
            check_value(field, &cast.expr, projection.input.schema())?;
        }
    }
    Ok(())
}

/// Checks the VALUES lists of an INSERT, whose values the planner casts to the table's columns.
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
    let rows = inserted_rows(&dml.input).unwrap_or(&dml.input);
    rows.apply(|node| {
        let values = match node {
            LogicalPlan::Values(values) => values,
            // VALUES in FROM are rows of their own.
            LogicalPlan::SubqueryAlias(_) => return Ok(TreeNodeRecursion::Jump),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        for (row, listed) in values.values.iter().enumerate() {
            for (at, (field, value)) in fields.iter().zip(listed).enumerate() {
                let checked = check_value(field, strip_cast(value), &no_columns);
                if checked.is_err() && !is_cast_in(insert, values, (row, at), count_casts(value)) {
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
        let value = strip_alias(value);
        let checked = check_value(field, strip_cast(value), projection.input.schema());
        let is_cast = || {
            let assigned =
                assignments.iter().find(|assignment| target(assignment).as_ref() == Some(field.name()));
            assigned.is_some_and(|assignment| count_written_casts(&assignment.value) >= count_casts(value))
        };
        if checked.is_err() && !is_cast() {
            return checked;
        }
    }
    Ok(())
}

/// Checks the values of MERGE, where the planner inserts no casts.
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
    // Without a type, the expression contains unbound parameters.
    let Ok(kind) = value.get_type(schema) else { return Ok(()) };
    if is_assignable(&kind, field.data_type()) && json::is_assignable(field, &kind) {
        return Ok(());
    }
    let given = match value {
        // PostgreSQL types integer literals that fit as `integer`.
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok() => {
            type_name(&DataType::Int32)
        }
        Expr::Literal(ScalarValue::Float64(Some(_)), _) => "numeric".to_string(),
        _ => type_name(&kind),
    };
    Err(mismatch(field, given))
}

fn mismatch(field: &Field, given: String) -> DataFusionError {
    let expected =
        Kind::of_field(field).map_or_else(|| type_name(field.data_type()), |kind| kind.name().to_string());
    let message =
        format!("column \"{}\" is of type {expected} but expression is of type {given}", field.name());
    SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(HINT).into_datafusion()
}

/// Strips the outermost cast.
fn strip_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => &cast.expr,
        other => other,
    }
}

/// Number of nested casts at the top of an expression.
fn count_casts(expr: &Expr) -> usize {
    match expr {
        Expr::Cast(cast) => 1 + count_casts(&cast.expr),
        _ => 0,
    }
}

/// Number of nested casts at the top of a parsed expression.
fn count_written_casts(expr: &ast::Expr) -> usize {
    match expr {
        ast::Expr::Nested(inner) => count_written_casts(inner),
        ast::Expr::Cast { expr, .. } => 1 + count_written_casts(expr),
        _ => 0,
    }
}

/// Whether the statement itself contains all casts of the value at `place` (row, column) of a VALUES list.
fn is_cast_in(insert: &ast::Insert, values: &Values, place: (usize, usize), casts: usize) -> bool {
    let (row, at) = place;
    let mut lists = Lists::default();
    if let Some(source) = &insert.source {
        let _ = source.visit(&mut lists);
    }
    let is_same = |list: &ast::Values| list.rows.len() == values.values.len();
    lists.0.iter().filter(|list| is_same(list)).any(|list| {
        let written = list.rows[row].content.get(at);
        casts > 0 && written.is_some_and(|written| count_written_casts(written) >= casts)
    })
}

/// The VALUES lists of a query.
#[derive(Default)]
struct Lists(Vec<ast::Values>);

impl Lists {
    fn collect(&mut self, body: &ast::SetExpr) {
        match body {
            ast::SetExpr::Values(values) => self.0.push(values.clone()),
            ast::SetExpr::SetOperation { left, right, .. } => {
                self.collect(left);
                self.collect(right);
            }
            _ => {}
        }
    }
}

impl Visitor for Lists {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.collect(&query.body);
        ControlFlow::Continue(())
    }
}

/// The target column of an assignment.
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
            assert!(is_assignable(&from, &to), "{from} to {to}");
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
            assert!(!is_assignable(&from, &to), "{from} to {to}");
        }
    }
}
