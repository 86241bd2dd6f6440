//! Texts: parts, patterns, padding and codes.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::arrow::array::{Array, ListBuilder, StringBuilder};
use datafusion::common::{Result, ScalarValue};

use super::casts::text_of;
use super::regex_cache::{compile, replacement};
use crate::postgres_functions::Kind::{Any, Bool, Bytes, Int, Int4, Text, Texts};
use crate::postgres_functions::{Definition, bytes, int, text};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("hive_ascii", &[Text], Int4, |values| {
        // The first byte, with a sign as Java's bytes have one.
        Ok(ScalarValue::Int32(Some(
            text(&values[0]).as_bytes().first().map_or(0, |byte| i32::from(*byte as i8)),
        )))
    }),
    Definition::new("hive_base64", &[Bytes], Text, |values| text_value(STANDARD.encode(bytes(&values[0])))),
    Definition::new("hive_chr", &[Int], Text, |values| {
        let code = int(&values[0]);
        text_value(match u8::try_from(code.rem_euclid(256)) {
            _ if code < 0 => String::new(),
            Ok(code) => char::from(code).to_string(),
            Err(_) => String::new(),
        })
    }),
    Definition::new("hive_concat", &[Any], Text, |values| {
        let texts: Option<Vec<&str>> = values.iter().map(|value| value.try_as_str().flatten()).collect();
        Ok(ScalarValue::Utf8(texts.map(|texts| texts.concat())))
    })
    .from(0),
    Definition::new("hive_concat_ws", &[Any], Text, concat_ws).from(0),
    Definition::new("hive_crc32", &[Text], Int, |values| {
        Ok(ScalarValue::Int64(Some(i64::from(crc32(text(&values[0]).as_bytes())))))
    }),
    // Which of the others the first one is, from 1.
    Definition::new("hive_field", &[Any], Int4, |values| {
        let [first, others @ ..] = values else { return Ok(ScalarValue::Int32(Some(0))) };
        let place = others.iter().position(|other| !first.is_null() && other == first);
        Ok(ScalarValue::Int32(Some(place.map_or(0, |place| place as i32 + 1))))
    })
    .from(0),
    Definition::new("hive_find_in_set", &[Text, Text], Int4, |values| {
        let (sought, list) = (text(&values[0]), text(&values[1]));
        let place = list.split(',').position(|part| part == sought).filter(|_| !sought.contains(','));
        Ok(ScalarValue::Int32(Some(place.map_or(0, |place| place as i32 + 1))))
    }),
    Definition::new("hive_initcap", &[Text], Text, |values| {
        let mut is_first = true;
        let mut written = String::with_capacity(text(&values[0]).len());
        for sign in text(&values[0]).chars() {
            match is_first {
                true => written.extend(sign.to_uppercase()),
                false => written.extend(sign.to_lowercase()),
            }
            is_first = sign.is_whitespace();
        }
        text_value(written)
    }),
    Definition::new("hive_instr", &[Text, Text], Int4, |values| place(text(&values[1]), text(&values[0]), 1)),
    // Sought, text, from where.
    Definition::new("hive_locate", &[Text, Text, Int], Int4, |values| {
        place(text(&values[0]), text(&values[1]), values.get(2).map_or(1, int))
    })
    .from(2),
    Definition::new("hive_lpad", &[Text, Int, Text], Text, |values| pad(values, true)).from(2),
    Definition::new("hive_rpad", &[Text, Int, Text], Text, |values| pad(values, false)).from(2),
    Definition::new("hive_regexp_extract", &[Text, Text, Int], Text, |values| {
        let group = usize::try_from(values.get(2).map_or(1, int)).unwrap_or_default();
        let found = compile(text(&values[1]))?.captures(text(&values[0]));
        let part = found.and_then(|found| found.get(group).map(|part| part.as_str().to_string()));
        text_value(part.unwrap_or_default())
    })
    .from(2),
    Definition::new("hive_regexp_replace", &[Text, Text, Text], Text, |values| {
        let to = replacement(text(&values[2]));
        text_value(compile(text(&values[1]))?.replace_all(text(&values[0]), to.as_str()).into_owned())
    }),
    Definition::new("hive_repeat", &[Text, Int], Text, |values| {
        let count = usize::try_from(int(&values[1])).unwrap_or_default();
        let bytes = text(&values[0]).len().saturating_mul(count);
        if bytes > i32::MAX as usize {
            return Err(harrier_sqlstate::external(harrier_error::SqlError::new(
                harrier_error::SqlState::PROGRAM_LIMIT_EXCEEDED,
                "requested length too large",
            )));
        }
        text_value(text(&values[0]).repeat(count))
    }),
    Definition::new("hive_replace", &[Text, Text, Text], Text, |values| {
        text_value(text(&values[0]).replace(text(&values[1]), text(&values[2])))
    }),
    Definition::new("hive_rlike", &[Text, Text], Bool, |values| {
        let is_match = !text(&values[1]).is_empty() && compile(text(&values[1]))?.is_match(text(&values[0]));
        Ok(ScalarValue::Boolean(Some(is_match)))
    }),
    Definition::new("hive_soundex", &[Text], Text, |values| text_value(soundex(text(&values[0])))),
    Definition::new("hive_split", &[Text, Text], Texts, split),
    Definition::new("hive_substr", &[Text, Int, Int], Text, substr).from(2),
    Definition::new("hive_substring_index", &[Text, Text, Int], Text, substring_index),
    // The name of a type in PostgreSQL.
    Definition::new("hive_type_name", &[Text], Text, |values| text_value(type_name(text(&values[0])))),
    Definition::new("hive_unbase64", &[Text], Bytes, |values| {
        let packed: String = text(&values[0]).split_ascii_whitespace().collect();
        Ok(ScalarValue::Binary(STANDARD.decode(packed).ok()))
    }),
];

