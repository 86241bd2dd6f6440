//! Interoperability with DuckDB (DuckLake) on one warehouse: each reads and extends what the other wrote.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::Cell;
use harrier_catalog::state::{DefaultValue, PartitionKey, SortKey, Transform};
use harrier_catalog::types::ColumnType::{self, *};
use harrier_catalog::{Error, Transaction};

/// Runs a test with both databases, if DuckDB is installed.
fn with_duckdb<F: Future<Output = ()>>(test: impl Fn(Kind) -> F) {
    if harrier_servers::installation("duckdb.sh").is_some() {
        on_both(test);
    }
}

/// Runs a script with the warehouse attached.
fn duck(lake: &Lake, script: &str) -> String {
    duckdb(&lake.url, &format!("attach()\n{script}"))
}

#[test]
fn duckdb_writes_into_a_new_warehouse() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        assert_eq!(
            duck(&lake, "show('SELECT snapshot_id, changes FROM l.snapshots()')"),
            "0|{'schemas_created': ['main']}"
        );
        duck(
            &lake,
            "run('CREATE TABLE t (a INT)'); run('INSERT INTO t VALUES (1), (2)'); run('INSERT INTO t SELECT range FROM range(100)')",
        );
        let head = lake.catalog.head().await.unwrap();
        let table = head.table(0, "t").unwrap();
        let rows = lake.catalog.data(table, head.snapshot).await.unwrap();
        assert_eq!((rows.files[0].rows, rows.inlined[0].rows.len()), (100, 2));
    });
}

#[test]
fn duckdb_reads_definitions() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let mut transaction = begin(&lake.catalog).await;
        let s = create_schema(&mut transaction, "my \"schema\"");
        let mut columns = vec![
            column(1, "id", Int32),
            column(2, "with default", Varchar),
            column(3, "expr", Int64),
            column(4, "nested", Struct),
            column(9, "d", Decimal { precision: 12, scale: 3 }),
            column(10, "null text", Varchar),
        ];
        columns[0].nullable = false;
        columns[0].comment = Some("the key".into());
        columns[1].default = Some(DefaultValue::Literal("it's".into()));
        columns[2].default = Some(DefaultValue::Expression { sql: "1 + 1".into(), dialect: "duckdb".into() });
        columns[3].children = vec![column(5, "l", List), column(7, "x", Uuid), column(8, "y", Date)];
        columns[3].children[0].children = vec![column(6, "element", Float64)];
        columns[5].default = Some(DefaultValue::Literal("NULL".into()));
        let t = create_table(&mut transaction, s, "it's a table", columns);
        alter(&mut transaction, t, |table| {
            table.comment = Some("about 'it'".into());
            table.partition = vec![PartitionKey { column: 1, transform: Transform::Bucket(4) }];
            table.sort = vec![SortKey {
                expression: "id".into(),
                dialect: "duckdb".into(),
                descending: true,
                nulls_first: false,
            }];
        });
        let v = transaction.allocate_object();
        let mut a_view = view(v, s, "v", "SELECT id FROM \"my \"\"schema\"\"\".\"it's a table\"");
        a_view.comment = Some("a view".into());
        transaction.state_mut().views.insert(v, Arc::new(a_view));
        commit(&lake.catalog, &transaction).await.unwrap();
        let output = duck(
            &lake,
            r#"
run('INSERT INTO "my ""schema"""."it\'s a table" (id) VALUES (1), (2)')
show('SELECT schema_name FROM duckdb_schemas() WHERE database_name = \'l\' ORDER BY 1')
show("SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'l'")
show("SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE database_name = 'l' AND table_name LIKE 'it%' ORDER BY column_index")
show("SELECT view_name, comment FROM duckdb_views() WHERE database_name = 'l'")
show('SELECT * FROM "my ""schema""".v ORDER BY 1')
show('SELECT "with default", expr, nested, "null text" FROM "my ""schema"""."it\'s a table"')
"#,
        );
        assert_eq!(
            output,
            "main\nmy \"schema\"\nit's a table|about 'it'\n\
             id|INTEGER|False|the key\nwith default|VARCHAR|True|None\nexpr|BIGINT|True|None\n\
             nested|STRUCT(l DOUBLE[], x UUID, y DATE)|True|None\nd|DECIMAL(12,3)|True|None\nnull text|VARCHAR|True|None\n\
             v|a view\n1\n2\nit's|2|None|NULL\nit's|2|None|NULL"
        );
    });
}

