//! Effective rights of a role, computed from an [`Access`] without I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, DEFAULT_QUEUE, Grant, Object, PUBLIC, Privilege, Queue, Role, RoleId, WHOLE};
use crate::model::ids::{ColumnId, ObjectId};

/// The rights of one role. A role that does not exist has none; without any roles, everyone has all.
#[derive(Debug, Clone)]
pub struct Rights<'a> {
    access: &'a Access,
    standing: Standing,
}

/// The columns of a table or view on which a role has a privilege.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Columns {
    All,
    /// At least one.
    Some(BTreeSet<ColumnId>),
    None,
}

impl Columns {
    pub fn has(&self, column: ColumnId) -> bool {
        match self {
            Self::All => true,
            Self::Some(columns) => columns.contains(&column),
            Self::None => false,
        }
    }
}

/// The rows of a table that a role sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFilter<'a> {
    All,
    /// Rows for which at least one of these predicates is true; without any, no row.
    AnyOf(Vec<&'a str>),
}

/// A role with the roles whose privileges it inherits.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// `None`: no role, as for users with full access.
    pub role: Option<RoleId>,
    pub is_superuser: bool,
    pub can_create_roles: bool,
    /// Itself, and the roles it inherits from.
    pub used: BTreeSet<RoleId>,
}

impl Access {
    /// Whether there is no role, so that everyone has full access.
    pub fn is_open(&self) -> bool {
        self.roles.is_empty()
    }

    /// The role of this exact name.
    pub fn role(&self, name: &str) -> Option<(RoleId, &Role)> {
        self.roles.iter().find(|(_, role)| role.name == name).map(|(id, role)| (*id, role))
    }

    /// The rights of a role.
    pub fn rights(&self, role: &str) -> Rights<'_> {
        let standing = match self.role(role) {
            _ if self.is_open() => Standing { is_superuser: true, ..Standing::default() },
            Some((id, _)) => self.standing(id),
            None => Standing::default(),
        };
        Rights { access: self, standing }
    }

    /// Whether a role has full access.
    pub fn is_superuser(&self, role: &str) -> bool {
        self.rights(role).is_superuser()
    }

    /// Whether a role may open sessions.
    pub fn may_connect(&self, role: &str) -> bool {
        self.rights(role).may(Object::Warehouse, Privilege::Connect)
    }

    /// The queue of a role's statements: its own, or `pg_default` if that exists.
    pub fn queue(&self, role: &str) -> Option<&Queue> {
        let own = self.role(role).and_then(|(_, role)| self.queues.get(&role.queue?));
        own.or_else(|| self.queues.values().find(|queue| queue.name == DEFAULT_QUEUE))
    }

    /// The name of an object's owner.
    pub fn owner(&self, object: Object) -> Option<&str> {
        let owner = self.owners.get(&object.id())?;
        self.roles.get(owner).map(|role| role.name.as_str())
    }

    /// Whether a role is a direct or indirect member of another, for `+role` in hba rules. Every role is a
    /// member of itself.
    pub fn is_member(&self, role: &str, of: &str) -> bool {
        let (Some((role, _)), Some((of, _))) = (self.role(role), self.role(of)) else { return false };
        self.reach(role, |_| true).contains(&of)
    }

    pub(super) fn standing(&self, id: RoleId) -> Standing {
        let Some(role) = self.roles.get(&id) else { return Standing::default() };
        let used = self.reach(id, |member| self.roles.get(&member).is_some_and(|member| member.inherits));
        Standing {
            role: Some(id),
            is_superuser: role.is_superuser,
            can_create_roles: role.can_create_roles || role.is_superuser,
            used,
        }
    }

    /// A role and the roles that it is a member of, transitively through those for which `goes_on` is true.
    pub(super) fn reach(&self, from: RoleId, goes_on: impl Fn(RoleId) -> bool) -> BTreeSet<RoleId> {
        let mut of: BTreeMap<RoleId, Vec<RoleId>> = BTreeMap::new();
        for ((role, member), membership) in &self.memberships {
            if membership.may_use {
                of.entry(*member).or_default().push(*role);
            }
        }
        let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(member) = open.pop() {
            for role in of.get(&member).into_iter().flatten().filter(|_| goes_on(member)) {
                if reached.insert(*role) {
                    open.push(*role);
                }
            }
        }
        reached
    }

    /// Grants on an object and its columns.
    pub fn grants_on(&self, object: ObjectId) -> impl Iterator<Item = (&Grant, bool)> {
        let (least, privilege) = (i64::MIN, Privilege::Select);
        let first = Grant { object, column: least, privilege, grantee: least, grantor: least };
        self.grants
            .range(first..)
            .take_while(move |(grant, _)| grant.object == object)
            .map(|(grant, option)| (grant, *option))
    }
}

