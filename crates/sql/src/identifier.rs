//! Names in a parsed statement: as the planner takes them, and where they stand.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectNamePart, Query, Visitor};

/// The names that WITH defines anywhere in a query.
pub fn defined_in(query: &Query) -> BTreeSet<String> {
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

/// Has `see` look at the names of relations that have no schema.
pub fn bare_relations(query: &Query, mut see: impl FnMut(&Ident)) {
    let _ = ast::visit_relations(query, |name| {
        if let [ObjectNamePart::Identifier(own)] = &name.0[..] {
            see(own);
        }
        ControlFlow::<()>::Continue(())
    });
}

/// A name as the planner takes it: in lower case unless it is quoted.
pub fn plain(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// What is cast, of a cast or several, in parentheses or not.
pub fn without_casts(expression: &Expr) -> &Expr {
    match expression {
        Expr::Cast { expr, .. } => without_casts(expr),
        Expr::Nested(expr) => without_casts(expr),
        other => other,
    }
}
