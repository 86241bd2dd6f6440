//! Conflict matrix of transactions: every kind of change against every other, in both orders.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::NewDeletes;
use harrier_catalog::state::{
    CHECK, DECLARED_TYPE_TAG, KEYS_TAG, PartitionKey, TABLE_PARTITIONS_OPTION, Transform,
};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, Error, Result, Transaction};

/// The state before both transactions: tables `t` (files 0 and 1, two inlined rows) and `u`, view `v`, an
/// empty schema `s`.
struct Fixture {
    lake: Lake,
    t: i64,
    u: i64,
    v: i64,
    s: i64,
    files: [i64; 2],
}

async fn fixture(kind: Kind) -> Fixture {
    let lake = lake(kind).await;
    let mut transaction = begin(&lake.catalog).await;
    let s = create_schema(&mut transaction, "s");
    let t = create_table(&mut transaction, 0, "t", integers("a"));
    let u = create_table(&mut transaction, 0, "u", integers("a"));
    let v = transaction.allocate_object();
    transaction.state_mut().views.insert(v, Arc::new(view(v, 0, "v", "SELECT 1")));
    transaction.changes_of(t).added.extend([file("0", 0, 10), file("1", 10, 10)]);
    insert_inlined_rows(&mut transaction, t, &[20, 21]);
    let created = commit(&lake.catalog, &transaction).await.unwrap().objects;
    let files = data(&lake.catalog, created[&t]).await.files;
    let files = [files[0].id, files[1].id];
    Fixture { t: created[&t], u: created[&u], v: created[&v], s: created[&s], files, lake }
}

