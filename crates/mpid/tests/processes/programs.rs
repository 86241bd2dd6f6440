//! The library's programs as processes: alone, under the installed MPI runtimes, under `mpidrun`, and with a
//! hosts file; with various knobs, with too little memory, and with killed ranks. Every program checks its
//! own result, and it is the same everywhere.
//!
//! A runtime that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.
//! `HARRIER_SEED` repeats a run.

use harrier_launch::{Hosts, Launcher, Run, absent, finish, finish_all, gang_slot, output_of_ranks, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = env!("CARGO_BIN_EXE_mpid-programs");
const MPIDRUN: &str = env!("CARGO_BIN_EXE_mpidrun");

/// Timeout of a run, which takes a second or two.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);

/// Timeout for a launcher to end after its ranks, or to restart them.
const LAUNCHER_TIMEOUT: Duration = Duration::from_secs(20);

fn generate(folder: &Path, kind: &str, bytes: u64, files: usize) -> PathBuf {
    let out = folder.join(kind);
    let mut command = Command::new(PROGRAMS);
    command.args(["generate", kind, "--bytes", &bytes.to_string(), "--files", &files.to_string()]);
    command.args(["--seed", &seed().to_string(), "--out"]).arg(&out);
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
    let _turn = gang_slot();
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

/// Asserts the same, right result everywhere. Returns it.
fn check(arguments: &[&str], knobs: &[(&str, &str)]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.push("--check");
    let output = arguments.iter().position(|argument| *argument == "--output").map(|at| arguments[at + 1]);
    let answers: Vec<String> = launchers()
        .iter()
        .map(|launcher| {
            // A folder with output refuses further output.
            output.map(std::fs::remove_dir_all);
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
fn text_programs() {
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 2_000_000, 3);
    let input = ["--input", text.to_str().unwrap(), "--split-bytes", "150000"];
    check(&[&["wordcount"], &input[..]].concat(), &[]);
    check(&[&["grep", "ing "], &input[..]].concat(), &[SMALL]);
    check(&[&["index"], &input[..]].concat(), &[SMALL]);
}

#[test]
fn ranks_connect_by_a_hosts_file() {
    let _turn = gang_slot();
    let folder = tempfile::tempdir().unwrap();
    let records = generate(folder.path(), "records", 1_000_000, 3);
    let arguments = ["terasort", "--check", "--input", records.to_str().unwrap(), "--split-bytes", "100000"];
    let mut command = Command::new(PROGRAMS);
    command.args(arguments);
    let expected = finish(command, RUN_TIME_MAX);
    assert!(expected.success, "{expected:#?}");
    let runs = finish_all(Hosts::new(3).commands(PROGRAMS.as_ref(), &arguments), RUN_TIME_MAX);
    assert!(runs.iter().all(|run| run.success), "{runs:#?}");
    let printed: Vec<&str> = runs.iter().map(|run| run.stdout.as_str()).collect();
    assert_eq!(printed, [expected.stdout.as_str(), "", ""]);
}

#[test]
fn terasort_output_files_are_sorted() {
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
fn table_programs() {
    let folder = tempfile::tempdir().unwrap();
    let visits = generate(folder.path(), "uservisits", 1_000_000, 2);
    let rankings = generate(folder.path(), "rankings", 100_000, 1);
    let (visits, rankings) = (visits.to_str().unwrap(), rankings.to_str().unwrap());
    check(&["aggregate", "--input", visits, "--split-bytes", "100000"], &[]);
    let answer =
        check(&["join", "--rankings", rankings, "--input", visits, "--split-bytes", "100000"], &[SMALL]);
    assert!(!answer.contains(" 0 lines"), "{answer}");
    // Both report revenue in hundredths.
    for program in ["aggregate", "join"] {
        let help = Command::new(PROGRAMS).args([program, "--help"]).output().unwrap();
        assert!(String::from_utf8_lossy(&help.stdout).contains("in hundredths"), "{help:?}");
    }
    // The concatenated files are in the order of revenue.
    let out = folder.path().join("joined");
    check(
        &["join", "--rankings", rankings, "--input", visits, "--output", out.to_str().unwrap()],
        &[("HARRIER_MPID_A", "3")],
    );
    let parts = (0..3).map(|part| std::fs::read_to_string(out.join(format!("part-{part:05}"))).unwrap());
    let joined = parts.collect::<Vec<_>>().concat();
    let revenues: Vec<u64> =
        joined.lines().map(|line| line.rsplit_once('\t').unwrap().1.parse().unwrap()).collect();
    assert!(revenues.len() > 100 && revenues.is_sorted_by(|left, right| left >= right), "{revenues:?}");
}

#[test]
fn iterative_programs() {
    let folder = tempfile::tempdir().unwrap();
    let graph = generate(folder.path(), "graph", 300_000, 2);
    check(&["pagerank", "--rounds", "5", "--input", graph.to_str().unwrap(), "--split-bytes", "50000"], &[]);
    let points = generate(folder.path(), "points", 300_000, 2);
    check(&["kmeans", "--rounds", "5", "--input", points.to_str().unwrap(), "--split-bytes", "50000"], &[]);
}

/// A node may have any number, also the largest.
#[test]
fn pagerank_of_the_largest_node_number() {
    let folder = tempfile::tempdir().unwrap();
    let (graph, out) = (folder.path().join("graph"), folder.path().join("out"));
    let last = u64::MAX;
    std::fs::write(&graph, format!("1\t{last}\n{last}\t2\n2\t1\n{last}\t{last}\n0\t{last}\n")).unwrap();
    let (input, output) = (graph.to_str().unwrap(), out.to_str().unwrap());
    check(&["pagerank", "--rounds", "4", "--input", input, "--split-bytes", "30", "--output", output], &[]);
    let parts =
        std::fs::read_dir(&out).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    assert!(parts.collect::<Vec<_>>().concat().lines().any(|line| line.starts_with(&format!("{last}\t"))));
}

#[test]
fn streams_of_several_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let events = generate(folder.path(), "events", 300_000, 3);
    check(&["sliding", "--window", "600", "--slide", "100", "--input", events.to_str().unwrap()], &[SMALL]);
}

/// Events of windows that were emitted already are dropped and counted.
#[test]
fn late_events_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = ["one", "two"].map(|name| folder.path().join(name));
    // At a border, and before it; an event is late by its own input's watermark, however far the other one
    // is.
    std::fs::write(&inputs[0], "19\ta\n20\ta\n19\ta\n20\ta\n3\tb\n55\ta\n50\ta\n49\ta\n").unwrap();
    std::fs::write(&inputs[1], "3\tb\n7\tb\n5\tb\n").unwrap();
    let inputs = inputs.each_ref().map(|path| path.to_str().unwrap());
    for launcher in launchers() {
        for (inputs, late) in [(&inputs[..], true), (&inputs[1..], false)] {
            let arguments =
                [&["sliding", "--window", "20", "--slide", "10", "--check", "--input"], inputs].concat();
            let run = run(&launcher, &arguments, &[]);
            assert!(run.success && run.stdout.contains(", checked"), "{run:#?}");
            let warnings: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("mpid: ")).collect();
            let expected =
                "mpid: sliding: 3 events were late, and were left out: their windows had been told of";
            assert_eq!(warnings, if late { vec![expected] } else { vec![] }, "{run:#?}");
        }
    }
}

/// Windows that end behind the last time, 2^64-1, do not wrap around to 0.
#[test]
fn windows_at_the_end_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let (events, out) = (folder.path().join("events"), folder.path().join("out"));
    let times = [u64::MAX - 25, u64::MAX - 4, u64::MAX, u64::MAX];
    std::fs::write(&events, times.map(|time| format!("{time}\ta\n")).concat()).unwrap();
    for (window, slide, last) in [("30", "10", 18_446_744_073_709_551_640u128), ("2", "1", (1 << 64) + 1)] {
        let (input, output) = (events.to_str().unwrap(), out.to_str().unwrap());
        check(&["sliding", "--window", window, "--slide", slide, "--input", input, "--output", output], &[]);
        let files = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().path());
        let texts: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let ends = texts.iter().flat_map(|text| text.lines()).map(|line| line.split_once('\t').unwrap().0);
        let ends: Vec<u128> = ends.map(|end| end.parse().unwrap()).collect();
        assert!(ends.iter().all(|end| *end >= (1 << 64) - 26), "{ends:?}");
        assert_eq!(ends.into_iter().max(), Some(last));
    }
}

