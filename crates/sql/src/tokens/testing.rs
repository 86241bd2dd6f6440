//! Helpers of the unit tests of token rewrites.

use super::Tokens;
use crate::dialect::SqlDialect;

/// Tokenizes `text`, applies `change`, and joins the tokens with blanks.
pub fn edited_text(text: &str, change: impl FnOnce(&mut Tokens<'_>)) -> String {
    let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
    change(&mut tokens);
    tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
