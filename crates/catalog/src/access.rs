//! Who may do what in a warehouse: roles, privileges, owners, row filters and resource queues.
//!
//! DuckLake has no place for it: it is in tables of Harrier's own in the catalog's database, made when the
//! first role or queue is. All of it is one plain value, [`Access`], with a version that counts its changes.
//!
//! ```text
//!   Catalog::access ─► Access ─► Rights of one role ─► may, columns, row_filter       rights.rs, no I/O
//!   Catalog::grant, … ─► Access, changed by the rules ─► its difference, one transaction
//!                        changes.rs, no I/O             store.rs
//! ```
//!
//! Invariants: as long as there is no role, everybody may everything. A number of a role or a queue is never
//! used again. The privileges of what a transaction has made and not committed are its own: objects with
//! numbers below zero belong to whoever asks.
//!
//! What it is not: a wall around the database. Whoever can open that, or the data files, without Harrier can
//! read all of it.
//!
//! Changes are no part of a transaction of the warehouse: each is visible at once. What is dropped keeps its
//! privileges as long as a snapshot has it; [`Catalog::clean_access`] forgets them after that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError};

use harrier_error::{SqlError, SqlState};

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::retry::retry_if_lost;
use crate::state::{ColumnId, ObjectId, State};
use crate::values;

mod changes;
mod rights;
mod store;
#[cfg(test)]
mod tests;

use changes::Change;
pub use rights::{Columns, Rights, RowFilter};

/// The number of a role, from 1.
pub type RoleId = i64;
/// The number of a resource queue, from 1.
pub type QueueId = i64;

/// Every role, in the place of a role that has been granted something.
pub const PUBLIC: RoleId = 0;
/// The owner of an object at any time, in the place of a role that has granted something.
pub const BY_OWNER: RoleId = 0;
/// All columns, in the place of one.
pub const WHOLE: ColumnId = 0;
/// The queue of roles that have been given none, if it was made.
pub const DEFAULT_QUEUE: &str = "pg_default";

/// All that is kept of who may do what.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Access {
    /// Counts changes; 0 if there never was one.
    pub version: i64,
    pub roles: BTreeMap<RoleId, Role>,
    /// By the role that was granted, and the one it was granted to.
    pub memberships: BTreeMap<(RoleId, RoleId), Membership>,
    /// Of schemas, tables, views and sequences. What has no owner here is the superusers'.
    pub owners: BTreeMap<ObjectId, RoleId>,
    /// What was granted; the value: with grant option.
    pub grants: BTreeMap<Grant, bool>,
    /// Predicates in SQL, by table and the role that sees the rows they are true for.
    pub row_filters: BTreeMap<(ObjectId, RoleId), String>,
    pub queues: BTreeMap<QueueId, Queue>,
    /// What sessions of a role begin with, by its number and the name of the parameter.
    pub settings: BTreeMap<(RoleId, String), String>,
    /// The next number of a role or a queue.
    pub(crate) next: i64,
}

/// A role: a user, a group, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    pub name: String,
    pub is_superuser: bool,
    pub can_login: bool,
    pub can_create_roles: bool,
    /// It has the privileges of the roles that it is a member of without asking for them.
    pub inherits: bool,
    /// How many sessions it may have at once.
    pub connection_limit: Option<u32>,
    /// Until when its password is good: microseconds since 1970.
    pub valid_until: Option<i64>,
    pub verifier: Option<Verifier>,
    pub queue: Option<QueueId>,
}

/// What a role may do with one that it was granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Membership {
    /// Have its privileges, and become it. Who creates a role may grant it, and has not this.
    pub may_use: bool,
    /// Grant it to others, alter it and drop it.
    pub may_administer: bool,
}

/// What a password is checked against: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`. Never
/// in Debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(String);

impl Verifier {
    /// `None` if it is not of that form, as a password is not: then it is one, as in PostgreSQL.
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

/// A privilege as it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub object: ObjectId,
    /// `WHOLE`, or a column of a table; of a view, which column it is, from 1.
    pub column: ColumnId,
    pub privilege: Privilege,
    /// A role, or `PUBLIC`.
    pub grantee: RoleId,
    /// The role that had the grant option, or `BY_OWNER`.
    pub grantor: RoleId,
}

