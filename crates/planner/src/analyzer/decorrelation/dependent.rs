//! A subquery for all values of its outer columns at once.
//!
//! [`Outer`] has the distinct values of the outer columns. They are joined to what the subquery reads, its
//! outer references become columns of that, and every operator above works for each value by itself:
//!
//! | operator | becomes |
//! |---|---|
//! | table | values × table |
//! | WHERE | the same, of columns |
//! | GROUP BY g | GROUP BY values, g |
//! | an aggregate of all rows | GROUP BY values, over the rows and a row for each value that the aggregate passes over |
//! | GROUPING SETS | the values in each; the set of no column as an aggregate of all rows |
//! | DISTINCT | of values and columns |
//! | OVER (PARTITION BY p) | OVER (PARTITION BY values, p) |
//! | ORDER BY o LIMIT n OFFSET m | row_number() OVER (PARTITION BY values ORDER BY o) BETWEEN m + 1 AND m + n |
//! | JOIN, UNION | of the sides, which are joined by the values too |

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, DistinctOn, Join, JoinConstraint, Limit, Projection, SubqueryAlias, Union, Unnest,
    Values, Window,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, FetchType, Filter, JoinType, LogicalPlan,
    LogicalPlanBuilder, Operator, SkipType, Sort, SortExpr, binary_expr, cast, lit, when,
};
use harrier_functions::window::ranking::row_number;

use super::conditions::{next_number, same, same_values, unsupported};
use super::references::{Reference, free, free_of, has_subquery, is_lateral, moved, moved_of};

/// The distinct values of the columns of a query that a subquery speaks of.
pub(super) struct Outer {
    values: LogicalPlan,
    columns: Vec<Column>,
}

/// A plan with all of its columns, under their names, and those of the values.
pub(super) struct Pushed {
    pub(super) plan: LogicalPlan,
    /// In the order of [`Outer::columns`].
    pub(super) keys: Vec<Column>,
}

/// Whether the first of these rows are the same each time: all columns of theirs are keys of their order.
fn is_ordered_by_all(rows: &LogicalPlan) -> bool {
    let (mut shown, mut rows) = (None, rows);
    loop {
        match rows {
            LogicalPlan::SubqueryAlias(alias) => {
                // Below it columns have other names.
                shown = None;
                rows = &alias.input;
            }
            LogicalPlan::Projection(projection) if !projection.expr.iter().any(has_subquery) => {
                shown = Some(columns_of(&projection.expr));
                rows = &projection.input;
            }
            LogicalPlan::Sort(sort) => {
                let keys: Vec<&Expr> = sort.expr.iter().map(|key| &key.expr).collect();
                let all = || sort.input.schema().columns().into_iter().collect();
                return are_keys(&shown.unwrap_or_else(all), &keys);
            }
            _ => return false,
        }
    }
}

/// Whether a row of each group is the same each time: what is shown of it is in the keys of the order.
fn tells_all_apart(on: &DistinctOn) -> bool {
    let order = on.sort_expr.iter().flatten().map(|key| &key.expr);
    !on.select_expr.iter().any(has_subquery)
        && are_keys(&columns_of(&on.select_expr), &on.on_expr.iter().chain(order).collect::<Vec<_>>())
}

fn columns_of(exprs: &[Expr]) -> HashSet<Column> {
    exprs.iter().flat_map(Expr::column_refs).cloned().collect()
}

fn are_keys(columns: &HashSet<Column>, keys: &[&Expr]) -> bool {
    columns.iter().all(|column| keys.iter().any(|key| matches!(key, Expr::Column(key) if key == column)))
}

