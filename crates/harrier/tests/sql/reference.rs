//! Generated pages of `docs/reference`, manual pages and shell completions are up to date with the code.
//!
//! `HARRIER_REFERENCE_UPDATE=1` rewrites the pages.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{BINARY, Folder, Run};

const UPDATE: &str = "HARRIER_REFERENCE_UPDATE";

/// First line of a generated page.
const NOTE: &str = "<!-- Written by `harrier reference`";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn harrier(arguments: &[&str]) -> Run {
    Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Files of a folder with their contents.
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
fn generated_pages_are_up_to_date() {
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
    let unlisted_files = files_of_code(&committed).filter(|name| !names.contains(name));
    differ.extend(unlisted_files.map(|name| format!("{name}: nothing writes it any more")));
    assert!(differ.is_empty(), "run this test with {UPDATE}=1: {differ:#?}");
}

fn files_of_code(folder: &Path) -> impl Iterator<Item = String> {
    files(folder).into_iter().filter(|(_, text)| text.starts_with(NOTE)).map(|(name, _)| name)
}

/// Completions that bash offers for the last word.
fn bash_completions(script: &str, words: &[&str]) -> Vec<String> {
    let list = words.join(" ");
    let last = words.len() - 1;
    let (word, before) = (words[last], words[last - 1]);
    let bash_script = format!(
        "{script}\nCOMP_WORDS=({list} )\nCOMP_CWORD={last}\n_harrier harrier '{word}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").args(["--norc", "-c", &bash_script]).output().unwrap();
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
    assert_eq!(bash_completions(&bash.stdout, &["harrier", "se"]), ["serve"]);
    assert_eq!(bash_completions(&bash.stdout, &["harrier", "serve", "--conf"]), ["--config"]);
    assert_eq!(bash_completions(&bash.stdout, &["harrier", "ctl", "rank-d"]), ["rank-down"]);
    let hidden = bash_completions(&bash.stdout, &["harrier", "r"]);
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
    let page = |name: &str| {
        &pages.iter().find(|(page_name, _)| page_name == name).unwrap_or_else(|| panic!("{name}")).1
    };
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

/// Commands that need an existing warehouse do not offer to create one.
#[test]
fn commands_list_only_options_they_accept() {
    for command in [&["serve"][..], &["backup", "b"], &["restore", "b"]] {
        let help = harrier(&[command[0], "--help"]);
        assert!(help.stdout.contains("--warehouse <DIR>"), "{help:?}");
        assert!(!help.stdout.contains(":memory:"), "{help:?}");
        let run = harrier(&[command, &["--warehouse", ":memory:"]].concat());
        assert_ne!(run.status, Some(0), "{run:?}");
    }
    assert!(harrier(&["sql", "--help"]).stdout.contains(":memory:"));
}
