//! The service of the chaos test: a front end restarted by a supervisor, a catalog in PostgreSQL, data and
//! spill folders on file systems that can be filled, and ranks on hosts that can be cut off, if namespaces
//! are available.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use harrier_servers::Postgres;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::client::Client;
use crate::namespace_hosts::Network;

/// Working ranks, and spares.
pub const RANKS: usize = 3;
const SPARES: usize = 1;

/// Size of a file system that can be filled.
const DISK_BYTES: u64 = 1 << 30;

/// Hosts beside this one, and the slots of each: two ranks here, a third on the next host, the spare on the
/// last one.
const HOSTS: usize = 2;
const SLOTS: [usize; HOSTS + 1] = [2, 1, 1];

/// Size of the spill file system of each other host.
const HOST_DISK_BYTES: u64 = 64 << 20;

/// Timeout for the front end to listen, and for PostgreSQL to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Service {
    child: Mutex<Option<Child>>,
    pub port: u16,
    pub postgres: &'static Postgres,
    database: String,
    folder: TempDir,
    mark: String,
    /// Mounted file systems, if this user may mount.
    pub disks: BTreeMap<&'static str, Disk>,
    /// Hosts of the ranks; `None`: all ranks are on this host.
    pub network: Option<Network>,
}

/// A working rank.
#[derive(Debug, Clone, Copy)]
pub struct Rank {
    /// Process id as seen on this host.
    pub pid: u32,
    /// Host number; 1 is this one.
    pub host: usize,
}

/// A tmpfs, unmounted on drop.
pub struct Disk(PathBuf);

/// Fills the file system of a folder.
pub fn fill(folder: &Path) {
    use std::io::Write;
    if let Ok(mut file) = fs::File::create(folder.join(FILLER)) {
        let piece = vec![0; 1 << 20];
        while file.write_all(&piece).is_ok() {}
        // Fills the remainder of the last block.
        while file.write_all(&piece[..4096]).is_ok() {}
    }
}

/// Removes the file of [`fill`].
pub fn empty(folder: &Path) {
    let _ = fs::remove_file(folder.join(FILLER));
}

const FILLER: &str = "filler";

