//! Tables of `harrier bench duel`: CPU times of a set's statements, what each configuration takes of another,
//! and what the order of tables in a statement costs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::cell::Cell;
use crate::report::letter;

/// Length of the list of the statements with the largest ratios.
const WORST: usize = 5;

/// Ratios of the CPU time of one configuration to that of another, over the statements that both answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub own: usize,
    pub against: usize,
    /// Ratio of the sums of medians.
    pub sum: f64,
    /// Geometric mean of the statements' ratios.
    pub geomean: f64,
    /// Statements with the largest ratios, the largest first.
    pub worst: Vec<(String, f64)>,
    pub statements: usize,
}

impl Ratio {
    /// `None` if both answered no statement.
    pub fn of(own: usize, against: usize, names: &[String], lines: &[&[Cell]]) -> Option<Self> {
        let of_both = |(name, cells): (&String, &&[Cell])| {
            Some((name.clone(), cells[own].cpu_s()?, cells[against].cpu_s()?))
        };
        let both: Vec<(String, f64, f64)> = names.iter().zip(lines).filter_map(of_both).collect();
        let (own_s, against_s) = both.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
        let mut worst: Vec<(String, f64)> =
            both.into_iter().map(|(name, own_s, against_s)| (name, ratio(own_s, against_s))).collect();
        if worst.is_empty() {
            return None;
        }
        let statements = worst.len();
        let logarithms: f64 = worst.iter().map(|(_, ratio)| ratio.ln()).sum();
        worst.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        worst.truncate(WORST);
        let geomean = (logarithms / statements as f64).exp();
        Some(Self { own, against, sum: ratio(own_s, against_s), geomean, worst, statements })
    }

    fn name(&self) -> String {
        format!("{}/{}", letter(self.own), letter(self.against))
    }

    /// Formats a line of sums and one of the worst statements.
    pub fn text(&self) -> String {
        let worst: Vec<_> = self.worst.iter().map(|(name, ratio)| format!("{name} {ratio:.2}")).collect();
        format!(
            "{}: {:.2} of the sum, geometric mean {:.2}, over {} statements\n     most: {}",
            self.name(),
            self.sum,
            self.geomean,
            self.statements,
            worst.join(", ")
        )
    }

    pub fn json(&self) -> Value {
        let worst = self.worst.iter().map(|(name, ratio)| json!({"query": name, "ratio": ratio}));
        json!({
            "configuration": self.own,
            "against": self.against,
            "cpu": self.sum,
            "geomean": self.geomean,
            "worst": worst.collect::<Vec<_>>(),
            "statements": self.statements,
        })
    }
}

/// A ratio of times; a clock that has not moved is taken for a microsecond.
fn ratio(own_s: f64, against_s: f64) -> f64 {
    own_s.max(1e-6) / against_s.max(1e-6)
}

/// What the order of tables costs in one configuration: for each query, the ratio of the CPU time of its
/// worst order to that of its best.
#[derive(Debug, Clone, PartialEq)]
pub struct Orders {
    pub configuration: usize,
    /// By query; `None` if one of its orders failed.
    pub spreads: Vec<(String, Option<f64>)>,
}

impl Orders {
    /// Statements whose names differ in the last letter are orders of one query.
    pub fn of(configuration: usize, names: &[String], lines: &[&[Cell]]) -> Self {
        let mut queries: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for (name, cells) in names.iter().zip(lines) {
            let query = name.trim_end_matches(|c: char| c.is_ascii_lowercase());
            let cpu_s = cells[configuration].cpu_s();
            match queries.last_mut().filter(|(last, _)| last == query) {
                Some((_, orders)) => orders.push(cpu_s),
                None => queries.push((query.to_owned(), vec![cpu_s])),
            }
        }
        let spread = |orders: Vec<Option<f64>>| {
            let orders: Vec<f64> = orders.into_iter().collect::<Option<_>>()?;
            let (best, worst) =
                (orders.iter().copied().fold(f64::MAX, f64::min), orders.iter().copied().fold(0.0, f64::max));
            Some(ratio(worst, best))
        };
        let spreads = queries.into_iter().map(|(query, orders)| (query, spread(orders))).collect();
        Self { configuration, spreads }
    }

