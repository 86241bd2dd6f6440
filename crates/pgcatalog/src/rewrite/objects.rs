//! Types of `pg_catalog`, and those of them whose values are objects: casts become functions, and rows show
//! names.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, Select, SelectItem, SetExpr, TimezoneInfo, Value,
};

use harrier_sql::column_names::{self, OBJECT_TYPES, custom_type, parts};
use harrier_sql::identifier::plain;

use super::{array_of_text, call, null};
use crate::system::SYSTEM;

/// Types whose values are held as others are, and that clients are told of by their own names. Casts to them,
/// and to arrays of them, keep those.
const TOLD: [&str; 11] = [
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

/// The type of a value that is cast to one of PostgreSQL's types, with that one's name, if its Arrow type
/// does not say it.
pub fn cast_type(data_type: &DataType) -> Option<(datafusion::arrow::datatypes::DataType, String)> {
    use datafusion::arrow::datatypes::{DataType as Arrow, Field};
    if let DataType::Array(
        ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
    ) = data_type
    {
        let (item, name) = cast_type(inner)?;
        // The numbers of objects are numbers in arrays; texts would be their names.
        let item = if OBJECT_TYPES.contains(&name.as_str()) { Arrow::Int32 } else { item };
        return Some((Arrow::List(Field::new_list_field(item, true).into()), format!("_{name}")));
    }
    let name = match data_type {
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            "varchar".to_string()
        }
        DataType::Char(_) | DataType::Character(_) => "bpchar".to_string(),
        DataType::Uuid => "uuid".to_string(),
        other => custom_type(other).filter(|name| TOLD.contains(&name.as_str()))?,
    };
    // What an object is called is a text, as is its number.
    Some((if name == "oid" { Arrow::Int32 } else { Arrow::Utf8 }, name))
}

/// Whether the planner is told what PostgreSQL's type is, by [`planned_type`].
fn is_told(data_type: &DataType) -> bool {
    planned_type(data_type).is_some()
}

/// The field of a cast to `name`, `"char"`, or an array of types of objects, for the planner.
pub fn planned_type(data_type: &DataType) -> Option<datafusion::arrow::datatypes::Field> {
    let (arrow, name) = cast_type(data_type)?;
    let is_plain = matches!(name.as_str(), "name" | "char");
    let is_array = name
        .strip_prefix('_')
        .is_some_and(|item| matches!(item, "name" | "char") || OBJECT_TYPES.contains(&item));
    let field = datafusion::arrow::datatypes::Field::new("", arrow, true);
    (is_plain || is_array).then(|| crate::types::named_field(field, &name))
}

/// Gives types of `pg_catalog` the names that DataFusion knows.
pub(super) fn plain_type(data_type: &mut DataType) {
    if is_told(data_type) {
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

/// Casts to and from the types of object names become functions, and other types get their names.
pub(super) fn cast(expr: &mut Expr) {
    let Expr::Cast { expr: inner, data_type, .. } = expr else { return };
    let name = custom_type(data_type);
    if let Some(name) = name.filter(|name| OBJECT_TYPES.contains(&name.as_str()) || name == "xid") {
        let inner = std::mem::replace(&mut **inner, null());
        *expr = call(&format!("{name}in"), vec![inner]);
        return;
    }
    // Each element is read as one value is: `'{int4,text}'::regtype[]`.
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
    // The text of an object's number is its name.
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

/// The name of the type of an array's elements, if it is one of `pg_catalog`.
fn element_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(inner, _) | ArrayElemTypeDef::AngleBracket(inner),
        ) => custom_type(inner).or_else(|| element_type(inner)),
        _ => None,
    }
}

/// The name of the object that an expression is the number of, if the expression says so itself.
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

/// What becomes a part of a text is the name of an object, and not its number.
pub(super) fn show_object(expr: &mut Expr) {
    if let Some(named) = object_text(expr) {
        *expr = named;
    }
}

/// Functions that make texts of whatever they are given.
pub(super) const MAKE_TEXT: [&str; 3] = ["concat", "concat_ws", "format"];

/// The same of what functions make texts of, whatever it is.
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

/// A cast to text of a column whose type is `name`, so that the planner does not leave it out: the types are
/// one to it, and not to a client.
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

/// The columns of system relations whose type is `regproc`; no two relations share the name of one.
fn is_function_column(name: &str) -> bool {
    static COLUMNS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let columns = SYSTEM.relations.iter().flat_map(|relation| &relation.columns);
        columns.filter(|column| column.type_name == "regproc").map(|column| column.name).collect()
    });
    COLUMNS.contains(name)
}

/// By which functions the columns of a query become names of objects.
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

/// Has the columns of the other side of a set operation be names by the same functions, and numbers where
/// there is none.
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

/// What rows are grouped by and shown as the name of an object is grouped by this name.
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

/// In the rows that a client gets, objects are shown by their names.
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
                        // The name that the expression had before, so that ORDER BY finds it, unless another
                        // has it.
                        let name = column_names::of_expression(expr);
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
        // The type of the first side is that of all.
        SetExpr::SetOperation { left, right, .. } => {
            let names = names_of(left);
            name_objects(left);
            name_as(right, &names);
        }
        _ => {}
    }
}
