//! Arrays, maps and structs: elements, sizes, order, and what generators unnest.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, MapBuilder, StringBuilder, UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, cast, concat, sort, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// (array, place from 0) or (map, key) → the element; NULL for none
    Element,
    /// (array of structs, number of a field from 0) → the array of that field
    Fields,
    /// (array) → the places from 0
    Positions,
    /// (array or map) → how many, -1 for NULL
    Size,
    /// (array) → the same in order, NULLs first
    SortArray,
    /// (text, between pairs, between key and value) → map
    StrToMap,
    /// (a, b, …) → the greatest, NULL if one is
    Greatest,
    /// (a, b, …) → the least, NULL if one is
    Least,
}

use Purpose::{Element, Fields as StructFields, Greatest, Least, Positions, Size, SortArray, StrToMap};

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Element, StructFields, Positions, Size, SortArray, StrToMap, Greatest, Least].into_iter().map(
        |purpose| {
            let signature = Signature::user_defined(Volatility::Immutable);
            Arc::new(ScalarUDF::new_from_impl(Nested { purpose, signature }))
        },
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nested {
    purpose: Purpose,
    signature: Signature,
}

fn texts_map() -> DataType {
    let key = Field::new("key", DataType::Utf8, false);
    let value = Field::new("value", DataType::Utf8, true);
    let entries = DataType::Struct(Fields::from(vec![key, value]));
    DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
}

/// The key and the value of a map.
fn entry(kind: &DataType) -> Option<(&FieldRef, &FieldRef)> {
    let DataType::Map(entries, _) = kind else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    Some((fields.first()?, fields.get(1)?))
}

/// The type in which values are compared.
fn common(given: &[DataType]) -> Result<DataType> {
    let first = given.iter().find(|kind| !kind.is_null()).cloned().unwrap_or(DataType::Null);
    if given.iter().all(|kind| *kind == first || kind.is_null()) {
        return Ok(first);
    }
    let is_text = |kind: &DataType| kind.is_string();
    if given.iter().all(|kind| kind.is_numeric() || kind.is_null()) {
        let is_double = given.iter().any(|kind| kind.is_floating());
        let is_decimal = given.iter().any(|kind| kind.is_decimal());
        return Ok(match (is_double, is_decimal) {
            (true, _) => DataType::Float64,
            (_, true) => DataType::Decimal128(38, 18),
            _ => DataType::Int64,
        });
    }
    match given.iter().any(is_text) {
        true => Ok(DataType::Utf8),
        false => plan_err!("values of {given:?} do not compare"),
    }
}

impl Nested {
    fn wrong<T>(&self, given: &[DataType]) -> Result<T> {
        let given: Vec<String> = given.iter().map(DataType::to_string).collect();
        plan_err!("function {}({}) does not exist", self.name(), given.join(", "))
    }
}

impl ScalarUDFImpl for Nested {
    fn name(&self) -> &str {
        match self.purpose {
            Element => "hive_element",
            StructFields => "hive_fields",
            Positions => "hive_positions",
            Size => "hive_size",
            SortArray => "hive_sort_array",
            StrToMap => "hive_str_to_map",
            Greatest => "hive_greatest",
            Least => "hive_least",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        Ok(match (self.purpose, given) {
            (Element, [list @ DataType::List(_), _]) => vec![list.clone(), DataType::Int64],
            (Element, [map, _]) if entry(map).is_some() => {
                let (key, _) =
                    entry(map).map_or((DataType::Null, ()), |(key, _)| (key.data_type().clone(), ()));
                vec![map.clone(), key]
            }
            (StructFields, [list @ DataType::List(_), _]) => vec![list.clone(), DataType::Int64],
            (Positions | Size | SortArray, [list @ (DataType::List(_) | DataType::Map(..))]) => {
                vec![list.clone()]
            }
            (Size, [DataType::Null]) => vec![DataType::Null],
            (StrToMap, [_] | [_, _] | [_, _, _]) => vec![DataType::Utf8; given.len()],
            (Greatest | Least, [_, ..]) => vec![common(given)?; given.len()],
            _ => return self.wrong(given),
        })
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(match (self.purpose, given) {
            (Element, [DataType::List(item), _]) => item.data_type().clone(),
            (Element, [map, _]) => match entry(map) {
                Some((_, value)) => value.data_type().clone(),
                None => return self.wrong(given),
            },
            (Positions, _) => DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true))),
            (Size, _) => DataType::Int32,
            (SortArray, [list]) => list.clone(),
            (StrToMap, _) => texts_map(),
            (Greatest | Least, [first, ..]) => first.clone(),
            _ => return plan_err!("{} has no type without its arguments", self.name()),
        })
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let given: Vec<DataType> =
            arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let kind = match (self.purpose, given.as_slice()) {
            (StructFields, [DataType::List(item), _]) => {
                let place = arguments.scalar_arguments.get(1).copied().flatten();
                let field = match (item.data_type(), place.and_then(place_of)) {
                    (DataType::Struct(fields), Some(place)) => fields.get(place),
                    _ => None,
                };
                let Some(field) = field else { return plan_err!("inline() has more names than fields") };
                DataType::List(Arc::new(Field::new_list_field(field.data_type().clone(), true)))
            }
            _ => self.return_type(&given)?,
        };
        Ok(Arc::new(Field::new(self.name(), kind, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let target = arguments.return_field.data_type();
        let result = match (self.purpose, columns.as_slice()) {
            (Element, [list, place]) => element(list, place, target)?,
            (StructFields, [list, place]) => fields(list, place, target)?,
            (Positions, [list]) => positions(list, target)?,
            (Size, [list]) => sizes(list)?,
            (SortArray, [list]) => sort_lists(list, target)?,
            (StrToMap, [text, others @ ..]) => str_to_map(text, others)?,
            (Greatest | Least, values) => extreme(values, self.purpose == Greatest)?,
            _ => return exec_err!("{} has other arguments", self.name()),
        };
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn place_of(value: &ScalarValue) -> Option<usize> {
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(Some(place))) => usize::try_from(place).ok(),
        _ => None,
    }
}

fn element(list: &ArrayRef, place: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let indexes: UInt32Array = match list.data_type() {
        DataType::List(_) => {
            let (list, places) = (list.as_list::<i32>(), place.as_primitive::<Int64Type>());
            (0..list.len())
                .map(|row| {
                    if list.is_null(row) || places.is_null(row) {
                        return None;
                    }
                    let place = u32::try_from(places.value(row)).ok()?;
                    let (start, length) = (list.value_offsets()[row] as u32, list.value_length(row) as u32);
                    (place < length).then_some(start + place)
                })
                .collect()
        }
        _ => {
            let map = list.as_map();
            let mut found = Vec::with_capacity(map.len());
            for row in 0..map.len() {
                let mut at = None;
                if map.is_valid(row) && place.is_valid(row) {
                    let key = ScalarValue::try_from_array(place, row)?;
                    let (start, end) = (map.value_offsets()[row], map.value_offsets()[row + 1]);
                    for entry in start..end {
                        if ScalarValue::try_from_array(map.keys(), entry as usize)? == key {
                            at = Some(entry as u32);
                            break;
                        }
                    }
                }
                found.push(at);
            }
            found.into_iter().collect()
        }
    };
    let values = match list.data_type() {
        DataType::List(_) => Arc::clone(list.as_list::<i32>().values()),
        _ => Arc::clone(list.as_map().values()),
    };
    match values.is_empty() {
        true => Ok(new_null_array(target, list.len())),
        false => Ok(take(&values, &indexes, None)?),
    }
}

fn fields(list: &ArrayRef, place: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let list = list.as_list::<i32>();
    let place = usize::try_from(place.as_primitive::<Int64Type>().value(0)).unwrap_or_default();
    let structs = list.values().as_struct();
    let values = structs.column(place);
    // A struct that is NULL has fields that are.
    let indexes: UInt32Array =
        (0..structs.len()).map(|row| structs.is_valid(row).then_some(row as u32)).collect();
    let values = if structs.null_count() == 0 { Arc::clone(values) } else { take(values, &indexes, None)? };
    let DataType::List(item) = target else { return exec_err!("a list was expected") };
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?))
}

