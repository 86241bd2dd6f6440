//! CREATE VIEW in the warehouse.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::{CreateView, LogicalPlan};
use datafusion::sql::sqlparser::ast;
use harrier_planner::analyzer::text_constants::TimeReading;
use harrier_sql::parser::as_of;

use crate::planning::stored_sql::{self, ViewForm};
use crate::session::Session;
use crate::settings::time_reading;
use crate::statement::outcome::{Outcome, command};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::{self, view_columns};

impl Session {
    /// `None`: the view reads temporary tables and ends with the session.
    pub(crate) async fn create_view(
        &self,
        create: &CreateView,
        executed: &ast::Statement,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Option<Outcome>> {
        let ast::Statement::CreateView(view) = executed else { return Ok(None) };
        let mut reads_own = false;
        create.input.apply_with_subqueries(|plan| {
            if let LogicalPlan::TableScan(scan) = plan {
                reads_own |= warehouse.names.is_temporary(&scan.table_name);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if reads_own {
            return Ok(None);
        }
        let query = self.view_definition(view, &statement.text, &warehouse.names)?;
        let is_barrier = statement.clauses.as_ref().is_some_and(|clauses| clauses.is_barrier);
        let form = ViewForm { of_client: self.uses_postgres_names(), is_barrier };
        let columns_below = view_columns::columns_below(&create.input)?;
        let ddl = self.ddl(warehouse, statement);
        ddl.create_view(&create.name, query, form, columns_below, create.or_replace).await?;
        Ok(Some(command("CREATE VIEW")))
    }

    /// The stored text of a view's query: taken from `text`, with tables qualified where the creator's search
    /// path differs from that of views, and with the creator's time zone in AS OF.
    ///
    /// Errors: the session's settings give it another meaning (0A000).
    fn view_definition(&self, view: &ast::CreateView, text: &str, names: &NameResolver) -> Result<String> {
        let state = self.context().state();
        let query = match stored_sql::query_of_view(text) {
            Some(query) => as_of::mark_as_of(query),
            None => view.query.to_string(),
        };
        stored_sql::check_meaning(&state, &query)?;
        let schema = state.config_options().catalog.default_schema.as_str();
        let query = match schema != warehouse::DEFAULT_SCHEMA {
            true => stored_sql::name_schema(&query, schema, |name| {
                // Resolve the current table for an AS OF reference.
                let name = name.split_once(as_of::AS_OF_MARK).map_or(name, |(name, _)| name);
                names.relation(&TableReference::partial(schema, name)).is_some()
            })?,
            false => query,
        };
        let columns: Vec<String> = view.columns.iter().map(|column| column.name.to_string()).collect();
        let query = match columns.is_empty() {
            true => query,
            // The query may end with a line comment.
            false => format!("SELECT * FROM (\n{query}\n) AS \"_\" ({})", columns.join(", ")),
        };
        let TimeReading { zone, order } = time_reading(&state);
        Ok(as_of::unparse_as_of(&query, &zone, order))
    }
}
