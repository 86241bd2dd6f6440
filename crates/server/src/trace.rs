//! Statements in the Trace Event Format (JSON), for ui.perfetto.dev, `trace_processor` and chrome://tracing.
//!
//! ```text
//! process   rank 0 ──┬─ statements                      one event a statement
//!                    ├─ slice 0 ── operators            one track each, from first to last row on this rank
//!                    └─ streams   slice[1->0] rank 1->0  one track each, in the receiving rank's process
//! process   rank 1 ──── slice 1 ── operators ··············► an arrow from the feeding operator to its stream
//! ```
//! Times are microseconds since [`Trace::new`]'s start by the coordinator's clock. Counters are in the
//! events' `args`. A track is a thread of its process, with a number independent of the statement, so that
//! consecutive statements share tracks.
//!
//! Source: "Trace Event Format", Google, 2016; perfetto.dev, "Visualizing external trace formats".

use harrier_session_api::query_profile::{Operator, QueryProfile, Share, Stream};
use serde_json::{Value, json};

/// First thread numbers of operators' and streams' tracks. Slices and operators are far fewer.
const OPERATORS: u64 = 1_000;
const OPERATORS_MAX: u64 = 1_000;
const STREAMS: u64 = 100_000_000;
const SLICES_MAX: u64 = 1_000;

/// A statement to trace.
#[derive(Debug, Clone, Copy)]
pub struct Traced<'a> {
    pub number: u64,
    pub text: &'a str,
    /// Nanoseconds since 1970, by the coordinator's clock.
    pub began_ns: u64,
    pub ended_ns: u64,
    pub work: &'a QueryProfile,
}

/// Creates events, and names every track once.
#[derive(Debug)]
pub struct Trace {
    began_ns: u64,
    named: std::collections::BTreeSet<(u64, u64)>,
    arrows: u64,
}

impl Trace {
    /// `began_ns`: the origin of times, in nanoseconds since 1970; earlier ones are clamped.
    pub fn new(began_ns: u64) -> Self {
        Self { began_ns, named: Default::default(), arrows: 0 }
    }

    /// The events of a statement, with the names of new tracks.
    pub fn events(&mut self, traced: Traced<'_>) -> Vec<Value> {
        let mut events = Vec::new();
        self.name(&mut events, 0, 0, "statements");
        events.push(json!({
            "ph": "X", "cat": "statement", "name": format!("q{}", traced.number), "pid": process(0), "tid": 0,
            "ts": self.us(traced.began_ns), "dur": self.span_us(traced.began_ns, traced.ended_ns),
            "args": { "sql": traced.text },
        }));
        for slice in &traced.work.slices {
            for (at, operator) in slice.operators.iter().enumerate() {
                let track = operator_track(slice.number, at);
                for share in &operator.shares {
                    self.operator(&mut events, traced, slice.number, operator, share, track);
                }
                for stream in &operator.streams {
                    self.stream(&mut events, traced, slice.number, operator, stream);
                }
            }
        }
        events
    }

    fn operator(
        &mut self,
        events: &mut Vec<Value>,
        traced: Traced<'_>,
        slice: u64,
        operator: &Operator,
        share: &Share,
        track: u64,
    ) {
        let Some((began, ended)) = share.began_ns.zip(share.ended_ns) else { return };
        self.name(events, share.rank, track, &format!("slice {slice}: {}", operator.name));
        let mut args = json!({
            "statement": traced.number, "slice": slice, "detail": operator.detail,
            "read_bytes": share.read_bytes, "spilled_bytes": share.spilled_bytes,
        });
        if let Some(rows) = share.rows {
            args["rows"] = rows.into();
        }
        if let Some(busy_ns) = share.busy_ns {
            args["busy_us"] = (busy_ns as f64 / 1e3).into();
        }
        events.push(json!({
            "ph": "X", "cat": "operator", "name": operator.name, "pid": process(share.rank), "tid": track,
            "ts": self.us(began), "dur": self.span_us(began, ended), "args": args,
        }));
    }

    fn stream(
        &mut self,
        events: &mut Vec<Value>,
        traced: Traced<'_>,
        slice: u64,
        motion: &Operator,
        stream: &Stream,
    ) {
        let (Some((began, ended)), Some(feeder)) = (stream.began_ns.zip(stream.ended_ns), motion.feeder)
        else {
            return;
        };
        let track = STREAMS + (feeder % SLICES_MAX) * SLICES_MAX + stream.from % SLICES_MAX;
        let name = format!("slice[{feeder}->{slice}] rank {}->{}", stream.from, stream.to);
        self.name(events, stream.to, track, &name);
        let us = |ns: u64| ns as f64 / 1e3;
        events.push(json!({
            "ph": "X", "cat": "stream", "name": format!("q{} {name}", traced.number), "pid": process(stream.to), "tid": track,
            "ts": self.us(began), "dur": self.span_us(began, ended),
            "args": {
                "statement": traced.number, "bytes": stream.bytes, "blocks": stream.blocks,
                "credit_waits": stream.credit_waits, "credit_wait_us": us(stream.credit_wait_ns),
                "encode_us": us(stream.encode_ns), "queue_us": us(stream.queue_ns), "decode_us": us(stream.decode_ns),
            },
        }));
        self.arrow(events, traced.work, feeder, stream, track, (began, ended));
    }

