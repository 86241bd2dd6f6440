//! PostgreSQL's functions about catalogs and session. One UDF type evaluates them all; a table lists their
//! names, arguments and results. Functions are strict: a NULL argument makes the result NULL.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder, new_empty_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int16Type, Int32Type, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

pub(crate) use self::acl::ACL_COLUMNS;
use self::acl::AclExplode;
use self::definitions::{DEFINITIONS, PRIVILEGES, VISIBLE};
use self::lists::ExpandArray;
use crate::catalog::{Catalog, Found, Index};
use crate::source::{Object, Role};
use crate::types::catalog_field;

mod acl;
mod definitions;
mod formats;
mod key_definitions;
mod lists;
mod lookups;
mod more;
mod type_of;

/// The type to which an argument is coerced.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Argument {
    /// A text.
    Text,
    /// An oid or another number of four bytes.
    Int,
    /// A number of eight bytes.
    Big,
    Bool,
    /// A name or an oid: text stays text, a number becomes an int4.
    Either,
    /// An array of text.
    Texts,
    /// An array of int4, or an array literal as text.
    Ints,
    /// Any type.
    Any,
}

use Argument::{Any, Big, Bool, Either, Int, Ints, Text, Texts};

/// A call's context: session state, looked up once per batch.
struct Call<'a> {
    catalog: &'a Catalog,
    arguments: &'a [ArrayRef],
    index: Arc<Index>,
    roles: Vec<Role>,
    path: Vec<String>,
}

/// An argument's value in one row, or a result, which becomes an array of the declared type.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Text(String),
    Int(i32),
    Big(i64),
    Bool(bool),
    Texts(Vec<String>),
    Ints(Vec<i32>),
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        value.map_or(Value::Null, Value::Text)
    }
}

impl From<Option<i32>> for Value {
    fn from(value: Option<i32>) -> Self {
        value.map_or(Value::Null, Value::Int)
    }
}

impl From<Option<bool>> for Value {
    fn from(value: Option<bool>) -> Self {
        value.map_or(Value::Null, Value::Bool)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_string())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

type Evaluate = fn(&Call<'_>, &[Value]) -> Result<Value>;

/// Name, PostgreSQL result type, number of required arguments, argument types, and implementation.
type Definition = (&'static str, &'static str, usize, &'static [Argument], Evaluate);

/// A function's part that all sessions share.
struct Outline {
    definition: Definition,
    signature: Signature,
    aliases: Vec<String>,
}

/// A function registered in a session. An idle session has a hundred of them, so it is kept small.
struct Function {
    outline: &'static Outline,
    catalog: Arc<Catalog>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.outline.definition.0).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.outline.definition.0 == other.outline.definition.0 && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.outline.definition.0.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.outline.definition.0
    }

    fn aliases(&self) -> &[String] {
        &self.outline.aliases
    }

    fn signature(&self) -> &Signature {
        &self.outline.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result().data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(self.result())
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (name, _, least, arguments, _) = self.outline.definition;
        if given.len() < least || given.len() > arguments.len() {
            let types = given.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
            return plan_err!("function {name}({types}) does not exist");
        }
        Ok(arguments.iter().zip(given).map(|(argument, given)| argument.coerced_type(given)).collect())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // Without column arguments the result is the same in every row.
        let constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { arguments.number_rows };
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let call = Call {
            catalog: &self.catalog,
            arguments: &arrays,
            index: self.catalog.index()?,
            roles: self.catalog.source.roles()?,
            path: self.catalog.path(),
        };
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            results.push(call.evaluate(&self.outline.definition, row)?);
        }
        let array = array(results, self.result().data_type())?;
        match constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

impl Function {
    fn result(&self) -> FieldRef {
        catalog_field(self.outline.definition.0, self.outline.definition.1, true)
    }
}

impl Argument {
    fn coerced_type(self, given: &DataType) -> DataType {
        let texts = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Text => DataType::Utf8,
            Int => DataType::Int32,
            Big => DataType::Int64,
            Bool => DataType::Boolean,
            Either if given.is_string() || given.is_null() => DataType::Utf8,
            Either => DataType::Int32,
            Texts => texts(DataType::Utf8),
            Ints if given.is_string() || given.is_null() => DataType::Utf8,
            Ints => texts(DataType::Int32),
            Any => given.clone(),
        }
    }
}

impl Call<'_> {
    fn evaluate(&self, definition: &Definition, row: usize) -> Result<Value> {
        let is_bound = matches!(definition.0, "array_upper" | "array_lower");
        let mut values = Vec::with_capacity(self.arguments.len());
        for array in self.arguments {
            values.push(match array.data_type() {
                // Only the number of elements matters, including NULLs.
                DataType::List(_) if is_bound && array.is_valid(row) => Value::Bool(true),
                _ => value(array, row)?,
            });
        }
        let null_matters = matches!(
            definition.0,
            "quote_nullable" | "format_type" | "set_config" | "format" | "harrier_format_elements"
        );
        if !null_matters && values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        if let (true, [Value::Bool(_), Value::Int(dimension)]) = (is_bound, values.as_slice()) {
            return Ok(list_bound(&self.arguments[0], row, *dimension, definition.0 == "array_lower"));
        }
        (definition.4)(self, &values)
    }

