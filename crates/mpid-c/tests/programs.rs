//! C programs, compiled by the tests against the header, the library and its pkg-config file, alone and under the MPI runtimes there
//! are. A runtime or a compiler that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails.

mod built;

use built::library;
use harrier_launch::{Launcher, Run, absent, alone, finish, on_path};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A run takes about a second. One that takes longer than this on any machine hangs.
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
            let told = Command::new(tool)
                .args(["--cflags", "--libs", "mpid"])
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
                .output()
                .unwrap();
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            String::from_utf8_lossy(&told.stdout).split_whitespace().map(str::to_owned).collect()
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
    let _turn = alone();
    let mut launcher = launcher.clone();
    let by_itself = launcher.words().is_ok_and(|words| words.is_empty());
    for (name, value) in knobs.iter().filter(|_| !by_itself) {
        launcher = launcher.with_variable(name, value);
    }
    let mut command = launcher.command(program).unwrap();
    command.args(arguments);
    if by_itself {
        command.envs(knobs.iter().copied());
    }
    finish(command, RUN_TIME_MAX)
}

#[test]
fn words_are_counted() {
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
        let run = self::run(&launcher, &program, &["/no/such/file"], &[("HARRIER_MPID_O", "2")]);
        assert!(!run.success && run.stderr.contains("O task 0"), "{run:#?}");
        assert!(run.stderr.contains("/no/such/file: failed: a file cannot be read"), "{run:#?}");
    }
}

#[test]
fn the_header_is_kept() {
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

/// A value that the combiner does not accept is told with the record it is from, whichever value it meets.
#[test]
fn a_wrong_value_names_its_record() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        let run = run(&launcher, &program, &["wrong"], &[("HARRIER_MPID_O", "5")]);
        let told = run.stderr.lines().find(|line| line.contains("O task 2")).unwrap_or_default();
        assert!(!run.success && told.contains("numbers at 104: "), "{run:#?}");
        assert!(told.contains("key \"key\"") && told.contains("does not accept"), "{run:#?}");
    }
}

/// Rounds and streams are there in Rust alone.
#[test]
fn other_modes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), "tests/checks.c") else { return };
    for launcher in launchers() {
        for mode in ["ITER", "STREAM"] {
            let run = run(&launcher, &program, &["mode"], &[("HARRIER_MPID_MODE", mode)]);
            let told = format!("a job of mode COM, and the program was started in mode {mode}");
            assert!(!run.success && run.stderr.contains(&told), "{run:#?}");
            assert!(run.stderr.contains("Rust"), "{run:#?}");
        }
    }
}
