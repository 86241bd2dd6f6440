//! The start-up token, and the mutual TLS authentication derived from it.
//!
//! A pair of Ed25519 keys is derived from the token (HKDF-SHA-256), the same on every rank. Both sides of a
//! connection present the public key as a raw public key, accept no other, and prove possession of the
//! private key by a signature over the handshake so far, including the connection's ephemeral keys. So the
//! token never leaves a process, and an attacker between two ranks can neither eavesdrop nor replay a proof
//! in another connection.
//!
//! The public key is not secret, so anyone who has seen it can try tokens offline: tokens have to be too long
//! to be guessed.
//!
//! Source: RFC 5869 (HKDF), RFC 7250 (raw public keys), RFC 8410 (Ed25519 keys), RFC 8446, section 4.4.3
//! (CertificateVerify).

use crate::error::PlaceError;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme, client, server,
};
use std::fmt;
use std::sync::Arc;

/// ALPN protocol name; another version of this transport has another name.
const PROTOCOL: &[u8] = b"harrier/1";

/// Minimum length of a token, bytes: 16 random ones cannot be guessed.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// Domain separation from any other use of the token.
const SALT: &[u8] = b"harrier interconnect over QUIC";
const IDENTITY: &[u8] = b"identity of a rank";

/// PKCS #8 (version 1) header of a 32-byte Ed25519 private key.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The TLS alert for a rejected key: access_denied.
pub(super) const ALERT_WRONG_KEY: u8 = 49;

/// The TLS alert for another protocol: no_application_protocol.
pub(super) const ALERT_OTHER_PROTOCOL: u8 = 120;

/// The secret shared by the ranks of a gang. Never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Surrounding white space is trimmed: files end with a newline.
    pub fn new(text: &str) -> Result<Token, PlaceError> {
        let bytes = text.trim().as_bytes();
        match bytes.len() >= TOKEN_BYTES_MIN {
            true => Ok(Token(bytes.to_vec())),
            false => Err(PlaceError::ShortToken { bytes: bytes.len() }),
        }
    }

    /// The derived private key, as PKCS #8.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        let suite = TLS13_AES_128_GCM_SHA256.tls13();
        let hkdf = suite.ok_or_else(|| Error::General("no HKDF".to_string()))?.hkdf_provider;
        let mut seed = [0; 32];
        hkdf.extract_from_secret(Some(SALT), &self.0)
            .expand_slice(&[IDENTITY], &mut seed)
            .map_err(|_| Error::General("HKDF refuses 32 bytes".to_string()))?;
        let mut key = PKCS8_ED25519.to_vec();
        key.extend_from_slice(&seed);
        Ok(PrivatePkcs8KeyDer::from(key).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// TLS configurations of both sides for `token`.
///
/// Errors: a cryptographic library that lacks what TLS 1.3 requires.
pub(super) fn tls(token: &Token) -> Result<(QuicServerConfig, QuicClientConfig), Error> {
    let mut provider = ring::default_provider();
    // The hosts of a cluster have AES in hardware; 128 bits are cheaper than 256 and equally unbreakable.
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256];
    let provider = Arc::new(provider);
    let identity = Arc::new(identity(token, &provider)?);
    let same = Arc::new(SameKey {
        key: identity.cert[0].to_vec(),
        algorithms: provider.signature_verification_algorithms,
    });
    let versions = [&rustls::version::TLS13];
    let resolver = Arc::new(server::AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&identity)));
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?
        .with_client_cert_verifier(Arc::clone(&same) as Arc<dyn ClientCertVerifier>)
        .with_cert_resolver(resolver);
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Ranks connect once, so session tickets are useless.
    server.send_tls13_tickets = 0;
    let resolver = Arc::new(client::AlwaysResolvesClientRawPublicKeys::new(identity));
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .dangerous()
        .with_custom_certificate_verifier(same)
        .with_client_cert_resolver(resolver);
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.resumption = client::Resumption::disabled();
    client.enable_sni = false;
    let unfit = |error: quinn::crypto::rustls::NoInitialCipherSuite| Error::General(error.to_string());
    Ok((server.try_into().map_err(unfit)?, client.try_into().map_err(unfit)?))
}

/// The key pair, with its public key in place of a certificate.
fn identity(token: &Token, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
    let key = provider.key_provider.load_private_key(token.private_key()?)?;
    let public =
        key.public_key().ok_or_else(|| Error::General("a key without its public half".to_string()))?;
    let public = CertificateDer::from(public.to_vec());
    Ok(CertifiedKey::new(vec![public], key))
}

/// Accepts the raw public key derived from the token, and no other.
#[derive(Debug)]
struct SameKey {
    /// As SubjectPublicKeyInfo.
    key: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn accept(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match shown.as_ref() == self.key {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }
}

fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("QUIC has no TLS 1.2".to_string()))
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.accept(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.accept(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public_key(token: &str) -> Vec<u8> {
        let token = Token::new(token).unwrap();
        identity(&token, &ring::default_provider()).unwrap().cert[0].to_vec()
    }

    #[test]
    fn a_key_follows_from_a_token() {
        let key = public_key("0123456789abcdef");
        assert_eq!(key, public_key(" 0123456789abcdef\n"));
        assert_ne!(key, public_key("0123456789abcdeF"));
        // SubjectPublicKeyInfo of Ed25519: twelve bytes before the key.
        assert_eq!((key.len(), &key[..9]), (44, &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70][..]));
    }

    #[test]
    fn tokens_are_long_and_never_printed() {
        assert!(matches!(Token::new("too short"), Err(PlaceError::ShortToken { bytes: 9 })));
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef").unwrap()), "Token");
    }

    #[test]
    fn tls_configuration_is_available() {
        tls(&Token::new("0123456789abcdef").unwrap()).unwrap();
    }
}
