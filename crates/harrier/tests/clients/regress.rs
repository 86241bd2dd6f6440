//! PostgreSQL's regression suite through psql, on `harrier serve` and on PostgreSQL, compared statement by
//! statement; differences must be listed (`tests/regress`).
//!
//! `HARRIER_REGRESS=join` runs only the files with that in their names. `HARRIER_REGRESS_UPDATE=1` rewrites
//! the list and the counts. `HARRIER_REGRESS_SHOW=FOLDER` writes both outcomes of each statement that
//! differs.

mod classes;
mod compare;
mod list;
mod psql;
mod script;
mod setup;

use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use harrier_servers::Postgres;

use classes::{Class, Classifier};
use list::{Counts, Entry};
use psql::{Address, Outcome};
use script::{Part, Statement};

use crate::test_server::TestServer;

/// Files of the suite to run: SELECT and its clauses, then types.
const FILES: [&str; 43] = [
    "test_setup",
    "select",
    "select_distinct",
    "select_distinct_on",
    "select_implicit",
    "select_having",
    "select_into",
    "join",
    "aggregates",
    "groupingsets",
    "window",
    "union",
    "subselect",
    "case",
    "with",
    "limit",
    "expressions",
    "insert",
    "boolean",
    "char",
    "varchar",
    "text",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "numerology",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "horology",
    "strings",
    "regex",
    "arrays",
    "json",
    "jsonb",
    "uuid",
    "random",
];

/// Result of one file.
struct Result {
    counts: Counts,
    entries: Vec<Entry>,
}

