//! Counters of a job, summed over all ranks, and the timeline of its tasks.

use crate::error::Side;
use crate::wire::Damaged;
use crate::wire::{Reader, Writer};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, SystemTime};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Sums over all ranks and tasks of a job.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }

            pub(crate) fn encode(&self, out: &mut Writer) {
                $(out.u64(self.$name);)*
            }

            pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Counters, Damaged> {
                Ok(Counters { $($name: input.u64()?,)* })
            }
        }
    };
}

counters! {
    /// O tasks that ran, without those restored from a checkpoint.
    o_tasks_run,
    /// A tasks that ran; when streaming, windows of A tasks.
    a_tasks_run,
    /// Pairs that user functions emitted, and the bytes of their keys and values.
    pairs_emitted,
    bytes_emitted,
    /// Pairs combined into others before sending.
    combined_before_sending,
    /// Blocks that O tasks filled, and the bytes of pairs in them.
    blocks_sent,
    bytes_sent,
    /// Pairs that A tasks received, and their bytes.
    pairs_received,
    bytes_received,
    /// Pairs combined into others after receiving.
    combined_after_receiving,
    /// Runs on disk, and their bytes.
    runs_spilled,
    bytes_spilled,
    /// Spill folders that failed and were not used again.
    spill_folders_dropped,
    /// Nanoseconds that O tasks waited because a send queue was full.
    send_wait_ns,
    /// Streaming: late pairs, which were dropped because their window was closed.
    late,
}

/// Time interval of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub side: Side,
    pub task: u32,
    pub rank: usize,
    /// Since 1970.
    pub begin: Duration,
    pub end: Duration,
    /// Pairs emitted by an O task, or received by an A task.
    pub pairs: u64,
}

impl Span {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u8(u8::from(self.side == Side::A)).u32(self.task).u64(self.rank as u64);
        out.u64(self.begin.as_nanos() as u64).u64(self.end.as_nanos() as u64).u64(self.pairs);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Span, Damaged> {
        Ok(Span {
            side: if input.u8()? == 0 { Side::O } else { Side::A },
            task: input.u32()?,
            rank: input.u64()? as usize,
            begin: Duration::from_nanos(input.u64()?),
            end: Duration::from_nanos(input.u64()?),
            pairs: input.u64()?,
        })
    }
}

/// Maximum spans that a rank keeps of a job: few batch jobs have as many tasks, and they take 4 MiB. A stream
/// adds one for each window, without end.
pub const SPANS_MAX: usize = 1 << 16;

/// A rank's latest spans, and the number of dropped earlier ones.
#[derive(Default)]
pub(crate) struct Spans {
    last: VecDeque<Span>,
    left_out: u64,
}

impl Spans {
    pub fn push(&mut self, span: Span) {
        if self.last.len() == SPANS_MAX {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(span);
    }

    pub fn encode(&self, out: &mut Writer) {
        out.u64(self.left_out).u64(self.last.len() as u64);
        self.last.iter().for_each(|span| span.encode(out));
    }
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Statistics of a finished job; the same on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub name: String,
    pub counters: Counters,
    /// By side, task, and time. The latest of each rank: at most [`SPANS_MAX`].
    pub spans: Vec<Span>,
    /// Number of earlier spans that were dropped.
    pub spans_left_out: u64,
}

impl Report {
    /// Adds a rank's encoded spans.
    pub(crate) fn add_spans(&mut self, input: &mut Reader<'_>) -> Result<(), Damaged> {
        self.spans_left_out += input.u64()?;
        for _ in 0..input.u64()? {
            self.spans.push(Span::decode(input)?);
        }
        Ok(())
    }

    /// Returns the largest number of pairs of an A task divided by the mean; 1 is even. Covers the spans
    /// kept.
    pub fn skew(&self) -> f64 {
        let received = || self.spans.iter().filter(|span| span.side == Side::A).map(|span| span.pairs);
        let (sum, count) = (received().sum::<u64>(), received().count());
        if sum == 0 { 1.0 } else { received().max().unwrap_or(0) as f64 * count as f64 / sum as f64 }
    }

    /// Time from the first task's begin to the last one's end.
    pub fn wall(&self) -> Duration {
        let begin = self.spans.iter().map(|span| span.begin).min().unwrap_or_default();
        let end = self.spans.iter().map(|span| span.end).max().unwrap_or_default();
        end.saturating_sub(begin)
    }

