//! Store settings besides the URL: from options, else from the environment. Values are never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::store_error;

/// Connect timeout.
const CONNECT_SECONDS: u64 = 5;
/// Timeout of a request and its response, including the body. Bodies are at most some tens of megabytes:
/// uploads are multipart, and a read that times out resumes where it stopped.
const REQUEST_SECONDS: u64 = 30;
/// No retry starts later than this after the first attempt. It must be several times the request timeout, or
/// unanswered requests would never be retried.
const RETRY_SECONDS: u64 = 100;
const RETRIES: usize = 10;
/// A lock not renewed for this long may be taken over. Holders renew it six times in that time, and stop
/// after half of it.
const LEASE_SECONDS: u64 = 30;
const _: () = assert!(RETRY_SECONDS > 3 * REQUEST_SECONDS);

/// Bounds of the exponential backoff between retries.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Prefix of the environment variables of this crate's own options.
const ENVIRONMENT: &str = "HARRIER_STORE_";

/// Keys and values; keys are case-insensitive.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Adds an option, or replaces it.
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.0.insert(key.trim().to_lowercase(), value.into());
        self
    }

    /// Merges `other` over these.
    ///
    /// Keys of stores are merged as a unit: a token belongs to the key that it was given with.
    pub fn merge(mut self, other: &Self) -> Self {
        if other.0.contains_key("access_key_id") {
            self.0.remove("session_token");
            self.0.remove("secret_access_key");
        }
        self.0.extend(other.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        self
    }

    /// Removes an option.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(&key.trim().to_lowercase());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every option with its value; callers that print them must hide keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The timeouts and retry limits.
    ///
    /// Errors: an option is not a whole number.
    pub(crate) fn limits(&self) -> object_store::Result<Limits> {
        Ok(Limits {
            connect: Duration::from_secs(self.number("connect_seconds", CONNECT_SECONDS)?),
            request: Duration::from_secs(self.number("request_seconds", REQUEST_SECONDS)?),
            retry: Duration::from_secs(self.number("retry_seconds", RETRY_SECONDS)?),
            retries: self.number("retries", RETRIES as u64)? as usize,
            lease: Duration::from_secs(self.number("lease_seconds", LEASE_SECONDS)?.max(1)),
        })
    }

    fn number(&self, key: &str, default: u64) -> object_store::Result<u64> {
        let name = format!("{ENVIRONMENT}{}", key.to_uppercase());
        let value = self.0.get(key).cloned().or_else(|| std::env::var(name).ok());
        match value {
            None => Ok(default),
            Some(value) => value
                .trim()
                .parse()
                .map_err(|_| store_error("options", format!("{key} is not a whole number"))),
        }
    }
}

impl<K: AsRef<str>, V: Into<String>> FromIterator<(K, V)> for Options {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        pairs.into_iter().fold(Self::default(), |options, (key, value)| options.with(key.as_ref(), value))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Timeouts and retry limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub connect: Duration,
    pub request: Duration,
    pub retry: Duration,
    pub retries: usize,
    pub lease: Duration,
}

impl Limits {
    /// See [`crate::Staging::request_age_max`]. The last attempt begins before `retry` is over.
    pub(crate) fn request_age_max(&self) -> Duration {
        self.retry + 2 * self.request
    }
}

/// Whether a key is one of this crate's own.
pub(crate) fn is_limit(key: &str) -> bool {
    matches!(key, "connect_seconds" | "request_seconds" | "retry_seconds" | "retries" | "lease_seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_printed() {
        let options = Options::default().with("Secret_Access_Key", "hush").with("endpoint", "http://here");
        let said = format!("{options:?} {options:#?}");
        assert!(
            said.contains("secret_access_key") && !said.contains("hush") && !said.contains("here"),
            "{said}"
        );
    }

    #[test]
    fn limits_are_numbers() {
        let options = Options::default().with("RETRIES", " 3 ").with("request_seconds", "7");
        let limits = options.limits().unwrap();
        assert_eq!((limits.retries, limits.request), (3, Duration::from_secs(7)));
        assert!(Options::default().with("retries", "many").limits().is_err());
    }
}
