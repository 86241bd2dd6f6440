//! Examples of the server documentation: every configuration and every file of authentication rules starts a
//! server, `harrier doctor` finds nothing wrong with it, and statements that need a server end as the
//! reference says.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::auth_support::{admin, certificates, own_user};
use crate::test_server::TestServer;

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

/// Fenced blocks of a page, also those in lists: start line, language, text.
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

/// Creates a folder with everything that the examples name: certificates, a password, rules.
fn create_example_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &[]);
    fs::write(folder.path().join("pages.password"), "a password of the pages\n").unwrap();
    fs::write(folder.path().join("pg_hba.conf"), RULES).unwrap();
    for secret in ["pages.password", "server.key"] {
        fs::set_permissions(folder.path().join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

/// Rule for a server that listens at an address without a local socket.
const RULES: &str = "host all all 127.0.0.1/32 peer\n";

/// Lines of `harrier doctor` that report a problem or a possible improvement.
fn doctor_problems(folder: &Path, arguments: &[&str]) -> BTreeSet<String> {
    let output =
        Command::new(BINARY).arg("doctor").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let found = text.lines().filter(|line| line.starts_with("WRONG") || line.starts_with("NOTE"));
    // The default port may be in use by another server.
    let found = found.filter(|line| !line.contains(" is in use;"));
    found.map(str::to_owned).collect()
}

/// Starts a server with a configuration, and compares the doctor's report with its report on the machine
/// alone. `more`: configuration that only the doctor reads, because servers of tests listen at free ports.
fn assert_server_starts(place: &str, folder: TempDir, configuration: &str, more: &str, asks_others: bool) {
    let path = folder.path().join("harrier.toml");
    fs::write(&path, format!("{configuration}{more}")).unwrap();
    let problems = doctor_problems(folder.path(), &["--config", path.to_str().unwrap()]);
    let of_machine = doctor_problems(folder.path(), &[]);
    let own: Vec<&String> = problems.difference(&of_machine).collect();
    assert!(own.is_empty() || asks_others, "{place}: the doctor says {own:#?}\n{configuration}");
    fs::write(&path, configuration).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let server = TestServer::start_in(folder, &["--launcher", "none", "--config", &path]);
    if !asks_others {
        assert_eq!(admin(&server).one("SELECT 1").as_deref(), Ok("1"), "{place}\n{}", server.log());
    }
}

#[test]
fn documented_configurations_start_a_server() {
    let mut all = Vec::new();
    pages(&docs(), &mut all);
    let mut count = 0;
    for (place, language, text) in all.iter().flat_map(|page| blocks(page)) {
        if language != "toml" || text.contains("[dependencies]") || text.contains("[package]") {
            continue;
        }
        let folder = create_example_folder();
        // Sets the paths of the examples and a free port.
        let here = format!("{}/", folder.path().display());
        if text.contains("tls_certificate") {
            let rules = format!("{RULES}hostssl all all all scram-sha-256\n");
            fs::write(folder.path().join("pg_hba.conf"), rules).unwrap();
        }
        let text = text.replace("/etc/harrier/", &here).replace("/var/log/harrier/", &here);
        assert_server_starts(&place, folder, &text.replace("0.0.0.0:5433", "0.0.0.0:0"), "", false);
        count += 1;
    }
    assert!(count >= 7, "{count} configurations");
}

#[test]
fn documented_authentication_rules_start_a_server() {
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
        let folder = create_example_folder();
        let user = own_user();
        // Readers replace this name with their own.
        fs::write(folder.path().join("pg_hba.conf"), text.replace(" maria ", &format!(" {user} "))).unwrap();
        let tls = "tls_certificate = \"server.crt\"\ntls_key = \"server.key\"\n";
        let configuration = format!("[server]\n{tls}hba_file = \"pg_hba.conf\"\n");
        // The directories of the examples do not exist.
        assert_server_starts(&place, folder, &configuration, "unix_socket = \".\"\n", text.contains("ldap"));
        count += 1;
    }
    assert!(count >= 4, "{count} files of rules");
}

/// The statements depend on one another. Each ends with the SQLSTATE name on the page, or a prefix of it.
#[test]
fn documented_server_statements_run() {
    let page = docs().join("reference/statements.md");
    let text = fs::read_to_string(&page).unwrap();
    let start =
        text.lines().position(|line| line == "## In a server only").expect("the page has the section");
    let server = TestServer::start(&["--launcher", "none"]);
    let mut client = server.client();
    let mut count = 0;
    let mut name = String::new();
    let mut lines: Vec<&str> = text.lines().skip(start).collect();
    // A session of `harrier sql` supports it too; there the statements of all sections run.
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
