//! Rules of access changes, applied to an [`Access`] in memory.
//!
//! Errors: a violated rule is `Error::Refused`; the partly changed value must then be discarded.

use std::collections::{BTreeMap, BTreeSet};

use harrier_error::SqlState;

use super::{
    Access, Actor, BY_OWNER, Grant, Grantee, Membership, Object, PUBLIC, Priority, Privilege, Privileges,
    Queue, QueueId, QueueOptions, Rights, Role, RoleId, RoleOptions, WHOLE, refusal, refuse,
};
use crate::access::rights::Standing;
use crate::error::Result;
use crate::model::ids::{ColumnId, ObjectId};
use crate::model::state::{Column, State};
use crate::model::values;

/// Maximum number of objects listed in the message about a role that cannot be dropped.
const DEPENDENTS_MAX: usize = 100;

/// An object, and the privileges on it or on its columns to grant or revoke.
type Target = (Object, Vec<(Privilege, ColumnId)>);

/// An `Access` being changed.
pub(crate) struct Change<'a> {
    pub access: Access,
    actor: Standing,
    /// The name of an actor with full access because there are no roles.
    newcomer: Option<&'a str>,
    /// For names and existence of objects.
    state: &'a State,
}

impl<'a> Change<'a> {
    pub fn new(access: Access, actor: Actor<'a>, state: &'a State) -> Result<Self> {
        let everything = Standing { is_superuser: true, can_create_roles: true, ..Standing::default() };
        let (standing, newcomer) = match actor {
            Actor::System => (everything, None),
            Actor::Role(name) if access.is_open() => (everything, Some(name)),
            Actor::Role(name) => match access.role(name) {
                Some((id, _)) => (access.standing(id), None),
                None => {
                    return refuse(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"));
                }
            },
        };
        Ok(Self { access, actor: standing, newcomer, state })
    }

    fn rights(&self) -> Rights<'_> {
        Rights::new(&self.access, self.actor.clone())
    }

    fn role_id(&self, role: &str) -> Result<RoleId> {
        match self.access.role(role) {
            Some((id, _)) => Ok(id),
            None => refuse(SqlState::UNDEFINED_OBJECT, format!("role \"{role}\" does not exist")),
        }
    }

    fn role_mut(&mut self, role: &str) -> Result<(RoleId, &mut Role)> {
        let id = self.role_id(role)?;
        match self.access.roles.get_mut(&id) {
            Some(role) => Ok((id, role)),
            None => refuse(SqlState::UNDEFINED_OBJECT, format!("role \"{role}\" does not exist")),
        }
    }

    fn grantee(&self, grantee: &Grantee) -> Result<RoleId> {
        match grantee {
            Grantee::Public => Ok(PUBLIC),
            Grantee::Role(name) => self.role_id(name),
        }
    }

    fn next(&mut self) -> i64 {
        self.access.next += 1;
        self.access.next - 1
    }

    // Roles.

