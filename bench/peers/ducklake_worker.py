"""DuckDB that keeps its tables in DuckLake, as a peer of the benchmarks: a new catalog in SQLite, in a folder that goes with it."""

import glob
import os
import tempfile

import duckdb
import duckdb_extension_ducklake
import duckdb_extension_sqlite_scanner
import pyarrow
import worker


class DuckLake:
    name = f"duckdb {duckdb.__version__} with ducklake"

    def __init__(self, threads):
        self.folder = tempfile.TemporaryDirectory()
        self.connection = duckdb.connect(config={"threads": threads, "allow_unsigned_extensions": "true"})
        for module in (duckdb_extension_sqlite_scanner, duckdb_extension_ducklake):
            pattern = os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension")
            [extension] = glob.glob(pattern)
            self.connection.execute(f"load '{extension}'")
        catalog, data = (os.path.join(self.folder.name, name) for name in ("catalog.sqlite", "data"))
        self.connection.execute(f"attach 'ducklake:sqlite:{catalog}' as lake (data_path '{data}')")
        self.connection.execute("use lake")

    def table(self, name, path):
        raise NotImplementedError("it reads files by their paths")

    def run(self, sql):
        rows = self.connection.sql(sql)
        return pyarrow.table({}) if rows is None else rows.to_arrow_table()


worker.serve(DuckLake(worker.threads(__doc__)))
