//! Constraints and indexes as SQL, as PostgreSQL writes them.

use crate::catalog::{Catalog, Index as Known, quote_identifier};
use crate::keys::{Constraint, ConstraintKind, Index, IndexItem, Indexed};
use crate::source::{Relation, Schema, oid};

impl Index {
    /// Column names as PostgreSQL chooses them: an expression is named after its function, or `expr`.
    pub(crate) fn column_names(&self, relation: &Relation) -> Vec<String> {
        let mut names: Vec<String> = vec![];
        let items = self.items.iter().map(|item| match &item.what {
            Indexed::Column(at) => column_name(relation, *at).to_string(),
            Indexed::Expression(text) => {
                let function: String =
                    text.chars().take_while(|sign| sign.is_ascii_alphanumeric() || *sign == '_').collect();
                match text[function.len()..].starts_with('(') && !function.is_empty() {
                    true => function.to_lowercase(),
                    false => "expr".to_string(),
                }
            }
        });
        let included = self.included.iter().map(|at| column_name(relation, *at).to_string());
        for name in items.chain(included) {
            let mut unique = name.clone();
            let mut number = 1;
            while names.contains(&unique) {
                unique = format!("{name}{number}");
                number += 1;
            }
            names.push(unique);
        }
        names
    }

    fn item_text(&self, relation: &Relation, item: &IndexItem) -> String {
        let mut text = item.what.text(relation);
        if let Some(class) = &item.class {
            text += &format!(" {}", quote_identifier(class));
        }
        if item.is_descending {
            text += if item.nulls_first { " DESC" } else { " DESC NULLS LAST" };
        } else if item.nulls_first {
            text += " NULLS FIRST";
        }
        text
    }

    /// The result of `pg_get_indexdef`; `name`: of its table.
    pub(crate) fn definition(&self, relation: &Relation, name: &str) -> String {
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let items: Vec<String> = self.items.iter().map(|item| self.item_text(relation, item)).collect();
        let mut text = format!(
            "CREATE {unique}INDEX {} ON {name} USING {} ({})",
            quote_identifier(&self.name),
            self.method,
            items.join(", ")
        );
        if !self.included.is_empty() {
            text += &format!(" INCLUDE ({})", columns_text(relation, &self.included));
        }
        if self.nulls_not_distinct {
            text += " NULLS NOT DISTINCT";
        }
        if let Some(predicate) = &self.predicate {
            text += &format!(" WHERE {predicate}");
        }
        text
    }

    /// The result of `pg_get_indexdef` for one column, counted from 1.
    pub(crate) fn column_definition(&self, relation: &Relation, number: usize) -> Option<String> {
        let at = number.checked_sub(1)?;
        match self.items.get(at) {
            Some(item) => Some(item.what.text(relation)),
            None => self
                .included
                .get(at - self.items.len())
                .map(|at| quote_identifier(column_name(relation, *at))),
        }
    }
}

impl Indexed {
    /// As PostgreSQL writes it: parentheses around anything but a call.
    fn text(&self, relation: &Relation) -> String {
        match self {
            Self::Column(at) => quote_identifier(column_name(relation, *at)),
            Self::Expression(text) => add_parentheses(text),
        }
    }
}

/// An expression as PostgreSQL writes it: parentheses around anything but a name or a call.
fn add_parentheses(text: &str) -> String {
    let is_name = |text: &str| text.chars().all(|sign| sign.is_alphanumeric() || sign == '_');
    let is_call = match text.split_once('(') {
        Some((name, rest)) => {
            !name.is_empty() && is_name(name) && end_of_parentheses(rest) == Some(rest.len())
        }
        None => is_name(text),
    };
    if is_call { text.to_string() } else { format!("({text})") }
}

/// The offset after the closing parenthesis; `rest` begins after the opening one.
fn end_of_parentheses(rest: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, sign) in rest.char_indices() {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The result of `pg_get_constraintdef`.
pub(crate) fn constraint_definition(
    catalog: &Catalog,
    known: &Known,
    relation: &Relation,
    constraint: &Constraint,
) -> Option<String> {
    let columns = columns_text(relation, &constraint.columns);
    let mut text = match &constraint.kind {
        ConstraintKind::Primary => format!("PRIMARY KEY ({columns})"),
        ConstraintKind::Check(check) => format!("CHECK ({})", add_parentheses(&check.condition)),
        ConstraintKind::Unique => {
            let index = relation.keys.indexes.iter().find(|index| index.id == constraint.id);
            let nulls = match index.is_some_and(|index| index.nulls_not_distinct) {
                true => " NULLS NOT DISTINCT",
                false => "",
            };
            format!("UNIQUE{nulls} ({columns})")
        }
        ConstraintKind::Foreign(foreign) => {
            let target = known.user_relation(oid(foreign.relation))?;
            let mut text = format!(
                "FOREIGN KEY ({columns}) REFERENCES {}({})",
                catalog.relation_text(known, oid(target.id)),
                columns_text(target, &foreign.columns)
            );
            if foreign.is_full {
                text += " MATCH FULL";
            }
            for (event, action) in [("UPDATE", foreign.on_update), ("DELETE", foreign.on_delete)] {
                if action != 'a' {
                    text += &format!(" ON {event} {}", action_words(action));
                }
            }
            text
        }
    };
    if let ConstraintKind::Check(check) = &constraint.kind
        && !check.is_valid
    {
        text += " NOT VALID";
    }
    if constraint.is_deferrable {
        text += " DEFERRABLE";
    }
    if constraint.is_deferred {
        text += " INITIALLY DEFERRED";
    }
    // PostgreSQL has no syntax for other invalid constraints.
    if matches!(constraint.kind, ConstraintKind::Foreign(_)) {
        text += " NOT VALID";
    }
    Some(text)
}

/// The SQL of an action letter in `pg_constraint`.
pub(crate) fn action_words(letter: char) -> &'static str {
    match letter {
        'r' => "RESTRICT",
        'c' => "CASCADE",
        'n' => "SET NULL",
        'd' => "SET DEFAULT",
        _ => "NO ACTION",
    }
}

pub(crate) fn column_name(relation: &Relation, at: usize) -> &str {
    relation.columns.get(at).map_or("", |column| column.field.name())
}

fn columns_text(relation: &Relation, columns: &[usize]) -> String {
    let names: Vec<String> = columns.iter().map(|at| quote_identifier(column_name(relation, *at))).collect();
    names.join(", ")
}

/// A table's qualified SQL name.
pub(crate) fn qualified_name(relation: &Relation, schema: &Schema) -> String {
    use crate::catalog::quote_identifier;
    format!("{}.{}", quote_identifier(&schema.name), quote_identifier(&relation.name))
}