/// Results of a stream can be read while its input stays open.
#[test]
fn windows_are_emitted_while_input_is_open() {
    for launcher in launchers() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, out) = (folder.path().join("events"), folder.path().join("out"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let turn = gang_slot();
        let mut command = launcher.command(PROGRAMS).unwrap();
        command.args(["sliding", "--window", "20", "--slide", "10", "--input"]).arg(&pipe);
        command.arg("--output").arg(&out);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Opened for both directions, so that it does not wait for a reader.
        let mut events = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        events.write_all(b"1\ta\n2\tb\n11\ta\n12\ta\n25\ta\n").unwrap();
        let waiting = Instant::now();
        // By the ends of their windows; the parts of all A tasks together.
        let window_results = |end: u64| -> std::collections::BTreeSet<String> {
            let files = std::fs::read_dir(&out).into_iter().flatten().flatten();
            let files = files
                .filter(|file| file.file_name().to_string_lossy().starts_with(&format!("window-{end:020}")));
            let texts: Vec<String> =
                files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
            texts.iter().flat_map(|text| text.lines()).map(str::to_string).collect()
        };
        let set = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect();
        // The window that ends at 10 has the first pane, and the one that ends at 20 has both; b had nothing
        // in the second.
        while window_results(10) != set(&["10\ta\t1", "10\tb\t1"]) || !window_results(20).contains("20\ta\t3")
        {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{launcher:?}: ended with {status} while the input is open");
            }
            assert!(
                waiting.elapsed() < RUN_TIME_MAX,
                "{launcher:?}: {:?}, {:?}",
                window_results(10),
                window_results(20)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.try_wait().unwrap().is_none());
        assert!(window_results(30).is_empty());
        drop(events);
        let output = child.wait_with_output().unwrap();
        drop(turn);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(window_results(20), set(&["20\ta\t3", "20\tb\t1"]));
        assert_eq!(window_results(30), set(&["30\ta\t3"]));
        assert_eq!(window_results(40), set(&["40\ta\t1"]));
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains("sliding: 6 lines"), "{stdout}");
        // A pipe cannot be read twice.
        let run = run(&launcher, &["sliding", "--check", "--input", pipe.to_str().unwrap()], &[]);
        assert!(!run.success && run.stderr.contains("--check"), "{run:#?}");
    }
}