/// Cells of every type, and DuckDB's text of them.
fn cells_of_every_type() -> Vec<(ColumnType, Cell, &'static str)> {
    let text = |text: &str| Cell::Text(text.to_string());
    vec![
        (Boolean, Cell::Integer(1), "true"),
        (Int8, Cell::Integer(-128), "-128"),
        (Int16, Cell::Integer(32767), "32767"),
        (Int32, Cell::Integer(-5), "-5"),
        (Int64, Cell::Integer(i64::MIN), "-9223372036854775808"),
        (
            Int128,
            text("-170141183460469231731687303715884105728"),
            "-170141183460469231731687303715884105728",
        ),
        (UInt8, Cell::Integer(255), "255"),
        (UInt16, Cell::Integer(65535), "65535"),
        (UInt32, Cell::Integer(4294967295), "4294967295"),
        (UInt64, text("18446744073709551615"), "18446744073709551615"),
        (UInt128, text("340282366920938463463374607431768211455"), "340282366920938463463374607431768211455"),
        (Float32, text("1.5"), "1.5"),
        (Float64, text("nan"), "nan"),
        (Float64, text("-inf"), "-inf"),
        (Decimal { precision: 10, scale: 2 }, text("-0.05"), "-0.05"),
        (Time, text("10:00:00.123456"), "10:00:00.123456"),
        (Date, text("2024-01-15"), "2024-01-15"),
        (Timestamp, text("2024-01-15 12:30:00.123456"), "2024-01-15 12:30:00.123456"),
        (TimestampTz, text("2024-01-15 12:30:00.5+00"), "2024-01-15 12:30:00.5+00"),
        (TimestampS, text("2024-01-15 12:30:00"), "2024-01-15 12:30:00"),
        (TimestampMs, text("2024-01-15 12:30:00.123"), "2024-01-15 12:30:00.123"),
        (TimestampNs, text("2024-01-15 12:30:00.123456789"), "2024-01-15 12:30:00.123456789"),
        (Interval, text("1 year 2 months 3 days 04:05:06"), "1 year 2 months 3 days 04:05:06"),
        (Varchar, text("it's \"quoted\" \\x00 é"), "it's \"quoted\" \\x00 é"),
        (Blob, Cell::Blob(vec![0, 255, 39, 92]), "\\x00\\xFF\\x27\\x5C"),
        (Json, text("{\"a\": [1, null]}"), "{\"a\": [1, null]}"),
        (Uuid, text("2df15a9a-ddb7-4d6a-b522-75fffa01c7f4"), "2df15a9a-ddb7-4d6a-b522-75fffa01c7f4"),
        (Struct, text("{'x': 1, 'y': 2}"), "{'x': 1, 'y': 2}"),
        (List, text("[1, 2]"), "[1, 2]"),
        (Map, text("{1=2}"), "{1=2}"),
    ]
}

fn columns_for(cells_of_every_type: &[(ColumnType, Cell, &str)]) -> Vec<harrier_catalog::state::Column> {
    let columns = cells_of_every_type.iter().zip(0..).map(|((kind, ..), place)| {
        let mut nested = column(10 * place + 1, &format!("c{place}"), *kind);
        let child = |offset, name: &str| column(10 * place + offset, name, Int32);
        nested.children = match kind {
            Struct => vec![child(2, "x"), child(3, "y")],
            List => vec![child(2, "element")],
            Map => vec![child(2, "key"), child(3, "value")],
            _ => vec![],
        };
        nested
    });
    columns.collect()
}

