//! Rows of `information_schema`, restricted to what the user has privileges on.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch};
use datafusion::error::Result;

use super::stored_types::{type_oid, types};
use crate::catalog::{Index, system_schemas};
use crate::live::view::{Columns, View, system_relations};
use crate::source::{Column, Grant, Kind, Object, Relation, Role, Schema, Sequence};
use crate::types::{format_type, postgres_type_of_field};
use crate::view_texts::definition;

impl View<'_> {
    /// The relations that the user has any privilege on.
    pub(super) fn accessible_relations<'i>(&self, index: &'i Index) -> Vec<(&'i Relation, &'i Schema)> {
        let any = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"];
        let columns = ["SELECT", "INSERT", "UPDATE", "REFERENCES"];
        index
            .user_relations()
            .filter(|(r, _)| r.kind != Kind::Sequence)
            .filter(|(r, _)| {
                let column = |column: &Column| self.may(&Object::Column(r.id, column.field.name()), &columns);
                self.may(&Object::Relation(r.id), &any) || r.columns.iter().any(column)
            })
            .collect()
    }

    pub(super) fn schemata(&self) -> Result<RecordBatch> {
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

    pub(super) fn tables(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<(String, &str, &str, &str)> = vec![];
        for (relation, schema) in self.accessible_relations(&index) {
            let (kind, insertable) = match relation.kind {
                Kind::Table => ("BASE TABLE", "YES"),
                Kind::TemporaryTable => ("LOCAL TEMPORARY", "YES"),
                Kind::View | Kind::Sequence => ("VIEW", "NO"),
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

    pub(super) fn columns(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let mut found: Vec<Described> = vec![];
        for (relation, schema) in self.accessible_relations(&index) {
            for (column, number) in relation.columns.iter().zip(1..) {
                let (type_oid, modifier) = postgres_type_of_field(&column.field);
                found.push(Described {
                    schema: schema.name.clone(),
                    relation: &relation.name,
                    name: column.field.name(),
                    number,
                    default: column.default.as_deref(),
                    nullable: column.field.is_nullable() || relation.kind == Kind::View,
                    type_oid: type_oid as i32,
                    modifier,
                    updatable: relation.kind != Kind::View,
                    identity: index.identity(relation, column),
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
                    identity: None,
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
            "time" | "timetz" | "timestamp" | "timestamptz" if d.modifier >= 0 => Some(d.modifier),
            "time" | "timetz" | "timestamp" | "timestamptz" | "interval" => Some(6),
            _ => None,
        };
        let length = |d: &Described| {
            (matches!(type_name(d), "varchar" | "bpchar") && d.modifier >= 4).then_some(d.modifier - 4)
        };
        let bytes = |d: &Described| match length(d) {
            // A UTF-8 character has at most four bytes.
            Some(length) => Some(length.saturating_mul(4)),
            None => matches!(type_name(d), "varchar" | "text" | "bpchar").then_some(1 << 30),
        };
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
            .texts("is_identity", found.iter().map(|d| yes(d.identity.is_some())))
            .maybe_texts("identity_generation", found.iter().map(|d| Some(generation(d.identity?.1))))
            .maybe_texts("identity_start", found.iter().map(|d| Some(d.identity?.0.start.to_string())))
            .maybe_texts(
                "identity_increment",
                found.iter().map(|d| Some(d.identity?.0.increment.to_string())),
            )
            .maybe_texts("identity_maximum", found.iter().map(|d| Some(d.identity?.0.max.to_string())))
            .maybe_texts("identity_minimum", found.iter().map(|d| Some(d.identity?.0.min.to_string())))
            .texts("identity_cycle", found.iter().map(|d| yes(d.identity.is_some_and(|i| i.0.cycles))))
            .all("is_generated", "NEVER", rows)?
            .texts("is_updatable", found.iter().map(|d| yes(d.updatable)));
        let numbers = [
            ("character_maximum_length", found.iter().map(length).collect()),
            ("character_octet_length", found.iter().map(bytes).collect()),
            ("numeric_precision", found.iter().map(|d| precision(d).map(|p| p.0)).collect()),
            ("numeric_precision_radix", found.iter().map(radix).collect()),
            ("numeric_scale", found.iter().map(scale).collect()),
            ("datetime_precision", found.iter().map(time).collect()),
        ];
        columns.0.extend(numbers.map(|(name, values)| (name, optional(values))));
        self.batch(rows, columns)
    }

    pub(super) fn views(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let user = self.catalog.source.user();
        let views = self
            .accessible_relations(&index)
            .into_iter()
            .filter(|(r, _)| r.kind == Kind::View)
            .collect::<Vec<_>>();
        let rows = views.len();
        // Only its owner may see a view's definition.
        let shown = |relation: &Relation| match relation.owner == user || self.catalog.is_superuser(&user) {
            true => definition(self.catalog, &index, relation),
            false => None,
        };
        let mut columns = Columns::default()
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", views.iter().map(|(_, schema)| &schema.name))
            .texts("table_name", views.iter().map(|(r, _)| &r.name))
            .maybe_texts("view_definition", views.iter().map(|(r, _)| shown(r)))
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

    /// The privileges on relations granted to or by roles of the user, and those of PUBLIC.
    pub(super) fn table_privileges(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let roles = self.catalog.source.roles()?;
        let all = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"];
        let mut found: Vec<(String, &str, Given)> = vec![];
        for (relation, schema) in index.user_relations().filter(|(r, _)| r.kind != Kind::Sequence) {
            let given = Given::all(&relation.owner, &all, &relation.grants);
            found.extend(given.map(|given| (schema.name.clone(), relation.name.as_str(), given)));
        }
        let owner = self.catalog.source.owner();
        let everybody =
            [Grant { role: None, grantor: owner.clone(), privileges: vec![("SELECT".to_string(), false)] }];
        for relation in system_relations() {
            let schema = index.schema_name(relation.namespace).unwrap_or_default();
            let given = Given::all(&owner, &all, &everybody);
            found.extend(given.map(|given| (schema.clone(), relation.name, given)));
        }
        found.retain(|(.., given)| self.is_visible_grant(&roles, given));
        let rows = found.len();
        let columns = Columns::default()
            .texts("grantor", found.iter().map(|f| &f.2.grantor))
            .texts("grantee", found.iter().map(|f| &f.2.grantee))
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| &f.0))
            .texts("table_name", found.iter().map(|f| f.1))
            .texts("privilege_type", found.iter().map(|f| &f.2.privilege))
            .texts("is_grantable", found.iter().map(|f| yes(f.2.option)))
            .texts("with_hierarchy", found.iter().map(|f| yes(f.2.privilege == "SELECT")));
        self.batch(rows, columns)
    }

    /// The same for columns, including privileges on their relations.
    pub(super) fn column_privileges(&self) -> Result<RecordBatch> {
        let index = self.catalog.index()?;
        let roles = self.catalog.source.roles()?;
        let all = ["SELECT", "INSERT", "UPDATE", "REFERENCES"];
        let mut found: Vec<(&str, &str, &str, Given)> = vec![];
        for (relation, schema) in index.user_relations().filter(|(r, _)| r.kind != Kind::Sequence) {
            let on_all: Vec<Given> = Given::all(&relation.owner, &all, &relation.grants)
                .filter(|given| all.contains(&given.privilege.as_str()))
                .collect();
            for column in &relation.columns {
                let own = Given::all(&relation.owner, &[], &column.grants);
                let given = on_all.iter().cloned().chain(own);
                let name = column.field.name().as_str();
                found.extend(given.map(|given| (schema.name.as_str(), relation.name.as_str(), name, given)));
            }
        }
        found.retain(|(.., given)| self.is_visible_grant(&roles, given));
        let rows = found.len();
        let columns = Columns::default()
            .texts("grantor", found.iter().map(|f| &f.3.grantor))
            .texts("grantee", found.iter().map(|f| &f.3.grantee))
            .all("table_catalog", self.catalog.source.database().as_str(), rows)?
            .texts("table_schema", found.iter().map(|f| f.0))
            .texts("table_name", found.iter().map(|f| f.1))
            .texts("column_name", found.iter().map(|f| f.2))
            .texts("privilege_type", found.iter().map(|f| &f.3.privilege))
            .texts("is_grantable", found.iter().map(|f| yes(f.3.option)));
        self.batch(rows, columns)
    }

    /// The views named `role_…` omit privileges that only PUBLIC has.
    fn is_visible_grant(&self, roles: &[Role], given: &Given) -> bool {
        let user = self.catalog.source.user();
        let is_own = |name: &str| self.catalog.has_role(roles, &user, name);
        let is_for_all = given.grantee == PUBLIC && !self.relation.name.starts_with("role_");
        is_for_all || is_own(&given.grantor) || is_own(&given.grantee)
    }

    pub(super) fn character_sets(&self) -> Result<RecordBatch> {
        let columns = Columns::default()
            .texts("character_set_name", ["UTF8"])
            .texts("character_repertoire", ["UCS"])
            .texts("form_of_use", ["UTF8"])
            .texts("default_collate_catalog", [self.catalog.source.database()])
            .texts("default_collate_schema", ["pg_catalog"])
            .texts("default_collate_name", ["C"]);
        self.batch(1, columns)
    }

    pub(super) fn enabled_roles(&self) -> Result<RecordBatch> {
        let roles = self.catalog.source.roles()?;
        let user = self.catalog.source.user();
        let enabled = roles.iter().filter(|role| self.catalog.has_role(&roles, &user, &role.name));
        let names = enabled.map(|role| role.name.clone()).collect::<Vec<_>>();
        self.batch(names.len(), Columns::default().texts("role_name", names))
    }

    pub(super) fn applicable_roles(&self) -> Result<RecordBatch> {
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

    pub(super) fn catalog_name(&self) -> Result<RecordBatch> {
        self.batch(1, Columns::default().texts("catalog_name", [self.catalog.source.database()]))
    }
}

/// PUBLIC's name in `information_schema`.
const PUBLIC: &str = "PUBLIC";

/// A privilege and its grantee.
#[derive(Debug, Clone)]
struct Given {
    grantor: String,
    grantee: String,
    privilege: String,
    option: bool,
}

impl Given {
    /// The owner's privileges, and granted ones.
    fn all(owner: &str, everything: &[&str], grants: &[Grant]) -> impl Iterator<Item = Self> {
        let own = everything.iter().map(|privilege| Self {
            grantor: owner.to_string(),
            grantee: owner.to_string(),
            privilege: privilege.to_string(),
            option: true,
        });
        let granted = grants.iter().flat_map(|grant| {
            grant.privileges.iter().map(|(privilege, option)| Self {
                grantor: grant.grantor.clone(),
                grantee: grant.role.clone().unwrap_or_else(|| PUBLIC.to_string()),
                privilege: privilege.clone(),
                option: *option,
            })
        });
        own.chain(granted).collect::<Vec<_>>().into_iter()
    }
}

fn generation(is_always: bool) -> &'static str {
    if is_always { "ALWAYS" } else { "BY DEFAULT" }
}

pub(super) fn yes(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
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
    identity: Option<(&'a Sequence, bool)>,
}
