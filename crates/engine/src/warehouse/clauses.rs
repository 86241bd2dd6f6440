//! What Harrier's SQL has beyond the parser's: how a table is kept (`DISTRIBUTED BY`, `PARTITION BY`, `ORDER
//! BY`, `WITH`), and at which snapshot one is read (`AS OF`).
//!
//! Clauses are cut out of the text before it is parsed, and blanks put in their place, so that positions in
//! errors stay right.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use harrier_catalog::state::{SnapshotId, Transform};
use harrier_error::{SqlError, SqlState};
use harrier_functions::datetime::time_zone::in_utc;
use harrier_sqlstate::IntoDataFusionError;

use super::keys::cut_text;
use super::names::PAST;
use crate::dialect::SqlDialect;
use crate::sequences::{GeneratedColumn, Overriding};
use harrier_planner::analyzer::session_time_zone::UTC;

mod generated;
mod like;
mod partitions;
mod views;

pub(crate) use like::LikeOptions;
pub(crate) use partitions::{CutClause, Division, HoldsClause, PartitionChange, PartitionClause, Which};

/// Buckets of a table that is distributed by a key, unless it says otherwise: more than ranks, so that ranks
/// share them evenly.
const BUCKETS: u32 = 16;

/// How a table is to be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableClauses {
    /// Names of columns.
    pub partition: Option<Vec<(String, Transform)>>,
    /// By ranges or lists of values.
    pub division: Option<Division>,
    /// Of the table partitions that the division has.
    pub change: Option<PartitionChange>,
    pub sort: Option<Vec<SortClause>>,
    /// By DuckLake's names.
    pub options: BTreeMap<String, String>,
    /// Of the query that it is made of, it has the columns only.
    pub no_data: bool,
    /// It is a view that no condition gets below.
    pub is_barrier: bool,
    /// Columns with a sequence of their own.
    pub generated: Vec<GeneratedColumn>,
    /// Of the table that it is made like, what is taken along.
    pub like: Option<LikeOptions>,
    /// Of an INSERT: what becomes of values for identity columns.
    pub overriding: Option<Overriding>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SortClause {
    pub column: String,
    pub descending: bool,
    pub nulls_first: bool,
}

/// The text to be parsed, and the clauses that were in it.
pub(crate) fn cut(text: &str) -> Result<(String, Option<TableClauses>)> {
    if let Some(text) = cut_text(text) {
        return Ok((text, None));
    }
    if !may_have_clauses(text) {
        return Ok((text.to_string(), None));
    }
    // What cannot be told apart here is for the parser to complain about.
    let Some(tokens) = Words::of(text) else {
        return Ok((text.to_string(), None));
    };
    let text = tokens.read_past(text);
    let Some(words) = Words::of(&text) else {
        return Ok((text, None));
    };
    let (text, generated) = words.cut_generated(text)?;
    let (text, overriding) = words.cut_overriding(text);
    let (text, mut clauses) = cut_words(&words, text)?;
    if !generated.is_empty() || overriding.is_some() {
        let clauses = clauses.get_or_insert_default();
        (clauses.generated, clauses.overriding) = (generated, overriding);
    }
    if let Some((text, like)) = like::cut(&text) {
        clauses.get_or_insert_default().like = Some(like);
        return Ok((text, clauses));
    }
    Ok((text, clauses))
}

fn cut_words(words: &Words, text: String) -> Result<(String, Option<TableClauses>)> {
    if words.is_at(0, "alter") && words.is_at(1, "table") {
        return words.cut_alter(text);
    }
    if let Some(optimize) = words.optimized(&text) {
        return Ok((optimize, None));
    }
    if words.is_at(0, "vacuum") && words.is_at(1, "dry") && words.is_at(2, "run") && words.ends_at(3) {
        return Ok(("CALL vacuum_dry_run()".to_string(), None));
    }
    if words.is_at(0, "check") && words.is_at(1, "table") {
        let rest = words.tokens.get(2).map_or("", |(_, range)| &text[range.start..]);
        return Ok((format!("CALL check_table({rest})"), None));
    }
    let sets_modes = words.is_at(0, "set") && (words.is_at(1, "transaction") || words.is_at(1, "session"));
    if sets_modes || words.is_at(0, "begin") || words.is_at(0, "start") {
        return Ok((words.without_deferrable(text), None));
    }
    if let Some((rest, clauses)) = words.cut_view(&text)? {
        return Ok((rest, Some(clauses)));
    }
    match words.table_definition() {
        Some(range) => words.cut_create(text, range),
        None => Ok((text, None)),
    }
}

