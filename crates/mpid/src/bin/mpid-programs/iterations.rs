//! Iterative programs over data in memory: PageRank and k-means.

use crate::InOut;
use crate::output::{Part, Sums, conclude, each_line, total};
use crate::tables::count_a_tasks;
use harrier_mpid::{BoxError, Config, Job, World, input};
use std::collections::HashMap;

const DAMPING: f64 = 0.85;

/// Coordinates of a point.
const DIMENSIONS: usize = 8;

type Point = [f64; DIMENSIONS];

fn edge(line: &[u8]) -> Result<(u64, u64), BoxError> {
    let text = std::str::from_utf8(line)?;
    let (from, to) = text.split_once('\t').ok_or("an edge is two numbers with a tab between them")?;
    Ok((from.parse()?, to.parse()?))
}

/// Target of an empty edge, which only declares its source node. Not a number, since each number is a node.
const NOTHING: &[u8] = &[];

/// The nodes of one part: their edges, contiguous, and their ranks.
struct Nodes {
    ids: Vec<u64>,
    first_edge: Vec<usize>,
    edges: Vec<u64>,
    ranks: Vec<f64>,
}

/// Sums a number over all ranks. Collective.
fn sum(world: &World, mine: f64) -> Result<f64, BoxError> {
    let all = world.gather(&mine.to_le_bytes())?;
    Ok(all.iter().map(|bytes| f64::from_le_bytes(bytes[..].try_into().expect("eight bytes"))).sum())
}

/// Prints fewer digits than a sum has, because sums differ in the last digits by the order of addition.
fn rank_line(id: u64, rank: f64) -> Vec<u8> {
    format!("{id}\t{rank:.6}\n").into_bytes()
}

pub fn pagerank(world: &World, config: &Config, io: &InOut, rounds: usize) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    let loading =
        Job::<u64, [u8]>::new("pagerank, loading").o_tasks_unless_told(splits.len()).in_any_mode().sorted();
    let loaded = loading.run(
        world,
        config,
        |task| {
            task.read_lines(&splits, |task, _, line| {
                let (from, to) = edge(line)?;
                task.emit(&from, &to.to_be_bytes())?;
                Ok(task.emit(&to, NOTHING)?)
            })
        },
        |task| {
            let mut nodes = Nodes { ids: vec![], first_edge: vec![0], edges: vec![], ranks: vec![] };
            while let Some(mut group) = task.next_group()? {
                nodes.ids.push(group.key()?);
                while let Some(to) = group.next_value()? {
                    if to != NOTHING {
                        nodes.edges.push(u64::from_be_bytes(to.try_into()?));
                    }
                }
                nodes.first_edge.push(nodes.edges.len());
            }
            Ok(nodes)
        },
    )?;
    let a_tasks = count_a_tasks(world, &loaded.outputs)?;
    let mut kept = loaded.keep(a_tasks);
    let mine: usize = kept.here().map(|(_, nodes)| nodes.ids.len()).sum();
    let count = sum(world, mine as f64)?;
    kept.here().for_each(|(_, nodes)| nodes.ranks = vec![1.0; nodes.ids.len()]);
    let round = Job::<u64, f64>::new("pagerank").sorted().combine(|left, right| left + right);
    for _ in 0..rounds {
        // The rank of nodes without edges is distributed to all nodes equally.
        let mut dangling = 0.0;
        for (_, nodes) in kept.here() {
            let bare = |at: &usize| nodes.first_edge[*at] == nodes.first_edge[*at + 1];
            dangling += (0..nodes.ids.len()).filter(bare).map(|at| nodes.ranks[at]).sum::<f64>();
        }
        let everybody = (1.0 - DAMPING) + DAMPING * sum(world, dangling)? / count;
        round.round(
            world,
            config,
            &kept,
            |task, nodes| {
                for at in 0..nodes.ids.len() {
                    let edges = &nodes.edges[nodes.first_edge[at]..nodes.first_edge[at + 1]];
                    let share = nodes.ranks[at] / edges.len() as f64;
                    for to in edges {
                        task.emit(to, &share)?;
                    }
                }
                Ok(())
            },
            |task, nodes| {
                nodes.ranks.fill(everybody);
                // Both are in node order.
                let mut at = 0;
                while let Some(mut group) = task.next_group()? {
                    let (id, received) = group.fold(0.0, |sum, share| sum + share)?;
                    while nodes.ids[at] < id {
                        at += 1;
                    }
                    nodes.ranks[at] += DAMPING * received;
                }
                Ok(())
            },
        )?;
    }
    let mut parts = Vec::new();
    for (part, nodes) in kept.here() {
        let mut lines = Part::create(io.output.as_deref(), part)?;
        for (id, rank) in nodes.ids.iter().zip(&nodes.ranks) {
            lines.line(&rank_line(*id, *rank))?;
        }
        parts.push(lines.finish()?);
    }
    let sums = total(world, parts)?;
    conclude(world, io, "pagerank", sums, || plain_pagerank(io, rounds))
}

