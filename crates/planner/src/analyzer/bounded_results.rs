//! Bounds for what makes large values or takes long, wherever it comes from.
//!
//! Statements that call such a function by its name find the one with bounds. The planner has others at hand
//! for operators and brackets, such as `ARRAY[…]` and `||` of arrays, and `||` of texts is no function at
//! all: this rule puts [`harrier_functions::bounded_result`] in their place. A chain of `||` becomes one
//! call, so that the type of each part is not looked up again for every other one. A long text that a
//! statement has for a column, or gives to an aggregate, is one of these calls, too: it is written out for
//! every row of a batch. Aggregates over windows become those of
//! [`harrier_functions::window::frame_aggregates`]. Functions that take long become those of
//! [`harrier_functions::interruptible`], which hear that their statement is given up.
//!
//! ```text
//! a || b || c, texts         ─►  textcat(a, b, c)
//! ARRAY[a, b]                ─►  make_array(a, b), that with a bound
//! array_agg(x) OVER w        ─►  array_agg_over(x) OVER w
//! array_has_any(a, b)        ─►  array_has_any(a, b), that can be interrupted
//! SELECT 'a long text' AS t  ─►  SELECT textcat('a long text') AS t
//! ```
//!
//! `BoundedResults` can go when functions of DataFusion ask a memory pool for their results and hear of
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

/// The rule; to stand behind all others, which may bring such functions in.
#[derive(Debug)]
pub struct BoundedResults {
    framed: FramedAggregates,
}

impl BoundedResults {
    /// For statements of a process with this environment.
    pub fn new(process: &RuntimeEnv) -> Self {
        Self { framed: FramedAggregates::of_process(process) }
    }
}

impl AnalyzerRule for BoundedResults {
    fn name(&self) -> &str {
        "bounded_results"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|plan| bounded(plan, &self.framed))?.data)
    }
}

fn bounded(plan: LogicalPlan, framed: &FramedAggregates) -> Result<Transformed<LogicalPlan>> {
    let schema = input_schema(&plan)?;
    let bounded = rewrite_expressions(plan, |expr| Ok(replaced(expr, &schema, framed)))?;
    bounded.transform_data(|plan| match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().any(is_long) => {
            let input = projection.input;
            let expressions = projection.expr.into_iter().map(|expr| {
                let is_named = matches!(expr, Expr::Alias(_));
                let name = expr.schema_name().to_string();
                match is_long(&expr) {
                    true if is_named => constant(expr),
                    true => constant(expr).alias(name),
                    false => expr,
                }
            });
            let projection = Projection::try_new(expressions.collect(), input)?;
            Ok(Transformed::yes(LogicalPlan::Projection(projection)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Whether it is a text, by whatever name, that a statement brings along and that is longer than what the
/// planner would make of one.
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

fn constant(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(mut alias) => {
            alias.expr = Box::new(constant(*alias.expr));
            Expr::Alias(alias)
        }
        text => {
            Expr::ScalarFunction(ScalarFunction { func: bounded_result::concatenation(), args: vec![text] })
        }
    }
}

fn replaced(expr: Expr, schema: &DFSchema, framed: &FramedAggregates) -> Transformed<Expr> {
    if let Expr::WindowFunction(call) = &expr
        && let WindowFunctionDefinition::AggregateUDF(aggregate) = &call.fun
        && let Some(kind) = expr.get_type(schema).ok()
        && let Some(aggregate) = framed.in_place_of(aggregate, &kind)
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
            let kind = concatenated(&left, schema);
            match kind.filter(|kind| right.get_type(schema).ok().as_ref() == Some(kind)) {
                Some(_) => Transformed::yes(chained(*left, *right)),
                None => {
                    Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }))
                }
            }
        }
        Expr::AggregateFunction(mut call) if call.params.args.iter().any(is_long) => {
            let arguments = call.params.args.into_iter();
            let bounded = |argument| if is_long(&argument) { constant(argument) } else { argument };
            call.params.args = arguments.map(bounded).collect();
            Transformed::yes(Expr::AggregateFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// The type of the left side of `||`, if it is that of texts.
fn concatenated(left: &Expr, schema: &DFSchema) -> Option<DataType> {
    let first = match left {
        Expr::ScalarFunction(call) if *call.func == *bounded_result::concatenation() => call.args.first()?,
        other => other,
    };
    first.get_type(schema).ok().filter(bounded_result::is_concatenated)
}

fn chained(left: Expr, right: Expr) -> Expr {
    let func = bounded_result::concatenation();
    let mut args = match left {
        Expr::ScalarFunction(call) if *call.func == *func => call.args,
        other => vec![other],
    };
    args.push(right);
    Expr::ScalarFunction(ScalarFunction { func, args })
}
