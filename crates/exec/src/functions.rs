//! The functions that plans name by their names alone, so that every session which decodes a plan has to have them.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

use crate::account::Account;
use crate::framed_values::FramedAggregates;
use crate::table_files::{bucket, intervals, table_partition_function};
use crate::{
    arithmetic, as_is, bucket_place, bytes_of_texts, date_parts, date_trunc, day_times, declared_types,
    exact_doubles, json, large_values, lengths, local_times, long_functions, long_states, means, named_casts,
    never, only, patterns, postgres_functions, quotients, regexp_lists, replacements, row_checks,
    row_numbers, row_samples, samples, shown_doubles, shown_elements, shown_intervals, shown_times, sums,
    times, whole_decimals, whole_times, window_functions, written_rows,
};

fn scalar() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let own = [
        as_is::function(),
        bucket(),
        bucket_place::function(),
        bytes_of_texts::function(),
        date_parts::function(),
        date_trunc::function(),
        day_times::function(),
        exact_doubles::function(),
        intervals::function(),
        local_times::moment(),
        local_times::timezone(),
        named_casts::function(),
        never::function(),
        only::only(),
        replacements::function(),
        row_checks::function(),
        row_samples::function(),
        shown_doubles::function(),
        shown_elements::function(),
        shown_intervals::function(),
        shown_times::function(),
        table_partition_function(),
        written_rows::function(),
    ];
    arithmetic::functions()
        .chain(own)
        .chain(json::functions())
        .chain(declared_types::functions())
        .chain(large_values::functions())
        .chain(long_functions::functions())
        .chain(regexp_lists::functions())
        .chain(lengths::functions())
        .chain(patterns::functions())
        .chain(postgres_functions::functions())
        .chain(quotients::functions())
        .chain(times::functions())
        .chain(whole_decimals::functions())
        .chain(whole_times::functions())
}

/// The scalar function of this name, if it is one of these.
pub(crate) fn scalar_function(name: &str) -> Option<Arc<ScalarUDF>> {
    scalar().find(|function| function.name() == name)
}

/// Gives a session that decodes plans all of them.
pub fn install(builder: &mut SessionStateBuilder) {
    let account = builder.config().as_ref().and_then(|config| Account::of(config.options()).cloned());
    let framed = FramedAggregates::new(&account.unwrap_or_else(Account::of_process));
    builder.scalar_functions().get_or_insert_default().extend(scalar());
    let own = [sums::sum(), means::avg(), samples::sample()];
    let aggregates = own.into_iter().chain(long_states::functions()).chain(framed.all());
    builder.aggregate_functions().get_or_insert_default().extend(aggregates);
    builder.window_functions().get_or_insert_default().extend(row_numbers::functions());
    window_functions::install(builder);
}

/// What stands in the place of DataFusion's functions, made once: a server has many sessions.
static REPLACED: LazyLock<Replaced> = LazyLock::new(|| {
    // As PostgreSQL calls it.
    let uuid = datafusion::functions::string::uuid();
    let uuid = Arc::new(uuid.as_ref().clone().with_aliases(["gen_random_uuid", "uuid_generate_v4"]));
    let single =
        [date_parts::function(), date_trunc::function(), replacements::function(), named_casts::function()];
    Replaced {
        scalar: lengths::functions()
            .chain(json::callable())
            .chain(large_values::callable())
            .chain(long_functions::functions())
            .chain(patterns::functions())
            .chain(postgres_functions::functions())
            .chain(regexp_lists::functions())
            .chain(whole_decimals::functions())
            .chain(single)
            .chain(declared_types::planned())
            .chain([local_times::timezone(), never::function(), uuid])
            .collect(),
        aggregates: [sums::sum(), means::avg()].into_iter().chain(long_states::functions()).collect(),
        windows: row_numbers::functions().collect(),
    }
});

struct Replaced {
    scalar: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    windows: Vec<Arc<WindowUDF>>,
}

/// Gives a session that plans statements what stands in the place of DataFusion's functions, under their names.
pub fn replace(session: &mut dyn FunctionRegistry) -> Result<()> {
    for function in &REPLACED.aggregates {
        session.register_udaf(Arc::clone(function))?;
    }
    for function in &REPLACED.scalar {
        session.register_udf(Arc::clone(function))?;
    }
    for function in &REPLACED.windows {
        session.register_udwf(Arc::clone(function))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_by_their_names() {
        for function in scalar() {
            assert_eq!(scalar_function(function.name()).unwrap(), function);
        }
        assert!(scalar_function("add").is_none());
    }
}
