//! `now()`, `current_date`, `current_time` and `statement_timestamp()`: the time at which the transaction or
//! the statement began. The planner has one time only, at which it began with the statement.
//!
//! In a transaction block the first three are of the block, whatever statement they stand in; outside of one
//! a statement is a transaction of its own.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use crate::delegation::delegate_scalar;
use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::functions::datetime::current_date::CurrentDateFunc;
use datafusion::functions::datetime::current_time::CurrentTimeFunc;
use datafusion::functions::datetime::now::NowFunc;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

/// No time of an atomic.
const NONE: i64 = i64::MIN;

/// When the transaction block of a session began, if one is open. Whoever has a copy sees changes.
#[derive(Debug, Clone)]
pub struct BlockStart(Arc<AtomicI64>);

impl Default for BlockStart {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(NONE)))
    }
}

impl BlockStart {
    /// `None`: there is no block any more.
    pub fn set(&self, start: Option<SystemTime>) {
        let start = start.map_or(NONE, |start| DateTime::<Utc>::from(start).timestamp_micros());
        self.0.store(start, Ordering::Relaxed);
    }

    fn get(&self) -> Option<DateTime<Utc>> {
        match self.0.load(Ordering::Relaxed) {
            NONE => None,
            start => DateTime::from_timestamp_micros(start),
        }
    }
}

/// The functions of a session whose blocks begin when `start` says.
pub fn functions(start: &BlockStart, settings: &ConfigOptions) -> [Arc<ScalarUDF>; 4] {
    let of_block = |inner: ScalarUDF| Moment { inner, name: None, start: Some(start.clone()) };
    let statement = Moment { inner: now(settings), name: Some("statement_timestamp"), start: None };
    [
        of_block(now(settings)),
        of_block(CurrentDateFunc::new().into()),
        of_block(CurrentTimeFunc::new().into()),
        statement,
    ]
    .map(|function| Arc::new(ScalarUDF::new_from_impl(function)))
}

/// As tables keep times: what is written is not behind what it is compared with in the same statement.
fn in_microseconds(time: DateTime<Utc>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_micros(time.timestamp_micros())
}

fn now(settings: &ConfigOptions) -> ScalarUDF {
    NowFunc::new_with_config(settings).into()
}

/// One of the planner's functions, with another time.
#[derive(Debug)]
struct Moment {
    inner: ScalarUDF,
    /// `None`: as the planner's.
    name: Option<&'static str>,
    /// `None`: the time is the statement's.
    start: Option<BlockStart>,
}

/// Those of one session are meant: it has one time.
impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && self.name == other.name
    }
}

impl Eq for Moment {}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Moment {
    delegate_scalar!(signature, return_type, return_field_from_args, documentation);

    fn name(&self) -> &str {
        self.name.unwrap_or_else(|| self.inner.name())
    }

    fn aliases(&self) -> &[String] {
        match self.name {
            Some(_) => &[],
            None => self.inner.aliases(),
        }
    }

    fn with_updated_config(&self, settings: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.inner.inner().with_updated_config(settings)?;
        Some(ScalarUDF::new_from_impl(Self { inner, name: self.name, start: self.start.clone() }))
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let of_statement = context.query_execution_start_time();
        // Without a time the planner is not to take one in yet.
        let of_block = of_statement.and(self.start.as_ref()).and_then(BlockStart::get);
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(context.schema()))
            .with_config_options(Arc::clone(context.config_options()))
            .with_query_execution_start_time(of_block.or(of_statement).and_then(in_microseconds))
            .build();
        self.inner.simplify(arguments, &context)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(arguments)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use datafusion::common::ScalarValue;

    use super::*;

    /// What a function of a session is at the start of a statement, in seconds of 1970 or days.
    fn value(function: &ScalarUDF, statement: i64) -> ScalarValue {
        let context = SimplifyContext::builder()
            .with_query_execution_start_time(DateTime::from_timestamp(statement, 0))
            .build();
        match function.simplify(vec![], &context).unwrap() {
            ExprSimplifyResult::Simplified(Expr::Literal(value, _)) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn transaction_times_are_those_of_the_block() {
        let start = BlockStart::default();
        let [now, date, time, statement] = functions(&start, &ConfigOptions::default());
        let nanoseconds =
            |seconds: i64| ScalarValue::TimestampNanosecond(Some(seconds * 1_000_000_000), None);
        assert_eq!(now.aliases(), ["current_timestamp"]);
        assert_eq!(value(&now, 5), nanoseconds(5));
        start.set(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_403)));
        assert_eq!(value(&now, 5), nanoseconds(86_403));
        assert_eq!(value(&date, 5), ScalarValue::Date32(Some(1)));
        assert_eq!(value(&time, 5), ScalarValue::Time64Nanosecond(Some(3_000_000_000)));
        assert_eq!(value(&statement, 5), nanoseconds(5));
        start.set(None);
        assert_eq!(value(&date, 5), ScalarValue::Date32(Some(0)));
    }

    #[test]
    fn transaction_time_needs_a_statement() {
        let start = BlockStart::default();
        start.set(Some(SystemTime::UNIX_EPOCH));
        for function in functions(&start, &ConfigOptions::default()) {
            let simplified = function.simplify(vec![], &SimplifyContext::default()).unwrap();
            assert!(matches!(simplified, ExprSimplifyResult::Original(_)), "{}", function.name());
        }
    }

    #[test]
    fn transaction_times_follow_the_time_zone() {
        let mut settings = ConfigOptions::default();
        let [now, ..] = functions(&BlockStart::default(), &settings);
        settings.execution.time_zone = Some("+02:00".to_string());
        let now = now.inner().with_updated_config(&settings).unwrap();
        assert_eq!(
            value(&now, 1),
            ScalarValue::TimestampNanosecond(Some(1_000_000_000), Some("+02:00".into()))
        );
    }
}
