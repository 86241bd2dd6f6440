//! What names of joined columns mean, put in their place.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, ExcludeSelectItem, Expr, Ident, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use harrier_exec::sqlstate::{CodedError, SqlState};

use super::from::Column;
use super::{Marks, mark_of};
use crate::names;

/// The name of a joined column, and what that is.
pub(super) type Meaning = (String, Expr);

/// What names mean where there are `columns`, as far as they mean joined columns of them or of a query around.
pub(super) fn meanings(columns: &[Column], around: &[Meaning]) -> Vec<Meaning> {
    let count = |name: &str| columns.iter().filter(|column| column.name == name).count();
    // A name that several columns have means none of them.
    let own = columns.iter().filter(|column| column.is_joined && count(&column.name) == 1);
    let own = own.map(|column| (column.name.clone(), column.value.clone()));
    own.chain(around.iter().filter(|(name, _)| count(name) == 0).cloned()).collect()
}

fn meaning<'m>(meanings: &'m [Meaning], name: &Ident) -> Option<&'m Expr> {
    let name = names::plain(name);
    meanings.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Writes a SELECT from `columns` without names of joined columns. `relations`: the columns of what is joined.
///
/// Errors: `*` leaves out a column that is not there (42703), or does more than that (0A000).
pub(super) fn rewrite(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    columns: &[Column],
    relations: &[Vec<Column>],
    around: &[Meaning],
    marks: &mut Marks,
) -> Result<()> {
    let is_joined = columns.iter().any(|column| column.is_joined);
    let shown = match is_joined {
        true => expand(&mut select.projection, columns, relations)?,
        false => HashSet::new(),
    };
    replace(select, order_by, &shown, &meanings(columns, around), marks);
    if is_joined {
        names::tell_apart(select);
    }
    Ok(())
}

/// Puts columns in the place of `*` and `t.*`. Returns the names of those of them that are relations' own.
fn expand(
    projection: &mut Vec<SelectItem>,
    columns: &[Column],
    relations: &[Vec<Column>],
) -> Result<HashSet<String>> {
    let mut own = HashSet::new();
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
        for column in without(all, options)? {
            let shown = column.item();
            if matches!(shown, SelectItem::UnnamedExpr(_)) {
                own.insert(column.name.clone());
            }
            projection.push(shown);
        }
    }
    Ok(own)
}

/// What EXCLUDE or EXCEPT behind `*` leave.
fn without<'c>(mut columns: Vec<&'c Column>, options: &WildcardAdditionalOptions) -> Result<Vec<&'c Column>> {
    let WildcardAdditionalOptions { opt_exclude, opt_except, opt_ilike, opt_replace, opt_rename, .. } =
        options;
    if opt_ilike.is_some() || opt_replace.is_some() || opt_rename.is_some() || options.opt_alias.is_some() {
        let message = "joined columns are not renamed or replaced behind *";
        return Err(CodedError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
    }
    let last = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(names::plain);
    let mut left_out: Vec<String> = match opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => last(name).into_iter().collect(),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(last).collect(),
        None => vec![],
    };
    if let Some(except) = opt_except {
        left_out.push(names::plain(&except.first_element));
        left_out.extend(except.additional_elements.iter().map(names::plain));
    }
    if let Some(name) = left_out.iter().find(|name| !columns.iter().any(|column| column.name == **name)) {
        let message = format!("column \"{name}\" does not exist");
        return Err(CodedError::new(SqlState::UNDEFINED_COLUMN, message).into());
    }
    columns.retain(|column| !left_out.contains(&column.name));
    Ok(columns)
}

/// Puts meanings in the place of names everywhere but in FROM. `shown`: names of columns that stars have become.
fn replace(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
    shown: &HashSet<String>,
    meanings: &[Meaning],
    marks: &mut Marks,
) {
    for item in &mut select.projection {
        // What is no column any more keeps the name.
        if let SelectItem::UnnamedExpr(expr) = item
            && let Expr::Identifier(name) = names::without_casts(expr)
            && let Some(value) = meaning(meanings, name)
            && !matches!(value, Expr::CompoundIdentifier(_))
        {
            let alias = match shown.contains(&names::plain(name)) {
                true => Ident::with_quote('"', format!("{}_1", name.value)),
                false => name.clone(),
            };
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    let results: HashSet<String> = select.projection.iter().filter_map(result_name).collect();
    let from = std::mem::take(&mut select.from);
    put(select, meanings, marks);
    select.from = from;
    if let Some(OrderBy { kind: OrderByKind::Expressions(items), .. }) = order_by {
        for item in items {
            // A name alone means what is shown under it, if something is.
            let is_result =
                matches!(&item.expr, Expr::Identifier(name) if results.contains(&names::plain(name)));
            if !is_result {
                put(&mut item.expr, meanings, marks);
            }
        }
    }
}

fn result_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) | SelectItem::ExprWithAlias { alias: name, .. } => {
            Some(names::plain(name))
        }
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(names::plain),
        _ => None,
    }
}

/// Puts meanings in the place of names in `node`, and has it done in its subqueries where they have no columns of such names.
pub(super) fn put<N: VisitMut>(node: &mut N, meanings: &[Meaning], marks: &mut Marks) {
    if !meanings.is_empty() {
        let _ = node.visit(&mut Substitution { meanings, marks, depth: 0 });
    }
}

struct Substitution<'m> {
    meanings: &'m [Meaning],
    marks: &'m mut Marks,
    /// Of subqueries.
    depth: usize,
}

impl VisitorMut for Substitution<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            enter(query, self.meanings, self.marks);
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
            && let Expr::Identifier(name) = expr
            && let Some(value) = meaning(self.meanings, name)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Marks what is in FROM in a query in which names may mean what they mean around it.
fn enter(query: &mut Query, meanings: &[Meaning], marks: &mut Marks) {
    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        enter(&mut table.query, meanings, marks);
    }
    let is_plain = matches!(query.body.as_ref(), SetExpr::Select(_));
    let order_by = query.order_by.as_mut().filter(|_| is_plain);
    enter_body(&mut query.body, order_by, meanings, marks);
}

fn enter_body(body: &mut SetExpr, order_by: Option<&mut OrderBy>, meanings: &[Meaning], marks: &mut Marks) {
    match body {
        SetExpr::Select(select) => {
            let is_said = mentions(&**select, meanings)
                || order_by.as_deref().is_some_and(|order_by| mentions(order_by, meanings));
            if !is_said {
                return;
            }
            if select.from.is_empty() {
                return replace(select, order_by, &HashSet::new(), meanings, marks);
            }
            let mark = match mark_of(select) {
                Some(mark) => mark,
                None => marks.mark(&mut select.from),
            };
            marks.around.insert(mark, meanings.to_vec());
        }
        SetExpr::SetOperation { left, right, .. } => {
            enter_body(left, None, meanings, marks);
            enter_body(right, None, meanings, marks);
        }
        SetExpr::Query(query) => enter(query, meanings, marks),
        SetExpr::Values(values) => put(values, meanings, marks),
        _ => {}
    }
}

/// Whether one of the names is said somewhere.
fn mentions<N: ast::Visit>(node: &N, meanings: &[Meaning]) -> bool {
    ast::visit_expressions(node, |expr| match expr {
        Expr::Identifier(name) if meaning(meanings, name).is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}
