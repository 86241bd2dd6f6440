//! Begins files where nobody sees them; for every process that writes for a statement.

use std::collections::BTreeMap;

use harrier_storage::StagedWriter;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::object_store::control::{Root, child};
use crate::object_store::{At, Result};

/// The end of staged files' names, by which no reader takes them for data.
const STAGED: &str = ".staged";

/// The name of a file that overwrites an empty folder: two statements that do it at once replace one another.
const FIRST: &str = "rows";

/// Whose places the files of a statement take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Takes {
    #[default]
    None,
    /// Each that of a file in its folder, if there are any.
    Any,
    /// Each that of the file which is named for its folder.
    Named(BTreeMap<String, String>),
}

/// The places of one statement.
#[derive(Debug, Clone)]
pub struct Placing {
    root: Root,
    folder: Path,
    takes: Takes,
}

impl Placing {
    /// Of the statement `id`.
    pub fn of(root: Root, id: &str, takes: Takes) -> Self {
        let folder = root.statement_path(id);
        Self { root, folder, takes }
    }

    /// Begins a file to be shown in `folder` below the table's (`""`, or `k=v/…`). `name` is the statement's
    /// own.
    pub async fn begin(&self, folder: &str, name: &str) -> Result<Box<dyn StagedWriter>> {
        let staged = child(&self.folder, &format!("{name}{STAGED}"));
        let shown = self.name(folder, name).await?;
        self.root.staging.begin(&staged, &shown).await.at("write to", &shown)
    }

    async fn name(&self, folder: &str, name: &str) -> Result<Path> {
        let own = child(&self.root.folder(folder), name);
        if !self.root.staging.binds_names() {
            return Ok(own);
        }
        match &self.takes {
            Takes::None => Ok(own),
            Takes::Named(names) => {
                Ok(names.get(folder).and_then(|path| Path::parse(path).ok()).unwrap_or(own))
            }
            Takes::Any => {
                let present = self.root.list(&self.root.folder(folder)).await?;
                Ok(match place(&present, &own) {
                    Some(file) => file.location.clone(),
                    None => {
                        let first =
                            name.split_once('.').map_or(FIRST.into(), |(_, end)| format!("{FIRST}.{end}"));
                        child(&self.root.folder(folder), &first)
                    }
                })
            }
        }
    }
}

/// The file whose place one called `name` takes: one of its own folder, that readers know by the same
/// extension if there is one. What is in folders below is not what readers see.
pub(crate) fn place<'a>(present: &'a [ObjectMeta], name: &Path) -> Option<&'a ObjectMeta> {
    let extension =
        |path: &Path| path.filename().and_then(|name| name.split_once('.')).map(|(_, end)| end.to_string());
    let own = extension(name);
    let depth = name.parts().count();
    let is_beside = |file: &&ObjectMeta| file.size > 0 && file.location.parts().count() == depth;
    present.iter().filter(is_beside).min_by_key(|file| {
        let other = extension(&file.location);
        (other != own, other.is_some(), file.location.clone())
    })
}
