//! Hive's `ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' …` of CREATE EXTERNAL TABLE, as options of text
//! files.

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::tokens::Tokens;

/// The options that a ROW FORMAT clause sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowFormat {
    /// Option names and values.
    options: Vec<(&'static str, String)>,
}

/// Takes the ROW FORMAT clause, if there is one.
///
/// Errors: it is malformed (42601), or not supported for text files (0A000).
pub fn take(tokens: &mut Tokens<'_>) -> Result<Option<RowFormat>> {
    if !tokens.is(0, "create") || !(1..5).any(|at| tokens.is(at, "external")) {
        return Ok(None);
    }
    let mut start = 1;
    while !tokens.are(start, &["row", "format"]) {
        // Columns may have any names.
        start = match tokens.token(start) {
            None => return Ok(None),
            Some(Token::LParen) => tokens.after_parentheses(start).unwrap_or(start + 1),
            Some(_) => start + 1,
        };
    }
    let refused = |message: &str| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
    if !tokens.is(start + 2, "delimited") {
        return Err(refused("of ROW FORMAT only DELIMITED is supported").into_datafusion());
    }
    let mut format = RowFormat::default();
    let mut at = start + 3;
    let value = |at: usize| match tokens.token(at) {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => Ok(text.clone()),
        Some(Token::Number(number, _)) => Ok(number.clone()),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "ROW FORMAT DELIMITED … BY needs a text")),
    };
    loop {
        if tokens.are(at, &["fields", "terminated", "by"]) {
            format.options.push(("format.delimiter", value(at + 3).map_err(harrier_sqlstate::external)?));
            at += 4;
        } else if tokens.are(at, &["escaped", "by"]) {
            format.options.push(("format.escape", value(at + 2).map_err(harrier_sqlstate::external)?));
            at += 3;
        } else if tokens.are(at, &["null", "defined", "as"]) {
            format.options.push(("format.null_value", value(at + 3).map_err(harrier_sqlstate::external)?));
            at += 4;
        } else if tokens.are(at, &["lines", "terminated", "by"]) {
            if !matches!(
                value(at + 3).map_err(harrier_sqlstate::external)?.as_str(),
                "\n" | "\\n" | "\\012" | "10"
            ) {
                return Err(refused("lines of text files end with a line feed").into_datafusion());
            }
            at += 4;
        } else if tokens.is(at, "collection") || tokens.are(at, &["map", "keys"]) {
            return Err(refused("text files have no nested columns").into_datafusion());
        } else {
            break;
        }
    }
    tokens.remove(start..at);
    Ok(Some(format))
}

impl RowFormat {
    /// Adds the options to the statement.
    ///
    /// Errors: the statement creates no table of text files (42601).
    pub fn apply(self, statement: &mut Statement) -> Result<()> {
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
    use crate::dialect::SqlDialect;

    #[test]
    fn clauses_are_cut() {
        let text = "CREATE EXTERNAL TABLE t (row INT, format TEXT) ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' \
                    ESCAPED BY '\\' LINES TERMINATED BY '\\n' NULL DEFINED AS '-' STORED AS TEXTFILE LOCATION 'x/'";
        let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
        let format = take(&mut tokens).unwrap();
        assert_eq!(
            tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            "CREATE EXTERNAL TABLE t ( row INT , format TEXT ) STORED AS TEXTFILE LOCATION 'x/'"
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
            assert_eq!(take(&mut Tokens::of(other, &SqlDialect).unwrap()).unwrap(), None, "{other}");
        }
        for (clause, state) in [
            ("SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'", "0A000"),
            ("DELIMITED COLLECTION ITEMS TERMINATED BY ','", "0A000"),
            ("DELIMITED LINES TERMINATED BY 'x'", "0A000"),
            ("DELIMITED FIELDS TERMINATED BY STORED", "42601"),
        ] {
            let text = format!("CREATE EXTERNAL TABLE t (a INT) ROW FORMAT {clause} STORED AS TEXTFILE");
            let error = take(&mut Tokens::of(&text, &SqlDialect).unwrap()).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).as_str(), state, "{clause}: {error}");
        }
    }
}
