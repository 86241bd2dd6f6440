//! Rewrites clients' catalog queries that DataFusion cannot plan, preserving their semantics.
//!
//! Applied to every statement, and only giving meaning to syntax that had none: schema-qualified PostgreSQL
//! types, functions and operators, casts to the object name types (`'orders'::regclass`), bytewise
//! collations, array literals after ANY and ALL, niladic functions such as `current_user`, and duplicate
//! column names in one list. Unqualified names of system relations get their schema, since PostgreSQL
//! searches it first. `ARRAY(SELECT …)` becomes an aggregate, and set-returning functions in a SELECT list
//! become `unnest`. Unnamed columns get PostgreSQL's names, where something may refer to them ([`columns`]).
//!
//! Applied only to statements that name a system relation:
//!
//! - A correlated scalar subquery becomes an outer join ([`subqueries`]). It has at most one row, or
//!   PostgreSQL would fail.
//! - A scalar subquery from a relation that is always empty here becomes NULL; so does one that unnests an
//!   always empty array.
//! - A column compared with a text is compared with the text's value: `indisprimary = 't'`, `polroles =
//!   '{0}'`.
//! - `tableoid` of a system relation becomes its oid.
//! - Integer literals in lists become `integer`, and relations' columns are returned in order.
//!
//! Where columns keep the planner's names ([`rewrite_catalogs`], [`rewrite_query`]), none are named, and a
//! statement without system relations is unchanged except for names of types, functions and operators, and
//! niladic functions.

mod arrays_in_from;
mod column_order;
mod columns;
mod domains;
mod empty;
mod expressions;
mod json;
mod lateral;
mod numbers;
mod object_columns;
mod objects;
mod sets;
mod subqueries;
mod system_columns;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, LimitClause, Merge, ObjectName, ObjectNamePart, OutputClause, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, Value, ValueWithSpan,
    Visit, VisitMut, VisitorMut, visit_relations,
};
use harrier_sql::ast_builder::argument_list;
use harrier_sql::column_names::parts;
use harrier_sql::identifier::plain;

use self::domains::base_type_of;
use self::empty::{empty_relation, is_count, is_empty_array, is_empty_function, unfolds_nothing};
use self::objects::{cast, name_objects, plain_type, show_object, show_objects, text_of_name};
use self::sets::{aggregate, field_access, is_array_subquery, no_query, series, unfold};
use crate::rewrite::expressions::{
    array_of_text, call, cast_to, empty_array, null, table_alias, text_literal,
};
use crate::system::{SYSTEM, elements};
use crate::{CATALOG_SCHEMA, INFORMATION_SCHEMA};

pub use objects::{cast_type, planned_type};

/// Rewrites a statement in place. Called once per client statement, before planning.
pub fn rewrite(statement: &mut Statement) {
    let about_catalog = is_about_catalog(statement);
    let makes = matches!(statement, Statement::CreateTable(_) | Statement::CreateView(_));
    let names_values = columns::names_value(statement);
    let mut rewriter =
        Rewriter { about_catalog, names_columns: true, makes, names_values, ..Rewriter::default() };
    match statement {
        Statement::Prepare { data_types, .. } => data_types.iter_mut().for_each(plain_type),
        Statement::CreateTable(create) => {
            create.query.iter_mut().for_each(|query| columns::name(query, false))
        }
        Statement::CreateView(create) => columns::name(&mut create.query, false),
        Statement::Query(query) if about_catalog => column_order::add_order(query),
        _ => {}
    }
    // No visitor hook ever breaks.
    let _ = statement.visit(&mut rewriter);
    if let Some(items) = returning_list(statement) {
        rewriter.name_twins(items);
    }
    if let Statement::Query(query) = statement {
        object_columns::show(query);
        name_objects(&mut query.body);
    }
}

