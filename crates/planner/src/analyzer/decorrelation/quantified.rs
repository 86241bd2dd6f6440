//! IN, ANY and ALL with a subquery as EXISTS.
//!
//! ```text
//!   where NULL is as good as false          x IN (q)         EXISTS (q WHERE x = y)
//!   where NULL is as good as true           x IN (q)         EXISTS (q WHERE (x = y) IS NOT FALSE)
//!   as a value                              x IN (q)         CASE WHEN EXISTS (q WHERE x = y) THEN true
//!                                                                 WHEN EXISTS (q WHERE (x = y) IS NULL) THEN NULL ELSE false END
//!   x op ANY (q): the same with op          x NOT IN (q): NOT x IN (q)          x op ALL (q): NOT x (NOT op) ANY (q)
//! ```
//!
//! Of a condition of WHERE by itself DataFusion makes joins that know these, of two kinds that it does right:
//! IN by plain conditions, and NOT IN of a value of the row in a subquery that is about no row (a join that
//! knows NULLs, which must have a key). EXISTS over what always has a row is true.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue, Spans};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, GroupingSet, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, Projection, Subquery, SubqueryAlias};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, FetchType, Filter, LogicalPlan, LogicalPlanBuilder, Operator, SkipType, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::conditions::next_number;
use super::plain::is_plain;
use super::references::{
    count_subqueries, count_subqueries_in, free, has_subquery, outer_reference, with_plan,
};
use crate::rewrite::{input_schema, rewrite_expressions};

/// A comparison as a value has its subquery twice, so that several inside of each other are many. With more
/// subqueries than so many in it, it is not planned.
const INNER_SUBQUERIES_MAX: usize = 14;

/// The name of the rows of a subquery that a value is compared with.
const ROWS: &str = "__compared";

/// The name of a column that a value is looked for in, where a projection is made for it.
const VALUE: &str = "__listed";

/// The begin of the name of a value that is looked for, where a projection is made for it.
const KEY: &str = "__sought";

/// The rule; to stand before the coercion of types.
#[derive(Debug)]
pub struct QuantifiedSubqueries;

impl AnalyzerRule for QuantifiedSubqueries {
    fn name(&self) -> &str {
        "quantified_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(compared)?.data)
    }
}

fn compared(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !plan.expressions().iter().any(has_subquery) {
        return Ok(Transformed::no(plan));
    }
    let scope = input_schema(&plan)?;
    match plan {
        LogicalPlan::Filter(filter) => {
            let mut keys = Vec::new();
            let conditions = split_conjunction_owned(filter.predicate).into_iter().map(|part| match part {
                Expr::Not(inner) if is_search(&inner) => alone(*inner, true, &scope, &mut keys),
                part if is_search(&part) => alone(part, false, &scope, &mut keys),
                part => condition(part, Null::IsFalse, true, &scope),
            });
            let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
            filter_with_keys(predicate, filter.input, keys).map(Transformed::yes)
        }
        LogicalPlan::Join(mut join) => {
            join.filter =
                join.filter.map(|filter| condition(filter, Null::IsFalse, false, &scope)).transpose()?;
            Ok(Transformed::yes(LogicalPlan::Join(join)))
        }
        other => rewrite_expressions(other, |part| value(part, &scope)),
    }
}

/// What NULL is as good as.
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

fn owned(plan: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(plan)
}

fn is_search(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::SetComparison(_))
}

/// A comparison with the rows of a subquery: whether there is one of which it is true, or with `negated`
/// whether there is none.
struct Search {
    value: Expr,
    op: Operator,
    rows: Subquery,
    negated: bool,
}

impl Search {
    /// Gives back what is none.
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

