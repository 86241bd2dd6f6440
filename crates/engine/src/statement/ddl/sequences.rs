//! DDL of sequences, and effects of table DDL on the sequences of columns.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{self, AlterColumnOperation, ObjectName};
use harrier_catalog::Transaction;
use harrier_catalog::access::Object;
use harrier_catalog::sequences::{Sequence, SequenceOwner, SequenceValue, get, uncommitted_value};
use harrier_catalog::state::{Column, ObjectId, State, Table};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::{IntoDataFusionError, error, unsupported_error};

use super::{Ddl, column_mut};
use crate::warehouse::explain;
use crate::warehouse::relation::no_relation;
use crate::warehouse::relation::reference;
use crate::warehouse::relation::wrong_kind;
use crate::warehouse::sequences::{
    IDENTITY_TAG, SEQUENCE_TAG, alter_sequence, catalog_type, identity_of, new_sequence,
    nextval_sequence_in_ast, sequence_of,
};
use harrier_sql::parser::sequence::{
    GeneratedColumn, IdentityChange, SequenceOptions, SequenceStatement, SequenceType,
};

/// Longest name in bytes: PostgreSQL truncates there.
const NAME_BYTES_MAX: usize = 63;

/// Outcome of a statement on sequences.
pub(crate) struct SequenceOutcome {
    pub tag: &'static str,
    /// Notices about skipped actions.
    pub notices: Vec<String>,
    /// The UUID of an altered sequence.
    pub altered: Option<String>,
}

