//! Clauses of `CREATE TABLE` and `INSERT` that only Hive has, or has in another order.
//!
//! ```text
//! CREATE TABLE t (a INT) PARTITIONED BY (d STRING) STORED AS ORC  ──►  CREATE TABLE t (a INT, d STRING)
//!                                                                      PARTITIONED BY (d)
//! FROM t INSERT INTO u SELECT a WHERE b                           ──►  INSERT INTO u SELECT a FROM t WHERE b
//! ```
//!
//! A table of the warehouse has files of one format: STORED AS, ROW FORMAT and TBLPROPERTIES, which say how
//! Hive writes its files, have no effect on it. They stay where they have one, at external tables.
//!
//! Source: `CreateDDLParser.g`, `FromClauseParser.g` of Hive 4.0.1.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::refuse;
use crate::parser::table_clauses::TableComment;
use crate::tokens::{Edit, Tokens, word};
use crate::words::syntax_error_near;

/// Rewrites the tokens of a statement.
///
/// Returns the comments of the table that is created, and of its columns.
///
/// Errors: a clause that is not complete (42601), or not supported (0A000).
pub(super) fn rewrite(tokens: &mut Tokens<'_>) -> Result<Vec<TableComment>> {
    if tokens.is(0, "create") && !tokens.is(1, "database") {
        return create_table(tokens);
    }
    rewrite_others(tokens).map(|()| vec![])
}

fn rewrite_others(tokens: &mut Tokens<'_>) -> Result<()> {
    if tokens.is(0, "from") {
        return from_first(tokens);
    }
    if tokens.is_one_of(0, &["create", "drop"]) && tokens.is(1, "database") {
        // What has tables in it is a schema here.
        tokens.replace(1..2, [word("SCHEMA")]);
        return Ok(());
    }
    if tokens.is(0, "alter") {
        return alter_table(tokens);
    }
    Ok(())
}

/// The places of words outside of parentheses.
fn top_level(tokens: &Tokens<'_>, word: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens.is_token(at, &Token::LParen) {
            at = tokens.after_parentheses(at).unwrap_or(tokens.len());
            continue;
        }
        if tokens.is(at, word) {
            found.push(at);
        }
        at += 1;
    }
    found
}

/// `FROM … [INSERT …] SELECT …`, with FROM behind the select list.
fn from_first(tokens: &mut Tokens<'_>) -> Result<()> {
    const ENDS: [&str; 12] = [
        "where",
        "group",
        "having",
        "window",
        "order",
        "sort",
        "cluster",
        "distribute",
        "limit",
        "union",
        "intersect",
        "except",
    ];
    let inserts = top_level(tokens, "insert");
    if inserts.len() > 1 {
        return Err(refuse("several INSERT of one FROM are not supported"));
    }
    let selects = top_level(tokens, "select");
    let begin = inserts.first().or(selects.first()).copied();
    let select = selects.iter().find(|select| Some(**select) >= begin);
    let (Some(begin), Some(select)) = (begin, select) else { return Err(syntax_error_near(&Token::EOF)) };
    let ends = ENDS.iter().flat_map(|word| top_level(tokens, word)).filter(|at| at > select);
    let end = ends.min().unwrap_or((0..tokens.len()).rfind(|at| !tokens.ends_at(*at)).map_or(0, |at| at + 1));
    let from: Vec<Token> = (0..begin).filter_map(|at| tokens.token(at).cloned()).collect();
    tokens.edit(vec![Edit::remove(0..begin), Edit::insert(end, from)]);
    Ok(())
}

