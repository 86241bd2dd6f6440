//! The trait by which a warehouse provides the contents of the system catalogs, and its value types.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::plan_err;
use datafusion::error::Result;
use harrier_session_api::named_objects::{Cursor, PreparedStatement};

use crate::keys::Keys;

/// Provides what a session sees. It is called when a relation is scanned or a function is evaluated, never
/// while planning; [`Source::contents`] is called often, so it should return the same [`Arc`] until something
/// changes: derived data is cached by that pointer.
///
/// Objects have ids of the source's own that are stable for their lifetime; see [`oid`].
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Schemas and relations visible to the current statement, including changes of its own transaction.
    fn contents(&self) -> Result<Arc<Contents>>;
    /// All roles, including the owner of the database.
    fn roles(&self) -> Result<Vec<Role>>;
    /// The name of the session's database, the only one.
    fn database(&self) -> String;
    /// The owner of the database and of built-in objects: PostgreSQL's bootstrap role, with oid 10.
    fn owner(&self) -> String;
    /// The current user, whose privileges count.
    fn user(&self) -> String;
    /// The authenticated user.
    fn session_user(&self) -> String {
        self.user()
    }
    /// The schemas searched for unqualified names, without `pg_catalog`. Missing schemas are omitted.
    fn search_path(&self) -> Vec<String>;
    /// The id of this session in cancel requests.
    fn backend_pid(&self) -> i32;
    /// The result of `version()`.
    fn version(&self) -> String;
    /// The session's settings, unordered.
    fn settings(&self) -> Vec<Setting>;
    /// The value of a setting that is not among [`Self::settings`].
    ///
    /// Errors: it is unknown.
    fn other_setting(&self, name: &str) -> Result<String> {
        plan_err!("unrecognized configuration parameter \"{name}\"")
    }
    /// Sets a setting, for the transaction only if `local`, and returns its new value.
    fn set(&self, name: &str, value: &str, local: bool) -> Result<String>;
    /// Sessions and their statements, without what the user may not see.
    fn activity(&self) -> Vec<Activity>;
    /// The advisory locks of all sessions.
    fn locks(&self) -> Vec<AdvisoryLock> {
        vec![]
    }
    /// Whether a role has a privilege, named in upper case as in GRANT (`SELECT`, `USAGE`, …).
    fn may(&self, role: &str, object: &Object<'_>, privilege: &str) -> bool;
    /// Cancels a session's statement, or terminates the session. Returns whether the session existed.
    fn signal(&self, pid: i32, terminate: bool) -> Result<bool>;
    /// The id of the current transaction.
    fn transaction_id(&self) -> i64;
    /// The client's address and port; `None` over a local socket.
    fn client_address(&self) -> Option<(String, u16)>;
    /// The server's address and port on this connection; `None` over a local socket.
    fn server_address(&self) -> Option<(String, u16)>;
    /// Start time of the server, in microseconds since 1970.
    fn start_time(&self) -> i64;
    /// The session's prepared statements.
    fn prepared_statements(&self) -> Vec<PreparedStatement> {
        vec![]
    }
    /// The session's open cursors.
    fn cursors(&self) -> Vec<Cursor> {
        vec![]
    }
    /// Whether the server is a read-only standby.
    fn in_recovery(&self) -> bool {
        false
    }
}

/// The object of a privilege. Schemas and relations have the source's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object<'a> {
    Database,
    Schema(i64),
    Relation(i64),
    Column(i64, &'a str),
    /// A built-in relation, function, type or language.
    System,
}

/// Schemas and their objects.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    pub schemas: Vec<Schema>,
    pub relations: Vec<Relation>,
    /// Further properties of the relations that are sequences.
    pub sequences: Vec<Sequence>,
}

/// A sequence.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The id of its relation.
    pub relation: i64,
    /// `int2`, `int4` or `int8`.
    pub type_name: &'static str,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cache: i64,
    pub cycles: bool,
    /// The last value returned, if any is known.
    pub last: Option<i64>,
    pub owner: Option<SequenceOwner>,
}

/// The column that owns a sequence.
#[derive(Debug, Clone)]
pub struct SequenceOwner {
    /// The id of its relation.
    pub relation: i64,
    pub column: String,
    /// For an identity column: whether it is GENERATED ALWAYS.
    pub identity: Option<bool>,
}

/// A schema other than `pg_catalog` and `information_schema`.
#[derive(Debug, Clone)]
pub struct Schema {
    pub id: i64,
    pub name: String,
    /// An alias.
    pub other_name: Option<String>,
    /// Corresponds to PostgreSQL's `public`, whose oid clients know.
    pub is_public: bool,
    pub owner: String,
    pub comment: Option<String>,
    pub grants: Vec<Grant>,
}

impl Schema {
    pub(crate) fn oid(&self) -> i32 {
        if self.is_public { PUBLIC_OID } else { oid(self.id) }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.other_name.as_deref() == Some(name)
    }
}