#[test]
fn duckdb_reads_inlined_rows_of_every_type() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let cells_of_every_type = cells_of_every_type();
        change(&lake.catalog, |transaction| {
            let id = create_table(transaction, 0, "t", columns_for(&cells_of_every_type));
            let rows = &mut transaction.changes_of(id).inlined;
            rows.push(cells_of_every_type.iter().map(|(_, cell, _)| cell.clone()).collect());
            rows.push(vec![Cell::Null; cells_of_every_type.len()]);
        })
        .await;
        let output = duck(
            &lake,
            "for row in con.execute('SELECT COLUMNS(*)::VARCHAR FROM t').fetchall():\n    for value in row: print(value)",
        );
        let values: Vec<&str> = output.lines().collect();
        assert_eq!(values.len(), 2 * cells_of_every_type.len());
        for (place, (kind, _, expected)) in cells_of_every_type.iter().enumerate() {
            assert_eq!(values[place], *expected, "{kind}");
            assert_eq!(values[cells_of_every_type.len() + place], "None", "{kind}");
        }
    });
}

#[test]
fn inlined_rows_of_every_type_by_duckdb_are_loaded() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let cells_of_every_type = cells_of_every_type();
        change(&lake.catalog, |transaction| {
            create_table(transaction, 0, "t", columns_for(&cells_of_every_type));
            create_table(transaction, 0, "copy", columns_for(&cells_of_every_type));
            let id = -1;
            transaction
                .changes_of(id)
                .inlined
                .push(cells_of_every_type.iter().map(|(_, cell, _)| cell.clone()).collect());
        })
        .await;
        // DuckDB copies the cells from one table into the other without a difference.
        duck(&lake, "run('INSERT INTO copy SELECT * FROM t')");
        let head = lake.catalog.head().await.unwrap();
        let rows = lake.catalog.data(head.table(0, "copy").unwrap(), head.snapshot).await.unwrap();
        for ((kind, cell, _), stored) in cells_of_every_type.iter().zip(&rows.inlined[0].rows[0]) {
            assert_eq!(stored, cell, "{kind}");
        }
    });
}

/// Writes a file with DuckDB, so that the paths exist.
fn parquet(lake: &Lake, folder: &str, name: &str, query: &str) {
    let folder = lake.folder.path().join("data").join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    duckdb(
        &lake.url,
        &format!("run(\"COPY ({query}) TO '{}' (FORMAT parquet, FIELD_IDS {{a: 1}})\")", path.display()),
    );
}

/// Bytes of a Parquet file and of its footer.
fn sizes(lake: &Lake, path: &str) -> (i64, i64) {
    let bytes = std::fs::read(lake.folder.path().join("data").join(path)).unwrap();
    let footer = bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap();
    (bytes.len() as i64, i64::from(u32::from_le_bytes(footer)))
}

#[test]
fn duckdb_reads_and_deletes_from_files_and_inlined_rows() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        parquet(&lake, "main/t", "1.parquet", "SELECT range::BIGINT AS a FROM range(100)");
        change(catalog, |transaction| {
            let mut new_file = file("1.parquet", 0, 100);
            (new_file.bytes, new_file.footer_bytes) = sizes(&lake, "main/t/1.parquet");
            transaction.changes_of(id).added.push(new_file);
            insert_inlined_rows(transaction, id, &[1000, 1001]);
        })
        .await;
        let file = data(catalog, id).await.files[0].id;
        change(catalog, |transaction| {
            transaction.changes_of(id).deleted.insert(file, inline_delete(&[0, 1, 2]));
            transaction.changes_of(id).deleted_inlined.insert((1, 100));
        })
        .await;
        let output = duck(
            &lake,
            "show('SELECT count(*), min(a), max(a) FROM t')\n\
             show('SELECT count(*), min(a), max(a) FROM t AT (VERSION => 2)')\n\
             run('DELETE FROM t WHERE a = 3 OR a = 1001')\n\
             show('SELECT count(*), min(a), max(a) FROM t')\n\
             run('DELETE FROM t WHERE a BETWEEN 40 AND 80')\n\
             show('SELECT count(*) FROM t')\n\
             run('UPDATE t SET a = 7000 WHERE a = 90')\n\
             show('SELECT count(*), max(a) FROM t WHERE a > 85')",
        );
        assert_eq!(output, "98|3|1001\n102|0|1001\n96|4|99\n55\n14|7000");
        let now = data(catalog, id).await;
        assert_eq!(now.files[0].deleted_inline, [0, 1, 2, 3, 90]);
        assert_eq!(
            now.files[0].deletes.as_ref().unwrap().rows,
            41 + if now.files[0].deletes.as_ref().unwrap().rows > 41 { 4 } else { 0 }
        );
        assert_eq!(now.inlined.len(), 1);
        assert_eq!(now.inlined[0].rows, [[Cell::Integer(7000)]]);
    });
}

