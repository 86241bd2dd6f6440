//! S3 store on top of its client library: resolves lost responses, and completes error messages.
//!
//! Requests whose response is lost are retried. Most are idempotent, but not all:
//!
//! | request | retry | resolution |
//! |---|---|---|
//! | put, part of an upload, copy | idempotent | |
//! | put-if-absent | 412: an object exists, perhaps this one | the object's mark shows whose it is |
//! | completion of an upload | 404: the upload no longer exists | the same |
//! | deletion | idempotent, but the library does not retry it | retried here |
//!
//! Cancellation: a multipart upload that is dropped before completion is aborted in the background, so that
//! its parts do not stay and cost.
//!
//! Crash: parts of an upload whose process died stay, invisible in listings; a sweep finds them by their
//! uploads (`unfinished.rs`).

pub(crate) mod responses;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::StaticCredentialProvider;
use object_store::aws::{
    AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider, S3ConditionalPut,
};
use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, Certificate, ClientConfigKey, ClientOptions, CopyOptions, Error,
    GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, RetryConfig,
    UploadPart,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::task::JoinSet;
use url::Url;
use uuid::Uuid;

use crate::credentials::{Chain, Settings, Variables};
use crate::options::{Limits, Options, PAUSE_MAX, PAUSE_MIN, is_limit};
use crate::pending_work::PendingWork;
use crate::retry::Retry;
use crate::s3::responses::{STORE, explain};
use crate::signing::Signing;
use crate::staging::{DISCARDED, PublishOutcome, Staged, StagedWriter, Staging};
use crate::store_error;
use crate::transfer::Transfer;
use crate::unfinished::UnfinishedUploads;

/// The default region, as in the library.
const REGION: &str = "us-east-1";

/// Options that select a credential source, in place of the environment's.
const SOURCES: [AmazonS3ConfigKey; 6] = [
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::RoleArn,
    AmazonS3ConfigKey::RoleSessionName,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
    AmazonS3ConfigKey::MetadataEndpoint,
];

/// Object metadata by which a writer recognizes its own object: `x-amz-meta-harrier-mark`.
const MARK: &str = "harrier-mark";

/// Most objects per delete request, by S3's limit.
const DELETED_MAX: usize = 1000;
/// Concurrent delete requests.
const DELETING_MAX: usize = 8;
/// Uploads aborted concurrently.
const ABORTS_MAX: usize = 8;

/// Bytes of the first parts of a file; S3 requires 5 MiB at least.
const PART_BYTES: usize = 8 << 20;
/// After this many parts, parts grow: 4 times the first size, then 9 times, and so on.
const PARTS_GROW: usize = 700;
/// S3's limit on the number of parts.
const PARTS_MAX: usize = 10_000;
/// S3's largest object, of 5 TiB, needs fewer parts than that.
const _: () = {
    let (mut sent, mut bytes) = (0, 0_u64);
    while sent < PARTS_MAX {
        bytes += part_bytes(sent) as u64;
        sent += 1;
    }
    assert!(bytes > 5 << 40);
};

/// Size of the part that follows `sent` parts.
const fn part_bytes(sent: usize) -> usize {
    let times = 1 + sent / PARTS_GROW;
    PART_BYTES * times * times
}

/// For a writer with its own part size: the first parts go as they come.
const fn part_bytes_min(sent: usize) -> usize {
    match sent < PARTS_GROW {
        true => 0,
        false => part_bytes(sent),
    }
}
/// Parts of one file sent concurrently.
const SENDING_MAX: usize = 2;

pub(crate) fn open(url: &Url, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(connect(url, options)?))
}

pub(crate) fn open_staging(url: &Url, options: &Options) -> Result<Arc<dyn Staging>> {
    let s3 = connect(url, options)?;
    let (inner, bucket, limits) = (Arc::clone(&s3.inner), Arc::clone(&s3.bucket), s3.limits);
    Ok(Arc::new(UploadStaging { store: Arc::new(s3), inner, bucket, limits }))
}

/// `None` if requests are not signed: uploads cannot be aborted then.
pub(crate) fn open_unfinished(url: &Url, options: &Options) -> Result<Option<UnfinishedUploads>> {
    let s3 = connect(url, options)?;
    let is_signed = s3.is_signed;
    Ok(is_signed.then(|| UnfinishedUploads::new(s3.inner, s3.client, s3.region, s3.bucket, s3.limits)))
}

