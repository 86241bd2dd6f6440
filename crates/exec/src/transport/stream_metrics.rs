//! Metrics of the streams between ranks: measured at the receiving motion, summed by sending rank.
//!
//! The receiving end counts bytes, blocks and decoding time; the sender counts the rest and sends it with its
//! blocks (`harrier_interconnect::StreamCounts`). All are metrics of the motion, labeled with the sending
//! rank, so they are transported like other metrics: [`StreamMeter`] writes them, [`StreamMeasured`] reads
//! them. Rows that a rank sends to itself use no stream.

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Label, Metric, MetricBuilder, MetricValue, Time, Timestamp,
};
use datafusion_distributed::{BytesCounterMetric, BytesMetricExt};
use harrier_interconnect::{Arrival, Interconnect, StreamCounts};
use prost::Message;
use std::time::Duration;

/// The label of a stream's metrics: the sending rank's number.
const FROM: &str = "from_rank";

/// Metric names; the first two are datafusion-distributed's own, which all transports have.
pub const BYTES: &str = "bytes_transferred";
pub const BLOCKS: &str = "msg_count";
pub const ENCODE: &str = "encode_time";
pub const DECODE: &str = "decode_time";
const CREDIT_WAITS: &str = "credit_waits";
const CREDIT_WAIT: &str = "credit_wait_time";
const QUEUE: &str = "queue_time";

/// Measures one sender of a motion; a clone for each output partition.
#[derive(Clone)]
pub(crate) struct StreamMeter {
    bytes: BytesCounterMetric,
    blocks: Count,
    decode: Time,
    encode: Time,
    credit_waits: Count,
    credit_wait: Time,
    queue: Time,
    last: Timestamp,
    /// The sender's totals of this output partition so far.
    last_counts: StreamCounts,
}

impl StreamMeter {
    pub fn new(metrics: &ExecutionPlanMetricsSet, from: usize) -> Self {
        let build = || MetricBuilder::new(metrics).with_label(Label::new(FROM, from.to_string()));
        let (first, last) = (Timestamp::new(), Timestamp::new());
        first.record();
        build().build(MetricValue::StartTimestamp(first));
        build().build(MetricValue::EndTimestamp(last.clone()));
        StreamMeter {
            bytes: build().bytes_counter(BYTES),
            blocks: build().global_counter(BLOCKS),
            decode: build().subset_time(DECODE, 0),
            encode: build().subset_time(ENCODE, 0),
            credit_waits: build().global_counter(CREDIT_WAITS),
            credit_wait: build().subset_time(CREDIT_WAIT, 0),
            queue: build().subset_time(QUEUE, 0),
            last,
            last_counts: StreamCounts::default(),
        }
    }

    pub fn record(&mut self, arrival: Arrival) {
        let sent = match arrival {
            Arrival::Batch { bytes, decode_ns, sent } => {
                self.bytes.add_bytes(bytes);
                self.blocks.add(1);
                add(&self.decode, decode_ns);
                sent
            }
            Arrival::End { sent } => sent,
        };
        let new = sent.since(self.last_counts);
        self.last_counts = sent;
        add(&self.encode, new.encode_ns);
        self.credit_waits.add(new.credit_waits as usize);
        add(&self.credit_wait, new.credit_wait_ns);
        add(&self.queue, new.queue_ns);
        self.last.record();
    }
}

/// `Time` counts every duration as at least one nanosecond.
fn add(time: &Time, ns: u64) {
    if ns > 0 {
        time.add_duration(Duration::from_nanos(ns));
    }
}

/// The sending rank of a stream's metric, if it is one.
pub(crate) fn sender(metric: &Metric) -> Option<usize> {
    let label = metric.labels().iter().find(|label| label.name() == FROM)?;
    label.value().parse().ok()
}

/// Metrics of one sender and one receiver of a motion, summed over output partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamMeasured {
    /// Of blocks, as they were decoded.
    pub bytes: u64,
    pub blocks: u64,
    /// Waits of the sender for credit: their number, and nanoseconds.
    pub credit_waits: u64,
    pub credit_wait_ns: u64,
    /// Nanoseconds in which the sender encoded blocks, and in which these waited for its driver.
    pub encode_ns: u64,
    pub queue_ns: u64,
    /// Nanoseconds in which the receiver decoded them.
    pub decode_ns: u64,
    /// Time of the opening and of the last arrival, in nanoseconds since 1970 by the receiver's clock.
    pub began_ns: Option<u64>,
    pub ended_ns: Option<u64>,
}

impl StreamMeasured {
    pub(crate) fn add(&mut self, value: &MetricValue) {
        match value {
            MetricValue::StartTimestamp(at) => {
                let began = nanoseconds(at);
                self.began_ns = self.began_ns.into_iter().chain(began).min();
            }
            MetricValue::EndTimestamp(at) => self.ended_ns = self.ended_ns.max(nanoseconds(at)),
            value => {
                let field = match value.name() {
                    BYTES => &mut self.bytes,
                    BLOCKS => &mut self.blocks,
                    CREDIT_WAITS => &mut self.credit_waits,
                    CREDIT_WAIT => &mut self.credit_wait_ns,
                    ENCODE => &mut self.encode_ns,
                    QUEUE => &mut self.queue_ns,
                    DECODE => &mut self.decode_ns,
                    _ => return,
                };
                *field += value.as_usize() as u64;
            }
        }
    }
}

