//! Windows that refine a named window, `OVER (w ROWS 2 PRECEDING)`: the planner would ignore the name.

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Query, SetExpr, Value, VisitMut, VisitorMut, WindowFrameBound, WindowSpec,
    WindowType,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier;

/// Expands references to the WINDOW clause in a query's functions. Its subqueries have their own.
///
/// Errors: an undefined window (42704); a clause that overrides that of the named window (42P20).
pub(super) fn expand(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let mut windows: Vec<(String, WindowSpec)> = Vec::new();
    for definition in &mut select.named_window {
        let spec = match &mut definition.1 {
            NamedWindowExpr::WindowSpec(spec) => {
                inherit_clauses(spec, &windows)?;
                spec.clone()
            }
            NamedWindowExpr::NamedWindow(base) => find_window(base, &windows)?.clone(),
        };
        definition.1 = NamedWindowExpr::WindowSpec(spec.clone());
        windows.push((identifier::plain(&definition.0), spec));
    }
    let mut functions = Functions { windows: &windows, depth: 0 };
    let mut flow = select.projection.visit(&mut functions);
    if flow.is_continue() {
        flow = select.qualify.visit(&mut functions);
    }
    if flow.is_continue() {
        flow = query.order_by.visit(&mut functions);
    }
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Functions<'w> {
    windows: &'w [(String, WindowSpec)],
    /// Nesting depth of subqueries.
    depth: usize,
}

impl VisitorMut for Functions<'_> {
    type Break = DataFusionError;

    crate::count_query_depth!(depth, mut);

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let done = match &mut function.over {
            Some(WindowType::WindowSpec(spec)) => inherit_clauses(spec, self.windows),
            Some(over @ WindowType::NamedWindow(_)) => {
                let WindowType::NamedWindow(name) = over else { return ControlFlow::Continue(()) };
                find_window(name, self.windows).map(|spec| *over = WindowType::WindowSpec(spec.clone()))
            }
            None => Ok(()),
        };
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Copies the clauses of the referenced window to a window.
fn inherit_clauses(spec: &mut WindowSpec, windows: &[(String, WindowSpec)]) -> Result<()> {
    if let Some(frame) = &mut spec.window_frame {
        plain_bound(&mut frame.start_bound);
        frame.end_bound.iter_mut().for_each(plain_bound);
    }
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let base = find_window(&name, windows)?;
    let refused = |what: &str| {
        let message = format!("cannot {what} of window \"{}\"", identifier::plain(&name));
        Err(SqlError::new(SqlState::WINDOWING_ERROR, message).into_datafusion())
    };
    if !spec.partition_by.is_empty() {
        return refused("override PARTITION BY clause");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused("override ORDER BY clause");
    }
    if base.window_frame.is_some() {
        return refused("copy the frame clause");
    }
    spec.partition_by.clone_from(&base.partition_by);
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&base.order_by);
    }
    Ok(())
}

fn find_window<'w>(name: &Ident, windows: &'w [(String, WindowSpec)]) -> Result<&'w WindowSpec> {
    let name = identifier::plain(name);
    match windows.iter().find(|(known, _)| *known == name) {
        Some((_, spec)) => Ok(spec),
        None => {
            let message = format!("window \"{name}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message).into_datafusion())
        }
    }
}

/// Strips the cast of a numeric frame bound.
fn plain_bound(bound: &mut WindowFrameBound) {
    let (WindowFrameBound::Preceding(Some(offset)) | WindowFrameBound::Following(Some(offset))) = bound
    else {
        return;
    };
    if let Expr::Cast { expr, .. } = offset.as_ref()
        && matches!(expr.as_ref(), Expr::Value(value) if matches!(value.value, Value::Number(..)))
    {
        *offset = expr.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rewritten;

    #[test]
    fn windows_are_completed() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check(
            "SELECT sum(a) OVER (w ROWS 2::int PRECEDING) FROM t WINDOW w AS (PARTITION BY b ORDER BY c)",
            "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS 2 PRECEDING) FROM t WINDOW w AS (PARTITION BY b ORDER BY c)",
        );
        check(
            "SELECT a FROM t WINDOW w AS (ORDER BY c) ORDER BY rank() OVER w",
            "SELECT a FROM t WINDOW w AS (ORDER BY c) ORDER BY rank() OVER (ORDER BY c)",
        );
        let fails = |sql: &str| rewritten(sql).unwrap_err().to_string();
        assert!(fails("SELECT sum(a) OVER (v) FROM t").contains("window \"v\" does not exist"));
        assert!(
            fails("SELECT sum(a) OVER (w ORDER BY d) FROM t WINDOW w AS (ORDER BY c)").contains("ORDER BY")
        );
    }
}
