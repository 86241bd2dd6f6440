//! Subqueries as values that DataFusion does not take, in a form that it does.
//!
//! DataFusion joins what a correlated subquery yields to the rows outside, for which the subquery has to be
//! an aggregate: then there is one row for each key. Here every subquery becomes one.
//!
//! ```text
//!   (SELECT x FROM t WHERE t.k = o.k)                        only((SELECT {first_value(x), count(*)} FROM t WHERE t.k = o.k))
//!   (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 1)     (SELECT first_value(x ORDER BY y) FROM t WHERE t.k = o.k)
//!   SELECT EXISTS (SELECT …)                                 SELECT (SELECT count(*) …) > 0
//!   ORDER BY (SELECT …)                                      a column that is sorted by, and left out again
//! ```
//!
//! [`only`] looks at the count above the join: a key with several rows is an error (21000) only if a row
//! outside has that key. Subqueries without correlation are checked by an operator of DataFusion, unless the
//! planner for ranks has it turned off.
//!
//! `ScalarSubqueries` can go when DataFusion has a join that fails on a second row (apache/datafusion#24783,
//! open) and EXISTS as a value (apache/datafusion#24972, merged later than 55.2.0).

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

/// The rule; to stand behind the coercion of types.
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
            // What is below it may be NULL now, as it has been told before that it is not.
            if may_be_null {
                plan = with_nulls(plan.recompute_schema()?)?;
            }
            let plan = rewrite_expressions(plan, |expr| match expr {
                Expr::ScalarSubquery(subquery) => one_row(subquery, checks_all),
                Expr::Exists(exists)
                    if are_values && free_references(&exists.subquery.subquery)?.is_empty() =>
                {
                    counted(exists)
                }
                other => Ok(Transformed::no(other)),
            })?;
            may_be_null |= plan.transformed;
            plan.transform_data(|plan| match plan {
                LogicalPlan::Sort(sort) => sorted_by_columns(sort),
                other => Ok(Transformed::no(other)),
            })
        })?;
        Ok(changed.data)
    }
}

/// A union whose columns may be NULL if those of an input may be, which it does not look at again by itself;
/// any other node as it is.
fn with_nulls(plan: LogicalPlan) -> Result<LogicalPlan> {
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

/// A subquery of which every key has one row.
fn one_row(subquery: Subquery, checks_all: bool) -> Result<Transformed<Expr>> {
    let plan = subquery.subquery.as_ref();
    let [field] = plan.schema().fields().as_ref() else {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    };
    let is_correlated = !free_references(plan)?.is_empty();
    let is_checked = !is_aggregate(plan) && (is_correlated || checks_all && plan.max_rows() != Some(1));
    // Without a row it is NULL, also of a column that never is: DataFusion takes its value for one of that
    // column's.
    let may_be_null = field.is_nullable() || has_row(plan);
    if !is_checked && may_be_null {
        if has_row(plan) || is_stored(plan) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        // The simplifier may find out that what is computed is never NULL, as of CASE WHEN true THEN 1 END.
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

/// Whether the one column of a plan is one of a table.
fn is_stored(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let is_column = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(_));
            projection.expr.iter().all(is_column) && is_stored(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => is_stored(&alias.input),
        LogicalPlan::Filter(filter) => is_stored(&filter.input),
        LogicalPlan::Sort(sort) => is_stored(&sort.input),
        LogicalPlan::Limit(limit) => is_stored(&limit.input),
        LogicalPlan::TableScan(_) => true,
        _ => false,
    }
}

/// Whether a plan has a row whatever it reads.
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

/// Whether a plan aggregates all of its rows to one.
fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Filter(filter) => is_aggregate(&filter.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// `SELECT x FROM … ORDER BY y LIMIT 1` as an aggregate; `None` if the plan is not of that kind.
fn first_row(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Limit(limit) = plan else { return Ok(None) };
    if !is_one(limit)? {
        return Ok(None);
    }
    // Columns that are sorted by and not selected are left out above the sort.
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
        // Under a name of its own: columns of the keys are put beside it.
        .project(vec![column.alias("__value")])?
        .build()?;
    Ok(Some(plan))
}

fn is_one(limit: &Limit) -> Result<bool> {
    let skips_none = matches!(limit.get_skip_type()?, SkipType::Literal(0));
    Ok(skips_none && matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1))))
}

/// EXISTS about no row outside as a number of rows that is compared. As a condition DataFusion joins by it;
/// as a value it does not.
fn counted(exists: Exists) -> Result<Transformed<Expr>> {
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

/// A sort by columns of its input, those of which that are subqueries are computed below.
fn sorted_by_columns(sort: Sort) -> Result<Transformed<LogicalPlan>> {
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
    // Columns that only the subquery speaks of are not selected: they are below the list of the SELECT.
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

/// Whether a plan has all columns that subqueries take from outside.
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