fn plain_pagerank(io: &InOut, rounds: usize) -> Result<Sums, BoxError> {
    let mut edges: HashMap<u64, Vec<u64>> = HashMap::new();
    each_line(&io.input, |_, _, line| {
        let (from, to) = edge(line)?;
        edges.entry(from).or_default().push(to);
        edges.entry(to).or_default();
        Ok(())
    })?;
    let mut ranks: HashMap<u64, f64> = edges.keys().map(|id| (*id, 1.0)).collect();
    for _ in 0..rounds {
        let dangling: f64 = edges.iter().filter(|(_, to)| to.is_empty()).map(|(id, _)| ranks[id]).sum();
        let everybody = (1.0 - DAMPING) + DAMPING * dangling / edges.len() as f64;
        let mut next: HashMap<u64, f64> = edges.keys().map(|id| (*id, everybody)).collect();
        for (from, to) in &edges {
            for to in to.iter() {
                *next.get_mut(to).ok_or("an edge to nowhere")? +=
                    DAMPING * ranks[from] / edges[from].len() as f64;
            }
        }
        ranks = next;
    }
    let mut sums = Sums::default();
    ranks.iter().for_each(|(id, rank)| sums.add(&rank_line(*id, *rank)));
    Ok(sums)
}

fn point(line: &[u8]) -> Result<Point, BoxError> {
    let text = std::str::from_utf8(line)?;
    let numbers: Vec<f64> = text.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| format!("a point has {DIMENSIONS} coordinates").into())
}

fn nearest(point: &Point, centres: &[Point]) -> u32 {
    let distance = |centre: &Point| point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let mut best = (0, f64::INFINITY);
    for (at, centre) in centres.iter().enumerate() {
        let distance = distance(centre);
        if distance < best.1 {
            best = (at as u32, distance);
        }
    }
    best.0
}

/// Offset added before a number is truncated. Sums differ in their last bits by the order of addition, and
/// the mean of a few numbers may lie exactly between two printed values; with the offset it does not.
const ROUNDED: f64 = 0.123_456_7;

fn centre_line(at: usize, centre: &Point) -> Vec<u8> {
    let rounded = |number: &f64| (number * 1e6 + ROUNDED).floor() / 1e6;
    let numbers: Vec<String> = centre.iter().map(|number| format!("{:.6}", rounded(number))).collect();
    format!("{at}\t{}\n", numbers.join(" ")).into_bytes()
}

/// The first points of the input: the same choice for any number of ranks.
fn first_points(io: &InOut, clusters: usize) -> Result<Vec<Point>, BoxError> {
    let mut first = Vec::new();
    for split in input::splits(&io.input, u64::MAX)? {
        let mut lines = split.lines()?;
        while let Some((_, line)) = lines.next_line()? {
            if first.len() == clusters {
                return Ok(first);
            }
            first.push(point(line)?);
        }
    }
    Err(format!("there are only {} points for {clusters} clusters", first.len()).into())
}

