//! Names of functions, types, fields and variants: verbs for actions, nouns for things. A bare participle
//! (`kept`, `asked`) is neither, and a search for the words of the field does not find it.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAY_USE, root, rust_files};

/// Functions that a participle alone names nevertheless: the crate, the name, and why.
const EXCEPTIONS: [(&str, &str, &str); 8] = [
    ("engine", "cloned", "a method of DataFusion's `ExtensionOptions`"),
    ("engine", "contained", "a method of DataFusion's `PruningStatistics`"),
    ("harrier", "embedded", "the SQL suite's configuration of this name"),
    ("mpid", "sorted", "a switch of the builder `Job`, public"),
    ("resources", "cloned", "a method of DataFusion's `ExtensionOptions`"),
    ("resources", "reserved", "a method of DataFusion's `MemoryPool`"),
    ("testkit", "embedded", "the SQL suite's configuration of this name"),
    ("testkit", "kept", "an example below"),
];

/// Participles that do not end in `ed`. Those that are verbs in the present, too, are not here (`cut`, `put`,
/// `read`, `set`, `unset`), nor is `bound`, a limit.
const IRREGULAR: [&str; 44] = [
    "asked", "begun", "broken", "built", "chosen", "come", "done", "drawn", "driven", "found", "frozen",
    "given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "left", "lent", "lost", "made",
    "meant", "met", "paid", "rebuilt", "said", "seen", "sent", "shown", "sought", "spent", "stolen", "stuck",
    "swept", "taken", "taught", "thrown", "told", "torn", "undone", "unread", "written",
];

/// Participles of which a field or a variant tells too little. Others are words of the field (`lost` ranks,
/// `sent` bytes, `done`), or adjectives of a state (`cached`, `closed`).
const VAGUE: [&str; 14] = [
    "asked", "begun", "given", "heard", "held", "kept", "known", "left", "lent", "meant", "said", "seen",
    "taken", "told",
];

/// Words in `ed` that are none.
const NOUNS_AND_VERBS: [&str; 4] = ["feed", "need", "seed", "speed"];

fn is_participle(name: &str) -> bool {
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_word
        && !NOUNS_AND_VERBS.contains(&name)
        && (name.len() > 2 && name.ends_with("ed") || IRREGULAR.contains(&name))
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap()
}

/// The names that a source declares with a keyword (`fn`, `struct`), those of its unit tests among them.
fn declarations<'a>(text: &'a str, keyword: &str) -> impl Iterator<Item = &'a str> {
    text.lines().map(without_comment).filter_map(move |line| {
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

/// The lines of the structs and enums of a source, each type's with its first and last one.
fn type_bodies(text: &str) -> Vec<Vec<&str>> {
    let mut bodies: Vec<Vec<&str>> = Vec::new();
    let mut end = None;
    for line in text.lines().map(without_comment) {
        let indent = &line[..line.len() - line.trim_start().len()];
        if end.is_some() {
            bodies.last_mut().expect("a body has begun").push(line);
            end = end.filter(|end| *end != line);
        } else if line.ends_with('{') && !line.contains("fn ") {
            let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
            if words.next().is_some_and(|word| ["struct", "enum"].contains(&word)) {
                bodies.push(vec![line]);
                end = text.lines().find(|end| end.strip_prefix(indent) == Some("}"));
            }
        }
    }
    bodies
}

/// Words beside which `left` is a side: of a pair, of a picture, of a join.
const SIDES: [&str; 3] = ["right", "top", "inner"];

/// Fields and variants called by a vague participle.
fn fields_and_variants(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for body in type_bodies(text) {
        let has_side = |line: &&str| SIDES.iter().any(|side| line.to_lowercase().contains(side));
        let has_sides = body.iter().any(has_side);
        for line in body[1..].iter().filter(|line| !line.trim_start().starts_with('#')) {
            let words = line.split(|char: char| !char.is_alphanumeric() && char != '_' && char != ':');
            let fields = words.filter_map(|word| word.strip_suffix(':'));
            let variant = line.trim_start().split(|char: char| !char.is_alphanumeric()).next();
            let variant = variant.filter(|word| word.starts_with(char::is_uppercase));
            found.extend(fields.chain(variant).filter(|name| {
                let name = name.to_lowercase();
                VAGUE.contains(&name.as_str()) && !(has_sides && name == "left")
            }));
        }
    }
    found
}

/// The crate, the name and the file of what `names` finds in a folder of each crate.
fn found_in(folder: &str, names: &dyn Fn(&str) -> Vec<String>) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for krate in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = krate.unwrap().path();
        let krate = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut files = Vec::new();
        if path.join(folder).exists() {
            rust_files(&path.join(folder), &mut files);
        }
        for file in files {
            let found = names(&std::fs::read_to_string(&file).unwrap());
            let place = file.strip_prefix(root()).unwrap().display().to_string();
            all.extend(found.into_iter().map(|name| (krate.clone(), name, place.clone())));
        }
    }
    all.sort();
    all
}

