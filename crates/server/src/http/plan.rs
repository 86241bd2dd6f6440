//! Plan diagram: a tree of operators with the root on top, bytes moved, time, and skew between ranks.
//!
//! Accepts any [`QueryProfile`], even an inconsistent one: cycles of slices or wrong depths are drawn without
//! looping; one with too many operators has no diagram.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use harrier_session_api::query_profile::{Operator, QueryProfile, RankTotals, Slice};
use maud::{Markup, html};

use super::format;

/// Maximum operators of a diagram.
const NODES_MAX: usize = 600;

/// Size of a box and the space around it, in pixels.
const WIDTH: f64 = 236.0;
const HEIGHT: f64 = 82.0;
const GAP_X: f64 = 18.0;
const GAP_Y: f64 = 30.0;
const MARGIN: f64 = 8.0;

/// Maximum letters of a line in a box, at the usual letter width.
const TITLE_LETTERS: usize = 26;
const DETAIL_LETTERS: usize = 34;

/// QueryProfile is skewed if one rank has this many times the mean.
const SKEW_SEEN: f64 = 1.5;

/// Minimum rows for reporting skew.
const SKEW_ROWS: u64 = 1000;
const SKEW_NS: u64 = 50_000_000;
const SKEW_BYTES: u64 = 1 << 20;

/// Maximum operators in the table of skew.
const SKEWS_MAX: usize = 12;

/// Maximum ranks in a table.
const RANKS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Plan<'a> {
    work: &'a QueryProfile,
    nodes: Vec<Node<'a>>,
    roots: Vec<usize>,
}

#[derive(Debug)]
struct Node<'a> {
    operator: &'a Operator,
    slice: &'a Slice,
    children: Vec<usize>,
}

impl<'a> Plan<'a> {
    /// `None`: there is nothing to draw, or too much.
    pub fn of(work: &'a QueryProfile) -> Option<Self> {
        let mut plan = Self { work, nodes: Vec::new(), roots: Vec::new() };
        let mut tops: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for slice in &work.slices {
            let mut above: Vec<(u64, usize)> = Vec::new();
            for operator in &slice.operators {
                let number = plan.nodes.len();
                if number == NODES_MAX {
                    return None;
                }
                plan.nodes.push(Node { operator, slice, children: Vec::new() });
                while above.last().is_some_and(|(depth, _)| *depth >= operator.depth) {
                    above.pop();
                }
                match above.last() {
                    Some((_, parent)) => plan.nodes[*parent].children.push(number),
                    None => tops.entry(slice.number).or_default().push(number),
                }
                above.push((operator.depth, number));
            }
        }
        let mut fed = BTreeSet::new();
        for at in 0..plan.nodes.len() {
            let Node { operator, slice, .. } = &plan.nodes[at];
            // Skips a slice that feeds itself or two motions.
            let Some(feeder) = operator.feeder.filter(|feeder| *feeder != slice.number) else { continue };
            if let Some(roots) = tops.get(&feeder)
                && fed.insert(feeder)
            {
                plan.nodes[at].children.extend(roots);
            }
        }
        let unfed = tops.iter().filter(|(number, _)| !fed.contains(number));
        plan.roots = unfed.flat_map(|(_, roots)| roots.clone()).collect();
        // Slices in a cycle are below no root.
        (!plan.roots.is_empty() && plan.below_roots() == plan.nodes.len()).then_some(plan)
    }

    /// Number of nodes at and below the roots.
    fn below_roots(&self) -> usize {
        let mut reached = self.roots.clone();
        let mut at = 0;
        while at < reached.len() {
            reached.extend(&self.nodes[reached[at]].children);
            at += 1;
        }
        reached.len()
    }

    /// The diagram, and a table of skew below it. `is_running`: scans show their progress.
    pub fn picture(&self, is_running: bool) -> Markup {
        let (places, width, height) = self.layout();
        let slowest = self.nodes.iter().filter_map(|node| node.operator.busy_ns()).max().unwrap_or(0);
        let busiest = self.nodes.iter().filter_map(|node| node.operator.rows()).max().unwrap_or(0);
        html! {
            div.scroll.plan tabindex="0" role="region" aria-label="plan" {
                svg width=(px(width)) height=(px(height)) viewBox={"0 0 " (px(width)) " " (px(height))} role="img"
                    aria-label={"plan of " (self.nodes.len()) " operators"} {
                    @for (at, node) in self.nodes.iter().enumerate() {
                        @for child in &node.children {
                            (edge(places[at], places[*child], self.nodes[*child].operator.rows(), busiest))
                        }
                    }
                    @for (at, node) in self.nodes.iter().enumerate() {
                        (node.node_svg(places[at], slowest, is_running))
                    }
                }
            }
            @if self.work.slices.len() > 1 {
                ul.legend {
                    @for slice in &self.work.slices {
                        li { span.{"swatch s" (slice.number % 8)} {} (headline(slice)) }
                    }
                }
            }
            (self.skews())
        }
    }

