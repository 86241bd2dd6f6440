//! The rules by which a session plans, in the one order in which they run: DataFusion's, and ours before,
//! between and behind them.
//!
//! ```text
//! SQL ─► planners of types, relations and expressions ─► logical plan
//!     ─► analyzer rules before the coercion of types, DataFusion's (the coercion is one), those behind it
//!     ─► optimizer rules: DataFusion's, of which some are guarded, and ours behind them
//!     ─► once, behind the last pass of the optimizer: ANDs and ORs that stop at what decides them
//!     ─► physical optimizer rules: ours in front, DataFusion's, ours before its last check and behind it
//! ```
//!
//! A rule that is guarded is DataFusion's own, kept from what it would get wrong. What each rule does is told
//! by its own file.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use harrier_functions::parse::datetime::DateOrder;
use harrier_functions::parse::interval::IntervalStyle;

use crate::analyzer::boolean_text_cast::BooleanTextCasts;
use crate::analyzer::bounded_results::BoundedResults;
use crate::analyzer::bytea_operators::{ByteaLike, ByteaOperatorPlanner};
use crate::analyzer::checked_arithmetic::CheckedArithmetic;
use crate::analyzer::decimal_float_coercion::{DecimalDoubleComparisons, NearestDoubleCasts};
use crate::analyzer::decorrelation::{Decorrelation, QuantifiedSubqueries};
use crate::analyzer::filtered_arguments::FilteredArguments;
use crate::analyzer::integer_widths::IntegerWidths;
use crate::analyzer::interval_comparison::IntervalComparisons;
use crate::analyzer::interval_spans::{IntervalOrders, IntervalSpans};
use crate::analyzer::join_condition_subquery::JoinConditionSubqueries;
use crate::analyzer::like_escape::LikeEscapes;
use crate::analyzer::negative_zero::{NegativeZeros, ZeroJoinKeys};
use crate::analyzer::nested_order::NestedOrder;
use crate::analyzer::outer_level_aggregate::OuterLevelAggregates;
use crate::analyzer::outer_reference_names::OuterReferenceNames;
use crate::analyzer::outer_reference_types::OuterReferenceTypes;
use crate::analyzer::scalar_subquery::ScalarSubqueries;
use crate::analyzer::session_time_zone::{LocalTimeCasts, SessionTimeZone};
use crate::analyzer::set_operation_all::SetOperationAll;
use crate::analyzer::set_operation_types::SetOperationTypes;
use crate::analyzer::subquery_order_by::SubqueryOrderBy;
use crate::analyzer::text_casts::TextCasts;
use crate::analyzer::timestamp_coercion::{TimestampCoercion, TimestampPrecisionComparisons};
use crate::analyzer::timestamp_differences::{ExtractPlanner, TimestampDifferences};
use crate::analyzer::timestamp_out_of_range::OutOfRangeTimestamps;
use crate::analyzer::values_subquery::ValuesSubqueries;
use crate::analyzer::window_functions::WindowFunctions;
use crate::analyzer::window_peers::WindowPeers;
use crate::binder::array_overlap::ArrayOverlapPlanner;
use crate::binder::array_subscript::ArraySubscriptPlanner;
use crate::binder::column_aliases::ColumnAliasPlanner;
use crate::binder::integer_negation::IntegerNegationPlanner;
use crate::binder::integer_shift::IntegerShiftPlanner;
use crate::binder::map_subscript::MapSubscriptPlanner;
use crate::binder::operator_chains::OperatorChainPlanner;
use crate::binder::outer_qualifiers::OuterQualifierPlanner;
use crate::binder::table_functions::TableFunctionPlanner;
use crate::binder::table_sample::TableSamplePlanner;
use crate::binder::values_relation::ValuesPlanner;
use crate::cancelable_rules;
use crate::cardinality::filter_selectivity;
use crate::optimizer::columnless_windows::ColumnlessWindows;
use crate::optimizer::computed_sort_keys::ComputedSortKeys;
use crate::optimizer::duplicate_sort_keys::DuplicateSortKeys;
use crate::optimizer::unique_keys::{self, KeyedRelations};
use crate::optimizer::{
    distinct_list_aggregates, duplicate_windows, filter_pushdown, join_chain_limit, schema_refresh,
    short_circuit, simplification,
};
use crate::physical::aggregation_memory::AggregationMemory;
use crate::physical::cooperative_joins::CooperativeJoins;
use crate::physical::grouping_set_properties::GroupingSetProperties;
use crate::physical::limit_pushdown_guard::{self, UnorderedLimits};
use crate::physical::outer_join_properties::OuterJoinProperties;
use crate::physical::required_orderings::RequiredOrderings;
use crate::physical::single_stage_aggregation::SingleStageAggregation;
use crate::physical::sorted_aggregation::SortedAggregation;
use crate::physical::{aggregate_statistics_guard, filter_pushdown_guard, join_orderings};

