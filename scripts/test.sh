#!/bin/sh
# The checks of the checkout, in tiers; xtask/src/main.rs says what there is in each.
#
# usage: scripts/test.sh check|test|test-all|soak PART [OPTIONS]
. "$(dirname -- "$0")/common.sh"

need_cargo
need_cc
# Programs of tests hold the path of the checkout they were built in, and cargo takes those of another checkout that shares the target folder
# for its own where the sources here are the older ones.
if [ -n "${CARGO_TARGET_DIR-}" ] && [ -d "$CARGO_TARGET_DIR/release" ]; then
    if [ "$(cat "$CARGO_TARGET_DIR/checkout" 2>/dev/null)" != "$PWD" ]; then
        cargo clean --quiet --release --workspace
        # This one is built without optimisation.
        cargo clean --quiet --package xtask
        pwd >"$CARGO_TARGET_DIR/checkout"
    fi
fi
# Whoever starts this in the background has it ignore SIGINT and SIGQUIT, and so would all that the tests start.
listening=
if env --default-signal=INT,QUIT true 2>/dev/null; then
    listening="env --default-signal=INT,QUIT"
fi
# shellcheck disable=SC2086 # words
exec $listening cargo run --quiet --package xtask -- "$@"
