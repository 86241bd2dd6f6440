//! Configuration of a gang, and the launcher process that starts its ranks and ends with them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use harrier_engine::{EngineOptions, memory_size};
use harrier_server::config::values::GangLauncher;
use harrier_server::config::{Config, on_path};
use tokio::process::{Child, Command};

use super::hosts::{self, Hosts};
use super::segments;

/// Time for a launcher to end after a request.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Configuration of the gang.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Never [`GangLauncher::Auto`].
    pub(super) launcher: GangLauncher,
    /// Number of working ranks; 1: statements run in the server's process.
    pub(super) ranks: usize,
    pub(super) spares: usize,
    /// Threads of each rank, or of the server's process without ranks.
    pub(super) threads: usize,
    /// Memory of each rank, in bytes.
    pub(super) memory_bytes: Option<u64>,
    /// Hosts of a hosts file.
    pub(super) hosts: Option<Arc<Hosts>>,
    /// Command that runs programs on other hosts.
    shell: String,
    pub(super) spill_dirs: Vec<PathBuf>,
    /// Appended to the other arguments of the launcher; they replace Harrier's arguments of the same name.
    pub(super) arguments: Vec<String>,
}

impl Plan {
    /// Resolves the configuration on this machine.
    ///
    /// Errors: the configured launcher is not in PATH; a line for the user.
    pub(super) fn of(config: &Config, options: &EngineOptions) -> Result<Self, String> {
        let gang = &config.gang;
        let launcher = launcher(config)?;
        let cores = options.threads;
        let threads = gang.threads_per_rank.get().map(|threads| *threads as usize);
        // A single rank has nobody to share the work with; this process does it.
        let ranks = match launcher {
            GangLauncher::None | GangLauncher::Auto => 1,
            _ => match (gang.ranks.get(), launcher) {
                (Some(ranks), _) => *ranks as usize,
                (None, GangLauncher::Srun) => allocated_ranks().unwrap_or(cores),
                (None, _) => cores,
            },
        };
        let spares = if ranks > 1 { gang.spares as usize } else { 0 };
        let hosts = match launcher {
            GangLauncher::Srun => {
                slurm("SLURM_JOB_NUM_NODES").and_then(|nodes| nodes.parse().ok()).unwrap_or(1)
            }
            _ => 1_usize,
        };
        // Ranks on the server's host.
        let here = |ranks: usize| ranks.div_ceil(hosts.max(1));
        let (working_here, ranks_here) = (here(ranks), here(ranks + spares));
        Ok(Self {
            launcher,
            ranks,
            spares,
            threads: threads.unwrap_or((cores / working_here).max(1)),
            memory_bytes: match gang.memory.get() {
                Some(memory) => Some(memory.0 / (ranks_here + 1) as u64),
                None => memory_size::default_bytes_of((ranks_here + 1) as u64),
            },
            hosts: gang.hostfile.get().map(|path| Arc::new(Hosts::new(path.clone(), &gang.remote_shell))),
            shell: gang.remote_shell.clone(),
            spill_dirs: options.spill_dirs.clone(),
            arguments: gang.launcher_arguments.clone(),
        })
    }

    /// Number of ranks, including spares.
    pub(super) fn count(&self) -> usize {
        self.ranks + self.spares
    }

    /// The command that starts the ranks of the gang `name`, whose files go to `folder`. `failures`:
    /// consecutive failed starts.
    ///
    /// Errors: messages for the user.
    pub(super) async fn command(
        &self,
        name: &str,
        folder: &Path,
        failures: u32,
    ) -> Result<StartCommand, String> {
        let desk = folder.join(format!("desk-{name}"));
        let _ = std::fs::remove_file(&desk);
        let binary = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let binary = executable_path(binary, self.hosts.is_none() && self.launcher == GangLauncher::Mpirun);
        let ranks = self.count().to_string();
        let mut words: Vec<OsString> = match self.launcher {
            GangLauncher::None | GangLauncher::Auto => return Err("there is to be none".to_string()),
            GangLauncher::Srun => srun_command(&ranks, &self.arguments),
            GangLauncher::Mpirun => {
                let mpirun = Mpirun::find()?;
                let path = folder.join("hosts");
                let placed = match &self.hosts {
                    Some(hosts) => {
                        hosts.place(self.count(), failures, &path, mpirun.line()).await?;
                        Some(path.as_path())
                    }
                    None => None,
                };
                mpirun.words(&ranks, placed, &self.shell, &self.arguments)
            }
        };
        words.extend(self.arguments.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(binary).arg("rank").arg("--desk").arg(&desk);
        command.arg("--threads").arg(self.threads.to_string());
        command.arg("--spares").arg(self.spares.to_string());
        if let Some(bytes) = self.memory_bytes {
            command.arg("--memory").arg(format!("{bytes}"));
        }
        for folder in &self.spill_dirs {
            command.arg("--spill-dir").arg(folder);
        }
        if let Some(segments) = segments::folder(name) {
            command.arg("--segments").arg(&segments);
            command.envs(segments::VARIABLES.map(|variable| (variable, &segments)));
        }
        // The ranks' stderr is for the log; their stdout is discarded.
        command.env_remove("HARRIER_ALONE");
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
        Ok(StartCommand { command, desk })
    }
}

/// Path of this program for the ranks. A binary that was replaced while it runs, as by an upgrade, is
/// executed through `/proc` on this host: ranks of another build could not communicate with this server.
/// `all_here`: the whole gang is on this host.
fn executable_path(binary: PathBuf, all_here: bool) -> PathBuf {
    match binary.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(_) if all_here => PathBuf::from(format!("/proc/{}/exe", std::process::id())),
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => binary,
    }
}

