//! HAWQ's `PARTITION BY RANGE` and `LIST`, and `ALTER TABLE … PARTITION`.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::lists::syntax;
use crate::tokens::Tokens;

/// Whether table partitions are ranges or lists of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DividedBy {
    Range,
    List,
}

/// `RANGE (column) (…)` or `LIST (column) (…)`. Values are SQL expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    pub by: DividedBy,
    pub column: String,
    pub partitions: Vec<PartitionClause>,
}

/// One table partition, or several with `EVERY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionClause {
    pub name: Option<String>,
    pub holds: HoldsClause,
    /// `WITH (…)`: options of its files that differ from the table's.
    pub options: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldsClause {
    Range { start: Option<BoundClause>, end: Option<BoundClause>, every: Option<String> },
    Values(Vec<String>),
    Rest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundClause {
    pub value: String,
    /// The bound is just after the value, not just before it.
    pub after: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionChange {
    Add(PartitionClause),
    Drop { which: PartitionRef, if_exists: bool },
    Truncate(PartitionRef),
    Rename(PartitionRef, String),
}

/// A reference to an existing table partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionRef {
    Name(String),
    Default,
    /// FOR (value): the one that contains this value.
    Of(String),
}

/// Options of data files, by DuckLake's names.
const FILE_OPTIONS: [&str; 4] =
    ["parquet_compression", "parquet_compression_level", "parquet_row_group_size", "target_file_size"];

fn unsupported_error(what: &str) -> datafusion::error::DataFusionError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported")).into_datafusion()
}

