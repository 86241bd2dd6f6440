//! Decorrelation of scalar subqueries about system relations, into outer joins.
//!
//! ```text
//! SELECT a.attname, (SELECT d.adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND a.atthasdef) FROM pg_attribute a
//!   ──►  SELECT a.attname, s.v FROM pg_attribute a
//!        LEFT JOIN (SELECT d.adbin AS v, d.adrelid AS k FROM pg_attrdef d) AS s ON s.k = a.attrelid AND a.atthasdef
//! ```
//!
//! In PostgreSQL a scalar subquery with more than one row is an error, so the join preserves the number of
//! rows. DataFusion decorrelates aggregates whose conditions are all equalities itself; those are left to it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::CATALOG_SCHEMA;
use crate::rewrite::expressions::{call, table_alias};
use crate::system::{SYSTEM, SystemRelation};
use harrier_sql::column_names::{expression_name, parts};
use harrier_sql::identifier::plain;

/// The relations of a subquery by their names in it.
type Scope = Vec<(String, &'static SystemRelation)>;

/// Turns correlated scalar subqueries of a SELECT into joins, where possible. `is_shown`: its column names
/// are visible, so former subqueries get PostgreSQL's names.
pub(super) fn to_joins(select: &mut Select, made_up: &mut usize, is_shown: bool) {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(expressions, _) => !expressions.is_empty(),
        GroupByExpr::All(_) => true,
    };
    if select.from.is_empty() || grouped || select.having.is_some() || has_aggregate(select) {
        return;
    }
    // `*` would include the joins' columns, so it is expanded first.
    let Some(projection) = without_stars(select) else { return };
    let starred = std::mem::replace(&mut select.projection, projection);
    let mut finder = Finder { depth: 0, made_up, joins: vec![] };
    let mut taken: HashSet<String> = match is_shown {
        true => select.projection.iter().filter_map(own_name).collect(),
        false => HashSet::new(),
    };
    for item in &mut select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(expr) if is_shown => Some(expression_name(expr)),
            _ => None,
        };
        let before = finder.joins.len();
        let _ = item.visit(&mut finder);
        if let (Some(name), SelectItem::UnnamedExpr(expr)) = (name, &*item)
            && finder.joins.len() > before
            && taken.insert(name.clone())
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
    }
    if let Some(selection) = &mut select.selection {
        let _ = selection.visit(&mut finder);
    }
    let joins = finder.joins;
    if joins.is_empty() {
        select.projection = starred;
        return;
    }
    // A join condition sees only its own entry of FROM, so all are combined into one.
    let mut entries = std::mem::take(&mut select.from).into_iter();
    let Some(mut first) = entries.next() else { return };
    for entry in entries {
        first.joins.push(join(entry.relation, JoinOperator::CrossJoin(JoinConstraint::None)));
        first.joins.extend(entry.joins);
    }
    first.joins.extend(joins);
    select.from = vec![first];
}

/// Converts `EXISTS` in a SELECT list, which DataFusion plans only in conditions, to a count of rows.
pub(super) fn count_in_list(select: &mut Select) {
    struct Counts(usize);
    impl VisitorMut for Counts {
        type Break = ();
        harrier_sql::count_query_depth!(0, mut);
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.0 == 0
                && let Expr::Exists { subquery, negated } = expr
                && subquery.with.is_none()
                && subquery.limit_clause.is_none()
                && subquery.fetch.is_none()
                && let SetExpr::Select(inner) = &mut *subquery.body
                && matches!(&inner.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
                && inner.having.is_none()
                && !has_aggregate(inner)
            {
                let one = Expr::value(Value::Number("1".to_string(), false));
                inner.distinct = None;
                inner.projection = vec![SelectItem::UnnamedExpr(call("count", vec![one]))];
                let mut subquery = subquery.clone();
                subquery.order_by = None;
                let op = if *negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
                let (left, right) =
                    (Box::new(Expr::Subquery(subquery)), Value::Number("0".to_string(), false));
                let right = Box::new(Expr::value(right));
                *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }));
            }
            ControlFlow::Continue(())
        }
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr @ Expr::Exists { .. }) = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new("exists") };
        }
    }
    let _ = VisitMut::visit(&mut select.projection, &mut Counts(0));
}

/// The name of a column known before planning.
fn own_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
            Some(expression_name(expr))
        }
        _ => None,
    }
}

