//! A folder for what a benchmark makes, which goes with it.

use std::path::PathBuf;

use super::Failure;

/// Below the current folder, whose file system is the one that is measured.
pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one for this process. Errors: it cannot be made.
    pub fn new(benchmark: &str) -> Result<Self, Failure> {
        let folder = PathBuf::from(format!(".harrier/bench/{benchmark}-{}", std::process::id()));
        let made = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
        made.map(Self).map_err(|error| Failure::dead(format!("\"{}\": {error}", folder.display())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
