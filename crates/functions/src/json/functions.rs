//! JSON functions under the names used by statements and plans. Those that implement an operator or a cast
//! have the name of PostgreSQL's underlying function, if there is one.
//!
//! Columns whose field is not marked as JSON are validated value by value; a text for `jsonb` is normalized
//! then.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Int32Array, ListArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::change::{self, Change};
use super::scan::{self, Shape, shape};
use super::texts::Texts;
use super::value::Value;
use super::{Kind, TYPE_KEY, build, get, order, wrong};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Operation of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    /// Parses a text as a value of the type.
    Read,
    /// The text of a value.
    Text,
    Key,
    /// The text of a number or a boolean.
    Scalar,
    /// A list of values, marked by its field.
    List,
    Get {
        as_text: bool,
    },
    Path {
        as_text: bool,
    },
    /// A path given as several arguments.
    Steps {
        as_text: bool,
    },
    Contains,
    IsContained,
    Exists,
    ExistsAny,
    ExistsAll,
    Concat,
    Delete,
    DeletePath,
    Set,
    Insert,
    StripNulls,
    Pretty,
    TypeOf,
    Length,
    Keys,
    Elements {
        as_text: bool,
    },
    /// The keys of an object, as a set-returning companion of [`Op::Members`].
    EachKey,
    /// The values of an object's members.
    Members {
        as_text: bool,
    },
    /// An object of texts.
    Object,
}

const TEXT: bool = true;
const VALUE: bool = false;

/// The functions, and the required type of their first argument; `None`: either.
const FUNCTIONS: [(&str, Op, Option<Kind>); 50] = [
    ("harrier_json", Op::Read, Some(Kind::Json)),
    ("harrier_jsonb", Op::Read, Some(Kind::Jsonb)),
    ("harrier_json_text", Op::Text, None),
    ("harrier_jsonb_key", Op::Key, Some(Kind::Jsonb)),
    ("harrier_jsonb_scalar", Op::Scalar, Some(Kind::Jsonb)),
    ("harrier_json_list", Op::List, Some(Kind::Json)),
    ("harrier_jsonb_list", Op::List, Some(Kind::Jsonb)),
    ("harrier_json_get", Op::Get { as_text: VALUE }, None),
    ("harrier_json_get_text", Op::Get { as_text: TEXT }, None),
    ("harrier_json_path", Op::Path { as_text: VALUE }, None),
    ("harrier_json_path_text", Op::Path { as_text: TEXT }, None),
    ("json_extract_path", Op::Steps { as_text: VALUE }, Some(Kind::Json)),
    ("json_extract_path_text", Op::Steps { as_text: TEXT }, Some(Kind::Json)),
    ("jsonb_extract_path", Op::Steps { as_text: VALUE }, Some(Kind::Jsonb)),
    ("jsonb_extract_path_text", Op::Steps { as_text: TEXT }, Some(Kind::Jsonb)),
    ("jsonb_contains", Op::Contains, Some(Kind::Jsonb)),
    ("jsonb_contained", Op::IsContained, Some(Kind::Jsonb)),
    ("jsonb_exists", Op::Exists, Some(Kind::Jsonb)),
    ("jsonb_exists_any", Op::ExistsAny, Some(Kind::Jsonb)),
    ("jsonb_exists_all", Op::ExistsAll, Some(Kind::Jsonb)),
    ("jsonb_concat", Op::Concat, Some(Kind::Jsonb)),
    ("jsonb_delete", Op::Delete, Some(Kind::Jsonb)),
    ("jsonb_delete_path", Op::DeletePath, Some(Kind::Jsonb)),
    ("jsonb_set", Op::Set, Some(Kind::Jsonb)),
    ("jsonb_insert", Op::Insert, Some(Kind::Jsonb)),
    ("json_strip_nulls", Op::StripNulls, Some(Kind::Json)),
    ("jsonb_strip_nulls", Op::StripNulls, Some(Kind::Jsonb)),
    ("jsonb_pretty", Op::Pretty, Some(Kind::Jsonb)),
    ("json_typeof", Op::TypeOf, Some(Kind::Json)),
    ("jsonb_typeof", Op::TypeOf, Some(Kind::Jsonb)),
    ("json_array_length", Op::Length, Some(Kind::Json)),
    ("jsonb_array_length", Op::Length, Some(Kind::Jsonb)),
    ("harrier_json_object_keys", Op::Keys, Some(Kind::Json)),
    ("harrier_jsonb_object_keys", Op::Keys, Some(Kind::Jsonb)),
    ("harrier_json_array_elements", Op::Elements { as_text: VALUE }, Some(Kind::Json)),
    ("harrier_json_array_elements_text", Op::Elements { as_text: TEXT }, Some(Kind::Json)),
    ("harrier_jsonb_array_elements", Op::Elements { as_text: VALUE }, Some(Kind::Jsonb)),
    ("harrier_jsonb_array_elements_text", Op::Elements { as_text: TEXT }, Some(Kind::Jsonb)),
    ("harrier_json_each", Op::Members { as_text: VALUE }, Some(Kind::Json)),
    ("harrier_json_each_text", Op::Members { as_text: TEXT }, Some(Kind::Json)),
    ("harrier_jsonb_each", Op::Members { as_text: VALUE }, Some(Kind::Jsonb)),
    ("harrier_jsonb_each_text", Op::Members { as_text: TEXT }, Some(Kind::Jsonb)),
    ("harrier_json_each_key", Op::EachKey, Some(Kind::Json)),
    ("harrier_jsonb_each_key", Op::EachKey, Some(Kind::Jsonb)),
    ("json_object", Op::Object, Some(Kind::Json)),
    ("jsonb_object", Op::Object, Some(Kind::Jsonb)),
    // PostgreSQL's names of its operators' functions.
    ("json_object_field_text", Op::Get { as_text: TEXT }, Some(Kind::Json)),
    ("jsonb_object_field_text", Op::Get { as_text: TEXT }, Some(Kind::Jsonb)),
    ("json_object_field", Op::Get { as_text: VALUE }, Some(Kind::Json)),
    ("jsonb_object_field", Op::Get { as_text: VALUE }, Some(Kind::Jsonb)),
];

