//! Changes of keys: their effects on a table, and dependent objects.

use std::mem;

use datafusion::error::{DataFusionError, Result};
use harrier_catalog::state::{ColumnId, ObjectId, State, Table};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::{IntoDataFusionError, error};

use super::{
    Check, Constraint, Foreign, Index, IndexKey, KeyDeclaration, Keys, Kind, TAG, column_named, name_of,
    naming,
};
use crate::warehouse::keys::declaration::{KeyKind, check_columns, several_primary};

/// The names in use in the schema of `table`: those of `state`'s tables, and of `table` as changed so far.
struct UsedNames<'s> {
    state: &'s State,
    table: &'s Table,
    own: &'s Keys,
}

impl UsedNames<'_> {
    fn others(&self) -> impl Iterator<Item = &Table> {
        let is_other = |table: &&Table| table.schema == self.table.schema && table.id != self.table.id;
        self.state.tables.values().map(AsRef::as_ref).filter(is_other)
    }

    fn is_relation(&self, name: &str) -> bool {
        self.own.has_relation(name)
            || self.table.name == name
            || self.state.view(self.table.schema, name).is_some()
            || self.state.unusable(self.table.schema, name).is_some()
            || self.others().any(|table| {
                table.name == name || table.tags.contains_key(TAG) && Keys::of(table).has_relation(name)
            })
    }

    fn is_constraint(&self, name: &str) -> bool {
        let of_others =
            |table: &Table| table.tags.contains_key(TAG) && Keys::of(table).constraint(name).is_some();
        self.own.constraint(name).is_some() || self.others().any(of_others)
    }

    fn is_either(&self, name: &str) -> bool {
        self.is_relation(name) || self.is_constraint(name)
    }
}

/// Errors: the constraint's name is in use (42710, 42P07). `has_index`: it is an index's name too.
fn check_name(used: &UsedNames<'_>, name: &str, has_index: bool) -> Result<()> {
    if has_index && used.is_relation(name) {
        return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    match used.own.constraint(name) {
        Some(_) => {
            let message =
                format!("constraint \"{name}\" for relation \"{}\" already exists", used.table.name);
            Err(error(SqlState::DUPLICATE_OBJECT, message))
        }
        None => Ok(()),
    }
}

/// Adds a key to `table`. Columns of a primary key become NOT NULL, without a check of existing rows.
/// `target`: the table that a foreign key references.
///
/// Errors: those of [`check_columns`]; a second primary key (42P16); the name is in use (42710, 42P07); a
/// foreign key does not match the referenced key (42830, 42704, 42804); the index of USING INDEX is
/// unsuitable (42704, 42809).
pub(crate) fn add(
    state: &State,
    table: &mut Table,
    key: &KeyDeclaration,
    target: Option<&Table>,
) -> Result<()> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    check_columns(key, |name| column_named(table, name).is_some())?;
    let columns: Vec<ColumnId> =
        key.columns.iter().filter_map(|name| column_named(table, name)).map(|column| column.id).collect();
    let used = UsedNames { state, table, own: &keys };
    let given_or_generated = |with_columns: bool, label: &str, is_used: &dyn Fn(&str) -> bool| match &key.name
    {
        Some(name) => name.clone(),
        None => {
            let names = naming::columns(key.columns.iter().map(String::as_str));
            naming::generate_name(&table.name, if with_columns { &names } else { "" }, label, is_used)
        }
    };
    let (name, columns, kind, number) = match &key.what {
        KeyKind::Primary => {
            if keys.primary().is_some() {
                return Err(several_primary(&table.name));
            }
            let name = given_or_generated(false, "pkey", &|name| used.is_either(name));
            check_name(&used, &name, true)?;
            (name, columns, Kind::Primary, None)
        }
        KeyKind::Unique { nulls_not_distinct } => {
            let name = given_or_generated(true, "key", &|name| used.is_either(name));
            check_name(&used, &name, true)?;
            (name, columns, Kind::Unique { nulls_not_distinct: *nulls_not_distinct }, None)
        }
        KeyKind::Foreign { referenced, on_update, on_delete, full, .. } => {
            let target =
                target.ok_or_else(|| DataFusionError::Internal("a key without a table".to_string()))?;
            let (number, names) = referenced_key(target, referenced, columns.len())?;
            let name = given_or_generated(true, "fkey", &|name| used.is_constraint(name));
            check_name(&used, &name, false)?;
            check_types(&name, table, &columns, target, &names)?;
            let foreign = Foreign {
                table: target.uuid.clone(),
                key: number,
                referenced: names,
                on_update: *on_update,
                on_delete: *on_delete,
                full: *full,
            };
            (name, columns, Kind::Foreign(foreign), None)
        }
        KeyKind::Check { .. } => {
            return Err(DataFusionError::Internal("a check constraint is no key".to_string()));
        }
        KeyKind::UsingIndex { index, is_primary } => {
            if *is_primary && keys.primary().is_some() {
                return Err(several_primary(&table.name));
            }
            let index = usable(&keys, index)?.clone();
            let name = key.name.clone().unwrap_or_else(|| index.name.clone());
            check_name(&used, &name, name != index.name)?;
            let kind = match is_primary {
                true => Kind::Primary,
                false => Kind::Unique { nulls_not_distinct: index.nulls_not_distinct },
            };
            keys.indexes.retain(|other| other.number != index.number);
            (name, index.columns(), kind, Some(index.number))
        }
    };
    if kind == Kind::Primary {
        for column in table.columns.iter_mut().filter(|column| columns.contains(&column.id)) {
            column.nullable = false;
        }
    }
    let number = number.unwrap_or_else(|| keys.number());
    let KeyDeclaration { deferrable, deferred, .. } = *key;
    keys.constraints.push(Constraint { number, name, columns, deferrable, deferred, kind });
    keys.store(table)
}

