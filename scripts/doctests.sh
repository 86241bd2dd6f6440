#!/bin/sh
# Runs the examples in the documentation of the crates.
. "$(dirname -- "$0")/common.sh"

need_cargo
cargo test --release --workspace --features harrier-mpid/arrow --doc
