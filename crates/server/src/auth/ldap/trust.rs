//! The certificate authorities that LDAP servers are checked by.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Environment variable for a file of certificate authorities, as for OpenLDAP's library; the default is the
/// system's.
const AUTHORITIES: &str = "LDAPTLS_CACERT";

/// TLS configuration with the trusted authorities, loaded on first use.
#[derive(Default)]
pub(super) struct Trust(OnceLock<Arc<ClientConfig>>);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

/// Ignored when rules are compared: it is the same for all.
impl PartialEq for Trust {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Trust {
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.0.get() {
            return Ok(Arc::clone(config));
        }
        let read = tokio::task::spawn_blocking(client_config).await;
        let config = read.map_err(|error| error.to_string())??;
        Ok(Arc::clone(self.0.get_or_init(|| config)))
    }
}

fn client_config() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match std::env::var_os(AUTHORITIES) {
        Some(path) => {
            let shown = path.display();
            let wrong = |error: &dyn std::fmt::Display| format!("{AUTHORITIES} (\"{shown}\"): {error}");
            let all = CertificateDer::pem_file_iter(&path).map_err(|error| wrong(&error))?;
            for certificate in all {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS cannot be set up: {error}"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
