//! Functions whose results can be far larger than their arguments, with memory bounds computed before each
//! call.
//!
//! - A value of a gibibyte or more is refused (54000), as in PostgreSQL, before it is computed.
//! - The results of a batch are reserved in the memory account ([`harrier_resources::value_account`]), which
//!   refuses requests beyond the limit (53200), and stay reserved for as long as the results live. If a bound
//!   is far above the actual size, the batch is computed in parts.
//! - A scalar for all rows counts for each of them: the next operator may expand it.
//! - At planning time, constants of more than 64 KiB are not folded. The optimizer leaves such a call in the
//!   plan, where the account is available.
//!
//! The functions are DataFusion's, and ranks know them by DataFusion's names.

mod bounds;
mod sizes;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, LargeBinaryArray, LargeStringArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::functions::{regex, string, unicode};
use datafusion::functions_nested::{
    concat as arrays, make_array, range, repeat, resize, set_ops, string as texts,
};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::delegation::delegate_scalar;
use crate::string::text_or_bytes;
use crate::{array_elements, format};
use bounds::{Argument, Bound, Rule};
use harrier_error::{SqlError, SqlState};
use harrier_resources::value_account::{Account, Reservation};
use harrier_sqlstate::IntoDataFusionError;

/// Maximum bytes of a value, as in PostgreSQL.
const VALUE_BYTES_MAX: u64 = (1 << 30) - 1;

/// Maximum bytes of a constant folded at planning time: plans are copied many times, and a batch may expand a
/// constant for each row.
pub const CONSTANT_BYTES_MAX: u64 = 1 << 16;

/// Results of a batch below this size are not accounted.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of results computed at once if a batch is computed in parts, unless one value has more.
const PART_BYTES: u64 = 16 << 20;

static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let series = |includes_end| Rule::Series { includes_end };
    let functions = [
        (string::repeat(), Rule::Repeat),
        (unicode::lpad(), Rule::Pad),
        (unicode::rpad(), Rule::Pad),
        (string::concat(), Rule::Texts),
        (string::concat_ws(), Rule::JoinedTexts),
        (string::replace(), Rule::Replace),
        (regex::regexp_replace(), Rule::ReplacePattern),
        (unicode::translate(), Rule::Factor(4)),
        (text_or_bytes::overlay(), Rule::Factor(1)),
        // `\377` for a byte.
        (text_or_bytes::encode(), Rule::Factor(4)),
        (texts::string_to_array_udf(), Rule::Split),
        (texts::array_to_string_udf(), Rule::Join),
        (range::range_udf(), series(false)),
        (crate::series::function(), series(true)),
        (repeat::array_repeat_udf(), Rule::RepeatElement),
        (resize::array_resize_udf(), Rule::Resize),
        (make_array::make_array_udf(), Rule::Elements),
        (array_elements::append(), Rule::Elements),
        (array_elements::prepend(), Rule::Elements),
        (arrays::array_concat_udf(), Rule::Elements),
        (set_ops::array_union_udf(), Rule::Elements),
        (array_elements::replace_one(), Rule::ReplaceOne),
        (array_elements::replace_some(), Rule::ReplaceSome),
        (array_elements::replace_all(), Rule::ReplaceAll),
    ];
    HashMap::from(functions.map(|(inner, rule)| {
        let name = inner.name().to_string();
        (name, Arc::new(ScalarUDF::new_from_impl(Bounded { inner, rule })))
    }))
});

static CONCATENATION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let inner = Arc::new(ScalarUDF::new_from_impl(Concatenation::new()));
    Arc::new(ScalarUDF::new_from_impl(Bounded { inner, rule: Rule::Texts }))
});

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    callable().chain([concatenation()])
}

/// The functions callable from SQL; the other one implements an operator.
pub(crate) fn callable() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.values().cloned()
}

