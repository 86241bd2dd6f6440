//! The examples of the documentation are true: every block of `sh`, `sql`, `psql` and `python` in README.md,
//! the tutorials and the how-to pages runs, in the order of the page, and prints what the page says.
//!
//! The tests of this folder are one program, which is linked once. Those of one page:
//! `cargo test -p harrier --test docs tutorials::server`.
//!
//! # A page
//! Each page has a [`sandbox`] of its own, with names, folders and ports as the text has them. Blocks of `sh`
//! share the variables that they export, and the working directory; blocks of `sql` share a session of
//! `harrier sql`, or of the client that the page has started. A block of `text` is what was printed since the
//! one before it, and is compared as [`compare`] says. Comments, which no reader sees, say what a page
//! cannot:
//!
//! | comment before a block | the block |
//! |---|---|
//! | `<!-- skip: REASON -->` | is not run, nor is the `text` behind it compared; see [`SKIPPED`] |
//! | `<!-- file: NAME -->` | is written into a file |
//! | `<!-- server -->` | goes on beside what follows, from its line `ready: …` or `standby: …` on |
//! | `<!-- client -->` | starts the program that what follows is typed into, if it is SQL |
//! | `<!-- ahead -->` | is typed, and nobody waits for the answer |
//! | `<!-- status: N -->` | ends with this exit status |
//! | `<!-- varies: WORD… -->` | is a `text` in which these words are others each time |
//! | `<!-- of: client -->`, `<!-- of: server -->` | is a `text` of what that one has printed, not the last block |
//!
//! Comments that do something by themselves: `<!-- needs: WHAT… -->` names what [`sandbox::Need`] lists,
//! `<!-- stop -->` is Ctrl-C in the terminal of the server, and `<!-- sh: … -->`, `<!-- sql: … -->`,
//! `<!-- server: … -->` and `<!-- client: … -->` are blocks that only the test sees.

mod compare;
mod how_to;
mod page;
mod page_runner;
mod readme;
mod sandbox;
mod tutorials;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use page::Page;

/// Blocks that are not run, by reason. May only become less.
const SKIPPED: [(&str, usize); 11] = [
    ("compiles Harrier", 10),
    ("is for another engine", 2),
    ("needs HDFS", 3),
    ("needs Slurm with MPICH", 2),
    ("needs a server that is upgraded", 2),
    ("needs another machine", 2),
    ("needs another version", 2),
    ("needs containers", 9),
    ("needs environment modules", 1),
    ("needs systemd", 1),
    ("needs the network", 4),
];

/// Plays a page, and fails with all that is not as it says.
fn check(name: &str) {
    let page = Page::read(&root(), name);
    if let Some(why) = sandbox::missing(&page.needs) {
        eprintln!("skipped: {name}: {why}");
        return;
    }
    let _turn = page.starts_ranks().then(harrier_launch::gang_slot);
    let sandbox = match sandbox::Sandbox::start(&page.needs) {
        Ok(sandbox) => sandbox,
        Err(why) => {
            eprintln!("skipped: {name}: {why}");
            return;
        }
    };
    let played = page_runner::play(&page, &sandbox);
    println!(
        "{name}: {} blocks run, {} outputs compared, {} skipped",
        played.run, played.compared, played.skipped
    );
    assert!(played.failures.is_empty(), "{}", played.failures.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// README.md, the tutorials and the how-to pages, relative to the checkout.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs/tutorials", "docs/how-to"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
            pages.push(format!("{folder}/{}", entry.file_name().display()));
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_page_is_played() {
    let mut tested: Vec<String> = [readme::PAGES, tutorials::PAGES, how_to::PAGES]
        .iter()
        .flat_map(|pages| pages.iter().map(|page| (*page).to_owned()))
        .collect();
    tested.sort();
    assert_eq!(tested, pages());
}

#[test]
fn no_more_is_skipped_than_before() {
    let mut skipped = BTreeMap::new();
    for page in pages() {
        for reason in Page::read(&root(), &page).skips() {
            *skipped.entry(reason).or_insert(0) += 1;
        }
    }
    for (reason, count) in &skipped {
        println!("{count} blocks are not run: {reason}");
    }
    let known: BTreeMap<String, usize> =
        SKIPPED.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    assert_eq!(
        skipped, known,
        "what is found, and what SKIPPED has; where less is skipped, lower the number"
    );
}
