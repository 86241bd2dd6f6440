//! SQL types that DataFusion maps differently or not at all.

use crate::types::declared;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Fields, TimeUnit};
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
            ast::DataType::Map(key, value) => {
                let key = self.part(key, "key")?.with_nullable(false);
                let entries = DataType::Struct(Fields::from(vec![key, self.part(value, "value")?]));
                let entries = Arc::new(Field::new("key_value", entries, false));
                Some(Field::new("", DataType::Map(entries, false), true).into())
            }
            ast::DataType::Dec(digits) => Some(Field::new("", decimal(*digits)?, true).into()),
            ast::DataType::Float(precision) => Some(Field::new("", float(precision)?, true).into()),
            other => match declared::of_sql(other)? {
                Some(declared) => Some(declared::field_of(declared)),
                None => harrier_pgcatalog::planned_type(other).map(Into::into),
            },
        })
    }
}

impl SqlTypes {
    /// The key or the value of a map, of which the planner has no types.
    ///
    /// Errors: a type that is not supported in a map (0A000).
    fn part(&self, sql_type: &ast::DataType, name: &str) -> Result<Field> {
        let field = |kind: DataType| Field::new(name, kind, true);
        if let Some(planned) = self.plan_type_field(sql_type)? {
            return Ok(planned.as_ref().clone().with_name(name));
        }
        Ok(field(match sql_type {
            ast::DataType::Boolean => DataType::Boolean,
            ast::DataType::TinyInt(_) => DataType::Int8,
            ast::DataType::SmallInt(_) => DataType::Int16,
            ast::DataType::Int(_) | ast::DataType::Integer(_) => DataType::Int32,
            ast::DataType::BigInt(_) => DataType::Int64,
            ast::DataType::Real => DataType::Float32,
            ast::DataType::DoublePrecision => DataType::Float64,
            ast::DataType::Numeric(digits) => decimal(*digits)?,
            ast::DataType::Text | ast::DataType::Varchar(_) | ast::DataType::Char(_) => DataType::Utf8View,
            ast::DataType::Date => DataType::Date32,
            ast::DataType::Bytea => DataType::Binary,
            ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(element, None)) => {
                DataType::List(Arc::new(self.part(element, Field::LIST_FIELD_DEFAULT_NAME)?))
            }
            ast::DataType::Struct(fields, _) => {
                let field = |field: &ast::StructField| match &field.field_name {
                    Some(name) => self.part(&field.field_type, &name.value),
                    None => self.part(&field.field_type, ""),
                };
                DataType::Struct(fields.iter().map(field).collect::<Result<_>>()?)
            }
            other => {
                let message = format!("type {other} in a map is not supported");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into_datafusion());
            }
        }))
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
