//! Unnests the correlated subqueries that DataFusion decorrelates incorrectly, into joins with their results
//! for all values of their outer columns.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Distinct, DistinctOn, Join, JoinConstraint, Projection, SubqueryAlias, Union,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use harrier_error::{SqlError, SqlState};
use harrier_functions::guard::single_row_value::only;
use harrier_sqlstate::IntoDataFusionError;

use super::conditions::{next_number, null_safe_eq, unsupported_error};
use super::dependent::{DependentPlan, Outer, fresh_columns};
use super::guards::{Guards, is_lazy, is_only, map_lazy, plan_may_fail};
use super::plain::{is_plain, is_plain_value};
use super::references::{free_references, has_subquery, is_lateral, scope, subquery_of, with_plan};
use super::shared::{Shared, add_row_number, around, is_exact, is_repeatable, is_volatile};

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
        // DataFusion keeps the mark of a LATERAL subquery that refers to nothing, but does not run it.
        LogicalPlan::Subquery(subquery) if free_references(&subquery.subquery)?.is_empty() => {
            Ok(unwrap_plan(subquery.subquery))
        }
        LogicalPlan::Filter(filter) if has_subquery(&filter.predicate) => {
            Apply::over(unwrap_plan(filter.input)).filter(filter.predicate)
        }
        LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(has_subquery) => join_condition(join),
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
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        let message = "the JOIN type must be INNER or LEFT for a LATERAL reference";
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).into_datafusion());
    }
    let list: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let mut apply = Apply::over(unwrap_plan(join.left));
    let outer = apply.outer_of(&join.right, &Guards::default())?;
    let DependentPlan { plan, keys } = outer.push_down(unwrap_plan(join.right))?;
    let plan = unnest(plan)?;
    let schema = apply.input.schema().join(plan.schema())?;
    let mut conditions: Vec<Expr> = join.filter.into_iter().collect();
    for (column, key) in outer.columns().iter().zip(&keys) {
        conditions.extend(null_safe_eq(column, key, &schema)?);
    }
    let joined = Join::try_new(
        Arc::new(std::mem::take(&mut apply.input)),
        Arc::new(plan),
        join.on,
        conjunction(conditions),
        join.join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    let plan = Projection::try_new(list, Arc::new(LogicalPlan::Join(joined)))?;
    Ok(apply.around(LogicalPlan::Projection(plan)))
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
                Ok(name.restore(apply.replace(expr, JoinSupport::Values, &mut Guards::default())?))
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let input = Arc::new(std::mem::take(&mut apply.input));
            Ok(apply.around(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
        }
        plan if plan.inputs().len() == 1 && !matches!(plan, LogicalPlan::Dml(_)) => project_subqueries(plan),
        plan => reject_correlated(plan),
    }
}

