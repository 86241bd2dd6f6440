//! All planning rules of a session in the order in which they run: DataFusion's, and ours before, between and
//! after them.
//!
//! ```text
//! SQL ─► type, relation and expression planners ─► logical plan
//!     ─► analyzer rules before type coercion, DataFusion's (which coerce types), those after it
//!     ─► optimizer rules: DataFusion's, some of them guarded, and ours after them
//!     ─► once, after the last optimizer pass: ANDs and ORs that short-circuit
//!     ─► physical optimizer rules: ours in front, DataFusion's, ours before its last check and after it
//! ```
//!
//! Two rules need what the planner does not have, and are added by who has it: `CompactStringViews`
//! (`engine/src/session/planner.rs`, and on ranks), and `DistinctCalls` for sequences
//! (`engine/src/warehouse/sequences/functions.rs`).
//!
//! A guarded rule is DataFusion's own, kept from plans that it would rewrite wrongly. The file of each rule
//! documents it.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::{Expr, LogicalPlan};
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
use crate::analyzer::linear_sums::LinearSums;
use crate::analyzer::negative_zero::{NegativeZeros, ZeroJoinKeys};
use crate::analyzer::nested_order::NestedOrder;
use crate::analyzer::outer_level_aggregate::{OuterAggregatePlanner, OuterLevelAggregates};
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
use crate::binder::hive_operators::HiveOperatorPlanner;
use crate::binder::integer_negation::IntegerNegationPlanner;
use crate::binder::integer_shift::IntegerShiftPlanner;
use crate::binder::map_subscript::MapSubscriptPlanner;
use crate::binder::operator_chains::OperatorChainPlanner;
use crate::binder::outer_qualifiers::OuterQualifierPlanner;
use crate::binder::pivot::PivotPlanner;
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
use crate::physical::grouping_sets::GroupingSetsByFinest;
use crate::physical::limit_pushdown_guard::{self, UnorderedLimits};
use crate::physical::outer_join_properties::OuterJoinProperties;
use crate::physical::required_orderings::RequiredOrderings;
use crate::physical::single_stage_aggregation::SingleStageAggregation;
use crate::physical::sorted_aggregation::SortedAggregation;
use crate::physical::{
    aggregate_statistics_guard, filter_pushdown_guard, join_orderings, join_reordering, shared_subplans,
};

