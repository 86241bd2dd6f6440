//! Statements about the files of tables that the parser does not know, as statements that it does.

use super::index::call;
use crate::tokens::{Tokens, word};

/// Writes what the parser knows for OPTIMIZE; of another statement, nothing.
pub fn rewrite_optimize(tokens: &mut Tokens<'_>) {
    if tokens.is(0, "optimize") {
        let rest = if tokens.is(1, "table") { 2 } else { 1 };
        tokens.replace(0..rest, [word("VACUUM"), word("FULL")]);
    }
}

/// The same for OPTIMIZE, VACUUM DRY RUN and CHECK TABLE, of a warehouse.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    rewrite_optimize(tokens);
    if tokens.are(0, &["vacuum", "dry", "run"]) && tokens.ends_at(3) {
        call(tokens, 0..3, "vacuum_dry_run", vec![]);
    } else if tokens.are(0, &["check", "table"]) {
        call(tokens, 0..2, "check_table", vec![]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::testing::changed;

    #[test]
    fn statements_are_those_of_the_parser() {
        for (text, expected) in [
            ("OPTIMIZE", "VACUUM FULL"),
            ("optimize table s.t", "VACUUM FULL s . t"),
            ("OPTIMIZE t", "VACUUM FULL t"),
            ("VACUUM DRY RUN", "CALL vacuum_dry_run ( )"),
            ("vacuum dry run;", "CALL vacuum_dry_run ( )"),
            ("CHECK TABLE s.t", "CALL check_table ( s . t )"),
            ("VACUUM dry", "VACUUM dry"),
        ] {
            assert_eq!(changed(text, rewrite), expected);
        }
    }
}
