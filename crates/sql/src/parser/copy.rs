//! Parser of COPY in PostgreSQL's syntax.

use datafusion::error::Result;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, ObjectName, Query, SelectItem};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{IsOptional, Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::ast_builder::{query_of, select_star, table_named};
use crate::desugar::{self, result_columns};
use crate::file_names::{EXTENSIONS, STREAM};
use crate::nesting;
use crate::tokens::Tokens;
use harrier_functions::parse::datetime::DateOrder;

/// A COPY statement.
#[derive(Debug, Clone)]
pub struct Copy {
    pub source: CopySource,
    pub direction: Direction,
    /// File name or URL; `None` for STDIN or STDOUT.
    pub file: Option<String>,
    pub options: CopyOptions,
}

impl Copy {
    /// Desugars the query and the file names for the planner. `order` is the order of day, month and year in
    /// literals.
    ///
    /// Errors: as [`desugar::prepare_query`].
    pub fn prepare(&mut self, order: DateOrder) -> Result<()> {
        match &mut self.source {
            CopySource::Query(query) => {
                desugar::prepare_query(query, order)?;
                result_columns::prepare_query(query);
            }
            CopySource::Table { name, .. } => result_columns::mark_file(name),
        }
        Ok(())
    }

    /// The query that COPY TO exports, if it has one.
    pub fn query_mut(&mut self) -> Option<&mut Query> {
        match &mut self.source {
            CopySource::Query(query) => Some(query),
            CopySource::Table { .. } => None,
        }
    }
}

#[derive(Debug, Clone)]
pub enum CopySource {
    Table { name: ObjectName, columns: Vec<Ident> },
    Query(Box<Query>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    From,
    To,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOptions {
    pub format: Option<CopyFormat>,
    pub header: Option<Header>,
    pub delimiter: Option<u8>,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub null: Option<String>,
    pub compression: Option<String>,
    pub on_error: OnError,
    pub reject_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// Tab-separated fields, `\N` for NULL, backslash escapes.
    Text,
    Csv,
    /// PostgreSQL's binary format, only over its protocol.
    Binary,
    Json,
    Parquet,
    Orc,
    Avro,
    Arrow,
}

impl CopyFormat {
    /// The format by its name in SQL and in the file readers.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "text" => Self::Text,
            "csv" => Self::Csv,
            "binary" => Self::Binary,
            "json" => Self::Json,
            "parquet" => Self::Parquet,
            "orc" => Self::Orc,
            "avro" => Self::Avro,
            "arrow" => Self::Arrow,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Csv => "csv",
            Self::Binary => "binary",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Orc => "orc",
            Self::Avro => "avro",
            Self::Arrow => "arrow",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Absent,
    Present,
    /// HEADER MATCH: it must name the columns.
    Matching,
}

/// An option of files in [`CopyFormat::Text`] that selects another row-oriented format.
pub const LAYOUT: &str = "layout";

/// Codecs inside of file formats; not all formats have them.
const CODECS: &[&str] = &["deflate", "lz4", "snappy", "zlib"];

/// The options of [`set_option`].
const OPTIONS_HINT: &str = "COPY has FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE, ENCODING, COMPRESSION, \
                            ON_ERROR and REJECT_LIMIT; what else a format has, COPY … TO takes behind STORED \
                            AS a format, in OPTIONS (…)";

/// The action for a row with a value that does not fit its column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    #[default]
    Stop,
    /// Skip and count the row.
    Ignore,
}

/// Parses a COPY; `None` for other statements, and for DataFusion's COPY (`STORED AS`, `PARTITIONED BY`,
/// `OPTIONS`).
///
/// Errors: it is malformed (42601) or not supported (0A000).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<Copy>> {
    if !tokens.is(0, "copy") {
        return Ok(None);
    }
    let mut parser = tokens.parser(nesting::NESTING_MAX);
    parser.expect_keyword(Keyword::COPY)?;
    let mut source = match source(&mut parser) {
        Ok(source) => source,
        Err(_) => return Ok(None),
    };
    let direction = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::TO]) {
        Some(Keyword::FROM) => Direction::From,
        Some(_) => Direction::To,
        None => return Ok(None),
    };
    if direction == Direction::From && matches!(source, CopySource::Query(_)) {
        return Err(syntax_error("COPY FROM needs a table, not a query"));
    }
    let file = match () {
        // PostgreSQL accepts either for the client, in both directions.
        () if parser.parse_one_of_keywords(&[Keyword::STDIN, Keyword::STDOUT]).is_some() => None,
        () if parser.parse_keyword(Keyword::PROGRAM) => {
            return Err(unsupported_error("COPY from or to a program is not supported"));
        }
        () => Some(parser.parse_literal_string()?),
    };
    let datafusion = [Keyword::STORED, Keyword::PARTITIONED, Keyword::OPTIONS];
    if direction == Direction::To && datafusion.iter().any(|word| parser.peek_keyword(*word)) {
        return Ok(None);
    }
    let options = options(&mut parser)?;
    check_codec(&options, file.as_deref())?;
    if parser.peek_keyword(Keyword::WHERE) {
        return Err(unsupported_error("COPY … WHERE is not supported"));
    }
    match parser.next_token().token {
        Token::EOF | Token::SemiColon => {}
        other => return Err(syntax_error(format!("syntax error at or near \"{other}\""))),
    }
    if let CopySource::Query(query) = &mut source {
        nesting::balance(query)?;
    }
    Ok(Some(Copy { source, direction, file, options }))
}

