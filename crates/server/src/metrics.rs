//! Metrics: the registry's totals, the overview and the process, as OpenMetrics text for `/metrics`, and for
//! telemetry.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::facts::Facts;
use crate::overview::{Overview, QueueFacts, RankFacts, RankState, ServerFacts};
use crate::registry::{DURATIONS_MS, Phase, Registry, Totals};

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Linux reports processor time in these units on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// All current metrics as OpenMetrics text.
pub(crate) fn text(registry: &Registry, facts: &Facts) -> Result<String, fmt::Error> {
    let mut all = prometheus_client::registry::Registry::with_prefix("harrier");
    all.register_collector(Box::new(Scrape::of(registry, facts)));
    let mut written = String::new();
    text::encode(&mut written, &all)?;
    Ok(written)
}

/// Sample output of `/metrics` for a new server with one rank and one queue: contains every metric, for
/// documentation.
pub fn sample() -> Result<String, fmt::Error> {
    let server = ServerFacts {
        version: String::new(),
        since: UNIX_EPOCH,
        warehouse: String::new(),
        listen: Vec::new(),
        closed: None,
        ranks_wanted: 1,
    };
    let facts = Facts {
        server: Ok(server),
        ranks: Ok(vec![RankFacts::default()]),
        queues: Ok(vec![QueueFacts::default()]),
    };
    text(&Registry::default(), &facts)
}

/// All current metrics for other exporters than Prometheus; names without the prefix.
pub(crate) async fn families(registry: &Registry, overview: &Arc<dyn Overview>) -> Vec<Family> {
    Scrape::of(registry, &Facts::of(overview).await).0
}

#[derive(Debug)]
pub(crate) enum Value {
    /// A monotonic counter.
    Count(u64),
    /// A monotonic sum.
    Sum(f64),
    Level(f64),
    /// A histogram: the count in each class of [`DURATIONS_MS`], and the sum in seconds.
    Durations(Vec<u64>, f64),
}

