//! SQL that is kept as text: row filters, defaults of columns, queries of views.
//!
//! # Invariants
//!
//! It means to everybody what it meant to whoever wrote it. It is read in Harrier's own dialect, with the
//! settings of the parser and the planner that sessions begin with, whatever the session of its reader has
//! SET, and is made ready for the planner as a statement is. It is kept as it was written: what the parser
//! shows of its tree does not always parse again. Who asks is [`Asker`]: `current_user` and `session_user`
//! are of the session that reads, also behind a view, as in PostgreSQL, where a view has its owner's rights
//! and not its name.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::config::{self, SqlParserOptions};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, ExprWithAlias, FunctionArguments, SelectItem, SetExpr, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use datafusion::sql::sqlparser::tokenizer::Token;
use harrier_error::{SqlError, SqlState};
use harrier_functions::parse::datetime::{self, DateOrder, Kind};
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_planner::optimizer::simplification;
use harrier_sql::desugar::{self, nested_case, result_columns};
use harrier_sql::dialect::SqlDialect;
use harrier_sql::tokens::offset;
use harrier_sql::{Tokens, identifier, nesting, parser};
use harrier_sqlstate::IntoDataFusionError;

use crate::planning::declared_casts;
use crate::settings::{HarrierSettings, time_reading};
use crate::types::names;

/// Who asks, whoever's rights are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asker {
    /// `None`: nobody in particular, as without roles.
    pub(crate) current_user: Option<Arc<str>>,
    pub(crate) session_user: Option<Arc<str>>,
}

/// `state` with the settings that kept SQL is read with.
pub(crate) fn with_own_settings(mut state: SessionState) -> SessionState {
    let options = state.config_mut().options_mut();
    options.sql_parser =
        SqlParserOptions { dialect: config::Dialect::PostgreSQL, ..SqlParserOptions::default() };
    if let Some(settings) = options.extensions.get_mut::<HarrierSettings>() {
        settings.date_order = DateOrder::default();
    }
    state
}

/// The same in which texts of times are of UTC.
fn in_utc(state: SessionState) -> Result<SessionState> {
    let mut state = with_own_settings(state);
    let zone = &mut state.config_mut().options_mut().execution.time_zone;
    if zone.as_deref() != Some(UTC) {
        *zone = Some(UTC.to_string());
        crate::settings::refresh_functions(&mut state)?;
    }
    Ok(state)
}

/// What a condition on the rows of a table is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    RowFilter,
    Check,
}

impl Condition {
    /// Errors are told in PostgreSQL's words for constraints.
    fn refused(self, what: &str, state: SqlState) -> DataFusionError {
        let message = match self {
            Self::RowFilter => format!("{what} are not allowed in row filters"),
            Self::Check => format!("{what} are not allowed in check constraints"),
        };
        coded(state, &message)
    }

    fn has_query(self) -> DataFusionError {
        let message = match self {
            Self::RowFilter => "a row filter cannot have subqueries",
            Self::Check => "cannot use subquery in check constraint",
        };
        coded(SqlState::FEATURE_NOT_SUPPORTED, message)
    }

    fn no_boolean(self, kind: &DataType) -> DataFusionError {
        let message = match self {
            Self::RowFilter => "a row filter has to be of type boolean".to_string(),
            Self::Check => {
                format!("argument of CHECK must be type boolean, not type {}", names::type_name(kind))
            }
        };
        coded(SqlState::DATATYPE_MISMATCH, &message)
    }
}

