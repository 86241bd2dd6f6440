//! sqlparser dialect of HiveQL: names in backquotes or beginning with digits, strings in either quotes with
//! backslashes, numbers with a suffix for their type, and types in angle brackets.
//!
//! Source: `HiveLexer.g` and `HiveParser.g` of Hive 4.0.1.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, ExactNumberInfo, Expr, Ident, ObjectName, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::ast_builder::{cast, number};
use crate::nesting;

/// HiveQL. `sqlparser`'s own dialect of Hive has neither strings in double quotes nor backslashes.
#[derive(Debug)]
pub struct HiveSqlDialect;

/// Between those of `+` and `&`.
const CONCAT_PRECEDENCE: u8 = 25;

/// Functions whose names `sqlparser` takes for the beginning of other expressions.
const CALLS: [Keyword; 3] = [Keyword::ARRAY, Keyword::MAP, Keyword::STRUCT];

/// What `trim` may begin with.
const TRIM_SIDES: [Keyword; 3] = [Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING];

impl Dialect for HiveSqlDialect {
    fn is_delimited_identifier_start(&self, sign: char) -> bool {
        sign == '`'
    }

    fn is_identifier_start(&self, sign: char) -> bool {
        sign.is_alphabetic() || sign == '_'
    }

    fn is_identifier_part(&self, sign: char) -> bool {
        sign.is_alphanumeric() || sign == '_'
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    /// `'a' 'b'` is the literal `'ab'`.
    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    fn supports_numeric_prefix(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }

    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        true
    }

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn supports_select_item_multi_column_alias(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        true
    }

    fn supports_create_table_like_parenthesized(&self) -> bool {
        true
    }

    fn supports_from_first_select(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_values_as_table_factor(&self) -> bool {
        true
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        if let Err(error) = nesting::count_step() {
            return Some(Err(error));
        }
        // Below addition, and above the operators of bits.
        matches!(parser.peek_token_ref().token, Token::StringConcat).then_some(Ok(CONCAT_PRECEDENCE))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        if let Err(error) = nesting::count_step() {
            return Some(Err(error));
        }
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        if word.quote_style.is_some() {
            return None;
        }
        if let Some(number) = typed_number(&word.value) {
            parser.next_token();
            return Some(Ok(number));
        }
        let is_call = parser.peek_nth_token_ref(1).token == Token::LParen;
        if !is_call {
            return None;
        }
        let name = word.value.to_ascii_lowercase();
        let is_trim = name == "trim" && {
            let next = &parser.peek_nth_token_ref(2).token;
            !matches!(next, Token::Word(word) if TRIM_SIDES.contains(&word.keyword))
        };
        let is_generic = CALLS.contains(&word.keyword)
            || is_trim
            || matches!(name.as_str(), "ceil" | "floor" | "left" | "position");
        is_generic.then(|| {
            parser.next_token();
            parser.parse_function(ObjectName::from(vec![Ident::new(name)]))
        })
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let left = Box::new(expr.clone());
        if parser.parse_keyword(Keyword::DIV) {
            let right = parser.parse_subexpr(precedence);
            let op = BinaryOperator::MyIntegerDivide;
            return Some(right.map(|right| Expr::BinaryOp { left, op, right: Box::new(right) }));
        }
        // `sqlparser` has no precedence for it.
        let is_negated =
            parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]);
        if !is_negated && !parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            return None;
        }
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| {
            let op = BinaryOperator::Spaceship;
            let same = Expr::BinaryOp { left, op, right: Box::new(right) };
            match is_negated {
                true => same,
                false => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(same) },
            }
        }))
    }
}

/// The number that a word such as `10Y`, `2S`, `3L`, `1.5BD` or `2D` is.
fn typed_number(word: &str) -> Option<Expr> {
    if !word.starts_with(|sign: char| sign.is_ascii_digit() || sign == '.') {
        return None;
    }
    let digits = word.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let suffix = word[digits.len()..].to_ascii_uppercase();
    let is_whole = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_number = is_whole || digits.parse::<f64>().is_ok() && !digits.contains('_');
    let data_type = match suffix.as_str() {
        "Y" if is_whole => DataType::TinyInt(None),
        "S" if is_whole => DataType::SmallInt(None),
        "L" if is_whole => DataType::BigInt(None),
        "F" if is_number => DataType::Real,
        "D" if is_number => DataType::Double(ExactNumberInfo::None),
        "BD" if is_number => decimal_of(digits),
        _ => return None,
    };
    Some(cast(number(digits), data_type))
}

/// The narrowest decimal type of a number without an exponent: Hive drops zeros at its end.
pub(super) fn decimal_of(digits: &str) -> DataType {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole = whole.trim_start_matches('0').len();
    let scale = fraction.len();
    let precision = (whole + scale).max(1);
    DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision as u64, scale as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_hive_does() {
        for (sql, expected) in [
            ("10Y", "10::TINYINT"),
            ("3L + 1.5BD", "3::BIGINT + 1.5::DECIMAL(2,1)"),
            ("a == b", "a = b"),
            ("7 DIV 2 + 1", "7 DIV 2 + 1"),
            ("`a b`.c", "`a b`.c"),
            ("map('a', array(1, 2))", "map('a', array(1, 2))"),
            ("a IS NOT DISTINCT FROM b AND c", "a <=> b AND c"),
            ("t.2020_x", "t.2020_x"),
            (r"'it\'s'", "'it''s'"),
            ("!a", "!a"),
        ] {
            let shown = nesting::with_limits(crate::Tokens::of(sql, &HiveSqlDialect).unwrap(), |tokens| {
                Ok(tokens.parser(nesting::NESTING_MAX).parse_expr()?.to_string())
            });
            assert_eq!(shown.unwrap(), expected, "{sql}");
        }
    }
}
