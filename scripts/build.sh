#!/bin/sh
# Builds the program in the way that the tests and the demonstration share.
. "$(dirname -- "$0")/common.sh"

build
