//! The table `sys.interconnect`: traffic and wait times of every rank, and of every stream of recent
//! statements.
//!
//! One row for each rank, with its totals since it joined its gang, and one for each stream of a statement:
//! all data that one rank sent to another one for one motion. Rows that a rank passes to itself use no
//! stream, and a single process has neither. Columns and units are in docs/reference/interconnect.md.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::error::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use harrier_engine::{ServerTable, Viewer};
use harrier_exec::Gang;
use harrier_exec::monitor::statement_history::StatementHistory;
use harrier_exec::transport::stream_metrics::RankCounts;
use harrier_session_api::query_profile::QueryProfile;

/// Traffic of a rank.
pub(crate) struct RankTraffic {
    pub(crate) rank: usize,
    pub(crate) counts: RankCounts,
    pub(crate) clock_ahead_ns: i64,
}

/// Traffic of a statement.
pub(crate) struct StatementTraffic<'a> {
    pub(crate) id: u64,
    pub(crate) state: &'static str,
    pub(crate) text: String,
    pub(crate) work: &'a QueryProfile,
}

/// A row; fields that do not apply to its kind are NULL.
#[derive(Default)]
struct Row {
    kind: &'static str,
    statement_id: Option<i64>,
    state: Option<&'static str>,
    stream: Option<String>,
    slice_from: Option<i32>,
    slice_to: Option<i32>,
    rank_from: i32,
    rank_to: Option<i32>,
    bytes: u64,
    blocks: u64,
    blocks_shared: Option<u64>,
    credit_waits: u64,
    credit_wait_ns: u64,
    encode_ns: u64,
    queue_ns: u64,
    decode_ns: Option<u64>,
    sleeps: Option<u64>,
    doorbells: Option<u64>,
    driver_cpu_ns: Option<u64>,
    epoch: Option<u64>,
    clock_ahead_ns: Option<i64>,
    statement: Option<String>,
}

fn of_rank(RankTraffic { rank, counts, clock_ahead_ns }: RankTraffic) -> Row {
    Row {
        kind: "rank",
        rank_from: rank as i32,
        bytes: counts.bytes_sent,
        blocks: counts.blocks_sent,
        blocks_shared: Some(counts.blocks_lent),
        credit_waits: counts.credit_waits,
        credit_wait_ns: counts.credit_wait_ns,
        encode_ns: counts.encode_ns,
        queue_ns: counts.queue_ns,
        sleeps: Some(counts.sleeps),
        doorbells: Some(counts.doorbells),
        driver_cpu_ns: Some(counts.driver_cpu_ns),
        epoch: Some(counts.epoch),
        clock_ahead_ns: Some(clock_ahead_ns),
        ..Row::default()
    }
}

fn of_statement(statement: &StatementTraffic<'_>) -> impl Iterator<Item = Row> {
    let StatementTraffic { id, state, text, work } = statement;
    work.streams().map(move |(slice_from, slice_to, stream)| Row {
        kind: "stream",
        statement_id: Some(*id as i64),
        state: Some(state),
        stream: Some(format!("q{id} slice[{slice_from}->{slice_to}] rank {}->{}", stream.from, stream.to)),
        slice_from: Some(slice_from as i32),
        slice_to: Some(slice_to as i32),
        rank_from: stream.from as i32,
        rank_to: Some(stream.to as i32),
        bytes: stream.bytes,
        blocks: stream.blocks,
        credit_waits: stream.credit_waits,
        credit_wait_ns: stream.credit_wait_ns,
        encode_ns: stream.encode_ns,
        queue_ns: stream.queue_ns,
        decode_ns: Some(stream.decode_ns),
        statement: Some(text.clone()),
        ..Row::default()
    })
}

