//! `INSERT … INTO t PARTITION (k = 'v', other)`, as Hive has it: some table partitions named, others by the
//! last columns of the rows.
//!
//! The parser's dialect does not know the clause: it is cut out of the text, with blanks in its place.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_exec::data_files::partition_folder;
use harrier_functions::datetime::infinity::infinite;
use harrier_sqlstate::IntoDataFusionError;

use super::insert::not_kept;
use super::table::FolderTable;
use crate::dialect::SqlDialect;
use crate::names;
use crate::warehouse::Words;

/// Keys, with their values as far as they are named.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PartitionClause {
    keys: Vec<(String, Option<ast::Expr>)>,
}

/// The text to be parsed, and the clause that was in it.
pub(crate) fn cut(text: String) -> Result<(String, Option<PartitionClause>)> {
    let begins = text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("insert"));
    if !begins || !text.to_ascii_lowercase().contains("partition") {
        return Ok((text, None));
    }
    let Some(words) = Words::of(&text) else {
        return Ok((text, None));
    };
    let mut at = 1;
    while ["overwrite", "into", "table"].iter().any(|word| words.is_at(at, word)) {
        at += 1;
    }
    let is_period = |at| matches!(words.token(at), Some(Token::Period));
    while is_period(at + 1) {
        at += 2;
    }
    at += 1;
    if !words.is_at(at, "partition") {
        return Ok((text, None));
    }
    let wrong = |detail: String| {
        harrier_sqlstate::external(
            SqlError::new(
                SqlState::SYNTAX_ERROR,
                "PARTITION names keys, with or without a value: (k = 'v', other)",
            )
            .with_detail(detail),
        )
    };
    let end = match words.token(at + 1) {
        Some(Token::LParen) => words.after_parentheses(at + 1),
        _ => None,
    };
    let Some(end) = end else {
        return Err(wrong("its parentheses are missing".to_string()));
    };
    let inner = words.bytes(at + 1..end);
    let inner = &text[inner.start + 1..inner.end - 1];
    let keys = Parser::new(&SqlDialect)
        .try_with_sql(inner)
        .and_then(|mut parser| {
            let keys = parser.parse_comma_separated(Parser::parse_expr)?;
            parser.expect_token(&Token::EOF)?;
            Ok(keys)
        })
        .map_err(|error| wrong(error.to_string()))?;
    let key = |key: ast::Expr| match key {
        ast::Expr::Identifier(name) => Ok((names::plain(&name), None)),
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => match *left {
            ast::Expr::Identifier(name) => Ok((names::plain(&name), Some(*right))),
            other => Err(wrong(format!("{other} is no key"))),
        },
        other => Err(wrong(format!("{other} is no key"))),
    };
    let keys = keys.into_iter().map(key).collect::<Result<Vec<_>>>()?;
    let text = words.blank(text.clone(), &[at..end]);
    Ok((text, Some(PartitionClause { keys })))
}

impl PartitionClause {
    /// The INSERT with the keys among its columns, and their values among those of its rows.
    ///
    /// Errors: the table is not partitioned so (42703, 42601).
    pub(crate) fn apply(&self, insert: &ast::Insert, table: &FolderTable) -> Result<ast::Insert> {
        let wrong = |state, message: String| Err(SqlError::new(state, message).into_datafusion());
        let name = &insert.table;
        for (at, (key, _)) in self.keys.iter().enumerate() {
            if !table.keys().iter().any(|(known, _)| known == key) {
                return wrong(SqlState::UNDEFINED_COLUMN, format!("{name} is not partitioned by \"{key}\""));
            }
            if self.keys[..at].iter().any(|(before, _)| before == key) {
                return wrong(SqlState::DUPLICATE_COLUMN, format!("key \"{key}\" is named twice"));
            }
        }
        if let Some((missing, _)) =
            table.keys().iter().find(|(key, _)| !self.keys.iter().any(|(named, _)| named == key))
        {
            let message = format!("PARTITION does not name the key \"{missing}\" of {name}");
            return wrong(SqlState::SYNTAX_ERROR, message);
        }
        let Some(source) = &insert.source else {
            return wrong(SqlState::SYNTAX_ERROR, "INSERT … PARTITION needs rows".to_string());
        };
        let quoted = |name: &String| ast::Ident::with_quote('"', name.clone());
        let mut columns: Vec<ast::ObjectName> = match insert.columns.is_empty() {
            true => {
                let schema = table.file_schema();
                let own: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
                let dynamic =
                    self.keys.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone());
                own.into_iter()
                    .chain(dynamic)
                    .map(|name| ast::ObjectName::from(vec![quoted(&name)]))
                    .collect()
            }
            false => insert.columns.clone(),
        };
        let mut insert = insert.clone();
        let values: Vec<(&String, &ast::Expr)> =
            self.keys.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
        if !values.is_empty() {
            columns.extend(values.iter().map(|(key, _)| ast::ObjectName::from(vec![quoted(key)])));
            let values: Vec<ast::Expr> = values.into_iter().map(|(_, value)| value.clone()).collect();
            insert.source = Some(Box::new(with_values(source, &values)?));
        }
        insert.columns = columns;
        Ok(insert)
    }

    /// The one folder that all rows go to, if every key has a value.
    pub(crate) fn only_folder(&self, table: &FolderTable) -> Result<Option<String>> {
        let mut folder = String::new();
        for (key, kind) in table.keys() {
            let value =
                self.keys.iter().find(|(named, _)| named == key).and_then(|(_, value)| value.as_ref());
            let Some(value) = value else {
                return Ok(None);
            };
            folder.push_str(&partition_folder(key, text_of(value, key, kind)?.as_deref()));
            folder.push('/');
        }
        Ok(Some(folder))
    }
}

