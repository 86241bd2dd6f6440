//! Job scheduler: runs jobs in parallel lanes, the longest first, exclusive ones at the end.
//!
//! The number of lanes is the limit, exceeded while the CPUs are idle: tests spend much of their time
//! waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::report::Report;
use crate::run::{self, Job, Outcome};

/// Maximum time between progress lines on non-terminal output.
const SILENCE_MAX: Duration = Duration::from_secs(9);

/// Poll interval of the CPU load.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Idle share of the CPUs required to start a job beyond the number of lanes.
const IDLE_MIN: f64 = 0.3;

/// Estimated seconds of a job without a measurement.
const UNKNOWN_SECONDS: f64 = 30.0;

/// Number of concurrent jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    pub always: usize,
    /// Limit while CPUs are idle.
    pub most: usize,
}

/// Waiting, running and finished jobs.
struct Queue {
    lanes: Lanes,
    load: Load,
    waiting: Vec<Job>,
    running: BTreeMap<String, Instant>,
    outcomes: Vec<Outcome>,
}

impl Queue {
    /// Takes the next job that may start; jobs are sorted by expected duration.
    fn take(&mut self) -> Option<Job> {
        if self.running.len() >= self.lanes.always && self.load.idle_share() < IDLE_MIN {
            return None;
        }
        let at = self.waiting.iter().position(|job| self.may_begin(job))?;
        let job = self.waiting.remove(at);
        self.running.insert(job.name.clone(), Instant::now());
        self.load.restart();
        Some(job)
    }

    fn may_begin(&self, job: &Job) -> bool {
        // Does not wait for jobs that are not part of this run.
        let is_there =
            |name: &str| self.running.contains_key(name) || self.waiting.iter().any(|job| job.name == name);
        if job.after.as_deref().is_some_and(is_there) {
            return false;
        }
        !job.is_alone() || (self.running.is_empty() && self.waiting.iter().all(Job::is_alone))
    }
}

/// Runs all jobs in lanes and reports each when it ends. `earlier` are their durations in earlier runs, in
/// seconds. Returns the outcomes in order of completion.
pub fn run_all(
    root: &Path,
    logs: &Path,
    mut jobs: Vec<Job>,
    lanes: Lanes,
    earlier: &BTreeMap<String, f64>,
    report: &Report,
) -> Vec<Outcome> {
    let needed: BTreeSet<String> = jobs.iter().filter_map(|job| job.after.clone()).collect();
    let key =
        |job: &Job| (needed.contains(&job.name), earlier.get(&job.name).copied().unwrap_or(UNKNOWN_SECONDS));
    jobs.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal));
    let queue = Queue { lanes, load: Load::new(), waiting: jobs, running: BTreeMap::new(), outcomes: vec![] };
    let (queue, changed) = (Mutex::new(queue), Condvar::new());
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..lanes.most {
            scope.spawn(|| {
                loop {
                    let mut state = lock();
                    let job = loop {
                        if state.waiting.is_empty() {
                            return;
                        }
                        if let Some(job) = state.take() {
                            break job;
                        }
                        state = changed
                            .wait_timeout(state, POLL_INTERVAL)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0;
                    };
                    drop(state);
                    let outcome = run::run(root, logs, &job);
                    report.print_outcome(&outcome);
                    let mut state = lock();
                    state.running.remove(&job.name);
                    state.outcomes.push(outcome);
                    changed.notify_all();
                }
            });
        }
        scope.spawn(|| {
            let mut printed = Instant::now();
            let mut state = lock();
            while !(state.waiting.is_empty() && state.running.is_empty()) {
                if printed.elapsed() >= SILENCE_MAX {
                    printed = Instant::now();
                    report.print_running(&state.running, state.waiting.len());
                }
                state = changed.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            }
        });
    });
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::State;

    fn run_jobs(jobs: Vec<Job>, always: usize) -> Vec<Outcome> {
        let folder = tempfile::tempdir().unwrap();
        let lanes = Lanes { always, most: 2 * always };
        run_all(folder.path(), folder.path(), jobs, lanes, &BTreeMap::new(), &Report::quiet())
    }

    #[test]
    fn jobs_wait_for_what_they_need() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made").display().to_string();
        let outcomes = run_jobs(
            vec![
                Job::command("reader", &["cat", &path]).after("writer"),
                Job::command("other", &["true"]).after("nobody"),
                Job::command("writer", &["sh", "-c", "sleep 0.3; echo x >\"$0\"", &path]),
            ],
            3,
        );
        assert_eq!(outcomes.len(), 3);
        assert!(outcomes.iter().all(|outcome| outcome.state == State::Passed), "{outcomes:?}");
    }

    #[test]
    fn a_failure_stops_no_other_job() {
        let job = |n: usize| Job::command(&format!("job {n}"), &["sh", "-c", &format!("exit {}", n % 2)]);
        let outcomes = run_jobs((0..7).map(job).collect(), 2);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.state == State::Failed).count(), 3);
        assert_eq!(outcomes.len(), 7);
    }

    #[test]
    fn no_more_run_than_lanes_while_nothing_is_idle() {
        let job = |name: &str| Job::command(name, &["true"]);
        let mut queue = Queue {
            lanes: Lanes { always: 2, most: 4 },
            load: Load::new(),
            waiting: ["a", "b", "c"].map(job).to_vec(),
            running: BTreeMap::new(),
            outcomes: vec![],
        };
        assert!(queue.take().is_some() && queue.take().is_some());
        assert_eq!(queue.take(), None);
    }
}
