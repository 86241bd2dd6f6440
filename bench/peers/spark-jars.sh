#!/bin/sh
# Installs Hadoop's client for S3, which Spark from PyPI comes without, into .harrier/peers/spark-jars (650 MB).
#
# usage: bench/peers/spark-jars.sh
#
# Prints the folder. What is there already is kept. Exit status: 0 if it is there, 1 if not.

set -eu

# Of the Hadoop that this Spark brings, and of what this Hadoop names.
hadoop_version=3.5.0
sdk_version=2.35.4
accelerator_version=1.3.1

folder=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)/.harrier/peers/spark-jars

main() {
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$hadoop_version" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        for artifact in "org.apache.hadoop:hadoop-aws:$hadoop_version" "software.amazon.awssdk:bundle:$sdk_version" \
            "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:$accelerator_version"; do
            if ! mvn -q -B -ntp dependency:get "-Dartifact=$artifact" -Dtransitive=false >&2 ||
                ! mvn -q -B -ntp dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$folder" >&2; then
                rm -rf "$folder"
                echo "spark-jars: Maven could not get $artifact" >&2
                exit 1
            fi
        done
        echo "$hadoop_version" >"$folder/.version"
    fi
    echo "$folder"
}

main "$@"
