//! What changes of keys do to a table, and what they would take along.

use std::mem;

use datafusion::error::{DataFusionError, Result};
use harrier_catalog::state::{ColumnId, ObjectId, State, Table};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use super::{
    Check, Constraint, Declared, Foreign, Index, Keys, Kind, TAG, What, column_called, name_of, naming,
};
use crate::warehouse::keys::declaration::{Declaration, check_columns, several_primary};

pub(crate) fn error(state: SqlState, message: impl Into<String>) -> DataFusionError {
    SqlError::new(state, message).into_datafusion()
}

/// What has a name in the schema of `table`, the tables of `state` with `table` as it is going to be.
struct Taken<'s> {
    state: &'s State,
    table: &'s Table,
    own: &'s Keys,
}

impl Taken<'_> {
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

/// Errors: the name of a constraint is taken (42710, 42P07). `has_index`: it is that of an index, too.
fn check_name(taken: &Taken<'_>, name: &str, has_index: bool) -> Result<()> {
    if has_index && taken.is_relation(name) {
        return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    match taken.own.constraint(name) {
        Some(_) => {
            let message =
                format!("constraint \"{name}\" for relation \"{}\" already exists", taken.table.name);
            Err(error(SqlState::DUPLICATE_OBJECT, message))
        }
        None => Ok(()),
    }
}

/// Declares a key of `table`; columns of a primary key become NOT NULL, which is not looked at in rows.
/// `target`: the table that a foreign key refers to.
///
/// Errors: those of [`check_columns`]; a second primary key (42P16); its name is taken (42710, 42P07); a
/// foreign key does not fit what it refers to (42830, 42704, 42804); an index to be used does not fit (42704,
/// 42809).
pub(crate) fn add(state: &State, table: &mut Table, key: &Declared, target: Option<&Table>) -> Result<()> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    check_columns(key, |name| column_called(table, name).is_some())?;
    let columns: Vec<ColumnId> =
        key.columns.iter().filter_map(|name| column_called(table, name)).map(|column| column.id).collect();
    let taken = Taken { state, table, own: &keys };
    let chosen = |with_columns: bool, label: &str, is_taken: &dyn Fn(&str) -> bool| match &key.name {
        Some(name) => name.clone(),
        None => {
            let names = naming::columns(key.columns.iter().map(String::as_str));
            naming::chosen(&table.name, if with_columns { &names } else { "" }, label, is_taken)
        }
    };
    let (name, columns, kind, number) = match &key.what {
        Declaration::Primary => {
            if keys.primary().is_some() {
                return Err(several_primary(&table.name));
            }
            let name = chosen(false, "pkey", &|name| taken.is_either(name));
            check_name(&taken, &name, true)?;
            (name, columns, Kind::Primary, None)
        }
        Declaration::Unique { nulls_not_distinct } => {
            let name = chosen(true, "key", &|name| taken.is_either(name));
            check_name(&taken, &name, true)?;
            (name, columns, Kind::Unique { nulls_not_distinct: *nulls_not_distinct }, None)
        }
        Declaration::Foreign { referenced, on_update, on_delete, full, .. } => {
            let target =
                target.ok_or_else(|| DataFusionError::Internal("a key without a table".to_string()))?;
            let (number, names) = referenced_key(target, referenced, columns.len())?;
            let name = chosen(true, "fkey", &|name| taken.is_constraint(name));
            check_name(&taken, &name, false)?;
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
        Declaration::Check { .. } => {
            return Err(DataFusionError::Internal("a check constraint is no key".to_string()));
        }
        Declaration::UsingIndex { index, is_primary } => {
            if *is_primary && keys.primary().is_some() {
                return Err(several_primary(&table.name));
            }
            let index = usable(&keys, index)?.clone();
            let name = key.name.clone().unwrap_or_else(|| index.name.clone());
            check_name(&taken, &name, name != index.name)?;
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
    let Declared { deferrable, deferred, .. } = *key;
    keys.constraints.push(Constraint { number, name, columns, deferrable, deferred, kind });
    keys.keep(table)
}

/// Declares a CHECK constraint of `table`, on `columns`; returns its name.
///
/// Errors: the name is taken (42710).
pub(crate) fn add_check(
    state: &State,
    table: &mut Table,
    name: Option<&str>,
    columns: Vec<ColumnId>,
    check: Check,
) -> Result<String> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let taken = Taken { state, table, own: &keys };
    let name = match (name, columns.as_slice()) {
        (Some(name), _) => name.to_string(),
        (None, [column]) => {
            naming::chosen(&table.name, name_of(table, *column), "check", |name| taken.is_constraint(name))
        }
        (None, _) => naming::chosen(&table.name, "", "check", |name| taken.is_constraint(name)),
    };
    check_name(&taken, &name, false)?;
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
    keys.keep(table)?;
    Ok(name)
}

/// What has been found of the rows of a table: they fulfil a CHECK constraint.
pub(crate) fn validate(table: &mut Table, name: &str) -> Result<()> {
    let mut keys = Keys::of(table);
    for constraint in keys.constraints.iter_mut().filter(|constraint| constraint.name == name) {
        if let Kind::Check(check) = &mut constraint.kind {
            check.not_valid = false;
        }
    }
    keys.keep(table)
}

/// An index that a constraint is to be made of.
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
    if index.items.iter().any(|item| matches!(item.what, What::Expression(_))) {
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

/// The number and columns of the key of `target` that a foreign key of so many columns refers to.
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
        match column_called(target, name) {
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
        if !are_compared(own_kind, other_kind) {
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

/// Whether values of a foreign key's type are compared with those of the key's in PostgreSQL, by a common
/// operator or after they have become its type.
fn are_compared(own: ColumnType, key: ColumnType) -> bool {
    // Of numbers, those further on take those before.
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

/// The foreign keys that refer to a key of `table`, or to any if there is no number, with their tables; those
/// of `table` itself among them only if a number is given.
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

/// What PostgreSQL says of foreign keys that are in the way of dropping something, or go with it.
///
/// Errors: there are some, and CASCADE was not said (2BP01). `what`: what is dropped, `on`: what of it they
/// depend on.
pub(crate) fn cascade(
    dependents: &[(&Table, Constraint)],
    is_cascade: bool,
    what: &str,
    on: &str,
) -> Result<Vec<String>> {
    let told = |(table, constraint): &(&Table, Constraint)| {
        format!("constraint {} on table {}", constraint.name, table.name)
    };
    if dependents.is_empty() || is_cascade {
        return Ok(dependents.iter().map(|found| format!("drop cascades to {}", told(found))).collect());
    }
    let details: Vec<String> =
        dependents.iter().map(|found| format!("{} depends on {on}", told(found))).collect();
    Err(SqlError::new(
        SqlState::DEPENDENT_OBJECTS,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .with_detail(details.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
    .into_datafusion())
}

/// Takes foreign keys out of `table` itself, as others are gone with what they refer to.
fn forget(keys: &mut Keys, table: &Table, dependents: &[(&Table, Constraint)]) {
    let own: Vec<u32> =
        dependents.iter().filter(|(other, _)| other.id == table.id).map(|(_, key)| key.number).collect();
    keys.constraints.retain(|constraint| !own.contains(&constraint.number));
}

/// Drops a constraint; returns what goes with it.
///
/// Errors: there is none of the name (42704); foreign keys refer to it (2BP01).
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
    forget(&mut keys, table, &found);
    keys.keep(table)?;
    Ok(notices)
}

/// Drops what has to do with a column that is going to be dropped; returns what goes with it.
///
/// Errors: foreign keys refer to it (2BP01).
pub(crate) fn drop_with_column(
    state: &State,
    table: &mut Table,
    column: &str,
    is_cascade: bool,
) -> Result<Vec<String>> {
    let Some(id) = column_called(table, column).map(|column| column.id) else { return Ok(vec![]) };
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
    forget(&mut keys, table, &found);
    keys.keep(table)?;
    Ok(notices)
}

/// Errors: there is none of the name (42704), or one of the new name (42710, 42P07).
pub(crate) fn rename_constraint(state: &State, table: &mut Table, name: &str, new: &str) -> Result<()> {
    let mut keys = Keys::of(table);
    let Some(has_index) = keys.constraint(name).map(Constraint::is_index) else {
        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
        return Err(error(SqlState::UNDEFINED_OBJECT, message));
    };
    check_name(&Taken { state, table, own: &keys }, new, has_index)?;
    for constraint in keys.constraints.iter_mut().filter(|constraint| constraint.name == name) {
        constraint.name = new.to_string();
    }
    keys.keep(table)
}

/// Errors: a column is of a primary key (42P16).
pub(crate) fn check_nullable(table: &Table, column: &str) -> Result<()> {
    let keys = Keys::of(table);
    let id = column_called(table, column).map(|column| column.id);
    match keys.primary().zip(id) {
        Some((primary, id)) if primary.columns.contains(&id) => {
            let message = format!("column \"{column}\" is in a primary key");
            Err(error(SqlState::INVALID_TABLE_DEFINITION, message))
        }
        _ => Ok(()),
    }
}

/// Keeps an index, of the name that it says or, if that is empty, one made of `columns`; returns its name, or
/// `None` if there is a relation of the name and `if_not_exists`.
///
/// Errors: there is a relation of the name (42P07).
pub(crate) fn add_index(
    state: &State,
    table: &mut Table,
    mut index: Index,
    columns: &str,
    if_not_exists: bool,
) -> Result<Option<String>> {
    let mut keys = Keys::of(table);
    keys.prune(state, table);
    let taken = Taken { state, table, own: &keys };
    if index.name.is_empty() {
        index.name = naming::chosen(&table.name, columns, "idx", |name| taken.is_relation(name));
    } else if taken.is_relation(&index.name) {
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
    keys.keep(table)?;
    Ok(Some(name))
}

/// The table that has an index of this name, or a constraint that has.
pub(crate) fn table_of_index<'s>(state: &'s State, schema: ObjectId, name: &str) -> Option<&'s Table> {
    let tables = state.tables.values().filter(|table| table.schema == schema && table.tags.contains_key(TAG));
    tables.map(AsRef::as_ref).find(|table| Keys::of(table).has_relation(name))
}

/// Drops an index; returns what goes with it.
///
/// Errors: a constraint is, or foreign keys refer to it (2BP01).
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
    forget(&mut keys, table, &found);
    keys.keep(table)?;
    Ok(notices)
}

/// Errors: there is a relation of the new name (42P07).
pub(crate) fn rename_index(state: &State, table: &mut Table, name: &str, new: &str) -> Result<()> {
    if Keys::of(table).constraint(name).is_some() {
        return rename_constraint(state, table, name, new);
    }
    let mut keys = Keys::of(table);
    if (Taken { state, table, own: &keys }).is_relation(new) {
        return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{new}\" already exists")));
    }
    for index in keys.indexes.iter_mut().filter(|index| index.name == name) {
        index.name = new.to_string();
    }
    keys.keep(table)
}
