//! Cases that the command line cannot produce: files removed during the copy, and backups of later versions.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use harrier_catalog::files::NewFile;
use harrier_catalog::state::{Location, Table};
use harrier_catalog::{Catalog, CommitNote, Transaction};

use super::*;
use crate::manifest::Parts;
use crate::target::{Target, manifest_name};

/// A warehouse of one table with files of arbitrary content.
async fn warehouse(folder: &Path, files: &[&str]) -> Catalog {
    let url = format!("sqlite:{}/catalog.sqlite", folder.display());
    let catalog = Catalog::create(&url, &format!("{}/data/", folder.display())).await.unwrap();
    let data = folder.join("data/main/t");
    std::fs::create_dir_all(&data).unwrap();
    let mut own = Transaction::new(catalog.head().await.unwrap());
    let id = own.allocate_object();
    let table = Table {
        id,
        uuid: uuid::Uuid::new_v4().to_string(),
        schema: 0,
        name: "t".to_string(),
        path: Location::relative("t/"),
        next_column: 1,
        columns: Vec::new(),
        partition: Vec::new(),
        partition_id: None,
        sort: Vec::new(),
        comment: None,
        tags: Default::default(),
        options: Default::default(),
    };
    own.state_mut().tables.insert(id, table.into());
    for name in files {
        std::fs::write(data.join(name), name).unwrap();
        own.changes_of(id).added.push(NewFile {
            path: Location::relative(*name),
            rows: 1,
            bytes: name.len() as i64,
            footer_bytes: 1,
            partition_values: Vec::new(),
            stats: Default::default(),
            deleted: Default::default(),
            deletes: None,
        });
    }
    catalog.commit(&own, &CommitNote::default()).await.unwrap();
    catalog
}

/// Removes a file from the newest snapshot and expires the others.
async fn expire_file(url: &str, name: &str) {
    let catalog = Catalog::open(url).await.unwrap();
    let mut own = Transaction::new(catalog.head().await.unwrap());
    let state = catalog.head().await.unwrap();
    let table = state.tables.values().next().unwrap();
    let data = catalog.data(table, state.snapshot).await.unwrap();
    let file = data.files.iter().find(|file| file.path.path == name).unwrap();
    own.changes_of(table.id).removed.insert(file.id);
    catalog.commit(&own, &CommitNote::default()).await.unwrap();
    catalog.expire(&harrier_catalog::Expiry::OlderThan("9999-01-01".to_string())).await.unwrap();
}

