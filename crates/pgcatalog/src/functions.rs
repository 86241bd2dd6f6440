//! PostgreSQL's functions about the catalogs and the session. One type evaluates them all; a table says their names, arguments and
//! results. A function is strict, as PostgreSQL says it: with a null argument its result is null.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, ListBuilder, StringArray, StringBuilder, StructArray,
    new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, Int64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::catalog::{Catalog, DATABASE_OID, Found, Index, quote_identifier, split_name};
use crate::live::with_semicolon;
use crate::source::{Kind, Object, Role, oid};
use crate::system::{SYSTEM, elements};
use crate::types::{catalog_field, format_type};

/// What an argument is made before a function sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Argument {
    /// A text.
    Text,
    /// An oid or another number of four bytes.
    Int,
    /// A number of eight bytes.
    Big,
    Bool,
    /// A name or an oid: a text stays a text, and a number is one of four bytes.
    Either,
    /// A list of texts.
    Texts,
    /// A list of numbers, or an array as a text.
    Ints,
    /// Whatever it is.
    Any,
}

use Argument::{Any, Big, Bool, Either, Int, Ints, Text, Texts};

/// What a function has to work with: the state of the session, looked up once for a batch.
struct Call<'a> {
    catalog: &'a Catalog,
    arguments: &'a [ArrayRef],
    index: Arc<Index>,
    roles: Vec<Role>,
    path: Vec<String>,
}

/// An argument's value in one row, and a result. Results of functions are these, and become an array of the declared type.
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

/// Name, the type of the result in PostgreSQL, how many arguments are needed, what they are, and how it is evaluated.
type Definition = (&'static str, &'static str, usize, &'static [Argument], Evaluate);

/// A function that was registered in a session.
struct Function {
    definition: Definition,
    catalog: Arc<Catalog>,
    signature: Signature,
    aliases: Vec<String>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.definition.0).finish()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.definition.0 == other.definition.0 && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.0.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.definition.0
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result().data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(self.result())
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (name, _, least, arguments, _) = self.definition;
        if given.len() < least || given.len() > arguments.len() {
            let types = given.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
            return plan_err!("function {name}({types}) does not exist");
        }
        Ok(arguments.iter().zip(given).map(|(argument, given)| argument.coerced(given)).collect())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // What has no column as an argument is the same in every row.
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
            results.push(call.evaluate(&self.definition, row)?);
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
        catalog_field(self.definition.0, self.definition.1, true)
    }
}

impl Argument {
    fn coerced(self, given: &DataType) -> DataType {
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
        let mut values = Vec::with_capacity(self.arguments.len());
        for array in self.arguments {
            values.push(value(array, row)?);
        }
        let null_matters = matches!(definition.0, "quote_nullable" | "format_type" | "set_config" | "format");
        if !null_matters && values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        (definition.4)(self, &values)
    }

    /// A relation by its oid or its name; none if there is none.
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

    /// A relation that has to exist if it is named.
    fn existing_relation(&self, value: &Value) -> Result<i32> {
        match (self.relation(value), value) {
            (Some(relation), _) => Ok(relation),
            (None, Value::Text(text)) => plan_err!("relation \"{text}\" does not exist"),
            (None, _) => Ok(0),
        }
    }

    /// Who is asked about: the first of more arguments than `least`, or the user.
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

    /// Whether a role has one of the privileges that a text lists.
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

/// All functions of a session.
pub(crate) fn functions(catalog: &Arc<Catalog>) -> Vec<ScalarUDF> {
    let own = DEFINITIONS.iter().chain(VISIBLE.iter()).chain(PRIVILEGES.iter()).map(|definition| {
        let aliases: &[&str] = match definition.0 {
            "current_user" => &["current_role", "user"],
            "current_database" => &["current_catalog"],
            _ => &[],
        };
        ScalarUDF::new_from_impl(Function {
            definition: *definition,
            catalog: Arc::clone(catalog),
            signature: Signature::user_defined(volatility(definition.0)),
            aliases: aliases.iter().map(|alias| alias.to_string()).collect(),
        })
    });
    own.chain([
        ScalarUDF::new_from_impl(ExpandArray::new()),
        ScalarUDF::new_from_impl(ArrayOrEmpty::new()),
        ScalarUDF::new_from_impl(JsonObject::new()),
    ])
    .collect()
}

/// What is the same throughout a statement is worked out before it is spread over ranks; what does something is done each time.
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

/// Whether the bare name of an object finds it: all that there are, are the system's, so it is enough that the path has the schema.
const VISIBLE: [Definition; 11] = [
    ("pg_type_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_type", "typnamespace", &values[0])
    }),
    ("pg_function_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_proc", "pronamespace", &values[0])
    }),
    ("pg_operator_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_operator", "oprnamespace", &values[0])
    }),
    ("pg_opclass_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_opclass", "opcnamespace", &values[0])
    }),
    ("pg_opfamily_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_opfamily", "opfnamespace", &values[0])
    }),
    ("pg_collation_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_collation", "collnamespace", &values[0])
    }),
    ("pg_conversion_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_conversion", "connamespace", &values[0])
    }),
    ("pg_ts_config_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_config", "cfgnamespace", &values[0])
    }),
    ("pg_ts_dict_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_dict", "dictnamespace", &values[0])
    }),
    ("pg_ts_parser_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_parser", "prsnamespace", &values[0])
    }),
    ("pg_ts_template_is_visible", "bool", 1, &[Int], |call, values| {
        is_visible(call, "pg_ts_template", "tmplnamespace", &values[0])
    }),
];

