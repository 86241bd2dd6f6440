//! sqlparser dialect: PostgreSQL's, lexed and parsed as PostgreSQL itself does for operators followed by a
//! sign or a comment, for the precedence of IS DISTINCT FROM, and for IN lists that begin with a subquery. It
//! parses once what sqlparser's own dialect parses twice, and nested arguments 2^depth times.

use std::any::TypeId;

use crate::ast_builder::function_call;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::nesting;

/// sqlparser's PostgreSQL dialect with four changes. After `>`, `%` and others, it lexes the signs of `>-5`,
/// `>--comment` and `>/*comment*/` as parts of one operator; the real operators with such signs (`->`, `#-`,
/// `|/`, `~*`) it knows individually. And it parses `b AND c` as the right operand of `a IS DISTINCT FROM b
/// AND c`. `-2 ^ 2` is the square of -2.
///
/// It parses each function argument first as the name of a named argument, which may be any expression, and
/// then again as a value: nested calls took 2^depth steps. In PostgreSQL that name is an identifier. Likewise
/// `position(a, b)` was tried as `position(a IN b)` first. All other backtracking is bounded by a step limit
/// ([`nesting::count_step`]).
///
/// `dialect()` returns the type of that dialect, so the parser's checks for PostgreSQL apply.
#[derive(Debug)]
pub struct SqlDialect;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// Delegates these methods to sqlparser's PostgreSQL dialect.
macro_rules! as_postgres {
    ($($method:ident),* $(,)?) => {
        $(fn $method(&self) -> bool {
            POSTGRES.$method()
        })*
    };
}

impl Dialect for SqlDialect {
    fn dialect(&self) -> TypeId {
        POSTGRES.dialect()
    }

    fn is_custom_operator_part(&self, sign: char) -> bool {
        !matches!(sign, '+' | '-' | '*' | '/') && POSTGRES.is_custom_operator_part(sign)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRES.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, sign: char) -> bool {
        POSTGRES.is_delimited_identifier_start(sign)
    }

    fn is_identifier_start(&self, sign: char) -> bool {
        POSTGRES.is_identifier_start(sign)
    }

    fn is_identifier_part(&self, sign: char) -> bool {
        POSTGRES.is_identifier_part(sign)
    }

    fn is_reserved_for_identifier(&self, word: Keyword) -> bool {
        POSTGRES.is_reserved_for_identifier(word)
    }

    /// `INSERT INTO t SELECT 1 ON CONFLICT …`: ON is no name.
    fn is_column_alias(&self, word: &Keyword, parser: &mut Parser) -> bool {
        *word != Keyword::ON && POSTGRES.is_column_alias(word, parser)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match nesting::count_step() {
            Ok(()) => POSTGRES.get_next_precedence(parser),
            Err(error) => Some(Err(error)),
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = nesting::count_step() {
            return Some(Err(error));
        }
        let is_position = matches!(
            (&parser.peek_token_ref().token, &parser.peek_nth_token_ref(1).token),
            (Token::Word(word), Token::LParen)
                if word.keyword == Keyword::POSITION && word.quote_style.is_none()
        );
        if is_position {
            return Some(position(parser));
        }
        if matches!(parser.peek_token_ref().token, Token::Minus) {
            return Some(negative(parser));
        }
        begins_query(parser).then(|| query_of(parser))
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    /// `'a'` on one line and `'b'` on the next are the literal `'ab'`.
    fn supports_string_literal_concatenation_with_newline(&self) -> bool {
        true
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        if begins_list_with_query(parser) {
            return Some(list_of(parser, expr));
        }
        let begins =
            |words: &[Keyword]| words.iter().enumerate().all(|(at, word)| is_word(parser, at, *word));
        for side in [Keyword::SYMMETRIC, Keyword::ASYMMETRIC] {
            if begins(&[Keyword::BETWEEN, side]) || begins(&[Keyword::NOT, Keyword::BETWEEN, side]) {
                return Some(between(parser, expr, side == Keyword::SYMMETRIC));
            }
        }
        let is_negated =
            parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]);
        if !is_negated && !parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            return None;
        }
        let left = Box::new(expr.clone());
        Some(parser.parse_subexpr(self.prec_value(Precedence::Is)).map(|right| match is_negated {
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
            false => Expr::IsDistinctFrom(left, Box::new(right)),
        }))
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            // Not an operator here: a subscript is any expression.
            Precedence::Colon => POSTGRES.prec_unknown(),
            other => POSTGRES.prec_value(other),
        }
    }

    as_postgres! {
        supports_unicode_string_literal, supports_filter_during_aggregation, supports_group_by_expr,
        allow_extract_custom, allow_extract_single_quotes, supports_create_index_with_clause,
        supports_explain_with_utility_options, supports_listen_notify, supports_factorial_operator,
        supports_bitwise_shift_operators, supports_comment_on, supports_load_extension,
        supports_named_fn_args_with_colon_operator,
        supports_empty_projections, supports_nested_comments, supports_string_escape_constant,
        supports_numeric_literal_underscores, supports_array_typedef_with_brackets,
        supports_geometric_types, supports_set_names, supports_alter_column_type_using,
        supports_notnull_operator, supports_interval_options, supports_insert_table_alias,
        supports_create_table_like_parenthesized, supports_select_wildcard_with_alias,
        supports_comma_separated_trim, supports_xml_expressions, supports_comment_optimizer_hint,
    }
}

