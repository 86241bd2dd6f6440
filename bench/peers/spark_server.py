"""Spark's Thrift server in one process: the protocol of HiveServer2 without SASL, over the Parquet files as they are."""

import argparse
import os
import socket
import sys
import time

import server


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    replies = server.own_output()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    threads = parser.parse_args().threads
    import pyspark
    from pyspark.sql import SparkSession

    port = free_port()
    folder = server.folder()
    session = (
        SparkSession.builder.master(f"local[{threads}]")
        .appName("harrier-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
        # As many as there are threads: the default of 200 is for clusters.
        .config("spark.sql.shuffle.partitions", str(threads))
        .config("spark.sql.warehouse.dir", os.path.join(folder, "spark"))
        .config("spark.sql.hive.thriftServer.singleSession", "true")
        .config("spark.scheduler.mode", "FAIR")
        .config("hive.server2.thrift.bind.host", "127.0.0.1")
        .config("hive.server2.thrift.port", str(port))
        .config("hive.server2.authentication", "NOSASL")
        .config("hive.server2.enable.doAs", "false")
        .config("hive.server2.thrift.max.worker.threads", "600")
        .config("spark.hadoop.hive.server2.thrift.bind.host", "127.0.0.1")
        .config("spark.hadoop.hive.server2.thrift.port", str(port))
        .config("spark.hadoop.hive.server2.authentication", "NOSASL")
        .config("spark.hadoop.hive.server2.enable.doAs", "false")
        .config("spark.hadoop.hive.server2.thrift.max.worker.threads", "600")
        .config(
            "spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={os.path.join(folder, 'derby')};create=true"
        )
        .enableHiveSupport()
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    for table, pattern in server.tables():
        session.read.parquet(*server.files(pattern)).createOrReplaceTempView(table)
    thrift = session._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    thrift.startWithContext(session._jsparkSession.sqlContext())
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"nobody listens at port {port}")
            time.sleep(0.1)
    name = f"spark {pyspark.__version__}'s Thrift server"
    server.serve(
        replies, session.sparkContext.cancelAllJobs, engine=name, protocol="hive", port=port, user="bench", database="default"
    )
    os._exit(0)


if __name__ == "__main__":
    main()
