//! Keywords inside of calls that the parser does not know: `concat(VARIADIC a)`, `trim(BOTH FROM a)`,
//! `substring(a SIMILAR p ESCAPE e)`. They become a call of [`VARIADIC`], the default character to trim, and
//! commas.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens, word};

/// Placeholder function for VARIADIC before an argument; `desugar/calls.rs` resolves it.
pub const VARIADIC: &str = "_harrier_variadic";

/// Rewrites such keywords.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[
        Keyword::VARIADIC,
        Keyword::BOTH,
        Keyword::LEADING,
        Keyword::TRAILING,
        Keyword::SIMILAR,
    ]) {
        return;
    }
    let mut edits = Vec::new();
    for at in 1..tokens.len() {
        variadic(tokens, at, &mut edits);
        trimmed_blanks(tokens, at, &mut edits);
        similar_part(tokens, at, &mut edits);
    }
    tokens.edit(edits);
}

/// The indexes from `from` on that are at the same parenthesis depth, and that of the parenthesis which
/// closes it.
fn same_depth(tokens: &Tokens<'_>, from: usize) -> Option<(Vec<usize>, usize)> {
    let mut depth = 0_usize;
    let mut direct = Vec::new();
    for at in from..tokens.len() {
        match tokens.token(at)? {
            Token::RParen if depth == 0 => return Some((direct, at)),
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            _ if depth == 0 => direct.push(at),
            _ => {}
        }
    }
    None
}

/// Rewrites `VARIADIC a` as an argument.
fn variadic(tokens: &Tokens<'_>, at: usize, edits: &mut Vec<Edit>) {
    let is_argument = matches!(tokens.token(at - 1), Some(Token::LParen | Token::Comma));
    if !is_argument || !tokens.is(at, "variadic") {
        return;
    }
    let Some((_, close)) = same_depth(tokens, at + 1) else { return };
    edits.push(Edit::insert(close, [Token::RParen]));
    edits.push(Edit::replace(at..at + 1, [word(VARIADIC), Token::LParen]));
}

/// Rewrites `trim(BOTH FROM a)`.
fn trimmed_blanks(tokens: &Tokens<'_>, at: usize, edits: &mut Vec<Edit>) {
    let is_trim = tokens.is_token(at - 1, &Token::LParen) && at > 1 && tokens.is(at - 2, "trim");
    if is_trim && tokens.is_one_of(at, &["both", "leading", "trailing"]) && tokens.is(at + 1, "from") {
        edits.push(Edit::insert(at + 1, [Token::SingleQuotedString(" ".to_string())]));
    }
}

/// Rewrites `substring(a SIMILAR p ESCAPE e)`.
fn similar_part(tokens: &Tokens<'_>, at: usize, edits: &mut Vec<Edit>) {
    if !tokens.is_token(at, &Token::LParen) || !tokens.is(at - 1, "substring") {
        return;
    }
    let Some((direct, _)) = same_depth(tokens, at + 1) else { return };
    let place = |word: &str| direct.iter().copied().find(|at| tokens.is(*at, word));
    if let (Some(similar), Some(escape)) = (place("similar"), place("escape")) {
        edits.extend([similar, escape].map(|at| Edit::replace(at..at + 1, [Token::Comma])));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

    #[test]
    fn keywords_are_rewritten_for_the_parser() {
        for (sql, expected) in [
            ("concat(VARIADIC a || f(b))", "concat ( _harrier_variadic ( a || f ( b ) ) )"),
            ("f(x, variadic ARRAY[1, 2]), 3", "f ( x , _harrier_variadic ( ARRAY [ 1 , 2 ] ) ) , 3"),
            ("trim(both from a)", "trim ( both ' ' from a )"),
            ("substring(a SIMILAR 'b' ESCAPE '#')", "substring ( a , 'b' , '#' )"),
        ] {
            assert_eq!(edited_text(sql, rewrite), expected);
        }
        for same in
            ["SELECT 1", "trim(both 'x' from a)", "SELECT variadic FROM t", "a SIMILAR TO substring(b, 1)"]
        {
            assert_eq!(edited_text(same, rewrite), edited_text(same, |_| ()), "{same}");
        }
    }
}
