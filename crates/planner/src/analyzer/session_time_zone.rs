//! TIMESTAMPTZ in the zone of the session, as PostgreSQL has it. Tables have it in UTC: read so, days and
//! hours would be those of UTC, and what is written into them as a text without a zone would be, too.
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
//! `SessionTimeZone` can go when columns of TIMESTAMPTZ are read in the zone of the session; akin:
//! apache/datafusion#25095, apache/datafusion#25099.
//!
//! `LocalTimeCasts` can go when a cast of a local time that is skipped or doubled gives a moment
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

/// Timestamps with a time zone are instants, which files and tables say in this one.
pub const UTC: &str = "UTC";

/// The zone of a session.
pub fn session_zone(state: &SessionState) -> Arc<str> {
    state.config_options().execution.time_zone.as_deref().unwrap_or(UTC).into()
}

/// The rule; to stand before all that looks at types.
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
        Ok(plan.transform_up_with_subqueries(|node| in_zone(node, &zone))?.data)
    }
}

/// The rule that a local time is the moment when clocks of its zone show it, also if they never do, or twice;
/// to stand behind the coercion of types, which adds casts.
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
                    Expr::Cast(Cast { expr, field }) => has_moment(expr, field.data_type(), &schema),
                    _ => false,
                };
                Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
            })
        })?;
        Ok(changed.data)
    }
}

/// Has what is cast to a timestamp of a zone that puts its clocks forward and back be a moment before; tells
/// whether it changed anything.
fn has_moment(expr: &mut Expr, wanted: &DataType, schema: &DFSchema) -> bool {
    let DataType::Timestamp(unit, Some(zone)) = wanted else { return false };
    // A difference to UTC has all times once. A cast to nanoseconds keeps them.
    let is_plain = zone.as_ref() == UTC || zone.starts_with(['+', '-']) || *unit == TimeUnit::Nanosecond;
    let has_moment = !is_plain && expr.get_type(schema).is_ok_and(|kind| is_local(&kind));
    if has_moment {
        let arguments = vec![std::mem::take(expr), lit(zone.as_ref())];
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(time_zone::moment(), arguments));
    }
    has_moment
}

/// A field as a session has it whose zone is `zone`.
pub fn field_in_zone(field: &Field, zone: &Arc<str>) -> Field {
    match kind_in_zone(field.data_type(), zone) {
        Some(kind) => field.clone().with_data_type(kind),
        None => field.clone(),
    }
}

/// `None` for what has no zone, or this one.
fn kind_in_zone(kind: &DataType, zone: &Arc<str>) -> Option<DataType> {
    match kind {
        DataType::Timestamp(unit, Some(other)) if other != zone => {
            Some(DataType::Timestamp(*unit, Some(Arc::clone(zone))))
        }
        _ => None,
    }
}

fn in_zone(node: LogicalPlan, zone: &Arc<str>) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::TableScan(scan) = &node {
        let schema = Arc::clone(&scan.projected_schema);
        if !schema.fields().iter().any(|field| kind_in_zone(field.data_type(), zone).is_some()) {
            return Ok(Transformed::no(node));
        }
        let columns = schema.iter().map(|(table, field)| {
            let column = Expr::Column(Column::from((table, field)));
            match kind_in_zone(field.data_type(), zone) {
                Some(kind) => cast(column, kind).alias_qualified(table.cloned(), field.name()),
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        return Ok(Transformed::yes(LogicalPlanBuilder::from(node).project(columns)?.build()?));
    }
    // What is below it may have other types now.
    let node = node.recompute_schema()?;
    let schema = input_schema(&node)?;
    let changed = rewrite_expressions(node, |mut expr| {
        let is_changed = match &mut expr {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                match field.data_type() {
                    kind if is_of_tables(kind) => read_in(expr, zone, &schema),
                    DataType::Timestamp(_, None) => as_local(expr, &schema),
                    _ => false,
                }
            }
            _ => false,
        };
        Ok(if is_changed { Transformed::yes(expr) } else { Transformed::no(expr) })
    })?;
    Ok(Transformed::yes(changed.data))
}

/// Whether a column of a table has this type, as no other expression has in a session of another zone.
fn is_of_tables(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == UTC)
}

/// Has what says no zone mean `zone`; tells whether it changed anything.
fn read_in(expr: &mut Expr, zone: &Arc<str>, schema: &DFSchema) -> bool {
    let says_none = match expr.get_type(schema) {
        Ok(DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64) => true,
        Ok(kind) => kind.is_string(),
        Err(_) => false,
    };
    if says_none {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone)));
        *expr = cast(std::mem::take(expr), zoned);
    }
    says_none
}

/// Has a moment that becomes a timestamp without a zone be what clocks show in its own; tells whether it
/// changed anything.
fn as_local(expr: &mut Expr, schema: &DFSchema) -> bool {
    let has_zone = matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, Some(_))));
    if has_zone {
        let local = ScalarFunction::new_udf(datetime::to_local_time(), vec![std::mem::take(expr)]);
        *expr = Expr::ScalarFunction(local);
    }
    has_zone
}
