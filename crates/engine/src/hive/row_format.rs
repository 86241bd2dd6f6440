//! `ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' …` of CREATE EXTERNAL TABLE, as Hive has it: options of its
//! text files.
//!
//! The parser does not know the clause: it is cut out of the text, with blanks in its place.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::warehouse::Words;

/// What a clause says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RowFormat {
    /// Names and values of options.
    options: Vec<(&'static str, String)>,
}

/// The text to be parsed, and the clause that was in it.
///
/// Errors: it is wrong (42601), or says what text files here have not (0A000).
pub(crate) fn cut(text: String) -> Result<(String, Option<RowFormat>)> {
    let lower = text.to_ascii_lowercase();
    if !["external", "row", "format"].iter().all(|word| lower.contains(word)) {
        return Ok((text, None));
    }
    let Some(words) = Words::of(&text) else {
        return Ok((text, None));
    };
    let is_create = words.is_at(0, "create") && (1..5).any(|at| words.is_at(at, "external"));
    let mut start = 1;
    while is_create && words.token(start).is_some() {
        if words.is_at(start, "row") && words.is_at(start + 1, "format") {
            break;
        }
        // The columns may be called anything.
        start = match words.token(start) {
            Some(Token::LParen) => words.after_parentheses(start).unwrap_or(start + 1),
            _ => start + 1,
        };
    }
    if !is_create || words.token(start).is_none() {
        return Ok((text, None));
    }
    let refused = |message: &str| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
    if !words.is_at(start + 2, "delimited") {
        return Err(refused("of ROW FORMAT only DELIMITED is supported").into_datafusion());
    }
    let mut format = RowFormat::default();
    let mut at = start + 3;
    let value = |at: usize| match words.token(at) {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => Ok(text.clone()),
        Some(Token::Number(number, _)) => Ok(number.clone()),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "ROW FORMAT DELIMITED … BY needs a text")),
    };
    let follows = |at: usize, clause: &[&str]| {
        clause.iter().enumerate().all(|(place, word)| words.is_at(at + place, word))
    };
    loop {
        if follows(at, &["fields", "terminated", "by"]) {
            format.options.push(("format.delimiter", value(at + 3).map_err(harrier_sqlstate::external)?));
            at += 4;
        } else if follows(at, &["escaped", "by"]) {
            format.options.push(("format.escape", value(at + 2).map_err(harrier_sqlstate::external)?));
            at += 3;
        } else if follows(at, &["null", "defined", "as"]) {
            format.options.push(("format.null_value", value(at + 3).map_err(harrier_sqlstate::external)?));
            at += 4;
        } else if follows(at, &["lines", "terminated", "by"]) {
            if !matches!(
                value(at + 3).map_err(harrier_sqlstate::external)?.as_str(),
                "\n" | "\\n" | "\\012" | "10"
            ) {
                return Err(refused("lines of text files end with a line feed").into_datafusion());
            }
            at += 4;
        } else if words.is_at(at, "collection") || follows(at, &["map", "keys"]) {
            return Err(refused("text files have no nested columns").into_datafusion());
        } else {
            break;
        }
    }
    let text = words.blank(text, &[start..at]);
    Ok((text, Some(format)))
}

impl RowFormat {
    /// Gives the statement its options.
    ///
    /// Errors: it makes no table of text files (42601).
    pub(crate) fn apply(self, statement: &mut Statement) -> Result<()> {
        match statement {
            Statement::CreateExternalTable(create) if create.file_type.eq_ignore_ascii_case("textfile") => {
                let options = self.options.into_iter();
                let value = ast::Value::SingleQuotedString;
                create.options.extend(options.map(|(name, text)| (name.to_string(), value(text))));
                Ok(())
            }
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "ROW FORMAT DELIMITED is of STORED AS TEXTFILE")
                .into_datafusion()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_cut() {
        let text = "CREATE EXTERNAL TABLE t (row INT, format TEXT) ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' \
                    ESCAPED BY '\\' LINES TERMINATED BY '\\n' NULL DEFINED AS '-' STORED AS TEXTFILE LOCATION 'x/'";
        let (rest, format) = cut(text.to_string()).unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "CREATE EXTERNAL TABLE t (row INT, format TEXT) STORED AS TEXTFILE LOCATION 'x/'"
        );
        let option = |name, value: &str| (name, value.to_string());
        assert_eq!(
            format.unwrap().options,
            [
                option("format.delimiter", "|"),
                option("format.escape", "\\"),
                option("format.null_value", "-")
            ]
        );
        for other in [
            "SELECT 'external row format'",
            "CREATE EXTERNAL TABLE t (row INT, format TEXT) STORED AS CSV LOCATION 'x/'",
            "CREATE TABLE external (a INT)",
        ] {
            assert_eq!(cut(other.to_string()).unwrap(), (other.to_string(), None), "{other}");
        }
        for (clause, state) in [
            ("SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'", "0A000"),
            ("DELIMITED COLLECTION ITEMS TERMINATED BY ','", "0A000"),
            ("DELIMITED LINES TERMINATED BY 'x'", "0A000"),
            ("DELIMITED FIELDS TERMINATED BY STORED", "42601"),
        ] {
            let text = format!("CREATE EXTERNAL TABLE t (a INT) ROW FORMAT {clause} STORED AS TEXTFILE");
            let error = cut(text).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), state, "{clause}: {error}");
        }
    }
}
