//! Object stores by their URLs: S3 and HDFS. It never decides what is visible.
//!
//! What a store needs to know comes from [`Options`], and where these say nothing from the environment, by
//! the names that other tools use for it. Credentials are never printed, neither in errors nor by `Debug`,
//! and are not taken from URLs; a URL may carry a name for options that the process knows (`profiles.rs`).
//!
//! | URL | options | environment |
//! |---|---|---|
//! | `s3://bucket` | `access_key_id`, `secret_access_key`, `session_token`, `region`, `endpoint`, `allow_http`, and the other keys of `object_store` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`; `AWS_ALLOW_HTTP=true` for one without TLS; `AWS_CA_BUNDLE`, `AWS_PROXY_URL`; credentials as AWS's tools take them (`credentials.rs`), none with `AWS_SKIP_SIGNATURE=true` |
//! | `hdfs://host:port`, `hdfs://nameservice` | every key of Hadoop's configuration, as `dfs.ha.namenodes.NAME` | `HADOOP_CONF_DIR`, `HADOOP_USER_NAME` |
//! | both | `connect_seconds`, `request_seconds`, `retry_seconds`, `retries`, `lease_seconds` | `HARRIER_STORE_CONNECT_SECONDS`, … |
//!
//! Errors: every operation ends in bounded time. A request that a server refuses for the moment (5xx, 429),
//! that breaks or is not answered is tried again with growing pauses, until `retries` or `retry_seconds` are
//! used up (`retry.rs`). So a server that is started again meanwhile is waited for; bytes that broke off are
//! read on, and a file that is put whole is written again.
//!
//! What may have happened though its answer was lost is found out, not guessed: a conditional put, and an
//! upload in parts, carry a mark of their own that is looked for (`s3.rs`). A file on HDFS is created at its
//! final path (`hdfs.rs`).

mod credentials;
mod hdfs;
mod options;
mod profiles;
mod retry;
mod s3;
mod signing;
mod staging;
mod transfer;
mod under_way;
mod unfinished;
mod whole_answers;

use std::sync::Arc;

use object_store::ObjectStore;
use url::Url;

pub use hdfs::{beside, finished_name};
pub use options::Options;
pub use profiles::{adopt, encoded, profile_of, with_options, without_profiles};
pub use staging::{Shown, Staged, StagedWriter, Staging, TAKEN_BACK};
pub use under_way::{UnderWay, settled};
pub use unfinished::{UnfinishedUpload, UnfinishedUploads};

/// The store that `url` is in, by the environment alone; `None` for a kind that is not known.
///
/// Errors: what the environment says about it is incomplete or wrong.
pub fn open(url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    open_with(url, &Options::default())
}

/// The store that `url` is in, by `options` and the environment; `None` for a kind that is not known. Opens
/// no connection.
///
/// Errors: what is said about it is incomplete or wrong; the URL has credentials in it.
pub fn open_with(url: &Url, options: &Options) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    let open = match url.scheme() {
        "s3" | "s3a" => s3::open,
        "hdfs" => hdfs::open,
        _ => return Ok(None),
    };
    open(url, &checked(url, options)?).map(Some)
}

/// The same store, for files that are staged in it.
///
/// Errors: as of [`open_with`].
pub fn open_staging(url: &Url, options: &Options) -> object_store::Result<Option<Arc<dyn Staging>>> {
    let open = match url.scheme() {
        "s3" | "s3a" => s3::open_staging,
        "hdfs" => hdfs::open_staging,
        _ => return Ok(None),
    };
    open(url, &checked(url, options)?).map(Some)
}

/// The uploads to the same store that nobody has completed or given up; `None` for a store where unfinished
/// files are found by listing it, and for one that is read without credentials.
///
/// Errors: as of [`open_with`].
pub fn open_unfinished(url: &Url, options: &Options) -> object_store::Result<Option<UnfinishedUploads>> {
    match url.scheme() {
        "s3" | "s3a" => s3::open_unfinished(url, &checked(url, options)?),
        _ => Ok(None),
    }
}

/// The name of an option that one statement may give stores of this scheme, the same for all ways to write
/// it. Keys of Hadoop's configuration are not known one by one. `None`: there is none, or it has to be the
/// same for everybody (`lease_seconds`).
pub fn option_name(scheme: &str, key: &str) -> Option<String> {
    let key = key.trim().to_lowercase();
    match key.as_str() {
        "lease_seconds" => None,
        key if options::is_limit(key) || scheme == "hdfs" => Some(key.to_string()),
        key => s3::option_name(key),
    }
}

/// `options`, over those that the URL names.
fn checked(url: &Url, options: &Options) -> object_store::Result<Options> {
    let is_named = profile_of(url).is_some();
    if url.password().is_some() || !url.username().is_empty() && !is_named && url.scheme() != "hdfs" {
        return Err(wrong("URL", "credentials do not belong in URLs, where logs and errors show them"));
    }
    Ok(profiles::options_of(url)?.and(options))
}

/// An error about what the user has said.
fn wrong(store: &'static str, what: impl Into<String>) -> object_store::Error {
    object_store::Error::Generic { store, source: what.into().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_text(url: &str) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
        open(&Url::parse(url).unwrap())
    }

    #[test]
    fn kinds_are_known_by_their_urls() {
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
