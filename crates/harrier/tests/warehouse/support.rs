//! What the tests of warehouses share: one of their own, sessions of it, and what they answer.

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

    /// Where its data files are.
    pub fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    pub fn configuration(&self) -> Configuration {
        Configuration::embedded().with_warehouse(self.folder())
    }

    pub fn session(&self) -> Session {
        Session::start(&self.configuration()).unwrap()
    }

    /// How many data and delete files lie in it.
    pub fn files(&self) -> usize {
        files_below(&self.data())
    }

    /// Waits until there are `files` of them. What a failed statement has written goes when the last of its
    /// threads has heard of it.
    #[track_caller]
    pub fn settles_at(&self, files: usize, context: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.files() != files {
            assert!(Instant::now() < deadline, "{} files instead of {files}: {context}", self.files());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The file that says whose a data folder is.
pub const MARKER: &str = "_harrier_warehouse";

/// But for the one that says whose the folder is.
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

/// The number that the tag of a statement ends in.
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

/// The first column, which has no NULL.
#[track_caller]
pub fn column(session: &mut Session, sql: &str) -> Vec<String> {
    table(session, sql).into_iter().map(|mut row| row.swap_remove(0).unwrap()).collect()
}

/// The first value of the first row, which is not NULL.
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

/// What a plan does, an operator a line.
#[track_caller]
pub fn plan(session: &mut Session, sql: &str) -> String {
    column(session, &format!("EXPLAIN {sql}")).join("\n")
}

/// No file of the table is other than the catalog has it.
#[track_caller]
pub fn is_sound(session: &mut Session, name: &str) {
    let problems = table(session, &format!("CHECK TABLE {name}"));
    assert!(problems.is_empty(), "{name}: {problems:?}");
}

/// A file system on a folder, which goes when this does.
pub struct Mounted(PathBuf);

impl Mounted {
    /// One in memory with room for `bytes`, on a folder that is made; `None` if this process may not mount,
    /// which is said.
    pub fn in_memory(folder: &Path, bytes: u64) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        Self::mount(folder, &["-t", "tmpfs", "-o", &format!("size={bytes}"), "harrier-test"])
    }

    /// The folder itself, so that it can be made read-only.
    pub fn again(folder: &Path) -> Option<Self> {
        Self::mount(folder, &["--bind", folder.to_str().unwrap()])
    }

    fn mount(folder: &Path, arguments: &[&str]) -> Option<Self> {
        let output = Command::new("mount").args(arguments).arg(folder).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(folder.to_path_buf())),
            _ => {
                eprintln!("skipped: this process may not mount");
                None
            }
        }
    }

    /// From now on nobody writes below it, or everybody may again.
    pub fn set_read_only(&self, is_read_only: bool) {
        let options = if is_read_only { "remount,bind,ro" } else { "remount,bind,rw" };
        let status = Command::new("mount").args(["-o", options]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a process that is ending may still have a file open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