#[test]
fn duckdb_inserts_after_schema_changes() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| insert_inlined_rows(transaction, id, &[1])).await;
        change(catalog, |transaction| {
            alter(transaction, id, |table| {
                table.name = "renamed".into();
                table.columns[0].name = "aa".into();
                let mut added = column(2, "b", Int32);
                added.initial_default = Some("7".into());
                added.default = Some(DefaultValue::Literal("8".into()));
                table.columns.push(added);
                table.next_column = 3;
            });
        })
        .await;
        let output = duck(
            &lake,
            "run('INSERT INTO renamed (aa) VALUES (2)')\n\
             show('SELECT aa, b FROM renamed ORDER BY 1')\n\
             show('SELECT a FROM t AT (VERSION => 2)')\n\
             run('ALTER TABLE renamed DROP COLUMN b')\n\
             run('ALTER TABLE renamed ADD COLUMN c VARCHAR')\n\
             run(\"INSERT INTO renamed VALUES (3, 'x')\")\n\
             run('ALTER TABLE renamed RENAME TO again')",
        );
        assert_eq!(output, "1|7\n2|8\n1");
        let head = catalog.head().await.unwrap();
        let table = head.table(0, "again").unwrap();
        assert_eq!(
            table.columns.iter().map(|column| (column.id, column.name.as_str())).collect::<Vec<_>>(),
            [(1, "aa"), (3, "c")]
        );
        assert_eq!(table.next_column, 4);
        let rows = data(catalog, id).await.inlined;
        let columns: Vec<Vec<&str>> =
            rows.iter().map(|rows| rows.columns.iter().map(|(_, name)| name.as_str()).collect()).collect();
        assert_eq!(columns, [vec!["a"], vec!["aa", "b"], vec!["aa", "c"]]);
        // And back again.
        change(catalog, |transaction| {
            transaction.changes_of(id).inlined.push(vec![Cell::Integer(4), Cell::Text("y".into())]);
        })
        .await;
        assert_eq!(duck(&lake, "show('SELECT * FROM again ORDER BY 1')"), "1|None\n2|None\n3|x\n4|y");
    });
}

