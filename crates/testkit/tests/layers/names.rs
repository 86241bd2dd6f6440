//! Names of functions: verbs for what is done, nouns for things. A bare participle (`kept`, `asked`) says
//! neither, and nobody finds it by the words of the field.

use std::path::Path;

use super::{root, rust_files};

/// How many functions of a crate are called by a participle alone. A number that became smaller has to be
/// written down here, too; crates without any are not listed. Some are the names of traits of other crates
/// (`read`, `cloned`) and stay.
const PARTICIPLES: [(&str, usize); 21] = [
    ("backup", 3),
    ("bench", 3),
    ("catalog", 6),
    ("committer", 6),
    ("engine", 19),
    ("error", 1),
    ("exec", 17),
    ("functions", 43),
    ("harrier", 3),
    ("interconnect", 8),
    ("launch", 1),
    ("mpid", 5),
    ("mpid-c", 1),
    ("orc", 2),
    ("pgcatalog", 5),
    ("resources", 11),
    ("server", 4),
    ("servers", 9),
    ("sql", 3),
    ("storage", 4),
    ("testkit", 4),
];

/// Participles that do not end in `ed`.
const IRREGULAR: [&str; 29] = [
    "asked", "begun", "bound", "come", "cut", "done", "drawn", "found", "given", "gone", "heard", "held",
    "kept", "known", "left", "lent", "lost", "made", "meant", "met", "paid", "put", "read", "said", "seen",
    "sent", "set", "shown", "told",
];

fn is_participle(name: &str) -> bool {
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_word
        && (name.len() > 2 && name.ends_with("ed")
            || IRREGULAR.contains(&name)
            || name == "taken"
            || name == "written")
}

/// The names of the functions of a source, those of its unit tests among them.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap());
    code.filter_map(|line| {
        let at = line.find("fn ").filter(|at| *at == 0 || line[..*at].ends_with([' ', '(']))?;
        let name = &line[at + 3..];
        Some(&name[..name.find(|char: char| !char.is_alphanumeric() && char != '_')?])
    })
}

fn participles_in(sources: &Path) -> usize {
    let mut files = Vec::new();
    rust_files(sources, &mut files);
    let count = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        functions(&text).filter(|name| is_participle(name)).count()
    };
    files.iter().map(count).sum()
}

#[test]
fn participles_as_names_become_fewer() {
    let mut found: Vec<(String, usize)> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), participles_in(&entry.path().join("src"))))
        .filter(|(_, count)| *count > 0)
        .collect();
    found.sort();
    let known: Vec<(String, usize)> =
        PARTICIPLES.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(found, known, "functions that are called by a participle");
}

#[test]
fn participles_are_told_from_other_names() {
    let text =
        "    pub(crate) async fn kept(&self) {}\nfn is_kept() {}\n// fn told() {}\nfn joined<T>() {}\n";
    assert_eq!(functions(text).filter(|name| is_participle(name)).collect::<Vec<_>>(), ["kept", "joined"]);
}
