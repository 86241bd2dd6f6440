//! A statement: its part of a text, its effect on transactions, its description, and its completion.

use arrow::datatypes::{DataType, SchemaRef};

/// A statement of a longer text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementPart {
    pub text: String,
    /// Characters of the whole text before it.
    pub offset: usize,
}

/// How a statement interacts with transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementKind {
    /// May run in a transaction with others.
    Plain,
    /// Opens a transaction.
    Begin,
    /// Ends a transaction, or sets a savepoint.
    Control,
    /// Cannot run inside a transaction block.
    Alone,
}

/// A statement's description before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The types of `$1`, `$2`, …; text by default.
    pub parameters: Vec<DataType>,
    /// PostgreSQL's type names where the Arrow types do not determine them, such as `oid`. May be shorter.
    pub names: Vec<Option<String>>,
    /// `None`: it returns no rows.
    pub columns: Option<SchemaRef>,
}

/// The completion of a statement without rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// PostgreSQL's command tag, such as `INSERT 0 3`.
    pub tag: String,
    /// About skipped actions and rows.
    pub notices: Vec<String>,
    pub warnings: Vec<String>,
}

impl Completion {
    pub fn new(tag: impl Into<String>) -> Self {
        Self { tag: tag.into(), ..Self::default() }
    }

    #[must_use]
    pub fn with_notices(self, notices: Vec<String>) -> Self {
        Self { notices, ..self }
    }

    #[must_use]
    pub fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }
}
