//! Bulk reads: the database packs thousands of rows of one table into one text, which is parsed here.
//!
//! A driver returns rows one by one, which costs more than finding them. So a query selects
//! `group_concat(concat(…))` over a range of rows, in which a number is its digits and a space, NULL a single
//! space, a text its length in bytes, a colon and its bytes, and a NULL text a single colon.
//!
//! Memory bound: the texts of one range: at most `RANGE_ROWS` rows of the table.
//!
//! Errors: a row that does not match the layout is [`Error::Corrupt`].

use crate::database::session::Session;
use crate::database::sql::Dialect;
use crate::error::{Error, Result};

/// Maximum number of rows per packed text. SQLite's and PostgreSQL's texts end at 1 GB: a row may have 8 KB
/// of text.
const RANGE_ROWS: i64 = 1 << 17;

/// A column of the result: an expression over the table's columns.
pub(crate) enum Wanted<'a> {
    Integer(&'a str),
    Text(&'a str),
}

/// The fields of one row, in the requested order.
pub(crate) struct Fields<'a> {
    rest: &'a str,
}

impl<'a> Fields<'a> {
    pub fn optional_integer(&mut self) -> Result<Option<i64>> {
        let (digits, rest) = self.rest.split_once(' ').ok_or_else(|| self.malformed_row())?;
        if digits.is_empty() {
            self.rest = rest;
            return Ok(None);
        }
        let number = digits.parse().map_err(|_| self.malformed_row())?;
        self.rest = rest;
        Ok(Some(number))
    }

    pub fn integer(&mut self) -> Result<i64> {
        let here = Fields { rest: self.rest };
        self.optional_integer()?.ok_or_else(|| here.malformed_row())
    }

    pub fn optional_text(&mut self) -> Result<Option<&'a str>> {
        let (digits, rest) = self.rest.split_once(':').ok_or_else(|| self.malformed_row())?;
        if digits.is_empty() {
            self.rest = rest;
            return Ok(None);
        }
        let bytes: usize = digits.parse().map_err(|_| self.malformed_row())?;
        let (text, rest) = rest.split_at_checked(bytes).ok_or_else(|| self.malformed_row())?;
        self.rest = rest;
        Ok(Some(text))
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let here = Fields { rest: self.rest };
        self.optional_text()?.ok_or_else(|| here.malformed_row())
    }

    /// A column built by `flag`.
    pub fn optional_flag(&mut self) -> Result<Option<bool>> {
        Ok(self.optional_integer()?.map(|value| value != 0))
    }

    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.optional_flag()?.unwrap_or(false))
    }

    fn malformed_row(&self) -> Error {
        let near: String = self.rest.chars().take(40).collect();
        Error::Corrupt(format!("the catalog has a row that cannot be read, near \"{near}\""))
    }
}

/// Passes every row of `table` that satisfies `condition` to `take`, which reads all of its fields. The order
/// is the database's own.
///
/// `after`: skips rows of SQLite up to this row number. Returns SQLite's current greatest row number.
pub(crate) async fn each(
    session: &mut Session,
    table: &str,
    wanted: &[Wanted<'_>],
    condition: &str,
    after: Option<i64>,
    mut take: impl FnMut(&mut Fields<'_>) -> Result<()>,
) -> Result<Option<i64>> {
    let mut unpack = |text: &str| {
        let mut fields = Fields { rest: text };
        while !fields.rest.is_empty() {
            take(&mut fields)?;
        }
        Ok::<_, Error>(())
    };
    let dialect = session.dialect();
    let packed = row_expression(dialect, wanted);
    if dialect == Dialect::Postgres {
        // PostgreSQL has no efficient range of row positions, but all rows can be returned as that many
        // groups.
        let sql = format!(
            "SELECT string_agg({packed}, '') FROM (SELECT *, row_number() OVER () / {RANGE_ROWS} AS harrier_range \
             FROM {table} WHERE {condition}) ranged GROUP BY harrier_range"
        );
        for row in session.query(sql).await? {
            if let Some(text) = row.optional_text(0)? {
                unpack(&text)?;
            }
        }
        return Ok(None);
    }
    let mut from = after.unwrap_or(i64::MIN);
    loop {
        let to = from.max(0).saturating_add(RANGE_ROWS);
        let sql = format!(
            "SELECT group_concat({packed}, ''), (SELECT max(rowid) FROM {table}) FROM {table} \
             WHERE rowid > {from} AND rowid <= {to} AND {condition}"
        );
        let rows = session.query(sql).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let last = row.optional_integer(1)?;
        if let Some(text) = row.into_text(0)? {
            unpack(&text)?;
        }
        match last {
            Some(last) if last > to => from = to,
            last => return Ok(last),
        }
    }
}

/// An expression that packs a row.
fn row_expression(dialect: Dialect, wanted: &[Wanted<'_>]) -> String {
    let mut parts = Vec::with_capacity(wanted.len());
    for column in wanted {
        parts.push(match (column, dialect) {
            (Wanted::Integer(column), _) => format!("{column}, ' '"),
            (Wanted::Text(column), Dialect::Sqlite) => format!("octet_length({column}), ':', {column}"),
            // The text is sent as UTF-8, whatever the database's encoding.
            (Wanted::Text(column), Dialect::Postgres) => {
                format!("octet_length(convert_to({column}, 'UTF8')), ':', {column}")
            }
        });
    }
    format!("concat({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_their_order() {
        let mut fields = Fields { rest: "-7 6:a é:30:: 1 " };
        assert_eq!(fields.integer().unwrap(), -7);
        assert_eq!(fields.text().unwrap(), "a é:3");
        assert_eq!(fields.optional_text().unwrap(), Some(""));
        assert_eq!(fields.optional_text().unwrap(), None);
        assert_eq!(fields.optional_integer().unwrap(), None);
        assert!(fields.flag().unwrap());
        assert!(fields.rest.is_empty());
    }

    #[test]
    fn malformed_rows_are_errors() {
        for text in ["", "x ", "7", "9:short", "1:é"] {
            let fields = || Fields { rest: text };
            assert!(matches!(fields().optional_integer(), Err(Error::Corrupt(_))), "{text}");
            assert!(matches!(fields().optional_text(), Err(Error::Corrupt(_))), "{text}");
        }
        assert!(matches!(Fields { rest: " " }.integer(), Err(Error::Corrupt(_))));
        assert!(matches!(Fields { rest: ":" }.text(), Err(Error::Corrupt(_))));
    }
}