#[test]
fn all_kinds_of_duckdb_changes_are_loaded() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        duck(
            &lake,
            r#"
run("""CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR DEFAULT 'x', c DECIMAL(10,2), h STRUCT(x INT, y VARCHAR), i INT[], j MAP(VARCHAR,INT), k BLOB, e INT DEFAULT (1 + 1))""")
run("INSERT INTO t (a, c, h, i, j, k) VALUES (1, 1.5, {'x':1,'y':'a'}, [1,2], MAP{'a':1}, '\\xAA\\x00'::BLOB)")
run("CREATE TABLE big AS SELECT range::INT a, 'v'||range b FROM range(1000)")
run("DELETE FROM big WHERE a < 3")
run("DELETE FROM big WHERE a BETWEEN 500 AND 700")
run("UPDATE big SET b='upd' WHERE a=20")
run("DELETE FROM t WHERE a = 1")
run("INSERT INTO t (a) VALUES (7),(8)")
run("ALTER TABLE big ADD COLUMN c INTEGER DEFAULT 5")
run("INSERT INTO big VALUES (2000,'n',6)")
run("ALTER TABLE big RENAME a TO aa")
run("CREATE TABLE p (a INT, k VARCHAR, ts TIMESTAMP)")
run("ALTER TABLE p SET PARTITIONED BY (k, year(ts), bucket(4,a))")
run("ALTER TABLE p SET SORTED BY (a DESC NULLS LAST)")
run("INSERT INTO p SELECT range, case when range%2=0 then 'ev en/' else NULL end, TIMESTAMP '2020-01-01' + INTERVAL (range) DAY FROM range(800)")
run("CREATE VIEW vv AS SELECT a, k FROM p")
run("COMMENT ON TABLE p IS 'hello'")
run("COMMENT ON COLUMN p.a IS 'col'")
run("COMMENT ON VIEW vv IS 'view'")
run("CREATE SCHEMA s2")
run("CREATE TABLE s2.z (a INT)")
run("BEGIN"); run("INSERT INTO s2.z SELECT range FROM range(100)"); run("DELETE FROM s2.z WHERE a<10"); run("COMMIT")
run("DROP TABLE s2.z")
run("CALL l.set_option('parquet_compression','zstd', table_name => 'big')")
run("CREATE MACRO m(x) AS x + 1")
run("CREATE TABLE w (a VARIANT)")
"#,
        );
        let catalog = &lake.catalog;
        let head = catalog.head().await.unwrap();
        assert_eq!(names(&head), ["main.big", "main.p", "main.t"]);
        assert!(head.unusable(0, "w").unwrap().contains("variant"), "{:?}", head.unusable);
        let t = head.table(0, "t").unwrap();
        assert!(!t.columns[0].nullable);
        assert_eq!(t.columns[1].default, Some(DefaultValue::Literal("x".into())));
        assert_eq!(
            t.columns[3].children.iter().map(|child| child.kind).collect::<Vec<_>>(),
            [Int32, Varchar]
        );
        assert_eq!((t.columns[4].kind, t.columns[4].children[0].name.as_str()), (List, "element"));
        assert_eq!(
            t.columns[7].default,
            Some(DefaultValue::Expression { sql: "(1 + 1)".into(), dialect: "duckdb".into() })
        );
        let rows = catalog.data(t, head.snapshot).await.unwrap();
        assert_eq!(rows.inlined[0].row_ids, [1, 2]);
        assert_eq!(rows.inlined[0].rows[0][1], Cell::Text("x".into()));

        let big = head.table(0, "big").unwrap();
        assert_eq!(big.options["parquet_compression"], "zstd");
        assert_eq!(big.columns[2].initial_default.as_deref(), Some("5"));
        let rows = catalog.data(big, head.snapshot).await.unwrap();
        assert_eq!(rows.files[0].rows, 1000);
        assert!(rows.files[0].deletes.is_some());
        assert!(rows.files[0].deleted_inline.starts_with(&[0, 1, 2]));
        assert_eq!(rows.inlined.iter().map(|rows| rows.rows.len()).sum::<usize>(), 2);
        let stats = catalog.table_stats(big.id).await.unwrap().unwrap();
        assert_eq!(
            (stats.columns[&1].min.as_deref(), stats.columns[&1].max.as_deref()),
            (Some("0"), Some("2000"))
        );
        let file = rows.files[0].id;
        let stats = catalog.column_stats(big.id, &[1], file, file).await.unwrap();
        assert_eq!(stats[&1].get(file).unwrap().values, Some(1000));

        let p = head.table(0, "p").unwrap();
        let key = |column, transform| PartitionKey { column, transform };
        assert_eq!(
            p.partition,
            [key(2, Transform::Identity), key(3, Transform::Year), key(1, Transform::Bucket(4))]
        );
        assert!(p.sort[0].descending && !p.sort[0].nulls_first);
        assert_eq!((p.comment.as_deref(), p.columns[0].comment.as_deref()), (Some("hello"), Some("col")));
        let rows = catalog.data(p, head.snapshot).await.unwrap();
        assert_eq!(rows.files.iter().map(|file| file.rows).sum::<i64>(), 800);
        for file in rows.files.iter() {
            assert_eq!((file.partition_id, file.partition_values.len()), (p.partition_id, 3));
        }
        assert!(rows.files.iter().any(|file| file.partition_values[0].as_deref() == Some("ev en/")));
        assert!(rows.files.iter().any(|file| file.partition_values[0].is_none()));
        assert_eq!(head.view(0, "vv").unwrap().comment.as_deref(), Some("view"));
        assert!(head.schema("s2").is_some());

        // Every snapshot can still be read, and the table with the unknown type can be dropped.
        for snapshot in catalog.snapshots().await.unwrap() {
            let state = catalog.at(snapshot.snapshot).await.unwrap();
            for table in state.tables.values() {
                catalog.data(table, state.snapshot).await.unwrap();
            }
        }
        change(catalog, |transaction| transaction.state_mut().unusable.clear()).await;
        assert_eq!(
            duck(
                &lake,
                "show(\"SELECT table_name FROM duckdb_tables() WHERE database_name = 'l' ORDER BY 1\")"
            ),
            "big\np\nt"
        );
    });
}

