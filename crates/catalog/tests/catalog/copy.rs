//! Copies of a catalog into either database: every snapshot equals the original's.

use std::sync::Arc;

use crate::support::*;
use harrier_catalog::files::{Cell, TableData};
use harrier_catalog::sequences::{Sequence, SequenceType};
use harrier_catalog::state::{Location, State};
use harrier_catalog::types::ColumnType::*;
use harrier_catalog::{Catalog, CopySummary, Error, Line, copy_in};

/// All contents of a catalog at a snapshot, without the location of its files.
async fn snapshot_contents(catalog: &Catalog, snapshot: i64) -> (State, Vec<Arc<TableData>>) {
    let state = catalog.at(snapshot).await.unwrap();
    let mut rows = Vec::new();
    for table in state.tables.values() {
        rows.push(catalog.data(table, snapshot).await.unwrap());
    }
    (State { warehouse: None, data_path: String::new(), ..State::clone(&state) }, rows)
}

async fn dump_catalog(catalog: &Catalog) -> (Vec<Line>, CopySummary) {
    let mut lines = Vec::new();
    let mut push_line = |line| {
        lines.push(line);
        Ok(())
    };
    let summary = catalog.copy_out(&mut push_line).await.unwrap();
    (lines, summary)
}

/// A catalog with values of all types, roles, a sequence, an expired snapshot, deleted and inlined rows.
async fn populated_lake(kind: Kind) -> Lake {
    let lake = lake(kind).await;
    let catalog = &lake.catalog;
    let kinds = [
        Boolean,
        Int64,
        UInt64,
        Float64,
        Decimal { precision: 10, scale: 2 },
        Varchar,
        Blob,
        Uuid,
        Interval,
        Timestamp,
    ];
    let columns: Vec<_> = (1..).zip(kinds).map(|(id, kind)| column(id, &format!("C {id}"), kind)).collect();
    change(catalog, |own| {
        let id = create_table(own, 0, "kinds", columns);
        let text = |text: &str| Cell::Text(text.to_string());
        own.changes_of(id).inlined.push(vec![
            Cell::Integer(1),
            Cell::Integer(-5),
            text("18446744073709551615"),
            text("nan"),
            text("-1.50"),
            text("it's\nβ \\ \""),
            Cell::Blob(vec![0, 255, 39]),
            text("0192f1c8-7a3b-7c4d-8e5f-1a2b3c4d5e6f"),
            text("1 year 2 months 3 days"),
            text("2026-11-28 09:00:00.5"),
        ]);
        own.changes_of(id).inlined.push(vec![Cell::Null; 10]);
    })
    .await;
    let id = create_table_committed(catalog, "t").await;
    change(catalog, |own| {
        own.changes_of(id).added.extend([file("0", 0, 10), file("1", 10, 10), file("k=a%20b/2", 20, 10)]);
        let elsewhere = Location { path: "/elsewhere/x.parquet".into(), relative: false };
        own.changes_of(id)
            .added
            .push(harrier_catalog::files::NewFile { path: elsewhere, ..file("", 30, 10) });
        insert_inlined_rows(own, id, &[100, 101]);
    })
    .await;
    let files = data(catalog, id).await.files;
    change(catalog, |own| {
        own.changes_of(id).deleted.insert(files[0].id, inline_delete(&[1, 2]));
        own.changes_of(id).removed.insert(files[1].id);
        alter(own, id, |table| table.comment = Some("it's".into()));
        let (s, v) = (create_schema(own, "s"), own.allocate_object());
        own.state_mut().views.insert(v, Arc::new(view(v, s, "v", "SELECT 'x'")));
        own.state_mut().options.insert("a".into(), "b'c".into());
    })
    .await;
    change(catalog, |own| {
        let id = own.allocate_object();
        let sequence = Sequence {
            id,
            comment: None,
            uuid: uuid(),
            schema: 0,
            name: "q".into(),
            kind: SequenceType::BigInt,
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cache: 1,
            cycles: false,
            owner: None,
        };
        own.state_mut().sequences.insert(id, Arc::new(sequence));
    })
    .await;
    lake
}

