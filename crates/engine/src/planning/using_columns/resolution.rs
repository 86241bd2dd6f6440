//! Substitution of joined columns for their names.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, ExcludeSelectItem, Expr, Ident, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::column_names::duplicate_alias;
use harrier_sql::desugar::result_columns;
use harrier_sql::identifier;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::using_columns::column::{Column, Meaning};
use crate::planning::using_columns::marks::{Marks, mark_of};

/// Meanings of names over `columns`: of joined columns, here or of an outer query, and of ambiguous names.
pub(super) fn meanings(columns: &[Column], outer: &[Meaning]) -> Vec<Meaning> {
    let count = |name: &str| columns.iter().filter(|column| column.name == name).count();
    // An ambiguous name means none of the columns.
    let own = columns.iter().filter(|column| column.is_joined && count(&column.name) == 1);
    let own = own.map(|column| Meaning {
        relation: vec![],
        name: column.name.clone(),
        value: Some(column.value.clone()),
    });
    let mut found: Vec<Meaning> = own.collect();
    let mut seen: HashSet<(Vec<&str>, &str)> = HashSet::new();
    for column in columns {
        let relation = column.relation();
        let is_twin = !seen.insert((relation.clone(), column.name.as_str()));
        // A joined column has no relation.
        if is_twin && !relation.is_empty() {
            let relation: Vec<String> = relation.into_iter().map(str::to_string).collect();
            for relation in [vec![], relation] {
                found.push(Meaning { relation, name: column.name.clone(), value: None });
            }
        }
    }
    let is_hidden = |meaning: &Meaning| match meaning.relation.is_empty() {
        true => count(&meaning.name) > 0,
        false => columns.iter().any(|column| column.is_under(&meaning.relation)),
    };
    found.extend(outer.iter().filter(|meaning| !is_hidden(meaning)).cloned());
    found
}

/// The meaning of an expression that is a name, qualified or not.
fn meaning_of<'m>(meanings: &'m [Meaning], expr: &Expr) -> Option<&'m Meaning> {
    let is_of = |meaning: &Meaning, parts: &[Ident]| {
        let Some((last, before)) = parts.split_last() else { return false };
        let before: Vec<String> = before.iter().map(identifier::plain).collect();
        meaning.name == identifier::plain(last)
            && meaning.relation.is_empty() == before.is_empty()
            && meaning.relation.ends_with(&before)
    };
    match expr {
        Expr::Identifier(name) => meanings.iter().find(|meaning| is_of(meaning, std::slice::from_ref(name))),
        Expr::CompoundIdentifier(parts) => meanings.iter().find(|meaning| is_of(meaning, parts)),
        _ => None,
    }
}

/// Rewrites a SELECT from `columns` without names of joined columns. `relations`: the columns of each joined
/// relation.
///
/// Errors: EXCLUDE names a column that does not exist (42703), or `*` has other options (0A000).
pub(super) fn rewrite(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    columns: &[Column],
    relations: &[Vec<Column>],
    outer: &[Meaning],
    marks: &mut Marks,
) -> Result<()> {
    let is_written = columns.iter().any(|column| column.is_joined) || stars_overlap(&select.projection);
    let expanded = match is_written {
        true => expand(&mut select.projection, columns, relations)?,
        false => ExpandedStars::default(),
    };
    replace(select, order_by, &expanded, &meanings(columns, outer), marks);
    if is_written {
        result_columns::disambiguate_client_names(select);
    }
    Ok(())
}

/// Whether two stars expand to the same column, which the planner rejects: `*, *`, `*, t.*` and `t.*, t.*`.
pub(super) fn stars_overlap(projection: &[SelectItem]) -> bool {
    let mut is_all = false;
    let mut seen: Vec<String> = Vec::new();
    for item in projection {
        match item {
            SelectItem::Wildcard(_) if is_all || !seen.is_empty() => return true,
            SelectItem::Wildcard(_) => is_all = true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let relation = name.0.last().and_then(|part| part.as_ident()).map(identifier::plain);
                let relation = relation.unwrap_or_default();
                if is_all || seen.contains(&relation) {
                    return true;
                }
                seen.push(relation);
            }
            _ => {}
        }
    }
    false
}

/// Expanded stars of a select list.
#[derive(Debug, Default)]
struct ExpandedStars {
    /// The names of the columns that belong to relations.
    names: HashSet<String>,
    /// The positions of all of them.
    places: HashSet<usize>,
}

/// Expands `*` and `t.*`.
fn expand(
    projection: &mut Vec<SelectItem>,
    columns: &[Column],
    relations: &[Vec<Column>],
) -> Result<ExpandedStars> {
    let mut own = ExpandedStars::default();
    for item in std::mem::take(projection) {
        let (all, options): (Vec<&Column>, _) = match &item {
            SelectItem::Wildcard(options) => (columns.iter().collect(), Some(options)),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                let of_relation = relations.iter().flatten().filter(|column| column.is_of(name));
                (of_relation.collect(), Some(options))
            }
            _ => (vec![], None),
        };
        let Some(options) = options.filter(|_| !all.is_empty()) else {
            projection.push(item);
            continue;
        };
        for column in exclude_columns(all, options)? {
            let expanded = column.item();
            if matches!(expanded, SelectItem::UnnamedExpr(_)) {
                own.names.insert(column.name.clone());
            }
            own.places.insert(projection.len());
            projection.push(expanded);
        }
    }
    Ok(own)
}

