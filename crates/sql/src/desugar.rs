//! AST rewrites of PostgreSQL syntax that DataFusion's planner does not support, or interprets differently:
//! interval, date and time literals, AT TIME ZONE, FETCH, named windows, TABLE, SIMILAR TO, MERGE DO NOTHING,
//! types as functions, boolean literals, WITH before DML, `SET (a, b) = …`, row comparisons. Everything else
//! stays as it is.

mod aggregate_order;
mod alter_column_using;
mod any_array_literal;
pub mod array_elements;
mod boolean_literals;
mod calls;
mod collations;
mod create_table_as;
mod cte_before_dml;
mod cte_columns;
mod exact_number;
mod exact_values;
pub mod external_table;
mod fetch_to_limit;
mod grouping;
mod hypothetical_set;
pub mod insert_values;
mod java_patterns;
mod json;
mod like_escape;
mod limit;
mod literal_distinct;
mod multi_column_assignment;
mod named_window;
pub mod nested_case;
mod not_exists;
mod numeric_constants;
mod numeric_in_values;
mod operator_functions;
mod ordered_set;
mod recursive_query;
pub mod result_columns;
mod result_order;
pub mod row_comparison;
mod sequence_calls;
mod set_returning_functions;
mod similar_to;
mod slices;
pub mod update_from;
mod update_targets;

use std::ops::ControlFlow;

use crate::ast_builder::{binary, function_call, number, select_all, text_of};
use crate::tokens::merge_do_nothing;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Ident, Interval, ObjectName, Query, Select, SetExpr,
    SetOperator, TimezoneInfo, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use exact_number::exact_number;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse;
use harrier_functions::parse::datetime::DateOrder;
use harrier_sqlstate::IntoDataFusionError;

/// Rewrites a statement in place before planning. `order` is the order of day, month and year in date
/// literals.
///
/// Errors: a window that another refers to is undefined (42704), or overridden where it must not be (42P20);
/// an unknown collation (42704).
pub fn prepare(statement: &mut Statement, order: DateOrder) -> Result<()> {
    collations::resolve(statement)?;
    match statement {
        Statement::Statement(statement) => {
            create_table_as::rewrite_select_into(statement.as_mut());
            alter_column_using::drop_redundant(statement.as_mut());
            update_targets::rewrite(statement.as_mut());
            create_table_as::reject_generated_columns(statement)?;
            cte_before_dml::rewrite(statement.as_mut());
            multi_column_assignment::rewrite(statement.as_mut())?;
            merge_do_nothing::remove_placeholders(statement.as_mut());
            insert_values::values_to_derived_tables(statement.as_mut());
            numeric_constants::rewrite(statement.as_mut());
            exact_values::rewrite(statement.as_mut());
            update_from::rewrite(statement.as_mut())?;
            row_comparison::in_dml_filter(statement.as_mut())?;
            rewrite(statement.as_mut(), order)
        }
        Statement::Explain(explain) => prepare(&mut explain.statement, order),
        Statement::CopyTo(copy) => {
            copy.partitioned_by.iter_mut().for_each(unquote);
            match &mut copy.source {
                datafusion::sql::parser::CopyToSource::Query(query) => rewrite(query.as_mut(), order),
                datafusion::sql::parser::CopyToSource::Relation(_) => Ok(()),
            }
        }
        Statement::CreateExternalTable(create) => {
            create.table_partition_cols.iter_mut().for_each(unquote);
            external_table::rename_codec(create);
            for column in &mut create.columns {
                set_microseconds(&mut column.data_type);
            }
            Ok(())
        }
        Statement::Reset(_) => Ok(()),
    }
}

/// Turns the text of an identifier into its name: the parser of COPY and external tables keeps the quotes.
fn unquote(name: &mut String) {
    *name = match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    };
}

/// Like [`prepare`], for a query inside of a statement.
///
/// Errors: as [`prepare`].
pub fn prepare_query(query: &mut Query, order: DateOrder) -> Result<()> {
    rewrite(query, order)
}

