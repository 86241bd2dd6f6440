//! DDL: schemas, tables, views, and their comments.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::MemTable;
use datafusion::common::{ScalarValue, TableReference};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{CreateMemoryTable, Expr};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    self, AlterColumnOperation, AlterTableOperation, ColumnOption, CommentObject, RenameTableNameKind,
};
use datafusion::sql::unparser::expr_to_sql;
use harrier_catalog::access::{Object, Privilege};
use harrier_catalog::state::{
    Column, ColumnId, DEFAULT_SCHEMA, DefaultValue, Location, ObjectId, PartitionKey, Schema, SortKey, State,
    TABLE_PARTITIONS_OPTION, Table, Transform, View,
};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::check_years;
use harrier_planner::analyzer::text_constants::{self, TimeReading, readable};
use harrier_sql::identifier::{plain, without_casts};
use harrier_sql::parser::as_of::AS_OF_MARK;
use harrier_sql::parser::sequence::GeneratedColumn;
use harrier_sql::parser::table_clauses::{
    self, RESET_VALUE, TableClauses, is_storage_parameter, option_key, table_option,
};
use harrier_sqlstate::{IntoDataFusionError, error, unsupported_error};
use uuid::Uuid;

use crate::binder::type_names;
use crate::planning::stored_sql::{self, ViewForm, WrittenDefaults};
use crate::settings::time_reading;
use crate::statement::create_extension;
use crate::types::columns::{column_of, has_unreliable_buckets, type_of, with_stored_timestamp};
use crate::types::{assignment, declared, json_columns, names};
use crate::warehouse::access::Viewer;
use crate::warehouse::dml::PendingWrite;
use crate::warehouse::keys::declaration::extract_column_keys;
use crate::warehouse::keys::{check_nullable, has_index};
use crate::warehouse::name_resolver::NameResolver;
use crate::warehouse::relation::{no_relation, reference, wrong_kind};
use crate::warehouse::sequences::{SEQUENCE_TAG, identity_of, nextval_sequence};
use crate::warehouse::system_catalogs::server_table::SYSTEM_SCHEMA;
use crate::warehouse::table::WarehouseTable;
use crate::warehouse::table::file_shape::check_codecs;
use crate::warehouse::table::partitions::partitions_of;
use crate::warehouse::table::stored_values::{constant, text_as_now};
use crate::warehouse::transaction::Transactions;
use crate::warehouse::{case_collisions, temporary_tables};

pub(crate) mod check_constraints;
pub(crate) mod keys;
pub(crate) mod keys_like;
pub(crate) mod partitions;
pub(crate) mod sequences;
pub(crate) mod uncommitted_rows;

/// Dialect tag of expressions stored in the catalog.
const DIALECT: &str = "harrier";

/// Runs DDL in the session's current transaction.
pub(crate) struct Ddl<'a> {
    pub names: &'a NameResolver,
    pub transactions: &'a Transactions,
    pub context: &'a SessionContext,
    /// The statement's text.
    pub text: &'a str,
}

