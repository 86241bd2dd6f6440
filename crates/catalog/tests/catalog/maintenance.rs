//! Expiry of snapshots: referenced files stay, unreferenced ones are scheduled for deletion; files of running
//! writers are known.

use std::collections::BTreeSet;

use crate::support::*;
use harrier_catalog::files::NewDeletes;
use harrier_catalog::state::Location;
use harrier_catalog::{Error, Expiry, WRITER_SILENCE};

fn versions(versions: &[i64]) -> Expiry {
    Expiry::Versions(versions.to_vec())
}

#[test]
fn expiry_schedules_unreferenced_files_for_deletion() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let root = data_path(lake.folder.path());
        let id = create_table_committed(catalog, "t").await; // 1
        let dropped = create_table_committed(catalog, "gone").await; // 2
        change(catalog, |transaction| {
            transaction.changes_of(id).added.extend([file("a", 0, 10), file("b", 10, 10)]);
            transaction.changes_of(id).added[1].path = Location { path: "/abs/b".into(), relative: false };
            transaction.changes_of(dropped).added.push(file("c", 0, 10));
            insert_inlined_rows(transaction, id, &[20, 21]);
            insert_inlined_rows(transaction, dropped, &[5]);
        })
        .await; // 3
        let files = data(catalog, id).await.files;
        let delete = |name: &str, positions: &[i64]| NewDeletes::File {
            file: delete_file(name, 1),
            positions: positions.iter().copied().collect(),
        };
        change(catalog, |transaction| {
            let changes = transaction.changes_of(id);
            changes.deleted.insert(files[0].id, delete("d1", &[1]));
            changes.deleted.insert(files[1].id, inline_delete(&[3]));
            changes.deleted_inlined.insert((1, 20));
        })
        .await; // 4
        change(catalog, |transaction| {
            let changes = transaction.changes_of(id);
            changes.deleted.insert(files[0].id, delete("d2", &[2]));
            changes.removed.insert(files[1].id);
        })
        .await; // 5
        change(catalog, |transaction| drop_table(transaction, dropped)).await; // 6
        change(catalog, |transaction| alter(transaction, id, |table| table.name = "renamed".into())).await; // 7
        let now = data(catalog, id).await;
        let state = catalog.head().await.unwrap();
        let referenced = catalog.referenced_paths().await.unwrap();
        let all: BTreeSet<String> = ["main/t/a", "main/t/d1", "main/t/d2", "main/gone/c"]
            .iter()
            .map(|path| format!("{root}{path}"))
            .chain(["/abs/b".to_string()])
            .collect();
        assert_eq!(referenced, all);
        assert!(catalog.scheduled_files().await.unwrap().is_empty());

        // Files that a snapshot still references stay.
        let expired = catalog.expire(&versions(&[3])).await.unwrap();
        assert_eq!((expired.snapshots.len(), expired.files), (1, 0));
        let at_4 = catalog.at(4).await.unwrap();
        let rows = catalog.data(&at_4.tables[&id], 4).await.unwrap();
        assert_eq!((rows.files.len(), rows.files[1].deleted_inline.as_slice()), (2, [3].as_slice()));
        assert_eq!(rows.inlined[0].row_ids, [21]);
        assert!(matches!(catalog.at(3).await, Err(Error::NotFound(_))));
        assert!(matches!(catalog.data(&at_4.tables[&id], 3).await, Err(Error::NotFound(_))));

        // All but the newest, which cannot expire.
        let expired = catalog.expire(&versions(&[0, 1, 2, 4, 5, 6, 7, 99])).await.unwrap();
        assert_eq!((expired.snapshots.len(), expired.files), (6, 3));
        assert_eq!(catalog.snapshots().await.unwrap().len(), 1);
        let scheduled: BTreeSet<String> =
            catalog.scheduled_files().await.unwrap().into_iter().map(|file| file.path).collect();
        let expected = ["/abs/b".to_string(), format!("{root}main/gone/c"), format!("{root}main/t/d1")];
        assert_eq!(scheduled, expected.into());
        // Files scheduled for deletion stay in the list of referenced paths until they are deleted.
        assert_eq!(catalog.referenced_paths().await.unwrap(), all);
        assert_eq!(data(catalog, id).await, now);
        assert_eq!(*catalog.head().await.unwrap(), *state);

        let ids: Vec<i64> = catalog.scheduled_files().await.unwrap().iter().map(|file| file.id).collect();
        catalog.unschedule(&ids[..2]).await.unwrap();
        assert_eq!(catalog.scheduled_files().await.unwrap().len(), 1);
        catalog.unschedule(&ids).await.unwrap();
        let referenced: BTreeSet<String> =
            ["main/t/a", "main/t/d2"].iter().map(|path| format!("{root}{path}")).collect();
        assert_eq!(catalog.referenced_paths().await.unwrap(), referenced);
        assert_eq!(catalog.expire(&versions(&[7])).await.unwrap(), Default::default());

        // Commits still work.
        change(catalog, |transaction| transaction.changes_of(id).added.push(file("e", 0, 1))).await;
        assert_eq!(catalog.head().await.unwrap().snapshot, 8);
    });
}

