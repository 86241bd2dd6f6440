//! SQLSTATE, the five-character error code of PostgreSQL's protocol.
//!
//! The only place that spells a code. Source: PostgreSQL's appendix "PostgreSQL Error Codes"; the names are
//! its condition names, without redundant words.

use std::fmt;

/// A SQLSTATE: five ASCII digits or capital letters, the first two of which are its class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

/// Declares a constant for each code, with cause and remedy for the codes that users may see.
macro_rules! states {
    ($($name:ident $code:literal $($cause:literal, $remedy:literal)?;)+) => {
        impl SqlState {
            $(pub const $name: Self = Self::literal($code);)+

            /// The codes that users may see, in ascending order.
            pub const EXPLAINED: &[Explained] = &[$($(Explained {
                state: Self::$name,
                name: stringify!($name),
                cause: $cause,
                remedy: $remedy,
            },)?)+];
        }
    };
}

/// A code with its explanation.
#[derive(Debug, Clone, Copy)]
pub struct Explained {
    pub state: SqlState,
    /// PostgreSQL's name of the condition, in capital letters.
    pub name: &'static str,
    /// The usual cause.
    pub cause: &'static str,
    /// The usual remedy.
    pub remedy: &'static str,
}

states! {
    SUCCESSFUL_COMPLETION "00000";
    WARNING "01000";
    CONNECTION_NOT_ESTABLISHED "08001"
        "a rank, or the database of the catalog, cannot be connected to; ranks did not come in time",
        "look at the network and at the other side, then run it again";
    CONNECTION_FAILURE "08006"
        "a connection to the database of the catalog, or between a client and a server, was lost",
        "run it again; see why the other side ended";
    PROTOCOL_VIOLATION "08P01"
        "a client does not keep to the protocol",
        "use a client of PostgreSQL's protocol 3 or of Flight SQL, and tell its makers";
    FEATURE_NOT_SUPPORTED "0A000"
        "Harrier does not do this",
        "write it in another way; [Limits](limits.md) has what there is instead";
    INVALID_GRANT_OPERATION "0LP01"
        "a GRANT that cannot be: of a role to its own member, or with grant option to all",
        "grant it to a role, in one direction";
    CARDINALITY_VIOLATION "21000"
        "a subquery in the place of a value gives several rows, or several rows of FROM or USING fit one \
         row that is changed",
        "make it one row: by a condition, LIMIT 1 or an aggregate";
    DATA_EXCEPTION "22000"
        "a value does not fit where it is to be kept, such as the name of a folder or a text file without \
         escapes",
        "choose another value, or name an escape";
    STRING_DATA_RIGHT_TRUNCATION "22001"
        "a text is longer than its column or type",
        "shorten it, or alter the column";
    NUMERIC_VALUE_OUT_OF_RANGE "22003"
        "a number is out of the range of its type",
        "cast to a wider type before computing";
    NULL_VALUE_NOT_ALLOWED "22004"
        "NULL where none may be, such as the key of a JSON object",
        "leave it out by a condition, or replace it by coalesce";
    INVALID_DATETIME_FORMAT "22007"
        "a text is no date or time",
        "write it as 2026-11-29 12:30:00, or tell the format to to_date";
    DATETIME_FIELD_OVERFLOW "22008"
        "a date or time is out of range",
        "correct the value";
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED "2200H"
        "a sequence has reached its end",
        "ALTER SEQUENCE with another MAXVALUE, or CYCLE";
    SUBSTRING_ERROR "22011"
        "the length of a part of a text or of bytes is below zero",
        "make it zero or more";
    DIVISION_BY_ZERO "22012"
        "division by zero",
        "divide by nullif(x, 0)";
    INVALID_PRECEDING_OR_FOLLOWING_SIZE "22013"
        "the offset of a window's frame is NULL or below zero",
        "make it zero or more";
    INVALID_ARGUMENT_FOR_NTILE "22014"
        "the number of ntile is not above zero",
        "make it one or more";
    INVALID_ARGUMENT_FOR_NTH_VALUE "22016"
        "the number of nth_value is not above zero",
        "make it one or more";
    INVALID_REGULAR_EXPRESSION "2201B"
        "a regular expression cannot be understood",
        "correct the pattern: it has no look-around and no references";
    INVALID_ARGUMENT_FOR_LOGARITHM "2201E"
        "a logarithm of zero or of a negative number",
        "restrict the arguments";
    INVALID_ARGUMENT_FOR_POWER "2201F"
        "a power that has no value among real numbers, such as zero to the power of -1",
        "restrict the arguments";
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET "2201G"
        "width_bucket has no buckets, or bounds that are equal",
        "give a count of one or more and two different bounds";
    INVALID_ROW_COUNT_IN_LIMIT "2201W"
        "LIMIT is below zero",
        "make it zero or more";
    INVALID_ROW_COUNT_IN_OFFSET "2201X"
        "OFFSET is below zero",
        "make it zero or more";
    CHARACTER_NOT_IN_REPERTOIRE "22021"
        "bytes are no UTF-8, or a text has a character of code 0",
        "convert the file before it is read: `iconv -f latin1 -t utf8 in.csv > out.csv`";
    INVALID_PARAMETER_VALUE "22023"
        "a parameter or an argument has a value that it cannot have",
        "see the hint; sizes may be 2GB or 2GiB, which both count in 1024s";
    INVALID_ESCAPE_SEQUENCE "22025"
        "an escape of LIKE or of bytea is wrong",
        "end no pattern with the escape character";
    ARRAY_ELEMENT_ERROR "2202E"
        "the arrays of a call do not fit together, or an index is outside of an array",
        "correct the lengths";
    INVALID_TABLESAMPLE_REPEAT "2202G"
        "REPEATABLE of TABLESAMPLE is NULL",
        "give a number";
    INVALID_TABLESAMPLE_ARGUMENT "2202H"
        "the percentage of TABLESAMPLE is not from 0 to 100",
        "give one that is";
    INVALID_TEXT_REPRESENTATION "22P02"
        "a text is no value of the type, such as 'a'::int",
        "correct it, or read the column as text";
    INVALID_BINARY_REPRESENTATION "22P03"
        "a client's value in binary form has the wrong length",
        "look at the type that the client declares";
    BAD_COPY_FILE_FORMAT "22P04"
        "the rows of a COPY or a CSV file do not fit: columns too many or missing, a quote that is not \
         closed",
        "check DELIMITER, HEADER and the columns; ON_ERROR ignore skips values of the wrong type, and not these";
    UNTRANSLATABLE_CHARACTER "22P05"
        "a character that text cannot have, such as \\u0000 in JSON, or that another encoding has not",
        "remove it";
    NOT_NULL_VIOLATION "23502"
        "NULL in a column that is NOT NULL",
        "give a value or a default";
    UNIQUE_VIOLATION "23505";
    CHECK_VIOLATION "23514"
        "a row violates a CHECK constraint, or no table partition takes it",
        "correct the row, or add a partition";
    INVALID_TRANSACTION_STATE "25000";
    ACTIVE_TRANSACTION "25001"
        "the statement cannot be in this transaction, or not any more",
        "begin with it, or run it outside of a transaction";
    READ_ONLY "25006"
        "the transaction, the catalog or the file system is read-only; or the server has lost its term to \
         another one",
        "BEGIN READ WRITE, get rights to the folder, or connect to the other server";
    NO_ACTIVE_TRANSACTION "25P01"
        "there is no transaction",
        "BEGIN first";
    FAILED_TRANSACTION "25P02"
        "the transaction has failed",
        "ROLLBACK, or ROLLBACK TO a savepoint";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT "25P03"
        "the session was idle in a transaction for too long",
        "connect again, or raise idle_in_transaction_session_timeout";
    INVALID_STATEMENT_NAME "26000"
        "no prepared statement has this name",
        "PREPARE it in this session";
    INVALID_AUTHORIZATION_SPECIFICATION "28000"
        "the role does not exist or may not log in, no rule of the hba_file fits, a certificate is \
         missing, or ranks have other secrets",
        "see the hint and the audit log";
    INVALID_PASSWORD "28P01"
        "the password is wrong",
        "correct it; ALTER ROLE sets a new one";
    DEPENDENT_OBJECTS "2BP01"
        "other objects depend on it",
        "drop them first, or add CASCADE";
    INVALID_CURSOR_NAME "34000"
        "no cursor has this name",
        "DECLARE it in the same transaction";
    INVALID_SAVEPOINT "3B001"
        "no savepoint has this name",
        "SAVEPOINT first";
    INVALID_CATALOG_NAME "3D000"
        "there is no such database or warehouse",
        "look at the name of the folder, the URL or the database";
    INVALID_SCHEMA_NAME "3F000"
        "there is no such schema",
        "CREATE SCHEMA, or correct the name";
    SERIALIZATION_FAILURE "40001"
        "another transaction has changed the same rows, or a file changed while it was read",
        "run the transaction again";
    COMPLETION_UNKNOWN "40003"
        "it is not known whether a COMMIT has happened",
        "look whether its rows are there, then decide";
    DEADLOCK_DETECTED "40P01"
        "sessions wait for advisory locks of each other",
        "run the transaction again; take locks in one order";
    SYNTAX_ERROR_OR_ACCESS_RULE "42000"
        "the statement cannot be planned",
        "see the message";
    INSUFFICIENT_PRIVILEGE "42501"
        "permission denied, by privileges, by the file system or by a store",
        "GRANT it, or change the rights or credentials";
    SYNTAX_ERROR "42601"
        "the statement is not SQL as it is understood here",
        "see the place that is marked; [Statements](statements.md) has the grammar";
    INVALID_NAME "42602"
        "a name is empty, or has a character that it cannot have",
        "choose another name";
    DUPLICATE_COLUMN "42701"
        "a column is named twice",
        "rename one";
    AMBIGUOUS_COLUMN "42702"
        "a column's name fits several tables",
        "write the table's name before it";
    UNDEFINED_COLUMN "42703"
        "no table of the statement has this column",
        "see the hint; names in capital letters need quotes";
    UNDEFINED_OBJECT "42704"
        "there is no such role, setting, type, constraint, queue or partition",
        "SHOW ALL lists settings, \\du roles";
    DUPLICATE_OBJECT "42710"
        "an object of this name exists",
        "choose another name, or IF NOT EXISTS";
    DUPLICATE_ALIAS "42712"
        "two tables of a statement have the same name",
        "give one an alias";
    DUPLICATE_FUNCTION "42723";
    GROUPING_ERROR "42803"
        "a column is neither grouped nor aggregated, or an aggregate stands where none may be",
        "add it to GROUP BY, or aggregate it by any_value or max";
    DATATYPE_MISMATCH "42804"
        "a value has another type than what it is put into or compared with",
        "cast it";
    WRONG_OBJECT_TYPE "42809"
        "the object is of another kind: a view and no table, a table that is not partitioned",
        "use the statement for this kind";
    INVALID_FOREIGN_KEY "42830"
        "a foreign key fits no primary or unique key of the other table",
        "declare that key, or name its columns";
    CANNOT_COERCE "42846"
        "values of one type cannot be cast to the other",
        "cast by way of text";
    UNDEFINED_FUNCTION "42883"
        "there is no function or operator of this name for these types",
        "cast the arguments; [Functions](functions.md) lists all";
    GENERATED_ALWAYS "428C9"
        "a value for a column that is GENERATED ALWAYS",
        "leave it out, or write OVERRIDING SYSTEM VALUE";
    RESERVED_NAME "42939"
        "the name is reserved, as those of roles that begin with pg_",
        "choose another name";
    UNDEFINED_TABLE "42P01"
        "there is no such table, view or sequence",
        "look at the schema and the search_path; files need quotes";
    UNDEFINED_PARAMETER "42P02"
        "a statement has a $1 and no value for it",
        "prepare it, and give values";
    DUPLICATE_CURSOR "42P03"
        "a cursor of this name is open",
        "CLOSE it";
    DUPLICATE_DATABASE "42P04";
    DUPLICATE_PREPARED_STATEMENT "42P05"
        "a prepared statement of this name exists",
        "DEALLOCATE it, or choose another name";
    DUPLICATE_SCHEMA "42P06"
        "a schema of this name exists",
        "CREATE SCHEMA IF NOT EXISTS";
    DUPLICATE_TABLE "42P07"
        "a table, view, sequence or backup of this name exists",
        "DROP it, or IF NOT EXISTS";
    INVALID_COLUMN_REFERENCE "42P10"
        "ORDER BY or DISTINCT ON names what it cannot, or there are more aliases than columns",
        "name a column of the result";
    INVALID_CURSOR_DEFINITION "42P11"
        "a cursor is declared in two ways that exclude each other",
        "leave one out";
    INVALID_TABLE_DEFINITION "42P16"
        "a table cannot be like this: two primary keys, ON COMMIT of a table that is not temporary",
        "correct the definition";
    INVALID_OBJECT_DEFINITION "42P17"
        "bounds of a partition are empty, or overlap, or a definition refers to itself",
        "correct the definition";
    INDETERMINATE_DATATYPE "42P18"
        "nothing says which type a parameter has",
        "cast it, as in $1::int";
    WINDOWING_ERROR "42P20"
        "a window function or a window stands where it cannot",
        "compute it in a subquery";
    INSUFFICIENT_RESOURCES "53000"
        "the system has no more threads, processes or open files",
        "raise ulimit -u or ulimit -n";
    DISK_FULL "53100"
        "a disk is full, or the temporary files of a process reach datafusion.runtime.max_temp_directory_size",
        "free space, add --spill-dir on another disk, or raise the limit";
    OUT_OF_MEMORY "53200"
        "memory within --memory, the statement's or the queue's limit is used up: by the table of a hash \
         join, or a very large group",
        "raise --memory or harrier.statement_memory, lower --threads, use more ranks";
    TOO_MANY_CONNECTIONS "53300"
        "the server or the role has as many connections as it may have",
        "close some, or raise max_connections";
    CONFIGURATION_LIMIT_EXCEEDED "53400"
        "the statement has more temporary files than spill_max, or costs more than its queue allows",
        "restrict what it reads, or raise the limit";
    PROGRAM_LIMIT_EXCEEDED "54000"
        "a limit of the program: a value of 1 GiB, rows_max, too many prepared statements or cursors",
        "split it";
    STATEMENT_TOO_COMPLEX "54001"
        "the statement is nested too deeply, or is too complex",
        "simplify it";
    OBJECT_NOT_IN_PREREQUISITE_STATE "55000"
        "the state of the object or the process does not allow it: ranks of other statements or of \
         another build, a data folder of another warehouse, a table that is not analyzed",
        "see the hint";
    OBJECT_IN_USE "55006"
        "it is in use: a warehouse that is restored, a role that is connected, a folder that `harrier generate` fills",
        "wait until it is free";
    CANT_CHANGE_RUNTIME_PARAM "55P02"
        "the setting cannot be changed, or not in a session",
        "leave it; see [Settings](settings.md)";
    LOCK_NOT_AVAILABLE "55P03"
        "a lock is held by somebody else: of the catalog, an advisory lock, a place in a queue",
        "wait and run it again; remove no file: on a local disk a killed process leaves no lock. \
         If nobody is there, the file system may have no locks";
    QUERY_CANCELED "57014"
        "canceled by the user, or by statement_timeout",
        "raise statement_timeout";
    ADMIN_SHUTDOWN "57P01"
        "the process, the gang or the session was ended by a signal or an administrator",
        "start it again";
    CRASH_SHUTDOWN "57P02"
        "a rank died, was stopped, or was cut off; the message has its number",
        "run it again; see why it died: memory, or a failure of its host";
    CANNOT_CONNECT_NOW "57P03"
        "the server is starting, draining, shutting down, or a standby",
        "connect again later, or to the other server";
    IDLE_SESSION_TIMEOUT "57P05"
        "the session was idle for too long",
        "connect again, or raise idle_session_timeout";
    SYSTEM_ERROR "58000"
        "MPI, or the system around the gang, failed",
        "run harrier doctor";
    IO_ERROR "58030"
        "reading or writing failed, the catalog's file system has no locks, or a store does not answer",
        "see the message; mount -o flock for Lustre";
    UNDEFINED_FILE "58P01"
        "the file or folder does not exist, or no file matches the pattern",
        "check the path; ranks have to see it on every host";
    DUPLICATE_FILE "58P02"
        "the file exists already",
        "name another one";
    CONFIG_FILE_ERROR "F0000"
        "a configuration file, a hosts file or a variable is wrong",
        "run harrier doctor --config FILE";
    INTERNAL_ERROR "XX000"
        "an error in Harrier",
        "report it with the statement: [what to attach](../project/contributing.md#report-a-bug)";
    DATA_CORRUPTED "XX001"
        "a file or the catalog is damaged, or not of the format that its name says",
        "CHECK TABLE tells what; restore a backup";
}

impl SqlState {
    /// A code known at compile time. Panics, at compile time for a constant, unless it has five digits or
    /// capital letters.
    pub const fn literal(code: &'static str) -> Self {
        match Self::parse(code) {
            Some(state) => state,
            None => panic!("a SQLSTATE has five digits or capital letters"),
        }
    }

    /// Parses a code from an external source; `None` unless it has five digits or capital letters.
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

    /// The first two characters, the kind of condition.
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

/// Compares with a code as text, for tests and database responses.
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
    fn codes_are_explained_in_their_order() {
        let codes: Vec<&str> = SqlState::EXPLAINED.iter().map(|explained| explained.state.as_str()).collect();
        assert!(codes.is_sorted(), "{codes:?}");
        for Explained { state, cause, remedy, .. } in SqlState::EXPLAINED {
            for text in [cause, remedy] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{state}");
            }
        }
    }

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
