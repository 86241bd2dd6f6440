//! Compares the bounds with actual results over random arguments.

use super::*;
use datafusion::arrow::array::{
    Date32Array, Int64Array, IntervalMonthDayNanoArray, ListBuilder, StringArray, StringBuilder,
    StringViewArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;

const SEED: u64 = 0x5eed_0029;

const ROWS: usize = 64;

/// Seeded pseudo-random numbers (xorshift64*, Vigna 2016).
struct RandomValues(u64);

impl RandomValues {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn number(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as u64) as i64
    }

    /// A short text, sometimes of multi-byte letters.
    fn text(&mut self, characters_max: u64) -> String {
        let letters = ['a', 'b', ',', ' ', 'é', '漢', '🦅', 'a'];
        let length = self.below(characters_max + 1);
        (0..length).map(|_| letters[self.below(letters.len() as u64) as usize]).collect()
    }

    fn is_null(&mut self) -> bool {
        self.below(12) == 0
    }

    fn texts(&mut self, characters_max: u64) -> ArrayRef {
        let texts: Vec<_> =
            (0..ROWS).map(|_| if self.is_null() { None } else { Some(self.text(characters_max)) }).collect();
        match self.below(2) {
            0 => Arc::new(StringArray::from(texts)),
            _ => Arc::new(StringViewArray::from(texts)),
        }
    }

    fn one_of(&mut self, texts: &[&str]) -> ArrayRef {
        let drawn: Vec<_> = (0..ROWS).map(|_| texts[self.below(texts.len() as u64) as usize]).collect();
        Arc::new(StringArray::from(drawn))
    }

    fn numbers(&mut self, from: i64, to: i64) -> ArrayRef {
        let drawn = (0..ROWS).map(|_| if self.is_null() { None } else { Some(self.number(from, to)) });
        Arc::new(drawn.collect::<Int64Array>())
    }

    fn lists(&mut self) -> ArrayRef {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for _ in 0..ROWS {
            for _ in 0..self.below(6) {
                if self.is_null() {
                    lists.values().append_null();
                } else {
                    let text = self.text(9);
                    lists.values().append_value(text);
                }
            }
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    fn lists_of_numbers(&mut self) -> ArrayRef {
        let lists: Vec<_> = (0..ROWS)
            .map(|_| Some((0..self.below(6)).map(|_| Some(self.number(0, 9))).collect::<Vec<_>>()))
            .collect();
        Arc::new(datafusion::arrow::array::ListArray::from_iter_primitive::<
            datafusion::arrow::datatypes::Int64Type,
            _,
            _,
        >(lists))
    }

    fn days(&mut self) -> ArrayRef {
        Arc::new((0..ROWS).map(|_| Some(self.number(18_000, 19_000) as i32)).collect::<Date32Array>())
    }

    fn timestamps(&mut self) -> ArrayRef {
        let day = 86_400_000_000_000;
        let drawn = (0..ROWS).map(|_| Some(self.number(19_000 * day, 19_040 * day)));
        Arc::new(drawn.collect::<TimestampNanosecondArray>())
    }

    fn intervals(&mut self, ns: i64) -> ArrayRef {
        let drawn = (0..ROWS).map(|_| {
            let sign = if self.below(2) == 0 { 1 } else { -1 };
            let (months, days) = (self.below(3) as i32, 1 + self.below(40) as i32);
            IntervalMonthDayNanoType::make_value(sign * months, sign * days, i64::from(sign) * ns)
        });
        Arc::new(IntervalMonthDayNanoArray::from_iter_values(drawn))
    }
}

/// Random arguments of a function, by its name.
fn random_arguments(name: &str, draw: &mut RandomValues) -> Vec<ArrayRef> {
    match name {
        "repeat" => vec![draw.texts(9), draw.numbers(-2, 20)],
        "lpad" | "rpad" => match draw.below(2) {
            0 => vec![draw.texts(9), draw.numbers(-2, 20)],
            _ => vec![draw.texts(9), draw.numbers(-2, 20), draw.texts(3)],
        },
        "concat" => vec![draw.texts(9), draw.texts(20), draw.texts(3)],
        "concat_ws" => vec![draw.texts(3), draw.texts(20), draw.texts(3)],
        "textcat" => {
            let texts = [draw.texts(9), draw.texts(20), draw.texts(3)];
            let texts = texts.iter().map(|texts| cast(texts, &DataType::Utf8).unwrap());
            texts.take(2 + draw.below(2) as usize).collect()
        }
        "replace" => vec![draw.texts(20), draw.texts(1), draw.texts(9)],
        "regexp_replace" => {
            let (by, flags) = ([r"<\1>", r"\0\1\1", "long enough", ""], ["g", "i", "gi"]);
            let mut all = vec![draw.texts(20), draw.one_of(&["(a)", "(b|,)", "(a*)"]), draw.one_of(&by)];
            if draw.below(2) == 0 {
                all.push(draw.one_of(&flags));
            }
            all
        }
        "translate" => vec![draw.texts(20), draw.texts(3), draw.texts(3)],
        "overlay" => vec![draw.texts(20), draw.texts(9), draw.numbers(1, 9), draw.numbers(0, 3)],
        "encode" => vec![draw.texts(20)],
        "string_to_array" => vec![draw.texts(20), draw.texts(1)],
        "array_to_string" => match draw.below(3) {
            0 => vec![draw.lists_of_numbers(), draw.texts(3)],
            1 => vec![draw.lists(), draw.texts(3)],
            _ => vec![draw.lists(), draw.texts(3), draw.texts(9)],
        },
        "range" | "generate_series" => match draw.below(5) {
            0 if name == "range" => vec![draw.numbers(-5, 40)],
            0 | 1 => vec![draw.numbers(-20, 20), draw.numbers(-20, 20)],
            2 if name == "range" => vec![draw.days(), draw.days(), draw.intervals(0)],
            2 => {
                let [first, last, step] = [draw.numbers(-99, 99), draw.numbers(-99, 99), draw.numbers(1, 9)];
                let kinds = [DataType::Float64, DataType::Decimal128(38, 3)];
                let kind = &kinds[draw.below(2) as usize];
                [first, last, step].iter().map(|numbers| cast(numbers, kind).unwrap()).collect()
            }
            3 => {
                let unit = if name == "range" { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
                let timestamps = [draw.timestamps(), draw.timestamps()]
                    .map(|times| cast(&times, &DataType::Timestamp(unit, None)));
                let mut all: Vec<ArrayRef> = timestamps.into_iter().map(|times| times.unwrap()).collect();
                all.push(draw.intervals(3_600_000_000_000));
                all
            }
            _ => {
                let steps: ArrayRef = match draw.below(2) {
                    0 => draw.numbers(1, 9),
                    _ => draw.numbers(-9, 0),
                };
                vec![draw.numbers(-90, 90), draw.numbers(-90, 90), steps]
            }
        },
        "array_repeat" => match draw.below(2) {
            0 => vec![draw.texts(9), draw.numbers(-2, 20)],
            _ => vec![draw.lists(), draw.numbers(-2, 20)],
        },
        "array_resize" => match draw.below(2) {
            0 => vec![draw.lists_of_numbers(), draw.numbers(0, 20)],
            _ => vec![draw.lists(), draw.numbers(0, 20), draw.texts(5)],
        },
        "make_array" => vec![draw.texts(9), draw.texts(20), draw.texts(3)],
        "array_append" => vec![draw.lists(), draw.texts(9)],
        "array_prepend" => vec![draw.texts(9), draw.lists()],
        "array_concat" => vec![draw.lists(), draw.lists(), draw.lists()],
        "array_union" => vec![draw.lists(), draw.lists()],
        "array_replace" | "array_replace_all" => vec![draw.lists(), draw.texts(1), draw.texts(20)],
        "array_replace_n" => vec![draw.lists(), draw.texts(1), draw.texts(20), draw.numbers(0, 4)],
        other => panic!("no arguments for {other}"),
    }
}

fn call(
    function: &ScalarUDF,
    arguments: Vec<ColumnarValue>,
    options: ConfigOptions,
) -> Result<ColumnarValue> {
    let fields = arguments.iter().map(|value| Arc::new(Field::new("", value.data_type(), true)));
    let fields = fields_with_udf(&fields.collect::<Vec<_>>(), function)?;
    let mut rows = 1;
    let mut args = Vec::new();
    for (value, field) in arguments.into_iter().zip(&fields) {
        if let ColumnarValue::Array(array) = &value {
            rows = array.len();
        }
        args.push(value.cast_to(field.data_type(), None)?);
    }
    let scalars = vec![None; fields.len()];
    let return_field = function
        .return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalars })?;
    function.invoke_with_args(ScalarFunctionArgs {
        args,
        arg_fields: fields,
        number_rows: rows,
        return_field,
        config_options: Arc::new(options),
    })
}

#[test]
fn results_are_within_their_bounds() {
    let mut draw = RandomValues(SEED);
    let mut functions: Vec<_> = functions().collect();
    functions.sort_by(|one, other| one.name().cmp(other.name()));
    for function in functions {
        let bounded = function.inner().downcast_ref::<Bounded>().unwrap();
        for _ in 0..20 {
            let seed = draw.0;
            let mut arguments: Vec<_> =
                random_arguments(function.name(), &mut draw).into_iter().map(ColumnarValue::Array).collect();
            if function.name() == "encode" {
                arguments.push(ColumnarValue::Scalar(ScalarValue::from("hex")));
            }
            let fields = arguments.iter().map(|value| Arc::new(Field::new("", value.data_type(), true)));
            let fields = fields_with_udf(&fields.collect::<Vec<_>>(), function.as_ref()).unwrap();
            let cast = arguments.iter().zip(&fields);
            let cast: Vec<_> =
                cast.map(|(value, field)| value.cast_to(field.data_type(), None).unwrap()).collect();
            let sized: Vec<_> = cast.iter().map(|value| Argument::new(value).unwrap()).collect();
            let result = call(&function, arguments, ConfigOptions::new()).unwrap();
            let result = result.into_array(ROWS).unwrap();
            let (bytes, items) = (sizes::bytes_of(&result), sizes::items_of(&result));
            for row in 0..ROWS {
                let bound = bounded.rule.bound(&sized, row);
                let bytes = match result.data_type() {
                    // The bound counts more overhead per element than the array has.
                    DataType::List(_) => sizes::bytes_of(&result.as_list::<i32>().value(row)).iter().sum(),
                    _ => bytes[row],
                };
                assert!(
                    bytes <= bound.bytes
                        && items[row] <= bound.items.max(u64::from(!result.data_type().is_nested())),
                    "{}() with seed {seed}: row {row} has {bytes} bytes and {} items, {bound:?}",
                    function.name(),
                    items[row],
                );
            }
        }
    }
}

fn text(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(text))
}