fn positions(list: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let (lengths, nulls): (Vec<usize>, _) = match list.data_type() {
        DataType::List(_) => {
            let list = list.as_list::<i32>();
            let length = |row| if list.is_valid(row) { list.value_length(row) as usize } else { 0 };
            ((0..list.len()).map(length).collect(), list.nulls().cloned())
        }
        _ => {
            let map = list.as_map();
            let length = |row| if map.is_valid(row) { map.value_length(row) as usize } else { 0 };
            ((0..map.len()).map(length).collect(), map.nulls().cloned())
        }
    };
    let values: Int32Array = lengths.iter().flat_map(|length| 0..*length as i32).collect();
    let DataType::List(item) = target else { return exec_err!("a list was expected") };
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, Arc::new(values), nulls)?))
}

fn sizes(list: &ArrayRef) -> Result<ArrayRef> {
    let sizes: Int32Array = match list.data_type() {
        DataType::List(_) => {
            let list = list.as_list::<i32>();
            (0..list.len()).map(|row| if list.is_valid(row) { list.value_length(row) } else { -1 }).collect()
        }
        DataType::Map(..) => {
            let map = list.as_map();
            (0..map.len()).map(|row| if map.is_valid(row) { map.value_length(row) } else { -1 }).collect()
        }
        _ => (0..list.len()).map(|_| -1).collect(),
    };
    Ok(Arc::new(sizes))
}