    /// A relation by its oid or name; `None` if missing.
    fn relation(&self, value: &Value) -> Option<i32> {
        match value {
            Value::Int(oid) => Some(*oid),
            Value::Text(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                text.parse().ok()
            }
            Value::Text(text) => self.catalog.relation_by_text(&self.index, text),
            _ => None,
        }
    }

    /// A relation; fails if a named one does not exist.
    fn existing_relation(&self, value: &Value) -> Result<i32> {
        match (self.relation(value), value) {
            (Some(relation), _) => Ok(relation),
            (None, Value::Text(text)) => plan_err!("relation \"{text}\" does not exist"),
            (None, _) => Ok(0),
        }
    }

    /// The role to check: the first of more than `least` arguments, or the user.
    fn role<'v>(&self, values: &'v [Value], least: usize) -> Result<(String, &'v [Value])> {
        if values.len() == least {
            return Ok((self.catalog.source.user(), values));
        }
        let name = match &values[0] {
            Value::Text(name) if name == "public" => Some(name.clone()),
            Value::Text(name) => {
                self.roles.iter().find(|role| role.name == *name).map(|role| role.name.clone())
            }
            Value::Int(oid) => self.catalog.role_name(&self.roles, *oid),
            _ => None,
        };
        match (name, &values[0]) {
            (Some(name), _) => Ok((name, &values[1..])),
            (None, Value::Text(name)) => plan_err!("role \"{name}\" does not exist"),
            (None, _) => plan_err!("role with that oid does not exist"),
        }
    }

    /// Whether a role has one of the privileges listed in a text.
    fn may(&self, role: &str, object: &Object<'_>, privileges: &str) -> bool {
        privileges.split(',').any(|privilege| {
            let privilege = privilege.trim().to_uppercase();
            let plain = privilege.trim_end_matches(" WITH GRANT OPTION");
            let plain = if plain == "TEMP" { "TEMPORARY" } else { plain };
            self.catalog.source.may(role, object, plain)
        })
    }

    fn relation_object(&self, relation: i32) -> Option<Object<'_>> {
        match self.index.get(relation)? {
            Found::User(relation, _) => Some(Object::Relation(relation.id)),
            Found::System(_) => Some(Object::System),
        }
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        _ => "",
    }
}

fn int(value: &Value) -> i32 {
    match value {
        Value::Int(number) => *number,
        _ => 0,
    }
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true)
}

/// The lower or upper bound of a list's dimension, counted from 1: NULL if it is empty.
fn list_bound(lists: &ArrayRef, row: usize, dimension: i32, is_lower: bool) -> Value {
    let mut items = lists.as_list::<i32>().value(row);
    for _ in 1..dimension {
        items = match items.as_list_opt::<i32>().filter(|lists| !lists.is_empty() && lists.is_valid(0)) {
            Some(lists) => lists.value(0),
            None => return Value::Null,
        };
    }
    match (dimension, items.len()) {
        (..1, _) | (_, 0) => Value::Null,
        (_, length) => Value::Int(if is_lower { 1 } else { length as i32 }),
    }
}

fn value(array: &ArrayRef, row: usize) -> Result<Value> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(row).to_string()),
        DataType::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => Value::Big(array.as_primitive::<Int64Type>().value(row)),
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            match items.data_type() {
                DataType::Int32 => Value::Ints(items.as_primitive::<Int32Type>().iter().flatten().collect()),
                DataType::Int16 => {
                    let numbers = items.as_primitive::<Int16Type>().iter().flatten();
                    Value::Ints(numbers.map(i32::from).collect())
                }
                DataType::Utf8 => {
                    let texts = items.as_string::<i32>().iter().flatten().map(str::to_string);
                    Value::Texts(texts.collect())
                }
                _ => Value::Null,
            }
        }
        DataType::Null => Value::Null,
        other => return exec_err!("a value of type {other} was not expected here"),
    })
}

