//! HiBench's AGGREGATE and JOIN over rankings and uservisits, as key-value jobs.
//!
//! ```text
//!   rankings    pageURL | pageRank | avgDuration
//!   uservisits  sourceIP | destURL | visitDate | adRevenue | userAgent | countryCode | languageCode | searchWord | duration
//!
//!   AGGREGATE   SELECT sourceIP, SUM(adRevenue) FROM uservisits GROUP BY sourceIP
//!   JOIN        SELECT sourceIP, AVG(pageRank), SUM(adRevenue) AS totalRevenue FROM rankings JOIN uservisits ON pageURL = destURL
//!               WHERE visitDate BETWEEN … GROUP BY sourceIP ORDER BY totalRevenue DESC
//! ```
//!
//! Columns and statements are HiBench's. Revenue has two decimals and is summed and printed in cents, so that
//! sums do not depend on their order; addresses with equal revenue are in address order.

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use harrier_mpid::{BoxError, Config, Job, Ranges, World, input};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Date range of JOIN's visits, inclusive.
const DAYS: (&str, &str) = ("1999-01-01", "2000-01-01");

/// Sampled revenues per rank, for range partitions of about equal size.
const SAMPLES: usize = 1000;

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

/// Parses an amount with up to two decimals, in hundredths.
fn cents(field: &[u8]) -> Result<i64, BoxError> {
    let wrong = || format!("\"{}\" is no amount", String::from_utf8_lossy(field));
    let (whole, part) = match field.iter().position(|byte| *byte == b'.') {
        Some(at) => (&field[..at], &field[at + 1..]),
        None => (field, &b""[..]),
    };
    if whole.is_empty() || whole.len() > 15 || part.len() > 2 {
        return Err(wrong().into());
    }
    let mut cents = 0;
    for byte in whole.iter().chain(part).chain(&b"00"[part.len()..]) {
        if !byte.is_ascii_digit() {
            return Err(wrong().into());
        }
        cents = cents * 10 + i64::from(byte - b'0');
    }
    Ok(cents)
}

fn visit(line: &[u8]) -> Result<Visit<'_>, BoxError> {
    let mut fields = line.split(|byte| *byte == b'|');
    let mut field = || fields.next().ok_or("a visit has nine fields");
    let (address, url, date, revenue) = (field()?, field()?, field()?, field()?);
    // User agent, country, language, search word and duration are not needed.
    if fields.count() != 5 {
        return Err("a visit has nine fields".into());
    }
    Ok(Visit { address, url, date: std::str::from_utf8(date)?, cents: cents(revenue)? })
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
                Ok(task.emit(visit.address, &visit.cents)?)
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
            *revenue.entry(visit.address.to_vec()).or_default() += visit.cents;
            Ok(())
        })?;
        let mut sums = Sums::default();
        revenue.iter().for_each(|(address, cents)| sums.add(&sum_line(address, *cents)));
        Ok(sums)
    })
}

fn joined_line(address: &[u8], ranks: i64, visits: i64, cents: i64) -> Vec<u8> {
    // Integers: their sums do not depend on order.
    [address, format!("\t{}\t{cents}\n", ranks as f64 / visits as f64).as_bytes()].concat()
}

/// State of an A task between JOIN's jobs: sums of ranks, visits and cents by address.
#[derive(Default)]
struct Joined {
    /// Sums for the URLs of the task.
    by_url: HashMap<Vec<u8>, [i64; 3]>,
    /// Sums for the addresses of the task.
    by_address: Vec<(Vec<u8>, [i64; 3])>,
}

/// Kind of value sent to a URL's A task: its rank, or a visit to it.
const RANK: u8 = 0;
const VISIT: u8 = 1;

