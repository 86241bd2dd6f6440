//! CASE inside of CASE, whose types are found out in a time that doubles with every level.
//!
//! DataFusion asks a call of a function for the field of each argument, and a CASE for its type, and then
//! whether it may be NULL: both ask the results of the CASE, and these, where they are calls, for the fields
//! of their arguments once more. So a CASE that has more than [`LEVELS`] of them in it gets a first branch
//! that nothing takes, `WHEN harrier_never() THEN NULL`. As it may be NULL for all that the planner knows,
//! the CASE may be, and nobody else is asked; and once types are coerced that NULL has the type of the whole.
//! Simplification is kept from taking the branch away (`optimizer/simplification.rs` of crate planner).

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Value, VisitMut,
    VisitorMut,
};
use harrier_functions::guard::never_true;

/// CASE inside of CASE up to which the planner is asked no less than without this.
const LEVELS: usize = 3;

/// Gives deep CASEs of a statement their branch.
pub fn settle(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => settle_in(statement.as_mut()),
        Statement::Explain(explain) => settle(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => settle_in(query.as_mut()),
            CopyToSource::Relation(_) => {}
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => {}
    }
}

/// The same for an expression, or another part of a statement.
pub fn settle_in<N: VisitMut>(node: &mut N) {
    let _: ControlFlow<()> = node.visit(&mut Cases { levels: vec![0], conditions: HashSet::new() });
}

/// How many CASEs are inside of each other's results in what has been seen of each expression that is open.
struct Cases {
    levels: Vec<usize>,
    /// Where the conditions of those are that are open: a CASE has the types of its results, whatever these
    /// are.
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

    fn settled(text: &str) -> String {
        let mut expr = Parser::new(&SqlDialect).try_with_sql(text).unwrap().parse_expr().unwrap();
        settle_in(&mut expr);
        expr.to_string()
    }

    #[test]
    fn deep_ones_get_a_branch() {
        let nest =
            |depth| (0..depth).fold("x".to_string(), |inner, _| format!("CASE WHEN a THEN {inner} END"));
        assert_eq!(settled(&nest(LEVELS)), nest(LEVELS));
        let deep = settled(&nest(LEVELS + 2));
        assert_eq!(deep.matches("WHEN harrier_never() THEN NULL").count(), 2, "{deep}");
        assert!(
            deep.starts_with("CASE WHEN harrier_never() THEN NULL WHEN a THEN CASE WHEN harrier_never()")
        );
        // Conditions have no say in the type.
        let in_conditions =
            (0..LEVELS + 2).fold("x".to_string(), |inner, _| format!("CASE WHEN {inner} > 1 THEN a END"));
        assert_eq!(settled(&in_conditions), in_conditions);
        // Beside each other they are not deep.
        let side_by_side = vec![nest(LEVELS); 3].join(" + ");
        assert_eq!(settled(&side_by_side), side_by_side);
        let simple = format!("CASE x WHEN 1 THEN {} END", nest(LEVELS));
        assert!(settled(&simple).starts_with("CASE x WHEN NULL THEN NULL WHEN 1"));
    }
}