impl Outer {
    /// The values that `columns` have among the rows of `query`.
    ///
    /// Errors: the rows of the query may be others each time that it is run (0A000). Those of a LIMIT are not
    /// where all columns are keys of its order.
    pub(super) fn of(query: &LogicalPlan, columns: Vec<Column>) -> Result<Self> {
        let changes = query.exists(|node| {
            let is_volatile = node.expressions().iter().any(Expr::is_volatile);
            Ok(is_volatile
                || match node {
                    LogicalPlan::Limit(limit) => !is_ordered_by_all(&limit.input),
                    LogicalPlan::Distinct(Distinct::On(on)) => !tells_all_apart(on),
                    _ => false,
                })
        })?;
        if changes {
            return Err(unsupported("a query around it that has LIMIT, DISTINCT ON or volatile functions"));
        }
        let named = columns.iter().cloned().zip(fresh(columns.len()));
        let values = LogicalPlanBuilder::from(query.clone())
            .project(named.map(|(column, name)| Expr::Column(column).alias(name.name)))?
            .distinct()?
            .build()?;
        Ok(Self { values, columns })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// `plan` for each of the values.
    ///
    /// Errors: an operator in it is not computed so (0A000).
    pub(super) fn push(&self, plan: LogicalPlan) -> Result<Pushed> {
        if self.is_free(&plan)? {
            return self.crossed(plan);
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let Pushed { plan: input, keys } = self.push(owned(filter.input))?;
                let predicate = joined_by(self.replaced(filter.predicate, &keys, &input)?, input.schema())?;
                let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
                Ok(Pushed { plan, keys })
            }
            LogicalPlan::Projection(list) => {
                let input = self.push(owned(list.input))?;
                self.projected(list.expr, input)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Pushed { plan, keys } = self.push(owned(alias.input))?;
                let keys = keys.into_iter().map(|key| Column::new(Some(alias.alias.clone()), key.name));
                let plan = SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?;
                Ok(Pushed { keys: keys.collect(), plan: LogicalPlan::SubqueryAlias(plan) })
            }
            LogicalPlan::Subquery(subquery) => self.push(owned(subquery.subquery)),
            LogicalPlan::Sort(Sort { input, fetch: None, .. }) => self.push(owned(input)),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Pushed { plan, keys } = self.push(owned(input))?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
                Ok(Pushed { plan, keys })
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate),
            LogicalPlan::Window(window) => self.windowed(window),
            LogicalPlan::Union(union) => self.united(union),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Values(values) => self.listed(values),
            LogicalPlan::Unnest(unnest) => {
                let Pushed { plan, keys } = self.push(owned(unnest.input))?;
                let plan = Unnest::try_new(Arc::new(plan), unnest.exec_columns, unnest.options)?;
                Ok(Pushed { plan: LogicalPlan::Unnest(plan), keys })
            }
            LogicalPlan::RecursiveQuery(_) => Err(unsupported("WITH RECURSIVE")),
            _ => Err(unsupported("columns of the query around it in such a place")),
        }
    }

    fn is_free(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(!free(plan)?.iter().any(|(column, _)| self.columns.contains(column)))
    }

    fn speaks(&self, expr: &Expr, scope: &DFSchema) -> Result<bool> {
        Ok(free_of(expr, scope)?.iter().any(|(column, _)| self.columns.contains(column)))
    }

    /// The values, under names of their own.
    fn instance(&self) -> Result<Pushed> {
        let keys = fresh(self.columns.len());
        let columns = self.values.schema().columns().into_iter().zip(&keys);
        let columns = columns.map(|(column, key)| Expr::Column(column).alias(&key.name)).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(self.values.clone()))?);
        Ok(Pushed { plan, keys })
    }

    fn crossed(&self, plan: LogicalPlan) -> Result<Pushed> {
        let Pushed { plan: values, keys } = self.instance()?;
        let plan = match plan {
            LogicalPlan::EmptyRelation(empty)
                if empty.produce_one_row && empty.schema.fields().is_empty() =>
            {
                values
            }
            plan => LogicalPlanBuilder::from(values).cross_join(plan)?.build()?,
        };
        Ok(Pushed { plan, keys })
    }

    /// An expression over the pushed input of its node, with keys in the place of outer references.
    fn replaced(&self, expr: Expr, keys: &[Column], input: &LogicalPlan) -> Result<Expr> {
        self.replaced_in(expr, keys, input.schema())
    }

    fn replaced_in(&self, expr: Expr, keys: &[Column], schema: &DFSchema) -> Result<Expr> {
        let expr = moved_of(expr, &self.moves(keys, schema)?, schema)?;
        let changed = expr.transform_up(|part| match part {
            Expr::OuterReferenceColumn(_, ref column) if keys.contains(column) => {
                Ok(Transformed::yes(Expr::Column(column.clone())))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.data)
    }

    fn moves(&self, keys: &[Column], schema: &DFSchema) -> Result<Vec<(Column, Reference)>> {
        let to = |key: &Column| -> Result<Reference> {
            Ok((key.clone(), Arc::clone(schema.field_from_column(key)?)))
        };
        self.columns.iter().zip(keys).map(|(column, key)| Ok((column.clone(), to(key)?))).collect()
    }

    /// A list over a pushed input.
    fn projected(&self, list: Vec<Expr>, input: Pushed) -> Result<Pushed> {
        let Pushed { plan, keys } = input;
        let names = NamePreserver::new_for_projection();
        let columns = list.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(self.replaced(expr, &keys, &plan)?))
        });
        let mut columns = columns.collect::<Result<Vec<_>>>()?;
        columns.extend(keys.iter().cloned().map(Expr::Column));
        let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        Ok(Pushed { plan, keys })
    }

    fn sorted(&self, order: Vec<SortExpr>, input: &Pushed) -> Result<Vec<SortExpr>> {
        let replaced = order.into_iter().map(|key| {
            let expr = self.replaced(key.expr, &input.keys, &input.plan)?;
            Ok(SortExpr { expr, ..key })
        });
        replaced.collect()
    }

    fn limited(&self, limit: Limit) -> Result<Pushed> {
        let (FetchType::Literal(fetch), SkipType::Literal(skip)) =
            (limit.get_fetch_type()?, limit.get_skip_type()?)
        else {
            return Err(unsupported("a LIMIT or OFFSET that is computed"));
        };
        // Columns that are sorted by and not selected are projected away above the sort.
        let (list, sorted) = match owned(limit.input) {
            LogicalPlan::Projection(list) if matches!(list.input.as_ref(), LogicalPlan::Sort(_)) => {
                (Some(list.expr), owned(list.input))
            }
            other => (None, other),
        };
        let (order, input) = match sorted {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => (expr, owned(input)),
            other => (vec![], other),
        };
        let schema = Arc::clone(input.schema());
        let input = self.push(input)?;
        let order = self.sorted(order, &input)?;
        let turn = row_number().call(vec![]).partition_by(columns(&input.keys));
        let turn = if order.is_empty() { turn.build()? } else { turn.order_by(order).build()? };
        let column = Expr::Column(Column::from_name(turn.schema_name().to_string()));
        let [skip, fetch] =
            [Some(skip), fetch].map(|rows| rows.map(|rows| i64::try_from(rows).unwrap_or(i64::MAX)));
        let skip = skip.unwrap_or(0);
        let from = column.clone().gt(lit(skip));
        let within = fetch.map(|fetch| column.lt_eq(lit(skip.saturating_add(fetch))));
        let predicate = conjunction([from].into_iter().chain(within)).unwrap_or_else(|| lit(true));
        let window = LogicalPlan::Window(Window::try_new(vec![turn], Arc::new(input.plan))?);
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(window))?);
        let own = schema.columns().into_iter().chain(input.keys.iter().cloned()).map(Expr::Column);
        let plan = LogicalPlan::Projection(Projection::try_new(own.collect(), Arc::new(plan))?);
        let rows = Pushed { plan, keys: input.keys };
        match list {
            Some(list) => self.projected(list, rows),
            None => Ok(rows),
        }
    }

    fn distinct_on(&self, distinct: DistinctOn) -> Result<Pushed> {
        let DistinctOn { on_expr, select_expr, sort_expr, input, .. } = distinct;
        let input = self.push(owned(input))?;
        let names = NamePreserver::new_for_projection();
        let replaced = |expr: Expr| self.replaced(expr, &input.keys, &input.plan);
        let on = on_expr.into_iter().map(replaced).collect::<Result<Vec<_>>>()?;
        let list = select_expr.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(replaced(expr)?))
        });
        let mut list = list.collect::<Result<Vec<_>>>()?;
        list.extend(columns(&input.keys));
        let on = columns(&input.keys).into_iter().chain(on).collect::<Vec<_>>();
        let order = self.sorted(sort_expr.unwrap_or_default(), &input)?;
        let keys = columns(&input.keys).into_iter().map(|key| key.sort(true, false));
        let order = (!order.is_empty()).then(|| keys.chain(order).collect::<Vec<_>>());
        let plan = DistinctOn::try_new(on, list, order, Arc::new(input.plan))?;
        Ok(Pushed { plan: LogicalPlan::Distinct(Distinct::On(plan)), keys: input.keys })
    }

    fn aggregated(&self, aggregate: Aggregate) -> Result<Pushed> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        if let [Expr::GroupingSet(set)] = group_expr.as_slice() {
            return self.aggregated_in_sets(owned(input), set, aggr_expr, &schema);
        }
        let is_of_all = group_expr.is_empty();
        let input = self.push(owned(input))?;
        let (input, marker) = if is_of_all { self.with_each(input)? } else { (input, None) };
        let Pushed { plan, keys } = input;
        let mut groups = columns(&keys);
        for expr in group_expr {
            groups.push(self.replaced(expr, &keys, &plan)?);
        }
        let results = self.results(aggr_expr, &keys, &plan, marker.as_ref())?;
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), groups, results)?);
        let plan = renamed(plan, keys.len(), &schema, &keys)?;
        Ok(Pushed { plan, keys })
    }

    fn results(
        &self,
        aggregates: Vec<Expr>,
        keys: &[Column],
        input: &LogicalPlan,
        marker: Option<&Column>,
    ) -> Result<Vec<Expr>> {
        let results = aggregates.into_iter().map(|expr| {
            let expr = self.replaced(expr, keys, input)?;
            match marker {
                Some(marker) => filtered(expr, marker),
                None => Ok(expr),
            }
        });
        results.collect()
    }

    /// GROUPING SETS, ROLLUP and CUBE. Of them the set of no column alone has a row where there are none.
    fn aggregated_in_sets(
        &self,
        input: LogicalPlan,
        set: &GroupingSet,
        aggregates: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<Pushed> {
        let sets = sets_of(set)?;
        let grouped = set.distinct_expr().len();
        let has_all = sets.iter().any(Vec::is_empty);
        let input = self.push(input)?;
        let (input, marker) = if has_all { self.with_each(input)? } else { (input, None) };
        let Pushed { plan, keys } = input;
        let sets = sets.into_iter().map(|set| {
            let own = set.into_iter().map(|expr| self.replaced(expr, &keys, &plan));
            columns(&keys).into_iter().map(Ok).chain(own).collect::<Result<Vec<_>>>()
        });
        let sets = Expr::GroupingSet(GroupingSet::GroupingSets(sets.collect::<Result<_>>()?));
        let mut results = self.results(aggregates, &keys, &plan, marker.as_ref())?;
        if let Some(marker) = &marker {
            results.push(filtered(count(lit(1_i64)), marker)?.alias(&fresh(1)[0].name));
        }
        let mut plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), vec![sets], results)?);
        if marker.is_some() {
            // A bit for each column that is not in the set; those of the values, which always are, come
            // before.
            let computed = plan.schema().columns();
            let set = Expr::Column(computed[keys.len() + grouped].clone());
            let kind = set.get_type(plan.schema())?;
            let all = cast(lit((1_u64 << grouped) - 1), kind);
            let is_of_all = binary_expr(set, Operator::BitwiseAnd, all.clone()).eq(all);
            let has_rows = Expr::Column(computed[computed.len() - 1].clone()).gt(lit(0_i64));
            plan = LogicalPlan::Filter(Filter::try_new(has_rows.or(is_of_all), Arc::new(plan))?);
        }
        Ok(Pushed { plan: renamed(plan, keys.len(), schema, &keys)?, keys })
    }

    /// Rows, and beside them one for each value, with a column that tells them apart: true of the first.
    fn with_each(&self, rows: Pushed) -> Result<(Pushed, Option<Column>)> {
        let schema = Arc::clone(rows.plan.schema());
        let own = schema.columns().into_iter().filter(|column| !rows.keys.contains(column));
        let own: Vec<Column> = own.collect();
        let names = fresh(own.len());
        let keys = fresh(self.columns.len());
        let marker = fresh(1).remove(0);
        let first = own.iter().zip(&names).chain(rows.keys.iter().zip(&keys));
        let first = first.map(|(column, name)| Expr::Column(column.clone()).alias(&name.name));
        let first: Vec<Expr> = first.chain([lit(true).alias(&marker.name)]).collect();
        let each = self.instance()?;
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
        Ok((Pushed { plan, keys }, Some(marker)))
    }

    fn windowed(&self, window: Window) -> Result<Pushed> {
        let Window { input, window_expr, schema } = window;
        let own = input.schema().columns();
        let Pushed { plan, keys } = self.push(owned(input))?;
        let results = window_expr.into_iter().map(|expr| {
            let expr = self.replaced(expr, &keys, &plan)?;
            let parted = expr.transform_up(|part| match part {
                Expr::WindowFunction(mut function) => {
                    let by = &mut function.params.partition_by;
                    *by = columns(&keys).into_iter().chain(std::mem::take(by)).collect();
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(parted.data)
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
        Ok(Pushed { plan, keys })
    }

    fn united(&self, union: Union) -> Result<Pushed> {
        let schema = Arc::clone(&union.schema);
        let names = fresh(schema.fields().len());
        let keys = fresh(self.columns.len());
        let inputs = union.inputs.into_iter().map(|input| {
            let own = input.schema().columns();
            let pushed = self.push(owned(input))?;
            let schema = pushed.plan.schema();
            let list = own.iter().chain(&pushed.keys).zip(names.iter().chain(&keys)).map(|(column, name)| {
                // A union knows the columns of its inputs without their relations. A rule that moves
                // conditions looks for whole names.
                let column = Column::from(schema.qualified_field_from_column(column)?);
                Ok(Expr::Column(column).alias(&name.name))
            });
            let list = list.collect::<Result<_>>()?;
            Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(list, Arc::new(pushed.plan))?)))
        });
        let union = LogicalPlan::Union(Union::try_new(inputs.collect::<Result<_>>()?)?);
        Ok(Pushed { plan: renamed(union, 0, &schema, &keys)?, keys })
    }

    fn joined(&self, join: Join) -> Result<Pushed> {
        let is_lateral = is_lateral(&join)?;
        let Join { left: one, right: other, on, filter, join_type, null_equality, .. } = join;
        let [mut has_one, mut has_other] = [!self.is_free(&one)?, !self.is_free(&other)?];
        let mut both = one.schema().as_ref().clone();
        both.merge(other.schema());
        match join_type {
            // Conditions alone may speak of the values.
            JoinType::Inner => has_one |= !has_other,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => has_one = true,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => has_other = true,
            JoinType::Full => (has_one, has_other) = (true, true),
            JoinType::RightMark => return Err(unsupported("such a join")),
        }
        if is_lateral {
            // The side that speaks of the other is pushed in its turn, for it is a subquery of that.
            (has_one, has_other) = (true, false);
        }
        let one_schema = Arc::clone(one.schema());
        let one = if has_one { self.push(owned(one))? } else { Pushed { plan: owned(one), keys: vec![] } };
        let other = match () {
            () if is_lateral => {
                let moves = self.moves(&one.keys, one.plan.schema())?;
                let own = |(column, _): &(Column, Reference)| !one_schema.has_column(column);
                let moves: Vec<_> = moves.into_iter().filter(own).collect();
                Pushed { plan: moved(owned(other), &moves)?, keys: vec![] }
            }
            () if has_other => self.push(owned(other))?,
            () => Pushed { plan: owned(other), keys: vec![] },
        };
        // Rows of the side that is kept may be without a partner, whose values are NULL then.
        let keeps_other =
            has_other && matches!(join_type, JoinType::Right | JoinType::RightSemi | JoinType::RightAnti);
        let keys = if has_one && !keeps_other { one.keys.clone() } else { other.keys.clone() };
        let mut conditions = Vec::new();
        let mut schema = one.plan.schema().as_ref().clone();
        schema.merge(other.plan.schema());
        if has_one && has_other {
            for (key, same_key) in one.keys.iter().zip(&other.keys) {
                conditions.extend(same(key, same_key, &schema)?);
            }
        }
        if filter.as_ref().map(|filter| self.speaks(filter, &both)).transpose()? == Some(true) {
            conditions.push(self.replaced_in(filter.unwrap_or_else(|| lit(true)), &keys, &schema)?);
        } else {
            conditions.extend(filter);
        }
        if on.iter().flat_map(|(one, other)| [one, other]).any(Expr::contains_outer) {
            return Err(unsupported("such a condition of a join"));
        }
        // A mark has the name of the side that it is about.
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
        let Some(own) = own else { return Ok(Pushed { plan, keys }) };
        // Either side may be without a partner, and have no values then.
        let merged = fresh(keys.len());
        let values = keys.iter().zip(&other_keys).zip(&merged).map(|((key, same_key), name)| {
            let [key, same_key] = [key, same_key].map(|key| Expr::Column(key.clone()));
            Ok(when(key.clone().is_null(), same_key).otherwise(key)?.alias(&name.name))
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let own = own.into_iter().flatten().filter(|column| !other_keys.contains(column)).map(Expr::Column);
        let plan = Projection::try_new(own.chain(values).collect(), Arc::new(plan))?;
        Ok(Pushed { plan: LogicalPlan::Projection(plan), keys: merged })
    }

    fn listed(&self, values: Values) -> Result<Pushed> {
        let rows = values.values.into_iter().map(|row| {
            let values_of_row = row.into_iter().zip(values.schema.iter());
            let list = values_of_row
                .map(|(value, (qualifier, field))| value.alias_qualified(qualifier.cloned(), field.name()));
            self.projected(list.collect(), self.instance()?)
        });
        let mut rows = rows.collect::<Result<Vec<_>>>()?;
        if rows.len() == 1 {
            return Ok(rows.remove(0));
        }
        let keys = fresh(self.columns.len());
        let names = fresh(values.schema.fields().len());
        let inputs = rows.into_iter().map(|row| {
            let columns = row.plan.schema().columns();
            let list = columns.into_iter().zip(names.iter().chain(&keys));
            let list = list.map(|(column, name)| Expr::Column(column).alias(&name.name)).collect();
            Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(list, Arc::new(row.plan))?)))
        });
        let union = LogicalPlan::Union(Union::try_new(inputs.collect::<Result<_>>()?)?);
        Ok(Pushed { plan: renamed(union, 0, &values.schema, &keys)?, keys })
    }
}