/// The text of a query with `t AS OF …` as names of tables, for the parser.
pub(crate) fn read_past(text: &str) -> String {
    Words::of(text).map_or_else(|| text.to_string(), |words| words.read_past(text))
}

/// The text of a parsed query with the names that [`read_past`] makes as what they stand for. `zone`: in
/// which its times are, if it is not UTC.
pub(crate) fn tell_past(text: &str, zone: &str) -> String {
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
        let place = match past.parse::<SnapshotId>() {
            Ok(snapshot) => format!("SNAPSHOT {snapshot}"),
            Err(_) => {
                let moment = if zone == UTC { None } else { in_utc(&past, zone) };
                format!("TIMESTAMP '{}'", moment.unwrap_or(past).replace('\'', "''"))
            }
        };
        told.extend([before, "\" AS OF ", place.as_str()]);
        rest = after.get(end + 1..).unwrap_or_default();
    }
    told + rest
}

/// What stands for an OPTIMIZE; `None` for other statements.
pub(crate) fn optimized(text: &str) -> Option<String> {
    match may_have_clauses(text) {
        true => Words::of(text)?.optimized(text),
        false => None,
    }
}

/// Whether a statement can be one that is cut here. Nearly all others are found out without being taken to
/// words.
fn may_have_clauses(text: &str) -> bool {
    const BEGINNINGS: [&str; 8] = ["create", "alter", "optimize", "vacuum", "check", "begin", "start", "set"];
    let begins = |word: &&str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    // A comment may stand before the first word, and AS OF anywhere.
    text.starts_with(|c: char| !c.is_alphabetic())
        || BEGINNINGS.iter().any(begins)
        || text.as_bytes().windows(2).any(|pair| pair.eq_ignore_ascii_case(b"of"))
        || text.as_bytes().windows(10).any(|part| part.eq_ignore_ascii_case(b"overriding"))
}

pub(crate) struct Words {
    /// Without whitespace and comments, with the bytes they lie at.
    tokens: Vec<(Token, Range<usize>)>,
}