fn nanoseconds(at: &Timestamp) -> Option<u64> {
    let ns = at.value()?.timestamp_nanos_opt()?;
    u64::try_from(ns).ok().filter(|ns| *ns > 0)
}

/// Interconnect counters of a rank since it joined its gang.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RankCounts {
    #[prost(uint64, tag = "1")]
    pub bytes_sent: u64,
    /// Of all streams and calls that the rank has served, as the next five.
    #[prost(uint64, tag = "2")]
    pub blocks_sent: u64,
    /// Of these blocks, those sent through shared memory.
    #[prost(uint64, tag = "3")]
    pub blocks_lent: u64,
    #[prost(uint64, tag = "4")]
    pub credit_waits: u64,
    #[prost(uint64, tag = "5")]
    pub credit_wait_ns: u64,
    #[prost(uint64, tag = "6")]
    pub encode_ns: u64,
    #[prost(uint64, tag = "7")]
    pub queue_ns: u64,
    /// Sleeps of the idle driver.
    #[prost(uint64, tag = "8")]
    pub sleeps: u64,
    /// Wake-ups sent to other ranks.
    #[prost(uint64, tag = "9")]
    pub doorbells: u64,
    /// CPU time of the driver.
    #[prost(uint64, tag = "10")]
    pub driver_cpu_ns: u64,
    /// Membership epoch as known to this rank: 1 when the gang forms, one more with every lost rank.
    #[prost(uint64, tag = "11")]
    pub epoch: u64,
}

impl RankCounts {
    /// The difference to `before`; the epoch is the current one.
    pub fn since(self, before: RankCounts) -> RankCounts {
        RankCounts {
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            blocks_sent: self.blocks_sent.saturating_sub(before.blocks_sent),
            blocks_lent: self.blocks_lent.saturating_sub(before.blocks_lent),
            credit_waits: self.credit_waits.saturating_sub(before.credit_waits),
            credit_wait_ns: self.credit_wait_ns.saturating_sub(before.credit_wait_ns),
            encode_ns: self.encode_ns.saturating_sub(before.encode_ns),
            queue_ns: self.queue_ns.saturating_sub(before.queue_ns),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
            doorbells: self.doorbells.saturating_sub(before.doorbells),
            driver_cpu_ns: self.driver_cpu_ns.saturating_sub(before.driver_cpu_ns),
            epoch: self.epoch,
        }
    }

    pub(crate) fn of(interconnect: &Interconnect) -> Self {
        let counters = interconnect.counters();
        let StreamCounts { encode_ns, credit_waits, credit_wait_ns, queue_ns } = counters.streams;
        RankCounts {
            bytes_sent: counters.bytes_sent,
            blocks_sent: counters.blocks_sent,
            blocks_lent: counters.blocks_lent,
            credit_waits,
            credit_wait_ns,
            encode_ns,
            queue_ns,
            sleeps: counters.sleeps,
            doorbells: counters.rings,
            driver_cpu_ns: counters.thread_cpu_ns,
            epoch: 1 + interconnect.losses().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_since_the_statement_began() {
        let at = |each: u64, epoch| RankCounts {
            bytes_sent: 2 * each,
            blocks_sent: 3 * each,
            blocks_lent: 4 * each,
            credit_waits: 5 * each,
            credit_wait_ns: 6 * each,
            encode_ns: 7 * each,
            queue_ns: 8 * each,
            sleeps: 9 * each,
            doorbells: 10 * each,
            driver_cpu_ns: 11 * each,
            epoch,
        };
        assert_eq!(at(5, 3).since(at(3, 2)), at(2, 3));
        assert_eq!(at(5, 1).since(RankCounts::default()), at(5, 1));
    }

    #[test]
    fn values_round_trip() {
        let metrics = ExecutionPlanMetricsSet::new();
        let meter = StreamMeter::new(&metrics, 5);
        let sent = |encode_ns, credit_waits, credit_wait_ns, queue_ns| StreamCounts {
            encode_ns,
            credit_waits,
            credit_wait_ns,
            queue_ns,
        };
        // Two output partitions: each sends its own totals.
        for mut meter in [meter.clone(), meter] {
            meter.record(Arrival::Batch { bytes: 10, decode_ns: 3, sent: sent(100, 1, 50, 7) });
            meter.record(Arrival::Batch { bytes: 20, decode_ns: 4, sent: sent(150, 1, 50, 8) });
            meter.record(Arrival::End { sent: sent(150, 2, 60, 9) });
        }
        let mut measured = StreamMeasured::default();
        for metric in metrics.clone_inner().iter() {
            assert_eq!(sender(metric), Some(5));
            measured.add(metric.value());
        }
        let (began, ended) = (measured.began_ns.unwrap(), measured.ended_ns.unwrap());
        assert!(began <= ended);
        let expected = StreamMeasured {
            bytes: 60,
            blocks: 4,
            credit_waits: 4,
            credit_wait_ns: 120,
            encode_ns: 300,
            queue_ns: 18,
            decode_ns: 14,
            began_ns: Some(began),
            ended_ns: Some(ended),
        };
        assert_eq!(measured, expected);
    }
}
