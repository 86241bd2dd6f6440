//! The rules by which a session plans: those of DataFusion, and ours before, between and behind them.
//!
//! What each does is told by its own file. Analyzer rules that are put in front see a statement before its types are coerced, the others
//! afterwards; a rule that is guarded is DataFusion's own, kept from what it would get wrong.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, Optimizer};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use harrier_exec::table_files;

use crate::aggregate_filters;
use crate::array_overlaps::Overlaps;
use crate::bounded_values::BoundedValues;
use crate::bytes::{LikeOfBytes, TextsOrBytes};
use crate::checked::CheckedIntegers;
use crate::column_aliases::ColumnAliases;
use crate::compact_views::CompactViews;
use crate::compared_keys::ComparedKeys;
use crate::correlated_names::CorrelatedNames;
use crate::counted_rows::CountedRows;
use crate::declared_types::DeclaredTypes;
use crate::differences::{Differences, Extracts};
use crate::distinct_lists;
use crate::doubles::{DoubleComparisons, NearestDoubles};
use crate::engine::Engine;
use crate::estimates;
use crate::far_times::FarTimes;
use crate::function_relations::FunctionRelations;
use crate::grouping_sets::GroupingSets;
use crate::heard_rules;
use crate::interval_comparisons::IntervalComparisons;
use crate::join_orderings;
use crate::join_subqueries::JoinSubqueries;
use crate::json::{JsonOperators, JsonValues};
use crate::like_escapes::LikeEscapes;
use crate::many_relations;
use crate::needed_orders::NeededOrders;
use crate::operator_chains::Chains;
use crate::outer_aggregates::OuterAggregates;
use crate::outer_joins::OuterJoins;
use crate::outer_types::OuterTypes;
use crate::plain_values::PlainValues;
use crate::queried_values::QueriedValues;
use crate::refreshed_schemas;
use crate::repeated_keys::RepeatedKeys;
use crate::repeated_windows;
use crate::scalar_subqueries::ScalarSubqueries;
use crate::simplification;
use crate::single_stage::SingleStage;
use crate::sort_limits::{self, UnorderedHints};
use crate::sorted_groups::SortedGroups;
use crate::sql_types::SqlTypes;
use crate::state_budget::StateBudget;
use crate::subqueries::{Quantified, Unnest};
use crate::subquery_orders::SubqueryOrders;
use crate::table_samples::TableSamples;
use crate::texts_of_booleans::TextsOfBooleans;
use crate::texts_of_times::TextsOfTimes;
use crate::timestamps::{Timestamps, WholeUnits};
use crate::told_apart;
use crate::unknown_literals::{TimeDifferences, UnknownLiterals};
use crate::window_functions::WindowFunctions;
use crate::window_peers::WindowPeers;
use crate::yielding_joins::YieldingJoins;
use crate::zeros::{UnsignedJoinKeys, UnsignedZeros};
use crate::zones::{LocalTimes, SessionZone};

