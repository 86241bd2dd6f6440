//! Declared types of columns: `varchar(n)`, `char(n)`, `uuid`, `time(n)`, `timestamp(n)`. The catalog stores
//!
//! one as a tag of its column (`docs/decisions/0038-declared-types.md`).

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast;
use harrier_catalog::state::{Column, DECLARED_TYPE_TAG as TAG};
use harrier_catalog::types::ColumnType;
use harrier_error::{SqlError, SqlState};
use harrier_functions::cast::declared_type::{DIGITS_MAX, DeclaredType, LENGTH_MAX};
use harrier_pgcatalog::{TYPE_KEY, named_field};
use harrier_planner::analyzer::session_time_zone::UTC;
use harrier_sqlstate::IntoDataFusionError;

use crate::types::columns::{catalog_type_of, schema_of};
use crate::types::{declared, json_columns};

/// The declared type of an SQL type; `None` for other types.
///
/// Errors: an invalid length (22023).
pub(crate) fn of_sql(sql_type: &ast::DataType) -> Result<Option<DeclaredType>> {
    use ast::DataType::{
        Char, CharVarying, Character, CharacterVarying, Custom, Nvarchar, Time, Timestamp, Varchar,
    };
    Ok(match sql_type {
        ast::DataType::Uuid => Some(DeclaredType::Uuid),
        Time(Some(digits), zone) if !has_zone(zone) => digits_of(*digits).map(DeclaredType::Time),
        // `timestamp(0)` and `timestamp(3)` are column types of their own. Six digits are the default, and
        // the planner's literals spell them out.
        Timestamp(Some(6), _) => None,
        Timestamp(Some(digits @ (1 | 2 | 4..)), zone) if !has_zone(zone) => {
            digits_of(*digits).map(DeclaredType::Timestamp)
        }
        Timestamp(Some(digits), zone) if has_zone(zone) => digits_of(*digits).map(DeclaredType::TimestampTz),
        Varchar(length) | CharacterVarying(length) | CharVarying(length) | Nvarchar(length) => {
            Some(DeclaredType::Varchar(length_of(length.as_ref(), "varchar")?))
        }
        Char(length) | Character(length) => {
            Some(DeclaredType::Char(Some(length_of(length.as_ref(), "char")?.unwrap_or(1))))
        }
        Custom(name, sizes) => {
            let is_named = matches!(
                name.0.as_slice(),
                [name] if name.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case("bpchar"))
            );
            match sizes.as_slice() {
                [] if is_named => Some(DeclaredType::Char(None)),
                [size] if is_named => match size.parse() {
                    Ok(size) => Some(DeclaredType::Char(Some(checked_length(size, "char")?))),
                    Err(_) => None,
                },
                _ => None,
            }
        }
        _ => None,
    })
}

pub(crate) fn has_zone(zone: &ast::TimezoneInfo) -> bool {
    matches!(zone, ast::TimezoneInfo::Tz | ast::TimezoneInfo::WithTimeZone)
}

/// `None` for more digits than are stored.
pub(crate) fn digits_of(digits: u64) -> Option<u32> {
    (digits <= DIGITS_MAX).then_some(digits as u32)
}

pub(crate) fn length_of(length: Option<&ast::CharacterLength>, name: &str) -> Result<Option<u32>> {
    match length {
        Some(ast::CharacterLength::IntegerLength { length, .. }) => checked_length(*length, name).map(Some),
        Some(ast::CharacterLength::Max) | None => Ok(None),
    }
}

pub(crate) fn checked_length(length: u64, name: &str) -> Result<u32> {
    let message = match length {
        0 => format!("length for type {name} must be at least 1"),
        1..=LENGTH_MAX => return Ok(length as u32),
        _ => format!("length for type {name} cannot exceed {LENGTH_MAX}"),
    };
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).into_datafusion())
}

