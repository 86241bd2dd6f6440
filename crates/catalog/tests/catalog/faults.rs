//! Fault injection in commits: a commit is atomic whatever fails at whichever step, and the caller learns its
//! outcome.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use harrier_catalog::files::TableData;
use harrier_catalog::state::{PartitionKey, State, Transform};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, CommitNote, Error, Hook, Step, Transaction};
use tokio::sync::Notify;

/// All contents of a catalog.
async fn catalog_contents(catalog: &Catalog) -> (Arc<State>, Vec<Arc<TableData>>, usize) {
    let head = catalog.head().await.unwrap();
    let mut rows = Vec::new();
    for table in head.tables.values() {
        rows.push(catalog.data(table, head.snapshot).await.unwrap());
    }
    (head, rows, catalog.snapshots().await.unwrap().len())
}

async fn fixture(kind: Kind) -> (Lake, i64) {
    let lake = lake(kind).await;
    let id = create_table_committed(&lake.catalog, "t").await;
    change(&lake.catalog, |transaction| {
        transaction.changes_of(id).added.extend([file("0", 0, 10), file("1", 10, 10)]);
        insert_inlined_rows(transaction, id, &[20, 21]);
    })
    .await;
    (lake, id)
}

/// A transaction of nearly all kinds of changes.
async fn transaction_of_all_changes(catalog: &Catalog, id: i64) -> Transaction {
    let files = data(catalog, id).await.files;
    let mut transaction = begin(catalog).await;
    let s = create_schema(&mut transaction, "s");
    let new = create_table(&mut transaction, s, "new", integers("a"));
    transaction.changes_of(new).added.push(file("2", 0, 10));
    alter(&mut transaction, id, |table| {
        table.name = "renamed".into();
        table.columns.push(column(2, "b", Varchar));
        table.next_column = 3;
        table.partition = vec![PartitionKey { column: 1, transform: Transform::Bucket(2) }];
        table.comment = Some("x".into());
        table.options.insert("a".into(), "b".into());
    });
    let v = transaction.allocate_object();
    transaction.state_mut().views.insert(v, Arc::new(view(v, s, "v", "SELECT 1")));
    let changes = transaction.changes_of(id);
    changes.deleted.insert(files[0].id, inline_delete(&[1, 2]));
    changes.removed.insert(files[1].id);
    changes.deleted_inlined.insert((1, 20));
    changes.inlined.push(vec![harrier_catalog::files::Cell::Integer(5), harrier_catalog::files::Cell::Null]);
    transaction
}

fn broken_connection() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other("broken by the test"))
}

fn fail_at(step: Step) -> Hook {
    Arc::new(move |now| Box::pin(async move { if now == step { Err(broken_connection()) } else { Ok(()) } }))
}

#[test]
fn failure_at_any_statement_rolls_back() {
    on_both(async |kind| {
        let (lake, id) = fixture(kind).await;
        let catalog = &lake.catalog;
        let before = catalog_contents(catalog).await;
        let transaction = transaction_of_all_changes(catalog, id).await;
        let mut steps: Vec<Step> = Vec::new();
        for number in 0.. {
            let step = Step::Statement(number);
            catalog.set_hook(Some(fail_at(step)));
            if commit(catalog, &transaction).await.is_ok() {
                break;
            }
            steps.push(step);
            assert_eq!(catalog_contents(catalog).await, before, "{step:?}");
        }
        assert!(steps.len() > 20, "only {} statements", steps.len());
        // The undisturbed commit has done all of it.
        let head = catalog.head().await.unwrap();
        assert_eq!(names(&head), ["main.renamed", "s.new"]);
        assert_eq!(head.snapshot, before.0.snapshot + 1);
    });
}

#[test]
fn outcome_of_a_failed_commit_is_looked_up() {
    on_both(async |kind| {
        for (step, happened) in [(Step::BeforeCommit, false), (Step::AfterCommit, true)] {
            let (lake, id) = fixture(kind).await;
            let catalog = &lake.catalog;
            let before = catalog_contents(catalog).await;
            let transaction = transaction_of_all_changes(catalog, id).await;
            catalog.set_hook(Some(fail_at(step)));
            let outcome = commit(catalog, &transaction).await;
            catalog.set_hook(None);
            if happened {
                assert_eq!(outcome.unwrap().snapshot, before.0.snapshot + 1);
                // A retry does not apply it twice: it conflicts with itself.
                assert!(is_conflict(&commit(catalog, &transaction).await));
            } else {
                assert!(matches!(outcome, Err(Error::Database(_))), "{outcome:?}");
                assert_eq!(catalog_contents(catalog).await, before);
                commit(catalog, &transaction).await.unwrap();
            }
        }
    });
}