fn number(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::from(number))
}

fn numbers(numbers: impl IntoIterator<Item = i64>) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(numbers)))
}

fn with(account: &Account) -> ConfigOptions {
    let mut options = ConfigOptions::new();
    account.clone().install(&mut options);
    options
}

fn state_of(result: Result<ColumnarValue>) -> &'static str {
    match harrier_sqlstate::of(&result.unwrap_err()).as_str() {
        "53200" => "53200",
        "54000" => "54000",
        other => panic!("{other}"),
    }
}

#[test]
fn values_of_a_gibibyte_are_refused() {
    let account = Account::of_bytes(u64::MAX);
    let refused = |name: &str, arguments: Vec<ColumnarValue>| {
        assert_eq!(state_of(call(&FUNCTIONS[name], arguments, with(&account))), "54000", "{name}");
    };
    refused("repeat", vec![text("ab"), number(1 << 29)]);
    refused("repeat", vec![text("ab"), number(i64::MAX)]);
    refused("lpad", vec![text("ab"), number(1 << 28)]);
    refused("array_repeat", vec![number(1), number(2_000_000_000)]);
    refused("array_repeat", vec![number(1), number(i64::MAX)]);
    refused("range", vec![number(1 << 40)]);
    refused("range", vec![number(i64::MIN), number(i64::MAX), number(1)]);
    let back_and_forth = IntervalMonthDayNanoType::make_value(1, -28, 0);
    let interval = ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(back_and_forth)));
    let day =
        |day: i64| ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(Some(day * 86_400_000_000), None));
    refused("generate_series", vec![day(19_000), day(18_000), interval]);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn empty_results_are_not_refused() {
    let account = Account::of_bytes(1 << 20);
    let is_well = |name: &str, arguments: Vec<ColumnarValue>| {
        call(&FUNCTIONS[name], arguments, with(&account)).unwrap();
    };
    is_well("repeat", vec![text("ab"), number(-1)]);
    is_well("repeat", vec![text(""), number(i64::MAX)]);
    is_well("repeat", vec![ColumnarValue::Scalar(ScalarValue::Utf8(None)), number(i64::MAX)]);
    is_well("range", vec![number(1 << 40), number(0)]);
    is_well("range", vec![number(0), number(1 << 40), number(-1)]);
    is_well("range", vec![number(0), number(1 << 40), number(1 << 38)]);
}