#[test]
fn concurrent_transactions_of_duckdb_and_harrier_conflict() {
    with_duckdb(async |kind| {
        // DuckDB begins, Harrier commits, DuckDB commits: it must report a conflict where there is one, and
        // only there.
        for (theirs, ours, conflicts) in [
            ("INSERT INTO t VALUES (5)", "insert", false),
            ("INSERT INTO t VALUES (5)", "option", false),
            ("DELETE FROM t WHERE a = 5", "compact", true),
            ("DELETE FROM t WHERE a BETWEEN 5 AND 50", "compact", true),
            ("DELETE FROM t WHERE a BETWEEN 5 AND 50", "truncate", true),
            ("CREATE TABLE n (a INT)", "create", true),
            ("CREATE TABLE n (a INT)", "rename", true),
            ("INSERT INTO t VALUES (5)", "alter", true),
            ("DROP TABLE t", "insert", false),
        ] {
            // In SQLite the read lock of DuckDB's transaction blocks Harrier's commit.
            if kind == Kind::Sqlite {
                continue;
            }
            let lake = lake(kind).await;
            let catalog = lake.catalog.clone();
            duck(
                &lake,
                "run('CREATE TABLE t (a BIGINT)'); run('INSERT INTO t SELECT range FROM range(100)')",
            );
            let id = catalog.head().await.unwrap().table(0, "t").unwrap().id;
            let signal = lake.folder.path().join("go");
            let (url, path) = (lake.url.clone(), signal.clone());
            let other = std::thread::spawn(move || {
                duckdb(
                    &url,
                    &format!(
                        r#"
import time
attach()
run("BEGIN")
run("SET ducklake_max_retry_count = 10")
run("{theirs}")
open("{path}.ready", "w").close()
while not os.path.exists("{path}"): time.sleep(0.01)
try:
    run("COMMIT")
    print("committed")
except Exception as error:
    print("failed", error)
"#,
                        path = path.display()
                    ),
                )
            });
            while !signal.with_extension("ready").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                assert!(!other.is_finished(), "{}", other.join().unwrap());
            }
            let before = data(&catalog, id).await.files[0].id;
            change(&catalog, |own| harrier_change(ours, own, id, before)).await;
            std::fs::write(&signal, "").unwrap();
            let outcome = tokio::task::spawn_blocking(move || other.join().unwrap()).await.unwrap();
            assert_eq!(outcome.starts_with("failed"), conflicts, "{theirs} against {ours}: {outcome}");
            catalog.head().await.unwrap();
        }
    });
}

fn harrier_change(what: &str, own: &mut Transaction, id: i64, file_id: i64) {
    match what {
        "insert" => insert_inlined_rows(own, id, &[1]),
        "option" => {
            own.state_mut().options.insert("target_file_size".into(), "1MB".into());
        }
        "compact" => {
            let changes = own.changes_of(id);
            changes.removed.insert(file_id);
            changes.added.push(file("compacted.parquet", 0, 100));
            changes.compacts = true;
        }
        "truncate" => {
            let changes = own.changes_of(id);
            changes.removed.insert(file_id);
            (changes.removed_inlined, changes.replaces) = (true, true);
        }
        "create" => {
            create_table(own, 0, "n", integers("a"));
        }
        "rename" => alter(own, id, |table| table.name = "n".into()),
        "alter" => alter(own, id, |table| {
            table.columns.push(column(2, "b", Int32));
            table.next_column = 3;
        }),
        other => panic!("{other}"),
    }
}

