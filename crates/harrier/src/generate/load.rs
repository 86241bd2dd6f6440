//! `harrier generate … --load`: creates the tables in a warehouse, all in one commit.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use harrier_engine::{Engine, EngineOptions, Outcome, Session, SqlError, SqlState};
use harrier_generate::{self as generator, Benchmark, Part, Table};

use super::{Options, sql_error};

/// Temporary name of the table that feeds CREATE TABLE AS.
const SOURCE: &str = "harrier_generated";

/// Creates the tables in the warehouse. Prints a line for each on standard error.
///
/// Errors: 22023 for a scale or a number of parts out of range, 42P01 for a table that the benchmark does not
/// have, 42P07 for a table that exists, unless it may be overwritten; 57014 after SIGINT; write errors.
pub(super) fn load(benchmark: Benchmark, options: &Options) -> Result<(), SqlError> {
    let data = options.data();
    let tables = data.tables_of(benchmark).map_err(sql_error)?;
    let Some(warehouse) = options.warehouse.options() else {
        let message = "tables that end with the session cannot be loaded";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("name a folder with --warehouse"));
    };
    let mut engine = EngineOptions::default();
    engine.warehouse = Some(warehouse);
    let engine = Engine::try_new(engine)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| SqlError::new(SqlState::IO_ERROR, format!("cannot start threads: {error}")))?;
    let session = engine.session();
    let result = runtime.block_on(async {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(SqlError::canceled_by_user()),
            result = load_all(&session, &tables, &data) => result,
        }
    });
    engine.remove_temporary_files();
    result
}

async fn load_all(
    session: &Session,
    tables: &[&'static Table],
    data: &generator::Options,
) -> Result<(), SqlError> {
    run(session, "BEGIN").await?;
    for table in tables {
        let parts = data.parts_of(table);
        let sources: Vec<Arc<dyn PartitionStream>> = (1..=parts)
            .map(|part| Arc::new(Source::new(table, Part { scale: data.scale, part, parts })) as _)
            .collect();
        let schema = Arc::clone(sources[0].schema());
        let provider = StreamingTable::try_new(schema, sources).map_err(harrier_engine::sql_error)?;
        session.context().register_table(SOURCE, Arc::new(provider)).map_err(harrier_engine::sql_error)?;
        let replace = if data.overwrite { "OR REPLACE " } else { "" };
        let sql = format!("CREATE {replace}TABLE {} AS SELECT * FROM {SOURCE}", table.name);
        let made = run(session, &sql).await;
        session.context().deregister_table(SOURCE).map_err(harrier_engine::sql_error)?;
        let rows = made?.rsplit(' ').next().unwrap_or_default().to_string();
        eprintln!("{}: {rows} rows", table.name);
    }
    run(session, "COMMIT").await?;
    Ok(())
}

/// Runs one statement; returns its command tag.
async fn run(session: &Session, sql: &str) -> Result<String, SqlError> {
    let mut tag = String::new();
    for statement in session.statements(sql)? {
        tag = match session.execute(&statement).await? {
            Outcome::Write(write) => write.finish().await?.tag,
            Outcome::Command(completion) => completion.tag,
            _ => String::new(),
        };
    }
    Ok(tag)
}

/// One part of a table.
struct Source {
    table: &'static Table,
    part: Part,
    schema: SchemaRef,
}

impl Source {
    fn new(table: &'static Table, part: Part) -> Self {
        Self { table, part, schema: (table.batches)(part).schema() }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {} of {}", self.part.part, self.part.parts, self.table.name)
    }
}

impl PartitionStream for Source {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), 2);
        let output = builder.tx();
        let (table, part) = (self.table, self.part);
        builder.spawn_blocking(move || {
            for batch in (table.batches)(part) {
                // The consumer is gone.
                if output.blocking_send(batch.map_err(Into::into)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        builder.build()
    }
}
