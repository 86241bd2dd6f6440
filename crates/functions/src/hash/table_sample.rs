//! A hash between 0 and 1 for each row, the same for the same row and seed on every rank: it decides
//! `TABLESAMPLE … REPEATABLE`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// (seed: double precision, values of a row …) → double precision. Ranks know it by its name.
pub fn function() -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(RowSample { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowSample {
    signature: Signature,
}

impl ScalarUDFImpl for RowSample {
    fn name(&self) -> &str {
        "harrier_row_sample"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Float64, ..] => Ok(DataType::Float64),
            _ => plan_err!("{} does not take {arguments:?}", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seed = match arguments.args.first() {
            Some(ColumnarValue::Scalar(ScalarValue::Float64(Some(seed)))) => *seed,
            _ => 0.0,
        };
        let values = arguments.args.iter().skip(1).map(|value| value.to_array(arguments.number_rows));
        let values = values.collect::<Result<Vec<_>>>()?;
        let numbers = numbers(seed, &values, arguments.number_rows)?;
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}

fn numbers(seed: f64, values: &[ArrayRef], rows: usize) -> Result<Float64Array> {
    /// The mantissa bits of a double.
    const BITS: u32 = 53;
    let mut hashes = vec![0; rows];
    create_hashes(values, &RandomState::with_seed(seed.to_bits()), &mut hashes)?;
    let number = |hash: &u64| (hash >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64;
    Ok(hashes.iter().map(|hash| Some(number(hash))).collect())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn rows_have_numbers_of_their_own() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
        let of = |seed| numbers(seed, std::slice::from_ref(&values), values.len()).unwrap();
        assert_eq!(of(1.0), of(1.0));
        assert_ne!(of(1.0), of(2.0));
        let below = of(1.0).iter().flatten().filter(|number| *number < 0.25).count();
        assert!((2_000..3_000).contains(&below), "{below}");
        assert!(of(1.0).iter().flatten().all(|number| (0.0..1.0).contains(&number)));
    }
}
