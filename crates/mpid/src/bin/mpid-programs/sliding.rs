//! How often each key occurs in windows that slide over a stream of events, in streaming mode.
//!
//! A sliding window is made of panes: tumbling windows as wide as it slides. Each A task remembers the last
//! panes of its keys.
//!
//! What an A task has of a window is a file of its own, which is there, and whole, once the task knows it:
//! when the window's last pane closes, or, if the task had no events in that, when it gets its next pane or
//! the input ends. So an event of a pane before the one that its input has come to is left out; rank 0 tells
//! how many were.

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use harrier_mpid::{BoxError, Config, Job, World, input};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

type Counts = HashMap<Vec<u8>, u64>;

/// The number of a pane. The panes of windows that end behind the last time, 2^64-1, go on behind the last
/// pane that there is.
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

/// The panes of the windows that an A task has not told of yet.
#[derive(Default)]
struct Panes {
    /// As many as a window has, at most; each with its number.
    recent: VecDeque<(Pane, Counts)>,
    /// Of what was told of.
    sums: Sums,
}

/// Where an A task tells of its windows.
struct Teller<'a> {
    folder: Option<&'a Path>,
    a_task: usize,
    /// Panes of a window.
    panes: u128,
    /// Width of a pane.
    slide: u128,
}

impl Panes {
    /// Tells of the windows that end with the panes before `pane`, and after the last one that was told of.
    fn tell_before(&mut self, pane: Pane, teller: &Teller<'_>) -> Result<(), BoxError> {
        let Some((newest, _)) = self.recent.back() else { return Ok(()) };
        // A pane without events at an A task is not given to it, and yet ends a window of the panes before.
        (newest + 1..pane.min(newest + teller.panes)).try_for_each(|last| self.tell(last, teller))
    }

    /// Tells of the window that ends with the pane `last`.
    fn tell(&mut self, last: Pane, teller: &Teller<'_>) -> Result<(), BoxError> {
        let Teller { folder, a_task, panes, slide } = *teller;
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
    // A stream is a file or a named pipe here, read from its beginning in the order of its times; several are
    // read at the same time.
    let files = input::splits(&io.input, u64::MAX)?;
    if let Some(pipe) = files.iter().find(|file| io.check && !file.is_file()) {
        return Err(format!("--check reads the input once more, which {} does not allow", pipe.name()).into());
    }
    let teller = |a_task| Teller { folder: io.output.as_deref(), a_task, panes, slide: slide.into() };
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
            let (mut states, teller) = (states.lock(), teller(task.index()));
            let state = states.entry(task.index()).or_default();
            state.tell_before(pane, &teller)?;
            state.recent.push_back((pane, counts));
            state.recent.retain(|(known, _)| known + panes > pane);
            state.tell(pane, &teller)
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
        state.tell_before(Pane::MAX, &teller(a_task))?;
        parts.push(state.sums);
    }
    let sums = total(world, parts)?;
    conclude(world, io, "sliding", sums, || {
        let mut counts: BTreeMap<(u128, Vec<u8>), u64> = BTreeMap::new();
        // A file's events before the pane that it has come to are late.
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
