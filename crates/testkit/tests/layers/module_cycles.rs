//! Dependency cycles between modules of a crate: files that use each other, directly or indirectly, can only
//! be understood together.
//!
//! Dependencies are read from the paths in the sources (`use crate::…`, `crate::…`, `super::…`) without unit
//! tests. A `mod` declaration is no dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{root, rust_files};

/// The modules that each module of a crate uses, by their paths: `a::b`.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn uses_of(crate_folder: &Path) -> Uses {
    let mut paths = Vec::new();
    let sources = crate_folder.join("src");
    rust_files(&sources, &mut paths);
    let module = |path: &Path| {
        let relative = path.strip_prefix(&sources).unwrap().with_extension("");
        relative.components().map(|part| part.as_os_str().to_str().unwrap()).collect::<Vec<_>>().join("::")
    };
    let names: BTreeSet<String> = paths.iter().map(|path| module(path)).collect();
    let mut uses = Uses::new();
    for path in &paths {
        let name = module(path);
        if !["lib", "main"].contains(&name.as_str()) {
            let text = std::fs::read_to_string(path).unwrap();
            let used = paths_in(&text).iter().filter_map(|path| target_module(&name, path, &names)).collect();
            uses.insert(name, used);
        }
    }
    uses
}

/// The paths in a source, without those of its unit tests.
fn paths_in(text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: String =
        product.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    let mut paths = Vec::new();
    for statement in code.split(';') {
        match statement.rsplit_once("use ") {
            Some((before, path)) if is_path(path) => {
                paths.extend(paths_of_code(before));
                expand("", path.trim(), &mut paths);
            }
            _ => paths.extend(paths_of_code(statement)),
        }
    }
    paths
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_:{}, *\n".contains(c))
}

/// The paths of `a::{b, c::{d, e}}`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap().trim();
        paths.push(format!("{prefix}{path}"));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &inner[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        expand(&prefix, &inner[start..], paths);
    }
}

/// Paths in code that begin with the crate or `super`.
fn paths_of_code(code: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(move |c| !is_part(c));
    words.filter(|word| word.starts_with("crate::") || word.starts_with("super::")).map(str::to_owned)
}

/// The module that `path` leads to from `module`, if it is another one of its crate.
fn target_module(module: &str, path: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").collect();
    let mut parts = path.split("::").peekable();
    match parts.peek().copied()? {
        "crate" => {
            base.clear();
            parts.next();
        }
        "self" => {
            parts.next();
        }
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(parts);
    let found =
        (1..=base.len()).rev().map(|count| base[..count].join("::")).find(|name| names.contains(name))?;
    (found != module).then_some(found)
}

/// All modules that a module depends on, directly or indirectly.
fn reachable<'a>(uses: &'a Uses, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for used in uses.get(module).into_iter().flatten() {
            if seen.insert(used.as_str()) {
                open.push(used);
            }
        }
    }
    seen
}

#[test]
fn modules_have_no_dependency_cycles() {
    let mut cycles = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let uses = uses_of(&entry.path());
        let in_circles: Vec<String> = uses
            .keys()
            .filter(|module| reachable(&uses, module).contains(module.as_str()))
            .cloned()
            .collect();
        if !in_circles.is_empty() {
            cycles.insert(entry.file_name().into_string().unwrap(), in_circles);
        }
    }
    assert!(cycles.is_empty(), "files in circles, by crate: {cycles:#?}");
}