impl Tokens<'_> {
    fn sql(&self, range: Range<usize>) -> String {
        self.source(range).to_string()
    }

    /// Parses PARTITION BY RANGE or LIST at `at`. Returns it and the index after it; `None` for other keys.
    pub(super) fn division(&self, at: usize) -> Result<Option<(Division, usize)>> {
        let by = match () {
            () if self.is(at, "range") => DividedBy::Range,
            () if self.is(at, "list") => DividedBy::List,
            () => return Ok(None),
        };
        let (columns, end) = self.list(at + 1)?;
        let [column] = &columns[..] else {
            return Err(unsupported_error("PARTITION BY RANGE or LIST of more than one column"));
        };
        let column = self.name(column.start).filter(|_| column.len() == 1);
        let column = column.ok_or_else(|| syntax("PARTITION BY RANGE and LIST need the name of a column"))?;
        if self.is(end, "subpartition") {
            return Err(unsupported_error("SUBPARTITION BY"));
        }
        if !matches!(self.token(end), Some(Token::LParen)) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "the table partitions in parentheses are missing")
                .with_hint("PARTITION BY RANGE (c) (START (1) END (10) EVERY (1)), or LIST (c) (PARTITION p VALUES ('a'))")
                .into_datafusion());
        }
        let (elements, end) = self.list(end)?;
        let partitions = elements.into_iter().map(|element| self.partition_element(element));
        Ok(Some((Division { by, column, partitions: partitions.collect::<Result<_>>()? }, end)))
    }

    fn partition_element(&self, element: Range<usize>) -> Result<PartitionClause> {
        let (partition, end) = self.partition(element.start)?;
        match end == element.end {
            true => Ok(partition),
            false => Err(self.syntax_error_at(end)),
        }
    }

    fn syntax_error_at(&self, at: usize) -> datafusion::error::DataFusionError {
        match () {
            () if self.is(at, "subpartition") => unsupported_error("SUBPARTITION"),
            () if self.is_one_of(at, &["tablespace", "column"]) => {
                unsupported_error("TABLESPACE or COLUMN of a table partition")
            }
            () => syntax(
                "a table partition is START (…) END (…) EVERY (…), VALUES (…), or DEFAULT PARTITION name",
            ),
        }
    }

    /// Parses the definition of a table partition at `at`. Returns it and the index after it.
    fn partition(&self, at: usize) -> Result<(PartitionClause, usize)> {
        let (mut partition, end) = self.partition_without_options(at)?;
        if !self.is(end, "with") || !matches!(self.token(end + 1), Some(Token::LParen)) {
            return Ok((partition, end));
        }
        let (options, end) = self.list(end + 1)?;
        for option in options {
            let (name, value) = self.option(option)?;
            if !FILE_OPTIONS.contains(&name.as_str()) {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("option \"{name}\" is one of tables, not of table partitions"),
                )
                .with_hint("options of table partitions are compression, compression_level, row_group_rows and target_file_bytes")
                .into_datafusion());
            }
            partition.options.insert(name, value);
        }
        Ok((partition, end))
    }

    fn partition_without_options(&self, at: usize) -> Result<(PartitionClause, usize)> {
        let options = BTreeMap::new();
        let mut at = at;
        if self.is(at, "default") && self.is(at + 1, "partition") {
            let name = self.name(at + 2).ok_or_else(|| syntax("DEFAULT PARTITION needs a name"))?;
            return Ok((PartitionClause { name: Some(name), holds: HoldsClause::Rest, options }, at + 3));
        }
        let mut name = None;
        if self.is(at, "partition") {
            at += 1;
            if !self.is_definition(at) {
                name = Some(self.name(at).ok_or_else(|| self.syntax_error_at(at))?);
                at += 1;
            }
        }
        if self.is(at, "values") {
            let (values, end) = self.list(at + 1)?;
            let values = values.into_iter().map(|value| self.sql(value)).collect();
            return Ok((PartitionClause { name, holds: HoldsClause::Values(values), options }, end));
        }
        if !self.is_definition(at) {
            return Err(self.syntax_error_at(at));
        }
        let (mut start, mut end, mut every) = (None, None, None);
        if self.is(at, "start") {
            (start, at) = self.bound_at(at, false)?;
        }
        if self.is(at, "end") {
            (end, at) = self.bound_at(at, true)?;
        }
        if self.is(at, "every") {
            let value;
            (value, at) = self.single_value(at + 1)?;
            every = Some(self.sql(value));
        }
        Ok((PartitionClause { name, holds: HoldsClause::Range { start, end, every }, options }, at))
    }

    /// Whether the bounds or values of a table partition begin at `at`.
    fn is_definition(&self, at: usize) -> bool {
        self.is_one_of(at, &["start", "end", "values"]) && matches!(self.token(at + 1), Some(Token::LParen))
    }

    /// Parses a bound. By default START is inclusive and END exclusive.
    fn bound_at(&self, at: usize, is_end: bool) -> Result<(Option<BoundClause>, usize)> {
        let (value, end) = self.single_value(at + 1)?;
        let value = self.sql(value);
        let (is_included, at) = match () {
            () if self.is(end, "inclusive") => (true, end + 1),
            () if self.is(end, "exclusive") => (false, end + 1),
            () => (!is_end, end),
        };
        Ok((Some(BoundClause { value, after: is_included == is_end }), at))
    }

    fn single_value(&self, open: usize) -> Result<(Range<usize>, usize)> {
        let (values, end) = self.list(open)?;
        match &values[..] {
            [value] => Ok((value.clone(), end)),
            _ => Err(syntax("a bound of a table partition is one value")),
        }
    }

    /// Parses an ALTER TABLE of table partitions. Returns the change and its tokens; `None` for other
    /// statements.
    pub(super) fn partition_change(&self) -> Result<Option<(PartitionChange, Range<usize>)>> {
        let mut at = 2;
        if self.is(at, "if") && self.is(at + 1, "exists") {
            at += 2;
        }
        if self.is(at, "only") {
            at += 1;
        }
        while matches!(self.token(at + 1), Some(Token::Period)) {
            at += 2;
        }
        let begin = at + 1;
        let noun = begin + 1;
        let is_default = self.is(noun, "default") && self.is(noun + 1, "partition");
        if !is_default && !self.is(noun, "partition") {
            return Ok(None);
        }
        if self.is_one_of(begin, &["split", "exchange"]) {
            return Err(unsupported_error("ALTER TABLE … SPLIT or EXCHANGE PARTITION"));
        }
        let (change, mut end) = match () {
            // A column may be called `partition`, and external tables have partitions named by their keys.
            () if self.is(begin, "add") => {
                if !is_default && !self.is_definition(noun + 1) && !self.is_definition(noun + 2) {
                    return Ok(None);
                }
                let (partition, end) = self.partition(noun)?;
                (PartitionChange::Add(partition), end)
            }
            () if self.is(begin, "drop") => {
                let mut at = if is_default { noun + 2 } else { noun + 1 };
                let if_exists = self.is(at, "if") && self.is(at + 1, "exists");
                if if_exists {
                    at += 2;
                }
                let Some((which, end)) = self.partition_ref(is_default, at)? else { return Ok(None) };
                (PartitionChange::Drop { which, if_exists }, end)
            }
            () if self.is(begin, "truncate") => {
                let at = if is_default { noun + 2 } else { noun + 1 };
                let Some((which, end)) = self.partition_ref(is_default, at)? else { return Ok(None) };
                (PartitionChange::Truncate(which), end)
            }
            () if self.is(begin, "rename") => {
                let at = if is_default { noun + 2 } else { noun + 1 };
                let Some((which, to)) = self.partition_ref(is_default, at)? else { return Ok(None) };
                let Some(name) = self.name(to + 1).filter(|_| self.is(to, "to")) else { return Ok(None) };
                (PartitionChange::Rename(which, name), to + 2)
            }
            () => return Ok(None),
        };
        if self.is_one_of(end, &["cascade", "restrict"]) {
            end += 1;
        }
        match end == self.len() {
            true => Ok(Some((change, begin..end))),
            false => Err(self.syntax_error_at(end)),
        }
    }

    fn partition_ref(&self, is_default: bool, at: usize) -> Result<Option<(PartitionRef, usize)>> {
        if is_default {
            return Ok(Some((PartitionRef::Default, at)));
        }
        if self.is(at, "for") && matches!(self.token(at + 1), Some(Token::LParen)) {
            let (value, end) = self.single_value(at + 1)?;
            return Ok(Some((PartitionRef::Of(self.sql(value)), end)));
        }
        Ok(self.name(at).map(|name| (PartitionRef::Name(name), at + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::take_clauses;
    use super::*;

    fn division(sql: &str) -> Division {
        take_clauses(sql).unwrap().1.unwrap().division.unwrap()
    }

    fn at(value: &str, after: bool) -> Option<BoundClause> {
        Some(BoundClause { value: value.to_string(), after })
    }

    #[test]
    fn ranges_are_taken() {
        let ranges = division(
            "CREATE TABLE t (a int, d date) DISTRIBUTED BY (a) PARTITION BY RANGE (d) \
             (START (date '2008-01-01') INCLUSIVE END (date '2009-01-01') EXCLUSIVE EVERY (INTERVAL '1 month'), \
              PARTITION \"Late\" START ('x') EXCLUSIVE END (f(1, 2)) INCLUSIVE, PARTITION open END (5), DEFAULT PARTITION rest)",
        );
        assert_eq!((ranges.by, ranges.column.as_str()), (DividedBy::Range, "d"));
        let [every, late, open, rest] = &ranges.partitions[..] else { panic!("{ranges:?}") };
        assert_eq!(every.name, None);
        assert_eq!(
            every.holds,
            HoldsClause::Range {
                start: at("date '2008-01-01'", false),
                end: at("date '2009-01-01'", false),
                every: Some("INTERVAL '1 month'".to_string()),
            }
        );
        assert_eq!(late.name.as_deref(), Some("Late"));
        assert_eq!(
            late.holds,
            HoldsClause::Range { start: at("'x'", true), end: at("f(1, 2)", true), every: None }
        );
        assert_eq!(open.holds, HoldsClause::Range { start: None, end: at("5", false), every: None });
        assert_eq!((rest.name.as_deref(), &rest.holds), (Some("rest"), &HoldsClause::Rest));
    }

    #[test]
    fn lists_are_taken() {
        let lists = division(
            "CREATE TABLE t (g text) PARTITION BY LIST (g) (PARTITION girls VALUES ('F', NULL), DEFAULT PARTITION other)",
        );
        assert_eq!((lists.by, lists.column.as_str()), (DividedBy::List, "g"));
        let values = ["'F'", "NULL"].map(str::to_string).to_vec();
        assert_eq!(lists.partitions[0].holds, HoldsClause::Values(values));
    }

    #[test]
    fn options_of_table_partitions_are_taken() {
        let ranges = division(
            "CREATE TABLE t (a int) PARTITION BY RANGE (a) (START (1) END (9) EVERY (2) WITH (compression = gzip, compression_level = 9), \
             DEFAULT PARTITION rest WITH (row_group_rows = 100)) WITH (compression = snappy)",
        );
        let options = |at: usize| {
            ranges.partitions[at]
                .options
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(options(0), ["parquet_compression=gzip", "parquet_compression_level=9"]);
        assert_eq!(options(1), ["parquet_row_group_size=100"]);
        for options in ["inline_rows = 1", "format = parquet", "compression = arj", "speed = 1"] {
            let sql = format!("CREATE TABLE t (a int) PARTITION BY LIST (a) (VALUES (1) WITH ({options}))");
            assert!(take_clauses(&sql).is_err(), "{options}");
        }
    }

    #[test]
    fn partitions_are_altered() {
        let change = |sql: &str| take_clauses(sql).unwrap().1.and_then(|clauses| clauses.change);
        let name = |name: &str| PartitionRef::Name(name.to_string());
        for (sql, expected) in [
            (
                "ALTER TABLE t DROP PARTITION p1",
                PartitionChange::Drop { which: name("p1"), if_exists: false },
            ),
            (
                "ALTER TABLE s.t DROP PARTITION IF EXISTS p1 CASCADE",
                PartitionChange::Drop { which: name("p1"), if_exists: true },
            ),
            (
                "ALTER TABLE t DROP PARTITION FOR (1 + 2)",
                PartitionChange::Drop { which: PartitionRef::Of("1 + 2".to_string()), if_exists: false },
            ),
            (
                "ALTER TABLE t DROP DEFAULT PARTITION",
                PartitionChange::Drop { which: PartitionRef::Default, if_exists: false },
            ),
            ("ALTER TABLE t TRUNCATE PARTITION p1", PartitionChange::Truncate(name("p1"))),
            (
                "ALTER TABLE t RENAME PARTITION p1 TO p2",
                PartitionChange::Rename(name("p1"), "p2".to_string()),
            ),
            (
                "ALTER TABLE t ADD DEFAULT PARTITION rest",
                PartitionChange::Add(PartitionClause {
                    name: Some("rest".to_string()),
                    holds: HoldsClause::Rest,
                    options: BTreeMap::new(),
                }),
            ),
            (
                "ALTER TABLE t ADD PARTITION START (1) END (2)",
                PartitionChange::Add(PartitionClause {
                    name: None,
                    holds: HoldsClause::Range { start: at("1", false), end: at("2", false), every: None },
                    options: BTreeMap::new(),
                }),
            ),
        ] {
            assert_eq!(change(sql), Some(expected), "{sql}");
            assert!(take_clauses(sql).unwrap().0.contains("SET ( a = 1 )"), "{sql}");
        }
        for sql in [
            "ALTER TABLE t ADD PARTITION int",
            "ALTER TABLE t ADD PARTITION (k = 1)",
            "ALTER TABLE t DROP PARTITION (k = 1)",
            "ALTER TABLE t DROP COLUMN partition",
            "ALTER TABLE t RENAME partition TO b",
        ] {
            assert_eq!(change(sql), None, "{sql}");
        }
    }

    #[test]
    fn wrong_divisions_are_refused() {
        for sql in [
            "CREATE TABLE t (a int) PARTITION BY RANGE (a)",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a, b) (START (1))",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a) (START (1, 2))",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a) (PARTITION p)",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a) (PARTITION p START (1) WITH (x = 1))",
            "CREATE TABLE t (a int) PARTITION BY RANGE (a) SUBPARTITION BY LIST (b) (START (1))",
            "CREATE TABLE t (a int) PARTITION BY LIST (a) (VALUES ())",
            "ALTER TABLE t SPLIT PARTITION p AT (1)",
            "ALTER TABLE t DROP PARTITION p q",
            "ALTER TABLE t SET PARTITIONED BY RANGE (a) (START (1))",
        ] {
            assert!(take_clauses(sql).is_err(), "{sql}");
        }
    }
}
