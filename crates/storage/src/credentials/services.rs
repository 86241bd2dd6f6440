//! What hands out credentials for a time: STS, SSO, containers, instances, and programs.
//!
//! Each is asked once, and a second time where it is not reached or says 5xx; answers are heard to their end.

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
use super::{Issued, Variables, refused, unsupported};
use crate::s3::element;
use crate::transfer::Transfer;

/// Of services in the network.
const CONNECT: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(10);
/// Of the metadata service, which is next to an instance, and where there is no instance nobody at all.
const NEXT_TO: Duration = Duration::from_secs(1);
/// Of a program that asks others in turn.
const PROCESS: Duration = Duration::from_secs(60);

const CONTAINER: &str = "http://169.254.170.2";
const INSTANCE: &str = "http://169.254.169.254";
const INSTANCE_ROLES: &str = "latest/meta-data/iam/security-credentials";

/// A role that is taken on with other credentials.
pub(super) struct Assumed<'a> {
    pub role: &'a str,
    pub session: Option<&'a str>,
    pub external_id: Option<&'a str>,
    pub duration_seconds: Option<&'a str>,
}

/// By STS, with credentials of another identity.
pub(super) async fn assume_role(
    variables: &Variables,
    region: &str,
    assumed: &Assumed<'_>,
    own: &AwsCredential,
) -> Result<Issued> {
    let session = session_name(assumed.session);
    let mut form = vec![("Action", "AssumeRole"), ("RoleArn", assumed.role), ("RoleSessionName", &session)];
    form.extend(assumed.external_id.map(|id| ("ExternalId", id)));
    form.extend(assumed.duration_seconds.map(|seconds| ("DurationSeconds", seconds)));
    let mut request = sts_request(variables, region, &form)?;
    AwsAuthorizer::new(own, "sts", region).authorize(&mut request, None);
    let what = format!("could not take on role \"{}\"", assumed.role);
    sts_answer(asked(request, Reach::Network, &what).await?, &what)
}

/// By STS, with the token of a file that its platform writes anew from time to time.
pub(super) async fn web_identity(
    variables: &Variables,
    region: &str,
    file: &str,
    role: &str,
    session: Option<&str>,
) -> Result<Issued> {
    let file = variables.home_in(file);
    let what = format!("could not take on role \"{role}\" with the token of file \"{}\"", file.display());
    let token = std::fs::read_to_string(&file).map_err(|error| refused(format!("{what}: {error}")))?;
    let session = session_name(session);
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("RoleArn", role),
        ("RoleSessionName", &session),
        ("WebIdentityToken", token.trim()),
    ];
    let request = sts_request(variables, region, &form)?;
    sts_answer(asked(request, Reach::Network, &what).await?, &what)
}

fn encoded<'a>(pairs: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
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
    built(request, encoded(form.iter().chain(&[("Version", "2011-06-15")])).into())
}

fn sts_answer(text: String, what: &str) -> Result<Issued> {
    let of = |name: &str| element(&text, name);
    let (Some(key_id), Some(secret)) = (of("AccessKeyId"), of("SecretAccessKey")) else {
        return Err(refused(format!("{what}: the answer has no credentials")));
    };
    let mut issued = Issued::new(key_id, secret, of("SessionToken"));
    issued.expires = of("Expiration").and_then(time);
    Ok(issued)
}

