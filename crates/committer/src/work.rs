//! What a statement commits to the folders of a table, and what comes of it: the same for file systems and
//! stores, except how each finds a staged file and knows a file again.

use std::collections::BTreeMap;

/// A staged file that is complete and durable. `S`: where it is staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile<S> {
    pub staged: S,
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    /// Its final name. A file of a store that replaces another takes the name of that.
    pub name: String,
}

/// A file that a statement merges with others of its folder. `V`: the file as it was when read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedFile<V> {
    /// Below the table's folder: `""`, or `k=v/…`.
    pub folder: String,
    pub file: V,
}

/// The changes that a statement commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work<S, V> {
    pub files: Vec<StagedFile<S>>,
    /// The folders' present files are replaced by `files`.
    pub overwrite: bool,
    /// Folders that an overwriting statement empties: it has no files for them.
    pub emptied: Vec<String>,
    /// Files that `files` replace.
    pub merged: Vec<MergedFile<V>>,
}

impl<S, V> Default for Work<S, V> {
    fn default() -> Self {
        Self { files: Vec::new(), overwrite: false, emptied: Vec::new(), merged: Vec::new() }
    }
}

/// The result of publishing. `F`: how a folder is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published<F> {
    /// Folders in which a reader could for a moment see only some of the old or the new files.
    pub non_atomic_folders: Vec<F>,
}

impl<F> Default for Published<F> {
    fn default() -> Self {
        Self { non_atomic_folders: Vec::new() }
    }
}

/// The changes of one folder.
#[derive(Debug)]
pub(crate) struct FolderChange<'w, S, V> {
    pub files: Vec<&'w StagedFile<S>>,
    pub replacement: Replacement<'w, V>,
}

/// The files of a folder that new ones replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replacement<'w, V> {
    None,
    All,
    Files(Vec<&'w V>),
}

impl<S, V> Work<S, V> {
    /// The changes by folder, whose names have no `/` at their ends.
    pub(crate) fn by_folder(&self) -> BTreeMap<&str, FolderChange<'_, S, V>> {
        let mut folders: BTreeMap<&str, (Vec<&StagedFile<S>>, Vec<&V>)> = BTreeMap::new();
        for folder in &self.emptied {
            folders.entry(folder.trim_end_matches('/')).or_default();
        }
        for merged in &self.merged {
            folders.entry(merged.folder.trim_end_matches('/')).or_default().1.push(&merged.file);
        }
        for file in &self.files {
            folders.entry(file.folder.trim_end_matches('/')).or_default().0.push(file);
        }
        let change = |(files, merged): (_, Vec<_>)| {
            let replacement = match (self.overwrite, merged.is_empty()) {
                (true, _) => Replacement::All,
                (false, true) => Replacement::None,
                (false, false) => Replacement::Files(merged),
            };
            FolderChange { files, replacement }
        };
        folders.into_iter().map(|(folder, changes)| (folder, change(changes))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_grouped_by_folder() {
        let file = |folder: &str, staged| StagedFile { staged, folder: folder.into(), name: "f".into() };
        let merged = vec![MergedFile { folder: "k=1".into(), file: 7 }];
        let work =
            Work { files: vec![file("k=1/", 1), file("", 2), file("k=1", 3)], merged, ..Work::default() };
        let found: Vec<_> = work
            .by_folder()
            .into_iter()
            .map(|(folder, change)| {
                let staged: Vec<i32> = change.files.iter().map(|file| file.staged).collect();
                (folder, staged, change.replacement)
            })
            .collect();
        assert_eq!(
            found,
            [("", vec![2], Replacement::None), ("k=1", vec![1, 3], Replacement::Files(vec![&7]))]
        );
        let work: Work<(), ()> = Work { overwrite: true, emptied: vec!["k=2/".into()], ..Work::default() };
        let found = work.by_folder();
        assert!(found["k=2"].files.is_empty() && found["k=2"].replacement == Replacement::All);
    }
}
