//! A warehouse in which something dies: where it is, what it shows, and how it becomes again what it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harrier_catalog::Catalog;
use harrier_launch::{Launcher, finish};

use crate::command::{BINARY, Folder};
use crate::support::MARKER;

/// What a process may take on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const SWEEP: [&str; 2] = ["SET harrier.vacuum_age_seconds = 0", "VACUUM"];

/// What a warehouse is made of beside the folder that commands run in: by itself it is in that folder.
pub trait Place {
    /// Arguments of `harrier sql` that say where it is.
    fn arguments(&self, _work: &Path) -> Vec<String> {
        Vec::new()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The ports of its servers.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// The address of its catalog.
    fn catalog(&self, work: &Path) -> String {
        format!("sqlite:{}", work.join("warehouse/catalog.sqlite").display())
    }

    /// The names of all its files, without their folders, and without the one that says whose the folder is.
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

    /// Keeps what is in no folder and no store, as it is now.
    fn keep(&mut self) {}

    /// Brings back what was kept.
    fn restore(&self) {}

    /// Waits until its servers have done what processes had asked for that have ended.
    fn settle(&self) {}
}

/// A warehouse in a folder.
pub struct Local;

impl Place for Local {}

pub struct Ground {
    folder: Folder,
    pub place: Box<dyn Place>,
    /// Its files when it was made.
    pub files: BTreeSet<String>,
}

impl Ground {
    /// A warehouse as these statements make it.
    pub fn new(place: impl Place + 'static, statements: &[&str]) -> Self {
        let mut ground = Self { folder: Folder::new(), place: Box::new(place), files: BTreeSet::new() };
        fs::create_dir(ground.work()).unwrap();
        ground.told(statements);
        copy(&ground.work(), &ground.kept());
        ground.place.keep();
        ground.files = ground.files();
        assert_eq!(ground.files, ground.referred());
        ground
    }

    /// Where commands run: always the same folder, as the catalog names files in it.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn kept(&self) -> PathBuf {
        self.folder.path().join("kept")
    }

    /// Makes it what it was at first.
    pub fn restore(&self) {
        fs::remove_dir_all(self.work()).unwrap();
        copy(&self.kept(), &self.work());
        self.place.restore();
        // What was done since is on a store still, and nothing refers to it any more.
        assert_eq!(self.swept("restored"), self.files);
    }

    /// `harrier sql` with these statements, not yet started.
    ///
    /// Errors: the launcher is not installed.
    pub fn command(&self, launcher: &Launcher, statements: &[&str]) -> Result<Command, String> {
        let mut command = launcher.command(BINARY)?;
        // With one thread, so that as many files are written each time.
        command.args(["sql", "--format", "csv", "--threads", "1"]).args(self.place.arguments(&self.work()));
        command.args(statements.iter().flat_map(|statement| ["-c", *statement]));
        command.envs(self.place.environment()).current_dir(self.work());
        Ok(command)
    }

    /// Runs statements that must succeed; what they print.
    pub fn told(&self, statements: &[&str]) -> String {
        let command = self.command(&Launcher::none(), statements).expect("it needs no launcher");
        let run = finish(command, PATIENCE);
        assert!(run.success, "{statements:?}: {run:#?}");
        run.stdout
    }

    /// The names of all its files.
    pub fn files(&self) -> BTreeSet<String> {
        self.place.files(&self.work())
    }

    /// Those that the catalog refers to, in any snapshot.
    fn referred(&self) -> BTreeSet<String> {
        let url = self.place.catalog(&self.work());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let paths = runtime.block_on(async {
            let catalog = Catalog::open(&url).await?;
            let paths = catalog.referenced_paths().await;
            // Whoever ends a connection to SQLite later would remove the log of a database that has come into
            // its place.
            catalog.close().await;
            paths
        });
        let name = |path: &String| path.rsplit('/').next().unwrap_or(path).to_string();
        paths.unwrap_or_else(|error| panic!("{error}")).iter().map(name).collect()
    }

    /// Sweeps until there is no file that nothing refers to, and sees that there is every other; returns
    /// their names. A store may still be busy with what somebody had asked for that has ended.
    pub fn swept(&self, context: &str) -> BTreeSet<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (files, referred) = (self.files(), self.referred());
            if files == referred {
                return files;
            }
            assert!(
                Instant::now() < deadline,
                "{context}: {files:?}, although these are needed: {referred:?}"
            );
            self.told(&SWEEP);
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
