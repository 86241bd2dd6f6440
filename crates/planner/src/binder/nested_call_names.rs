//! Shortens the names of deeply nested calls to functions that have aliases.
//!
//! DataFusion plans `length(x)` as `character_length(x) AS "length(x)"`, and the enclosing call includes all
//! of that in its own name: names would double at each nesting level. So calls nested more than
//! [`LEVELS_MAX`] deep use the primary name of the function.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, VisitMut, VisitorMut};

/// The nesting depth below which calls keep the name as written.
const LEVELS_MAX: usize = 4;

/// Replaces function aliases by primary names in deeply nested calls.
pub fn shorten(statement: &mut Statement, functions: &HashMap<String, Arc<ScalarUDF>>) {
    let mut names = Names { functions, calls: 0 };
    let _: ControlFlow<()> = match statement {
        Statement::Statement(statement) => statement.visit(&mut names),
        Statement::Explain(explain) => {
            shorten(&mut explain.statement, functions);
            ControlFlow::Continue(())
        }
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut names),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    };
}

struct Names<'a> {
    functions: &'a HashMap<String, Arc<ScalarUDF>>,
    calls: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr {
            self.calls += 1;
            if self.calls > LEVELS_MAX
                && let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice()
                && let Some(first) = self.primary_name(name)
            {
                call.name = ObjectName::from(vec![first]);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.calls -= usize::from(matches!(expr, Expr::Function(_)));
        ControlFlow::Continue(())
    }
}

impl Names<'_> {
    /// The primary name of a function called by an alias.
    fn primary_name(&self, called: &Ident) -> Option<Ident> {
        let name = match called.quote_style {
            Some(_) => called.value.clone(),
            None => called.value.to_lowercase(),
        };
        let function = self.functions.get(&name)?;
        let first = function.name();
        let is_the_same = self.functions.get(first).is_some_and(|other| other == function);
        (first != name && is_the_same).then(|| Ident { value: first.to_string(), ..called.clone() })
    }
}
