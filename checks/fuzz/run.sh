#!/bin/sh
# Looks for bytes that a decoder does not bear, for so many seconds (60): checks/fuzz/run.sh [SECONDS [frames|thrift]]
#
# What cargo-fuzz would do, without it: needs a C++ compiler. The options are those of a nightly toolchain, which this one takes all the
# same. frames: those of ranks; thrift: messages of Hive's clients. Inputs that reach something new stay in checks/fuzz/corpus (of thrift
# corpus-thrift); one that is not borne is left as checks/fuzz/crash-… and ends the run with a failure.
set -eu
cd "$(dirname -- "$0")"
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS="--cfg fuzzing $coverage -Zsanitizer=address -Ccodegen-units=1 -Cdebug-assertions"
target=${2:-frames}
corpus=corpus
[ "$target" = frames ] || corpus=corpus-$target
mkdir -p "$corpus"
# Exit status 77: it cannot be done here.
command -v c++ >/dev/null 2>&1 || { echo "skipped: there is no C++ compiler" >&2 && exit 77; }
export RUSTC_BOOTSTRAP=1
exec cargo run --release --target x86_64-unknown-linux-gnu --bin "$target" -- -max_total_time="${1:-60}" -max_len=6000 -print_final_stats=1 "$corpus"
