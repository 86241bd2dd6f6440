//! Lookups of PostgreSQL's own objects, types, functions and comments, by oid or SQL name.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Int32Type;

use crate::catalog::{Found, quote_identifier, split_name};
use crate::functions::call::{Call, Value, value};
use crate::system::{SYSTEM, elements};
use crate::types::format_type;

/// The comment on a relation, or on one of its columns if the number is not zero.
pub(super) fn comment(call: &Call<'_>, relation: i32, number: i32) -> Option<String> {
    let column = usize::try_from(number).ok()?.checked_sub(1);
    match (call.index.get(relation)?, column) {
        (Found::User(relation, _), None) => relation.comment.clone(),
        (Found::User(relation, _), Some(column)) => relation.columns.get(column)?.comment.clone(),
        (Found::System(relation), None) => relation.description.map(str::to_string),
        (Found::System(relation), Some(column)) => {
            relation.columns.get(column)?.description.map(str::to_string)
        }
    }
}

/// The comment on a built-in object.
pub(super) fn system_comment(object: i32, of: Option<&str>) -> Option<String> {
    let class = of.map(|name| SYSTEM.catalog(name).map_or(-1, |relation| relation.oid));
    let rows = SYSTEM.catalog("pg_description")?.rows().ok()?;
    let objects = rows.column_by_name("objoid")?.as_primitive::<Int32Type>();
    let classes = rows.column_by_name("classoid")?.as_primitive::<Int32Type>();
    let row = (0..rows.num_rows()).find(|row| {
        objects.value(*row) == object && class.is_none_or(|class| classes.value(*row) == class)
    })?;
    Some(rows.column_by_name("description")?.as_string::<i32>().value(row).to_string())
}

/// A column of `pg_type` or `pg_proc` for a row's oid.
pub(super) fn of_system(relation: &str, key: &str, wanted: i32, column: &str) -> Option<(ArrayRef, usize)> {
    let rows = SYSTEM.catalog(relation)?.rows().ok()?;
    let keys = rows.column_by_name(key)?.as_primitive::<Int32Type>();
    let row = keys.values().iter().position(|oid| *oid == wanted)?;
    Some((Arc::clone(rows.column_by_name(column)?), row))
}

pub(super) fn text_of_system(relation: &str, wanted: i32, column: &str) -> Option<String> {
    let (array, row) = of_system(relation, "oid", wanted, column)?;
    (!array.is_null(row)).then(|| array.as_string::<i32>().value(row).to_string())
}

pub(super) fn by_name(relation: &str, column: &str, name: &str) -> Option<i32> {
    let rows = SYSTEM.catalog(relation)?.rows().ok()?;
    let row = rows.column_by_name(column)?.as_string::<i32>().iter().position(|known| known == Some(name))?;
    Some(rows.column_by_name("oid")?.as_primitive::<Int32Type>().value(row))
}

/// The SQL name of any PostgreSQL type.
pub(super) fn type_text(type_oid: i32) -> Option<String> {
    format_type(type_oid as u32, -1).or_else(|| {
        let name = text_of_system("pg_type", type_oid, "typname")?;
        let (elements, row) = of_system("pg_type", "oid", type_oid, "typelem")?;
        let element = elements.as_primitive::<Int32Type>().value(row);
        match name.starts_with('_') && element != 0 {
            true => Some(format!("{}[]", type_text(element)?)),
            false => Some(quote_identifier(&name)),
        }
    })
}

/// The oid of a type by its SQL name or its name in `pg_type`.
pub(super) fn type_by_text(given: &str) -> Option<i32> {
    let given = given.trim();
    if let Some(element) = given.strip_suffix("[]") {
        let element = type_by_text(element)?;
        let (arrays, row) = of_system("pg_type", "oid", element, "typarray")?;
        return Some(arrays.as_primitive::<Int32Type>().value(row)).filter(|oid| *oid != 0);
    }
    let plain = given.split('(').next().unwrap_or(given).trim();
    let mut parts = split_name(plain)?;
    let name = match (parts.len(), parts.first().map(String::as_str)) {
        (2, Some("pg_catalog")) | (1, _) => parts.pop()?,
        _ => return None,
    };
    let name = match name.as_str() {
        "boolean" => "bool",
        "smallint" => "int2",
        "integer" | "int" => "int4",
        "bigint" => "int8",
        "real" => "float4",
        "double precision" | "float" => "float8",
        "decimal" | "dec" => "numeric",
        "character varying" => "varchar",
        "character" => "bpchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time without time zone" => "time",
        "time with time zone" => "timetz",
        "bit varying" => "varbit",
        other => other,
    };
    by_name("pg_type", "typname", name)
}

