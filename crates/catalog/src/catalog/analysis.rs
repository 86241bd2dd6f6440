//! Results of ANALYZE: counts and values that are not in file statistics. They are for planning only, so they
//! may be stale.
//!
//! DuckLake has no tables for them: they are in Harrier's own tables, created when the first table is
//! analyzed.

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::database::retry::retry_if_lost;
use crate::database::session::Session;
use crate::database::sql::{list, optional, text};
use crate::error::{Error, Result};
use crate::layout::changes;
use crate::model::ids::{ColumnId, ObjectId, SnapshotId};

const TABLE: &str = "harrier_table_analysis";
const COLUMN: &str = "harrier_column_analysis";
const HISTOGRAM: &str = "harrier_column_histogram";

/// All of these tables; each has a column `table_id`.
pub(crate) const ANALYSES: [&str; 3] = [TABLE, COLUMN, HISTOGRAM];

/// Format of stored histograms. Other formats are ignored.
const FORMAT: i64 = 1;

/// ANALYZE results of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// The analyzed snapshot.
    pub snapshot: SnapshotId,
    pub rows: i64,
    /// Results of the analyzed columns.
    pub columns: BTreeMap<ColumnId, ColumnAnalysis>,
}

/// ANALYZE results of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnAnalysis {
    /// Approximate number of distinct values.
    pub distinct: i64,
    pub nulls: i64,
    /// Mean size of a value, if sizes vary.
    pub mean_bytes: Option<i64>,
    /// Only if requested, and if the values have an order.
    pub histogram: Option<Histogram>,
}

/// Distribution of the values of a column, as texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Most common values in descending order, with the fraction of rows that have them.
    pub common: Vec<(String, f64)>,
    /// Bounds of equal-height buckets of the other values, ascending, including the minimum and maximum.
    pub bounds: Vec<String>,
}

/// The columns whose histograms are requested.
#[derive(Debug, Clone, Copy)]
pub enum Histograms<'a> {
    All,
    Of(&'a [ColumnId]),
}

impl Catalog {
    /// Stores the results of a table. Results of columns not contained in it are kept.
    pub async fn store_analysis(&self, table: ObjectId, analysis: &Analysis) -> Result<()> {
        let mut session = self.inner.database.write().await?;
        make(&mut session).await?;
        session.execute(format!("DELETE FROM {TABLE} WHERE table_id = {table}")).await?;
        let Analysis { snapshot, rows, columns } = analysis;
        session.execute(format!("INSERT INTO {TABLE} VALUES ({table}, {snapshot}, {rows})")).await?;
        for (column, found) in columns {
            for known in [COLUMN, HISTOGRAM] {
                let sql = format!("DELETE FROM {known} WHERE table_id = {table} AND column_id = {column}");
                session.execute(sql).await?;
            }
            let ColumnAnalysis { distinct, nulls, mean_bytes, histogram } = found;
            let bytes = optional(*mean_bytes);
            let sql =
                format!("INSERT INTO {COLUMN} VALUES ({table}, {column}, {distinct}, {nulls}, {bytes})");
            session.execute(sql).await?;
            if let Some(Histogram { common, bounds }) = histogram {
                let values = text(&array_text(common.iter().map(|(value, _)| value.as_str())))?;
                let shares = text(&array_text(common.iter().map(|(_, share)| share.to_string())))?;
                let bounds = text(&array_text(bounds))?;
                let sql = format!(
                    "INSERT INTO {HISTOGRAM} VALUES ({table}, {column}, {FORMAT}, {values}, {shares}, {bounds})"
                );
                session.execute(sql).await?;
            }
        }
        Ok(session.commit().await?)
    }

    /// The results of a table; `None` if it was never analyzed.
    pub async fn analysis(&self, table: ObjectId, wanted: Histograms<'_>) -> Result<Option<Analysis>> {
        let condition = format!("table_id = {table}");
        let read = || async { load(&mut self.inner.database.read().await?, &condition, wanted).await };
        Ok(retry_if_lost(read).await?.remove(&table))
    }

    /// The results of all tables, possibly including dropped ones.
    pub async fn analyses(&self) -> Result<BTreeMap<ObjectId, Analysis>> {
        let read = || async { load(&mut self.inner.database.read().await?, "1 = 1", Histograms::All).await };
        retry_if_lost(read).await
    }

    /// Number of rows in files added or deleted after a snapshot, as far as they still exist, and in files
    /// removed since. Compaction does not count.
    pub async fn rows_changed(&self, table: ObjectId, since: SnapshotId) -> Result<i64> {
        retry_if_lost(|| async { rows_changed(&mut self.inner.database.read().await?, table, since).await })
            .await
    }
}

async fn rows_changed(session: &mut Session, table: ObjectId, since: SnapshotId) -> Result<i64> {
    let compactions = changes::compactions(session, table, since).await?;
    let not_by_them = |column: &str| match compactions.is_empty() {
        true => String::new(),
        false => format!(" AND {column} NOT IN ({})", list(&compactions)),
    };
    let (begun, ended) = (not_by_them("begin_snapshot"), not_by_them("end_snapshot"));
    let mut changed = 0;
    for sql in [
        format!(
            "SELECT CAST(coalesce(sum(record_count), 0) AS BIGINT) FROM ducklake_data_file \
             WHERE table_id = {table} AND begin_snapshot > {since} AND end_snapshot IS NULL{begun}"
        ),
        format!(
            "SELECT CAST(coalesce(sum(delete_count), 0) AS BIGINT) FROM ducklake_delete_file \
             WHERE table_id = {table} AND begin_snapshot > {since} AND end_snapshot IS NULL{begun}"
        ),
        format!(
            "SELECT CAST(coalesce(sum(record_count), 0) AS BIGINT) FROM ducklake_data_file \
             WHERE table_id = {table} AND begin_snapshot <= {since} AND end_snapshot > {since}{ended}"
        ),
    ] {
        changed += session.query(sql).await?.first().map_or(Ok(0), |row| row.integer(0))?;
    }
    Ok(changed)
}

