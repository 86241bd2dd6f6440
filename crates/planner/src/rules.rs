//! The rules by which a session plans, in the one order in which they run: DataFusion's, and ours before, between and behind them.
//!
//! ```text
//! SQL ─► planners of types, relations and expressions ─► logical plan
//!     ─► analyzer rules before the coercion of types, DataFusion's (the coercion is one), those behind it
//!     ─► optimizer rules: DataFusion's, of which some are guarded, and ours behind them
//!     ─► physical optimizer rules: ours in front, DataFusion's, ours before its last check and behind it
//! ```
//!
//! A rule that is guarded is DataFusion's own, kept from what it would get wrong. What each rule does is told by its own file.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use harrier_functions::parse::interval::IntervalStyle;

use crate::analyzer::boolean_text_cast::TextsOfBooleans;
use crate::analyzer::bounded_results::BoundedValues;
use crate::analyzer::bytea_operators::{LikeOfBytes, TextsOrBytes};
use crate::analyzer::checked_arithmetic::CheckedIntegers;
use crate::analyzer::decimal_float_coercion::{DoubleComparisons, NearestDoubles};
use crate::analyzer::decorrelation::{Quantified, Unnest};
use crate::analyzer::interval_comparison::IntervalComparisons;
use crate::analyzer::join_condition_subquery::JoinSubqueries;
use crate::analyzer::like_escape::LikeEscapes;
use crate::analyzer::negative_zero::{UnsignedJoinKeys, UnsignedZeros};
use crate::analyzer::outer_level_aggregate::OuterAggregates;
use crate::analyzer::outer_reference_names::CorrelatedNames;
use crate::analyzer::outer_reference_types::OuterTypes;
use crate::analyzer::scalar_subquery::ScalarSubqueries;
use crate::analyzer::session_time_zone::{LocalTimes, SessionZone};
use crate::analyzer::set_operation_all::CountedRows;
use crate::analyzer::subquery_order_by::SubqueryOrders;
use crate::analyzer::text_casts::TextsOfTimes;
use crate::analyzer::timestamp_coercion::{Timestamps, WholeUnits};
use crate::analyzer::timestamp_differences::{Differences, Extracts};
use crate::analyzer::timestamp_out_of_range::FarTimes;
use crate::analyzer::values_subquery::QueriedValues;
use crate::analyzer::window_functions::WindowFunctions;
use crate::analyzer::window_peers::WindowPeers;
use crate::binder::array_overlap::Overlaps;
use crate::binder::column_aliases::ColumnAliases;
use crate::binder::operator_chains::Chains;
use crate::binder::table_functions::FunctionRelations;
use crate::binder::table_sample::TableSamples;
use crate::binder::values_relation::PlainValues;
use crate::cancelable_rules;
use crate::cardinality::filter_selectivity;
use crate::optimizer::computed_sort_keys::ComparedKeys;
use crate::optimizer::duplicate_sort_keys::RepeatedKeys;
use crate::optimizer::{
    distinct_list_aggregates, duplicate_windows, filter_pushdown, join_chain_limit, schema_refresh,
    simplification,
};
use crate::physical::aggregation_memory::StateBudget;
use crate::physical::cooperative_joins::YieldingJoins;
use crate::physical::grouping_set_properties::GroupingSets;
use crate::physical::limit_pushdown_guard::{self, UnorderedHints};
use crate::physical::outer_join_properties::OuterJoins;
use crate::physical::required_orderings::NeededOrders;
use crate::physical::single_stage_aggregation::SingleStage;
use crate::physical::sorted_aggregation::SortedGroups;
use crate::physical::{filter_pushdown_guard, join_orderings};

type Analyzing = Arc<dyn AnalyzerRule + Send + Sync>;
type Optimizing = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicallyOptimizing = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// What rules ask of the process and of the settings of its sessions.
#[derive(Debug)]
pub struct Surroundings {
    pub runtime: Arc<RuntimeEnv>,
    /// Bytes of memory that any statement may take; `None`: as many as there are.
    pub statement_memory: Option<u64>,
    /// The same, as a session says.
    pub session_memory: fn(&ConfigOptions) -> Option<usize>,
    /// How a session writes intervals.
    pub interval_style: fn(&ConfigOptions) -> IntervalStyle,
    /// Whether an expression takes a value of a sequence.
    pub takes_sequence_value: fn(&Expr) -> bool,
}

/// Rules that know how the tables of a warehouse were declared. They have their places between the others.
#[derive(Debug)]
pub struct TableRules {
    pub json_values: Analyzing,
    pub declared_types: Analyzing,
    pub unknown_literals: Analyzing,
    pub json_operators: Arc<dyn ExprPlanner>,
    pub time_differences: Arc<dyn ExprPlanner>,
    pub types: Arc<dyn TypePlanner>,
}