#[test]
fn harrier_conflicts_with_duckdb_commits() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        duck(
            &lake,
            "run('CREATE TABLE t (a BIGINT)'); run('INSERT INTO t SELECT range FROM range(100)'); \
             run('INSERT INTO t SELECT range FROM range(100)')",
        );
        let id = catalog.head().await.unwrap().table(0, "t").unwrap().id;
        for (theirs, conflicts) in [
            ("INSERT INTO t VALUES (1)", false),
            ("DELETE FROM t WHERE a = 99", true),
            ("DELETE FROM t WHERE a BETWEEN 10 AND 40", true),
            ("COMMENT ON TABLE t IS 'x'", true),
            ("CREATE TABLE other (a INT)", false),
            ("CALL ducklake_rewrite_data_files('l', 't', delete_threshold => 0.01)", true),
            ("CALL ducklake_flush_inlined_data('l')", false),
            ("TRUNCATE t", true),
        ] {
            let mut own = begin(catalog).await;
            let Some(first) = data(catalog, id).await.files.first().map(|file| file.id) else { break };
            own.changes_of(id).deleted.insert(first, inline_delete(&[5]));
            duck(&lake, &format!("run(\"{theirs}\")"));
            let newer = catalog.head().await.unwrap();
            assert!(newer.snapshot > own.base.snapshot, "{theirs} did nothing");
            let outcome = commit(catalog, &own).await;
            match conflicts {
                true => assert!(matches!(outcome, Err(Error::Conflict(_))), "{theirs}: {outcome:?}"),
                false => drop(outcome.unwrap()),
            }
        }
    });
}

#[test]
fn duckdb_and_harrier_insert_concurrently() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        let catalog = lake.catalog.clone();
        let id = create_table_committed(&catalog, "t").await;
        let others: Vec<_> = (0..2)
            .map(|_| {
                let url = lake.url.clone();
                std::thread::spawn(move || {
                    let script = r#"
attach()
run("SET ducklake_max_retry_count = 100")
for number in range(15):
    while True:
        try:
            run("INSERT INTO t VALUES (%d)" % number)
            break
        except Exception as error:
            # DuckDB does not wait for SQLite's lock in every place, and may be the victim of a deadlock.
            if "locked" not in str(error) and "deadlock" not in str(error): raise
"#;
                    duckdb(&url, script)
                })
            })
            .collect();
        let mut own = 0;
        while own < 30 {
            change(&catalog, |transaction| insert_inlined_rows(transaction, id, &[1000 + own])).await;
            own += 1;
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
        for other in others {
            other.join().unwrap();
        }
        let rows = data(&catalog, id).await;
        let mut ids: Vec<i64> = rows.inlined.iter().flat_map(|rows| rows.row_ids.iter().copied()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..own + 30).collect::<Vec<_>>());
    });
}

#[test]
fn inlined_rows_of_an_unused_schema_version_are_loaded() {
    with_duckdb(async |kind| {
        let lake = lake(kind).await;
        // Without inlining DuckDB creates no table for inlined rows; when it needs one later, it increments
        // the schema version for it.
        duck(
            &lake,
            "run(\"CALL l.set_option('data_inlining_row_limit', 0)\")\nrun('CREATE TABLE t (a BIGINT)')\n\
             run('CREATE TABLE u (a BIGINT)')\nrun(\"CALL l.set_option('data_inlining_row_limit', 10)\")\n\
             run('INSERT INTO t VALUES (1)')",
        );
        let catalog = &lake.catalog;
        let id = catalog.head().await.unwrap().table(0, "t").unwrap().id;
        assert_eq!(data(catalog, id).await.inlined[0].rows, [[Cell::Integer(1)]]);
        change(catalog, |transaction| insert_inlined_rows(transaction, id, &[2])).await;
        duck(&lake, "run('INSERT INTO t VALUES (3)')");
        assert_eq!(duck(&lake, "show('SELECT a FROM t ORDER BY a')"), "1\n2\n3");
        let rows = data(catalog, id).await.inlined;
        assert_eq!(rows.iter().map(|rows| rows.rows.len()).sum::<usize>(), 3);
        change(catalog, |transaction| {
            alter(transaction, id, |table| {
                table.columns.push(column(2, "b", Int64));
                table.next_column = 3;
            })
        })
        .await;
        duck(&lake, "run('INSERT INTO t VALUES (4, 5)')");
        assert_eq!(duck(&lake, "show('SELECT a, b FROM t ORDER BY a')"), "1|None\n2|None\n3|None\n4|5");
        assert_eq!(data(catalog, id).await.inlined.iter().map(|rows| rows.rows.len()).sum::<usize>(), 4);
    });
}
