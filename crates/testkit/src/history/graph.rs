//! Who must have come before whom, and whether that goes round in a circle.
//!
//! ```text
//!   writer ─ww─► next writer      writer ─wr─► reader      reader ─rw─► writer it did not see      ended ─time─► begun later
//! ```
//!
//! A circle is forbidden if no two of its rw edges are side by side: with two of them it is write skew, which
//! snapshot isolation allows. So circles are looked for among edges that are one of the others, and perhaps
//! one rw edge behind it.
//!
//! A node has one snapshot: it is a transaction of level snapshot, or a statement of one of level read
//! committed that read. What the latter wrote is a node of its own, from which no rw edge goes.

use std::collections::{BTreeMap, VecDeque};

use super::writes::{Number, Writes};
use super::{Anomaly, Deed, Key, Kind, Level, Moment, Outcome, Picture};

/// Circles are looked for from so many nodes, when there are any, to find a short one.
const BEGINNINGS_MAX: usize = 300;

#[derive(Debug, Clone, Copy)]
enum Why {
    /// Wrote to it next.
    Next(Key),
    Seen(Key),
    /// Did not see what the other wrote to it.
    Missed(Key),
    /// Began when the other had been heard to end.
    Later,
    /// A statement of the transaction.
    Part,
}

#[derive(Debug)]
struct Node {
    name: String,
    begun: Moment,
    /// None: nobody heard of its end.
    ended: Option<Moment>,
}

/// An edge, and perhaps one of missing behind it.
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
    /// Of what a transaction wrote.
    writers: BTreeMap<Number, usize>,
    /// Of statements, by transaction and place in it.
    readers: BTreeMap<(Number, usize), usize>,
    /// From each node.
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
        let is_work = |deed: &Deed| !matches!(deed, Deed::Savepoint | Deed::RollBackTo | Deed::Release);
        // Its snapshot is taken by the first statement that looks or writes.
        let Some(first) = transaction.steps.iter().find(|step| is_work(&step.deed)) else { return };
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
                if let Deed::Read(_) = step.deed {
                    let name = format!("statement {at} of {}", transaction.name);
                    let node = self.add_node(Node { name, begun: step.begun, ended: Some(step.ended) });
                    self.readers.insert((number, at), node);
                    parts.push(node);
                }
            }
            if !committed {
                return;
            }
        }
        let node = self.add_node(Node { name: transaction.name.clone(), begun: first.begun, ended });
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

    /// A statement of a transaction has seen this of what others wrote.
    pub fn saw(&mut self, number: Number, at: usize, seen: &Picture) {
        let reader = self.readers.get(&(number, at)).or_else(|| self.writers.get(&number)).copied();
        let Some(reader) = reader else { return };
        let writes = self.writes;
        for (key, list) in &seen.lists {
            let runs = writes.runs(*key);
            if let Some(run) = runs.iter().rfind(|run| run.end <= list.len()) {
                self.add(self.writers[&run.by], reader, Why::Seen(*key));
            }
            if let Some(run) = runs.iter().find(|run| run.start >= list.len()) {
                self.add_missed(reader, self.writers[&run.by], *key);
            }
        }
        for (key, items) in &seen.items {
            let of_key = writes.items.iter().filter(|(_, life)| life.key == *key);
            for (value, life) in of_key {
                // What came and went within one transaction, and its own, tells nothing.
                if life.inserted == number || life.deleted == Some(life.inserted) {
                    continue;
                }
                let inserter = self.writers[&life.inserted];
                let deleter = life.deleted.map(|by| self.writers[&by]);
                if items.contains(value) {
                    self.add(inserter, reader, Why::Seen(*key));
                    if let Some(deleter) = deleter {
                        self.add_missed(reader, deleter, *key);
                    }
                    continue;
                }
                match deleter {
                    None if life.is_uncertain => {}
                    None => self.add_missed(reader, inserter, *key),
                    // It was not there yet, or not any more: the time may tell.
                    Some(deleter) if self.is_before(reader, deleter) => {
                        self.add_missed(reader, inserter, *key)
                    }
                    Some(deleter) if self.is_before(inserter, reader) => {
                        self.add(deleter, reader, Why::Seen(*key))
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        self.nodes[one].ended.is_some_and(|ended| ended < self.nodes[other].begun)
    }

    /// Adds who had ended before whom: an edge where no other is between.
    pub fn close(&mut self) {
        for node in 0..self.nodes.len() {
            let earlier: Vec<usize> = (0..self.nodes.len())
                .filter(|other| *other != node && self.is_before(*other, node))
                .collect();
            let newest = earlier.iter().map(|other| self.nodes[*other].begun).max().unwrap_or(0);
            for other in earlier {
                if self.nodes[other].ended.is_some_and(|ended| ended >= newest) {
                    self.add(other, node, Why::Later);
                }
            }
        }
    }

    /// A circle that is forbidden, a short one if there are several.
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
            if tried > BEGINNINGS_MAX && shortest.is_some() {
                break;
            }
            if let Some(way) = around(&steps, node)
                && shortest.as_ref().is_none_or(|(_, other)| way.len() < other.len())
            {
                shortest = Some((node, way));
            }
        }
        shortest.map(|(node, way)| self.told(node, &way))
    }

    /// Edges from a node, each alone and with those of missing behind it.
    fn steps(&self, from: usize) -> Vec<Edge> {
        let mut steps = Vec::new();
        for (to, why) in &self.edges[from] {
            steps.push(Edge { to: *to, why: *why, then: None });
            let behind = self.missed[*to].iter();
            steps.extend(behind.map(|missed| Edge { to: *to, why: *why, then: Some(*missed) }));
        }
        steps
    }

    fn told(&self, first: usize, way: &[Edge]) -> Anomaly {
        let name = |node: usize| self.nodes[node].name.as_str();
        let mut said = name(first).to_string();
        let mut misses = false;
        for edge in way {
            let mut add = |to: usize, why: Why| {
                let how = match why {
                    Why::Next(key) => format!(", who wrote to {key} before "),
                    Why::Seen(key) => format!(", who wrote to {key} what was seen by "),
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
        Anomaly { kind: if misses { Kind::Skew } else { Kind::Cycle }, said }
    }
}

/// The shortest way from a node to itself.
fn around(steps: &[Vec<Edge>], first: usize) -> Option<Vec<Edge>> {
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
