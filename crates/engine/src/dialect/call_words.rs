//! Words inside of calls that the parser does not know: `concat(VARIADIC a)`, `trim(BOTH FROM a)`,
//! `substring(a SIMILAR p ESCAPE e)`. They become a call of [`VARIADIC`], the blank that is meant, and
//! commas.

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The function that stands for VARIADIC before an argument, which `calls` resolves.
pub(super) const VARIADIC: &str = "_harrier_variadic";

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    let lower = text.to_ascii_lowercase();
    let is_in_question = lower.contains("variadic")
        || lower.contains("similar") && lower.contains("substring")
        || lower.contains("trim") && lower.contains("from");
    if !is_in_question {
        return tokens;
    }
    let mut all = match &tokens {
        Some(tokens) => tokens.clone(),
        None => match Tokenizer::new(dialect, text).tokenize_with_location() {
            Ok(all) => all,
            Err(_) => return tokens,
        },
    };
    all.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let mut is_changed = false;
    // From the last one on, so that places before it stay.
    for at in (1..all.len()).rev() {
        is_changed |= variadic(&mut all, at) | trimmed_blanks(&mut all, at) | similar_part(&mut all, at);
    }
    if is_changed { Some(all) } else { tokens }
}

fn is_word(tokens: &[TokenWithSpan], at: usize, expected: &str) -> bool {
    matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(word))
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// The tokens of what parentheses that open before `from` have in them directly, and where they close.
fn inside(tokens: &[TokenWithSpan], from: usize) -> Option<(Vec<usize>, usize)> {
    let mut depth = 0_usize;
    let mut direct = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.token {
            Token::RParen if depth == 0 => return Some((direct, at)),
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ if depth == 0 => direct.push(at),
            _ => {}
        }
    }
    None
}

fn put(tokens: &mut Vec<TokenWithSpan>, at: usize, token: Token) {
    let span = tokens[at].span;
    tokens.insert(at, TokenWithSpan { token, span });
}

/// `(VARIADIC a)` and `(x, VARIADIC a)`.
fn variadic(tokens: &mut Vec<TokenWithSpan>, at: usize) -> bool {
    let is_argument = matches!(tokens[at - 1].token, Token::LParen | Token::Comma);
    if !is_argument || !is_word(tokens, at, "variadic") {
        return false;
    }
    let Some((_, close)) = inside(tokens, at + 1) else { return false };
    put(tokens, close, Token::RParen);
    tokens[at].token = Token::make_word(VARIADIC, None);
    put(tokens, at + 1, Token::LParen);
    true
}

/// `trim(BOTH FROM a)`: blanks.
fn trimmed_blanks(tokens: &mut Vec<TokenWithSpan>, at: usize) -> bool {
    let is_side = ["both", "leading", "trailing"].iter().any(|side| is_word(tokens, at, side));
    let is_trim = tokens[at - 1].token == Token::LParen
        && at.checked_sub(2).is_some_and(|before| is_word(tokens, before, "trim"));
    if !is_side || !is_trim || !is_word(tokens, at + 1, "from") {
        return false;
    }
    put(tokens, at + 1, Token::SingleQuotedString(" ".to_string()));
    true
}

/// `substring(a SIMILAR p ESCAPE e)`, which is `substring(a, p, e)`.
fn similar_part(tokens: &mut Vec<TokenWithSpan>, at: usize) -> bool {
    if tokens[at].token != Token::LParen || !is_word(tokens, at - 1, "substring") {
        return false;
    }
    let Some((direct, _)) = inside(tokens, at + 1) else { return false };
    let place = |word: &str| direct.iter().copied().find(|at| is_word(tokens, *at, word));
    let (Some(similar), Some(escape)) = (place("similar"), place("escape")) else { return false };
    tokens[similar].token = Token::Comma;
    tokens[escape].token = Token::Comma;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    #[test]
    fn words_become_what_the_parser_knows() {
        for (sql, expected) in [
            ("concat(VARIADIC a || f(b))", "concat ( _harrier_variadic ( a || f ( b ) ) )"),
            ("f(x, variadic ARRAY[1, 2]), 3", "f ( x , _harrier_variadic ( ARRAY [ 1 , 2 ] ) ) , 3"),
            ("trim(both from a)", "trim ( both ' ' from a )"),
            ("substring(a SIMILAR 'b' ESCAPE '#')", "substring ( a , 'b' , '#' )"),
        ] {
            let tokens = tokens(sql, None, &PostgreSqlDialect {}).unwrap();
            let written = tokens.iter().map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!(written, expected);
        }
        for same in
            ["SELECT 1", "trim(both 'x' from a)", "SELECT variadic FROM t", "a SIMILAR TO substring(b, 1)"]
        {
            assert!(tokens(same, None, &PostgreSqlDialect {}).is_none(), "{same}");
        }
    }
}
