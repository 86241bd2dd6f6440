//! Estimated size of an expression after simplification.
//!
//! DataFusion duplicates some operands:
//!
//! | before | after |
//! |---|---|
//! | `x BETWEEN a AND b` | `x >= a AND x <= b` |
//! | `coalesce(x, y)` | `CASE WHEN x IS NOT NULL THEN x ELSE y END` |
//! | `CASE WHEN p THEN q ELSE r END` with boolean results | `p IS TRUE AND q OR NOT (p IS TRUE) AND r` |
//!
//! Nested, they double at each level. The estimate rejects expressions before they grow too large.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use super::is_coalesce;

/// The maximum number of nodes after simplification.
const NODES_MAX: u64 = 200_000;

/// A growth factor that is always allowed.
const GROWTH_MAX: u64 = 8;

/// The size of an expression in nodes.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: u64,
    /// After simplification.
    nodes_after: u64,
    /// It is folded to a constant.
    is_constant: bool,
}

/// Whether an expression of a node would become too large if each boolean CASE becomes AND and OR
/// (`with_cases`), or if none does.
pub(super) fn is_large(plan: &LogicalPlan, with_cases: bool) -> Result<bool> {
    let mut is_found = false;
    plan.apply_expressions(|expr| {
        let size = size_of(expr, with_cases)?;
        is_found |= size.nodes_after > NODES_MAX && size.nodes_after > size.nodes.saturating_mul(GROWTH_MAX);
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
    let nodes = sum(&mut parts.iter().map(|part| part.nodes)).saturating_add(1);
    if is_foldable(expr) && parts.iter().all(|part| part.is_constant) {
        return Ok(Size { nodes, nodes_after: 1, is_constant: true });
    }
    let all = sum(&mut parts.iter().map(|part| part.nodes_after)).saturating_add(1);
    // The nodes that are duplicated.
    let duplicates = match expr {
        Expr::Between(_) => sum(&mut parts.iter().take(1).map(|part| part.nodes_after)),
        Expr::ScalarFunction(function) if is_coalesce(function) => {
            sum(&mut parts.iter().take(parts.len().saturating_sub(1)).map(|part| part.nodes_after))
        }
        Expr::Case(Case { expr: None, when_then_expr, .. }) if with_cases => {
            let whens = parts.iter().take(2 * when_then_expr.len()).step_by(2);
            sum(&mut whens.map(|part| part.nodes_after)).saturating_mul(3)
        }
        _ => 0,
    };
    Ok(Size { nodes, nodes_after: all.saturating_add(duplicates), is_constant: false })
}

/// Whether constant folding evaluates an expression if all its operands are constant.
fn is_foldable(expr: &Expr) -> bool {
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