#[test]
fn dropped_commits_roll_back() {
    on_both(async |kind| {
        let (lake, id) = fixture(kind).await;
        let catalog = &lake.catalog;
        let before = catalog_contents(catalog).await;
        let transaction = transaction_of_all_changes(catalog, id).await;
        for number in [0, 1, 5, 12, 20] {
            let reached = Arc::new(Notify::new());
            let signal = Arc::clone(&reached);
            let hook: Hook = Arc::new(move |step| {
                let signal = Arc::clone(&signal);
                Box::pin(async move {
                    if step == Step::Statement(number) {
                        signal.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Ok(())
                })
            });
            catalog.set_hook(Some(hook));
            tokio::select! {
                outcome = commit(catalog, &transaction) => panic!("{outcome:?}"),
                () = reached.notified() => {}
            }
            catalog.set_hook(None);
            assert_eq!(catalog_contents(catalog).await, before, "at statement {number}");
        }
        commit(catalog, &transaction).await.unwrap();
    });
}

// PostgreSQL ends the connection.

/// Ends every connection to the warehouse's database when a commit reaches this step, the first `times_max`
/// times. Returns the hook and the count of times.
fn end_connections_at(url: &str, step: Step, times_max: usize) -> (Hook, Arc<AtomicUsize>) {
    let (url, times) = (url.to_string(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&times);
    let hook: Hook = Arc::new(move |now| {
        if now == step && count.fetch_add(1, Ordering::Relaxed) < times_max {
            end_connections(&url);
        }
        Box::pin(async { Ok(()) })
    });
    (hook, times)
}

#[test]
fn lost_connections_at_any_statement_roll_back() {
    if skips_servers() {
        return;
    }
    run(async {
        let (lake, id) = fixture(Kind::Postgres).await;
        let catalog = &lake.catalog;
        let before = catalog_contents(catalog).await;
        let transaction = transaction_of_all_changes(catalog, id).await;
        for step in [Step::Statement(0), Step::Statement(9), Step::Statement(25), Step::BeforeCommit] {
            let (hook, _) = end_connections_at(&lake.url, step, usize::MAX);
            catalog.set_hook(Some(hook));
            let outcome = commit(catalog, &transaction).await;
            assert!(matches!(outcome, Err(Error::Database(_))), "{step:?}: {outcome:?}");
            catalog.set_hook(None);
            assert_eq!(catalog_contents(catalog).await, before, "{step:?}");
        }
        commit(catalog, &transaction).await.unwrap();
    });
}

#[test]
fn commits_retry_after_one_lost_connection() {
    if skips_servers() {
        return;
    }
    run(async {
        for (step, attempts) in [
            (Step::Statement(0), 2),
            (Step::Statement(9), 2),
            (Step::BeforeCommit, 2),
            // It has committed, and is not retried.
            (Step::AfterCommit, 1),
        ] {
            let (lake, id) = fixture(Kind::Postgres).await;
            let catalog = &lake.catalog;
            let before = catalog_contents(catalog).await;
            let transaction = transaction_of_all_changes(catalog, id).await;
            let (hook, times) = end_connections_at(&lake.url, step, 1);
            catalog.set_hook(Some(hook));
            let committed =
                commit(catalog, &transaction).await.unwrap_or_else(|error| panic!("{step:?}: {error}"));
            catalog.set_hook(None);
            assert_eq!(times.load(Ordering::Relaxed), attempts, "{step:?}");
            assert_eq!(committed.snapshot, before.0.snapshot + 1, "{step:?}");
            // Another process sees it once.
            let other = Catalog::open(&lake.url).await.unwrap();
            let after = catalog_contents(&other).await;
            assert_eq!((after.0.snapshot, after.2), (committed.snapshot, before.2 + 1), "{step:?}");
            assert_eq!(names(&after.0), ["main.renamed", "s.new"], "{step:?}");
            let rows: usize = after.1.iter().map(|data| data.files.len()).sum();
            let undisturbed = {
                let (lake, id) = fixture(Kind::Postgres).await;
                let transaction = transaction_of_all_changes(&lake.catalog, id).await;
                commit(&lake.catalog, &transaction).await.unwrap();
                catalog_contents(&lake.catalog).await.1.iter().map(|data| data.files.len()).sum::<usize>()
            };
            assert_eq!(rows, undisturbed, "{step:?}");
        }
    });
}

#[test]
fn reads_retry_after_a_lost_connection() {
    if skips_servers() {
        return;
    }
    run(async {
        let (lake, id) = fixture(Kind::Postgres).await;
        let before = catalog_contents(&lake.catalog).await;
        let files = lake.catalog.referenced_paths().await.unwrap();
        for _ in 0..3 {
            end_connections(&lake.url);
            // A catalog with an empty cache.
            let catalog = Catalog::open(&lake.url).await.unwrap();
            end_connections(&lake.url);
            assert_eq!(catalog_contents(&catalog).await, before);
            end_connections(&lake.url);
            assert_eq!(catalog.referenced_paths().await.unwrap(), files);
            end_connections(&lake.url);
            assert!(catalog.register_writer("w").await.unwrap());
            end_connections(&lake.url);
            assert_eq!(catalog.expire_and_list_writers().await.unwrap().len(), 1);
            end_connections(&lake.url);
            catalog.unregister_writers(&["w".to_string()].into()).await.unwrap();
            assert!(catalog.column_stats(id, &[1], 0, 10).await.is_ok());
        }
    });
}

#[test]
fn dropped_commits_are_not_retried() {
    if skips_servers() {
        return;
    }
    run(async {
        let (lake, id) = fixture(Kind::Postgres).await;
        let catalog = &lake.catalog;
        let before = catalog_contents(catalog).await;
        let transaction = transaction_of_all_changes(catalog, id).await;
        let (hook, times) = end_connections_at(&lake.url, Step::Statement(3), 1);
        catalog.set_hook(Some(hook));
        let outcome = catalog.commit_while(&transaction, &CommitNote::default(), &|| false).await;
        catalog.set_hook(None);
        assert!(matches!(outcome, Err(Error::Database(_))), "{outcome:?}");
        assert_eq!(times.load(Ordering::Relaxed), 1);
        assert_eq!(catalog_contents(catalog).await, before);
    });
}

#[test]
fn unreachable_outcomes_are_unknown() {
    if skips_servers() {
        return;
    }
    run(async {
        let (lake, id) = fixture(Kind::Postgres).await;
        let transaction = transaction_of_all_changes(&lake.catalog, id).await;
        let url = lake.url.clone();
        let hook: Hook = Arc::new(move |step| {
            let is_lost = step == Step::AfterCommit;
            if is_lost {
                let database = url.rsplit_once('/').unwrap().1;
                server().psql("postgres", &format!("ALTER DATABASE {database} ALLOW_CONNECTIONS false"));
                end_connections(&url);
            }
            Box::pin(async move { if is_lost { Err(broken_connection()) } else { Ok(()) } })
        });
        lake.catalog.set_hook(Some(hook));
        let outcome = commit(&lake.catalog, &transaction).await;
        match outcome {
            Err(Error::Unknown { transaction: named, .. }) => assert_eq!(named, transaction.id.to_string()),
            other => panic!("{other:?}"),
        }
    });
}

// The process is killed.

/// Not a test of its own: the child process that is killed.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child() {
    let (Ok(url), Ok(step)) = (std::env::var("HARRIER_CATALOG_URL"), std::env::var("HARRIER_CATALOG_STEP"))
    else {
        return;
    };
    run(async {
        let catalog = Catalog::open(&url).await.unwrap();
        let id = catalog.head().await.unwrap().table(0, "t").unwrap().id;
        if step == "any" {
            println!("begun");
            for number in 0.. {
                change(&catalog, |transaction| {
                    transaction.changes_of(id).added.push(file(&format!("{number}"), 0, 5));
                    insert_inlined_rows(transaction, id, &[1, 2]);
                })
                .await;
            }
        }
        let step: usize = step.parse().unwrap();
        let hook: Hook = Arc::new(move |now| {
            Box::pin(async move {
                if now == Step::Statement(step) || now == Step::BeforeCommit {
                    println!("reached");
                    std::io::stdout().flush().unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
        });
        let transaction = transaction_of_all_changes(&catalog, id).await;
        catalog.set_hook(Some(hook));
        drop(commit(&catalog, &transaction).await);
    });
}

/// Runs `child` until it prints `word`, waits for `after`, and kills it.
fn kill_child(url: &str, step: &str, word: &str, after: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["faults::child", "--exact", "--ignored", "--nocapture"])
        .env("HARRIER_CATALOG_URL", url)
        .env("HARRIER_CATALOG_STEP", step)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let printed = lines.map_while(|line| line.ok()).any(|line| line.ends_with(word));
    assert!(printed, "the child ended early");
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_processes_roll_back() {
    on_both(async |kind| {
        let (lake, id) = fixture(kind).await;
        let before = catalog_contents(&lake.catalog).await;
        for step in ["0", "10", "25", "1000"] {
            kill_child(&lake.url, step, "reached", Duration::ZERO);
            assert_eq!(catalog_contents(&lake.catalog).await, before, "at {step}");
            assert_eq!(catalog_contents(&Catalog::open(&lake.url).await.unwrap()).await, before, "at {step}");
        }
        let transaction = transaction_of_all_changes(&lake.catalog, id).await;
        commit(&lake.catalog, &transaction).await.unwrap();
    });
}

#[test]
fn processes_killed_at_random_times_leave_consistent_snapshots() {
    on_both(async |kind| {
        let (lake, id) = fixture(kind).await;
        for round in 0..6u64 {
            kill_child(&lake.url, "any", "begun", Duration::from_millis(60 + round * 37));
            let catalog = Catalog::open(&lake.url).await.unwrap();
            let (head, rows, snapshots) = catalog_contents(&catalog).await;
            assert_eq!(snapshots as i64, head.snapshot + 1);
            // Each commit added one file and two inlined rows.
            let commits = head.snapshot - 2;
            let inlined_count: usize = rows[0].inlined.iter().map(|rows| rows.rows.len()).sum();
            assert_eq!((rows[0].files.len() as i64 - 2, inlined_count as i64 - 2), (commits, commits * 2));
            let stats = catalog.table_stats(id).await.unwrap().unwrap();
            assert_eq!(stats.next_row_id, 22 + commits * 7);
        }
    });
}
