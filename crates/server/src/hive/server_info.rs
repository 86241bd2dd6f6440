//! `GetInfo`: what drivers ask about the server, some of which decide by it how they behave.

use harrier_error::{SqlError, SqlState};
use harrier_thrift::ThriftValue;

/// Numbers of `TGetInfoType`.
const SERVER_NAME: i64 = 13;
const DBMS_NAME: i64 = 17;
const DBMS_VERSION: i64 = 18;
const MAX_COLUMN_NAME_LENGTH: i64 = 30;
const MAX_SCHEMA_NAME_LENGTH: i64 = 32;
const MAX_TABLE_NAME_LENGTH: i64 = 35;
const ODBC_KEYWORDS: i64 = 10006;

/// The version of Hive whose answers this server gives. Drivers know no other product by this protocol.
const VERSION: &str = "4.0.1";

/// Maximum characters of a name.
const NAME_LENGTH: i64 = 128;

/// Words that Hive reserves beyond SQL's.
const KEYWORDS: &str = "ARCHIVE,BUCKET,BUCKETS,CLUSTER,CLUSTERED,COMMENT,CONCATENATE,DATABASES,DBPROPERTIES,\
DELIMITED,DIRECTORY,DISTRIBUTE,ESCAPED,EXPLODE,EXTENDED,FIELDS,FILEFORMAT,FORMATTED,FUNCTIONS,INPATH,\
INPUTFORMAT,ITEMS,KEYS,LATERAL,LINES,LOAD,LOCATION,MAP,MSCK,OUTPUTFORMAT,OVERWRITE,PARTITIONED,PARTITIONS,\
PERCENT,REGEXP,RENAME,REPAIR,REPLACE,RLIKE,SEMI,SERDE,SERDEPROPERTIES,SORT,SORTED,STORED,STRING,STRUCT,\
TABLES,TABLESAMPLE,TBLPROPERTIES,TEMPORARY,TERMINATED,TINYINT,TRANSFORM,UNIONTYPE,VIEW";

/// The value of `GetInfo`, a `TGetInfoValue`.
///
/// Errors: nothing is known about it (0A000).
pub(super) fn info(number: i64) -> Result<ThriftValue, SqlError> {
    let text = |text: &str| Ok(ThriftValue::Struct(vec![(1, ThriftValue::text(text))]));
    match number {
        SERVER_NAME => text("Hive"),
        DBMS_NAME => text("Apache Hive"),
        DBMS_VERSION => text(VERSION),
        ODBC_KEYWORDS => text(KEYWORDS),
        MAX_COLUMN_NAME_LENGTH | MAX_SCHEMA_NAME_LENGTH | MAX_TABLE_NAME_LENGTH => {
            Ok(ThriftValue::Struct(vec![(6, ThriftValue::I64(NAME_LENGTH))]))
        }
        _ => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("Unrecognized GetInfoType value: {number}"),
        )),
    }
}
