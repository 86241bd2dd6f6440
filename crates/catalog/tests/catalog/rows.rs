//! Data files, delete files and inlined rows: visible to every later snapshot and to no earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::{Cell, ColumnStats, InlinedRows, NewDeletes};
use harrier_catalog::state::{Location, PartitionKey, Transform};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{TableColumnStats, Transaction};

fn integer_rows(rows: &InlinedRows) -> Vec<(i64, i64)> {
    let value = |row: &Vec<Cell>| match row[0] {
        Cell::Integer(value) => value,
        ref other => panic!("{other:?}"),
    };
    rows.row_ids.iter().copied().zip(rows.rows.iter().map(value)).collect()
}

#[test]
fn files_are_added_deleted_from_and_removed() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| {
            let changes = transaction.changes_of(id);
            changes.added = vec![file("1.parquet", 0, 100), file("it's 2.parquet", 100, 50)];
            changes.added[1].path = Location { path: "/abs/it's 2.parquet".into(), relative: false };
        })
        .await;
        let at_2 = data(catalog, id).await;
        assert_eq!(at_2.files.len(), 2);
        let (first, second) = (&at_2.files[0], &at_2.files[1]);
        assert_eq!((first.begin, first.rows, first.bytes, first.footer_bytes), (2, 100, 900, Some(50)));
        assert_eq!((first.path.clone(), first.format.as_ref()), (Location::relative("1.parquet"), "parquet"));
        assert_eq!((second.path.path.as_str(), second.path.relative), ("/abs/it's 2.parquet", false));
        assert_eq!((first.partition_id, first.mapping, first.partial_max), (None, None, None));

        // Rows deleted in the catalog, then in a delete file that includes them, then in another delete file.
        let (first, second) = (first.id, second.id);
        let delete = async |deletes: NewDeletes| {
            change(catalog, |transaction| {
                transaction.changes_of(id).deleted.insert(first, deletes);
            })
            .await;
            data(catalog, id).await
        };
        let at_3 = delete(inline_delete(&[5, 3])).await;
        assert_eq!((&at_3.files[0].deleted_inline, &at_3.files[0].deletes), (&vec![3, 5], &None));
        let by_file = |name: &str, rows: i64, positions: &[i64]| NewDeletes::File {
            file: delete_file(name, rows),
            positions: positions.iter().copied().collect(),
        };
        let at_4 = delete(by_file("d1.parquet", 4, &[7, 8])).await;
        let deletes = at_4.files[0].deletes.clone().unwrap();
        assert_eq!((deletes.path, deletes.rows), (Location::relative("d1.parquet"), 4));
        let at_5 = delete(by_file("d2.parquet", 5, &[9])).await;
        assert_eq!(at_5.files[0].deletes.as_ref().unwrap().path, Location::relative("d2.parquet"));
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().record_count, 150);

        // A whole file is removed.
        change(catalog, |transaction| {
            transaction.changes_of(id).removed.insert(first);
        })
        .await;
        let at_6 = data(catalog, id).await;
        assert_eq!(at_6.files.iter().map(|file| file.id).collect::<Vec<_>>(), [second]);
        let stats = catalog.table_stats(id).await.unwrap().unwrap();
        assert_eq!((stats.record_count, stats.file_size_bytes, stats.next_row_id), (150, 500, 150));

        for (snapshot, expected) in [(2, at_2), (3, at_3), (4, at_4), (5, at_5), (6, at_6)] {
            let state = catalog.at(snapshot).await.unwrap();
            assert_eq!(*catalog.data(&state.tables[&id], snapshot).await.unwrap(), expected);
        }
        let words: Vec<String> =
            catalog.snapshots().await.unwrap().into_iter().skip(2).map(|one| one.changes).collect();
        let expected = [
            "inserted_into_table:1",
            "inlined_delete:1",
            "deleted_from_table:1",
            "deleted_from_table:1",
            "deleted_from_table:1",
        ];
        assert_eq!(words, expected);
    });
}

