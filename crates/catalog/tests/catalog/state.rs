//! Definitions (schemas, tables, views, comments, options): round trips now and at every later time.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::state::{DefaultValue, Location, PartitionKey, SortKey, State, Transform};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, CommitNote, Identity, Transaction};

/// Commits a transaction and asserts that the committed state equals the transaction's, with the assigned
/// numbers.
async fn round_trip(catalog: &Catalog, transaction: &Transaction) -> Arc<State> {
    let committed = commit(catalog, transaction).await.unwrap();
    let head = catalog.head().await.unwrap();
    assert_eq!(head.snapshot, committed.snapshot);
    let real = |id: i64| committed.objects.get(&id).copied().unwrap_or(id);
    let mut expected = transaction.state.clone();
    expected.snapshot = committed.snapshot;
    expected.schema_version = transaction.base.schema_version + i64::from(committed.state_changed);
    let renumbered = expected.schemas.values().map(|schema| {
        let mut schema = (**schema).clone();
        schema.id = real(schema.id);
        (schema.id, Arc::new(schema))
    });
    expected.schemas = renumbered.collect();
    let renumbered = expected.tables.values().map(|table| {
        let mut table = (**table).clone();
        (table.id, table.schema) = (real(table.id), real(table.schema));
        table.partition_id = head.tables[&table.id].partition_id;
        assert_eq!(table.partition_id.is_some(), !table.partition.is_empty());
        (table.id, Arc::new(table))
    });
    expected.tables = renumbered.collect();
    let renumbered = expected.views.values().map(|view| {
        let mut view = (**view).clone();
        (view.id, view.schema) = (real(view.id), real(view.schema));
        (view.id, Arc::new(view))
    });
    expected.views = renumbered.collect();
    assert!(head.time >= expected.time, "times of snapshots never run backwards");
    expected.time = head.time;
    assert_eq!(*head, expected);
    // Another catalog, with an empty cache, reads the same.
    assert_eq!(*catalog.at(committed.snapshot).await.unwrap(), expected);
    head
}

#[test]
fn a_new_warehouse_has_the_schema_main() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let head = lake.catalog.head().await.unwrap();
        assert_eq!((head.snapshot, head.schema_version), (0, 0));
        assert_eq!(head.data_path, data_path(lake.folder.path()));
        let main = head.schema("main").unwrap();
        assert_eq!((main.id, &main.path), (0, &Location::relative("main/")));
        assert!(head.options.is_empty());
        let again = Catalog::create(&lake.url, "/elsewhere/").await.unwrap();
        assert_eq!(*again.head().await.unwrap(), *head);
        let snapshots = lake.catalog.snapshots().await.unwrap();
        assert_eq!(snapshots.len(), 1);
        assert_eq!(snapshots[0].changes, "created_schema:\"main\"");
    });
}

