//! How deep a statement may be nested, and how many steps may be taken to parse it.
//!
//! A tree of a statement is walked, copied and dropped by functions that call themselves for each level, in
//! the parser, in the planner and here, on the stack of a thread. The parser counts levels that it enters by
//! calling itself (parentheses, subqueries) and stops at `datafusion.sql_parser.recursion_limit`, but builds
//! chains (`a OR b OR …`, `UNION ALL`, `::text::text`) in loops which nobody counts
//! (apache/datafusion#22229). So
//!
//! 1. the tokens tell how deep a tree can get at most ([`depth_of_tokens`]); what may be deep is parsed on a
//!    stack that is large enough ([`on_deep_stack`]), and what no stack is large enough for is refused;
//! 2. chains of operators for which `(a b) c` is `a (b c)` become balanced trees ([`settle`]), so that long
//!    lists of conditions and of queries are no deep trees;
//! 3. a tree which is deeper than [`DEPTH_MAX`] then is refused. Threads that run statements have stacks for
//!    such a tree ([`THREAD_STACK_BYTES`]).

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

/// Bytes of the stack of a thread that plans or runs statements. Only what is touched takes memory.
pub const THREAD_STACK_BYTES: usize = 64 << 20;

/// How deeply statements may nest, whatever is SET: a level takes some kilobytes of the stacks of those who
/// parse, plan and print them.
pub const NESTING_MAX: usize = 250;

/// Levels of a statement's tree.
pub const DEPTH_MAX: usize = 6000;

/// Calls inside of calls. Each takes a time that grows with the square of those in it, or worse: DataFusion
/// finds out the types and the names of all of them at each level (apache/datafusion#19795).
const CALLS_MAX: usize = 100;

/// Subqueries inside of subqueries of expressions. What is checked of a plan takes twice as long for each
/// (`assert_valid_extension_nodes` in DataFusion visits them in two ways).
const SUBQUERIES_MAX: usize = 16;

/// Levels of a common table expression, and of a relation in FROM: one that reads the one before it, or is
/// joined to it, is above that one in the plan.
const RELATION_LEVELS: usize = 5;

/// Levels that a text may have before its chains are balanced.
const CHAINED_MAX: usize = 250_000;

/// Levels up to which the stack of any thread is large enough.
const SHALLOW: usize = 100;

/// Bytes of stack for a text with [`CHAINED_MAX`] levels.
const DEEP_STACK_BYTES: usize = 1 << 30;

/// Operands from which a chain is balanced. Shorter ones are left as they were written, and so are the names
/// that are made of them.
const BALANCED_FROM: usize = 64;

/// Steps of the parser that any text may take.
const STEPS: usize = 200_000;

/// Steps in addition, for each byte of it.
const STEPS_PER_BYTE: usize = 64;

thread_local! {
    /// Steps that are left to what is being parsed; `None`: nothing is counted.
    static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Does `parse` with a stack and a number of steps that are enough for a statement.
///
/// Errors: those of `parse`; no stack is large enough (54001).
pub fn bounded<'t, T>(tokens: Tokens<'t>, parse: impl FnOnce(Tokens<'t>) -> Result<T>) -> Result<T> {
    let bytes = tokens.text().len();
    on_deep_stack(depth_of_tokens(&tokens), || with_steps(bytes, || parse(tokens)))
}

/// Has [`step`] count what `parse` does with a text of so many bytes.
pub fn with_steps<T>(bytes: usize, parse: impl FnOnce() -> T) -> T {
    struct Restored(Option<usize>);
    impl Drop for Restored {
        fn drop(&mut self) {
            STEPS_LEFT.set(self.0);
        }
    }
    let _restored = Restored(STEPS_LEFT.get());
    STEPS_LEFT.set(Some(STEPS + bytes * STEPS_PER_BYTE));
    parse()
}

/// To be called for each step of the parser.
///
/// Errors: there were too many (54001). That is the one error which the parser does not take for a reason to
/// try something else.
pub fn step() -> Result<(), ParserError> {
    match STEPS_LEFT.get() {
        None => Ok(()),
        Some(0) => Err(ParserError::RecursionLimitExceeded),
        Some(left) => {
            STEPS_LEFT.set(Some(left - 1));
            Ok(())
        }
    }
}

/// Does `work`, for which a stack is needed that is large enough for a tree of so many levels.
///
/// Errors: there is none (54001).
pub fn on_deep_stack<T>(depth: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if depth <= SHALLOW {
        work()
    } else if depth <= CHAINED_MAX {
        stacker::grow(DEEP_STACK_BYTES, work)
    } else {
        Err(too_deep())
    }
}

/// Levels of the parser with which it is tried whether a text is nested too deeply, or wrong.
const TRIED_MAX: usize = 20_000;

/// What is wrong with a text that the parser has refused, with so many levels as it may have. Within NOT,
/// CASE and others the parser takes too many levels for a reason to try something else, and says that there
/// is a word too many. To be called on a stack as [`bounded`] gives it.
pub fn too_deep_or(
    tokens: &Tokens<'_>,
    error: DataFusionError,
    levels: usize,
    parses: impl FnOnce(usize) -> bool,
) -> DataFusionError {
    match depth_of_tokens(tokens) > levels && parses(TRIED_MAX) {
        true => ParserError::RecursionLimitExceeded.into(),
        false => error,
    }
}

/// How many levels the tree of these tokens may have: as many as there are tokens since the last comma, in
/// each of the parentheses that are open. Of UNION and the like there is a chain across commas.
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

/// What a statement that is too deep ends with.
pub fn too_deep() -> DataFusionError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "statement is nested too deeply")
        .with_detail(format!(
            "There may be {DEPTH_MAX} levels, of which {CALLS_MAX} are calls of functions inside of each other, and {SUBQUERIES_MAX} \
             subqueries in conditions and values."
        ))
        .into_datafusion()
}

