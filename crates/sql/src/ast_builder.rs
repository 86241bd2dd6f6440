//! Constructors of sqlparser AST nodes, for statement rewrites.

use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Parens,
    Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Value,
    ValueWithSpan, Values, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// A function call.
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

/// An argument list of unnamed arguments.
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

/// `SELECT * FROM t`, parsed once and cloned as a template.
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

/// `SELECT items FROM from`.
pub fn query_of(items: Vec<SelectItem>, from: Vec<TableWithJoins>) -> Query {
    let (mut query, select) = template();
    query.body = Box::new(SetExpr::Select(Box::new(Select { projection: items, from, ..select })));
    query
}

/// `SELECT * FROM from`.
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

/// A table as an entry of FROM.
pub fn table_named(table: &ObjectName) -> Vec<TableWithJoins> {
    select_all(table).from
}

/// `SELECT items FROM relations WHERE condition`.
pub fn query_where(items: Vec<SelectItem>, from: Vec<TableWithJoins>, condition: Expr) -> Query {
    let (mut query, select) = template();
    let selection = Some(condition);
    query.body = Box::new(SetExpr::Select(Box::new(Select { projection: items, from, selection, ..select })));
    query
}

/// The cross join of relations, left-deep; `None` for an empty list.
pub fn cross_joined(relations: &[TableWithJoins]) -> Option<TableWithJoins> {
    let (first, others) = relations.split_first()?;
    let mut all = first.clone();
    for other in others {
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        all.joins.push(Join { relation: other.relation.clone(), global: false, join_operator });
        all.joins.extend(other.joins.iter().cloned());
    }
    Some(all)
}

/// A subquery in FROM.
pub fn derived_table(query: Query, alias: TableAlias) -> TableWithJoins {
    let relation =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None };
    TableWithJoins { relation, joins: vec![] }
}

/// `AS name`.
pub fn table_alias(name: Ident) -> TableAlias {
    table_alias_of(name, [])
}

/// `AS name (columns)`.
pub fn table_alias_of(name: Ident, columns: impl IntoIterator<Item = Ident>) -> TableAlias {
    let columns = columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None }).collect();
    TableAlias { explicit: true, name, columns, at: None }
}

/// `VALUES` with one row.
pub fn values_of(row: Vec<Expr>) -> Query {
    values_of_rows([row])
}

/// `VALUES` with several rows.
pub fn values_of_rows(rows: impl IntoIterator<Item = Vec<Expr>>) -> Query {
    let (mut query, _) = template();
    let rows = rows.into_iter().map(Parens::with_empty_span).collect();
    query.body = Box::new(SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows }));
    query
}

/// `left op right`.
pub fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// `(expr)`.
pub fn parentheses(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// A left-associative chain of `parts` with `op` between them; `None` for an empty list.
pub fn operator_chain(parts: impl IntoIterator<Item = Expr>, op: BinaryOperator) -> Option<Expr> {
    parts.into_iter().reduce(|left, right| binary(left, op.clone(), right))
}

pub fn boolean(value: bool) -> Expr {
    Expr::value(Value::Boolean(value))
}

/// A numeric literal, verbatim.
pub fn number(text: &str) -> Expr {
    Expr::value(Value::Number(text.to_string(), false))
}

/// `CASE WHEN condition THEN result … ELSE otherwise END`.
pub fn case(conditions: impl IntoIterator<Item = (Expr, Expr)>, otherwise: Expr) -> Expr {
    let when = |(condition, result)| CaseWhen { condition, result };
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions.into_iter().map(when).collect(),
        else_result: Some(Box::new(otherwise)),
    }
}

/// `expr::data_type`.
pub fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(expr), data_type, array: false, format: None }
}

/// The text of a quoted literal.
pub fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}