/// Keywords after a parenthesized query that continue the query.
const CONTINUATIONS: [Keyword; 7] = [
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
];

/// A negative value, which is parsed before a power is. The next token is the sign.
fn negative(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    let value = parser.parse_subexpr(SqlDialect.prec_value(Precedence::Caret))?;
    Ok(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(value) })
}

/// Whether the next tokens are `((SELECT 1) UNION SELECT 2)`, where the parser would parse the first query as
/// a parenthesized value, or `(VALUES (1))`, which it would parse as a call.
fn begins_query(parser: &Parser) -> bool {
    let [open, values, row] = [0, 1, 2].map(|at| &parser.peek_nth_token_ref(at).token);
    if let (Token::LParen, Token::Word(word), Token::LParen) = (open, values, row)
        && word.keyword == Keyword::VALUES
        && word.quote_style.is_none()
    {
        return true;
    }
    if !(0..2).all(|at| matches!(parser.peek_nth_token_ref(at).token, Token::LParen)) {
        return false;
    }
    let tokens = tokens_from(parser, parser.index()).skip(1);
    matches!(token_after_query(tokens), Some(Token::Word(word)) if CONTINUATIONS.contains(&word.keyword))
}

/// Parses `((SELECT 1) UNION SELECT 2)`.
fn query_of(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Subquery(query))
}

fn tokens_from<'a>(parser: &'a Parser, from: usize) -> impl Iterator<Item = &'a Token> {
    (from..)
        .map(|at| &parser.token_at(at).token)
        .filter(|token| !matches!(token, Token::Whitespace(_)))
        .take_while(|token| !matches!(token, Token::EOF))
}

/// Skips the parenthesized query at the start of the tokens and returns the token after it, [`Token::EOF`] at
/// the end of the text; `None` if the parentheses hold no query.
fn token_after_query<'a>(mut tokens: impl Iterator<Item = &'a Token>) -> Option<&'a Token> {
    const QUERIES: [Keyword; 4] = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::TABLE];
    let (mut open, mut is_query) = (0_usize, false);
    loop {
        match tokens.next()? {
            Token::LParen => open += 1,
            Token::RParen => open -= 1,
            Token::Word(word) if !is_query => {
                if !QUERIES.contains(&word.keyword) {
                    return None;
                }
                is_query = true;
            }
            _ if !is_query => return None,
            _ => {}
        }
        if open == 0 {
            return is_query.then(|| tokens.next().unwrap_or(&Token::EOF));
        }
    }
}

/// Whether the next tokens are `IN ((SELECT 1), 2)` or `IN ((SELECT 1) + 1)`, where the parser would take the
/// query for the whole operand. In `IN ((SELECT 1))` and `IN ((SELECT 1) UNION (SELECT 2))` it is.
fn begins_list_with_query(parser: &Parser) -> bool {
    let mut tokens = tokens_from(parser, parser.index()).peekable();
    let is_word = |token: &&Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    tokens.next_if(|token| is_word(token, Keyword::NOT));
    if tokens.next_if(|token| is_word(token, Keyword::IN)).is_none() {
        return false;
    }
    if tokens.next() != Some(&Token::LParen) || tokens.peek() != Some(&&Token::LParen) {
        return false;
    }
    match token_after_query(tokens) {
        None | Some(Token::RParen | Token::EOF) => false,
        Some(Token::Word(word)) => !CONTINUATIONS.contains(&word.keyword),
        Some(_) => true,
    }
}