pub(super) fn proc_by_text(given: &str) -> Option<i32> {
    let plain = given.split('(').next().unwrap_or(given);
    let parts = split_name(plain)?;
    match parts.as_slice() {
        [name] => by_name("pg_proc", "proname", name),
        [schema, name] if schema == "pg_catalog" => by_name("pg_proc", "proname", name),
        _ => None,
    }
}

/// A function by its name and argument types.
pub(super) fn procedure_by_text(given: &str) -> Option<i32> {
    let (name, arguments) = given.trim().strip_suffix(')')?.split_once('(')?;
    let name = split_name(name)?.pop()?;
    let wanted = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
    let wanted = wanted.map(type_by_text).collect::<Option<Vec<_>>>()?;
    let rows = SYSTEM.catalog("pg_proc")?.rows().ok()?;
    let names = rows.column_by_name("proname")?.as_string::<i32>();
    let arguments = rows.column_by_name("proargtypes")?;
    let row = (0..rows.num_rows())
        .filter(|row| names.value(*row) == name)
        .find(|row| matches!(value(arguments, *row), Ok(Value::Ints(types)) if types == wanted))?;
    Some(rows.column_by_name("oid")?.as_primitive::<Int32Type>().value(row))
}

pub(super) fn argument_types(function: i32) -> Option<String> {
    let types = list_of_system(function, "proargtypes")?;
    let types = types.iter().map(|type_oid| type_text(type_oid.parse().ok()?)).collect::<Option<Vec<_>>>()?;
    Some(types.join(","))
}

pub(super) fn proc_text(function: i32) -> Option<String> {
    text_of_system("pg_proc", function, "proname").map(|name| quote_identifier(&name))
}

pub(super) fn list_of_system(function: i32, column: &str) -> Option<Vec<String>> {
    let (array, row) = of_system("pg_proc", "oid", function, column)?;
    match value(&array, row).ok()? {
        Value::Texts(texts) => Some(texts),
        Value::Ints(numbers) => Some(numbers.iter().map(i32::to_string).collect()),
        _ => None,
    }
}

/// The arguments of a built-in function, with modes and names.
pub(super) fn function_arguments(function: i32, defaults: bool) -> Option<String> {
    let inputs = list_of_system(function, "proargtypes")?;
    let types = list_of_system(function, "proallargtypes").unwrap_or(inputs);
    let modes = list_of_system(function, "proargmodes");
    let names = list_of_system(function, "proargnames");
    let mut written = vec![];
    for (place, type_oid) in types.iter().enumerate() {
        let mode = match modes.as_ref().and_then(|modes| modes.get(place)).map(String::as_str) {
            Some("o") if defaults => "OUT ",
            Some("b") => "INOUT ",
            Some("v") => "VARIADIC ",
            Some("t" | "o") => continue,
            _ => "",
        };
        let name = names.as_ref().and_then(|names| names.get(place)).filter(|name| !name.is_empty());
        let name = name.map(|name| format!("{} ", quote_identifier(name))).unwrap_or_default();
        written.push(format!("{mode}{name}{}", type_text(type_oid.parse().ok()?)?));
    }
    Some(written.join(", "))
}

pub(super) fn function_result(function: i32) -> Option<String> {
    let (types, row) = of_system("pg_proc", "oid", function, "prorettype")?;
    let (sets, _) = of_system("pg_proc", "oid", function, "proretset")?;
    if text_of_system("pg_proc", function, "prokind")? == "p" {
        return None;
    }
    let result = type_text(types.as_primitive::<Int32Type>().value(row))?;
    let modes = list_of_system(function, "proargmodes").unwrap_or_default();
    if modes.iter().any(|mode| mode == "t") {
        let types = list_of_system(function, "proallargtypes")?;
        let names = list_of_system(function, "proargnames")?;
        let columns = modes.iter().zip(types).zip(names).filter(|((mode, _), _)| *mode == "t");
        let columns = columns.filter_map(|((_, type_oid), name)| {
            Some(format!("{} {}", quote_identifier(&name), type_text(type_oid.parse().ok()?)?))
        });
        return Some(format!("TABLE({})", columns.collect::<Vec<_>>().join(", ")));
    }
    Some(if sets.as_boolean().value(row) { format!("SETOF {result}") } else { result })
}

pub(super) fn array_bound(value: &Value, dimension: i32, lower: bool) -> Value {
    let length = match value {
        Value::Texts(texts) => texts.len(),
        Value::Ints(numbers) => numbers.len(),
        Value::Text(array) => elements(array).len(),
        _ => 0,
    };
    match (dimension, length) {
        (1, 1..) => Value::Int(if lower { 1 } else { length as i32 }),
        _ => Value::Null,
    }
}
