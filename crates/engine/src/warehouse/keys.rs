//! Primary keys, unique constraints, foreign keys and indexes of warehouse tables, which are stored and shown
//! but neither enforced nor built; and CHECK constraints, which are enforced.
//!
//! # Invariants
//!
//! All of them are stored in one tag of their table in the catalog, [`TAG`], as JSON, so snapshots and
//! rollbacks cover them. Columns are referred to by id and other tables by UUID, so renames need no change
//! here, whichever program renames. If DuckDB drops a referenced object, the keys that refer to it go too:
//! [`Keys::of`] skips keys that lack a column, and [`Keys::target`] does not find a dropped key. Key numbers
//! are never reused within a table, so a reference cannot point to another key than the one it was made for.
//! No plan relies on keys (`docs/decisions/0037-keys-that-are-not-enforced.md`).
//!
//! ```text
//! {"next": 3,
//!  "constraints": [{"number": 1, "name": "t_pkey", "columns": [1], "kind": "primary"},
//!                  {"number": 2, "name": "t_b_fkey", "columns": [2], "kind": "foreign",
//!                   "table": "018f…", "key": 1, "referenced": [1], "on_delete": "cascade"},
//!                  {"number": 4, "name": "t_b_check", "columns": [2], "kind": "check",
//!                   "condition": {"sql": "b > 0", "columns": {"b": 2}}}],
//!  "indexes": [{"number": 3, "name": "t_lower_idx", "method": "btree",
//!               "items": [{"expression": {"sql": "lower(b)", "columns": {"b": 2}}}]}]}
//! ```

use std::collections::BTreeMap;

use datafusion::error::{DataFusionError, Result};
use harrier_catalog::state::{Column, ColumnId, KEYS_TAG as TAG, State, Table};
use serde::{Deserialize, Serialize};

pub(crate) use change::check_nullable;
pub(crate) use declaration::KeyDeclaration;
pub(crate) use pg_catalog::catalog_keys;
pub(crate) use row_check::{RowCheck, of_table as checks_of};

pub(crate) mod change;
pub(crate) mod declaration;
pub(crate) mod expressions;
pub(crate) mod naming;
pub(crate) mod pg_catalog;
pub(crate) mod row_check;

/// The keys, constraints and indexes of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// The last number assigned.
    #[serde(default)]
    pub(crate) next: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) indexes: Vec<Index>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Constraint {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnId>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) deferrable: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) deferred: bool,
    #[serde(flatten)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Kind {
    Primary,
    Unique {
        #[serde(default, skip_serializing_if = "is_false")]
        nulls_not_distinct: bool,
    },
    Foreign(Foreign),
    Check(Check),
}

/// A CHECK constraint's condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) condition: Expression,
    /// Existing rows have not been checked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) not_valid: bool,
}

/// The referenced key of a foreign key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Foreign {
    /// UUID of the referenced table.
    pub(crate) table: String,
    /// Number of a primary key, unique constraint or unique index of that table.
    pub(crate) key: u32,
    pub(crate) referenced: Vec<ColumnId>,
    #[serde(default, skip_serializing_if = "Action::is_none")]
    pub(crate) on_update: Action,
    #[serde(default, skip_serializing_if = "Action::is_none")]
    pub(crate) on_delete: Action,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) full: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    #[default]
    None,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) number: u32,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unique: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) nulls_not_distinct: bool,
    pub(crate) method: String,
    pub(crate) items: Vec<Item>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) include: Vec<ColumnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) predicate: Option<Expression>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    #[serde(flatten)]
    pub(crate) what: IndexKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) descending: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) nulls_first: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IndexKey {
    Column(ColumnId),
    Expression(Expression),
}

/// An SQL expression with the columns its names refer to, which may have been renamed since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Expression {
    pub(crate) sql: String,
    pub(crate) columns: BTreeMap<String, ColumnId>,
}

