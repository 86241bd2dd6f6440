//! Storage of an [`Access`] in Harrier's own tables in the catalog's database, read and written as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Access, Grant, Membership, Object, PUBLIC, Priority, Privilege, Queue, Role, Verifier, WHOLE};
use crate::database::Database;
use crate::database::session::{Row, Session};
use crate::database::sql::{Rows, optional, optional_text, text};
use crate::error::{Error, Result};
use crate::layout::sequences;
use crate::model::ids::ObjectId;

/// One row: the version, and the next id of a role or a queue.
const ACCESS: &str = "harrier_access";
const ROLE: &str = "harrier_role";
const MEMBER: &str = "harrier_role_member";
const OWNER: &str = "harrier_owner";
const PRIVILEGE: &str = "harrier_privilege";
const FILTER: &str = "harrier_row_filter";
const QUEUE: &str = "harrier_resource_queue";
/// In warehouses with older roles it is created with the first setting.
const SETTING: &str = "harrier_role_setting";

const ROLE_COLUMNS: &str = "role_id, role_name, is_superuser, can_login, can_create_roles, inherits, connection_limit, \
     valid_until, verifier, queue_id";
const MEMBER_COLUMNS: &str = "role_id, member_id, may_use, may_administer";
const OWNER_COLUMNS: &str = "object_id, role_id";
const PRIVILEGE_COLUMNS: &str = "object_id, column_id, privilege, grantee_id, grantor_id, is_grantable";
const FILTER_COLUMNS: &str = "table_id, role_id, predicate";
const SETTING_COLUMNS: &str = "role_id, setting_name, setting_value";
const QUEUE_COLUMNS: &str = "queue_id, queue_name, active_statements, memory_limit, priority, max_cost";

/// Flags are numbers, which both databases support.
pub(crate) const TABLES: [(&str, &str); 8] = [
    (ACCESS, "version BIGINT NOT NULL, next_id BIGINT NOT NULL"),
    (
        ROLE,
        "role_id BIGINT PRIMARY KEY, role_name VARCHAR NOT NULL UNIQUE, is_superuser BIGINT NOT NULL, \
         can_login BIGINT NOT NULL, can_create_roles BIGINT NOT NULL, inherits BIGINT NOT NULL, \
         connection_limit BIGINT, valid_until BIGINT, verifier VARCHAR, queue_id BIGINT",
    ),
    (
        MEMBER,
        "role_id BIGINT, member_id BIGINT, may_use BIGINT NOT NULL, may_administer BIGINT NOT NULL, \
         PRIMARY KEY (role_id, member_id)",
    ),
    (OWNER, "object_id BIGINT PRIMARY KEY, role_id BIGINT NOT NULL"),
    (
        PRIVILEGE,
        "object_id BIGINT, column_id BIGINT, privilege VARCHAR, grantee_id BIGINT, grantor_id BIGINT, \
         is_grantable BIGINT NOT NULL, PRIMARY KEY (object_id, column_id, privilege, grantee_id, grantor_id)",
    ),
    (FILTER, "table_id BIGINT, role_id BIGINT, predicate VARCHAR NOT NULL, PRIMARY KEY (table_id, role_id)"),
    (
        QUEUE,
        "queue_id BIGINT PRIMARY KEY, queue_name VARCHAR NOT NULL UNIQUE, active_statements BIGINT, \
         memory_limit BIGINT, priority VARCHAR NOT NULL, max_cost VARCHAR",
    ),
    (SETTING, SETTING_TABLE),
];

const SETTING_TABLE: &str = "role_id BIGINT, setting_name VARCHAR, setting_value VARCHAR NOT NULL, PRIMARY KEY (role_id, setting_name)";

/// Initial grants, as in a new database of PostgreSQL: CONNECT, and USAGE of the schema `main`.
const FIRST_GRANTS: [(Object, Privilege); 3] = [
    (Object::Warehouse, Privilege::Connect),
    (Object::Warehouse, Privilege::Temporary),
    (Object::Schema(0), Privilege::Usage),
];

