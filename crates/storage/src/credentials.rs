//! AWS credential provider chain, in the order of AWS's own tools.
//!
//! | | source | refreshed |
//! |---|---|---|
//! | 1 | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | never |
//! | 2 | the profile `AWS_PROFILE`, or `default`, of `~/.aws/credentials` and `~/.aws/config` (`AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE`): keys, a role with `source_profile`, `credential_source` or `web_identity_token_file`, SSO, `credential_process` | keys after 10 s, others before they expire |
//! | 3 | `AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN` | before they expire |
//! | 4 | `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `…_FULL_URI` | before they expire |
//! | 5 | the instance's role, by its metadata service in version 2, unless `AWS_EC2_METADATA_DISABLED` | before they expire |
//!
//! A source that is configured and fails is an error; later sources are not tried. Having no source is an
//! error as well: requests are unsigned only with `skip_signature`.
//!
//! Invariants: no secret is in any error or `Debug`. A process has one [`Chain`] per environment, so that all
//! stores share one request to a service. Cancel-safe: the next caller asks again.
//!
//! Errors: [`Error::Unauthenticated`] names the source that failed, the reason, and the remedy;
//! [`Error::NotSupported`]: a profile needs user interaction (a device code).

mod config_files;
mod services;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error, Result};
use parking_lot::Mutex;

pub(crate) use config_files::Settings;
use config_files::{ConfigFiles, Section};

/// Temporary credentials are refreshed this long before they expire. A request is signed once for all its
/// retries.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// The shortest interval between refreshes, if a source issues credentials that expire sooner.
const RENEWED_AFTER: Duration = Duration::from_secs(10);
/// Keys from a file are reloaded after this time: login tools update them there.
const FILE_READ_AFTER: Duration = Duration::from_secs(10);
/// An empty file.
const NO_FILE: &str = "/dev/null";
/// The longest chain of profiles that refer to each other.
const PROFILES_MAX: usize = 8;