/// By the portal of IAM Identity Center, with the token that `aws sso login` has written.
pub(super) async fn sso(
    variables: &Variables,
    files: &ConfigFiles,
    name: &str,
    profile: &Section,
) -> Result<Issued> {
    let login = format!("aws sso login --profile {name}");
    let session = match profile.get("sso_session") {
        Some(session) => Some((
            session,
            files.other("sso-session", session).ok_or_else(|| {
                refused(format!(
                    "sso_session \"{session}\" of profile \"{name}\" is in none of {}",
                    files.names()
                ))
            })?,
        )),
        None => None,
    };
    let said = |key: &str| {
        let value = profile.get(key).or_else(|| session?.1.get(key));
        value.ok_or_else(|| refused(format!("profile \"{name}\" has no {key}")))
    };
    // Tokens are kept by the session's name, and by the portal's address where there is none.
    let kept_by = session.map_or_else(|| said("sso_start_url"), |(session, _)| Ok(session))?;
    let hash: String = Sha1::digest(kept_by.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = variables.home_in(&format!("~/.aws/sso/cache/{hash}.json"));
    let what = format!("could not use SSO for profile \"{name}\"");
    let text = std::fs::read_to_string(&file)
        .map_err(|error| refused(format!("{what}: \"{}\": {error}; {login}", file.display())))?;
    let kept: Value = serde_json::from_str(&text)
        .map_err(|_| refused(format!("{what}: \"{}\" is not read; {login}", file.display())))?;
    let token =
        kept["accessToken"].as_str().ok_or_else(|| refused(format!("{what}: there is no token; {login}")))?;
    if kept["expiresAt"].as_str().and_then(time).is_some_and(|end| end <= SystemTime::now()) {
        return Err(refused(format!("{what}: its session has expired; {login}")));
    }
    let region = said("sso_region")?;
    let endpoint = variables.get("AWS_ENDPOINT_URL_SSO");
    let endpoint =
        endpoint.map_or_else(|| format!("https://portal.sso.{region}.amazonaws.com"), str::to_string);
    let (account, role) = (said("sso_account_id")?, said("sso_role_name")?);
    let query = encoded(&[("role_name", role), ("account_id", account)]);
    let request = http::Request::get(with_path(&endpoint, &format!("/federation/credentials?{query}")));
    let request = built(request.header("x-amz-sso_bearer_token", token), HttpRequestBody::empty())?;
    let answer = json(&asked(request, Reach::Network, &what).await?, &what)?;
    let role = &answer["roleCredentials"];
    let (Some(key_id), Some(secret)) = (role["accessKeyId"].as_str(), role["secretAccessKey"].as_str())
    else {
        return Err(refused(format!("{what}: the answer has no credentials")));
    };
    let mut issued = Issued::new(key_id, secret, role["sessionToken"].as_str());
    let millis = role["expiration"].as_u64();
    issued.expires = millis.map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
    Ok(issued)
}

/// By a program of the user, which prints them.
pub(super) async fn process(profile: &str, command: &str) -> Result<Issued> {
    let what = format!("credential_process of profile \"{profile}\"");
    let failed = |why: &dyn Display| refused(format!("{what} failed: {why}"));
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let done = tokio::time::timeout(PROCESS, shell.output()).await;
    let done = done.map_err(|_| failed(&format!("it has taken more than {} s", PROCESS.as_secs())))?;
    let done = done.map_err(|error| failed(&error))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        return Err(failed(&format!("{}: {said}", done.status)));
    }
    let answer = json(&String::from_utf8_lossy(&done.stdout), &what)?;
    if answer["Version"].as_u64() != Some(1) {
        return Err(unsupported(format!("{what} prints another version than 1")));
    }
    of_json(&answer, "SessionToken", &what)
}

/// By the agent of a container; `None` where there is none.
pub(super) async fn container(variables: &Variables) -> Result<Option<Issued>> {
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
            Some(token.map_err(|error| refused(format!("{what}: \"{file}\": {error}")))?)
        }
        None => variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_string),
    };
    if let Some(token) = token {
        request = request.header("authorization", token.trim());
    }
    let request = built(request, HttpRequestBody::empty())?;
    let answer = json(&asked(request, Reach::Host, &what).await?, &what)?;
    of_json(&answer, "Token", &what).map(Some)
}

