//! Types of SQL that are others here than in DataFusion by itself.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;

/// The types of casts and of columns.
#[derive(Debug)]
pub(crate) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        Ok(match sql_type {
            // To the microsecond, as tables and clients have it, with which it can be compared then.
            ast::DataType::Time(_, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone) => {
                Some(Field::new("", DataType::Time64(TimeUnit::Microsecond), true).into())
            }
            _ => None,
        })
    }
}
