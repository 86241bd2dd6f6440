//! Columns of `json` and `jsonb`: which operators of PostgreSQL's they have, how they are compared, grouped
//! and sorted, and what becomes one of them where it is stored. What they are, and the functions of them, is
//! [`harrier_functions::json`].
//!
//! ```text
//! j -> 'a'            ──►  harrier_json_get(j, 'a')                    as the statement is planned: operators.rs
//! j = '{"a": 1.0}'    ──►  key(j) = key(harrier_jsonb('{"a": 1.0}'))   by a rule, which knows types that fields have lost: values.rs
//! GROUP BY j          ──►  GROUP BY key(j), with first_value(j)
//! INSERT … (j)        ──►  harrier_jsonb(…)                            stored.rs
//! ```

pub(crate) mod operators;
pub(crate) mod stored;
pub(crate) mod values;

use crate::types::names;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, ExprSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::{self, Kind};
use harrier_sqlstate::IntoDataFusionError;

use crate::binder::type_names;
use crate::types::names::type_name;
use harrier_planner::rewrite::input_schema;

pub(crate) use operators::JsonOperators;
pub(crate) use stored::stored;
pub(crate) use values::{JsonValues, typed};

/// A call of one of the functions of JSON.
fn call(name: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let function = json::by_name(name)
        .ok_or_else(|| DataFusionError::Internal(format!("there is no function {name} of JSON")))?;
    Ok(function.call(arguments))
}

/// A text as a value of a type.
fn read(kind: Kind, text: Expr) -> Result<Expr> {
    call(&format!("harrier_{}", kind.name()), vec![text])
}

/// A text that is said to be in a column of a table and has not been checked: it becomes what such a column
/// has.
pub(crate) fn read_again(field: &Field, text: Expr) -> Result<Expr> {
    match Kind::of_field(field) {
        Some(kind) => read(kind, call("harrier_json_text", vec![text])?),
        None => Ok(text),
    }
}

/// What a value of `jsonb` is compared by.
fn key(value: Expr) -> Result<Expr> {
    call("harrier_jsonb_key", vec![value])
}

/// Of arrays whose elements are not known to be of the type.
fn no_array(kind: Kind) -> DataFusionError {
    let message = format!("texts and other arrays are not converted to {}[]", kind.name());
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint(format!("ARRAY['…'::{}]", kind.name()))
        .into_datafusion()
}

/// Whether values of a type are assigned to a column: to one of JSON texts alone are.
pub(crate) fn takes(column: &Field, given: &DataType) -> bool {
    Kind::of_field(column).is_none() || given.is_string() || given.is_null()
}

/// Whether an expression is of whatever type is asked of it: a text in quotes, NULL, or a parameter.
fn is_open(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, _)
            | Expr::Placeholder(_)
    )
}

/// Of which types the columns are that the expressions of a node speak of.
struct Types {
    schema: DFSchema,
    names: Vec<Option<String>>,
}

impl Types {
    fn below(plan: &LogicalPlan) -> Result<Self> {
        let schema = input_schema(plan)?;
        let inputs: Vec<_> = plan.inputs().into_iter().map(|input| (input, type_names::of(input))).collect();
        let name = |column| {
            let found = inputs.iter().find_map(|(input, names)| {
                Some(names.get(input.schema().maybe_index_of_column(&column)?)?.clone())
            });
            found.unwrap_or_else(|| names::field_type_name(schema.field_from_column(&column).ok()?))
        };
        let names = schema.columns().into_iter().map(name).collect();
        Ok(Self { schema, names })
    }

    /// As fields tell it, which lose it at times.
    fn told(schema: &DFSchema) -> Self {
        let names = schema.fields().iter().map(|field| names::field_type_name(field)).collect();
        Self { schema: schema.clone(), names }
    }

    fn name(&self, expr: &Expr) -> Option<String> {
        type_names::of_expr(expr, &self.schema, &self.names)
    }

    fn kind(&self, expr: &Expr) -> Option<Kind> {
        self.name(expr).and_then(|name| Kind::of_name(&name))
    }

    fn data_type(&self, expr: &Expr) -> Option<DataType> {
        expr.get_type(&self.schema).ok()
    }

    /// As messages call the type of an expression.
    fn shown(&self, expr: &Expr) -> String {
        match self.name(expr) {
            Some(name) => name,
            None if is_open(expr) => "unknown".to_string(),
            None => self.data_type(expr).map_or_else(|| "unknown".to_string(), |kind| type_name(&kind)),
        }
    }

    fn no_operator(&self, left: &Expr, operator: &str, right: &Expr) -> DataFusionError {
        let message =
            format!("operator does not exist: {} {operator} {}", self.shown(left), self.shown(right));
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
            .with_hint(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            )
            .into_datafusion()
    }
}
