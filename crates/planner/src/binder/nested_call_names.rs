//! Functions that are called by another of their names, deep inside of each other.
//!
//! To the planner `length(x)` is `character_length(x) AS "length(x)"`, and what is around it has all of that
//! in its own name: the names of nested calls would double with every level. So inside of [`LEVELS`] calls
//! the name is the function's first one.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, ObjectNamePart, VisitMut, VisitorMut};

/// Calls inside of which a name is no more seen than this.
const LEVELS: usize = 4;

/// Calls functions by their first names there.
pub fn settle(statement: &mut Statement, functions: &HashMap<String, Arc<ScalarUDF>>) {
    let mut names = Names { functions, calls: 0 };
    let _: ControlFlow<()> = match statement {
        Statement::Statement(statement) => statement.visit(&mut names),
        Statement::Explain(explain) => {
            settle(&mut explain.statement, functions);
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
            if self.calls > LEVELS
                && let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice()
                && let Some(first) = self.first_name(name)
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
    /// That of a function which is called by another one.
    fn first_name(&self, called: &Ident) -> Option<Ident> {
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
