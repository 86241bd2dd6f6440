//! Sums of decimals whose type does not ensure that the sum has 38 digits: added up in 256 bits, and in 128
//! for as long as the values so far cannot exceed these. Only the final sum is checked, so that the result
//! depends neither on the order of rows nor on how many ranks share them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, i256,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use harrier_sqlstate::IntoDataFusionError;

use crate::math::checked::{DECIMAL_LIMIT, bits_of, decimal_out_of_range, has_38_digits};

/// The digits that a sum has beside those of its values: ten thousand million rows cannot exceed them.
const ROWS_DIGITS: u8 = 10;

/// The intermediate type of a sum of such values; `None`: the sum has room in 38 digits, or they are no
/// decimals of 128 bits.
pub(crate) fn wide(values: &DataType) -> Option<DataType> {
    match values {
        DataType::Decimal128(precision, scale) if precision + ROWS_DIGITS > DECIMAL128_MAX_PRECISION => {
            Some(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale))
        }
        _ => None,
    }
}

/// Decimals of 128 bits, or of 256 already, as decimals of 256 bits.
pub(crate) fn widen(values: &ArrayRef) -> ArrayRef {
    let DataType::Decimal128(_, scale) = values.data_type() else { return Arc::clone(values) };
    let wide: PrimitiveArray<Decimal256Type> = values.as_primitive::<Decimal128Type>().unary(i256::from_i128);
    Arc::new(wide.with_data_type(DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale)))
}

/// Sums as decimals of the type `kind`, which has 128 bits.
///
/// Errors: one has more than 38 digits (22003).
pub(crate) fn narrow(sums: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let narrow: PrimitiveArray<Decimal128Type> = match sums.data_type() {
        DataType::Decimal128(..) => {
            let sums = sums.as_primitive::<Decimal128Type>();
            if !has_38_digits(sums) {
                return Err(decimal_out_of_range().into_datafusion());
            }
            sums.clone()
        }
        _ => sums
            .as_primitive::<Decimal256Type>()
            .try_unary(|sum| {
                let sum = sum.to_i128().filter(|sum| sum.unsigned_abs() < DECIMAL_LIMIT);
                sum.ok_or_else(decimal_out_of_range)
            })
            .map_err(harrier_sqlstate::external)?,
    };
    Ok(Arc::new(narrow.with_data_type(kind.clone())))
}

/// Accumulators of many groups.
pub(crate) struct DecimalGroups {
    /// Sums in 128 bits, until `is_wide`.
    narrow: Box<dyn GroupsAccumulator>,
    /// Sums in 256 bits.
    wide: Box<dyn GroupsAccumulator>,
    is_wide: bool,
    /// No sum in 128 bits has a larger absolute value.
    most: u128,
    kind: DataType,
}

impl DecimalGroups {
    /// Of accumulators of 128 and of 256 bits. The final sums are of the type `kind`.
    pub(crate) fn new(
        narrow: Box<dyn GroupsAccumulator>,
        wide: Box<dyn GroupsAccumulator>,
        kind: &DataType,
    ) -> Self {
        Self { narrow, wide, is_wide: false, most: 0, kind: kind.clone() }
    }

    /// Notes that these values are added, wherever; returns whether the sums stay within 128 bits.
    fn admit(&mut self, values: &[i128]) -> bool {
        let largest = bits_of(values).saturating_add(1);
        self.most = self.most.saturating_add(largest.saturating_mul(values.len() as u128));
        self.most <= i128::MAX as u128
    }

    /// Moves the sums so far to those of 256 bits.
    fn change(&mut self) -> Result<()> {
        if self.is_wide {
            return Ok(());
        }
        self.is_wide = true;
        let sums = self.narrow.evaluate(EmitTo::All)?;
        if sums.is_empty() {
            return Ok(());
        }
        let groups: Vec<usize> = (0..sums.len()).collect();
        self.wide.update_batch(&[widen(&sums)], &groups, None, sums.len())
    }
}

