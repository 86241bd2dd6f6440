//! `SET a[2] = v`, which the parser does not know, as an assignment of the whole array:
//!
//! ```text
//! UPDATE t SET a[2] = v            ─►  UPDATE t SET a = harrier_array_assign(t.a, 2, v) UPDATE t SET a[1] =
//! v, a[2] = w  ─►  UPDATE t SET a = harrier_array_assign(harrier_array_assign(t.a, 1, v), 2, w)
//! ```

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens, word};

/// The function of an array, a subscript and a value.
const ASSIGN: &str = "harrier_array_assign";

/// Keywords after an assignment.
const ENDS: [&str; 5] = ["where", "from", "returning", "when", "set"];

/// Rewrites such assignments of UPDATE, MERGE and ON CONFLICT DO UPDATE.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::UPDATE]) || !tokens.may_have(&[Keyword::SET]) {
        return;
    }
    let mut edits = Vec::new();
    let mut update = None;
    for at in 0..tokens.len() {
        if tokens.is(at, "update") {
            update = Some(at);
        } else if tokens.is(at, "set")
            && let Some(update) = update.take()
        {
            edits.extend(in_clause(tokens, update, at));
        }
    }
    tokens.edit(edits);
}

/// An assignment of an element.
struct Assignment {
    /// Its tokens, with a comma before it.
    start: usize,
    end: usize,
    column: String,
    value: Vec<Token>,
}

/// The edits of the SET clause at `set`.
fn in_clause(tokens: &Tokens<'_>, update: usize, set: usize) -> Vec<Edit> {
    let mut found: Vec<Assignment> = vec![];
    let mut edits = vec![];
    let mut at = set + 1;
    loop {
        let end = value_end(tokens, at);
        if let Some(bracket) = subscript_end(tokens, at, end)
            && let Some(column) = tokens.name(at)
            && let (Some(name), Some(table)) = (tokens.token(at), target(tokens, update, set))
        {
            let part = |from: usize, to: usize| (from..to).filter_map(|at| tokens.token(at).cloned());
            // An earlier element of the same array is assigned before this one.
            let earlier = found.iter().position(|earlier| earlier.column == column);
            let base = match earlier.map(|earlier| found.remove(earlier)) {
                Some(earlier) => {
                    edits.push(Edit::remove(earlier.start..earlier.end));
                    earlier.value
                }
                None => vec![table, Token::Period, name.clone()],
            };
            let mut value = vec![word(ASSIGN), Token::LParen];
            value.extend(base);
            value.push(Token::Comma);
            value.extend(part(at + 2, bracket));
            value.push(Token::Comma);
            value.extend(part(bracket + 2, end));
            value.push(Token::RParen);
            // Of the clause's first assignment the comma behind it goes, if it goes.
            let (start, end) = if at == set + 1 { (at, end + 1) } else { (at - 1, end) };
            found.push(Assignment { start, end, column, value });
        }
        if !tokens.is_token(end, &Token::Comma) {
            break;
        }
        at = end + 1;
    }
    for Assignment { start, end, value, .. } in found {
        let is_first = start == set + 1;
        let (name, range) = match is_first {
            true => (tokens.token(start), start..end - 1),
            false => (tokens.token(start + 1), start + 1..end),
        };
        let mut assignment: Vec<Token> = name.into_iter().cloned().collect();
        assignment.push(Token::Eq);
        assignment.extend(value);
        edits.push(Edit::replace(range, assignment));
    }
    edits
}

/// The place of the bracket behind the only subscript of the assignment at `at`; `None`: it has none.
fn subscript_end(tokens: &Tokens<'_>, at: usize, end: usize) -> Option<usize> {
    if !tokens.is_token(at + 1, &Token::LBracket) {
        return None;
    }
    let mut depth = 0;
    for at in at + 1..end {
        match tokens.token(at)? {
            Token::LBracket | Token::LParen => depth += 1,
            Token::RBracket | Token::RParen => depth -= 1,
            Token::Colon if depth == 1 => return None,
            _ => {}
        }
        if depth == 0 {
            return tokens.is_token(at + 1, &Token::Eq).then_some(at);
        }
    }
    None
}

