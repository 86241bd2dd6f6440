//! Rewrites IN, ANY and ALL subqueries to EXISTS.
//!
//! ```text
//!   where NULL acts as false                x IN (q)         EXISTS (q WHERE x = y)
//!   where NULL acts as true                 x IN (q)         EXISTS (q WHERE (x = y) IS NOT FALSE)
//!   as a value                              x IN (q)         CASE WHEN EXISTS (q WHERE x = y) THEN true
//!                                                                 WHEN EXISTS (q WHERE (x = y) IS NULL) THEN NULL ELSE false END
//!   x op ANY (q): the same with op          x NOT IN (q): NOT x IN (q)          x op ALL (q): NOT x (NOT op) ANY (q)
//! ```
//!
//! For a top-level conjunct of WHERE, DataFusion plans semi and anti joins, and two kinds of these are
//! correct: IN with plain conditions, and NOT IN of a value of the outer row in an uncorrelated subquery (a
//! null-aware anti join, which needs a key). EXISTS over a plan that always has a row is true.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue, Spans};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::logical_expr::expr::{Exists, GroupingSet, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, Projection, Subquery, SubqueryAlias};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, FetchType, Filter, LogicalPlan, LogicalPlanBuilder, Operator, SkipType, case, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::conditions::next_number;
use super::plain::is_plain;
use super::references::{
    count_subqueries, count_subqueries_in, free_references, has_subquery, outer_reference, with_plan,
};
use crate::rewrite::{input_schema, rewrite_expressions};

/// As a value, a comparison duplicates its subquery, so nested ones grow exponentially. With more inner
/// subqueries than this it becomes an aggregate, which compares all rows.
const INNER_SUBQUERIES_MAX: usize = 14;

/// The alias of the subquery that a value is compared with.
const ROWS_ALIAS: &str = "__compared";

/// The name of a subquery's output column, if a projection is added.
const VALUE_COLUMN: &str = "__listed";

/// The name of the aggregate of all comparisons.
const WEIGHT_COLUMN: &str = "__weight";

/// The prefix of added columns for searched values.
const KEY_PREFIX: &str = "__sought";

/// The analyzer rule; runs before type coercion.
#[derive(Debug)]
pub struct QuantifiedSubqueries;

impl AnalyzerRule for QuantifiedSubqueries {
    fn name(&self) -> &str {
        "quantified_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_node)?.data)
    }
}

fn rewrite_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !plan.expressions().iter().any(has_subquery) {
        return Ok(Transformed::no(plan));
    }
    let scope = input_schema(&plan)?;
    match plan {
        LogicalPlan::Filter(filter) => {
            let mut keys = Vec::new();
            let conditions = split_conjunction_owned(filter.predicate).into_iter().map(|part| match part {
                Expr::Not(inner) if is_quantified(&inner) => {
                    rewrite_conjunct(*inner, true, &scope, &mut keys)
                }
                part if is_quantified(&part) => rewrite_conjunct(part, false, &scope, &mut keys),
                part => rewrite_condition(part, Null::IsFalse, true, &scope),
            });
            let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
            filter_with_keys(predicate, filter.input, keys).map(Transformed::yes)
        }
        LogicalPlan::Join(mut join) => {
            join.filter = join
                .filter
                .map(|filter| rewrite_condition(filter, Null::IsFalse, false, &scope))
                .transpose()?;
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        other => rewrite_expressions(other, |part| rewrite_value(part, &scope)),
    }
}

/// How a context treats NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Null {
    IsFalse,
    IsTrue,
}

impl Null {
    fn opposite(self) -> Self {
        match self {
            Self::IsFalse => Self::IsTrue,
            Self::IsTrue => Self::IsFalse,
        }
    }
}

fn unwrap_plan(plan: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(plan)
}

fn is_quantified(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::SetComparison(_))
}

/// A quantified comparison: true if any row of the subquery satisfies it, or if none does with `negated`.
struct QuantifiedComparison {
    value: Expr,
    op: Operator,
    rows: Subquery,
    negated: bool,
}

impl QuantifiedComparison {
    /// Returns other expressions unchanged as an error.
    fn of(expr: Expr) -> std::result::Result<Self, Expr> {
        let one_column = |rows: &Subquery| rows.subquery.schema().fields().len() == 1;
        match expr {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) if one_column(&subquery) => {
                Ok(Self { value: *expr, op: Operator::Eq, rows: subquery, negated })
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
                if one_column(&subquery) =>
            {
                let opposite = op.negate();
                match (quantifier, opposite) {
                    (SetQuantifier::Any, _) => Ok(Self { value: *expr, op, rows: subquery, negated: false }),
                    (SetQuantifier::All, Some(op)) => {
                        Ok(Self { value: *expr, op, rows: subquery, negated: true })
                    }
                    (SetQuantifier::All, None) => {
                        let all = SetComparison::new(expr, subquery, op, SetQuantifier::All);
                        Err(Expr::SetComparison(all))
                    }
                }
            }
            other => Err(other),
        }
    }