    /// An arrow from the first timed operator of the sending slice.
    fn arrow(
        &mut self,
        events: &mut Vec<Value>,
        work: &QueryProfile,
        feeder: u64,
        stream: &Stream,
        track: u64,
        (began, ended): (u64, u64),
    ) {
        let sender = work.slices.iter().find(|slice| slice.number == feeder);
        let shares = sender.into_iter().flat_map(|slice| {
            slice.operators.iter().enumerate().flat_map(|(at, operator)| {
                operator.shares.iter().map(move |share| (operator_track(feeder, at), share))
            })
        });
        let of_sender = shares.filter(|(_, share)| share.rank == stream.from);
        let Some((from_track, from, until)) =
            of_sender.filter_map(|(track, share)| Some((track, share.began_ns?, share.ended_ns?))).next()
        else {
            return;
        };
        // An arrow must begin and end inside a slice of the track.
        let at = began.max(from);
        if at >= until || at >= ended {
            return;
        }
        self.arrows += 1;
        for (kind, rank, track) in [("s", stream.from, from_track), ("f", stream.to, track)] {
            let mut event = json!({
                "ph": kind, "cat": "stream", "name": "rows", "id": self.arrows,
                "pid": process(rank), "tid": track, "ts": self.us(at),
            });
            if kind == "f" {
                event["bp"] = "e".into();
            }
            events.push(event);
        }
    }

    fn name(&mut self, events: &mut Vec<Value>, rank: u64, track: u64, name: &str) {
        // Thread 0 is named for every process, so that each process is named once.
        if self.named.insert((rank, u64::MAX)) {
            let args = json!({ "name": format!("rank {rank}") });
            events.push(
                json!({ "ph": "M", "name": "process_name", "pid": process(rank), "tid": 0, "args": args }),
            );
            let args = json!({ "sort_index": rank });
            events
                .push(json!({ "ph": "M", "name": "process_sort_index", "pid": process(rank), "tid": 0, "args": args }));
        }
        if self.named.insert((rank, track)) {
            let args = json!({ "name": name });
            events.push(
                json!({ "ph": "M", "name": "thread_name", "pid": process(rank), "tid": track, "args": args }),
            );
        }
    }

    fn us(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.began_ns) as f64 / 1e3
    }

    fn span_us(&self, began: u64, ended: u64) -> f64 {
        (self.us(ended) - self.us(began)).max(0.0)
    }
}

/// A complete trace of one statement.
pub fn document(traced: Traced<'_>) -> String {
    let events = Trace::new(traced.began_ns).events(traced);
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

/// Viewers treat process 0 as the idle task.
fn process(rank: u64) -> u64 {
    rank + 1
}

fn operator_track(slice: u64, at: usize) -> u64 {
    OPERATORS + slice * OPERATORS_MAX + (at as u64).min(OPERATORS_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use harrier_session_api::query_profile::Slice;

    fn work() -> QueryProfile {
        let share = |rank, began, ended| Share {
            rank,
            rows: Some(3),
            began_ns: Some(began),
            ended_ns: Some(ended),
            ..Share::default()
        };
        let stream = Stream {
            from: 1,
            to: 0,
            bytes: 70,
            blocks: 2,
            began_ns: Some(2_000),
            ended_ns: Some(9_000),
            ..Stream::default()
        };
        let motion = Operator {
            name: "gather 2→1".to_string(),
            feeder: Some(1),
            shares: vec![Share::default()],
            streams: vec![stream],
            ..Operator::default()
        };
        let scan = Operator {
            name: "DataSourceExec".to_string(),
            shares: vec![share(0, 3_000, 7_000), share(1, 1_500, 8_000)],
            ..Operator::default()
        };
        QueryProfile {
            slices: vec![
                Slice { number: 0, ranks: 1, operators: vec![motion] },
                Slice { number: 1, ranks: 2, operators: vec![scan] },
            ],
            ..QueryProfile::default()
        }
    }

    #[test]
    fn ranks_are_processes_and_operators_and_streams_are_tracks() {
        let work = work();
        let traced = Traced { number: 7, text: "SELECT 1", began_ns: 1_000, ended_ns: 10_000, work: &work };
        let mut trace = Trace::new(1_000);
        let events = trace.events(traced);
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        let names: Vec<_> =
            of("M").iter().filter_map(|event| event["args"]["name"].as_str().map(str::to_owned)).collect();
        assert_eq!(
            names,
            [
                "rank 0",
                "statements",
                "slice[1->0] rank 1->0",
                "slice 1: DataSourceExec",
                "rank 1",
                "slice 1: DataSourceExec"
            ]
        );
        let spans: Vec<_> = of("X")
            .iter()
            .map(|event| {
                (event["pid"].clone(), event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())
            })
            .collect();
        assert_eq!(
            spans,
            [(json!(1), 0.0, 9.0), (json!(1), 1.0, 7.0), (json!(1), 2.0, 4.0), (json!(2), 0.5, 6.5)]
        );
        let (starts, ends) = (of("s"), of("f"));
        assert_eq!((starts.len(), ends.len()), (1, 1));
        assert_eq!((&starts[0]["pid"], &starts[0]["ts"]), (&json!(2), &json!(1.0)));
        assert_eq!((&ends[0]["pid"], &ends[0]["ts"], &ends[0]["bp"]), (&json!(1), &json!(1.0), &json!("e")));
        // The next statement uses the same tracks, which are named already.
        assert!(trace.events(traced).iter().all(|event| event["ph"] != "M"));
    }
}
