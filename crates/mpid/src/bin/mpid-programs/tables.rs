//! HiBench's AGGREGATE and JOIN over rankings and uservisits, in keys and values.
//!
//! ```text
//!   rankings    page URL | page rank | average duration
//!   uservisits  source address | destination URL | date | revenue in cents
//! ```

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use harrier_mpid::{BoxError, Config, Job, World, input};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// HiBench groups by the first characters of the address.
const ADDRESS_BYTES: usize = 7;

/// JOIN looks at the visits of these days, both included.
const DAYS: (&str, &str) = ("1999-01-01", "2000-01-01");

pub struct Visit<'a> {
    pub address: &'a [u8],
    pub url: &'a [u8],
    pub date: &'a str,
    pub cents: i64,
}

fn number(field: &[u8]) -> Result<i64, BoxError> {
    let text = std::str::from_utf8(field)?;
    text.parse().map_err(|_| format!("\"{text}\" is no number").into())
}

fn visit(line: &[u8]) -> Result<Visit<'_>, BoxError> {
    let mut fields = line.split(|byte| *byte == b'|');
    let mut field = || fields.next().ok_or("a visit has four fields");
    let (address, url, date, cents) = (field()?, field()?, field()?, field()?);
    Ok(Visit { address, url, date: std::str::from_utf8(date)?, cents: number(cents)? })
}

fn ranking(line: &[u8]) -> Result<(&[u8], i64), BoxError> {
    let mut fields = line.split(|byte| *byte == b'|');
    let mut field = || fields.next().ok_or("a ranking has three fields");
    Ok((field()?, number(field()?)?))
}

fn sum_line(address: &[u8], cents: i64) -> Vec<u8> {
    [address, format!("\t{cents}\n").as_bytes()].concat()
}

pub fn aggregate(world: &World, config: &Config, io: &InOut) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    let job = Job::<[u8], i64>::new("aggregate")
        .o_tasks_unless_told(splits.len())
        .combine(|left, right| left + right);
    let outcome = job.run(
        world,
        config,
        |task| {
            task.read_lines(&splits, |task, _, line| {
                let visit = visit(line)?;
                let address = &visit.address[..visit.address.len().min(ADDRESS_BYTES)];
                Ok(task.emit(address, &visit.cents)?)
            })
        },
        |task| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            while let Some(mut group) = task.next_group()? {
                let (address, cents) = group.fold(0, |sum, cents| sum + cents)?;
                part.line(&sum_line(address, cents))?;
            }
            part.finish()
        },
    )?;
    let sums = total(world, outcome.outputs.into_iter().map(|(_, sums)| sums))?;
    conclude(world, io, "aggregate", sums, || {
        let mut revenue: HashMap<Vec<u8>, i64> = HashMap::new();
        each_line(&io.input, |_, _, line| {
            let visit = visit(line)?;
            *revenue.entry(visit.address[..visit.address.len().min(ADDRESS_BYTES)].to_vec()).or_default() +=
                visit.cents;
            Ok(())
        })?;
        let mut sums = Sums::default();
        revenue.iter().for_each(|(address, cents)| sums.add(&sum_line(address, *cents)));
        Ok(sums)
    })
}

fn joined_line(address: &[u8], ranks: i64, visits: i64, cents: i64) -> Vec<u8> {
    // Whole numbers: sums of them do not depend on their order.
    [address, format!("\t{}\t{cents}\n", ranks as f64 / visits as f64).as_bytes()].concat()
}

/// What travels to the A task of a URL: its rank, or a visit to it.
const RANK: u8 = 0;
const VISIT: u8 = 1;

