//! Access control of a warehouse: roles, privileges, owners, row filters and resource queues.
//!
//! DuckLake has no tables for it: it is stored in Harrier's own tables in the catalog's database, created
//! with the first role or queue. All of it is one plain value, [`Access`], with a version that counts its
//! changes.
//!
//! ```text
//!   Catalog::access ─► Access ─► Rights of one role ─► may, columns, row_filter       rights.rs, no I/O
//!   Catalog::grant, … ─► Access, changed by the rules ─► its difference, one transaction
//!                        changes.rs, no I/O             store.rs
//! ```
//!
//! Invariants: as long as there is no role, everyone has full access. The id of a role or a queue is never
//! reused. Objects created and not committed by a transaction belong to it: objects with negative ids are
//! owned by the current user.
//!
//! This is not a security boundary around the database. Anyone who can open it or the data files without
//! Harrier can read everything.
//!
//! Changes are not part of a warehouse transaction: each is visible at once. A dropped object keeps its
//! privileges as long as a snapshot contains it; [`crate::Catalog::clean_access`] removes them after that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use harrier_error::{SqlError, SqlState};

use crate::error::{Error, Result};
use crate::model::ids::{ColumnId, ObjectId};
use crate::model::state::State;
use crate::model::values;

pub(crate) mod changes;
mod rights;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub use rights::{Columns, Rights, RowFilter};

/// The id of a role, from 1.
pub type RoleId = i64;
/// The id of a resource queue, from 1.
pub type QueueId = i64;

/// Every role, as a grantee.
pub const PUBLIC: RoleId = 0;
/// The owner of an object at any time, as a grantor.
pub const BY_OWNER: RoleId = 0;
/// All columns, in place of a column.
pub const WHOLE: ColumnId = 0;
/// The queue of roles without their own queue, if it exists.
pub const DEFAULT_QUEUE: &str = "pg_default";

/// The access control state of a warehouse.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Access {
    /// Counts changes; 0 if there never was one.
    pub version: i64,
    pub roles: BTreeMap<RoleId, Role>,
    /// By the granted role and the member.
    pub memberships: BTreeMap<(RoleId, RoleId), Membership>,
    /// Owners of schemas, tables, views and sequences. An object without an entry belongs to the superusers.
    pub owners: BTreeMap<ObjectId, RoleId>,
    /// Granted privileges; the value is the grant option.
    pub grants: BTreeMap<Grant, bool>,
    /// Predicates in SQL, by table and by the role that sees the rows for which they are true.
    pub row_filters: BTreeMap<(ObjectId, RoleId), String>,
    pub queues: BTreeMap<QueueId, Queue>,
    /// Session defaults of a role, by its id and the parameter's name.
    pub settings: BTreeMap<(RoleId, String), String>,
    /// The next id of a role or a queue.
    pub(crate) next: i64,
}

/// A role: a user, a group, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    pub name: String,
    pub is_superuser: bool,
    pub can_login: bool,
    pub can_create_roles: bool,
    /// Whether it has the privileges of the roles it is a member of without SET ROLE.
    pub inherits: bool,
    /// Maximum number of concurrent sessions.
    pub connection_limit: Option<u32>,
    /// Expiry of its password, microseconds since 1970.
    pub valid_until: Option<i64>,
    pub verifier: Option<Verifier>,
    pub queue: Option<QueueId>,
}

/// The options of a role membership.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Membership {
    /// Inherit its privileges and SET ROLE to it. The creator of a role may grant it and does not have this.
    pub may_use: bool,
    /// Grant it to others, alter it and drop it.
    pub may_administer: bool,
}

/// A password verifier: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`. Never in Debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(String);