/// The state before the first change.
fn empty() -> Access {
    let grant = |(object, privilege): (Object, Privilege)| Grant {
        object: object.id(),
        column: WHOLE,
        privilege,
        grantee: PUBLIC,
        grantor: crate::access::BY_OWNER,
    };
    let grants = FIRST_GRANTS.into_iter().map(|first| (grant(first), false)).collect();
    Access { grants, next: 1, ..Access::default() }
}

pub(crate) async fn has_tables(session: &mut Session) -> Result<bool> {
    session.has_table(ACCESS).await
}

/// Whether roles have been used.
pub(crate) async fn is_used(database: &Database) -> Result<bool> {
    database.has_table(ACCESS).await
}

/// The version of what is stored, in one small query.
pub(crate) async fn version(database: &Database) -> Result<i64> {
    let rows = database.query(format!("SELECT version FROM {ACCESS}")).await?;
    rows.first().ok_or_else(|| Error::Corrupt(format!("{ACCESS} has no row")))?.integer(0)
}

pub(crate) async fn load(session: &mut Session) -> Result<Access> {
    if !has_tables(session).await? {
        return Ok(empty());
    }
    let select = |table: &str, columns: &str| format!("SELECT {columns} FROM {table}");
    let rows = session.query(select(ACCESS, "version, next_id")).await?;
    let row = rows.first().ok_or_else(|| Error::Corrupt(format!("{ACCESS} has no row")))?;
    let mut access = Access { version: row.integer(0)?, next: row.integer(1)?, ..Access::default() };
    for row in session.query(select(ROLE, ROLE_COLUMNS)).await? {
        access.roles.insert(row.integer(0)?, role(&row)?);
    }
    for row in session.query(select(MEMBER, MEMBER_COLUMNS)).await? {
        let membership = Membership { may_use: row.flag(2)?, may_administer: row.flag(3)? };
        access.memberships.insert((row.integer(0)?, row.integer(1)?), membership);
    }
    for row in session.query(select(OWNER, OWNER_COLUMNS)).await? {
        access.owners.insert(row.integer(0)?, row.integer(1)?);
    }
    for row in session.query(select(PRIVILEGE, PRIVILEGE_COLUMNS)).await? {
        let name = row.text(2)?;
        let privilege = Privilege::of_name(&name).ok_or_else(|| unknown("privilege", &name))?;
        let grant = Grant {
            object: row.integer(0)?,
            column: row.integer(1)?,
            privilege,
            grantee: row.integer(3)?,
            grantor: row.integer(4)?,
        };
        access.grants.insert(grant, row.flag(5)?);
    }
    for row in session.query(select(FILTER, FILTER_COLUMNS)).await? {
        access.row_filters.insert((row.integer(0)?, row.integer(1)?), row.text(2)?);
    }
    for row in session.query(select(QUEUE, QUEUE_COLUMNS)).await? {
        access.queues.insert(row.integer(0)?, queue(&row)?);
    }
    if session.has_table(SETTING).await? {
        for row in session.query(select(SETTING, SETTING_COLUMNS)).await? {
            access.settings.insert((row.integer(0)?, row.text(1)?), row.text(2)?);
        }
    }
    Ok(access)
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::Unsupported(format!(
        "the catalog has {kind} \"{name}\", which this version of Harrier does not know"
    ))
}

fn role(row: &Row) -> Result<Role> {
    let verifier = row.optional_text(8)?.map(|text| {
        Verifier::new(&text)
            .ok_or_else(|| Error::Corrupt("the verifier of a role's password is none".to_string()))
    });
    Ok(Role {
        name: row.text(1)?,
        is_superuser: row.flag(2)?,
        can_login: row.flag(3)?,
        can_create_roles: row.flag(4)?,
        inherits: row.flag(5)?,
        connection_limit: positive(row, 6)?,
        valid_until: row.optional_integer(7)?,
        verifier: verifier.transpose()?,
        queue: row.optional_integer(9)?,
    })
}