#[test]
fn table_definitions_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let mut transaction = begin(catalog).await;
        let schema = create_schema(&mut transaction, "it's \"s\"");
        let kinds = [
            Boolean,
            Int8,
            Int16,
            Int32,
            Int64,
            Int128,
            UInt8,
            UInt16,
            UInt32,
            UInt64,
            UInt128,
            Float32,
            Float64,
            Decimal { precision: 38, scale: 10 },
            Time,
            TimeTz,
            Date,
            Timestamp,
            TimestampTz,
            TimestampS,
            TimestampMs,
            TimestampNs,
            Interval,
            Varchar,
            Blob,
            Json,
            Uuid,
        ];
        let mut columns: Vec<_> =
            kinds.iter().zip(1..).map(|(kind, id)| column(id, &format!("c{id}"), *kind)).collect();
        columns[0].nullable = false;
        columns[1].default = Some(DefaultValue::Literal("5".into()));
        columns[2].default =
            Some(DefaultValue::Expression { sql: "nextval('a')".into(), dialect: "harrier".into() });
        columns[3].initial_default = Some("it's".into());
        columns[4].comment = Some("first 'comment'".into());
        columns[4].tags.insert("harrier.a".into(), "it's".into());
        columns[5].tags.insert("harrier.b".into(), "2".into());
        columns[5].name = "Größe \"x\"".into();
        let mut nested = column(30, "nested", Struct);
        nested.children = vec![column(31, "x", List), column(33, "y", Map)];
        nested.children[0].children = vec![column(32, "element", Int32)];
        nested.children[1].children = vec![column(34, "key", Varchar), column(35, "value", Struct)];
        nested.children[1].children[1].children = vec![column(36, "z", Blob)];
        nested.children[1].children[1].children[0].comment = Some("deep".into());
        columns.push(nested);
        let id = create_table(&mut transaction, schema, "t'a\"b", columns);
        alter(&mut transaction, id, |table| {
            table.partition = vec![
                PartitionKey { column: 24, transform: Transform::Identity },
                PartitionKey { column: 17, transform: Transform::Year },
                PartitionKey { column: 4, transform: Transform::Bucket(16) },
            ];
            table.sort = vec![
                SortKey {
                    expression: "c5".into(),
                    dialect: "duckdb".into(),
                    descending: true,
                    nulls_first: false,
                },
                SortKey {
                    expression: "c6".into(),
                    dialect: "duckdb".into(),
                    descending: false,
                    nulls_first: true,
                },
            ];
            table.comment = Some("a table".into());
            table.tags.insert("harrier.x".into(), "1".into());
            table.tags.insert("harrier.y".into(), "'2'".into());
            table.options.insert("target_file_size".into(), "1MB".into());
        });
        let view_id = transaction.allocate_object();
        let mut a_view = view(view_id, schema, "v", "SELECT 'x' AS a");
        a_view.comment = Some("a view".into());
        a_view.column_aliases = "(a)".into();
        transaction.state_mut().views.insert(view_id, Arc::new(a_view));
        Arc::make_mut(transaction.state_mut().schemas.get_mut(&schema).unwrap()).comment = Some("s".into());
        Arc::make_mut(transaction.state_mut().schemas.get_mut(&0).unwrap())
            .options
            .insert("a".into(), "b".into());
        transaction.state_mut().options.insert("expire_older_than".into(), "1 week".into());
        let first = round_trip(catalog, &transaction).await;

        // Changes of all of it.
        let mut transaction = Transaction::new(Arc::clone(&first));
        let id = first.tables.values().next().unwrap().id;
        let view_id = first.views.values().next().unwrap().id;
        alter(&mut transaction, id, |table| {
            table.name = "renamed".into();
            table.columns.remove(10);
            table.columns[0].nullable = true;
            table.columns[1].default = None;
            table.columns[3].kind = Int64;
            table.columns[4].comment = Some("second".into());
            table.columns[4].tags.insert("harrier.a".into(), "other".into());
            table.columns[4].tags.insert("harrier.c".into(), "3".into());
            table.columns[5].tags.clear();
            table.columns[5].name = "six".into();
            let nested = table.columns.last_mut().unwrap();
            nested.children.push(column(37, "added", Date));
            nested.children[0].children[0].kind = Int64;
            nested.children[1].children[1].children[0].comment = None;
            table.columns.push(column(38, "last", Varchar));
            table.columns.last_mut().unwrap().initial_default = Some("7".into());
            table.next_column = 39;
            table.partition = vec![PartitionKey { column: 17, transform: Transform::Month }];
            table.sort.truncate(1);
            table.comment = None;
            table.tags.remove("harrier.x");
            table.tags.insert("harrier.y".into(), "3".into());
            table.options.clear();
        });
        let view = Arc::make_mut(transaction.state_mut().views.get_mut(&view_id).unwrap());
        view.sql = "SELECT 2 AS a".into();
        view.name = "w".into();
        view.comment = Some("another".into());
        transaction.state_mut().options.insert("expire_older_than".into(), "2 weeks".into());
        let second = round_trip(catalog, &transaction).await;

        // Columns in another order.
        let mut transaction = Transaction::new(Arc::clone(&second));
        alter(&mut transaction, id, |table| {
            let moved = table.columns.pop().unwrap();
            table.columns.insert(0, moved);
            table.partition.clear();
            table.sort.clear();
        });
        let third = round_trip(catalog, &transaction).await;

        // Past snapshots are unchanged, but for options, which are not versioned.
        for (then, now) in [(&first, 1), (&second, 2)] {
            let mut at = State::clone(&catalog.at(now).await.unwrap());
            at.options = then.options.clone();
            for (id, schema) in &then.schemas {
                Arc::make_mut(at.schemas.get_mut(id).unwrap()).options = schema.options.clone();
            }
            for (id, table) in &then.tables {
                let at = Arc::make_mut(at.tables.get_mut(id).unwrap());
                at.options = table.options.clone();
                at.next_column = table.next_column;
            }
            assert_eq!(at, **then);
        }
        assert_eq!(catalog.columns_at(id, 1).await.unwrap(), first.tables[&id].columns);
        assert_eq!(catalog.columns_at(id, 3).await.unwrap(), third.tables[&id].columns);

        // Drops all of it.
        let mut transaction = Transaction::new(third);
        let state = transaction.state_mut();
        let schema = state.tables[&id].schema;
        state.tables.clear();
        state.views.clear();
        state.schemas.remove(&schema);
        state.options.clear();
        round_trip(catalog, &transaction).await;
        let changes: Vec<String> =
            catalog.snapshots().await.unwrap().into_iter().map(|snapshot| snapshot.changes).collect();
        assert_eq!(
            changes,
            [
                "created_schema:\"main\"",
                "created_schema:\"it's \"\"s\"\"\",created_table:\"it's \"\"s\"\"\".\"t'a\"\"b\",created_view:\"it's \"\"s\"\"\".\"v\"",
                "created_table:\"it's \"\"s\"\"\".\"renamed\",altered_table:2,altered_view:3",
                "altered_table:2",
                "dropped_schema:1,dropped_table:2,dropped_view:3",
            ]
        );
    });
}

