//! Logical planning of a statement.

use std::borrow::Cow;

use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use harrier_planner::analyzer::{decimal_float_coercion, timestamp_coercion};
use harrier_planner::binder::table_functions;
use harrier_planner::rewrite::rewrite_view;

use crate::binder::{
    assignment_casts, create_table_like, declared_types, information_schema, json, on_conflict,
    unsupported_statements,
};
use crate::external::file_tables;
use crate::planning::{default_values, merge_scope, unknown_literals};
use crate::session::Session;
use crate::statement::describe;
use crate::statement::returning::Returning;
use crate::warehouse::keys::declaration;

impl Session {
    /// Plans a statement with values for its parameters, if any; for EXECUTE, the prepared statement.
    ///
    /// Errors: those of planning; a written value does not fit its column (42804); a column is assigned twice
    /// (42601).
    pub(crate) async fn plan(&self, statement: &Statement, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let state = self.context().state();
        if let Some((statement, like)) = create_table_like::split_like_clause(statement) {
            return like.fill(&state, state.statement_to_plan(statement).await?).await;
        }
        let (without_keys, _) = declaration::extract_keys(statement)?;
        let statement = without_keys.as_ref();
        unsupported_statements::check(statement)?;
        let explained = self.strip_explained_returning(statement, values).await?;
        let statement = explained.as_ref().unwrap_or(statement);
        let statement = default_values::fill_defaults(&state, statement).await?;
        let statement = merge_scope::qualify_source_names(&state, statement).await?;
        let statement = table_functions::bind_parameters(statement.as_ref(), values);
        let statement = statement.as_ref();
        let written = self.target_statement(statement)?;
        if let Some(written) = &written {
            assignment_casts::check_targets(written)?;
        }
        let plan = match statement {
            Statement::Statement(parsed)
                if matches!(
                    parsed.as_ref(),
                    ast::Statement::Execute { immediate: false, name: Some(_), .. }
                ) =>
            {
                self.prepared_statements().plan(&state, parsed).await?
            }
            _ => {
                let state = information_schema::restrict(&state, statement)?.unwrap_or(state);
                let plan = match Box::pin(on_conflict::plan(&state, statement.clone())).await {
                    Ok(plan) => plan,
                    Err(error) => {
                        return Err(assignment_casts::with_column(&state, written.as_deref(), error).await);
                    }
                };
                rewrite_view(
                    describe::with_values(plan, values)?,
                    &[
                        json::rewrite_node,
                        declared_types::rewrite_node,
                        unknown_literals::rewrite_node,
                        timestamp_coercion::coerce_node,
                        decimal_float_coercion::coerce_node,
                    ],
                )?
            }
        };
        file_tables::check_target(&plan)?;
        assignment_casts::check(&plan, written.as_deref())?;
        declared_types::pad_char_columns(json::coerce_written_values(plan)?)
    }

    /// Removes RETURNING from an explained statement: EXPLAIN shows only the write.
    pub(crate) async fn strip_explained_returning(
        &self,
        statement: &Statement,
        values: &[ScalarValue],
    ) -> Result<Option<Statement>> {
        let Statement::Explain(explain) = statement else { return Ok(None) };
        let Some(returning) = Returning::of(&explain.statement)? else { return Ok(None) };
        Box::pin(self.plan_of_answer(&returning, values)).await?;
        let mut explain = explain.clone();
        *explain.statement = returning.change;
        Ok(Some(Statement::Explain(explain)))
    }

    /// The executed or explained statement, or `statement` itself.
    pub(crate) fn target_statement<'s>(
        &self,
        statement: &'s Statement,
    ) -> Result<Option<Cow<'s, ast::Statement>>> {
        match statement {
            Statement::Statement(parsed) => self.resolve_execute(parsed).map(Some),
            Statement::Explain(explain) => self.target_statement(&explain.statement),
            _ => Ok(None),
        }
    }

    /// The prepared statement that EXECUTE runs, or `statement` itself.
    pub(crate) fn resolve_execute<'s>(
        &self,
        statement: &'s ast::Statement,
    ) -> Result<Cow<'s, ast::Statement>> {
        match statement {
            ast::Statement::Execute { immediate: false, name: Some(name), .. } => {
                self.prepared_statements().statement(name).map(Cow::Owned)
            }
            other => Ok(Cow::Borrowed(other)),
        }
    }
}
