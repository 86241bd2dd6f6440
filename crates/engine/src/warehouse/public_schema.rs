//! The schema that a warehouse has from the start under its two names: PostgreSQL's clients look for
//! `public`, DuckLake keeps it as `main`. Names in SQL mean it by either, and catalogs, messages and
//! functions call it `public`, but for a statement that says `main` where it asks them
//! (`docs/decisions/0027-…`). A warehouse that has another schema `public` has that one, and `main` under its
//! own name.

use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, Value, ValueWithSpan, Visit, Visitor};
use harrier_catalog::state::{DEFAULT_SCHEMA, PUBLIC_SCHEMA, Schema, State};

/// Which of the names a statement says in its texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Said {
    main: bool,
    public: bool,
}

impl Said {
    /// `text`: the whole of the statement, which is all that is looked at unless it is a query.
    pub(crate) fn by(statement: Option<&ast::Statement>, text: &str) -> Self {
        let mut said = Self::default();
        if !has_word(text, DEFAULT_SCHEMA) {
            return said;
        }
        match statement {
            Some(ast::Statement::Query(query)) => drop(query.visit(&mut Texts { said: &mut said, sizes: 0 })),
            _ => said.hear(text),
        }
        said
    }

    fn hear(&mut self, text: &str) {
        self.main |= has_word(text, DEFAULT_SCHEMA);
        self.public |= has_word(text, PUBLIC_SCHEMA);
    }

    /// Whether the statement is told of `main`, with values for its parameters. One that says both names is
    /// told of `public`.
    pub(crate) fn is_main(mut self, values: &[ScalarValue]) -> bool {
        let texts = values.iter().filter(|value| !value.is_null() && !value.data_type().is_numeric());
        texts.for_each(|value| self.hear(&value.to_string()));
        self.main && !self.public
    }
}

struct Texts<'a> {
    said: &'a mut Said,
    /// How many calls of a function about sizes are around, to which `main` is a part of a table.
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
            }) if self.sizes == 0 => self.said.hear(text),
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

/// In capital or small letters, and not as a part of another word.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let is_part =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

/// The name of a schema as a statement is told it.
pub(super) fn told_name<'s>(state: &State, schema: &'s Schema, says_main: bool) -> &'s str {
    if says_main { &schema.name } else { state.display_name(schema) }
}

/// The name by which it is found as well.
pub(super) fn other_name(state: &State, schema: &Schema, says_main: bool) -> Option<&'static str> {
    let has_two = schema.name == DEFAULT_SCHEMA && is_public(state, schema);
    has_two.then_some(if says_main { PUBLIC_SCHEMA } else { DEFAULT_SCHEMA })
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
    fn statements_that_say_main_are_told_of_it() {
        let said = |sql: &str| Said::by(Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().first(), sql);
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
            assert_eq!(said(sql).is_main(&[]), expected, "{sql}");
        }
        let of = said("SELECT * FROM pg_tables WHERE schemaname = $1");
        assert!(of.is_main(&[ScalarValue::from("main")]));
        assert!(!of.is_main(&[ScalarValue::from("public"), ScalarValue::from("main")]));
        assert!(!of.is_main(&[ScalarValue::from("remains"), ScalarValue::from(1)]));
    }
}
