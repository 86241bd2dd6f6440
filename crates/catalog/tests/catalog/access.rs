//! Roles, privileges and ownership in SQLite and PostgreSQL: round trips, visibility to other processes, and
//! removal with their objects.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::access::{
    Actor, Columns, Grantee, Object, Priority, Privilege, Privileges, QueueOptions, RoleOptions, RowFilter,
    Verifier,
};
use harrier_catalog::{Catalog, CommitNote, Error, Expiry, Result};

const ROOT: Actor<'_> = Actor::Role("root");
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
    wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn options(login: bool, superuser: bool) -> RoleOptions {
    RoleOptions { login: Some(login), superuser: Some(superuser), ..RoleOptions::default() }
}

async fn with_roles(kind: Kind) -> Lake {
    let lake = lake(kind).await;
    lake.catalog.create_role(Actor::System, "root", &options(true, true)).await.unwrap();
    lake.catalog.create_role(ROOT, "anna", &options(true, false)).await.unwrap();
    lake
}

fn privileges_on(object: Object, privilege: Privilege, columns: &[i64], to: &str) -> Privileges {
    Privileges {
        objects: vec![object],
        privileges: vec![(privilege, columns.to_vec())],
        grantees: vec![Grantee::Role(to.to_string())],
    }
}

fn state_of<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    match outcome {
        Err(Error::Refused(refusal)) => refusal.sqlstate.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn roles_and_privileges_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let catalog = &lake.catalog;
        let table = create_table_committed(catalog, "t").await;
        assert_eq!(catalog.access_version().await.unwrap(), 0);
        assert!(catalog.access().await.unwrap().is_open());
        // Without changes nothing is created.
        assert_eq!(catalog.clean_access().await.unwrap(), 0);
        let queue = QueueOptions {
            active_statements: Some(Some(3)),
            memory_limit: Some(Some(1 << 40)),
            priority: Some(Priority::High),
            max_cost: Some(Some(1.5e300)),
        };
        catalog.create_queue(Actor::System, "it's", &queue).await.unwrap();
        assert!(catalog.access().await.unwrap().is_open());
        catalog.create_role(Actor::System, "root", &options(true, true)).await.unwrap();
        let all = RoleOptions {
            create_roles: Some(true),
            inherits: Some(false),
            connection_limit: Some(Some(7)),
            valid_until: Some("2026-11-22 07:30:28+01".to_string()),
            verifier: Some(Some(Verifier::new(VERIFIER).unwrap())),
            queue: Some(Some("it's".to_string())),
            ..options(true, false)
        };
        let name = "o'\"Reilly\\ é";
        catalog.create_role(ROOT, name, &all).await.unwrap();
        catalog.grant_role(ROOT, "root", name, true).await.unwrap();
        let select = privileges_on(Object::Table(table), Privilege::Select, &[1], name);
        catalog.grant(ROOT, &select, true).await.unwrap();
        catalog.set_owner(ROOT, Object::Schema(0), name).await.unwrap();
        let predicate = "a = 'it''s' -- \\";
        catalog.put_row_filter(ROOT, table, &Grantee::Role(name.to_string()), predicate).await.unwrap();

        let access = catalog.access().await.unwrap();
        let (_, role) = access.role(name).unwrap();
        assert_eq!(role.verifier.as_ref().unwrap().as_str(), VERIFIER);
        assert_eq!(role.valid_until_text().unwrap(), "2026-11-22 06:30:28+00");
        assert_eq!((role.connection_limit, role.inherits, role.can_create_roles), (Some(7), false, true));
        assert_eq!(access.queue(name).unwrap().max_cost, Some(1.5e300));
        assert_eq!(access.queue(name).unwrap().memory_limit, Some(1 << 40));
        let rights = access.rights(name);
        assert_eq!(rights.columns(Object::Table(table), Privilege::Select), Columns::Some([1].into()));
        assert_eq!(rights.row_filter(table), RowFilter::AnyOf(vec![predicate]));
        assert!(rights.owns(Object::Schema(0)) && !rights.may_administer(name));
        // PostgreSQL's default privileges of PUBLIC in a new database.
        assert!(access.rights("root").may(Object::Warehouse, Privilege::Create));
        catalog.create_role(ROOT, "anna", &options(true, false)).await.unwrap();
        let access = catalog.access().await.unwrap();
        assert!(access.rights("anna").may(Object::Warehouse, Privilege::Connect));
        assert!(access.rights("anna").may(Object::Schema(0), Privilege::Usage));
        assert!(!access.rights("anna").may(Object::Schema(0), Privilege::Create));

        // Another process reads the same, and the warehouse remains a valid DuckLake catalog.
        let other = Catalog::open(&lake.url).await.unwrap();
        assert_eq!(*other.access().await.unwrap(), *access);
        assert_eq!(names(&other.head().await.unwrap()), ["main.t"]);
    });
}

