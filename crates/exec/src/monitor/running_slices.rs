//! What parts of plans that run now have measured, by the slices that they belong to.

use crate::monitor::slice_tree::Slice;
use crate::transport::metrics_codec;
use crate::transport::running_tasks::TaskTold;

/// Adds what a part has measured to the slice that it belongs to.
pub fn fill(slices: &mut [Slice], told: &TaskTold) {
    let slice = match told.slice {
        Some(number) => slices.iter_mut().find(|slice| slice.number as u64 == number),
        // Slices alike in every operator do the same work; the first that has nothing from this rank yet is
        // as good as another.
        None => slices.iter_mut().filter(|slice| slice.number > 0).find(|slice| {
            let place = slice.first_place() + told.place as usize;
            let is_new = slice
                .operators
                .iter()
                .all(|operator| operator.measured.each().all(|(rank, _)| rank != place));
            is_new && places(slice, told).is_some_and(|places| places.len() == slice.operators.len())
        }),
    };
    let Some(slice) = slice else { return };
    let place = slice.first_place() + told.place as usize;
    for (at, operator) in places(slice, told).unwrap_or_default() {
        let metrics = metrics_codec::decode(&told.operators[operator].metrics);
        slice.operators[at].measured.add_of(place, &metrics);
    }
}

/// Which operator of the slice each of the part is: a part may leave out inputs of a union that other ranks
/// have. `None`: it is not a part of this slice.
fn places(slice: &Slice, told: &TaskTold) -> Option<Vec<(usize, usize)>> {
    let mut next = 0;
    let mut places = Vec::with_capacity(told.operators.len());
    for (number, operator) in told.operators.iter().enumerate() {
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
