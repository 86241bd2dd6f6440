//! Folders are seen whole: by who lists them all the time, by the next one after a crash at any step, and
//! beside other statements.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use harrier_committer::local::{Error, FileVersion, MergedFile, Root, StagedFile, StagingPaths, Work};
use tempfile::TempDir;

/// What is shown: the files' contents, folder by folder.
type State = BTreeMap<String, Vec<String>>;

/// Stages and shows files, each with its content as a name, too; calls `step` after everything that a crash
/// may come after.
fn write(table: &Path, id: &str, overwrite: bool, files: &[(&str, &str)], step: &dyn Fn(&'static str)) {
    let root = Root::create(table).unwrap();
    let statement = root.begin_in_steps(id, step).unwrap();
    step("begun");
    let places = StagingPaths::of(root.path(), statement.staging()).unwrap();
    let mut staged_files = Vec::new();
    for (folder, content) in files {
        let name = format!("{id}-{content}.txt");
        let staged = places.staging_path(folder, &name).unwrap();
        fs::write(&staged, content).unwrap();
        step("staged");
        staged_files.push(StagedFile { staged, folder: (*folder).to_string(), name });
    }
    let work = Work { files: staged_files, overwrite, ..Work::default() };
    statement.publish_in_steps(&work, step).unwrap();
}

/// What somebody sees who lists the folder as it is. `None`: one of the files was gone before it was read.
fn seen(table: &Path) -> Option<State> {
    fn look(folder: &Path, name: &str, state: &mut State) -> Option<()> {
        for entry in fs::read_dir(folder).ok()? {
            let entry = entry.ok()?;
            let own = entry.file_name().into_string().unwrap();
            if own.starts_with('.') || own.starts_with('_') {
                continue;
            }
            if entry.path().is_dir() {
                look(&entry.path(), &format!("{name}{own}/"), state)?;
            } else {
                let content = fs::read_to_string(entry.path()).ok()?;
                state.entry(name.to_string()).or_default().push(content);
            }
        }
        Some(())
    }
    let mut state = State::new();
    look(table, "", &mut state)?;
    state.values_mut().for_each(|files| files.sort());
    Some(state)
}

fn state(files: &[(&str, &str)]) -> State {
    let mut state = State::new();
    for (folder, content) in files {
        state.entry((*folder).to_string()).or_default().push((*content).to_string());
    }
    state.values_mut().for_each(|files| files.sort());
    state
}

/// Nothing is staged beside the folder; only its lock is there, and folders that somebody may be listing,
/// which go in a minute.
fn nothing_is_left(table: &Path) {
    let control = table.with_file_name(".harrier-table");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    for entry in fs::read_dir(&control).unwrap() {
        let own = entry.unwrap().path();
        if own.is_dir() {
            assert!(!own.join("journal").exists());
            let retired = fs::File::options().write(true).open(own.join("retired")).unwrap();
            retired.set_modified(long_ago).unwrap();
        }
    }
    drop(Root::find(table).unwrap().unwrap().begin("last").unwrap());
    let mut left: Vec<_> = fs::read_dir(&control).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["lock", "turn"]);
}