/// What can be granted.
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

    /// As in GRANT.
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

    /// In any case; `TEMP` is `TEMPORARY`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("temp") { "TEMPORARY" } else { name };
        Self::ALL.into_iter().find(|privilege| privilege.name().eq_ignore_ascii_case(name))
    }

    /// Those that can be granted on single columns.
    pub fn of_columns() -> &'static [Self] {
        &[Self::Select, Self::Insert, Self::Update, Self::References]
    }
}

/// What privileges are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// All of it: PostgreSQL's database.
    Warehouse,
    Schema(ObjectId),
    Table(ObjectId),
    View(ObjectId),
    Sequence(ObjectId),
}

impl Object {
    /// By which owners and grants are kept.
    pub fn id(self) -> ObjectId {
        match self {
            Self::Warehouse => ObjectId::MIN,
            Self::Schema(id) | Self::Table(id) | Self::View(id) | Self::Sequence(id) => id,
        }
    }

    /// All that can be granted on one: what `ALL PRIVILEGES` means.
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

    /// As PostgreSQL calls it in messages.
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
            Self::Schema(id) => state.schemas.get(&id).map(|schema| state.told_name(schema)),
            Self::Table(id) => state.tables.get(&id).map(|table| table.name.as_str()),
            Self::View(id) => state.views.get(&id).map(|view| view.name.as_str()),
            Self::Sequence(id) => state.sequences.get(&id).map(|sequence| sequence.name.as_str()),
        };
        name.map_or_else(|| self.kind().to_string(), |name| format!("{} {name}", self.kind()))
    }

    /// What has this number in a state.
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

/// Limits that the statements of its roles share.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    pub name: String,
    /// Statements that run at once.
    pub active_statements: Option<u32>,
    /// Bytes for all of them.
    pub memory_limit: Option<u64>,
    pub priority: Priority,
    /// The planner's cost above which a statement is refused.
    pub max_cost: Option<f64>,
}

/// How much of the machine the statements of a queue get, against those of others.
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

    /// In any case.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name().eq_ignore_ascii_case(name))
    }
}

/// Who asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor<'a> {
    /// Whoever has the warehouse itself open, as its files belong to them. Nothing is forbidden.
    System,
    /// A role, by its name. As long as there is none, whoever it is.
    Role(&'a str),
}

/// Who is granted something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grantee {
    Public,
    Role(String),
}

/// What CREATE ROLE and ALTER ROLE say of a role; `None`: nothing.
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
    /// For CREATE ROLE: roles that it becomes a member of, that become its members, and that may then grant
    /// it as well.
    pub in_roles: Vec<String>,
    pub members: Vec<String>,
    pub administrators: Vec<String>,
}

/// What CREATE and ALTER RESOURCE QUEUE say; `None`: nothing. `Some(None)`: no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueOptions {
    pub active_statements: Option<Option<u32>>,
    pub memory_limit: Option<Option<u64>>,
    pub priority: Option<Priority>,
    pub max_cost: Option<Option<f64>>,
}

/// Privileges on objects for roles, to be granted or revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    pub objects: Vec<Object>,
    /// Each with the columns it is for; none: the whole object.
    pub privileges: Vec<(Privilege, Vec<ColumnId>)>,
    pub grantees: Vec<Grantee>,
}

impl Role {
    /// Whether its password is not good any more.
    pub fn is_expired(&self) -> bool {
        self.valid_until.is_some_and(|until| until <= values::now())
    }

    /// `valid_until` as text, UTC.
    pub fn valid_until_text(&self) -> Option<String> {
        self.valid_until.map(values::format_time)
    }
}

