//! Removal of open files on NFS and user-space file systems, which rename them (silly rename) until they are
//! closed, so that their folder cannot be removed. Folders of statements and processes are removed
//! nevertheless.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::command::{Folder, build_preload_library};

/// Writes, overwrites, and fails after staging. The sort spills.
const STATEMENTS: [&str; 6] = [
    "INSERT INTO t SELECT value, value % 3 FROM generate_series(1, 1000) AS s(value)",
    "INSERT INTO t SELECT value, value % 3 FROM generate_series(1, 1000) AS s(value) ORDER BY md5(value::text)",
    "INSERT INTO t VALUES (1, 7)",
    "INSERT OVERWRITE t SELECT v, k FROM t WHERE k > 0",
    "COPY (SELECT md5(value::text) AS m FROM generate_series(1, 400000) AS s(value) ORDER BY m) TO 'sorted.csv'",
    "INSERT INTO t SELECT 100 / (value - 90000), value % 3 FROM generate_series(1, 100000) AS s(value)",
];

const TABLE: &str =
    "CREATE EXTERNAL TABLE t (v INT, k INT) STORED AS PARQUET PARTITIONED BY (k) LOCATION 'table/'";

fn harrier(folder: &Folder, library: &Path, statements: &[&str]) -> Command {
    let mut arguments = vec!["--memory", "32MiB", "--spill-dir", "spill", "-c", TABLE];
    arguments.extend(statements.iter().flat_map(|statement| ["-c", statement]));
    let mut command = folder.command(&arguments);
    command
        .env("LD_PRELOAD", library)
        .env("LIKE_NFS", folder.path().join("told"))
        .env("TMPDIR", folder.path().join("tmp"));
    command
}

/// File names below a folder, without those of folders that readers may be listing.
fn remaining_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.join("retired").exists() => {}
            path if path.is_dir() => paths.extend(remaining_files(&path).into_iter().chain([path])),
            path => paths.push(path),
        }
    }
    paths
}

#[test]
fn folders_are_removed_with_statements_and_processes() {
    let library = build_preload_library("warehouse/like_nfs.c", &["-ldl"]);
    let folder = Folder::new();
    for name in ["spill", "tmp"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let error_output = |output: Output| String::from_utf8(output.stderr).unwrap();
    let alone = error_output(harrier(&folder, &library, &STATEMENTS).output().unwrap());
    assert!(alone.starts_with("ERROR 22012") && !alone.contains("WARN"), "{alone}");
    // Other processes check concurrently which statements are alive.
    let begin = |_| harrier(&folder, &library, &STATEMENTS[..4]).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<Child> = (0..3).map(begin).collect();
    for child in children {
        let error_output = error_output(child.wait_with_output().unwrap());
        assert!(!error_output.contains("WARN"), "{error_output}");
    }
    let renamed_files = fs::read_to_string(folder.path().join("told")).unwrap();
    assert_eq!(renamed_files.lines().filter(|line| *line == "process harrier").count(), 4, "{renamed_files}");
    // Sort runs are unlinked files from the beginning, on purpose.
    assert!(renamed_files.contains("spill/harrier-spill-"), "{renamed_files}");
    assert!(
        !renamed_files.lines().any(|line| line.ends_with("/owner") || line.ends_with("/lock")),
        "{renamed_files}"
    );
    assert_eq!(remaining_files(&folder.path().join("spill")), [""; 0].map(PathBuf::from));
    assert_eq!(remaining_files(&folder.path().join("tmp")), [""; 0].map(PathBuf::from));
    let mut control = remaining_files(&folder.path().join(".harrier-table"));
    control.sort();
    assert_eq!(control, ["lock", "turn"].map(|name| folder.path().join(".harrier-table").join(name)));
}
