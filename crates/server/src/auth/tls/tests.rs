//! Tests with valid and invalid certificates made by openssl.

use std::process::Command;

use tempfile::TempDir;

use super::*;

/// A folder with a certificate authority and the certificates that it has signed.
struct Authority(TempDir);

impl Authority {
    /// `None` if there is no openssl.
    fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: there is no openssl");
            return None;
        }
        let authority = Self(TempDir::new().unwrap());
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca \
             -addext basicConstraints=critical,CA:TRUE",
        );
        std::fs::write(authority.0.path().join("names"), "subjectAltName=DNS:localhost").unwrap();
        Some(authority)
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// `NAME.key` and `NAME.crt`.
    fn sign(&self, name: &str, key: &str, hash: &str, subject: &str) {
        self.openssl(&format!("req -newkey {key} -nodes -keyout {name}.key -out {name}.csr -subj {subject}"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -{hash} -days 2 -extfile names \
             -out {name}.crt"
        ));
    }

    fn files(&self, name: &str) -> TlsFiles {
        let path = |name: &str| self.0.path().join(name);
        TlsFiles {
            certificate: path(&format!("{name}.crt")),
            key: path(&format!("{name}.key")),
            client_authority: None,
        }
    }
}

const EC: &str = "ec -pkeyopt ec_paramgen_curve:P-256";

#[test]
fn certificates_load_with_their_channel_binding() {
    let Some(authority) = Authority::new() else { return };
    for (name, key, hash, bytes) in [
        ("ec256", EC, "sha256", Some(32)),
        ("ec384", EC, "sha384", Some(48)),
        ("ec512", EC, "sha512", Some(64)),
        ("rsa", "rsa:2048", "sha256", Some(32)),
    ] {
        authority.sign(name, key, hash, "/CN=localhost");
        let loaded = Tls::load(authority.files(name)).unwrap().current();
        assert_eq!(loaded.binding.as_ref().map(Vec::len), bytes, "{name}");
        assert!(!loaded.asks_clients);
        assert_eq!(loaded.with_alpn(&[b"postgresql"]).alpn_protocols, [b"postgresql"]);
    }
    // Self-signed.
    for (name, key, bytes) in [("own", "rsa:2048 -sha384", Some(48)), ("ed", "ed25519", None)] {
        authority.openssl(&format!(
            "req -x509 -newkey {key} -nodes -keyout {name}.key -out {name}.crt -days 2 -subj /CN=x"
        ));
        let loaded = Tls::load(authority.files(name)).unwrap().current();
        assert_eq!(loaded.binding.as_ref().map(Vec::len), bytes, "{name}");
    }
}

#[test]
fn common_name_of_certificates() {
    let Some(authority) = Authority::new() else { return };
    for (subject, user, expected) in [
        ("/CN=anna", "anna", true),
        ("/O=company/OU=sales/CN=anna", "anna", true),
        ("/CN=anna", "Anna", false),
        ("/CN=anna", "", false),
        ("/CN=anna/CN=root", "anna", false),
        ("/CN=anna/CN=root", "root", false),
        ("/O=anna", "anna", false),
        ("/CN=ännä", "ännä", true),
    ] {
        let utf8 = format!("{EC} -utf8");
        authority.sign("client", &utf8, "sha256", subject);
        let chain = certificates(&authority.files("client").certificate).unwrap();
        assert_eq!(is_of(&chain[0], user), expected, "{subject} {user}");
        let certificate_bytes: &[u8] = &chain[0];
        for end in 0..certificate_bytes.len() {
            // Truncated certificates give `None` without a panic.
            assert_eq!(certificate::common_names(&certificate_bytes[..end]), None);
            assert_eq!(certificate::signature_algorithm(&certificate_bytes[..end]), None);
        }
    }
}

#[test]
fn errors_name_invalid_files() {
    let Some(authority) = Authority::new() else { return };
    authority.sign("good", EC, "sha256", "/CN=localhost");
    authority.sign("other", EC, "sha256", "/CN=localhost");
    authority.openssl("ec -in good.key -aes256 -passout pass:secret -out encrypted.key");
    authority.openssl("pkcs8 -topk8 -in good.key -passout pass:secret -out pkcs8.key");
    let path = |name: &str| authority.0.path().join(name);
    let write = |name: &str, text: &[u8]| {
        std::fs::write(path(name), text).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let key = std::fs::read(path("good.key")).unwrap();
    write("empty", b"");
    write("open.key", &key);
    std::fs::set_permissions(path("open.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    write("cut.crt", b"-----BEGIN CERTIFICATE-----\nYWJj\n");
    write("odd.crt", b"-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n");
    write("junk.crt", b"-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n");
    for (certificate, key, authority, says) in [
        ("missing.crt", "good.key", None, "cannot be read"),
        ("good.crt", "missing.key", None, "cannot be read"),
        ("empty", "good.key", None, "no certificate in PEM"),
        ("good.key", "good.key", None, "no certificate in PEM"),
        ("good.crt", "good.crt", None, "can be read or written by others"),
        ("good.crt", "open.key", None, "mode 0644"),
        ("good.crt", "empty", None, "no private key in PEM"),
        ("good.crt", "pkcs8.key", None, "no private key in PEM"),
        ("good.crt", "other.key", None, "is not that of certificate"),
        ("cut.crt", "good.key", None, "does not end"),
        ("odd.crt", "good.key", None, "not base64"),
        ("junk.crt", "good.key", None, "cannot be used"),
        ("good.crt", "encrypted.key", None, ""),
        ("good.crt", "good.key", Some("missing.crt"), "cannot be read"),
        ("good.crt", "good.key", Some("empty"), "no certificate in PEM"),
        ("good.crt", "good.key", Some("junk.crt"), "no authority"),
    ] {
        let files = TlsFiles {
            certificate: path(certificate),
            key: path(key),
            client_authority: authority.map(path),
        };
        let error = Tls::load(files).unwrap_err();
        assert!(error.message.contains(says), "{certificate} {key} {authority:?}: {error}");
        assert_eq!(error.hint.is_some_and(|hint| hint.contains("encrypted")), key == "pkcs8.key", "{key}");
        assert!(!error.message.contains("YWJj"));
    }
    authority.openssl("x509 -req -in good.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out old.crt");
    let old = TlsFiles { certificate: path("old.crt"), ..authority.files("good") };
    assert!(Tls::load(old).unwrap_err().hint.unwrap().contains("version 1"));
    let with_clients = TlsFiles { client_authority: Some(path("ca.crt")), ..authority.files("good") };
    assert!(Tls::load(with_clients).unwrap().current().asks_clients);
}

#[test]
fn failed_reload_keeps_the_certificate() {
    let Some(authority) = Authority::new() else { return };
    authority.sign("good", EC, "sha256", "/CN=localhost");
    let tls = Tls::load(authority.files("good")).unwrap();
    let before = tls.current();
    let certificate = authority.files("good").certificate;
    let text = std::fs::read(&certificate).unwrap();
    std::fs::write(&certificate, "").unwrap();
    assert!(tls.reload().is_err());
    assert!(Arc::ptr_eq(&before, &tls.current()));
    std::fs::write(&certificate, text).unwrap();
    tls.reload().unwrap();
    assert!(!Arc::ptr_eq(&before, &tls.current()));
    assert_eq!(before.binding, tls.current().binding);
    authority.sign("good", EC, "sha256", "/CN=localhost");
    tls.reload().unwrap();
    assert_ne!(before.binding, tls.current().binding);
}