struct Scenario {
    name: &'static str,
    before: &'static [(&'static str, &'static str)],
    overwrite: bool,
    files: &'static [(&'static str, &'static str)],
    after: &'static [(&'static str, &'static str)],
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "a file is appended",
        before: &[("", "a")],
        overwrite: false,
        files: &[("", "b")],
        after: &[("", "a"), ("", "b")],
    },
    Scenario {
        name: "files are appended",
        before: &[("", "a"), ("", "b")],
        overwrite: false,
        files: &[("", "c"), ("", "d"), ("", "e")],
        after: &[("", "a"), ("", "b"), ("", "c"), ("", "d"), ("", "e")],
    },
    Scenario {
        name: "all is overwritten",
        before: &[("", "a"), ("", "b")],
        overwrite: true,
        files: &[("", "c"), ("", "d")],
        after: &[("", "c"), ("", "d")],
    },
    Scenario {
        name: "table partitions are overwritten",
        before: &[("k=1/", "a"), ("k=2/", "b"), ("k=3/", "c"), ("k=3/", "d")],
        overwrite: true,
        files: &[("k=1/", "e"), ("k=3/", "f"), ("k=3/", "g"), ("k=4/", "h")],
        after: &[("k=1/", "e"), ("k=2/", "b"), ("k=3/", "f"), ("k=3/", "g"), ("k=4/", "h")],
    },
    Scenario {
        name: "table partitions get more, and come",
        before: &[("k=1/m=1/", "a"), ("k=1/m=2/", "b")],
        overwrite: false,
        files: &[
            ("k=1/m=1/", "c"),
            ("k=1/m=2/", "d"),
            ("k=1/m=2/", "e"),
            ("k=2/m=1/", "f"),
            ("k=2/m=2/", "g"),
            ("k=2/m=2/", "h"),
        ],
        after: &[
            ("k=1/m=1/", "a"),
            ("k=1/m=1/", "c"),
            ("k=1/m=2/", "b"),
            ("k=1/m=2/", "d"),
            ("k=1/m=2/", "e"),
            ("k=2/m=1/", "f"),
            ("k=2/m=2/", "g"),
            ("k=2/m=2/", "h"),
        ],
    },
    Scenario {
        name: "the first files come",
        before: &[],
        overwrite: true,
        files: &[("", "a"), ("", "b")],
        after: &[("", "a"), ("", "b")],
    },
];

/// A table with what a scenario begins with, written by others.
fn table_before(scenario: &Scenario) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    fs::create_dir(&table).unwrap();
    for (partition, content) in scenario.before {
        let partition = table.join(partition);
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join(format!("old-{content}.txt")), content).unwrap();
    }
    (folder, table)
}

/// Not a test by itself: the process that is to die.
#[test]
fn dies_at_a_step() {
    let (Some(table), Ok(scenario), Ok(at)) =
        (env::var_os("FOLDERS_TABLE"), env::var("FOLDERS_SCENARIO"), env::var("FOLDERS_STEP"))
    else {
        return;
    };
    let scenario = &SCENARIOS[scenario.parse::<usize>().unwrap()];
    let at: usize = at.parse().unwrap();
    let steps = AtomicUsize::new(0);
    write(
        table.as_ref(),
        &format!("dying{}", std::process::id()),
        scenario.overwrite,
        scenario.files,
        &|_| {
            if steps.fetch_add(1, Ordering::Relaxed) == at {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        },
    );
}

/// True if the process died, false if it came to its end.
fn die(table: &Path, scenario: usize, at: usize) -> bool {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "dies_at_a_step", "--test-threads", "1"])
        .env("FOLDERS_TABLE", table)
        .env("FOLDERS_SCENARIO", scenario.to_string())
        .env("FOLDERS_STEP", at.to_string())
        .output()
        .unwrap();
    assert!(child.status.success() || child.status.code().is_none(), "{child:?}");
    !child.status.success()
}

#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new() {
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let (old, new) = (state(scenario.before), state(scenario.after));
        let (mut outcomes, mut at) = ([0, 0], 0);
        loop {
            let (_folder, table) = table_before(scenario);
            let died = die(&table, number, at);
            // Whoever only lists sees every folder whole.
            for (folder, files) in seen(&table).unwrap() {
                let is_whole = [&old, &new].iter().any(|state| state.get(&folder) == Some(&files));
                assert!(is_whole, "{}, step {at}: {folder} has {files:?}", scenario.name);
            }
            let root = Root::find(&table).unwrap().unwrap();
            drop(root.read().unwrap());
            let found = seen(&table).unwrap();
            assert!(found == old || found == new, "{}, step {at}: {found:?}", scenario.name);
            outcomes[usize::from(found == new)] += 1;
            drop(root.begin("next").unwrap());
            assert_eq!(seen(&table).unwrap(), found);
            nothing_is_left(&table);
            if !died {
                assert_eq!(found, new);
                break;
            }
            at += 1;
        }
        assert!(outcomes[0] > 1 && outcomes[1] > 1, "{}: {outcomes:?}", scenario.name);
    }
}

