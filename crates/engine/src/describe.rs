//! What a statement expects and returns, found out without running it: for clients that prepare it before they have its values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ExplainFormat, Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_exec::sqlstate::{CodedError, SqlState};
use std::sync::Arc;

use crate::SqlError;
use crate::guard::guarded;
use crate::parameters::{self, Change};
use crate::session::{Form, ParsedStatement, Session};
use crate::warehouse::Control;

/// Parameters of a statement, at most, as in PostgreSQL's protocol.
const PARAMETERS_MAX: usize = 65_535;

/// What is known of a statement before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// The types of `$1`, `$2`, …; text where nothing says another.
    pub parameters: Vec<DataType>,
    /// `None`: it returns no rows.
    pub columns: Option<SchemaRef>,
}

/// How a statement goes together with transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    Plain,
    /// It opens a transaction.
    Begin,
    /// It ends or marks one.
    Control,
    /// It cannot be in a transaction that is not its own.
    Alone,
}

impl ParsedStatement {
    pub fn kind(&self) -> StatementKind {
        let Form::Sql(Statement::Statement(statement)) = &self.form else {
            return StatementKind::Plain;
        };
        match (Control::of(statement), statement.as_ref()) {
            (Some(Control::Begin { .. }), _) => StatementKind::Begin,
            (Some(Control::SetTransaction { .. } | Control::SetCharacteristics { .. }), _) => {
                StatementKind::Plain
            }
            (Some(_), _) => StatementKind::Control,
            (None, ast::Statement::Vacuum(_)) => StatementKind::Alone,
            _ => StatementKind::Plain,
        }
    }

    /// What PostgreSQL says when a statement that returns rows is done.
    pub fn tag(&self) -> &'static str {
        match &self.form {
            Form::Sql(Statement::Explain(_)) => "EXPLAIN",
            Form::Sql(Statement::Statement(statement)) => match statement.as_ref() {
                ast::Statement::Explain { .. } | ast::Statement::ExplainTable { .. } => "EXPLAIN",
                ast::Statement::Call(_) => "CALL",
                statement if parameters::shows_rows(statement) => "SHOW",
                _ => "SELECT",
            },
            _ => "SELECT",
        }
    }

    /// The schema of the statement's rows with its columns called as PostgreSQL calls them.
    pub fn named(&self, schema: &SchemaRef) -> SchemaRef {
        let Some(statement) = self.asked.as_deref() else {
            return Arc::clone(schema);
        };
        let planned: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let names = harrier_pgcatalog::column_names(statement, &planned);
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

    /// The statement with values for its parameters.
    pub fn with_values(&self, values: Vec<ScalarValue>) -> Self {
        Self { values: values.into(), ..self.clone() }
    }
}

impl Session {
    /// What `statement` expects and returns. `types`: those of its parameters that are known.
    ///
    /// Errors: those of planning it.
    pub async fn describe(
        &self,
        statement: &ParsedStatement,
        types: &[Option<DataType>],
    ) -> Result<Described, SqlError> {
        let described = guarded(Box::pin(self.described(statement, types))).await;
        described.map_err(|error| SqlError::in_statement(&error, &statement.text))
    }

    async fn described(&self, statement: &ParsedStatement, types: &[Option<DataType>]) -> Result<Described> {
        let Form::Sql(parsed) = &statement.form else {
            return Ok(Described::default());
        };
        match Change::of(parsed) {
            Some(change) => return Ok(Described { parameters: vec![], columns: change.columns() }),
            None => {}
        }
        let returns_rows = returns_rows(parsed);
        if !returns_rows && !may_have_parameters(parsed) {
            return Ok(Described::default());
        }
        let Some(kept) = self.kept() else {
            return self.planned(parsed, returns_rows, types, &BTreeSet::new()).await;
        };
        // Nothing but its place tells that a parameter is an array.
        let arrays = statement.asked.as_deref().map(array_parameters).unwrap_or_default();
        kept.transactions.begin_statement().await?;
        self.prepare_statement(statement).await?;
        match self.planned(parsed, returns_rows, types, &arrays).await {
            Ok(described) => {
                kept.transactions.end_statement().await?;
                Ok(described)
            }
            Err(error) => {
                kept.transactions.fail_statement().await;
                Err(error)
            }
        }
    }

    async fn planned(
        &self,
        parsed: &Statement,
        returns_rows: bool,
        types: &[Option<DataType>],
        arrays: &BTreeSet<usize>,
    ) -> Result<Described> {
        let plan = self.plan(parsed, &[]).await?;
        let mut guessed = cast_parameters(&plan)?;
        for number in arrays {
            guessed.entry(*number).or_insert_with(|| DataType::new_list(DataType::Utf8, true));
        }
        let parameters = parameters_of(&plan, types, &guessed)?;
        if !returns_rows {
            return Ok(Described { parameters, columns: None });
        }
        if let LogicalPlan::Explain(asked) = &plan
            && matches!(asked.explain_format, ExplainFormat::Indent | ExplainFormat::PostgresJSON)
        {
            let columns = Some(query_plan());
            return Ok(Described { parameters, columns });
        }
        if let LogicalPlan::Analyze(asked) = &plan
            && asked.format == ExplainFormat::Indent
        {
            return Ok(Described { parameters, columns: Some(query_plan()) });
        }
        let columns = Some(columns(&self.context().state(), plan, &parameters)?);
        Ok(Described { parameters, columns })
    }
}

