//! Functions that may run long for a batch, or for one value: they check the cancellation flag of their
//! statement ([`harrier_resources::cancellation`]) while they run.
//!
//! - A value is bounded where PostgreSQL bounds it: `levenshtein` accepts texts of up to 255 characters
//!   (22023).
//! - Pattern functions process a limited number of rows at a time.
//! - Array intersections compare all pairs of elements. If these are many, one list is searched in parts.
//!
//! The functions are DataFusion's, and ranks know them by DataFusion's names.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray, BooleanArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::{regex, string};
use datafusion::functions_nested::array_has::{array_has_all_udf, array_has_any_udf};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegation::delegate_scalar;
use harrier_error::{SqlError, SqlState};
use harrier_resources::cancellation::CancelFlag;
use harrier_resources::value_account::Account;
use harrier_sqlstate::IntoDataFusionError;

/// Maximum characters of the texts of a distance, as in PostgreSQL.
const DISTANCE_CHARACTERS_MAX: usize = 255;

/// Rows, and bytes of their arguments, between two checks of the flag.
const ROWS: usize = 256;
const BYTES: usize = 1 << 20;

/// Pairs of elements compared between two checks.
const PAIRS: usize = 1 << 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// The edit distance of two texts.
    Distance,
    /// A function of a text and a pattern.
    Pattern,
    /// Whether the first array has all elements of the second.
    All,
    /// Whether it has any.
    Any,
}

static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let functions = [
        (string::levenshtein(), Kind::Distance),
        (regex::regexp_count(), Kind::Pattern),
        (regex::regexp_instr(), Kind::Pattern),
        (regex::regexp_like(), Kind::Pattern),
        (regex::regexp_match(), Kind::Pattern),
        (array_has_all_udf(), Kind::All),
        (array_has_any_udf(), Kind::Any),
    ];
    HashMap::from(functions.map(|(inner, kind)| {
        let name = inner.name().to_string();
        (name, Arc::new(ScalarUDF::new_from_impl(Long { inner, kind })))
    }))
});

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.values().cloned()
}

/// The interruptible version of `function`, if it is one of these in DataFusion's form.
pub fn interruptible_version(function: &ScalarUDF) -> Option<Arc<ScalarUDF>> {
    let found = FUNCTIONS.get(function.name())?;
    let long = found.inner().downcast_ref::<Long>()?;
    // Another function may have the same name.
    (long.inner.as_ref() == function).then(|| Arc::clone(found))
}

