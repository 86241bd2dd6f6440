//! The functions that plans name by their names alone, so that every session which decodes a plan has to have them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;

use crate::account::Account;
use crate::framed_values::FramedAggregates;
use crate::table_files::{bucket, intervals, table_partition_function};
use crate::{
    arithmetic, as_is, bucket_place, bytes_of_texts, date_parts, date_trunc, day_times, exact_doubles,
    large_values, lengths, local_times, means, named_casts, only, patterns, quotients, replacements,
    row_numbers, row_samples, samples, shown_intervals, shown_times, sums, times, whole_decimals,
    whole_times, window_functions, written_rows,
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
        only::only(),
        replacements::function(),
        row_samples::function(),
        shown_intervals::function(),
        shown_times::function(),
        table_partition_function(),
        written_rows::function(),
    ];
    arithmetic::functions()
        .chain(own)
        .chain(large_values::functions())
        .chain(lengths::functions())
        .chain(patterns::functions())
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
    let aggregates = [sums::sum(), means::avg(), samples::sample()].into_iter().chain(framed.all());
    builder.aggregate_functions().get_or_insert_default().extend(aggregates);
    builder.window_functions().get_or_insert_default().extend(row_numbers::functions());
    window_functions::install(builder);
}

/// Gives a session that plans statements what stands in the place of DataFusion's functions, under their names.
pub fn replace(session: &mut dyn FunctionRegistry) -> Result<()> {
    session.register_udaf(sums::sum())?;
    session.register_udaf(means::avg())?;
    for function in lengths::functions().chain(large_values::callable()) {
        session.register_udf(function)?;
    }
    session.register_udf(date_parts::function())?;
    session.register_udf(date_trunc::function())?;
    for function in patterns::functions() {
        session.register_udf(function)?;
    }
    for function in whole_decimals::functions() {
        session.register_udf(function)?;
    }
    session.register_udf(replacements::function())?;
    session.register_udf(named_casts::function())?;
    session.register_udf(local_times::timezone())?;
    for function in row_numbers::functions() {
        session.register_udwf(function)?;
    }
    // As PostgreSQL calls it.
    let uuid = datafusion::functions::string::uuid();
    session.register_udf(Arc::new(uuid.as_ref().clone().with_aliases(["gen_random_uuid"])))?;
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