fn query_plan() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

/// Whether the statement is one that answers with rows.
fn returns_rows(statement: &Statement) -> bool {
    match statement {
        Statement::Explain(_) => true,
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Query(_)
            | ast::Statement::Explain { .. }
            | ast::Statement::ExplainTable { .. }
            | ast::Statement::Execute { .. } => true,
            statement => parameters::shows_rows(statement),
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

/// The numbers of parameters that stand where an array has to.
fn array_parameters(statement: &ast::Statement) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let number = |expr: &ast::Expr| match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(name) => name.strip_prefix('$').and_then(|number| number.parse().ok()),
            _ => None,
        },
        _ => None,
    };
    let _ = ast::visit_expressions(statement, |expr| {
        let array = match expr {
            ast::Expr::AnyOp { right, .. } | ast::Expr::AllOp { right, .. } => number(right),
            ast::Expr::Cast { expr, data_type: ast::DataType::Array(_), .. } => number(expr),
            _ => None,
        };
        found.extend(array.filter(|number| (1..=PARAMETERS_MAX).contains(number)));
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Parameters that are what a cast says, as PostgreSQL takes them to be: by number, the type of the first cast of each.
fn cast_parameters(plan: &LogicalPlan) -> Result<BTreeMap<usize, DataType>> {
    let mut found = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let (inner, field) = match expr {
                    Expr::Cast(cast) => (&cast.expr, &cast.field),
                    Expr::TryCast(cast) => (&cast.expr, &cast.field),
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                if let Expr::Placeholder(placeholder) = inner.as_ref()
                    && let Some(number) = placeholder.id.strip_prefix('$')
                    && let Ok(number @ 1..=PARAMETERS_MAX) = number.parse()
                {
                    found.entry(number).or_insert_with(|| sent_as(field.data_type()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// What a client sends for a value that is cast to a type: all that the value has, of which the cast takes what fits.
fn sent_as(data_type: &DataType) -> DataType {
    match plain(data_type.clone()) {
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => DataType::Decimal128(38, 10),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other,
    }
}

/// The types of the parameters in their order. `known`: what is said of them; `guessed`: what their places say.
fn parameters_of(
    plan: &LogicalPlan,
    known: &[Option<DataType>],
    guessed: &BTreeMap<usize, DataType>,
) -> Result<Vec<DataType>> {
    let mut numbered = BTreeMap::new();
    for (name, found) in plan.get_parameter_types()? {
        let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        match number {
            Some(number @ 1..=PARAMETERS_MAX) => drop(numbered.insert(number, found)),
            _ => {
                let message = format!("there is no parameter {name}");
                return Err(CodedError::new(SqlState::literal("42P02"), message).into());
            }
        }
    }
    let last = |numbers: Option<&usize>| numbers.copied().unwrap_or(0);
    let count = last(numbered.keys().next_back()).max(last(guessed.keys().next_back())).max(known.len());
    Ok((1..=count)
        .map(|number| {
            let known = known.get(number - 1).cloned().flatten();
            let planned = || numbered.get(&number).cloned().flatten().map(plain);
            let found = || guessed.get(&number).cloned().or_else(planned);
            known.or_else(found).filter(|found| *found != DataType::Null).unwrap_or(DataType::Utf8)
        })
        .collect())
}

/// A type as values of clients can have it.
pub(crate) fn plain(data_type: DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain(*value),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        other => other,
    }
}

/// The columns of a query, with NULLs in place of its parameters.
fn columns(state: &SessionState, plan: LogicalPlan, parameters: &[DataType]) -> Result<SchemaRef> {
    let nulls = parameters.iter().map(ScalarValue::try_from).collect::<Result<Vec<_>>>()?;
    let plan = with_values(plan, &nulls)?;
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(Arc::clone(analyzed.schema().inner()))
}

/// The plan with values in place of its parameters.
pub(crate) fn with_values(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    if values.is_empty() {
        return Ok(plan);
    }
    let values = values.iter().map(|value| ScalarAndMetadata::new(value.clone(), None)).collect();
    let replaced = plan.replace_params_with_values(&ParamValues::List(values))?;
    match replaced {
        LogicalPlan::Statement(_) => {
            Err(DataFusionError::Internal("a statement has no parameters".to_string()))
        }
        plan => Ok(plan),
    }
}
