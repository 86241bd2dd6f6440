//! The programs that ship with the library, as processes: alone, under the MPI runtimes there are, and under `mpidrun`; with knobs
//! turned, with too little memory, and with ranks that are killed. Every answer is checked by the program itself, and is the same
//! everywhere.
//!
//! A runtime that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails. `HARRIER_SEED` repeats
//! a run.

use harrier_launch::{Launcher, Run, absent, alone, finish, fresh_seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = env!("CARGO_BIN_EXE_mpid-programs");
const MPIDRUN: &str = env!("CARGO_BIN_EXE_mpidrun");

/// A run takes a second or two. One that takes longer than this on any machine hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);

/// How long a launcher may take to end after its ranks, or to start them again.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(20);

fn generate(folder: &Path, kind: &str, bytes: u64, files: usize) -> PathBuf {
    let out = folder.join(kind);
    let mut command = Command::new(PROGRAMS);
    command.args(["generate", kind, "--bytes", &bytes.to_string(), "--files", &files.to_string()]);
    command.args(["--seed", &fresh_seed(), "--out"]).arg(&out);
    let run = finish(command, RUN_TIME_MAX);
    assert!(run.success, "{run:#?}");
    out
}

fn launchers() -> Vec<Launcher> {
    [Launcher::none(), Launcher::open_mpi(3), Launcher::mpich(2)]
        .into_iter()
        .filter(|launcher| launcher.words().inspect_err(|reason| absent(reason)).is_ok())
        .collect()
}

fn run(launcher: &Launcher, arguments: &[&str], knobs: &[(&str, &str)]) -> Run {
    let _turn = alone();
    let mut launcher = launcher.clone();
    let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
    for (name, value) in knobs.iter().filter(|_| !by_itself) {
        launcher = launcher.with_variable(name, value);
    }
    let mut command = launcher.command(PROGRAMS).unwrap();
    command.args(arguments);
    if by_itself {
        command.envs(knobs.iter().copied());
    }
    finish(command, RUN_TIME_MAX)
}

/// The same answer, and a right one, everywhere. Returns it.
fn check(arguments: &[&str], knobs: &[(&str, &str)]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.push("--check");
    let answers: Vec<String> = launchers()
        .iter()
        .map(|launcher| {
            let run = run(launcher, &arguments, knobs);
            assert!(run.success && run.stdout.contains(", checked"), "{launcher:?} {arguments:?}: {run:#?}");
            run.stdout
        })
        .collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{arguments:?}: {answers:?}");
    answers[0].clone()
}

const SMALL: (&str, &str) = ("HARRIER_MPID_BLOCK", "16384");

#[test]
fn programs_over_text() {
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 2_000_000, 3);
    let input = ["--input", text.to_str().unwrap(), "--split-bytes", "150000"];
    check(&[&["wordcount"], &input[..]].concat(), &[]);
    check(&[&["grep", "ing "], &input[..]].concat(), &[SMALL]);
    check(&[&["index"], &input[..]].concat(), &[SMALL]);
}

#[test]
fn terasort_is_in_order_in_its_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let records = generate(folder.path(), "records", 3_000_000, 3);
    let out = folder.path().join("sorted");
    let arguments = ["terasort", "--input", records.to_str().unwrap(), "--split-bytes", "200000", "--output"];
    let answer =
        check(&[&arguments[..], &[out.to_str().unwrap()]].concat(), &[("HARRIER_MPID_A", "5"), SMALL]);
    assert!(answer.starts_with("terasort: 30000 lines"), "{answer}");
    assert_eq!(std::fs::read_dir(out).unwrap().count(), 5);
}

#[test]
fn programs_over_tables() {
    let folder = tempfile::tempdir().unwrap();
    let visits = generate(folder.path(), "uservisits", 1_000_000, 2);
    let rankings = generate(folder.path(), "rankings", 100_000, 1);
    let (visits, rankings) = (visits.to_str().unwrap(), rankings.to_str().unwrap());
    check(&["aggregate", "--input", visits, "--split-bytes", "100000"], &[]);
    let answer =
        check(&["join", "--rankings", rankings, "--input", visits, "--split-bytes", "100000"], &[SMALL]);
    assert!(!answer.contains(" 0 lines"), "{answer}");
}

#[test]
fn programs_that_go_round() {
    let folder = tempfile::tempdir().unwrap();
    let graph = generate(folder.path(), "graph", 300_000, 2);
    check(&["pagerank", "--rounds", "5", "--input", graph.to_str().unwrap(), "--split-bytes", "50000"], &[]);
    let points = generate(folder.path(), "points", 300_000, 2);
    check(&["kmeans", "--rounds", "5", "--input", points.to_str().unwrap(), "--split-bytes", "50000"], &[]);
}

