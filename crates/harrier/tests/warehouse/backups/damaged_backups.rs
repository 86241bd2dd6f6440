//! Backups that are damaged, and processes that die while they make or restore one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harrier_launch::finish;
use harrier_testkit::session::Session;

use super::{Places, data_files, harrier, refused, session, text};
use crate::command::BINARY;
use crate::crashes::{crashing, steps_in, tried};
use crate::support::{Mounted, is_sound, one, run};

const SUM: &str = "SELECT count(*) || ' ' || sum(v) FROM t";

/// Of the steps of a backup, and of a restore, one in so many is tried.
const STEPS_EVERY: usize = 13;

/// Two tables, several files, deleted and inlined rows.
fn filled(places: &Places) -> Session {
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
fn what_is_damaged_is_named_and_makes_no_warehouse() {
    let places = Places::new();
    let mut first = filled(&places);
    let made = places.backup(&[]);
    let target = places.target();
    let checked = places.check();
    assert_eq!(checked.status, Some(0), "{}", checked.stdout);
    let files = data_files(&target);
    assert_eq!(files.len(), made.copied);
    assert!(checked.stdout.contains(&format!("{} files", files.len() + 1)), "{}", checked.stdout);
    let manifest = target.join(format!("backups/{}.json", made.id));
    let catalog = target.join(format!("catalogs/{}.jsonl.zst", made.id));
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
        let checked = places.check();
        let name = if *path == manifest { &made.id } else { text(path) };
        assert_eq!(checked.status, Some(3), "{number}: {}", checked.stdout);
        assert!(
            checked.stdout.starts_with("WRONG: ") && checked.stdout.contains(name),
            "{number}: {}",
            checked.stdout
        );
        assert!(checked.stdout.ends_with(" 1 wrong\n"), "{number}: {}", checked.stdout);
        let one_alone = harrier(&["backup", "--check", "--backup", &made.id, text(&target)]);
        assert_eq!(one_alone.status, Some(3), "{number}");
        let to = places.at(&format!("of damaged {number}"));
        refused(&places.restore(&to, &[]), sqlstate, name);
        if *path != manifest {
            // There is none, and none can be made in its place by mistake.
            let mut nothing = session(&to);
            crate::support::fails(&mut nothing, "SELECT * FROM t", "42P01");
            crate::support::fails(&mut nothing, "CREATE TABLE t (a INT)", "55000");
        }
        fs::write(path, whole).unwrap();
        assert_eq!(places.check().status, Some(0), "{number}");
        // Where one broke off, the next one goes on.
        let mut restored = places.restored(&to, &[]);
        assert_eq!(one(&mut restored, SUM), one(&mut first, SUM));
    }
    // A backup of after copies no file of before that is whole, and does not need the damaged manifest.
    flip_digit(&manifest);
    let again = places.backup(&[]);
    assert_eq!(again.copied + again.skipped, made.copied);
    assert_eq!(one(&mut places.restored(&places.at("restored"), &[]), SUM), one(&mut first, SUM));
    let one_alone = |id: &str| harrier(&["backup", "--check", "--backup", id, text(&target)]).status;
    assert_eq!((one_alone(&made.id), one_alone(&again.id)), (Some(3), Some(0)));
}

fn cut_half(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// What still is a manifest.
fn flip_digit(path: &Path) {
    let content = fs::read_to_string(path).unwrap();
    let at = content.find("\"bytes\": ").unwrap() + "\"bytes\": ".len();
    let digit = if content.as_bytes()[at] == b'1' { "2" } else { "1" };
    fs::write(path, format!("{}{digit}{}", &content[..at], &content[at + 1..])).unwrap();
}

/// A command whose process ends at a step, or counts them; steps are calls on files below a folder.
fn dying(arguments: &[&str], below: &Path, how: (&str, &str)) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("LD_PRELOAD", crashing());
    command.env("HARRIER_CRASH_BELOW", text(below)).env(how.0, how.1);
    command
}

