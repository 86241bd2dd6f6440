//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as in PostgreSQL: a client proves that it knows a password without
//! sending it.
//!
//! ```text
//!   Scram ─ client-first ─► Challenge (server-first) ─ client-final ─► server-final, or a failure
//! ```
//!
//! Channel binding to the server's TLS certificate (`tls-server-end-point`, RFC 5929) prevents relaying by a
//! man in the middle.
//!
//! Invariants: a missing role, or one without a password, gets a challenge like any other, with a salt that
//! stays the same while the server runs, and then fails like a wrong proof. Secrets are compared in constant
//! time.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use harrier_error::{SqlError, SqlState};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use super::wrong_password;

/// The mechanisms without and with channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Default hash iterations: PostgreSQL's, and the minimum in RFC 7677.
pub const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;
/// Maximum message size; honest clients send a few hundred bytes.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// A password verifier. The password cannot be recovered from it, but it suffices to check proofs and to
/// impersonate the server.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl ScramVerifier {
    /// Parses PostgreSQL's form: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt: BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// The text that `parse` reads. It is secret.
    pub fn to_text(&self) -> String {
        let Self { iterations, salt, stored_key, server_key } = self;
        let [salt, stored, server] = [&salt[..], stored_key, server_key].map(|bytes| BASE64.encode(bytes));
        format!("SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }

    /// Hashes a new password with a random salt. Takes milliseconds: not for a latency-critical thread.
    ///
    /// Errors: 22023 if it is empty.
    pub fn of_password(password: &str, iterations: NonZeroU32) -> Result<Self, SqlError> {
        if password.is_empty() {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "empty string is not a valid password",
            ));
        }
        let mut salt = vec![0; SALT_BYTES];
        random(&mut salt)?;
        Ok(Self::hash_with_salt(password, salt, iterations))
    }

    fn hash_with_salt(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        // PostgreSQL and its clients use a password that cannot be normalized unchanged.
        let password = stringprep::saslprep(password).unwrap_or(std::borrow::Cow::Borrowed(password));
        let mut salted = [0; KEY_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
        let stored_key = sha256(&mac(&salted, b"Client Key"));
        Self { iterations, salt, stored_key, server_key: mac(&salted, b"Server Key") }
    }

    /// Checks a cleartext password. Takes milliseconds.
    pub fn check(&self, password: &str) -> bool {
        let other = Self::hash_with_salt(password, self.salt.clone(), self.iterations);
        is_same(&self.stored_key, &other.stored_key)
    }
}

/// Mock verifiers for roles without a password. One per server.
pub struct Mock {
    key: [u8; KEY_BYTES],
    iterations: NonZeroU32,
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}

impl Mock {
    /// `iterations`: the number used for passwords here; another one would reveal roles without a password.
    pub fn new(iterations: NonZeroU32) -> Result<Self, SqlError> {
        let mut key = [0; KEY_BYTES];
        random(&mut key)?;
        Ok(Self { key, iterations })
    }

    /// The mock verifier of `user`: the same each time; no password matches.
    pub fn verifier(&self, user: &str) -> ScramVerifier {
        let salt = mac(&self.key, &[b"salt ", user.as_bytes()].concat())[..SALT_BYTES].to_vec();
        let stored_key = mac(&self.key, &[b"stored ", user.as_bytes()].concat());
        let server_key = mac(&self.key, &[b"server ", user.as_bytes()].concat());
        ScramVerifier { iterations: self.iterations, salt, stored_key, server_key }
    }
}

/// Checks a cleartext password, with the same work and the same error if there is no verifier. Takes
/// milliseconds.
pub fn check_password(
    user: &str,
    verifier: Option<&ScramVerifier>,
    mock: &Mock,
    password: &str,
) -> Result<(), SqlError> {
    let instead = mock.verifier(user);
    let is_right = verifier.unwrap_or(&instead).check(password);
    match is_right && verifier.is_some() {
        true => Ok(()),
        false => Err(wrong_password(user)),
    }
}