/// Replaces `tableoid` by the oids of system relations.
pub(super) fn name_tables(select: &mut Select) {
    struct Tables(Scope);
    impl VisitorMut for Tables {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let [.., relation, column] = parts.as_slice()
                && plain(column) == "tableoid"
                && let Some((_, relation)) = self.0.iter().find(|(name, _)| *name == plain(relation))
            {
                *expr = Expr::value(datafusion::sql::sqlparser::ast::Value::Number(
                    relation.oid.to_string(),
                    false,
                ));
            }
            ControlFlow::Continue(())
        }
    }
    for item in &mut select.projection {
        // The column keeps its name.
        if let SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) = item
            && matches!(&*expr, Expr::CompoundIdentifier(parts) if parts.last().is_some_and(|c| plain(c) == "tableoid"))
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new("tableoid") };
        }
    }
    let found = factors(&select.from).filter_map(system_relation).collect();
    let _ = VisitMut::visit(select, &mut Tables(found));
}

fn factors(from: &[TableWithJoins]) -> impl Iterator<Item = &TableFactor> {
    from.iter().flat_map(|entry| {
        std::iter::once(&entry.relation).chain(entry.joins.iter().map(|join| &join.relation))
    })
}

/// A system relation and its name in the query.
fn system_relation(factor: &TableFactor) -> Option<(String, &'static SystemRelation)> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let relation = match parts(name).as_slice() {
        [schema, relation] if schema == CATALOG_SCHEMA => SYSTEM.catalog(relation)?,
        _ => return None,
    };
    let name = alias.as_ref().map_or_else(|| relation.name.to_string(), |alias| plain(&alias.name));
    Some((name, relation))
}

fn join(relation: TableFactor, join_operator: JoinOperator) -> Join {
    Join { relation, global: false, join_operator }
}

/// Expands `*` in a SELECT list to `a.*` per relation; `None` if that is not equivalent.
fn without_stars(select: &Select) -> Option<Vec<SelectItem>> {
    let mut items = vec![];
    for item in &select.projection {
        let SelectItem::Wildcard(options) = item else {
            items.push(item.clone());
            continue;
        };
        if select.from.iter().flat_map(|entry| &entry.joins).any(|join| merges(&join.join_operator)) {
            return None;
        }
        for factor in factors(&select.from) {
            let name = match factor {
                TableFactor::Table { alias: Some(alias), .. }
                | TableFactor::Derived { alias: Some(alias), .. } => alias.name.clone(),
                TableFactor::Table { name, alias: None, .. } => name.0.last()?.as_ident()?.clone(),
                _ => return None,
            };
            let kind = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name]));
            items.push(SelectItem::QualifiedWildcard(kind, options.clone()));
        }
    }
    Some(items)
}

/// Whether a join merges columns of both sides (USING, NATURAL).
fn merges(operator: &JoinOperator) -> bool {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    }
}

fn has_aggregate(select: &Select) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_aggregate(expr),
        _ => false,
    })
}

/// Whether an expression contains an aggregate outside of subqueries.
fn is_aggregate(expr: &Expr) -> bool {
    struct Aggregates(usize);
    impl Visitor for Aggregates {
        type Break = ();
        harrier_sql::count_query_depth!(0);
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            const NAMES: [&str; 11] = [
                "count",
                "sum",
                "avg",
                "min",
                "max",
                "array_agg",
                "string_agg",
                "bool_and",
                "bool_or",
                "every",
                "json_agg",
            ];
            match expr {
                Expr::Function(function)
                    if self.0 == 0
                        && function.over.is_none()
                        && parts(&function.name)
                            .last()
                            .is_some_and(|name| NAMES.contains(&name.as_str())) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Aggregates(0)).is_break()
}

/// Finds the scalar subqueries of one SELECT, except those of nested queries, which are done already.
struct Finder<'a> {
    depth: usize,
    made_up: &'a mut usize,
    joins: Vec<Join>,
}

impl VisitorMut for Finder<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth, mut);

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Subquery(query) = expr
            && let Some((value, join)) = as_join(query, *self.made_up + 1)
        {
            *self.made_up += 1;
            self.joins.push(join);
            *expr = value;
        }
        ControlFlow::Continue(())
    }
}

