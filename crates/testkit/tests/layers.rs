//! Structure of the workspace: dependencies between crates, `unsafe`, file headers, licences, and formatting.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[path = "layers/documentation.rs"]
mod documentation;
#[path = "layers/environment_variables.rs"]
mod environment_variables;
#[path = "layers/module_cycles.rs"]
mod module_cycles;
#[path = "layers/names.rs"]
mod names;

/// Each crate and the crates of the workspace it may use directly; ARCHITECTURE.md's code map, top to bottom.
const MAY_USE: [(&str, &[&str]); 29] = [
    (
        "harrier",
        &[
            "harrier-backup",
            "harrier-bench",
            "harrier-catalog",
            "harrier-engine",
            "harrier-error",
            "harrier-exec",
            "harrier-functions",
            "harrier-generate",
            "harrier-mpi",
            "harrier-resources",
            "harrier-server",
            "harrier-session-api",
            "harrier-sql",
            "harrier-sqlstate",
        ],
    ),
    (
        "harrier-bench",
        &[
            "harrier-catalog",
            "harrier-engine",
            "harrier-error",
            "harrier-exec",
            "harrier-interconnect",
            "harrier-mpi",
            "harrier-thrift",
        ],
    ),
    ("harrier-generate", &[]),
    ("harrier-server", &["harrier-error", "harrier-session-api", "harrier-thrift"]),
    (
        "harrier-engine",
        &[
            "harrier-catalog",
            "harrier-committer",
            "harrier-error",
            "harrier-exec",
            "harrier-functions",
            "harrier-pgcatalog",
            "harrier-planner",
            "harrier-resources",
            "harrier-session-api",
            "harrier-sql",
            "harrier-sqlstate",
            "harrier-storage",
        ],
    ),
    (
        "harrier-planner",
        &[
            "harrier-error",
            "harrier-exec",
            "harrier-functions",
            "harrier-pgcatalog",
            "harrier-resources",
            "harrier-sql",
            "harrier-sqlstate",
        ],
    ),
    ("harrier-pgcatalog", &["harrier-session-api", "harrier-sql"]),
    ("harrier-sql", &["harrier-error", "harrier-functions", "harrier-session-api", "harrier-sqlstate"]),
    ("harrier-session-api", &[]),
    ("harrier-backup", &["harrier-catalog", "harrier-error", "harrier-storage"]),
    ("harrier-catalog", &["harrier-error"]),
    ("harrier-storage", &[]),
    (
        "harrier-exec",
        &[
            "harrier-committer",
            "harrier-error",
            "harrier-functions",
            "harrier-interconnect",
            "harrier-mpi",
            "harrier-orc",
            "harrier-resources",
            "harrier-session-api",
            "harrier-sqlstate",
            "harrier-storage",
        ],
    ),
    ("harrier-functions", &["harrier-error", "harrier-resources", "harrier-sqlstate"]),
    ("harrier-resources", &["harrier-error", "harrier-session-api", "harrier-sqlstate"]),
    ("harrier-sqlstate", &["harrier-error"]),
    ("harrier-orc", &[]),
    ("harrier-committer", &["harrier-storage"]),
    ("harrier-mpid-c", &["harrier-mpid"]),
    ("harrier-mpid", &["harrier-error", "harrier-interconnect"]),
    ("harrier-interconnect", &["harrier-error", "harrier-mpi"]),
    ("harrier-mpi", &[]),
    ("harrier-testkit", &["harrier-launch"]),
    ("harrier-sim", &["harrier-error", "harrier-interconnect"]),
    ("harrier-launch", &[]),
    ("harrier-error", &[]),
    ("harrier-thrift", &[]),
    ("harrier-servers", &[]),
    ("xtask", &[]),
];

/// Dependencies, also indirect ones, that a crate must not have.
const MUST_NOT_USE: [(&str, &[&str]); 21] = [
    ("harrier-thrift", &["arrow", "datafusion", "serde", "tokio"]),
    ("harrier-error", &["arrow", "datafusion", "serde", "tokio"]),
    ("harrier-generate", &["clap", "datafusion", "indicatif", "object_store", "sqlx", "tokio"]),
    ("harrier-backup", &["arrow", "datafusion", "parquet", "sqlx"]),
    ("harrier-committer", &["arrow", "datafusion", "sqlx"]),
    ("harrier-server", &["datafusion", "object_store", "parquet", "sqlx"]),
    ("harrier-session-api", &["datafusion", "object_store", "parquet", "sqlx", "tokio"]),
    ("harrier-catalog", &["arrow", "datafusion", "object_store", "parquet"]),
    ("harrier-storage", &["datafusion", "sqlx"]),
    ("harrier-orc", &["datafusion", "object_store", "orc-rust", "parquet", "sqlx", "tokio"]),
    ("harrier-planner", &["sqlx", "harrier-catalog"]),
    ("harrier-sql", &["datafusion-distributed", "harrier-catalog", "harrier-exec", "sqlx"]),
    ("harrier-exec", &["sqlx", "harrier-catalog"]),
    (
        "harrier-functions",
        &["datafusion-distributed", "datafusion-proto", "nix", "object_store", "sqlx", "tokio"],
    ),
    ("harrier-resources", &["datafusion-distributed", "datafusion-proto", "sqlx"]),
    ("harrier-sqlstate", &["datafusion-distributed", "datafusion-proto", "sqlx", "tokio"]),
    ("harrier-servers", &["arrow", "datafusion", "object_store", "sqlx"]),
    ("harrier-mpid", &["datafusion", "datafusion-distributed", "harrier-mpi"]),
    ("harrier-mpi", &["arrow", "datafusion", "tokio", "bytes"]),
    ("harrier-interconnect", &["datafusion", "datafusion-distributed"]),
    ("harrier-engine", &["datafusion-distributed", "harrier-interconnect", "harrier-mpi"]),
];