#[test]
fn copies_equal_the_original_at_every_snapshot() {
    for (from, to) in kinds().into_iter().flat_map(|from| kinds().into_iter().map(move |to| (from, to))) {
        eprintln!("from {from:?} to {to:?}");
        run(async {
            let lake = populated_lake(from).await;
            let (lines, summary) = dump_catalog(&lake.catalog).await;
            let head = lake.catalog.head().await.unwrap();
            assert_eq!(summary.snapshot, head.snapshot);
            let identity = lake.catalog.identity().await.unwrap().unwrap();
            assert_eq!(summary.identity.as_ref(), Some(&identity));
            let mut files: Vec<_> =
                summary.files.iter().map(|file| (file.name.as_str(), file.source.as_str())).collect();
            files.sort();
            let root = data_path(lake.folder.path());
            let at = |name: &str| format!("{root}{name}");
            let expected = [at("main/t/0"), at("main/t/1"), at("main/t/k=a%20b/2")];
            assert_eq!(files[3], ("main/t/k=a%20b/2", expected[2].as_str()), "{files:?}");
            assert_eq!(
                files[..2].iter().map(|(_, source)| source.to_string()).collect::<Vec<_>>(),
                expected[..2]
            );
            assert_eq!(files[2].1, "/elsewhere/x.parquet");
            assert!(files[2].0.starts_with("main/t/elsewhere-"), "{files:?}");
            assert!(summary.files.iter().all(|file| file.bytes == Some(180)));

            let other = tempfile::tempdir().unwrap();
            let url = new_url(to, other.path());
            let again = lines.iter().cloned().map(Ok);
            let path = data_path(other.path());
            let snapshot = copy_in(&url, again, &path, |place| identity.of_copy(place)).await.unwrap();
            assert_eq!(snapshot, head.snapshot);
            let copy = Catalog::open(&url).await.unwrap();
            let own = copy.identity().await.unwrap().unwrap();
            assert!(
                own.id != identity.id
                    && own.has_been(&identity.id)
                    && own.is_at(&copy.place().await.unwrap())
            );
            assert_eq!(copy.head().await.unwrap().data_path, path);
            for snapshot in lake.catalog.snapshots().await.unwrap() {
                let (state, mut rows) = snapshot_contents(&lake.catalog, snapshot.snapshot).await;
                // The file at an absolute path has another name.
                for data in &mut rows {
                    for file in &mut Arc::make_mut(&mut Arc::make_mut(data).files)
                        .iter_mut()
                        .filter(|file| !file.path.relative)
                    {
                        let name = files[2].0.strip_prefix("main/t/").unwrap();
                        file.path = Location::relative(name);
                    }
                }
                assert_eq!(snapshot_contents(&copy, snapshot.snapshot).await, (state, rows));
            }
            assert_eq!(copy.snapshots().await.unwrap(), lake.catalog.snapshots().await.unwrap());
            // A copy of the copy is the same, and both accept commits.
            let (same, _) = dump_catalog(&copy).await;
            let texts = |lines: &[Line]| {
                let mut texts: Vec<_> = lines.iter().map(|line| format!("{line:?}")).collect();
                texts.sort();
                texts
            };
            assert_eq!(texts(&same), texts(&lines));
            for catalog in [&lake.catalog, &copy] {
                create_table_committed(catalog, "new").await;
                assert_eq!(catalog.head().await.unwrap().snapshot, head.snapshot + 1);
            }
            // The target has a warehouse already.
            let again =
                copy_in(&url, lines.into_iter().map(Ok), &path, |place| identity.of_copy(place)).await;
            assert!(
                matches!(&again, Err(Error::Refused(refusal)) if refusal.sqlstate == "42P07"),
                "{again:?}"
            );
        });
    }
}

#[test]
fn failed_copies_leave_no_warehouse() {
    on_both(async |kind| {
        let lake = populated_lake(kind).await;
        let (lines, summary) = dump_catalog(&lake.catalog).await;
        let identity = summary.identity.unwrap();
        let other = tempfile::tempdir().unwrap();
        let url = new_url(kind, other.path());
        let path = data_path(other.path());
        for cut in [0, 1, lines.len() / 2, lines.len() - 1] {
            let broken = || std::io::Error::other("broken by the test");
            let some = lines[..cut].iter().cloned().map(Ok).chain([Err(broken())]);
            let outcome = copy_in(&url, some, &path, |place| identity.of_copy(place)).await;
            assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
            let opened = Catalog::open(&url).await;
            assert!(matches!(opened, Err(Error::NotFound(_))), "{opened:?}");
        }
        // Invalid input: without its snapshots; with an unknown table; with a row of too many columns.
        let table = |line: &Line, name: &str| matches!(line, Line::Table(table) if table.name == name);
        let at = lines.iter().position(|line| table(line, "ducklake_snapshot")).unwrap();
        let mut unknown = lines.clone();
        let Line::Table(named) = &mut unknown[at] else { panic!() };
        named.name = "harrier_later".into();
        let mut wide = lines.clone();
        let Line::Row(cells) = &mut wide[at + 1] else { panic!() };
        cells.push(Cell::Null);
        for wrong in [lines[..at].to_vec(), unknown, wide] {
            let outcome =
                copy_in(&url, wrong.into_iter().map(Ok), &path, |place| identity.of_copy(place)).await;
            assert!(matches!(outcome, Err(Error::Corrupt(_) | Error::Unsupported(_))), "{outcome:?}");
            assert!(matches!(Catalog::open(&url).await, Err(Error::NotFound(_))));
        }
        copy_in(&url, lines.into_iter().map(Ok), &path, |place| identity.of_copy(place)).await.unwrap();
        Catalog::open(&url).await.unwrap();
    });
}
