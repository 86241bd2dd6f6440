//! Dependent joins: evaluates a subquery for all values of its outer columns at once.
//!
//! [`Outer`] holds the distinct values of the outer columns. They are joined with the subquery's inputs,
//! outer references become columns of that join, and every operator above works on each value separately:
//!
//! | operator | becomes |
//! |---|---|
//! | table | values × table |
//! | WHERE | the same, on columns |
//! | GROUP BY g | GROUP BY values, g |
//! | an aggregate without groups | GROUP BY values, over the rows and one row per value that the aggregate ignores |
//! | GROUPING SETS | the values in each set; the empty set like an aggregate without groups |
//! | DISTINCT | over values and columns |
//! | OVER (PARTITION BY p) | OVER (PARTITION BY values, p) |
//! | ORDER BY o LIMIT n OFFSET m | row_number() OVER (PARTITION BY values ORDER BY o) BETWEEN m + 1 AND m + n |
//! | JOIN, UNION | of both sides, also joined on the values |
//! | WITH RECURSIVE | of both terms, whose work table has the values |
//! | shared rows | with the values, if they depend on them |

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, DistinctOn, Join, JoinConstraint, Limit, Projection, RecursiveQuery, SubqueryAlias,
    TableScan, Union, Unnest, Values, Window,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, FetchType, Filter, JoinType, LogicalPlan,
    LogicalPlanBuilder, Operator, SkipType, Sort, SortExpr, binary_expr, cast, lit, when,
};
use harrier_exec::operators::shared_rows::SharedRows;
use harrier_functions::window::ranking::row_number;

use super::carried::{Carried, computed_name};
use super::conditions::{next_number, null_safe_eq, null_safe_eq_values, unsupported_error};
use super::references::{
    Reference, free_references, free_references_of, has_subquery, is_lateral, replace_references,
    replace_references_in,
};
use super::shared::is_volatile;
use crate::fallible::may_fail_by_row;

/// The distinct values of the outer columns that a subquery refers to.
#[derive(Clone)]
pub(super) struct Outer {
    values: LogicalPlan,
    columns: Vec<Column>,
    /// Rows that the plan computes itself, and that carry the values.
    carried: Vec<Carried>,
    /// Whether volatile functions are evaluated for each of the values.
    is_for_each_row: bool,
}

/// A rewritten plan: all of its columns under their original names, and the key columns.
pub(super) struct DependentPlan {
    pub(super) plan: LogicalPlan,
    /// In the order of [`Outer::columns`].
    pub(super) keys: Vec<Column>,
}

impl Outer {
    /// The values of `columns` in the rows of `query`, or in those that `guard` selects. The query has to be
    /// repeatable ([`super::shared`]).
    pub(super) fn of(query: &LogicalPlan, columns: Vec<Column>, guard: Option<Expr>) -> Result<Self> {
        let mut rows = LogicalPlanBuilder::from(query.clone());
        let mut list: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
        if let Some(guard) = guard {
            // Conditions on the values can get below the guard. If that one may fail, it comes after them.
            if may_fail_by_row(&guard, query.schema())? && !has_subquery(&guard) {
                list =
                    list.into_iter().map(|value| when(guard.clone(), value).end()).collect::<Result<_>>()?;
            }
            rows = LogicalPlanBuilder::from(LogicalPlan::Filter(Filter::try_new(
                guard,
                Arc::new(rows.build()?),
            )?));
        }
        let named = list.into_iter().zip(fresh_columns(columns.len()));
        let values = rows.project(named.map(|(value, name)| value.alias(name.name)))?.distinct()?.build()?;
        Ok(Self { values, columns, carried: vec![], is_for_each_row: false })
    }

