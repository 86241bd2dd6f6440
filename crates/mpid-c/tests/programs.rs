//! C programs, compiled by the tests against the header, the library and its pkg-config file, alone and under
//! the installed MPI runtimes. A runtime or a compiler that is absent is skipped with a line on stderr; with
//! `HARRIER_REQUIRE_ALL_MPI=1` it fails.

mod killed_ranks;
mod library_path;

use harrier_launch::{Launcher, Run, absent, finish, gang_slot, on_path, output_of_ranks};
use library_path::library;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Timeout of a run, which takes about a second.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

/// Installs the library as a user does, in a prefix with `include`, `lib` and `lib/pkgconfig`.
fn install(prefix: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-mpid.sh");
    let run = Command::new("sh").arg(script).arg(prefix).arg(library()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let description = std::fs::read_to_string(prefix.join("lib/pkgconfig/mpid.pc")).unwrap();
    assert!(description.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"), "\n")), "{description}");
    assert!(!description.contains('@'), "{description}");
}

/// `None`: there is no C compiler.
fn compile(prefix: &Path, source: &str) -> Option<PathBuf> {
    if on_path("cc").is_none() {
        absent("a C compiler");
        return None;
    }
    install(prefix);
    let program = prefix.join("program");
    let flags: Vec<String> = match on_path("pkg-config") {
        Some(tool) => {
            let output = Command::new(tool)
                .args(["--cflags", "--libs", "mpid"])
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
        }
        None => vec![
            format!("-I{}", prefix.join("include").display()),
            format!("-L{}", prefix.join("lib").display()),
            "-lmpid".to_string(),
        ],
    };
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .args(flags)
        // Before LD_LIBRARY_PATH, in which cargo has folders where a library of an earlier build may lie.
        .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", prefix.join("lib").display()))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(program)
}

fn launchers() -> Vec<Launcher> {
    [Launcher::none(), Launcher::open_mpi(3), Launcher::mpich(2)]
        .into_iter()
        .filter(|launcher| launcher.words().inspect_err(|reason| absent(reason)).is_ok())
        .collect()
}

fn run(launcher: &Launcher, program: &Path, arguments: &[&str], knobs: &[(&str, &str)]) -> Run {
    // Each rank prints to a file of its own, so that none waits for another one's buffers.
    run_printing_to(launcher, program, arguments, knobs, "$$")
}

/// Runs a program whose ranks print into files of this name, by the shell.
fn run_printing_to(
    launcher: &Launcher,
    program: &Path,
    arguments: &[&str],
    knobs: &[(&str, &str)],
    name: &str,
) -> Run {
    let _turn = gang_slot();
    let mut launcher = launcher.clone();
    let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
    for (name, value) in knobs.iter().filter(|_| !by_itself) {
        launcher = launcher.with_variable(name, value);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = launcher.command_printing(program, folder.path(), name).unwrap();
    command.args(arguments);
    if by_itself {
        command.envs(knobs.iter().copied());
    }
    let run = finish(command, RUN_TIME_MAX);
    Run { stdout: output_of_ranks(folder.path()), ..run }
}

#[test]
fn word_count() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "examples/wordcount.c") else { return };
    let texts = ["to be or not\nto be", "that is\tthe question\n\nto", "be"];
    let files: Vec<String> = (0..texts.len())
        .map(|at| {
            let path = folder.path().join(format!("text{at}"));
            std::fs::write(&path, texts[at]).unwrap();
            path.display().to_string()
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for launcher in launchers() {
        let run = run(&launcher, &program, &files, &[("HARRIER_MPID_O", "3"), ("HARRIER_MPID_A", "4")]);
        assert!(run.success, "{run:#?}");
        let counts: BTreeMap<&str, &str> =
            run.stdout.lines().map(|line| line.split_once('\t').unwrap()).collect();
        let expected = [
            ("be", "3"),
            ("is", "1"),
            ("not", "1"),
            ("or", "1"),
            ("question", "1"),
            ("that", "1"),
            ("the", "1"),
            ("to", "3"),
        ];
        assert_eq!(counts, BTreeMap::from(expected), "{launcher:?}");
        // With one task: of several that all fail, the first error to arrive is reported.
        let run = self::run(&launcher, &program, &["/no/such/file"], &[("HARRIER_MPID_O", "1")]);
        assert!(!run.success && run.stderr.contains("O task 0"), "{run:#?}");
        assert!(run.stderr.contains("failed: /no/such/file: No such file"), "{run:#?}");
    }
}

#[test]
fn header_matches_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    const KNOBS: [(&str, &str); 3] =
        [("HARRIER_MPID_O", "5"), ("HARRIER_MPID_A", "3"), ("HARRIER_MPID_BLOCK", "1024")];
    for launcher in launchers() {
        for asked in ["", "backwards"] {
            let run = run(&launcher, &program, &[asked], &KNOBS);
            assert!(run.success, "{run:#?}");
            let mut totals = (0, 0, 0);
            for line in run.stdout.lines() {
                let numbers: Vec<u64> = line
                    .split(|c: char| !c.is_ascii_digit())
                    .filter_map(|number| number.parse().ok())
                    .collect();
                totals = (totals.0 + 1, totals.1 + numbers[1], totals.2 + numbers[2]);
            }
            assert_eq!(totals, (3, 500, 499 * 500 / 2), "{launcher:?} {asked}: {run:#?}");
        }
        let run = run(&launcher, &program, &["fail"], &KNOBS);
        assert!(
            !run.success
                && run.stderr.contains("O task 1")
                && run.stderr.contains("numbers at 7: failed: on purpose"),
            "{run:#?}"
        );
    }
}

/// A value that the combiner rejects is reported with its record, whichever value it meets.
#[test]
fn rejected_values_name_their_record() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let run = run(&launcher, &program, &["wrong"], &[("HARRIER_MPID_O", "5")]);
        let message = run.stderr.lines().find(|line| line.contains("O task 2")).unwrap_or_default();
        assert!(!run.success && message.contains("numbers at 104: "), "{run:#?}");
        assert!(message.contains("key \"key\"") && message.contains("does not accept"), "{run:#?}");
    }
}

