//! Columns of relations and joins, and the meanings of names.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, SelectItem};
use harrier_sql::column_names::client_name;
use harrier_sql::identifier;

/// A column of a relation, or of a join.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub name: String,
    /// Its value in terms of the relations' own columns.
    pub value: Expr,
    /// A joined column, which represents both sides of a join.
    pub is_joined: bool,
    pub(crate) data_type: DataType,
}

impl Column {
    pub(crate) fn of(table: Option<&TableReference>, field: &FieldRef) -> Self {
        let name = quoted_ident(field.name());
        let value = match table {
            Some(table) => {
                let table = table.to_vec();
                Expr::CompoundIdentifier(table.iter().map(|part| quoted_ident(part)).chain([name]).collect())
            }
            None => Expr::Identifier(name),
        };
        let own = client_name(field.name()).to_string();
        Self { name: own, value, is_joined: false, data_type: field.data_type().clone() }
    }

    /// Whether it is a column of the relation of this name.
    pub(crate) fn is_of(&self, relation: &ObjectName) -> bool {
        let relation: Vec<String> =
            relation.0.iter().filter_map(|part| part.as_ident().map(identifier::plain)).collect();
        self.is_under(&relation)
    }

    /// The same for a name in parts.
    pub(crate) fn is_under(&self, relation: &[String]) -> bool {
        let own = self.relation();
        own.len() >= relation.len() && own[own.len() - relation.len()..].iter().eq(relation.iter())
    }

    /// The name of its relation.
    pub(crate) fn relation(&self) -> Vec<&str> {
        match &self.value {
            Expr::CompoundIdentifier(parts) => {
                parts[..parts.len() - 1].iter().map(|part| part.value.as_str()).collect()
            }
            _ => vec![],
        }
    }

    /// Its item in a select list.
    pub(crate) fn item(&self) -> SelectItem {
        match &self.value {
            Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(self.value.clone()),
            value => SelectItem::ExprWithAlias { expr: value.clone(), alias: quoted_ident(&self.name) },
        }
    }
}

pub(crate) fn quoted_ident(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A name and its meaning.
#[derive(Debug, Clone)]
pub(crate) struct Meaning {
    /// The qualifier, if one is required.
    pub(crate) relation: Vec<String>,
    pub(crate) name: String,
    /// The value of a joined column; `None`: the name is ambiguous.
    pub(crate) value: Option<Expr>,
}