fn queue(row: &Row) -> Result<Queue> {
    let priority = row.text(4)?;
    let cost = row.optional_text(5)?.map(|text| {
        text.parse::<f64>().map_err(|_| Error::Corrupt("the cost limit of a queue is no number".to_string()))
    });
    Ok(Queue {
        name: row.text(1)?,
        active_statements: positive(row, 2)?,
        memory_limit: positive(row, 3)?,
        priority: Priority::of_name(&priority).ok_or_else(|| unknown("priority", &priority))?,
        max_cost: cost.transpose()?,
    })
}

fn positive<T: TryFrom<i64>>(row: &Row, index: usize) -> Result<Option<T>> {
    row.optional_integer(index)?
        .map(|value| {
            T::try_from(value).map_err(|_| Error::Corrupt(format!("the catalog has {value} as a limit")))
        })
        .transpose()
}

/// Writes the difference, if any, as the next version.
pub(crate) async fn write(session: &mut Session, before: &Access, after: Access) -> Result<()> {
    if *before == after {
        return Ok(());
    }
    let mut old = before.clone();
    if !has_tables(session).await? {
        for (table, columns) in TABLES {
            session.execute(format!("CREATE TABLE {table} ({columns})")).await?;
        }
        session.execute(format!("INSERT INTO {ACCESS} (version, next_id) VALUES (0, 1)")).await?;
        old = Access::default();
    } else if !after.settings.is_empty() && !session.has_table(SETTING).await? {
        session.execute(format!("CREATE TABLE {SETTING} ({SETTING_TABLE})")).await?;
    }
    for statement in difference(&old, &after)? {
        session.execute(statement).await?;
    }
    session.execute(format!("UPDATE {ACCESS} SET version = version + 1, next_id = {}", after.next)).await?;
    Ok(())
}

fn difference(old: &Access, new: &Access) -> Result<Vec<String>> {
    let flag = |value: bool| i64::from(value);
    let mut statements = map_difference(
        (ROLE, ROLE_COLUMNS),
        (&old.roles, &new.roles),
        |id| Ok(format!("role_id = {id}")),
        |id, role| {
            Ok(format!(
                "{id}, {}, {}, {}, {}, {}, {}, {}, {}, {}",
                text(&role.name)?,
                flag(role.is_superuser),
                flag(role.can_login),
                flag(role.can_create_roles),
                flag(role.inherits),
                optional(role.connection_limit.map(i64::from)),
                optional(role.valid_until),
                optional_text(role.verifier.as_ref().map(Verifier::as_str))?,
                optional(role.queue)
            ))
        },
    )?;
    statements.extend(map_difference(
        (MEMBER, MEMBER_COLUMNS),
        (&old.memberships, &new.memberships),
        |(role, member)| Ok(format!("role_id = {role} AND member_id = {member}")),
        |(role, member), membership| {
            let Membership { may_use, may_administer } = *membership;
            Ok(format!("{role}, {member}, {}, {}", flag(may_use), flag(may_administer)))
        },
    )?);
    statements.extend(map_difference(
        (OWNER, OWNER_COLUMNS),
        (&old.owners, &new.owners),
        |object| Ok(format!("object_id = {object}")),
        |object, owner| Ok(format!("{object}, {owner}")),
    )?);
    statements.extend(map_difference(
        (PRIVILEGE, PRIVILEGE_COLUMNS),
        (&old.grants, &new.grants),
        |grant| {
            let Grant { object, column, privilege, grantee, grantor } = grant;
            Ok(format!(
                "object_id = {object} AND column_id = {column} AND privilege = '{}' AND grantee_id = {grantee} \
                 AND grantor_id = {grantor}",
                privilege.name()
            ))
        },
        |grant, option| {
            let Grant { object, column, privilege, grantee, grantor } = grant;
            Ok(format!(
                "{object}, {column}, '{}', {grantee}, {grantor}, {}",
                privilege.name(),
                flag(*option)
            ))
        },
    )?);
    statements.extend(map_difference(
        (FILTER, FILTER_COLUMNS),
        (&old.row_filters, &new.row_filters),
        |(table, role)| Ok(format!("table_id = {table} AND role_id = {role}")),
        |(table, role), predicate| Ok(format!("{table}, {role}, {}", text(predicate)?)),
    )?);
    statements.extend(map_difference(
        (SETTING, SETTING_COLUMNS),
        (&old.settings, &new.settings),
        |(role, name)| Ok(format!("role_id = {role} AND setting_name = {}", text(name)?)),
        |(role, name), value| Ok(format!("{role}, {}, {}", text(name)?, text(value)?)),
    )?);
    statements.extend(map_difference(
        (QUEUE, QUEUE_COLUMNS),
        (&old.queues, &new.queues),
        |id| Ok(format!("queue_id = {id}")),
        |id, queue| {
            let memory = queue.memory_limit.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
            let cost = queue.max_cost.map(|cost| format!("{cost:?}"));
            Ok(format!(
                "{id}, {}, {}, {}, '{}', {}",
                text(&queue.name)?,
                optional(queue.active_statements.map(i64::from)),
                optional(memory),
                queue.priority.name(),
                optional_text(cost.as_deref())?
            ))
        },
    )?);
    Ok(statements)
}