    /// EXISTS over the rows for which `test` of the comparison is true.
    fn exists(&self, test: impl Fn(Expr) -> Expr, scope: &DFSchema) -> Result<Expr> {
        let value = to_outer_references(self.value.clone(), scope)?;
        let compare =
            |with: Expr| test(Expr::BinaryExpr(BinaryExpr::new(Box::new(value), self.op, Box::new(with))));
        let rows = strip_order(self.rows.subquery.as_ref().clone());
        let plan = match rows {
            // Below the projection, the condition joins those of the subquery.
            LogicalPlan::Projection(list) if !has_subquery(&self.value) && is_computed(&list.expr[0]) => {
                let condition = compare(list.expr[0].clone().unalias());
                // DataFusion does not decorrelate stacked filters.
                let (condition, input) = match unwrap_plan(list.input) {
                    LogicalPlan::Filter(filter) => (filter.predicate.and(condition), filter.input),
                    other => (condition, Arc::new(other)),
                };
                let rows = LogicalPlan::Filter(Filter::try_new(condition, input)?);
                LogicalPlanBuilder::from(rows).project(vec![lit(1_i64).alias("one")])?.build()?
            }
            rows => {
                let column = Column::new(Some(ROWS_ALIAS), rows.schema().field(0).name());
                let rows = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(rows), ROWS_ALIAS)?);
                LogicalPlan::Filter(Filter::try_new(compare(Expr::Column(column)), Arc::new(rows))?)
            }
        };
        exists(plan, false)
    }

    /// Rewrites it to a condition.
    fn to_condition(&self, null: Null, scope: &DFSchema) -> Result<Expr> {
        let is_found = match (null == Null::IsTrue) == self.negated {
            true => self.exists(|comparison| comparison, scope)?,
            false => self.exists(|comparison| Expr::IsNotFalse(Box::new(comparison)), scope)?,
        };
        Ok(if self.negated { negate(is_found) } else { is_found })
    }

    /// Rewrites it to a value.
    fn to_value(&self, scope: &DFSchema) -> Result<Expr> {
        let inner = count_subqueries(&self.value)? + count_subqueries_in(&self.rows.subquery)?;
        if inner > INNER_SUBQUERIES_MAX {
            return self.to_aggregate(scope);
        }
        let is_found = self.exists(|comparison| comparison, scope)?;
        let is_unknown = self.exists(|comparison| comparison.is_null(), scope)?;
        let null = Expr::Literal(ScalarValue::Boolean(None), None);
        when(is_found, lit(!self.negated)).when(is_unknown, null).otherwise(lit(self.negated))
    }
}

impl QuantifiedComparison {
    /// Rewrites it to a value, with one subquery: the comparison of all rows that says most.
    fn to_aggregate(&self, scope: &DFSchema) -> Result<Expr> {
        let value = to_outer_references(self.value.clone(), scope)?;
        let rows = strip_order(self.rows.subquery.as_ref().clone());
        let column = Column::new(Some(ROWS_ALIAS), rows.schema().field(0).name());
        let rows = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(rows), ROWS_ALIAS)?);
        let compared =
            Expr::BinaryExpr(BinaryExpr::new(Box::new(value), self.op, Box::new(Expr::Column(column))));
        let is_equal = Expr::Column(Column::new_unqualified(VALUE_COLUMN));
        let [found, unknown, none] = [2_i64, 1, 0].map(lit);
        let weight = when(is_equal.clone(), found.clone())
            .when(is_equal.is_null(), unknown.clone())
            .otherwise(none)?;
        let plan = LogicalPlanBuilder::from(rows)
            .project(vec![compared.alias(VALUE_COLUMN)])?
            .aggregate(Vec::<Expr>::new(), vec![max(weight).alias(WEIGHT_COLUMN)])?
            .build()?;
        let plan = with_plan(
            Expr::ScalarSubquery(Subquery {
                subquery: Arc::new(LogicalPlan::default()),
                outer_ref_columns: vec![],
                spans: Spans::new(),
            }),
            plan,
        )?;
        let null = Expr::Literal(ScalarValue::Boolean(None), None);
        case(plan).when(found, lit(!self.negated)).when(unknown, null).otherwise(lit(self.negated))
    }
}