#[test]
fn a_stream_of_several_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let events = generate(folder.path(), "events", 300_000, 3);
    check(&["sliding", "--window", "600", "--slide", "100", "--input", events.to_str().unwrap()], &[SMALL]);
}

#[test]
fn data_ten_times_the_memory_goes_to_disk_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let records = generate(folder.path(), "records", 4_000_000, 2);
    let spill = [folder.path().join("disk1"), folder.path().join("disk2")];
    let spill = std::env::join_paths(&spill).unwrap().into_string().unwrap();
    let knobs = [
        ("HARRIER_MPID_MEMORY", "1000000"),
        ("HARRIER_MPID_PROGRESS", "1"),
        ("HARRIER_MPID_SPILL", &spill),
        ("HARRIER_MPID_RUN", "50000"),
        SMALL,
    ];
    let arguments = ["terasort", "--input", records.to_str().unwrap(), "--split-bytes", "300000", "--check"];
    for launcher in launchers() {
        let run = run(&launcher, &arguments, &knobs);
        assert!(run.success && run.stdout.contains(", checked"), "{run:#?}");
        let spilled = run.stderr.lines().find(|line| line.trim().starts_with("spilled")).unwrap_or_default();
        let runs: u64 = spilled.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(runs > 8, "{run:#?}");
    }
}

#[test]
fn knobs_do_not_change_answers() {
    let folder = tempfile::tempdir().unwrap();
    let visits = generate(folder.path(), "uservisits", 500_000, 2);
    let arguments = ["aggregate", "--input", visits.to_str().unwrap(), "--split-bytes", "50000"];
    let plain = check(&arguments, &[]);
    for knob in [
        ("HARRIER_MPID_BLOCKING", "1"),
        ("HARRIER_MPID_SEND_QUEUE", "1"),
        ("HARRIER_MPID_MEMORY_SHARE", "0"),
        ("HARRIER_MPID_COMBINE", "1"),
        ("HARRIER_MPID_PARALLELISM", "enhanced"),
        ("HARRIER_MPID_THREADS", "3"),
    ] {
        assert_eq!(check(&arguments, &[knob, SMALL]), plain, "{knob:?}");
    }
}

#[test]
fn wrong_input_names_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let visits = folder.path().join("visits");
    std::fs::write(&visits, "1.2.3.4|u|1999-05-05|12\n1.2.3.4|u|1999-05-05|many\n").unwrap();
    for launcher in launchers() {
        let run = run(&launcher, &["aggregate", "--input", visits.to_str().unwrap()], &[]);
        assert!(!run.success, "{run:#?}");
        let told = format!("O task 0 on rank 0, {} at 24: failed: \"many\" is no number", visits.display());
        // Whichever rank had the task.
        let told =
            told.split_once(" on rank 0").map(|(task, rest)| (task.to_string(), rest.to_string())).unwrap();
        assert!(run.stderr.contains(&told.0) && run.stderr.contains(&told.1), "{run:#?}");
    }
}

#[test]
fn mpidrun_starts_ranks_with_the_papers_options() {
    let Ok(words) = Launcher::open_mpi(2).words() else { return absent("Open MPI") };
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 300_000, 1);
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "localhost slots=3\n").unwrap();
    let timeline = folder.path().join("timeline.csv");
    let _turn = alone();
    let mut command = Command::new(MPIDRUN);
    command.env("HARRIER_MPIRUN", &words[0]).arg("-f").arg(&hosts);
    command.args(["-mode", "COM", "-A", "7", "-conf", "SEND_QUEUE=2", "-progress", "-conf"]);
    command.arg(format!("TIMELINE={}", timeline.display()));
    command.args([PROGRAMS, "wordcount", "--check", "--split-bytes", "30000", "--input"]).arg(&text);
    let run = finish(command, RUN_TIME_MAX);
    assert!(run.success && run.stdout.contains(", checked"), "{run:#?}");
    assert!(run.stderr.contains("7 A"), "{run:#?}");
    let timeline = std::fs::read_to_string(timeline).unwrap();
    let ranks: std::collections::BTreeSet<&str> =
        timeline.lines().skip(1).map(|line| line.split(',').nth(3).unwrap()).collect();
    assert_eq!(ranks.len(), 3, "{timeline}");
    let run = finish(
        {
            let mut command = Command::new(MPIDRUN);
            command.args(["-mode", "MAP", "program"]);
            command
        },
        RUN_TIME_MAX,
    );
    assert!(!run.success && run.stderr.contains("usage"), "{run:#?}");
}

