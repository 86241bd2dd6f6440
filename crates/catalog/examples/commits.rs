//! Measures commits: how many a second so many connections make, and how long one of ten thousand files
//! takes.
//!
//! usage: commits URL [CONNECTIONS] [SECONDS]     URL names a warehouse that does not exist yet

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harrier_catalog::files::{Cell, ColumnStats, NewFile};
use harrier_catalog::state::{Column, Location, Table};
use harrier_catalog::types::ColumnType;
use harrier_catalog::{Catalog, CommitNote, Transaction};

const COLUMNS: i64 = 16;
const FILES: i64 = 10_000;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("usage: commits URL [CONNECTIONS] [SECONDS]");
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse::<u64>().expect("a number"));
    let (connections, seconds) = (number(8), number(5));
    let catalog = Catalog::create(&url, "/nowhere/").await.expect("a warehouse");

    let columns = (1..=COLUMNS).map(|id| Column {
        id,
        name: format!("c{id}"),
        kind: ColumnType::Int64,
        children: Vec::new(),
        nullable: true,
        initial_default: None,
        default: None,
        comment: None,
        tags: BTreeMap::new(),
    });
    let mut transaction = Transaction::new(catalog.head().await.expect("a snapshot"));
    let id = transaction.allocate_object();
    let table = Table {
        id,
        uuid: transaction.id.to_string(),
        schema: 0,
        name: "t".to_string(),
        path: Location::relative("t/"),
        columns: columns.collect(),
        next_column: COLUMNS + 1,
        partition: Vec::new(),
        partition_id: None,
        sort: Vec::new(),
        comment: None,
        tags: BTreeMap::new(),
        options: BTreeMap::new(),
    };
    transaction.state_mut().tables.insert(id, Arc::new(table));
    transaction.changes_of(id).added = (0..FILES).map(file).collect();
    let started = Instant::now();
    let committed = catalog.commit(&transaction, &CommitNote::default()).await.expect("a commit");
    println!("{FILES} files with statistics of {COLUMNS} columns: {:?}", started.elapsed());
    let id = committed.objects[&id];

    let mut shared = Vec::new();
    let mut own = Vec::new();
    for _ in 0..connections {
        shared.push(catalog.clone());
        own.push(Catalog::open(&url).await.expect("the warehouse"));
    }
    measure("tasks of one catalog", shared, id, seconds).await;
    measure("catalogs, as of so many processes", own, id, seconds).await;
}

/// Commits one row after the other with each of the catalogs.
async fn measure(what: &str, catalogs: Vec<Catalog>, table: i64, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    let connections = catalogs.len();
    let mut tasks = Vec::new();
    for catalog in catalogs {
        tasks.push(tokio::spawn(async move {
            let (mut commits, mut longest) = (0u64, Duration::ZERO);
            while Instant::now() < end {
                let started = Instant::now();
                let mut transaction = Transaction::new(catalog.head().await.expect("a snapshot"));
                transaction.changes_of(table).inlined.push(vec![Cell::Integer(1); COLUMNS as usize]);
                catalog.commit(&transaction, &CommitNote::default()).await.expect("a commit");
                commits += 1;
                longest = longest.max(started.elapsed());
            }
            (commits, longest)
        }));
    }
    let (mut commits, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (of_task, of_longest) = task.await.expect("no panic");
        commits += of_task;
        longest = longest.max(of_longest);
    }
    println!("{connections} {what}: {} commits a second, the longest took {longest:?}", commits / seconds);
}

fn file(number: i64) -> NewFile {
    let stats = ColumnStats {
        bytes: Some(1000),
        values: Some(100),
        nulls: Some(0),
        min: Some((number * 100).to_string()),
        max: Some((number * 100 + 99).to_string()),
        nan: None,
    };
    NewFile {
        path: Location::relative(format!("part-{number:08}.parquet")),
        rows: 100,
        bytes: 4096,
        footer_bytes: 500,
        partition_values: Vec::new(),
        stats: (1..=COLUMNS).map(|column| (column, stats.clone())).collect(),
        deleted: BTreeSet::new(),
        deletes: None,
    }
}
