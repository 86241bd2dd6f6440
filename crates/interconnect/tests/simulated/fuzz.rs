//! A rank that hears anything at all: random bytes, and frames in which nearly everything is right.
//!
//! `HARRIER_SEED` repeats the run of one seed. `checks/fuzz` looks for inputs by what they reach.

use harrier_sim::hostile::attack;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

/// Inputs of a run.
const INPUTS: u64 = 1000;

#[test]
fn nothing_that_arrives_is_more_than_an_error() {
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