/// The one that completes it dies, too, at every one of its steps.
#[test]
fn a_crash_while_another_is_completed_changes_nothing() {
    let (number, scenario) = (3, &SCENARIOS[3]);
    let (old, new) = (state(scenario.before), state(scenario.after));
    for first in 0.. {
        let (_folder, table) = table_before(scenario);
        if !die(&table, number, first) {
            assert!(first > 5);
            break;
        }
        for second in 0..4 {
            // It gets as far as clearing up after the first one, and dies there.
            die(&table, number, second);
        }
        let found = {
            let root = Root::find(&table).unwrap().unwrap();
            drop(root.read().unwrap());
            drop(root.begin("next").unwrap());
            seen(&table).unwrap()
        };
        assert!(found == old || found == new, "step {first}: {found:?}");
        nothing_is_left(&table);
    }
}

#[test]
fn who_lists_all_the_time_sees_every_folder_whole() {
    const ROUNDS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    let partitions = ["k=1/", "k=2/", "k=3/"];
    let round = |round: usize| -> Vec<(String, String)> {
        let name = |partition: &str, file: usize| (partition.to_string(), format!("{round}-{file}"));
        partitions
            .iter()
            .flat_map(|partition| (0..3).map(|file| name(partition, file)).collect::<Vec<_>>())
            .collect()
    };
    let show = |number: usize| {
        let files = round(number);
        let files: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        write(&table, &format!("s{number}"), true, &files, &|_| {});
    };
    show(0);
    let done = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    thread::scope(|scope| {
        for locks in [false, true, true, true] {
            let (done, looks, table, partitions) = (&done, &looks, &table, &partitions);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let root = Root::find(table).unwrap().unwrap();
                    let reading = locks.then(|| root.read().unwrap());
                    let found = seen(table);
                    assert!(found.is_some() || !locks, "a file was gone while nobody was to change anything");
                    drop(reading);
                    let Some(found) = found else { continue };
                    let of = |content: &String| content.split_once('-').unwrap().0.to_string();
                    let mut rounds = Vec::new();
                    for partition in partitions {
                        let files = found.get(*partition).unwrap_or_else(|| panic!("{partition} is gone"));
                        assert_eq!(files.len(), 3, "{files:?}");
                        assert!(files.iter().all(|file| of(file) == of(&files[0])), "{files:?}");
                        rounds.push(of(&files[0]));
                    }
                    assert!(!locks || rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        (1..ROUNDS).for_each(show);
        done.store(true, Ordering::Relaxed);
    });
    assert!(looks.load(Ordering::Relaxed) > 10);
    nothing_is_left(&table);
}

#[test]
fn statements_at_once_lose_nothing_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    thread::scope(|scope| {
        for writer in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for number in 0..10 {
                    let names = [format!("{writer}-{number}-a"), format!("{writer}-{number}-b")];
                    let files = [
                        ("k=1/", names[0].as_str()),
                        ("k=1/", names[1].as_str()),
                        ("k=2/", names[0].as_str()),
                    ];
                    write(table, &format!("w{writer}n{number}"), false, &files, &|_| {});
                }
            });
        }
    });
    let found = seen(&table).unwrap();
    assert_eq!((found["k=1/"].len(), found["k=2/"].len()), (80, 40));
    nothing_is_left(&table);
}

#[test]
fn what_others_put_there_stays() {
    let (_folder, table) = table_before(&SCENARIOS[2]);
    fs::write(table.join("_SUCCESS"), "").unwrap();
    fs::write(table.join(".old-a.txt.crc"), "sum").unwrap();
    fs::create_dir(table.join("_temporary")).unwrap();
    fs::write(table.join("_temporary/x"), "").unwrap();
    let late = table.join("late.txt");
    write(&table, "s", true, &[("", "c"), ("", "d")], &|step| {
        if step == "decided" {
            fs::write(&late, "late").unwrap();
        }
    });
    assert_eq!(seen(&table).unwrap(), state(&[("", "c"), ("", "d"), ("", "late")]));
    assert!(table.join("_SUCCESS").exists() && table.join("_temporary/x").exists());
    // A checksum goes with its file.
    assert!(!table.join(".old-a.txt.crc").exists());
}

