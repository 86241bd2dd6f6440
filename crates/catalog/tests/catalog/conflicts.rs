//! Which pairs of changes may both commit: every kind of change against every other, in both orders.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::NewDeletes;
use harrier_catalog::state::{
    CHECK, DECLARED_TYPE_TAG, KEYS_TAG, PartitionKey, TABLE_PARTITIONS_OPTION, Transform,
};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, Error, Result, Transaction};

/// What both find: tables `t` (files 0 and 1, two inlined rows) and `u`, view `v`, an empty schema `s`.
struct Ground {
    lake: Lake,
    t: i64,
    u: i64,
    v: i64,
    s: i64,
    files: [i64; 2],
}

async fn ground(kind: Kind) -> Ground {
    let lake = lake(kind).await;
    let mut transaction = begin(&lake.catalog).await;
    let s = create_schema(&mut transaction, "s");
    let t = create_table(&mut transaction, 0, "t", integers("a"));
    let u = create_table(&mut transaction, 0, "u", integers("a"));
    let v = transaction.allocate_object();
    transaction.state_mut().views.insert(v, Arc::new(view(v, 0, "v", "SELECT 1")));
    transaction.changes_of(t).added.extend([file("0", 0, 10), file("1", 10, 10)]);
    keep_rows(&mut transaction, t, &[20, 21]);
    let made = commit(&lake.catalog, &transaction).await.unwrap().objects;
    let files = data(&lake.catalog, made[&t]).await.files;
    let files = [files[0].id, files[1].id];
    Ground { t: made[&t], u: made[&u], v: made[&v], s: made[&s], files, lake }
}

