//! Looks for frames that a rank does not bear, by what they reach in it: `checks/fuzz/run.sh 60`, or `cargo fuzz run --fuzz-dir checks/fuzz frames`, with a
//! nightly toolchain. What it does with an input is `harrier_sim::hostile`, which `crates/interconnect/tests/simulated/fuzz.rs` runs
//! over random ones.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| harrier_sim::hostile::attack(input));
