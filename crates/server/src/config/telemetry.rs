//! Value types of the section `telemetry`.

use std::fmt;

use serde::Deserialize;
use toml::Value;

use super::values::{Kind, string, toml_string};
use crate::telemetry;

/// The URL of a collector.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Endpoint(pub reqwest::Url);

impl TryFrom<Value> for Endpoint {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        telemetry::endpoint(&string(value, "a URL")?).map(Self)
    }
}

impl Kind for Endpoint {
    fn allowed_values() -> String {
        "a URL of HTTP in quotes, such as \"http://127.0.0.1:4318\"".to_string()
    }

    fn to_toml(&self) -> String {
        toml_string(self.0.as_str())
    }
}

/// `name: value` of a header; `Debug` hides the value, which may be a secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct HeaderLine(pub String);

impl fmt::Debug for HeaderLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: …", self.0.split(':').next().unwrap_or_default())
    }
}

impl TryFrom<Value> for HeaderLine {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let line = match value {
            Value::String(line) => line,
            _ => return Err("a header is a text in quotes".to_string()),
        };
        match telemetry::headers(std::slice::from_ref(&line)) {
            Ok(_) => Ok(Self(line)),
            Err(_) => Err("a header is not of the form \"name: value\"".to_string()),
        }
    }
}

impl Kind for HeaderLine {
    fn allowed_values() -> String {
        "a header in quotes, such as \"Authorization: Bearer x\"".to_string()
    }

    /// Without its value, which is shown to people.
    fn to_toml(&self) -> String {
        toml_string(&format!("{self:?}"))
    }
}
