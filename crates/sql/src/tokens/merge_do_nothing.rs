//! `THEN DO NOTHING` of MERGE, which the parser does not know. For the parser it becomes an assignment to a
//! placeholder column, for the planner an UPDATE without assignments.

use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, MergeAction, MergeUpdateExpr, ObjectName, Statement,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Edit, Tokens, word};

/// Name of the placeholder column.
const NOTHING: &str = "\u{1}nothing";

/// Replaces each DO NOTHING by a clause that the parser knows.
pub fn rewrite(tokens: &mut Tokens<'_>) {
    if !tokens.may_have(&[Keyword::MERGE]) || !tokens.may_have(&[Keyword::NOTHING]) {
        return;
    }
    // Whether the current clause is WHEN NOT MATCHED [BY TARGET].
    let mut inserts = None;
    let mut edits = Vec::new();
    for at in 1..tokens.len() {
        if tokens.is(at, "matched") {
            inserts = Some(tokens.is(at - 1, "not") && !tokens.are(at + 1, &["by", "source"]));
        }
        if let Some(inserts) = inserts
            && tokens.are(at, &["then", "do", "nothing"])
        {
            let column = Token::make_word(NOTHING, Some('"'));
            let zero = Token::Number("0".to_string(), false);
            let (open, close) = (Token::LParen, Token::RParen);
            let clause = match inserts {
                true => vec![
                    word("INSERT"),
                    open.clone(),
                    column,
                    close.clone(),
                    word("VALUES"),
                    open,
                    zero,
                    close,
                ],
                false => vec![word("UPDATE"), word("SET"), column, Token::Eq, zero],
            };
            edits.push(Edit::replace(at + 1..at + 3, clause));
        }
    }
    tokens.edit(edits);
}

/// Removes the assignments to the placeholder column.
pub fn remove_placeholders(statement: &mut Statement) {
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
        Statement::Prepare { statement, .. } => remove_placeholders(statement),
        _ => {}
    }
}

fn is_nothing(name: &ObjectName) -> bool {
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|name| name.value == NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::SqlDialect;
    use crate::tokens::testing::edited_text;

    #[test]
    fn merge_do_nothing_becomes_an_empty_assignment() {
        let text = "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED AND t.b > 1 THEN DO NOTHING \
                    WHEN NOT MATCHED BY SOURCE THEN DO NOTHING WHEN NOT MATCHED THEN do nothing \
                    WHEN MATCHED THEN UPDATE SET b = 1";
        let mut tokens = Tokens::of(text, &SqlDialect).unwrap();
        rewrite(&mut tokens);
        let mut statement = tokens.parser(50).parse_statement().unwrap();
        remove_placeholders(&mut statement);
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
    fn other_statements_are_unchanged() {
        for text in ["INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "SELECT 'merge nothing'", "é"] {
            assert_eq!(edited_text(text, rewrite), edited_text(text, |_| ()), "{text}");
        }
    }
}