/// Parses `IN (a, b, …)` with any expressions.
fn list_of(parser: &mut Parser, expr: &Expr) -> Result<Expr, ParserError> {
    let negated = parser.parse_keyword(Keyword::NOT);
    parser.expect_keyword(Keyword::IN)?;
    parser.expect_token(&Token::LParen)?;
    let list = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::InList { expr: Box::new(expr.clone()), list, negated })
}

fn is_word(parser: &Parser, at: usize, keyword: Keyword) -> bool {
    matches!(&parser.peek_nth_token_ref(at).token, Token::Word(word) if word.keyword == keyword)
}

/// Parses `BETWEEN SYMMETRIC a AND b`, whose bounds may be in either order, or `BETWEEN ASYMMETRIC a AND b`.
fn between(parser: &mut Parser, expr: &Expr, is_symmetric: bool) -> Result<Expr, ParserError> {
    let negated = parser.parse_keyword(Keyword::NOT);
    parser.expect_keyword(Keyword::BETWEEN)?;
    parser.next_token();
    let plain = parser.parse_between(expr.clone(), negated)?;
    let Expr::Between { expr, low, high, .. } = &plain else { return Ok(plain) };
    if !is_symmetric {
        return Ok(plain);
    }
    let turned = Expr::Between { expr: expr.clone(), negated, low: high.clone(), high: low.clone() };
    let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
    let both = Expr::BinaryOp { left: Box::new(plain), op, right: Box::new(turned) };
    Ok(Expr::Nested(Box::new(both)))
}