#[test]
fn role_changes_are_visible_to_other_processes() {
    on_both(async |kind| {
        let lake = with_roles(kind).await;
        let other = Catalog::open(&lake.url).await.unwrap();
        let before = other.access().await.unwrap();
        // The cache returns the same value while nothing changes.
        assert!(Arc::ptr_eq(&before, &other.access().await.unwrap()));
        lake.catalog.alter_role(ROOT, "anna", &options(false, false)).await.unwrap();
        let after = other.access().await.unwrap();
        assert_eq!(after.version, before.version + 1);
        assert!(before.role("anna").unwrap().1.can_login && !after.role("anna").unwrap().1.can_login);
        // No-op changes and refused ones do not invalidate the cache.
        lake.catalog.alter_role(ROOT, "anna", &options(false, false)).await.unwrap();
        let refused = lake.catalog.create_role(ROOT, "anna", &options(false, false)).await;
        assert_eq!(state_of(refused), "42710");
        let refused = lake.catalog.create_role(Actor::Role("anna"), "bert", &options(false, false)).await;
        assert_eq!(state_of(refused), "42501");
        assert!(Arc::ptr_eq(&after, &other.access().await.unwrap()));
    });
}

#[test]
fn concurrent_role_changes_are_not_lost() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let url = lake.url.clone();
                tokio::spawn(async move {
                    let catalog = Catalog::open(&url).await.unwrap();
                    let name = format!("role{number}");
                    catalog.create_role(Actor::System, &name, &options(true, false)).await.unwrap();
                    let same = catalog.create_role(Actor::System, "same", &options(true, false)).await;
                    same.is_ok()
                })
            })
            .collect();
        let mut created = 0;
        for task in tasks {
            created += usize::from(task.await.unwrap());
        }
        assert_eq!(created, 1, "one of those who make the same role does");
        let access = lake.catalog.access().await.unwrap();
        assert_eq!((access.roles.len(), access.version), (9, 9));
    });
}

#[test]
fn commit_assigns_ownership_to_the_creator() {
    on_both(async |kind| {
        let lake = with_roles(kind).await;
        let catalog = &lake.catalog;
        let note = CommitNote { owner: Some("anna".to_string()), ..CommitNote::default() };
        let mut transaction = begin(catalog).await;
        let schema = create_schema(&mut transaction, "s");
        create_table(&mut transaction, schema, "t", integers("a"));
        let id = transaction.allocate_object();
        transaction.state_mut().views.insert(id, Arc::new(view(id, schema, "v", "SELECT 1")));
        let committed = catalog.commit(&transaction, &note).await.unwrap();
        let access = catalog.access().await.unwrap();
        let head = catalog.head().await.unwrap();
        assert_eq!(committed.objects.len(), 3);
        for id in committed.objects.values() {
            assert_eq!(access.owner(Object::of_id(&head, *id).unwrap()), Some("anna"));
        }
        // CREATE OR REPLACE VIEW keeps the privileges, whoever replaces the view.
        let old = *committed.objects.get(&id).unwrap();
        let mut read = privileges_on(Object::View(old), Privilege::Select, &[], "anna");
        read.grantees = vec![Grantee::Public];
        catalog.grant(Actor::Role("anna"), &read, false).await.unwrap();
        let mut transaction = begin(catalog).await;
        let schema = transaction.state.views[&old].schema;
        let id = transaction.allocate_object();
        transaction.state_mut().views.remove(&old);
        transaction.state_mut().views.insert(id, Arc::new(view(id, schema, "v", "SELECT 2")));
        let note = CommitNote { owner: Some("root".to_string()), ..CommitNote::default() };
        let committed = catalog.commit(&transaction, &note).await.unwrap();
        let new = Object::View(committed.objects[&id]);
        let access = catalog.access().await.unwrap();
        assert_eq!(access.owner(new), Some("anna"));
        assert!(access.rights("root").may(new, Privilege::Select));
        catalog.create_role(ROOT, "bert", &options(true, false)).await.unwrap();
        assert!(catalog.access().await.unwrap().rights("bert").may(new, Privilege::Select));
        // A role that was dropped meanwhile owns nothing.
        let mut transaction = begin(catalog).await;
        let id = create_schema(&mut transaction, "late");
        let note = CommitNote { owner: Some("gone".to_string()), ..CommitNote::default() };
        let committed = catalog.commit(&transaction, &note).await.unwrap();
        let late = Object::Schema(committed.objects[&id]);
        assert_eq!(catalog.access().await.unwrap().owner(late), None);
    });
}

