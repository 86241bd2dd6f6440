//! Dependency graph of transactions, and its forbidden cycles.
//!
//! ```text
//!   writer ─ww─► next writer      writer ─wr─► reader      reader ─rw─► writer it did not see      ended ─time─► begun later
//! ```
//!
//! A cycle is forbidden if no two of its rw edges are adjacent: with two of them it is write skew, which
//! snapshot isolation allows. So the search is for cycles of steps that consist of one other edge, optionally
//! followed by one rw edge.
//!
//! A node has one snapshot: it is a transaction of level snapshot, or a reading statement of one of level
//! read committed. The writes of the latter transaction are a node of their own, which has no outgoing rw
//! edges.

use std::collections::{BTreeMap, VecDeque};

use super::writes::{Number, Writes};
use super::{Anomaly, Key, Kind, Level, Moment, Observation, Operation, Outcome};

/// Maximum number of start nodes of the search for a short cycle, once one is found.
const START_NODES_MAX: usize = 300;

#[derive(Debug, Clone, Copy)]
enum Why {
    /// ww: the next writer of the key.
    Next(Key),
    Read(Key),
    /// rw: a write that was not observed.
    Missed(Key),
    /// Real time: began after the other's acknowledged end.
    Later,
    /// A statement of the transaction.
    Part,
}

#[derive(Debug)]
struct Node {
    name: String,
    start: Moment,
    /// `None`: its end was not observed.
    ended: Option<Moment>,
}

/// An edge, optionally followed by an rw edge.
#[derive(Debug, Clone, Copy)]
struct Edge {
    to: usize,
    why: Why,
    then: Option<(usize, Why)>,
}

impl Edge {
    fn end(&self) -> usize {
        self.then.map_or(self.to, |(end, _)| end)
    }
}

pub(super) struct Graph<'a> {
    writes: &'a Writes<'a>,
    nodes: Vec<Node>,
    /// Nodes of the transactions' writes.
    writers: BTreeMap<Number, usize>,
    /// Nodes of statements, by transaction and position in it.
    readers: BTreeMap<(Number, usize), usize>,
    /// Edges of each node, except rw.
    edges: Vec<Vec<(usize, Why)>>,
    missed: Vec<Vec<(usize, Why)>>,
}

impl<'a> Graph<'a> {
    pub fn new(writes: &'a Writes<'a>) -> Self {
        let (writers, readers) = (BTreeMap::new(), BTreeMap::new());
        let mut graph =
            Self { writes, nodes: Vec::new(), writers, readers, edges: Vec::new(), missed: Vec::new() };
        for number in 0..writes.history.transactions.len() {
            graph.add_transaction(number);
        }
        for (key, runs) in writes.all_runs() {
            for pair in runs.windows(2) {
                graph.add(graph.writers[&pair[0].by], graph.writers[&pair[1].by], Why::Next(key));
            }
        }
        for life in writes.items.values() {
            if let Some(by) = life.deleted {
                graph.add(graph.writers[&life.inserted], graph.writers[&by], Why::Next(life.key));
            }
        }
        graph
    }

    fn add_transaction(&mut self, number: Number) {
        let transaction = &self.writes.history.transactions[number];
        let is_work = |operation: &Operation| {
            !matches!(operation, Operation::Savepoint | Operation::RollBackTo | Operation::Release)
        };
        // The snapshot is taken by the first statement that reads or writes.
        let Some(first) = transaction.steps.iter().find(|step| is_work(&step.operation)) else { return };
        let last = transaction.steps.last().unwrap_or(first);
        let ended = match transaction.outcome {
            Outcome::Committed => Some(transaction.ended),
            Outcome::RolledBack => Some(last.ended),
            Outcome::Unknown => None,
        };
        let committed = self.writes.has_committed(number);
        let mut parts = Vec::new();
        if transaction.level == Level::ReadCommitted {
            for (at, step) in transaction.steps.iter().enumerate() {
                if let Operation::Read(_) = step.operation {
                    let name = format!("statement {at} of {}", transaction.name);
                    let node = self.add_node(Node { name, start: step.start, ended: Some(step.ended) });
                    self.readers.insert((number, at), node);
                    parts.push(node);
                }
            }
            if !committed {
                return;
            }
        }
        let node = self.add_node(Node { name: transaction.name.clone(), start: first.start, ended });
        self.writers.insert(number, node);
        for part in parts {
            self.add(part, node, Why::Part);
        }
    }

    fn add_node(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.edges.push(Vec::new());
        self.missed.push(Vec::new());
        self.nodes.len() - 1
    }

    fn add(&mut self, from: usize, to: usize, why: Why) {
        if from != to {
            self.edges[from].push((to, why));
        }
    }

    fn add_missed(&mut self, from: usize, to: usize, key: Key) {
        if from != to {
            self.missed[from].push((to, Why::Missed(key)));
        }
    }

