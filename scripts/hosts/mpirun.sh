#!/bin/sh
# Open MPI's mpirun, with ranks that alternate between the two hosts of scripts/hosts.sh, over TCP: mpirun.sh -n N COMMAND...
# As HARRIER_MPIRUN of a benchmark that scripts/hosts.sh runs, it puts that benchmark's ranks on both.
# Hosts have no memory in common, which these namespaces of one kernel would.
export HARRIER_SHARED_MEMORY=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun --host "$HOST_A:64,$HOST_B:64" --map-by node --bind-to none --oversubscribe \
    --mca plm rsh --mca plm_rsh_agent "$(realpath "$(dirname -- "$0")")/agent.sh" --mca orte_keep_fqdn_hostnames 1 \
    --mca pml ob1 --mca btl tcp,vader,self --mca btl_tcp_if_include line --mca oob_tcp_if_include line \
    --mca mpi_yield_when_idle 1 "$@"