    /// Whether there is a row of which `test` of the comparison is true.
    fn exists(&self, test: impl Fn(Expr) -> Expr, scope: &DFSchema) -> Result<Expr> {
        let value = outside(self.value.clone(), scope)?;
        let compared =
            |with: Expr| test(Expr::BinaryExpr(BinaryExpr::new(Box::new(value), self.op, Box::new(with))));
        let rows = unsorted(self.rows.subquery.as_ref().clone());
        let plan = match rows {
            // Below what is selected the condition is beside those of the subquery.
            LogicalPlan::Projection(list) if !has_subquery(&self.value) && is_computed(&list.expr[0]) => {
                let condition = compared(list.expr[0].clone().unalias());
                // DataFusion does not take apart conditions above conditions.
                let (condition, input) = match owned(list.input) {
                    LogicalPlan::Filter(filter) => (filter.predicate.and(condition), filter.input),
                    other => (condition, Arc::new(other)),
                };
                let rows = LogicalPlan::Filter(Filter::try_new(condition, input)?);
                LogicalPlanBuilder::from(rows).project(vec![lit(1_i64).alias("one")])?.build()?
            }
            rows => {
                let column = Column::new(Some(ROWS), rows.schema().field(0).name());
                let rows = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(rows), ROWS)?);
                LogicalPlan::Filter(Filter::try_new(compared(Expr::Column(column)), Arc::new(rows))?)
            }
        };
        exists(plan, false)
    }

    /// As a condition.
    fn decided(&self, null: Null, scope: &DFSchema) -> Result<Expr> {
        let is_found = match (null == Null::IsTrue) == self.negated {
            true => self.exists(|comparison| comparison, scope)?,
            false => self.exists(|comparison| Expr::IsNotFalse(Box::new(comparison)), scope)?,
        };
        Ok(if self.negated { negated(is_found) } else { is_found })
    }

    /// As a value. Errors: too many subqueries would be there twice (54001).
    fn valued(&self, scope: &DFSchema) -> Result<Expr> {
        let inner = count_subqueries(&self.value)? + count_subqueries_in(&self.rows.subquery)?;
        if inner > INNER_SUBQUERIES_MAX {
            let message = "IN, ANY and ALL as values are nested too deeply";
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message).into_datafusion());
        }
        let is_found = self.exists(|comparison| comparison, scope)?;
        let is_unknown = self.exists(|comparison| comparison.is_null(), scope)?;
        let null = Expr::Literal(ScalarValue::Boolean(None), None);
        when(is_found, lit(!self.negated)).when(is_unknown, null).otherwise(lit(self.negated))
    }
}

/// A filter that speaks of keys beside the columns of its input.
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

/// A condition of WHERE that is one comparison with a subquery, or its opposite. To `keys` go the values, by
/// name, that are to be columns below the filter.
fn alone(expr: Expr, denied: bool, scope: &DFSchema, keys: &mut Vec<Expr>) -> Result<Expr> {
    let search = match Search::of(valued_within(expr, scope)?) {
        Ok(search) => search,
        Err(other) if denied => return Ok(Expr::Not(Box::new(other))),
        Err(other) => return Ok(other),
    };
    let search = Search { negated: search.negated != denied, ..search };
    let is_of_row = search.value.any_column_refs()
        && !search.value.contains_outer()
        && !search.value.is_volatile()
        && !has_subquery(&search.value);
    if search.op == Operator::Eq && search.negated && is_of_row && free(&search.rows.subquery)?.is_empty() {
        return joined(with_column(search, keys));
    }
    if is_joined(&search)? { joined(search) } else { search.decided(Null::IsFalse, scope) }
}

/// The same search of a column. Of an expression the simplifier may make a constant, as of `x = NULL`, which
/// is no key: the join forgets what it has to do with NULLs.
fn with_column(search: Search, keys: &mut Vec<Expr>) -> Search {
    if matches!(search.value, Expr::Column(_)) {
        return search;
    }
    let name = format!("{KEY}{}", next_number());
    keys.push(search.value.alias(&name));
    Search { value: Expr::Column(Column::new_unqualified(name)), ..search }
}

/// Whether DataFusion joins by IN what it has to.
fn is_joined(search: &Search) -> Result<bool> {
    Ok(search.op == Operator::Eq
        && !search.negated
        && search.value.any_column_refs()
        && !search.value.contains_outer()
        && !has_subquery(&search.value)
        && is_plain(&unsorted(search.rows.subquery.as_ref().clone()))?)
}

fn joined(search: Search) -> Result<Expr> {
    let plan = projected(unsorted(search.rows.subquery.as_ref().clone()))?;
    let subquery = Subquery { subquery: Arc::new(plan), ..search.rows };
    Ok(Expr::InSubquery(InSubquery::new(Box::new(search.value), subquery, search.negated)))
}

