//! Unnests the correlated subqueries that DataFusion decorrelates incorrectly, into joins with their results
//! for all values of their outer columns.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Join, JoinConstraint, Projection, SubqueryAlias};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, JoinType, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::guard::single_row_value::only;

use super::conditions::{next_number, null_safe_eq, unsupported_error};
use super::dependent::{DependentPlan, Outer, fresh_columns};
use super::plain::{is_plain, is_plain_value};
use super::references::{free_references, has_subquery, is_lateral, scope, subquery_of, with_plan};

/// The analyzer rule; runs after the one that turns scalar subqueries into aggregates.
#[derive(Debug)]
pub struct Decorrelation;

impl AnalyzerRule for Decorrelation {
    fn name(&self) -> &str {
        "decorrelation"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_correlated = false;
        plan.apply_with_subqueries(|node| {
            is_correlated |= node.contains_outer_reference();
            Ok(if is_correlated { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !is_correlated {
            return Ok(plan);
        }
        let plan = unnest(plan)?;
        match free_references(&plan)?.first() {
            Some(_) => Err(unsupported_error("columns of the query around it in such a place")),
            None => Ok(plan),
        }
    }
}

/// Unnests a plan bottom-up. Subqueries that refer to enclosing queries are left for those.
fn unnest(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.map_children(|child| unnest(child).map(Transformed::yes))?.data;
    match plan {
        LogicalPlan::Join(join) if is_lateral(&join)? => lateral(join),
        LogicalPlan::Filter(filter) if has_subquery(&filter.predicate) => {
            Apply::over(unwrap_plan(filter.input)).filter(filter.predicate)
        }
        plan if plan.expressions().iter().any(has_subquery) => unnest_expressions(plan),
        plan => Ok(plan),
    }
}

fn unwrap_plan(plan: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(plan)
}

/// Unnests a LATERAL join.
fn lateral(join: Join) -> Result<LogicalPlan> {
    // DataFusion looks through an alias above the subquery.
    let rows = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) if matches!(alias.input.as_ref(), LogicalPlan::Subquery(_)) => {
            &alias.input
        }
        _ => &join.right,
    };
    if is_plain(rows)?
        && !has_null_safe_comparison(rows)?
        && free_references(&join.right)?.iter().all(|(column, _)| join.left.schema().has_column(column))
    {
        return Ok(LogicalPlan::Join(join));
    }
    let columns = outer_columns(&join.right, join.left.schema())?;
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Err(unsupported_error("RIGHT or FULL JOIN LATERAL"));
    }
    let list: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let outer = Outer::of(&join.left, columns)?;
    let DependentPlan { plan, keys } = outer.push_down(unwrap_plan(join.right))?;
    let plan = unnest(plan)?;
    let schema = join.left.schema().join(plan.schema())?;
    let mut conditions: Vec<Expr> = join.filter.into_iter().collect();
    for (column, key) in outer.columns().iter().zip(&keys) {
        conditions.extend(null_safe_eq(column, key, &schema)?);
    }
    let joined = Join::try_new(
        join.left,
        Arc::new(plan),
        join.on,
        conjunction(conditions),
        join.join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Projection(Projection::try_new(list, Arc::new(LogicalPlan::Join(joined)))?))
}

/// Whether a subquery uses IS NOT DISTINCT FROM, which inner joins mishandle next to other conditions.
fn has_null_safe_comparison(plan: &LogicalPlan) -> Result<bool> {
    let is_null_safe = |part: &Expr| {
        Ok(matches!(part, Expr::BinaryExpr(BinaryExpr { op: Operator::IsNotDistinctFrom, .. })))
    };
    plan.exists(|node| Ok(node.expressions().iter().any(|expr| expr.exists(is_null_safe).unwrap_or(true))))
}

/// The columns of a query that a subquery refers to.
fn outer_columns(subquery: &LogicalPlan, query: &DFSchema) -> Result<Vec<Column>> {
    let columns = free_references(subquery)?.into_iter().map(|(column, _)| column);
    Ok(columns.filter(|column| query.has_column(column)).collect())
}

/// Unnests the subqueries in a node's expressions, over an input extended by their values.
fn unnest_expressions(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(list) => {
            let mut apply = Apply::over(unwrap_plan(list.input));
            let names = NamePreserver::new_for_projection();
            let columns = list.expr.into_iter().map(|expr| {
                let name = names.save(&expr);
                let replaced = expr.transform_up(|part| apply.replace_subquery(part, JoinSupport::Values))?;
                Ok(name.restore(replaced.data))
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(apply.input))?))
        }
        plan if plan.inputs().len() == 1 && !matches!(plan, LogicalPlan::Dml(_)) => project_subqueries(plan),
        plan => reject_correlated(plan),
    }
}

