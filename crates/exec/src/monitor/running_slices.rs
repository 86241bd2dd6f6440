//! Assigns the metrics of running tasks to the slices of a plan.

use crate::monitor::slice_tree::SliceNode;
use crate::transport::metrics_codec;
use crate::transport::running_tasks::RunningTaskMetrics;

/// Adds the metrics of a task to its slice.
pub fn fill(slices: &mut [SliceNode], task: &RunningTaskMetrics) {
    let slice = match task.slice {
        Some(number) => slices.iter_mut().find(|slice| slice.number as u64 == number),
        // Slices with identical operators do the same work; the first without metrics of this rank will do.
        None => slices.iter_mut().filter(|slice| slice.number > 0).find(|slice| {
            let place = slice.first_place() + task.place as usize;
            let is_new = slice
                .operators
                .iter()
                .all(|operator| operator.measured.each().all(|(rank, _)| rank != place));
            is_new && places(slice, task).is_some_and(|places| places.len() == slice.operators.len())
        }),
    };
    let Some(slice) = slice else { return };
    let place = slice.first_place() + task.place as usize;
    for (at, operator) in places(slice, task).unwrap_or_default() {
        let metrics = metrics_codec::decode(&task.operators[operator].metrics);
        slice.operators[at].measured.add_of(place, &metrics);
    }
}

/// Maps the operators of a task to those of the slice: a task may omit union inputs that other ranks have.
/// `None`: it does not belong to this slice.
fn places(slice: &SliceNode, task: &RunningTaskMetrics) -> Option<Vec<(usize, usize)>> {
    let mut next = 0;
    let mut places = Vec::with_capacity(task.operators.len());
    for (number, operator) in task.operators.iter().enumerate() {
        let at = (next..slice.operators.len()).find(|at| {
            let own = &slice.operators[*at];
            let feeder = own.motion.as_ref().map(|motion| motion.slice as u64);
            own.depth as u64 == operator.depth && own.name == operator.name && feeder == operator.feeder
        })?;
        places.push((at, number));
        next = at + 1;
    }
    Some(places)
}
