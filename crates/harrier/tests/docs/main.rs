//! Runs the examples of the documentation: every block of `sh`, `sql`, `psql` and `python` in README.md, the
//! tutorials and the how-to pages, in page order, and compares the output with the page.
//!
//! The tests of this folder are one program, which is linked once. Those of one page:
//! `cargo test -p harrier --test docs tutorials::server`.
//!
//! # A page
//! Each page runs in its own [`sandbox`], with names, folders and ports as in its text. Blocks of `sh` share
//! exported variables and the working directory; blocks of `sql` share a session of `harrier sql`, or of the
//! client started by the page. A block of `text` is the output since the previous one, and is compared by
//! [`compare`]. Comments, which readers do not see, describe what a page cannot:
//!
//! | comment before a block | the block |
//! |---|---|
//! | `<!-- skip: REASON -->` | is not run, and the `text` after it is not compared; see [`SKIPPED`] |
//! | `<!-- file: NAME -->` | is written into a file |
//! | `<!-- server -->` | keeps running in the background after its line `ready: …` or `standby: …` |
//! | `<!-- client -->` | starts the program that receives the following SQL |
//! | `<!-- ahead -->` | is sent without waiting for the answer |
//! | `<!-- status: N -->` | ends with this exit status |
//! | `<!-- varies: WORD… -->` | is a `text` in which these words vary |
//! | `<!-- of: client -->`, `<!-- of: server -->` | is a `text` printed by the client or the server |
//!
//! Comments that act by themselves: `<!-- needs: WHAT… -->` lists requirements, see [`sandbox::Need`];
//! `<!-- stop -->` sends Ctrl-C to the server; `<!-- sh: … -->`, `<!-- sql: … -->`, `<!-- server: … -->` and
//! `<!-- client: … -->` are blocks for the test only.

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

/// Number of skipped blocks by reason. May only decrease.
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

/// Runs a page, and fails with all differences.
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
    let result = page_runner::play(&page, &sandbox);
    println!(
        "{name}: {} blocks run, {} outputs compared, {} skipped",
        result.run, result.compared, result.skipped
    );
    assert!(result.failures.is_empty(), "{}", result.failures.join("\n"));
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
fn number_of_skipped_blocks_does_not_grow() {
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
