//! Table-generating functions: `explode`, `posexplode`, `inline`, `stack`, `json_tuple` and
//! `parse_url_tuple`, in FROM (a LATERAL VIEW) and in select lists, by columns of unnested lists.
//!
//! ```text
//! explode(a)         x     ──►  unnest(a) AS x
//! explode(m)         k, v  ──►  unnest(map_keys(m)) AS k, unnest(map_values(m)) AS v
//! posexplode(a)      p, x  ──►  unnest(hive_positions(a)) AS p, unnest(a) AS x
//! inline(a)          x, y  ──►  unnest(hive_fields(a, 0)) AS x, unnest(hive_fields(a, 1)) AS y
//! stack(2, 1, 2, 3, 4)     ──►  unnest(make_array(1, 3)) AS col0, unnest(make_array(2, 4)) AS col1
//! json_tuple(j, 'a')       ──►  hive_json_field(j, 'a') AS c0
//! ```
//!
//! Whether `explode` has an array or a map, its number of columns says, as in Hive, where it must be right.
//!
//! Source: Hive Language Manual, "Built-in Table-Generating Functions".

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SelectItem, TableFactor, Value,
    ValueWithSpan,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::build::{as_text, call};
use super::{plain_name, refuse};
use crate::ast_builder::{number, query_of, table_alias};

/// The columns of a generator, with the names that they have without an alias.
struct Columns(Vec<(Expr, String)>);

/// The name of the generator that is called.
pub(super) fn name_of(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    let [name] = function.name.0.as_slice() else { return None };
    let name = name.as_ident()?.value.to_ascii_lowercase();
    const NAMES: [&str; 6] = ["explode", "posexplode", "inline", "stack", "json_tuple", "parse_url_tuple"];
    NAMES.contains(&name.as_str()).then_some(name)
}

/// Whether a value is written as a map.
fn is_map(value: &Expr) -> bool {
    matches!(value, Expr::Function(function)
        if ["map", "str_to_map"].iter().any(|name| function.name.to_string().eq_ignore_ascii_case(name)))
}

/// Errors: the arguments or the number of columns are wrong (42601).
fn columns_of(name: &str, mut arguments: Vec<Expr>, names: usize) -> Result<Columns> {
    let wrong = |message: String| SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion();
    let unnest = |list: Expr| call("unnest", vec![list]);
    let count = arguments.len();
    let columns: Vec<(Expr, String)> = match (name, count) {
        ("explode", 1) => {
            let value = arguments.remove(0);
            match names {
                0 | 1 if names == 1 || !is_map(&value) => vec![(unnest(value), "col".to_string())],
                _ => vec![
                    (unnest(call("map_keys", vec![value.clone()])), "key".to_string()),
                    (unnest(call("map_values", vec![value])), "value".to_string()),
                ],
            }
        }
        ("posexplode", 1) => {
            let value = arguments.remove(0);
            let at = (unnest(call("hive_positions", vec![value.clone()])), "pos".to_string());
            match names {
                0 | 2 => vec![at, (unnest(value), "val".to_string())],
                _ => vec![
                    at,
                    (unnest(call("map_keys", vec![value.clone()])), "key".to_string()),
                    (unnest(call("map_values", vec![value])), "value".to_string()),
                ],
            }
        }
        ("inline", 1) => {
            if names == 0 {
                return Err(refuse("inline() needs names for its columns: AS (a, b)"));
            }
            let value = arguments.remove(0);
            let field = |at: usize| call("hive_fields", vec![value.clone(), number(&at.to_string())]);
            (0..names).map(|at| (unnest(field(at)), format!("col{}", at + 1))).collect()
        }
        ("stack", 2..) => {
            let rows = arguments.remove(0);
            let Expr::Value(ValueWithSpan { value: Value::Number(rows, _), .. }) = &rows else {
                return Err(wrong("the first argument of stack() is a number of rows".to_string()));
            };
            let rows: usize = rows
                .parse()
                .ok()
                .filter(|rows| (1..=count).contains(rows))
                .ok_or_else(|| wrong(format!("stack({rows}, …) has {} values", count - 1)))?;
            let width = arguments.len().div_ceil(rows);
            arguments.resize(width * rows, Expr::value(Value::Null));
            let column = |at: usize| arguments.iter().skip(at).step_by(width).cloned().collect::<Vec<_>>();
            (0..width).map(|at| (unnest(call("make_array", column(at))), format!("col{at}"))).collect()
        }
        ("json_tuple" | "parse_url_tuple", 2..) => {
            let value = as_text(arguments.remove(0));
            let function = if name == "json_tuple" { "hive_json_field" } else { "hive_parse_url" };
            let parts = arguments.into_iter().enumerate();
            let column = |(at, part)| (call(function, vec![value.clone(), as_text(part)]), format!("c{at}"));
            parts.map(column).collect()
        }
        _ => return Err(wrong(format!("{name}() does not take {count} arguments"))),
    };
    if names != 0 && names != columns.len() {
        let message = format!("{name}() has {} columns and {names} names", columns.len());
        return Err(wrong(message));
    }
    Ok(Columns(columns))
}

