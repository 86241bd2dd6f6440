//! The default schema under its two names: PostgreSQL's clients look for `public`, DuckLake stores `main`.
//! SQL accepts both; catalogs, messages and functions show `public`, except to statements that mention `main`
//! in a query of them (`docs/decisions/0027-…`). If a warehouse has another schema `public`, that one keeps
//! its name, and `main` is shown as `main`.

use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, Value, ValueWithSpan, Visit, Visitor};
use harrier_catalog::state::{DEFAULT_SCHEMA, PUBLIC_SCHEMA, Schema, State};

/// The names of the default schema that a statement mentions in its string literals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SchemaNameMentions {
    main: bool,
    public: bool,
}

impl SchemaNameMentions {
    /// Scans a statement. `text`: its full text, which is scanned as a whole unless the statement is a query.
    pub(crate) fn of(statement: Option<&ast::Statement>, text: &str) -> Self {
        let mut mentions = Self::default();
        if !has_word(text, DEFAULT_SCHEMA) {
            return mentions;
        }
        match statement {
            Some(ast::Statement::Query(query)) => {
                let _ = query.visit(&mut Texts { mentions: &mut mentions, sizes: 0 });
            }
            _ => mentions.scan(text),
        }
        mentions
    }

    fn scan(&mut self, text: &str) {
        self.main |= has_word(text, DEFAULT_SCHEMA);
        self.public |= has_word(text, PUBLIC_SCHEMA);
    }

    /// Whether the statement is shown `main`, given its parameter values. If it mentions both names, it is
    /// shown `public`.
    pub(crate) fn is_main(mut self, values: &[ScalarValue]) -> bool {
        let texts = values.iter().filter(|value| !value.is_null() && !value.data_type().is_numeric());
        texts.for_each(|value| self.scan(&value.to_string()));
        self.main && !self.public
    }
}

struct Texts<'a> {
    mentions: &'a mut SchemaNameMentions,
    /// Number of enclosing calls of size functions, to which `main` is a fork of a table.
    sizes: usize,
}

impl Visitor for Texts<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if is_size(function) => self.sizes += 1,
            Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text),
                ..
            }) if self.sizes == 0 => self.mentions.scan(text),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && is_size(function)
        {
            self.sizes -= 1;
        }
        ControlFlow::Continue(())
    }
}

fn is_size(function: &ast::Function) -> bool {
    let name = function.name.0.last().and_then(|part| part.as_ident());
    name.is_some_and(|name| name.value.eq_ignore_ascii_case("pg_relation_size"))
}

/// Case-insensitive, whole words only.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let is_part =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

/// The name of a schema as shown to the statement.
pub(super) fn schema_display_name<'s>(state: &State, schema: &'s Schema, shows_main: bool) -> &'s str {
    if shows_main { &schema.name } else { state.display_name(schema) }
}

/// The default schema's second name, under which it is found as well.
pub(super) fn other_name(state: &State, schema: &Schema, shows_main: bool) -> Option<&'static str> {
    let has_two = schema.name == DEFAULT_SCHEMA && is_public(state, schema);
    has_two.then_some(if shows_main { PUBLIC_SCHEMA } else { DEFAULT_SCHEMA })
}

/// Whether it is what PostgreSQL's clients know as `public`.
pub(super) fn is_public(state: &State, schema: &Schema) -> bool {
    state.display_name(schema) == PUBLIC_SCHEMA
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn mentions_of_schema_main_are_detected() {
        let mentions = |sql: &str| {
            SchemaNameMentions::of(Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().first(), sql)
        };
        for (sql, expected) in [
            ("SELECT * FROM pg_tables WHERE schemaname = 'main'", true),
            ("SELECT * FROM pg_tables WHERE schemaname ILIKE 'MAIN'", true),
            ("SELECT * FROM pg_namespace n WHERE n.nspname ~ '^(main)$'", true),
            ("SELECT 'main.t'::regclass", true),
            ("SELECT * FROM pg_tables WHERE schemaname IN (SELECT 'main')", true),
            ("SELECT * FROM pg_tables WHERE schemaname IN ('main', 'public')", false),
            ("SELECT * FROM pg_tables WHERE schemaname = 'domain' OR tablename = 'main_1'", false),
            ("SELECT * FROM main.t WHERE a = 'x'", false),
            ("SELECT pg_relation_size(main.oid, 'main') FROM pg_class main", false),
            ("SHOW COLUMNS FROM main.t", true),
        ] {
            assert_eq!(mentions(sql).is_main(&[]), expected, "{sql}");
        }
        let of = mentions("SELECT * FROM pg_tables WHERE schemaname = $1");
        assert!(of.is_main(&[ScalarValue::from("main")]));
        assert!(!of.is_main(&[ScalarValue::from("public"), ScalarValue::from("main")]));
        assert!(!of.is_main(&[ScalarValue::from("remains"), ScalarValue::from(1)]));
    }
}