/// `schema`: from a qualified name or the search path.
fn schema_in<'s>(state: &'s State, schema: &str) -> Result<&'s Arc<Schema>> {
    state
        .named_schema(schema)
        .ok_or_else(|| error(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")))
}

/// Data folder of a new object `name`.
fn folder(name: &str, uuid: &Uuid) -> Location {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Location::relative(if is_plain { format!("{name}/") } else { format!("{uuid}/") })
}

impl Ddl<'_> {
    pub(crate) fn viewer(&self) -> Viewer {
        self.names.role().viewer()
    }

    pub(crate) fn schema_in<'s>(&self, state: &'s State, name: &TableReference) -> Result<&'s Arc<Schema>> {
        schema_in(state, &self.names.schema_of(name))
    }

    fn check_owner(&self, object: Object) -> Result<()> {
        match &self.names.snapshot().state {
            Some(state) => self.viewer().check_owner(object, state),
            None => Ok(()),
        }
    }

    /// The schema for a new object of this name.
    ///
    /// Errors: the schema does not exist (3F000), or the role may not create objects in it (42501).
    fn schema_for(&self, state: &State, name: &TableReference) -> Result<ObjectId> {
        let schema = self.schema_in(state, name)?.id;
        self.viewer().check(Object::Schema(schema), Privilege::Create, state)?;
        Ok(schema)
    }

    /// A schema's owner may drop any object in it.
    fn check_drop(&self, object: Object, state: &State) -> Result<()> {
        let schema = match object {
            Object::Table(id) => state.tables.get(&id).map(|table| table.schema),
            Object::View(id) => state.views.get(&id).map(|view| view.schema),
            Object::Sequence(id) => state.sequences.get(&id).map(|sequence| sequence.schema),
            _ => None,
        };
        let viewer = self.viewer();
        match schema.is_some_and(|schema| viewer.owns(Object::Schema(schema))) {
            true => Ok(()),
            false => viewer.check_owner(object, state),
        }
    }

    /// Creates a table; `has_rows`: the statement also provides rows. Defaults are given as they are stored.
    /// Returns the table, or `None` if one of the name exists and IF NOT EXISTS was given.
    pub(crate) async fn create_table(
        &self,
        create: &CreateMemoryTable,
        clauses: Option<&TableClauses>,
        has_rows: bool,
        written: &StoredDefaults,
    ) -> Result<Option<Arc<Table>>> {
        let name = &create.name;
        if name.table().contains(AS_OF_MARK) {
            return Err(error(SqlState::SYNTAX_ERROR, "a table is created now, not AS OF another time"));
        }
        let mut next_column = 1;
        let mut columns = Vec::new();
        let input = names::with_type_names(create.input.schema().inner(), &type_names::of(&create.input));
        for field in input.fields() {
            let field = if !has_rows {
                with_stored_timestamp(field)
            } else {
                field.as_ref().clone().with_nullable(true)
            };
            columns.push(column_of(&field, &mut next_column)?);
        }
        declared::declare_all(&mut columns, type_names::of(&create.input))?;
        check_distinct_columns(&columns)?;
        for (name, default) in &create.column_defaults {
            let Some(column) = columns.iter_mut().find(|column| column.name == *name) else { continue };
            if let (Some(sequence), StoredDefaults::Texts(_)) = (nextval_sequence(default), written) {
                self.use_sequence(column, &sequence)?;
                continue;
            }
            let reading = time_reading(&self.context.state());
            column.default = match written {
                StoredDefaults::Texts(texts) => {
                    let text = texts.get(name).map(String::as_str);
                    default_value(default, column, &reading, text)?
                }
                StoredDefaults::Like(table) => {
                    let own = table.columns.iter().find(|own| own.name == *name);
                    let sequence = own.filter(|own| identity_of(own).is_none());
                    if let Some(uuid) = sequence.and_then(|own| own.tags.get(SEQUENCE_TAG)) {
                        column.tags.insert(SEQUENCE_TAG.to_string(), uuid.clone());
                    }
                    own.and_then(|own| own.default.clone())
                }
            };
            self.check_default(column)?;
        }
        let clauses = clauses.cloned().unwrap_or_default();
        let partition = partition_keys(&columns, clauses.partition.unwrap_or_default())?;
        let sort = sort_keys(&columns, clauses.sort.unwrap_or_default())?;
        let mut options = clauses.options;
        options.remove("format");
        if let Some(division) = &clauses.division {
            let divided = self.evaluate_division(&columns, division).await?;
            options.insert(TABLE_PARTITIONS_OPTION.to_string(), divided);
        }
        self.transactions
            .change(|transaction| {
                let schema = self.schema_for(&transaction.state, name)?;
                let existing = transaction.state.table(schema, name.table()).map(|table| table.id);
                if existing.is_some() && create.if_not_exists {
                    return Ok(None);
                }
                if let (Some(id), true) = (existing, create.or_replace) {
                    self.viewer().check_owner(Object::Table(id), &transaction.state)?;
                }
                if transaction.state.view(schema, name.table()).is_some()
                    || transaction.state.sequence(schema, name.table()).is_some()
                    || existing.is_some() && !create.or_replace
                    || has_index(&transaction.state, schema, name.table())
                {
                    let message = format!("relation \"{}\" already exists", name.table());
                    return Err(error(SqlState::DUPLICATE_TABLE, message));
                }
                let id = transaction.allocate_object();
                let uuid = Uuid::new_v4();
                let mut table = Table {
                    id,
                    uuid: uuid.to_string(),
                    schema,
                    name: name.table().to_string(),
                    path: folder(name.table(), &uuid),
                    columns,
                    next_column,
                    partition,
                    partition_id: None,
                    sort,
                    comment: None,
                    tags: BTreeMap::new(),
                    options,
                };
                sequences::generate(transaction, &mut table, &clauses.generated)?;
                let table = Arc::new(table);
                check_codecs(&transaction.state, &table)?;
                if let Some(existing) = existing {
                    transaction.data.remove(&existing);
                    transaction.state_mut().tables.remove(&existing);
                }
                transaction.state_mut().tables.insert(id, Arc::clone(&table));
                sequences::adjust_sequences(transaction, &[])?;
                Ok(Some(table))
            })
            .await
    }

    /// Stores a view. `query`: its definition, to be read as `form` says; `columns_below`: the catalog's
    /// columns of a view.
    ///
    /// Errors: the stored definition cannot be planned.
    pub(crate) async fn create_view(
        &self,
        name: &TableReference,
        query: String,
        form: ViewForm,
        columns_below: BTreeMap<ObjectId, ColumnId>,
        or_replace: bool,
    ) -> Result<()> {
        let mut view = View {
            id: -1,
            uuid: Uuid::new_v4().to_string(),
            schema: 0,
            name: name.table().to_string(),
            dialect: form.to_string(),
            sql: query,
            column_aliases: String::new(),
            comment: None,
            columns_below,
        };
        self.names.view(&view).await?;
        self.transactions
            .change(|transaction| {
                let schema = self.schema_for(&transaction.state, name)?;
                let existing = transaction.state.view(schema, name.table()).map(|view| view.id);
                if let (Some(id), true) = (existing, or_replace) {
                    self.viewer().check_owner(Object::View(id), &transaction.state)?;
                }
                if transaction.state.table(schema, name.table()).is_some()
                    || transaction.state.sequence(schema, name.table()).is_some()
                    || existing.is_some() && !or_replace
                    || has_index(&transaction.state, schema, name.table())
                {
                    let message = format!("relation \"{}\" already exists", name.table());
                    return Err(error(SqlState::DUPLICATE_TABLE, message));
                }
                (view.id, view.schema) = (transaction.allocate_object(), schema);
                let state = transaction.state_mut();
                if let Some(existing) = existing {
                    state.views.remove(&existing);
                }
                state.views.insert(view.id, Arc::new(view));
                Ok(())
            })
            .await
    }

    /// `ALTER VIEW … RENAME`; returns notices.
    async fn alter_view(&self, alter: &ast::AlterTable, name: &TableReference) -> Result<Vec<String>> {
        if self.names.table(name).is_some() {
            return Err(wrong_kind(name, "view"));
        }
        if !self.names.has_view(name) {
            return match alter.if_exists {
                true => Ok(vec![format!("relation \"{}\" does not exist, skipping", name.table())]),
                false => Err(no_relation("relation", name)),
            };
        }
        match &alter.operations[..] {
            [AlterTableOperation::RenameTable { table_name }] => {
                self.rename_view(name, table_name).await.map(|()| vec![])
            }
            _ => Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "columns of views are not renamed")
                .with_hint("CREATE OR REPLACE VIEW gives a view other columns")
                .into_datafusion()),
        }
    }

    async fn rename_view(&self, name: &TableReference, new: &RenameTableNameKind) -> Result<()> {
        let (RenameTableNameKind::As(new) | RenameTableNameKind::To(new)) = new;
        let new = reference(new)?.table().to_string();
        self.transactions
            .change(|transaction| {
                let schema = self.schema_in(&transaction.state, name)?.id;
                let state = &transaction.state;
                if state.has_relation(schema, &new) || has_index(state, schema, &new) {
                    let message = format!("relation \"{new}\" already exists");
                    return Err(error(SqlState::DUPLICATE_TABLE, message));
                }
                let view = state.view(schema, name.table()).ok_or_else(|| no_relation("view", name))?;
                self.viewer().check_owner(Object::View(view.id), state)?;
                let view = View { name: new, ..View::clone(view) };
                transaction.state_mut().views.insert(view.id, Arc::new(view));
                Ok(())
            })
            .await
    }

    /// `LOCK TABLE`, in the modes that block only changes of the table's definition.
    ///
    /// Errors: a relation does not exist (42P01) or may not be read (42501); another mode (0A000).
    pub(crate) fn lock(&self, lock: &ast::Lock) -> Result<()> {
        let snapshot = self.names.snapshot();
        for target in &lock.tables {
            let name = reference(&target.name)?;
            let Some(state) = &snapshot.state else { return Err(no_relation("table", &name)) };
            let object = self.names.relation(&name).ok_or_else(|| no_relation("table", &name))?;
            self.viewer().check(object, Privilege::Select, state)?;
        }
        match &lock.lock_mode {
            Some(ast::LockTableMode::AccessShare | ast::LockTableMode::RowShare) => Ok(()),
            mode => {
                let mode = mode.as_ref().map_or("ACCESS EXCLUSIVE".to_string(), |mode| mode.to_string());
                Err(unsupported_error(format!("LOCK TABLE in {mode} MODE is not supported")))
            }
        }
    }

    /// Returns whether the schema was created.
    /// `owner`: the role that is to own it, if it is not the present one.
    ///
    /// Errors: no right to create it, or to act as the owner (42501); it is there already (42P06).
    pub(crate) async fn create_schema(
        &self,
        name: &str,
        owner: Option<&str>,
        if_not_exists: bool,
    ) -> Result<bool> {
        let (name, owner) = (name.to_string(), owner.map(str::to_string));
        if name.is_empty() {
            return Err(error(SqlState::SYNTAX_ERROR, "zero-length delimited identifier".to_string()));
        }
        self.transactions
            .change(|transaction| {
                let viewer = self.viewer();
                viewer.check(Object::Warehouse, Privilege::Create, &transaction.state)?;
                if let Some(owner) = owner.as_deref().filter(|owner| !viewer.may_become(owner)) {
                    let message = format!("must be able to SET ROLE \"{owner}\"");
                    return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message));
                }
                if transaction.state.named_schema(&name).is_some() {
                    return match if_not_exists {
                        true => Ok(false),
                        false => Err(error(
                            SqlState::DUPLICATE_SCHEMA,
                            format!("schema \"{name}\" already exists"),
                        )),
                    };
                }
                if name == SYSTEM_SCHEMA {
                    return Err(error(
                        SqlState::RESERVED_NAME,
                        format!("schema \"{name}\" is the system's own"),
                    ));
                }
                let id = transaction.allocate_object();
                let uuid = Uuid::new_v4();
                let schema = Schema {
                    id,
                    uuid: uuid.to_string(),
                    path: folder(&name, &uuid),
                    name,
                    comment: None,
                    options: BTreeMap::new(),
                };
                transaction.state_mut().schemas.insert(id, Arc::new(schema));
                transaction.owners.extend(owner.map(|owner| (id, owner)));
                Ok(true)
            })
            .await
    }

    /// Returns whether the table existed.
    pub(crate) async fn drop_table(&self, name: &TableReference, if_exists: bool) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let state = &transaction.state;
                let schema = self.schema_in(state, name).ok().map(|schema| schema.id);
                let id = schema.and_then(|schema| state.table(schema, name.table())).map(|table| table.id);
                let is_view = schema.is_some_and(|schema| state.view(schema, name.table()).is_some());
                match id {
                    Some(id) => {
                        self.check_drop(Object::Table(id), &transaction.state)?;
                        transaction.data.remove(&id);
                        transaction.state_mut().tables.remove(&id);
                        sequences::adjust_sequences(transaction, &[])?;
                        Ok(true)
                    }
                    None if is_view => Err(wrong_kind(name, "table")),
                    None if if_exists => Ok(false),
                    None => Err(no_relation("table", name)),
                }
            })
            .await
    }

    /// Returns whether the view existed.
    pub(crate) async fn drop_view(&self, name: &TableReference, if_exists: bool) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let state = &transaction.state;
                let schema = self.schema_in(state, name).ok().map(|schema| schema.id);
                let id = schema.and_then(|schema| state.view(schema, name.table())).map(|view| view.id);
                let is_table = schema.is_some_and(|schema| state.table(schema, name.table()).is_some());
                match id {
                    Some(id) => {
                        self.check_drop(Object::View(id), &transaction.state)?;
                        transaction.state_mut().views.remove(&id);
                        Ok(true)
                    }
                    None if is_table => Err(wrong_kind(name, "view")),
                    None if if_exists => Ok(false),
                    None => Err(no_relation("view", name)),
                }
            })
            .await
    }

    /// Returns whether the schema existed.
    pub(crate) async fn drop_schema(&self, name: &str, if_exists: bool, cascade: bool) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let Some(schema) = transaction.state.named_schema(name) else {
                    return match if_exists {
                        true => Ok(false),
                        false => Err(error(
                            SqlState::INVALID_SCHEMA_NAME,
                            format!("schema \"{name}\" does not exist"),
                        )),
                    };
                };
                if schema.name == DEFAULT_SCHEMA {
                    return Err(unsupported_error(format!("schema \"{name}\" cannot be dropped")));
                }
                let id = schema.id;
                self.viewer().check_owner(Object::Schema(id), &transaction.state)?;
                let tables: Vec<ObjectId> = transaction
                    .state
                    .tables
                    .values()
                    .filter(|table| table.schema == id)
                    .map(|table| table.id)
                    .collect();
                let views: Vec<ObjectId> = transaction
                    .state
                    .views
                    .values()
                    .filter(|view| view.schema == id)
                    .map(|view| view.id)
                    .collect();
                let has_sequences =
                    transaction.state.sequences.values().any(|sequence| sequence.schema == id);
                if !cascade && (has_sequences || !(tables.is_empty() && views.is_empty())) {
                    return Err(SqlError::new(
                        SqlState::DEPENDENT_OBJECTS,
                        format!("cannot drop schema {name} because other objects depend on it"),
                    )
                    .with_hint("DROP SCHEMA … CASCADE drops what is in it too")
                    .into_datafusion());
                }
                for table in &tables {
                    transaction.data.remove(table);
                }
                let state = transaction.state_mut();
                tables.iter().for_each(|table| drop(state.tables.remove(table)));
                views.iter().for_each(|view| drop(state.views.remove(view)));
                state.schemas.remove(&id);
                sequences::adjust_sequences(transaction, &[])?;
                Ok(true)
            })
            .await
    }

    /// ALTER TABLE of a warehouse table; returns notices.
    pub(crate) async fn alter_table(
        &self,
        alter: &ast::AlterTable,
        clauses: Option<&TableClauses>,
        renames_view: bool,
    ) -> Result<Vec<String>> {
        let text = self.text;
        let name = reference(&alter.name)?;
        if renames_view {
            return self.alter_view(alter, &name).await;
        }
        let mut notices = vec![];
        let Some(table) = self.names.table(&name) else {
            // As in PostgreSQL, ALTER TABLE also renames views.
            if let [AlterTableOperation::RenameTable { table_name }] = &alter.operations[..]
                && self.names.has_view(&name)
            {
                return self.rename_view(&name, table_name).await.map(|()| notices);
            }
            // And sequences.
            if let [AlterTableOperation::RenameTable { table_name }] = &alter.operations[..]
                && matches!(self.names.relation(&name), Some(Object::Sequence(_)))
            {
                let (RenameTableNameKind::As(new) | RenameTableNameKind::To(new)) = table_name;
                let new = reference(new)?;
                return self.rename_sequence(&name, alter.if_exists, new.table()).await.map(|_| notices);
            }
            return match alter.if_exists && !self.names.is_temporary(&name) {
                true => Ok(vec![format!("relation \"{}\" does not exist, skipping", name.table())]),
                false => Err(self.names.no_table(&name, "ALTER TABLE").await),
            };
        };
        self.check_owner(Object::Table(table.id))?;
        let mut changed = Table::clone(&table);
        let generated = clauses.map_or(&[][..], |clauses| &clauses.generated);
        if let Some(clauses) = clauses.filter(|clauses| clauses.generated.is_empty()) {
            if let Some(keys) = &clauses.partition {
                changed.partition = partition_keys(&changed.columns, keys.clone())?;
                changed.partition_id = None;
                changed.options.remove(TABLE_PARTITIONS_OPTION);
            }
            if let Some(change) = &clauses.change {
                self.change_partitions(&mut changed, change).await?;
            }
            if let Some(keys) = &clauses.sort {
                changed.sort = sort_keys(&changed.columns, keys.clone())?;
            }
        } else {
            let mut written = WrittenDefaults::of(text, alter.operations.iter().map(defaults_of).sum());
            for operation in &alter.operations {
                self.alter(&mut changed, operation, &name, &mut written, &mut notices).await?;
            }
        }
        let new = |one: &&GeneratedColumn| table.columns.iter().all(|column| column.name != one.column);
        let generated: Vec<GeneratedColumn> = generated.iter().filter(new).cloned().collect();
        if let Some(one) = generated.first() {
            self.check_no_rows(&name, &one.column).await?;
        }
        let rewritten = self.rewrite_rows(&table, &changed).await?;
        self.transactions
            .change(|transaction| {
                let is_name_taken = transaction
                    .state
                    .table(changed.schema, &changed.name)
                    .is_some_and(|other| other.id != changed.id)
                    || transaction.state.view(changed.schema, &changed.name).is_some()
                    || transaction.state.sequence(changed.schema, &changed.name).is_some()
                    || has_index(&transaction.state, changed.schema, &changed.name);
                if is_name_taken {
                    let message = format!("relation \"{}\" already exists", changed.name);
                    return Err(error(SqlState::DUPLICATE_TABLE, message));
                }
                if changed.options != table.options {
                    check_codecs(&transaction.state, &changed)?;
                }
                // Rows written by this transaction have the table's previous columns.
                if let Some(data) = transaction.data.get_mut(&changed.id) {
                    match rewritten {
                        Some(files) => uncommitted_rows::replace(data, files),
                        None => uncommitted_rows::adapt(data, &table.columns, &changed.columns),
                    }
                }
                sequences::generate(transaction, &mut changed, &generated)?;
                notices.extend(case_collisions::notice(Some(table.as_ref()), &changed));
                transaction.state_mut().tables.insert(changed.id, Arc::new(changed));
                sequences::adjust_sequences(transaction, &[])?;
                Ok(notices)
            })
            .await
    }

    async fn alter(
        &self,
        table: &mut Table,
        operation: &AlterTableOperation,
        name: &TableReference,
        written: &mut WrittenDefaults<'_>,
        notices: &mut Vec<String>,
    ) -> Result<()> {
        if self.alter_keys(table, operation, name, notices).await? {
            return Ok(());
        }
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
                let (column_def, declared) = extract_column_keys(column_def)?;
                let before = table.columns.len();
                self.add_column(table, &column_def, *if_not_exists, name, written).await?;
                match table.columns.len() > before {
                    true => self.declare_added(table, &declared, name, notices).await,
                    false => Ok(()),
                }
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for column in column_names {
                    drop_column(table, &plain(column), *if_exists)?;
                }
                Ok(())
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let (old, new) = (plain(old_column_name), plain(new_column_name));
                column_mut(table, &old)?;
                if table.columns.iter().any(|column| column.name == new) {
                    return Err(duplicate_column(&new, table));
                }
                column_mut(table, &old)?.name = new.clone();
                for key in table.sort.iter_mut().filter(|key| key.expression.trim_matches('"') == old) {
                    key.expression = format!("\"{}\"", new.replace('"', "\"\""));
                }
                Ok(())
            }
            AlterTableOperation::RenameTable { table_name } => {
                let (RenameTableNameKind::As(new) | RenameTableNameKind::To(new)) = table_name;
                table.name = reference(new)?.table().to_string();
                Ok(())
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(table, &plain(column_name), op, name, written).await
            }
            AlterTableOperation::SetOptionsParens { options } => {
                for option in options {
                    let ast::SqlOption::KeyValue { key, value } = option else {
                        return Err(unsupported_error(format!("option {option}")));
                    };
                    if is_storage_parameter(&plain(key)) {
                        continue;
                    }
                    let value = value.to_string();
                    if value.trim_matches('\'') == RESET_VALUE {
                        // PostgreSQL ignores names that it does not know.
                        if let Some(key) = option_key(&plain(key)) {
                            table.options.remove(key);
                        }
                        continue;
                    }
                    let (key, value) = table_option(&plain(key), value.trim_matches('\''))?;
                    table.options.insert(key, value);
                }
                Ok(())
            }
            other => Err(unsupported_error(format!("ALTER TABLE … {other}"))),
        }
    }

    async fn add_column(
        &self,
        table: &mut Table,
        definition: &ast::ColumnDef,
        if_not_exists: bool,
        table_name: &TableReference,
        written: &mut WrittenDefaults<'_>,
    ) -> Result<()> {
        let name = plain(&definition.name);
        if table.columns.iter().any(|column| column.name == name) {
            return match if_not_exists {
                true => Ok(()),
                false => Err(duplicate_column(&name, table)),
            };
        }
        let kind = self.type_named(&definition.data_type).await?;
        let mut column = column_of(
            &with_stored_timestamp(&json_columns::declared_field(&name, kind, &definition.data_type)),
            &mut table.next_column,
        )?;
        declared::declare(&mut column, declared::of_definition(&definition.data_type, &name)?);
        for option in &definition.options {
            match &option.option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => column.nullable = false,
                ColumnOption::Default(value) if self.set_sequence_default(&mut column, value)? => {
                    written.next(value);
                    self.check_no_rows(table_name, &name).await?;
                }
                ColumnOption::Default(value) => {
                    let present = self.value_of(value, &column).await?;
                    let present = assignment::assign_text(&column, present)?;
                    column.default = stored_default(value, present.clone(), written);
                    self.check_default(&column)?;
                    column.initial_default = present;
                }
                other => return Err(unsupported_error(format!("ADD COLUMN … {other}"))),
            }
        }
        if !column.nullable && column.initial_default.is_none() && !column.tags.contains_key(SEQUENCE_TAG) {
            return Err(SqlError::new(
                SqlState::NOT_NULL_VIOLATION,
                format!("column \"{name}\" of relation \"{}\" would contain null values", table.name),
            )
            .with_hint("give it a DEFAULT")
            .into_datafusion());
        }
        table.columns.push(column);
        Ok(())
    }

    async fn alter_column(
        &self,
        table: &mut Table,
        name: &str,
        operation: &AlterColumnOperation,
        table_name: &TableReference,
        written: &mut WrittenDefaults<'_>,
    ) -> Result<()> {
        let before = Table { columns: vec![], ..table.clone() };
        let column = column_mut(table, name)?;
        sequences::check_identity(column, &before, operation)?;
        match operation {
            AlterColumnOperation::SetNotNull => {
                self.check_no_nulls(table_name, name).await?;
                column.nullable = false;
            }
            AlterColumnOperation::DropNotNull => {
                check_nullable(table, name)?;
                column_mut(table, name)?.nullable = true;
            }
            AlterColumnOperation::DropDefault => {
                column.default = None;
                column.tags.remove(SEQUENCE_TAG);
            }
            AlterColumnOperation::SetDefault { value } if self.set_sequence_default(column, value)? => {
                written.next(value);
            }
            AlterColumnOperation::SetDefault { value }
                if let Some(array) = array_default(literal_text(value), &type_of(column, false)?)? =>
            {
                written.next(value);
                column.default = Some(array);
                self.check_default(column)?;
            }
            AlterColumnOperation::SetDefault { value } => {
                let text = self.value_of(value, column).await?;
                column.default = stored_default(value, text, written);
                self.check_default(column)?;
            }
            AlterColumnOperation::SetDataType { data_type, using: None, .. } => {
                let kind = self.type_named(data_type).await?;
                let mut new = column_of(
                    &with_stored_timestamp(&json_columns::declared_field(name, kind, data_type)),
                    &mut 0,
                )?;
                let after = declared::of_definition(data_type, name)?;
                declared::declare(&mut new, after);
                let widens = |old: ColumnType, new: ColumnType| match (old, new) {
                    (
                        ColumnType::Decimal { precision: old, scale },
                        ColumnType::Decimal { precision: new, scale: same },
                    ) => scale == same && new >= old,
                    (old, new) => old == new || old.widens_to(new),
                };
                if column.kind.is_nested()
                    || !widens(column.kind, new.kind)
                    || !json_columns::are_alike(column, &new)
                {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("column \"{name}\" of type {} cannot be made {}", column.kind, new.kind),
                    )
                    .with_hint("only types that hold every value of the old one are possible, such as int32 to int64")
                    .into_datafusion());
                }
                let quoted = format!("\"{}\"", name.replace('"', "\"\""));
                let before = declared::of_column(column);
                if let Some((is_in_the_way, error)) = declared::conflicting_rows(before, after, &quoted)
                    && self.has_row(table_name, &is_in_the_way).await?
                {
                    return Err(error.into_datafusion());
                }
                let before = std::mem::replace(&mut column.kind, new.kind);
                // The initial default of existing rows does not change.
                if let Some(text) = &column.initial_default {
                    column.initial_default = Some(text_as_now(text, column, before)?);
                }
                declared::declare(column, after);
            }
            other => return Err(unsupported_error(format!("ALTER COLUMN … {other}"))),
        }
        Ok(())
    }

    /// Errors: the column contains NULLs (23502).
    pub(crate) async fn check_no_nulls(&self, table: &TableReference, column: &str) -> Result<()> {
        let is_null = format!("\"{}\" IS NULL", column.replace('"', "\"\""));
        if self.has_row(table, &is_null).await? {
            let message =
                format!("column \"{column}\" of relation \"{}\" contains null values", table.table());
            return Err(error(SqlState::NOT_NULL_VIOLATION, message));
        }
        Ok(())
    }

    /// Whether a condition holds for any row of a table.
    async fn has_row(&self, table: &TableReference, condition: &str) -> Result<bool> {
        let sql = format!("SELECT 1 FROM {} WHERE {condition} LIMIT 1", table.to_quoted_string());
        let rows = self.context.sql(&sql).await?.collect().await?;
        Ok(rows.iter().any(|batch| batch.num_rows() > 0))
    }

    /// The Arrow type that the planner uses for a SQL type.
    async fn type_named(&self, kind: &ast::DataType) -> Result<DataType> {
        let frame = self.context.sql(&format!("SELECT CAST(NULL AS {kind}) AS a")).await?;
        Ok(frame.schema().field(0).data_type().clone())
    }

    /// Evaluates a constant expression as a value of `column`, in the catalog's text encoding; `None` for
    /// NULL.
    async fn value_of(&self, value: &ast::Expr, column: &Column) -> Result<Option<String>> {
        let plan = self.context.state().statement_to_plan(stored_sql::select_of(value.clone())?).await?;
        let batches = self.context.execute_logical_plan(plan).await?.collect().await?;
        let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else {
            return Ok(None);
        };
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        let kind = type_of(column, false)?;
        let reading = time_reading(&self.context.state());
        let value =
            readable(ScalarValue::try_from_array(batch.column(0), 0)?, &kind, &reading)?.to_array()?;
        let values = json_columns::stored_values(cast_with_options(&value, &kind, &exact)?, column)?;
        check_years(&values, &column.name)?;
        constant(&values, &column.name)
    }

    /// The defaults of a CREATE TABLE, verbatim from `text`.
    pub(crate) fn stored_defaults(&self, create: &ast::Statement, text: &str) -> Result<StoredDefaults> {
        let mut texts = BTreeMap::new();
        let ast::Statement::CreateTable(create) = create else { return Ok(StoredDefaults::Texts(texts)) };
        if let Some(like) = &create.like {
            let (ast::CreateTableLikeKind::Parenthesized(like) | ast::CreateTableLikeKind::Plain(like)) =
                like;
            if let Some(table) = self.names.table(&reference(&like.name)?) {
                return Ok(StoredDefaults::Like(table));
            }
        }
        let mut written = WrittenDefaults::of(text, create.columns.iter().map(defaults_of_column).sum());
        for column in &create.columns {
            for option in &column.options {
                if let ColumnOption::Default(value) = &option.option {
                    texts.insert(plain(&column.name), written.next(value));
                }
            }
        }
        Ok(StoredDefaults::Texts(texts))
    }

    /// Errors: the session's settings give the default another meaning (0A000), or its stored text is
    /// invalid.
    fn check_default(&self, column: &Column) -> Result<()> {
        if let Some(DefaultValue::Expression { sql, .. }) = &column.default {
            let state = self.context.state();
            stored_sql::check_meaning(&state, &format!("SELECT {sql}"))?;
            stored_sql::default(&state, sql, &self.names.role().asker())?;
        }
        Ok(())
    }

    /// Returns the UUIDs of restarted sequences.
    pub(crate) async fn truncate(&self, truncate: &ast::Truncate) -> Result<Vec<String>> {
        let restarts = matches!(truncate.identity, Some(ast::TruncateIdentityOption::Restart));
        let mut restarted = Vec::new();
        if truncate.partitions.is_some() {
            return Err(unsupported_error("TRUNCATE … PARTITION"));
        }
        let mut own = Vec::new();
        for target in &truncate.table_names {
            let name = reference(&target.name)?;
            if let Some(table) = self.names.temporary(&name).await?
                && table.downcast_ref::<MemTable>().is_some()
            {
                own.push(table);
                continue;
            }
            let snapshot = self.names.snapshot();
            match self.names.table(&name) {
                Some(table) => {
                    if let Some(state) = &snapshot.state {
                        let viewer = &snapshot.viewer;
                        viewer.check(Object::Table(table.id), Privilege::Truncate, state)?;
                    }
                    let table = WarehouseTable::try_new(self.context.state(), &snapshot, table)?;
                    let id = table.table().id;
                    PendingWrite::truncate(table, self.transactions).await?;
                    if restarts {
                        restarted.extend(self.restart_identity(id).await?);
                    }
                }
                None if truncate.if_exists && !self.names.is_temporary(&name) => {}
                None => return Err(self.names.no_table(&name, "TRUNCATE").await),
            }
        }
        // After everything that may fail.
        for table in own.iter().filter_map(|table| table.downcast_ref::<MemTable>()) {
            temporary_tables::truncate(table).await;
        }
        Ok(restarted)
    }

    pub(crate) async fn comment(
        &self,
        object: &CommentObject,
        name: &ast::ObjectName,
        comment: Option<String>,
    ) -> Result<()> {
        let comment = comment.filter(|comment| !comment.is_empty());
        match object {
            CommentObject::Column => {
                let parts = name.0.len();
                let column = name.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default();
                if parts < 2 {
                    return Err(error(SqlState::SYNTAX_ERROR, "COMMENT ON COLUMN needs table.column"));
                }
                let table = reference(&ast::ObjectName(name.0[..parts - 1].to_vec()))?;
                self.change_table(&table, |table| {
                    column_mut(table, &column)?.comment = comment;
                    Ok(())
                })
                .await
            }
            CommentObject::Table => {
                self.change_table(&reference(name)?, |table| {
                    table.comment = comment;
                    Ok(())
                })
                .await
            }
            CommentObject::Schema => {
                let name = reference(name)?.table().to_string();
                self.transactions
                    .change(|transaction| {
                        let schema = transaction.state.named_schema(&name).ok_or_else(|| {
                            error(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
                        })?;
                        self.viewer().check_owner(Object::Schema(schema.id), &transaction.state)?;
                        let schema = Schema { comment, ..Schema::clone(schema) };
                        transaction.state_mut().schemas.insert(schema.id, Arc::new(schema));
                        Ok(())
                    })
                    .await
            }
            CommentObject::Sequence => self.comment_on_sequence(&reference(name)?, comment).await,
            CommentObject::View => {
                let name = reference(name)?;
                self.transactions
                    .change(|transaction| {
                        let schema = self.schema_in(&transaction.state, &name)?.id;
                        let view = transaction.state.view(schema, name.table());
                        let view = view.ok_or_else(|| no_relation("view", &name))?;
                        self.viewer().check_owner(Object::View(view.id), &transaction.state)?;
                        let view = View { comment, ..View::clone(view) };
                        transaction.state_mut().views.insert(view.id, Arc::new(view));
                        Ok(())
                    })
                    .await
            }
            // Which dumps have; it says what PostgreSQL says of it, and is not kept.
            CommentObject::Extension => {
                let name = reference(name)?.table().to_string();
                match create_extension::exists(&name) {
                    true => Ok(()),
                    false => {
                        let message = format!("extension \"{name}\" does not exist");
                        Err(error(SqlState::UNDEFINED_OBJECT, message))
                    }
                }
            }
            other => Err(unsupported_error(format!("COMMENT ON {other}"))),
        }
    }

    async fn change_table(
        &self,
        name: &TableReference,
        change: impl FnOnce(&mut Table) -> Result<()>,
    ) -> Result<()> {
        if self.names.is_temporary(name) {
            return Err(self.names.no_table(name, "COMMENT").await);
        }
        self.transactions
            .change(|transaction| {
                let schema = self.schema_in(&transaction.state, name)?.id;
                let table = transaction.state.table(schema, name.table());
                let mut table = Table::clone(table.ok_or_else(|| no_relation("relation", name))?);
                self.viewer().check_owner(Object::Table(table.id), &transaction.state)?;
                change(&mut table)?;
                transaction.state_mut().tables.insert(table.id, Arc::new(table));
                Ok(())
            })
            .await
    }
}