#[test]
fn privileges_of_dropped_objects_go_with_their_last_snapshot() {
    on_both(async |kind| {
        let lake = with_roles(kind).await;
        let catalog = &lake.catalog;
        let table = create_table_committed(catalog, "t").await;
        let kept_table = create_table_committed(catalog, "kept").await;
        for table in [table, kept_table] {
            catalog.set_owner(ROOT, Object::Table(table), "anna").await.unwrap();
            catalog.put_row_filter(ROOT, table, &Grantee::Public, "true").await.unwrap();
        }
        let select = privileges_on(Object::Table(table), Privilege::Select, &[], "anna");
        catalog.grant(ROOT, &select, false).await.unwrap();
        assert_eq!(state_of(catalog.drop_role(ROOT, "anna").await), "2BP01");
        change(catalog, |transaction| drop_table(transaction, table)).await;
        assert_eq!(catalog.clean_access().await.unwrap(), 0);
        assert_eq!(catalog.access().await.unwrap().owner(Object::Table(table)), Some("anna"));
        assert_eq!(state_of(catalog.grant(ROOT, &select, false).await), "42704");
        let snapshots = catalog.snapshots().await.unwrap();
        let old =
            snapshots[..snapshots.len() - 1].iter().map(|privileges_on| privileges_on.snapshot).collect();
        catalog.expire(&Expiry::Versions(old)).await.unwrap();
        let before = catalog.access_version().await.unwrap();
        assert_eq!(catalog.clean_access().await.unwrap(), 1);
        assert_eq!(catalog.clean_access().await.unwrap(), 0);
        let access = catalog.access().await.unwrap();
        assert_eq!(access.version, before + 1);
        assert_eq!(access.owners.keys().copied().collect::<Vec<_>>(), [kept_table]);
        assert_eq!(access.row_filters.len(), 1);
        assert_eq!(access.grants_on(table).count(), 0);
        // Privileges of PUBLIC on the warehouse remain.
        assert!(access.rights("anna").may(Object::Warehouse, Privilege::Connect));
        match catalog.drop_role(ROOT, "anna").await {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.detail.as_deref(), Some("owner of table kept"));
            }
            other => panic!("{other:?}"),
        }
        catalog.reassign_owned(ROOT, "anna", "root").await.unwrap();
        catalog.drop_role(ROOT, "anna").await.unwrap();
    });
}

#[test]
fn unreadable_roles_deny_all_logins() {
    run(async {
        for (sql, says) in [
            ("DELETE FROM harrier_access", "has no row"),
            ("UPDATE harrier_role SET verifier = 'secret'", "is none"),
            ("INSERT INTO harrier_privilege VALUES (0, 0, 'FLY', 0, 0, 0)", "\"FLY\""),
            ("INSERT INTO harrier_resource_queue VALUES (9, 'q', -1, NULL, 'LOW', NULL)", "-1"),
            ("INSERT INTO harrier_resource_queue VALUES (9, 'q', 1, NULL, 'URGENT', NULL)", "\"URGENT\""),
        ] {
            let lake = with_roles(Kind::Sqlite).await;
            let path = lake.folder.path().join("lake.sqlite");
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
            let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_string())).execute(&pool).await.unwrap();
            pool.close().await;
            let message = Catalog::open(&lake.url).await.unwrap().access().await.unwrap_err().to_string();
            assert!(message.contains(says) && !message.contains("secret"), "{sql}: {message}");
        }
    });
}