/// Builds a filter that refers to added key columns.
fn filter_with_keys(predicate: Expr, input: Arc<LogicalPlan>, keys: Vec<Expr>) -> Result<LogicalPlan> {
    if keys.is_empty() {
        return Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?));
    }
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let with_keys = columns.iter().cloned().chain(keys).collect();
    let input = LogicalPlan::Projection(Projection::try_new(with_keys, input)?);
    let filter = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(filter))?))
}

/// Rewrites a conjunct that is a single quantified comparison, possibly negated. Adds to `keys` the values
/// that have to become columns below the filter.
fn rewrite_conjunct(expr: Expr, denied: bool, scope: &DFSchema, keys: &mut Vec<Expr>) -> Result<Expr> {
    let search = match QuantifiedComparison::of(rewrite_operands(expr, scope)?) {
        Ok(search) => search,
        Err(other) if denied => return Ok(Expr::Not(Box::new(other))),
        Err(other) => return Ok(other),
    };
    let search = QuantifiedComparison { negated: search.negated != denied, ..search };
    let is_of_row = search.value.any_column_refs()
        && !search.value.contains_outer()
        && !search.value.is_volatile()
        && !has_subquery(&search.value);
    if search.op == Operator::Eq
        && search.negated
        && is_of_row
        && free_references(&search.rows.subquery)?.is_empty()
    {
        return in_subquery(bind_key(search, keys));
    }
    if is_joinable(&search)? { in_subquery(search) } else { search.to_condition(Null::IsFalse, scope) }
}

/// Binds the searched value to a column. Otherwise the simplifier could make it a constant, as in `x = NULL`,
/// which is not a join key: the join would lose its null-awareness.
fn bind_key(search: QuantifiedComparison, keys: &mut Vec<Expr>) -> QuantifiedComparison {
    if matches!(search.value, Expr::Column(_)) {
        return search;
    }
    let name = format!("{KEY_PREFIX}{}", next_number());
    keys.push(search.value.alias(&name));
    QuantifiedComparison { value: Expr::Column(Column::new_unqualified(name)), ..search }
}

/// Whether DataFusion plans IN as a correct join.
fn is_joinable(search: &QuantifiedComparison) -> Result<bool> {
    Ok(search.op == Operator::Eq
        && !search.negated
        && search.value.any_column_refs()
        && !search.value.contains_outer()
        && !has_subquery(&search.value)
        && is_plain(&strip_order(search.rows.subquery.as_ref().clone()))?)
}

fn in_subquery(search: QuantifiedComparison) -> Result<Expr> {
    let plan = ensure_projection(strip_order(search.rows.subquery.as_ref().clone()))?;
    let subquery = Subquery { subquery: Arc::new(plan), ..search.rows };
    Ok(Expr::InSubquery(InSubquery::new(Box::new(search.value), subquery, search.negated)))
}

/// Adds a projection: DataFusion looks for the join column in one. It finds none in VALUES, and finds that of
/// a set operation twice if IN is part of a condition.
fn ensure_projection(plan: LogicalPlan) -> Result<LogicalPlan> {
    if matches!(plan, LogicalPlan::Projection(_)) {
        return Ok(plan);
    }
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    LogicalPlanBuilder::from(plan).project(vec![column.alias(VALUE_COLUMN)])?.build()
}

/// Rewrites a condition. `joins`: DataFusion plans IN as a join here.
fn rewrite_condition(expr: Expr, null: Null, joins: bool, scope: &DFSchema) -> Result<Expr> {
    let each = |expr: Box<Expr>, null: Null| rewrite_condition(*expr, null, joins, scope).map(Box::new);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left: one, op: op @ (Operator::And | Operator::Or), right: other }) => {
            Ok(Expr::BinaryExpr(BinaryExpr::new(each(one, null)?, op, each(other, null)?)))
        }
        Expr::Not(inner) => Ok(Expr::Not(each(inner, null.opposite())?)),
        Expr::IsTrue(inner) => Ok(Expr::IsTrue(each(inner, Null::IsFalse)?)),
        Expr::IsNotTrue(inner) => Ok(Expr::IsNotTrue(each(inner, Null::IsFalse)?)),
        Expr::IsFalse(inner) => Ok(Expr::IsFalse(each(inner, Null::IsTrue)?)),
        Expr::IsNotFalse(inner) => Ok(Expr::IsNotFalse(each(inner, Null::IsTrue)?)),
        expr if is_quantified(&expr) => match QuantifiedComparison::of(rewrite_operands(expr, scope)?) {
            Ok(search) if joins && null == Null::IsFalse && is_joinable(&search)? => in_subquery(search),
            Ok(search) => search.to_condition(null, scope),
            Err(other) => Ok(other),
        },
        other => Ok(other.transform_up(|part| rewrite_value(part, scope))?.data),
    }
}

