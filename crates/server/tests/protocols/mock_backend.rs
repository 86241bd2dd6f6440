//! Mock backend with a few statements over Arrow: tables in memory, transactions as copies of them, endless
//! rows, and statements that wait, fail and panic on request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use harrier_error::{SqlError, SqlState};
use harrier_server::backend::{
    Backend, BackendResponse, BackendSession, BackendStatement, BufferedRows, CopyFromClient, CopyInto,
};
use harrier_server::registry::StatementEntry;
use harrier_session_api::command::Discard;
use harrier_session_api::session::{SessionIdentity, TimeLimits, TransactionState};
use harrier_session_api::statement::{Completion, Description, StatementKind, StatementPart};
use parking_lot::Mutex;
use tokio::sync::mpsc;

type Tables = BTreeMap<String, RecordBatch>;

/// Rows in memory.
#[derive(Default)]
struct MockBuffer(Vec<RecordBatch>);

impl BufferedRows for MockBuffer {
    fn rows(&self) -> u64 {
        self.0.iter().map(|batch| batch.num_rows() as u64).sum()
    }

    fn push(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<(), SqlError>> {
        self.0.push(batch);
        Box::pin(async { Ok(()) })
    }

    fn batch(&mut self, row: u64) -> BoxFuture<'_, Result<(u64, RecordBatch), SqlError>> {
        let mut first = 0;
        let found = self.0.iter().find_map(|batch| {
            let start = first;
            first += batch.num_rows() as u64;
            (row < first).then(|| (start, batch.clone()))
        });
        Box::pin(async move { Ok(found.expect("there is such a row")) })
    }
}

#[derive(Default)]
pub struct MockBackend {
    tables: Arc<Mutex<Tables>>,
    /// Count of the batches of `numbers` produced so far.
    pub batches: Arc<AtomicU64>,
}

struct MockSession(Arc<Inner>);

struct Inner {
    tables: Arc<Mutex<Tables>>,
    batches: Arc<AtomicU64>,
    own: Mutex<SessionState>,
    role: String,
}

#[derive(Default)]
struct SessionState {
    transaction: Option<Tables>,
    has_failed: bool,
    savepoints: Vec<(String, Tables)>,
    settings: BTreeMap<String, String>,
}

#[async_trait]
impl Backend for MockBackend {
    async fn open(
        &self,
        identity: SessionIdentity,
        settings: Vec<(String, String)>,
    ) -> Result<Arc<dyn BackendSession>, SqlError> {
        if identity.database == "nowhere" {
            return Err(SqlError::fatal(
                SqlState::INVALID_CATALOG_NAME,
                "database \"nowhere\" does not exist",
            ));
        }
        Ok(Arc::new(MockSession(Arc::new(Inner {
            tables: Arc::clone(&self.tables),
            batches: Arc::clone(&self.batches),
            own: Mutex::new(SessionState {
                settings: settings.into_iter().collect(),
                ..SessionState::default()
            }),
            role: identity.role,
        }))))
    }
}

fn completion(tag: impl Into<String>) -> BackendResponse {
    BackendResponse::Done(Completion { tag: tag.into(), ..Completion::default() })
}

fn rows(batch: RecordBatch) -> BackendResponse {
    BackendResponse::Rows { schema: batch.schema(), rows: futures::stream::iter([Ok(batch)]).boxed() }
}

fn texts<const N: usize>(names: [&str; N], mut all: Vec<[String; N]>) -> BackendResponse {
    all.dedup();
    let columns = names.iter().enumerate().map(|(at, name)| {
        // Text columns as DataFusion has them.
        let column = StringViewArray::from_iter_values(all.iter().map(|row| &row[at]));
        (*name, Arc::new(column) as ArrayRef)
    });
    rows(RecordBatch::try_from_iter(columns).unwrap())
}

fn numbers_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("word", DataType::Utf8View, true),
    ]))
}

/// The quoted word after `before`.
fn quoted_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let rest = text.split_once(before)?.1;
    let name = rest.split(" (").next()?.trim_end_matches(" VALUES").rsplit('.').next()?.trim();
    Some(name.trim_matches('"'))
}

impl Inner {
    fn with_tables<T>(&self, work: impl FnOnce(&mut Tables) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let mut own = self.own.lock();
        match &mut own.transaction {
            Some(tables) => work(tables),
            None => work(&mut self.tables.lock()),
        }
    }

    fn table(&self, name: &str) -> Result<RecordBatch, SqlError> {
        let missing =
            || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        self.with_tables(|tables| tables.get(name).cloned().ok_or_else(missing))
    }

