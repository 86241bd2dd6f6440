//! Time travel: `t AS OF SNAPSHOT 3` and `t AS OF TIMESTAMP '…'`, which become table names with a marker for
//! the planner.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_functions::datetime::time_zone::in_utc;
use harrier_functions::parse::datetime::DateOrder;

use crate::dialect::SqlDialect;
use crate::tokens::{Edit, Tokens, word};

/// Separates the table name from its snapshot or time in a marked name.
pub const AS_OF_MARK: &str = "\u{1}as of ";

/// The time zone whose timestamps need no conversion.
const UTC: &str = "UTC";

/// Keywords that may follow a table in FROM, and so are not its alias.
const FOLLOWS_TABLE: &[&str] = &[
    "where",
    "join",
    "on",
    "group",
    "order",
    "limit",
    "union",
    "inner",
    "left",
    "right",
    "full",
    "cross",
    "natural",
    "having",
    "except",
    "intersect",
    "offset",
    "fetch",
    "for",
    "using",
    "window",
    "tablesample",
    "set",
    "when",
    "lateral",
    "qualify",
];

/// A table with AS OF, in FROM.
struct AsOfTable {
    /// Token indexes of the last part of its name and of the end of the AS OF clause.
    first: usize,
    last: usize,
    /// The marked name for the planner.
    name: String,
    /// The table's own name as an alias, unless the statement gives one.
    alias: Option<String>,
}

fn as_of_tables(tokens: &Tokens<'_>) -> Vec<AsOfTable> {
    let found = |at: usize| {
        let name = tokens.name(at.checked_sub(1)?).filter(|_| tokens.are(at, &["as", "of"]))?;
        let has_kind = tokens.is_one_of(at + 2, &["snapshot", "version", "timestamp"]);
        let last = at + 2 + usize::from(has_kind);
        let past = match tokens.token(last) {
            Some(Token::Number(number, _)) => number,
            Some(Token::SingleQuotedString(time)) => time,
            _ => return None,
        };
        let has_alias = tokens.is(last + 1, "as")
            || tokens.name(last + 1).is_some_and(|word| !FOLLOWS_TABLE.contains(&word.as_str()));
        let alias = (!has_alias).then(|| name.clone());
        Some(AsOfTable { first: at - 1, last, name: format!("{name}{AS_OF_MARK}{past}"), alias })
    };
    (1..tokens.len()).filter_map(found).collect()
}

/// Replaces each such table by its marked name.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::OF]) {
        return;
    }
    let quoted = |name: String| Token::make_word(&name, Some('"'));
    let edits = as_of_tables(tokens).into_iter().map(|AsOfTable { first, last, name, alias }| {
        let mut table = vec![quoted(name)];
        table.extend(alias.into_iter().flat_map(|alias| [word("AS"), quoted(alias)]));
        Edit::replace(first..last + 1, table)
    });
    let edits = edits.collect();
    tokens.edit(edits);
}

/// Marks the AS OF tables in the text of a query.
pub fn mark_as_of(text: &str) -> String {
    // The parser reports the error if it is no SQL.
    let Ok(tokens) = Tokens::of(text, &SqlDialect) else { return text.to_string() };
    let mut marked = text.to_string();
    for AsOfTable { first, last, name, alias } in as_of_tables(&tokens).into_iter().rev() {
        let alias = alias.map(|alias| format!(" AS \"{}\"", escape_quotes(&alias))).unwrap_or_default();
        marked.replace_range(tokens.bytes(first..last + 1), &format!("\"{}\"{alias}", escape_quotes(&name)));
    }
    marked
}

/// Unparses the marked names of [`mark_as_of`] to AS OF clauses. Times that are not in UTC are converted from
/// `zone`; `order` is the order of day, month and year in them.
pub fn unparse_as_of(text: &str, zone: &str, order: DateOrder) -> String {
    let mut unparsed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(AS_OF_MARK) {
        // Up to the end of the identifier; a doubled quote is part of it.
        let mut end = 0;
        while let Some(at) = after[end..].find('"') {
            end += at;
            if !after[end + 1..].starts_with('"') {
                break;
            }
            end += 2;
        }
        let past = after[..end].replace("\"\"", "\"");
        let place = match past.parse::<i64>() {
            Ok(snapshot) => format!("SNAPSHOT {snapshot}"),
            Err(_) => {
                let is_default = zone == UTC && order == DateOrder::default();
                let moment = if is_default { None } else { in_utc(&past, zone, order) };
                format!("TIMESTAMP '{}'", moment.unwrap_or(past).replace('\'', "''"))
            }
        };
        unparsed.extend([before, "\" AS OF ", place.as_str()]);
        rest = after.get(end + 1..).unwrap_or_default();
    }
    unparsed + rest
}

fn escape_quotes(name: &str) -> String {
    name.replace('"', "\"\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::testing::edited_text;

    #[test]
    fn tables_are_read_as_of() {
        for (sql, expected) in [
            ("SELECT * FROM t AS OF 3", "SELECT * FROM \"t\u{1}as of 3\" AS \"t\""),
            (
                "SELECT * FROM s.T AS OF SNAPSHOT 3 WHERE a",
                "SELECT * FROM s.\"t\u{1}as of 3\" AS \"t\" WHERE a",
            ),
            ("SELECT * FROM t AS OF TIMESTAMP '2026-01-01' x", "SELECT * FROM \"t\u{1}as of 2026-01-01\" x"),
            ("SELECT a AS of FROM t", "SELECT a AS of FROM t"),
        ] {
            assert_eq!(mark_as_of(sql), expected);
            assert_eq!(edited_text(sql, rewrite), edited_text(expected, |_| ()));
        }
    }

    #[test]
    fn as_of_clauses_round_trip() {
        for (sql, expected) in [
            ("SELECT a FROM t", "SELECT a FROM t"),
            ("SELECT * FROM t AS OF 3", "SELECT * FROM \"t\" AS OF SNAPSHOT 3 AS \"t\""),
            (
                "SELECT * FROM s.t AS OF VERSION 3 x, \"a\"\"b\" AS OF TIMESTAMP '2026-01-01 00:00:00' WHERE true",
                "SELECT * FROM s.\"t\" AS OF SNAPSHOT 3 x, \"a\"\"b\" AS OF TIMESTAMP '2026-01-01 00:00:00' AS \"a\"\"b\" \
                 WHERE true",
            ),
        ] {
            let marked = mark_as_of(sql);
            assert_eq!(unparse_as_of(&marked, UTC, DateOrder::default()), expected);
            assert_eq!(mark_as_of(expected), marked);
        }
    }
}
