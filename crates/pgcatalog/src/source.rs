//! What the system catalogs are made of: the trait by which a warehouse tells what it has, and the values it
//! tells it in.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::error::Result;

use crate::keys::Keys;

/// What a session sees. Everything is asked when a relation is scanned or a function is evaluated, never when
/// a statement is planned; [`Source::contents`] is asked often, so it should hand out the same [`Arc`] as
/// long as nothing has changed, since what is derived from it is kept by that pointer.
///
/// Objects are told by numbers of the source's own that stay the same as long as the object lives; see
/// [`oid`].
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Schemas and relations as the present statement sees them, changes of its own transaction included.
    fn contents(&self) -> Result<Arc<Contents>>;
    /// All roles. The owner of the database has to be among them.
    fn roles(&self) -> Result<Vec<Role>>;
    /// The name of the database that the session is connected to, the only one there is.
    fn database(&self) -> String;
    /// The role that owns the database and what nobody has made: it is PostgreSQL's bootstrap role, with the
    /// oid 10.
    fn owner(&self) -> String;
    /// Whose rights count now.
    fn user(&self) -> String;
    /// Who has logged in.
    fn session_user(&self) -> String {
        self.user()
    }
    /// The schemas in which a name without one is looked for, without `pg_catalog`. Those that do not exist
    /// are left out.
    fn search_path(&self) -> Vec<String>;
    /// The number by which a cancel request names this session.
    fn backend_pid(&self) -> i32;
    /// What `version()` says.
    fn version(&self) -> String;
    /// The settings of the session, in no order.
    fn settings(&self) -> Vec<Setting>;
    /// Sets a setting, for the transaction only if `local`, and returns its new value.
    fn set(&self, name: &str, value: &str, local: bool) -> Result<String>;
    /// Who is connected and what they run. What the asking role may not see of others is left out already.
    fn activity(&self) -> Vec<Activity>;
    /// The advisory locks of all sessions.
    fn locks(&self) -> Vec<AdvisoryLock> {
        vec![]
    }
    /// Whether a role has a privilege, named as in GRANT, in capital letters (`SELECT`, `USAGE`, …).
    fn may(&self, role: &str, object: &Object<'_>, privilege: &str) -> bool;
    /// Cancels what a session runs, or ends the session. Returns whether there was such a session.
    fn signal(&self, pid: i32, terminate: bool) -> Result<bool>;
    /// The number of the running transaction.
    fn transaction_id(&self) -> i64;
    /// The client's address and port; none over a local socket.
    fn client_address(&self) -> Option<(String, u16)>;
    /// The address and port that the client has reached; none over a local socket.
    fn server_address(&self) -> Option<(String, u16)>;
    /// When the server has started, in microseconds since 1970.
    fn started(&self) -> i64;
    /// The statements that the session has prepared.
    fn prepared(&self) -> Vec<PreparedStatement> {
        vec![]
    }
    /// The cursors that the session has open.
    fn cursors(&self) -> Vec<Cursor> {
        vec![]
    }
    /// Whether nothing can be written because this is a standby.
    fn in_recovery(&self) -> bool {
        false
    }
}

/// What a privilege is on. Schemas and relations are named by the source's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object<'a> {
    Database,
    Schema(i64),
    Relation(i64),
    Column(i64, &'a str),
    /// A relation, function, type or language that PostgreSQL has from the start.
    System,
}

/// Schemas and what is in them.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    pub schemas: Vec<Schema>,
    pub relations: Vec<Relation>,
    /// What is more of those relations that are sequences.
    pub sequences: Vec<Sequence>,
}

/// A sequence.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// The number of its relation.
    pub relation: i64,
    /// `int2`, `int4` or `int8`.
    pub type_name: &'static str,
    pub start: i64,
    pub increment: i64,
    pub min: i64,
    pub max: i64,
    pub cache: i64,
    pub cycles: bool,
    /// The value that was given out last, if one was and it is known.
    pub last: Option<i64>,
    pub owner: Option<SequenceOwner>,
}

/// The column that a sequence belongs to.
#[derive(Debug, Clone)]
pub struct SequenceOwner {
    /// The number of its relation.
    pub relation: i64,
    pub column: String,
    /// Of an identity column: whether it takes no other values.
    pub identity: Option<bool>,
}

