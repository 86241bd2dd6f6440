//! Identifiers in parsed statements: normalization, and visitors of names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, ObjectNamePart, Query, Visitor};

/// The names of all common table expressions in a query.
pub fn cte_names(query: &Query) -> BTreeSet<String> {
    struct Defined(BTreeSet<String>);
    impl Visitor for Defined {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let defined = query.with.iter().flat_map(|with| &with.cte_tables);
            self.0.extend(defined.map(|table| plain(&table.alias.name)));
            ControlFlow::Continue(())
        }
    }
    let mut defined = Defined(BTreeSet::new());
    let _ = ast::Visit::visit(query, &mut defined);
    defined.0
}

/// Calls `visit` for each relation name without a schema.
pub fn visit_unqualified_relations(query: &Query, mut visit: impl FnMut(&Ident)) {
    let _ = ast::visit_relations(query, |name| {
        if let [ObjectNamePart::Identifier(own)] = &name.0[..] {
            visit(own);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Normalizes an identifier as the planner does: to lower case unless it is quoted.
pub fn plain(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// The last part of a name: of a table without its schema. Empty if it is no identifier.
pub fn last_part(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default()
}

/// Strips casts and parentheses.
pub fn without_casts(expression: &Expr) -> &Expr {
    match expression {
        Expr::Cast { expr, .. } => without_casts(expr),
        Expr::Nested(expr) => without_casts(expr),
        other => other,
    }
}
