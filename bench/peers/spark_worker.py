"""Spark, in one process, as a peer: its own writer of Parquet and its default committer.

Tables are overwritten by table partition (`spark.sql.sources.partitionOverwriteMode=dynamic`), for which Spark writes into a
staging folder and renames. S3 needs the jars of hadoop-aws on the path: --jars FOLDER.
"""

import argparse
import glob
import os
import warnings

import worker

warnings.filterwarnings("ignore")


class Spark:
    def __init__(self, threads, jars):
        import pyspark
        from pyspark.sql import SparkSession

        builder = (
            SparkSession.builder.master(f"local[{threads}]")
            .appName("harrier-bench")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "3g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            # The number of output files is the statement's business.
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
            .config("spark.sql.ansi.enabled", "false")
            .config("spark.sql.warehouse.dir", os.path.join(os.environ.get("TMPDIR", "/tmp"), f"spark-warehouse-{os.getpid()}"))
        )
        if jars:
            builder = builder.config("spark.driver.extraClassPath", ":".join(sorted(glob.glob(os.path.join(jars, "*.jar")))))
        if os.environ.get("AWS_ENDPOINT_URL"):
            s3a = "spark.hadoop.fs.s3a."
            builder = (
                builder.config(s3a + "endpoint", os.environ["AWS_ENDPOINT_URL"])
                .config(s3a + "endpoint.region", os.environ.get("AWS_REGION", "us-east-1"))
                .config(s3a + "access.key", os.environ.get("AWS_ACCESS_KEY_ID", ""))
                .config(s3a + "secret.key", os.environ.get("AWS_SECRET_ACCESS_KEY", ""))
                .config(s3a + "path.style.access", "true")
                .config(s3a + "connection.ssl.enabled", "false")
            )
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.name = f"spark {pyspark.__version__}"

    def table(self, name, path):
        self.session.read.parquet(path).createOrReplaceTempView(name)

    def run(self, sql):
        return Rows(self.session.sql(sql).collect())


class Rows:
    """As much of pyarrow.Table as the protocol asks for."""

    def __init__(self, rows):
        self.num_rows = len(rows)
        self.columns = [Column([row[at] for row in rows]) for at in range(len(rows[0]) if rows else 0)]


class Column:
    def __init__(self, values):
        self.values = values

    def to_pylist(self):
        return self.values


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--jars", default="", help="a folder of jars for Java's class path")
    arguments = parser.parse_args()
    worker.serve(Spark(arguments.threads, arguments.jars))