#[test]
fn snapshots_expire_by_age() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        for name in ["a", "b", "c"] {
            create_table_committed(&lake.catalog, name).await;
        }
        let times: Vec<String> =
            lake.catalog.snapshots().await.unwrap().into_iter().map(|one| one.time).collect();
        let older = |time: &str| Expiry::OlderThan(time.to_string());
        assert_eq!(lake.catalog.expire(&older("2001-01-01")).await.unwrap().snapshots.len(), 0);
        let expired = lake.catalog.expire(&older(&times[2])).await.unwrap();
        assert_eq!(expired.snapshots.iter().map(|one| one.snapshot).collect::<Vec<_>>(), [0, 1]);
        lake.catalog.expire(&older("9999-01-01")).await.unwrap();
        assert_eq!(lake.catalog.snapshots().await.unwrap().len(), 1);
        assert!(matches!(lake.catalog.expire(&older("soon")).await, Err(Error::NotFound(_))));
    });
}

#[test]
fn transactions_older_than_an_expiry_conflict() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let mut own = begin(&lake.catalog).await;
        own.changes_of(id).added.push(file("mine", 0, 1));
        for number in 0..3 {
            change(&lake.catalog, |transaction| insert_inlined_rows(transaction, id, &[number])).await;
        }
        lake.catalog.expire(&versions(&[2, 3])).await.unwrap();
        assert!(is_conflict(&commit(&lake.catalog, &own).await));
    });
}

fn names_of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn writers_are_registered_until_their_transaction_ends() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        assert!(catalog.expire_and_list_writers().await.unwrap().is_empty());
        for name in ["one", "other", "back"] {
            assert!(catalog.register_writer(name).await.unwrap());
        }
        assert_eq!(catalog.expire_and_list_writers().await.unwrap(), names_of(&["back", "one", "other"]));
        catalog.unregister_writers(&names_of(&["back"])).await.unwrap();
        let mut own = begin(catalog).await;
        own.changes_of(id).added.push(file("one-0", 0, 1));
        own.writers = names_of(&["one"]);
        commit(catalog, &own).await.unwrap();
        assert_eq!(catalog.expire_and_list_writers().await.unwrap(), names_of(&["other"]));
        // A conflict leaves them registered: their files exist until they are removed.
        let mut late = begin(catalog).await;
        late.changes_of(id).added.push(file("other-0", 0, 1));
        late.writers = names_of(&["other"]);
        change(catalog, |transaction| drop_table(transaction, id)).await;
        assert!(is_conflict(&commit(catalog, &late).await));
        assert_eq!(catalog.expire_and_list_writers().await.unwrap(), names_of(&["other"]));
    });
}

#[test]
fn writers_that_miss_heartbeats_cannot_commit() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let id = create_table_committed(catalog, "t").await;
        for name in ["silent", "still"] {
            catalog.register_writer(name).await.unwrap();
        }
        let back = WRITER_SILENCE.as_secs() + 2;
        lake.execute(&format!("UPDATE harrier_writer SET seen = seen - {back}")).await;
        catalog.renew_writers(&names_of(&["still"])).await.unwrap();
        assert_eq!(catalog.expire_and_list_writers().await.unwrap(), names_of(&["still"]));
        // Too late.
        catalog.renew_writers(&names_of(&["silent", "still"])).await.unwrap();
        for (names, commits) in [(&["silent", "still"][..], false), (&["silent"], false), (&["still"], true)]
        {
            let mut own = begin(catalog).await;
            own.changes_of(id).added.push(file(names[0], 0, 1));
            own.writers = names_of(names);
            let outcome = commit(catalog, &own).await;
            assert_eq!(outcome.is_ok(), commits, "{names:?}: {outcome:?}");
            assert!(commits || is_conflict(&outcome), "{outcome:?}");
        }
    });
}

#[test]
fn writers_of_ended_processes_are_removed_at_once() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        for name in ["dead", "alive"] {
            lake.catalog.register_writer(name).await.unwrap();
        }
        // The same process id, of an earlier process.
        let earlier = "UPDATE harrier_writer SET process = process || '0' WHERE name = 'dead'";
        lake.execute(earlier).await;
        assert_eq!(lake.catalog.expire_and_list_writers().await.unwrap(), names_of(&["alive"]));
    });
}

#[test]
fn duckdb_reads_after_expiry_and_cleans_up_scheduled_files() {
    if skips_servers() {
        return;
    }
    on_both(async |kind| {
        let lake = lake(kind).await;
        duckdb(
            &lake.url,
            "attach()\nrun('CREATE TABLE t AS SELECT range AS a FROM range(100)')\nrun('CREATE TABLE u AS SELECT 1 AS a')\n\
             run('DELETE FROM t WHERE a < 50')\nrun('TRUNCATE t')\nrun('INSERT INTO t SELECT range FROM range(20)')\nrun('DROP TABLE u')",
        );
        let expired = lake.catalog.expire(&Expiry::OlderThan("9999-01-01".into())).await.unwrap();
        assert!(expired.files >= 2, "{expired:?}");
        let paths: Vec<String> =
            lake.catalog.scheduled_files().await.unwrap().into_iter().map(|file| file.path).collect();
        assert!(paths.iter().all(|path| std::path::Path::new(path).is_file()), "{paths:?}");
        let output = duckdb(
            &lake.url,
            "attach()\nshow('SELECT count(*) FROM t')\nrun(\"CALL ducklake_cleanup_old_files('l', cleanup_all => true)\")\n\
             show('SELECT count(*) FROM t')",
        );
        assert_eq!(output, "20\n20");
        assert!(lake.catalog.scheduled_files().await.unwrap().is_empty());
        assert!(paths.iter().all(|path| !std::path::Path::new(path).exists()));
        for path in lake.catalog.referenced_paths().await.unwrap() {
            assert!(std::path::Path::new(&path).is_file(), "{path}");
        }
    });
}