/// So is one that overflows an int64_t sum.
#[test]
fn overflowing_sums_name_their_record() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let run = run(&launcher, &program, &["overflow"], &[("HARRIER_MPID_O", "5")]);
        let message = run.stderr.lines().find(|line| line.contains("O task 2")).unwrap_or_default();
        assert!(!run.success && message.contains("numbers at 104: "), "{run:#?}");
        assert!(message.contains("key \"key\"") && message.contains("int64_t"), "{run:#?}");
    }
}

/// A pair that an A task rejects is reported with its number and its key.
#[test]
fn rejected_pairs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let run = run(&launcher, &program, &["sizes"], &[("HARRIER_MPID_O", "5"), ("HARRIER_MPID_A", "1")]);
        let words =
            "A task 0 on rank 0, record 501 (key \"odd\"): failed: a pair of 3 and 8 bytes, not 4 and 8";
        assert!(!run.success && run.stderr.contains(words), "{run:#?}");
    }
}

/// A combiner, partitioner or comparator that calls the library gets an error, and the result is right.
#[test]
fn reentrant_calls_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let knobs = [("HARRIER_MPID_O", "5"), ("HARRIER_MPID_A", "3")];
        let run = run(&launcher, &program, &["calling"], &knobs);
        assert!(run.success, "{run:#?}");
        assert_eq!(sum_of_lines(&run, "sum "), 500, "{run:#?}");
        assert!(sum_of_lines(&run, "refusals ") > 100, "{run:#?}");
    }
}

/// Every rank reports the MPI_D_Fail of a combiner, partitioner or comparator, with the place.
#[test]
fn failures_of_callbacks_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for (which, place) in [
        ("combiner", "numbers at "),
        ("partitioner", "numbers at "),
        ("both", "numbers at "),
        ("comparator", "A task "),
    ] {
        for launcher in launchers() {
            let knobs = [("HARRIER_MPID_O", "5"), ("HARRIER_MPID_A", "3")];
            let run = run(&launcher, &program, &["failing", which], &knobs);
            let failures: Vec<&str> =
                run.stdout.lines().filter(|line| line.starts_with("failed: ")).collect();
            assert!(run.success && !failures.is_empty(), "{which}: {run:#?}");
            for line in failures {
                assert!(line.contains("on purpose") && line.contains(place), "{which}: {run:#?}");
            }
            assert!(!run.stderr.contains("panicked at"), "{which}: {run:#?}");
        }
    }
}