/// Builds the current rows.
pub(crate) fn rows(ranks: Vec<RankTraffic>, statements: Vec<StatementTraffic<'_>>) -> Result<RecordBatch> {
    let mut rows: Vec<Row> = ranks.into_iter().map(of_rank).collect();
    rows.extend(statements.iter().flat_map(of_statement));
    let each = || rows.iter();
    let texts =
        |pick: fn(&Row) -> Option<&str>| -> ArrayRef { Arc::new(each().map(pick).collect::<StringArray>()) };
    let small =
        |pick: fn(&Row) -> Option<i32>| -> ArrayRef { Arc::new(each().map(pick).collect::<Int32Array>()) };
    let counts = |pick: fn(&Row) -> Option<u64>| -> ArrayRef {
        Arc::new(each().map(|row| pick(row).map(|count| count as i64)).collect::<Int64Array>())
    };
    let ms = |pick: fn(&Row) -> Option<u64>| -> ArrayRef {
        Arc::new(each().map(|row| pick(row).map(|ns| ns as f64 / 1e6)).collect::<Float64Array>())
    };
    let ahead = each().map(|row| row.clock_ahead_ns.map(|ns| ns as f64 / 1e6));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("kind", texts(|row| Some(row.kind))),
        ("statement_id", Arc::new(each().map(|row| row.statement_id).collect::<Int64Array>())),
        ("state", texts(|row| row.state)),
        ("stream", texts(|row| row.stream.as_deref())),
        ("slice_from", small(|row| row.slice_from)),
        ("slice_to", small(|row| row.slice_to)),
        ("rank_from", small(|row| Some(row.rank_from))),
        ("rank_to", small(|row| row.rank_to)),
        ("bytes", counts(|row| Some(row.bytes))),
        ("blocks", counts(|row| Some(row.blocks))),
        ("blocks_shared", counts(|row| row.blocks_shared)),
        ("credit_waits", counts(|row| Some(row.credit_waits))),
        ("credit_wait_ms", ms(|row| Some(row.credit_wait_ns))),
        ("encode_ms", ms(|row| Some(row.encode_ns))),
        ("queue_ms", ms(|row| Some(row.queue_ns))),
        ("decode_ms", ms(|row| row.decode_ns)),
        ("sleeps", counts(|row| row.sleeps)),
        ("doorbells", counts(|row| row.doorbells)),
        ("driver_cpu_ms", ms(|row| row.driver_cpu_ns)),
        ("epoch", counts(|row| row.epoch)),
        ("clock_ahead_ms", Arc::new(ahead.collect::<Float64Array>())),
        ("statement", texts(|row| row.statement.as_deref())),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )?)
}

/// The server's table; `now` returns its rows.
pub(crate) fn table(
    now: impl Fn(&Viewer) -> BoxFuture<'static, Result<RecordBatch>> + Send + Sync + 'static,
) -> ServerTable {
    let schema = rows(vec![], vec![]).expect("columns of no rows are of one length").schema();
    ServerTable { name: "interconnect", schema, rows: Arc::new(now) }
}

/// The table of a rank, or of a single process. Its reader is the user that runs the process.
pub(crate) fn of_process(gang: Option<Gang>, history: StatementHistory) -> ServerTable {
    table(move |_| {
        let (gang, history) = (gang.clone(), history.clone());
        async move {
            let past = history.past().await;
            let mut ranks = Vec::new();
            if let Some(gang) = gang {
                let clocks = gang.clocks().await;
                let reports = gang.reports().await?;
                // A gang inside one process moves nothing between processes.
                let counted =
                    gang.members().into_iter().zip(reports).filter(|(_, report)| report.counts.epoch > 0);
                ranks.extend(counted.map(|(rank, report)| RankTraffic {
                    rank,
                    counts: report.counts,
                    clock_ahead_ns: clocks.get(rank).copied().unwrap_or(0),
                }));
            }
            let statements = past.iter().map(|past| StatementTraffic {
                id: past.number,
                state: if past.failed { "failed" } else { "done" },
                text: past.text.clone(),
                work: &past.snapshot,
            });
            rows(ranks, statements.collect())
        }
        .boxed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use harrier_session_api::query_profile::{Operator, Slice, Stream};

    #[test]
    fn streams_have_their_uniform_name() {
        let stream =
            Stream { from: 5, to: 0, bytes: 7, blocks: 1, credit_wait_ns: 1_500_000, ..Stream::default() };
        let motion = Operator { feeder: Some(3), streams: vec![stream], ..Operator::default() };
        let work = QueryProfile {
            slices: vec![Slice { number: 1, ranks: 2, operators: vec![motion] }],
            ..QueryProfile::default()
        };
        let statement = StatementTraffic { id: 7, state: "done", text: "SELECT 1".to_string(), work: &work };
        let counts = RankCounts { bytes_sent: 9, epoch: 1, ..RankCounts::default() };
        let rank = RankTraffic { rank: 5, counts, clock_ahead_ns: -2_000_000 };
        let batch = rows(vec![rank], vec![statement]).unwrap();
        let cell = |row: usize, name: &str| {
            let column = batch.column_by_name(name).unwrap();
            ArrayFormatter::try_new(column, &FormatOptions::new()).unwrap().value(row).to_string()
        };
        let of_rank = ["kind", "rank_from", "rank_to", "bytes", "epoch", "clock_ahead_ms", "stream"];
        assert_eq!(of_rank.map(|name| cell(0, name)), ["rank", "5", "", "9", "1", "-2.0", ""]);
        let of_stream = ["kind", "stream", "bytes", "credit_wait_ms", "sleeps", "statement"];
        assert_eq!(
            of_stream.map(|name| cell(1, name)),
            ["stream", "q7 slice[3->1] rank 5->0", "7", "1.5", "", "SELECT 1"]
        );
    }
}