/// The RETURNING list of a DML statement.
fn returning_list(statement: &mut Statement) -> Option<&mut Vec<SelectItem>> {
    match statement {
        Statement::Insert(insert) => insert.returning.as_mut(),
        Statement::Update(update) => update.returning.as_mut(),
        Statement::Delete(delete) => delete.returning.as_mut(),
        Statement::Merge(Merge { output: Some(OutputClause::Returning { select_items, .. }), .. }) => {
            Some(select_items)
        }
        _ => None,
    }
}

/// Rewrites a statement whose columns keep the planner's names, such as a view stored by an earlier version,
/// where `user` is a column.
pub fn rewrite_catalogs(statement: &mut Statement) {
    let mut rewriter = Rewriter { about_catalog: is_about_catalog(statement), ..Rewriter::default() };
    let _ = statement.visit(&mut rewriter);
    if let Statement::Query(query) = statement {
        name_objects(&mut query.body);
    }
}

/// Rewrites a query inside a statement.
pub fn rewrite_query(query: &mut Query) {
    let mut rewriter = Rewriter { about_catalog: is_about_catalog(query), ..Rewriter::default() };
    let _ = query.visit(&mut rewriter);
    name_objects(&mut query.body);
}

/// Whether a statement reads a system relation.
fn is_about_catalog<V: Visit>(statement: &V) -> bool {
    let named = visit_relations(statement, |name| {
        let parts = parts(name);
        let (schema, relation) = match parts.as_slice() {
            [relation] => (None, relation),
            [.., schema, relation] => (Some(schema.as_str()), relation),
            [] => return ControlFlow::Continue(()),
        };
        match schema {
            None if is_system(relation) => ControlFlow::Break(()),
            Some("pg_catalog" | "information_schema") => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    named.is_break()
}

/// Whether `pg_catalog` has this relation. Checks the prefix first, to avoid loading the list of relations.
fn is_system(relation: &str) -> bool {
    relation.starts_with("pg_") && SYSTEM.catalog(relation).is_some()
}

#[derive(Default)]
struct Rewriter {
    about_catalog: bool,
    /// Columns get PostgreSQL's names, and all of its syntax is rewritten.
    names_columns: bool,
    /// The statement creates a relation: its columns keep their names, and duplicates are an error.
    makes: bool,
    /// Nesting depth of queries.
    depth: usize,
    /// Something is named `value`, DataFusion's column of `generate_series`.
    names_values: bool,
    /// Common table expressions in scope, one list per enclosing query.
    common: Vec<Vec<json::Known>>,
    /// Number of generated names.
    made_up: usize,
}

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        if self.names_columns {
            for common in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
                columns::name(&mut common.query, true);
                columns::name_twins(&mut common.alias);
            }
        }
        let names = query.with.iter().flat_map(|with| with.cte_tables.iter());
        let known = names.map(|common| {
            let columns = match common.alias.columns.is_empty() {
                true => json::columns(&common.query),
                false => Some(common.alias.columns.iter().map(|column| plain(&column.name)).collect()),
            };
            (plain(&common.alias.name), columns)
        });
        self.common.push(known.collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.common.pop();
        self.depth -= 1;
        if self.about_catalog
            && let SetExpr::Select(select) = &*query.body
        {
            system_columns::name_in_order(select, &mut query.order_by);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if self.is_wholly() {
            json::name_rows(select, &self.common);
            select.selection.iter_mut().for_each(truth);
        }
        if self.about_catalog {
            arrays_in_from::unfold_in_from(select, &mut self.made_up);
            lateral::unfold(select, &mut self.made_up);
            subqueries::count_in_list(select);
            subqueries::name_tables(select);
            system_columns::name(select);
            subqueries::to_joins(select, &mut self.made_up, !self.names_columns);
            if self.names_columns {
                numbers::shorten(select);
            }
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                && self.is_wholly()
            {
                unfold(expr);
            }
        }
        if self.names_columns && !(self.makes && self.depth == 1) {
            self.name_twins(&mut select.projection);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let gives_nothing = self.is_wholly() && empty::gives_nothing(factor);
        if gives_nothing || self.about_catalog && is_empty_function(factor) {
            *factor = empty_relation(factor);
            return ControlFlow::Continue(());
        }
        if self.about_catalog
            && let Some(series) = series(factor)
        {
            *factor = series;
            return ControlFlow::Continue(());
        }
        if let TableFactor::UNNEST { array_exprs, .. } = factor
            && self.names_columns
        {
            make_arrays_distinct(array_exprs);
        }
        if let TableFactor::Derived { subquery, .. } = factor
            && self.names_columns
        {
            columns::name(subquery, true);
        }
        if self.names_columns && !self.names_values {
            columns::name_function(factor);
        }
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } = factor
            && self.names_columns
        {
            columns::name_twins(alias);
        }
        let TableFactor::Table { name, alias, args, .. } = factor else { return ControlFlow::Continue(()) };
        let known = parts(name);
        // Functions backed by views.
        if args.as_ref().is_some_and(|args| args.args.is_empty())
            && let Some((function, view)) = known.last().and_then(|name| sets::view_of(name))
        {
            *name = ObjectName::from(vec![Ident::new(CATALOG_SCHEMA), Ident::new(view)]);
            *args = None;
            alias.get_or_insert_with(|| table_alias(function));
            return ControlFlow::Continue(());
        }
        match (known.as_slice(), args.is_some()) {
            ([schema, function], true) if schema == CATALOG_SCHEMA || schema == "information_schema" => {
                *name = ObjectName::from(vec![Ident::new(function.clone())]);
            }
            ([relation], false)
                if is_system(relation)
                    && SYSTEM.catalog(relation).is_some_and(|known| known.kind != "f")
                    && !self.common.iter().flatten().any(|(common, _)| common == relation) =>
            {
                *name = ObjectName::from(vec![Ident::new(CATALOG_SCHEMA), Ident::new(relation.clone())]);
            }
            // DataFusion has its own relations there, such as `df_settings`.
            ([.., schema, relation], false)
                if schema == "information_schema" && SYSTEM.information(relation).is_some() =>
            {
                let before = known.len() - 2;
                let mut rest = name.0[..before].to_vec();
                rest.push(ObjectNamePart::Identifier(Ident::new(INFORMATION_SCHEMA)));
                rest.push(ObjectNamePart::Identifier(Ident::with_quote('"', relation.clone())));
                if alias.is_none() {
                    *alias = Some(table_alias(relation));
                }
                *name = ObjectName(rest);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if self.names_columns && !self.about_catalog && is_array_subquery(function) =>
            {
                if let FunctionArguments::Subquery(query) = &mut function.args {
                    *expr = aggregate(std::mem::replace(query, Box::new(no_query())));
                }
            }
            _ if !self.about_catalog => {}
            Expr::Subquery(query) if let Some(of) = base_type_of(query) => {
                *expr = call("pg_basetype", vec![of]);
            }
            // There is no value to compare with, either.
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } if empty::is_never(right) => {
                *expr = cast_to(null(), DataType::Boolean);
            }
            Expr::Subquery(query) if unfolds_nothing(query) && !is_count(query) => *expr = null(),
            Expr::Exists { subquery, negated } if unfolds_nothing(subquery) => {
                *expr = Expr::value(Value::Boolean(*negated));
            }
            Expr::Exists { subquery, .. } => one_is_enough(subquery),
            Expr::Function(function) if is_array_subquery(function) => {
                if let FunctionArguments::Subquery(query) = &mut function.args {
                    *expr = match unfolds_nothing(query) {
                        true => empty_array(),
                        false => aggregate(std::mem::replace(query, Box::new(no_query()))),
                    };
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => {
                let known = parts(&function.name);
                if let [schema, name] = known.as_slice()
                    && (schema == CATALOG_SCHEMA || schema == "information_schema")
                {
                    function.name = ObjectName::from(vec![Ident::new(name.clone())]);
                }
                if self.about_catalog {
                    coalesce_array(function);
                }
                if self.is_wholly() {
                    system_columns::age_of_transaction(function);
                    show_objects(function);
                }
                if let [name] = known.as_slice()
                    && self.is_wholly()
                    && let Some((_, plain)) = OTHER_NAMES.iter().find(|(other, _)| other == name)
                {
                    function.name = ObjectName::from(vec![Ident::new(*plain)]);
                }
                if matches!(function.args, FunctionArguments::None)
                    && let Some(name) = known.first()
                {
                    let register = ["current_user", "session_user", "current_role", "current_catalog"];
                    let is_user = self.names_columns && name == "user";
                    if is_user {
                        function.name = ObjectName::from(vec![Ident::new("current_user")]);
                    }
                    if is_user || register.contains(&name.as_str()) {
                        function.args = FunctionArguments::List(argument_list(vec![]));
                    }
                }
            }
            Expr::Identifier(identifier)
                if identifier.quote_style.is_none()
                    && identifier.value.eq_ignore_ascii_case("current_schema") =>
            {
                *expr = call("current_schema", vec![]);
            }
            // `information_schema.tables.table_name`, whose relation has an alias now.
            Expr::CompoundIdentifier(parts)
                if parts.len() == 3 && plain(&parts[0]) == "information_schema" =>
            {
                parts.remove(0);
            }
            Expr::BinaryOp { left, op, right } => {
                plain_operator(op);
                if *op == BinaryOperator::StringConcat && self.is_wholly() {
                    show_object(left);
                    show_object(right);
                }
                if self.about_catalog {
                    compare_with_text(left, right);
                    compare_with_text(right, left);
                }
            }
            Expr::Like { any: true, .. } | Expr::ILike { any: true, .. } if self.is_wholly() => {
                sets::like_any(expr);
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. }
                if self.is_wholly() =>
            {
                plain_escape(pattern, escape_char);
            }
            Expr::Collate { expr: inner, collation } if self.is_wholly() && is_byte_order(collation) => {
                *expr = std::mem::replace(inner, null());
            }
            Expr::AnyOp { .. } | Expr::AllOp { .. } if self.is_wholly() => {
                if let Some(compared) = compared_with_each(expr) {
                    *expr = compared;
                } else if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr
                    && let Some(array) = array_of_text(right)
                {
                    **right = array;
                }
            }
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, data_type, .. } => {
                let is_array = matches!(data_type, DataType::Array(_));
                cast(expr);
                if is_array && let Some(array) = array_of_text(expr) {
                    *expr = array;
                }
                if self.about_catalog && self.names_columns {
                    text_of_name(expr);
                }
            }
            Expr::TypedString(typed) => plain_type(&mut typed.data_type),
            Expr::Substring { .. } if self.is_wholly() => sets::substring_match(expr),
            Expr::CompoundFieldAccess { .. } => {
                field_access(expr);
                if self.about_catalog {
                    sets::from_zero(expr);
                }
            }
            Expr::Case { operand, conditions, else_result, .. } if self.about_catalog => {
                if let Some(operand) = operand {
                    conditions.iter_mut().for_each(|when| compare_with_text(operand, &mut when.condition));
                }
                let results = conditions.iter_mut().map(|when| &mut when.result);
                array_results(results.chain(else_result.iter_mut().map(|result| &mut **result)).collect());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Rewriter {
    /// Whether all PostgreSQL syntax is rewritten.
    fn is_wholly(&self) -> bool {
        self.about_catalog || self.names_columns
    }

    /// Renames list expressions that would have the same name, which DataFusion rejects.
    fn name_twins(&mut self, items: &mut [SelectItem]) {
        let stars = items.iter().filter_map(|item| match item {
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                parts(name).pop()
            }
            _ => None,
        });
        let stars: HashSet<String> = stars.collect();
        let is_star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
        let has_star = items.iter().any(is_star);
        let mut seen = HashSet::new();
        for item in items {
            let (key, expr) = match &*item {
                SelectItem::UnnamedExpr(expr) => {
                    let starred = match expr {
                        Expr::Identifier(_) => has_star,
                        Expr::CompoundIdentifier(parts) => {
                            has_star || parts.len() == 2 && stars.contains(&plain(&parts[0]))
                        }
                        _ => false,
                    };
                    let twin = !seen.insert(expr.to_string());
                    if !twin && !starred {
                        continue;
                    }
                    // The name of a nested query's column is visible outside.
                    match expr {
                        Expr::Identifier(name) => (format!("twin_of_{}", plain(name)), expr.clone()),
                        Expr::CompoundIdentifier(names) => {
                            let name = names.last().map(plain).unwrap_or_default();
                            (format!("twin_of_{name}"), expr.clone())
                        }
                        _ => ("column".to_string(), expr.clone()),
                    }
                }
                SelectItem::ExprWithAlias { expr, alias } if !seen.insert(format!("as {}", plain(alias))) => {
                    (format!("twin_of_{}", plain(alias)), expr.clone())
                }
                _ => continue,
            };
            self.made_up += 1;
            let alias = Ident::with_quote('"', format!("__{key}_{}", self.made_up));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Makes arrays unnested side by side distinct expressions, as DataFusion requires.
fn make_arrays_distinct(arrays: &mut [Expr]) {
    let mut seen = HashSet::new();
    for array in arrays {
        while !seen.insert(array.to_string()) {
            let conditions =
                vec![CaseWhen { condition: Expr::value(Value::Boolean(true)), result: array.clone() }];
            *array = Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions,
                else_result: None,
            };
        }
    }
}

/// Functions with another name in DataFusion.
const OTHER_NAMES: [(&str, &str); 3] = [("ceiling", "ceil"), ("every", "bool_and"), ("variance", "var_samp")];

/// `OPERATOR(pg_catalog.~)` is `~`.
fn plain_operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(parts) = op else { return };
    let [schema, symbol] = parts.as_slice() else { return };
    if schema != CATALOG_SCHEMA {
        return;
    }
    *op = match symbol.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "<=" => BinaryOperator::LtEq,
        ">=" => BinaryOperator::GtEq,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        _ => return,
    };
}

/// `WHERE ('true')`.
fn truth(condition: &mut Expr) {
    let truth = match text_literal(condition).map(str::to_ascii_lowercase).as_deref() {
        Some("t" | "true" | "y" | "yes" | "on" | "1") => true,
        Some("f" | "false" | "n" | "no" | "off" | "0") => false,
        _ => return,
    };
    *condition = Expr::value(Value::Boolean(truth));
}

/// Compares a boolean or array column with a text's value.
fn compare_with_text(column: &Expr, text: &mut Expr) {
    static BOOLS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
        columns.filter(|column| column.type_name == "bool").map(|column| column.name).collect()
    });
    let name = match column {
        Expr::Identifier(name) => plain(name),
        Expr::CompoundIdentifier(parts) => parts.last().map(plain).unwrap_or_default(),
        _ => return,
    };
    let Some(literal) = text_literal(text) else { return };
    if BOOLS.contains(name.as_str()) {
        let truth = match literal {
            "t" | "true" | "on" | "1" => true,
            "f" | "false" | "off" | "0" => false,
            _ => return,
        };
        *text = Expr::value(Value::Boolean(truth));
    } else if is_empty_array(&name) && literal.starts_with('{') {
        let numbers =
            elements(literal).into_iter().flatten().map(|e| e.parse::<i64>()).collect::<Result<Vec<_>, _>>();
        if let Ok(numbers) = numbers {
            let elem =
                numbers.into_iter().map(|n| Expr::value(Value::Number(n.to_string(), false))).collect();
            *text = Expr::Array(Array { elem, named: true });
        }
    }
}

/// Converts `LIKE 'a/_' || '%' ESCAPE '/'` to DataFusion's only escape character. The pattern must consist of
/// literals.
fn plain_escape(pattern: &mut Expr, escape: &mut Option<ValueWithSpan>) {
    let letter = match escape.as_ref().map(|escape| &escape.value) {
        Some(Value::SingleQuotedString(text)) if text != "\\" && text.chars().count() == 1 => {
            text.chars().next()
        }
        _ => None,
    };
    let Some(letter) = letter else { return };
    fn convert_escapes(expr: &mut Expr, letter: char) -> bool {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
                let mut written = String::new();
                let mut letters = text.chars();
                while let Some(next) = letters.next() {
                    if next == '\\' {
                        written += "\\\\";
                    } else if next == letter {
                        // A trailing escape is an error when the pattern is used.
                        let Some(escaped) = letters.next() else { return false };
                        written.push('\\');
                        written.push(escaped);
                    } else {
                        written.push(next);
                    }
                }
                *text = written;
                true
            }
            Expr::Cast { expr, .. } | Expr::Nested(expr) => convert_escapes(expr, letter),
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
                convert_escapes(left, letter) && convert_escapes(right, letter)
            }
            _ => false,
        }
    }
    let mut changed = pattern.clone();
    if convert_escapes(&mut changed, letter) {
        *pattern = changed;
        *escape = None;
    }
}

/// `coalesce(x, '{}')` with an array literal.
fn coalesce_array(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let is_empty = match list.args.as_slice() {
        [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => text_literal(expr) == Some("{}"),
        _ => false,
    };
    if is_empty && parts(&function.name) == ["coalesce"] {
        list.args.pop();
        function.name = ObjectName::from(vec![Ident::new("array_or_empty")]);
    }
}

/// `EXISTS (… LIMIT 1)`, where the limit is redundant.
fn one_is_enough(query: &mut Query) {
    if let Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset: None, limit_by }) =
        &query.limit_clause
        && limit_by.is_empty()
        && matches!(&limit.value, Value::Number(number, _) if number.parse::<u64>().is_ok_and(|rows| rows > 0))
    {
        query.limit_clause = None;
    }
}

