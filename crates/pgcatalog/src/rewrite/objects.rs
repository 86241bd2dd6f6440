//! Types of `pg_catalog` and object name types: casts become functions, and results show names.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, Select, SelectItem, SetExpr, TimezoneInfo, Value,
};

use harrier_sql::column_names::{self, OBJECT_TYPES, custom_type, parts};
use harrier_sql::identifier::plain;

use crate::rewrite::expressions::{array_of_text, call, null};
use crate::system::SYSTEM;

/// Types stored like others but reported to clients by their own names. Casts to them, and to arrays of them,
/// are kept.
const REPORTED_BY_NAME: [&str; 11] = [
    "name",
    "char",
    "oid",
    "regclass",
    "regtype",
    "regproc",
    "regprocedure",
    "regnamespace",
    "regrole",
    "varchar",
    "bpchar",
];

/// The storage type and PostgreSQL name of a cast's target, if its Arrow type does not determine it.
pub fn cast_type(data_type: &DataType) -> Option<(datafusion::arrow::datatypes::DataType, String)> {
    use datafusion::arrow::datatypes::{DataType as Arrow, Field};
    if let DataType::Array(
        ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
    ) = data_type
    {
        let (item, name) = cast_type(inner)?;
        // Arrays hold the oids of objects; texts would be their names.
        let item = if OBJECT_TYPES.contains(&name.as_str()) { Arrow::Int32 } else { item };
        return Some((Arrow::List(Field::new_list_field(item, true).into()), format!("_{name}")));
    }
    let name = match data_type {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            "varchar".to_string()
        }
        DataType::Char(_) | DataType::Character(_) => "bpchar".to_string(),
        DataType::Uuid => "uuid".to_string(),
        other => custom_type(other).filter(|name| REPORTED_BY_NAME.contains(&name.as_str()))?,
    };
    // An object's name and its number are both texts here.
    Some((if name == "oid" { Arrow::Int32 } else { Arrow::Utf8 }, name))
}

/// Whether the planner gets PostgreSQL's type from [`planned_type`].
fn is_reported_by_name(data_type: &DataType) -> bool {
    planned_type(data_type).is_some()
}

/// The planner's field for a cast to `name`, `"char"`, or an array of an object name type.
pub fn planned_type(data_type: &DataType) -> Option<datafusion::arrow::datatypes::Field> {
    let (arrow, name) = cast_type(data_type)?;
    let is_plain = matches!(name.as_str(), "name" | "char");
    let is_array = name
        .strip_prefix('_')
        .is_some_and(|item| matches!(item, "name" | "char") || OBJECT_TYPES.contains(&item));
    let field = datafusion::arrow::datatypes::Field::new("", arrow, true);
    (is_plain || is_array).then(|| crate::types::named_field(field, &name))
}

/// Replaces types of `pg_catalog` by DataFusion's names.
pub(super) fn plain_type(data_type: &mut DataType) {
    if is_reported_by_name(data_type) {
        return;
    }
    if let DataType::Array(
        ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
    ) = data_type
    {
        return plain_type(inner);
    }
    let Some(name) = custom_type(data_type) else { return };
    *data_type =
        match name.as_str() {
            "bool" => DataType::Boolean,
            "int2" | "smallint" => DataType::SmallInt(None),
            "int4" | "integer" | "oid" | "regclass" | "regtype" | "regproc" | "regprocedure"
            | "regnamespace" | "regrole" | "regcollation" | "regconfig" | "regdictionary" | "regoper"
            | "cardinal_number" => DataType::Integer(None),
            "int8" | "bigint" => DataType::BigInt(None),
            "float4" => DataType::Real,
            "float8" => DataType::DoublePrecision,
            "text" | "varchar" | "bpchar" | "char" | "name" | "cstring" | "xid" | "xid8" | "inet"
            | "cidr" | "unknown" | "pg_node_tree" | "aclitem" | "sql_identifier" | "character_data"
            | "yes_or_no" => DataType::Text,
            "json" => DataType::JSON,
            "jsonb" => DataType::JSONB,
            "bytea" => DataType::Bytea,
            "date" => DataType::Date,
            "timestamp" => DataType::Timestamp(None, TimezoneInfo::None),
            "timestamptz" | "time_stamp" => DataType::Timestamp(None, TimezoneInfo::Tz),
            _ => return,
        };
}

