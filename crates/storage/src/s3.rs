//! S3, with what its client library leaves to be done: outcomes that were not heard, and errors that say what
//! is missing.
//!
//! A request whose answer is lost is tried again. Most come to the same a second time, but not all:
//!
//! | request | a second time | what is done |
//! |---|---|---|
//! | put, part of an upload, copy | the same | |
//! | put if there is nothing yet | 412: there is something, perhaps this | the object carries a mark; whose mark is it? |
//! | completion of an upload | 404: there is no such upload any more | the same |
//! | deletion | the same, but the library does not try it again | is tried again here |
//!
//! Cancellation: an upload in parts that is dropped before its completion is given up in the background, so
//! that its parts do not stay and cost.
//!
//! Crash: the parts of an upload whose process died stay, in no listing of objects; whoever sweeps finds them
//! by their uploads (`unfinished.rs`).

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
use crate::retry::Retry;
use crate::signing::Signing;
use crate::staging::{Shown, Staged, StagedWriter, Staging, TAKEN_BACK};
use crate::transfer::Transfer;
use crate::under_way::UnderWay;
use crate::unfinished::UnfinishedUploads;
use crate::wrong;

pub(crate) const STORE: &str = "S3";
/// Where requests go if nothing says so, as the library has it.
const REGION: &str = "us-east-1";

/// Options that say where credentials come from, in place of the environment's.
const SOURCES: [AmazonS3ConfigKey; 6] = [
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::RoleArn,
    AmazonS3ConfigKey::RoleSessionName,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
    AmazonS3ConfigKey::MetadataEndpoint,
];

/// Objects' own metadata by which a writer knows its work again: `x-amz-meta-harrier-mark`.
const MARK: &str = "harrier-mark";

/// So many objects are deleted by one request, as S3 has it.
const DELETED_MAX: usize = 1000;
/// Requests for deletion that are under way at the same time.
const DELETING_MAX: usize = 8;
/// Uploads that are given up at the same time.
const GIVING_UP_MAX: usize = 8;

/// Bytes of the first parts of a file; S3 wants 5 MiB at least.
const PART_BYTES: usize = 8 << 20;
/// After so many, parts are larger: 4 times as large as the first ones, then 9 times, and so on.
const PARTS_GROW: usize = 700;
/// S3 takes no more.
const PARTS_MAX: usize = 10_000;
/// The largest object that S3 takes, of 5 TiB, has fewer parts than that.
const _: () = {
    let (mut sent, mut bytes) = (0, 0_u64);
    while sent < PARTS_MAX {
        bytes += part_bytes(sent) as u64;
        sent += 1;
    }
    assert!(bytes > 5 << 40);
};

/// Bytes of the part that comes after so many.
const fn part_bytes(sent: usize) -> usize {
    let times = 1 + sent / PARTS_GROW;
    PART_BYTES * times * times
}

/// Of a writer that hands over parts of its own size: the first ones go as they come.
const fn part_bytes_min(sent: usize) -> usize {
    match sent < PARTS_GROW {
        true => 0,
        false => part_bytes(sent),
    }
}
/// Parts of one file that are under way at the same time.
const SENDING_MAX: usize = 2;

pub(crate) fn open(url: &Url, options: &Options) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(connect(url, options)?))
}

pub(crate) fn open_staging(url: &Url, options: &Options) -> Result<Arc<dyn Staging>> {
    let s3 = connect(url, options)?;
    let (inner, bucket, limits) = (Arc::clone(&s3.inner), Arc::clone(&s3.bucket), s3.limits);
    Ok(Arc::new(Uploads { store: Arc::new(s3), inner, bucket, limits }))
}

/// `None` if requests are not signed: nobody gives up uploads then.
pub(crate) fn open_unfinished(url: &Url, options: &Options) -> Result<Option<UnfinishedUploads>> {
    let s3 = connect(url, options)?;
    let is_signed = s3.is_signed;
    Ok(is_signed.then(|| UnfinishedUploads::new(s3.inner, s3.client, s3.region, s3.bucket, s3.limits)))
}

