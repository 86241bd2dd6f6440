//! COPY: from files or the client into a table, and from a table or query to the client or into files.
//!
//! ```text
//!   COPY t FROM file   Parquet, JSON, ORC, Avro, Arrow: a scan, columns matched by name ────┐
//!                      JSON with types that keep every digit  (json.rs) ────────────────────┤
//!                      CSV: a scan with the table's columns, in order ──────────────────────┤
//!                      text, or ON_ERROR ignore: one thread, line by line  (row_reader.rs) ─┼─► INSERT
//!   COPY t FROM STDIN  the same, from the client's stream ──────────────────────────────────┤
//!   … FORMAT binary    batches decoded by the protocol layer ───────────────────────────────┘
//!   COPY … TO STDOUT   the rows of a query as text  (to.rs), also into files  (text_format.rs)
//!   … FORMAT binary    the rows of a query as batches, encoded by the protocol layer
//! ```
//!
//! A CSV scan runs in parallel on threads and ranks, but does not know line numbers. If it fails on a file's
//! content, the file is read again line by line to find the first error, whose message then names its line.

use std::io::Read;
use std::sync::Arc;

use batch_source::Batches;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::config::CsvOptions;
use datafusion::common::{Column as ColumnName, ScalarValue, TableReference};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast, lit};
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::sql::planner::object_name_to_table_reference;
use futures::{FutureExt, StreamExt};
use harrier_error::{SqlError, SqlState};
use harrier_exec::formats::text_scan::TextFiles;
use harrier_functions::parse::bytea;
use harrier_planner::analyzer::session_time_zone::{field_in_zone, session_zone};
use harrier_sql::identifier::plain;
use harrier_sql::parser::copy as copy_parse;
use harrier_sql::parser::copy::{Copy, CopyFormat, CopyOptions, CopySource, Direction, Header, OnError};
use harrier_sqlstate::IntoDataFusionError;
use tokio::sync::mpsc;

use crate::binder::{assignment_casts, declared_types, json as json_values, type_names};
use crate::copy_format::layout::{Layout, layout};
use crate::copy_format::list_reader;
use crate::copy_format::row_reader::{Source, TextRows};
use crate::external::{file_names, file_tables};
use crate::planning::{cast_names, result_names};
use crate::session::Session;
use crate::statement::copy::check::CopyCheck;
use crate::statement::copy::input::{CopyIn, CopyInRows};
use crate::statement::outcome::Outcome;
use crate::statement::parsed_statement::ParsedStatement;
use crate::statement::write::Write;
use crate::types::names;
use crate::warehouse::access::read_check;
use crate::warehouse::dml::Dml;

pub(crate) mod batch_source;
pub(crate) mod check;
pub(crate) mod input;
pub(crate) mod json;
pub(crate) mod target;
pub(crate) mod to;

pub use to::CopyOut;

/// Capacity of the queue of a client's text chunks.
const CHUNKS_MAX: usize = 16;

/// Capacity of the queue of a client's batches.
const BATCHES_MAX: usize = 2;

/// Target table of a COPY.
struct Target {
    name: TableReference,
    table: Arc<dyn TableProvider>,
    /// Indices of the columns that the rows have values for.
    columns: Vec<usize>,
    /// Whether the statement has a column list.
    is_listed: bool,
    /// Time zone of timestamps without one.
    zone: Arc<str>,
}

impl Target {
    fn fields(&self) -> Vec<FieldRef> {
        let schema = self.table.schema();
        let field = |at: &usize| {
            let field = field_in_zone(schema.field(*at), &self.zone).with_nullable(true);
            // Extra fractional digits are rounded when the value is written.
            match field.data_type() {
                DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                    let kind = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                    field.with_data_type(kind)
                }
                _ => field,
            }
        };
        self.columns.iter().map(|at| Arc::new(field(at))).collect()
    }

    /// Adds PostgreSQL's type names to the columns where the Arrow type does not determine them.
    fn with_type_names(&self, schema: &SchemaRef) -> SchemaRef {
        let fields = declared_types::declared_fields(self.table.as_ref());
        let names: Vec<Option<String>> =
            self.columns.iter().map(|at| names::field_type_name(&fields[*at])).collect();
        names::with_type_names(schema, &names)
    }

    /// Plans an INSERT of all rows of a stream into the table's columns.
    fn insert_all(&self, schema: SchemaRef, rows: Arc<dyn PartitionStream>) -> Result<LogicalPlan> {
        let table = StreamingTable::try_new(schema, vec![rows])?;
        let rows = LogicalPlanBuilder::scan("rows", provider_as_source(Arc::new(table)), None)?.build()?;
        self.insert(rows, &columns_of(&self.fields()))
    }

    /// Plans an INSERT of rows with a value for each listed column; the others get their defaults.
    fn insert(&self, rows: LogicalPlan, values: &[Expr]) -> Result<LogicalPlan> {
        let schema = self.table.schema();
        let mut expressions = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate() {
            let value = match self.columns.iter().position(|listed| *listed == at) {
                Some(listed) => cast(values[listed].clone(), field.data_type().clone()),
                None => match self.table.get_column_default(field.name()) {
                    Some(default) => cast(default.clone(), field.data_type().clone()),
                    None => lit(ScalarValue::try_new_null(field.data_type())?),
                },
            };
            let value = json_values::normalize_text(field, value)?;
            expressions.push(value.alias(field.name()));
        }
        let input = LogicalPlanBuilder::from(rows).project(expressions)?.build()?;
        let target = provider_as_source(Arc::clone(&self.table));
        LogicalPlanBuilder::insert_into(input, self.name.clone(), target, InsertOp::Append)?.build()
    }
}

