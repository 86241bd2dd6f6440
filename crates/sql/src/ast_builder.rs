//! Nodes of the parser's trees, for whoever rewrites statements.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Query, Select, SetExpr, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// A call of a function.
pub fn function_call(name: &str, arguments: Vec<Expr>) -> Function {
    Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(argument_list(arguments)),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    }
}

/// Arguments without names.
pub fn argument_list(arguments: Vec<Expr>) -> FunctionArgumentList {
    FunctionArgumentList {
        duplicate_treatment: None,
        args: arguments
            .into_iter()
            .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
            .collect(),
        clauses: vec![],
    }
}

/// A query of `items` from relations.
pub fn query_of(items: Vec<ast::SelectItem>, from: Vec<ast::TableWithJoins>) -> Result<Query> {
    let missing = || DataFusionError::Internal("a SELECT is one".to_string());
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT 1")?.pop().ok_or_else(missing)?;
    let ast::Statement::Query(mut query) = statement else { return Err(missing()) };
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(missing()) };
    (select.projection, select.from) = (items, from);
    Ok(*query)
}

/// A table as FROM names it.
pub fn table_named(table: &ObjectName) -> Option<ast::TableWithJoins> {
    select_all(table)?.from.pop()
}

/// `SELECT * FROM table`.
pub fn select_all(table: &ObjectName) -> Option<Select> {
    let statement =
        Parser::parse_sql(&PostgreSqlDialect {}, &format!("SELECT * FROM {table}")).ok()?.pop()?;
    let ast::Statement::Query(query) = statement else { return None };
    match *query.body {
        SetExpr::Select(select) => Some(*select),
        _ => None,
    }
}

/// The text of a literal in quotes.
pub fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}
