//! Concurrent commits: none is lost, and no number is assigned twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::*;
use harrier_catalog::{Catalog, Error};
use tokio::task::JoinSet;

const TASKS: i64 = 8;
const COMMITS: i64 = 50;

#[test]
fn concurrent_inserts_are_not_lost() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            // Half of them in this process's queue, half over connections of other processes.
            let catalog = match task % 2 {
                0 => lake.catalog.clone(),
                _ => Catalog::open(&lake.url).await.unwrap(),
            };
            tasks.spawn(async move {
                for number in 0..COMMITS {
                    let committed = change(&catalog, |transaction| match number % 2 {
                        0 => transaction.changes_of(id).added.push(file(&format!("{task}-{number}"), 0, 3)),
                        _ => insert_inlined_rows(transaction, id, &[task * 1000 + number]),
                    });
                    committed.await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let snapshots = lake.catalog.snapshots().await.unwrap();
        let numbers: Vec<i64> = snapshots.iter().map(|one| one.snapshot).collect();
        assert_eq!(numbers, (0..TASKS * COMMITS + 2).collect::<Vec<_>>());
        assert!(
            snapshots
                .windows(2)
                .all(|pair| pair[0].time <= pair[1].time || pair[0].time.len() != pair[1].time.len())
        );

        let rows = data(&lake.catalog, id).await;
        let files: BTreeSet<i64> = rows.files.iter().map(|file| file.id).collect();
        assert_eq!(files.len() as i64, TASKS * COMMITS / 2);
        let stats = lake.catalog.table_stats(id).await.unwrap().unwrap();
        assert_eq!(stats.next_row_id, TASKS * COMMITS / 2 * 4);
        // Row ids of files and inlined rows together are contiguous.
        let starts = row_ids(&lake, kind, id).await;
        let inlined_ids = rows.inlined[0].row_ids.iter().copied();
        let mut ids: Vec<i64> =
            starts.iter().flat_map(|start| *start..start + 3).chain(inlined_ids).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..stats.next_row_id).collect::<Vec<_>>());
    });
}

/// The first row id of every file, read from the database: the crate does not expose it.
async fn row_ids(lake: &Lake, kind: Kind, table: i64) -> Vec<i64> {
    let sql = format!("SELECT row_id_start FROM ducklake_data_file WHERE table_id = {table}");
    match kind {
        Kind::Sqlite => {
            let pool = sqlx::SqlitePool::connect(&lake.url).await.unwrap();
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&pool).await.unwrap()
        }
        Kind::Postgres => {
            let pool = sqlx::PgPool::connect(&lake.url).await.unwrap();
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&pool).await.unwrap()
        }
    }
}

#[test]
fn concurrent_deletes_from_one_file_conflict() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        for round in 0..20 {
            change(&lake.catalog, |transaction| transaction.changes_of(id).added.push(file(&uuid(), 0, 10)))
                .await;
            let target = data(&lake.catalog, id).await.files.last().unwrap().id;
            let mut open_transactions = Vec::new();
            for position in 0..2 {
                let catalog = match round % 2 {
                    0 => lake.catalog.clone(),
                    _ => Catalog::open(&lake.url).await.unwrap(),
                };
                let mut transaction = begin(&catalog).await;
                transaction.changes_of(id).deleted.insert(target, inline_delete(&[position]));
                open_transactions.push((catalog, transaction));
            }
            let mut tasks = JoinSet::new();
            for (catalog, transaction) in open_transactions {
                tasks.spawn(async move { commit(&catalog, &transaction).await });
            }
            let outcomes: Vec<_> = tasks.join_all().await;
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
            assert_eq!(outcomes.iter().filter(|outcome| is_conflict(outcome)).count(), 1, "{outcomes:?}");
            assert_eq!(data(&lake.catalog, id).await.files.last().unwrap().deleted_inline.len(), 1);
        }
    });
}

#[test]
fn concurrent_creation_yields_one_warehouse() {
    on_both(async |kind| {
        // SQLite reported "busy" in one run of ten.
        for _ in 0..8 {
            let folder = tempfile::TempDir::new().unwrap();
            let url = Arc::new(new_url(kind, folder.path()));
            let mut tasks = JoinSet::new();
            for _ in 0..8 {
                let url = Arc::clone(&url);
                tasks.spawn(
                    async move { Catalog::create(&url, "/data/").await.unwrap().head().await.unwrap() },
                );
            }
            let heads = tasks.join_all().await;
            assert!(heads.iter().all(|head| *head == heads[0]));
            assert_eq!(heads[0].snapshot, 0);
        }
    });
}

#[test]
fn readers_see_consistent_snapshots_during_commits() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        // Both tables always have the same number of files.
        let (one, two) = (
            create_table_committed(&lake.catalog, "one").await,
            create_table_committed(&lake.catalog, "two").await,
        );
        let catalog = lake.catalog.clone();
        let writer = tokio::spawn(async move {
            for number in 0..40 {
                change(&catalog, |transaction| {
                    transaction.changes_of(one).added.push(file(&format!("{number}"), 0, 1));
                    transaction.changes_of(two).added.push(file(&format!("{number}"), 0, 1));
                })
                .await;
            }
        });
        let reader = Catalog::open(&lake.url).await.unwrap();
        while !writer.is_finished() {
            let head = reader.head().await.unwrap();
            let count = async |id| reader.data(&head.tables[&id], head.snapshot).await.unwrap().files.len();
            assert_eq!(count(one).await, count(two).await);
        }
        writer.await.unwrap();
    });
}

#[test]
fn inserts_commit_beside_long_readers() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let readers: Vec<_> = (0..6)
            .map(|_| {
                let catalog = lake.catalog.clone();
                tokio::spawn(async move {
                    for _ in 0..60 {
                        match catalog.table_stats(id).await {
                            Ok(_) => {}
                            Err(Error::Database(error)) => panic!("{error}"),
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for number in 0..20 {
            change(&lake.catalog, |transaction| insert_inlined_rows(transaction, id, &[number])).await;
        }
        for reader in readers {
            reader.await.unwrap();
        }
    });
}