/// Moves correlated subqueries of a node into a projection below it, with the conditions that guard them.
fn project_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let input = plan.inputs().swap_remove(0).clone();
    let mut list: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let own = list.len();
    let mut moved: Vec<(Expr, Column)> = Vec::new();
    let names = NamePreserver::new(&plan);
    let expressions = plan.expressions().into_iter().map(|expr| {
        let mut replace = |expr: Expr| {
            let name = names.save(&expr);
            let replaced = guard_arguments(expr)?.transform_down(|part| {
                if !(is_correlated_value(&part)? || is_lazy(&part) && has_correlated_value(&part)?) {
                    return Ok(Transformed::no(part));
                }
                let column = match moved.iter().find(|(one, _)| *one == part && !part.is_volatile()) {
                    Some((_, column)) => Column::clone(column),
                    None => {
                        let column = fresh_columns(1).remove(0);
                        list.push(part.clone().alias(&column.name));
                        moved.push((part, column.clone()));
                        column
                    }
                };
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
    let plan = match plan {
        LogicalPlan::Distinct(Distinct::On(on)) => with_distinct_on(on, expressions, input)?,
        plan => plan.with_new_exprs(expressions, vec![input])?,
    };
    match keeps_columns {
        true => Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?)),
        false => Ok(plan),
    }
}

/// DISTINCT ON with other expressions: those of ON, of the select list, and of ORDER BY.
fn with_distinct_on(on: DistinctOn, mut expressions: Vec<Expr>, input: LogicalPlan) -> Result<LogicalPlan> {
    let order = expressions.split_off(on.on_expr.len() + on.select_expr.len());
    let list = expressions.split_off(on.on_expr.len());
    let keys = expressions.into_iter().map(Expr::unalias).collect();
    let order = on.sort_expr.map(|sort| {
        let order = sort.into_iter().zip(order);
        order.map(|(key, expr)| SortExpr { expr: expr.unalias(), ..key }).collect()
    });
    let on = DistinctOn::try_new(keys, list, order, Arc::new(input))?;
    Ok(LogicalPlan::Distinct(Distinct::On(on)))
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

fn has_correlated_value(expr: &Expr) -> Result<bool> {
    expr.exists(is_correlated_value)
}

/// Evaluates correlated subqueries in the arguments of calls with FILTER for the rows that pass it.
fn guard_arguments(expr: Expr) -> Result<Expr> {
    let changed = expr.transform_down(|part| match part {
        Expr::AggregateFunction(mut call) => {
            let params = &mut call.params;
            if let Some(filter) = &params.filter {
                for argument in &mut params.args {
                    if has_correlated_value(argument)? {
                        *argument = when(filter.as_ref().clone(), argument.clone()).end()?;
                    }
                }
            }
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Rejects correlated subqueries in a node of several inputs or none.
fn reject_correlated(plan: LogicalPlan) -> Result<LogicalPlan> {
    let scope = scope(&plan)?;
    let plan = plan.map_expressions(|expr| {
        expr.transform_up(|part| {
            let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
            let inner = unnest(subquery.subquery.as_ref().clone())?;
            if !outer_columns(&inner, &scope)?.is_empty() {
                return Err(unsupported_error("columns of the query around it in such a place"));
            }
            with_plan(part, inner).map(Transformed::yes)
        })
    })?;
    Ok(plan.data)
}

/// Unnests the subqueries in the condition of a join.
///
/// ```text
///   a LEFT JOIN b ON p AND s(a.x, b.y)  ─►  a LEFT JOIN (b JOIN t ON b.y = t.y) ON p AND a.x = t.x
///                                           t: SELECT x, y FROM (SELECT DISTINCT a.x, b.y FROM a JOIN b ON p)
///                                              WHERE s(x, y)
///   a FULL JOIN b ON c                  ─►  a LEFT JOIN b ON c
///                                           UNION ALL rows of b without one of a for which c is true
/// ```
fn join_condition(mut join: Join) -> Result<LogicalPlan> {
    let mut both = join.left.schema().as_ref().clone();
    both.merge(join.right.schema());
    let parts = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
    let (mut own, mut within) = (Vec::new(), Vec::new());
    for part in parts {
        let part = with_unnested(part)?;
        let free = subquery_references(&part)?;
        let is_own = free.iter().any(|column| both.has_column(column));
        // With columns of a query further out, it is that query's turn.
        let is_open = free.iter().any(|column| !both.has_column(column));
        if is_own && !is_open { own.push(part) } else { within.push(part) }
    }
    if own.is_empty() {
        join.filter = conjunction(within);
        return Ok(LogicalPlan::Join(join));
    }
    let mut shared = Vec::new();
    for side in [&mut join.left, &mut join.right] {
        if !is_repeatable(side)? {
            let (one, rows) = Shared::of(side.as_ref().clone())?;
            shared.push(one);
            *side = Arc::new(rows);
        }
    }
    let condition = JoinCondition { plain: conjunction(within), applied: own };
    Ok(around(shared, condition.join(join)?))
}

/// Unnests the plans of subqueries.
fn with_unnested(expr: Expr) -> Result<Expr> {
    let changed = expr.transform_up(|part| match subquery_of(&part) {
        Some(subquery) => {
            let plan = unnest(subquery.subquery.as_ref().clone())?;
            with_plan(part, plan).map(Transformed::yes)
        }
        None => Ok(Transformed::no(part)),
    })?;
    Ok(changed.data)
}

fn has_fallible_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| subquery_of(part).map_or(Ok(false), |subquery| plan_may_fail(&subquery.subquery)))
}

/// The outer columns of the subqueries in an expression.
fn subquery_references(expr: &Expr) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    expr.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            columns.extend(free_references(&subquery.subquery)?.into_iter().map(|(column, _)| column));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

/// The condition of a join, in parts without and with subqueries that refer to the joined rows.
struct JoinCondition {
    plain: Option<Expr>,
    applied: Vec<Expr>,
}

impl JoinCondition {
    /// Joins by the condition, without subqueries in it.
    fn join(&self, join: Join) -> Result<LogicalPlan> {
        match join.join_type {
            JoinType::Inner => {
                let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
                let joined = Join { filter: self.plain.clone(), ..join };
                let apply = Apply::over(LogicalPlan::Join(joined));
                let plan = apply.filter(conjunction(self.applied.clone()).unwrap_or_else(|| lit(true)))?;
                Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
            }
            JoinType::Full => self.full_join(join),
            _ => self.join_pairs(join),
        }
    }

    /// Joins by the pairs of values for which the subqueries hold.
    fn join_pairs(&self, join: Join) -> Result<LogicalPlan> {
        let output: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        let schema = join.left.schema().join(join.right.schema())?;
        let mut columns: Vec<Column> = Vec::new();
        for part in &self.applied {
            let own = part.column_refs().into_iter().cloned().chain(subquery_references(part)?);
            let own = own.filter(|column| schema.has_column(column));
            columns.extend(own.filter(|column| !columns.contains(column)).collect::<Vec<_>>());
        }
        let mut unique: Vec<Column> = Vec::new();
        for column in columns {
            let column = Column::from(schema.qualified_field_from_column(&column)?);
            if !unique.contains(&column) {
                unique.push(column);
            }
        }
        let pairs = Join::try_new(
            Arc::clone(&join.left),
            Arc::clone(&join.right),
            join.on.clone(),
            self.plain.clone(),
            JoinType::Inner,
            JoinConstraint::On,
            join.null_equality,
            false,
        )?;
        let pairs = LogicalPlanBuilder::from(LogicalPlan::Join(pairs))
            .project(unique.iter().cloned().map(Expr::Column))?
            .distinct()?
            .build()?;
        let holds = conjunction(self.applied.clone()).unwrap_or_else(|| lit(true));
        let pairs = Apply::over(pairs).filter(holds)?;
        let keys = fresh_columns(unique.len());
        let list = unique.iter().zip(&keys);
        let list = list.map(|(column, key)| Expr::Column(column.clone()).alias(&key.name)).collect();
        let pairs = LogicalPlan::Projection(Projection::try_new(list, Arc::new(pairs))?);

        // The pairs join the side whose rows are not kept.
        let is_left_kept = matches!(
            join.join_type,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
        );
        let side = if is_left_kept { &join.right } else { &join.left };
        let (mut within, mut across) = (Vec::new(), Vec::new());
        for (column, key) in unique.iter().zip(&keys) {
            let conditions = null_safe_eq(column, key, &schema)?;
            if side.schema().has_column(column) {
                within.extend(conditions)
            } else {
                across.extend(conditions)
            }
        }
        let (one, other) = (side.as_ref().clone(), pairs);
        let paired = LogicalPlanBuilder::from(one).join_on(other, JoinType::Inner, within)?.build()?;
        let (left, right) = match is_left_kept {
            true => (join.left, Arc::new(paired)),
            false => (Arc::new(paired), join.right),
        };
        let joined = Join::try_new(
            left,
            right,
            join.on,
            conjunction(self.plain.iter().cloned().chain(across)),
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            false,
        )?;
        let joined = LogicalPlan::Join(joined);
        // A mark column is named after its side.
        let columns = joined.schema().columns();
        let list = output.iter().enumerate().map(|(at, column)| match (column, columns.get(at)) {
            (Expr::Column(column), Some(mark)) if !joined.schema().has_column(column) => {
                Expr::Column(mark.clone()).alias_qualified(column.relation.clone(), &column.name)
            }
            (column, _) => column.clone(),
        });
        Ok(LogicalPlan::Projection(Projection::try_new(list.collect(), Arc::new(joined))?))
    }

    fn full_join(&self, join: Join) -> Result<LogicalPlan> {
        let schema = Arc::clone(&join.schema);
        let with_type = |join_type: JoinType| {
            Join::try_new(
                Arc::clone(&join.left),
                Arc::clone(&join.right),
                join.on.clone(),
                None,
                join_type,
                JoinConstraint::On,
                join.null_equality,
                false,
            )
        };
        let kept = self.join_pairs(with_type(JoinType::Left)?)?;
        let others = self.join_pairs(with_type(JoinType::RightAnti)?)?;
        let names = fresh_columns(schema.fields().len());
        let first = join.left.schema().fields().len();
        let list = schema.columns().into_iter().zip(&names);
        let list = list.map(|(column, name)| Expr::Column(column).alias(&name.name)).collect();
        let kept = LogicalPlan::Projection(Projection::try_new(list, Arc::new(kept))?);
        let list = schema.iter().zip(&names).enumerate().map(|(at, ((relation, field), name))| {
            let value = match at < first {
                true => Expr::Literal(ScalarValue::try_new_null(field.data_type())?, None),
                false => Expr::Column(Column::new(relation.cloned(), field.name())),
            };
            Ok(value.alias(&name.name))
        });
        let others = Projection::try_new(list.collect::<Result<_>>()?, Arc::new(others))?;
        let both = [Arc::new(kept), Arc::new(LogicalPlan::Projection(others))];
        let union = LogicalPlan::Union(Union::try_new(both.to_vec())?);
        let list = names.into_iter().zip(schema.iter()).map(|(name, (relation, field))| {
            Expr::Column(name).alias_qualified(relation.cloned(), field.name())
        });
        Ok(LogicalPlan::Projection(Projection::try_new(list.collect(), Arc::new(union))?))
    }
}

/// Plans of more nodes than this are not read twice for the sake of a guard, but shared: chains of guarded
/// subqueries would grow exponentially.
const READ_TWICE_MAX: usize = 60;

fn node_count(plan: &LogicalPlan) -> Result<usize> {
    let mut nodes = 0;
    plan.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nodes)
}

/// The rows that subqueries are evaluated for.
struct Apply {
    /// The original rows.
    query: LogicalPlan,
    /// The rows with added columns for subquery values.
    input: LogicalPlan,
    /// Conditions on the rows: no others matter.
    conditions: Vec<Expr>,
    /// The rows that both read.
    shared: Vec<Shared>,
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
        Self { input: query.clone(), query, conditions: vec![], shared: vec![] }
    }

    /// Adds the shared rows to a plan that reads them.
    fn around(self, plan: LogicalPlan) -> LogicalPlan {
        around(self.shared, plan)
    }

    /// Computes the rows so far once.
    fn share(&mut self) -> Result<()> {
        let (shared, rows) = Shared::of(std::mem::take(&mut self.input))?;
        self.shared.push(shared);
        self.query = rows.clone();
        self.input = rows;
        Ok(())
    }

    /// Computes an expression in a column, once, for the rows that the guards select.
    fn compute(&mut self, expr: Expr, guards: &Guards) -> Result<Expr> {
        let value = match guards.condition() {
            Some(guard) => when(guard, expr).end()?,
            None => expr,
        };
        let column = fresh_columns(1).remove(0);
        let input = std::mem::take(&mut self.input);
        let list = input.schema().columns().into_iter().map(Expr::Column);
        let list = list.chain([value.alias(&column.name)]).collect();
        self.input = LogicalPlan::Projection(Projection::try_new(list, Arc::new(input))?);
        self.share()?;
        Ok(Expr::Column(column))
    }

    /// The values of the columns that a subquery refers to, in the rows that the guards select.
    fn outer_of(&mut self, plan: &LogicalPlan, guards: &Guards) -> Result<Outer> {
        let is_for_each_row = is_volatile(plan)?;
        let guard = guards.condition();
        let is_of_query = |guard: &Expr| {
            guard.column_refs().into_iter().all(|column| self.query.schema().has_column(column))
        };
        let mut columns = outer_columns(plan, self.query.schema())?;
        if is_for_each_row {
            let (input, number) = add_row_number(std::mem::take(&mut self.input))?;
            self.input = input;
            columns.push(number);
        }
        let is_of_query = guard.as_ref().is_none_or(is_of_query);
        // Guards about the values of earlier subqueries.
        let is_small = is_of_query || node_count(&self.input)? <= READ_TWICE_MAX;
        let query = if is_of_query { &self.query } else { &self.input };
        if is_for_each_row || !is_small || !is_repeatable(query)? || !is_exact(query, &columns)? {
            self.share()?;
        }
        let query = if is_of_query { &self.query } else { &self.input };
        let outer = Outer::of(query, columns, conjunction(self.conditions.iter().cloned().chain(guard)))?;
        Ok(if is_for_each_row { outer.for_each_row() } else { outer })
    }

    /// Filters the rows by `predicate`.
    fn filter(mut self, predicate: Expr) -> Result<LogicalPlan> {
        let columns: Vec<Expr> = self.query.schema().columns().into_iter().map(Expr::Column).collect();
        let mut others = Vec::new();
        let (known, applied): (Vec<_>, Vec<_>) = split_conjunction_owned(predicate)
            .into_iter()
            .partition(|part| !has_subquery(part) && !part.is_volatile());
        self.conditions = known.clone();
        for part in known.into_iter().chain(applied) {
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
                            self.join_rows(plan, kind, &Guards::default())?;
                        }
                    }
                }
                part => {
                    others.push(self.replace(part, JoinSupport::ValuesAndRows, &mut Guards::default())?)
                }
            }
        }
        let input = std::mem::take(&mut self.input);
        let mut plan = match conjunction(others) {
            Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?),
            None => input,
        };
        if plan.schema().fields().len() != columns.len() {
            plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        }
        Ok(self.around(plan))
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

    /// Replaces the subqueries in an expression by columns.
    fn replace(&mut self, expr: Expr, joins: JoinSupport, guards: &mut Guards) -> Result<Expr> {
        if !has_subquery(&expr) {
            return Ok(expr);
        }
        if is_lazy(&expr) {
            let has_volatile_guard = expr.is_volatile() && has_fallible_subquery(&expr)?;
            return map_lazy(expr, guards, |operand, guards| match has_subquery(&operand) {
                false if has_volatile_guard && operand.is_volatile() => self.compute(operand, guards),
                _ => self.replace(operand, joins, guards),
            });
        }
        let is_checked = is_only(&expr);
        let mut each = |part: Expr| -> Result<Transformed<Expr>> {
            let part = match &part {
                Expr::ScalarSubquery(_) if is_checked => self.replace_subquery(part, joins, guards, true)?,
                _ => self.replace(part, joins, guards)?,
            };
            Ok(Transformed::yes(part))
        };
        let expr = expr.map_children(&mut each)?.data;
        self.replace_subquery(expr, joins, guards, false)
    }

    /// Replaces a subquery by a column. `is_checked`: it fails for several rows.
    fn replace_subquery(
        &mut self,
        expr: Expr,
        joins: JoinSupport,
        guards: &Guards,
        is_checked: bool,
    ) -> Result<Expr> {
        let Some(subquery) = subquery_of(&expr) else { return Ok(expr) };
        let none = Guards::default();
        let may_fail = is_checked || !guards.is_empty() && plan_may_fail(&subquery.subquery)?;
        let guards = if may_fail { guards } else { &none };
        // DataFusion computes those that it joins for all rows.
        let is_kept = |is_plain: bool| Ok(is_plain && guards.is_empty());
        let plan = subquery.subquery.as_ref().clone();
        match expr {
            Expr::ScalarSubquery(_) => match self.action(plan, |plan| is_kept(is_plain_value(plan)?))? {
                Action::Keep(plan) => with_plan(expr, plan),
                Action::Apply(plan) => self.join_value(plan, guards),
            },
            Expr::Exists(Exists { negated, .. }) => {
                let joins_rows = joins == JoinSupport::ValuesAndRows;
                match self.action(plan, |plan| is_kept(joins_rows && is_plain(plan)?))? {
                    Action::Keep(plan) => with_plan(expr, plan),
                    Action::Apply(plan) => {
                        let mark = self.join_rows(plan, JoinType::LeftMark, guards)?;
                        Ok(if negated { Expr::Not(Box::new(mark)) } else { mark })
                    }
                }
            }
            Expr::InSubquery(search) => match self.action(plan, |plan| is_kept(is_plain(plan)?))? {
                Action::Keep(plan) => with_plan(Expr::InSubquery(search), plan),
                Action::Apply(plan) => self.search(search, plan, guards),
            },
            other => Ok(other),
        }
    }

    /// Joins an IN condition on a value of the row.
    fn search(&mut self, search: InSubquery, plan: LogicalPlan, guards: &Guards) -> Result<Expr> {
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
        let rows = LogicalPlan::Filter(Filter::try_new(is_equal, Arc::new(rows))?);
        self.join_rows(rows, JoinType::LeftMark, guards)
    }

    /// Joins a scalar subquery, which returns at most one row for each row of the query.
    fn join_value(&mut self, plan: LogicalPlan, guards: &Guards) -> Result<Expr> {
        let value = plan.schema().columns().swap_remove(0);
        let outer = self.outer_of(&plan, guards)?;
        let DependentPlan { plan, keys } = outer.push_down(plan)?;
        let plan = unnest(plan)?;
        let side = Side::of(plan, &[value], &keys)?;
        let conditions = side.key_conditions(outer.columns(), &self.input)?;
        let value = Expr::Column(side.columns[0].clone());
        self.join(side, conditions, JoinType::Left)?;
        Ok(value)
    }

    /// Joins the existence of rows; returns the mark column.
    fn join_rows(&mut self, plan: LogicalPlan, kind: JoinType, guards: &Guards) -> Result<Expr> {
        // A condition of the join is computed for all rows.
        let (conditions, plan) = match guards.is_empty() && !is_volatile(&plan)? {
            true => pull_up_conditions(plan)?,
            false => (vec![], plan),
        };
        let columns = outer_columns(&plan, self.query.schema())?;
        let (outer, DependentPlan { plan, keys }) = match columns.is_empty() {
            true => (vec![], DependentPlan { plan, keys: vec![] }),
            false => {
                let outer = self.outer_of(&plan, guards)?;
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{col, exists, out_ref_col, table_scan};

    use super::*;

    fn scan(name: &str, columns: [&str; 2]) -> LogicalPlanBuilder {
        let fields: Vec<Field> =
            columns.into_iter().map(|name| Field::new(name, DataType::Int64, true)).collect();
        table_scan(Some(name), &Schema::new(fields), None).unwrap()
    }

    /// EXISTS (SELECT 1 FROM t WHERE t.c = 10 / o.b).
    fn quotient_exists() -> Expr {
        let quotient = lit(10_i64) / out_ref_col(DataType::Int64, "o.b");
        exists(Arc::new(scan("t", ["c", "d"]).filter(col("t.c").eq(quotient)).unwrap().build().unwrap()))
    }

    fn text_of(plan: LogicalPlanBuilder) -> String {
        unnest(plan.build().unwrap()).unwrap().to_string()
    }

    fn projection_text(expr: Expr) -> String {
        text_of(scan("o", ["a", "b"]).project(vec![expr.alias("x")]).unwrap())
    }

    #[test]
    fn unnested_values_obey_their_guards() {
        let is_set = || col("o.b").not_eq(lit(0_i64));
        let domain =
            |text: &str| text.lines().any(|line| line.trim() == "Filter: o.b != Int64(0) IS NOT FALSE");
        let text = projection_text(is_set().and(quotient_exists()));
        assert!(domain(&text), "{text}");
        assert!(text.starts_with("Projection: o.b != Int64(0) AND __subquery_"), "{text}");
        let text = projection_text(quotient_exists().and(is_set()));
        assert!(!domain(&text), "{text}");

        let text = projection_text((!is_set()).or(quotient_exists()));
        assert!(text.contains("Filter: NOT o.b != Int64(0) IS NOT TRUE"), "{text}");
        let text = projection_text(when(is_set(), quotient_exists()).otherwise(lit(false)).unwrap());
        assert!(text.contains("Filter: o.b != Int64(0)\n"), "{text}");
        let text = projection_text(when(is_set(), lit(false)).otherwise(quotient_exists()).unwrap());
        assert!(text.contains("Filter: o.b != Int64(0) IS NOT TRUE"), "{text}");
    }

    #[test]
    fn subqueries_that_cannot_fail_need_no_guard() {
        let found = col("t.c").eq(out_ref_col(DataType::Int64, "o.b"));
        let found = scan("t", ["c", "d"]).filter(found).unwrap().build().unwrap();
        let text = projection_text(col("o.b").not_eq(lit(0_i64)).and(exists(Arc::new(found))));
        assert!(!text.contains("IS NOT FALSE"), "{text}");
    }

    #[test]
    fn a_guard_about_an_earlier_subquery_reads_it_twice() {
        let found = col("t.c").eq(out_ref_col(DataType::Int64, "o.b"));
        let found = scan("t", ["c", "d"]).filter(found).unwrap().build().unwrap();
        let text = projection_text(exists(Arc::new(found)).and(quotient_exists()));
        assert!(text.lines().any(|line| line.trim().ends_with(".mark IS NOT FALSE")), "{text}");
        assert!(!text.contains("SharedRows"), "{text}");
    }

    #[test]
    fn nondeterministic_rows_are_computed_once() {
        let limited = scan("o", ["a", "b"]).limit(0, Some(3)).unwrap();
        let inner = scan("t", ["c", "d"]).limit(0, Some(1)).unwrap();
        let inner = inner.filter(col("t.c").gt(out_ref_col(DataType::Int64, "o.b"))).unwrap();
        let inner = inner.limit(1, Some(1)).unwrap().build().unwrap();
        let text = text_of(limited.project(vec![exists(Arc::new(inner)).alias("x")]).unwrap());
        assert!(text.starts_with("SharedRows: __shared_"), "{text}");
        assert_eq!(text.matches("TableScan: o").count(), 1, "{text}");
    }

    #[test]
    fn conditions_on_both_sides_become_key_pairs() {
        let found = scan("p", ["id", "w"])
            .filter(
                col("p.id")
                    .eq(out_ref_col(DataType::Int64, "o.a"))
                    .and(col("p.w").gt(out_ref_col(DataType::Int64, "t.d"))),
            )
            .unwrap();
        let is_found = exists(Arc::new(found.build().unwrap()));
        for (join_type, unions) in [(JoinType::Left, 0), (JoinType::Right, 0), (JoinType::Full, 1)] {
            let on = vec![col("o.b").eq(col("t.c")), is_found.clone()];
            let other = scan("t", ["c", "d"]).build().unwrap();
            let join = scan("o", ["a", "b"]).join_on(other, join_type, on).unwrap();
            let columns = join.schema().columns();
            let plan = unnest(join.build().unwrap()).unwrap();
            assert_eq!(plan.schema().columns(), columns);
            let text = plan.to_string();
            // DataFusion joins the pairs with the subquery.
            assert!(text.contains("Filter: EXISTS (<subquery>)"), "{text}");
            let joins = text.lines().filter(|line| line.contains("Join:"));
            assert!(joins.clone().count() >= 3, "{text}");
            assert!(!joins.into_iter().any(|line| line.contains("EXISTS")), "{text}");
            assert_eq!(text.matches("Union").count(), unions, "{text}");
        }
    }
}