/// Adds a CHECK constraint on `columns` to `table`; returns its name.
///
/// Errors: the name is in use (42710).
pub(crate) fn add_check(
    state: &State,
    table: &mut Table,
    name: Option<&str>,
    columns: Vec<ColumnId>,
    check: Check,
) -> Result<String> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let used = UsedNames { state, table, own: &keys };
    let name = match (name, columns.as_slice()) {
        (Some(name), _) => name.to_string(),
        (None, [column]) => naming::generate_name(&table.name, name_of(table, *column), "check", |name| {
            used.is_constraint(name)
        }),
        (None, _) => naming::generate_name(&table.name, "", "check", |name| used.is_constraint(name)),
    };
    check_name(&used, &name, false)?;
    let number = keys.number();
    let kind = Kind::Check(check);
    keys.constraints.push(Constraint {
        number,
        name: name.clone(),
        columns,
        deferrable: false,
        deferred: false,
        kind,
    });
    keys.store(table)?;
    Ok(name)
}

/// Marks a CHECK constraint as valid for all rows, after they have been checked.
pub(crate) fn validate(table: &mut Table, name: &str) -> Result<()> {
    let mut keys = Keys::of(table);
    for constraint in keys.constraints.iter_mut().filter(|constraint| constraint.name == name) {
        if let Kind::Check(check) = &mut constraint.kind {
            check.not_valid = false;
        }
    }
    keys.store(table)
}

/// Looks up the index of USING INDEX.
fn usable<'k>(keys: &'k Keys, name: &str) -> Result<&'k Index> {
    let wrong = |message: String| error(SqlState::WRONG_OBJECT_TYPE, message);
    let index = keys
        .indexes
        .iter()
        .find(|index| index.name == name)
        .ok_or_else(|| error(SqlState::UNDEFINED_OBJECT, format!("index \"{name}\" does not exist")))?;
    if !index.unique {
        return Err(wrong(format!("\"{name}\" is not a unique index")));
    }
    if index.items.iter().any(|item| matches!(item.what, IndexKey::Expression(_))) {
        return Err(wrong(format!("index \"{name}\" contains expressions")));
    }
    if index.predicate.is_some() {
        return Err(wrong(format!("\"{name}\" is a partial index")));
    }
    if !index.include.is_empty() || index.items.iter().any(|item| item.descending || item.nulls_first) {
        return Err(wrong(format!("index \"{name}\" does not have default sorting behavior")));
    }
    Ok(index)
}

