//! Statements about the files of tables: OPTIMIZE, CHECK TABLE and VACUUM DRY RUN.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

/// `OPTIMIZE [TABLE] [name]`: the small files of a table become large ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptimizeStatement {
    pub table: Option<ObjectName>,
}

/// `CHECK TABLE name`: whether its files are there and what the catalog says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckTableStatement {
    pub table: ObjectName,
}

/// The OPTIMIZE that the statement is.
///
/// Errors: it is one and wrong (42601).
pub fn parse_optimize(tokens: &Tokens<'_>) -> Result<Option<OptimizeStatement>> {
    if !tokens.is(0, "optimize") {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    words.expect("optimize")?;
    let has_table = words.take("table");
    let is_end = matches!(words.0.peek_token().token, Token::EOF | Token::SemiColon);
    let table = if is_end && !has_table { None } else { Some(words.object()?) };
    words.end()?;
    Ok(Some(OptimizeStatement { table }))
}

/// The CHECK TABLE that the statement is.
///
/// Errors: it is one and wrong (42601).
pub fn parse_check_table(tokens: &Tokens<'_>) -> Result<Option<CheckTableStatement>> {
    if !tokens.are(0, &["check", "table"]) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    let _ = words.take_all(&["check", "table"]);
    let table = words.object()?;
    words.end()?;
    Ok(Some(CheckTableStatement { table }))
}

/// Whether the statement is VACUUM DRY RUN: which files VACUUM would remove.
pub fn is_vacuum_dry_run(tokens: &Tokens<'_>) -> bool {
    tokens.are(0, &["vacuum", "dry", "run"]) && tokens.ends_at(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn tokens(text: &str) -> Tokens<'_> {
        Tokens::of(text, &SqlDialect).unwrap()
    }

    #[test]
    fn tables_are_optimized() {
        for (text, expected) in [
            ("OPTIMIZE", Some(None)),
            ("OPTIMIZE;", Some(None)),
            ("optimize table s.t", Some(Some("s.t"))),
            ("OPTIMIZE \"T\"", Some(Some("\"T\""))),
            ("SELECT optimize", None),
        ] {
            let found = parse_optimize(&tokens(text)).unwrap();
            let table = found.map(|found| found.table.map(|table| table.to_string()));
            assert_eq!(table, expected.map(|table| table.map(str::to_string)), "{text}");
        }
        for text in ["OPTIMIZE TABLE", "OPTIMIZE a b", "OPTIMIZE 1"] {
            let error = parse_optimize(&tokens(text)).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), "42601", "{text}");
        }
    }

    #[test]
    fn tables_are_checked() {
        let found = parse_check_table(&tokens("CHECK TABLE s.t;")).unwrap();
        assert_eq!(found.map(|found| found.table.to_string()).as_deref(), Some("s.t"));
        assert_eq!(parse_check_table(&tokens("CHECK (a > 1)")).unwrap(), None);
        for text in ["CHECK TABLE", "CHECK TABLE a, b", "CHECK TABLE a b"] {
            let error = parse_check_table(&tokens(text)).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), "42601", "{text}");
        }
    }

    #[test]
    fn dry_runs_are_found() {
        for (text, expected) in [
            ("VACUUM DRY RUN", true),
            ("vacuum dry run;", true),
            ("VACUUM dry", false),
            ("VACUUM DRY RUN t", false),
        ] {
            assert_eq!(is_vacuum_dry_run(&tokens(text)), expected, "{text}");
        }
    }
}