fn rewrite<N: VisitMut>(node: &mut N, order: DateOrder) -> Result<()> {
    match node.visit(&mut Dialect { order }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Dialect {
    order: DateOrder,
}

impl VisitorMut for Dialect {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        if let Err(error) = recursive_query::rewrite(query) {
            return ControlFlow::Break(error);
        }
        rewrite_set_operation(&mut query.body);
        if let SetExpr::Values(values) = query.body.as_mut() {
            numeric_in_values::rewrite(values);
        }
        set_returning_functions::unfold(query);
        fetch_to_limit::rewrite(query);
        let result = limit::rewrite(query).and_then(|()| named_window::expand(query));
        let result = result.and_then(|()| result_order::rewrite(query));
        cte_columns::rewrite(query);
        let result = result.and_then(|()| hypothetical_set::rewrite_groups(query));
        match result.and_then(|()| row_comparison::in_filters(&mut query.body)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        match boolean_literals::in_select(select) {
            Ok(()) => {
                grouping::rewrite(select);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::TypedString(typed) = expr
            && is_declared(&typed.data_type)
        {
            // A cast stands beside literals in VALUES.
            *expr = Expr::Cast {
                kind: CastKind::DoubleColon,
                expr: Box::new(Expr::Value(typed.value.clone())),
                data_type: typed.data_type.clone(),
                array: false,
                format: None,
            };
        }
        sequence_calls::rewrite(expr);
        if let Err(error) = row_comparison::rewrite(expr)
            .and_then(|()| boolean_literals::in_expr(expr))
            .and_then(|()| aggregate_order::rewrite(expr))
            .and_then(|()| ordered_set::rewrite(expr))
            .and_then(|()| hypothetical_set::rewrite(expr))
        {
            return ControlFlow::Break(error);
        }
        operator_functions::rewrite(expr);
        calls::rewrite(expr);
        json::rewrite(expr);
        not_exists::rewrite(expr);
        like_escape::rewrite(expr);
        slices::rewrite(expr);
        any_array_literal::rewrite(expr);
        literal_distinct::rewrite(expr);
        array_elements::rewrite(expr);
        match expr {
            Expr::Interval(interval) => plain_interval(interval),
            Expr::Value(ValueWithSpan { value: value @ Value::UnicodeStringLiteral(_), .. }) => {
                if let Value::UnicodeStringLiteral(text) = std::mem::replace(value, Value::Null) {
                    *value = Value::SingleQuotedString(text);
                }
            }
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedByteStringLiteral(bits), .. }) => {
                let message = format!("bit strings such as B'{bits}' are not supported");
                return ControlFlow::Break(
                    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_hint("write an integer, whose bits &, | and << take, or bytes: X'1F'")
                        .into_datafusion(),
                );
            }
            Expr::Collate { collation, .. } if !collations::is_byte_order(collation) => {
                let message = format!("collation {collation} is not supported");
                return ControlFlow::Break(
                    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_hint(collations::HINT)
                        .into_datafusion(),
                );
            }
            Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => {
                if let Some(exact) = exact_number(text) {
                    *expr = exact;
                }
            }
            Expr::Cast { expr: inner, data_type: DataType::Interval { .. }, .. } => {
                if let Some(text) = text_of(inner).and_then(parse::interval::normal) {
                    *expr = Expr::Interval(Interval {
                        value: Box::new(Expr::value(Value::SingleQuotedString(text))),
                        leading_field: None,
                        leading_precision: None,
                        last_field: None,
                        fractional_seconds_precision: None,
                    });
                }
            }
            Expr::Cast { expr: inner, data_type, .. } => {
                set_microseconds(data_type);
                let kind = kind_of(data_type);
                if let (Some(text), Some(kind)) = (text_of(inner), kind) {
                    match (word_of(text, kind), parse::datetime::normal(text, kind, self.order)) {
                        (Some(value), _) => **inner = value,
                        (None, Some(text)) => **inner = Expr::value(Value::SingleQuotedString(text)),
                        (None, None) => {}
                    }
                }
            }
            Expr::TypedString(typed) => {
                set_microseconds(&mut typed.data_type);
                if let (Some(kind), Value::SingleQuotedString(text)) =
                    (kind_of(&typed.data_type), &typed.value.value)
                {
                    match (word_of(text, kind), parse::datetime::normal(text, kind, self.order)) {
                        (Some(value), _) => {
                            *expr = Expr::Cast {
                                kind: CastKind::Cast,
                                expr: Box::new(value),
                                data_type: typed.data_type.clone(),
                                array: false,
                                format: None,
                            };
                        }
                        (None, Some(text)) => typed.value.value = Value::SingleQuotedString(text),
                        (None, None) => {}
                    }
                }
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = [time_zone, timestamp]
                    .map(|argument| std::mem::replace(argument.as_mut(), Expr::value(Value::Null)));
                *expr = Expr::Function(function_call("timezone", arguments.to_vec()));
            }
            Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
                let escape = match escape_char.as_ref().map(|escape| &escape.value) {
                    Some(Value::SingleQuotedString(escape)) => Some(escape.as_str()),
                    _ => None,
                };
                if let Some(regex) =
                    text_of(pattern).and_then(|text| similar_to::regex_of_similar(text, escape))
                {
                    *expr = Expr::BinaryOp {
                        left: text.clone(),
                        op: if *negated {
                            BinaryOperator::PGRegexNotMatch
                        } else {
                            BinaryOperator::PGRegexMatch
                        },
                        right: Box::new(Expr::value(Value::SingleQuotedString(regex))),
                    };
                }
            }
            // Regular expression match in Spark and MySQL.
            Expr::RLike { negated, expr: text, pattern, .. } => {
                let op =
                    if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
                let [left, right] = [text, pattern].map(|side| Box::new(Expr::Nested(side.clone())));
                *expr = Expr::BinaryOp { left, op, right };
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Normalizes `INTERVAL '1 day 02:03'` and `INTERVAL '1 02:03' DAY TO MINUTE`.
fn plain_interval(interval: &mut Interval) {
    if interval.leading_field.is_some() && interval.last_field.is_none() {
        return;
    }
    if let Some(text) = text_of(&interval.value).and_then(parse::interval::normal) {
        *interval.value = Expr::value(Value::SingleQuotedString(text));
        (interval.leading_field, interval.last_field) = (None, None);
    }
}

/// How literals of a type are parsed.
fn kind_of(data_type: &DataType) -> Option<parse::datetime::Kind> {
    use TimezoneInfo::{None as Bare, Tz, WithTimeZone, WithoutTimeZone};
    match data_type {
        DataType::Date => Some(parse::datetime::Kind::Date),
        DataType::Timestamp(_, Bare | WithoutTimeZone) => Some(parse::datetime::Kind::Timestamp),
        DataType::Timestamp(_, Tz | WithTimeZone) => Some(parse::datetime::Kind::TimestampWithZone),
        DataType::Time(_, Bare | WithoutTimeZone) => Some(parse::datetime::Kind::Time),
        _ => None,
    }
}

/// Types of texts with a name of their own.
fn is_declared(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Uuid
            | DataType::Varchar(_)
            | DataType::CharacterVarying(_)
            | DataType::Char(_)
            | DataType::Character(_)
    )
}

/// Gives TIMESTAMPTZ microsecond precision, as in tables: DataFusion's default is nanoseconds, whose range is
/// too small. (For TIMESTAMP see `sql_types`.)
fn set_microseconds(data_type: &mut DataType) {
    if let DataType::Timestamp(precision @ None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) = data_type {
        *precision = Some(6);
    }
}

/// Special date and time strings, such as `infinity` and `today`.
fn word_of(text: &str, kind: parse::datetime::Kind) -> Option<Expr> {
    use parse::datetime::Kind::{Date, Interval, Time, Timestamp, TimestampWithZone};
    let literal = |text: &str| Expr::value(Value::SingleQuotedString(text.to_string()));
    let call = |name: &str, arguments| Expr::Function(function_call(name, arguments));
    let typed = |value, name: &str| call("arrow_cast", vec![value, literal(name)]);
    // DuckDB's values for infinity in its tables.
    let infinity = |is_negative: bool| {
        let signed = |digits: &str| {
            let digits = Box::new(number(digits));
            match is_negative {
                true => Expr::UnaryOp { op: UnaryOperator::Minus, expr: digits },
                false => *digits,
            }
        };
        match kind {
            Date => Some(typed(typed(signed("2147483647"), "Int32"), "Date32")),
            Timestamp => Some(typed(signed("9223372036854775807"), "Timestamp(µs)")),
            TimestampWithZone => Some(typed(signed("9223372036854775807"), "Timestamp(µs, \"UTC\")")),
            Time | Interval => None,
        }
    };
    let today = || call("current_date", vec![]);
    Some(match (text.trim().to_lowercase().as_str(), kind) {
        (_, Time | Interval) => return None,
        ("epoch", Date) => literal("1970-01-01"),
        ("epoch", Timestamp) => literal("1970-01-01 00:00:00"),
        ("epoch", TimestampWithZone) => literal("1970-01-01 00:00:00Z"),
        ("infinity", _) => return infinity(false),
        ("-infinity", _) => return infinity(true),
        ("now", _) => call("now", vec![]),
        ("today", _) => today(),
        ("tomorrow", _) => binary(today(), BinaryOperator::Plus, number("1")),
        ("yesterday", _) => binary(today(), BinaryOperator::Minus, number("1")),
        _ => return None,
    })
}

/// Rewrites `TABLE t` to `SELECT * FROM t` in any set operation, and MINUS to EXCEPT.
fn rewrite_set_operation(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { op, left, right, .. } => {
            // EXCEPT in Spark and Oracle.
            if *op == SetOperator::Minus {
                *op = SetOperator::Except;
            }
            rewrite_set_operation(left);
            rewrite_set_operation(right);
        }
        SetExpr::Table(table) => {
            let parts =
                table.schema_name.iter().chain(&table.table_name).map(|part| Ident::new(part.clone()));
            *body = SetExpr::Select(Box::new(select_all(&ObjectName::from(parts.collect::<Vec<_>>()))));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    pub(super) fn rewritten(sql: &str) -> Result<String> {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)?;
        rewrite(&mut statements[0], DateOrder::default())?;
        Ok(statements[0].to_string())
    }

    #[test]
    fn statements_are_made_plannable() {
        let check = |sql: &str, expected: &str| assert_eq!(rewritten(sql).unwrap(), expected);
        check("SELECT 1 UNION ALL TABLE t", "SELECT 1 UNION ALL SELECT * FROM t");
        check("SELECT INTERVAL '1 day'", "SELECT INTERVAL '1 day'");
        check("SELECT '02:03'::interval", "SELECT INTERVAL '0 months 0 days 7380000000000 nanoseconds'");
        check(
            "SELECT INTERVAL '1 02:03' DAY TO MINUTE",
            "SELECT INTERVAL '0 months 1 days 7380000000000 nanoseconds'",
        );
        check("SELECT INTERVAL '5' DAY", "SELECT INTERVAL '5' DAY");
        check("SELECT DATE 'Jan 5, 2024'", "SELECT DATE '2024-01-05'");
        check("SELECT '2024-01-05 10:00'::timestamp", "SELECT '2024-01-05 10:00:00'::TIMESTAMP");
        check("SELECT 1.5, 0.1234567890123456", "SELECT 1.5, CAST('0.1234567890123456' AS DECIMAL(16,16))");
        check("SELECT DATE 'today'", "SELECT CAST(current_date() AS DATE)");
        check("SELECT a NOT SIMILAR TO 'x%' FROM t", "SELECT a !~ '^(?:x(?s:.*))$' FROM t");
    }
}
