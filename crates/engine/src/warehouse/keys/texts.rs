//! Statements about indexes and constraints that the parser does not know, in words that it does.

use crate::warehouse::clauses::Words;

/// What stands for a statement that the parser does not know; `None` for others.
pub(crate) fn cut_text(text: &str) -> Option<String> {
    const BEGINNINGS: [&str; 4] = ["drop", "alter", "reindex", "set"];
    let begins = |word: &&str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if !text.starts_with(|c: char| !c.is_alphabetic()) && !BEGINNINGS.iter().any(begins) {
        return None;
    }
    let words = Words::of(text)?;
    let rest = |at: usize| (at < words.len()).then(|| &text[words.bytes(at..words.len())]);
    let is = |at: usize, all: &[&str]| all.iter().enumerate().all(|(by, word)| words.is_at(at + by, word));
    if is(0, &["drop", "index", "concurrently"]) {
        return Some(words.blank(text.to_string(), &[2..3]));
    }
    if is(0, &["alter", "index", "if", "exists"]) {
        let rename = (4..words.len()).find(|at| is(*at, &["rename", "to"]))?;
        let name = text.get(words.bytes(4..rename))?;
        return Some(format!("CALL rename_index({name}, {})", rest(rename + 2)?.trim_end_matches(';')));
    }
    if is(0, &["set", "constraints"]) {
        return Some("CALL set_constraints()".to_string());
    }
    if is(0, &["reindex"]) {
        // Options in parentheses say how it is done.
        let mut at = words
            .after_parentheses(1)
            .filter(|_| rest(1).is_some_and(|rest| rest.starts_with('(')))
            .unwrap_or(1);
        let kind = words.name(at)?;
        at += 1;
        if is(at, &["concurrently"]) {
            at += 1;
        }
        return Some(format!("CALL reindex('{kind}', {})", rest(at)?.trim_end_matches(';')));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_calls() {
        for (sql, expected) in [
            ("DROP INDEX CONCURRENTLY IF EXISTS i", Some("DROP INDEX IF EXISTS i")),
            ("ALTER INDEX IF EXISTS s.i RENAME TO \"J\"", Some("CALL rename_index(s.i, \"J\")")),
            ("REINDEX (VERBOSE) TABLE CONCURRENTLY s.t;", Some("CALL reindex('table', s.t)")),
            ("reindex index i", Some("CALL reindex('index', i)")),
            ("SET CONSTRAINTS ALL DEFERRED", Some("CALL set_constraints()")),
            ("ALTER INDEX i RENAME TO j", None),
            ("DROP INDEX i", None),
            ("SELECT 1", None),
        ] {
            let cut = cut_text(sql).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
            assert_eq!(cut.as_deref(), expected, "{sql}");
        }
    }
}