impl Columns {
    fn items(self, names: &[Ident]) -> Vec<SelectItem> {
        let named = self.0.into_iter().enumerate().map(|(at, (expr, name))| {
            let mut alias = names.get(at).cloned().unwrap_or_else(|| Ident::new(name));
            plain_name(&mut alias);
            SelectItem::ExprWithAlias { expr, alias }
        });
        named.collect()
    }
}

fn arguments_of(args: &mut Vec<FunctionArg>) -> Option<Vec<Expr>> {
    let plain = |argument: FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    };
    std::mem::take(args).into_iter().map(plain).collect()
}

/// Rewrites a generator in FROM.
///
/// Errors: as [`columns_of`]; another function stands there (0A000).
pub(super) fn in_from(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::Function { lateral: true, name, args, alias: Some(alias), .. } = factor else {
        return Ok(());
    };
    let arguments = arguments_of(args);
    let called = call(&name.to_string().to_lowercase(), vec![]);
    let (Some(generator), Some(arguments)) = (name_of(&called), arguments) else {
        return Err(refuse(format!("{name}() in a LATERAL VIEW is not supported")));
    };
    plain_name(&mut alias.name);
    let names: Vec<Ident> = alias.columns.iter().map(|column| column.name.clone()).collect();
    let items = columns_of(&generator, arguments, names.len())?.items(&names);
    *factor = TableFactor::Derived {
        lateral: true,
        subquery: Box::new(query_of(items, vec![])),
        alias: Some(table_alias(alias.name.clone())),
        sample: None,
    };
    Ok(())
}

/// Rewrites a generator that is the only item of a select list.
///
/// Errors: as [`columns_of`]; there are other items (0A000), as in Hive.
pub(super) fn in_select_list(items: &mut Vec<SelectItem>) -> Result<()> {
    let is_generator = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr)
        | SelectItem::ExprWithAlias { expr, .. }
        | SelectItem::ExprWithAliases { expr, .. } => name_of(expr).is_some(),
        _ => false,
    };
    if !items.iter().any(is_generator) {
        return Ok(());
    }
    if items.len() > 1 {
        return Err(refuse("only a single expression in the SELECT clause is supported with UDTF's"));
    }
    let (expr, names) = match items.remove(0) {
        SelectItem::UnnamedExpr(expr) => (expr, vec![]),
        SelectItem::ExprWithAlias { expr, alias } => (expr, vec![alias]),
        SelectItem::ExprWithAliases { expr, aliases } => (expr, aliases),
        other => {
            items.push(other);
            return Ok(());
        }
    };
    let Some(name) = name_of(&expr) else { return Ok(()) };
    let Expr::Function(mut function) = expr else { return Ok(()) };
    let arguments = match &mut function.args {
        FunctionArguments::List(list) => arguments_of(&mut list.args),
        _ => None,
    };
    let arguments = arguments.ok_or_else(|| refuse(format!("{name}() with such arguments")))?;
    *items = columns_of(&name, arguments, names.len())?.items(&names);
    Ok(())
}