/// Gives a session its rules, planners of expressions and relations, and estimates.
pub fn install(
    mut builder: SessionStateBuilder,
    surroundings: &Surroundings,
    tables: TableRules,
) -> SessionStateBuilder {
    let mut planners = expr_planners(tables.json_operators, tables.time_differences);
    let given = builder.expr_planners().get_or_insert_default();
    planners.append(given);
    *given = planners;
    builder = builder.with_type_planner(tables.types).with_relation_planners(relation_planners());

    let mut analyzer = Analyzer::new();
    let before =
        before_coercion(surroundings, tables.json_values, tables.declared_types, tables.unknown_literals);
    analyzer.rules.splice(..0, before);
    analyzer.rules.extend(behind_coercion(surroundings));
    builder = builder.with_analyzer_rules(analyzer.rules);

    builder = builder.with_optimizer_rules(optimizer_rules());
    builder = builder.with_physical_optimizer_rules(physical_rules(surroundings));
    builder = builder.with_statistics_registry(filter_selectivity::registry());
    cancelable_rules::install(&mut builder);
    builder
}

/// Asked before DataFusion's, the first one first.
fn expr_planners(
    json_operators: Arc<dyn ExprPlanner>,
    time_differences: Arc<dyn ExprPlanner>,
) -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        time_differences,
        Arc::new(Chains),
        Arc::new(TextsOrBytes),
        json_operators,
        Arc::new(Overlaps),
        Arc::new(Extracts),
    ]
}

fn relation_planners() -> Vec<Arc<dyn RelationPlanner>> {
    vec![Arc::new(ColumnAliases), Arc::new(TableSamples), Arc::new(PlainValues), Arc::new(FunctionRelations)]
}

/// These see expressions as they are written: literals without a type, sides of an operator of different ones.
fn before_coercion(
    surroundings: &Surroundings,
    json_values: Analyzing,
    declared_types: Analyzing,
    unknown_literals: Analyzing,
) -> Vec<Analyzing> {
    vec![
        Arc::new(SubqueryOrders),
        json_values,
        Arc::new(OuterAggregates),
        // Rows with subqueries become queries here, whose subqueries the rules below look at.
        Arc::new(QueriedValues { takes_sequence_value: surroundings.takes_sequence_value }),
        declared_types,
        unknown_literals,
        Arc::new(Quantified),
        Arc::new(SessionZone),
        Arc::new(Timestamps),
        Arc::new(FarTimes),
        Arc::new(DoubleComparisons),
        Arc::new(LikeOfBytes),
        Arc::new(TextsOfBooleans),
        Arc::new(JoinSubqueries),
        Arc::new(WindowPeers),
        Arc::new(IntervalComparisons),
    ]
}

/// These see expressions with the casts that the coercion of types has put in.
fn behind_coercion(surroundings: &Surroundings) -> Vec<Analyzing> {
    vec![
        Arc::new(OuterTypes),
        Arc::new(CheckedIntegers),
        Arc::new(NearestDoubles),
        Arc::new(Differences),
        Arc::new(TextsOfTimes { interval_style: surroundings.interval_style }),
        Arc::new(LocalTimes),
        Arc::new(CountedRows),
        Arc::new(ScalarSubqueries),
        // Behind all that look at subqueries: it leaves none that is correlated.
        Arc::new(Unnest),
        Arc::new(LikeEscapes),
        Arc::new(UnsignedZeros),
        Arc::new(BoundedValues::new(&surroundings.runtime)),
        Arc::new(CorrelatedNames),
        Arc::new(WindowFunctions),
    ]
}

/// DataFusion's, some of them guarded and others between them, and ours.
fn optimizer_rules() -> Vec<Optimizing> {
    let mut rules = Optimizer::new().rules;
    filter_pushdown::guard(&mut rules);
    distinct_list_aggregates::guard(&mut rules);
    simplification::guard(&mut rules);
    join_chain_limit::guard(&mut rules);
    duplicate_windows::insert(&mut rules);
    schema_refresh::insert(&mut rules);
    let behind: [Optimizing; 4] =
        [Arc::new(WholeUnits), Arc::new(UnsignedJoinKeys), Arc::new(RepeatedKeys), Arc::new(ComparedKeys)];
    rules.extend(behind);
    rules
}

/// DataFusion's, some of them guarded and others between them, and ours.
fn physical_rules(surroundings: &Surroundings) -> Vec<PhysicallyOptimizing> {
    let mut rules = PhysicalOptimizer::new().rules;
    filter_pushdown_guard::guard(&mut rules);
    limit_pushdown_guard::guard(&mut rules);
    join_orderings::insert(&mut rules);
    let budget = StateBudget::new(
        Arc::clone(&surroundings.runtime),
        surroundings.statement_memory,
        surroundings.session_memory,
    );
    // The check refuses plans with orders that are missing: what adds and what needs sorts comes before it.
    let check = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    let before_check: [PhysicallyOptimizing; 2] =
        [Arc::new(SortedGroups(budget.clone())), Arc::new(NeededOrders)];
    rules.splice(check..check, before_check);
    let in_front: [PhysicallyOptimizing; 3] =
        [Arc::new(OuterJoins), Arc::new(GroupingSets), Arc::new(SingleStage(budget))];
    rules.splice(..0, in_front);
    let behind: [PhysicallyOptimizing; 2] = [Arc::new(UnorderedHints), Arc::new(YieldingJoins)];
    rules.extend(behind);
    rules
}
