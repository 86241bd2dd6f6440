//! Consistency of the catalog's cache: after commits of other processes, every snapshot read through the
//! cache equals that of a newly opened catalog.
//!
//! `HARRIER_CATALOG_SEED` chooses other random commits.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::{Cell, ColumnStats, NewDeletes, TableData};
use harrier_catalog::state::{PartitionKey, Transform};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, CommitNote, Error, Expiry};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// More files than in tables that the cache loads as a whole.
const FILES: i64 = 400;

/// Reads a table at a snapshot: its data, and the statistics of its columns by file.
async fn read_table(catalog: &Catalog, table: i64, snapshot: i64) -> (TableData, Vec<Option<ColumnStats>>) {
    let state = catalog.at(snapshot).await.unwrap();
    let data = catalog.data(&state.tables[&table], snapshot).await.unwrap();
    let ids = || data.files.iter().map(|file| file.id);
    let mut all = Vec::new();
    if let (Some(first), Some(last)) = (ids().min(), ids().max()) {
        // One column alone first, so that the cache's columns end at different files.
        let alone = catalog.column_stats(table, &[1 + snapshot % 2], first, last).await.unwrap();
        assert_eq!(alone.len(), 1);
        let stats = catalog.column_stats(table, &[1, 2], first, last).await.unwrap();
        for column in [1, 2] {
            all.extend(ids().map(|id| stats[&column].get(id).map(ColumnStats::from)));
        }
    }
    (TableData::clone(&data), all)
}

/// Asserts that every snapshot is the same through the cache of `cached` and through a newly opened catalog.
async fn compare(url: &str, cached: &Catalog, table: i64, snapshots: impl Iterator<Item = i64>) {
    let fresh = Catalog::open(url).await.unwrap();
    cached.head().await.unwrap();
    for snapshot in snapshots {
        let (cached_table, fresh_table) =
            (read_table(cached, table, snapshot).await, read_table(&fresh, table, snapshot).await);
        assert_eq!(cached_table.0.files.len(), fresh_table.0.files.len(), "snapshot {snapshot}");
        assert!(cached_table == fresh_table, "snapshot {snapshot}: {cached_table:?}\n{fresh_table:?}");
    }
}

