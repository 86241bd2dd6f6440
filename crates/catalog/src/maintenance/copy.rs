//! Export and import of a whole catalog as of one moment, in a format independent of the database.
//!
//! ```text
//!   Catalog::copy_out ─► Line, Line, … and CopySummary: the snapshot and its files     one read transaction
//!   Line, Line, …     ─► copy_in ─► another catalog with its own identity         one write transaction
//! ```
//!
//! Contents: DuckLake's tables, Harrier's own (roles, sequences, ANALYZE results), and inlined rows. Not
//! included: the locations of the catalog and its data, its identity, current writers and servers, and files
//! of expired snapshots.
//!
//! # Invariants
//! - In a copy every file name is relative to the folder of its table. A file outside of it is renamed
//!   ([`CopiedFile::name`]).
//! - A copy of one kind of database can be imported into the other, unless that cannot represent its
//!   contents, which is an error (0A000).
//!
//! Memory bound: some hundred rows, and the names of all files. Crash: an interrupted import leaves nothing
//! in the database.

use std::io;

use harrier_error::{SqlError, SqlState};

use crate::access::store;
use crate::catalog::{Catalog, analysis};
use crate::database::Database;
use crate::database::session::{Row, Session};
use crate::database::sql::{Dialect, Rows, boolean, flag, name, text};
use crate::error::{Error, Result};
use crate::layout;
use crate::layout::{identity, inlined, sequences};
use crate::maintenance::folders::Folders;
use crate::model::files::Cell;
use crate::model::identity::{Identity, Place};
use crate::model::ids::{ObjectId, SnapshotId};
use crate::model::types::ColumnType;
use crate::model::values;
use crate::snapshot::{head, inlined_rows, objects};

/// Rows per INSERT statement.
const ROWS_AT_ONCE: usize = 500;

/// Tables whose rows are not copied.
const SCHEDULED: &str = "ducklake_files_scheduled_for_deletion";
const DATA_FILES: &str = "ducklake_data_file";
const DELETE_FILES: &str = "ducklake_delete_file";
const METADATA: &str = "ducklake_metadata";
const INLINED_TABLES: &str = "ducklake_inlined_data_tables";
const INLINED_ROWS: &str = "ducklake_inlined_data_";
const INLINED_DELETES: &str = "ducklake_inlined_delete_";

/// The cells of one row.
pub type Cells = Vec<Cell>;

/// An item of a copy. Rows belong to the last table.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Table(CopiedTable),
    Row(Cells),
}

/// A table of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    pub name: String,
    /// Names and types: DuckLake's for inlined rows, the layout's for all other tables.
    pub columns: Vec<(String, String)>,
}

/// A data or delete file visible to some snapshot of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Below the data folder of the copy.
    pub name: String,
    /// Its absolute location.
    pub source: String,
    /// Its length, if the catalog contains it.
    pub bytes: Option<u64>,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq)]
pub struct CopySummary {
    /// The newest snapshot.
    pub snapshot: SnapshotId,
    /// Time of the snapshot, as `2026-11-22 07:30:28.649688+00`.
    pub time: String,
    /// Time of the export, by the clock of this process.
    pub copied: String,
    /// The version of Harrier's layout.
    pub layout: i64,
    pub identity: Option<Identity>,
    /// Location of the data files; ends in `/`.
    pub data_path: String,
    pub files: Vec<CopiedFile>,
}

/// Tables with the same layout in both databases, with their columns.
fn fixed_tables() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = analysis::TABLES.into_iter().chain(sequences::TABLES).chain(store::TABLES);
    layout::TABLES.iter().copied().chain(own)
}

/// Names and types of a table's columns, from its definition.
fn columns_of(definition: &str) -> Vec<(String, String)> {
    // A key over several columns comes last.
    let columns = definition.split(", PRIMARY KEY (").next().unwrap_or(definition);
    let column = |column: &str| {
        let mut words = column.split_whitespace();
        let name = words.next().unwrap_or_default().trim_matches('"').to_string();
        (name, words.next().unwrap_or_default().to_string())
    };
    columns.split(", ").map(column).collect()
}

