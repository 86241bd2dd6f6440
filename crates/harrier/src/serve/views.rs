//! What the server is doing, as tables of schema `sys` and as functions that change it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Int64Type, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_engine::ServerTable;
use harrier_server::registry::{Registry, SessionEntry, StatementEntry, Stop};

use super::gang::{State, Supervisor};

type Columns = Vec<(&'static str, ArrayRef)>;

/// All tables about the server.
pub(super) fn tables(registry: &Arc<Registry>, gang: Option<&Supervisor>) -> Vec<ServerTable> {
    let ranks = gang.cloned();
    vec![
        table("sessions", registry, |registry| sessions(&registry.sessions())),
        table("statements", registry, |registry| statements(&registry.statements())),
        table("ranks", &Arc::new(ranks), |gang| self::ranks(gang.as_ref())),
    ]
}

fn table<T: Send + Sync + 'static>(
    name: &'static str,
    source: &Arc<T>,
    columns: impl Fn(&T) -> Columns + Send + Sync + 'static,
) -> ServerTable {
    let source = Arc::clone(source);
    let rows = move || {
        let columns = columns(&source);
        Ok(RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )?)
    };
    // What columns there are does not depend on the rows.
    let schema = rows().map_or_else(|_: datafusion::error::DataFusionError| Arc::new(Schema::empty()), |batch| batch.schema());
    ServerTable { name, schema, rows: Arc::new(rows) }
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn counts(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| Some(value as i64)).collect::<Int64Array>())
}

fn times(values: impl IntoIterator<Item = SystemTime>) -> ArrayRef {
    let us = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    let array: TimestampMicrosecondArray = values.into_iter().map(|time| Some(us(time))).collect();
    Arc::new(array.with_timezone("UTC"))
}

fn sessions(sessions: &[Arc<SessionEntry>]) -> Columns {
    let each = || sessions.iter();
    vec![
        ("pid", Arc::new(each().map(|session| Some(session.id)).collect::<Int32Array>())),
        ("role", texts(each().map(|session| Some(session.role.clone())))),
        ("database", texts(each().map(|session| Some(session.database.clone())))),
        ("application_name", texts(each().map(|session| Some(session.application())))),
        ("client", texts(each().map(|session| session.client.map(|client| client.to_string())))),
        ("started", times(each().map(|session| session.since))),
        ("state", texts(each().map(|session| Some(session.activity().0.name().to_string())))),
        ("state_changed", times(each().map(|session| session.activity().1))),
        ("statement_id", {
            let id = |session: &Arc<SessionEntry>| session.statement().map(|statement| statement.id as i64);
            Arc::new(each().map(id).collect::<Int64Array>())
        }),
        ("statement", texts(each().map(|session| session.statement().map(|statement| statement.text.clone())))),
    ]
}

fn statements(statements: &[Arc<StatementEntry>]) -> Columns {
    let each = || statements.iter();
    let ms = |duration: std::time::Duration| Some(duration.as_secs_f64() * 1000.0);
    vec![
        ("id", counts(each().map(|statement| statement.id))),
        ("pid", Arc::new(each().map(|statement| Some(statement.session)).collect::<Int32Array>())),
        ("role", texts(each().map(|statement| Some(statement.role.clone())))),
        ("state", texts(each().map(|statement| Some(statement.phase().name().to_string())))),
        ("queue", texts(each().map(|statement| statement.queue()))),
        ("started", times(each().map(|statement| statement.since))),
        ("queued_ms", Arc::new(each().map(|statement| ms(statement.queued())).collect::<Float64Array>())),
        ("elapsed_ms", Arc::new(each().map(|statement| ms(statement.elapsed())).collect::<Float64Array>())),
        ("rows", counts(each().map(|statement| statement.rows.load(Ordering::Relaxed)))),
        ("bytes", counts(each().map(|statement| statement.bytes.load(Ordering::Relaxed)))),
        ("on_gang", Arc::new(each().map(|statement| Some(statement.is_on_gang())).collect::<BooleanArray>())),
        ("sqlstate", texts(each().map(|statement| statement.failure().map(|(state, _)| state)))),
        ("error", texts(each().map(|statement| statement.failure().map(|(_, message)| message)))),
        ("text", texts(each().map(|statement| Some(statement.text.clone())))),
    ]
}

fn ranks(gang: Option<&Supervisor>) -> Columns {
    let view = gang.map(Supervisor::view);
    let ranks = view.as_ref().map(|view| view.status.ranks.clone()).unwrap_or_default();
    let each = || ranks.iter();
    let state = |rank: &harrier_exec::front::RankStatus| match (&rank.lost, rank.works) {
        (Some(_), _) => "down",
        (None, true) => "working",
        (None, false) => "spare",
    };
    vec![
        ("rank", Arc::new((0..ranks.len() as i32).map(Some).collect::<Int32Array>())),
        ("host", texts(each().map(|rank| Some(rank.host.clone())))),
        ("pid", Arc::new(each().map(|rank| Some(rank.pid as i32)).collect::<Int32Array>())),
        ("state", texts(each().map(|rank| Some(state(rank).to_string())))),
        ("reason", texts(each().map(|rank| rank.lost.clone()))),
        ("bytes_sent", counts(each().map(|rank| rank.bytes_sent))),
        ("frames_sent", counts(each().map(|rank| rank.frames_sent))),
        ("streams_open", counts(each().map(|rank| rank.streams_open))),
        ("reserved_bytes", counts(each().map(|rank| rank.reserved_bytes))),
        ("cpu_seconds", {
            let seconds = each().map(|rank| Some(rank.process_cpu_ns as f64 / 1e9));
            Arc::new(seconds.collect::<Float64Array>())
        }),
        ("gang", counts(each().map(|_| view.as_ref().map_or(0, |view| view.generation)))),
        ("gang_since", {
            let since = view.as_ref().filter(|view| view.state == State::Up).map(|view| view.since);
            times(each().map(|_| since.unwrap_or(UNIX_EPOCH)))
        }),
    ]
}

/// The functions that change what sessions do.
pub(super) fn functions(registry: &Arc<Registry>) -> Vec<Arc<ScalarUDF>> {
    let function = |name, stop| {
        let registry = Arc::clone(registry);
        let signature = Signature::exact(vec![DataType::Int64], Volatility::Volatile);
        Arc::new(ScalarUDF::new_from_impl(StopSession { name, stop, registry, signature }))
    };
    vec![function("pg_cancel_backend", Stop::Statement), function("pg_terminate_backend", Stop::Session)]
}

/// Cancels the statement of a session, or ends it; true if there is one of that number.
#[derive(Debug)]
struct StopSession {
    name: &'static str,
    stop: Stop,
    registry: Arc<Registry>,
    signature: Signature,
}

impl PartialEq for StopSession {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for StopSession {}

impl std::hash::Hash for StopSession {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for StopSession {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let numbers = args.args[0].to_array(args.number_rows)?;
        let stopped: BooleanArray = numbers
            .as_primitive::<Int64Type>()
            .iter()
            .map(|number| {
                let session = self.registry.session(i32::try_from(number?).ok()?);
                if let Some(session) = &session {
                    session.stop(self.stop);
                }
                Some(session.is_some())
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(stopped)))
    }
}

