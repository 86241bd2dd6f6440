//! HiveQL against the recorded answers of Apache Hive 4.0.1: every statement of `tests/hive/*.tsv` runs with
//! `harrier.dialect = hive`, embedded and on three ranks. What differs stands in
//! `tests/hive/differences.tsv`, each with its reason; one that is no difference any more must leave it.
//!
//! Compared are whether the statement fails, the names of columns (without the table that Hive writes before
//! those of `*`), and the rows: in any order without ORDER BY, numbers by value, arrays, maps and structs by
//! their values without quotes and blanks.
//!
//! `HARRIER_HIVE=a02` runs the files with that in their names. `HARRIER_HIVE_UPDATE=1` writes the list anew,
//! with the reasons that it had and `?` for others, which the test refuses.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use harrier_launch::Launcher;
use harrier_testkit::rows::Cell;
use harrier_testkit::session::{Answer, Configuration, RestartingSession};

/// Hive's answer to a statement.
enum HiveAnswer {
    Rows { columns: Vec<String>, types: Vec<String>, rows: Vec<Vec<Cell>> },
    Written,
    Error,
}

struct Record {
    statement: String,
    answer: HiveAnswer,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hive")
}

/// Undoes `\t`, `\n`, `\r`, `\0` and `\\`.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        plain.push(match (sign, sign == '\\') {
            (_, true) => match signs.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('0') => '\0',
                other => other.unwrap_or('\\'),
            },
            (sign, false) => sign,
        });
    }
    plain
}

fn cells(line: &str) -> Vec<Cell> {
    line.split('\t').map(|cell| (cell != "NULL").then(|| without_escapes(cell))).collect()
}

/// The records of a file. A statement begins with `> `, and the next one ends its answer.
fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let text = text.strip_suffix("\n\n").unwrap_or(text);
    let blocks = text.strip_prefix("> ").unwrap_or(text).split("\n\n> ");
    for block in blocks.filter(|block| !block.trim().is_empty()) {
        let mut lines = block.split('\n');
        let statement = lines.next().unwrap_or_default().to_string();
        let first = lines.next().unwrap_or_default();
        let answer = match first {
            first if first.starts_with("ERROR") => HiveAnswer::Error,
            first if first.starts_with("OK") => HiveAnswer::Written,
            names => {
                let columns: Vec<String> = names.split('\t').map(str::to_string).collect();
                let types = lines.next().unwrap_or_default().trim_start_matches('#');
                let types = types.split('\t').map(str::to_string).collect();
                let count = columns.len();
                let rows = lines.map(cells).filter(|row| row.len() == count).collect();
                HiveAnswer::Rows { columns, types, rows }
            }
        };
        records.push(Record { statement, answer });
    }
    records
}

fn last_part(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_lowercase()
}

/// A value for comparison.
fn normal(cell: &Cell, hive_type: &str, is_hives: bool) -> Cell {
    let text = cell.as_deref()?;
    // Bytes are shown in hexadecimal digits here.
    if hive_type == "binary" && is_hives {
        return Some(text.bytes().map(|byte| format!("{byte:02x}")).collect());
    }
    if hive_type == "float"
        && let Ok(number) = text.parse::<f64>()
    {
        return Some((number as f32).to_string());
    }
    if ["array", "map", "struct", "uniontype"].iter().any(|nested| hive_type.starts_with(nested)) {
        let plain = text.replace(['"', ' '], "").replace("null", "");
        return Some(plain);
    }
    if hive_type.starts_with("timestamp") {
        let plain = text.replace('T', " ");
        return Some(match plain.contains('.') {
            true => plain.trim_end_matches('0').trim_end_matches('.').to_string(),
            false => plain,
        });
    }
    let is_number = ["int", "double", "float", "decimal"].iter().any(|kind| hive_type.contains(kind));
    match text.parse::<f64>() {
        // Zero has no sign here, and the order of a sum is open.
        Ok(number) if is_number => Some(format!("{:.12e}", number + 0.0)),
        _ => Some(text.to_string()),
    }
}

