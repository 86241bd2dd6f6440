//! JSON, URLs and digests.

use datafusion::common::ScalarValue;
use serde_json::Value;

use crate::postgres_functions::Kind::Text;
use crate::postgres_functions::{Definition, text};

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition::new("hive_get_json_object", &[Text, Text], Text, |values| {
        let found = serde_json::from_str(text(&values[0])).ok();
        Ok(ScalarValue::Utf8(
            found.and_then(|root: Value| at_path(&root, text(&values[1]))).and_then(text_of),
        ))
    }),
    // One key, for json_tuple.
    Definition::new("hive_json_field", &[Text, Text], Text, |values| {
        let root: Option<Value> = serde_json::from_str(text(&values[0])).ok();
        let found = root.and_then(|root| root.get(text(&values[1])).cloned());
        Ok(ScalarValue::Utf8(found.and_then(text_of)))
    }),
    // URL, part, name of a parameter.
    Definition::new("hive_parse_url", &[Text, Text, Text], Text, |values| {
        let (part, name) = (text(&values[1]), values.get(2).map(text));
        // The form of parse_url_tuple: QUERY:name.
        let (part, name) = match part.split_once(':') {
            Some((part, name)) => (part, Some(name)),
            None => (part, name),
        };
        Ok(ScalarValue::Utf8(Url::of(text(&values[0])).and_then(|url| url.part(part, name))))
    })
    .from(2),
];

/// A value as text; NULL for null.
fn text_of(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// `$.a.b[0].c`, `[*]` for all.
fn at_path(root: &Value, path: &str) -> Option<Value> {
    let mut rest = path.strip_prefix('$')?;
    let mut found = vec![root.clone()];
    let mut is_list = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at(end);
            rest = after;
            if key.is_empty() {
                return None;
            }
            let mut next = Vec::new();
            for value in &found {
                match value {
                    Value::Array(items) => {
                        is_list = true;
                        next.extend(items.iter().filter_map(|item| item.get(key)).cloned());
                    }
                    other => next.extend(other.get(key).cloned()),
                }
            }
            found = next;
        } else {
            let inside = rest.strip_prefix('[')?;
            let (index, after) = inside.split_once(']')?;
            rest = after;
            match index.trim() {
                "*" => {
                    is_list = true;
                    found = found.iter().filter_map(Value::as_array).flatten().cloned().collect();
                }
                index => {
                    let index: usize = index.parse().ok()?;
                    found = found.iter().filter_map(|value| value.get(index)).cloned().collect();
                }
            }
        }
    }
    match (found.len(), is_list) {
        (0, _) => None,
        (1, false) => found.pop(),
        (1, true) if !path.ends_with("[*]") => found.pop(),
        _ => Some(Value::Array(found)),
    }
}

/// The parts of a URL, as Java's `java.net.URL` has them.
struct Url<'t> {
    protocol: &'t str,
    authority: &'t str,
    path: &'t str,
    query: Option<&'t str>,
    fragment: Option<&'t str>,
}

impl<'t> Url<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let (protocol, rest) = text.split_once("://")?;
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, fragment)) => (rest, Some(fragment)),
            None => (rest, None),
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_known =
            ["http", "https", "ftp", "file", "jar"].contains(&protocol.to_ascii_lowercase().as_str());
        is_known.then_some(Self { protocol, authority, path, query, fragment })
    }

    fn part(&self, part: &str, name: Option<&str>) -> Option<String> {
        let (user, host) = match self.authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, self.authority),
        };
        match (part, name) {
            ("QUERY", Some(name)) => {
                let mut pairs = self.query?.split('&').filter_map(|pair| pair.split_once('='));
                return pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
            }
            (_, Some(_)) => return None,
            _ => {}
        }
        match part {
            "PROTOCOL" => Some(self.protocol.to_ascii_lowercase()),
            "HOST" => Some(host.split(':').next().unwrap_or(host).to_string()),
            "PATH" => Some(self.path.to_string()),
            "QUERY" => self.query.map(str::to_string),
            "REF" => self.fragment.map(str::to_string),
            "AUTHORITY" => Some(self.authority.to_string()),
            "USERINFO" => user.map(str::to_string),
            "FILE" => Some(match self.query {
                Some(query) => format!("{}?{query}", self.path),
                None => self.path.to_string(),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let root: Value = serde_json::from_str(r#"{"a":{"b":[1,{"c":"x"}]},"n":null}"#).unwrap();
        let of = |path: &str| at_path(&root, path).and_then(text_of);
        for (path, expected) in [
            ("$.a.b[0]", Some("1")),
            ("$.a.b[1].c", Some("x")),
            ("$.a.b", Some(r#"[1,{"c":"x"}]"#)),
            ("$.a.b[*].c", Some("x")),
            ("$.n", None),
            ("$.x", None),
            ("a", None),
        ] {
            assert_eq!(of(path).as_deref(), expected, "{path}");
        }
        let url = Url::of("http://u@facebook.com:80/path1/p.php?k1=v1&k2=v2#Ref1").unwrap();
        for (part, name, expected) in [
            ("HOST", None, Some("facebook.com")),
            ("PATH", None, Some("/path1/p.php")),
            ("QUERY", Some("k2"), Some("v2")),
            ("REF", None, Some("Ref1")),
            ("FILE", None, Some("/path1/p.php?k1=v1&k2=v2")),
            ("USERINFO", None, Some("u")),
            ("NONE", None, None),
        ] {
            assert_eq!(url.part(part, name).as_deref(), expected, "{part}");
        }
    }
}
