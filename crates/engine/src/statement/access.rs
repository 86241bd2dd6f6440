//! Access control statements: roles, privileges, owners, row filters and resource queues.
//!
//! Their changes are not transactional: they are visible at once and survive a rollback.

use std::fmt;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::ObjectName;
use harrier_catalog::Catalog;
use harrier_catalog::access::{
    Grantee, Object, Priority, Privilege, Privileges, QueueOptions, RoleOptions, Verifier,
};
use harrier_catalog::state::{ColumnId, ObjectId, State};
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::byte_size::parse_size_in;
use harrier_session_api::session::TransactionState;
use harrier_session_api::statement::Completion;
use harrier_sql::parser::access::{
    self, AccessStatement, Objects, Password, QueueOption, RoleName, SettingChange, Target,
};
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::stored_sql::{self, Condition};
use crate::session::Session;
use crate::statement::outcome::Outcome;
use crate::types::columns;
use crate::warehouse::access::Viewer;
use crate::warehouse::session::WarehouseSession;
use crate::warehouse::snapshot::StatementSnapshot;
use crate::warehouse::{self, relation};

fn privilege_of(name: &str) -> Result<Privilege> {
    Privilege::of_name(name).ok_or_else(|| {
        let message = format!("unrecognized privilege type \"{name}\"");
        harrier_sqlstate::external(SqlError::new(SqlState::SYNTAX_ERROR, message))
    })
}

fn queue_options(written: &[QueueOption]) -> Result<QueueOptions> {
    let mut options = QueueOptions::default();
    for (name, value) in written {
        queue_option(&mut options, name, value.as_deref())?;
    }
    Ok(options)
}

/// Sets one option of a resource queue; `value` is `None` for no limit.
fn queue_option(options: &mut QueueOptions, name: &str, value: Option<&str>) -> Result<()> {
    let bad = || {
        let message =
            format!("invalid value for resource queue attribute \"{name}\": \"{}\"", value.unwrap_or(""));
        harrier_sqlstate::external(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
    };
    // HAWQ writes -1 for no limit.
    let limit = value.filter(|value| *value != "-1" && !value.eq_ignore_ascii_case("none"));
    match name {
        "active_statements" => {
            let count = limit.map(|value| value.parse().ok().filter(|count| *count > 0).ok_or_else(bad));
            options.active_statements = Some(count.transpose()?);
        }
        "memory_limit" => {
            // A bare number is kilobytes, as in PostgreSQL.
            let size = |value| parse_size_in(value, 1 << 10).filter(|bytes| *bytes > 0);
            let bytes = limit.map(|value| size(value).ok_or_else(bad));
            options.memory_limit = Some(bytes.transpose()?);
        }
        "priority" => {
            let priority = value.map(|value| Priority::of_name(value).ok_or_else(bad));
            options.priority = Some(priority.transpose()?.unwrap_or_default());
        }
        "max_cost" => {
            let cost = limit.map(|value| {
                value.parse::<f64>().ok().filter(|cost| cost.is_finite() && *cost > 0.0).ok_or_else(bad)
            });
            options.max_cost = Some(cost.transpose()?);
        }
        other => {
            let message = format!("unrecognized resource queue attribute \"{other}\"");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .with_hint("active_statements, memory_limit, priority, max_cost")
                .into_datafusion());
        }
    }
    Ok(())
}

