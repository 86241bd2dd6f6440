//! Signs requests again for the region that the server names, if the bucket is elsewhere than configured.
//!
//! The library signs for the configured region. The server's answer to that (301, 400 or 403 with
//! `x-amz-bucket-region`, or AuthorizationHeaderMalformed with `Region` in its body) is remembered for the
//! lifetime of an opened store.

use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest};
use parking_lot::RwLock;

use crate::s3::responses::element;

/// Region and credentials of the requests of one store.
#[derive(Debug)]
pub(crate) struct Signing {
    configured: String,
    /// The region that the server has named instead.
    learned: RwLock<Option<String>>,
    credentials: AwsCredentialProvider,
}

impl Signing {
    pub(crate) fn new(region: &str, credentials: AwsCredentialProvider) -> Self {
        Self { configured: region.to_string(), learned: RwLock::default(), credentials }
    }

    /// Whether a response with this status may name another region.
    pub(crate) fn may_be_elsewhere(status: http::StatusCode) -> bool {
        matches!(status.as_u16(), 301 | 307 | 400 | 403)
    }

    /// Learns the region that a response names, for later requests; returns whether it is a new one.
    pub(crate) fn learn(&self, headers: &http::HeaderMap, body: &[u8]) -> bool {
        let named = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let text = String::from_utf8_lossy(body);
        let in_body = match element(&text, "Code") {
            Some("AuthorizationHeaderMalformed") => element(&text, "Region"),
            _ => None,
        };
        let Some(region) = named.or(in_body).map(str::trim).filter(|region| !region.is_empty()) else {
            return false;
        };
        let mut learned = self.learned.write();
        if learned.as_deref().unwrap_or(&self.configured) == region {
            return false;
        }
        tracing::info!(configured = %self.configured, %region, "the bucket is in another region");
        *learned = Some(region.to_string());
        true
    }

    /// Signs a request for the learned region, if there is one, and redirects it if it goes to Amazon.
    pub(crate) async fn redirect(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        let Some(region) = self.learned.read().clone() else { return Ok(()) };
        let failed = |error: object_store::Error| HttpError::new(HttpErrorKind::Unknown, error);
        let credential = self.credentials.get_credential().await.map_err(failed)?;
        let uri = request.uri().to_string();
        let (from, to) =
            (format!("s3.{}.amazonaws.com", self.configured), format!("s3.{region}.amazonaws.com"));
        let host = request.uri().host().unwrap_or_default();
        if host == from || host.ends_with(&format!(".{from}")) {
            let moved = uri.replacen(&from, &to, 1).parse();
            *request.uri_mut() = moved.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        }
        request.headers_mut().remove("authorization");
        let digest = request.headers().get("x-amz-content-sha256").and_then(|digest| digest.to_str().ok());
        let digest = digest.and_then(of_hex);
        let authorizer = AwsAuthorizer::new(&credential, "s3", &region);
        authorizer.with_sign_payload(digest.is_some()).authorize(request, digest.as_deref());
        Ok(())
    }
}

/// `None`: the payload is not signed.
fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::StaticCredentialProvider;
    use object_store::aws::AwsCredential;
    use object_store::client::HttpRequestBody;

    use super::*;

    fn signing() -> Signing {
        let (key_id, secret_key) = ("KEYID".to_string(), "hush".to_string());
        let credential = AwsCredential { key_id, secret_key, token: None };
        Signing::new("us-east-1", Arc::new(StaticCredentialProvider::new(credential)))
    }

    fn request(url: &str) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.parse().unwrap();
        request
    }

    #[tokio::test]
    async fn a_region_is_learned_once() {
        let signing = signing();
        let mut headers = http::HeaderMap::new();
        assert!(!signing.learn(&headers, b"<Code>AccessDenied</Code><Region>eu-west-1</Region>"));
        let mut first = request("https://b.s3.us-east-1.amazonaws.com/x");
        signing.redirect(&mut first).await.unwrap();
        assert!(!first.headers().contains_key("authorization"));
        headers.insert("x-amz-bucket-region", "us-east-1".parse().unwrap());
        assert!(!signing.learn(&headers, b""));
        headers.insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
        assert!(signing.learn(&headers, b""));
        assert!(!signing.learn(&headers, b""));
        signing.redirect(&mut first).await.unwrap();
        assert_eq!(first.uri().to_string(), "https://b.s3.eu-west-1.amazonaws.com/x");
        let configured = first.headers()["authorization"].to_str().unwrap();
        assert!(configured.contains("/eu-west-1/s3/"), "{configured}");
        assert!(signing.learn(
            &http::HeaderMap::new(),
            b"<Code>AuthorizationHeaderMalformed</Code><Region>eu-1</Region>"
        ));
        let mut own = request("http://minio:9000/b/x");
        signing.redirect(&mut own).await.unwrap();
        assert_eq!(own.uri().host(), Some("minio"));
    }
}
