//! Findings about authentication: the HBA rules, alone and with the addresses, certificates and LDAP
//! directories.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use super::{Config, Found};
use crate::auth::hba::{ClientCertificate, ConnectionTransport, Rules};
use crate::auth::ldap::LdapDirectory;
use crate::auth::listen;

const KEY: &str = "server.hba_file";

impl Config {
    pub(super) fn find_authentication(&self, found: &mut Found) {
        let Some(path) = self.server.hba_file.get() else {
            return self.find_open_access(&Rules::default(), found);
        };
        if !found.readable(KEY, path) {
            return;
        }
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return found.wrong(KEY, format!("{} cannot be read: {error}", path.display())),
        };
        let rules = match Rules::parse(&text) {
            Ok(rules) => rules,
            Err(errors) => {
                for (line, message) in errors.0 {
                    found.wrong(KEY, format!("{}, line {line}: {message}", path.display()));
                }
                return;
            }
        };
        self.find_open_access(&rules, found);
        self.find_unusable(&rules, found);
        if !rules.let_in_without_password() {
            let message = "no rule lets users of this machine in without a password, and a new warehouse has none: \
                           as long as no role has one, nobody comes in; `local all all peer` is for unix_socket, \
                           `host all all 127.0.0.1/32 peer` for an address";
            found.note(KEY, message.to_string());
        }
        find_readers(path, &rules, found);
        for rule in rules.rules() {
            if let Some(ldap) = &rule.ldap {
                find_directory(rule.line, ldap, found);
            }
        }
    }

    /// Runs the server's check of listen addresses.
    fn find_open_access(&self, rules: &Rules, found: &mut Found) {
        let server = &self.server;
        let addresses: Vec<SocketAddr> = server
            .statement_addresses()
            .filter_map(|(_, address)| (address.host.as_str(), address.port).to_socket_addrs().ok()?.next())
            .collect();
        let has_tls = server.tls_certificate.get().is_some();
        match listen::check(&addresses, has_tls, rules) {
            Ok(warnings) => warnings.into_iter().for_each(|warning| found.note(KEY, warning)),
            // Without TLS the finding is about the addresses.
            Err(_) if !has_tls => {}
            Err(refusal) => found.wrong(KEY, format!("{}; {}", refusal.message, refusal.hint)),
        }
    }

    /// Finds rules that cannot match in this configuration.
    fn find_unusable(&self, rules: &Rules, found: &mut Found) {
        let server = &self.server;
        for rule in rules.rules() {
            let line = rule.line;
            let asks = rule.client_certificate != ClientCertificate::None;
            if rule.transport == ConnectionTransport::HostTls && server.tls_certificate.get().is_none() {
                let message =
                    format!("the rule in line {line} is for TLS, and there is none: set tls_certificate");
                found.note(KEY, message);
            } else if asks && server.tls_client_ca.get().is_none() {
                let message = format!(
                    "the rule in line {line} asks clients for certificates, and none can be checked: set tls_client_ca"
                );
                found.wrong(KEY, message);
            }
            if rule.transport == ConnectionTransport::Local && server.unix_socket.get().is_none() {
                let message = format!(
                    "the rule in line {line} is for a local socket, and there is none: set unix_socket"
                );
                found.note(KEY, message);
            }
        }
    }
}

fn find_readers(path: &Path, rules: &Rules, found: &mut Found) {
    let has_secret =
        rules.rules().iter().any(|rule| rule.ldap.as_ref().is_some_and(|ldap| ldap.has_secret()));
    let is_open = fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0);
    if has_secret && is_open {
        let shown = path.display();
        found.wrong(KEY, format!("others can read {shown}, which has an ldapbindpasswd; chmod 640 {shown}"));
    }
}

/// Probes the servers of a directory.
fn find_directory(line: usize, ldap: &LdapDirectory, found: &mut Found) {
    let ask = || -> std::io::Result<_> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(ldap.probe()))
    };
    // On its own thread: the caller's may belong to a runtime.
    let asked = thread::scope(|scope| scope.spawn(ask).join());
    match asked {
        Ok(Ok(servers)) => {
            for (server, wrong) in servers {
                if let Some(wrong) = wrong {
                    found.wrong(KEY, format!("the LDAP server {server} of the rule in line {line}: {wrong}"));
                }
            }
        }
        Ok(Err(error)) => found.note(KEY, format!("the LDAP servers of line {line} were not asked: {error}")),
        Err(_) => found.note(KEY, format!("the LDAP servers of line {line} could not be asked")),
    }
}
