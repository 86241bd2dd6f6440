//! Roles, privileges, row filters and resource queues of a catalog: they are read, and changed by the rules
//! of room `access`.
//!
//! Changes are not part of a warehouse transaction: each is visible at once.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::access::changes::Change;
use crate::access::{Access, Actor, Grantee, Object, Privileges, QueueOptions, RoleOptions, store};
use crate::catalog::Catalog;
use crate::database::retry::retry_if_lost;
use crate::error::Result;
use crate::model::ids::ObjectId;

impl Catalog {
    /// The access control state. One small query if nothing has changed since the last call.
    pub async fn access(&self) -> Result<Arc<Access>> {
        let version = self.access_version().await?;
        if let Some(known) = self.cached_access(version) {
            return Ok(known);
        }
        let read = || async { store::load(&mut self.inner.database.read().await?).await };
        let access = Arc::new(retry_if_lost(read).await?);
        *self.inner.access.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&access));
        Ok(access)
    }

    /// The version of `access`, in one small query, and a second one as long as roles have not been used.
    pub async fn access_version(&self) -> Result<i64> {
        if !self.inner.has_access.load(Ordering::Relaxed) {
            if !store::is_used(&self.inner.database).await? {
                return Ok(0);
            }
            self.inner.has_access.store(true, Ordering::Relaxed);
        }
        store::version(&self.inner.database).await
    }

    fn cached_access(&self, version: i64) -> Option<Arc<Access>> {
        let known = self.inner.access.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|known| known.version == version).cloned()
    }

    /// CREATE ROLE. The first role of a warehouse ends the full access of everyone else; so a superuser role
    /// with the actor's name is created with it, unless the first one is a superuser itself.
    pub async fn create_role(&self, actor: Actor<'_>, name: &str, options: &RoleOptions) -> Result<()> {
        self.change_access(actor, |change| change.create_role(name, options)).await
    }

    /// ALTER ROLE.
    pub async fn alter_role(&self, actor: Actor<'_>, name: &str, options: &RoleOptions) -> Result<()> {
        self.change_access(actor, |change| change.alter_role(name, options)).await
    }

    /// ALTER ROLE … SET and RESET: a session default of the role; `None` removes it. The caller has checked
    /// that the parameter exists and accepts the value.
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

    /// DROP ROLE. 2BP01 if it owns objects, has privileges, or is the role of a row filter.
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

    /// REVOKE role FROM member. Returns a warning if it was not a member.
    pub async fn revoke_role(
        &self,
        actor: Actor<'_>,
        role: &str,
        member: &str,
        admin_option_only: bool,
    ) -> Result<Option<String>> {
        self.change_access(actor, |change| change.revoke_role(role, member, admin_option_only)).await
    }

    /// GRANT. Returns warnings (01007) for privileges that the actor may not grant if it may grant the
    /// others.
    pub async fn grant(
        &self,
        actor: Actor<'_>,
        privileges: &Privileges,
        with_grant_option: bool,
    ) -> Result<Vec<String>> {
        self.change_access(actor, |change| change.grant(privileges, with_grant_option)).await
    }

    /// REVOKE. Superusers and owners revoke grants of any grantor, others their own. Dependent grants are
    /// revoked with `cascade`, and otherwise prevent the operation (2BP01). Warnings (01006) as for `grant`.
    pub async fn revoke(
        &self,
        actor: Actor<'_>,
        privileges: &Privileges,
        grant_option_only: bool,
        cascade: bool,
    ) -> Result<Vec<String>> {
        self.change_access(actor, |change| change.revoke(privileges, grant_option_only, cascade)).await
    }

    /// DROP OWNED, for privileges only: revokes all that a role was granted, and that it has granted.
    pub async fn revoke_all(&self, actor: Actor<'_>, role: &str) -> Result<()> {
        self.change_access(actor, |change| change.revoke_all(role)).await
    }

    /// ALTER … OWNER TO. For new objects, `CommitNote::owner` sets the owner with their commit.
    pub async fn set_owner(&self, actor: Actor<'_>, object: Object, owner: &str) -> Result<()> {
        self.change_access(actor, |change| change.set_owner(object, owner)).await
    }

    /// REASSIGN OWNED BY … TO ….
    pub async fn reassign_owned(&self, actor: Actor<'_>, from: &str, to: &str) -> Result<()> {
        self.change_access(actor, |change| change.reassign_owned(from, to)).await
    }

    /// Lets a role see the rows of a table for which a predicate is true. From the first filter of a table
    /// on, roles without a filter see no rows, except its owner and superusers. The caller has checked the
    /// predicate's SQL.
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

    /// DROP RESOURCE QUEUE. 2BP01 if a role uses it.
    pub async fn drop_queue(&self, actor: Actor<'_>, name: &str) -> Result<()> {
        self.change_access(actor, |change| change.drop_queue(name)).await
    }

    /// Removes owners, privileges and filters of objects that no snapshot contains any more, and returns
    /// their number. Call it when snapshots have expired.
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

    /// Changes it by a function that enforces the rules, and writes the difference: all of it or, on an
    /// error, nothing.
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
