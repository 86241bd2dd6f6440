//! `harrier_bucket_place(buckets, ranks, value)`: the hash key that routes a row to its bucket in a
//! redistribution.
//!
//! A redistribution sends a row to the output partition given by an expression's hash modulo their number;
//! DataFusion chooses the hash function. So the expression is a number chosen for its hash: for each bucket,
//! one that routes rows to where the bucket's files are read. With `n` buckets that is output partition `b`
//! of the `n` of a rank, on the rank at place `b` modulo the number of ranks, which is known when the plan is
//! distributed ([`for_ranks`]). Whatever number of ranks takes part at run time, [`BucketPlaces::rank`]
//! returns the rank of a bucket.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int32Type, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::repartition::{REPARTITION_RANDOM_STATE, RepartitionExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use harrier_functions::hash::bucket::buckets_of;

const NAME: &str = "harrier_bucket_place";

/// Numbers hashed at a time.
const HASHED_AT_ONCE: usize = 8192;

/// The hash keys of a table's buckets, for an expected number of ranks.
#[derive(Debug)]
pub struct BucketPlaces {
    /// By bucket: a number, and its hash.
    chosen: Vec<(i64, u64)>,
}

impl BucketPlaces {
    /// Returns the cached keys, or computes them.
    ///
    /// Errors: DataFusion cannot hash a number.
    pub fn of(buckets: u32, ranks: u32) -> Result<Arc<BucketPlaces>> {
        static KNOWN: LazyLock<Mutex<HashMap<(u32, u32), Arc<BucketPlaces>>>> = LazyLock::new(Mutex::default);
        let (buckets, ranks) = (buckets.max(1), ranks.max(1));
        if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&(buckets, ranks)) {
            return Ok(Arc::clone(known));
        }
        let places = Arc::new(BucketPlaces::choose(u64::from(buckets), u64::from(ranks))?);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry((buckets, ranks)).or_insert(places)))
    }

    /// Searches by trial. Of `buckets * ranks` remainders one fits a bucket, so the number of trials is about
    /// that product times the logarithm of `buckets`.
    fn choose(buckets: u64, ranks: u64) -> Result<BucketPlaces> {
        let mut chosen: Vec<Option<(i64, u64)>> = vec![None; buckets as usize];
        let mut missing = chosen.len();
        let mut hashes = vec![0; HASHED_AT_ONCE];
        let mut first = 0i64;
        while missing > 0 {
            let numbers: ArrayRef =
                Arc::new(Int64Array::from_iter_values(first..first + HASHED_AT_ONCE as i64));
            hashes.fill(0);
            create_hashes([&numbers], REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
            for (number, hash) in (first..).zip(&hashes) {
                let bucket = hash % buckets;
                let place = &mut chosen[bucket as usize];
                if place.is_none() && hash / buckets % ranks == bucket % ranks {
                    *place = Some((number, *hash));
                    missing -= 1;
                }
            }
            first += HASHED_AT_ONCE as i64;
        }
        Ok(BucketPlaces { chosen: chosen.into_iter().flatten().collect() })
    }

    /// The number whose hash routes a row to `bucket`.
    fn number(&self, bucket: usize) -> i64 {
        self.chosen[bucket].0
    }

    /// The place of the rank of `bucket` among `ranks`: the bucket's number modulo `ranks` if these are as
    /// many as expected.
    pub fn rank(&self, bucket: usize, ranks: usize) -> usize {
        let buckets = self.chosen.len() as u64;
        (self.chosen[bucket].1 / buckets % ranks.max(1) as u64) as usize
    }
}

/// The function as plans name it.
pub fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(BucketPlace::default()))
}

/// (number of buckets, ranks expected, both literals, and a value) → a number, Int64, never NULL: NULL is in
/// bucket 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketPlace {
    signature: Signature,
}

impl Default for BucketPlace {
    fn default() -> Self {
        Self { signature: Signature::any(3, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for BucketPlace {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Errors: the key's type cannot be bucketed.
    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [_, _, key] = arguments else { return plan_err!("a place by {} arguments", arguments.len()) };
        if buckets_of(&ScalarValue::try_from(key)?.to_array()?, 1).is_err() {
            return plan_err!("no buckets of values of type {key}");
        }
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(count), ColumnarValue::Scalar(ranks), values] = &arguments.args[..] else {
            return exec_err!("the numbers of buckets and ranks must be constants");
        };
        let (ScalarValue::UInt32(Some(count @ 1..)), ScalarValue::UInt32(Some(ranks @ 1..))) = (count, ranks)
        else {
            return exec_err!("there must be a bucket and a rank, not {count} and {ranks}");
        };
        let places = BucketPlaces::of(*count, *ranks)?;
        let buckets = buckets_of(&values.to_array(arguments.number_rows)?, *count)?;
        let buckets = buckets.as_primitive::<Int32Type>();
        let number =
            |at: usize| places.number(if buckets.is_null(at) { 0 } else { buckets.value(at) as usize });
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values((0..buckets.len()).map(number)))))
    }
}

/// Redistributes `input` into `count` buckets of `key`, one per output partition.
///
/// Errors: the key's type cannot be bucketed.
pub fn into_buckets(
    input: Arc<dyn ExecutionPlan>,
    key: &Arc<dyn PhysicalExpr>,
    count: u32,
) -> Result<Arc<dyn ExecutionPlan>> {
    let place = place(key, count, 1, &input.schema())?;
    by_place(input, place, count as usize)
}

