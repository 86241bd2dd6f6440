//! Columns of `json` and `jsonb`: their operators, comparison, grouping and sorting, and the conversion of
//! stored values. The types themselves and their functions are in [`harrier_functions::json`].
//!
//! ```text
//! j -> 'a'            ──►  harrier_json_get(j, 'a')                    planner extension: operators.rs
//! j = '{"a": 1.0}'    ──►  key(j) = key(harrier_jsonb('{"a": 1.0}'))   analyzer rule: values.rs
//! GROUP BY j          ──►  GROUP BY key(j), with first_value(j)
//! INSERT … (j)        ──►  harrier_jsonb(…)                            assignment.rs
//! ```

pub(crate) mod assignment;
pub(crate) mod operators;
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

pub(crate) use assignment::coerce_written_values;
pub(crate) use operators::JsonOperators;
pub(crate) use values::{JsonValues, rewrite_node};

/// A call of a JSON function.
fn call(name: &str, arguments: Vec<Expr>) -> Result<Expr> {
    let function = json::by_name(name)
        .ok_or_else(|| DataFusionError::Internal(format!("there is no function {name} of JSON")))?;
    Ok(function.call(arguments))
}

/// Parses a text as `json` or `jsonb`.
fn parse_text(kind: Kind, text: Expr) -> Result<Expr> {
    call(&format!("harrier_{}", kind.name()), vec![text])
}

/// Parses unvalidated text of a JSON column again and normalizes it; other columns stay as they are.
pub(crate) fn normalize_text(field: &Field, text: Expr) -> Result<Expr> {
    match Kind::of_field(field) {
        Some(kind) => parse_text(kind, call("harrier_json_text", vec![text])?),
        None => Ok(text),
    }
}

/// The sort and comparison key of a `jsonb` value.
fn key(value: Expr) -> Result<Expr> {
    call("harrier_jsonb_key", vec![value])
}

/// The error for arrays whose elements are not known to be of the type.
fn no_array(kind: Kind) -> DataFusionError {
    let message = format!("texts and other arrays are not converted to {}[]", kind.name());
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint(format!("ARRAY['…'::{}]", kind.name()))
        .into_datafusion()
}

/// Whether a value of a type can be assigned to a column: JSON columns accept text only.
pub(crate) fn is_assignable(column: &Field, given: &DataType) -> bool {
    Kind::of_field(column).is_none() || given.is_string() || given.is_null()
}

/// Whether an expression takes its type from the context: a quoted literal, NULL, or a parameter.
fn is_open(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Utf8View(_) | ScalarValue::Null, _)
            | Expr::Placeholder(_)
    )
}

/// Types of the input columns of a node's expressions.
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

    /// Reads the types from the fields' metadata, which some operators lose.
    fn from_fields(schema: &DFSchema) -> Self {
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

    /// The type of an expression as error messages name it.
    fn display_type(&self, expr: &Expr) -> String {
        match self.name(expr) {
            Some(name) => name,
            None if is_open(expr) => "unknown".to_string(),
            None => self.data_type(expr).map_or_else(|| "unknown".to_string(), |kind| type_name(&kind)),
        }
    }

    fn no_operator(&self, left: &Expr, operator: &str, right: &Expr) -> DataFusionError {
        let message = format!(
            "operator does not exist: {} {operator} {}",
            self.display_type(left),
            self.display_type(right)
        );
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
            .with_hint(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            )
            .into_datafusion()
    }
}
