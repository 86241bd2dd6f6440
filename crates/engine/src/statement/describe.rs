//! Describes a statement's parameters and result columns without running it, for clients that prepare it
//! before they have the values.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ExplainFormat, Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_planner::rewrite::{input_schema, rewrite_expressions};
use harrier_session_api::statement::{Description, StatementKind};
use harrier_sql::tokens::explain_options::Format;

use crate::SqlError;
use crate::binder::parameter_types::{self, NUMERIC};
use crate::binder::{column_origins, type_names};
use crate::planning::returning_items;
use crate::runtime::panic_guard::catch_panic;
use crate::session::Session;
use crate::settings::parameters::{self, Change};
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::returning::{self, Returning};
use crate::statement::{explain, outcome};
use crate::types::names;
use crate::warehouse::transaction::Control;

impl ParsedStatement {
    /// Whether it is a plain query.
    pub(crate) fn is_query(&self) -> bool {
        match &self.form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => {
                matches!(statement.as_ref(), ast::Statement::Query(_))
            }
            _ => false,
        }
    }

    pub fn kind(&self) -> StatementKind {
        let statement = match &self.form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => statement,
            harrier_sql::Statement::Optimize(_) | harrier_sql::Statement::Vacuum(_) => {
                return StatementKind::Alone;
            }
            _ => return StatementKind::Plain,
        };
        match (Control::of(statement), statement.as_ref()) {
            (Some(Control::Begin { .. }), _) => StatementKind::Begin,
            (Some(Control::SetTransaction { .. } | Control::SetCharacteristics { .. }), _) => {
                StatementKind::Plain
            }
            (Some(_), _) => StatementKind::Control,
            _ => StatementKind::Plain,
        }
    }

    /// PostgreSQL's command tag of a statement that returns rows.
    pub fn tag(&self) -> &'static str {
        match &self.form {
            harrier_sql::Statement::Sql(Statement::Explain(_)) => "EXPLAIN",
            harrier_sql::Statement::CheckTable(_) => "CHECK TABLE",
            harrier_sql::Statement::VacuumDryRun => "VACUUM",
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => match statement.as_ref() {
                ast::Statement::Explain { .. } | ast::Statement::ExplainTable { .. } => "EXPLAIN",
                ast::Statement::Call(_) => "CALL",
                statement if returning_items::items(statement).is_some() => returning::verb(statement),
                statement if parameters::shows_rows(statement) => "SHOW",
                _ => "SELECT",
            },
            _ => "SELECT",
        }
    }

    /// Whether it returns rows, as far as its text tells.
    pub fn has_rows(&self) -> bool {
        match &self.form {
            harrier_sql::Statement::Sql(Statement::Statement(statement)) => match statement.as_ref() {
                ast::Statement::Query(query) => !matches!(
                    query.body.as_ref(),
                    ast::SetExpr::Insert(_)
                        | ast::SetExpr::Update(_)
                        | ast::SetExpr::Delete(_)
                        | ast::SetExpr::Merge(_)
                ),
                statement => {
                    returning_items::items(statement).is_some()
                        || parameters::shows_rows(statement)
                        || matches!(
                            statement,
                            ast::Statement::Explain { .. }
                                | ast::Statement::ExplainTable { .. }
                                | ast::Statement::ShowTables { .. }
                                | ast::Statement::ShowColumns { .. }
                                | ast::Statement::ShowFunctions { .. }
                                | ast::Statement::ShowCreate { .. }
                        )
                }
            },
            harrier_sql::Statement::Sql(Statement::Explain(_))
            | harrier_sql::Statement::CheckTable(_)
            | harrier_sql::Statement::VacuumDryRun => true,
            _ => false,
        }
    }

    /// The command tag of a statement with RETURNING that returned `rows` rows; `None` if it writes nothing.
    pub fn returning_tag(&self, rows: usize) -> Option<String> {
        let harrier_sql::Statement::Sql(Statement::Statement(statement)) = &self.form else { return None };
        returning_items::items(statement)?;
        Some(match returning::verb(statement) {
            "INSERT" => format!("INSERT 0 {rows}"),
            verb => format!("{verb} {rows}"),
        })
    }

    /// Whether it is CHECK TABLE, which returns a row per problem.
    pub fn is_check_table(&self) -> bool {
        matches!(self.form, harrier_sql::Statement::CheckTable(_))
    }

    /// Renames the result columns of `schema` as PostgreSQL names them.
    pub fn rename_columns(&self, schema: &SchemaRef) -> SchemaRef {
        let Some(statement) = self.original.as_deref() else {
            return Arc::clone(schema);
        };
        // EXPLAIN has columns of its own.
        if matches!(self.form, harrier_sql::Statement::Sql(Statement::Explain(_))) {
            return Arc::clone(schema);
        }
        with_postgres_names(statement, schema)
    }

    /// Binds values to the statement's parameters.
    pub fn with_values(&self, values: Vec<ScalarValue>) -> Self {
        Self { values: values.into(), ..self.clone() }
    }
}

