//! Random faults from a seed: which requests fail, and in which phase.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::fault::{Fault, Request};

/// The longest random delay. Concurrent requests may be reordered.
const DELAY_MS_MAX: u64 = 120;
/// One in this many faults is never answered.
const SILENT_ONE_IN: u64 = 100;
/// Maximum number of body bytes before a cut.
const BODY_BYTES_MAX: u64 = 200_000;

/// A fault depends on the seed, the request's kind and the number of earlier requests of that kind. It does
/// not depend on object names, which are random.
#[derive(Debug)]
pub(super) struct Disturbance {
    seed: u64,
    one_in: u64,
    counts: BTreeMap<String, u64>,
}

impl Disturbance {
    pub(super) fn new(seed: u64, one_in: u64) -> Self {
        Self { seed, one_in, counts: BTreeMap::new() }
    }

    /// Draws the fault for this request, if any.
    pub(super) fn draw(&mut self, request: &Request) -> Option<Fault> {
        let count = self.counts.entry(request.kind.clone()).or_default();
        *count += 1;
        let mut number = Numbers(self.seed, &request.kind, *count, 0);
        if number.below(self.one_in) != 0 {
            return None;
        }
        // Each makes the client wait for its timeout.
        if number.below(SILENT_ONE_IN) == 0 {
            return Some(Fault::SilentAfterwards);
        }
        Some(match number.below(15) {
            0 => Fault::Cut,
            1 => Fault::Status(503),
            2 => Fault::Status(500),
            3 => Fault::Status(429),
            4 | 5 => Fault::CutRequest(number.below_power(BODY_BYTES_MAX)),
            6 => Fault::CutHead,
            7 | 8 => Fault::CutWithin(number.below_power(BODY_BYTES_MAX)),
            9 | 10 => Fault::CutAfterwards,
            11 => Fault::StatusAfterwards(500),
            12 => Fault::StatusAfterwards(503),
            13 => Fault::Delay(Duration::from_millis(number.below(DELAY_MS_MAX))),
            _ => Fault::Late(Duration::from_millis(number.below(DELAY_MS_MAX))),
        })
    }
}

/// Random numbers from a seed, a kind and a count.
struct Numbers<'a>(u64, &'a str, u64, u64);

impl Numbers<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.3 += 1;
        let mut hasher = DefaultHasher::new();
        (self.0, self.1, self.2, self.3).hash(&mut hasher);
        hasher.finish() % bound.max(1)
    }

    /// As likely below a hundred as above a thousand.
    fn below_power(&mut self, bound: u64) -> u64 {
        let magnitude = self.below(u64::from(bound.ilog2()) + 1);
        self.below(1 << magnitude)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::mem::discriminant;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_every_phase_in_time() {
        let get = Request { kind: "GET".to_string(), path: "/b/x".to_string() };
        let put = Request { kind: "PUT".to_string(), path: "/b/y".to_string() };
        let drawn = |seed| {
            let mut disturbance = Disturbance::new(seed, 4);
            (0..4000)
                .map(|at| disturbance.draw(if at % 2 == 0 { &get } else { &put }))
                .collect::<Vec<Option<Fault>>>()
        };
        let first = drawn(1);
        assert_eq!(first, drawn(1));
        assert_ne!(first, drawn(2));
        let struck: Vec<Fault> = first.into_iter().flatten().collect();
        assert!((800..1200).contains(&struck.len()), "{}", struck.len());
        let kinds: BTreeSet<String> =
            struck.iter().map(|fault| format!("{:?}", discriminant(fault))).collect();
        assert_eq!(kinds.len(), 10, "{struck:?}");
    }
}
