//! OTLP/JSON encoding of spans and metrics: names as in its Protocol Buffers in lowerCamelCase, ids in hex,
//! 64-bit numbers as text.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use harrier_session_api::query_profile::{QueryProfile, Share, Slice};
use prometheus_client::registry::Unit;

use serde_json::{Value, json};

use crate::metrics::{self, Family};
use crate::registry::{DURATIONS_MS, Phase, StatementEntry};
use crate::trace_parent::{mask_literals, to_hex};

/// `AggregationTemporality` of the protocol: cumulative since the start.
const CUMULATIVE: i32 = 2;

/// `SpanKind` and `StatusCode` of the protocol.
const KIND_INTERNAL: i32 = 1;
const KIND_SERVER: i32 = 2;
const STATUS_ERROR: i32 = 2;

/// The exporting resource.
#[derive(Debug, Clone)]
pub struct Resource {
    pub service: String,
    /// This program's version.
    pub version: String,
    /// Distinguishes servers of the same service: its address.
    pub instance: String,
}

impl Resource {
    fn json(&self) -> Value {
        let mut attributes = Attributes::default();
        attributes.text("service.name", &self.service);
        attributes.text("service.version", &self.version);
        attributes.text("service.instance.id", &self.instance);
        attributes.number("process.pid", u64::from(std::process::id()));
        json!({ "attributes": attributes.0 })
    }
}

#[derive(Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn text(&mut self, key: &str, value: &str) {
        self.0.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    fn number(&mut self, key: &str, value: u64) {
        self.0.push(json!({ "key": key, "value": { "intValue": value.to_string() } }));
    }

    fn some(&mut self, key: &str, value: u64) {
        if value > 0 {
            self.number(key, value);
        }
    }

    fn decimal(&mut self, key: &str, value: f64) {
        self.0.push(json!({ "key": key, "value": { "doubleValue": value } }));
    }

    fn truth(&mut self, key: &str, value: bool) {
        self.0.push(json!({ "key": key, "value": { "boolValue": value } }));
    }
}

/// An `ExportTraceServiceRequest` with spans of finished statements. Null if none is exported, because their
/// callers do not sample their traces.
pub(super) fn traces(resource: &Resource, statements: &[Arc<StatementEntry>], has_literals: bool) -> Value {
    let spans: Vec<Value> = statements
        .iter()
        .filter(|statement| statement.trace.is_none_or(|trace| trace.is_sampled))
        .flat_map(|statement| spans(statement, has_literals))
        .collect();
    if spans.is_empty() {
        return Value::Null;
    }
    json!({
        "resourceSpans": [{
            "resource": resource.json(),
            "scopeSpans": [{ "scope": { "name": "harrier", "version": resource.version }, "spans": spans }],
        }],
    })
}

/// An `ExportMetricsServiceRequest`. Counters are cumulative from `since`.
pub(super) fn metrics(resource: &Resource, families: &[Family], since: SystemTime) -> Value {
    let metrics: Vec<Value> =
        families.iter().filter_map(|family| metric(family, since, SystemTime::now())).collect();
    json!({
        "resourceMetrics": [{
            "resource": resource.json(),
            "scopeMetrics": [{ "scope": { "name": "harrier", "version": resource.version }, "metrics": metrics }],
        }],
    })
}

/// `None`: there is no value.
fn metric(family: &Family, since: SystemTime, now: SystemTime) -> Option<Value> {
    let nanoseconds =
        |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
    let (since, now) = (nanoseconds(since), nanoseconds(now));
    let point = |(labels, value): &(Vec<(&'static str, String)>, metrics::Value)| {
        let mut attributes = Attributes::default();
        labels.iter().for_each(|(name, value)| attributes.text(name, value));
        let mut point = json!({ "timeUnixNano": now, "attributes": attributes.0 });
        if !matches!(value, metrics::Value::Level(_)) {
            point["startTimeUnixNano"] = since.as_str().into();
        }
        match value {
            metrics::Value::Count(count) => point["asInt"] = count.to_string().into(),
            metrics::Value::Sum(number) | metrics::Value::Level(number) => {
                point["asDouble"] = (*number).into()
            }
            metrics::Value::Durations(classes, sum) => {
                point["count"] = classes.iter().sum::<u64>().to_string().into();
                point["sum"] = (*sum).into();
                point["bucketCounts"] = classes.iter().map(u64::to_string).collect();
                point["explicitBounds"] = DURATIONS_MS.iter().map(|ms| *ms as f64 / 1e3).collect();
            }
        }
        point
    };
    let points: Vec<Value> = family.values.iter().map(point).collect();
    let unit = match family.unit {
        Some(Unit::Seconds) => "s",
        Some(Unit::Bytes) => "By",
        _ => "1",
    };
    let mut metric =
        json!({ "name": format!("harrier.{}", family.name), "description": family.help, "unit": unit });
    match &family.values.first()?.1 {
        metrics::Value::Count(_) | metrics::Value::Sum(_) => {
            metric["sum"] =
                json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true });
        }
        metrics::Value::Level(_) => metric["gauge"] = json!({ "dataPoints": points }),
        metrics::Value::Durations(..) => {
            metric["histogram"] = json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE });
        }
    }
    Some(metric)
}

