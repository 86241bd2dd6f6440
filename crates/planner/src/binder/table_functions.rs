//! Planner of functions in FROM. A scalar function yields one row: `FROM lower('X') AS l`. Parameters of
//! table functions, such as `generate_series(1, $1)`, are bound before planning, which needs their values.
//!
//! ```text
//! FROM lower('X') AS l  ─►  SubqueryAlias: l
//!                             Projection: lower('X') AS l
//!                               EmptyRelation: rows=1
//! FROM f(1) WITH ORDINALITY    ─►  Projection: f(1) AS f, 1 AS ordinality
//! FROM generate_series(1, $1)  ─►  FROM generate_series(1, 3), when $1 is known
//! ```
//!
//! `TableFunctionPlanner` can go when DataFusion accepts scalar functions in FROM and plans WITH ORDINALITY
//! (apache/datafusion#24754, open).

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{LogicalPlanBuilder, lit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, Ident, ObjectName, TableAlias, TableFactor, Value, Visit, VisitMut, Visitor,
    VisitorMut,
};
use harrier_sql::ast_builder::function_call;

/// Set-returning functions. In FROM they are never scalar, although some have a scalar namesake.
const SET_RETURNING: [&str; 3] = ["generate_series", "range", "pg_get_keywords"];

/// Plans a scalar function in FROM.
#[derive(Debug)]
pub struct TableFunctionPlanner;

impl RelationPlanner for TableFunctionPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some((name, arguments, has_ordinality, alias)) = call_of(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let function = context.normalize_ident(name.clone());
        let is_of_value = !SET_RETURNING.contains(&function.as_str())
            && context.context_provider().get_function_meta(&function).is_some();
        if !is_of_value {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let mut call = function_call(&function, vec![]);
        if let ast::FunctionArguments::List(list) = &mut call.args {
            list.args = arguments.to_vec();
        }
        call.name = ObjectName::from(vec![name.clone()]);
        let nothing = Arc::new(DFSchema::empty());
        let value = context.sql_expr_to_logical_expr(Expr::Function(call), &nothing)?;
        // The column is named like the relation, unless the alias names the column.
        let mut alias = alias.cloned().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', function.clone()),
            columns: vec![],
            at: None,
        });
        let own = context.normalize_ident(alias.name.clone());
        let first = alias.columns.first().map(|column| context.normalize_ident(column.name.clone()));
        let mut columns = vec![value.alias(first.unwrap_or(own))];
        if has_ordinality {
            let second = alias.columns.get(1).map(|column| context.normalize_ident(column.name.clone()));
            columns.push(lit(1_i64).alias(second.unwrap_or_else(|| "ordinality".to_string())));
        }
        // There may be fewer aliases than columns, but not more.
        if alias.columns.len() <= columns.len() {
            alias.columns.clear();
        }
        let plan = LogicalPlanBuilder::empty(true).project(columns)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

type FunctionCall<'r> = (&'r Ident, &'r [FunctionArg], bool, Option<&'r TableAlias>);

fn call_of(relation: &TableFactor) -> Option<FunctionCall<'_>> {
    let (name, arguments, has_ordinality, alias) = match relation {
        TableFactor::Table { name, args: Some(arguments), with_ordinality, alias, .. } => {
            (name, arguments.args.as_slice(), *with_ordinality, alias.as_ref())
        }
        TableFactor::Function { name, args, with_ordinality, alias, .. } => {
            (name, args.as_slice(), *with_ordinality, alias.as_ref())
        }
        _ => return None,
    };
    match name.0.as_slice() {
        [part] => Some((part.as_ident()?, arguments, has_ordinality, alias)),
        _ => None,
    }
}

