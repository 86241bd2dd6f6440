//! Damaged backups, and crashes of processes during backup and restore.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harrier_launch::finish;
use harrier_testkit::session::Session;

use super::{Places, assert_refused, data_files, harrier, session, text};
use crate::command::BINARY;
use crate::crashes::{crash_library, steps_in, steps_to_try};
use crate::support::{Mount, assert_undamaged, one, run};

const SUM: &str = "SELECT count(*) || ' ' || sum(v) FROM t";

/// One in this number of steps of a backup or restore is tried.
const STEPS_EVERY: usize = 13;

/// Creates two tables with several files, deleted and inlined rows.
fn create_warehouse(places: &Places) -> Session {
    let mut session = places.warehouse.session();
    run(&mut session, "CREATE TABLE t (k INT, v BIGINT) PARTITION BY (k)");
    run(&mut session, "INSERT INTO t SELECT v % 3, v FROM generate_series(1, 1000) AS g(v)");
    run(&mut session, "DELETE FROM t WHERE v % 5 = 0");
    run(&mut session, "INSERT INTO t VALUES (1, 5000)");
    run(&mut session, "CREATE TABLE u AS SELECT v FROM generate_series(1, 100) AS g(v)");
    session
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

#[test]
fn damaged_files_are_named_and_not_restored() {
    let places = Places::new();
    let mut first = create_warehouse(&places);
    let report = places.backup(&[]);
    let target = places.target();
    let check_run = places.check();
    assert_eq!(check_run.status, Some(0), "{}", check_run.stdout);
    let files = data_files(&target);
    assert_eq!(files.len(), report.copied);
    assert!(check_run.stdout.contains(&format!("{} files", files.len() + 1)), "{}", check_run.stdout);
    let manifest = target.join(format!("backups/{}.json", report.id));
    let catalog = target.join(format!("catalogs/{}.jsonl.zst", report.id));
    let (last, middle) = (files.last().unwrap(), &files[files.len() / 2]);
    let damages: [(&PathBuf, fn(&Path), &str); 9] = [
        (&files[0], cut, "XX001"),
        (middle, flip, "XX001"),
        (last, flip, "XX001"),
        (last, remove, "58P01"),
        (&catalog, cut, "XX001"),
        (&catalog, flip, "XX001"),
        (&catalog, remove, "58P01"),
        (&manifest, cut_half, "XX001"),
        (&manifest, flip_digit, "XX001"),
    ];
    for (number, (path, damage, sqlstate)) in damages.into_iter().enumerate() {
        let whole = fs::read(path).unwrap();
        damage(path);
        let check_run = places.check();
        let name = if *path == manifest { &report.id } else { text(path) };
        assert_eq!(check_run.status, Some(3), "{number}: {}", check_run.stdout);
        assert!(
            check_run.stdout.starts_with("WRONG: ") && check_run.stdout.contains(name),
            "{number}: {}",
            check_run.stdout
        );
        assert!(check_run.stdout.ends_with(" 1 wrong\n"), "{number}: {}", check_run.stdout);
        let one_alone = harrier(&["backup", "--check", "--backup", &report.id, text(&target)]);
        assert_eq!(one_alone.status, Some(3), "{number}");
        let to = places.at(&format!("of damaged {number}"));
        assert_refused(&places.restore(&to, &[]), sqlstate, name);
        if *path != manifest {
            // There is no backup, and none is created by mistake.
            let mut nothing = session(&to);
            crate::support::fails(&mut nothing, "SELECT * FROM t", "42P01");
            crate::support::fails(&mut nothing, "CREATE TABLE t (a INT)", "55000");
        }
        fs::write(path, whole).unwrap();
        assert_eq!(places.check().status, Some(0), "{number}");
        // The next restore resumes an interrupted one.
        let mut restored = places.open_restored(&to, &[]);
        assert_eq!(one(&mut restored, SUM), one(&mut first, SUM));
    }
    // A later backup copies no intact file again, and does not need the damaged manifest.
    flip_digit(&manifest);
    let again = places.backup(&[]);
    assert_eq!(again.copied + again.skipped, report.copied);
    assert_eq!(one(&mut places.open_restored(&places.at("restored"), &[]), SUM), one(&mut first, SUM));
    let one_alone = |id: &str| harrier(&["backup", "--check", "--backup", id, text(&target)]).status;
    assert_eq!((one_alone(&report.id), one_alone(&again.id)), (Some(3), Some(0)));
}

fn cut_half(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// Changes a digit so that the manifest still parses.
fn flip_digit(path: &Path) {
    let content = fs::read_to_string(path).unwrap();
    let at = content.find("\"bytes\": ").unwrap() + "\"bytes\": ".len();
    let digit = if content.as_bytes()[at] == b'1' { "2" } else { "1" };
    fs::write(path, format!("{}{digit}{}", &content[..at], &content[at + 1..])).unwrap();
}

/// A command that crashes at a step, or counts steps; steps are file system calls below a folder.
fn crash_command(arguments: &[&str], below: &Path, how: (&str, &str)) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("LD_PRELOAD", crash_library());
    command.env("HARRIER_CRASH_BELOW", text(below)).env(how.0, how.1);
    command
}

#[test]
fn crashed_backup_is_invisible_and_the_next_succeeds() {
    let places = Places::new();
    let mut first = create_warehouse(&places);
    let target = places.target();
    let (own, count) = (places.warehouse.folder(), places.at("steps"));
    let arguments = ["backup", "--warehouse", text(&own), text(&target), "--keep", "2"];
    let count_run =
        finish(crash_command(&arguments, &target, ("HARRIER_CRASH_COUNT", text(&count))), super::PATIENCE);
    assert!(count_run.success, "{}", count_run.stderr);
    let steps = steps_in(&count).len();
    assert!(steps > 30, "{steps} steps only: calls are not seen");
    let mut backup_count = 1;
    // Into an empty target, and into one with backups.
    for (number, step) in steps_to_try("backup", steps, STEPS_EVERY).enumerate() {
        if number % 2 == 0 {
            fs::remove_dir_all(&target).unwrap();
            backup_count = 0;
        }
        run(&mut first, &format!("INSERT INTO u SELECT v FROM generate_series(1, {}) AS g(v)", 100 + step));
        let died = finish(
            crash_command(&arguments, &target, ("HARRIER_CRASH_AT", &step.to_string())),
            super::PATIENCE,
        );
        let ids = if target.join("backups").is_dir() {
            fs::read_dir(target.join("backups"))
                .unwrap()
                .flatten()
                .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
                .count()
        } else {
            0
        };
        assert!(
            ids >= backup_count.min(1) && ids <= backup_count + 1,
            "step {step}: {ids} backups of {backup_count}"
        );
        if ids > 0 {
            let check_run = places.check();
            assert_eq!(check_run.status, Some(0), "step {step}: {}", check_run.stdout);
        }
        let again = places.backup(&["--keep", "2"]);
        assert!(died.success || again.copied + again.skipped > 0);
        let check_run = places.check();
        assert_eq!(check_run.status, Some(0), "step {step}: {}", check_run.stdout);
        let leftovers: Vec<_> =
            everything_below(&target).into_iter().filter(|name| name.ends_with(".unfinished")).collect();
        assert_eq!(leftovers, Vec::<String>::new(), "step {step}");
        backup_count = (ids + 1).min(2);
    }
    let mut restored = places.open_restored(&places.at("restored"), &[]);
    for sum in [SUM, "SELECT count(*) || ' ' || sum(v) FROM u"] {
        assert_eq!(one(&mut restored, sum), one(&mut first, sum));
    }
}

fn everything_below(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => paths.extend(everything_below(&entry.path())),
            false => paths.push(entry.file_name().into_string().unwrap()),
        }
    }
    paths
}

