//! PostgreSQL's SQL as its own lexer cuts it: no operator that plans know ends in a sign, or has a comment in it. And what IS DISTINCT FROM
//! ends at.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The parser's dialect for PostgreSQL, but for this: behind `>`, `%` and others, it takes the signs of `>-5`, `>--comment` and
/// `>/*comment*/` for parts of one operator. The operators with such signs that there are (`->`, `#-`, `|/`, `~*`) it knows one by one. And
/// it takes `b AND c` for the right side of `a IS DISTINCT FROM b AND c`.
///
/// To the parser it is that dialect.
#[derive(Debug)]
pub(crate) struct SqlDialect;

const POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// What that dialect has otherwise than others.
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

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        POSTGRES.get_next_precedence(parser)
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
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
        POSTGRES.prec_value(precedence)
    }

    as_postgres! {
        supports_unicode_string_literal, supports_filter_during_aggregation, supports_group_by_expr,
        allow_extract_custom, allow_extract_single_quotes, supports_create_index_with_clause,
        supports_explain_with_utility_options, supports_listen_notify, supports_factorial_operator,
        supports_bitwise_shift_operators, supports_comment_on, supports_load_extension,
        supports_named_fn_args_with_colon_operator, supports_named_fn_args_with_expr_name,
        supports_empty_projections, supports_nested_comments, supports_string_escape_constant,
        supports_numeric_literal_underscores, supports_array_typedef_with_brackets,
        supports_geometric_types, supports_set_names, supports_alter_column_type_using,
        supports_notnull_operator, supports_interval_options, supports_insert_table_alias,
        supports_create_table_like_parenthesized, supports_select_wildcard_with_alias,
        supports_comma_separated_trim, supports_xml_expressions, supports_comment_optimizer_hint,
    }
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
    fn an_operator_that_nobody_knows_stays_one() {
        let parser = Parser::new(&SqlDialect).try_with_sql("a >@ b").unwrap().parse_expr().unwrap();
        assert_eq!(parser.to_string(), "a >@ b");
    }
}
