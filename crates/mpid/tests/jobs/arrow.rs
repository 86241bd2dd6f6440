//! Sorting Arrow columns in a job: rows come out in the order of Arrow's own sort.

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::{SortColumn, SortOptions, concat, lexsort_to_indices, take};
use arrow::datatypes::DataType;
use arrow::row::{OwnedRow, SortField};
use harrier_mpid::arrow::Columns;
use harrier_mpid::{Config, Job, World};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const O_TASKS: usize = 5;

/// A batch of strings, integers and floats with nulls, determined by the seed.
fn batch(seed: u64) -> Vec<ArrayRef> {
    let mut random = StdRng::seed_from_u64(seed);
    let rows = random.random_range(0..700);
    let mut some = |share: f64| random.random_bool(share);
    let keep: Vec<[bool; 3]> = (0..rows).map(|_| [some(0.9), some(0.8), some(0.95)]).collect();
    let text = keep.iter().map(|[keep, ..]| keep.then(|| "ab\0".repeat(random.random_range(0..4))));
    let text: ArrayRef = Arc::new(StringArray::from_iter(text.collect::<Vec<_>>()));
    let numbers = keep.iter().map(|[_, keep, _]| keep.then(|| random.random_range(-3..4i64)));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(numbers.collect::<Vec<_>>()));
    let fractions = keep.iter().map(|[.., keep]| keep.then(|| random.random_range(-1.0..1.0f64)));
    let fractions: ArrayRef = Arc::new(Float64Array::from_iter(fractions.collect::<Vec<_>>()));
    vec![text, numbers, fractions]
}

#[test]
fn rows_come_out_sorted_as_arrow_sorts_them() {
    let seed = harrier_launch::seed();
    println!("seed {seed}");
    let last = SortOptions { descending: true, nulls_first: false };
    let orders = [SortOptions::default(), last, SortOptions::default()];
    let types = [DataType::Utf8, DataType::Int64, DataType::Float64];
    let fields = types.into_iter().zip(orders).map(|(of, order)| SortField::new_with_options(of, order));
    let columns = Columns::new(fields.collect()).unwrap();
    for a_tasks in [1, 3] {
        let seed = seed ^ a_tasks as u64;
        let outcome = Job::<OwnedRow, OwnedRow>::new("rows")
            .o_tasks(O_TASKS)
            .a_tasks(a_tasks)
            .sorted()
            .run(
                &World::alone(),
                &Config { block_bytes: 1024, ..Config::default() },
                |task| {
                    for row in &columns.rows(&batch(seed.wrapping_add(task.index() as u64)))? {
                        task.emit_as(&row, &row)?;
                    }
                    Ok(())
                },
                |task| {
                    let (mut keys, mut values) = (columns.empty(), columns.empty());
                    while let Some((key, value)) = task.next_pair()? {
                        keys.push(columns.row(key));
                        values.push(columns.row(value));
                    }
                    let keys = columns.columns(&keys)?;
                    assert_eq!(keys, columns.columns(&values)?);
                    Ok(keys)
                },
            )
            .unwrap();
        let sorted = |columns: &[ArrayRef]| -> Vec<ArrayRef> {
            let sort_columns = columns.iter().zip(orders);
            let sort_columns = sort_columns
                .map(|(column, options)| SortColumn { values: column.clone(), options: Some(options) });
            let order = lexsort_to_indices(&sort_columns.collect::<Vec<_>>(), None).unwrap();
            columns.iter().map(|column| take(column, &order, None).unwrap()).collect()
        };
        let together = |parts: &[Vec<ArrayRef>]| -> Vec<ArrayRef> {
            let column = |at: usize| parts.iter().map(|part| part[at].as_ref()).collect::<Vec<_>>();
            (0..3).map(|at| concat(&column(at)).unwrap()).collect()
        };
        let output_parts: Vec<Vec<ArrayRef>> = outcome.outputs.into_iter().map(|(_, keys)| keys).collect();
        for part in &output_parts {
            assert_eq!(&sorted(part), part, "seed {seed}");
        }
        let input_parts: Vec<_> =
            (0..O_TASKS).map(|o_task| batch(seed.wrapping_add(o_task as u64))).collect();
        let to_batch = |columns: Vec<ArrayRef>| {
            RecordBatch::try_from_iter(["text", "number", "fraction"].into_iter().zip(columns)).unwrap()
        };
        assert_eq!(
            to_batch(sorted(&together(&output_parts))),
            to_batch(sorted(&together(&input_parts))),
            "seed {seed}"
        );
    }
}
