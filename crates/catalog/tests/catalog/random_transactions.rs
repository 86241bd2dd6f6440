//! Property test of snapshot isolation: thousands of small random transactions, some concurrent, against an
//! in-memory model of the catalog.
//!
//! The model has rows, not files' bookkeeping: the contents of each snapshot, and when each file was last
//! changed. It predicts for each commit whether it conflicts, and the contents that every open transaction
//! sees.
//!
//! `HARRIER_CATALOG_SEED` and `HARRIER_CATALOG_TRANSACTIONS` choose another history, or a longer one.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use harrier_catalog::files::{Cell, NewDeletes};
use harrier_catalog::state::SnapshotId;
use harrier_catalog::types::ColumnType::Int64;
use harrier_catalog::{Error, Transaction};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

const TABLES: usize = 2;
const OPEN_MAX: usize = 5;
/// Deletes choose one of this many files, so that transactions often conflict.
const TARGETS: usize = 4;

/// A table at one snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
struct Table {
    /// By name: the positions that are not deleted, and the snapshot that last changed the file.
    files: BTreeMap<String, (BTreeSet<i64>, SnapshotId)>,
    inlined: BTreeSet<i64>,
    columns: usize,
    altered: SnapshotId,
}

type Model = Vec<Table>;

/// The changes of a transaction in the model's terms, and the snapshot that it reads.
struct Open {
    transaction: Transaction,
    base: SnapshotId,
    /// By table: files with positions deleted; whole files removed; inlined values deleted; added rows.
    deleted: BTreeMap<usize, BTreeMap<String, BTreeSet<i64>>>,
    removed: BTreeMap<usize, BTreeSet<String>>,
    deleted_inlined: BTreeMap<usize, BTreeSet<i64>>,
    added: BTreeMap<usize, Vec<(String, i64)>>,
    inlined: BTreeMap<usize, Vec<i64>>,
    altered: BTreeSet<usize>,
}

struct Run {
    random: StdRng,
    lake: Lake,
    tables: Vec<i64>,
    /// By snapshot.
    past: BTreeMap<SnapshotId, Model>,
    next: i64,
    commits: usize,
    conflicts: usize,
}

impl Run {
    async fn new(kind: Kind, seed: u64) -> Self {
        let lake = lake(kind).await;
        let mut tables = Vec::new();
        for number in 0..TABLES {
            tables.push(create_table_committed(&lake.catalog, &format!("t{number}")).await);
        }
        let head = lake.catalog.head().await.unwrap().snapshot;
        let empty = Table { columns: 1, ..Table::default() };
        let past = BTreeMap::from([(head, vec![empty; TABLES])]);
        Self { random: StdRng::seed_from_u64(seed), lake, tables, past, next: 0, commits: 0, conflicts: 0 }
    }

