//! The planner of a session: the rules of [`harrier_planner::rules`], with those of this crate, and how plans
//! get to ranks.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::{SessionState, SessionStateBuilder};
use harrier_exec::distribution::logical_planner;
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;
use harrier_planner::analyzer::session_time_zone::session_zone;
use harrier_planner::analyzer::text_constants::TimeReading;
use harrier_planner::physical::compact_string_views::CompactStringViews;
use harrier_planner::rules::{self, Surroundings, TableRules};

use crate::binder::declared_types::DeclaredTypes;
use crate::engine::Engine;
use crate::planning::json::{JsonOperators, JsonValues};
use crate::planning::sql_types::SqlTypes;
use crate::planning::unknown_literals::{TimeDifferences, UnknownLiterals};
use crate::settings::HarrierSettings;
use crate::warehouse::sequences::is_called;

/// Gives a session its rules, planners of expressions and relations, and estimates.
pub(crate) fn install(builder: SessionStateBuilder, engine: &Engine) -> SessionStateBuilder {
    let surroundings = Surroundings {
        runtime: Arc::clone(engine.runtime_env()),
        statement_memory: engine.limits().processes.memory_bytes,
        session_memory,
        interval_style,
        date_order,
        takes_sequence_value: is_called,
    };
    let tables = TableRules {
        json_values: Arc::new(JsonValues),
        declared_types: Arc::new(DeclaredTypes),
        unknown_literals: Arc::new(UnknownLiterals),
        json_operators: Arc::new(JsonOperators),
        time_differences: Arc::new(TimeDifferences),
        types: Arc::new(SqlTypes),
    };
    let builder = rules::install(builder, &surroundings, tables);
    let builder = match (engine.gang(), engine.link()) {
        (Some(gang), _) => gang.configure(builder),
        (None, Some(link)) => link.configure(builder, Arc::new(CompactStringViews)),
        (None, None) => {
            logical_planner::install(builder.with_physical_optimizer_rule(Arc::new(CompactStringViews)))
        }
    };
    rules::install_last(builder)
}

fn session_memory(options: &ConfigOptions) -> Option<usize> {
    let settings = options.extensions.get::<HarrierSettings>();
    settings.map(|settings| settings.statement_memory).filter(|bytes| *bytes > 0)
}

fn interval_style(options: &ConfigOptions) -> IntervalStyle {
    options.extensions.get::<HarrierSettings>().map(|settings| settings.interval_style).unwrap_or_default()
}

fn date_order(options: &ConfigOptions) -> DateOrder {
    options.extensions.get::<HarrierSettings>().map(|settings| settings.date_order).unwrap_or_default()
}

/// How the session reads texts of days and times.
pub(crate) fn time_reading(state: &SessionState) -> TimeReading {
    TimeReading { zone: session_zone(state), order: date_order(state.config_options()) }
}
