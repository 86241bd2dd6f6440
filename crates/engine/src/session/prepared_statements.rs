//! Prepared statements: stored as parsed and planned anew at every EXECUTE, so that each sees current tables.
//! If the result columns have changed since PREPARE, EXECUTE fails.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{DFSchema, ParamValues, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Statement as PlanStatement};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_planner::analyzer::text_constants::readable;
use harrier_session_api::named_objects::PreparedStatement;
use harrier_sql::identifier;
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::Mutex;

use crate::binder::{assignment_casts, on_conflict, parameter_types, unsupported_statements};
use crate::planning::{default_values, merge_scope, unknown_literals};
use crate::settings::time_reading;

/// The prepared statements of a session, by name.
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements(Mutex<HashMap<String, Prepared>>);

#[derive(Debug, Clone)]
struct Prepared {
    /// The PREPARE statement.
    statement: Arc<ast::Statement>,
    /// The same as the client sent it, which determines PostgreSQL's column names.
    original: Option<Arc<ast::Statement>>,
    since: SystemTime,
    /// Names and types of the result columns.
    columns: Arc<[(String, DataType)]>,
}

impl PreparedStatements {
    /// Stores the PREPARE statement `prepare`, after planning it once. `original`: as the client sent it.
    ///
    /// Errors: the name is taken (42P05); those of planning it.
    pub(crate) async fn prepare(
        &self,
        state: &SessionState,
        prepare: &ast::Statement,
        original: Option<Arc<ast::Statement>>,
    ) -> Result<()> {
        let name = name_of(prepare)?;
        let (input, _) = plan_prepare(state, prepare).await?;
        let columns = columns_of(&input).into();
        match self.0.lock().entry(name) {
            Entry::Occupied(taken) => {
                let message = format!("prepared statement \"{}\" already exists", taken.key());
                Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message).into_datafusion())
            }
            Entry::Vacant(free) => {
                let statement = Arc::new(prepare.clone());
                free.insert(Prepared { statement, original, since: SystemTime::now(), columns });
                Ok(())
            }
        }
    }

    /// All prepared statements, by name.
    pub(crate) fn list(&self) -> Vec<PreparedStatement> {
        let one = |(name, prepared): (&String, &Prepared)| PreparedStatement {
            name: name.clone(),
            text: prepared.statement.to_string(),
            since: prepared.since,
            is_of_sql: true,
        };
        let mut all: Vec<_> = self.0.lock().iter().map(one).collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// Removes one prepared statement, or all if `name` is `None`.
    ///
    /// Errors: it does not exist (26000).
    pub(crate) fn deallocate(&self, name: Option<&str>) -> Result<()> {
        let mut statements = self.0.lock();
        match name {
            None => statements.clear(),
            Some(name) if statements.remove(name).is_none() => return Err(not_found(name)),
            Some(_) => {}
        }
        Ok(())
    }

    /// The statement that EXECUTE of `name` runs.
    ///
    /// Errors: it does not exist (26000).
    pub(crate) fn statement(&self, name: &ast::ObjectName) -> Result<ast::Statement> {
        match self.get(&canonical_name(name))?.statement.as_ref() {
            ast::Statement::Prepare { statement, .. } => Ok(ast::Statement::clone(statement)),
            other => Err(DataFusionError::Internal(format!("{other} is not PREPARE"))),
        }
    }

    /// If `statement` is an EXECUTE: the prepared statement as the client sent it, which determines column
    /// names.
    pub(crate) fn original(&self, statement: &Statement) -> Option<ast::Statement> {
        let Statement::Statement(statement) = statement else { return None };
        let ast::Statement::Execute { immediate: false, name: Some(name), .. } = statement.as_ref() else {
            return None;
        };
        match self.get(&canonical_name(name)).ok()?.original.as_deref()? {
            ast::Statement::Prepare { statement, .. } => Some(ast::Statement::clone(statement)),
            _ => None,
        }
    }

    /// Plans an EXECUTE and binds its parameter values.
    ///
    /// Errors: the prepared statement does not exist (26000); a value does not fit its parameter (42804); the
    /// result columns have changed since PREPARE (0A000).
    pub(crate) async fn plan(&self, state: &SessionState, execute: &ast::Statement) -> Result<LogicalPlan> {
        let plan = state.statement_to_plan(Statement::Statement(Box::new(execute.clone()))).await?;
        let LogicalPlan::Statement(PlanStatement::Execute(execute)) = plan else {
            return Err(DataFusionError::Internal("EXECUTE was planned as something else".to_string()));
        };
        let prepared = self.get(&execute.name)?;
        let (input, types) = plan_prepare(state, &prepared.statement).await?;
        if columns_of(&input)[..] != prepared.columns[..] {
            let message = "cached plan must not change result type";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let simplifier = ExprSimplifier::new(
            SimplifyContext::builder()
                .with_schema(Arc::new(DFSchema::empty()))
                .with_config_options(Arc::clone(state.config_options()))
                .with_query_execution_start_time(state.execution_props().query_execution_start_time)
                .build(),
        );
        let count = execute.parameters.len();
        let expected = types.len();
        if count != expected {
            let message = format!("wrong number of parameters for prepared statement \"{}\"", execute.name);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .with_detail(format!("Expected {expected} parameters but got {count}."))
                .into_datafusion());
        }
        let mut values = Vec::with_capacity(count);
        for (at, (value, expected)) in execute.parameters.into_iter().zip(types).enumerate() {
            values.push(match simplifier.simplify(value)? {
                Expr::Literal(value, metadata) => {
                    assignment_casts::check_parameter(at + 1, &value.data_type(), &expected)?;
                    let exact = if expected.is_decimal() { exact_numeric(&value) } else { None };
                    match exact {
                        Some(number) => ScalarAndMetadata::new(number, metadata),
                        None => {
                            let value = readable(value, &expected, &time_reading(state))?;
                            ScalarAndMetadata::new(value, metadata).cast_storage_to(&expected)?
                        }
                    }
                }
                other => {
                    let message = format!("a parameter has to be constant, which {other} is not");
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
                }
            });
        }
        input.replace_params_with_values(&ParamValues::List(values))
    }

    fn get(&self, name: &str) -> Result<Prepared> {
        self.0.lock().get(name).cloned().ok_or_else(|| not_found(name))
    }
}

