//! Text programs: WordCount, Grep, and the inverted index.

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use crate::plain::{count, line, words};
use harrier_mpid::{BoxError, Config, Job, World, input};
use memchr::memmem::Finder;
use std::collections::{BTreeMap, BTreeSet};

pub fn wordcount(world: &World, config: &Config, io: &InOut) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    let job = Job::<[u8], u64>::new("wordcount")
        .o_tasks_unless_told(splits.len())
        .combine(|left, right| left + right);
    let outcome = job.run(
        world,
        config,
        |task| {
            task.read(&splits, |task, text| {
                for word in words(text) {
                    task.emit(word, &1)?;
                }
                Ok(())
            })
        },
        |task| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            while let Some(mut group) = task.next_group()? {
                let (word, count) = group.fold(0, |sum, count| sum + count)?;
                part.line(&line(word, count))?;
            }
            part.finish()
        },
    )?;
    let sums = total(world, outcome.outputs.into_iter().map(|(_, sums)| sums))?;
    conclude(world, io, "wordcount", sums, || count(io))
}

fn match_line(file: &str, at: u64, text: &[u8]) -> Vec<u8> {
    [file.as_bytes(), b":", at.to_string().as_bytes(), b":", text, b"\n"].concat()
}

/// Returns matches in the order of files and offsets, as a single process would.
pub fn grep(world: &World, config: &Config, io: &InOut, pattern: &str) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    // Keys contain the file's number instead of its name, and are range-partitioned instead of hashed, so
    // that the parts are in order.
    let mut files: Vec<String> = splits.iter().map(input::Split::name).collect();
    files.dedup();
    let finder = Finder::new(pattern.as_bytes());
    let count = files.len().max(1);
    let job = Job::<(u32, u64), [u8]>::new("grep")
        .o_tasks_unless_told(splits.len())
        .sorted()
        .partition(move |(file, _), parts| file as usize * parts / count);
    let outcome = job.run(
        world,
        config,
        |task| {
            for split in task.share_of(&splits) {
                let file = files.iter().position(|file| *file == split.name()).expect("it is there") as u32;
                task.read_split(split, |task, at, line| {
                    if finder.find(line).is_some() {
                        task.emit(&(file, at), line)?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        },
        |task| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            while let Some(((file, at), line)) = task.next_pair()? {
                part.line(&match_line(&files[file as usize], at, line))?;
            }
            part.finish()
        },
    )?;
    let sums = total(world, outcome.outputs.into_iter().map(|(_, sums)| sums))?;
    conclude(world, io, "grep", sums, || {
        let mut sums = Sums::default();
        each_line(&io.input, |file, at, line| {
            if line.windows(pattern.len().max(1)).any(|part| part == pattern.as_bytes()) || pattern.is_empty()
            {
                sums.add(&match_line(&file.display().to_string(), at, line));
            }
            Ok(())
        })?;
        Ok(sums)
    })
}

fn posting(word: &[u8], places: impl IntoIterator<Item = (u32, u64)>) -> Vec<u8> {
    let mut line = word.to_vec();
    for (file, at) in places {
        line.extend(format!("\t{file}:{at}").bytes());
    }
    line.push(b'\n');
    line
}

pub fn index(world: &World, config: &Config, io: &InOut) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    let mut files: Vec<String> = splits.iter().map(input::Split::name).collect();
    files.dedup();
    // The library sorts only words: offsets sort faster as numbers than as parts of as many keys.
    let job = Job::<[u8], (u32, u64)>::new("index").o_tasks_unless_told(splits.len()).sorted();
    let outcome = job.run(
        world,
        config,
        |task| {
            for split in task.share_of(&splits) {
                let file = files.iter().position(|file| *file == split.name()).expect("it is there") as u32;
                task.read_split(split, |task, at, line| {
                    for word in words(line) {
                        task.emit(word, &(file, at))?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        },
        |task| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            let mut places = Vec::new();
            while let Some(mut group) = task.next_group()? {
                places.clear();
                while let Some(place) = group.next_value()? {
                    places.push(place);
                }
                places.sort_unstable();
                // A word may occur twice in a line.
                places.dedup();
                part.line(&posting(group.key()?, places.iter().copied()))?;
            }
            part.finish()
        },
    )?;
    let sums = total(world, outcome.outputs.into_iter().map(|(_, sums)| sums))?;
    conclude(world, io, "index", sums, || {
        let mut postings: BTreeMap<Vec<u8>, BTreeSet<(u32, u64)>> = BTreeMap::new();
        each_line(&io.input, |path, at, line| {
            let file =
                files.iter().position(|file| *file == path.display().to_string()).ok_or("a new file")?;
            for word in words(line) {
                postings.entry(word.to_vec()).or_default().insert((file as u32, at));
            }
            Ok(())
        })?;
        let mut sums = Sums::default();
        postings.into_iter().for_each(|(word, places)| sums.add(&posting(&word, places)));
        Ok(sums)
    })
}
