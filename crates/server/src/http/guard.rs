//! Request guards: host names, authentication, and security headers.

use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::connection::Peer;
use super::{Pages, Site};
use crate::auth::basic;

/// Delay after a wrong password.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);

/// Content security policy: no foreign resources, no inline scripts, no framing.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds security headers to responses.
pub(super) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With "no-referrer", browsers would omit the origin of forms, too.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// Rejects requests for another host name, and forms from other pages.
pub(super) async fn host(State(site): State<Site>, request: Request, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => host,
        _ => return (StatusCode::BAD_REQUEST, "a request names its host once\n").into_response(),
    };
    if !is_own(host, &site.pages.names) {
        let message = "this server does not have that name; add it to http_names in section server of the \
                       configuration file\n";
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    if request.method() == Method::POST && !is_from(host, request.headers()) {
        return (StatusCode::FORBIDDEN, "another page sent this form\n").into_response();
    }
    next.run(request).await
}

/// IP addresses are safe: DNS rebinding needs a name.
fn is_own(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if let Some(inner) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let own = names.iter().map(String::as_str).chain(["localhost"]).any(|own| own.eq_ignore_ascii_case(name));
    own || name.parse::<Ipv4Addr>().is_ok()
}

/// Whether a request comes from a page of this server, according to the browser's headers.
fn is_from(host: &str, headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let site = headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or_default());
    let same = origin.is_none_or(|origin| origin.split_once("://").is_some_and(|(_, from)| from == host));
    same && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
}

/// Requests HTTP basic authentication, if configured.
pub(super) async fn login(State(site): State<Site>, request: Request, next: Next) -> Response {
    if may_see(&site.pages, request.headers()).await {
        return next.run(request).await;
    }
    if request.headers().contains_key(header::AUTHORIZATION) {
        tokio::time::sleep(REFUSAL_DELAY).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"Harrier\", charset=\"UTF-8\"")];
    (StatusCode::UNAUTHORIZED, ask, "a role and its password are needed\n").into_response()
}

/// Whether the sender of these headers may see the pages.
pub(super) async fn may_see(pages: &Pages, headers: &HeaderMap) -> bool {
    let Some(login) = pages.login.as_ref().map(Arc::clone) else {
        return true;
    };
    let Some((role, password)) = credentials(headers) else {
        return false;
    };
    tokio::task::spawn_blocking(move || login(&role, &password)).await.unwrap_or(false)
}

fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    basic::credentials(headers.get(header::AUTHORIZATION)?.to_str().ok()?)
}

/// Compares in constant time.
pub fn are_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The sender of a request, for the log.
pub(super) struct RequestSender {
    role: Option<String>,
    peer: Option<Peer>,
}

impl<S: Sync> FromRequestParts<S> for RequestSender {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(peer)| *peer);
        Ok(Self { role: credentials(&parts.headers).map(|(role, _)| role), peer })
    }
}

impl fmt::Display for RequestSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.as_deref().unwrap_or("somebody"))?;
        self.peer.iter().try_for_each(|Peer(address)| write!(f, " at {address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_and_addresses_are_served() {
        let names = ["warehouse.example.com".to_string()];
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:8080", true),
            ("10.1.2.3", true),
            ("[::1]:8080", true),
            ("[fe80::1]", true),
            ("warehouse.example.com:80", true),
            ("Warehouse.Example.com", true),
            ("example.com", false),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com", false),
            ("[evil.example.com]", false),
            ("localhost:8080@example.com", false),
            ("localhost:", false),
            ("", false),
            ("::1", false),
        ] {
            assert_eq!(is_own(host, &names), expected, "{host:?}");
        }
    }
}
