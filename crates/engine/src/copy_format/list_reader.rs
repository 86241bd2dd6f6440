//! Arrays as PostgreSQL reads them, `{1,NULL,"a, b"}` and `{{1,2},{3}}`, as columns of lists: the reverse of
//! what is written (`lists.rs`), so lists in lists may differ in length and be NULL.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ListArray, StringArray, StringBuilder};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use harrier_error::{SqlError, SqlState};

/// An element of an array's text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Element {
    Null,
    Text(String),
    List(Vec<Element>),
}

/// Braces in braces; a column's type has far fewer.
const DEPTH_MAX: usize = 64;

/// The type of the elements of a list.
pub(crate) fn element(kind: &DataType) -> Option<&DataType> {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

/// The type of what is no list in a list, or in lists of lists; that type itself, if it is none.
pub(crate) fn leaf(mut kind: &DataType) -> &DataType {
    while let Some(inner) = element(kind) {
        kind = inner;
    }
    kind
}

/// Texts as lists of the type `kind`; what is none, or has an element that `values` makes NULL, is NULL.
pub(crate) fn lists(
    texts: &StringArray,
    kind: &DataType,
    values: impl Fn(&StringArray, &DataType) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let mut rows: Vec<Element> = texts
        .iter()
        .map(|text| match text.map(|text| parse(text, kind)) {
            Some(Ok(list)) => list,
            None | Some(Err(_)) => Element::Null,
        })
        .collect();
    // The elements that are no lists, all in one array, and the row of each.
    let (mut leaves, mut places) = (StringBuilder::new(), Vec::new());
    for (row, list) in rows.iter().enumerate() {
        each_leaf(list, &mut |text| {
            leaves.append_value(text);
            places.push(row);
        });
    }
    let leaves = leaves.finish();
    let read = values(&leaves, leaf(kind))?;
    let nulls = read.logical_nulls();
    for (at, row) in places.into_iter().enumerate() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
            rows[row] = Element::Null;
        }
    }
    // Those of the rows that are left.
    let mut leaves = StringBuilder::new();
    for list in &rows {
        each_place(list, kind, &mut |text| leaves.append_option(text));
    }
    let leaves = values(&leaves.finish(), leaf(kind))?;
    build_array(&rows.iter().collect::<Vec<_>>(), kind, &leaves)
}

/// The elements, which are as deep as `kind` is, as an array of it; `leaves` has those that are no lists.
fn build_array(elements: &[&Element], kind: &DataType, leaves: &ArrayRef) -> Result<ArrayRef> {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) = kind else {
        return Ok(Arc::clone(leaves));
    };
    let lengths = elements.iter().map(|element| match element {
        Element::List(elements) => elements.len(),
        Element::Null | Element::Text(_) => 0,
    });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls: NullBuffer = elements.iter().map(|element| **element != Element::Null).collect();
    let inner: Vec<&Element> = elements
        .iter()
        .flat_map(|element| match element {
            Element::List(elements) => elements.as_slice(),
            Element::Null | Element::Text(_) => &[],
        })
        .collect();
    let values = build_array(&inner, item.data_type(), leaves)?;
    let item = Arc::new(item.as_ref().clone().with_nullable(true));
    let list: ArrayRef = Arc::new(ListArray::try_new(item, offsets, values, Some(nulls))?);
    let safe = CastOptions { safe: true, ..CastOptions::default() };
    Ok(if list.data_type() == kind { list } else { cast_with_options(&list, kind, &safe)? })
}

/// Calls `take` with each text of an array.
fn each_leaf(element: &Element, take: &mut impl FnMut(&str)) {
    match element {
        Element::Null => {}
        Element::Text(text) => take(text),
        Element::List(elements) => elements.iter().for_each(|element| each_leaf(element, take)),
    }
}

/// Calls `take` with each element of the deepest lists, in the order in which [`nested`] has them.
fn each_place(list: &Element, kind: &DataType, take: &mut impl FnMut(Option<&str>)) {
    let Element::List(elements) = list else { return };
    let inner = element(kind).unwrap_or(kind);
    for item in elements {
        match (item, element(inner)) {
            (Element::Text(text), None) => take(Some(text)),
            (Element::Null, None) => take(None),
            (list, _) => each_place(list, inner, take),
        }
    }
}

/// Why `text` is no list of the type, if that is because of its form, or else the first element that
/// `is_value` does not take.
pub(crate) fn misfit(
    text: &str,
    kind: &DataType,
    is_value: impl Fn(&str) -> bool,
) -> Result<Option<String>, SqlError> {
    let mut first = None;
    each_leaf(&parse(text, kind)?, &mut |text| {
        if first.is_none() && !is_value(text) {
            first = Some(text.to_string());
        }
    });
    Ok(first)
}