/// A schema, but none of `pg_catalog` and `information_schema`.
#[derive(Debug, Clone)]
pub struct Schema {
    pub id: i64,
    pub name: String,
    /// Another name by which it is found.
    pub other_name: Option<String>,
    /// It is what PostgreSQL has as `public`, whose oid clients know.
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

/// A table, a view or a sequence. Numbers of relations are not used twice, and tables and views share them.
#[derive(Debug, Clone)]
pub struct Relation {
    pub id: i64,
    /// The number of its schema.
    pub schema: i64,
    pub name: String,
    pub kind: Kind,
    pub owner: String,
    pub comment: Option<String>,
    pub columns: Vec<Column>,
    pub keys: Keys,
    /// How many rows it has, if that is known without reading them.
    pub rows: Option<u64>,
    /// How many bytes its files have.
    pub bytes: Option<u64>,
    /// The query of a view.
    pub definition: Option<String>,
    /// The numbers of the relations that a view reads, as far as they are known.
    pub reads: Vec<i64>,
    pub grants: Vec<Grant>,
}

/// What a relation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Table,
    /// A table of this session alone.
    TemporaryTable,
    View,
    Sequence,
}

/// A column. Its Arrow field says name, type and whether it may be null.
#[derive(Debug, Clone)]
pub struct Column {
    pub field: FieldRef,
    /// The default as an expression of SQL.
    pub default: Option<String>,
    pub comment: Option<String>,
    pub grants: Vec<Grant>,
    /// What ANALYZE has found out; none of what not everybody may know who may read the column.
    pub spread: Option<Spread>,
}

/// How the values of a column are spread, as `pg_stats` has it.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    /// The share of nulls.
    pub nulls: f32,
    pub mean_bytes: i32,
    /// Different values; those that grow with the table as their share of the rows, below zero.
    pub distinct: f32,
    /// The most common values, as the text of an array, with their shares of the rows.
    pub common: Option<(String, Vec<f32>)>,
    /// Between two neighbours of the other values lie equally many rows; the text of an array.
    pub bounds: Option<String>,
}

/// Privileges that a role was given.
#[derive(Debug, Clone)]
pub struct Grant {
    /// No name is everybody.
    pub role: Option<String>,
    pub grantor: String,
    /// As in GRANT, in capital letters, and whether it may be passed on.
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
    /// No number is no limit.
    pub connection_limit: Option<i32>,
    /// Until when its password is good, in microseconds since 1970.
    pub valid_until: Option<i64>,
    /// The roles it is a member of, by name, and whether it may pass the membership on.
    pub member_of: Vec<(String, bool)>,
    /// What its sessions begin with: names and values.
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
    /// Who may change it and when: `user`, `superuser`, `sighup`, `postmaster` or `internal`.
    pub context: String,
    pub default: Option<String>,
}

/// A session as `pg_stat_activity` shows it. Times are microseconds since 1970.
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
    /// What it waits for, as class and event.
    pub wait: Option<(String, String)>,
    /// `active`, `idle`, `idle in transaction` or `idle in transaction (aborted)`.
    pub state: String,
    pub query: String,
}

/// An advisory lock as `pg_locks` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisoryLock {
    /// The upper four bytes of its number, or the first of two numbers.
    pub class: u32,
    pub object: u32,
    /// 1: one number of eight bytes; 2: two of four.
    pub kind: i16,
    pub process: i32,
    pub is_exclusive: bool,
    /// False: the session waits for it.
    pub granted: bool,
}

/// A prepared statement as `pg_prepared_statements` shows it.
#[derive(Debug, Clone, Default)]
pub struct PreparedStatement {
    pub name: String,
    pub text: String,
    /// In microseconds since 1970.
    pub since: i64,
    /// By PREPARE, not by the protocol.
    pub is_of_sql: bool,
}

/// A cursor as `pg_cursors` shows it.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    pub name: String,
    pub text: String,
    /// It outlives its transaction.
    pub is_held: bool,
    /// FETCH may go back.
    pub is_scrollable: bool,
    pub is_binary: bool,
    /// In microseconds since 1970.
    pub since: i64,
}

/// The oid of the schema `public`.
const PUBLIC_OID: i32 = 2200;

/// The first oid that is not PostgreSQL's own.
pub const FIRST_USER_OID: i32 = 16384;

/// The oid of an object with a source's number: the same for ever, and at least [`FIRST_USER_OID`]. Numbers
/// are different as long as they are below two thousand million, so only a warehouse with more objects in its
/// life than that has two of one oid.
pub fn oid(id: i64) -> i32 {
    let room = i64::from(i32::MAX) - i64::from(FIRST_USER_OID);
    // The remainder is below i32::MAX by its modulus.
    FIRST_USER_OID + id.rem_euclid(room) as i32
}