    /// Adds the edges of a read, from the observed writes of others.
    pub fn add_read(&mut self, number: Number, at: usize, seen: &Observation) {
        let reader = self.readers.get(&(number, at)).or_else(|| self.writers.get(&number)).copied();
        let Some(reader) = reader else { return };
        let writes = self.writes;
        for (key, list) in &seen.lists {
            let runs = writes.runs(*key);
            if let Some(run) = runs.iter().rfind(|run| run.end <= list.len()) {
                self.add(self.writers[&run.by], reader, Why::Read(*key));
            }
            if let Some(run) = runs.iter().find(|run| run.start >= list.len()) {
                self.add_missed(reader, self.writers[&run.by], *key);
            }
        }
        for (key, items) in &seen.items {
            let of_key = writes.items.iter().filter(|(_, life)| life.key == *key);
            for (value, life) in of_key {
                // Its own items, and those inserted and deleted by one transaction, yield no edges.
                if life.inserted == number || life.deleted == Some(life.inserted) {
                    continue;
                }
                let inserter = self.writers[&life.inserted];
                let deleter = life.deleted.map(|by| self.writers[&by]);
                if items.contains(value) {
                    self.add(inserter, reader, Why::Read(*key));
                    if let Some(deleter) = deleter {
                        self.add_missed(reader, deleter, *key);
                    }
                    continue;
                }
                match deleter {
                    None if life.is_uncertain => {}
                    None => self.add_missed(reader, inserter, *key),
                    // Not yet inserted, or already deleted: real time may decide.
                    Some(deleter) if self.is_before(reader, deleter) => {
                        self.add_missed(reader, inserter, *key)
                    }
                    Some(deleter) if self.is_before(inserter, reader) => {
                        self.add(deleter, reader, Why::Read(*key))
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        self.nodes[one].ended.is_some_and(|ended| ended < self.nodes[other].start)
    }

    /// Adds real-time edges, between transactions without another in between.
    pub fn add_time_edges(&mut self) {
        for node in 0..self.nodes.len() {
            let earlier: Vec<usize> = (0..self.nodes.len())
                .filter(|other| *other != node && self.is_before(*other, node))
                .collect();
            let newest = earlier.iter().map(|other| self.nodes[*other].start).max().unwrap_or(0);
            for other in earlier {
                if self.nodes[other].ended.is_some_and(|ended| ended >= newest) {
                    self.add(other, node, Why::Later);
                }
            }
        }
    }

    /// A forbidden cycle, a short one if there are several.
    pub fn cycle(&self) -> Option<Anomaly> {
        let steps: Vec<Vec<Edge>> = (0..self.nodes.len()).map(|from| self.steps(from)).collect();
        let mut before = vec![0_usize; steps.len()];
        for edge in steps.iter().flatten() {
            before[edge.end()] += 1;
        }
        let mut free: Vec<usize> = (0..steps.len()).filter(|node| before[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for edge in &steps[node] {
                before[edge.end()] -= 1;
                if before[edge.end()] == 0 {
                    free.push(edge.end());
                }
            }
        }
        let left = (0..steps.len()).filter(|node| before[*node] > 0);
        let mut shortest: Option<(usize, Vec<Edge>)> = None;
        for (tried, node) in left.enumerate() {
            if tried > START_NODES_MAX && shortest.is_some() {
                break;
            }
            if let Some(way) = shortest_cycle(&steps, node)
                && shortest.as_ref().is_none_or(|(_, other)| way.len() < other.len())
            {
                shortest = Some((node, way));
            }
        }
        shortest.map(|(node, way)| self.describe(node, &way))
    }

    /// Edges from a node, each alone and followed by rw edges.
    fn steps(&self, from: usize) -> Vec<Edge> {
        let mut steps = Vec::new();
        for (to, why) in &self.edges[from] {
            steps.push(Edge { to: *to, why: *why, then: None });
            let behind = self.missed[*to].iter();
            steps.extend(behind.map(|missed| Edge { to: *to, why: *why, then: Some(*missed) }));
        }
        steps
    }

    fn describe(&self, first: usize, way: &[Edge]) -> Anomaly {
        let name = |node: usize| self.nodes[node].name.as_str();
        let mut said = name(first).to_string();
        let mut misses = false;
        for edge in way {
            let mut add = |to: usize, why: Why| {
                let how = match why {
                    Why::Next(key) => format!(", who wrote to {key} before "),
                    Why::Read(key) => format!(", who wrote to {key} what was seen by "),
                    Why::Missed(key) => format!(", who did not see what was written to {key} by "),
                    Why::Later => ", which had ended before the beginning of ".to_string(),
                    Why::Part => ", a part of ".to_string(),
                };
                said.push_str(&how);
                said.push_str(name(to));
            };
            add(edge.to, edge.why);
            if let Some((to, why)) = edge.then {
                misses = true;
                add(to, why);
            }
        }
        Anomaly { kind: if misses { Kind::Skew } else { Kind::Cycle }, description: said }
    }
}

/// The shortest path from a node to itself.
fn shortest_cycle(steps: &[Vec<Edge>], first: usize) -> Option<Vec<Edge>> {
    let mut came: Vec<Option<(usize, Edge)>> = vec![None; steps.len()];
    let mut waiting = VecDeque::from([first]);
    while let Some(node) = waiting.pop_front() {
        for edge in &steps[node] {
            let to = edge.end();
            if came[to].is_some() {
                continue;
            }
            came[to] = Some((node, *edge));
            if to == first {
                let (mut way, mut at) = (Vec::new(), first);
                while let Some((from, edge)) = came[at] {
                    way.push(edge);
                    at = from;
                    if at == first {
                        break;
                    }
                }
                way.reverse();
                return Some(way);
            }
            waiting.push_back(to);
        }
    }
    None
}
