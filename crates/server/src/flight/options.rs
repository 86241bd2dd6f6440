//! Flight session messages that the library lacks: see Flight.proto, SessionOptionValue and the following.

use std::collections::HashMap;

pub const INVALID_NAME: i32 = 1;
pub const INVALID_VALUE: i32 = 2;
pub const CLOSED: i32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetRequest {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, Error>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetResult {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CloseResult {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Error {
    #[prost(int32, tag = "1")]
    pub value: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(List),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct List {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

impl Value {
    pub fn of(text: &str) -> Self {
        Self { kind: Some(Kind::Text(text.to_string())) }
    }

    /// The value as SQL text. `None`: reset to the default.
    pub fn text(&self) -> Option<String> {
        self.kind.as_ref().map(|kind| match kind {
            Kind::Text(text) => text.clone(),
            Kind::Bool(value) => value.to_string(),
            Kind::Integer(value) => value.to_string(),
            Kind::Double(value) => value.to_string(),
            Kind::List(list) => list.values.join(", "),
        })
    }
}
