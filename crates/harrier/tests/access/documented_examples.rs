//! What the documentation shows for a server is true: every configuration and every file of rules starts one,
//! and the doctor finds nothing wrong with it; statements that only a server has end as the reference says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::auth_support::{admin, certificates, own_user};
use crate::test_server::Served;

const BINARY: &str = env!("CARGO_BIN_EXE_harrier");

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().unwrap()
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => pages(&path, found),
            false if path.extension().is_some_and(|extension| extension == "md") => found.push(path),
            false => {}
        }
    }
    found.sort();
}

/// Fenced blocks of a page, also those of lists: where they begin, their language and their text.
fn blocks(page: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks: Vec<(String, String, String)> = Vec::new();
    let mut indent = None;
    for (number, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        match indent {
            None => {
                if let Some(language) = bare.strip_prefix("```").filter(|language| !language.is_empty()) {
                    indent = Some(line.len() - bare.len());
                    let place = format!("{}:{}", page.display(), number + 1);
                    blocks.push((place, language.to_owned(), String::new()));
                } else if bare == "```" {
                    indent = Some(line.len() - bare.len());
                    blocks.push((String::new(), String::new(), String::new()));
                }
            }
            Some(_) if bare == "```" => indent = None,
            Some(depth) => {
                let (.., text) = blocks.last_mut().unwrap();
                text.push_str(line.get(depth..).unwrap_or(bare));
                text.push('\n');
            }
        }
    }
    blocks
}

/// A folder with all that the examples name: certificates, a password, rules.
fn prepared() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &[]);
    fs::write(folder.path().join("pages.password"), "a password of the pages\n").unwrap();
    fs::write(folder.path().join("pg_hba.conf"), RULES).unwrap();
    for secret in ["pages.password", "server.key"] {
        fs::set_permissions(folder.path().join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

/// For a server at an address and no local socket.
const RULES: &str = "host all all 127.0.0.1/32 peer\n";

/// What the doctor says is wrong or could be better.
fn complaints(folder: &Path, arguments: &[&str]) -> BTreeSet<String> {
    let output =
        Command::new(BINARY).arg("doctor").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let found = text.lines().filter(|line| line.starts_with("WRONG") || line.starts_with("NOTE"));
    // Another server may have the port that a configuration names by saying nothing.
    let found = found.filter(|line| !line.contains(" is in use;"));
    found.map(str::to_owned).collect()
}

/// Starts a server with a configuration, and compares what the doctor says of it with what it says of the
/// machine. `more`: what only the doctor is told, since tests have servers listen at ports that are free.
fn starts(place: &str, folder: TempDir, configuration: &str, more: &str, asks_others: bool) {
    let path = folder.path().join("harrier.toml");
    fs::write(&path, format!("{configuration}{more}")).unwrap();
    let told = complaints(folder.path(), &["--config", path.to_str().unwrap()]);
    let of_machine = complaints(folder.path(), &[]);
    let own: Vec<&String> = told.difference(&of_machine).collect();
    assert!(own.is_empty() || asks_others, "{place}: the doctor says {own:#?}\n{configuration}");
    fs::write(&path, configuration).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let served = Served::start_in(folder, &["--launcher", "none", "--config", &path]);
    if !asks_others {
        assert_eq!(admin(&served).one("SELECT 1").as_deref(), Ok("1"), "{place}\n{}", served.log());
    }
}

#[test]
fn configurations_of_the_documentation_start_a_server() {
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    let mut count = 0;
    for (place, language, text) in all.iter().flat_map(|page| blocks(page)) {
        if language != "toml" || text.contains("[dependencies]") || text.contains("[package]") {
            continue;
        }
        let folder = prepared();
        // Where the examples have their files, and a port that is free.
        let here = format!("{}/", folder.path().display());
        if text.contains("tls_certificate") {
            let rules = format!("{RULES}hostssl all all all scram-sha-256\n");
            fs::write(folder.path().join("pg_hba.conf"), rules).unwrap();
        }
        let text = text.replace("/etc/harrier/", &here).replace("/var/log/harrier/", &here);
        starts(&place, folder, &text.replace("0.0.0.0:5433", "0.0.0.0:0"), "", false);
        count += 1;
    }
    assert!(count >= 7, "{count} configurations");
}

#[test]
fn rules_of_the_documentation_start_a_server() {
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    let mut count = 0;
    for (place, language, text) in all.iter().flat_map(|page| blocks(page)) {
        let is_rule = |line: &str| {
            let first = line.split_whitespace().next();
            matches!(first, Some("local" | "host" | "hostssl" | "hostnossl"))
        };
        if language != "text" || !text.lines().all(is_rule) || text.is_empty() {
            continue;
        }
        let folder = prepared();
        let user = own_user();
        // Who reads the page writes their own name there.
        fs::write(folder.path().join("pg_hba.conf"), text.replace(" maria ", &format!(" {user} "))).unwrap();
        let tls = "tls_certificate = \"server.crt\"\ntls_key = \"server.key\"\n";
        let configuration = format!("[server]\n{tls}hba_file = \"pg_hba.conf\"\n");
        // The directories of the examples are nowhere.
        starts(&place, folder, &configuration, "unix_socket = \".\"\n", text.contains("ldap"));
        count += 1;
    }
    assert!(count >= 4, "{count} files of rules");
}

/// They build on one another, and each ends with the name that the page has for it, or a beginning of it.
#[test]
fn statements_of_a_server_run() {
    let page = docs().join("reference/statements.md");
    let text = fs::read_to_string(&page).unwrap();
    let start =
        text.lines().position(|line| line == "## In a server only").expect("the page has the section");
    let served = Served::start(&["--launcher", "none"]);
    let mut client = served.client();
    let mut count = 0;
    let mut name = String::new();
    let mut lines: Vec<&str> = text.lines().skip(start).collect();
    // A session of `harrier sql` has it, too; there the statements of all sections run.
    let discard = text.lines().skip_while(|line| *line != "### DISCARD");
    lines.extend(
        discard.enumerate().take_while(|(at, line)| *at == 0 || !line.starts_with('#')).map(|(_, line)| line),
    );
    for (at, line) in lines.iter().enumerate() {
        if let Some(title) = line.strip_prefix("### ") {
            name = title.to_owned();
        }
        if *line != "```postgres" {
            continue;
        }
        let block: Vec<&str> = lines[at + 1..].iter().take_while(|line| **line != "```").copied().collect();
        for statement in block.join("\n").split(';').map(str::trim).filter(|text| !text.is_empty()) {
            client.query(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
            assert!(client.tag.starts_with(&name), "{statement} is {}", client.tag);
            count += 1;
        }
    }
    assert!(count >= 6, "{count} statements");
}
