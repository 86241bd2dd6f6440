"""Writes the Avro, Arrow, ORC and Parquet files of this folder, whole and damaged, and some texts. Needs pyarrow, fastavro and pyorc.

The files are committed: this says what is in them and makes more of their kind. What it writes differs from release to
release of those libraries, so it is not run by any test.
"""

import bz2
import datetime
import decimal
import gzip
import lzma
import pathlib
import struct

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyorc

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
    # uuids.parquet is a data file of a warehouse: u uuid, the digits of md5(i), NULL for every fourth i; i integer.
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




def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


def archives():
    """Rows of CSV, JSON and Hive's text in files of two members, cut within a row and an escape; one that is cut."""
    path = folder("archives")
    texts = {
        "csv": "".join(f"{n},row {n}\n" for n in range(10)),
        "json": "".join('{"a":%d,"b":"row %d"}\n' % (n, n) for n in range(10)),
        "txt": "".join(f"{n}\trow {n}\n" for n in range(10)),
    }
    for kind, text in texts.items():
        text = ("a,b\n" if kind == "csv" else "") + text
        parts = [text[:53].encode(), text[53:].encode()]
        for end, compress in COMPRESS.items():
            (path / f"members.{kind}.{end}").write_bytes(b"".join(map(compress, parts)))
    for end, compress in COMPRESS.items():
        (path / f"cut.csv.{end}").write_bytes(compress(texts["csv"].encode())[:-5])
        (path / f"cut.txt.{end}").write_bytes(compress(texts["txt"].encode())[:-5])


def hidden():
    """Folders with what other programs leave beside data, and files of one kind with several endings."""
    def write(name, content):
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    row = "id,s\n%d,x\n"
    write("hidden/plain/a.csv", row % 1)
    for name in ["_b.csv", ".c.csv", "_temporary/0/d.csv", ".staging/e.csv", "sub/f.csv"]:
        write("hidden/plain/" + name, row % 100)
    write("hidden/plain/_SUCCESS", "")
    for key in [1, 2]:
        write(f"hidden/parts/k={key}/part-0.csv", row % key)
        write(f"hidden/parts/k={key}/.part-0.csv.crc", b"crc\0\0")
        write(f"hidden/parts/k={key}/_more.csv", row % 100)
    write("hidden/parts/_SUCCESS", "")
    write("hidden/parts/_temporary/0/k=3/part-0.csv", row % 100)
    write("hidden/text/000000_0", "1\tx\n")
    write("hidden/text/_SUCCESS.old", "2\tx\n")
    write("hidden/text/.hive-staging/000000_0", "3\tx\n")

    write("endings/csv/a.csv", row % 1)
    write("endings/csv/b.CSV", row % 2)
    write("endings/csv/c.csv.gz", gzip.compress((row % 4).encode(), mtime=0))
    write("endings/csv/d.csv.zst", zstd((row % 8).encode()))
    write("endings/json/a.json", '{"id":1}\n')
    write("endings/json/b.ndjson", '{"id":2}\n')
    write("endings/json/c.jsonl.gz", gzip.compress(b'{"id":4}\n', mtime=0))
    write("endings/equals/a.csv", row % 1)
    write("endings/equals/x=9.csv", row % 2)
    write("endings/kinds/a.csv", row % 1)
    write("endings/kinds/b.json", '{"id":2}\n')
    write("endings/keys/k=1/a.csv", row % 1)
    write("endings/keys/k=2/a.CSV", row % 2)


def quoted():
    """CSV whose values have line ends, and what looks like rows, in them; quotes that stand for themselves; one that is open."""
    path = folder("csv")
    value = '"line\n99,""more""\n{0},end"'
    rows = [f"{n},{value.format(1000 + n)},5\" pipe\n" for n in range(60)]
    (path / "quoted_lines.csv").write_text("id,text,size\n" + "".join(rows))
    rows = [f"{n},plain\n" for n in range(30)]
    rows[20] = '20,"never closed\n'
    (path / "open_quote.csv").write_text("id,text\n" + "".join(rows))


def avro_blocks():
    """Files of rows of one number each, whose blocks are not what they say."""
    path = folder("avro_damaged")
    schema = b'{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
    number = lambda n: bytes([n << 1]) if n < 64 else bytes([(n << 1) & 0x7F | 0x80, n >> 6])
    text = lambda value: number(len(value)) + value
    marker = b"0123456789abcdef"
    header = b"Obj\x01" + number(2) + text(b"avro.schema") + text(schema) + text(b"avro.codec") + text(b"null")
    header += number(0) + marker
    block = number(2) + number(2) + number(7) + number(8)
    for name, rest in {
        "blocks": block + marker + block + marker,
        "cut_in_block": block + marker + block[:3],
        "cut_in_marker": block + marker + block + marker[:7],
        "wrong_marker": block + b"X" * 16 + block + marker,
        "rows_missing": number(3) + number(0) + marker + block + marker,
        "rows_short": number(3) + number(2) + number(7) + number(8) + marker,
    }.items():
        (path / f"{name}.avro").write_bytes(header + rest)


