//! What `CREATE TABLE t (LIKE u INCLUDING …)` takes along, of which the parser knows defaults alone.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::Words;

/// What a table takes along from the one that it is made like, beside columns, their types and NOT NULL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LikeOptions {
    defaults: bool,
    /// CHECK constraints.
    pub(crate) constraints: bool,
    /// Indexes, primary keys and unique constraints.
    pub(crate) indexes: bool,
    /// Of columns.
    pub(crate) comments: bool,
}

impl LikeOptions {
    /// `None`: there is no such option.
    fn set(&mut self, option: &str, is_taken: bool) -> Option<()> {
        match option {
            "all" => {
                *self =
                    Self { defaults: is_taken, constraints: is_taken, indexes: is_taken, comments: is_taken }
            }
            "defaults" => self.defaults = is_taken,
            "constraints" => self.constraints = is_taken,
            "indexes" => self.indexes = is_taken,
            "comments" => self.comments = is_taken,
            // Of such there is nothing to be taken.
            "compression" | "generated" | "identity" | "statistics" | "storage" => {}
            _ => return None,
        }
        Some(())
    }
}

/// The text of a statement in which the clause says nothing but what the parser knows, and the options;
/// `None` if there are no others.
pub(super) fn cut(text: &str) -> Option<(String, LikeOptions)> {
    let words = Words::of(text)?;
    if !words.is_at(0, "create") {
        return None;
    }
    let like = (1..words.len()).find(|at| words.is_at(*at, "like"))?;
    let mut at = like + 2;
    while words.token(at) == Some(&Token::Period) {
        at += 2;
    }
    let begin = at;
    let mut options = LikeOptions::default();
    loop {
        let is_taken = words.is_at(at, "including");
        if !is_taken && !words.is_at(at, "excluding") {
            break;
        }
        options.set(&words.name(at + 1)?, is_taken)?;
        at += 2;
    }
    if at == begin || at > words.len() {
        return None;
    }
    let range = words.bytes(begin..at);
    let known = if options.defaults { "INCLUDING DEFAULTS" } else { "EXCLUDING DEFAULTS" };
    let mut text = text.to_string();
    text.replace_range(range, known);
    Some((text, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_cut_out() {
        let all = LikeOptions { defaults: true, constraints: true, indexes: true, comments: true };
        for (sql, expected, options) in [
            ("CREATE TABLE a (LIKE b INCLUDING ALL)", "CREATE TABLE a (LIKE b INCLUDING DEFAULTS)", all),
            (
                "create table a (like s.\"B\" including all excluding defaults excluding comments) sorted by (x)",
                "create table a (like s.\"B\" EXCLUDING DEFAULTS) sorted by (x)",
                LikeOptions { constraints: true, indexes: true, ..LikeOptions::default() },
            ),
            (
                "CREATE TABLE a (LIKE b INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)",
                "CREATE TABLE a (LIKE b INCLUDING DEFAULTS)",
                LikeOptions { defaults: true, constraints: true, ..LikeOptions::default() },
            ),
        ] {
            assert_eq!(cut(sql), Some((expected.to_string(), options)), "{sql}");
        }
        for sql in ["CREATE TABLE a (LIKE b)", "SELECT 1", "CREATE TABLE a (LIKE b INCLUDING x)"] {
            assert_eq!(cut(sql), None, "{sql}");
        }
    }
}