/// Requested modes and numbers of tasks are used, or refused.
#[test]
fn modes_and_task_counts_are_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let input = |kind: &str| generate(folder.path(), kind, 100_000, 3).to_str().unwrap().to_string();
    let [text, graph, points, events, records] = ["text", "graph", "points", "events", "records"].map(input);
    let split = ["--split-bytes", "10000", "--input"];
    let wordcount = [&["wordcount"], &split[..], &[&text]].concat();
    let pagerank = [&["pagerank", "--rounds", "2"], &split[..], &[&graph]].concat();
    let kmeans = [&["kmeans", "--rounds", "2"], &split[..], &[&points]].concat();
    let sliding = ["sliding", "--input", &events];
    let refused = |launcher: &Launcher, arguments: &[&str], knobs: &[(&str, &str)], words: &str| {
        let run = run(launcher, arguments, knobs);
        assert!(!run.success && run.stderr.contains(words), "{arguments:?} {knobs:?}: {run:#?}");
    };
    for (arguments, mode) in
        [(&wordcount, "COM"), (&pagerank, "ITER"), (&kmeans, "ITER"), (&sliding.to_vec(), "STREAM")]
    {
        check(arguments, &[("HARRIER_MPID_MODE", mode)]);
        for other in ["COM", "ITER", "STREAM"].into_iter().filter(|other| *other != mode) {
            let words = format!("a job of mode {mode}, and the program was started in mode {other}");
            for launcher in launchers() {
                refused(&launcher, arguments, &[("HARRIER_MPID_MODE", other)], &words);
            }
        }
    }
    // The result does not depend on the number of O tasks that share the splits.
    let summary =
        |run: &Run| run.stderr.lines().find(|line| line.contains(" tasks ")).unwrap_or_default().to_string();
    let enhanced = ("HARRIER_MPID_PARALLELISM", "enhanced");
    let progress = ("HARRIER_MPID_PROGRESS", "1");
    let terasort = [&["terasort", "--check"], &split[..], &[&records]].concat();
    let checked_wordcount = [&wordcount[..], &["--check"]].concat();
    for launcher in launchers() {
        for o_tasks in ["1", "5", "40"] {
            let run = run(&launcher, &checked_wordcount, &[("HARRIER_MPID_O", o_tasks), progress]);
            assert!(run.success && summary(&run).contains(&format!(" {o_tasks} O, ")), "{run:#?}");
        }
        let ran = run(&launcher, &terasort, &[enhanced, progress]);
        assert!(ran.success && summary(&ran).contains(" 12 O, 12 A"), "{ran:#?}");
        let ran = run(&launcher, &terasort, &[("HARRIER_MPID_O", "5"), enhanced, progress]);
        assert!(ran.success && summary(&ran).contains(" 5 O, 5 A"), "{ran:#?}");
        refused(&launcher, &sliding, &[("HARRIER_MPID_O", "2")], "has 3 O tasks, and was told 2");
    }
    check(&pagerank, &[("HARRIER_MPID_O", "2"), ("HARRIER_MPID_A", "3")]);
    check(&kmeans, &[("HARRIER_MPID_O", "40"), ("HARRIER_MPID_A", "3")]);
}

