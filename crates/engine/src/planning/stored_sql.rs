//! SQL that is stored as text: row filters, column defaults, view queries.
//!
//! # Invariants
//!
//! Stored SQL means the same to every reader as to its author. It is parsed in Harrier's own dialect, with
//! the default settings of parser and planner, whatever the reading session has SET, and is desugared like
//! any statement. The original text is stored: the parser's rendering of its tree does not always parse
//! again. `current_user` and `session_user` are those of the reading session ([`SessionUsers`]), also behind
//! a view, as in PostgreSQL, where a view runs with its owner's rights but not under its name.

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
use harrier_sqlstate::{IntoDataFusionError, error};

use crate::planning::declared_casts;
use crate::settings::{HarrierSettings, time_reading};
use crate::types::names;

/// The users of the reading session, whoever's rights are checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SessionUsers {
    /// `None`: no user, as without roles.
    pub(crate) current_user: Option<Arc<str>>,
    pub(crate) session_user: Option<Arc<str>>,
}

/// `state` with the settings under which stored SQL is parsed and planned.
pub(crate) fn with_own_settings(mut state: SessionState) -> SessionState {
    let options = state.config_mut().options_mut();
    options.sql_parser =
        SqlParserOptions { dialect: config::Dialect::PostgreSQL, ..SqlParserOptions::default() };
    if let Some(settings) = options.extensions.get_mut::<HarrierSettings>() {
        settings.date_order = DateOrder::default();
    }
    state
}

/// The same, with UTC as the session's time zone.
fn with_utc_settings(state: SessionState) -> Result<SessionState> {
    let mut state = with_own_settings(state);
    let zone = &mut state.config_mut().options_mut().execution.time_zone;
    if zone.as_deref() != Some(UTC) {
        *zone = Some(UTC.to_string());
        crate::settings::refresh_functions(&mut state)?;
    }
    Ok(state)
}

/// Kind of a stored condition on a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    RowFilter,
    Check,
}

impl Condition {
    /// Errors use PostgreSQL's wording for constraints.
    fn not_allowed(self, what: &str, state: SqlState) -> DataFusionError {
        let message = match self {
            Self::RowFilter => format!("{what} are not allowed in row filters"),
            Self::Check => format!("{what} are not allowed in check constraints"),
        };
        error(state, &message)
    }

    fn subquery_error(self) -> DataFusionError {
        let message = match self {
            Self::RowFilter => "a row filter cannot have subqueries",
            Self::Check => "cannot use subquery in check constraint",
        };
        error(SqlState::FEATURE_NOT_SUPPORTED, message)
    }

    fn type_error(self, kind: &DataType) -> DataFusionError {
        let message = match self {
            Self::RowFilter => "a row filter has to be of type boolean".to_string(),
            Self::Check => {
                format!("argument of CHECK must be type boolean, not type {}", names::type_name(kind))
            }
        };
        error(SqlState::DATATYPE_MISMATCH, &message)
    }
}

/// Plans a condition on the rows of a table with `schema`: it depends only on the row and the session's
/// users.
///
/// Errors: it does not parse (42601), is invalid for these columns (42703, 42804), or contains a subquery
/// (0A000), an aggregate (42803) or a window function (42P20).
pub(crate) fn condition(
    state: &SessionState,
    text: &str,
    schema: &SchemaRef,
    users: &SessionUsers,
    of: Condition,
) -> Result<Expr> {
    let parsed = expression(text, users)?;
    let state = with_utc_settings(state.clone())?;
    let own = DFSchema::try_from(Arc::clone(schema))?;
    if has_query(&parsed) {
        return Err(of.subquery_error());
    }
    let planned = plan_expr(&state, parsed, &own)?;
    if planned.exists(|part| Ok(matches!(part, Expr::AggregateFunction(_))))? {
        return Err(of.not_allowed("aggregate functions", SqlState::GROUPING_ERROR));
    }
    if planned.exists(|part| Ok(matches!(part, Expr::WindowFunction(_))))? {
        return Err(of.not_allowed("window functions", SqlState::WINDOWING_ERROR));
    }
    let planned = match planned.get_type(&own)? {
        DataType::Boolean => planned,
        DataType::Null => cast(planned, DataType::Boolean),
        other => return Err(of.type_error(&other)),
    };
    // Analyzer rules work on plans: analyze the condition as the predicate of a filter.
    let rows = provider_as_source(Arc::new(EmptyTable::new(Arc::clone(schema))));
    let rows = LogicalPlanBuilder::scan("rows", rows, None)?;
    let rows = rows.filter(planned)?.build()?;
    let analyzed = state.analyzer().execute_and_check(rows, state.config_options(), |_, _| {})?;
    let LogicalPlan::Filter(filter) = analyzed else {
        return Err(DataFusionError::Internal("a condition that is none any more".to_string()));
    };
    // Evaluate constants here: ranks know neither the session's users nor its settings.
    let simplified = simplification::rule(&state)?.rewrite(LogicalPlan::Filter(filter), &state)?;
    match simplified.data {
        LogicalPlan::Filter(filter) => Ok(unnormalize_col(filter.predicate)),
        _ => Err(DataFusionError::Internal("a condition that is none any more".to_string())),
    }
}

/// Plans the default of a column.
///
/// Errors: it does not parse (42601), or is not an expression without columns.
pub(crate) fn default(state: &SessionState, text: &str, users: &SessionUsers) -> Result<Expr> {
    let parsed = expression(text, users)?;
    plan_expr(&with_own_settings(state.clone()), parsed, &DFSchema::empty())
}

