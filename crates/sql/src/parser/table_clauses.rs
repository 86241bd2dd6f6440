//! Storage clauses of tables and views that the parser does not know: `DISTRIBUTED BY`, `PARTITION BY`,
//! `ORDER BY`, `WITH` and others.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::sequence::{GeneratedColumn, Overriding};
use crate::tokens::{Edit, Tokens, word};
use lists::{bad_option, syntax};

mod generated;
mod like;
mod lists;
mod partitions;
mod views;

pub use like::LikeOptions;
pub use lists::{RESET_VALUE, is_storage_parameter, option_key, table_option};
pub use partitions::{
    BoundClause, DividedBy, Division, HoldsClause, PartitionChange, PartitionClause, PartitionRef,
};

/// Default number of buckets of a table distributed by key: more than ranks, so ranks share them evenly.
const BUCKETS: u32 = 16;

/// A partition transform of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    Identity,
    Year,
    Month,
    Day,
    Hour,
    /// Hash of the value, modulo this.
    Bucket(u32),
}

/// Storage clauses of a table or view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableClauses {
    /// Columns with their partition transforms.
    pub partition: Option<Vec<(String, Transform)>>,
    /// Partitions by ranges or lists of values.
    pub division: Option<Division>,
    /// ALTER TABLE … PARTITION of such a table.
    pub change: Option<PartitionChange>,
    pub sort: Option<Vec<SortClause>>,
    /// Keyed by DuckLake's option names.
    pub options: BTreeMap<String, String>,
    /// WITH NO DATA: CREATE TABLE AS takes the query's columns only.
    pub no_data: bool,
    /// security_barrier: filters are not pushed below the view.
    pub is_barrier: bool,
    /// Serial and identity columns.
    pub generated: Vec<GeneratedColumn>,
    /// Comments in HiveQL's CREATE TABLE.
    pub comments: Vec<TableComment>,
    /// INCLUDING options of LIKE.
    pub like: Option<LikeOptions>,
    /// OVERRIDING of an INSERT, for identity columns.
    pub overriding: Option<Overriding>,
}

/// A comment in a CREATE TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableComment {
    /// The column that it is about; `None` for the table.
    pub column: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortClause {
    pub column: String,
    pub descending: bool,
    pub nulls_first: bool,
}

/// Takes the storage clauses of a statement.
///
/// Errors: a clause is malformed (42601), an option has an invalid value (22023), or is not supported
/// (0A000).
pub fn take(tokens: &mut Tokens<'_>) -> Result<Option<TableClauses>> {
    let generated = tokens.take_generated()?;
    let overriding = tokens.take_overriding();
    let mut clauses = if tokens.are(0, &["alter", "table"]) {
        tokens.take_alter_clauses()?
    } else if let Some(is_barrier) = tokens.take_view()? {
        Some(TableClauses { is_barrier, ..TableClauses::default() })
    } else if let Some(range) = tokens.table_definition() {
        tokens.take_create_clauses(range)?
    } else {
        None
    };
    if !generated.is_empty() || overriding.is_some() {
        let clauses = clauses.get_or_insert_default();
        (clauses.generated, clauses.overriding) = (generated, overriding);
    }
    if let Some(like) = like::take(tokens) {
        clauses.get_or_insert_default().like = Some(like);
    }
    Ok(clauses)
}