/// What differs, in a few words; `None` for nothing.
fn difference(record: &Record, given: &Result<Answer, harrier_testkit::session::Failure>) -> Option<String> {
    match (&record.answer, given) {
        (HiveAnswer::Error, Err(_)) => None,
        (HiveAnswer::Error, Ok(_)) => Some("no error".to_string()),
        (_, Err(failure)) => Some(format!("{}: {}", failure.sqlstate, failure.message)),
        (HiveAnswer::Written, Ok(Answer::Command(_))) => None,
        (HiveAnswer::Written, Ok(Answer::Rows { .. })) => Some("rows".to_string()),
        (HiveAnswer::Rows { .. }, Ok(Answer::Command(tag))) => Some(format!("no rows but {tag}")),
        (HiveAnswer::Rows { columns, types, rows }, Ok(Answer::Rows { columns: names, rows: found, .. })) => {
            let wanted: Vec<String> = columns.iter().map(|name| last_part(name)).collect();
            let names: Vec<String> = names.iter().map(|name| last_part(name)).collect();
            if wanted != names {
                return Some(format!("columns {names:?} for {wanted:?}"));
            }
            // The order of what is collected is open.
            let is_collected = record.statement.to_lowercase().contains("collect_");
            let order = |cell: Cell| match cell {
                Some(text) if is_collected && text.starts_with('[') => {
                    let mut parts: Vec<&str> = text.trim_matches(['[', ']']).split(',').collect();
                    parts.sort_unstable();
                    Some(parts.join(","))
                }
                cell => cell,
            };
            let rows_of = |rows: &[Vec<Cell>], is_hives: bool| {
                let row = |row: &Vec<Cell>| {
                    row.iter().zip(types).map(|(cell, kind)| order(normal(cell, kind, is_hives))).collect()
                };
                let mut rows: Vec<Vec<Cell>> = rows.iter().map(row).collect();
                if !record.statement.to_lowercase().contains("order by") {
                    rows.sort();
                }
                rows
            };
            let (wanted, found) = (rows_of(rows, true), rows_of(found, false));
            (wanted != found).then(|| format!("rows {found:?} for {wanted:?}"))
        }
    }
}

fn differences_file() -> PathBuf {
    folder().join("differences.tsv")
}

/// File, with how many times the statement has come in it from the second on, and statement → reason.
fn known_differences() -> BTreeMap<(String, String), String> {
    let text = fs::read_to_string(differences_file()).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.filter_map(|line| {
        let mut parts = line.splitn(3, '\t');
        Some(((parts.next()?.to_string(), parts.next()?.to_string()), parts.next()?.to_string()))
    });
    parts.collect()
}

fn check(configuration: &Configuration, is_update: bool) {
    let filter = env::var("HARRIER_HIVE").unwrap_or_default();
    let known = known_differences();
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".tsv") && name != "differences.tsv" && name.contains(&filter)
    });
    files.sort();
    assert!(!files.is_empty(), "there are no recorded answers");
    let (mut wrong, mut count, mut equal) = (String::new(), 0, 0);
    let mut found = BTreeMap::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let warehouse = tempfile::tempdir().unwrap();
        let configuration = configuration.clone().with_warehouse(warehouse.path());
        let mut session =
            RestartingSession::new(configuration, vec!["SET harrier.dialect = hive".to_string()]);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let recorded = records(&fs::read_to_string(&file).unwrap());
        for record in &recorded {
            count += 1;
            let given = session.run(&record.statement);
            let line = record.statement.replace('\n', " ");
            let times = seen.entry(line.clone()).and_modify(|times| *times += 1).or_insert(1);
            let place = if *times == 1 { name.clone() } else { format!("{name} {times}") };
            let key = (place, line);
            match (difference(record, &given), known.get(&key)) {
                (None, None) => equal += 1,
                (None, Some(_)) if is_update => {}
                (None, Some(reason)) => {
                    let _ = writeln!(wrong, "{}: {}\n    is as Hive's now; listed: {reason}", key.0, key.1);
                }
                (Some(difference), None) => {
                    let _ = writeln!(wrong, "{}: {}\n    {difference}", key.0, key.1);
                    found.insert(key, "?".to_string());
                }
                (Some(difference), Some(reason)) => {
                    if reason == "?" {
                        let _ = writeln!(wrong, "{}: {}\n    without a reason: {difference}", key.0, key.1);
                    }
                    found.insert(key, reason.clone());
                }
            }
        }
    }
    eprintln!("{}: {equal} of {count} statements as Hive's", configuration.name);
    if is_update {
        let mut text = "# What differs from Hive 4.0.1: file, statement, reason.\n".to_string();
        for ((file, statement), reason) in &found {
            let _ = writeln!(text, "{file}\t{statement}\t{reason}");
        }
        fs::write(differences_file(), text).unwrap();
    }
    assert!(wrong.is_empty(), "{}:\n{wrong}", configuration.name);
}

#[test]
fn embedded() {
    check(&Configuration::embedded(), env::var_os("HARRIER_HIVE_UPDATE").is_some());
}

#[test]
fn three_ranks() {
    if harrier_launch::mpi_skipped() {
        eprintln!("skipped: 3-ranks needs MPI, and HARRIER_SKIP_MPI is set");
        return;
    }
    let configuration = Configuration::on_ranks("3-ranks", &Launcher::open_mpi(3))
        .unwrap_or_else(|reason| panic!("{reason}"));
    let _turn = harrier_launch::gang_slot();
    check(&configuration, false);
}