fn array(values: Vec<Value>, data_type: &DataType) -> Result<ArrayRef> {
    if matches!(data_type, DataType::List(_)) {
        let mut list = ListBuilder::new(StringBuilder::new());
        for value in values {
            match value {
                Value::Texts(texts) => list.append_value(texts.into_iter().map(Some)),
                Value::Ints(numbers) => list.append_value(numbers.into_iter().map(|n| Some(n.to_string()))),
                _ => list.append_null(),
            }
        }
        let array: ArrayRef = Arc::new(list.finish());
        return Ok(cast(&array, data_type)?);
    }
    let scalars = values.into_iter().map(|value| {
        Ok(match value {
            Value::Text(text) => ScalarValue::from(text),
            Value::Int(number) => ScalarValue::from(number),
            Value::Big(number) => ScalarValue::from(number),
            Value::Bool(yes) => ScalarValue::from(yes),
            _ => ScalarValue::try_from(data_type)?,
        })
    });
    let scalars = scalars.collect::<Result<Vec<_>>>()?;
    if scalars.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let array = ScalarValue::iter_to_array(scalars.into_iter().map(|scalar| {
        match scalar.data_type() == *data_type {
            true => scalar,
            false => scalar.cast_to(data_type).unwrap_or(ScalarValue::Null),
        }
    }))?;
    Ok(array)
}

static OUTLINES: LazyLock<Vec<Outline>> = LazyLock::new(|| {
    let definitions = DEFINITIONS.iter().chain(more::DEFINITIONS).chain(&VISIBLE).chain(&PRIVILEGES);
    let outline = |definition: &Definition| {
        let aliases: &[&str] = match definition.0 {
            "current_user" => &["current_role"],
            "current_database" => &["current_catalog"],
            _ => &[],
        };
        Outline {
            definition: *definition,
            signature: Signature::user_defined(volatility(definition.0)),
            aliases: aliases.iter().map(|alias| alias.to_string()).collect(),
        }
    };
    definitions.map(outline).collect()
});

/// Functions independent of the session.
static SHARED: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
    let own = [Arc::new(ScalarUDF::new_from_impl(ExpandArray::new())), Arc::new(type_of::function())];
    own.into()
});

/// All functions of a session.
pub(crate) fn functions(catalog: &Arc<Catalog>) -> impl Iterator<Item = Arc<ScalarUDF>> {
    let of_session = OUTLINES.iter().map(|outline| {
        Arc::new(ScalarUDF::new_from_impl(Function { outline, catalog: Arc::clone(catalog) }))
    });
    let acl = [false, true]
        .map(|is_default| Arc::new(ScalarUDF::new_from_impl(AclExplode::new(catalog, is_default))));
    of_session.chain(acl).chain(SHARED.iter().cloned())
}

/// Stable functions are evaluated before distribution over ranks; those with side effects are volatile.
fn volatility(name: &str) -> Volatility {
    match name {
        "set_config" | "pg_cancel_backend" | "pg_terminate_backend" => Volatility::Volatile,
        "quote_ident"
        | "quote_literal"
        | "quote_nullable"
        | "pg_size_pretty"
        | "pg_encoding_to_char"
        | "array_upper"
        | "array_lower" => Volatility::Immutable,
        _ => Volatility::Stable,
    }
}

#[cfg(test)]
mod tests {
    use super::definitions::size_pretty;
    use super::lookups::{function_arguments, function_result, proc_by_text, type_by_text, type_text};

    #[test]
    fn sizes_are_written_as_postgresql_does() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (10239, "10239 bytes"),
            (10240, "10 kB"),
            (8192, "8192 bytes"),
            (1_000_000, "977 kB"),
            (123_456_789, "118 MB"),
            (-20_000, "-20 kB"),
        ] {
            assert_eq!(size_pretty(bytes), expected);
        }
    }

    #[test]
    fn functions_and_types_of_postgresql_are_told() {
        assert_eq!(type_by_text("character varying(10)"), Some(1043));
        assert_eq!(type_by_text("pg_catalog.int4[]"), Some(1007));
        assert_eq!(type_text(1009).unwrap(), "text[]");
        assert_eq!(type_text(3904).unwrap(), "int4range");
        assert_eq!(proc_by_text("pg_catalog.array_in"), Some(750));
        assert_eq!(function_arguments(750, true).unwrap(), "cstring, oid, integer");
        assert_eq!(function_result(750).unwrap(), "anyarray");
    }
}