impl Session {
    /// Runs an access control statement.
    pub(crate) async fn run_access(&self, statement: &AccessStatement) -> Result<Outcome> {
        let warehouse =
            self.require_warehouse("roles, privileges and resource queues are kept in a warehouse")?;
        if let AccessStatement::SetRole { role, is_local } = statement {
            warehouse.names.role().become_role(role.clone(), *is_local)?;
            self.set_superuser(warehouse.names.role().is_superuser_from_now_on());
            let is_lost = *is_local && self.transaction() == TransactionState::Idle;
            let warning = is_lost.then(|| "SET LOCAL can only be used in transaction blocks".to_string());
            let completion = Completion::new("SET").with_warnings(warning.into_iter().collect());
            return Ok(Outcome::Command(completion));
        }
        let catalog = warehouse.transactions.catalog_for_access().await?;
        let mut snapshot = warehouse.names.snapshot();
        let state = match &snapshot.state {
            Some(state) => Arc::clone(state),
            None => catalog.head().await.map_err(warehouse::explain)?,
        };
        snapshot.state = Some(Arc::clone(&state));
        let warnings =
            AccessExecutor { session: self, warehouse, snapshot, state }.run(statement, &catalog).await;
        let warnings = match warnings {
            // No other session can see the object yet: defer the grant until commit.
            Err(error) if Uncommitted::is(&error) => {
                warehouse.deferred.lock().push(statement.clone());
                vec![]
            }
            other => other?,
        };
        Ok(Outcome::Command(Completion::new(statement.tag()).with_warnings(warnings)))
    }

    /// Runs the statements deferred until the transaction's commit, after it has committed. Returns warnings,
    /// including failures.
    pub(crate) async fn run_deferred(
        &self,
        deferred: Vec<AccessStatement>,
        warehouse: &WarehouseSession,
    ) -> Vec<String> {
        if deferred.is_empty() {
            return vec![];
        }
        let mut warnings = Vec::new();
        for statement in deferred {
            let run = async {
                let catalog = warehouse.transactions.catalog_for_access().await?;
                warehouse.names.role().set_access(catalog.access().await.map_err(warehouse::explain)?);
                let state = catalog.head().await.map_err(warehouse::explain)?;
                let (viewer, asker) = (warehouse.names.role().viewer(), warehouse.names.role().asker());
                let snapshot = StatementSnapshot {
                    catalog: Some(catalog.clone()),
                    state: Some(Arc::clone(&state)),
                    viewer,
                    asker,
                    ..StatementSnapshot::default()
                };
                AccessExecutor { session: self, warehouse, snapshot, state }.run(&statement, &catalog).await
            };
            match run.await {
                Ok(new) => warnings.extend(new),
                Err(error) => warnings.push(format!("{} was not done: {error}", statement.tag())),
            }
        }
        warnings
    }

    /// The stored verifier of a password, given in plain text or as a verifier.
    fn verifier(&self, password: &Password) -> Result<Option<Verifier>> {
        let Password::Text(text) = password else {
            return Ok(None);
        };
        if let Some(verifier) = Verifier::new(text) {
            return Ok(Some(verifier));
        }
        if is_md5(text) {
            let message = "passwords that are kept as MD5 are not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("give the password, or what PostgreSQL keeps of it with scram-sha-256")
                .into_datafusion());
        }
        if text.is_empty() {
            let message = "a password cannot be empty";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("PASSWORD NULL takes it away")
                .into_datafusion());
        }
        let Some(make) = self.engine().password_verifier() else {
            let message = "passwords are not kept here";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
        };
        let verifier = make(text)
            .map_err(|message| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            .map_err(harrier_sqlstate::external)?;
        match Verifier::new(&verifier) {
            Some(verifier) => Ok(Some(verifier)),
            None => Err(DataFusionError::Internal("a verifier of no known form".to_string())),
        }
    }
}

/// Whether a text is PostgreSQL's MD5 hash of a password.
fn is_md5(text: &str) -> bool {
    let digits = text.strip_prefix("md5").filter(|digits| digits.len() == 32);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Resolves the names of an access control statement and runs it.
struct AccessExecutor<'a> {
    session: &'a Session,
    warehouse: &'a WarehouseSession,
    /// The statement's snapshot and the session's users.
    snapshot: StatementSnapshot,
    state: Arc<State>,
}

