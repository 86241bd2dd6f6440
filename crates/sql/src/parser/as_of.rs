//! `t AS OF SNAPSHOT 3` and `t AS OF TIMESTAMP '…'`: a table as it was, which the planner sees as a table of
//! another name.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_functions::datetime::time_zone::in_utc;
use harrier_functions::parse::datetime::DateOrder;

use crate::dialect::SqlDialect;
use crate::tokens::{Edit, Tokens, word};

/// Between a table's name and the snapshot or time at which it is to be read.
pub const PAST: &str = "\u{1}as of ";

/// The name of the time zone that needs none.
const UTC: &str = "UTC";

/// Words that come after a table in FROM and are not its alias.
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

/// A table with a past, in FROM.
struct Past {
    /// Where the last part of its name and all up to the past stand among the tokens.
    first: usize,
    last: usize,
    /// The name for the planner.
    name: String,
    /// As what other parts of the statement know it, unless that is said behind it.
    alias: Option<String>,
}

fn find(tokens: &Tokens<'_>) -> Vec<Past> {
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
        Some(Past { first: at - 1, last, name: format!("{name}{PAST}{past}"), alias })
    };
    (1..tokens.len()).filter_map(found).collect()
}

/// Writes the name that the planner sees for each such table.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::OF]) {
        return;
    }
    let quoted = |name: String| Token::make_word(&name, Some('"'));
    let edits = find(tokens).into_iter().map(|Past { first, last, name, alias }| {
        let mut table = vec![quoted(name)];
        table.extend(alias.into_iter().flat_map(|alias| [word("AS"), quoted(alias)]));
        Edit::replace(first..last + 1, table)
    });
    let edits = edits.collect();
    tokens.edit(edits);
}

/// The text of a query with the names that the planner sees.
pub fn read_past(text: &str) -> String {
    // What is no SQL is for the parser to complain about.
    let Ok(tokens) = Tokens::of(text, &SqlDialect) else { return text.to_string() };
    let mut read = text.to_string();
    for Past { first, last, name, alias } in find(&tokens).into_iter().rev() {
        let alias = alias.map(|alias| format!(" AS \"{}\"", quoted(&alias))).unwrap_or_default();
        read.replace_range(tokens.bytes(first..last + 1), &format!("\"{}\"{alias}", quoted(&name)));
    }
    read
}

/// The text of a parsed query with the names that [`read_past`] makes as what they stand for. `zone`: in
/// which its times are, if it is not UTC. `order`: of the numbers of its days.
pub fn tell_past(text: &str, zone: &str, order: DateOrder) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PAST) {
        // To the end of the identifier; a doubled quote is a part of it.
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
                let is_told = zone == UTC && order == DateOrder::default();
                let moment = if is_told { None } else { in_utc(&past, zone, order) };
                format!("TIMESTAMP '{}'", moment.unwrap_or(past).replace('\'', "''"))
            }
        };
        told.extend([before, "\" AS OF ", place.as_str()]);
        rest = after.get(end + 1..).unwrap_or_default();
    }
    told + rest
}

fn quoted(name: &str) -> String {
    name.replace('"', "\"\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::testing::changed;

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
            assert_eq!(read_past(sql), expected);
            assert_eq!(changed(sql, rewrite), changed(expected, |_| ()));
        }
    }

    #[test]
    fn a_past_is_told_as_it_was_read() {
        for (sql, expected) in [
            ("SELECT a FROM t", "SELECT a FROM t"),
            ("SELECT * FROM t AS OF 3", "SELECT * FROM \"t\" AS OF SNAPSHOT 3 AS \"t\""),
            (
                "SELECT * FROM s.t AS OF VERSION 3 x, \"a\"\"b\" AS OF TIMESTAMP '2026-01-01 00:00:00' WHERE true",
                "SELECT * FROM s.\"t\" AS OF SNAPSHOT 3 x, \"a\"\"b\" AS OF TIMESTAMP '2026-01-01 00:00:00' AS \"a\"\"b\" \
                 WHERE true",
            ),
        ] {
            let read = read_past(sql);
            assert_eq!(tell_past(&read, UTC, DateOrder::default()), expected);
            assert_eq!(read_past(expected), read);
        }
    }
}
