//! TeraSort: records of 100 bytes, sorted globally by their first 10.

use crate::InOut;
use crate::output::{Part, Sums, conclude, total};
use harrier_mpid::input::{Split, splits};
use harrier_mpid::{A_TASKS_MAX, BoxError, Config, Job, Parallelism, Ranges, World};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

pub const RECORD_BYTES: usize = 100;
pub const KEY_BYTES: usize = 10;

/// Sampled keys over all ranks: with them, the largest of 16 ranges is within 5 % of the mean.
const SAMPLES: u64 = 32_768;

/// Read buffer size.
const READ_BYTES: usize = RECORD_BYTES * 8192;

/// Returns the range of records that begin in a split.
fn records_of(split: &Split) -> (u64, u64) {
    let record = RECORD_BYTES as u64;
    (split.begin.div_ceil(record) * record, split.end.div_ceil(record) * record)
}

pub fn terasort(world: &World, config: &Config, io: &InOut) -> Result<String, BoxError> {
    let splits = splits(&io.input, io.split_bytes)?;
    for split in &splits {
        if !std::fs::metadata(&split.path)?.len().is_multiple_of(RECORD_BYTES as u64) {
            return Err(format!("{} does not consist of records of 100 bytes", split.name()).into());
        }
    }
    let samples = sample(world, &splits)?;
    let o_tasks = config.o_tasks.unwrap_or(splits.len());
    // The ranges are computed before the job determines its number of tasks.
    let a_tasks = config.a_tasks.unwrap_or(match config.parallelism {
        Parallelism::Default => world.ranks() * config.threads.unwrap_or(2),
        Parallelism::Enhanced => o_tasks.clamp(1, A_TASKS_MAX),
    });
    let ranges = Ranges::from_samples::<[u8]>(world, &samples, a_tasks)?;
    let job = Job::<[u8], [u8]>::new("terasort").o_tasks(o_tasks).a_tasks(a_tasks).sorted();
    let outcome = job.partition(move |key, _| ranges.of(key)).run(
        world,
        config,
        |task| {
            let mut buffer = vec![0; READ_BYTES];
            for split in task.share_of(&splits) {
                task.reads(&split.name());
                let (mut at, end) = records_of(split);
                let file = File::open(&split.path)?;
                while at < end {
                    let bytes = READ_BYTES.min((end - at) as usize);
                    file.read_exact_at(&mut buffer[..bytes], at)?;
                    task.at(at);
                    for record in buffer[..bytes].chunks_exact(RECORD_BYTES) {
                        task.emit(&record[..KEY_BYTES], &record[KEY_BYTES..])?;
                    }
                    at += bytes as u64;
                }
            }
            Ok(())
        },
        |task| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            let mut edges: Option<(Vec<u8>, Vec<u8>)> = None;
            let mut record = [0; RECORD_BYTES];
            while let Some((key, value)) = task.next_pair()? {
                record[..KEY_BYTES].copy_from_slice(key);
                record[KEY_BYTES..].copy_from_slice(value);
                part.line(&record)?;
                match &mut edges {
                    None => edges = Some((key.to_vec(), key.to_vec())),
                    Some((_, last)) if &last[..] > key => return Err("the records are not in order".into()),
                    Some((_, last)) => last.copy_from_slice(key),
                }
            }
            Ok((part.finish()?, edges))
        },
    )?;
    // The parts must be in order among themselves, too.
    let mut mine = Vec::new();
    for (a_task, (_, edges)) in &outcome.outputs {
        if let Some((first, last)) = edges {
            mine.extend((*a_task as u64).to_be_bytes());
            mine.extend_from_slice(first);
            mine.extend_from_slice(last);
        }
    }
    let all = world.gather(&mine)?.concat();
    let mut parts: Vec<&[u8]> = all.chunks_exact(8 + 2 * KEY_BYTES).collect();
    parts.sort();
    if parts.windows(2).any(|parts| parts[0][8 + KEY_BYTES..] > parts[1][8..8 + KEY_BYTES]) {
        return Err("the parts are not in order".into());
    }
    let sums = total(world, outcome.outputs.into_iter().map(|(_, (sums, _))| sums))?;
    conclude(world, io, "terasort", sums, || {
        let read = sums_of(&splits, false)?;
        match &io.output {
            // Read the output back, in the order of its parts.
            Some(folder) if sums_of(&parts_of(folder)?, true)? != read => {
                Err("what was written is not what was read".into())
            }
            _ => Ok(read),
        }
    })
}

/// Compares the records of input and output; ignores files in the output folder that are not parts.
pub fn validate(io: &InOut) -> Result<String, BoxError> {
    let folder = io.output.as_ref().ok_or("there is nothing to validate without an --output")?;
    let (read, written) =
        (sums_of(&splits(&io.input, u64::MAX)?, false)?, sums_of(&parts_of(folder)?, true)?);
    let describe = |sums: Sums| format!("{} records with checksum {:016x}", sums.lines, sums.checksum);
    match read == written {
        true => Ok(format!("valid: {} records in order, checksum {:016x}", read.lines, read.checksum)),
        false => {
            Err(format!("the output is not the input: {} instead of {}", describe(written), describe(read))
                .into())
        }
    }
}

/// Returns the parts of a result, in order.
fn parts_of(folder: &PathBuf) -> std::io::Result<Vec<Split>> {
    let mut parts = splits(std::slice::from_ref(folder), u64::MAX)?;
    parts.retain(|split| {
        let name = split.path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("part-")
    });
    Ok(parts)
}

/// Returns this rank's share of the samples: spread evenly over all records.
fn sample(world: &World, splits: &[Split]) -> Result<Vec<Vec<u8>>, BoxError> {
    let total: u64 = splits.iter().map(|split| (split.end - split.begin) / RECORD_BYTES as u64).sum();
    let every = (total / SAMPLES).max(1) * RECORD_BYTES as u64;
    let mut samples = Vec::new();
    for split in splits.iter().skip(world.rank()).step_by(world.ranks()) {
        let file = File::open(&split.path)?;
        let (begin, end) = records_of(split);
        let mut at = begin;
        while at < end {
            let mut key = vec![0; KEY_BYTES];
            file.read_exact_at(&mut key, at)?;
            samples.push(key);
            at += every;
        }
    }
    Ok(samples)
}

fn sums_of(splits: &[Split], ordered: bool) -> Result<Sums, BoxError> {
    let mut sums = Sums::default();
    let mut last = [0; KEY_BYTES];
    for split in splits {
        let (begin, end) = records_of(split);
        let mut file = BufReader::with_capacity(READ_BYTES, File::open(&split.path)?);
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(begin))?;
        let mut record = [0; RECORD_BYTES];
        for _ in 0..(end - begin) / RECORD_BYTES as u64 {
            file.read_exact(&mut record)?;
            sums.add(&record);
            if ordered && record[..KEY_BYTES] < last[..] {
                return Err(format!("{} is not in order", split.name()).into());
            }
            last.copy_from_slice(&record[..KEY_BYTES]);
        }
    }
    Ok(sums)
}
