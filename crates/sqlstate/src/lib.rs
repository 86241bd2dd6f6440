//! Map from an error to its SQLSTATE, the five-character code that PostgreSQL's clients know.
//!
//! [`of`] walks an error by its variants: it unwraps contexts, diagnostics, shared and external wrappers
//! until it finds an error with its own code. It reads text only for [`DataFusionError::Plan`],
//! [`DataFusionError::Execution`], [`DataFusionError::Configuration`],
//! [`DataFusionError::ResourcesExhausted`] and the text-only variants of [`ArrowError`], because DataFusion
//! and Arrow give nothing else there; the phrases are in the tables [`PLAN_PHRASES`], [`EXECUTION_PHRASES`]
//! and [`ARROW_PHRASES`].
//!
//! Source: PostgreSQL's appendix "PostgreSQL Error Codes", and the errno table of its
//! `errcode_for_file_access`.

use std::error::Error;
use std::fmt;
use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use datafusion::sql::sqlparser::parser::ParserError;

use harrier_error::{SqlError, SqlState};

pub use input_error::{bad_text, date_style_hint, is_day};

mod input_error;

/// Text of a scan's error when the file has another version.
pub const FILE_REPLACED: &str = "was replaced while it was read";

/// Wraps an error of Harrier's own for its way through DataFusion, which returns it unchanged.
pub trait IntoDataFusionError {
    fn into_datafusion(self) -> DataFusionError;
}

impl IntoDataFusionError for SqlError {
    fn into_datafusion(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

/// `map_err(external)` converts an error where DataFusion's `Result` is expected.
pub fn external(error: SqlError) -> DataFusionError {
    error.into_datafusion()
}

/// An error of Harrier's own where DataFusion's is expected.
pub fn error(state: SqlState, message: impl Into<String>) -> DataFusionError {
    SqlError::new(state, message).into_datafusion()
}

/// The same for what is not supported (0A000).
pub fn unsupported_error(message: impl Into<String>) -> DataFusionError {
    error(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// An error from another rank, with its original code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteError {
    pub sqlstate: SqlState,
    pub message: String,
    /// The rank it happened on, if known.
    pub rank: Option<u32>,
}

impl RemoteError {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), rank: None }
    }

