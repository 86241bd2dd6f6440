"""Prepares a statement over Arrow Flight SQL, and asks for its rows, while another client alters its table.

usage: flight_altered.py URI CHANGE...

A change is statements with a semicolon between them. Of each it prints a line, as JSON: the rows of the prepared statement before it, those of a
ticket that was given before it, and what the prepared statement says after it.
"""

import json
import sys

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow


def rows(make):
    handle = make()
    handle = handle[0] if isinstance(handle, tuple) else handle
    with pyarrow.RecordBatchReader._import_from_c(handle.address) as reader:
        return reader.read_all().to_pydict()


def run(connection, statements):
    for statement in statements.split(";"):
        with connection.cursor() as cursor:
            cursor.execute(statement)


connect = adbc_driver_flightsql.dbapi.connect
with connect(sys.argv[1], autocommit=True) as connection, connect(sys.argv[1], autocommit=True) as other:
    for change in sys.argv[2:]:
        run(other, "DROP TABLE IF EXISTS t; CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2)")
        handle = connection.adbc_connection
        with adbc_driver_manager.AdbcStatement(handle) as prepared, adbc_driver_manager.AdbcStatement(handle) as begun:
            prepared.set_sql_query("SELECT * FROM t")
            prepared.prepare()
            before = rows(prepared.execute_query)
            begun.set_sql_query("SELECT * FROM t")
            tickets, _, _ = begun.execute_partitions()
            run(other, change)
            ticket = rows(lambda: handle.read_partition(tickets[0]))
            try:
                after = rows(prepared.execute_query)
            except adbc_driver_manager.Error as error:
                after = str(error).split("SQLSTATE ")[1][:5]
        print(json.dumps([before, ticket, after]))
