//! Rows about keys and indexes.

use crate::key_texts::qualified_name;
use std::collections::HashSet;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::error::Result;

use super::stored_types::types;
use crate::catalog::Index as Known;
use crate::key_texts::{action_words, column_name};
use crate::keys::{Constraint, ConstraintKind, Index, IndexItem, Indexed};
use crate::live::view::{Attribute, Columns, PG_CLASS, View};
use crate::source::{Relation, Schema, oid};
use crate::system::SYSTEM;
use crate::types::postgres_type_of_field;

const PG_CONSTRAINT: i32 = 2606;
const TEXT: i32 = 25;
const BTREE: i32 = 403;
const DESCENDING: i16 = 1;
const NULLS_FIRST: i16 = 2;

/// A row of `pg_depend`: class, object and column of the dependent, of the referenced object, and the type.
pub(super) type Dependency = (i32, i32, i32, i32, i32, i32, &'static str);

/// All indexes, each with its table.
pub(super) fn indexes(known: &Known) -> impl Iterator<Item = (&Relation, &Schema, &Index)> {
    known.user_relations().flat_map(|(relation, schema)| {
        relation.keys.indexes.iter().map(move |index| (relation, schema, index))
    })
}

fn constraints(known: &Known) -> impl Iterator<Item = (&Relation, &Schema, &Constraint)> {
    known.user_relations().flat_map(|(relation, schema)| {
        relation.keys.constraints.iter().map(move |constraint| (relation, schema, constraint))
    })
}

/// The ids of relations with foreign keys, and of those they reference.
pub(super) fn referring(known: &Known) -> HashSet<i64> {
    let mut found = HashSet::new();
    for (relation, _, constraint) in constraints(known) {
        if let ConstraintKind::Foreign(foreign) = &constraint.kind {
            found.extend([relation.id, foreign.relation]);
        }
    }
    found
}

/// The columns of indexes, for `pg_attribute`.
pub(super) fn attributes(known: &Known) -> Vec<(i32, String, i32, i32, i16)> {
    let mut found = vec![];
    for (relation, _, index) in indexes(known) {
        let places = index.items.iter().map(|item| match item.what {
            Indexed::Column(at) => Some(at),
            Indexed::Expression(_) => None,
        });
        let places = places.chain(index.included.iter().map(|at| Some(*at)));
        for ((name, at), number) in index.column_names(relation).into_iter().zip(places).zip(1i16..) {
            let field = at.and_then(|at| relation.columns.get(at)).map(|column| &column.field);
            let (type_oid, modifier) = field.map_or((TEXT as u32, -1), |field| postgres_type_of_field(field));
            found.push((oid(index.id), name, type_oid as i32, modifier, number));
        }
    }
    found
}

/// The same as `Attribute`s.
pub(super) fn as_attributes(found: &[(i32, String, i32, i32, i16)]) -> impl Iterator<Item = Attribute<'_>> {
    found.iter().map(|(relation, name, type_oid, modifier, number)| Attribute {
        relation: *relation,
        name,
        type_oid: *type_oid,
        modifier: *modifier,
        number: *number,
        not_null: false,
        default: false,
        identity: "",
        acl: None,
    })
}

/// The oid of an index's access method; unknown ones count as PostgreSQL's default.
pub(super) fn method(index: &Index) -> i32 {
    let found = || -> Option<i32> {
        let rows = SYSTEM.catalog("pg_am")?.rows().ok()?;
        let names = rows.column_by_name("amname")?.as_string::<i32>();
        let at = names.iter().position(|name| name == Some(index.method.as_str()))?;
        Some(rows.column_by_name("oid")?.as_primitive::<Int32Type>().value(at))
    };
    found().unwrap_or(BTREE)
}

/// Dependencies of keys and indexes on tables, columns and each other.
pub(super) fn dependencies(known: &Known) -> Vec<Dependency> {
    let mut found = vec![];
    let number = |at: usize| at as i32 + 1;
    for (relation, _, constraint) in constraints(known) {
        let (own, table) = (oid(constraint.id), oid(relation.id));
        let columns = constraint.columns.iter();
        found.extend(columns.map(|at| (PG_CONSTRAINT, own, 0, PG_CLASS, table, number(*at), "a")));
        if let ConstraintKind::Foreign(foreign) = &constraint.kind {
            let target = oid(foreign.relation);
            let columns = foreign.columns.iter();
            found.extend(columns.map(|at| (PG_CONSTRAINT, own, 0, PG_CLASS, target, number(*at), "n")));
            found.push((PG_CONSTRAINT, own, 0, PG_CLASS, oid(foreign.index), 0, "n"));
        }
    }
    for (relation, _, index) in indexes(known) {
        let own = oid(index.id);
        if constraint_of(relation, index).is_some() {
            found.push((PG_CLASS, own, 0, PG_CONSTRAINT, own, 0, "i"));
            continue;
        }
        for item in &index.items {
            let at = match item.what {
                Indexed::Column(at) => number(at),
                Indexed::Expression(_) => 0,
            };
            found.push((PG_CLASS, own, 0, PG_CLASS, oid(relation.id), at, "a"));
        }
    }
    found
}

