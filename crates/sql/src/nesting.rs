//! Limits of nesting depth and of parse steps.
//!
//! Statement trees are walked, copied and dropped recursively, in the parser, in the planner and here, on a
//! thread's stack. The parser counts the levels of its own recursion (parentheses, subqueries) and stops at
//! `datafusion.sql_parser.recursion_limit`, but builds chains (`a OR b OR …`, `UNION ALL`, `::text::text`) in
//! loops that nothing counts (apache/datafusion#22229). So
//!
//! 1. the tokens give an upper bound of the depth ([`depth_of_tokens`]); a statement that may be deep is
//!    parsed on a larger stack ([`on_deep_stack`]), and rejected if no stack is large enough;
//! 2. chains of associative operators are rebalanced ([`balance`]), so long lists of conditions and of
//!    queries are not deep;
//! 3. a tree still deeper than [`DEPTH_MAX`] is rejected. Threads that run statements have stacks for a tree
//!    of that depth ([`THREAD_STACK_BYTES`]).

use std::cell::Cell;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Query, SetExpr, SetOperator, SetQuantifier, Visit, VisitMut, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::tokens::Tokens;

/// Stack size of threads that plan or run statements. Only touched pages take memory.
pub const THREAD_STACK_BYTES: usize = 64 << 20;

/// Upper limit of the parser's recursion, whatever is SET: each level takes some kilobytes of stack in the
/// parser, the planner and the unparser.
pub const NESTING_MAX: usize = 250;

/// Maximum depth of a statement's tree, in levels.
pub const DEPTH_MAX: usize = 6000;

/// Maximum depth of nested function calls. Each call costs time that grows at least with the square of its
/// nested calls: DataFusion computes types and names of all of them at each level (apache/datafusion#19795).
const CALLS_MAX: usize = 100;

/// Maximum depth of nested expression subqueries. Each level doubles the cost of a plan check
/// (`assert_valid_extension_nodes` in DataFusion visits them in two ways).
const SUBQUERIES_MAX: usize = 16;

/// Levels charged for a common table expression, and for a relation in FROM: one that reads the previous one,
/// or is joined to it, is above it in the plan.
const RELATION_LEVELS: usize = 5;

/// Maximum depth of a text before its chains are balanced.
const CHAINED_MAX: usize = 250_000;

/// Depth up to which any thread's stack suffices.
const SHALLOW: usize = 100;

/// Stack size for a text of depth [`CHAINED_MAX`].
const DEEP_STACK_BYTES: usize = 1 << 30;

/// Minimum operands of a chain to balance it. Shorter ones keep their form, and so the column names derived
/// from them.
const BALANCED_FROM: usize = 64;

/// Parse steps that any text may take.
const STEPS: usize = 200_000;

/// Additional parse steps per byte of text.
const STEPS_PER_BYTE: usize = 64;

