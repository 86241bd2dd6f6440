//! Temporary warehouse and sessions, shared by tests of warehouses.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harrier_testkit::session::{Answer, Configuration, Failure, Session};
use tempfile::TempDir;

pub struct Warehouse(TempDir);

impl Warehouse {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn folder(&self) -> PathBuf {
        self.0.path().join("warehouse")
    }

    /// Folder of its data files.
    pub fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    pub fn configuration(&self) -> Configuration {
        Configuration::embedded().with_warehouse(self.folder())
    }

    pub fn session(&self) -> Session {
        Session::start(&self.configuration()).unwrap()
    }

    /// Number of its data and delete files.
    pub fn files(&self) -> usize {
        files_below(&self.data())
    }

    /// Waits until it has `files` files. Files of a failed statement are removed when the last of its threads
    /// has stopped.
    #[track_caller]
    pub fn wait_for_files(&self, files: usize, context: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.files() != files {
            assert!(Instant::now() < deadline, "{} files instead of {files}: {context}", self.files());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Name of the file that marks the owner of a data folder.
pub const MARKER: &str = "_harrier_warehouse";

/// Number of files except for the owner marker.
pub fn files_below(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.path().is_dir() {
            true => files_below(&entry.path()),
            false => usize::from(entry.file_name() != MARKER),
        })
        .sum()
}

#[track_caller]
pub fn run(session: &mut Session, sql: &str) {
    session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
}

/// Number at the end of a statement's command tag.
#[track_caller]
pub fn count(session: &mut Session, sql: &str) -> u64 {
    match session.run(sql) {
        Ok(Answer::Command(tag)) => tag.rsplit(' ').next().unwrap().parse().unwrap(),
        other => panic!("{other:?} of {sql}"),
    }
}

#[track_caller]
pub fn table(session: &mut Session, sql: &str) -> Vec<Vec<Option<String>>> {
    match session.run(sql) {
        Ok(Answer::Rows { rows, .. }) => rows,
        other => panic!("{other:?} of {sql}"),
    }
}

/// First column, without NULLs.
#[track_caller]
pub fn column(session: &mut Session, sql: &str) -> Vec<String> {
    table(session, sql).into_iter().map(|mut row| row.swap_remove(0).unwrap()).collect()
}

/// First value of the first row, not NULL.
#[track_caller]
pub fn one(session: &mut Session, sql: &str) -> String {
    table(session, sql)[0][0].clone().unwrap()
}

#[track_caller]
pub fn fails(session: &mut Session, sql: &str, sqlstate: &str) -> Failure {
    let failure = session.run(sql).expect_err(sql);
    assert_eq!(failure.sqlstate, sqlstate, "{failure} of {sql}");
    failure
}

/// The plan of a statement, one operator per line.
#[track_caller]
pub fn plan(session: &mut Session, sql: &str) -> String {
    column(session, &format!("EXPLAIN {sql}")).join("\n")
}

/// Asserts that CHECK TABLE finds no damage.
#[track_caller]
pub fn assert_undamaged(session: &mut Session, name: &str) {
    let problems = table(session, &format!("CHECK TABLE {name}"));
    assert!(problems.is_empty(), "{name}: {problems:?}");
}

/// A file system mounted on a folder until drop.
pub struct Mount(PathBuf);

impl Mount {
    /// A tmpfs with `bytes` of space on a new folder; `None`, with a message, if this process may not mount.
    pub fn in_memory(folder: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        Self::try_mount(folder, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "harrier-test"])
    }

    /// A bind mount of the folder itself, so that it can be made read-only.
    pub fn bind(folder: &Path) -> Option<Self> {
        Self::try_mount(folder, &["--bind", folder.to_str().unwrap()])
    }

    fn try_mount(folder: &Path, arguments: &[&str]) -> Option<Self> {
        let output = Command::new("mount").args(arguments).arg(folder).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(folder.to_path_buf())),
            _ => {
                eprintln!("skipped: this process may not mount");
                None
            }
        }
    }

    /// Remounts it read-only, or writable.
    pub fn set_read_only(&self, is_read_only: bool) {
        let options = if is_read_only { "remount,bind,ro" } else { "remount,bind,rw" };
        let status = Command::new("mount").args(["-o", options]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazy unmount: an ending process may still have a file open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