#[test]
fn regression_suite() {
    let Some(postgres) = postgres() else { return };
    let Some(suite) = suite() else { return };
    let _alone = crate::MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let root = checkout().join("tests/regress");
    let classes = classes::read(&fs::read_to_string(root.join("classes.txt")).unwrap());
    let file_filter = env::var("HARRIER_REGRESS").unwrap_or_default();
    let files: Vec<&str> = FILES.into_iter().filter(|file| file.contains(&file_filter)).collect();
    assert!(!files.is_empty(), "no file has {file_filter} in its name");

    // PostgreSQL's server, another user, copies from it.
    let shared = tempfile::tempdir().unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_folder(&suite.join("data"), &shared.path().join("data"));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run_file(file, &suite, shared.path(), postgres, &classes);
                    results.lock().unwrap().insert(*file, result);
                }
            });
        }
    });

    let results = results.into_inner().unwrap();
    assert_eq!(results.len(), files.len(), "a file was not run to its end");
    let entries: Vec<Entry> = files.iter().flat_map(|file| results[file].entries.clone()).collect();
    let list = root.join("differences.tsv");
    let listed = list::read(&fs::read_to_string(&list).unwrap());
    if env::var_os("HARRIER_REGRESS_UPDATE").is_some() {
        let is_run = |entry: &Entry| files.contains(&entry.file.as_str());
        let mut all: Vec<Entry> = listed.into_iter().filter(|entry| !is_run(entry)).collect();
        all.extend(entries);
        all.sort_by_key(|entry| (FILES.iter().position(|file| *file == entry.file), entry.line, entry.turn));
        fs::write(&list, list::write(&all)).unwrap();
        if files.len() == FILES.len() {
            let readme = root.join("README.md");
            let text = fs::read_to_string(&readme).unwrap();
            fs::write(&readme, with_tables(&text, &tables(&results, &all, &classes))).unwrap();
        }
        return;
    }
    let listed: Vec<Entry> =
        listed.into_iter().filter(|entry| files.contains(&entry.file.as_str())).collect();
    let varies = |name: &str| classes.iter().any(|class| class.name == name && class.varies);
    let mut wrong = list::disagreements(&entries, &listed, varies);
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    if files.len() == FILES.len() && with_tables(&readme, &tables(&results, &listed, &classes)) != readme {
        wrong.push("the counts of tests/regress/README.md are not those of the list".to_string());
    }
    assert!(
        wrong.is_empty(),
        "{} differences from tests/regress/differences.tsv:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs a file on both servers, each with a new database, after creating the tables of the suite.
fn run_file(file: &str, suite: &Path, shared: &Path, postgres: &Postgres, classes: &[Class]) -> Result {
    let text = |name: &str| {
        let bytes = fs::read(suite.join("sql").join(format!("{name}.sql"))).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let setup = setup::adapt_tables(script::parts(&text("test_setup")));
    let parts = script::parts(&text(file));
    let (parts, left_out) = match file {
        "test_setup" => (Vec::new(), 0),
        _ => setup::filter_statements(parts),
    };
    let all: Vec<&Part> = setup.iter().chain(&parts).collect();

    let server = TestServer::start(&["--launcher", "none"]);
    let data = shared.display().to_string();
    let user = env::var("USER").unwrap_or_else(|_| "root".to_string());
    let database = "warehouse".to_string();
    // Infinite recursions run until this timeout.
    let address = Address { port: server.port, user, database, data: data.clone(), time_limit: 30 };
    let harrier = psql::run(&address, &all, server.folder.path());
    let database = postgres.new_database();
    let user = "harrier".to_string();
    let address = Address { port: postgres.port(), user, database, data, time_limit: 300 };
    let folder = tempfile::tempdir().unwrap();
    let expected = psql::run(&address, &all, folder.path());

    let statements: Vec<&Statement> = all.iter().filter_map(|part| statement(part)).collect();
    let begin = match file {
        "test_setup" => 0,
        _ => setup.iter().filter(|part| statement(part).is_some()).count(),
    };
    let mut classifier = Classifier::default();
    let mut turns: HashMap<String, usize> = HashMap::new();
    let mut entries = Vec::new();
    for (at, statement) in statements.iter().enumerate() {
        let difference = compare::difference(&statement.text, &harrier[at], &expected[at]);
        if at < begin {
            // The difference is listed with the file that tests it; here it also spoils the tables.
            difference
                .inspect(|difference| drop(classifier.class(classes, "test_setup", statement, difference)));
            continue;
        }
        let turn = turns.entry(statement.hash()).or_default();
        *turn += 1;
        let Some(difference) = difference else { continue };
        let class = classifier.class(classes, file, statement, &difference);
        show(file, statement, &class, &harrier[at], &expected[at]);
        entries.push(Entry::of(file, statement, *turn, class, difference.kind));
    }
    Result { counts: Counts { run: statements.len() - begin, left_out }, entries }
}

fn statement(part: &Part) -> Option<&Statement> {
    match part {
        Part::Statement(statement) => Some(statement),
        Part::Command(_) => None,
    }
}

/// Writes both outcomes to a file for investigation.
fn show(file: &str, statement: &Statement, class: &str, harrier: &Outcome, postgres: &Outcome) {
    let Some(folder) = env::var_os("HARRIER_REGRESS_SHOW") else { return };
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Done(rows) => rows.iter().map(|row| format!("    {}\n", row.join(" | "))).collect(),
        Outcome::Failed { sqlstate, message } => format!("    {sqlstate}: {message}\n"),
        Outcome::Lost => "    lost\n".to_string(),
    };
    let text = format!(
        "== {file}:{} [{class}]\n{}\n  harrier\n{}  postgres\n{}",
        statement.line,
        statement.text,
        outcome(harrier),
        outcome(postgres)
    );
    let path = Path::new(&folder).join(file);
    let mut writer = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
}

const BEGIN: &str = "<!-- counts, written by the test -->\n";
const END: &str = "<!-- end of counts -->\n";

fn with_tables(readme: &str, tables: &str) -> String {
    let (before, rest) = readme.split_once(BEGIN).expect("the README has a place for counts");
    let (_, after) = rest.split_once(END).expect("the place for counts ends");
    format!("{before}{BEGIN}{tables}{END}{after}")
}

fn tables(results: &HashMap<&str, Result>, entries: &[Entry], classes: &[Class]) -> String {
    let counts: Vec<(String, Counts)> =
        FILES.iter().map(|file| (file.to_string(), results[file].counts)).collect();
    let reasons: Vec<(String, String)> =
        classes.iter().map(|class| (class.name.clone(), class.reason.clone())).collect();
    list::tables(&counts, entries, &reasons)
}

/// Starts PostgreSQL 15; `None`, with a message, if it is not available.
fn postgres() -> Option<&'static Postgres> {
    // The suite changes roles, which all databases of a server share.
    let postgres: &'static Postgres = Box::leak(Box::new(Postgres::start_dedicated()?));
    let version = postgres.psql("postgres", "SHOW server_version");
    if !version.starts_with("15.") {
        skip(&format!("the regression suite is that of PostgreSQL 15, and the server here is {version}"));
        return None;
    }
    Some(postgres)
}

/// The suite's folder; `None`, with a message, if it cannot be downloaded.
fn suite() -> Option<PathBuf> {
    let download = Command::new(checkout().join("scripts/regress.sh")).output().unwrap();
    if !download.status.success() {
        skip(String::from_utf8_lossy(&download.stderr).trim());
        return None;
    }
    Some(PathBuf::from(String::from_utf8_lossy(&download.stdout).trim()))
}

fn skip(why: &str) {
    let is_required = env::var_os("HARRIER_REQUIRE_SERVERS").is_some_and(|value| value == "1");
    assert!(!is_required, "absent: {why}");
    eprintln!("================ SKIPPED ================\n{why}\n=========================================");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