/// A rank is killed: the ranks are restarted, resume from the checkpoint, and the result is right.
#[test]
fn killed_ranks_recover_from_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in killed_ranks::launchers() {
        let words = [program.to_str().unwrap(), "killed"];
        let Some(run) = killed_ranks::run_with_killed_rank(&launcher, &words, &[]) else { return };
        killed_ranks::check(&run);
    }
}

/// Ranks that a signal ends after they have met are restarted; those that exit, successfully or not, are not.
#[test]
fn only_lost_ranks_are_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/ending.c") else { return };
    for launcher in killed_ranks::launchers() {
        for (how, again, success) in
            [("exit", false, false), ("fail", false, false), ("well", false, true), ("abort", true, false)]
        {
            let _turn = gang_slot();
            let folder = tempfile::tempdir().unwrap();
            let starts = folder.path().join("starts");
            let words = [program.to_str().unwrap(), how, starts.to_str().unwrap()];
            let Some(command) = killed_ranks::with_restarts(&launcher, folder.path(), &words) else { return };
            let run = finish(command, RUN_TIME_MAX);
            let context = format!("{launcher} {how}: {run:#?}");
            assert!(!run.timed_out && run.success == success, "{context}");
            let starts = std::fs::read_to_string(&starts).unwrap().lines().count();
            assert_eq!(run.stderr.matches("started again").count(), if again { 2 } else { 0 }, "{context}");
            // A rank may be killed for another one before it prints.
            assert!(
                if again { starts >= 3 } else { (1..=3).contains(&starts) },
                "{starts} starts, {context}"
            );
        }
    }
}

/// A program that leaves its loop before its tasks are done has no result, on any rank.
#[test]
fn unfinished_tasks_fail_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        for (how, words) in [
            ("O", "it left O task 0, numbers at 500"),
            ("A", "it left A task"),
            ("round", "it left O task 0, numbers at 500"),
            ("window", "it left O task 0, numbers at 500"),
            ("at once", "it did not ask for all of them"),
        ] {
            let knobs = [("HARRIER_MPID_A", "5")];
            let run = run(&launcher, &program, &["early", how], &knobs);
            let messages: Vec<&str> = run.stdout.lines().collect();
            assert!(!run.success && !run.timed_out && !messages.is_empty(), "{how}: {run:#?}");
            assert!(messages.iter().all(|line| *line == messages[0]), "{how}: {run:#?}");
            assert!(messages[0].contains("ended the job before its tasks were done"), "{how}: {run:#?}");
            // Alone, rank 0 is the one that does not ask; and so among several, of which another one may have
            // left a task before.
            assert!(messages[0].contains(words) || how == "at once" && messages.len() > 1, "{how}: {run:#?}");
            let printed =
                run.stderr.lines().filter(|line| line.contains("before its tasks were done")).count();
            assert_eq!(printed, 1, "{how}: {run:#?}");
        }
    }
}

/// A second job runs alone; on ranks its error says why it cannot run there.
#[test]
fn second_jobs_run_alone() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
        let run = run(&launcher, &program, &["twice"], &[("HARRIER_MPID_O", "3")]);
        assert!(!run.timed_out && run.success == by_itself, "{run:#?}");
        let second: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("second ")).collect();
        assert!(
            !second.is_empty() && sum_of_lines(&run, "pairs ") == if by_itself { 3 } else { 0 },
            "{run:#?}"
        );
        let words = "second 4 a process joins its ranks once";
        assert!(second.iter().all(|line| by_itself || line.starts_with(words)), "{run:#?}");
    }
}

