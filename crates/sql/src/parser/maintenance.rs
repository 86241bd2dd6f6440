//! Parser of statements about the files of tables: OPTIMIZE, CHECK TABLE and VACUUM.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

/// `OPTIMIZE [TABLE] [name]`: compacts small files into large ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptimizeStatement {
    pub table: Option<ObjectName>,
}

/// `CHECK TABLE name`: verifies that the files exist and match the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckTableStatement {
    pub table: ObjectName,
}

/// `VACUUM [(option, …)] [table [(column, …)], …]`: the small files of tables become large ones; without
/// tables, what nothing refers to goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VacuumStatement {
    /// With the columns that are analyzed; none stand for all.
    pub tables: Vec<(ObjectName, Vec<Ident>)>,
    /// Whether statistics are collected, too.
    pub analyzes: bool,
}

/// Parses an OPTIMIZE; `None` for other statements.
///
/// Errors: it is malformed (42601).
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

/// Parses a CHECK TABLE; `None` for other statements.
///
/// Errors: it is malformed (42601).
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

/// Whether the statement is VACUUM DRY RUN, which lists the files that VACUUM would remove.
pub fn is_vacuum_dry_run(tokens: &Tokens<'_>) -> bool {
    tokens.are(0, &["vacuum", "dry", "run"]) && tokens.ends_at(3)
}

/// The VACUUM that the statement is, unless that is VACUUM DRY RUN. Of PostgreSQL's options, those that say
/// how tables are rewritten change nothing.
///
/// Errors: it is one and wrong (42601), or names columns that it does not look at (0A000).
pub fn parse_vacuum(tokens: &Tokens<'_>) -> Result<Option<VacuumStatement>> {
    if !tokens.is(0, "vacuum") || is_vacuum_dry_run(tokens) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    words.expect("vacuum")?;
    let analyzes = match words.0.consume_token(&Token::LParen) {
        true => takes_analyze(&mut words)?,
        false => {
            for word in ["full", "freeze", "verbose"] {
                let _ = words.take(word);
            }
            words.take_any(&["analyze", "analyse"])
        }
    };
    let mut tables = Vec::new();
    if !matches!(words.0.peek_token().token, Token::EOF | Token::SemiColon) {
        loop {
            let (name, columns) = words.table_with_columns()?;
            if !analyzes && !columns.is_empty() {
                let message = "ANALYZE option must be specified when a column list is provided";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
            tables.push((name, columns));
            if !words.0.consume_token(&Token::Comma) {
                break;
            }
        }
    }
    words.end()?;
    Ok(Some(VacuumStatement { tables, analyzes }))
}

/// Takes the options behind an opening parenthesis; returns whether ANALYZE is one that is on.
fn takes_analyze(words: &mut StatementWords<'_>) -> Result<bool> {
    const SWITCHES: [&str; 9] = [
        "full",
        "freeze",
        "verbose",
        "disable_page_skipping",
        "skip_locked",
        "process_main",
        "process_toast",
        "truncate",
        "skip_database_stats",
    ];
    let wrong = |message: String| SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion();
    let mut analyzes = false;
    loop {
        let name = words.name()?.to_ascii_lowercase();
        let has_value = !matches!(words.0.peek_token().token, Token::Comma | Token::RParen);
        let value = has_value.then(|| words.value()).transpose()?;
        match name.as_str() {
            "index_cleanup" | "parallel" | "buffer_usage_limit" => {}
            name if matches!(name, "analyze" | "analyse") || SWITCHES.contains(&name) => {
                let is_on = match value.unwrap_or_default().to_ascii_lowercase().as_str() {
                    "" | "true" | "on" | "1" => true,
                    "false" | "off" | "0" => false,
                    _ => return Err(wrong(format!("{name} requires a Boolean value"))),
                };
                if !SWITCHES.contains(&name) {
                    analyzes = is_on;
                }
            }
            other => return Err(wrong(format!("unrecognized VACUUM option \"{other}\""))),
        }
        if !words.0.consume_token(&Token::Comma) {
            break;
        }
    }
    words.0.expect_token(&Token::RParen)?;
    Ok(analyzes)
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
    fn vacuums_are_read() {
        for (text, tables, analyzes) in [
            ("VACUUM", vec![], false),
            ("vacuum full;", vec![], false),
            ("VACUUM ANALYZE", vec![], true),
            ("VACUUM FULL FREEZE VERBOSE ANALYZE s.t", vec!["s.t"], true),
            ("VACUUM t, u", vec!["t", "u"], false),
            ("VACUUM (ANALYZE, VERBOSE) t (a, b), u", vec!["t(a b)", "u"], true),
            ("VACUUM (ANALYZE off, PARALLEL 2, index_cleanup auto, FULL true) t", vec!["t"], false),
        ] {
            let found = parse_vacuum(&tokens(text)).unwrap().unwrap();
            let names = found.tables.iter().map(|(name, columns)| match columns.is_empty() {
                true => name.to_string(),
                false => {
                    let columns: Vec<&str> = columns.iter().map(|column| column.value.as_str()).collect();
                    format!("{name}({})", columns.join(" "))
                }
            });
            assert_eq!(
                (names.collect::<Vec<_>>().join(" "), found.analyzes),
                (tables.join(" "), analyzes),
                "{text}"
            );
        }
        for text in ["VACUUM DRY RUN", "SELECT vacuum"] {
            assert_eq!(parse_vacuum(&tokens(text)).unwrap(), None, "{text}");
        }
        for (text, code) in [
            ("VACUUM (NOSUCH) t", "42601"),
            ("VACUUM () t", "42601"),
            ("VACUUM (FULL maybe) t", "42601"),
            ("VACUUM t u", "42601"),
            ("VACUUM t,", "42601"),
            ("VACUUM t (a)", "0A000"),
        ] {
            let error = parse_vacuum(&tokens(text)).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), code, "{text}");
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