/// Finds the key of `target` that a foreign key of `count` columns references: its number and columns.
fn referenced_key(target: &Table, names: &[String], count: usize) -> Result<(u32, Vec<ColumnId>)> {
    let keys = Keys::of(target);
    let disagree = || {
        let message = "number of referencing and referenced columns for foreign key disagree";
        error(SqlState::INVALID_FOREIGN_KEY, message)
    };
    if names.is_empty() {
        let Some(primary) = keys.primary() else {
            let message = format!("there is no primary key for referenced table \"{}\"", target.name);
            return Err(error(SqlState::UNDEFINED_OBJECT, message));
        };
        return match primary.columns.len() == count {
            true => Ok((primary.number, primary.columns.clone())),
            false => Err(disagree()),
        };
    }
    let mut columns = vec![];
    for name in names {
        match column_named(target, name) {
            Some(column) => columns.push(column.id),
            None => {
                let message =
                    format!("column \"{name}\" referenced in foreign key constraint does not exist");
                return Err(error(SqlState::UNDEFINED_COLUMN, message));
            }
        }
    }
    if columns.len() != count {
        return Err(disagree());
    }
    let sorted = |columns: &[ColumnId]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns
    };
    let found = keys.candidates().find(|(_, key)| sorted(key) == sorted(&columns));
    match found {
        Some((number, _)) => Ok((number, columns)),
        None => {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                target.name
            );
            Err(error(SqlState::INVALID_FOREIGN_KEY, message))
        }
    }
}

fn check_types(
    name: &str,
    table: &Table,
    columns: &[ColumnId],
    target: &Table,
    referenced: &[ColumnId],
) -> Result<()> {
    let kind = |table: &Table, id: ColumnId| {
        table.columns.iter().find(|column| column.id == id).map(|column| column.kind)
    };
    for (own, other) in columns.iter().zip(referenced) {
        let (Some(own_kind), Some(other_kind)) = (kind(table, *own), kind(target, *other)) else { continue };
        if !are_comparable(own_kind, other_kind) {
            let message = format!("foreign key constraint \"{name}\" cannot be implemented");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_detail(format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {own_kind} and {other_kind}.",
                    name_of(table, *own),
                    name_of(target, *other)
                ))
                .into_datafusion());
        }
    }
    Ok(())
}

/// Whether PostgreSQL can compare values of a foreign key's type with those of the referenced key, by a
/// common operator or after an implicit cast to the key's type.
fn are_comparable(own: ColumnType, key: ColumnType) -> bool {
    // Numeric classes: a lower one casts implicitly to a higher one.
    const INTEGER: u8 = 0;
    const EXACT: u8 = 1;
    const FLOAT: u8 = 2;
    const MOMENT: u8 = 3;
    let class = |kind: ColumnType| match kind {
        ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::UInt8
        | ColumnType::UInt16
        | ColumnType::UInt32 => Some(INTEGER),
        ColumnType::UInt64 | ColumnType::Int128 | ColumnType::UInt128 | ColumnType::Decimal { .. } => {
            Some(EXACT)
        }
        ColumnType::Float32 | ColumnType::Float64 => Some(FLOAT),
        ColumnType::Date
        | ColumnType::Timestamp
        | ColumnType::TimestampTz
        | ColumnType::TimestampS
        | ColumnType::TimestampMs
        | ColumnType::TimestampNs => Some(MOMENT),
        _ => None,
    };
    match (class(own), class(key)) {
        (Some(own), Some(key)) if own < MOMENT && key < MOMENT => own <= key,
        (Some(own), Some(key)) => own == key,
        _ => own == key,
    }
}

/// The foreign keys that reference a key of `table`, with their tables. Without a number: any key, except
/// from `table` itself.
pub(crate) fn dependents<'s>(
    state: &'s State,
    table: &Table,
    number: Option<u32>,
) -> Vec<(&'s Table, Constraint)> {
    let mut found = vec![];
    for other in state.tables.values().filter(|other| other.tags.contains_key(TAG)) {
        if number.is_none() && other.id == table.id {
            continue;
        }
        let refers = |constraint: &Constraint| match &constraint.kind {
            Kind::Foreign(foreign) => {
                foreign.table == table.uuid && number.is_none_or(|number| foreign.key == number)
            }
            _ => false,
        };
        let constraints = Keys::of(other).constraints.into_iter().filter(refers);
        found.extend(constraints.map(|constraint| (other.as_ref(), constraint)));
    }
    found
}

