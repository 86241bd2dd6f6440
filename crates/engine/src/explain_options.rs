//! `EXPLAIN (…)` with the options that PostgreSQL's clients write, as DataFusion's parser takes them: a format has another name, and
//! options about what only PostgreSQL measures are left out.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// What they ask for is not there, and nothing is wrong without it.
const IGNORED: [&str; 6] = ["BUFFERS", "WAL", "SETTINGS", "GENERIC_PLAN", "MEMORY", "SERIALIZE"];

/// The tokens to parse instead of `text`, if it is such a statement.
pub(crate) fn tokens(text: &str, dialect: &dyn Dialect) -> Option<Vec<TokenWithSpan>> {
    const EXPLAIN: &str = "explain";
    let begins =
        text.trim_start().get(..EXPLAIN.len()).is_some_and(|word| word.eq_ignore_ascii_case(EXPLAIN));
    if !begins {
        return None;
    }
    let mut tokens = Tokenizer::new(dialect, text).tokenize_with_location().ok()?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    if tokens.get(1)?.token != Token::LParen {
        return None;
    }
    let end = tokens.iter().position(|token| token.token == Token::RParen)?;
    let rest = tokens.split_off(end + 1);
    let close = tokens.pop()?;
    let options = tokens.split_off(2);
    // A query in parentheses has no such options.
    if options.iter().any(|token| token.token == Token::LParen) {
        return None;
    }
    let kept: Vec<Vec<TokenWithSpan>> = options
        .split(|token| token.token == Token::Comma)
        .filter(|option| !IGNORED.iter().any(|name| option.first().is_some_and(|token| is(token, name))))
        .map(<[_]>::to_vec)
        .map(with_format)
        .collect();
    if kept.is_empty() {
        // Without parentheses.
        tokens.pop();
    } else {
        let comma = TokenWithSpan { token: Token::Comma, span: close.span };
        tokens.extend(kept.join(&comma));
        tokens.push(close);
    }
    tokens.extend(rest);
    Some(tokens)
}

fn is(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found) if found.value.eq_ignore_ascii_case(word))
}

fn with_format(mut option: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if let [name, format] = option.as_mut_slice()
        && is(name, "FORMAT")
    {
        let known = [("JSON", "pgjson"), ("TEXT", "indent")];
        if let Some((_, own)) = known.iter().find(|(word, _)| is(format, word)) {
            format.token = Token::make_word(own, None);
        }
    }
    option
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    fn written(text: &str) -> Option<String> {
        let tokens = tokens(text, &PostgreSqlDialect {})?;
        Some(tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_of_postgres_become_those_of_the_parser() {
        let of = |text: &str| written(text).unwrap_or_default();
        assert_eq!(of("EXPLAIN (FORMAT JSON) SELECT 1"), "EXPLAIN ( FORMAT pgjson ) SELECT 1");
        assert_eq!(
            of("explain (analyze, buffers true, format text) select (1)"),
            "explain ( analyze , format indent ) select ( 1 )"
        );
        assert_eq!(of(" EXPLAIN (BUFFERS, WAL) SELECT 1"), "EXPLAIN SELECT 1");
        assert_eq!(of("EXPLAIN (FORMAT xml) SELECT 1"), "EXPLAIN ( FORMAT xml ) SELECT 1");
    }

    #[test]
    fn others_are_left_alone() {
        for text in ["SELECT 1", "EXPLAIN SELECT (1)", "EXPLAIN (SELECT (1))", "explained", "EXPLAIN (", "é"]
        {
            assert_eq!(written(text), None, "{text}");
        }
        // A query, of which nothing is an option.
        assert_eq!(written("EXPLAIN (SELECT 1)").as_deref(), Some("EXPLAIN ( SELECT 1 )"));
    }
}
