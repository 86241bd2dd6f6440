//! `harrier doctor`: prints the properties of this machine and its problems.
//!
//! MPI libraries are loaded in child processes, one for each launcher: the library a rank loads depends on
//! its launcher, and a crash of the library ends the child only.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harrier_engine::{Engine, EngineOptions, memory_size};
use harrier_exec::Carrier;
use harrier_exec::Launch;
use harrier_server::config::{Config, Gravity, on_path};

use harrier_error::exit;

use crate::completions::print_line;

/// With less free space than this, statements that spill are likely to fail.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// With less free shared memory than this, MPI may not start more than a few ranks: Open MPI takes 4 MiB for
/// each.
const SHARED_BYTES_MIN: u64 = 64 << 20;

/// With fewer open files than this, statements over many of them are likely to fail.
const OPEN_FILES_MIN: u64 = 1024;

/// Numbers of ranks per machine for which the memory limit of a rank is shown.
const RANKS_SHOWN: [u64; 4] = [2, 4, 8, 16];

/// Folder of the shared memory segments of MPI libraries.
const SHARED_MEMORY: &str = "/dev/shm";

/// Launchers to try here. `srun` is not among them: it would request a job.
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];

/// Timeout of starting one process. Some launchers resolve host names first.
const LAUNCH_WAIT_MAX: Duration = Duration::from_secs(20);

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only say which MPI library this process would load
    #[arg(long, hide = true)]
    find_mpi: bool,
    /// Explain this configuration file of harrier serve, too, and what would go wrong with it here
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Prints one line per finding, then notes and problems; status 3 if there is a problem. In a gang, rank 0
/// prints the findings, and every rank prints its own problems.
pub(crate) fn run(args: Args) -> ExitCode {
    if args.find_mpi {
        return find_mpi();
    }
    let mut findings = Findings { rank: harrier_exec::launched_rank(), notes: Vec::new(), wrong: Vec::new() };
    let version = env!("CARGO_PKG_VERSION");
    if cfg!(optimised) {
        findings.show("version", format_args!("harrier {version}"));
    } else {
        findings.show(
            "version",
            format_args!("harrier {version}, not optimised: make build makes the one to use"),
        );
    }
    findings.show("system", format_args!("{} {}", env::consts::OS, env::consts::ARCH));
    cores(&mut findings);
    machine_memory(&mut findings);
    limits(&mut findings);
    shared_memory(&mut findings);
    temporary_files(&mut findings);
    findings.show("terminal", if io::stdout().is_terminal() { "yes" } else { "no" });
    mpi(&mut findings);
    if let Some(path) = &args.config {
        configuration(path, &mut findings);
    }
    findings.conclude()
}

/// Notes and problems, printed at the end. Every entry says what to do about it.
struct Findings {
    rank: Option<usize>,
    /// Harrier runs, but not all of it.
    notes: Vec<String>,
    wrong: Vec<String>,
}

impl Findings {
    fn show(&self, name: &str, value: impl Display) {
        if self.rank.unwrap_or(0) == 0 {
            print_line(format_args!("{name:<16} {value}"));
        }
    }

    fn conclude(self) -> ExitCode {
        let place = self.rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
        if self.rank.unwrap_or(0) == 0 {
            self.notes.iter().for_each(|note| print_line(format_args!("NOTE: {place}{note}")));
        }
        self.wrong.iter().for_each(|problem| print_line(format_args!("WRONG: {place}{problem}")));
        if !self.wrong.is_empty() {
            return ExitCode::from(exit::BROKEN);
        }
        if self.rank.unwrap_or(0) == 0 {
            print_line(format_args!("everything found is in order"));
        }
        ExitCode::from(exit::DONE)
    }
}

