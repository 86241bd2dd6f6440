#!/bin/sh
# Runs the program that was built, with an MPI that works: scripts/harrier.sh ARGUMENTS...
. "$(dirname -- "$0")/common.sh"

find_mpirun || true
exec "$harrier" "$@"
