//! A connection to an LDAP server, optionally encrypted.
//!
//! The library speaks LDAP over a socket. Here that is one end of a pair; a task relays bytes between the
//! other end and the server, through TLS if enabled:
//!
//! ```text
//!   ldap3 ◄─ pair of sockets ─► relay ◄─ TLS or not ─► server
//! ```
//!
//! The task ends with the connection, which ends when [`Link`] is dropped.

use std::ops::{Deref, DerefMut};

use ldap3::{LdapConnAsync, LdapConnSettings, StdStream};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::options::{Encryption, Server};
use super::trust::Trust;

/// Maximum bytes of a server's responses on one connection: a few answers and two entries without attributes.
pub(super) const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// StartTLS request, as message 1 (RFC 4511, section 4.14.1).
const START_TLS: &[u8] = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";

/// Maximum size of its response.
const STARTED_BYTES_MAX: usize = 4096;

/// A connection; dereferences to ldap3's.
pub(super) struct Link(ldap3::Ldap);

impl Deref for Link {
    type Target = ldap3::Ldap;

    fn deref(&self) -> &ldap3::Ldap {
        &self.0
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut ldap3::Ldap {
        &mut self.0
    }
}

impl Link {
    /// Sends an unbind request; the server would notice the close anyway.
    pub async fn close(mut self) {
        let _ = self.0.unbind().await;
    }
}

/// Connects, and encrypts if configured.
///
/// Errors, as text: the server is unreachable, or its certificate is invalid.
pub(super) async fn open(server: &Server, encryption: Encryption, trust: &Trust) -> Result<Link, String> {
    let connected = TcpStream::connect((server.host.as_str(), server.port)).await;
    let mut stream = connected.map_err(|error| format!("it cannot be reached: {error}"))?;
    let _ = stream.set_nodelay(true);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(|error| error.to_string())?;
    theirs.set_nonblocking(true).map_err(|error| error.to_string())?;
    let relayed = UnixStream::from_std(theirs).map_err(|error| error.to_string())?;
    if encryption == Encryption::StartTls {
        start_tls(&mut stream).await?;
    }
    match encryption {
        Encryption::None => drop(tokio::spawn(relay(stream, relayed))),
        Encryption::StartTls | Encryption::Tls => {
            let name = ServerName::try_from(server.host.clone()).map_err(|error| error.to_string())?;
            let connector = TlsConnector::from(trust.config().await?);
            let encrypted = connector.connect(name, stream).await;
            let encrypted = encrypted.map_err(|error| format!("TLS: {error}"))?;
            drop(tokio::spawn(relay(encrypted, relayed)));
        }
    }
    let settings = LdapConnSettings::new().set_std_stream(StdStream::Unix(ours));
    let (connection, link) = LdapConnAsync::with_settings(settings, "ldapi://relay")
        .await
        .map_err(|error| format!("no connection can be made: {error}"))?;
    tokio::spawn(async move {
        // Its end fails the pending requests.
        let _ = connection.drive().await;
    });
    Ok(Link(link))
}

/// Relays bytes both ways until one side ends.
async fn relay(server: impl AsyncRead + AsyncWrite, ours: UnixStream) {
    let (from_server, mut to_server) = tokio::io::split(server);
    let (mut from_us, mut to_us) = ours.into_split();
    let mut from_server = from_server.take(ANSWER_BYTES_MAX);
    tokio::select! {
        _ = tokio::io::copy(&mut from_us, &mut to_server) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_us) => {}
    }
    let _ = to_server.shutdown().await;
}

/// Sends StartTLS. Reads its response and nothing beyond, so that nobody can inject plaintext before the
/// encrypted stream.
async fn start_tls(stream: &mut TcpStream) -> Result<(), String> {
    let gone = |error: std::io::Error| format!("it does not begin TLS: {error}");
    stream.write_all(START_TLS).await.map_err(gone)?;
    let odd = || "its answer to StartTLS is none".to_string();
    if stream.read_u8().await.map_err(gone)? != SEQUENCE {
        return Err(odd());
    }
    let first = stream.read_u8().await.map_err(gone)?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        length = 0;
        for _ in 0..first & 0x7f {
            length = length << 8 | usize::from(stream.read_u8().await.map_err(gone)?);
            if length > STARTED_BYTES_MAX {
                return Err(odd());
            }
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(gone)?;
    match starttls_result(&answer) {
        Some(0) => Ok(()),
        Some(code) => Err(format!("it refuses StartTLS (result {code})")),
        None => Err(odd()),
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const ENUMERATED: u8 = 0x0a;
const EXTENDED_RESPONSE: u8 = 0x78;

/// The result code of a response to message 1, without its frame.
fn starttls_result(mut answer: &[u8]) -> Option<u32> {
    let number = element(&mut answer, INTEGER)?;
    let mut body = element(&mut answer, EXTENDED_RESPONSE)?;
    let code = element(&mut body, ENUMERATED)?;
    // A notice of disconnection has message id 0.
    let is_ours = number.iter().skip_while(|byte| **byte == 0).eq(&[1]);
    let value = code.iter().try_fold(0_u32, |value, byte| Some(value.checked_mul(256)? + u32::from(*byte)));
    value.filter(|_| is_ours && !code.is_empty())
}

/// Splits off a BER element with this tag.
fn element<'b>(bytes: &mut &'b [u8], tag: u8) -> Option<&'b [u8]> {
    let (&[found, first], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let digits;
        (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        length = digits
            .iter()
            .try_fold(0_usize, |length, byte| Some(length.checked_mul(256)? + usize::from(*byte)))?;
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    (found == tag).then_some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_starttls_are_read_in_every_length_of_ber() {
        assert_eq!(starttls_result(b"\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"), Some(0));
        assert_eq!(
            starttls_result(b"\x02\x01\x01\x78\x84\x00\x00\x00\x07\x0a\x01\x34\x04\x00\x04\x00"),
            Some(52)
        );
        for odd in [
            &b"\x02\x01\x00\x78\x07\x0a\x01\x00\x04\x00\x04\x00"[..],
            b"\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
            b"\x02\x01\x01\x78\x07\x0a\x00\x04\x00\x04\x00",
            b"\x02\x01\x01\x78\xff\x07\x0a\x01\x00",
            b"\x02\x01\x01",
            b"",
        ] {
            assert_eq!(starttls_result(odd), None, "{odd:?}");
        }
    }
}
