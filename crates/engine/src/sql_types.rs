//! Types of SQL that are others here than in DataFusion by itself.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_sqlstate::IntoDataFusionError;

use crate::declared_types;

/// The types of casts and of columns.
#[derive(Debug)]
pub(crate) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        Ok(match sql_type {
            // To the microsecond, as tables and clients have it, with which it can be compared then.
            ast::DataType::Time(
                None | Some(7..),
                ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone,
            ) => Some(Field::new("", DataType::Time64(TimeUnit::Microsecond), true).into()),
            ast::DataType::Timestamp(None, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone) => {
                Some(Field::new("", DataType::Timestamp(TimeUnit::Microsecond, None), true).into())
            }
            ast::DataType::JSON => Some(Kind::Json.field("")),
            ast::DataType::JSONB => Some(Kind::Jsonb.field("")),
            ast::DataType::Array(_) => match declared_types::field_of_array(sql_type) {
                Some(list) => Some(list),
                None => harrier_pgcatalog::planned_type(sql_type).map(Into::into),
            },
            ast::DataType::Float(precision) => Some(Field::new("", float(precision)?, true).into()),
            other => match declared_types::of_sql(other)? {
                Some(declared) => Some(declared_types::field_of(declared)),
                None => harrier_pgcatalog::planned_type(other).map(Into::into),
            },
        })
    }
}

/// FLOAT is as wide as a number of its precision, in bits, needs: PostgreSQL's, and without one all of a
/// double precision.
fn float(precision: &ast::ExactNumberInfo) -> Result<DataType> {
    let (state, message) = match precision {
        ast::ExactNumberInfo::None | ast::ExactNumberInfo::Precision(25..=53) => {
            return Ok(DataType::Float64);
        }
        ast::ExactNumberInfo::Precision(1..=24) => return Ok(DataType::Float32),
        ast::ExactNumberInfo::Precision(0) => {
            (SqlState::INVALID_PARAMETER_VALUE, "precision for type float must be at least 1 bit")
        }
        ast::ExactNumberInfo::Precision(_) => {
            (SqlState::INVALID_PARAMETER_VALUE, "precision for type float must be less than 54 bits")
        }
        ast::ExactNumberInfo::PrecisionAndScale(..) => {
            (SqlState::SYNTAX_ERROR, "type float has a precision and no scale")
        }
    };
    Err(SqlError::new(state, message).into_datafusion())
}
