//! SQL types that DataFusion maps differently or not at all.

use crate::types::declared;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast;
use harrier_error::{SqlError, SqlState};
use harrier_functions::json::Kind;
use harrier_sqlstate::IntoDataFusionError;

/// Type planner for casts and column definitions.
#[derive(Debug)]
pub(crate) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        Ok(match sql_type {
            // In microseconds, as tables and clients have it, so that the two compare.
            ast::DataType::Time(
                None | Some(7..),
                ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone,
            ) => Some(Field::new("", DataType::Time64(TimeUnit::Microsecond), true).into()),
            ast::DataType::Timestamp(None, ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone) => {
                Some(Field::new("", DataType::Timestamp(TimeUnit::Microsecond, None), true).into())
            }
            ast::DataType::JSON => Some(Kind::Json.field("")),
            ast::DataType::JSONB => Some(Kind::Jsonb.field("")),
            ast::DataType::Array(_) => match declared::field_of_array(sql_type) {
                Some(list) => Some(list),
                None => harrier_pgcatalog::planned_type(sql_type).map(Into::into),
            },
            ast::DataType::Dec(digits) => Some(Field::new("", decimal(*digits)?, true).into()),
            ast::DataType::Float(precision) => Some(Field::new("", float(precision)?, true).into()),
            other => match declared::of_sql(other)? {
                Some(declared) => Some(declared::field_of(declared)),
                None => harrier_pgcatalog::planned_type(other).map(Into::into),
            },
        })
    }
}

/// DEC is NUMERIC; the default scale is ten.
fn decimal(digits: ast::ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match digits {
        ast::ExactNumberInfo::None => (u64::from(DECIMAL128_MAX_PRECISION), 10),
        ast::ExactNumberInfo::Precision(precision) => (precision, 0),
        ast::ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=DECIMAL128_MAX_PRECISION), Ok(scale)) if scale.unsigned_abs() <= precision => {
            Ok(DataType::Decimal128(precision, scale))
        }
        _ => {
            let message = format!("DEC({precision}, {scale}): of up to {DECIMAL128_MAX_PRECISION} digits");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
        }
    }
}

/// FLOAT(p) is REAL or DOUBLE PRECISION by its precision in bits, as in PostgreSQL; without one it is DOUBLE
/// PRECISION.
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