/// The bounded version of `function`, if there is one.
pub fn bounded_version(function: &ScalarUDF) -> Option<Arc<ScalarUDF>> {
    if function.inner().is::<Bounded>() {
        return None;
    }
    let found = FUNCTIONS.get(function.name())?;
    let bounded = found.inner().downcast_ref::<Bounded>()?;
    // Another function may have the same name.
    let inner = array_elements::inner_function(&bounded.inner).unwrap_or(&bounded.inner);
    (bounded.inner.as_ref() == function || inner.as_ref() == function).then(|| Arc::clone(found))
}

/// `||` of two or more texts, or of bytes, of one type.
pub fn concatenation() -> Arc<ScalarUDF> {
    Arc::clone(&CONCATENATION)
}

/// Whether [`concatenation`] supports values of this type.
pub fn is_concatenated(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(kind, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    rule: Rule,
}

impl Bounded {
    fn call(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // A negative length counts as 0; DataFusion's functions would reserve memory for its unsigned value.
        if self.rule == Rule::Pad
            && let Some(ColumnarValue::Array(lengths)) = arguments.args.get_mut(1)
            && let Some(signed) = lengths.as_primitive_opt::<Int64Type>()
            && signed.iter().flatten().any(|length| length < 0)
        {
            let lengths_min_0: Int64Array = signed.unary(|length| length.max(0));
            *lengths = Arc::new(lengths_min_0);
        }
        self.inner.inner().invoke_with_args(arguments)
    }

    /// Errors: one value would be too large, or all together exceed the offsets of their type (54000).
    fn check(&self, bound: Bound, kind: &DataType) -> Result<()> {
        if bound.value <= VALUE_BYTES_MAX && !overflows(bound, kind) {
            return Ok(());
        }
        let message = match kind.is_nested() {
            true => "array size exceeds the maximum allowed (1073741823 bytes)",
            false => "requested length too large",
        };
        Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).into_datafusion())
    }

    /// Computes the result in slices of rows, if their bounds are too high to be reserved all at once.
    fn in_parts(
        &self,
        arguments: &ScalarFunctionArgs,
        bounds: &[Bound],
        account: &Account,
    ) -> Result<ColumnarValue> {
        let kind = arguments.return_type();
        let mut parts = Vec::new();
        let mut from = 0;
        while from < bounds.len() {
            account.cancel_flag().check()?;
            let mut sum = bounds[from];
            let mut to = from + 1;
            while to < bounds.len() && sum.bytes.saturating_add(bounds[to].bytes) <= PART_BYTES {
                sum = sum_of(sum, bounds[to]);
                to += 1;
            }
            self.check(sum, kind)?;
            let held = account.reserve(self.name(), sum.bytes)?;
            let rows = to - from;
            let part = self.call(ScalarFunctionArgs {
                args: arguments.args.iter().map(|argument| part_of(argument, from, rows)).collect(),
                number_rows: rows,
                ..arguments.clone()
            })?;
            parts.push(held.attach_to(&part.into_array(rows)?)?);
            from = to;
        }
        let bytes = parts.iter().map(|part| part.get_array_memory_size() as u64).sum();
        let held = account.reserve(self.name(), bytes)?;
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(held.attach_to(&concat(&parts)?)?))
    }
}