/// Converts text results of a CASE to arrays if another result is an access control list.
fn array_results(results: Vec<&mut Expr>) {
    let is_list = |expr: &Expr| match expr {
        Expr::Function(function) => parts(&function.name).last().is_some_and(|name| name == "acldefault"),
        _ => false,
    };
    if results.iter().any(|result| is_list(result)) {
        for result in results {
            if let Some(array) = array_of_text(result) {
                *result = array;
            }
        }
    }
}

/// Whether a collation orders bytewise, as everything here does.
fn is_byte_order(collation: &ObjectName) -> bool {
    let name = parts(collation);
    matches!(name.last().map(String::as_str), Some("default" | "C" | "POSIX" | "ucs_basic"))
        && (name.len() == 1 || name[0] == CATALOG_SCHEMA)
}

/// `a > ANY ('{1,2}')` as comparisons with the elements, each of which is a literal of no type yet then:
/// an array of them would be one of texts. `None`: it is another comparison, or with another array.
fn compared_with_each(expr: &Expr) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let (left, op, right, is_any) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, true),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, false),
        _ => return None,
    };
    text_literal(right)?;
    let Expr::Array(Array { elem, .. }) = array_of_text(right)? else { return None };
    match (op, is_any) {
        _ if elem.is_empty() => None,
        (Eq, true) | (NotEq, false) => {
            Some(Expr::InList { expr: left.clone(), list: elem, negated: !is_any })
        }
        (Eq | NotEq | Lt | LtEq | Gt | GtEq, _) => {
            let each = elem.into_iter().map(|element| Expr::BinaryOp {
                left: left.clone(),
                op: op.clone(),
                right: Box::new(element),
            });
            let joint = if is_any { BinaryOperator::Or } else { BinaryOperator::And };
            Some(Expr::Nested(Box::new(join(each.collect(), &joint)?)))
        }
        _ => None,
    }
}

