//! Temporary folder and runner of the `harrier` binary, shared by tests of the command line.
#![allow(dead_code)] // Each test program uses its own part.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

/// Statement that runs until it is canceled, in little memory.
pub const ENDLESS: &str = "select sum(a.value * b.value % 7) from generate_series(1, 10000) a, \
                           generate_series(1, 2000000000) b";

/// Builds a shared library for LD_PRELOAD from C, at `source` below `tests`.
pub fn build_preload_library(source: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let name = format!("lib{}.so", source.file_stem().unwrap().display());
    let new = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let compiler_status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-pthread", "-o"])
        .arg(new.path().join(&name))
        .arg(source)
        .args(libraries)
        .status();
    assert!(compiler_status.expect("a C compiler is there to build Harrier").success());
    // Renames atomically: processes of a concurrent run of these tests may load the library.
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
    fs::rename(new.path().join(&name), &library).unwrap();
    library
}

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Run {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Temporary working directory of commands.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and creates its parent folders.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Builds a `harrier sql` command with `args`, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("sql").args(args).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    pub fn sql(&self, args: &[&str]) -> Run {
        self.command(args).output().unwrap().into()
    }

    pub fn sql_with_stdin(&self, args: &[&str], stdin: &str) -> Run {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Runs the binary with `args` only.
    pub fn run(&self, args: &[&str]) -> Run {
        Command::new(BINARY).args(args).current_dir(self.path()).output().unwrap().into()
    }

    /// Runs a shell script that has the binary in `$HARRIER`.
    pub fn shell(&self, script: &str) -> Run {
        Command::new("sh")
            .args(["-c", script])
            .env("HARRIER", BINARY)
            .current_dir(self.path())
            .output()
            .unwrap()
            .into()
    }
}
