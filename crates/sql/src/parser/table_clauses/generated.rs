//! Serial and identity columns: `serial` and `GENERATED … AS IDENTITY (…)` with options in any order, which
//! become integer columns for the parser. Also `OVERRIDING … VALUE` of an INSERT.

use std::ops::Range;

use datafusion::error::Result;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::super::sequence::{GeneratedColumn, IdentityKind, Overriding, SequenceOptions, options_of};
use crate::tokens::{Edit, Tokens, word};

/// Serial types, with the integer type that replaces each.
const SERIALS: [(&str, &str); 6] = [
    ("serial", "int"),
    ("serial4", "int"),
    ("bigserial", "bigint"),
    ("serial8", "bigint"),
    ("smallserial", "smallint"),
    ("serial2", "int2"),
];

/// Keywords of elements of a column list that are not columns.
const NO_COLUMNS: [&str; 7] = ["constraint", "primary", "unique", "foreign", "check", "exclude", "like"];

impl Tokens<'_> {
    /// Takes the serial types and identity clauses. Returns their columns.
    ///
    /// Errors: malformed options (42601); a temporary table (0A000).
    pub(super) fn take_generated(&mut self) -> Result<Vec<GeneratedColumn>> {
        let mut found = Vec::new();
        let mut cuts = Vec::new();
        let (definitions, is_temporary) = self.column_definitions();
        for definition in definitions {
            let Some(column) = self.name(definition.start) else { continue };
            let type_at = definition.start + 1;
            if type_at >= definition.end {
                continue;
            }
            if let Some((_, plain)) = SERIALS.iter().find(|(serial, _)| self.is(type_at, serial)) {
                cuts.push(Edit::replace(type_at..type_at + 1, [word(plain)]));
                let options = SequenceOptions::default();
                found.push(GeneratedColumn { column: column.clone(), identity: None, options });
            }
            for at in type_at + 1..definition.end {
                if let Some((identity, options, end)) = self.identity(at, definition.end)? {
                    cuts.push(Edit::remove(at..end));
                    found.push(GeneratedColumn { column: column.clone(), identity: Some(identity), options });
                }
            }
        }
        if is_temporary && !found.is_empty() {
            let message = "serial and identity columns of temporary tables are not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        self.edit(cuts);
        Ok(found)
    }

    /// The column definitions, and whether they are those of a temporary table.
    fn column_definitions(&self) -> (Vec<Range<usize>>, bool) {
        let is_temporary = self.is(0, "create") && (self.is(1, "temp") || self.is(1, "temporary"));
        let definitions = if self.is(0, "alter") && self.is(1, "table") {
            self.added_columns()
        } else {
            let open = match is_temporary {
                true => (2..self.len()).find(|at| self.token(*at) == Some(&Token::LParen)),
                false => self.table_definition().map(|definition| definition.start),
            };
            let open = open.filter(|open| self.token(*open) == Some(&Token::LParen));
            open.and_then(|open| self.list(open).ok()).map_or_else(Vec::new, |(list, _)| list)
        };
        let is_column =
            |definition: &Range<usize>| NO_COLUMNS.iter().all(|word| !self.is(definition.start, word));
        (definitions.into_iter().filter(is_column).collect(), is_temporary)
    }

    /// The column definitions of `ADD [COLUMN] [IF NOT EXISTS] …`.
    fn added_columns(&self) -> Vec<Range<usize>> {
        let mut definitions: Vec<Range<usize>> = Vec::new();
        let (mut at, mut begins) = (2, true);
        while at < self.len() {
            if let Some(last) = definitions.last_mut().filter(|last| last.end == usize::MAX)
                && matches!(self.token(at), Some(Token::Comma | Token::SemiColon))
            {
                last.end = at;
            }
            match self.token(at) {
                Some(Token::LParen) => {
                    at = self.after_parentheses(at).unwrap_or(self.len());
                    continue;
                }
                Some(Token::Comma) => begins = true,
                _ if begins && self.is(at, "add") => {
                    begins = false;
                    at += usize::from(self.is(at + 1, "column")) + 1;
                    if ["if", "not", "exists"]
                        .iter()
                        .enumerate()
                        .all(|(ahead, word)| self.is(at + ahead, word))
                    {
                        at += 3;
                    }
                    definitions.push(at..usize::MAX);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        definitions.into_iter().map(|definition| definition.start..definition.end.min(self.len())).collect()
    }

    /// Parses `GENERATED … AS IDENTITY` at `at`. Returns it with the index after it.
    fn identity(&self, at: usize, end: usize) -> Result<Option<(IdentityKind, SequenceOptions, usize)>> {
        let (identity, next) = if self.is(at, "generated") && self.is(at + 1, "always") {
            (IdentityKind::Always, at + 2)
        } else if self.is(at, "generated") && self.is(at + 1, "by") && self.is(at + 2, "default") {
            (IdentityKind::ByDefault, at + 3)
        } else {
            return Ok(None);
        };
        if !(self.is(next, "as") && self.is(next + 1, "identity")) {
            return Ok(None);
        }
        let open = next + 2;
        if open >= end || self.token(open) != Some(&Token::LParen) {
            return Ok(Some((identity, SequenceOptions::default(), open)));
        }
        let Some(after) = self.after_parentheses(open) else { return Ok(None) };
        let options = match after - open > 2 {
            true => options_of(&self.part(open + 1..after - 1))?,
            false => SequenceOptions::default(),
        };
        Ok(Some((identity, options, after)))
    }

    /// Takes `OVERRIDING … VALUE`.
    pub(super) fn take_overriding(&mut self) -> Option<Overriding> {
        if !self.may_have(&[Keyword::VALUE]) {
            return None;
        }
        let found = (1..self.len()).find_map(|at| {
            let overriding = match () {
                () if !self.is(at, "overriding") || !self.is(at + 2, "value") => return None,
                () if self.is(at + 1, "system") => Overriding::SystemValue,
                () if self.is(at + 1, "user") => Overriding::UserValue,
                () => return None,
            };
            Some((at, overriding))
        });
        found.map(|(at, overriding)| {
            self.remove(at..at + 3);
            overriding
        })
    }
}
