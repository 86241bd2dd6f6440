//! Converts TIMESTAMPTZ values to the session's time zone, as in PostgreSQL. Tables store them in UTC.
//! Otherwise fields such as days and hours would be those of UTC, and text without a zone would be read as
//! UTC.
//!
//! ```text
//! TableScan: t (m in UTC)  ─►  Projection: CAST(m AS Timestamp(µs, zone)) AS m
//!                                TableScan: t (m in UTC)
//! CAST(text AS Timestamp(µs, UTC))    ─►  CAST(CAST(text AS Timestamp(µs, zone)) AS Timestamp(µs, UTC))
//! CAST(m AS Timestamp(µs))            ─►  CAST(to_local_time(m) AS Timestamp(µs))
//! CAST(local AS Timestamp(µs, zone))  ─►  CAST(harrier_moment(local, zone) AS …)   LocalTimeCasts
//! ```
//! zone is that of the session. With UTC nothing changes.
//!
//! `SessionTimeZone` can go when TIMESTAMPTZ columns are read in the session's zone; related:
//! apache/datafusion#25095, apache/datafusion#25099.
//!
//! `LocalTimeCasts` can go when a cast of a skipped or ambiguous local time returns an instant
//! (apache/datafusion#25084, open); PostgreSQL B.2.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use datafusion::optimizer::AnalyzerRule;
use harrier_functions::datetime::time_zone::{self, is_local};

use crate::rewrite::{input_schema, rewrite_expressions};

/// The zone in which files and tables store timestamps with a time zone, which are instants.
pub const UTC: &str = "UTC";

/// The time zone of a session.
pub fn session_zone(state: &SessionState) -> Arc<str> {
    state.config_options().execution.time_zone.as_deref().unwrap_or(UTC).into()
}

/// The analyzer rule; runs before all rules that read types.
#[derive(Debug)]
pub struct SessionTimeZone;

impl AnalyzerRule for SessionTimeZone {
    fn name(&self) -> &str {
        "session_time_zone"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let Some(zone) = options.execution.time_zone.as_deref().filter(|zone| *zone != UTC) else {
            return Ok(plan);
        };
        let zone: Arc<str> = zone.into();
        Ok(plan.transform_up_with_subqueries(|node| rewrite_node(node, &zone))?.data)
    }
}

/// The analyzer rule that casts local times to instants, including times that a clock change skips or
/// repeats; runs after type coercion, which adds casts.
#[derive(Debug)]
pub struct LocalTimeCasts;

impl AnalyzerRule for LocalTimeCasts {
    fn name(&self) -> &str {
        "local_time_casts"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        if options.execution.time_zone.as_deref().is_none_or(|zone| zone == UTC) {
            return Ok(plan);
        }
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = input_schema(&plan)?;
            rewrite_expressions(plan, |mut expr| {
                let is_changed = match &mut expr {
                    Expr::Cast(Cast { expr, field }) => to_instant(expr, field.data_type(), &schema),
                    _ => false,
                };
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Converts a local time that is cast to a zone with clock changes to an instant first; returns whether it
/// changed anything.
fn to_instant(expr: &mut Expr, wanted: &DataType, schema: &DFSchema) -> bool {
    let DataType::Timestamp(unit, Some(zone)) = wanted else { return false };
    // With a fixed UTC offset each local time occurs once. A cast to nanoseconds handles them.
    let is_plain = zone.as_ref() == UTC || zone.starts_with(['+', '-']) || *unit == TimeUnit::Nanosecond;
    let is_changed = !is_plain && expr.get_type(schema).is_ok_and(|kind| is_local(&kind));
    if is_changed {
        let arguments = vec![std::mem::take(expr), lit(zone.as_ref())];
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(time_zone::moment(), arguments));
    }
    is_changed
}

/// The field with its type in the session zone `zone`.
pub fn field_in_zone(field: &Field, zone: &Arc<str>) -> Field {
    match type_in_zone(field.data_type(), zone) {
        Some(kind) => field.clone().with_data_type(kind),
        None => field.clone(),
    }
}

/// `None` for types without a zone, or with this one.
fn type_in_zone(kind: &DataType, zone: &Arc<str>) -> Option<DataType> {
    match kind {
        DataType::Timestamp(unit, Some(other)) if other != zone => {
            Some(DataType::Timestamp(*unit, Some(Arc::clone(zone))))
        }
        _ => None,
    }
}

fn rewrite_node(node: LogicalPlan, zone: &Arc<str>) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::TableScan(scan) = &node {
        let schema = Arc::clone(&scan.projected_schema);
        if !schema.fields().iter().any(|field| type_in_zone(field.data_type(), zone).is_some()) {
            return Ok(Transformed::no(node));
        }
        let columns = schema.iter().map(|(table, field)| {
            let column = Expr::Column(Column::from((table, field)));
            match type_in_zone(field.data_type(), zone) {
                Some(kind) => cast(column, kind).alias_qualified(table.cloned(), field.name()),
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        return Ok(Transformed::yes(LogicalPlanBuilder::from(node).project(columns)?.build()?));
    }
    // Types of expressions below may have changed.
    let node = node.recompute_schema()?;
    let schema = input_schema(&node)?;
    let changed = rewrite_expressions(node, |mut expr| {
        let is_changed = match &mut expr {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                match field.data_type() {
                    kind if is_table_type(kind) => interpret_in_zone(expr, zone, &schema),
                    DataType::Timestamp(_, None) => to_local(expr, &schema),
                    _ => false,
                }
            }
            _ => false,
        };
        Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    })?;
    Ok(Transformed::yes(changed.data))
}

/// Whether a type is that of table columns; in a session with another zone no other expression has it.
fn is_table_type(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == UTC)
}

/// Interprets a value without a zone in `zone`; returns whether it changed anything.
fn interpret_in_zone(expr: &mut Expr, zone: &Arc<str>, schema: &DFSchema) -> bool {
    let has_no_zone = match expr.get_type(schema) {
        Ok(DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64) => true,
        Ok(kind) => kind.is_string(),
        Err(_) => false,
    };
    if has_no_zone {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone)));
        *expr = cast(std::mem::take(expr), zoned);
    }
    has_no_zone
}

/// Converts an instant that is cast to a timestamp without a zone to local time; returns whether it changed
/// anything.
fn to_local(expr: &mut Expr, schema: &DFSchema) -> bool {
    let has_zone = matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
    if has_zone {
        let local = ScalarFunction::new_udf(datetime::to_local_time(), vec![std::mem::take(expr)]);
        *expr = Expr::ScalarFunction(local);
    }
    has_zone
}
