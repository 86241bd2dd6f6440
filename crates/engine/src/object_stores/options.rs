//! Options for opening object stores, in addition to the environment: `OPTIONS ('s3.endpoint' '…')` of a
//! table, else `SET s3.endpoint = '…'`.
//!
//! Option names begin with `s3.` or `hdfs.`; tables also accept `aws.`, and keys of Hadoop's configuration as
//! they are (`dfs.replication`). A location named in a statement gets the present options of its session and
//! its table; a table keeps them when the session's change. Warehouse tables are opened by the environment
//! alone, so that other sessions find them too.
//!
//! Values that are or may be secrets are never shown, not by SHOW either.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;

use datafusion::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionConfig;
use harrier_error::{SqlError, SqlState};
use harrier_exec::StoreProfiles;
use harrier_sqlstate::IntoDataFusionError;
use harrier_storage::Options;
use url::Url;

/// Placeholder for a hidden value.
const HIDDEN: &str = "********";

/// Options of all stores that neither are nor can hold a secret; [`StoreKind::is_shown`] knows those of each
/// kind.
const SHOWN: [&str; 4] = ["connect_seconds", "request_seconds", "retry_seconds", "retries"];

/// Prefixes of Hadoop configuration keys.
const HADOOP: [&str; 4] = ["dfs.", "fs.", "hadoop.", "ipc."];

/// A kind of store.
pub(crate) trait StoreKind: 'static + Send + Sync + std::fmt::Debug {
    const PREFIX: &'static str;

    /// Whether an option specific to this kind neither is nor can hold a secret. All others are hidden, known
    /// or not.
    fn is_shown(key: &str) -> bool;
}

#[derive(Debug)]
pub(crate) struct S3;

#[derive(Debug)]
pub(crate) struct Hdfs;

impl StoreKind for S3 {
    const PREFIX: &'static str = "s3";

    fn is_shown(key: &str) -> bool {
        matches!(key, "endpoint" | "region" | "allow_http" | "virtual_hosted_style_request")
    }
}

impl StoreKind for Hdfs {
    const PREFIX: &'static str = "hdfs";

    /// Options by which HDFS is found and written. Other Hadoop keys may be passwords: of key stores, of
    /// other systems.
    fn is_shown(key: &str) -> bool {
        const NAMES: [&str; 9] = [
            "dfs.nameservices",
            "dfs.replication",
            "dfs.blocksize",
            "dfs.bytes-per-checksum",
            "dfs.checksum.type",
            "dfs.data.transfer.protection",
            "dfs.user.home.dir.prefix",
            "fs.defaultfs",
            "hadoop.security.authentication",
        ];
        const PREFIXES: [&str; 4] = [
            "dfs.ha.namenodes.",
            "dfs.namenode.rpc-address.",
            "dfs.client.failover.",
            "dfs.client.block.write.",
        ];
        NAMES.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// A session's SET options for one kind of store.
#[derive(Debug)]
struct StoreSettings<K>(Options, PhantomData<K>);

impl<K> Default for StoreSettings<K> {
    fn default() -> Self {
        Self(Options::default(), PhantomData)
    }
}

impl<K> Clone for StoreSettings<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<K: StoreKind> ConfigExtension for StoreSettings<K> {
    const PREFIX: &'static str = K::PREFIX;
}

impl<K: StoreKind> ExtensionOptions for StoreSettings<K> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let Some(name) = harrier_storage::option_name(K::PREFIX, key) else {
            let message = format!("unrecognized configuration parameter \"{}.{key}\"", K::PREFIX);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message).into_datafusion());
        };
        self.0 = std::mem::take(&mut self.0).with(&name, value);
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let shown = |key: &str, value: &str| match SHOWN.contains(&key) || K::is_shown(key) {
            true => value.to_string(),
            false => HIDDEN.to_string(),
        };
        let entry = |(key, value): (&str, &str)| ConfigEntry {
            key: format!("{}.{key}", K::PREFIX),
            value: Some(shown(key, value)),
            description: "What stores that statements name are opened with",
        };
        self.0.iter().map(entry).collect()
    }
}

/// Registers the options in a session configuration.
pub(crate) fn declare(config: &mut SessionConfig) {
    let extensions = &mut config.options_mut().extensions;
    extensions.insert(StoreSettings::<S3>::default());
    extensions.insert(StoreSettings::<Hdfs>::default());
}

/// Whether a setting is a store option.
pub(crate) fn is_option(name: &str) -> bool {
    let prefix = name.split_once('.').map(|(prefix, _)| prefix);
    prefix.is_some_and(|prefix| prefix == S3::PREFIX || prefix == Hdfs::PREFIX)
}

