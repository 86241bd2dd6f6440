//! Nodes of the parser's trees, for whoever rewrites statements.

use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Parens, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    ValueWithSpan, Values, WildcardAdditionalOptions,
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

/// `SELECT * FROM t`, of which copies are filled.
static TEMPLATE: LazyLock<Query> = LazyLock::new(|| {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT * FROM t");
    *parser.and_then(|mut parser| parser.parse_query()).expect("it is a query")
});

fn template() -> (Query, Select) {
    let query = TEMPLATE.clone();
    match *query.body {
        SetExpr::Select(ref select) => {
            let select = Select::clone(select);
            (query, select)
        }
        _ => unreachable!("the template is a SELECT"),
    }
}

/// A query of `items` from relations.
pub fn query_of(items: Vec<SelectItem>, from: Vec<TableWithJoins>) -> Query {
    let (mut query, select) = template();
    query.body = Box::new(SetExpr::Select(Box::new(Select { projection: items, from, ..select })));
    query
}

/// `SELECT *` from relations.
pub fn select_star(from: Vec<TableWithJoins>) -> Query {
    query_of(vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())], from)
}

/// `SELECT * FROM table`.
pub fn select_all(table: &ObjectName) -> Select {
    let (_, mut select) = template();
    for from in &mut select.from {
        if let TableFactor::Table { name, .. } = &mut from.relation {
            name.clone_from(table);
        }
    }
    select
}

/// A table as FROM names it.
pub fn table_named(table: &ObjectName) -> Vec<TableWithJoins> {
    select_all(table).from
}

/// A query as a relation.
pub fn derived_table(query: Query, alias: TableAlias) -> TableWithJoins {
    let relation =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None };
    TableWithJoins { relation, joins: vec![] }
}

/// `AS name`.
pub fn table_alias(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: vec![], at: None }
}

/// `VALUES` of one row.
pub fn values_of(row: Vec<Expr>) -> Query {
    let (mut query, _) = template();
    let rows = vec![Parens::with_empty_span(row)];
    query.body = Box::new(SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows }));
    query
}

/// The text of a literal in quotes.
pub fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}
