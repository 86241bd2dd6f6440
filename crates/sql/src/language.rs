//! The languages of statements, and the statement that changes a session's.

use std::str::FromStr;

use datafusion::sql::sqlparser::dialect::Dialect;

use crate::dialect::SqlDialect;
use crate::hive::dialect::HiveSqlDialect;
use crate::words::first_word;

/// The setting that has a session's language.
pub const SETTING: &str = "harrier.dialect";

/// The language of a statement's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    #[default]
    Postgres,
    /// HiveQL, as Hive 4 has it.
    Hive,
}

impl Language {
    pub const NAMES: [&str; 2] = ["postgres", "hive"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Hive => "hive",
        }
    }

    pub fn dialect(self) -> Box<dyn Dialect> {
        match self {
            Self::Postgres => Box::new(SqlDialect),
            Self::Hive => Box::new(HiveSqlDialect),
        }
    }

    /// The language that `text` sets for what comes after it, if it is `SET harrier.dialect = …`. A text of
    /// several statements is split before any of them runs.
    pub fn set_by(text: &str) -> Option<Self> {
        if !first_word(text).eq_ignore_ascii_case("set") {
            return None;
        }
        let at = text.find(|sign: char| sign.is_ascii_whitespace())?;
        let (name, value) = text[at..].split_once('=')?;
        if !name.trim().eq_ignore_ascii_case(SETTING) {
            return None;
        }
        value.trim().trim_matches(['\'', '"']).to_ascii_lowercase().parse().ok()
    }
}

impl FromStr for Language {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "postgres" => Ok(Self::Postgres),
            "hive" => Ok(Self::Hive),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_it_are_seen() {
        for (text, expected) in [
            ("SET harrier.dialect = hive", Some(Language::Hive)),
            ("set Harrier.Dialect='postgres'", Some(Language::Postgres)),
            ("-- x\nSET harrier.dialect = hive", None),
            ("SET harrier.dialects = hive", None),
            ("SELECT 'harrier.dialect = hive'", None),
            ("SET harrier.dialect = oracle", None),
        ] {
            assert_eq!(Language::set_by(text), expected, "{text}");
        }
    }
}