fn is_visible(call: &Call<'_>, relation: &str, namespace: &str, object: &Value) -> Result<Value> {
    let Some((namespaces, row)) = of_system(relation, "oid", int(object), namespace) else {
        return Ok(Value::Null);
    };
    let schema = call.index.schema_name(namespaces.as_primitive::<Int32Type>().value(row));
    Ok(schema.map(|schema| call.path.contains(&schema)).into())
}

/// The functions that ask for a privilege: an optional role, an object, and privileges.
const PRIVILEGES: [Definition; 13] = [
    ("has_table_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let relation = call.existing_relation(&rest[0])?;
        Ok(call.relation_object(relation).map(|object| call.may(&role, &object, text(&rest[1]))).into())
    }),
    ("has_any_column_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let relation = call.existing_relation(&rest[0])?;
        let Some(object) = call.relation_object(relation) else { return Ok(Value::Null) };
        let columns = call.index.user_relation(relation);
        let any = columns.is_some_and(|relation| {
            let mut columns = relation.columns.iter();
            columns.any(|c| call.may(&role, &Object::Column(relation.id, c.field.name()), text(&rest[1])))
        });
        Ok(Value::Bool(any || call.may(&role, &object, text(&rest[1]))))
    }),
    ("has_column_privilege", "bool", 3, &[Either, Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 3)?;
        let relation = call.existing_relation(&rest[0])?;
        let Some(object) = call.relation_object(relation) else { return Ok(Value::Null) };
        let Some(relation) = call.index.user_relation(relation) else {
            return Ok(Value::Bool(call.may(&role, &object, text(&rest[2]))));
        };
        let column = relation.columns.iter().zip(1..).find(|(column, number)| match &rest[1] {
            Value::Text(name) => column.field.name() == name,
            other => int(other) == *number,
        });
        let Some((column, _)) = column else {
            return match &rest[1] {
                Value::Text(name) => {
                    plan_err!("column \"{name}\" of relation \"{}\" does not exist", relation.name)
                }
                _ => Ok(Value::Null),
            };
        };
        let object = Object::Column(relation.id, column.field.name());
        Ok(Value::Bool(call.may(&role, &object, text(&rest[2]))))
    }),
    ("has_schema_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let schema = match &rest[0] {
            Value::Text(name) => match call.index.schema_oid(name) {
                Some(schema) => schema,
                None => return plan_err!("schema \"{name}\" does not exist"),
            },
            other => int(other),
        };
        if call.index.schema_name(schema).is_none() {
            return Ok(Value::Null);
        }
        let object = call.index.schema(schema).map_or(Object::System, |schema| Object::Schema(schema.id));
        Ok(Value::Bool(call.may(&role, &object, text(&rest[1]))))
    }),
    ("has_database_privilege", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        match &rest[0] {
            Value::Text(name) if *name != call.catalog.source.database() => {
                return plan_err!("database \"{name}\" does not exist");
            }
            Value::Int(oid) if *oid != DATABASE_OID => return Ok(Value::Null),
            _ => {}
        }
        Ok(Value::Bool(call.may(&role, &Object::Database, text(&rest[1]))))
    }),
    ("has_function_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_language_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_type_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_sequence_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_tablespace_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_server_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("has_foreign_data_wrapper_privilege", "bool", 2, &[Either, Either, Text], system_privilege),
    ("pg_has_role", "bool", 2, &[Either, Either, Text], |call, values| {
        let (role, rest) = call.role(values, 2)?;
        let (other, _) = call.role(rest, 1)?;
        Ok(Value::Bool(call.catalog.has_role(&call.roles, &role, &other)))
    }),
];

fn system_privilege(call: &Call<'_>, values: &[Value]) -> Result<Value> {
    let (role, rest) = call.role(values, 2)?;
    Ok(Value::Bool(call.may(&role, &Object::System, text(&rest[1]))))
}

const NOTHING: Evaluate = |_, _| Ok(Value::Null);

