//! Wire format of operator metrics. A metric kind without an encoding is sent as a plain count, never
//! silently dropped.

use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, Gauge, Label, Metric, MetricValue, MetricsSet, PruningMetrics, RatioMetrics,
    Time, Timestamp,
};
use datafusion_distributed::{
    AvgLatencyMetric, BytesCounterMetric, FirstLatencyMetric, MaxGaugeMetric, MaxLatencyMetric,
    MinLatencyMetric,
};
use prost::Message;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The metrics of one operator on one rank.
#[derive(Clone, PartialEq, Message)]
pub struct Set {
    #[prost(message, repeated, tag = "1")]
    pub metrics: Vec<EncodedMetric>,
}

/// One metric: a kind, a name unless the kind implies it, and up to three numbers.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedMetric {
    #[prost(enumeration = "Kind", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint64, repeated, tag = "3")]
    pub values: Vec<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub partition: Option<u64>,
    /// Name and value, flattened.
    #[prost(string, repeated, tag = "5")]
    pub labels: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    Count = 0,
    OutputRows = 1,
    ElapsedCompute = 2,
    SpillCount = 3,
    SpilledBytes = 4,
    SpilledRows = 5,
    OutputBytes = 6,
    OutputBatches = 7,
    CurrentMemory = 8,
    Gauge = 9,
    PeakMemory = 10,
    Time = 11,
    Start = 12,
    End = 13,
    Pruning = 14,
    Ratio = 15,
    Bytes = 16,
    MaxGauge = 17,
    MinLatency = 18,
    MaxLatency = 19,
    AvgLatency = 20,
    FirstLatency = 21,
}

pub fn encode(set: &MetricsSet) -> Set {
    Set { metrics: set.iter().map(|metric| encode_one(metric)).collect() }
}

fn encode_one(metric: &Metric) -> EncodedMetric {
    let value = metric.value();
    let (kind, values) = match value {
        MetricValue::OutputRows(count) => (Kind::OutputRows, vec![count.value()]),
        MetricValue::ElapsedCompute(time) => (Kind::ElapsedCompute, vec![time.value()]),
        MetricValue::SpillCount(count) => (Kind::SpillCount, vec![count.value()]),
        MetricValue::SpilledBytes(count) => (Kind::SpilledBytes, vec![count.value()]),
        MetricValue::SpilledRows(count) => (Kind::SpilledRows, vec![count.value()]),
        MetricValue::OutputBytes(count) => (Kind::OutputBytes, vec![count.value()]),
        MetricValue::OutputBatches(count) => (Kind::OutputBatches, vec![count.value()]),
        MetricValue::CurrentMemoryUsage(gauge) => (Kind::CurrentMemory, vec![gauge.value()]),
        MetricValue::Count { count, .. } => (Kind::Count, vec![count.value()]),
        MetricValue::Gauge { gauge, .. } => (Kind::Gauge, vec![gauge.value()]),
        MetricValue::PeakMemoryUsage { gauge, .. } => (Kind::PeakMemory, vec![gauge.value()]),
        MetricValue::Time { time, .. } => (Kind::Time, vec![time.value()]),
        MetricValue::StartTimestamp(at) => (Kind::Start, timestamp(at)),
        MetricValue::EndTimestamp(at) => (Kind::End, timestamp(at)),
        MetricValue::PruningMetrics { pruning_metrics: p, .. } => {
            (Kind::Pruning, vec![p.pruned(), p.matched(), p.fully_matched()])
        }
        MetricValue::Ratio { ratio_metrics, .. } => {
            (Kind::Ratio, vec![ratio_metrics.part(), ratio_metrics.total()])
        }
        MetricValue::Custom { value, .. } => encode_custom(value.as_ref()),
    };
    EncodedMetric {
        kind: kind as i32,
        name: value.name().to_string(),
        values: values.into_iter().map(|value| value as u64).collect(),
        partition: metric.partition().map(|partition| partition as u64),
        labels: metric
            .labels()
            .iter()
            .flat_map(|label| [label.name().to_string(), label.value().to_string()])
            .collect(),
    }
}

fn timestamp(at: &Timestamp) -> Vec<usize> {
    at.value().and_then(|at| at.timestamp_nanos_opt()).map(|ns| ns as usize).into_iter().collect()
}

fn encode_custom(value: &dyn CustomMetricValue) -> (Kind, Vec<usize>) {
    let any = value.as_any();
    if any.is::<BytesCounterMetric>() {
        (Kind::Bytes, vec![value.as_usize()])
    } else if any.is::<MaxGaugeMetric>() {
        (Kind::MaxGauge, vec![value.as_usize()])
    } else if any.is::<MinLatencyMetric>() {
        (Kind::MinLatency, vec![value.as_usize()])
    } else if any.is::<MaxLatencyMetric>() {
        (Kind::MaxLatency, vec![value.as_usize()])
    } else if any.is::<FirstLatencyMetric>() {
        (Kind::FirstLatency, vec![value.as_usize()])
    } else if let Some(average) = any.downcast_ref::<AvgLatencyMetric>() {
        (Kind::AvgLatency, vec![average.nanos_sum(), average.count()])
    } else {
        (Kind::Count, vec![value.as_usize()])
    }
}