impl Catalog {
    /// Exports the whole catalog to `put`, as of one moment, concurrently with commits.
    ///
    /// Errors: those of `put` (58030, 53100); a file has no unique name in a copy (0A000).
    pub async fn copy_out(
        &self,
        put: &mut (dyn FnMut(Line) -> io::Result<()> + Send),
    ) -> Result<CopySummary> {
        let database = &self.inner.database;
        let mut session = database.read().await?;
        let head = head::head(&mut session, None).await?;
        let folders = Folders::load(&mut session, database.folder()).await?;
        let mut files = Vec::new();
        for (table, definition) in fixed_tables() {
            if session.has_table(table).await? {
                let columns = columns_of(definition);
                copy_table(&mut session, table, columns, &folders, &mut files, put).await?;
            }
        }
        export_inlined_rows(&mut session, put).await?;
        Ok(CopySummary {
            snapshot: head.snapshot,
            time: values::format_time(head.time),
            copied: values::format_time(values::now()),
            layout: head.settings.own_layout()?,
            identity: identity::load(&mut session).await?,
            data_path: folders.root,
            files,
        })
    }
}

async fn copy_table(
    session: &mut Session,
    table: &str,
    columns: Vec<(String, String)>,
    folders: &Folders,
    files: &mut Vec<CopiedFile>,
    put: &mut (dyn FnMut(Line) -> io::Result<()> + Send),
) -> Result<()> {
    if table == SCHEDULED {
        return Ok(());
    }
    let selected = columns.iter().map(|(column, kind)| {
        let column = name(column)?;
        Ok(if kind == "BOOLEAN" { flag(&column) } else { column })
    });
    let selected = selected.collect::<Result<Vec<_>>>()?.join(", ");
    let place = |wanted: &str| columns.iter().position(|(column, _)| column == wanted);
    let of_files = match table {
        DATA_FILES | DELETE_FILES => {
            place("table_id").zip(place("path")).zip(place("path_is_relative")).zip(place("file_size_bytes"))
        }
        _ => None,
    };
    let times: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].1 == "TIMESTAMPTZ").collect();
    put(Line::Table(CopiedTable { name: table.to_string(), columns: columns.clone() })).map_err(unwritten)?;
    let each = |row: Row| {
        let mut cells = row.into_cells();
        if table == METADATA && is_of_place(&cells) {
            return Ok(());
        }
        for at in &times {
            if let Cell::Text(time) = &cells[*at]
                && let Some(time) = values::parse_time(time)
            {
                cells[*at] = Cell::Text(values::format_time(time));
            }
        }
        if let Some((((of, path), relative), bytes)) = of_files {
            files.push(relative_file(&mut cells, (of, path, relative, bytes), folders)?);
        }
        put(Line::Row(cells)).map_err(unwritten)
    };
    session.each(format!("SELECT {selected} FROM {table}"), each).await
}

/// Whether a row of `ducklake_metadata` contains the catalog's identity or location.
fn is_of_place(cells: &[Cell]) -> bool {
    let is_own = |key: &String| key == "data_path" || identity::KEYS.contains(&key.as_str());
    matches!(cells, [Cell::Text(key), _, Cell::Null, ..] if is_own(key))
}

/// Makes the file name in a row relative to its table's folder.
fn relative_file(
    cells: &mut [Cell],
    (of, path, relative, bytes): (usize, usize, usize, usize),
    folders: &Folders,
) -> Result<CopiedFile> {
    let (Cell::Integer(id), Cell::Integer(table), Cell::Text(stored)) = (&cells[0], &cells[of], &cells[path])
    else {
        return Err(Error::Corrupt("the catalog has a file without a number, a table or a path".to_string()));
    };
    let folder = folders.tables.get(table).ok_or_else(|| {
        Error::Corrupt(format!("file {id} is of table {table}, which the catalog does not know"))
    })?;
    if !folder.relative {
        let path = &folder.path;
        return Err(Error::Unsupported(format!(
            "the folder of a table lies outside of the warehouse, which cannot be copied: \"{path}\""
        )));
    }
    let (own, source) = match cells[relative] == Cell::Integer(1) {
        true => (stored.clone(), format!("{}{}{stored}", folders.root, folder.path)),
        false => (format!("elsewhere-{id}-{:016x}.parquet", fingerprint(stored)), stored.clone()),
    };
    let name = format!("{}{own}", folder.path);
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(Error::Unsupported(format!("a file of the warehouse has no usable name: \"{name}\"")));
    }
    let bytes = match &cells[bytes] {
        Cell::Integer(bytes) => u64::try_from(*bytes).ok(),
        _ => None,
    };
    cells[path] = Cell::Text(own);
    cells[relative] = Cell::Integer(1);
    Ok(CopiedFile { name, source, bytes })
}

