//! VACUUM, OPTIMIZE and CHECK TABLE.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast;
use harrier_catalog::access::Object;
use harrier_catalog::state::{ObjectId, Table};
use harrier_error::{SqlError, SqlState};
use harrier_pgcatalog::{CATALOG_SCHEMA, INFORMATION_SCHEMA};
use harrier_sql::parser::analyze::SampleSize;
use harrier_sql::parser::maintenance::{CheckTableStatement, OptimizeStatement, VacuumStatement};
use harrier_sqlstate::IntoDataFusionError;

use crate::session::Session;
use crate::statement::ABOUT_WAREHOUSE;
use crate::statement::outcome::{CHECK_COLUMNS, DRY_RUN_COLUMNS, Outcome, command, texts};
use crate::statement::parsed_statement::ParsedStatement;
use crate::warehouse::dml::Dml;
use crate::warehouse::maintenance::vacuum;
use crate::warehouse::relation;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::table::WarehouseTable;

impl Session {
    /// OPTIMIZE: compacts the small files of a table, or of all tables of the warehouse that the role owns.
    ///
    /// Errors: without a table, it is in a transaction that BEGIN has opened (25001).
    pub(crate) async fn optimize(
        &self,
        optimize: &OptimizeStatement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if let (None, Some(warehouse)) = (&optimize.table, self.warehouse()) {
            check_alone(warehouse, "OPTIMIZE")?;
            return self.optimize_all(statement, warehouse).await;
        }
        match self.compact_or_vacuum(optimize.table.as_ref(), statement).await? {
            Some(outcome) => Ok(outcome),
            None => {
                let message = "OPTIMIZE is for tables of a warehouse and external tables that are folders";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
        }
    }

    /// OPTIMIZE of all tables that the role owns. Each is committed before the next begins; one that another
    /// session drops meanwhile is left out.
    async fn optimize_all(
        &self,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let snapshot = warehouse.names.snapshot();
        let tables: Vec<ObjectId> =
            snapshot.state.iter().flat_map(|state| state.tables.keys()).copied().collect();
        let mut rows = 0;
        for (at, id) in tables.into_iter().enumerate() {
            if at > 0 {
                warehouse.transactions.begin_statement().await?;
            }
            let snapshot = warehouse.names.snapshot();
            let table = snapshot.state.as_ref().and_then(|state| state.tables.get(&id)).cloned();
            let Some(table) = table.filter(|table| snapshot.viewer.owns(Object::Table(table.id))) else {
                continue;
            };
            self.begin_distributed().await?;
            if let Outcome::Write(write) = self.compact(table, &snapshot, statement, warehouse).await? {
                let (_, optimized) = write.run().await.map_err(IntoDataFusionError::into_datafusion)?;
                rows += optimized;
            }
        }
        Ok(command(&format!("OPTIMIZE {rows}")))
    }

    /// VACUUM: with tables like OPTIMIZE of each, without one removes unreferenced files. With
    /// ANALYZE the tables, or all of them, are analyzed, too: before, for rows stay the same.
    ///
    /// Errors: it is in a transaction that BEGIN has opened (25001).
    pub(crate) async fn vacuum(
        &self,
        vacuum: &VacuumStatement,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if let Some(warehouse) = self.warehouse() {
            check_alone(warehouse, "VACUUM")?;
        }
        if let (true, Some(warehouse)) = (vacuum.analyzes, self.warehouse()) {
            if vacuum.tables.is_empty() {
                self.analyze_tables(None, &[], SampleSize::Default, warehouse).await?;
            }
            for (name, columns) in &vacuum.tables {
                // Others are folders and system catalogs, which have no statistics, or an error below.
                if warehouse.names.table(&relation::reference(name)?).is_some() {
                    self.analyze_tables(Some(name), columns, SampleSize::Default, warehouse).await?;
                }
            }
        }
        let several = match vacuum.tables.as_slice() {
            [] => return self.vacuum_one(None, statement).await,
            [(name, _)] => return self.vacuum_one(Some(name), statement).await,
            several => several,
        };
        // Each is committed before the next begins.
        for (at, (name, _)) in several.iter().enumerate() {
            if let (1.., Some(warehouse)) = (at, self.warehouse()) {
                warehouse.transactions.begin_statement().await?;
            }
            if let Outcome::Write(write) = self.vacuum_one(Some(name), statement).await? {
                write.finish().await.map_err(IntoDataFusionError::into_datafusion)?;
            }
        }
        Ok(command("VACUUM"))
    }

    async fn vacuum_one(
        &self,
        table: Option<&ast::ObjectName>,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if let Some(name) = table
            && self.is_system_catalog(&relation::reference(name)?).await
        {
            return Ok(command("VACUUM"));
        }
        match self.compact_or_vacuum(table, statement).await? {
            Some(outcome) => Ok(outcome),
            None => {
                let message = "VACUUM is for tables of a warehouse and external tables that are folders";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
        }
    }

    /// Whether a name is that of one of PostgreSQL's catalogs, which have no files. Tools such as vacuumdb
    /// take them for tables.
    pub(crate) async fn is_system_catalog(&self, name: &TableReference) -> bool {
        let schema = match name.schema() {
            Some(CATALOG_SCHEMA) => CATALOG_SCHEMA,
            Some("information_schema") => INFORMATION_SCHEMA,
            _ => return false,
        };
        self.context().table_provider(TableReference::partial(schema, name.table())).await.is_ok()
    }

    /// Compacts a table, or vacuums the warehouse; `None`: there is no warehouse, and the table is no folder.
    async fn compact_or_vacuum(
        &self,
        table: Option<&ast::ObjectName>,
        statement: &ParsedStatement,
    ) -> Result<Option<Outcome>> {
        self.begin_distributed().await?;
        if let Some(name) = table
            && let Some(outcome) = self.optimize_folder(name, statement).await?
        {
            return Ok(Some(outcome));
        }
        match self.warehouse() {
            Some(warehouse) => self.maintain(table, statement, warehouse).await.map(Some),
            None => Ok(None),
        }
    }

    async fn maintain(
        &self,
        table: Option<&ast::ObjectName>,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let snapshot = warehouse.names.snapshot();
        let Some(catalog) = &snapshot.catalog else {
            return Ok(command("VACUUM 0"));
        };
        let Some(name) = table else {
            snapshot.viewer.check_superuser("vacuum the warehouse")?;
            let age = std::time::Duration::from_secs(self.settings().vacuum_age_seconds as u64);
            let count = vacuum::vacuum(catalog, self.engine().runtime_env(), age).await?;
            return Ok(command(&format!("VACUUM {count}")));
        };
        let name = relation::reference(name)?;
        let Some(table) = warehouse.names.table(&name) else {
            return Err(warehouse.names.no_table(&name, "OPTIMIZE").await);
        };
        if let Some(state) = &snapshot.state {
            snapshot.viewer.check_owner(Object::Table(table.id), state)?;
        }
        self.compact(table, &snapshot, statement, warehouse).await
    }

    /// Starts the compaction of a table.
    async fn compact(
        &self,
        table: Arc<Table>,
        snapshot: &StatementSnapshot,
        statement: &ParsedStatement,
        warehouse: &Arc<WarehouseSession>,
    ) -> Result<Outcome> {
        let target = WarehouseTable::try_new(self.context().state(), snapshot, table)?;
        let sources = target.compaction_sources().await?;
        if sources.is_empty() {
            return Ok(command("OPTIMIZE 0"));
        }
        self.write(Dml::compact(target, sources)?, "OPTIMIZE", statement, warehouse).await
    }

    /// VACUUM DRY RUN: lists the files that VACUUM would remove, and unknown files.
    pub(crate) async fn vacuum_dry_run(&self) -> Result<Outcome> {
        let warehouse = self.require_warehouse(ABOUT_WAREHOUSE)?;
        let snapshot = warehouse.names.snapshot();
        snapshot.viewer.check_superuser("vacuum the warehouse")?;
        let age = std::time::Duration::from_secs(self.settings().vacuum_age_seconds as u64);
        let found = match &snapshot.catalog {
            Some(catalog) => vacuum::vacuum_dry_run(catalog, self.engine().runtime_env(), age).await?,
            None => Vec::new(),
        };
        texts(DRY_RUN_COLUMNS, found.iter().map(|(file, status)| [file.as_str(), *status]))
    }

    /// CHECK TABLE: returns a row per problem.
    pub(crate) async fn check_table(&self, check: &CheckTableStatement) -> Result<Outcome> {
        let warehouse = self.require_warehouse(ABOUT_WAREHOUSE)?;
        let name = relation::reference(&check.table)?;
        let Some(table) = warehouse.names.table(&name) else {
            return Err(warehouse.names.no_table(&name, "CHECK TABLE").await);
        };
        let snapshot = warehouse.names.snapshot();
        if let Some(state) = &snapshot.state {
            snapshot.viewer.check_owner(Object::Table(table.id), state)?;
        }
        let state = self.context().state();
        let table = WarehouseTable::try_new(state.clone(), &snapshot, table)?;
        let findings = table.check(&state.task_ctx()).await?;
        let rows = findings.iter().map(|finding| [finding.object.as_str(), finding.problem.as_str()]);
        texts(CHECK_COLUMNS, rows)
    }
}

/// Errors: BEGIN has opened a transaction (25001): the statement commits on its own.
fn check_alone(warehouse: &WarehouseSession, what: &str) -> Result<()> {
    match warehouse.transactions.is_open() {
        true => {
            let message = format!("{what} cannot run inside a transaction block");
            Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message).into_datafusion())
        }
        false => Ok(()),
    }
}