/// The index after the assignment at `at`.
fn value_end(tokens: &Tokens<'_>, at: usize) -> usize {
    let mut depth = 0;
    for at in at..tokens.len() {
        match tokens.token(at) {
            Some(Token::LParen | Token::LBracket) => depth += 1,
            Some(Token::RParen | Token::RBracket) if depth == 0 => return at,
            Some(Token::RParen | Token::RBracket) => depth -= 1,
            Some(Token::Comma | Token::SemiColon) if depth == 0 => return at,
            _ if tokens.is(at, "case") => depth += 1,
            _ if tokens.is(at, "end") && depth > 0 => depth -= 1,
            _ if depth == 0 && tokens.is_one_of(at, &ENDS) => return at,
            _ => {}
        }
    }
    tokens.len()
}

/// The name or alias of the table that is changed.
fn target(tokens: &Tokens<'_>, update: usize, set: usize) -> Option<Token> {
    let at = match update + 1 < set {
        true => set - 1,
        // That of MERGE or INSERT.
        false => {
            let into = (0..update).find(|at| tokens.is(*at, "into"))?;
            let end = tokens.after_name(into + 1);
            if tokens.is(end, "as") { end + 1 } else { end - 1 }
        }
    };
    tokens.token(at).filter(|token| matches!(token, Token::Word(_))).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn check(sql: &str, expected: &str) {
        let text = |tokens: &Tokens<'_>| {
            let all: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            all.join(" ")
        };
        let mut tokens = Tokens::of(sql, &SqlDialect).unwrap();
        rewrite(&mut tokens);
        assert_eq!(text(&tokens), text(&Tokens::of(expected, &SqlDialect).unwrap()), "{sql}");
    }

    #[test]
    fn elements_are_assigned_by_their_arrays() {
        for (sql, expected) in [
            (
                "UPDATE s.t SET a[2] = 5 WHERE b[1] = 2",
                "UPDATE s.t SET a = harrier_array_assign(t.a, 2, 5) WHERE b[1] = 2",
            ),
            (
                "UPDATE t AS q SET b = 1, a[i + 1] = CASE WHEN x THEN 1 END, c = 2",
                "UPDATE t AS q SET b = 1, a = harrier_array_assign(q.a, i + 1, CASE WHEN x THEN 1 END), c = 2",
            ),
            (
                "UPDATE t SET a[1] = f(1, 2), b = 3, A[2] = 4 RETURNING a",
                "UPDATE t SET b = 3, A = harrier_array_assign(harrier_array_assign(t.a, 1, f(1, 2)), 2, 4) \
                 RETURNING a",
            ),
            (
                "UPDATE t SET b = 3, a[1] = 1, a[2] = 4, c[1] = 5",
                "UPDATE t SET b = 3, a = harrier_array_assign(harrier_array_assign(t.a, 1, 1), 2, 4), \
                 c = harrier_array_assign(t.c, 1, 5)",
            ),
            (
                "INSERT INTO t AS q VALUES (1) ON CONFLICT (k) DO UPDATE SET a[1] = 2 WHERE q.k > 1",
                "INSERT INTO t AS q VALUES (1) ON CONFLICT (k) DO UPDATE SET a = harrier_array_assign(q.a, 1, 2) \
                 WHERE q.k > 1",
            ),
        ] {
            check(sql, expected);
        }
    }

    #[test]
    fn other_statements_are_unchanged() {
        for sql in [
            "UPDATE t SET a = b[1], c = 2 WHERE a[2] = 3",
            "UPDATE t SET a[1:2] = b",
            "UPDATE t SET a[1][2] = 3",
            "SELECT a, b[1] = 5 FROM t",
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u ON UPDATE SET NULL",
        ] {
            check(sql, sql);
        }
    }
}