impl Session {
    /// Describes `statement`. `types`: parameter types known to the client.
    ///
    /// Errors: those of planning it.
    pub async fn describe(
        &self,
        statement: &ParsedStatement,
        types: &[Option<DataType>],
    ) -> Result<Description, SqlError> {
        let described = catch_panic(Box::pin(self.describe_in_transaction(statement, types))).await;
        described.map_err(|error| crate::error::in_statement(&error, &statement.text))
    }

    async fn describe_in_transaction(
        &self,
        statement: &ParsedStatement,
        types: &[Option<DataType>],
    ) -> Result<Description> {
        let harrier_sql::Statement::Sql(parsed) = &statement.form else {
            return Ok(Description {
                columns: outcome::text_columns(&statement.form),
                ..Description::default()
            });
        };
        if let Some(change) = Change::of(parsed) {
            return Ok(Description { columns: change.columns(), ..Description::default() });
        }
        let returns_rows = returns_rows(parsed);
        if !returns_rows && !may_have_parameters(parsed) {
            return Ok(Description::default());
        }
        let original = statement.original.as_deref();
        let format = statement.explain.format;
        let Some(warehouse) = self.warehouse() else {
            return self.describe_plan(parsed, returns_rows, types, original, format).await;
        };
        if !warehouse.transactions.is_open() {
            warehouse.names.run_on_commit().await?;
        }
        warehouse.transactions.begin_statement().await?;
        self.prepare_statement(statement).await?;
        match self.describe_plan(parsed, returns_rows, types, original, format).await {
            Ok(described) => {
                warehouse.transactions.end_statement().await?;
                Ok(described)
            }
            Err(error) => {
                warehouse.transactions.fail_statement().await;
                Err(error)
            }
        }
    }

    /// Renames the columns of an EXECUTE's result as PostgreSQL names them; leaves other statements' columns
    /// unchanged.
    pub(crate) fn rename_executed(&self, statement: &Statement, schema: SchemaRef) -> SchemaRef {
        match self.prepared_statements().original(statement) {
            Some(original) => with_postgres_names(&original, &schema),
            None => schema,
        }
    }

    async fn describe_plan(
        &self,
        parsed: &Statement,
        returns_rows: bool,
        types: &[Option<DataType>],
        original: Option<&ast::Statement>,
        format: Format,
    ) -> Result<Description> {
        let returning = Returning::of(parsed)?;
        let change = returning.as_ref().map_or(parsed, |returning| &returning.change);
        let filled = self.with_column_list(change).await;
        let plan = self.plan(filled.as_ref().unwrap_or(change), &[]).await?;
        let answer = match &returning {
            Some(returning) => Some(self.plan_of_answer(returning, &[]).await?),
            None => None,
        };
        let plans: Vec<&LogicalPlan> = [&plan].into_iter().chain(&answer).collect();
        let found = parameter_types::of(&plans, original, types)?;
        let names = found.iter().map(|parameter| parameter.name.clone()).collect();
        let parameters: Vec<DataType> = found.into_iter().map(|parameter| parameter.data_type).collect();
        if !returns_rows {
            return Ok(Description { parameters, names, columns: None });
        }
        if let LogicalPlan::Explain(explain) = &plan
            && matches!(explain.explain_format, ExplainFormat::Indent | ExplainFormat::PostgresJSON)
        {
            let columns = Some(explain::query_plan(format));
            return Ok(Description { parameters, names, columns });
        }
        if let LogicalPlan::Analyze(explain) = &plan
            && matches!(explain.format, ExplainFormat::Indent | ExplainFormat::PostgresJSON)
        {
            return Ok(Description { parameters, names, columns: Some(explain::query_plan(format)) });
        }
        let plan = answer.unwrap_or(plan);
        let origins = self.origins(&plan);
        let columns =
            column_origins::with_origins(&columns(&self.context().state(), plan, &parameters)?, &origins);
        let columns = self.rename_executed(parsed, columns);
        Ok(Description { parameters, names, columns: Some(columns) })
    }
}

