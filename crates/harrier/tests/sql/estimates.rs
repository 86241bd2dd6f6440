//! Row estimates of filters after ANALYZE compared with actual counts (cardinality estimation), and their
//! effect on plans.

use harrier_testkit::session::{Answer, Configuration, Session};
use tempfile::TempDir;

const ROWS: u64 = 40_000;

/// Maximum error in buckets: a bucket is a hundredth of the rows. One is lost at each end of a range, and
/// half of one between its bounds.
const ERROR: f64 = 0.025;

struct Warehouse {
    _folder: TempDir,
    session: Session,
}

impl Warehouse {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let configuration = Configuration::embedded().with_warehouse(folder.path().join("warehouse"));
        Self { session: Session::start(&configuration).unwrap(), _folder: folder }
    }

    fn run(&mut self, sql: &str) {
        self.session.run(sql).unwrap_or_else(|error| panic!("{error} of {sql}"));
    }

    fn column(&mut self, sql: &str) -> Vec<String> {
        match self.session.run(sql) {
            Ok(Answer::Rows { rows, .. }) => {
                rows.into_iter().filter_map(|mut row| row.swap_remove(0)).collect()
            }
            other => panic!("{other:?} of {sql}"),
        }
    }

    fn actual_rows(&mut self, condition: &str) -> f64 {
        self.column(&format!("SELECT count(*) FROM t WHERE {condition}"))[0].parse().unwrap()
    }

    /// Estimated rows of the filter in EXPLAIN.
    fn estimated_rows(&mut self, condition: &str) -> f64 {
        let plan = self.column(&format!("EXPLAIN SELECT * FROM t WHERE {condition}"));
        let line = plan.iter().find(|line| line.trim_start().starts_with("FilterExec"));
        let line = line.unwrap_or_else(|| panic!("no filter by {condition}:\n{}", plan.join("\n")));
        let rows = line.split_once("(expected rows ").and_then(|(_, rest)| rest.split_once(')'));
        rows.unwrap_or_else(|| panic!("nothing is expected: {line}")).0.parse().unwrap()
    }

    fn check(&mut self, condition: &str, error: f64) {
        let (expected, actual) = (self.estimated_rows(condition), self.actual_rows(condition));
        let off = (expected - actual).abs();
        assert!(off <= error + 1.0, "{condition}: {expected} expected, {actual} there");
    }
}

/// Next random number below `end`.
fn draw(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % end
}

/// Numbers with and without skew, with gaps, texts and dates, some NULL, in random order.
fn fill(warehouse: &mut Warehouse) {
    warehouse.run(&format!(
        "CREATE TABLE t AS SELECT v * 7919 % {ROWS} AS even, floor(power(2, (v * 31 % 160) / 10.0))::bigint AS skewed, \
         CASE WHEN v % 2 = 0 THEN v * 37 % 1000 ELSE 1000000 + v * 37 % 1000 END AS gap, \
         CASE WHEN v % 5 = 0 THEN NULL ELSE 'word ' || lpad((v * 7919 % 3300)::text, 4, '0') END AS word, \
         DATE '2000-01-01' + (v * 7919 % 7000)::int AS day, (v * 7919 % 10007) / 16.0 AS ratio, \
         CASE WHEN v % 1000 = 0 THEN 'rare' WHEN v % 10 = 0 THEN 'some' ELSE 'most' END AS kind \
         FROM generate_series(1, {ROWS}) AS g(v)"
    ));
    warehouse.run("ANALYZE t");
}

#[test]
fn range_estimates_are_within_histogram_buckets() {
    let seed = harrier_launch::seed();
    println!("HARRIER_SEED={seed}");
    let mut warehouse = Warehouse::new();
    fill(&mut warehouse);
    let mut state = seed;
    for _ in 0..60 {
        let mut any = |end: u64| draw(&mut state, end);
        let (column, low, high) = match any(6) {
            0 => ("even", any(ROWS).to_string(), any(ROWS).to_string()),
            1 => ("skewed", any(70_000).to_string(), any(300).to_string()),
            2 => ("gap", any(1_100_000).to_string(), any(2_000).to_string()),
            3 => ("word", format!("'word {:04}'", any(3_100)), format!("'word {}'", any(10))),
            4 => {
                let mut day = || format!("DATE '{}-{:02}-{:02}'", 1999 + any(22), 1 + any(12), 1 + any(28));
                let low = day();
                ("day", low, day())
            }
            _ => ("ratio", format!("{}.5", any(700)), format!("{}.25", any(700))),
        };
        let condition = match any(5) {
            0 => format!("{column} < {low}"),
            1 => format!("{column} <= {low}"),
            2 => format!("{column} > {low}"),
            3 => format!("{column} >= {low}"),
            _ => format!("{column} BETWEEN least({low}, {high}) AND greatest({low}, {high})"),
        };
        warehouse.check(&condition, ERROR * ROWS as f64);
    }
}