    pub fn on_rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for RemoteError {}

impl From<RemoteError> for DataFusionError {
    fn from(error: RemoteError) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

/// Maps the text of a panic in query code to an error.
///
/// Arrow panics when a column's offsets overflow, which wide rows repeated by a join cause: 54000. It also
/// panics on unsupported types: 0A000. Any other panic is a bug: XX000.
pub fn of_panic(text: &str) -> SqlError {
    if text.contains("offset overflow") {
        return SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a column of a batch is too large")
            .with_detail("its values take more than 2147483647 bytes or elements");
    }
    if is_of_missing_code(text) {
        return SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "a type is not supported here")
            .with_detail(text.to_string());
    }
    SqlError::new(SqlState::INTERNAL_ERROR, format!("internal error: {text}"))
        .with_hint("this is a bug in the engine; please report it with the statement")
}

/// Whether a panic reports unimplemented code: `unimplemented!` or `todo!`.
pub fn is_of_missing_code(text: &str) -> bool {
    text.starts_with("not implemented") || text.starts_with("not yet implemented")
}

/// Wraps the error of another rank so that [`of`] finds `state` again.
pub fn remote(state: SqlState, message: impl Into<String>) -> DataFusionError {
    RemoteError::new(state, message).into()
}

/// The SQLSTATE of a DataFusion error.
pub fn of(error: &DataFusionError) -> SqlState {
    match error {
        DataFusionError::ArrowError(error, _) => of_arrow(error),
        DataFusionError::ParquetError(error) => of_parquet(error),
        DataFusionError::ObjectStore(error) => of_object_store(error),
        DataFusionError::IoError(error) => of_io(error),
        DataFusionError::SQL(error, _) => match error.as_ref() {
            ParserError::RecursionLimitExceeded => SqlState::STATEMENT_TOO_COMPLEX,
            ParserError::TokenizerError(_) | ParserError::ParserError(_) => SqlState::SYNTAX_ERROR,
        },
        DataFusionError::NotImplemented(text) => {
            by_phrase(NOT_IMPLEMENTED_PHRASES, text).unwrap_or(SqlState::FEATURE_NOT_SUPPORTED)
        }
        DataFusionError::Substrait(_) => SqlState::FEATURE_NOT_SUPPORTED,
        DataFusionError::Internal(text) if text.contains("Failed to parse Arrow file") => {
            SqlState::DATA_CORRUPTED
        }
        DataFusionError::Internal(text) if text.contains("not implemented for type") => {
            SqlState::FEATURE_NOT_SUPPORTED
        }
        DataFusionError::Internal(text) if text.contains("in BETWEEN expression") => {
            SqlState::UNDEFINED_FUNCTION
        }
        DataFusionError::Internal(_) | DataFusionError::Ffi(_) => SqlState::INTERNAL_ERROR,
        DataFusionError::Plan(text) => {
            by_phrase(PLAN_PHRASES, text).unwrap_or(SqlState::SYNTAX_ERROR_OR_ACCESS_RULE)
        }
        DataFusionError::Configuration(text) => {
            if text.contains("unable to get file extension") {
                return SqlState::WRONG_OBJECT_TYPE;
            }
            let unknown = ["not find config", "not found on", "Could not find FileFormat"];
            if unknown.iter().any(|phrase| text.contains(phrase)) {
                SqlState::UNDEFINED_OBJECT
            } else if text.contains("actory has not been configured") {
                // Functions that SQL would define.
                SqlState::FEATURE_NOT_SUPPORTED
            } else {
                SqlState::INVALID_PARAMETER_VALUE
            }
        }
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::AmbiguousReference { .. } => SqlState::AMBIGUOUS_COLUMN,
            SchemaError::DuplicateQualifiedField { .. } => SqlState::DUPLICATE_ALIAS,
            SchemaError::DuplicateUnqualifiedField { .. } => SqlState::DUPLICATE_COLUMN,
            // A qualifier that no visible column has is a table missing from FROM.
            SchemaError::FieldNotFound { field, valid_fields } => match &field.relation {
                Some(relation)
                    if !valid_fields.iter().any(|valid| {
                        valid.relation.as_ref().is_some_and(|known| known.resolved_eq(relation))
                    }) =>
                {
                    SqlState::UNDEFINED_TABLE
                }
                _ => SqlState::UNDEFINED_COLUMN,
            },
        },
        DataFusionError::Execution(text) => of_bad_text(text)
            .or_else(|| by_phrase(EXECUTION_PHRASES, text))
            .unwrap_or(SqlState::DATA_EXCEPTION),
        DataFusionError::ExecutionJoin(error) => {
            if error.is_cancelled() {
                SqlState::QUERY_CANCELED
            } else {
                SqlState::INTERNAL_ERROR
            }
        }
        DataFusionError::ResourcesExhausted(text) => {
            // The variant covers both memory and the limit on temporary files.
            if text.contains("disk space") || text.contains("temp_directory_size") {
                SqlState::DISK_FULL
            } else {
                SqlState::OUT_OF_MEMORY
            }
        }
        DataFusionError::External(error) => of_foreign(error.as_ref()),
        DataFusionError::Context(_, error) | DataFusionError::Diagnostic(_, error) => of(error),
        DataFusionError::Collection(errors) => errors.first().map_or(SqlState::INTERNAL_ERROR, of),
        DataFusionError::Shared(error) => of(error),
    }
}

/// The SQLSTATE of any error, found on it or in its chain of sources.
pub fn of_std(error: &(dyn Error + 'static)) -> Option<SqlState> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<SqlError>() {
            return Some(error.sqlstate);
        }
        if let Some(error) = error.downcast_ref::<RemoteError>() {
            return Some(error.sqlstate);
        }
        if let Some(error) = error.downcast_ref::<DataFusionError>() {
            return Some(of(error));
        }
        if let Some(error) = error.downcast_ref::<std::sync::Arc<DataFusionError>>() {
            return Some(of(error));
        }
        if let Some(error) = error.downcast_ref::<ArrowError>() {
            return Some(of_arrow(error));
        }
        if let Some(error) = error.downcast_ref::<ParquetError>() {
            return Some(of_parquet(error));
        }
        if let Some(error) = error.downcast_ref::<object_store::Error>() {
            return Some(of_object_store(error));
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(of_io(error));
        }
        next = error.source();
    }
    None
}

