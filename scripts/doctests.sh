#!/bin/sh
# Runs the examples in the documentation of the crates.
. "$(dirname -- "$0")/common.sh"

need_cargo
# shellcheck disable=SC2086 # words
cargo ${HARRIER_CARGO_CONFIG:+--config $HARRIER_CARGO_CONFIG} test --release --workspace --features harrier-mpid/arrow --doc