    /// Evaluates volatile functions for each of the values, too.
    pub(super) fn for_each_row(self) -> Self {
        Self { is_for_each_row: true, ..self }
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Evaluates `plan` for each of the values.
    ///
    /// Errors: it contains an unsupported operator (0A000).
    pub(super) fn push_down(&self, plan: LogicalPlan) -> Result<DependentPlan> {
        if self.is_uncorrelated(&plan)? {
            return self.cross_join(plan);
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let DependentPlan { plan: input, keys } = self.push_down(unwrap_plan(filter.input))?;
                let predicate = null_safe_condition(
                    self.replace_outer(filter.predicate, &keys, &input)?,
                    input.schema(),
                )?;
                let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
                Ok(DependentPlan { plan, keys })
            }
            LogicalPlan::Projection(list) => {
                let input = self.push_down(unwrap_plan(list.input))?;
                self.project(list.expr, input)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let DependentPlan { plan, keys } = self.push_down(unwrap_plan(alias.input))?;
                let keys = keys.into_iter().map(|key| Column::new(Some(alias.alias.clone()), key.name));
                let plan = SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?;
                Ok(DependentPlan { keys: keys.collect(), plan: LogicalPlan::SubqueryAlias(plan) })
            }
            LogicalPlan::Subquery(subquery) => self.push_down(unwrap_plan(subquery.subquery)),
            LogicalPlan::Sort(Sort { input, fetch: None, .. }) => self.push_down(unwrap_plan(input)),
            LogicalPlan::Limit(limit) => self.push_limit(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let DependentPlan { plan, keys } = self.push_down(unwrap_plan(input))?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
                Ok(DependentPlan { plan, keys })
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.push_distinct_on(distinct),
            LogicalPlan::Aggregate(aggregate) => self.push_aggregate(aggregate),
            LogicalPlan::Window(window) => self.push_window(window),
            LogicalPlan::Union(union) => self.push_union(union),
            LogicalPlan::Join(join) => self.push_join(join),
            LogicalPlan::Values(values) => self.push_values(values),
            LogicalPlan::Unnest(unnest) => {
                let DependentPlan { plan, keys } = self.push_down(unwrap_plan(unnest.input))?;
                let plan = Unnest::try_new(Arc::new(plan), unnest.exec_columns, unnest.options)?;
                Ok(DependentPlan { plan: LogicalPlan::Unnest(plan), keys })
            }
            LogicalPlan::RecursiveQuery(query) => self.push_recursive(query),
            LogicalPlan::TableScan(scan) => self.push_scan(&scan),
            LogicalPlan::Extension(node) => match node.node.as_any().downcast_ref::<SharedRows>() {
                Some(shared) => self.push_shared(shared.clone()),
                None => Err(unsupported_error("columns of the query around it in such a place")),
            },
            _ => Err(unsupported_error("columns of the query around it in such a place")),
        }
    }

    fn is_uncorrelated(&self, plan: &LogicalPlan) -> Result<bool> {
        if self.is_for_each_row && is_volatile(plan)?
            || free_references(plan)?.iter().any(|(column, _)| self.columns.contains(column))
        {
            return Ok(false);
        }
        if self.carried.is_empty() {
            return Ok(true);
        }
        let mut is_carried = false;
        plan.apply_with_subqueries(|node| {
            is_carried |= matches!(node, LogicalPlan::TableScan(scan) if self.rows_of(scan).is_some());
            Ok(if is_carried { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(!is_carried)
    }

    /// The rows with values that a scan reads.
    fn rows_of(&self, scan: &TableScan) -> Option<&Carried> {
        let name = computed_name(scan)?;
        self.carried.iter().rev().find(|carried| carried.name == name)
    }

    fn with_rows(&self, carried: Carried) -> Self {
        let mut outer = self.clone();
        outer.carried.push(carried);
        outer
    }

    fn refers_to(&self, expr: &Expr, scope: &DFSchema) -> Result<bool> {
        Ok(free_references_of(expr, scope)?.iter().any(|(column, _)| self.columns.contains(column)))
    }

    /// The values under new unique names.
    fn instantiate(&self) -> Result<DependentPlan> {
        let keys = fresh_columns(self.columns.len());
        let columns = self.values.schema().columns().into_iter().zip(&keys);
        let columns = columns.map(|(column, key)| Expr::Column(column).alias(&key.name)).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(self.values.clone()))?);
        Ok(DependentPlan { plan, keys })
    }

    fn cross_join(&self, plan: LogicalPlan) -> Result<DependentPlan> {
        let DependentPlan { plan: values, keys } = self.instantiate()?;
        let plan = match plan {
            LogicalPlan::EmptyRelation(empty)
                if empty.produce_one_row && empty.schema.fields().is_empty() =>
            {
                values
            }
            plan => LogicalPlanBuilder::from(values).cross_join(plan)?.build()?,
        };
        Ok(DependentPlan { plan, keys })
    }

    /// Replaces outer references by keys in an expression over the rewritten input of its node.
    fn replace_outer(&self, expr: Expr, keys: &[Column], input: &LogicalPlan) -> Result<Expr> {
        self.replace_outer_in(expr, keys, input.schema())
    }

    fn replace_outer_in(&self, expr: Expr, keys: &[Column], schema: &DFSchema) -> Result<Expr> {
        let expr = replace_references_in(expr, &self.replacements(keys, schema)?, schema)?;
        let changed = expr.transform_up(|part| match part {
            Expr::OuterReferenceColumn(_, ref column) if keys.contains(column) => {
                Ok(Transformed::yes(Expr::Column(column.clone())))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.data)
    }

    fn replacements(&self, keys: &[Column], schema: &DFSchema) -> Result<Vec<(Column, Reference)>> {
        let to = |key: &Column| -> Result<Reference> {
            Ok((key.clone(), Arc::clone(schema.field_from_column(key)?)))
        };
        self.columns.iter().zip(keys).map(|(column, key)| Ok((column.clone(), to(key)?))).collect()
    }

    /// Projects expressions over a rewritten input.
    fn project(&self, list: Vec<Expr>, input: DependentPlan) -> Result<DependentPlan> {
        let DependentPlan { plan, keys } = input;
        let names = NamePreserver::new_for_projection();
        let columns = list.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(self.replace_outer(expr, &keys, &plan)?))
        });
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        columns.extend(keys.iter().cloned().map(Expr::Column));
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        Ok(DependentPlan { plan, keys })
    }

    fn rewrite_sort(&self, order: Vec<SortExpr>, input: &DependentPlan) -> Result<Vec<SortExpr>> {
        let replaced = order.into_iter().map(|key| {
            let expr = self.replace_outer(key.expr, &input.keys, &input.plan)?;
            Ok(SortExpr { expr, ..key })
        });
        replaced.collect()
    }

    fn push_limit(&self, limit: Limit) -> Result<DependentPlan> {
        let rows = |rows: Option<usize>| rows.map(|rows| lit(i64::try_from(rows).unwrap_or(i64::MAX)));
        let fetch = match limit.get_fetch_type()? {
            FetchType::Literal(fetch) => rows(fetch),
            FetchType::UnsupportedExpr => limit.fetch.as_deref().cloned(),
        };
        let skip = match limit.get_skip_type()? {
            SkipType::Literal(skip) => rows(Some(skip).filter(|skip| *skip > 0)),
            SkipType::UnsupportedExpr => limit.skip.as_deref().cloned(),
        };
        // Sort columns that are not selected are projected away above the sort.
        let (list, sorted) = match unwrap_plan(limit.input) {
            LogicalPlan::Projection(list) if matches!(list.input.as_ref(), LogicalPlan::Sort(_)) => {
                (Some(list.expr), unwrap_plan(list.input))
            }
            other => (None, other),
        };
        let (order, input) = match sorted {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => (expr, unwrap_plan(input)),
            other => (vec![], other),
        };
        let schema = Arc::clone(input.schema());
        let input = self.push_down(input)?;
        let order = self.rewrite_sort(order, &input)?;
        let turn = row_number().call(vec![]).partition_by(columns(&input.keys));
        let turn = if order.is_empty() { turn.build()? } else { turn.order_by(order).build()? };
        let column = Expr::Column(Column::from_name(turn.schema_name().to_string()));
        let count = |expr: Option<Expr>| {
            expr.map(|expr| {
                let expr = self.replace_outer(expr, &input.keys, &input.plan)?;
                match expr {
                    Expr::Literal(..) => Ok(expr),
                    // NULL is no limit.
                    expr => expr.cast_to(&DataType::Int64, input.plan.schema()),
                }
            })
            .transpose()
        };
        let [skip, fetch] = [count(skip)?, count(fetch)?];
        let is_open = |count: &Expr| (!matches!(count, Expr::Literal(..))).then(|| count.clone().is_null());
        let or_open = |condition: Expr, count: &Expr| match is_open(count) {
            Some(is_open) => is_open.or(condition),
            None => condition,
        };
        let from = skip.as_ref().map(|skip| or_open(column.clone().gt(skip.clone()), skip));
        let within = fetch.map(|fetch| -> Result<Expr> {
            let last = match (&skip, &fetch) {
                (None, _) => fetch.clone(),
                (
                    Some(Expr::Literal(ScalarValue::Int64(Some(skip)), _)),
                    Expr::Literal(ScalarValue::Int64(Some(fetch)), _),
                ) => lit(skip.saturating_add(*fetch)),
                (Some(skip @ Expr::Literal(..)), _) => fetch.clone() + skip.clone(),
                (Some(skip), _) => {
                    fetch.clone() + when(skip.clone().is_null(), lit(0_i64)).otherwise(skip.clone())?
                }
            };
            Ok(or_open(column.lt_eq(last), &fetch))
        });
        let within: Option<Expr> = within.transpose()?;
        let predicate = conjunction(from.into_iter().chain(within)).unwrap_or_else(|| lit(true));
        let window = LogicalPlan::Window(Window::try_new(vec![turn], Arc::new(input.plan))?);
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(window))?);
        let own = schema.columns().into_iter().chain(input.keys.iter().cloned()).map(Expr::Column);
        let plan = LogicalPlan::Projection(Projection::try_new(own.collect(), Arc::new(plan))?);
        let rows = DependentPlan { plan, keys: input.keys };
        match list {
            Some(list) => self.project(list, rows),
            None => Ok(rows),
        }
    }