/// The statement's span, and those of its slices on ranks.
fn spans(statement: &StatementEntry, has_literals: bool) -> Vec<Value> {
    let trace =
        statement.trace.map_or_else(|| to_hex(&rand::random::<[u8; 16]>()), |trace| to_hex(&trace.trace_id));
    let id = to_hex(&rand::random::<[u8; 8]>());
    let began = statement.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ended = began + statement.execution_time();
    let operation = operation(&statement.text);
    let mut attributes = Attributes::default();
    attributes.text("db.system.name", "harrier");
    attributes.text("db.namespace", &statement.database);
    attributes.text("db.operation.name", &operation);
    match has_literals {
        true => attributes.text("db.query.text", &statement.text),
        false => attributes.text("db.query.text", &mask_literals(&statement.text)),
    }
    attributes.text("user.name", &statement.role);
    attributes.number("db.response.returned_rows", statement.rows.load(Ordering::Relaxed));
    attributes.number("harrier.statement.id", statement.id);
    attributes.number("harrier.session.id", statement.session.unsigned_abs().into());
    attributes.truth("harrier.on_gang", statement.is_on_gang());
    attributes.number("harrier.retries", statement.retries());
    attributes.number("harrier.returned_bytes", statement.bytes.load(Ordering::Relaxed));
    if let Some(queue) = statement.queue() {
        attributes.text("harrier.queue.name", &queue);
        attributes.decimal("harrier.queue.wait_seconds", statement.queue_wait().as_secs_f64());
    }
    let (_, peak_bytes) = statement.memory();
    attributes.number("harrier.memory_peak_bytes", peak_bytes);
    let work = statement.profile();
    if let Some(work) = &work {
        attributes.number("harrier.read_bytes", work.read_bytes());
        attributes.number("harrier.moved_bytes", work.moved_bytes());
        attributes.number("harrier.spilled_bytes", work.spilled_bytes());
    }
    let mut span = json!({
        "traceId": trace,
        "spanId": id,
        "name": format!("{operation} {}", statement.database).trim(),
        "kind": KIND_SERVER,
        "startTimeUnixNano": began.as_nanos().to_string(),
        "endTimeUnixNano": ended.as_nanos().to_string(),
    });
    if let Some((sqlstate, message)) = statement.failure() {
        attributes.text("db.response.status_code", sqlstate.as_str());
        attributes.text(
            "error.type",
            if statement.phase() == Phase::Canceled { "canceled" } else { sqlstate.as_str() },
        );
        // A quoted part of a message may be a literal of the statement.
        let message = if has_literals { message } else { format!("SQLSTATE {sqlstate}") };
        span["status"] = json!({ "code": STATUS_ERROR, "message": message });
    }
    if let Some(parent) = &statement.trace {
        span["parentSpanId"] = to_hex(&parent.span_id).into();
        // The lowest bit is W3C's flag; the next two say that the parent is remote.
        span["flags"] = 0x301.into();
    }
    span["attributes"] = attributes.0.into();
    let mut spans = vec![span];
    for slice in work.iter().flat_map(|work| &work.slices) {
        spans.extend(of_slice(&trace, &id, work.as_deref(), slice));
    }
    spans
}

fn of_slice(trace: &str, parent: &str, work: Option<&QueryProfile>, slice: &Slice) -> Vec<Value> {
    let times = work.map(|work| work.times(slice)).unwrap_or_default();
    let one = |(rank, began, ended): (u64, u64, u64)| {
        let shares = || {
            let of_rank = move |share: &&Share| share.rank == rank;
            slice.operators.iter().flat_map(move |operator| operator.shares.iter().filter(of_rank))
        };
        let sum = |number: fn(&Share) -> u64| shares().map(number).sum::<u64>();
        let top = slice.operators.first();
        let rows = top.and_then(|top| top.shares.iter().find(|share| share.rank == rank)?.rows);
        let mut attributes = Attributes::default();
        attributes.number("harrier.slice", slice.number);
        attributes.number("harrier.rank", rank);
        rows.into_iter().for_each(|rows| attributes.number("harrier.rows", rows));
        attributes.decimal("harrier.busy_seconds", sum(|share| share.busy_ns.unwrap_or(0)) as f64 / 1e9);
        attributes.some("harrier.read_bytes", sum(|share| share.read_bytes));
        attributes.some("harrier.moved_bytes", sum(|share| share.moved_bytes));
        attributes.some("harrier.spilled_bytes", sum(|share| share.spilled_bytes));
        let operators: Vec<&str> = slice.operators.iter().map(|operator| operator.name.as_str()).collect();
        attributes.text("harrier.operators", &operators.join(", "));
        json!({
            "traceId": trace,
            "spanId": to_hex(&rand::random::<[u8; 8]>()),
            "parentSpanId": parent,
            "name": format!("slice {}", slice.number),
            "kind": KIND_INTERNAL,
            "startTimeUnixNano": began.to_string(),
            "endTimeUnixNano": ended.to_string(),
            "attributes": attributes.0,
        })
    };
    times.into_iter().map(one).collect()
}

/// The first word of a statement, after comments and parentheses.
fn operation(text: &str) -> String {
    let plain = mask_literals(text);
    let word = plain.trim_start_matches(|char: char| !char.is_alphabetic());
    let end = word.find(|char: char| !char.is_alphabetic()).unwrap_or(word.len());
    word[..end].chars().take(20).collect::<String>().to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_named_by_the_statements_first_word() {
        for (text, expected) in [
            ("select 1", "SELECT"),
            ("/* a */ -- b\n (WITH x AS (SELECT 1) SELECT 2)", "WITH"),
            ("insert into t values (1)", "INSERT"),
            ("", ""),
            ("42", ""),
        ] {
            assert_eq!(operation(text), expected, "{text}");
        }
    }
}