impl Session {
    /// Runs a COPY FROM, or a COPY TO STDOUT.
    pub(crate) async fn copy(&self, copy: &Copy, statement: &ParsedStatement) -> Result<Outcome> {
        match copy.direction {
            Direction::From => self.copy_from(copy, statement).await,
            Direction::To => self.copy_to_client(copy, statement).await,
        }
    }

    async fn copy_from(&self, copy: &Copy, statement: &ParsedStatement) -> Result<Outcome> {
        let target = self.copy_target(&copy.source).await?;
        let options = &copy.options;
        self.begin_distributed().await?;
        let Some(file) = &copy.file else {
            let table = target.name.table().to_string();
            let schema = Arc::new(Schema::new(target.fields()));
            if options.format == Some(CopyFormat::Binary) {
                self.require_client()?;
                let (input, batches) = mpsc::channel(BATCHES_MAX);
                let rows: Arc<dyn PartitionStream> = Arc::new(Batches::new(Arc::clone(&schema), batches));
                let plan = target.insert_all(Arc::clone(&schema), rows)?;
                let write = self.write_rows(&target, plan, CopyCheck::default(), statement).await?;
                let schema = target.with_type_names(&schema);
                return Ok(Outcome::CopyInRows(CopyInRows { input, write, table, schema }));
            }
            let layout = layout(options, options.format.unwrap_or(CopyFormat::Text), Header::Absent)?;
            let layout = Layout { dates: self.date_order(), ..layout };
            let (input, pieces) = mpsc::channel(CHUNKS_MAX);
            let (plan, check) = line_by_line(&target, layout, options, Source::Client(pieces))?;
            let write = self.write_rows(&target, plan, check, statement).await?;
            return Ok(Outcome::CopyIn(CopyIn { input, write, table, schema }));
        };
        self.check_files()?;
        let kind = file_tables::kind_of(file);
        let format = match (options.format, &kind) {
            (Some(format), _) => format,
            (None, Some((format, _))) => CopyFormat::of(format)
                .ok_or_else(|| DataFusionError::Internal(format!("no reader for format {format}")))?,
            (None, None) => CopyFormat::Text,
        };
        if format == CopyFormat::Binary {
            let message = "COPY does not read files in format binary";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        if !matches!(format, CopyFormat::Csv | CopyFormat::Text) {
            return self.copy_by_name(&target, file, format, options, statement).await;
        }
        let mut options = options.clone();
        // Delimiter implied by a name such as .tsv.
        if options.delimiter.is_none() && file.to_ascii_lowercase().contains(".tsv") {
            options.delimiter = Some(b'\t');
        }
        let compression = match (&options.compression, kind) {
            (Some(compression), _) => compression.clone(),
            (None, Some((_, compression))) => compression.unwrap_or_default(),
            (None, None) => String::new(),
        };
        let compression: FileCompressionType = compression.parse()?;
        let state = self.context().state();
        let urls = file_tables::locations(&state, file).await?;
        let layout = Layout { dates: self.date_order(), ..layout(&options, format, Header::Present)? };
        let names = file_tables::list_files(&state, &urls, file).await?;
        let [first, ..] = urls.as_slice() else {
            return Err(DataFusionError::Internal("no place to copy from".to_string()));
        };
        let store = file_names::object_store(&state, first)?;
        let source = move || Source::Files { store: Arc::clone(&store), files: names.clone(), compression };
        let has_own_texts = |field: &FieldRef| field.data_type().is_binary() || field.data_type().is_nested();
        let has_own_texts = target.fields().iter().any(has_own_texts);
        let scans = layout.csv
            && options.on_error == OnError::Stop
            && layout.header != Header::Matching
            // DataFusion applies another NULL string only during type inference.
            && layout.null.is_empty()
            && !compression.is_compressed()
            && !has_own_texts
            // With a single column, an empty line is a row.
            && target.columns.len() > 1
            && can_scan(&urls, &layout).await;
        if !scans {
            let (plan, check) = line_by_line(&target, layout, &options, source())?;
            return self.write_rows(&target, plan, check, statement).await.map(Outcome::Write);
        }
        let plan = scan_csv(&target, urls, &layout)?;
        let rows =
            TextRows::new(target.fields(), layout, &options, target.name.table().to_string(), source());
        let context = state.task_ctx();
        let explain = move |error: DataFusionError| {
            async move {
                if !harrier_sqlstate::of(&error).as_str().starts_with("22") {
                    return error;
                }
                let mut batches = rows.execute(context);
                while let Some(batch) = batches.next().await {
                    if let Err(exact) = batch {
                        return exact;
                    }
                }
                error
            }
            .boxed()
        };
        let check = CopyCheck { explain: Some(Box::new(explain)), ..CopyCheck::default() };
        self.write_rows(&target, plan, check, statement).await.map(Outcome::Write)
    }

    async fn copy_target(&self, source: &CopySource) -> Result<Target> {
        let CopySource::Table { name, columns } = source else {
            return Err(DataFusionError::Internal("COPY FROM of a query".to_string()));
        };
        let name = object_name_to_table_reference(name.clone(), true)?;
        let table =
            self.context().table_provider(name.clone()).await.map_err(|error| match harrier_sqlstate::of(
                &error,
            ) {
                SqlState::UNDEFINED_TABLE => {
                    let message = format!("relation \"{}\" does not exist", name.table());
                    SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion()
                }
                _ => error,
            })?;
        let schema = table.schema();
        let is_listed = !columns.is_empty();
        let mut places = Vec::new();
        for column in columns {
            let column = plain(column);
            let Some((at, _)) = schema.column_with_name(&column) else {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", name.table());
                return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
            };
            if places.contains(&at) {
                let message = format!("column \"{column}\" specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into_datafusion());
            }
            places.push(at);
        }
        if !is_listed {
            places = (0..schema.fields().len()).collect();
        }
        let zone = session_zone(&self.context().state_ref().read());
        Ok(Target { name, table, columns: places, is_listed, zone })
    }

    /// COPY from files that contain column names.
    async fn copy_by_name(
        &self,
        target: &Target,
        file: &str,
        format: CopyFormat,
        options: &CopyOptions,
        statement: &ParsedStatement,
    ) -> Result<Outcome> {
        if options.on_error == OnError::Ignore {
            let message = "COPY ON_ERROR ignore is only for text and CSV";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        }
        let state = self.context().state();
        let table =
            file_tables::table(&state, file, Some(format.name()), options.compression.as_deref()).await;
        let is_json = format == CopyFormat::Json;
        let (table, seen) = match table {
            // A file without rows, or with only NULLs, names no columns.
            Err(error) if is_json && file_tables::is_empty_file(&error) => (None, Arc::new(Schema::empty())),
            Err(error) => return Err(error),
            Ok(table) => {
                let seen = table.schema();
                (Some(table), seen)
            }
        };
        let unfit = |message: String| {
            SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
                .with_hint("list the columns that the file has: COPY table (column, …) FROM …")
        };
        let fields = target.fields();
        let read = match is_json {
            true => {
                let columns = json::columns(&fields, &seen);
                let compression = options.compression.as_deref();
                json::table(&state, file, compression, Arc::clone(&columns)).await?.map(|own| (own, columns))
            }
            false => None,
        };
        let (table, values) = match (read, table) {
            (Some((own, columns)), _) => {
                let values = fields.iter().zip(columns.fields()).map(|(field, read)| {
                    let value = Expr::Column(ColumnName::new_unqualified(read.name()));
                    match field.data_type().is_binary() && read.data_type().is_string() {
                        true => bytea::function().call(vec![value]),
                        false => value,
                    }
                });
                (own, values.collect::<Vec<_>>())
            }
            (None, Some(table)) => {
                let mut values = Vec::with_capacity(fields.len());
                for field in &fields {
                    let name = seen.fields().iter().map(|own| own.name()).find(|own| *own == field.name());
                    let name = name.or_else(|| {
                        let mut names = seen.fields().iter().map(|own| own.name());
                        names.find(|own| own.eq_ignore_ascii_case(field.name()))
                    });
                    match name {
                        Some(name) => values.push(Expr::Column(ColumnName::new_unqualified(name))),
                        None => {
                            return Err(unfit(format!("\"{file}\" has no column \"{}\"", field.name()))
                                .into_datafusion());
                        }
                    }
                }
                (table, values)
            }
            // Only partition folders have values; the files have no rows.
            (None, None) => {
                let rows = LogicalPlanBuilder::empty(false).build()?;
                let nulls = fields.iter().map(|_| lit(ScalarValue::Null)).collect::<Vec<_>>();
                let plan = target.insert(rows, &nulls)?;
                let written = self.write_rows(target, plan, CopyCheck::default(), statement).await;
                return written.map(Outcome::Write);
            }
        };
        let is_known = |name: &str| fields.iter().any(|field| field.name().eq_ignore_ascii_case(name));
        if !target.is_listed
            && let Some(surplus) = seen.fields().iter().find(|own| !is_known(own.name()))
        {
            let message = format!(
                "\"{file}\" has a column \"{}\", which relation \"{}\" has not",
                surplus.name(),
                target.name.table()
            );
            return Err(unfit(message).into_datafusion());
        }
        let rows = LogicalPlanBuilder::scan("file", provider_as_source(table), None)?.build()?;
        let plan = target.insert(rows, &values)?;
        self.write_rows(target, plan, CopyCheck::default(), statement).await.map(Outcome::Write)
    }

    /// Starts the INSERT of a COPY.
    async fn write_rows(
        &self,
        target: &Target,
        plan: LogicalPlan,
        check: CopyCheck,
        statement: &ParsedStatement,
    ) -> Result<Write> {
        let LogicalPlan::Dml(dml) = &plan else {
            return Err(DataFusionError::Internal("COPY is no INSERT".to_string()));
        };
        assignment_casts::check(&plan, None)?;
        let columns = target.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let outcome = match (Dml::of(dml, target.is_listed.then_some(&columns[..]))?, self.warehouse()) {
            (Some(dml), Some(warehouse)) => self.write(dml, "COPY", statement, warehouse).await?,
            _ => match self.insert_into_folder(dml, None, "COPY", &statement.text).await? {
                Some(outcome) => outcome,
                None => {
                    let state = self.context().state();
                    self.execute_plan(
                        &state,
                        &state.optimize(&plan)?,
                        Some("COPY"),
                        &statement.text,
                        statement.explain,
                    )
                    .await?
                }
            },
        };
        match outcome {
            Outcome::Write(write) => Ok(Write { check, ..write }),
            _ => Err(DataFusionError::Internal("COPY does not write".to_string())),
        }
    }

    /// Errors: the binary format needs a client of the server (0A000).
    fn require_client(&self) -> Result<()> {
        match self.is_client() {
            true => Ok(()),
            false => {
                let message = "COPY in binary format is for clients of a server";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
            }
        }
    }

    async fn copy_to_client(&self, copy: &Copy, statement: &ParsedStatement) -> Result<Outcome> {
        let format = copy.options.format.unwrap_or(CopyFormat::Text);
        let layout = match format {
            CopyFormat::Binary => {
                self.require_client()?;
                None
            }
            CopyFormat::Json => None,
            format => {
                let intervals = self.settings().interval_style;
                let layout = layout(&copy.options, format, Header::Absent)?;
                Some(Layout { intervals, short_booleans: true, ..layout })
            }
        };
        self.begin_distributed().await?;
        let state = self.context().state();
        let plan = Box::pin(cast_names::plan(&state, copy_parse::as_query(&copy.source)?)).await?;
        read_check::check_reads(&state, &plan)?;
        let plan = result_names::with_distinct_names(
            declared_types::pad_char_columns(plan)?,
            statement.original.as_deref(),
        )?;
        let names = type_names::of(&plan);
        let plan = state.optimize(&plan)?;
        match self.execute_plan(&state, &plan, None, &statement.text, statement.explain).await? {
            Outcome::Rows { schema, stream, progress } if format == CopyFormat::Binary => {
                Ok(Outcome::CopyOutRows { schema: names::with_type_names(&schema, &names), stream, progress })
            }
            Outcome::Rows { stream, progress, .. } => {
                Ok(Outcome::CopyOut(CopyOut::new(stream, progress, layout, statement.text.clone())))
            }
            _ => Err(DataFusionError::Internal("COPY has no rows".to_string())),
        }
    }
}

/// Reads a source line by line.
fn line_by_line(
    target: &Target,
    layout: Layout,
    options: &CopyOptions,
    source: Source,
) -> Result<(LogicalPlan, CopyCheck)> {
    let fields = target.fields();
    // Lists have texts as PostgreSQL's arrays; rows and maps have none.
    let is_nested = |field: &&FieldRef| list_reader::leaf(field.data_type()).is_nested();
    if let Some(nested) = fields.iter().find(is_nested) {
        let message = format!("column \"{}\" has a nested type, which text does not have", nested.name());
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let schema = Arc::new(Schema::new(fields.clone()));
    let rows = TextRows::new(fields, layout, options, target.name.table().to_string(), source);
    let check = CopyCheck { skipped: rows.skipped_rows(), explain: None };
    Ok((target.insert_all(schema, Arc::new(rows))?, check))
}

fn columns_of(fields: &[FieldRef]) -> Vec<Expr> {
    fields.iter().map(|field| Expr::Column(ColumnName::new_unqualified(field.name()))).collect()
}

/// A scan of CSV files with the columns of `target`, in order.
fn scan_csv(target: &Target, urls: Vec<ListingTableUrl>, layout: &Layout) -> Result<LogicalPlan> {
    let options = CsvOptions {
        has_header: Some(layout.header != Header::Absent),
        delimiter: layout.delimiter,
        quote: layout.quote,
        escape: (layout.escape != layout.quote).then_some(layout.escape),
        double_quote: Some(layout.escape == layout.quote),
        newlines_in_values: Some(false),
        ..CsvOptions::default()
    };
    let format = TextFiles::csv(options);
    let fields: Vec<Field> = target.fields().iter().map(|field| scan_field(field)).collect();
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(ListingOptions::new(format).with_file_extension(""))
        .with_schema(Arc::new(Schema::new(fields)));
    let table = Arc::new(ListingTable::try_new(config)?);
    let rows = LogicalPlanBuilder::scan("file", provider_as_source(table), None)?.build()?;
    target.insert(rows, &columns_of(&target.fields()))
}

/// Type that the CSV reader parses a column as: text, where it would not parse it like CAST.
fn scan_field(field: &Field) -> Field {
    let kind = match field.data_type() {
        kind if kind.is_integer() || matches!(kind, DataType::Float32 | DataType::Float64) => kind.clone(),
        _ => DataType::Utf8View,
    };
    Field::new(field.name(), kind, true)
}

/// Whether a parallel scan reads these files correctly: it splits rows at every newline, and treats a quoted
/// field that equals the NULL string as NULL.
async fn can_scan(urls: &[ListingTableUrl], layout: &Layout) -> bool {
    let Some(paths) = urls.iter().map(file_tables::local_path).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let layout = layout.clone();
    let is_plain = move || -> std::io::Result<bool> {
        for path in paths {
            if !is_plain(&path, &layout)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    tokio::task::spawn_blocking(is_plain).await.is_ok_and(|plain| plain.unwrap_or(false))
}

fn is_plain(path: &std::path::Path, layout: &Layout) -> std::io::Result<bool> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            if !is_plain(&entry?.path(), layout)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut before = 0;
    let mut open_quote = None;
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            // An unterminated quote is an error, which a scan would not detect.
            return Ok(open_quote.is_none());
        }
        for at in memchr::memchr2_iter(layout.quote, b'\n', &buffer[..length]) {
            let place = before + at;
            let is_quote = buffer[at] == layout.quote;
            // With a different escape character, counting quotes is not enough.
            if is_quote && layout.escape != layout.quote {
                return Ok(false);
            }
            open_quote = match (is_quote, open_quote) {
                (true, None) => Some(place),
                (true, Some(begin)) if place == begin + 1 => return Ok(false),
                (true, Some(_)) => None,
                (false, Some(_)) => return Ok(false),
                (false, None) => None,
            };
        }
        before += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_are_recognized() {
        let layout = layout(&CopyOptions::default(), CopyFormat::Csv, Header::Absent).unwrap();
        let path = std::env::temp_dir().join(format!("harrier-plain-{}.csv", std::process::id()));
        for (text, expected) in [
            ("1,a\n2,b\n", true),
            ("1,\"a,b\"\n2,b\n", true),
            ("1,\"a \"\"b\"\" c\"\n", true),
            ("1,\"a\nb\"\n", false),
            ("1,\"\"\n", false),
            ("1,\"a", false),
            ("1,\"a\"", true),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_plain(&path, &layout).unwrap(), expected, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