fn create_table(tokens: &mut Tokens<'_>) -> Result<Vec<TableComment>> {
    let Some(table) = (1..4).find(|at| tokens.is(*at, "table")) else { return Ok(vec![]) };
    let mut comments = Vec::new();
    let mut edits = Vec::new();
    let is_external = (1..table).any(|at| tokens.is(at, "external"));
    let mut name = table + 1;
    while tokens.is_one_of(name, &["if", "not", "exists"]) {
        name += 1;
    }
    let mut at = tokens.after_name(name);
    let columns = tokens.after_parentheses(at).filter(|_| tokens.is_token(at, &Token::LParen));
    if let Some(end) = columns {
        column_comments(tokens, at..end, &mut comments, &mut edits);
        at = end;
    }
    if tokens.is(at, "like") {
        let end = tokens.after_name(at + 1);
        edits.push(Edit::insert(at, [Token::LParen]));
        edits.push(Edit::insert(end, [Token::RParen]));
        at = end;
    }
    loop {
        let start = at;
        if tokens.are(at, &["partitioned", "by"]) {
            let open = at + 2;
            let end = tokens.after_parentheses(open).ok_or_else(|| syntax_error_near(&Token::EOF))?;
            at = end;
            let Some(list) = columns else { continue };
            let mut definitions = tokens.part(open..end);
            let mut removed = Vec::new();
            column_comments(&definitions, 0..definitions.len(), &mut comments, &mut removed);
            definitions.edit(removed);
            let count = definitions.len();
            let definitions: Vec<Token> =
                definitions.iter().skip(1).take(count.saturating_sub(2)).cloned().collect();
            let Some(names) = names_of(&definitions) else { continue };
            // In Hive these are columns of their own.
            let added = [Token::Comma].into_iter().chain(definitions);
            edits.push(Edit::insert(list - 1, added.collect::<Vec<_>>()));
            edits.push(Edit::replace(open + 1..end - 1, names));
            continue;
        }
        if is_external {
            break;
        }
        if tokens.are(at, &["stored", "as"]) {
            at += match tokens.is(at + 2, "inputformat") {
                true => 6,
                false => 3,
            };
        } else if tokens.are(at, &["stored", "by"]) {
            return Err(refuse("STORED BY is not supported"));
        } else if tokens.are(at, &["row", "format"]) {
            at = after_row_format(tokens, at + 2);
        } else if tokens.is(at, "tblproperties") {
            at = tokens.after_parentheses(at + 1).ok_or_else(|| syntax_error_near(&Token::EOF))?;
        } else if tokens.are(at, &["clustered", "by"]) || tokens.are(at, &["skewed", "by"]) {
            return Err(refuse("CLUSTERED BY and SKEWED BY are not supported"));
        } else if tokens.is(at, "location") {
            return Err(refuse("LOCATION is of CREATE EXTERNAL TABLE alone"));
        } else if tokens.is(at, "comment")
            && let Some(Token::SingleQuotedString(text)) = tokens.token(at + 1)
        {
            comments.push(TableComment { column: None, text: text.clone() });
            at += 2;
        } else {
            break;
        }
        edits.push(Edit::remove(start..at));
    }
    if is_external && !comments.is_empty() {
        return Err(refuse("COMMENT is not supported in CREATE EXTERNAL TABLE"));
    }
    tokens.edit(edits);
    Ok(comments)
}

/// Takes `COMMENT 'text'` out of column definitions in parentheses.
fn column_comments(
    tokens: &Tokens<'_>,
    range: std::ops::Range<usize>,
    comments: &mut Vec<TableComment>,
    edits: &mut Vec<Edit>,
) {
    let (mut depth, mut column, mut is_start) = (0_i32, None, true);
    for at in range {
        match tokens.token(at) {
            Some(Token::LParen | Token::Lt) => depth += 1,
            Some(Token::RParen | Token::Gt) => depth -= 1,
            Some(Token::ShiftRight) => depth -= 2,
            Some(Token::Comma) if depth == 1 => is_start = true,
            Some(Token::Word(_)) if is_start && depth == 1 => {
                column = tokens.name(at).map(|name| name.to_lowercase());
                is_start = false;
            }
            Some(Token::Word(_)) if depth == 1 && tokens.is(at, "comment") => {
                if let Some(Token::SingleQuotedString(text)) = tokens.token(at + 1) {
                    comments.push(TableComment { column: column.clone(), text: text.clone() });
                    edits.push(Edit::remove(at..at + 2));
                }
            }
            _ => {}
        }
    }
}

/// The names of column definitions, with commas between; `None` if they have no types.
fn names_of(definitions: &[Token]) -> Option<Vec<Token>> {
    let mut names: Vec<Token> = Vec::new();
    let (mut depth, mut is_start, mut has_types) = (0_i32, true, false);
    for token in definitions {
        match token {
            Token::LParen | Token::Lt => depth += 1,
            Token::RParen | Token::Gt => depth -= 1,
            Token::ShiftRight => depth -= 2,
            Token::Comma if depth == 0 => {
                names.push(Token::Comma);
                is_start = true;
            }
            Token::Word(_) if is_start => {
                names.push(token.clone());
                is_start = false;
            }
            _ => has_types = true,
        }
    }
    has_types.then_some(names)
}

