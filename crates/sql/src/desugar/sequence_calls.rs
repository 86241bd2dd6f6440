//! Calls of sequence functions.

use datafusion::sql::sqlparser::ast;

use crate::ast_builder::text_of;
use crate::identifier::{plain, without_casts};

/// Rewrites `nextval('s'::regclass)` to `nextval('s')`, and likewise the other functions: the name is
/// resolved when they run.
pub(super) fn rewrite(expr: &mut ast::Expr) {
    let ast::Expr::Function(function) = expr else { return };
    let is_one = |name: ast::Ident| ["nextval", "currval", "setval"].contains(&plain(&name).as_str());
    if !function.name.0.last().and_then(|part| part.as_ident()).cloned().is_some_and(is_one) {
        return;
    }
    let ast::FunctionArguments::List(list) = &mut function.args else { return };
    let Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(name))) = list.args.first_mut() else {
        return;
    };
    let is_text = matches!(name, ast::Expr::Cast { .. }) && text_of(without_casts(name)).is_some();
    if is_text {
        *name = without_casts(name).clone();
    }
}