impl Words {
    pub(crate) fn of(text: &str) -> Option<Self> {
        let tokens = Tokenizer::new(&SqlDialect, text).tokenize_with_location().ok()?;
        // Locations come in their order: the text is walked through once.
        let (mut chars, mut line, mut column) = (text.char_indices(), 1, 1);
        let mut byte = |location: Location| -> Option<usize> {
            while (line, column) < (location.line, location.column) {
                match chars.next() {
                    Some((_, '\n')) => (line, column) = (line + 1, 1),
                    Some(_) => column += 1,
                    None => return Some(text.len()),
                }
            }
            Some(chars.offset())
        };
        let tokens = tokens
            .into_iter()
            .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF))
            .map(|TokenWithSpan { token, span }| Some((token, byte(span.start)?..byte(span.end)?)))
            .collect::<Option<Vec<_>>>()?;
        Some(Self { tokens })
    }

    /// The parser's dialect does not know the word.
    fn optimized(&self, text: &str) -> Option<String> {
        if !self.is_at(0, "optimize") {
            return None;
        }
        let rest = if self.is_at(1, "table") { 2 } else { 1 };
        let rest = self.tokens.get(rest).map_or("", |(_, range)| &text[range.start..]);
        Some(format!("VACUUM FULL {rest}"))
    }

    pub(crate) fn is_at(&self, at: usize, word: &str) -> bool {
        matches!(self.tokens.get(at), Some((Token::Word(found), _))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    /// Whether nothing but a semicolon stands there or behind.
    fn ends_at(&self, at: usize) -> bool {
        self.tokens[at.min(self.tokens.len())..].iter().all(|(token, _)| *token == Token::SemiColon)
    }

    pub(crate) fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|(token, _)| token)
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The bytes of the tokens in `range`.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Range<usize> {
        self.tokens[range.start].1.start..self.tokens[range.end - 1].1.end
    }

    /// The name at `at`, in lower case unless it is quoted.
    pub(crate) fn name(&self, at: usize) -> Option<String> {
        match self.token(at)? {
            Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
            Token::Word(word) => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    /// The token after the parenthesis that closes the one at `open`.
    pub(crate) fn after_parentheses(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for at in open..self.tokens.len() {
            match self.token(at)? {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at + 1);
            }
        }
        None
    }

    /// From after the name of the table that is created to the end, unless it is not kept in a warehouse.
    fn table_definition(&self) -> Option<Range<usize>> {
        if !self.is_at(0, "create") {
            return None;
        }
        let mut at = 1;
        while ["or", "replace"].iter().any(|word| self.is_at(at, word)) {
            at += 1;
        }
        if !self.is_at(at, "table") {
            return None;
        }
        at += 1;
        while ["if", "not", "exists"].iter().any(|word| self.is_at(at, word)) {
            at += 1;
        }
        while matches!(self.token(at + 1), Some(Token::Period)) {
            at += 2;
        }
        Some(at + 1..self.tokens.len())
    }

    /// Without `[NOT] DEFERRABLE`: a transaction never waits for others to end before it begins, which the
    /// parser does not know.
    fn without_deferrable(&self, text: String) -> String {
        let mut cuts = Vec::new();
        for at in (1..self.tokens.len()).filter(|at| self.is_at(*at, "deferrable")) {
            let mut start = if self.is_at(at - 1, "not") { at - 1 } else { at };
            let mut end = at + 1;
            if matches!(self.token(start - 1), Some(Token::Comma)) {
                start -= 1;
            } else if matches!(self.token(end), Some(Token::Comma)) {
                end += 1;
            }
            cuts.push(start..end);
        }
        self.blank(text, &cuts)
    }

    /// Where `WITH [NO] DATA` at `at` ends, if it is there, and whether it says NO. It is the last of a
    /// query.
    fn with_data(&self, at: usize, end: usize) -> Option<(usize, bool)> {
        let no_data = self.is_at(at + 1, "no");
        let last = if no_data { at + 2 } else { at + 1 };
        let is_last = last + 1 >= end
            || self.is_at(last + 1, "distributed")
            || matches!(self.token(last + 1), Some(Token::SemiColon));
        (self.is_at(at, "with") && self.is_at(last, "data") && is_last).then_some((last + 1, no_data))
    }

    fn cut_create(&self, text: String, range: Range<usize>) -> Result<(String, Option<TableClauses>)> {
        let mut clauses = TableClauses::default();
        let mut cuts = Vec::new();
        let mut at = range.start;
        let mut in_query = false;
        let mut distributed = None;
        while at < range.end {
            let start = at;
            let by = |first: &str| self.is_at(at, first) && self.is_at(at + 1, "by");
            if self.is_at(at, "distributed") && self.is_at(at + 1, "by") {
                let (keys, end) = self.list(at + 2)?;
                distributed = Some(keys);
                at = end;
            } else if self.is_at(at, "distributed") && self.is_at(at + 1, "randomly") {
                at += 2;
            } else if let Some((end, no_data)) = in_query.then(|| self.with_data(at, range.end)).flatten() {
                clauses.no_data = no_data;
                at = end;
            } else if in_query {
                at = match self.token(at) {
                    Some(Token::LParen) => self.after_parentheses(at).unwrap_or(range.end),
                    _ => at + 1,
                };
                continue;
            } else if by("partition") || by("partitioned") {
                if let Some((division, end)) = self.division(at + 2, &text)? {
                    clauses.division = Some(division);
                    at = end;
                } else {
                    let (keys, end) = self.list(at + 2)?;
                    let keys = keys.into_iter().map(|key| self.partition_key(key));
                    clauses.partition = Some(keys.collect::<Result<_>>()?);
                    at = end;
                }
            } else if by("order") || by("sorted") {
                let (keys, end) = self.list(at + 2)?;
                let keys = keys.into_iter().map(|key| self.sort_key(key)).collect::<Result<Vec<_>>>()?;
                clauses.sort = Some(keys);
                at = end;
            } else if self.is_at(at, "with") && matches!(self.token(at + 1), Some(Token::LParen)) {
                let (options, end) = self.list(at + 1)?;
                for option in options {
                    let (name, value) = self.option(option)?;
                    clauses.options.insert(name, value);
                }
                at = end;
            } else {
                in_query = self.is_at(at, "as");
                at = match self.token(at) {
                    Some(Token::LParen) => self.after_parentheses(at).unwrap_or(range.end),
                    _ => at + 1,
                };
                continue;
            }
            cuts.push(start..at);
        }
        let buckets = clauses.options.remove("buckets");
        if let Some(keys) = distributed {
            let count = match buckets {
                Some(count) => count
                    .parse()
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or_else(|| bad_option("buckets", &count))?,
                None => BUCKETS,
            };
            let [key] = &keys[..] else {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "a table can be distributed by one column only",
                )
                .into_datafusion());
            };
            let column =
                self.name(key.start).ok_or_else(|| syntax("DISTRIBUTED BY needs the name of a column"))?;
            clauses.partition.get_or_insert_default().push((column, Transform::Bucket(count)));
        }
        if cuts.is_empty() {
            return Ok((text, None));
        }
        Ok((self.blank(text, &cuts), Some(clauses)))
    }

    /// `ALTER TABLE t SET PARTITIONED BY (…)` and its like become `ALTER TABLE t SET (…)`, whose options are
    /// empty.
    fn cut_alter(&self, text: String) -> Result<(String, Option<TableClauses>)> {
        if let Some((change, range)) = self.partition_change(&text)? {
            let clauses = TableClauses { change: Some(change), ..TableClauses::default() };
            return Ok((self.with_marker(text, range), Some(clauses)));
        }
        let Some(at) = (2..self.tokens.len()).find(|at| self.is_at(*at, "set") || self.is_at(*at, "reset"))
        else {
            return Ok((text, None));
        };
        let mut clauses = TableClauses::default();
        let sets = self.is_at(at, "set");
        let what = at + 1;
        if !self.is_at(what + 1, "by") {
            return Ok((text, None));
        }
        if self.division(what + 2, &text)?.is_some() {
            let message = "a table that is there is not divided by ranges or lists";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("CREATE TABLE … PARTITION BY RANGE … AS SELECT makes another with its rows")
                .into_datafusion());
        }
        let (keys, end) = match sets {
            true => self.list(what + 2)?,
            false => (vec![], what + 2),
        };
        if self.is_at(what, "partitioned") || self.is_at(what, "partition") {
            clauses.partition =
                Some(keys.into_iter().map(|key| self.partition_key(key)).collect::<Result<_>>()?);
        } else if self.is_at(what, "sorted") || self.is_at(what, "order") {
            clauses.sort = Some(keys.into_iter().map(|key| self.sort_key(key)).collect::<Result<_>>()?);
        } else {
            return Ok((text, None));
        }
        Ok((self.with_marker(text, at..end), Some(clauses)))
    }

    /// `text` with something in the place of `range` that the parser knows and that says nothing.
    fn with_marker(&self, text: String, range: Range<usize>) -> String {
        let start = self.tokens[range.start].1.start;
        let mut text = self.blank(text, &[range]);
        let marker = "SET (a = 1)";
        text.replace_range(start..start + marker.len().min(text.len() - start), marker);
        text
    }

    pub(crate) fn blank(&self, mut text: String, cuts: &[Range<usize>]) -> String {
        for cut in cuts {
            let range = self.tokens[cut.start].1.start..self.tokens[cut.end - 1].1.end;
            let blanks: String =
                text[range.clone()].chars().map(|sign| if sign == '\n' { '\n' } else { ' ' }).collect();
            // As many bytes: the ranges of other cuts stay right.
            let blanks = format!("{blanks}{}", " ".repeat(range.len() - blanks.len()));
            text.replace_range(range, &blanks);
        }
        text
    }

    /// The elements, as ranges of tokens, of the list in parentheses at `open`, and the token after it.
    fn list(&self, open: usize) -> Result<(Vec<Range<usize>>, usize)> {
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

    fn partition_key(&self, key: Range<usize>) -> Result<(String, Transform)> {
        let wrong = || {
            syntax(
                "a table is partitioned by columns, and by year, month, day, hour or bucket(n, …) of columns",
            )
        };
        let name = self.name(key.start).ok_or_else(wrong)?;
        if key.len() == 1 {
            return Ok((name, Transform::Identity));
        }
        let (arguments, end) = self.list(key.start + 1)?;
        if end != key.end {
            return Err(wrong());
        }
        let column = |range: &Range<usize>| {
            (range.len() == 1).then(|| self.name(range.start)).flatten().ok_or_else(wrong)
        };
        match (name.as_str(), &arguments[..]) {
            ("year" | "years", [value]) => Ok((column(value)?, Transform::Year)),
            ("month" | "months", [value]) => Ok((column(value)?, Transform::Month)),
            ("day" | "days", [value]) => Ok((column(value)?, Transform::Day)),
            ("hour" | "hours", [value]) => Ok((column(value)?, Transform::Hour)),
            ("bucket", [count, value]) => {
                let Some(Token::Number(count, _)) = self.token(count.start) else {
                    return Err(wrong());
                };
                let count =
                    count.parse().ok().filter(|count| (1..=0x7fff_ffff).contains(count)).ok_or_else(wrong)?;
                Ok((column(value)?, Transform::Bucket(count)))
            }
            _ => Err(wrong()),
        }
    }

    fn sort_key(&self, key: Range<usize>) -> Result<SortClause> {
        let wrong = || syntax("a table is ordered by columns, each with ASC or DESC and NULLS FIRST or LAST");
        let column = self.name(key.start).ok_or_else(wrong)?;
        let mut at = key.start + 1;
        let descending = self.is_at(at, "desc");
        if descending || self.is_at(at, "asc") {
            at += 1;
        }
        // As PostgreSQL has it: NULLs are greater than all values.
        let mut nulls_first = descending;
        if self.is_at(at, "nulls") {
            nulls_first = self.is_at(at + 1, "first");
            at += 2;
        }
        if at != key.end {
            return Err(wrong());
        }
        Ok(SortClause { column, descending, nulls_first })
    }

    fn option(&self, option: Range<usize>) -> Result<(String, String)> {
        let name = self.name(option.start).ok_or_else(|| syntax("an option needs a name"))?;
        let has_value = matches!(self.token(option.start + 1), Some(Token::Eq)) && option.len() == 3;
        let value = match (has_value, self.token(option.start + 2)) {
            (true, Some(Token::Word(word))) => word.value.clone(),
            (true, Some(Token::Number(number, _))) => number.clone(),
            (true, Some(Token::SingleQuotedString(text))) => text.clone(),
            _ => return Err(syntax("an option is name = value")),
        };
        table_option(&name, &value)
    }

    /// `text` with `t AS OF SNAPSHOT 3` and `t AS OF TIMESTAMP '…'` as names of tables.
    fn read_past(&self, text: &str) -> String {
        let mut text = text.to_string();
        for at in (1..self.tokens.len()).rev() {
            if !(self.is_at(at, "as") && self.is_at(at + 1, "of")) {
                continue;
            }
            let Some(name) = self.name(at - 1) else { continue };
            let value = at
                + 2
                + usize::from(
                    ["snapshot", "version", "timestamp"].iter().any(|word| self.is_at(at + 2, word)),
                );
            let past = match self.token(value) {
                Some(Token::Number(number, _)) => number.clone(),
                Some(Token::SingleQuotedString(time)) => time.clone(),
                _ => continue,
            };
            let has_alias = self.is_at(value + 1, "as")
                || self.name(value + 1).is_some_and(|word| !FOLLOWS_TABLE.contains(&word.as_str()));
            let alias = if has_alias { String::new() } else { format!(" AS \"{}\"", quoted(&name)) };
            let range = self.tokens[at - 1].1.start..self.tokens[value].1.end;
            text.replace_range(range, &format!("\"{}{PAST}{}\"{alias}", quoted(&name), quoted(&past)));
        }
        text
    }
}

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

