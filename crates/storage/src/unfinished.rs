//! Uploads to S3 that were begun and neither completed nor given up, as by a process that died: they are no
//! objects, no listing of objects has them, and their parts take room until somebody gives them up. The
//! client library does not list them.
//!
//! Errors: a list that the server refuses for the moment, or whose answer breaks, is asked for again, within
//! the limits of the store. [`Error::PermissionDenied`] and [`Error::NotImplemented`] tell of a user who may
//! not, and of a server that cannot.

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
use crate::s3::{STORE, element, explain};
use crate::wrong;

/// How long a signed URL would work, of which only the place is wanted.
const SIGNED: Duration = Duration::from_secs(60);

/// An upload in parts.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedUpload {
    /// What it would become, with the time when it was begun; of no size.
    pub object: ObjectMeta,
    id: MultipartId,
}

/// Those of one bucket.
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

    /// All whose objects would be below `folder`.
    pub async fn below(&self, folder: &Path) -> Result<Vec<UnfinishedUpload>> {
        let prefix = match folder.as_ref() {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let place = self.place().await?;
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = match self.page(&page_url(&place, &prefix, after.as_ref())).await {
                Ok(page) => page,
                // versitygw up to 1.8 knows no upload by which a page ends (backend/posix,
                // ListMultipartUploads). Of one object's uploads the rest is found when these are given up.
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
            let marker = |name: &str| element(&page, name).map(unescaped).unwrap_or_default();
            let next = Some((marker("NextKeyMarker"), marker("NextUploadIdMarker")));
            if next == after {
                return Err(wrong(STORE, format!("the list of uploads of \"{}\" has no end", self.bucket)));
            }
            after = next;
        }
    }

    /// Removes its parts; one that is over already is as good.
    pub async fn give_up(&self, upload: &UnfinishedUpload) -> Result<()> {
        match self.inner.abort_multipart(&upload.object.location, &upload.id).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => match explain(&self.bucket, error) {
                Error::NotFound { .. } => Ok(()),
                error => Err(error),
            },
        }
    }

    /// The bucket's URL, as the library makes it of all that may be said about it.
    async fn place(&self) -> Result<Url> {
        let method = empty_request().method().clone();
        let mut url = self.inner.signed_url(method, &Path::default(), SIGNED).await?;
        url.set_query(None);
        let path = url.path().trim_end_matches('/').to_string();
        url.set_path(&path);
        Ok(url)
    }

    /// What is answered to a GET.
    async fn page(&self, url: &Url) -> Result<String, Refusal> {
        let mut retry = Retry::new(self.limits);
        loop {
            let refusal = match self.asked(url).await {
                Ok(page) => return Ok(page),
                Err(refusal) => refusal,
            };
            if !refusal.may_pass || !retry.wait().await {
                return Err(refusal);
            }
        }
    }

    async fn asked(&self, url: &Url) -> Result<String, Refusal> {
        let broken = |error: &dyn Display| {
            let text = format!("cannot list the uploads of {url}: {error}");
            Refusal { error: wrong(STORE, text), may_pass: true, status: None }
        };
        let for_good = |error: Error| Refusal { error, may_pass: false, status: None };
        let credential = self.inner.credentials().get_credential().await.map_err(for_good)?;
        let mut request = empty_request();
        *request.uri_mut() = parsed(url.as_str()).map_err(for_good)?;
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
                let may_pass = code == 429 || code >= 500;
                Err(Refusal { error: explain(&self.bucket, error), may_pass, status: Some(code) })
            }
        }
    }
}

/// Why there is no answer, and whether there may be one to the next try.
struct Refusal {
    error: Error,
    may_pass: bool,
    /// Of HTTP, if that much was answered.
    status: Option<u16>,
}

/// A GET, of nothing yet.
fn empty_request() -> HttpRequest {
    HttpRequest::new(HttpRequestBody::empty())
}

/// The request for uploads whose keys begin with `prefix`, behind the last one of the page before.
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
    // A plus sign in what was appended stands for a blank, and is signed as one; not every server reads it
    // so.
    let query = url.query().unwrap_or_default().replace('+', "%20");
    url.set_query(Some(&query));
    url
}

/// Errors: it is not what S3 answers.
fn uploads_in(page: &str) -> Result<Vec<UnfinishedUpload>> {
    let uploads = page.split("<Upload>").skip(1);
    uploads
        .map(|upload| {
            let of = |name: &str| {
                let text = element(upload, name).map(unescaped);
                text.ok_or_else(|| wrong(STORE, format!("an upload is listed without {name}")))
            };
            let object = ObjectMeta {
                location: Path::parse(of("Key")?)?,
                last_modified: parsed(&of("Initiated")?)?,
                size: 0,
                e_tag: None,
                version: None,
            };
            Ok(UnfinishedUpload { object, id: of("UploadId")? })
        })
        .collect()
}

/// Signs that stand for themselves nowhere in XML.
const ESCAPES: [(&str, &str); 6] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];

/// A text of XML as it is meant.
fn unescaped(text: &str) -> String {
    let plain = ESCAPES.iter().fold(text.to_string(), |text, (escape, sign)| text.replace(escape, sign));
    // Last, or what it begins would pass for another one.
    plain.replace("&amp;", "&")
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T> {
    text.parse::<T>().map_err(|error| wrong(STORE, format!("cannot read \"{text}\": {error}")))
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
    fn a_page_is_asked_for_behind_the_last_one() {
        let place = Url::parse("http://here:9000/b").unwrap();
        let first = page_url(&place, "a b/", None);
        assert_eq!(first.as_str(), "http://here:9000/b?uploads=&prefix=a%20b%2F");
        let next = page_url(&place, "", Some(&("k+".to_string(), "7".to_string())));
        assert_eq!(next.as_str(), "http://here:9000/b?uploads=&prefix=&key-marker=k%2B&upload-id-marker=7");
        let next = page_url(&place, "", Some(&("k".to_string(), String::new())));
        assert_eq!(next.as_str(), "http://here:9000/b?uploads=&prefix=&key-marker=k");
    }
}