/// A key's value as the names of folders have it.
fn text_of(value: &ast::Expr, key: &str, kind: &DataType) -> Result<Option<String>> {
    let text = match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Null => return Ok(None),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => format!("-{expr}"),
        ast::Expr::TypedString(typed) => typed.value.value.clone().into_string().unwrap_or_default(),
        other => {
            let message = format!("PARTITION takes constants, and not {other}");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into_datafusion());
        }
    };
    let kind = match kind {
        DataType::Dictionary(_, value) => value.as_ref(),
        kind => kind,
    };
    if infinite(&text, kind).is_some() {
        return Err(not_kept(&text, key, kind));
    }
    let value = ScalarValue::try_from_string(text, kind)?.cast_to(&DataType::Utf8)?;
    match value {
        ScalarValue::Utf8(text) => Ok(text.filter(|text| !text.is_empty())),
        _ => Ok(None),
    }
}

/// `SELECT *, value, … FROM (source)`; rows that are listed get them one by one, so that they have as many
/// values as the table columns.
fn with_values(source: &ast::Query, values: &[ast::Expr]) -> Result<ast::Query> {
    if let ast::SetExpr::Values(_) = source.body.as_ref() {
        let mut source = source.clone();
        if let ast::SetExpr::Values(listed) = source.body.as_mut() {
            listed.rows.iter_mut().for_each(|row| row.content.extend_from_slice(values));
        }
        return Ok(source);
    }
    let frame = "SELECT * FROM (SELECT 1) AS \"_harrier_rows\"";
    let internal = || DataFusionError::Internal("a query that was made is none".to_string());
    let mut parsed = Parser::parse_sql(&SqlDialect, frame).map_err(|_| internal())?;
    let Some(ast::Statement::Query(mut query)) = parsed.pop() else {
        return Err(internal());
    };
    let ast::SetExpr::Select(select) = query.body.as_mut() else {
        return Err(internal());
    };
    select.projection.extend(values.iter().cloned().map(ast::SelectItem::UnnamedExpr));
    let Some(ast::TableFactor::Derived { subquery, .. }) =
        select.from.first_mut().map(|table| &mut table.relation)
    else {
        return Err(internal());
    };
    **subquery = source.clone();
    Ok(*query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_cut_out_and_positions_stay() {
        let sql = "INSERT OVERWRITE TABLE s.t PARTITION (y = 2024, \"M\"='a', d) SELECT 1";
        let (text, clause) = cut(sql.to_string()).unwrap();
        assert_eq!(text.len(), sql.len());
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>(),
            ["INSERT", "OVERWRITE", "TABLE", "s.t", "SELECT", "1"]
        );
        let keys: Vec<(String, Option<String>)> = clause
            .unwrap()
            .keys
            .into_iter()
            .map(|(key, value)| (key, value.map(|value| value.to_string())))
            .collect();
        let expected = [("y", Some("2024")), ("M", Some("'a'")), ("d", None)];
        assert_eq!(keys, expected.map(|(key, value)| (key.to_string(), value.map(str::to_string))));
        for sql in
            ["INSERT INTO t SELECT 'PARTITION (a)'", "INSERT INTO partition (a) VALUES (1)", "SELECT 1"]
        {
            assert_eq!(cut(sql.to_string()).unwrap(), (sql.to_string(), None), "{sql}");
        }
        for sql in ["INSERT INTO t PARTITION SELECT 1", "INSERT INTO t PARTITION (a + 1) SELECT 1"] {
            assert!(cut(sql.to_string()).is_err(), "{sql}");
        }
    }
}