/// The environment variables of this process.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(crate) fn of_process() -> Self {
        let is_used = |name: &str| name.starts_with("AWS_") || name == "HOME";
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, value)| is_used(name) && !value.is_empty())
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Replaces all variables of credential sources by `sources`: the other sources are not tried.
    pub(crate) fn with_sources(mut self, sources: Vec<(String, String)>) -> Self {
        let others = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"];
        let begin = ["AWS_WEB_IDENTITY", "AWS_ROLE", "AWS_CONTAINER_CREDENTIALS"];
        self.0.retain(|name, _| {
            !others.contains(&name.as_str()) && !begin.iter().any(|begin| name.starts_with(begin))
        });
        let none = || NO_FILE.to_string();
        self.0.insert("AWS_CONFIG_FILE".to_string(), none());
        self.0.insert("AWS_SHARED_CREDENTIALS_FILE".to_string(), none());
        self.0.extend(sources);
        self
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The path in a variable, or a default one in the home directory.
    fn file(&self, name: &str, otherwise: &str) -> Option<PathBuf> {
        match self.get(name) {
            Some(path) => Some(self.expand_home(path)),
            None => Some(PathBuf::from(self.get("HOME")?).join(otherwise)),
        }
    }

    fn expand_home(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.get("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => PathBuf::from(path),
        }
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Credentials and their expiry.
#[derive(Clone)]
struct IssuedCredentials {
    credential: Arc<AwsCredential>,
    /// `None`: they do not expire.
    expires: Option<SystemTime>,
    /// They are refreshed after this, whatever their expiry.
    looked_up_after: Option<Duration>,
}

impl IssuedCredentials {
    fn new(key_id: &str, secret_key: &str, token: Option<&str>) -> Self {
        let (key_id, secret_key, token) =
            (key_id.to_string(), secret_key.to_string(), token.map(str::to_string));
        let credential = Arc::new(AwsCredential { key_id, secret_key, token });
        Self { credential, expires: None, looked_up_after: None }
    }
}

#[derive(Clone)]
struct CachedCredentials {
    issued: IssuedCredentials,
    since: SystemTime,
}

impl CachedCredentials {
    fn is_fresh(&self, now: SystemTime) -> bool {
        // A clock that was set back expires them.
        let age = now.duration_since(self.since).unwrap_or(Duration::MAX);
        let is_read = self.issued.looked_up_after.is_none_or(|after| age < after);
        let lasts = |from: Duration| self.issued.expires.is_none_or(|expires| now + from < expires);
        is_read && (lasts(RENEWED_BEFORE) || lasts(Duration::ZERO) && age < RENEWED_AFTER)
    }
}

/// Provides the credentials of the first source that has any, cached.
pub(crate) struct Chain {
    variables: Variables,
    cached: tokio::sync::Mutex<Option<CachedCredentials>>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({:?})", self.variables)
    }
}

impl Chain {
    /// Returns the chain that the process shares for these variables.
    pub(crate) fn shared_chain(variables: &Variables) -> Arc<Self> {
        static SHARED: LazyLock<Mutex<BTreeMap<Variables, Arc<Chain>>>> = LazyLock::new(Mutex::default);
        let mut known = SHARED.lock();
        let chain = known.entry(variables.clone()).or_insert_with(|| Arc::new(Self::new(variables.clone())));
        Arc::clone(chain)
    }

    fn new(variables: Variables) -> Self {
        Self { variables, cached: tokio::sync::Mutex::default() }
    }

    async fn load(&self) -> Result<IssuedCredentials> {
        let variables = &self.variables;
        if let Some(issued) = environment_credentials(variables)? {
            return Ok(issued);
        }
        let files = ConfigFiles::load(variables)?;
        if let Some(issued) = self.profile_credentials(&files).await? {
            return Ok(issued);
        }
        let region = files.region(variables);
        if let Some(file) = variables.get("AWS_WEB_IDENTITY_TOKEN_FILE") {
            let role = variables.get("AWS_ROLE_ARN").ok_or_else(|| {
                credential_error("AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN".to_string())
            })?;
            let session = variables.get("AWS_ROLE_SESSION_NAME");
            return services::web_identity(variables, &region, file, role, session).await;
        }
        if let Some(issued) = services::container(variables).await? {
            return Ok(issued);
        }
        if !variables.is_true("AWS_EC2_METADATA_DISABLED") {
            return services::instance(variables).await.map_err(|why| no_credentials(&files, &why));
        }
        Err(no_credentials(&files, "AWS_EC2_METADATA_DISABLED is set"))
    }

    /// The credentials of the configured profile; `None`: it has none.
    async fn profile_credentials(&self, files: &ConfigFiles) -> Result<Option<IssuedCredentials>> {
        let wanted = self.variables.get("AWS_PROFILE");
        let name = wanted.unwrap_or("default");
        let Some(mut profile) = files.profile(name) else {
            return match wanted {
                Some(name) => Err(credential_error(format!("{} have no profile \"{name}\"", files.names()))),
                None => Ok(None),
            };
        };
        // From the requested role down to the profile with credentials.
        let mut roles: Vec<(&str, &Section)> = Vec::new();
        let mut at = name;
        let mut issued = loop {
            let Some(role) = profile.get("role_arn") else {
                match self.section_credentials(files, at, profile).await? {
                    Some(issued) => break issued,
                    None if roles.is_empty() && wanted.is_none() => return Ok(None),
                    None => {
                        return Err(credential_error(format!(
                            "profile \"{at}\" of {} has no credentials",
                            files.names()
                        )));
                    }
                }
            };
            if profile.get("mfa_serial").is_some() {
                return Err(unsupported_error(format!(
                    "profile \"{at}\" wants a code of a device (mfa_serial); have a tool write temporary keys into another profile"
                )));
            }
            if let Some(file) = profile.get("web_identity_token_file") {
                let region =
                    profile.get("region").map_or_else(|| files.region(&self.variables), str::to_string);
                let session = profile.get("role_session_name");
                break services::web_identity(&self.variables, &region, file, role, session).await?;
            }
            roles.push((role, profile));
            if roles.len() > PROFILES_MAX {
                return Err(credential_error(format!(
                    "more than {PROFILES_MAX} profiles refer to each other from \"{name}\""
                )));
            }
            match (profile.get("source_profile"), profile.get("credential_source")) {
                // Its own keys, or those of a profile with another source.
                (Some(source), _) if source == at => {
                    break self.section_credentials(files, at, profile).await?.ok_or_else(|| {
                        credential_error(format!(
                            "profile \"{at}\" is its own source_profile and has no keys"
                        ))
                    })?;
                }
                (Some(source), _) => {
                    profile = files.profile(source).ok_or_else(|| {
                        credential_error(format!(
                            "source_profile \"{source}\" of profile \"{at}\" is in none of {}",
                            files.names()
                        ))
                    })?;
                    at = source;
                }
                (None, Some(source)) => break self.source_credentials(at, source).await?,
                (None, None) => {
                    return Err(credential_error(format!(
                        "profile \"{at}\" has a role_arn and neither source_profile, credential_source nor web_identity_token_file"
                    )));
                }
            }
        };
        for (role, profile) in roles.into_iter().rev() {
            let region = profile.get("region").map_or_else(|| files.region(&self.variables), str::to_string);
            let assumed = services::AssumeRole {
                role,
                session: profile.get("role_session_name"),
                external_id: profile.get("external_id"),
                duration_seconds: profile.get("duration_seconds"),
            };
            issued = services::assume_role(&self.variables, &region, &assumed, &issued.credential).await?;
        }
        Ok(Some(issued))
    }

    /// Credentials of a profile itself, without its role.
    async fn section_credentials(
        &self,
        files: &ConfigFiles,
        name: &str,
        profile: &Section,
    ) -> Result<Option<IssuedCredentials>> {
        if profile.get("sso_account_id").is_some() || profile.get("sso_role_name").is_some() {
            return services::sso(&self.variables, files, name, profile).await.map(Some);
        }
        match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
            (Some(key_id), Some(secret)) => {
                let mut issued = IssuedCredentials::new(key_id, secret, profile.get("aws_session_token"));
                issued.looked_up_after = Some(FILE_READ_AFTER);
                return Ok(Some(issued));
            }
            (None, None) => {}
            _ => {
                return Err(credential_error(format!(
                    "profile \"{name}\" of {} has one of aws_access_key_id and aws_secret_access_key alone",
                    files.names()
                )));
            }
        }
        match profile.get("credential_process") {
            Some(command) => services::process(name, command).await.map(Some),
            None => Ok(None),
        }
    }

    async fn source_credentials(&self, profile: &str, source: &str) -> Result<IssuedCredentials> {
        let none = || {
            credential_error(format!(
                "credential_source {source} of profile \"{profile}\" has no credentials"
            ))
        };
        match source {
            "Environment" => environment_credentials(&self.variables)?.ok_or_else(none),
            "EcsContainer" => services::container(&self.variables).await?.ok_or_else(none),
            "Ec2InstanceMetadata" => services::instance(&self.variables).await.map_err(credential_error),
            _ => Err(credential_error(format!(
                "profile \"{profile}\" has an unknown credential_source {source}"
            ))),
        }
    }
}

