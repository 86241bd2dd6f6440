#!/bin/sh
# Is called by maturin in the place of cargo, for scripts/wheel.sh, and tells it of the library that the tests
# are built with. maturin asks for the library's package alone, for which cargo selects fewer features of many
# libraries than for the whole workspace: 79 of them, Arrow and Tokio among these, would be compiled again.
set -eu
[ "${1-}" = rustc ] || exec cargo "$@"
cd "$(dirname -- "$0")/.."
# maturin puts in here what cargo's configuration has said already.
unset CARGO_ENCODED_RUSTFLAGS
# What cargo tells programs that it runs. Libraries whose build scripts read it, such as ring, would be compiled
# again, and all that needs them, if one of those programs has called this.
for name in $(env | sed -n 's/^\(CARGO_\(PKG\|MANIFEST\|BIN\)_[A-Z_]*\|LD_LIBRARY_PATH\)=.*/\1/p'); do
    unset "$name"
done
# The test that uses the wheel has the library built for it. maturin moves the file that it packs away for a moment, while other
# tests load it: it is told of a copy.
status=0
# shellcheck disable=SC2086 # words
messages=$(cargo ${HARRIER_CARGO_CONFIG:+--config $HARRIER_CARGO_CONFIG} test --release --workspace --features harrier-mpid/arrow --test python --no-run \
    --message-format=json-render-diagnostics) || status=$?
library=$(printf '%s\n' "$messages" | grep -o '[^"]*/deps/libmpid\.so' | head -n 1)
if [ -n "$library" ]; then
    copy=${library%/deps/libmpid.so}/wheel
    mkdir -p "$copy"
    cp -p "$library" "$copy/libmpid.so"
    messages=$(printf '%s\n' "$messages" | sed "s|$library|$copy/libmpid.so|g")
fi
printf '%s\n' "$messages"
exit "$status"
