//! Staged writers for every process that writes for a statement.

use std::collections::BTreeMap;

use harrier_storage::StagedWriter;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::object_store::root::{Root, child};
use crate::object_store::{At, Result};

/// Suffix of staged files, by which readers ignore them.
const STAGED: &str = ".staged";

/// The name of a file that overwrites an empty folder: two concurrent overwrites replace one another.
const FIRST: &str = "rows";

/// The names under which a statement's files are published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReplacedFiles {
    #[default]
    None,
    /// Replace any file of the folder, if there are files.
    Any,
    /// Replace the file that is named for the folder.
    Named(BTreeMap<String, String>),
}

/// The staging places of one statement.
#[derive(Debug, Clone)]
pub struct StagedPlacement {
    root: Root,
    folder: Path,
    replaced_files: ReplacedFiles,
}

impl StagedPlacement {
    /// For the statement `id`.
    pub fn of(root: Root, id: &str, replaced_files: ReplacedFiles) -> Self {
        let folder = root.statement_path(id);
        Self { root, folder, replaced_files }
    }

    /// Begins a file to be published in `folder` below the table's (`""`, or `k=v/…`). `name` is unique to
    /// the statement.
    pub async fn begin(&self, folder: &str, name: &str) -> Result<Box<dyn StagedWriter>> {
        let staged = child(&self.folder, &format!("{name}{STAGED}"));
        let final_path = self.name(folder, name).await?;
        self.root.staging.begin(&staged, &final_path).await.at("write to", &final_path)
    }

    async fn name(&self, folder: &str, name: &str) -> Result<Path> {
        let own = child(&self.root.folder(folder), name);
        if !self.root.staging.binds_names() {
            return Ok(own);
        }
        match &self.replaced_files {
            ReplacedFiles::None => Ok(own),
            ReplacedFiles::Named(names) => {
                Ok(names.get(folder).and_then(|path| Path::parse(path).ok()).unwrap_or(own))
            }
            ReplacedFiles::Any => {
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

/// The file that one called `name` replaces: one in its own folder (not in subfolders, which readers of the
/// folder do not see), with the same extension if there is one.
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