/// A nameless field of this type.
pub(crate) fn field_of(declared: DeclaredType) -> FieldRef {
    Arc::new(named_field(Field::new("", kind_of(declared), true), &declared.name()))
}

pub(crate) fn kind_of(declared: DeclaredType) -> DataType {
    match declared {
        DeclaredType::Varchar(_) | DeclaredType::Char(_) | DeclaredType::Uuid => DataType::Utf8View,
        DeclaredType::Time(_) => DataType::Time64(TimeUnit::Microsecond),
        DeclaredType::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DeclaredType::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
    }
}

/// The field of an array of a declared type, `None` for other types. Lengths of array elements are not kept.
pub(crate) fn field_of_array(sql_type: &ast::DataType) -> Option<FieldRef> {
    let (kind, item) = of_array(sql_type)?;
    let field = Field::new("", kind, true);
    Some(Arc::new(match item {
        DeclaredType::Uuid => named_field(field, UUID_ARRAY),
        _ => field,
    }))
}

pub(crate) fn of_array(sql_type: &ast::DataType) -> Option<(DataType, DeclaredType)> {
    use ast::ArrayElemTypeDef::{AngleBracket, SquareBracket};
    let item = |inner: &ast::DataType| {
        let (kind, declared) = match of_sql(inner).ok().flatten() {
            Some(declared) => (kind_of(declared), declared),
            None => of_array(inner)?,
        };
        Some((Arc::new(Field::new_list_field(kind, true)), declared))
    };
    match sql_type {
        ast::DataType::Array(SquareBracket(inner, Some(size))) => {
            let (item, declared) = item(inner)?;
            Some((DataType::FixedSizeList(item, (*size).try_into().ok()?), declared))
        }
        ast::DataType::Array(SquareBracket(inner, None) | AngleBracket(inner)) => {
            let (item, declared) = item(inner)?;
            Some((DataType::List(item), declared))
        }
        _ => None,
    }
}

/// PostgreSQL's name of UUID arrays.
pub(crate) const UUID_ARRAY: &str = "_uuid";

/// The declared type in a field's metadata.
pub(crate) fn of_field(field: &Field) -> Option<DeclaredType> {
    field.metadata().get(TYPE_KEY)?.parse().ok()
}

/// The declared type of a column, if its values have that type.
pub(crate) fn of_column(column: &Column) -> Option<DeclaredType> {
    match column.kind {
        ColumnType::Uuid => return Some(DeclaredType::Uuid),
        ColumnType::TimestampS => return Some(DeclaredType::Timestamp(0)),
        ColumnType::TimestampMs => return Some(DeclaredType::Timestamp(3)),
        _ => {}
    }
    let declared: DeclaredType = column.tags.get(TAG)?.parse().ok()?;
    // Other programs may have changed the column's type.
    let kind = crate::types::columns::type_of(column, false).ok()?;
    declared.is_of(&kind).then_some(declared)
}

/// Sets or clears a column's declared type.
pub(crate) fn declare(column: &mut Column, declared: Option<DeclaredType>) {
    match declared {
        Some(DeclaredType::Uuid) if column.kind == ColumnType::Varchar => column.kind = ColumnType::Uuid,
        // The column type itself is the declared type.
        Some(_) if matches!(column.kind, ColumnType::TimestampS | ColumnType::TimestampMs) => {}
        Some(declared) => drop(column.tags.insert(TAG.to_string(), declared.to_string())),
        None => drop(column.tags.remove(TAG)),
    }
}

/// Sets the declared types of a new table's columns by these names.
///
/// Errors: an array of UUIDs (0A000).
pub(crate) fn declare_all(columns: &mut [Column], names: Vec<Option<String>>) -> Result<()> {
    for (column, name) in columns.iter_mut().zip(names) {
        if name.as_deref() == Some(UUID_ARRAY) {
            return Err(unsupported_uuid_array(&column.name));
        }
        let declared = name.and_then(|name| name.parse().ok());
        declare(column, declared);
        if of_column(column).is_none() {
            declare(column, None);
        }
    }
    Ok(())
}

