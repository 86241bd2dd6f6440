//! Hive's types, as the planner's.

use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, ExactNumberInfo, TimezoneInfo};

use super::{plain_name, refuse};
use crate::ast_builder::number;
use datafusion::sql::sqlparser::ast::Expr;

/// The digits of a decimal without any.
const DECIMAL: ExactNumberInfo = ExactNumberInfo::PrecisionAndScale(10, 0);

/// Rewrites a type of a column or a cast.
///
/// Errors: UNIONTYPE and others (0A000).
pub(super) fn rewrite(data_type: &mut DataType) -> Result<()> {
    match data_type {
        DataType::Decimal(digits) | DataType::Numeric(digits) | DataType::Dec(digits) => {
            let digits = match *digits {
                ExactNumberInfo::None => DECIMAL,
                ExactNumberInfo::Precision(precision) => ExactNumberInfo::PrecisionAndScale(precision, 0),
                other => other,
            };
            *data_type = DataType::Numeric(digits);
        }
        // Hive's FLOAT has 32 bits, PostgreSQL's 64.
        DataType::Float(ExactNumberInfo::None) => *data_type = DataType::Real,
        DataType::Double(_) => *data_type = DataType::DoublePrecision,
        DataType::String(None) => *data_type = DataType::Text,
        DataType::Binary(None) => *data_type = DataType::Bytea,
        DataType::Timestamp(None, zone @ TimezoneInfo::None) => {
            *data_type = DataType::Timestamp(None, *zone);
        }
        DataType::Array(ArrayElemTypeDef::AngleBracket(element)) => {
            rewrite(element)?;
            let element = std::mem::replace(element.as_mut(), DataType::Text);
            *data_type = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), None));
        }
        DataType::Map(key, value) => {
            rewrite(key)?;
            rewrite(value)?;
        }
        DataType::Struct(fields, _) => {
            for field in fields {
                rewrite(&mut field.field_type)?;
                if let Some(name) = &mut field.field_name {
                    name.value = name.value.to_lowercase();
                    plain_name(name);
                }
            }
        }
        DataType::Custom(name, _) => return Err(refuse(format!("type {name} is not supported"))),
        _ => {}
    }
    Ok(())
}

/// What a cast to a type does.
pub(super) enum Target {
    /// To a type that has this name in Arrow.
    Arrow(String),
    Text,
    /// At most so many characters.
    TextOf(Expr),
    /// As the planner has it.
    Plain,
}

/// The target of a cast to a type that was rewritten.
pub(super) fn target(data_type: &DataType) -> Target {
    let arrow = |name: &str| Target::Arrow(name.to_string());
    match data_type {
        DataType::TinyInt(_) => arrow("Int8"),
        DataType::SmallInt(_) => arrow("Int16"),
        DataType::Int(_) | DataType::Integer(_) => arrow("Int32"),
        DataType::BigInt(_) => arrow("Int64"),
        DataType::Real => arrow("Float32"),
        DataType::DoublePrecision => arrow("Float64"),
        DataType::Boolean => arrow("Boolean"),
        DataType::Date => arrow("Date32"),
        DataType::Timestamp(None, TimezoneInfo::None) => arrow("Timestamp(µs)"),
        DataType::Numeric(ExactNumberInfo::PrecisionAndScale(precision, scale)) => {
            Target::Arrow(format!("Decimal128({precision}, {scale})"))
        }
        DataType::Text => Target::Text,
        DataType::Varchar(Some(length)) | DataType::Char(Some(length)) => {
            let digits: String = length.to_string();
            match digits.parse::<u32>() {
                Ok(digits) => Target::TextOf(number(&digits.to_string())),
                Err(_) => Target::Plain,
            }
        }
        _ => Target::Plain,
    }
}