type AnalyzerRuleRef = Arc<dyn AnalyzerRule + Send + Sync>;
type OptimizerRuleRef = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicalRuleRef = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Why a rule exists. Its file says when it can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// DataFusion returns wrong results, fails, or plans for too long: issues and pull requests of
    /// apache/datafusion. Empty: none was found.
    Fixes(&'static [u32]),
    /// SQL and DataFusion differ in meaning: the section of the standard or of PostgreSQL's documentation.
    Standard(&'static str),
    /// Saves time or memory: the technique.
    Optimises(&'static str),
}

use Reason::{Fixes, Optimises, Standard};

/// A rule, or a function that guards one of DataFusion's, with the reason.
type RuleList<R> = Vec<(R, Reason)>;

/// The process resources and session settings that rules need.
#[derive(Debug)]
pub struct RuleContext {
    pub runtime: Arc<RuntimeEnv>,
    /// The memory limit of any statement, in bytes; `None`: unlimited.
    pub statement_memory: Option<u64>,
    /// The memory limit that a session sets, in bytes.
    pub session_memory: fn(&ConfigOptions) -> Option<usize>,
    /// Whether equal parts of a plan run once; never where several ranks may run it.
    pub shares_subplans: fn(&ConfigOptions) -> bool,
    /// How a session formats intervals.
    pub interval_style: fn(&ConfigOptions) -> IntervalStyle,
    /// How a session parses ambiguous dates.
    pub date_order: fn(&ConfigOptions) -> DateOrder,
    /// Whether an expression draws a value of a sequence.
    pub takes_sequence_value: fn(&Expr) -> bool,
}

/// Rules that know the declared types of warehouse tables. They run between the others.
#[derive(Debug)]
pub struct TableRules {
    pub json_values: AnalyzerRuleRef,
    pub declared_types: AnalyzerRuleRef,
    pub unknown_literals: AnalyzerRuleRef,
    pub json_operators: Arc<dyn ExprPlanner>,
    pub time_differences: Arc<dyn ExprPlanner>,
    pub types: Arc<dyn TypePlanner>,
    pub literals: LiteralTypes,
}

/// Coercion of quoted literals to the types of values beside them, before the planner computes the types of
/// expressions above.
#[derive(Debug, Clone, Copy)]
pub struct LiteralTypes {
    /// In the rows of VALUES.
    pub coerce_rows: fn(&mut [Vec<Expr>]) -> Result<()>,
    /// In the set operations of a relation.
    pub coerce_columns: fn(LogicalPlan) -> Result<LogicalPlan>,
}

/// Adds rules, expression and relation planners, and cardinality estimates to a session.
pub fn install(
    mut builder: SessionStateBuilder,
    context: &RuleContext,
    tables: TableRules,
) -> SessionStateBuilder {
    let mut planners = rules_of(expr_planners(tables.json_operators, tables.time_differences));
    let given = builder.expr_planners().get_or_insert_default();
    planners.append(given);
    *given = planners;
    builder = builder
        .with_type_planner(tables.types)
        .with_relation_planners(rules_of(relation_planners(tables.literals)));

    let mut analyzer = Analyzer::new();
    let before = before_coercion(context, tables.json_values, tables.declared_types, tables.unknown_literals);
    analyzer.rules.splice(..0, rules_of(before));
    analyzer.rules.extend(rules_of(after_coercion(context)));
    builder = builder.with_analyzer_rules(analyzer.rules);

    let mut optimizer = Optimizer::new();
    for (guard, _) in optimizer_guards() {
        guard(&mut optimizer.rules);
    }
    optimizer.rules.extend(rules_of(optimizer_rules()));
    builder = builder.with_optimizer_rules(optimizer.rules);

    builder = builder.with_physical_optimizer_rules(physical_plan_rules(context));
    builder = builder.with_statistics_registry(filter_selectivity::registry());
    cancelable_rules::install(&mut builder);
    builder
}

/// Adds the rewrites that run on an optimized plan, just before it becomes a physical one. Call it after
/// `builder` has its physical planner.
pub fn install_last(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    for (last, _) in last_rewrites() {
        builder = last(builder);
    }
    builder
}

type LastRewrite = fn(SessionStateBuilder) -> SessionStateBuilder;

fn last_rewrites() -> RuleList<LastRewrite> {
    vec![(short_circuit::install, Fixes(&[8927]))]
}

fn rules_of<R>(listed: RuleList<R>) -> Vec<R> {
    listed.into_iter().map(|(rule, _)| rule).collect()
}

/// Called before DataFusion's, in this order.
fn expr_planners(
    json_operators: Arc<dyn ExprPlanner>,
    time_differences: Arc<dyn ExprPlanner>,
) -> RuleList<Arc<dyn ExprPlanner>> {
    vec![
        // First: the others plan the operators that it leaves.
        (Arc::new(HiveOperatorPlanner), Standard("Hive 4.0.1, operators")),
        (time_differences, Standard("PostgreSQL 10.2")),
        (Arc::new(OperatorChainPlanner), Fixes(&[12604])),
        (Arc::new(IntegerNegationPlanner), Standard("PostgreSQL 9.3")),
        (Arc::new(IntegerShiftPlanner), Standard("PostgreSQL 9.3")),
        (Arc::new(ByteaOperatorPlanner), Standard("PostgreSQL 9.5")),
        (json_operators, Standard("PostgreSQL 9.16")),
        (Arc::new(ArrayOverlapPlanner), Standard("PostgreSQL 9.19")),
        (Arc::new(OuterQualifierPlanner), Standard("SQL:2016 6.6, scopes of names")),
        (Arc::new(MapSubscriptPlanner), Fixes(&[25201])),
        (Arc::new(ArraySubscriptPlanner), Standard("PostgreSQL 8.15.3")),
        (Arc::new(ExtractPlanner), Standard("PostgreSQL 9.9.1")),
        (Arc::new(OuterAggregatePlanner), Standard("PostgreSQL 4.2.7")),
    ]
}

fn relation_planners(literals: LiteralTypes) -> RuleList<Arc<dyn RelationPlanner>> {
    let LiteralTypes { coerce_rows, coerce_columns } = literals;
    vec![
        // First: it plans a relation again, and changes the result.
        (Arc::new(KeyedRelations { coerce_columns }), Fixes(&[])),
        (Arc::new(ColumnAliasPlanner), Standard("PostgreSQL 7.2.1.2")),
        (Arc::new(PivotPlanner), Standard("DuckDB and Snowflake: PIVOT and UNPIVOT")),
        (Arc::new(TableSamplePlanner), Standard("PostgreSQL, SELECT: TABLESAMPLE")),
        (Arc::new(ValuesPlanner { coerce_rows }), Fixes(&[])),
        (Arc::new(TableFunctionPlanner), Standard("PostgreSQL 7.2.1.4")),
    ]
}

/// Rules that see expressions as written: untyped literals, operands of different types.
fn before_coercion(
    context: &RuleContext,
    json_values: AnalyzerRuleRef,
    declared_types: AnalyzerRuleRef,
    unknown_literals: AnalyzerRuleRef,
) -> RuleList<AnalyzerRuleRef> {
    let takes_sequence_value = context.takes_sequence_value;
    vec![
        // First: the other rules see aggregates where they belong.
        (Arc::new(OuterLevelAggregates), Standard("PostgreSQL 4.2.7")),
        (Arc::new(SubqueryOrderBy), Standard("PostgreSQL 7.5")),
        (json_values, Standard("PostgreSQL 8.14")),
        // Rows with subqueries become queries here; the rules below visit these subqueries.
        (Arc::new(ValuesSubqueries { takes_sequence_value }), Fixes(&[])),
        (declared_types, Standard("PostgreSQL 8.3")),
        (unknown_literals, Standard("PostgreSQL 10.2")),
        (Arc::new(QuantifiedSubqueries), Fixes(&[25347, 25473, 25336, 8241])),
        (Arc::new(SessionTimeZone), Standard("PostgreSQL 8.5.3")),
        (Arc::new(TimestampCoercion), Fixes(&[22759, 8336, 19527])),
        (Arc::new(OutOfRangeTimestamps), Fixes(&[22759, 8336])),
        (Arc::new(DecimalDoubleComparisons), Fixes(&[14272, 8302])),
        (Arc::new(SetOperationTypes), Standard("PostgreSQL 10.5")),
        (Arc::new(IntegerWidths), Standard("PostgreSQL 4.1.2.6")),
        (Arc::new(ByteaLike), Standard("PostgreSQL 9.5")),
        (Arc::new(BooleanTextCasts), Standard("PostgreSQL 9.4")),
        (Arc::new(JoinConditionSubqueries), Fixes(&[])),
        (Arc::new(WindowPeers), Fixes(&[24357, 24515, 24916])),
        (Arc::new(IntervalComparisons), Standard("PostgreSQL 10.2")),
        // After all that read window frames as written.
        (Arc::new(IntervalOrders), Standard("PostgreSQL 8.5.4")),
    ]
}

/// Rules that see expressions with the casts of type coercion.
fn after_coercion(context: &RuleContext) -> RuleList<AnalyzerRuleRef> {
    let RuleContext { interval_style, date_order, .. } = *context;
    vec![
        (Arc::new(OuterReferenceTypes), Fixes(&[])),
        (Arc::new(CheckedArithmetic), Standard("PostgreSQL 8.1.1")),
        (Arc::new(NearestDoubleCasts), Fixes(&[])),
        (Arc::new(TimestampDifferences), Standard("PostgreSQL 9.9")),
        (Arc::new(TextCasts { interval_style, date_order }), Standard("PostgreSQL 8.5")),
        (Arc::new(LocalTimeCasts), Fixes(&[25084])),
        (Arc::new(SetOperationAll), Fixes(&[12955, 12956])),
        (Arc::new(ScalarSubqueries), Fixes(&[16137, 24972, 24783])),
        // After all that create windows, sort orders and groups.
        (Arc::new(IntervalSpans), Standard("PostgreSQL 8.5.4")),
        // After all that visit subqueries: it leaves none that is correlated.
        (Arc::new(Decorrelation), Fixes(&[5492])),
        (Arc::new(LinearSums), Optimises("one sum and one count for sums of a column with constants")),
        (Arc::new(LikeEscapes), Fixes(&[13312])),
        (Arc::new(NegativeZeros), Fixes(&[22826, 25186])),
        // After all that replace values in arrays.
        (Arc::new(NestedOrder), Standard("PostgreSQL 9.19")),
        (Arc::new(BoundedResults::new(&context.runtime)), Optimises("admission by size before work")),
        (Arc::new(OuterReferenceNames), Fixes(&[])),
        // After all that change arguments.
        (Arc::new(FilteredArguments), Fixes(&[8927])),
        (Arc::new(WindowFunctions), Fixes(&[])),
    ]
}

type OptimizerGuard = fn(&mut Vec<OptimizerRuleRef>);

/// Changes to DataFusion's list of optimizer rules.
fn optimizer_guards() -> RuleList<OptimizerGuard> {
    vec![
        (|rules| filter_pushdown::guard(rules), Fixes(&[25415, 25416])),
        (|rules| distinct_list_aggregates::guard(rules), Standard("PostgreSQL 4.2.7")),
        (|rules| simplification::guard(rules), Fixes(&[24258, 8927, 25143])),
        (|rules| join_chain_limit::guard(rules), Fixes(&[])),
        (duplicate_windows::insert, Fixes(&[15190, 24750])),
        (|rules| unique_keys::guard(rules), Fixes(&[])),
        (short_circuit::insert, Fixes(&[8927])),
        (schema_refresh::insert, Fixes(&[22895, 22903])),
    ]
}

/// Run after DataFusion's.
fn optimizer_rules() -> RuleList<OptimizerRuleRef> {
    vec![
        (Arc::new(TimestampPrecisionComparisons), Fixes(&[22906])),
        (Arc::new(ZeroJoinKeys), Fixes(&[22826, 25186])),
        (Arc::new(DuplicateSortKeys), Fixes(&[25398, 25400])),
        (Arc::new(ComputedSortKeys), Fixes(&[])),
        // After the rule that prunes columns.
        (Arc::new(ColumnlessWindows), Fixes(&[])),
    ]
}

type PhysicalGuard = fn(&mut Vec<PhysicalRuleRef>, &RuleContext);

/// Changes to DataFusion's list of physical rules.
fn physical_guards() -> RuleList<PhysicalGuard> {
    vec![
        (|rules, _| filter_pushdown_guard::guard(rules), Fixes(&[25296, 25259])),
        (|rules, _| aggregate_statistics_guard::guard(rules), Fixes(&[])),
        (|rules, _| limit_pushdown_guard::guard(rules), Fixes(&[24932, 24958, 25408])),
        (|rules, _| join_orderings::insert(rules), Fixes(&[25052, 25053])),
        (
            |rules, _| join_reordering::insert(rules),
            Optimises("join order by dynamic programming over hypergraphs"),
        ),
        (
            |rules, context| shared_subplans::insert(rules, context.shares_subplans),
            Optimises("common subplan elimination"),
        ),
    ]
}

/// Run before DataFusion's.
fn physical_rules_before(memory: AggregationMemory) -> RuleList<PhysicalRuleRef> {
    vec![
        (Arc::new(OuterJoinProperties), Fixes(&[])),
        (Arc::new(GroupingSetProperties), Fixes(&[24421, 24422])),
        (Arc::new(GroupingSetsByFinest), Optimises("coarser grouping sets from the states of the finest")),
        (
            Arc::new(SingleStageAggregation(memory)),
            Optimises("no pre-aggregation where it makes nothing smaller"),
        ),
    ]
}

/// Run before DataFusion's sanity check, which rejects plans that lack an ordering: rules that add or need
/// sorts.
fn physical_rules_before_check(memory: AggregationMemory) -> RuleList<PhysicalRuleRef> {
    vec![
        (Arc::new(SortedAggregation(memory)), Optimises("sort-based aggregation")),
        (Arc::new(RequiredOrderings), Fixes(&[])),
    ]
}

/// Run after DataFusion's.
fn physical_rules_after() -> RuleList<PhysicalRuleRef> {
    vec![
        (Arc::new(UnorderedLimits), Fixes(&[25350, 25349])),
        (Arc::new(CooperativeJoins), Fixes(&[19358, 19360])),
    ]
}

fn physical_plan_rules(context: &RuleContext) -> Vec<PhysicalRuleRef> {
    let mut rules = PhysicalOptimizer::new().rules;
    for (guard, _) in physical_guards() {
        guard(&mut rules, context);
    }
    let memory = AggregationMemory::new(
        Arc::clone(&context.runtime),
        context.statement_memory,
        context.session_memory,
    );
    let check = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    rules.splice(check..check, rules_of(physical_rules_before_check(memory.clone())));
    rules.splice(..0, rules_of(physical_rules_before(memory)));
    rules.extend(rules_of(physical_rules_after()));
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use datafusion::execution::runtime_env::RuntimeEnv;

    use super::*;

    /// Fixes of DataFusion without a known issue. Before adding one, look for an issue or report one.
    const WITHOUT_ISSUE: usize = 15;

    fn context() -> RuleContext {
        RuleContext {
            runtime: Arc::new(RuntimeEnv::default()),
            statement_memory: None,
            session_memory: |_| None,
            shares_subplans: |_| true,
            interval_style: |_| IntervalStyle::default(),
            date_order: |_| DateOrder::default(),
            takes_sequence_value: |_| false,
        }
    }

    /// Any rule stands in for those of tables.
    fn analyzer_rules() -> RuleList<AnalyzerRuleRef> {
        let any = || Arc::new(WindowFunctions) as AnalyzerRuleRef;
        let context = context();
        let mut listed = before_coercion(&context, any(), any(), any());
        listed.extend(after_coercion(&context));
        listed
    }

    fn physical_rules() -> RuleList<PhysicalRuleRef> {
        let memory = AggregationMemory::new(Arc::new(RuntimeEnv::default()), None, |_| None);
        let mut listed = physical_rules_before(memory.clone());
        listed.extend(physical_rules_before_check(memory));
        listed.extend(physical_rules_after());
        listed
    }

    fn reasons() -> Vec<Reason> {
        let any: fn() -> Arc<dyn ExprPlanner> = || Arc::new(ExtractPlanner);
        let mut reasons: Vec<Reason> = Vec::new();
        reasons.extend(expr_planners(any(), any()).iter().map(|(_, reason)| reason));
        let literals = LiteralTypes { coerce_rows: |_| Ok(()), coerce_columns: Ok };
        reasons.extend(relation_planners(literals).iter().map(|(_, reason)| reason));
        reasons.extend(analyzer_rules().iter().map(|(_, reason)| reason));
        reasons.extend(optimizer_guards().iter().map(|(_, reason)| reason));
        reasons.extend(optimizer_rules().iter().map(|(_, reason)| reason));
        reasons.extend(last_rewrites().iter().map(|(_, reason)| reason));
        reasons.extend(physical_guards().iter().map(|(_, reason)| reason));
        reasons.extend(physical_rules().iter().map(|(_, reason)| reason));
        reasons
    }

    #[test]
    fn rules_have_reasons() {
        let reasons = reasons();
        let without = reasons.iter().filter(|reason| **reason == Fixes(&[])).count();
        assert_eq!(without, WITHOUT_ISSUE, "look for an issue of apache/datafusion first");
        for reason in reasons {
            if let Standard(text) | Optimises(text) = reason {
                assert!(text.len() > 5, "{text}");
            }
        }
    }

    #[test]
    fn rule_names_are_unique() {
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
    fn rule_files_document_removal() {
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