const DEFINITIONS: &[Definition] = &[
    // The session.
    ("current_database", "name", 0, &[], |call, _| Ok(call.catalog.source.database().into())),
    ("current_user", "name", 0, &[], |call, _| Ok(call.catalog.source.user().into())),
    ("session_user", "name", 0, &[], |call, _| Ok(call.catalog.source.session_user().into())),
    ("current_schema", "name", 0, &[], |call, _| {
        Ok(call.catalog.source.search_path().into_iter().next().into())
    }),
    ("current_schemas", "_name", 1, &[Bool], |call, values| {
        let implicit = is_true(&values[0]);
        Ok(Value::Texts(if implicit { call.catalog.path() } else { call.catalog.source.search_path() }))
    }),
    ("version", "text", 0, &[], |call, _| Ok(call.catalog.source.version().into())),
    ("pg_backend_pid", "int4", 0, &[], |call, _| Ok(Value::Int(call.catalog.source.backend_pid()))),
    ("pg_postmaster_start_time", "timestamptz", 0, &[], |call, _| {
        Ok(Value::Big(call.catalog.source.started()))
    }),
    ("pg_conf_load_time", "timestamptz", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.started()))),
    ("pg_is_in_recovery", "bool", 0, &[], |call, _| Ok(Value::Bool(call.catalog.source.in_recovery()))),
    ("pg_my_temp_schema", "oid", 0, &[], |_, _| Ok(Value::Int(0))),
    ("pg_is_other_temp_schema", "bool", 1, &[Int], |_, _| Ok(Value::Bool(false))),
    ("txid_current", "int8", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.transaction_id()))),
    ("pg_current_xact_id", "int8", 0, &[], |call, _| Ok(Value::Big(call.catalog.source.transaction_id()))),
    ("inet_client_addr", "inet", 0, &[], |call, _| {
        Ok(call.catalog.source.client_address().map(|a| a.0).into())
    }),
    ("inet_client_port", "int4", 0, &[], |call, _| {
        Ok(call.catalog.source.client_address().map(|a| i32::from(a.1)).into())
    }),
    ("inet_server_addr", "inet", 0, &[], |call, _| {
        Ok(call.catalog.source.server_address().map(|a| a.0).into())
    }),
    ("inet_server_port", "int4", 0, &[], |call, _| {
        Ok(call.catalog.source.server_address().map(|a| i32::from(a.1)).into())
    }),
    ("current_setting", "text", 1, &[Text, Bool], |call, values| {
        let name = text(&values[0]);
        let settings = call.catalog.source.settings();
        match settings.into_iter().find(|setting| setting.name.eq_ignore_ascii_case(name)) {
            Some(setting) => Ok(shown(&setting).into()),
            None if values.get(1).is_some_and(is_true) => Ok(Value::Null),
            None => plan_err!("unrecognized configuration parameter \"{name}\""),
        }
    }),
    ("set_config", "text", 3, &[Text, Text, Bool], |call, values| {
        if values[0] == Value::Null {
            return plan_err!("SET requires parameter name");
        }
        // A null puts the setting back, which is what the empty text says to most of them.
        Ok(call.catalog.source.set(text(&values[0]), text(&values[1]), is_true(&values[2]))?.into())
    }),
    ("pg_cancel_backend", "bool", 1, &[Int], |call, values| {
        Ok(Value::Bool(call.catalog.source.signal(int(&values[0]), false)?))
    }),
    ("pg_terminate_backend", "bool", 1, &[Int, Big], |call, values| {
        Ok(Value::Bool(call.catalog.source.signal(int(&values[0]), true)?))
    }),
    // Names.
    ("pg_table_is_visible", "bool", 1, &[Int], |call, values| {
        Ok(call.catalog.is_visible(&call.index, int(&values[0])).into())
    }),
    // There are no extended statistics.
    ("pg_statistics_obj_is_visible", "bool", 1, &[Int], NOTHING),
    ("pg_get_userbyid", "name", 1, &[Int], |call, values| {
        let role = int(&values[0]);
        let name = call.catalog.role_name(&call.roles, role);
        Ok(name.unwrap_or_else(|| format!("unknown (OID={role})")).into())
    }),
    ("to_regclass", "regclass", 1, &[Text], |call, values| Ok(call.relation(&values[0]).into())),
    ("to_regnamespace", "oid", 1, &[Text], |call, values| {
        Ok(call.index.schema_oid(&unquoted(&values[0])).into())
    }),
    ("to_regrole", "oid", 1, &[Text], |call, values| Ok(role_oid(call, &unquoted(&values[0])).into())),
    ("to_regtype", "regtype", 1, &[Text], |_, values| Ok(type_by_text(text(&values[0])).into())),
    ("to_regproc", "regproc", 1, &[Text], |_, values| Ok(proc_by_text(text(&values[0])).into())),
    ("to_regprocedure", "oid", 1, &[Text], |_, values| Ok(procedure_by_text(text(&values[0])).into())),
    // What a cast to one of the types of object names does; the rewriting of statements puts them there.
    ("regclassin", "regclass", 1, &[Either], |call, values| match (&values[0], call.relation(&values[0])) {
        (Value::Text(text), None) if text == "-" => Ok(Value::Int(0)),
        (_, Some(relation)) => Ok(Value::Int(relation)),
        (value, None) => plan_err!("relation \"{}\" does not exist", text(value)),
    }),
    ("regclassout", "text", 1, &[Either], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        Ok(call.catalog.relation_text(&call.index, relation).into())
    }),
    ("regnamespacein", "oid", 1, &[Either], |call, values| {
        object_in("schema", &values[0], |name| call.index.schema_oid(&split_name(name)?.pop()?))
    }),
    ("regnamespaceout", "text", 1, &[Either], |call, values| {
        let name = |schema| call.index.schema_name(schema).map(|name| quote_identifier(&name));
        object_out(&values[0], name)
    }),
    ("regrolein", "oid", 1, &[Either], |call, values| {
        object_in("role", &values[0], |name| role_oid(call, &split_name(name)?.pop()?))
    }),
    ("regroleout", "text", 1, &[Either], |call, values| {
        object_out(&values[0], |role| {
            call.catalog.role_name(&call.roles, role).map(|name| quote_identifier(&name))
        })
    }),
    ("regtypein", "regtype", 1, &[Either], |_, values| match &values[0] {
        Value::Text(text) => match number(text).or_else(|| type_by_text(text)) {
            Some(oid) => Ok(Value::Int(oid)),
            None => plan_err!("type \"{text}\" does not exist"),
        },
        other => Ok(other.clone()),
    }),
    ("regtypeout", "text", 1, &[Either], |_, values| match &values[0] {
        Value::Text(name) => match number(name).or_else(|| type_by_text(name)) {
            Some(oid) => object_out(&Value::Int(oid), type_text),
            None => plan_err!("type \"{name}\" does not exist"),
        },
        other => object_out(other, type_text),
    }),
    ("regprocin", "regproc", 1, &[Either], |_, values| object_in("function", &values[0], proc_by_text)),
    ("regprocedurein", "oid", 1, &[Either], |_, values| object_in("function", &values[0], procedure_by_text)),
    ("regprocedureout", "text", 1, &[Either], |_, values| {
        object_out(&values[0], |function| {
            Some(format!("{}({})", proc_text(function)?, argument_types(function)?))
        })
    }),
    ("regprocout", "text", 1, &[Either], |_, values| object_out(&values[0], proc_text)),
    ("oidin", "oid", 1, &[Either], |_, values| match &values[0] {
        Value::Text(given) => match given.trim().parse::<u32>() {
            // The catalogs hold oids in signed numbers, of which none is above 2³¹; nothing has such an oid.
            Ok(oid) => Ok(Value::Int(i32::try_from(oid).unwrap_or(-1))),
            Err(_) => exec_err!("invalid input syntax for type oid: \"{given}\""),
        },
        other => Ok(other.clone()),
    }),
    ("format_type", "text", 2, &[Int, Int], |_, values| {
        if values[0] == Value::Null {
            return Ok(Value::Null);
        }
        let (type_oid, modifier) =
            (int(&values[0]), if values[1] == Value::Null { -1 } else { int(&values[1]) });
        let known = format_type(type_oid as u32, modifier);
        Ok(known
            .or_else(|| type_text(type_oid))
            .unwrap_or_else(|| match type_oid {
                0 => "-".to_string(),
                _ => "???".to_string(),
            })
            .into())
    }),
    ("quote_ident", "text", 1, &[Text], |_, values| Ok(quote_identifier(text(&values[0])).into())),
    ("quote_literal", "text", 1, &[Text], |_, values| Ok(quote_literal(text(&values[0])).into())),
    ("quote_nullable", "text", 1, &[Text], |_, values| match &values[0] {
        Value::Text(text) => Ok(quote_literal(text).into()),
        _ => Ok("NULL".into()),
    }),
    ("format", "text", 1, &[Text, Text, Text, Text, Text, Text, Text, Text], |_, values| formatted(values)),
    // Definitions.
    ("pg_get_expr", "text", 2, &[Text, Int, Bool], |_, values| Ok(values[0].clone())),
    ("pg_get_viewdef", "text", 1, &[Either, Any], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        let found = call.index.user_relation(relation).and_then(|relation| relation.definition.as_deref());
        Ok(found.map(with_semicolon).into())
    }),
    ("pg_get_ruledef", "text", 1, &[Int, Bool], |call, values| {
        let Some(view) = call.index.user_relation(int(&values[0])).filter(|r| r.kind == Kind::View) else {
            return Ok(Value::Null);
        };
        let Some(definition) = &view.definition else { return Ok(Value::Null) };
        let name = call.catalog.relation_text(&call.index, oid(view.id));
        let definition = with_semicolon(definition);
        Ok(format!("CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {name} DO INSTEAD {definition}").into())
    }),
    // There are no indexes, constraints, triggers, sequences, partitions and statistics objects to be told of.
    ("pg_get_indexdef", "text", 1, &[Int, Int, Bool], NOTHING),
    ("pg_get_constraintdef", "text", 1, &[Int, Bool], NOTHING),
    ("pg_get_triggerdef", "text", 1, &[Int, Bool], NOTHING),
    ("pg_get_partkeydef", "text", 1, &[Int], NOTHING),
    ("pg_get_partition_constraintdef", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef_columns", "text", 1, &[Int], NOTHING),
    ("pg_get_statisticsobjdef_expressions", "_text", 1, &[Int], NOTHING),
    ("pg_get_serial_sequence", "text", 2, &[Text, Text], NOTHING),
    ("pg_stat_get_numscans", "int8", 1, &[Int], |_, _| Ok(Value::Big(0))),
    ("pg_sequence_last_value", "int8", 1, &[Either], NOTHING),
    ("pg_get_functiondef", "text", 1, &[Int], NOTHING),
    ("pg_get_function_sqlbody", "text", 1, &[Int], NOTHING),
    ("pg_get_function_arg_default", "text", 2, &[Int, Int], NOTHING),
    ("pg_get_function_arguments", "text", 1, &[Int], |_, values| {
        Ok(function_arguments(int(&values[0]), true).into())
    }),
    ("pg_get_function_identity_arguments", "text", 1, &[Int], |_, values| {
        Ok(function_arguments(int(&values[0]), false).into())
    }),
    ("pg_get_function_result", "text", 1, &[Int], |_, values| Ok(function_result(int(&values[0])).into())),
    ("pg_relation_is_publishable", "bool", 1, &[Either], |_, _| Ok(Value::Bool(false))),
    ("pg_relation_is_updatable", "int4", 2, &[Either, Bool], |call, values| {
        // INSERT, UPDATE and DELETE are the bits 3, 2 and 4.
        let relation = call.existing_relation(&values[0])?;
        let table = call.index.user_relation(relation).is_some_and(|relation| relation.kind != Kind::View);
        Ok(Value::Int(if table { 28 } else { 0 }))
    }),
    ("pg_column_is_updatable", "bool", 3, &[Either, Int, Bool], |call, values| {
        let relation = call.existing_relation(&values[0])?;
        let table = call.index.user_relation(relation).is_some_and(|relation| relation.kind != Kind::View);
        Ok(Value::Bool(table))
    }),
    // Comments.
    ("col_description", "text", 2, &[Int, Int], |call, values| {
        Ok(comment(call, int(&values[0]), int(&values[1])).into())
    }),
    ("obj_description", "text", 1, &[Int, Text], |call, values| {
        let object = int(&values[0]);
        match values.get(1).map(text) {
            Some("pg_class") => Ok(comment(call, object, 0).into()),
            Some("pg_namespace") => {
                let own = call.index.schema(object).and_then(|schema| schema.comment.clone());
                Ok(own.or_else(|| described(object, Some("pg_namespace"))).into())
            }
            of => {
                let own = if of.is_none() { comment(call, object, 0) } else { None };
                Ok(own.or_else(|| described(object, of)).into())
            }
        }
    }),
    ("shobj_description", "text", 2, &[Int, Text], |call, values| {
        let role =
            call.roles.iter().find(|role| call.catalog.role_oid(&call.roles, &role.name) == int(&values[0]));
        let comment = role.filter(|_| text(&values[1]) == "pg_authid").and_then(|role| role.comment.clone());
        Ok(comment.into())
    }),
    // Sizes, in bytes.
    ("pg_relation_size", "int8", 1, &[Either, Text], |call, values| {
        match values.get(1).map_or("main", text) {
            "main" => relation_bytes(call, &values[0]),
            _ => Ok(Value::Big(0)),
        }
    }),
    ("pg_table_size", "int8", 1, &[Either], |call, values| relation_bytes(call, &values[0])),
    ("pg_total_relation_size", "int8", 1, &[Either], |call, values| relation_bytes(call, &values[0])),
    ("pg_indexes_size", "int8", 1, &[Either], |_, _| Ok(Value::Big(0))),
    ("pg_database_size", "int8", 1, &[Either], |call, values| {
        match &values[0] {
            Value::Text(name) if *name != call.catalog.source.database() => {
                return plan_err!("database \"{name}\" does not exist");
            }
            Value::Int(other) if *other != DATABASE_OID => return Ok(Value::Null),
            _ => {}
        }
        Ok(Value::Big(database_bytes(call)))
    }),
    ("pg_tablespace_size", "int8", 1, &[Either], |call, _| Ok(Value::Big(database_bytes(call)))),
    ("pg_size_pretty", "text", 1, &[Big], |_, values| match values[0] {
        Value::Big(bytes) => Ok(size_pretty(bytes).into()),
        _ => Ok(Value::Null),
    }),
    ("pg_tablespace_location", "text", 1, &[Int], |_, _| Ok("".into())),
    ("pg_relation_filenode", "oid", 1, &[Either], NOTHING),
    ("pg_relation_filepath", "text", 1, &[Either], NOTHING),
    // Encodings: there is one.
    ("pg_encoding_to_char", "name", 1, &[Int], |_, values| {
        Ok(ENCODINGS.get(int(&values[0]).max(-1) as usize).copied().unwrap_or_default().into())
    }),
    ("pg_char_to_encoding", "int4", 1, &[Text], |_, values| {
        let wanted = text(&values[0]).replace(['-', '_'], "").to_uppercase();
        let place = ENCODINGS.iter().position(|name| name.replace('_', "") == wanted);
        Ok(Value::Int(place.map_or(-1, |place| place as i32)))
    }),
    ("getdatabaseencoding", "name", 0, &[], |_, _| Ok("UTF8".into())),
    ("pg_client_encoding", "name", 0, &[], |_, _| Ok("UTF8".into())),
    // Arrays, of which clients want to know the bounds. Harrier's begin with one.
    ("array_upper", "int4", 2, &[Any, Int], |_, values| Ok(bound(&values[0], int(&values[1]), false))),
    ("array_lower", "int4", 2, &[Any, Int], |_, values| Ok(bound(&values[0], int(&values[1]), true))),
    // `x = ANY (array)` where the array is a text, a list or a vector.
    ("pg_any_text", "bool", 2, &[Text, Texts], |_, values| match &values[1] {
        Value::Texts(texts) => Ok(Value::Bool(texts.iter().any(|element| element == text(&values[0])))),
        _ => Ok(Value::Null),
    }),
    ("pg_any_int", "bool", 2, &[Int, Ints], |_, values| {
        let numbers = match &values[1] {
            Value::Ints(numbers) => numbers.clone(),
            Value::Text(array) => elements(array).iter().flatten().filter_map(|e| e.parse().ok()).collect(),
            _ => return Ok(Value::Null),
        };
        Ok(Value::Bool(numbers.contains(&int(&values[0]))))
    }),
];

