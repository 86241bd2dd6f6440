//! Access control: the role as which a statement reads and changes the warehouse, and its privileges.
//!
//! Reads are checked at each scan, for the columns that the scan needs; a view's reads, by the privileges of
//! the view's owner. Changes are checked before they are planned.

pub(crate) mod dml;
pub(crate) mod read_check;
pub(crate) mod restricted_view;

use std::sync::{Arc, OnceLock};

use datafusion::error::{DataFusionError, Result};
use harrier_catalog::access::{Access, Actor, Columns, Object, Privilege, Rights, RowFilter};
use harrier_catalog::state::{ObjectId, State};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;
use parking_lot::RwLock;

use crate::planning::stored_sql::SessionUsers;

/// The identity as which something is read or changed.
#[derive(Debug, Clone, Default)]
pub enum Viewer {
    /// A process that has opened the warehouse itself: everything is allowed.
    #[default]
    System,
    /// A role, with the roles and privileges known when the statement began.
    Role { name: Arc<str>, access: Arc<Access> },
}

impl Viewer {
    /// The role's name; `None` for the system.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::System => None,
            Self::Role { name, .. } => Some(name),
        }
    }

    /// Whether the role is a superuser, or the system.
    pub fn is_superuser(&self) -> bool {
        self.rights().is_none_or(|rights| rights.is_superuser())
    }

    /// Whether it has the privileges of another role through membership.
    pub fn has_privileges_of(&self, role: &str) -> bool {
        match self {
            Self::System => true,
            Self::Role { name, access } => {
                **name == *role || self.is_superuser() || access.is_member(name, role)
            }
        }
    }

    /// Whether it may act as another role, or is it.
    pub(crate) fn may_become(&self, role: &str) -> bool {
        self.name() == Some(role) || self.rights().is_none_or(|rights| rights.may_become(role))
    }

    pub(crate) fn actor(&self) -> Actor<'_> {
        match self {
            Self::System => Actor::System,
            Self::Role { name, .. } => Actor::Role(name),
        }
    }

    /// `None` for the system, which has all rights.
    pub(crate) fn rights(&self) -> Option<Rights<'_>> {
        match self {
            Self::System => None,
            Self::Role { name, access } => Some(access.rights(name)),
        }
    }

    /// The identity as which a view reads: its owner, or the system if it has none.
    pub(crate) fn owner_of(&self, view: ObjectId) -> Self {
        match self {
            Self::System => Self::System,
            // Created in this transaction by the current role; no other session sees it yet.
            Self::Role { .. } if view < 0 => self.clone(),
            Self::Role { access, .. } => match access.owner(Object::View(view)) {
                Some(owner) => Self::Role { name: owner.into(), access: Arc::clone(access) },
                None => Self::System,
            },
        }
    }

    pub(crate) fn may(&self, object: Object, privilege: Privilege) -> bool {
        self.rights().is_none_or(|rights| rights.may(object, privilege))
    }

    /// Errors: no such privilege on all of `object` (42501).
    pub(crate) fn check(&self, object: Object, privilege: Privilege, state: &State) -> Result<()> {
        match self.may(object, privilege) {
            true => Ok(()),
            false => Err(permission_denied(&object.describe(state))),
        }
    }

    /// Errors: the role neither owns `object` nor has the privileges of its owner (42501).
    pub(crate) fn check_owner(&self, object: Object, state: &State) -> Result<()> {
        match self.owns(object) {
            true => Ok(()),
            false => {
                let message = format!("must be owner of {}", object.describe(state));
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into_datafusion())
            }
        }
    }

    /// Errors: the role is not a superuser (42501).
    pub(crate) fn check_superuser(&self, what: &str) -> Result<()> {
        match self.is_superuser() {
            true => Ok(()),
            false => {
                let message = format!("permission denied to {what}");
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                    .with_detail("Only roles with the SUPERUSER attribute may do that.")
                    .into_datafusion())
            }
        }
    }

    /// Whether two objects have the same owner. Objects created by the transaction are the session's; objects
    /// without an owner are the superusers'.
    pub(crate) fn have_one_owner(&self, one: Object, other: Object) -> bool {
        let Self::Role { name, access } = self else { return true };
        let owner = |object: Object| match object.id() < 1 {
            true => Some(&**name),
            false => access.owner(object),
        };
        match (owner(one), owner(other)) {
            _ if access.is_open() => true,
            (Some(one), Some(other)) => one == other,
            (Some(role), None) | (None, Some(role)) => access.is_superuser(role),
            (None, None) => true,
        }
    }

    pub(crate) fn owns(&self, object: Object) -> bool {
        self.rights().is_none_or(|rights| rights.owns(object))
    }

    /// The columns on which it has a privilege.
    pub(crate) fn columns(&self, object: Object, privilege: Privilege) -> Columns {
        self.rights().map_or(Columns::All, |rights| rights.columns(object, privilege))
    }

    /// Whether it may see that a table or view exists and what its columns are.
    pub(crate) fn may_inspect(&self, object: Object) -> bool {
        self.rights().is_none_or(|rights| rights.may_anything(object))
    }

    /// The row filters of a table, of which at least one must be true for a row to be visible; `None` if all
    /// rows are.
    pub(crate) fn row_filters(&self, table: ObjectId) -> Option<Vec<String>> {
        match self.rights()?.row_filter(table) {
            RowFilter::All => None,
            RowFilter::AnyOf(predicates) => Some(predicates.into_iter().map(str::to_string).collect()),
        }
    }
}