/// By the metadata service of an instance, in its second version.
///
/// Errors: why not, in words.
pub(super) async fn instance(variables: &Variables) -> Result<Issued, String> {
    let endpoint = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let endpoint = endpoint.or_else(|| variables.get("AWS_METADATA_ENDPOINT")).unwrap_or(INSTANCE);
    let what = format!("the metadata service at {endpoint} has none");
    let asked = async |request: http::request::Builder| -> Result<String> {
        asked(built(request, HttpRequestBody::empty())?, Reach::Host, &what).await
    };
    let found = async {
        let request = http::Request::put(with_path(endpoint, "/latest/api/token"));
        let token = asked(request.header("x-aws-ec2-metadata-token-ttl-seconds", "600")).await;
        let get = |path: String| {
            let request = http::Request::get(with_path(endpoint, &path));
            match &token {
                Ok(token) => request.header("x-aws-ec2-metadata-token", token.trim()),
                Err(_) => request,
            }
        };
        if token.is_err() && !variables.says("AWS_IMDSV1_FALLBACK") {
            return Err(token.err().unwrap_or_else(|| refused(what.clone())));
        }
        let roles = asked(get(format!("/{INSTANCE_ROLES}/"))).await?;
        let role = roles.lines().next().unwrap_or_default().trim();
        let answer = json(&asked(get(format!("/{INSTANCE_ROLES}/{role}"))).await?, &what)?;
        of_json(&answer, "Token", &what)
    };
    found.await.map_err(|error| match error {
        Error::Unauthenticated { source, .. } => source.to_string(),
        error => error.to_string(),
    })
}

fn of_json(answer: &Value, token: &str, what: &str) -> Result<Issued> {
    let (Some(key_id), Some(secret)) = (answer["AccessKeyId"].as_str(), answer["SecretAccessKey"].as_str())
    else {
        let said = answer["Message"]
            .as_str()
            .or_else(|| answer["message"].as_str())
            .unwrap_or("the answer has no credentials");
        return Err(refused(format!("{what}: {said}")));
    };
    let mut issued = Issued::new(key_id, secret, answer[token].as_str());
    issued.expires = answer["Expiration"].as_str().and_then(time);
    Ok(issued)
}

/// The answer itself is not told: there may be keys in it.
fn json(text: &str, what: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|_| refused(format!("{what}: the answer is not JSON")))
}

/// RFC 3339, or ISO 8601 with an offset without a colon.
fn time(text: &str) -> Option<SystemTime> {
    let parsed = chrono::DateTime::parse_from_rfc3339(text);
    let parsed = parsed.or_else(|_| chrono::DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%z"));
    let seconds = u64::try_from(parsed.ok()?.timestamp()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn with_path(endpoint: &str, path: &str) -> String {
    format!("{}{path}", endpoint.trim_end_matches('/'))
}

fn built(request: http::request::Builder, body: HttpRequestBody) -> Result<HttpRequest> {
    request.body(body).map_err(|error| refused(format!("could not ask for credentials: {error}")))
}

/// How far away who is asked is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Host,
    Network,
}

/// A client of its own: what connections live in ends with who asks.
fn client(reach: Reach) -> Result<HttpClient> {
    let (connect, silence) = match reach {
        Reach::Host => (NEXT_TO, SILENCE.min(NEXT_TO * 2)),
        Reach::Network => (CONNECT, SILENCE),
    };
    let options = ClientOptions::new()
        .with_connect_timeout(connect)
        .with_timeout_disabled()
        // What is on this host is asked without TLS; others where their endpoint says so.
        .with_allow_http(true);
    let options = crate::s3::with_authorities(options, None)?;
    Ok(Transfer::client(ReqwestConnector::default().connect(&options)?, silence))
}

async fn asked(request: HttpRequest, reach: Reach, what: &str) -> Result<String> {
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
        let body = answer.into_body().bytes().await.map_err(|error| refused(format!("{what}: {error}")))?;
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
    Err(refused(format!("{what}: {last}")))
}
