//! TLS: the server's certificate and key, authorities for client certificates, and names in certificates.
//!
//! Files are read at startup and upon `reload`; a failed reload keeps the previous state. Open connections
//! are not affected.

use std::fmt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use ring::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::peer;

mod certificate;

/// Paths of the server's PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's own certificate first, then intermediate ones.
    pub certificate: PathBuf,
    /// Unencrypted, and readable only by the server's user.
    pub key: PathBuf,
    /// Authorities for client certificates.
    pub client_authority: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    pub message: String,
    pub hint: Option<String>,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TlsError {}

/// A server's TLS configuration, which can be reloaded.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    loaded: RwLock<Arc<LoadedTls>>,
}

/// The contents of the files.
#[derive(Debug, Clone)]
pub struct LoadedTls {
    /// Without ALPN; see `with_alpn`.
    pub config: Arc<ServerConfig>,
    /// For SCRAM-SHA-256-PLUS: the hash of the certificate (`tls-server-end-point`). `None`: no hash is
    /// defined for its signature, as for Ed25519.
    pub binding: Option<Vec<u8>>,
    /// Whether clients may present certificates.
    pub asks_clients: bool,
}

impl LoadedTls {
    /// The configuration for protocols negotiated by ALPN, such as `postgresql` or `h2`. Clients without ALPN
    /// are accepted, too.
    pub fn with_alpn(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

impl Tls {
    /// Reads the files, and checks that key and certificate match.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let loaded = load_files(&files)?;
        Ok(Self { files, loaded: RwLock::new(Arc::new(loaded)) })
    }

    /// Reads the files again, for new connections.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = load_files(&self.files)?;
        *self.loaded.write() = Arc::new(loaded);
        Ok(())
    }

    pub fn current(&self) -> Arc<LoadedTls> {
        Arc::clone(&self.loaded.read())
    }
}

/// Whether a verified certificate belongs to this user: its only common name is the role.
pub fn is_of(certificate: &CertificateDer<'_>, user: &str) -> bool {
    common_name(certificate).as_deref() == Some(user)
}

/// The common name of a verified certificate, if it has exactly one.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let mut names = certificate::common_names(certificate)?;
    names.pop().filter(|_| names.is_empty())
}

fn load_files(files: &TlsFiles) -> Result<LoadedTls, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls_error(format!("TLS cannot be set up: {error}")))?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path, &provider)?),
    };
    let binding = chain.first().and_then(binding);
    let is_first_version =
        chain.first().is_some_and(|certificate| certificate::is_first_version(certificate));
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => TlsError {
                message: format!("key \"{key}\" is not that of certificate \"{certificate}\""),
                hint: Some("the server's own certificate comes first in its file".to_string()),
            },
            error => TlsError {
                message: format!("certificate \"{certificate}\" and key \"{key}\" cannot be used: {error}"),
                hint: is_first_version.then(|| {
                    "it is of X.509 version 1: sign it with an extension, such as subjectAltName".to_string()
                }),
            },
        }
    })?;
    Ok(LoadedTls { config: Arc::new(config), binding, asks_clients: files.client_authority.is_some() })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = contents(path, "certificate")?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(path, "certificate", &error))?;
    match chain.is_empty() {
        true => Err(tls_error(format!("file \"{}\" has no certificate in PEM", path.display()))),
        false => Ok(chain),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = contents(path, "key")?;
    let metadata = std::fs::metadata(path).map_err(|error| missing(path, "key", &error))?;
    let own = peer::own_uid().map_err(|error| missing(path, "key", &error))?;
    // As in PostgreSQL: the group may read a key that root owns, since distributions store keys that way.
    let others = if metadata.uid() == own { 0o077 } else { 0o027 };
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(TlsError {
            message: format!("key \"{}\" belongs to another user, who could change it", path.display()),
            hint: Some("it has to be the server's user's, or root's".to_string()),
        });
    }
    if mode & others != 0 {
        return Err(TlsError {
            message: format!("key \"{}\" can be read or written by others (mode {mode:04o})", path.display()),
            hint: Some(format!("chmod 600 {}", path.display())),
        });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            let is_encrypted = text.windows(b"ENCRYPTED".len()).any(|word| word == b"ENCRYPTED");
            let hint =
                is_encrypted.then(|| "it is encrypted, and nobody is there to type a password".to_string());
            TlsError { message: format!("file \"{}\" has no private key in PEM", path.display()), hint }
        }
        error => unreadable(path, "key", &error),
    })
}

fn verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            tls_error(format!("file \"{}\" has a certificate that is no authority: {error}", path.display()))
        })?;
    }
    // Optional here, since passwords need no certificate; rules may require one.
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| tls_error(format!("authority \"{}\" cannot be used: {error}", path.display())))
}

fn contents(path: &Path, what: &str) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| missing(path, what, &error))
}

fn missing(path: &Path, what: &str, error: &std::io::Error) -> TlsError {
    tls_error(format!("{what} \"{}\" cannot be read: {error}", path.display()))
}

/// The parser's error, without contents of the file.
fn unreadable(path: &Path, what: &str, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "a section does not end",
        pem::Error::IllegalSectionStart { .. } => "a section does not begin as it should",
        pem::Error::Base64Decode(_) => "it is not base64",
        pem::Error::SectionTooLarge => "it is too large",
        _ => "it is not PEM",
    };
    tls_error(format!("{what} \"{}\" cannot be understood: {why}", path.display()))
}

fn tls_error(message: String) -> TlsError {
    TlsError { message, hint: None }
}

/// RFC 5929, section 4.1: the hash in the certificate's signature, or SHA-256 instead of MD5 and SHA-1.
fn binding(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = match certificate::signature_algorithm(certificate)? {
        certificate::Hash::Sha256 => &digest::SHA256,
        certificate::Hash::Sha384 => &digest::SHA384,
        certificate::Hash::Sha512 => &digest::SHA512,
    };
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

#[cfg(test)]
mod tests;
