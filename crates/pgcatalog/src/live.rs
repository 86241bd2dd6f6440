//! The rows of the relations that say what the session sees. A column that nothing is known of has PostgreSQL's nothing: null, or
//! zero, false or the empty text where PostgreSQL has no null.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float32Array, Int16Array, Int32Array, Int64Array, ListBuilder,
    RecordBatch, RecordBatchOptions, StringArray, StringBuilder, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::error::Result;
use datafusion::scalar::ScalarValue;

use crate::catalog::{
    Catalog, DATABASE_OID, Index, OWNER_OID, TABLE_PRIVILEGES, access_list, system_schemas,
};
use crate::source::{Column, Kind, Object, Relation, Role, Schema, Spread, oid};
use crate::system::{PG_CATALOG, SYSTEM, SystemRelation};
use crate::types::{format_type, postgres_type_of_field};

/// The oid of `pg_class`, by which comments and dependencies say that they are of a relation.
pub(crate) const PG_CLASS: i32 = 1259;
const PG_NAMESPACE: i32 = 2615;
const PG_AUTHID: i32 = 1260;
const PG_REWRITE: i32 = 2618;
/// The table space that everything is in.
const PG_DEFAULT: i32 = 1663;
/// The access method of tables. Harrier's are no heaps, but clients know no other.
const HEAP: i32 = 2;

/// The rows of a relation, at this moment.
pub(crate) fn rows(catalog: &Catalog, relation: &SystemRelation) -> Result<RecordBatch> {
    let view = View { catalog, relation };
    match (relation.namespace, relation.name) {
        (PG_CATALOG, name) => match name {
            "pg_class" => view.pg_class(),
            "pg_attribute" => view.pg_attribute(),
            "pg_attrdef" => view.pg_attrdef(),
            "pg_namespace" => view.pg_namespace(),
            "pg_database" => view.pg_database(),
            "pg_authid" | "pg_roles" => view.pg_roles(),
            "pg_user" | "pg_shadow" => view.pg_user(),
            "pg_group" => view.pg_group(),
            "pg_auth_members" => view.pg_auth_members(),
            "pg_description" => view.pg_description(),
            "pg_shdescription" => view.pg_shdescription(),
            "pg_rewrite" => view.pg_rewrite(),
            "pg_depend" => view.pg_depend(),
            "pg_tables" => view.pg_tables(),
            "pg_views" => view.pg_views(),
            "pg_settings" => view.pg_settings(),
            "pg_stat_activity" => view.pg_stat_activity(),
            "pg_prepared_statements" => view.pg_prepared_statements(),
            "pg_cursors" => view.pg_cursors(),
            "pg_stat_user_tables" | "pg_stat_all_tables" => view.pg_stat_tables(),
            "pg_stats" => view.pg_stats(),
            _ => Ok(relation.rows()?.clone()),
        },
        (_, name) => match name {
            "schemata" => view.schemata(),
            "tables" => view.tables(),
            "columns" => view.columns(),
            "views" => view.views(),
            "table_privileges" | "role_table_grants" => view.table_privileges(),
            "enabled_roles" => view.enabled_roles(),
            "applicable_roles" => view.applicable_roles(),
            "information_schema_catalog_name" => view.catalog_name(),
            _ => Ok(relation.rows()?.clone()),
        },
    }
}

struct View<'a> {
    catalog: &'a Catalog,
    relation: &'a SystemRelation,
}

