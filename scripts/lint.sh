#!/bin/sh
# Checks the format of the sources and the lints, which must find nothing.
. "$(dirname -- "$0")/common.sh"

need_cargo
need_cc
step "checking the format"
cargo fmt --all --check
step "looking for lints"
steadily "looking for lints" cargo clippy --release --workspace --all-targets -- --deny warnings