fn duplicate_column(name: &str, table: &Table) -> DataFusionError {
    error(
        SqlState::DUPLICATE_COLUMN,
        format!("column \"{name}\" of relation \"{}\" already exists", table.name),
    )
}

fn check_distinct_columns(columns: &[Column]) -> Result<()> {
    let mut names = HashSet::new();
    match columns.iter().find(|column| !names.insert(&column.name)) {
        Some(column) => {
            let message = format!("column \"{}\" specified more than once", column.name);
            Err(error(SqlState::DUPLICATE_COLUMN, message))
        }
        None => Ok(()),
    }
}

fn column_mut<'t>(table: &'t mut Table, name: &str) -> Result<&'t mut Column> {
    let missing = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
    let column = table.columns.iter_mut().find(|column| column.name == name);
    column.ok_or_else(|| error(SqlState::UNDEFINED_COLUMN, missing))
}

fn drop_column(table: &mut Table, name: &str, if_exists: bool) -> Result<()> {
    let Ok(column) = column_mut(table, name) else {
        return match if_exists {
            true => Ok(()),
            false => column_mut(table, name).map(drop),
        };
    };
    let id = column.id;
    let is_divided_by = partitions_of(table)?.is_some_and(|partitions| partitions.column == id);
    let used = match () {
        () if is_divided_by => Some("partitioned"),
        () if table.partition.iter().any(|key| key.column == id) => Some("partitioned"),
        () if table.sort.iter().any(|key| key.expression.trim_matches('"') == name) => Some("sorted"),
        () => None,
    };
    if let Some(used) = used {
        return Err(SqlError::new(
            SqlState::DEPENDENT_OBJECTS,
            format!("cannot drop column {name} of table {} because it is {used} by it", table.name),
        )
        .with_hint(format!("ALTER TABLE … RESET {} BY", used.to_uppercase()))
        .into_datafusion());
    }
    if table.columns.len() == 1 {
        return Err(unsupported_error(format!(
            "column \"{name}\" is the only one of table \"{}\"",
            table.name
        )));
    }
    table.columns.retain(|column| column.id != id);
    Ok(())
}

