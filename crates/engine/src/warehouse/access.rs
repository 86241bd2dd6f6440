//! As whom a statement reads and changes what the warehouse holds, and what that may do.
//!
//! What is read is checked where it is scanned, by the columns that the scan needs; what a view reads, by the
//! rights of the view's owner. What is changed is checked before the change is planned.

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

use crate::planning::stored_sql::Asker;

/// As whom something is read or changed.
#[derive(Debug, Clone, Default)]
pub enum Viewer {
    /// Whoever has the warehouse itself open: nothing is forbidden.
    #[default]
    System,
    /// A role, with what was known of roles when the statement began.
    Role { name: Arc<str>, access: Arc<Access> },
}

impl Viewer {
    /// The role's name; `None` of the system.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::System => None,
            Self::Role { name, .. } => Some(name),
        }
    }

    /// Whether it may everything.
    pub fn is_superuser(&self) -> bool {
        self.rights().is_none_or(|rights| rights.is_superuser())
    }

    /// Whether it has the privileges of another role, as a member does.
    pub fn has_privileges_of(&self, role: &str) -> bool {
        match self {
            Self::System => true,
            Self::Role { name, access } => {
                **name == *role || self.is_superuser() || access.is_member(name, role)
            }
        }
    }

    pub(crate) fn actor(&self) -> Actor<'_> {
        match self {
            Self::System => Actor::System,
            Self::Role { name, .. } => Actor::Role(name),
        }
    }

    /// `None`: everything.
    pub(crate) fn rights(&self) -> Option<Rights<'_>> {
        match self {
            Self::System => None,
            Self::Role { name, access } => Some(access.rights(name)),
        }
    }

    /// As whom a view reads: its owner; what has none is the superusers'.
    pub(crate) fn owner_of(&self, view: ObjectId) -> Self {
        match self {
            Self::System => Self::System,
            // Its maker is who asks: nobody else sees it yet.
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

    /// Errors: it has not the privilege on the whole of `object` (42501).
    pub(crate) fn check(&self, object: Object, privilege: Privilege, state: &State) -> Result<()> {
        match self.may(object, privilege) {
            true => Ok(()),
            false => Err(denied(&object.describe(state))),
        }
    }

    /// Errors: it neither owns `object` nor has the privileges of who does (42501).
    pub(crate) fn check_owner(&self, object: Object, state: &State) -> Result<()> {
        match self.owns(object) {
            true => Ok(()),
            false => {
                let message = format!("must be owner of {}", object.describe(state));
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message).into_datafusion())
            }
        }
    }

    /// Errors: it is no superuser (42501).
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

    /// Whether two objects are of one role: what the transaction has made is the session's, and what has no
    /// owner the superusers'.
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

    /// On which columns it has a privilege.
    pub(crate) fn columns(&self, object: Object, privilege: Privilege) -> Columns {
        self.rights().map_or(Columns::All, |rights| rights.columns(object, privilege))
    }

    /// Whether it may know that a table or view is there and what it is like inside.
    pub(crate) fn may_look_into(&self, object: Object) -> bool {
        self.rights().is_none_or(|rights| rights.may_anything(object))
    }

    /// The predicates of which one has to be true for a row to be seen; `None`: all rows are.
    pub(crate) fn row_filters(&self, table: ObjectId) -> Option<Vec<String>> {
        match self.rights()?.row_filter(table) {
            RowFilter::All => None,
            RowFilter::AnyOf(predicates) => Some(predicates.into_iter().map(str::to_string).collect()),
        }
    }
}

/// What whoever has not the privilege is told.
pub(crate) fn denied(what: &str) -> DataFusionError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {what}")).into_datafusion()
}

/// Who a session is for, and as whom its statements run.
#[derive(Debug, Default)]
pub(crate) struct SessionRole {
    /// Who has logged in. Not set: the session is the system's.
    login: OnceLock<String>,
    /// By SET ROLE.
    other: RwLock<Option<String>>,
    /// While a transaction is open: whom to become at its end.
    ends: RwLock<Option<Ends>>,
    viewer: RwLock<Viewer>,
}

/// As whom a session goes on after a transaction; `None`: as who has logged in.
#[derive(Debug, Clone)]
struct Ends {
    rolled_back: Option<String>,
    committed: Option<String>,
}

impl SessionRole {
    /// To be called once.
    pub(crate) fn log_in(&self, role: &str) {
        assert!(self.login.set(role.to_string()).is_ok(), "a session begins once");
        *self.viewer.write() = Viewer::Role { name: role.into(), access: Arc::default() };
    }

    /// Who has logged in.
    pub(crate) fn login(&self) -> Option<&str> {
        self.login.get().map(String::as_str)
    }

    /// SET ROLE. `None`: NONE. `is_local`: until the transaction ends; outside of one that is not at all.
    ///
    /// Errors: there is no such role (22023), or it is not to be had (42501).
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

    /// To be called when a transaction has been opened.
    pub(crate) fn begin(&self) {
        let present = self.other.read().clone();
        self.ends.write().get_or_insert_with(|| Ends { rolled_back: present.clone(), committed: present });
    }

    /// To be called when a transaction has ended.
    pub(crate) fn end(&self, is_committed: bool) {
        if let Some(ends) = self.ends.write().take() {
            *self.other.write() = if is_committed { ends.committed } else { ends.rolled_back };
        }
    }

    /// To be called when a statement begins, with what is known of roles by then.
    pub(crate) fn look(&self, access: Arc<Access>) {
        let Some(login) = self.login.get() else { return };
        let name = self.other.read().as_deref().unwrap_or(login).into();
        *self.viewer.write() = Viewer::Role { name, access };
    }

    /// As whom the present statement runs.
    pub(crate) fn viewer(&self) -> Viewer {
        self.viewer.read().clone()
    }

    /// Whether coming statements may do everything, by what the present one knows of roles.
    pub(crate) fn is_superuser_from_now_on(&self) -> bool {
        let Some(login) = self.login() else { return true };
        let other = self.other.read();
        match &*self.viewer.read() {
            Viewer::System => true,
            Viewer::Role { access, .. } => access.rights(other.as_deref().unwrap_or(login)).is_superuser(),
        }
    }

    /// Who asks in the present statement.
    pub(crate) fn asker(&self) -> Asker {
        Asker {
            current_user: self.viewer.read().name().map(Arc::from),
            session_user: self.login().map(Arc::from),
        }
    }

    /// Whether access is to be looked up at all.
    pub(crate) fn is_system(&self) -> bool {
        self.login.get().is_none()
    }
}