impl Ddl<'_> {
    /// Runs a statement on sequences.
    ///
    /// Errors: those of PostgreSQL.
    pub(crate) async fn sequence_statement(&self, statement: &SequenceStatement) -> Result<SequenceOutcome> {
        let done = |tag| SequenceOutcome { tag, notices: vec![], altered: None };
        let missing = |name: &ObjectName| -> Result<String> {
            Ok(format!("relation \"{}\" does not exist, skipping", reference(name)?.table()))
        };
        Ok(match statement {
            SequenceStatement::Create { name, if_not_exists, options } => {
                let mut done = done("CREATE SEQUENCE");
                let name = reference(name)?;
                if !self.create_sequence(&name, *if_not_exists, options).await? {
                    done.notices.push(format!("relation \"{}\" already exists, skipping", name.table()));
                }
                done
            }
            SequenceStatement::Alter { name, if_exists, options } => {
                let mut done = done("ALTER SEQUENCE");
                match self.alter_sequence(&reference(name)?, *if_exists, options).await? {
                    Some(uuid) => done.altered = Some(uuid),
                    None => done.notices.push(missing(name)?),
                }
                done
            }
            SequenceStatement::Rename { name, if_exists, to } => {
                let mut done = done("ALTER SEQUENCE");
                if !self.rename_sequence(&reference(name)?, *if_exists, to).await? {
                    done.notices.push(missing(name)?);
                }
                done
            }
            SequenceStatement::Drop { names, if_exists, cascade } => {
                let mut done = done("DROP SEQUENCE");
                for name in names {
                    let name = reference(name)?;
                    if !self.drop_sequence(&name, *if_exists, *cascade).await? {
                        done.notices.push(format!("sequence \"{}\" does not exist, skipping", name.table()));
                    }
                }
                done
            }
            SequenceStatement::AlterIdentity { table, if_exists, column, change } => {
                let mut done = done("ALTER TABLE");
                let name = reference(table)?;
                let Some(table) = self.names.table(&name) else {
                    match *if_exists && !self.names.is_temporary(&name) {
                        true => done.notices.push(missing(table)?),
                        false => return Err(self.names.no_table(&name, "ALTER TABLE").await),
                    }
                    return Ok(done);
                };
                self.check_owner(Object::Table(table.id))?;
                done.altered = self.alter_identity(&name, &table, column, change, &mut done.notices).await?;
                done
            }
        })
    }

    fn sequence_in<'s>(&self, state: &'s State, name: &TableReference) -> Result<Option<&'s Arc<Sequence>>> {
        let Ok(schema) = self.schema_in(state, name) else { return Ok(None) };
        match state.sequence(schema.id, name.table()) {
            None if state.has_relation(schema.id, name.table()) => Err(wrong_kind(name, "sequence")),
            found => Ok(found),
        }
    }

    /// Returns whether the sequence was created.
    async fn create_sequence(
        &self,
        name: &TableReference,
        if_not_exists: bool,
        options: &SequenceOptions,
    ) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let schema = self.schema_for(&transaction.state, name)?;
                if transaction.state.has_relation(schema, name.table()) {
                    return match if_not_exists {
                        true => Ok(false),
                        false => Err(name_taken(name.table())),
                    };
                }
                let name = name.table().to_string();
                let mut sequence = new_sequence(schema, name, options, SequenceType::BigInt)?;
                if let Some(owner) = &options.owned_by {
                    sequence.owner = self.owner(&transaction.state, &sequence, owner.as_ref())?;
                }
                add(transaction, sequence);
                Ok(true)
            })
            .await
    }

    /// The column of OWNED BY. The session's role owns a new sequence.
    fn owner(
        &self,
        state: &State,
        sequence: &Sequence,
        owner: Option<&ObjectName>,
    ) -> Result<Option<SequenceOwner>> {
        let Some(owner) = owner else { return Ok(None) };
        let parts = owner.0.len();
        if parts < 2 {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")
                .into_datafusion());
        }
        let column = owner.0[parts - 1].as_ident().map(harrier_sql::identifier::plain).unwrap_or_default();
        let name = reference(&ObjectName(owner.0[..parts - 1].to_vec()))?;
        let within = self.schema_in(state, &name)?.id;
        let table = state.table(within, name.table()).ok_or_else(|| no_relation("relation", &name))?;
        if !self.viewer().have_one_owner(Object::Sequence(sequence.id), Object::Table(table.id)) {
            let message = "sequence must have same owner as table it is linked to";
            return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        if within != sequence.schema {
            let message = "sequence must be in same schema as table it is linked to";
            return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let found = table.columns.iter().find(|own| own.name == column).ok_or_else(|| {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            error(SqlState::UNDEFINED_COLUMN, message)
        })?;
        Ok(Some(SequenceOwner { table: table.id, column: found.id, is_identity: false }))
    }

    /// A sequence's current value in this transaction.
    async fn value_of_sequence(&self, sequence: &Sequence) -> Result<SequenceValue> {
        let snapshot = self.names.snapshot();
        if let Some(own) = snapshot.values.get(&sequence.id) {
            return Ok(get(own));
        }
        let committed = match &snapshot.catalog {
            Some(catalog) => catalog.sequence_values().await.map_err(explain)?.get(&sequence.id).copied(),
            None => None,
        };
        Ok(committed.unwrap_or_else(|| sequence.start_value()))
    }

    /// Returns its UUID; `None` if it does not exist.
    async fn alter_sequence(
        &self,
        name: &TableReference,
        if_exists: bool,
        options: &SequenceOptions,
    ) -> Result<Option<String>> {
        let snapshot = self.names.snapshot();
        let found = match &snapshot.state {
            Some(state) => self.sequence_in(state, name)?.cloned(),
            None => None,
        };
        let Some(sequence) = found else {
            return if if_exists { Ok(None) } else { Err(no_relation("relation", name)) };
        };
        self.check_owner(Object::Sequence(sequence.id))?;
        if options.owned_by.is_some() && sequence.owner.is_some_and(|owner| owner.is_identity) {
            let message = "cannot change ownership of identity sequence";
            return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let value = self.value_of_sequence(&sequence).await?;
        self.transactions
            .change(|transaction| {
                let (mut other, restart) = alter_sequence(&sequence, options, value)?;
                if let Some(owner) = &options.owned_by {
                    other.owner = self.owner(&transaction.state, &sequence, owner.as_ref())?;
                }
                replace(transaction, other, restart);
                Ok(Some(sequence.uuid.clone()))
            })
            .await
    }

    pub(super) async fn rename_sequence(
        &self,
        name: &TableReference,
        if_exists: bool,
        to: &str,
    ) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let Some(sequence) = self.sequence_in(&transaction.state, name)?.cloned() else {
                    return if if_exists { Ok(false) } else { Err(no_relation("relation", name)) };
                };
                self.viewer().check_owner(Object::Sequence(sequence.id), &transaction.state)?;
                if transaction.state.has_relation(sequence.schema, to) {
                    return Err(name_taken(to));
                }
                replace(transaction, Sequence { name: to.to_string(), ..Sequence::clone(&sequence) }, None);
                Ok(true)
            })
            .await
    }

    pub(super) async fn comment_on_sequence(
        &self,
        name: &TableReference,
        comment: Option<String>,
    ) -> Result<()> {
        self.transactions
            .change(|transaction| {
                let sequence = self.sequence_in(&transaction.state, name)?;
                let sequence = Sequence::clone(sequence.ok_or_else(|| no_relation("relation", name))?);
                self.viewer().check_owner(Object::Sequence(sequence.id), &transaction.state)?;
                replace(transaction, Sequence { comment, ..sequence }, None);
                Ok(())
            })
            .await
    }

    async fn drop_sequence(&self, name: &TableReference, if_exists: bool, cascade: bool) -> Result<bool> {
        self.transactions
            .change(|transaction| {
                let Some(sequence) = self.sequence_in(&transaction.state, name)?.cloned() else {
                    return if if_exists { Ok(false) } else { Err(no_relation("sequence", name)) };
                };
                self.check_drop(Object::Sequence(sequence.id), &transaction.state)?;
                if let Some(owner) = sequence.owner.filter(|owner| owner.is_identity)
                    && let Some(table) = transaction.state.tables.get(&owner.table)
                    && let Some(column) = table.columns.iter().find(|column| column.id == owner.column)
                {
                    let what = format!("column {} of table {}", column.name, table.name);
                    let message =
                        format!("cannot drop sequence {} because {what} requires it", sequence.name);
                    return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
                        .with_hint(format!("You can drop {what} instead."))
                        .into_datafusion());
                }
                if cascade {
                    remove_default(transaction, &sequence.uuid);
                }
                transaction.state_mut().sequences.remove(&sequence.id);
                adjust_sequences(transaction, &[sequence])?;
                Ok(true)
            })
            .await
    }

    /// Returns the UUID of the altered sequence, if any.
    async fn alter_identity(
        &self,
        name: &TableReference,
        table: &Table,
        column: &str,
        change: &IdentityChange,
        notices: &mut Vec<String>,
    ) -> Result<Option<String>> {
        let mut changed = table.clone();
        let found = column_mut(&mut changed, column)?.clone();
        let relation = format!("column \"{column}\" of relation \"{}\"", table.name);
        let not_there = || {
            let message = format!("{relation} is not an identity column");
            error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        };
        let is_identity = identity_of(&found).is_some();
        let state = self.names.snapshot().state.unwrap_or_else(|| unreachable!("a table without a state"));
        match change {
            IdentityChange::Add(..) if is_identity => {
                let message = format!("{relation} is already an identity column");
                Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
            }
            IdentityChange::Add(..) if found.default.is_some() || found.tags.contains_key(SEQUENCE_TAG) => {
                let message = format!("{relation} already has a default value");
                Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
            }
            IdentityChange::Add(..) if found.nullable => {
                let message = format!("{relation} must be declared NOT NULL before identity can be added");
                Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
            }
            IdentityChange::Add(identity, options) => {
                let generated = GeneratedColumn {
                    column: column.to_string(),
                    identity: Some(*identity),
                    options: options.clone(),
                };
                self.transactions
                    .change(|transaction| {
                        generate(transaction, &mut changed, &[generated])?;
                        transaction.state_mut().tables.insert(changed.id, Arc::new(changed));
                        Ok(None)
                    })
                    .await
            }
            IdentityChange::Drop { if_exists } if !is_identity => match if_exists {
                true => {
                    notices.push(format!("{relation} is not an identity column, skipping"));
                    Ok(None)
                }
                false => Err(not_there()),
            },
            IdentityChange::Set(..) if !is_identity => Err(not_there()),
            IdentityChange::Drop { .. } => {
                let column = column_mut(&mut changed, column)?;
                column.tags.remove(IDENTITY_TAG);
                let uuid = column.tags.remove(SEQUENCE_TAG);
                self.transactions
                    .change(|transaction| {
                        let state = transaction.state_mut();
                        state.tables.insert(changed.id, Arc::new(changed));
                        let own = |sequence: &Sequence| Some(&sequence.uuid) == uuid.as_ref();
                        state.sequences.retain(|_, sequence| !own(sequence));
                        adjust_sequences(transaction, &[])?;
                        Ok(None)
                    })
                    .await
            }
            IdentityChange::Set(identity, options) => {
                let Some(sequence) = sequence_of(&state, &found).cloned() else {
                    return Err(no_relation("the sequence of", name));
                };
                if options.owned_by.is_some() || options.name.is_some() || options.kind.is_some() {
                    return Err(error(SqlState::SYNTAX_ERROR, "invalid option of an identity column"));
                }
                let value = self.value_of_sequence(&sequence).await?;
                if let Some(identity) = identity {
                    let tags = &mut column_mut(&mut changed, column)?.tags;
                    tags.insert(IDENTITY_TAG.to_string(), identity.name().to_string());
                }
                self.transactions
                    .change(|transaction| {
                        let (other, restart) = alter_sequence(&sequence, options, value)?;
                        transaction.state_mut().tables.insert(changed.id, Arc::new(changed));
                        replace(transaction, other, restart);
                        Ok(Some(sequence.uuid.clone()))
                    })
                    .await
            }
        }
    }

    /// Restarts the sequences of a table's columns, for TRUNCATE … RESTART IDENTITY; returns their UUIDs.
    pub(super) async fn restart_identity(&self, table: ObjectId) -> Result<Vec<String>> {
        self.transactions
            .change(|transaction| {
                let owned =
                    |sequence: &&Arc<Sequence>| sequence.owner.is_some_and(|owner| owner.table == table);
                let sequences: Vec<Arc<Sequence>> =
                    transaction.state.sequences.values().filter(owned).cloned().collect();
                for sequence in &sequences {
                    self.viewer().check_owner(Object::Sequence(sequence.id), &transaction.state)?;
                    transaction.values.insert(sequence.id, uncommitted_value(sequence.start_value()));
                }
                Ok(sequences.iter().map(|sequence| sequence.uuid.clone()).collect())
            })
            .await
    }

    /// Sets a column's default if it is the next value of a sequence. Returns whether it is.
    ///
    /// Errors: the sequence does not exist (42P01).
    pub(super) fn set_sequence_default(&self, column: &mut Column, value: &ast::Expr) -> Result<bool> {
        column.tags.remove(SEQUENCE_TAG);
        let Some(name) = nextval_sequence_in_ast(value) else { return Ok(false) };
        self.use_sequence(column, &name).map(|()| true)
    }

    /// Makes a column take its default from the sequence of this name, in SQL syntax. The privilege is
    /// checked for each role that inserts rows.
    pub(super) fn use_sequence(&self, column: &mut Column, name: &str) -> Result<()> {
        let name = TableReference::parse_str(name);
        let state = self.names.snapshot().state;
        let found = match &state {
            Some(state) => self.sequence_in(state, &name)?.cloned(),
            None => None,
        };
        let sequence = found.ok_or_else(|| no_relation("relation", &name))?;
        column.default = None;
        column.tags.insert(SEQUENCE_TAG.to_string(), sequence.uuid.clone());
        Ok(())
    }

    /// Errors: the table has rows, which would need values for a new column with a sequence (0A000).
    pub(super) async fn check_no_rows(&self, table: &TableReference, column: &str) -> Result<()> {
        let sql = format!("SELECT 1 FROM {} LIMIT 1", table.to_quoted_string());
        let rows = self.context.sql(&sql).await?.collect().await?;
        match rows.iter().any(|batch| batch.num_rows() > 0) {
            true => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!(
                    "column \"{column}\" with values of a sequence cannot be added to a table that has rows"
                ),
            )
            .with_hint("CREATE TABLE … makes another, and INSERT … SELECT puts the rows into it")
            .into_datafusion()),
            false => Ok(()),
        }
    }
}