/// Lines that are longer and shorter than splits, and the count of each.
fn text_files(folder: &Path) -> (BTreeMap<String, u64>, u64) {
    let texts = folder.join("texts");
    std::fs::create_dir(&texts).unwrap();
    let line = |at: usize| format!("{} {}", at % 700, "x".repeat(at * 37 % 90));
    let long = "long ".repeat(400);
    let long_lines: Vec<String> = (0..2000).map(line).chain([long, String::new()]).collect();
    std::fs::write(texts.join("a"), long_lines.join("\n") + "\n").unwrap();
    // Lines with CR LF, and one without an end.
    std::fs::write(texts.join("b"), "b 1\r\nb 2\r\nlast").unwrap();
    std::fs::write(texts.join("empty"), "").unwrap();
    let mut counts = BTreeMap::new();
    let others = ["b 1", "b 2", "last"].map(str::to_string);
    long_lines.into_iter().chain(others).for_each(|line| *counts.entry(line).or_default() += 1);
    let bytes = ["a", "b"].map(|name| std::fs::metadata(texts.join(name)).unwrap().len());
    (counts, bytes.iter().sum())
}

/// However many tasks there are and however the files are split, all tasks together have each line once, and
/// each byte.
#[test]
fn tasks_share_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/splits.c") else { return };
    let (expected, bytes) = text_files(folder.path());
    let texts = folder.path().join("texts");
    let texts = texts.to_str().unwrap();
    let counted = |run: &Run| -> BTreeMap<String, u64> {
        assert!(run.success, "{run:#?}");
        let pairs = run.stdout.lines().map(|line| line.split_once(' ').unwrap());
        pairs.map(|(count, line)| (line.to_string(), count.parse().unwrap())).collect()
    };
    for launcher in launchers() {
        for (tasks, split_bytes) in [("1", "0"), ("3", "0"), ("7", "100"), ("2", "1000"), ("5", "100000000")]
        {
            let knobs = [("HARRIER_MPID_O", tasks)];
            let run = |what: &str| run(&launcher, &program, &[what, split_bytes, texts], &knobs);
            assert_eq!(counted(&run("lines")), expected, "{tasks} tasks, {split_bytes} bytes, {launcher:?}");
            let lines = run("bytes");
            assert!(lines.success, "{lines:#?}");
            // A byte is the end of a line as well as a key.
            let counts = lines.stdout.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
            assert_eq!(counts.sum::<u64>(), bytes, "{tasks} tasks, {split_bytes} bytes, {launcher:?}");
            let numbers = counted(&run("part"));
            assert!(numbers.len() == 100 && numbers.values().all(|count| *count == 1), "{numbers:?}");
        }
        // Errors name their place.
        let bad = folder.path().join("bad");
        std::fs::write(&bad, "good\ngood\nbad\n").unwrap();
        let failed = run(&launcher, &program, &["lines", "0", bad.to_str().unwrap()], &[]);
        let message = format!("{} at 10: failed: on purpose", bad.display());
        assert!(!failed.success && failed.stderr.contains(&message), "{failed:#?}");
        let missing = run(&launcher, &program, &["lines", "0", "/no/such/file"], &[]);
        assert!(!missing.success && missing.stderr.contains("/no/such/file: No such file"), "{missing:#?}");
    }
}

/// A program that exits without MPI_D_Finalize has failed, and reports that on every rank that does; no rank
/// waits for it.
#[test]
fn exit_without_finalize_fails_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
        for (how, words) in [
            ("at once", ""),
            ("after all", ""),
            ("exit", ""),
            ("exit 7", ""),
            ("fail", "O task 0 on rank"),
            ("fail and go on", "O task 0 on rank"),
        ] {
            let run = run(&launcher, &program, &["leaving", how], &[("HARRIER_MPID_O", "3")]);
            assert!(!run.success && !run.timed_out, "{how}: {run:#?}");
            assert!(run.stderr.contains("mpid: the program ends without MPI_D_Finalize"), "{how}: {run:#?}");
            assert!(run.stderr.contains(words), "{how}: {run:#?}");
            assert!(words.is_empty() || run.stderr.contains("failed: on purpose"), "{how}: {run:#?}");
            assert!(!by_itself || run.stdout == "a line that is not lost\n", "{how}: {run:#?}");
        }
    }
    // The program's own message and status are unchanged.
    for (how, expected) in [("fail", 1), ("exit", 1), ("exit 7", 7)] {
        let status = Command::new(&program).args(["leaving", how]).output().unwrap().status;
        assert_eq!(status.code(), Some(expected), "{how}");
    }
}