    fn append(&self, name: &str, columns: Vec<ArrayRef>) -> Result<usize, SqlError> {
        let table = self.table(name)?;
        let count = columns[0].len();
        let columns = table.columns().iter().zip(columns).map(|(old, new)| {
            let new = cast(&new, old.data_type()).unwrap();
            concat(&[old.as_ref(), new.as_ref()]).unwrap()
        });
        let table = RecordBatch::try_new(table.schema(), columns.collect());
        let table = table.map_err(|error| SqlError::new(SqlState::NOT_NULL_VIOLATION, error.to_string()))?;
        self.with_tables(|tables| Ok(tables.insert(name.to_string(), table)))?;
        Ok(count)
    }

    fn control(&self, text: &str) -> Result<Option<BackendResponse>, SqlError> {
        let mut own = self.own.lock();
        let name = text.rsplit(' ').next().unwrap_or_default().to_string();
        Ok(Some(match text {
            "BEGIN" => {
                own.transaction = Some(self.tables.lock().clone());
                completion("BEGIN")
            }
            "COMMIT" | "ROLLBACK" => {
                let tables = own.transaction.take();
                let is_commit = text == "COMMIT" && !std::mem::take(&mut own.has_failed);
                own.savepoints.clear();
                if let (true, Some(tables)) = (is_commit, tables) {
                    *self.tables.lock() = tables;
                }
                own.has_failed = false;
                completion(if is_commit { "COMMIT" } else { "ROLLBACK" })
            }
            _ if text.starts_with("SAVEPOINT ") => {
                let tables = own.transaction.clone().unwrap();
                own.savepoints.push((name, tables));
                completion("SAVEPOINT")
            }
            _ if text.starts_with("ROLLBACK TO ") => {
                let savepoint = own.savepoints.iter().rfind(|(saved_name, _)| *saved_name == name).cloned();
                own.transaction = Some(savepoint.unwrap().1);
                own.has_failed = false;
                completion("ROLLBACK")
            }
            _ if text.starts_with("RELEASE ") => {
                own.savepoints.retain(|(saved_name, _)| *saved_name != name);
                completion("RELEASE")
            }
            _ => return Ok(None),
        }))
    }

    fn catalog(&self, text: &str) -> Result<BackendResponse, SqlError> {
        let names: Vec<String> = self.with_tables(|tables| Ok(tables.keys().cloned().collect()))?;
        let word = str::to_string;
        if text.starts_with("SELECT DISTINCT catalog_name FROM") {
            return Ok(texts(["catalog_name"], vec![["toy".to_string()]]));
        }
        if text.starts_with("SELECT DISTINCT catalog_name, schema_name FROM") {
            let all = ["public", "pg_catalog"].map(|schema| [word("toy"), word(schema)]);
            return Ok(texts(["catalog_name", "schema_name"], all.to_vec()));
        }
        let mut all = vec![["toy", "pg_catalog", "pg_class", "VIEW"].map(word)];
        all.extend(names.iter().map(|name| ["toy", "public", name.as_str(), "BASE TABLE"].map(word)));
        Ok(texts(["table_catalog", "table_schema", "table_name", "table_type"], all))
    }