#[test]
fn crashed_restore_is_resumed() {
    let places = Places::new();
    let mut first = create_warehouse(&places);
    places.backup(&[]);
    let (target, to, count) = (places.target(), places.at("restored"), places.at("steps"));
    let arguments = ["restore", text(&target), "--warehouse", text(&to)];
    let count_run =
        finish(crash_command(&arguments, &to, ("HARRIER_CRASH_COUNT", text(&count))), super::PATIENCE);
    assert!(count_run.success, "{}", count_run.stderr);
    let steps = steps_in(&count).len();
    assert!(steps > 30, "{steps} steps only: calls are not seen");
    let sum = one(&mut first, SUM);
    let (mut broken, mut whole) = (0, 0);
    // The last steps are around the moment at which the warehouse is created.
    let late = steps.saturating_sub(6)..steps;
    for step in steps_to_try("restore", steps - late.len(), STEPS_EVERY).chain(late) {
        fs::remove_dir_all(&to).unwrap();
        finish(crash_command(&arguments, &to, ("HARRIER_CRASH_AT", &step.to_string())), super::PATIENCE);
        if to.join("catalog.sqlite").exists() {
            whole += 1;
        } else {
            broken += 1;
            if to.join("data/_harrier_warehouse").exists() {
                let mut nothing = session(&to);
                crate::support::fails(&mut nothing, "SELECT * FROM t", "42P01");
                crate::support::fails(&mut nothing, "CREATE TABLE t (a INT)", "55000");
            }
            let restored = places.restore(&to, &[]);
            assert_eq!(restored.status, Some(0), "step {step}: {}", restored.stderr);
        }
        // Whether the restore finished or not: all rows are there, and the warehouse can be written and
        // vacuumed.
        let mut restored = session(&to);
        assert_eq!(one(&mut restored, SUM), sum, "step {step}");
        run(&mut restored, "INSERT INTO t SELECT 1, v FROM generate_series(1, 100) AS g(v)");
        run(&mut restored, "SET harrier.vacuum_age_seconds = 0");
        run(&mut restored, "VACUUM");
        assert_undamaged(&mut restored, "t");
        assert_undamaged(&mut restored, "u");
        let names =
            fs::read_dir(&to).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let leftovers: Vec<String> = names.filter(|name| name.contains("restoring")).collect();
        assert_eq!(leftovers, Vec::<String>::new(), "step {step}");
    }
    assert!(broken > 3 && whole > 0, "{broken} broken, {whole} whole");
    assert_eq!(one(&mut first, SUM), sum);
}