/// Settings that cannot be applied are not ignored.
#[test]
fn invalid_settings_fail_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        for (how, words) in [
            ("mode", "there is no mode 17"),
            ("arrangement", "there is no arrangement 99"),
            ("late", "are set before MPI_D_Init"),
            ("late mode", "are set before MPI_D_Init"),
            ("late task", "are set before MPI_D_Init"),
        ] {
            let run = run(&launcher, &program, &["settings", how], &[]);
            assert!(!run.success && !run.timed_out && !run.stdout.is_empty(), "{how}: {run:#?}");
            assert!(run.stdout.lines().all(|line| line.contains(words)), "{how}: {run:#?}");
        }
    }
}

/// Ranks with different options of a job are detected, before one waits for another.
#[test]
fn mismatched_jobs_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in
        launchers().into_iter().filter(|launcher| launcher.words().is_ok_and(|words| !words.is_empty()))
    {
        for how in ["mode", "partitioner", "comparator", "window"] {
            let run = run(&launcher, &program, &["different", how], &[]);
            assert!(!run.success && !run.timed_out && run.stdout.lines().count() > 1, "{how}: {run:#?}");
            let is_mismatch = |line: &str| line.contains("were given different jobs or knobs");
            assert!(run.stdout.lines().all(is_mismatch), "{how}: {run:#?}");
        }
    }
}

/// No rank waits for one whose environment is wrong.
#[test]
fn a_wrong_knob_on_one_rank_is_reported_on_all() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/ending.c") else { return };
    for launcher in
        launchers().into_iter().filter(|launcher| launcher.words().is_ok_and(|words| !words.is_empty()))
    {
        let _turn = gang_slot();
        let script =
            "[ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 1 ] && export HARRIER_MPID_NOSUCH=1; exec \"$@\"";
        let mut command = launcher.command("/bin/sh").unwrap();
        command.args(["-c", script, "sh"]).arg(&program).args(["well", "/dev/null"]);
        let run = finish(command, RUN_TIME_MAX);
        assert!(!run.success && !run.timed_out, "{run:#?}");
        assert!(run.stderr.contains("there is no knob NOSUCH"), "{run:#?}");
        assert!(!run.stderr.contains("is lost"), "{run:#?}");
    }
}

/// Lines of ranks that print into one place are not interleaved.
#[test]
fn printed_lines_are_not_interleaved() {
    let folder = tempfile::tempdir().unwrap();
    let input = |name: &str, line: &dyn Fn(u64) -> String| {
        let path = folder.path().join(name);
        std::fs::write(&path, (0..30_000).map(line).collect::<String>()).unwrap();
        path.display().to_string()
    };
    let words = input("words", &|at| format!("word{}\n", at * 7919 % 30_000));
    let edges = input("edges", &|at| format!("{at}\t{}\n", at * at % 30_000));
    let events = input("events", &|at| format!("{}\tkey {at}\n", at / 10_000));
    for (example, arguments) in [
        ("examples/wordcount.c", vec![&words[..]]),
        ("examples/pagerank.c", vec!["1", &edges]),
        ("examples/windows.c", vec!["1", &events]),
    ] {
        let prefix = tempfile::tempdir().unwrap();
        let Some(program) = compile(prefix.path(), example) else { return };
        let mut answers = launchers().into_iter().map(|launcher| {
            let run = run_printing_to(&launcher, &program, &arguments, &[], "all");
            assert!(run.success, "{launcher:?} {example}: {}", run.stderr);
            let mut lines: Vec<String> = run.stdout.lines().map(str::to_string).collect();
            lines.sort();
            (lines, launcher)
        });
        let (expected, _) = answers.next().expect("a program runs alone");
        // More than three ranks have in their buffers.
        assert!(expected.len() == 30_000 && expected.concat().len() > 3 * (64 << 10), "{example}");
        for (lines, launcher) in answers {
            let odd = lines.iter().find(|line| expected.binary_search(line).is_err());
            assert!(lines == expected, "{launcher:?} {example}: {odd:?} of {} lines", lines.len());
        }
    }
}