/// The index of the COPY that an EXPLAIN explains; `None` for other statements.
pub fn explained_at(tokens: &Tokens<'_>) -> Option<usize> {
    if !tokens.is(0, "explain") {
        return None;
    }
    let mut at = if tokens.is_token(1, &Token::LParen) { tokens.after_parentheses(1)? } else { 1 };
    loop {
        at += match () {
            () if tokens.is_one_of(at, &["analyze", "verbose"]) => 1,
            () if tokens.is(at, "format") => 2,
            () => return tokens.is(at, "copy").then_some(at),
        };
    }
}

/// The statement that EXPLAIN of a COPY explains: of COPY TO STDOUT, its query.
///
/// Errors: it is COPY FROM, or the format is not for files (0A000).
pub fn statement_to_explain(copy: &Copy) -> Result<Statement> {
    if copy.direction == Direction::From {
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "EXPLAIN of COPY FROM is not supported")
            .with_hint("EXPLAIN INSERT INTO a table SELECT * FROM 'file'")
            .into_datafusion());
    }
    match to_file(copy)? {
        Some(statement) => Ok(statement),
        None => as_query(&copy.source),
    }
}

/// The rows that COPY TO exports, as a query.
pub fn as_query(source: &CopySource) -> Result<Statement> {
    let query = match source {
        CopySource::Query(query) => query.clone(),
        CopySource::Table { name, columns } => {
            let item = |column: &Ident| SelectItem::UnnamedExpr(Expr::Identifier(column.clone()));
            Box::new(match columns.is_empty() {
                true => select_star(table_named(name)),
                false => query_of(columns.iter().map(item).collect(), table_named(name)),
            })
        }
    };
    Ok(Statement::Statement(Box::new(ast::Statement::Query(query))))
}

/// Converts COPY TO a file to DataFusion's COPY; `None` for another COPY.
///
/// Errors: the format is not for files (0A000).
pub fn to_file(copy: &Copy) -> Result<Option<Statement>> {
    let (Direction::To, Some(target)) = (copy.direction, &copy.file) else {
        return Ok(None);
    };
    let given = &copy.options;
    if given.format == Some(CopyFormat::Binary) {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "COPY does not write files in format binary",
        )
        .with_hint("FORMAT text or csv, or COPY … TO STDOUT")
        .into_datafusion());
    }
    let extension = target.rsplit('/').next().unwrap_or(target).rsplit_once('.');
    let is_called =
        |known: &str| extension.is_some_and(|(_, extension)| extension.eq_ignore_ascii_case(known));
    // The format that reads files with this extension: `.jsonl`, `.tsv`.
    let read_by = match given.format {
        Some(_) => None,
        None => EXTENSIONS
            .iter()
            .find(|(known, format, _)| known != format && *known != STREAM && is_called(known)),
    };
    let format = given
        .format
        .or_else(|| is_called("txt").then_some(CopyFormat::Text))
        .or_else(|| read_by.and_then(|(_, format, _)| CopyFormat::of(format)));
    let is_in = |known: CopyFormat| format == Some(known) || format.is_none() && is_called(known.name());
    let is_parquet = is_in(CopyFormat::Parquet);
    // DataFusion's formats of these names differ from those of COPY TO STDOUT.
    let own = [CopyFormat::Csv, CopyFormat::Json].into_iter().find(|known| is_in(*known));
    let source = match &copy.source {
        CopySource::Table { name, columns } if columns.is_empty() => CopyToSource::Relation(name.clone()),
        source => match as_query(source)? {
            Statement::Statement(statement) => match *statement {
                ast::Statement::Query(query) => CopyToSource::Query(query),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        },
    };
    let mut options = Vec::new();
    let mut set = |name: &str, value: String| {
        options.push((format!("format.{name}"), ast::Value::SingleQuotedString(value)));
    };
    let byte = |byte: u8| char::from(byte).to_string();
    if let Some(own) = own {
        set(LAYOUT, own.name().to_string());
    }
    if let Some(header) = given.header {
        set("has_header", (header != Header::Absent).to_string());
    }
    let tab = read_by.is_some_and(|(_, format, _)| *format == "csv").then_some(b'\t');
    given.delimiter.or(tab).into_iter().for_each(|value| set("delimiter", byte(value)));
    given.quote.into_iter().for_each(|value| set("quote", byte(value)));
    given.escape.into_iter().for_each(|value| set("escape", byte(value)));
    given.null.iter().for_each(|value| set("null_value", value.clone()));
    let codec = |value: &String| match value.as_str() {
        "" if is_parquet => "uncompressed".to_string(),
        "gz" if is_parquet => "gzip(6)".to_string(),
        "zst" if is_parquet => "zstd(3)".to_string(),
        _ => value.clone(),
    };
    given.compression.iter().for_each(|value| set("compression", codec(value)));
    Ok(Some(Statement::CopyTo(CopyToStatement {
        source,
        target: target.clone(),
        partitioned_by: vec![],
        stored_as: own.map(|_| CopyFormat::Text).or(format).map(|format| format.name().to_uppercase()),
        options,
    })))
}