/// The cancellation flag of the statement whose expressions have these settings.
pub(crate) fn flag(options: &ConfigOptions) -> CancelFlag {
    let account = Account::of(options).map(|account| account.cancel_flag().clone());
    account.or_else(CancelFlag::current).unwrap_or_default()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Long {
    inner: Arc<ScalarUDF>,
    kind: Kind,
}

impl Long {
    fn call(
        &self,
        arguments: &ScalarFunctionArgs,
        args: Vec<ColumnarValue>,
        rows: usize,
    ) -> Result<ColumnarValue> {
        self.inner.inner().invoke_with_args(ScalarFunctionArgs {
            args,
            number_rows: rows,
            ..arguments.clone()
        })
    }

    fn rows(&self, arguments: &ScalarFunctionArgs, from: usize, rows: usize) -> Result<ColumnarValue> {
        let part = |argument: &ColumnarValue| match argument {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
            scalar => scalar.clone(),
        };
        self.call(arguments, arguments.args.iter().map(part).collect(), rows)
    }

    /// Whether the arrays of some rows have elements in common. Long arrays of one row are compared in parts.
    fn compare(&self, arguments: &ScalarFunctionArgs, canceled: &CancelFlag) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let [all, sought] = &arguments.args[..] else {
            return self.call(arguments, arguments.args.clone(), arguments.number_rows);
        };
        let (all, sought) = (all.to_array(rows)?, sought.to_array(rows)?);
        let (Some(all_lists), Some(lists)) = (all.as_list_opt::<i32>(), sought.as_list_opt::<i32>()) else {
            return self.call(arguments, arguments.args.clone(), arguments.number_rows);
        };
        let DataType::List(field) = sought.data_type() else {
            return self.call(arguments, arguments.args.clone(), arguments.number_rows);
        };
        let pairs = |row: usize| {
            let (count, other) = (all_lists.value_length(row) as usize, lists.value_length(row) as usize);
            count.saturating_mul(other)
        };
        let total = (0..all.len()).map(pairs).fold(0, usize::saturating_add);
        if total <= PAIRS {
            return self.call(arguments, arguments.args.clone(), arguments.number_rows);
        }
        let mut found = Vec::with_capacity(all.len());
        for row in 0..all.len() {
            canceled.check()?;
            if all_lists.is_null(row) || lists.is_null(row) {
                found.push(None);
                continue;
            }
            let elements = lists.value(row);
            let at_once = (PAIRS / (all_lists.value_length(row) as usize).max(1)).max(1);
            let one = all.slice(row, 1);
            let mut is_found = None;
            let mut from = 0;
            loop {
                let part = elements.slice(from, at_once.min(elements.len() - from));
                let offsets = OffsetBuffer::from_lengths([part.len()]);
                let part = ListArray::try_new(Arc::clone(field), offsets, part, None)?;
                let args = vec![ColumnarValue::Array(Arc::clone(&one)), ColumnarValue::Array(Arc::new(part))];
                let result = self.call(arguments, args, 1)?.into_array(1)?;
                let result = result.as_boolean();
                let value = (!result.is_null(0)).then(|| result.value(0));
                is_found = value.or(is_found);
                from += at_once;
                let is_settled = is_found == Some(self.kind == Kind::Any);
                if is_settled || from >= elements.len() {
                    break;
                }
                canceled.check()?;
            }
            found.push(is_found);
        }
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::Boolean(found.pop().flatten())),
            false => ColumnarValue::Array(Arc::new(BooleanArray::from(found))),
        })
    }
}

impl ScalarUDFImpl for Long {
    delegate_scalar!(
        name,
        aliases,
        schema_name,
        signature,
        coerce_types,
        return_type,
        return_field_from_args,
        is_strict,
        short_circuits,
        evaluate_bounds,
        output_ordering,
        preserves_lex_ordering,
        documentation,
        simplify
    );

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let canceled = flag(&arguments.config_options);
        canceled.check()?;
        let rows = arguments.number_rows;
        let at_once = match self.kind {
            Kind::All | Kind::Any => return self.compare(&arguments, &canceled),
            Kind::Distance => {
                arguments.args.iter().try_for_each(check_length)?;
                ROWS
            }
            Kind::Pattern => rows_at_once(&arguments),
        };
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        if is_constant || rows <= at_once {
            return self.inner.inner().invoke_with_args(arguments);
        }
        let mut parts = Vec::with_capacity(rows.div_ceil(at_once));
        for from in (0..rows).step_by(at_once) {
            canceled.check()?;
            let count = at_once.min(rows - from);
            parts.push(self.rows(&arguments, from, count)?.into_array(count)?);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }
}

/// Number of rows whose arguments stay within the byte limit; at least one.
fn rows_at_once(arguments: &ScalarFunctionArgs) -> usize {
    let rows = arguments.number_rows.max(1);
    let bytes = arguments.args.iter().map(|argument| match argument {
        ColumnarValue::Array(array) => array.get_buffer_memory_size(),
        ColumnarValue::Scalar(scalar) => scalar.size().saturating_mul(rows),
    });
    let bytes_of_row = (bytes.fold(0, usize::saturating_add) / rows).max(1);
    (BYTES / bytes_of_row).clamp(1, rows)
}

