//! Documentation of environment variables: the page lists all that sources read, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::root;

/// Names in quotes that begin with `HARRIER_`, in all sources without tests.
fn variables_of(folder: &Path, extensions: &[&str], names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "tests" | "target" | ".harrier") {
                variables_of(&path, extensions, names);
            }
            continue;
        }
        let is_source =
            path.extension().is_some_and(|all_names| extensions.iter().any(|one| all_names == *one));
        if !is_source || name == "environment.rs" && path.parent().unwrap().ends_with("reference") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Unit tests begin here in a file of the sources.
        let text = text.split("#[cfg(test)]\nmod").next().unwrap();
        let is_name = |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_';
        // Variables set by the compiler are not of the environment.
        let text = text.replace("env!(\"HARRIER_", "");
        for rest in text.split("\"HARRIER_").skip(1) {
            let (name, _) = rest.split_at(rest.find(|char| !is_name(char)).unwrap_or(rest.len()));
            names.insert(format!("HARRIER_{name}"));
        }
    }
}

/// Crates of tests, whose variables are for developers of Harrier.
const OF_TESTS: [&str; 4] = ["testkit", "servers", "launch", "sim"];

#[test]
fn every_environment_variable_is_documented() {
    let root = root();
    let mut used = BTreeSet::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        if !OF_TESTS.iter().any(|name| path.ends_with(name)) {
            variables_of(&path, &["rs"], &mut used);
        }
    }
    variables_of(&root.join("python"), &["py"], &mut used);
    assert!(used.len() > 30, "{used:?}");
    let page = fs::read_to_string(root.join("docs/reference/environment.md")).unwrap();
    let others = fs::read_to_string(root.join("docs/reference/keys-and-values.md")).unwrap();
    let is_documented =
        |name: &str| page.contains(&format!("`{name}`")) || others.contains(&format!("`{name}`"));
    let undocumented: Vec<_> =
        used.iter().filter(|name| !name.ends_with('_') && !is_documented(name)).collect();
    assert!(undocumented.is_empty(), "not in reference/environment.rs: {undocumented:?}");
    // Some names are composed of a prefix and the name of an option; tests and scripts read others.
    let mut all_names = used.clone();
    variables_of(&root.join("crates"), &["rs"], &mut all_names);
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let tests = entry.unwrap().path().join("tests");
        if tests.is_dir() {
            variables_of(&tests, &["rs"], &mut all_names);
        }
    }
    let documented = page.split('`').filter(|word| word.starts_with("HARRIER_") && !word.ends_with('…'));
    let is_used = |name: &str| {
        all_names.contains(name)
            || used.iter().any(|used| used.ends_with('_') && name.starts_with(used.as_str()))
    };
    let unused: Vec<_> = documented.filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "nothing reads them: {unused:?}");
}
