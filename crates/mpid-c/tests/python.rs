//! The Python package, alone and under the installed MPI runtimes: from the checkout with the library that
//! was just built, and as the wheel that `scripts/wheel.sh` has built with maturin and installed beside
//! NumPy. What is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.

mod killed_ranks;
mod library_path;

use harrier_launch::{Launcher, Run, absent, finish, gang_slot, on_path, output_of_ranks};
use library_path::library;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a run, which takes about a second.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A Python, and the variables with which it finds the package; none for the wheel, which is installed.
struct Python {
    program: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

/// The environment with the wheel and NumPy.
fn wheel() -> Option<Python> {
    let program = checkout().join(".harrier/mpid/python/bin/python3");
    if !checkout().join(".harrier/mpid/done").exists() {
        absent("the wheel (scripts/wheel.sh)");
        return None;
    }
    Some(Python { program, variables: vec![] })
}

/// The environment's Python, which has NumPy, with the package of the checkout.
fn with_numpy() -> Option<Python> {
    wheel().map(|Python { program, .. }| Python { program, variables: from_checkout() })
}

fn from_checkout() -> Vec<(&'static str, PathBuf)> {
    vec![("PYTHONPATH", checkout().join("python")), ("HARRIER_MPID_LIBRARY", library())]
}

/// The system's Python, with the package of the checkout.
fn system() -> Option<Python> {
    let Some(program) = on_path("python3") else {
        absent("python3");
        return None;
    };
    Some(Python { program, variables: from_checkout() })
}

/// Runs a script alone and on ranks.
fn runs_on(pythons: Vec<Option<Python>>, script: &str, arguments: &[&str]) -> Vec<Run> {
    let launchers = [Launcher::none(), Launcher::open_mpi(2), Launcher::mpich(2)];
    runs_by(launchers.into(), pythons, script, arguments)
}

/// Runs one row of a table of similar cases, with the system's Python: alone, and on ranks of one MPI or the
/// other in turn.
fn runs_row(row: usize, script: &str, arguments: &[&str]) -> Vec<Run> {
    let ranks = if row.is_multiple_of(2) { Launcher::open_mpi(2) } else { Launcher::mpich(2) };
    runs_by(vec![Launcher::none(), ranks], vec![system()], script, arguments)
}

fn runs_by(
    launchers: Vec<Launcher>,
    pythons: Vec<Option<Python>>,
    script: &str,
    arguments: &[&str],
) -> Vec<Run> {
    let _turn = gang_slot();
    let mut runs = Vec::new();
    for Python { program, variables } in pythons.into_iter().flatten() {
        for launcher in &launchers {
            let folder = tempfile::tempdir().unwrap();
            let command = launcher.command_printing(&program, folder.path(), "$$");
            let Ok(mut command) = command.inspect_err(|reason| absent(reason)) else { continue };
            // On one host the ranks have the launcher's environment.
            command.envs(variables.iter().map(|(name, value)| (*name, value)));
            command.arg(checkout().join("python").join(script)).args(arguments);
            let run = finish(command, RUN_TIME_MAX);
            runs.push(Run { stdout: output_of_ranks(folder.path()), ..run });
        }
    }
    runs
}

fn runs(script: &str, arguments: &[&str]) -> Vec<Run> {
    runs_on(vec![system(), wheel()], script, arguments)
}

/// The sums of the numbers in the lines of A tasks.
fn totals(run: &Run) -> (usize, u64, u64) {
    let lines: Vec<Vec<u64>> = run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("A "))
        .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
        .collect();
    (lines.len(), lines.iter().map(|line| line[1]).sum(), lines.iter().map(|line| line[2]).sum())
}

