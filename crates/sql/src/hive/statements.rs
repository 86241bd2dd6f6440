//! Statements of Hive about what there is, SHOW, DESCRIBE and USE, as queries of the catalogs.
//!
//! Names of columns and rows are those of Hive 4.0.1: programs read them by their places.
//!
//! Source: `ShowTablesDesc`, `DescTableDesc` and their like of Hive 4.0.1, whose `SCHEMA` has the columns.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Expr, Value, ValueWithSpan, visit_expressions_mut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{refuse, types};
use crate::nesting::NESTING_MAX;
use crate::tokens::Tokens;
use crate::words::StatementWords;

/// Hive's name of the schema in which tables are made.
pub(super) const DEFAULT: &str = "default";

/// The same here.
pub(super) const PUBLIC: &str = "public";

/// $1 is the schema, or NULL for the current one; $2 the pattern of LIKE, or NULL.
const TABLES: &str = "SELECT table_name AS tab_name FROM information_schema.tables \
    WHERE table_schema = coalesce($1, current_schema()) AND table_name LIKE coalesce($2, '%') ORDER BY 1";

const VIEWS: &str = "SELECT table_name AS tab_name FROM information_schema.views \
    WHERE table_schema = coalesce($1, current_schema()) AND table_name LIKE coalesce($2, '%') ORDER BY 1";

const DATABASES: &str = "SELECT database_name FROM (SELECT CASE schema_name WHEN 'public' THEN 'default' \
    ELSE schema_name END AS database_name FROM information_schema.schemata WHERE schema_name NOT IN \
    ('pg_catalog', 'pg_toast', 'information_schema', 'sys')) AS s WHERE database_name LIKE coalesce($2, '%') \
    ORDER BY 1";

/// $3 is the table. A table that is not there is an error by the cast to `regclass`.
const COLUMNS: &str = "SELECT a.attname AS field FROM pg_catalog.pg_attribute AS a \
    WHERE a.attrelid = CAST($3 AS regclass) AND a.attnum > 0 AND NOT a.attisdropped \
    AND a.attname LIKE coalesce($2, '%') ORDER BY a.attnum";

/// $4 is the column, or NULL for all.
const DESCRIPTION: &str = "SELECT a.attname AS col_name, \
    hive_type_name(format_type(a.atttypid, a.atttypmod)) AS data_type, \
    coalesce(col_description(a.attrelid, a.attnum), '') AS comment FROM pg_catalog.pg_attribute AS a \
    WHERE a.attrelid = CAST($3 AS regclass) AND a.attnum > 0 AND NOT a.attisdropped \
    AND a.attname = coalesce($4, a.attname) ORDER BY a.attnum";

const FUNCTIONS: &str = "SELECT DISTINCT proname AS tab_name FROM pg_catalog.pg_proc \
    WHERE proname LIKE coalesce($2, '%') ORDER BY 1";

const CURRENT_ROLES: &str = "SELECT 'public' AS role";

/// What a query is about.
#[derive(Default)]
struct About {
    schema: Option<String>,
    pattern: Option<String>,
    table: Option<String>,
    column: Option<String>,
}

impl About {
    /// The statement of a template.
    fn query(&self, template: &'static str) -> Result<Statement> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(template)?;
        let mut statement = parser.parse_statement()?;
        let literal = |text: &Option<String>| match text {
            Some(text) => Expr::value(Value::SingleQuotedString(text.clone())),
            None => Expr::value(Value::Null),
        };
        let _ = visit_expressions_mut(&mut statement, |expr: &mut Expr| {
            if let Expr::Value(ValueWithSpan { value: Value::Placeholder(place), .. }) = expr {
                *expr = match place.as_str() {
                    "$1" => literal(&self.schema),
                    "$2" => literal(&self.pattern),
                    "$3" => literal(&self.table),
                    _ => literal(&self.column),
                };
            }
            ControlFlow::<()>::Continue(())
        });
        Ok(Statement::Statement(Box::new(statement)))
    }
}

/// Names have no case in Hive.
fn schema_name(name: String) -> String {
    let name = name.to_lowercase();
    if name == DEFAULT { PUBLIC.to_string() } else { name }
}

/// Parses a statement that only Hive has.
///
/// Errors: syntax (42601).
pub fn parse(tokens: &Tokens<'_>) -> Result<Option<Statement>> {
    if !tokens.is_one_of(0, &["show", "describe", "desc", "use"]) {
        return Ok(None);
    }
    let mut words = StatementWords(tokens.parser(NESTING_MAX));
    if words.take("use") {
        let name = schema_name(words.name()?);
        words.end()?;
        return Ok(Some(use_schema(name)));
    }
    if words.take_any(&["describe", "desc"]) {
        return describe(&mut words);
    }
    words.expect("show")?;
    let mut about = About::default();
    let template = if words.take("tables") {
        TABLES
    } else if words.take("views") {
        VIEWS
    } else if words.take_any(&["databases", "schemas"]) {
        DATABASES
    } else if words.take("columns") {
        if !words.take_any(&["in", "from"]) {
            return Err(words.syntax_error());
        }
        about.table = Some(table_name(&mut words)?);
        if words.take_any(&["in", "from"]) {
            let schema = schema_name(words.name()?);
            about.table = about.table.map(|table| [in_quotes(&schema), table].join("."));
        }
        COLUMNS
    } else if words.take("functions") {
        FUNCTIONS
    } else if words.take_all(&["current", "roles"]) {
        words.end()?;
        return about.query(CURRENT_ROLES).map(Some);
    } else {
        return Ok(None);
    };
    if about.table.is_none() && words.take_any(&["in", "from"]) {
        about.schema = Some(schema_name(words.name()?));
    }
    let is_like = words.take("like");
    about.pattern = match words.optional_text() {
        // Of columns a pattern has stars, as file names have.
        Some(pattern) if about.table.is_some() => Some(pattern.replace('*', "%").to_lowercase()),
        Some(pattern) => Some(pattern.to_lowercase()),
        None if is_like => return Err(words.syntax_error()),
        None => None,
    };
    words.end()?;
    about.query(template).map(Some)
}

