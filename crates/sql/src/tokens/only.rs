//! `FROM ONLY t`, which leaves out what inherits from a table: nothing does here, so the word says nothing.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens};

/// What may stand behind the name of a table.
const CLAUSES: [&str; 29] = [
    "as",
    "cross",
    "except",
    "fetch",
    "for",
    "full",
    "group",
    "having",
    "inner",
    "intersect",
    "join",
    "left",
    "limit",
    "natural",
    "offset",
    "on",
    "order",
    "qualify",
    "returning",
    "right",
    "set",
    "tablesample",
    "then",
    "union",
    "using",
    "values",
    "when",
    "where",
    "window",
];

/// Leaves the word out where it says nothing.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    const BEFORE: [&str; 5] = ["from", "join", "update", "truncate", "table"];
    let says_nothing = |at: &usize| {
        let at = *at;
        // Before the word of a clause it is the name of something, as the planner allows.
        let is_name =
            matches!(tokens.token(at + 1), Some(Token::Word(_))) && !tokens.is_one_of(at + 1, &CLAUSES);
        tokens.is(at, "only") && tokens.is_one_of(at - 1, &BEFORE) && is_name
    };
    let edits = (1..tokens.len()).filter(says_nothing).map(|at| Edit::remove(at..at + 1)).collect();
    tokens.edit(edits);
}

#[cfg(test)]
mod tests {
    use super::super::testing::changed;
    use super::*;

    #[test]
    fn only_says_nothing_before_a_table() {
        for (sql, expected) in [
            ("SELECT a FROM ONLY s.t JOIN only u ON true", Some("SELECT a FROM s . t JOIN u ON true")),
            ("DELETE FROM ONLY t", Some("DELETE FROM t")),
            ("UPDATE u SET a = 1 FROM only WHERE only.id = u.id", None),
            ("SELECT a FROM t FETCH FIRST 1 ROW ONLY", None),
            ("SELECT only FROM \"only\"", None),
        ] {
            let same = changed(sql, |_| ());
            assert_eq!(changed(sql, rewrite), expected.map_or(same, str::to_string));
        }
    }
}
