//! Environment variables: what the sources read stands on the page of them, and the page has no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::root;

/// Names in quotes that begin with `HARRIER_`, in all sources that are not tests alone.
fn variables_of(folder: &Path, extensions: &[&str], found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !matches!(name, "tests" | "target" | ".harrier") {
                variables_of(&path, extensions, found);
            }
            continue;
        }
        let is_source = path.extension().is_some_and(|known| extensions.iter().any(|one| known == *one));
        if !is_source || name == "environment.rs" && path.parent().unwrap().ends_with("reference") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Where tests begin, in a file of the sources.
        let text = text.split("#[cfg(test)]\nmod").next().unwrap();
        let is_name = |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_';
        // What the compiler sets is none of the environment.
        let text = text.replace("env!(\"HARRIER_", "");
        for rest in text.split("\"HARRIER_").skip(1) {
            let (name, _) = rest.split_at(rest.find(|char| !is_name(char)).unwrap_or(rest.len()));
            found.insert(format!("HARRIER_{name}"));
        }
    }
}

/// Crates that tests alone use, whose variables are for who works on Harrier.
const OF_TESTS: [&str; 4] = ["testkit", "servers", "launch", "sim"];

#[test]
fn every_variable_has_its_place() {
    let root = root();
    let mut read = BTreeSet::new();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        if !OF_TESTS.iter().any(|name| path.ends_with(name)) {
            variables_of(&path, &["rs"], &mut read);
        }
    }
    variables_of(&root.join("python"), &["py"], &mut read);
    assert!(read.len() > 30, "{read:?}");
    let page = fs::read_to_string(root.join("docs/reference/environment.md")).unwrap();
    let others = fs::read_to_string(root.join("docs/reference/keys-and-values.md")).unwrap();
    let is_told = |name: &str| page.contains(&format!("`{name}`")) || others.contains(&format!("`{name}`"));
    let untold: Vec<_> = read.iter().filter(|name| !name.ends_with('_') && !is_told(name)).collect();
    assert!(untold.is_empty(), "not in reference/environment.rs: {untold:?}");
    // Some are put together of a beginning and the name of an option; tests and scripts read others.
    let mut known = read.clone();
    variables_of(&root.join("crates"), &["rs"], &mut known);
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let tests = entry.unwrap().path().join("tests");
        if tests.is_dir() {
            variables_of(&tests, &["rs"], &mut known);
        }
    }
    let told = page.split('`').filter(|word| word.starts_with("HARRIER_") && !word.ends_with('…'));
    let is_read = |name: &str| {
        known.contains(name) || read.iter().any(|read| read.ends_with('_') && name.starts_with(read.as_str()))
    };
    let unread: Vec<_> = told.filter(|name| !is_read(name)).collect();
    assert!(unread.is_empty(), "nothing reads them: {unread:?}");
}
