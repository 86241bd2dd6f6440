//! Version of Harrier's catalog layout: the next commit upgrades an earlier version, and a later one is
//! refused.

use crate::support::*;
use harrier_catalog::{Catalog, CommitNote, Error, Hook, OWN_LAYOUT, PROGRAM, Step};
use sqlx::Row;
use std::sync::Arc;

/// The version stored in the database, read without the catalog.
async fn stored_version(lake: &Lake) -> Vec<(String, String)> {
    let sql = "SELECT \"key\", \"value\" FROM ducklake_metadata WHERE \"key\" IN ('harrier_layout', 'harrier_version') ORDER BY 1";
    let pair = |key: String, value: String| (key, value);
    match lake.url.starts_with("sqlite:") {
        true => {
            let pool = sqlx::SqlitePool::connect(&lake.url).await.unwrap();
            let rows = sqlx::query(sql).fetch_all(&pool).await.unwrap();
            pool.close().await;
            rows.iter().map(|row| pair(row.get(0), row.get(1))).collect()
        }
        false => {
            let pool = sqlx::PgPool::connect(&lake.url).await.unwrap();
            let rows = sqlx::query(sql).fetch_all(&pool).await.unwrap();
            pool.close().await;
            rows.iter().map(|row| pair(row.get(0), row.get(1))).collect()
        }
    }
}

fn current_version() -> Vec<(String, String)> {
    vec![
        ("harrier_layout".to_string(), OWN_LAYOUT.to_string()),
        ("harrier_version".to_string(), PROGRAM.to_string()),
    ]
}

const FORGET: &str = "DELETE FROM ducklake_metadata WHERE \"key\" IN ('harrier_layout', 'harrier_version')";

#[test]
fn earlier_layouts_are_upgraded_atomically_by_the_next_commit() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        assert_eq!(stored_version(&lake).await, current_version());
        for earlier in
            [FORGET, "UPDATE ducklake_metadata SET \"value\" = '0.0.1' WHERE \"key\" = 'harrier_version'"]
        {
            lake.execute(earlier).await;
            let before = stored_version(&lake).await;
            assert_ne!(before, current_version());
            // Reads change nothing.
            let catalog = Catalog::open(&lake.url).await.unwrap();
            let tables = catalog.head().await.unwrap().tables.len();
            assert_eq!(stored_version(&lake).await, before);
            let mut transaction = begin(&catalog).await;
            create_table(&mut transaction, 0, &format!("t{tables}"), integers("a"));
            for step in [Step::Statement(0), Step::Statement(1), Step::Statement(2), Step::BeforeCommit] {
                let hook: Hook = Arc::new(move |now| {
                    Box::pin(async move {
                        match now == step {
                            true => Err(sqlx::Error::Io(std::io::Error::other("broken by the test"))),
                            false => Ok(()),
                        }
                    })
                });
                catalog.set_hook(Some(hook));
                catalog.commit(&transaction, &CommitNote::default()).await.unwrap_err();
                assert_eq!(stored_version(&lake).await, before, "{step:?}");
            }
            catalog.set_hook(None);
            commit(&catalog, &transaction).await.unwrap();
            assert_eq!(stored_version(&lake).await, current_version());
            assert_eq!(catalog.head().await.unwrap().tables.len(), tables + 1);
        }
        // None of it is an option of the warehouse.
        assert!(lake.catalog.head().await.unwrap().options.keys().all(|key| !key.starts_with("harrier_")));
    });
}

#[test]
fn later_layouts_are_refused() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        create_table_committed(&lake.catalog, "t").await;
        let mut transaction = begin(&lake.catalog).await;
        create_table(&mut transaction, 0, "u", integers("a"));
        lake.execute("UPDATE ducklake_metadata SET \"value\" = '9.8.7' WHERE \"key\" = 'harrier_version'")
            .await;
        // Another release that writes the same layout does not matter.
        lake.catalog.head().await.unwrap();
        lake.execute("UPDATE ducklake_metadata SET \"value\" = '99' WHERE \"key\" = 'harrier_layout'").await;
        // Both for a catalog that is opened now and for one that was open already.
        for outcome in [
            Catalog::open(&lake.url).await.map(drop),
            lake.catalog.head().await.map(drop),
            commit(&lake.catalog, &transaction).await.map(drop),
        ] {
            let Err(Error::Refused(refusal)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(refusal.sqlstate, "0A000");
            assert!(refusal.message.contains("Harrier 9.8.7, in version 99"), "{refusal:?}");
            assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("9.8.7")), "{refusal:?}");
        }
        lake.execute("UPDATE ducklake_metadata SET \"value\" = 'new' WHERE \"key\" = 'harrier_layout'").await;
        assert!(matches!(lake.catalog.head().await, Err(Error::Corrupt(_))));
    });
}