#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let mut cached = self.cached.lock().await;
        let now = SystemTime::now();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.is_fresh(now)) {
            return Ok(Arc::clone(&cached.issued.credential));
        }
        match self.load().await {
            Ok(issued) => {
                let credential = Arc::clone(&issued.credential);
                *cached = Some(CachedCredentials { issued, since: now });
                Ok(credential)
            }
            // The service is temporarily unavailable: the old credentials are valid until they expire.
            Err(error) => match &*cached {
                Some(old) if old.issued.expires.is_some_and(|expires| now < expires) => {
                    tracing::warn!(%error, "credentials are not renewed");
                    Ok(Arc::clone(&old.issued.credential))
                }
                _ => Err(error),
            },
        }
    }
}

fn environment_credentials(variables: &Variables) -> Result<Option<IssuedCredentials>> {
    match (variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(key_id), Some(secret)) => {
            Ok(Some(IssuedCredentials::new(key_id, secret, variables.get("AWS_SESSION_TOKEN"))))
        }
        (Some(_), None) => {
            Err(credential_error("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY".to_string()))
        }
        (None, Some(_)) => {
            Err(credential_error("AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID".to_string()))
        }
        (None, None) => Ok(None),
    }
}

fn credential_error(what: String) -> Error {
    Error::Unauthenticated { path: String::new(), source: what.into() }
}

fn unsupported_error(what: String) -> Error {
    Error::NotSupported { source: what.into() }
}

fn no_credentials(files: &ConfigFiles, instance: &str) -> Error {
    credential_error(format!(
        "there are no credentials to sign requests with: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, {} have no default profile with any, there is no web \
         identity, no container's and no instance's role ({instance}); AWS_SKIP_SIGNATURE = true, or s3.skip_signature, reads public buckets without",
        files.names()
    ))
}

#[cfg(test)]
mod tests;
