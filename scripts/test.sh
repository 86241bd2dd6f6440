#!/bin/sh
# All tests, with the MPI runtimes they run under; before them, the format and the lints. Ends with cargo's own summary.
. "$(dirname -- "$0")/common.sh"

build
step "installing the MPI runtimes to test with"
steadily "installing MPI runtimes" scripts/mpi-runtimes.sh || true
if cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; then
    scripts/lint.sh
else
    step "no format and no lints are checked: rustup component add rustfmt clippy"
fi
step "building the tests"
steadily "building the tests" cargo test --release --workspace --no-run
step "testing"
steadily testing cargo test --release --workspace --no-fail-fast