impl ScalarUDFImpl for Bounded {
    delegate_scalar!(
        name,
        aliases,
        schema_name,
        signature,
        return_type,
        return_field_from_args,
        is_strict,
        short_circuits,
        evaluate_bounds,
        output_ordering,
        preserves_lex_ordering,
        documentation
    );

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(ScalarUDF::new_from_impl(Self { inner, rule: self.rule }))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match self.name() {
            "concat" | "concat_ws" => {}
            // Binary layouts in an array may differ, and NULLs may be among them.
            "make_array" if let Some(bytes) = bytes_of_all(arguments) => {
                return Ok(vec![bytes; arguments.len()]);
            }
            // DataFusion's treat bytes as text.
            name @ ("lpad" | "rpad" | "repeat" | "replace" | "translate")
                if arguments.first().is_some_and(DataType::is_binary) =>
            {
                let given: Vec<String> = arguments.iter().map(DataType::to_string).collect();
                return plan_err!("function {name}({}) does not exist", given.join(", "));
            }
            _ => return self.inner.inner().coerce_types(arguments),
        }
        // These are functions of texts for any input; DataFusion's concatenate bytes.
        let texts = arguments.iter().map(|kind| match format::value::are_shown(kind) {
            true => DataType::Utf8,
            false => kind.clone(),
        });
        self.inner.inner().coerce_types(&texts.collect::<Vec<_>>())
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.inner().simplify(arguments, info)? {
            // The simplification returns the unbounded function.
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(expr.transform_up(with_bounds)?.data)
            }
            original => original,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let account = Account::of(&arguments.config_options).cloned();
        if let Some(account) = &account {
            account.cancel_flag().check()?;
        }
        let small_bytes = if account.is_some() { SMALL_BYTES } else { CONSTANT_BYTES_MAX };
        if self.rule.factor().is_some_and(|factor| at_most(&arguments.args, rows, factor) <= small_bytes) {
            return self.call(arguments);
        }
        let kind = arguments.return_type().clone();
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let bounds = {
            let sized = arguments.args.iter().map(Argument::new).collect::<Result<Vec<_>>>()?;
            let rows = if is_constant { 1 } else { rows };
            (0..rows).map(|row| self.rule.bound(&sized, row)).collect::<Vec<_>>()
        };
        for bound in &bounds {
            self.check(*bound, &kind)?;
        }
        let total = bounds.iter().copied().fold(Bound::default(), sum_of);
        let account = match account {
            Some(account) => account,
            None if is_constant && total.bytes > CONSTANT_BYTES_MAX => {
                let message = format!("a constant of {} bytes in a statement that is planned", total.bytes);
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).into_datafusion());
            }
            None => Account::of_process(),
        };
        // A constant may later be expanded for each row.
        let times = if is_constant { rows.max(1) as u64 } else { 1 };
        let bytes = total.bytes.saturating_mul(times);
        if bytes <= SMALL_BYTES {
            return self.call(arguments);
        }
        if is_constant {
            let held = account.reserve(self.name(), bytes)?;
            return of_all_rows(self.call(arguments)?, held);
        }
        if self.rule.is_exact() {
            self.check(Bound { value: 0, ..total }, &kind)?;
            let held = account.reserve(self.name(), total.bytes)?;
            return of_each_row(self.call(arguments)?, rows, held);
        }
        let whole = match overflows(total, &kind) {
            true => None,
            false => account.reserve(self.name(), total.bytes).ok(),
        };
        match whole {
            Some(held) => of_each_row(self.call(arguments)?, rows, held),
            None => self.in_parts(&arguments, &bounds, &account),
        }
    }
}

/// The common binary type of all arguments, ignoring NULL; `None`: others are among them.
fn bytes_of_all(kinds: &[DataType]) -> Option<DataType> {
    let mut bytes = kinds.iter().filter(|kind| !kind.is_null());
    let first = bytes.next().filter(|kind| kind.is_binary())?;
    let is_one = bytes.clone().all(|kind| kind == first);
    let kind = if is_one { first.clone() } else { DataType::BinaryView };
    bytes.all(DataType::is_binary).then_some(kind)
}

fn with_bounds(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => match bounded_version(&func) {
            Some(func) => Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })),
            None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
        },
        other => Transformed::no(other),
    })
}

fn sum_of(one: Bound, other: Bound) -> Bound {
    Bound {
        bytes: one.bytes.saturating_add(other.bytes),
        items: one.items.saturating_add(other.items),
        value: one.value.max(other.value),
    }
}