static ALL: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
    let own = FUNCTIONS.into_iter().map(|(name, op, kind)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Function { name, op, kind, signature }))
    });
    own.chain(build::functions().map(Arc::new)).collect()
});

/// All of them, for sessions that decode plans.
pub fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    ALL.iter().cloned()
}

/// Functions callable from SQL, including those that statements are rewritten to.
pub fn callable() -> impl Iterator<Item = Arc<ScalarUDF>> {
    functions()
}

/// The function of this name.
pub fn by_name(name: &str) -> Option<Arc<ScalarUDF>> {
    ALL.iter().find(|function| function.name() == name).cloned()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    name: &'static str,
    op: Op,
    kind: Option<Kind>,
    signature: Signature,
}

impl Function {
    fn missing(&self, types: &[String]) -> datafusion::error::DataFusionError {
        let message = format!("function {}({}) does not exist", self.name, types.join(", "));
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into_datafusion()
    }

    /// Minimum and maximum number of arguments.
    fn counts(&self) -> (usize, usize) {
        match self.op {
            Op::Read | Op::Text | Op::Key | Op::List => (1, 1),
            Op::StripNulls | Op::Pretty | Op::TypeOf | Op::Length => (1, 1),
            Op::Keys | Op::EachKey | Op::Elements { .. } | Op::Members { .. } => (1, 1),
            Op::Steps { .. } => (1, usize::MAX),
            Op::Set | Op::Insert => (3, 4),
            Op::Object => (1, 2),
            _ => (2, 2),
        }
    }

