//! Removal of branches that are provably never taken.
//!
//! DataFusion's constant folding evaluates constants everywhere, and their errors fail the statement.
//! PostgreSQL folds constants as well, but processes CASE, `coalesce`, AND and OR from left to right and
//! ignores everything after a deciding condition: `CASE WHEN 5 < 3 THEN (1e10)::int END` is NULL there. So
//! unreachable branches are removed before anything is evaluated.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::common::{DFSchema, ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Volatility, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use harrier_functions::guard::never_true;

use super::is_coalesce;
use crate::rewrite::{input_schema, map_node_expressions};

/// Removes unreachable branches from a node. Runs after type coercion: all branches of an expression have the
/// same type.
pub(super) fn remove_unreachable(
    plan: LogicalPlan,
    options: Arc<ConfigOptions>,
) -> Result<Transformed<LogicalPlan>> {
    let mut is_found = false;
    plan.apply_expressions(|expr| {
        is_found |= expr.exists(|expr| Ok(has_deciding_constant(expr)))?;
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !is_found {
        return Ok(Transformed::no(plan));
    }
    let schema = input_schema(&plan)?;
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(DFSchema::empty()))
        .with_config_options(options)
        .build();
    let mut branches = Branches { schema: &schema, simplifier: ExprSimplifier::new(context) };
    map_node_expressions(plan, |expr| expr.rewrite(&mut branches))
}

/// Whether an expression contains a constant that makes a part of it unreachable.
fn has_deciding_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Case(Case { expr: Some(base), when_then_expr, .. }) => {
            is_constant(base) && when_then_expr.iter().any(|(when, _)| is_constant(when))
        }
        Expr::Case(Case { expr: None, when_then_expr, .. }) => {
            when_then_expr.iter().any(|(when, _)| is_constant(when))
        }
        Expr::ScalarFunction(function) if is_coalesce(function) => function.args.iter().any(is_constant),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), .. }) => {
            is_constant(last_operand(left, *op)) || is_constant(left)
        }
        _ => false,
    }
}

/// Whether an expression has the same value for all rows at any time.
fn is_constant(expr: &Expr) -> bool {
    let varies = expr.exists(|expr| {
        Ok(match expr {
            call if never_true::is_call(call) => true,
            Expr::ScalarFunction(function) => function.func.signature().volatility != Volatility::Immutable,
            Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
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
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::InList(_) => false,
            _ => true,
        })
    });
    !varies.unwrap_or(true)
}

/// The last operand of a chain of an operator.
fn last_operand(expr: &Expr, chain: Operator) -> &Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, right, .. }) if *op == chain => right,
        other => other,
    }
}

struct Branches<'s> {
    schema: &'s DFSchema,
    simplifier: ExprSimplifier,
}

impl TreeNodeRewriter for Branches<'_> {
    type Node = Expr;

    /// Skips removed parts and visits the others once: nested expressions would take exponential time.
    fn f_down(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let mut reached = match expr {
            Expr::Case(case) => self.case(case)?,
            Expr::ScalarFunction(function) if is_coalesce(&function) => self.coalesce(function)?,
            other => return Ok(Transformed::no(other)),
        };
        reached.tnr = TreeNodeRecursion::Jump;
        Ok(reached)
    }

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                // NULL decides nothing: NULL AND false is false.
                let decisive = Some(ScalarValue::from(op == Operator::Or));
                if self.value(&left) == decisive {
                    return Ok(Transformed::yes(lit(op == Operator::Or)));
                }
                match self.value(last_operand(&left, op)) == decisive {
                    true => Ok(Transformed::yes(*left)),
                    false => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
                }
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