thread_local! {
    /// Remaining steps of the current parse; `None`: not counted.
    static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `parse` with a stack large enough for the statement and a limit of parse steps.
///
/// Errors: those of `parse`; no stack is large enough (54001).
pub fn with_limits<'t, T>(tokens: Tokens<'t>, parse: impl FnOnce(Tokens<'t>) -> Result<T>) -> Result<T> {
    let bytes = tokens.text().len();
    on_deep_stack(depth_of_tokens(&tokens), || with_step_limit(bytes, || parse(tokens)))
}

/// Runs `parse` with a step limit for a text of `bytes`, which [`count_step`] counts down.
pub fn with_step_limit<T>(bytes: usize, parse: impl FnOnce() -> T) -> T {
    struct StepsGuard(Option<usize>);
    impl Drop for StepsGuard {
        fn drop(&mut self) {
            STEPS_LEFT.set(self.0);
        }
    }
    let _guard = StepsGuard(STEPS_LEFT.get());
    STEPS_LEFT.set(Some(STEPS + bytes * STEPS_PER_BYTE));
    parse()
}

/// Counts one step of the parser.
///
/// Errors: the limit is reached (54001). It is the only error on which the parser does not backtrack.
pub fn count_step() -> Result<(), ParserError> {
    match STEPS_LEFT.get() {
        None => Ok(()),
        Some(0) => Err(ParserError::RecursionLimitExceeded),
        Some(left) => {
            STEPS_LEFT.set(Some(left - 1));
            Ok(())
        }
    }
}

/// Runs `work` on a stack that is large enough for a tree of `depth` levels.
///
/// Errors: no stack is large enough (54001).
pub fn on_deep_stack<T>(depth: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if depth <= SHALLOW {
        work()
    } else if depth <= CHAINED_MAX {
        stacker::grow(DEEP_STACK_BYTES, work)
    } else {
        Err(too_deep())
    }
}

/// Recursion limit of the second parse, which distinguishes deep nesting from a syntax error.
const RETRY_LEVELS_MAX: usize = 20_000;

/// The error of a text that the parser rejected at `levels`: nested too deeply if it parses with
/// [`RETRY_LEVELS_MAX`], or else `error`. Within NOT, CASE and others the parser backtracks at its recursion
/// limit and reports an unexpected word. Call it on a stack as [`with_limits`] provides it.
pub fn too_deep_or(
    tokens: &Tokens<'_>,
    error: DataFusionError,
    levels: usize,
    parses: impl FnOnce(usize) -> bool,
) -> DataFusionError {
    match depth_of_tokens(tokens) > levels && parses(RETRY_LEVELS_MAX) {
        true => ParserError::RecursionLimitExceeded.into(),
        false => error,
    }
}

/// An upper bound of the tree's depth: in each open parenthesis, the number of tokens since the last comma.
/// Chains of UNION and other set operations go across commas.
pub fn depth_of_tokens(tokens: &Tokens<'_>) -> usize {
    let (mut outer, mut open, mut here, mut chained, mut deepest) =
        (0_usize, Vec::new(), 0_usize, 0_usize, 0);
    for token in tokens.iter() {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push((here, chained));
                outer += here + 1;
                (here, chained) = (0, 0);
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                (here, chained) = open.pop().unwrap_or_default();
                outer = outer.saturating_sub(here + 1);
                here += 1;
            }
            Token::Comma => here = chained,
            Token::Word(word) => {
                let is_chain = matches!(
                    word.keyword,
                    Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS
                );
                chained += usize::from(is_chain);
                here += 1;
            }
            _ => here += 1,
        }
        deepest = deepest.max(outer + here);
    }
    deepest
}

/// The error for a statement that is nested too deeply.
pub fn too_deep() -> DataFusionError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "statement is nested too deeply")
        .with_detail(format!(
            "There may be {DEPTH_MAX} levels, of which {CALLS_MAX} are calls of functions inside of each other, and {SUBQUERIES_MAX} \
             subqueries in conditions and values."
        ))
        .into_datafusion()
}

/// Rebalances the long chains of a statement.
///
/// Errors: the tree is deeper than thread stacks allow (54001).
pub fn balance_statement(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => balance(statement.as_mut()),
        Statement::Explain(explain) => balance_statement(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            datafusion::sql::parser::CopyToSource::Query(query) => balance(query.as_mut()),
            datafusion::sql::parser::CopyToSource::Relation(_) => Ok(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => Ok(()),
    }
}

/// Rebalances the long chains of a query or an expression.
pub fn balance<N: Visit + VisitMut>(node: &mut N) -> Result<()> {
    let _: ControlFlow<()> = VisitMut::visit(node, &mut Balance);
    match Visit::visit(node, &mut Depth::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(too_deep()),
    }
}

/// Visitor that counts levels.
#[derive(Default)]
struct Depth {
    all: usize,
    calls: usize,
    subqueries: usize,
}

impl Depth {
    fn enter(&mut self, levels: usize) -> ControlFlow<()> {
        self.all += levels;
        match self.all <= DEPTH_MAX && self.calls <= CALLS_MAX && self.subqueries <= SUBQUERIES_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn leave(&mut self, levels: usize) -> ControlFlow<()> {
        self.all -= levels;
        ControlFlow::Continue(())
    }
}

impl Visitor for Depth {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.enter(1 + levels_of(&query.body) + levels_of_common(query))
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.leave(1 + levels_of(&query.body) + levels_of_common(query))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.calls += usize::from(is_call(expr));
        self.subqueries += usize::from(has_query(expr));
        self.enter(1)
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.calls -= usize::from(is_call(expr));
        self.subqueries -= usize::from(has_query(expr));
        self.leave(1)
    }

    fn pre_visit_table_factor(&mut self, _: &ast::TableFactor) -> ControlFlow<()> {
        self.enter(1)
    }

    fn post_visit_table_factor(&mut self, _: &ast::TableFactor) -> ControlFlow<()> {
        self.leave(1)
    }

    fn pre_visit_statement(&mut self, _: &ast::Statement) -> ControlFlow<()> {
        self.enter(1)
    }

    fn post_visit_statement(&mut self, _: &ast::Statement) -> ControlFlow<()> {
        self.leave(1)
    }
}

/// Whether the planner makes a function call of the expression.
fn is_call(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Function(_)
            | Expr::AtTimeZone { .. }
            | Expr::Extract { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::Position { .. }
            | Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Overlay { .. }
            | Expr::Array(_)
            | Expr::Tuple(_)
            | Expr::CompoundFieldAccess { .. }
            | Expr::UnaryOp { op: ast::UnaryOperator::Minus, .. }
    )
}

fn has_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

/// The levels of the WITH clause, if each common table expression reads the previous one.
fn levels_of_common(query: &Query) -> usize {
    query.with.as_ref().map_or(0, |with| with.cte_tables.len() * RELATION_LEVELS)
}

/// The levels of set operations and joins.
fn levels_of(body: &SetExpr) -> usize {
    let (mut deepest, mut left) = (0, vec![(body, 0)]);
    while let Some((body, depth)) = left.pop() {
        let relations = match body {
            SetExpr::Select(select) => select.from.iter().map(|entry| 1 + entry.joins.len()).sum(),
            _ => 0,
        };
        deepest = deepest.max(depth + RELATION_LEVELS * relations);
        if let SetExpr::SetOperation { left: one, right: other, .. } = body {
            left.extend([(one.as_ref(), depth + 1), (other.as_ref(), depth + 1)]);
        }
    }
    deepest
}

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        balance_set(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        balance_expr(expr);
        ControlFlow::Continue(())
    }
}