/// A condition on the rows of a table with `schema`, ready to be computed: it depends on the row and who asks
/// alone.
///
/// Errors: it does not parse (42601), is none over these columns (42703, 42804), or has what such a condition
/// has not: a subquery (0A000), an aggregate (42803) or a window function (42P20).
pub(crate) fn condition(
    state: &SessionState,
    text: &str,
    schema: &SchemaRef,
    asker: &Asker,
    of: Condition,
) -> Result<Expr> {
    let parsed = expression(text, asker)?;
    let state = in_utc(state.clone())?;
    let own = DFSchema::try_from(Arc::clone(schema))?;
    if has_query(&parsed) {
        return Err(of.has_query());
    }
    let planned = planned(&state, parsed, &own)?;
    if planned.exists(|part| Ok(matches!(part, Expr::AggregateFunction(_))))? {
        return Err(of.refused("aggregate functions", SqlState::GROUPING_ERROR));
    }
    if planned.exists(|part| Ok(matches!(part, Expr::WindowFunction(_))))? {
        return Err(of.refused("window functions", SqlState::WINDOWING_ERROR));
    }
    let planned = match planned.get_type(&own)? {
        DataType::Boolean => planned,
        DataType::Null => cast(planned, DataType::Boolean),
        other => return Err(of.no_boolean(&other)),
    };
    // Rules for statements see plans: as the filter of one it gets the meaning that it has there.
    let rows = provider_as_source(Arc::new(EmptyTable::new(Arc::clone(schema))));
    let rows = LogicalPlanBuilder::scan("rows", rows, None)?;
    let rows = rows.filter(planned)?.build()?;
    let analyzed = state.analyzer().execute_and_check(rows, state.config_options(), |_, _| {})?;
    let LogicalPlan::Filter(filter) = analyzed else {
        return Err(DataFusionError::Internal("a condition that is none any more".to_string()));
    };
    // What is the same for all rows is worked out here: ranks know neither who asks nor what the session has
    // set.
    let simplified = simplification::rule(&state)?.rewrite(LogicalPlan::Filter(filter), &state)?;
    match simplified.data {
        LogicalPlan::Filter(filter) => Ok(unnormalize_col(filter.predicate)),
        _ => Err(DataFusionError::Internal("a condition that is none any more".to_string())),
    }
}

/// The default of a column.
///
/// Errors: it does not parse (42601), or is no expression without columns.
pub(crate) fn default(state: &SessionState, text: &str, asker: &Asker) -> Result<Expr> {
    let parsed = expression(text, asker)?;
    planned(&with_own_settings(state.clone()), parsed, &DFSchema::empty())
}

/// An expression made ready for the planner.
fn expression(text: &str, asker: &Asker) -> Result<ast::Expr> {
    let text = with_bare_users(text);
    let mut expr = parser::expression(&text)?;
    let _ = expr.visit(&mut Users(asker));
    let mut statement = statement("SELECT NULL")?;
    if let Some(place) = only_item(&mut statement) {
        std::mem::swap(place, &mut expr);
    }
    prepare(&mut statement, true)?;
    match only_item(&mut statement) {
        Some(place) => Ok(std::mem::replace(place, ast::Expr::value(Value::Null))),
        None => Err(DataFusionError::Internal("an expression that is none any more".to_string())),
    }
}

fn planned(state: &SessionState, mut expr: ast::Expr, schema: &DFSchema) -> Result<Expr> {
    nested_case::add_branches_in(&mut expr);
    state.create_logical_expr_from_sql_expr(ExprWithAlias { expr, alias: None }, schema)
}

fn only_item(statement: &mut Statement) -> Option<&mut ast::Expr> {
    let Statement::Statement(statement) = statement else { return None };
    let ast::Statement::Query(query) = statement.as_mut() else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    match select.projection.as_mut_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}

/// One statement in Harrier's own dialect.
fn statement(text: &str) -> Result<Statement> {
    parser::planner_statement(text, &SqlDialect)
}

/// Does to a statement what is done to one of a session, of a client or not, before it is planned.
fn prepare(statement: &mut Statement, of_client: bool) -> Result<()> {
    desugar::prepare(statement, DateOrder::default())?;
    result_columns::prepare(statement, of_client);
    declared_casts::settle(statement);
    if let Statement::Statement(statement) = statement {
        match of_client {
            true => {
                harrier_pgcatalog::rewrite(statement);
                result_columns::disambiguate_columns(statement);
            }
            false => harrier_pgcatalog::rewrite_catalogs(statement),
        }
    }
    Ok(())
}

/// Puts the names of users in the place of the words for them, as ranks do not know them.
struct Users<'a>(&'a Asker);

impl Users<'_> {
    fn called(&self, name: &ast::Ident) -> Option<ast::Expr> {
        if name.quote_style.is_some() {
            return None;
        }
        let user = match name.value.to_ascii_lowercase().as_str() {
            "current_user" | "current_role" | "user" => &self.0.current_user,
            "session_user" => &self.0.session_user,
            _ => return None,
        };
        user.as_ref().map(|user| ast::Expr::value(Value::SingleQuotedString(user.to_string())))
    }
}

impl VisitorMut for Users<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        let user = match expr {
            ast::Expr::Function(function) if has_no_arguments(&function.args) => {
                match function.name.0.as_slice() {
                    [name] => name.as_ident().and_then(|name| self.called(name)),
                    _ => None,
                }
            }
            // The only one that the parser takes for a column.
            ast::Expr::Identifier(name) if name.value.eq_ignore_ascii_case("current_role") => {
                self.called(name)
            }
            _ => None,
        };
        if let Some(user) = user {
            *expr = user;
        }
        ControlFlow::Continue(())
    }
}

