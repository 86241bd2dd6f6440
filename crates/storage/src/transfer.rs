//! HTTP client for S3, below the library's interpretation of responses.
//!
//! | the library | here |
//! |---|---|
//! | one timeout for a request with its whole body: a slow reader of a large object fails | an idle timeout: until the response begins, and until more of its body comes |
//! | a response body that breaks off fails at once, unless it is an object's (apache/arrow-rs-object-store#386) | metadata responses (listings, begins and ends of uploads, deletions) are read completely, and requested again otherwise |
//! | 409 to a put is taken for "already exists" | it means a concurrent put, and is retried |
//! | connection errors say what failed, not why | they contain the whole chain of causes, down to "connection refused" |

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use tokio::time::{Instant, Sleep};

use crate::full_responses::{Part, RequestedRange, narrow_to_range};
use crate::signing::Signing;

/// The slowest upload: the idle timeout starts after the time that the body takes at this speed.
const SENT_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// An HTTP client with an idle timeout.
#[derive(Debug)]
pub(crate) struct Transfer {
    inner: HttpClient,
    idle_timeout: Duration,
    /// Requests to a bucket that are signed.
    signing: Option<Arc<Signing>>,
}

impl Transfer {
    /// `inner` makes the connections, and has no timeout of its own.
    pub(crate) fn client(inner: HttpClient, idle_timeout: Duration) -> HttpClient {
        Self::with_signing(inner, idle_timeout, None)
    }

    /// The same with signing, following the bucket to its region.
    pub(crate) fn with_signing(
        inner: HttpClient,
        idle_timeout: Duration,
        signing: Option<Arc<Signing>>,
    ) -> HttpClient {
        HttpClient::new(Self { inner, idle_timeout, signing })
    }
}

#[async_trait]
impl HttpService for Transfer {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Some(signing) = self.signing.as_ref().filter(|_| is_signed(&request)) else {
            return self.send(request).await;
        };
        signing.redirect(&mut request).await?;
        let mut again = request.clone();
        let (head, body) = self.send(request).await?.into_parts();
        if !Signing::may_be_elsewhere(head.status) {
            return Ok(HttpResponse::from_parts(head, body));
        }
        let body = body.bytes().await.map_err(interruption)?;
        if signing.learn(&head.headers, &body) {
            signing.redirect(&mut again).await?;
            return self.send(again).await;
        }
        Ok(HttpResponse::from_parts(head, body.into()))
    }
}

