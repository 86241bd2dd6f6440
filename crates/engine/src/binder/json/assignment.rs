//! Converts the values that statements write into columns of `json` and `jsonb`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Column;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoOp};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, WriteOp};
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_planner::binder::on_conflict::{inserted_rows, map_inserted};
use harrier_sqlstate::IntoDataFusionError;

use super::{Types, is_open, no_array, parse_text};

/// Checks and normalizes the values written to JSON columns in the plan of a statement that writes rows, or
/// of its EXPLAIN.
///
/// Errors: a value's type cannot be assigned to the column (42804).
pub(crate) fn coerce_written_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Explain(mut explain) => {
            explain.plan = Arc::new(coerce_written_values(Arc::unwrap_or_clone(explain.plan))?);
            LogicalPlan::Explain(explain)
        }
        LogicalPlan::Analyze(mut explain) => {
            explain.input = Arc::new(coerce_written_values(Arc::unwrap_or_clone(explain.input))?);
            LogicalPlan::Analyze(explain)
        }
        LogicalPlan::Dml(mut dml) => {
            let schema = dml.target.schema();
            if has_json(&schema) {
                match &mut dml.op {
                    WriteOp::Insert(_) | WriteOp::Update | WriteOp::Ctas => {
                        dml.input = Arc::new(map_inserted(Arc::unwrap_or_clone(dml.input), |rows| {
                            coerce_columns(rows, &schema)
                        })?);
                    }
                    WriteOp::MergeInto(merge) => {
                        if inserted_rows(&dml.input).is_some() {
                            let input = Arc::unwrap_or_clone(dml.input);
                            dml.input = Arc::new(map_inserted(input, |rows| coerce_columns(rows, &schema))?);
                        }
                        let own = datafusion::common::DFSchema::try_from_qualified_schema(
                            dml.table_name.clone(),
                            &schema,
                        )?;
                        let types = Types::from_fields(&own.join(dml.input.schema())?);
                        in_merge(merge, &schema, &types)?;
                    }
                    _ => {}
                }
            }
            LogicalPlan::Dml(dml)
        }
        other => other,
    })
}

fn has_json(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| Kind::of_field(field).is_some() || item_kind(field).is_some())
}

/// JSON kind of an array's elements.
fn item_kind(field: &Field) -> Option<Kind> {
    match field.data_type() {
        DataType::List(item) => Kind::of_field(item),
        _ => None,
    }
}

/// Whether an array fits a column of JSON arrays.
fn check_array(value: &Expr, kind: Kind, types: &Types) -> Result<()> {
    let given = match value {
        Expr::Cast(cast) => cast.expr.as_ref(),
        Expr::Alias(alias) => return check_array(&alias.expr, kind, types),
        other => other,
    };
    let is_null = types.data_type(given).is_some_and(|kind| kind.is_null())
        || matches!(given, Expr::Literal(value, _) if value.is_null());
    let name = Some(format!("_{}", kind.name()));
    match is_null || types.name(value) == name || types.name(given) == name {
        true => Ok(()),
        false => Err(no_array(kind)),
    }
}

/// Projects a query to the columns of a table with this schema and converts the values.
///
/// Errors: as [`coerce_written_values`].
fn coerce_columns(input: LogicalPlan, schema: &Schema) -> Result<LogicalPlan> {
    if !has_json(schema) {
        return Ok(input);
    }
    if let LogicalPlan::Projection(projection) = input {
        let types = Types::below(&LogicalPlan::Projection(projection.clone()))?;
        let Projection { expr, input, .. } = projection;
        let expr = expr.into_iter().enumerate().map(|(at, value)| {
            if let Some(kind) = schema.fields().get(at).and_then(|field| item_kind(field)) {
                check_array(&value, kind, &types)?;
            }
            match schema.fields().get(at).map(|field| (field.name(), Kind::of_field(field))) {
                Some((name, Some(kind))) => Ok(match value {
                    Expr::Alias(mut alias) => {
                        *alias.expr = coerce_value(*alias.expr, kind, name, &types)?;
                        Expr::Alias(alias)
                    }
                    value => {
                        let (qualifier, own) = value.qualified_name();
                        coerce_value(value, kind, name, &types)?.alias_qualified(qualifier, own)
                    }
                }),
                _ => Ok(value),
            }
        });
        return Ok(LogicalPlan::Projection(Projection::try_new(expr.collect::<Result<_>>()?, input)?));
    }
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let all = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?);
    coerce_columns(all, schema)
}

fn in_merge(merge: &mut MergeIntoOp, schema: &Schema, types: &Types) -> Result<()> {
    let fit = |column: &str, value: &mut Expr| {
        if let Some(kind) = schema.field_with_name(column).ok().and_then(item_kind) {
            check_array(value, kind, types)?;
        }
        let kind = schema.field_with_name(column).ok().and_then(Kind::of_field);
        if let Some(kind) = kind {
            *value = coerce_value(std::mem::take(value), kind, column, types)?;
        }
        Ok::<(), DataFusionError>(())
    };
    for clause in &mut merge.clauses {
        match &mut clause.action {
            MergeIntoAction::Update(assignments) => {
                assignments.iter_mut().try_for_each(|(column, value)| fit(column, value))?;
            }
            MergeIntoAction::Insert { columns, values } => {
                let all = schema.fields().iter().map(|field| field.name().clone());
                let names: Vec<String> = if columns.is_empty() {
                    all.collect()
                } else {
                    columns.iter().map(ToString::to_string).collect()
                };
                names.iter().zip(values).try_for_each(|(column, value)| fit(column, value))?;
            }
            MergeIntoAction::Delete => {}
        }
    }
    Ok(())
}

/// Converts a value to a column's JSON type.
fn coerce_value(value: Expr, kind: Kind, column: &str, types: &Types) -> Result<Expr> {
    if types.kind(&value) == Some(kind) {
        return Ok(value);
    }
    // The planner has already cast values of other types.
    let given = match &value {
        Expr::Cast(cast) if types.kind(&cast.expr).is_none() => cast.expr.as_ref(),
        other => other,
    };
    let fits = is_open(given)
        || matches!(given, Expr::Column(Column { .. }) if types.data_type(given).is_none())
        || types.data_type(given).is_none_or(|given| given.is_string() || given.is_null());
    if !fits {
        let message = format!(
            "column \"{column}\" is of type {} but expression is of type {}",
            kind.name(),
            types.display_type(given)
        );
        let hint = "you will need to rewrite or cast the expression";
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint).into_datafusion());
    }
    parse_text(kind, value)
}
