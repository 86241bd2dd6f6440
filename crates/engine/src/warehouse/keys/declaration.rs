//! Keys and CHECK constraints in statements, extracted from the rest of the statement, which the planner
//! supports.

use std::borrow::Cow;
use std::collections::HashSet;

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, ColumnOption, ColumnOptionDef, ConstraintCharacteristics, ConstraintReferenceMatchKind,
    DeferrableInitial, ForeignKeyConstraint, IndexColumn, NullsDistinctOption, ReferentialAction,
    TableConstraint,
};
use harrier_error::{SqlError, SqlState};
use harrier_sql::identifier::plain;
use harrier_sqlstate::IntoDataFusionError;

use crate::warehouse::keys::Action;

/// A key or a CHECK constraint declared by a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyDeclaration {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) deferrable: bool,
    pub(crate) deferred: bool,
    pub(crate) what: KeyKind,
}

impl KeyDeclaration {
    /// Whether it is a CHECK constraint and not a key.
    pub(crate) fn is_check(&self) -> bool {
        matches!(self.what, KeyKind::Check { .. })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyKind {
    Primary,
    Unique {
        nulls_not_distinct: bool,
    },
    Foreign {
        table: ast::ObjectName,
        /// Empty for the primary key.
        referenced: Vec<String>,
        on_update: Action,
        on_delete: Action,
        full: bool,
    },
    Check {
        condition: Box<ast::Expr>,
        not_valid: bool,
    },
    /// Turns a unique index into a constraint.
    UsingIndex {
        index: String,
        is_primary: bool,
    },
}

/// Extracts the keys of a CREATE TABLE: returns the statement without them, and the keys in PostgreSQL's
/// order, in which those with indexes come first and the primary key before others. Columns of the primary
/// key become NOT NULL. Other statements, and those without keys, are returned as they are.
///
/// Errors: two primary keys (42P16); a key column does not exist (42703) or is repeated (42701); a key is
/// declared ENFORCED or with an unsupported option (0A000).
pub(crate) fn extract_keys(statement: &Statement) -> Result<(Cow<'_, Statement>, Vec<KeyDeclaration>)> {
    let Statement::Statement(parsed) = statement else { return Ok((Cow::Borrowed(statement), vec![])) };
    let ast::Statement::CreateTable(create) = parsed.as_ref() else {
        return Ok((Cow::Borrowed(statement), vec![]));
    };
    let mut create = create.clone();
    let mut declared = vec![];
    for column in &mut create.columns {
        declared.extend(of_column(column)?);
    }
    for constraint in std::mem::take(&mut create.constraints) {
        match of_constraint(&constraint)? {
            Some(key) => declared.push(key),
            // Left to the planner.
            None => create.constraints.push(constraint),
        }
    }
    if declared.is_empty() {
        return Ok((Cow::Borrowed(statement), declared));
    }
    if create.query.is_some() {
        let message = "keys are not declared in CREATE TABLE … AS";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("ALTER TABLE … ADD PRIMARY KEY, UNIQUE or FOREIGN KEY declares them")
            .into_datafusion());
    }
    let table = create.name.0.last().and_then(|part| part.as_ident()).map(plain).unwrap_or_default();
    if declared.iter().filter(|key| key.what == KeyKind::Primary).count() > 1 {
        return Err(several_primary(&table));
    }
    for key in &declared {
        let names: Vec<String> = create.columns.iter().map(|column| plain(&column.name)).collect();
        check_columns(key, |name| names.iter().any(|column| column == name))?;
    }
    if let Some(primary) = declared.iter().find(|key| key.what == KeyKind::Primary) {
        for column in
            create.columns.iter_mut().filter(|column| primary.columns.contains(&plain(&column.name)))
        {
            if column.options.iter().any(|option| matches!(option.option, ColumnOption::Null)) {
                let message = format!(
                    "conflicting NULL/NOT NULL declarations for column \"{}\" of table \"{table}\"",
                    plain(&column.name)
                );
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
            }
            if !column.options.iter().any(|option| matches!(option.option, ColumnOption::NotNull)) {
                column.options.push(ColumnOptionDef { name: None, option: ColumnOption::NotNull });
            }
        }
    }
    let rank = |key: &KeyDeclaration| match key.what {
        KeyKind::Primary => 0,
        KeyKind::Foreign { .. } => 2,
        KeyKind::Check { .. } => 3,
        _ => 1,
    };
    declared.sort_by_key(rank);
    merge(&mut declared);
    let create = ast::Statement::CreateTable(create);
    Ok((Cow::Owned(Statement::Statement(Box::new(create))), declared))
}

/// Whether a CREATE TABLE of an in-memory table declares keys, which are not stored for such tables.
///
/// Errors: a CHECK constraint, which would not be enforced (0A000); those of [`extract_keys`].
pub(crate) fn keys_in_memory(statement: &Statement) -> Result<bool> {
    let declared = extract_keys(statement)?.1;
    if declared.iter().any(KeyDeclaration::is_check) {
        let message = "temporary tables and tables in memory have no check constraints";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("tables of a warehouse have them")
            .into_datafusion());
    }
    Ok(!declared.is_empty())
}