impl Transfer {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sending = request.body().content_length() as u64 / SENT_BYTES_PER_SECOND_MIN;
        let limit = self.idle_timeout + Duration::from_secs(sending);
        let is_object = is_of_object(&request);
        let requested = RequestedRange::of(request.headers()).filter(|_| is_object);
        let writes = request.method() == "PUT" || request.method() == "POST";
        let answered = tokio::time::timeout(limit, self.inner.execute(request)).await;
        let answer = match answered {
            Ok(answer) => answer.map_err(with_causes)?,
            Err(_) => return Err(timeout_error(limit)),
        };
        let (mut head, body) = answer.into_parts();
        if writes
            && head.status.as_u16() == 409
            && let Ok(again) = 503_u16.try_into()
        {
            head.status = again;
        }
        let range = narrow_to_range(requested, &mut head);
        let body = IdleTimeoutBody::new(body, self.idle_timeout);
        let body = match is_object && head.status.is_success() {
            true => match range {
                Some(range) => HttpResponseBody::new(Part::new(body, &range)),
                None => HttpResponseBody::new(body),
            },
            false => HttpResponseBody::new(body).bytes().await.map_err(interruption)?.into(),
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

fn is_signed(request: &HttpRequest) -> bool {
    request.headers().contains_key("authorization")
}

/// Whether a request reads an object's bytes, of which partial responses are usable.
fn is_of_object(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let asks = |name: &str| matches!(name, "list-type" | "uploads" | "uploadId" | "delete" | "location");
    request.method() == "GET" && !names.into_iter().any(asks)
}

/// A response body with an idle timeout.
struct IdleTimeoutBody {
    inner: HttpResponseBody,
    idle_timeout: Duration,
    /// The end of the idle timeout.
    end: Pin<Box<Sleep>>,
    /// The reader waits for more, and has since `end` was set.
    is_waiting: bool,
}

impl IdleTimeoutBody {
    fn new(inner: HttpResponseBody, idle_timeout: Duration) -> Self {
        Self { inner, idle_timeout, end: Box::pin(tokio::time::sleep(idle_timeout)), is_waiting: false }
    }
}

impl Body for IdleTimeoutBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            self.is_waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(with_causes)));
        }
        // A reader may pause between two pieces.
        if !self.is_waiting {
            self.is_waiting = true;
            let end = Instant::now() + self.idle_timeout;
            self.end.as_mut().reset(end);
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Some(Err(timeout_error(self.idle_timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An error with the texts of all its causes.
#[derive(Debug)]
struct ErrorChain(String);

impl fmt::Display for ErrorChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ErrorChain {}

fn timeout_error(limit: Duration) -> HttpError {
    let words = format!("timed out: the server has said nothing for {} s", limit.as_secs());
    HttpError::new(HttpErrorKind::Timeout, ErrorChain(words))
}

/// Adds the texts of all causes to an error.
fn with_causes(error: HttpError) -> HttpError {
    HttpError::new(error.kind(), ErrorChain(causes(&error)))
}

/// An interrupted response: the library retries idempotent requests.
fn interruption(error: HttpError) -> HttpError {
    let kind = match error.kind() {
        HttpErrorKind::Timeout => HttpErrorKind::Timeout,
        _ => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, ErrorChain(format!("the answer broke off: {}", causes(&error))))
}

/// The texts of an error and its causes, without repetition. The error itself contains its first cause's.
fn causes(error: &HttpError) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !words.last().is_some_and(|last| last.contains(&said)) {
            words.push(said);
        }
        next = cause.source();
    }
    match words.is_empty() {
        true => error.to_string(),
        false => words.join(": "),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use object_store::client::HttpRequestBody;

    use super::*;

    const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

    #[derive(Debug, Clone, Copy)]
    enum Piece {
        Text(&'static str),
        Broken,
        /// Nothing more comes.
        Silence,
    }
    use Piece::{Broken, Silence, Text};

    /// Responds with a status and a body in pieces; status 0 refuses the connection, 1 never responds.
    #[derive(Debug)]
    struct Server {
        status: u16,
        pieces: Mutex<Vec<Piece>>,
    }

    fn client(status: u16, pieces: &[Piece]) -> HttpClient {
        let server = Server { status, pieces: Mutex::new(pieces.to_vec()) };
        Transfer::client(HttpClient::new(server), IDLE_TIMEOUT)
    }

    #[derive(Debug)]
    struct Pieces(Vec<Piece>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = HttpError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            match self.0.remove(0) {
                Text(text) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes()))))),
                Broken => {
                    let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
                    Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Unknown, broken))))
                }
                Silence => {
                    self.0.insert(0, Silence);
                    Poll::Pending
                }
            }
        }
    }

    #[async_trait]
    impl HttpService for Server {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let pieces = std::mem::take(&mut *self.pieces.lock().unwrap());
            match self.status {
                0 => {
                    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                    return Err(HttpError::new(HttpErrorKind::Connect, refused));
                }
                1 => std::future::pending().await,
                _ => {}
            }
            let length: usize =
                pieces.iter().map(|piece| if let Text(text) = piece { text.len() } else { 0 }).sum();
            let mut answer = HttpResponse::new(HttpResponseBody::new(Pieces(pieces)));
            answer.headers_mut().insert("content-length", length.into());
            *answer.status_mut() = self.status.try_into().unwrap();
            Ok(answer)
        }
    }

    fn request(method: &str, path: &str) -> HttpRequest {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = format!("http://here{path}").parse().unwrap();
        request
    }

    #[tokio::test]
    async fn silent_requests_and_bodies_time_out() {
        let error = client(1, &[]).execute(request("GET", "/b/x")).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        assert!(error.to_string().contains("the server has said nothing"), "{error}");
        let answer = client(200, &[Text("ab"), Silence]).execute(request("GET", "/b/x")).await.unwrap();
        let error = answer.into_body().bytes().await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
    }

    #[tokio::test]
    async fn a_slow_reader_is_no_silence() {
        let answer = client(200, &[Text("ab"), Text("cd")]).execute(request("GET", "/b/x")).await.unwrap();
        let mut body = answer.into_body().bytes_stream();
        let mut read = Vec::new();
        while let Some(piece) = futures::StreamExt::next(&mut body).await {
            read.extend(piece.unwrap());
            tokio::time::sleep(IDLE_TIMEOUT * 2).await;
        }
        assert_eq!(read, b"abcd");
    }

    #[tokio::test]
    async fn metadata_responses_are_read_completely() {
        for (method, path) in [
            ("GET", "/b?list-type=2&prefix=p"),
            ("POST", "/b/x?uploads"),
            ("POST", "/b/x?uploadId=1"),
            ("GET", "/b/x?uploadId=1"),
            ("PUT", "/b/x"),
        ] {
            let answer = client(200, &[Text("<Resu"), Broken]).execute(request(method, path)).await;
            assert_eq!(answer.unwrap_err().kind(), HttpErrorKind::Interrupted, "{method} {path}");
            let answer = client(200, &[Text("<Resu"), Text("lt/>")]).execute(request(method, path)).await;
            assert_eq!(answer.unwrap().into_body().bytes().await.unwrap(), "<Result/>");
        }
        // An object's bytes resume where they broke off.
        let broken = [Text("ab"), Broken];
        assert!(client(200, &broken).execute(request("GET", "/b/x?versionId=1")).await.is_ok());
        // Error bodies are read completely, too.
        let answer = client(404, &broken).execute(request("GET", "/b/x")).await;
        assert_eq!(answer.unwrap_err().kind(), HttpErrorKind::Interrupted);
    }

    #[tokio::test]
    async fn full_responses_satisfy_range_requests() {
        let server = Server { status: 200, pieces: Mutex::new(vec![Text("abc"), Text("def"), Text("ghi")]) };
        let client = Transfer::client(HttpClient::new(server), IDLE_TIMEOUT);
        let mut range = request("GET", "/b/x");
        range.headers_mut().insert("range", "bytes=1-6".parse().unwrap());
        let answer = client.execute(range).await.unwrap();
        assert_eq!(answer.status().as_u16(), 206);
        assert_eq!(answer.headers()["content-range"], "bytes 1-6/9");
        assert_eq!(answer.into_body().bytes().await.unwrap(), "bcdefg");
    }

    #[tokio::test]
    async fn put_conflicts_are_retried() {
        let answered =
            async |request| client(409, &[Text("<Error/>")]).execute(request).await.unwrap().status();
        assert_eq!(answered(request("PUT", "/b/x")).await.as_u16(), 503);
        assert_eq!(answered(request("POST", "/b/x?uploadId=1")).await.as_u16(), 503);
        assert_eq!(answered(request("GET", "/b/x")).await.as_u16(), 409);
    }

    #[tokio::test]
    async fn errors_include_their_causes() {
        let error = client(0, &[]).execute(request("GET", "/b/x")).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Connect);
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
}
