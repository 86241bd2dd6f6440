//! The text of EXPLAIN as a picture: a tree of operators, its root on top, with what moved, how long it took, and how unevenly ranks
//! shared it.
//!
//! What is read here is text for people, so anything may stand in it: a line that is not understood is an operator of that name, by its
//! indentation, and a text with too many lines has no picture.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::format;

/// With more lines, a text has no picture.
const NODES_MAX: usize = 600;

/// Of a box and the space around it, in pixels.
const WIDTH: f64 = 236.0;
const HEIGHT: f64 = 82.0;
const GAP_X: f64 = 18.0;
const GAP_Y: f64 = 30.0;
const MARGIN: f64 = 8.0;

/// Letters of a line that fit into a box, at the width of most.
const TITLE_LETTERS: usize = 26;
const DETAIL_LETTERS: usize = 34;

/// Ranks share work unevenly when one has so many times the mean.
const SKEW_SEEN: f64 = 1.5;

/// Fewer rows than this are never called uneven.
const SKEW_ROWS: u64 = 1000;

/// Operators whose share by rank is listed below a picture.
const SKEWS_MAX: usize = 12;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub nodes: Vec<Node>,
    pub roots: Vec<usize>,
    /// `slice 3 on 2 ranks`, by number.
    pub slices: BTreeMap<usize, String>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub title: String,
    pub detail: String,
    pub is_motion: bool,
    pub slice: Option<usize>,
    /// Ranks that run it.
    pub ranks: Option<u64>,
    pub rows: Option<u64>,
    /// Rows of the rank that had the fewest, and of the one that had the most.
    pub spread: Option<(u64, u64)>,
    pub time_ns: Option<f64>,
    /// What else was measured, as the text says it.
    pub measured: Vec<String>,
    pub children: Vec<usize>,
}

impl Node {
    /// How many times the mean the busiest rank had.
    pub fn skew(&self) -> Option<f64> {
        let ((_, most), rows, ranks) = (self.spread?, self.rows?, self.ranks?);
        (rows > 0 && ranks > 1).then(|| most as f64 * ranks as f64 / rows as f64)
    }

    fn is_skewed(&self) -> bool {
        self.rows.is_some_and(|rows| rows >= SKEW_ROWS) && self.skew().is_some_and(|skew| skew >= SKEW_SEEN)
    }
}

impl Plan {
    /// `None`: there is nothing to draw, or too much.
    pub fn parse(text: &str) -> Option<Self> {
        let mut plan = Self::default();
        match physical(text) {
            Some(lines) => plan.read_slices(&lines)?,
            None => plan.read_lines(text.lines(), None, None).map(|roots| plan.roots = roots)?,
        }
        // Slices that feed each other in a circle are below no root.
        (!plan.roots.is_empty() && plan.below_roots() == plan.nodes.len()).then_some(plan)
    }

    /// How many nodes there are below the roots, with these.
    fn below_roots(&self) -> usize {
        let mut reached = self.roots.clone();
        let mut at = 0;
        while at < reached.len() {
            reached.extend(&self.nodes[reached[at]].children);
            at += 1;
        }
        reached.len()
    }