/// The SQLSTATE of an error whose type cannot be named here: DataFusion passes those of the crate `regex` on.
fn of_foreign(error: &(dyn Error + 'static)) -> SqlState {
    of_std(error).unwrap_or_else(|| {
        if error.to_string().starts_with("regex parse error") {
            SqlState::INVALID_REGULAR_EXPRESSION
        } else {
            SqlState::INTERNAL_ERROR
        }
    })
}

/// Bytes that are invalid in this encoding.
const NOT_UTF8: SqlState = SqlState::CHARACTER_NOT_IN_REPERTOIRE;

fn of_arrow(error: &ArrowError) -> SqlState {
    match error {
        ArrowError::NotYetImplemented(_) => SqlState::FEATURE_NOT_SUPPORTED,
        ArrowError::ExternalError(error) => of_foreign(error.as_ref()),
        ArrowError::CastError(text) => match of_bad_text(text).or_else(|| by_phrase(ARROW_PHRASES, text)) {
            Some(SqlState::INVALID_DATETIME_FORMAT) if has_day(text) => SqlState::DATETIME_FIELD_OVERFLOW,
            state => state.unwrap_or(SqlState::INVALID_TEXT_REPRESENTATION),
        },
        ArrowError::MemoryError(_) => SqlState::OUT_OF_MEMORY,
        ArrowError::ParseError(text) => of_bad_text(text)
            .or_else(|| by_phrase(ARROW_PHRASES, text))
            .unwrap_or(SqlState::INVALID_TEXT_REPRESENTATION),
        ArrowError::SchemaError(_) => SqlState::DATATYPE_MISMATCH,
        ArrowError::ComputeError(text) => by_phrase(ARROW_PHRASES, text).unwrap_or(SqlState::DATA_EXCEPTION),
        ArrowError::DivideByZero => SqlState::DIVISION_BY_ZERO,
        ArrowError::ArithmeticOverflow(_)
        | ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError => SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        ArrowError::OffsetOverflowError(_) => SqlState::PROGRAM_LIMIT_EXCEEDED,
        ArrowError::CsvError(text) if text.contains("UTF-8") => NOT_UTF8,
        ArrowError::CsvError(_) => SqlState::BAD_COPY_FILE_FORMAT,
        ArrowError::JsonError(text) if text.contains("UTF-8") => NOT_UTF8,
        ArrowError::JsonError(_) => SqlState::INVALID_TEXT_REPRESENTATION,
        ArrowError::IoError(_, error) => of_io(error),
        ArrowError::AvroError(_) | ArrowError::IpcError(_) => SqlState::DATA_CORRUPTED,
        ArrowError::ParquetError(text) => {
            by_phrase(PARQUET_PHRASES, text).unwrap_or(SqlState::DATA_CORRUPTED)
        }
        ArrowError::InvalidArgumentError(text) => {
            by_phrase(ARROW_PHRASES, text).unwrap_or(SqlState::INVALID_PARAMETER_VALUE)
        }
        ArrowError::CDataInterface(_) => SqlState::INTERNAL_ERROR,
    }
}

fn of_parquet(error: &ParquetError) -> SqlState {
    match error {
        ParquetError::NYI(_) => SqlState::FEATURE_NOT_SUPPORTED,
        ParquetError::External(error) => of_std(error.as_ref()).unwrap_or(SqlState::DATA_CORRUPTED),
        ParquetError::General(text) => by_phrase(PARQUET_PHRASES, text).unwrap_or(SqlState::DATA_CORRUPTED),
        _ => SqlState::DATA_CORRUPTED,
    }
}

/// The SQLSTATE of an object store's error.
pub fn of_object_store(error: &object_store::Error) -> SqlState {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => SqlState::UNDEFINED_FILE,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => SqlState::INSUFFICIENT_PRIVILEGE,
        E::AlreadyExists { .. } => SqlState::DUPLICATE_FILE,
        // Only reads have preconditions: the file changed since it was listed.
        E::Precondition { .. } => SqlState::SERIALIZATION_FAILURE,
        E::NotSupported { .. } | E::NotImplemented { .. } => SqlState::FEATURE_NOT_SUPPORTED,
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => SqlState::INVALID_PARAMETER_VALUE,
        E::JoinError { source } if source.is_cancelled() => SqlState::QUERY_CANCELED,
        E::JoinError { .. } => SqlState::INTERNAL_ERROR,
        // A truncated response does not mean a corrupt file.
        E::Generic { store: "S3" | "HDFS", source } => {
            let state = of_std(source.as_ref()).filter(|state| *state != SqlState::DATA_CORRUPTED);
            state.unwrap_or(SqlState::IO_ERROR)
        }
        // The local file system wraps the kernel's error in a private type, reachable as the source.
        other => other.source().and_then(of_std).unwrap_or(SqlState::IO_ERROR),
    }
}

fn of_io(error: &io::Error) -> SqlState {
    if let Some(state) = error.get_ref().and_then(|inner| of_std(inner)) {
        return state;
    }
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound => SqlState::UNDEFINED_FILE,
        K::PermissionDenied | K::ReadOnlyFilesystem => SqlState::INSUFFICIENT_PRIVILEGE,
        K::AlreadyExists => SqlState::DUPLICATE_FILE,
        K::NotADirectory | K::IsADirectory | K::DirectoryNotEmpty => SqlState::WRONG_OBJECT_TYPE,
        K::StorageFull | K::QuotaExceeded | K::FileTooLarge => SqlState::DISK_FULL,
        K::OutOfMemory => SqlState::OUT_OF_MEMORY,
        K::UnexpectedEof | K::InvalidData => SqlState::DATA_CORRUPTED,
        K::InvalidInput | K::InvalidFilename => SqlState::INVALID_PARAMETER_VALUE,
        K::Unsupported => SqlState::FEATURE_NOT_SUPPORTED,
        // EMFILE and ENFILE: too many open files in this process, on this machine. Rust names neither.
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => SqlState::INSUFFICIENT_RESOURCES,
        _ => SqlState::IO_ERROR,
    }
}