/// `schema` with PostgreSQL's column names for `statement`, as the client sent it.
pub(crate) fn with_postgres_names(statement: &ast::Statement, schema: &SchemaRef) -> SchemaRef {
    let planned: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let listed = returning_items::as_query(statement);
    let names = harrier_sql::column_names::column_names(listed.as_ref().unwrap_or(statement), &planned);
    let fields: Vec<FieldRef> = schema
        .fields()
        .iter()
        .zip(names)
        .map(|(field, name)| match *field.name() == name {
            true => Arc::clone(field),
            false => Arc::new(Field::clone(field).with_name(name)),
        })
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Whether the statement returns rows.
fn returns_rows(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(_) => true,
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Query(_)
            | ast::Statement::Explain { .. }
            | ast::Statement::ExplainTable { .. }
            | ast::Statement::Execute { .. } => true,
            statement => returning_items::items(statement).is_some() || parameters::shows_rows(statement),
        },
        _ => false,
    }
}

fn may_have_parameters(statement: &Statement) -> bool {
    let Statement::Statement(statement) = statement else {
        return false;
    };
    matches!(
        statement.as_ref(),
        ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Merge(_)
            | ast::Statement::CreateTable(_)
            | ast::Statement::CreateView(_)
    )
}

/// The columns of a query, planned with NULLs for its parameters.
fn columns(state: &SessionState, plan: LogicalPlan, parameters: &[DataType]) -> Result<SchemaRef> {
    let nulls = parameters.iter().map(ScalarValue::try_from).collect::<Result<Vec<_>>>()?;
    let plan = with_values(plan, &nulls)?;
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(names::with_type_names(analyzed.schema().inner(), &type_names::of(&analyzed)))
}

/// Casts decimals that are searched in an array parameter, as in `n = ANY ($1)`, to the type of its elements:
/// `array_has` finds no common type for decimals of different scales.
fn widen_needles(plan: LogicalPlan) -> Result<LogicalPlan> {
    let DataType::Decimal128(precision, scale) = NUMERIC else { return Ok(plan) };
    let integer_digits = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
    let widened = plan.transform_up_with_subqueries(|node| {
        let schema = input_schema(&node)?;
        rewrite_expressions(node, |mut expr| {
            let Expr::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
            let is_search = call.name() == "array_has";
            let [Expr::Placeholder(_), needle] = call.args.as_mut_slice() else {
                return Ok(Transformed::no(expr));
            };
            let fits = match needle.get_type(&schema) {
                Ok(DataType::Decimal128(own, digits)) => {
                    (own, digits) != (precision, scale)
                        && digits <= scale
                        && integer_digits(own, digits) <= integer_digits(precision, scale)
                }
                Ok(DataType::Decimal32(..) | DataType::Decimal64(..)) => true,
                _ => false,
            };
            if is_search && fits {
                *needle = cast(std::mem::take(needle), NUMERIC);
                return Ok(Transformed::yes(expr));
            }
            Ok(Transformed::no(expr))
        })
    })?;
    Ok(widened.data)
}

/// Substitutes values for the plan's parameters.
pub(crate) fn with_values(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    if values.is_empty() {
        return Ok(plan);
    }
    let is_decimals = |kind: &DataType| matches!(kind, DataType::List(item) if item.data_type().is_decimal());
    let plan = match values.iter().any(|value| is_decimals(&value.data_type())) {
        true => widen_needles(plan)?,
        false => plan,
    };
    let values = values.iter().map(|value| ScalarAndMetadata::new(value.clone(), None)).collect();
    let replaced = plan.replace_params_with_values(&ParamValues::List(values))?;
    match replaced {
        LogicalPlan::Statement(_) => {
            Err(DataFusionError::Internal("a statement has no parameters".to_string()))
        }
        plan => Ok(plan),
    }
}