/// A name as `regclass` reads it.
fn table_name(words: &mut StatementWords<'_>) -> Result<String> {
    let mut parts = vec![words.name()?.to_lowercase()];
    while words.0.consume_token(&Token::Period) {
        parts.push(words.name()?.to_lowercase());
    }
    if parts.len() > 1 {
        parts[0] = schema_name(std::mem::take(&mut parts[0]));
    }
    let parts: Vec<String> = parts.iter().map(|part| in_quotes(part)).collect();
    Ok(parts.join("."))
}

fn in_quotes(name: &str) -> String {
    ast::Ident::with_quote('"', name).to_string()
}

/// `DESCRIBE [EXTENDED | FORMATTED] table [column]`; `None` for what else may be described.
fn describe(words: &mut StatementWords<'_>) -> Result<Option<Statement>> {
    if words.take_any(&["extended", "formatted"]) {
        return Err(refuse("DESCRIBE EXTENDED and FORMATTED are not supported"));
    }
    words.take("table");
    if words.0.peek_keyword(Keyword::SELECT) {
        return Ok(None);
    }
    if words.take_any(&["database", "schema", "function"]) {
        return Err(refuse("of DESCRIBE only that of tables is supported"));
    }
    let mut about = About { table: Some(table_name(words)?), ..About::default() };
    if !words.0.peek_token_ref().token.eq(&Token::EOF) {
        about.column = Some(words.name()?.to_lowercase());
    }
    words.end()?;
    about.query(DESCRIPTION).map(Some)
}

/// `USE schema` sets where names without a schema are looked for.
fn use_schema(name: String) -> Statement {
    let name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', name)]);
    Statement::Statement(Box::new(ast::Statement::Use(ast::Use::Object(name))))
}

/// Rewrites the parts of a statement that are no queries.
///
/// Errors: a type that is not supported (0A000).
pub(super) fn rewrite(statement: &mut ast::Statement) -> Result<()> {
    match statement {
        ast::Statement::CreateTable(create) => {
            for column in &mut create.columns {
                types::rewrite(&mut column.data_type)?;
                check_options(column)?;
            }
            create.constraints.iter().try_for_each(check_constraint)?;
        }
        ast::Statement::AlterTable(alter) => {
            for operation in &mut alter.operations {
                match operation {
                    ast::AlterTableOperation::AddColumn { column_def, .. } => {
                        types::rewrite(&mut column_def.data_type)?;
                        check_options(column_def)?;
                    }
                    ast::AlterTableOperation::AddConstraint { constraint, .. } => {
                        check_constraint(constraint)?
                    }
                    ast::AlterTableOperation::RenameTable {
                        table_name: ast::RenameTableNameKind::To(name) | ast::RenameTableNameKind::As(name),
                    } => super::rewrite_name(name),
                    ast::AlterTableOperation::AlterColumn { .. } => {
                        return Err(refuse("ALTER COLUMN is not supported in HiveQL"));
                    }
                    _ => {}
                }
            }
        }
        // Of these the walk over a statement does not come by the names.
        ast::Statement::Drop { names, .. } => names.iter_mut().for_each(super::rewrite_name),
        _ => {}
    }
    Ok(())
}

/// Refuses expressions that are kept as texts, which are read in PostgreSQL's language: of defaults only
/// numbers, truth values and NULL are the same in both.
///
/// Errors: such an expression (0A000).
fn check_options(column: &ast::ColumnDef) -> Result<()> {
    for option in &column.options {
        match &option.option {
            ast::ColumnOption::Default(Expr::Value(value))
                if matches!(value.value, Value::Number(..) | Value::Boolean(_) | Value::Null) => {}
            ast::ColumnOption::Default(_) => {
                return Err(refuse("a default that is no number is not supported in HiveQL"));
            }
            ast::ColumnOption::Check(_) | ast::ColumnOption::Generated { .. } => {
                return Err(refuse("CHECK and generated columns are not supported in HiveQL"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_constraint(constraint: &ast::TableConstraint) -> Result<()> {
    match constraint {
        ast::TableConstraint::Check(_) => Err(refuse("CHECK is not supported in HiveQL")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hive::dialect::HiveSqlDialect;

    #[test]
    fn statements_are_queries() {
        let of = |text: &str| parse(&Tokens::of(text, &HiveSqlDialect).unwrap()).unwrap();
        for (text, part) in [
            (
                "SHOW TABLES IN default LIKE 'C_%'",
                "coalesce('public', current_schema()) AND table_name LIKE \
              coalesce('c_%', '%')",
            ),
            ("DESC `A b`.t c", "CAST('\"a b\".\"t\"' AS REGCLASS)"),
            ("SHOW COLUMNS FROM t LIKE 'n*'", "coalesce('n%', '%')"),
            ("USE x", "USE \"x\""),
            ("USE `Default`", "USE \"public\""),
        ] {
            let shown = of(text).unwrap().to_string();
            assert!(shown.contains(part), "{text}: {shown}");
        }
        for other in ["SHOW harrier.dialect", "DESCRIBE SELECT 1", "SELECT 1"] {
            assert!(of(other).is_none(), "{other}");
        }
        assert!(parse(&Tokens::of("SHOW TABLES LIKE", &HiveSqlDialect).unwrap()).is_err());
    }
}