    async fn run(self: &Arc<Self>, text: &str, values: &[ArrayRef]) -> Result<BackendResponse, SqlError> {
        if let Some(outcome) = self.control(text)? {
            return Ok(outcome);
        }
        if self.own.lock().has_failed {
            return Err(SqlError::new(SqlState::FAILED_TRANSACTION, "current transaction is aborted"));
        }
        if text.contains("FROM information_schema.") {
            return self.catalog(text);
        }
        if let Some(rest) = text.strip_prefix("SELECT numbers ") {
            let count: i64 = rest.parse().unwrap();
            return Ok(self.numbers(count, None));
        }
        if let Some(rest) = text.strip_prefix("SELECT wide ") {
            let columns = (0..8).map(|at| {
                let numbers = (0..8192).map(|n| n * (at + 1));
                (format!("c{at}"), Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef)
            });
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let batches = std::iter::repeat_n(Ok(batch.clone()), rest.parse().unwrap());
            return Ok(BackendResponse::Rows {
                schema: batch.schema(),
                rows: futures::stream::iter(batches).boxed(),
            });
        }
        if text == "SELECT then fail" {
            return Ok(self.numbers(
                i64::MAX,
                Some(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").with_detail("Late.")),
            ));
        }
        if text == "SELECT then panic" {
            let some = self.numbers(8192, None);
            let BackendResponse::Rows { schema, rows } = some else { unreachable!() };
            let rows = rows.chain(futures::stream::once(async { panic!("a test asked for it") })).boxed();
            return Ok(BackendResponse::Rows { schema, rows });
        }
        if text == "WAIT" {
            return std::future::pending().await;
        }
        if let Some(setting) = text.strip_prefix("SET ") {
            let (name, value) = setting.split_once(" = ").unwrap();
            let (name, value) = (name.trim_matches('"').to_string(), value.trim_matches('\'').to_string());
            if name == "unknown" {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_OBJECT,
                    "unrecognized configuration parameter \"unknown\"",
                ));
            }
            self.own.lock().settings.insert(name, value);
            return Ok(completion("SET"));
        }
        if let Some(name) = text.strip_prefix("SHOW ") {
            return Ok(texts(
                ["value"],
                vec![[self.own.lock().settings.get(name).cloned().unwrap_or_default()]],
            ));
        }
        if text == "SELECT current_user" {
            return Ok(texts(["current_user"], vec![[self.role.clone()]]));
        }
        if text == "SELECT $1, $2" {
            let columns =
                values.iter().enumerate().map(|(at, value)| (format!("${}", at + 1), value.clone(), true));
            return Ok(rows(RecordBatch::try_from_iter_with_nullable(columns).unwrap()));
        }
        if text == "SELECT 1" {
            let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
            return Ok(rows(RecordBatch::try_from_iter([("one", one)]).unwrap()));
        }
        if let Some(name) = quoted_after(text, "CREATE TABLE ") {
            let columns = text.split_once(" (").unwrap().1.trim_end_matches(')').split(", ");
            let fields: Vec<Field> = columns
                .map(|column| {
                    let (column, kind) = column.trim_start_matches('"').split_once("\" ").unwrap();
                    let data_type = match kind.trim_end_matches(" NOT NULL") {
                        "bigint" => DataType::Int64,
                        "double precision" => DataType::Float64,
                        _ => DataType::Utf8,
                    };
                    Field::new(column, data_type, !kind.ends_with(" NOT NULL"))
                })
                .collect();
            let table = RecordBatch::new_empty(Arc::new(Schema::new(fields)));
            let exists =
                SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"));
            self.with_tables(|tables| match tables.contains_key(name) {
                true => Err(exists),
                false => Ok(tables.insert(name.to_string(), table)),
            })?;
            return Ok(completion("CREATE TABLE"));
        }
        if let Some(name) = quoted_after(text, "DROP TABLE ") {
            self.table(name)?;
            self.with_tables(|tables| Ok(tables.remove(name)))?;
            return Ok(completion("DROP TABLE"));
        }
        if let Some(name) = quoted_after(text, "INSERT INTO ") {
            return Ok(completion(format!("INSERT 0 {}", self.append(name, values.to_vec())?)));
        }
        if let Some(name) = quoted_after(text, "COPY ") {
            return self.copy(name);
        }
        let name = quoted_after(text, "SELECT * FROM ");
        let name =
            name.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at \"{text}\"")))?;
        self.table(name).map(rows)
    }

    fn numbers(&self, count: i64, mut failure: Option<SqlError>) -> BackendResponse {
        let batches = Arc::clone(&self.batches);
        let mut from = 0;
        let batches = std::iter::from_fn(move || {
            if from > 20_000 && failure.is_some() {
                return failure.take().map(Err);
            }
            let to = count.min(from + 8192);
            if from == to {
                return None;
            }
            batches.fetch_add(1, Ordering::SeqCst);
            let words = (from..to).map(|n| (n % 7 != 0).then(|| format!("the word of the number {n}")));
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(from..to)),
                Arc::new(words.collect::<StringViewArray>()),
            ];
            from = to;
            Some(Ok(RecordBatch::try_new(numbers_schema(), columns).unwrap()))
        });
        BackendResponse::Rows { schema: numbers_schema(), rows: futures::stream::iter(batches).boxed() }
    }

    /// Rows are added to the table at the end of the input.
    fn copy(self: &Arc<Self>, name: &str) -> Result<BackendResponse, SqlError> {
        let schema = self.table(name)?.schema();
        let (input, mut output) = mpsc::channel::<bytes::Bytes>(2);
        let (table_name, full_schema) = (name.to_string(), Arc::clone(&schema));
        let (own, name) = (Arc::clone(self), name.to_string());
        let completion = Box::pin(async move {
            let mut text = Vec::new();
            while let Some(part) = output.recv().await {
                text.extend_from_slice(&part);
            }
            let text = String::from_utf8(text).unwrap();
            let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
            let columns = schema.fields().iter().enumerate().map(|(at, field)| {
                let column =
                    lines.iter().map(|line| (line[at] != "\\N").then(|| line[at].replace("\\t", "\t")));
                cast(&(Arc::new(column.collect::<StringArray>()) as ArrayRef), field.data_type())
            });
            let columns = columns.collect::<Result<Vec<_>, _>>();
            let columns = columns
                .map_err(|error| SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, error.to_string()))?;
            own.append(&name, columns)?;
            Ok(Completion { tag: format!("COPY {}", lines.len()), ..Completion::default() })
        });
        let (table, input) = (table_name, CopyInto::Text(input));
        Ok(BackendResponse::CopyIn(CopyFromClient { table, schema: full_schema, input, done: completion }))
    }
}

