//! Computes aggregates in a subquery whose columns all belong to a query around it, as `SELECT (SELECT
//! max(t.y) FROM t WHERE t.y < sum(o.x)) FROM o`.
//!
//! In the SQL standard, such an aggregate belongs to the outer query and aggregates its rows. DataFusion
//! would aggregate the rows of the subquery, or reject it in a WHERE.
//!
//! ```text
//! Projection: o.k, (subquery: t.y < max⟨o.x⟩)       Projection: o.k, (subquery: t.y < outer_ref(max(o.x)))
//!   Aggregate: by o.k                           ─►    Aggregate: by o.k, max(o.x)
//!     o                                                 o
//!
//! SELECT (SELECT max(o.x + t.y) FROM t) FROM o  ─►  the same: it aggregates the rows of t
//! ```
//! The planner of expressions sees such an aggregate first, and makes a function without arguments of it that
//! keeps it; the rule moves it to the query that its columns belong to.
//!
//! `OuterLevelAggregates` and `OuterAggregatePlanner` can go when DataFusion assigns an aggregate of outer
//! columns only to the outer query; no issue was found.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::analyzer::decorrelation::references::{subquery_of, with_plan};

/// Plans an aggregate of outer columns alone as an [`OuterAggregate`].
#[derive(Debug)]
pub(crate) struct OuterAggregatePlanner;

// Errors: an aggregate of outer columns has another one in its arguments (42803).
impl ExprPlanner for OuterAggregatePlanner {
    fn plan_aggregate(&self, raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        let orders = raw.order_by.iter().map(|sort| &sort.expr);
        let mut columns: Vec<(Column, FieldRef)> = Vec::new();
        let (mut is_outer, mut has_nested) = (true, false);
        for expr in raw.args.iter().chain(raw.filter.as_deref()).chain(orders) {
            expr.apply(|part| {
                match part {
                    Expr::OuterReferenceColumn(field, column) => {
                        if !columns.iter().any(|(known, _)| known == column) {
                            columns.push((column.clone(), Arc::clone(field)));
                        }
                    }
                    Expr::Column(_) => is_outer = false,
                    other => {
                        is_outer &= subquery_of(other).is_none();
                        has_nested |= outer_aggregate(other).is_some();
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        // Both belong to the same query.
        if is_outer && has_nested {
            let message = "aggregate function calls cannot be nested";
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).into_datafusion());
        }
        if !is_outer || columns.is_empty() {
            return Ok(PlannerResult::Original(raw));
        }
        let RawAggregateExpr { func, args, distinct, filter, order_by, null_treatment } = raw;
        let aggregate = AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
        let aggregate = Expr::AggregateFunction(aggregate).transform(|part| match part {
            Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
            // `count(*)`, as the planner has it.
            #[expect(deprecated, reason = "there is no other yet")]
            Expr::Wildcard { .. } => Ok(Transformed::yes(Expr::Literal(COUNT_STAR_EXPANSION, None))),
            other => Ok(Transformed::no(other)),
        })?;
        let fields = columns.iter().map(|(column, field)| {
            (column.relation.clone(), Arc::new(field.as_ref().clone().with_name(&column.name)))
        });
        let schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
        let (_, field) = aggregate.data.to_field(&schema)?;
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        let function = OuterAggregate { aggregate: aggregate.data, columns, field, signature: nullary() };
        let function = ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(function)))
    }
}

fn nullary() -> Signature {
    Signature::nullary(Volatility::Volatile)
}

/// An aggregate of an outer query, until the rule has moved it there.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OuterAggregate {
    /// Of columns of the outer query.
    aggregate: Expr,
    columns: Vec<Column>,
    field: FieldRef,
    signature: Signature,
}

impl ScalarUDFImpl for OuterAggregate {
    fn name(&self) -> &str {
        "harrier_outer_aggregate"
    }

    fn display_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.aggregate.schema_name().to_string())
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.aggregate.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("an aggregate of an outer query was not moved there")
    }
}