/// A table, view or sequence. Ids of relations are never reused, and unique across tables and views.
#[derive(Debug, Clone)]
pub struct Relation {
    pub id: i64,
    /// The id of its schema.
    pub schema: i64,
    pub name: String,
    pub kind: Kind,
    pub owner: String,
    pub comment: Option<String>,
    pub columns: Vec<Column>,
    pub keys: Keys,
    /// Number of rows, if known without a scan.
    pub rows: Option<u64>,
    /// Total size of its files in bytes.
    pub bytes: Option<u64>,
    /// The query of a view.
    pub definition: Option<String>,
    /// The ids of the relations that a view reads, as far as known.
    pub reads: Vec<i64>,
    pub grants: Vec<Grant>,
}

/// The kind of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Table,
    /// A temporary table of this session.
    TemporaryTable,
    View,
    Sequence,
}

/// A column. Its Arrow field has the name, type and nullability.
#[derive(Debug, Clone)]
pub struct Column {
    pub field: FieldRef,
    /// The default as an SQL expression.
    pub default: Option<String>,
    pub comment: Option<String>,
    pub grants: Vec<Grant>,
    /// Statistics of ANALYZE, without anything hidden from roles that may read the column.
    pub statistics: Option<ColumnStatistics>,
}

/// Statistics of a column's values, as in `pg_stats`.
#[derive(Debug, Clone, Default)]
pub struct ColumnStatistics {
    /// The fraction of NULLs.
    pub nulls: f32,
    pub mean_bytes: i32,
    /// Number of distinct values; if negative, a fraction of the rows, for counts that grow with the table.
    pub distinct: f32,
    /// The most common values, as an array literal, with their frequencies.
    pub common: Option<(String, Vec<f32>)>,
    /// Histogram bounds of the other values, equally frequent, as an array literal.
    pub bounds: Option<String>,
}

/// Privileges granted to a role.
#[derive(Debug, Clone)]
pub struct Grant {
    /// `None` is PUBLIC.
    pub role: Option<String>,
    pub grantor: String,
    /// Names in upper case as in GRANT, and whether with grant option.
    pub privileges: Vec<(String, bool)>,
}

/// A role.
#[derive(Debug, Clone, Default)]
pub struct Role {
    pub id: i64,
    pub name: String,
    pub login: bool,
    pub superuser: bool,
    pub inherit: bool,
    pub create_role: bool,
    pub create_database: bool,
    /// `None` is unlimited.
    pub connection_limit: Option<i32>,
    /// Expiry of its password, in microseconds since 1970.
    pub valid_until: Option<i64>,
    /// The roles it is a direct member of, by name, and whether with admin option.
    pub member_of: Vec<(String, bool)>,
    /// Initial settings of its sessions: names and values.
    pub settings: Vec<(String, String)>,
    pub comment: Option<String>,
}

/// A setting.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub unit: Option<String>,
    pub category: String,
    pub description: String,
    /// `bool`, `integer`, `real`, `string` or `enum`.
    pub kind: String,
    /// When it may be changed: `user`, `superuser`, `sighup`, `postmaster` or `internal`.
    pub context: String,
    pub default: Option<String>,
}

/// A session in `pg_stat_activity`. Times are microseconds since 1970.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    pub pid: i32,
    pub user: String,
    pub application: String,
    pub client_address: Option<(String, u16)>,
    pub backend_start: i64,
    pub transaction_start: Option<i64>,
    pub query_start: Option<i64>,
    pub state_change: Option<i64>,
    /// Its wait event, as class and event.
    pub wait: Option<(String, String)>,
    /// `active`, `idle`, `idle in transaction` or `idle in transaction (aborted)`.
    pub state: String,
    pub query: String,
}

/// An advisory lock in `pg_locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryLock {
    /// The upper four bytes of its key, or the first of two keys.
    pub class: u32,
    pub object: u32,
    /// 1: one eight-byte key; 2: two four-byte keys.
    pub kind: i16,
    pub process: i32,
    pub is_exclusive: bool,
    /// False: the session waits for it.
    pub granted: bool,
}

/// Microseconds since 1970; 0 before that.
pub fn microseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The oid of the schema `public`.
const PUBLIC_OID: i32 = 2200;

/// The first oid of user objects.
pub const FIRST_USER_OID: i32 = 16384;

/// The oid of an object with a source's id: stable, and at least [`FIRST_USER_OID`]. Oids are unique while
/// ids are below two thousand million; only a warehouse with more objects in its life has duplicates.
pub fn oid(id: i64) -> i32 {
    let room = i64::from(i32::MAX) - i64::from(FIRST_USER_OID);
    // The remainder is below i32::MAX by its modulus.
    FIRST_USER_OID + id.rem_euclid(room) as i32
}
