//! Queries of Hive: names of columns, GROUP BY … WITH ROLLUP, SORT BY and its relatives.
//!
//! Source: Hive Language Manual, "Enhanced Aggregation, Cube, Grouping and Rollup" and "SortBy";
//! `SemanticAnalyzer.getColAlias` for names.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, GroupByExpr, GroupByWithModifier, Ident, JoinOperator, OrderBy, OrderByKind, Query,
    Select, SelectFlavor, SelectItem, SetExpr, TableFactor, Value, visit_expressions_mut,
};

use super::build::{ascending, call};
use super::{generators, plain_name, refuse};

/// Errors: both SORT BY and ORDER BY (42601).
pub(super) fn rewrite_query(query: &mut Query) -> Result<()> {
    if let Some(with) = &mut query.with {
        with.cte_tables.iter_mut().for_each(|table| plain_name(&mut table.alias.name));
    }
    grouping_id(query);
    if let SetExpr::Select(select) = query.body.as_mut() {
        // Rows of one part are in order: those of a whole result are, too. Where rows go is no part of what
        // they are.
        let mut sorted = std::mem::take(&mut select.sort_by);
        if sorted.is_empty() {
            let clustered = std::mem::take(&mut select.cluster_by);
            sorted = clustered.into_iter().map(ascending).collect();
        }
        select.distribute_by.clear();
        if !sorted.is_empty() && query.order_by.is_none() {
            query.order_by = Some(OrderBy { kind: OrderByKind::Expressions(sorted), interpolate: None });
        }
    }
    Ok(())
}

/// `GROUPING__ID` is `grouping` of all keys.
fn grouping_id(query: &mut Query) {
    const NAME: &str = "grouping__id";
    let is_id = |expr: &Expr| matches!(expr, Expr::Identifier(name) if name.value.eq_ignore_ascii_case(NAME));
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return };
    let keys = match keys.as_slice() {
        [Expr::Rollup(sets) | Expr::Cube(sets)] => sets.concat(),
        keys => keys.to_vec(),
    };
    if keys.is_empty() {
        return;
    }
    let id = call("grouping", keys);
    let mut is_named = false;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && is_id(expr)
        {
            *item = SelectItem::ExprWithAlias { expr: id.clone(), alias: Ident::new(NAME) };
            is_named = true;
        }
    }
    let mut replace = |expr: &mut Expr| {
        if is_id(expr) {
            *expr = id.clone();
        }
        ControlFlow::<()>::Continue(())
    };
    let _ = visit_expressions_mut(&mut select.projection, &mut replace);
    let _ = visit_expressions_mut(&mut select.having, &mut replace);
    if !is_named {
        let _ = visit_expressions_mut(&mut query.order_by, &mut replace);
    }
}

/// Errors: TABLESAMPLE, LEFT SEMI JOIN without a condition and others (0A000).
pub(super) fn rewrite_select(select: &mut Select) -> Result<()> {
    if !select.lateral_views.is_empty() {
        return Err(refuse("LATERAL VIEW is not supported here"));
    }
    for from in &mut select.from {
        check_factor(&mut from.relation)?;
        for join in &mut from.joins {
            check_factor(&mut join.relation)?;
            if let JoinOperator::Semi(condition) = &join.join_operator {
                join.join_operator = JoinOperator::LeftSemi(condition.clone());
            }
        }
    }
    select.flavor = SelectFlavor::Standard;
    with_modifiers(&mut select.group_by)?;
    generators::in_select_list(&mut select.projection)?;
    for (at, item) in select.projection.iter_mut().enumerate() {
        name_item(item, at);
    }
    Ok(())
}

fn check_factor(factor: &mut TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table { sample: Some(_), .. } => Err(refuse("TABLESAMPLE is not supported in HiveQL")),
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            plain_name(&mut alias.name);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// `GROUP BY a, b WITH ROLLUP` is `GROUP BY ROLLUP (a, b)`, `GROUP BY a, b GROUPING SETS (…)` the sets alone.
fn with_modifiers(group_by: &mut GroupByExpr) -> Result<()> {
    let GroupByExpr::Expressions(keys, modifiers) = group_by else { return Ok(()) };
    let Some(modifier) = modifiers.pop() else { return Ok(()) };
    let sets = |keys: &mut Vec<Expr>| std::mem::take(keys).into_iter().map(|key| vec![key]).collect();
    *keys = match modifier {
        GroupByWithModifier::Rollup => vec![Expr::Rollup(sets(keys))],
        GroupByWithModifier::Cube => vec![Expr::Cube(sets(keys))],
        GroupByWithModifier::GroupingSets(sets) => vec![sets],
        GroupByWithModifier::Totals => return Err(refuse("WITH TOTALS is not supported")),
    };
    Ok(())
}

/// Names an item: a column or a field has its own name, all else has its place.
fn name_item(item: &mut SelectItem, at: usize) {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => plain_name(alias),
        SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {}
        SelectItem::UnnamedExpr(expr) => {
            let name = match expr {
                Expr::CompoundFieldAccess { access_chain, .. } => match access_chain.last() {
                    Some(AccessExpr::Dot(Expr::Identifier(field))) => field.value.to_lowercase(),
                    _ => format!("_c{at}"),
                },
                _ => format!("_c{at}"),
            };
            let expr = std::mem::replace(expr, Expr::value(Value::Null));
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        }
        _ => {}
    }
}
