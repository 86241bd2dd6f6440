//! Layout of written files: number of files for small inserts, and order, codec, row groups and sizes
//! declared by a table. The files are read with the format libraries, without the engine.

use std::cmp::Ordering;
use std::fs::File;
use std::process::Command;

use harrier_testkit::session::Session;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::command::Folder;
use crate::external_table_listings::duckdb;
use crate::support::{Warehouse, assert_undamaged, column, count, fails, one, run};

/// Paths of a table's data files.
fn paths(session: &mut Session, table: &str) -> Vec<String> {
    column(session, &format!("SELECT path FROM sys.data_files WHERE table_name = '{table}' ORDER BY path"))
}

fn reader(path: &str) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn footer(path: &str) -> ParquetMetaData {
    reader(path).metadata().clone()
}

/// Number of files in the catalog.
fn files_of(session: &mut Session, table: &str) -> u64 {
    one(session, &format!("SELECT files FROM sys.tables WHERE table_name = '{table}'")).parse().unwrap()
}

/// Single-row inserts of several processes are inlined in the catalog until OPTIMIZE flushes them into a
/// file.
#[test]
fn single_row_inserts_are_inlined() {
    const SESSIONS: usize = 4;
    const ROWS_EACH: usize = 250;
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE t (who INT, n INT, text TEXT)");
    std::thread::scope(|scope| {
        for who in 0..SESSIONS {
            let warehouse = &warehouse;
            scope.spawn(move || {
                let mut session = warehouse.session();
                for n in 0..ROWS_EACH {
                    run(&mut session, &format!("INSERT INTO t VALUES ({who}, {n}, 'row {n}')"));
                }
            });
        }
    });
    let rows = "SELECT count(*) || ' ' || count(DISTINCT who * 1000 + n) || ' ' || sum(n) FROM t";
    let right = format!("1000 1000 {}", SESSIONS * (0..ROWS_EACH).sum::<usize>());
    assert_eq!(one(&mut session, rows), right);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t WHERE text <> 'row ' || n"), "0");
    assert_eq!(warehouse.files(), 0, "no row is in a file");
    assert_eq!(files_of(&mut session, "t"), 0);
    assert_eq!(one(&mut session, "SELECT kept_rows FROM sys.tables WHERE table_name = 't'"), "1000");
    let before = one(&mut session, "SELECT max(snapshot_id) FROM sys.snapshots");
    assert_eq!(count(&mut session, "OPTIMIZE t"), 1000);
    assert_eq!(one(&mut session, rows), right);
    assert_eq!((warehouse.files(), files_of(&mut session, "t")), (1, 1));
    assert_eq!(one(&mut session, "SELECT kept_rows FROM sys.tables WHERE table_name = 't'"), "0");
    assert_eq!(one(&mut session, &format!("SELECT count(*) FROM t AS OF SNAPSHOT {before}")), "1000");
    assert_undamaged(&mut session, "t");
    // There is nothing more to do, and later rows make no file either.
    assert_eq!(count(&mut session, "OPTIMIZE t"), 0);
    run(&mut session, "INSERT INTO t VALUES (9, 9, 'row 9')");
    run(&mut session, "DELETE FROM t WHERE who = 0 AND n = 0");
    assert_eq!(warehouse.files(), 1);
    assert_eq!(one(&mut session, "SELECT count(*) FROM t"), "1000");
}

/// INSERTs of few rows that write files: of rows read from a table, of more rows than the table inlines, and
/// all into tables whose rows belong into certain files. OPTIMIZE leaves one file for each of these.
#[test]
fn small_inserts_that_cannot_be_inlined_write_files() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "CREATE TABLE source AS SELECT v AS a FROM generate_series(1, 100) AS g(v)");
    for (clauses, insert, files) in [
        ("", "VALUES (1)", 0),
        ("", "VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)", 0),
        ("", "VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)", 1),
        ("", "SELECT 1", 0),
        ("", "SELECT a FROM source WHERE a = 7", 1),
        ("WITH (inline_rows = 2)", "VALUES (1), (2)", 0),
        ("WITH (inline_rows = 2)", "VALUES (1), (2), (3)", 1),
        ("WITH (inline_rows = 0)", "VALUES (1)", 1),
        ("PARTITION BY (a)", "VALUES (1), (2)", 0),
        ("PARTITION BY (a)", "SELECT a FROM source WHERE a < 3", 2),
        ("PARTITION BY RANGE (a) (START (0) END (20) EVERY (10))", "VALUES (1), (2)", 1),
        ("DISTRIBUTED BY (a) WITH (buckets = 4)", "VALUES (1)", 1),
    ] {
        run(&mut session, &format!("CREATE OR REPLACE TABLE t (a INT) {clauses}"));
        let there = warehouse.files();
        for time in 1..=3 {
            run(&mut session, &format!("INSERT INTO t {insert}"));
            assert_eq!(warehouse.files(), there + time * files, "{clauses} {insert}");
        }
        let rows = one(&mut session, "SELECT count(*) || ' ' || sum(a) FROM t");
        run(&mut session, "OPTIMIZE t");
        let places = match clauses {
            "PARTITION BY (a)" => one(&mut session, "SELECT count(DISTINCT a) FROM t").parse().unwrap(),
            _ => 1,
        };
        assert_eq!(files_of(&mut session, "t"), places, "{clauses} {insert}");
        assert_eq!(one(&mut session, "SELECT count(*) || ' ' || sum(a) FROM t"), rows, "{clauses} {insert}");
    }
}

