//! Keys and indexes in PostgreSQL's catalogs.

use std::collections::HashMap;

use harrier_catalog::state::{ColumnId, ObjectId, State, Table};
use harrier_pgcatalog as pg;

use super::{Action, Constraint, Index, IndexKey, Item, Keys, Kind, TAG, expressions};

/// First id of constraints and indexes: above those of tables and views, below those of temporary objects.
const FIRST: i64 = 1 << 30;
/// Number of such ids.
const COUNT: i64 = 1 << 29;
/// Number of ids per table.
const OF_TABLE: i64 = 1 << 10;

/// The keys of all tables, by table id.
pub(crate) fn catalog_keys(state: &State) -> HashMap<ObjectId, pg::Keys> {
    let declared = state.tables.values().filter(|table| table.tags.contains_key(TAG));
    declared.map(|table| (table.id, keys(state, table))).collect()
}

fn keys(state: &State, table: &Table) -> pg::Keys {
    let keys = Keys::of(table);
    let constraints = keys
        .constraints
        .iter()
        .filter_map(|constraint| crate::warehouse::keys::pg_catalog::constraint(state, table, constraint));
    let of_constraints = keys.constraints.iter().filter(|constraint| constraint.is_index());
    let indexes = of_constraints.map(|constraint| index_of(table, constraint));
    let indexes = indexes
        .chain(keys.indexes.iter().map(|index| crate::warehouse::keys::pg_catalog::index(table, index)));
    pg::Keys { constraints: constraints.collect(), indexes: indexes.collect() }
}

/// The id of a key. Unique for any realistic number of tables, and of keys per table.
fn id(table: &Table, number: u32) -> i64 {
    FIRST + (table.id * OF_TABLE + i64::from(number)).rem_euclid(COUNT)
}

fn place(table: &Table, column: ColumnId) -> Option<usize> {
    table.columns.iter().position(|own| own.id == column)
}

fn places(table: &Table, columns: &[ColumnId]) -> Vec<usize> {
    columns.iter().filter_map(|column| place(table, *column)).collect()
}

/// `None` if the referenced key of a foreign key is gone.
pub(crate) fn constraint(state: &State, table: &Table, constraint: &Constraint) -> Option<pg::Constraint> {
    let kind = match &constraint.kind {
        Kind::Primary => pg::ConstraintKind::Primary,
        Kind::Unique { .. } => pg::ConstraintKind::Unique,
        Kind::Check(check) => pg::ConstraintKind::Check(pg::Check {
            condition: expressions::text(&check.condition, table),
            is_valid: !check.not_valid,
        }),
        Kind::Foreign(foreign) => {
            let target = Keys::target(state, foreign)?;
            pg::ConstraintKind::Foreign(pg::ForeignKey {
                relation: target.id,
                columns: places(target, &foreign.referenced),
                index: id(target, foreign.key),
                on_update: letter(foreign.on_update),
                on_delete: letter(foreign.on_delete),
                is_full: foreign.full,
            })
        }
    };
    Some(pg::Constraint {
        id: id(table, constraint.number),
        name: constraint.name.clone(),
        columns: places(table, &constraint.columns),
        is_deferrable: constraint.deferrable,
        is_deferred: constraint.deferred,
        kind,
    })
}

fn index_of(table: &Table, constraint: &Constraint) -> pg::Index {
    let item = |at| pg::IndexItem {
        what: pg::Indexed::Column(at),
        class: None,
        is_descending: false,
        nulls_first: false,
    };
    pg::Index {
        id: id(table, constraint.number),
        name: constraint.name.clone(),
        is_unique: true,
        is_primary: constraint.kind == Kind::Primary,
        is_deferrable: constraint.deferrable,
        nulls_not_distinct: constraint.kind == Kind::Unique { nulls_not_distinct: true },
        method: "btree".to_string(),
        items: places(table, &constraint.columns).into_iter().map(item).collect(),
        included: vec![],
        predicate: None,
    }
}

fn index(table: &Table, index: &Index) -> pg::Index {
    let item = |item: &Item| {
        let what = match &item.what {
            IndexKey::Column(column) => pg::Indexed::Column(place(table, *column)?),
            IndexKey::Expression(expression) => pg::Indexed::Expression(expressions::text(expression, table)),
        };
        let Item { class, descending, nulls_first, .. } = item.clone();
        Some(pg::IndexItem { what, class, is_descending: descending, nulls_first })
    };
    pg::Index {
        id: id(table, index.number),
        name: index.name.clone(),
        is_unique: index.unique,
        is_primary: false,
        is_deferrable: false,
        nulls_not_distinct: index.nulls_not_distinct,
        method: index.method.clone(),
        items: index.items.iter().filter_map(item).collect(),
        included: places(table, &index.include),
        predicate: index.predicate.as_ref().map(|predicate| {
            let text = expressions::text(predicate, table);
            if text.starts_with('(') && text.ends_with(')') { text } else { format!("({text})") }
        }),
    }
}

fn letter(action: Action) -> char {
    match action {
        Action::None => 'a',
        Action::Restrict => 'r',
        Action::Cascade => 'c',
        Action::SetNull => 'n',
        Action::SetDefault => 'd',
    }
}