fn has_no_arguments(arguments: &FunctionArguments) -> bool {
    match arguments {
        FunctionArguments::None => true,
        FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
        FunctionArguments::Subquery(_) => false,
    }
}

fn has_query(expr: &ast::Expr) -> bool {
    struct Queries;
    impl ast::Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    ast::Visit::visit(expr, &mut Queries).is_break()
}

/// How the query of a view is read, as the catalog says it in the place of a dialect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ViewForm {
    /// Its columns have PostgreSQL's names; those of views that earlier versions of `harrier sql` have kept
    /// have the planner's.
    pub(crate) of_client: bool,
    /// No condition of a statement sees a row that the view has not.
    pub(crate) is_barrier: bool,
}

const OWN: &str = "harrier";
const OF_CLIENT: &str = "client";
const BARRIER: &str = "barrier";

impl ViewForm {
    /// `None`: it is another program's.
    pub(crate) fn of(dialect: &str) -> Option<Self> {
        let mut words = dialect.split(' ');
        if words.next() != Some(OWN) {
            return None;
        }
        let mut form = Self::default();
        for word in words {
            match word {
                OF_CLIENT => form.of_client = true,
                BARRIER => form.is_barrier = true,
                _ => return None,
            }
        }
        Some(form)
    }
}

impl fmt::Display for ViewForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OWN)?;
        for (is_so, word) in [(self.of_client, OF_CLIENT), (self.is_barrier, BARRIER)] {
            if is_so {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

/// The query of a view, made ready for the planner.
///
/// Errors: it does not parse (42601).
pub(crate) fn view(text: &str, form: ViewForm) -> Result<Statement> {
    let mut statement = statement(&format!("CREATE VIEW v AS {}", with_bare_users(text)))?;
    prepare(&mut statement, form.of_client)?;
    if let Statement::Statement(statement) = statement
        && let ast::Statement::CreateView(create) = *statement
    {
        return Ok(Statement::Statement(Box::new(ast::Statement::Query(create.query))));
    }
    Err(DataFusionError::Internal("a view that is none any more".to_string()))
}

/// Without the parentheses that earlier versions have kept behind `current_user` and its like, which no
/// parser takes.
fn with_bare_users(text: &str) -> String {
    const USERS: [&str; 4] = ["current_user", "session_user", "current_catalog", "user"];
    let Ok(words) = Tokens::of(text, &SqlDialect) else { return text.to_string() };
    let mut told = text.to_string();
    for at in (0..words.len().saturating_sub(2)).rev() {
        let has_parentheses =
            || words.token(at + 1) == Some(&Token::LParen) && words.token(at + 2) == Some(&Token::RParen);
        if USERS.iter().any(|user| words.is(at, user)) && has_parentheses() {
            told.replace_range(words.bytes(at + 1..at + 3), "");
        }
    }
    told
}

/// The query in the text of a CREATE VIEW, as it is written; `None` if the text is none.
pub(crate) fn query_of_view(text: &str) -> Option<&str> {
    let words = Tokens::of(text, &SqlDialect).ok()?;
    if !words.is(0, "create") {
        return None;
    }
    let end = (0..words.len()).rev().find(|at| words.token(*at) != Some(&Token::SemiColon))? + 1;
    let mut depth = 0_usize;
    for at in 1..end {
        match words.token(at)? {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && words.is(at, "as") && at + 1 < end => {
                return text.get(words.bytes(at + 1..end));
            }
            _ => {}
        }
    }
    None
}

/// The defaults of columns in the text of a CREATE TABLE or ALTER TABLE, as they are written, in their order.
pub(crate) fn defaults_in(text: &str) -> Vec<&str> {
    let Ok(tokens) = Tokens::of(text, &SqlDialect) else { return vec![] };
    let mut found = Vec::new();
    let mut next = 0;
    while next + 1 < tokens.len() {
        if !tokens.is(next, "default") {
            next += 1;
            continue;
        }
        let mut behind = None;
        let option = nesting::with_limits(tokens.part(next..tokens.len()), |tokens| {
            let mut parser = tokens.parser(nesting::NESTING_MAX);
            let option = parser.parse_optional_column_option()?;
            behind = Some(offset(text, parser.get_current_token().span.end));
            Ok(option)
        });
        next += 1;
        let (Ok(Some(ast::ColumnOption::Default(_))), Some(behind)) = (option, behind) else { continue };
        if let Some(written) = text.get(tokens.bytes(next..next + 1).start..behind) {
            found.push(written.trim_end());
        }
        while next < tokens.len() && tokens.bytes(next..next + 1).start < behind {
            next += 1;
        }
    }
    found
}

/// The text of a condition of a CHECK constraint, which the parser has as `expr`: as `statement` has it, or
/// as it would be written.
///
/// Errors: it cannot be written so that it is read as what it is (0A000).
pub(crate) fn check_text(expr: &ast::Expr, statement: &str) -> Result<String> {
    let asker = Asker::default();
    let is_same = |text: &str| expression(text, &asker).is_ok_and(|read| read == *expr);
    if let Some(written) = checks_in(statement).into_iter().find(|text| is_same(text)) {
        return Ok(written.to_string());
    }
    let text = expr.to_string();
    match expression(&text, &asker) {
        Ok(_) => Ok(text),
        Err(_) => {
            Err(coded(SqlState::FEATURE_NOT_SUPPORTED, "a check constraint cannot have such an expression"))
        }
    }
}

/// What stands in parentheses behind the word CHECK, in any place of a text.
fn checks_in(text: &str) -> Vec<&str> {
    let Ok(words) = Tokens::of(text, &SqlDialect) else { return vec![] };
    let begins = |at: &usize| words.is(*at, "check") && words.token(at + 1) == Some(&Token::LParen);
    let mut found = vec![];
    for at in (0..words.len()).filter(begins) {
        if let Some(end) = words.after_parentheses(at + 1).filter(|end| at + 2 < end - 1) {
            found.extend(text.get(words.bytes(at + 2..end - 1)));
        }
    }
    found
}

/// The texts of the defaults that a statement gives to columns, one after the other.
pub(crate) struct WrittenDefaults<'t>(std::vec::IntoIter<&'t str>);

impl<'t> WrittenDefaults<'t> {
    /// `count`: how many the parser has found in the text.
    pub(crate) fn of(text: &'t str, count: usize) -> Self {
        let found = if count == 0 { vec![] } else { defaults_in(text) };
        Self(if found.len() == count { found } else { vec![] }.into_iter())
    }

    /// The next one, which the parser has as `value`.
    pub(crate) fn next(&mut self, value: &ast::Expr) -> String {
        self.0.next().map_or_else(|| value.to_string(), str::to_string)
    }
}

/// Errors: in the session, a query is something else than where it is going to be read (0A000): in another
/// dialect, or with days in another order.
pub(crate) fn check_meaning(state: &SessionState, query: &str) -> Result<()> {
    check_order(state, query)?;
    let dialect = state.config_options().sql_parser.dialect;
    if dialect == config::Dialect::PostgreSQL {
        return Ok(());
    }
    let other = dialect_from_str(dialect)
        .ok_or_else(|| DataFusionError::Internal(format!("no dialect {dialect}")))?;
    let written = parser::planner_statement(query, other.as_ref())?;
    match statement(query) {
        Ok(read) if read == written => Ok(()),
        _ => {
            let message = format!(
                "what is kept is read in PostgreSQL's SQL, in which this is not what it is in {dialect}"
            );
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("RESET datafusion.sql_parser.dialect")
                .into_datafusion())
        }
    }
}