fn name_taken(name: &str) -> DataFusionError {
    error(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// Adds a new sequence to a transaction.
fn add(transaction: &mut Transaction, mut sequence: Sequence) {
    sequence.id = transaction.allocate_object();
    transaction.values.insert(sequence.id, uncommitted_value(sequence.start_value()));
    transaction.state_mut().sequences.insert(sequence.id, Arc::new(sequence));
}

/// Replaces a sequence's definition.
fn replace(transaction: &mut Transaction, sequence: Sequence, restart: Option<SequenceValue>) {
    if let Some(value) = restart {
        transaction.values.insert(sequence.id, uncommitted_value(value));
    }
    if transaction.state.sequences.get(&sequence.id).map(|before| &**before) != Some(&sequence) {
        transaction.state_mut().sequences.insert(sequence.id, Arc::new(sequence));
    }
}

/// Removes the default of columns that take their values from a sequence.
fn remove_default(transaction: &mut Transaction, uuid: &str) {
    let uses = |column: &Column| column.tags.get(SEQUENCE_TAG).is_some_and(|own| own == uuid);
    let tables: Vec<Arc<Table>> = transaction.state.tables.values().cloned().collect();
    for table in tables.iter().filter(|table| table.columns.iter().any(uses)) {
        let mut table = Table::clone(table);
        for column in table.columns.iter_mut().filter(|column| uses(column)) {
            column.tags.remove(SEQUENCE_TAG);
        }
        transaction.state_mut().tables.insert(table.id, Arc::new(table));
    }
}

/// Drops the sequences of dropped columns and schemas, and adapts the types of identity columns' sequences.
/// `dropped`: sequences that the statement drops itself.
///
/// Errors: a remaining column takes its values from a dropped sequence (2BP01).
pub(super) fn adjust_sequences(transaction: &mut Transaction, dropped: &[Arc<Sequence>]) -> Result<()> {
    if transaction.state.sequences.is_empty() && dropped.is_empty() {
        return Ok(());
    }
    let state = &transaction.state;
    let column_of = |sequence: &Sequence| {
        let owner = sequence.owner?;
        let table = state.tables.get(&owner.table)?;
        table.columns.iter().find(|column| column.id == owner.column)
    };
    let is_reachable = |sequence: &Sequence| {
        let is_unusable = sequence.owner.is_some_and(|owner| state.unusable.contains_key(&owner.table));
        state.schemas.contains_key(&sequence.schema)
            && (sequence.owner.is_none() || is_unusable || column_of(sequence).is_some())
    };
    let orphaned: Vec<Arc<Sequence>> =
        state.sequences.values().filter(|sequence| !is_reachable(sequence)).cloned().collect();
    let mut widened = Vec::new();
    for sequence in
        state.sequences.values().filter(|sequence| sequence.owner.is_some_and(|owner| owner.is_identity))
    {
        let kind = column_of(sequence).and_then(|column| type_of_sequence(column.kind));
        if let Some(kind) = kind.filter(|kind| catalog_type(*kind) != sequence.kind) {
            let options = SequenceOptions { kind: Some(kind), ..SequenceOptions::default() };
            widened.push(alter_sequence(sequence, &options, sequence.start_value())?.0);
        }
    }
    if !orphaned.is_empty() {
        let sequences = &mut transaction.state_mut().sequences;
        orphaned.iter().for_each(|sequence| drop(sequences.remove(&sequence.id)));
    }
    for sequence in widened {
        replace(transaction, sequence, None);
    }
    for table in transaction.state.tables.values() {
        for column in &table.columns {
            let Some(uuid) = column.tags.get(SEQUENCE_TAG) else { continue };
            let Some(sequence) = dropped.iter().chain(&orphaned).find(|sequence| sequence.uuid == *uuid)
            else {
                continue;
            };
            let name = &sequence.name;
            let message = format!("cannot drop sequence {name} because other objects depend on it");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
                .with_detail(format!(
                    "default value for column {} of table {} depends on sequence {name}",
                    column.name, table.name
                ))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into_datafusion());
        }
    }
    Ok(())
}

fn type_of_sequence(kind: ColumnType) -> Option<SequenceType> {
    match kind {
        ColumnType::Int16 => Some(SequenceType::SmallInt),
        ColumnType::Int32 => Some(SequenceType::Integer),
        ColumnType::Int64 => Some(SequenceType::BigInt),
        _ => None,
    }
}

/// Creates the sequences of a table's generated columns.
///
/// Errors: a column has another type (22023), also has a default (42601), or is named twice.
pub(super) fn generate(
    transaction: &mut Transaction,
    table: &mut Table,
    generated: &[GeneratedColumn],
) -> Result<()> {
    for (at, one) in generated.iter().enumerate() {
        let relation = table.name.clone();
        let (id, schema) = (table.id, table.schema);
        let column = column_mut(table, &one.column)?;
        let of = format!("column \"{}\" of table \"{relation}\"", one.column);
        let syntax = |message: String| error(SqlState::SYNTAX_ERROR, message);
        if generated[..at].iter().any(|other| other.column == one.column) {
            return Err(syntax(match one.identity {
                Some(_) if generated[..at].iter().any(|other| other.identity.is_none()) => {
                    format!("both default and identity specified for {of}")
                }
                _ => format!("multiple identity specifications for {of}"),
            }));
        }
        if column.default.is_some() || column.tags.contains_key(SEQUENCE_TAG) {
            return Err(syntax(match one.identity {
                Some(_) => format!("both default and identity specified for {of}"),
                None => format!("multiple default values specified for {of}"),
            }));
        }
        let Some(kind) = type_of_sequence(column.kind) else {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(error(SqlState::INVALID_PARAMETER_VALUE, message));
        };
        if one.options.owned_by.is_some() || one.options.restart.is_some() {
            return Err(syntax("invalid option of an identity column".to_string()));
        }
        let name = match &one.options.name {
            Some(name) => {
                let name = reference(name)?.table().to_string();
                if transaction.state.has_relation(schema, &name) {
                    return Err(name_taken(&name));
                }
                name
            }
            None => free_name(&transaction.state, schema, &relation, &one.column),
        };
        let mut sequence = new_sequence(schema, name, &one.options, kind)?;
        sequence.owner =
            Some(SequenceOwner { table: id, column: column.id, is_identity: one.identity.is_some() });
        column.nullable = false;
        column.tags.insert(SEQUENCE_TAG.to_string(), sequence.uuid.clone());
        if let Some(identity) = one.identity {
            column.tags.insert(IDENTITY_TAG.to_string(), identity.name().to_string());
        }
        add(transaction, sequence);
    }
    Ok(())
}

/// `table_column_seq`, shortened as in PostgreSQL, with a number if the name is taken.
fn free_name(state: &State, schema: ObjectId, table: &str, column: &str) -> String {
    let name = |label: &str| {
        let (mut first, mut second) = (table.len(), column.len());
        while first + second + label.len() + 2 > NAME_BYTES_MAX {
            if first > second { first -= 1 } else { second -= 1 }
        }
        let cut = |text: &str, mut end: usize| {
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text[..end].to_string()
        };
        format!("{}_{}_{label}", cut(table, first), cut(column, second))
    };
    let plain = name("seq");
    let numbered = (1..).map(|number| name(&format!("seq{number}")));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    names.find(|name| !state.has_relation(schema, name)).unwrap_or(plain)
}

/// Errors: the operation does not apply to identity columns (42601).
pub(super) fn check_identity(column: &Column, table: &Table, operation: &AlterColumnOperation) -> Result<()> {
    if identity_of(column).is_none() {
        return Ok(());
    }
    let coded = || {
        let message =
            format!("column \"{}\" of relation \"{}\" is an identity column", column.name, table.name);
        SqlError::new(SqlState::SYNTAX_ERROR, message)
    };
    match operation {
        AlterColumnOperation::DropDefault => Err(coded()
            .with_hint("Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.")
            .into_datafusion()),
        AlterColumnOperation::SetDefault { .. } | AlterColumnOperation::DropNotNull => {
            Err(coded().into_datafusion())
        }
        AlterColumnOperation::SetDataType { .. } | AlterColumnOperation::SetNotNull => Ok(()),
        other => Err(unsupported_error(format!("ALTER COLUMN … {other} of an identity column"))),
    }
}