/// Extracts the keys of a column definition.
///
/// Errors: a key is declared ENFORCED or with an unsupported option (0A000).
pub(crate) fn of_column(column: &mut ast::ColumnDef) -> Result<Vec<KeyDeclaration>> {
    let own = vec![plain(&column.name)];
    let mut found = vec![];
    let mut rest = vec![];
    for option in std::mem::take(&mut column.options) {
        let name = option.name.as_ref().map(plain);
        let key = match &option.option {
            ColumnOption::PrimaryKey(key) => {
                Some(key_declaration(name, own.clone(), key.characteristics, KeyKind::Primary)?)
            }
            ColumnOption::Unique(key) => {
                let what = KeyKind::Unique { nulls_not_distinct: not_distinct(&key.nulls_distinct) };
                Some(key_declaration(name, own.clone(), key.characteristics, what)?)
            }
            ColumnOption::ForeignKey(key) => {
                Some(key_declaration(name, own.clone(), key.characteristics, foreign(key)?)?)
            }
            ColumnOption::Check(check) => {
                let name = name.or_else(|| check.name.as_ref().map(plain));
                Some(of_check(name, check)?)
            }
            _ => None,
        };
        match key {
            Some(key) => found.push(key),
            None => rest.push(option),
        }
    }
    column.options = rest;
    Ok(found)
}

/// Converts a table constraint to a key; `None` if it is none.
///
/// Errors: as [`of_column`].
pub(crate) fn of_constraint(constraint: &TableConstraint) -> Result<Option<KeyDeclaration>> {
    let (name, columns, characteristics, what) = match constraint {
        TableConstraint::PrimaryKey(key) => {
            let is_plain =
                key.index_name.is_none() && key.index_type.is_none() && key.index_options.is_empty();
            plain_key(is_plain)?;
            (&key.name, names(&key.columns)?, key.characteristics, KeyKind::Primary)
        }
        TableConstraint::Unique(key) => {
            let is_plain =
                key.index_name.is_none() && key.index_type.is_none() && key.index_options.is_empty();
            plain_key(is_plain)?;
            let what = KeyKind::Unique { nulls_not_distinct: not_distinct(&key.nulls_distinct) };
            (&key.name, names(&key.columns)?, key.characteristics, what)
        }
        TableConstraint::ForeignKey(key) => {
            plain_key(key.index_name.is_none())?;
            (&key.name, key.columns.iter().map(plain).collect(), key.characteristics, foreign(key)?)
        }
        TableConstraint::PrimaryKeyUsingIndex(key) | TableConstraint::UniqueUsingIndex(key) => {
            let is_primary = matches!(constraint, TableConstraint::PrimaryKeyUsingIndex(_));
            let what = KeyKind::UsingIndex { index: plain(&key.index_name), is_primary };
            (&key.name, vec![], key.characteristics, what)
        }
        TableConstraint::Check(check) => return of_check(check.name.as_ref().map(plain), check).map(Some),
        _ => return Ok(None),
    };
    key_declaration(name.as_ref().map(plain), columns, characteristics, what).map(Some)
}

/// Errors: a column does not exist (42703) or is repeated (42701).
pub(crate) fn check_columns(key: &KeyDeclaration, has: impl Fn(&str) -> bool) -> Result<()> {
    let mut seen = HashSet::new();
    for name in &key.columns {
        if !has(name) {
            let message = match key.what {
                KeyKind::Foreign { .. } => {
                    format!("column \"{name}\" referenced in foreign key constraint does not exist")
                }
                _ => format!("column \"{name}\" named in key does not exist"),
            };
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message).into_datafusion());
        }
        let kind = match key.what {
            KeyKind::Primary => "primary key",
            KeyKind::Unique { .. } => "unique",
            _ => continue,
        };
        if !seen.insert(name) {
            let message = format!("column \"{name}\" appears twice in {kind} constraint");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message).into_datafusion());
        }
    }
    Ok(())
}

