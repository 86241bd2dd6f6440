//! Operations that derive `jsonb` values from others: concatenation, changes at a path, and containment
//! tests.

use std::borrow::Cow;

use datafusion::common::Result;

use super::get::place;
use super::value::{Value, key_order};
use super::{get, wrong};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// `||`: members of both objects, where the second takes precedence; or elements of both, where a non-array
/// is a single element.
pub(super) fn concatenate<'j>(left: Value<'j>, right: Value<'j>) -> Value<'j> {
    match (left, right) {
        (Value::Object(mut members), Value::Object(others)) => {
            members.extend(others);
            Value::object(members)
        }
        (left, right) => {
            let parts = |value| match value {
                Value::Array(elements) => elements,
                other => vec![other],
            };
            let mut elements = parts(left);
            elements.extend(parts(right));
            Value::Array(elements)
        }
    }
}

/// `-` with texts: removes members of these names, or elements that are these strings.
pub(super) fn without_keys<'j>(value: Value<'j>, keys: &[Option<&str>]) -> Result<Value<'j>> {
    let is_named = |name: &str| keys.iter().flatten().any(|key| *key == name);
    Ok(match value {
        Value::Object(mut members) => {
            members.retain(|(name, _)| !is_named(name));
            Value::Object(members)
        }
        Value::Array(mut elements) => {
            elements.retain(|element| !matches!(element, Value::String(text) if is_named(text)));
            Value::Array(elements)
        }
        _ => return Err(wrong("cannot delete from scalar")),
    })
}

/// `-` with a number: removes that element.
pub(super) fn without_element(value: Value<'_>, number: i64) -> Result<Value<'_>> {
    match value {
        Value::Array(mut elements) => {
            if let Some(at) = place(number, elements.len()) {
                elements.remove(at);
            }
            Ok(Value::Array(elements))
        }
        Value::Object(_) => Err(wrong("cannot delete from object using integer index")),
        _ => Err(wrong("cannot delete from scalar")),
    }
}

/// Operation at the end of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change<'j> {
    Delete,
    /// Replaces the value, or adds it if `creates`.
    Set {
        value: Value<'j>,
        creates: bool,
    },
    /// Inserts a value before or after the position.
    Insert {
        value: Value<'j>,
        is_after: bool,
    },
}

/// `#-`, `jsonb_set` and `jsonb_insert`.
///
/// Errors: the value is a scalar (22023); a step into an array is not a number (22P02); a key to be inserted
/// exists (22023).
pub(super) fn change_at_path<'j>(
    value: Value<'j>,
    path: &[Option<&str>],
    change: Change<'j>,
) -> Result<Value<'j>> {
    if value.is_scalar() {
        return Err(wrong(match change {
            Change::Delete => "cannot delete path in scalar",
            _ => "cannot set path in scalar",
        }));
    }
    if path.is_empty() {
        return Ok(value);
    }
    // Only an insertion may have a missing target.
    let is_empty = matches!(&value, Value::Array(parts) if parts.is_empty())
        || matches!(&value, Value::Object(parts) if parts.is_empty());
    if is_empty && matches!(change, Change::Delete | Change::Set { creates: false, .. }) {
        return Ok(value);
    }
    let mut value = value;
    change_at(&mut value, path, 0, change)?;
    Ok(value)
}

fn change_at<'j>(
    value: &mut Value<'j>,
    path: &[Option<&str>],
    level: usize,
    change: Change<'j>,
) -> Result<()> {
    let Some(step) = path[level] else {
        return Err(SqlError::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            format!("path element at position {} is null", level + 1),
        )
        .into_datafusion());
    };
    let is_last = level + 1 == path.len();
    match value {
        Value::Object(members) => {
            let found = members.binary_search_by(|(name, _)| key_order(name, step));
            match (found, change) {
                (Ok(at), change) if !is_last => change_at(&mut members[at].1, path, level + 1, change)?,
                (Err(_), _) if !is_last => {}
                (Ok(at), Change::Delete) => drop(members.remove(at)),
                (Ok(at), Change::Set { value, .. }) => members[at].1 = value,
                (Ok(_), Change::Insert { .. }) => {
                    let error =
                        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "cannot replace existing key");
                    return Err(error
                        .with_hint("Try using the function jsonb_set to replace key value.")
                        .into_datafusion());
                }
                (Err(at), Change::Set { value, creates: true } | Change::Insert { value, .. }) => {
                    members.insert(at, (Cow::Owned(step.to_string()), value));
                }
                (Err(_), Change::Delete | Change::Set { .. }) => {}
            }
        }
        Value::Array(elements) => {
            let number = get::number(step).ok_or_else(|| {
                let message = format!("path element at position {} is not an integer: \"{step}\"", level + 1);
                harrier_sqlstate::external(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message))
            })?;
            let found = place(number, elements.len());
            match (found, change) {
                (Some(at), change) if !is_last => change_at(&mut elements[at], path, level + 1, change)?,
                (None, _) if !is_last => {}
                (Some(at), Change::Delete) => drop(elements.remove(at)),
                (Some(at), Change::Set { value, .. }) => elements[at] = value,
                (Some(at), Change::Insert { value, is_after }) => {
                    elements.insert(at + usize::from(is_after), value)
                }
                (None, Change::Set { value, creates: true } | Change::Insert { value, .. }) => {
                    // Beyond either end.
                    match number < 0 {
                        true => elements.insert(0, value),
                        false => elements.push(value),
                    }
                }
                (None, Change::Delete | Change::Set { .. }) => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// `@>`: whether the first contains all parts of the second.
pub(super) fn contains(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        // An array contains a scalar that is one of its elements.
        (Value::Array(elements), scalar) if scalar.is_scalar() => {
            elements.iter().any(|element| is_equal(element, scalar))
        }
        _ => contains_inside(left, right),
    }
}