    fn ratios(&self) -> impl Iterator<Item = (&str, f64)> {
        self.spreads.iter().filter_map(|(query, spread)| Some((query.as_str(), (*spread)?)))
    }

    /// Mean over the queries; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        let (sum, count) = self.ratios().fold((0.0, 0), |(sum, count), (_, one)| (sum + one, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// The query with the largest ratio, and that.
    pub fn most(&self) -> Option<(&str, f64)> {
        self.ratios().max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    pub fn json(&self) -> Value {
        let queries = self.spreads.iter().map(|(query, spread)| json!({"query": query, "ratio": spread}));
        json!({
            "configuration": self.configuration,
            "mean": self.mean(),
            "most": self.most().map(|(_, ratio)| ratio),
            "queries": queries.collect::<Vec<_>>(),
        })
    }
}

/// Formats what the order of tables costs in each configuration.
pub fn orders_text(orders: &[Orders]) -> String {
    let mut text =
        String::from("\nworst of three orders of tables to the best, in processor time\n\nquery  ");
    for one in orders {
        let _ = write!(text, " {:>9}", letter(one.configuration));
    }
    let figure = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut line = |name: &str, value: &dyn Fn(&Orders) -> Option<f64>| {
        let _ = write!(text, "\n{name:<7}");
        for one in orders {
            let _ = write!(text, " {:>9}", figure(value(one)));
        }
    };
    for (at, (query, _)) in orders.first().iter().flat_map(|first| first.spreads.iter().enumerate()) {
        line(query, &|one| one.spreads[at].1);
    }
    line("mean", &Orders::mean);
    line("most", &|one| one.most().map(|(_, ratio)| ratio));
    text
}

/// Formats the header of a set's table; `against`: the configuration that others are compared with.
pub fn columns(configurations: usize, against: usize) -> String {
    let mut text = format!("{:<7}", "query");
    for at in 0..configurations {
        let _ = write!(text, " {:>9}", format!("{} cpu", letter(at)));
        if at != against {
            let _ = write!(text, " {:>6}", format!("{}/{}", letter(at), letter(against)));
        }
    }
    let _ = write!(text, " {:>9}  answer", "rows");
    text
}

/// Formats a line of CPU times with their ratios.
pub fn numbers(name: &str, cpus_s: &[Option<f64>], against: usize) -> String {
    let mut text = format!("{name:<7}");
    for (at, cpu_s) in cpus_s.iter().enumerate() {
        let _ = match cpu_s {
            Some(cpu_s) => write!(text, " {cpu_s:>9.3}"),
            None => write!(text, " {:>9}", "-"),
        };
        if at != against {
            let _ = match Option::zip(*cpu_s, cpus_s[against]) {
                Some((own_s, against_s)) => write!(text, " {:>6.2}", ratio(own_s, against_s)),
                None => write!(text, " {:>6}", "-"),
            };
        }
    }
    text
}

/// Formats the line of a statement.
pub fn line(name: &str, cells: &[Cell], against: usize) -> String {
    let cpus_s: Vec<_> = cells.iter().map(Cell::cpu_s).collect();
    let rows =
        cells.iter().find_map(|cell| cell.runs.first()).map_or_else(String::new, |run| run.rows.to_string());
    let mut text = format!("{} {rows:>9}  ", numbers(name, &cpus_s, against));
    let problem = |(at, cell): (usize, &Cell)| Some(format!("{}: {}", letter(at), cell.problem.as_ref()?));
    let problems: Vec<String> = cells.iter().enumerate().filter_map(problem).collect();
    match (problems.is_empty(), cells.len()) {
        (false, _) => text.push_str(&problems.join("; ")),
        (true, 1) => text.push_str("not compared"),
        (true, _) => text.push_str("the same by all"),
    }
    text
}

/// Sums of medians by configuration, over the statements that all answered, and how many those are.
pub fn sums(lines: &[&[Cell]]) -> (Vec<f64>, usize) {
    let complete = |cells: &&[Cell]| cells.iter().map(Cell::cpu_s).collect::<Option<Vec<f64>>>();
    let complete: Vec<Vec<f64>> = lines.iter().filter_map(complete).collect();
    let configurations = lines.first().map_or(0, |cells| cells.len());
    let sum = |at: usize| complete.iter().map(|cpus_s| cpus_s[at]).sum();
    ((0..configurations).map(sum).collect(), complete.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::worker_process::Run;

    fn cell(cpu_s: f64) -> Cell {
        let cpu = Duration::from_secs_f64(cpu_s);
        Cell { runs: vec![Run { wall: cpu, cpu, rows: 1, transport_share: None }], problem: None }
    }

    fn failure() -> Cell {
        Cell { runs: vec![], problem: Some("no".to_owned()) }
    }

    fn names() -> Vec<String> {
        ["q01a", "q01b", "q01c", "q02a", "q02b", "q02c"].map(str::to_owned).to_vec()
    }

    /// CPU times of two configurations.
    fn lines() -> Vec<Vec<Cell>> {
        let mut lines: Vec<Vec<Cell>> = [(1.0, 2.0), (2.0, 2.0), (4.0, 2.0), (1.0, 1.0), (3.0, 1.0)]
            .map(|(a, b)| vec![cell(a), cell(b)])
            .to_vec();
        lines.push(vec![cell(1.0), failure()]);
        lines
    }

    #[test]
    fn ratios_are_of_what_both_answered() {
        let lines = lines();
        let lines: Vec<&[Cell]> = lines.iter().map(Vec::as_slice).collect();
        let ratio = Ratio::of(0, 1, &names(), &lines).unwrap();
        assert_eq!((ratio.sum, ratio.statements), (11.0 / 8.0, 5));
        assert!((ratio.geomean - 3.0_f64.powf(0.2)).abs() < 1e-9, "{ratio:?}");
        assert_eq!(ratio.worst[..2], [("q02b".to_owned(), 3.0), ("q01c".to_owned(), 2.0)]);
        let text = ratio.text();
        assert!(text.starts_with("A/B: 1.38 of the sum, geometric mean 1.25, over 5 statements\n"), "{text}");
        assert!(
            text.ends_with("\n     most: q02b 3.00, q01c 2.00, q01b 1.00, q02a 1.00, q01a 0.50"),
            "{text}"
        );
        assert_eq!(Ratio::of(0, 1, &names()[5..], &lines[5..]), None);
        assert_eq!(sums(&lines), (vec![11.0, 8.0], 5));
    }

    #[test]
    fn orders_are_the_worst_to_the_best() {
        let lines = lines();
        let lines: Vec<&[Cell]> = lines.iter().map(Vec::as_slice).collect();
        let orders = [0, 1].map(|at| Orders::of(at, &names(), &lines));
        assert_eq!(orders[0].spreads, [("q01".to_owned(), Some(4.0)), ("q02".to_owned(), Some(3.0))]);
        assert_eq!((orders[0].mean(), orders[0].most()), (Some(3.5), Some(("q01", 4.0))));
        assert_eq!(orders[1].spreads[1].1, None);
        assert_eq!(orders[1].json()["mean"], 1.0);
        let text = orders_text(&orders);
        assert!(text.contains("\nq02          3.00         -\nmean         3.50      1.00\n"), "{text}");
    }

    #[test]
    fn lines_have_times_ratios_and_problems() {
        assert_eq!(columns(2, 1), "query       A cpu    A/B     B cpu      rows  answer");
        let good = line("q01a", &[cell(1.0), cell(2.0)], 1);
        assert_eq!(good, "q01a        1.000   0.50     2.000         1  the same by all");
        let bad = line("q01a", &[cell(1.0), failure()], 1);
        assert!(bad.ends_with("1  B: no"), "{bad}");
        assert_eq!(numbers("sum", &[Some(1.0)], 0), "sum         1.000");
    }
}
