//! Parenthesized lists, and lists of table options.

use std::ops::Range;

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::byte_size::parse_file_bytes;
use harrier_sqlstate::IntoDataFusionError;

use crate::tokens::Tokens;

impl Tokens<'_> {
    /// Splits the parenthesized list at `open` into token ranges. Returns them and the index after the list.
    pub(super) fn list(&self, open: usize) -> Result<(Vec<Range<usize>>, usize)> {
        let end = match self.token(open) {
            Some(Token::LParen) => self.after_parentheses(open),
            _ => None,
        };
        let end = end.ok_or_else(|| syntax("a list in parentheses is missing"))?;
        let mut elements = Vec::new();
        let mut start = open + 1;
        let mut depth = 0;
        for at in open + 1..end {
            match self.token(at) {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) if depth > 0 => depth -= 1,
                Some(Token::Comma | Token::RParen) if depth == 0 => {
                    if at > start {
                        elements.push(start..at);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        match elements.is_empty() {
            true => Err(syntax("the list in parentheses is empty")),
            false => Ok((elements, end)),
        }
    }

    /// Whether an option is one of PostgreSQL's for how a table is stored, which means nothing here.
    pub(super) fn is_storage_parameter(&self, option: &Range<usize>) -> bool {
        self.option_name(option).is_some_and(|name| is_storage_parameter(&name))
    }

    /// The name of an option, which is `toast.name` for what is stored beside a table.
    pub(super) fn option_name(&self, option: &Range<usize>) -> Option<String> {
        match self.is(option.start, "toast") && self.is_token(option.start + 1, &Token::Period) {
            true => self.name(option.start + 2).map(|name| format!("toast.{name}")),
            false => self.name(option.start),
        }
    }

    /// Parses an option.
    pub(super) fn option(&self, option: Range<usize>) -> Result<(String, String)> {
        let name = self.option_name(&option).ok_or_else(|| syntax("an option needs a name"))?;
        if name.starts_with("toast.") {
            return table_option(&name, "");
        }
        let has_value = matches!(self.token(option.start + 1), Some(Token::Eq)) && option.len() == 3;
        let value = match (has_value, self.token(option.start + 2)) {
            (true, Some(Token::Word(word))) => word.value.clone(),
            (true, Some(Token::Number(number, _))) => number.clone(),
            (true, Some(Token::SingleQuotedString(text))) => text.clone(),
            _ => return Err(syntax("an option is name = value")),
        };
        table_option(&name, &value)
    }
}

pub(super) fn syntax(message: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

pub(super) fn bad_option(name: &str, value: &str) -> datafusion::error::DataFusionError {
    SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for option \"{name}\": \"{value}\""),
    )
    .into_datafusion()
}

/// Whether PostgreSQL knows an option of tables by this name, for pages and their upkeep, which tables here
/// have not.
pub fn is_storage_parameter(name: &str) -> bool {
    let (is_of_toast, name) = match name.strip_prefix("toast.") {
        Some(name) => (true, name),
        None => (false, name),
    };
    match name {
        "fillfactor" | "toast_tuple_target" | "parallel_workers" | "user_catalog_table" => !is_of_toast,
        "autovacuum_analyze_threshold" | "autovacuum_analyze_scale_factor" => !is_of_toast,
        "autovacuum_enabled"
        | "autovacuum_vacuum_threshold"
        | "autovacuum_vacuum_scale_factor"
        | "autovacuum_vacuum_insert_threshold"
        | "autovacuum_vacuum_insert_scale_factor"
        | "autovacuum_vacuum_cost_delay"
        | "autovacuum_vacuum_cost_limit"
        | "autovacuum_freeze_min_age"
        | "autovacuum_freeze_max_age"
        | "autovacuum_freeze_table_age"
        | "autovacuum_multixact_freeze_min_age"
        | "autovacuum_multixact_freeze_max_age"
        | "autovacuum_multixact_freeze_table_age"
        | "log_autovacuum_min_duration"
        | "vacuum_index_cleanup"
        | "vacuum_truncate" => true,
        _ => false,
    }
}

/// The value of an option in what `RESET (name, …)` becomes for the parser.
pub const RESET_VALUE: &str = "\u{1}reset";

/// DuckLake's name of a table option; `None` if it is none.
pub fn option_key(name: &str) -> Option<&'static str> {
    Some(match name {
        "format" => "format",
        "compression" | "parquet_compression" => "parquet_compression",
        "compression_level" | "parquet_compression_level" => "parquet_compression_level",
        "row_group_rows" | "parquet_row_group_size" => "parquet_row_group_size",
        "target_file_bytes" | "target_file_size" => "target_file_size",
        "inline_rows" | "data_inlining_row_limit" => "data_inlining_row_limit",
        _ => return None,
    })
}

/// Checks a table option's value, and maps its name to DuckLake's.
pub fn table_option(name: &str, value: &str) -> Result<(String, String)> {
    let number = || value.parse::<u64>().ok().filter(|number| *number > 0).map(|number| number.to_string());
    let known = match name {
        "format" => match value.to_lowercase().as_str() {
            "parquet" => return Ok(("format".to_string(), "parquet".to_string())),
            _ => None,
        },
        "compression" | "parquet_compression" => {
            let codec = value.to_lowercase();
            let codec = if codec == "none" { "uncompressed".to_string() } else { codec };
            ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw"]
                .contains(&codec.as_str())
                .then_some(("parquet_compression", codec))
        }
        "compression_level" | "parquet_compression_level" => {
            number().map(|level| ("parquet_compression_level", level))
        }
        "row_group_rows" | "parquet_row_group_size" => number().map(|rows| ("parquet_row_group_size", rows)),
        "target_file_bytes" | "target_file_size" => {
            let bytes = parse_file_bytes(name, value).map_err(IntoDataFusionError::into_datafusion)?;
            Some(("target_file_size", bytes.to_string()))
        }
        "inline_rows" | "data_inlining_row_limit" => {
            value.parse::<u64>().ok().map(|rows| ("data_inlining_row_limit", rows.to_string()))
        }
        "buckets" => number().map(|count| ("buckets", count)),
        _ => {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unknown option \"{name}\""),
            )
            .with_hint(
                "options are format, compression, compression_level, row_group_rows, target_file_bytes, \
                     inline_rows and buckets",
            )
            .into_datafusion());
        }
    };
    known.map(|(name, value)| (name.to_string(), value)).ok_or_else(|| bad_option(name, value))
}
