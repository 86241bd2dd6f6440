#!/bin/bash
# remote.sh HOST PROGRAM…: runs a program on a host of a network that is made of namespaces (namespace_hosts.rs), as ssh would on a real one.
#
# It answers only while the host's network does: a port that nobody listens at is refused by a host that is there, and by nobody
# else. A host has a name, processes and a network of its own; files are shared by all, as on a cluster with one file system.
#   HARRIER_TEST_SUBNET   the first three bytes of all addresses; a host's name ends with the last one
#   HARRIER_TEST_DISK     a folder that is a file system of the host's own, of so many bytes: PATH:BYTES
host=$1
shift
address=$HARRIER_TEST_SUBNET.${host##*n}
if ! LC_ALL=C timeout 2 bash -c "exec 3<>/dev/tcp/$address/9" 2>&1 | grep -q refused; then
    echo "no route to host $host" >&2
    exit 255
fi
disk=true
if [ -n "$HARRIER_TEST_DISK" ]; then
    disk="mount -t tmpfs -o size=${HARRIER_TEST_DISK##*:} harrier-host ${HARRIER_TEST_DISK%:*}"
fi
exec ip netns exec "$host" unshare --uts --mount --pid --fork --kill-child --mount-proc \
    bash -c "hostname $host; $disk; $*"