/// `k` and `v` of a row.
type Key = (Option<i32>, String);

/// Rows of a file in file order.
fn keys(path: &str) -> Vec<Key> {
    let reader = reader(path);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let mut key = (None, String::new());
        for (name, value) in row.unwrap().into_columns() {
            match (name.as_str(), value) {
                ("k", Field::Int(value)) => key.0 = Some(value),
                ("v", Field::Str(value)) => key.1 = value,
                _ => {}
            }
        }
        key
    })
    .collect()
}

fn down_nulls_last(a: &Key, b: &Key) -> Ordering {
    // In Rust, None is less than all values.
    b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1))
}

fn up(a: &Key, b: &Key) -> Ordering {
    (a.0.is_none(), a.0).cmp(&(b.0.is_none(), b.0))
}

fn down_nulls_first(a: &Key, b: &Key) -> Ordering {
    (b.0.is_none(), b.0).cmp(&(a.0.is_none(), a.0))
}

fn text_first(a: &Key, b: &Key) -> Ordering {
    a.1.cmp(&b.1).then_with(|| up(a, b))
}

#[test]
fn files_are_sorted_by_the_table_order() {
    let orders: [(&str, fn(&Key, &Key) -> Ordering); 4] = [
        ("k DESC NULLS LAST, v", down_nulls_last),
        ("k", up),
        ("k DESC", down_nulls_first),
        ("v, k ASC NULLS LAST", text_first),
    ];
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    for (clause, order) in orders {
        run(
            &mut session,
            &format!(
                "CREATE OR REPLACE TABLE t (k INT, v TEXT, p INT) PARTITION BY (p) ORDER BY ({clause}) \
                 WITH (inline_rows = 0)"
            ),
        );
        // Every file of every table partition is sorted, and together they have all rows.
        let check = |session: &mut Session, files: usize, rows: usize| {
            let paths = paths(session, "t");
            assert_eq!(paths.len(), files, "{clause}");
            let mut row_count = 0;
            for path in paths {
                let keys = keys(&path);
                for pair in keys.windows(2) {
                    assert_ne!(order(&pair[0], &pair[1]), Ordering::Greater, "{clause}: {path}: {pair:?}");
                }
                row_count += keys.len();
            }
            assert_eq!(row_count, rows, "{clause}");
        };
        // Unsorted input, several batches per table partition, with NULLs.
        let insert = |from: usize| {
            format!(
                "INSERT INTO t SELECT nullif(v * 7919 % 10007, 5), 'x' || (v * 31 % 1000), v % 3 \
                 FROM generate_series({from}, {}) AS g(v)",
                from + 29_999
            )
        };
        run(&mut session, &insert(1));
        check(&mut session, 3, 30_000);
        run(&mut session, &insert(30_001));
        check(&mut session, 6, 60_000);
        run(&mut session, "INSERT INTO t SELECT v % 5, 'y', 0 FROM generate_series(1, 100) AS g(v)");
        run(&mut session, "INSERT INTO t VALUES (3, 'z', 0), (NULL, 'z', 1), (1, 'a', 0), (2, 'b', 0)");
        check(&mut session, 9, 60_104);
        run(&mut session, "OPTIMIZE t");
        check(&mut session, 3, 60_104);
        // UPDATE writes sorted files as well.
        run(&mut session, "UPDATE t SET k = -k WHERE k % 2 = 1 AND p = 2");
        let deleted_rows = deleted_row_count(&mut session);
        assert!(deleted_rows > 0);
        check(&mut session, 4, 60_104 + deleted_rows);
    }
    // A new order applies to later files.
    run(&mut session, "CREATE TABLE u (k INT, v TEXT)");
    run(&mut session, "INSERT INTO u SELECT 20 - v, 'x' FROM generate_series(1, 20) AS g(v)");
    let first = paths(&mut session, "u");
    assert!(keys(&first[0]).is_sorted_by(|a, b| down_nulls_last(a, b) != Ordering::Greater));
    run(&mut session, "ALTER TABLE u SET SORTED BY (k)");
    run(&mut session, "INSERT INTO u SELECT 20 - v, 'x' FROM generate_series(1, 20) AS g(v)");
    for path in paths(&mut session, "u") {
        let expected = if first.contains(&path) { down_nulls_last } else { up };
        assert!(keys(&path).is_sorted_by(|a, b| expected(a, b) != Ordering::Greater), "{path}");
    }
}

