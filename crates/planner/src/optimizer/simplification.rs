//! Guard of DataFusion's expression simplification: hides expressions that it would rewrite wrongly.
//!
//! Simplification treats NULL as false when merging lists (`x IN (1, 2) AND x IN (3, 4)` becomes `false`,
//! apache/datafusion#24258), drops non-constant list elements (`x IN (1, 2) AND x NOT IN (y)` becomes `x IN
//! (1, 2)`), rewrites `x # x` to zero and `x ~ '.*'` to `x IS NOT NULL`. It also rewrites a CASE with boolean
//! results to ANDs and ORs, which evaluate all of them, including those that the CASE guards against errors
//! (apache/datafusion#8927, apache/datafusion#25143). The guard first removes unreachable branches
//! ([`unreachable_branches`]), then wraps critical expressions in a function that it removes after
//! simplification; a CASE becomes the equivalent `CASE true WHEN …`.
//!
//! ```text
//! x IN (1, 2) AND x IN (3, 4)                ─►  x IN (1, 2) AND harrier_guarded(x IN (3, 4), 0)
//! x # y                                      ─►  x # harrier_guarded(y, 1)
//! x ~ '.*'                                   ─►  x LIKE '%'
//! CASE WHEN p THEN 1 / y > 2 ELSE false END  ─►  CASE true WHEN p THEN 1 / y > 2 ELSE false END
//! CASE WHEN 5 < 3 THEN 1 / 0 ELSE 1 END      ─►  1   (branches)
//! ```
//! After simplification harrier_guarded is removed.
//!
//! `Simplification` can go with apache/datafusion#24258 (NULL in IN lists) and apache/datafusion#25143 (CASE
//! to AND and OR) for these parts; x # x, .* and the growth of nested expressions have no issue
//! (apache/datafusion#24402 could not be found).

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Case, InList, Like, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use harrier_error::{SqlError, SqlState};
use harrier_functions::guard::never_true;
use harrier_sqlstate::IntoDataFusionError;

use crate::delegation::delegate_optimizer_rule;
use crate::fallible::has_risk;
use crate::rewrite::{input_schema, rewrite_expressions};

mod growth;
mod unreachable_branches;

/// The name of the function that wraps a guarded expression. It never occurs in executed plans.
const GUARD: &str = "harrier_guarded";

/// The name of DataFusion's rule.
const NAME: &str = "simplify_expressions";

/// Wraps DataFusion's rule.
#[derive(Debug)]
struct Simplification(Arc<dyn OptimizerRule + Send + Sync>);

/// Wraps the simplification rule in `rules`.
pub fn guard(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == NAME) {
        *rule = Arc::new(Simplification(Arc::clone(rule)));
    }
}

/// The simplification rule of a session.
pub fn rule(state: &SessionState) -> Result<Arc<dyn OptimizerRule + Send + Sync>> {
    match state.optimizers().iter().find(|rule| rule.name() == NAME) {
        Some(rule) => Ok(Arc::clone(rule)),
        None => internal_err!("nothing simplifies expressions"),
    }
}

impl OptimizerRule for Simplification {
    delegate_optimizer_rule!();

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let plan = unreachable_branches::remove_unreachable(plan, config.options())?;
        let (is_cut, plan) = (plan.transformed, plan.data);
        let has_risks = has_risks(&plan)?;
        let mut guards = Guards::default();
        let guarded = match has_risks {
            true => rewrite_expressions(plan, |expr| Ok(guards.guard_expr(expr)))?,
            false => Transformed::no(plan),
        };
        let is_large = growth::is_large(&guarded.data, true)?;
        if is_large && growth::is_large(&guarded.data, false)? {
            return Err(too_large());
        }
        if !guarded.transformed && guards.cases == 0 && !is_large {
            let simplified = self.0.rewrite(guarded.data, config)?;
            return Ok(Transformed::new_transformed(simplified.data, simplified.transformed || is_cut));
        }
        let guarded = match guards.cases > 0 || is_large {
            false => guarded.data,
            true => {
                let schema = input_schema(&guarded.data)?;
                rewrite_expressions(guarded.data, |expr| Ok(keep_case(expr, &schema, is_large)))?.data
            }
        };
        let simplified = self.0.rewrite(guarded, config)?;
        let plain =
            simplified.data.map_expressions(|expr| expr.transform_up(|expr| Ok(remove_guard(expr))))?;
        Ok(Transformed::yes(plain.data))
    }
}

