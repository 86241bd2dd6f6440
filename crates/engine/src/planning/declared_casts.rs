//! Casts to declared types in lists of VALUES and in WITH RECURSIVE.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};
use harrier_functions::cast::declared_type::DeclaredType;

use crate::types::declared::of_sql;

/// Replaces casts to declared types by function calls in VALUES lists and in WITH RECURSIVE: the planner
/// requires the fields of their rows to be identical, metadata included.
pub(crate) fn rewrite_casts(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => {
            // The visitor never breaks.
            let _ = VisitMut::visit(statement.as_mut(), &mut CastRewriter::default());
        }
        Statement::Explain(explain) => rewrite_casts(&mut explain.statement),
        _ => {}
    }
}

#[derive(Default)]
pub(crate) struct CastRewriter {
    /// Number of enclosing queries that are VALUES or WITH RECURSIVE.
    depth: usize,
    /// For each enclosing query, whether it is one.
    enclosing: Vec<bool>,
}

impl VisitorMut for CastRewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let is_recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        let is_within = is_recursive || matches!(query.body.as_ref(), ast::SetExpr::Values(_));
        self.enclosing.push(is_within);
        self.depth += usize::from(is_within);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= usize::from(self.enclosing.pop() == Some(true));
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