#[test]
fn batches_are_limited_by_the_memory_account() {
    let account = Account::of_bytes(8 << 20);
    let lengths = |each: i64| vec![text("x"), numbers((0..100).map(|_| each))];
    let most = call(&FUNCTIONS["repeat"], lengths(70_000), with(&account)).unwrap();
    assert!(account.bytes() >= 7_000_000);
    assert_eq!(state_of(call(&FUNCTIONS["repeat"], lengths(20_000), with(&account))), "53200");
    drop(most);
    assert_eq!(account.bytes(), 0);
    assert_eq!(state_of(call(&FUNCTIONS["repeat"], lengths(90_000), with(&account))), "53200");
    assert_eq!(account.bytes(), 0);
}

#[test]
fn high_bounds_split_the_batch() {
    let account = Account::of_bytes(32 << 20);
    let texts: Vec<_> = (0..200).map(|row| format!("{}{row}", "y".repeat(100_000))).collect();
    let texts = ColumnarValue::Array(Arc::new(StringArray::from(texts)));
    let by = text("a text that is put in for each x");
    let arguments = || vec![texts.clone(), text("[x]"), by.clone(), text("g")];
    // 20 MB, all in use twice at the end.
    let error = call(&FUNCTIONS["regexp_replace"], arguments(), with(&account));
    assert_eq!(state_of(error), "53200");
    let account = Account::of_bytes(64 << 20);
    let result = call(&FUNCTIONS["regexp_replace"], arguments(), with(&account)).unwrap();
    let ColumnarValue::Array(result) = result else { panic!("one value for all rows") };
    assert_eq!(&cast(&result, &DataType::Utf8).unwrap(), &texts.to_array(200).unwrap());
    drop(result);
    assert_eq!(account.bytes(), 0);
}