    /// The top-left corner of every box, and the total size. A parent is centered above its children.
    fn layout(&self) -> (Vec<(f64, f64)>, f64, f64) {
        let mut places = vec![(0.0, 0.0); self.nodes.len()];
        let mut next_x = MARGIN;
        for root in &self.roots {
            self.place(*root, 0, &mut next_x, &mut places);
        }
        let bottom = places.iter().map(|(_, y)| *y).fold(0.0, f64::max) + HEIGHT + MARGIN;
        (places, next_x - GAP_X + MARGIN, bottom)
    }

    fn place(&self, at: usize, depth: usize, next_x: &mut f64, places: &mut [(f64, f64)]) {
        let y = MARGIN + depth as f64 * (HEIGHT + GAP_Y);
        let children = &self.nodes[at].children;
        for child in children {
            self.place(*child, depth + 1, next_x, places);
        }
        let x = match (children.first(), children.last()) {
            (Some(first), Some(last)) => (places[*first].0 + places[*last].0) / 2.0,
            _ => {
                *next_x += WIDTH + GAP_X;
                *next_x - WIDTH - GAP_X
            }
        };
        places[at] = (x, y);
    }

    /// A table of operators whose rows are skewed between ranks.
    fn skews(&self) -> Markup {
        let mut uneven: Vec<(&Node<'_>, f64)> = self
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.skew()?)))
            .filter(|(_, skew)| *skew > 1.0)
            .collect();
        uneven.sort_by(|one, other| {
            other.1.total_cmp(&one.1).then_with(|| other.0.operator.rows().cmp(&one.0.operator.rows()))
        });
        uneven.truncate(SKEWS_MAX);
        html! {
            @if !uneven.is_empty() {
                h3 { "Operators that ranks shared unevenly" }
                div.scroll { table.cards {
                    thead { tr {
                        th { "operator" } th.number { "slice" } th.number { "ranks" } th.number { "rows" }
                        th.number { "fewest" } th.number { "most" } th.number title="what the busiest rank had, by the mean of all" { "skew" }
                    } }
                    tbody { @for (node, skew) in uneven {
                        @let (least, most) = node.rows_range().unwrap_or_default();
                        tr {
                            td data-label="operator" { (title(node.operator)) }
                            td.number data-label="slice" { (node.slice.number) }
                            td.number data-label="ranks" { (node.slice.ranks) }
                            td.number data-label="rows" { (format::count(node.operator.rows().unwrap_or(0))) }
                            td.number data-label="fewest" { (format::count(least)) }
                            td.number data-label="most" { (format::count(most)) }
                            td.number.warn[node.is_skewed()] data-label="skew" { (format!("{skew:.1} ×")) }
                        }
                    } }
                } }
            }
        }
    }
}

