//! The five-character code of an error that PostgreSQL's clients know.
//!
//! This is the only place that spells a code. Source: PostgreSQL's appendix "PostgreSQL Error Codes"; the
//! names are its condition names, without words that say nothing here.

use std::fmt;

/// A SQLSTATE: five ASCII digits or capital letters, the first two of which are its class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

impl SqlState {
    pub const SUCCESSFUL_COMPLETION: Self = Self::literal("00000");
    pub const WARNING: Self = Self::literal("01000");
    pub const CONNECTION_NOT_ESTABLISHED: Self = Self::literal("08001");
    pub const CONNECTION_FAILURE: Self = Self::literal("08006");
    pub const PROTOCOL_VIOLATION: Self = Self::literal("08P01");
    pub const FEATURE_NOT_SUPPORTED: Self = Self::literal("0A000");
    pub const INVALID_GRANT_OPERATION: Self = Self::literal("0LP01");
    pub const CARDINALITY_VIOLATION: Self = Self::literal("21000");
    pub const DATA_EXCEPTION: Self = Self::literal("22000");
    pub const STRING_DATA_RIGHT_TRUNCATION: Self = Self::literal("22001");
    pub const NUMERIC_VALUE_OUT_OF_RANGE: Self = Self::literal("22003");
    pub const NULL_VALUE_NOT_ALLOWED: Self = Self::literal("22004");
    pub const INVALID_DATETIME_FORMAT: Self = Self::literal("22007");
    pub const DATETIME_FIELD_OVERFLOW: Self = Self::literal("22008");
    pub const SEQUENCE_GENERATOR_LIMIT_EXCEEDED: Self = Self::literal("2200H");
    pub const SUBSTRING_ERROR: Self = Self::literal("22011");
    pub const DIVISION_BY_ZERO: Self = Self::literal("22012");
    pub const INVALID_PRECEDING_OR_FOLLOWING_SIZE: Self = Self::literal("22013");
    pub const INVALID_ARGUMENT_FOR_NTILE: Self = Self::literal("22014");
    pub const INVALID_ARGUMENT_FOR_NTH_VALUE: Self = Self::literal("22016");
    pub const INVALID_REGULAR_EXPRESSION: Self = Self::literal("2201B");
    pub const INVALID_ARGUMENT_FOR_LOGARITHM: Self = Self::literal("2201E");
    pub const INVALID_ARGUMENT_FOR_POWER: Self = Self::literal("2201F");
    pub const INVALID_ARGUMENT_FOR_WIDTH_BUCKET: Self = Self::literal("2201G");
    pub const INVALID_ROW_COUNT_IN_LIMIT: Self = Self::literal("2201W");
    pub const INVALID_ROW_COUNT_IN_OFFSET: Self = Self::literal("2201X");
    pub const CHARACTER_NOT_IN_REPERTOIRE: Self = Self::literal("22021");
    pub const INVALID_PARAMETER_VALUE: Self = Self::literal("22023");
    pub const INVALID_ESCAPE_SEQUENCE: Self = Self::literal("22025");
    pub const ARRAY_ELEMENT_ERROR: Self = Self::literal("2202E");
    pub const INVALID_TABLESAMPLE_REPEAT: Self = Self::literal("2202G");
    pub const INVALID_TABLESAMPLE_ARGUMENT: Self = Self::literal("2202H");
    pub const INVALID_TEXT_REPRESENTATION: Self = Self::literal("22P02");
    pub const INVALID_BINARY_REPRESENTATION: Self = Self::literal("22P03");
    pub const BAD_COPY_FILE_FORMAT: Self = Self::literal("22P04");
    pub const UNTRANSLATABLE_CHARACTER: Self = Self::literal("22P05");
    pub const NOT_NULL_VIOLATION: Self = Self::literal("23502");
    pub const UNIQUE_VIOLATION: Self = Self::literal("23505");
    pub const CHECK_VIOLATION: Self = Self::literal("23514");
    pub const INVALID_TRANSACTION_STATE: Self = Self::literal("25000");
    pub const ACTIVE_TRANSACTION: Self = Self::literal("25001");
    pub const READ_ONLY: Self = Self::literal("25006");
    pub const NO_ACTIVE_TRANSACTION: Self = Self::literal("25P01");
    pub const FAILED_TRANSACTION: Self = Self::literal("25P02");
    pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: Self = Self::literal("25P03");
    pub const INVALID_STATEMENT_NAME: Self = Self::literal("26000");
    pub const INVALID_AUTHORIZATION_SPECIFICATION: Self = Self::literal("28000");
    pub const INVALID_PASSWORD: Self = Self::literal("28P01");
    pub const DEPENDENT_OBJECTS: Self = Self::literal("2BP01");
    pub const INVALID_CURSOR_NAME: Self = Self::literal("34000");
    pub const INVALID_SAVEPOINT: Self = Self::literal("3B001");
    pub const INVALID_CATALOG_NAME: Self = Self::literal("3D000");
    pub const INVALID_SCHEMA_NAME: Self = Self::literal("3F000");
    pub const SERIALIZATION_FAILURE: Self = Self::literal("40001");
    pub const COMPLETION_UNKNOWN: Self = Self::literal("40003");
    pub const DEADLOCK_DETECTED: Self = Self::literal("40P01");
    pub const SYNTAX_ERROR_OR_ACCESS_RULE: Self = Self::literal("42000");
    pub const INSUFFICIENT_PRIVILEGE: Self = Self::literal("42501");
    pub const SYNTAX_ERROR: Self = Self::literal("42601");
    pub const INVALID_NAME: Self = Self::literal("42602");
    pub const DUPLICATE_COLUMN: Self = Self::literal("42701");
    pub const AMBIGUOUS_COLUMN: Self = Self::literal("42702");
    pub const UNDEFINED_COLUMN: Self = Self::literal("42703");
    pub const UNDEFINED_OBJECT: Self = Self::literal("42704");
    pub const DUPLICATE_OBJECT: Self = Self::literal("42710");
    pub const DUPLICATE_ALIAS: Self = Self::literal("42712");
    pub const DUPLICATE_FUNCTION: Self = Self::literal("42723");
    pub const GROUPING_ERROR: Self = Self::literal("42803");
    pub const DATATYPE_MISMATCH: Self = Self::literal("42804");
    pub const WRONG_OBJECT_TYPE: Self = Self::literal("42809");
    pub const INVALID_FOREIGN_KEY: Self = Self::literal("42830");
    pub const CANNOT_COERCE: Self = Self::literal("42846");
    pub const UNDEFINED_FUNCTION: Self = Self::literal("42883");
    pub const GENERATED_ALWAYS: Self = Self::literal("428C9");
    pub const RESERVED_NAME: Self = Self::literal("42939");
    pub const UNDEFINED_TABLE: Self = Self::literal("42P01");
    pub const UNDEFINED_PARAMETER: Self = Self::literal("42P02");
    pub const DUPLICATE_CURSOR: Self = Self::literal("42P03");
    pub const DUPLICATE_DATABASE: Self = Self::literal("42P04");
    pub const DUPLICATE_PREPARED_STATEMENT: Self = Self::literal("42P05");
    pub const DUPLICATE_SCHEMA: Self = Self::literal("42P06");
    pub const DUPLICATE_TABLE: Self = Self::literal("42P07");
    pub const INVALID_COLUMN_REFERENCE: Self = Self::literal("42P10");
    pub const INVALID_CURSOR_DEFINITION: Self = Self::literal("42P11");
    pub const INVALID_TABLE_DEFINITION: Self = Self::literal("42P16");
    pub const INVALID_OBJECT_DEFINITION: Self = Self::literal("42P17");
    pub const INDETERMINATE_DATATYPE: Self = Self::literal("42P18");
    pub const WINDOWING_ERROR: Self = Self::literal("42P20");
    pub const INSUFFICIENT_RESOURCES: Self = Self::literal("53000");
    pub const DISK_FULL: Self = Self::literal("53100");
    pub const OUT_OF_MEMORY: Self = Self::literal("53200");
    pub const TOO_MANY_CONNECTIONS: Self = Self::literal("53300");
    pub const CONFIGURATION_LIMIT_EXCEEDED: Self = Self::literal("53400");
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self::literal("54000");
    pub const STATEMENT_TOO_COMPLEX: Self = Self::literal("54001");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self::literal("55000");
    pub const OBJECT_IN_USE: Self = Self::literal("55006");
    pub const CANT_CHANGE_RUNTIME_PARAM: Self = Self::literal("55P02");
    pub const LOCK_NOT_AVAILABLE: Self = Self::literal("55P03");
    pub const QUERY_CANCELED: Self = Self::literal("57014");
    pub const ADMIN_SHUTDOWN: Self = Self::literal("57P01");
    pub const CRASH_SHUTDOWN: Self = Self::literal("57P02");
    pub const CANNOT_CONNECT_NOW: Self = Self::literal("57P03");
    pub const IDLE_SESSION_TIMEOUT: Self = Self::literal("57P05");
    pub const SYSTEM_ERROR: Self = Self::literal("58000");
    pub const IO_ERROR: Self = Self::literal("58030");
    pub const UNDEFINED_FILE: Self = Self::literal("58P01");
    pub const DUPLICATE_FILE: Self = Self::literal("58P02");
    pub const CONFIG_FILE_ERROR: Self = Self::literal("F0000");
    pub const INTERNAL_ERROR: Self = Self::literal("XX000");
    pub const DATA_CORRUPTED: Self = Self::literal("XX001");

