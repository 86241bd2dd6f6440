//! DDL of keys and indexes: declare, change, drop.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, AlterIndexOperation, AlterTableOperation, DropBehavior, Expr, IndexColumn, IndexType,
};
use harrier_catalog::access::{Object, Privilege};
use harrier_catalog::state::{State, Table};
use harrier_error::{SqlError, SqlState};
use harrier_sql::identifier::plain;
use harrier_sql::parser::index::{ReindexKind, ReindexStatement};
use harrier_sqlstate::{IntoDataFusionError, error};

use crate::statement::ddl::Ddl;
use crate::warehouse::keys::change;
use crate::warehouse::keys::declaration::{KeyKind, of_constraint};
use crate::warehouse::keys::{
    Index, IndexKey, Item, KeyDeclaration, Keys, column_named, expressions, keys_notice, naming,
};
use crate::warehouse::relation::{no_relation, reference};

/// Command tag and notices of a completed statement.
pub(crate) type Completed = (&'static str, Vec<String>);

impl Ddl<'_> {
    /// Declares the keys of a new table; returns notices.
    ///
    /// Errors: those of [`change::add`].
    pub(crate) async fn declare(&self, table: &Table, declared: &[KeyDeclaration]) -> Result<Vec<String>> {
        if declared.is_empty() {
            return Ok(vec![]);
        }
        self.transactions
            .change(|transaction| {
                let Some(mut table) =
                    transaction.state.tables.get(&table.id).map(|table| Table::clone(table))
                else {
                    return Ok(vec![]);
                };
                for key in declared {
                    self.add_key(&transaction.state, &mut table, key)?;
                }
                let notices = notices_of(&table, declared);
                transaction.state_mut().tables.insert(table.id, Arc::new(table));
                Ok(notices)
            })
            .await
    }

    fn add_key(&self, state: &State, table: &mut Table, key: &KeyDeclaration) -> Result<()> {
        let target = match &key.what {
            KeyKind::Check { condition, not_valid } => {
                return self.add_check(state, table, key.name.as_deref(), condition, *not_valid).map(drop);
            }
            KeyKind::Foreign { table: name, .. } => Some(self.referenced_table(state, name, table)?),
            _ => None,
        };
        change::add(state, table, key, target.as_ref())
    }

    /// The table that a foreign key of `own` references.
    ///
    /// Errors: it does not exist (42P01, 3F000), is temporary (42P16) or not a table (42809), or may not be
    /// referenced (42501).
    fn referenced_table(&self, state: &State, name: &ast::ObjectName, own: &Table) -> Result<Table> {
        let name = reference(name)?;
        if self.names.is_temporary(&name) {
            let message = "constraints on permanent tables may reference only permanent tables";
            return Err(error(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        let schema = self.schema_in(state, &name)?.id;
        if schema == own.schema && name.table() == own.name {
            return Ok(own.clone());
        }
        match state.table(schema, name.table()) {
            Some(table) => {
                self.viewer().check(Object::Table(table.id), Privilege::References, state)?;
                Ok(Table::clone(table))
            }
            None if state.view(schema, name.table()).is_some() => {
                let message = format!("referenced relation \"{}\" is not a table", name.table());
                Err(error(SqlState::WRONG_OBJECT_TYPE, message))
            }
            None => Err(no_relation("relation", &name)),
        }
    }

    /// Runs an ALTER TABLE operation on constraints; false for other operations. `written`: the table's name
    /// in the statement.
    ///
    /// Errors: those of [`change`]; a column of a primary key contains NULLs (23502).
    pub(crate) async fn alter_keys(
        &self,
        table: &mut Table,
        operation: &AlterTableOperation,
        written: &TableReference,
        notices: &mut Vec<String>,
    ) -> Result<bool> {
        let snapshot = self.names.snapshot();
        let Some(state) = &snapshot.state else { return Ok(false) };
        match operation {
            AlterTableOperation::AddConstraint { constraint, not_valid } => {
                let Some(key) = of_constraint(constraint)? else { return Ok(false) };
                if let KeyKind::Check { condition, .. } = &key.what {
                    let name = self.add_check(state, table, key.name.as_deref(), condition, *not_valid)?;
                    if !*not_valid {
                        self.check_rows(table, &name, written).await?;
                    }
                    return Ok(true);
                }
                if *not_valid && !matches!(key.what, KeyKind::Foreign { .. }) {
                    let kind = if key.what == KeyKind::Primary { "PRIMARY KEY" } else { "UNIQUE" };
                    let message = format!("{kind} constraints cannot be marked NOT VALID");
                    return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                self.add_key_checked(state, table, &key, written).await?;
                notices.push(keys_notice(&table.name));
            }
            AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                notices.extend(change::drop_constraint(state, table, &plain(name), *if_exists, cascade)?);
            }
            AlterTableOperation::DropPrimaryKey { drop_behavior } => {
                let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                let Some(name) = Keys::of(table).primary().map(|primary| primary.name.clone()) else {
                    let message = format!("table \"{}\" has no primary key", table.name);
                    return Err(error(SqlState::UNDEFINED_OBJECT, message));
                };
                notices.extend(change::drop_constraint(state, table, &name, false, cascade)?);
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                change::rename_constraint(state, table, &plain(old_name), &plain(new_name))?;
            }
            AlterTableOperation::ValidateConstraint { name } => {
                let name = plain(name);
                match Keys::of(table).constraint(&name) {
                    Some(crate::warehouse::keys::Constraint {
                        kind: crate::warehouse::keys::Kind::Check(check),
                        ..
                    }) => {
                        if check.not_valid {
                            self.check_rows(table, &name, written).await?;
                            change::validate(table, &name)?;
                        }
                    }
                    Some(constraint) if constraint.is_index() => {
                        let message = format!(
                            "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                            table.name
                        );
                        return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
                    }
                    // Unchanged: existing rows are not checked.
                    Some(_) => notices.push(keys_notice(&table.name)),
                    None => {
                        let message =
                            format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
                        return Err(error(SqlState::UNDEFINED_OBJECT, message));
                    }
                }
            }
            AlterTableOperation::DropColumn { column_names, drop_behavior, .. } => {
                let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                for column in column_names {
                    notices.extend(change::drop_with_column(state, table, &plain(column), cascade)?);
                }
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Declares the constraints in the definition of a column added to `table`.
    pub(crate) async fn declare_added(
        &self,
        table: &mut Table,
        declared: &[KeyDeclaration],
        written: &TableReference,
        notices: &mut Vec<String>,
    ) -> Result<()> {
        let snapshot = self.names.snapshot();
        let (Some(state), false) = (&snapshot.state, declared.is_empty()) else { return Ok(()) };
        for key in declared {
            match &key.what {
                KeyKind::Check { condition, .. } => {
                    let name = self.add_check(state, table, key.name.as_deref(), condition, false)?;
                    self.check_rows(table, &name, written).await?;
                }
                _ => self.add_key(state, table, key)?,
            }
        }
        notices.extend(notices_of(table, declared));
        Ok(())
    }

    async fn add_key_checked(
        &self,
        state: &State,
        table: &mut Table,
        key: &KeyDeclaration,
        written: &TableReference,
    ) -> Result<()> {
        let before: Vec<i64> =
            table.columns.iter().filter(|column| column.nullable).map(|column| column.id).collect();
        self.add_key(state, table, key)?;
        let required = table.columns.iter().filter(|column| !column.nullable && before.contains(&column.id));
        let names: Vec<String> = required.map(|column| column.name.clone()).collect();
        for name in names {
            self.check_no_nulls(written, &name).await?;
        }
        Ok(())
    }

    /// Checks whether a table can be dropped: foreign keys of tables not in `dropped` may reference it.
    /// Returns notices about what CASCADE drops.
    ///
    /// Errors: there are such keys, without CASCADE (2BP01).
    pub(crate) fn check_references(
        &self,
        name: &TableReference,
        is_cascade: bool,
        dropped: &[ast::ObjectName],
    ) -> Result<Vec<String>> {
        let snapshot = self.names.snapshot();
        let (Some(state), Some(table)) = (&snapshot.state, self.names.table(name)) else { return Ok(vec![]) };
        let mut found = change::dependents(state, &table, None);
        found.retain(|(_, constraint)| match &constraint.kind {
            crate::warehouse::keys::Kind::Foreign(foreign) => Keys::target(state, foreign).is_some(),
            _ => false,
        });
        for name in dropped {
            if let Some(other) = self.names.table(&reference(name)?) {
                found.retain(|(table, _)| table.id != other.id);
            }
        }
        let what = format!("table {}", table.name);
        change::cascade(&found, is_cascade, &what, &what)
    }

    /// CREATE INDEX, ALTER INDEX and DROP INDEX; `None` for other statements.
    ///
    /// Errors: those of [`change`]; a column (42703), table (42P01), index or access method (42704) does not
    /// exist; an option is not supported (0A000).
    pub(crate) async fn index_statement(&self, statement: &ast::Statement) -> Result<Option<Completed>> {
        match statement {
            ast::Statement::CreateIndex(create) => self.create_index(create).await.map(Some),
            ast::Statement::AlterIndex { name, operation } => {
                let AlterIndexOperation::RenameIndex { index_name } = operation;
                self.rename_index(name, index_name, false).await.map(Some)
            }
            ast::Statement::Drop {
                object_type: ast::ObjectType::Index, names, if_exists, cascade, ..
            } => {
                let mut notices = vec![];
                for name in names {
                    notices.extend(self.drop_index(name, *if_exists, *cascade).await?);
                }
                Ok(Some(("DROP INDEX", notices)))
            }
            _ => Ok(None),
        }
    }

    async fn create_index(&self, create: &ast::CreateIndex) -> Result<Completed> {
        let written = reference(&create.table_name)?;
        let unsupported = |what: &str| Err(error(SqlState::FEATURE_NOT_SUPPORTED, what));
        if !create.index_options.is_empty() || !create.alter_options.is_empty() {
            return unsupported("an index has no such options");
        }
        let name = match create.name.as_ref().map(|name| name.0.as_slice()) {
            None => String::new(),
            Some([name]) => name.as_ident().map(plain).unwrap_or_default(),
            Some(_) => return Err(error(SqlState::SYNTAX_ERROR, "an index is in the schema of its table")),
        };
        let Some(table) = self.names.table(&written) else {
            if self.names.has_view(&written) && !self.names.is_temporary(&written) {
                let message = format!("cannot create index on relation \"{}\"", written.table());
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                    .with_detail("This operation is not supported for views.")
                    .into_datafusion());
            }
            return Err(self.names.no_table(&written, "CREATE INDEX").await);
        };
        let mut index = Index {
            number: 0,
            name,
            unique: create.unique,
            nulls_not_distinct: create.nulls_distinct == Some(false),
            method: method(create.using.as_ref())?,
            items: vec![],
            include: vec![],
            predicate: None,
        };
        let mut names = vec![];
        for column in &create.columns {
            names.push(item_name(column));
            index.items.push(item(column, &table)?);
        }
        for name in create.include.iter().map(plain) {
            match column_named(&table, &name) {
                Some(column) => index.include.push(column.id),
                None => {
                    let message = format!("column \"{name}\" does not exist");
                    return Err(error(SqlState::UNDEFINED_COLUMN, message));
                }
            }
            names.push(name);
        }
        if let Some(predicate) = &create.predicate {
            index.predicate = Some(expressions::of(predicate, &table)?);
        }
        let columns = naming::columns(names.iter().map(String::as_str));
        self.transactions
            .change(|transaction| {
                let state = &transaction.state;
                let Some(mut table) = state.tables.get(&table.id).map(|table| Table::clone(table)) else {
                    return Err(no_relation("relation", &written));
                };
                self.viewer().check_owner(Object::Table(table.id), state)?;
                let wanted = index.name.clone();
                let created = change::add_index(state, &mut table, index, &columns, create.if_not_exists)?;
                let notice = match created {
                    Some(name) => {
                        transaction.state_mut().tables.insert(table.id, Arc::new(table));
                        format!("index \"{name}\" is declared and not built")
                    }
                    None => format!("relation \"{wanted}\" already exists, skipping"),
                };
                Ok(("CREATE INDEX", vec![notice]))
            })
            .await
    }

    async fn drop_index(
        &self,
        name: &ast::ObjectName,
        if_exists: bool,
        is_cascade: bool,
    ) -> Result<Vec<String>> {
        let name = reference(name)?;
        self.transactions
            .change(|transaction| {
                let Some(mut table) = self.index_table(&transaction.state, &name)? else {
                    return match if_exists {
                        true => Ok(vec![format!("index \"{}\" does not exist, skipping", name.table())]),
                        false => Err(no_index(&name)),
                    };
                };
                let notices = change::drop_index(&transaction.state, &mut table, name.table(), is_cascade)?;
                transaction.state_mut().tables.insert(table.id, Arc::new(table));
                Ok(notices)
            })
            .await
    }

    /// ALTER INDEX … RENAME.
    pub(crate) async fn rename_index(
        &self,
        name: &ast::ObjectName,
        new: &ast::ObjectName,
        if_exists: bool,
    ) -> Result<Completed> {
        let name = reference(name)?;
        let new = reference(new)?.table().to_string();
        self.transactions
            .change(|transaction| {
                let Some(mut table) = self.index_table(&transaction.state, &name)? else {
                    let message = format!("relation \"{}\" does not exist", name.table());
                    return match if_exists {
                        true => Ok(("ALTER INDEX", vec![format!("{message}, skipping")])),
                        false => Err(error(SqlState::UNDEFINED_TABLE, message)),
                    };
                };
                change::rename_index(&transaction.state, &mut table, name.table(), &new)?;
                transaction.state_mut().tables.insert(table.id, Arc::new(table));
                Ok(("ALTER INDEX", vec![]))
            })
            .await
    }

    /// REINDEX: checks that the object exists; there is nothing to rebuild.
    pub(crate) fn reindex(&self, statement: &ReindexStatement) -> Result<Completed> {
        let name = reference(&statement.name)?;
        let snapshot = self.names.snapshot();
        let is_there = match statement.kind {
            ReindexKind::Index => match &snapshot.state {
                Some(state) => self.index_table(state, &name)?.is_some(),
                None => false,
            },
            ReindexKind::Table => self.names.table(&name).is_some() || self.names.is_temporary(&name),
            ReindexKind::Schema => self.names.has_schema(name.table()),
            ReindexKind::Database => true,
        };
        match is_there {
            true => Ok(("REINDEX", vec![])),
            false => Err(no_relation("relation", &name)),
        }
    }

    /// The table of an index.
    ///
    /// Errors: the role does not own it (42501); the name is that of a table or view (42809).
    fn index_table(&self, state: &State, name: &TableReference) -> Result<Option<Table>> {
        let Ok(schema) = self.schema_in(state, name) else { return Ok(None) };
        let schema = schema.id;
        let Some(table) = change::table_of_index(state, schema, name.table()) else {
            let is_other =
                state.table(schema, name.table()).is_some() || state.view(schema, name.table()).is_some();
            return match is_other {
                true => {
                    Err(error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not an index", name.table())))
                }
                false => Ok(None),
            };
        };
        self.viewer().check_owner(Object::Table(table.id), state)?;
        Ok(Some(table.clone()))
    }
}

/// Notices about declared constraints: keys are not enforced, CHECK constraints are.
fn notices_of(table: &Table, declared: &[KeyDeclaration]) -> Vec<String> {
    let has_keys = declared.iter().any(|key| !key.is_check());
    if has_keys { vec![keys_notice(&table.name)] } else { vec![] }
}

fn no_index(name: &TableReference) -> datafusion::error::DataFusionError {
    error(SqlState::UNDEFINED_OBJECT, format!("index \"{}\" does not exist", name.table()))
}

/// Errors: the access method does not exist (42704).
fn method(using: Option<&IndexType>) -> Result<String> {
    let name = using.map_or("btree".to_string(), |using| using.to_string().to_lowercase());
    match name.as_str() {
        "btree" | "hash" | "gist" | "gin" | "brin" | "spgist" => Ok(name),
        _ => {
            let message = format!("access method \"{name}\" does not exist");
            Err(error(SqlState::UNDEFINED_OBJECT, message))
        }
    }
}

fn item(column: &IndexColumn, table: &Table) -> Result<Item> {
    let by = &column.column;
    let what = match &by.expr {
        Expr::Identifier(name) => {
            let name = plain(name);
            match column_named(table, &name) {
                Some(column) => IndexKey::Column(column.id),
                None => {
                    let message = format!("column \"{name}\" does not exist");
                    return Err(error(SqlState::UNDEFINED_COLUMN, message));
                }
            }
        }
        other => IndexKey::Expression(expressions::of(other, table)?),
    };
    let class = column.operator_class.as_ref().map(reference).transpose()?;
    let descending = by.options.asc == Some(false);
    Ok(Item {
        what,
        class: class.map(|class| class.table().to_string()),
        descending,
        nulls_first: by.options.nulls_first.unwrap_or(descending),
    })
}

/// An index column's part in the generated index name.
fn item_name(column: &IndexColumn) -> String {
    match &column.column.expr {
        Expr::Identifier(name) => plain(name),
        Expr::Function(function) => {
            function.name.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default()
        }
        _ => "expr".to_string(),
    }
}