/// Rounds and streams have no checkpoints, and warn once.
#[test]
fn unsupported_checkpoints_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let graph = generate(folder.path(), "graph", 20_000, 1);
    let events = generate(folder.path(), "events", 20_000, 1);
    let checkpoint = folder.path().join("checkpoint");
    let knobs = [("HARRIER_MPID_CHECKPOINT", checkpoint.to_str().unwrap())];
    for launcher in launchers() {
        let warnings = |program: &[&str], input: &Path| {
            let run =
                run(&launcher, &[program, &["--check", "--input", input.to_str().unwrap()]].concat(), &knobs);
            assert!(run.success, "{run:#?}");
            run.stderr.matches("keep no checkpoint").count()
        };
        assert_eq!(warnings(&["pagerank", "--rounds", "4"], &graph), 1);
        assert_eq!(warnings(&["sliding"], &events), 1);
        assert_eq!(warnings(&["wordcount"], &graph), 0);
    }
}

/// Output is not written among files of other output, or into its own input.
#[test]
fn output_folders_in_use_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 100_000, 2);
    let within = text.join("out");
    let events = generate(folder.path(), "events", 100_000, 1);
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    std::fs::write(&file, "").unwrap();
    let checkpoint = folder.path().join("checkpoint");
    let knobs = [("HARRIER_MPID_CHECKPOINT", checkpoint.to_str().unwrap())];
    let name = |path: &Path| path.to_str().unwrap().to_string();
    let [text_name, events_name, within, file, out_name] =
        [&text, &events, &within, &file.join("out"), &out].map(|path| name(path));
    let wordcount = |output: &str| -> Vec<String> {
        ["wordcount", "--check", "--split-bytes", "10000", "--input", &text_name, "--output", output]
            .map(str::to_string)
            .to_vec()
    };
    let refused = |launcher: &Launcher, arguments: &[String], words: &str, knobs: &[(&str, &str)]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = run(launcher, &arguments, knobs);
        assert!(!run.success && run.stdout.is_empty(), "{words}: {run:#?}");
        assert_eq!(run.stderr.matches(words).count(), 1, "{words}: {run:#?}");
    };
    for launcher in launchers() {
        let _ = std::fs::remove_dir_all(&out);
        refused(&launcher, &wordcount(&text_name), &format!("--output {text_name} is the input"), &[]);
        refused(&launcher, &wordcount(&within), &format!("--output {within} is the input"), &[]);
        refused(&launcher, &wordcount(&file), &format!("--output {file}: "), &[]);
        assert!(!Path::new(&within).exists());
        // Leftovers of an incomplete job: a part of more tasks than there are, and an incomplete one.
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(out.join("part-00077"), "stale\t1\n").unwrap();
        std::fs::write(out.join(".part-00078-0"), "sta").unwrap();
        let stale = format!("--output {out_name} has files of an earlier job, such as part-00077");
        refused(&launcher, &wordcount(&out_name), &stale, &[]);
        refused(&launcher, &wordcount(&out_name), &stale, &knobs);
        // The same job, continued.
        let mut job = vec![PROGRAMS.to_string()];
        job.extend(wordcount(&out_name));
        std::fs::write(out.join(".mpid-unfinished"), job.join("\n")).unwrap();
        let arguments = wordcount(&out_name);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let good = run(&launcher, &arguments, &knobs);
        assert!(good.success && good.stdout.contains(", checked"), "{good:#?}");
        let names = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| name.starts_with("part-") && name != "part-00077"), "{names:?}");
        // It has completed.
        let earlier = format!("--output {out_name} has files of an earlier job, such as part-00000");
        refused(&launcher, &wordcount(&out_name), &earlier, &knobs);
        let sliding = ["sliding", "--input", &events_name, "--output", &out_name].map(str::to_string);
        refused(&launcher, &sliding, &earlier, &[]);
        let generate = ["generate", "text", "--out", &text_name].map(str::to_string);
        refused(&launcher, &generate, &format!("{text_name} is not empty"), &[]);
    }
}

