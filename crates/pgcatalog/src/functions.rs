//! PostgreSQL's functions about catalogs and session. One UDF type evaluates them all; a table lists their
//! names, arguments and results. Functions are strict: a NULL argument makes the result NULL.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, ListBuilder, StringBuilder, new_empty_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use self::acl::AclExplode;
use self::definitions::{DEFINITIONS, PRIVILEGES, VISIBLE};
use self::lists::ExpandArray;
use crate::catalog::Catalog;
use crate::functions::call::{Call, Definition, Value};
use crate::types::catalog_field;

pub(crate) use self::acl::ACL_COLUMNS;

mod acl;
mod call;
mod definitions;
mod formats;
mod key_definitions;
mod lists;
mod lookups;
mod more;
mod type_of;

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
    fn postgresql_functions_and_types_are_recognized() {
        assert_eq!(type_by_text("character varying(10)"), Some(1043));
        assert_eq!(type_by_text("pg_catalog.int4[]"), Some(1007));
        assert_eq!(type_text(1009).unwrap(), "text[]");
        assert_eq!(type_text(3904).unwrap(), "int4range");
        assert_eq!(proc_by_text("pg_catalog.array_in"), Some(750));
        assert_eq!(function_arguments(750, true).unwrap(), "cstring, oid, integer");
        assert_eq!(function_result(750).unwrap(), "anyarray");
    }
}