#[test]
fn scalar_results_count_for_each_row() {
    let account = Account::of_bytes(64 << 20);
    let function = &FUNCTIONS["repeat"];
    let arguments = |rows| {
        let fields = vec![
            Arc::new(Field::new("", DataType::Utf8, true)),
            Arc::new(Field::new("", DataType::Int64, true)),
        ];
        ScalarFunctionArgs {
            args: vec![text("x"), number(1 << 19)],
            arg_fields: fields,
            number_rows: rows,
            return_field: Arc::new(Field::new("", DataType::Utf8, true)),
            config_options: Arc::new(with(&account)),
        }
    };
    assert!(function.invoke_with_args(arguments(1)).is_ok());
    assert!(function.invoke_with_args(arguments(20)).is_ok());
    assert_eq!(state_of(function.invoke_with_args(arguments(8192))), "53200");
    assert_eq!(account.bytes(), 0);
}

#[test]
fn large_constants_are_not_folded_at_planning() {
    let planned = |bytes| call(&FUNCTIONS["repeat"], vec![text("x"), number(bytes)], ConfigOptions::new());
    assert!(planned(1 << 16).is_ok());
    assert_eq!(state_of(planned((1 << 16) + 1)), "54000");
    let side = "x".repeat(1 << 15);
    let chained = |other: &str| call(&concatenation(), vec![text(&side), text(other)], ConfigOptions::new());
    assert!(chained(&side[1..]).is_ok());
    assert_eq!(state_of(chained(&format!("{side}x"))), "54000");
    // A scalar text, produced by an optimizer rule.
    let own = |bytes| call(&concatenation(), vec![text(&"x".repeat(bytes))], ConfigOptions::new());
    assert_eq!(state_of(own(100_000)), "54000");
}

#[test]
fn strings_are_concatenated() {
    let (texts, others) = (StringArray::from(vec![Some("a"), None, Some("é")]), text("-"));
    let texts = ColumnarValue::Array(Arc::new(texts));
    for (arguments, expected) in [
        (vec![texts.clone(), others.clone()], vec![Some("a-"), None, Some("é-")]),
        (vec![texts.clone(), others.clone(), texts.clone()], vec![Some("a-a"), None, Some("é-é")]),
    ] {
        let chained = call(&concatenation(), arguments, ConfigOptions::new()).unwrap().into_array(3).unwrap();
        assert_eq!(chained.as_string::<i32>(), &StringArray::from(expected));
    }
    let null = ColumnarValue::Scalar(ScalarValue::Utf8(None));
    let chained = call(&concatenation(), vec![texts, others, null], ConfigOptions::new()).unwrap();
    assert_eq!(chained.into_array(3).unwrap().null_count(), 3);
}

#[test]
fn bounded_versions_of_functions() {
    assert_eq!(bounded_version(&string::repeat()), Some(Arc::clone(&FUNCTIONS["repeat"])));
    assert_eq!(bounded_version(&FUNCTIONS["repeat"]), None);
    assert_eq!(bounded_version(&string::upper()), None);
}