    /// Lines of slices, each with its headline; a motion is the parent of what feeds it.
    fn read_slices(&mut self, lines: &[&str]) -> Option<()> {
        let mut tops: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut at = 0;
        while at < lines.len() {
            let Some((number, ranks)) = headline(lines[at]) else {
                at += 1;
                continue;
            };
            let end = (at + 1..lines.len()).find(|at| headline(lines[*at]).is_some()).unwrap_or(lines.len());
            self.slices.insert(number, lines[at].trim().to_string());
            let roots = self.read_lines(lines[at + 1..end].iter().copied(), Some(number), ranks)?;
            tops.insert(number, roots);
            at = end;
        }
        let mut fed = BTreeSet::new();
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let feeder =
                node.is_motion.then(|| node.detail.rsplit("slice ").next()?.parse::<usize>().ok()).flatten();
            // The number grows from a reader to what feeds it or falls, but no slice feeds itself, nor two motions.
            let Some(feeder) = feeder.filter(|feeder| Some(*feeder) != self.nodes[at].slice) else {
                continue;
            };
            if let Some(roots) = tops.get(&feeder)
                && fed.insert(feeder)
            {
                self.nodes[at].children.extend(roots);
            }
        }
        self.roots = tops
            .iter()
            .filter(|(number, _)| !fed.contains(number))
            .flat_map(|(_, roots)| roots.clone())
            .collect();
        Some(())
    }

    /// Adds a node for each line, below the last one that is indented less. Returns those below none.
    fn read_lines<'a>(
        &mut self,
        lines: impl Iterator<Item = &'a str>,
        slice: Option<usize>,
        ranks: Option<u64>,
    ) -> Option<Vec<usize>> {
        let is_frame = |char: char| char.is_whitespace() || matches!(char, '│' | '├' | '└' | '─');
        let mut above: Vec<(usize, usize)> = Vec::new();
        let mut roots = Vec::new();
        for line in lines.filter(|line| !line.trim_matches(is_frame).is_empty()) {
            let indent = line.chars().take_while(|char| is_frame(*char)).count();
            let text = line.trim_start_matches(is_frame).trim_end();
            let number = self.nodes.len();
            if number == NODES_MAX {
                return None;
            }
            self.nodes.push(Node { slice, ranks, ..node(text) });
            while above.last().is_some_and(|(other, _)| *other >= indent) {
                above.pop();
            }
            match above.last() {
                Some((_, parent)) => self.nodes[*parent].children.push(number),
                None => roots.push(number),
            }
            above.push((indent, number));
        }
        Some(roots)
    }

    /// The picture, and below it how unevenly ranks shared the work.
    pub fn picture(&self) -> Markup {
        let (places, width, height) = self.layout();
        let slowest = self.nodes.iter().filter_map(|node| node.time_ns).fold(0.0, f64::max);
        let busiest = self.nodes.iter().filter_map(|node| node.rows).max().unwrap_or(0);
        html! {
            div.scroll.plan tabindex="0" role="region" aria-label="plan" {
                svg width=(px(width)) height=(px(height)) viewBox={"0 0 " (px(width)) " " (px(height))} role="img"
                    aria-label={"plan of " (self.nodes.len()) " operators"} {
                    @for (at, node) in self.nodes.iter().enumerate() {
                        @for child in &node.children {
                            (edge(places[at], places[*child], self.nodes[*child].rows, busiest))
                        }
                    }
                    @for (at, node) in self.nodes.iter().enumerate() { (node.drawn(places[at], slowest)) }
                }
            }
            @if self.slices.len() > 1 {
                ul.legend {
                    @for (number, headline) in &self.slices { li { span.{"swatch s" (number % 8)} {} (headline) } }
                }
            }
            (self.skews())
        }
    }

    /// The left upper corner of every box, and the size of the whole. A parent stands over the middle of its children.
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

    fn skews(&self) -> Markup {
        let mut uneven: Vec<(&Node, f64)> =
            self.nodes.iter().filter_map(|node| Some((node, node.skew()?))).collect();
        uneven.sort_by(|one, other| other.1.total_cmp(&one.1).then(other.0.rows.cmp(&one.0.rows)));
        uneven.truncate(SKEWS_MAX);
        html! {
            @if !uneven.is_empty() {
                h3 { "How ranks shared it" }
                div.scroll { table.cards {
                    thead { tr {
                        th { "operator" } th.number { "slice" } th.number { "ranks" } th.number { "rows" }
                        th.number { "fewest" } th.number { "most" } th.number title="what the busiest rank had, by the mean of all" { "skew" }
                    } }
                    tbody { @for (node, skew) in uneven {
                        @let (least, most) = node.spread.unwrap_or_default();
                        tr {
                            td data-label="operator" { (node.title) }
                            td.number data-label="slice" { @if let Some(slice) = node.slice { (slice) } }
                            td.number data-label="ranks" { @if let Some(ranks) = node.ranks { (ranks) } }
                            td.number data-label="rows" { (format::count(node.rows.unwrap_or(0))) }
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

impl Node {
    fn drawn(&self, (x, y): (f64, f64), slowest: f64) -> Markup {
        let whole = [self.title.as_str(), &self.detail].join(": ");
        let rows = self.rows.map(|rows| format!("{} rows", format::count(rows)));
        let time = self.time_ns.map(format::nanoseconds);
        let told: Vec<String> = rows.into_iter().chain(self.measured.first().cloned()).chain(time).collect();
        let share = self.time_ns.filter(|_| slowest > 0.0).map(|time| time / slowest);
        let bar_y = y + HEIGHT - 5.0;
        html! {
            g class=(if self.is_motion { "node motion" } else { "node" }) {
                title { (whole) @for part in &self.measured { ", " (part) } }
                rect.box x=(px(x)) y=(px(y)) width=(px(WIDTH)) height=(px(HEIGHT)) rx="6" {}
                @if let Some(slice) = self.slice {
                    rect.{"slice s" (slice % 8)} x=(px(x)) y=(px(y)) width="5" height=(px(HEIGHT)) rx="2.5" {}
                }
                // An inner picture cuts off what is too long for it.
                svg x=(px(x + 14.0)) y=(px(y)) width=(px(WIDTH - 20.0)) height=(px(HEIGHT)) {
                    text.title y="20" { (clipped(&self.title, TITLE_LETTERS)) }
                    text.detail y="37" { (clipped(&self.detail, DETAIL_LETTERS)) }
                    text.told y="54" { (clipped(&told.join(" · "), DETAIL_LETTERS)) }
                    @if let Some((least, most)) = self.spread {
                        text class=(if self.is_skewed() { "told warn" } else { "told" }) y="70" {
                            (format!("{} … {} a rank", format::count(least), format::count(most)))
                        }
                    }
                }
                @if let Some(share) = share {
                    rect.time x=(px(x + 14.0)) y=(px(bar_y)) width=(px(((WIDTH - 28.0) * share).max(1.0))) height="3" {}
                }
            }
        }
    }
}

/// Rows flow up, more of them in a thicker line.
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

fn clipped(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_string();
    }
    let kept: String = text.chars().take(letters - 1).collect();
    format!("{}…", kept.trim_end())
}

/// The lines of the section `Physical plan`, without its heading, if it has slices.
fn physical(text: &str) -> Option<Vec<&str>> {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "Physical plan");
    lines.next()?;
    let lines: Vec<&str> = lines.take_while(|line| line.starts_with(' ')).collect();
    lines.first().is_some_and(|first| headline(first).is_some()).then_some(lines)
}

/// Of `slice 3 on 2 ranks, reads x`: 3, and 2.
fn headline(line: &str) -> Option<(usize, Option<u64>)> {
    let rest = line.strip_prefix("  slice ")?;
    let (number, place) = rest.split_once(' ')?;
    let ranks = place.strip_prefix("on ").and_then(|place| {
        let (ranks, what) = place.split_once(' ')?;
        if what.starts_with("rank") { ranks.parse().ok() } else { None }
    });
    Some((number.parse().ok()?, ranks.or(Some(1))))
}

/// Of one line, without its indentation.
fn node(line: &str) -> Node {
    let (text, measured) = measurements(line);
    let mut node = Node::default();
    let text = text.strip_prefix("-> ").unwrap_or(text);
    if let Some(motion) = text.strip_prefix("◄ ") {
        node.is_motion = true;
        // `redistribute 2→2 by k@0 from slice 3`.
        let end = motion.match_indices(' ').nth(1).map_or(motion.len(), |(at, _)| at);
        (node.title, node.detail) = (motion[..end].to_string(), motion[end..].trim().to_string());
    } else {
        let (title, detail) = text.split_once(": ").unwrap_or((text, ""));
        let short = title.strip_suffix("Exec").filter(|short| !short.is_empty()).unwrap_or(title);
        (node.title, node.detail) = (short.to_string(), detail.to_string());
    }
    for part in measured {
        if let Some(rows) = part.strip_prefix("rows ").and_then(|rows| rows.parse().ok()) {
            node.rows = Some(rows);
        } else if let Some((least, most)) =
            part.strip_suffix(" a rank").and_then(|spread| spread.split_once('…'))
        {
            node.spread = least.parse().ok().zip(most.parse().ok());
        } else if let Some(time) = part.strip_prefix("time ").and_then(nanoseconds) {
            node.time_ns = Some(time);
        } else {
            node.measured.push(part.to_string());
        }
    }
    node
}

/// Splits off ` (rows 12, time 3.4 ms, …)`.
fn measurements(line: &str) -> (&str, Vec<&str>) {
    let Some(at) = line.rfind(" (").filter(|_| line.ends_with(')')) else {
        return (line, Vec::new());
    };
    let inside = &line[at + 2..line.len() - 1];
    let words = ["rows ", "moved ", "time ", "read ", "spilled ", "encode "];
    let is_measured = |part: &str| words.iter().any(|word| part.starts_with(word)) || part.ends_with('B');
    let parts: Vec<&str> = inside.split(", ").collect();
    if parts.first().is_some_and(|first| is_measured(first)) {
        (&line[..at], parts)
    } else {
        (line, Vec::new())
    }
}

/// Of `3.4 ms`.
fn nanoseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_RANK: &str = include_str!("../../tests/plans/one_rank.txt");
    const THREE_RANKS: &str = include_str!("../../tests/plans/three_ranks.txt");

    fn find<'a>(plan: &'a Plan, title: &str) -> &'a Node {
        plan.nodes.iter().find(|node| node.title == title).unwrap_or_else(|| panic!("no {title}"))
    }

    #[test]
    fn the_plan_of_one_rank_is_a_tree_of_its_operators() {
        let plan = Plan::parse(ONE_RANK).unwrap();
        assert_eq!((plan.roots.len(), plan.nodes.len(), plan.slices.len()), (1, 13, 1));
        assert_eq!(plan.nodes[plan.roots[0]].title, "SortPreservingMerge");
        let join = find(&plan, "HashJoin");
        let children: Vec<&str> = join.children.iter().map(|at| plan.nodes[*at].title.as_str()).collect();
        assert_eq!(children, ["CoalescePartitions", "DataSource"]);
        assert!(join.detail.starts_with("mode=CollectLeft"), "{}", join.detail);
        assert!(plan.nodes.iter().all(|node| node.rows.is_none() && node.time_ns.is_none()));
    }

    #[test]
    fn slices_hang_below_the_motions_that_they_feed_and_carry_what_ranks_measured() {
        let plan = Plan::parse(THREE_RANKS).unwrap();
        assert_eq!((plan.roots.len(), plan.slices.len()), (1, 4));
        let motions: Vec<&str> =
            plan.nodes.iter().filter(|node| node.is_motion).map(|node| node.title.as_str()).collect();
        assert_eq!(motions, ["gather 3→1", "redistribute 3→3", "broadcast 3→3"]);
        let broadcast = find(&plan, "broadcast 3→3");
        assert_eq!(plan.nodes[broadcast.children[0]].slice, Some(1));
        assert_eq!(broadcast.measured[0], "moved 1.7 MiB in 30 blocks");
        let join = find(&plan, "HashJoin");
        assert_eq!((join.rows, join.spread, join.ranks), (Some(113_432), Some((0, 113_432)), Some(3)));
        assert_eq!(join.time_ns, Some(577.5e6));
        assert_eq!(join.skew(), Some(3.0));
        assert!(join.is_skewed());
        // Five rows are not worth a word.
        assert!(!find(&plan, "Projection").is_skewed());
    }

    #[test]
    fn any_other_text_is_a_tree_by_its_indentation() {
        let plan = Plan::parse("Sort: a\n  Filter: b > 1 (x)\n    Scan\n  Scan: c\nOther").unwrap();
        assert_eq!(plan.roots.len(), 2);
        assert_eq!(plan.nodes[0].children.len(), 2);
        assert_eq!(plan.nodes[1].detail, "b > 1 (x)");
        assert!(Plan::parse("").is_none());
        assert!(Plan::parse(" \n\n").is_none());
        assert!(Plan::parse(&"x\n".repeat(NODES_MAX + 1)).is_none());
    }

    #[test]
    fn damaged_plans_are_drawn_without_going_round_in_circles() {
        for text in [
            "Physical plan\n  slice 0 on the coordinator\n    ◄ gather 1→1 from slice 0",
            "Physical plan\n  slice 1 on 9 ranks\n    ◄ a\n    ◄ b from slice 1\n  slice 2 on x ranks\n    ◄ c from slice 1 (rows 99999999999999999999, 1…x a rank, time NaN s)",
            "Physical plan\n  slice 1 on 2 ranks\n    ◄ a b from slice 2\n  slice 2 on 2 ranks\n    ◄ a b from slice 1",
            "Physical plan\n  slice 0 on 0 ranks\n    X (rows 5, 1…4 a rank)",
        ] {
            if let Some(plan) = Plan::parse(text) {
                assert!(plan.picture().into_string().contains("<svg"));
            }
        }
    }

    #[test]
    fn boxes_do_not_overlap_and_lie_inside_of_the_picture() {
        for text in [ONE_RANK, THREE_RANKS, "a\n b\n b\n b\n  c\n  c\nd"] {
            let plan = Plan::parse(text).unwrap();
            let (places, width, height) = plan.layout();
            for (at, (x, y)) in places.iter().enumerate() {
                assert!(*x >= 0.0 && x + WIDTH <= width && y + HEIGHT <= height, "{text}");
                for (other_x, other_y) in &places[..at] {
                    assert!((x - other_x).abs() >= WIDTH || (y - other_y).abs() >= HEIGHT, "{text}");
                }
            }
        }
    }

    #[test]
    fn what_a_plan_says_is_escaped() {
        let drawn = Plan::parse("<script>alert(1)</script>: \"><b>").unwrap().picture().into_string();
        assert!(!drawn.contains("<script") && !drawn.contains("<b>"), "{drawn}");
    }
}
