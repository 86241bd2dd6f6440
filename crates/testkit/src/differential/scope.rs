//! Columns visible to the expressions of a statement.

/// Types, as distinguished by the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Numeric,
    Text,
    Date,
    Time,
    Bool,
    Real,
    Double,
    Interval,
    Bytes,
}

pub(super) const KINDS: [Kind; 10] = [
    Kind::Int,
    Kind::Numeric,
    Kind::Text,
    Kind::Bool,
    Kind::Date,
    Kind::Time,
    Kind::Real,
    Kind::Double,
    Kind::Interval,
    Kind::Bytes,
];

/// A column, or an expression in its place, such as an aggregate above a GROUP BY.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// Subqueries may reference it, unlike an aggregate.
    pub(super) is_name: bool,
}

impl Column {
    pub(super) fn new(text: String, kind: Kind) -> Self {
        Self { text, kind, is_name: true }
    }

    pub(super) fn value(text: String, kind: Kind) -> Self {
        Self { text, kind, is_name: false }
    }
}

/// The columns of one query, and those of its outer queries.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) columns: Vec<Column>,
    pub(super) outer: Vec<Column>,
}

impl Scope {
    /// The scope of a subquery at this place.
    pub(super) fn inside(&self) -> Scope {
        let names = self.columns.iter().filter(|column| column.is_name);
        // Most correlations reach one level up; outer levels come last.
        let outer = names.chain(&self.outer).cloned().collect();
        Scope { columns: vec![], outer }
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Vec<&Column> {
        self.columns.iter().filter(|column| column.kind == kind).collect()
    }

    pub(super) fn outer_of_kind(&self, kind: Kind) -> Vec<&Column> {
        self.outer.iter().filter(|column| column.kind == kind).collect()
    }
}

/// The name of a type in casts.
pub(super) fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "int",
        Kind::Numeric => "numeric(8,2)",
        Kind::Text => "text",
        Kind::Date => "date",
        Kind::Time => "timestamp",
        Kind::Bool => "boolean",
        Kind::Real => "real",
        Kind::Double => "double precision",
        Kind::Interval => "interval",
        Kind::Bytes => "bytea",
    }
}