/// Rebalances a chain of AND or OR.
fn balance_expr(expr: &mut Expr) {
    let chained = match expr {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => op.clone(),
        _ => return,
    };
    let (mut length, mut next) = (1, &*expr);
    while let Expr::BinaryOp { left, op, .. } = next
        && *op == chained
    {
        (length, next) = (length + 1, left.as_ref());
    }
    if length < BALANCED_FROM {
        return;
    }
    let mut operands = Vec::with_capacity(length);
    let mut next = std::mem::replace(expr, Expr::value(ast::Value::Null));
    loop {
        match next {
            Expr::BinaryOp { left, op, right } if op == chained => {
                operands.push(*right);
                next = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    operands.reverse();
    let joined =
        |left, right| Expr::BinaryOp { left: Box::new(left), op: chained.clone(), right: Box::new(right) };
    if let Some(balanced) = balanced_tree(operands, &joined) {
        *expr = balanced;
    }
}

/// Rebalances a chain of UNION ALL, UNION, INTERSECT or EXCEPT anywhere in a query's body.
fn balance_set(body: &mut SetExpr) {
    let mut left = vec![body];
    while let Some(body) = left.pop() {
        balance_one_set(body);
        if let SetExpr::SetOperation { left: one, right: other, .. } = body {
            left.extend([one.as_mut(), other.as_mut()]);
        }
    }
}

fn balance_one_set(body: &mut SetExpr) {
    let (chained, quantified) = match body {
        SetExpr::SetOperation { op, set_quantifier, .. } => (*op, *set_quantifier),
        _ => return,
    };
    let is_chained = matches!(
        (chained, quantified),
        (SetOperator::Union, SetQuantifier::All | SetQuantifier::None | SetQuantifier::Distinct)
            | (SetOperator::Intersect | SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct)
    );
    let (mut length, mut next) = (1, &*body);
    while let SetExpr::SetOperation { op, set_quantifier, left, .. } = next
        && (*op, *set_quantifier) == (chained, quantified)
    {
        (length, next) = (length + 1, left.as_ref());
    }
    if !is_chained || length < BALANCED_FROM {
        return;
    }
    let mut operands = Vec::with_capacity(length);
    let mut next = std::mem::replace(body, nothing());
    loop {
        match next {
            SetExpr::SetOperation { op, set_quantifier, left, right }
                if (op, set_quantifier) == (chained, quantified) =>
            {
                operands.push(*right);
                next = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    operands.reverse();
    let joined = |op, set_quantifier| {
        move |left, right| SetExpr::SetOperation {
            op,
            set_quantifier,
            left: Box::new(left),
            right: Box::new(right),
        }
    };
    let balanced = match chained {
        // EXCEPT of each is EXCEPT of their UNION ALL.
        SetOperator::Except => {
            let first = operands.remove(0);
            let others = balanced_tree(operands, &joined(SetOperator::Union, SetQuantifier::All));
            others.map(|others| joined(chained, quantified)(first, others))
        }
        _ => balanced_tree(operands, &joined(chained, quantified)),
    };
    if let Some(balanced) = balanced {
        *body = balanced;
    }
}

fn nothing() -> SetExpr {
    SetExpr::Values(ast::Values { explicit_row: false, value_keyword: false, rows: vec![] })
}

/// Builds a tree of logarithmic depth over the operands, in order.
fn balanced_tree<T>(operands: Vec<T>, joined: &impl Fn(T, T) -> T) -> Option<T> {
    let mut level = operands;
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => joined(left, right),
                None => left,
            });
        }
        level = next;
    }
    level.pop()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;
    use crate::dialect::SqlDialect;

    fn depth(text: &str) -> usize {
        depth_of_tokens(&Tokens::of(text, &SqlDialect).unwrap())
    }

    #[test]
    fn nesting_depth_is_estimated_by_tokens() {
        assert_eq!(depth("SELECT 1"), 2);
        assert_eq!(depth("SELECT a OR b OR c"), 6);
        assert!(depth("SELECT ((((1))))") >= 5);
        let rows = vec!["(1, 2, 3)"; 10_000].join(", ");
        assert!(depth(&format!("INSERT INTO t VALUES {rows}")) < 20);
        assert!(depth(&vec!["SELECT 1, 2, 3"; 500].join(" UNION ALL ")) > 499);
        assert!(depth(&format!("SELECT 1{}", "::int".repeat(500))) > 500);
        assert!(depth(&format!("SELECT {}1{}", "(1, ".repeat(500), ")".repeat(500))) > 500);
    }

    fn with_parsed<T>(text: &str, work: impl FnOnce(Statement) -> T) -> T {
        on_deep_stack(CHAINED_MAX, || {
            let mut parser = DFParserBuilder::new(text).with_dialect(&SqlDialect).build()?;
            Ok(work(parser.parse_statements()?.pop_front().unwrap()))
        })
        .unwrap()
    }

    #[test]
    fn chains_are_balanced_in_order() {
        let conditions = |count: usize, operator: &str| {
            let conditions: Vec<_> = (0..count).map(|at| format!("a = {at}")).collect();
            format!("SELECT * FROM t WHERE {}", conditions.join(operator))
        };
        for operator in [" OR ", " AND "] {
            for count in [2, 63, 64, 65, 1000, 20_000] {
                let text = conditions(count, operator);
                with_parsed(&text, |mut statement| {
                    assert!(balance_statement(&mut statement).is_ok(), "{count}{operator}");
                    assert_eq!(statement.to_string(), text);
                });
            }
        }
        for operator in [" UNION ALL ", " UNION ", " INTERSECT "] {
            let text = (0..5000).map(|at| format!("SELECT {at}")).collect::<Vec<_>>().join(operator);
            with_parsed(&text, |mut statement| {
                assert!(balance_statement(&mut statement).is_ok());
                let Statement::Statement(parsed) = &statement else { unreachable!() };
                let ast::Statement::Query(query) = parsed.as_ref() else { unreachable!() };
                assert!(levels_of(&query.body) < 20, "{operator}");
                assert_eq!(statement.to_string(), text);
            });
        }
    }

    #[test]
    fn mixed_operator_chains_are_unchanged() {
        let text = "SELECT 1 EXCEPT SELECT 2 EXCEPT SELECT 3 UNION ALL SELECT 4 WHERE a AND b OR c AND d";
        with_parsed(text, |mut statement| {
            let before = format!("{statement:?}");
            balance_statement(&mut statement).unwrap();
            assert_eq!(format!("{statement:?}"), before);
        });
    }

    #[test]
    fn deeper_nesting_is_refused() {
        let sum = |terms: usize| format!("SELECT {}", vec!["1"; terms].join(" + "));
        with_parsed(&sum(1000), |mut statement| assert!(balance_statement(&mut statement).is_ok()));
        with_parsed(&sum(20_000), |mut statement| assert!(balance_statement(&mut statement).is_err()));
        assert!(on_deep_stack(CHAINED_MAX + 1, || Ok(())).is_err());
    }
}