/// Makes balanced trees of the long chains in a statement.
///
/// Errors: it has more levels than threads have stacks for (54001).
pub fn settle_statement(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => settle(statement.as_mut()),
        Statement::Explain(explain) => settle_statement(&mut explain.statement),
        Statement::CopyTo(copy) => match &mut copy.source {
            datafusion::sql::parser::CopyToSource::Query(query) => settle(query.as_mut()),
            datafusion::sql::parser::CopyToSource::Relation(_) => Ok(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => Ok(()),
    }
}

/// The same for a query, or an expression.
pub fn settle<N: Visit + VisitMut>(node: &mut N) -> Result<()> {
    let _: ControlFlow<()> = VisitMut::visit(node, &mut Balance);
    match Visit::visit(node, &mut Depth::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(too_deep()),
    }
}

/// Counts levels.
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

/// What the planner makes a call of a function of.
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

/// The levels of what stands in WITH, if each reads the one before it.
fn levels_of_common(query: &Query) -> usize {
    query.with.as_ref().map_or(0, |with| with.cte_tables.len() * RELATION_LEVELS)
}

/// The levels of UNION and the like, and of joins.
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

/// A chain of AND, or of OR.
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
    if let Some(balanced) = balanced(operands, &joined) {
        *expr = balanced;
    }
}

/// A chain of UNION ALL, of UNION, of INTERSECT, or of EXCEPT, wherever it is in a query's body.
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
        // What is in none of the others is not in all of them together.
        SetOperator::Except => {
            let first = operands.remove(0);
            let others = balanced(operands, &joined(SetOperator::Union, SetQuantifier::All));
            others.map(|others| joined(chained, quantified)(first, others))
        }
        _ => balanced(operands, &joined(chained, quantified)),
    };
    if let Some(balanced) = balanced {
        *body = balanced;
    }
}

fn nothing() -> SetExpr {
    SetExpr::Values(ast::Values { explicit_row: false, value_keyword: false, rows: vec![] })
}

/// A tree of the operands, in their order, whose depth is the logarithm of their number.
fn balanced<T>(operands: Vec<T>, joined: &impl Fn(T, T) -> T) -> Option<T> {
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
    fn tokens_tell_the_levels_there_may_be() {
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
    fn chains_become_shallow_and_stay_in_order() {
        let conditions = |count: usize, operator: &str| {
            let conditions: Vec<_> = (0..count).map(|at| format!("a = {at}")).collect();
            format!("SELECT * FROM t WHERE {}", conditions.join(operator))
        };
        for operator in [" OR ", " AND "] {
            for count in [2, 63, 64, 65, 1000, 20_000] {
                let text = conditions(count, operator);
                with_parsed(&text, |mut statement| {
                    assert!(settle_statement(&mut statement).is_ok(), "{count}{operator}");
                    assert_eq!(statement.to_string(), text);
                });
            }
        }
        for operator in [" UNION ALL ", " UNION ", " INTERSECT "] {
            let text = (0..5000).map(|at| format!("SELECT {at}")).collect::<Vec<_>>().join(operator);
            with_parsed(&text, |mut statement| {
                assert!(settle_statement(&mut statement).is_ok());
                let Statement::Statement(parsed) = &statement else { unreachable!() };
                let ast::Statement::Query(query) = parsed.as_ref() else { unreachable!() };
                assert!(levels_of(&query.body) < 20, "{operator}");
                assert_eq!(statement.to_string(), text);
            });
        }
    }

    #[test]
    fn what_is_no_chain_of_one_operator_is_left() {
        let text = "SELECT 1 EXCEPT SELECT 2 EXCEPT SELECT 3 UNION ALL SELECT 4 WHERE a AND b OR c AND d";
        with_parsed(text, |mut statement| {
            let before = format!("{statement:?}");
            settle_statement(&mut statement).unwrap();
            assert_eq!(format!("{statement:?}"), before);
        });
    }

    #[test]
    fn what_is_deeper_is_refused() {
        let sum = |terms: usize| format!("SELECT {}", vec!["1"; terms].join(" + "));
        with_parsed(&sum(1000), |mut statement| assert!(settle_statement(&mut statement).is_ok()));
        with_parsed(&sum(20_000), |mut statement| assert!(settle_statement(&mut statement).is_err()));
        assert!(on_deep_stack(CHAINED_MAX + 1, || Ok(())).is_err());
    }
}
