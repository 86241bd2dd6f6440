//! Rewrites scalar subqueries that DataFusion does not support.
//!
//! DataFusion joins the result of a correlated subquery with the outer rows, which requires the subquery to
//! be an aggregate: then there is one row per key. This rule turns every subquery into one.
//!
//! ```text
//!   (SELECT x FROM t WHERE t.k = o.k)                        only((SELECT {first_value(x), count(*)} FROM t WHERE t.k = o.k))
//!   (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 1)     (SELECT first_value(x ORDER BY y) FROM t WHERE t.k = o.k)
//!   SELECT EXISTS (SELECT …)                                 SELECT (SELECT count(*) …) > 0
//!   ORDER BY (SELECT …)                                      a sort column, which is projected away again
//! ```
//!
//! [`only`] checks the count above the join: a key with several rows is an error (21000) only if an outer row
//! has that key. DataFusion checks uncorrelated subqueries with an operator, unless the distributed planner
//! disables it.
//!
//! `ScalarSubqueries` can go when DataFusion has a join that fails on a second row (apache/datafusion#24783,
//! open) and EXISTS as a value (apache/datafusion#24972, merged after 55.2.0).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::expr_fn::named_struct;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Exists, ScalarFunction};
use datafusion::logical_expr::{
    Expr, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, Projection, SkipType, Sort, Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::guard::opaque;
use harrier_functions::guard::single_row_value::only;

use crate::analyzer::decorrelation::free_references;
use crate::rewrite::rewrite_expressions;

/// The analyzer rule; runs after type coercion.
#[derive(Debug)]
pub struct ScalarSubqueries;

impl AnalyzerRule for ScalarSubqueries {
    fn name(&self) -> &str {
        "scalar_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let checks_all = !options.optimizer.enable_physical_uncorrelated_scalar_subquery;
        let mut may_be_null = false;
        let changed = plan.transform_up_with_subqueries(|mut plan| {
            let are_values = !matches!(plan, LogicalPlan::Filter(_));
            // Expressions below may be nullable now, contrary to the recorded schema.
            if may_be_null {
                plan = update_nullability(plan.recompute_schema()?)?;
            }
            let plan = rewrite_expressions(plan, |expr| match expr {
                Expr::ScalarSubquery(subquery) => single_row(subquery, checks_all),
                Expr::Exists(exists)
                    if are_values && free_references(&exists.subquery.subquery)?.is_empty() =>
                {
                    count_rows(exists)
                }
                other => Ok(Transformed::no(other)),
            })?;
            may_be_null |= plan.transformed;
            plan.transform_data(|plan| match plan {
                LogicalPlan::Sort(sort) => sort_by_columns(sort),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// Updates the nullability of a union's columns from its inputs, which a schema recomputation does not;
/// returns other nodes unchanged.
fn update_nullability(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Union(mut union) = plan else { return Ok(plan) };
    let may_be_null = |at: usize| union.inputs.iter().any(|input| input.schema().field(at).is_nullable());
    let fields = union.schema.iter().enumerate().map(|(at, (relation, field))| {
        let is_nullable = field.is_nullable() || may_be_null(at);
        (relation.cloned(), Arc::new(field.as_ref().clone().with_nullable(is_nullable)))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), union.schema.metadata().clone())?;
    union.schema = Arc::new(schema);
    Ok(LogicalPlan::Union(union))
}

/// Rewrites a subquery so that it returns one row per key.
fn single_row(subquery: Subquery, checks_all: bool) -> Result<Transformed<Expr>> {
    let plan = subquery.subquery.as_ref();
    let [field] = plan.schema().fields().as_ref() else {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    };
    let is_correlated = !free_references(plan)?.is_empty();
    let is_checked = !is_aggregate(plan) && (is_correlated || checks_all && plan.max_rows() != Some(1));
    // Without a row the result is NULL, even for a non-nullable column: DataFusion uses the nullability of
    // that column.
    let may_be_null = field.is_nullable() || has_row(plan);
    if !is_checked && may_be_null {
        if has_row(plan) || is_table_column(plan) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        // The simplifier may derive that a computed value is never NULL, as for CASE WHEN true THEN 1 END.
        let value = ScalarFunction::new_udf(opaque::function(), vec![Expr::ScalarSubquery(subquery)]);
        return Ok(Transformed::yes(Expr::ScalarFunction(value)));
    }
    if let (true, Some(first)) = (is_correlated, first_row(&subquery.subquery)?) {
        return Ok(Transformed::yes(with_plan(subquery, first)));
    }
    let value = Expr::Column(subquery.subquery.schema().columns().swap_remove(0));
    let (first, rows) = (first_value(value, vec![]), count(lit(1_i64)));
    let parts = [("value", &first), ("rows", &rows)].into_iter();
    let both = parts.flat_map(|(name, part)| {
        let column = Expr::Column(Column::from_name(part.schema_name().to_string()));
        [lit(name), column]
    });
    let both = named_struct(both.collect());
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![first, rows])?
        .project(vec![both.alias("only")])?
        .build()?;
    let value = ScalarFunction::new_udf(only(), vec![with_plan(subquery, plan)]);
    Ok(Transformed::yes(Expr::ScalarFunction(value)))
}

/// Whether the only column of a plan is a table column.
fn is_table_column(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let is_column = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(_));
            projection.expr.iter().all(is_column) && is_table_column(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_table_column(&alias.input),
        LogicalPlan::Filter(filter) => is_table_column(&filter.input),
        LogicalPlan::Sort(sort) => is_table_column(&sort.input),
        LogicalPlan::Limit(limit) => is_table_column(&limit.input),
        LogicalPlan::TableScan(_) => true,
        _ => false,
    }
}

/// Whether a plan returns a row for any input.
fn has_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

fn with_plan(subquery: Subquery, plan: LogicalPlan) -> Expr {
    Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery })
}

/// Whether a plan aggregates all of its rows into one.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Filter(filter) => is_aggregate(&filter.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// Rewrites `SELECT x FROM … ORDER BY y LIMIT 1` to an aggregate; `None` if the plan has another form.
fn first_row(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Limit(limit) = plan else { return Ok(None) };
    if !is_one(limit)? {
        return Ok(None);
    }
    // Sort columns that are not selected are projected away above the sort.
    let (value, input) = match limit.input.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. })
            if matches!(input.as_ref(), LogicalPlan::Sort(_)) =>
        {
            (expr[0].clone().unalias(), input)
        }
        other => (Expr::Column(other.schema().columns().swap_remove(0)), &limit.input),
    };
    let (order, input) = match input.as_ref() {
        LogicalPlan::Sort(Sort { expr, input, fetch: None }) => (expr.clone(), input),
        _ => (vec![], input),
    };
    let first = first_value(value, order);
    let column = Expr::Column(Column::from_name(first.schema_name().to_string()));
    let plan = LogicalPlanBuilder::from(input.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![first])?
        // A unique name: key columns are added next to it.
        .project(vec![column.alias("__value")])?
        .build()?;
    Ok(Some(plan))
}