fn connect(url: &Url, options: &Options) -> Result<S3> {
    let bucket = url.host_str().unwrap_or_default();
    if bucket.is_empty() {
        return Err(wrong(STORE, "the URL names no bucket: s3://BUCKET/…"));
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
            wrong(STORE, format!("unknown option \"{key}\" (known are access_key_id, secret_access_key, session_token, region, endpoint, allow_http and more)"))
        })?;
        if SOURCES.contains(&known) {
            sources.push((known.as_ref().to_uppercase(), value.to_string()));
        }
        // The library takes the environment's for the other of both.
        if known == AmazonS3ConfigKey::Endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, value);
        }
        builder = builder.with_config(known, value);
    }
    let credentials: AwsCredentialProvider = match own_credentials(options)? {
        Some(own) => Arc::new(StaticCredentialProvider::new(own)),
        None => Chain::shared(&match sources.is_empty() {
            true => variables,
            false => variables.instead(sources),
        }),
    };
    let builder = builder.with_credentials(Arc::clone(&credentials));
    let said = |key: AmazonS3ConfigKey| builder.get_config_value(&key).unwrap_or_default();
    let may_be_open =
        said(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)).eq_ignore_ascii_case("true");
    // The library takes the one for S3 alone before the other.
    let endpoint = Some(said(AmazonS3ConfigKey::S3Endpoint)).filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.unwrap_or_else(|| said(AmazonS3ConfigKey::Endpoint));
    let is_open = is_of_scheme(&endpoint, "http://");
    if !endpoint.is_empty() && !is_open && !is_of_scheme(&endpoint, "https://") {
        let message = format!("its endpoint \"{endpoint}\" does not begin with https:// or http://");
        return Err(wrong(STORE, message));
    }
    // The library's own error for it says nothing.
    if is_open && !may_be_open {
        return Err(wrong(
            STORE,
            "its endpoint is without TLS, which has to be wanted: s3.allow_http or AWS_ALLOW_HTTP is true",
        ));
    }
    let region = Some(said(AmazonS3ConfigKey::Region)).filter(|region| !region.is_empty());
    let is_signed = !said(AmazonS3ConfigKey::SkipSignature).eq_ignore_ascii_case("true");
    let region = region.unwrap_or_else(|| REGION.to_string());
    let signing = is_signed.then(|| Arc::new(Signing::new(&region, credentials)));
    let kept = Kept { last: Arc::default(), silence: limits.request, signing };
    let builder = builder.with_bucket_name(bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
    let inner = builder.clone().with_retry(retry.clone()).with_http_connector(kept.clone()).build()?;
    let client = kept.last.lock().take();
    let client = client.ok_or_else(|| wrong(STORE, "nothing was made for requests to go through"))?;
    // What is tried again here would otherwise be tried so often again each time.
    let once = RetryConfig { max_retries: 0, ..retry };
    let deleting = builder
        .with_retry(once)
        .with_credentials(Arc::clone(inner.credentials()))
        .with_http_connector(Same(client.clone()))
        .build()?;
    Ok(S3 {
        inner: Arc::new(inner),
        deleting: Arc::new(deleting),
        bucket: bucket.into(),
        limits,
        client,
        region,
        is_signed,
    })
}

/// How connections are made: what the environment says about them, but for the time that they may take.
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
        // On silence there is one (`transfer.rs`).
        .with_timeout_disabled()
        .with_allow_http(allow_http);
    with_authorities(client, settings.ca_bundle.as_deref())
}