/// PostgreSQL's encodings by number.
const ENCODINGS: [&str; 9] =
    ["SQL_ASCII", "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "UTF8", "MULE_INTERNAL", "LATIN1"];

/// A setting's value as `SHOW` says it: with its unit.
fn shown(setting: &crate::source::Setting) -> String {
    match &setting.unit {
        Some(unit) if setting.value != "0" && setting.value != "-1" => format!("{}{unit}", setting.value),
        _ => setting.value.clone(),
    }
}

fn unquoted(value: &Value) -> String {
    split_name(text(value)).and_then(|parts| parts.into_iter().next_back()).unwrap_or_default()
}

fn role_oid(call: &Call<'_>, name: &str) -> Option<i32> {
    Some(call.catalog.role_oid(&call.roles, name)).filter(|oid| *oid != 0)
}

fn number(text: &str) -> Option<i32> {
    match text {
        "-" => Some(0),
        _ => text.parse().ok(),
    }
}

/// The oid of an object by its name, or the oid that is given already.
fn object_in(kind: &str, value: &Value, find: impl Fn(&str) -> Option<i32>) -> Result<Value> {
    let Value::Text(given) = value else { return Ok(value.clone()) };
    let found = number(given).or_else(|| find(given));
    match found {
        Some(oid) => Ok(Value::Int(oid)),
        None => plan_err!("{kind} \"{given}\" does not exist"),
    }
}

/// The name of an object, or its number if there is none.
fn object_out(value: &Value, find: impl Fn(i32) -> Option<String>) -> Result<Value> {
    match value {
        Value::Int(0) => Ok("-".into()),
        Value::Int(oid) => Ok(find(*oid).unwrap_or_else(|| oid.to_string()).into()),
        other => Ok(other.clone()),
    }
}

fn relation_bytes(call: &Call<'_>, value: &Value) -> Result<Value> {
    let relation = call.existing_relation(value)?;
    Ok(match call.index.get(relation) {
        Some(Found::User(relation, _)) => Value::Big(relation.bytes.unwrap_or(0) as i64),
        Some(Found::System(_)) => Value::Big(0),
        None => Value::Null,
    })
}

fn database_bytes(call: &Call<'_>) -> i64 {
    call.index.contents.relations.iter().filter_map(|relation| relation.bytes).sum::<u64>() as i64
}

/// A size as PostgreSQL's function of that name writes it: rounded, and in the first unit in which it is below 10240.
fn size_pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    // All but the first and the last unit are kept doubled, so that they can be rounded by their last bit.
    let (mut size, mut unit) = (i128::from(bytes), 0);
    let mut doubled = false;
    while unit + 1 < UNITS.len() {
        let limit = if doubled { 20 * 1024 - 1 } else { 10 * 1024 };
        if size.abs() < limit {
            break;
        }
        size /= if doubled { 1024 } else { 512 };
        doubled = true;
        unit += 1;
    }
    if doubled {
        size = (size + size.signum()) / 2;
    }
    format!("{size} {}", UNITS[unit])
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    match quoted.contains('\\') {
        true => format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_string(),
        false => format!("'{quoted}'"),
    }
}

