//! Token cursor of the statement parsers.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::identifier::plain;

/// The first word of a text, behind blanks and comments; empty if it begins with no word.
pub fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(line), _) => line.split_once('\n').map_or("", |(_, rest)| rest),
            (_, Some(comment)) => after_comment(comment),
            _ => break,
        }
        .trim_start();
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '$'));
    &rest[..end.unwrap_or(rest.len())]
}

/// What follows a block comment that has begun. Block comments nest.
fn after_comment(text: &str) -> &str {
    let mut depth = 1;
    let mut at = 0;
    while let Some(found) = text[at..].find(['*', '/']) {
        at += found;
        let (step, change) = match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (2, 1),
            [b'*', b'/', ..] => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth += change;
        if depth == 0 {
            return &text[at..];
        }
    }
    ""
}

/// A syntax error at `token` (42601).
pub fn syntax_error_near(token: &Token) -> DataFusionError {
    let message = match token {
        Token::EOF => "syntax error at end of input".to_string(),
        other => format!("syntax error at or near \"{other}\""),
    };
    SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion()
}

/// Cursor over a statement's tokens. Keywords match in any case, and never if quoted.
pub struct StatementWords<'a>(pub Parser<'a>);

impl StatementWords<'_> {
    pub fn is_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.0.peek_nth_token(ahead).token, Token::Word(found)
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    pub fn is(&self, word: &str) -> bool {
        self.is_at(0, word)
    }

    pub fn take(&mut self, word: &str) -> bool {
        let found = self.is(word);
        if found {
            self.0.next_token();
        }
        found
    }

    pub fn take_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.take(word))
    }

    /// Consumes all of `words`, or none.
    pub fn take_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(ahead, word)| self.is_at(ahead, word));
        if found {
            words.iter().for_each(|_| drop(self.0.next_token()));
        }
        found
    }

    pub fn expect(&mut self, word: &str) -> Result<()> {
        match self.take(word) {
            true => Ok(()),
            false => Err(self.syntax_error()),
        }
    }

    pub fn syntax_error(&self) -> DataFusionError {
        syntax_error_near(&self.0.peek_token().token)
    }

    /// Consumes a string literal, if one is next.
    pub fn optional_text(&mut self) -> Option<String> {
        let text = match self.0.peek_token().token {
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text) => text,
            Token::DollarQuotedString(text) => text.value,
            _ => return None,
        };
        self.0.next_token();
        Some(text)
    }

    pub fn name(&mut self) -> Result<String> {
        match self.0.peek_token().token {
            Token::Word(_) => Ok(plain(&self.0.parse_identifier()?)),
            other => Err(syntax_error_near(&other)),
        }
    }

    pub fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.0.consume_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    pub fn object(&mut self) -> Result<ObjectName> {
        Ok(self.0.parse_object_name(false)?)
    }

    pub fn objects(&mut self) -> Result<Vec<ObjectName>> {
        let mut names = vec![self.object()?];
        while self.0.consume_token(&Token::Comma) {
            names.push(self.object()?);
        }
        Ok(names)
    }

    /// `table [(column, …)]`
    pub fn table_with_columns(&mut self) -> Result<(ObjectName, Vec<Ident>)> {
        let name = self.object()?;
        let columns = match self.0.consume_token(&Token::LParen) {
            true => {
                let columns = self.0.parse_comma_separated(|parser| parser.parse_identifier())?;
                self.0.expect_token(&Token::RParen)?;
                columns
            }
            false => vec![],
        };
        Ok((name, columns))
    }

    /// Errors: tokens other than semicolons are left (42601).
    pub fn end(&mut self) -> Result<()> {
        while self.0.consume_token(&Token::SemiColon) {}
        match self.0.peek_token().token {
            Token::EOF => Ok(()),
            _ => Err(self.syntax_error()),
        }
    }

    pub fn text(&mut self) -> Result<String> {
        match self.0.next_token().token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
            other => Err(syntax_error_near(&other)),
        }
    }

    pub fn integer(&mut self) -> Result<i64> {
        let is_negative = self.0.consume_token(&Token::Minus);
        let token = self.0.next_token().token;
        let number = match &token {
            Token::Number(number, _) => number.parse::<i64>().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| syntax_error_near(&token))?;
        Ok(if is_negative { -number } else { number })
    }

    /// Consumes a string literal, a word or a number.
    pub fn value(&mut self) -> Result<String> {
        let is_negative = self.0.consume_token(&Token::Minus);
        match self.0.next_token().token {
            Token::Number(number, _) if is_negative => Ok(format!("-{number}")),
            Token::Number(number, _) => Ok(number),
            Token::SingleQuotedString(text) if !is_negative => Ok(text),
            Token::Word(word) if !is_negative => Ok(word.value),
            other => Err(syntax_error_near(&other)),
        }
    }
}