fn partition_keys(
    columns: &[Column],
    keys: Vec<(String, table_clauses::Transform)>,
) -> Result<Vec<PartitionKey>> {
    keys.into_iter()
        .map(|(name, transform)| {
            let transform = match transform {
                table_clauses::Transform::Identity => Transform::Identity,
                table_clauses::Transform::Year => Transform::Year,
                table_clauses::Transform::Month => Transform::Month,
                table_clauses::Transform::Day => Transform::Day,
                table_clauses::Transform::Hour => Transform::Hour,
                table_clauses::Transform::Bucket(count) => Transform::Bucket(count),
            };
            let column = columns.iter().find(|column| column.name == name).ok_or_else(|| {
                error(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" named in a partition key does not exist"),
                )
            })?;
            let is_time = matches!(
                column.kind,
                ColumnType::Timestamp
                    | ColumnType::TimestampTz
                    | ColumnType::TimestampS
                    | ColumnType::TimestampMs
                    | ColumnType::TimestampNs
            );
            let fits = match transform {
                // DuckDB considers some intervals equal that differ here.
                Transform::Identity => !column.kind.is_nested() && column.kind != ColumnType::Interval,
                Transform::Bucket(_) => !has_unreliable_buckets(column),
                Transform::Year | Transform::Month | Transform::Day => {
                    is_time || column.kind == ColumnType::Date
                }
                Transform::Hour => is_time,
            };
            match fits {
                true => Ok(PartitionKey { column: column.id, transform }),
                false => Err(error(
                    SqlState::DATATYPE_MISMATCH,
                    format!("column \"{name}\" of type {} cannot be partitioned in this way", column.kind),
                )),
            }
        })
        .collect()
}