    /// Formats the timeline: one line for each task, with a header: side, task, rank, begin and end in
    /// seconds from the first begin, pairs. If spans were dropped, a last line after a `#` gives their
    /// number.
    pub fn timeline_csv(&self) -> String {
        let first = self.spans.iter().map(|span| span.begin).min().unwrap_or_default();
        let mut csv = String::from("job,side,task,rank,begin_s,end_s,pairs\n");
        for Span { side, task, rank, begin, end, pairs } in &self.spans {
            let side = if *side == Side::O { 'O' } else { 'A' };
            let seconds = |time: &Duration| time.saturating_sub(first).as_secs_f64();
            let (begin, end) = (seconds(begin), seconds(end));
            csv.push_str(&format!("{},{side},{task},{rank},{begin:.6},{end:.6},{pairs}\n", self.name));
        }
        if self.spans_left_out > 0 {
            csv.push_str(&format!("# {}: {} earlier tasks were left out\n", self.name, self.spans_left_out));
        }
        csv
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        writeln!(f, "mpid: {} took {:.3} s", self.name, self.wall().as_secs_f64())?;
        writeln!(f, "  tasks      {} O, {} A, skew {:.2}", c.o_tasks_run, c.a_tasks_run, self.skew())?;
        writeln!(f, "  emitted    {} pairs, {} bytes", c.pairs_emitted, c.bytes_emitted)?;
        let (before, after) = (c.combined_before_sending, c.combined_after_receiving);
        writeln!(f, "  combined   {before} pairs before sending, {after} after receiving")?;
        let wait = c.send_wait_ns as f64 / 1e9;
        writeln!(f, "  sent       {} blocks, {} bytes, waited {wait:.3} s", c.blocks_sent, c.bytes_sent)?;
        writeln!(f, "  received   {} pairs, {} bytes", c.pairs_received, c.bytes_received)?;
        write!(f, "  spilled    {} runs, {} bytes", c.runs_spilled, c.bytes_spilled)?;
        if c.spill_folders_dropped > 0 {
            write!(f, ", {} folders dropped", c.spill_folders_dropped)?;
        }
        if c.late > 0 {
            write!(f, "\n  late       {} pairs", c.late)?;
        }
        if self.spans_left_out > 0 {
            let kept = self.spans.len();
            write!(
                f,
                "\n  timeline   the last {kept} tasks; {} earlier ones were left out",
                self.spans_left_out
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_skew_and_times() {
        let span = |side, task, pairs| Span {
            side,
            task,
            rank: 0,
            begin: Duration::from_secs(10 + u64::from(task)),
            end: Duration::from_secs(12 + u64::from(task)),
            pairs,
        };
        let spans = vec![span(Side::O, 0, 100), span(Side::A, 0, 30), span(Side::A, 1, 10)];
        let report = Report { name: "count".to_string(), spans, ..Report::default() };
        assert_eq!(report.skew(), 1.5);
        assert_eq!(report.wall(), Duration::from_secs(3));
        assert!(report.timeline_csv().ends_with("count,A,1,0,1.000000,3.000000,10\n"));
        for span in &report.spans {
            let mut out = Writer::default();
            span.encode(&mut out);
            assert_eq!(Span::decode(&mut Reader(&out.0)).unwrap(), *span);
        }
        assert!(!report.timeline_csv().contains('#'));
    }

    #[test]
    fn spans_are_bounded_and_counted() {
        let mut spans = Spans::default();
        let more = 10;
        for at in 0..SPANS_MAX as u64 + more {
            let at_time = Duration::from_secs(at);
            spans.push(Span { side: Side::A, task: 0, rank: 0, begin: at_time, end: at_time, pairs: at });
        }
        assert_eq!(spans.last.len(), SPANS_MAX);
        let mut out = Writer::default();
        spans.encode(&mut out);
        let mut report = Report::default();
        report.add_spans(&mut Reader(&out.0)).unwrap();
        assert_eq!((report.spans.len(), report.spans_left_out), (SPANS_MAX, more));
        assert_eq!(report.spans[0].pairs, more);
        assert!(report.timeline_csv().ends_with("# : 10 earlier tasks were left out\n"));
    }
}