/// Collects the parameters in arguments of table functions, with their casts.
pub fn parameters(statement: &ast::Statement) -> Vec<(String, Option<ast::DataType>)> {
    struct Found(Vec<(String, Option<ast::DataType>)>);
    impl Visitor for Found {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let Some((_, arguments, ..)) = call_of(factor) {
                let mut inside = Inside(vec![]);
                let _ = Visit::visit(&arguments.to_vec(), &mut inside);
                let mut casts = inside.0;
                // The cast is visited before its operand.
                casts.sort_by_key(|(_, cast)| cast.is_none());
                self.0.extend(casts);
            }
            ControlFlow::Continue(())
        }
    }
    struct Inside(Vec<(String, Option<ast::DataType>)>);
    impl Visitor for Inside {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Some(id) = placeholder(expr) {
                self.0.push((id.to_string(), None));
            }
            if let Expr::Cast { expr, data_type, .. } = expr
                && let Some(id) = placeholder(expr)
            {
                self.0.push((id.to_string(), Some(data_type.clone())));
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Found(vec![]);
    let _ = Visit::visit(statement, &mut found);
    found.0
}

/// Replaces these parameters by their values in a statement; by NULL where they are not known yet.
pub fn bind_parameters<'s>(statement: &'s Statement, values: &[ScalarValue]) -> Cow<'s, Statement> {
    let Statement::Statement(parsed) = statement else { return Cow::Borrowed(statement) };
    if parameters(parsed).is_empty() {
        return Cow::Borrowed(statement);
    }
    struct Bind<'v>(&'v [ScalarValue]);
    impl VisitorMut for Bind<'_> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if call_of(factor).is_none() {
                return ControlFlow::Continue(());
            }
            let mut values = Values(self.0);
            match factor {
                TableFactor::Table { args: Some(arguments), .. } => {
                    VisitMut::visit(&mut arguments.args, &mut values)
                }
                TableFactor::Function { args, .. } => VisitMut::visit(args, &mut values),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    struct Values<'v>(&'v [ScalarValue]);
    impl VisitorMut for Values<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Some(id) = placeholder(expr)
                && let Some(number) = id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok())
            {
                let value = number.checked_sub(1).and_then(|at| self.0.get(at));
                *expr = value.and_then(literal).unwrap_or_else(|| Expr::value(Value::Null));
            }
            ControlFlow::Continue(())
        }
    }
    let mut parsed = parsed.clone();
    let _ = VisitMut::visit(parsed.as_mut(), &mut Bind(values));
    Cow::Owned(Statement::Statement(parsed))
}

fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => placeholder(inner),
        Expr::Value(value) => match &value.value {
            Value::Placeholder(id) => Some(id),
            _ => None,
        },
        _ => None,
    }
}

/// A value as an SQL literal.
fn literal(value: &ScalarValue) -> Option<Expr> {
    if value.is_null() {
        return None;
    }
    let quoted = |text: &str| Expr::value(Value::SingleQuotedString(text.to_string()));
    let text = || value.cast_to(&DataType::Utf8).ok()?.try_as_str().flatten().map(quoted);
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Expr::value(Value::Boolean(*value)),
        value if value.data_type().is_string() => text()?,
        value => {
            Expr::Function(function_call("arrow_cast", vec![text()?, quoted(&value.data_type().to_string())]))
        }
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn parse(sql: &str) -> Statement {
        DFParser::parse_sql_with_dialect(sql, &PostgreSqlDialect {}).unwrap().pop_front().unwrap()
    }

    #[test]
    fn parameters_of_functions_are_bound() {
        let values = [ScalarValue::from(3_i32), ScalarValue::from("it's")];
        for (sql, expected) in [
            (
                "SELECT * FROM generate_series(1, $1) AS g, f($2) WHERE g > $1",
                "SELECT * FROM generate_series(1, arrow_cast('3', 'Int32')) AS g, f('it''s') WHERE g > $1",
            ),
            ("SELECT * FROM f($3::int)", "SELECT * FROM f(NULL::INT)"),
            ("SELECT * FROM t WHERE a = $1", "SELECT * FROM t WHERE a = $1"),
        ] {
            assert_eq!(bind_parameters(&parse(sql), &values).to_string(), expected);
        }
    }

    #[test]
    fn parameters_are_found_with_their_casts() {
        let Statement::Statement(statement) = parse("SELECT $3 FROM f($2::bigint, $1), g") else { panic!() };
        let found = parameters(&statement);
        let casts: Vec<_> = found.iter().map(|(id, cast)| (id.as_str(), cast.is_some())).collect();
        assert_eq!(casts, [("$2", true), ("$2", false), ("$1", false)]);
    }
}
