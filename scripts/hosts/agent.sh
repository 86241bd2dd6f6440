#!/bin/sh
# What mpirun starts instead of ssh: agent.sh HOST COMMAND... runs the command in the namespace of that name, under its name.
host=$1
shift
exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"
