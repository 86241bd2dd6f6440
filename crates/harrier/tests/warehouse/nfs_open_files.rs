//! Files that are removed while they are open: NFS, and many file systems in user space, give them another
//! name in their folder until they are closed, and the folder cannot be removed. Folders of statements and of
//! processes go all the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::command::{Folder, preloaded};

/// Writes, writes over, and fails after something was staged. The sort spills.
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

/// The names of files below a folder, without those of folders that readers may be listing.
fn left(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.path() {
            path if path.join("retired").exists() => {}
            path if path.is_dir() => found.extend(left(&path).into_iter().chain([path])),
            path => found.push(path),
        }
    }
    found
}

#[test]
fn folders_go_with_their_statements_and_processes() {
    let library = preloaded("warehouse/like_nfs.c", &["-ldl"]);
    let folder = Folder::new();
    for name in ["spill", "tmp"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let said = |output: Output| String::from_utf8(output.stderr).unwrap();
    let alone = said(harrier(&folder, &library, &STATEMENTS).output().unwrap());
    assert!(alone.starts_with("ERROR 22012") && !alone.contains("WARN"), "{alone}");
    // Others look at the same time which statements live.
    let begin = |_| harrier(&folder, &library, &STATEMENTS[..4]).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<Child> = (0..3).map(begin).collect();
    for child in children {
        let said = said(child.wait_with_output().unwrap());
        assert!(!said.contains("WARN"), "{said}");
    }
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    assert_eq!(told.lines().filter(|line| *line == "process harrier").count(), 4, "{told}");
    // Runs of a sort are files that have no name from the beginning, on purpose.
    assert!(told.contains("spill/harrier-spill-"), "{told}");
    assert!(!told.lines().any(|line| line.ends_with("/owner") || line.ends_with("/lock")), "{told}");
    assert_eq!(left(&folder.path().join("spill")), [""; 0].map(PathBuf::from));
    assert_eq!(left(&folder.path().join("tmp")), [""; 0].map(PathBuf::from));
    let mut control = left(&folder.path().join(".harrier-table"));
    control.sort();
    assert_eq!(control, ["lock", "turn"].map(|name| folder.path().join(".harrier-table").join(name)));
}
