#!/bin/sh
# Runs what of the crate mpi's `unsafe` needs no MPI under valgrind: blocks, shared memory, and requests whose blocks MPI may
# still use. No leaks are looked for: such blocks are leaked by intention. Their memory is the system's allocator's here, so that valgrind
# sees each of them.
#
# Exit status: 0 if nothing is wrong, 77 if there is no valgrind and it could not be installed.
set -eu
. "$(dirname -- "$0")/../../scripts/packages.sh"
cd "$(dirname -- "$0")/../.."
command -v valgrind >/dev/null 2>&1 || install_packages valgrind || true
command -v valgrind >/dev/null 2>&1 || { echo "skipped: valgrind is not installed" >&2 && exit 77; }
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9 \
    --suppressions=$PWD/checks/valgrind/allocator.supp"
cargo test --manifest-path crates/mpi/Cargo.toml --lib --target-dir "${CARGO_TARGET_DIR:-target}/checks" \
    -- --test-threads=1 block:: shared:: endpoint::
