//! Whether a row has none of the keys of the rows before it that are first themselves: which rows
//! `INSERT … ON CONFLICT DO NOTHING` inserts into a table with several keys. Ranks know it by its name.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;

const NAME: &str = "harrier_first_of_keys";

/// The function of a row's keys: true if no row before it, for which it is true, has one of them. A NULL key
/// equals none.
///
/// Memory bound: it holds the keys of the rows for which it is true; the pool does not count them.
pub fn function() -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(FirstOfKeys { signature: Signature::variadic_any(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstOfKeys {
    signature: Signature,
}

impl WindowUDFImpl for FirstOfKeys {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(FirstOfKeysEvaluator))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Boolean, true)))
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

#[derive(Debug)]
struct FirstOfKeysEvaluator;

impl PartitionEvaluator for FirstOfKeysEvaluator {
    fn evaluate_all(&mut self, keys: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let mut encoded = Vec::with_capacity(keys.len());
        for key in keys {
            let converter = RowConverter::new(vec![SortField::new(key.data_type().clone())])?;
            encoded.push(converter.convert_columns(&[Arc::clone(key)])?);
        }
        let mut kept = vec![HashSet::new(); keys.len()];
        let mut first = Vec::with_capacity(rows);
        for row in 0..rows {
            let own = || {
                keys.iter()
                    .zip(&encoded)
                    .enumerate()
                    .filter(|(_, (key, _))| key.is_valid(row))
                    .map(|(number, (_, encoded))| (number, encoded.row(row).owned()))
            };
            let is_first = own().all(|(number, key)| !kept[number].contains(&key));
            if is_first {
                for (number, key) in own() {
                    kept[number].insert(key);
                }
            }
            first.push(is_first);
        }
        Ok(Arc::new(BooleanArray::from(first)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int32Array, StringArray};

    use super::*;

    #[test]
    fn first_rows_of_keys_are_kept() {
        let numbers = Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(2), None, None, Some(1)]));
        let texts = Arc::new(StringArray::from(vec![Some("a"), Some("a"), Some("b"), None, Some("c"), None]));
        let kept = FirstOfKeysEvaluator.evaluate_all(&[numbers, texts], 6).unwrap();
        let expected = [true, false, true, true, true, false];
        assert_eq!(kept.as_boolean().iter().flatten().collect::<Vec<_>>(), expected);
    }
}
