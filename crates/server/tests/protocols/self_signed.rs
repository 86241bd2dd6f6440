//! A certificate for `localhost` that signs itself, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub struct TestCertificate {
    /// A file in PEM.
    pub certificate: PathBuf,
    pub server: rustls::ServerConfig,
    /// Of clients that trust the certificate.
    pub client: rustls::ClientConfig,
}

impl TestCertificate {
    /// Makes a certificate with its key in `folder`, which is made, too. `None`, with a line that says so,
    /// where there is no openssl.
    pub fn new(folder: &Path) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-addext"])
            .args([
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-addext",
                "basicConstraints=critical,CA:false",
            ])
            .args([Path::new("-keyout"), &key, Path::new("-out"), &certificate])
            .output();
        let Ok(output) = output else {
            eprintln!("SKIPPED: there is no openssl to make a certificate with, so that TLS was not tried");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let chain: Vec<_> =
            CertificateDer::pem_file_iter(&certificate).unwrap().collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Some(Self { certificate, server, client })
    }
}