impl Disk {
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).ok()?;
        let options = format!("size={DISK_BYTES}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "harrier-chaos"]).arg(&path).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success()).then_some(Self(path))
    }

    /// Fills the file system.
    pub fn fill(&self) {
        fill(&self.0);
    }

    pub fn empty(&self) {
        empty(&self.0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Ending processes may still have files open there.
        for _ in 0..50 {
            let umount_status = Command::new("umount").arg(&self.0).stderr(Stdio::null()).status();
            if umount_status.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Service {
    pub fn start(postgres: &'static Postgres) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut disks = BTreeMap::new();
        for name in ["data", "spill"] {
            let path = folder.path().join(name);
            match Disk::mount(path.clone()) {
                Some(disk) => drop(disks.insert(name, disk)),
                None => fs::create_dir_all(path).expect("a folder"),
            }
        }
        fs::create_dir_all(folder.path().join("tmp")).expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a bound socket").port();
        drop(listener);
        let mark = format!("chaos-{}-{port}", std::process::id());
        let database = postgres.new_database();
        let network = Network::make(HOSTS);
        let service =
            Self { child: Mutex::new(None), port, postgres, database, folder, mark, disks, network };
        service.start_front_end();
        service
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn spill(&self) -> PathBuf {
        self.folder().join("spill")
    }

    /// Spill folder of a rank as seen on its host.
    pub fn spill_of(&self, rank: Rank) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", rank.pid));
        root.join(self.spill().strip_prefix("/").expect("an absolute path"))
    }

    /// Starts the front end, and retries if it exits before it listens.
    pub fn start_front_end(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let log = fs::OpenOptions::new().create(true).append(true).open(self.folder().join("log"));
            let mut command = Command::new(env!("CARGO_BIN_EXE_harrier"));
            command.arg("serve");
            if let Some(network) = &self.network {
                command.arg("--hostfile").arg(network.hosts_file(&SLOTS)).envs(network.environment());
                command.env("HARRIER_TEST_DISK", format!("{}:{HOST_DISK_BYTES}", self.spill().display()));
            }
            let mut child = command
                .args(["--listen", &format!("127.0.0.1:{}", self.port), "--http", "off"])
                .args(["--ranks", &RANKS.to_string(), "--spares", &SPARES.to_string(), "--threads", "1"])
                .args(["--memory", "768MiB", "--set", "harrier.distribute_bytes_min=1"])
                .args(["--catalog", &self.postgres.url(&self.database)])
                .arg("--data")
                .arg(self.folder().join("data"))
                .arg("--spill-dir")
                .arg(self.spill())
                .env("TMPDIR", self.folder().join("tmp"))
                .env("HARRIER_TEST_MARK", &self.mark)
                .env("HARRIER_LOG", "info")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(log.expect("a log"))
                .spawn()
                .expect("the program starts");
            let output = child.stdout.take().expect("a pipe");
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            if lines.any(|line| line.starts_with("ready: ")) {
                *self.child.lock().expect("no panic holds it") = Some(child);
                // Discards the rest of its output, so that it never blocks on the pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return;
            }
            let _ = child.wait();
            assert!(Instant::now() < deadline, "the front end does not start again\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Process id of the front end.
    pub fn pid(&self) -> u32 {
        self.child.lock().expect("no panic holds it").as_ref().map_or(0, Child::id)
    }

    /// Diagnosis of a hang: last log lines, ranks, running catalog queries, and, if gdb is installed, stacks
    /// of the front end. Ranks are not attached: the front end takes a traced rank for a stopped one.
    pub fn diagnosis(&self) -> String {
        let query_text = "SELECT pid, state, wait_event, now() - state_change, left(query, 120) FROM pg_stat_activity \
                     WHERE backend_type = 'client backend'";
        let activity = self.postgres.psql(&self.database, query_text);
        let ranks = self.ranks();
        let mut gdb = Command::new("gdb");
        gdb.args(["-batch", "-ex", "thread apply all bt 24", "-p", &self.pid().to_string()]);
        let stacks = gdb.stdin(Stdio::null()).output().map_or_else(
            |error| format!("no stacks: {error}"),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        );
        format!("{}\nranks: {ranks:?}\n{activity}\n{stacks}", tail(&self.log()))
    }

    /// Kills the front end and waits for its exit.
    pub fn kill_front_end(&self) {
        if let Some(mut child) = self.child.lock().expect("no panic holds it").take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends SIGTERM to the front end; returns its exit status.
    pub fn stop(&self) -> Option<i32> {
        let mut child = self.child.lock().expect("no panic holds it").take()?;
        signal(child.id(), Signal::SIGTERM);
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return status.code();
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Working ranks, coordinator first; empty while there is no gang.
    pub fn ranks(&self) -> Vec<Rank> {
        let sql = "SELECT rank, pid, host FROM sys.ranks WHERE state = 'working' ORDER BY rank";
        let answer =
            Client::connect(self.port, Duration::from_secs(10)).and_then(|mut client| client.query(sql));
        let text = |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        let rank = |row: &Vec<Option<String>>| self.rank(&text(row, 0), &text(row, 1), &text(row, 2));
        answer.map(|rows| rows.iter().filter_map(rank).collect()).unwrap_or_default()
    }

    /// A rank by number, with its process id on its own host.
    fn rank(&self, number: &str, pid: &str, name: &str) -> Option<Rank> {
        let others = 2..=HOSTS + 1;
        let Some(host) = self
            .network
            .as_ref()
            .and_then(|network| others.into_iter().find(|host| network.host(*host) == name))
        else {
            return Some(Rank { pid: pid.parse().ok()?, host: 1 });
        };
        let variable = format!("OMPI_COMM_WORLD_RANK={number}");
        let is_it = |process: &u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let inside =
                status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last());
            environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
                && inside == Some(pid)
        };
        let ranks = self.others().into_iter().filter(|(_, name)| name == "harrier");
        ranks.map(|(process, _)| process).find(is_it).map(|pid| Rank { pid, host })
    }

    /// Other processes of the service, with their program names.
    pub fn others(&self) -> Vec<(u32, String)> {
        let mark = format!("HARRIER_TEST_MARK={}", self.mark);
        let own = self.pid();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| *pid != own)
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
            })
            .map(|pid| {
                (pid, fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string())
            })
            .collect()
    }

    /// Kills PostgreSQL's postmaster; its backends then exit.
    pub fn kill_catalog(&self) {
        let backend: u32 = self.postgres.psql("postgres", "SELECT pg_backend_pid()").parse().unwrap_or(0);
        // That backend has ended by now; a long-lived one shows the postmaster as its parent.
        let parent = self.postgres_parent().or_else(|| parent(backend));
        if let Some(parent) = parent {
            signal(parent, Signal::SIGKILL);
        }
    }

    fn postgres_parent(&self) -> Option<u32> {
        let pids = self
            .postgres
            .psql("postgres", "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
        parent(pids.lines().next()?.parse().ok()?)
    }

    /// Restarts PostgreSQL, and retries until it accepts connections, which it does not while an old backend
    /// lives.
    pub fn restart_catalog(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.postgres.port()));
        loop {
            self.postgres.restart();
            if std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return;
            }
            assert!(Instant::now() < deadline, "PostgreSQL does not start again");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Open files of the front end.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Private memory of the front end, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill_front_end();
        for (pid, _) in self.others() {
            signal(pid, Signal::SIGKILL);
        }
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