/// A SCRAM exchange before the client's first message.
#[derive(Debug)]
pub struct Scram {
    user: String,
    verifier: ScramVerifier,
    is_mock: bool,
    binding: Option<Vec<u8>>,
}

/// A SCRAM exchange that waits for the client's proof.
#[derive(Debug)]
pub struct Challenge {
    user: String,
    verifier: ScramVerifier,
    is_mock: bool,
    /// The channel-binding data that the client must repeat.
    channel: Vec<u8>,
    nonce: String,
    first_bare: String,
    server_first: String,
}

impl Scram {
    /// `verifier`: `None` if the role does not exist, has no password, or has an expired one. `binding`: of a
    /// TLS connection, see `tls::LoadedTls::binding`.
    pub fn new(user: &str, verifier: Option<ScramVerifier>, mock: &Mock, binding: Option<&[u8]>) -> Self {
        let is_mock = verifier.is_none();
        // Computed in any case, for constant time.
        let instead = mock.verifier(user);
        let verifier = verifier.unwrap_or(instead);
        Self { user: user.to_string(), verifier, is_mock, binding: binding.map(<[u8]>::to_vec) }
    }

    /// The offered mechanisms, in order of preference.
    pub fn mechanisms(&self) -> &'static [&'static str] {
        match self.binding {
            Some(_) => &[MECHANISM_PLUS, MECHANISM],
            None => &[MECHANISM],
        }
    }

    /// The response to the client's first message, and the state to check its second.
    pub fn challenge(self, mechanism: &str, client_first: &[u8]) -> Result<(String, Challenge), SqlError> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        self.challenge_with(mechanism, client_first, &BASE64.encode(nonce))
    }

    fn challenge_with(
        self,
        mechanism: &str,
        client_first: &[u8],
        own_nonce: &str,
    ) -> Result<(String, Challenge), SqlError> {
        if !self.mechanisms().contains(&mechanism) {
            return Err(protocol("the client selected a SASL mechanism that was not offered"));
        }
        let is_bound = mechanism == MECHANISM_PLUS;
        let client_first = message(client_first)?;
        let mut parts = client_first.splitn(3, ',');
        let (flag, identity) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let first_bare =
            parts.next().ok_or_else(|| malformed_message("a client's first message has three parts"))?;
        match (flag, is_bound) {
            ("n", false) => {}
            // The client supports channel binding but believes that the server does not: someone in between
            // removed the mechanism from the list.
            ("y", false) if self.binding.is_some() => {
                let message = "SCRAM channel binding negotiation error";
                return Err(SqlError::fatal(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message).with_detail(
                    "The client supports SCRAM channel binding but thinks the server does not. However, this server does \
                     support channel binding.",
                ));
            }
            ("y", false) => {}
            ("n" | "y", true) => {
                return Err(malformed_message("SCRAM-SHA-256-PLUS was selected without channel binding"));
            }
            (flag, is_bound) => match flag.strip_prefix("p=") {
                Some("tls-server-end-point") if is_bound => {}
                Some(_) if is_bound => return Err(protocol("unsupported SCRAM channel-binding type")),
                Some(_) => {
                    return Err(malformed_message("SCRAM-SHA-256 was selected with channel binding"));
                }
                None => return Err(malformed_message("unexpected channel-binding flag")),
            },
        }
        if !identity.is_empty() {
            let message = "client uses authorization identity, but it is not supported";
            return Err(SqlError::fatal(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let mut attributes = first_bare.split(',');
        let name = attributes.next().unwrap_or_default();
        if name.starts_with("m=") {
            return Err(SqlError::fatal(
                SqlState::FEATURE_NOT_SUPPORTED,
                "client requires an unsupported SCRAM extension",
            ));
        }
        // The startup message has named the user.
        if !name.starts_with("n=") {
            return Err(malformed_message("the user name is missing"));
        }
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let nonce = nonce
            .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic()))
            .ok_or_else(|| {
                malformed_message("the nonce is missing or has characters that cannot be printed")
            })?;
        let mut channel = format!("{flag},,").into_bytes();
        if is_bound {
            channel.extend(self.binding.unwrap_or_default());
        }
        let nonce = format!("{nonce}{own_nonce}");
        let ScramVerifier { iterations, salt, .. } = &self.verifier;
        let server_first = format!("r={nonce},s={},i={iterations}", BASE64.encode(salt));
        let challenge = Challenge {
            user: self.user,
            verifier: self.verifier,
            is_mock: self.is_mock,
            channel,
            nonce,
            first_bare: first_bare.to_string(),
            server_first: server_first.clone(),
        };
        Ok((server_first, challenge))
    }
}

