//! Errors for databases that are no warehouse, or no usable one: each names its reason.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use harrier_catalog::{Catalog, CommitNote, Error};
use tempfile::TempDir;

async fn sqlite(path: &Path, sql: &str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_string())).execute(&pool).await.unwrap();
    pool.close().await;
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

#[test]
fn databases_without_a_warehouse_are_not_found() {
    run(async {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("text"), "this is no database, whatever else it may be".repeat(100)).unwrap();
        std::fs::write(path("empty"), "").unwrap();
        sqlite(&path("other.sqlite"), "CREATE TABLE t (a)").await;
        for (name, says) in [
            ("missing", "does not exist"),
            ("", "is a folder"),
            ("text", "not an SQLite database"),
            ("empty", "no DuckLake tables"),
            ("other.sqlite", "no DuckLake tables"),
        ] {
            match Catalog::open(&url(&path(name))).await {
                Err(Error::NotFound(message)) => assert!(message.contains(says), "{name}: {message}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(!path("missing").exists());
        let nowhere = Catalog::create(&url(&path("no/where.sqlite")), "/data/").await;
        assert!(matches!(nowhere, Err(Error::NotFound(_))), "{nowhere:?}");
        let text = Catalog::create(&url(&path("text")), "/data/").await;
        assert!(matches!(text, Err(Error::NotFound(_))), "{text:?}");
        for url in ["mysql://host/db", "lake.sqlite", ""] {
            assert!(matches!(Catalog::open(url).await, Err(Error::Unsupported(_))), "{url}");
        }
        let data_path = Catalog::create(&url(&path("new.sqlite")), "/no/slash").await;
        assert!(matches!(data_path, Err(Error::Unsupported(_))), "{data_path:?}");
        // A warehouse may be created in a database that has other tables.
        Catalog::create(&url(&path("other.sqlite")), "/data/").await.unwrap();
    });
}

#[test]
fn missing_and_unreachable_databases_are_errors() {
    if skips_servers() {
        return;
    }
    run(async {
        let port = server().port;
        let missing = Catalog::open(&format!("postgres://harrier@127.0.0.1:{port}/missing")).await;
        assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
        let empty = Catalog::open(&server().new_database()).await;
        assert!(matches!(empty, Err(Error::NotFound(_))), "{empty:?}");
        let closed = Catalog::open("postgres://harrier@127.0.0.1:1/missing").await;
        assert!(matches!(closed, Err(Error::Database(_))), "{closed:?}");
    });
}

#[test]
fn unsupported_versions_encryption_and_corruption_are_errors() {
    run(async {
        for (sql, expected) in [
            ("UPDATE ducklake_metadata SET value = '2.0' WHERE key = 'version'", "version 2.0"),
            ("UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", "encrypted"),
            ("DELETE FROM ducklake_metadata WHERE key = 'version'", "does not name the version"),
            ("DELETE FROM ducklake_snapshot", "no snapshot"),
            ("UPDATE ducklake_snapshot SET schema_version = 'x'", "where a number belongs"),
            ("UPDATE ducklake_column SET column_name = NULL", "where text belongs"),
            ("UPDATE ducklake_table SET schema_id = 77", "does not exist"),
            ("UPDATE ducklake_column SET parent_column = 77", "part of one that does not exist"),
            ("UPDATE ducklake_column SET parent_column = 1", "part of one that does not exist"),
            ("DROP TABLE ducklake_view", "no such table"),
        ] {
            let lake = lake(Kind::Sqlite).await;
            create_table_committed(&lake.catalog, "t").await;
            sqlite(&lake.folder.path().join("lake.sqlite"), sql).await;
            let outcome = match Catalog::open(&lake.url).await {
                Ok(catalog) => catalog.head().await.map(|_| ()),
                Err(error) => Err(error),
            };
            let message = outcome.unwrap_err().to_string();
            assert!(message.contains(expected), "{sql}: {message}");
        }
    });
}

#[test]
fn unsupported_tables_are_excluded_and_the_others_usable() {
    run(async {
        for (sql, reason) in [
            ("UPDATE ducklake_column SET column_type = 'geometry' WHERE table_id = 1", "type geometry"),
            ("UPDATE ducklake_partition_column SET transform = 'zorder'", "partitioned by zorder"),
        ] {
            let lake = lake(Kind::Sqlite).await;
            change(&lake.catalog, |transaction| {
                let id = create_table(transaction, 0, "t", integers("a"));
                alter(transaction, id, |table| {
                    let transform = harrier_catalog::state::Transform::Identity;
                    table.partition = vec![harrier_catalog::state::PartitionKey { column: 1, transform }];
                });
            })
            .await;
            let other = create_table_committed(&lake.catalog, "other").await;
            sqlite(&lake.folder.path().join("lake.sqlite"), sql).await;
            let catalog = Catalog::open(&lake.url).await.unwrap();
            let head = catalog.head().await.unwrap();
            assert_eq!(names(&head), ["main.other"]);
            assert!(head.unusable(0, "t").unwrap().contains(reason));
            change(&catalog, |transaction| insert_inlined_rows(transaction, other, &[1])).await;
            // Its name is reserved, at the latest when the transaction commits.
            let mut own = begin(&catalog).await;
            create_table(&mut own, 0, "t", integers("a"));
            change(&catalog, |transaction| insert_inlined_rows(transaction, other, &[1])).await;
            assert!(is_conflict(&commit(&catalog, &own).await));
        }
    });
}

#[test]
fn invalid_transactions_are_refused() {
    run(async {
        let lake = lake(Kind::Sqlite).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let refused = async |change: &dyn Fn(&mut harrier_catalog::Transaction)| {
            let mut own = begin(&lake.catalog).await;
            change(&mut own);
            commit(&lake.catalog, &own).await.unwrap_err().to_string()
        };
        let message = refused(&|own| own.state_mut().schemas.clear()).await;
        assert!(message.contains("without its schema"), "{message}");
        let rename = |own: &mut harrier_catalog::Transaction| {
            std::sync::Arc::make_mut(own.state_mut().schemas.get_mut(&0).unwrap()).name = "x".into();
        };
        let message = refused(&rename).await;
        assert!(message.contains("cannot be renamed"), "{message}");
        let message =
            refused(&|own| drop(own.state_mut().options.insert("version".into(), "3".into()))).await;
        assert!(message.contains("no option"), "{message}");
        let message = refused(&|own| alter(own, id, |table| table.name = "a\0b".into())).await;
        assert!(message.contains("code 0"), "{message}");
        let message = refused(&|own| own.changes_of(id).inlined.push(vec![])).await;
        assert!(message.contains("0 cells"), "{message}");
        let partitioned = |own: &mut harrier_catalog::Transaction| {
            let mut new_file = file("1", 0, 1);
            new_file.partition_values.push(None);
            own.changes_of(id).added.push(new_file);
        };
        let message = refused(&partitioned).await;
        assert!(message.contains("partition values"), "{message}");
        assert_eq!(lake.catalog.head().await.unwrap().snapshot, 1);
    });
}

#[test]
fn read_only_sqlite_catalogs_can_be_read() {
    run(async {
        let lake = lake(Kind::Sqlite).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        drop(lake.catalog);
        let folder = lake.folder.path();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        set(&folder.join("lake.sqlite"), 0o444);
        set(folder, 0o555);
        // Root may write everywhere: so another user tries, with a copy of this program that everyone may
        // run.
        let copy = TempDir::new().unwrap();
        let mut command = match is_root() {
            false => Command::new(std::env::current_exe().unwrap()),
            true => {
                set(copy.path(), 0o755);
                let program = copy.path().join("test");
                std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
                set(&program, 0o755);
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
                command
            }
        };
        let output = command
            .args(["errors::reader", "--exact", "--ignored", "--nocapture"])
            .env("HARRIER_CATALOG_URL", &lake.url)
            .env("HARRIER_CATALOG_TABLE", id.to_string())
            .output()
            .unwrap();
        set(folder, 0o755);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8_lossy(&id.stdout).trim() == "0"
}

/// Not a test of its own: the child process, of a user without write permission.
#[test]
#[ignore = "run by the test above, as somebody who may not write"]
fn reader() {
    let (Ok(url), Ok(table)) = (std::env::var("HARRIER_CATALOG_URL"), std::env::var("HARRIER_CATALOG_TABLE"))
    else {
        return;
    };
    run(async {
        let catalog = Catalog::open(&url).await.unwrap();
        let table: i64 = table.parse().unwrap();
        data(&catalog, table).await;
        let mut own = begin(&catalog).await;
        insert_inlined_rows(&mut own, table, &[1]);
        let outcome = catalog.commit(&own, &CommitNote::default()).await;
        assert!(matches!(outcome, Err(Error::ReadOnly(_))), "{outcome:?}");
        data(&catalog, table).await;
    });
}

#[test]
fn read_only_postgresql_is_an_error() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let id = create_table_committed(&lake.catalog, "t").await;
        let database = lake.url.rsplit_once('/').unwrap().1;
        server().psql(
            database,
            "CREATE ROLE reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
        );
        let catalog = Catalog::open(&lake.url.replace("harrier@", "reader@")).await.unwrap();
        data(&catalog, id).await;
        let mut own = begin(&catalog).await;
        insert_inlined_rows(&mut own, id, &[1]);
        let outcome = commit(&catalog, &own).await;
        assert!(matches!(outcome, Err(Error::ReadOnly(_))), "{outcome:?}");
    });
}
