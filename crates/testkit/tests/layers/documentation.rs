//! Pages of documentation: the README is short, lines are no wider than code, links lead to files, and
//! decisions are listed with their titles.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

const README_LINES_MAX: usize = 150;
const README_WORDS_MAX: usize = 1000;
/// Characters of a line, as of a line of code, without targets of links, which cannot be broken.
const LINE_CHARS_MAX: usize = 110;
/// Pages outside of `docs`.
const PAGES_BESIDE_DOCS: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "python/README.md"];

#[test]
fn readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= README_LINES_MAX, "{} lines", text.lines().count());
    let words = text.split_whitespace().count();
    assert!(words <= README_WORDS_MAX, "{words} words");
}

fn markdown_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            markdown_below(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

/// All pages, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut paths = PAGES_BESIDE_DOCS.iter().map(|page| root.join(page)).collect();
    markdown_below(&root.join("docs"), &mut paths);
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Lines outside of fenced code blocks, with their numbers.
fn lines_of_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(place, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_fence && !is_code).then_some((place + 1, line))
    })
}

/// The targets of `[text](target)` outside of code.
fn links_of(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for (_, line) in lines_of_prose(text) {
        // Every second part is in backticks.
        for prose in line.split('`').step_by(2) {
            let targets = prose.split("](").skip(1);
            links
                .extend(targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// The site's own check does not know pages outside of `docs`.
#[test]
fn links_lead_to_files() {
    let mut dead = Vec::new();
    for (page, text) in pages() {
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
fn links_are_parsed() {
    let text = "a [b](c.md) and `[d](e)` and [f\ng](h.md#i)\n```\n[j](k)\n```\n[l](m)";
    assert_eq!(links_of(text), ["c.md", "h.md#i", "m"]);
}

/// Numbers of lines that are too wide. Rows of tables and comments are exempt: neither can be broken.
fn wide_lines(text: &str) -> Vec<usize> {
    let is_wide = |line: &str| {
        let targets: usize = links_of(line).iter().map(|target| target.chars().count()).sum();
        line.chars().count() - targets > LINE_CHARS_MAX && !line.trim_start().starts_with('|')
    };
    // A comment may span several lines.
    let mut is_comment = false;
    let mut is_said = |line: &str| {
        let is_part = is_comment || line.trim_start().starts_with("<!--");
        is_comment = is_part && !line.contains("-->");
        !is_part
    };
    let lines = lines_of_prose(text).filter(|(_, line)| is_said(line) && is_wide(line));
    lines.map(|(place, _)| place).collect()
}

#[test]
fn pages_are_no_wider_than_code() {
    let mut wide = Vec::new();
    for (page, text) in pages() {
        wide.extend(wide_lines(&text).into_iter().map(|place| format!("{}:{place}", page.display())));
    }
    assert!(wide.is_empty(), "more than {LINE_CHARS_MAX} characters: {wide:#?}");
}

#[test]
fn wide_lines_are_detected() {
    let wide = "é ".repeat(LINE_CHARS_MAX / 2);
    assert!(wide_lines(&wide).is_empty());
    let text = format!("{wide}a\n| {wide} |\n```\n{wide}a\n```\n[a]({wide}) b\n  {wide}\n<!-- {wide}-->");
    assert_eq!(wide_lines(&text), [1, 7]);
}

/// The title of a decision, `# 0007: Title (2026-11-22)`, in three parts.
fn parse_decision_title(text: &str) -> Option<(&str, &str, &str)> {
    let (number, rest) = text.lines().next()?.strip_prefix("# ")?.split_once(": ")?;
    let (title, date) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    Some((number, title, date))
}

#[test]
fn decisions_are_listed_with_their_titles() {
    let folder = root().join("docs/decisions");
    let index = fs::read_to_string(folder.join("index.md")).unwrap();
    let mut paths = Vec::new();
    markdown_below(&folder, &mut paths);
    let mut wrong = Vec::new();
    for path in paths {
        let file = path.file_name().unwrap().to_str().unwrap();
        if file == "index.md" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let row = parse_decision_title(&text)
            .map(|(number, title, date)| format!("| [{number}]({file}) | {title} | {date} | "));
        if !row
            .is_some_and(|row| index.lines().any(|line| line.starts_with(&row) && line.len() > row.len() + 2))
        {
            wrong.push(format!("{file}: title or row of the index"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