/// Checks whether dependent foreign keys allow a drop; returns PostgreSQL's notices about those dropped with
/// it.
///
/// Errors: dependent keys exist and CASCADE was not given (2BP01). `what`: the dropped object; `on`: its part
/// that they depend on.
pub(crate) fn cascade(
    dependents: &[(&Table, Constraint)],
    is_cascade: bool,
    what: &str,
    on: &str,
) -> Result<Vec<String>> {
    let describe = |(table, constraint): &(&Table, Constraint)| {
        format!("constraint {} on table {}", constraint.name, table.name)
    };
    if dependents.is_empty() || is_cascade {
        return Ok(dependents.iter().map(|found| format!("drop cascades to {}", describe(found))).collect());
    }
    let details: Vec<String> =
        dependents.iter().map(|found| format!("{} depends on {on}", describe(found))).collect();
    Err(SqlError::new(
        SqlState::DEPENDENT_OBJECTS,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .with_detail(details.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
    .into_datafusion())
}

/// Removes the dependent foreign keys of `table` itself; those of other tables vanish with the referenced
/// key.
fn remove_own(keys: &mut Keys, table: &Table, dependents: &[(&Table, Constraint)]) {
    let own: Vec<u32> =
        dependents.iter().filter(|(other, _)| other.id == table.id).map(|(_, key)| key.number).collect();
    keys.constraints.retain(|constraint| !own.contains(&constraint.number));
}

/// Drops a constraint; returns notices about dependent objects.
///
/// Errors: no such constraint (42704); foreign keys reference it (2BP01).
pub(crate) fn drop_constraint(
    state: &State,
    table: &mut Table,
    name: &str,
    if_exists: bool,
    is_cascade: bool,
) -> Result<Vec<String>> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let Some(constraint) = keys.constraint(name).cloned() else {
        let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
        return match if_exists {
            true => Ok(vec![format!("{message}, skipping")]),
            false => Err(error(SqlState::UNDEFINED_OBJECT, message)),
        };
    };
    let found = match constraint.is_index() {
        true => dependents(state, table, Some(constraint.number)),
        false => vec![],
    };
    let what = format!("constraint {name} on table {}", table.name);
    let notices = cascade(&found, is_cascade, &what, &format!("index {name}"))?;
    keys.constraints.retain(|other| other.number != constraint.number);
    remove_own(&mut keys, table, &found);
    keys.store(table)?;
    Ok(notices)
}

/// Drops the keys and indexes on a column that is about to be dropped; returns notices about dependent
/// objects.
///
/// Errors: foreign keys reference them (2BP01).
pub(crate) fn drop_with_column(
    state: &State,
    table: &mut Table,
    column: &str,
    is_cascade: bool,
) -> Result<Vec<String>> {
    let Some(id) = column_named(table, column).map(|column| column.id) else { return Ok(vec![]) };
    if !table.tags.contains_key(TAG) {
        return Ok(vec![]);
    }
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let constraints = mem::take(&mut keys.constraints);
    let (gone, kept): (Vec<_>, Vec<_>) =
        constraints.into_iter().partition(|constraint| constraint.columns.contains(&id));
    keys.constraints = kept;
    let indexes = mem::take(&mut keys.indexes);
    let (gone_indexes, kept): (Vec<_>, Vec<_>) =
        indexes.into_iter().partition(|index| index.columns().contains(&id));
    keys.indexes = kept;
    let mut found = vec![];
    let numbers = gone.iter().filter(|constraint| constraint.is_index()).map(|constraint| constraint.number);
    for number in numbers.chain(gone_indexes.iter().map(|index| index.number)) {
        let mut own = dependents(state, table, Some(number));
        own.retain(|(other, constraint)| {
            other.id != table.id || !gone.iter().any(|gone| gone.number == constraint.number)
        });
        found.extend(own);
    }
    let on = format!("column {column} of table {}", table.name);
    let notices = cascade(&found, is_cascade, &on, &on)?;
    remove_own(&mut keys, table, &found);
    keys.store(table)?;
    Ok(notices)
}

/// Errors: no such constraint (42704); the new name is in use (42710, 42P07).
pub(crate) fn rename_constraint(state: &State, table: &mut Table, name: &str, new: &str) -> Result<()> {
    let mut keys = Keys::of(table);
    let Some(has_index) = keys.constraint(name).map(Constraint::is_index) else {
        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
        return Err(error(SqlState::UNDEFINED_OBJECT, message));
    };
    check_name(&UsedNames { state, table, own: &keys }, new, has_index)?;
    for constraint in keys.constraints.iter_mut().filter(|constraint| constraint.name == name) {
        constraint.name = new.to_string();
    }
    keys.store(table)
}

/// Errors: the column is part of a primary key (42P16).
pub(crate) fn check_nullable(table: &Table, column: &str) -> Result<()> {
    let keys = Keys::of(table);
    let id = column_named(table, column).map(|column| column.id);
    match keys.primary().zip(id) {
        Some((primary, id)) if primary.columns.contains(&id) => {
            let message = format!("column \"{column}\" is in a primary key");
            Err(error(SqlState::INVALID_TABLE_DEFINITION, message))
        }
        _ => Ok(()),
    }
}

/// Adds an index. If its name is empty, one is generated from `columns`. Returns the name, or `None` if a
/// relation of this name exists and `if_not_exists` is set.
///
/// Errors: a relation of this name exists (42P07).
pub(crate) fn add_index(
    state: &State,
    table: &mut Table,
    mut index: Index,
    columns: &str,
    if_not_exists: bool,
) -> Result<Option<String>> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let used = UsedNames { state, table, own: &keys };
    if index.name.is_empty() {
        index.name = naming::generate_name(&table.name, columns, "idx", |name| used.is_relation(name));
    } else if used.is_relation(&index.name) {
        return match if_not_exists {
            true => Ok(None),
            false => {
                let message = format!("relation \"{}\" already exists", index.name);
                Err(error(SqlState::DUPLICATE_TABLE, message))
            }
        };
    }
    index.number = keys.number();
    let name = index.name.clone();
    keys.indexes.push(index);
    keys.store(table)?;
    Ok(Some(name))
}