fn text_value(text: String) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(Some(text)))
}

/// Texts and lists of texts with a separator between; NULLs are left out, but for those in lists.
fn concat_ws(values: &[ScalarValue]) -> Result<ScalarValue> {
    let [separator, others @ ..] = values else { return Ok(ScalarValue::Utf8(None)) };
    let Some(separator) = separator.try_as_str().flatten() else { return Ok(ScalarValue::Utf8(None)) };
    let mut parts = Vec::new();
    for value in others {
        match value {
            value if value.is_null() => {}
            ScalarValue::List(list) => {
                let items = list.value(0);
                for row in 0..items.len() {
                    let item = text_of(&ScalarValue::try_from_array(&items, row)?);
                    parts.push(item.unwrap_or_else(|| "null".to_string()));
                }
            }
            other => parts.extend(text_of(other)),
        }
    }
    text_value(parts.join(separator))
}

/// The place of a text in another, from 1; 0 for none.
fn place(sought: &str, whole: &str, from: i64) -> Result<ScalarValue> {
    let none = Ok(ScalarValue::Int32(Some(0)));
    let Some(skipped) = usize::try_from(from - 1).ok() else { return none };
    let start = match whole.char_indices().map(|(at, _)| at).chain([whole.len()]).nth(skipped) {
        Some(start) => start,
        None => return none,
    };
    let found = whole[start..].find(sought).map(|at| whole[..start + at].chars().count() + 1);
    Ok(ScalarValue::Int32(Some(found.map_or(0, |found| found as i32))))
}

/// Text, length, filling. NULL if there is nothing to fill with.
fn pad(values: &[ScalarValue], is_left: bool) -> Result<ScalarValue> {
    let (whole, filling) = (text(&values[0]), values.get(2).map_or(" ", text));
    let Ok(length) = usize::try_from(int(&values[1])) else { return Ok(ScalarValue::Utf8(None)) };
    let count = whole.chars().count();
    if count >= length {
        return text_value(whole.chars().take(length).collect());
    }
    if filling.is_empty() {
        return Ok(ScalarValue::Utf8(None));
    }
    let filled: String = filling.chars().cycle().take(length - count).collect();
    text_value(match is_left {
        true => filled + whole,
        false => whole.to_string() + &filled,
    })
}

