#!/bin/sh
# All tests, with the MPI runtimes they run under. Ends with which of them took longest. The format is a test; clippy would
# analyse every dependency once more and is `make lint`.
. "$(dirname -- "$0")/common.sh"

# tell_slowest LOG: the test programs that took longest, by what cargo has printed.
tell_slowest() {
    awk '
        $1 == "Running" { name = $2 == "unittests" ? "unit tests" : $2; sub(/.*\/deps\//, "", $NF); sub(/-[0-9a-f]+\)$/, "", $NF); name = $NF " (" name ")" }
        $1 == "Doc-tests" { name = "documentation of " $2 }
        /^test result:/ { seconds = $NF; sub(/s$/, "", seconds); total += seconds; printf "%9.1f s  %s\n", seconds, name }
        END { printf "%9.1f s  all\n", total }
    ' "$1" | sort -rn | head -16
}

build
step "installing the MPI runtimes to test with"
steadily "installing MPI runtimes" scripts/mpi-runtimes.sh || true
step "installing DuckDB and PostgreSQL, which share warehouses with Harrier in the tests"
steadily "installing DuckDB" scripts/duckdb.sh || true
steadily "installing PostgreSQL" scripts/postgres.sh || true
step "installing the LDAP server that knows passwords in the tests"
steadily "installing LDAP" scripts/ldap.sh || true
step "installing the servers of S3 and HDFS that the tests run upon"
steadily "installing S3" scripts/s3.sh || true
steadily "installing HDFS" scripts/hdfs.sh || true
step "installing the clients that talk to a served warehouse in the tests"
steadily "installing clients" scripts/clients.sh || true
step "getting PostgreSQL's regression suite"
steadily "getting the regression suite" scripts/regress.sh || true
step "installing the browser that looks at the pages in the tests"
steadily "installing the browser" scripts/pages.sh || true
step "building the Python package with maturin"
steadily "building the Python package" scripts/wheel.sh || true
# Outside of the workspace, so that the model checker's libraries select no other features of the ones they share.
step "checking the handshake of a sleeping driver in every order of its steps"
steadily "checking the handshake" cargo test --quiet --manifest-path checks/handshake/Cargo.toml \
    --target-dir "${CARGO_TARGET_DIR:-target}/checks"
step "running the unsafe code of crate mpi under valgrind"
status=0
steadily "running valgrind" checks/valgrind/run.sh || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 77 ] || fail "valgrind has found something in crate mpi"
# Nothing else has another form with it: what it needs is there for other crates anyway.
features=harrier-mpid/arrow
step "building the tests"
steadily "building the tests" cargo test --release --workspace --features "$features" --no-run
step "testing"
log=$(mktemp -d)
# What a pipe ends with is the status of its last program.
{
    status=0
    steadily testing cargo test --release --workspace --features "$features" --no-fail-fast || status=$?
    echo "$status" >"$log/status"
} 2>&1 | tee "$log/output"
status=$(cat "$log/status")
step "which took longest"
tell_slowest "$log/output" >&2
rm -r "$log"
exit "$status"
