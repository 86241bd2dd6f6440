//! Fuzz tests of a rank's input: random bytes, and frames that are nearly valid.
//!
//! `HARRIER_SEED` repeats the run of one seed. `checks/fuzz` searches for inputs by coverage.

use harrier_sim::hostile::attack;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

/// Inputs per run.
const INPUTS: u64 = 1000;

#[test]
fn random_input_is_at_most_an_error() {
    let seed = std::env::var("HARRIER_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = seed.map_or(0..INPUTS, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let mut input = vec![0; random.random_range(0..6000)];
        random.fill_bytes(&mut input);
        let attacked = std::panic::catch_unwind(|| attack(&input));
        assert!(attacked.is_ok(), "HARRIER_SEED={seed} repeats it");
    }
}