impl AccessExecutor<'_> {
    fn state(&self) -> &State {
        &self.state
    }

    /// Returns warnings.
    async fn run(&self, statement: &AccessStatement, catalog: &Catalog) -> Result<Vec<String>> {
        let actor = self.snapshot.viewer.actor();
        if let Some(name) = statement.granted_by() {
            self.check_grantor(name)?;
        }
        let mut warnings = Vec::new();
        let explain = warehouse::explain;
        match statement {
            AccessStatement::CreateRole { name, options, password } => {
                let options = self.with_password(options, password.as_ref())?;
                catalog.create_role(actor, name, &options).await.map_err(explain)?;
            }
            AccessStatement::AlterRole { name, options, password } => {
                let options = self.with_password(options, password.as_ref())?;
                catalog.alter_role(actor, &self.role(name)?, &options).await.map_err(explain)?;
            }
            AccessStatement::RenameRole { name, to } => {
                catalog.rename_role(actor, &self.role(name)?, to).await.map_err(explain)?;
            }
            AccessStatement::ChangeSetting { role, change } => {
                self.change_setting(catalog, &self.role(role)?, change).await?;
            }
            AccessStatement::DropRoles { names, if_exists } => {
                for name in names {
                    let access = catalog.access().await.map_err(explain)?;
                    if *if_exists && access.role(name).is_none() {
                        warnings.push(format!("role \"{name}\" does not exist, skipping"));
                        continue;
                    }
                    catalog.drop_role(actor, name).await.map_err(explain)?;
                }
            }
            AccessStatement::GrantRoles { roles, members, with_admin_option, .. } => {
                for (role, member) in pairs(roles, members) {
                    let (role, member) = (self.role(role)?, self.role(member)?);
                    catalog.grant_role(actor, &role, &member, *with_admin_option).await.map_err(explain)?;
                }
            }
            AccessStatement::RevokeRoles { roles, members, admin_option_only, .. } => {
                for (role, member) in pairs(roles, members) {
                    let (role, member) = (self.role(role)?, self.role(member)?);
                    let warning = catalog.revoke_role(actor, &role, &member, *admin_option_only).await;
                    warnings.extend(warning.map_err(explain)?);
                }
            }
            AccessStatement::Grant { privileges, objects, grantees, with_grant_option, .. } => {
                for privileges in self.privileges(privileges, objects, grantees).await? {
                    let notices = catalog.grant(actor, &privileges, *with_grant_option).await;
                    warnings.extend(notices.map_err(explain)?);
                }
            }
            AccessStatement::Revoke { privileges, objects, grantees, grant_option_only, cascade, .. } => {
                for privileges in self.privileges(privileges, objects, grantees).await? {
                    let notices = catalog.revoke(actor, &privileges, *grant_option_only, *cascade).await;
                    warnings.extend(notices.map_err(explain)?);
                }
            }
            AccessStatement::SetOwner { target, name, if_exists, owner } => {
                let object = match target {
                    Target::Warehouse => Object::Warehouse,
                    Target::Schema => self.schema(relation::reference(name)?.table())?,
                    Target::Relation | Target::Sequence => match self.relation(name) {
                        Ok(object) => object,
                        Err(_) if *if_exists => return Ok(warnings),
                        Err(error) => return Err(error),
                    },
                };
                let owner = self.role(owner)?;
                self.check_unlinked(object, &owner)?;
                catalog.set_owner(actor, object, &owner).await.map_err(explain)?;
                // Sequences owned by the table's columns change owner with it.
                for sequence in self.state().sequences.values() {
                    if let Object::Table(table) = object
                        && sequence.owner.is_some_and(|owner| owner.table == table)
                    {
                        let object = Object::Sequence(sequence.id);
                        catalog.set_owner(actor, object, &owner).await.map_err(explain)?;
                    }
                }
            }
            AccessStatement::ReassignOwned { from, to } => {
                let (from, to) = (self.role(from)?, self.role(to)?);
                catalog.reassign_owned(actor, &from, &to).await.map_err(explain)?;
            }
            AccessStatement::DropOwned { roles } => {
                for role in roles {
                    let role = self.role(role)?;
                    self.check_owns_nothing(catalog, &role).await?;
                    catalog.revoke_all(actor, &role).await.map_err(explain)?;
                }
            }
            AccessStatement::PutRowFilter { table, grantee, predicate } => {
                let table = self.row_filter(table, predicate)?;
                let grantee = self.grantee(grantee.as_ref())?;
                catalog.put_row_filter(actor, table, &grantee, predicate).await.map_err(explain)?;
            }
            AccessStatement::DropRowFilter { table, grantee } => {
                let grantee = self.grantee(grantee.as_ref())?;
                catalog.drop_row_filter(actor, self.table(table)?, &grantee).await.map_err(explain)?;
            }
            AccessStatement::CreateQueue { name, options } => {
                catalog.create_queue(actor, name, &queue_options(options)?).await.map_err(explain)?;
            }
            AccessStatement::AlterQueue { name, options } => {
                catalog.alter_queue(actor, name, &queue_options(options)?).await.map_err(explain)?;
            }
            AccessStatement::DropQueue { name, if_exists } => {
                let access = catalog.access().await.map_err(explain)?;
                match *if_exists && access.queues.values().all(|queue| queue.name != *name) {
                    true => warnings.push(format!("resource queue \"{name}\" does not exist, skipping")),
                    false => catalog.drop_queue(actor, name).await.map_err(explain)?,
                }
            }
            AccessStatement::SetRole { .. } => {}
        }
        Ok(warnings)
    }

    fn with_password(
        &self,
        options: &access::RoleOptions,
        password: Option<&Password>,
    ) -> Result<RoleOptions> {
        let verifier = password.map(|password| self.session.verifier(password)).transpose()?;
        let access::RoleOptions {
            superuser,
            login,
            create_roles,
            inherits,
            connection_limit,
            valid_until,
            queue,
            in_roles,
            members,
            administrators,
        } = options.clone();
        Ok(RoleOptions {
            superuser,
            login,
            create_roles,
            inherits,
            connection_limit,
            valid_until,
            verifier,
            queue,
            in_roles,
            members,
            administrators,
        })
    }

    /// Errors: the parameter does not exist (42704), the value is invalid (22023, 55P02), or only superusers
    /// may set it (42501).
    async fn change_setting(&self, catalog: &Catalog, role: &str, change: &SettingChange) -> Result<()> {
        let actor = self.snapshot.viewer.actor();
        let changed = match change {
            SettingChange::ResetAll => catalog.reset_role_settings(actor, role).await,
            SettingChange::Reset(name) => {
                let name = self.session.setting_name(name);
                catalog.set_role_setting(actor, role, &name, None).await
            }
            SettingChange::Set { name, value } => {
                self.session.check_setting(name)?;
                let (name, value) = self.session.validate_setting(name, value)?;
                catalog.set_role_setting(actor, role, &name, Some(&value)).await
            }
            SettingChange::SetToCurrent(name) => {
                self.session.check_setting(name)?;
                let value = self.session.parameter(name).unwrap_or_default();
                let (name, value) = self.session.validate_setting(name, &value)?;
                catalog.set_role_setting(actor, role, &name, Some(&value)).await
            }
        };
        changed.map_err(warehouse::explain)
    }

    fn role(&self, name: &RoleName) -> Result<String> {
        let own = match name {
            RoleName::Named(name) => return Ok(name.clone()),
            RoleName::Current => self.snapshot.viewer.name(),
            RoleName::Session => self.warehouse.names.role().login(),
        };
        own.map(str::to_string).ok_or_else(|| {
            let message = "this session is for no role";
            SqlError::new(SqlState::UNDEFINED_OBJECT, message).into_datafusion()
        })
    }

    /// Errors: the grantor is not the current user (0A000), as in PostgreSQL.
    fn check_grantor(&self, name: &RoleName) -> Result<()> {
        let grantor = self.role(name)?;
        match self.snapshot.viewer.name() {
            Some(own) if own == grantor => Ok(()),
            _ => {
                let message = "grantor must be current user";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_hint("SET ROLE")
                    .into_datafusion())
            }
        }
    }

    /// Errors: a sequence owned by a column always has the table's owner (0A000).
    fn check_unlinked(&self, object: Object, owner: &str) -> Result<()> {
        let state = self.state();
        let Object::Sequence(id) = object else { return Ok(()) };
        let Some(sequence) = state.sequences.get(&id) else { return Ok(()) };
        let table = sequence.owner.and_then(|owner| state.tables.get(&owner.table));
        let is_owner = match &self.snapshot.viewer {
            Viewer::Role { access, .. } => access.owner(object) == Some(owner),
            Viewer::System => false,
        };
        match table {
            Some(table) if !is_owner => {
                let message = format!("cannot change owner of sequence \"{}\"", sequence.name);
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(format!(
                        "Sequence \"{}\" is linked to table \"{}\".",
                        sequence.name, table.name
                    ))
                    .into_datafusion())
            }
            _ => Ok(()),
        }
    }

    fn grantee(&self, name: Option<&RoleName>) -> Result<Grantee> {
        Ok(match name {
            Some(name) => Grantee::Role(self.role(name)?),
            None => Grantee::Public,
        })
    }

    fn schema(&self, name: &str) -> Result<Object> {
        match self.snapshot.schema(name) {
            Some(schema) => Ok(Object::Schema(committed_id(schema.id, "schema", name)?)),
            None => {
                let message = format!("schema \"{name}\" does not exist");
                Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message).into_datafusion())
            }
        }
    }

    fn relation(&self, name: &ObjectName) -> Result<Object> {
        let name = relation::reference(name)?;
        let (text, found) =
            (name.table().to_string(), self.warehouse.names.relation_in(&self.snapshot, &name));
        match found {
            Some(Object::Table(id)) => Ok(Object::Table(committed_id(id, "table", &text)?)),
            Some(Object::View(id)) => Ok(Object::View(committed_id(id, "view", &text)?)),
            Some(Object::Sequence(id)) => Ok(Object::Sequence(committed_id(id, "sequence", &text)?)),
            _ => {
                let message = format!("relation \"{text}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).into_datafusion())
            }
        }
    }

    fn table(&self, name: &ObjectName) -> Result<ObjectId> {
        match self.relation(name)? {
            Object::Table(id) => Ok(id),
            _ => {
                let message = format!("\"{name}\" is not a table");
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into_datafusion())
            }
        }
    }

    /// The privileges to grant: one item per privilege and column list.
    async fn privileges(
        &self,
        privileges: &[(Option<String>, Vec<String>)],
        objects: &Objects,
        grantees: &[Option<RoleName>],
    ) -> Result<Vec<Privileges>> {
        for name in privileges.iter().filter_map(|(name, _)| name.as_ref()) {
            privilege_of(name)?;
        }
        let objects: Vec<Object> = match objects {
            Objects::Warehouse => vec![Object::Warehouse],
            Objects::Schemas(names) => names.iter().map(|name| self.schema(name)).collect::<Result<_>>()?,
            Objects::Relations(names) => {
                names.iter().map(|name| self.relation(name)).collect::<Result<_>>()?
            }
            Objects::Sequences(names) => names
                .iter()
                .map(|name| match self.relation(name)? {
                    sequence @ Object::Sequence(_) => Ok(sequence),
                    _ => {
                        let message = format!("\"{name}\" is not a sequence");
                        Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into_datafusion())
                    }
                })
                .collect::<Result<_>>()?,
            Objects::SequencesIn(names) => {
                let mut all = Vec::new();
                for name in names {
                    let id = self.schema(name)?.id();
                    let sequences = self.state().sequences.values().filter(|sequence| sequence.schema == id);
                    all.extend(sequences.map(|sequence| Object::Sequence(sequence.id)));
                }
                all
            }
            Objects::TablesIn(names) => {
                let mut all = Vec::new();
                for name in names {
                    let id = self.schema(name)?.id();
                    let tables = self.state().tables.values().filter(|table| table.schema == id);
                    all.extend(tables.map(|table| Object::Table(table.id)));
                    let views = self.state().views.values().filter(|view| view.schema == id);
                    all.extend(views.map(|view| Object::View(view.id)));
                }
                all
            }
        };
        let grantees: Vec<Grantee> =
            grantees.iter().map(|name| self.grantee(name.as_ref())).collect::<Result<_>>()?;
        let mut all = Vec::with_capacity(objects.len());
        for object in objects {
            let mut ones = Vec::new();
            for (privilege, columns) in privileges {
                let mut ids = Vec::with_capacity(columns.len());
                for column in columns {
                    ids.push(self.column(object, column).await?);
                }
                let own = match (privilege, columns.is_empty()) {
                    (Some(name), _) => vec![privilege_of(name)?],
                    (None, true) => object.privileges().to_vec(),
                    (None, false) => Privilege::of_columns().to_vec(),
                };
                ones.extend(own.into_iter().map(|privilege| (privilege, ids.clone())));
            }
            all.push(Privileges { objects: vec![object], privileges: ones, grantees: grantees.clone() });
        }
        Ok(all)
    }

    async fn column(&self, object: Object, name: &str) -> Result<ColumnId> {
        let missing = || {
            let relation = object.describe(self.state());
            let relation = relation.split_once(' ').map_or(relation.as_str(), |(_, name)| name);
            let message = format!("column \"{name}\" of relation \"{relation}\" does not exist");
            harrier_sqlstate::external(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
        };
        match object {
            Object::Table(id) => {
                let table = self.state().tables.get(&id).ok_or_else(missing)?;
                let column = table.columns.iter().find(|column| column.name == name);
                column.map(|column| column.id).ok_or_else(missing)
            }
            Object::View(id) => {
                let view = self.state().views.get(&id).ok_or_else(missing)?;
                let planned = self.warehouse.names.view(view).await?;
                let schema = datafusion::catalog::TableProvider::schema(&planned);
                let (at, _) = schema.column_with_name(name).ok_or_else(missing)?;
                Ok(at as ColumnId + 1)
            }
            _ => {
                let message = format!("columns of a {}", object.kind());
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion())
            }
        }
    }

    /// Errors: those of [`stored_sql::condition`].
    fn row_filter(&self, table: &ObjectName, predicate: &str) -> Result<ObjectId> {
        let id = self.table(table)?;
        let table = self
            .state
            .tables
            .get(&id)
            .ok_or_else(|| DataFusionError::Internal("a table that is not there any more".to_string()))?;
        let schema = columns::schema_of(&table.columns)?;
        let state = self.session.context().state();
        stored_sql::check_order(&state, predicate)?;
        stored_sql::condition(&state, predicate, &schema, &self.snapshot.asker, Condition::RowFilter)?;
        Ok(id)
    }

    /// Errors: the role owns objects (2BP01). Called before DROP ROLE.
    async fn check_owns_nothing(&self, catalog: &Catalog, role: &str) -> Result<()> {
        let access = catalog.access().await.map_err(warehouse::explain)?;
        let owned = access.owners.keys().filter_map(|id| Object::of_id(self.state(), *id));
        let owned: Vec<String> = owned
            .filter(|object| access.owner(*object) == Some(role))
            .map(|object| object.describe(self.state()))
            .collect();
        if owned.is_empty() {
            return Ok(());
        }
        let message = format!("role \"{role}\" still owns objects");
        Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
            .with_detail(owned.join("\n"))
            .with_hint("DROP them, or REASSIGN OWNED BY … TO … first")
            .into_datafusion())
    }
}

/// Errors: [`Uncommitted`].
fn committed_id(id: ObjectId, kind: &'static str, name: &str) -> Result<ObjectId> {
    match id {
        0.. => Ok(id),
        _ => Err(DataFusionError::External(Box::new(Uncommitted { kind, name: name.to_string() }))),
    }
}

/// Marker error: the object was created by the current transaction.
#[derive(Debug)]
struct Uncommitted {
    kind: &'static str,
    name: String,
}

impl Uncommitted {
    fn is(error: &DataFusionError) -> bool {
        matches!(error, DataFusionError::External(inner) if inner.is::<Self>())
    }
}

impl fmt::Display for Uncommitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\" is not committed yet", self.kind, self.name)
    }
}

impl std::error::Error for Uncommitted {}

fn pairs<'r>(roles: &'r [RoleName], members: &'r [RoleName]) -> Vec<(&'r RoleName, &'r RoleName)> {
    roles.iter().flat_map(|role| members.iter().map(move |member| (role, member))).collect()
}