fn contains_inside(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Object(_), Value::Object(members)) => members
            .iter()
            .all(|(key, value)| left.member(key).is_some_and(|found| contains_inside(found, value))),
        (Value::Array(elements), Value::Array(others)) => {
            others.iter().all(|other| elements.iter().any(|element| contains_inside(element, other)))
        }
        (left, right) => left.is_scalar() && right.is_scalar() && is_equal(left, right),
    }
}

/// Whether two scalars are equal.
fn is_equal(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => plain(one) == plain(other),
        (one, other) => one.is_scalar() && one == other,
    }
}

/// A number without trailing zeros.
fn plain(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// `?`: whether an object has a key, an array a string element, or a string equals it.
pub(super) fn has_key(value: &Value<'_>, key: &str) -> bool {
    match value {
        Value::Object(_) => value.member(key).is_some(),
        Value::Array(elements) => {
            elements.iter().any(|element| matches!(element, Value::String(text) if text == key))
        }
        Value::String(text) => text == key,
        _ => false,
    }
}

/// Removes null members at any depth.
pub(super) fn without_nulls(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(_, value)| *value != Value::Null)
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_nulls).collect()),
        scalar => scalar,
    }
}

/// The same for a text of `json`, which keeps the order and duplicates of its keys.
pub(super) fn text_without_nulls(text: &str, depth: usize, into: &mut String) -> Result<()> {
    use super::scan::{self, Shape};
    if depth > super::DEPTH_MAX {
        return Err(super::too_deep());
    }
    match scan::shape(text)? {
        Shape::Object => {
            into.push('{');
            let mut is_first = true;
            scan::members(text, |key, value| {
                if scan::shape(value)? == Shape::Null {
                    return Ok(());
                }
                into.push_str(if is_first { "" } else { "," });
                is_first = false;
                scan::quote(&key, into);
                into.push(':');
                text_without_nulls(value, depth + 1, into)
            })?;
            into.push('}');
        }
        Shape::Array => {
            into.push('[');
            for (at, element) in scan::elements(text)?.into_iter().enumerate() {
                into.push_str(if at == 0 { "" } else { "," });
                text_without_nulls(element, depth + 1, into)?;
            }
            into.push(']');
        }
        Shape::String => scan::quote(&scan::unquote(text.trim_matches([' ', '\t', '\n', '\r']))?, into),
        _ => into.push_str(text.trim_matches([' ', '\t', '\n', '\r'])),
    }
    Ok(())
}

/// Converts a scalar to the text of another type.
///
/// Errors: it is of another type than requested (22023).
pub(super) fn scalar(text: &str, is_boolean: bool, type_name: &str) -> Result<String> {
    let found = match Value::of_checked(text)? {
        Value::Boolean(value) if is_boolean => return Ok(value.to_string()),
        Value::Number(number) if !is_boolean => return Ok(number.into_owned()),
        Value::Null => "null",
        Value::Boolean(_) => "boolean",
        Value::Number(_) => "numeric",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Err(wrong(format!("cannot cast jsonb {found} to type {type_name}")))
}

/// Rounds a number to an integer, as numeric does: half away from zero.
pub(super) fn round(number: &str) -> String {
    let (sign, plain) = match number.strip_prefix('-') {
        Some(plain) => ("-", plain),
        None => ("", number),
    };
    let Some((whole, fraction)) = plain.split_once('.') else { return number.to_string() };
    if !fraction.starts_with(['5', '6', '7', '8', '9']) {
        return format!("{sign}{whole}");
    }
    let mut digits = whole.as_bytes().to_vec();
    for digit in digits.iter_mut().rev() {
        if *digit != b'9' {
            *digit += 1;
            return format!("{sign}{}", String::from_utf8_lossy(&digits));
        }
        *digit = b'0';
    }
    format!("{sign}1{}", String::from_utf8_lossy(&digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_merged() {
        for (left, right, expected) in [
            ("{\"a\": 1, \"b\": 2}", "{\"b\": 3}", "{\"a\": 1, \"b\": 3}"),
            ("[1]", "[2, 3]", "[1, 2, 3]"),
            ("1", "2", "[1, 2]"),
            ("[1]", "{\"a\": 1}", "[1, {\"a\": 1}]"),
            ("{}", "1", "[{}, 1]"),
        ] {
            let value = concatenate(Value::parse(left).unwrap(), Value::parse(right).unwrap());
            assert_eq!(value.text(), expected);
        }
    }

    #[test]
    fn numbers_are_rounded() {
        for (number, expected) in [("1.5", "2"), ("-1.5", "-2"), ("9.9", "10"), ("1.49", "1"), ("7", "7")] {
            assert_eq!(round(number), expected);
        }
    }
}
