//! What one random statement is made with: its choices, and how many names and subqueries it has.

use super::choices::Choices;
use super::scope::{KINDS, Kind};

/// Generates the parts of one statement.
pub(super) struct Maker<'a> {
    pub(super) choices: &'a mut Choices,
    pub(super) aliases: usize,
    /// Number of subqueries that the statement may still have.
    pub(super) subqueries: usize,
}

impl Maker<'_> {
    pub(super) fn new(choices: &mut Choices) -> Maker<'_> {
        Maker { choices, aliases: 0, subqueries: 4 }
    }

    /// A name that is unique in the statement.
    pub(super) fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("q{}", self.aliases)
    }

    pub(super) fn kind(&mut self) -> Kind {
        KINDS[self.choices.choose(KINDS.len())]
    }
}
