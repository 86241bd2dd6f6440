//! Whole-row references, names of relations as values: `SELECT q FROM (SELECT 1 AS a, 2 AS b) q` returns
//! `(1,2)`.
//!
//! The planner has no row values. A row in a list becomes its text; operations on it become operations on its
//! columns:
//! | of a row | of its columns |
//! |---|---|
//! | `q`, `q::text` in a list | `harrier_row_text(…)` of their texts |
//! | `to_json(q)`, `row_to_json(q)`, … | the function of a struct of them |
//! | `q = r`, `q IN (r, …)` | `q.a IS NOT DISTINCT FROM r.a AND …`: NULLs of row values are equal |
//! | `q IS NULL` | `(q.a, q.b) IS NULL` |
//! | `count(q)` | `count(true)`: a row is no NULL, even if its columns are |
//! | `GROUP BY q`, `ORDER BY q` | all of them |
//!
//! A column of the same name takes precedence over the relation.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinOperator, OrderBy, OrderByExpr, OrderByKind,
    OrderByOptions, Select, SelectItem, TableFactor, TableWithJoins, UnaryOperator, Value, ValueWithSpan,
    Visit, VisitMut, Visitor, VisitorMut,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::ast_builder::binary;
use harrier_sql::ast_builder::function_call;
use harrier_sql::desugar::row_comparison;
use harrier_sql::identifier::plain;
use harrier_sqlstate::{IntoDataFusionError, unsupported_error};

use crate::planning::using_columns::column::Column;
use crate::planning::using_columns::from_clause::relations;

/// Functions that convert a row to JSON.
const OF_JSON: [&str; 7] = [
    "row_to_json",
    "to_json",
    "to_jsonb",
    "json_agg_item",
    "jsonb_agg_item",
    "json_build_array",
    "jsonb_build_array",
];

/// Whether a SELECT may use a relation's name as a value.
pub(super) fn may_be_mentioned(select: &Select, order_by: Option<&OrderBy>) -> bool {
    let names: HashSet<String> =
        select.from.iter().flat_map(relations).filter_map(name_of).map(plain).collect();
    if names.is_empty() {
        return false;
    }
    let mut mentions = RowMentions { names: &names, depth: 0 };
    select.projection.visit(&mut mentions).is_break()
        || select.selection.visit(&mut mentions).is_break()
        || select.having.visit(&mut mentions).is_break()
        || select.group_by.visit(&mut mentions).is_break()
        || order_by.is_some_and(|order_by| order_by.visit(&mut mentions).is_break())
}

/// The name of a relation. A table function's name is that of its column, so it is left out.
fn name_of(factor: &TableFactor) -> Option<&Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), args: None, .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(&alias.name),
        TableFactor::Table { name, args: None, .. } => name.0.last().and_then(|part| part.as_ident()),
        _ => None,
    }
}

struct RowMentions<'n> {
    names: &'n HashSet<String>,
    depth: usize,
}

impl Visitor for RowMentions<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth);

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) if self.depth == 0 && self.names.contains(&plain(name)) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Rewrites whole-row references in a SELECT and its ORDER BY. `columns`: the output columns of FROM.
///
/// Errors: a row is used in an unsupported way, or an outer join may fill it with NULL (0A000).
pub(super) fn rewrite(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    columns: &[Column],
    relations_of: &[Vec<Column>],
) -> Result<()> {
    let rows = rows_of(&select.from, columns, relations_of);
    if rows.is_empty() {
        return Ok(());
    }
    let mut rewriter = RowRewriter { rows: &rows, depth: 0, is_found: false };
    let mut rows_of_items = Vec::with_capacity(select.projection.len());
    for item in &mut select.projection {
        rows_of_items.push(rewriter.replace_item(item));
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        let old_keys = std::mem::take(keys);
        for key in old_keys {
            match rewriter.row(&key).or_else(|| rows_of_items.get(place_of(&key)?).copied().flatten()) {
                Some(row) => keys.extend(values_of(row)),
                None => keys.push(key),
            }
        }
    }
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order_by {
        let old_keys = std::mem::take(keys);
        for key in old_keys {
            match rewriter
                .row(&key.expr)
                .or_else(|| rows_of_items.get(place_of(&key.expr)?).copied().flatten())
            {
                Some(row) => keys.extend(row.columns.iter().map(|(_, value)| order_key(value, &key))),
                None => keys.push(key),
            }
        }
        rewriter.visit_all(keys)?;
    }
    rewriter.visit_all(&mut select.projection)?;
    rewriter.visit_all(&mut select.selection)?;
    rewriter.visit_all(&mut select.having)?;
    if rewriter.is_found && select.from.iter().any(has_outer_join) {
        return Err(unsupported_error("whole rows that an outer join may fill with NULL are not supported"));
    }
    Ok(())
}