impl Catalog {
    /// Who may do what. One small query if nothing has changed since the last call.
    pub async fn access(&self) -> Result<Arc<Access>> {
        let version = self.access_version().await?;
        if let Some(known) = self.known_access(version) {
            return Ok(known);
        }
        let read = || async { store::load(&mut self.inner.database.read().await?).await };
        let access = Arc::new(retry_if_lost(read).await?);
        *self.inner.access.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&access));
        Ok(access)
    }

    /// The version of what `access` gives, in one small query.
    pub async fn access_version(&self) -> Result<i64> {
        store::version(&self.inner).await
    }

    fn known_access(&self, version: i64) -> Option<Arc<Access>> {
        let known = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|known| known.version == version).cloned()
    }

    /// CREATE ROLE. The first role of a warehouse takes from everybody else what they might until then; so a
    /// role of the actor's name that is a superuser is made with it, unless the first is one itself.
    pub async fn create_role(&self, actor: Actor<'_>, name: &str, options: &RoleOptions) -> Result<()> {
        self.change_access(actor, |change| change.create_role(name, options)).await
    }

    /// ALTER ROLE.
    pub async fn alter_role(&self, actor: Actor<'_>, name: &str, options: &RoleOptions) -> Result<()> {
        self.change_access(actor, |change| change.alter_role(name, options)).await
    }

    /// ALTER ROLE … SET and RESET: a parameter that sessions of the role begin with; `None` takes it away.
    /// The caller has checked that there is one of this name that may have the value.
    pub async fn set_role_setting(
        &self,
        actor: Actor<'_>,
        role: &str,
        name: &str,
        value: Option<&str>,
    ) -> Result<()> {
        self.change_access(actor, |change| change.set_role_setting(role, name, value)).await
    }

    /// ALTER ROLE … RESET ALL.
    pub async fn reset_role_settings(&self, actor: Actor<'_>, role: &str) -> Result<()> {
        self.change_access(actor, |change| change.reset_role_settings(role)).await
    }

    /// ALTER ROLE … RENAME TO.
    pub async fn rename_role(&self, actor: Actor<'_>, name: &str, to: &str) -> Result<()> {
        self.change_access(actor, |change| change.rename_role(name, to)).await
    }

    /// DROP ROLE. 2BP01 if it owns something, has been granted something, or is the role of a row filter.
    pub async fn drop_role(&self, actor: Actor<'_>, name: &str) -> Result<()> {
        self.change_access(actor, |change| change.drop_role(name)).await
    }

    /// GRANT role TO member.
    pub async fn grant_role(
        &self,
        actor: Actor<'_>,
        role: &str,
        member: &str,
        with_admin_option: bool,
    ) -> Result<()> {
        self.change_access(actor, |change| change.grant_role(role, member, with_admin_option)).await
    }

    /// REVOKE role FROM member. The answer is a warning if it was no member.
    pub async fn revoke_role(
        &self,
        actor: Actor<'_>,
        role: &str,
        member: &str,
        admin_option_only: bool,
    ) -> Result<Option<String>> {
        self.change_access(actor, |change| change.revoke_role(role, member, admin_option_only)).await
    }

    /// GRANT. The answer is warnings (01007): of what the actor may not grant, while it may grant the rest.
    pub async fn grant(
        &self,
        actor: Actor<'_>,
        privileges: &Privileges,
        with_grant_option: bool,
    ) -> Result<Vec<String>> {
        self.change_access(actor, |change| change.grant(privileges, with_grant_option)).await
    }

    /// REVOKE. Superusers and owners take away what anybody has granted, others what they have. What was
    /// granted upon it by those who lose it goes with `cascade`, and prevents it without (2BP01). Warnings
    /// (01006) as those of `grant`.
    pub async fn revoke(
        &self,
        actor: Actor<'_>,
        privileges: &Privileges,
        grant_option_only: bool,
        cascade: bool,
    ) -> Result<Vec<String>> {
        self.change_access(actor, |change| change.revoke(privileges, grant_option_only, cascade)).await
    }

    /// DROP OWNED, as far as privileges go: takes away all that a role was granted, and that it has granted.
    pub async fn revoke_all(&self, actor: Actor<'_>, role: &str) -> Result<()> {
        self.change_access(actor, |change| change.revoke_all(role)).await
    }

    /// ALTER … OWNER TO. For new objects, `CommitNote::owner` says it with their commit.
    pub async fn set_owner(&self, actor: Actor<'_>, object: Object, owner: &str) -> Result<()> {
        self.change_access(actor, |change| change.set_owner(object, owner)).await
    }

    /// REASSIGN OWNED BY … TO ….
    pub async fn reassign_owned(&self, actor: Actor<'_>, from: &str, to: &str) -> Result<()> {
        self.change_access(actor, |change| change.reassign_owned(from, to)).await
    }

    /// Lets a role see the rows of a table for which a predicate is true. From the first filter of a table
    /// on, roles that none is for see nothing of it, except its owner and superusers. The predicate is SQL
    /// that the caller has checked.
    pub async fn put_row_filter(
        &self,
        actor: Actor<'_>,
        table: ObjectId,
        role: &Grantee,
        predicate: &str,
    ) -> Result<()> {
        self.change_access(actor, |change| change.put_row_filter(table, role, predicate)).await
    }

    pub async fn drop_row_filter(&self, actor: Actor<'_>, table: ObjectId, role: &Grantee) -> Result<()> {
        self.change_access(actor, |change| change.drop_row_filter(table, role)).await
    }

    /// CREATE RESOURCE QUEUE.
    pub async fn create_queue(&self, actor: Actor<'_>, name: &str, options: &QueueOptions) -> Result<()> {
        self.change_access(actor, |change| change.create_queue(name, options)).await
    }

    /// ALTER RESOURCE QUEUE.
    pub async fn alter_queue(&self, actor: Actor<'_>, name: &str, options: &QueueOptions) -> Result<()> {
        self.change_access(actor, |change| change.alter_queue(name, options)).await
    }

    /// DROP RESOURCE QUEUE. 2BP01 if a role has it.
    pub async fn drop_queue(&self, actor: Actor<'_>, name: &str) -> Result<()> {
        self.change_access(actor, |change| change.drop_queue(name)).await
    }

    /// Forgets owners, privileges and filters of schemas, tables and views that no snapshot has any more; how
    /// many of these there were. To be called when snapshots have expired.
    pub async fn clean_access(&self) -> Result<usize> {
        if self.access_version().await? == 0 {
            return Ok(0);
        }
        let mut session = self.inner.database.write().await?;
        let known = store::objects(&mut session).await?;
        let before = store::load(&mut session).await?;
        let gone: BTreeSet<ObjectId> =
            before.objects().filter(|id| *id != Object::Warehouse.id() && !known.contains(id)).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let mut after = before.clone();
        after.forget(&gone);
        store::write(&mut session, &before, after).await?;
        session.commit().await?;
        Ok(gone.len())
    }

    /// Changes it by a function that keeps the rules, and writes the difference: all of it or, upon an error,
    /// nothing.
    async fn change_access<T>(
        &self,
        actor: Actor<'_>,
        change: impl FnOnce(&mut Change<'_>) -> Result<T>,
    ) -> Result<T> {
        let state = self.head().await?;
        let mut session = self.inner.database.write().await?;
        let outcome = async {
            let before = store::load(&mut session).await?;
            let mut draft = Change::new(before.clone(), actor, &state)?;
            let outcome = change(&mut draft)?;
            store::write(&mut session, &before, draft.access).await?;
            Ok(outcome)
        };
        match outcome.await {
            Ok(outcome) => {
                session.commit().await?;
                Ok(outcome)
            }
            Err(error) => {
                session.rollback().await;
                Err(error)
            }
        }
    }
}

