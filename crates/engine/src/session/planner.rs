//! A session's planner: the rules of [`harrier_planner::rules`], those of this crate, and distribution to
//! ranks.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use harrier_exec::distribution::logical_planner;
use harrier_planner::physical::compact_string_views::CompactStringViews;
use harrier_planner::rules::{self, LiteralTypes, RuleContext, TableRules};

use crate::binder::declared_types::DeclaredTypes;
use crate::binder::json::{JsonOperators, JsonValues};
use crate::binder::sql_types::SqlTypes;
use crate::engine::Engine;
use crate::planning::unknown_literals::{LiteralOperators, UnknownLiterals, coerce_columns, coerce_rows};
use crate::settings::{date_order, interval_style, session_memory, shares_subplans};
use crate::warehouse::sequences::contains_call;

/// Installs analyzer and optimizer rules, expression and relation planners, and estimates.
pub(crate) fn install(builder: SessionStateBuilder, engine: &Engine) -> SessionStateBuilder {
    let context = RuleContext {
        runtime: Arc::clone(engine.runtime_env()),
        statement_memory: engine.limits().processes.memory_bytes,
        session_memory,
        shares_subplans: match (engine.gang(), engine.link()) {
            (None, None) => shares_subplans,
            _ => |_| false,
        },
        interval_style,
        date_order,
        takes_sequence_value: contains_call,
    };
    let tables = TableRules {
        json_values: Arc::new(JsonValues),
        declared_types: Arc::new(DeclaredTypes),
        unknown_literals: Arc::new(UnknownLiterals),
        json_operators: Arc::new(JsonOperators),
        time_differences: Arc::new(LiteralOperators),
        types: Arc::new(SqlTypes),
        literals: LiteralTypes { coerce_rows, coerce_columns },
    };
    let builder = rules::install(builder, &context, tables);
    let builder = match (engine.gang(), engine.link()) {
        (Some(gang), _) => gang.configure(builder),
        (None, Some(link)) => link.configure(builder, Arc::new(CompactStringViews)),
        (None, None) => {
            logical_planner::install(builder.with_physical_optimizer_rule(Arc::new(CompactStringViews)))
        }
    };
    rules::install_last(builder)
}