fn sort_keys(columns: &[Column], keys: Vec<table_clauses::SortClause>) -> Result<Vec<SortKey>> {
    keys.into_iter()
        .map(|key| {
            let Some(column) = columns.iter().find(|column| column.name == key.column) else {
                let message = format!("column \"{}\" named in a sort key does not exist", key.column);
                return Err(error(SqlState::UNDEFINED_COLUMN, message));
            };
            // DuckDB orders them differently, and files have no bounds for them.
            if column.kind == ColumnType::Interval {
                let message = format!("column \"{}\" of type interval cannot be sorted by", column.name);
                return Err(error(SqlState::DATATYPE_MISMATCH, message));
            }
            Ok(SortKey {
                expression: format!("\"{}\"", key.column.replace('"', "\"\"")),
                dialect: "duckdb".to_string(),
                descending: key.descending,
                nulls_first: key.nulls_first,
            })
        })
        .collect()
}

/// Number of defaults in an ALTER TABLE operation.
fn defaults_of(operation: &AlterTableOperation) -> usize {
    match operation {
        AlterTableOperation::AddColumn { column_def, .. } => defaults_of_column(column_def),
        AlterTableOperation::AlterColumn { op: AlterColumnOperation::SetDefault { .. }, .. } => 1,
        _ => 0,
    }
}