/// The comment on a relation, or on one of its columns if the number is not zero.
fn comment(call: &Call<'_>, relation: i32, number: i32) -> Option<String> {
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

/// The comment on an object of PostgreSQL's own.
fn described(object: i32, of: Option<&str>) -> Option<String> {
    let class = of.map(|name| SYSTEM.catalog(name).map_or(-1, |relation| relation.oid));
    let rows = SYSTEM.catalog("pg_description")?.rows().ok()?;
    let objects = rows.column_by_name("objoid")?.as_primitive::<Int32Type>();
    let classes = rows.column_by_name("classoid")?.as_primitive::<Int32Type>();
    let row = (0..rows.num_rows()).find(|row| {
        objects.value(*row) == object && class.is_none_or(|class| classes.value(*row) == class)
    })?;
    Some(rows.column_by_name("description")?.as_string::<i32>().value(row).to_string())
}

/// A column of `pg_type` or `pg_proc` by the oid of a row.
fn of_system(relation: &str, key: &str, wanted: i32, column: &str) -> Option<(ArrayRef, usize)> {
    let rows = SYSTEM.catalog(relation)?.rows().ok()?;
    let keys = rows.column_by_name(key)?.as_primitive::<Int32Type>();
    let row = keys.values().iter().position(|oid| *oid == wanted)?;
    Some((Arc::clone(rows.column_by_name(column)?), row))
}

fn text_of_system(relation: &str, wanted: i32, column: &str) -> Option<String> {
    let (array, row) = of_system(relation, "oid", wanted, column)?;
    (!array.is_null(row)).then(|| array.as_string::<i32>().value(row).to_string())
}

fn by_name(relation: &str, column: &str, name: &str) -> Option<i32> {
    let rows = SYSTEM.catalog(relation)?.rows().ok()?;
    let row = rows.column_by_name(column)?.as_string::<i32>().iter().position(|known| known == Some(name))?;
    Some(rows.column_by_name("oid")?.as_primitive::<Int32Type>().value(row))
}

/// How SQL writes a type, whichever of PostgreSQL's it is.
fn type_text(type_oid: i32) -> Option<String> {
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

/// The oid of a type by the words of SQL or by its name in `pg_type`.
fn type_by_text(given: &str) -> Option<i32> {
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

fn proc_by_text(given: &str) -> Option<i32> {
    let plain = given.split('(').next().unwrap_or(given);
    let parts = split_name(plain)?;
    match parts.as_slice() {
        [name] => by_name("pg_proc", "proname", name),
        [schema, name] if schema == "pg_catalog" => by_name("pg_proc", "proname", name),
        _ => None,
    }
}

/// A function by its name and the types of its arguments.
fn procedure_by_text(given: &str) -> Option<i32> {
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

fn argument_types(function: i32) -> Option<String> {
    let types = list_of_system(function, "proargtypes")?;
    let types = types.iter().map(|type_oid| type_text(type_oid.parse().ok()?)).collect::<Option<Vec<_>>>()?;
    Some(types.join(","))
}

/// `format`, with `%s`, `%I`, `%L` and `%%`.
fn formatted(values: &[Value]) -> Result<Value> {
    let Some(Value::Text(pattern)) = values.first() else { return Ok(Value::Null) };
    let (mut written, mut letters, mut next) = (String::new(), pattern.chars(), values[1..].iter());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            written.push(letter);
            continue;
        }
        let kind = letters.next();
        if kind == Some('%') {
            written.push('%');
            continue;
        }
        let Some(argument) = next.next() else { return exec_err!("too few arguments for format()") };
        match (kind, argument) {
            (Some('s'), argument) => written += text(argument),
            (Some('I'), Value::Text(name)) => written += &quote_identifier(name),
            (Some('I'), _) => return exec_err!("null values cannot be formatted as an SQL identifier"),
            (Some('L'), Value::Text(literal)) => written += &quote_literal(literal),
            (Some('L'), _) => written += "NULL",
            (Some(other), _) => return exec_err!("unrecognized format() type specifier \"{other}\""),
            (None, _) => return exec_err!("unterminated format() type specifier"),
        }
    }
    Ok(written.into())
}

fn proc_text(function: i32) -> Option<String> {
    text_of_system("pg_proc", function, "proname").map(|name| quote_identifier(&name))
}

fn list_of_system(function: i32, column: &str) -> Option<Vec<String>> {
    let (array, row) = of_system("pg_proc", "oid", function, column)?;
    match value(&array, row).ok()? {
        Value::Texts(texts) => Some(texts),
        Value::Ints(numbers) => Some(numbers.iter().map(i32::to_string).collect()),
        _ => None,
    }
}

/// The arguments of one of PostgreSQL's own functions, with the modes and names that they have.
fn function_arguments(function: i32, defaults: bool) -> Option<String> {
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

fn function_result(function: i32) -> Option<String> {
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

fn bound(value: &Value, dimension: i32, lower: bool) -> Value {
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

/// `information_schema._pg_expandarray`: the elements of a list with their places, as a list of structs of `x` and `n`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExpandArray {
    signature: Signature,
}

impl ExpandArray {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }

    fn result(list: &DataType) -> Result<DataType> {
        let DataType::List(item) = list else {
            return plan_err!("function _pg_expandarray({list}) does not exist");
        };
        let fields = Fields::from(vec![
            Field::new("x", item.data_type().clone(), true),
            Field::new("n", DataType::Int32, false),
        ]);
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields), true))))
    }
}