/// Commands that need no other ranks run once, and print their findings.
#[test]
fn single_rank_commands_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let records = generate(folder.path(), "records", 100_000, 2);
    let records = records.to_str().unwrap();
    for (at, launcher) in launchers().iter().enumerate() {
        let sorted = folder.path().join(format!("sorted{at}"));
        let sorted = sorted.to_str().unwrap();
        let places = ["--input", records, "--output", sorted];
        assert!(run(launcher, &[&["terasort"], &places[..]].concat(), &[]).success);
        let valid = run(launcher, &[&["validate"], &places[..]].concat(), &[]);
        assert!(valid.success, "{valid:#?}");
        assert_eq!(valid.stdout.matches("valid: 1000 records in order, checksum").count(), 1, "{valid:#?}");
        std::fs::remove_file(Path::new(sorted).join("part-00000")).unwrap();
        let wrong = run(launcher, &[&["validate"], &places[..]].concat(), &[]);
        assert!(
            !wrong.success && wrong.stderr.contains(" instead of 1000 records with checksum "),
            "{wrong:#?}"
        );
        assert_eq!(wrong.stderr.matches("mpid: the output is not the input: ").count(), 1, "{wrong:#?}");
        let out = folder.path().join(format!("text{at}"));
        let generated =
            run(launcher, &["generate", "text", "--bytes", "1000", "--out", out.to_str().unwrap()], &[]);
        assert!(generated.success && generated.stdout.lines().count() == 1, "{generated:#?}");
    }
}

