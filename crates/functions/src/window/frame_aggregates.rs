//! Window aggregates whose values grow with their frames: `array_agg(x) OVER (ORDER BY y)` has one row, then
//! two, then three.
//!
//! The window operator does not reserve memory for its results. So an aggregate evaluated for windows
//! reserves the bytes of its results in the memory account ([`harrier_resources::value_account`]), and
//! releases them when its partition is done. A value returned once for all rows of its partition counts for
//! each of them.
//!
//! They have names of their own for ranks: without a frame the aggregate is DataFusion's, whose operators
//! reserve its state.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::functions_aggregate::{array_agg, min_max, string_agg};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF};

use crate::delegation::{delegate_accumulator, delegate_aggregate};
use harrier_resources::cancellation::CancelFlag;
use harrier_resources::value_account::{Account, Reservation};

/// Minimum size of a reservation.
const STEP_BYTES: u64 = 1 << 20;

/// The aggregates of this kind, for windows.
#[derive(Debug, Clone)]
pub struct FramedAggregates(Vec<(Arc<AggregateUDF>, Arc<AggregateUDF>)>);

impl FramedAggregates {
    /// For statements in a process with this environment.
    pub fn of_process(process: &RuntimeEnv) -> Self {
        Self::new(&Account::new(process, None, CancelFlag::default()))
    }

    pub(crate) fn new(account: &Account) -> Self {
        let aggregates = [
            (array_agg::array_agg_udaf(), "array_agg_over"),
            (string_agg::string_agg_udaf(), "string_agg_over"),
            (min_max::min_udaf(), "min_over"),
            (min_max::max_udaf(), "max_over"),
        ];
        let framed = aggregates.map(|(inner, name)| {
            let framed = Framed { inner: Arc::clone(&inner), name, account: account.clone() };
            (inner, Arc::new(AggregateUDF::from(framed)))
        });
        Self(framed.to_vec())
    }

    /// The replacement of `aggregate` over a window, if its values of this type may be large.
    pub fn in_place_of(&self, aggregate: &AggregateUDF, kind: &DataType) -> Option<Arc<AggregateUDF>> {
        if kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Null) {
            return None;
        }
        let found = self.0.iter().find(|(inner, _)| inner.name() == aggregate.name());
        found.map(|(_, framed)| Arc::clone(framed))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Arc<AggregateUDF>> {
        self.0.iter().map(|(_, framed)| Arc::clone(framed))
    }
}

#[derive(Debug)]
struct Framed {
    inner: Arc<AggregateUDF>,
    name: &'static str,
    account: Account,
}

impl PartialEq for Framed {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Framed {}

impl Hash for Framed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Framed {
    fn with_account(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let (account, name) = (self.account.clone(), self.inner.name().to_string());
        Box::new(AccountedAccumulator { inner, account, name, rows: 0, bytes: 0, reservations: Vec::new() })
    }
}

impl AggregateUDFImpl for Framed {
    delegate_aggregate!(
        signature,
        coerce_types,
        return_type,
        return_field,
        is_nullable,
        state_fields,
        order_sensitivity,
        supports_null_handling_clause,
        default_value,
        set_monotonicity
    );

    fn name(&self) -> &str {
        self.name
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.with_account(self.inner.inner().accumulator(arguments)?))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.with_account(self.inner.inner().create_sliding_accumulator(arguments)?))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.inner().reverse_expr() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }
}

/// An accumulator that accounts for its results.
#[derive(Debug)]
struct AccountedAccumulator {
    inner: Box<dyn Accumulator>,
    account: Account,
    name: String,
    /// Rows added since the last evaluation.
    rows: u64,
    /// Bytes of results that are not yet reserved.
    bytes: u64,
    reservations: Vec<Reservation>,
}

impl Accumulator for AccountedAccumulator {
    delegate_accumulator!(inner: state, merge_batch, retract_batch, supports_retract_batch);

    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows += values.first().map_or(0, |values| values.len() as u64);
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        // After many rows, the result may be repeated for each.
        let rows = std::mem::take(&mut self.rows).max(1);
        self.bytes = self.bytes.saturating_add((value.size() as u64).saturating_mul(rows));
        if self.bytes >= STEP_BYTES {
            self.reservations.push(self.account.reserve(&self.name, self.bytes)?);
            self.bytes = 0;
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringArray;

    #[derive(Debug)]
    struct Longest(String);

    impl Accumulator for Longest {
        fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
            self.0 = "x".repeat(values[0].len() << 10);
            Ok(())
        }

        fn evaluate(&mut self) -> Result<ScalarValue> {
            Ok(ScalarValue::from(self.0.clone()))
        }

        fn size(&self) -> usize {
            self.0.len()
        }

        fn state(&mut self) -> Result<Vec<ScalarValue>> {
            Ok(Vec::new())
        }

        fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frame_results_are_accounted_until_the_partition_ends() {
        let account = Account::of_bytes(8 << 20);
        let framed = Framed { inner: array_agg::array_agg_udaf(), name: "test", account: account.clone() };
        let mut accumulator = framed.with_account(Box::new(Longest(String::new())));
        let rows: ArrayRef = Arc::new(StringArray::from(vec!["a"; 32]));
        // 32 KiB for each of 32 rows.
        accumulator.update_batch(&[Arc::clone(&rows)]).unwrap();
        accumulator.evaluate().unwrap();
        assert!(account.bytes() >= 1 << 20);
        // For one row each.
        let told = (0..1000).take_while(|_| accumulator.evaluate().is_ok()).count();
        assert!((200..300).contains(&told), "{told}");
        drop(accumulator);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn only_variable_size_aggregates_are_wrapped() {
        let framed = FramedAggregates::new(&Account::of_bytes(0));
        assert!(framed.in_place_of(&min_max::max_udaf(), &DataType::Int64).is_none());
        let list =
            framed.in_place_of(&array_agg::array_agg_udaf(), &DataType::new_list(DataType::Int64, true));
        assert_eq!(list.unwrap().name(), "array_agg_over");
        assert!(framed.in_place_of(&min_max::max_udaf(), &DataType::Utf8).is_some());
    }
}