impl Node<'_> {
    /// Minimum and maximum rows per rank, of an operator that several ranks ran.
    fn rows_range(&self) -> Option<(u64, u64)> {
        let shares = &self.operator.shares;
        let counted = || shares.iter().filter_map(|share| share.rows);
        let most = counted().max().filter(|_| self.slice.ranks > 1)?;
        // Ranks without a report had no rows.
        let least = if (shares.len() as u64) < self.slice.ranks { 0 } else { counted().min()? };
        Some((least, most))
    }

    /// Rows of the busiest rank, as a multiple of the mean.
    fn skew(&self) -> Option<f64> {
        let (_, most) = self.rows_range()?;
        let rows = self.operator.rows().filter(|rows| *rows > 0)?;
        Some(most as f64 * self.slice.ranks as f64 / rows as f64)
    }

    fn is_skewed(&self) -> bool {
        let is_much = self.operator.rows().is_some_and(|rows| rows >= SKEW_ROWS);
        is_much && self.skew().is_some_and(|skew| skew >= SKEW_SEEN)
    }

    fn node_svg(&self, (x, y): (f64, f64), slowest: u64, is_running: bool) -> Markup {
        let operator = self.operator;
        let measured = measurements(operator);
        let busy = operator.busy_ns().filter(|_| slowest > 0).map(|busy| busy as f64 / slowest as f64);
        let fraction = operator.fraction().filter(|_| is_running);
        let bar_y = y + HEIGHT - 5.0;
        let bar = WIDTH - 28.0;
        html! {
            g class=(if operator.feeder.is_some() { "node motion" } else { "node" }) {
                title { (title(operator)) @if !operator.detail.is_empty() { ": " (operator.detail) } @for part in &measured { ", " (part) } }
                rect.box x=(px(x)) y=(px(y)) width=(px(WIDTH)) height=(px(HEIGHT)) rx="6" {}
                @if self.slice.number > 0 || operator.feeder.is_some() {
                    rect.{"slice s" (self.slice.number % 8)} x=(px(x)) y=(px(y)) width="5" height=(px(HEIGHT)) rx="2.5" {}
                }
                // The nested SVG clips long text.
                svg x=(px(x + 14.0)) y=(px(y)) width=(px(WIDTH - 20.0)) height=(px(HEIGHT)) {
                    text.title y="20" { (clip(title(operator), TITLE_LETTERS)) }
                    text.detail y="37" { (clip(&operator.detail, DETAIL_LETTERS)) }
                    text.told y="54" { (clip(&measured.join(" · "), DETAIL_LETTERS)) }
                    @if let Some(fraction) = fraction {
                        text.told y="70" { (percent(fraction)) " read" }
                    } @else if let Some((least, most)) = self.rows_range().filter(|(least, most)| least != most) {
                        text class=(if self.is_skewed() { "told warn" } else { "told" }) y="70" {
                            (format!("{} … {} a rank", format::count(least), format::count(most)))
                        }
                    }
                }
                @if let Some(share) = fraction.or(busy) {
                    @if fraction.is_some() {
                        rect.track x=(px(x + 14.0)) y=(px(bar_y)) width=(px(bar)) height="3" {}
                    }
                    rect class=(if fraction.is_some() { "read" } else { "time" }) x=(px(x + 14.0)) y=(px(bar_y))
                        width=(px((bar * share).max(1.0))) height="3" {}
                }
            }
        }
    }
}

/// The measurements of an operator, as text.
fn measurements(operator: &Operator) -> Vec<String> {
    let bytes = |name: &str, value: u64| (value > 0).then(|| format!("{name} {}", format::bytes(value)));
    let rows = operator.rows().map(|rows| format!("{} rows", format::count(rows)));
    let measured = [
        rows,
        bytes("moved", operator.total(|share| share.moved_bytes)),
        bytes("read", operator.total(|share| share.read_bytes)),
        operator.busy_ns().map(|busy| format::nanoseconds(busy as f64)),
        bytes("spilled", operator.total(|share| share.spilled_bytes)),
    ];
    measured.into_iter().flatten().collect()
}

/// `HashJoin` for `HashJoinExec`; for a scan, the name of its table or file.
fn title(operator: &Operator) -> &str {
    if let Some(scan) = operator.scan.as_ref().filter(|scan| !scan.name.is_empty()) {
        return &scan.name;
    }
    let name = &operator.name;
    name.strip_suffix("Exec").filter(|short| !short.is_empty()).unwrap_or(name)
}

/// Formats `slice 3 on 2 ranks, reads lineitem`.
fn headline(slice: &Slice) -> String {
    let mut line = match (slice.number, slice.ranks) {
        (0, _) => "slice 0 on the coordinator".to_string(),
        (number, 1) => format!("slice {number} on 1 rank"),
        (number, ranks) => format!("slice {number} on {ranks} ranks"),
    };
    let scans: BTreeSet<&str> = slice
        .operators
        .iter()
        .filter_map(|operator| operator.scan.as_ref())
        .map(|scan| scan.name.as_str())
        .collect();
    if !scans.is_empty() {
        let _ = write!(line, ", reads {}", scans.into_iter().collect::<Vec<_>>().join(", "));
    }
    line
}

