//! Object stores opened by URL: S3 and HDFS. This crate never decides what is visible.
//!
//! Settings of a store come from [`Options`], else from the environment variables that other tools use, too.
//! Credentials are never printed, neither in errors nor by `Debug`, and are not taken from URLs; a URL may
//! carry the name of options that the process knows (`profiles.rs`).
//!
//! | URL | options | environment |
//! |---|---|---|
//! | `s3://bucket` | `access_key_id`, `secret_access_key`, `session_token`, `region`, `endpoint`, `allow_http`, and the other keys of `object_store` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`; `AWS_ALLOW_HTTP=true` for one without TLS; `AWS_CA_BUNDLE`, `AWS_PROXY_URL`; credentials as AWS's tools take them (`credentials.rs`), none with `AWS_SKIP_SIGNATURE=true` |
//! | `hdfs://host:port`, `hdfs://nameservice` | every key of Hadoop's configuration, as `dfs.ha.namenodes.NAME` | `HADOOP_CONF_DIR`, `HADOOP_USER_NAME` |
//! | both | `connect_seconds`, `request_seconds`, `retry_seconds`, `retries`, `lease_seconds` | `HARRIER_STORE_CONNECT_SECONDS`, … |
//!
//! Errors: every operation ends in bounded time. A request that fails temporarily (5xx, 429, a broken
//! connection, a timeout) is retried with exponential backoff, up to `retries` or `retry_seconds`
//! (`retry.rs`). So operations survive a restart of the server; interrupted reads resume, and a put of a
//! whole file is repeated.
//!
//! Operations with a lost response are resolved, not guessed: conditional puts and multipart uploads carry a
//! unique mark that is looked up afterwards (`s3.rs`). HDFS files are created at their final path
//! (`hdfs.rs`).

mod credentials;
mod full_responses;
mod hdfs;
mod options;
mod pending_work;
mod profiles;
mod retry;
mod s3;
mod signing;
mod staging;
mod transfer;
mod unfinished;

use std::sync::Arc;

use object_store::ObjectStore;
use url::Url;

pub use hdfs::{finished_name, temporary_path};
pub use options::Options;
pub use pending_work::{PendingWork, wait_for_pending_work};
pub use profiles::{adopt, export, profile_of, with_options, without_profiles};
pub use staging::{DISCARDED, PublishOutcome, Staged, StagedWriter, Staging};
pub use unfinished::{UnfinishedUpload, UnfinishedUploads};

/// Opens the store of `url` by the environment alone; `None` for an unknown scheme.
///
/// Errors: the environment's settings are incomplete or wrong.
pub fn open(url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    open_with(url, &Options::default())
}

/// Opens the store of `url` by `options` and the environment; `None` for an unknown scheme. Opens no
/// connection.
///
/// Errors: the settings are incomplete or wrong; the URL contains credentials.
pub fn open_with(url: &Url, options: &Options) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    let open = match url.scheme() {
        "s3" | "s3a" => s3::open,
        "hdfs" => hdfs::open,
        _ => return Ok(None),
    };
    open(url, &merged_options(url, options)?).map(Some)
}

/// Opens the same store for staging files.
///
/// Errors: as of [`open_with`].
pub fn open_staging(url: &Url, options: &Options) -> object_store::Result<Option<Arc<dyn Staging>>> {
    let open = match url.scheme() {
        "s3" | "s3a" => s3::open_staging,
        "hdfs" => hdfs::open_staging,
        _ => return Ok(None),
    };
    open(url, &merged_options(url, options)?).map(Some)
}

/// Opens the unfinished uploads of the same store; `None` for a store where listings show unfinished files,
/// and for one read without credentials.
///
/// Errors: as of [`open_with`].
pub fn open_unfinished(url: &Url, options: &Options) -> object_store::Result<Option<UnfinishedUploads>> {
    match url.scheme() {
        "s3" | "s3a" => s3::open_unfinished(url, &merged_options(url, options)?),
        _ => Ok(None),
    }
}

/// The canonical name of a store option that a statement may set for this scheme. Keys of Hadoop's
/// configuration are not checked one by one. `None`: it is unknown, or must be the same for everybody
/// (`lease_seconds`).
pub fn option_name(scheme: &str, key: &str) -> Option<String> {
    let key = key.trim().to_lowercase();
    match key.as_str() {
        "lease_seconds" => None,
        key if options::is_limit(key) || scheme == "hdfs" => Some(key.to_string()),
        key => s3::option_name(key),
    }
}

/// Checks `options` and merges them over those that the URL names.
fn merged_options(url: &Url, options: &Options) -> object_store::Result<Options> {
    let is_named = profile_of(url).is_some();
    if url.password().is_some() || !url.username().is_empty() && !is_named && url.scheme() != "hdfs" {
        return Err(store_error("URL", "credentials do not belong in URLs, where logs and errors show them"));
    }
    Ok(profiles::options_of(url)?.merge(options))
}

/// An error in the user's settings.
fn store_error(store: &'static str, what: impl Into<String>) -> object_store::Error {
    object_store::Error::Generic { store, source: what.into().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_text(url: &str) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
        open(&Url::parse(url).unwrap())
    }

    #[test]
    fn store_kinds_are_recognized_by_url() {
        assert!(open_text("ftp://host/x").unwrap().is_none());
        assert!(open_text("s3://bucket/x").unwrap().is_some());
        assert!(open_text("hdfs://host:9000/x").unwrap().is_some());
    }

    #[test]
    fn credentials_in_urls_are_refused_and_not_repeated() {
        let error = open_text("s3://KEYID:hush@bucket/x").unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(said.contains("credentials"), "{said}");
        assert!(!said.contains("hush") && !said.contains("KEYID"), "{said}");
    }
}
