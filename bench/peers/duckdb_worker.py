"""DuckDB as a peer of the benchmarks: the Parquet files as views, everything else as it comes."""

import duckdb
import worker


class DuckDB:
    name = f"duckdb {duckdb.__version__}"

    def __init__(self, threads):
        self.connection = duckdb.connect(config={"threads": threads})

    def table(self, name, path):
        files = path + "*.parquet" if path.endswith("/") else path
        files = files.replace("'", "''")
        self.connection.execute(f"create view \"{name}\" as select * from read_parquet('{files}')")

    def run(self, sql):
        return self.connection.sql(sql).to_arrow_table()


worker.serve(DuckDB(worker.threads(__doc__)))
