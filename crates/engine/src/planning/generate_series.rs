//! `generate_series` and `range` between timestamps of any unit, where DataFusion's take nanoseconds only,
//! and between integers of any width.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

/// Table function wrapper that casts timestamps to nanoseconds and integers to 64 bits.
#[derive(Debug)]
pub(crate) struct Series(pub(crate) Arc<dyn TableFunctionImpl>);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, arguments: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let nanoseconds = |expr: &Expr| match expr {
            // NULL bounds of any type give no rows.
            Expr::Literal(value, metadata) if value.is_null() => {
                Ok(Expr::Literal(ScalarValue::Null, metadata.clone()))
            }
            Expr::Literal(value, metadata) => match value.data_type() {
                DataType::Timestamp(unit, zone) if unit != TimeUnit::Nanosecond => {
                    let kind = DataType::Timestamp(TimeUnit::Nanosecond, zone);
                    Ok(Expr::Literal(value.cast_to(&kind)?, metadata.clone()))
                }
                DataType::Int8 | DataType::Int16 | DataType::Int32 => {
                    Ok(Expr::Literal(value.cast_to(&DataType::Int64)?, metadata.clone()))
                }
                _ => Ok(expr.clone()),
            },
            other => Ok(other.clone()),
        };
        let expressions = arguments.exprs().iter().map(nanoseconds).collect::<Result<Vec<_>>>()?;
        self.0.call_with_args(TableFunctionArgs::new(&expressions, arguments.session()))
    }
}