/// FNV-1a, which is stable across versions: two files with the same id in diverged histories get different
/// names.
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Inlined rows, and inlined deletions of file rows.
async fn export_inlined_rows(
    session: &mut Session,
    put: &mut (dyn FnMut(Line) -> io::Result<()> + Send),
) -> Result<()> {
    let sql = format!("SELECT table_id, table_name, schema_version FROM {INLINED_TABLES} ORDER BY 1, 3");
    let mut kept = Vec::new();
    for row in session.query(sql).await? {
        kept.push((row.integer(0)?, row.text(1)?, row.integer(2)?));
    }
    for (table, kept, version) in &kept {
        if session.has_table(kept).await? {
            export_inlined_table(session, *table, kept, *version, put).await?;
        }
    }
    let mut tables = Vec::new();
    for row in session.query("SELECT DISTINCT table_id FROM ducklake_table ORDER BY 1").await? {
        tables.push(row.integer(0)?);
    }
    for table in tables {
        let deletes = inlined::delete_table(table);
        if session.has_table(&deletes).await? {
            let columns = ["file_id", "row_id", "begin_snapshot"];
            let typed = columns.map(|column| (column.to_string(), "BIGINT".to_string())).to_vec();
            put(Line::Table(CopiedTable { name: deletes.clone(), columns: typed })).map_err(unwritten)?;
            let sql = format!("SELECT {} FROM {deletes}", columns.join(", "));
            session.each(sql, |row| put(Line::Row(row.into_cells())).map_err(unwritten)).await?;
        }
    }
    Ok(())
}

async fn export_inlined_table(
    session: &mut Session,
    table: ObjectId,
    kept: &str,
    version: i64,
    put: &mut (dyn FnMut(Line) -> io::Result<()> + Send),
) -> Result<()> {
    let columns = inlined_rows::inlined_columns(session, table, version).await?;
    let typed = columns.iter().map(|column| (column.name.clone(), column.kind.to_string())).collect();
    put(Line::Table(CopiedTable { name: kept.to_string(), columns: typed })).map_err(unwritten)?;
    let mut wanted = String::from("row_id, begin_snapshot, end_snapshot");
    for (place, column) in columns.iter().enumerate() {
        // The alias distinguishes names that differ from DuckLake's columns in case only.
        wanted += &format!(", {} AS c{place}", name(&column.name)?);
    }
    let dialect = session.dialect();
    let each = |row: Row| {
        let mut cells = row.into_cells();
        let own = cells.split_off(3).into_iter().zip(&columns);
        for (cell, column) in own {
            cells.push(inlined::decode(dialect, column.kind, cell)?);
        }
        put(Line::Row(cells)).map_err(unwritten)
    };
    session.each(format!("SELECT {wanted} FROM {}", name(kept)?), each).await
}

fn unwritten(error: io::Error) -> Error {
    let is_full = error.kind() == io::ErrorKind::StorageFull;
    let state = if is_full { SqlState::DISK_FULL } else { SqlState::IO_ERROR };
    Error::Refused(Box::new(SqlError::new(state, format!("cannot write the copy of the catalog: {error}"))))
}

fn unreadable(error: io::Error) -> Error {
    Error::Corrupt(format!("cannot read the copy of the catalog: {error}"))
}

