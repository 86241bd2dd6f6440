//! Functions of floats with PostgreSQL's errors for arguments that they are not defined for, of which
//! DataFusion's are NaN and infinities, and for results out of the range of a float.
//!
//! Ranks know them by their names, which are DataFusion's.
//!
//! Source: PostgreSQL's `float.c`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::math;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::delegation::delegate_scalar;

pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    use Domain::{AboveZero, AtLeastOne, Finite, Power, Reals, WithinOne};
    [
        (math::ln(), AboveZero),
        (math::log(), AboveZero),
        (math::log10(), AboveZero),
        (math::log2(), AboveZero),
        (math::acos(), WithinOne),
        (math::asin(), WithinOne),
        (math::atanh(), WithinOne),
        (math::acosh(), AtLeastOne),
        (math::sin(), Finite),
        (math::cos(), Finite),
        (math::tan(), Finite),
        (math::cot(), Finite),
        (math::asinh(), Reals),
        (math::exp(), Reals),
        (math::degrees(), Reals),
        (math::radians(), Reals),
        (math::power(), Power),
    ]
    .into_iter()
    .map(|(inner, domain)| Arc::new(ScalarUDF::new_from_impl(Partial { inner, domain })))
}

/// The arguments that a function is defined for; NaN is always one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Domain {
    /// Logarithms: (number) or (base, number), both more than zero.
    AboveZero,
    /// From -1 to 1.
    WithinOne,
    AtLeastOne,
    /// Angles: all but the infinities.
    Finite,
    /// All numbers.
    Reals,
    /// (base, exponent): no negative power of zero, and no power of a negative number but for whole
    /// exponents.
    Power,
}

/// (number), or two of them
#[derive(Debug, PartialEq, Eq, Hash)]
struct Partial {
    inner: Arc<ScalarUDF>,
    domain: Domain,
}

impl ScalarUDFImpl for Partial {
    delegate_scalar!(
        name,
        aliases,
        signature,
        coerce_types,
        return_type,
        output_ordering,
        evaluate_bounds,
        documentation,
        simplify
    );

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = arguments.args.iter().map(Numbers::of).collect::<Result<Vec<_>>>()?;
        let rows = arguments.number_rows;
        self.domain.check(&given, rows).map_err(harrier_sqlstate::external)?;
        let computed = self.inner.inner().invoke_with_args(arguments)?;
        self.check_range(&given, computed, rows)
    }
}

impl Partial {
    /// Errors: an infinity of finite arguments, or a zero that only stands for a small number (22003); a
    /// logarithm to the base 1 (22012).
    fn check_range(&self, given: &[Numbers], computed: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        if !computed.data_type().is_floating() {
            return Ok(computed);
        }
        let is_odd = |number: f64| number == 0.0 || !number.is_finite();
        let found = Numbers::of(&computed)?;
        let rows = found.rows(rows);
        let mut corrected = None;
        for row in (0..rows).filter(|row| found.get(*row).is_some_and(is_odd)) {
            let (Some(result), Some(first)) = (found.get(row), given.first().and_then(|side| side.get(row)))
            else {
                continue;
            };
            let second = given.get(1).and_then(|side| side.get(row));
            let is_finite = first.is_finite() && second.is_none_or(f64::is_finite);
            match (self.domain, self.name()) {
                (Domain::AboveZero, _) if first == 1.0 && second.is_some() => {
                    return Err(
                        SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero").into_datafusion()
                    );
                }
                // These compute with the square of a number.
                (_, "asinh" | "acosh") if result.is_infinite() && is_finite => {
                    let value = first.signum() * (first.abs().ln() + std::f64::consts::LN_2);
                    corrected.get_or_insert_with(|| found.all(rows))[row] = Some(value);
                }
                (Domain::Reals | Domain::Power, _) if result.is_infinite() && is_finite => {
                    return Err(out_of_range("value out of range: overflow").into_datafusion());
                }
                // Zero is the root of zero, and a power of it; nothing else is near to it.
                (Domain::Reals, "exp") if result == 0.0 && is_finite => {
                    return Err(out_of_range("value out of range: underflow").into_datafusion());
                }
                (Domain::Reals | Domain::Power, _) if result == 0.0 && first != 0.0 && is_finite => {
                    return Err(out_of_range("value out of range: underflow").into_datafusion());
                }
                _ => {}
            }
        }
        let Some(corrected) = corrected else { return Ok(computed) };
        let corrected = cast(&Float64Array::from(corrected), &computed.data_type())?;
        Ok(match computed {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&corrected, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(corrected),
        })
    }
}

