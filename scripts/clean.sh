#!/bin/sh
# Removes what was built, generated and installed in this checkout.
. "$(dirname -- "$0")/common.sh"

need_cargo
cargo clean
rm -rf .harrier
