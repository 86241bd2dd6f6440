//! A gang under a real launcher: starts it, sends statements, tracks its processes, and checks that it leaves
//! nothing behind, with a timeout for every wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harrier_launch::{GangSlot, Hosts, Launcher, with_default_signals};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::BINARY;

/// Timeout of every wait.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Processor time of a rank after which it has surely started and executes a statement.
const STARTED_CPU: Duration = Duration::from_millis(1000);

/// Processor time that shows that a rank computes, not only replies.
const BUSY_CPU: Duration = Duration::from_millis(200);

/// Processor time that all idle ranks together may use in a second: heartbeats, and cleanup of a statement.
pub const IDLE_CPU_MAX: Duration = Duration::from_millis(250);

/// Environment variable that marks the processes of one gang, whatever their parents.
const MARK: &str = "HARRIER_TEST_GANG";

/// Launch options of a gang.
#[derive(Default)]
pub struct Start<'a> {
    pub ranks: usize,
    /// Options of the launcher.
    pub options: &'a [&'a str],
    /// Arguments of `harrier sql`.
    pub arguments: &'a [&'a str],
    pub environment: &'a [(&'a str, &'a str)],
    /// Shell script that every rank runs, in which `"$@"` is the program and its arguments; empty for none.
    pub wrapper: &'a str,
}

impl Start<'_> {
    pub fn gang(&self) -> Gang {
        Gang::start(self)
    }
}

/// Starts a gang that runs `-c` with `sql`.
pub fn running(ranks: usize, sql: &str) -> Gang {
    Start { ranks, arguments: &["-c", sql], ..Start::default() }.gang()
}

/// Starts a gang that answers statements, and checks the ledgers of all ranks after each.
pub fn session(ranks: usize, arguments: &[&str]) -> Gang {
    session_launched(ranks, &[], arguments, &[])
}

/// A [`session`] whose launcher lets the remaining ranks live when one dies.
pub fn surviving_session(ranks: usize, arguments: &[&str]) -> Gang {
    surviving_session_with(ranks, arguments, &[])
}

/// A [`surviving_session`] with these environment variables.
pub fn surviving_session_with(ranks: usize, arguments: &[&str], environment: &[(&str, &str)]) -> Gang {
    session_launched(ranks, &["--enable-recovery"], arguments, environment)
}

fn session_launched(
    ranks: usize,
    options: &[&str],
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Gang {
    let arguments: Vec<&str> = ["--format", "lines", "--set", "harrier.check_ledger=true"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    Start { ranks, options, arguments: &arguments, environment, ..Start::default() }.gang()
}

/// A [`session`] of ranks that connect by a hosts file, without MPI and without a launcher.
pub fn session_by_hosts(hosts: &Hosts, arguments: &[&str]) -> Gang {
    let turn = harrier_launch::gang_slot();
    let ranks = hosts.addresses().len();
    let commands = (0..ranks).map(|rank| hosts.command(BINARY, rank)).collect();
    Gang::of(commands, ranks, arguments, &[], turn)
}

/// Named resources of a gang, visible to other processes.
#[derive(Default)]
struct Names {
    /// Files in /dev/shm that its processes have mapped.
    files: BTreeSet<PathBuf>,
    /// Parts of other file names there: the launcher's job id, in the form of Open MPI 4.
    parts: BTreeSet<String>,
    /// Sockets in the abstract namespace.
    sockets: BTreeSet<String>,
}

impl Names {
    fn of_process(&mut self, pid: u32) {
        self.files.extend(mapped_shared_memory(pid));
        let inodes = sockets_of(pid);
        self.sockets.extend(
            abstract_sockets().into_iter().filter(|(inode, _)| inodes.contains(inode)).map(|(_, name)| name),
        );
    }

    fn of_gang(&mut self, environment: &str) {
        let job = environment.split('\0').find_map(|v| v.strip_prefix("PMIX_NAMESPACE="));
        if let Some(job) = job.and_then(|job| job.parse::<u32>().ok()) {
            self.parts.insert(format!(".{job:x}."));
        }
    }

    /// Files that still exist.
    fn files_left(&self) -> BTreeSet<PathBuf> {
        let is_part = |path: &PathBuf| self.parts.iter().any(|part| path.to_string_lossy().contains(part));
        let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
        self.files.iter().filter(|path| path.exists()).cloned().chain(shared.filter(is_part)).collect()
    }

    fn has_sockets_left(&self) -> bool {
        abstract_sockets().values().any(|name| self.sockets.contains(name))
    }
}

/// Resources of a process at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// Private resident memory.
    pub private_bytes: u64,
    /// Shared resident memory.
    pub shared_bytes: u64,
    /// Mapped arenas of blocks: its own, and those of other ranks.
    pub arenas: usize,
    pub descriptors: usize,
    pub threads: usize,
}

impl Resources {
    /// `None`: the process has ended.
    fn of_process(pid: u32) -> Option<Resources> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next()?.parse::<u64>().ok()
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        // The inode precedes the name.
        let arenas = maps.lines().filter(|line| line.contains("/memfd:harrier-blocks"));
        let arenas: BTreeSet<&str> = arenas.filter_map(|line| line.split_whitespace().nth(4)).collect();
        Some(Resources {
            private_bytes: number("RssAnon:")? * 1024,
            shared_bytes: number("RssShmem:")? * 1024,
            arenas: arenas.len(),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
            threads: usize::try_from(number("Threads:")?).ok()?,
        })
    }
}

