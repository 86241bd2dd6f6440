//! `nextval` and related functions. They call the catalog, so a plan with one stays in the coordinator's
//! process; the values for a batch of rows are allocated at once.
//!
//! # Invariants
//!
//! Every call in a statement is a distinct function to the planner ([`DistinctCalls`]): two identical calls
//! yield two values, but DataFusion would evaluate them once. Column names do not depend on it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::config::{ConfigNonZeroUsize, ConfigOptions};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;
use harrier_error::{SqlError, SqlState};
use harrier_planner::rewrite::rewrite_expressions;
use harrier_sqlstate::IntoDataFusionError;

use crate::warehouse::sequences::calls::{Call, call_of};
use crate::warehouse::sequences::values::SequenceName;
use crate::warehouse::session::WarehouseSession;

/// Registers the functions of a session, replacing others of the same names. Without a warehouse they fail.
pub(crate) fn register(context: &SessionContext, warehouse: Option<&Arc<WarehouseSession>>) {
    for call in Call::ALL {
        let warehouse = warehouse.map_or_else(Weak::new, Arc::downgrade);
        context.register_udf(SequenceFunction::new(call, 0, warehouse).into_udf());
    }
}

/// Registers the analyzer rule of a session. To be called once.
pub(crate) fn add_rule(context: &SessionContext, warehouse: Option<&Arc<WarehouseSession>>) {
    let warehouse = warehouse.map_or_else(Weak::new, Arc::downgrade);
    context.add_analyzer_rule(Arc::new(DistinctCalls { warehouse }));
}

#[derive(Debug)]
struct SequenceFunction {
    call: Call,
    /// Distinguishes the calls of a statement.
    number: u64,
    warehouse: Weak<WarehouseSession>,
    signature: Signature,
}

impl PartialEq for SequenceFunction {
    fn eq(&self, other: &Self) -> bool {
        self.call == other.call && self.number == other.number
    }
}

impl Eq for SequenceFunction {}

impl Hash for SequenceFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.call, self.number).hash(state);
    }
}

impl SequenceFunction {
    fn new(call: Call, number: u64, warehouse: Weak<WarehouseSession>) -> Self {
        Self { call, number, warehouse, signature: call.signature() }
    }

    fn into_udf(self) -> ScalarUDF {
        AsyncScalarUDF::new(Arc::new(self)).into_scalar_udf()
    }

    async fn evaluate(&self, args: ScalarFunctionArgs) -> Result<Int64Array> {
        let Some(warehouse) = self.warehouse.upgrade() else {
            let message = "sequences are kept in a warehouse";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("--warehouse DIR")
                .into_datafusion());
        };
        let rows = args.number_rows;
        if matches!(self.call, Call::NextVal | Call::NextOf | Call::SetVal) {
            warehouse.check_can_write(self.call.name()).await?;
        }
        if self.call == Call::LastVal {
            return (0..rows).map(|_| warehouse.last_value().map(Some)).collect();
        }
        // One sequence: all values are allocated at once.
        if let (Call::NextVal | Call::NextOf, [ColumnarValue::Scalar(name)]) =
            (self.call, args.args.as_slice())
        {
            let Some(named) = self.sequence_name(name)? else { return Ok(Int64Array::new_null(rows)) };
            return Ok(warehouse.next_values(&named, rows).await?.into());
        }
        let columns: Vec<ArrayRef> =
            args.args.iter().map(|column| column.clone().into_array(rows)).collect::<Result<_>>()?;
        let mut answers = Vec::with_capacity(rows);
        for row in 0..rows {
            if columns.iter().any(|column| column.is_null(row)) {
                answers.push(None);
                continue;
            }
            let Some(named) = self.sequence_name(&ScalarValue::try_from_array(&columns[0], row)?)? else {
                answers.push(None);
                continue;
            };
            answers.push(Some(match self.call {
                Call::CurrVal => warehouse.current_value(&named)?,
                Call::SetVal => {
                    let value = columns[1].as_primitive::<Int64Type>().value(row);
                    let is_called = match columns.get(2) {
                        Some(column) => as_boolean_array(column)?.value(row),
                        None => true,
                    };
                    warehouse.set_value(&named, value, is_called).await?
                }
                _ => warehouse.next_values(&named, 1).await?[0],
            }));
        }
        Ok(answers.into())
    }

    fn sequence_name(&self, name: &ScalarValue) -> Result<Option<SequenceName>> {
        Ok(match name {
            ScalarValue::Utf8(name) => name.clone().map(|name| match self.call {
                Call::NextOf => SequenceName::Uuid(name),
                _ => SequenceName::Text(name),
            }),
            ScalarValue::Int64(oid) => oid.map(SequenceName::Oid),
            other if other.is_null() => None,
            other => return Err(DataFusionError::Internal(format!("{other} names no sequence"))),
        })
    }
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        self.call.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let message = format!("{} is not supported at this place of a statement", self.name());
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for SequenceFunction {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Array(Arc::new(self.evaluate(args).await?)))
    }
}

/// The rule that makes every call a distinct function.
#[derive(Debug)]
struct DistinctCalls {
    warehouse: Weak<WarehouseSession>,
}

/// Counts calls of all sessions.
static CALLS: AtomicU64 = AtomicU64::new(1);

impl AnalyzerRule for DistinctCalls {
    fn name(&self) -> &str {
        "distinct_calls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan
            .transform_up_with_subqueries(|node| rewrite_expressions(node, |expr| Ok(self.distinct(expr))))?
            .data)
    }
}

impl DistinctCalls {
    fn distinct(&self, expr: Expr) -> Transformed<Expr> {
        let call = call_of(&expr);
        match (call, expr) {
            (Some(call), Expr::ScalarFunction(ScalarFunction { args, .. })) => {
                let number = CALLS.fetch_add(1, Ordering::Relaxed);
                let one = SequenceFunction::new(call, number, Weak::clone(&self.warehouse)).into_udf();
                Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(one), args)))
            }
            (_, expr) => Transformed::no(expr),
        }
    }
}

/// Session settings for a plan with sequence functions: a single partition, and one row per batch if calls
/// can observe each other. `None` if the plan has no such call.
pub(crate) fn settings(state: &SessionState, plan: &LogicalPlan) -> Result<Option<SessionState>> {
    let mut calls: Vec<Call> = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                calls.extend(call_of(part));
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if calls.is_empty() {
        return Ok(None);
    }
    // Columns have sequences of their own. For other functions, all calls for one row must precede those for
    // the next.
    let is_one_at_a_time = calls.len() > 1 && calls.iter().any(|call| *call != Call::NextOf);
    let mut state = state.clone();
    let options = &mut state.config_mut().options_mut().execution;
    options.target_partitions = 1;
    if is_one_at_a_time {
        options.batch_size = ConfigNonZeroUsize::try_new(1)?;
    }
    Ok(Some(state))
}