/// Imports a copy into a new catalog at `sqlite:PATH` or `postgres://HOST/DATABASE`. `data_path`: location of
/// its files; ends in `/`. `identity`: its identity, given its place. Returns its newest snapshot. Atomic,
/// except that an SQLite file may remain.
///
/// Errors: there is a warehouse (42P07); the database cannot represent the copy's contents (0A000); the copy
/// is malformed (XX001).
pub async fn copy_in(
    url: &str,
    lines: impl Iterator<Item = io::Result<Line>>,
    data_path: &str,
    identity: impl Fn(&Place) -> Identity,
) -> Result<SnapshotId> {
    let database = Database::connect(url, true, None).await?;
    let put_in = async {
        let place = database.place().await?;
        if database.has_warehouse().await? {
            let message = format!("there is a warehouse in {} already", database.name());
            return Err(Error::Refused(Box::new(SqlError::new(SqlState::DUPLICATE_TABLE, message))));
        }
        let mut session = database.write().await?;
        layout::create_tables(&mut session).await?;
        import_lines(&mut session, lines).await?;
        let path = text(data_path)?;
        let own = identity::rows(&identity(&place))?;
        session
            .execute(format!(
                "INSERT INTO {METADATA} (\"key\", \"value\", \"scope\", scope_id) VALUES ('data_path', {path}, NULL, NULL), {own}"
            ))
            .await?;
        // Rejects contents that could not be opened later.
        let head = head::head(&mut session, None).await?;
        objects::state(&mut session, &head, database.folder()).await?;
        session.commit().await?;
        Ok(head.snapshot)
    };
    let outcome = put_in.await;
    // Closing completes an SQLite database in its single file.
    database.close().await;
    outcome
}

/// The table whose rows are being inserted.
struct TableImport {
    kind: Kind,
    /// Head of its INSERT statement.
    head: (String, String),
    rows: Rows,
    open: usize,
}

enum Kind {
    /// Its boolean columns.
    Fixed(Vec<bool>),
    Inlined(Vec<ColumnType>),
}

async fn import_lines(session: &mut Session, lines: impl Iterator<Item = io::Result<Line>>) -> Result<()> {
    let mut import: Option<TableImport> = None;
    for line in lines {
        match line.map_err(unreadable)? {
            Line::Table(table) => {
                finish(session, import.take()).await?;
                import = Some(begin(session, table).await?);
            }
            Line::Row(cells) => {
                let import = import.as_mut().ok_or_else(|| {
                    Error::Corrupt("the copy of the catalog has a row of no table".to_string())
                })?;
                import.rows.add(&import.literals(session.dialect(), &cells)?);
                import.open += 1;
                if import.open == ROWS_AT_ONCE {
                    let (table, columns) = &import.head;
                    let full = std::mem::replace(&mut import.rows, Rows::into(table, columns));
                    import.open = 0;
                    for statement in full.finish() {
                        session.execute(statement).await?;
                    }
                }
            }
        }
    }
    finish(session, import).await
}

async fn finish(session: &mut Session, import: Option<TableImport>) -> Result<()> {
    for statement in import.map(|import| import.rows.finish()).unwrap_or_default() {
        session.execute(statement).await?;
    }
    Ok(())
}