    fn next_value(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    async fn begin(&mut self) -> Open {
        let transaction = begin(&self.lake.catalog).await;
        let base = transaction.base.snapshot;
        assert_eq!(base, *self.past.keys().last().unwrap(), "a transaction begins with the newest snapshot");
        Open {
            transaction,
            base,
            deleted: BTreeMap::new(),
            removed: BTreeMap::new(),
            deleted_inlined: BTreeMap::new(),
            added: BTreeMap::new(),
            inlined: BTreeMap::new(),
            altered: BTreeSet::new(),
        }
    }

    /// One statement of a transaction: reads a table as of its snapshot, and changes something.
    async fn step(&mut self, open: &mut Open) {
        let number = self.random.random_range(0..TABLES);
        let id = self.tables[number];
        let data = self.lake.catalog.data(&open.transaction.base.tables[&id], open.base).await.unwrap();
        let model = &self.past[&open.base][number];

        // Repeatable reads: the snapshot is what it was when it was committed.
        let mut visible = Table { columns: model.columns, altered: model.altered, ..Table::default() };
        for file in data.files.iter() {
            let name = file.path.path.clone();
            let deleted_inline: BTreeSet<i64> = file.deleted_inline.iter().copied().collect();
            let model = model.files.get(&name).unwrap_or_else(|| panic!("{name} is of another snapshot"));
            // Only the model knows the contents of a delete file: it must be the newest, and contain all
            // positions deleted so far.
            let remaining = match &file.deletes {
                Some(deletes) => {
                    let missing = file.rows - model.0.len() as i64;
                    assert!(
                        deletes.rows <= missing && missing <= deletes.rows + deleted_inline.len() as i64,
                        "{name}"
                    );
                    assert!(deleted_inline.iter().all(|position| !model.0.contains(position)), "{name}");
                    model.0.clone()
                }
                None => (0..file.rows).filter(|position| !deleted_inline.contains(position)).collect(),
            };
            visible.files.insert(name, (remaining, model.1));
        }
        for rows in &data.inlined {
            visible.inlined.extend(rows.rows.iter().map(|row| match row[0] {
                Cell::Integer(value) => value,
                ref other => panic!("{other:?}"),
            }));
        }
        assert_eq!(visible, *model, "table {number} at snapshot {}", open.base);
        assert_eq!(open.transaction.base.tables[&id].columns.len(), model.columns);

        let model = model.clone();
        let columns = open.transaction.state.tables[&id].columns.len();
        match self.random.random_range(0..20) {
            0..6 => {
                let (name, rows) = (format!("f{}", self.next_value()), self.random.random_range(1..20));
                open.transaction.changes_of(id).added.push(file(&name, 0, rows));
                open.added.entry(number).or_default().push((name, rows));
            }
            6..10 => {
                let value = self.next_value();
                let mut row = vec![Cell::Null; columns];
                row[0] = Cell::Integer(value);
                // Rows inlined so far in this transaction have as many columns as the table had then.
                let inlined = &mut open.transaction.changes_of(id).inlined;
                if inlined.iter().all(|other| other.len() == columns) {
                    inlined.push(row);
                    open.inlined.entry(number).or_default().push(value);
                }
            }
            10..14 => {
                let touched = |name: &&String| {
                    !open.deleted.get(&number).is_some_and(|files| files.contains_key(*name))
                        && !open.removed.get(&number).is_some_and(|files| files.contains(*name))
                };
                let chosen_file =
                    model.files.keys().rev().filter(touched).take(TARGETS).choose(&mut self.random).cloned();
                let Some(name) = chosen_file else { return };
                let stored = data.files.iter().find(|file| file.path.path == name).unwrap();
                let remaining = &model.files[&name].0;
                let Some(position) = remaining.iter().copied().choose(&mut self.random) else { return };
                let deletes = if self.random.random_bool(0.5) {
                    inline_delete(&[position])
                } else {
                    let rows = stored.rows - remaining.len() as i64 + 1;
                    NewDeletes::File {
                        file: delete_file(&format!("d{}", self.next_value()), rows),
                        positions: [position].into(),
                    }
                };
                open.transaction.changes_of(id).deleted.insert(stored.id, deletes);
                open.deleted.entry(number).or_default().insert(name, [position].into());
            }
            14..16 => {
                let Some(value) = model.inlined.iter().copied().choose(&mut self.random) else { return };
                for rows in &data.inlined {
                    for (row, row_id) in rows.rows.iter().zip(&rows.row_ids) {
                        if row[0] == Cell::Integer(value) {
                            let of_row = (rows.schema_version, *row_id);
                            open.transaction.changes_of(id).deleted_inlined.insert(of_row);
                        }
                    }
                }
                open.deleted_inlined.entry(number).or_default().insert(value);
            }
            16..18 => {
                let touched = |name: &&String| {
                    !open.deleted.get(&number).is_some_and(|files| files.contains_key(*name))
                };
                let chosen_file =
                    model.files.keys().rev().filter(touched).take(TARGETS).choose(&mut self.random).cloned();
                let Some(name) = chosen_file else { return };
                let stored = data.files.iter().find(|file| file.path.path == name).unwrap().id;
                open.transaction.changes_of(id).removed.insert(stored);
                open.removed.entry(number).or_default().insert(name);
            }
            18 if model.columns < 6 && open.transaction.changes_of(id).inlined.is_empty() => {
                alter(&mut open.transaction, id, |table| {
                    table.columns.push(column(table.next_column, &format!("c{}", table.next_column), Int64));
                    table.next_column += 1;
                });
                open.altered.insert(number);
            }
            _ => {}
        }
    }

    /// Whether the model expects a conflict.
    fn conflicts(&self, open: &Open) -> bool {
        let head = self.past.values().last().unwrap();
        (0..TABLES).any(|number| {
            let table = &head[number];
            let files = open.deleted.get(&number).into_iter().flat_map(|files| files.keys());
            let files = files.chain(open.removed.get(&number).into_iter().flatten());
            let files_changed = files
                .clone()
                .any(|name| table.files.get(name).is_none_or(|(_, touched)| *touched > open.base));
            let deleted_inlined = open
                .deleted_inlined
                .get(&number)
                .into_iter()
                .flatten()
                .any(|value| !table.inlined.contains(value));
            let uses = files.count() > 0
                || open.deleted_inlined.contains_key(&number)
                || open.added.contains_key(&number)
                || open.inlined.contains_key(&number)
                || open.altered.contains(&number);
            files_changed || deleted_inlined || (uses && table.altered > open.base)
        })
    }

    async fn commit(&mut self, open: Open) {
        let expected = self.conflicts(&open);
        let empty = open.transaction.is_empty();
        match commit(&self.lake.catalog, &open.transaction).await {
            Ok(committed) if empty => assert_eq!(committed.snapshot, open.base),
            Ok(committed) => {
                assert!(!expected, "committed, although it conflicts");
                self.commits += 1;
                let snapshot = committed.snapshot;
                assert_eq!(snapshot, *self.past.keys().last().unwrap() + 1);
                let mut model = self.past.values().last().unwrap().clone();
                apply(&mut model, &open, snapshot);
                self.past.insert(snapshot, model);
            }
            Err(Error::Conflict(why)) => {
                assert!(expected, "refused without need: {why}");
                self.conflicts += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn apply(model: &mut Model, open: &Open, snapshot: SnapshotId) {
    for (number, table) in model.iter_mut().enumerate() {
        for (name, positions) in open.deleted.get(&number).into_iter().flatten() {
            let (remaining, touched) = table.files.get_mut(name).unwrap();
            for position in positions {
                remaining.remove(position);
            }
            *touched = snapshot;
        }
        for name in open.removed.get(&number).into_iter().flatten() {
            table.files.remove(name);
        }
        for value in open.deleted_inlined.get(&number).into_iter().flatten() {
            table.inlined.remove(value);
        }
        for (name, rows) in open.added.get(&number).into_iter().flatten() {
            table.files.insert(name.clone(), ((0..*rows).collect(), snapshot));
        }
        table.inlined.extend(open.inlined.get(&number).into_iter().flatten());
        if open.altered.contains(&number) {
            table.columns += 1;
            table.altered = snapshot;
        }
    }
}

async fn run_history(kind: Kind, seed: u64, transactions: usize) {
    eprintln!("{kind:?}: seed {seed}, {transactions} transactions");
    let mut run = Run::new(kind, seed).await;
    let mut open: Vec<Open> = Vec::new();
    let mut started = 0;
    while started < transactions || !open.is_empty() {
        let action = run.random.random_range(0..10);
        if started < transactions && (open.is_empty() || (action < 4 && open.len() < OPEN_MAX)) {
            let new = run.begin().await;
            open.push(new);
            started += 1;
            continue;
        }
        let place = run.random.random_range(0..open.len());
        if action < 7 {
            let mut one = open.swap_remove(place);
            run.step(&mut one).await;
            open.push(one);
        } else {
            let one = open.swap_remove(place);
            run.commit(one).await;
        }
    }
    eprintln!("{} commits, {} conflicts", run.commits, run.conflicts);
    assert!(run.commits > transactions / 4 && run.conflicts > transactions / 50);
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn random_transactions_match_the_model_in_sqlite() {
    let transactions = number_from_environment("HARRIER_CATALOG_TRANSACTIONS", 2500) as usize;
    run(run_history(Kind::Sqlite, number_from_environment("HARRIER_CATALOG_SEED", 1), transactions));
}

#[test]
fn random_transactions_match_the_model_in_postgresql() {
    if !skips_servers() {
        let transactions = number_from_environment("HARRIER_CATALOG_TRANSACTIONS", 1000) as usize;
        run(run_history(Kind::Postgres, number_from_environment("HARRIER_CATALOG_SEED", 2), transactions));
    }
}