/// Command and socket of a new gang.
pub(super) struct StartCommand {
    pub(super) command: Command,
    /// Socket on which rank 0 takes plans.
    pub(super) desk: PathBuf,
}

/// Chooses the launcher. With automatic choice and no launcher available, there are no ranks.
fn launcher(config: &Config) -> Result<GangLauncher, String> {
    let gang = &config.gang;
    match gang.launcher {
        GangLauncher::Auto => {}
        GangLauncher::None => return Ok(GangLauncher::None),
        named if on_path(named.word()).is_some() => return Ok(named),
        named => {
            let (word, hint) = (named.word(), "install it, or choose another with --launcher");
            return Err(format!("ERROR F0000: launcher {word} is not in PATH\nHINT: {hint}"));
        }
    }
    let is_slurm = std::env::var_os("SLURM_JOB_ID").is_some() && on_path(GangLauncher::Srun.word()).is_some();
    // Slurm chooses the hosts itself.
    if is_slurm && gang.hostfile.get().is_none() {
        return Ok(GangLauncher::Srun);
    }
    if on_path(GangLauncher::Mpirun.word()).is_some() {
        return Ok(GangLauncher::Mpirun);
    }
    if gang.ranks.get() != Some(&1) {
        tracing::warn!(
            "there is no mpirun in PATH and no Slurm allocation: statements run in this process alone"
        );
    }
    Ok(GangLauncher::None)
}

/// A launcher process, ended with all its children.
pub(super) struct LauncherProcess(pub(super) Option<Child>);

impl LauncherProcess {
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.0 {
            Some(child) => child.try_wait(),
            None => Ok(None),
        }
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Some(child) => child.wait().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the launcher: waits for it to exit by itself, as it does without its front end, then sends
    /// SIGTERM, then SIGKILL.
    pub(super) async fn end(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(nix::unistd::Pid::from_raw);
        let signal = |signal| {
            if let Some(group) = group {
                let _ = nix::sys::signal::killpg(group, signal);
            }
        };
        if tokio::time::timeout(END_PATIENCE, child.wait()).await.is_err() {
            signal(nix::sys::signal::Signal::SIGTERM);
            let _ = tokio::time::timeout(END_PATIENCE, child.wait()).await;
        }
        // Open MPI's ranks have process groups of their own; they end with their launcher or front end.
        signal(nix::sys::signal::Signal::SIGKILL);
        let _ = child.wait().await;
    }
}

/// Ranks of a Slurm allocation: its tasks, or else its cores.
fn allocated_ranks() -> Option<usize> {
    if let Some(tasks) = slurm("SLURM_NTASKS").and_then(|tasks| tasks.parse().ok()) {
        return Some(tasks);
    }
    cores_of_nodes(&slurm("SLURM_JOB_CPUS_PER_NODE")?)
}