/// A key of columns, by their names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UniqueKey {
    /// The name of its constraint; `None` for an index.
    pub(crate) constraint: Option<String>,
    pub(crate) columns: Vec<String>,
    /// NULLS NOT DISTINCT: a NULL equals another.
    pub(crate) nulls_equal: bool,
    pub(crate) is_deferrable: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Action {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl Keys {
    /// Reads the keys of `table`; skips those that lack a column.
    pub(crate) fn of(table: &Table) -> Self {
        let mut keys: Self =
            table.tags.get(TAG).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let has = |id: &ColumnId| table.columns.iter().any(|column| column.id == *id);
        keys.constraints.retain(|constraint| constraint.columns.iter().all(has));
        keys.indexes.retain(|index| index.columns().iter().all(has));
        keys
    }

    /// Stores the keys in the tags of `table`.
    fn store(&self, table: &mut Table) -> Result<()> {
        if *self == Self::default() {
            table.tags.remove(TAG);
            return Ok(());
        }
        let text = serde_json::to_string(self).map_err(|error| DataFusionError::External(error.into()))?;
        table.tags.insert(TAG.to_string(), text);
        Ok(())
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn primary(&self) -> Option<&Constraint> {
        self.constraints.iter().find(|constraint| constraint.kind == Kind::Primary)
    }

    pub(crate) fn constraint(&self, name: &str) -> Option<&Constraint> {
        self.constraints.iter().find(|constraint| constraint.name == name)
    }

    /// Whether an index of this name belongs to the table, be it a constraint's.
    fn has_relation(&self, name: &str) -> bool {
        let constraints = self.constraints.iter().filter(|constraint| constraint.is_index());
        constraints.map(|constraint| &constraint.name).any(|own| own == name)
            || self.indexes.iter().any(|index| index.name == name)
    }

    /// The keys of whole columns for all rows: of constraints, then of unique indexes.
    pub(crate) fn unique(&self, table: &Table) -> Vec<UniqueKey> {
        let names = |ids: &[ColumnId]| ids.iter().map(|id| name_of(table, *id).to_string()).collect();
        let constraints = self.constraints.iter().filter(|constraint| constraint.is_index());
        let constraints = constraints.map(|constraint| UniqueKey {
            constraint: Some(constraint.name.clone()),
            columns: names(&constraint.columns),
            nulls_equal: constraint.kind == Kind::Unique { nulls_not_distinct: true },
            is_deferrable: constraint.deferrable,
        });
        let indexes = self.indexes.iter().filter_map(|index| {
            Some(UniqueKey {
                constraint: None,
                columns: names(&index.key_columns()?),
                nulls_equal: index.nulls_not_distinct,
                is_deferrable: false,
            })
        });
        constraints.chain(indexes).collect()
    }

    /// The keys that foreign keys may refer to: numbers and columns.
    fn candidates(&self) -> impl Iterator<Item = (u32, Vec<ColumnId>)> {
        let constraints = self.constraints.iter().filter(|constraint| constraint.is_index());
        let constraints = constraints.map(|constraint| (constraint.number, constraint.columns.clone()));
        let indexes = self.indexes.iter().filter_map(|index| Some((index.number, index.key_columns()?)));
        constraints.chain(indexes).collect::<Vec<_>>().into_iter()
    }

    /// The table referenced by a foreign key; `None` if the table or the key is gone.
    pub(crate) fn target<'s>(state: &'s State, foreign: &Foreign) -> Option<&'s Table> {
        let table = state.tables.values().find(|table| table.uuid == foreign.table)?;
        let has = |id: &ColumnId| table.columns.iter().any(|column| column.id == *id);
        let is_there = Self::of(table).candidates().any(|(number, _)| number == foreign.key);
        (is_there && foreign.referenced.iter().all(has)).then_some(table)
    }

    /// Removes foreign keys whose referenced key is gone.
    fn prune(&mut self, state: &State, own: &Table) {
        self.constraints.retain(|constraint| match &constraint.kind {
            Kind::Foreign(foreign) => foreign.table == own.uuid || Self::target(state, foreign).is_some(),
            _ => true,
        });
        let candidates: Vec<u32> = self.candidates().map(|(number, _)| number).collect();
        self.constraints.retain(|constraint| match &constraint.kind {
            Kind::Foreign(foreign) if foreign.table == own.uuid => candidates.contains(&foreign.key),
            _ => true,
        });
    }
}

impl Constraint {
    /// Whether PostgreSQL creates an index of the same name for it.
    pub(crate) fn is_index(&self) -> bool {
        !matches!(self.kind, Kind::Foreign(_) | Kind::Check(_))
    }
}

impl Index {
    /// The columns of a unique index of whole columns for all rows; `None` for others.
    fn key_columns(&self) -> Option<Vec<ColumnId>> {
        let columns = self.items.iter().map(|item| match item.what {
            IndexKey::Column(id) => Some(id),
            IndexKey::Expression(_) => None,
        });
        columns.collect::<Option<Vec<_>>>().filter(|_| self.unique && self.predicate.is_none())
    }

    /// All columns that it uses.
    pub(crate) fn columns(&self) -> Vec<ColumnId> {
        let mut columns = self.include.clone();
        for item in &self.items {
            match &item.what {
                IndexKey::Column(id) => columns.push(*id),
                IndexKey::Expression(expression) => columns.extend(expression.columns.values()),
            }
        }
        columns.extend(self.predicate.iter().flat_map(|predicate| predicate.columns.values()));
        columns
    }
}

