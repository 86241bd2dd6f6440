//! The HTTP transport: a call in each POST. A client proves who it is by Basic authentication, then by a
//! cookie.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::serve::{IncomingStream, Listener};
use bytes::{Bytes, BytesMut};
use harrier_thrift::{DecodeLimits, Message};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Sleep;
use uuid::Uuid;

use super::caller::Caller;
use super::ends::Ends;
use super::service::answer;
use super::session::Site;
use super::transport::VALUES_MAX;
use crate::auth::basic::credentials;
use crate::pg::io::Stream;

/// The name of the cookie, as in Hive.
const COOKIE: &str = "hive.server2.auth";

/// How long a cookie is good: a role that may no longer log in, or not with this password, is out then.
/// Clients send user and password again.
const COOKIE_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Maximum cookies; the oldest is dropped.
const COOKIES_MAX: usize = 10_000;

/// Idle timeout of a connection without a call.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Paths that clients post to; the first by themselves.
const PATHS: [&str; 3] = ["/cliservice", "/cliservice/", "/"];

/// A connection's place among those allowed.
pub(super) type Place = OwnedSemaphorePermit;

/// A connection whose first bytes have been read.
pub(super) struct HttpConnection {
    stream: Box<dyn Stream>,
    read: BytesMut,
    silence: Pin<Box<Sleep>>,
    peer: HttpPeer,
    _place: Place,
}

/// The other end of a connection; an extension of its requests.
#[derive(Clone)]
pub(super) struct HttpPeer {
    ends: Ends,
    calls: Arc<AtomicUsize>,
    /// A call of the connection has been authenticated.
    is_admitted: Arc<AtomicBool>,
}

/// Whom a cookie stands for, and the connection that it was given to.
struct Cookie {
    role: String,
    address: IpAddr,
    is_encrypted: bool,
    certificate: Option<Arc<[u8]>>,
    since: Instant,
}

impl Cookie {
    /// Whether a connection is from where the cookie was given to.
    fn fits(&self, ends: &Ends) -> bool {
        self.since.elapsed() < COOKIE_LIFETIME
            && self.address == ends.client.ip()
            && self.is_encrypted == ends.is_encrypted
            && self.certificate == ends.certificate
    }
}

impl HttpConnection {
    /// `limit`: how long the client may take to prove who it is.
    pub fn new(stream: Box<dyn Stream>, read: BytesMut, ends: Ends, place: Place, limit: Duration) -> Self {
        let silence = Box::pin(tokio::time::sleep(limit));
        Self {
            stream,
            read,
            silence,
            peer: HttpPeer { ends, calls: Arc::default(), is_admitted: Arc::default() },
            _place: place,
        }
    }

    /// Passes on the stream's result, or an error after the idle timeout.
    fn check_idle<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let next = tokio::time::Instant::now() + SILENCE_MAX;
        let is_admitted = self.peer.is_admitted.load(Ordering::Acquire);
        if polled.is_ready() {
            // Before that, single bytes give no more time.
            if is_admitted {
                self.silence.as_mut().reset(next);
            } else if self.silence.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            return polled;
        }
        loop {
            ready!(self.silence.as_mut().poll(context));
            if self.peer.calls.load(Ordering::Acquire) == 0 {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // A statement may take long.
            self.silence.as_mut().reset(next);
        }
    }
}

impl AsyncRead for HttpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            let count = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.check_idle(context, polled)
    }
}