/// A variable of the Slurm allocation.
fn slurm(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// The sum of Slurm's notation `8(x4),16`.
fn cores_of_nodes(text: &str) -> Option<usize> {
    let cores = |nodes: &str| {
        let (cores, times) = match nodes.split_once("(x") {
            Some((cores, times)) => (cores, times.strip_suffix(')')?.parse().ok()?),
            None => (nodes, 1),
        };
        Some(cores.parse::<usize>().ok()? * times)
    };
    text.split(',').map(cores).sum::<Option<usize>>().filter(|sum| *sum > 0)
}

fn srun_command(ranks: &str, arguments: &[String]) -> Vec<OsString> {
    // Concurrent steps of an allocation require permission to share its resources.
    let mut words = vec!["srun", "--overlap"];
    if std::env::var_os("SLURM_MPI_TYPE").is_none() {
        words.push("--mpi=pmix");
    }
    words.extend(["--kill-on-bad-exit=0", "--cpu-bind=none", "-n", ranks]);
    words.retain(|word| !sets_option(arguments, word));
    words.into_iter().map(OsString::from).collect()
}

/// Whether `arguments` set `option` themselves, as `--option` or `--option=value`.
fn sets_option(arguments: &[String], option: &str) -> bool {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_string();
    // Open MPI also accepts a single dash.
    let plain = |word: &str| name(word).trim_start_matches('-').to_string();
    let short = match option {
        "--kill-on-bad-exit=0" => "-K",
        _ => "",
    };
    option.starts_with("--")
        && arguments.iter().any(|argument| {
            argument.starts_with('-') && plain(argument) == plain(option)
                || !short.is_empty() && argument.starts_with(short)
        })
}

/// The `mpirun` of this machine.
struct Mpirun {
    program: PathBuf,
    /// Output of `--version`.
    version: String,
}

impl Mpirun {
    fn find() -> Result<Self, String> {
        let program = on_path("mpirun").ok_or("there is no mpirun on the path")?;
        let version = std::process::Command::new(&program)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Self { program, version: String::from_utf8_lossy(&version.stdout).into_owned() })
    }

    /// Whether it is MPICH's Hydra, not Open MPI.
    fn is_hydra(&self) -> bool {
        self.version.contains("HYDRA")
    }

    /// Formats a hosts file line for one rank.
    fn line(&self) -> fn(&str) -> String {
        match self.is_hydra() {
            true => |host| format!("{host}:1\n"),
            false => |host| format!("{host}\n"),
        }
    }

    /// `placed`: a hosts file with one line per rank.
    fn words(self, ranks: &str, placed: Option<&Path>, shell: &str, arguments: &[String]) -> Vec<OsString> {
        let is_hydra = self.is_hydra();
        let mut words: Vec<OsString> = vec![self.program.into()];
        if is_hydra {
            // Otherwise Hydra ends all ranks when one dies.
            words.push("-disable-auto-cleanup".into());
            if let Some(hosts) = placed {
                words.extend(["-f".into(), hosts.into()]);
                if !matches!(shell, "ssh" | "none") {
                    words.extend(["-launcher-exec".into(), shell.into()]);
                }
            }
        } else {
            let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
            if is_root {
                words.push("--allow-run-as-root".into());
            }
            // Open MPI 4 only: later versions end all ranks when one dies, and the gang is restarted.
            if self.version.contains(") 4.") {
                words.push("--enable-recovery".into());
            }
            let order = if placed.is_some() { "seq:OVERSUBSCRIBE" } else { ":OVERSUBSCRIBE" };
            for option in [["--bind-to", "none"], ["--map-by", order]] {
                if !sets_option(arguments, option[0]) {
                    words.extend(option.map(OsString::from));
                }
            }
            const YIELD: &str = "mpi_yield_when_idle";
            if arguments.iter().all(|argument| argument != YIELD) {
                words.extend(["--mca", YIELD, "1"].map(OsString::from));
            }
            if let Some(hosts) = placed {
                words.extend(["--hostfile".into(), hosts.into()]);
                words.extend(hosts::open_mpi_shell(shell));
            }
        }
        words.extend(["-n".into(), ranks.into()]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_the_configuration_take_the_place_of_ours() {
        let line = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
            let words = |words: Vec<OsString>| {
                words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
            };
            let mpirun = Mpirun { program: "mpirun".into(), version: "mpirun (Open MPI) 5.0.11".to_string() };
            (words(srun_command("2", &arguments)), words(mpirun.words("2", None, "ssh", &arguments)))
        };
        let (srun, mpirun) = line(&[]);
        assert!(srun.contains(" --kill-on-bad-exit=0 --cpu-bind=none -n 2"), "{srun}");
        assert!(
            mpirun.ends_with("--bind-to none --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 -n 2"),
            "{mpirun}"
        );
        let (srun, mpirun) = line(&["--mpi=pmi2", "--bind-to", "core", "-K1"]);
        assert!(
            !srun.contains("pmix") && !srun.contains("kill-on") && srun.contains("--cpu-bind=none"),
            "{srun}"
        );
        assert!(!mpirun.contains("--bind-to") && mpirun.contains("--map-by"), "{mpirun}");
    }

    #[test]
    fn cores_of_an_allocation_are_added_up() {
        let cases = [
            ("8", Some(8)),
            ("8(x4)", Some(32)),
            ("8(x2),16", Some(32)),
            ("", None),
            ("8(x", None),
            ("0", None),
        ];
        for (text, expected) in cases {
            assert_eq!(cores_of_nodes(text), expected, "{text}");
        }
    }
}