pub fn kmeans(
    world: &World,
    config: &Config,
    io: &InOut,
    rounds: usize,
    clusters: usize,
) -> Result<String, BoxError> {
    let splits = input::splits(&io.input, io.split_bytes)?;
    let loading =
        Job::<u64, Point>::new("k-means, loading").o_tasks_unless_told(splits.len()).in_any_mode().plain();
    let loaded = loading.run(
        world,
        config,
        |task| task.read_lines(&splits, |task, at, line| Ok(task.emit(&at, &point(line)?)?)),
        |task| {
            let pairs = task.keep()?;
            let mut points = Vec::with_capacity(pairs.len());
            for pair in pairs.iter() {
                points.push(pair?.1);
            }
            Ok(points)
        },
    )?;
    let a_tasks = count_a_tasks(world, &loaded.outputs)?;
    let kept = loaded.keep(a_tasks);
    let mut centres = first_points(io, clusters)?;
    let round = Job::<u32, (u64, Point)>::new("k-means").combine(|(count, sum), (more, add)| {
        (count + more, std::array::from_fn::<f64, DIMENSIONS, _>(|at| sum[at] + add[at]))
    });
    for _ in 0..rounds {
        let outcome = round.round(
            world,
            config,
            &kept,
            |task, points| {
                for point in points {
                    task.emit(&nearest(point, &centres), &(1, *point))?;
                }
                Ok(())
            },
            |task, _| {
                let mut moved = Vec::new();
                while let Some(mut group) = task.next_group()? {
                    let (at, (count, sum)) =
                        group.fold((0, [0.0; DIMENSIONS]), |(count, sum), (more, add)| {
                            (count + more, std::array::from_fn(|at| sum[at] + add[at]))
                        })?;
                    moved.push((at, sum.map(|sum| sum / count as f64)));
                }
                Ok(moved)
            },
        )?;
        let mut mine = Vec::new();
        for (at, centre) in outcome.outputs.into_iter().flat_map(|(_, moved)| moved) {
            harrier_mpid::append(&(at, centre), &mut mine);
        }
        const ENTRY_BYTES: usize = 4 + 8 * DIMENSIONS;
        for entry in world.gather(&mine)?.concat().chunks_exact(ENTRY_BYTES) {
            let (at, centre) = <(u32, Point) as harrier_mpid::Datum>::decode(entry)?;
            centres[at as usize] = centre;
        }
    }
    let mut sums = Sums::default();
    let mut part = (world.rank() == 0).then(|| Part::create(io.output.as_deref(), 0)).transpose()?;
    for (at, centre) in centres.iter().enumerate() {
        sums.add(&centre_line(at, centre));
        if let Some(part) = &mut part {
            part.line(&centre_line(at, centre))?;
        }
    }
    part.map(Part::finish).transpose()?;
    conclude(world, io, "kmeans", sums, || plain_kmeans(io, rounds, clusters))
}

fn plain_kmeans(io: &InOut, rounds: usize, clusters: usize) -> Result<Sums, BoxError> {
    let mut points = Vec::new();
    each_line(&io.input, |_, _, line| {
        points.push(point(line)?);
        Ok(())
    })?;
    let mut centres = first_points(io, clusters)?;
    for _ in 0..rounds {
        let mut sums = vec![([0.0; DIMENSIONS], 0u64); clusters];
        for point in &points {
            let (sum, count) = &mut sums[nearest(point, &centres) as usize];
            sum.iter_mut().zip(point).for_each(|(sum, add)| *sum += add);
            *count += 1;
        }
        for (centre, (sum, count)) in centres.iter_mut().zip(sums) {
            if count > 0 {
                *centre = sum.map(|sum| sum / count as f64);
            }
        }
    }
    let mut sums = Sums::default();
    centres.iter().enumerate().for_each(|(at, centre)| sums.add(&centre_line(at, centre)));
    Ok(sums)
}