pub fn join(world: &World, config: &Config, io: &InOut, rankings: &Path) -> Result<String, BoxError> {
    let rankings: Vec<PathBuf> = vec![rankings.to_path_buf()];
    let ranks = input::splits(&rankings, io.split_bytes)?;
    let visits = input::splits(&io.input, io.split_bytes)?;
    let splits: Vec<(u8, &input::Split)> =
        ranks.iter().map(|split| (RANK, split)).chain(visits.iter().map(|split| (VISIT, split))).collect();
    // The rank sorts before the visits to its URL, so that none of them has to be held.
    let by_url = Job::<(Vec<u8>, u8), (i64, Vec<u8>)>::new("join by URL")
        .o_tasks_unless_told(splits.len())
        .in_any_mode()
        .sorted()
        .partition(|(url, _), parts| (harrier_mpid::hash(url) % parts as u64) as usize);
    let joined = by_url.run(
        world,
        config,
        |task| {
            task.share_of(&splits).try_for_each(|(kind, split)| {
                task.read_split(split, |task, _, line| {
                    if *kind == RANK {
                        let (url, rank) = ranking(line)?;
                        return Ok(task.emit_as(&(url, RANK), &(rank, &b""[..]))?);
                    }
                    let visit = visit(line)?;
                    if (DAYS.0..=DAYS.1).contains(&visit.date) {
                        task.emit_as(&(visit.url, VISIT), &(visit.cents, visit.address))?;
                    }
                    Ok(())
                })
            })
        },
        |task| {
            // By address: ranks, visits and cents of the URLs here. They stay as the input of the next job.
            let mut sums: HashMap<Vec<u8>, [i64; 3]> = HashMap::new();
            let mut rank: Option<(Vec<u8>, i64)> = None;
            while let Some(((url, kind), (number, address))) = task.next_pair()? {
                if kind == RANK {
                    rank = Some((url.to_vec(), number));
                } else if let Some((_, rank)) = rank.as_ref().filter(|(known, _)| known == url) {
                    let add = [*rank, 1, number];
                    match sums.get_mut(address) {
                        Some(sums) => sums.iter_mut().zip(add).for_each(|(sum, add)| *sum += add),
                        None => drop(sums.insert(address.to_vec(), add)),
                    }
                }
            }
            Ok(sums)
        },
    )?;
    let a_tasks = count_a_tasks(world, &joined.outputs)?;
    let kept = joined.keep(a_tasks);
    let by_address = Job::<[u8], [i64; 3]>::new("join by address")
        .combine(|left, right| [left[0] + right[0], left[1] + right[1], left[2] + right[2]]);
    let outcome = by_address.round(
        world,
        config,
        &kept,
        |task, sums| {
            for (address, sums) in sums.drain() {
                task.emit(&address, &sums)?;
            }
            Ok(())
        },
        |task, _| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            while let Some(mut group) = task.next_group()? {
                let (address, [ranks, visits, cents]) =
                    group.fold([0; 3], |sum, add| [sum[0] + add[0], sum[1] + add[1], sum[2] + add[2]])?;
                part.line(&joined_line(address, ranks, visits, cents))?;
            }
            part.finish()
        },
    )?;
    let sums = total(world, outcome.outputs.into_iter().map(|(_, sums)| sums))?;
    conclude(world, io, "join", sums, || {
        let mut rank_of: HashMap<Vec<u8>, i64> = HashMap::new();
        each_line(&rankings, |_, _, line| {
            let (url, rank) = ranking(line)?;
            rank_of.insert(url.to_vec(), rank);
            Ok(())
        })?;
        let mut joined: HashMap<Vec<u8>, [i64; 3]> = HashMap::new();
        each_line(&io.input, |_, _, line| {
            let visit = visit(line)?;
            if let Some(rank) = rank_of.get(visit.url).filter(|_| (DAYS.0..=DAYS.1).contains(&visit.date)) {
                let sums = joined.entry(visit.address.to_vec()).or_default();
                *sums = [sums[0] + rank, sums[1] + 1, sums[2] + visit.cents];
            }
            Ok(())
        })?;
        let mut sums = Sums::default();
        joined.iter().for_each(|(address, [ranks, visits, cents])| {
            sums.add(&joined_line(address, *ranks, *visits, *cents))
        });
        Ok(sums)
    })
}

/// How many A tasks a job had, over all ranks. Collective.
pub fn count_a_tasks<R>(world: &World, outputs: &[(usize, R)]) -> Result<usize, BoxError> {
    let counts = world.gather(&(outputs.len() as u64).to_le_bytes())?;
    let count = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")) as usize;
    Ok(counts.iter().map(count).sum())
}