fn source(parser: &mut Parser<'_>) -> Result<CopySource, ParserError> {
    if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        return Ok(CopySource::Query(query));
    }
    let name = parser.parse_object_name(false)?;
    let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
    Ok(CopySource::Table { name, columns })
}

/// Parses options in parentheses, or without them in the syntax before PostgreSQL 9.
fn options(parser: &mut Parser<'_>) -> Result<CopyOptions> {
    let mut options = CopyOptions::default();
    let _ = parser.parse_keyword(Keyword::WITH);
    if parser.consume_token(&Token::LParen) {
        loop {
            let name = parser.parse_identifier()?.value.to_ascii_lowercase();
            let value = match parser.peek_token().token {
                Token::Comma | Token::RParen => None,
                _ => Some(value(parser)?),
            };
            set_option(&mut options, &name, value)?;
            if parser.consume_token(&Token::RParen) {
                break;
            }
            parser.expect_token(&Token::Comma)?;
        }
        return check(options);
    }
    while let Token::Word(word) = parser.peek_token().token {
        let name = word.value.to_ascii_lowercase();
        match name.as_str() {
            "csv" | "text" | "binary" => {
                parser.next_token();
                set_option(&mut options, "format", Some(name))?;
            }
            "header" => {
                parser.next_token();
                set_option(&mut options, &name, None)?;
            }
            "delimiter" | "null" | "quote" | "escape" => {
                parser.next_token();
                let _ = parser.parse_keyword(Keyword::AS);
                let value = value(parser)?;
                set_option(&mut options, &name, Some(value))?;
            }
            _ => break,
        }
    }
    check(options)
}

fn value(parser: &mut Parser<'_>) -> Result<String> {
    match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
        Token::Word(word) => Ok(word.value),
        Token::Number(number, _) => Ok(number),
        other => Err(syntax_error(format!("syntax error at or near \"{other}\""))),
    }
}