/// The plan as lines of text, to copy or for screen readers.
pub(crate) fn text(work: &QueryProfile) -> String {
    let mut lines = Vec::new();
    for slice in &work.slices {
        lines.push(headline(slice));
        for operator in &slice.operators {
            let mut line = format!("{:indent$}", "", indent = 2 + 2 * operator.depth.min(100) as usize);
            line.push_str(&operator.name);
            if !operator.detail.is_empty() {
                let _ = write!(line, ": {}", operator.detail);
            }
            if let Some(feeder) = operator.feeder {
                let _ = write!(line, " from slice {feeder}");
            }
            let measured = measurements(operator);
            if !measured.is_empty() {
                let _ = write!(line, " ({})", measured.join(", "));
            }
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// A measurement of a rank.
type Number = fn(&RankTotals) -> u64;

/// A table of time, rows and bytes per rank, if there are several ranks.
pub(crate) fn ranks(work: &QueryProfile) -> Markup {
    let ranks = work.by_rank();
    let columns: [(&str, &str, Number, u64, fn(u64) -> String); 6] = [
        (
            "busy",
            "time of its threads in operators",
            |rank| rank.busy_ns,
            SKEW_NS,
            |ns| format::nanoseconds(ns as f64),
        ),
        (
            "rows scanned",
            "rows that came out of its scans",
            |rank| rank.scanned_rows,
            SKEW_ROWS,
            format::count,
        ),
        ("read", "bytes from files", |rank| rank.read_bytes, SKEW_BYTES, format::bytes),
        ("received", "bytes from other ranks", |rank| rank.moved_bytes, SKEW_BYTES, format::bytes),
        ("spilled", "bytes to disk", |rank| rank.spilled_bytes, SKEW_BYTES, format::bytes),
        (
            "memory",
            "the most that it had reserved at once",
            |rank| rank.peak_bytes,
            SKEW_BYTES,
            format::bytes,
        ),
    ];
    // Columns with only zeros are omitted.
    let columns: Vec<_> =
        columns.into_iter().filter(|(_, _, of, ..)| ranks.iter().any(|rank| of(rank) > 0)).collect();
    let count = work.slices.iter().map(|slice| slice.ranks).max().unwrap_or(1).max(ranks.len() as u64);
    html! {
        @if count > 1 && !columns.is_empty() {
            h2 { "Ranks" }
            div.scroll { table.cards.shares {
                thead { tr {
                    th.number { "rank" }
                    @for (name, help, ..) in &columns { th title=(help) { (name) } }
                } }
                tbody { @for rank in ranks.iter().take(RANKS_MAX) {
                    tr {
                        td.number data-label="rank" { (rank.rank) }
                        @for (name, _, of, _, shown) in &columns {
                            @let most = ranks.iter().map(of).max().unwrap_or(0);
                            td.share data-label=(name) {
                                span.value { (shown(of(rank))) }
                                (format::bar(of(rank), most))
                            }
                        }
                    }
                } }
                tfoot { tr {
                    td data-label="" title="what the busiest rank had, by the mean of all" { "skew" }
                    @for (name, _, of, least, _) in &columns {
                        @let (sum, most) = (ranks.iter().map(of).sum::<u64>(), ranks.iter().map(of).max().unwrap_or(0));
                        @let skew = most as f64 * count as f64 / sum.max(1) as f64;
                        td.warn[skew >= SKEW_SEEN && most >= *least] data-label=(name) { (format!("{skew:.1} ×")) }
                    }
                } }
            } }
        }
    }
}

/// Rows flow upward; more rows make a thicker line.
fn edge(parent: (f64, f64), child: (f64, f64), rows: Option<u64>, busiest: u64) -> Markup {
    let (x1, y1) = (child.0 + WIDTH / 2.0, child.1);
    let (x2, y2) = (parent.0 + WIDTH / 2.0, parent.1 + HEIGHT);
    let bend = (y1 + y2) / 2.0;
    let share = match rows {
        Some(rows) if busiest > 0 => (rows as f64 + 1.0).ln() / (busiest as f64 + 1.0).ln(),
        _ => 0.1,
    };
    let path = format!("M{x1:.1} {y1:.1}C{x1:.1} {bend:.1} {x2:.1} {bend:.1} {x2:.1} {y2:.1}");
    html! { path.edge d=(path) stroke-width=(format!("{:.1}", 1.0 + 5.0 * share)) {} }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.0} %", (fraction * 100.0).floor())
}

fn clip(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_string();
    }
    let kept: String = text.chars().take(letters - 1).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests;
