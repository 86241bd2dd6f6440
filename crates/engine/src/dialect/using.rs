//! Columns of `JOIN … USING`: the planner takes `a` of `t JOIN u USING (a) WHERE a = 1` for ambiguous, and everywhere else for `t.a`, which is
//! NULL where a right or full join has rows of `u` alone. `SELECT *` of those stays as the planner has it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, OrderBy, Query, Select, SelectItem,
    TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use harrier_pgcatalog::function_call;

use crate::names::plain;

/// Says which side a joined column is of. What no first join of a FROM item names stays as it is.
pub(super) fn qualify(select: &mut Select, order_by: Option<&mut OrderBy>) {
    let mut columns: Vec<(String, Expr)> = Vec::new();
    for from in &select.from {
        columns.extend(joined(from));
    }
    if let (Some(selection), false) = (&mut select.selection, columns.is_empty()) {
        qualify_in(selection, &columns);
    }
    // The planner's own choice is right where all rows have one of the left side.
    let is_of_left = |value: &Expr, from: &TableWithJoins| match (value, relation(&from.relation)) {
        (Expr::CompoundIdentifier(parts), Some(left)) => parts[..parts.len() - 1] == left,
        _ => false,
    };
    columns.retain(|(_, value)| !select.from.iter().any(|from| is_of_left(value, from)));
    if columns.is_empty() {
        return;
    }
    let mut shown = Vec::new();
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                let name = name.clone();
                if let Some((_, value)) = columns.iter().find(|(column, _)| *column == plain(&name)) {
                    *item = SelectItem::ExprWithAlias { expr: value.clone(), alias: name.clone() };
                }
                shown.push(plain(&name));
            }
            SelectItem::UnnamedExpr(expr) => qualify_in(expr, &columns),
            SelectItem::ExprWithAlias { expr, alias } => {
                qualify_in(expr, &columns);
                shown.push(plain(alias));
            }
            _ => {}
        }
    }
    qualify_in(&mut select.group_by, &columns);
    if let Some(having) = &mut select.having {
        qualify_in(having, &columns);
    }
    // ORDER BY means what is shown under that name, if something is.
    columns.retain(|(column, _)| !shown.contains(column));
    if let Some(order_by) = order_by {
        qualify_in(order_by, &columns);
    }
}

fn qualify_in<N: VisitMut>(node: &mut N, columns: &[(String, Expr)]) {
    let _ = node.visit(&mut Qualifier { columns, depth: 0 });
}

/// The columns by which the first two relations are joined, and what they are in the end.
fn joined(from: &TableWithJoins) -> Vec<(String, Expr)> {
    let mut columns: Vec<(String, Expr)> = Vec::new();
    let Some(first) = relation(&from.relation) else { return columns };
    for (at, Join { relation: right, join_operator, .. }) in from.joins.iter().enumerate() {
        let Some((kept, names)) = using(join_operator) else { continue };
        let Some(right) = relation(right) else { return Vec::new() };
        for name in names {
            let Some(name) = name.0.last().and_then(|part| part.as_ident()) else { continue };
            let of = |relation: &[Ident]| {
                Expr::CompoundIdentifier(relation.iter().chain([name]).cloned().collect())
            };
            let known = columns.iter_mut().find(|(known, _)| *known == plain(name));
            let left = match (&known, at) {
                (Some((_, value)), _) => value.clone(),
                (None, 0) => of(&first),
                // Any of those on the left may have it.
                (None, _) => continue,
            };
            let value = match kept {
                Kept::Left => left,
                Kept::Right => of(&right),
                Kept::Both => coalesced(left, of(&right)),
            };
            match known {
                Some((_, known)) => *known = value,
                None => columns.push((plain(name), value)),
            }
        }
    }
    columns
}

/// The side whose rows all stay, so that its column has the value.
#[derive(Clone, Copy)]
enum Kept {
    Left,
    Right,
    Both,
}

fn using(join: &JoinOperator) -> Option<(Kept, &[ObjectName])> {
    let (kept, constraint) = match join {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => (Kept::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (Kept::Right, constraint),
        JoinOperator::FullOuter(constraint) => (Kept::Both, constraint),
        _ => return None,
    };
    match constraint {
        JoinConstraint::Using(names) => Some((kept, names)),
        _ => None,
    }
}

/// What a relation is called in its query: with its schema, if that is said, because two may have a table of the name.
fn relation(factor: &TableFactor) -> Option<Vec<Ident>> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(vec![alias.name.clone()])
        }
        TableFactor::Table { name, alias: None, .. } => {
            name.0.iter().map(|part| part.as_ident().cloned()).collect()
        }
        _ => None,
    }
}

fn coalesced(left: Expr, right: Expr) -> Expr {
    Expr::Function(function_call("coalesce", vec![left, right]))
}

struct Qualifier<'c> {
    columns: &'c [(String, Expr)],
    /// Of subqueries, whose columns may be their own.
    depth: usize,
}

impl VisitorMut for Qualifier<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
        if self.depth == 0
            && let Some((_, value)) = self.columns.iter().find(|(column, _)| *column == plain(name))
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}