/// The same rows from a projection: DataFusion looks for the column to join by in one. It finds none in
/// VALUES, and that of a set operation twice where IN is a part of a condition.
fn projected(plan: LogicalPlan) -> Result<LogicalPlan> {
    if matches!(plan, LogicalPlan::Projection(_)) {
        return Ok(plan);
    }
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    LogicalPlanBuilder::from(plan).project(vec![column.alias(VALUE)])?.build()
}

/// A condition. `joins`: DataFusion makes joins of IN.
fn condition(expr: Expr, null: Null, joins: bool, scope: &DFSchema) -> Result<Expr> {
    let each = |expr: Box<Expr>, null: Null| condition(*expr, null, joins, scope).map(Box::new);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left: one, op: op @ (Operator::And | Operator::Or), right: other }) => {
            Ok(Expr::BinaryExpr(BinaryExpr::new(each(one, null)?, op, each(other, null)?)))
        }
        Expr::Not(inner) => Ok(Expr::Not(each(inner, null.opposite())?)),
        Expr::IsTrue(inner) => Ok(Expr::IsTrue(each(inner, Null::IsFalse)?)),
        Expr::IsNotTrue(inner) => Ok(Expr::IsNotTrue(each(inner, Null::IsFalse)?)),
        Expr::IsFalse(inner) => Ok(Expr::IsFalse(each(inner, Null::IsTrue)?)),
        Expr::IsNotFalse(inner) => Ok(Expr::IsNotFalse(each(inner, Null::IsTrue)?)),
        expr if is_search(&expr) => match Search::of(valued_within(expr, scope)?) {
            Ok(search) if joins && null == Null::IsFalse && is_joined(&search)? => joined(search),
            Ok(search) => search.decided(null, scope),
            Err(other) => Ok(other),
        },
        other => Ok(other.transform_up(|part| value(part, scope))?.data),
    }
}

/// What is compared may have subqueries as well.
fn valued_within(expr: Expr, scope: &DFSchema) -> Result<Expr> {
    Ok(expr.map_children(|child| child.transform_up(|part| value(part, scope)))?.data)
}

/// One subquery as a value.
fn value(expr: Expr, scope: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            Ok(Transformed::yes(exists(owned(subquery.subquery), negated)?))
        }
        expr if is_search(&expr) => match Search::of(expr) {
            Ok(search) => Ok(Transformed::yes(search.valued(scope)?)),
            Err(other) => Ok(Transformed::no(other)),
        },
        other => Ok(Transformed::no(other)),
    }
}

fn negated(expr: Expr) -> Expr {
    match expr {
        Expr::Exists(exists) => Expr::Exists(Exists { negated: !exists.negated, ..exists }),
        other => Expr::Not(Box::new(other)),
    }
}

/// An expression of a row, in a subquery that is evaluated for it.
fn outside(expr: Expr, scope: &DFSchema) -> Result<Expr> {
    let changed = expr.transform_up(|part| match part {
        Expr::Column(column) => {
            let field = Arc::clone(scope.field_from_column(&column)?);
            Ok(Transformed::yes(outer_reference((column, field))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Whether what is selected is computed of the subquery's own columns alone.
fn is_computed(expr: &Expr) -> bool {
    expr.any_column_refs() && !expr.contains_outer() && !has_subquery(expr) && !expr.is_volatile()
}

/// Rows of which neither the order nor the number of equal ones matters.
fn unsorted(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => unsorted(owned(sort.input)),
        LogicalPlan::Distinct(Distinct::All(input)) => unsorted(owned(input)),
        other => other,
    }
}

/// Whether a plan has a row, without what has no say in that.
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

/// Whether a plan has rows.
enum Rows<'p> {
    /// At least one, whatever it reads.
    Some,
    None,
    /// If another plan has, or this one itself.
    Of(Option<&'p LogicalPlan>),
}

fn rows_of(plan: &LogicalPlan) -> Result<Rows<'_>> {
    let input = match plan {
        LogicalPlan::Projection(list) => {
            let rows = rows_of(&list.input)?;
            let is_simple = !list.expr.iter().any(|expr| expr.contains_outer() || has_subquery(expr));
            return Ok(match rows {
                // As it was written, where nothing below can go.
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