/// A kind of change. The second transaction of a pair uses other file names.
type Change = (&'static str, fn(&Fixture, &mut Transaction));

const CHANGES: &[Change] = &[
    ("insert", |fixture, own| own.changes_of(fixture.t).added.push(file(&uuid(), 100, 5))),
    ("insert kept", |fixture, own| insert_inlined_rows(own, fixture.t, &[30])),
    ("delete 0 inline", |fixture, own| {
        own.changes_of(fixture.t).deleted.insert(fixture.files[0], inline_delete(&[1]));
    }),
    ("delete 0 by file", |fixture, own| {
        let deletes = NewDeletes::File { file: delete_file(&uuid(), 1), positions: [2].into() };
        own.changes_of(fixture.t).deleted.insert(fixture.files[0], deletes);
    }),
    ("delete 1 inline", |fixture, own| {
        own.changes_of(fixture.t).deleted.insert(fixture.files[1], inline_delete(&[1]));
    }),
    ("remove 1", |fixture, own| {
        own.changes_of(fixture.t).removed.insert(fixture.files[1]);
    }),
    ("delete kept 20", |fixture, own| {
        let version = own.base.schema_version.min(1);
        own.changes_of(fixture.t).deleted_inlined.insert((version, 20));
    }),
    ("delete kept 21", |fixture, own| {
        own.changes_of(fixture.t).deleted_inlined.insert((1, 21));
    }),
    ("truncate", |fixture, own| {
        let changes = own.changes_of(fixture.t);
        changes.removed.extend(fixture.files);
        (changes.removed_inlined, changes.replaces) = (true, true);
    }),
    ("compact 0", |fixture, own| {
        let changes = own.changes_of(fixture.t);
        changes.removed.insert(fixture.files[0]);
        changes.added.push(file(&uuid(), 0, 10));
        changes.compacts = true;
    }),
    ("flush", |fixture, own| {
        let changes = own.changes_of(fixture.t);
        changes.added.push(file(&uuid(), 20, 2));
        (changes.compacts, changes.removed_inlined) = (true, true);
    }),
    ("add column", |fixture, own| {
        alter(own, fixture.t, |table| {
            table.columns.push(column(2, "b", Int32));
            table.next_column = 3;
        })
    }),
    ("not null", |fixture, own| alter(own, fixture.t, |table| table.columns[0].nullable = false)),
    ("partition", |fixture, own| {
        alter(own, fixture.t, |table| {
            table.partition = vec![PartitionKey { column: 1, transform: Transform::Bucket(2) }]
        })
    }),
    ("divide", |fixture, own| {
        alter(own, fixture.t, |table| {
            drop(table.options.insert(TABLE_PARTITIONS_OPTION.into(), uuid()));
        })
    }),
    ("check", |fixture, own| {
        let keys = format!("{{{CHECK},\"name\":\"{}\"}}", uuid());
        alter(own, fixture.t, |table| drop(table.tags.insert(KEYS_TAG.into(), keys)))
    }),
    ("declare", |fixture, own| {
        alter(own, fixture.t, |table| {
            drop(table.columns[0].tags.insert(DECLARED_TYPE_TAG.into(), uuid()));
        })
    }),
    ("comment", |fixture, own| alter(own, fixture.t, |table| table.comment = Some(uuid()))),
    ("set option", |fixture, own| {
        alter(own, fixture.t, |table| drop(table.options.insert("target_file_size".into(), uuid())))
    }),
    ("rename t to n", |fixture, own| alter(own, fixture.t, |table| table.name = "n".into())),
    ("drop t", |fixture, own| drop_table(own, fixture.t)),
    ("create n", |_, own| {
        create_table(own, 0, "n", integers("a"));
    }),
    ("create view n", |_, own| {
        let id = own.allocate_object();
        own.state_mut().views.insert(id, Arc::new(view(id, 0, "n", "SELECT 2")));
    }),
    ("create m", |_, own| {
        create_table(own, 0, "m", integers("a"));
    }),
    ("create s.n", |fixture, own| {
        create_table(own, fixture.s, "n", integers("a"));
    }),
    ("create schema x", |_, own| {
        create_schema(own, "x");
    }),
    ("drop schema s", |fixture, own| drop(own.state_mut().schemas.remove(&fixture.s))),
    ("alter view v", |fixture, own| {
        Arc::make_mut(own.state_mut().views.get_mut(&fixture.v).unwrap()).sql = "SELECT 3".into()
    }),
    ("rename view v to n", |fixture, own| {
        Arc::make_mut(own.state_mut().views.get_mut(&fixture.v).unwrap()).name = "n".into()
    }),
    ("drop view v", |fixture, own| drop(own.state_mut().views.remove(&fixture.v))),
    ("insert into u", |fixture, own| own.changes_of(fixture.u).added.push(file(&uuid(), 0, 5))),
    ("drop u", |fixture, own| drop_table(own, fixture.u)),
];

/// Pairs that conflict: the committed change, and the later changes that conflict with it.
const CONFLICTS: &[(&str, &[&str])] = &[
    ("insert", &["truncate", "not null", "divide", "check", "declare"]),
    ("insert kept", &["truncate", "not null", "divide", "check", "declare"]),
    ("delete 0 inline", &["delete 0 inline", "delete 0 by file", "truncate", "compact 0"]),
    ("delete 0 by file", &["delete 0 inline", "delete 0 by file", "truncate", "compact 0"]),
    ("delete 1 inline", &["delete 1 inline", "remove 1", "truncate"]),
    ("remove 1", &["delete 1 inline", "remove 1", "truncate"]),
    ("delete kept 20", &["delete kept 20", "truncate", "flush"]),
    ("delete kept 21", &["delete kept 21", "truncate", "flush"]),
    (
        "truncate",
        &[
            "delete 0 inline",
            "delete 0 by file",
            "delete 1 inline",
            "remove 1",
            "delete kept 20",
            "delete kept 21",
            "truncate",
            "compact 0",
            "flush",
        ],
    ),
    ("compact 0", &["delete 0 inline", "delete 0 by file", "truncate", "compact 0", "flush"]),
    ("flush", &["delete kept 20", "delete kept 21", "truncate", "flush"]),
    ("add column", ALTERED),
    ("not null", ALTERED),
    ("partition", ALTERED),
    ("divide", ALTERED),
    ("check", ALTERED),
    ("declare", ALTERED),
    ("comment", ALTERED),
    (
        "rename t to n",
        &[
            "insert",
            "insert kept",
            "delete 0 inline",
            "delete 0 by file",
            "delete 1 inline",
            "remove 1",
            "delete kept 20",
            "delete kept 21",
            "truncate",
            "compact 0",
            "flush",
            "add column",
            "not null",
            "partition",
            "divide",
            "check",
            "declare",
            "comment",
            "rename t to n",
            "create n",
            "create view n",
            "rename view v to n",
        ],
    ),
    (
        "drop t",
        &[
            "insert",
            "insert kept",
            "delete 0 inline",
            "delete 0 by file",
            "delete 1 inline",
            "remove 1",
            "delete kept 20",
            "delete kept 21",
            "truncate",
            "compact 0",
            "flush",
            "add column",
            "not null",
            "partition",
            "divide",
            "check",
            "declare",
            "comment",
            "set option",
            "rename t to n",
            "drop t",
        ],
    ),
    ("create n", NAME),
    ("create view n", NAME),
    ("create m", &["create m"]),
    ("create s.n", &["create s.n", "drop schema s"]),
    ("create schema x", &["create schema x"]),
    ("drop schema s", &["create s.n", "drop schema s"]),
    ("alter view v", &["alter view v", "rename view v to n"]),
    (
        "rename view v to n",
        &["alter view v", "rename view v to n", "rename t to n", "create n", "create view n"],
    ),
    ("drop view v", &["alter view v", "rename view v to n", "drop view v"]),
    ("drop u", &["insert into u", "drop u"]),
];

const ALTERED: &[&str] = &[
    "insert",
    "insert kept",
    "delete 0 inline",
    "delete 0 by file",
    "delete 1 inline",
    "remove 1",
    "delete kept 20",
    "delete kept 21",
    "truncate",
    "compact 0",
    "flush",
    "add column",
    "not null",
    "partition",
    "divide",
    "check",
    "declare",
    "comment",
    "rename t to n",
];
const NAME: &[&str] = &["rename t to n", "create n", "create view n", "rename view v to n"];

fn expects_conflict(first: &str, second: &str) -> bool {
    CONFLICTS.iter().any(|(name, conflicts)| *name == first && conflicts.contains(&second))
}

/// When the second transaction of a pair sees the commit of the first.
#[derive(Debug, Clone, Copy)]
enum Rebase {
    AtCommit,
    /// At its next statement, as a read committed transaction.
    AtStatement,
}

async fn commit_pair(kind: Kind, rebase: Rebase, first: &Change, second: &Change) -> Result<Catalog> {
    let fixture = fixture(kind).await;
    let catalog = &fixture.lake.catalog;
    let (mut one, mut other) = (begin(catalog).await, begin(catalog).await);
    first.1(&fixture, &mut one);
    second.1(&fixture, &mut other);
    commit(catalog, &one).await.unwrap();
    let before = catalog.head().await.unwrap();
    let outcome = match rebase {
        Rebase::AtCommit => commit(catalog, &other).await,
        Rebase::AtStatement => match catalog.rebase(&mut other).await {
            // A transaction that has rebased onto the commit does not conflict with it afterwards.
            Ok(()) => Ok(commit(catalog, &other).await.unwrap()),
            Err(error) => Err(error),
        },
    };
    let after = catalog.head().await.unwrap();
    // In every case the catalog stays readable, and a conflict changes nothing.
    match &outcome {
        Ok(committed) => assert_eq!(committed.snapshot, before.snapshot + 1),
        Err(_) => assert_eq!(after, before),
    }
    for table in after.tables.values() {
        catalog.data(table, after.snapshot).await.unwrap();
    }
    outcome.map(|_| catalog.clone())
}

async fn check_all_pairs(kind: Kind, rebase: Rebase, skip: usize) {
    let mut wrong = Vec::new();
    for (place, (first, second)) in
        CHANGES.iter().flat_map(|one| CHANGES.iter().map(move |other| (one, other))).enumerate()
    {
        if place % skip != 0 {
            continue;
        }
        let outcome = commit_pair(kind, rebase, first, second).await;
        let conflicts = match &outcome {
            Ok(_) => false,
            Err(Error::Conflict(_)) => true,
            Err(other) => panic!("{} then {}: {other}", first.0, second.0),
        };
        if conflicts != expects_conflict(first.0, second.0) {
            wrong.push(format!(
                "{} then {}: {:?}",
                first.0,
                second.0,
                outcome.err().map(|error| error.to_string())
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn conflict_matrix_in_sqlite() {
    run(check_all_pairs(Kind::Sqlite, Rebase::AtCommit, 1));
}

#[test]
fn conflict_matrix_in_sqlite_read_committed() {
    run(check_all_pairs(Kind::Sqlite, Rebase::AtStatement, 1));
}

/// The rules do not depend on the database: a sample of the pairs shows that their queries work in
/// PostgreSQL.
#[test]
fn conflict_matrix_sample_in_postgresql() {
    if !skips_servers() {
        run(check_all_pairs(Kind::Postgres, Rebase::AtCommit, 7));
        run(check_all_pairs(Kind::Postgres, Rebase::AtStatement, 13));
    }
}

#[test]
fn conflict_messages_name_the_table_and_the_change() {
    run(async {
        let change = |name: &str| CHANGES.iter().find(|(of, _)| *of == name).unwrap();
        for (first, second, message) in [
            (
                "drop t",
                "insert",
                "could not serialize access: table \"t\" was dropped by another transaction",
            ),
            (
                "add column",
                "insert",
                "could not serialize access: table \"t\" was altered by another transaction",
            ),
            ("create n", "create n", "could not serialize access: \"n\" was created by another transaction"),
            (
                "compact 0",
                "delete 0 inline",
                "could not serialize access: table \"t\" was compacted by another transaction",
            ),
        ] {
            let outcome = commit_pair(Kind::Sqlite, Rebase::AtCommit, change(first), change(second)).await;
            assert_eq!(outcome.unwrap_err().to_string(), message);
        }
    });
}

#[test]
fn read_committed_rebases_until_a_conflict() {
    on_both(async |kind| {
        let fixture = fixture(kind).await;
        let catalog = &fixture.lake.catalog;
        let mut own = begin(catalog).await;
        own.changes_of(fixture.t).deleted.insert(fixture.files[0], inline_delete(&[1]));
        create_table(&mut own, 0, "mine", integers("a"));
        change(catalog, |other| {
            create_table(other, 0, "theirs", integers("a"));
            other.changes_of(fixture.t).added.push(file("2", 30, 5));
            other.changes_of(fixture.t).deleted.insert(fixture.files[1], inline_delete(&[1]));
        })
        .await;
        catalog.rebase(&mut own).await.unwrap();
        assert!(own.state.table(0, "theirs").is_some() && own.state.table(0, "mine").is_some());
        let savepoint = own.clone();
        // What it deletes now it has seen in the newer snapshot; what it deleted before, it has not.
        change(catalog, |other| {
            other.changes_of(fixture.t).deleted.insert(fixture.files[0], inline_delete(&[5]));
        })
        .await;
        let snapshot = own.base.snapshot;
        for _ in 0..2 {
            assert!(is_conflict(&catalog.rebase(&mut own).await));
            assert_eq!((own.base.snapshot, &own.data), (snapshot, &savepoint.data));
        }
        assert!(is_conflict(&commit(catalog, &own).await));
        // A later, unrelated snapshot does not resolve the conflict.
        change(catalog, |other| insert_inlined_rows(other, fixture.u, &[1])).await;
        assert!(is_conflict(&catalog.rebase(&mut own).await));
    });
}

/// Regressions found with two sessions: half of a transaction was committed, or its rows were read wrongly.
#[test]
fn read_committed_conflicts_with_changes_below_its_own() {
    on_both(async |kind| {
        let fixture = fixture(kind).await;
        let catalog = &fixture.lake.catalog;
        let mut inserts = begin(catalog).await;
        let before = inserts.clone();
        insert_inlined_rows(&mut inserts, fixture.t, &[30]);
        let mut deletes = begin(catalog).await;
        deletes.changes_of(fixture.t).deleted.insert(fixture.files[0], inline_delete(&[1]));
        let mut deletes_kept = begin(catalog).await;
        deletes_kept.changes_of(fixture.t).deleted_inlined.insert((1, 20));

        change(catalog, |other| {
            let changes = other.changes_of(fixture.t);
            changes.removed.insert(fixture.files[0]);
            changes.added.extend([file("2", 0, 10), file("3", 20, 2)]);
            (changes.compacts, changes.removed_inlined) = (true, true);
        })
        .await;
        for own in [&mut deletes, &mut deletes_kept] {
            assert!(is_conflict(&catalog.rebase(own).await));
        }
        // Appends do not conflict.
        catalog.rebase(&mut inserts).await.unwrap();

        let mut widened = inserts.clone();
        change(catalog, |other| {
            alter(other, fixture.t, |table| {
                table.columns.push(column(2, "b", Int32));
                table.next_column = 3;
            });
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut widened).await));

        change(catalog, |other| {
            drop_table(other, fixture.t);
            create_table(other, 0, "t", integers("a"));
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut inserts).await));
        // A savepoint from before the change goes on.
        let mut again = before;
        catalog.rebase(&mut again).await.unwrap();
        let t = again.state.table(0, "t").unwrap().id;
        insert_inlined_rows(&mut again, t, &[31]);
        catalog.rebase(&mut again).await.unwrap();
        commit(catalog, &again).await.unwrap();
    });
}

#[test]
fn ddl_conflicts_with_changes_below_its_own() {
    on_both(async |kind| {
        let fixture = fixture(kind).await;
        let catalog = &fixture.lake.catalog;
        let mut comments = begin(catalog).await;
        alter(&mut comments, fixture.t, |table| table.comment = Some(uuid()));
        let mut creates = begin(catalog).await;
        create_table(&mut creates, fixture.s, "n", integers("a"));
        let mut drops = begin(catalog).await;
        drops.state_mut().schemas.remove(&fixture.s);
        let mut sets = begin(catalog).await;
        alter(&mut sets, fixture.u, |table| drop(table.options.insert("own".into(), "1".into())));

        change(catalog, |other| {
            create_table(other, fixture.s, "m", integers("a"));
            drop_table(other, fixture.t);
            alter(other, fixture.u, |table| {
                table.options.insert("theirs".into(), "2".into());
                table.columns[0].nullable = false;
            });
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut comments).await));
        assert!(is_conflict(&catalog.rebase(&mut drops).await));
        catalog.rebase(&mut creates).await.unwrap();
        // Options do not conflict with other changes.
        catalog.rebase(&mut sets).await.unwrap();
        let u = &sets.state.tables[&fixture.u];
        assert_eq!((u.options.len(), u.columns[0].nullable), (2, false));
        commit(catalog, &sets).await.unwrap();
        assert_eq!(catalog.head().await.unwrap().tables[&fixture.u].options.len(), 2);

        change(catalog, |other| {
            let m = other.state.table(fixture.s, "m").unwrap().id;
            drop_table(other, m);
            other.state_mut().schemas.remove(&fixture.s);
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut creates).await));
    });
}

#[test]
fn unknown_change_kinds_conflict_with_deletes_and_alters_only() {
    run(async {
        let fixture = fixture(Kind::Sqlite).await;
        let catalog = &fixture.lake.catalog;
        let changes = |name: &str| CHANGES.iter().find(|(of, _)| *of == name).unwrap().1;
        let open_transactions: Vec<_> = {
            let mut open_transactions = Vec::new();
            for (name, conflicts) in [
                ("insert", false),
                ("delete 0 inline", true),
                ("comment", true),
                ("truncate", true),
                ("insert into u", false),
            ] {
                let mut own = begin(catalog).await;
                changes(name)(&fixture, &mut own);
                open_transactions.push((name, conflicts, own));
            }
            open_transactions
        };
        change(catalog, |other| insert_inlined_rows(other, fixture.t, &[40])).await;
        let path = fixture.lake.folder.path().join("lake.sqlite");
        let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let sql = format!(
            "UPDATE ducklake_snapshot_changes SET changes_made = 'recoloured_table:{}' WHERE snapshot_id = 2",
            fixture.t
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
        pool.close().await;
        for (name, conflicts, own) in open_transactions {
            assert_eq!(is_conflict(&commit(catalog, &own).await), conflicts, "{name}");
        }
    });
}