/// A condition, with equalities in the place of IS NOT DISTINCT FROM between values of rows, of which a join
/// is made.
fn joined_by(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut parts = Vec::new();
    for part in split_conjunction_owned(condition) {
        match part {
            Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::IsNotDistinctFrom, right: other })
                if one.any_column_refs()
                    && other.any_column_refs()
                    && one.get_type(schema)? == other.get_type(schema)? =>
            {
                parts.extend(same_values(*one, *other, schema)?);
            }
            other => parts.push(other),
        }
    }
    Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
}

fn owned(plan: Arc<LogicalPlan>) -> LogicalPlan {
    Arc::unwrap_or_clone(plan)
}

fn columns(keys: &[Column]) -> Vec<Expr> {
    keys.iter().cloned().map(Expr::Column).collect()
}

/// Names of columns that nothing else has.
pub(super) fn fresh(columns: usize) -> Vec<Column> {
    let number = next_number();
    (0..columns).map(|at| Column::from_name(format!("__outer_{number}_{at}"))).collect()
}

/// The columns of a plan from `first` on, under the names of `schema`, and the keys.
fn renamed(plan: LogicalPlan, first: usize, schema: &DFSchema, keys: &[Column]) -> Result<LogicalPlan> {
    let computed = plan.schema().columns().into_iter().skip(first);
    let list = computed.zip(schema.iter()).map(|(column, (qualifier, field))| {
        let value = Expr::Column(column).cast_to(field.data_type(), plan.schema())?;
        Ok(value.alias_qualified(qualifier.cloned(), field.name()))
    });
    let mut list = list.collect::<Result<Vec<_>>>()?;
    list.extend(columns(keys));
    Ok(LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?))
}

/// The sets of columns that are grouped by.
///
/// Errors: there are more of them than there is any use for (0A000).
fn sets_of(set: &GroupingSet) -> Result<Vec<Vec<Expr>>> {
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
        GroupingSet::Cube(_) => return Err(unsupported("a CUBE of so many columns")),
    })
}

/// An aggregate of the rows alone of which `marker` is true.
fn filtered(expr: Expr, marker: &Column) -> Result<Expr> {
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