/// An argument or a result as doubles.
enum Numbers {
    One(Option<f64>),
    Many(Float64Array),
}

impl Numbers {
    fn of(value: &ColumnarValue) -> Result<Self> {
        let doubles = |numbers: &ArrayRef| -> Result<Float64Array> {
            Ok(cast(numbers, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
        };
        Ok(match value {
            ColumnarValue::Scalar(number) => {
                let one = doubles(&number.to_array()?)?;
                Self::One(one.is_valid(0).then(|| one.value(0)))
            }
            ColumnarValue::Array(numbers) => Self::Many(doubles(numbers)?),
        })
    }

    fn rows(&self, rows: usize) -> usize {
        match self {
            Self::One(_) => rows.min(1),
            Self::Many(numbers) => numbers.len(),
        }
    }

    fn get(&self, row: usize) -> Option<f64> {
        match self {
            Self::One(number) => *number,
            Self::Many(numbers) => numbers.is_valid(row).then(|| numbers.value(row)),
        }
    }

    fn all(&self, rows: usize) -> Vec<Option<f64>> {
        (0..rows).map(|row| self.get(row)).collect()
    }

    fn any(&self, is_wrong: impl Fn(f64) -> bool) -> Option<f64> {
        match self {
            Self::One(number) => number.filter(|number| is_wrong(*number)),
            Self::Many(numbers) => numbers.iter().flatten().find(|number| is_wrong(*number)),
        }
    }
}

impl Domain {
    /// Errors: the function is not defined for these (2201E, 2201F, 22003).
    fn check(self, given: &[Numbers], rows: usize) -> Result<(), SqlError> {
        let refuse = |is_wrong: fn(f64) -> bool| match given.iter().find_map(|side| side.any(is_wrong)) {
            Some(_) => Err(out_of_range("input is out of range")),
            None => Ok(()),
        };
        match self {
            Self::Reals => Ok(()),
            Self::WithinOne => refuse(|number| !(-1.0..=1.0).contains(&number) && !number.is_nan()),
            Self::AtLeastOne => refuse(|number| number < 1.0),
            Self::Finite => refuse(f64::is_infinite),
            Self::AboveZero => {
                let message = match given.iter().find_map(|side| side.any(|number| number <= 0.0)) {
                    None => return Ok(()),
                    Some(0.0) => "cannot take logarithm of zero",
                    Some(_) => "cannot take logarithm of a negative number",
                };
                Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message))
            }
            Self::Power => {
                let [base, exponent] = given else { return Ok(()) };
                if base.any(|base| base <= 0.0).is_none() {
                    return Ok(());
                }
                let rows = base.rows(rows).max(exponent.rows(rows));
                (0..rows)
                    .try_for_each(|row| match (base.get(row), exponent.get(row)) {
                        (Some(0.0), Some(exponent)) if exponent < 0.0 => {
                            Err("zero raised to a negative power is undefined")
                        }
                        (Some(base), Some(exponent)) if base < 0.0 && exponent.floor() != exponent => {
                            // NaN is no such exponent.
                            if exponent.is_nan() {
                                return Ok(());
                            }
                            Err("a negative number raised to a non-integer power yields a complex result")
                        }
                        _ => Ok(()),
                    })
                    .map_err(|message| SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message))
            }
        }
    }
}