#[test]
fn invalid_numbers_are_usage_errors() {
    let status = |arguments: &[&str]| {
        let output = Command::new(PROGRAMS).args(arguments).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [
        &["wordcount", "--input", "/", "--split-bytes", "0"][..],
        &["kmeans", "--input", "/", "--clusters", "0"],
        &["kmeans", "--input", "/", "--rounds", "0"],
        &["pagerank", "--input", "/", "--rounds", "0"],
        &["sliding", "--input", "/", "--window", "0"],
        &["sliding", "--input", "/", "--slide", "0"],
        &["sliding", "--input", "/", "--window", "15", "--slide", "10"],
        &["generate", "text", "--out", "/no/such/folder", "--bytes", "0"],
        &["generate", "text", "--out", "/no/such/folder", "--files", "0"],
    ] {
        let (code, output_text) = status(arguments);
        assert!(code == Some(2) && output_text.contains("error: "), "{arguments:?}: {code:?} {output_text}");
    }
    let output = Command::new(MPIDRUN).arg("--help").output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output_text.starts_with("usage: mpidrun"), "{output:?}");
}

/// Deviations from the requested options are warnings, as lines of the program; unknown knobs are refused.
#[test]
fn warnings_and_unknown_knobs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let records = generate(folder.path(), "records", 1_000_000, 2);
    let arguments = ["terasort", "--input", records.to_str().unwrap(), "--split-bytes", "300000", "--check"];
    let spill = folder.path().join("disk");
    let spill = format!("/proc/no-disk:{}", spill.display());
    for launcher in launchers() {
        let knobs = [
            ("HARRIER_MPID_MEMORY", "100000"),
            ("HARRIER_MPID_RUN", "50000"),
            ("HARRIER_MPID_SPILL", &spill),
            ("HARRIER_MPID_TIMELINE", "/no/such/folder/file"),
        ];
        let good = run(&launcher, &arguments, &knobs);
        assert!(good.success && good.stdout.contains(", checked"), "{good:#?}");
        for words in ["a folder for spilled pairs is dropped", "the timeline was not written"] {
            let line = good.stderr.lines().find(|line| line.contains(words)).unwrap_or_default();
            assert!(line.starts_with("mpid: ") && line.contains("/no"), "{words}: {good:#?}");
        }
        for (knob, value, words) in [
            ("HARRIER_MPID_NOSUCH", "1", "there is no knob NOSUCH"),
            ("HARRIER_MPID_A", "1000000000", "1000000000 A tasks: a job has 65536 at most"),
        ] {
            let bad = run(&launcher, &arguments, &[(knob, value)]);
            assert!(!bad.success && bad.stderr.contains(words), "{bad:#?}");
        }
    }
}

/// The README's example runs, and is short.
#[test]
fn word_count_example() {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/wordcount");
    assert!(example.exists(), "cargo test builds {}", example.display());
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/wordcount.rs"));
    assert!(source.unwrap().lines().count() <= 30);
    let folder = tempfile::tempdir().unwrap();
    let files = [folder.path().join("a"), folder.path().join("b")];
    std::fs::write(&files[0], "to be or not\nto be\n").unwrap();
    std::fs::write(&files[1], "that is to be").unwrap();
    for launcher in launchers() {
        for o_tasks in ["1", "2", "5"] {
            let _turn = gang_slot();
            let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
            let mut started = launcher.clone();
            if !by_itself {
                started = started.with_variable("HARRIER_MPID_O", o_tasks);
            }
            let folder = tempfile::tempdir().unwrap();
            let mut command = started.command_printing(&example, folder.path(), "$$").unwrap();
            command.args(&files);
            if by_itself {
                command.env("HARRIER_MPID_O", o_tasks);
            }
            let run = finish(command, RUN_TIME_MAX);
            let text = output_of_ranks(folder.path());
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort();
            assert!(run.success, "{run:#?}");
            assert_eq!(lines, ["be\t3", "is\t1", "not\t1", "or\t1", "that\t1", "to\t3"], "{run:#?}");
        }
    }
}

