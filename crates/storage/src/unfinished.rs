//! Unfinished multipart uploads of S3, neither completed nor aborted, as by a process that died. They are in
//! no listing of objects, and their parts take space until they are aborted. The client library does not list
//! them.
//!
//! Errors: a listing that fails temporarily or breaks off is retried, within the limits of the store.
//! [`Error::PermissionDenied`]: the user lacks the permission; [`Error::NotImplemented`]: the server does not
//! support it.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpRequest, HttpRequestBody};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{Error, MultipartId, ObjectMeta, Result};
use url::Url;

use crate::options::Limits;
use crate::retry::Retry;
use crate::s3::responses::{STORE, element, explain};
use crate::store_error;

/// Validity of a signed URL, of which only the address is used.
const SIGNED: Duration = Duration::from_secs(60);

/// A multipart upload.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedUpload {
    /// The object that it would become, with the time when it was begun; without a size.
    pub object: ObjectMeta,
    id: MultipartId,
}

/// The unfinished uploads of one bucket.
pub struct UnfinishedUploads {
    inner: Arc<AmazonS3>,
    client: HttpClient,
    region: String,
    bucket: Arc<str>,
    limits: Limits,
}

impl fmt::Debug for UnfinishedUploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnfinishedUploads({})", self.bucket)
    }
}

impl UnfinishedUploads {
    pub(crate) fn new(
        inner: Arc<AmazonS3>,
        client: HttpClient,
        region: String,
        bucket: Arc<str>,
        limits: Limits,
    ) -> Self {
        Self { inner, client, region, bucket, limits }
    }

    /// Lists the uploads whose objects would be below `folder`.
    pub async fn below(&self, folder: &Path) -> Result<Vec<UnfinishedUpload>> {
        let prefix = match folder.as_ref() {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let place = self.bucket_url().await?;
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = match self.get_page(&page_url(&place, &prefix, after.as_ref())).await {
                Ok(page) => page,
                // versitygw up to 1.8 does not accept the last upload of a page as a marker (backend/posix,
                // ListMultipartUploads). The rest of one object's uploads is found after these are aborted.
                Err(Refusal { status: Some(400), .. })
                    if after.as_ref().is_some_and(|(_, upload): &(String, String)| !upload.is_empty()) =>
                {
                    after = after.map(|(key, _)| (key, String::new()));
                    continue;
                }
                Err(refusal) => return Err(refusal.error),
            };
            found.append(&mut uploads_in(&page)?);
            if element(&page, "IsTruncated") != Some("true") {
                return Ok(found);
            }
            let marker = |name: &str| element(&page, name).map(decode_entities).unwrap_or_default();
            let next = Some((marker("NextKeyMarker"), marker("NextUploadIdMarker")));
            if next == after {
                return Err(store_error(
                    STORE,
                    format!("the list of uploads of \"{}\" has no end", self.bucket),
                ));
            }
            after = next;
        }
    }

    /// Aborts an upload and removes its parts; one that has ended is not an error.
    pub async fn abort(&self, upload: &UnfinishedUpload) -> Result<()> {
        match self.inner.abort_multipart(&upload.object.location, &upload.id).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => match explain(&self.bucket, error) {
                Error::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }

    /// The bucket's URL, as the library derives it from all settings.
    async fn bucket_url(&self) -> Result<Url> {
        let method = empty_request().method().clone();
        let mut url = self.inner.signed_url(method, &Path::default(), SIGNED).await?;
        url.set_query(None);
        let path = url.path().trim_end_matches('/').to_string();
        url.set_path(&path);
        Ok(url)
    }

    /// Gets a page, with retries.
    async fn get_page(&self, url: &Url) -> Result<String, Refusal> {
        let mut retry = Retry::new(self.limits);
        loop {
            let refusal = match self.send(url).await {
                Ok(page) => return Ok(page),
                Err(refusal) => refusal,
            };
            if !refusal.is_transient || !retry.wait().await {
                return Err(refusal);
            }
        }
    }

    async fn send(&self, url: &Url) -> Result<String, Refusal> {
        let broken = |error: &dyn Display| {
            let text = format!("cannot list the uploads of {url}: {error}");
            Refusal { error: store_error(STORE, text), is_transient: true, status: None }
        };
        let for_good = |error: Error| Refusal { error, is_transient: false, status: None };
        let credential = self.inner.credentials().get_credential().await.map_err(for_good)?;
        let mut request = empty_request();
        *request.uri_mut() = parse(url.as_str()).map_err(for_good)?;
        AwsAuthorizer::new(&credential, "s3", &self.region).authorize(&mut request, None);
        let answer = self.client.execute(request).await.map_err(|error| broken(&error))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|error| broken(&error))?;
        let text = String::from_utf8_lossy(&body).into_owned();
        match status.as_u16() {
            200 => Ok(text),
            405 | 501 => Err(for_good(Error::NotImplemented {
                operation: "a list of unfinished uploads".to_string(),
                implementer: format!("s3://{}", self.bucket),
            })),
            code => {
                let Refusal { error, .. } = broken(&format!("{status}: {text}"));
                let is_transient = code == 429 || code >= 500;
                Err(Refusal { error: explain(&self.bucket, error), is_transient, status: Some(code) })
            }
        }
    }
}