/// Parses `position(a IN b)`, or a call with comma-separated arguments.
fn position(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.next_token();
    parser.expect_token(&Token::LParen)?;
    if parser.consume_token(&Token::RParen) {
        return Ok(Expr::Function(function_call("position", vec![])));
    }
    let first = parser.parse_subexpr(SqlDialect.prec_value(Precedence::Between))?;
    if parser.parse_keyword(Keyword::IN) {
        let (expr, r#in) = (Box::new(first), Box::new(parser.parse_expr()?));
        parser.expect_token(&Token::RParen)?;
        return Ok(Expr::Position { expr, r#in });
    }
    let mut arguments = vec![first];
    if parser.consume_token(&Token::Comma) {
        arguments.extend(parser.parse_comma_separated(Parser::parse_expr)?);
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Function(function_call("position", arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_comments_end_operators() {
        let check = |sql: &str, expected: &str| {
            let mut parser = Parser::new(&SqlDialect).try_with_sql(sql).unwrap();
            assert_eq!(parser.parse_expr().unwrap().to_string(), expected, "{sql}");
        };
        let operators =
            ["<", "<=", ">", ">=", "<>", "=", "%", "*", "/", "+", "||", "->", "->>", "#>", "&", "<<"];
        for operator in operators {
            for (end, shown) in [("-5", "-5"), ("+5", "+5"), ("/*>*/5", "5"), ("--'\n5", "5")] {
                // The lexer knows ||/, the cube root.
                if (operator, end) == ("||", "/*>*/5") {
                    continue;
                }
                check(&format!("k{operator}{end}"), &format!("k {operator} {shown}"));
            }
        }
        check("k!=-5", "k <> -5");
        check("a#-'{b}'", "a #- '{b}'");
        check("a<->b", "a <-> b");
        check("a~*'b' AND a!~*'b'", "a ~* 'b' AND a !~* 'b'");
        check("a<=>-b", "a <=> -b");
    }

    #[test]
    fn lists_may_begin_with_a_query() {
        for list in
            ["(SELECT 1), (SELECT 2)", "((SELECT 1)), 2", "(SELECT 1) + 1", "(((SELECT 1))), (SELECT 3)"]
        {
            for text in [format!("a IN ({list})"), format!("a NOT IN ({list}) AND b")] {
                let expr = parse(&text).unwrap();
                assert!(format!("{expr:?}").contains("InList"), "{text}");
                assert_eq!(expr.to_string(), text);
            }
        }
        for query in ["(SELECT 1)", "((SELECT 1))", "(SELECT 1) UNION (SELECT 2)", "(SELECT 1) LIMIT 1"] {
            let expr = parse(&format!("a IN ({query})")).unwrap();
            assert!(format!("{expr:?}").starts_with("InSubquery"), "{query}");
        }
    }

    #[test]
    fn bounds_may_be_in_any_order() {
        for (text, expected) in [
            ("a BETWEEN SYMMETRIC 3 AND 1 AND b", "(a BETWEEN 3 AND 1 OR a BETWEEN 1 AND 3) AND b"),
            ("a NOT BETWEEN symmetric 3 AND 1", "(a NOT BETWEEN 3 AND 1 AND a NOT BETWEEN 1 AND 3)"),
            ("a + 1 BETWEEN ASYMMETRIC 3 AND 1", "a + 1 BETWEEN 3 AND 1"),
            ("a BETWEEN 3 AND 1", "a BETWEEN 3 AND 1"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn subscripts_are_any_expressions() {
        for text in
            ["m['a' || b]", "a[b | 1]", "a[1 | b:c & 3]", "a[b BETWEEN 1 AND 2]", "a[b:]", "a[:b # 1]"]
        {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn string_literals_continue_on_the_next_line() {
        assert_eq!(parse("'a' \n  'b'\n'c'").unwrap().to_string(), "'abc'");
        assert_eq!(parse("'a' 'b'").unwrap().to_string(), "'a'");
    }

    #[test]
    fn unknown_operators_stay_one_token() {
        let parser = Parser::new(&SqlDialect).try_with_sql("a >@ b").unwrap().parse_expr().unwrap();
        assert_eq!(parser.to_string(), "a >@ b");
    }

    /// Parses an expression within the step limit for its text.
    fn parse(text: &str) -> Result<Expr, ParserError> {
        let parse = || Parser::new(&SqlDialect).try_with_sql(text)?.with_recursion_limit(1000).parse_expr();
        nesting::with_step_limit(text.len(), parse)
    }

    #[test]
    fn nested_calls_parse_in_linear_time() {
        for (open, inner, close) in [
            ("abs(", "1", ")"),
            ("coalesce(", "a", ", b)"),
            ("replace(", "a", ", 'b', 'c')"),
            ("position(", "a", ", 'b')"),
            ("position('a' IN ", "b", ")"),
            ("substring(", "a", ", 1, 2)"),
            ("substring(", "a", " FROM 1 FOR 2)"),
            ("trim(BOTH ' ' FROM ", "a", ")"),
            ("overlay(", "a", " PLACING 'b' FROM 1)"),
            ("extract(year FROM ", "a", ")"),
            ("cast(", "a", " AS text)"),
            ("CASE WHEN a THEN ", "b", " END"),
            ("ARRAY[", "1", "]"),
            ("(", "1", ", 2)"),
            ("NOT (", "a", ")"),
            ("a IN (", "1", ", 2)"),
            ("ceil(", "1", ")"),
            ("floor(", "1", ")"),
            ("interval_of(INTERVAL '1' DAY, ", "1", ")"),
            ("exists_of(EXISTS (SELECT 1), ", "1", ")"),
            ("sum(", "1", ") FILTER (WHERE true)"),
            ("lag(", "1", ") OVER (PARTITION BY a)"),
        ] {
            let depth = 40;
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let tree = parse(&text);
            assert!(tree.is_ok(), "{open}…{close}: {:?}", tree.err());
        }
    }

    #[test]
    fn exponential_backtracking_is_bounded() {
        // A syntax error inside: each level is tried as its keyword, then as a call.
        let text = format!("{}1 BOGUS{}", "cast(".repeat(40), " AS int)".repeat(40));
        assert!(parse(&text).is_err());
    }

    #[test]
    fn positions_and_named_arguments_are_read() {
        for (text, shown) in [
            ("position('a' IN b || c)", "POSITION('a' IN b || c)"),
            ("position(a, b)", "position(a, b)"),
            ("f(a => 1, b := 2 + 3)", "f(a => 1, b := 2 + 3)"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
    }
}