    /// The type to which argument `at` is coerced, from its own; `None`: it is not accepted.
    fn coerce(&self, at: usize, given: &DataType) -> Option<DataType> {
        let text = given.is_string() || given.is_null();
        let texts = || DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)));
        let path = || match given {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                (item.data_type().is_string() || item.data_type().is_null()).then(texts)
            }
            _ => text.then_some(DataType::Utf8View),
        };
        match (self.op, at) {
            (Op::List, _) => Some(given.clone()),
            (Op::Object, _) | (Op::Path { .. } | Op::DeletePath | Op::ExistsAny | Op::ExistsAll, 1) => path(),
            (Op::Set | Op::Insert, 1) => path(),
            (Op::Set | Op::Insert, 3) => {
                (given.is_null() || *given == DataType::Boolean).then_some(DataType::Boolean)
            }
            (Op::Get { .. }, 1) if given.is_integer() => Some(DataType::Int64),
            (Op::Delete, 1) if given.is_integer() => Some(DataType::Int64),
            (Op::Delete, 1) => path(),
            _ => text.then_some(DataType::Utf8View),
        }
    }

    /// The JSON type of its result.
    fn result_kind(&self, given: Option<Kind>) -> Kind {
        self.kind.or(given).unwrap_or(Kind::Json)
    }

    fn result(&self, given: Option<Kind>, first: Option<&DataType>) -> FieldRef {
        let plain = |kind| Arc::new(Field::new(self.name, kind, true));
        let list = |item: &Field| {
            let list = Field::new(self.name, DataType::List(Arc::new(item.clone().with_name("item"))), true);
            let name = item.metadata().get(TYPE_KEY).map(|name| (TYPE_KEY.to_string(), format!("_{name}")));
            Arc::new(list.with_metadata(name.into_iter().collect()))
        };
        let value = |name: &str| self.result_kind(given).field(name);
        let text = |name: &str| Arc::new(Field::new(name, DataType::Utf8View, true));
        match self.op {
            Op::Text | Op::Scalar | Op::Pretty | Op::TypeOf => text(self.name),
            Op::Key => plain(DataType::Binary),
            Op::Contains | Op::IsContained | Op::Exists | Op::ExistsAny | Op::ExistsAll => {
                plain(DataType::Boolean)
            }
            Op::Length => plain(DataType::Int32),
            Op::List => match first {
                Some(DataType::List(item)) => {
                    list(&value("item").as_ref().clone().with_data_type(item.data_type().clone()))
                }
                _ => plain(first.cloned().unwrap_or(DataType::Null)),
            },
            Op::Keys | Op::EachKey | Op::Elements { as_text: true } | Op::Members { as_text: true } => {
                list(&text("item"))
            }
            Op::Elements { as_text: false } | Op::Members { as_text: false } => list(&value("item")),
            Op::Get { as_text: true } | Op::Path { as_text: true } | Op::Steps { as_text: true } => {
                text(self.name)
            }
            _ => value(self.name),
        }
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let missing = || {
            let types: Vec<String> = given.iter().map(ToString::to_string).collect();
            self.missing(&types)
        };
        let (least, most) = self.counts();
        if !(least..=most).contains(&given.len()) {
            return Err(missing());
        }
        given.iter().enumerate().map(|(at, kind)| self.coerce(at, kind).ok_or_else(missing)).collect()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(self.result(None, given.first()).data_type().clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let given = arguments.arg_fields.first().and_then(|field| Kind::of_field(field));
        let converts = matches!(self.op, Op::Read | Op::Text | Op::List);
        if let (Some(given), Some(expected), false) = (given, self.kind, converts)
            && given != expected
        {
            return Err(self.missing(&[given.name().to_string()]));
        }
        Ok(self.result(given, arguments.arg_fields.first().map(|field| field.data_type())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns = arguments.args.iter().map(Argument::new).collect::<Result<Vec<_>>>()?;
        let first = arguments.arg_fields.first().and_then(|field| Kind::of_field(field));
        let second = arguments.arg_fields.get(2).and_then(|field| Kind::of_field(field));
        let second = arguments.arg_fields.get(1).and_then(|field| Kind::of_field(field)).or(second);
        let call = Call { function: self, columns, first, second, config: &arguments.config_options };
        let result = call.result(rows, &arguments.return_field)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

/// An argument for each row.
struct Argument {
    array: ArrayRef,
    is_constant: bool,
}

impl Argument {
    fn new(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self { array: Arc::clone(array), is_constant: false },
            ColumnarValue::Scalar(scalar) => Self { array: scalar.to_array()?, is_constant: true },
        })
    }

    fn place(&self, row: usize) -> Option<usize> {
        let row = if self.is_constant { 0 } else { row };
        self.array.is_valid(row).then_some(row)
    }

    fn text(&self, row: usize) -> Option<&str> {
        Some(self.array.as_string_view_opt()?.value(self.place(row)?))
    }

    fn boolean(&self, row: usize) -> Option<bool> {
        Some(self.array.as_boolean_opt()?.value(self.place(row)?))
    }

    fn integer(&self, row: usize) -> Option<i64> {
        Some(self.array.as_primitive_opt::<Int64Type>()?.value(self.place(row)?))
    }

    /// Elements of a text array, or of an array literal.
    fn texts(&self, row: usize) -> Result<Option<Vec<Option<String>>>> {
        let Some(place) = self.place(row) else { return Ok(None) };
        if let Some(texts) = self.array.as_string_view_opt() {
            return array_of_text(texts.value(place)).map(Some);
        }
        let Some(list) = self.array.as_list_opt::<i32>() else { return internal_err!("no array of texts") };
        let items = list.value(place);
        let texts = items
            .as_string_view_opt()
            .map(|texts| texts.iter().map(|text| text.map(str::to_string)).collect());
        Ok(Some(texts.unwrap_or_default()))
    }
}

/// The elements of `{a,"b c",NULL}`.
fn array_of_text(text: &str) -> Result<Vec<Option<String>>> {
    let malformed = || {
        let message = format!("malformed array literal: \"{text}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    let inner = text
        .trim()
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .ok_or_else(malformed)
        .map_err(harrier_sqlstate::external)?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Ok(elements);
    }
    let mut letters = inner.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let is_quoted = letters.next_if_eq(&'"').is_some();
        let mut element = String::new();
        let mut is_escaped = false;
        loop {
            match letters.peek() {
                Some('\\') => {
                    letters.next();
                    is_escaped = true;
                    element.push(letters.next().ok_or_else(malformed).map_err(harrier_sqlstate::external)?);
                }
                Some('"') if is_quoted => {
                    letters.next();
                    break;
                }
                Some(',') | None if !is_quoted => break,
                Some('{' | '}' | '"') if !is_quoted => return Err(malformed().into_datafusion()),
                Some(letter) => {
                    element.push(*letter);
                    letters.next();
                }
                None => return Err(malformed().into_datafusion()),
            }
        }
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        if !is_quoted {
            element.truncate(element.trim_end().len());
            if element.is_empty() {
                return Err(malformed().into_datafusion());
            }
        }
        let is_null = !is_quoted && !is_escaped && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(element));
        match letters.next() {
            Some(',') => {}
            Some(_) => return Err(malformed().into_datafusion()),
            None => return Ok(elements),
        }
    }
}

/// One call, for the rows of a batch.
struct Call<'c> {
    function: &'c Function,
    columns: Vec<Argument>,
    /// JSON types of the first argument, and of the other JSON argument.
    first: Option<Kind>,
    second: Option<Kind>,
    config: &'c ConfigOptions,
}