fn constraint_of<'r>(relation: &'r Relation, index: &Index) -> Option<&'r Constraint> {
    let is_its = |constraint: &&Constraint| {
        constraint.id == index.id
            && !matches!(constraint.kind, ConstraintKind::Foreign(_) | ConstraintKind::Check(_))
    };
    relation.keys.constraints.iter().find(is_its)
}

impl View<'_> {
    pub(super) fn pg_constraint(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let found: Vec<_> = constraints(&known).collect();
        let rows = found.len();
        let foreign = |constraint: &Constraint| match &constraint.kind {
            ConstraintKind::Foreign(foreign) => Some(foreign.clone()),
            _ => None,
        };
        let index = |constraint: &Constraint| match &constraint.kind {
            ConstraintKind::Foreign(foreign) => oid(foreign.index),
            ConstraintKind::Check(_) => 0,
            _ => oid(constraint.id),
        };
        let letter = |letter: Option<char>| letter.unwrap_or(' ').to_string();
        let columns = Columns::default()
            .numbers("oid", found.iter().map(|(_, _, c)| oid(c.id)))
            .texts("conname", found.iter().map(|(_, _, c)| &c.name))
            .numbers("connamespace", found.iter().map(|(_, schema, _)| schema.oid()))
            .texts("contype", found.iter().map(|(_, _, c)| c.kind.letter()))
            .bools("condeferrable", found.iter().map(|(_, _, c)| c.is_deferrable))
            .bools("condeferred", found.iter().map(|(_, _, c)| c.is_deferred))
            .bools("convalidated", found.iter().map(|(_, _, c)| is_valid(c)))
            .numbers("conrelid", found.iter().map(|(r, _, _)| oid(r.id)))
            .numbers("conindid", found.iter().map(|(_, _, c)| index(c)))
            .numbers(
                "confrelid",
                found.iter().map(|(_, _, c)| foreign(c).map_or(0, |foreign| oid(foreign.relation))),
            )
            .texts("confupdtype", found.iter().map(|(_, _, c)| letter(foreign(c).map(|f| f.on_update))))
            .texts("confdeltype", found.iter().map(|(_, _, c)| letter(foreign(c).map(|f| f.on_delete))))
            .texts(
                "confmatchtype",
                found.iter().map(|(_, _, c)| letter(foreign(c).map(|f| if f.is_full { 'f' } else { 's' }))),
            )
            .all("conislocal", true, rows)?
            .all("connoinherit", true, rows)?
            .lists("conkey", found.iter().map(|(_, _, c)| Some(numbers(&c.columns))))
            .maybe_texts("conbin", found.iter().map(|(_, _, c)| condition(c).map(str::to_string)))
            .lists("confkey", found.iter().map(|(_, _, c)| Some(numbers(&foreign(c)?.columns))));
        self.batch(rows, columns)
    }

    pub(super) fn pg_index(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let found: Vec<_> = indexes(&known).collect();
        let rows = found.len();
        let width = |index: &Index| index.items.len() as i16;
        let key = |index: &Index| {
            let items = index.items.iter().map(|item| match item.what {
                Indexed::Column(at) => at + 1,
                Indexed::Expression(_) => 0,
            });
            items.chain(index.included.iter().map(|at| at + 1)).map(|number| number.to_string()).collect()
        };
        let of_items = |relation: &Relation, index: &Index, of: &dyn Fn(&Relation, &IndexItem) -> i32| {
            Some(index.items.iter().map(|item| of(relation, item).to_string()).collect::<Vec<_>>())
        };
        let collation = |relation: &Relation, item: &IndexItem| {
            types().get(&type_of(relation, item)).map_or(0, |stored| stored.collation)
        };
        let option = |_: &Relation, item: &IndexItem| {
            let mut bits = 0;
            if item.is_descending {
                bits |= DESCENDING;
            }
            if item.nulls_first {
                bits |= NULLS_FIRST;
            }
            i32::from(bits)
        };
        let expressions = |index: &Index| {
            let texts = index.items.iter().filter_map(|item| match &item.what {
                Indexed::Expression(text) => Some(text.clone()),
                Indexed::Column(_) => None,
            });
            let texts: Vec<String> = texts.collect();
            (!texts.is_empty()).then(|| texts.join(", "))
        };
        let columns = Columns::default()
            .numbers("indexrelid", found.iter().map(|(_, _, i)| oid(i.id)))
            .numbers("indrelid", found.iter().map(|(r, _, _)| oid(r.id)))
            .small("indnatts", found.iter().map(|(_, _, i)| width(i) + i.included.len() as i16))
            .small("indnkeyatts", found.iter().map(|(_, _, i)| width(i)))
            .bools("indisunique", found.iter().map(|(_, _, i)| i.is_unique))
            .bools("indnullsnotdistinct", found.iter().map(|(_, _, i)| i.nulls_not_distinct))
            .bools("indisprimary", found.iter().map(|(_, _, i)| i.is_primary))
            .bools("indimmediate", found.iter().map(|(_, _, i)| !i.is_deferrable))
            // No index is built.
            .all("indisvalid", false, rows)?
            .all("indisready", false, rows)?
            .all("indislive", true, rows)?
            .lists("indkey", found.iter().map(|(_, _, i)| Some(key(i))))
            .lists("indcollation", found.iter().map(|(r, _, i)| of_items(r, i, &collation)))
            .lists(
                "indclass",
                found.iter().map(|(r, _, i)| of_items(r, i, &|r, item| class(r, item, method(i)))),
            )
            .lists("indoption", found.iter().map(|(r, _, i)| of_items(r, i, &option)))
            .maybe_texts("indexprs", found.iter().map(|(_, _, i)| expressions(i)))
            .maybe_texts("indpred", found.iter().map(|(_, _, i)| i.predicate.clone()));
        self.batch(rows, columns)
    }

    pub(super) fn pg_indexes(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let found: Vec<_> = indexes(&known).collect();
        let definition = |relation: &Relation, schema: &Schema, index: &Index| {
            let name = qualified_name(relation, schema);
            index.definition(relation, &name)
        };
        let columns = Columns::default()
            .texts("schemaname", found.iter().map(|(_, schema, _)| &schema.name))
            .texts("tablename", found.iter().map(|(r, _, _)| &r.name))
            .texts("indexname", found.iter().map(|(_, _, i)| &i.name))
            .texts("indexdef", found.iter().map(|(r, schema, i)| definition(r, schema, i)));
        self.batch(found.len(), columns)
    }

    /// No index is ever read.
    pub(super) fn pg_stat_indexes(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let found: Vec<_> = indexes(&known).collect();
        let none = || found.iter().map(|_| Some(0));
        // Each of these relations has its own subset.
        let columns = Columns::default()
            .numbers("relid", found.iter().map(|(r, _, _)| oid(r.id)))
            .numbers("indexrelid", found.iter().map(|(_, _, i)| oid(i.id)))
            .texts("schemaname", found.iter().map(|(_, schema, _)| &schema.name))
            .texts("relname", found.iter().map(|(r, _, _)| &r.name))
            .texts("indexrelname", found.iter().map(|(_, _, i)| &i.name))
            .big("idx_scan", none())
            .big("idx_tup_read", none())
            .big("idx_tup_fetch", none())
            .big("idx_blks_read", none())
            .big("idx_blks_hit", none());
        self.batch(found.len(), columns)
    }

    /// The constraints of relations that the user has privileges on.
    fn accessible_constraints<'i>(
        &self,
        known: &'i Known,
    ) -> Vec<(&'i Relation, &'i Schema, &'i Constraint)> {
        let granted: Vec<i64> =
            self.accessible_relations(known).into_iter().map(|(relation, _)| relation.id).collect();
        constraints(known).filter(|(relation, _, _)| granted.contains(&relation.id)).collect()
    }

    pub(super) fn table_constraints(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let found = self.accessible_constraints(&known);
        let rows = found.len();
        let database = self.catalog.source.database();
        let nulls = |relation: &Relation, constraint: &Constraint| {
            let index = relation.keys.indexes.iter().find(|index| index.id == constraint.id);
            matches!(constraint.kind, ConstraintKind::Unique)
                .then(|| yes(!index.is_some_and(|index| index.nulls_not_distinct)))
        };
        let columns = Columns::default()
            .all("constraint_catalog", database.as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|(_, schema, _)| &schema.name))
            .texts("constraint_name", found.iter().map(|(_, _, c)| &c.name))
            .all("table_catalog", database.as_str(), rows)?
            .texts("table_schema", found.iter().map(|(_, schema, _)| &schema.name))
            .texts("table_name", found.iter().map(|(r, _, _)| &r.name))
            .texts("constraint_type", found.iter().map(|(_, _, c)| c.kind.words()))
            .texts("is_deferrable", found.iter().map(|(_, _, c)| yes(c.is_deferrable)))
            .texts("initially_deferred", found.iter().map(|(_, _, c)| yes(c.is_deferred)))
            .texts("enforced", found.iter().map(|(_, _, c)| yes(condition(c).is_some())))
            .maybe_texts("nulls_distinct", found.iter().map(|(r, _, c)| nulls(r, c)));
        self.batch(rows, columns)
    }

    pub(super) fn check_constraints(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let mut found = self.accessible_constraints(&known);
        found.retain(|(_, _, constraint)| condition(constraint).is_some());
        let rows = found.len();
        let columns = Columns::default()
            .all("constraint_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|(_, schema, _)| &schema.name))
            .texts("constraint_name", found.iter().map(|(_, _, c)| &c.name))
            .texts("check_clause", found.iter().map(|(_, _, c)| condition(c).unwrap_or_default()));
        self.batch(rows, columns)
    }

    pub(super) fn key_column_usage(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let mut found = vec![];
        let constraints = self.accessible_constraints(&known).into_iter();
        for (relation, schema, constraint) in constraints.filter(|(_, _, key)| condition(key).is_none()) {
            let index = referenced_index(&known, constraint);
            for (place, at) in constraint.columns.iter().enumerate() {
                // The position of the referenced column in the referenced key.
                let position = match (&constraint.kind, index) {
                    (ConstraintKind::Foreign(foreign), Some((_, _, index))) => {
                        let wanted = foreign.columns.get(place);
                        index
                            .items
                            .iter()
                            .position(|item| matches!(&item.what, Indexed::Column(at) if Some(at) == wanted))
                    }
                    _ => None,
                };
                found.push((relation, schema, constraint, *at, place, position));
            }
        }
        let rows = found.len();
        let database = self.catalog.source.database();
        let mut columns = Columns::default()
            .all("constraint_catalog", database.as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|f| &f.1.name))
            .texts("constraint_name", found.iter().map(|f| &f.2.name))
            .all("table_catalog", database.as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| &f.1.name))
            .texts("table_name", found.iter().map(|f| &f.0.name))
            .texts("column_name", found.iter().map(|f| column_name(f.0, f.3)))
            .numbers("ordinal_position", found.iter().map(|f| f.4 as i32 + 1));
        columns =
            columns.big("position_in_unique_constraint", found.iter().map(|f| f.5.map(|at| at as i64 + 1)));
        self.batch(rows, columns)
    }

    pub(super) fn constraint_column_usage(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let mut found = vec![];
        for (relation, schema, constraint) in self.accessible_constraints(&known) {
            let used = match &constraint.kind {
                ConstraintKind::Foreign(foreign) => match relation_of(&known, foreign.relation) {
                    Some((target, schema)) => (target, schema, &foreign.columns),
                    None => continue,
                },
                _ => (relation, schema, &constraint.columns),
            };
            found.extend(used.2.iter().map(|at| (used.0, used.1, *at, schema, constraint)));
        }
        let rows = found.len();
        let database = self.catalog.source.database();
        let columns = Columns::default()
            .all("table_catalog", database.as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| &f.1.name))
            .texts("table_name", found.iter().map(|f| &f.0.name))
            .texts("column_name", found.iter().map(|f| column_name(f.0, f.2)))
            .all("constraint_catalog", database.as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|f| &f.3.name))
            .texts("constraint_name", found.iter().map(|f| &f.4.name));
        self.batch(rows, columns)
    }

    pub(super) fn constraint_table_usage(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let mut found = vec![];
        for (relation, schema, constraint) in self.accessible_constraints(&known) {
            let used = match &constraint.kind {
                ConstraintKind::Foreign(foreign) => relation_of(&known, foreign.relation),
                _ => Some((relation, schema)),
            };
            found.extend(used.map(|(table, of)| (table, of, schema, constraint)));
        }
        let rows = found.len();
        let database = self.catalog.source.database();
        let columns = Columns::default()
            .all("table_catalog", database.as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| &f.1.name))
            .texts("table_name", found.iter().map(|f| &f.0.name))
            .all("constraint_catalog", database.as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|f| &f.2.name))
            .texts("constraint_name", found.iter().map(|f| &f.3.name));
        self.batch(rows, columns)
    }

    pub(super) fn referential_constraints(&self) -> Result<RecordBatch> {
        let known = self.catalog.index()?;
        let mut found = vec![];
        for (_, schema, constraint) in self.accessible_constraints(&known) {
            let ConstraintKind::Foreign(foreign) = &constraint.kind else { continue };
            // An index without a constraint has no name there.
            let unique = referenced_index(&known, constraint)
                .filter(|(relation, _, index)| constraint_of(relation, index).is_some())
                .map(|(_, schema, index)| (schema.name.clone(), index.name.clone()));
            found.push((schema, constraint, foreign, unique));
        }
        let rows = found.len();
        let database = self.catalog.source.database();
        let columns = Columns::default()
            .all("constraint_catalog", database.as_str(), rows)?
            .texts("constraint_schema", found.iter().map(|f| &f.0.name))
            .texts("constraint_name", found.iter().map(|f| &f.1.name))
            .maybe_texts(
                "unique_constraint_catalog",
                found.iter().map(|f| f.3.as_ref().map(|_| database.as_str())),
            )
            .maybe_texts("unique_constraint_schema", found.iter().map(|f| f.3.as_ref().map(|u| &u.0)))
            .maybe_texts("unique_constraint_name", found.iter().map(|f| f.3.as_ref().map(|u| &u.1)))
            .texts("match_option", found.iter().map(|f| if f.2.is_full { "FULL" } else { "NONE" }))
            .texts("update_rule", found.iter().map(|f| action_words(f.2.on_update)))
            .texts("delete_rule", found.iter().map(|f| action_words(f.2.on_delete)));
        self.batch(rows, columns)
    }
}