/// A relation with the names and values of its columns.
struct Row {
    name: String,
    columns: Vec<(String, Expr)>,
}

/// The relations in FROM whose name is not also a column's.
fn rows_of(from: &[TableWithJoins], columns: &[Column], relations_of: &[Vec<Column>]) -> Vec<Row> {
    let names = from.iter().flat_map(relations).filter_map(name_of).map(plain);
    let names = names.filter(|name| columns.iter().all(|column| column.name != *name));
    let rows = names.map(|name| {
        let of_relation = relations_of.iter().flatten();
        let of_relation = of_relation.filter(|column| column.is_under(std::slice::from_ref(&name)));
        let columns = of_relation.map(|column| (column.name.clone(), column.value.clone())).collect();
        Row { name, columns }
    });
    rows.filter(|row| !row.columns.is_empty()).collect()
}

fn has_outer_join(table: &TableWithJoins) -> bool {
    let is_outer = |operator: &JoinOperator| {
        matches!(
            operator,
            JoinOperator::Left(_)
                | JoinOperator::LeftOuter(_)
                | JoinOperator::Right(_)
                | JoinOperator::RightOuter(_)
                | JoinOperator::FullOuter(_)
        )
    };
    let inside = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => has_outer_join(table_with_joins),
        _ => false,
    };
    inside(&table.relation)
        || table.joins.iter().any(|join| is_outer(&join.join_operator) || inside(&join.relation))
}

/// The select list position that a number in GROUP BY or ORDER BY means.
fn place_of(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
            number.parse::<usize>().ok()?.checked_sub(1)
        }
        _ => None,
    }
}

/// The sort key of one column of a row: within rows NULL is the largest value.
fn order_key(value: &Expr, key: &OrderByExpr) -> OrderByExpr {
    let options = OrderByOptions { asc: key.options.asc, nulls_first: None };
    OrderByExpr { expr: value.clone(), options, ..key.clone() }
}

/// The text of a row; its columns are formatted like array elements.
fn text_of(row: &Row) -> Expr {
    let texts = row.columns.iter().map(|(_, value)| {
        let array = Expr::Array(Array { elem: vec![value.clone()], named: true });
        let empty = Expr::value(Value::SingleQuotedString(String::new()));
        let text = Expr::Function(function_call("array_to_string", vec![array, empty]));
        Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition: Expr::IsNotNull(Box::new(value.clone())), result: text }],
            else_result: None,
        }
    });
    Expr::Function(function_call("harrier_row_text", texts.collect()))
}

fn struct_of(row: &Row) -> Expr {
    let members = row
        .columns
        .iter()
        .flat_map(|(name, value)| [Expr::value(Value::SingleQuotedString(name.clone())), value.clone()]);
    Expr::Function(function_call("named_struct", members.collect()))
}

fn values_of(row: &Row) -> Vec<Expr> {
    row.columns.iter().map(|(_, value)| value.clone()).collect()
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}

struct RowRewriter<'r> {
    rows: &'r [Row],
    depth: usize,
    is_found: bool,
}

