//! Parser of statements about indexes and constraints that sqlparser does not know.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::ObjectName;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

/// `REINDEX [(options)] kind [CONCURRENTLY] name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReindexStatement {
    pub kind: ReindexKind,
    pub name: ObjectName,
}

/// The object whose indexes are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReindexKind {
    Index,
    Table,
    Schema,
    /// Or SYSTEM, its catalogs.
    Database,
}

/// `ALTER INDEX IF EXISTS name RENAME TO to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenameIndexStatement {
    pub name: ObjectName,
    pub to: ObjectName,
}

/// `SET CONSTRAINTS names DEFERRED` or IMMEDIATE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetConstraintsStatement {
    /// `None`: ALL.
    pub names: Option<Vec<ObjectName>>,
    pub is_deferred: bool,
}

/// Drops CONCURRENTLY of DROP INDEX, which has no effect.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if tokens.are(0, &["drop", "index", "concurrently"]) {
        tokens.remove(2..3);
    }
}

/// Parses a REINDEX; `None` for other statements.
///
/// Errors: it is malformed (42601).
pub fn parse_reindex(tokens: &Tokens<'_>) -> Result<Option<ReindexStatement>> {
    if !tokens.is(0, "reindex") {
        return Ok(None);
    }
    // Options in parentheses have no effect.
    let kind = tokens.after_parentheses(1).filter(|end| *end > 2).unwrap_or(1);
    let mut words = StatementWords(tokens.part(kind..tokens.len()).parser(NESTING_MAX));
    let kind = match () {
        () if words.take("index") => ReindexKind::Index,
        () if words.take("table") => ReindexKind::Table,
        () if words.take("schema") => ReindexKind::Schema,
        () if words.take_any(&["database", "system"]) => ReindexKind::Database,
        () => {
            let message = "REINDEX of an index, table, schema or database";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
        }
    };
    let _ = words.take("concurrently");
    let name = words.object()?;
    words.end()?;
    Ok(Some(ReindexStatement { kind, name }))
}

/// Parses ALTER INDEX IF EXISTS … RENAME. Without IF EXISTS, sqlparser parses it.
///
/// Errors: it is malformed (42601).
pub fn parse_rename(tokens: &Tokens<'_>) -> Result<Option<RenameIndexStatement>> {
    const FIRST: [&str; 4] = ["alter", "index", "if", "exists"];
    if !tokens.are(0, &FIRST) || !tokens.is(tokens.after_name(FIRST.len()), "rename") {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let _ = words.take_all(&FIRST);
    let name = words.object()?;
    words.expect("rename")?;
    words.expect("to")?;
    let to = words.object()?;
    words.end()?;
    Ok(Some(RenameIndexStatement { name, to }))
}

/// Parses a SET CONSTRAINTS; `None` for other statements.
///
/// Errors: it is malformed (42601).
pub fn parse_set_constraints(tokens: &Tokens<'_>) -> Result<Option<SetConstraintsStatement>> {
    if !tokens.are(0, &["set", "constraints"]) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let _ = words.take_all(&["set", "constraints"]);
    let names = if words.take("all") { None } else { Some(words.objects()?) };
    let is_deferred = words.take("deferred");
    if !is_deferred {
        words.expect("immediate")?;
    }
    words.end()?;
    Ok(Some(SetConstraintsStatement { names, is_deferred }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;
    use crate::tokens::testing::edited_text;

    fn tokens(text: &str) -> Tokens<'_> {
        Tokens::of(text, &SqlDialect).unwrap()
    }

    fn is_wrong<T>(parsed: Result<T>) -> bool {
        parsed.is_err_and(|error| harrier_sqlstate::of(&error).as_str() == "42601")
    }

    #[test]
    fn reindex_is_parsed() {
        for (text, kind, name) in [
            ("REINDEX (VERBOSE) TABLE CONCURRENTLY s.t;", ReindexKind::Table, "s.t"),
            ("reindex index i", ReindexKind::Index, "i"),
            ("REINDEX SCHEMA \"S\"", ReindexKind::Schema, "\"S\""),
            ("REINDEX SYSTEM d", ReindexKind::Database, "d"),
        ] {
            let found = parse_reindex(&tokens(text)).unwrap().unwrap();
            assert_eq!((found.kind, found.name.to_string().as_str()), (kind, name), "{text}");
        }
        assert_eq!(parse_reindex(&tokens("SELECT reindex")).unwrap(), None);
        for text in ["REINDEX", "REINDEX i", "REINDEX TABLE", "REINDEX TABLE a b", "REINDEX (VERBOSE)"] {
            assert!(is_wrong(parse_reindex(&tokens(text))), "{text}");
        }
    }

    #[test]
    fn alter_index_if_exists_is_parsed() {
        let found = parse_rename(&tokens("ALTER INDEX IF EXISTS s.i RENAME TO \"J\"")).unwrap().unwrap();
        assert_eq!((found.name.to_string().as_str(), found.to.to_string().as_str()), ("s.i", "\"J\""));
        for text in ["ALTER INDEX i RENAME TO j", "ALTER INDEX IF EXISTS i SET (a = 1)"] {
            assert_eq!(parse_rename(&tokens(text)).unwrap(), None, "{text}");
        }
        assert!(is_wrong(parse_rename(&tokens("ALTER INDEX IF EXISTS i RENAME"))));
        assert_eq!(
            edited_text("DROP INDEX CONCURRENTLY IF EXISTS i", rewrite),
            edited_text("DROP INDEX IF EXISTS i", |_| ())
        );
    }

    #[test]
    fn set_constraints_is_parsed() {
        for (text, names, is_deferred) in [
            ("SET CONSTRAINTS ALL DEFERRED", None, true),
            ("set constraints s.a, \"B\" immediate;", Some("s.a, \"B\""), false),
        ] {
            let found = parse_set_constraints(&tokens(text)).unwrap().unwrap();
            let listed: Option<Vec<String>> =
                found.names.map(|names| names.iter().map(ToString::to_string).collect());
            assert_eq!(
                (listed.map(|names| names.join(", ")).as_deref(), found.is_deferred),
                (names, is_deferred)
            );
        }
        for text in ["SET CONSTRAINTS ALL", "SET CONSTRAINTS DEFERRED", "SET CONSTRAINTS a DEFERRED b"] {
            assert!(is_wrong(parse_set_constraints(&tokens(text))), "{text}");
        }
    }
}