    fn push_distinct_on(&self, distinct: DistinctOn) -> Result<DependentPlan> {
        let DistinctOn { on_expr, select_expr, sort_expr, input, .. } = distinct;
        let input = self.push_down(unwrap_plan(input))?;
        let names = NamePreserver::new_for_projection();
        let replace = |expr: Expr| self.replace_outer(expr, &input.keys, &input.plan);
        let on = on_expr.into_iter().map(replace).collect::<Result<Vec<_>>>()?;
        let list = select_expr.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(replace(expr)?))
        });
        let mut list = list.collect::<Result<Vec<_>>>()?;
        list.extend(columns(&input.keys));
        let on = columns(&input.keys).into_iter().chain(on).collect::<Vec<_>>();
        let order = self.rewrite_sort(sort_expr.unwrap_or_default(), &input)?;
        let keys = columns(&input.keys).into_iter().map(|key| key.sort(true, false));
        let order = (!order.is_empty()).then(|| keys.chain(order).collect::<Vec<_>>());
        let plan = DistinctOn::try_new(on, list, order, Arc::new(input.plan))?;
        Ok(DependentPlan { plan: LogicalPlan::Distinct(Distinct::On(plan)), keys: input.keys })
    }

    fn push_aggregate(&self, aggregate: Aggregate) -> Result<DependentPlan> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        if let [Expr::GroupingSet(set)] = group_expr.as_slice() {
            return self.push_grouping_sets(unwrap_plan(input), set, aggr_expr, &schema);
        }
        let is_of_all = group_expr.is_empty();
        let input = self.push_down(unwrap_plan(input))?;
        let (input, marker) = if is_of_all { self.add_row_per_value(input)? } else { (input, None) };
        let DependentPlan { plan, keys } = input;
        let mut groups = columns(&keys);
        for expr in group_expr {
            groups.push(self.replace_outer(expr, &keys, &plan)?);
        }
        let results = self.rewrite_aggregates(aggr_expr, &keys, &plan, marker.as_ref())?;
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), groups, results)?);
        let plan = rename_columns(plan, keys.len(), &schema, &keys)?;
        Ok(DependentPlan { plan, keys })
    }

    fn rewrite_aggregates(
        &self,
        aggregates: Vec<Expr>,
        keys: &[Column],
        input: &LogicalPlan,
        marker: Option<&Column>,
    ) -> Result<Vec<Expr>> {
        let results = aggregates.into_iter().map(|expr| {
            let expr = self.replace_outer(expr, keys, input)?;
            match marker {
                Some(marker) => filter_aggregate(expr, marker),
                None => Ok(expr),
            }
        });
        results.collect()
    }

    /// Rewrites GROUPING SETS, ROLLUP and CUBE. Only the empty set yields a row for empty input.
    fn push_grouping_sets(
        &self,
        input: LogicalPlan,
        set: &GroupingSet,
        aggregates: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<DependentPlan> {
        let sets = expand_sets(set)?;
        let grouped = set.distinct_expr().len();
        let has_all = sets.iter().any(Vec::is_empty);
        let input = self.push_down(input)?;
        let (input, marker) = if has_all { self.add_row_per_value(input)? } else { (input, None) };
        let DependentPlan { plan, keys } = input;
        let sets = sets.into_iter().map(|set| {
            let own = set.into_iter().map(|expr| self.replace_outer(expr, &keys, &plan));
            columns(&keys).into_iter().map(Ok).chain(own).collect::<Result<Vec<_>>>()
        });
        let sets = Expr::GroupingSet(GroupingSet::GroupingSets(sets.collect::<Result<_>>()?));
        let mut results = self.rewrite_aggregates(aggregates, &keys, &plan, marker.as_ref())?;
        if let Some(marker) = &marker {
            results.push(filter_aggregate(count(lit(1_i64)), marker)?.alias(&fresh_columns(1)[0].name));
        }
        let mut plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), vec![sets], results)?);
        if marker.is_some() {
            // The grouping ID has a bit for each column that is not in the set; the key columns, which always
            // are, come first.
            let computed = plan.schema().columns();
            let set = Expr::Column(computed[keys.len() + grouped].clone());
            let kind = set.get_type(plan.schema())?;
            let all = cast(lit((1_u64 << grouped) - 1), kind);
            let is_of_all = binary_expr(set, Operator::BitwiseAnd, all.clone()).eq(all);
            let has_rows = Expr::Column(computed[computed.len() - 1].clone()).gt(lit(0_i64));
            plan = LogicalPlan::Filter(Filter::try_new(has_rows.or(is_of_all), Arc::new(plan))?);
        }
        Ok(DependentPlan { plan: rename_columns(plan, keys.len(), schema, &keys)?, keys })
    }

    /// Adds one row per value to the rows, and a marker column that is true for the original rows.
    fn add_row_per_value(&self, rows: DependentPlan) -> Result<(DependentPlan, Option<Column>)> {
        let schema = Arc::clone(rows.plan.schema());
        let own = schema.columns().into_iter().filter(|column| !rows.keys.contains(column));
        let own: Vec<Column> = own.collect();
        let names = fresh_columns(own.len());
        let keys = fresh_columns(self.columns.len());
        let marker = fresh_columns(1).remove(0);
        let first = own.iter().zip(&names).chain(rows.keys.iter().zip(&keys));
        let first = first.map(|(column, name)| Expr::Column(column.clone()).alias(&name.name));
        let first: Vec<Expr> = first.chain([lit(true).alias(&marker.name)]).collect();
        let each = self.instantiate()?;
        let nulls = own.iter().zip(&names).map(|(column, name)| {
            let null = ScalarValue::try_new_null(schema.field_from_column(column)?.data_type())?;
            Ok(Expr::Literal(null, None).alias(&name.name))
        });
        let mut second = nulls.collect::<Result<Vec<_>>>()?;
        let values = each.keys.iter().zip(&keys);
        second.extend(values.map(|(value, key)| Expr::Column(value.clone()).alias(&key.name)));
        second.push(lit(false).alias(&marker.name));
        let inputs = [(first, rows.plan), (second, each.plan)].map(|(columns, input)| {
            Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?)))
        });
        let union = Union::try_new(inputs.into_iter().collect::<Result<_>>()?)?;
        let restored = own.iter().zip(&names).map(|(column, name)| {
            Expr::Column(name.clone()).alias_qualified(column.relation.clone(), &column.name)
        });
        let restored = restored.chain(columns(&keys)).chain([Expr::Column(marker.clone())]).collect();
        let plan =
            LogicalPlan::Projection(Projection::try_new(restored, Arc::new(LogicalPlan::Union(union)))?);
        Ok((DependentPlan { plan, keys }, Some(marker)))
    }

    fn push_window(&self, window: Window) -> Result<DependentPlan> {
        let Window { input, window_expr, schema } = window;
        let own = input.schema().columns();
        let DependentPlan { plan, keys } = self.push_down(unwrap_plan(input))?;
        let results = window_expr.into_iter().map(|expr| {
            let expr = self.replace_outer(expr, &keys, &plan)?;
            let partitioned = expr.transform_up(|part| match part {
                Expr::WindowFunction(mut function) => {
                    let by = &mut function.params.partition_by;
                    *by = columns(&keys).into_iter().chain(std::mem::take(by)).collect();
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(partitioned.data)
        });
        let results = results.collect::<Result<Vec<_>>>()?;
        let first = plan.schema().fields().len();
        let plan = LogicalPlan::Window(Window::try_new(results, Arc::new(plan))?);
        let computed = plan.schema().columns().into_iter().skip(first);
        let computed = computed.zip(schema.iter().skip(own.len())).map(|(column, (qualifier, field))| {
            Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
        });
        let list = own.into_iter().map(Expr::Column).chain(computed).chain(columns(&keys)).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?);
        Ok(DependentPlan { plan, keys })
    }

    fn push_union(&self, union: Union) -> Result<DependentPlan> {
        let schema = Arc::clone(&union.schema);
        let names = fresh_columns(schema.fields().len());
        let keys = fresh_columns(self.columns.len());
        let inputs = union.inputs.into_iter().map(|input| {
            let own = input.schema().columns();
            let pushed = self.push_down(unwrap_plan(input))?;
            let schema = pushed.plan.schema();
            let list = own.iter().chain(&pushed.keys).zip(names.iter().chain(&keys)).map(|(column, name)| {
                // A union exposes its inputs' columns without qualifiers. Filter pushdown looks for qualified
                // names.
                let column = Column::from(schema.qualified_field_from_column(column)?);
                Ok(Expr::Column(column).alias(&name.name))
            });
            let list = list.collect::<Result<_>>()?;
            Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(list, Arc::new(pushed.plan))?)))
        });
        let union = LogicalPlan::Union(Union::try_new(inputs.collect::<Result<_>>()?)?);
        Ok(DependentPlan { plan: rename_columns(union, 0, &schema, &keys)?, keys })
    }

    fn push_join(&self, join: Join) -> Result<DependentPlan> {
        let is_lateral = is_lateral(&join)?;
        let Join { left: one, right: other, on, filter, join_type, null_equality, .. } = join;
        let [mut has_one, mut has_other] = [!self.is_uncorrelated(&one)?, !self.is_uncorrelated(&other)?];
        let mut both = one.schema().as_ref().clone();
        both.merge(other.schema());
        match join_type {
            // Possibly only the join condition is correlated.
            JoinType::Inner => has_one |= !has_other,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => has_one = true,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => has_other = true,
            JoinType::Full => (has_one, has_other) = (true, true),
            JoinType::RightMark => return Err(unsupported_error("such a join")),
        }
        if is_lateral {
            // The lateral side is pushed down later, as a subquery of the other side.
            (has_one, has_other) = (true, false);
        }
        let one_schema = Arc::clone(one.schema());
        let one = if has_one {
            self.push_down(unwrap_plan(one))?
        } else {
            DependentPlan { plan: unwrap_plan(one), keys: vec![] }
        };
        let other = match () {
            () if is_lateral => {
                let replacements = self.replacements(&one.keys, one.plan.schema())?;
                let own = |(column, _): &(Column, Reference)| !one_schema.has_column(column);
                let replacements: Vec<_> = replacements.into_iter().filter(own).collect();
                DependentPlan { plan: replace_references(unwrap_plan(other), &replacements)?, keys: vec![] }
            }
            () if has_other => self.push_down(unwrap_plan(other))?,
            () => DependentPlan { plan: unwrap_plan(other), keys: vec![] },
        };
        // On the preserved side, unmatched rows have NULL keys from the other side.
        let keeps_other =
            has_other && matches!(join_type, JoinType::Right | JoinType::RightSemi | JoinType::RightAnti);
        let keys = if has_one && !keeps_other { one.keys.clone() } else { other.keys.clone() };
        let mut conditions = Vec::new();
        let mut schema = one.plan.schema().as_ref().clone();
        schema.merge(other.plan.schema());
        if has_one && has_other {
            for (key, same_key) in one.keys.iter().zip(&other.keys) {
                conditions.extend(null_safe_eq(key, same_key, &schema)?);
            }
        }
        if filter.as_ref().map(|filter| self.refers_to(filter, &both)).transpose()? == Some(true) {
            conditions.push(self.replace_outer_in(filter.unwrap_or_else(|| lit(true)), &keys, &schema)?);
        } else {
            conditions.extend(filter);
        }
        if on.iter().flat_map(|(one, other)| [one, other]).any(Expr::contains_outer) {
            return Err(unsupported_error("such a condition of a join"));
        }
        // A mark column is named after its side.
        let own = (join_type == JoinType::Full)
            .then(|| [&one_schema, other.plan.schema()].map(|schema| schema.columns()));
        let other_keys = other.keys.clone();
        let plan = LogicalPlan::Join(Join::try_new(
            Arc::new(one.plan),
            Arc::new(other.plan),
            on,
            conjunction(conditions),
            join_type,
            JoinConstraint::On,
            null_equality,
            false,
        )?);
        let Some(own) = own else { return Ok(DependentPlan { plan, keys }) };
        // Either side may be unmatched, and have NULL keys.
        let merged = fresh_columns(keys.len());
        let values = keys.iter().zip(&other_keys).zip(&merged).map(|((key, same_key), name)| {
            let [key, same_key] = [key, same_key].map(|key| Expr::Column(key.clone()));
            Ok(when(key.clone().is_null(), same_key).otherwise(key)?.alias(&name.name))
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let own = own.into_iter().flatten().filter(|column| !other_keys.contains(column)).map(Expr::Column);
        let plan = Projection::try_new(own.chain(values).collect(), Arc::new(plan))?;
        Ok(DependentPlan { plan: LogicalPlan::Projection(plan), keys: merged })
    }

    fn push_scan(&self, scan: &TableScan) -> Result<DependentPlan> {
        match self.rows_of(scan) {
            Some(carried) => {
                let (plan, keys) = carried.scan(scan)?;
                Ok(DependentPlan { plan, keys })
            }
            // Volatile filters of a scan.
            None => self.cross_join(LogicalPlan::TableScan(scan.clone())),
        }
    }

    fn push_shared(&self, shared: SharedRows) -> Result<DependentPlan> {
        let SharedRows { name, input, body } = shared;
        if self.is_uncorrelated(&input)? {
            let DependentPlan { plan: body, keys } = self.push_down(body)?;
            return Ok(DependentPlan { plan: SharedRows { name, input, body }.into_plan(), keys });
        }
        let (input, keys) = self.push_below_own(input)?;
        let new_name = format!("__shared_{}", next_number());
        let outer = self.with_rows(Carried::shared_rows(name, &new_name, &input, &keys)?);
        let DependentPlan { plan: body, keys } = outer.push_down(body)?;
        Ok(DependentPlan { plan: SharedRows { name: new_name, input, body }.into_plan(), keys })
    }

    /// Rewrites WITH RECURSIVE: each value has its own rounds. One that has no new rows takes no part in
    /// further ones.
    fn push_recursive(&self, query: RecursiveQuery) -> Result<DependentPlan> {
        let RecursiveQuery { name, static_term, recursive_term, is_distinct, schema } = query;
        let (first, keys) = self.push_below_own(unwrap_plan(static_term))?;
        let new_name = format!("{name}_{}", next_number());
        let outer = self.with_rows(Carried::work_table(name, &new_name, &first, &keys));
        let (next, _) = outer.push_below_own(unwrap_plan(recursive_term))?;
        let columns = next.schema().columns().into_iter().zip(first.schema().columns());
        let list = columns.map(|(column, name)| Expr::Column(column).alias(name.name)).collect();
        let next = LogicalPlan::Projection(Projection::try_new(list, Arc::new(next))?);
        let plan = RecursiveQuery::try_new(new_name, Arc::new(first), Arc::new(next), is_distinct)?;
        Ok(DependentPlan {
            plan: rename_columns(LogicalPlan::RecursiveQuery(plan), 0, &schema, &keys)?,
            keys,
        })
    }

    /// Rewrites a plan, and returns its own columns and behind them the keys, under new names.
    fn push_below_own(&self, plan: LogicalPlan) -> Result<(LogicalPlan, Vec<Column>)> {
        let own = plan.schema().columns();
        let DependentPlan { plan, keys } = self.push_down(plan)?;
        let names = fresh_columns(keys.len());
        let list = own.into_iter().map(Expr::Column);
        let list =
            list.chain(keys.into_iter().zip(&names).map(|(key, name)| Expr::Column(key).alias(&name.name)));
        Ok((LogicalPlan::Projection(Projection::try_new(list.collect(), Arc::new(plan))?), names))
    }

    fn push_values(&self, values: Values) -> Result<DependentPlan> {
        let rows = values.values.into_iter().map(|row| {
            let values_of_row = row.into_iter().zip(values.schema.iter());
            let list = values_of_row
                .map(|(value, (qualifier, field))| value.alias_qualified(qualifier.cloned(), field.name()));
            self.project(list.collect(), self.instantiate()?)
        });
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        if rows.len() == 1 {
            return Ok(rows.remove(0));
        }
        let keys = fresh_columns(self.columns.len());
        let names = fresh_columns(values.schema.fields().len());
        let inputs = rows.into_iter().map(|row| {
            let columns = row.plan.schema().columns();
            let list = columns.into_iter().zip(names.iter().chain(&keys));
            let list = list.map(|(column, name)| Expr::Column(column).alias(&name.name)).collect();
            Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(list, Arc::new(row.plan))?)))
        });
        let union = LogicalPlan::Union(Union::try_new(inputs.collect::<Result<_>>()?)?);
        Ok(DependentPlan { plan: rename_columns(union, 0, &values.schema, &keys)?, keys })
    }
}