/// Resets one option, or all of them, to its value in `initial`.
///
/// Errors: no such option (42704).
pub(crate) fn reset(options: &mut ConfigOptions, initial: &ConfigOptions, name: Option<&str>) -> Result<()> {
    reset_kind::<S3>(options, initial, name)?;
    reset_kind::<Hdfs>(options, initial, name)
}

fn reset_kind<K: StoreKind>(
    options: &mut ConfigOptions,
    initial: &ConfigOptions,
    name: Option<&str>,
) -> Result<()> {
    let initial = of_session::<K>(initial);
    let settings = match name {
        None => initial,
        Some(name) => {
            let Some(key) = name.strip_prefix(K::PREFIX).and_then(|rest| rest.strip_prefix('.')) else {
                return Ok(());
            };
            let value = initial.iter().find(|(known, _)| *known == key).map(|(_, value)| value.to_string());
            let mut settings = StoreSettings::<K>(of_session::<K>(options), PhantomData);
            // `set` checks the name.
            settings.set(key, value.as_deref().unwrap_or_default())?;
            if value.is_none() {
                settings.0.remove(&harrier_storage::option_name(K::PREFIX, key).unwrap_or_default());
            }
            settings.0
        }
    };
    options.extensions.insert(StoreSettings::<K>(settings, PhantomData));
    Ok(())
}

fn of_session<K: StoreKind>(options: &ConfigOptions) -> Options {
    options.extensions.get::<StoreSettings<K>>().map(|settings| settings.0.clone()).unwrap_or_default()
}

/// The store options of CREATE EXTERNAL TABLE.
#[derive(Debug, Default)]
pub(crate) struct TableOptions {
    s3: Options,
    hdfs: Options,
}

