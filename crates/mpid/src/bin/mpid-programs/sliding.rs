//! Sliding-window counts of keys in a stream of events, in streaming mode.
//!
//! A sliding window consists of panes: tumbling windows as wide as the slide. Each A task keeps the latest
//! panes of its keys.
//!
//! An A task writes a file of its own for each window, complete once it appears: when the window's last pane
//! closes, or, if the task had no events in that pane, when it gets its next pane or the input ends. So an
//! event of a pane before the current one of its input is dropped; rank 0 prints the number of dropped
//! events.

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use harrier_mpid::{BoxError, Config, Job, World, input};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

type Counts = HashMap<Vec<u8>, u64>;

/// Number of a pane. Windows that end after the last time, 2^64-1, have panes beyond the last existing one.
type Pane = u128;

fn event(line: &[u8]) -> Result<(u64, &[u8]), BoxError> {
    let at = line
        .iter()
        .position(|byte| *byte == b'\t')
        .ok_or("an event is a time and a key with a tab between them")?;
    Ok((std::str::from_utf8(&line[..at])?.parse()?, &line[at + 1..]))
}

fn count_line(end: u128, key: &[u8], count: u64) -> Vec<u8> {
    [format!("{end}\t").as_bytes(), key, format!("\t{count}\n").as_bytes()].concat()
}

/// Panes of the windows that an A task has not emitted yet.
#[derive(Default)]
struct Panes {
    /// The panes of at most one window, each with its number.
    recent: VecDeque<(Pane, Counts)>,
    /// Sums of the emitted windows.
    sums: Sums,
}

/// Output parameters of an A task's windows.
struct WindowWriter<'a> {
    folder: Option<&'a Path>,
    a_task: usize,
    /// Panes per window.
    panes: u128,
    /// Width of a pane.
    slide: u128,
}

impl Panes {
    /// Emits the windows that end with a pane before `pane`, after the last emitted one.
    fn write_before(&mut self, pane: Pane, writer: &WindowWriter<'_>) -> Result<(), BoxError> {
        let Some((newest, _)) = self.recent.back() else { return Ok(()) };
        // An A task gets no pane without events, yet such a pane ends a window of earlier panes.
        (newest + 1..pane.min(newest + writer.panes)).try_for_each(|last| self.write_window(last, writer))
    }

    /// Emits the window that ends with the pane `last`.
    fn write_window(&mut self, last: Pane, writer: &WindowWriter<'_>) -> Result<(), BoxError> {
        let WindowWriter { folder, a_task, panes, slide } = *writer;
        let mut counts_of: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (_, counts) in self.recent.iter().filter(|(pane, _)| pane + panes > last) {
            counts.iter().for_each(|(key, count)| *counts_of.entry(key).or_default() += count);
        }
        let end = (last + 1) * slide;
        let mut part = Part::of_window(folder, end, a_task)?;
        for (key, count) in counts_of {
            part.line(&count_line(end, key, count))?;
        }
        self.sums.add_all(part.finish()?);
        Ok(())
    }
}

pub fn sliding(
    world: &World,
    config: &Config,
    io: &InOut,
    window: u64,
    slide: u64,
) -> Result<String, BoxError> {
    let panes = u128::from(window / slide);
    // Here a stream is a file or a named pipe, read from its beginning in time order; several are read
    // concurrently.
    let files = input::splits(&io.input, u64::MAX)?;
    if let Some(pipe) = files.iter().find(|file| io.check && !file.is_file()) {
        return Err(format!("--check reads the input once more, which {} does not allow", pipe.name()).into());
    }
    let writer = |a_task| WindowWriter { folder: io.output.as_deref(), a_task, panes, slide: slide.into() };
    let states: Mutex<BTreeMap<usize, Panes>> = Mutex::default();
    let job = Job::<[u8], u64>::new("sliding count").o_tasks(files.len()).combine(|left, right| left + right);
    let report = job.stream(
        world,
        config,
        slide,
        |task| {
            let split = &files[task.index()];
            task.reads(&split.name());
            let mut lines = split.lines()?;
            while let Some((at, line)) = lines.next_line()? {
                task.at(at);
                let (time, key) = event(line)?;
                task.advance(time)?;
                task.emit(time, key, &1)?;
            }
            Ok(())
        },
        |within, task| {
            let pane = Pane::from(within.begin / slide);
            let mut counts = Counts::new();
            while let Some(mut group) = task.next_group()? {
                let (key, count) = group.fold(0, |sum, count| sum + count)?;
                counts.insert(key.to_vec(), count);
            }
            let (mut states, writer) = (states.lock(), writer(task.index()));
            let state = states.entry(task.index()).or_default();
            state.write_before(pane, &writer)?;
            state.recent.push_back((pane, counts));
            state.recent.retain(|(known, _)| known + panes > pane);
            state.write_window(pane, &writer)
        },
    )?;
    if world.rank() == 0 && report.counters.late > 0 {
        let (late, were) = match report.counters.late {
            1 => ("1 event was".to_string(), "was"),
            late => (format!("{late} events were"), "were"),
        };
        eprintln!("mpid: sliding: {late} late, and {were} left out: their windows had been told of");
    }
    let mut parts = Vec::new();
    for (a_task, mut state) in states.into_inner() {
        state.write_before(Pane::MAX, &writer(a_task))?;
        parts.push(state.sums);
    }
    let sums = total(world, parts)?;
    conclude(world, io, "sliding", sums, || {
        let mut counts: BTreeMap<(u128, Vec<u8>), u64> = BTreeMap::new();
        // A file's events before its current pane are late.
        let mut reached = 0;
        each_line(&io.input, |_, at, line| {
            let (time, key) = event(line)?;
            let pane = Pane::from(time / slide);
            if at > 0 && pane < reached {
                return Ok(());
            }
            reached = pane;
            for last in pane..pane + panes {
                *counts.entry(((last + 1) * u128::from(slide), key.to_vec())).or_default() += 1;
            }
            Ok(())
        })?;
        let mut sums = Sums::default();
        counts.iter().for_each(|((end, key), count)| sums.add(&count_line(*end, key, *count)));
        Ok(sums)
    })
}