/// The error for a missing privilege.
pub(crate) fn permission_denied(what: &str) -> DataFusionError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {what}")).into_datafusion()
}

/// The login role of a session, and the role as which its statements run.
#[derive(Debug, Default)]
pub(crate) struct SessionRole {
    /// The login role. Not set for the system's session.
    login: OnceLock<String>,
    /// The role of SET ROLE.
    other: RwLock<Option<String>>,
    /// While a transaction is open: the roles to restore at its end.
    ends: RwLock<Option<RoleAfterTransaction>>,
    viewer: RwLock<Viewer>,
}

/// The role of SET ROLE after a transaction; `None` for the login role.
#[derive(Debug, Clone)]
struct RoleAfterTransaction {
    rolled_back: Option<String>,
    committed: Option<String>,
}

impl SessionRole {
    /// Sets the login role. To be called once.
    pub(crate) fn log_in(&self, role: &str) {
        assert!(self.login.set(role.to_string()).is_ok(), "a session begins once");
        *self.viewer.write() = Viewer::Role { name: role.into(), access: Arc::default() };
    }

    /// The login role.
    pub(crate) fn login(&self) -> Option<&str> {
        self.login.get().map(String::as_str)
    }

    /// SET ROLE; `None` for NONE. `is_local`: until the transaction ends; without effect outside of one.
    ///
    /// Errors: no such role (22023), or the session may not become it (42501).
    pub(crate) fn become_role(&self, role: Option<String>, is_local: bool) -> Result<()> {
        let Some(login) = self.login.get() else {
            let message = "SET ROLE is for sessions of a server";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        };
        if let (Some(role), Viewer::Role { access, .. }) = (&role, &*self.viewer.read()) {
            if access.role(role).is_none() && !(access.is_open() && role == login) {
                let message = format!("role \"{role}\" does not exist");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion());
            }
            if role != login && !access.rights(login).may_become(role) {
                let message = format!("permission denied to set role \"{role}\"");
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into_datafusion());
            }
        }
        let role = role.filter(|role| role != login);
        match &mut *self.ends.write() {
            None if is_local => return Ok(()),
            Some(ends) if !is_local => ends.committed.clone_from(&role),
            _ => {}
        }
        *self.other.write() = role;
        Ok(())
    }

    /// To be called after BEGIN.
    pub(crate) fn begin(&self) {
        let present = self.other.read().clone();
        self.ends
            .write()
            .get_or_insert_with(|| RoleAfterTransaction { rolled_back: present.clone(), committed: present });
    }

    /// To be called after COMMIT or ROLLBACK.
    pub(crate) fn end(&self, is_committed: bool) {
        if let Some(ends) = self.ends.write().take() {
            *self.other.write() = if is_committed { ends.committed } else { ends.rolled_back };
        }
    }

    /// Sets the roles and privileges for a statement. To be called when it begins.
    pub(crate) fn set_access(&self, access: Arc<Access>) {
        let Some(login) = self.login.get() else { return };
        let name = self.other.read().as_deref().unwrap_or(login).into();
        *self.viewer.write() = Viewer::Role { name, access };
    }

    /// The identity of the current statement.
    pub(crate) fn viewer(&self) -> Viewer {
        self.viewer.read().clone()
    }

    /// Whether coming statements run as a superuser, by the roles known to the current one.
    pub(crate) fn is_superuser_from_now_on(&self) -> bool {
        let Some(login) = self.login() else { return true };
        let other = self.other.read();
        match &*self.viewer.read() {
            Viewer::System => true,
            Viewer::Role { access, .. } => access.rights(other.as_deref().unwrap_or(login)).is_superuser(),
        }
    }

    /// The users that the current statement's functions return.
    pub(crate) fn asker(&self) -> SessionUsers {
        SessionUsers {
            current_user: self.viewer.read().name().map(Arc::from),
            session_user: self.login().map(Arc::from),
        }
    }

    /// Whether this is the system's session, for which access need not be loaded.
    pub(crate) fn is_system(&self) -> bool {
        self.login.get().is_none()
    }
}
