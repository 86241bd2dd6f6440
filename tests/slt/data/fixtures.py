"""Writes the Avro, Arrow and Parquet files of this folder, whole and damaged. Needs pyarrow and fastavro.

The files are committed: this says what is in them and makes more of their kind. What it writes differs from release to
release of those libraries, so it is not run by any test.
"""

import datetime
import decimal
import pathlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent


def folder(name):
    path = HERE / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def avro():
    schema = {
        "type": "record",
        "name": "city",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "population", "type": ["null", "int"]},
            {"name": "area", "type": ["null", "double"]},
            {"name": "founded", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "coastal", "type": ["null", "boolean"]},
            {"name": "names", "type": {"type": "array", "items": "string"}},
        ],
    }
    names = [field["name"] for field in schema["fields"]]
    date = datetime.date
    rows = [
        (1, "Oslo", 709037, 454.12, date(1040, 1, 1), True, ["Oslo", "Christiania"]),
        (2, "Köln", 1084831, 405.01, None, False, ["Köln", "Cologne", "Colonia"]),
        (3, "東京", None, None, date(1457, 4, 8), None, []),
    ]
    records = [dict(zip(names, row)) for row in rows]
    for name, codec in [("cities", "null"), ("cities_deflate", "deflate")]:
        with open(folder("avro") / f"{name}.avro", "wb") as file:
            fastavro.writer(file, schema, records, codec=codec, sync_marker=b"0123456789abcdef")
    whole = (HERE / "avro/cities.avro").read_bytes()
    (folder("avro_damaged") / "truncated.avro").write_bytes(whole[:300])


def items():
    """One column of every kind that tends to be special."""
    times = [
        datetime.datetime(2024, 5, 1, 12, 0),
        None,
        datetime.datetime(1970, 1, 1),
        datetime.datetime(2038, 1, 19, 3, 14, 8),
    ]
    prices = [None if text is None else decimal.Decimal(text) for text in ["1.10", "-20.05", None, "0.00"]]
    boxes = [{"w": 1, "h": 2.5}, {"w": None, "h": 0.0}, None, {"w": 4, "h": None}]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int32()),
            "color": pa.array(["red", "green", None, "red"]).dictionary_encode(),
            "price": pa.array(prices, pa.decimal128(10, 2)),
            "at": pa.array(times, pa.timestamp("us")),
            "seen": pa.array(times, pa.timestamp("ms", tz="UTC")),
            "sizes": pa.array([[1, 2], [], None, [None, 4]], pa.list_(pa.int64())),
            "box": pa.array(boxes, pa.struct([("w", pa.int16()), ("h", pa.float32())])),
            "attributes": pa.array(
                [[("a", 1), ("b", 2)], [], None, [("c", None)]], pa.map_(pa.string(), pa.int32())
            ),
            "raw": pa.array([b"\x00\xff", b"", None, b"abc"], pa.binary()),
            "flag": pa.array([True, False, None, True]),
        }
    )


def arrow():
    table = items()
    path = folder("arrow")
    with pa.OSFile(str(path / "items.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with (
        pa.OSFile(str(path / "items_stream.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    whole = (path / "items.arrow").read_bytes()
    (folder("arrow_damaged") / "truncated.arrow").write_bytes(whole[:1000])


def limits(bits, unsigned):
    least = 0 if unsigned else -(2 ** (bits - 1))
    most = 2**bits - 1 if unsigned else 2 ** (bits - 1) - 1
    name = f"{'u' if unsigned else ''}int{bits}"
    return name, pa.array([least, most, None], getattr(pa, name)())


def parquet():
    path = folder("parquet")
    pq.write_table(items(), path / "items.parquet", compression="snappy")
    columns = [limits(bits, unsigned) for unsigned in [False, True] for bits in [8, 16, 32, 64]]
    pq.write_table(pa.table(dict(columns)), path / "integers.parquet")
    no_rows = pa.table({"id": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    pq.write_table(no_rows, path / "no_rows.parquet")

    # Columns in another order, one of them new.
    evolved = folder("parquet/evolved")
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]}), evolved / "1.parquet")
    pq.write_table(pa.table({"b": ["z"], "c": [1.5], "a": pa.array([3], pa.int32())}), evolved / "2.parquet")

    # One column of two types.
    clashing = folder("parquet/clashing")
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int32())}), clashing / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), clashing / "2.parquet")

    whole = (path / "items.parquet").read_bytes()
    (path / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (path / "text.parquet").write_bytes(b"id,name\n1,not parquet\n")
    (path / "zero_bytes.parquet").write_bytes(b"")


if __name__ == "__main__":
    avro()
    arrow()
    parquet()