fn connect(url: &Url, options: &Options) -> Result<S3> {
    let bucket = url.host_str().unwrap_or_default();
    if bucket.is_empty() {
        return Err(store_error(STORE, "the URL names no bucket: s3://BUCKET/…"));
    }
    let limits = options.limits()?;
    let retry = RetryConfig {
        backoff: BackoffConfig { init_backoff: PAUSE_MIN, max_backoff: PAUSE_MAX, base: 2.0 },
        max_retries: limits.retries,
        retry_timeout: limits.retry,
    };
    let variables = Variables::of_process();
    let settings = Settings::of(&variables);
    let mut builder = AmazonS3Builder::from_env().with_client_options(client_options(&limits, &settings)?);
    if let Some(region) = variables.get("AWS_REGION") {
        builder = builder.with_region(region);
    } else if let (None, Some(region)) = (variables.get("AWS_DEFAULT_REGION"), &settings.region) {
        builder = builder.with_region(region);
    }
    let names_endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"];
    if let (false, Some(endpoint)) =
        (names_endpoint.iter().any(|name| variables.get(name).is_some()), &settings.endpoint)
    {
        builder = builder.with_endpoint(endpoint);
    }
    let mut sources: Vec<(String, String)> = Vec::new();
    for (key, value) in options.iter().filter(|(key, _)| !is_limit(key)) {
        let known = config_key(key).ok_or_else(|| {
            store_error(STORE, format!("unknown option \"{key}\" (known are access_key_id, secret_access_key, session_token, region, endpoint, allow_http and more)"))
        })?;
        if SOURCES.contains(&known) {
            sources.push((known.as_ref().to_uppercase(), value.to_string()));
        }
        // The library would otherwise take the other endpoint key from the environment.
        if known == AmazonS3ConfigKey::Endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, value);
        }
        builder = builder.with_config(known, value);
    }
    let credentials: AwsCredentialProvider = match own_credentials(options)? {
        Some(own) => Arc::new(StaticCredentialProvider::new(own)),
        None => Chain::shared_chain(&match sources.is_empty() {
            true => variables,
            false => variables.with_sources(sources),
        }),
    };
    let builder = builder.with_credentials(Arc::clone(&credentials));
    let said = |key: AmazonS3ConfigKey| builder.get_config_value(&key).unwrap_or_default();
    let may_be_open =
        said(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)).eq_ignore_ascii_case("true");
    // The library prefers the S3-specific one.
    let endpoint = Some(said(AmazonS3ConfigKey::S3Endpoint)).filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.unwrap_or_else(|| said(AmazonS3ConfigKey::Endpoint));
    let is_open = is_of_scheme(&endpoint, "http://");
    if !endpoint.is_empty() && !is_open && !is_of_scheme(&endpoint, "https://") {
        let message = format!("its endpoint \"{endpoint}\" does not begin with https:// or http://");
        return Err(store_error(STORE, message));
    }
    // The library's own error for it has no reason.
    if is_open && !may_be_open {
        return Err(store_error(
            STORE,
            "its endpoint is without TLS, which has to be wanted: s3.allow_http or AWS_ALLOW_HTTP is true",
        ));
    }
    let region = Some(said(AmazonS3ConfigKey::Region)).filter(|region| !region.is_empty());
    let is_signed = !said(AmazonS3ConfigKey::SkipSignature).eq_ignore_ascii_case("true");
    let region = region.unwrap_or_else(|| REGION.to_string());
    let signing = is_signed.then(|| Arc::new(Signing::new(&region, credentials)));
    let connector = CapturingConnector { last: Arc::default(), idle_timeout: limits.request, signing };
    let builder = builder.with_bucket_name(bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
    let inner = builder.clone().with_retry(retry.clone()).with_http_connector(connector.clone()).build()?;
    let client = connector.last.lock().take();
    let client = client.ok_or_else(|| store_error(STORE, "nothing was made for requests to go through"))?;
    // Requests retried here must not also be retried by the library, or the retries multiply.
    let once = RetryConfig { max_retries: 0, ..retry };
    let without_retries = builder
        .with_retry(once)
        .with_credentials(Arc::clone(inner.credentials()))
        .with_http_connector(SharedConnector(client.clone()))
        .build()?;
    Ok(S3 {
        inner: Arc::new(inner),
        without_retries: Arc::new(without_retries),
        bucket: bucket.into(),
        limits,
        client,
        region,
        is_signed,
    })
}

/// Connection settings from the environment, except for timeouts.
fn client_options(limits: &Limits, settings: &Settings) -> Result<ClientOptions> {
    let mut client = ClientOptions::new();
    for (name, value) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        if let Ok(AmazonS3ConfigKey::Client(key)) = name.to_lowercase().parse() {
            client = client.with_config(key, value);
        }
    }
    let allow_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    let client = client
        .with_connect_timeout(limits.connect)
        // The idle timeout replaces it (`transfer.rs`).
        .with_timeout_disabled()
        .with_allow_http(allow_http);
    with_authorities(client, settings.ca_bundle.as_deref())
}