#[test]
fn partition_values_and_statistics_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let mut transaction = begin(catalog).await;
        let new = create_table(
            &mut transaction,
            0,
            "t",
            vec![column(1, "a", Int32), column(2, "b", Varchar), column(3, "c", Float64)],
        );
        alter(&mut transaction, new, |table| {
            let key = |column, transform| PartitionKey { column, transform };
            table.partition = vec![key(2, Transform::Identity), key(1, Transform::Bucket(4))];
        });
        let stats = |min: Option<&str>, max: Option<&str>, values, nulls, nan| ColumnStats {
            bytes: Some(7),
            values: Some(values),
            nulls: Some(nulls),
            min: min.map(str::to_string),
            max: max.map(str::to_string),
            nan,
        };
        let changes = transaction.changes_of(new);
        for (name, value, of_a, of_c) in [
            (
                "1",
                Some("it's"),
                stats(Some("9"), Some("10"), 5, 0, None),
                stats(Some("-1.5"), Some("inf"), 5, 0, Some(false)),
            ),
            (
                "2",
                None,
                stats(Some("-3"), Some("8"), 4, 1, None),
                stats(Some("2"), Some("3"), 5, 0, Some(true)),
            ),
            ("3", Some("x\0y"), stats(None, None, 0, 5, None), stats(None, None, 0, 5, None)),
        ] {
            let mut new_file = file(name, 0, 5);
            let value = value.map(|value| value.replace('\0', ""));
            new_file.partition_values = vec![value, Some("3".into())];
            let of_b = stats(Some("a\0b"), Some("z\0"), 5, 0, None);
            new_file.stats = BTreeMap::from([(1, of_a), (2, of_b), (3, of_c)]);
            changes.added.push(new_file);
        }
        let committed = commit(catalog, &transaction).await.unwrap();
        let id = committed.objects[&new];
        let head = catalog.head().await.unwrap();
        let files = data(catalog, id).await.files;
        for (file, value) in files.iter().zip([Some("it's"), None, Some("xy")]) {
            assert_eq!(file.partition_values, [value.map(str::to_string), Some("3".into())]);
            assert_eq!(file.partition_id, head.tables[&id].partition_id);
        }
        let per_file = catalog.column_stats(id, &[1, 2], files[1].id, files[1].id).await.unwrap();
        let of_file = |column: i64| per_file[&column].get(files[1].id).map(ColumnStats::from);
        assert_eq!(of_file(1), Some(stats(Some("-3"), Some("8"), 4, 1, None)));
        // Text with a character of code 0: its lower bound is the text before it, and it has no upper bound.
        assert_eq!(of_file(2), Some(stats(Some("a"), None, 5, 0, None)));
        let all = catalog.column_stats(id, &[1, 2, 3], 0, files[2].id).await.unwrap();
        assert_eq!(all.values().map(|column| column.len()).sum::<usize>(), 9);
        assert!(catalog.column_stats(id, &[], 0, files[2].id).await.unwrap().is_empty());

        let of_table = catalog.table_stats(id).await.unwrap().unwrap();
        let column_stats = |null, nan, min: Option<&str>, max: Option<&str>| TableColumnStats {
            contains_null: Some(null),
            contains_nan: nan,
            min: min.map(str::to_string),
            max: max.map(str::to_string),
        };
        assert_eq!(of_table.columns[&1], column_stats(true, None, Some("-3"), Some("10")));
        assert!(!of_table.columns.contains_key(&2), "a bound is not known");
        assert_eq!(of_table.columns[&3], column_stats(true, Some(true), Some("-1.5"), Some("inf")));
        assert_eq!((of_table.record_count, of_table.next_row_id), (15, 15));
    });
}

