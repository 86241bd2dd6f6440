//! The rows of `pg_catalog` relations for what the session sees. Unknown columns are NULL, or zero, false or
//! empty where PostgreSQL has no NULL.

mod defaults;
mod information;
mod keys;
mod sequences;
mod stored_types;
mod view;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int32Type;
use datafusion::error::Result;

use self::stored_types::{type_oid, types};
use crate::catalog::{Catalog, DATABASE_OID, Index, OWNER_OID, TABLE_PRIVILEGES, access_list};
use crate::extensions::EXTENSIONS;
use crate::live::view::{Attribute, Columns, PG_CLASS, View, system_relations};
use crate::source::{Column, ColumnStatistics, Kind, Object, Relation, Role, Schema, microseconds, oid};
use crate::system::{PG_CATALOG, SYSTEM, SystemRelation};
use crate::types::postgres_type_of_field;
use crate::view_texts::{definition, reads};

const PG_NAMESPACE: i32 = 2615;
const PG_AUTHID: i32 = 1260;
const PG_REWRITE: i32 = 2618;
/// The schema `pg_catalog`.
const PG_CATALOG_OID: i32 = 11;
/// The tablespace of everything.
const PG_DEFAULT: i32 = 1663;
/// The access method of tables. Harrier's are not heaps, but clients know no other.
const HEAP: i32 = 2;

/// The current rows of a relation.
pub(crate) fn rows(catalog: &Catalog, relation: &SystemRelation) -> Result<RecordBatch> {
    let view = View { catalog, relation };
    match (relation.namespace, relation.name) {
        (PG_CATALOG, name) => match name {
            "pg_class" => view.pg_class(),
            "pg_attribute" => view.pg_attribute(),
            "pg_attrdef" => view.pg_attrdef(),
            "pg_namespace" => view.pg_namespace(),
            "pg_database" => view.pg_database(),
            "pg_extension" => view.pg_extension(),
            "pg_authid" | "pg_roles" => view.pg_roles(),
            "pg_user" | "pg_shadow" => view.pg_user(),
            "pg_group" => view.pg_group(),
            "pg_auth_members" => view.pg_auth_members(),
            "pg_db_role_setting" => view.pg_db_role_setting(),
            "pg_description" => view.pg_description(),
            "pg_shdescription" => view.pg_shdescription(),
            "pg_rewrite" => view.pg_rewrite(),
            "pg_constraint" => view.pg_constraint(),
            "pg_index" => view.pg_index(),
            "pg_indexes" => view.pg_indexes(),
            "pg_stat_user_indexes"
            | "pg_stat_all_indexes"
            | "pg_statio_user_indexes"
            | "pg_statio_all_indexes" => view.pg_stat_indexes(),
            "pg_depend" => view.pg_depend(),
            "pg_init_privs" => view.pg_init_privs(),
            "pg_tables" => view.pg_tables(),
            "pg_views" => view.pg_views(),
            "pg_settings" => view.pg_settings(),
            "pg_stat_activity" => view.pg_stat_activity(),
            "pg_prepared_statements" => view.pg_prepared_statements(),
            "pg_cursors" => view.pg_cursors(),
            "pg_locks" => view.pg_locks(),
            "pg_stat_user_tables" | "pg_stat_all_tables" => view.pg_stat_tables(),
            "pg_stats" => view.pg_stats(),
            "pg_sequence" => view.pg_sequence(),
            "pg_sequences" => view.pg_sequences(),
            _ => Ok(relation.rows()?.clone()),
        },
        (_, name) => match name {
            "schemata" => view.schemata(),
            "tables" => view.tables(),
            "columns" => view.columns(),
            "sequences" => view.sequences(),
            "views" => view.views(),
            "table_constraints" => view.table_constraints(),
            "check_constraints" => view.check_constraints(),
            "key_column_usage" => view.key_column_usage(),
            "constraint_column_usage" => view.constraint_column_usage(),
            "constraint_table_usage" => view.constraint_table_usage(),
            "referential_constraints" => view.referential_constraints(),
            "table_privileges" | "role_table_grants" => view.table_privileges(),
            "column_privileges" | "role_column_grants" => view.column_privileges(),
            "character_sets" => view.character_sets(),
            "enabled_roles" => view.enabled_roles(),
            "applicable_roles" => view.applicable_roles(),
            "information_schema_catalog_name" => view.catalog_name(),
            _ => Ok(relation.rows()?.clone()),
        },
    }
}