/// From 1, or from the end if negative; 0 is as 1.
fn substr(values: &[ScalarValue]) -> Result<ScalarValue> {
    let whole = text(&values[0]);
    let length = whole.chars().count() as i64;
    let (from, count) = (int(&values[1]), values.get(2).map_or(i64::MAX, int));
    if from.abs() > length || count <= 0 {
        return text_value(String::new());
    }
    let start = match from {
        1.. => from - 1,
        0 => 0,
        _ => length + from,
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    text_value(whole.chars().skip(start as usize).take(count).collect())
}

/// What is before the n-th separator, or behind the n-th from the end.
fn substring_index(values: &[ScalarValue]) -> Result<ScalarValue> {
    let (whole, separator, count) = (text(&values[0]), text(&values[1]), int(&values[2]));
    if separator.is_empty() || count == 0 {
        return text_value(String::new());
    }
    let nth = usize::try_from(count.unsigned_abs() - 1).unwrap_or(usize::MAX);
    text_value(match count > 0 {
        true => whole.match_indices(separator).nth(nth).map_or(whole, |(at, _)| &whole[..at]).to_string(),
        false => {
            let found = whole.rmatch_indices(separator).nth(nth);
            found.map_or(whole, |(at, _)| &whole[at + separator.len()..]).to_string()
        }
    })
}

/// As Java's `String.split` with a limit of -1.
fn split(values: &[ScalarValue]) -> Result<ScalarValue> {
    let (whole, pattern) = (text(&values[0]), compile(text(&values[1]))?);
    let mut list = ListBuilder::new(StringBuilder::new());
    let mut start = 0;
    for found in pattern.find_iter(whole) {
        // An empty match at the beginning gives no part.
        if found.end() == 0 {
            continue;
        }
        list.values().append_value(&whole[start..found.start()]);
        start = found.end();
    }
    list.values().append_value(&whole[start..]);
    list.append(true);
    Ok(ScalarValue::List(Arc::new(list.finish())))
}

/// Hive's name of a type.
fn type_name(name: &str) -> String {
    if let Some(element) = name.strip_suffix("[]") {
        return format!("array<{}>", type_name(element));
    }
    let (base, digits) = name.split_at(name.find('(').unwrap_or(name.len()));
    let base = match base {
        "integer" => "int",
        "text" => "string",
        "double precision" => "double",
        "real" => "float",
        "numeric" => "decimal",
        "character varying" if digits.is_empty() => "string",
        "character varying" => "varchar",
        "character" => "char",
        "bytea" => "binary",
        "\"char\"" => "tinyint",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamp with local time zone",
        other => other,
    };
    format!("{base}{digits}")
}

/// American Soundex.
fn soundex(word: &str) -> String {
    const CODES: &[u8; 26] = b"01230120022455012623010202";
    let letters: Vec<u8> =
        word.bytes().filter(u8::is_ascii_alphabetic).map(|letter| letter.to_ascii_uppercase()).collect();
    let Some(first) = letters.first() else { return String::new() };
    let code = |letter: u8| CODES[usize::from(letter - b'A')];
    let mut written = vec![*first];
    let mut last = code(*first);
    for letter in &letters[1..] {
        let next = code(*letter);
        if next != b'0' && next != last {
            written.push(next);
        }
        // H and W do not part equal codes.
        if !matches!(letter, b'H' | b'W') {
            last = next;
        }
    }
    written.resize(4, b'0');
    written.into_iter().map(char::from).collect()
}

/// CRC-32 of ISO 3309, as Java's `CRC32`.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            1 => (sum >> 1) ^ 0xEDB8_8320,
            _ => sum >> 1,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, values: &[ScalarValue]) -> String {
        let definition = DEFINITIONS.iter().find(|definition| definition.name() == name).unwrap();
        definition.value(values).unwrap().to_string()
    }

    #[test]
    fn parts_are_as_hive_has_them() {
        let text = |text: &str| ScalarValue::from(text);
        let whole = |number: i64| ScalarValue::from(number);
        for (name, values, expected) in [
            ("hive_substr", vec![text("Facebook"), whole(5)], "book"),
            ("hive_substr", vec![text("Facebook"), whole(-5)], "ebook"),
            ("hive_substr", vec![text("Facebook"), whole(0), whole(3)], "Fac"),
            ("hive_substr", vec![text("abc"), whole(9)], ""),
            ("hive_substring_index", vec![text("www.apache.org"), text("."), whole(2)], "www.apache"),
            ("hive_substring_index", vec![text("www.apache.org"), text("."), whole(-1)], "org"),
            ("hive_locate", vec![text("b"), text("abcb"), whole(3)], "4"),
            ("hive_lpad", vec![text("hi"), whole(5), text("xy")], "xyxhi"),
            ("hive_regexp_extract", vec![text("foothebar"), text("foo(.*?)(bar)"), whole(2)], "bar"),
            ("hive_regexp_replace", vec![text("foobar"), text("oo|ar"), text("")], "fb"),
            ("hive_regexp_replace", vec![text("a-b"), text("(a)-(b)"), text("$2$1")], "ba"),
            ("hive_split", vec![text("oneAtwoBthreeC"), text("[ABC]")], "[one, two, three, ]"),
            ("hive_split", vec![text("abc"), text("")], "[a, b, c, ]"),
            ("hive_crc32", vec![text("ABC")], "2743272264"),
            ("hive_soundex", vec![text("Miller")], "M460"),
            ("hive_initcap", vec![text("tHe soap-opera")], "The Soap-opera"),
        ] {
            assert_eq!(of(name, &values), expected, "{name} {values:?}");
        }
    }
}