/// The columns left by EXCLUDE or EXCEPT after `*`.
fn exclude_columns<'c>(
    mut columns: Vec<&'c Column>,
    options: &WildcardAdditionalOptions,
) -> Result<Vec<&'c Column>> {
    let WildcardAdditionalOptions { opt_exclude, opt_except, opt_ilike, opt_replace, opt_rename, .. } =
        options;
    if opt_ilike.is_some() || opt_replace.is_some() || opt_rename.is_some() || options.opt_alias.is_some() {
        let message = "joined columns are not renamed or replaced behind *";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let last = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(identifier::plain);
    let mut left_out: Vec<String> = match opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => last(name).into_iter().collect(),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(last).collect(),
        None => vec![],
    };
    if let Some(except) = opt_except {
        left_out.push(identifier::plain(&except.first_element));
        left_out.extend(except.additional_elements.iter().map(identifier::plain));
    }
    if let Some(name) = left_out.iter().find(|name| !columns.iter().any(|column| column.name == **name)) {
        let message = format!("column \"{name}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
    }
    columns.retain(|column| !left_out.contains(&column.name));
    Ok(columns)
}

/// Substitutes meanings for names everywhere but in FROM and in expanded stars, which are resolved already.
fn replace(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    expanded: &ExpandedStars,
    meanings: &[Meaning],
    marks: &mut Marks,
) {
    for item in &mut select.projection {
        // An item that is no longer a column keeps its name.
        if let SelectItem::UnnamedExpr(expr) = item
            && let inside @ Expr::Identifier(name) = identifier::without_casts(expr)
            && let Some(Meaning { value: Some(value), .. }) = meaning_of(meanings, inside)
            && !matches!(value, Expr::CompoundIdentifier(_))
        {
            let alias = match expanded.names.contains(&identifier::plain(name)) {
                true => Ident::with_quote('"', duplicate_alias(&identifier::plain(name), 1)),
                false => name.clone(),
            };
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    let results: HashSet<String> = select.projection.iter().filter_map(result_name).collect();
    let from = std::mem::take(&mut select.from);
    let items = std::mem::take(&mut select.projection);
    let (stars, others): (Vec<_>, Vec<_>) =
        items.into_iter().enumerate().partition(|(at, _)| expanded.places.contains(at));
    select.projection = others.into_iter().map(|(_, item)| item).collect();
    substitute(select, meanings, marks);
    for (at, item) in stars {
        select.projection.insert(at, item);
    }
    select.from = from;
    if let Some(OrderBy { kind: OrderByKind::Expressions(items), .. }) = order_by {
        for item in items {
            // A bare name means the result column of that name, if there is one.
            let is_result =
                matches!(&item.expr, Expr::Identifier(name) if results.contains(&identifier::plain(name)));
            if !is_result {
                substitute(&mut item.expr, meanings, marks);
            }
        }
    }
}

fn result_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) | SelectItem::ExprWithAlias { alias: name, .. } => {
            Some(identifier::plain(name))
        }
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(identifier::plain),
        _ => None,
    }
}

/// Substitutes meanings for names in `node`, and in its subqueries where those have no columns of such names.
pub(super) fn substitute<N: VisitMut>(node: &mut N, meanings: &[Meaning], marks: &mut Marks) {
    if !meanings.is_empty() {
        let _ = node.visit(&mut Substitution { meanings, marks, depth: 0 });
    }
}

struct Substitution<'m> {
    meanings: &'m [Meaning],
    marks: &'m mut Marks,
    /// Nesting depth of subqueries.
    depth: usize,
}

impl VisitorMut for Substitution<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            mark_query(query, self.meanings, self.marks);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Some(meaning) = meaning_of(self.meanings, expr)
        {
            match &meaning.value {
                Some(value) => *expr = value.clone(),
                None => {
                    self.marks.ambiguous.get_or_insert_with(|| expr.to_string());
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Marks the FROM clauses of a subquery that mentions outer names.
fn mark_query(query: &mut Query, meanings: &[Meaning], marks: &mut Marks) {
    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        mark_query(&mut table.query, meanings, marks);
    }
    let is_plain = matches!(query.body.as_ref(), SetExpr::Select(_));
    let order_by = query.order_by.as_mut().filter(|_| is_plain);
    mark_body(&mut query.body, order_by, meanings, marks);
}

fn mark_body(body: &mut SetExpr, order_by: Option<&mut OrderBy>, meanings: &[Meaning], marks: &mut Marks) {
    match body {
        SetExpr::Select(select) => {
            let is_said = mentions(&**select, meanings)
                || order_by.as_deref().is_some_and(|order_by| mentions(order_by, meanings));
            if !is_said {
                return;
            }
            if select.from.is_empty() {
                return replace(select, order_by, &ExpandedStars::default(), meanings, marks);
            }
            let mark = match mark_of(select) {
                Some(mark) => mark,
                None => marks.mark(&mut select.from),
            };
            marks.outer.insert(mark, meanings.to_vec());
        }
        SetExpr::SetOperation { left, right, .. } => {
            mark_body(left, None, meanings, marks);
            mark_body(right, None, meanings, marks);
        }
        SetExpr::Query(query) => mark_query(query, meanings, marks),
        SetExpr::Values(values) => substitute(values, meanings, marks),
        _ => {}
    }
}

/// Whether `node` mentions one of the names.
fn mentions<N: ast::Visit>(node: &N, meanings: &[Meaning]) -> bool {
    ast::visit_expressions(node, |expr| match meaning_of(meanings, expr) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    })
    .is_break()
}
