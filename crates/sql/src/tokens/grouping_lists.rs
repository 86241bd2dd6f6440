//! Elements of ROLLUP, CUBE and GROUPING SETS that begin with a parenthesis and continue after it: `ROLLUP
//! (a, (b)::int)`. The parser would take the parenthesis for a column list, so the element gets its own
//! parentheses.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens};

/// Parenthesizes such elements.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::ROLLUP, Keyword::CUBE, Keyword::SETS]) {
        return;
    }
    let mut added = Vec::new();
    for at in 0..tokens.len() {
        if tokens.is_one_of(at, &["rollup", "cube", "sets"]) && tokens.is_token(at + 1, &Token::LParen) {
            elements(tokens, at + 1, &mut added);
        }
    }
    tokens.edit(added);
}

/// Adds parentheses where needed to the elements of the list opened at `open`.
fn elements(tokens: &Tokens<'_>, open: usize, added: &mut Vec<Edit>) {
    let mut first = open + 1;
    while first < tokens.len() {
        let Some(last) = last_of(tokens, first) else { return };
        let begins = tokens.is_token(first, &Token::LParen);
        if begins && tokens.after_parentheses(first).is_some_and(|end| end <= last) {
            added.push(Edit::insert(first, [Token::LParen]));
            added.push(Edit::insert(last + 1, [Token::RParen]));
        }
        if !tokens.is_token(last + 1, &Token::Comma) {
            return;
        }
        first = last + 2;
    }
}

/// The index of the last token of the element that begins at `first`.
fn last_of(tokens: &Tokens<'_>, first: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in first..tokens.len() {
        match tokens.token(at)? {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen if depth == 0 => return (at > first).then(|| at - 1),
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Comma if depth == 0 => return (at > first).then(|| at - 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::testing::edited_text;
    use super::*;

    #[test]
    fn grouping_elements_are_parenthesized() {
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
            assert_eq!(edited_text(sql, rewrite), expected);
        }
    }
}