fn set_option(options: &mut CopyOptions, name: &str, value: Option<String>) -> Result<()> {
    let text = || value.clone().ok_or_else(|| syntax_error(format!("option \"{name}\" needs a value")));
    match name {
        "format" => {
            let text = text()?;
            options.format = Some(
                CopyFormat::of(&text)
                    .ok_or_else(|| invalid_value_error(format!("COPY format \"{text}\" not recognized")))?,
            );
        }
        "header" => {
            options.header = Some(match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
                None | Some("true" | "on" | "1") => Header::Present,
                Some("false" | "off" | "0") => Header::Absent,
                Some("match") => Header::Matching,
                Some(_) => return Err(invalid_value_error("header requires a Boolean value or \"match\"")),
            });
        }
        "delimiter" => options.delimiter = Some(byte(name, &text()?)?),
        "quote" => options.quote = Some(byte(name, &text()?)?),
        "escape" => options.escape = Some(byte(name, &text()?)?),
        "null" => options.null = Some(text()?),
        "encoding" => {
            let text = text()?;
            if !["utf8", "utf-8"].iter().any(|known| text.eq_ignore_ascii_case(known)) {
                return Err(unsupported_error(format!("encoding \"{text}\" is not supported: only UTF8 is")));
            }
        }
        "compression" => {
            let text = text()?.to_ascii_lowercase();
            options.compression = match text.as_str() {
                "none" => Some(String::new()),
                "gzip" | "gz" => Some("gz".to_string()),
                "bzip2" | "bz2" => Some("bz2".to_string()),
                "xz" => Some("xz".to_string()),
                "zstd" | "zst" => Some("zst".to_string()),
                codec if CODECS.contains(&codec) => Some(codec.to_string()),
                other => return Err(invalid_value_error(format!("compression \"{other}\" not recognized"))),
            };
        }
        "on_error" => {
            options.on_error = match text()?.to_ascii_lowercase().as_str() {
                "stop" => OnError::Stop,
                "ignore" => OnError::Ignore,
                other => {
                    return Err(invalid_value_error(format!("COPY ON_ERROR \"{other}\" not recognized")));
                }
            };
        }
        "reject_limit" => {
            let text = text()?;
            let limit = text.parse().ok().filter(|limit| *limit > 0);
            let bad = || {
                invalid_value_error(format!("REJECT_LIMIT ({text}) must be a whole number greater than zero"))
            };
            options.reject_limit = Some(limit.ok_or_else(bad)?);
        }
        // No effect: there is no write-ahead log of rows.
        "freeze" => {}
        "log_verbosity" => {}
        "force_quote" | "force_not_null" | "force_null" | "default" => {
            return Err(unsupported_error(format!("COPY option \"{name}\" is not supported")));
        }
        other => {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("option \"{other}\" not recognized"))
                .with_hint(OPTIONS_HINT)
                .into_datafusion());
        }
    }
    Ok(())
}

/// Errors: the file's format does not have the codec (22023).
fn check_codec(options: &CopyOptions, file: Option<&str>) -> Result<()> {
    let Some(codec) = options.compression.as_deref().filter(|codec| CODECS.contains(codec)) else {
        return Ok(());
    };
    let extension = || CopyFormat::of(file?.rsplit_once('.')?.1);
    match options.format.or_else(extension) {
        Some(CopyFormat::Avro | CopyFormat::Orc | CopyFormat::Parquet) => Ok(()),
        _ => Err(invalid_value_error(format!("compression \"{codec}\" is for FORMAT avro, orc or parquet"))),
    }
}

fn check(options: CopyOptions) -> Result<CopyOptions> {
    if options.format == Some(CopyFormat::Binary) {
        let given = [
            ("DELIMITER", options.delimiter.is_some()),
            ("NULL", options.null.is_some()),
            ("HEADER", options.header.is_some_and(|header| header != Header::Absent)),
            ("QUOTE", options.quote.is_some()),
            ("ESCAPE", options.escape.is_some()),
            ("COMPRESSION", options.compression.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(syntax_error(format!("cannot specify {name} in BINARY mode")));
        }
        if options.on_error == OnError::Ignore {
            return Err(syntax_error("only ON_ERROR STOP is allowed in BINARY mode"));
        }
    }
    if options.reject_limit.is_some() && options.on_error != OnError::Ignore {
        return Err(invalid_value_error("COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE"));
    }
    if options.delimiter.is_some() && options.delimiter == options.quote {
        return Err(invalid_value_error("COPY delimiter and quote must be different"));
    }
    Ok(options)
}

/// Parses a one-byte character, which may be written `\t`.
pub fn byte(name: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] if !matches!(byte, b'\n' | b'\r' | 0x80..) => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err(invalid_value_error(format!("COPY {name} must be a single one-byte character"))),
    }
}

fn syntax_error(message: impl Into<String>) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

fn invalid_value_error(message: impl Into<String>) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
}