fn cores(findings: &mut Findings) {
    match thread::available_parallelism() {
        Ok(cores) => findings.show("cores", cores),
        Err(error) => {
            findings.wrong.push(format!("the number of cores is unknown ({error}); give it as --threads"));
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
        findings.show("AVX2", if has_avx2 { "yes" } else { "no" });
    }
}

fn machine_memory(findings: &mut Findings) {
    match memory_size::machine_bytes() {
        Some(bytes) => findings.show(
            "memory",
            format_args!(
                "{}, of which statements may hold {}",
                memory_size::format_bytes(bytes),
                memory_size::format_bytes(memory_size::default_bytes().unwrap_or(bytes))
            ),
        ),
        None => findings
            .wrong
            .push("the size of the memory is unknown; statements have no limit without --memory".to_string()),
    }
    let share = |ranks: u64| {
        memory_size::default_bytes_of(ranks)
            .map(|bytes| format!("{} of {ranks}", memory_size::format_bytes(bytes)))
    };
    let shares: Vec<String> = RANKS_SHOWN.into_iter().filter_map(share).collect();
    if !shares.is_empty() {
        findings.show("memory of a rank", format_args!("{} ranks on this machine", shares.join(", ")));
    }
    if let Some(bytes) = memory_size::address_space_bytes() {
        findings
            .show("address space", format_args!("{} at most (ulimit -v)", memory_size::format_bytes(bytes)));
    }
}

/// Resource limits (ulimit) that can fail statements despite free resources.
fn limits(findings: &mut Findings) {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(files) = limit(&text, "Max open files") {
        findings.show("open files", format_args!("{files} at most (ulimit -n)"));
        if files < OPEN_FILES_MIN {
            findings.notes.push(format!(
                "{files} open files are few for statements that read many or spill; ulimit -n {OPEN_FILES_MIN} allows more"
            ));
        }
    }
    if let Some(bytes) = limit(&text, "Max file size") {
        findings
            .show("size of a file", format_args!("{} at most (ulimit -f)", memory_size::format_bytes(bytes)));
    }
}

/// The limit called `name` in proc(5)'s list; `None` for unlimited.
fn limit(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn shared_memory(findings: &mut Findings) {
    let Some((bytes, free)) = space(Path::new(SHARED_MEMORY)) else {
        let note =
            format!("there is no {SHARED_MEMORY}; mount it, or ranks on one host exchange rows more slowly");
        findings.notes.push(note);
        return;
    };
    let (size, left) = (memory_size::format_bytes(bytes), memory_size::format_bytes(free));
    findings.show("shared memory", format_args!("{SHARED_MEMORY}, {size}, {left} free"));
    if free < SHARED_BYTES_MIN {
        findings.notes.push(format!(
            "only {left} are free in {SHARED_MEMORY}, and a gang on this host may not start; enlarge it, as with \
             docker run --shm-size=1g or mount -o remount,size=1g {SHARED_MEMORY}"
        ));
    }
}

fn temporary_files(findings: &mut Findings) {
    let folder = env::temp_dir();
    let free = space(&folder).map(|(_, free)| free);
    match free {
        Some(free) => findings.show(
            "temporary files",
            format_args!("{}, {} free", folder.display(), memory_size::format_bytes(free)),
        ),
        None => findings.show("temporary files", folder.display()),
    }
    if free.is_some_and(|free| free < FREE_BYTES_MIN) {
        findings
            .wrong
            .push(format!("little space is left in {}; set TMPDIR to a folder with more", folder.display()));
    }
    let mut options = EngineOptions::default();
    options.spill_dirs = vec![folder];
    if let Err(error) = Engine::try_new(options) {
        findings.wrong.push(format!("{}; set TMPDIR to a folder that can be written", error.message));
    }
}

/// Size of the file system that holds `folder`, and the space available to this user, in bytes.
fn space(folder: &Path) -> Option<(u64, u64)> {
    let file_system = nix::sys::statvfs::statvfs(folder).ok()?;
    let unit = file_system.fragment_size();
    Some((file_system.blocks().checked_mul(unit)?, file_system.blocks_available().checked_mul(unit)?))
}

fn mpi(findings: &mut Findings) {
    // Also that of a single rank, which runs as if alone.
    let launcher = harrier_mpi::launcher_sign();
    let launched = match harrier_exec::launch(None, false) {
        Ok(Some(Launch { rank, carrier: Carrier::Quic(place), .. })) => {
            let ranks = place.addresses.len();
            findings.show("launched", format_args!("as rank {rank} of {ranks}, to meet over QUIC"));
            return findings.show("address", &place.addresses[rank]);
        }
        Ok(Some(Launch { rank, ranks: Some(ranks), .. })) => {
            findings.show("launched", format_args!("as rank {rank} of {ranks}"));
            true
        }
        Ok(Some(Launch { rank, ranks: None, .. })) => {
            findings.show("launched", format_args!("as rank {rank}; MPI is asked of how many"));
            true
        }
        Ok(None) => {
            match &launcher {
                Some(sign) => {
                    findings.show("launched", format_args!("as the only rank of a launcher ({sign})"))
                }
                None => findings.show("launched", "alone, or told to be"),
            }
            false
        }
        Err(error) => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            findings.wrong.push(format!("{error}{hint}"));
            true
        }
    };
    match loaded_library(&[]) {
        Ok(library) => findings.show("MPI library", library),
        Err(reason) if launched => {
            findings.wrong.push(format!("this rank cannot load an MPI library: {reason}"));
        }
        Err(reason) => {
            findings.show("MPI library", "none");
            findings.notes.push(format!("statements run in one process only: {reason}"));
        }
    }
    // Launchers cannot be nested.
    match launcher {
        Some(sign) => findings.show("launchers", format_args!("not tried within one ({sign})")),
        None if launched => {}
        None => launchers(findings),
    }
}

/// Values of a configuration file that differ from the defaults, and those that would not work here.
fn configuration(path: &Path, findings: &mut Findings) {
    findings.show("configuration", path.display());
    let config = match Config::load(path) {
        Ok(config) => config,
        Err(error) => {
            let place = path.display();
            return findings.wrong.extend(error.problems.iter().map(|problem| format!("{place}, {problem}")));
        }
    };
    let defaults = Config::default().values();
    for (key, (value, default)) in Config::keys().iter().zip(config.values().into_iter().zip(defaults)) {
        if value == default {
            continue;
        }
        findings.show(&key.name, value);
        key.documentation.iter().for_each(|line| findings.show("", line.trim_start()));
    }
    for name in config.settings.0.keys() {
        // Names only: values may be secrets.
        findings.show(&format!("settings.{name}"), "is set in every session");
    }
    findings.wrong.extend(crate::serve::settings::invalid_settings(&config));
    for finding in config.findings() {
        let message = format!("{}: {}", finding.key, finding.message);
        match finding.gravity {
            Gravity::Note => findings.notes.push(message),
            Gravity::Wrong => findings.wrong.push(message),
        }
    }
}

fn launchers(findings: &mut Findings) {
    let found: Vec<_> = LAUNCHERS.iter().filter_map(|name| Some((*name, on_path(name)?))).collect();
    for (name, path) in &found {
        let path = path.display();
        match loaded_library(&[name, "-n", "1"]) {
            Ok(library) => findings.show(name, format_args!("{path}, whose ranks load {library}")),
            Err(reason) => {
                findings.show(name, format_args!("{path}, which starts no rank"));
                findings
                    .wrong
                    .push(format!("{name} ({path}) starts no rank that could join a gang: {reason}"));
            }
        }
    }
    let srun = on_path("srun");
    if let Some(path) = &srun {
        findings.show("srun", path.display());
    }
    if found.is_empty() && srun.is_none() {
        findings.show("launchers", "none");
        findings.notes.push(
            "neither mpirun nor mpiexec nor srun is in PATH; install Open MPI or MPICH to run on several ranks"
                .to_string(),
        );
    }
}

/// The MPI library that this program loads when `launcher` (program and arguments, or empty) starts it.
/// Errors: the reason why none was loaded.
fn loaded_library(launcher: &[&str]) -> Result<String, String> {
    let own = env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
    let mut command = match launcher.split_first() {
        None => Command::new(&own),
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&own);
            command
        }
    };
    // Environment variables are the only way that other launchers accept as well.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["doctor", "--find-mpi"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < LAUNCH_WAIT_MAX => thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} seconds", LAUNCH_WAIT_MAX.as_secs()));
            }
        }
    };
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let read = |pipe: Option<&mut dyn Read>, text: &mut String| {
        pipe.map(|pipe| pipe.read_to_string(text)).transpose()
    };
    let _ = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read), &mut stdout);
    let _ = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read), &mut stderr);
    let marked_line =
        |text: &str, mark: &str| text.lines().find_map(|line| line.strip_prefix(mark).map(str::to_string));
    if let Some(library) = marked_line(&stdout, FOUND) {
        return Ok(library);
    }
    Err(marked_line(&stdout, NOT_FOUND).unwrap_or_else(|| {
        // The launcher's message, without its frames of dashes.
        let said = stderr.lines().find(|line| line.chars().any(char::is_alphabetic));
        format!("it ended with {status}: {}", said.unwrap_or("nothing was said").trim())
    }))
}

const FOUND: &str = "MPI: ";
const NOT_FOUND: &str = "no MPI: ";

/// Child side of [`loaded_library`]: prints the library found by this process.
fn find_mpi() -> ExitCode {
    match harrier_mpi::find_library(&harrier_mpi::Options::default()) {
        Ok(library) => {
            print_line(format_args!(
                "{FOUND}{} ({}, {})",
                library.path.display(),
                library.abi,
                library.version
            ));
        }
        Err(error) => {
            let text: Vec<_> =
                [Some(error.to_string()), error.detail(), error.hint()].into_iter().flatten().collect();
            print_line(format_args!("{NOT_FOUND}{}", text.join("; ")));
        }
    }
    ExitCode::from(exit::DONE)
}
