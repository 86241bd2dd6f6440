//! Temporary folder of a benchmark, removed on drop.

use std::path::PathBuf;

use super::Failure;

/// A folder below the current one, whose file system is the one being measured.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates an empty folder for this process. Errors: it cannot be created.
    pub fn new(benchmark: &str) -> Result<Self, Failure> {
        let folder = PathBuf::from(format!(".harrier/bench/{benchmark}-{}", std::process::id()));
        let created = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
        created.map(Self).map_err(|error| Failure::dead(format!("\"{}\": {error}", folder.display())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
