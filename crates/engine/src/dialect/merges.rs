//! `THEN DO NOTHING` of MERGE, which the parser does not know: it is given a clause that assigns to a column
//! of no table, and the planner one that assigns nothing.

use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, MergeAction, MergeUpdateExpr, ObjectName, Statement,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The column.
const NOTHING: &str = "\u{1}nothing";

/// The tokens to parse instead of `text`, or of `tokens` if it is told to parse others already.
pub(crate) fn tokens(
    text: &str,
    tokens: Option<Vec<TokenWithSpan>>,
    dialect: &dyn Dialect,
) -> Option<Vec<TokenWithSpan>> {
    let lower = text.to_ascii_lowercase();
    if !(lower.contains("merge") && lower.contains("nothing")) {
        return tokens;
    }
    let mut tokens = match tokens {
        Some(tokens) => tokens,
        None => Tokenizer::new(dialect, text).tokenize_with_location().ok()?,
    };
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    let is = |at: usize, word: &str| {
        matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(found))
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    };
    let mut written = Vec::with_capacity(tokens.len());
    // Whether the clause is about rows that are not in the table.
    let mut inserts = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        written.push(token.clone());
        at += 1;
        if is(at - 1, "matched") && at > 1 {
            inserts = Some(is(at - 2, "not") && !(is(at, "by") && is(at + 1, "source")));
        }
        if let Some(inserts) = inserts
            && is(at - 1, "then")
            && is(at, "do")
            && is(at + 1, "nothing")
        {
            let word = |word: &str| Token::make_word(word, None);
            let column = Token::make_word(NOTHING, Some('"'));
            let zero = Token::Number("0".to_string(), false);
            let clause = match inserts {
                true => vec![
                    word("INSERT"),
                    Token::LParen,
                    column,
                    Token::RParen,
                    word("VALUES"),
                    Token::LParen,
                    zero,
                    Token::RParen,
                ],
                false => vec![word("UPDATE"), word("SET"), column, Token::Eq, zero],
            };
            let span = tokens[at].span;
            written.extend(clause.into_iter().map(|token| TokenWithSpan { token, span }));
            at += 2;
        }
    }
    Some(written)
}

/// Has the clauses that do nothing assign nothing.
pub(super) fn rewrite(statement: &mut Statement) {
    match statement {
        Statement::Merge(merge) => {
            for clause in &mut merge.clauses {
                match &mut clause.action {
                    MergeAction::Update(update) => {
                        update.assignments.retain(|assignment| {
                            !matches!(&assignment.target, AssignmentTarget::ColumnName(name) if is_nothing(name))
                        });
                    }
                    MergeAction::Insert(insert) if insert.columns.iter().any(is_nothing) => {
                        clause.action = MergeAction::Update(MergeUpdateExpr {
                            update_token: insert.insert_token.clone(),
                            assignments: vec![],
                            update_predicate: None,
                            delete_predicate: None,
                        });
                    }
                    MergeAction::Insert(_) | MergeAction::Delete { .. } => {}
                }
            }
        }
        Statement::Prepare { statement, .. } => rewrite(statement),
        _ => {}
    }
}

fn is_nothing(name: &ObjectName) -> bool {
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| name.value == NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    #[test]
    fn clauses_that_do_nothing_assign_nothing() {
        let text = "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED AND t.b > 1 THEN DO NOTHING \
                    WHEN NOT MATCHED BY SOURCE THEN DO NOTHING WHEN NOT MATCHED THEN do nothing \
                    WHEN MATCHED THEN UPDATE SET b = 1";
        let tokens = tokens(text, None, &PostgreSqlDialect {}).unwrap();
        let mut statement = Parser::new(&PostgreSqlDialect {}).with_tokens_with_locations(tokens);
        let mut statement = statement.parse_statement().unwrap();
        rewrite(&mut statement);
        let Statement::Merge(merge) = statement else { panic!("a MERGE") };
        let assigned: Vec<_> = merge
            .clauses
            .iter()
            .map(|clause| match &clause.action {
                MergeAction::Update(update) => update.assignments.len(),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(assigned, [0, 0, 0, 1]);
    }

    #[test]
    fn others_are_left_alone() {
        for text in ["INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "SELECT 'merge nothing", "é"] {
            assert!(tokens(text, None, &PostgreSqlDialect {}).is_none(), "{text}");
        }
    }
}
