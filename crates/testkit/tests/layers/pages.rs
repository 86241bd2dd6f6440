//! Pages of documentation: the README is short, and links lead to what is there.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

const README_LINES_MAX: usize = 150;
const README_WORDS_MAX: usize = 1000;

#[test]
fn the_readme_is_read_in_a_few_minutes() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= README_LINES_MAX, "{} lines", text.lines().count());
    let words = text.split_whitespace().count();
    assert!(words <= README_WORDS_MAX, "{words} words");
}

fn markdown_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            markdown_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The targets of `[text](target)` outside of code.
fn links_of(text: &str) -> Vec<String> {
    let (mut links, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        // Every second part stands in backticks.
        for prose in line.split('`').step_by(2) {
            let targets = prose.split("](").skip(1);
            links
                .extend(targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// The site's own check does not know pages that stand outside of `docs`.
#[test]
fn links_lead_to_files() {
    let root = root();
    let mut pages = vec!["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "python/README.md"]
        .into_iter()
        .map(|page| root.join(page))
        .collect();
    markdown_below(&root.join("docs"), &mut pages);
    let mut dead = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links_of(&text) {
            let is_elsewhere =
                ["http://", "https://", "mailto:", "#"].iter().any(|start| link.starts_with(start));
            let file = link.split('#').next().unwrap();
            if !is_elsewhere && !page.parent().unwrap().join(file).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn links_are_found() {
    let text = "a [b](c.md) and `[d](e)` and [f\ng](h.md#i)\n```\n[j](k)\n```\n[l](m)";
    assert_eq!(links_of(text), ["c.md", "h.md#i", "m"]);
}
