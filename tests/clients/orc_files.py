"""Reads ORC files with pyorc and PyArrow, and compares what they say with a Parquet file of the same rows.

usage: orc_files.py ORC PARQUET

ORC is a file, or a folder of them; the rows of both are put in the order of their column `id`. Prints how many
values were compared. Exit status: 0 if all are equal, 1 if not; then the first that differs of each column is
printed, too.
"""

import datetime
import math
import os
import sys

import pyarrow
import pyarrow.orc
import pyarrow.parquet
import pyorc

EPOCH = datetime.datetime(1970, 1, 1)


def plain(value, kind):
    """A value as both readers have it: times are microseconds, NaN is equal to itself and -0 is not 0."""
    if value is None:
        return None
    if pyarrow.types.is_timestamp(kind):
        since = value.replace(tzinfo=None) - EPOCH
        return since // datetime.timedelta(microseconds=1)
    if pyarrow.types.is_floating(kind):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if pyarrow.types.is_struct(kind):
        return [plain(value[field.name], field.type) for field in kind]
    if pyarrow.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, plain(item, kind.item_type)) for key, item in pairs]
    if pyarrow.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return value


def of_pyarrow(path, schema):
    table = pyarrow.orc.ORCFile(path).read()
    assert table.column_names == schema.names, table.column_names
    # It reads all times as nanoseconds.
    columns = [table.column(field.name).cast(field.type).to_pylist() for field in schema]
    return list(zip(*columns))


def of_pyorc(path, schema):
    with open(path, "rb") as file:
        rows = pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT)
        return [tuple(row[name] for name in schema.names) for row in rows]


def main(orc, parquet):
    expected = pyarrow.parquet.read_table(parquet)
    schema = expected.schema
    key = schema.names.index("id")
    expected = list(zip(*(column.to_pylist() for column in expected.columns)))
    paths = [os.path.join(orc, name) for name in os.listdir(orc)] if os.path.isdir(orc) else [orc]
    compared, differences = 0, []
    for reader in (of_pyarrow, of_pyorc):
        rows = [row for path in paths for row in reader(path, schema)]
        assert len(rows) == len(expected), f"{reader.__name__}: {len(rows)} rows for {len(expected)}"
        rows.sort(key=lambda row: row[key])
        for at, field in enumerate(schema):
            for row, right in zip(rows, sorted(expected, key=lambda row: row[key])):
                compared += 1
                found, wanted = plain(row[at], field.type), plain(right[at], field.type)
                if found != wanted:
                    where = f"{reader.__name__}: {field.name} of row {row[key]}"
                    differences.append(f"{where} is {found!r} for {wanted!r}")
                    break
    print(compared, *differences, sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