/// Rewrites subqueries in the operands of a comparison.
fn rewrite_operands(expr: Expr, scope: &DFSchema) -> Result<Expr> {
    Ok(expr.map_children(|child| child.transform_up(|part| rewrite_value(part, scope)))?.data)
}

/// Rewrites a single subquery to a value.
fn rewrite_value(expr: Expr, scope: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            Ok(Transformed::yes(exists(unwrap_plan(subquery.subquery), negated)?))
        }
        expr if is_quantified(&expr) => match QuantifiedComparison::of(expr) {
            Ok(search) => Ok(Transformed::yes(search.to_value(scope)?)),
            Err(other) => Ok(Transformed::no(other)),
        },
        other => Ok(Transformed::no(other)),
    }
}

fn negate(expr: Expr) -> Expr {
    match expr {
        Expr::Exists(exists) => Expr::Exists(Exists { negated: !exists.negated, ..exists }),
        other => Expr::Not(Box::new(other)),
    }
}

/// Turns columns of a row into outer references of a subquery.
fn to_outer_references(expr: Expr, scope: &DFSchema) -> Result<Expr> {
    let changed = expr.transform_up(|part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(scope.field_from_column(&column)?);
            Ok(Transformed::yes(outer_reference((column, field))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Whether an expression depends only on the subquery's own columns.
fn is_computed(expr: &Expr) -> bool {
    expr.any_column_refs() && !expr.contains_outer() && !has_subquery(expr) && !expr.is_volatile()
}

/// Removes sorts and DISTINCT, where order and duplicates do not matter.
fn strip_order(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => strip_order(unwrap_plan(sort.input)),
        LogicalPlan::Distinct(Distinct::All(input)) => strip_order(unwrap_plan(input)),
        other => other,
    }
}

/// Builds EXISTS, without the operators that do not affect whether there are rows.
fn exists(plan: LogicalPlan, negated: bool) -> Result<Expr> {
    let rows = match rows_of(&plan)? {
        Rows::Some => return Ok(lit(!negated)),
        Rows::None => return Ok(lit(negated)),
        Rows::Of(None) => plan,
        Rows::Of(Some(rows)) => {
            LogicalPlanBuilder::from(rows.clone()).project(vec![lit(1_i64).alias("one")])?.build()?
        }
    };
    let subquery = Subquery {
        subquery: Arc::new(LogicalPlan::default()),
        outer_ref_columns: vec![],
        spans: Spans::new(),
    };
    with_plan(Expr::Exists(Exists { subquery, negated }), rows)
}

/// Whether a plan returns rows.
enum Rows<'p> {
    /// At least one, for any input.
    Some,
    None,
    /// If another plan does, or `None`: this one itself.
    Of(Option<&'p LogicalPlan>),
}

fn rows_of(plan: &LogicalPlan) -> Result<Rows<'_>> {
    let input = match plan {
        LogicalPlan::Projection(list) => {
            let rows = rows_of(&list.input)?;
            let is_simple = !list.expr.iter().any(|expr| expr.contains_outer() || has_subquery(expr));
            return Ok(match rows {
                // Unchanged, where nothing below can be removed.
                Rows::Of(None) if is_simple => Rows::Of(None),
                Rows::Of(None) => Rows::Of(Some(&list.input)),
                rows => rows,
            });
        }
        LogicalPlan::SubqueryAlias(alias) => {
            return Ok(match rows_of(&alias.input)? {
                Rows::Of(None) => Rows::Of(None),
                rows => rows,
            });
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
        LogicalPlan::Distinct(Distinct::All(input)) => input,
        LogicalPlan::Distinct(Distinct::On(distinct)) => &distinct.input,
        LogicalPlan::Window(window) => &window.input,
        LogicalPlan::Limit(limit) => match (limit.get_fetch_type()?, limit.get_skip_type()?) {
            (FetchType::Literal(Some(0)), _) => return Ok(Rows::None),
            (FetchType::Literal(_), SkipType::Literal(0)) => &limit.input,
            _ => return Ok(Rows::Of(None)),
        },
        LogicalPlan::Aggregate(Aggregate { group_expr, input, .. }) => {
            let has_all = group_expr.iter().all(|expr| match expr {
                Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
                Expr::GroupingSet(_) => true,
                _ => false,
            });
            if has_all {
                return Ok(Rows::Some);
            }
            input
        }
        LogicalPlan::EmptyRelation(empty) => {
            return Ok(if empty.produce_one_row { Rows::Some } else { Rows::None });
        }
        _ => return Ok(Rows::Of(None)),
    };
    Ok(match rows_of(input)? {
        Rows::Of(None) => Rows::Of(Some(input)),
        rows => rows,
    })
}