async fn load(
    session: &mut Session,
    condition: &str,
    wanted: Histograms<'_>,
) -> Result<BTreeMap<ObjectId, Analysis>> {
    let mut found = BTreeMap::new();
    if !session.has_table(TABLE).await? {
        return Ok(found);
    }
    let sql = format!("SELECT table_id, snapshot_id, row_count FROM {TABLE} WHERE {condition}");
    for row in session.query(sql).await? {
        let analysis =
            Analysis { snapshot: row.integer(1)?, rows: row.integer(2)?, columns: BTreeMap::new() };
        found.insert(row.integer(0)?, analysis);
    }
    if found.is_empty() {
        return Ok(found);
    }
    let sql = format!(
        "SELECT table_id, column_id, distinct_count, null_count, mean_bytes FROM {COLUMN} WHERE {condition}"
    );
    for row in session.query(sql).await? {
        let Some(analysis) = found.get_mut(&row.integer(0)?) else { continue };
        let column = ColumnAnalysis {
            distinct: row.integer(2)?,
            nulls: row.integer(3)?,
            mean_bytes: row.optional_integer(4)?,
            histogram: None,
        };
        analysis.columns.insert(row.integer(1)?, column);
    }
    let of_columns = match wanted {
        Histograms::All => String::new(),
        Histograms::Of([]) => return Ok(found),
        Histograms::Of(columns) => format!(" AND column_id IN ({})", list(columns)),
    };
    // A warehouse analyzed by an older version has no histograms.
    if !session.has_table(HISTOGRAM).await? {
        return Ok(found);
    }
    let sql = format!(
        "SELECT table_id, column_id, common_values, common_shares, bounds FROM {HISTOGRAM} \
         WHERE {condition} AND format = {FORMAT}{of_columns}"
    );
    for row in session.query(sql).await? {
        let analysis = found.get_mut(&row.integer(0)?);
        let Some(column) = analysis.and_then(|analysis| analysis.columns.get_mut(&row.integer(1).ok()?))
        else {
            continue;
        };
        column.histogram = Some(histogram(&row.text(2)?, &row.text(3)?, &row.text(4)?)?);
    }
    Ok(found)
}

fn histogram(values: &str, shares: &str, bounds: &str) -> Result<Histogram> {
    let damaged = || Error::Corrupt("the catalog has a histogram that is none".to_string());
    let elements = |array: &str| elements(array).ok_or_else(damaged);
    let values = elements(values)?;
    let shares = elements(shares)?;
    let shares = shares.iter().map(|share| share.parse::<f64>().map_err(|_| damaged()));
    let shares = shares.collect::<Result<Vec<_>>>()?;
    if values.len() != shares.len() {
        return Err(damaged());
    }
    Ok(Histogram { common: values.into_iter().zip(shares).collect(), bounds: elements(bounds)? })
}

/// The tables with their columns.
pub(crate) const TABLES: [(&str, &str); 3] = [
    (TABLE, "table_id BIGINT PRIMARY KEY, snapshot_id BIGINT, row_count BIGINT"),
    (
        COLUMN,
        "table_id BIGINT, column_id BIGINT, distinct_count BIGINT, null_count BIGINT, mean_bytes BIGINT, \
         PRIMARY KEY (table_id, column_id)",
    ),
    (
        HISTOGRAM,
        "table_id BIGINT, column_id BIGINT, format BIGINT, common_values TEXT, common_shares TEXT, \
         bounds TEXT, PRIMARY KEY (table_id, column_id)",
    ),
];

async fn make(session: &mut Session) -> Result<()> {
    for (name, columns) in TABLES {
        if !session.has_table(name).await? {
            session.execute(format!("CREATE TABLE {name} ({columns})")).await?;
        }
    }
    Ok(())
}

/// Formats texts as PostgreSQL's array literal.
pub fn array_text<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let mut out = String::from("{");
    for text in texts {
        let text = text.as_ref();
        if out.len() > 1 {
            out.push(',');
        }
        let is_special = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\');
        if !text.is_empty() && !text.contains(is_special) && !text.eq_ignore_ascii_case("null") {
            out.push_str(text);
            continue;
        }
        out.push('"');
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push('}');
    out
}

/// Parses an array without NULLs written by [`array_text`]; `None` if it is malformed.
fn elements(array: &str) -> Option<Vec<String>> {
    let inner = array.strip_prefix('{')?.strip_suffix('}')?;
    if inner.is_empty() {
        return Some(vec![]);
    }
    let mut all = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => all.last_mut()?.push(chars.next()?),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            c => all.last_mut()?.push(c),
        }
    }
    (!is_quoted).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_round_trip() {
        let texts = ["plain", "", "a b", "a,b", "{}", "\"", "\\", "NULL", "ä\n", "-1.5"];
        assert_eq!(elements(&array_text(texts)).unwrap(), texts);
        assert_eq!(array_text(["a", "b c", ""]), r#"{a,"b c",""}"#);
        assert_eq!(elements("{}").unwrap(), Vec::<String>::new());
        for damaged in ["", "a", "{", "{\"a}", "{a\\}"] {
            assert_eq!(elements(damaged), None, "{damaged}");
        }
    }
}