    pub fn create_role(&mut self, name: &str, options: &RoleOptions) -> Result<()> {
        if !self.actor.can_create_roles {
            return Err(refusal(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to create role")
                .with_detail("Only roles with the CREATEROLE attribute may create roles."));
        }
        if let Some(own) = self.newcomer.take()
            && !(options.superuser == Some(true) && options.login == Some(true))
        {
            check_name(own)?;
            let id = self.next();
            let role = Role { is_superuser: true, can_login: true, can_create_roles: true, ..new_role(own) };
            self.access.roles.insert(id, role);
            if own == name {
                // The actor itself, which keeps its rights.
                let kept = RoleOptions { superuser: Some(true), login: Some(true), ..options.clone() };
                return self.configure(id, &kept);
            }
        }
        self.check_free(name)?;
        let id = self.next();
        self.access.roles.insert(id, new_role(name));
        if let Some(actor) = self.actor.role.filter(|_| !self.actor.is_superuser) {
            let membership = Membership { may_use: false, may_administer: true };
            self.access.memberships.insert((id, actor), membership);
        }
        self.configure(id, options)?;
        for role in &options.in_roles {
            self.grant_role(role, name, false)?;
        }
        for (members, with_admin_option) in [(&options.members, false), (&options.administrators, true)] {
            for member in members {
                self.join(name, member, with_admin_option)?;
            }
        }
        Ok(())
    }

    pub fn alter_role(&mut self, name: &str, options: &RoleOptions) -> Result<()> {
        let id = self.role_id(name)?;
        let own_password = RoleOptions { verifier: options.verifier.clone(), ..RoleOptions::default() };
        if !(self.actor.role == Some(id) && *options == own_password) {
            self.may_alter(id, "alter")?;
        }
        if self.actor.role == Some(id) && options.superuser == Some(false) && self.is_last_superuser(id) {
            return Err(refusal(SqlState::OBJECT_IN_USE, "the last superuser cannot stop being one")
                .with_hint("make another role a superuser first"));
        }
        self.configure(id, options)
    }

    pub fn set_role_setting(&mut self, role: &str, name: &str, value: Option<&str>) -> Result<()> {
        let id = self.may_set(role)?;
        let key = (id, name.to_string());
        match value {
            Some(value) => drop(self.access.settings.insert(key, value.to_string())),
            None => drop(self.access.settings.remove(&key)),
        }
        Ok(())
    }

    pub fn reset_role_settings(&mut self, role: &str) -> Result<()> {
        let id = self.may_set(role)?;
        self.access.settings.retain(|(role, _), _| *role != id);
        Ok(())
    }

    /// Every role may set its own session defaults.
    fn may_set(&self, role: &str) -> Result<RoleId> {
        let id = self.role_id(role)?;
        if self.actor.role != Some(id) {
            self.may_alter(id, "alter")?;
        }
        Ok(id)
    }

    /// Whether the actor may alter or drop a role.
    fn may_alter(&self, id: RoleId, verb: &str) -> Result<()> {
        let role = &self.access.roles[&id];
        let denied =
            || refusal(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {verb} role"));
        if self.actor.is_superuser {
            return Ok(());
        }
        if role.is_superuser {
            let detail = format!(
                "Only roles with the SUPERUSER attribute may {verb} roles with the SUPERUSER attribute."
            );
            return Err(denied().with_detail(detail));
        }
        if self.actor.can_create_roles && self.rights().administers(id) {
            return Ok(());
        }
        Err(denied().with_detail(format!(
            "Only roles with the CREATEROLE attribute and the ADMIN option on role \"{}\" may {verb} this role.",
            role.name
        )))
    }

    fn is_last_superuser(&self, id: RoleId) -> bool {
        self.access.roles.iter().all(|(other, role)| *other == id || !role.is_superuser)
    }

    fn configure(&mut self, id: RoleId, options: &RoleOptions) -> Result<()> {
        let is_superuser = self.actor.is_superuser;
        let denied = |attribute: &str| {
            let detail = format!("Only roles with the {attribute} attribute may change it.");
            Err(refusal(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to change the {attribute} attribute"),
            )
            .with_detail(detail))
        };
        if options.superuser.is_some() && !is_superuser {
            let is_same = options.superuser == Some(self.access.roles[&id].is_superuser);
            if !is_same {
                return denied("SUPERUSER");
            }
        }
        let queue = match &options.queue {
            Some(_) if !is_superuser => {
                return refuse(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "must be superuser to assign resource queues",
                );
            }
            Some(Some(name)) => Some(Some(self.queue_id(name)?)),
            other => other.as_ref().map(|_| None),
        };
        let valid_until = match options.valid_until.as_deref().map(str::trim) {
            Some("infinity") => Some(None),
            Some(time) => match values::parse_time(time) {
                Some(time) => Some(Some(time)),
                None => {
                    return refuse(
                        SqlState::INVALID_DATETIME_FORMAT,
                        format!("invalid input syntax for type timestamp with time zone: \"{time}\""),
                    );
                }
            },
            None => None,
        };
        let Some(role) = self.access.roles.get_mut(&id) else { return Ok(()) };
        role.is_superuser = options.superuser.unwrap_or(role.is_superuser);
        role.can_login = options.login.unwrap_or(role.can_login);
        role.can_create_roles = options.create_roles.unwrap_or(role.can_create_roles);
        role.inherits = options.inherits.unwrap_or(role.inherits);
        role.connection_limit = options.connection_limit.unwrap_or(role.connection_limit);
        role.valid_until = valid_until.unwrap_or(role.valid_until);
        role.queue = queue.unwrap_or(role.queue);
        if let Some(verifier) = &options.verifier {
            role.verifier.clone_from(verifier);
        }
        Ok(())
    }

    pub fn rename_role(&mut self, name: &str, to: &str) -> Result<()> {
        let id = self.role_id(name)?;
        self.may_alter(id, "rename")?;
        self.check_free(to)?;
        if self.actor.role == Some(id) {
            return refuse(SqlState::FEATURE_NOT_SUPPORTED, "session user cannot be renamed");
        }
        self.role_mut(name)?.1.name = to.to_string();
        Ok(())
    }

    fn check_free(&self, name: &str) -> Result<()> {
        check_name(name)?;
        match self.access.role(name) {
            Some(_) => refuse(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists")),
            None => Ok(()),
        }
    }

    pub fn drop_role(&mut self, name: &str) -> Result<()> {
        let id = self.role_id(name)?;
        self.may_alter(id, "drop")?;
        if self.actor.role == Some(id) {
            return refuse(SqlState::OBJECT_IN_USE, "current user cannot be dropped");
        }
        let dependents = self.dependents(id);
        if !dependents.is_empty() {
            let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            let mut detail = dependents[..dependents.len().min(DEPENDENTS_MAX)].join("\n");
            if dependents.len() > DEPENDENTS_MAX {
                detail += &format!("\nand {} other objects", dependents.len() - DEPENDENTS_MAX);
            }
            return Err(refusal(SqlState::DEPENDENT_OBJECTS, message).with_detail(detail));
        }
        self.access.roles.remove(&id);
        self.access.memberships.retain(|(role, member), _| *role != id && *member != id);
        // The remaining entries are of objects that only old snapshots contain.
        self.access.owners.retain(|_, owner| *owner != id);
        self.access.grants.retain(|grant, _| grant.grantee != id && grant.grantor != id);
        self.access.row_filters.retain(|(_, role), _| *role != id);
        self.access.settings.retain(|(role, _), _| *role != id);
        Ok(())
    }

    /// Descriptions of existing objects that depend on the role.
    fn dependents(&self, id: RoleId) -> Vec<String> {
        let describe =
            |object: &ObjectId| Object::of_id(self.state, *object).map(|one| one.describe(self.state));
        let access = &self.access;
        let owned = access.owners.iter().filter(|(_, owner)| **owner == id).map(|(object, _)| object);
        let granted: BTreeSet<&ObjectId> = access
            .grants
            .keys()
            .filter(|grant| grant.grantee == id || grant.grantor == id)
            .map(|grant| &grant.object)
            .collect();
        let filtered = access.row_filters.keys().filter(|(_, role)| *role == id).map(|(table, _)| table);
        let owned = owned.filter_map(describe).map(|object| format!("owner of {object}"));
        let granted =
            granted.into_iter().filter_map(describe).map(|object| format!("privileges for {object}"));
        let filtered =
            filtered.filter_map(describe).map(|object| format!("target of a row filter on {object}"));
        owned.chain(granted).chain(filtered).collect()
    }

    pub fn grant_role(&mut self, role: &str, member: &str, with_admin_option: bool) -> Result<()> {
        let (id, _) = (self.role_id(role)?, self.role_id(member)?);
        self.may_grant_role(id, "grant")?;
        self.join(role, member, with_admin_option)
    }

    fn may_grant_role(&self, id: RoleId, verb: &str) -> Result<()> {
        let role = &self.access.roles[&id];
        let denied = || {
            refusal(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to {verb} role \"{}\"", role.name),
            )
        };
        if self.actor.is_superuser {
            return Ok(());
        }
        if role.is_superuser {
            return Err(denied().with_detail(format!(
                "Only roles with the SUPERUSER attribute may {verb} roles with the SUPERUSER attribute."
            )));
        }
        if self.rights().administers(id) {
            return Ok(());
        }
        Err(denied().with_detail(format!(
            "Only roles with the ADMIN option on role \"{}\" may {verb} this role.",
            role.name
        )))
    }

    /// Adds a member to a role, unless that makes the role a member of itself.
    fn join(&mut self, role: &str, member: &str, with_admin_option: bool) -> Result<()> {
        let (id, member_id) = (self.role_id(role)?, self.role_id(member)?);
        if self.access.reach_all(id).contains(&member_id) {
            return refuse(
                SqlState::INVALID_GRANT_OPERATION,
                format!("role \"{role}\" is a member of role \"{member}\""),
            );
        }
        let membership = self.access.memberships.entry((id, member_id)).or_default();
        membership.may_use = true;
        membership.may_administer |= with_admin_option;
        Ok(())
    }

    pub fn revoke_role(
        &mut self,
        role: &str,
        member: &str,
        admin_option_only: bool,
    ) -> Result<Option<String>> {
        let (id, member_id) = (self.role_id(role)?, self.role_id(member)?);
        // A member may revoke its own membership.
        if admin_option_only || self.actor.role != Some(member_id) {
            self.may_grant_role(id, "revoke")?;
        }
        let key = (id, member_id);
        match self.access.memberships.get_mut(&key) {
            None => Ok(Some(format!("role \"{member}\" has not been granted membership in role \"{role}\""))),
            Some(membership) if admin_option_only && membership.may_use => {
                membership.may_administer = false;
                Ok(None)
            }
            Some(_) => {
                self.access.memberships.remove(&key);
                Ok(None)
            }
        }
    }

    // Privileges.

    pub fn grant(&mut self, privileges: &Privileges, with_grant_option: bool) -> Result<Vec<String>> {
        let targets = self.targets(privileges)?;
        let grantees: Vec<RoleId> =
            privileges.grantees.iter().map(|grantee| self.grantee(grantee)).collect::<Result<_>>()?;
        if with_grant_option && grantees.contains(&PUBLIC) {
            return refuse(SqlState::INVALID_GRANT_OPERATION, "grant options can only be granted to roles");
        }
        let mut warnings = Vec::new();
        for (object, targets) in &targets {
            let mut granted = 0;
            for (privilege, column) in targets {
                let Some(grantor) = self.rights().grantor(*object, *column, *privilege) else { continue };
                granted += 1;
                for grantee in &grantees {
                    // An actor that grants by another's grant option needs no grant to itself.
                    if *grantee == grantor && grantor != BY_OWNER {
                        continue;
                    }
                    let grant = Grant {
                        object: object.id(),
                        column: *column,
                        privilege: *privilege,
                        grantee: *grantee,
                        grantor,
                    };
                    *self.access.grants.entry(grant).or_default() |= with_grant_option;
                }
            }
            warnings.extend(self.incomplete(*object, granted, targets.len(), "granted")?);
        }
        Ok(warnings)
    }

    /// The warning if some or all privileges were skipped; an error if the actor has no privilege on the
    /// object at all.
    fn incomplete(&self, object: Object, done: usize, asked: usize, verb: &str) -> Result<Option<String>> {
        let name = object.describe(self.state);
        match done {
            0 if !self.rights().may_anything(object) => {
                refuse(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {name}"))
            }
            0 => Ok(Some(format!("no privileges were {verb} for {name}"))),
            _ if done < asked => Ok(Some(format!("not all privileges were {verb} for {name}"))),
            _ => Ok(None),
        }
    }

    /// Expands the privileges to grant or revoke, after checking that all of them exist.
    fn targets(&self, privileges: &Privileges) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for object in &privileges.objects {
            if *object != Object::Warehouse && Object::of_id(self.state, object.id()) != Some(*object) {
                return refuse(SqlState::UNDEFINED_OBJECT, format!("{} does not exist", object.kind()));
            }
            let mut ones = Vec::new();
            for (privilege, columns) in &privileges.privileges {
                let (name, kind) = (privilege.name(), object.kind());
                if !object.privileges().contains(privilege) {
                    return refuse(
                        SqlState::INVALID_GRANT_OPERATION,
                        format!("invalid privilege type {name} for {kind}"),
                    );
                }
                if columns.is_empty() {
                    ones.push((*privilege, WHOLE));
                    continue;
                }
                let has_columns = matches!(object, Object::Table(_) | Object::View(_));
                if !has_columns || !Privilege::of_columns().contains(privilege) {
                    return refuse(
                        SqlState::INVALID_GRANT_OPERATION,
                        format!("invalid privilege type {name} for column"),
                    );
                }
                for column in columns {
                    self.check_column(*object, *column)?;
                    ones.push((*privilege, *column));
                }
            }
            targets.push((*object, ones));
        }
        Ok(targets)
    }

    fn check_column(&self, object: Object, column: ColumnId) -> Result<()> {
        let exists = match object {
            Object::Table(id) => {
                let is_it = |one: &Column| one.id == column;
                self.state.tables.get(&id).is_some_and(|table| table.columns.iter().any(is_it))
            }
            _ => column > 0,
        };
        match exists {
            true => Ok(()),
            false => refuse(
                SqlState::UNDEFINED_COLUMN,
                format!("{} has no such column", object.describe(self.state)),
            ),
        }
    }

    pub fn revoke(
        &mut self,
        privileges: &Privileges,
        grant_option_only: bool,
        cascade: bool,
    ) -> Result<Vec<String>> {
        let targets = self.targets(privileges)?;
        let grantees: Vec<RoleId> =
            privileges.grantees.iter().map(|grantee| self.grantee(grantee)).collect::<Result<_>>()?;
        let mut warnings = Vec::new();
        for (object, targets) in &targets {
            let owns = self.rights().owns(*object);
            let mut revocable = 0;
            let mut matching = Vec::new();
            for (privilege, column) in targets {
                if !owns && self.rights().grantor(*object, *column, *privilege).is_none() {
                    continue;
                }
                revocable += 1;
                let is_meant = |grant: &Grant| {
                    grant.privilege == *privilege
                        && grantees.contains(&grant.grantee)
                        // Revoking a privilege on the whole object also revokes it on single columns.
                        && (*column == WHOLE || grant.column == *column)
                        && (owns || self.actor.used.contains(&grant.grantor))
                };
                let grants = self.access.grants_on(object.id()).map(|(grant, _)| *grant);
                matching.extend(grants.filter(is_meant));
            }
            for grant in matching {
                match grant_option_only {
                    true => self.access.grants.insert(grant, false),
                    false => self.access.grants.remove(&grant),
                };
            }
            let dependents = self.access.dangling_grants(object.id());
            if !dependents.is_empty() && !cascade {
                return Err(refusal(SqlState::DEPENDENT_OBJECTS, "dependent privileges exist")
                    .with_hint("Use CASCADE to revoke them too."));
            }
            self.access.grants.retain(|grant, _| !dependents.contains(grant));
            warnings.extend(self.incomplete(*object, revocable, targets.len(), "revoked")?);
        }
        Ok(warnings)
    }

    pub fn revoke_all(&mut self, role: &str) -> Result<()> {
        let id = self.role_id(role)?;
        if !self.actor.is_superuser && !self.actor.used.contains(&id) {
            return Err(refusal(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied to drop objects")
                .with_detail(format!(
                    "Only roles with privileges of role \"{role}\" may drop objects owned by it."
                )));
        }
        self.access.grants.retain(|grant, _| grant.grantee != id && grant.grantor != id);
        let objects: BTreeSet<ObjectId> = self.access.grants.keys().map(|grant| grant.object).collect();
        for object in objects {
            let dependents = self.access.dangling_grants(object);
            self.access.grants.retain(|grant, _| !dependents.contains(grant));
        }
        Ok(())
    }

    // Owners and filters.

    pub fn set_owner(&mut self, object: Object, owner: &str) -> Result<()> {
        let id = self.role_id(owner)?;
        if Object::of_id(self.state, object.id()) != Some(object) {
            return refuse(SqlState::UNDEFINED_OBJECT, format!("{} does not exist", object.kind()));
        }
        self.must_own(object)?;
        self.must_become(owner)?;
        self.access.owners.insert(object.id(), id);
        Ok(())
    }

    fn must_own(&self, object: Object) -> Result<()> {
        match self.rights().owns(object) {
            true => Ok(()),
            false => refuse(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be owner of {}", object.describe(self.state)),
            ),
        }
    }

    fn must_become(&self, role: &str) -> Result<()> {
        match self.actor.is_superuser || self.rights().may_become(role) {
            true => Ok(()),
            false => refuse(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be able to SET ROLE \"{role}\"")),
        }
    }

    pub fn reassign_owned(&mut self, from: &str, to: &str) -> Result<()> {
        let (from_id, to_id) = (self.role_id(from)?, self.role_id(to)?);
        for (role, id) in [(from, from_id), (to, to_id)] {
            if !self.actor.is_superuser && !self.actor.used.contains(&id) {
                let detail = format!(
                    "Only roles with privileges of role \"{role}\" may reassign objects from or to it."
                );
                return Err(refusal(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "permission denied to reassign objects",
                )
                .with_detail(detail));
            }
        }
        for owner in self.access.owners.values_mut().filter(|owner| **owner == from_id) {
            *owner = to_id;
        }
        Ok(())
    }

    pub fn put_row_filter(&mut self, table: ObjectId, role: &Grantee, predicate: &str) -> Result<()> {
        let role = self.grantee(role)?;
        self.check_table(table)?;
        if predicate.trim().is_empty() {
            return refuse(SqlState::SYNTAX_ERROR, "the predicate of a row filter is empty");
        }
        self.access.row_filters.insert((table, role), predicate.to_string());
        Ok(())
    }

    pub fn drop_row_filter(&mut self, table: ObjectId, role: &Grantee) -> Result<()> {
        let id = self.grantee(role)?;
        self.check_table(table)?;
        if self.access.row_filters.remove(&(table, id)).is_none() {
            let whom = match role {
                Grantee::Public => "public".to_string(),
                Grantee::Role(name) => format!("role \"{name}\""),
            };
            let table = Object::Table(table).describe(self.state);
            return refuse(SqlState::UNDEFINED_OBJECT, format!("{table} has no row filter for {whom}"));
        }
        Ok(())
    }

    fn check_table(&self, table: ObjectId) -> Result<()> {
        if !self.state.tables.contains_key(&table) {
            return refuse(
                SqlState::UNDEFINED_TABLE,
                "row filters are for tables, and there is no such table",
            );
        }
        self.must_own(Object::Table(table))
    }

    // Queues.

    fn must_be_superuser(&self, verb: &str) -> Result<()> {
        match self.actor.is_superuser {
            true => Ok(()),
            false => refuse(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("must be superuser to {verb} resource queues"),
            ),
        }
    }

    fn queue_id(&self, name: &str) -> Result<QueueId> {
        let mut queues = self.access.queues.iter();
        match queues.find(|(_, queue)| queue.name == name) {
            Some((id, _)) => Ok(*id),
            None => refuse(SqlState::UNDEFINED_OBJECT, format!("resource queue \"{name}\" does not exist")),
        }
    }

    pub fn create_queue(&mut self, name: &str, options: &QueueOptions) -> Result<()> {
        self.must_be_superuser("create")?;
        if name.is_empty() || name == "none" {
            return refuse(SqlState::RESERVED_NAME, format!("resource queue name \"{name}\" is reserved"));
        }
        if self.queue_id(name).is_ok() {
            return refuse(SqlState::DUPLICATE_OBJECT, format!("resource queue \"{name}\" already exists"));
        }
        let priority = Priority::default();
        let (active_statements, memory_limit, max_cost) = (None, None, None);
        let blank = Queue { name: name.to_string(), active_statements, memory_limit, priority, max_cost };
        let id = self.next();
        self.access.queues.insert(id, with_limits(blank, options)?);
        Ok(())
    }

    pub fn alter_queue(&mut self, name: &str, options: &QueueOptions) -> Result<()> {
        self.must_be_superuser("alter")?;
        let id = self.queue_id(name)?;
        let altered = with_limits(self.access.queues[&id].clone(), options)?;
        self.access.queues.insert(id, altered);
        Ok(())
    }

    pub fn drop_queue(&mut self, name: &str) -> Result<()> {
        self.must_be_superuser("drop")?;
        let id = self.queue_id(name)?;
        let roles = self.access.roles.values().filter(|role| role.queue == Some(id));
        let users: Vec<String> = roles.map(|role| format!("role {}", role.name)).collect();
        if !users.is_empty() {
            let message = format!("resource queue \"{name}\" cannot be dropped because roles use it");
            return Err(refusal(SqlState::DEPENDENT_OBJECTS, message).with_detail(users.join("\n")));
        }
        self.access.queues.remove(&id);
        Ok(())
    }
}

impl Access {
    /// A role and all roles that it is a member of, by any membership, also those with ADMIN OPTION only.
    fn reach_all(&self, from: RoleId) -> BTreeSet<RoleId> {
        let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(member) = open.pop() {
            for (role, _) in self.memberships.keys().filter(|(_, one)| *one == member) {
                if reached.insert(*role) {
                    open.push(*role);
                }
            }
        }
        reached
    }

    /// Grants on an object whose grantors have no chain of grant options from its owner.
    fn dangling_grants(&self, object: ObjectId) -> BTreeSet<Grant> {
        let mut open: BTreeMap<Grant, bool> =
            self.grants_on(object).map(|(grant, option)| (*grant, option)).collect();
        // Grant options found so far.
        let mut options: BTreeSet<(RoleId, Privilege, ColumnId)> = BTreeSet::new();
        loop {
            let valid: Vec<(Grant, bool)> = open
                .iter()
                .filter(|(grant, _)| {
                    let may = |column| options.contains(&(grant.grantor, grant.privilege, column));
                    grant.grantor == BY_OWNER || may(WHOLE) || may(grant.column)
                })
                .map(|(grant, option)| (*grant, *option))
                .collect();
            if valid.is_empty() {
                return open.into_keys().collect();
            }
            for (grant, option) in valid {
                open.remove(&grant);
                if option {
                    options.insert((grant.grantee, grant.privilege, grant.column));
                }
            }
        }
    }
}

fn new_role(name: &str) -> Role {
    Role {
        name: name.to_string(),
        is_superuser: false,
        can_login: false,
        can_create_roles: false,
        inherits: true,
        connection_limit: None,
        valid_until: None,
        verifier: None,
        queue: None,
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return refuse(SqlState::INVALID_NAME, "a role's name cannot be empty");
    }
    if name.contains('\0') {
        return refuse(SqlState::INVALID_NAME, "a role's name cannot have a character of code 0");
    }
    match name == "public" || name == "none" || name.starts_with("pg_") {
        true => refuse(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")),
        false => Ok(()),
    }
}

fn with_limits(queue: Queue, options: &QueueOptions) -> Result<Queue> {
    let queue = Queue {
        active_statements: options.active_statements.unwrap_or(queue.active_statements),
        memory_limit: options.memory_limit.unwrap_or(queue.memory_limit),
        priority: options.priority.unwrap_or(queue.priority),
        max_cost: options.max_cost.unwrap_or(queue.max_cost),
        ..queue
    };
    if queue.active_statements == Some(0) {
        return refuse(
            SqlState::INVALID_PARAMETER_VALUE,
            "active_statements of a resource queue must be at least 1",
        );
    }
    if queue.memory_limit.is_some_and(|bytes| bytes == 0 || i64::try_from(bytes).is_err()) {
        return refuse(
            SqlState::INVALID_PARAMETER_VALUE,
            "memory_limit of a resource queue must be between 1 byte and 8 EiB",
        );
    }
    if queue.max_cost.is_some_and(|cost| !(cost.is_finite() && cost > 0.0)) {
        return refuse(
            SqlState::INVALID_PARAMETER_VALUE,
            "max_cost of a resource queue must be a number above 0",
        );
    }
    Ok(queue)
}