fn relation_of(known: &Known, id: i64) -> Option<(&Relation, &Schema)> {
    known.user_relations().find(|(relation, _)| relation.id == id)
}

/// The index that a foreign key references.
fn referenced_index<'k>(
    known: &'k Known,
    constraint: &Constraint,
) -> Option<(&'k Relation, &'k Schema, &'k Index)> {
    let ConstraintKind::Foreign(foreign) = &constraint.kind else { return None };
    let (relation, schema) = relation_of(known, foreign.relation)?;
    let index = relation.keys.indexes.iter().find(|index| index.id == foreign.index)?;
    Some((relation, schema, index))
}

/// The condition of a CHECK constraint.
fn condition(constraint: &Constraint) -> Option<&str> {
    match &constraint.kind {
        ConstraintKind::Check(check) => Some(&check.condition),
        _ => None,
    }
}

fn is_valid(constraint: &Constraint) -> bool {
    matches!(&constraint.kind, ConstraintKind::Check(check) if check.is_valid)
}

fn numbers(columns: &[usize]) -> Vec<String> {
    columns.iter().map(|at| (at + 1).to_string()).collect()
}

fn type_of(relation: &Relation, item: &IndexItem) -> i32 {
    match item.what {
        Indexed::Column(at) => {
            relation.columns.get(at).map_or(TEXT, |column| postgres_type_of_field(&column.field).0 as i32)
        }
        Indexed::Expression(_) => TEXT,
    }
}

/// The operator class: the named one, or the default of its type; 0 if unknown.
fn class(relation: &Relation, item: &IndexItem, method: i32) -> i32 {
    let found = || -> Option<i32> {
        let rows = SYSTEM.catalog("pg_opclass")?.rows().ok()?;
        let column = |name: &str| rows.column_by_name(name);
        let methods = column("opcmethod")?.as_primitive::<Int32Type>();
        let names = column("opcname")?.as_string::<i32>();
        let of = column("opcintype")?.as_primitive::<Int32Type>();
        let defaults = column("opcdefault")?.as_boolean();
        let wanted = type_of(relation, item);
        let at = (0..rows.num_rows()).find(|row| {
            methods.value(*row) == method
                && match &item.class {
                    Some(class) => names.value(*row) == class,
                    None => defaults.value(*row) && of.value(*row) == wanted,
                }
        })?;
        Some(column("oid")?.as_primitive::<Int32Type>().value(at))
    };
    found().unwrap_or(0)
}

fn yes(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}
