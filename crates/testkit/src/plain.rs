//! Plain DataFusion in this process, as the oracle: no code of Harrier runs between the SQL and the rows.

use std::path::Path;

use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use tokio::runtime::Runtime;

use crate::rows::Rows;

/// A session with one table per sub-folder of Parquet files. Calls block; they must not come from an async
/// task.
pub struct Plain {
    runtime: Runtime,
    context: SessionContext,
}

impl Plain {
    /// Opens a folder whose sub-folders are tables; skips names starting with a dot.
    ///
    /// Errors: the folder or a file in it cannot be read.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let runtime = Runtime::new().map_err(|e| e.to_string())?;
        let mut config = SessionConfig::new().with_target_partitions(2);
        // Its answers are wrong for an aggregate of a column beside one of an expression.
        config.options_mut().optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        // It confuses columns of equal names, as above an outer join.
        let mut optimizer = PhysicalOptimizer::new();
        optimizer.rules.retain(|rule| !rule.name().starts_with("FilterPushdown"));
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_physical_optimizer_rules(optimizer.rules)
            .build();
        let context = SessionContext::new_with_state(state);
        let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| e.to_string())?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !path.is_dir() || name.starts_with('.') {
                continue;
            }
            let url = format!("{}/", path.display());
            runtime
                .block_on(context.register_parquet(name, url, ParquetReadOptions::default()))
                .map_err(|e| e.to_string())?;
        }
        Ok(Self { runtime, context })
    }

    /// Runs one statement and collects its rows.
    ///
    /// Errors: DataFusion's message.
    pub fn run(&self, sql: &str) -> Result<Rows, String> {
        self.runtime.block_on(async {
            let frame = self.context.sql(sql).await.map_err(|e| e.strip_backtrace())?;
            let schema = frame.schema().as_arrow().clone();
            let batches = frame.collect().await.map_err(|e| e.strip_backtrace())?;
            Rows::from_batches(&schema, &batches).map_err(|e| e.to_string())
        })
    }
}

/// The statements that create the tables of [`Plain::open`] in the binary, sorted by name.
///
/// Errors: the folder cannot be read.
pub fn create_tables(folder: &Path) -> Result<Vec<String>, String> {
    let mut statements = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') {
            let location = path.display().to_string().replace('\'', "''");
            statements.push(format!("create external table {name} stored as parquet location '{location}/'"));
        }
    }
    statements.sort();
    Ok(statements)
}
