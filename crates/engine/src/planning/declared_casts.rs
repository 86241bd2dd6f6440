//! Casts to declared types in lists of VALUES and in WITH RECURSIVE.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use harrier_functions::cast::declared_type::DeclaredType;

use crate::types::declared::of_sql;

/// Has casts to declared types be functions already in lists of VALUES and in WITH RECURSIVE, whose rows the
/// planner wants to have fields that are the same in all that they say.
pub(crate) fn settle(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => {
            // No hook of the visitor ever breaks off.
            let _ = VisitMut::visit(statement.as_mut(), &mut Settled::default());
        }
        Statement::Explain(explain) => settle(&mut explain.statement),
        _ => {}
    }
}

#[derive(Default)]
pub(crate) struct Settled {
    /// How many queries around are such.
    depth: usize,
    /// Whether each query around is one.
    within: Vec<bool>,
}

impl VisitorMut for Settled {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        let is_within = is_recursive || matches!(query.body.as_ref(), ast::SetExpr::Values(_));
        self.within.push(is_within);
        self.depth += usize::from(is_within);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= usize::from(self.within.pop() == Some(true));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let ast::Expr::Cast { kind, data_type, .. } = &mut *expr else { return ControlFlow::Continue(()) };
        if self.depth == 0 {
            return ControlFlow::Continue(());
        }
        let Ok(Some(declared)) = of_sql(data_type) else { return ControlFlow::Continue(()) };
        let name = match kind {
            ast::CastKind::TryCast | ast::CastKind::SafeCast => {
                harrier_functions::cast::declared_type::TRY_CAST
            }
            _ => harrier_functions::cast::declared_type::CAST,
        };
        *data_type = match declared {
            DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid => ast::DataType::Text,
            DeclaredType::Time(_) => ast::DataType::Time(None, ast::TimezoneInfo::None),
            DeclaredType::Timestamp(_) => ast::DataType::Timestamp(None, ast::TimezoneInfo::None),
            DeclaredType::TimestampTz(_) => ast::DataType::Timestamp(Some(6), ast::TimezoneInfo::Tz),
        };
        if declared.limits() {
            let cast = std::mem::replace(expr, ast::Expr::value(ast::Value::Null));
            let to = ast::Expr::value(ast::Value::SingleQuotedString(declared.name()));
            *expr = ast::Expr::Function(harrier_sql::ast_builder::function_call(name, vec![cast, to]));
        }
        ControlFlow::Continue(())
    }
}