/// The table that has an index of this name, or a constraint with one.
pub(crate) fn table_of_index<'s>(state: &'s State, schema: ObjectId, name: &str) -> Option<&'s Table> {
    let tables = state.tables.values().filter(|table| table.schema == schema && table.tags.contains_key(TAG));
    tables.map(AsRef::as_ref).find(|table| Keys::of(table).has_relation(name))
}

/// Drops an index; returns notices about dependent objects.
///
/// Errors: the index belongs to a constraint, or foreign keys reference it (2BP01).
pub(crate) fn drop_index(
    state: &State,
    table: &mut Table,
    name: &str,
    is_cascade: bool,
) -> Result<Vec<String>> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    if keys.constraint(name).is_some() {
        let constraint = format!("constraint {name} on table {}", table.name);
        return Err(SqlError::new(
            SqlState::DEPENDENT_OBJECTS,
            format!("cannot drop index {name} because {constraint} requires it"),
        )
        .with_hint(format!("You can drop {constraint} instead."))
        .into_datafusion());
    }
    let number = keys.indexes.iter().find(|index| index.name == name).map(|index| index.number);
    let found = dependents(state, table, number);
    let notices = cascade(&found, is_cascade, &format!("index {name}"), &format!("index {name}"))?;
    keys.indexes.retain(|index| index.name != name);
    remove_own(&mut keys, table, &found);
    keys.store(table)?;
    Ok(notices)
}

/// Errors: a relation of the new name exists (42P07).
pub(crate) fn rename_index(state: &State, table: &mut Table, name: &str, new: &str) -> Result<()> {
    if Keys::of(table).constraint(name).is_some() {
        return rename_constraint(state, table, name, new);
    }
    let mut keys = Keys::of(table);
    if (UsedNames { state, table, own: &keys }).is_relation(new) {
        return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{new}\" already exists")));
    }
    for index in keys.indexes.iter_mut().filter(|index| index.name == name) {
        index.name = new.to_string();
    }
    keys.store(table)
}