/// Initial settings of a role's sessions, as `name=value`.
fn settings(role: &Role) -> Option<Vec<String>> {
    let settings = role.settings.iter().map(|(name, value)| format!("{name}={value}"));
    (!role.settings.is_empty()).then(|| settings.collect())
}

impl View<'_> {
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
        let referring = keys::referring(&index);
        let names = user.iter().map(|(r, _)| r.name.as_str()).chain(system.iter().map(|r| r.name));
        let namespaces = user.iter().map(|(_, schema)| schema.oid());
        let kinds = user.iter().map(|(r, _)| kind(r)).chain(system.iter().map(|r| r.kind));
        let tables = kinds.clone().map(|kind| kind == "r").collect::<Vec<_>>();
        let views = kinds.clone().map(|kind| kind == "v");
        let persistence = user.iter().map(|(r, _)| if r.kind == Kind::TemporaryTable { "t" } else { "p" });
        let counts = user.iter().map(|(r, _)| match (r.kind, r.rows) {
            (Kind::View, _) => 0.0,
            (Kind::Sequence, _) => 1.0,
            // A row count needs only a float's precision.
            (_, Some(rows)) => rows as f32,
            (_, None) => -1.0,
        });
        let pages =
            user.iter().map(|(r, _)| i32::try_from(r.bytes.unwrap_or(0).div_ceil(8192)).unwrap_or(i32::MAX));
        let grants = user
            .iter()
            .map(|(r, _)| access_list(&r.owner, privileges(r), &r.grants))
            .chain(system.iter().map(|_| None));
        let replica =
            user.iter().map(|(r, _)| if matches!(r.kind, Kind::View | Kind::Sequence) { "n" } else { "d" });
        let columns = Columns::default()
            .numbers("oid", both(&|r| oid(r.id), &|r| r.oid))
            .texts("relname", names)
            .numbers("relnamespace", namespaces.chain(system.iter().map(|r| r.namespace)))
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
            .small(
                "relchecks",
                both(&|r| r.keys.checks().count() as i32, &|_| 0).into_iter().map(|checks| checks as i16),
            )
            .bools("relhasrules", views)
            .all("relispopulated", true, rows)?
            .texts("relreplident", replica.chain(system.iter().map(|_| "n")))
            .all("relfrozenxid", "0", rows)?
            .all("relminmxid", "0", rows)?
            .bools(
                "relhasindex",
                both(&|r| i32::from(!r.keys.indexes.is_empty()), &|_| 0).into_iter().map(|has| has != 0),
            )
            // PostgreSQL has triggers on both sides of foreign keys, and clients use them to find keys.
            .bools(
                "relhastriggers",
                both(&|r| i32::from(referring.contains(&r.id)), &|_| 0).into_iter().map(|has| has != 0),
            )
            .lists("relacl", grants);
        let relations = self.batch(rows, columns)?;
        let indexes = self.pg_class_of_indexes(&index)?;
        Ok(concat_batches(&self.relation.schema, [&relations, &indexes])?)
    }

    fn pg_class_of_indexes(&self, index: &Index) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let found: Vec<_> = keys::indexes(index).collect();
        let rows = found.len();
        let persistence = found.iter().map(|(r, ..)| if r.kind == Kind::TemporaryTable { "t" } else { "p" });
        let columns = Columns::default()
            .numbers("oid", found.iter().map(|(_, _, i)| oid(i.id)))
            .texts("relname", found.iter().map(|(_, _, i)| &i.name))
            .numbers("relnamespace", found.iter().map(|(_, schema, _)| schema.oid()))
            .numbers("relowner", found.iter().map(|(r, ..)| self.catalog.role_oid(&roles, &r.owner)))
            .numbers("relam", found.iter().map(|(_, _, i)| keys::method(i)))
            .numbers("relfilenode", found.iter().map(|(_, _, i)| oid(i.id)))
            .texts("relpersistence", persistence)
            .all("relkind", "i", rows)?
            .small("relnatts", found.iter().map(|(_, _, i)| (i.items.len() + i.included.len()) as i16))
            .all("relispopulated", true, rows)?
            .all("relreplident", "n", rows)?
            .all("relfrozenxid", "0", rows)?
            .all("relminmxid", "0", rows)?;
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
                    // A view's columns have no constraints.
                    not_null: !column.field.is_nullable() && relation.kind != Kind::View,
                    default: column.default.is_some(),
                    identity: match index.identity(relation, column) {
                        Some((_, true)) => "a",
                        Some((_, false)) => "d",
                        None => "",
                    },
                    acl,
                });
            }
        }
        let of_indexes = keys::attributes(&index);
        found.extend(keys::as_attributes(&of_indexes));
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
                    identity: "",
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
            .texts("attidentity", found.iter().map(|a| a.identity))
            .all("attislocal", true, rows)?
            .numbers("attcollation", of_type.iter().map(|t| t.collation))
            .lists("attacl", found.iter().map(|a| a.acl.clone()));
        self.batch(rows, columns)
    }

    fn pg_namespace(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let roles = self.catalog.source.roles()?;
        let found = &index.contents.schemas;
        let owners = found.iter().map(|schema| self.catalog.role_oid(&roles, &schema.owner));
        let columns = Columns::default()
            .numbers("oid", found.iter().map(Schema::oid))
            .texts("nspname", found.iter().map(|schema| &schema.name))
            .numbers("nspowner", owners)
            .lists("nspacl", found.iter().map(|schema| access_list(&schema.owner, "UC", &schema.grants)));
        self.with_system(self.batch(found.len(), columns)?)
    }

    fn pg_extension(&self) -> Result<RecordBatch> {
        let columns = Columns::default()
            .numbers("oid", EXTENSIONS.iter().map(|extension| extension.oid))
            .texts("extname", EXTENSIONS.iter().map(|extension| extension.name))
            .numbers("extowner", EXTENSIONS.iter().map(|_| OWNER_OID))
            .numbers("extnamespace", EXTENSIONS.iter().map(|_| PG_CATALOG_OID))
            .texts("extversion", EXTENSIONS.iter().map(|extension| extension.version));
        self.batch(EXTENSIONS.len(), columns)
    }

    fn pg_database(&self) -> Result<RecordBatch> {
        let columns = Columns::default()
            .numbers("oid", [DATABASE_OID])
            .texts("datname", [self.catalog.source.database()])
            .numbers("datdba", [OWNER_OID])
            // UTF8, and bytewise collation.
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
        // Password hashes are hidden.
        if self.relation.name == "pg_roles" {
            columns =
                columns.all("rolpassword", "********", rows)?.lists("rolconfig", roles.iter().map(settings));
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
            .times("valuntil", roles.iter().map(|role| role.valid_until))
            .lists("useconfig", roles.iter().map(|role| settings(role)));
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

    /// Settings of a role in all databases.
    fn pg_db_role_setting(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let found = roles.iter().filter(|role| !role.settings.is_empty()).collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("setdatabase", found.iter().map(|_| 0))
            .numbers("setrole", found.iter().map(|role| self.catalog.role_oid(&roles, &role.name)))
            .lists("setconfig", found.iter().map(|role| settings(role)));
        self.batch(found.len(), columns)
    }

    fn pg_description(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(i32, i32, i32, &str)> = vec![];
        for schema in &index.contents.schemas {
            found.extend(schema.comment.as_deref().map(|comment| (schema.oid(), PG_NAMESPACE, 0, comment)));
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

    /// The rewrite rules of views.
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

    /// A view's rule belongs to the view, and depends on its inputs; keys and indexes depend on columns; a
    /// sequence may be owned by one.
    fn pg_depend(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let views = index.user_relations().map(|(relation, _)| relation).filter(|r| r.kind == Kind::View);
        let found = views
            .flat_map(|view| {
                let on = move |of: i32, how| (PG_REWRITE, oid(view.id), 0, PG_CLASS, of, 0, how);
                let reads = reads(&index, view).into_iter().map(move |read| on(read, "n"));
                std::iter::once(on(oid(view.id), "i")).chain(reads)
            })
            .chain(index.column_sequences().map(|(sequence, table, column, kind)| {
                (PG_CLASS, sequence, 0, PG_CLASS, table, column, kind)
            }))
            .chain(keys::dependencies(&index))
            .chain(defaults::dependencies(&index))
            .collect::<Vec<keys::Dependency>>();
        let rows = found.len();
        let columns = Columns::default()
            .numbers("classid", found.iter().map(|d| d.0))
            .numbers("objid", found.iter().map(|d| d.1))
            .numbers("objsubid", found.iter().map(|d| d.2))
            .numbers("refclassid", found.iter().map(|d| d.3))
            .numbers("refobjid", found.iter().map(|d| d.4))
            .numbers("refobjsubid", found.iter().map(|d| d.5))
            .texts("deptype", found.iter().map(|d| d.6));
        self.batch(rows, columns)
    }

    /// The initial access control lists of built-in objects.
    fn pg_init_privs(&self) -> Result<RecordBatch> {
        const RELATIONS: [(&str, &str); 4] = [
            ("pg_proc", "proacl"),
            ("pg_language", "lanacl"),
            ("pg_type", "typacl"),
            ("pg_namespace", "nspacl"),
        ];
        let mut found: Vec<(i32, i32, Vec<String>)> = vec![];
        for (name, column) in RELATIONS {
            let Some(relation) = SYSTEM.catalog(name) else { continue };
            let rows = relation.rows()?;
            let (Some(oids), Some(lists)) = (rows.column_by_name("oid"), rows.column_by_name(column)) else {
                continue;
            };
            let (oids, lists) = (oids.as_primitive::<Int32Type>(), lists.as_list::<i32>());
            for row in (0..rows.num_rows()).filter(|row| lists.is_valid(*row)) {
                let items = lists.value(row);
                let items = items.as_string::<i32>().iter().flatten().map(str::to_string).collect();
                found.push((oids.value(row), relation.oid, items));
            }
        }
        let rows = found.len();
        let columns = Columns::default()
            .numbers("objoid", found.iter().map(|list| list.0))
            .numbers("classoid", found.iter().map(|list| list.1))
            .all("objsubid", 0i32, rows)?
            .all("privtype", "i", rows)?
            .lists("initprivs", found.iter().map(|list| Some(list.2.clone())));
        self.batch(rows, columns)
    }

    fn pg_tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let owner = self.catalog.source.owner();
        let user = index.user_relations().filter(|(relation, _)| is_table(relation));
        let indexed: Vec<(&str, &str)> =
            keys::indexes(&index).map(|(r, schema, _)| (schema.name.as_str(), r.name.as_str())).collect();
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
            .bools("hasindexes", found.iter().map(|t| indexed.contains(&(t.0.as_str(), t.1))))
            .all("hasrules", false, rows)?
            .all("hastriggers", false, rows)?
            .all("rowsecurity", false, rows)?;
        self.batch(rows, columns)
    }

    fn pg_views(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let owner = self.catalog.source.owner();
        let user = index.user_relations().filter(|(relation, _)| relation.kind == Kind::View);
        let mut found: Vec<(String, &str, &str, Option<String>)> = user
            .map(|(r, schema)| {
                let text = definition(self.catalog, &index, r);
                (schema.name.clone(), r.name.as_str(), r.owner.as_str(), text)
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
            .maybe_texts("definition", found.iter().map(|v| v.3.as_ref()));
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

    fn pg_locks(&self) -> Result<RecordBatch> {
        let found = self.catalog.source.locks();
        let rows = found.len();
        let mode = |is_exclusive| if is_exclusive { "ExclusiveLock" } else { "ShareLock" };
        let columns = Columns::default()
            .all("locktype", "advisory", rows)?
            .all("database", DATABASE_OID, rows)?
            .numbers("classid", found.iter().map(|lock| lock.class as i32))
            .numbers("objid", found.iter().map(|lock| lock.object as i32))
            .small("objsubid", found.iter().map(|lock| lock.kind))
            .texts("virtualtransaction", found.iter().map(|lock| format!("{}/0", lock.process)))
            .numbers("pid", found.iter().map(|lock| lock.process))
            .texts("mode", found.iter().map(|lock| mode(lock.is_exclusive)))
            .bools("granted", found.iter().map(|lock| lock.granted));
        self.batch(rows, columns)
    }

    fn pg_prepared_statements(&self) -> Result<RecordBatch> {
        let found = self.catalog.source.prepared_statements();
        let columns = Columns::default()
            .texts("name", found.iter().map(|statement| &statement.name))
            .texts("statement", found.iter().map(|statement| &statement.text))
            .times("prepare_time", found.iter().map(|statement| Some(microseconds(statement.since))))
            .bools("from_sql", found.iter().map(|statement| statement.is_of_sql));
        self.batch(found.len(), columns)
    }

    fn pg_cursors(&self) -> Result<RecordBatch> {
        let found = self.catalog.source.cursors();
        let columns = Columns::default()
            .texts("name", found.iter().map(|cursor| &cursor.name))
            .texts("statement", found.iter().map(|cursor| &cursor.text))
            .bools("is_holdable", found.iter().map(|cursor| cursor.kind.is_held))
            .bools("is_binary", found.iter().map(|cursor| cursor.kind.is_binary))
            .bools("is_scrollable", found.iter().map(|cursor| cursor.kind.is_scrollable))
            .times("creation_time", found.iter().map(|cursor| Some(microseconds(cursor.since))));
        self.batch(found.len(), columns)
    }

    fn pg_stat_tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let tables = index.user_relations().filter(|(relation, _)| is_table(relation)).collect::<Vec<_>>();
        let columns = Columns::default()
            .numbers("relid", tables.iter().map(|(r, _)| oid(r.id)))
            .texts("schemaname", tables.iter().map(|(_, schema)| &schema.name))
            .texts("relname", tables.iter().map(|(r, _)| &r.name))
            .big("n_live_tup", tables.iter().map(|(r, _)| r.rows.map(|rows| rows as i64)));
        self.batch(tables.len(), columns)
    }

    fn pg_stats(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(&Schema, &Relation, &Column, &ColumnStatistics)> = vec![];
        for (relation, schema) in index.user_relations() {
            for column in &relation.columns {
                let object = Object::Column(relation.id, column.field.name());
                let spread = column.statistics.as_ref().filter(|_| self.may(&object, &["SELECT"]));
                found.extend(spread.map(|spread| (schema, relation, column, spread)));
            }
        }
        let common = |of: &(&Schema, &Relation, &Column, &ColumnStatistics)| of.3.common.clone();
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
}

fn kind(relation: &Relation) -> &'static str {
    match relation.kind {
        Kind::View => "v",
        Kind::Sequence => "S",
        Kind::Table | Kind::TemporaryTable => "r",
    }
}

fn is_table(relation: &Relation) -> bool {
    matches!(relation.kind, Kind::Table | Kind::TemporaryTable)
}

fn privileges(relation: &Relation) -> &'static str {
    if relation.kind == Kind::Sequence { sequences::SEQUENCE_PRIVILEGES } else { TABLE_PRIVILEGES }
}
