//! `ALTER VIEW v RENAME …`, which the parser accepts for tables only, as `ALTER TABLE v RENAME …`, which
//! PostgreSQL also accepts for views.

use super::{Tokens, word};

/// Replaces VIEW by TABLE. Returns whether the statement was such a rename.
pub fn rewrite(tokens: &mut Tokens<'_>) -> bool {
    if !tokens.are(0, &["alter", "view"]) {
        return false;
    }
    let name = if tokens.are(2, &["if", "exists"]) { 4 } else { 2 };
    let is_renamed = tokens.is(tokens.after_name(name), "rename");
    if is_renamed {
        tokens.replace(1..2, [word("TABLE")]);
    }
    is_renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;

    #[test]
    fn renamed_views_are_found() {
        for (text, expected) in [
            ("ALTER VIEW v RENAME TO w", true),
            ("alter /* a */ view if exists s.\"v\" rename to w;", true),
            ("ALTER VIEW v RENAME COLUMN a TO b", true),
            ("ALTER TABLE v RENAME TO w", false),
            ("ALTER VIEW v AS SELECT rename", false),
            ("SELECT 'ALTER VIEW v RENAME TO w'", false),
        ] {
            let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
            assert_eq!(rewrite(&mut tokens), expected, "{text}");
            assert_eq!(tokens.is(1, "table"), expected || text.contains("TABLE"), "{text}");
        }
    }
}