/// Programs that were linked as the README says find the installed library without any variable.
#[test]
fn installed_library_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(tool), Some(_)) = (on_path("pkg-config"), on_path("cc")) else { return absent("pkg-config") };
    let prefix = folder.path().join("prefix");
    install(&prefix);
    let output = Command::new(tool)
        .args(["--cflags", "--libs", "mpid"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    let program = folder.path().join("wordcount");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/wordcount.c");
    let compiled =
        Command::new("cc").arg(source).args(flags.split_whitespace()).arg("-o").arg(&program).status();
    assert!(compiled.unwrap().success(), "{flags}");
    let text = folder.path().join("text");
    std::fs::write(&text, "to be or not to be\n").unwrap();
    let mut command = Command::new(&program);
    command.arg(&text).env_remove("LD_LIBRARY_PATH");
    let run = finish(command, RUN_TIME_MAX);
    assert!(run.success && run.stdout.contains("be\t2\n"), "{run:#?}");
}

/// A prefix that breaks compiler flags is refused, before anything is installed.
#[test]
fn prefixes_without_valid_flags_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-mpid.sh");
    let install = |prefix: &str, from: &Path| {
        let mut command = Command::new("sh");
        command.arg(&script).arg(prefix).arg(library()).current_dir(from).output().unwrap()
    };
    for name in [
        "a b", "a\tb", "a'b", "a\"b", "a\\b", "a$b", "a`b", "a#b", "a,b", "a:b", "a[b", "a]b", "a{b", "a;b",
        "a\nb", "a\n",
    ] {
        let refused = install(name, folder.path());
        let stderr_text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && stderr_text.contains("has other characters than letters"),
            "{name}: {refused:?}"
        );
        assert!(stderr_text.contains(name), "{name}: {stderr_text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Also a relative one within such a folder.
    let within = folder.path().join("a b");
    std::fs::create_dir(&within).unwrap();
    assert!(!install("prefix", &within).status.success());
    for name in ["a-b_c.d+e@f%g=h~i", "ä"] {
        let installed = install(name, folder.path());
        assert!(installed.status.success(), "{name}: {installed:?}");
        let prefix = folder.path().join(name);
        let description = std::fs::read_to_string(prefix.join("lib/pkgconfig/mpid.pc")).unwrap();
        assert!(description.contains(&format!("prefix={}\n", prefix.display())), "{description}");
    }
}

/// Deviations from the requested options are warnings, and unknown knobs are refused.
#[test]
fn warnings_and_unknown_knobs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "examples/wordcount.c") else { return };
    let text = folder.path().join("text");
    std::fs::write(&text, "to be or not to be\n").unwrap();
    let arguments = [text.to_str().unwrap()];
    for launcher in launchers() {
        let good = run(&launcher, &program, &arguments, &[("HARRIER_MPID_TIMELINE", "/no/such/folder/file")]);
        let line = good.stderr.lines().find(|line| line.starts_with("mpid: ")).unwrap_or_default();
        assert!(good.success && line.contains("the timeline was not written"), "{good:#?}");
        assert!(line.contains("/no/such/folder/file"), "{good:#?}");
        let bad = run(&launcher, &program, &arguments, &[("HARRIER_MPID_NOSUCH", "1")]);
        assert!(!bad.success && bad.stderr.contains("there is no knob NOSUCH"), "{bad:#?}");
        let bad = run(&launcher, &program, &arguments, &[("HARRIER_MPID_A", "1000000000")]);
        assert!(!bad.success && bad.stderr.contains("a job has 65536 at most"), "{bad:#?}");
    }
}

/// The README's examples are short.
#[test]
fn word_count_examples_are_short() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for example in ["examples/wordcount.c", "../../python/examples/wordcount.py"] {
        let source = std::fs::read_to_string(here.join(example)).unwrap();
        let lines = source.lines().count();
        assert!(lines <= 30, "{example} has {lines} lines");
        // Nor are they short by long lines.
        assert!(source.lines().all(|line| line.len() <= 140), "{example}");
    }
}