/// A kind of change. The second of a pair uses other names for files, as another transaction would.
type Change = (&'static str, fn(&Ground, &mut Transaction));

const CHANGES: &[Change] = &[
    ("insert", |ground, own| own.changes_of(ground.t).added.push(file(&uuid(), 100, 5))),
    ("insert kept", |ground, own| keep_rows(own, ground.t, &[30])),
    ("delete 0 inline", |ground, own| {
        own.changes_of(ground.t).deleted.insert(ground.files[0], inline_delete(&[1]));
    }),
    ("delete 0 by file", |ground, own| {
        let deletes = NewDeletes::File { file: delete_file(&uuid(), 1), positions: [2].into() };
        own.changes_of(ground.t).deleted.insert(ground.files[0], deletes);
    }),
    ("delete 1 inline", |ground, own| {
        own.changes_of(ground.t).deleted.insert(ground.files[1], inline_delete(&[1]));
    }),
    ("remove 1", |ground, own| {
        own.changes_of(ground.t).removed.insert(ground.files[1]);
    }),
    ("delete kept 20", |ground, own| {
        let version = own.base.schema_version.min(1);
        own.changes_of(ground.t).deleted_inlined.insert((version, 20));
    }),
    ("delete kept 21", |ground, own| {
        own.changes_of(ground.t).deleted_inlined.insert((1, 21));
    }),
    ("truncate", |ground, own| {
        let changes = own.changes_of(ground.t);
        changes.removed.extend(ground.files);
        (changes.removed_inlined, changes.replaces) = (true, true);
    }),
    ("compact 0", |ground, own| {
        let changes = own.changes_of(ground.t);
        changes.removed.insert(ground.files[0]);
        changes.added.push(file(&uuid(), 0, 10));
        changes.compacts = true;
    }),
    ("flush", |ground, own| {
        let changes = own.changes_of(ground.t);
        changes.added.push(file(&uuid(), 20, 2));
        (changes.compacts, changes.removed_inlined) = (true, true);
    }),
    ("add column", |ground, own| {
        alter(own, ground.t, |table| {
            table.columns.push(column(2, "b", Int32));
            table.next_column = 3;
        })
    }),
    ("not null", |ground, own| alter(own, ground.t, |table| table.columns[0].nullable = false)),
    ("partition", |ground, own| {
        alter(own, ground.t, |table| {
            table.partition = vec![PartitionKey { column: 1, transform: Transform::Bucket(2) }]
        })
    }),
    ("divide", |ground, own| {
        alter(own, ground.t, |table| {
            drop(table.options.insert(TABLE_PARTITIONS_OPTION.into(), uuid()));
        })
    }),
    ("check", |ground, own| {
        let keys = format!("{{{CHECK},\"name\":\"{}\"}}", uuid());
        alter(own, ground.t, |table| drop(table.tags.insert(KEYS_TAG.into(), keys)))
    }),
    ("declare", |ground, own| {
        alter(own, ground.t, |table| {
            drop(table.columns[0].tags.insert(DECLARED_TYPE_TAG.into(), uuid()));
        })
    }),
    ("comment", |ground, own| alter(own, ground.t, |table| table.comment = Some(uuid()))),
    ("set option", |ground, own| {
        alter(own, ground.t, |table| drop(table.options.insert("target_file_size".into(), uuid())))
    }),
    ("rename t to n", |ground, own| alter(own, ground.t, |table| table.name = "n".into())),
    ("drop t", |ground, own| drop_table(own, ground.t)),
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
    ("create s.n", |ground, own| {
        create_table(own, ground.s, "n", integers("a"));
    }),
    ("create schema x", |_, own| {
        create_schema(own, "x");
    }),
    ("drop schema s", |ground, own| drop(own.state_mut().schemas.remove(&ground.s))),
    ("alter view v", |ground, own| {
        Arc::make_mut(own.state_mut().views.get_mut(&ground.v).unwrap()).sql = "SELECT 3".into()
    }),
    ("rename view v to n", |ground, own| {
        Arc::make_mut(own.state_mut().views.get_mut(&ground.v).unwrap()).name = "n".into()
    }),
    ("drop view v", |ground, own| drop(own.state_mut().views.remove(&ground.v))),
    ("insert into u", |ground, own| own.changes_of(ground.u).added.push(file(&uuid(), 0, 5))),
    ("drop u", |ground, own| drop_table(own, ground.u)),
];

/// Pairs that do not both commit: what has committed, and what then cannot.
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

fn expected(first: &str, second: &str) -> bool {
    CONFLICTS.iter().any(|(name, conflicts)| *name == first && conflicts.contains(&second))
}

/// When the second of a pair hears of the first.
#[derive(Debug, Clone, Copy)]
enum Heard {
    AtCommit,
    /// By its next statement, as a read committed transaction.
    AtStatement,
}

async fn pair(kind: Kind, heard: Heard, first: &Change, second: &Change) -> Result<Catalog> {
    let ground = ground(kind).await;
    let catalog = &ground.lake.catalog;
    let (mut one, mut other) = (begin(catalog).await, begin(catalog).await);
    first.1(&ground, &mut one);
    second.1(&ground, &mut other);
    commit(catalog, &one).await.unwrap();
    let before = catalog.head().await.unwrap();
    let outcome = match heard {
        Heard::AtCommit => commit(catalog, &other).await,
        Heard::AtStatement => match catalog.rebase(&mut other).await {
            // Whoever has seen what was committed is not refused for it afterwards.
            Ok(()) => Ok(commit(catalog, &other).await.unwrap()),
            Err(error) => Err(error),
        },
    };
    let after = catalog.head().await.unwrap();
    // Whatever happens, the catalog stays readable, and a conflict changes nothing.
    match &outcome {
        Ok(committed) => assert_eq!(committed.snapshot, before.snapshot + 1),
        Err(_) => assert_eq!(after, before),
    }
    for table in after.tables.values() {
        catalog.data(table, after.snapshot).await.unwrap();
    }
    outcome.map(|_| catalog.clone())
}

async fn all_pairs(kind: Kind, heard: Heard, skip: usize) {
    let mut wrong = Vec::new();
    for (place, (first, second)) in
        CHANGES.iter().flat_map(|one| CHANGES.iter().map(move |other| (one, other))).enumerate()
    {
        if place % skip != 0 {
            continue;
        }
        let outcome = pair(kind, heard, first, second).await;
        let conflicts = match &outcome {
            Ok(_) => false,
            Err(Error::Conflict(_)) => true,
            Err(other) => panic!("{} then {}: {other}", first.0, second.0),
        };
        if conflicts != expected(first.0, second.0) {
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
fn every_pair_of_changes_in_sqlite() {
    run(all_pairs(Kind::Sqlite, Heard::AtCommit, 1));
}

#[test]
fn every_pair_of_changes_in_sqlite_at_the_next_statement() {
    run(all_pairs(Kind::Sqlite, Heard::AtStatement, 1));
}

/// The rules do not depend on the database: a part of the pairs shows that their queries work there.
#[test]
fn every_seventh_pair_of_changes_in_postgresql() {
    if !skips_servers() {
        run(all_pairs(Kind::Postgres, Heard::AtCommit, 7));
        run(all_pairs(Kind::Postgres, Heard::AtStatement, 13));
    }
}

#[test]
fn messages_name_the_table_and_what_was_done() {
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
            let outcome = pair(Kind::Sqlite, Heard::AtCommit, change(first), change(second)).await;
            assert_eq!(outcome.unwrap_err().to_string(), message);
        }
    });
}

#[test]
fn a_read_committed_transaction_sees_newer_snapshots_until_one_conflicts() {
    on_both(async |kind| {
        let ground = ground(kind).await;
        let catalog = &ground.lake.catalog;
        let mut own = begin(catalog).await;
        own.changes_of(ground.t).deleted.insert(ground.files[0], inline_delete(&[1]));
        create_table(&mut own, 0, "mine", integers("a"));
        change(catalog, |other| {
            create_table(other, 0, "theirs", integers("a"));
            other.changes_of(ground.t).added.push(file("2", 30, 5));
            other.changes_of(ground.t).deleted.insert(ground.files[1], inline_delete(&[1]));
        })
        .await;
        catalog.rebase(&mut own).await.unwrap();
        assert!(own.state.table(0, "theirs").is_some() && own.state.table(0, "mine").is_some());
        let savepoint = own.clone();
        // What it deletes now it has seen in the newer snapshot; what it deleted before it has not.
        change(catalog, |other| {
            other.changes_of(ground.t).deleted.insert(ground.files[0], inline_delete(&[5]));
        })
        .await;
        let seen = own.base.snapshot;
        for _ in 0..2 {
            assert!(is_conflict(&catalog.rebase(&mut own).await));
            assert_eq!((own.base.snapshot, &own.data), (seen, &savepoint.data));
        }
        assert!(is_conflict(&commit(catalog, &own).await));
        // Nor does a later snapshot that has nothing to do with it make it good.
        change(catalog, |other| keep_rows(other, ground.u, &[1])).await;
        assert!(is_conflict(&catalog.rebase(&mut own).await));
    });
}

/// What was found in two sessions: half of a transaction was committed, or its rows were read as they are
/// not.
#[test]
fn a_read_committed_transaction_does_not_outlive_what_its_changes_were_made_on() {
    on_both(async |kind| {
        let ground = ground(kind).await;
        let catalog = &ground.lake.catalog;
        let mut inserts = begin(catalog).await;
        let before = inserts.clone();
        keep_rows(&mut inserts, ground.t, &[30]);
        let mut deletes = begin(catalog).await;
        deletes.changes_of(ground.t).deleted.insert(ground.files[0], inline_delete(&[1]));
        let mut deletes_kept = begin(catalog).await;
        deletes_kept.changes_of(ground.t).deleted_inlined.insert((1, 20));

        change(catalog, |other| {
            let changes = other.changes_of(ground.t);
            changes.removed.insert(ground.files[0]);
            changes.added.extend([file("2", 0, 10), file("3", 20, 2)]);
            (changes.compacts, changes.removed_inlined) = (true, true);
        })
        .await;
        for own in [&mut deletes, &mut deletes_kept] {
            assert!(is_conflict(&catalog.rebase(own).await));
        }
        // Rows that are added do not mind.
        catalog.rebase(&mut inserts).await.unwrap();

        let mut widened = inserts.clone();
        change(catalog, |other| {
            alter(other, ground.t, |table| {
                table.columns.push(column(2, "b", Int32));
                table.next_column = 3;
            });
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut widened).await));

        change(catalog, |other| {
            drop_table(other, ground.t);
            create_table(other, 0, "t", integers("a"));
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut inserts).await));
        // A savepoint from before the change goes on.
        let mut again = before;
        catalog.rebase(&mut again).await.unwrap();
        let t = again.state.table(0, "t").unwrap().id;
        keep_rows(&mut again, t, &[31]);
        catalog.rebase(&mut again).await.unwrap();
        commit(catalog, &again).await.unwrap();
    });
}

