//! What unit tests ask of tokens.

use super::Tokens;
use crate::dialect::SqlDialect;

/// The tokens of `text` after `change`, between blanks.
pub fn changed(text: &str, change: impl FnOnce(&mut Tokens<'_>)) -> String {
    let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
    change(&mut tokens);
    tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