impl AsyncWrite for HttpConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_idle(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Connections that turned out to be HTTP.
pub(super) struct HttpConnections {
    pub ready: mpsc::Receiver<HttpConnection>,
    pub address: SocketAddr,
}

impl Listener for HttpConnections {
    type Io = HttpConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (HttpConnection, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => {
                let client = connection.peer.ends.client;
                (connection, client)
            }
            // Only while the server ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Connected<IncomingStream<'_, HttpConnections>> for HttpPeer {
    fn connect_info(stream: IncomingStream<'_, HttpConnections>) -> Self {
        stream.io().peer.clone()
    }
}

/// State shared by all requests.
struct HttpSite {
    site: Arc<Site>,
    cookies: Mutex<HashMap<String, Cookie>>,
}

/// Serves connections as long as the future lives.
pub(super) async fn serve(site: Arc<Site>, connections: HttpConnections) -> io::Result<()> {
    let state = Arc::new(HttpSite { site, cookies: Mutex::default() });
    let router = Router::new().fallback(post).with_state(state);
    axum::serve(connections, router.into_make_service_with_connect_info::<HttpPeer>()).await
}

/// Counts a call of a connection.
struct Calls(Arc<AtomicUsize>);

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn post(
    State(state): State<Arc<HttpSite>>,
    ConnectInfo(peer): ConnectInfo<HttpPeer>,
    request: Request,
) -> Result<Response, Infallible> {
    Ok(respond(&state, peer, request).await.unwrap_or_else(|refused| refused))
}

async fn respond(state: &HttpSite, peer: HttpPeer, request: Request) -> Result<Response, Response> {
    let HttpPeer { ends, calls, is_admitted } = peer;
    calls.fetch_add(1, Ordering::AcqRel);
    let _calls = Calls(calls);
    if !PATHS.contains(&request.uri().path()) {
        return Err((StatusCode::NOT_FOUND, "HiveServer2 is at /cliservice\n").into_response());
    }
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a call is a POST\n").into_response());
    }
    let (role, cookie) = state.authenticate(&ends, request.headers()).await?;
    is_admitted.store(true, Ordering::Release);
    if acts_as(request.uri().query()).is_some_and(|other| other != role) {
        return Err((StatusCode::FORBIDDEN, "a role may not act as another (doAs)\n").into_response());
    }
    let limits = &state.site.hive.limits;
    let body = to_bytes(request.into_body(), limits.message_bytes_max).await;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE.into_response())?;
    let limits = DecodeLimits { bytes: limits.message_bytes_max, values: VALUES_MAX };
    let Ok((message, _)) = Message::decode(&body, limits) else {
        return Err((StatusCode::BAD_REQUEST, "the body is no message of Thrift\n").into_response());
    };
    let reply = answer(&state.site, &Caller::with_role(ends, role), &message).await;
    let mut out = BytesMut::new();
    reply.encode(&mut out);
    let mut response = Response::new(Body::from(Bytes::from(out)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-thrift"));
    if let Some(cookie) = cookie {
        headers.insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

impl HttpSite {
    /// Returns the client's role, and a new cookie if it has sent none.
    ///
    /// Errors: 401.
    async fn authenticate(
        &self,
        ends: &Ends,
        headers: &HeaderMap,
    ) -> Result<(String, Option<HeaderValue>), Response> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| credentials(value.to_str().ok()?));
        let cookie = self.role_of_cookie(ends, headers);
        // A proxy may share its cookies between users.
        if let Some(role) = cookie.filter(|role| given.as_ref().is_none_or(|(user, _)| user == role)) {
            return Ok((role, None));
        }
        let (user, password) = given.map_or((String::new(), None), |(user, password)| (user, Some(password)));
        let role = self.site.authenticate(ends, &user, password.as_deref()).await;
        let role = role.map_err(|failure| {
            let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"harrier\"")];
            (StatusCode::UNAUTHORIZED, challenge, failure.message).into_response()
        })?;
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let secure = if ends.is_encrypted { "; Secure" } else { "" };
        let text =
            format!("{COOKIE}={token}; HttpOnly; Path=/; Max-Age={}{secure}", COOKIE_LIFETIME.as_secs());
        self.remember(token, &role, ends);
        Ok((role, HeaderValue::try_from(text).ok()))
    }

    fn role_of_cookie(&self, ends: &Ends, headers: &HeaderMap) -> Option<String> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, token) = pairs.find(|(name, _)| *name == COOKIE)?;
        let known = self.cookies.lock();
        known
            .get(token.trim_matches('"'))
            .filter(|cookie| cookie.fits(ends))
            .map(|cookie| cookie.role.clone())
    }

    fn remember(&self, token: String, role: &str, ends: &Ends) {
        let mut cookies = self.cookies.lock();
        if cookies.len() >= COOKIES_MAX {
            cookies.retain(|_, cookie| cookie.since.elapsed() < COOKIE_LIFETIME);
            let oldest =
                cookies.iter().min_by_key(|(_, cookie)| cookie.since).map(|(token, _)| token.clone());
            if let Some(oldest) = oldest.filter(|_| cookies.len() >= COOKIES_MAX) {
                cookies.remove(&oldest);
            }
        }
        let cookie = Cookie {
            role: role.to_string(),
            address: ends.client.ip(),
            is_encrypted: ends.is_encrypted,
            certificate: ends.certificate.clone(),
            since: Instant::now(),
        };
        cookies.insert(token, cookie);
    }
}

/// The user that a gateway wants to act as, of a query `doAs=user`.
fn acts_as(query: Option<&str>) -> Option<String> {
    let pairs = url::form_urlencoded::parse(query?.as_bytes());
    pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("doas")).map(|(_, user)| user.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_to_act_as_is_read() {
        assert_eq!(acts_as(Some("a=b&doAs=b%6fb")), Some("bob".to_string()));
        assert_eq!((acts_as(Some("a=b")), acts_as(None)), (None, None));
    }
}