/// Errors: a text, whatever it is for, is another day in the session than where it is going to be read
/// (0A000).
pub(crate) fn check_order(state: &SessionState, query: &str) -> Result<()> {
    let order = time_reading(state).order;
    if order == DateOrder::default() {
        return Ok(());
    }
    for token in Tokens::of(query, &SqlDialect)?.iter() {
        let Token::SingleQuotedString(text) = token else { continue };
        let read = |order: DateOrder| datetime::normal(text, Kind::TimestampWithZone, order);
        let written = read(order);
        if written != read(DateOrder::default()) {
            let message = format!("what is kept cannot have a day that depends on DateStyle: \"{text}\"");
            let day = written.as_deref().and_then(|written| written.split(' ').next());
            let hint = day.map(|day| format!("Write it as '{day}'."));
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
            return Err(error
                .with_hint(hint.unwrap_or_else(|| "RESET DateStyle".to_string()))
                .into_datafusion());
        }
    }
    Ok(())
}

/// `SELECT expr AS a`.
pub(crate) fn select_of(mut expr: ast::Expr) -> Result<Statement> {
    let mut statement = statement("SELECT NULL AS a")?;
    if let Some(place) = only_item(&mut statement) {
        std::mem::swap(place, &mut expr);
    }
    Ok(statement)
}