fn quoted(name: &str) -> String {
    name.replace('"', "\"\"")
}

fn syntax(message: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

fn bad_option(name: &str, value: &str) -> datafusion::error::DataFusionError {
    SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for option \"{name}\": \"{value}\""),
    )
    .into_datafusion()
}

/// An option by the name that DuckLake gives it, with its value checked.
pub(crate) fn table_option(name: &str, value: &str) -> Result<(String, String)> {
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
            crate::memory::parse_bytes(value).ok().map(|bytes| ("target_file_size", bytes.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_cut_out_and_positions_stay() {
        let sql = "CREATE TABLE t (a int, b timestamp)\nPARTITION BY (year(b), a) ORDER BY (a DESC)\nWITH (compression=zstd) \
                   AS SELECT 1 ORDER BY 1 DISTRIBUTED BY (a)";
        let (text, clauses) = cut(sql).unwrap();
        assert_eq!(text.len(), sql.len());
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>().join(" "),
            "CREATE TABLE t (a int, b timestamp) AS SELECT 1 ORDER BY 1"
        );
        let clauses = clauses.unwrap();
        let keys = [("b", Transform::Year), ("a", Transform::Identity), ("a", Transform::Bucket(BUCKETS))];
        assert_eq!(clauses.partition.unwrap(), keys.map(|(name, transform)| (name.to_string(), transform)));
        assert_eq!(
            clauses.sort.unwrap(),
            [SortClause { column: "a".to_string(), descending: true, nulls_first: true }]
        );
        assert_eq!(clauses.options["parquet_compression"], "zstd");
    }

    #[test]
    fn modes_of_transactions_that_say_nothing_are_cut_out() {
        for (sql, expected) in [
            (
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
            ),
            ("start transaction read write, not deferrable", "start transaction read write"),
            (
                "SET SESSION CHARACTERISTICS AS TRANSACTION NOT DEFERRABLE, READ WRITE",
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            ),
        ] {
            let (text, clauses) = cut(sql).unwrap();
            assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), expected);
            assert!(clauses.is_none());
        }
    }

    #[test]
    fn other_statements_are_left_alone() {
        for sql in [
            "SELECT a FROM t ORDER BY (a)",
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT 1",
            "ALTER TABLE t SET (compression = zstd)",
            "INSERT INTO t VALUES ('PARTITION BY (a)')",
            "SELECT 'not closed",
        ] {
            assert_eq!(cut(sql).unwrap(), (sql.to_string(), None), "{sql}");
        }
    }

    #[test]
    fn wrong_clauses_are_refused() {
        for sql in [
            "CREATE TABLE t (a int) PARTITION BY ()",
            "CREATE TABLE t (a int) PARTITION BY (a + 1)",
            "CREATE TABLE t (a int) PARTITION BY (bucket(0, a))",
            "CREATE TABLE t (a int) WITH (compression = rar)",
            "CREATE TABLE t (a int) WITH (speed = 1)",
            "CREATE TABLE t (a int) DISTRIBUTED BY (a, b)",
        ] {
            assert!(cut(sql).is_err(), "{sql}");
        }
    }

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
            assert_eq!(cut(sql).unwrap().0, expected);
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
            assert_eq!(tell_past(&read, UTC), expected);
            assert_eq!(read_past(expected), read);
        }
    }

    #[test]
    fn partitionings_are_altered() {
        let (text, clauses) = cut("ALTER TABLE t SET PARTITIONED BY (a)").unwrap();
        assert_eq!(text.trim(), "ALTER TABLE t SET (a = 1)");
        assert_eq!(clauses.unwrap().partition.unwrap().len(), 1);
        let (_, clauses) = cut("ALTER TABLE t RESET SORTED BY").unwrap();
        assert_eq!(clauses.unwrap().sort.unwrap(), []);
    }
}
