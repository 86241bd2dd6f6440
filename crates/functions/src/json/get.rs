//! Access to parts of a JSON text, returned as they are written. No tree is built.

use std::borrow::Cow;

use datafusion::common::Result;

use super::Kind;
use super::scan::{self, Shape, shape};

/// The value of a key: the last one, if there are several.
pub(super) fn member<'j>(text: &'j str, key: &str) -> Result<Option<&'j str>> {
    if shape(text)? != Shape::Object {
        return Ok(None);
    }
    let mut found = None;
    scan::members(text, |name, value| {
        if name == key {
            found = Some(value);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The element with an index, from the end if negative. PostgreSQL treats a scalar of `jsonb` as an array of
/// one.
pub(super) fn element(text: &str, number: i64, kind: Kind) -> Result<Option<&str>> {
    match shape(text)? {
        Shape::Array => {
            let elements = scan::elements(text)?;
            Ok(place(number, elements.len()).map(|at| elements[at]))
        }
        Shape::Object => Ok(None),
        _ => Ok((kind == Kind::Jsonb && matches!(number, 0 | -1)).then_some(text)),
    }
}

/// The position of an element index in an array of this length.
pub(super) fn place(number: i64, length: usize) -> Option<usize> {
    let at = if number < 0 { number.checked_add(i64::try_from(length).ok()?)? } else { number };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// The value at a path of object keys and element indexes.
pub(super) fn at_path<'j>(text: &'j str, path: &[Option<&str>]) -> Result<Option<&'j str>> {
    let mut text = text.trim_matches([' ', '\t', '\n', '\r']);
    for step in path {
        let Some(step) = step else { return Ok(None) };
        let next = match shape(text)? {
            Shape::Object => member(text, step)?,
            Shape::Array => match number(step) {
                Some(number) => element(text, number, Kind::Json)?,
                None => None,
            },
            _ => None,
        };
        match next {
            Some(next) => text = next,
            None => return Ok(None),
        }
    }
    Ok(Some(text))
}

/// A step of a path as an element index.
pub(super) fn number(step: &str) -> Option<i64> {
    step.trim_start().parse::<i32>().ok().map(i64::from)
}

/// A value as SQL text: the content of a string, and NULL for null.
pub(super) fn as_text(value: &str) -> Result<Option<Cow<'_, str>>> {
    Ok(match shape(value)? {
        Shape::Null => None,
        Shape::String => Some(scan::unquote(value.trim_matches([' ', '\t', '\n', '\r']))?),
        _ => Some(Cow::Borrowed(value)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found() {
        let text = " {\"a\": [1, {\"b\": \"x\\ty\"}, null], \"a b\": 2, \"a b\": 3} ";
        let path = |path: &[&str]| {
            let path: Vec<_> = path.iter().copied().map(Some).collect();
            at_path(text, &path).unwrap()
        };
        assert_eq!(path(&["a", "1", "b"]), Some("\"x\\ty\""));
        assert_eq!(path(&["a", "-1"]), Some("null"));
        assert_eq!(path(&["a", "x"]), None);
        assert_eq!(path(&["a b"]), Some("3"));
        assert_eq!(path(&[]), Some(text.trim()));
        assert_eq!(as_text("\"x\\ty\"").unwrap().as_deref(), Some("x\ty"));
        assert_eq!(as_text("null").unwrap(), None);
        assert_eq!(element("5", 0, Kind::Jsonb).unwrap(), Some("5"));
        assert_eq!(element("5", 0, Kind::Json).unwrap(), None);
    }
}