/// Conditions as one, whose levels are few.
fn join(mut conditions: Vec<Expr>, op: &BinaryOperator) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let others = conditions.split_off(conditions.len() / 2);
    Some(Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(join(conditions, op)?))),
        op: op.clone(),
        right: Box::new(Expr::Nested(Box::new(join(others, op)?))),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn statements_without_catalogs_are_not_rewritten() {
        for sql in [
            "SELECT a, b FROM orders AS o LEFT JOIN region AS r ON o.id = r.id WHERE a LIKE 'x%' ORDER BY 1",
            "SELECT (SELECT max(x) FROM t WHERE t.a = o.a) FROM orders AS o",
            "SELECT (SELECT x FROM t WHERE t.a = o.a) FROM orders AS o",
            "SELECT '{a}' = b, a = 't', coalesce(a, '{}') FROM t",
            "WITH pg_class AS (SELECT 1 AS x) SELECT x FROM pg_class AS c",
            "INSERT INTO t (a, b) SELECT a, b FROM u",
            "CREATE TABLE t AS SELECT a, a FROM u",
            "UPDATE t SET a = 1 WHERE b = 'x'",
            "SELECT a COLLATE \"de-x-icu\" FROM t",
            "SELECT tableoid, relname FROM t",
            "SELECT CAST(a AS INTEGER), b::DATE, c::NUMERIC(10,2) FROM t",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }

    #[test]
    fn columns_keep_the_names_of_the_planner() {
        for (sql, expected) in [
            ("SELECT user, ceiling(a), 1, 1 FROM t", "SELECT user, ceiling(a), 1, 1 FROM t"),
            ("SELECT * FROM (SELECT count(*) FROM t) AS s", "SELECT * FROM (SELECT count(*) FROM t) AS s"),
            ("SELECT current_user, generate_series(1, 3)", "SELECT current_user(), generate_series(1, 3)"),
            ("SELECT 'orders'::regclass", "SELECT regclassout('orders') AS \"regclass\""),
            (
                "SELECT count(*) FROM information_schema.tables WHERE table_name = ANY ('{x}')",
                "SELECT count(*) FROM pg_information_schema.\"tables\" AS \"tables\" \
                 WHERE table_name IN ('x')",
            ),
            (
                "SELECT value FROM information_schema.df_settings",
                "SELECT value FROM information_schema.df_settings",
            ),
            (
                "SELECT (SELECT nspname FROM pg_namespace n WHERE n.oid = c.relnamespace) FROM pg_class c",
                "SELECT \"__subquery_1\".\"__column_0\" AS \"nspname\" FROM pg_catalog.pg_class c LEFT OUTER JOIN \
                 (SELECT nspname AS \"__column_0\", n.oid AS \"__column_1\" FROM pg_catalog.pg_namespace n) \
                 AS \"__subquery_1\" ON \"__subquery_1\".\"__column_1\" = c.relnamespace",
            ),
        ] {
            let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
            rewrite_catalogs(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }

    #[test]
    fn client_queries_are_simplified() {
        for (sql, expected) in [
            (
                "SELECT pg_catalog.version(), 'x'::pg_catalog.text, a OPERATOR(pg_catalog.~) 'b' COLLATE pg_catalog.default",
                "SELECT version(), 'x'::TEXT, a ~ 'b'",
            ),
            (
                "SELECT a FROM t WHERE b = 'orders'::regclass",
                "SELECT a FROM t WHERE b = regclassin('orders')",
            ),
            ("SELECT oid FROM pg_class", "SELECT oid FROM pg_catalog.pg_class"),
            (
                "SELECT a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid",
                "SELECT a.attname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid \
                 ORDER BY a.attrelid, a.attnum",
            ),
            (
                "SELECT conrelid::regclass AS t, count(*) FROM pg_constraint GROUP BY conrelid::regclass",
                "SELECT regclassout(conrelid) AS t, count(*) FROM pg_catalog.pg_constraint GROUP BY regclassout(conrelid)",
            ),
            (
                "SELECT r, r || '!' AS b, x.r::text FROM (SELECT conrelid::regclass AS r FROM pg_constraint) x",
                "SELECT regclassout(r) AS \"r\", regclassout(r) || '!' AS b, regclassout(x.r)::TEXT \
                 FROM (SELECT regclassin(conrelid) AS r FROM pg_catalog.pg_constraint) x",
            ),
            (
                "SELECT r FROM (SELECT conrelid::regclass AS r FROM pg_constraint) x WHERE r::text <> 'p' ORDER BY r::text",
                "SELECT regclassout(r) AS \"r\" FROM (SELECT regclassin(conrelid) AS r FROM pg_catalog.pg_constraint) x \
                 WHERE regclassout(r)::TEXT <> 'p' ORDER BY regclassout(r)::TEXT",
            ),
            (
                "SELECT a.r, b.r FROM (SELECT 'p'::regclass AS r) a, (SELECT 'c'::regclass AS r) b, pg_class c",
                "SELECT regclassout(a.r) AS \"__object_0\", regclassout(b.r) AS \"__object_1\" \
                 FROM (SELECT regclassin('p') AS r) a, (SELECT regclassin('c') AS r) b, pg_catalog.pg_class c",
            ),
            (
                "WITH x AS (SELECT conrelid::regclass AS r, conname AS n FROM pg_constraint) SELECT * FROM x AS y",
                "WITH x AS (SELECT regclassin(conrelid) AS r, conname AS n FROM pg_catalog.pg_constraint) \
                 SELECT regclassout(\"r\") AS \"r\", \"n\" FROM x AS y",
            ),
            ("SELECT max(attnum) FROM pg_attribute", "SELECT max(attnum) FROM pg_catalog.pg_attribute"),
            (
                "SELECT CASE WHEN relname = 'a' THEN 1 ELSE -1 END AS a, 5000000000 AS b, 1.5 AS c FROM pg_class",
                "SELECT CAST(CASE WHEN relname = 'a' THEN 1 ELSE -1 END AS INTEGER) AS a, 5000000000 AS b, 1.5 AS c \
                 FROM pg_catalog.pg_class",
            ),
            (
                "SELECT n.conname, k FROM pg_constraint AS n CROSS JOIN UNNEST(conkey) AS k",
                "SELECT n.conname, k FROM pg_catalog.pg_constraint AS n CROSS JOIN (SELECT oid AS \"__of_1\", \
                 unnest(conkey) AS k FROM pg_catalog.pg_constraint) AS k WHERE k.\"__of_1\" = n.oid",
            ),
            (
                "SELECT table_name FROM information_schema.tables",
                "SELECT table_name FROM pg_information_schema.\"tables\" AS \"tables\"",
            ),
            ("SELECT a FROM t WHERE b = ANY ('{x,y}')", "SELECT a FROM t WHERE b IN ('x', 'y')"),
            ("SELECT a FROM t WHERE b <> ALL ('{x,NULL}')", "SELECT a FROM t WHERE b NOT IN ('x', NULL)"),
            ("SELECT a FROM t WHERE b > ANY ('{1,2}')", "SELECT a FROM t WHERE ((b > '1') OR (b > '2'))"),
            ("SELECT a FROM t WHERE b > ALL ('{1}')", "SELECT a FROM t WHERE (b > '1')"),
            ("SELECT a FROM t WHERE a LIKE 'x/_%' ESCAPE '/'", "SELECT a FROM t WHERE a LIKE 'x\\_%'"),
            ("SELECT 1, 1", "SELECT 1, 1 AS \"__column_1\""),
            (
                "SELECT (SELECT nspname FROM pg_namespace n WHERE n.oid = relnamespace AND c.relkind <> n.nspname) FROM pg_class c",
                "SELECT \"__subquery_1\".\"__column_0\" FROM pg_catalog.pg_class c LEFT OUTER JOIN \
                 (SELECT nspname AS \"__column_0\", n.oid AS \"__column_1\", n.nspname AS \"__column_2\" \
                 FROM pg_catalog.pg_namespace n) AS \"__subquery_1\" \
                 ON \"__subquery_1\".\"__column_1\" = relnamespace AND c.relkind <> \"__subquery_1\".\"__column_2\"",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
