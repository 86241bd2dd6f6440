//! Options of `CREATE TABLE t (LIKE u INCLUDING …)`, of which the parser knows only DEFAULTS.

use crate::tokens::{Tokens, word};

/// Properties copied from the LIKE table beside columns, their types and NOT NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LikeOptions {
    defaults: bool,
    /// CHECK constraints.
    pub constraints: bool,
    /// Indexes, primary keys and unique constraints.
    pub indexes: bool,
    /// Comments of columns.
    pub comments: bool,
}

impl LikeOptions {
    /// Sets an option; `None` for an unknown one.
    fn set_option(&mut self, option: &str, is_taken: bool) -> Option<()> {
        match option {
            "all" => {
                *self =
                    Self { defaults: is_taken, constraints: is_taken, indexes: is_taken, comments: is_taken }
            }
            "defaults" => self.defaults = is_taken,
            "constraints" => self.constraints = is_taken,
            "indexes" => self.indexes = is_taken,
            "comments" => self.comments = is_taken,
            // Tables have no such properties.
            "compression" | "generated" | "identity" | "statistics" | "storage" => {}
            _ => return None,
        }
        Some(())
    }
}

/// Reduces the clause to INCLUDING or EXCLUDING DEFAULTS. Returns the options, if there are any.
pub(super) fn take(tokens: &mut Tokens<'_>) -> Option<LikeOptions> {
    if !tokens.is(0, "create") {
        return None;
    }
    let like = (1..tokens.len()).find(|at| tokens.is(*at, "like"))?;
    let begin = tokens.after_name(like + 1);
    let mut at = begin;
    let mut options = LikeOptions::default();
    loop {
        let is_taken = tokens.is(at, "including");
        if !is_taken && !tokens.is(at, "excluding") {
            break;
        }
        options.set_option(&tokens.name(at + 1)?, is_taken)?;
        at += 2;
    }
    if at == begin {
        return None;
    }
    let known = if options.defaults { "INCLUDING" } else { "EXCLUDING" };
    tokens.replace(begin..at, [word(known), word("DEFAULTS")]);
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn options_are_taken() {
        let all = LikeOptions { defaults: true, constraints: true, indexes: true, comments: true };
        for (sql, expected, options) in [
            ("CREATE TABLE a (LIKE b INCLUDING ALL)", "CREATE TABLE a ( LIKE b INCLUDING DEFAULTS )", all),
            (
                "create table a (like s.\"B\" including all excluding defaults excluding comments) sorted by (x)",
                "create table a ( like s . \"B\" EXCLUDING DEFAULTS ) sorted by ( x )",
                LikeOptions { constraints: true, indexes: true, ..LikeOptions::default() },
            ),
            (
                "CREATE TABLE a (LIKE b INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)",
                "CREATE TABLE a ( LIKE b INCLUDING DEFAULTS )",
                LikeOptions { defaults: true, constraints: true, ..LikeOptions::default() },
            ),
        ] {
            let mut tokens = Tokens::of(sql, &SqlDialect).unwrap();
            assert_eq!(take(&mut tokens), Some(options), "{sql}");
            let text: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            assert_eq!(text.join(" "), expected);
        }
        for sql in ["CREATE TABLE a (LIKE b)", "SELECT 1", "CREATE TABLE a (LIKE b INCLUDING x)"] {
            assert_eq!(take(&mut Tokens::of(sql, &SqlDialect).unwrap()), None, "{sql}");
        }
    }
}