impl Branches<'_> {
    /// Removes branches of a CASE that are never taken, and those after one that always is.
    fn case(&mut self, case: Case) -> Result<Transformed<Expr>> {
        let mut is_changed = false;
        let mut reached = |branches: &mut Self, expr: Expr| -> Result<Expr> {
            let reached = expr.rewrite(branches)?;
            is_changed |= reached.transformed;
            Ok(reached.data)
        };
        let base = case.expr.map(|base| reached(self, *base)).transpose()?;
        let compared = base.as_ref().map(|base| self.value(base));
        let mut whens = Vec::with_capacity(case.when_then_expr.len());
        let mut always = None;
        let count = case.when_then_expr.len();
        let mut removed = None;
        for (when, then) in case.when_then_expr {
            let when = reached(self, *when)?;
            let truth = match (&compared, self.value(&when)) {
                (None, Some(truth)) => as_truth(&truth),
                (Some(Some(base)), Some(value)) => {
                    self.value(&lit(base.clone()).eq(lit(value))).as_ref().and_then(as_truth)
                }
                _ => None,
            };
            match truth {
                Some(true) => {
                    always = Some(then);
                    break;
                }
                Some(false) => removed = Some(then),
                None => whens.push((Box::new(when), Box::new(reached(self, *then)?))),
            }
        }
        let is_cut = always.is_some() || whens.len() < count;
        let otherwise = always.or(case.else_expr).map(|otherwise| reached(self, *otherwise)).transpose()?;
        if whens.is_empty() {
            match (otherwise, removed) {
                (Some(value), _) => return Ok(Transformed::yes(value)),
                (None, Some(then)) => {
                    let none = ScalarValue::try_from(&then.get_type(self.schema)?)?;
                    return Ok(Transformed::yes(lit(none)));
                }
                (None, None) => return internal_err!("a CASE without branches"),
            }
        }
        let case =
            Case { expr: base.map(Box::new), when_then_expr: whens, else_expr: otherwise.map(Box::new) };
        Ok(Transformed::new_transformed(Expr::Case(case), is_cut || is_changed))
    }

    /// Removes NULL constants from a `coalesce`, and the arguments after one that is never NULL.
    fn coalesce(&mut self, function: ScalarFunction) -> Result<Transformed<Expr>> {
        let count = function.args.len();
        let (mut args, mut is_changed) = (Vec::with_capacity(count), false);
        for (at, arg) in function.args.into_iter().enumerate() {
            let arg = arg.rewrite(self)?;
            is_changed |= arg.transformed;
            let is_null = self.value(&arg.data).map(|value| value.is_null());
            if is_null != Some(true) || (args.is_empty() && at + 1 == count) {
                args.push(arg.data);
            }
            if is_null == Some(false) {
                break;
            }
        }
        is_changed |= args.len() < count;
        let only = if args.len() == 1 && is_changed { args.pop() } else { None };
        let call = || Expr::ScalarFunction(ScalarFunction { func: function.func, args });
        Ok(Transformed::new_transformed(only.unwrap_or_else(call), is_changed))
    }

    /// The value of a constant whose unreachable branches have been removed. `None`: it depends on the row,
    /// or evaluation fails.
    fn value(&self, expr: &Expr) -> Option<ScalarValue> {
        if let Expr::Literal(value, _) = expr {
            return Some(value.clone());
        }
        if !is_constant(expr) || expr.exists(|expr| Ok(is_undecided(expr))).unwrap_or(true) {
            return None;
        }
        match self.simplifier.simplify(expr.clone()) {
            Ok(Expr::Literal(value, _)) => Some(value),
            _ => None,
        }
    }
}

/// Whether a condition is true; NULL is not.
fn as_truth(value: &ScalarValue) -> Option<bool> {
    match value {
        ScalarValue::Boolean(truth) => Some(truth.unwrap_or(false)),
        other => other.is_null().then_some(false),
    }
}

/// Whether an expression is a CASE or coalesce that branch removal left in place: its value is unknown.
fn is_undecided(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => true,
        Expr::ScalarFunction(function) => is_coalesce(function),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{case, cast, col, when};

    use super::*;

    fn remove_from(expr: Expr) -> Expr {
        let schema = DFSchema::empty();
        let context = SimplifyContext::builder().with_schema(Arc::new(DFSchema::empty())).build();
        expr.rewrite(&mut Branches { schema: &schema, simplifier: ExprSimplifier::new(context) })
            .unwrap()
            .data
    }

    /// If the base was visited twice, this would not finish.
    #[test]
    fn undecided_nests_are_visited_once() {
        use datafusion::arrow::datatypes::DataType;
        let mut nest = cast(lit("x"), DataType::Int64);
        for _ in 0..60 {
            nest = case(nest).when(lit(1_i64), lit(2_i64)).otherwise(lit(3_i64)).unwrap();
        }
        assert_eq!(remove_from(nest.clone()), nest);
    }

    #[test]
    fn branches_after_a_decision_are_removed() {
        use datafusion::arrow::datatypes::DataType;
        let wrong = || cast(lit("x"), DataType::Int64);
        let never = || lit(5_i64).lt(lit(3_i64));
        let none = lit(ScalarValue::Int64(None));
        assert_eq!(remove_from(when(never(), wrong()).end().unwrap()), none);
        assert_eq!(remove_from(when(never(), wrong()).otherwise(lit(1_i64)).unwrap()), lit(1_i64));
        assert_eq!(remove_from(when(lit(true), lit(1_i64)).otherwise(wrong()).unwrap()), lit(1_i64));
        let inner = when(lit(true), wrong()).end().unwrap();
        assert_eq!(remove_from(when(never(), inner).otherwise(lit(2_i64)).unwrap()), lit(2_i64));
        assert_eq!(remove_from(never().and(wrong().eq(lit(1_i64)))), lit(false));
        assert_eq!(remove_from(lit(true).or(wrong().eq(lit(1_i64)))), lit(true));
        let unknown = lit(ScalarValue::Boolean(None));
        for open in
            [unknown.clone().and(col("x")), unknown.clone().or(col("x")), unknown.clone().and(lit(false))]
        {
            assert_eq!(remove_from(open.clone()), open);
        }
        let both = wrong().eq(lit(1_i64)).and(never());
        assert_eq!(remove_from(both.clone()), both);
        let open = when(col("x"), wrong()).end().unwrap();
        assert!(!has_deciding_constant(&open));
    }
}