impl Access {
    /// What sessions of a role begin with.
    pub fn settings_of(&self, role: &str) -> Vec<(String, String)> {
        let Some((id, _)) = self.role(role) else { return Vec::new() };
        let own = self.settings.range((id, String::new())..).take_while(|((role, _), _)| *role == id);
        own.map(|((_, name), value)| (name.clone(), value.clone())).collect()
    }

    /// Everything that something is kept of.
    fn objects(&self) -> impl Iterator<Item = ObjectId> {
        let owned = self.owners.keys().copied();
        let granted = self.grants.keys().map(|grant| grant.object);
        owned.chain(granted).chain(self.row_filters.keys().map(|(table, _)| *table))
    }

    fn forget(&mut self, objects: &BTreeSet<ObjectId>) {
        self.owners.retain(|object, _| !objects.contains(object));
        self.grants.retain(|grant, _| !objects.contains(&grant.object));
        self.row_filters.retain(|(table, _), _| !objects.contains(table));
    }
}

/// An error with its SQLSTATE.
fn refused<T>(state: SqlState, message: impl Into<String>) -> Result<T> {
    Err(refusal(state, message))
}

fn refusal(state: SqlState, message: impl Into<String>) -> Error {
    Error::Refused(Box::new(SqlError::new(state, message)))
}

pub(crate) use store::{TABLES, has_tables, new_objects};
