//! Keys and indexes as PostgreSQL's catalogs tell of them.

use std::collections::HashMap;

use harrier_catalog::state::{ColumnId, ObjectId, State, Table};
use harrier_pgcatalog as told;

use super::{Action, Constraint, Index, Item, Keys, Kind, TAG, What, expressions};

/// Numbers of constraints and indexes begin here: below are those of tables and views, above those of what a
/// session has alone.
const FIRST: i64 = 1 << 30;
/// How many there are.
const COUNT: i64 = 1 << 29;
/// How many of them a table has.
const OF_TABLE: i64 = 1 << 10;

/// What is declared of the tables, by their ids.
pub(crate) fn told(state: &State) -> HashMap<ObjectId, told::Keys> {
    let declared = state.tables.values().filter(|table| table.tags.contains_key(TAG));
    declared.map(|table| (table.id, keys(state, table))).collect()
}

fn keys(state: &State, table: &Table) -> told::Keys {
    let keys = Keys::of(table);
    let constraints = keys
        .constraints
        .iter()
        .filter_map(|constraint| crate::warehouse::keys::pg_catalog::constraint(state, table, constraint));
    let of_constraints = keys.constraints.iter().filter(|constraint| constraint.is_index());
    let indexes = of_constraints.map(|constraint| index_of(table, constraint));
    let indexes = indexes
        .chain(keys.indexes.iter().map(|index| crate::warehouse::keys::pg_catalog::index(table, index)));
    told::Keys { constraints: constraints.collect(), indexes: indexes.collect() }
}

/// The number of a key: no other key has it, as long as there are not more tables and keys in them than
/// anybody has.
fn id(table: &Table, number: u32) -> i64 {
    FIRST + (table.id * OF_TABLE + i64::from(number)).rem_euclid(COUNT)
}

fn place(table: &Table, column: ColumnId) -> Option<usize> {
    table.columns.iter().position(|own| own.id == column)
}

fn places(table: &Table, columns: &[ColumnId]) -> Vec<usize> {
    columns.iter().filter_map(|column| place(table, *column)).collect()
}

/// `None`: what a foreign key refers to is gone.
pub(crate) fn constraint(state: &State, table: &Table, constraint: &Constraint) -> Option<told::Constraint> {
    let kind = match &constraint.kind {
        Kind::Primary => told::ConstraintKind::Primary,
        Kind::Unique { .. } => told::ConstraintKind::Unique,
        Kind::Check(check) => told::ConstraintKind::Check(told::Check {
            condition: expressions::text(&check.condition, table),
            is_valid: !check.not_valid,
        }),
        Kind::Foreign(foreign) => {
            let target = Keys::target(state, foreign)?;
            told::ConstraintKind::Foreign(told::ForeignKey {
                relation: target.id,
                columns: places(target, &foreign.referenced),
                index: id(target, foreign.key),
                on_update: letter(foreign.on_update),
                on_delete: letter(foreign.on_delete),
                is_full: foreign.full,
            })
        }
    };
    Some(told::Constraint {
        id: id(table, constraint.number),
        name: constraint.name.clone(),
        columns: places(table, &constraint.columns),
        is_deferrable: constraint.deferrable,
        is_deferred: constraint.deferred,
        kind,
    })
}

fn index_of(table: &Table, constraint: &Constraint) -> told::Index {
    let item = |at| told::IndexItem {
        what: told::Indexed::Column(at),
        class: None,
        is_descending: false,
        nulls_first: false,
    };
    told::Index {
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

fn index(table: &Table, index: &Index) -> told::Index {
    let item = |item: &Item| {
        let what = match &item.what {
            What::Column(column) => told::Indexed::Column(place(table, *column)?),
            What::Expression(expression) => told::Indexed::Expression(expressions::text(expression, table)),
        };
        let Item { class, descending, nulls_first, .. } = item.clone();
        Some(told::IndexItem { what, class, is_descending: descending, nulls_first })
    };
    told::Index {
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
