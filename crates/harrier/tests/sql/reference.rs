//! The pages of `docs/reference` that the code tells are what it tells, and so are the manual and what shells
//! complete.
//!
//! `HARRIER_REFERENCE_UPDATE=1` writes the pages anew.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{BINARY, Folder, Run};

const UPDATE: &str = "HARRIER_REFERENCE_UPDATE";

/// What a page begins with that is written by the code.
const NOTE: &str = "<!-- Written by `harrier reference`";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn harrier(arguments: &[&str]) -> Run {
    Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// The files of a folder, with their texts.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn pages_are_what_the_code_says() {
    let folder = Folder::new();
    let new = folder.path().join("new");
    let run = harrier(&["reference", new.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{}", run.stderr);
    let committed = root().join("docs/reference");
    let mut differ = Vec::new();
    let pages = files(&new);
    for (name, text) in &pages {
        let path = committed.join(name);
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present == *text {
            continue;
        }
        match env::var_os(UPDATE) {
            Some(_) => fs::write(&path, text).unwrap(),
            None => {
                let mut lines = present.lines().chain(std::iter::repeat("")).zip(text.lines());
                let first = lines.find(|(old, new)| old != new);
                differ.push(format!("{name}: {first:?}"));
            }
        }
    }
    let names: BTreeSet<&String> = pages.iter().map(|(name, _)| name).collect();
    let left = files_of_code(&committed).filter(|name| !names.contains(name));
    differ.extend(left.map(|name| format!("{name}: nothing writes it any more")));
    assert!(differ.is_empty(), "run this test with {UPDATE}=1: {differ:#?}");
}

fn files_of_code(folder: &Path) -> impl Iterator<Item = String> {
    files(folder).into_iter().filter(|(_, text)| text.starts_with(NOTE)).map(|(name, _)| name)
}

/// What bash offers for the last of the words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let list = words.join(" ");
    let last = words.len() - 1;
    let (word, before) = (words[last], words[last - 1]);
    let asked = format!(
        "{script}\nCOMP_WORDS=({list} )\nCOMP_CWORD={last}\n_harrier harrier '{word}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_and_options() {
    if Command::new("bash").arg("--version").output().is_err() {
        return eprintln!("skipped: bash is not installed");
    }
    let bash = harrier(&["completions", "bash"]);
    assert_eq!((bash.status, bash.stderr.as_str()), (Some(0), ""));
    assert_eq!(offered(&bash.stdout, &["harrier", "se"]), ["serve"]);
    assert_eq!(offered(&bash.stdout, &["harrier", "serve", "--conf"]), ["--config"]);
    assert_eq!(offered(&bash.stdout, &["harrier", "ctl", "rank-d"]), ["rank-down"]);
    let hidden = offered(&bash.stdout, &["harrier", "r"]);
    assert_eq!(hidden, ["restore"], "what is hidden is not offered");
    let zsh = harrier(&["completions", "zsh"]);
    assert!(zsh.stdout.starts_with("#compdef harrier"), "{zsh:?}");
    let fish = harrier(&["completions", "fish"]);
    assert!(fish.stdout.contains("complete -c harrier"), "{fish:?}");
    for (shell, script) in [("zsh", &zsh.stdout), ("fish", &fish.stdout)] {
        for word in ["bench", "restore", "spill-dir"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        assert!(!script.contains("bench-worker") && !script.contains("inprocess"), "{shell}");
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let first = harrier(&["man"]);
    assert_eq!((first.status, first.stderr.as_str()), (Some(0), ""));
    for part in [".TH harrier 1", ".SH NAME", "EXIT STATUS", "HARRIER_LOG", "harrier\\-sql(1)"] {
        assert!(first.stdout.contains(part), "{part}:\n{}", first.stdout);
    }
    let folder = Folder::new();
    let run = harrier(&["man", "--folder", folder.path().to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    let pages = files(folder.path());
    let page =
        |name: &str| &pages.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1;
    assert_eq!(*page("harrier.1"), first.stdout);
    let help = harrier(&["--help"]).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands =
        commands.lines().take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().next());
    for command in commands.flatten().filter(|command| *command != "help") {
        let page = page(&format!("harrier-{command}.1"));
        let help = harrier(&[command, "--help"]).stdout;
        for option in help.split_whitespace().filter(|word| word.starts_with("--")) {
            let option = option.trim_matches(|char: char| !char.is_ascii_alphanumeric());
            assert!(page.contains(&option.replace('-', "\\-")), "{command}: --{option}\n{page}");
        }
    }
    page("harrier-generate-tpch.1");
    page("harrier-ctl-move-rank.1");
}

/// What needs a warehouse that stays does not offer another one.
#[test]
fn no_command_offers_what_it_refuses() {
    for command in [&["serve"][..], &["backup", "b"], &["restore", "b"]] {
        let help = harrier(&[command[0], "--help"]);
        assert!(help.stdout.contains("--warehouse <DIR>"), "{help:?}");
        assert!(!help.stdout.contains(":memory:"), "{help:?}");
        let run = harrier(&[command, &["--warehouse", ":memory:"]].concat());
        assert_ne!(run.status, Some(0), "{run:?}");
    }
    assert!(harrier(&["sql", "--help"]).stdout.contains(":memory:"));
}