#[async_trait]
impl BackendSession for MockSession {
    fn row_buffer(&self) -> Result<Box<dyn BufferedRows>, SqlError> {
        Ok(Box::new(MockBuffer::default()))
    }

    fn split(&self, text: &str) -> Vec<StatementPart> {
        let texts = text.split(';').map(str::trim).filter(|text| !text.is_empty());
        texts.map(|text| StatementPart { text: text.to_string(), offset: 0 }).collect()
    }

    async fn parse(&self, text: &str) -> Result<BackendStatement, SqlError> {
        if text.starts_with("SELEC ") {
            return Err(SqlError {
                position: Some(1),
                ..SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"SELEC\"")
            });
        }
        let kind = match text.split(' ').next() {
            Some("BEGIN") => StatementKind::Begin,
            Some("COMMIT" | "ROLLBACK" | "SAVEPOINT" | "RELEASE") => StatementKind::Control,
            _ => StatementKind::Plain,
        };
        let inner = Arc::new(Arc::as_ptr(&self.0) as usize);
        Ok(BackendStatement {
            text: text.to_string(),
            inner,
            tag: "SELECT",
            kind,
            has_rows: text.starts_with("SELECT"),
        })
    }

    async fn describe(
        &self,
        statement: &BackendStatement,
        _: &[Option<DataType>],
    ) -> Result<Description, SqlError> {
        let text = statement.text.as_str();
        let none = Vec::new();
        Ok(match text {
            "SELECT $1, $2" => Description {
                parameters: vec![DataType::Int64, DataType::Utf8],
                names: vec![],
                columns: Some(Arc::new(Schema::new(vec![
                    Field::new("$1", DataType::Int64, true),
                    Field::new("$2", DataType::Utf8, true),
                ]))),
            },
            "SELECT 1" => Description {
                parameters: none,
                names: vec![],
                columns: Some(Arc::new(Schema::new(vec![Field::new("one", DataType::Int64, false)]))),
            },
            _ if text.starts_with("SELECT numbers") => {
                Description { parameters: none, names: vec![], columns: Some(numbers_schema()) }
            }
            _ if text.starts_with("INSERT INTO ") => {
                let table = self.0.table(quoted_after(text, "INSERT INTO ").unwrap())?;
                let types = table.schema().fields().iter().map(|field| field.data_type().clone()).collect();
                Description { parameters: types, names: vec![], columns: None }
            }
            _ if text.starts_with("SELECT * FROM \"toy\".\"pg_catalog\"") => {
                return Err(SqlError::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "permission denied for table pg_class",
                ));
            }
            _ if text.starts_with("SELECT * FROM ") => {
                let table = self.0.table(quoted_after(text, "SELECT * FROM ").unwrap())?;
                Description { parameters: none, names: vec![], columns: Some(table.schema()) }
            }
            _ => Description { parameters: none, names: vec![], columns: None },
        })
    }

    async fn execute(
        &self,
        statement: &BackendStatement,
        values: &[ArrayRef],
        _: &Arc<StatementEntry>,
    ) -> Result<BackendResponse, SqlError> {
        let parsed_by = statement.inner.downcast_ref::<usize>();
        assert_eq!(
            parsed_by,
            Some(&(Arc::as_ptr(&self.0) as usize)),
            "a statement is of the session that parsed it"
        );
        let result = self.0.run(&statement.text, values).await;
        let mut own = self.0.own.lock();
        own.has_failed |= result.is_err() && own.transaction.is_some();
        result
    }

    fn transaction(&self) -> TransactionState {
        let own = self.0.own.lock();
        match own.transaction {
            None => TransactionState::Idle,
            Some(_) if own.has_failed => TransactionState::Failed,
            Some(_) => TransactionState::Open,
        }
    }

    fn fail(&self) {
        let mut own = self.0.own.lock();
        own.has_failed |= own.transaction.is_some();
    }

    async fn discard(&self, _: Discard) -> Result<(), SqlError> {
        Ok(())
    }

    fn parameter_status(&self, _: u64) -> Option<(u64, Vec<(&'static str, String)>)> {
        None
    }

    fn time_limits(&self) -> TimeLimits {
        TimeLimits::default()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        self.0.own.lock().settings.get(name).cloned()
    }

    async fn settle(&self) -> Result<(), SqlError> {
        // A real backend waits for its ranks here.
        tokio::task::yield_now().await;
        Ok(())
    }
}
