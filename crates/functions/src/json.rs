//! JSON with PostgreSQL's semantics: texts of type `json`, which keep their input form, and of `jsonb`, which
//! are normalized.
//!
//! ```text
//! json    '{"b":1,  "a":[1.50]}'   ──►  the same text, checked
//! jsonb   '{"b":1,  "a":[1.50]}'   ──►  '{"a": [1.50], "b": 1}'     keys by length and bytes, the last of equal keys, numbers as numeric
//! ```
//!
//! Both are text columns; the field metadata under [`TYPE_KEY`] distinguishes them. `serde_json` validates
//! texts and parses strings, without recursion; valid JSON is walked by [`scan`], which keeps numbers and
//! duplicate keys as they are written. Values of `jsonb` are parsed into trees ([`value`]), no deeper than
//! [`DEPTH_MAX`].
//!
//! Memory bound: a function returns a small multiple of its input, and reserves more than a few mebibytes in
//! the memory account ([`texts`]). The digits expanded from exponents are bounded per value ([`value`]).
//!
//! Errors: invalid JSON (22P02), nested too deeply (54001), or a number with more digits than numeric
//! (22003).

mod build;
mod change;
pub mod floats;
mod functions;
mod get;
mod order;
mod scan;
mod texts;
mod value;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

pub use functions::{by_name, callable, functions};

/// The metadata key of a field for its PostgreSQL type name, the same as in `harrier_pgcatalog`.
pub const TYPE_KEY: &str = "pg.type";

/// Maximum nesting of arrays and objects in trees: writing one takes stack for each level. PostgreSQL allows
/// a few thousand.
pub const DEPTH_MAX: usize = 500;

/// The two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Json,
    Jsonb,
}

impl Kind {
    /// PostgreSQL's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonb => "jsonb",
        }
    }

    /// The type of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Json, Self::Jsonb].into_iter().find(|kind| kind.name() == name)
    }

    /// The JSON type of a field, by its metadata.
    pub fn of_field(field: &Field) -> Option<Self> {
        match field.data_type().is_string() {
            true => field.metadata().get(TYPE_KEY).and_then(|name| Self::of_name(name)),
            false => None,
        }
    }

    /// A field of this type.
    pub fn field(self, name: &str) -> FieldRef {
        let metadata = HashMap::from([(TYPE_KEY.to_string(), self.name().to_string())]);
        Arc::new(Field::new(name, DataType::Utf8View, true).with_metadata(metadata))
    }
}

/// Validates a text as a value of a type, and normalizes `jsonb`.
///
/// Errors: it is invalid (22P02, 22003, 54001).
pub fn normal(kind: Kind, text: &str) -> Result<Cow<'_, str>> {
    match kind {
        Kind::Json => scan::check(text).map(|()| Cow::Borrowed(text)),
        Kind::Jsonb => Ok(Cow::Owned(value::Value::parse(text)?.text())),
    }
}

fn invalid(detail: Option<String>) -> DataFusionError {
    let error = SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json");
    match detail {
        Some(detail) => error.with_detail(detail).into_datafusion(),
        None => error.into_datafusion(),
    }
}

fn too_deep() -> DataFusionError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_detail(format!("JSON is nested more than {DEPTH_MAX} levels deep"))
        .into_datafusion()
}

fn wrong(message: impl Into<String>) -> DataFusionError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
}