/// Number of deleted rows in files of the table `t`.
fn deleted_row_count(session: &mut Session) -> usize {
    one(session, "SELECT sum(deleted_rows) FROM sys.data_files WHERE table_name = 't'").parse().unwrap()
}

#[test]
fn compression_of_data_files() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    let insert =
        "INSERT INTO t SELECT v, md5((v % 777)::text) || v % 7 FROM generate_series(1, 20000) AS g(v)";
    let codecs = |path: &str| -> Vec<String> {
        let footer = footer(path);
        let columns = footer.row_groups().iter().flat_map(|group| group.columns());
        columns.map(|column| format!("{:?}", column.compression_codec())).collect()
    };
    for (options, codec) in [
        ("", "ZSTD"),
        ("WITH (compression = none)", "UNCOMPRESSED"),
        ("WITH (compression = uncompressed)", "UNCOMPRESSED"),
        ("WITH (compression = snappy)", "SNAPPY"),
        ("WITH (compression = gzip)", "GZIP"),
        ("WITH (compression = zstd)", "ZSTD"),
        ("WITH (compression = brotli)", "BROTLI"),
        ("WITH (compression = lz4)", "LZ4_RAW"),
        ("WITH (compression = lz4_raw)", "LZ4_RAW"),
    ] {
        run(&mut session, &format!("CREATE OR REPLACE TABLE t (k INT, v TEXT) {options}"));
        // More rows than the first files, so that OPTIMIZE writes with the new codec.
        run(&mut session, insert);
        run(&mut session, "INSERT INTO t SELECT v, 'x' FROM generate_series(1, 20) AS g(v)");
        for path in paths(&mut session, "t") {
            assert_eq!(codecs(&path), [codec, codec], "{options}");
        }
        run(&mut session, "OPTIMIZE t");
        let paths = paths(&mut session, "t");
        assert_eq!(paths.len(), 1);
        assert_eq!(codecs(&paths[0]), [codec, codec], "{options}, compacted");
    }
    // A level is not recorded in a file; its size shows it.
    let mut bytes = |codec: &str, level: u32| -> u64 {
        let options = format!("WITH (compression = {codec}, compression_level = {level})");
        run(&mut session, &format!("CREATE OR REPLACE TABLE t (k INT, v TEXT) {options}"));
        run(&mut session, insert);
        paths(&mut session, "t").iter().map(|path| std::fs::metadata(path).unwrap().len()).sum()
    };
    for (codec, least, most) in [("gzip", 1, 9), ("zstd", 1, 19), ("brotli", 1, 11)] {
        let (large, small) = (bytes(codec, least), bytes(codec, most));
        assert!(small * 10 < large * 9, "{codec}: {large} bytes of level {least}, {small} of level {most}");
    }
    for wrong in ["compression = rar", "compression = 3", "compression_level = 0", "compression_level = high"]
    {
        fails(&mut session, &format!("CREATE TABLE no (k INT) WITH ({wrong})"), "22023");
    }
    // Later files use the new codec.
    run(&mut session, "CREATE OR REPLACE TABLE t (k INT, v TEXT) WITH (compression = snappy)");
    run(&mut session, "INSERT INTO t SELECT v, 'x' FROM generate_series(1, 20) AS g(v)");
    let first = paths(&mut session, "t");
    run(&mut session, "ALTER TABLE t SET (compression = gzip)");
    run(&mut session, "INSERT INTO t SELECT v, 'x' FROM generate_series(1, 20) AS g(v)");
    for path in paths(&mut session, "t") {
        let codec = if first.contains(&path) { "SNAPPY" } else { "GZIP" };
        assert_eq!(codecs(&path), [codec, codec]);
    }
}