#[test]
fn table_bounds_widen_and_unknown_bounds_stay_unknown() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        assert_eq!(catalog.table_stats(id).await.unwrap(), None);
        change(catalog, |transaction| transaction.changes_of(id).added.push(file("1", 50, 10))).await;
        change(catalog, |transaction| transaction.changes_of(id).added.push(file("2", 5, 10))).await;
        change(catalog, |transaction| insert_inlined_rows(transaction, id, &[100, 7])).await;
        let stats = catalog.table_stats(id).await.unwrap().unwrap();
        assert_eq!(
            (stats.columns[&1].min.as_deref(), stats.columns[&1].max.as_deref()),
            (Some("5"), Some("100"))
        );
        assert_eq!((stats.record_count, stats.next_row_id, stats.file_size_bytes), (22, 22, 360));
        // A file without statistics, and then one with all of them.
        for name in ["3", "4"] {
            change(catalog, |transaction| {
                let mut unknown = file(name, 0, 1000);
                if name == "3" {
                    unknown.stats.clear();
                }
                transaction.changes_of(id).added.push(unknown);
            })
            .await;
            let stats = catalog.table_stats(id).await.unwrap().unwrap();
            assert!(!stats.columns.contains_key(&1));
        }
        // A column that was added later has unknown values in old rows.
        change(catalog, |transaction| {
            alter(transaction, id, |table| {
                table.columns.push(column(2, "b", Int32));
                table.next_column = 3;
            });
            let mut new_file = file("5", 0, 1);
            new_file.stats.insert(2, new_file.stats[&1].clone());
            transaction.changes_of(id).added.push(new_file);
        })
        .await;
        assert!(!catalog.table_stats(id).await.unwrap().unwrap().columns.contains_key(&2));
    });
}

#[test]
fn rows_are_inlined_under_every_schema_version() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| insert_inlined_rows(transaction, id, &[10, 20, 30])).await;
        change(catalog, |transaction| {
            alter(transaction, id, |table| {
                table.columns[0].name = "renamed".into();
                table.columns.push(column(2, "b", Varchar));
                table.next_column = 3;
            });
            let row = vec![Cell::Integer(40), Cell::Text("x".into())];
            transaction.changes_of(id).inlined.push(row);
        })
        .await;
        let at_3 = data(catalog, id).await;
        assert_eq!(at_3.inlined.len(), 2);
        assert_eq!((at_3.inlined[0].schema_version, at_3.inlined[1].schema_version), (1, 2));
        assert_eq!(at_3.inlined[0].columns, [(1, "a".to_string())]);
        assert_eq!(at_3.inlined[1].columns, [(1, "renamed".to_string()), (2, "b".to_string())]);
        assert_eq!(integer_rows(&at_3.inlined[0]), [(0, 10), (1, 20), (2, 30)]);
        assert_eq!(integer_rows(&at_3.inlined[1]), [(3, 40)]);

        change(catalog, |transaction| {
            transaction.changes_of(id).deleted_inlined.extend([(1, 1), (2, 3)]);
        })
        .await;
        let at_4 = data(catalog, id).await;
        assert_eq!(at_4.inlined.iter().map(integer_rows).collect::<Vec<_>>(), [[(0, 10), (2, 30)]]);
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().record_count, 4);

        // A flush moves the rows into a file, and changes nothing else.
        change(catalog, |transaction| {
            let changes = transaction.changes_of(id);
            (changes.compacts, changes.removed_inlined) = (true, true);
            changes.added.push(file("flushed", 10, 2));
        })
        .await;
        let at_5 = data(catalog, id).await;
        assert!(at_5.inlined.is_empty());
        assert_eq!(at_5.files.len(), 1);
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().record_count, 4);
        let last = catalog.snapshots().await.unwrap().pop().unwrap();
        assert_eq!(last.changes, "inline_flush:1");
        for (snapshot, expected) in [(3, at_3), (4, at_4)] {
            let state = catalog.at(snapshot).await.unwrap();
            assert_eq!(*catalog.data(&state.tables[&id], snapshot).await.unwrap(), expected);
        }
    });
}