/// The error for an expression that planning would make too large.
fn too_large() -> DataFusionError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "expression is too complex")
        .with_detail("BETWEEN and COALESCE inside of each other double it with every level.")
        .into_datafusion()
}

/// Whether an expression of a node contains a part that may need a guard.
fn has_risks(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_expressions(|expr| {
        is_found |= expr.exists(|expr| {
            Ok(match expr {
                Expr::InList(_) | Expr::Case(_) | Expr::ScalarFunction(_) => true,
                Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                    matches!(op, Operator::Or | Operator::BitwiseXor) || is_regex(*op)
                }
                _ => false,
            })
        })?;
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

#[derive(Default)]
struct Guards {
    /// The number of XORs so far: two guarded ones must not compare equal.
    xors: u64,
    /// The number of expressions that may need lazy evaluation.
    cases: usize,
}

impl Guards {
    fn guard_expr(&mut self, expr: Expr) -> Transformed<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let (right, is_changed) = guard_operand(&left, *right, op);
                let expr = Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(right) });
                Transformed::new_transformed(expr, is_changed)
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right })
                if !matches!(right.as_ref(), Expr::Literal(..)) =>
            {
                self.xors += 1;
                let right = Box::new(wrap_guard(*right, self.xors));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op: Operator::BitwiseXor, right }))
            }
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: op @ (Operator::RegexMatch | Operator::RegexIMatch),
                right,
            }) => match text_of(&right) {
                Some(".*") => {
                    let all = Box::new(lit("%"));
                    Transformed::yes(Expr::Like(Like::new(false, left, all, None, false)))
                }
                _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            },
            call if never_true::is_call(&call) => Transformed::yes(never_true::unknown().call(vec![])),
            Expr::ScalarFunction(function) if has_inner_coalesce(&function) => {
                let flat = flatten_coalesce(function);
                self.cases += usize::from(is_eager(&flat));
                Transformed::yes(flat)
            }
            other => {
                self.cases += usize::from(is_eager(&other));
                Transformed::no(other)
            }
        }
    }
}

/// Guards the right side of a chain of ANDs or ORs if it and an operand on the left may become lists of
/// values of the same columns.
fn guard_operand(left: &Expr, right: Expr, op: Operator) -> (Expr, bool) {
    if !operands(&right, op).into_iter().any(|operand| may_be_list(operand, op)) {
        return (right, false);
    }
    let lists = operands(left, op).into_iter().filter(|operand| may_be_list(operand, op));
    let lists: Vec<HashSet<&Column>> = lists.map(Expr::column_refs).collect();
    guard_operands(right, op, &lists)
}

fn guard_operands(expr: Expr, op: Operator, lists: &[HashSet<&Column>]) -> (Expr, bool) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: inner, right }) if inner == op => {
            let (left, is_left) = guard_operands(*left, op, lists);
            let (right, is_right) = guard_operands(*right, op, lists);
            let expr = Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) });
            (expr, is_left || is_right)
        }
        expr if may_be_list(&expr, op) => {
            let columns = expr.column_refs();
            let is_shared =
                lists.iter().any(|list| list.is_empty() || columns.is_empty() || !list.is_disjoint(&columns));
            match is_shared && !is_guard(&expr) {
                true => (wrap_guard(expr, 0), true),
                false => (expr, false),
            }
        }
        expr => (expr, false),
    }
}

/// The operands of a chain of one operator.
fn operands(expr: &Expr, op: Operator) -> Vec<&Expr> {
    let (mut found, mut open) = (Vec::new(), vec![expr]);
    while let Some(next) = open.pop() {
        match next {
            Expr::BinaryExpr(BinaryExpr { left, op: inner, right }) if *inner == op => {
                open.extend([left.as_ref(), right.as_ref()]);
            }
            other => found.push(other),
        }
    }
    found
}

/// Whether simplification may turn an operand of a chain into `x IN (…)` or `x NOT IN (…)` and merge it with
/// others of the chain.
fn may_be_list(expr: &Expr, chain: Operator) -> bool {
    match expr {
        Expr::InList(InList { negated, .. }) => *negated || chain == Operator::And,
        Expr::Alias(alias) => may_be_list(&alias.expr, chain),
        Expr::Not(_) | Expr::Case(_) | Expr::ScalarFunction(_) => true,
        Expr::BinaryExpr(BinaryExpr { op, .. }) => match op {
            Operator::And => operands(expr, *op).into_iter().all(may_be_negated),
            Operator::Or => operands(expr, *op).into_iter().all(may_be_part),
            op => is_regex(*op),
        },
        _ => false,
    }
}