/// Adds the root certificates of the file `AWS_CA_BUNDLE`, or else of `otherwise`, to `client`.
///
/// Errors: the file has no certificates.
pub(crate) fn with_authorities(mut client: ClientOptions, otherwise: Option<&str>) -> Result<ClientOptions> {
    let said = std::env::var("AWS_CA_BUNDLE").ok().filter(|file| !file.is_empty());
    let Some(file) = said.as_deref().or(otherwise) else { return Ok(client) };
    let failed = |why: &dyn fmt::Display| {
        store_error(STORE, format!("could not read the certificates of AWS_CA_BUNDLE \"{file}\": {why}"))
    };
    let text = std::fs::read(file).map_err(|error| failed(&error))?;
    for certificate in Certificate::from_pem_bundle(&text).map_err(|error| failed(&error))? {
        client = client.with_root_certificate(certificate);
    }
    Ok(client)
}

fn is_of_scheme(endpoint: &str, scheme: &str) -> bool {
    endpoint.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
}

/// Makes the library's connections with an idle timeout, and captures the last client: the library makes the
/// one for the bucket after those for credentials.
#[derive(Debug, Clone)]
struct CapturingConnector {
    last: Arc<Mutex<Option<HttpClient>>>,
    idle_timeout: Duration,
    signing: Option<Arc<Signing>>,
}

impl HttpConnector for CapturingConnector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let client = Transfer::with_signing(client, self.idle_timeout, self.signing.clone());
        *self.last.lock() = Some(client.clone());
        Ok(client)
    }
}

/// Shares an existing client.
#[derive(Debug)]
struct SharedConnector(HttpClient);

impl HttpConnector for SharedConnector {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// The keys in the options; the environment's are ignored then.
///
/// Errors: a part of them is missing.
fn own_credentials(options: &Options) -> Result<Option<AwsCredential>> {
    let of = |wanted: AmazonS3ConfigKey| {
        options.iter().find(|(key, _)| config_key(key) == Some(wanted)).map(|(_, value)| value.to_string())
    };
    let Some(key_id) = of(AmazonS3ConfigKey::AccessKeyId) else { return Ok(None) };
    let Some(secret_key) = of(AmazonS3ConfigKey::SecretAccessKey) else {
        return Err(store_error(STORE, "access_key_id is given without secret_access_key"));
    };
    Ok(Some(AwsCredential { key_id, secret_key, token: of(AmazonS3ConfigKey::Token) }))
}

/// The canonical name of a key with several spellings.
pub(crate) fn option_name(key: &str) -> Option<String> {
    let known = match config_key(key)? {
        AmazonS3ConfigKey::S3Endpoint => AmazonS3ConfigKey::Endpoint,
        known => known,
    };
    let name: &str = known.as_ref();
    Some(name.strip_prefix("aws_").unwrap_or(name).to_string())
}

fn config_key(key: &str) -> Option<AmazonS3ConfigKey> {
    let name = key.strip_prefix("aws.").or_else(|| key.strip_prefix("s3.")).unwrap_or(key);
    // The library knows only the spelling with `aws_`.
    let name = if name == "allow_http" { "aws_allow_http" } else { name };
    name.parse().ok()
}

struct S3 {
    inner: Arc<AmazonS3>,
    /// The same without retries.
    without_retries: Arc<AmazonS3>,
    bucket: Arc<str>,
    limits: Limits,
    /// The HTTP client of both.
    client: HttpClient,
    region: String,
    is_signed: bool,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3({})", self.bucket)
    }
}

impl fmt::Display for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)
    }
}