#[test]
fn cached_tables_equal_fresh_reads_after_concurrent_commits() {
    let seed = std::env::var("HARRIER_CATALOG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(1);
    eprintln!("HARRIER_CATALOG_SEED={seed}");
    on_both(async |kind| {
        let lake = lake(kind).await;
        let mut random = StdRng::seed_from_u64(seed);
        let cached = Catalog::open(&lake.url).await.unwrap();
        // The same with a cache that is too small for the table.
        let narrow = Catalog::open(&lake.url).await.unwrap();
        narrow.set_cache_bytes_max(random.random_range(0..400_000));
        let writer = &lake.catalog;
        let mut transaction = begin(writer).await;
        let id = create_table(&mut transaction, 0, "t", vec![column(1, "a", Int64), column(2, "b", Varchar)]);
        let mut number = 0;
        let mut new_file = |random: &mut StdRng| {
            number += 1;
            let mut data_file = file(&format!("{number} of '{seed}'"), number * 10, 10);
            let text = |value: &str| ColumnStats {
                min: Some(value.into()),
                max: None,
                nulls: Some(number),
                ..ColumnStats::default()
            };
            if random.random_bool(0.8) {
                data_file.stats.insert(2, text(["", "it's:3 ", "ü\n", "7 8:"][(number % 4) as usize]));
            }
            data_file
        };
        transaction.changes_of(id).added = (0..FILES).map(|_| new_file(&mut random)).collect();
        let committed = commit(writer, &transaction).await.unwrap();
        let id = committed.objects[&id];
        let first = committed.snapshot;
        compare(&lake.url, &cached, id, std::iter::once(first)).await;
        for step in 0..40 {
            let mut transaction = begin(writer).await;
            let now = Arc::clone(
                &writer.data(&transaction.base.tables[&id], transaction.base.snapshot).await.unwrap(),
            );
            let any = |random: &mut StdRng| {
                (!now.files.is_empty()).then(|| &now.files[random.random_range(0..now.files.len())])
            };
            let what = random.random_range(0..9);
            match (what, any(&mut random)) {
                (0 | 1, _) => {
                    let count = random.random_range(1..60);
                    transaction.changes_of(id).added = (0..count).map(|_| new_file(&mut random)).collect();
                }
                (2, _) => {
                    insert_inlined_rows(&mut transaction, id, &[step]);
                    transaction.changes_of(id).inlined.iter_mut().for_each(|row| row.push(Cell::Null));
                }
                (3, Some(some)) if some.deletes.is_none() && some.deleted_inline.is_empty() => {
                    transaction.changes_of(id).deleted.insert(some.id, inline_delete(&[1, 5]));
                }
                (4, Some(some)) if some.deletes.is_none() && some.deleted_inline.is_empty() => {
                    let of_file = NewDeletes::File {
                        file: delete_file(&format!("deletes {step}"), 2),
                        positions: [2, 7].into(),
                    };
                    transaction.changes_of(id).deleted.insert(some.id, of_file);
                }
                (5, Some(some)) => drop(transaction.changes_of(id).removed.insert(some.id)),
                (6, Some(_)) => {
                    // OPTIMIZE merges some files into one.
                    let change_count = random.random_range(2..40);
                    let some: Vec<i64> =
                        (0..change_count).filter_map(|_| any(&mut random)).map(|file| file.id).collect();
                    let merged_file = new_file(&mut random);
                    let changes = transaction.changes_of(id);
                    changes.removed.extend(some);
                    changes.added.push(merged_file);
                    changes.compacts = true;
                }
                (7, _) => alter(&mut transaction, id, |table| table.comment = Some(format!("step {step}"))),
                _ => drop(create_table(&mut transaction, 0, &uuid(), integers("a"))),
            }
            commit(writer, &transaction).await.unwrap();
            let snapshots = writer.snapshots().await.unwrap();
            let mut snapshots: Vec<i64> =
                snapshots.iter().map(|one| one.snapshot).filter(|snapshot| *snapshot >= first).collect();
            let newest = *snapshots.last().unwrap();
            if random.random_bool(0.05) && snapshots.len() > 2 {
                let gone = snapshots.remove(random.random_range(0..snapshots.len() - 1));
                writer.expire(&Expiry::Versions(vec![gone])).await.unwrap();
                assert!(cached.at(gone).await.is_err());
            }
            // Past snapshots as well.
            let back = snapshots[random.random_range(0..snapshots.len())];
            compare(&lake.url, &cached, id, [newest, back, newest].into_iter()).await;
            if random.random_bool(0.2) {
                compare(&lake.url, &narrow, id, [newest, back].into_iter()).await;
            }
        }
        // Another table of the same name must not hit the cache of the dropped one.
        change(writer, |transaction| drop_table(transaction, id)).await;
        let committed = change(writer, |transaction| {
            let table = create_table(transaction, 0, "t", integers("a"));
            transaction.changes_of(table).added.push(file("again", 0, 10));
        })
        .await;
        let again = *committed.objects.values().next().unwrap();
        compare(&lake.url, &cached, again, std::iter::once(committed.snapshot)).await;
        assert!(!cached.head().await.unwrap().tables.contains_key(&id));
    });
}

#[test]
fn cached_statistics_are_reloaded_after_their_rows_move() {
    run(async {
        let lake = lake(Kind::Sqlite).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        let cached = Catalog::open(&lake.url).await.unwrap();
        let snapshot = change(catalog, |transaction| {
            transaction.changes_of(id).added =
                (0..FILES).map(|number| file(&number.to_string(), number, 1)).collect();
        })
        .await
        .snapshot;
        compare(&lake.url, &cached, id, std::iter::once(snapshot)).await;
        // The rows get other numbers, so that new rows sort before those that were last.
        lake.execute(
            "CREATE TABLE moved AS SELECT * FROM ducklake_file_column_stats; DELETE FROM ducklake_file_column_stats; \
             INSERT INTO ducklake_file_column_stats SELECT * FROM moved WHERE data_file_id % 2 = 0; DROP TABLE moved",
        )
        .await;
        let snapshot = change(catalog, |transaction| {
            transaction.changes_of(id).added.push(file("new", 7, 1));
        })
        .await
        .snapshot;
        let state = cached.head().await.unwrap();
        let last =
            cached.data(&state.tables[&id], snapshot).await.unwrap().files.iter().map(|file| file.id).max();
        let stats = cached.column_stats(id, &[1], 0, last.unwrap()).await.unwrap();
        assert_eq!(stats[&1].get(last.unwrap()).unwrap().min, Some("7"));
    });
}

#[test]
fn cached_files_are_reloaded_after_changes_in_the_database() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        let cached = Catalog::open(&lake.url).await.unwrap();
        let add = async || {
            let add = |transaction: &mut harrier_catalog::Transaction| {
                transaction.changes_of(id).added =
                    (0..FILES).map(|number| file(&number.to_string(), number, 1)).collect();
            };
            change(catalog, add).await.snapshot
        };
        compare(&lake.url, &cached, id, std::iter::once(add().await)).await;
        lake.execute("UPDATE ducklake_data_file SET record_count = record_count + 1 WHERE path = '7'").await;
        compare(&lake.url, &cached, id, std::iter::once(add().await)).await;
    });
}

