//! Registry of the functions that plans reference by name: every session that decodes plans needs them.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

use crate::aggregate::{average, checked_sum, extremes, growing_state, reservoir_sample};
use crate::cast::{declared_type, named_cast};
use crate::datetime::{
    clock, date_part, date_trunc, difference, duration, epoch, interval_span, midnight, time_unit, time_zone,
    zoned_interval,
};
use crate::guard::{check_constraint, never_true, opaque, repeated_key, row_filter_check, single_row_value};
use crate::hash::bucket::bucket;
use crate::hash::table_sample;
use crate::math::{checked, decimal_to_double, domain, float_to_decimal, quotient, rounding};
use crate::string::{length, regexp_matches, regexp_replace, text_or_bytes};
use crate::window::frame_aggregates::FramedAggregates;
use crate::window::{first_of_keys, option_wrappers, ranking, row_offset};
use crate::{
    array_assign, array_elements, array_or_empty, array_remove, array_slice, bounded_result, format, hive,
    interruptible, json, nested_order, nullif, parse, postgres_functions, signed_counts, to_char,
};
use harrier_resources::value_account::Account;

fn scalar() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let own = [
        array_assign::function(),
        array_or_empty::function(),
        array_remove::function(),
        array_slice::function(),
        opaque::function(),
        bucket(),
        clock::function(),
        parse::bytea::function(),
        parse::decimal::function(),
        date_part::extract(),
        date_part::function(),
        date_trunc::function(),
        duration::function(),
        epoch::function(),
        decimal_to_double::function(),
        float_to_decimal::function(),
        time_zone::moment(),
        time_zone::timezone(),
        named_cast::function(),
        nullif::function(),
        never_true::function(),
        single_row_value::only(),
        regexp_replace::function(),
        check_constraint::function(),
        table_sample::function(),
        format::double::function(),
        format::element::function(),
        format::interval::function(),
        format::datetime::function(),
        format::value::function(),
        row_filter_check::function(),
        repeated_key::function(),
    ];
    checked::functions()
        .chain(own)
        .chain(array_elements::functions())
        .chain(json::functions())
        .chain(declared_type::functions())
        .chain(bounded_result::functions())
        .chain(hive::functions())
        .chain(interruptible::functions())
        .chain(regexp_matches::functions())
        .chain(interval_span::functions())
        .chain(length::functions())
        .chain(domain::functions())
        .chain(nested_order::functions())
        .chain(signed_counts::functions())
        .chain(to_char::functions())
        .chain(postgres_functions::functions())
        .chain(quotient::functions())
        .chain(text_or_bytes::functions())
        .chain(parse::datetime::functions())
        .chain(parse::float::functions())
        .chain(rounding::functions())
        .chain(time_unit::functions())
        .chain(zoned_interval::functions())
        .chain([difference::function(), midnight::function()])
}

/// The scalar function of this name, if it is one of these.
pub fn scalar_function(name: &str) -> Option<Arc<ScalarUDF>> {
    scalar().find(|function| function.name() == name)
}

/// Installs all functions in a session that decodes plans.
pub fn install(builder: &mut SessionStateBuilder) {
    let account = builder.config().as_ref().and_then(|config| Account::of(config.options()).cloned());
    let framed = FramedAggregates::new(&account.unwrap_or_else(Account::of_process));
    builder.scalar_functions().get_or_insert_default().extend(scalar());
    let own = [checked_sum::sum(), average::avg(), reservoir_sample::sample()];
    let aggregates =
        own.into_iter().chain(extremes::functions()).chain(growing_state::functions()).chain(framed.all());
    builder.aggregate_functions().get_or_insert_default().extend(aggregates);
    let windows = ranking::functions().chain(row_offset::functions()).chain([first_of_keys::function()]);
    builder.window_functions().get_or_insert_default().extend(windows);
    option_wrappers::install(builder);
}

/// Replacements of DataFusion's functions, created once: a server has many sessions.
static REPLACED: LazyLock<Replaced> = LazyLock::new(|| {
    // PostgreSQL's alias.
    let uuid = datafusion::functions::string::uuid();
    let uuid = Arc::new(uuid.as_ref().clone().with_aliases(["gen_random_uuid", "uuid_generate_v4"]));
    let single =
        [date_part::function(), date_trunc::function(), regexp_replace::function(), named_cast::function()];
    Replaced {
        scalar: length::functions()
            .chain(array_elements::functions())
            .chain(signed_counts::functions())
            .chain(json::callable())
            .chain(domain::functions())
            .chain(bounded_result::callable())
            .chain(hive::functions())
            .chain(interruptible::functions())
            .chain(to_char::functions())
            .chain(postgres_functions::functions())
            .chain(regexp_matches::functions())
            .chain(text_or_bytes::callable())
            .chain(rounding::functions())
            .chain(single)
            .chain(declared_type::planner_functions())
            .chain([
                array_assign::function(),
                array_or_empty::function(),
                array_remove::function(),
                clock::function(),
                epoch::function(),
                time_zone::timezone(),
                never_true::function(),
                nullif::function(),
                uuid,
            ])
            .collect(),
        aggregates: [checked_sum::sum(), average::avg()]
            .into_iter()
            .chain(extremes::functions())
            .chain(growing_state::functions())
            .collect(),
        windows: ranking::functions().collect(),
    }
});

struct Replaced {
    scalar: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    windows: Vec<Arc<WindowUDF>>,
}

/// Replaces DataFusion's functions, under their names, in a session that plans statements.
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
    fn functions_are_found_by_name() {
        for function in scalar() {
            assert_eq!(scalar_function(function.name()).unwrap(), function);
        }
        assert!(scalar_function("add").is_none());
    }
}