fn is_one(limit: &Limit) -> Result<bool> {
    let skips_none = matches!(limit.get_skip_type()?, SkipType::Literal(0));
    Ok(skips_none && matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1))))
}

/// Rewrites an uncorrelated EXISTS to a comparison of a row count. DataFusion plans it as a join in a
/// condition, but not as a value.
fn count_rows(exists: Exists) -> Result<Transformed<Expr>> {
    let Exists { subquery, negated } = exists;
    let rows = count(lit(1_i64));
    let column = Expr::Column(Column::from_name(rows.schema_name().to_string()));
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![rows])?
        .project(vec![column.alias("rows")])?
        .build()?;
    let rows = with_plan(subquery, plan);
    let none = Expr::Literal(ScalarValue::Int64(Some(0)), None);
    Ok(Transformed::yes(if negated { rows.eq(none) } else { rows.gt(none) }))
}

/// Sorts by columns of the input; sort keys with subqueries are computed below.
fn sort_by_columns(sort: Sort) -> Result<Transformed<LogicalPlan>> {
    let own: Vec<Expr> = sort.input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut keys = Vec::new();
    let mut order = sort.expr.clone();
    for (number, key) in order.iter_mut().enumerate() {
        if key.expr.exists(|expr| Ok(matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_))))? {
            let name = format!("harrier_key_{number}");
            let column = Expr::Column(Column::from_name(&name));
            keys.push(std::mem::replace(&mut key.expr, column).alias(name));
        }
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    // Columns that only the subquery refers to are not selected: they are below the SELECT list.
    let (columns, input) = match sort.input.as_ref() {
        LogicalPlan::Projection(list) if !has_outer_columns(&sort.input, &keys)? => {
            (list.expr.clone(), Arc::clone(&list.input))
        }
        _ => (own.clone(), Arc::clone(&sort.input)),
    };
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(columns.into_iter().chain(keys))?
        .sort_with_limit(order, sort.fetch)?
        .project(own)?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// Whether a plan has all columns that the subqueries refer to.
fn has_outer_columns(plan: &LogicalPlan, keys: &[Expr]) -> Result<bool> {
    let mut has_all = true;
    for key in keys {
        key.apply(|expr| {
            let subquery = match expr {
                Expr::ScalarSubquery(subquery) => subquery,
                Expr::Exists(exists) => &exists.subquery,
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            has_all &= free_references(&subquery.subquery)?
                .iter()
                .all(|(column, _)| plan.schema().has_column(column));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(has_all)
}