/// Modes that the program was not started for are errors, and not ignored.
#[test]
fn mismatched_modes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        for (asked, own, modes) in [
            ("mode", "COM", ["ITER", "STREAM"]),
            ("iteration", "ITER", ["COM", "STREAM"]),
            ("streaming", "STREAM", ["COM", "ITER"]),
        ] {
            for mode in modes {
                let run = run(&launcher, &program, &[asked], &[("HARRIER_MPID_MODE", mode)]);
                let message = format!("a job of mode {own}, and the program was started in mode {mode}");
                assert!(!run.success && run.stderr.contains(&message), "{run:#?}");
            }
        }
        let run = run(&launcher, &program, &["streaming"], &[("HARRIER_MPID_O", "9")]);
        assert!(!run.success && run.stderr.contains("9 inputs of a stream on"), "{run:#?}");
    }
}

/// PageRank by node, by its definition.
fn plain_pagerank(edges: &[(u64, u64)], rounds: usize) -> BTreeMap<u64, f64> {
    let mut leads_to: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (from, to) in edges {
        leads_to.entry(*from).or_default().push(*to);
        leads_to.entry(*to).or_default();
    }
    let mut ranks: BTreeMap<u64, f64> = leads_to.keys().map(|node| (*node, 1.0)).collect();
    for _ in 0..rounds {
        let bare = leads_to.iter().filter(|(_, to)| to.is_empty()).map(|(node, _)| ranks[node]);
        let everybody = 0.15 + 0.85 * bare.sum::<f64>() / ranks.len() as f64;
        let mut next: BTreeMap<u64, f64> = ranks.keys().map(|node| (*node, everybody)).collect();
        for (node, to) in &leads_to {
            to.iter().for_each(|other| *next.get_mut(other).unwrap() += 0.85 * ranks[node] / to.len() as f64);
        }
        ranks = next;
    }
    ranks
}

#[test]
fn pagerank_in_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "examples/pagerank.c") else { return };
    // Nodes of 300 and more have no outgoing edges.
    let mut edges: Vec<(u64, u64)> = (0..3000u64).map(|at| (at * 7 % 300, at * at % 331)).collect();
    // The largest number is a valid one.
    edges.extend([(7, u64::MAX), (u64::MAX, 8), (u64::MAX, u64::MAX)]);
    let files: Vec<String> = edges
        .chunks(800)
        .enumerate()
        .map(|(at, edges)| {
            let path = folder.path().join(format!("edges{at}"));
            let lines: Vec<String> = edges.iter().map(|(from, to)| format!("{from}\t{to}\n")).collect();
            std::fs::write(&path, lines.concat()).unwrap();
            path.display().to_string()
        })
        .collect();
    let expected = plain_pagerank(&edges, 6);
    let arguments: Vec<&str> = ["6"].into_iter().chain(files.iter().map(String::as_str)).collect();
    for launcher in launchers() {
        let knobs = [("HARRIER_MPID_O", "2"), ("HARRIER_MPID_A", "5"), ("HARRIER_MPID_MODE", "ITER")];
        let run = run(&launcher, &program, &arguments, &knobs);
        assert!(run.success, "{run:#?}");
        let ranks: BTreeMap<u64, f64> = run
            .stdout
            .lines()
            .map(|line| line.split_once('\t').unwrap())
            .map(|(node, rank)| (node.parse().unwrap(), rank.parse().unwrap()))
            .collect();
        assert!(ranks.keys().eq(expected.keys()), "{launcher:?}: {run:#?}");
        for (node, rank) in &ranks {
            assert!((rank - expected[node]).abs() < 2e-6, "{launcher:?}, {node}: {rank}, {}", expected[node]);
        }
    }
    std::fs::write(&files[1], "1\t2\n1 and 2\n").unwrap();
    for launcher in launchers() {
        let run = run(&launcher, &program, &arguments, &[]);
        let place = format!("{} at 2: failed: an edge is two numbers", files[1]);
        assert!(!run.success && run.stderr.contains(&place), "{run:#?}");
    }
}

