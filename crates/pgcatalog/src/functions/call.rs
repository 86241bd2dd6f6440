//! A call of a function about catalogs: the session that it is of, and the values of its arguments.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, Int16Type, Int32Type, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;

use crate::catalog::{Catalog, Found, Index};
use crate::source::{Object, Role};

use self::Argument::{Any, Big, Bool, Either, Int, Ints, Text, Texts};

/// The type to which an argument is coerced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Argument {
    /// A text.
    Text,
    /// An oid or another number of four bytes.
    Int,
    /// A number of eight bytes.
    Big,
    Bool,
    /// A name or an oid: text stays text, a number becomes an int4.
    Either,
    /// An array of text.
    Texts,
    /// An array of int4, or an array literal as text.
    Ints,
    /// Any type.
    Any,
}

/// A call's context: session state, looked up once per batch.
pub(super) struct Call<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) arguments: &'a [ArrayRef],
    pub(super) index: Arc<Index>,
    pub(super) roles: Vec<Role>,
    pub(super) path: Vec<String>,
}

/// An argument's value in one row, or a result, which becomes an array of the declared type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Text(String),
    Int(i32),
    Big(i64),
    Bool(bool),
    Texts(Vec<String>),
    Ints(Vec<i32>),
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        value.map_or(Value::Null, Value::Text)
    }
}

impl From<Option<i32>> for Value {
    fn from(value: Option<i32>) -> Self {
        value.map_or(Value::Null, Value::Int)
    }
}

impl From<Option<bool>> for Value {
    fn from(value: Option<bool>) -> Self {
        value.map_or(Value::Null, Value::Bool)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_string())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

pub(super) type Evaluate = fn(&Call<'_>, &[Value]) -> Result<Value>;

/// Name, PostgreSQL result type, number of required arguments, argument types, and implementation.
pub(super) type Definition = (&'static str, &'static str, usize, &'static [Argument], Evaluate);

impl Argument {
    pub(super) fn coerced_type(self, given: &DataType) -> DataType {
        let texts = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Text => DataType::Utf8,
            Int => DataType::Int32,
            Big => DataType::Int64,
            Bool => DataType::Boolean,
            Either if given.is_string() || given.is_null() => DataType::Utf8,
            Either => DataType::Int32,
            Texts => texts(DataType::Utf8),
            Ints if given.is_string() || given.is_null() => DataType::Utf8,
            Ints => texts(DataType::Int32),
            Any => given.clone(),
        }
    }
}

impl Call<'_> {
    pub(super) fn evaluate(&self, definition: &Definition, row: usize) -> Result<Value> {
        let is_bound = matches!(definition.0, "array_upper" | "array_lower");
        let mut values = Vec::with_capacity(self.arguments.len());
        for array in self.arguments {
            values.push(match array.data_type() {
                // Only the number of elements matters, including NULLs.
                DataType::List(_) if is_bound && array.is_valid(row) => Value::Bool(true),
                _ => value(array, row)?,
            });
        }
        let null_matters = matches!(
            definition.0,
            "quote_nullable" | "format_type" | "set_config" | "format" | "harrier_format_elements"
        );
        if !null_matters && values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        if let (true, [Value::Bool(_), Value::Int(dimension)]) = (is_bound, values.as_slice()) {
            return Ok(list_bound(&self.arguments[0], row, *dimension, definition.0 == "array_lower"));
        }
        (definition.4)(self, &values)
    }

    /// A relation by its oid or name; `None` if missing.
    pub(super) fn relation(&self, value: &Value) -> Option<i32> {
        match value {
            Value::Int(oid) => Some(*oid),
            Value::Text(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                text.parse().ok()
            }
            Value::Text(text) => self.catalog.relation_by_text(&self.index, text),
            _ => None,
        }
    }

    /// A relation; fails if a named one does not exist.
    pub(super) fn existing_relation(&self, value: &Value) -> Result<i32> {
        match (self.relation(value), value) {
            (Some(relation), _) => Ok(relation),
            (None, Value::Text(text)) => plan_err!("relation \"{text}\" does not exist"),
            (None, _) => Ok(0),
        }
    }

    /// The role to check: the first of more than `least` arguments, or the user.
    pub(super) fn role<'v>(&self, values: &'v [Value], least: usize) -> Result<(String, &'v [Value])> {
        if values.len() == least {
            return Ok((self.catalog.source.user(), values));
        }
        let name = match &values[0] {
            Value::Text(name) if name == "public" => Some(name.clone()),
            Value::Text(name) => {
                self.roles.iter().find(|role| role.name == *name).map(|role| role.name.clone())
            }
            Value::Int(oid) => self.catalog.role_name(&self.roles, *oid),
            _ => None,
        };
        match (name, &values[0]) {
            (Some(name), _) => Ok((name, &values[1..])),
            (None, Value::Text(name)) => plan_err!("role \"{name}\" does not exist"),
            (None, _) => plan_err!("role with that oid does not exist"),
        }
    }

    /// Whether a role has one of the privileges listed in a text.
    pub(super) fn may(&self, role: &str, object: &Object<'_>, privileges: &str) -> bool {
        privileges.split(',').any(|privilege| {
            let privilege = privilege.trim().to_uppercase();
            let plain = privilege.trim_end_matches(" WITH GRANT OPTION");
            let plain = if plain == "TEMP" { "TEMPORARY" } else { plain };
            self.catalog.source.may(role, object, plain)
        })
    }

    pub(super) fn relation_object(&self, relation: i32) -> Option<Object<'_>> {
        match self.index.get(relation)? {
            Found::User(relation, _) => Some(Object::Relation(relation.id)),
            Found::System(_) => Some(Object::System),
        }
    }
}

pub(super) fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

pub(super) fn int(value: &Value) -> i32 {
    match value {
        Value::Int(number) => *number,
        _ => 0,
    }
}

pub(super) fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true)
}

/// The lower or upper bound of a list's dimension, counted from 1: NULL if it is empty.
fn list_bound(lists: &ArrayRef, row: usize, dimension: i32, is_lower: bool) -> Value {
    let mut items = lists.as_list::<i32>().value(row);
    for _ in 1..dimension {
        items = match items.as_list_opt::<i32>().filter(|lists| !lists.is_empty() && lists.is_valid(0)) {
            Some(lists) => lists.value(0),
            None => return Value::Null,
        };
    }
    match (dimension, items.len()) {
        (..1, _) | (_, 0) => Value::Null,
        (_, length) => Value::Int(if is_lower { 1 } else { length as i32 }),
    }
}

pub(super) fn value(array: &ArrayRef, row: usize) -> Result<Value> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_string()),
        DataType::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => Value::Big(array.as_primitive::<Int64Type>().value(row)),
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            match items.data_type() {
                DataType::Int32 => Value::Ints(items.as_primitive::<Int32Type>().iter().flatten().collect()),
                DataType::Int16 => {
                    let numbers = items.as_primitive::<Int16Type>().iter().flatten();
                    Value::Ints(numbers.map(i32::from).collect())
                }
                DataType::Utf8 => {
                    let texts = items.as_string::<i32>().iter().flatten().map(str::to_string);
                    Value::Texts(texts.collect())
                }
                _ => Value::Null,
            }
        }
        DataType::Null => Value::Null,
        other => return exec_err!("a value of type {other} was not expected here"),
    })
}
