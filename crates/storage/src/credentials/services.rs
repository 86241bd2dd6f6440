//! Clients of the services that issue temporary credentials: STS, SSO, containers, instances, and programs.
//!
//! Each request is retried once if the service is unreachable or returns 5xx; responses are read to their
//! end.

use std::fmt::Display;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use object_store::Result;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::{ClientOptions, Error};
use serde_json::Value;
use sha1::{Digest, Sha1};
use url::form_urlencoded;
use uuid::Uuid;

use super::config_files::{ConfigFiles, Section};
use super::{IssuedCredentials, Variables, credential_error, unsupported_error};
use crate::s3::responses::element;
use crate::transfer::Transfer;

/// Timeouts of network services.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the metadata service, which is local to an instance and absent elsewhere.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a program, which may call services in turn.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

const CONTAINER: &str = "http://169.254.170.2";
const INSTANCE: &str = "http://169.254.169.254";
const INSTANCE_ROLES: &str = "latest/meta-data/iam/security-credentials";

/// A role to assume with other credentials.
pub(super) struct AssumeRole<'a> {
    pub role: &'a str,
    pub session: Option<&'a str>,
    pub external_id: Option<&'a str>,
    pub duration_seconds: Option<&'a str>,
}

/// Assumes a role by STS with the credentials of another identity.
pub(super) async fn assume_role(
    variables: &Variables,
    region: &str,
    assumed: &AssumeRole<'_>,
    own: &AwsCredential,
) -> Result<IssuedCredentials> {
    let session = session_name(assumed.session);
    let mut form = vec![("Action", "AssumeRole"), ("RoleArn", assumed.role), ("RoleSessionName", &session)];
    form.extend(assumed.external_id.map(|id| ("ExternalId", id)));
    form.extend(assumed.duration_seconds.map(|seconds| ("DurationSeconds", seconds)));
    let mut request = sts_request(variables, region, &form)?;
    AwsAuthorizer::new(own, "sts", region).authorize(&mut request, None);
    let what = format!("could not take on role \"{}\"", assumed.role);
    parse_sts_response(send(request, Reach::Network, &what).await?, &what)
}

/// Assumes a role by STS with a token file that its platform rotates.
pub(super) async fn web_identity(
    variables: &Variables,
    region: &str,
    file: &str,
    role: &str,
    session: Option<&str>,
) -> Result<IssuedCredentials> {
    let file = variables.expand_home(file);
    let what = format!("could not take on role \"{role}\" with the token of file \"{}\"", file.display());
    let token =
        std::fs::read_to_string(&file).map_err(|error| credential_error(format!("{what}: {error}")))?;
    let session = session_name(session);
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("RoleArn", role),
        ("RoleSessionName", &session),
        ("WebIdentityToken", token.trim()),
    ];
    let request = sts_request(variables, region, &form)?;
    parse_sts_response(send(request, Reach::Network, &what).await?, &what)
}

fn form_encoded<'a>(pairs: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn session_name(said: Option<&str>) -> String {
    said.map_or_else(|| format!("harrier-{}", Uuid::new_v4().simple()), str::to_string)
}

