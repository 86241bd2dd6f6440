//! Checks of `harrier doctor`: files, folders, programs and limits of the machine.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Config;
use super::secrets::is_secret;
use super::values::GangLauncher;

mod authentication;

/// Maximum length of a socket path, without its NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Open files of a server beside its connections.
const OTHER_FILES: u64 = 256;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// The server runs, but perhaps not as intended.
    Note,
    /// The server does not start, or ignores the key.
    Wrong,
}

/// A finding about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub gravity: Gravity,
    /// `server.tls_key`.
    pub key: &'static str,
    /// A sentence with a remedy.
    pub message: String,
}

struct Found(Vec<Finding>);

impl Found {
    fn wrong(&mut self, key: &'static str, message: impl Into<String>) {
        self.0.push(Finding { gravity: Gravity::Wrong, key, message: message.into() });
    }

    fn note(&mut self, key: &'static str, message: impl Into<String>) {
        self.0.push(Finding { gravity: Gravity::Note, key, message: message.into() });
    }

    /// Checks that a file can be read.
    fn readable(&mut self, key: &'static str, path: &Path) -> bool {
        let read = File::open(path).and_then(|file| file.metadata());
        match read {
            Ok(metadata) if metadata.is_file() => return true,
            Ok(_) => self.wrong(key, format!("{} is not a file", path.display())),
            Err(error) => self.wrong(key, format!("{} cannot be read: {error}", path.display())),
        }
        false
    }
}

impl Config {
    /// Problems on this machine, the most severe first. Values must have passed [`Config::check`]. Opens
    /// files and tries ports, but changes nothing. Blocks.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = Found(Vec::new());
        self.find_places(&mut found);
        self.find_tls(&mut found);
        self.find_authentication(&mut found);
        self.find_gang(&mut found);
        self.find_limits(&mut found);
        found.0.sort_by_key(|finding| std::cmp::Reverse(finding.gravity));
        found.0
    }

    fn find_places(&self, found: &mut Found) {
        let server = &self.server;
        let http = server.http.get().map(|address| ("server.http", address));
        for (key, address) in server.statement_addresses().chain(http) {
            match TcpListener::bind((address.host.as_str(), address.port)) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    let message =
                        format!("{address} is in use; if that is not this server, choose another port");
                    found.note(key, message);
                }
                Err(error) => found.wrong(key, format!("{address} cannot be listened on: {error}")),
            }
        }
        if let (Some(folder), Some(first)) = (server.unix_socket.get(), server.listen.first()) {
            let path = folder.join(format!(".s.PGSQL.{}", first.port));
            let bytes = path.as_os_str().len();
            if bytes > SOCKET_PATH_BYTES_MAX {
                let message = format!(
                    "{} has {bytes} bytes, and a socket's path at most {SOCKET_PATH_BYTES_MAX}; choose a shorter folder",
                    path.display()
                );
                found.wrong("server.unix_socket", message);
            }
            match fs::metadata(folder) {
                Ok(metadata) if !metadata.is_dir() => {
                    found.wrong("server.unix_socket", format!("{} is not a folder", folder.display()));
                }
                // Without the sticky bit, others could replace this socket with theirs.
                Ok(metadata) if metadata.permissions().mode() & 0o1002 == 0o0002 => found.wrong(
                    "server.unix_socket",
                    format!("anybody can replace a socket in {}; choose another folder", folder.display()),
                ),
                Ok(_) => {}
                Err(error) => {
                    found
                        .wrong("server.unix_socket", format!("{} cannot be used: {error}", folder.display()));
                }
            }
        }
        if let Some(path) = server.audit_log.get() {
            let folder = path.parent().unwrap_or(Path::new("/"));
            match fs::metadata(folder) {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => found.wrong("server.audit_log", format!("{} is not a folder", folder.display())),
                Err(error) => {
                    found.wrong("server.audit_log", format!("{} cannot be used: {error}", folder.display()));
                }
            }
        }
        if server.http.get().is_some() && server.http_actions {
            found.note(
                "server.http_actions",
                "every user of this machine can cancel statements from the pages; leave it false if there are others",
            );
        }
    }

    fn find_tls(&self, found: &mut Found) {
        let server = &self.server;
        for (key, path) in [
            ("server.tls_certificate", server.tls_certificate.get()),
            ("server.tls_client_ca", server.tls_client_ca.get()),
        ] {
            let Some(path) = path else { continue };
            if !found.readable(key, path) {
                continue;
            }
            let certificates =
                CertificateDer::pem_file_iter(path).and_then(|all| all.collect::<Result<Vec<_>, _>>());
            match certificates {
                Ok(certificates) if certificates.is_empty() => {
                    found.wrong(key, format!("{} has no certificate in PEM", path.display()));
                }
                Ok(_) => {}
                Err(error) => found.wrong(key, format!("{} is damaged: {error}", path.display())),
            }
        }
        if let Some(path) = server.tls_key.get()
            && found.readable("server.tls_key", path)
        {
            if PrivateKeyDer::from_pem_file(path).is_err() {
                found.wrong("server.tls_key", format!("{} has no private key in PEM", path.display()));
            }
            if !is_secret(path) {
                found.wrong("server.tls_key", format!("others can read {0}; chmod 600 {0}", path.display()));
            }
        }
        if let Some(Err(error)) = server.http_password() {
            found.wrong("server.http_password_file", error);
        }
    }

    fn find_gang(&self, found: &mut Found) {
        let gang = &self.gang;
        if let GangLauncher::Mpirun | GangLauncher::Srun = gang.launcher
            && on_path(gang.launcher.word()).is_none()
        {
            found.wrong(
                "gang.launcher",
                format!("{} is not in PATH; install it, or choose another launcher", gang.launcher.word()),
            );
        }
        if let Some(path) = gang.hostfile.get()
            && found.readable("gang.hostfile", path)
        {
            let text = fs::read_to_string(path).unwrap_or_default();
            if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
                found.wrong("gang.hostfile", format!("{} names no host", path.display()));
            }
        }
        for folder in &gang.spill_dirs {
            match fs::metadata(folder) {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => found.wrong("gang.spill_dirs", format!("{} is not a folder", folder.display())),
                Err(error) => {
                    found.wrong("gang.spill_dirs", format!("{} cannot be used: {error}", folder.display()));
                }
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        if let Some(ranks) = gang.ranks.get()
            && gang.hostfile.get().is_none()
            && gang.launcher != GangLauncher::Srun
        {
            let threads = u64::from(*ranks) * u64::from(*gang.threads_per_rank.get().unwrap_or(&1));
            if threads > 2 * cores {
                found.note(
                    "gang.ranks",
                    format!("{threads} threads of ranks share {cores} cores; fewer would be faster"),
                );
            }
        }
    }

    fn find_limits(&self, found: &mut Found) {
        let needed = u64::from(self.server.max_connections) + OTHER_FILES;
        if let Some(files) = open_files_max()
            && files < needed
        {
            found.wrong(
                "server.max_connections",
                format!("this process may open {files} files, and {needed} are needed; raise it with ulimit -n or LimitNOFILE="),
            );
        }
        if let (Some(memory), Some(machine)) = (self.gang.memory.get(), machine_bytes())
            && memory.0 > machine
        {
            let machine = super::values::Size(machine >> 20 << 20);
            found.note("gang.memory", format!("{memory} is more than this machine has, {machine}"));
        }
    }
}

/// Finds a program on PATH, as a shell does.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(is_program)
}

/// The limit of open files; `None` if unlimited or unknown.
fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn machine_bytes() -> Option<u64> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
