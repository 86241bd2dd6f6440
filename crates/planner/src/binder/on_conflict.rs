//! Planner of `INSERT … ON CONFLICT`: finds the rows to insert that have a key of the table's rows, or of one
//! another.
//!
//! DO NOTHING removes these rows before they are inserted:
//!
//! ```text
//! rows ─► number them ─► LEFT ANTI JOIN the table, for each key ─► the first row of each key
//! ```
//!
//! DO UPDATE is a MERGE on the key with the rows, called `excluded`, as its source. For each key it finds the
//! first row that does something; a later row of the same key is an error (21000).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::logical_expr::dml::MergeIntoOp;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, TableSource,
    WindowFunctionDefinition, lit, when,
};
use harrier_functions::window::first_of_keys;
use harrier_functions::window::ranking::row_number;

/// The relation of the rows to insert, with the columns of the table.
const INSERTED: &str = "_harrier_inserted";

/// The name that a statement calls these rows.
const EXCLUDED: &str = "excluded";

/// The relation of the table's rows.
const TABLE: &str = "_harrier_conflicting";

/// The column that numbers the rows in the statement's order.
const ORDER: &str = "_harrier_order";

/// The column that numbers the rows of each key in any order.
const NUMBER: &str = "_harrier_number";

/// A key of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub columns: Vec<String>,
    /// NULLS NOT DISTINCT: a NULL equals another.
    pub nulls_equal: bool,
}

/// How many rows there are, and whether their order is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    One,
    Ordered,
    Unordered,
}

impl Rows {
    /// `count`: the number of rows, if it is known.
    pub fn of(plan: &LogicalPlan, count: Option<usize>) -> Self {
        match count {
            Some(0 | 1) => Self::One,
            _ if is_ordered(plan) => Self::Ordered,
            _ => Self::Unordered,
        }
    }
}

/// Whether the rows have an order that the statement tells.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Values(_) | LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        LogicalPlan::Limit(limit) => is_ordered(&limit.input),
        _ => false,
    }
}

/// The rows of `input` that DO NOTHING inserts: those without a key that a row of `table` has, or a row
/// before them that is inserted. `input` has the table's columns.
pub fn without_conflicts(
    input: LogicalPlan,
    rows: Rows,
    table: &Arc<dyn TableSource>,
    keys: &[Key],
) -> Result<LogicalPlan> {
    let input = LogicalPlanBuilder::from(input).alias(INSERTED)?.build()?;
    let own = input.schema().columns();
    let inserted = |name: &str| Expr::Column(Column::new(Some(INSERTED), name));
    let is_numbered = rows == Rows::Ordered || rows == Rows::Unordered && keys.len() > 1;
    let mut input = match is_numbered {
        true => with_column(input, row_number().call(vec![]), ORDER)?,
        false => input,
    };
    for key in keys {
        let there = LogicalPlanBuilder::scan(TABLE, Arc::clone(table), None)?
            .project(key.columns.iter().map(|name| Expr::Column(Column::new(Some(TABLE), name))))?
            .build()?;
        let side = |relation: &str| {
            let columns = key.columns.iter().map(|name| Column::new(Some(relation), name));
            columns.collect::<Vec<_>>()
        };
        let null_equality = match key.nulls_equal {
            true => NullEquality::NullEqualsNull,
            false => NullEquality::NullEqualsNothing,
        };
        input = LogicalPlanBuilder::from(input)
            .join_detailed(there, JoinType::LeftAnti, (side(INSERTED), side(TABLE)), None, null_equality)?
            .build()?;
    }
    let order = || Expr::Column(Column::new_unqualified(ORDER));
    if rows != Rows::One {
        let columns = |key: &Key| key.columns.iter().map(|name| inserted(name)).collect::<Vec<_>>();
        let has_null = |key: &Key| match key.nulls_equal {
            true => None,
            false => disjunction(columns(key).into_iter().map(Expr::is_null)),
        };
        let (first, is_kept) = match keys {
            [key] => {
                let number = row_number().call(vec![]).partition_by(columns(key));
                let number = match is_numbered {
                    true => number.order_by(vec![order().sort(true, false)]).build()?,
                    false => number.build()?,
                };
                let is_kept = Expr::Column(Column::new_unqualified(NUMBER)).eq(lit(1_i64));
                (number, has_null(key).into_iter().fold(is_kept, Expr::or))
            }
            keys => {
                let value = |key: &Key| {
                    let named = key.columns.iter().flat_map(|name| [lit(name.as_str()), inserted(name)]);
                    let value = named_struct(named.collect());
                    match has_null(key) {
                        Some(has_null) => when(has_null.is_not_true(), value).end(),
                        None => Ok(value),
                    }
                };
                let keys = keys.iter().map(value).collect::<Result<Vec<_>>>()?;
                let function = WindowFunctionDefinition::WindowUDF(first_of_keys::function());
                let first = Expr::from(WindowFunction::new(function, keys))
                    .order_by(vec![order().sort(true, false)])
                    .build()?;
                (first, Expr::Column(Column::new_unqualified(NUMBER)))
            }
        };
        input = LogicalPlanBuilder::from(with_column(input, first, NUMBER)?).filter(is_kept)?.build()?;
    }
    let input = LogicalPlanBuilder::from(input);
    let input = match rows {
        Rows::Ordered => input.sort([order().sort(true, false)])?,
        Rows::One | Rows::Unordered => input,
    };
    let columns = own.into_iter().map(|column| {
        let name = column.name.clone();
        Expr::Column(column).alias(name)
    });
    input.project(columns)?.build()
}

