//! Aggregates of hypothetical rows: the rank that one would have among others.
//!
//! ```text
//! rank(v) WITHIN GROUP (ORDER BY x)          ──►  count(*) FILTER (WHERE x < v) + 1
//! dense_rank(v) WITHIN GROUP (ORDER BY x)    ──►  count(DISTINCT x) FILTER (WHERE x < v) + 1
//! percent_rank(v) WITHIN GROUP (ORDER BY x)  ──►  count(*) FILTER (WHERE x < v) / count(*), 0 of no rows
//! cume_dist(v) WITHIN GROUP (ORDER BY x)     ──►  (count(*) FILTER (WHERE x <= v) + 1) / (count(*) + 1)
//! ```

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByExpr,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::SqlDialect;
use crate::names::plain;

/// Rewrites a call, if it is one.
///
/// Errors: none that the parser does not have.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else { return Ok(()) };
    let Some(name) = name_of(function).filter(|_| !function.within_group.is_empty()) else { return Ok(()) };
    let (keys, Some(values)) = (&function.within_group, arguments_of(function)) else { return Ok(()) };
    // A value that speaks of columns is one of the group, where those of the filter are of rows.
    if keys.len() != values.len() || function.over.is_some() || values.iter().any(has_columns) {
        return Ok(());
    }
    let own = function.filter.as_ref().map_or("true".to_string(), |filter| format!("({filter})"));
    let before = precedes(keys, &values);
    let count = |what: &str, filter: &str| format!("count({what}) FILTER (WHERE {own} AND ({filter}))");
    let all = count("*", "true");
    let sql = match (name.as_str(), keys.as_slice()) {
        ("rank", _) => format!("({} + 1)", count("*", &before)),
        ("dense_rank", [key]) => {
            let x = &key.expr;
            let nulls = count("*", &format!("({x}) IS NULL AND ({before})"));
            format!(
                "({} + CASE WHEN {nulls} > 0 THEN 2 ELSE 1 END)",
                count(&format!("DISTINCT {x}"), &before)
            )
        }
        ("percent_rank", _) => format!(
            "CASE WHEN {all} = 0 THEN 0.0::double precision ELSE {}::double precision / {all} END",
            count("*", &before)
        ),
        ("cume_dist", _) => {
            let is_peer = keys.iter().zip(&values).map(|(key, value)| is_peer(key, value));
            let until = format!("{before} OR ({})", is_peer.collect::<Vec<_>>().join(" AND "));
            format!("(({} + 1)::double precision / ({all} + 1))", count("*", &until))
        }
        _ => return Ok(()),
    };
    *expr = Parser::new(&SqlDialect).try_with_sql(&sql)?.parse_expr()?;
    Ok(())
}

fn has_columns(value: &Expr) -> bool {
    let found = ast::visit_expressions(value, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) | Expr::Function(_) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether a row comes before the hypothetical one.
fn precedes(keys: &[OrderByExpr], values: &[Expr]) -> String {
    let mut ways = Vec::with_capacity(keys.len());
    let mut before = String::new();
    for (key, value) in keys.iter().zip(values) {
        let (x, v) = (&key.expr, value);
        let descends = key.options.asc == Some(false);
        let operator = if descends { ">" } else { "<" };
        let nulls = match key.options.nulls_first.unwrap_or(descends) {
            true => format!("({x}) IS NULL AND ({v}) IS NOT NULL"),
            false => format!("({x}) IS NOT NULL AND ({v}) IS NULL"),
        };
        ways.push(format!("{before}(({x}) {operator} ({v}) OR {nulls})"));
        before.push_str(&format!("{} AND ", is_peer(key, value)));
    }
    ways.join(" OR ")
}

fn is_peer(key: &OrderByExpr, value: &Expr) -> String {
    format!("({}) IS NOT DISTINCT FROM ({value})", key.expr)
}

fn name_of(function: &Function) -> Option<String> {
    match function.name.0.as_slice() {
        [.., name] => name.as_ident().map(plain),
        [] => None,
    }
}

fn arguments_of(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let values = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn ranks_are_counts() {
        let before = "((a) < (2) OR (a) IS NOT NULL AND (2) IS NULL)";
        assert_eq!(
            rewritten("SELECT rank(2) WITHIN GROUP (ORDER BY a)").unwrap(),
            format!("SELECT (count(*) FILTER (WHERE true AND ({before})) + 1)")
        );
        let window = "SELECT rank() OVER (ORDER BY a)";
        assert_eq!(rewritten(window).unwrap(), window);
    }
}