/// Plans the statement of a PREPARE; also returns its parameter types.
async fn plan_prepare(
    state: &SessionState,
    prepare: &ast::Statement,
) -> Result<(LogicalPlan, Vec<DataType>)> {
    let inner = match prepare {
        ast::Statement::Prepare { statement, .. } => Some(statement.as_ref()),
        _ => None,
    };
    let is_told = matches!(prepare, ast::Statement::Prepare { data_types, .. } if !data_types.is_empty());
    let known = |fields: &[FieldRef]| match is_told {
        true => fields.iter().map(|field| Some(field.data_type().clone())).collect(),
        false => vec![],
    };
    let prepare = Statement::Statement(Box::new(prepare.clone()));
    unsupported_statements::check(&prepare)?;
    let prepare = default_values::fill_defaults(state, &prepare).await?;
    let prepare = merge_scope::qualify_source_names(state, prepare).await?.into_owned();
    match Box::pin(on_conflict::plan(state, prepare)).await? {
        LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => {
            let found = parameter_types::of(&[&prepare.input], inner, &known(&prepare.fields))?;
            let types = found.into_iter().map(|parameter| parameter.data_type).collect();
            Ok((Arc::unwrap_or_clone(prepare.input), types))
        }
        _ => Err(DataFusionError::Internal("PREPARE was planned as something else".to_string())),
    }
}

/// Result columns of a plan, as clients see them.
fn columns_of(plan: &LogicalPlan) -> Vec<(String, DataType)> {
    let fields = plan.schema().fields().iter();
    fields.map(|field| (field.name().clone(), client_type(field.data_type()))).collect()
}

/// A type without properties invisible to clients: the memory layout of strings and binary, and the time
/// zone, which is the session's.
fn client_type(of: &DataType) -> DataType {
    match of {
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::List(item) | DataType::LargeList(item) => {
            let item = item.as_ref().clone();
            let plain = client_type(item.data_type());
            DataType::List(Arc::new(item.with_data_type(plain)))
        }
        other => other.clone(),
    }
}

/// The canonical name of a prepared statement.
fn canonical_name(name: &ast::ObjectName) -> String {
    name.0.iter().filter_map(|part| part.as_ident()).map(identifier::plain).collect::<Vec<_>>().join(".")
}

fn name_of(prepare: &ast::Statement) -> Result<String> {
    match prepare {
        ast::Statement::Prepare { name, .. } => Ok(identifier::plain(name)),
        other => Err(DataFusionError::Internal(format!("{other} is not PREPARE"))),
    }
}

/// A number as a NUMERIC with all its written digits.
fn exact_numeric(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Decimal128(Some(_), ..) => Some(value.clone()),
        ScalarValue::Float64(Some(number)) => unknown_literals::parse_numeric(&number.to_string()),
        ScalarValue::Int64(Some(number)) => unknown_literals::parse_numeric(&number.to_string()),
        text => text.try_as_str().flatten().and_then(unknown_literals::parse_numeric),
    }
}

fn not_found(name: &str) -> DataFusionError {
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
        .into_datafusion()
}
