//! Validation of values beyond their type, alone and in combination.

use super::values::{Address, GangLauncher};
use super::{Config, Problem, Server};

const LEASE_MIN: std::time::Duration = std::time::Duration::from_secs(1);
const CONNECTIONS_MAX: u32 = 100_000;
const RANKS_MAX: u32 = 4096;
const THREADS_MAX: u32 = 1024;

/// As for the command line's `--memory`: with less, not even one batch per operator fits.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Problems found so far, without lines.
struct Check(Vec<Problem>);

impl Check {
    fn add(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let (message, hint) = (message.into(), Some(hint.into()));
        self.0.push(Problem { key: key.to_string(), line: None, message, hint });
    }

    fn range(&mut self, key: &str, value: u32, least: u32, most: u32) {
        if !(least..=most).contains(&value) {
            self.add(key, format!("{value} is not allowed"), format!("allowed: {least} to {most}"));
        }
    }

    /// No two protocols share an address.
    fn different_addresses(&mut self, server: &Server) {
        let mut taken: Vec<(&str, &Address)> =
            server.listen.iter().map(|address| ("in server.listen", address)).collect();
        let others =
            [("server.http", &server.http), ("server.flight", &server.flight), ("server.hive", &server.hive)];
        for (key, address) in others {
            let Some(address) = address.get() else { continue };
            if let Some((whose, _)) = taken.iter().find(|(_, other)| *other == address && address.port != 0) {
                let message = format!("{address} is {whose}, too");
                self.add(key, message, "give each protocol a port of its own");
            }
            taken.push((key, address));
        }
    }
}

impl Server {
    /// Addresses of protocols that run statements, with their keys.
    pub(super) fn statement_addresses(&self) -> impl Iterator<Item = (&'static str, &Address)> {
        let listened = self.listen.iter().map(|address| ("server.listen", address));
        let flight = self.flight.get().map(|address| ("server.flight", address));
        listened.chain(flight).chain(self.hive.get().map(|address| ("server.hive", address)))
    }
}

impl Config {
    /// Validates values independently of the machine; [`Config::findings`] checks the machine. Call it again
    /// after command-line options have changed values.
    pub fn check(&self) -> Vec<Problem> {
        let mut check = Check(Vec::new());
        self.check_server(&mut check);
        self.check_gang(&mut check);
        self.check_settings(&mut check);
        check.0
    }

    fn check_server(&self, check: &mut Check) {
        let server = &self.server;
        if server.listen.is_empty() && server.unix_socket.get().is_none() {
            check.add(
                "server.listen",
                "no client could connect",
                "give an address such as \"127.0.0.1:5433\", or unix_socket",
            );
        }
        for (at, address) in server.listen.iter().enumerate() {
            if server.listen[..at].contains(address) && address.port != 0 {
                check.add("server.listen", format!("{address} is listed twice"), "list each address once");
            }
        }
        if server.unix_socket.get().is_some() && server.listen.first().is_none_or(|first| first.port == 0) {
            check.add(
                "server.unix_socket",
                "the socket has no port to be named by",
                "give server.listen an address with a port, such as \"127.0.0.1:5433\"",
            );
        }
        match (server.tls_certificate.get(), server.tls_key.get()) {
            (Some(_), None) => check.add("server.tls_certificate", "there is no key for it", "set tls_key"),
            (None, Some(_)) => {
                check.add("server.tls_key", "there is no certificate for it", "set tls_certificate")
            }
            _ => {}
        }
        let has_tls = server.tls_certificate.get().is_some() && server.tls_key.get().is_some();
        if server.tls_client_ca.get().is_some() && !has_tls {
            check.add(
                "server.tls_client_ca",
                "certificates of clients need TLS",
                "set tls_certificate and tls_key",
            );
        }
        for (key, public) in server.statement_addresses() {
            if has_tls || public.is_loopback() {
                continue;
            }
            check.add(
                key,
                format!(
                    "other machines can reach {public}, and statements and rows would be readable on the way"
                ),
                "set tls_certificate and tls_key, or listen on 127.0.0.1",
            );
        }
        if let Some(address) = server.http.get().filter(|address| !address.is_loopback()) {
            check.add(
                "server.http",
                format!("other machines can reach {address}, and nothing that goes there is encrypted"),
                "listen on 127.0.0.1, and let others come through a tunnel",
            );
        }
        check.different_addresses(server);
        if server.lease.0 < LEASE_MIN {
            check.add(
                "server.lease",
                format!("{} is too short for a server that is only busy", server.lease),
                "allowed: 1s or more",
            );
        }
        check.range("server.max_connections", server.max_connections, 1, CONNECTIONS_MAX);
    }

    fn check_gang(&self, check: &mut Check) {
        let gang = &self.gang;
        if let Some(ranks) = gang.ranks.get() {
            check.range("gang.ranks", *ranks, 1, RANKS_MAX);
        }
        check.range("gang.spares", gang.spares, 0, RANKS_MAX);
        if let Some(threads) = gang.threads_per_rank.get() {
            check.range("gang.threads_per_rank", *threads, 1, THREADS_MAX);
        }
        if gang.launcher == GangLauncher::None {
            if gang.ranks.get().is_some_and(|ranks| *ranks > 1) {
                check.add("gang.ranks", "launcher \"none\" starts no ranks", "allowed: 1, or \"auto\"");
            }
            if gang.spares > 0 {
                check.add("gang.spares", "launcher \"none\" starts no ranks", "allowed: 0");
            }
            if !gang.launcher_arguments.is_empty() {
                check.add(
                    "gang.launcher_arguments",
                    "launcher \"none\" takes none",
                    "leave it [], or choose another launcher",
                );
            }
        }
        if matches!(gang.launcher, GangLauncher::None | GangLauncher::Srun) && gang.hostfile.get().is_some() {
            let hint = match gang.launcher {
                GangLauncher::Srun => "Slurm says which hosts there are; leave it \"off\"",
                _ => "leave it \"off\", or choose another launcher",
            };
            check.add("gang.hostfile", format!("launcher {:?} takes none", gang.launcher.word()), hint);
        }
        if gang.memory.get().is_some_and(|memory| memory.0 < MEMORY_BYTES_MIN) {
            check.add("gang.memory", "too little for any statement", "allowed: 1MiB or more");
        }
        if gang.statements_max.get() == Some(&0) {
            check.add("gang.statements_max", "0 is not allowed", "allowed: 1 or more, or \"off\"");
        }
    }

    fn check_settings(&self, check: &mut Check) {
        for name in self.settings.0.keys() {
            let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '.');
            if name.is_empty() || !name.chars().all(plain) {
                check.add(
                    &format!("settings.{name}"),
                    "not a name of a setting",
                    "allowed: letters, digits, _ and dots",
                );
            }
        }
    }
}