pub struct Gang {
    /// The launcher, or the coordinator of a gang without one.
    launcher: Child,
    /// Ranks started without a launcher, except for the coordinator.
    others: Vec<Child>,
    stdin: Option<ChildStdin>,
    mark: String,
    folder: TempDir,
    ranks: usize,
    answers: usize,
    names: Names,
    _turn: GangSlot,
}

/// Outcome of a statement of [`session`]: rows, or code and message of its error.
pub type Answer = Result<Vec<Vec<Option<String>>>, (String, String)>;

impl Gang {
    fn start(start: &Start<'_>) -> Gang {
        let turn = harrier_launch::gang_slot();
        let words = Launcher::open_mpi(start.ranks).words().unwrap_or_else(|reason| panic!("{reason}"));
        let mut command = with_default_signals(&words[0]);
        command.args(start.options).args(&words[1..]);
        if !start.wrapper.is_empty() {
            command.args(["sh", "-c", start.wrapper, "sh"]);
        }
        command.arg(BINARY);
        Gang::of(vec![command], start.ranks, start.arguments, start.environment, turn)
    }

    /// `commands`: the coordinator or the launcher, then the ranks started without a launcher. `arguments`:
    /// those of `harrier sql`.
    fn of(
        commands: Vec<Command>,
        ranks: usize,
        arguments: &[&str],
        environment: &[(&str, &str)],
        turn: GangSlot,
    ) -> Gang {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        for name in ["spill", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let spawn = |(at, mut command): (usize, Command)| {
            command.arg("sql").args(arguments);
            if !arguments.contains(&"--spill-dir") {
                command.arg("--spill-dir").arg(folder.path().join("spill"));
            }
            let of_rank = if at == 0 { String::new() } else { at.to_string() };
            let file = |name: &str| File::create(folder.path().join(format!("{name}{of_rank}"))).unwrap();
            command
                .envs(environment.iter().copied())
                .env(MARK, &mark)
                .env("TMPDIR", folder.path().join("tmp"))
                .current_dir(folder.path())
                .stdin(if at == 0 { Stdio::piped() } else { Stdio::null() })
                .stdout(file("stdout"))
                .stderr(file("stderr"));
            command.spawn().unwrap()
        };
        let mut others: Vec<Child> = commands.into_iter().enumerate().map(spawn).collect();
        let mut launcher = others.remove(0);
        let stdin = launcher.stdin.take();
        Gang {
            launcher,
            others,
            stdin,
            mark,
            folder,
            ranks,
            answers: 0,
            names: Names::default(),
            _turn: turn,
        }
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    fn stdout(&self) -> String {
        fs::read_to_string(self.folder.path().join("stdout")).unwrap()
    }

    /// Waits for `condition`; kills the gang and panics after a timeout.
    fn wait_for<T>(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = condition(self) {
                return value;
            }
            if start.elapsed() > WATCHDOG {
                let processes = self.processes();
                self.kill_all();
                panic!(
                    "{what}: not within {WATCHDOG:?}; processes: {processes:?}; stdout:\n{}\nstderr:\n{}",
                    self.stdout(),
                    self.stderr()
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Processes of the gang except zombies, including the launcher's own, with their environment.
    fn processes(&self) -> BTreeMap<u32, String> {
        let mark = format!("{MARK}={}", self.mark);
        let mut matching = BTreeMap::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Unreadable if the process has just ended.
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            if environment.split('\0').any(|variable| variable == mark) {
                matching.insert(pid, environment);
            }
        }
        matching
    }

    /// Live ranks by number.
    pub fn rank_processes(&self) -> BTreeMap<usize, u32> {
        let rank = |(pid, environment): (u32, String)| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            let number = |variable: &str| -> Option<usize> {
                environment.split('\0').find_map(|v| v.strip_prefix(variable))?.parse().ok()
            };
            let rank = number("OMPI_COMM_WORLD_RANK=").or_else(|| number("HARRIER_RANK="))?;
            (name.trim() == "harrier").then_some((rank, pid))
        };
        self.processes().into_iter().filter_map(rank).collect()
    }

    /// Waits until every rank executes a long statement.
    pub fn wait_until_started(&mut self) {
        self.wait_for("the statement begins on every rank", |gang| {
            if let Some(status) = gang.launcher.try_wait().unwrap() {
                panic!("ended with {status} before it was time: {}", gang.stderr());
            }
            let ranks = gang.rank_processes();
            let busy = ranks.values().filter(|pid| cpu_time(**pid) > STARTED_CPU).count();
            (busy == gang.ranks).then_some(())
        });
        self.record_names();
    }

    /// Records the named resources of the gang, so that [`Gang::leaves_nothing`] checks them.
    pub fn record_names(&mut self) {
        for (pid, environment) in self.processes() {
            self.names.of_process(pid);
            self.names.of_gang(&environment);
        }
    }

    /// Resources of every live rank.
    pub fn open_resources(&self) -> BTreeMap<usize, Resources> {
        let resources = |(rank, pid)| Some((rank, Resources::of_process(pid)?));
        self.rank_processes().into_iter().filter_map(resources).collect()
    }

    pub fn signal_rank(&self, rank: usize, signal: Signal) {
        let ranks = self.rank_processes();
        kill(Pid::from_raw(ranks[&rank] as i32), signal).unwrap();
    }

    /// Kills a rank and waits until its process has ended.
    pub fn kill_rank(&mut self, rank: usize) {
        let pid = self.rank_processes()[&rank];
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
        self.wait_for("the rank ends", |_| {
            // The main thread may be a zombie while other threads live.
            (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    }

    /// Waits until the process of a rank has ended.
    pub fn wait_for_exit(&mut self, rank: usize) {
        self.wait_for("the rank ends", |gang| (!gang.rank_processes().contains_key(&rank)).then_some(()));
    }

    pub fn signal_launcher(&self, signal: Signal) {
        kill(Pid::from_raw(self.launcher.id() as i32), signal).unwrap();
    }

    /// Runs one statement of a [`session`].
    pub fn answer(&mut self, sql: &str) -> Answer {
        self.ask(sql);
        self.wait_for_answer()
    }

    /// Sends a statement of a [`session`].
    pub fn ask(&mut self, sql: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{}", Value::from(sql)).unwrap();
    }

    /// Waits until each of these ranks has computed for a while.
    pub fn wait_until_busy(&mut self, ranks: &[usize]) {
        let pids = self.rank_processes();
        let before: Vec<(u32, Duration)> =
            ranks.iter().map(|rank| pids[rank]).map(|pid| (pid, cpu_time(pid))).collect();
        self.wait_for("the ranks compute", |_| {
            before.iter().all(|(pid, before)| cpu_time(*pid) > *before + BUSY_CPU).then_some(())
        });
        for (pid, _) in before {
            self.names.of_process(pid);
        }
    }

    /// Processor time of all ranks so far.
    pub fn cpu_time_of_ranks(&self) -> Duration {
        self.rank_processes().into_values().map(cpu_time).sum()
    }

    /// Waits until the ranks are idle.
    pub fn wait_until_idle(&mut self) {
        let mut before = self.cpu_time_of_ranks();
        self.wait_for("the ranks come to rest", |gang| {
            thread::sleep(Duration::from_secs(1));
            let now = gang.cpu_time_of_ranks();
            let cpu_used = now.saturating_sub(before);
            before = now;
            (cpu_used < IDLE_CPU_MAX).then_some(())
        });
    }

    /// Waits for the answer to the oldest statement without one.
    pub fn wait_for_answer(&mut self) -> Answer {
        let index = self.answers;
        self.answers += 1;
        let line = self.wait_for("an answer", |gang| {
            let text = gang.stdout();
            let line = text.split_inclusive('\n').nth(index).filter(|line| line.ends_with('\n'));
            if line.is_none()
                && let Some(status) = gang.launcher.try_wait().unwrap()
            {
                panic!("no answer, ended with {status}: {}", gang.stderr());
            }
            line.map(str::to_owned)
        });
        let answer: Value = serde_json::from_str(&line).unwrap();
        if let Some(error) = answer.get("error") {
            let text = |key: &str| error[key].as_str().unwrap().to_owned();
            return Err((text("sqlstate"), text("message")));
        }
        let rows = answer["rows"].as_array().cloned().unwrap_or_default();
        let cells = |row: &Value| {
            let cells = row.as_array().unwrap().iter();
            cells.map(|cell| cell.as_str().map(str::to_owned)).collect()
        };
        Ok(rows.iter().map(cells).collect())
    }

    /// Whether there is no output other than the answers already read.
    pub fn is_silent(&self) -> bool {
        self.stdout().lines().count() == self.answers
    }

    /// Closes standard input and waits for the launcher to end.
    pub fn end(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.wait_for("the launcher ends", |gang| gang.launcher.try_wait().unwrap())
    }

    /// Waits for the ranks started without a launcher, except for the coordinator; returns their exit
    /// statuses.
    pub fn wait_for_others(&mut self) -> Vec<ExitStatus> {
        let exit_statuses = |gang: &mut Self| -> Option<Vec<_>> {
            gang.others.iter_mut().map(|child| child.try_wait().unwrap()).collect()
        };
        self.wait_for("the other ranks end", exit_statuses)
    }

    /// Waits until no process of the gang is left, then asserts that no named resource is left.
    pub fn leaves_nothing(&mut self) {
        self.wait_for("every process ends", |gang| gang.processes().is_empty().then_some(()));
        // The kernel closes sockets after it has removed the process from /proc.
        self.wait_for("every socket is closed", |gang| (!gang.names.has_sockets_left()).then_some(()));
        let mut remaining_files = self.names.files_left();
        for folder in ["spill", "tmp"] {
            let entries = fs::read_dir(self.folder.path().join(folder)).unwrap().flatten();
            // Files of the launcher are removed by the launcher.
            remaining_files.extend(entries.map(|entry| entry.path()).filter(|path| !is_launchers(path)));
        }
        assert!(remaining_files.is_empty(), "{remaining_files:?}: {}", self.stderr());
    }

    /// Asserts the SQLSTATE on standard error; panics with all of it if there is none.
    #[track_caller]
    pub fn fails(&self, code: &str, message: &str) {
        let stderr = self.stderr();
        let line = stderr.lines().find(|line| line.starts_with("ERROR "));
        let line = line.unwrap_or_else(|| panic!("no error in: {stderr}"));
        assert!(line.starts_with(&format!("ERROR {code}: ")) && line.contains(message), "{stderr}");
        for noise in ["panicked", "backtrace", "DataFusion", "Arrow error", "External error"] {
            assert!(!stderr.contains(noise), "{stderr}");
        }
    }

    fn kill_all(&mut self) {
        for pid in self.processes().into_keys() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        for child in self.others.iter_mut().chain([&mut self.launcher]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Gang {
    fn drop(&mut self) {
        self.kill_all();
        // After a failed test: processes that are all killed at once cannot remove their files.
        for path in self.names.files_left() {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_launchers(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["ompi.", "prte.", "pmix", "openmpi-sessions"].iter().any(|prefix| name.starts_with(prefix))
}

fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    // The kernel reports hundredths of a second, whatever its own tick is.
    Duration::from_millis(ticks * 10)
}

fn mapped_shared_memory(pid: u32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let path = |line: &str| line.find("/dev/shm/").map(|at| PathBuf::from(&line[at..]));
    maps.lines().filter_map(path).filter(|path| path.exists()).collect()
}

/// Inodes of a process's sockets.
fn sockets_of(pid: u32) -> BTreeSet<u64> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inode = |link: fs::DirEntry| {
        let target = fs::read_link(link.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(inode).collect()
}

/// Sockets of this machine in the abstract namespace, by inode.
fn abstract_sockets() -> BTreeMap<u64, String> {
    let sockets = fs::read("/proc/net/unix").unwrap_or_default();
    let name_of = |line: &str| {
        let (inode, name) = line.split_once(" @")?;
        Some((inode.split_whitespace().next_back()?.parse().ok()?, name.to_owned()))
    };
    String::from_utf8_lossy(&sockets).lines().filter_map(name_of).collect()
}

/// Folder with TPC-H data at scale 0.05, created once for all tests of a build.
pub fn data() -> &'static Path {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    DATA.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tpch-0.05");
        if !folder.join("lineitem").is_dir() {
            let new = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let out = new.path().join("tpch");
            let status = Command::new(BINARY)
                .args(["generate", "tpch", "--scale", "0.05", "--out"])
                .arg(&out)
                .stderr(Stdio::null())
                .status();
            assert!(status.unwrap().success());
            // Another test binary may have created it first.
            let _ = fs::rename(&out, &folder);
        }
        folder
    })
}