/// The array that `text` tells, as deep as `kind` is.
fn parse(text: &str, kind: &DataType) -> Result<Element, SqlError> {
    let malformed = || {
        let message = format!("malformed array literal: \"{text}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    let trimmed = text.trim_start();
    if trimmed.starts_with('[') {
        let message = format!("array literal with bounds of its subscripts: \"{text}\"");
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let mut signs = trimmed.chars().peekable();
    if signs.next() != Some('{') {
        return Err(malformed().with_detail("Array value must start with \"{\"."));
    }
    let list = list(&mut signs, 1).ok_or_else(malformed)?;
    if signs.any(|sign| !sign.is_whitespace()) {
        return Err(malformed().with_detail("Junk after closing right brace."));
    }
    match is_of(&list, kind) {
        true => Ok(list),
        false => {
            let message = format!("array literal has other dimensions than its column: \"{text}\"");
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

/// Whether an element, however deep, is a list exactly where the type has one.
fn is_of(value: &Element, kind: &DataType) -> bool {
    match (value, element(kind)) {
        (Element::Null, _) | (Element::Text(_), None) => true,
        (Element::List(elements), Some(inner)) => elements.iter().all(|value| is_of(value, inner)),
        (Element::List(_), None) | (Element::Text(_), Some(_)) => false,
    }
}

/// What is behind an opening brace, with its closing one.
fn list(signs: &mut std::iter::Peekable<std::str::Chars<'_>>, depth: usize) -> Option<Element> {
    let mut elements = Vec::new();
    if depth > DEPTH_MAX {
        return None;
    }
    loop {
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        let element = match signs.peek()? {
            '}' if elements.is_empty() => {
                signs.next();
                return Some(Element::List(elements));
            }
            '{' => {
                signs.next();
                list(signs, depth + 1)?
            }
            '"' => {
                signs.next();
                Element::Text(quoted_text(signs)?)
            }
            _ => plain(signs)?,
        };
        elements.push(element);
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        match signs.next()? {
            ',' => {}
            '}' => return Some(Element::List(elements)),
            _ => return None,
        }
    }
}

/// What is behind an opening quote, with the closing one.
fn quoted_text(signs: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut text = String::new();
    loop {
        match signs.next()? {
            '"' => return Some(text),
            '\\' => text.push(signs.next()?),
            sign => text.push(sign),
        }
    }
}

/// An element without quotes, up to what ends it; blanks behind it are none of it.
fn plain(signs: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Element> {
    let mut text = String::new();
    let (mut kept, mut is_escaped) = (0, false);
    loop {
        match signs.peek()? {
            ',' | '}' => break,
            '{' | '"' => return None,
            '\\' => {
                signs.next();
                text.push(signs.next()?);
                (kept, is_escaped) = (text.len(), true);
            }
            sign => {
                text.push(*sign);
                if !sign.is_whitespace() {
                    kept = text.len();
                }
                signs.next();
            }
        }
    }
    text.truncate(kept);
    match text.as_str() {
        "" => None,
        _ if !is_escaped && text.eq_ignore_ascii_case("null") => Some(Element::Null),
        _ => Some(Element::Text(text)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;

    use super::*;

    fn list_of(kind: DataType) -> DataType {
        DataType::new_list(kind, true)
    }

    fn read(text: &str, kind: &DataType) -> Option<String> {
        let safe = CastOptions { safe: true, ..CastOptions::default() };
        let values = |texts: &StringArray, kind: &DataType| Ok(cast_with_options(texts, kind, &safe)?);
        let read = lists(&StringArray::from(vec![Some("{}"), Some(text), None]), kind, values).unwrap();
        assert_eq!(read.data_type(), kind);
        assert!(read.is_valid(0) && read.is_null(2));
        read.is_valid(1).then(|| array_value_to_string(&read, 1).unwrap())
    }

    #[test]
    fn arrays_are_read_as_postgresql_does() {
        let texts = list_of(DataType::Utf8);
        for (text, expected) in [
            ("{}", "[]"),
            (" { } ", "[]"),
            ("{a,b}", "[a, b]"),
            ("{ a b , null,\"NULL\",\\NULL }", "[a b, , NULL, NULL]"),
            ("{\"a, \\\"b\\\"\",\"\",\\,,x\\ }", "[a, \"b\", , ,, x ]"),
        ] {
            assert_eq!(read(text, &texts).as_deref(), Some(expected), "{text}");
        }
        for wrong in
            ["", "a", "{a", "{a,}", "{,a}", "{\"a}", "{\"a\"b}", "{a\"b\"}", "{a}}", "{a}b", "{a{b}}"]
        {
            let error = misfit(wrong, &texts, |_| true).unwrap_err();
            assert_eq!(error.sqlstate, SqlState::INVALID_TEXT_REPRESENTATION, "{wrong}");
            assert_eq!(read(wrong, &texts), None, "{wrong}");
        }
        for other in ["{{a}}", "[2:3]={a,b}"] {
            let error = misfit(other, &texts, |_| true).unwrap_err();
            assert_eq!(error.sqlstate, SqlState::FEATURE_NOT_SUPPORTED, "{other}");
        }
    }

    #[test]
    fn elements_are_of_their_type() {
        let numbers = list_of(DataType::Int32);
        assert_eq!(read("{1, NULL,-3}", &numbers).as_deref(), Some("[1, , -3]"));
        assert_eq!(read("{1,x}", &numbers), None);
        let is_number = |text: &str| text.parse::<i32>().is_ok();
        assert_eq!(misfit("{1,x}", &numbers, is_number).unwrap().as_deref(), Some("x"));
        let nested = list_of(list_of(DataType::Int32));
        assert_eq!(read("{{1,2},{3},NULL,{}}", &nested).as_deref(), Some("[[1, 2], [3], , []]"));
        assert_eq!(read("{1}", &nested), None);
        let deep = format!("{}{}", "{".repeat(10_000), "}".repeat(10_000));
        assert_eq!(read(&deep, &nested), None);
    }
}