impl Challenge {
    /// Checks the proof; returns the final message, which authenticates the server.
    ///
    /// Errors: 28P01 if the password is wrong; 08P01 if the message is not a response to the challenge.
    pub fn verify(self, client_final: &[u8]) -> Result<String, SqlError> {
        let client_final = message(client_final)?;
        let (without_proof, proof) =
            client_final.rsplit_once(",p=").ok_or_else(|| malformed_message("the proof is missing"))?;
        let mut attributes = without_proof.split(',');
        let channel = attributes.next().and_then(|one| one.strip_prefix("c="));
        let channel = channel.and_then(|channel| BASE64.decode(channel).ok());
        let channel = channel.ok_or_else(|| malformed_message("the channel binding is missing"))?;
        if !is_same(&channel, &self.channel) {
            return Err(SqlError::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                "SCRAM channel binding check failed",
            ));
        }
        if attributes.next().and_then(|one| one.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(malformed_message("the nonce is another"));
        }
        let proof: [u8; KEY_BYTES] = BASE64
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or_else(|| malformed_message("the proof has another length"))?;
        let said = format!("{},{},{without_proof}", self.first_bare, self.server_first);
        let signature = mac(&self.verifier.stored_key, said.as_bytes());
        let mut client_key = [0; KEY_BYTES];
        for (at, byte) in client_key.iter_mut().enumerate() {
            *byte = proof[at] ^ signature[at];
        }
        let is_right = is_same(&sha256(&client_key), &self.verifier.stored_key);
        let server = mac(&self.verifier.server_key, said.as_bytes());
        match is_right && !self.is_mock {
            true => Ok(format!("v={}", BASE64.encode(server))),
            false => Err(wrong_password(&self.user)),
        }
    }
}

fn message(bytes: &[u8]) -> Result<&str, SqlError> {
    if bytes.len() > MESSAGE_BYTES_MAX || bytes.contains(&0) {
        return Err(malformed_message("it is too long or has a zero in it"));
    }
    std::str::from_utf8(bytes).map_err(|_| malformed_message("it is not UTF-8"))
}

fn malformed_message(detail: &str) -> SqlError {
    protocol("malformed SCRAM message").with_detail(detail)
}

fn protocol(message: &str) -> SqlError {
    SqlError::fatal(SqlState::PROTOCOL_VIOLATION, message)
}

fn random(bytes: &mut [u8]) -> Result<(), SqlError> {
    let failed = |_| SqlError::fatal(SqlState::IO_ERROR, "the system gives no random numbers");
    SystemRandom::new().fill(bytes).map_err(failed)
}

fn mac(key: &[u8], message: &[u8]) -> [u8; KEY_BYTES] {
    bytes(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref())
}

fn sha256(message: &[u8]) -> [u8; KEY_BYTES] {
    bytes(digest::digest(&digest::SHA256, message).as_ref())
}

fn bytes(hash: &[u8]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(hash);
    key
}

/// Compares in constant time.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && std::hint::black_box(left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right)))
            == 0
}

#[cfg(test)]
mod tests;
