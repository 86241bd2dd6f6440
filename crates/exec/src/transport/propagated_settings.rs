//! Propagation of `SET` values to the ranks.
//!
//! datafusion-distributed sends only its own settings to workers. All others that differ from DataFusion's
//! defaults are sent as one header of every plan, and a rank applies them before it decodes the plan.

use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::DistributedExt;

use harrier_interconnect::Codec;
use harrier_resources::statement_limits::Scope;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};
use url::Url;

use crate::transport::running_tasks;

const HEADER: HeaderName = HeaderName::from_static("x-harrier-settings");

const CODEC: HeaderName = HeaderName::from_static("x-harrier-codec");

/// The setting for the compression of rows between hosts.
pub const ROW_CODEC: &str = "harrier.interconnect_compression";

/// Settings that apply only in the client's process.
const LOCAL_PREFIXES: [&str; 5] =
    ["datafusion.catalog.", "datafusion.explain.", "distributed.", "s3.", "hdfs."];

static DEFAULTS: LazyLock<HashMap<String, Option<String>>> = LazyLock::new(|| {
    ConfigOptions::new().entries().into_iter().map(|entry| (entry.key, entry.value)).collect()
});

/// Prefix of store options sent along with settings.
const STORE: &str = "store.";

/// Names of store options in a session's URLs; the options are sent to ranks with every plan.
#[derive(Debug, Default)]
pub struct StoreProfiles(Mutex<BTreeSet<String>>);

impl StoreProfiles {
    /// Registers the options name of `url`, if it has one.
    pub fn add(&self, url: &Url) {
        if let Some(name) = harrier_storage::profile_of(url) {
            self.0.lock().insert(name.to_string());
        }
    }

    fn pairs(&self) -> Vec<(String, String)> {
        let names = self.0.lock();
        names
            .iter()
            .filter_map(|name| Some((format!("{STORE}{name}"), harrier_storage::export(name)?)))
            .collect()
    }
}

/// Encodes the settings of `config` that differ from DataFusion's defaults, and the options of its stores.
pub fn text(config: &SessionConfig) -> String {
    let pairs: Vec<(String, String)> = config
        .options()
        .entries()
        .into_iter()
        .filter(|entry| !LOCAL_PREFIXES.iter().any(|prefix| entry.key.starts_with(prefix)))
        .filter(|entry| DEFAULTS.get(&entry.key) != Some(&entry.value))
        .filter_map(|entry| Some((entry.key, entry.value?)))
        .collect();
    let stores = config.get_extension::<StoreProfiles>().map(|profiles| profiles.pairs()).unwrap_or_default();
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).extend_pairs(stores).finish()
}

/// The value of [`ROW_CODEC`] where plans are run: an extension of their settings, on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCodec(Option<Codec>);

impl RowCodec {
    /// By the codec's name; none for an unknown name.
    pub fn from_name(name: &str) -> Self {
        Self(Codec::from_name(name))
    }

    pub(crate) fn of(config: &SessionConfig) -> Option<Codec> {
        config.get_extension::<Self>().and_then(|codec| codec.0)
    }
}

/// Adds the settings of `config` and the limits of the statement to the headers that datafusion-distributed
/// sends, with the number under which the statement can be polled. Call it for every statement.
pub fn attach(config: &mut SessionConfig, run: Option<u64>) -> Result<()> {
    let header = |text: &str| {
        let mut value = HeaderValue::from_str(text)
            .map_err(|error| exec_datafusion_err!("settings as a header: {error}"))?;
        // It may contain keys of stores.
        value.set_sensitive(true);
        Ok::<_, DataFusionError>(value)
    };
    let mut headers = HeaderMap::new();
    let scope = Scope::of(config);
    match scope.as_ref().filter(|scope| !scope.limits.is_none()) {
        Some(scope) => {
            let mut fitting = config.clone();
            scope.limit_sort_reservation(&mut fitting);
            headers.insert(HEADER, header(&text(&fitting))?);
        }
        None => drop(headers.insert(HEADER, header(&text(config))?)),
    }
    if let Some(scope) = scope {
        scope.write(&mut headers);
    }
    // A plan service has no setting that begins with harrier., so the text contains none.
    if let Some(codec) = RowCodec::of(config) {
        headers.insert(CODEC, HeaderValue::from_static(codec.name()));
    }
    if let Some(run) = run {
        headers.insert(running_tasks::RUN, HeaderValue::from(run));
    }
    config.set_distributed_passthrough_headers(headers)
}

/// Applies the settings of [`attach`]. A setting unknown to this session is skipped: extensions differ by
/// session.
pub fn apply(headers: &HeaderMap, config: &mut SessionConfig) -> Result<()> {
    if let Some(name) = headers.get(CODEC).and_then(|name| name.to_str().ok()) {
        config.set_extension(Arc::new(RowCodec::from_name(name)));
    }
    match headers.get(HEADER) {
        Some(value) => apply_pairs(value.as_bytes(), config),
        None => Ok(()),
    }
}

/// Applies the settings of [`text`].
pub fn apply_text(text: &str, config: &mut SessionConfig) -> Result<()> {
    apply_pairs(text.as_bytes(), config)
}

fn apply_pairs(pairs: &[u8], config: &mut SessionConfig) -> Result<()> {
    let mut profiles = BTreeSet::new();
    for (key, value) in url::form_urlencoded::parse(pairs) {
        if key == ROW_CODEC {
            config.set_extension(Arc::new(RowCodec::from_name(&value)));
        }
        if let Some(name) = key.strip_prefix(STORE) {
            harrier_storage::adopt(name, &value);
            profiles.insert(name.to_string());
        }
        let known = key.split('.').next().is_some_and(|prefix| prefix == "datafusion")
            || config.options().extensions.iter().any(|(prefix, _)| key.starts_with(prefix));
        if known {
            config.options_mut().set(&key, &value)?;
        }
    }
    // This rank may send parts on to others.
    if !profiles.is_empty() {
        config.set_extension(Arc::new(StoreProfiles(Mutex::new(profiles))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_propagated() {
        let mut here = SessionConfig::new();
        here.options_mut().set("datafusion.execution.batch_size", "17").unwrap();
        here.options_mut().set("datafusion.execution.time_zone", "+02:00").unwrap();
        here.options_mut().set("datafusion.catalog.default_schema", "elsewhere").unwrap();
        attach(&mut here, None).unwrap();
        // The header map is private to datafusion-distributed; rebuild what it forwards.
        let text = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("datafusion.execution.batch_size", "17"),
                ("datafusion.execution.time_zone", "+02:00"),
            ])
            .finish();
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(&text).unwrap())]);
        let mut there = SessionConfig::new();
        apply(&headers, &mut there).unwrap();
        assert_eq!(there.batch_size(), 17);
        assert_eq!(there.options().execution.time_zone.as_deref(), Some("+02:00"));
    }

    #[test]
    fn store_options_are_propagated() {
        let options = harrier_storage::Options::default().with("secret_access_key", "hush");
        let place = Url::parse("s3://bucket/x").unwrap();
        let place = harrier_storage::with_options(&place, options).unwrap();
        let profiles = StoreProfiles::default();
        profiles.add(&place);
        let here = SessionConfig::new().with_extension(Arc::new(profiles));
        let sent = text(&here);
        assert!(sent.contains("hush"));
        let mut there = SessionConfig::new();
        apply_text(&sent, &mut there).unwrap();
        assert_eq!(text(&there), sent);
    }
}