#[test]
fn a_backup_that_dies_is_none_and_the_next_one_is_whole() {
    let places = Places::new();
    let mut first = filled(&places);
    let target = places.target();
    let (own, count) = (places.warehouse.folder(), places.at("steps"));
    let arguments = ["backup", "--warehouse", text(&own), text(&target), "--keep", "2"];
    let counted = finish(dying(&arguments, &target, ("HARRIER_CRASH_COUNT", text(&count))), super::PATIENCE);
    assert!(counted.success, "{}", counted.stderr);
    let steps = steps_in(&count).len();
    assert!(steps > 30, "{steps} steps only: calls are not seen");
    let mut made = 1;
    // Of a target with nothing in it, and of one with backups.
    for (number, step) in tried("backup", steps, STEPS_EVERY).enumerate() {
        if number % 2 == 0 {
            fs::remove_dir_all(&target).unwrap();
            made = 0;
        }
        run(&mut first, &format!("INSERT INTO u SELECT v FROM generate_series(1, {}) AS g(v)", 100 + step));
        let died =
            finish(dying(&arguments, &target, ("HARRIER_CRASH_AT", &step.to_string())), super::PATIENCE);
        let ids = if target.join("backups").is_dir() {
            fs::read_dir(target.join("backups"))
                .unwrap()
                .flatten()
                .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
                .count()
        } else {
            0
        };
        assert!(ids >= made.min(1) && ids <= made + 1, "step {step}: {ids} backups of {made}");
        if ids > 0 {
            let checked = places.check();
            assert_eq!(checked.status, Some(0), "step {step}: {}", checked.stdout);
        }
        let again = places.backup(&["--keep", "2"]);
        assert!(died.success || again.copied + again.skipped > 0);
        let checked = places.check();
        assert_eq!(checked.status, Some(0), "step {step}: {}", checked.stdout);
        let left: Vec<_> =
            everything_below(&target).into_iter().filter(|name| name.ends_with(".unfinished")).collect();
        assert_eq!(left, Vec::<String>::new(), "step {step}");
        made = (ids + 1).min(2);
    }
    let mut restored = places.restored(&places.at("restored"), &[]);
    for sum in [SUM, "SELECT count(*) || ' ' || sum(v) FROM u"] {
        assert_eq!(one(&mut restored, sum), one(&mut first, sum));
    }
}

fn everything_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path().is_dir() {
            true => found.extend(everything_below(&entry.path())),
            false => found.push(entry.file_name().into_string().unwrap()),
        }
    }
    found
}

#[test]
fn a_restore_that_dies_makes_none_and_the_next_one_goes_on() {
    let places = Places::new();
    let mut first = filled(&places);
    places.backup(&[]);
    let (target, to, count) = (places.target(), places.at("restored"), places.at("steps"));
    let arguments = ["restore", text(&target), "--warehouse", text(&to)];
    let counted = finish(dying(&arguments, &to, ("HARRIER_CRASH_COUNT", text(&count))), super::PATIENCE);
    assert!(counted.success, "{}", counted.stderr);
    let steps = steps_in(&count).len();
    assert!(steps > 30, "{steps} steps only: calls are not seen");
    let sum = one(&mut first, SUM);
    let (mut broken, mut whole) = (0, 0);
    // The last ones are around the moment from which there is a warehouse.
    let late = steps.saturating_sub(6)..steps;
    for step in tried("restore", steps - late.len(), STEPS_EVERY).chain(late) {
        fs::remove_dir_all(&to).unwrap();
        finish(dying(&arguments, &to, ("HARRIER_CRASH_AT", &step.to_string())), super::PATIENCE);
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
        // Whether it has come to its end or not: all of it, and it can be written and swept.
        let mut restored = session(&to);
        assert_eq!(one(&mut restored, SUM), sum, "step {step}");
        run(&mut restored, "INSERT INTO t SELECT 1, v FROM generate_series(1, 100) AS g(v)");
        run(&mut restored, "SET harrier.vacuum_age_seconds = 0");
        run(&mut restored, "VACUUM");
        is_sound(&mut restored, "t");
        is_sound(&mut restored, "u");
        let names =
            fs::read_dir(&to).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.contains("restoring")).collect();
        assert_eq!(left, Vec::<String>::new(), "step {step}");
    }
    assert!(broken > 3 && whole > 0, "{broken} broken, {whole} whole");
    assert_eq!(one(&mut first, SUM), sum);
}

#[test]
fn a_disk_that_is_full_is_told() {
    let places = Places::new();
    let mut first = places.warehouse.session();
    run(&mut first, "CREATE TABLE t AS SELECT v, md5(v::text) AS b FROM generate_series(1, 100000) AS g(v)");
    let Some(_mounted) = Mounted::in_memory(&places.target(), 1 << 20) else { return };
    let own = places.warehouse.folder();
    refused(
        &harrier(&["backup", "--warehouse", text(&own), text(&places.target())]),
        "53100",
        "No space left",
    );
    let listed = harrier(&["backup", "--list", text(&places.target())]);
    assert_eq!(listed.stdout, "0 backups\n", "{}", listed.stderr);
    refused(&places.restore(&places.at("restored"), &[]), "22023", "no backup");
    // What there is room for is there; and there is no room to restore it.
    let elsewhere = places.at("elsewhere");
    assert_eq!(harrier(&["backup", "--warehouse", text(&own), text(&elsewhere)]).status, Some(0));
    let small = places.at("small");
    let Some(_mounted) = Mounted::in_memory(&small, 1 << 20) else { return };
    refused(&harrier(&["restore", text(&elsewhere), "--warehouse", text(&small)]), "53100", "No space left");
    crate::support::fails(&mut session(&small), "SELECT * FROM t", "42P01");
    assert_eq!(harrier(&["backup", "--check", text(&elsewhere)]).status, Some(0));
}