fn sort_lists(list: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let list = list.as_list::<i32>();
    let options = SortOptions { descending: false, nulls_first: true };
    let rows = (0..list.len()).filter(|row| list.is_valid(*row));
    let parts = rows.map(|row| Ok(sort(&list.value(row), Some(options))?)).collect::<Result<Vec<_>>>()?;
    let DataType::List(item) = target else { return exec_err!("a list was expected") };
    let values = match parts.is_empty() {
        true => new_null_array(item.data_type(), 0),
        false => concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?,
    };
    let length = |row| if list.is_valid(row) { list.value_length(row) as usize } else { 0 };
    let offsets = OffsetBuffer::from_lengths((0..list.len()).map(length));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, list.nulls().cloned())?))
}

/// A key that comes again has its last value.
fn str_to_map(text: &ArrayRef, others: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = cast(text, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let between = |at: usize, row: usize, default: &str| match others.get(at) {
        Some(other) if other.is_valid(row) => {
            let value = ScalarValue::try_from_array(other, row)?;
            Ok(value.try_as_str().flatten().unwrap_or(default).to_string())
        }
        _ => Ok::<String, datafusion::common::DataFusionError>(default.to_string()),
    };
    let names = datafusion::arrow::array::MapFieldNames {
        entry: "entries".to_string(),
        key: "key".to_string(),
        value: "value".to_string(),
    };
    let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
    for row in 0..texts.len() {
        if texts.is_null(row) {
            map.append(false)?;
            continue;
        }
        let (pairs, inner) = (between(0, row, ",")?, between(1, row, ":")?);
        let mut known: Vec<(&str, Option<&str>)> = Vec::new();
        for pair in super::regex_cache::compile(&pairs)?.split(texts.value(row)) {
            let found = super::regex_cache::compile(&inner)?.find(pair);
            let (key, value) = match found {
                Some(found) => (&pair[..found.start()], Some(&pair[found.end()..])),
                None => (pair, None),
            };
            match known.iter_mut().find(|(other, _)| *other == key) {
                Some((_, old)) => *old = value,
                None => known.push((key, value)),
            }
        }
        for (key, value) in known {
            map.keys().append_value(key);
            map.values().append_option(value);
        }
        map.append(true)?;
    }
    Ok(Arc::new(map.finish()))
}

fn extreme(values: &[ArrayRef], is_greatest: bool) -> Result<ArrayRef> {
    let Some(first) = values.first() else { return exec_err!("a value is missing") };
    let mut found = Vec::with_capacity(first.len());
    for row in 0..first.len() {
        let mut best: Option<ScalarValue> = None;
        for column in values {
            let value = ScalarValue::try_from_array(column, row)?;
            if value.is_null() {
                best = Some(value);
                break;
            }
            let is_better = match best.as_ref().and_then(|best| value.partial_cmp(best)) {
                Some(order) if is_greatest => order.is_gt(),
                Some(order) => order.is_lt(),
                None => best.is_none(),
            };
            if is_better {
                best = Some(value);
            }
        }
        found.extend(best);
    }
    match found.is_empty() {
        true => Ok(new_null_array(first.data_type(), 0)),
        false => ScalarValue::iter_to_array(found),
    }
}
