//! Safety check of listen addresses: remote access requires TLS and authentication.

use std::fmt;
use std::net::SocketAddr;

use super::hba::{ConnectionTransport, Method, Rules};

/// Why the server refuses to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsafe {
    pub message: String,
    pub hint: String,
}

impl fmt::Display for Unsafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Unsafe {}

/// Checks that these addresses are safe to listen on: non-loopback ones require TLS, and rules that admit no
/// remote client without a password or a certificate. Returns warnings about settings that are allowed but
/// probably unintended.
pub fn check(addresses: &[SocketAddr], has_tls: bool, rules: &Rules) -> Result<Vec<String>, Unsafe> {
    let public = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
    if let Some(address) = public {
        if !has_tls {
            return Err(Unsafe {
                message: format!(
                    "refusing to listen on {address} without TLS: passwords and rows would be readable on the way"
                ),
                hint: "give a certificate and its key, or listen on 127.0.0.1 and come through a tunnel"
                    .to_string(),
            });
        }
        if let Some(rule) = rules.rules().iter().find(|rule| rule.is_remote() && rule.method == Method::Trust)
        {
            return Err(Unsafe {
                message: format!(
                    "refusing to listen on {address}: the hba rule in line {} lets clients on other machines in without \
                     a password or a certificate",
                    rule.line
                ),
                hint: "use scram-sha-256 or cert instead of trust".to_string(),
            });
        }
        if !rules.rules().iter().any(|rule| rule.is_remote() && rule.method != Method::Reject) {
            let message =
                format!("no hba rule lets clients on other machines in, though {address} is listened on");
            return Ok([vec![message], warnings(rules, true)].concat());
        }
    }
    Ok(warnings(rules, public.is_some()))
}

fn warnings(rules: &Rules, is_public: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule in rules.rules() {
        let line = rule.line;
        if rule.method == Method::Trust && !rule.is_remote() {
            warnings.push(format!(
                "the hba rule in line {line} lets every user of this machine in as any role that it names"
            ));
        }
        let is_plain = matches!(rule.transport, ConnectionTransport::Host | ConnectionTransport::HostNoTls);
        if is_public && is_plain && rule.is_remote() && rule.method != Method::Reject {
            warnings.push(format!(
                "the hba rule in line {line} lets clients on other machines in without TLS: hostssl asks for it"
            ));
        }
        if let Some(server) = rule.ldap.as_ref().and_then(|ldap| ldap.unencrypted_server()) {
            warnings.push(format!(
                "the hba rule in line {line} sends passwords to {server} without TLS: ldaptls=1 or ldapscheme=ldaps \
                 asks for it"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `says`: part of the error, or else of the first warning, if any is expected.
    fn check(address: &str, has_tls: bool, rules: &str, is_allowed: bool, says: &str) {
        let rules = if rules.is_empty() { Rules::default() } else { Rules::parse(rules).unwrap() };
        let outcome = super::check(&[address.parse().unwrap()], has_tls, &rules);
        let said = match &outcome {
            Ok(warnings) => warnings.first().cloned().unwrap_or_default(),
            Err(refusal) => refusal.message.clone(),
        };
        assert_eq!(outcome.is_ok(), is_allowed, "{address}: {said}");
        assert_eq!(said.is_empty(), says.is_empty(), "{address}: {said}");
        assert!(said.contains(says), "{address}: {said}");
    }

    #[test]
    fn remote_listeners_require_encryption() {
        let scram = "hostssl all all all scram-sha-256";
        for (address, has_tls, rules, is_allowed, says) in [
            ("127.0.0.1:1", false, "", true, ""),
            ("[::1]:1", false, "", true, ""),
            ("127.0.0.1:1", false, "host all all all scram-sha-256", true, ""),
            ("127.0.0.1:1", false, "host all all 127.0.0.1/32 trust", true, "every user of this machine"),
            ("127.0.0.1:1", false, "local all all trust", true, "every user of this machine"),
            ("0.0.0.0:1", false, scram, false, "without TLS"),
            ("[::]:1", false, scram, false, "without TLS"),
            ("[::ffff:10.0.0.1]:1", false, scram, false, "without TLS"),
            ("10.0.0.1:1", false, "", false, "without TLS"),
            ("10.0.0.1:1", true, "", true, "no hba rule lets clients on other machines in"),
            ("10.0.0.1:1", true, scram, true, ""),
            ("10.0.0.1:1", true, "hostssl all all all cert", true, ""),
            ("10.0.0.1:1", true, "host all all all scram-sha-256", true, "without TLS"),
            ("10.0.0.1:1", true, "local all all peer\nhostssl all all 10.0.0.0/8 trust", false, "line 2"),
            (
                "10.0.0.1:1",
                true,
                "hostssl all all all scram-sha-256\nhost all all samehost trust",
                true,
                "every user",
            ),
            (
                "10.0.0.1:1",
                true,
                "hostssl all all all ldap ldapserver=h ldapprefix=a",
                true,
                "to h:389 without TLS",
            ),
            ("10.0.0.1:1", true, "hostssl all all all ldap ldapserver=h ldapprefix=a ldaptls=1", true, ""),
            ("127.0.0.1:1", false, "local all all ldap ldapserver=localhost ldapprefix=a", true, ""),
        ] {
            check(address, has_tls, rules, is_allowed, says);
        }
    }
}
