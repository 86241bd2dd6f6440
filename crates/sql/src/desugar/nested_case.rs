//! Nested CASE, whose type inference takes time that doubles with every level.
//!
//! For a function call DataFusion computes the field of each argument, and for a CASE its type and then its
//! nullability. Both visit the results of the CASE, and results that are calls visit the fields of their
//! arguments again. So a CASE with more than [`LEVELS`] nested ones gets a first branch that is never taken,
//! `WHEN harrier_never() THEN NULL`. The planner then finds the CASE nullable at its first branch, without
//! visiting the others, and after type coercion that NULL has the type of the CASE.
//! `optimizer/simplification.rs` of crate planner keeps simplification from removing the branch.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Value, VisitMut,
    VisitorMut,
};
use harrier_functions::guard::never_true;

/// Nesting up to which the extra branch saves nothing.
const LEVELS: usize = 3;

/// Adds the branch to deeply nested CASEs of a statement.
pub fn add_branches(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => add_branches_in(statement.as_mut()),
        Statement::Explain(explain) => add_branches(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => add_branches_in(query.as_mut()),
            CopyToSource::Relation(_) => {}
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
}

/// Adds the branch in an expression or another part of a statement.
pub fn add_branches_in<N: VisitMut>(node: &mut N) {
    let _: ControlFlow<()> = node.visit(&mut Cases { levels: vec![0], conditions: HashSet::new() });
}

/// For each open expression, the nesting depth of CASE in the results visited so far.
struct Cases {
    levels: Vec<usize>,
    /// The conditions of open CASEs: they do not affect the type of a CASE.
    conditions: HashSet<*const Expr>,
}

impl VisitorMut for Cases {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.levels.push(0);
        if let Expr::Case { conditions, .. } = expr {
            self.conditions.extend(conditions.iter().map(|when| &raw const when.condition));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let mut levels = self.levels.pop().unwrap_or_default();
        let is_condition = self.conditions.remove(&(&raw const *expr));
        if let Expr::Case { operand, conditions, .. } = expr {
            levels += 1;
            if levels > LEVELS {
                let condition = match operand {
                    Some(_) => null(),
                    None => never(),
                };
                conditions.insert(0, CaseWhen { condition, result: null() });
            }
        }
        if let Some(outer) = self.levels.last_mut().filter(|_| !is_condition) {
            *outer = levels.max(*outer);
        }
        ControlFlow::Continue(())
    }
}

fn null() -> Expr {
    Expr::value(Value::Null)
}

fn never() -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(never_true::NAME)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn with_branches(text: &str) -> String {
        let mut expr = Parser::new(&SqlDialect).try_with_sql(text).unwrap().parse_expr().unwrap();
        add_branches_in(&mut expr);
        expr.to_string()
    }

    #[test]
    fn deep_ones_get_a_branch() {
        let nest =
            |depth| (0..depth).fold("x".to_string(), |inner, _| format!("CASE WHEN a THEN {inner} END"));
        assert_eq!(with_branches(&nest(LEVELS)), nest(LEVELS));
        let deep = with_branches(&nest(LEVELS + 2));
        assert_eq!(deep.matches("WHEN harrier_never() THEN NULL").count(), 2, "{deep}");
        assert!(
            deep.starts_with("CASE WHEN harrier_never() THEN NULL WHEN a THEN CASE WHEN harrier_never()")
        );
        // Conditions do not affect the type.
        let in_conditions =
            (0..LEVELS + 2).fold("x".to_string(), |inner, _| format!("CASE WHEN {inner} > 1 THEN a END"));
        assert_eq!(with_branches(&in_conditions), in_conditions);
        // Side by side they are not nested.
        let side_by_side = vec![nest(LEVELS); 3].join(" + ");
        assert_eq!(with_branches(&side_by_side), side_by_side);
        let simple = format!("CASE x WHEN 1 THEN {} END", nest(LEVELS));
        assert!(with_branches(&simple).starts_with("CASE x WHEN NULL THEN NULL WHEN 1"));
    }
}
