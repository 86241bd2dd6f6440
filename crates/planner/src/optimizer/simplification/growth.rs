//! How large an expression becomes as it is simplified.
//!
//! DataFusion writes some operands down more than once:
//!
//! | before | after |
//! |---|---|
//! | `x BETWEEN a AND b` | `x >= a AND x <= b` |
//! | `coalesce(x, y)` | `CASE WHEN x IS NOT NULL THEN x ELSE y END` |
//! | `CASE WHEN p THEN q ELSE r END`, of conditions | `p IS TRUE AND q OR NOT (p IS TRUE) AND r` |
//!
//! Inside of each other they double with every level. So what would become too large is known before.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use super::is_coalesce;

/// Nodes that an expression may grow to.
const NODES_MAX: u64 = 200_000;

/// Times as many as there were that it may always have.
const TIMES: u64 = 8;

/// What is known of an expression.
#[derive(Clone, Copy, Default)]
struct Size {
    now: u64,
    /// When it has been simplified.
    then: u64,
    /// It becomes one value.
    is_constant: bool,
}

/// Whether an expression of a node would become too large, if each CASE of conditions becomes one of AND and
/// OR (`with_cases`), or if none does.
pub(super) fn is_large(plan: &LogicalPlan, with_cases: bool) -> Result<bool> {
    let mut is_found = false;
    plan.apply_expressions(|expr| {
        let size = size_of(expr, with_cases)?;
        is_found |= size.then > NODES_MAX && size.then > size.now.saturating_mul(TIMES);
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

fn size_of(expr: &Expr, with_cases: bool) -> Result<Size> {
    use datafusion::common::tree_node::TreeNode;
    let mut parts = Vec::new();
    expr.apply_children(|part| {
        parts.push(size_of(part, with_cases)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let now = sum(&mut parts.iter().map(|part| part.now)).saturating_add(1);
    if is_folded(expr) && parts.iter().all(|part| part.is_constant) {
        return Ok(Size { now, then: 1, is_constant: true });
    }
    let all = sum(&mut parts.iter().map(|part| part.then)).saturating_add(1);
    // What is written down once more.
    let again = match expr {
        Expr::Between(_) => sum(&mut parts.iter().take(1).map(|part| part.then)),
        Expr::ScalarFunction(function) if is_coalesce(function) => {
            sum(&mut parts.iter().take(parts.len().saturating_sub(1)).map(|part| part.then))
        }
        Expr::Case(Case { expr: None, when_then_expr, .. }) if with_cases => {
            let whens = parts.iter().take(2 * when_then_expr.len()).step_by(2);
            sum(&mut whens.map(|part| part.then)).saturating_mul(3)
        }
        _ => 0,
    };
    Ok(Size { now, then: all.saturating_add(again), is_constant: false })
}

/// Whether an expression is computed as it is simplified, if all in it are constants.
fn is_folded(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..)
        | Expr::BinaryExpr(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::InList(_) => true,
        Expr::ScalarFunction(function) => {
            function.func.signature().volatility != Volatility::Volatile && !is_coalesce(function)
        }
        _ => false,
    }
}