/// Rooms of crates, from bottom to top, with the rooms and files beside them that each may use.
const ROOMS: [(&str, &[(&str, &[&str])]); 5] = [
    (
        "catalog",
        &[
            ("error", &[]),
            ("model", &["error"]),
            ("database", &["error", "model"]),
            ("layout", &["database", "error", "model"]),
            ("snapshot", &["database", "error", "layout", "model"]),
            ("access", &["database", "error", "layout", "model"]),
            ("catalog", &["access", "database", "error", "layout", "model", "snapshot"]),
            ("commit", &["access", "catalog", "database", "error", "layout", "model", "snapshot"]),
            ("maintenance", &["access", "catalog", "database", "error", "layout", "model", "snapshot"]),
        ],
    ),
    ("committer", &[("work", &[]), ("local", &["work"]), ("object_store", &["work"])]),
    (
        "exec",
        &[
            ("operators", &[]),
            ("file_versions", &["operators"]),
            ("formats", &["file_versions", "operators"]),
            ("data_files", &["formats", "operators"]),
            ("distribution", &["data_files", "formats", "operators"]),
            ("functions", &["data_files", "distribution", "formats"]),
            (
                "transport",
                &["data_files", "distribution", "file_versions", "formats", "functions", "operators"],
            ),
            ("gang", &["distribution", "functions", "operators", "transport"]),
            ("monitor", &["data_files", "distribution", "gang", "transport"]),
            (
                "frontend",
                &[
                    "data_files",
                    "distribution",
                    "formats",
                    "functions",
                    "gang",
                    "monitor",
                    "operators",
                    "transport",
                ],
            ),
        ],
    ),
    (
        "engine",
        &[
            ("error", &[]),
            ("object_stores", &[]),
            ("runtime", &[]),
            ("settings", &["error", "object_stores", "runtime"]),
            ("types", &[]),
            ("planning", &["settings", "types"]),
            ("copy_format", &[]),
            ("warehouse", &["error", "object_stores", "planning", "settings", "types"]),
            ("external", &["error", "object_stores", "warehouse"]),
            ("binder", &["planning", "types", "warehouse"]),
            ("engine", &["copy_format", "error", "object_stores", "runtime", "settings", "warehouse"]),
            (
                "session",
                &[
                    "binder",
                    "copy_format",
                    "engine",
                    "error",
                    "external",
                    "object_stores",
                    "planning",
                    "runtime",
                    "settings",
                    "warehouse",
                ],
            ),
            (
                "statement",
                &[
                    "binder",
                    "copy_format",
                    "engine",
                    "error",
                    "external",
                    "object_stores",
                    "planning",
                    "runtime",
                    "session",
                    "settings",
                    "types",
                    "warehouse",
                ],
            ),
        ],
    ),
    (
        "planner",
        &[
            ("rewrite", &[]),
            ("fallible", &[]),
            ("delegation", &[]),
            ("cancelable_rules", &["delegation"]),
            ("cardinality", &[]),
            ("join_order", &[]),
            ("physical", &["cardinality", "delegation", "join_order"]),
            ("binder", &[]),
            // With other types than at bind time, an expression is bound again.
            ("analyzer", &["binder", "fallible", "rewrite"]),
            ("optimizer", &["analyzer", "delegation", "fallible", "rewrite"]),
            ("rules", &["analyzer", "binder", "cancelable_rules", "cardinality", "optimizer", "physical"]),
        ],
    ),
];

/// A room is a file beside `lib.rs`, with the folder of its name.
fn room(module: &str) -> &str {
    module.split("::").next().unwrap()
}

#[test]
fn rooms_use_only_rooms_below() {
    for (name, storeys) in ROOMS {
        let uses = uses_of(&root().join("crates").join(name));
        let mut dependencies: BTreeMap<&str, BTreeSet<&str>> =
            uses.keys().map(|module| (room(module), BTreeSet::new())).collect();
        for (module, used) in &uses {
            let others = used.iter().map(|used| room(used)).filter(|used| *used != room(module));
            dependencies.entry(room(module)).or_default().extend(others);
        }
        let allowed: BTreeMap<&str, BTreeSet<&str>> =
            storeys.iter().map(|(room, may)| (*room, may.iter().copied().collect())).collect();
        assert_eq!(dependencies, allowed, "who uses whom in {name}");
        let mut below = BTreeSet::new();
        for (room, may) in storeys {
            assert!(may.iter().all(|used| below.contains(used)), "{name}: {room} uses a room above it");
            below.insert(*room);
        }
    }
}

#[test]
fn paths_are_parsed() {
    let text = "//! crate::a\nuse crate::b::{self, c::{D, e}, f as g};\npub(crate) use super::h::I;\n\
        fn x() { let y = crate::j::k(1, super::l::M); }\n#[cfg(test)]\nmod tests { use crate::n; }";
    let expected = [
        "crate::b::self",
        "crate::b::c::D",
        "crate::b::c::e",
        "crate::b::f",
        "super::h::I",
        "crate::j::k",
        "super::l::M",
    ];
    assert_eq!(paths_in(text), expected);
    let names = ["a", "a::b", "h"].map(str::to_owned).into();
    assert_eq!(target_module("a::b", "super::super::h::I", &names).as_deref(), Some("h"));
    assert_eq!(target_module("a::b", "super::C", &names).as_deref(), Some("a"));
    assert_eq!(target_module("a", "crate::a::b::D", &names).as_deref(), Some("a::b"));
    assert_eq!(target_module("a", "std::fs", &names), None);
}