pub(crate) fn several_primary(table: &str) -> datafusion::error::DataFusionError {
    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).into_datafusion()
}

/// Merges identical constraints, as PostgreSQL does; the name of either is kept.
fn merge(declared: &mut Vec<KeyDeclaration>) {
    let mut kept: Vec<KeyDeclaration> = vec![];
    for key in std::mem::take(declared) {
        let is_same = |other: &&mut KeyDeclaration| {
            let has_index = matches!(key.what, KeyKind::Unique { .. });
            has_index
                && (other.what == key.what || other.what == KeyKind::Primary)
                && other.columns == key.columns
                && (other.deferrable, other.deferred) == (key.deferrable, key.deferred)
                && (other.name.is_none() || key.name.is_none())
        };
        let same = kept.iter_mut().find(is_same);
        match same {
            Some(other) => other.name = other.name.take().or(key.name),
            None => kept.push(key),
        }
    }
    *declared = kept;
}

fn key_declaration(
    name: Option<String>,
    columns: Vec<String>,
    characteristics: Option<ConstraintCharacteristics>,
    what: KeyKind,
) -> Result<KeyDeclaration> {
    let ConstraintCharacteristics { deferrable, initially, enforced } = characteristics.unwrap_or_default();
    if enforced == Some(true) {
        let message = "keys of tables are declared and not ENFORCED";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let deferred = initially == Some(DeferrableInitial::Deferred);
    if deferred && deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
    }
    let deferrable = deferrable.unwrap_or(deferred);
    Ok(KeyDeclaration { name, columns, deferrable, deferred, what })
}

/// Errors: declared NOT ENFORCED (0A000).
fn of_check(name: Option<String>, check: &ast::CheckConstraint) -> Result<KeyDeclaration> {
    if check.enforced == Some(false) {
        let message = "check constraints cannot be NOT ENFORCED";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    let what = KeyKind::Check { condition: check.expr.clone(), not_valid: false };
    Ok(KeyDeclaration { name, columns: vec![], deferrable: false, deferred: false, what })
}

fn foreign(key: &ForeignKeyConstraint) -> Result<KeyKind> {
    if key.match_kind == Some(ConstraintReferenceMatchKind::Partial) {
        let message = "MATCH PARTIAL not yet implemented";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
    }
    Ok(KeyKind::Foreign {
        table: key.foreign_table.clone(),
        referenced: key.referred_columns.iter().map(plain).collect(),
        on_update: action(key.on_update),
        on_delete: action(key.on_delete),
        full: key.match_kind == Some(ConstraintReferenceMatchKind::Full),
    })
}

fn action(action: Option<ReferentialAction>) -> Action {
    match action {
        None | Some(ReferentialAction::NoAction) => Action::None,
        Some(ReferentialAction::Restrict) => Action::Restrict,
        Some(ReferentialAction::Cascade) => Action::Cascade,
        Some(ReferentialAction::SetNull) => Action::SetNull,
        Some(ReferentialAction::SetDefault) => Action::SetDefault,
    }
}

fn not_distinct(option: &NullsDistinctOption) -> bool {
    matches!(option, NullsDistinctOption::NotDistinct)
}

fn plain_key(is_plain: bool) -> Result<()> {
    match is_plain {
        true => Ok(()),
        false => {
            let message = "keys are declared with a name, columns and whether they are deferrable";
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion())
        }
    }
}

/// The column names of a key.
fn names(columns: &[IndexColumn]) -> Result<Vec<String>> {
    let name = |column: &IndexColumn| match &column.column.expr {
        ast::Expr::Identifier(name)
            if column.operator_class.is_none() && column.column.options == Default::default() =>
        {
            Ok(plain(name))
        }
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "a key is a list of columns").into_datafusion()),
    };
    columns.iter().map(name).collect()
}

/// Extracts the keys of a column definition; returns the definition without them.
pub(crate) fn extract_column_keys(column: &ast::ColumnDef) -> Result<(ast::ColumnDef, Vec<KeyDeclaration>)> {
    let mut column = column.clone();
    let declared = of_column(&mut column)?;
    if declared.iter().any(|key| key.what == KeyKind::Primary)
        && !column.options.iter().any(|option| matches!(option.option, ast::ColumnOption::NotNull))
    {
        let option = ast::ColumnOption::NotNull;
        column.options.push(ast::ColumnOptionDef { name: None, option });
    }
    Ok((column, declared))
}