impl<'a> Rights<'a> {
    pub(super) fn new(access: &'a Access, standing: Standing) -> Self {
        Self { access, standing }
    }

    pub fn is_superuser(&self) -> bool {
        self.standing.is_superuser
    }

    pub fn may_create_roles(&self) -> bool {
        self.standing.is_superuser || self.standing.can_create_roles
    }

    /// Whether it has all rights on an object: as owner, by an inherited role, or as a superuser.
    pub fn owns(&self, object: Object) -> bool {
        let id = object.id();
        self.standing.is_superuser
            || id < 0 && object != Object::Warehouse
            || self.access.owners.get(&id).is_some_and(|owner| self.standing.used.contains(owner))
    }

    /// Whether it has a privilege on an object, all columns included.
    pub fn may(&self, object: Object, privilege: Privilege) -> bool {
        object.privileges().contains(&privilege)
            && (self.owns(object)
                || self.matching_grants(object.id(), privilege).any(|grant| grant.column == WHOLE))
    }

    /// The columns on which it has a privilege. `All` means a privilege on the table itself.
    pub fn columns(&self, object: Object, privilege: Privilege) -> Columns {
        if self.may(object, privilege) {
            return Columns::All;
        }
        let columns: BTreeSet<ColumnId> =
            self.matching_grants(object.id(), privilege).map(|grant| grant.column).collect();
        if columns.is_empty() { Columns::None } else { Columns::Some(columns) }
    }

    /// Whether it has any privilege on an object or a column of it.
    pub fn may_anything(&self, object: Object) -> bool {
        self.owns(object)
            || object.privileges().iter().any(|one| self.matching_grants(object.id(), *one).next().is_some())
    }

    fn matching_grants(&self, object: ObjectId, privilege: Privilege) -> impl Iterator<Item = &'a Grant> {
        let is_own = move |grant: &Grant| {
            let public = grant.grantee == PUBLIC && self.standing.role.is_some();
            grant.privilege == privilege && (public || self.standing.used.contains(&grant.grantee))
        };
        self.access.grants_on(object).map(|(grant, _)| grant).filter(move |grant| is_own(grant))
    }

    /// The row filter of a table for this role.
    pub fn row_filter(&self, table: ObjectId) -> RowFilter<'a> {
        let mut filters =
            self.access.row_filters.range((table, RoleId::MIN)..=(table, RoleId::MAX)).peekable();
        if filters.peek().is_none() || self.owns(Object::Table(table)) {
            return RowFilter::All;
        }
        let is_own = |role: RoleId| {
            role == PUBLIC && self.standing.role.is_some() || self.standing.used.contains(&role)
        };
        RowFilter::AnyOf(
            filters.filter(|((_, role), _)| is_own(*role)).map(|(_, filter)| filter.as_str()).collect(),
        )
    }

    /// Whether it may SET ROLE to another.
    pub fn may_become(&self, role: &str) -> bool {
        let Some((target, _)) = self.access.role(role) else { return false };
        self.is_superuser()
            || self.standing.role.is_some_and(|own| self.access.reach(own, |_| true).contains(&target))
    }

    /// Whether it may grant a role to others.
    pub fn may_administer(&self, role: &str) -> bool {
        let Some((target, of)) = self.access.role(role) else { return false };
        self.is_superuser() || !of.is_superuser && self.administers(target)
    }

    pub(super) fn administers(&self, target: RoleId) -> bool {
        self.standing.used.iter().any(|own| {
            self.access.memberships.get(&(target, *own)).is_some_and(|membership| membership.may_administer)
        })
    }

    /// The grantor for a privilege: `BY_OWNER`, or a role with the grant option.
    pub(super) fn grantor(&self, object: Object, column: ColumnId, privilege: Privilege) -> Option<RoleId> {
        if self.owns(object) {
            return Some(crate::access::BY_OWNER);
        }
        self.access
            .grants_on(object.id())
            .find(|(grant, option)| {
                *option
                    && grant.privilege == privilege
                    && (grant.column == WHOLE || grant.column == column)
                    && self.standing.used.contains(&grant.grantee)
            })
            .map(|(grant, _)| grant.grantee)
    }
}