/// The text of a query with a schema before the names of relations that have none and are in it.
pub(crate) fn name_schema(text: &str, schema: &str, exists: impl Fn(&str) -> bool) -> Result<String> {
    let Statement::Statement(parsed) = statement(text)? else { return Ok(text.to_string()) };
    let ast::Statement::Query(query) = parsed.as_ref() else { return Ok(text.to_string()) };
    let defined = identifier::cte_names(query);
    let is_meant = |name: &str| !defined.contains(name) && exists(name);
    let mut places = Vec::new();
    identifier::visit_unqualified_relations(query, |name| {
        if is_meant(&identifier::plain(name)) {
            places.push(offset(text, name.span.start));
        }
    });
    // The parser does not tell where the name in `TABLE t` is.
    if let Ok(words) = Tokens::of(text, &SqlDialect) {
        for at in (1..words.len()).filter(|at| words.is(at - 1, "table")) {
            let is_bare = words.token(at + 1) != Some(&Token::Period);
            if words.name(at).is_some_and(|name| is_bare && is_meant(&name)) {
                places.push(words.bytes(at..at + 1).start);
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    let mut named = text.to_string();
    for place in places.into_iter().rev() {
        named.insert_str(place, &format!("\"{}\".", schema.replace('"', "\"\"")));
    }
    Ok(named)
}

fn coded(state: SqlState, message: &str) -> DataFusionError {
    SqlError::new(state, message).into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_views_are_cut_as_they_are_written() {
        for (text, expected) in [
            ("CREATE VIEW v AS SELECT current_user -- who", Some("SELECT current_user")),
            ("/* AS */ create or replace view \"as\" (\"as\", b) AS\n WITH a AS (SELECT 1) TABLE a ;", None),
            ("CREATE VIEW v WITH (security_barrier) AS VALUES (1)", Some("VALUES (1)")),
            ("SELECT 1 AS a", None),
        ] {
            let found = query_of_view(text);
            match expected {
                Some(expected) => assert_eq!(found, Some(expected), "{text}"),
                None if text.starts_with("SELECT") => assert_eq!(found, None),
                None => assert_eq!(found, Some("WITH a AS (SELECT 1) TABLE a")),
            }
        }
    }

    #[test]
    fn defaults_are_cut_as_they_are_written() {
        let check = |text: &str, expected: &[&str]| assert_eq!(defaults_in(text), expected, "{text}");
        check(
            "CREATE TABLE t (a text DEFAULT current_user NOT NULL, \"default\" int, b date DEFAULT (now() /* x */ )::date, c int default -1)",
            &["current_user", "(now() /* x */ )::date", "-1"],
        );
        check(
            "ALTER TABLE t ALTER a DROP DEFAULT, ALTER b SET DEFAULT upper('ü') || 'x'",
            &["upper('ü') || 'x'"],
        );
        check("CREATE TABLE t (a int)", &[]);
    }

    #[test]
    fn relations_get_the_schema_they_are_in() {
        let exists = |name: &str| name == "t" || name == "U";
        let check = |text: &str, expected: &str| {
            assert_eq!(name_schema(text, "s\"", exists).unwrap(), expected);
        };
        check(
            "SELECT * FROM t, \"U\" JOIN x ON true",
            "SELECT * FROM \"s\"\"\".t, \"s\"\"\".\"U\" JOIN x ON true",
        );
        check("WITH t AS (SELECT 1) SELECT * FROM t, m.t", "WITH t AS (SELECT 1) SELECT * FROM t, m.t");
        check(
            "SELECT 'ü' FROM t\nWHERE a IN (TABLE T)",
            "SELECT 'ü' FROM \"s\"\"\".t\nWHERE a IN (TABLE \"s\"\"\".T)",
        );
    }

    #[test]
    fn users_are_read_in_every_form() {
        let asker = Asker { current_user: Some("a'b".into()), session_user: Some("c".into()) };
        for (text, expected) in [
            ("x = current_user", "x = 'a''b'"),
            ("x = current_user()", "x = 'a''b'"),
            ("x = USER OR x = current_role", "x = 'a''b' OR x = 'a''b'"),
            ("x = session_user", "x = 'c'"),
            ("x = \"current_role\"", "x = \"current_role\""),
        ] {
            assert_eq!(expression(text, &asker).unwrap().to_string(), expected);
        }
        assert!(expression("true; SELECT 1", &asker).is_err());
        assert!(expression("true) OR (true", &asker).is_err());
    }

    #[test]
    fn forms_of_views_go_there_and_back() {
        for of_client in [false, true] {
            for is_barrier in [false, true] {
                let form = ViewForm { of_client, is_barrier };
                assert_eq!(ViewForm::of(&form.to_string()), Some(form));
            }
        }
        assert_eq!(ViewForm::of("duckdb"), None);
        assert_eq!(ViewForm::of("harrier later"), None);
    }
}
