//! Descriptions of all settings, for the reference page.

use datafusion::config::ExtensionOptions;

use crate::error::sql_error;
use crate::settings::parameters;
use crate::settings::{HarrierSettings, SetBy, SettingFacts};

/// The `harrier.` settings and PostgreSQL's parameters, each sorted by name.
pub fn facts() -> (Vec<SettingFacts>, Vec<SettingFacts>) {
    let defaults = HarrierSettings::default();
    let own = defaults.entries().into_iter().map(|entry| SettingFacts {
        allowed: allowed_values(entry.key.trim_start_matches("harrier.")),
        by: SetBy::of(&entry.key),
        default: entry.value.unwrap_or_default(),
        description: entry.description.to_string(),
        name: entry.key,
    });
    let mut own: Vec<_> = own.collect();
    own.sort_by(|one, other| one.name.cmp(&other.name));
    (own, parameters::facts().collect())
}

/// The allowed values of a setting, from the hint of the error that its check gives for an invalid value.
fn allowed_values(key: &str) -> String {
    let error = HarrierSettings::default().set(key, "\u{1}").err();
    let hint = error.and_then(|error| sql_error(error).hint).unwrap_or_default();
    hint.trim_start_matches("available values: ").split(" is expected").next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_documents_its_values() {
        let (own, parameters) = facts();
        for facts in own.iter().chain(&parameters) {
            assert_eq!(facts.allowed.is_empty(), facts.by == SetBy::Nobody, "{facts:?}");
            assert!(!facts.description.is_empty(), "{facts:?}");
        }
    }
}