/// Replaces IS NOT DISTINCT FROM between columns by equalities that a join can use.
fn null_safe_condition(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut parts = Vec::new();
    for part in split_conjunction_owned(condition) {
        match part {
            Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::IsNotDistinctFrom, right: other })
                if one.any_column_refs()
                    && other.any_column_refs()
                    && one.get_type(schema)? == other.get_type(schema)? =>
            {
                parts.extend(null_safe_eq_values(*one, *other, schema)?);
            }
            other => parts.push(other),
        }
    }
    Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
}

fn unwrap_plan(plan: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(plan)
}

fn columns(keys: &[Column]) -> Vec<Expr> {
    keys.iter().cloned().map(Expr::Column).collect()
}

/// New unique column names.
pub(super) fn fresh_columns(columns: usize) -> Vec<Column> {
    let number = next_number();
    (0..columns).map(|at| Column::from_name(format!("__outer_{number}_{at}"))).collect()
}

/// Projects the columns of a plan from `first` on under the names of `schema`, and the keys.
fn rename_columns(
    plan: LogicalPlan,
    first: usize,
    schema: &DFSchema,
    keys: &[Column],
) -> Result<LogicalPlan> {
    let computed = plan.schema().columns().into_iter().skip(first);
    let list = computed.zip(schema.iter()).map(|(column, (qualifier, field))| {
        let value = Expr::Column(column).cast_to(field.data_type(), plan.schema())?;
        Ok(value.alias_qualified(qualifier.cloned(), field.name()))
    });
    let mut list = list.collect::<Result<Vec<_>>>()?;
    list.extend(columns(keys));
    Ok(LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?))
}