#[test]
fn merged_files_replace_cached_files_of_past_snapshots() {
    if skips_servers() {
        return;
    }
    for kind in kinds() {
        run(async {
            let lake = lake(kind).await;
            let cached = Catalog::open(&lake.url).await.unwrap();
            let mut transaction = begin(&lake.catalog).await;
            let id =
                create_table(&mut transaction, 0, "p", vec![column(1, "a", Int64), column(2, "b", Int64)]);
            alter(&mut transaction, id, |table| {
                table.partition = vec![PartitionKey { column: 2, transform: Transform::Identity }];
            });
            let id = commit(&lake.catalog, &transaction).await.unwrap().objects[&id];
            let duck = |what: &str| duckdb(&lake.url, &format!("attach()\nrun(\"{what}\")"));
            let insert = format!("INSERT INTO p SELECT range, range % {FILES} FROM range({})", FILES * 20);
            let mut seen = Vec::new();
            for what in [
                insert.as_str(),
                &insert,
                "DELETE FROM p WHERE b = 3 AND a > 400",
                "CALL ducklake_merge_adjacent_files('l', 'p')",
                "UPDATE p SET a = -a WHERE b = 5",
                "CALL ducklake_rewrite_data_files('l', 'p', delete_threshold => 0.01)",
                "INSERT INTO p VALUES (1, 2)",
                "CALL ducklake_flush_inlined_data('l')",
            ] {
                duck(what);
                seen.push(cached.head().await.unwrap().snapshot);
                compare(&lake.url, &cached, id, seen.iter().rev().copied()).await;
            }
        });
    }
}

/// Restores a catalog from a backup to a state before commits that another process has cached, and goes on
/// from there: numbers of snapshots and files are used a second time.
#[test]
fn cache_is_invalidated_after_catalog_restore() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        let add = async |catalog: &Catalog, name: &str, first: i64| {
            let add = |transaction: &mut harrier_catalog::Transaction| {
                transaction.changes_of(id).added.push(file(name, first, 10));
            };
            change(catalog, add).await.snapshot
        };
        let kept = add(catalog, "kept", 0).await;
        let serving = Catalog::open(&lake.url).await.unwrap();
        let lost = add(catalog, "lost", 100).await;
        let before = serving.head().await.unwrap();
        assert_eq!(before.snapshot, lost);
        let lost_file = serving.data_in(&before, &before.tables[&id]).await.unwrap().files[1].clone();
        serving.column_stats(id, &[1], 0, lost_file.id).await.unwrap();
        let (mut reading, mut writing) = (begin(&serving).await, begin(&serving).await);
        writing.changes_of(id).deleted.insert(lost_file.id, inline_delete(&[3]));

        for (table, column) in [
            ("ducklake_snapshot", "snapshot_id"),
            ("ducklake_snapshot_changes", "snapshot_id"),
            ("ducklake_data_file", "begin_snapshot"),
        ] {
            lake.execute(&format!("DELETE FROM {table} WHERE {column} > {kept}")).await;
        }
        lake.execute(&format!(
            "DELETE FROM ducklake_file_column_stats WHERE data_file_id = {}",
            lost_file.id
        ))
        .await;
        let other = Catalog::open(&lake.url).await.unwrap();
        assert_eq!(add(&other, "new", 500).await, lost, "the number comes again");

        // Transactions from before the restore conflict.
        assert!(is_conflict(&serving.commit(&writing, &CommitNote::default()).await));
        assert!(is_conflict(&serving.rebase(&mut writing).await));
        serving.rebase(&mut reading).await.unwrap();
        assert!(is_conflict(&serving.data_in(&before, &before.tables[&id]).await));

        let state = serving.head().await.unwrap();
        assert_eq!((state.snapshot, reading.base.time), (lost, state.time));
        let files = &serving.data_in(&state, &state.tables[&id]).await.unwrap().files;
        assert_eq!(files.iter().map(|file| file.path.path.as_str()).collect::<Vec<_>>(), ["kept", "new"]);
        assert_eq!(files[1].id, lost_file.id);
        let stats = serving.column_stats(id, &[1], 0, lost_file.id).await.unwrap();
        assert_eq!(stats[&1].get(lost_file.id).unwrap().min, Some("500"));
    });
}

/// Open connections stay with the file that they have opened.
#[test]
fn open_connections_stay_with_a_replaced_sqlite_file() {
    run(async {
        let lake = lake(Kind::Sqlite).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let path = lake.url.strip_prefix("sqlite:").unwrap().to_string();
        std::fs::copy(&path, format!("{path}.copy")).unwrap();
        std::fs::rename(format!("{path}.copy"), &path).unwrap();
        let is_refused =
            |error: &Error| matches!(error, Error::Refused(refusal) if refusal.sqlstate == "55000");
        assert!(lake.catalog.head().await.is_err_and(|error| is_refused(&error)));
        assert!(lake.catalog.table_stats(id).await.is_err_and(|error| is_refused(&error)));
    });
}