/// `client`, which believes those as well whose certificates are in the file that `AWS_CA_BUNDLE` names, or
/// else in `otherwise`.
///
/// Errors: there are none in it.
pub(crate) fn with_authorities(mut client: ClientOptions, otherwise: Option<&str>) -> Result<ClientOptions> {
    let said = std::env::var("AWS_CA_BUNDLE").ok().filter(|file| !file.is_empty());
    let Some(file) = said.as_deref().or(otherwise) else { return Ok(client) };
    let failed = |why: &dyn fmt::Display| {
        wrong(STORE, format!("could not read the certificates of AWS_CA_BUNDLE \"{file}\": {why}"))
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

/// Makes the library's connections as the library does, with limits on silence, and keeps what the last ones
/// go through: after those that ask for credentials, it makes those to the bucket.
#[derive(Debug, Clone)]
struct Kept {
    last: Arc<Mutex<Option<HttpClient>>>,
    silence: Duration,
    signing: Option<Arc<Signing>>,
}

impl HttpConnector for Kept {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let client = Transfer::signed(client, self.silence, self.signing.clone());
        *self.last.lock() = Some(client.clone());
        Ok(client)
    }
}

/// Has requests go the way of others.
#[derive(Debug)]
struct Same(HttpClient);

impl HttpConnector for Same {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// The keys that options give; then nothing of the environment's is sent with them.
///
/// Errors: a part of them is missing.
fn own_credentials(options: &Options) -> Result<Option<AwsCredential>> {
    let of = |wanted: AmazonS3ConfigKey| {
        options.iter().find(|(key, _)| config_key(key) == Some(wanted)).map(|(_, value)| value.to_string())
    };
    let Some(key_id) = of(AmazonS3ConfigKey::AccessKeyId) else { return Ok(None) };
    let Some(secret_key) = of(AmazonS3ConfigKey::SecretAccessKey) else {
        return Err(wrong(STORE, "access_key_id is given without secret_access_key"));
    };
    Ok(Some(AwsCredential { key_id, secret_key, token: of(AmazonS3ConfigKey::Token) }))
}

/// The same name for all ways to write a key.
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
    // Only the one that begins with `aws_` is known by the library.
    let name = if name == "allow_http" { "aws_allow_http" } else { name };
    name.parse().ok()
}

struct S3 {
    inner: Arc<AmazonS3>,
    /// The same, which makes each request once.
    deleting: Arc<AmazonS3>,
    bucket: Arc<str>,
    limits: Limits,
    /// What the requests of both go through.
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
        let mark = marked(&mut options.attributes);
        match self.inner.put_opts(location, payload, options).await {
            Err(error @ Error::AlreadyExists { .. }) => match whose(&self.inner, location, &mark).await {
                Some(put) => Ok(put),
                None => Err(error),
            },
            other => other.map_err(|error| explain(&self.bucket, error)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        mut options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let mark = marked(&mut options.attributes);
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
            under_way: Some(UnderWay::begin()),
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
        found.meta = told_apart(found.meta);
        if is_head {
            return Ok(found);
        }
        let name: Arc<str> = format!("{self}/{location}").into();
        check_encoding(&found.attributes, location, &name)?;
        if let Some(wanted) = wanted.filter(|wanted| found.range != *wanted) {
            // Who asks for a range has been told how long the object is.
            let size = found.meta.size;
            let what = format!("{name} has {size} bytes, and {} were there before", wanted.end);
            return Err(Error::Precondition { path: location.to_string(), source: what.into() });
        }
        if let GetResultPayload::Stream(stream) = found.payload {
            let strong = found.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
            let again = strong
                .map(|tag| reopen(Arc::clone(&self.inner), Arc::clone(&self.bucket), location.clone(), tag));
            let reading = Reading {
                name,
                left: found.range.clone(),
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
        let (inner, bucket, limits) = (Arc::clone(&self.deleting), Arc::clone(&self.bucket), self.limits);
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
        self.inner.list(prefix).map_ok(told_apart).map_err(move |error| explain(&bucket, error)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = Arc::clone(&self.bucket);
        let found = self.inner.list_with_offset(prefix, offset);
        found.map_ok(told_apart).map_err(move |error| explain(&bucket, error)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let found = self.inner.list_with_delimiter(prefix).await;
        let mut found = found.map_err(|error| explain(&self.bucket, error))?;
        found.objects = found.objects.into_iter().map(told_apart).collect();
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await.map_err(|error| explain(&self.bucket, error))
    }
}

impl S3 {
    /// The error of a HEAD with what the server says about it: only an answer to a GET has a body to say it
    /// in.
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
                told @ (Error::Generic { .. }
                | Error::PermissionDenied { .. }
                | Error::Unauthenticated { .. }),
            ) => told,
            _ => error,
        }
    }
}

/// Deletes objects by one request, which comes to the same however often it is made. `inner` makes it once.
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
        // The request as a whole has failed, or some of the objects have.
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

/// Asks for the bytes of a range anew.
type Reopen = Arc<dyn Fn(Range<u64>) -> BoxFuture<'static, Result<Pieces>> + Send + Sync>;

/// The bytes of an object that are not read yet.
struct Reading {
    name: Arc<str>,
    /// What is left of the range that was asked for.
    left: Range<u64>,
    pieces: Option<Pieces>,
    /// `None`: nothing would tell whether it is the same object still.
    reopen: Option<Reopen>,
    limits: Limits,
    /// Since the last byte came.
    retry: Option<Retry>,
}

impl Reading {
    /// The next bytes. An answer that breaks off is gone on with where it did, as often as anything comes
    /// between (the library counts all that happens to one body together).
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let error = match self.piece().await {
                Ok(Some(piece)) => {
                    let bytes = piece.len() as u64;
                    if bytes > self.left.end - self.left.start {
                        return Err(self.wrong_length("is longer than"));
                    }
                    self.left.start += bytes;
                    self.retry = None;
                    return Ok(Some(piece));
                }
                Ok(None) if self.left.is_empty() => return Ok(None),
                Ok(None) => self.wrong_length("ends before"),
                Err(_) if self.left.is_empty() => return Ok(None),
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
            self.pieces = Some(reopen(self.left.clone()).await?);
        }
        match &mut self.pieces {
            Some(pieces) => pieces.try_next().await,
            None => Ok(None),
        }
    }

    fn wrong_length(&self, what: &str) -> Error {
        wrong(STORE, format!("{}: an answer {what} its end at byte {}", self.name, self.left.end))
    }

    fn into_stream(self) -> Pieces {
        let read = futures::stream::try_unfold(self, |mut reading| async move {
            Ok(reading.next().await?.map(|piece| (piece, reading)))
        });
        read.boxed()
    }
}

/// Readers take the compression of a file from its name.
///
/// Errors: the store says that the object is compressed, and its name does not.
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

/// Asks for ranges of an object as long as it is the one with this tag.
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

/// The same object with a time of its last change that is its own, to less than a millisecond. Caches of
/// footers know an object by its size and this time, which S3 tells in seconds or milliseconds: one that was
/// overwritten at once would pass for the one before.
fn told_apart(mut object: ObjectMeta) -> ObjectMeta {
    let e_tag = object.e_tag.as_deref().unwrap_or_default().trim_matches('"');
    let hash = e_tag
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    object.last_modified += Duration::from_nanos(hash % 1_000_000);
    object
}

/// Adds a mark that nothing else has, and returns it.
fn marked(attributes: &mut Attributes) -> String {
    let mark = Uuid::new_v4().to_string();
    attributes.insert(Attribute::Metadata(MARK.into()), mark.clone().into());
    mark
}

/// What was put at `location`, if it carries this mark.
async fn whose(store: &AmazonS3, location: &Path, mark: &str) -> Option<PutResult> {
    let found = store.get_opts(location, GetOptions::new().with_head(true)).await.ok()?;
    let is_ours = found
        .attributes
        .get(&Attribute::Metadata(MARK.into()))
        .is_some_and(|value| -> bool { value.as_ref() == mark });
    is_ours.then_some(PutResult { e_tag: found.meta.e_tag, version: found.meta.version })
}

/// An upload in parts.
struct Upload {
    /// `None` when it is completed or given up.
    inner: Option<Box<dyn MultipartUpload>>,
    store: Arc<AmazonS3>,
    bucket: Arc<str>,
    location: Path,
    mark: String,
    /// What goes with the next part.
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    sent: usize,
    under_way: Option<UnderWay>,
}

impl Upload {
    /// Sends what waits as one part.
    fn send(&mut self) -> UploadPart {
        let Some(inner) = &mut self.inner else { return Box::pin(async { Err(over()) }) };
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

fn over() -> Error {
    wrong(STORE, "the upload is completed or given up")
}

#[async_trait]
impl MultipartUpload for Upload {
    /// Parts grow, so that the largest object has no more of them than S3 takes: what is less than the next
    /// one waits.
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
        let inner = self.inner.as_mut().ok_or_else(over)?;
        let put = match inner.complete().await {
            Err(error @ Error::NotFound { .. }) => {
                whose(&self.store, &self.location, &self.mark).await.ok_or(error)
            }
            other => other,
        };
        let put = put.map_err(|error| explain(&self.bucket, error))?;
        self.inner = None;
        self.under_way = None;
        Ok(put)
    }

    async fn abort(&mut self) -> Result<()> {
        let mut inner = self.inner.take().ok_or_else(over)?;
        // Who waits for this may be given up as well.
        let under_way = self.under_way.take();
        let aborted = inner.abort().await.map_err(|error| explain(&self.bucket, error));
        drop(under_way);
        aborted
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let location = self.location.clone();
        let under_way = self.under_way.take();
        runtime.spawn(async move {
            if let Err(error) = inner.abort().await {
                tracing::warn!(%location, %error, "parts of an upload stay");
            }
            drop(under_way);
        });
    }
}

/// Files that are staged as uploads.
struct Uploads {
    store: Arc<dyn ObjectStore>,
    inner: Arc<AmazonS3>,
    bucket: Arc<str>,
    limits: Limits,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uploads({})", self.bucket)
    }
}

#[async_trait]
impl Staging for Uploads {
    fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    fn binds_names(&self) -> bool {
        true
    }

    fn lease(&self) -> Duration {
        self.limits.lease
    }

    fn late(&self) -> Duration {
        self.limits.late()
    }

    /// The record is there before any part is: no parts are ever left that nobody knows of.
    async fn begin(&self, staged: &Path, name: &Path) -> Result<Box<dyn StagedWriter>> {
        let upload = self.inner.create_multipart(name).await;
        let upload = upload.map_err(|error| explain(&self.bucket, error))?;
        let file =
            Staged { staged: staged.to_string(), bound: name.to_string(), upload, ..Staged::default() };
        self.put_whole(staged, file.encode_to_vec().into()).await?;
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

    async fn show(&self, file: &Staged, name: &Path) -> Result<Shown> {
        if name.as_ref() != file.bound {
            return Err(wrong(STORE, format!("an upload to \"{}\" cannot become \"{name}\"", file.bound)));
        }
        let parts = file.parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        match self.inner.complete_multipart(name, &file.upload, parts).await {
            Ok(_) => Ok(Shown::Now),
            Err(Error::NotFound { .. }) => Ok(Shown::Gone),
            Err(error) => match explain(&self.bucket, error) {
                Error::NotFound { .. } => Ok(Shown::Gone),
                error => Err(error),
            },
        }
    }

    async fn take_back(&self, folder: &Path) -> Result<()> {
        let found: Vec<Path> =
            self.store.list(Some(folder)).map_ok(|found| found.location).try_collect().await?;
        if found.is_empty() {
            return Ok(());
        }
        let mark = folder.clone().join(TAKEN_BACK);
        self.put_whole(&mark, Bytes::new()).await?;
        let records = found.iter().filter(|path| **path != mark).cloned().collect::<Vec<_>>();
        futures::stream::iter(records.iter().cloned().map(Ok::<_, Error>))
            .try_for_each_concurrent(GIVING_UP_MAX, |record| self.give_up(record))
            .await?;
        let all = futures::stream::iter(records.into_iter().chain([mark]).map(Ok)).boxed();
        self.store.delete_stream(all).try_collect::<Vec<_>>().await.map(drop)
    }

    async fn put_whole(&self, path: &Path, bytes: Bytes) -> Result<()> {
        self.store.put(path, bytes.into()).await.map(drop)
    }

    async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        match self.store.put_opts(path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            // Two that put the same at once: one of them did.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Nothing but doing it tells: policies are written for single keys.
    async fn check_writable(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

impl Uploads {
    /// Gives up the upload that `record` is of; it may be over.
    async fn give_up(&self, record: Path) -> Result<()> {
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

/// The parts of a staged file. Each is as large as it has to be for the largest file that S3 lets anybody
/// upload with growing parts.
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
            return Err(wrong(STORE, format!("\"{}\" has more than {PARTS_MAX} parts", self.file.bound)));
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
            Some(Err(error)) => Err(wrong(STORE, error.to_string())),
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

/// The same error with what the server says in short, as what it is: answers to listings come as errors of no
/// kind.
pub(crate) fn explain(bucket: &str, error: Error) -> Error {
    let text = match &error {
        Error::Generic { source, .. }
        | Error::NotFound { source, .. }
        | Error::PermissionDenied { source, .. }
        | Error::Unauthenticated { source, .. } => source.to_string(),
        _ => return error,
    };
    let Some(code) = element(&text, "Code") else { return error };
    let message = element(&text, "Message").unwrap_or_default();
    // The whole answer repeats the request, signature and all.
    let before =
        text.split_once('<').map_or(text.as_str(), |(before, _)| before).trim_end_matches([':', ' ']);
    let path = match &error {
        Error::NotFound { path, .. }
        | Error::PermissionDenied { path, .. }
        | Error::Unauthenticated { path, .. } => path.clone(),
        _ => String::new(),
    };
    let source = match advice(code) {
        Some(advice) => format!("{before}: {message} ({code}); {advice}"),
        None => format!("{before}: {message} ({code})"),
    };
    let source = source.into();
    match (code, error) {
        ("NoSuchBucket", _) => wrong(STORE, format!("bucket \"{bucket}\" does not exist")),
        (
            "AccessDenied"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "RequestExpired"
            | "RequestTimeTooSkewed",
            _,
        ) => Error::PermissionDenied { path, source },
        // What else may not be found is no object.
        (code, Error::NotFound { .. }) if code.starts_with("NoSuch") => Error::NotFound { path, source },
        (_, Error::PermissionDenied { .. }) => Error::PermissionDenied { path, source },
        (_, Error::Unauthenticated { .. }) => Error::Unauthenticated { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}

/// What is to be done about an error that a server names so.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "ExpiredToken" | "TokenRefreshRequired" | "RequestExpired" => {
            "the credentials have expired: new ones are taken from the profile or service that they come from, and AWS_SESSION_TOKEN and s3.session_token have to be set anew"
        }
        "AccessDenied" => "the credentials that the request was signed with may not do this",
        "InvalidToken" => "the session token does not belong to the access key",
        "InvalidAccessKeyId" => "the store does not know the access key",
        "SignatureDoesNotMatch" => "the secret access key is another's",
        "RequestTimeTooSkewed" => "the clock of this host is wrong",
        "AuthorizationHeaderMalformed"
        | "PermanentRedirect"
        | "TemporaryRedirect"
        | "IllegalLocationConstraintException" => {
            "the bucket is in another region: AWS_REGION or s3.region names it"
        }
        _ => return None,
    })
}

/// What stands in an element of an answer of S3: `<Code>NoSuchKey</Code>`.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(options: Options) -> Result<Arc<dyn ObjectStore>> {
        open(&Url::parse("s3://bucket/x").unwrap(), &options)
    }

    #[test]
    fn a_store_does_not_print_its_credentials() {
        let options = Options::default()
            .with("access_key_id", "KEYID")
            .with("secret_access_key", "hush")
            .with("session_token", "hushtoo");
        let store = opened(options).unwrap();
        let said = format!("{store:?} {store:#?} {store}");
        assert!(!said.contains("hush") && !said.contains("KEYID"), "{said}");
    }

    #[test]
    fn unknown_options_are_refused_by_name_only() {
        let error = opened(Options::default().with("secret_acces_key", "hush")).unwrap_err().to_string();
        assert!(error.contains("secret_acces_key") && !error.contains("hush"), "{error}");
        for known in ["aws.region", "allow_http", "aws_session_token"] {
            assert!(opened(Options::default().with(known, "true")).is_ok(), "{known}");
        }
        opened(Options::default().with("s3.endpoint", "https://here")).unwrap();
    }

    #[test]
    fn an_endpoint_has_a_scheme() {
        for endpoint in ["localhost:9000", "127.0.0.1:9000", "s3.example.com", "ftp://here", "é"] {
            let error = opened(Options::default().with("endpoint", endpoint)).unwrap_err().to_string();
            let expected = format!("\"{endpoint}\" does not begin with https:// or http://");
            assert!(error.contains(&expected), "{error}");
        }
        for endpoint in ["https://here", "HTTPS://here:9000"] {
            opened(Options::default().with("endpoint", endpoint)).unwrap();
        }
        let open = Options::default().with("endpoint", "http://here:9000");
        let error = opened(open.clone()).unwrap_err().to_string();
        assert!(error.contains("AWS_ALLOW_HTTP"), "{error}");
        opened(open.with("allow_http", "true")).unwrap();
    }

    fn pieces(given: &[std::result::Result<&'static str, &'static str>]) -> Pieces {
        let all: Vec<Result<Bytes>> = given
            .iter()
            .map(|piece| match piece {
                Ok(text) => Ok(Bytes::from_static(text.as_bytes())),
                Err(text) => Err(wrong(STORE, *text)),
            })
            .collect();
        futures::stream::iter(all).boxed()
    }

    fn reading(bytes: u64, first: Pieces, reopen: Option<Reopen>) -> Reading {
        let limits = Options::default().with("retries", "2").limits().unwrap();
        let name = "s3://b/x".into();
        Reading { name, left: 0..bytes, pieces: Some(first), reopen, limits, retry: None }
    }

    #[tokio::test]
    async fn an_answer_has_its_length_or_is_an_error() {
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
    async fn what_breaks_off_is_read_on_as_long_as_something_comes() {
        let text = "abcdefghij";
        // Each answer has one byte and breaks off: more often than anything is tried again.
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

    #[test]
    fn answers_are_told_in_short() {
        let answer = "Error performing GET http://here/b in 3 ms - 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
                      <Message>Access Denied.</Message><StringToSign>much</StringToSign></Error>";
        let error = explain("b", Error::Generic { store: STORE, source: answer.into() });
        let said = error.to_string();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{said}");
        assert!(
            said.contains("Forbidden: Access Denied. (AccessDenied)") && !said.contains("much"),
            "{said}"
        );
        let error = explain("b", Error::Generic { store: STORE, source: "<Code>NoSuchBucket</Code>".into() });
        assert!(error.to_string().contains("bucket \"b\" does not exist"), "{error}");
        assert_eq!(element("404", "Code"), None);
    }
}