/// Whether a chain of ORs of such operands may become an IN list.
fn may_be_part(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) | Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }) => true,
        other => may_be_list(other, Operator::And),
    }
}

/// Whether a chain of ANDs of such operands may become a NOT IN list.
fn may_be_negated(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..)) || may_be_list(expr, Operator::Or)
}

fn is_regex(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexNotMatch | RegexIMatch | RegexNotIMatch)
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(text, _) => text.try_as_str().flatten(),
        Expr::Cast(cast) => text_of(&cast.expr),
        _ => None,
    }
}

/// The guard function: (value, number) → value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Guard {
    signature: Signature,
}

impl ScalarUDFImpl for Guard {
    fn name(&self) -> &str {
        GUARD
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(kind) => Ok(kind.clone()),
            None => internal_err!("{} has two arguments", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{} has two arguments", self.name()),
        }
    }
}

/// Wraps an expression; different numbers make it unequal to others.
fn wrap_guard(expr: Expr, number: u64) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(2, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Guard { signature }))
    });
    FUNCTION.call(vec![expr, lit(number)])
}

fn is_guard(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.name() == GUARD)
}

/// Whether an expression may fail for some rows, by its form: types are not known here.
fn may_fail(expr: &Expr) -> bool {
    expr.exists(|part| Ok(has_risk(part))).unwrap_or(true)
}

/// Whether an expression that should evaluate only one of its results has results that may fail.
fn is_eager(expr: &Expr) -> bool {
    match expr {
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let whens = when_then_expr.iter().skip(1).map(|(when, _)| when);
            let thens = when_then_expr.iter().map(|(_, then)| then);
            whens.chain(thens).chain(else_expr).any(|expr| may_fail(expr))
        }
        Expr::ScalarFunction(function) if is_coalesce(function) => function.args.iter().skip(1).any(may_fail),
        _ => false,
    }
}

/// Whether a call has the form `coalesce(coalesce(x, y), z)`.
fn has_inner_coalesce(function: &ScalarFunction) -> bool {
    function.name() == "coalesce" && function.args.iter().any(is_plain_coalesce)
}

fn is_plain_coalesce(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.name() == "coalesce")
}

/// Flattens nested calls: each coalesce becomes a CASE that repeats its arguments.
fn flatten_coalesce(function: ScalarFunction) -> Expr {
    let values = function.args.into_iter().flat_map(|value| match value {
        Expr::ScalarFunction(inner) if inner.name() == "coalesce" => inner.args,
        other => vec![other],
    });
    Expr::ScalarFunction(ScalarFunction { args: values.collect(), func: function.func })
}

fn is_coalesce(function: &ScalarFunction) -> bool {
    matches!(function.name(), "coalesce" | "nvl" | "ifnull")
}

/// Rewrites a searched CASE so that it stays a CASE: `any` one, or only one that evaluates eagerly.
fn keep_case(expr: Expr, schema: &DFSchema, any: bool) -> Transformed<Expr> {
    let is_any = any && matches!(&expr, Expr::Case(Case { expr: None, .. }));
    if !is_any && !is_eager(&expr) {
        return Transformed::no(expr);
    }
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
    let is_boolean = expr.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean);
    match expr {
        Expr::Case(case) => {
            // Compared with a constant, a CASE with constant results becomes a boolean expression.
            let mut results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            if !is_boolean && !results.all(|result| is_literal(result)) {
                return Transformed::no(Expr::Case(case));
            }
            Transformed::yes(Expr::Case(Case { expr: Some(Box::new(lit(true))), ..case }))
        }
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if is_boolean => {
            let Some(last) = args.pop() else {
                return Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args }));
            };
            let whens =
                args.into_iter().map(|value| (Box::new(value.clone().is_not_null()), Box::new(value)));
            Transformed::yes(Expr::Case(Case {
                expr: Some(Box::new(lit(true))),
                when_then_expr: whens.collect(),
                else_expr: Some(Box::new(last)),
            }))
        }
        other => Transformed::no(other),
    }
}