fn unsupported_error(message: impl Into<String>) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    fn parse(text: &str) -> Result<Option<Copy>> {
        super::parse(&Tokens::of(text, &SqlDialect).unwrap())
    }

    #[test]
    fn statements_are_read() {
        let copy = |text: &str| parse(text).unwrap().unwrap();
        let one = copy("copy t (a, \"B\") from stdin with (format csv, header, delimiter ';', null 'x')");
        assert_eq!((one.direction, one.file), (Direction::From, None));
        assert_eq!(one.options.format, Some(CopyFormat::Csv));
        assert_eq!(one.options.header, Some(Header::Present));
        assert_eq!((one.options.delimiter, one.options.null.as_deref()), (Some(b';'), Some("x")));
        assert!(matches!(one.source, CopySource::Table { columns, .. } if columns.len() == 2));
        let two = copy("COPY s.t FROM 'x.csv' DELIMITER AS '|' NULL AS '' CSV HEADER");
        assert_eq!(two.file.as_deref(), Some("x.csv"));
        assert_eq!(two.options.delimiter, Some(b'|'));
        let three = copy("COPY (SELECT 1) TO STDOUT");
        assert_eq!((three.direction, three.file), (Direction::To, None));
        let four = copy("COPY t FROM 'x' (ON_ERROR ignore, REJECT_LIMIT 3, DELIMITER E'\\t')");
        assert_eq!((four.options.on_error, four.options.reject_limit), (OnError::Ignore, Some(3)));
        assert_eq!(four.options.delimiter, Some(b'\t'));
        let five = copy("COPY t TO 'x.avro' WITH (FORMAT avro, COMPRESSION Snappy)");
        assert_eq!(five.options.compression.as_deref(), Some("snappy"));
        let six = copy("COPY t TO 'a/x.PARQUET' WITH (COMPRESSION snappy)");
        assert_eq!((six.options.format, six.options.compression.as_deref()), (None, Some("snappy")));
        for other in ["SELECT 1", "COPY t TO 'x' STORED AS CSV", "COPY t TO 'x' PARTITIONED BY (a)", "COPY"] {
            assert!(parse(other).unwrap().is_none(), "{other}");
        }
    }

    #[test]
    fn csv_and_json_are_written_as_text() {
        for (text, format, layout) in [
            ("COPY t TO 'x.csv'", Some("TEXT"), Some("csv")),
            ("COPY t TO 'x' WITH (FORMAT json)", Some("TEXT"), Some("json")),
            ("COPY t TO 'x.csv' WITH (FORMAT text)", Some("TEXT"), None),
            ("COPY t TO 'x.txt'", Some("TEXT"), None),
            ("COPY t TO 'x.parquet'", None, None),
        ] {
            let statement = to_file(&parse(text).unwrap().unwrap()).unwrap();
            let Some(Statement::CopyTo(copy)) = statement else { panic!("{text}") };
            let given = copy.options.iter().find(|(name, _)| name == "format.layout");
            assert_eq!(copy.stored_as.as_deref(), format, "{text}");
            let layout = layout.map(|name: &str| ast::Value::SingleQuotedString(name.to_string()));
            assert_eq!(given.map(|(_, value)| value), layout.as_ref(), "{text}");
        }
    }

    #[test]
    fn explained_copies_are_found() {
        let at = |text: &str| explained_at(&Tokens::of(text, &SqlDialect).unwrap());
        for (text, expected) in [
            ("EXPLAIN COPY t TO 'x'", Some(1)),
            ("explain analyze verbose copy t TO 'x'", Some(3)),
            ("EXPLAIN FORMAT tree COPY t TO 'x'", Some(3)),
            ("EXPLAIN (ANALYZE, FORMAT json) COPY t TO 'x'", Some(7)),
            ("EXPLAIN (SELECT 1)", None),
            ("EXPLAIN SELECT 1", None),
            ("EXPLAIN FORMAT", None),
            ("COPY t TO 'x'", None),
        ] {
            assert_eq!(at(text), expected, "{text}");
        }
        let state = |text: &str| {
            let error = statement_to_explain(&parse(text).unwrap().unwrap()).unwrap_err();
            harrier_sqlstate::of(&error).as_str().to_string()
        };
        assert_eq!(state("COPY t FROM 'x.csv'"), "0A000");
        assert_eq!(state("COPY t TO 'x' WITH (FORMAT binary)"), "0A000");
        let rows = statement_to_explain(&parse("COPY t TO STDOUT").unwrap().unwrap()).unwrap();
        assert_eq!(rows.to_string(), "SELECT * FROM t");
    }

    #[test]
    fn errors_are_reported() {
        for (text, state) in [
            ("COPY t FROM", "42601"),
            ("COPY (SELECT 1) FROM STDIN", "42601"),
            ("COPY t FROM 'x' WITH (FORMAT nosuch)", "22023"),
            ("COPY t TO 'x' WITH (FORMAT binary, HEADER)", "42601"),
            ("COPY t FROM STDIN BINARY DELIMITER ','", "42601"),
            ("COPY t FROM 'x' WITH (DELIMITER 'ab')", "22023"),
            ("COPY t FROM 'x' WITH (NOSUCH 1)", "42601"),
            ("COPY t FROM 'x' WITH (REJECT_LIMIT 1)", "22023"),
            ("COPY t FROM 'x' CSV garbage", "42601"),
            ("COPY t TO 'x.csv' WITH (COMPRESSION snappy)", "22023"),
            ("COPY t FROM PROGRAM 'ls'", "0A000"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), state, "{text}: {error}");
        }
    }
}
