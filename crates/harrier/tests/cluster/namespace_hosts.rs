//! Hosts as network namespaces, connected by a network that can be cut, if this user (such as root) may
//! create them.
//!
//! The test's own host is number 1; the others have their own names, processes and addresses, and share its
//! files. All are attached to one bridge. Source: ip-netns(8), veth(4).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// One network at a time: names and addresses are the same.
static ALONE: Mutex<()> = Mutex::new(());

/// Removed on drop, with all processes on its hosts.
pub struct Network {
    /// Prefix of host names.
    name: String,
    /// First three bytes of all addresses.
    subnet: String,
    hosts: usize,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Runs a command; returns its error output if it fails.
fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl Network {
    /// Creates `others` hosts beside this one. `None`, with a message, if that is not permitted.
    pub fn make(others: usize) -> Option<Self> {
        // Addresses for benchmarks (RFC 2544), unused on real networks.
        let number = std::process::id();
        let subnet = format!("198.{}.{}", 18 + (number >> 8) % 2, number % 256);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("ht{number}");
        let network = Self { name, subnet, hosts: others + 1, folder, _alone: alone };
        match network.set_up() {
            Ok(()) => Some(network),
            Err(why) => {
                eprintln!("skipped: hosts of namespaces cannot be made here: {why}");
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let Self { name, subnet, .. } = self;
        let switch = self.switch();
        let inside = |words: &[&str]| run(&[&["ip", "netns", "exec", &switch], words].concat());
        run(&["ip", "netns", "add", &switch])?;
        inside(&["ip", "link", "add", "bridge", "type", "bridge"])?;
        inside(&["ip", "link", "set", "bridge", "up"])?;
        let own = format!("{name}v");
        for host in 1..=self.hosts {
            let (far, port) = (self.host(host), port(host));
            let address = format!("{subnet}.{host}/24");
            if host == 1 {
                run(&["ip", "link", "add", &own, "type", "veth", "peer", "name", &port, "netns", &switch])?;
                run(&["ip", "addr", "add", &address, "dev", &own])?;
                run(&["ip", "link", "set", &own, "up"])?;
            } else {
                run(&["ip", "netns", "add", &far])?;
                let near = ["ip", "link", "add", "own", "netns", &far, "type", "veth", "peer", "name", &port];
                run(&[&near[..], &["netns", &switch]].concat())?;
                run(&["ip", "-n", &far, "addr", "add", &address, "dev", "own"])?;
                run(&["ip", "-n", &far, "link", "set", "own", "up"])?;
                run(&["ip", "-n", &far, "link", "set", "lo", "up"])?;
            }
            inside(&["ip", "link", "set", &port, "master", "bridge", "up"])?;
        }
        // Tests now whether programs run there, not when ranks start.
        let mut remote = Command::new(remote_shell());
        remote.args([&self.host(self.hosts), "true"]).envs(self.environment());
        let output = remote.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        }
    }

    fn switch(&self) -> String {
        format!("{}s", self.name)
    }

    /// Name of a host, from 2.
    pub fn host(&self, number: usize) -> String {
        format!("{}n{number}", self.name)
    }

    /// Writes a hosts file with these slots per host.
    pub fn hosts_file(&self, slots: &[usize]) -> PathBuf {
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = |at: usize| if at == 0 { own.trim().to_string() } else { self.host(at + 1) };
        let line = |(at, slots): (usize, &usize)| format!("{} slots={slots}\n", name(at));
        let path = self.folder.path().join("hosts");
        fs::write(&path, slots.iter().enumerate().map(line).collect::<String>()).expect("a file");
        path
    }

    /// Environment that makes ranks of a server on this host connect over the network.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let subnet = format!("{}.0/24", self.subnet);
        vec![
            ("HARRIER_TEST_SUBNET", self.subnet.clone()),
            ("OMPI_MCA_plm", "rsh".to_string()),
            ("OMPI_MCA_plm_rsh_agent", remote_shell().display().to_string()),
            // Without it, it also tries addresses of other networks.
            ("OMPI_MCA_btl_tcp_if_include", subnet.clone()),
            ("OMPI_MCA_oob_tcp_if_include", subnet),
        ]
    }

    /// Drops all traffic of a host.
    pub fn cut(&self, host: usize) {
        self.set(host, "down");
    }

    pub fn repair(&self, host: usize) {
        self.set(host, "up");
    }

    fn set(&self, host: usize, state: &str) {
        run(&["ip", "-n", &self.switch(), "link", "set", &port(host), state]).expect("a link");
    }

    /// Kills all processes on a host.
    pub fn kill_all(&self, host: usize) {
        kill(&self.processes(host));
    }

    /// Kills the ranks on a host only.
    pub fn kill_ranks(&self, host: usize) {
        let is_rank = |pid: &String| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = command.split(|byte| *byte == 0);
            words.next().is_some_and(|program| program.ends_with(b"/harrier"))
                && words.next() == Some(b"rank")
        };
        let ranks: Vec<String> = self.processes(host).into_iter().filter(is_rank).collect();
        assert!(!ranks.is_empty(), "no rank on host {host}");
        kill(&ranks);
    }

    fn processes(&self, host: usize) -> Vec<String> {
        let output = Command::new("ip").args(["netns", "pids", &self.host(host)]).output();
        let pids = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        pids.unwrap_or_default().split_whitespace().map(str::to_string).collect()
    }
}

fn kill(pids: &[String]) {
    if !pids.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
    }
}

/// Name of the host's port on the bridge.
fn port(host: usize) -> String {
    format!("port{host}")
}

fn remote_shell() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/remote.sh")
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 2..=self.hosts {
            self.kill_all(host);
            let _ = run(&["ip", "netns", "del", &self.host(host)]);
        }
        let _ = run(&["ip", "link", "del", &format!("{}v", self.name)]);
        let _ = run(&["ip", "netns", "del", &self.switch()]);
    }
}