/// The header of an Avro file names its codec as text.
#[test]
fn compression_of_avro_files() {
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    let folder = tempfile::tempdir().unwrap();
    for (option, codec) in [
        ("", "deflate"),
        (" OPTIONS ('format.compression' 'snappy')", "snappy"),
        (" OPTIONS (compression zstd)", "zstandard"),
    ] {
        let place = folder.path().join(codec);
        let create = format!(
            "CREATE EXTERNAL TABLE {codec} (a BIGINT) STORED AS AVRO LOCATION '{}'{option}",
            place.display()
        );
        run(&mut session, &create);
        run(&mut session, &format!("INSERT INTO {codec} VALUES (1), (2)"));
        let files = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "avro")).collect();
        assert_eq!(files.len(), 1, "{codec}: {files:?}");
        let bytes = std::fs::read(&files[0]).unwrap();
        assert!(bytes.windows(codec.len()).any(|part| part == codec.as_bytes()), "{codec}");
    }
}

#[test]
fn file_and_row_group_sizes() {
    const TARGET: u64 = 1 << 20;
    const ROWS: usize = 200_000;
    const GROUP: i64 = 7000;
    let warehouse = Warehouse::new();
    // One writer, because each writer has a smaller last file.
    let configuration = warehouse.configuration().with_arguments(["--threads", "1"]);
    let mut session = Session::start(&configuration).unwrap();
    let options = format!("compression = none, target_file_bytes = '1MiB', row_group_rows = {GROUP}");
    run(&mut session, &format!("CREATE TABLE t (k INT, v TEXT) WITH ({options})"));
    let check = |session: &mut Session| {
        let paths = paths(session, "t");
        let mut small = 0;
        let mut rows = 0;
        for path in &paths {
            let bytes = std::fs::metadata(path).unwrap().len();
            small += usize::from(bytes < TARGET);
            // A file is full after the batch that reaches its target size: 8192 rows of about 40 bytes.
            assert!(bytes < TARGET * 3 / 2, "{path} has {bytes} bytes");
            let footer = footer(path);
            let groups: Vec<i64> = footer.row_groups().iter().map(|group| group.num_rows()).collect();
            let (last, full) = groups.split_last().unwrap();
            assert!(full.iter().all(|rows| *rows == GROUP) && *last <= GROUP, "{path}: {groups:?}");
            rows += footer.file_metadata().num_rows();
        }
        assert!(small <= 1, "{small} of {} files are small", paths.len());
        assert_eq!(rows as usize, ROWS);
        paths.len()
    };
    let rows = |from: usize, to: usize| {
        format!("INSERT INTO t SELECT v, md5(v::text) FROM generate_series({from}, {to}) AS g(v)")
    };
    run(&mut session, &rows(1, ROWS));
    let files = check(&mut session);
    assert!((5..=9).contains(&files), "{files} files of about 8 MB");
    assert_undamaged(&mut session, "t");
    // The same when OPTIMIZE merges small files.
    run(&mut session, "TRUNCATE t");
    for part in 0..20 {
        run(&mut session, &rows(part * ROWS / 20 + 1, (part + 1) * ROWS / 20));
    }
    assert_eq!(paths(&mut session, "t").len(), 20);
    run(&mut session, "OPTIMIZE t");
    let files = check(&mut session);
    assert!((5..=9).contains(&files), "{files} files of about 8 MB");
    assert_undamaged(&mut session, "t");
    assert_eq!(one(&mut session, "SELECT count(DISTINCT k) FROM t"), ROWS.to_string());
    for wrong in ["target_file_bytes = '4kB'", "row_group_rows = 0", "row_group_rows = many"] {
        fails(&mut session, &format!("CREATE TABLE no (k INT) WITH ({wrong})"), "22023");
    }
}