/// Parses an expression and desugars it.
fn expression(text: &str, users: &SessionUsers) -> Result<ast::Expr> {
    let text = with_bare_users(text);
    let mut expr = parser::expression(&text)?;
    let _ = expr.visit(&mut Users(users));
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

fn plan_expr(state: &SessionState, mut expr: ast::Expr, schema: &DFSchema) -> Result<Expr> {
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

/// Parses one statement in Harrier's own dialect.
fn statement(text: &str) -> Result<Statement> {
    parser::planner_statement(text, &SqlDialect)
}

/// Applies the rewrites that a session, of a client or not, applies to its statements before planning.
fn prepare(statement: &mut Statement, of_client: bool) -> Result<()> {
    desugar::prepare(statement, DateOrder::default())?;
    result_columns::prepare(statement, of_client);
    declared_casts::rewrite_casts(statement);
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

/// Replaces `current_user` and its variants by the user's name, which ranks do not know.
struct Users<'a>(&'a SessionUsers);

impl Users<'_> {
    fn user_literal(&self, name: &ast::Ident) -> Option<ast::Expr> {
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
                    [name] => name.as_ident().and_then(|name| self.user_literal(name)),
                    _ => None,
                }
            }
            // The parser takes only this one for a column.
            ast::Expr::Identifier(name) if name.value.eq_ignore_ascii_case("current_role") => {
                self.user_literal(name)
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

/// How a view's query is planned, stored in the catalog in place of a dialect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ViewForm {
    /// The columns have PostgreSQL's names; those of views that earlier versions of `harrier sql` stored have
    /// the planner's.
    pub(crate) of_client: bool,
    /// Security barrier: predicates of the outer statement see only rows of the view.
    pub(crate) is_barrier: bool,
}

const OWN: &str = "harrier";
const OF_CLIENT: &str = "client";
const BARRIER: &str = "barrier";

impl ViewForm {
    /// `None`: another program created the view.
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

/// Parses and desugars the query of a view.
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

/// Removes the parentheses that earlier versions stored behind `current_user` and its variants, which do not
/// parse.
fn with_bare_users(text: &str) -> String {
    const USERS: [&str; 4] = ["current_user", "session_user", "current_catalog", "user"];
    let Ok(words) = Tokens::of(text, &SqlDialect) else { return text.to_string() };
    let mut bare = text.to_string();
    for at in (0..words.len().saturating_sub(2)).rev() {
        let has_parentheses =
            || words.token(at + 1) == Some(&Token::LParen) && words.token(at + 2) == Some(&Token::RParen);
        if USERS.iter().any(|user| words.is(at, user)) && has_parentheses() {
            bare.replace_range(words.bytes(at + 1..at + 3), "");
        }
    }
    bare
}

/// The query in the text of a CREATE VIEW, verbatim; `None` if the text is no CREATE VIEW.
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

/// The defaults in the text of a CREATE TABLE or ALTER TABLE, verbatim and in order.
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

/// The text of a CHECK condition that parses to `expr`: verbatim from `statement`, or rendered.
///
/// Errors: the rendered text does not parse (0A000).
pub(crate) fn check_text(expr: &ast::Expr, statement: &str) -> Result<String> {
    let users = SessionUsers::default();
    let is_same = |text: &str| expression(text, &users).is_ok_and(|read| read == *expr);
    if let Some(written) = checks_in(statement).into_iter().find(|text| is_same(text)) {
        return Ok(written.to_string());
    }
    let text = expr.to_string();
    match expression(&text, &users) {
        Ok(_) => Ok(text),
        Err(_) => {
            Err(error(SqlState::FEATURE_NOT_SUPPORTED, "a check constraint cannot have such an expression"))
        }
    }
}

/// The parenthesized texts after each CHECK keyword.
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

/// Iterator over the texts of a statement's column defaults.
pub(crate) struct WrittenDefaults<'t>(std::vec::IntoIter<&'t str>);

impl<'t> WrittenDefaults<'t> {
    /// `count`: number of defaults that the parser found.
    pub(crate) fn of(text: &'t str, count: usize) -> Self {
        let found = if count == 0 { vec![] } else { defaults_in(text) };
        Self(if found.len() == count { found } else { vec![] }.into_iter())
    }

    /// The text of the next default; falls back to rendering `value`, the parsed expression.
    pub(crate) fn next(&mut self, value: &ast::Expr) -> String {
        self.0.next().map_or_else(|| value.to_string(), str::to_string)
    }
}

/// Errors: the session's dialect or date order gives the query another meaning than it will have when read
/// (0A000).
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

/// Errors: with the session's date order, a string in the query is another date than it will be when read
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

/// Qualifies the unqualified relations of a query's text that exist in the schema.
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
    // The parser gives no position for the name in `TABLE t`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_queries_keep_their_text() {
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
    fn defaults_keep_their_text() {
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
    fn relations_are_qualified_with_their_schema() {
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
        let users = SessionUsers { current_user: Some("a'b".into()), session_user: Some("c".into()) };
        for (text, expected) in [
            ("x = current_user", "x = 'a''b'"),
            ("x = current_user()", "x = 'a''b'"),
            ("x = USER OR x = current_role", "x = 'a''b' OR x = 'a''b'"),
            ("x = session_user", "x = 'c'"),
            ("x = \"current_role\"", "x = \"current_role\""),
        ] {
            assert_eq!(expression(text, &users).unwrap().to_string(), expected);
        }
        assert!(expression("true; SELECT 1", &users).is_err());
        assert!(expression("true) OR (true", &users).is_err());
    }

    #[test]
    fn view_definitions_round_trip() {
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
