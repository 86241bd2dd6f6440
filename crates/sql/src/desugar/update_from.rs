//! `UPDATE … FROM` and `DELETE … USING`: the first becomes a MERGE, the second an EXISTS condition. A row
//! that several source rows would update fails, as with MERGE (21000); PostgreSQL takes any of them.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Merge, MergeAction, MergeClause, MergeClauseKind, MergeUpdateExpr, OutputClause,
    SelectItem, Statement, TableFactor, TableWithJoins, Update, UpdateTableFromKind,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::ast_builder::{boolean, cross_joined, number, query_where};
use crate::identifier::plain;

/// Rewrites such a statement in place. Clauses that neither form supports (LIMIT) leave it unchanged for the
/// planner to reject; a DELETE with RETURNING is unchanged until the caller has removed RETURNING.
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Update(update) => {
            if let Some(merge) = merge(update)? {
                *statement = merge;
            }
        }
        // `into` marks a MERGE of the user, with or without the keyword, for [`is_update_from`].
        Statement::Merge(merge) => merge.into = true,
        Statement::Delete(delete) => {
            if let Some(condition) = condition(delete)? {
                delete.using = None;
                delete.selection = Some(condition);
            }
        }
        Statement::Prepare { statement, .. } => rewrite(statement)?,
        _ => {}
    }
    Ok(())
}

fn merge(update: &Update) -> Result<Option<Statement>> {
    let Update { table, assignments, from, selection, returning, output, or, order_by, limit, .. } = update;
    let Some(UpdateTableFromKind::AfterSet(from)) = from else { return Ok(None) };
    let is_plain =
        output.is_none() && or.is_none() && order_by.is_empty() && limit.is_none() && table.joins.is_empty();
    if !is_plain || from.is_empty() {
        return Ok(None);
    }
    check_names(&table.relation, from)?;
    let Some(sources) = cross_joined(from) else { return Ok(None) };
    let source = match sources.joins.is_empty() {
        true => sources.relation,
        false => TableFactor::NestedJoin { table_with_joins: Box::new(sources), alias: None },
    };
    let change = MergeUpdateExpr {
        update_token: AttachedToken::empty(),
        assignments: assignments.clone(),
        update_predicate: None,
        delete_predicate: None,
    };
    let clause = MergeClause {
        when_token: AttachedToken::empty(),
        clause_kind: MergeClauseKind::Matched,
        predicate: None,
        action: MergeAction::Update(change),
    };
    let returned = |select_items: &Vec<SelectItem>| OutputClause::Returning {
        returning_token: AttachedToken::empty(),
        select_items: select_items.clone(),
    };
    Ok(Some(Statement::Merge(Merge {
        merge_token: AttachedToken::empty(),
        optimizer_hints: vec![],
        into: false,
        table: table.relation.clone(),
        source,
        on: Box::new(selection.clone().unwrap_or_else(|| boolean(true))),
        clauses: vec![clause],
        output: returning.as_ref().map(returned),
    })))
}

/// Whether a statement is a rewritten `UPDATE … FROM`.
pub fn is_update_from(statement: &Statement) -> bool {
    matches!(statement, Statement::Merge(merge) if !merge.into)
}

/// The EXISTS condition of a DELETE … USING.
fn condition(delete: &Delete) -> Result<Option<Expr>> {
    let Delete { using, selection, returning, output, order_by, limit, .. } = delete;
    let Some(using) = using.as_deref().filter(|using| !using.is_empty()) else { return Ok(None) };
    if returning.is_some() || output.is_some() || !order_by.is_empty() || limit.is_some() {
        return Ok(None);
    }
    if let FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) = &delete.from
        && let [target] = from.as_slice()
    {
        check_names(&target.relation, using)?;
    }
    let condition = selection.clone().unwrap_or_else(|| boolean(true));
    let from = cross_joined(using).into_iter().collect();
    let query = query_where(vec![SelectItem::UnnamedExpr(number("1"))], from, condition);
    Ok(Some(Expr::Exists { subquery: Box::new(query), negated: false }))
}