/// The declared type in a column definition.
///
/// Errors: as [`of_sql`]; an array of UUIDs (0A000).
pub(crate) fn of_definition(sql_type: &ast::DataType, column: &str) -> Result<Option<DeclaredType>> {
    match of_array(sql_type) {
        Some((_, DeclaredType::Uuid)) => Err(unsupported_uuid_array(column)),
        _ => of_sql(sql_type),
    }
}

pub(crate) fn unsupported_uuid_array(column: &str) -> DataFusionError {
    let message = format!("column \"{column}\" of type uuid[] is not supported");
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("text[] keeps them").into_datafusion()
}

/// Adds a column's declared type to its field.
pub(crate) fn with_declared_type(field: Field, column: &Column) -> Field {
    match of_column(column) {
        Some(declared) => named_field(field, &declared.name()),
        None => field,
    }
}

/// The rows that prevent a change of a column's type: an SQL condition on the quoted column name, and the
/// error if a row satisfies it. `None` if no row can.
pub(crate) fn conflicting_rows(
    before: Option<DeclaredType>,
    after: Option<DeclaredType>,
    column: &str,
) -> Option<(String, SqlError)> {
    use DeclaredType::{Char, Time, Timestamp, TimestampTz, Uuid, Varchar};
    let too_long = |size: u32, to: DeclaredType| {
        let message = format!("value too long for type {to}");
        (
            format!("character_length({column}) > {size}"),
            SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message),
        )
    };
    let blanks = |to: DeclaredType| {
        let message = format!("rows with blanks at the end of column {column} cannot be made {to}");
        (
            format!("{column} LIKE '% '"),
            SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint(format!("UPDATE … SET {column} = rtrim({column})")),
        )
    };
    match (before, after?) {
        (Some(Varchar(Some(old)) | Char(Some(old))), Varchar(Some(new))) if old <= new => None,
        (Some(Char(Some(old))), Char(Some(new))) if old <= new => None,
        (_, to @ Varchar(Some(new))) => Some(too_long(new, to)),
        (Some(Char(_)), to @ Char(Some(new))) => Some(too_long(new, to)),
        (_, to @ Char(Some(new))) => {
            let ((long, error), (blank, _)) = (too_long(new, to), blanks(to));
            Some((format!("{long} OR {blank}"), error))
        }
        (Some(Char(_)), Char(None)) | (_, Varchar(None)) => None,
        (_, to @ Char(None)) => Some(blanks(to)),
        (Some(Time(old)), Time(new))
        | (Some(Timestamp(old)), Timestamp(new))
        | (Some(TimestampTz(old)), TimestampTz(new))
            if old <= new =>
        {
            None
        }
        (_, to @ (Time(_) | Timestamp(_) | TimestampTz(_))) => {
            let message = format!("rows with more digits in column {column} cannot be made {to}");
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint(format!("UPDATE … SET {column} = CAST({column} AS {to})"));
            Some((format!("{column} <> CAST({column} AS {to})"), error))
        }
        (_, Uuid) => None,
    }
}

/// The fields of a table as system catalogs show them, including columns that cannot be read.
pub(crate) fn catalog_fields_of(columns: &[Column]) -> Result<Fields> {
    let field = |column: &Column| {
        let field = Field::new(&column.name, catalog_type_of(column)?, column.nullable);
        Ok(Arc::new(declared::with_declared_type(json_columns::with_json_type(field, column), column)))
    };
    columns.iter().map(field).collect()
}

/// The schema of a table's rows with declared types in the fields' metadata.
pub(crate) fn declared_schema_of(columns: &[Column]) -> Result<SchemaRef> {
    let schema = schema_of(columns)?;
    let fields = schema.fields().iter().zip(columns);
    let fields = fields.map(|(field, column)| declared::with_declared_type(Field::clone(field), column));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}