/// Licences that are compatible with an Apache-2.0 binary.
const LICENCES: [&str; 17] = [
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
    "MIT-0",
    "BSL-1.0",
    "Apache-2.0 WITH LLVM-exception",
    "bzip2-1.0.6",
    "CDLA-Permissive-2.0",
    "NCSA",
    "Unicode-DFS-2016",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        // Dependencies of other platforms were never downloaded.
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Normal dependencies by crate of the workspace.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| members.contains(package["id"].as_str().unwrap()))
        .map(|package| {
            let names = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| dependency["name"].as_str().unwrap().to_string())
                .collect();
            (package["name"].as_str().unwrap().to_string(), names)
        })
        .collect()
}

#[test]
fn crates_use_only_crates_below_them() {
    let dependencies = dependencies(&metadata());
    let may_use: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    assert_eq!(
        dependencies.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        may_use.keys().copied().collect::<BTreeSet<_>>(),
        "a crate came or went: ARCHITECTURE.md and this test must say what it may use"
    );
    for (name, uses) in &dependencies {
        for used in uses.iter().filter(|used| used.starts_with("harrier")) {
            assert!(may_use[name.as_str()].contains(&used.as_str()), "{name} must not use {used}");
        }
    }
    for (name, forbidden) in MUST_NOT_USE {
        for used in forbidden {
            assert!(!dependencies[name].contains(*used), "{name} must not use {used}");
        }
    }
}

/// `cargo clean --workspace`, with which the checks start in a new checkout, removes files by the names of
/// targets: with a test called `object_store` the library of this name went as well, and DataFusion was
/// compiled again.
#[test]
fn targets_have_no_names_of_libraries() {
    let metadata = metadata();
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata["packages"].as_array().unwrap() {
        let is_own = members.contains(package["id"].as_str().unwrap());
        let names = if is_own { &mut own } else { &mut others };
        for target in package["targets"].as_array().unwrap() {
            let kinds = target["kind"].as_array().unwrap();
            if is_own || kinds.iter().any(|kind| kind == "lib" || kind == "proc-macro") {
                names.insert(target["name"].as_str().unwrap().replace('-', "_"));
            }
        }
    }
    let both: Vec<&String> = own.intersection(&others).collect();
    assert!(both.is_empty(), "targets with the names of libraries: {both:?}");
}

#[test]
fn licences_are_allowed() {
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        // One acceptable choice of every alternative, all parts of every conjunction.
        let fine = licence
            .replace(['(', ')'], "")
            .split(" AND ")
            .all(|part| part.split(" OR ").any(|choice| LICENCES.contains(&choice.trim())));
        assert!(fine, "{name} has the licence {licence}");
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    rust_files(&root().join("crates"), &mut paths);
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_file_has_a_header() {
    for (path, text) in sources() {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! "), "{} does not open with what it is", path.display());
    }
}

/// MPI itself is C, and so are the callers of the C API of keys and values.
const MAY_BE_UNSAFE: [&str; 2] = ["mpi", "mpid-c"];

#[test]
fn unsafe_is_limited_to_ffi_crates() {
    let keyword = format!("{} {{", "unsafe");
    let allowed = format!("allow({}_code)", "unsafe");
    for (path, text) in sources() {
        if path.components().any(|part| MAY_BE_UNSAFE.iter().any(|name| part.as_os_str() == *name)) {
            continue;
        }
        assert!(
            !text.contains(&keyword) && !text.contains(&allowed),
            "{} is in neither of the crates that meet C",
            path.display()
        );
    }
}

#[test]
fn sources_have_no_unfinished_markers() {
    let marks = ["todo", "unimplemented"].map(|mark| format!("{mark}!("));
    for (path, text) in sources() {
        for mark in &marks {
            assert!(!text.contains(mark), "{} has a {mark}", path.display());
        }
    }
}

/// Code is as wide as rustfmt makes it; it does not break strings.
#[test]
fn comments_are_no_wider_than_code() {
    const WIDTH: usize = 110;
    let mut sources = Vec::new();
    rust_files(&root().join("crates"), &mut sources);
    rust_files(&root().join("xtask"), &mut sources);
    let mut wide = Vec::new();
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        let mut is_figure = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            if !comment.starts_with("//") {
                is_figure = false;
                continue;
            }
            is_figure ^= comment.contains("```");
            let is_table = comment.contains('|');
            if !is_figure && !is_table && line.chars().count() > WIDTH {
                wide.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "over {WIDTH} columns: {wide:#?}");
}

#[test]
fn sources_are_formatted() {
    let output =
        Command::new(env!("CARGO")).args(["fmt", "--all", "--check"]).current_dir(root()).output().unwrap();
    let difference = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "run `make fmt`:\n{}",
        difference.chars().take(3000).collect::<String>()
    );
}