/// Gives a session its rules, planners of expressions and relations, and estimates.
pub(crate) fn install(mut builder: SessionStateBuilder, engine: &Engine) -> SessionStateBuilder {
    let mut optimizer = PhysicalOptimizer::new();
    told_apart::guard(&mut optimizer.rules);
    sort_limits::guard(&mut optimizer.rules);
    join_orderings::insert(&mut optimizer.rules);
    let check = optimizer.rules.iter().position(|rule| rule.name() == "SanityCheckPlan");
    let check = check.unwrap_or(optimizer.rules.len());
    optimizer.rules.insert(check, Arc::new(NeededOrders));
    let budget = StateBudget::new(Arc::clone(engine.runtime_env()), engine.limits().processes.memory_bytes);
    optimizer.rules.insert(check, Arc::new(SortedGroups(budget.clone())));
    optimizer.rules.insert(0, Arc::new(SingleStage(budget)));
    optimizer.rules.insert(0, Arc::new(GroupingSets));
    optimizer.rules.insert(0, Arc::new(OuterJoins));
    optimizer.rules.push(Arc::new(UnorderedHints));
    optimizer.rules.push(Arc::new(YieldingJoins));
    builder = builder.with_physical_optimizer_rules(optimizer.rules);
    let mut logical = Optimizer::new();
    aggregate_filters::guard(&mut logical.rules);
    distinct_lists::guard(&mut logical.rules);
    simplification::guard(&mut logical.rules);
    many_relations::guard(&mut logical.rules);
    repeated_windows::insert(&mut logical.rules);
    refreshed_schemas::insert(&mut logical.rules);
    builder = builder.with_optimizer_rules(logical.rules);
    let mut analyzer = Analyzer::new();
    analyzer.rules.insert(0, Arc::new(IntervalComparisons));
    analyzer.rules.insert(0, Arc::new(WindowPeers));
    analyzer.rules.insert(0, Arc::new(JoinSubqueries));
    analyzer.rules.insert(0, Arc::new(TextsOfBooleans));
    analyzer.rules.insert(0, Arc::new(LikeOfBytes));
    analyzer.rules.insert(0, Arc::new(DoubleComparisons));
    analyzer.rules.insert(0, Arc::new(FarTimes));
    analyzer.rules.insert(0, Arc::new(Timestamps));
    analyzer.rules.insert(0, Arc::new(SessionZone));
    analyzer.rules.insert(0, Arc::new(Quantified));
    analyzer.rules.insert(0, Arc::new(UnknownLiterals));
    analyzer.rules.insert(0, Arc::new(DeclaredTypes));
    analyzer.rules.insert(0, Arc::new(QueriedValues));
    analyzer.rules.insert(0, Arc::new(OuterAggregates));
    analyzer.rules.insert(0, Arc::new(JsonValues));
    analyzer.rules.insert(0, Arc::new(SubqueryOrders));
    builder = builder.with_analyzer_rules(analyzer.rules);
    builder = builder.with_analyzer_rule(Arc::new(OuterTypes));
    builder = builder.with_analyzer_rule(Arc::new(CheckedIntegers));
    builder = builder.with_analyzer_rule(Arc::new(NearestDoubles));
    builder = builder.with_analyzer_rule(Arc::new(Differences));
    builder = builder.with_analyzer_rule(Arc::new(TextsOfTimes));
    builder = builder.with_analyzer_rule(Arc::new(LocalTimes));
    builder = builder.with_analyzer_rule(Arc::new(CountedRows));
    builder = builder.with_analyzer_rule(Arc::new(ScalarSubqueries));
    builder = builder.with_analyzer_rule(Arc::new(Unnest));
    builder = builder.with_analyzer_rule(Arc::new(LikeEscapes));
    builder = builder.with_analyzer_rule(Arc::new(UnsignedZeros));
    builder = builder.with_analyzer_rule(Arc::new(BoundedValues::new(engine.runtime_env())));
    builder = builder.with_analyzer_rule(Arc::new(CorrelatedNames));
    builder = builder.with_analyzer_rule(Arc::new(WindowFunctions));
    builder = builder.with_optimizer_rule(Arc::new(WholeUnits));
    builder = builder.with_optimizer_rule(Arc::new(UnsignedJoinKeys));
    builder = builder.with_optimizer_rule(Arc::new(RepeatedKeys));
    builder = builder.with_optimizer_rule(Arc::new(ComparedKeys));
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(Extracts));
    planners.insert(0, Arc::new(Overlaps));
    planners.insert(0, Arc::new(JsonOperators));
    planners.insert(0, Arc::new(TextsOrBytes));
    planners.insert(0, Arc::new(Chains));
    planners.insert(0, Arc::new(TimeDifferences));
    builder = builder.with_type_planner(Arc::new(SqlTypes));
    builder = builder.with_relation_planners(vec![
        Arc::new(ColumnAliases),
        Arc::new(TableSamples),
        Arc::new(PlainValues),
        Arc::new(FunctionRelations),
    ]);
    builder = builder.with_statistics_registry(estimates::registry());
    heard_rules::install(&mut builder);
    match (engine.gang(), engine.link()) {
        (Some(gang), _) => gang.configure(builder),
        (None, Some(link)) => link.configure(builder, Arc::new(CompactViews)),
        (None, None) => table_files::install(builder.with_physical_optimizer_rule(Arc::new(CompactViews))),
    }
}