#[test]
fn changes_of_definitions_do_not_outlive_what_they_were_made_on() {
    on_both(async |kind| {
        let ground = ground(kind).await;
        let catalog = &ground.lake.catalog;
        let mut comments = begin(catalog).await;
        alter(&mut comments, ground.t, |table| table.comment = Some(uuid()));
        let mut creates = begin(catalog).await;
        create_table(&mut creates, ground.s, "n", integers("a"));
        let mut drops = begin(catalog).await;
        drops.state_mut().schemas.remove(&ground.s);
        let mut sets = begin(catalog).await;
        alter(&mut sets, ground.u, |table| drop(table.options.insert("own".into(), "1".into())));

        change(catalog, |other| {
            create_table(other, ground.s, "m", integers("a"));
            drop_table(other, ground.t);
            alter(other, ground.u, |table| {
                table.options.insert("theirs".into(), "2".into());
                table.columns[0].nullable = false;
            });
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut comments).await));
        assert!(is_conflict(&catalog.rebase(&mut drops).await));
        catalog.rebase(&mut creates).await.unwrap();
        // Options are set beside whatever else is done.
        catalog.rebase(&mut sets).await.unwrap();
        let u = &sets.state.tables[&ground.u];
        assert_eq!((u.options.len(), u.columns[0].nullable), (2, false));
        commit(catalog, &sets).await.unwrap();
        assert_eq!(catalog.head().await.unwrap().tables[&ground.u].options.len(), 2);

        change(catalog, |other| {
            let m = other.state.table(ground.s, "m").unwrap().id;
            drop_table(other, m);
            other.state_mut().schemas.remove(&ground.s);
        })
        .await;
        assert!(is_conflict(&catalog.rebase(&mut creates).await));
    });
}

#[test]
fn words_that_are_not_known_conflict_with_deletes_and_alters_only() {
    run(async {
        let ground = ground(Kind::Sqlite).await;
        let catalog = &ground.lake.catalog;
        let changes = |name: &str| CHANGES.iter().find(|(of, _)| *of == name).unwrap().1;
        let begun: Vec<_> = {
            let mut begun = Vec::new();
            for (name, conflicts) in [
                ("insert", false),
                ("delete 0 inline", true),
                ("comment", true),
                ("truncate", true),
                ("insert into u", false),
            ] {
                let mut own = begin(catalog).await;
                changes(name)(&ground, &mut own);
                begun.push((name, conflicts, own));
            }
            begun
        };
        change(catalog, |other| keep_rows(other, ground.t, &[40])).await;
        let path = ground.lake.folder.path().join("lake.sqlite");
        let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let sql = format!(
            "UPDATE ducklake_snapshot_changes SET changes_made = 'recoloured_table:{}' WHERE snapshot_id = 2",
            ground.t
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
        pool.close().await;
        for (name, conflicts, own) in begun {
            assert_eq!(is_conflict(&commit(catalog, &own).await), conflicts, "{name}");
        }
    });
}