/// The value and join that replace a subquery, if it is correlated and supported.
fn as_join(query: &Query, number: usize) -> Option<(Expr, Join)> {
    if query.with.is_some()
        || query.order_by.is_some()
        || query.limit_clause.is_some()
        || query.fetch.is_some()
    {
        return None;
    }
    let SetExpr::Select(select) = &*query.body else { return None };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(e, _) if e.is_empty());
    if select.distinct.is_some() || !ungrouped || select.having.is_some() {
        return None;
    }
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if is_aggregate(value) {
        return None;
    }
    let scope = scope(&select.from)?;
    let mut conditions = vec![];
    split(select.selection.clone()?, &mut conditions);
    let (mut inside, mut outside) = (vec![], vec![]);
    for condition in conditions {
        match reach(&condition, &scope)? {
            Reach::Inside => inside.push(condition),
            _ => outside.push(condition),
        }
    }
    let value_reach = reach(value, &scope)?;
    if outside.is_empty() && value_reach != Reach::Outside {
        // Uncorrelated: DataFusion can plan it.
        return None;
    }
    let alias = format!("__subquery_{number}");
    let mut exporter = Exporter { scope: &scope, alias: &alias, exported: vec![] };
    let mut outer_value = value.clone();
    if value_reach == Reach::Inside {
        outer_value = exporter.export(value.clone());
    } else {
        let _ = VisitMut::visit(&mut outer_value, &mut exporter);
        // Without a matching row the value is NULL, even if it uses outer columns.
        let is_there = exporter.export(Expr::value(Value::Boolean(true)));
        outer_value = Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition: is_there, result: outer_value }],
            else_result: None,
        };
    }
    let mut on = Expr::value(datafusion::sql::sqlparser::ast::Value::Boolean(true));
    for (place, mut condition) in outside.into_iter().enumerate() {
        let _ = VisitMut::visit(&mut condition, &mut exporter);
        on = if place == 0 { condition } else { and(on, condition) };
    }
    let exported = exporter.exported;
    let mut subquery = query.clone();
    if let SetExpr::Select(select) = &mut *subquery.body {
        select.projection = exported
            .into_iter()
            .enumerate()
            .map(|(place, expr)| SelectItem::ExprWithAlias { expr, alias: column(place) })
            .collect();
        select.selection = inside.into_iter().reduce(and);
    }
    let derived = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(subquery),
        alias: Some(table_alias(&alias)),
        sample: None,
    };
    Some((outer_value, join(derived, JoinOperator::LeftOuter(JoinConstraint::On(on)))))
}

fn column(place: usize) -> Ident {
    Ident::with_quote('"', format!("__column_{place}"))
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) }
}

fn split(expr: Expr, into: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(*left, into);
            split(*right, into);
        }
        other => into.push(other),
    }
}

/// The relations of FROM, if all are system relations.
fn scope(from: &[TableWithJoins]) -> Option<Scope> {
    let scope = factors(from).map(system_relation).collect::<Option<Scope>>()?;
    (!scope.is_empty()).then_some(scope)
}

/// The scope of an expression's columns: all inside the subquery, some outside, or none at all.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reach {
    Inside,
    Outside,
}

/// `None` if unknown, because the expression contains a query.
fn reach(expr: &Expr, scope: &Scope) -> Option<Reach> {
    struct Columns<'a> {
        scope: &'a Scope,
        outside: bool,
    }
    impl Visitor for Columns<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                    self.outside |= !is_inside(expr, self.scope);
                    ControlFlow::Continue(())
                }
                Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let mut columns = Columns { scope, outside: false };
    if expr.visit(&mut columns).is_break() {
        return None;
    }
    Some(if columns.outside { Reach::Outside } else { Reach::Inside })
}

/// Whether a column belongs to the subquery's own relations.
fn is_inside(expr: &Expr, scope: &Scope) -> bool {
    match expr {
        Expr::Identifier(name) => {
            let name = plain(name);
            scope.iter().any(|(_, relation)| relation.columns.iter().any(|column| column.name == name))
        }
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., relation, _] => scope.iter().any(|(name, _)| *name == plain(relation)),
            _ => false,
        },
        _ => false,
    }
}

/// Replaces the subquery's columns by columns of the join.
struct Exporter<'a> {
    scope: &'a Scope,
    alias: &'a str,
    exported: Vec<Expr>,
}

impl Exporter<'_> {
    fn export(&mut self, expr: Expr) -> Expr {
        let place = self.exported.iter().position(|known| *known == expr).unwrap_or_else(|| {
            self.exported.push(expr);
            self.exported.len() - 1
        });
        Expr::CompoundIdentifier(vec![Ident::with_quote('"', self.alias), column(place)])
    }
}

impl VisitorMut for Exporter<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) && is_inside(expr, self.scope) {
            *expr = self.export(expr.clone());
        }
        ControlFlow::Continue(())
    }
}