pub fn join(world: &World, config: &Config, io: &InOut, rankings: &Path) -> Result<String, BoxError> {
    let rankings: Vec<PathBuf> = vec![rankings.to_path_buf()];
    let ranks = input::splits(&rankings, io.split_bytes)?;
    let visits = input::splits(&io.input, io.split_bytes)?;
    let splits: Vec<(u8, &input::Split)> =
        ranks.iter().map(|split| (RANK, split)).chain(visits.iter().map(|split| (VISIT, split))).collect();
    // The rank sorts before the visits to its URL, so that no visit has to be buffered.
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
            // By address: ranks, visits and cents of this task's URLs, kept as the input of the next job.
            let mut joined = Joined::default();
            let sums = &mut joined.by_url;
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
            Ok(joined)
        },
    )?;
    let a_tasks = count_a_tasks(world, &joined.outputs)?;
    let mut kept = joined.keep(a_tasks);
    let by_address = Job::<[u8], [i64; 3]>::new("join by address")
        .combine(|left, right| [left[0] + right[0], left[1] + right[1], left[2] + right[2]]);
    by_address.round(
        world,
        config,
        &kept,
        |task, joined| {
            for (address, sums) in joined.by_url.drain() {
                task.emit(&address, &sums)?;
            }
            Ok(())
        },
        |task, joined| {
            while let Some(mut group) = task.next_group()? {
                let (address, sums) =
                    group.fold([0; 3], |sum, add| [sum[0] + add[0], sum[1] + add[1], sum[2] + add[2]])?;
                joined.by_address.push((address.to_vec(), sums));
            }
            Ok(())
        },
    )?;
    // Negated, as the largest revenue comes first.
    let mut samples: Vec<i64> = Vec::new();
    for (_, joined) in kept.here() {
        let every = (joined.by_address.len() / SAMPLES).max(1);
        samples.extend(joined.by_address.iter().step_by(every).map(|(_, [_, _, cents])| -cents));
    }
    let ranges = Ranges::from_samples::<i64>(world, &samples, a_tasks)?;
    let by_revenue =
        Job::<(i64, Vec<u8>), [i64; 2]>::new("join by revenue").sorted().partition(move |(key, _), _| {
            let mut bytes = Vec::with_capacity(8);
            harrier_mpid::append(&key, &mut bytes);
            ranges.of(&bytes)
        });
    let outcome = by_revenue.round(
        world,
        config,
        &kept,
        |task, joined| {
            for (address, [ranks, visits, cents]) in joined.by_address.drain(..) {
                task.emit(&(-cents, address), &[ranks, visits])?;
            }
            Ok(())
        },
        |task, _| {
            let mut part = Part::create(io.output.as_deref(), task.index())?;
            let mut edges: Option<(i64, i64)> = None;
            while let Some(((key, address), [ranks, visits])) = task.next_pair()? {
                part.line(&joined_line(address, ranks, visits, -key))?;
                match &mut edges {
                    None => edges = Some((key, key)),
                    Some((_, last)) if *last > key => return Err("revenues are not in order".into()),
                    Some((_, last)) => *last = key,
                }
            }
            Ok((part.finish()?, edges))
        },
    )?;
    follow_one_another(world, outcome.outputs.iter().map(|(part, (_, edges))| (*part, *edges)))?;
    let outputs = outcome.outputs.into_iter().map(|(_, (sums, _))| sums);
    let sums = total(world, outputs)?;
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

/// Checks that each part's last number is not above the next part's first one. Errors: it is. Collective.
fn follow_one_another(
    world: &World,
    parts: impl Iterator<Item = (usize, Option<(i64, i64)>)>,
) -> Result<(), BoxError> {
    let mut mine = Vec::new();
    for (part, edges) in parts {
        if let Some((first, last)) = edges {
            [part as i64, first, last].iter().for_each(|number| mine.extend(number.to_le_bytes()));
        }
    }
    let all = world.gather(&mine)?.concat();
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let mut parts: Vec<[i64; 3]> =
        all.chunks_exact(24).map(|part| [0, 8, 16].map(|at| number(&part[at..at + 8]))).collect();
    parts.sort_unstable();
    match parts.windows(2).any(|parts| parts[0][2] > parts[1][1]) {
        true => Err("the parts are not in order".into()),
        false => Ok(()),
    }
}

/// Returns the number of a job's A tasks over all ranks. Collective.
pub fn count_a_tasks<R>(world: &World, outputs: &[(usize, R)]) -> Result<usize, BoxError> {
    let counts = world.gather(&(outputs.len() as u64).to_le_bytes())?;
    let count = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")) as usize;
    Ok(counts.iter().map(count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_cents() {
        for (text, expected) in [("0.05", 5), ("12", 1200), ("3.5", 350), ("999.99", 99_999)] {
            assert_eq!(cents(text.as_bytes()).unwrap(), expected, "{text}");
        }
        for text in ["", ".5", "1.234", "-1", "1e3", "many", "12345678901234567890"] {
            assert!(cents(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_visit_has_nine_fields() {
        let line = b"1.2.3.4|url|1999-05-05|0.12|agent|USA|USA-EN|word|7";
        let visit = visit(line).unwrap();
        assert_eq!(
            (visit.address, visit.url, visit.date, visit.cents),
            (&b"1.2.3.4"[..], &b"url"[..], "1999-05-05", 12)
        );
        assert!(super::visit(&line[..line.len() - 2]).is_err());
        assert!(super::visit(&[&line[..], b"|"].concat()).is_err());
    }
}