#[test]
fn full_disk_is_reported() {
    let places = Places::new();
    let mut first = places.warehouse.session();
    run(&mut first, "CREATE TABLE t AS SELECT v, md5(v::text) AS b FROM generate_series(1, 100000) AS g(v)");
    let Some(_mounted) = Mount::in_memory(&places.target(), 1 << 20) else { return };
    let own = places.warehouse.folder();
    assert_refused(
        &harrier(&["backup", "--warehouse", text(&own), text(&places.target())]),
        "53100",
        "No space left",
    );
    let list_run = harrier(&["backup", "--list", text(&places.target())]);
    assert_eq!(list_run.stdout, "0 backups\n", "{}", list_run.stderr);
    assert_refused(&places.restore(&places.at("restored"), &[]), "22023", "no backup");
    // The files that fit are there; and there is no space to restore.
    let elsewhere = places.at("elsewhere");
    assert_eq!(harrier(&["backup", "--warehouse", text(&own), text(&elsewhere)]).status, Some(0));
    let small = places.at("small");
    let Some(_mounted) = Mount::in_memory(&small, 1 << 20) else { return };
    assert_refused(
        &harrier(&["restore", text(&elsewhere), "--warehouse", text(&small)]),
        "53100",
        "No space left",
    );
    crate::support::fails(&mut session(&small), "SELECT * FROM t", "42P01");
    assert_eq!(harrier(&["backup", "--check", text(&elsewhere)]).status, Some(0));
}
