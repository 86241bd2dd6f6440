//! Variables of a script or a shell, as in psql: set by `\set`, and interpolate as `:name`, `:'name'` (as a
//! string) and `:"name"` (as an identifier), outside of quotes and comments. Unknown names stay unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use harrier_sql::splitter::Splitter;

#[derive(Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Errors: not a name, which consists of letters, digits and underscores.
    pub(crate) fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        if name.is_empty() || !name.chars().all(is_of_name) {
            return Err(format!("invalid variable name: \"{name}\""));
        }
        self.0.insert(name.to_string(), value);
        Ok(())
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Interpolates variables in `text`.
    pub(crate) fn interpolate<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.0.is_empty() || !text.contains(':') {
            return Cow::Borrowed(text);
        }
        let mut text_out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = Splitter::new().first_unquoted(rest, b':') {
            text_out.push_str(&rest[..at]);
            rest = &rest[at..];
            let (value, length) = self.value(rest).unwrap_or_else(|| {
                let colons = if rest.starts_with("::") { 2 } else { 1 };
                (Cow::Borrowed(&rest[..colons]), colons)
            });
            text_out.push_str(&value);
            rest = &rest[length..];
        }
        text_out.push_str(rest);
        Cow::Owned(text_out)
    }

    /// The value for the reference at the beginning of `text`, which is a colon, and the length of that
    /// reference; `None` if it names no variable.
    pub(crate) fn value(&self, text: &str) -> Option<(Cow<'_, str>, usize)> {
        let after = &text[1..];
        let quote = after.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let named = if quote.is_some() { &after[1..] } else { after };
        let length = named.find(|c| !is_of_name(c)).unwrap_or(named.len());
        let (name, behind) = named.split_at(length);
        let value = self.0.get(name)?;
        match quote {
            None => Some((Cow::Borrowed(value), 1 + length)),
            Some(quote) if behind.starts_with(quote) => {
                Some((Cow::Owned(quote_value(value, quote)), length + 3))
            }
            Some(_) => None,
        }
    }
}

/// Quotes a value for SQL; backslashes are literal.
fn quote_value(value: &str, quote: char) -> String {
    format!("{quote}{}{quote}", value.replace(quote, &format!("{quote}{quote}")))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::Variables;

    #[test]
    fn values_take_the_places_of_names() {
        let mut variables = Variables::default();
        variables.set("n", "42".to_string()).unwrap();
        variables.set("who", "O'Hara \"x\"".to_string()).unwrap();
        assert!(variables.set("a-b", String::new()).is_err());
        for (text, expected) in [
            ("select :n, :n + 1", "select 42, 42 + 1"),
            ("select :'who', :\"who\"", "select 'O''Hara \"x\"', \"O'Hara \"\"x\"\"\""),
            ("select ':n', \":n\" -- :n\n, /* :n */ :n", "select ':n', \":n\" -- :n\n, /* :n */ 42"),
            ("select $$:n$$, '1'::n, 1 :: n", "select $$:n$$, '1'::n, 1 :: n"),
            ("select :nn, a[1:n], :'n, :", "select :nn, a[142], :'n, :"),
            ("select 1", "select 1"),
        ] {
            assert_eq!(variables.interpolate(text), expected, "{text}");
        }
        variables.unset("n");
        assert_eq!(variables.interpolate("select :n"), "select :n");
    }
}