impl GroupsAccumulator for DecimalGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        groups_total: usize,
    ) -> Result<()> {
        let [column] = values else { return internal_err!("sum of {} columns", values.len()) };
        if !self.is_wide {
            if self.admit(column.as_primitive::<Decimal128Type>().values()) {
                return self.narrow.update_batch(values, groups, filter, groups_total);
            }
            self.change()?;
        }
        self.wide.update_batch(&[widen(column)], groups, filter, groups_total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = if self.is_wide { &mut self.wide } else { &mut self.narrow };
        narrow(&sums.evaluate(emit)?, &self.kind)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = if self.is_wide { &mut self.wide } else { &mut self.narrow };
        Ok(sums.state(emit)?.iter().map(widen).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], groups_total: usize) -> Result<()> {
        self.change()?;
        self.wide.merge_batch(states, groups, groups_total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        Ok(self.narrow.convert_to_state(values, filter)?.iter().map(widen).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.narrow.size() + self.wide.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Decimal128Array;
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::function::AccumulatorArgs;
    use datafusion::physical_expr::expressions::Column;

    use super::*;
    use crate::aggregate::checked_sum;

    const KIND: DataType = DataType::Decimal128(38, 0);
    const MOST: i128 = 10_i128.pow(38) - 1;

    fn decimals(values: Vec<Option<i128>>) -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_data_type(KIND))
    }

    fn groups() -> Box<dyn GroupsAccumulator> {
        let field = Arc::new(Field::new("n", KIND, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let args = AccumulatorArgs {
            return_field: Arc::clone(&field),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "sum",
            is_distinct: false,
            exprs: &[Arc::new(Column::new("n", 0))],
            expr_fields: &[field],
        };
        checked_sum::sum().create_groups_accumulator(args).unwrap()
    }

    #[test]
    fn only_the_final_sum_has_to_fit() {
        let mut sums = groups();
        sums.update_batch(&[decimals(vec![Some(5), None, Some(7)])], &[0, 1, 2], None, 3).unwrap();
        for _ in 0..4 {
            sums.update_batch(&[decimals(vec![Some(MOST), Some(-MOST)])], &[0, 2], None, 3).unwrap();
        }
        let values = decimals(vec![Some(-MOST), Some(MOST), None, Some(-MOST), Some(MOST)]);
        sums.update_batch(&[values.slice(0, 4)], &[0, 2, 1, 0], None, 3).unwrap();
        sums.update_batch(&[values.slice(2, 3)], &[1, 0, 2], None, 3).unwrap();
        // Another accumulator sees the same rest as a state.
        let state = sums.state(EmitTo::All).unwrap();
        assert_eq!(state[0].data_type(), &DataType::Decimal256(76, 0));
        let mut merged = groups();
        let values = decimals(vec![Some(-MOST), None, Some(MOST)]);
        merged.update_batch(&[values], &[0, 1, 2], None, 3).unwrap();
        merged.merge_batch(&state, &[0, 1, 2], 3).unwrap();
        merged.update_batch(&[decimals(vec![Some(MOST)])], &[2], None, 3).unwrap();
        let found = merged.evaluate(EmitTo::All).unwrap();
        assert_eq!(&found, &decimals(vec![Some(5), None, Some(7)]));
    }

    #[test]
    fn a_sum_of_39_digits_is_an_error() {
        for last in [vec![Some(MOST), Some(1)], vec![Some(MOST); 4]] {
            let mut sums = groups();
            let all = vec![0; last.len()];
            sums.update_batch(&[decimals(last.clone())], &all, None, 1).unwrap();
            let error = sums.evaluate(EmitTo::All).unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), harrier_error::SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
            let state = {
                let mut sums = groups();
                sums.update_batch(&[decimals(last)], &all, None, 1).unwrap();
                sums.state(EmitTo::All).unwrap()
            };
            let mut sums = groups();
            sums.merge_batch(&state, &[0], 1).unwrap();
            assert!(sums.evaluate(EmitTo::All).is_err());
        }
        assert_eq!(wide(&DataType::Decimal128(28, 2)), None);
        assert_eq!(wide(&DataType::Decimal128(29, 2)), Some(DataType::Decimal256(76, 2)));
    }
}
