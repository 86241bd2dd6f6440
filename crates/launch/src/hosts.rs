//! Ranks on this host that connect by a hosts file, without a launcher.

use crate::run::{Run, finish};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The addresses and hosts file of a gang. Dropping it removes its files.
#[derive(Debug)]
pub struct Hosts {
    addresses: Vec<SocketAddr>,
    token: String,
    folder: PathBuf,
    /// Locks of the ports.
    _locks: Vec<Option<File>>,
}

/// Ports below the ephemeral range (`net.ipv4.ip_local_port_range`), which the system never assigns.
const PORTS: Range<u16> = 20_000..32_000;

/// Free ports, each with a lock file that reserves it among concurrent tests; `None` if another user owns the
/// lock file.
///
/// Panics: there are not enough.
fn free_ports(count: usize) -> Vec<(u16, Option<File>)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let folder = std::env::temp_dir().join("harrier-ports");
    let _ = fs::create_dir_all(&folder);
    // Concurrent processes start at different ports.
    let first = std::process::id() as usize * 61;
    let mut found = Vec::with_capacity(count);
    for _ in PORTS {
        if found.len() == count {
            break;
        }
        let port = PORTS.start + ((first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len()) as u16;
        let lock = File::create(folder.join(port.to_string())).ok();
        let is_ours = lock.as_ref().is_none_or(|file| file.try_lock().is_ok());
        if is_ours && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            found.push((port, lock));
        }
    }
    assert_eq!(found.len(), count, "there are no ports");
    found
}

impl Hosts {
    /// Reserves free ports for `ranks` ranks, outside the ephemeral range.
    ///
    /// Panics: there are no ports, or no temporary files.
    pub fn new(ranks: usize) -> Hosts {
        static GANGS: AtomicUsize = AtomicUsize::new(0);
        let gang = GANGS.fetch_add(1, Ordering::Relaxed);
        let (ports, locks): (Vec<u16>, Vec<Option<File>>) = free_ports(ranks).into_iter().unzip();
        let addresses = ports.into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let folder = std::env::temp_dir().join(format!("harrier-hosts-{}-{gang}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a random number");
        let hosts = Hosts { addresses, token: random.trim().to_string(), folder, _locks: locks };
        fs::write(hosts.file(), hosts.text(&hosts.addresses)).expect("a temporary file");
        hosts
    }

    /// Addresses by rank.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The hosts file.
    pub fn file(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// Writes another hosts file with these addresses.
    pub fn file_with(&self, name: &str, addresses: &[SocketAddr]) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, self.text(addresses)).expect("a temporary file");
        path
    }

    fn text(&self, addresses: &[SocketAddr]) -> String {
        let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
        format!("# all ranks are on this host\n{lines}")
    }

    /// A command that runs `binary` as this rank.
    pub fn command(&self, binary: impl AsRef<OsStr>, rank: usize) -> Command {
        let mut command = Command::new(binary);
        command.env("HARRIER_HOSTS", self.file());
        command.env("HARRIER_RANK", rank.to_string());
        command.env("HARRIER_TOKEN", &self.token);
        command.env_remove("HARRIER_RANKS").env_remove("HARRIER_TOKEN_FILE");
        command
    }

    /// One command for every rank, with the same arguments.
    pub fn commands(&self, binary: &Path, arguments: &[&str]) -> Vec<Command> {
        let command = |rank| {
            let mut command = self.command(binary, rank);
            command.args(arguments);
            command
        };
        (0..self.addresses.len()).map(command).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs all `commands` concurrently, each to its end or for at most `patience`. Returns the outcomes in
/// order.
pub fn finish_all(commands: Vec<Command>, patience: Duration) -> Vec<Run> {
    let threads: Vec<_> =
        commands.into_iter().map(|command| std::thread::spawn(move || finish(command, patience))).collect();
    threads.into_iter().map(|thread| thread.join().expect("the program starts")).collect()
}