/// The sum of the numbers behind `what` at the beginning of lines.
fn sum_of_lines(run: &Run, what: &str) -> u64 {
    let lines = run.stdout.lines().filter_map(|line| line.strip_prefix(what));
    lines.map(|number| number.trim().parse::<u64>().unwrap()).sum()
}

#[test]
fn kept_pairs_of_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    let knobs = [("HARRIER_MPID_O", "4"), ("HARRIER_MPID_A", "5"), ("HARRIER_MPID_BLOCK", "1024")];
    for launcher in launchers() {
        let good = run(&launcher, &program, &["iteration"], &knobs);
        assert!(good.success, "{good:#?}");
        // 400 numbers, each of which was incremented in each of three rounds.
        assert_eq!(
            (sum_of_lines(&good, "kept "), sum_of_lines(&good, "sum ")),
            (400, 399 * 400 / 2 + 3 * 400),
            "{good:#?}"
        );
        let bad = run(&launcher, &program, &["iteration", "fail"], &knobs);
        assert!(!bad.success, "{bad:#?}");
        let line = bad.stderr.lines().find(|line| line.contains("O task 3")).unwrap_or_default();
        assert!(line.contains("round 2, kept pairs at 4: failed: on purpose"), "{bad:#?}");
        let bad = run(&launcher, &program, &["iteration", "fail A"], &knobs);
        let line = bad.stderr.lines().find(|line| line.contains("A task 3")).unwrap_or_default();
        assert!(!bad.success && line.contains("round 2, record 5 (key "), "{bad:#?}");
    }
}

#[test]
fn windowed_counts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(checks) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        // Little memory, so that waiting windows are spilled.
        for memory in ["100000000", "1"] {
            let run = run(
                &launcher,
                &checks,
                &["streaming"],
                &[("HARRIER_MPID_MEMORY", memory), ("HARRIER_MPID_A", "3")],
            );
            assert!(run.success, "{run:#?}");
            let inputs = sum_of_lines(&run, "inputs ");
            assert!(inputs > 0, "{run:#?}");
            assert_eq!(
                (sum_of_lines(&run, "pairs "), sum_of_lines(&run, "late ")),
                (10_000 * inputs, inputs),
                "{run:#?}"
            );
        }
        let bad = run(&launcher, &checks, &["streaming", "fail A"], &[]);
        assert!(!bad.success && bad.stderr.contains("window from 300, record 1 (key "), "{bad:#?}");
    }
    let other = tempfile::tempdir().unwrap();
    let Some(program) = compile(other.path(), "examples/windows.c") else { return };
    let stream = |name: &str, text: &str| {
        let path = other.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let one = stream("one", "0\ta\n3\tb\n9\ta\n10\ta\n35\tb c\n");
    let wrong = stream("wrong", "0\ta\n3 b\n");
    let two = stream("two", "5\tb\n36\tb c\n70\td");
    for launcher in launchers() {
        let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
        let (streams, expected) = match by_itself {
            true => (vec![&one[..]], vec!["0\ta\t2", "0\tb\t1", "10\ta\t1", "30\tb c\t1"]),
            false => {
                (vec![&one[..], &two[..]], vec!["0\ta\t2", "0\tb\t2", "10\ta\t1", "30\tb c\t2", "70\td\t1"])
            }
        };
        let arguments: Vec<&str> = ["10"].into_iter().chain(streams).collect();
        let good = run(&launcher, &program, &arguments, &[("HARRIER_MPID_MODE", "STREAM")]);
        assert!(good.success, "{good:#?}");
        let mut lines: Vec<&str> = good.stdout.lines().collect();
        lines.sort();
        assert_eq!(lines, expected, "{good:#?}");
        let bad = run(&launcher, &program, &["10", &wrong], &[]);
        let place = format!("{wrong} at 2: failed: an event is a time and a key");
        assert!(!bad.success && bad.stderr.contains("O task 0") && bad.stderr.contains(&place), "{bad:#?}");
    }
}