type Analyzing = Arc<dyn AnalyzerRule + Send + Sync>;
type Optimizing = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicallyOptimizing = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Why a rule is there. Its file says what makes it removable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// DataFusion answers wrongly, refuses, or plans for too long: issues and pull requests of
    /// apache/datafusion. None: none was found.
    Mends(&'static [u32]),
    /// SQL means so, and DataFusion means something else: where the standard or PostgreSQL's documentation
    /// says it.
    Standard(&'static str),
    /// It saves time or memory: by which technique.
    Optimises(&'static str),
}

use Reason::{Mends, Optimises, Standard};

/// A rule, or what names the rule of DataFusion that is guarded, with why.
type Listed<R> = Vec<(R, Reason)>;

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
    /// How a session reads days whose text does not tell.
    pub date_order: fn(&ConfigOptions) -> DateOrder,
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
    let mut planners = rules_of(expr_planners(tables.json_operators, tables.time_differences));
    let given = builder.expr_planners().get_or_insert_default();
    planners.append(given);
    *given = planners;
    builder = builder.with_type_planner(tables.types).with_relation_planners(rules_of(relation_planners()));

    let mut analyzer = Analyzer::new();
    let before =
        before_coercion(surroundings, tables.json_values, tables.declared_types, tables.unknown_literals);
    analyzer.rules.splice(..0, rules_of(before));
    analyzer.rules.extend(rules_of(behind_coercion(surroundings)));
    builder = builder.with_analyzer_rules(analyzer.rules);

    let mut optimizer = Optimizer::new();
    for (guard, _) in optimizer_guards() {
        guard(&mut optimizer.rules);
    }
    optimizer.rules.extend(rules_of(optimizer_rules()));
    builder = builder.with_optimizer_rules(optimizer.rules);

    builder = builder.with_physical_optimizer_rules(physical_plan_rules(surroundings));
    builder = builder.with_statistics_registry(filter_selectivity::registry());
    cancelable_rules::install(&mut builder);
    builder
}

/// Gives a session what looks at an optimized plan once more, before the physical one is made of it. To be
/// done when `builder` has its planner of physical plans.
pub fn install_last(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    for (last, _) in last_rewrites() {
        builder = last(builder);
    }
    builder
}

type LastRewrite = fn(SessionStateBuilder) -> SessionStateBuilder;

fn last_rewrites() -> Listed<LastRewrite> {
    vec![(short_circuit::install, Mends(&[8927]))]
}

fn rules_of<R>(listed: Listed<R>) -> Vec<R> {
    listed.into_iter().map(|(rule, _)| rule).collect()
}

/// Asked before DataFusion's, the first one first.
fn expr_planners(
    json_operators: Arc<dyn ExprPlanner>,
    time_differences: Arc<dyn ExprPlanner>,
) -> Listed<Arc<dyn ExprPlanner>> {
    vec![
        (time_differences, Standard("PostgreSQL 10.2")),
        (Arc::new(OperatorChainPlanner), Mends(&[12604])),
        (Arc::new(IntegerNegationPlanner), Standard("PostgreSQL 9.3")),
        (Arc::new(IntegerShiftPlanner), Standard("PostgreSQL 9.3")),
        (Arc::new(ByteaOperatorPlanner), Standard("PostgreSQL 9.5")),
        (json_operators, Standard("PostgreSQL 9.16")),
        (Arc::new(ArrayOverlapPlanner), Standard("PostgreSQL 9.19")),
        (Arc::new(OuterQualifierPlanner), Standard("SQL:2016 6.6, scopes of names")),
        (Arc::new(MapSubscriptPlanner), Mends(&[25201])),
        (Arc::new(ArraySubscriptPlanner), Standard("PostgreSQL 8.15.3")),
        (Arc::new(ExtractPlanner), Standard("PostgreSQL 9.9.1")),
    ]
}

fn relation_planners() -> Listed<Arc<dyn RelationPlanner>> {
    vec![
        // In front: it plans a relation once more, and changes what comes of it.
        (Arc::new(KeyedRelations), Mends(&[])),
        (Arc::new(ColumnAliasPlanner), Standard("PostgreSQL 7.2.1.2")),
        (Arc::new(TableSamplePlanner), Standard("PostgreSQL, SELECT: TABLESAMPLE")),
        (Arc::new(ValuesPlanner), Mends(&[])),
        (Arc::new(TableFunctionPlanner), Standard("PostgreSQL 7.2.1.4")),
    ]
}

/// These see expressions as they are written: literals without a type, sides of an operator of different
/// ones.
fn before_coercion(
    surroundings: &Surroundings,
    json_values: Analyzing,
    declared_types: Analyzing,
    unknown_literals: Analyzing,
) -> Listed<Analyzing> {
    let takes_sequence_value = surroundings.takes_sequence_value;
    vec![
        (Arc::new(SubqueryOrderBy), Standard("PostgreSQL 7.5")),
        (json_values, Standard("PostgreSQL 8.14")),
        (Arc::new(OuterLevelAggregates), Standard("PostgreSQL 4.2.7")),
        // Rows with subqueries become queries here, whose subqueries the rules below look at.
        (Arc::new(ValuesSubqueries { takes_sequence_value }), Mends(&[])),
        (declared_types, Standard("PostgreSQL 8.3")),
        (unknown_literals, Standard("PostgreSQL 10.2")),
        (Arc::new(QuantifiedSubqueries), Mends(&[25347, 25473, 25336, 8241])),
        (Arc::new(SessionTimeZone), Standard("PostgreSQL 8.5.3")),
        (Arc::new(TimestampCoercion), Mends(&[22759, 8336, 19527])),
        (Arc::new(OutOfRangeTimestamps), Mends(&[22759, 8336])),
        (Arc::new(DecimalDoubleComparisons), Mends(&[14272, 8302])),
        (Arc::new(SetOperationTypes), Standard("PostgreSQL 10.5")),
        (Arc::new(IntegerWidths), Standard("PostgreSQL 4.1.2.6")),
        (Arc::new(ByteaLike), Standard("PostgreSQL 9.5")),
        (Arc::new(BooleanTextCasts), Standard("PostgreSQL 9.4")),
        (Arc::new(JoinConditionSubqueries), Mends(&[])),
        (Arc::new(WindowPeers), Mends(&[24357, 24515, 24916])),
        (Arc::new(IntervalComparisons), Standard("PostgreSQL 10.2")),
        // Behind what looks at frames of windows as they are written.
        (Arc::new(IntervalOrders), Standard("PostgreSQL 8.5.4")),
    ]
}

/// These see expressions with the casts that the coercion of types has put in.
fn behind_coercion(surroundings: &Surroundings) -> Listed<Analyzing> {
    let Surroundings { interval_style, date_order, .. } = *surroundings;
    vec![
        (Arc::new(OuterReferenceTypes), Mends(&[])),
        (Arc::new(CheckedArithmetic), Standard("PostgreSQL 8.1.1")),
        (Arc::new(NearestDoubleCasts), Mends(&[])),
        (Arc::new(TimestampDifferences), Standard("PostgreSQL 9.9")),
        (Arc::new(TextCasts { interval_style, date_order }), Standard("PostgreSQL 8.5")),
        (Arc::new(LocalTimeCasts), Mends(&[25084])),
        (Arc::new(SetOperationAll), Mends(&[12955, 12956])),
        (Arc::new(ScalarSubqueries), Mends(&[16137, 24972, 24783])),
        // Behind what makes windows, orders and groups of what a statement says.
        (Arc::new(IntervalSpans), Standard("PostgreSQL 8.5.4")),
        // Behind all that look at subqueries: it leaves none that is correlated.
        (Arc::new(Decorrelation), Mends(&[5492])),
        (Arc::new(LikeEscapes), Mends(&[13312])),
        (Arc::new(NegativeZeros), Mends(&[22826, 25186])),
        // Behind what replaces values in arrays by others.
        (Arc::new(NestedOrder), Standard("PostgreSQL 9.19")),
        (Arc::new(BoundedResults::new(&surroundings.runtime)), Optimises("admission by size before work")),
        (Arc::new(OuterReferenceNames), Mends(&[])),
        // Behind all that change arguments.
        (Arc::new(FilteredArguments), Mends(&[8927])),
        (Arc::new(WindowFunctions), Mends(&[])),
    ]
}

type OptimizerGuard = fn(&mut Vec<Optimizing>);

/// What is done to the list of DataFusion's optimizer rules.
fn optimizer_guards() -> Listed<OptimizerGuard> {
    vec![
        (|rules| filter_pushdown::guard(rules), Mends(&[25415, 25416])),
        (|rules| distinct_list_aggregates::guard(rules), Standard("PostgreSQL 4.2.7")),
        (|rules| simplification::guard(rules), Mends(&[24258, 8927, 25143])),
        (|rules| join_chain_limit::guard(rules), Mends(&[])),
        (duplicate_windows::insert, Mends(&[15190, 24750])),
        (|rules| unique_keys::guard(rules), Mends(&[])),
        (short_circuit::insert, Mends(&[8927])),
        (schema_refresh::insert, Mends(&[22895, 22903])),
    ]
}

/// Behind DataFusion's.
fn optimizer_rules() -> Listed<Optimizing> {
    vec![
        (Arc::new(TimestampPrecisionComparisons), Mends(&[22906])),
        (Arc::new(ZeroJoinKeys), Mends(&[22826, 25186])),
        (Arc::new(DuplicateSortKeys), Mends(&[25398, 25400])),
        (Arc::new(ComputedSortKeys), Mends(&[])),
        // Behind the rule that takes columns away.
        (Arc::new(ColumnlessWindows), Mends(&[])),
    ]
}

type PhysicalGuard = fn(&mut Vec<PhysicallyOptimizing>);

/// What is done to the list of DataFusion's physical rules.
fn physical_guards() -> Listed<PhysicalGuard> {
    vec![
        (|rules| filter_pushdown_guard::guard(rules), Mends(&[25296, 25259])),
        (|rules| aggregate_statistics_guard::guard(rules), Mends(&[])),
        (|rules| limit_pushdown_guard::guard(rules), Mends(&[24932, 24958, 25408])),
        (join_orderings::insert, Mends(&[25052, 25053])),
    ]
}

/// In front of DataFusion's.
fn physical_rules_in_front(memory: AggregationMemory) -> Listed<PhysicallyOptimizing> {
    vec![
        (Arc::new(OuterJoinProperties), Mends(&[])),
        (Arc::new(GroupingSetProperties), Mends(&[24421, 24422])),
        (
            Arc::new(SingleStageAggregation(memory)),
            Optimises("no pre-aggregation where it makes nothing smaller"),
        ),
    ]
}

/// Before DataFusion's last check, which refuses plans that lack an order: what adds and what needs sorts.
fn physical_rules_before_check(memory: AggregationMemory) -> Listed<PhysicallyOptimizing> {
    vec![
        (Arc::new(SortedAggregation(memory)), Optimises("sort-based aggregation")),
        (Arc::new(RequiredOrderings), Mends(&[])),
    ]
}

/// Behind DataFusion's.
fn physical_rules_behind() -> Listed<PhysicallyOptimizing> {
    vec![
        (Arc::new(UnorderedLimits), Mends(&[25350, 25349])),
        (Arc::new(CooperativeJoins), Mends(&[19358, 19360])),
    ]
}

fn physical_plan_rules(surroundings: &Surroundings) -> Vec<PhysicallyOptimizing> {
    let mut rules = PhysicalOptimizer::new().rules;
    for (guard, _) in physical_guards() {
        guard(&mut rules);
    }
    let memory = AggregationMemory::new(
        Arc::clone(&surroundings.runtime),
        surroundings.statement_memory,
        surroundings.session_memory,
    );
    let check = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    rules.splice(check..check, rules_of(physical_rules_before_check(memory.clone())));
    rules.splice(..0, rules_of(physical_rules_in_front(memory)));
    rules.extend(rules_of(physical_rules_behind()));
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use datafusion::execution::runtime_env::RuntimeEnv;

    use super::*;

    /// Rules that mend DataFusion for which no issue was found. A new one is looked up, or reported, first.
    const WITHOUT_ISSUE: usize = 15;

    fn surroundings() -> Surroundings {
        Surroundings {
            runtime: Arc::new(RuntimeEnv::default()),
            statement_memory: None,
            session_memory: |_| None,
            interval_style: |_| IntervalStyle::default(),
            date_order: |_| DateOrder::default(),
            takes_sequence_value: |_| false,
        }
    }

    /// Any rule stands for those of tables.
    fn analyzer_rules() -> Listed<Analyzing> {
        let any = || Arc::new(WindowFunctions) as Analyzing;
        let surroundings = surroundings();
        let mut listed = before_coercion(&surroundings, any(), any(), any());
        listed.extend(behind_coercion(&surroundings));
        listed
    }

    fn physical_rules() -> Listed<PhysicallyOptimizing> {
        let memory = AggregationMemory::new(Arc::new(RuntimeEnv::default()), None, |_| None);
        let mut listed = physical_rules_in_front(memory.clone());
        listed.extend(physical_rules_before_check(memory));
        listed.extend(physical_rules_behind());
        listed
    }

    fn reasons() -> Vec<Reason> {
        let any: fn() -> Arc<dyn ExprPlanner> = || Arc::new(ExtractPlanner);
        let mut reasons: Vec<Reason> = Vec::new();
        reasons.extend(expr_planners(any(), any()).iter().map(|(_, reason)| reason));
        reasons.extend(relation_planners().iter().map(|(_, reason)| reason));
        reasons.extend(analyzer_rules().iter().map(|(_, reason)| reason));
        reasons.extend(optimizer_guards().iter().map(|(_, reason)| reason));
        reasons.extend(optimizer_rules().iter().map(|(_, reason)| reason));
        reasons.extend(last_rewrites().iter().map(|(_, reason)| reason));
        reasons.extend(physical_guards().iter().map(|(_, reason)| reason));
        reasons.extend(physical_rules().iter().map(|(_, reason)| reason));
        reasons
    }

    #[test]
    fn rules_say_why_they_are_there() {
        let reasons = reasons();
        let without = reasons.iter().filter(|reason| **reason == Mends(&[])).count();
        assert_eq!(without, WITHOUT_ISSUE, "look for an issue of apache/datafusion first");
        for reason in reasons {
            if let Standard(text) | Optimises(text) = reason {
                assert!(text.len() > 5, "{text}");
            }
        }
    }

    #[test]
    fn rules_have_names_of_their_own() {
        let mut names = BTreeSet::new();
        for (rule, _) in analyzer_rules().into_iter().filter(|(rule, _)| rule.name() != "window_functions") {
            assert!(names.insert(rule.name().to_string()), "{}", rule.name());
        }
        for (rule, _) in optimizer_rules() {
            assert!(names.insert(rule.name().to_string()), "{}", rule.name());
        }
        for (rule, _) in physical_rules() {
            assert!(names.insert(rule.name().to_string()), "{}", rule.name());
        }
    }

    #[test]
    fn files_of_rules_say_what_makes_them_removable() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for room in ["analyzer", "optimizer", "physical"] {
            for entry in std::fs::read_dir(sources.join(room)).unwrap().flatten() {
                let path = entry.path();
                if path.extension().is_none_or(|extension| extension != "rs") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let is_rule =
                    ["AnalyzerRule for", "OptimizerRule for"].iter().any(|rule| text.contains(rule));
                let head: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
                assert!(
                    !is_rule || head.contains("can go"),
                    "{}: what makes the rule removable?",
                    path.display()
                );
                assert!(!is_rule || head.contains("```text"), "{}: no plan before and after", path.display());
            }
        }
    }
}