#[test]
fn column_ids_are_not_reused_after_add_and_drop() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let mut transaction = begin(&lake.catalog).await;
        // Added as number 2, and dropped; files of the transaction may contain it.
        alter(&mut transaction, id, |table| table.next_column = 3);
        commit(&lake.catalog, &transaction).await.unwrap();
        assert_eq!(lake.catalog.head().await.unwrap().tables[&id].next_column, 3);
    });
}

#[test]
fn commit_notes_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let mut transaction = begin(&lake.catalog).await;
        create_schema(&mut transaction, "s");
        let note = CommitNote {
            author: Some("me".into()),
            message: Some("it's done".into()),
            ..CommitNote::default()
        };
        lake.catalog.commit(&transaction, &note).await.unwrap();
        let last = lake.catalog.snapshots().await.unwrap().pop().unwrap();
        assert_eq!((last.author, last.message), (note.author, note.message));
        assert_eq!(last.extra.unwrap(), format!("{{\"harrier_transaction\":\"{}\"}}", transaction.id));
    });
}

#[test]
fn empty_transactions_commit_nothing() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let mut transaction = begin(&lake.catalog).await;
        transaction.changes_of(1);
        let committed = commit(&lake.catalog, &transaction).await.unwrap();
        assert_eq!((committed.snapshot, committed.state_changed), (0, false));
        assert_eq!(lake.catalog.snapshots().await.unwrap().len(), 1);
    });
}