/// Errors: a text is longer than allowed (22023).
fn check_length(argument: &ColumnarValue) -> Result<()> {
    // There are no more characters than bytes: most texts need not be counted.
    let is_long =
        |text: &str| text.len() > DISTANCE_CHARACTERS_MAX && text.chars().count() > DISTANCE_CHARACTERS_MAX;
    let has_long = match argument {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().is_some_and(is_long),
        ColumnarValue::Array(array) => match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().flatten().any(is_long),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().flatten().any(is_long),
            DataType::Utf8View => array.as_string_view().iter().flatten().any(is_long),
            _ => false,
        },
    };
    if !has_long {
        return Ok(());
    }
    let message =
        format!("levenshtein argument exceeds maximum length of {DISTANCE_CHARACTERS_MAX} characters");
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::logical_expr::ReturnFieldArgs;

    use super::*;
    use harrier_resources::cancellation::Reason;

    fn call(name: &str, args: Vec<ArrayRef>, options: ConfigOptions) -> Result<ArrayRef> {
        let function = functions().find(|function| function.name() == name).unwrap();
        let rows = args[0].len();
        let fields: Vec<_> =
            args.iter().map(|array| Arc::new(Field::new("x", array.data_type().clone(), true))).collect();
        let return_field = function.return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &vec![None; fields.len()],
        })?;
        let arguments = ScalarFunctionArgs {
            args: args.into_iter().map(ColumnarValue::Array).collect(),
            arg_fields: fields,
            number_rows: rows,
            return_field,
            config_options: Arc::new(options),
        };
        function.invoke_with_args(arguments)?.into_array(rows)
    }

    fn distances(one: &str, other: &str, rows: usize, options: ConfigOptions) -> Result<ArrayRef> {
        let texts = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; rows])) };
        call("levenshtein", vec![texts(one), texts(other)], options)
    }

    #[test]
    fn distances_are_of_short_texts() {
        let (long, short) = ("ä".repeat(255), "ab");
        let measured = distances(&long, short, 1000, ConfigOptions::new()).unwrap();
        assert_eq!(
            (measured.len(), ScalarValue::try_from_array(&measured, 999).unwrap()),
            (1000, ScalarValue::Int32(Some(255)))
        );
        let longer = "ä".repeat(256);
        let refused = distances(short, &longer, 1, ConfigOptions::new()).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&refused), SqlState::INVALID_PARAMETER_VALUE);
    }

    #[test]
    fn canceled_statements_interrupt_functions() {
        let canceled = CancelFlag::default();
        let mut options = ConfigOptions::new();
        Account::with_flag(canceled.clone()).install(&mut options);
        distances("kitten", "sitting", 10, options.clone()).unwrap();
        canceled.set(Reason::Request);
        let refused = distances("kitten", "sitting", 10, options).unwrap_err();
        assert_eq!(harrier_sqlstate::of(&refused), SqlState::QUERY_CANCELED);
    }

    #[test]
    fn many_elements_are_compared_in_parts() {
        let list = |values: Vec<i64>| -> ArrayRef {
            let field = Arc::new(Field::new_list_field(DataType::Int64, true));
            let offsets = OffsetBuffer::from_lengths([values.len()]);
            Arc::new(ListArray::new(field, offsets, Arc::new(Int64Array::from(values)), None))
        };
        let has = |name: &str, sought: Vec<i64>| {
            let all = list((0..3000).collect());
            let found = call(name, vec![all, list(sought)], ConfigOptions::new()).unwrap();
            found.as_boolean().value(0)
        };
        for name in ["array_has_all", "array_has_any"] {
            assert!(has(name, (0..3000).collect()), "{name}");
            assert!(!has(name, (3000..6000).collect()), "{name}");
        }
        assert!(!has("array_has_all", (1..3001).collect()));
        assert!(has("array_has_any", (2999..5999).collect()));
        assert!(has("array_has_all", vec![]) && !has("array_has_any", vec![]));
    }
}