/// Some columns of rows; the others say nothing.
#[derive(Default)]
struct Columns(Vec<(&'static str, ArrayRef)>);

impl Columns {
    fn texts<T: AsRef<str>>(mut self, name: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        let values: StringArray = values.into_iter().map(|value| Some(value.as_ref().to_string())).collect();
        self.0.push((name, Arc::new(values)));
        self
    }

    fn maybe_texts<T: AsRef<str>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<T>>,
    ) -> Self {
        let values: StringArray = values.into_iter().collect();
        self.0.push((name, Arc::new(values)));
        self
    }

    fn numbers(mut self, name: &'static str, values: impl IntoIterator<Item = i32>) -> Self {
        self.0.push((name, Arc::new(Int32Array::from_iter_values(values))));
        self
    }

    fn small(mut self, name: &'static str, values: impl IntoIterator<Item = i16>) -> Self {
        self.0.push((name, Arc::new(Int16Array::from_iter_values(values))));
        self
    }

    fn big(mut self, name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        self.0.push((name, Arc::new(values.into_iter().collect::<Int64Array>())));
        self
    }

    fn bools(mut self, name: &'static str, values: impl IntoIterator<Item = bool>) -> Self {
        self.0.push((name, Arc::new(values.into_iter().map(Some).collect::<BooleanArray>())));
        self
    }

    fn floats(mut self, name: &'static str, values: impl IntoIterator<Item = f32>) -> Self {
        self.0.push((name, Arc::new(Float32Array::from_iter_values(values))));
        self
    }

    fn times(mut self, name: &'static str, values: impl IntoIterator<Item = Option<i64>>) -> Self {
        let values: TimestampMicrosecondArray = values.into_iter().collect();
        self.0.push((name, Arc::new(values.with_timezone("+00:00"))));
        self
    }

    fn lists(mut self, name: &'static str, values: impl IntoIterator<Item = Option<Vec<String>>>) -> Self {
        let mut list = ListBuilder::new(StringBuilder::new());
        for value in values {
            match value {
                Some(texts) => list.append_value(texts.into_iter().map(Some)),
                None => list.append_null(),
            }
        }
        self.0.push((name, Arc::new(list.finish())));
        self
    }

    /// A column that has the same value in all rows. It is as long as the batch will be.
    fn all(mut self, name: &'static str, value: impl Into<ScalarValue>, rows: usize) -> Result<Self> {
        self.0.push((name, value.into().to_array_of_size(rows)?));
        Ok(self)
    }
}

impl View<'_> {
    /// Rows with all columns of the relation.
    fn batch(&self, rows: usize, columns: Columns) -> Result<RecordBatch> {
        let known: HashMap<_, _> = columns.0.into_iter().collect();
        let arrays =
            self.relation.columns.iter().zip(self.relation.schema.fields()).map(|(column, field)| {
                let Some(array) = known.get(column.name) else {
                    return if column.not_null {
                        nothing(column.type_name, field.data_type())?.to_array_of_size(rows)
                    } else {
                        Ok(new_null_array(field.data_type(), rows))
                    };
                };
                match array.data_type() == field.data_type() {
                    true => Ok(Arc::clone(array)),
                    false => Ok(cast(array, field.data_type())?),
                }
            });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.relation.schema), arrays, &options)?)
    }

    /// What PostgreSQL always has, and then these.
    fn with_system(&self, own: RecordBatch) -> Result<RecordBatch> {
        Ok(concat_batches(&self.relation.schema, [self.relation.rows()?, &own])?)
    }

    fn pg_class(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let roles = self.catalog.source.roles()?;
        let user = index.user_relations().collect::<Vec<_>>();
        let system = system_relations().collect::<Vec<_>>();
        let rows = user.len() + system.len();
        let both = |of_user: &dyn Fn(&Relation) -> i32, of_system: &dyn Fn(&SystemRelation) -> i32| {
            let system = system.iter().map(|relation| of_system(relation));
            user.iter().map(|(relation, _)| of_user(relation)).chain(system).collect::<Vec<_>>()
        };
        let names = user.iter().map(|(r, _)| r.name.as_str()).chain(system.iter().map(|r| r.name));
        let kinds = user.iter().map(|(r, _)| kind(r)).chain(system.iter().map(|r| r.kind));
        let tables = kinds.clone().map(|kind| kind != "v").collect::<Vec<_>>();
        let persistence = user.iter().map(|(r, _)| if r.kind == Kind::TemporaryTable { "t" } else { "p" });
        let counts = user.iter().map(|(r, _)| match (r.kind, r.rows) {
            (Kind::View, _) => 0.0,
            // As a count it needs no more digits than a float has.
            (_, Some(rows)) => rows as f32,
            (_, None) => -1.0,
        });
        let pages =
            user.iter().map(|(r, _)| i32::try_from(r.bytes.unwrap_or(0).div_ceil(8192)).unwrap_or(i32::MAX));
        let grants = user
            .iter()
            .map(|(r, _)| access_list(&r.owner, TABLE_PRIVILEGES, &r.grants))
            .chain(system.iter().map(|_| None));
        let replica = user.iter().map(|(r, _)| if r.kind == Kind::View { "n" } else { "d" });
        let columns = Columns::default()
            .numbers("oid", both(&|r| oid(r.id), &|r| r.oid))
            .texts("relname", names)
            .numbers("relnamespace", both(&|r| oid(r.schema), &|r| r.namespace))
            .numbers("relowner", both(&|r| self.catalog.role_oid(&roles, &r.owner), &|_| OWNER_OID))
            .numbers("relam", tables.iter().map(|table| if *table { HEAP } else { 0 }))
            .numbers("relfilenode", both(&|r| if r.kind == Kind::View { 0 } else { oid(r.id) }, &|_| 0))
            .numbers("relpages", pages.chain(system.iter().map(|_| 0)))
            .floats("reltuples", counts.chain(system.iter().map(|r| if r.kind == "v" { 0.0 } else { -1.0 })))
            .texts("relpersistence", persistence.chain(system.iter().map(|_| "p")))
            .texts("relkind", kinds)
            .small(
                "relnatts",
                both(&|r| r.columns.len() as i32, &|r| r.columns.len() as i32).into_iter().map(|n| n as i16),
            )
            .bools("relhasrules", tables.iter().map(|table| !table))
            .all("relispopulated", true, rows)?
            .texts("relreplident", replica.chain(system.iter().map(|_| "n")))
            .all("relfrozenxid", "0", rows)?
            .all("relminmxid", "0", rows)?
            .lists("relacl", grants);
        self.batch(rows, columns)
    }

    fn pg_attribute(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found = vec![];
        for (relation, _) in index.user_relations() {
            for (column, number) in relation.columns.iter().zip(1i16..) {
                let (type_oid, modifier) = postgres_type_of_field(&column.field);
                let acl = access_list("", "", &column.grants);
                found.push(Attribute {
                    relation: oid(relation.id),
                    name: column.field.name(),
                    type_oid: type_oid as i32,
                    modifier,
                    number,
                    not_null: !column.field.is_nullable(),
                    default: column.default.is_some(),
                    acl,
                });
            }
        }
        for relation in system_relations() {
            for (column, number) in relation.columns.iter().zip(1i16..) {
                found.push(Attribute {
                    relation: relation.oid,
                    name: column.name,
                    type_oid: type_oid(column.type_name),
                    modifier: -1,
                    number,
                    not_null: column.not_null,
                    default: false,
                    acl: None,
                });
            }
        }
        let types = types();
        let of_type =
            found.iter().map(|attribute| types.get(&attribute.type_oid).copied().unwrap_or_default());
        let of_type = of_type.collect::<Vec<_>>();
        let rows = found.len();
        let columns = Columns::default()
            .numbers("attrelid", found.iter().map(|a| a.relation))
            .texts("attname", found.iter().map(|a| a.name))
            .numbers("atttypid", found.iter().map(|a| a.type_oid))
            .all("attstattarget", -1i32, rows)?
            .small("attlen", of_type.iter().map(|t| t.length))
            .small("attnum", found.iter().map(|a| a.number))
            .numbers("attndims", of_type.iter().map(|t| i32::from(t.is_array)))
            .all("attcacheoff", -1i32, rows)?
            .numbers("atttypmod", found.iter().map(|a| a.modifier))
            .bools("attbyval", of_type.iter().map(|t| t.by_value))
            .texts("attalign", of_type.iter().map(|t| t.align))
            .texts("attstorage", of_type.iter().map(|t| t.storage))
            .bools("attnotnull", found.iter().map(|a| a.not_null))
            .bools("atthasdef", found.iter().map(|a| a.default))
            .all("attislocal", true, rows)?
            .numbers("attcollation", of_type.iter().map(|t| t.collation))
            .lists("attacl", found.iter().map(|a| a.acl.clone()));
        self.batch(rows, columns)
    }

    fn pg_attrdef(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let found = index
            .user_relations()
            .flat_map(|(relation, _)| {
                relation.columns.iter().zip(1i16..).filter_map(move |(column, number)| {
                    Some((oid(relation.id), number, column.default.as_deref()?))
                })
            })
            .collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("oid", found.iter().zip(1..).map(|(_, number)| number))
            .numbers("adrelid", found.iter().map(|d| d.0))
            .small("adnum", found.iter().map(|d| d.1))
            .texts("adbin", found.iter().map(|d| d.2));
        self.batch(found.len(), columns)
    }

    fn pg_namespace(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let roles = self.catalog.source.roles()?;
        let found = &index.contents.schemas;
        let owners = found.iter().map(|schema| self.catalog.role_oid(&roles, &schema.owner));
        let columns = Columns::default()
            .numbers("oid", found.iter().map(|schema| oid(schema.id)))
            .texts("nspname", found.iter().map(|schema| &schema.name))
            .numbers("nspowner", owners)
            .lists("nspacl", found.iter().map(|schema| access_list(&schema.owner, "UC", &schema.grants)));
        self.with_system(self.batch(found.len(), columns)?)
    }

    fn pg_database(&self) -> Result<RecordBatch> {
        let columns = Columns::default()
            .numbers("oid", [DATABASE_OID])
            .texts("datname", [self.catalog.source.database()])
            .numbers("datdba", [OWNER_OID])
            // UTF8, and bytes in their order.
            .numbers("encoding", [6])
            .texts("datlocprovider", ["c"])
            .bools("datallowconn", [true])
            .numbers("datconnlimit", [-1])
            .numbers("dattablespace", [PG_DEFAULT])
            .texts("datcollate", ["C"])
            .texts("datctype", ["C"])
            .texts("datfrozenxid", ["0"])
            .texts("datminmxid", ["0"]);
        self.batch(1, columns)
    }

    fn pg_roles(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let rows = roles.len();
        let mut columns = Columns::default()
            .numbers("oid", roles.iter().map(|role| self.catalog.role_oid(&roles, &role.name)))
            .texts("rolname", roles.iter().map(|role| &role.name))
            .bools("rolsuper", roles.iter().map(|role| role.superuser))
            .bools("rolinherit", roles.iter().map(|role| role.inherit))
            .bools("rolcreaterole", roles.iter().map(|role| role.create_role))
            .bools("rolcreatedb", roles.iter().map(|role| role.create_database))
            .bools("rolcanlogin", roles.iter().map(|role| role.login))
            .all("rolreplication", false, rows)?
            .all("rolbypassrls", false, rows)?
            .numbers("rolconnlimit", roles.iter().map(|role| role.connection_limit.unwrap_or(-1)))
            .times("rolvaliduntil", roles.iter().map(|role| role.valid_until));
        // What a password is made of is shown to nobody.
        if self.relation.name == "pg_roles" {
            columns = columns.all("rolpassword", "********", rows)?;
        }
        self.batch(rows, columns)
    }

    fn pg_user(&self) -> Result<RecordBatch> {
        let all = self.catalog.source.roles()?;
        let roles = all.iter().filter(|role| role.login).collect::<Vec<_>>();
        let rows = roles.len();
        let mut columns = Columns::default()
            .texts("usename", roles.iter().map(|role| &role.name))
            .numbers("usesysid", roles.iter().map(|role| self.catalog.role_oid(&all, &role.name)))
            .bools("usecreatedb", roles.iter().map(|role| role.create_database))
            .bools("usesuper", roles.iter().map(|role| role.superuser))
            .all("userepl", false, rows)?
            .all("usebypassrls", false, rows)?
            .times("valuntil", roles.iter().map(|role| role.valid_until));
        if self.relation.name == "pg_user" {
            columns = columns.all("passwd", "********", rows)?;
        }
        self.batch(rows, columns)
    }

    fn pg_group(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let groups = roles.iter().filter(|role| !role.login).collect::<Vec<_>>();
        let members = |group: &Role| {
            let members =
                roles.iter().filter(|role| role.member_of.iter().any(|(name, _)| *name == group.name));
            Some(members.map(|role| self.catalog.role_oid(&roles, &role.name).to_string()).collect())
        };
        let columns = Columns::default()
            .texts("groname", groups.iter().map(|role| &role.name))
            .numbers("grosysid", groups.iter().map(|role| self.catalog.role_oid(&roles, &role.name)))
            .lists("grolist", groups.iter().map(|role| members(role)));
        self.batch(groups.len(), columns)
    }

    fn pg_auth_members(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let found = roles
            .iter()
            .flat_map(|role| role.member_of.iter().map(move |(group, option)| (role, group, *option)))
            .collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("roleid", found.iter().map(|m| self.catalog.role_oid(&roles, m.1)))
            .numbers("member", found.iter().map(|m| self.catalog.role_oid(&roles, &m.0.name)))
            .numbers("grantor", found.iter().map(|_| OWNER_OID))
            .bools("admin_option", found.iter().map(|m| m.2));
        self.batch(found.len(), columns)
    }

    fn pg_description(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(i32, i32, i32, &str)> = vec![];
        for schema in &index.contents.schemas {
            found.extend(schema.comment.as_deref().map(|comment| (oid(schema.id), PG_NAMESPACE, 0, comment)));
        }
        for (relation, _) in index.user_relations() {
            let comments =
                std::iter::once(&relation.comment).chain(relation.columns.iter().map(|c| &c.comment));
            let comments =
                comments.zip(0..).filter_map(|(comment, number)| Some((comment.as_deref()?, number)));
            found.extend(comments.map(|(comment, number)| (oid(relation.id), PG_CLASS, number, comment)));
        }
        for relation in system_relations() {
            let comments =
                std::iter::once(relation.description).chain(relation.columns.iter().map(|c| c.description));
            let comments = comments.zip(0..).filter_map(|(comment, number)| Some((comment?, number)));
            found.extend(comments.map(|(comment, number)| (relation.oid, PG_CLASS, number, comment)));
        }
        let columns = Columns::default()
            .numbers("objoid", found.iter().map(|d| d.0))
            .numbers("classoid", found.iter().map(|d| d.1))
            .numbers("objsubid", found.iter().map(|d| d.2))
            .texts("description", found.iter().map(|d| d.3));
        self.with_system(self.batch(found.len(), columns)?)
    }

    fn pg_shdescription(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let found = roles
            .iter()
            .filter_map(|role| Some((self.catalog.role_oid(&roles, &role.name), role.comment.as_deref()?)))
            .collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("objoid", found.iter().map(|d| d.0))
            .numbers("classoid", found.iter().map(|_| PG_AUTHID))
            .texts("description", found.iter().map(|d| d.1));
        self.batch(found.len(), columns)
    }

    /// The rules that views are.
    fn pg_rewrite(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let views = index.user_relations().filter(|(relation, _)| relation.kind == Kind::View);
        let views = views.map(|(relation, _)| oid(relation.id)).collect::<Vec<_>>();
        let rows = views.len();
        let columns = Columns::default()
            .numbers("oid", views.clone())
            .all("rulename", "_RETURN", rows)?
            .numbers("ev_class", views)
            .all("ev_type", "1", rows)?
            .all("ev_enabled", "O", rows)?
            .all("is_instead", true, rows)?;
        self.batch(rows, columns)
    }

    /// A view's rule belongs to the view, and depends on what the view reads.
    fn pg_depend(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let views = index.user_relations().map(|(relation, _)| relation).filter(|r| r.kind == Kind::View);
        let found = views
            .flat_map(|view| {
                let reads = view.reads.iter().map(move |read| (view.id, *read, "n"));
                std::iter::once((view.id, view.id, "i")).chain(reads)
            })
            .collect::<Vec<_>>();
        let rows = found.len();
        let columns = Columns::default()
            .all("classid", PG_REWRITE, rows)?
            .numbers("objid", found.iter().map(|d| oid(d.0)))
            .all("refclassid", PG_CLASS, rows)?
            .numbers("refobjid", found.iter().map(|d| oid(d.1)))
            .texts("deptype", found.iter().map(|d| d.2));
        self.batch(rows, columns)
    }

    fn pg_tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let owner = self.catalog.source.owner();
        let user = index.user_relations().filter(|(relation, _)| relation.kind != Kind::View);
        let mut found: Vec<(String, &str, &str)> =
            user.map(|(r, schema)| (schema.name.clone(), r.name.as_str(), r.owner.as_str())).collect();
        for relation in system_relations().filter(|relation| relation.kind == "r") {
            found.push((index.schema_name(relation.namespace).unwrap_or_default(), relation.name, &owner));
        }
        let rows = found.len();
        let columns = Columns::default()
            .texts("schemaname", found.iter().map(|t| &t.0))
            .texts("tablename", found.iter().map(|t| t.1))
            .texts("tableowner", found.iter().map(|t| t.2))
            .all("hasindexes", false, rows)?
            .all("hasrules", false, rows)?
            .all("hastriggers", false, rows)?
            .all("rowsecurity", false, rows)?;
        self.batch(rows, columns)
    }

    fn pg_views(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let owner = self.catalog.source.owner();
        let user = index.user_relations().filter(|(relation, _)| relation.kind == Kind::View);
        let mut found: Vec<(String, &str, &str, Option<&str>)> = user
            .map(|(r, schema)| {
                (schema.name.clone(), r.name.as_str(), r.owner.as_str(), r.definition.as_deref())
            })
            .collect();
        for relation in system_relations().filter(|relation| relation.kind == "v") {
            found.push((
                index.schema_name(relation.namespace).unwrap_or_default(),
                relation.name,
                &owner,
                None,
            ));
        }
        let columns = Columns::default()
            .texts("schemaname", found.iter().map(|v| &v.0))
            .texts("viewname", found.iter().map(|v| v.1))
            .texts("viewowner", found.iter().map(|v| v.2))
            .maybe_texts("definition", found.iter().map(|v| v.3.map(with_semicolon)));
        self.batch(found.len(), columns)
    }

    fn pg_settings(&self) -> Result<RecordBatch> {
        let mut found = self.catalog.source.settings();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let rows = found.len();
        let source = found.iter().map(|s| match s.default.as_ref() == Some(&s.value) {
            true => "default",
            false => "session",
        });
        let columns = Columns::default()
            .texts("name", found.iter().map(|s| &s.name))
            .texts("setting", found.iter().map(|s| &s.value))
            .maybe_texts("unit", found.iter().map(|s| s.unit.as_ref()))
            .texts("category", found.iter().map(|s| &s.category))
            .texts("short_desc", found.iter().map(|s| &s.description))
            .texts("context", found.iter().map(|s| &s.context))
            .texts("vartype", found.iter().map(|s| &s.kind))
            .texts("source", source)
            .maybe_texts("boot_val", found.iter().map(|s| s.default.as_ref()))
            .maybe_texts("reset_val", found.iter().map(|s| s.default.as_ref()))
            .all("pending_restart", false, rows)?;
        self.batch(rows, columns)
    }

    fn pg_stat_activity(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let found = self.catalog.source.activity();
        let rows = found.len();
        let columns = Columns::default()
            .all("datid", DATABASE_OID, rows)?
            .all("datname", self.catalog.source.database().as_str(), rows)?
            .numbers("pid", found.iter().map(|a| a.pid))
            .numbers("usesysid", found.iter().map(|a| self.catalog.role_oid(&roles, &a.user)))
            .texts("usename", found.iter().map(|a| &a.user))
            .texts("application_name", found.iter().map(|a| &a.application))
            .maybe_texts(
                "client_addr",
                found.iter().map(|a| a.client_address.as_ref().map(|address| &address.0)),
            )
            .numbers(
                "client_port",
                found.iter().map(|a| a.client_address.as_ref().map_or(-1, |address| i32::from(address.1))),
            )
            .times("backend_start", found.iter().map(|a| Some(a.backend_start)))
            .times("xact_start", found.iter().map(|a| a.transaction_start))
            .times("query_start", found.iter().map(|a| a.query_start))
            .times("state_change", found.iter().map(|a| a.state_change))
            .maybe_texts("wait_event_type", found.iter().map(|a| a.wait.as_ref().map(|wait| &wait.0)))
            .maybe_texts("wait_event", found.iter().map(|a| a.wait.as_ref().map(|wait| &wait.1)))
            .texts("state", found.iter().map(|a| &a.state))
            .texts("query", found.iter().map(|a| &a.query))
            .all("backend_type", "client backend", rows)?;
        self.batch(rows, columns)
    }

    fn pg_prepared_statements(&self) -> Result<RecordBatch> {
        let found = self.catalog.source.prepared();
        let columns = Columns::default()
            .texts("name", found.iter().map(|statement| &statement.name))
            .texts("statement", found.iter().map(|statement| &statement.text))
            .times("prepare_time", found.iter().map(|statement| Some(statement.since)))
            .bools("from_sql", found.iter().map(|statement| statement.is_of_sql));
        self.batch(found.len(), columns)
    }

    fn pg_cursors(&self) -> Result<RecordBatch> {
        let found = self.catalog.source.cursors();
        let columns = Columns::default()
            .texts("name", found.iter().map(|cursor| &cursor.name))
            .texts("statement", found.iter().map(|cursor| &cursor.text))
            .bools("is_holdable", found.iter().map(|cursor| cursor.is_held))
            .bools("is_binary", found.iter().map(|cursor| cursor.is_binary))
            .all("is_scrollable", false, found.len())?
            .times("creation_time", found.iter().map(|cursor| Some(cursor.since)));
        self.batch(found.len(), columns)
    }

    fn pg_stat_tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let tables =
            index.user_relations().filter(|(relation, _)| relation.kind != Kind::View).collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("relid", tables.iter().map(|(r, _)| oid(r.id)))
            .texts("schemaname", tables.iter().map(|(_, schema)| &schema.name))
            .texts("relname", tables.iter().map(|(r, _)| &r.name))
            .big("n_live_tup", tables.iter().map(|(r, _)| r.rows.map(|rows| rows as i64)));
        self.batch(tables.len(), columns)
    }

    fn pg_stats(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(&Schema, &Relation, &Column, &Spread)> = vec![];
        for (relation, schema) in index.user_relations() {
            for column in &relation.columns {
                let object = Object::Column(relation.id, column.field.name());
                let spread = column.spread.as_ref().filter(|_| self.may(&object, &["SELECT"]));
                found.extend(spread.map(|spread| (schema, relation, column, spread)));
            }
        }
        let common = |of: &(&Schema, &Relation, &Column, &Spread)| of.3.common.clone();
        let columns = Columns::default()
            .texts("schemaname", found.iter().map(|of| &of.0.name))
            .texts("tablename", found.iter().map(|of| &of.1.name))
            .texts("attname", found.iter().map(|of| of.2.field.name()))
            .all("inherited", false, found.len())?
            .floats("null_frac", found.iter().map(|of| of.3.nulls))
            .numbers("avg_width", found.iter().map(|of| of.3.mean_bytes))
            .floats("n_distinct", found.iter().map(|of| of.3.distinct))
            .maybe_texts("most_common_vals", found.iter().map(|of| Some(common(of)?.0)))
            .lists(
                "most_common_freqs",
                found.iter().map(|of| Some(common(of)?.1.iter().map(f32::to_string).collect())),
            )
            .maybe_texts("histogram_bounds", found.iter().map(|of| of.3.bounds.as_ref()));
        self.batch(found.len(), columns)
    }

    fn may(&self, object: &Object<'_>, privileges: &[&str]) -> bool {
        let user = self.catalog.source.user();
        privileges.iter().any(|privilege| self.catalog.source.may(&user, object, privilege))
    }

    /// The relations that the user may do anything with, as `information_schema` shows no others.
    fn granted<'i>(&self, index: &'i Index) -> Vec<(&'i Relation, &'i Schema)> {
        let any = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"];
        let columns = ["SELECT", "INSERT", "UPDATE", "REFERENCES"];
        index
            .user_relations()
            .filter(|(r, _)| {
                let column = |column: &Column| self.may(&Object::Column(r.id, column.field.name()), &columns);
                self.may(&Object::Relation(r.id), &any) || r.columns.iter().any(column)
            })
            .collect()
    }

    fn schemata(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let owner = self.catalog.source.owner();
        let mut found: Vec<(&str, &str)> = system_schemas().map(|(_, name)| (name, owner.as_str())).collect();
        let seen =
            index.contents.schemas.iter().filter(|s| self.may(&Object::Schema(s.id), &["USAGE", "CREATE"]));
        found.extend(seen.map(|schema| (schema.name.as_str(), schema.owner.as_str())));
        let rows = found.len();
        let columns = Columns::default()
            .all("catalog_name", self.catalog.source.database().as_str(), rows)?
            .texts("schema_name", found.iter().map(|s| s.0))
            .texts("schema_owner", found.iter().map(|s| s.1));
        self.batch(rows, columns)
    }

    fn tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(String, &str, &str, &str)> = vec![];
        for (relation, schema) in self.granted(&index) {
            let (kind, insertable) = match relation.kind {
                Kind::Table => ("BASE TABLE", "YES"),
                Kind::TemporaryTable => ("LOCAL TEMPORARY", "YES"),
                Kind::View => ("VIEW", "NO"),
            };
            found.push((schema.name.clone(), &relation.name, kind, insertable));
        }
        for relation in system_relations() {
            let kind = if relation.kind == "v" { "VIEW" } else { "BASE TABLE" };
            found.push((
                index.schema_name(relation.namespace).unwrap_or_default(),
                relation.name,
                kind,
                "NO",
            ));
        }
        let rows = found.len();
        let columns = Columns::default()
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", found.iter().map(|t| &t.0))
            .texts("table_name", found.iter().map(|t| t.1))
            .texts("table_type", found.iter().map(|t| t.2))
            .texts("is_insertable_into", found.iter().map(|t| t.3))
            .all("is_typed", "NO", rows)?;
        self.batch(rows, columns)
    }

    fn columns(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<Described> = vec![];
        for (relation, schema) in self.granted(&index) {
            for (column, number) in relation.columns.iter().zip(1..) {
                let (type_oid, modifier) = postgres_type_of_field(&column.field);
                found.push(Described {
                    schema: schema.name.clone(),
                    relation: &relation.name,
                    name: column.field.name(),
                    number,
                    default: column.default.as_deref(),
                    nullable: column.field.is_nullable(),
                    type_oid: type_oid as i32,
                    modifier,
                    updatable: relation.kind != Kind::View,
                });
            }
        }
        for relation in system_relations() {
            for (column, number) in relation.columns.iter().zip(1..) {
                found.push(Described {
                    schema: index.schema_name(relation.namespace).unwrap_or_default(),
                    relation: relation.name,
                    name: column.name,
                    number,
                    default: None,
                    nullable: !column.not_null,
                    type_oid: type_oid(column.type_name),
                    modifier: -1,
                    updatable: false,
                });
            }
        }
        let rows = found.len();
        let database = self.catalog.source.database();
        let types = types();
        let type_name = |d: &Described| types.get(&d.type_oid).map_or("text", |t| t.name);
        let is_array = |d: &Described| types.get(&d.type_oid).is_some_and(|t| t.is_array);
        let word = |d: &Described| match is_array(d) {
            true => "ARRAY".to_string(),
            false => format_type(d.type_oid as u32, -1).unwrap_or_else(|| "USER-DEFINED".to_string()),
        };
        // Bits of a binary number, digits of a decimal one.
        let precision = |d: &Described| match type_name(d) {
            "int2" => Some((16, 2)),
            "int4" => Some((32, 2)),
            "int8" => Some((64, 2)),
            "float4" => Some((24, 2)),
            "float8" => Some((53, 2)),
            "numeric" if d.modifier >= 0 => Some(((d.modifier - 4) >> 16 & 0xffff, 10)),
            _ => None,
        };
        let scale = |d: &Described| match type_name(d) {
            "int2" | "int4" | "int8" => Some(0),
            "numeric" if d.modifier >= 0 => Some((((d.modifier - 4) & 0x7ff) ^ 1024) - 1024),
            _ => None,
        };
        let radix = |d: &Described| precision(d).map(|p| p.1).or((type_name(d) == "numeric").then_some(10));
        let time = |d: &Described| match type_name(d) {
            "date" => Some(0),
            "time" | "timetz" | "timestamp" | "timestamptz" | "interval" => Some(6),
            _ => None,
        };
        let bytes = |d: &Described| matches!(type_name(d), "varchar" | "text" | "bpchar").then_some(1 << 30);
        let yes = |yes: bool| if yes { "YES" } else { "NO" };
        let optional = |values: Vec<Option<i32>>| Arc::new(Int32Array::from(values)) as ArrayRef;
        let mut columns = Columns::default()
            .all("table_catalog", database.as_str(), rows)?
            .texts("table_schema", found.iter().map(|d| &d.schema))
            .texts("table_name", found.iter().map(|d| d.relation))
            .texts("column_name", found.iter().map(|d| d.name))
            .numbers("ordinal_position", found.iter().map(|d| d.number))
            .maybe_texts("column_default", found.iter().map(|d| d.default))
            .texts("is_nullable", found.iter().map(|d| yes(d.nullable)))
            .texts("data_type", found.iter().map(word))
            .all("udt_catalog", database.as_str(), rows)?
            .all("udt_schema", "pg_catalog", rows)?
            .texts("udt_name", found.iter().map(type_name))
            .texts("dtd_identifier", found.iter().map(|d| d.number.to_string()))
            .all("is_self_referencing", "NO", rows)?
            .all("is_identity", "NO", rows)?
            .all("identity_cycle", "NO", rows)?
            .all("is_generated", "NEVER", rows)?
            .texts("is_updatable", found.iter().map(|d| yes(d.updatable)));
        let numbers = [
            ("character_octet_length", found.iter().map(bytes).collect()),
            ("numeric_precision", found.iter().map(|d| precision(d).map(|p| p.0)).collect()),
            ("numeric_precision_radix", found.iter().map(radix).collect()),
            ("numeric_scale", found.iter().map(scale).collect()),
            ("datetime_precision", found.iter().map(time).collect()),
        ];
        columns.0.extend(numbers.map(|(name, values)| (name, optional(values))));
        self.batch(rows, columns)
    }

    fn views(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let user = self.catalog.source.user();
        let views =
            self.granted(&index).into_iter().filter(|(r, _)| r.kind == Kind::View).collect::<Vec<_>>();
        let rows = views.len();
        // Only who owns it is shown how a view is made.
        let definition =
            |relation: &Relation| match relation.owner == user || self.catalog.is_superuser(&user) {
                true => relation.definition.as_deref().map(with_semicolon),
                false => None,
            };
        let mut columns = Columns::default()
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", views.iter().map(|(_, schema)| &schema.name))
            .texts("table_name", views.iter().map(|(r, _)| &r.name))
            .maybe_texts("view_definition", views.iter().map(|(r, _)| definition(r)))
            .all("check_option", "NONE", rows)?;
        for name in [
            "is_updatable",
            "is_insertable_into",
            "is_trigger_updatable",
            "is_trigger_deletable",
            "is_trigger_insertable_into",
        ] {
            columns = columns.all(name, "NO", rows)?;
        }
        self.batch(rows, columns)
    }

    fn table_privileges(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found = vec![];
        let all = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"];
        for (relation, schema) in self.granted(&index) {
            let own = all.map(|privilege| {
                (relation.owner.clone(), relation.owner.clone(), privilege.to_string(), true)
            });
            let granted = relation.grants.iter().flat_map(|grant| {
                let grantee = grant.role.clone().unwrap_or_else(|| "PUBLIC".to_string());
                grant.privileges.iter().map(move |(privilege, option)| {
                    (grant.grantor.clone(), grantee.clone(), privilege.clone(), *option)
                })
            });
            found.extend(own.into_iter().chain(granted).map(|privilege| (relation, schema, privilege)));
        }
        let rows = found.len();
        let yes = |yes: bool| if yes { "YES" } else { "NO" };
        let columns = Columns::default()
            .texts("grantor", found.iter().map(|f| &f.2.0))
            .texts("grantee", found.iter().map(|f| &f.2.1))
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| &f.1.name))
            .texts("table_name", found.iter().map(|f| &f.0.name))
            .texts("privilege_type", found.iter().map(|f| &f.2.2))
            .texts("is_grantable", found.iter().map(|f| yes(f.2.3)))
            .texts("with_hierarchy", found.iter().map(|f| yes(f.2.2 == "SELECT")));
        self.batch(rows, columns)
    }

    fn enabled_roles(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let user = self.catalog.source.user();
        let enabled = roles.iter().filter(|role| self.catalog.has_role(&roles, &user, &role.name));
        let names = enabled.map(|role| role.name.clone()).collect::<Vec<_>>();
        self.batch(names.len(), Columns::default().texts("role_name", names))
    }

    fn applicable_roles(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let user = self.catalog.source.user();
        let found = roles
            .iter()
            .filter(|role| self.catalog.has_role(&roles, &user, &role.name))
            .flat_map(|role| role.member_of.iter().map(move |(group, option)| (&role.name, group, *option)))
            .collect::<Vec<_>>();
        let columns = Columns::default()
            .texts("grantee", found.iter().map(|f| f.0))
            .texts("role_name", found.iter().map(|f| f.1))
            .texts("is_grantable", found.iter().map(|f| if f.2 { "YES" } else { "NO" }));
        self.batch(found.len(), columns)
    }

    fn catalog_name(&self) -> Result<RecordBatch> {
        self.batch(1, Columns::default().texts("catalog_name", [self.catalog.source.database()]))
    }
}