impl<'r> RowRewriter<'r> {
    /// The row that an expression names.
    fn row(&mut self, expr: &Expr) -> Option<&'r Row> {
        let Expr::Identifier(name) = expr else { return None };
        let name = plain(name);
        let row = self.rows.iter().find(|row| row.name == name)?;
        self.is_found = true;
        Some(row)
    }

    /// Replaces a row in a select list by its text.
    fn replace_item(&mut self, item: &mut SelectItem) -> Option<&'r Row> {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else {
            return None;
        };
        let row = self.row(expr)?;
        let alias = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            _ => Ident::with_quote('"', row.name.clone()),
        };
        *item = SelectItem::ExprWithAlias { expr: text_of(row), alias };
        Some(row)
    }

    fn visit_all<N: VisitMut>(&mut self, node: &mut N) -> Result<()> {
        match VisitMut::visit(node, self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn rewrite(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Cast { expr: inner, .. } => {
                if let Some(row) = self.row(inner) {
                    **inner = text_of(row);
                }
            }
            Expr::Function(function) => self.call(function),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } | Expr::IsNotDistinctFrom(left, right) => {
                if let Some(equal) = self.equal(left, right)? {
                    *expr = equal;
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::NotEq, right } | Expr::IsDistinctFrom(left, right) => {
                if let Some(equal) = self.equal(left, right)? {
                    *expr = not(equal);
                }
            }
            Expr::InList { expr: inner, list, negated } => {
                let mut found: Option<Expr> = None;
                for one in list {
                    let Some(equal) = self.equal(inner, one)? else { continue };
                    found = Some(match found {
                        Some(others) => binary(others, BinaryOperator::Or, equal),
                        None => equal,
                    });
                }
                if let Some(found) = found {
                    *expr = if *negated { not(found) } else { Expr::Nested(Box::new(found)) };
                }
            }
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => {
                if let Some(row) = self.row(inner) {
                    **inner = Expr::Tuple(values_of(row));
                    row_comparison::rewrite(expr)?;
                }
            }
            // `t.list[1]`, which is parsed as a field access on a row.
            Expr::CompoundFieldAccess { root, access_chain } if access_chain.len() > 1 => {
                if let (Expr::Identifier(table), Some(AccessExpr::Dot(Expr::Identifier(column)))) =
                    (root.as_ref(), access_chain.first())
                {
                    **root = Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
                    access_chain.remove(0);
                }
            }
            Expr::Identifier(_) if self.row(expr).is_some() => {
                return Err(unsupported_error(format!("the whole row {expr} is not supported here")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Equality of two sides, one of which is a row; NULL columns of row values are equal.
    ///
    /// Errors: the sides have different numbers of columns (42601).
    fn equal(&mut self, left: &Expr, right: &Expr) -> Result<Option<Expr>> {
        let rows = [self.row(left), self.row(right)];
        if rows.iter().all(Option::is_none) {
            return Ok(None);
        }
        let [left, right] = [(left, rows[0]), (right, rows[1])].map(|(side, row)| match (row, side) {
            (Some(row), _) => Some(values_of(row)),
            (None, side) => row_comparison::row(side),
        });
        let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
        if left.len() != right.len() {
            let message = "unequal number of entries in row expressions";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
        }
        let pairs = left.into_iter().zip(right);
        let equal = pairs.map(|(left, right)| Expr::IsNotDistinctFrom(Box::new(left), Box::new(right)));
        let all = equal.reduce(|all, one| binary(all, BinaryOperator::And, one));
        Ok(all.map(|all| Expr::Nested(Box::new(all))))
    }

    fn call(&mut self, function: &mut Function) {
        let name = function.name.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default();
        let FunctionArguments::List(list) = &mut function.args else { return };
        let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let is_only = list.args.len() == 1;
        for argument in &mut list.args {
            let FunctionArg::Unnamed(given) = argument else { continue };
            let FunctionArgExpr::Expr(value) = &*given else { continue };
            let Some(row) = self.row(value) else { continue };
            if OF_JSON.contains(&name.as_str()) {
                *given = FunctionArgExpr::Expr(struct_of(row));
            } else if name == "count" && is_only && !is_distinct {
                // `count(*)` would collide with another one beside it.
                *given = FunctionArgExpr::Expr(Expr::value(Value::Boolean(true)));
            }
        }
    }
}

impl VisitorMut for RowRewriter<'_> {
    type Break = DataFusionError;

    harrier_sql::count_query_depth!(depth, mut);

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match self.rewrite(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}