impl Verifier {
    /// `None` if the text is not of this form: then it is a plain password, as in PostgreSQL.
    pub fn new(text: &str) -> Option<Self> {
        let base64 = |text: &str| {
            let byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
            !text.is_empty() && text.len().is_multiple_of(4) && text.bytes().all(byte)
        };
        let (iterations, rest) = text.strip_prefix("SCRAM-SHA-256$")?.split_once(':')?;
        let (salt, keys) = rest.split_once('$')?;
        let (stored, server) = keys.split_once(':')?;
        // 32 bytes.
        let key = |text: &str| text.len() == 44 && base64(text) && text.trim_end_matches('=').len() == 43;
        let is_count = iterations.parse::<u32>().is_ok_and(|count| count > 0);
        (is_count && base64(salt) && key(stored) && key(server)).then(|| Self(text.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// A granted privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub object: ObjectId,
    /// `WHOLE`, or a column of a table; of a view, the column's position, from 1.
    pub column: ColumnId,
    pub privilege: Privilege,
    /// A role, or `PUBLIC`.
    pub grantee: RoleId,
    /// The role that had the grant option, or `BY_OWNER`.
    pub grantor: RoleId,
}

/// A privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    Select,
    Insert,
    Update,
    Delete,
    Truncate,
    References,
    Trigger,
    Usage,
    Create,
    Connect,
    Temporary,
}

impl Privilege {
    pub const ALL: [Self; 11] = [
        Self::Select,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Truncate,
        Self::References,
        Self::Trigger,
        Self::Usage,
        Self::Create,
        Self::Connect,
        Self::Temporary,
    ];

    /// Its keyword in GRANT.
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::References => "REFERENCES",
            Self::Trigger => "TRIGGER",
            Self::Usage => "USAGE",
            Self::Create => "CREATE",
            Self::Connect => "CONNECT",
            Self::Temporary => "TEMPORARY",
        }
    }

    /// Parses a keyword in any case; `TEMP` is `TEMPORARY`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("temp") { "TEMPORARY" } else { name };
        Self::ALL.into_iter().find(|privilege| privilege.name().eq_ignore_ascii_case(name))
    }

    /// Privileges that can be granted on single columns.
    pub fn of_columns() -> &'static [Self] {
        &[Self::Select, Self::Insert, Self::Update, Self::References]
    }
}

/// An object of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The whole warehouse: PostgreSQL's database.
    Warehouse,
    Schema(ObjectId),
    Table(ObjectId),
    View(ObjectId),
    Sequence(ObjectId),
}

impl Object {
    /// The id by which owners and grants are stored.
    pub fn id(self) -> ObjectId {
        match self {
            Self::Warehouse => ObjectId::MIN,
            Self::Schema(id) | Self::Table(id) | Self::View(id) | Self::Sequence(id) => id,
        }
    }

    /// The privileges that apply to it: the meaning of `ALL PRIVILEGES`.
    pub fn privileges(self) -> &'static [Privilege] {
        use Privilege::*;
        match self {
            Self::Warehouse => &[Create, Connect, Temporary],
            Self::Schema(_) => &[Usage, Create],
            Self::Sequence(_) => &[Usage, Select, Update],
            Self::Table(_) | Self::View(_) => {
                &[Select, Insert, Update, Delete, Truncate, References, Trigger]
            }
        }
    }

    /// PostgreSQL's word for it in messages.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Warehouse => "database",
            Self::Schema(_) => "schema",
            Self::Table(_) => "table",
            Self::View(_) => "view",
            Self::Sequence(_) => "sequence",
        }
    }

    /// Its kind and name, as in `table lineitem`.
    pub fn describe(self, state: &State) -> String {
        let name = match self {
            Self::Warehouse => None,
            Self::Schema(id) => state.schemas.get(&id).map(|schema| state.display_name(schema)),
            Self::Table(id) => state.tables.get(&id).map(|table| table.name.as_str()),
            Self::View(id) => state.views.get(&id).map(|view| view.name.as_str()),
            Self::Sequence(id) => state.sequences.get(&id).map(|sequence| sequence.name.as_str()),
        };
        name.map_or_else(|| self.kind().to_string(), |name| format!("{} {name}", self.kind()))
    }

    /// The object with this id in a state.
    pub fn of_id(state: &State, id: ObjectId) -> Option<Self> {
        match id {
            _ if id == Self::Warehouse.id() => Some(Self::Warehouse),
            _ if state.schemas.contains_key(&id) => Some(Self::Schema(id)),
            _ if state.tables.contains_key(&id) => Some(Self::Table(id)),
            _ if state.views.contains_key(&id) => Some(Self::View(id)),
            _ if state.sequences.contains_key(&id) => Some(Self::Sequence(id)),
            _ => None,
        }
    }
}