fn defaults_of_column(column: &ast::ColumnDef) -> usize {
    column.options.iter().filter(|option| matches!(option.option, ColumnOption::Default(_))).count()
}

/// Source of a new table's stored defaults.
pub(crate) enum StoredDefaults {
    /// Their texts, by column name.
    Texts(BTreeMap<String, String>),
    /// The source table of LIKE.
    Like(Arc<Table>),
}

/// The stored default for new rows: a function call is evaluated per statement. `text`: its current value.
fn stored_default(
    value: &ast::Expr,
    text: Option<String>,
    written: &mut WrittenDefaults<'_>,
) -> Option<DefaultValue> {
    let sql = written.next(value);
    match without_casts(value) {
        ast::Expr::Function(_) => Some(DefaultValue::Expression { sql, dialect: DIALECT.to_string() }),
        _ => text.map(DefaultValue::Literal),
    }
}

/// The text of a literal in quotes.
fn literal_text(value: &ast::Expr) -> Option<&str> {
    match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// A literal in quotes as the default of a column of arrays, which the catalog keeps as an expression.
///
/// Errors: it is no array (22P02).
fn array_default(text: Option<&str>, kind: &DataType) -> Result<Option<DefaultValue>> {
    let (Some(text), DataType::List(item)) = (text, kind) else { return Ok(None) };
    let is_nested = matches!(item.data_type(), DataType::List(_));
    text_constants::elements(text, is_nested).map_err(SqlError::into_datafusion)?;
    let sql = format!("'{}'::{}", text.replace('\'', "''"), names::type_name(kind));
    Ok(Some(DefaultValue::Expression { sql, dialect: DIALECT.to_string() }))
}

/// The stored default of a column; `None` for NULL. `written`: the text of an expression.
fn default_value(
    default: &Expr,
    column: &Column,
    reading: &TimeReading,
    written: Option<&str>,
) -> Result<Option<DefaultValue>> {
    let literal = match default {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Negative(inner) => match inner.as_ref() {
            Expr::Literal(value, _) => value.arithmetic_negate().ok(),
            _ => None,
        },
        Expr::Cast(cast) => match cast.expr.as_ref() {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        },
        _ => None,
    };
    let Some(value) = literal else {
        let sql = match written {
            Some(written) => written.to_string(),
            None => expr_to_sql(default)?.to_string(),
        };
        return Ok(Some(DefaultValue::Expression { sql, dialect: DIALECT.to_string() }));
    };
    let kind = type_of(column, false)?;
    if let Some(array) = array_default(value.try_as_str().flatten(), &kind)? {
        return Ok(Some(array));
    }
    let value: ScalarValue = readable(value, &kind, reading)?.cast_to(&kind)?;
    Ok(constant(&value.to_array()?, &column.name)?.map(DefaultValue::Literal))
}