#[async_trait]
impl ObjectStore for S3 {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        if options.mode != PutMode::Create {
            let put = self.inner.put_opts(location, payload, options).await;
            return put.map_err(|error| explain(&self.bucket, error));
        }
        let mark = add_mark(&mut options.attributes);
        match self.inner.put_opts(location, payload, options).await {
            Err(error @ Error::AlreadyExists { .. }) => {
                match find_own_put(&self.inner, location, &mark).await {
                    Some(put) => Ok(put),
                    None => Err(error),
                }
            }
            other => other.map_err(|error| explain(&self.bucket, error)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        mut options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let mark = add_mark(&mut options.attributes);
        let upload = self.inner.put_multipart_opts(location, options).await;
        let upload = upload.map_err(|error| explain(&self.bucket, error))?;
        Ok(Box::new(Upload {
            inner: Some(upload),
            store: Arc::clone(&self.inner),
            bucket: Arc::clone(&self.bucket),
            location: location.clone(),
            mark,
            waiting: Vec::new(),
            waiting_bytes: 0,
            sent: 0,
            pending_work: Some(PendingWork::begin()),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let wanted = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        let found = match self.inner.get_opts(location, options).await {
            Err(error) if is_head => Err(self.with_cause(location, error).await),
            found => found,
        };
        let mut found = found.map_err(|error| explain(&self.bucket, error))?;
        found.meta = with_unique_time(found.meta);
        if is_head {
            return Ok(found);
        }
        let name: Arc<str> = format!("{self}/{location}").into();
        check_encoding(&found.attributes, location, &name)?;
        if let Some(wanted) = wanted.filter(|wanted| found.range != *wanted) {
            // Callers that pass a range know the object's length.
            let size = found.meta.size;
            let what = format!("{name} has {size} bytes, and {} were there before", wanted.end);
            return Err(Error::Precondition { path: location.to_string(), source: what.into() });
        }
        if let GetResultPayload::Stream(stream) = found.payload {
            let strong = found.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
            let again = strong
                .map(|tag| reopen(Arc::clone(&self.inner), Arc::clone(&self.bucket), location.clone(), tag));
            let reading = ResumableRead {
                name,
                remaining: found.range.clone(),
                pieces: Some(stream),
                reopen: again,
                limits: self.limits,
                retry: None,
            };
            found.payload = GetResultPayload::Stream(reading.into_stream());
        }
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, bucket, limits) =
            (Arc::clone(&self.without_retries), Arc::clone(&self.bucket), self.limits);
        locations
            .try_chunks(DELETED_MAX)
            .map(move |chunk| {
                let (inner, bucket) = (Arc::clone(&inner), Arc::clone(&bucket));
                async move {
                    let chunk = chunk.map_err(|error| error.1)?;
                    let results = delete_some(&inner, &bucket, chunk, limits).await?;
                    Ok::<_, Error>(futures::stream::iter(results))
                }
            })
            .buffered(DELETING_MAX)
            .try_flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = Arc::clone(&self.bucket);
        self.inner.list(prefix).map_ok(with_unique_time).map_err(move |error| explain(&bucket, error)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = Arc::clone(&self.bucket);
        let found = self.inner.list_with_offset(prefix, offset);
        found.map_ok(with_unique_time).map_err(move |error| explain(&bucket, error)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let found = self.inner.list_with_delimiter(prefix).await;
        let mut found = found.map_err(|error| explain(&self.bucket, error))?;
        found.objects = found.objects.into_iter().map(with_unique_time).collect();
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await.map_err(|error| explain(&self.bucket, error))
    }
}

impl S3 {
    /// Adds the server's message to the error of a HEAD: only the response to a GET has a body.
    async fn with_cause(&self, location: &Path, error: Error) -> Error {
        let is_refused = match &error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => true,
            Error::Generic { source, .. } => source.to_string().contains("400 Bad Request"),
            _ => false,
        };
        if !is_refused {
            return error;
        }
        let first = GetOptions::new().with_range(Some(0..1));
        match self.inner.get_opts(location, first).await {
            Err(
                detailed @ (Error::Generic { .. }
                | Error::PermissionDenied { .. }
                | Error::Unauthenticated { .. }),
            ) => detailed,
            _ => error,
        }
    }
}

/// Deletes objects by one idempotent request, retrying it. `inner` does not retry.
async fn delete_some(
    inner: &AmazonS3,
    bucket: &str,
    chunk: Vec<Path>,
    limits: Limits,
) -> Result<Vec<Result<Path>>> {
    let mut retry = Retry::new(limits);
    loop {
        let asked: Vec<Result<Path>> = chunk.iter().cloned().map(Ok).collect();
        let results: Vec<Result<Path>> =
            inner.delete_stream(futures::stream::iter(asked).boxed()).collect().await;
        // The request as a whole has failed, or single objects have.
        let failed = match results.iter().find_map(|result| result.as_ref().err()) {
            None => return Ok(results),
            Some(error) => matches!(error, Error::Generic { .. }),
        };
        if !failed || !retry.wait().await {
            return Ok(results
                .into_iter()
                .map(|result| result.map_err(|error| explain(bucket, error)))
                .collect());
        }
    }
}

type Pieces = BoxStream<'static, Result<Bytes>>;

/// Requests a range again.
type Reopen = Arc<dyn Fn(Range<u64>) -> BoxFuture<'static, Result<Pieces>> + Send + Sync>;

/// The unread bytes of an object, as a resumable stream.
struct ResumableRead {
    name: Arc<str>,
    /// The remaining range.
    remaining: Range<u64>,
    pieces: Option<Pieces>,
    /// `None`: without a strong e-tag there is no way to check that the object is the same.
    reopen: Option<Reopen>,
    limits: Limits,
    /// Reset when a byte arrives.
    retry: Option<Retry>,
}

impl ResumableRead {
    /// Returns the next bytes. An interrupted body resumes where it broke off, with a fresh retry budget
    /// after any progress (the library counts all interruptions of a body together).
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let error = match self.piece().await {
                Ok(Some(piece)) => {
                    let bytes = piece.len() as u64;
                    if bytes > self.remaining.end - self.remaining.start {
                        return Err(self.wrong_length("is longer than"));
                    }
                    self.remaining.start += bytes;
                    self.retry = None;
                    return Ok(Some(piece));
                }
                Ok(None) if self.remaining.is_empty() => return Ok(None),
                Ok(None) => self.wrong_length("ends before"),
                Err(_) if self.remaining.is_empty() => return Ok(None),
                Err(error @ Error::Generic { .. }) => error,
                Err(error) => return Err(error),
            };
            self.pieces = None;
            let limits = self.limits;
            let goes_on =
                self.reopen.is_some() && self.retry.get_or_insert_with(|| Retry::new(limits)).wait().await;
            if !goes_on {
                return Err(error);
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        if self.pieces.is_none()
            && let Some(reopen) = &self.reopen
        {
            self.pieces = Some(reopen(self.remaining.clone()).await?);
        }
        match &mut self.pieces {
            Some(pieces) => pieces.try_next().await,
            None => Ok(None),
        }
    }

    fn wrong_length(&self, what: &str) -> Error {
        store_error(STORE, format!("{}: an answer {what} its end at byte {}", self.name, self.remaining.end))
    }

    fn into_stream(self) -> Pieces {
        let read = futures::stream::try_unfold(self, |mut reading| async move {
            Ok(reading.next().await?.map(|piece| (piece, reading)))
        });
        read.boxed()
    }
}

/// Checks Content-Encoding: readers derive the compression of a file from its name.
///
/// Errors: the store declares the object as compressed, and its name does not.
fn check_encoding(attributes: &Attributes, location: &Path, name: &str) -> Result<()> {
    let Some(encoding) = attributes.get(&Attribute::ContentEncoding) else { return Ok(()) };
    let endings: &[&str] = match encoding.as_ref() {
        "gzip" | "x-gzip" => &["gz", "gzip"],
        "zstd" => &["zst", "zstd"],
        "br" | "deflate" | "compress" => &[],
        _ => return Ok(()),
    };
    if location.extension().is_some_and(|ending| endings.contains(&ending)) {
        return Ok(());
    }
    let said: &str = encoding.as_ref();
    let what = format!(
        "{name} is stored with Content-Encoding {said}, which its name has to tell (.csv.gz, .csv.zst)"
    );
    Err(Error::NotSupported { source: what.into() })
}

/// Requests ranges of an object while it has this e-tag.
fn reopen(inner: Arc<AmazonS3>, bucket: Arc<str>, location: Path, e_tag: String) -> Reopen {
    Arc::new(move |range| {
        let (inner, bucket) = (Arc::clone(&inner), Arc::clone(&bucket));
        let (location, e_tag) = (location.clone(), e_tag.clone());
        async move {
            let options = GetOptions::new().with_range(Some(range.clone())).with_if_match(Some(e_tag));
            let found = inner.get_opts(&location, options).await;
            let found = found.map_err(|error| explain(&bucket, error))?;
            if found.range != range {
                let what = format!("s3://{bucket}/{location} has {} bytes now", found.meta.size);
                return Err(Error::Precondition { path: location.to_string(), source: what.into() });
            }
            Ok(found.into_stream())
        }
        .boxed()
    })
}

/// Makes the object's modification time unique below a millisecond, by its e-tag. Footer caches identify an
/// object by size and this time, which S3 reports in seconds or milliseconds: an object overwritten at once
/// would hit the old entry.
fn with_unique_time(mut object: ObjectMeta) -> ObjectMeta {
    let e_tag = object.e_tag.as_deref().unwrap_or_default().trim_matches('"');
    let hash = e_tag
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    object.last_modified += Duration::from_nanos(hash % 1_000_000);
    object
}

/// Adds a unique mark, and returns it.
fn add_mark(attributes: &mut Attributes) -> String {
    let mark = Uuid::new_v4().to_string();
    attributes.insert(Attribute::Metadata(MARK.into()), mark.clone().into());
    mark
}

/// The result of the put to `location`, if the object carries this mark.
async fn find_own_put(store: &AmazonS3, location: &Path, mark: &str) -> Option<PutResult> {
    let found = store.get_opts(location, GetOptions::new().with_head(true)).await.ok()?;
    let is_ours = found
        .attributes
        .get(&Attribute::Metadata(MARK.into()))
        .is_some_and(|value| -> bool { value.as_ref() == mark });
    is_ours.then_some(PutResult { e_tag: found.meta.e_tag, version: found.meta.version })
}

/// A multipart upload.
struct Upload {
    /// `None` when completed or aborted.
    inner: Option<Box<dyn MultipartUpload>>,
    store: Arc<AmazonS3>,
    bucket: Arc<str>,
    location: Path,
    mark: String,
    /// Bytes buffered for the next part.
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    sent: usize,
    pending_work: Option<PendingWork>,
}

impl Upload {
    /// Sends the buffer as one part.
    fn send(&mut self) -> UploadPart {
        let Some(inner) = &mut self.inner else { return Box::pin(async { Err(upload_ended()) }) };
        self.waiting_bytes = 0;
        self.sent += 1;
        let part = inner.put_part(std::mem::take(&mut self.waiting).into_iter().collect());
        let bucket = Arc::clone(&self.bucket);
        Box::pin(async move { part.await.map_err(|error| explain(&bucket, error)) })
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({})", self.location)
    }
}

fn upload_ended() -> Error {
    store_error(STORE, "the upload is completed or given up")
}

#[async_trait]
impl MultipartUpload for Upload {
    /// Buffers data until the next part is large enough. Parts grow, so that the largest object stays within
    /// S3's limit on parts.
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.waiting_bytes += data.content_length();
        self.waiting.extend(data);
        match self.waiting_bytes < part_bytes_min(self.sent) {
            true => Box::pin(async { Ok(()) }),
            false => self.send(),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if self.waiting_bytes > 0 || self.sent == 0 {
            self.send().await?;
        }
        let inner = self.inner.as_mut().ok_or_else(upload_ended)?;
        let put = match inner.complete().await {
            Err(error @ Error::NotFound { .. }) => {
                find_own_put(&self.store, &self.location, &self.mark).await.ok_or(error)
            }
            other => other,
        };
        let put = put.map_err(|error| explain(&self.bucket, error))?;
        self.inner = None;
        self.pending_work = None;
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        let mut inner = self.inner.take().ok_or_else(upload_ended)?;
        // The waiting caller may be canceled as well.
        let pending_work = self.pending_work.take();
        let aborted = inner.abort().await.map_err(|error| explain(&self.bucket, error));
        drop(pending_work);
        aborted
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let location = self.location.clone();
        let pending_work = self.pending_work.take();
        runtime.spawn(async move {
            if let Err(error) = inner.abort().await {
                tracing::warn!(%location, %error, "parts of an upload stay");
            }
            drop(pending_work);
        });
    }
}

/// Stages files as multipart uploads.
struct UploadStaging {
    store: Arc<dyn ObjectStore>,
    inner: Arc<AmazonS3>,
    bucket: Arc<str>,
    limits: Limits,
}

impl fmt::Debug for UploadStaging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uploads({})", self.bucket)
    }
}

#[async_trait]
impl Staging for UploadStaging {
    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    fn binds_names(&self) -> bool {
        true
    }

    fn lease(&self) -> Duration {
        self.limits.lease
    }

    fn request_age_max(&self) -> Duration {
        self.limits.request_age_max()
    }

    /// The record is written before any part: no parts are ever left without a record.
    async fn begin(&self, staged: &Path, name: &Path) -> Result<Box<dyn StagedWriter>> {
        let upload = self.inner.create_multipart(name).await;
        let upload = upload.map_err(|error| explain(&self.bucket, error))?;
        let file =
            Staged { staged: staged.to_string(), bound: name.to_string(), upload, ..Staged::default() };
        self.put_atomic(staged, file.encode_to_vec().into()).await?;
        Ok(Box::new(Parts {
            inner: Arc::clone(&self.inner),
            bucket: Arc::clone(&self.bucket),
            file,
            buffer: BytesMut::new(),
            sent: 0,
            sending: JoinSet::new(),
            done: BTreeMap::new(),
        }))
    }

    async fn publish(&self, file: &Staged, name: &Path) -> Result<PublishOutcome> {
        if name.as_ref() != file.bound {
            return Err(store_error(
                STORE,
                format!("an upload to \"{}\" cannot become \"{name}\"", file.bound),
            ));
        }
        let parts = file.parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        match self.inner.complete_multipart(name, &file.upload, parts).await {
            Ok(_) => Ok(PublishOutcome::Published),
            Err(Error::NotFound { .. }) => Ok(PublishOutcome::Gone),
            Err(error) => match explain(&self.bucket, error) {
                Error::NotFound { .. } => Ok(PublishOutcome::Gone),
                error => Err(error),
            },
        }
    }

    async fn discard(&self, folder: &Path) -> Result<()> {
        let found: Vec<Path> =
            self.store.list(Some(folder)).map_ok(|found| found.location).try_collect().await?;
        if found.is_empty() {
            return Ok(());
        }
        let mark = folder.clone().join(DISCARDED);
        self.put_atomic(&mark, Bytes::new()).await?;
        let records = found.iter().filter(|path| **path != mark).cloned().collect::<Vec<_>>();
        futures::stream::iter(records.iter().cloned().map(Ok::<_, Error>))
            .try_for_each_concurrent(ABORTS_MAX, |record| self.abort_upload(record))
            .await?;
        let all = futures::stream::iter(records.into_iter().chain([mark]).map(Ok)).boxed();
        self.store.delete_stream(all).try_collect::<Vec<_>>().await.map(drop)
    }

    async fn put_atomic(&self, path: &Path, bytes: Bytes) -> Result<()> {
        self.store.put(path, bytes.into()).await.map(drop)
    }

    async fn put_if_absent(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        match self.store.put_opts(path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            // Two concurrent puts: the other one won.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// There is no way to check but doing it: policies apply to single keys.
    async fn check_writable(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

impl UploadStaging {
    /// Aborts the upload of `record`; it may have ended.
    async fn abort_upload(&self, record: Path) -> Result<()> {
        let bytes = match self.store.get(&record).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(file) = Staged::decode(bytes).ok().filter(|file| !file.upload.is_empty()) else {
            return Ok(());
        };
        match self.inner.abort_multipart(&Path::parse(&file.bound)?, &file.upload).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => match explain(&self.bucket, error) {
                Error::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }
}

/// The parts of a staged file, of the sizes that S3's largest file needs with growing parts.
struct Parts {
    inner: Arc<AmazonS3>,
    bucket: Arc<str>,
    file: Staged,
    buffer: BytesMut,
    sent: usize,
    sending: JoinSet<(usize, Result<PartId>)>,
    done: BTreeMap<usize, String>,
}

impl Parts {
    async fn send(&mut self, bytes: Bytes) -> Result<()> {
        if self.sent == PARTS_MAX {
            return Err(store_error(
                STORE,
                format!("\"{}\" has more than {PARTS_MAX} parts", self.file.bound),
            ));
        }
        while self.sending.len() >= SENDING_MAX {
            self.wait().await?;
        }
        let (inner, at) = (Arc::clone(&self.inner), self.sent);
        let (path, upload) = (Path::parse(&self.file.bound)?, self.file.upload.clone());
        self.sent += 1;
        self.sending.spawn(async move { (at, inner.put_part(&path, &upload, at, bytes.into()).await) });
        Ok(())
    }

    async fn wait(&mut self) -> Result<()> {
        match self.sending.join_next().await {
            Some(Ok((at, part))) => {
                let part = part.map_err(|error| explain(&self.bucket, error))?;
                self.done.insert(at, part.content_id);
                Ok(())
            }
            Some(Err(error)) => Err(store_error(STORE, error.to_string())),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl StagedWriter for Parts {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.file.bytes += bytes.len() as u64;
        self.buffer.extend_from_slice(&bytes);
        while self.buffer.len() >= part_bytes(self.sent) {
            let part = self.buffer.split_to(part_bytes(self.sent)).freeze();
            self.send(part).await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<Staged> {
        if !self.buffer.is_empty() || self.sent == 0 {
            let rest = std::mem::take(&mut self.buffer).freeze();
            self.send(rest).await?;
        }
        while !self.sending.is_empty() {
            self.wait().await?;
        }
        self.file.parts = std::mem::take(&mut self.done).into_values().collect();
        Ok(self.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_with_options(options: Options) -> Result<Arc<dyn ObjectStore>> {
        open(&Url::parse("s3://bucket/x").unwrap(), &options)
    }

    #[test]
    fn a_store_does_not_print_its_credentials() {
        let options = Options::default()
            .with("access_key_id", "KEYID")
            .with("secret_access_key", "hush")
            .with("session_token", "hushtoo");
        let store = open_with_options(options).unwrap();
        let said = format!("{store:?} {store:#?} {store}");
        assert!(!said.contains("hush") && !said.contains("KEYID"), "{said}");
    }

    #[test]
    fn unknown_options_are_refused_by_name_only() {
        let error =
            open_with_options(Options::default().with("secret_acces_key", "hush")).unwrap_err().to_string();
        assert!(error.contains("secret_acces_key") && !error.contains("hush"), "{error}");
        for known in ["aws.region", "allow_http", "aws_session_token"] {
            assert!(open_with_options(Options::default().with(known, "true")).is_ok(), "{known}");
        }
        open_with_options(Options::default().with("s3.endpoint", "https://here")).unwrap();
    }

    #[test]
    fn an_endpoint_has_a_scheme() {
        for endpoint in ["localhost:9000", "127.0.0.1:9000", "s3.example.com", "ftp://here", "é"] {
            let error =
                open_with_options(Options::default().with("endpoint", endpoint)).unwrap_err().to_string();
            let expected = format!("\"{endpoint}\" does not begin with https:// or http://");
            assert!(error.contains(&expected), "{error}");
        }
        for endpoint in ["https://here", "HTTPS://here:9000"] {
            open_with_options(Options::default().with("endpoint", endpoint)).unwrap();
        }
        let open = Options::default().with("endpoint", "http://here:9000");
        let error = open_with_options(open.clone()).unwrap_err().to_string();
        assert!(error.contains("AWS_ALLOW_HTTP"), "{error}");
        open_with_options(open.with("allow_http", "true")).unwrap();
    }

    fn pieces(given: &[std::result::Result<&'static str, &'static str>]) -> Pieces {
        let all: Vec<Result<Bytes>> = given
            .iter()
            .map(|piece| match piece {
                Ok(text) => Ok(Bytes::from_static(text.as_bytes())),
                Err(text) => Err(store_error(STORE, *text)),
            })
            .collect();
        futures::stream::iter(all).boxed()
    }

    fn reading(bytes: u64, first: Pieces, reopen: Option<Reopen>) -> ResumableRead {
        let limits = Options::default().with("retries", "2").limits().unwrap();
        let name = "s3://b/x".into();
        ResumableRead { name, remaining: 0..bytes, pieces: Some(first), reopen, limits, retry: None }
    }

    #[tokio::test]
    async fn short_responses_are_errors() {
        let read = async |given: &[&'static str], bytes| -> Result<Vec<Bytes>> {
            let given: Vec<_> = given.iter().map(|piece| Ok(*piece)).collect();
            reading(bytes, pieces(&given), None).into_stream().try_collect().await
        };
        assert_eq!(read(&["ab", "", "c"], 3).await.unwrap().concat(), b"abc");
        assert_eq!(read(&[], 0).await.unwrap().len(), 0);
        for (given, bytes, expected) in [
            (&["ab", "c"][..], 4, "s3://b/x: an answer ends before its end at byte 4"),
            (&[], 1, "s3://b/x: an answer ends before its end at byte 1"),
            (&["ab", "c"], 2, "s3://b/x: an answer is longer than its end at byte 2"),
        ] {
            let error = read(given, bytes).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn interrupted_responses_resume_while_they_progress() {
        let text = "abcdefghij";
        // Each response has one byte and breaks off, more often than the retry limit.
        let one: Reopen = Arc::new(move |range: Range<u64>| {
            let at = range.start as usize;
            async move { Ok(pieces(&[Ok(&text[at..at + 1]), Err("broken")])) }.boxed()
        });
        let read: Vec<Bytes> =
            reading(10, pieces(&[Err("broken")]), Some(one)).into_stream().try_collect().await.unwrap();
        assert_eq!(read.concat(), text.as_bytes());
        let none: Reopen = Arc::new(|_| async { Ok(pieces(&[Err("broken again")])) }.boxed());
        let error = reading(10, pieces(&[Ok("abc")]), Some(none)).into_stream().try_collect::<Vec<_>>().await;
        assert!(error.unwrap_err().to_string().contains("broken again"));
        let other: Reopen = Arc::new(|_| {
            let changed = Error::Precondition { path: "x".to_string(), source: "another".into() };
            async { Err(changed) }.boxed()
        });
        let error =
            reading(10, pieces(&[Ok("abc")]), Some(other)).into_stream().try_collect::<Vec<_>>().await;
        assert!(matches!(error, Err(Error::Precondition { .. })));
    }
}