#[test]
fn estimates_of_other_conditions() {
    let mut warehouse = Warehouse::new();
    fill(&mut warehouse);
    let rows = ROWS as f64;
    for (condition, error) in [
        // The share of common values in the sample (three of four rows) is known, within six standard
        // deviations.
        ("kind = 'rare'", 20.0),
        ("kind = 'most'", 210.0),
        ("'some' = kind", 210.0),
        ("kind <> 'most'", 210.0),
        ("kind IN ('rare', 'some')", 210.0),
        ("kind NOT IN ('rare', 'some', 'many')", 210.0),
        ("kind = 'rare' OR kind = 'some'", 210.0),
        ("kind = 'nosuch'", 0.0),
        ("even = 77", 1.0),
        // Not at the ends: a sample may miss the smallest values, and values beyond its own are estimated as
        // none.
        ("even IN (71, 72, 73, 74, 75, 76, 77, 78)", 2.0),
        ("even = 1000000", 0.0),
        ("word IS NULL", 0.0),
        ("word IS NOT NULL AND even < 10000", rows * 0.03),
        ("word LIKE 'word 1%'", rows * 0.03),
        ("word NOT LIKE 'word 0%'", rows * 0.03),
        // A tenth of the hundred bounds by chance: they are 33 words apart, so that no digit ends most of
        // them.
        ("word LIKE '%7'", rows * 0.15),
        ("length(kind) = 4", 0.0),
        ("upper(kind) LIKE 'R%'", 20.0),
        // A lossy cast is estimated by evaluating the condition on the histogram's values.
        ("(even / 10)::int = 77", rows * 0.01),
        ("(day + INTERVAL '3 hours')::date = DATE '2005-01-01'", rows * 0.01),
        ("extract(year FROM day) = 2005", rows * 0.03),
        ("NOT (even < 10000)", rows * ERROR),
        ("even < 10000 AND ratio > 300", rows * 0.03),
        ("even < 4000 OR even >= 36000", rows * 0.05),
        ("even > 10000 AND even < 12000 AND even < 11000", rows * ERROR),
    ] {
        warehouse.check(condition, error);
    }
}

#[test]
fn estimates_extrapolate_to_later_rows() {
    let mut warehouse = Warehouse::new();
    warehouse.run("CREATE TABLE t AS SELECT v AS n, v % 4 AS k FROM generate_series(1, 20000) AS g(v)");
    warehouse.run("ANALYZE t");
    warehouse.run("INSERT INTO t SELECT v, v % 4 FROM generate_series(20001, 40000) AS g(v)");
    for condition in ["n > 30000", "n <= 10000", "n BETWEEN 15000 AND 25000", "k = 3"] {
        warehouse.check(condition, 1000.0);
    }
    warehouse.run("DELETE FROM t WHERE n % 2 = 0");
    warehouse.run("ANALYZE t");
    for condition in ["n > 30000", "n <= 10000", "k = 3", "k = 2"] {
        warehouse.check(condition, 500.0);
    }
}

/// A sample of a part of the row groups estimates about the same row count and number of distinct values.
#[test]
fn sampled_statistics_estimate_the_whole_table() {
    let mut warehouse = Warehouse::new();
    let table = "CREATE TABLE t WITH (row_group_rows = 5000) AS";
    warehouse.run(&format!(
        "{table} SELECT v * 7919 % 400000 AS key, v * 7919 % 500 AS few, repeat(md5(v::text), 8) AS wide, \
         CASE WHEN v % 4 = 0 THEN NULL ELSE v % 3 END AS some FROM generate_series(1, 400000) AS g(v)"
    ));
    warehouse.run("ANALYZE (SAMPLE 25) t");
    let statistic = |warehouse: &mut Warehouse, column: &str, what: &str| -> f64 {
        let sql = format!("SELECT {what} FROM sys.column_analysis WHERE column_name = '{column}'");
        warehouse.column(&sql)[0].parse().unwrap()
    };
    assert_eq!(statistic(&mut warehouse, "key", "rows"), 400_000.0);
    let keys = statistic(&mut warehouse, "key", "distinct_values");
    assert!((200_000.0..=400_000.0).contains(&keys), "{keys}");
    assert_eq!(statistic(&mut warehouse, "few", "distinct_values"), 500.0);
    assert_eq!(statistic(&mut warehouse, "some", "distinct_values"), 3.0);
    let nulls = statistic(&mut warehouse, "some", "nulls");
    assert!((90_000.0..110_000.0).contains(&nulls), "{nulls}");
    for condition in ["key < 100000", "key BETWEEN 150000 AND 250000", "some = 1", "few > 400"] {
        warehouse.check(condition, 0.03 * 400_000.0);
    }
    // Estimated from its size.
    warehouse.run("SET harrier.analyze_bytes = '4MB'");
    warehouse.run("ANALYZE t");
    warehouse.check("key < 100000", 0.05 * 400_000.0);
}

/// After ANALYZE, the few matching rows of a large table become the build side.
#[test]
fn join_sides_follow_estimates() {
    let mut warehouse = Warehouse::new();
    fill(&mut warehouse);
    warehouse.run("CREATE TABLE other AS SELECT v AS id, 'x' AS x FROM generate_series(1, 2000) AS g(v)");
    warehouse.run("ANALYZE other");
    let mut first = |kind: &str| {
        let sql = format!("EXPLAIN SELECT count(*) FROM other JOIN t ON id = even WHERE kind = '{kind}'");
        let plan = warehouse.column(&sql);
        let join = plan.iter().position(|line| line.contains("HashJoinExec")).unwrap();
        let place = |what: &str| plan[join..].iter().position(|line| line.contains(what)).unwrap();
        if place("kind@") < place("id]") { "t" } else { "other" }
    };
    assert_eq!(first("rare"), "t");
    assert_eq!(first("most"), "other");
}
