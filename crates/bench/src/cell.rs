//! The runs of one query in one configuration, and their medians.

use crate::worker_process::Run;
use std::time::Duration;

/// One query in one configuration.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub runs: Vec<Run>,
    /// Why there is no time: the query failed, or its answer is wrong.
    pub problem: Option<String>,
}

impl Cell {
    /// Median wall time in seconds; `None` if there is a problem.
    pub fn wall_s(&self) -> Option<f64> {
        self.median(|run| run.wall)
    }

    /// Median CPU time of all processes, in seconds.
    pub fn cpu_s(&self) -> Option<f64> {
        self.median(|run| run.cpu)
    }

    /// Share of moving rows in the CPU time of all ranks, from 0 to 1; `None` if not measured.
    pub fn transport_share(&self) -> Option<f64> {
        let usable = self.problem.is_none();
        usable.then(|| median(self.runs.iter().filter_map(|run| run.transport_share).collect())).flatten()
    }

    fn median(&self, value: impl Fn(&Run) -> Duration) -> Option<f64> {
        let usable = self.problem.is_none();
        usable.then(|| median(self.runs.iter().map(|run| value(run).as_secs_f64()).collect())).flatten()
    }
}

/// Median; the mean of the middle two for an even number of values; `None` if there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