impl ScalarUDFImpl for ExpandArray {
    fn name(&self) -> &str {
        "_pg_expandarray"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given.first() {
            Some(list) => Self::result(list),
            None => plan_err!("function _pg_expandarray() does not exist"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        let list = array.as_list::<i32>();
        let DataType::List(item) = Self::result(array.data_type())? else {
            return exec_err!("a list was expected");
        };
        let DataType::Struct(fields) = item.data_type() else { return exec_err!("a struct was expected") };
        let lengths =
            (0..list.len()).map(|row| if list.is_null(row) { 0 } else { list.value_length(row) as usize });
        let lengths = lengths.collect::<Vec<_>>();
        let places = lengths.iter().flat_map(|length| 1..=*length as i32).collect::<Int32Array>();
        let start = list.value_offsets()[0] as usize;
        let values = list.values().slice(start, places.len());
        let structs = StructArray::try_new(fields.clone(), vec![values, Arc::new(places)], None)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        let expanded =
            ListArray::try_new(Arc::clone(&item), offsets, Arc::new(structs), list.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(expanded)))
    }
}

/// What `ARRAY(SELECT …)` is without rows: an empty array, where an aggregate is null.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOrEmpty {
    signature: Signature,
}

impl ArrayOrEmpty {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [list @ DataType::List(_)] => Ok(list.clone()),
            // An array that is a text, as in `coalesce(x, '{}')`.
            [DataType::Utf8] => Ok(DataType::Utf8),
            _ => plan_err!("function array_or_empty does not exist for these arguments"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = arguments.args[0].to_array(arguments.number_rows)?;
        if *array.data_type() == DataType::Utf8 {
            let texts = array.as_string::<i32>().iter().map(|text| Some(text.unwrap_or("{}")));
            return Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())));
        }
        let list = array.as_list::<i32>();
        let DataType::List(item) = array.data_type() else { return exec_err!("a list was expected") };
        if list.null_count() == 0 {
            return Ok(ColumnarValue::Array(array));
        }
        // A null may have elements behind it, which have to go.
        let rows = (0..list.len()).map(|row| list.is_valid(row).then(|| list.value(row))).collect::<Vec<_>>();
        let offsets =
            OffsetBuffer::from_lengths(rows.iter().map(|row| row.as_ref().map_or(0, |row| row.len())));
        let present = rows.iter().flatten().map(|row| row.as_ref()).collect::<Vec<_>>();
        let values = match present.is_empty() {
            true => new_empty_array(item.data_type()),
            false => concat(&present)?,
        };
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, None)?)))
    }
}