/// Expands grouping sets, ROLLUP and CUBE.
///
/// Errors: a CUBE of too many columns (0A000).
fn expand_sets(set: &GroupingSet) -> Result<Vec<Vec<Expr>>> {
    const CUBE_COLUMNS_MAX: usize = 12;
    Ok(match set {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(columns) => (0..=columns.len()).rev().map(|to| columns[..to].to_vec()).collect(),
        GroupingSet::Cube(columns) if columns.len() <= CUBE_COLUMNS_MAX => {
            let of_bits = |bits: usize| {
                let is_in = |at: &usize| bits & (1 << at) != 0;
                (0..columns.len()).filter(is_in).map(|at| columns[at].clone()).collect()
            };
            (0..1_usize << columns.len()).rev().map(of_bits).collect()
        }
        GroupingSet::Cube(_) => return Err(unsupported_error("a CUBE of so many columns")),
    })
}

/// Restricts an aggregate to the rows whose `marker` is true.
fn filter_aggregate(expr: Expr, marker: &Column) -> Result<Expr> {
    let changed = expr.transform_up(|part| match part {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let marker = Expr::Column(marker.clone());
            params.filter = Some(Box::new(match params.filter.take() {
                Some(filter) => marker.and(*filter),
                None => marker,
            }));
            Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}