/// Deletes removed and changed entries, then inserts new and changed ones.
fn map_difference<K: Ord, V: PartialEq>(
    (table, columns): (&str, &str),
    (old, new): (&BTreeMap<K, V>, &BTreeMap<K, V>),
    condition: impl Fn(&K) -> Result<String>,
    row: impl Fn(&K, &V) -> Result<String>,
) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    for (key, _) in old.iter().filter(|(key, value)| new.get(key) != Some(value)) {
        statements.push(format!("DELETE FROM {table} WHERE {}", condition(key)?));
    }
    let mut rows = Rows::into(table, columns);
    for (key, value) in new.iter().filter(|(key, value)| old.get(key) != Some(value)) {
        rows.add(&row(key, value)?);
    }
    statements.extend(rows.finish());
    Ok(statements)
}

/// Every schema, table, view and sequence in some snapshot.
pub(crate) async fn objects(session: &mut Session) -> Result<BTreeSet<ObjectId>> {
    let sequences = sequences::ids(session).await?;
    let sql = "SELECT schema_id FROM ducklake_schema UNION SELECT table_id FROM ducklake_table \
               UNION SELECT view_id FROM ducklake_view";
    let rows = session.query(sql).await?;
    sequences.into_iter().map(Ok).chain(rows.iter().map(|row| row.integer(0))).collect()
}

/// Statements for a commit that creates objects: each with the view that it replaces, whose owner and
/// privileges it gets; the others belong to `owner`, if that is a role.
pub(crate) fn new_objects(
    objects: &[(ObjectId, Option<ObjectId>)],
    owner: Option<&str>,
) -> Result<Vec<String>> {
    let mut statements = Vec::new();
    let mut new = String::new();
    for (object, replaced) in objects {
        let Some(replaced) = replaced else {
            let _ = write!(
                new,
                "{}SELECT {object} AS object_id",
                if new.is_empty() { "" } else { " UNION ALL " }
            );
            continue;
        };
        statements.push(format!(
            "INSERT INTO {OWNER} ({OWNER_COLUMNS}) SELECT {object}, role_id FROM {OWNER} WHERE object_id = {replaced}"
        ));
        statements.push(format!(
            "INSERT INTO {PRIVILEGE} ({PRIVILEGE_COLUMNS}) SELECT {object}, column_id, privilege, grantee_id, grantor_id, \
             is_grantable FROM {PRIVILEGE} WHERE object_id = {replaced}"
        ));
    }
    if let Some(owner) = owner.filter(|_| !new.is_empty()) {
        statements.push(format!(
            "INSERT INTO {OWNER} ({OWNER_COLUMNS}) SELECT n.object_id, r.role_id FROM ({new}) n, {ROLE} r \
             WHERE r.role_name = {}",
            text(owner)?
        ));
    }
    if !statements.is_empty() {
        statements.push(format!("UPDATE {ACCESS} SET version = version + 1"));
    }
    Ok(statements)
}