/// `json_build_object`: keys and values in turn.
#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonObject {
    signature: Signature,
}

impl JsonObject {
    fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Stable) }
    }
}

impl ScalarUDFImpl for JsonObject {
    fn name(&self) -> &str {
        "json_build_object"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(catalog_field("json_build_object", "json", true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !arguments.args.len().is_multiple_of(2) {
            return exec_err!("argument list must have even number of elements");
        }
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let options = FormatOptions::default();
        let formats = arrays
            .iter()
            .map(|array| ArrayFormatter::try_new(array, &options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut objects = StringBuilder::new();
        for row in 0..rows {
            let mut members = vec![];
            for (key, value) in (0..arrays.len()).step_by(2).map(|key| (key, key + 1)) {
                if arrays[key].is_null(row) {
                    return exec_err!("argument {} cannot be null", key + 1);
                }
                let text = formats[value].value(row).to_string();
                let plain =
                    arrays[value].data_type().is_numeric() || *arrays[value].data_type() == DataType::Boolean;
                let value = match (arrays[value].is_null(row) || arrays[value].data_type().is_null(), plain) {
                    (true, _) => "null".to_string(),
                    (false, true) => text,
                    (false, false) => json_text(&text),
                };
                members.push(format!("{} : {value}", json_text(&formats[key].value(row).to_string())));
            }
            objects.append_value(format!("{{{}}}", members.join(", ")));
        }
        Ok(ColumnarValue::Array(Arc::new(objects.finish())))
    }
}

fn json_text(text: &str) -> String {
    let mut written = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => written += "\\\"",
            '\\' => written += "\\\\",
            '\n' => written += "\\n",
            '\r' => written += "\\r",
            '\t' => written += "\\t",
            control if u32::from(control) < 0x20 => written += &format!("\\u{:04x}", u32::from(control)),
            other => written.push(other),
        }
    }
    written + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

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
