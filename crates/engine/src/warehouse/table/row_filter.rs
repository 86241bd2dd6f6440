//! Row-level security of table scans: column privileges and row filters.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as Place;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use harrier_catalog::access::Columns;
use harrier_catalog::state::Table;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::VisibleRowsExec;
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::stored_sql::{self, Condition, SessionUsers};
use crate::warehouse::access::permission_denied;
use crate::warehouse::table::WarehouseTable;

impl WarehouseTable {
    /// Errors: a scan needs a column that may not be read (42501).
    pub(crate) fn check_readable(&self, projection: &[usize], filters: &[Expr]) -> Result<()> {
        let may_read = match &self.readable {
            Columns::All => true,
            Columns::None => false,
            Columns::Some(columns) => {
                let projected = projection.iter().filter_map(|at| self.table.columns.get(*at));
                let filtered = filters
                    .iter()
                    .flat_map(Expr::column_refs)
                    .filter_map(|asked| self.table.columns.iter().find(|column| column.name == asked.name));
                projected.chain(filtered).all(|column| columns.contains(&column.id))
            }
        };
        match may_read {
            true => Ok(()),
            false => Err(permission_denied(&self.object().describe(&self.state))),
        }
    }

    /// To be called before rows are removed without being read: whole files, or the whole table.
    ///
    /// Errors: row filters hide some rows from the viewer (42501).
    pub(crate) fn check_all_visible(&self) -> Result<()> {
        if self.visible.is_none() {
            return Ok(());
        }
        let message = format!("permission denied for {}", self.object().describe(&self.state));
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
            .with_detail("A row filter hides rows that would be removed.")
            .with_hint("DELETE removes those that are seen")
            .into_datafusion())
    }

    /// Scans the visible rows. The statement's own filters may prune files but are not evaluated on hidden
    /// rows.
    pub(crate) async fn scan_visible(
        &self,
        session: &dyn Session,
        projection: &[usize],
        filters: &[Expr],
        visible: &Expr,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut read = projection.to_vec();
        for column in visible.column_refs() {
            let at = self.schema.index_of(&column.name)?;
            if !read.contains(&at) {
                read.push(at);
            }
        }
        let all: Vec<Expr> = filters.iter().chain([visible]).cloned().collect();
        let rows = self.scan_rows(session, &read, &all, None).await?;
        let schema = DFSchema::try_from(self.projected_schema(&read)?)?;
        let predicate = session.create_physical_expr(visible.clone(), &schema)?;
        let seen = Arc::new(FilterExec::try_new(predicate, rows)?) as Arc<dyn ExecutionPlan>;
        let seen: Arc<dyn ExecutionPlan> = Arc::new(VisibleRowsExec::new(seen));
        if read.len() == projection.len() {
            return Ok(seen);
        }
        let kept = self.projected_schema(projection)?;
        let columns = kept.fields().iter().enumerate().map(|(at, field)| {
            (Arc::new(Place::new(field.name(), at)) as Arc<dyn PhysicalExpr>, field.name().clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), seen)?))
    }
}

/// Combines the row filters of a role with OR; without any, no row is visible.
///
/// Errors: one cannot be used (42501), so that no row is shown by mistake.
pub(crate) fn any_of(
    session: &SessionState,
    table: &Table,
    schema: &SchemaRef,
    predicates: &[String],
    asker: &SessionUsers,
) -> Result<Expr> {
    let mut all = Vec::with_capacity(predicates.len());
    for predicate in predicates {
        all.push(
            stored_sql::condition(session, predicate, schema, asker, Condition::RowFilter)
                .map_err(|error| {
                    let message =
                        format!("permission denied for table {}: its row filter cannot be used", table.name);
                    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).with_detail(error.to_string())
                })
                .map_err(harrier_sqlstate::external)?,
        );
    }
    Ok(all.into_iter().reduce(Expr::or).unwrap_or_else(|| lit(false)))
}
