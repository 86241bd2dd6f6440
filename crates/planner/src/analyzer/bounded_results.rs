//! Bounds on the result size and run time of functions.
//!
//! Calls by name resolve to bounded functions. The planner uses other implementations for operators and
//! brackets, such as `ARRAY[…]` and `||` of arrays, and `||` of texts is not a function at all: this rule
//! replaces them by [`harrier_functions::bounded_result`]. A chain of `||` becomes a single call, so that the
//! types of its operands are not derived again for each level. A long text constant that is projected or
//! passed to an aggregate also becomes such a call: it is expanded for every row of a batch. Window
//! aggregates are replaced by [`harrier_functions::window::frame_aggregates`]. Long-running functions are
//! replaced by those of [`harrier_functions::interruptible`], which check for cancellation.
//!
//! ```text
//! a || b || c, texts         ─►  textcat(a, b, c)
//! ARRAY[a, b]                ─►  make_array(a, b), bounded
//! array_agg(x) OVER w        ─►  array_agg_over(x) OVER w
//! array_has_any(a, b)        ─►  array_has_any(a, b), interruptible
//! SELECT 'a long text' AS t  ─►  SELECT textcat('a long text') AS t
//! ```
//!
//! `BoundedResults` can go when DataFusion's functions reserve their results in a memory pool and check for
//! cancellation; technique: admission by size before work.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::window::frame_aggregates::FramedAggregates;
use harrier_functions::{bounded_result, interruptible};

use crate::rewrite::{input_schema, rewrite_expressions};

/// The analyzer rule; runs after all others, which may add such functions.
#[derive(Debug)]
pub struct BoundedResults {
    frame_aggregates: FramedAggregates,
}

impl BoundedResults {
    /// Creates the rule for statements of a process with this runtime environment.
    pub fn new(process: &RuntimeEnv) -> Self {
        Self { frame_aggregates: FramedAggregates::of_process(process) }
    }
}

impl AnalyzerRule for BoundedResults {
    fn name(&self) -> &str {
        "bounded_results"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|plan| bound_plan(plan, &self.frame_aggregates))?.data)
    }
}

fn bound_plan(plan: LogicalPlan, frame_aggregates: &FramedAggregates) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let bounded = rewrite_expressions(plan, |expr| Ok(bound_expr(expr, &schema, frame_aggregates)))?;
    bounded.transform_data(|plan| match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().any(is_long) => {
            let input = projection.input;
            let expressions = projection.expr.into_iter().map(|expr| {
                let is_named = matches!(expr, Expr::Alias(_));
                let name = expr.schema_name().to_string();
                match is_long(&expr) {
                    true if is_named => constant_call(expr),
                    true => constant_call(expr).alias(name),
                    false => expr,
                }
            });
            let projection = Projection::try_new(expressions.collect(), input)?;
            Ok(Transformed::yes(LogicalPlan::Projection(projection)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Whether an expression is a text constant, possibly aliased, above the size limit for constants.
fn is_long(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_long(&alias.expr),
        Expr::Literal(value, _) => value
            .try_as_str()
            .flatten()
            .is_some_and(|text| text.len() as u64 > bounded_result::CONSTANT_BYTES_MAX),
        _ => false,
    }
}

fn constant_call(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(constant_call(*alias.expr));
            Expr::Alias(alias)
        }
        text => {
            Expr::ScalarFunction(ScalarFunction { func: bounded_result::concatenation(), args: vec![text] })
        }
    }
}

fn bound_expr(expr: Expr, schema: &DFSchema, frame_aggregates: &FramedAggregates) -> Transformed<Expr> {
    if let Expr::WindowFunction(call) = &expr
        && let WindowFunctionDefinition::AggregateUDF(aggregate) = &call.fun
        && let Some(kind) = expr.get_type(schema).ok()
        && let Some(aggregate) = frame_aggregates.in_place_of(aggregate, &kind)
    {
        let mut call = call.clone();
        call.fun = WindowFunctionDefinition::AggregateUDF(aggregate);
        return Transformed::yes(Expr::WindowFunction(call));
    }
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            match bounded_result::bounded_version(&func)
                .or_else(|| interruptible::interruptible_version(&func))
            {
                Some(func) => Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })),
                None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let kind = concat_type(&left, schema);
            match kind.filter(|kind| right.get_type(schema).ok().as_ref() == Some(kind)) {
                Some(_) => Transformed::yes(append_operand(*left, *right)),
                None => {
                    Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }))
                }
            }
        }
        Expr::AggregateFunction(mut call) if call.params.args.iter().any(is_long) => {
            let arguments = call.params.args.into_iter();
            let bounded = |argument| if is_long(&argument) { constant_call(argument) } else { argument };
            call.params.args = arguments.map(bounded).collect();
            Transformed::yes(Expr::AggregateFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// The type of the left operand of `||`, if it is a text type.
fn concat_type(left: &Expr, schema: &DFSchema) -> Option<DataType> {
    let first = match left {
        Expr::ScalarFunction(call) if *call.func == *bounded_result::concatenation() => call.args.first()?,
        other => other,
    };
    first.get_type(schema).ok().filter(bounded_result::is_concatenated)
}

fn append_operand(left: Expr, right: Expr) -> Expr {
    let func = bounded_result::concatenation();
    let mut args = match left {
        Expr::ScalarFunction(call) if *call.func == *func => call.args,
        other => vec![other],
    };
    args.push(right);
    Expr::ScalarFunction(ScalarFunction { func, args })
}