impl TableOptions {
    /// Removes the store options from a table's options and returns them.
    ///
    /// Errors: an unknown store option (22023).
    pub(crate) fn take(options: &mut HashMap<String, String>) -> Result<Self> {
        let mut taken = Self::default();
        let mut unknown = None;
        options.retain(|key, value| {
            let lower = key.to_ascii_lowercase();
            let after = |prefix: &str| lower.strip_prefix(prefix).map(str::to_string);
            if let Some(name) = after("s3.").or_else(|| after("aws.")) {
                match harrier_storage::option_name(S3::PREFIX, &name) {
                    Some(name) => taken.s3 = std::mem::take(&mut taken.s3).with(&name, value.as_str()),
                    None => unknown = Some(key.clone()),
                }
                return false;
            }
            let is_hadoop = HADOOP.iter().any(|prefix| lower.starts_with(prefix));
            let Some(name) = after("hdfs.").or_else(|| is_hadoop.then(|| lower.clone())) else { return true };
            match harrier_storage::option_name(Hdfs::PREFIX, &name) {
                Some(name) => taken.hdfs = std::mem::take(&mut taken.hdfs).with(&name, value.as_str()),
                None => unknown = Some(key.clone()),
            }
            false
        });
        match unknown {
            None => Ok(taken),
            Some(key) => {
                let message = format!("unrecognized option \"{key}\"");
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .with_hint("s3.endpoint, s3.region, s3.access_key_id, s3.secret_access_key, s3.session_token, s3.allow_http and others are known")
                    .into_datafusion())
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.s3.is_empty() && self.hdfs.is_empty()
    }
}

/// The location named by a statement, with its store's options as a profile name in the URL. The profile is
/// registered for distribution to the ranks.
///
/// Errors: credentials in the URL, or options for another kind of store (22023).
pub(crate) fn location_with_options(
    state: &SessionState,
    location: String,
    table: &TableOptions,
) -> Result<String> {
    let scheme = location.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let options = match scheme.as_deref() {
        Some("s3" | "s3a") if table.hdfs.is_empty() => {
            of_session::<S3>(state.config_options()).merge(&table.s3)
        }
        Some("hdfs") if table.s3.is_empty() => of_session::<Hdfs>(state.config_options()).merge(&table.hdfs),
        _ if !table.is_empty() => {
            let message = format!("options of a store do not fit \"{location}\"");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("s3. begins options for s3://…, hdfs. those for hdfs://…")
                .into_datafusion());
        }
        _ => return Ok(location),
    };
    let wrong = |error: &dyn std::fmt::Display| {
        let message = format!("invalid address of a store: {error}");
        harrier_sqlstate::external(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
    };
    let url = Url::parse(&location).map_err(|error| wrong(&error))?;
    let names_user = scheme.as_deref() == Some("hdfs") && harrier_storage::profile_of(&url).is_none();
    if options.is_empty() && (url.username().is_empty() || names_user) {
        // As written: a URL would escape its wildcards and blanks.
        return Ok(location);
    }
    let named = harrier_storage::with_options(&url, options).map_err(|error| wrong(&error))?;
    if let Some(profiles) = state.config().get_extension::<StoreProfiles>() {
        profiles.add(&named);
    }
    let Some(profile) = harrier_storage::profile_of(&named) else { return Ok(location) };
    let (scheme, rest) = location.split_once("://").unwrap_or_default();
    Ok(format!("{scheme}://{profile}@{rest}"))
}

/// Registers a session's store options for distribution to the ranks. Called before planning, because the
/// options travel with the plan and are serialized first.
pub(crate) fn announce(config: &SessionConfig) {
    let Some(profiles) = config.get_extension::<StoreProfiles>() else { return };
    let named = [
        ("s3://any", of_session::<S3>(config.options())),
        ("hdfs://any", of_session::<Hdfs>(config.options())),
    ];
    for (place, options) in named {
        if let Ok(place) = Url::parse(place)
            && let Ok(named) = harrier_storage::with_options(&place, options)
        {
            profiles.add(&named);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn take(pairs: &[(&str, &str)]) -> (Result<TableOptions>, HashMap<String, String>) {
        let mut options = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        (TableOptions::take(&mut options), options)
    }

    #[test]
    fn store_options_are_recognized() {
        let (options, others) = take(&[
            ("aws.Region", "here"),
            ("s3.retries", "1"),
            ("dfs.replication", "1"),
            ("hdfs.request_seconds", "2"),
            ("format.delimiter", ";"),
        ]);
        let options = options.unwrap();
        assert!(options.s3 == Options::default().with("region", "here").with("retries", "1"));
        assert!(options.hdfs == Options::default().with("dfs.replication", "1").with("request_seconds", "2"));
        assert_eq!(others.keys().collect::<Vec<_>>(), ["format.delimiter"]);
        let error = take(&[("s3.nosuch", "1")]).0.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::INVALID_PARAMETER_VALUE);
    }

    #[test]
    fn settings_are_checked_hidden_and_reset() {
        let mut config = SessionConfig::new();
        declare(&mut config);
        let initial = config.clone();
        let options = config.options_mut();
        options.set("s3.secret_access_key", "hush").unwrap();
        options.set("s3.endpoint", "http://here").unwrap();
        options.set("hdfs.dfs.replication", "1").unwrap();
        assert!(options.set("s3.nosuch", "1").is_err());
        assert!(options.set("s3.lease_seconds", "1").is_err());
        // Two spellings of one option.
        options.set("s3.aws_endpoint_url", "http://elsewhere").unwrap();
        options.set("s3.endpoint", "http://here").unwrap();
        let value = |options: &ConfigOptions, name: &str| {
            options.entries().into_iter().find(|entry| entry.key == name).and_then(|entry| entry.value)
        };
        assert_eq!(value(options, "s3.secret_access_key").as_deref(), Some(HIDDEN));
        assert_eq!(value(options, "s3.endpoint").as_deref(), Some("http://here"));
        assert_eq!(value(options, "hdfs.dfs.replication").as_deref(), Some("1"));
        for (key, is_shown) in [
            ("retries", true),
            ("dfs.ha.namenodes.cluster", true),
            ("dfs.namenode.rpc-address.cluster.a", true),
            ("ssl.client.keystore.password", false),
            ("fs.s3a.secret.key", false),
            ("dfs.client.failover", false),
        ] {
            let name = format!("hdfs.{key}");
            options.set(&name, "hush").unwrap();
            let expected = if is_shown { "hush" } else { HIDDEN };
            assert_eq!(value(options, &name).as_deref(), Some(expected), "{name}");
        }
        let kept = of_session::<Hdfs>(options);
        assert!(kept.iter().any(|pair| pair == ("ssl.client.keystore.password", "hush")));
        reset(options, initial.options(), Some("s3.endpoint")).unwrap();
        assert_eq!(value(options, "s3.endpoint"), None);
        assert!(of_session::<S3>(options) == Options::default().with("secret_access_key", "hush"));
        assert!(reset(options, initial.options(), Some("s3.nosuch")).is_err());
        reset(options, initial.options(), None).unwrap();
        assert!(of_session::<S3>(options).is_empty() && of_session::<Hdfs>(options).is_empty());
    }
}