#[test]
fn data_ten_times_the_memory_is_spilled() {
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
fn knobs_do_not_change_results() {
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
fn malformed_input_names_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let visits = folder.path().join("visits");
    let good = "1.2.3.4|u|1999-05-05|0.12|agent|USA|USA-EN|word|7\n";
    std::fs::write(&visits, [good, &good.replace("0.12", "many")].concat()).unwrap();
    for launcher in launchers() {
        let run = run(&launcher, &["aggregate", "--input", visits.to_str().unwrap()], &[]);
        assert!(!run.success, "{run:#?}");
        let message = format!(
            "O task 0 on rank 0, {} at {}: failed: \"many\" is no amount",
            visits.display(),
            good.len()
        );
        // Whichever rank had the task.
        let message = message
            .split_once(" on rank 0")
            .map(|(task, rest)| (task.to_string(), rest.to_string()))
            .unwrap();
        assert!(run.stderr.contains(&message.0) && run.stderr.contains(&message.1), "{run:#?}");
    }
}

#[test]
fn mpidrun_accepts_the_papers_options() {
    let Ok(words) = Launcher::open_mpi(2).words() else { return absent("Open MPI") };
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 300_000, 1);
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "localhost slots=3\n").unwrap();
    let timeline = folder.path().join("timeline.csv");
    let _turn = gang_slot();
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

/// Processes whose command line contains `mark`.
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

/// Whatever program in whatever language: all ranks report the error of the one whose environment is wrong,
/// and none hangs.
#[test]
fn a_wrong_knob_on_one_rank_is_reported_on_all() {
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 10_000, 1);
    let example = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/wordcount");
    let file = std::fs::read_dir(&text).unwrap().next().unwrap().unwrap().path();
    let [example, file, text] = [&example, &file, &text].map(|path| path.to_str().unwrap());
    for launcher in launchers() {
        if launcher.words().is_ok_and(|words| words.is_empty()) {
            continue;
        }
        let script =
            "[ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 1 ] && export HARRIER_MPID_NOSUCH=1; exec \"$@\"";
        for program in [&[PROGRAMS, "wordcount", "--input", text][..], &[example, file]] {
            let _turn = gang_slot();
            let mut command = launcher.command("/bin/sh").unwrap();
            command.args(["-c", script, "sh"]).args(program);
            let run = finish(command, RUN_TIME_MAX);
            assert!(!run.success && !run.timed_out && run.stdout.is_empty(), "{run:#?}");
            let message = "there is no knob NOSUCH (HARRIER_MPID_NOSUCH) (on rank 1)";
            assert!(run.stderr.contains(message) && !run.stderr.contains("is lost"), "{run:#?}");
        }
    }
}

/// A checkpoint does not mix the pairs of a program with those of another program of the same name.
#[test]
fn checkpoints_of_changed_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (visits, checkpoint) = (folder.path().join("visits"), folder.path().join("checkpoint"));
    let program = folder.path().join("mpid-programs");
    let good = "1.2.3.4|u|1999-05-05|0.12|agent|USA|USA-EN|word|7\n";
    let run = || {
        let mut command = Command::new(&program);
        command.args(["aggregate", "--input"]).arg(&visits).env("HARRIER_MPID_CHECKPOINT", &checkpoint);
        finish(command, RUN_TIME_MAX)
    };
    let add = |bytes: &[u8]| {
        OpenOptions::new().append(true).open(&program).unwrap().write_all(bytes).unwrap();
    };
    std::fs::copy(PROGRAMS, &program).unwrap();
    std::fs::write(&visits, good.replace("0.12", "many")).unwrap();
    let failed = run();
    assert!(failed.stderr.contains("is no amount"), "{failed:#?}");
    std::fs::write(&visits, good).unwrap();
    let length = program.metadata().unwrap().len();
    add(b"changed");
    let refused = run();
    assert!(!refused.success && refused.stderr.contains("before the program was changed"), "{refused:#?}");
    OpenOptions::new().write(true).open(&program).unwrap().set_len(length).unwrap();
    let again = run();
    assert!(again.success && again.stdout.contains("1 lines"), "{again:#?}");
}

