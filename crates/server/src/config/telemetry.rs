//! Values of the section `telemetry`.

use std::fmt;

use serde::Deserialize;
use toml::Value;

use super::values::{Kind, quoted, string};
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
    fn allowed() -> String {
        "a URL of HTTP in quotes, such as \"http://127.0.0.1:4318\"".to_string()
    }

    fn written(&self) -> String {
        quoted(self.0.as_str())
    }
}

/// `name: value` of a header; its value may be a secret, and is not shown by `Debug`.
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
    fn allowed() -> String {
        "a header in quotes, such as \"Authorization: Bearer x\"".to_string()
    }

    /// Without its value: people look at it.
    fn written(&self) -> String {
        quoted(&format!("{self:?}"))
    }
}