/// The analyzer rule. Errors: an aggregate stands in the WHERE of the query that it belongs to, or beside
/// columns that are no groups (42803); it belongs to a query in whose FROM the subquery stands (0A000).
#[derive(Debug)]
pub struct OuterLevelAggregates;

impl AnalyzerRule for OuterLevelAggregates {
    fn name(&self) -> &str {
        "outer_level_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        reject_nested(&plan)?;
        if !has_outer_aggregate(&plan)? {
            return Ok(plan);
        }
        // A changed node changes the columns of the nodes above.
        let placed = plan.transform_up_with_subqueries(|node| {
            let node = node.recompute_schema()?;
            Ok(Transformed::yes(place(node)?))
        })?;
        if has_outer_aggregate(&placed.data)? { Err(no_support()) } else { Ok(placed.data) }
    }
}

fn no_support() -> DataFusionError {
    let message = "an aggregate of columns of an outer query alone is not supported in a subquery";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion()
}

/// Errors: an aggregate has a subquery for its argument, and belongs to an outer query by that (0A000).
fn reject_nested(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|plan| {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(TreeNodeRecursion::Continue) };
        for expr in &aggregate.aggr_expr {
            expr.apply(|expr| match expr {
                Expr::AggregateFunction(function) if is_outer(function, aggregate.input.schema())? => {
                    Err(no_support())
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether an aggregate over rows with the schema `own` refers to outer columns only.
fn is_outer(function: &AggregateFunction, own: &DFSchema) -> Result<bool> {
    let (mut has_own, mut has_outer) = (false, false);
    let params = &function.params;
    let orders = params.order_by.iter().map(|sort| &sort.expr);
    for expr in params.args.iter().chain(params.filter.as_deref()).chain(orders) {
        expr.apply(|expr| {
            match expr {
                Expr::Column(_) => has_own = true,
                Expr::OuterReferenceColumn(..) => has_outer = true,
                other => {
                    for column in subquery_of(other).into_iter().flat_map(|nested| &nested.outer_ref_columns)
                    {
                        match column {
                            Expr::OuterReferenceColumn(_, column) if own.has_column(column) => has_own = true,
                            _ => has_outer = true,
                        }
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(has_outer && !has_own)
}

fn has_outer_aggregate(plan: &LogicalPlan) -> Result<bool> {
    let mut found = vec![];
    collect(plan, &mut found)?;
    Ok(!found.is_empty())
}

fn outer_aggregate(expr: &Expr) -> Option<&OuterAggregate> {
    let Expr::ScalarFunction(function) = expr else { return None };
    let function: &dyn Any = function.func.inner().as_ref();
    function.downcast_ref()
}

/// Adds the aggregates of outer queries in a plan and in its subqueries.
fn collect(plan: &LogicalPlan, found: &mut Vec<(Expr, Vec<Column>)>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Some(outer) = outer_aggregate(part)
                    && !found.iter().any(|(known, _)| *known == outer.aggregate)
                {
                    found.push((outer.aggregate.clone(), outer.columns.clone()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Moves the aggregates in the subqueries of this node that belong to its query.
fn place(node: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = vec![];
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                collect(&subquery.subquery, &mut found)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if found.is_empty() {
        return Ok(node);
    }
    let [input] = node.inputs()[..] else { return Ok(node) };
    let grouped = aggregate_below(input);
    let rows = grouped.as_ref().map_or_else(|| input.schema(), |aggregate| aggregate.input.schema());
    found.retain(|(_, columns)| columns.iter().all(|column| rows.has_column(column)));
    if found.is_empty() {
        return Ok(node);
    }
    let input = match grouped {
        Some(_) => {
            let aggregates = found.iter().map(|(aggregate, _)| aggregate.clone()).collect();
            with_aggregates(input.clone(), aggregates)?
        }
        None if matches!(node, LogicalPlan::Projection(_)) => {
            let aggregates = found.iter().map(|(aggregate, _)| aggregate.clone()).collect();
            let input = Arc::new(input.clone());
            LogicalPlan::Aggregate(Aggregate::try_new(input, vec![], aggregates)?)
        }
        None => {
            let message = "aggregate functions are not allowed in WHERE";
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).into_datafusion());
        }
    };
    let places = found.iter().map(|(aggregate, _)| {
        let name = aggregate.schema_name().to_string();
        let (_, field) = input.schema().qualified_field_with_unqualified_name(&name)?;
        Ok((aggregate.clone(), Expr::OuterReferenceColumn(Arc::clone(field), Column::new_unqualified(name))))
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    let output = node.schema().columns();
    let exprs = node.expressions().into_iter().map(|expr| {
        let expr = refer(expr, &places)?;
        if let Some(column) = expr.column_refs().into_iter().find(|column| !input.schema().has_column(column))
        {
            let message = format!(
                "column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
            );
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).into_datafusion());
        }
        Ok(expr)
    });
    let node = node.with_new_exprs(exprs.collect::<Result<Vec<_>>>()?, vec![input])?.recompute_schema()?;
    match node.schema().fields().len() == output.len() {
        true => Ok(node),
        // A filter and a sort give on the columns of the aggregates.
        false => {
            let output = output.into_iter().map(Expr::Column).collect();
            Ok(LogicalPlan::Projection(Projection::try_new(output, Arc::new(node))?))
        }
    }
}

/// The node that groups the rows of a query, below this one.
fn aggregate_below(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Some(aggregate),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => aggregate_below(plan.inputs().into_iter().next()?),
        _ => None,
    }
}

/// Adds aggregates to the node that groups the rows, and their columns to those above it.
fn with_aggregates(plan: LogicalPlan, aggregates: Vec<Expr>) -> Result<LogicalPlan> {
    let names: Vec<String> = aggregates.iter().map(|aggregate| aggregate.schema_name().to_string()).collect();
    match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, mut aggr_expr, schema, .. }) => {
            for (aggregate, name) in aggregates.into_iter().zip(names) {
                if !schema.has_column_with_unqualified_name(&name) {
                    aggr_expr.push(aggregate);
                }
            }
            Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, aggr_expr)?))
        }
        LogicalPlan::Projection(Projection { mut expr, input, schema, .. }) => {
            let input = with_aggregates(Arc::unwrap_or_clone(input), aggregates)?;
            for name in names {
                if !schema.has_column_with_unqualified_name(&name) {
                    expr.push(Expr::Column(Column::new_unqualified(name)));
                }
            }
            Ok(LogicalPlan::Projection(Projection::try_new(expr, Arc::new(input))?))
        }
        other => {
            let inputs = other.inputs().into_iter().cloned();
            let inputs = inputs.map(|input| with_aggregates(input, aggregates.clone()));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            other.with_new_exprs(other.expressions(), inputs)?.recompute_schema()
        }
    }
}

/// Replaces the moved aggregates in the subqueries of an expression by references to their columns.
fn refer(expr: Expr, places: &[(Expr, Expr)]) -> Result<Expr> {
    let referred = expr.transform_up(|part| match subquery_of(&part) {
        Some(subquery) => {
            let plan = refer_in_plan(subquery.subquery.as_ref().clone(), places)?;
            Ok(Transformed::yes(with_plan(part, plan)?))
        }
        None => Ok(Transformed::no(part)),
    })?;
    Ok(referred.data)
}

fn refer_in_plan(plan: LogicalPlan, places: &[(Expr, Expr)]) -> Result<LogicalPlan> {
    let referred = plan.transform_up(|node| {
        // An aggregate's name is that of its column.
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = refer(expr, places)?;
            let referred = expr.transform_up(|part| {
                let place = outer_aggregate(&part)
                    .and_then(|outer| places.iter().find(|(aggregate, _)| *aggregate == outer.aggregate));
                match place {
                    Some((_, reference)) => Ok(Transformed::yes(reference.clone())),
                    None => Ok(Transformed::no(part)),
                }
            })?;
            Ok(referred.update_data(|expr| name.restore(expr)))
        })?
        .map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(referred.data)
}