impl Call<'_> {
    fn result(&self, rows: usize, field: &Field) -> Result<ArrayRef> {
        let op = self.function.op;
        Ok(match op {
            Op::List => {
                let DataType::List(item) = field.data_type() else {
                    return Ok(Arc::clone(&self.columns[0].array));
                };
                let list = self.columns[0].array.as_list::<i32>();
                let (_, offsets, values, nulls) = list.clone().into_parts();
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            Op::Key => {
                let mut keys = BinaryBuilder::new();
                for row in 0..rows {
                    keys.append_option(self.document(row)?.map(|text| order::key(&text)).transpose()?);
                }
                Arc::new(keys.finish())
            }
            Op::Contains | Op::IsContained | Op::Exists | Op::ExistsAny | Op::ExistsAll => {
                Arc::new((0..rows).map(|row| self.is_true(row)).collect::<Result<BooleanArray>>()?)
            }
            Op::Length => Arc::new((0..rows).map(|row| self.length(row)).collect::<Result<Int32Array>>()?),
            Op::Keys | Op::EachKey | Op::Elements { .. } | Op::Members { .. } => self.lists(rows, field)?,
            _ => {
                let mut texts = Texts::new(self.function.name, self.config);
                for row in 0..rows {
                    self.text(row, &mut texts)?;
                }
                texts.finish()?
            }
        })
    }

    /// The first argument, as validated JSON.
    fn document(&self, row: usize) -> Result<Option<Cow<'_, str>>> {
        self.validate(0, self.first, row)
    }

    fn validate(&self, at: usize, given: Option<Kind>, row: usize) -> Result<Option<Cow<'_, str>>> {
        let Some(text) = self.columns[at].text(row) else { return Ok(None) };
        Ok(Some(match (given, self.function.kind) {
            (Some(Kind::Jsonb), _) | (Some(Kind::Json), None | Some(Kind::Json)) => Cow::Borrowed(text),
            (_, Some(Kind::Jsonb)) => Cow::Owned(Value::parse(text)?.text()),
            (None, _) => {
                scan::check(text)?;
                Cow::Borrowed(text)
            }
        }))
    }

    /// Writes the result of one row as text.
    fn text(&self, row: usize, into: &mut Texts<'_>) -> Result<()> {
        let op = self.function.op;
        if op == Op::Text {
            return into.push(self.columns[0].text(row));
        }
        if op == Op::Object {
            return into.push(self.object(row)?.as_deref());
        }
        let Some(document) = self.document(row)? else { return into.push(None) };
        let document = document.as_ref();
        let found = match op {
            Op::Read => return into.push(Some(document)),
            Op::TypeOf => return into.push(Some(shape(document)?.name())),
            Op::Get { .. } => match (self.columns[1].text(row), self.columns[1].integer(row)) {
                (Some(key), _) => get::member(document, key)?,
                (None, Some(number)) => {
                    let kind = self.function.result_kind(self.first);
                    get::element(document, number, kind)?
                }
                (None, None) => None,
            },
            Op::Path { .. } => match self.columns[1].texts(row)? {
                Some(path) => {
                    let path: Vec<Option<&str>> = path.iter().map(Option::as_deref).collect();
                    get::at_path(document, &path)?
                }
                None => None,
            },
            Op::Steps { .. } => {
                let path: Vec<Option<&str>> = self.columns[1..].iter().map(|step| step.text(row)).collect();
                get::at_path(document, &path)?
            }
            Op::StripNulls if self.function.kind == Some(Kind::Json) => {
                let mut text = String::new();
                change::text_without_nulls(document, 0, &mut text)?;
                return into.push(Some(&text));
            }
            Op::Scalar => {
                let name = self.columns[1].text(row).unwrap_or_default();
                let text = change::scalar(document, name == "boolean", name)?;
                let is_whole = matches!(name, "smallint" | "integer" | "bigint");
                return into.push(Some(&if is_whole { change::round(&text) } else { text }));
            }
            _ => return self.write_changed(Value::of_checked(document)?, row, into),
        };
        match (op, found) {
            (
                Op::Get { as_text: true } | Op::Path { as_text: true } | Op::Steps { as_text: true },
                Some(found),
            ) => into.push(get::as_text(found)?.as_deref()),
            (_, found) => into.push(found),
        }
    }

    /// Writes a modified value.
    fn write_changed(&self, value: Value<'_>, row: usize, into: &mut Texts<'_>) -> Result<()> {
        let value = match self.function.op {
            Op::StripNulls => change::without_nulls(value),
            Op::Pretty => {
                const LENGTH_MAX: usize = 1 << 28;
                let mut text = String::new();
                value.write_pretty(&mut text, 0, LENGTH_MAX)?;
                return into.push(Some(&text));
            }
            Op::Concat => {
                let Some(other) = self.validate(1, self.second, row)? else { return into.push(None) };
                let text = change::concatenate(value, Value::of_checked(&other)?).text();
                return into.push(Some(&text));
            }
            Op::Delete => match (self.columns[1].text(row), self.columns[1].integer(row)) {
                (Some(key), _) => change::without_keys(value, &[Some(key)])?,
                (None, Some(number)) => change::without_element(value, number)?,
                (None, None) => match self.columns[1].texts(row)? {
                    Some(keys) => {
                        let keys: Vec<Option<&str>> = keys.iter().map(Option::as_deref).collect();
                        change::without_keys(value, &keys)?
                    }
                    None => return into.push(None),
                },
            },
            Op::DeletePath | Op::Set | Op::Insert => {
                let Some(path) = self.columns[1].texts(row)? else { return into.push(None) };
                let path: Vec<Option<&str>> = path.iter().map(Option::as_deref).collect();
                if self.function.op == Op::DeletePath {
                    change::change_at_path(value, &path, Change::Delete)?
                } else {
                    let Some(new) = self.validate(2, self.second, row)? else { return into.push(None) };
                    let flag = match self.columns.get(3) {
                        Some(flag) => flag.boolean(row),
                        None => Some(self.function.op == Op::Set),
                    };
                    let Some(flag) = flag else { return into.push(None) };
                    let new = Value::of_checked(&new)?;
                    let change = match self.function.op {
                        Op::Set => Change::Set { value: new, creates: flag },
                        _ => Change::Insert { value: new, is_after: flag },
                    };
                    return into.push(Some(&change::change_at_path(value, &path, change)?.text()));
                }
            }
            _ => return internal_err!("{} gives no text", self.function.name),
        };
        into.push(Some(&value.text()))
    }

    fn is_true(&self, row: usize) -> Result<Option<bool>> {
        let Some(document) = self.document(row)? else { return Ok(None) };
        let value = Value::of_checked(&document)?;
        let op = self.function.op;
        if let Op::Contains | Op::IsContained = op {
            let Some(other) = self.validate(1, self.second, row)? else { return Ok(None) };
            let other = Value::of_checked(&other)?;
            return Ok(Some(match op {
                Op::Contains => change::contains(&value, &other),
                _ => change::contains(&other, &value),
            }));
        }
        if op == Op::Exists {
            return Ok(self.columns[1].text(row).map(|key| change::has_key(&value, key)));
        }
        let Some(keys) = self.columns[1].texts(row)? else { return Ok(None) };
        let mut keys = keys.iter().flatten().map(|key| change::has_key(&value, key));
        Ok(Some(match op {
            Op::ExistsAny => keys.any(|has| has),
            _ => keys.all(|has| has),
        }))
    }

    fn length(&self, row: usize) -> Result<Option<i32>> {
        let Some(document) = self.document(row)? else { return Ok(None) };
        match shape(&document)? {
            Shape::Array => {
                let length = scan::elements(&document)?.len();
                Ok(Some(i32::try_from(length).unwrap_or(i32::MAX)))
            }
            Shape::Object => Err(wrong("cannot get array length of a non-array")),
            _ => Err(wrong("cannot get array length of a scalar")),
        }
    }

    fn object(&self, row: usize) -> Result<Option<String>> {
        let Some(first) = self.columns[0].texts(row)? else { return Ok(None) };
        let state = SqlState::ARRAY_ELEMENT_ERROR;
        let members: Vec<(Option<String>, Option<String>)> = match self.columns.get(1) {
            Some(values) => {
                let Some(values) = values.texts(row)? else { return Ok(None) };
                if values.len() != first.len() {
                    return Err(SqlError::new(state, "mismatched array dimensions").into_datafusion());
                }
                first.into_iter().zip(values).collect()
            }
            None if first.len() % 2 != 0 => {
                return Err(SqlError::new(state, "array must have even number of elements").into_datafusion());
            }
            None => first.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        };
        let mut text = String::from("{");
        for (at, (key, value)) in members.iter().enumerate() {
            let Some(key) = key else {
                let state = SqlState::NULL_VALUE_NOT_ALLOWED;
                return Err(SqlError::new(state, "null value not allowed for object key").into_datafusion());
            };
            text += if at == 0 { "" } else { ", " };
            scan::quote(key, &mut text);
            text += " : ";
            match value {
                Some(value) => scan::quote(value, &mut text),
                None => text += "null",
            }
        }
        text.push('}');
        Ok(Some(match self.function.kind {
            Some(Kind::Jsonb) => Value::of_checked(&text)?.text(),
            _ => text,
        }))
    }

    /// Lists of keys, values or both, which become rows.
    fn lists(&self, rows: usize, field: &Field) -> Result<ArrayRef> {
        let DataType::List(item) = field.data_type() else { return internal_err!("no list") };
        let mut items = Texts::new(self.function.name, self.config);
        let (mut lengths, mut valid) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for row in 0..rows {
            let document = self.document(row)?;
            valid.push(document.is_some());
            lengths.push(match document {
                Some(document) => self.parts(&document, &mut items)?,
                None => 0,
            });
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        let items = items.finish()?;
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, Some(NullBuffer::from(valid)))?))
    }

    /// Appends the parts of one document; returns their number.
    fn parts(&self, document: &str, items: &mut Texts<'_>) -> Result<usize> {
        let is_binary = self.function.kind == Some(Kind::Jsonb);
        let name = self.function.name.trim_start_matches("harrier_").trim_end_matches("_key");
        let shape = shape(document)?;
        let mut count = 0;
        match self.function.op {
            Op::Elements { as_text } => {
                if shape != Shape::Array {
                    return Err(wrong(match (is_binary, shape) {
                        (true, Shape::Object) => "cannot extract elements from an object".to_string(),
                        (true, _) => "cannot extract elements from a scalar".to_string(),
                        (false, Shape::Object) => format!("cannot call {name} on a non-array"),
                        (false, _) => format!("cannot call {name} on a scalar"),
                    }));
                }
                for element in scan::elements(document)? {
                    match as_text {
                        true => items.push(get::as_text(element)?.as_deref())?,
                        false => items.push(Some(element))?,
                    }
                    count += 1;
                }
            }
            op => {
                if shape != Shape::Object {
                    return Err(wrong(match (op, is_binary, shape) {
                        (Op::Keys, _, Shape::Array) => format!("cannot call {name} on an array"),
                        (Op::Keys, ..) => format!("cannot call {name} on a scalar"),
                        (_, true, _) => format!("cannot call {name} on a non-object"),
                        (_, false, Shape::Array) => "cannot deconstruct an array as an object".to_string(),
                        (_, false, _) => "cannot deconstruct a scalar".to_string(),
                    }));
                }
                scan::members(document, |key, value| {
                    count += 1;
                    match op {
                        Op::Members { as_text: true } => items.push(get::as_text(value)?.as_deref()),
                        Op::Members { .. } => items.push(Some(value)),
                        _ => items.push(Some(&key)),
                    }
                })?;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_texts() {
        let texts = |text| array_of_text(text).unwrap();
        let some = |text: &str| Some(text.to_string());
        assert!(texts("{}").is_empty());
        assert_eq!(
            texts("{a, \"b \\\" c\" ,NULL,\"NULL\",1}"),
            [some("a"), some("b \" c"), None, some("NULL"), some("1")]
        );
        for wrong in ["a", "{a", "{a,}", "{\"a}", "{\"a\"b}"] {
            assert!(array_of_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn functions_are_found_by_name() {
        for function in functions() {
            assert_eq!(by_name(function.name()).unwrap(), function);
        }
    }
}