/// Phrases of DataFusion's planner errors without a variant. The first match wins, so more specific phrases
/// come first. Two phrases joined by `…` must both occur, in this order.
const PLAN_PHRASES: &[(&str, SqlState)] = &[
    ("require unique expression names", SqlState::DUPLICATE_COLUMN),
    ("Aggregate functions are not allowed", SqlState::GROUPING_ERROR),
    ("There is no registered file format", SqlState::WRONG_OBJECT_TYPE),
    ("WITH query name … specified more than once", SqlState::DUPLICATE_ALIAS),
    ("names given as column alias", SqlState::INVALID_COLUMN_REFERENCE),
    ("should satisfy `0 < precision", SqlState::INVALID_PARAMETER_VALUE),
    ("SELECT DISTINCT ON expressions must match", SqlState::INVALID_COLUMN_REFERENCE),
    ("For SELECT DISTINCT, ORDER BY expressions", SqlState::INVALID_COLUMN_REFERENCE),
    ("Order by column out of bounds", SqlState::INVALID_COLUMN_REFERENCE),
    ("Unary operator '-'", SqlState::UNDEFINED_FUNCTION),
    ("Unary operator 'NOT'", SqlState::DATATYPE_MISMATCH),
    ("for logical boolean operation", SqlState::DATATYPE_MISMATCH),
    ("must be boolean", SqlState::DATATYPE_MISMATCH),
    ("Substring without for/from", SqlState::UNDEFINED_FUNCTION),
    ("Inconsistent data length across values list", SqlState::SYNTAX_ERROR),
    ("Inconsistent data type across values list", SqlState::DATATYPE_MISMATCH),
    ("and when …to common types in CASE WHEN", SqlState::UNDEFINED_FUNCTION),
    ("to common types in CASE WHEN", SqlState::DATATYPE_MISMATCH),
    ("an not find compatible types to compare", SqlState::UNDEFINED_FUNCTION),
    ("Expected LIMIT to be an integer", SqlState::DATATYPE_MISMATCH),
    ("Expected OFFSET to be an integer", SqlState::DATATYPE_MISMATCH),
    ("not found in struct", SqlState::UNDEFINED_COLUMN),
    ("unnest() can only be applied", SqlState::DATATYPE_MISMATCH),
    ("Correlated scalar subquery", SqlState::FEATURE_NOT_SUPPORTED),
    ("tep cannot be zero", SqlState::INVALID_PARAMETER_VALUE),
    ("frame offsets for ROWS / GROUPS must be non negative", SqlState::INVALID_PRECEDING_OR_FOLLOWING_SIZE),
    ("Invalid window frame", SqlState::WINDOWING_ERROR),
    ("RANGE requires exactly one ORDER BY column", SqlState::WINDOWING_ERROR),
    ("GROUPS requires an ORDER BY clause", SqlState::WINDOWING_ERROR),
    ("The window … is not defined", SqlState::UNDEFINED_OBJECT),
    ("No files found at", SqlState::UNDEFINED_FILE),
    ("function requires", SqlState::UNDEFINED_FUNCTION),
    ("Substring without for/from", SqlState::UNDEFINED_FUNCTION),
    ("failed to match any signature", SqlState::UNDEFINED_FUNCTION),
    ("is not a variable which can be viewed", SqlState::UNDEFINED_OBJECT),
    ("Cannot find column with position", SqlState::INVALID_COLUMN_REFERENCE),
    ("Invalid function '", SqlState::UNDEFINED_FUNCTION),
    ("Table function '…not found", SqlState::UNDEFINED_FUNCTION),
    ("table function '…not found", SqlState::UNDEFINED_FUNCTION),
    ("Function …not found", SqlState::UNDEFINED_FUNCTION),
    ("There is no UD", SqlState::UNDEFINED_FUNCTION),
    ("There is no window function named", SqlState::UNDEFINED_FUNCTION),
    ("No function matches the given name", SqlState::UNDEFINED_FUNCTION),
    ("Failed to coerce arguments", SqlState::UNDEFINED_FUNCTION),
    ("coercion failed", SqlState::UNDEFINED_FUNCTION),
    ("Cannot coerce arithmetic expression", SqlState::UNDEFINED_FUNCTION),
    ("Cannot infer common argument type", SqlState::UNDEFINED_FUNCTION),
    ("There isn't a common type to coerce", SqlState::UNDEFINED_FUNCTION),
    ("Cannot get result type for", SqlState::UNDEFINED_FUNCTION),
    ("does not support zero arguments", SqlState::UNDEFINED_FUNCTION),
    ("table '…not found", SqlState::UNDEFINED_TABLE),
    ("No table named", SqlState::UNDEFINED_TABLE),
    ("Table not found", SqlState::UNDEFINED_TABLE),
    ("table … does not exist", SqlState::UNDEFINED_TABLE),
    ("relation \"…\" does not exist", SqlState::UNDEFINED_TABLE),
    ("failed to resolve catalog", SqlState::INVALID_CATALOG_NAME),
    ("failed to resolve schema", SqlState::INVALID_SCHEMA_NAME),
    ("is not a variable or a viable config parameter", SqlState::UNDEFINED_OBJECT),
    ("Unknown runtime configuration", SqlState::UNDEFINED_OBJECT),
    ("Column '…not found", SqlState::UNDEFINED_COLUMN),
    ("Column … is not in schema", SqlState::UNDEFINED_COLUMN),
    ("Column count doesn't match", SqlState::SYNTAX_ERROR),
    ("refers to a non existent column", SqlState::SYNTAX_ERROR),
    ("have different number of columns", SqlState::SYNTAX_ERROR),
    ("Invalid qualifier", SqlState::UNDEFINED_TABLE),
    ("must be in GROUP BY", SqlState::GROUPING_ERROR),
    ("must appear in the GROUP BY", SqlState::GROUPING_ERROR),
    ("could not be resolved from available columns", SqlState::GROUPING_ERROR),
    ("is nested inside", SqlState::GROUPING_ERROR),
    ("expressions names must be unique", SqlState::DUPLICATE_ALIAS),
    ("CTE … specified more than once", SqlState::DUPLICATE_ALIAS),
    ("specified more than once", SqlState::SYNTAX_ERROR),
    ("query name … specified more than once", SqlState::DUPLICATE_ALIAS),
    ("LIMIT must be >=", SqlState::INVALID_ROW_COUNT_IN_LIMIT),
    ("OFFSET must be >=", SqlState::INVALID_ROW_COUNT_IN_OFFSET),
    ("Scalar subquery should only return one column", SqlState::SYNTAX_ERROR),
    ("subquery should only return one column", SqlState::SYNTAX_ERROR),
    ("must return exactly one column", SqlState::SYNTAX_ERROR),
    ("more than one row returned", SqlState::CARDINALITY_VIOLATION),
    ("placeholder", SqlState::UNDEFINED_PARAMETER),
    ("No SQL statements were provided", SqlState::SYNTAX_ERROR),
    ("SELECT * with no tables specified", SqlState::SYNTAX_ERROR),
    ("Unsupported SQL dialect", SqlState::INVALID_PARAMETER_VALUE),
    ("Failed to parse", SqlState::INVALID_PARAMETER_VALUE),
    ("Cannot automatically convert", SqlState::DATATYPE_MISMATCH),
    ("Failed to unify", SqlState::DATATYPE_MISMATCH),
    ("Incompatible", SqlState::DATATYPE_MISMATCH),
    ("UNION Column", SqlState::DATATYPE_MISMATCH),
    ("had no data types", SqlState::DATATYPE_MISMATCH),
    ("but got type", SqlState::DATATYPE_MISMATCH),
    ("must be a boolean", SqlState::DATATYPE_MISMATCH),
    ("Cannot create filter with non-boolean predicate", SqlState::DATATYPE_MISMATCH),
    ("Cannot cast", SqlState::DATATYPE_MISMATCH),
    ("must have the same schema", SqlState::DATATYPE_MISMATCH),
    ("does not support", SqlState::FEATURE_NOT_SUPPORTED),
    ("not supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("not yet supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("not currently supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("are not supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("not implemented", SqlState::FEATURE_NOT_SUPPORTED),
    ("Unsupported", SqlState::FEATURE_NOT_SUPPORTED),
    ("Inserts", SqlState::FEATURE_NOT_SUPPORTED),
];

/// Errors raised only in physical planning for which PostgreSQL has a code.
const NOT_IMPLEMENTED_PHRASES: &[(&str, SqlState)] = &[
    ("Unsupported CAST from", SqlState::CANNOT_COERCE),
    ("does not support logical expression AggregateFunction", SqlState::GROUPING_ERROR),
    ("does not support logical expression WindowFunction", SqlState::WINDOWING_ERROR),
];

/// Phrases of DataFusion's execution errors without a variant.
const EXECUTION_PHRASES: &[(&str, SqlState)] = &[
    ("ORDER BY expressions must appear in argument list", SqlState::INVALID_COLUMN_REFERENCE),
    ("negative count not allowed", SqlState::SUBSTRING_ERROR),
    ("overlay start position must be", SqlState::SUBSTRING_ERROR),
    ("invalid Unicode scalar value", SqlState::PROGRAM_LIMIT_EXCEEDED),
    ("string is not a valid identifier", SqlState::INVALID_PARAMETER_VALUE),
    ("format() type specifier", SqlState::INVALID_PARAMETER_VALUE),
    ("too few arguments for format()", SqlState::INVALID_PARAMETER_VALUE),
    ("format specifies argument 0", SqlState::INVALID_PARAMETER_VALUE),
    ("width argument position must be ended by", SqlState::INVALID_PARAMETER_VALUE),
    ("number is out of range", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("null values cannot be formatted", SqlState::NULL_VALUE_NOT_ALLOWED),
    ("invalid input syntax for type", SqlState::INVALID_TEXT_REPRESENTATION),
    ("is not yet defined in this session", SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE),
    ("Types don't match and no valid cast exists", SqlState::DATATYPE_MISMATCH),
    ("square root of a negative number", SqlState::INVALID_ARGUMENT_FOR_POWER),
    ("Unable to parse date from", SqlState::DATETIME_FIELD_OVERFLOW),
    ("Prepared statement '…expects", SqlState::SYNTAX_ERROR),
    ("laceholder '…was not provided", SqlState::UNDEFINED_PARAMETER),
    ("ield position must not be zero", SqlState::INVALID_PARAMETER_VALUE),
    ("LIKE does not support escape_char", SqlState::FEATURE_NOT_SUPPORTED),
    ("NTILE requires a positive", SqlState::INVALID_ARGUMENT_FOR_NTILE),
    ("No space left on device", SqlState::DISK_FULL),
    ("Permission denied", SqlState::INSUFFICIENT_PRIVILEGE),
    ("regex parse error", SqlState::INVALID_REGULAR_EXPRESSION),
    ("Divide by zero", SqlState::DIVISION_BY_ZERO),
    ("divide by zero", SqlState::DIVISION_BY_ZERO),
    ("division by zero", SqlState::DIVISION_BY_ZERO),
    ("Prepared statement '…does not exist", SqlState::INVALID_STATEMENT_NAME),
    ("Prepared statement '…already exists", SqlState::DUPLICATE_PREPARED_STATEMENT),
    ("Schema '…already exists", SqlState::DUPLICATE_SCHEMA),
    ("able '…already exists", SqlState::DUPLICATE_TABLE),
    ("already exists", SqlState::DUPLICATE_TABLE),
    ("Schema '…doesn't exist", SqlState::INVALID_SCHEMA_NAME),
    ("Missing catalog", SqlState::INVALID_CATALOG_NAME),
    ("Missing default catalog", SqlState::INVALID_CATALOG_NAME),
    ("Table '…doesn't exist", SqlState::UNDEFINED_TABLE),
    ("View '…doesn't exist", SqlState::UNDEFINED_TABLE),
    ("Function does not exist", SqlState::UNDEFINED_FUNCTION),
    ("Unable to find factory for", SqlState::UNDEFINED_OBJECT),
    ("can not both be specified", SqlState::SYNTAX_ERROR),
    ("cannot coexist with", SqlState::SYNTAX_ERROR),
    ("returned more than one row", SqlState::CARDINALITY_VIOLATION),
    ("more than one row", SqlState::CARDINALITY_VIOLATION),
    // A date, or a timestamp of another unit, that timestamps do not reach.
    ("converted value exceeds the representable", SqlState::DATETIME_FIELD_OVERFLOW),
    ("requested length too large", SqlState::PROGRAM_LIMIT_EXCEEDED),
    ("verflow", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("out of range", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("not supported", SqlState::FEATURE_NOT_SUPPORTED),
    ("Unsupported", SqlState::FEATURE_NOT_SUPPORTED),
    ("Error parsing timestamp", SqlState::INVALID_DATETIME_FORMAT),
];

/// DataFusion's Parquet reader converts the object store's error to text.
const PARQUET_PHRASES: &[(&str, SqlState)] = &[
    ("encountered non UTF-8 data", NOT_UTF8),
    (FILE_REPLACED, SqlState::SERIALIZATION_FAILURE),
    ("No such file or directory", SqlState::UNDEFINED_FILE),
    ("Permission denied", SqlState::INSUFFICIENT_PRIVILEGE),
    // An object store's error, which the footer reader keeps only as text.
    ("lacked the necessary privileges", SqlState::INSUFFICIENT_PRIVILEGE),
    ("lacked valid authentication", SqlState::INSUFFICIENT_PRIVILEGE),
    // A missing response does not mean a bad file.
    ("Generic S3 error", SqlState::IO_ERROR),
    ("Generic HDFS error", SqlState::IO_ERROR),
];

/// Phrases of Arrow kernels' errors in the text-only variants.
const ARROW_PHRASES: &[(&str, SqlState)] = &[
    ("square root of a negative number", SqlState::INVALID_ARGUMENT_FOR_POWER),
    ("is declared as non-nullable but contains null", SqlState::NOT_NULL_VIOLATION),
    ("regex parse error", SqlState::INVALID_REGULAR_EXPRESSION),
    ("Regular expression did not compile", SqlState::INVALID_REGULAR_EXPRESSION),
    ("Can't cast value", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("verflow", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("is too large to store in a", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("is too small to store in a", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("out of range", SqlState::NUMERIC_VALUE_OUT_OF_RANGE),
    ("Error parsing timestamp", SqlState::INVALID_DATETIME_FORMAT),
    ("Timestamp", SqlState::INVALID_DATETIME_FORMAT),
    ("to value of Date", SqlState::INVALID_DATETIME_FORMAT),
    ("to value of Time", SqlState::INVALID_DATETIME_FORMAT),
    ("interval", SqlState::INVALID_DATETIME_FORMAT),
    ("Casting from … not supported", SqlState::DATATYPE_MISMATCH),
];

fn of_bad_text(text: &str) -> Option<SqlState> {
    bad_text(text).map(|(state, _)| state)
}

/// Whether a failed cast names, in quotes, a date that does not exist.
fn has_day(text: &str) -> bool {
    is_day(text.split('\'').nth(1).unwrap_or_default())
}

fn by_phrase(phrases: &[(&str, SqlState)], text: &str) -> Option<SqlState> {
    phrases.iter().find_map(|(phrase, state)| {
        let mut rest = text;
        for part in phrase.split('…') {
            let at = rest.find(part)?;
            rest = &rest[at + part.len()..];
        }
        Some(*state)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::common::{Column, Diagnostic};

    use super::*;

    fn check(error: DataFusionError, expected: &str) {
        let text = error.to_string();
        assert_eq!(of(&error).as_str(), expected, "{text}");
    }

    #[test]
    fn variants() {
        use DataFusionError as E;
        let arrow = |error: ArrowError| E::ArrowError(Box::new(error), None);
        let parser = |error: ParserError| E::SQL(Box::new(error), None);
        let schema = |error: SchemaError| E::SchemaError(Box::new(error), Box::new(None));
        let store = |error: object_store::Error| E::ObjectStore(Box::new(error));
        let field = Box::new(Column::from_name("x"));

        check(parser(ParserError::ParserError(String::new())), "42601");
        check(parser(ParserError::TokenizerError(String::new())), "42601");
        check(parser(ParserError::RecursionLimitExceeded), "54001");
        check(schema(SchemaError::FieldNotFound { field: field.clone(), valid_fields: vec![] }), "42703");
        check(schema(SchemaError::AmbiguousReference { field }), "42702");
        check(schema(SchemaError::DuplicateUnqualifiedField { name: "x".into() }), "42701");
        check(E::NotImplemented("x".into()), "0A000");
        check(E::Internal("x".into()), "XX000");
        check(E::Internal("Min/Max accumulator not implemented for type Union".into()), "0A000");
        assert_eq!(of_panic("not implemented: See ARROW-8817.").sqlstate.as_str(), "0A000");
        assert_eq!(of_panic("index out of bounds").sqlstate.as_str(), "XX000");
        check(E::ResourcesExhausted("Failed to allocate additional 1 MB".into()), "53200");
        check(
            E::ResourcesExhausted(
                "The used disk space during the spilling process has exceeded the allowable limit".into(),
            ),
            "53100",
        );
        check(arrow(ArrowError::DivideByZero), "22012");
        check(arrow(ArrowError::ArithmeticOverflow("x".into())), "22003");
        check(arrow(ArrowError::CastError("Cannot cast string 'x' to value of Int32 type".into())), "22P02");
        let day = |text: &str| {
            ArrowError::CastError(format!("Cannot cast string '{text}' to value of Date32 type"))
        };
        check(arrow(day("2024-02-30")), "22008");
        check(arrow(day("a day")), "22007");
        check(arrow(ArrowError::CastError("Can't cast value 300 to type Int8".into())), "22003");
        check(arrow(ArrowError::CsvError("x".into())), "22P04");
        check(
            arrow(ArrowError::ParseError(
                "Error while parsing value 'x' as type 'Int64' for column 0 at line 3".into(),
            )),
            "22P02",
        );
        check(arrow(ArrowError::ParquetError("x".into())), "XX001");
        check(E::ParquetError(Box::new(ParquetError::EOF("x".into()))), "XX001");
        check(E::ParquetError(Box::new(ParquetError::NYI("x".into()))), "0A000");
        let vanished = "Failed to fetch metadata for file a.parquet: Object Store error: Object at location /a.parquet \
                        not found: No such file or directory (os error 2)";
        check(E::ParquetError(Box::new(ParquetError::General(vanished.into()))), "58P01");
        check(store(object_store::Error::NotFound { path: "x".into(), source: "x".into() }), "58P01");
        check(
            store(object_store::Error::Generic {
                store: "x",
                source: Box::new(io::Error::from(io::ErrorKind::StorageFull)),
            }),
            "53100",
        );
        check(store(object_store::Error::Generic { store: "x", source: "x".into() }), "58030");
        // A connection that ends early is not a truncated file.
        let cut = |store: &'static str| object_store::Error::Generic {
            store,
            source: Box::new(io::Error::from(io::ErrorKind::UnexpectedEof)),
        };
        check(store(cut("S3")), "58030");
        check(store(cut("HDFS")), "58030");
        check(store(cut("LocalFileSystem")), "XX001");
        let silent = "Failed to fetch metadata for file a.parquet: Parquet error: External: Generic S3 error: Error performing GET \
                      http://here/b/a.parquet in 1.2s, after 2 retries - HTTP error: error sending request";
        check(E::ParquetError(Box::new(ParquetError::General(silent.into()))), "58030");
    }

    #[test]
    fn kernel_errors() {
        for (errno, expected) in [
            (2, "58P01"),
            (13, "42501"),
            (28, "53100"),
            (12, "53200"),
            (24, "53000"),
            (30, "42501"),
            (5, "58030"),
            (21, "42809"),
            (17, "58P02"),
        ] {
            check(DataFusionError::IoError(io::Error::from_raw_os_error(errno)), expected);
        }
    }

    #[test]
    fn texts() {
        for (text, expected) in [
            ("table 'datafusion.public.x' not found", "42P01"),
            ("Invalid function 'x'.\nDid you mean 'y'?", "42883"),
            ("Table function 'x' not found", "42883"),
            ("failed to resolve schema: x", "3F000"),
            ("failed to resolve catalog: x", "3D000"),
            ("'x' is not a variable or a viable config parameter", "42704"),
            ("Column in SELECT must be in GROUP BY or an aggregate function", "42803"),
            ("UNION queries have different number of columns", "42601"),
            ("LIMIT must be >= 0, '-1' was provided", "2201W"),
            ("Savepoints not supported", "0A000"),
            ("something else", "42000"),
        ] {
            check(DataFusionError::Plan(text.into()), expected);
        }
        for (text, expected) in [
            ("Divide by zero error", "22012"),
            ("Table 'x' already exists", "42P07"),
            ("Schema 'x' already exists", "42P06"),
            ("Table 'x' doesn't exist.", "42P01"),
            ("Prepared statement 'x' does not exist", "26000"),
            ("something else", "22000"),
        ] {
            check(DataFusionError::Execution(text.into()), expected);
        }
        for (text, expected) in [
            ("could not find config namespace for key \"x\"", "42704"),
            ("Config value \"x\" not found on ConfigOptions", "42704"),
            ("Error parsing 'x' as bool", "22023"),
            ("Function factory has not been configured", "0A000"),
        ] {
            check(DataFusionError::Configuration(text.into()), expected);
        }
    }

    #[test]
    fn wrappers_are_peeled_off() {
        let full = || DataFusionError::IoError(io::Error::from_raw_os_error(28));
        check(full().context("while"), "53100");
        check(full().with_diagnostic(Diagnostic::new_error("x", None)), "53100");
        check(DataFusionError::Shared(Arc::new(full())), "53100");
        check(DataFusionError::Collection(vec![full()]), "53100");
        check(DataFusionError::External(Box::new(full())), "53100");
        check(DataFusionError::External(Box::new(Arc::new(full()))), "53100");
        check(DataFusionError::from(ArrowError::from(full())), "53100");
        check(DataFusionError::from(ParquetError::External(Box::new(full()))), "53100");
        check(DataFusionError::IoError(io::Error::other(full())), "53100");
        check(DataFusionError::External("text".into()), "XX000");
    }

    #[test]
    fn errors_of_other_ranks_keep_their_code() {
        check(remote(SqlState::DIVISION_BY_ZERO, "division by zero"), "22012");
        let error: DataFusionError = RemoteError::new(SqlState::DISK_FULL, "x").on_rank(3).into();
        check(DataFusionError::from(ArrowError::from(error)), "53100");
        check(SqlError::new(SqlState::UNDEFINED_FILE, "x").into_datafusion(), "58P01");
    }

    #[tokio::test]
    async fn tasks() {
        let task = tokio::spawn(std::future::pending::<()>());
        task.abort();
        let error = task.await.unwrap_err();
        check(DataFusionError::ExecutionJoin(Box::new(error)), "57014");
    }
}