struct Attribute<'a> {
    relation: i32,
    name: &'a str,
    type_oid: i32,
    modifier: i32,
    number: i16,
    not_null: bool,
    default: bool,
    acl: Option<Vec<String>>,
}

struct Described<'a> {
    schema: String,
    relation: &'a str,
    name: &'a str,
    number: i32,
    default: Option<&'a str>,
    nullable: bool,
    type_oid: i32,
    modifier: i32,
    updatable: bool,
}

/// What `pg_type` says of how values of a type are stored.
#[derive(Clone, Copy)]
struct Stored {
    name: &'static str,
    length: i16,
    by_value: bool,
    align: &'static str,
    storage: &'static str,
    collation: i32,
    is_array: bool,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            name: "text",
            length: -1,
            by_value: false,
            align: "i",
            storage: "x",
            collation: 0,
            is_array: false,
        }
    }
}

fn types() -> &'static HashMap<i32, Stored> {
    static TYPES: OnceLock<HashMap<i32, Stored>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let Some(Ok(rows)) = SYSTEM.catalog("pg_type").map(SystemRelation::rows) else {
            return HashMap::new();
        };
        let column = |name: &str| rows.column_by_name(name);
        let (
            Some(oids),
            Some(names),
            Some(lengths),
            Some(by_value),
            Some(align),
            Some(storage),
            Some(collations),
            Some(category),
        ) = (
            column("oid"),
            column("typname"),
            column("typlen"),
            column("typbyval"),
            column("typalign"),
            column("typstorage"),
            column("typcollation"),
            column("typcategory"),
        )
        else {
            return HashMap::new();
        };
        let lengths = lengths.as_primitive::<datafusion::arrow::datatypes::Int16Type>();
        (0..rows.num_rows())
            .map(|row| {
                let stored = Stored {
                    name: names.as_string::<i32>().value(row),
                    length: lengths.value(row),
                    by_value: by_value.as_boolean().value(row),
                    align: align.as_string::<i32>().value(row),
                    storage: storage.as_string::<i32>().value(row),
                    collation: collations.as_primitive::<Int32Type>().value(row),
                    is_array: category.as_string::<i32>().value(row) == "A"
                        && lengths.value(row) == -1
                        && names.as_string::<i32>().value(row).starts_with('_'),
                };
                (oids.as_primitive::<Int32Type>().value(row), stored)
            })
            .collect()
    })
}

/// The oid of a type by its name in `pg_type`.
fn type_oid(name: &str) -> i32 {
    static NAMES: OnceLock<HashMap<&str, i32>> = OnceLock::new();
    let names = NAMES.get_or_init(|| types().iter().map(|(oid, stored)| (stored.name, *oid)).collect());
    names.get(name).copied().unwrap_or_default()
}

/// The relations that `pg_class` lists.
fn system_relations() -> impl Iterator<Item = &'static SystemRelation> {
    SYSTEM.relations.iter().filter(|relation| relation.kind != "f")
}

fn kind(relation: &Relation) -> &'static str {
    if relation.kind == Kind::View { "v" } else { "r" }
}

/// A definition as PostgreSQL gives it: with a semicolon at its end, and after a space.
pub(crate) fn with_semicolon(definition: &str) -> String {
    format!(" {};", definition.trim().trim_end_matches(';').trim_end())
}

fn nothing(type_name: &str, data_type: &DataType) -> Result<ScalarValue> {
    Ok(match data_type {
        DataType::Utf8 => ScalarValue::from(if type_name == "xid" { "0" } else { "" }),
        other => ScalarValue::new_default(other)?,
    })
}