#[test]
fn word_count() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = ["to be or not\nto be", "that is to be"]
        .iter()
        .enumerate()
        .map(|(at, text)| {
            let path = folder.path().join(at.to_string());
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for run in runs("examples/wordcount.py", &files) {
        let mut lines: Vec<&str> = run.stdout.lines().collect();
        lines.sort();
        assert_eq!(lines, ["be\t3", "is\t1", "not\t1", "or\t1", "that\t1", "to\t3"], "{run:#?}");
    }
}

/// O tasks share files by lines, by splits, and numbers.
#[test]
fn tasks_share_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let texts = folder.path().join("texts");
    std::fs::create_dir(&texts).unwrap();
    let lines: Vec<String> = (0..500).map(|at| format!("{at} {}", "ä".repeat(at * 37 % 90))).collect();
    std::fs::write(texts.join("a"), lines.join("\n")).unwrap();
    std::fs::write(texts.join("b"), "b\r\n").unwrap();
    let bytes = std::fs::metadata(texts.join("a")).unwrap().len() + 3;
    for (tasks, split_bytes) in [("1", "0"), ("5", "0"), ("3", "64")] {
        for run in runs_on(
            vec![system()],
            "tests/checks.py",
            &["shares", tasks, split_bytes, texts.to_str().unwrap()],
        ) {
            assert!(run.success && !run.stdout.contains("failed"), "{run:#?}");
            let counts = run.stdout.lines().map(|line| line.split_once(' ').unwrap());
            let counts: std::collections::BTreeMap<&str, u64> =
                counts.map(|(count, key)| (key, count.parse().unwrap())).collect();
            let one_each = |key: String| assert_eq!(counts.get(&key[..]), Some(&1), "{key}: {run:#?}");
            for line in lines.iter().map(String::as_str).chain(["b"]) {
                one_each(format!("line {line}"));
                one_each(format!("bytes {line}"));
            }
            (1000..1100).for_each(|number| one_each(format!("number {number}")));
            assert_eq!((counts["read"], counts.len()), (bytes, 2 * 501 + 100 + 1), "{run:#?}");
        }
    }
    let bad = folder.path().join("bad");
    std::fs::write(&bad, "good\nbad\n").unwrap();
    for (what, expected) in [
        ("missing", "/no/such/file: No such file".to_string()),
        ("bad", format!("{} at 5: failed: ValueError: on purpose", bad.display())),
        ("size", "split_bytes -1 is out of range".to_string()),
    ] {
        let arguments = ["no_shares", what, bad.to_str().unwrap()];
        for run in runs_on(vec![system()], "tests/checks.py", &arguments) {
            assert!(run.stdout.contains(&expected), "{what}: {run:#?}");
        }
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
    let events = input("events", &|at| format!("{}\tkey {at}\n", at / 10_000));
    let Some(Python { program, variables }) = system() else { return };
    let _turn = gang_slot();
    for (script, arguments) in
        [("examples/wordcount.py", vec![&words[..]]), ("examples/windows.py", vec!["1", &events])]
    {
        let mut expected: Option<Vec<String>> = None;
        for launcher in [Launcher::none(), Launcher::open_mpi(2), Launcher::mpich(2)] {
            let folder = tempfile::tempdir().unwrap();
            let command = launcher.command_printing(&program, folder.path(), "all");
            let Ok(mut command) = command.inspect_err(|reason| absent(reason)) else { continue };
            command.envs(variables.iter().map(|(name, value)| (*name, value)));
            command.arg(checkout().join("python").join(script)).args(&arguments);
            let run = finish(command, RUN_TIME_MAX);
            assert!(run.success, "{launcher:?} {script}: {run:#?}");
            let mut lines: Vec<String> = output_of_ranks(folder.path()).lines().map(str::to_string).collect();
            lines.sort();
            let expected = expected.get_or_insert_with(|| lines.clone());
            // More than two ranks have in their buffers.
            assert!(expected.len() == 30_000 && expected.concat().len() > 2 * (64 << 10), "{script}");
            assert!(lines == *expected, "{launcher:?} {script}: {} lines", lines.len());
        }
    }
}

#[test]
fn objects_combiners_and_failures() {
    for run in runs("tests/checks.py", &["objects"]) {
        assert_eq!(totals(&run), (2, 10, 0), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["largest"]) {
        assert_eq!(totals(&run), (3, 7, (493..500).sum()), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["fails"]) {
        assert!(run.stdout.contains("failed: O task 2") && run.stdout.contains("on purpose"), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["other_thread"]) {
        let expected = "no other thread than that of MPI_D_Init";
        assert!(run.stdout.contains("failed: O task") && run.stdout.contains(expected), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["place"]) {
        let message = run.stdout.lines().find(|line| line.contains("O task 1")).unwrap_or_default();
        assert!(message.contains("letters at 1") && message.contains("on purpose"), "{run:#?}");
    }
}

/// Integers beyond 64 bits are refused, alone and as a sum.
#[test]
fn integers_beyond_64_bits_are_refused() {
    for run in runs("tests/checks.py", &["ranges"]) {
        assert_eq!(totals(&run), (1, 4, 0), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["float_sums"]) {
        let sum: f64 = (0..1000u32).map(|number| f64::from(number) / 2.0).sum();
        assert_eq!(totals(&run), (3, 10, sum as u64), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["overflows"]) {
        assert!(run.stdout.contains("failed: O task") && run.stdout.contains("int64_t"), "{run:#?}");
    }
}

#[test]
fn custom_key_order() {
    for run in runs("tests/checks.py", &["ordered"]) {
        assert_eq!(totals(&run), (3, 500, 499 * 500 / 2), "{run:#?}");
    }
}

/// Exceptions in functions that the library calls are raised in the program, and no A task has a wrong
/// result.
#[test]
fn exceptions_of_callbacks_are_raised() {
    let rows = [
        ("combine", "ValueError", "JobError from ValueError"),
        ("combine", "KeyboardInterrupt", "KeyboardInterrupt from NoneType"),
        ("combine", "SystemExit", "SystemExit from NoneType"),
        ("combine", "early", "KeyboardInterrupt from NoneType"),
        ("combine", "none", "JobError from TypeError"),
        ("partition", "ValueError", "JobError from ValueError"),
        ("partition", "KeyboardInterrupt", "KeyboardInterrupt from NoneType"),
        ("partition", "early", "KeyboardInterrupt from NoneType"),
        ("partition", "none", "JobError from TypeError"),
        ("partition", "float", "JobError from TypeError"),
        ("partition", "large", "JobError from ValueError"),
        ("partition", "below", "JobError from ValueError"),
        ("compare", "ValueError", "JobError from ValueError"),
        ("compare", "SystemExit", "SystemExit from NoneType"),
        ("compare", "none", "JobError from TypeError"),
        ("compare", "float", "JobError from TypeError"),
        ("compare", "bool", "JobError from TypeError"),
    ];
    for (row, (which, what, expected)) in rows.into_iter().enumerate() {
        let message = match what {
            "ValueError" | "KeyboardInterrupt" | "SystemExit" => format!("{what}: on purpose ({which}, key"),
            "early" => "KeyboardInterrupt".to_string(),
            "none" if which == "combine" => "the combined value None is of type NoneType".to_string(),
            "bool" => "compare returns True, and not an int below 0".to_string(),
            _ => format!("{which} returns "),
        };
        for run in runs_row(row, "tests/checks.py", &["raises", which, what]) {
            assert!(run.stdout.contains(&format!("raised {expected}\n")), "{which} {what}: {run:#?}");
            // The ranks on which only the job has failed report the same error, if another rank has sent it.
            let others = run.stdout.lines().filter_map(|line| line.strip_prefix("told JobError "));
            for line in others.filter(|_| what != "early") {
                assert!(line.contains(&message) && line.contains(" task "), "{which} {what}: {run:#?}");
            }
            assert!(!run.stdout.contains("an answer"), "{which} {what}: {run:#?}");
            assert!(!run.stderr.contains("ctypes callback"), "{which} {what}: {run:#?}");
        }
    }
    for run in runs("tests/checks.py", &["interrupts"]) {
        assert!(
            run.stdout.contains("raised KeyboardInterrupt") && !run.stdout.contains("an answer"),
            "{run:#?}"
        );
        assert!(!run.stderr.contains("ctypes callback"), "{run:#?}");
    }
}

/// Ranks without the exception report it as well, with its key.
#[test]
fn exceptions_are_reported_on_all_ranks() {
    for (which, keys) in [("combine", "key "), ("partition", "key "), ("compare", "keys ")] {
        for (number, run) in
            runs_on(vec![system()], "tests/checks.py", &["one_raises", which]).iter().enumerate()
        {
            let messages: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("told ")).collect();
            assert_eq!(messages.len(), if number == 0 { 1 } else { 2 }, "{which}: {run:#?}");
            for line in messages {
                let message = format!("ValueError: on purpose ({which}, {keys}");
                assert!(line.contains(" task ") && line.contains(&message), "{which}: {run:#?}");
            }
        }
    }
}

/// A rank is killed: the ranks are restarted, resume from the checkpoint, and the result is right.
#[test]
fn killed_ranks_recover_from_the_checkpoint() {
    for Python { program, variables } in [system(), wheel()].into_iter().flatten() {
        let script = checkout().join("python/tests/checks.py");
        let words = [program.to_str().unwrap(), script.to_str().unwrap(), "killed"];
        for launcher in killed_ranks::launchers() {
            let Some(run) = killed_ranks::run_with_killed_rank(&launcher, &words, &variables) else {
                return;
            };
            killed_ranks::check(&run);
        }
    }
}

/// Options of the command line that the program does not support are errors, and not ignored.
#[test]
fn unsupported_options_are_refused() {
    for (knob, value, expected) in [
        ("HARRIER_MPID_MODE", "ITER", "the program is one of mode COM, and was started in mode ITER"),
        ("HARRIER_MPID_MODE", "STREAM", "mode COM"),
        ("HARRIER_MPID_O", "3", "the program has 4 O tasks, and was told 3"),
        ("HARRIER_MPID_O", "", "HARRIER_MPID_O is empty"),
    ] {
        let pythons = [system(), wheel()].map(|python| {
            python.map(|mut python| {
                python.variables.push((knob, PathBuf::from(value)));
                python
            })
        });
        for run in runs_on(pythons.into(), "tests/checks.py", &["fails"]) {
            assert!(run.stdout.contains(expected), "{knob}={value}: {run:#?}");
        }
    }
}

#[test]
fn kept_pairs_of_rounds() {
    for run in runs("tests/checks.py", &["rounds"]) {
        assert_eq!(totals(&run), (5, 90, (3..93).sum()), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["fails_in_round"]) {
        let line = run.stdout.lines().find(|line| line.contains("O task 0")).unwrap_or_default();
        assert!(line.contains("round 1, kept pairs at 7") && line.contains("on purpose"), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["ends_alone"]) {
        // Alone there is no rank to differ from.
        let is_mismatch = run.stdout.contains("after round 0 rank 0 begins another round and rank 1 ends");
        assert!(is_mismatch || run.stdout == "alone\n", "{run:#?}");
    }
}

#[test]
fn kmeans_in_rounds() {
    let folder = tempfile::tempdir().unwrap();
    // Around three places, in two files; the first points are one of each.
    let places = [(0.0, 0.0), (50.0, 0.0), (0.0, 80.0)];
    let points: Vec<(f64, f64)> = (0..60u32)
        .map(|at| {
            let (x, y) = places[at as usize % 3];
            (x + f64::from(at % 7), y + f64::from(at % 5))
        })
        .collect();
    let files: Vec<String> = points
        .chunks(30)
        .enumerate()
        .map(|(at, points)| {
            let path = folder.path().join(at.to_string());
            let lines: Vec<String> = points.iter().map(|(x, y)| format!("{x} {y}\n")).collect();
            std::fs::write(&path, lines.concat()).unwrap();
            path.display().to_string()
        })
        .collect();
    let mean = |place: usize| {
        let of_it: Vec<&(f64, f64)> = points.iter().skip(place).step_by(3).collect();
        let count = of_it.len() as f64;
        let sum = of_it.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        format!("{place} {:.6} {:.6}", sum.0 / count, sum.1 / count)
    };
    let expected: Vec<String> = (0..3).map(mean).collect();
    for run in runs("examples/kmeans.py", &["3", "10", &files[0], &files[1]]) {
        assert_eq!(run.stdout.lines().collect::<Vec<_>>(), expected, "{run:#?}");
    }
}

#[test]
fn windows_close_while_inputs_are_open() {
    for run in runs("tests/checks.py", &["windows"]) {
        // One input for each rank, and one late pair of each.
        let inputs = run.stdout.lines().filter(|line| *line == "late 1").count() as u64;
        let (_, windows, pairs) = totals(&run);
        assert!(inputs > 0, "{run:#?}");
        assert_eq!((windows, pairs), (4 * 3, 100 * inputs), "{run:#?}");
    }
    for run in runs("tests/checks.py", &["fails_in_window"]) {
        let line = run.stdout.lines().find(|line| line.contains("A task")).unwrap_or_default();
        assert!(line.contains("window from 40, record 1 (key \"key\")"), "{run:#?}");
        assert!(line.contains("on purpose"), "{run:#?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    std::fs::write(&path, "0\ta\n3\tb\n9\ta\n10\ta\n35\tb\n").unwrap();
    for run in runs("examples/windows.py", &["10", path.to_str().unwrap()]) {
        let mut lines: Vec<&str> = run.stdout.lines().collect();
        lines.sort();
        assert_eq!(lines, ["0\ta\t2", "0\tb\t1", "10\ta\t1", "30\tb\t1"], "{run:#?}");
    }
    std::fs::write(&path, "0\ta\n3\tb\nno time\n").unwrap();
    for run in runs("examples/windows.py", &["10", path.to_str().unwrap()]) {
        let place = format!("{} at 3", path.display());
        assert!(!run.success && run.stderr.contains("O task 0") && run.stderr.contains(&place), "{run:#?}");
    }
}

/// Misuse is reported in terms of the program, if possible before the job starts.
#[test]
fn misuse_is_reported() {
    for run in runs("tests/checks.py", &["refusals"]) {
        assert_eq!(totals(&run), (1, 1, 0), "{run:#?}");
    }
    for check in ["wrong_bytes", "wrong_pairs"] {
        for run in runs_on(vec![system()], "tests/checks.py", &[check]) {
            assert_eq!(totals(&run), (1, 1, 0), "{run:#?}");
        }
    }
    let rows = [
        ("text", "yields 'ab', and not (key, value)"),
        ("none", "yields None, and not (key, value)"),
        ("three", "yields ('a', 1, 2), and not (key, value)"),
        ("number", "returns 5: it yields pairs, or returns an iterable of them, or None"),
        ("async", "returns <coroutine object"),
        ("generator", "returns a generator, and its work would not be done"),
        ("callable", "returns a generator, and its work would not be done"),
        ("coroutine", "returns a coroutine, and its work would not be done"),
    ];
    for (row, (what, expected)) in rows.into_iter().enumerate() {
        for run in runs_row(row, "tests/checks.py", &["yields", what]) {
            assert!(run.stdout.contains("failed: ") && run.stdout.contains(expected), "{what}: {run:#?}");
            assert!(!run.stderr.contains("never awaited"), "{what}: {run:#?}");
        }
    }
    for run in runs_on(vec![system()], "tests/checks.py", &["odd_place"]) {
        assert!(run.stdout.contains("caf\u{fffd} at 7: failed: ValueError: on purpose"), "{run:#?}");
    }
    for how in ["groups", "pairs"] {
        for run in runs_on(vec![system()], "tests/checks.py", &["fails_at_key", how]) {
            assert!(run.stdout.contains("ValueError: on purpose (key -7)"), "{how}: {run:#?}");
        }
    }
}

/// Jobs run one after the other, and on ranks there is one.
#[test]
fn nested_jobs_are_refused() {
    let rows = [
        ("o", "a job of this process has not ended"),
        ("a", "a job of this process has not ended"),
        ("combine", "a job of this process has not ended"),
        ("rounds", "a job of this process has not ended, and goes on"),
        ("round", "run of Rounds is called between rounds"),
        ("sum", "sum of Rounds is called between rounds"),
    ];
    for (row, (which, expected)) in rows.into_iter().enumerate() {
        for run in runs_row(row, "tests/checks.py", &["nested", which]) {
            assert!(run.stdout.contains("failed: ") && run.stdout.contains(expected), "{which}: {run:#?}");
        }
    }
    for (number, run) in runs_on(vec![system()], "tests/checks.py", &["several"]).iter().enumerate() {
        match number {
            0 => assert_eq!(run.stdout, "A 2 2 0\nA 3 3 0\n", "{run:#?}"),
            _ => assert!(run.stdout.contains("it joins its ranks once"), "{run:#?}"),
        }
    }
}

/// Numbers in arrays equal those of yielded pairs, and are added up, ordered and partitioned as such.
#[test]
fn arrays_of_pairs() {
    for value in ["int", "float"] {
        for how in ["pairs", "arrays"] {
            for run in runs_on(vec![with_numpy()], "tests/checks.py", &["array_pairs", value, how]) {
                assert_eq!(totals(&run), (3, 200, 0), "{value} {how}: {run:#?}");
            }
        }
    }
    for run in runs_on(vec![with_numpy()], "tests/checks.py", &["array_bytes"]) {
        assert_eq!(totals(&run), (1, 6, 0), "{run:#?}");
    }
}

#[test]
fn arrays_of_unsupported_types_are_refused() {
    for run in runs_on(vec![with_numpy()], "tests/checks.py", &["wrong_arrays"]) {
        assert_eq!(totals(&run), (1, 19, 0), "{run:#?}");
    }
    for run in runs_on(vec![with_numpy()], "tests/checks.py", &["arrays_of_others"]) {
        assert_eq!(totals(&run), (1, 1, 0), "{run:#?}");
    }
}

#[test]
fn arrays_of_objects_are_refused() {
    for run in runs_on(vec![wheel()], "tests/checks.py", &["object_arrays"]) {
        assert_eq!(totals(&run), (1, 2, 0), "{run:#?}");
    }
}

#[test]
fn arrays_are_sent_and_received() {
    // The environment of the wheel has NumPy.
    for run in runs_on(vec![wheel()], "tests/checks.py", &["arrays"]) {
        assert_eq!(totals(&run), (3, 4000, 3999 * 4000 / 2), "{run:#?}");
    }
}