    /// A code known when the program is compiled. Panics, at compile time for a constant, unless it has
    /// five digits or capital letters.
    pub const fn literal(code: &'static str) -> Self {
        match Self::parse(code) {
            Some(state) => state,
            None => panic!("a SQLSTATE has five digits or capital letters"),
        }
    }

    /// A code that came from somewhere else; `None` unless it has five digits or capital letters.
    pub const fn parse(code: &str) -> Option<Self> {
        let bytes = code.as_bytes();
        if bytes.len() != 5 {
            return None;
        }
        let mut state = [0; 5];
        let mut i = 0;
        while i < 5 {
            if !bytes[i].is_ascii_digit() && !bytes[i].is_ascii_uppercase() {
                return None;
            }
            state[i] = bytes[i];
            i += 1;
        }
        Some(Self(state))
    }

    /// The first two characters: what kind of condition it is.
    pub fn class(&self) -> &str {
        &self.as_str()[..2]
    }

    pub const fn as_str(&self) -> &str {
        match std::str::from_utf8(&self.0) {
            Ok(code) => code,
            Err(_) => "XX000",
        }
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Compares with a code in letters, as tests and answers of databases have it.
impl PartialEq<str> for SqlState {
    fn eq(&self, code: &str) -> bool {
        self.as_str() == code
    }
}

impl PartialEq<&str> for SqlState {
    fn eq(&self, code: &&str) -> bool {
        self.as_str() == *code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_checked() {
        assert_eq!(SqlState::parse("42P01"), Some(SqlState::UNDEFINED_TABLE));
        for wrong in ["", "42P0", "42P011", "42p01", "42-01", "é001"] {
            assert_eq!(SqlState::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(SqlState::INTERNAL_ERROR.to_string(), "XX000");
        assert_eq!(SqlState::INTERNAL_ERROR, "XX000");
        assert_ne!(SqlState::INTERNAL_ERROR, "XX001");
    }
}
