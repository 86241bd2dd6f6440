//! Columns of relations and joins, and what names mean.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, SelectItem};
use harrier_sql::column_names::client_name;
use harrier_sql::identifier;

/// A column of a relation, or of a join.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub name: String,
    /// What it is in terms of the relations' own columns.
    pub value: Expr,
    /// It is one column of both sides of a join.
    pub is_joined: bool,
    pub(crate) data_type: DataType,
}

impl Column {
    pub(crate) fn of(table: Option<&TableReference>, field: &FieldRef) -> Self {
        let name = quoted(field.name());
        let value = match table {
            Some(table) => {
                let table = table.to_vec();
                Expr::CompoundIdentifier(table.iter().map(|part| quoted(part)).chain([name]).collect())
            }
            None => Expr::Identifier(name),
        };
        let own = client_name(field.name()).to_string();
        Self { name: own, value, is_joined: false, data_type: field.data_type().clone() }
    }

    /// Whether it is one of the relation's own that is called so.
    pub(crate) fn is_of(&self, relation: &ObjectName) -> bool {
        let relation: Vec<String> =
            relation.0.iter().filter_map(|part| part.as_ident().map(identifier::plain)).collect();
        self.is_under(&relation)
    }

    /// The same of a relation's name as it is known.
    pub(crate) fn is_under(&self, relation: &[String]) -> bool {
        let own = self.relation();
        own.len() >= relation.len() && own[own.len() - relation.len()..].iter().eq(relation.iter())
    }

    /// The name of the relation of which it is.
    pub(crate) fn relation(&self) -> Vec<&str> {
        match &self.value {
            Expr::CompoundIdentifier(parts) => {
                parts[..parts.len() - 1].iter().map(|part| part.value.as_str()).collect()
            }
            _ => vec![],
        }
    }

    /// What shows it in a list of columns.
    pub(crate) fn item(&self) -> SelectItem {
        match &self.value {
            Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(self.value.clone()),
            value => SelectItem::ExprWithAlias { expr: value.clone(), alias: quoted(&self.name) },
        }
    }
}

pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A name, and what it means.
#[derive(Debug, Clone)]
pub(crate) struct Meaning {
    /// The relation before it, if there has to be one.
    pub(crate) relation: Vec<String>,
    pub(crate) name: String,
    /// The value of a joined column; `None`: several columns have the name.
    pub(crate) value: Option<Expr>,
}
