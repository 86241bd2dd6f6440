"""Plain DataFusion as a peer of the benchmarks: the Parquet files as tables, everything else as it comes."""

import os

import worker

threads = worker.threads(__doc__)
# Read when the library is loaded.
os.environ["TOKIO_WORKER_THREADS"] = str(threads)

import datafusion  # noqa: E402
import pyarrow  # noqa: E402


class DataFusion:
    name = f"datafusion {datafusion.__version__}"

    def __init__(self, threads):
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))

    def table(self, name, path):
        self.context.register_parquet(name, path)

    def run(self, sql):
        frame = self.context.sql(sql)
        return pyarrow.Table.from_batches(frame.collect(), schema=frame.schema())


worker.serve(DataFusion(threads))