/// A writer that finished before another writer of the statement failed has published no files.
#[test]
fn late_failure_leaves_no_file() {
    let early_and_late = "SELECT v, 'early' FROM generate_series(1, 2000) AS g(v) \
                          UNION ALL SELECT 1 / (1500000 - v), 'late' FROM generate_series(1, 1500000) AS g(v)";
    let twice = "MERGE INTO t USING (SELECT 1 + v % 2000 AS n FROM generate_series(1, 4000) AS g(v)) AS s ON t.n = s.n \
                 WHEN MATCHED THEN UPDATE SET text = 'twice'";
    let warehouse = Warehouse::new();
    let mut session = warehouse.session();
    run(&mut session, "SET datafusion.execution.target_partitions = 2");
    run(
        &mut session,
        "CREATE TABLE t AS SELECT v AS n, 'first' AS text FROM generate_series(1, 2000) AS g(v)",
    );
    run(&mut session, "CREATE TABLE p (n BIGINT, text TEXT) PARTITIONED BY (text)");
    let before = warehouse.files();
    for (sql, sqlstate) in [
        (format!("INSERT INTO t {early_and_late}"), "22012"),
        (format!("INSERT INTO p {early_and_late}"), "22012"),
        (format!("CREATE TABLE other AS {early_and_late}"), "22012"),
        (twice.to_string(), "21000"),
    ] {
        for explicit in [false, true] {
            if explicit {
                run(&mut session, "BEGIN");
            }
            fails(&mut session, &sql, sqlstate);
            if explicit {
                run(&mut session, "ROLLBACK");
            }
            warehouse.wait_for_files(before, &sql);
        }
    }
    // A rolled back savepoint removes its files too, though the transaction commits.
    run(&mut session, "BEGIN");
    run(&mut session, "INSERT INTO p VALUES (1, 'kept')");
    run(&mut session, "SAVEPOINT s");
    fails(&mut session, &format!("INSERT INTO t {early_and_late}"), "22012");
    run(&mut session, "ROLLBACK TO s");
    run(&mut session, "COMMIT");
    warehouse.wait_for_files(before, "a savepoint");
    assert_eq!(one(&mut session, "SELECT count(*) FROM p"), "1");
}

/// Counts rows by conditions on a column of each file, with and without its statistics.
const COUNTS: &str = r#"
import duckdb, sys
for place in sys.argv[1:]:
    rows = f"FROM read_parquet('{place}', hive_partitioning = false)"
    for condition in ["d > 1", "d >= 'NaN'", "d = 'NaN'", "d <= 1", "d < 1", "r > 1", "r = 'NaN'", "r <= 1", "s.x > 1"]:
        found = duckdb.sql(f"SELECT count(*) FROM (SELECT * {rows} WHERE {condition})").fetchone()[0]
        plain = condition.replace("d ", "d::text::double ", 1).replace("r ", "r::text::real ", 1)
        plain = plain.replace("s.x ", "s.x::text::double ")
        right = duckdb.sql(f"SELECT count(*) FROM (SELECT * {rows} WHERE {plain})").fetchone()[0]
        print(place, condition, found, right)
        assert found == right and (found > 0 or condition == "d < 1")
"#;

/// Column statistics of COPY do not hide NaN from other readers, which sort it above all numbers.
#[test]
fn parquet_statistics_do_not_hide_nan() {
    let folder = Folder::new();
    let rows = "SELECT v AS id, d, d::real AS r, named_struct('x', d) AS s \
                FROM (VALUES (1, 0.5::double precision), (2, 'NaN'), (3, 1)) AS t(v, d)";
    let copy = |target: &str, options: &str| {
        let run = folder.sql(&["-c", &format!("COPY ({rows}) TO '{target}' {options}")]);
        assert_eq!(run.status, Some(0), "{run:?}");
    };
    copy("one.parquet", "");
    copy("parts", "STORED AS PARQUET PARTITIONED BY (id)");
    copy("told.parquet", "OPTIONS ('format.statistics_enabled::d' 'chunk')");
    let has_bounds = |file: &str| {
        let footer = footer(folder.path().join(file).to_str().unwrap());
        let bounds = footer.row_group(0).columns().iter().map(|column| column.statistics().is_some());
        bounds.collect::<Vec<_>>()
    };
    assert_eq!(has_bounds("one.parquet"), [true, false, false, false]);
    assert_eq!(has_bounds("told.parquet"), [true, true, false, false]);
    let Some(python) = duckdb() else { return };
    let places = ["one.parquet", "parts/*/*.parquet"];
    let count_output =
        Command::new(python).args(["-c", COUNTS]).args(places).current_dir(folder.path()).output();
    let count_output = count_output.unwrap();
    let output_text = [count_output.stdout, count_output.stderr].concat();
    assert!(count_output.status.success(), "{}", String::from_utf8_lossy(&output_text));
}