#[test]
fn savepoints_are_clones_of_the_transaction() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let mut transaction = begin(&lake.catalog).await;
        let kept_table = create_table(&mut transaction, 0, "kept", integers("a"));
        transaction.changes_of(kept_table).added.push(file("1.parquet", 0, 5));
        let savepoint = transaction.clone();
        create_table(&mut transaction, 0, "undone", integers("a"));
        transaction.changes_of(kept_table).added.push(file("2.parquet", 5, 5));
        drop_table(&mut transaction, kept_table);
        transaction = savepoint;
        let committed = commit(&lake.catalog, &transaction).await.unwrap();
        let head = lake.catalog.head().await.unwrap();
        assert_eq!(names(&head), ["main.kept"]);
        assert_eq!(data(&lake.catalog, committed.objects[&kept_table]).await.files.len(), 1);
    });
}

#[test]
fn create_and_drop_in_one_transaction_leaves_nothing() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let mut transaction = begin(&lake.catalog).await;
        let id = create_table(&mut transaction, 0, "t", integers("a"));
        transaction.changes_of(id).added.push(file("1.parquet", 0, 5));
        drop_table(&mut transaction, id);
        commit(&lake.catalog, &transaction).await.unwrap();
        assert!(lake.catalog.head().await.unwrap().tables.is_empty());
    });
}

#[test]
fn names_are_free_after_drop_in_the_same_transaction() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let old = create_table_committed(&lake.catalog, "t").await;
        let mut transaction = begin(&lake.catalog).await;
        drop_table(&mut transaction, old);
        create_table(&mut transaction, 0, "t", integers("b"));
        // Others commit meanwhile, so that names are checked for conflicts.
        create_table_committed(&lake.catalog, "other").await;
        commit(&lake.catalog, &transaction).await.unwrap();
        let head = lake.catalog.head().await.unwrap();
        assert_eq!(head.table(0, "t").unwrap().columns[0].name, "b");
    });
}

#[test]
fn snapshots_are_found_by_time() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        for name in ["a", "b", "c"] {
            create_table_committed(&lake.catalog, name).await;
        }
        for snapshot in lake.catalog.snapshots().await.unwrap() {
            let state = lake.catalog.at_time(&snapshot.time).await.unwrap();
            assert!(state.snapshot >= snapshot.snapshot);
            assert_eq!(state.tables.len() as i64, state.snapshot);
        }
        assert_eq!(lake.catalog.at_time("9999-01-01").await.unwrap().snapshot, 3);
        for time in ["2001-01-01", "yesterday"] {
            assert!(matches!(lake.catalog.at_time(time).await, Err(harrier_catalog::Error::NotFound(_))));
        }
        assert!(matches!(lake.catalog.at(4).await, Err(harrier_catalog::Error::NotFound(_))));
    });
}

/// A catalog of an earlier version has no identity until files are written; DuckDB reads it either way.
#[test]
fn catalogs_get_an_identity() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let place = lake.catalog.place().await.unwrap();
        let identity = lake.catalog.identity().await.unwrap().unwrap();
        assert!(identity.is_at(&place), "{identity:?} {place:?}");
        assert_eq!(lake.catalog.head().await.unwrap().warehouse.as_deref(), Some(identity.id.as_str()));
        lake.execute("DELETE FROM ducklake_metadata WHERE \"key\" LIKE 'harrier_%'").await;
        assert_eq!(lake.catalog.identity().await.unwrap(), None);
        assert_eq!(lake.catalog.head().await.unwrap().warehouse, None);
        let (one, other) = (Identity::new(&place), Identity::new(&place));
        let path = data_path(lake.folder.path());
        assert_eq!(lake.catalog.set_identity(None, &one, &path).await.unwrap(), one);
        // A later caller gets the first identity.
        assert_eq!(lake.catalog.set_identity(None, &other, &path).await.unwrap(), one);
        let moved = format!("{path}moved/");
        let copy = one.of_copy(&place);
        assert_eq!(lake.catalog.set_identity(Some(&one), &copy, &moved).await.unwrap(), copy);
        assert_eq!(lake.catalog.identity().await.unwrap(), Some(copy));
        assert_eq!(lake.catalog.head().await.unwrap().data_path, moved);
        assert!(lake.catalog.head().await.unwrap().options.keys().all(|key| !key.starts_with("harrier_")));
    });
}
