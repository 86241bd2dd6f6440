#!/bin/sh
# The checks of the checkout, in tiers; xtask/src/main.rs says what there is in each.
#
# usage: scripts/test.sh check|test|test-all|soak PART [OPTIONS]
. "$(dirname -- "$0")/common.sh"

need_cargo
need_cc
# Whoever starts this in the background has it ignore SIGINT and SIGQUIT, and so would all that the tests start.
listening=
if env --default-signal=INT,QUIT true 2>/dev/null; then
    listening="env --default-signal=INT,QUIT"
fi
# shellcheck disable=SC2086 # words
exec $listening cargo run --quiet --package xtask -- "$@"