/// Moves correlated subqueries of a node into a projection below it.
fn project_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let input = plan.inputs().swap_remove(0).clone();
    let mut list: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let own = list.len();
    let names = NamePreserver::new(&plan);
    let expressions = plan.expressions().into_iter().map(|expr| {
        let mut replace = |expr: Expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_down(|part| {
                if !is_correlated_value(&part)? {
                    return Ok(Transformed::no(part));
                }
                let column = fresh_columns(1).remove(0);
                list.push(part.alias(&column.name));
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            })?;
            Ok(Transformed::yes(name.restore(replaced.data)))
        };
        match expr {
            Expr::GroupingSet(_) => Ok(expr.map_children(&mut replace)?.data),
            expr => Ok(replace(expr)?.data),
        }
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    if list.len() == own {
        return Ok(plan);
    }
    let keeps_columns = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let input = unnest_expressions(LogicalPlan::Projection(Projection::try_new(list, Arc::new(input))?))?;
    let plan = plan.with_new_exprs(expressions, vec![input])?;
    match keeps_columns {
        true => Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?)),
        false => Ok(plan),
    }
}

/// Whether an expression is a correlated subquery, or the single-row check of one.
fn is_correlated_value(expr: &Expr) -> Result<bool> {
    match expr {
        Expr::ScalarFunction(function) if function.func == only() => {
            function.args.iter().map(is_correlated_value).try_fold(false, |any, one| Ok(any | one?))
        }
        expr => match subquery_of(expr) {
            Some(subquery) => Ok(!free_references(&subquery.subquery)?.is_empty()),
            None => Ok(false),
        },
    }
}

/// Rejects correlated subqueries in a node of several inputs or none.
fn reject_correlated(plan: LogicalPlan) -> Result<LogicalPlan> {
    let scope = scope(&plan)?;
    let plan = plan.map_expressions(|expr| {
        expr.transform_up(|part| {
            let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
            let inner = unnest(subquery.subquery.as_ref().clone())?;
            if !outer_columns(&inner, &scope)?.is_empty() {
                return Err(unsupported_error("columns of both sides of an outer join"));
            }
            with_plan(part, inner).map(Transformed::yes)
        })
    })?;
    Ok(plan.data)
}

/// The rows that subqueries are evaluated for.
struct Apply {
    /// The original rows.
    query: LogicalPlan,
    /// The rows with added columns for subquery values.
    input: LogicalPlan,
}

/// The subqueries in a node's expressions that DataFusion joins with its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinSupport {
    Values,
    ValuesAndRows,
}

/// How to handle a subquery.
enum Action {
    /// Left to DataFusion or to an enclosing query.
    Keep(LogicalPlan),
    /// Its plan, which refers to columns of the rows.
    Apply(LogicalPlan),
}

impl Apply {
    fn over(query: LogicalPlan) -> Self {
        Self { input: query.clone(), query }
    }