/// Removes guards from an expression.
fn remove_guard(expr: Expr) -> Transformed<Expr> {
    match expr {
        call if never_true::is_call(&call) => Transformed::yes(never_true::function().call(vec![])),
        Expr::ScalarFunction(mut function) if function.name() == GUARD && !function.args.is_empty() => {
            Transformed::yes(function.args.swap_remove(0))
        }
        Expr::Case(Case { expr: Some(base), when_then_expr, else_expr })
            if matches!(base.as_ref(), Expr::Literal(ScalarValue::Boolean(Some(true)), _)) =>
        {
            Transformed::yes(Expr::Case(Case { expr: None, when_then_expr, else_expr }))
        }
        other => Transformed::no(other),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::ToDFSchema;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, in_list, not, table_scan, when};
    use datafusion::optimizer::{Optimizer, OptimizerContext};

    use super::*;

    fn simplify(expr: Expr) -> Expr {
        let schema = Schema::new(vec![
            Field::new("x", DataType::Int64, true),
            Field::new("y", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let scan = table_scan(Some("t"), &schema, None).unwrap().build().unwrap();
        let plan = LogicalPlanBuilder::from(scan).project(vec![expr.alias("c")]).unwrap().build().unwrap();
        let mut rules = Optimizer::new().rules;
        guard(&mut rules);
        let rule = rules.into_iter().find(|rule| rule.name() == "simplify_expressions").unwrap();
        let plan = rule.rewrite(plan, &OptimizerContext::new()).unwrap().data;
        let LogicalPlan::Projection(projection) = plan else { panic!("no projection") };
        projection.expr[0].clone().unalias()
    }

    fn list(name: &str, values: &[i64], negated: bool) -> Expr {
        in_list(col(name), values.iter().map(|value| lit(*value)).collect(), negated)
    }

    #[test]
    fn lists_of_one_column_are_not_merged() {
        let both = |op: fn(Expr, Expr) -> Expr, left: Expr, right: Expr| {
            assert!(simplify(op(left, right)).any_column_refs());
        };
        let four = |negated| (list("t.x", &[1, 2, 3, 4], negated), list("t.x", &[5, 6, 7, 8], negated));
        both(Expr::and, four(false).0, four(false).1);
        both(Expr::or, four(true).0, four(true).1);
        both(Expr::and, four(false).0, not(four(false).0));
        let other = in_list(col("t.x"), vec![col("t.y")], true);
        let found = simplify(four(false).0.and(other));
        assert!(found.column_refs().contains(&Column::from_qualified_name("t.y")));
        assert!(!found.exists(|expr| Ok(is_guard(expr))).unwrap());
    }

    #[test]
    fn common_conditions_are_factored_out() {
        let branch = |value: i64| {
            let colors = col("t.s").eq(lit("a")).or(col("t.s").eq(lit("b")));
            col("t.x").eq(col("t.y")).and(col("t.x").eq(lit(value)).and(colors))
        };
        let found = simplify(branch(1).or(branch(2)));
        let Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) = &found else { panic!("{found}") };
        assert!(operands(&found, Operator::And).contains(&&col("t.y").eq(col("t.x"))), "{found}");
    }

    #[test]
    fn an_exclusive_or_of_null_is_null() {
        let xor = |left: Expr, right: Expr| {
            simplify(datafusion::logical_expr::binary_expr(left, Operator::BitwiseXor, right))
        };
        assert!(xor(col("t.x"), col("t.x")).any_column_refs());
        let chain = datafusion::logical_expr::binary_expr(col("t.x"), Operator::BitwiseXor, col("t.y"));
        assert_eq!(xor(chain, col("t.x")).column_refs().len(), 2);
    }

    #[test]
    fn a_case_that_guards_stays_one() {
        let is_case = |expr: Expr| matches!(simplify(expr), Expr::Case(Case { expr: None, .. }));
        let risky = (lit(10_i64) / col("t.x")).gt(lit(4_i64));
        let guarding = |then: Expr| when(col("t.x").not_eq(lit(0_i64)), then).otherwise(lit(false)).unwrap();
        assert!(is_case(guarding(risky.clone())));
        assert!(!is_case(guarding(col("t.y").gt(lit(4_i64)))));
    }

    #[test]
    fn any_text_matches_everything_but_null() {
        let pattern = datafusion::logical_expr::binary_expr(col("t.s"), Operator::RegexMatch, lit(".*"));
        assert!(!matches!(simplify(pattern), Expr::IsNotNull(_)));
        let schema = Schema::empty().to_dfschema().unwrap();
        assert_eq!(keep_case(lit(true), &schema, false).data, lit(true));
    }
}