#[test]
fn inlined_rows_of_every_type_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let text = |text: &str| Cell::Text(text.to_string());
        let cases = [
            (Boolean, vec![Cell::Integer(1), Cell::Integer(0)]),
            (Int8, vec![Cell::Integer(-128), Cell::Integer(127)]),
            (Int16, vec![Cell::Integer(-32768), Cell::Integer(32767)]),
            (Int32, vec![Cell::Integer(i64::from(i32::MIN)), Cell::Integer(0)]),
            (Int64, vec![Cell::Integer(i64::MIN), Cell::Integer(i64::MAX)]),
            (Int128, vec![text("-170141183460469231731687303715884105728"), text("5")]),
            (UInt8, vec![Cell::Integer(255), Cell::Integer(0)]),
            (UInt16, vec![Cell::Integer(65535), Cell::Integer(0)]),
            (UInt32, vec![Cell::Integer(4294967295), Cell::Integer(0)]),
            (UInt64, vec![text("18446744073709551615"), text("0")]),
            (UInt128, vec![text("340282366920938463463374607431768211455"), text("0")]),
            (Float32, vec![text("1.5"), text("nan")]),
            (Float64, vec![text("-inf"), text("inf")]),
            (Decimal { precision: 10, scale: 2 }, vec![text("12345678.90"), text("-0.01")]),
            (Time, vec![text("10:00:00.123456"), text("00:00:00")]),
            (TimeTz, vec![text("10:00:00+00"), text("10:00:00.5+02")]),
            (Date, vec![text("2024-01-15"), text("-infinity")]),
            (Timestamp, vec![text("2024-01-15 12:30:00.123456"), text("infinity")]),
            (TimestampTz, vec![text("2024-01-15 12:30:00.123456+00"), text("2024-01-15 12:30:00+00")]),
            (TimestampS, vec![text("2024-01-15 12:30:00"), text("1969-12-31 23:59:59")]),
            (TimestampMs, vec![text("2024-01-15 12:30:00.123"), text("0001-01-01 00:00:00")]),
            (TimestampNs, vec![text("2024-01-15 12:30:00.123456789"), text("1970-01-01 00:00:00")]),
            (Interval, vec![text("1 year 2 months 3 days 04:05:06"), text("1 month")]),
            (Varchar, vec![text("it's \"quoted\" \\x00 \n é"), text("with \0 inside")]),
            (Blob, vec![Cell::Blob(vec![0, 255, 39, 92]), Cell::Blob(vec![])]),
            (Json, vec![text("{\"a\": [1, null]}"), text("null")]),
            (
                Uuid,
                vec![
                    text("2df15a9a-ddb7-4d6a-b522-75fffa01c7f4"),
                    text("00000000-0000-0000-0000-000000000000"),
                ],
            ),
            (Struct, vec![text("{'x': 1, 'y': 'a'}"), text("")]),
            (List, vec![text("[1, 2]"), text("[]")]),
            (Map, vec![text("{a=1}"), text("{}")]),
        ];
        let mut columns = Vec::new();
        for ((kind, _), place) in cases.iter().zip(0..) {
            let mut nested = column(10 * place + 1, &format!("c{place}"), *kind);
            let child = |offset, name: &str| column(10 * place + offset, name, Int32);
            nested.children = match kind {
                Struct => vec![child(2, "x"), child(3, "y")],
                List => vec![child(2, "element")],
                Map => vec![child(2, "key"), child(3, "value")],
                _ => vec![],
            };
            columns.push(nested);
        }
        let committed = change(catalog, |transaction| {
            let id = create_table(transaction, 0, "t", columns);
            let rows = &mut transaction.changes_of(id).inlined;
            for row in 0..2 {
                rows.push(cases.iter().map(|(_, values)| values[row].clone()).collect());
            }
            rows.push(vec![Cell::Null; cases.len()]);
        })
        .await;
        let rows = &data(catalog, *committed.objects.values().next().unwrap()).await.inlined[0];
        assert_eq!(rows.rows.len(), 3);
        for (place, (kind, values)) in cases.iter().enumerate() {
            for (row, value) in values.iter().enumerate() {
                assert_eq!(&rows.rows[row][place], value, "{kind}");
            }
            assert_eq!(rows.rows[2][place], Cell::Null, "{kind}");
        }
    });
}

#[test]
fn rows_written_and_deleted_by_one_transaction_are_not_committed() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| {
            let mut by_file = file("1", 0, 10);
            by_file.deleted.extend([1, 2]);
            by_file.deletes = Some(delete_file("d1", 2));
            let mut inline = file("2", 10, 10);
            inline.deleted.extend([3]);
            transaction.changes_of(id).added.extend([by_file, inline]);
        })
        .await;
        let files = data(catalog, id).await.files;
        assert_eq!(files[0].deletes.as_ref().unwrap().rows, 2);
        assert_eq!(files[1].deleted_inline, [3]);
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().record_count, 20);
    });
}