    /// Filters the rows by `predicate`.
    fn filter(mut self, predicate: Expr) -> Result<LogicalPlan> {
        let columns: Vec<Expr> = self.query.schema().columns().into_iter().map(Expr::Column).collect();
        let mut others = Vec::new();
        for part in split_conjunction_owned(predicate) {
            let (part, is_denied) = match part {
                Expr::Not(inner) if matches!(inner.as_ref(), Expr::Exists(_)) => (*inner, true),
                part => (part, false),
            };
            match part {
                Expr::Exists(exists) => {
                    let negated = exists.negated != is_denied;
                    let plan = exists.subquery.subquery.as_ref().clone();
                    match self.action(plan, is_plain)? {
                        Action::Keep(plan) => {
                            others.push(with_plan(Expr::Exists(Exists { negated, ..exists }), plan)?)
                        }
                        Action::Apply(plan) => {
                            let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
                            self.join_rows(plan, kind)?;
                        }
                    }
                }
                part => others.push(
                    part.transform_up(|part| self.replace_subquery(part, JoinSupport::ValuesAndRows))?.data,
                ),
            }
        }
        let plan = match conjunction(others) {
            Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(self.input))?),
            None => self.input,
        };
        if plan.schema().fields().len() == columns.len() {
            return Ok(plan);
        }
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
    }

    fn action(&self, plan: LogicalPlan, is_plain: impl Fn(&LogicalPlan) -> Result<bool>) -> Result<Action> {
        let plan = unnest(plan)?;
        let all = free_references(&plan)?;
        let own = outer_columns(&plan, self.query.schema())?;
        Ok(match all.is_empty() || own.len() < all.len() || is_plain(&plan)? {
            true => Action::Keep(plan),
            false => Action::Apply(plan),
        })
    }

    /// Replaces a subquery in an expression by a column.
    fn replace_subquery(&mut self, expr: Expr, joins: JoinSupport) -> Result<Transformed<Expr>> {
        match expr {
            Expr::ScalarSubquery(subquery) => {
                let plan = subquery.subquery.as_ref().clone();
                match self.action(plan, is_plain_value)? {
                    Action::Keep(plan) => {
                        with_plan(Expr::ScalarSubquery(subquery), plan).map(Transformed::yes)
                    }
                    Action::Apply(plan) => self.join_value(plan).map(Transformed::yes),
                }
            }
            Expr::Exists(exists) => {
                let plan = exists.subquery.subquery.as_ref().clone();
                match self.action(plan, |plan| Ok(joins == JoinSupport::ValuesAndRows && is_plain(plan)?))? {
                    Action::Keep(plan) => with_plan(Expr::Exists(exists), plan).map(Transformed::yes),
                    Action::Apply(plan) => {
                        let mark = self.join_rows(plan, JoinType::LeftMark)?;
                        let negated = exists.negated;
                        Ok(Transformed::yes(if negated { Expr::Not(Box::new(mark)) } else { mark }))
                    }
                }
            }
            Expr::InSubquery(search) => {
                let plan = search.subquery.subquery.as_ref().clone();
                match self.action(plan, is_plain)? {
                    Action::Keep(plan) => with_plan(Expr::InSubquery(search), plan).map(Transformed::yes),
                    Action::Apply(plan) => self.search(search, plan).map(Transformed::yes),
                }
            }
            other => Ok(Transformed::no(other)),
        }
    }

    /// Joins an IN condition on a value of the row.
    fn search(&mut self, search: InSubquery, plan: LogicalPlan) -> Result<Expr> {
        if search.negated {
            return Err(unsupported_error("NOT IN in such a place"));
        }
        let rows = format!("__sought_{}", next_number());
        let column = Column::new(Some(rows.clone()), plan.schema().field(0).name());
        let rows = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), rows)?);
        let value = search.expr.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(self.query.schema().field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        let is_equal = value.data.eq(Expr::Column(column));
        self.join_rows(LogicalPlan::Filter(Filter::try_new(is_equal, Arc::new(rows))?), JoinType::LeftMark)
    }

    /// Joins a scalar subquery, which returns at most one row for each row of the query.
    fn join_value(&mut self, plan: LogicalPlan) -> Result<Expr> {
        let value = plan.schema().columns().swap_remove(0);
        let outer = Outer::of(&self.query, outer_columns(&plan, self.query.schema())?)?;
        let DependentPlan { plan, keys } = outer.push_down(plan)?;
        let plan = unnest(plan)?;
        let side = Side::of(plan, &[value], &keys)?;
        let conditions = side.key_conditions(outer.columns(), &self.input)?;
        let value = Expr::Column(side.columns[0].clone());
        self.join(side, conditions, JoinType::Left)?;
        Ok(value)
    }

    /// Joins the existence of rows; returns the mark column.
    fn join_rows(&mut self, plan: LogicalPlan, kind: JoinType) -> Result<Expr> {
        let (conditions, plan) = pull_up_conditions(plan)?;
        let columns = outer_columns(&plan, self.query.schema())?;
        let (outer, DependentPlan { plan, keys }) = match columns.is_empty() {
            true => (vec![], DependentPlan { plan, keys: vec![] }),
            false => {
                let outer = Outer::of(&self.query, columns)?;
                let pushed = outer.push_down(plan)?;
                (outer.columns().to_vec(), pushed)
            }
        };
        let plan = unnest(plan)?;
        let mut own: Vec<Column> = Vec::new();
        for condition in &conditions {
            own.extend(
                condition
                    .column_refs()
                    .into_iter()
                    .filter(|column| !own.contains(column))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
        own.sort();
        let side = Side::of(plan, &own, &keys)?;
        let mut all = side.key_conditions(&outer, &self.input)?;
        for condition in conditions {
            let condition = condition.transform_up(|part| match part {
                Expr::Column(column) => {
                    let at = own.iter().position(|one| *one == column).unwrap_or_default();
                    Ok(Transformed::yes(Expr::Column(side.columns[at].clone())))
                }
                Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
                other => Ok(Transformed::no(other)),
            })?;
            all.push(condition.data);
        }
        let mark = Expr::Column(Column::new(Some(side.name.clone()), "mark"));
        self.join(side, all, kind)?;
        Ok(mark)
    }

    fn join(&mut self, side: Side, conditions: Vec<Expr>, kind: JoinType) -> Result<()> {
        let input = std::mem::take(&mut self.input);
        let joined = Join::try_new(
            Arc::new(input),
            Arc::new(side.plan),
            vec![],
            Some(conjunction(conditions).unwrap_or_else(|| lit(true))),
            kind,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        self.input = LogicalPlan::Join(joined);
        Ok(())
    }
}

/// A join input: an aliased plan, projected to the required columns.
struct Side {
    plan: LogicalPlan,
    name: String,
    columns: Vec<Column>,
    keys: Vec<Column>,
}

impl Side {
    fn of(plan: LogicalPlan, columns: &[Column], keys: &[Column]) -> Result<Self> {
        let name = format!("__subquery_{}", next_number());
        let names: Vec<String> = (0..columns.len() + keys.len()).map(|at| format!("_{at}")).collect();
        let list = columns.iter().chain(keys).zip(&names);
        let mut list: Vec<Expr> =
            list.map(|(column, name)| Expr::Column(column.clone()).alias(name)).collect();
        if list.is_empty() {
            list.push(lit(true).alias("_"));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?);
        let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), name.as_str())?);
        let named = names.iter().map(|column| Column::new(Some(name.clone()), column));
        let mut columns_of: Vec<Column> = named.collect();
        let keys = columns_of.split_off(columns.len());
        Ok(Self { plan, name, columns: columns_of, keys })
    }

    /// Conditions that match the key columns with the outer columns.
    fn key_conditions(&self, outer: &[Column], query: &LogicalPlan) -> Result<Vec<Expr>> {
        let mut conditions = Vec::new();
        for (column, key) in outer.iter().zip(&self.keys) {
            conditions.extend(null_safe_eq(column, key, query.schema())?);
        }
        Ok(conditions)
    }
}

/// Splits the conditions that can become join conditions from the rest of a subquery.
fn pull_up_conditions(plan: LogicalPlan) -> Result<(Vec<Expr>, LogicalPlan)> {
    match plan {
        // EXISTS ignores the selected columns.
        LogicalPlan::Projection(list) => pull_up_conditions(unwrap_plan(list.input)),
        LogicalPlan::Filter(filter) => {
            let parts = split_conjunction_owned(filter.predicate);
            let (mut above, within): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.contains_outer() && !has_subquery(part));
            let plan = match unwrap_plan(filter.input) {
                LogicalPlan::Filter(below) => {
                    let (more, plan) = pull_up_conditions(LogicalPlan::Filter(below))?;
                    above.extend(more);
                    plan
                }
                other => other,
            };
            Ok(match conjunction(within) {
                Some(predicate) => (above, LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?)),
                None => (above, plan),
            })
        }
        other => Ok((vec![], other)),
    }
}
