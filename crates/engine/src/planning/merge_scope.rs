//! Names in `WHEN NOT MATCHED` of MERGE: there only the columns of the source are visible, but the planner
//! resolves them among those of both tables. Names that the target has, too, get the source's name in front.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, MergeAction, MergeClause, MergeClauseKind, MergeInsertKind, TableFactor, VisitMut,
    VisitorMut,
};
use harrier_sql::identifier::plain;

use crate::planning::default_values::{dml_statement, table_provider};

/// Qualifies names in the clauses of a MERGE that see the source alone.
///
/// Errors: the table lookup fails.
pub(crate) async fn qualify_source_names<'s>(
    state: &SessionState,
    mut statement: Cow<'s, Statement>,
) -> Result<Cow<'s, Statement>> {
    if !may_apply(statement.as_ref()) {
        return Ok(statement);
    }
    if let Some(ast::Statement::Merge(merge)) = dml_statement(statement.to_mut())
        && let Some(source) = name_of(&merge.source)
        && let TableFactor::Table { name, .. } = &merge.table
        && let Some(target) = table_provider(state, name).await?
    {
        let target: Vec<String> = target.schema().fields().iter().map(|field| field.name().clone()).collect();
        qualify_clauses(&mut merge.clauses, &source, &target);
    }
    Ok(statement)
}

/// Whether a statement is a MERGE with such a clause.
fn may_apply(statement: &Statement) -> bool {
    let is_meant = |statement: &ast::Statement| match statement {
        ast::Statement::Merge(merge) => merge.clauses.iter().any(sees_source_alone),
        _ => false,
    };
    match statement {
        Statement::Explain(explain) => may_apply(&explain.statement),
        Statement::Statement(statement) => match statement.as_ref() {
            ast::Statement::Prepare { statement, .. } => is_meant(statement),
            statement => is_meant(statement),
        },
        _ => false,
    }
}

fn sees_source_alone(clause: &MergeClause) -> bool {
    matches!(clause.clause_kind, MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget)
}

/// The name by which columns of the source are told; `None`: it has none, as joins in parentheses.
fn name_of(source: &TableFactor) -> Option<Vec<Ident>> {
    let alias = match source {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. } => alias,
        _ => return None,
    };
    match (alias, source) {
        (Some(alias), _) => Some(vec![alias.name.clone()]),
        (None, TableFactor::Table { name, args: None, .. }) => {
            name.0.iter().map(|part| part.as_ident().cloned()).collect()
        }
        _ => None,
    }
}

fn qualify_clauses(clauses: &mut [MergeClause], source: &[Ident], target: &[String]) {
    let mut names = Names { source, target, depth: 0 };
    for clause in clauses.iter_mut().filter(|clause| sees_source_alone(clause)) {
        if let Some(predicate) = &mut clause.predicate {
            let _ = predicate.visit(&mut names);
        }
        if let MergeAction::Insert(insert) = &mut clause.action
            && let MergeInsertKind::Values(values) = &mut insert.kind
        {
            for value in values.rows.iter_mut().flat_map(|row| &mut row.content) {
                let _ = value.visit(&mut names);
            }
        }
    }
}

struct Names<'n> {
    source: &'n [Ident],
    target: &'n [String],
    /// Nesting of subqueries, whose own columns come first.
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    harrier_sql::count_query_depth!(depth, mut);

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && self.target.contains(&plain(name))
        {
            let parts = self.source.iter().chain([&*name]).cloned().collect();
            *expr = Expr::CompoundIdentifier(parts);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;
    use harrier_sql::dialect::SqlDialect;

    use super::*;

    #[test]
    fn names_of_clauses_for_new_rows_are_of_the_source() {
        for (given, expected) in [
            (
                "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = id \
                 WHEN NOT MATCHED AND id > 1 THEN INSERT (id, v) VALUES (id, upper(V) || w)",
                "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = id \
                 WHEN NOT MATCHED AND s.id > 1 THEN INSERT (id, v) VALUES (s.id, upper(s.V) || w)",
            ),
            (
                "MERGE INTO t USING x.s AS \"Q\" ON t.id = id WHEN NOT MATCHED BY TARGET THEN \
                 INSERT VALUES (id, (SELECT v FROM u))",
                "MERGE INTO t USING x.s AS \"Q\" ON t.id = id WHEN NOT MATCHED BY TARGET THEN \
                 INSERT VALUES (\"Q\".id, (SELECT v FROM u))",
            ),
            (
                "MERGE INTO t USING x.s ON t.id = k WHEN NOT MATCHED THEN INSERT VALUES (id, s.v, \"V\")",
                "MERGE INTO t USING x.s ON t.id = k WHEN NOT MATCHED THEN INSERT VALUES (x.s.id, s.v, \"V\")",
            ),
        ] {
            let parsed = |text: &str| Parser::parse_sql(&SqlDialect, text).unwrap().remove(0);
            let mut statement = parsed(given);
            let ast::Statement::Merge(merge) = &mut statement else { panic!("{given}") };
            let source = name_of(&merge.source).unwrap();
            qualify_clauses(&mut merge.clauses, &source, &["id".to_string(), "v".to_string()]);
            assert_eq!(statement.to_string(), parsed(expected).to_string());
        }
    }
}
