//! Tests of diagrams: plans that ran on ranks, plans that did not, and impossible ones.

use super::*;
use harrier_session_api::query_profile::{Scan, Share};

const THREE_RANKS: &str = include_str!("../../../tests/plans/three_ranks.json");

/// The profile of a join of two tables on three ranks.
fn three_ranks() -> QueryProfile {
    let profile: serde_json::Value = serde_json::from_str(THREE_RANKS).unwrap();
    serde_json::from_value(serde_json::json!({ "slices": profile["slices"] })).unwrap()
}

fn operator(depth: u64, name: &str, feeder: Option<u64>) -> Operator {
    Operator { depth, name: name.to_string(), feeder, ..Operator::default() }
}

fn slice(number: u64, ranks: u64, operators: Vec<Operator>) -> Slice {
    Slice { number, ranks, operators }
}

fn share(rank: u64, rows: u64) -> Share {
    Share { rank, rows: Some(rows), busy_ns: Some(rows * 1000), ..Share::default() }
}

fn find<'p, 'w>(plan: &'p Plan<'w>, name: &str) -> &'p Node<'w> {
    plan.nodes.iter().find(|node| title(node.operator) == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn slices_are_children_of_their_motions() {
    let work = three_ranks();
    let plan = Plan::of(&work).unwrap();
    assert_eq!(plan.roots.len(), 1);
    let motions: Vec<&Node<'_>> = plan.nodes.iter().filter(|node| node.operator.feeder.is_some()).collect();
    assert!(motions.iter().any(|node| node.operator.name.starts_with("gather 3→1")));
    assert!(motions.iter().any(|node| node.operator.name.starts_with("redistribute 3→3")));
    for motion in motions {
        assert_eq!(motion.children.len(), 1, "{}", motion.operator.name);
        assert_eq!(Some(plan.nodes[motion.children[0]].slice.number), motion.operator.feeder);
    }
    // Every rank reported every slice that it ran.
    assert_eq!(work.by_rank().len(), 3);
    assert!(work.moved_bytes() > 0);
    assert!(work.progress().unwrap().fraction > 0.0);
}

#[test]
fn skew_is_reported() {
    let shared = |rows: &[u64], ranks: u64| {
        let shares = rows.iter().enumerate().map(|(rank, rows)| share(rank as u64, *rows)).collect();
        let join = Operator { shares, ..operator(0, "HashJoinExec", None) };
        QueryProfile { slices: vec![slice(1, ranks, vec![join])], ..QueryProfile::default() }
    };
    for (rows, ranks, spread, is_skewed) in [
        (&[1000, 1000][..], 2, Some((1000, 1000)), false),
        (&[3000, 1000], 2, Some((1000, 3000)), true),
        // The second rank reported nothing, so it counts as zero.
        (&[2000], 2, Some((0, 2000)), true),
        (&[2000], 1, None, false),
        // Five rows are too few to report skew.
        (&[5, 0], 2, Some((0, 5)), false),
        (&[], 2, None, false),
    ] {
        let work = shared(rows, ranks);
        let plan = Plan::of(&work).unwrap();
        let join = find(&plan, "HashJoin");
        assert_eq!((join.rows_range(), join.is_skewed()), (spread, is_skewed), "{rows:?} on {ranks}");
    }
    let drawn = Plan::of(&shared(&[3000, 1000], 2)).unwrap().picture(false).into_string();
    assert!(drawn.contains("1.5 ×") && drawn.contains("1,000 … 3,000 a rank"), "{drawn}");
    let drawn = ranks(&shared(&[3000, 1000], 2)).into_string();
    assert!(drawn.contains("3.0 ms") && drawn.contains("1.5 ×"), "{drawn}");
}

#[test]
fn running_scans_show_progress() {
    let scan = Scan { name: "lineitem".to_string(), files: 1, bytes: 1000, rows: None };
    let shares = vec![Share { read_bytes: 421, ..share(0, 7) }];
    let scan = Operator { scan: Some(scan), shares, ..operator(0, "DataSourceExec", None) };
    let work = QueryProfile { slices: vec![slice(1, 1, vec![scan])], ..QueryProfile::default() };
    let plan = Plan::of(&work).unwrap();
    assert!(plan.picture(true).into_string().contains("42 % read"));
    assert!(!plan.picture(false).into_string().contains("42 %"));
    assert!(text(&work).contains("slice 1 on 1 rank, reads lineitem"), "{}", text(&work));
}

#[test]
fn inconsistent_plans_are_drawn_without_cycles() {
    for slices in [
        vec![slice(0, 1, vec![operator(0, "gather 1→1", Some(0))])],
        vec![slice(1, 2, vec![operator(0, "a", Some(2))]), slice(2, 2, vec![operator(0, "b", Some(1))])],
        vec![slice(
            1,
            0,
            vec![operator(7, "a", Some(9)), operator(3, "b", None), operator(u64::MAX, "c", None)],
        )],
        vec![slice(1, 1, vec![operator(0, "a", Some(2))]), slice(2, 1, vec![]), slice(1, 1, vec![])],
    ] {
        let work = QueryProfile { slices, ..QueryProfile::default() };
        if let Some(plan) = Plan::of(&work) {
            assert!(plan.picture(true).into_string().contains("<svg"));
        }
        ranks(&work);
        text(&work);
    }
    let many = (0..=NODES_MAX).map(|at| operator(at as u64, "x", None)).collect();
    assert!(Plan::of(&QueryProfile { slices: vec![slice(0, 1, many)], ..QueryProfile::default() }).is_none());
    assert!(Plan::of(&QueryProfile::default()).is_none());
}

#[test]
fn boxes_do_not_overlap_and_lie_in_the_view_box() {
    let tree = [(0, "a"), (1, "b"), (1, "c"), (1, "d"), (2, "e"), (2, "f"), (0, "g")];
    let tree = tree.map(|(depth, name)| operator(depth, name, None)).to_vec();
    for work in [three_ranks(), QueryProfile { slices: vec![slice(0, 1, tree)], ..QueryProfile::default() }] {
        let plan = Plan::of(&work).unwrap();
        let (places, width, height) = plan.layout();
        for (at, (x, y)) in places.iter().enumerate() {
            assert!(*x >= 0.0 && x + WIDTH <= width && y + HEIGHT <= height);
            for (other_x, other_y) in &places[..at] {
                assert!((x - other_x).abs() >= WIDTH || (y - other_y).abs() >= HEIGHT);
            }
        }
    }
}

#[test]
fn plan_texts_are_escaped() {
    let scan = Scan { name: "<i>t".to_string(), ..Scan::default() };
    let hostile = Operator {
        detail: "\"><b>".to_string(),
        scan: Some(scan),
        ..operator(0, "<script>alert(1)</script>", None)
    };
    let work = QueryProfile {
        slices: vec![slice(1, 1, vec![hostile.clone(), Operator { scan: None, ..hostile }])],
        ..QueryProfile::default()
    };
    let drawn = Plan::of(&work).unwrap().picture(true).into_string();
    assert!(!["<script", "<b>", "<i>"].iter().any(|bad| drawn.contains(bad)), "{drawn}");
}
