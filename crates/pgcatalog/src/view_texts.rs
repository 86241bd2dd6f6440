//! View definitions as PostgreSQL prints them: relations not on the search path are qualified.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, Visit, VisitMut, Visitor, VisitorMut,
    visit_relations,
};
use harrier_sql::dialect::SqlDialect;
use harrier_sql::parser::planner_statement;

use crate::catalog::{Catalog, Index, quote_identifier};
use crate::source::{Relation, oid};

/// A view's query, with a leading space and a trailing semicolon; `None` if unknown.
pub(crate) fn definition(catalog: &Catalog, index: &Index, view: &Relation) -> Option<String> {
    let definition = view.definition.as_deref()?.trim().trim_end_matches(';').trim_end();
    let text = qualify_relations(catalog, index, definition).unwrap_or_else(|| definition.to_string());
    Some(format!(" {text};"))
}

/// `None` if there is nothing to qualify, or the text is not PostgreSQL SQL.
fn qualify_relations(catalog: &Catalog, index: &Index, text: &str) -> Option<String> {
    let mut statement = statement(text)?;
    let statement = &mut statement;
    let mut common = Common(HashSet::new());
    let _ = Visit::visit(statement, &mut common);
    let mut names = Names { catalog, index, common: common.0, has_changed: false };
    let _ = VisitMut::visit(statement, &mut names);
    names.has_changed.then(|| statement.to_string())
}

/// Parses a text as a statement.
fn statement(text: &str) -> Option<Statement> {
    match planner_statement(text, &SqlDialect).ok()? {
        parser::Statement::Statement(statement) => Some(*statement),
        _ => None,
    }
}

/// The names defined by any WITH.
struct Common(HashSet<String>);

impl Visitor for Common {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(tables.map(|table| normal(&table.alias.name)));
        ControlFlow::Continue(())
    }
}

struct Names<'a> {
    catalog: &'a Catalog,
    index: &'a Index,
    common: HashSet<String>,
    has_changed: bool,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident().map(normal)).collect();
        let found = find(self.index, &self.common, &parts);
        let is_visible = found.and_then(|found| self.catalog.is_visible(self.index, found));
        if let (Some((schema, own)), Some(false)) =
            (found.and_then(|found| self.index.name_of(found)), is_visible)
            && (parts.len() == 1 || parts[0] != schema)
        {
            let part = |name: &str| ObjectNamePart::Identifier(Ident::new(quote_identifier(name)));
            name.0 = vec![part(&schema), part(&own)];
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// The relation that a name in a view refers to. Unqualified names resolve where new tables are created,
/// whatever the path.
fn find(index: &Index, common: &HashSet<String>, parts: &[String]) -> Option<i32> {
    match parts {
        [name] if !common.contains(name) => {
            let schema = index.contents.schemas.iter().find(|schema| schema.is_public)?;
            index.relation(&schema.name, name)
        }
        [schema, name] => index.relation(schema, name),
        _ => None,
    }
}

/// The oids of a view's inputs: from the source, or else from the names in its query.
pub(crate) fn reads(index: &Index, view: &Relation) -> Vec<i32> {
    if !view.reads.is_empty() {
        return view.reads.iter().map(|id| oid(*id)).collect();
    }
    let Some(statement) = view.definition.as_deref().and_then(statement) else { return vec![] };
    let mut found = vec![];
    let mut common = Common(HashSet::new());
    let _ = Visit::visit(&statement, &mut common);
    let _ = visit_relations(&statement, |name| {
        let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident().map(normal)).collect();
        found.extend(find(index, &common.0, &parts));
        ControlFlow::<()>::Continue(())
    });
    found.sort_unstable();
    found.dedup();
    found
}

fn normal(identifier: &Ident) -> String {
    match identifier.quote_style {
        Some(_) => identifier.value.clone(),
        None => identifier.value.to_lowercase(),
    }
}