#[test]
fn truncate_and_insert_replaces_all_rows() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| {
            transaction.changes_of(id).added.push(file("old", 0, 10));
            insert_inlined_rows(transaction, id, &[5]);
        })
        .await;
        let old = data(catalog, id).await.files[0].id;
        change(catalog, |transaction| {
            let changes = transaction.changes_of(id);
            changes.removed.insert(old);
            (changes.removed_inlined, changes.replaces) = (true, true);
            changes.added.push(file("new", 0, 3));
        })
        .await;
        let now = data(catalog, id).await;
        assert_eq!((now.files.len(), now.inlined.len()), (1, 0));
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().record_count, 14);
    });
}

#[test]
fn dropped_tables_are_readable_in_past_snapshots() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        change(catalog, |transaction| {
            transaction.changes_of(id).added.push(file("1", 0, 10));
            insert_inlined_rows(transaction, id, &[5]);
        })
        .await;
        let before = data(catalog, id).await;
        let state = catalog.head().await.unwrap();
        change(catalog, |transaction| drop_table(transaction, id)).await;
        assert_eq!(*catalog.data(&state.tables[&id], 2).await.unwrap(), before);
        assert!(catalog.data(&state.tables[&id], 3).await.unwrap().files.is_empty());
    });
}

#[test]
fn tables_with_reserved_column_names_are_not_inlined() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        for columns in [
            vec![column(1, "Row_Id", Int64)],
            vec![column(1, "a", Int64), column(2, "A", Int64)],
            (1..=2000).map(|id| column(id, &format!("c{id}"), Int64)).collect(),
        ] {
            let mut transaction = begin(catalog).await;
            let id = create_table(&mut transaction, 0, &uuid(), columns);
            assert!(!catalog.can_inline(&transaction.state.tables[&id]));
            transaction.changes_of(id).added.push(file("1", 0, 10));
            commit(catalog, &transaction).await.unwrap();
            let mut transaction = begin(catalog).await;
            let table = Arc::clone(transaction.state.tables.values().last().unwrap());
            transaction.changes_of(table.id).inlined.push(vec![Cell::Integer(1); table.columns.len()]);
            let refused = commit(catalog, &transaction).await;
            assert!(matches!(refused, Err(harrier_catalog::Error::Unsupported(_))), "{refused:?}");
        }
    });
}

#[test]
fn ten_thousand_files_are_one_commit() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let columns = (1..=16).map(|id| column(id, &format!("c{id}"), Int64)).collect();
        let mut transaction = begin(catalog).await;
        let id = create_table(&mut transaction, 0, "t", columns);
        add_files(&mut transaction, id, 10_000);
        let started = std::time::Instant::now();
        let committed = commit(catalog, &transaction).await.unwrap();
        eprintln!("{kind:?}: 10000 files of 16 columns committed in {:?}", started.elapsed());
        let id = committed.objects[&id];
        let files = data(catalog, id).await.files;
        assert_eq!(files.len(), 10_000);
        let last = files.iter().map(|file| file.id).max().unwrap();
        let stats = catalog.column_stats(id, &[1, 16], 0, last).await.unwrap();
        assert_eq!(stats.values().map(|column| column.len()).collect::<Vec<_>>(), [10_000, 10_000]);
        assert_eq!(catalog.table_stats(id).await.unwrap().unwrap().next_row_id, 1_000_000);
    });
}

fn add_files(transaction: &mut Transaction, table: i64, count: i64) {
    let changes = transaction.changes_of(table);
    for number in 0..count {
        let mut new_file = file(&format!("{}.parquet", uuid()), number * 100, 100);
        let stats = new_file.stats[&1].clone();
        new_file.stats = (1..=16).map(|column| (column, stats.clone())).collect();
        changes.added.push(new_file);
    }
}