fn sts_request(variables: &Variables, region: &str, form: &[(&str, &str)]) -> Result<HttpRequest> {
    let endpoint = variables.get("AWS_ENDPOINT_URL_STS").or_else(|| variables.get("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.map_or_else(|| format!("https://sts.{region}.amazonaws.com"), str::to_string);
    let request = http::Request::post(with_path(&endpoint, "/"));
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    build(request, form_encoded(form.iter().chain(&[("Version", "2011-06-15")])).into())
}

fn parse_sts_response(text: String, what: &str) -> Result<IssuedCredentials> {
    let of = |name: &str| element(&text, name);
    let (Some(key_id), Some(secret)) = (of("AccessKeyId"), of("SecretAccessKey")) else {
        return Err(credential_error(format!("{what}: the answer has no credentials")));
    };
    let mut issued = IssuedCredentials::new(key_id, secret, of("SessionToken"));
    issued.expires = of("Expiration").and_then(time);
    Ok(issued)
}

/// Gets credentials from the portal of IAM Identity Center with the token of `aws sso login`.
pub(super) async fn sso(
    variables: &Variables,
    files: &ConfigFiles,
    name: &str,
    profile: &Section,
) -> Result<IssuedCredentials> {
    let login = format!("aws sso login --profile {name}");
    let session = match profile.get("sso_session") {
        Some(session) => Some((
            session,
            files.other("sso-session", session).ok_or_else(|| {
                credential_error(format!(
                    "sso_session \"{session}\" of profile \"{name}\" is in none of {}",
                    files.names()
                ))
            })?,
        )),
        None => None,
    };
    let said = |key: &str| {
        let value = profile.get(key).or_else(|| session?.1.get(key));
        value.ok_or_else(|| credential_error(format!("profile \"{name}\" has no {key}")))
    };
    // Tokens are cached by session name, or by the portal's address without one.
    let kept_by = session.map_or_else(|| said("sso_start_url"), |(session, _)| Ok(session))?;
    let hash: String = Sha1::digest(kept_by.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = variables.expand_home(&format!("~/.aws/sso/cache/{hash}.json"));
    let what = format!("could not use SSO for profile \"{name}\"");
    let text = std::fs::read_to_string(&file)
        .map_err(|error| credential_error(format!("{what}: \"{}\": {error}; {login}", file.display())))?;
    let cached: Value = serde_json::from_str(&text)
        .map_err(|_| credential_error(format!("{what}: \"{}\" is not read; {login}", file.display())))?;
    let token = cached["accessToken"]
        .as_str()
        .ok_or_else(|| credential_error(format!("{what}: there is no token; {login}")))?;
    if cached["expiresAt"].as_str().and_then(time).is_some_and(|end| end <= SystemTime::now()) {
        return Err(credential_error(format!("{what}: its session has expired; {login}")));
    }
    let region = said("sso_region")?;
    let endpoint = variables.get("AWS_ENDPOINT_URL_SSO");
    let endpoint =
        endpoint.map_or_else(|| format!("https://portal.sso.{region}.amazonaws.com"), str::to_string);
    let (account, role) = (said("sso_account_id")?, said("sso_role_name")?);
    let query = form_encoded(&[("role_name", role), ("account_id", account)]);
    let request = http::Request::get(with_path(&endpoint, &format!("/federation/credentials?{query}")));
    let request = build(request.header("x-amz-sso_bearer_token", token), HttpRequestBody::empty())?;
    let answer = json(&send(request, Reach::Network, &what).await?, &what)?;
    let role = &answer["roleCredentials"];
    let (Some(key_id), Some(secret)) = (role["accessKeyId"].as_str(), role["secretAccessKey"].as_str())
    else {
        return Err(credential_error(format!("{what}: the answer has no credentials")));
    };
    let mut issued = IssuedCredentials::new(key_id, secret, role["sessionToken"].as_str());
    let millis = role["expiration"].as_u64();
    issued.expires = millis.map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
    Ok(issued)
}

/// Runs a program of the user that prints credentials.
pub(super) async fn process(profile: &str, command: &str) -> Result<IssuedCredentials> {
    let what = format!("credential_process of profile \"{profile}\"");
    let failed = |why: &dyn Display| credential_error(format!("{what} failed: {why}"));
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let done = tokio::time::timeout(PROCESS_TIMEOUT, shell.output()).await;
    let done =
        done.map_err(|_| failed(&format!("it has taken more than {} s", PROCESS_TIMEOUT.as_secs())))?;
    let done = done.map_err(|error| failed(&error))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        return Err(failed(&format!("{}: {said}", done.status)));
    }
    let answer = json(&String::from_utf8_lossy(&done.stdout), &what)?;
    if answer["Version"].as_u64() != Some(1) {
        return Err(unsupported_error(format!("{what} prints another version than 1")));
    }
    parse_credentials(&answer, "SessionToken", &what)
}

/// Gets credentials from the agent of a container; `None` if there is no agent.
pub(super) async fn container(variables: &Variables) -> Result<Option<IssuedCredentials>> {
    let url = match variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        Some(path) => format!("{CONTAINER}{path}"),
        None => match variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            Some(url) => url.to_string(),
            None => return Ok(None),
        },
    };
    let what = format!("could not get the credentials of the container from {url}");
    let mut request = http::Request::get(&url);
    let token = match variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(file) => {
            let token = std::fs::read_to_string(file);
            Some(token.map_err(|error| credential_error(format!("{what}: \"{file}\": {error}")))?)
        }
        None => variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_string),
    };
    if let Some(token) = token {
        request = request.header("authorization", token.trim());
    }
    let request = build(request, HttpRequestBody::empty())?;
    let answer = json(&send(request, Reach::Host, &what).await?, &what)?;
    parse_credentials(&answer, "Token", &what).map(Some)
}

