//! Constraints and indexes of tables from a source, and their SQL definitions.
//!
//! Keys are not enforced and indexes are not built, and the catalogs say so: such a constraint is not
//! validated, and an index is not valid.

/// The constraints and indexes of a table. Columns are zero-based positions in their relation.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub constraints: Vec<Constraint>,
    /// Includes those of primary keys and unique constraints, with the same ids and names.
    pub indexes: Vec<Index>,
}

/// A constraint of a table.
#[derive(Debug, Clone)]
pub struct Constraint {
    /// Distinct from the ids of relations.
    pub id: i64,
    pub name: String,
    pub columns: Vec<usize>,
    pub is_deferrable: bool,
    pub is_deferred: bool,
    pub kind: ConstraintKind,
}

/// The kind of a constraint.
#[derive(Debug, Clone)]
pub enum ConstraintKind {
    Primary,
    Unique,
    Foreign(ForeignKey),
    Check(Check),
}

/// A CHECK constraint, which is enforced.
#[derive(Debug, Clone)]
pub struct Check {
    pub condition: String,
    /// All existing rows satisfy it.
    pub is_valid: bool,
}

/// The target of a foreign key.
#[derive(Debug, Clone)]
pub struct ForeignKey {
    /// The id of the relation.
    pub relation: i64,
    /// Positions in that relation.
    pub columns: Vec<usize>,
    /// The id of the referenced key's index.
    pub index: i64,
    /// As in `pg_constraint`: `a` no action, `r` restrict, `c` cascade, `n` set null, `d` set default.
    pub on_update: char,
    pub on_delete: char,
    /// MATCH FULL instead of SIMPLE.
    pub is_full: bool,
}

/// An index of a table.
#[derive(Debug, Clone)]
pub struct Index {
    pub id: i64,
    pub name: String,
    pub is_unique: bool,
    pub is_primary: bool,
    /// It belongs to a deferrable constraint.
    pub is_deferrable: bool,
    pub nulls_not_distinct: bool,
    /// An access method, such as `btree`.
    pub method: String,
    pub items: Vec<IndexItem>,
    /// The columns of INCLUDE.
    pub included: Vec<usize>,
    /// The condition of a partial index.
    pub predicate: Option<String>,
}

/// An element of an index.
#[derive(Debug, Clone)]
pub struct IndexItem {
    pub what: Indexed,
    /// The operator class, if named.
    pub class: Option<String>,
    pub is_descending: bool,
    pub nulls_first: bool,
}

/// A column or an expression.
#[derive(Debug, Clone)]
pub enum Indexed {
    Column(usize),
    Expression(String),
}

impl Keys {
    pub(crate) fn checks(&self) -> impl Iterator<Item = &Constraint> {
        let is_check = |constraint: &&Constraint| matches!(constraint.kind, ConstraintKind::Check(_));
        self.constraints.iter().filter(is_check)
    }
}

impl ConstraintKind {
    /// The letter in `pg_constraint`.
    pub(crate) fn letter(&self) -> &'static str {
        match self {
            Self::Primary => "p",
            Self::Unique => "u",
            Self::Foreign(_) => "f",
            Self::Check(_) => "c",
        }
    }

    /// The name in `information_schema`.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Primary => "PRIMARY KEY",
            Self::Unique => "UNIQUE",
            Self::Foreign(_) => "FOREIGN KEY",
            Self::Check(_) => "CHECK",
        }
    }
}