/// Whether an index of this name exists in the schema.
pub(crate) fn has_index(state: &State, schema: i64, name: &str) -> bool {
    let tables = state.tables.values().filter(|table| table.schema == schema && table.tags.contains_key(TAG));
    tables.into_iter().any(|table| Keys::of(table).has_relation(name))
}

pub(crate) fn column_named<'t>(table: &'t Table, name: &str) -> Option<&'t Column> {
    table.columns.iter().find(|column| column.name == name)
}

pub(crate) fn name_of(table: &Table, id: ColumnId) -> &str {
    table.columns.iter().find(|column| column.id == id).map_or("", |column| &column.name)
}

/// The notice for declared keys.
pub(crate) fn keys_notice(table: &str) -> String {
    format!("keys of table \"{table}\" are declared and not enforced")
}

#[cfg(test)]
mod tests {
    use harrier_catalog::state::Location;
    use harrier_catalog::types::ColumnType;

    use super::*;

    fn table(columns: &[(ColumnId, &str)], tag: &str) -> Table {
        let column = |(id, name): &(ColumnId, &str)| Column {
            id: *id,
            name: name.to_string(),
            kind: ColumnType::Int32,
            children: vec![],
            nullable: true,
            initial_default: None,
            default: None,
            comment: None,
            tags: BTreeMap::new(),
        };
        Table {
            id: 1,
            uuid: "u".to_string(),
            schema: 0,
            name: "t".to_string(),
            path: Location::relative("t/"),
            columns: columns.iter().map(column).collect(),
            next_column: 10,
            partition: vec![],
            partition_id: None,
            sort: vec![],
            comment: None,
            tags: BTreeMap::from([(TAG.to_string(), tag.to_string())]),
            options: BTreeMap::new(),
        }
    }

    const TEXT: &str = r#"{"next":4,"constraints":[{"number":1,"name":"t_pkey","columns":[1],"kind":"primary"},{"number":2,"name":"f","columns":[2],"deferrable":true,"kind":"foreign","table":"u","key":1,"referenced":[1],"on_delete":"set_null","full":true},{"number":3,"name":"u","columns":[1,2],"kind":"unique","nulls_not_distinct":true}],"indexes":[{"number":4,"name":"i","method":"btree","items":[{"expression":{"sql":"lower(b)","columns":{"b":2}},"descending":true},{"column":1}]}]}"#;

    #[test]
    fn keys_round_trip() {
        let mut own = table(&[(1, "a"), (2, "b")], TEXT);
        let keys = Keys::of(&own);
        assert_eq!((keys.constraints.len(), keys.indexes.len()), (3, 1));
        keys.store(&mut own).unwrap();
        assert_eq!(own.tags[TAG], TEXT);
    }

    /// The catalog looks for this word, so that new constraints conflict with new rows.
    #[test]
    fn check_constraints_are_stored_in_the_catalog() {
        let condition =
            Expression { sql: "a > 0".to_string(), columns: BTreeMap::from([("a".to_string(), 1)]) };
        let mut own = table(&[(1, "a")], "{}");
        let mut keys = Keys::default();
        let number = keys.number();
        keys.constraints.push(Constraint {
            number,
            name: "t_a_check".to_string(),
            columns: vec![1],
            deferrable: false,
            deferred: false,
            kind: Kind::Check(Check { condition, not_valid: false }),
        });
        keys.store(&mut own).unwrap();
        assert!(own.tags[TAG].contains(harrier_catalog::state::CHECK), "{}", own.tags[TAG]);
        assert_eq!(Keys::of(&own), keys);
        assert!(!TEXT.contains(harrier_catalog::state::CHECK));
    }

    #[test]
    fn constraints_without_their_column_are_dropped() {
        // DuckDB has dropped `b`, and then `a`.
        let keys = Keys::of(&table(&[(1, "a"), (3, "b")], TEXT));
        assert_eq!(keys.constraints.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["t_pkey"]);
        assert!(keys.indexes.is_empty());
        assert_eq!(Keys::of(&table(&[], TEXT)), Keys { next: 4, ..Keys::default() });
        assert_eq!(Keys::of(&table(&[], "not JSON")), Keys::default());
    }

    #[test]
    fn expressions_follow_renamed_columns() {
        let own = table(&[(1, "a"), (2, "new \"name\"")], TEXT);
        let index = &Keys::of(&own).indexes[0];
        let IndexKey::Expression(expression) = &index.items[0].what else { panic!("an expression") };
        assert_eq!(expressions::text(expression, &own), "lower(\"new \"\"name\"\"\")");
    }
}