/// Gets credentials from the metadata service of an instance, version 2.
///
/// Errors: the reason as text.
pub(super) async fn instance(variables: &Variables) -> Result<IssuedCredentials, String> {
    let endpoint = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let endpoint = endpoint.or_else(|| variables.get("AWS_METADATA_ENDPOINT")).unwrap_or(INSTANCE);
    let what = format!("the metadata service at {endpoint} has none");
    let request_metadata = async |request: http::request::Builder| -> Result<String> {
        send(build(request, HttpRequestBody::empty())?, Reach::Host, &what).await
    };
    let found = async {
        let request = http::Request::put(with_path(endpoint, "/latest/api/token"));
        let token = request_metadata(request.header("x-aws-ec2-metadata-token-ttl-seconds", "600")).await;
        let get = |path: String| {
            let request = http::Request::get(with_path(endpoint, &path));
            match &token {
                Ok(token) => request.header("x-aws-ec2-metadata-token", token.trim()),
                Err(_) => request,
            }
        };
        if token.is_err() && !variables.is_true("AWS_IMDSV1_FALLBACK") {
            return Err(token.err().unwrap_or_else(|| credential_error(what.clone())));
        }
        let roles = request_metadata(get(format!("/{INSTANCE_ROLES}/"))).await?;
        let role = roles.lines().next().unwrap_or_default().trim();
        let answer = json(&request_metadata(get(format!("/{INSTANCE_ROLES}/{role}"))).await?, &what)?;
        parse_credentials(&answer, "Token", &what)
    };
    found.await.map_err(|error| match error {
        Error::Unauthenticated { source, .. } => source.to_string(),
        error => error.to_string(),
    })
}

fn parse_credentials(answer: &Value, token: &str, what: &str) -> Result<IssuedCredentials> {
    let (Some(key_id), Some(secret)) = (answer["AccessKeyId"].as_str(), answer["SecretAccessKey"].as_str())
    else {
        let said = answer["Message"]
            .as_str()
            .or_else(|| answer["message"].as_str())
            .unwrap_or("the answer has no credentials");
        return Err(credential_error(format!("{what}: {said}")));
    };
    let mut issued = IssuedCredentials::new(key_id, secret, answer[token].as_str());
    issued.expires = answer["Expiration"].as_str().and_then(time);
    Ok(issued)
}

/// Error messages omit the response: it may contain keys.
fn json(text: &str, what: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|_| credential_error(format!("{what}: the answer is not JSON")))
}

/// Parses RFC 3339, or ISO 8601 with an offset without a colon.
fn time(text: &str) -> Option<SystemTime> {
    let parsed = chrono::DateTime::parse_from_rfc3339(text);
    let parsed = parsed.or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%z"));
    let seconds = u64::try_from(parsed.ok()?.timestamp()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn with_path(endpoint: &str, path: &str) -> String {
    format!("{}{path}", endpoint.trim_end_matches('/'))
}

fn build(request: http::request::Builder, body: HttpRequestBody) -> Result<HttpRequest> {
    request.body(body).map_err(|error| credential_error(format!("could not ask for credentials: {error}")))
}

/// The network distance of a service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Host,
    Network,
}

/// A separate client: its connections end with the caller.
fn client(reach: Reach) -> Result<HttpClient> {
    let (connect, silence) = match reach {
        Reach::Host => (METADATA_TIMEOUT, IDLE_TIMEOUT.min(METADATA_TIMEOUT * 2)),
        Reach::Network => (CONNECT_TIMEOUT, IDLE_TIMEOUT),
    };
    let options = ClientOptions::new()
        .with_connect_timeout(connect)
        .with_timeout_disabled()
        // Services on this host use plain HTTP; others if their endpoint says so.
        .with_allow_http(true);
    let options = crate::s3::with_authorities(options, None)?;
    Ok(Transfer::client(ReqwestConnector::default().connect(&options)?, silence))
}

async fn send(request: HttpRequest, reach: Reach, what: &str) -> Result<String> {
    let client = client(reach)?;
    let mut last = String::new();
    for _ in 0..2 {
        let answer = match client.execute(request.clone()).await {
            Ok(answer) => answer,
            Err(error) => {
                last = error.to_string();
                continue;
            }
        };
        let status = answer.status();
        let body =
            answer.into_body().bytes().await.map_err(|error| credential_error(format!("{what}: {error}")))?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let said = element(&text, "Message").map(str::to_string);
        let said = said.or_else(|| {
            let answer: Value = serde_json::from_str(&text).ok()?;
            Some(answer["message"].as_str().or_else(|| answer["Message"].as_str())?.to_string())
        });
        last = format!("{status}{}", said.map(|said| format!(": {said}")).unwrap_or_default());
        if !status.is_server_error() {
            break;
        }
    }
    Err(credential_error(format!("{what}: {last}")))
}
