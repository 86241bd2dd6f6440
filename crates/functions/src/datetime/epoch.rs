//! `to_timestamp` of a number of seconds since 1970, in microseconds as PostgreSQL rounds them, and of any
//! year. DataFusion's counts nanoseconds, which a double has not, and which range from 1677 to 2262. For
//! texts, and with formats, it is DataFusion's.
//!
//! Ranks know it by its name, which is DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

use crate::datetime::infinity::infinity_of;
use crate::delegation::delegate_scalar;

/// Seconds from 1970 to 2000, from which PostgreSQL counts.
const POSTGRES_EPOCH: f64 = 946_684_800.0;

pub(crate) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    let inner = datetime::to_timestamp(&ConfigOptions::new());
    Arc::new(ScalarUDF::new_from_impl(ToTimestamp { inner, zone: Some("UTC".into()), signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    inner: Arc<ScalarUDF>,
    /// The session's zone, used in result types.
    zone: Option<Arc<str>>,
    signature: Signature,
}

impl ScalarUDFImpl for ToTimestamp {
    delegate_scalar!(name, documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.inner.inner().with_updated_config(config)?;
        let zone = config.execution.time_zone.as_deref().map(Into::into);
        let signature = self.signature.clone();
        Some(ScalarUDF::new_from_impl(Self { inner: Arc::new(inner), zone, signature }))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [number] if number.is_numeric() => Ok(vec![DataType::Float64]),
            _ => {
                let fields = arguments.iter().map(|kind| Arc::new(Field::new("", kind.clone(), true)));
                let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
                Ok(fields.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [number] if number.is_numeric() => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, self.zone.clone()))
            }
            _ => self.inner.inner().return_type(arguments),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let kind = arguments.return_field.data_type().clone();
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(seconds)] if seconds.data_type().is_numeric() => {
                let moments = moments(&seconds.to_array()?, &kind)?;
                ScalarValue::try_from_array(&moments, 0).map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(seconds)] if seconds.data_type().is_numeric() => {
                moments(seconds, &kind).map(ColumnarValue::Array)
            }
            _ => self.inner.inner().invoke_with_args(arguments),
        }
    }
}

/// Errors: there is no such point in time (22008).
fn moments(seconds: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let microseconds = match kind {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => other.clone(),
    };
    let infinity = infinity_of(&microseconds).unwrap_or(i64::MAX);
    let seconds = cast(seconds, &DataType::Float64)?;
    let moments = seconds.as_primitive::<Float64Type>().iter().map(|seconds| {
        let Some(seconds) = seconds else { return Ok(None) };
        if seconds.is_infinite() {
            return Ok(Some(if seconds > 0.0 { infinity } else { -infinity }));
        }
        let count = ((seconds - POSTGRES_EPOCH) * 1e6).round_ties_even();
        // NaN is not within.
        match count.abs() < 9.2e18 {
            true => Ok((count as i64).checked_add(POSTGRES_EPOCH as i64 * 1_000_000)),
            false => {
                let message =
                    if seconds.is_nan() { "timestamp cannot be NaN" } else { "timestamp out of range" };
                Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message).into_datafusion())
            }
        }
    });
    Ok(cast(&cast(&moments.collect::<Result<Int64Array>>()?, &microseconds)?, kind)?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn seconds_are_rounded_to_microseconds() {
        let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let of = |seconds: Vec<Option<f64>>| -> Result<Vec<Option<i64>>> {
            let seconds: ArrayRef = Arc::new(Float64Array::from(seconds));
            let counts = cast(&moments(&seconds, &kind)?, &DataType::Int64)?;
            Ok(counts.as_primitive::<Int64Type>().iter().collect())
        };
        let found = of(vec![Some(1_777_636_800.25), Some(-0.5), None, Some(f64::NEG_INFINITY), Some(1e10)]);
        let expected = [
            Some(1_777_636_800_250_000),
            Some(-500_000),
            None,
            Some(-i64::MAX),
            Some(10_000_000_000_000_000),
        ];
        assert_eq!(found.unwrap(), expected);
        assert!(of(vec![Some(f64::NAN)]).is_err());
        assert!(of(vec![Some(1e18)]).is_err());
    }
}