/// Replaces casts to and from object name types by functions, and other types by DataFusion's names.
pub(super) fn cast(expr: &mut Expr) {
    let Expr::Cast { expr: inner, data_type, .. } = expr else { return };
    let name = custom_type(data_type);
    if let Some(name) = name.filter(|name| OBJECT_TYPES.contains(&name.as_str()) || name == "xid") {
        let inner = std::mem::replace(&mut **inner, null());
        *expr = call(&format!("{name}in"), vec![inner]);
        return;
    }
    // Each element is converted like a single value: `'{int4,text}'::regtype[]`.
    if let Some(name) = element_type(data_type).filter(|name| OBJECT_TYPES.contains(&name.as_str()))
        && let Some(array) = array_of_text(inner)
    {
        let mut array = array;
        if let Expr::Array(array) = &mut array {
            for element in &mut array.elem {
                let text = std::mem::replace(element, null());
                *element = call(&format!("{name}in"), vec![text]);
            }
        }
        plain_type(data_type);
        **inner = array;
        return;
    }
    plain_type(data_type);
    let is_name = custom_type(data_type).as_deref() == Some("name");
    let is_text = is_name || matches!(data_type, DataType::Text | DataType::Varchar(_));
    // An object cast to text is its name.
    if is_text && let Some(named) = object_text(inner) {
        *expr = named;
        return;
    }
    if matches!(data_type, DataType::Array(_))
        && let Some(array) = array_of_text(inner)
    {
        **inner = array;
    }
}

/// The element type of an array, if it is one of `pg_catalog`.
fn element_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
        ) => custom_type(inner).or_else(|| element_type(inner)),
        _ => None,
    }
}

/// The name of the object in an expression, if the expression itself is of an object type.
fn object_text(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => object_text(inner),
        Expr::Function(function) => {
            let name = parts(&function.name).pop()?;
            if let Some(kind) = name.strip_prefix("to_").filter(|name| OBJECT_TYPES.contains(name)) {
                return Some(call(&format!("{kind}out"), vec![expr.clone()]));
            }
            let name =
                name.strip_suffix("in").filter(|name| OBJECT_TYPES.contains(name) && *name != "oid")?;
            let mut renamed = function.clone();
            renamed.name = ObjectName::from(vec![Ident::new(format!("{name}out"))]);
            Some(Expr::Function(renamed))
        }
        Expr::Identifier(column) if is_function_column(&plain(column)) => {
            Some(call("regprocout", vec![expr.clone()]))
        }
        Expr::CompoundIdentifier(parts) if is_function_column(&plain(parts.last()?)) => {
            Some(call("regprocout", vec![expr.clone()]))
        }
        _ => None,
    }
}

/// Shows an object in a text by its name instead of its oid.
pub(super) fn show_object(expr: &mut Expr) {
    if let Some(named) = object_text(expr) {
        *expr = named;
    }
}

/// Functions that build texts from any arguments.
pub(super) const MAKE_TEXT: [&str; 3] = ["concat", "concat_ws", "format"];

/// The same for the arguments of such functions.
pub(super) fn show_objects(function: &mut Function) {
    let name = parts(&function.name).pop();
    if let FunctionArguments::List(list) = &mut function.args
        && name.is_some_and(|name| MAKE_TEXT.contains(&name.as_str()))
    {
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                show_object(expr);
            }
        }
    }
}

