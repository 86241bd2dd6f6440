//! Names of functions and types: verbs for actions, nouns for things. A bare participle (`kept`, `asked`) is
//! neither, and a search for the words of the field does not find it.

use std::path::Path;

use super::{root, rust_files};

/// Functions of each crate's `src` that are called by a participle alone. A count that became smaller has to
/// be lowered here, too; crates without any are not listed. Some are names of traits of other crates (`read`,
/// `cloned`) and stay.
const PARTICIPLES: [(&str, usize); 16] = [
    ("backup", 1),
    ("bench", 3),
    ("catalog", 3),
    ("committer", 5),
    ("engine", 12),
    ("exec", 14),
    ("functions", 8),
    ("harrier", 1),
    ("interconnect", 3),
    ("mpid", 4),
    ("mpid-c", 1),
    ("pgcatalog", 2),
    ("resources", 11),
    ("server", 2),
    ("servers", 1),
    ("testkit", 2),
];

/// The same of functions and types in the `tests` folders. What is left of pgcatalog implements a trait; of
/// testkit it is an example below.
const PARTICIPLES_IN_TESTS: [(&str, usize); 3] = [("harrier", 11), ("pgcatalog", 2), ("testkit", 1)];

/// Participles that do not end in `ed`.
const IRREGULAR: [&str; 29] = [
    "asked", "begun", "bound", "come", "cut", "done", "drawn", "found", "given", "gone", "heard", "held",
    "kept", "known", "left", "lent", "lost", "made", "meant", "met", "paid", "put", "read", "said", "seen",
    "sent", "set", "shown", "told",
];

/// Words in `ed` that are none.
const NOUNS_AND_VERBS: [&str; 4] = ["feed", "need", "seed", "speed"];

fn is_participle(name: &str) -> bool {
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_word
        && !NOUNS_AND_VERBS.contains(&name)
        && (name.len() > 2 && name.ends_with("ed")
            || IRREGULAR.contains(&name)
            || name == "taken"
            || name == "written")
}

/// The names that a source declares with a keyword (`fn`, `struct`), those of its unit tests among them.
fn declarations<'a>(text: &'a str, keyword: &str) -> impl Iterator<Item = &'a str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap());
    code.filter_map(move |line| {
        let at = line.find(keyword).filter(|at| *at == 0 || line[..*at].ends_with([' ', '(']))?;
        let name = line[at + keyword.len()..].strip_prefix(' ')?;
        Some(&name[..name.find(|char: char| !char.is_alphanumeric() && char != '_')?])
    })
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    declarations(text, "fn").filter(|name| is_participle(name))
}

fn types(text: &str) -> impl Iterator<Item = &str> {
    let keywords = ["struct", "enum", "trait", "type"].into_iter();
    keywords
        .flat_map(move |keyword| declarations(text, keyword))
        .filter(|name| name.starts_with(char::is_uppercase) && is_participle(&name.to_lowercase()))
}

fn participles_in(sources: &Path, count: &dyn Fn(&str) -> usize) -> usize {
    let mut files = Vec::new();
    if sources.exists() {
        rust_files(sources, &mut files);
    }
    files.iter().map(|path| count(&std::fs::read_to_string(path).unwrap())).sum()
}

/// Compares the counts of a folder of each crate with the known ones.
fn check(folder: &str, known: &[(&str, usize)], count: &dyn Fn(&str) -> usize) {
    let mut counts: Vec<(String, usize)> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), participles_in(&entry.path().join(folder), count)))
        .map(|(name, count)| (name.into_string().unwrap(), count))
        .filter(|(_, count)| *count > 0)
        .collect();
    counts.sort();
    let known: Vec<(String, usize)> = known.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(counts, known, "functions and types in {folder} that are called by a participle");
}

#[test]
fn participles_as_names_become_fewer() {
    check("src", &PARTICIPLES, &|text| functions(text).count());
}

#[test]
fn participles_as_names_become_fewer_in_tests() {
    check("tests", &PARTICIPLES_IN_TESTS, &|text| functions(text).count() + types(text).count());
}

#[test]
fn participles_are_distinguished_from_other_names() {
    let text =
        "    pub(crate) async fn kept(&self) {}\nfn is_kept() {}\n// fn told() {}\nfn joined<T>() {}\n";
    assert_eq!(functions(text).collect::<Vec<_>>(), ["kept", "joined"]);
    let text = "type Told = u8;\nstruct Asked<T>(T);\nstruct Answer;\nenum Seen {\n// struct Kept;\n";
    assert_eq!(types(text).collect::<Vec<_>>(), ["Asked", "Seen", "Told"]);
}
