//! PostgreSQL's names for result columns, where they differ from DataFusion's.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, FunctionArguments, ObjectName, Query, SelectItem, SetExpr,
    Statement, Visit, Visitor,
};

use crate::identifier::plain;

/// The OID alias types (`regclass` and others): values are OIDs, texts are object names.
pub const OBJECT_TYPES: [&str; 11] = [
    "regclass",
    "regtype",
    "regproc",
    "regprocedure",
    "regnamespace",
    "regrole",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regoper",
    "oid",
];

/// The schemas that may qualify a PostgreSQL type.
const TYPE_SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

const UNKNOWN: &str = "?column?";

/// Names the result columns: as PostgreSQL does where the statement, as the client sent it, has an expression
/// for the column, and as planned where a `*` stands for it. Returns as many names as `planned` has.
pub fn column_names(statement: &Statement, planned: &[String]) -> Vec<String> {
    let Statement::Query(query) = statement else { return planned.to_vec() };
    let Some(items) = select_items(query) else { return planned.to_vec() };
    let mut names: Vec<String> = planned.iter().map(|name| client_name(name).to_string()).collect();
    if reads_queries(query) {
        strip_number_suffixes(&mut names);
    }
    let is_star =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    let before = items.iter().position(is_star).unwrap_or(items.len());
    for (name, item) in names.iter_mut().zip(&items[..before]) {
        *name = select_item_name(item);
    }
    let behind = items.iter().rev().position(is_star).unwrap_or(0);
    let (names_after, items_after) = (names.iter_mut().rev().take(behind), items.iter().rev());
    for (name, item) in names_after.zip(items_after) {
        *name = select_item_name(item);
    }
    names
}

/// Whether a query contains another query.
fn reads_queries(query: &Query) -> bool {
    struct Queries(usize);
    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            if self.0 > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    query.visit(&mut Queries(0)).is_break()
}

/// Strips the suffix `:1` that the planner gives the second column called `a` of a query.
fn strip_number_suffixes(names: &mut [String]) {
    let mut seen: HashSet<String> = HashSet::new();
    for name in names {
        if let Some((own, number)) = name.rsplit_once(':')
            && number.parse::<usize>().is_ok()
            && seen.contains(own)
        {
            name.truncate(own.len());
        }
        seen.insert(name.clone());
    }
}

fn select_items(query: &Query) -> Option<&[SelectItem]> {
    let mut body = &*query.body;
    loop {
        match body {
            SetExpr::Select(select) => return Some(&select.projection),
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            _ => return None,
        }
    }
}

/// The column name of an item of the select list; `None` for a star.
pub fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { .. } | SelectItem::UnnamedExpr(_) => Some(select_item_name(item)),
        _ => None,
    }
}

fn select_item_name(item: &SelectItem) -> String {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => plain(alias),
        SelectItem::UnnamedExpr(expr) => expression_name(expr),
        _ => UNKNOWN.to_string(),
    }
}

/// The column name of an expression without an alias.
pub fn expression_name(expr: &Expr) -> String {
    figure_column_name(expr).map_or_else(|| UNKNOWN.to_string(), |(name, _)| name)
}