/// Whether 32-bit offsets overflow.
fn overflows(bound: Bound, kind: &DataType) -> bool {
    const MAX: u64 = i32::MAX as u64;
    match kind {
        DataType::Utf8 | DataType::Binary => bound.items > MAX,
        DataType::List(field) => {
            let within = matches!(field.data_type(), DataType::Utf8 | DataType::Binary | DataType::List(_));
            bound.items > MAX || within && bound.bytes > MAX
        }
        _ => false,
    }
}

/// Upper bound on the bytes of all arguments together, without looking at each row, times a factor.
fn at_most(arguments: &[ColumnarValue], rows: usize, times: u64) -> u64 {
    let bytes = arguments.iter().map(|argument| match argument {
        ColumnarValue::Array(array) => array.get_buffer_memory_size() as u64,
        ColumnarValue::Scalar(scalar) => (scalar.size() as u64).saturating_mul(rows as u64),
    });
    bytes.fold(0, u64::saturating_add).saturating_mul(times)
}

fn part_of(argument: &ColumnarValue, from: usize, rows: usize) -> ColumnarValue {
    match argument {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
        scalar => scalar.clone(),
    }
}

fn of_each_row(result: ColumnarValue, rows: usize, held: Reservation) -> Result<ColumnarValue> {
    match result {
        ColumnarValue::Array(array) => Ok(ColumnarValue::Array(held.attach_to(&array)?)),
        // NULL for all rows.
        ColumnarValue::Scalar(scalar) if scalar.is_null() => Ok(ColumnarValue::Scalar(scalar)),
        ColumnarValue::Scalar(scalar) => {
            of_each_row(ColumnarValue::Array(scalar.to_array_of_size(rows)?), rows, held)
        }
    }
}

/// Ties the reservation to the lifetime of an array; the lifetime of a scalar text cannot be tracked.
fn of_all_rows(result: ColumnarValue, held: Reservation) -> Result<ColumnarValue> {
    let array: ArrayRef = match &result {
        ColumnarValue::Array(array) => Arc::clone(array),
        ColumnarValue::Scalar(scalar) if scalar.data_type().is_nested() => scalar.to_array()?,
        ColumnarValue::Scalar(_) => return Ok(result),
    };
    let array = held.attach_to(&array)?;
    match result {
        ColumnarValue::Array(_) => Ok(ColumnarValue::Array(array)),
        ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
    }
}

/// `||`; NULL if any operand is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenation {
    signature: Signature,
}

impl Concatenation {
    fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &str {
        "textcat"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [first, others @ ..] if others.iter().all(|kind| kind == first) && is_concatenated(first) => {
                Ok(first.clone())
            }
            _ => internal_err!("no concatenation of {arguments:?}"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let kinds: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&kinds)?, is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_null =
            |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(value) if value.is_null());
        if arguments.args.iter().any(is_null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(arguments.return_type())?));
        }
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let sides = arguments.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let texts = match sides.as_slice() {
            [left, right] => concat_elements_dyn(left, right)?,
            sides => chain(sides, arguments.return_type())?,
        };
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

/// Concatenates several arrays of one length and type row by row.
fn chain(arrays: &[ArrayRef], kind: &DataType) -> Result<ArrayRef> {
    let nulls = arrays.iter().fold(None, |nulls, array| NullBuffer::union(nulls.as_ref(), array.nulls()));
    let rows = arrays.first().map_or(0, |array| array.len());
    let (mut bytes, mut lengths) = (Vec::new(), Vec::with_capacity(rows));
    for row in 0..rows {
        let before = bytes.len();
        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            for array in arrays {
                bytes.extend_from_slice(bytes_at(array, row));
            }
        }
        lengths.push(bytes.len() - before);
    }
    let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
    let chained: ArrayRef = match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Arc::new(LargeStringArray::try_new(offsets, bytes.into(), nulls)?)
        }
        _ => Arc::new(LargeBinaryArray::try_new(offsets, bytes.into(), nulls)?),
    };
    Ok(cast(&chained, kind)?)
}

fn bytes_at(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