def odd_parquet():
    """Files as other programs write them: times of 96 bits, bytes that are read as texts, names in another case."""
    path = folder("parquet/odd")
    moments = [10**18 + n for n in range(3)]
    times = pa.table({"i": [0, 1, 2], "t": pa.array(moments, pa.timestamp("ns"))})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(times, path / "int96.parquet", use_deprecated_int96_timestamps=True, **plain)
    whole = (path / "int96.parquet").read_bytes()
    # Nanoseconds of the day, and the day: of these moments, and of others that pyarrow has no place for.
    of_day = lambda moment: struct.pack("<qi", moment % (86400 * 10**9), moment // (86400 * 10**9) + 2440588)
    for moment, (nanoseconds, day) in zip(moments, [(0, 5373484), (0, 1721426), (86399123456000, 2460370)]):
        assert whole.count(of_day(moment)) == 1
        whole = whole.replace(of_day(moment), struct.pack("<qi", nanoseconds, day))
    (path / "int96.parquet").write_bytes(whole)

    content = pa.array([b"ok", b"a\xff", None, b"\xe4\xf6"])
    pq.write_table(pa.table({"n": [1, 2, 3, 4], "a": content}), path / "no_utf8.parquet", store_schema=False)
    content = pa.array([b"ok", "ä".encode(), None])
    pq.write_table(pa.table({"n": [1, 2, 3], "a": content}), path / "bytes.parquet", store_schema=False)
    pq.write_table(pa.table({"Foo": [1, 2], "BAR": ["x", None]}), path / "case.parquet")


def odd_avro():
    """A record without fields."""
    empty = {"type": "record", "name": "empty", "fields": []}
    fields = [{"name": "i", "type": "int"}, {"name": "e", "type": empty}, {"name": "n", "type": ["null", "empty"]}]
    schema = {"type": "record", "name": "row", "fields": fields}
    rows = [{"i": 1, "e": {}, "n": {}}, {"i": 2, "e": {}, "n": None}]
    with open(folder("avro_odd") / "empty_record.avro", "wb") as file:
        fastavro.writer(file, schema, rows, sync_marker=b"0123456789abcdef")


def odd_orc():
    """Integers that their columns have no bits for, as old writers have them, and rows that are no structs."""
    path = folder("orc")
    rows = [(n % 50 - 20000 + (n % 40 == 7) * 65536, n * 97 % 3000 - 2**31 + (n % 40 == 9) * 2**32, [n * 131 % 65536]) for n in range(600)]
    with open(path / "narrow.orc", "wb") as file:
        kind = "struct<s:bigint,i:bigint,l:array<bigint>>"
        with pyorc.Writer(file, kind, compression=pyorc.CompressionKind.NONE) as writer:
            writer.writerows(rows)
    whole = (path / "narrow.orc").read_bytes()
    # BIGINT, as it stands in the list of types, becomes SMALLINT, INT and SMALLINT.
    assert whole.count(b"\x22\x08\x08\x04") == 3
    for kind in b"\x02\x03\x02":
        whole = whole.replace(b"\x22\x08\x08\x04", bytes([0x22, 8, 8, kind]), 1)
    (path / "narrow.orc").write_bytes(whole)
    with open(path / "no_struct.orc", "wb") as file, pyorc.Writer(file, "int") as writer:
        writer.write(1)


def json_layouts():
    """Records that are no lines."""
    path = folder("json")
    bytes_of = {
        "elements.json": b'[\n  {"a": 1, "b": "x"},\n  {"a": 2.5, "b": "],[{\\""}, {"b": null}\n]\n',
        "pretty.json": b'{\n  "a": 1,\n  "b": {"c": [1, 2]}\n}\n{\n  "a": 2\n}\n',
        "marked.json": b'\xef\xbb\xbf{"a":1}\n{"a":2}\n',
        "utf16.json": "\ufeff".encode("utf-16-le") + '{"a":1}\n'.encode("utf-16-le"),
        "null_in_list.json": b'{"l":[{"c":1}]}\n{"l":[null]}\n',
        "only_null_in_list.json": b'{"l":[null]}\n{"l":[null,null]}\n',
        "open_array.json": b'[{"a":1},\n{"a":2}\n',
        "behind_array.json": b'[{"a":1}]\n{"a":2}\n',
    }
    for name, content in bytes_of.items():
        (path / name).write_bytes(content)


def damaged():
    """Lengths and places that are not within their file, a type within itself, and what else is none of its kind."""
    path = folder("damaged")
    (path / "length.parquet").write_bytes(b"PAR1\xff\xff\xff\x7fPAR1")
    (path / "only_marks.parquet").write_bytes(b"PAR1PAR1")
    (path / "short.arrow").write_bytes(b"xxxx")
    for end in ("parquet", "arrow", "avro", "orc", "json"):
        (path / f"empty.{end}").write_bytes(b"")
    schema = b'{"type":"record","name":"n","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","n"]}]}'
    number = lambda n: bytes([n << 1]) if n < 64 else bytes([(n << 1) & 0x7F | 0x80, n >> 6])
    text = lambda value: number(len(value)) + value
    header = b"Obj\x01" + number(1) + text(b"avro.schema") + text(schema) + number(0)
    (path / "recursive.avro").write_bytes(header + b"0123456789abcdef")
    table = pa.table({"i": pa.array([1, None, 3], pa.int64()), "s": ["a", "b", None]})
    for name, new in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
        sink = pa.BufferOutputStream()
        with new(sink, table.schema) as writer:
            writer.write_table(table)
        whole = bytearray(sink.getvalue().to_pybytes())
        (folder("arrow") / f"narrow_{name}.arrow").write_bytes(whole)
        # The lengths of the buffers of the rows, of which one is 24 bytes.
        at = whole.index(struct.pack("<q", 24), whole.index(b"s\0\0\0"))
        whole[at : at + 8] = struct.pack("<q", 1 << 38)
        (path / f"buffer_{name}.arrow").write_bytes(whole)


if __name__ == "__main__":
    json_layouts()
    damaged()
    odd_parquet()
    archives()
    hidden()
    quoted()
    avro_blocks()
    odd_avro()
    odd_orc()
    avro()
    arrow()
    parquet()