/// Ranks that were started as different programs share no checkpoint.
#[test]
fn checkpoints_require_the_same_program_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 10_000, 1);
    let checkpoint = folder.path().join("checkpoint");
    for launcher in [Launcher::open_mpi(1), Launcher::mpich(1)] {
        let Ok(words) = launcher.words().inspect_err(|reason| absent(reason)) else { continue };
        let start = |patterns: [&str; 2], keeps: bool| {
            let _turn = gang_slot();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).args([PROGRAMS, "grep", patterns[0], "--input"]).arg(&text);
            command.args([":", "-n", "1", PROGRAMS, "grep", patterns[1], "--input"]).arg(&text);
            if keeps {
                command.env("HARRIER_MPID_CHECKPOINT", &checkpoint);
            }
            finish(command, RUN_TIME_MAX)
        };
        let refused = start(["ing", "ed"], true);
        let message = "ranks 0 and 1 are different programs, or have other arguments";
        assert!(!refused.success && refused.stderr.contains(message), "{refused:#?}");
        assert!(start(["ing", "ing"], true).success && start(["ing", "ed"], false).success);
    }
}

/// Whether an O task of a job is committed: behind three records of metadata.
fn has_commits(checkpoint: &Path) -> bool {
    let jobs = std::fs::read_dir(checkpoint).into_iter().flatten().flatten();
    jobs.filter_map(|job| job.path().join("commits").metadata().ok()).any(|list| list.len() > 3 * 12)
}

/// Waits for a run and returns its output. Neither ranks nor a launcher without ranks may hang.
fn wait_for_output(mut child: Child, mark: &str) -> Output {
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
        // Open MPI's launcher sometimes waits for ranks that were killed; mpidrun ends it then.
        assert!(alive.elapsed() < LAUNCHER_TIMEOUT, "mpidrun waits for ranks that are gone");
        std::thread::sleep(Duration::from_millis(20));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// A rank is killed at a random time. Without a checkpoint the run fails, and does not hang; with one, the
/// surviving ranks go on, or, without rank 0, `mpidrun` restarts them: only O tasks that were not done run,
/// and the result is right.
#[test]
fn killed_ranks_recover_from_checkpoints() {
    let Ok(words) = Launcher::open_mpi(3).words() else { return absent("Open MPI") };
    let seed = seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let text = generate(folder.path(), "text", 40_000_000, 4);
    let _turn = gang_slot();
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
        // Waits for the ranks, for a commit in the checkpoint, and then for a random part of their work.
        let mark = text.to_str().unwrap();
        while (ranks_of(mark).len() < 3 || with_checkpoint && !has_commits(&checkpoint))
            && started.elapsed() < RUN_TIME_MAX / 2
        {
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
        let output = wait_for_output(child, mark);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        let context = format!("attempt {attempt}, killed {killed} after {patience:?}: {stdout}\n{stderr}");
        assert!(started.elapsed() < RUN_TIME_MAX, "{context}");
        assert!(ranks_of(mark).is_empty(), "{context}: ranks stay");
        if !with_checkpoint {
            // A kill after the result changes nothing but the status.
            failed += u32::from(killed && !output.status.success());
            continue;
        }
        assert!(output.status.success() && stdout.contains(", checked"), "{context}");
        let goes_on = stderr.contains("goes on with 2");
        if goes_on || stderr.contains("started again") {
            // The last report is that of the completed run: it ran the tasks that the checkpoint did not
            // have.
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
