//! Where the files of all tables are, of all times.

use std::collections::BTreeMap;

use crate::database::session::Session;
use crate::database::sql::flag;
use crate::error::{Error, Result};
use crate::model::ids::ObjectId;
use crate::model::state::Location;
use crate::snapshot::head;
use crate::snapshot::objects::location;

/// A data or delete file.
pub(super) struct File {
    pub(super) id: i64,
    pub(super) table: ObjectId,
    pub(super) location: Location,
}

/// The folders of each table's files, of all times.
pub(crate) struct Folders {
    /// Ends in `/`, as do all.
    pub root: String,
    pub tables: BTreeMap<ObjectId, Location>,
}

impl Folders {
    /// `folder`: the catalog's folder, if it is a file.
    pub async fn load(session: &mut Session, folder: Option<&str>) -> Result<Self> {
        let root = head::head(session, None).await?.settings.data_path(folder)?;
        let relative = flag("path_is_relative");
        let mut schemas = BTreeMap::new();
        for row in session.query(format!("SELECT schema_id, path, {relative} FROM ducklake_schema")).await? {
            schemas.insert(row.integer(0)?, location(&row, 1, 2)?);
        }
        let mut tables = BTreeMap::new();
        let sql = format!("SELECT table_id, schema_id, path, {relative} FROM ducklake_table");
        for row in session.query(sql).await? {
            let schema = row.integer(1)?;
            let schema = schemas.get(&schema).ok_or_else(|| {
                Error::Corrupt(format!("a table is in schema {schema}, which the catalog does not know"))
            })?;
            tables.insert(row.integer(0)?, within(schema, location(&row, 2, 3)?));
        }
        Ok(Self { root, tables })
    }

    /// Relative to the root, or absolute.
    pub(super) fn below_root(&self, file: &File) -> Result<Location> {
        let table = self.tables.get(&file.table).ok_or_else(|| {
            Error::Corrupt(format!(
                "file {} is of table {}, which the catalog does not know",
                file.id, file.table
            ))
        })?;
        Ok(within(table, file.location.clone()))
    }

    pub(super) fn absolute(&self, file: &File) -> Result<String> {
        Ok(self.below_root(file)?.below(&self.root))
    }
}

fn within(parent: &Location, location: Location) -> Location {
    match location.relative {
        true => Location { path: format!("{}{}", parent.path, location.path), relative: parent.relative },
        false => location,
    }
}
