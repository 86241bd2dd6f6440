//! `CREATE VIEW … WITH (security_barrier) AS …`.

use datafusion::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::tokens::Tokens;

impl Tokens<'_> {
    /// Takes the options of a view. Returns whether it is a security barrier; `None` if the statement creates
    /// no view with options.
    ///
    /// Errors: an option is unknown or has an invalid value (22023), or is not supported (0A000).
    pub(super) fn take_view(&mut self) -> Result<Option<bool>> {
        let Some(with) = self.view_options() else { return Ok(None) };
        let (options, end) = self.list(with + 1)?;
        let mut is_barrier = false;
        for option in options {
            let name = self.name(option.start).unwrap_or_default();
            let value = match (option.len(), self.token(option.start + 1), self.token(option.start + 2)) {
                (1, ..) => "true".to_string(),
                (3, Some(Token::Eq), Some(value)) => match value {
                    Token::Word(word) => word.value.to_lowercase(),
                    Token::Number(number, _) => number.clone(),
                    Token::SingleQuotedString(text) => text.to_lowercase(),
                    _ => return Err(invalid_option_error(&name, &value.to_string())),
                },
                _ => return Err(invalid_option_error(&name, self.source(option))),
            };
            let is_on = || match value.as_str() {
                "true" | "t" | "on" | "yes" | "1" => Ok(true),
                "false" | "f" | "off" | "no" | "0" => Ok(false),
                _ => Err(invalid_option_error(&name, &value)),
            };
            match name.as_str() {
                "security_barrier" => is_barrier = is_on()?,
                "security_invoker" if !is_on()? => {}
                "security_invoker" | "check_option" => {
                    let message = format!("views with {name} are not supported");
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
                }
                _ => {
                    let message = format!("unrecognized parameter \"{name}\"");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
                }
            }
        }
        self.remove(with..end);
        Ok(Some(is_barrier))
    }

    /// The index of WITH in `CREATE [OR REPLACE] [TEMPORARY] VIEW [IF NOT EXISTS] name [(columns)] WITH
    /// (options) AS`.
    fn view_options(&self) -> Option<usize> {
        if !self.is(0, "create") {
            return None;
        }
        let mut at = 1;
        while ["or", "replace", "temp", "temporary"].iter().any(|word| self.is(at, word)) {
            at += 1;
        }
        if !self.is(at, "view") {
            return None;
        }
        at += 1;
        while ["if", "not", "exists"].iter().any(|word| self.is(at, word)) {
            at += 1;
        }
        at = self.after_name(at);
        if matches!(self.token(at), Some(Token::LParen)) {
            at = self.after_parentheses(at)?;
        }
        (self.is(at, "with") && matches!(self.token(at + 1), Some(Token::LParen))).then_some(at)
    }
}

fn invalid_option_error(name: &str, value: &str) -> datafusion::error::DataFusionError {
    let message = format!("invalid value for option \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn options_of_views_are_taken() {
        let cases = [
            ("CREATE VIEW v WITH (security_barrier) AS SELECT 1", Some(true)),
            ("create or replace view s.v (a, b) with (security_barrier = true) as SELECT 1, 2", Some(true)),
            ("CREATE VIEW v WITH (security_barrier=off, security_invoker=false) AS SELECT 1", Some(false)),
            ("CREATE VIEW v AS WITH (a) AS SELECT 1", None),
            ("CREATE VIEW v AS SELECT 1", None),
        ];
        for (text, expected) in cases {
            let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
            assert_eq!(tokens.take_view().unwrap(), expected, "{text}");
            assert!(!tokens.iter().any(|token| token.to_string().contains("security")), "{text}");
        }
        for (text, state) in [
            ("CREATE VIEW v WITH (nosuch) AS SELECT 1", "22023"),
            ("CREATE VIEW v WITH (security_barrier = maybe) AS SELECT 1", "22023"),
            ("CREATE VIEW v WITH (security_barrier = 1 + 1) AS SELECT 1", "22023"),
            ("CREATE VIEW v WITH (security_invoker) AS SELECT 1", "0A000"),
            ("CREATE VIEW v WITH (check_option = local) AS SELECT 1", "0A000"),
        ] {
            let error = Tokens::of(text, &SqlDialect).unwrap().take_view().unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error).to_string(), state, "{text}");
        }
    }
}