/// Errors: another relation has the target table's name (42712).
fn check_names(target: &TableFactor, others: &[TableWithJoins]) -> Result<()> {
    let Some(own) = name_of(target) else { return Ok(()) };
    let mut relations = others
        .iter()
        .flat_map(|one| [&one.relation].into_iter().chain(one.joins.iter().map(|join| &join.relation)));
    match relations.any(|relation| name_of(relation).is_some_and(|name| name == own)) {
        true => {
            let message = format!("table name \"{own}\" specified more than once");
            Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message).into_datafusion())
        }
        false => Ok(()),
    }
}

/// The name or alias of a relation.
pub(super) fn name_of(relation: &TableFactor) -> Option<String> {
    match relation {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(plain(&alias.name))
        }
        TableFactor::Table { name, alias: None, .. } => name.0.last()?.as_ident().map(plain),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::SetExpr;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::dialect::SqlDialect;

    fn parse(text: &str) -> Result<Statement> {
        Ok(Parser::parse_sql(&SqlDialect, text)?.remove(0))
    }

    fn rewritten(sql: &str) -> String {
        let mut statement = parse(sql).unwrap();
        rewrite(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn update_from_and_delete_using_are_rewritten() {
        for (sql, expected) in [
            (
                "UPDATE t SET a = s.a, b = t.b + 1 FROM s WHERE t.k = s.k",
                "MERGE t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = s.a, b = t.b + 1",
            ),
            (
                "UPDATE main.t AS x SET a = 1 FROM (SELECT 1 AS k) AS s, u JOIN v ON u.i = v.i",
                "MERGE main.t AS x USING ((SELECT 1 AS k) AS s CROSS JOIN u JOIN v ON u.i = v.i) ON true \
                 WHEN MATCHED THEN UPDATE SET a = 1",
            ),
            (
                "PREPARE p AS UPDATE t SET a = s.a FROM s WHERE t.k = s.k AND s.i = $1",
                "PREPARE p AS MERGE t USING s ON t.k = s.k AND s.i = $1 WHEN MATCHED THEN UPDATE SET a = s.a",
            ),
            (
                "UPDATE t SET a = s.a FROM s WHERE t.k = s.k RETURNING t.a AS b, s.*",
                "MERGE t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = s.a RETURNING t.a AS b, s.*",
            ),
            (
                "DELETE FROM t USING s, u WHERE t.k = s.k AND s.i = u.i",
                "DELETE FROM t WHERE EXISTS (SELECT 1 FROM s CROSS JOIN u WHERE t.k = s.k AND s.i = u.i)",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn is_distinct_from_ends_at_its_operand() {
        let sql = "DELETE FROM t USING s WHERE t.a IS DISTINCT FROM s.a AND false";
        let expected =
            "DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE t.a IS DISTINCT FROM s.a AND false)";
        let mut statement = parse(sql).unwrap();
        rewrite(&mut statement).unwrap();
        assert_eq!(statement.to_string(), expected);
        let Statement::Delete(Delete { selection: Some(Expr::Exists { subquery, .. }), .. }) = statement
        else {
            panic!("a DELETE")
        };
        let SetExpr::Select(select) = *subquery.body else { panic!("a SELECT") };
        assert!(matches!(select.selection, Some(Expr::BinaryOp { .. })));
    }

    #[test]
    fn a_name_is_of_one_relation() {
        for sql in [
            "DELETE FROM t USING t WHERE true",
            "DELETE FROM s.t USING u JOIN v AS T ON true",
            "UPDATE t AS q SET a = 1 FROM (SELECT 1) AS q",
        ] {
            assert!(
                rewrite(&mut parse(sql).unwrap()).unwrap_err().to_string().contains("more than once"),
                "{sql}"
            );
        }
    }

    #[test]
    fn other_statements_are_unchanged() {
        for sql in [
            "UPDATE t SET a = 1 WHERE k = 2",
            "DELETE FROM t USING s WHERE t.k = s.k RETURNING t.a",
            "DELETE FROM t WHERE k = 2",
            "SELECT 1",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