/// Creates a table, unless every catalog has it.
async fn begin(session: &mut Session, table: CopiedTable) -> Result<TableImport> {
    let CopiedTable { name: table, columns } = table;
    let dialect = session.dialect();
    let mut names = columns.iter().map(|(column, _)| name(column)).collect::<Result<Vec<_>>>()?;
    let kind = if let Some((_, definition)) = fixed_tables().find(|(fixed, _)| *fixed == table) {
        if columns != columns_of(definition) {
            return Err(Error::Unsupported(format!("the copy has other columns of table \"{table}\"")));
        }
        if !layout::TABLES.iter().any(|(made, _)| *made == table) {
            session.execute(format!("CREATE TABLE {table} ({definition})")).await?;
        }
        Kind::Fixed(columns.iter().map(|(_, kind)| kind == "BOOLEAN").collect())
    } else if is_inlined_table(&table, INLINED_DELETES) && columns.len() == 3 {
        session.execute(inlined::create_deletes(&table)).await?;
        Kind::Fixed(vec![false; 3])
    } else if is_inlined_table(&table, INLINED_ROWS) {
        let (columns_max, name_bytes_max) = inlined::limits(dialect);
        if columns.len() > columns_max || columns.iter().any(|(column, _)| column.len() > name_bytes_max) {
            return Err(Error::Unsupported(format!(
                "rows of a table cannot be kept in this database, which has fewer columns or shorter names: \"{table}\""
            )));
        }
        let kinds = columns.iter().map(|(_, kind)| {
            kind.parse().map_err(|_| Error::Unsupported(format!("the copy has a column of type {kind}")))
        });
        let kinds = kinds.collect::<Result<Vec<ColumnType>>>()?;
        let pairs = columns.iter().map(|(column, _)| column.as_str()).zip(kinds.iter().copied());
        session.execute(inlined::create(dialect, &table, pairs)?).await?;
        names.splice(0..0, ["row_id", "begin_snapshot", "end_snapshot"].map(str::to_string));
        Kind::Inlined(kinds)
    } else {
        return Err(Error::Unsupported(format!(
            "the copy has table \"{table}\", which this version of Harrier does not know"
        )));
    };
    let head = (table, names.join(", "));
    Ok(TableImport { kind, rows: Rows::into(&head.0, &head.1), head, open: 0 })
}

/// Whether a name is that of an inlined table: the prefix, and numbers after it.
fn is_inlined_table(table: &str, begin: &str) -> bool {
    let numbers = table.strip_prefix(begin).unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    numbers.split('_').all(is_number)
}

impl TableImport {
    /// A row as comma-separated literals.
    fn literals(&self, dialect: Dialect, cells: &[Cell]) -> Result<String> {
        let literals = match &self.kind {
            Kind::Fixed(booleans) if booleans.len() == cells.len() => {
                let literals =
                    cells.iter().zip(booleans).map(|(cell, is_boolean)| fixed_literal(cell, *is_boolean));
                literals.collect::<Result<Vec<_>>>()?
            }
            Kind::Inlined(kinds) if kinds.len() + 3 == cells.len() => {
                let (first, own) = cells.split_at(3);
                let first = first.iter().map(|cell| fixed_literal(cell, false));
                let own = own.iter().zip(kinds).map(|(cell, kind)| inlined::literal(dialect, *kind, cell));
                first.chain(own).collect::<Result<Vec<_>>>()?
            }
            _ => {
                let table = &self.head.0;
                return Err(Error::Corrupt(format!(
                    "the copy has a row of other columns in table \"{table}\""
                )));
            }
        };
        Ok(literals.join(", "))
    }
}

fn fixed_literal(cell: &Cell, is_boolean: bool) -> Result<String> {
    Ok(match cell {
        Cell::Null => "NULL".to_string(),
        Cell::Integer(value) if is_boolean => boolean(*value != 0).to_string(),
        Cell::Integer(value) => value.to_string(),
        Cell::Text(value) => text(value)?,
        Cell::Blob(_) => {
            return Err(Error::Corrupt("the copy has bytes where the catalog has none".to_string()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_parsed_from_create_table() {
        for (table, definition) in fixed_tables() {
            let columns = columns_of(definition);
            assert!(!columns.is_empty(), "{table}");
            for (column, kind) in columns {
                assert!(
                    ["BIGINT", "VARCHAR", "TEXT", "UUID", "BOOLEAN", "TIMESTAMPTZ"].contains(&kind.as_str()),
                    "{table} {column} {kind}"
                );
                assert!(
                    column.bytes().all(|sign| sign.is_ascii_lowercase() || sign == b'_'),
                    "{table} {column}"
                );
            }
        }
    }

    #[test]
    fn inlined_row_tables_are_known_by_their_names() {
        assert!(
            is_inlined_table("ducklake_inlined_data_1_22", INLINED_ROWS)
                && is_inlined_table("ducklake_inlined_delete_3", INLINED_DELETES)
        );
        for other in [
            "ducklake_inlined_data_",
            "ducklake_inlined_data_1_x",
            "ducklake_inlined_data_tables",
            "x",
            "ducklake_inlined_data_1; DROP",
        ] {
            assert!(!is_inlined_table(other, INLINED_ROWS), "{other}");
        }
    }
}