/// Casts a column of type `name` to text explicitly, so that the planner keeps the cast: both have one Arrow
/// type, but clients distinguish them.
pub(super) fn text_of_name(expr: &mut Expr) {
    static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
        columns.filter(|column| column.type_name == "name").map(|column| column.name).collect()
    });
    let Expr::Cast { expr: inner, data_type: DataType::Text, .. } = expr else { return };
    let column = match inner.as_ref() {
        Expr::Identifier(column) => plain(column),
        Expr::CompoundIdentifier(parts) => parts.last().map(plain).unwrap_or_default(),
        _ => return,
    };
    if NAMES.contains(column.as_str()) {
        let view = Expr::value(Value::SingleQuotedString("Utf8View".to_string()));
        *expr = call("arrow_cast", vec![std::mem::replace(inner, null()), view]);
    }
}

/// The `regproc` columns of system relations; the names are unique among relations.
fn is_function_column(name: &str) -> bool {
    static COLUMNS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
        columns.filter(|column| column.type_name == "regproc").map(|column| column.name).collect()
    });
    COLUMNS.contains(name)
}

/// The functions that convert a query's columns to object names.
pub(super) fn names_of(body: &SetExpr) -> Vec<Option<String>> {
    match body {
        SetExpr::Select(select) => {
            let name = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => object_text(expr),
                _ => None,
            };
            let function = |expr: Expr| match expr {
                Expr::Function(function) => parts(&function.name).pop(),
                _ => None,
            };
            select.projection.iter().map(|item| name(item).and_then(function)).collect()
        }
        SetExpr::Query(query) => names_of(&query.body),
        SetExpr::SetOperation { left, .. } => names_of(left),
        _ => vec![],
    }
}

/// Converts the other side of a set operation to names by the same functions; its other columns stay numbers.
fn name_as(body: &mut SetExpr, names: &[Option<String>]) {
    match body {
        SetExpr::Select(select) => {
            for (item, name) in select.projection.iter_mut().zip(names) {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && let Some(name) = name
                {
                    let named = object_text(expr).unwrap_or_else(|| call(name, vec![expr.clone()]));
                    *expr = named;
                }
            }
        }
        SetExpr::Query(query) => name_as(&mut query.body, names),
        SetExpr::SetOperation { left, right, .. } => {
            name_as(left, names);
            name_as(right, names);
        }
        _ => {}
    }
}

/// Groups by the object's name where the group is displayed by name.
fn name_groups(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    for group in groups {
        let is_shown = select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr == group,
            _ => false,
        });
        if let Some(named) = object_text(group).filter(|_| is_shown) {
            *group = named;
        }
    }
}

/// Shows objects by name in the rows of the result.
pub(super) fn name_objects(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            name_groups(select);
            let mut taken: HashSet<String> = HashSet::new();
            for item in &select.projection {
                taken.extend(match item {
                    SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(plain(name)),
                    SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(plain),
                    SelectItem::ExprWithAlias { alias, .. } => Some(plain(alias)),
                    _ => None,
                });
            }
            for item in &mut select.projection {
                match item {
                    SelectItem::UnnamedExpr(expr) => {
                        let Some(named) = object_text(expr) else { continue };
                        // Keeps the expression's name, for ORDER BY, unless another item has it.
                        let name = column_names::expression_name(expr);
                        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                        *item = match taken.insert(name.clone()) || is_column {
                            true => {
                                SelectItem::ExprWithAlias { expr: named, alias: Ident::with_quote('"', name) }
                            }
                            false => SelectItem::UnnamedExpr(named),
                        };
                    }
                    SelectItem::ExprWithAlias { expr, .. } => {
                        if let Some(named) = object_text(expr) {
                            *expr = named;
                        }
                    }
                    _ => {}
                }
            }
        }
        SetExpr::Query(query) => name_objects(&mut query.body),
        // The first side determines the types.
        SetExpr::SetOperation { left, right, .. } => {
            let names = names_of(left);
            name_objects(left);
            name_as(right, &names);
        }
        _ => {}
    }
}
