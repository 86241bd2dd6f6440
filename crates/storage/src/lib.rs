//! Object stores by their URLs: S3 and HDFS. It never decides what is visible.
//!
//! Credentials and endpoints come from the environment, by the names that other tools use for them, and are never printed.
//!
//! | URL | environment |
//! |---|---|
//! | `s3://bucket` | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`; `AWS_ALLOW_HTTP=true` for one without TLS; `AWS_METADATA_ENDPOINT` for the role of an instance; without credentials requests are not signed |
//! | `hdfs://host:port` | `HADOOP_CONF_DIR`, `HADOOP_USER_NAME` |

use std::sync::Arc;
use std::time::Duration;

use hdfs_native_object_store::HdfsObjectStoreBuilder;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

/// A request is tried again for no longer than this.
const RETRY_MAX: Duration = Duration::from_secs(60);
const RETRIES_MAX: usize = 10;
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A request that moves no byte for so long has failed.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// Whichever of these the environment has says that requests are to be signed, and with what.
const CREDENTIALS: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_IMDSV1_FALLBACK",
];

/// The store that `url` is in; `None` for a kind that is not known.
///
/// Errors: what the environment says about it is incomplete or wrong.
pub fn open(url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    match url.scheme() {
        "s3" | "s3a" => s3(url).map(Some),
        "hdfs" => {
            let store = HdfsObjectStoreBuilder::new().with_url(root_of(url)).build()?;
            Ok(Some(Arc::new(store)))
        }
        _ => Ok(None),
    }
}

fn s3(url: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let bucket = url.host_str().unwrap_or_default();
    let retry =
        RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES_MAX, retry_timeout: RETRY_MAX };
    let allow_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_MAX)
        .with_timeout(REQUEST_MAX)
        .with_allow_http(allow_http);
    // Without any, requests are not signed: asking a cloud's metadata service would make others wait for what is not there.
    let is_signed = CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some());
    let store = AmazonS3Builder::from_env()
        .with_skip_signature(!is_signed)
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_client_options(client)
        .with_retry(retry)
        .build()?;
    Ok(Arc::new(store))
}

fn root_of(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_urls() {
        let is_known = |url: &str| open(&Url::parse(url).unwrap()).map(|store| store.is_some());
        assert!(!is_known("ftp://host/x").unwrap());
        assert!(is_known("s3://bucket/x").unwrap());
        assert_eq!(root_of(&Url::parse("hdfs://host:9000/a/b").unwrap()), "hdfs://host:9000");
    }
}
