//! JSON as PostgreSQL has it: texts of type `json`, which stay as they were written, and of `jsonb`, which
//! have one form for one value.
//!
//! ```text
//! json    '{"b":1,  "a":[1.50]}'   ──►  the same text, checked
//! jsonb   '{"b":1,  "a":[1.50]}'   ──►  '{"a": [1.50], "b": 1}'     keys by length and bytes, the last of equal keys, numbers as numeric
//! ```
//!
//! Both are columns of texts; which one it is stands in the metadata of their fields under [`TYPE_KEY`].
//! `serde_json` says whether a text is JSON and what its strings are, and does so without recursion; what it
//! has found to be JSON is walked by [`scan`], which keeps numbers and duplicate keys as they are written.
//! Values of `jsonb` are made of trees ([`value`]), no deeper than [`DEPTH_MAX`].
//!
//! Memory bound: a function gives back a small multiple of what it is given, and has the account of memory
//! asked for what is more than a few mebibytes ([`texts`]). The digits that exponents stand for are bounded
//! in each value ([`value`]).
//!
//! Errors: a text is no JSON (22P02), is nested too deeply (54001), or a number has more digits than numeric
//! (22003).

mod build;
mod change;
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

pub use functions::{callable, functions, named};

/// The key of a field's metadata whose value is the name of a type in PostgreSQL, the same as in
/// `harrier_pgcatalog`.
pub const TYPE_KEY: &str = "pg.type";

/// Arrays and objects within each other at most, in what is made a tree: writing one down takes stack for
/// each. PostgreSQL has room for a few thousand.
pub const DEPTH_MAX: usize = 500;

/// The two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Json,
    Jsonb,
}

impl Kind {
    /// As PostgreSQL calls it.
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

    /// What a field's metadata says its texts are.
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

/// A text as a value of a type.
///
/// Errors: it is none (22P02, 22003, 54001).
pub fn normal(kind: Kind, text: &str) -> Result<Cow<'_, str>> {
    match kind {
        Kind::Json => scan::check(text).map(|()| Cow::Borrowed(text)),
        Kind::Jsonb => Ok(Cow::Owned(value::Value::read(text)?.text())),
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