#[test]
fn what_is_not_shown_is_taken_back() {
    let (_folder, table) = table_before(&SCENARIOS[0]);
    let root = Root::create(&table).unwrap();
    let statement = root.begin("s").unwrap();
    let places = StagingPaths::of(root.path(), statement.staging()).unwrap();
    fs::write(places.staging_path("k=1/", "x").unwrap(), "x").unwrap();
    // Another one does not take it for dead.
    drop(root.begin("other").unwrap());
    assert!(statement.staging().exists());
    drop(statement);
    assert_eq!(seen(&table).unwrap(), state(&[("", "a")]));
    nothing_is_left(&table);
    assert!(places.staging_path("k=1/", "y").is_err(), "a rank that goes on must not stage anything more");
}

/// A table partition that is a link to another folder, and, where this process may mount, ones on other file
/// systems.
#[test]
fn table_partitions_lie_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    let linked = folder.path().join("linked");
    for made in [&table, &linked] {
        fs::create_dir(made).unwrap();
    }
    std::os::unix::fs::symlink(&linked, table.join("k=1")).unwrap();
    let files = [("k=1/", "a"), ("k=1/", "b")];
    write(&table, "s1", false, &files, &|_| {});
    write(&table, "s2", true, &[("k=1/", "c"), ("k=1/", "d")], &|_| {});
    assert_eq!(seen(&table).unwrap(), state(&[("k=1/", "c"), ("k=1/", "d")]));
    assert!(table.join("k=1").is_symlink() && seen(&linked).unwrap()[""].len() == 2);

    let mounted = table.join("k=2");
    fs::create_dir(&mounted).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&mounted).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        return eprintln!("skipped: a table partition on another file system, as this process may not mount");
    }
    let unmount = Unmount(mounted.clone());
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    assert!(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&other).status().unwrap().success());
    let unmount_other = Unmount(other.clone());
    let far = other.join("far");
    fs::create_dir(&far).unwrap();
    std::os::unix::fs::symlink(&far, table.join("k=3")).unwrap();
    let all = |name: &'static str| [("k=1/", name), ("k=2/", name), ("k=3/", name)];
    write(&table, "s3", true, &all("e"), &|_| {});
    let two = ["f", "g"].map(all).concat();
    write(&table, "s4", true, &two, &|_| {});
    assert_eq!(seen(&table).unwrap(), state(&two));
    nothing_is_left(&table);
    let hidden = |folder: &Path| {
        fs::read_dir(folder)
            .unwrap()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with('.'))
    };
    assert!(!hidden(&mounted) && !hidden(&far) && !hidden(&other), "something staged is left");
    drop((unmount, unmount_other));
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Writes a file instead of some that were there when they were looked at.
fn merge(
    table: &Path,
    id: &str,
    merged: Vec<MergedFile>,
    content: &str,
) -> harrier_committer::local::Result<()> {
    let root = Root::create(table)?;
    let statement = root.begin(id)?;
    let name = format!("{id}.txt");
    let staged = StagingPaths::of(root.path(), statement.staging())?.staging_path("k=1/", &name)?;
    fs::write(&staged, content).unwrap();
    let files = vec![StagedFile { staged, folder: "k=1/".to_string(), name }];
    statement.publish(&Work { files, merged, ..Work::default() }).map(drop)
}

#[test]
fn files_are_merged_if_they_are_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    for content in ["a", "b", "c"] {
        write(&table, content, false, &[("k=1/", content)], &|_| {});
    }
    let merged = |names: &[&str]| -> Vec<MergedFile> {
        let one = |name: &&str| {
            let name = format!("{name}-{name}.txt");
            let metadata = fs::metadata(table.join("k=1").join(&name)).unwrap();
            let (bytes, modified) = (metadata.len(), metadata.modified().unwrap());
            MergedFile { folder: "k=1/".to_string(), file: FileVersion { name, bytes, modified } }
        };
        names.iter().map(one).collect()
    };
    let all = merged(&["a", "b", "c"]);
    merge(&table, "one", merged(&["a", "b"]), "ab").unwrap();
    assert_eq!(seen(&table).unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
    let late = merge(&table, "two", all, "abc");
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    assert_eq!(seen(&table).unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
    nothing_is_left(&table);
}