#[tokio::test]
async fn backup_retries_on_a_newer_snapshot_when_files_expire() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = warehouse(folder.path(), &["a", "b", "c"]).await;
    let (url, target) =
        (format!("sqlite:{}/catalog.sqlite", folder.path().display()), folder.path().join("backups"));
    let before = catalog.head().await.unwrap().snapshot;
    // As a program does that does not know about the backup.
    std::fs::remove_file(folder.path().join("data/main/t/b")).unwrap();
    let notices = AtomicUsize::new(0);
    let notice = |message: &str| {
        assert!(message.contains("main/t/b"), "{message}");
        if notices.fetch_add(1, Ordering::Relaxed) == 0 {
            let url = url.clone();
            let forgotten = std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(expire_file(&url, "b"))
            });
            forgotten.join().unwrap();
        }
    };
    let report = backup(&catalog, target.to_str().unwrap(), None, &notice).await.unwrap();
    assert_eq!(notices.load(Ordering::Relaxed), 1);
    assert!(report.manifest.snapshot > before);
    assert_eq!(
        report.manifest.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(),
        ["main/t/a", "main/t/c"]
    );
    assert!(check(target.to_str().unwrap(), None).await.unwrap().problems.is_empty());
    // A missing file that the catalog still names is damage, and the error names it.
    std::fs::remove_file(folder.path().join("data/main/t/c")).unwrap();
    std::fs::remove_file(target.join("files/main/t/c")).unwrap();
    let missing_file = backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap_err();
    assert!(
        matches!(&missing_file, Error::Missing { place } if place.ends_with("data/main/t/c")),
        "{missing_file:?}"
    );
    // So is a file whose length differs from the catalog's.
    std::fs::write(folder.path().join("data/main/t/c"), "longer").unwrap();
    let damaged = backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap_err();
    assert!(
        matches!(&damaged, Error::Damaged { place, .. } if place.ends_with("data/main/t/c")),
        "{damaged:?}"
    );
    assert_eq!(list(target.to_str().unwrap()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn interrupted_backups_resume_without_copying_again() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = warehouse(folder.path(), &["a", "b", "c"]).await;
    let target = folder.path().join("backups");
    let c = folder.path().join("data/main/t/c");
    std::fs::rename(&c, folder.path().join("c")).unwrap();
    backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap_err();
    assert!(list(target.to_str().unwrap()).await.unwrap().is_empty());
    std::fs::rename(folder.path().join("c"), &c).unwrap();
    let report = backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap();
    assert_eq!((report.copied.0, report.skipped.0), (1, 2));
    assert!(check(target.to_str().unwrap(), None).await.unwrap().problems.is_empty());
    assert!(!target.join("unfinished.json").exists());
}

#[tokio::test]
async fn backups_of_later_layouts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = warehouse(folder.path(), &["a"]).await;
    let target = folder.path().join("backups");
    let manifest = backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap().manifest;
    let (opened, lock) = Target::open_to_write(target.to_str().unwrap(), &manifest.warehouse).await.unwrap();
    let later = Manifest::new(Parts {
        id: manifest.id.clone(),
        identity: catalog.identity().await.unwrap().unwrap(),
        layout: 99,
        snapshot: manifest.snapshot,
        snapshot_time: manifest.snapshot_time.clone(),
        time: manifest.time.clone(),
        catalog: manifest.catalog.clone(),
        files: manifest.files.clone(),
    });
    opened.store.put(&manifest_name(&manifest.id), later.to_bytes()).await.unwrap();
    lock.release().await;
    let to = folder.path().join("restored");
    let place = Place { catalog: format!("sqlite:{}/catalog.sqlite", to.display()), data: None };
    let refused = restore(target.to_str().unwrap(), None, &place).await.unwrap_err();
    let Error::Catalog(harrier_catalog::Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert!(refusal.sqlstate == "0A000" && refusal.message.contains("in version 99"), "{refusal:?}");
    assert!(!to.exists());
    // Names that escape the folder are malicious.
    let outside = Manifest::new(Parts {
        id: manifest.id.clone(),
        identity: catalog.identity().await.unwrap().unwrap(),
        layout: manifest.layout,
        snapshot: manifest.snapshot,
        snapshot_time: manifest.snapshot_time,
        time: manifest.time,
        catalog: manifest.catalog,
        files: vec![Stored { name: "../../x".to_string(), ..manifest.files[0].clone() }],
    });
    opened.store.put(&manifest_name(&manifest.id), outside.to_bytes()).await.unwrap();
    let refused = restore(target.to_str().unwrap(), None, &place).await.unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
    assert!(!folder.path().join("x").exists());
}

/// Files written before a restore belong to the warehouse afterwards: it records its former identities.
#[tokio::test]
async fn restored_warehouses_record_former_identities() {
    let folder = tempfile::tempdir().unwrap();
    let mut catalog = warehouse(folder.path(), &["a"]).await;
    let mut former = Vec::new();
    for round in 0..2 {
        let identity = catalog.identity().await.unwrap().unwrap();
        assert_eq!(identity.former, former);
        former.push(identity.id);
        let target = folder.path().join(format!("backups{round}"));
        backup(&catalog, target.to_str().unwrap(), None, &|_| ()).await.unwrap();
        let url = format!("sqlite:{}/restored{round}/catalog.sqlite", folder.path().display());
        restore(target.to_str().unwrap(), None, &Place { catalog: url.clone(), data: None }).await.unwrap();
        catalog = Catalog::open(&url).await.unwrap();
    }
    assert_eq!(catalog.identity().await.unwrap().unwrap().former, former);
}