pub fn decode(set: &Set) -> MetricsSet {
    let mut metrics = MetricsSet::new();
    for one in &set.metrics {
        metrics.push(Arc::new(decode_one(one)));
    }
    metrics
}

fn decode_one(one: &EncodedMetric) -> Metric {
    let at = |index: usize| one.values.get(index).copied().unwrap_or(0) as usize;
    let name = Cow::Owned(one.name.clone());
    let custom = |name, value: Arc<dyn CustomMetricValue>| MetricValue::Custom { name, value };
    let value = match one.kind() {
        Kind::OutputRows => MetricValue::OutputRows(count(at(0))),
        Kind::ElapsedCompute => MetricValue::ElapsedCompute(time(at(0))),
        Kind::SpillCount => MetricValue::SpillCount(count(at(0))),
        Kind::SpilledBytes => MetricValue::SpilledBytes(count(at(0))),
        Kind::SpilledRows => MetricValue::SpilledRows(count(at(0))),
        Kind::OutputBytes => MetricValue::OutputBytes(count(at(0))),
        Kind::OutputBatches => MetricValue::OutputBatches(count(at(0))),
        Kind::CurrentMemory => MetricValue::CurrentMemoryUsage(gauge(at(0))),
        Kind::Count => MetricValue::Count { name, count: count(at(0)) },
        Kind::Gauge => MetricValue::Gauge { name, gauge: gauge(at(0)) },
        Kind::PeakMemory => MetricValue::PeakMemoryUsage { name, gauge: gauge(at(0)) },
        Kind::Time => MetricValue::Time { name, time: time(at(0)) },
        Kind::Start => MetricValue::StartTimestamp(decode_timestamp(one)),
        Kind::End => MetricValue::EndTimestamp(decode_timestamp(one)),
        Kind::Pruning => {
            let pruning_metrics = PruningMetrics::new();
            pruning_metrics.add_pruned(at(0));
            pruning_metrics.add_matched(at(1));
            pruning_metrics.add_fully_matched(at(2));
            MetricValue::PruningMetrics { name, pruning_metrics }
        }
        Kind::Ratio => {
            let ratio_metrics = RatioMetrics::new();
            ratio_metrics.set_part(at(0));
            ratio_metrics.set_total(at(1));
            MetricValue::Ratio { name, ratio_metrics }
        }
        Kind::Bytes => custom(name, Arc::new(BytesCounterMetric::from_value(at(0)))),
        Kind::MaxGauge => custom(name, Arc::new(MaxGaugeMetric::from_value(at(0)))),
        Kind::MinLatency => custom(name, Arc::new(MinLatencyMetric::from_nanos(at(0)))),
        Kind::MaxLatency => custom(name, Arc::new(MaxLatencyMetric::from_nanos(at(0)))),
        Kind::FirstLatency => custom(name, Arc::new(FirstLatencyMetric::from_nanos(at(0)))),
        Kind::AvgLatency => custom(name, Arc::new(AvgLatencyMetric::from_raw(at(0), at(1)))),
    };
    let labels =
        one.labels.chunks_exact(2).map(|label| Label::new(label[0].clone(), label[1].clone())).collect();
    Metric::new_with_labels(value, one.partition.map(|partition| partition as usize), labels)
}

fn count(value: usize) -> Count {
    let count = Count::new();
    count.add(value);
    count
}

fn gauge(value: usize) -> Gauge {
    let gauge = Gauge::new();
    gauge.set(value);
    gauge
}

/// `Time` starts at zero and counts every duration as at least one nanosecond.
fn time(ns: usize) -> Time {
    let time = Time::new();
    if ns > 0 {
        time.add_duration(Duration::from_nanos(ns as u64));
    }
    time
}

fn decode_timestamp(one: &EncodedMetric) -> Timestamp {
    let at = Timestamp::new();
    if let Some(ns) = one.values.first() {
        at.set(chrono_from_ns(*ns as i64));
    }
    at
}

fn chrono_from_ns(ns: i64) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_nanos(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};

    #[test]
    fn metrics_round_trip() {
        let metrics = ExecutionPlanMetricsSet::new();
        MetricBuilder::new(&metrics).output_rows(3).add(42);
        MetricBuilder::new(&metrics).elapsed_compute(3).add_duration(Duration::from_nanos(77));
        MetricBuilder::new(&metrics).start_timestamp(3).record();
        MetricBuilder::new(&metrics).global_gauge("peak").set(9);
        MetricBuilder::new(&metrics).with_label(Label::new("task", "1")).counter("named", 0).add(5);
        MetricBuilder::new(&metrics).build(MetricValue::Custom {
            name: Cow::Borrowed("wire"),
            value: Arc::new(BytesCounterMetric::from_value(1 << 40)),
        });
        let sent = metrics.clone_inner();
        let bytes = encode(&sent).encode_to_vec();
        let received = decode(&Set::decode(bytes.as_slice()).unwrap());
        let show = |set: &MetricsSet| -> Vec<String> {
            set.iter().map(|metric| format!("{metric} {:?}", metric.partition())).collect()
        };
        assert_eq!(show(&sent), show(&received));
    }
}