/// The source of the MERGE that DO UPDATE becomes. `input` has the table's columns.
pub fn excluded_rows(input: LogicalPlan, rows: Rows, key: &Key) -> Result<LogicalPlan> {
    let input = LogicalPlanBuilder::from(input).alias(INSERTED)?.alias(EXCLUDED)?.build()?;
    let partition = key.columns.iter().map(|name| excluded_column(name)).collect();
    match rows {
        Rows::One => Ok(input),
        Rows::Ordered => with_column(input, row_number().call(vec![]), ORDER),
        Rows::Unordered => {
            with_column(input, row_number().call(vec![]).partition_by(partition).build()?, NUMBER)
        }
    }
}

/// A column of the rows that DO UPDATE would insert.
pub fn excluded_column(name: &str) -> Expr {
    Expr::Column(Column::new(Some(EXCLUDED), name))
}

/// The condition of the MERGE that DO UPDATE becomes.
pub fn on_key(table: &TableReference, key: &Key) -> Expr {
    let operator = if key.nulls_equal { Operator::IsNotDistinctFrom } else { Operator::Eq };
    let columns = key.columns.iter().map(|name| {
        let own = Expr::Column(Column::new(Some(table.clone()), name));
        Expr::BinaryExpr(BinaryExpr::new(Box::new(own), operator, Box::new(excluded_column(name))))
    });
    conjunction(columns).unwrap_or_else(|| lit(true))
}

/// The rows that the statement gave to insert, in the input of an INSERT with ON CONFLICT; `None` for others.
pub fn inserted_rows(input: &LogicalPlan) -> Option<&LogicalPlan> {
    let mut found = None;
    let searched = input.apply(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node
            && is_inserted(&alias.alias)
        {
            found = Some(alias.input.as_ref());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    searched.ok().and(found)
}

/// Changes the rows that the statement gave to insert, or all of `input` if there is no ON CONFLICT.
pub fn map_inserted(
    input: LogicalPlan,
    change: impl Fn(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    if inserted_rows(&input).is_none() {
        return change(input);
    }
    let changed = input.transform_down(|node| match node {
        LogicalPlan::SubqueryAlias(alias) if is_inserted(&alias.alias) => {
            let rows = change(Arc::unwrap_or_clone(alias.input))?;
            let renamed = LogicalPlanBuilder::from(rows).alias(alias.alias)?.build()?;
            Ok(Transformed::new(renamed, true, TreeNodeRecursion::Jump))
        }
        node => Ok(Transformed::no(node)),
    })?;
    // Types and nullability may have changed.
    Ok(changed.data.transform_up(|node| node.recompute_schema().map(Transformed::yes))?.data)
}

fn is_inserted(name: &TableReference) -> bool {
    name.table() == INSERTED
}

/// Adds a column with a window function's values.
fn with_column(input: LogicalPlan, function: Expr, name: &str) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let input = LogicalPlanBuilder::from(input).window([function])?.build()?;
    let added = input.schema().columns().pop();
    let added = added.map(|added| Expr::Column(added).alias(name));
    LogicalPlanBuilder::from(input).project(columns.into_iter().chain(added))?.build()
}

/// The rows of a MERGE that repeat the key of another.
#[derive(Default)]
pub(crate) struct Repeats {
    /// Whether a row before has the same key and does something.
    pub(crate) is_repeated: Option<Expr>,
    /// The order of the rows, if the statement tells it.
    pub(crate) order: Option<Expr>,
}

impl Repeats {
    /// Adds what is needed to `decided`, whose column `clause` is not NULL for the rows that do something.
    /// Nothing, if `merge` is not that of DO UPDATE of several rows.
    pub(crate) fn find(
        decided: LogicalPlan,
        merge: &MergeIntoOp,
        clause: &Expr,
    ) -> Result<(LogicalPlan, Self)> {
        let numbered = [ORDER, NUMBER].into_iter().map(Column::new_unqualified);
        let Some(number) = numbered.into_iter().find(|number| decided.schema().has_column(number)) else {
            return Ok((decided, Self::default()));
        };
        let order = (number.name == ORDER).then(|| Expr::Column(number.clone()));
        let number = Expr::Column(number);
        let mut keys = vec![];
        let mut is_key = lit(true);
        for part in split_conjunction(&merge.on) {
            let Expr::BinaryExpr(BinaryExpr { op, right, .. }) = part else {
                return Err(DataFusionError::Internal(format!("{part} does not compare keys")));
            };
            if *op == Operator::Eq {
                is_key = is_key.and(right.as_ref().clone().is_not_null());
            }
            keys.push(right.as_ref().clone());
        }
        let does_something = when(clause.clone().is_not_null(), number.clone()).end()?;
        let function = WindowFunctionDefinition::AggregateUDF(min_udaf());
        let first = Expr::from(WindowFunction::new(function, vec![does_something]));
        let decided =
            LogicalPlanBuilder::from(decided).window([first.partition_by(keys).build()?])?.build()?;
        let first = decided.schema().columns().pop();
        let is_repeated = first.map(|first| is_key.and(number.gt(Expr::Column(first))));
        Ok((decided, Self { is_repeated, order }))
    }
}
