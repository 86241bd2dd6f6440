//! Elements of ROLLUP, CUBE and GROUPING SETS that begin with a parenthesis and go on behind it:
//! `ROLLUP (a, (b)::int)`. The parser takes the parenthesis for a list of columns; so they get a pair of
//! their own.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    let lower = text.to_ascii_lowercase();
    if !["rollup", "cube", "sets"].iter().any(|word| lower.contains(word)) {
        return tokens;
    }
    let mut tokens = match tokens {
        Some(tokens) => tokens,
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    // Behind which tokens there is one more, and what it is.
    let mut added: Vec<(usize, Token)> = Vec::new();
    for at in 0..tokens.len() {
        if is_grouping(&tokens[at].token)
            && tokens.get(at + 1).is_some_and(|token| token.token == Token::LParen)
        {
            elements(&tokens, at + 1, &mut added);
        }
    }
    if added.is_empty() {
        return Some(tokens);
    }
    added.sort_by_key(|(at, _)| *at);
    let mut added = added.into_iter().peekable();
    let mut written = Vec::with_capacity(tokens.len() + added.len());
    for (at, token) in tokens.into_iter().enumerate() {
        let span = token.span;
        while let Some((_, token)) = added.next_if(|(place, token)| *place == at && *token == Token::LParen) {
            written.push(TokenWithSpan::new(token, span));
        }
        written.push(token);
        while let Some((_, token)) = added.next_if(|(place, _)| *place == at) {
            written.push(TokenWithSpan::new(token, span));
        }
    }
    Some(written)
}

fn is_grouping(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none()
        && ["rollup", "cube", "sets"].iter().any(|name| word.value.eq_ignore_ascii_case(name)))
}

/// Adds parentheses around the elements of the list that is opened at `open` where they need them.
fn elements(tokens: &[TokenWithSpan], open: usize, added: &mut Vec<(usize, Token)>) {
    let mut first = open + 1;
    while first < tokens.len() {
        let Some(last) = last_of(tokens, first) else { return };
        let begins = tokens[first].token == Token::LParen;
        if begins && closed_at(tokens, first).is_some_and(|closed| closed < last) {
            added.push((first, Token::LParen));
            added.push((last, Token::RParen));
        }
        if tokens.get(last + 1).is_none_or(|token| token.token != Token::Comma) {
            return;
        }
        first = last + 2;
    }
}

/// The last token of the element that begins at `first`.
fn last_of(tokens: &[TokenWithSpan], first: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(first) {
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen if depth == 0 => return (at > first).then(|| at - 1),
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => return (at > first).then(|| at - 1),
            _ => {}
        }
    }
    None
}

/// Where the parenthesis that is opened at `open` is closed.
fn closed_at(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(at),
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    #[test]
    fn elements_that_go_on_have_parentheses() {
        for (sql, expected) in [
            ("GROUP BY ROLLUP (a, (b)::int)", "GROUP BY ROLLUP ( a , ( ( b ) :: int ) )"),
            ("GROUP BY CUBE((a + 1) % 2, b)", "GROUP BY CUBE ( ( ( a + 1 ) % 2 ) , b )"),
            ("GROUP BY ROLLUP ((a, b), (c))", "GROUP BY ROLLUP ( ( a , b ) , ( c ) )"),
            (
                "GROUP BY GROUPING SETS ((a), (), (b)::int, CUBE ((c) + 1))",
                "GROUP BY GROUPING SETS ( ( a ) , ( ) , ( ( b ) :: int ) , CUBE ( ( ( c ) + 1 ) ) )",
            ),
            ("SELECT cube(2)", "SELECT cube ( 2 )"),
        ] {
            let tokens = tokens(sql, None, &PostgreSqlDialect {}).unwrap();
            let written = tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(written, expected);
        }
        assert!(tokens("SELECT 1", None, &PostgreSqlDialect {}).is_none());
    }
}