/// A metric with all its label combinations.
#[derive(Debug)]
pub(crate) struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub unit: Option<Unit>,
    /// Labels and their value.
    pub values: Vec<(Vec<(&'static str, String)>, Value)>,
}

#[derive(Debug, Default)]
struct Scrape(Vec<Family>);

impl Scrape {
    fn of(registry: &Registry, facts: &Facts) -> Self {
        let mut scrape = Self::default();
        scrape.totals(registry.totals());
        scrape.now(registry);
        scrape.server(facts);
        scrape.ranks(facts);
        scrape.queues(facts);
        scrape.process();
        scrape
    }

    fn one(&mut self, name: &'static str, help: &'static str, unit: Option<Unit>, value: Value) {
        self.many(name, help, unit, vec![(Vec::new(), value)]);
    }

    fn many(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        values: Vec<(Vec<(&'static str, String)>, Value)>,
    ) {
        self.0.push(Family { name, help, unit, values });
    }

    fn totals(&mut self, totals: &Totals) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let classes: Vec<u64> = totals.durations.iter().map(read).collect();
        let (failed, canceled) = (read(&totals.failures), read(&totals.cancels));
        let done = classes.iter().sum::<u64>().saturating_sub(failed + canceled);
        let by_outcome = [(Phase::Done, done), (Phase::Failed, failed), (Phase::Canceled, canceled)]
            .map(|(phase, count)| (vec![("outcome", phase.name().to_string())], Value::Count(count)));
        self.one(
            "sessions_opened",
            "Sessions since the server began",
            None,
            Value::Count(read(&totals.sessions)),
        );
        self.one(
            "sessions_refused",
            "Sessions that were not let in since the server began",
            None,
            Value::Count(read(&totals.refused)),
        );
        self.one(
            "statements_begun",
            "Statements since the server began",
            None,
            Value::Count(read(&totals.statements)),
        );
        self.many("statements_ended", "Statements that have ended", None, by_outcome.into());
        self.one(
            "statement_duration",
            "Time from a statement's arrival to its end",
            Some(Unit::Seconds),
            Value::Durations(classes, read(&totals.running_us) as f64 / 1e6),
        );
        self.one(
            "rows_returned",
            "Rows that statements that have ended gave to clients or took from them",
            None,
            Value::Count(read(&totals.rows)),
        );
        self.one(
            "returned",
            "Bytes that statements that have ended gave to clients or took from them",
            Some(Unit::Bytes),
            Value::Count(read(&totals.bytes)),
        );
        let bytes = [
            ("read", "Bytes that statements that have ended read from files", &totals.read_bytes),
            ("moved", "Bytes that statements that have ended moved between ranks", &totals.moved_bytes),
            ("spilled", "Bytes that statements that have ended spilled to disk", &totals.spilled_bytes),
        ];
        for (name, help, count) in bytes {
            self.one(name, help, Some(Unit::Bytes), Value::Count(read(count)));
        }
        self.one(
            "statements_retried",
            "Statements that were run once more after the loss of a rank",
            None,
            Value::Count(read(&totals.retried)),
        );
        self.one(
            "telemetry_dropped",
            "Statements that have ended and were not exported to OpenTelemetry",
            None,
            Value::Count(read(&totals.dropped_exports)),
        );
    }

    fn now(&mut self, registry: &Registry) {
        let sessions = registry.sessions();
        let activities = ["active", "idle", "idle in transaction", "idle in transaction (aborted)"];
        let by_activity = activities.map(|name| {
            let count = sessions.iter().filter(|session| session.activity().0.name() == name).count();
            (vec![("state", name.to_string())], Value::Level(count as f64))
        });
        self.many("sessions", "Sessions by what they do", None, by_activity.into());
        let statements = registry.statements();
        let by_phase = [Phase::Queued, Phase::Planning, Phase::Running].map(|phase| {
            let count = statements.iter().filter(|statement| statement.phase() == phase).count();
            (vec![("phase", phase.name().to_string())], Value::Level(count as f64))
        });
        self.many("statements", "Statements that have not ended", None, by_phase.into());
    }

    fn server(&mut self, facts: &Facts) {
        let health = facts.health();
        let truth = |is: bool| Value::Level(f64::from(u8::from(is)));
        self.one("healthy", "1 if /healthz says so", None, truth(health.is_well()));
        self.one("ready", "1 if /readyz says so", None, truth(health.is_ready));
        if let Ok(server) = &facts.server {
            let labels = vec![("version", server.version.clone())];
            self.many("build", "What runs; always 1", None, vec![(labels, Value::Level(1.0))]);
            let since = server.since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let help = "When the server began, in seconds since 1970";
            self.one("start_time", help, Some(Unit::Seconds), Value::Level(since.as_secs_f64()));
            self.one(
                "ranks_wanted",
                "Ranks that are to work at a time",
                None,
                Value::Level(server.ranks_wanted as f64),
            );
        }
    }

    fn ranks(&mut self, facts: &Facts) {
        let Ok(ranks) = &facts.ranks else { return };
        let by_state = RankState::ALL.map(|state| {
            let count = ranks.iter().filter(|rank| rank.state == state).count();
            (vec![("state", state.name().to_string())], Value::Level(count as f64))
        });
        self.many("ranks", "Ranks by their state", None, by_state.into());
        let each = |value: fn(&RankFacts) -> Value| {
            let labels =
                |rank: &RankFacts| vec![("rank", rank.number.to_string()), ("host", rank.host.clone())];
            ranks.iter().map(|rank| (labels(rank), value(rank))).collect()
        };
        let up = each(|rank| Value::Level(f64::from(u8::from(rank.state != RankState::Down))));
        self.many("rank_up", "0 if the rank is down", None, up);
        let sent = each(|rank| Value::Count(rank.sent_bytes));
        self.many("rank_sent", "Bytes sent to other ranks since the rank started", Some(Unit::Bytes), sent);
        let reserved = each(|rank| Value::Level(rank.reserved_bytes as f64));
        self.many("rank_memory_reserved", "Memory that statements hold", Some(Unit::Bytes), reserved);
        let processor = each(|rank| Value::Sum(rank.processor_seconds));
        self.many("rank_cpu", "Processor time since the rank started", Some(Unit::Seconds), processor);
    }

    fn queues(&mut self, facts: &Facts) {
        let Ok(queues) = &facts.queues else { return };
        let each = |value: fn(&QueueFacts) -> usize| {
            let labels = |name: &str| vec![("queue", name.to_string())];
            queues.iter().map(|queue| (labels(&queue.name), Value::Level(value(queue) as f64))).collect()
        };
        let (running, waiting) = (each(|queue| queue.running), each(|queue| queue.waiting));
        self.many("queue_running", "Statements that a resource queue lets run", None, running);
        self.many("queue_waiting", "Statements that wait in a resource queue", None, waiting);
    }

    fn process(&mut self) {
        if let Some(bytes) = resident_bytes() {
            let help = "Memory of the server's process";
            self.one("process_resident_memory", help, Some(Unit::Bytes), Value::Level(bytes as f64));
        }
        if let Some(seconds) = processor_seconds() {
            let help = "Processor time of the server's process";
            self.one("process_cpu", help, Some(Unit::Seconds), Value::Sum(seconds));
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            let help = "Files and connections that the server's process has open";
            self.one("process_open_files", help, None, Value::Level(files.count() as f64));
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.values.first() {
                Some((_, Value::Count(_) | Value::Sum(_))) => MetricType::Counter,
                Some((_, Value::Level(_))) => MetricType::Gauge,
                Some((_, Value::Durations(..))) => MetricType::Histogram,
                None => continue,
            };
            let mut metric =
                encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), kind)?;
            match family.values.as_slice() {
                [(labels, value)] if labels.is_empty() => value.encode(metric)?,
                values => {
                    for (labels, value) in values {
                        value.encode(metric.encode_family(labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, mut metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Count(count) => ConstCounter::new(*count).encode(metric),
            Self::Sum(sum) => ConstCounter::new(*sum).encode(metric),
            Self::Level(level) => ConstGauge::new(*level).encode(metric),
            Self::Durations(classes, sum) => {
                let bounds = DURATIONS_MS.iter().map(|ms| *ms as f64 / 1e3).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(classes.iter().copied()).collect();
                metric.encode_histogram::<NoLabelSet>(*sum, classes.iter().sum(), &buckets, None)
            }
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// User plus system time.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may contain blanks and parentheses.
    let after = &stat[stat.rfind(')')? + 1..];
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Some(ticks as f64 / TICKS_PER_SECOND)
}