/// What follows `ROW FORMAT`.
fn after_row_format(tokens: &Tokens<'_>, mut at: usize) -> usize {
    if tokens.is(at, "serde") {
        at += 2;
        if tokens.are(at, &["with", "serdeproperties"]) {
            at = tokens.after_parentheses(at + 2).unwrap_or(at + 2);
        }
        return at;
    }
    const WORDS: [&str; 14] = [
        "delimited",
        "fields",
        "terminated",
        "by",
        "escaped",
        "collection",
        "items",
        "map",
        "keys",
        "lines",
        "null",
        "defined",
        "as",
        "textfile",
    ];
    // Its words and texts; STORED begins the next clause.
    while tokens.is_one_of(at, &WORDS) || matches!(tokens.token(at), Some(Token::SingleQuotedString(_))) {
        at += 1;
    }
    at
}

/// `ALTER TABLE t ADD COLUMNS (a INT, b INT)`, as one ADD COLUMN after the other.
fn alter_table(tokens: &mut Tokens<'_>) -> Result<()> {
    if !tokens.is(1, "table") {
        return Ok(());
    }
    let at = tokens.after_name(2);
    if !tokens.are(at, &["add", "columns"]) {
        return Ok(());
    }
    let open = at + 2;
    let end = tokens.after_parentheses(open).ok_or_else(|| syntax_error_near(&Token::EOF))?;
    let add = || ["ADD", "COLUMN"].map(word);
    let mut written: Vec<Token> = add().to_vec();
    let mut depth = 0_i32;
    for place in open + 1..end - 1 {
        let Some(token) = tokens.token(place) else { break };
        match token {
            Token::LParen | Token::Lt => depth += 1,
            Token::RParen | Token::Gt => depth -= 1,
            Token::ShiftRight => depth -= 2,
            _ if depth == 0 && tokens.is(place, "comment") => {
                return Err(refuse("COMMENT of a column is not supported in ALTER TABLE"));
            }
            _ => {}
        }
        written.push(token.clone());
        if *token == Token::Comma && depth == 0 {
            written.extend(add());
        }
    }
    tokens.edit(vec![Edit::replace(at..end, written)]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hive::dialect::HiveSqlDialect;

    #[test]
    fn clauses_are_moved() {
        for (text, expected) in [
            (
                "CREATE TABLE IF NOT EXISTS s.t (a int COMMENT 'x', b map<int,int>) COMMENT 'y' \
                 PARTITIONED BY (d string, e decimal(3,1)) \
                 ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE TBLPROPERTIES ('a' = 'b')",
                "CREATE TABLE IF NOT EXISTS s . t ( a int , b map < int , int > , \
                 d string , e decimal ( 3 , 1 ) ) \
                 PARTITIONED BY ( d , e )",
            ),
            ("CREATE TABLE t STORED AS ORC AS SELECT 1", "CREATE TABLE t AS SELECT 1"),
            (
                "FROM (SELECT 1 AS a) t INSERT OVERWRITE TABLE u SELECT a WHERE a > 0",
                "INSERT OVERWRITE TABLE u SELECT a FROM ( SELECT 1 AS a ) t WHERE a > 0",
            ),
            ("CREATE TABLE t LIKE s.u STORED AS ORC", "CREATE TABLE t ( LIKE s . u )"),
            ("DROP DATABASE IF EXISTS d", "DROP SCHEMA IF EXISTS d"),
            ("FROM t SELECT a;", "SELECT a FROM t ;"),
            (
                "ALTER TABLE t ADD COLUMNS (a int, b decimal(2,1))",
                "ALTER TABLE t ADD COLUMN a int , ADD COLUMN b decimal ( 2 , 1 )",
            ),
        ] {
            let mut tokens = Tokens::of(text, &HiveSqlDialect).unwrap();
            rewrite(&mut tokens).unwrap();
            let shown: Vec<String> = tokens.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), expected);
        }
        for refused in
            ["CREATE TABLE t (a int) LOCATION 'x'", "FROM t INSERT INTO a SELECT 1 INSERT INTO b SELECT 2"]
        {
            assert!(rewrite(&mut Tokens::of(refused, &HiveSqlDialect).unwrap()).is_err(), "{refused}");
        }
    }
}