#[test]
fn functions_and_types_are_not_named_by_participles() {
    let names = |text: &str| functions(text).chain(types(text)).map(str::to_owned).collect::<Vec<_>>();
    let functions_only = |text: &str| functions(text).map(str::to_owned).collect::<Vec<_>>();
    let mut found = found_in("src", &functions_only);
    found.extend(found_in("tests", &names));
    let is_exception = |krate: &str, name: &str| {
        EXCEPTIONS.iter().any(|(of, exception, _)| *of == krate && *exception == name)
    };
    let unexpected: Vec<_> = found.iter().filter(|(krate, name, _)| !is_exception(krate, name)).collect();
    assert!(unexpected.is_empty(), "a participle says neither what is done nor what it is: {unexpected:#?}");
    let is_used = |krate: &str, name: &str| found.iter().any(|(of, other, _)| of == krate && other == name);
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|(krate, name, _)| !is_used(krate, name)).collect();
    assert!(unused.is_empty(), "exceptions without use: {unused:#?}");
}

#[test]
fn fields_and_variants_are_not_named_by_vague_participles() {
    let found =
        found_in("src", &|text| fields_and_variants(text).into_iter().map(str::to_owned).collect::<Vec<_>>());
    assert!(found.is_empty(), "name what it holds: {found:#?}");
}

#[test]
fn participles_are_distinguished_from_other_names() {
    let text = "    pub(crate) async fn kept(&self) {}\nfn is_kept() {}\n// fn told() {}\nfn read<T>() {}\n";
    assert_eq!(functions(text).collect::<Vec<_>>(), ["kept"]);
    let text = "type Told = u8;\nstruct Asked<T>(T);\nstruct Answer;\nenum Seen {\n// struct Kept;\n";
    assert_eq!(types(text).collect::<Vec<_>>(), ["Asked", "Seen", "Told"]);
}

#[test]
fn fields_and_variants_are_found() {
    let text = "pub struct Row<T> {\n    /// kept: no.\n    pub kept: T,\n    is_known: bool,\n}\n\
                enum State {\n    Told,\n    Text { begun: bool, sent: u64 },\n}\n\
                struct Join {\n    left: Row,\n    right: Row,\n}\n\
                fn of(given: u8) {\n    let said: u8 = given;\n}\n";
    assert_eq!(fields_and_variants(text), ["kept", "Told", "begun"]);
}

/// Crates that stand aside: tools and tests, which see few of the others, and the library of keys and values.
const ASIDE: [&str; 8] = ["bench", "generate", "launch", "mpid", "mpid-c", "servers", "sim", "testkit"];

/// Names that public types of several crates have, although a third crate, or one of them, may use both; each
/// group with the reason why their sense is clear nevertheless.
const SHARED_NAMES: [(&str, &[&str]); 5] = [
    (
        "words that a module has for its own, and that are written with it (`queues::Ticket`)",
        &[
            "Codec",
            "Error",
            "Folder",
            "Format",
            "Header",
            "Key",
            "Kind",
            "Operation",
            "Options",
            "Place",
            "Result",
            "Side",
            "Statement",
            "Step",
            "Target",
            "Ticket",
        ],
    ),
    (
        "what a warehouse has, and the same as the system catalogs show it (`pgcatalog::source`)",
        &["Column", "ColumnStatistics", "Grant", "Object", "Role", "Schema", "Sequence", "SequenceOwner"],
    ),
    (
        "what is written in a statement, and the same as it is stored",
        &["DividedBy", "RoleOptions", "SequenceType", "Transform"],
    ),
    ("the same at two levels: MPI's and a stream's", &["InFlight", "Piece", "Progress", "Published"]),
    ("statistics of files, as they are written and as the catalog has them", &["FileStats"]),
];

/// The names of a source's public types that are declared at its outermost level.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("pub ")?.split_whitespace();
        let is_type = ["struct", "enum", "trait", "type"].contains(&words.next()?);
        let name = words.next()?.split(|char: char| !char.is_alphanumeric()).next();
        name.filter(|_| is_type)
    })
}

#[test]
fn public_types_of_crates_that_meet_have_different_names() {
    let names = |text: &str| public_types(text).map(str::to_owned).collect::<Vec<_>>();
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (krate, name, file) in found_in("src", &names) {
        if !ASIDE.contains(&krate.as_str()) && !file.contains("/bin/") && !file.contains("/tests") {
            types.entry(krate).or_default().insert(name);
        }
    }
    let mut shared: BTreeSet<&str> = BTreeSet::new();
    for (krate, uses) in MAY_USE {
        let names = std::iter::once(&krate).chain(uses).map(|name| name.trim_start_matches("harrier-"));
        let near: Vec<&BTreeSet<String>> = names.filter_map(|name| types.get(name)).collect();
        for (at, one) in near.iter().enumerate() {
            shared
                .extend(near[at + 1..].iter().flat_map(|other| one.intersection(other)).map(String::as_str));
        }
    }
    let known: BTreeSet<&str> = SHARED_NAMES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    assert_eq!(shared, known, "public types of two crates that have one name");
}
