//! Fixture of crash tests: creates a warehouse, saves and restores its state, runs commands in it, and lists
//! its files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harrier_catalog::Catalog;
use harrier_launch::{Launcher, finish};

use crate::command::{BINARY, Folder};
use crate::support::MARKER;

/// Timeout of a process on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

pub const SWEEP: [&str; 2] = ["SET harrier.vacuum_age_seconds = 0", "VACUUM"];

/// Location of a warehouse's parts; by default all are in the folder that commands run in.
pub trait Place {
    /// Arguments of `harrier sql` that locate the warehouse.
    fn arguments(&self, _work: &Path) -> Vec<String> {
        Vec::new()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Ports of its servers.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Address of its catalog.
    fn catalog(&self, work: &Path) -> String {
        format!("sqlite:{}", work.join("warehouse/catalog.sqlite").display())
    }

    /// Names of all its files without folders, except for the owner marker.
    fn files(&self, work: &Path) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut folders = vec![work.join("warehouse/data")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name() != MARKER {
                    names.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        names
    }

    /// Saves the state that is in no folder and no store.
    fn save_external_state(&mut self) {}

    /// Restores the saved state.
    fn restore(&self) {}

    /// Waits until its servers have executed the requests of ended processes.
    fn settle(&self) {}
}

/// A warehouse in a folder.
pub struct Local;

impl Place for Local {}

pub struct CrashFixture {
    folder: Folder,
    pub place: Box<dyn Place>,
    /// Its files after creation.
    pub files: BTreeSet<String>,
}

impl CrashFixture {
    /// Creates a warehouse with these statements.
    pub fn new(place: impl Place + 'static, statements: &[&str]) -> Self {
        let mut fixture = Self { folder: Folder::new(), place: Box::new(place), files: BTreeSet::new() };
        fs::create_dir(fixture.work()).unwrap();
        fixture.query_output(statements);
        copy(&fixture.work(), &fixture.saved_state());
        fixture.place.save_external_state();
        fixture.files = fixture.files();
        assert_eq!(fixture.files, fixture.referenced_files());
        fixture
    }

    /// Working directory of commands: always the same folder, because the catalog contains paths.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn saved_state(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Restores the initial state.
    pub fn restore(&self) {
        fs::remove_dir_all(self.work()).unwrap();
        copy(&self.saved_state(), &self.work());
        self.place.restore();
        // Files written since remain on a store, unreferenced.
        assert_eq!(self.vacuum_all("restored"), self.files);
    }

    /// Builds a `harrier sql` command with these statements, not yet started.
    ///
    /// Errors: the launcher is not installed.
    pub fn command(&self, launcher: &Launcher, statements: &[&str]) -> Result<Command, String> {
        let mut command = launcher.command(BINARY)?;
        // One thread, so that the number of files is constant.
        command.args(["sql", "--format", "csv", "--threads", "1"]).args(self.place.arguments(&self.work()));
        command.args(statements.iter().flat_map(|statement| ["-c", *statement]));
        command.envs(self.place.environment()).current_dir(self.work());
        Ok(command)
    }

    /// Runs statements that must succeed; returns their output.
    pub fn query_output(&self, statements: &[&str]) -> String {
        let command = self.command(&Launcher::none(), statements).expect("it needs no launcher");
        let run = finish(command, TIMEOUT);
        assert!(run.success, "{statements:?}: {run:#?}");
        run.stdout
    }

    /// Names of all its files.
    pub fn files(&self) -> BTreeSet<String> {
        self.place.files(&self.work())
    }

    /// Files that the catalog references in any snapshot.
    fn referenced_files(&self) -> BTreeSet<String> {
        let url = self.place.catalog(&self.work());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let paths = runtime.block_on(async {
            let catalog = Catalog::open(&url).await?;
            let paths = catalog.referenced_paths().await;
            // A connection closed later would delete the WAL of the database that replaced it.
            catalog.close().await;
            paths
        });
        let name = |path: &String| path.rsplit('/').next().unwrap_or(path).to_string();
        paths.unwrap_or_else(|error| panic!("{error}")).iter().map(name).collect()
    }

    /// Vacuums until there is no unreferenced file, and asserts that no referenced file is missing; returns
    /// the names. A store may still execute a request of an ended process.
    pub fn vacuum_all(&self, context: &str) -> BTreeSet<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (files, referenced) = (self.files(), self.referenced_files());
            if files == referenced {
                return files;
            }
            assert!(
                Instant::now() < deadline,
                "{context}: {files:?}, although these are needed: {referenced:?}"
            );
            self.query_output(&SWEEP);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