fn out_of_range(message: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    use super::*;

    /// The result, or the SQLSTATE.
    fn call(name: &str, arguments: &[ScalarValue], is_column: bool) -> Result<f64, String> {
        let function = functions().find(|function| function.name() == name).unwrap();
        let args = arguments.iter().map(|value| match is_column {
            true => ColumnarValue::Array(value.to_array_of_size(2).unwrap()),
            false => ColumnarValue::Scalar(value.clone()),
        });
        let kind = arguments[0].data_type();
        let field = Arc::new(Field::new("a", kind, true));
        let arguments = ScalarFunctionArgs {
            args: args.collect(),
            arg_fields: vec![Arc::clone(&field); arguments.len()],
            number_rows: if is_column { 2 } else { 1 },
            return_field: field,
            config_options: Arc::new(ConfigOptions::new()),
        };
        let found = function.invoke_with_args(arguments);
        let found = found.map_err(|error| harrier_sqlstate::of(&error).to_string())?;
        Ok(Numbers::of(&found).unwrap().get(0).unwrap_or(f64::NAN))
    }

    #[test]
    fn what_is_not_defined_fails() {
        let infinity = f64::INFINITY;
        for (name, given, expected) in [
            ("ln", vec![0.0], Err("2201E")),
            ("log10", vec![-1.0], Err("2201E")),
            ("log", vec![1.0, 8.0], Err("22012")),
            ("log", vec![2.0, 8.0], Ok(3.0)),
            ("acos", vec![1.5], Err("22003")),
            ("asin", vec![infinity], Err("22003")),
            ("asin", vec![0.0], Ok(0.0)),
            ("atanh", vec![1.0], Ok(infinity)),
            ("atanh", vec![-1.1], Err("22003")),
            ("acosh", vec![0.5], Err("22003")),
            ("acosh", vec![1e308], Ok(709.889_355_822_726)),
            ("asinh", vec![-1e308], Ok(-709.889_355_822_726)),
            ("asinh", vec![infinity], Ok(infinity)),
            ("sin", vec![infinity], Err("22003")),
            ("exp", vec![1000.0], Err("22003")),
            ("exp", vec![-1000.0], Err("22003")),
            ("exp", vec![-infinity], Ok(0.0)),
            ("degrees", vec![1e308], Err("22003")),
            ("radians", vec![5e-324], Err("22003")),
            ("radians", vec![0.0], Ok(0.0)),
            ("power", vec![0.0, -1.0], Err("2201F")),
            ("power", vec![0.0, 2.0], Ok(0.0)),
            ("power", vec![-8.0, 0.5], Err("2201F")),
            ("power", vec![-2.0, 3.0], Ok(-8.0)),
            ("power", vec![-infinity, 0.5], Err("2201F")),
            ("power", vec![10.0, 400.0], Err("22003")),
            ("power", vec![10.0, -400.0], Err("22003")),
            ("power", vec![10.0, infinity], Ok(infinity)),
            ("power", vec![10.0, -infinity], Ok(0.0)),
        ] {
            let given: Vec<ScalarValue> = given.into_iter().map(ScalarValue::from).collect();
            for is_column in [false, true] {
                match (call(name, &given, is_column), expected) {
                    (Ok(found), Ok(expected)) => {
                        let is_near = found == expected || (found - expected).abs() < 1e-9;
                        assert!(is_near, "{name} {given:?}: {found}");
                    }
                    (found, expected) => {
                        assert_eq!(found.err().as_deref(), expected.err(), "{name} {given:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn nan_and_null_have_no_errors() {
        for function in functions().filter(|function| function.name() != "log") {
            for value in [ScalarValue::from(f64::NAN), ScalarValue::Float64(None)] {
                let mut given = vec![value];
                if function.name() == "power" {
                    given.push(ScalarValue::from(0.5));
                }
                assert!(call(function.name(), &given, true).unwrap().is_nan(), "{}", function.name());
            }
        }
    }
}