/// Processes of the program whose command line has `mark` in it.
fn ranks_of(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let program = words.first()?.ends_with(b"mpid-programs");
            let marked =
                words.iter().any(|word| word.windows(mark.len()).any(|part| part == mark.as_bytes()));
            (program && marked).then_some(pid)
        })
        .collect()
}

/// What came of a run. Neither ranks nor a launcher without ranks may hang.
fn output_of(mut child: Child, mark: &str) -> Output {
    let started = Instant::now();
    let mut alive = Instant::now();
    let [stdout, stderr] = [
        Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
        Box::new(child.stderr.take().unwrap()),
    ]
    .map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            text
        })
    });
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if !ranks_of(mark).is_empty() {
            alive = Instant::now();
        }
        assert!(started.elapsed() < RUN_TIME_MAX, "ranks hang: {:?}", ranks_of(mark));
        // Open MPI's launcher now and then waits for ranks that were killed; mpidrun ends it then.
        assert!(alive.elapsed() < LAUNCHER_PATIENCE, "mpidrun waits for ranks that are gone");
        std::thread::sleep(Duration::from_millis(20));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// A rank is killed at a random instant. Without a checkpoint the run fails, and does not hang; with one, the ranks that are left go on,
/// or, without rank 0, `mpidrun` starts them again: only O tasks that were not done run, and the answer is right.
#[test]
fn a_rank_is_killed() {
    let Ok(words) = Launcher::open_mpi(3).words() else { return absent("Open MPI") };
    let seed = fresh_seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 40_000_000, 4);
    let _turn = alone();
    let (mut recovered, mut went_on, mut failed) = (0, 0, 0);
    for attempt in 0..20 {
        if recovered >= 2 && went_on >= 1 && failed >= 2 {
            break;
        }
        let with_checkpoint = attempt % 2 == 0;
        let mut command = Command::new(MPIDRUN);
        command.env("HARRIER_MPIRUN", &words[0]).args(["-n", "3", "-progress", "-conf", "COMBINE=100000"]);
        let checkpoint = folder.path().join(format!("checkpoint{attempt}"));
        if with_checkpoint {
            command.arg("-checkpoint").arg(&checkpoint).args(["-restarts", "1"]);
        }
        command.args([PROGRAMS, "wordcount", "--check", "--split-bytes", "500000", "--input"]).arg(&text);
        let started = Instant::now();
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Wait for the ranks, and then for a random part of their work.
        let mark = text.to_str().unwrap();
        while ranks_of(mark).len() < 3 && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let patience = Duration::from_millis(random.random_range(150..900));
        let waiting = Instant::now();
        while waiting.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ranks = ranks_of(mark);
        let killed = !ranks.is_empty();
        if killed {
            let victim = ranks[random.random_range(0..ranks.len())];
            let _ = Command::new("kill").args(["-9", &victim.to_string()]).status();
        }
        let output = output_of(child, mark);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        let context = format!("attempt {attempt}, killed {killed} after {patience:?}: {stdout}\n{stderr}");
        assert!(started.elapsed() < RUN_TIME_MAX, "{context}");
        assert!(ranks_of(mark).is_empty(), "{context}: ranks stay");
        if !with_checkpoint {
            // A kill that comes after the answer changes nothing but the status.
            failed += u32::from(killed && !output.status.success());
            continue;
        }
        assert!(output.status.success() && stdout.contains(", checked"), "{context}");
        let goes_on = stderr.contains("goes on with 2");
        if goes_on || stderr.contains("started again") {
            // The last report is that of the run that came to its end: it ran what the checkpoint did not have.
            let tasks = stderr.lines().rfind(|line| line.trim().starts_with("tasks")).unwrap_or_default();
            let ran: u64 = tasks.split_whitespace().nth(1).unwrap().parse().unwrap();
            assert!(ran <= 84, "{context}");
            recovered += u32::from(ran < 80);
            went_on += u32::from(goes_on);
        }
        assert!(!checkpoint.exists() || std::fs::read_dir(&checkpoint).unwrap().count() == 0, "{context}");
    }
    assert!(recovered > 0, "no kill came in the middle of the work");
    assert!(went_on > 0, "no rank went on without another one");
    assert!(failed > 0, "no kill ended a run without a checkpoint");
}
