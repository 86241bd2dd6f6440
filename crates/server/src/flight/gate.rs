//! Authentication layer before all calls. From an unauthenticated client it reads only headers and the few
//! bytes of a handshake.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use harrier_error::{SqlError, SqlState};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

use super::connection::Peer;
use super::login::{Login, Site};
use super::status::status;
use crate::auth::basic::credentials;
use crate::execution::application_name;

/// Passes authenticated calls to `inner`, and handshakes to `handshake`, which accepts only small messages.
#[derive(Clone)]
pub(super) struct Gate<S> {
    pub site: Arc<Site>,
    pub inner: S,
    pub handshake: S,
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.inner.poll_ready(context) {
            Poll::Ready(Ok(())) => self.handshake.poll_ready(context),
            other => other,
        }
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if request.uri().path().ends_with("/Handshake") {
            return Box::pin(self.handshake.call(request));
        }
        // `poll_ready` has reserved `self.inner`, not its clone.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let site = Arc::clone(&self.site);
        Box::pin(async move {
            let peer = request.extensions().get::<Peer>().cloned();
            let headers = MetadataMap::from_headers(request.headers().clone());
            match who(&site, peer, &headers).await {
                Ok(login) => {
                    request.extensions_mut().insert(login);
                    inner.call(request).await
                }
                Err(failure) => Ok(failure.into_http()),
            }
        })
    }
}

async fn who(site: &Arc<Site>, peer: Option<Peer>, headers: &MetadataMap) -> Result<Arc<Login>, Status> {
    let Some(peer) = peer else {
        return Err(Status::internal("a call came over no connection"));
    };
    let token = match headers.get("authorization").map(|value| value.to_str().unwrap_or_default()) {
        Some(value) => match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim().to_string()),
            _ => {
                let failure =
                    SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "this call needs a session")
                        .with_hint("Log in by a handshake with the user's name and password.");
                return Err(status(&failure));
            }
        },
        // Clients send the payload that a handshake returned.
        None => headers
            .get_bin("auth-token-bin")
            .map(|value| String::from_utf8_lossy(&value.to_bytes().unwrap_or_default()).into_owned()),
    };
    match token {
        Some(token) => site.find(&token, &peer).ok_or_else(|| {
            status(
                &SqlError::new(
                    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                    "the session does not exist, or has ended",
                )
                .with_hint("Connect again."),
            )
        }),
        None => {
            let database = database(site, headers);
            let login = site.anonymous(&database, &application(headers), &peer).await;
            login.map_err(|failure| status(&failure))
        }
    }
}

/// The database in a client's header; drivers send connection options that way.
pub(super) fn database(site: &Site, headers: &MetadataMap) -> String {
    let named = ["database", "catalog"].into_iter().find_map(|name| headers.get(name)?.to_str().ok());
    named.filter(|name| !name.is_empty()).unwrap_or(&site.flight.database).to_string()
}

/// The client's application name.
pub(super) fn application(headers: &MetadataMap) -> String {
    let named = ["application_name", "x-application-name", "user-agent"];
    let name = named.into_iter().find_map(|name| headers.get(name)?.to_str().ok()).unwrap_or_default();
    application_name(name)
}

/// User and password of a Basic authorization header.
pub(super) fn basic(headers: &MetadataMap) -> Option<(String, String)> {
    credentials(headers.get("authorization")?.to_str().ok()?)
}

/// User and password in a handshake's payload.
pub(super) fn payload(bytes: Bytes) -> Option<(String, String)> {
    let basic: arrow_flight::BasicAuth = prost::Message::decode(bytes).ok()?;
    Some((basic.username, basic.password)).filter(|(user, _)| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_read_with_and_without_padding() {
        let read = |value: &str| {
            let mut headers = MetadataMap::new();
            headers.insert("authorization", value.parse().unwrap());
            basic(&headers)
        };
        let ada = Some(("ada".to_string(), "a:b".to_string()));
        assert_eq!(read("Basic YWRhOmE6Yg=="), ada);
        assert_eq!(read("basic YWRhOmE6Yg"), ada);
        for wrong in ["Bearer YWRhOmE6Yg", "Basic", "Basic !", "Basic YWRh"] {
            assert_eq!(read(wrong), None);
        }
        assert_eq!(payload(Bytes::from_static(b"not a message")), None);
    }
}
