//! Registry of store options under names that URLs can carry: `s3://options-…@bucket/path`.
//!
//! A plan names files by URL alone, and plans are shown, logged and sent: credentials must not be in them. A
//! process registers options under an opaque name that goes into the URLs. Other processes of a gang receive
//! the options along with the plan ([`export`], [`adopt`]).
//!
//! Names are random, so that nobody finds another's options by guessing, and live as long as the process.
//! Equal options share a name, so that there are as many names as distinct options.

use std::collections::HashMap;
use std::sync::LazyLock;

use object_store::Result;
use parking_lot::RwLock;
use url::Url;
use url::form_urlencoded;
use uuid::Uuid;

use crate::options::Options;
use crate::store_error;

/// Prefix of every name.
const PREFIX: &str = "options-";

static REGISTRY: LazyLock<RwLock<HashMap<String, Options>>> = LazyLock::new(RwLock::default);

/// Adds the name of `options` to `url`; without options, `url` unchanged.
///
/// Errors: the URL cannot carry a name, or has a user or a password in it.
pub fn with_options(url: &Url, options: Options) -> Result<Url> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(store_error("URL", "credentials do not belong in URLs, where logs and errors show them"));
    }
    if options.is_empty() {
        return Ok(url.clone());
    }
    let mut named = url.clone();
    named.set_username(&register(options)).map_err(|()| store_error("URL", "it names no store"))?;
    Ok(named)
}

/// The options name in `url`.
pub fn profile_of(url: &Url) -> Option<&str> {
    Some(url.username()).filter(|name| name.starts_with(PREFIX))
}

/// Strips the names from the URLs in `text`, for display.
pub fn without_profiles(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        let name_end = at + PREFIX.len() + Uuid::nil().simple().to_string().len();
        let is_named =
            rest[..at].ends_with("://") && rest.get(name_end..).is_some_and(|rest| rest.starts_with('@'));
        let (before, after) =
            if is_named { (at, name_end + 1) } else { (at + PREFIX.len(), at + PREFIX.len()) };
        shown.push_str(&rest[..before]);
        rest = &rest[after..];
    }
    shown + rest
}

/// Encodes the options of a name for [`adopt`]; `None` if the name is unknown here.
pub fn export(profile: &str) -> Option<String> {
    let known = REGISTRY.read();
    Some(form_urlencoded::Serializer::new(String::new()).extend_pairs(known.get(profile)?.iter()).finish())
}

/// Registers another process's options under the same name.
pub fn adopt(profile: &str, encoded: &str) {
    if !profile.starts_with(PREFIX) || REGISTRY.read().contains_key(profile) {
        return;
    }
    let options = form_urlencoded::parse(encoded.as_bytes()).collect();
    REGISTRY.write().insert(profile.to_string(), options);
}

/// The options of the name in `url`.
///
/// Errors: the name is unknown in this process.
pub(crate) fn options_of(url: &Url) -> Result<Options> {
    match profile_of(url) {
        None => Ok(Options::default()),
        Some(name) => REGISTRY.read().get(name).cloned().ok_or_else(|| {
            store_error("URL", "the options that it was to be opened with are not known here")
        }),
    }
}

fn register(options: Options) -> String {
    let mut known = REGISTRY.write();
    let there = known.iter().find(|(_, others)| **others == options).map(|(name, _)| name.clone());
    there.unwrap_or_else(|| {
        let name = format!("{PREFIX}{}", Uuid::new_v4().simple());
        known.insert(name.clone(), options);
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn profile_options_are_found_by_url() {
        let options = Options::default().with("region", "here").with("secret_access_key", "hush & more");
        let named = with_options(&url("s3://bucket/a%20b"), options.clone()).unwrap();
        assert!(!named.as_str().contains("hush"), "{named}");
        assert_eq!(named, with_options(&url("s3://bucket/a%20b"), options.clone()).unwrap());
        assert!(options_of(&named).unwrap() == options);
        let name = profile_of(&named).unwrap();
        let sent = export(name).unwrap();
        adopt(name, &sent);
        assert!(options_of(&named).unwrap() == options);
        assert_eq!(without_profiles(&format!("no {named} here")), "no s3://bucket/a%20b here");
        assert_eq!(without_profiles("options-1@ and options-"), "options-1@ and options-");
    }

    #[test]
    fn exported_options_are_adopted() {
        let name = format!("{PREFIX}{}", Uuid::new_v4().simple());
        let named = url(&format!("hdfs://{name}@host:9000/x"));
        assert!(options_of(&named).is_err());
        adopt(&name, "dfs.replication=1&retries=3");
        assert!(
            options_of(&named).unwrap()
                == Options::default().with("dfs.replication", "1").with("retries", "3")
        );
    }

    #[test]
    fn nothing_else_is_carried() {
        let plain = url("s3://bucket/x");
        assert_eq!(with_options(&plain, Options::default()).unwrap(), plain);
        assert_eq!(profile_of(&url("hdfs://me@host:1/x")), None);
        let said = with_options(&url("s3://me:hush@bucket/x"), Options::default()).unwrap_err().to_string();
        assert!(said.contains("credentials") && !said.contains("hush"), "{said}");
    }
}
