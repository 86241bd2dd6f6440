//! What ranks were told to do, as facts that have to agree, and a difference between two ranks.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A fact of a rank's configuration (arguments, working folder): it must agree on all ranks, unless each is
/// meant to work by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationFact {
    /// The name of the fact, as in "started with other …".
    pub(crate) what: String,
    pub(crate) digest: u64,
    /// The beginning of its value, for messages.
    pub(crate) preview: String,
    /// It may differ between hosts.
    pub(crate) is_per_host: bool,
}

/// Name of the fact that a rank follows rank 0.
pub(crate) const FOLLOWER: &str = "nothing";

/// Characters of a value shown in messages.
const PREVIEW_CHARACTERS_MAX: usize = 60;

/// Separator of the fields of a fact.
const FIELD_SEPARATOR: char = '\u{1f}';

impl ConfigurationFact {
    /// `value` is shown in part if ranks differ in it.
    pub fn new(what: &str, value: &str) -> ConfigurationFact {
        let mut preview: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Some((at, _)) = preview.char_indices().nth(PREVIEW_CHARACTERS_MAX) {
            preview.truncate(at);
            preview.push('…');
        }
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        ConfigurationFact { what: what.to_string(), digest: hasher.finish(), preview, is_per_host: false }
    }

    /// A fact that may contain secrets: messages only say that it differs.
    pub fn secret(what: &str, value: &str) -> ConfigurationFact {
        ConfigurationFact { preview: String::new(), ..ConfigurationFact::new(what, value) }
    }

    /// A fact that may differ between hosts.
    pub fn per_host(what: &str, value: &str) -> ConfigurationFact {
        ConfigurationFact { is_per_host: true, ..ConfigurationFact::new(what, value) }
    }

    /// The fact of a rank that follows rank 0: it agrees with all others.
    pub fn follower() -> ConfigurationFact {
        ConfigurationFact::new(FOLLOWER, "")
    }

    pub(crate) fn encode(&self) -> String {
        let ConfigurationFact { what, digest, preview, is_per_host } = self;
        [what.clone(), digest.to_string(), preview.clone(), u8::from(*is_per_host).to_string()]
            .join(&FIELD_SEPARATOR.to_string())
    }

    pub(crate) fn decode(text: &str) -> Option<ConfigurationFact> {
        let mut fields = text.split(FIELD_SEPARATOR);
        let mut next = || fields.next();
        let (what, digest, preview, is_per_host) = (next()?, next()?, next()?, next()?);
        Some(ConfigurationFact {
            what: what.to_string(),
            digest: digest.parse().ok()?,
            preview: preview.to_string(),
            is_per_host: is_per_host == "1",
        })
    }
}

/// A difference in the configuration of two ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub rank: usize,
    pub host: String,
    /// The name of the differing fact.
    pub what: String,
    /// The beginning of that rank's value; empty if it is hidden.
    pub theirs: String,
    /// The first rank that differs, and its value.
    pub other: usize,
    pub others: String,
}