/// The name, and whether it is strong: a type's name yields to that of the cast operand. PostgreSQL's
/// `FigureColname`.
fn figure_column_name(expr: &Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_string(), true));
    match expr {
        Expr::Identifier(name) => Some((plain(name), true)),
        Expr::CompoundIdentifier(parts) => Some((plain(parts.last()?), true)),
        Expr::CompoundFieldAccess { root, access_chain } => {
            match access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(name)) => Some(plain(name)),
                _ => None,
            }) {
                Some(name) => Some((name, true)),
                None => figure_column_name(root),
            }
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure_column_name(inner),
        Expr::Function(function) => {
            let name = parts(&function.name).pop()?;
            // The function that the rewrite substituted for a cast.
            let object = name.strip_suffix("in").or_else(|| name.strip_suffix("out"));
            match (object.filter(|name| OBJECT_TYPES.contains(name)), &function.args) {
                (Some(object), FunctionArguments::List(list)) => {
                    let inner = list.args.first().and_then(|argument| match argument {
                        datafusion::sql::sqlparser::ast::FunctionArg::Unnamed(
                            datafusion::sql::sqlparser::ast::FunctionArgExpr::Expr(expr),
                        ) => figure_column_name(expr),
                        _ => None,
                    });
                    inner.filter(|(_, strong)| *strong).or_else(|| Some((object.to_string(), false)))
                }
                _ => Some((name, true)),
            }
        }
        Expr::Cast { expr, data_type, .. } => figure_column_name(expr)
            .filter(|(_, strong)| *strong)
            .or_else(|| Some((type_name(data_type), false))),
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_string(), false)),
        Expr::Case { else_result, .. } => {
            let inner =
                else_result.as_ref().and_then(|expr| figure_column_name(expr)).filter(|(_, strong)| *strong);
            inner.or_else(|| Some(("case".to_string(), false)))
        }
        Expr::Array(_) => strong("array"),
        Expr::Exists { .. } => strong("exists"),
        Expr::Subquery(query) => match select_items(query)?.first()? {
            SelectItem::ExprWithAlias { alias, .. } => Some((plain(alias), true)),
            SelectItem::UnnamedExpr(expr) => figure_column_name(expr),
            _ => None,
        },
        Expr::Extract { .. } => strong("extract"),
        Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => strong("overlaps"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Trim { trim_where, .. } => strong(match trim_where.map(|side| side.to_string()).as_deref() {
            Some("LEADING") => "ltrim",
            Some("TRAILING") => "rtrim",
            _ => "btrim",
        }),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Tuple(_) => strong("row"),
        _ => None,
    }
}

fn type_name(data_type: &DataType) -> String {
    if let Some(name) = custom_type(data_type) {
        return name;
    }
    match data_type {
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Real | DataType::Float4 => "float4",
        DataType::Float(_) | DataType::Float8 | DataType::Double(_) | DataType::DoublePrecision => "float8",
        DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_) => "numeric",
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Timestamp(_, zone)
            if zone.to_string().is_empty() || zone.to_string().contains("WITHOUT") =>
        {
            "timestamp"
        }
        DataType::Timestamp(..) => "timestamptz",
        DataType::Array(_) => return inner_name(data_type),
        other => return other.to_string().to_lowercase(),
    }
    .to_string()
}

/// A cast to an array is named after the element type.
fn inner_name(data_type: &DataType) -> String {
    use datafusion::sql::sqlparser::ast::ArrayElemTypeDef::{AngleBracket, SquareBracket};
    match data_type {
        DataType::Array(SquareBracket(inner, _) | AngleBracket(inner)) => type_name(inner),
        other => other.to_string().to_lowercase(),
    }
}

/// The name of a `pg_catalog` type that DataFusion does not know.
pub fn custom_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Custom(name, modifiers) if modifiers.is_empty() => match parts(name).as_slice() {
            [name] => Some(name.clone()),
            [schema, name] if TYPE_SCHEMAS.contains(&schema.as_str()) => Some(name.clone()),
            _ => None,
        },
        DataType::Regclass => Some("regclass".to_string()),
        _ => None,
    }
}

/// The parts of a name as the planner normalizes them: in lower case unless quoted.
pub fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident().map(plain)).collect()
}

/// A unique alias for the column at position `at` of the select list. The client sees it as `name`.
pub fn duplicate_alias(name: &str, at: usize) -> String {
    format!("__twin_of_{name}_{at}")
}

/// The name that the client sees for an alias made by [`duplicate_alias`].
pub fn client_name(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("__twin_of_") else { return name };
    rest.rsplit_once('_').map_or(name, |(name, _)| name)
}

/// The number of columns of a query without a star.
pub fn column_count(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::SetOperation { left, .. } => column_count(left),
        SetExpr::Query(query) => column_count(&query.body),
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            select.projection.iter().all(is_one).then_some(select.projection.len())
        }
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}