fn by_place(
    input: Arc<dyn ExecutionPlan>,
    place: Arc<dyn PhysicalExpr>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(RepartitionExec::try_new(input, Partitioning::Hash(vec![place], partitions))?))
}

fn place(
    key: &Arc<dyn PhysicalExpr>,
    count: u32,
    ranks: u32,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let number =
        |number: u32| Arc::new(Literal::new(ScalarValue::UInt32(Some(number)))) as Arc<dyn PhysicalExpr>;
    let arguments = vec![number(count), number(ranks), Arc::clone(key)];
    let options = Arc::new(ConfigOptions::default());
    Ok(Arc::new(ScalarFunctionExpr::try_new(function(), arguments, schema, options)?))
}

/// The key and the number of buckets, if this expression redistributes rows into buckets.
pub fn bucket_key(expression: &Arc<dyn PhysicalExpr>) -> Option<(&Arc<dyn PhysicalExpr>, u32)> {
    let call = expression.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == NAME)?;
    let [count, _, key] = call.args() else {
        return None;
    };
    match count.downcast_ref::<Literal>()?.value() {
        ScalarValue::UInt32(Some(count)) => Some((key, *count)),
        _ => None,
    }
}

/// Adapts the plan's redistributions into buckets to the number of ranks.
pub fn for_ranks(plan: Arc<dyn ExecutionPlan>, ranks: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let routed = plan.transform_up(|plan| {
        let Some(repartition) = plan.downcast_ref::<RepartitionExec>() else {
            return Ok(Transformed::no(plan));
        };
        let Partitioning::Hash(keys, partitions) = repartition.partitioning() else {
            return Ok(Transformed::no(plan));
        };
        let [Some((key, count))] = keys.iter().map(bucket_key).collect::<Vec<_>>()[..] else {
            return Ok(Transformed::no(plan));
        };
        let input = Arc::clone(repartition.input());
        let place = place(key, count, ranks as u32, &input.schema())?;
        Ok(Transformed::yes(by_place(input, place, *partitions)?))
    })?;
    Ok(routed.data)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::array::RecordBatch;
    use datafusion::arrow::datatypes::Field;
    use datafusion::catalog::memory::MemorySourceConfig;
    use datafusion::execution::TaskContext;
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::common::collect;

    use super::*;

    fn numbers(batch: &RecordBatch) -> Vec<Option<i64>> {
        batch.column(0).as_primitive::<datafusion::arrow::datatypes::Int64Type>().iter().collect()
    }

    /// As in a motion, a redistribution into the output partitions of all ranks routes every row to its
    /// bucket, and an output partition has the rows of that bucket only.
    #[tokio::test]
    async fn rows_are_routed_by_bucket() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let values: ArrayRef =
            Arc::new(Int64Array::from_iter((0..5000).map(|k| (k % 100 != 7).then_some(k))));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(&values)]).unwrap();
        let key = col("k", &schema).unwrap();
        for (count, expected) in [(1, 1), (4, 3), (5, 2), (16, 4), (3, 8), (16, 16)] {
            let places = BucketPlaces::of(count, expected).unwrap();
            let buckets = buckets_of(&values, count).unwrap();
            let buckets = buckets.as_primitive::<Int32Type>();
            for ranks in [1, expected, 7] {
                let input =
                    MemorySourceConfig::try_new_exec(&[vec![batch.clone()]], Arc::clone(&schema), None);
                let place = place(&key, count, expected, &schema).unwrap();
                let all = Partitioning::Hash(vec![place], (count * ranks) as usize);
                let plan = RepartitionExec::try_new(input.unwrap(), all).unwrap();
                let mut found = 0;
                for partition in 0..(count * ranks) as usize {
                    let stream = plan.execute(partition, Arc::new(TaskContext::default())).unwrap();
                    let (rank, bucket) = (partition / count as usize, partition % count as usize);
                    for number in collect(stream).await.unwrap().iter().flat_map(numbers) {
                        let own = number.map_or(0, |number| {
                            let at =
                                values.as_primitive::<datafusion::arrow::datatypes::Int64Type>().values();
                            let at = at.iter().position(|value| *value == number).unwrap();
                            buckets.value(at) as usize
                        });
                        assert_eq!(own, bucket, "{number:?} of {count} buckets on {ranks} ranks");
                        assert_eq!(places.rank(bucket, ranks as usize), rank);
                        found += 1;
                    }
                }
                assert_eq!(found, 5000);
            }
        }
    }

    #[test]
    fn buckets_are_balanced_over_ranks() {
        for (buckets, ranks) in [(16, 2), (16, 5), (64, 48), (3, 8)] {
            let places = BucketPlaces::of(buckets, ranks).unwrap();
            for bucket in 0..buckets as usize {
                assert_eq!(places.rank(bucket, ranks as usize), bucket % ranks as usize);
                assert_eq!(places.rank(bucket, 1), 0);
            }
            let numbers: BTreeSet<i64> = (0..buckets as usize).map(|bucket| places.number(bucket)).collect();
            assert_eq!(numbers.len(), buckets as usize);
        }
    }
}