impl Tokens<'_> {
    /// The tokens after the table name of a CREATE TABLE; `None` for a table outside of the warehouse.
    fn table_definition(&self) -> Option<Range<usize>> {
        if !self.is(0, "create") {
            return None;
        }
        let mut at = 1;
        while ["or", "replace"].iter().any(|word| self.is(at, word)) {
            at += 1;
        }
        if !self.is(at, "table") {
            return None;
        }
        at += 1;
        while ["if", "not", "exists"].iter().any(|word| self.is(at, word)) {
            at += 1;
        }
        Some(self.after_name(at)..self.len())
    }

    /// The index after `WITH [NO] DATA` at `at`, and whether it has NO. It must end the query.
    fn with_data_clause(&self, at: usize, end: usize) -> Option<(usize, bool)> {
        let no_data = self.is(at + 1, "no");
        let last = if no_data { at + 2 } else { at + 1 };
        let is_last = last + 1 >= end
            || self.is(last + 1, "distributed")
            || matches!(self.token(last + 1), Some(Token::SemiColon));
        (self.is(at, "with") && self.is(last, "data") && is_last).then_some((last + 1, no_data))
    }

    fn take_create_clauses(&mut self, range: Range<usize>) -> Result<Option<TableClauses>> {
        let mut clauses = TableClauses::default();
        let mut cuts = Vec::new();
        let mut at = range.start;
        let mut in_query = false;
        let mut distributed = None;
        while at < range.end {
            let start = at;
            let by = |first: &str| self.is(at, first) && self.is(at + 1, "by");
            if self.is(at, "distributed") && self.is(at + 1, "by") {
                let (keys, end) = self.list(at + 2)?;
                distributed = Some(keys);
                at = end;
            } else if self.is(at, "distributed") && self.is(at + 1, "randomly") {
                at += 2;
            } else if let Some((end, no_data)) =
                in_query.then(|| self.with_data_clause(at, range.end)).flatten()
            {
                clauses.no_data = no_data;
                at = end;
            } else if in_query {
                at = match self.token(at) {
                    Some(Token::LParen) => self.after_parentheses(at).unwrap_or(range.end),
                    _ => at + 1,
                };
                continue;
            } else if by("partition") || by("partitioned") {
                if let Some((division, end)) = self.division(at + 2)? {
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
            } else if self.is(at, "with") && matches!(self.token(at + 1), Some(Token::LParen)) {
                let (options, end) = self.list(at + 1)?;
                for option in options {
                    if self.is_storage_parameter(&option) {
                        continue;
                    }
                    let (name, value) = self.option(option)?;
                    clauses.options.insert(name, value);
                }
                at = end;
            } else {
                in_query = self.is(at, "as");
                at = match self.token(at) {
                    Some(Token::LParen) => self.after_parentheses(at).unwrap_or(range.end),
                    _ => at + 1,
                };
                continue;
            }
            cuts.push(Edit::remove(start..at));
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
            return Ok(None);
        }
        self.edit(cuts);
        Ok(Some(clauses))
    }

    /// Takes `ALTER TABLE t SET PARTITIONED BY (…)` and the like, which leaves `ALTER TABLE t SET (…)` with a
    /// placeholder option.
    fn take_alter_clauses(&mut self) -> Result<Option<TableClauses>> {
        if let Some((change, range)) = self.partition_change()? {
            self.put_placeholder(range);
            return Ok(Some(TableClauses { change: Some(change), ..TableClauses::default() }));
        }
        let Some(at) = (2..self.len()).find(|at| self.is(*at, "set") || self.is(*at, "reset")) else {
            return Ok(None);
        };
        let mut clauses = TableClauses::default();
        let sets = self.is(at, "set");
        let what = at + 1;
        if !sets && self.is_token(what, &Token::LParen) {
            self.put_reset_options(at)?;
            return Ok(None);
        }
        if !self.is(what + 1, "by") {
            return Ok(None);
        }
        if self.division(what + 2)?.is_some() {
            let message = "a table that is there is not divided by ranges or lists";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("CREATE TABLE … PARTITION BY RANGE … AS SELECT makes another with its rows")
                .into_datafusion());
        }
        let (keys, end) = match sets {
            true => self.list(what + 2)?,
            false => (vec![], what + 2),
        };
        if self.is(what, "partitioned") || self.is(what, "partition") {
            clauses.partition =
                Some(keys.into_iter().map(|key| self.partition_key(key)).collect::<Result<_>>()?);
        } else if self.is(what, "sorted") || self.is(what, "order") {
            clauses.sort = Some(keys.into_iter().map(|key| self.sort_key(key)).collect::<Result<_>>()?);
        } else {
            return Ok(None);
        }
        self.put_placeholder(at..end);
        Ok(Some(clauses))
    }

    /// Replaces `RESET (name, …)` at `at`, which the parser does not know, by `SET (name = …)` with
    /// [`RESET_VALUE`].
    fn put_reset_options(&mut self, at: usize) -> Result<()> {
        let (options, end) = self.list(at + 1)?;
        let mut all = vec![word("SET"), Token::LParen];
        for (number, option) in options.into_iter().enumerate() {
            let name = self.option_name(&option).ok_or_else(|| syntax("an option needs a name"))?;
            if option.len() > 1 && !name.starts_with("toast.") || option.len() > 3 {
                return Err(syntax("RESET must not include values for parameters"));
            }
            if number > 0 {
                all.push(Token::Comma);
            }
            let value = Token::SingleQuotedString(RESET_VALUE.to_string());
            all.extend([Token::make_word(&name, Some('"')), Token::Eq, value]);
        }
        all.push(Token::RParen);
        self.replace(at..end, all);
        Ok(())
    }

    /// Replaces `range` by a placeholder option that the parser accepts.
    fn put_placeholder(&mut self, range: Range<usize>) {
        let zero = Token::Number("1".to_string(), false);
        self.replace(range, [word("SET"), Token::LParen, word("a"), Token::Eq, zero, Token::RParen]);
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
        let descending = self.is(at, "desc");
        if descending || self.is(at, "asc") {
            at += 1;
        }
        // PostgreSQL's default: NULLs are larger than all values.
        let mut nulls_first = descending;
        if self.is(at, "nulls") {
            nulls_first = self.is(at + 1, "first");
            at += 2;
        }
        if at != key.end {
            return Err(wrong());
        }
        Ok(SortClause { column, descending, nulls_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    /// The remaining text of a statement, and its clauses.
    pub(super) fn take_clauses(sql: &str) -> Result<(String, Option<TableClauses>)> {
        let mut tokens = Tokens::of(sql, &SqlDialect)?;
        let clauses = take(&mut tokens)?;
        Ok((tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), clauses))
    }

    #[test]
    fn clauses_are_taken() {
        let sql = "CREATE TABLE t (a int, b timestamp)\nPARTITION BY (year(b), a) ORDER BY (a DESC)\nWITH (compression=zstd) \
                   AS SELECT 1 ORDER BY 1 DISTRIBUTED BY (a)";
        let (text, clauses) = take_clauses(sql).unwrap();
        assert_eq!(text, "CREATE TABLE t ( a int , b timestamp ) AS SELECT 1 ORDER BY 1");
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
    fn other_statements_are_unchanged() {
        for sql in [
            "SELECT a FROM t ORDER BY (a)",
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT 1",
            "ALTER TABLE t SET (compression = zstd)",
            "INSERT INTO t VALUES ('PARTITION BY (a)')",
        ] {
            let same: Vec<String> =
                Tokens::of(sql, &SqlDialect).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(take_clauses(sql).unwrap(), (same.join(" "), None), "{sql}");
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
            assert!(take_clauses(sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn partitionings_are_altered() {
        let (text, clauses) = take_clauses("ALTER TABLE t SET PARTITIONED BY (a)").unwrap();
        assert_eq!(text, "ALTER TABLE t SET ( a = 1 )");
        assert_eq!(clauses.unwrap().partition.unwrap().len(), 1);
        let (_, clauses) = take_clauses("ALTER TABLE t RESET SORTED BY").unwrap();
        assert_eq!(clauses.unwrap().sort.unwrap(), []);
    }

    #[test]
    fn options_are_reset() {
        let (text, clauses) =
            take_clauses("ALTER TABLE t RESET (Fillfactor, toast.autovacuum_enabled)").unwrap();
        let reset = RESET_VALUE;
        let expected = format!(
            "ALTER TABLE t SET ( \"fillfactor\" = '{reset}' , \"toast.autovacuum_enabled\" = '{reset}' )"
        );
        assert_eq!((text, clauses), (expected, None));
        for sql in ["ALTER TABLE t RESET (fillfactor = 70)", "ALTER TABLE t RESET ()"] {
            assert_eq!(harrier_sqlstate::of(&take_clauses(sql).unwrap_err()).as_str(), "42601", "{sql}");
        }
    }
}