/// A failed request, and whether a retry may succeed.
struct Refusal {
    error: Error,
    is_transient: bool,
    /// HTTP status, if there was a response.
    status: Option<u16>,
}

/// An empty GET request.
fn empty_request() -> HttpRequest {
    HttpRequest::new(HttpRequestBody::empty())
}

/// The request for uploads whose keys begin with `prefix`, after the last one of the previous page.
fn page_url(place: &Url, prefix: &str, after: Option<&(String, String)>) -> Url {
    let mut url = place.clone();
    let mut query = url.query_pairs_mut();
    query.append_pair("uploads", "").append_pair("prefix", prefix);
    if let Some((key, upload)) = after {
        query.append_pair("key-marker", key);
        if !upload.is_empty() {
            query.append_pair("upload-id-marker", upload);
        }
    }
    drop(query);
    // A plus sign in an appended query means a blank, and is signed as one; not every server decodes it so.
    let query = url.query().unwrap_or_default().replace('+', "%20");
    url.set_query(Some(&query));
    url
}

/// Errors: it is not a response of S3.
fn uploads_in(page: &str) -> Result<Vec<UnfinishedUpload>> {
    let uploads = page.split("<Upload>").skip(1);
    uploads
        .map(|upload| {
            let of = |name: &str| {
                let text = element(upload, name).map(decode_entities);
                text.ok_or_else(|| store_error(STORE, format!("an upload is listed without {name}")))
            };
            let object = ObjectMeta {
                location: Path::parse(of("Key")?)?,
                last_modified: parse(&of("Initiated")?)?,
                size: 0,
                e_tag: None,
                version: None,
            };
            Ok(UnfinishedUpload { object, id: of("UploadId")? })
        })
        .collect()
}

/// XML entities of reserved characters.
const ESCAPES: [(&str, &str); 6] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];

/// Decodes the entities in XML text.
fn decode_entities(text: &str) -> String {
    let plain = ESCAPES.iter().fold(text.to_string(), |text, (escape, sign)| text.replace(escape, sign));
    // Last, so that a decoded ampersand does not start another entity.
    plain.replace("&amp;", "&")
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T> {
    text.parse::<T>().map_err(|error| store_error(STORE, format!("cannot read \"{text}\": {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Bucket>b</Bucket><KeyMarker></KeyMarker><NextKeyMarker>t/b&amp;amp;c</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>\
         <IsTruncated>true</IsTruncated>\
         <Upload><Key>t/a.parquet</Key><UploadId>1</UploadId><Initiated>2026-11-22T01:02:03.000Z</Initiated></Upload>\
         <Upload><Key>t/b&amp;amp;c</Key><UploadId>2</UploadId><Owner><ID>x</ID></Owner><Initiated>2026-11-22T01:02:04Z</Initiated></Upload>\
         </ListMultipartUploadsResult>";

    #[test]
    fn a_page_is_read() {
        let found = uploads_in(PAGE).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|upload| {
                let object = &upload.object;
                (object.location.as_ref(), upload.id.as_str(), object.last_modified.timestamp())
            })
            .collect();
        assert_eq!(told, [("t/a.parquet", "1", 1_795_309_323), ("t/b&amp;c", "2", 1_795_309_324)]);
        assert_eq!(element(PAGE, "IsTruncated"), Some("true"));
        assert!(uploads_in("<Upload><Key>a</Key></Upload>").is_err());
        assert!(uploads_in("<ListMultipartUploadsResult/>").unwrap().is_empty());
    }

    #[test]
    fn pages_continue_after_the_last_upload() {
        let place = Url::parse("http://here:9000/b").unwrap();
        let first = page_url(&place, "a b/", None);
        assert_eq!(first.as_str(), "http://here:9000/b?uploads=&prefix=a%20b%2F");
        let next = page_url(&place, "", Some(&("k+".to_string(), "7".to_string())));
        assert_eq!(next.as_str(), "http://here:9000/b?uploads=&prefix=&key-marker=k%2B&upload-id-marker=7");
        let next = page_url(&place, "", Some(&("k".to_string(), String::new())));
        assert_eq!(next.as_str(), "http://here:9000/b?uploads=&prefix=&key-marker=k");
    }
}
