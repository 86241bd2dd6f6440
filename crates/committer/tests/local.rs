//! Atomic publication of table folders on local file systems: for concurrent readers, after a crash at any
//! step, and beside other statements.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use harrier_committer::local::{Error, FileVersion, MergedFile, Root, StagedFile, StagingPaths, Work};
use tempfile::TempDir;

/// Visible files: contents by folder.
type State = BTreeMap<String, Vec<String>>;

/// Stages and publishes files; the content is a part of the name. Calls `step` after everything that a crash
/// may follow.
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

/// Reads the table as any program lists it. `None`: a listed file was gone before it was read.
fn read_table(table: &Path) -> Option<State> {
    fn read_folder(folder: &Path, name: &str, state: &mut State) -> Option<()> {
        for entry in fs::read_dir(folder).ok()? {
            let entry = entry.ok()?;
            let own = entry.file_name().into_string().unwrap();
            if own.starts_with('.') || own.starts_with('_') {
                continue;
            }
            if entry.path().is_dir() {
                read_folder(&entry.path(), &format!("{name}{own}/"), state)?;
            } else {
                let content = fs::read_to_string(entry.path()).ok()?;
                state.entry(name.to_string()).or_default().push(content);
            }
        }
        Some(())
    }
    let mut state = State::new();
    read_folder(table, "", &mut state)?;
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

/// Asserts that nothing is staged beside the folder: its lock is there, and retired folders that readers may
/// still list, which are removed after a minute.
fn assert_nothing_staged(table: &Path) {
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
    let mut entries: Vec<_> =
        fs::read_dir(&control).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    entries.sort();
    assert_eq!(entries, ["lock", "turn"]);
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

/// A table with the initial files of a scenario, written by another program.
fn create_initial_table(scenario: &Scenario) -> (TempDir, PathBuf) {
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

/// Not a test by itself: the process that is to crash.
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

/// Returns true if the process crashed, false if it completed.
fn crash_at_step(table: &Path, scenario: usize, at: usize) -> bool {
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
fn crash_at_any_step_leaves_old_or_new_state() {
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        let (old, new) = (state(scenario.before), state(scenario.after));
        let (mut outcomes, mut at) = ([0, 0], 0);
        loop {
            let (_folder, table) = create_initial_table(scenario);
            let died = crash_at_step(&table, number, at);
            // Plain readers see every folder in one state.
            for (folder, files) in read_table(&table).unwrap() {
                let is_whole = [&old, &new].iter().any(|state| state.get(&folder) == Some(&files));
                assert!(is_whole, "{}, step {at}: {folder} has {files:?}", scenario.name);
            }
            let root = Root::find(&table).unwrap().unwrap();
            drop(root.read().unwrap());
            let contents = read_table(&table).unwrap();
            assert!(contents == old || contents == new, "{}, step {at}: {contents:?}", scenario.name);
            outcomes[usize::from(contents == new)] += 1;
            drop(root.begin("next").unwrap());
            assert_eq!(read_table(&table).unwrap(), contents);
            assert_nothing_staged(&table);
            if !died {
                assert_eq!(contents, new);
                break;
            }
            at += 1;
        }
        assert!(outcomes[0] > 1 && outcomes[1] > 1, "{}: {outcomes:?}", scenario.name);
    }
}

/// The process that recovers from the crash crashes as well, at every one of its steps.
#[test]
fn crash_during_recovery_leaves_old_or_new_state() {
    let (number, scenario) = (3, &SCENARIOS[3]);
    let (old, new) = (state(scenario.before), state(scenario.after));
    for first in 0.. {
        let (_folder, table) = create_initial_table(scenario);
        if !crash_at_step(&table, number, first) {
            assert!(first > 5);
            break;
        }
        for second in 0..4 {
            // Its recovery of the first one is interrupted by a second crash.
            crash_at_step(&table, number, second);
        }
        let contents = {
            let root = Root::find(&table).unwrap().unwrap();
            drop(root.read().unwrap());
            drop(root.begin("next").unwrap());
            read_table(&table).unwrap()
        };
        assert!(contents == old || contents == new, "step {first}: {contents:?}");
        assert_nothing_staged(&table);
    }
}

#[test]
fn concurrent_readers_see_folders_atomically() {
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
    let stopped = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    thread::scope(|scope| {
        for locks in [false, true, true, true] {
            let (stopped, looks, table, partitions) = (&stopped, &looks, &table, &partitions);
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let root = Root::find(table).unwrap().unwrap();
                    let reading = locks.then(|| root.read().unwrap());
                    let contents = read_table(table);
                    assert!(
                        contents.is_some() || !locks,
                        "a file was gone while nobody was to change anything"
                    );
                    drop(reading);
                    let Some(contents) = contents else { continue };
                    let of = |content: &String| content.split_once('-').unwrap().0.to_string();
                    let mut rounds = Vec::new();
                    for partition in partitions {
                        let files = contents.get(*partition).unwrap_or_else(|| panic!("{partition} is gone"));
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
        stopped.store(true, Ordering::Relaxed);
    });
    assert!(looks.load(Ordering::Relaxed) > 10);
    assert_nothing_staged(&table);
}

#[test]
fn concurrent_statements_are_not_lost() {
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
    let contents = read_table(&table).unwrap();
    assert_eq!((contents["k=1/"].len(), contents["k=2/"].len()), (80, 40));
    assert_nothing_staged(&table);
}

#[test]
fn files_of_other_programs_stay() {
    let (_folder, table) = create_initial_table(&SCENARIOS[2]);
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
    assert_eq!(read_table(&table).unwrap(), state(&[("", "c"), ("", "d"), ("", "late")]));
    assert!(table.join("_SUCCESS").exists() && table.join("_temporary/x").exists());
    // Checksum files are removed with their files.
    assert!(!table.join(".old-a.txt.crc").exists());
}

#[test]
fn unpublished_files_are_rolled_back() {
    let (_folder, table) = create_initial_table(&SCENARIOS[0]);
    let root = Root::create(&table).unwrap();
    let statement = root.begin("s").unwrap();
    let places = StagingPaths::of(root.path(), statement.staging()).unwrap();
    fs::write(places.staging_path("k=1/", "x").unwrap(), "x").unwrap();
    // Another statement does not take its owner for dead.
    drop(root.begin("other").unwrap());
    assert!(statement.staging().exists());
    drop(statement);
    assert_eq!(read_table(&table).unwrap(), state(&[("", "a")]));
    assert_nothing_staged(&table);
    assert!(places.staging_path("k=1/", "y").is_err(), "a rank that goes on must not stage anything more");
}

/// A table partition that is a link to another folder, and, if this process may mount, partitions on other
/// file systems.
#[test]
fn table_partitions_on_other_file_systems() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table");
    let linked = folder.path().join("linked");
    for folder in [&table, &linked] {
        fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink(&linked, table.join("k=1")).unwrap();
    let files = [("k=1/", "a"), ("k=1/", "b")];
    write(&table, "s1", false, &files, &|_| {});
    write(&table, "s2", true, &[("k=1/", "c"), ("k=1/", "d")], &|_| {});
    assert_eq!(read_table(&table).unwrap(), state(&[("k=1/", "c"), ("k=1/", "d")]));
    assert!(table.join("k=1").is_symlink() && read_table(&linked).unwrap()[""].len() == 2);

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
    let target = other.join("far");
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, table.join("k=3")).unwrap();
    let all = |name: &'static str| [("k=1/", name), ("k=2/", name), ("k=3/", name)];
    write(&table, "s3", true, &all("e"), &|_| {});
    let two = ["f", "g"].map(all).concat();
    write(&table, "s4", true, &two, &|_| {});
    assert_eq!(read_table(&table).unwrap(), state(&two));
    assert_nothing_staged(&table);
    let hidden = |folder: &Path| {
        fs::read_dir(folder)
            .unwrap()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with('.'))
    };
    assert!(!hidden(&mounted) && !hidden(&target) && !hidden(&other), "something staged is left");
    drop((unmount, unmount_other));
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Publishes a merged file instead of some that existed when they were read.
fn publish_merge(
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
fn merge_replaces_files_only_if_unchanged() {
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
    publish_merge(&table, "one", merged(&["a", "b"]), "ab").unwrap();
    assert_eq!(read_table(&table).unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
    let late = publish_merge(&table, "two", all, "abc");
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    assert_eq!(read_table(&table).unwrap(), state(&[("k=1/", "ab"), ("k=1/", "c")]));
    assert_nothing_staged(&table);
}
