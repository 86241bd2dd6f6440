//! What the columns of a query are called where PostgreSQL's clients read it: a function by its name, an expression without one
//! `?column?`. The planner calls them after the whole expression.
//!
//! Source: PostgreSQL, FigureColname in parse_target.c, as its documentation tells it in "Column Labels".

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, DataType, Expr, Ident, ObjectName, Query, Select, SelectItem, SetExpr,
};

use crate::names::plain;
use crate::session::{Form, ParsedStatement};

impl ParsedStatement {
    /// The schema of the statement's rows with its columns called as PostgreSQL calls them.
    pub fn named(&self, schema: &SchemaRef) -> SchemaRef {
        let Form::Sql(Statement::Statement(statement)) = &self.form else {
            return Arc::clone(schema);
        };
        let ast::Statement::Query(query) = statement.as_ref() else {
            return Arc::clone(schema);
        };
        let Some(names) = select(query).and_then(|select| names(select, schema.fields().len())) else {
            return Arc::clone(schema);
        };
        let fields: Vec<FieldRef> = schema
            .fields()
            .iter()
            .zip(names)
            .map(|(field, name)| match name {
                Some(name) if *field.name() != name => Arc::new(Field::clone(field).with_name(name)),
                _ => Arc::clone(field),
            })
            .collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

/// The SELECT that names the columns of a query: of several, the first.
fn select(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        body = match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(query) => &query.body,
            _ => return None,
        };
    }
}

/// Names of `count` columns; `None` for those that keep theirs. Nothing if it cannot be told which columns are whose.
fn names(select: &Select, count: usize) -> Option<Vec<Option<String>>> {
    let is_many = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    let items = &select.projection;
    let many = items.iter().filter(|item| is_many(item)).count();
    let single = items.len() - many;
    let filling = match many {
        0 if single == count => 0,
        // All columns that are left over are those of the one star.
        1 if single <= count => count - single,
        _ => return None,
    };
    let mut names = Vec::with_capacity(count);
    for item in items {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                names.push(Some(name(expr).unwrap_or_else(|| "?column?".to_string())));
            }
            SelectItem::ExprWithAlias { alias, .. } => names.push(Some(plain(alias))),
            item if is_many(item) => names.extend(std::iter::repeat_n(None, filling)),
            _ => names.push(None),
        }
    }
    Some(names)
}

fn name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(plain(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(plain),
        Expr::CompoundFieldAccess { root, .. } => name(root),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name(inner),
        Expr::Function(function) => last(&function.name),
        Expr::Cast { expr: inner, data_type, .. } => name(inner).or_else(|| type_name(data_type)),
        Expr::TypedString(typed) => type_name(&typed.data_type),
        Expr::Case { else_result, .. } => {
            let other = else_result.as_ref().and_then(|other| name(other));
            Some(other.unwrap_or_else(|| "case".to_string()))
        }
        Expr::Subquery(query) => match &select(query)?.projection[..] {
            [SelectItem::UnnamedExpr(inner)] => name(inner),
            [SelectItem::ExprWithAlias { alias, .. }] => Some(plain(alias)),
            _ => None,
        },
        Expr::Exists { .. } => Some("exists".to_string()),
        Expr::Array(_) => Some("array".to_string()),
        Expr::Extract { .. } => Some("extract".to_string()),
        Expr::Ceil { .. } => Some("ceil".to_string()),
        Expr::Floor { .. } => Some("floor".to_string()),
        Expr::Position { .. } => Some("position".to_string()),
        Expr::Substring { .. } => Some("substring".to_string()),
        Expr::Trim { .. } => Some("btrim".to_string()),
        Expr::Overlay { .. } => Some("overlay".to_string()),
        Expr::AtTimeZone { .. } => Some("timezone".to_string()),
        Expr::Interval(_) => Some("interval".to_string()),
        Expr::Tuple(_) => Some("row".to_string()),
        Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => Some("bool".to_string()),
        _ => None,
    }
}

fn last(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(|part| part.as_ident()).map(|part: &Ident| plain(part))
}

/// The short name of a type, as PostgreSQL has it.
fn type_name(data_type: &DataType) -> Option<String> {
    let name = match data_type {
        DataType::Boolean | DataType::Bool => "bool",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 => "float4",
        DataType::DoublePrecision | DataType::Float8 | DataType::Double(_) | DataType::Float(_) => "float8",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Text | DataType::String(_) => "text",
        DataType::Varchar(_) | DataType::CharacterVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Date => "date",
        DataType::Time(..) => "time",
        DataType::Timestamp(_, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Interval { .. } => "interval",
        DataType::Bytea => "bytea",
        DataType::Uuid => "uuid",
        DataType::Custom(name, _) => return last(name),
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

    use super::*;

    fn named(sql: &str, count: usize) -> Option<Vec<Option<String>>> {
        let dialect = PostgreSqlDialect {};
        let mut parser = DFParserBuilder::new(sql).with_dialect(&dialect).build().unwrap();
        match parser.parse_statements().unwrap().pop_front() {
            Some(Statement::Statement(statement)) => match *statement {
                ast::Statement::Query(query) => names(select(&query)?, count),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn columns_have_names() {
        let cases: [(&str, &[&str]); 8] = [
            ("SELECT 1, a, T.B, \"C\"", &["?column?", "a", "b", "C"]),
            ("SELECT count(*), pg_catalog.version(), a + 1", &["count", "version", "?column?"]),
            ("SELECT a::text, '1'::int, CAST(1 AS numeric)", &["a", "int4", "numeric"]),
            ("SELECT CASE WHEN a THEN 1 ELSE b END, CASE WHEN a THEN 1 ELSE 2 END", &["b", "case"]),
            ("SELECT (SELECT max(x) FROM t), EXISTS (SELECT 1), date '2000-01-01'", &["max", "exists", "date"]),
            ("SELECT 1 AS \"A\" UNION SELECT 2 AS b", &["A"]),
            ("SELECT -a, not a, true", &["?column?", "?column?", "bool"]),
            ("(SELECT sum(a)) ORDER BY 1", &["sum"]),
        ];
        for (sql, expected) in cases {
            let found: Vec<String> = named(sql, expected.len()).unwrap().into_iter().flatten().collect();
            assert_eq!(found, expected, "{sql}");
        }
        let star = named("SELECT 1, *, count(*)", 4).unwrap();
        assert_eq!(star, [Some("?column?".to_string()), None, None, Some("count".to_string())]);
        assert_eq!(named("SELECT a.*, b.*", 4), None);
    }
}