/// A resource queue: limits shared by the statements of its roles.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    pub name: String,
    /// Maximum number of concurrent statements.
    pub active_statements: Option<u32>,
    /// Total bytes of memory for all of them.
    pub memory_limit: Option<u64>,
    pub priority: Priority,
    /// Planner cost above which a statement is rejected.
    pub max_cost: Option<f64>,
}

/// Share of the machine for the statements of a queue, relative to other queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    Min,
    Low,
    #[default]
    Medium,
    High,
    Max,
}

impl Priority {
    pub const ALL: [Self; 5] = [Self::Min, Self::Low, Self::Medium, Self::High, Self::Max];

    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "MIN",
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
            Self::Max => "MAX",
        }
    }

    /// Parses a name in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name().eq_ignore_ascii_case(name))
    }
}

/// The user who makes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor<'a> {
    /// The process that has the warehouse open itself, as the owner of its files. Nothing is forbidden.
    System,
    /// A role, by name. As long as there are no roles, any name.
    Role(&'a str),
}

/// The recipient of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grantee {
    Public,
    Role(String),
}

/// The options of CREATE ROLE and ALTER ROLE; `None`: unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub login: Option<bool>,
    pub create_roles: Option<bool>,
    pub inherits: Option<bool>,
    /// `Some(None)`: no limit.
    pub connection_limit: Option<Option<u32>>,
    /// A time such as `2026-11-22 07:30:28+01`, or `infinity`.
    pub valid_until: Option<String>,
    /// `Some(None)`: no password.
    pub verifier: Option<Option<Verifier>>,
    /// `Some(None)`: no queue of its own.
    pub queue: Option<Option<String>>,
    /// For CREATE ROLE: roles that it becomes a member of, roles that become its members, and members with
    /// ADMIN OPTION.
    pub in_roles: Vec<String>,
    pub members: Vec<String>,
    pub administrators: Vec<String>,
}

/// The options of CREATE and ALTER RESOURCE QUEUE; `None`: unchanged. `Some(None)`: no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueOptions {
    pub active_statements: Option<Option<u32>>,
    pub memory_limit: Option<Option<u64>>,
    pub priority: Option<Priority>,
    pub max_cost: Option<Option<f64>>,
}

/// Privileges on objects for roles, to grant or revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    pub objects: Vec<Object>,
    /// Each with its columns; none: the whole object.
    pub privileges: Vec<(Privilege, Vec<ColumnId>)>,
    pub grantees: Vec<Grantee>,
}

impl Role {
    /// Whether its password has expired.
    pub fn is_expired(&self) -> bool {
        self.valid_until.is_some_and(|until| until <= values::now())
    }

    /// `valid_until` as text, UTC.
    pub fn valid_until_text(&self) -> Option<String> {
        self.valid_until.map(values::format_time)
    }
}

impl Access {
    /// Session defaults of a role.
    pub fn settings_of(&self, role: &str) -> Vec<(String, String)> {
        let Some((id, _)) = self.role(role) else { return Vec::new() };
        let own = self.settings.range((id, String::new())..).take_while(|((role, _), _)| *role == id);
        own.map(|((_, name), value)| (name.clone(), value.clone())).collect()
    }

    /// All objects with an entry.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        let owned = self.owners.keys().copied();
        let granted = self.grants.keys().map(|grant| grant.object);
        owned.chain(granted).chain(self.row_filters.keys().map(|(table, _)| *table))
    }

    pub(crate) fn forget(&mut self, objects: &BTreeSet<ObjectId>) {
        self.owners.retain(|object, _| !objects.contains(object));
        self.grants.retain(|grant, _| !objects.contains(&grant.object));
        self.row_filters.retain(|(table, _), _| !objects.contains(table));
    }
}

/// An error with its SQLSTATE.
fn refuse<T>(state: SqlState, message: impl Into<String>) -> Result<T> {
    Err(refusal(state, message))
}

fn refusal(state: SqlState, message: impl Into<String>) -> Error {
    Error::Refused(Box::new(SqlError::new(state, message)))
}
