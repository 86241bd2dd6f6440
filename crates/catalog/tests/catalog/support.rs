//! Fixtures of the catalog's tests: warehouses in SQLite and PostgreSQL, and shorthands for changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use harrier_catalog::files::{Cell, ColumnStats, NewDeleteFile, NewDeletes, NewFile, TableData};
use harrier_catalog::state::{Column, Location, ObjectId, Schema, State, Table, View};
use harrier_catalog::types::ColumnType;
use harrier_catalog::{Catalog, CommitNote, Committed, Error, Result, Transaction};
use tempfile::TempDir;
use uuid::Uuid;

/// Whether to skip tests that need PostgreSQL, by the environment or because it is not installed.
pub fn skips_servers() -> bool {
    harrier_servers::installation("postgres.sh").is_none()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

/// Runs a test with both databases.
pub fn on_both<F: Future<Output = ()>>(test: impl Fn(Kind) -> F) {
    for kind in kinds() {
        eprintln!("upon {kind:?}");
        run(test(kind));
    }
}

pub fn kinds() -> Vec<Kind> {
    if skips_servers() { vec![Kind::Sqlite] } else { vec![Kind::Sqlite, Kind::Postgres] }
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// A new warehouse, and the folder it is in.
pub struct Lake {
    pub url: String,
    pub folder: TempDir,
    pub catalog: Catalog,
}

impl Lake {
    /// Runs a statement in the catalog's database, without the catalog.
    pub async fn execute(&self, sql: &str) {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_string()));
        match self.url.starts_with("sqlite:") {
            true => {
                let pool = sqlx::SqlitePool::connect(&self.url).await.unwrap();
                sql.execute(&pool).await.unwrap();
                pool.close().await;
            }
            false => {
                let pool = sqlx::PgPool::connect(&self.url).await.unwrap();
                sql.execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }
}

pub async fn lake(kind: Kind) -> Lake {
    let folder = TempDir::new().unwrap();
    let url = new_url(kind, folder.path());
    let catalog = Catalog::create(&url, &data_path(folder.path())).await.unwrap();
    Lake { url, folder, catalog }
}

pub fn data_path(folder: &Path) -> String {
    format!("{}/data/", folder.display())
}

/// URL for a new warehouse.
pub fn new_url(kind: Kind, folder: &Path) -> String {
    match kind {
        Kind::Sqlite => format!("sqlite:{}/lake.sqlite", folder.display()),
        Kind::Postgres => server().new_database(),
    }
}

// PostgreSQL.

/// A PostgreSQL server of this process. It ends with the process: its keeper waits for the end of a pipe.
pub struct Server {
    pub port: u16,
    bin: PathBuf,
    _folder: TempDir,
    _keeper: Child,
    _pipe: ChildStdin,
    databases: AtomicU64,
}

pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// Starts a server in a folder as a user other than root, prints "up", waits for the end of its input, and
/// stops the server.
const KEEPER: &str = r#"
bin=$1 folder=$2 port=$3
as() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi }
chmod 755 "$folder"
if [ "$(id -u)" -eq 0 ]; then mkdir "$folder/pg"; chown postgres "$folder/pg"; else mkdir "$folder/pg"; fi
cd "$folder/pg"
as "$bin/initdb" -D data -A trust -U harrier --encoding=UTF8 --locale=C >log 2>&1 || { cat log; exit 1; }
as "$bin/pg_ctl" -D data -w -s -l server.log -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=200" start || { cat server.log; exit 1; }
echo up
read -r _
as "$bin/pg_ctl" -D data -w -s -m immediate stop
cd / && rm -rf "$folder"
"#;

impl Server {
    fn start() -> Self {
        let bin = harrier_servers::installation("postgres.sh").expect("PostgreSQL was there before");
        let bin = bin.display().to_string();
        for _ in 0..5 {
            let folder = TempDir::new().unwrap();
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut keeper = Command::new("sh")
                .args(["-c", KEEPER, "keeper", &bin])
                .arg(folder.path())
                .arg(port.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // A signal to the tests' process group ends the tests; the keeper outlives them, and cleans
                // up.
                .process_group(0)
                .spawn()
                .unwrap();
            let mut output = String::new();
            let mut lines = BufReader::new(keeper.stdout.take().unwrap());
            while lines.read_line(&mut output).unwrap() > 0 {
                if output.ends_with("up\n") {
                    let pipe = keeper.stdin.take().unwrap();
                    let (bin, databases) = (PathBuf::from(bin), AtomicU64::new(0));
                    return Self { port, bin, _folder: folder, _keeper: keeper, _pipe: pipe, databases };
                }
            }
            // Another process may have bound the port meanwhile.
            eprintln!("PostgreSQL did not start: {output}");
            keeper.wait().unwrap();
        }
        panic!("PostgreSQL does not start");
    }

    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.bin.join("psql"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "harrier", "-d", database])
            .args(["-v", "ON_ERROR_STOP=1", "-A", "-t", "-q", "-c", sql])
            .output()
            .unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    pub fn new_database(&self) -> String {
        let name = format!("lake{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        format!("postgres://harrier@127.0.0.1:{}/{name}", self.port)
    }
}

/// Terminates every PostgreSQL connection to the warehouse of this URL.
pub fn end_connections(url: &str) {
    let database = url.rsplit_once('/').unwrap().1;
    let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
    server().psql("postgres", &sql);
}

// Contents of warehouses.

pub fn column(id: i64, name: &str, kind: ColumnType) -> Column {
    Column {
        id,
        name: name.to_string(),
        kind,
        children: Vec::new(),
        nullable: true,
        initial_default: None,
        default: None,
        comment: None,
        tags: BTreeMap::new(),
    }
}

pub fn uuid() -> String {
    Uuid::new_v4().to_string()
}

pub fn table(id: ObjectId, schema: ObjectId, name: &str, columns: Vec<Column>) -> Table {
    fn last(columns: &[Column]) -> i64 {
        columns.iter().map(|column| column.id.max(last(&column.children))).max().unwrap_or(0)
    }
    Table {
        id,
        uuid: uuid(),
        schema,
        name: name.to_string(),
        path: Location::relative(format!("{name}/")),
        next_column: last(&columns) + 1,
        columns,
        partition: Vec::new(),
        partition_id: None,
        sort: Vec::new(),
        comment: None,
        tags: BTreeMap::new(),
        options: BTreeMap::new(),
    }
}

pub fn schema(id: ObjectId, name: &str) -> Schema {
    Schema {
        id,
        uuid: uuid(),
        name: name.to_string(),
        path: Location::relative(format!("{name}/")),
        comment: None,
        options: BTreeMap::new(),
    }
}

pub fn view(id: ObjectId, schema: ObjectId, name: &str, sql: &str) -> View {
    View {
        id,
        uuid: uuid(),
        schema,
        name: name.to_string(),
        dialect: "duckdb".to_string(),
        sql: sql.to_string(),
        column_aliases: String::new(),
        comment: None,
        columns_below: BTreeMap::new(),
    }
}

pub fn integers(name: &str) -> Vec<Column> {
    vec![column(1, name, ColumnType::Int64)]
}

/// Adds a table to a transaction.
pub fn create_table(
    transaction: &mut Transaction,
    schema: ObjectId,
    name: &str,
    columns: Vec<Column>,
) -> ObjectId {
    let id = transaction.allocate_object();
    let table = table(id, schema, name, columns);
    transaction.state_mut().tables.insert(id, Arc::new(table));
    id
}

pub fn create_schema(transaction: &mut Transaction, name: &str) -> ObjectId {
    let id = transaction.allocate_object();
    transaction.state_mut().schemas.insert(id, Arc::new(schema(id, name)));
    id
}

/// Changes a table in a transaction.
pub fn alter(transaction: &mut Transaction, id: ObjectId, change: impl FnOnce(&mut Table)) {
    let table = transaction.state_mut().tables.get_mut(&id).unwrap();
    change(Arc::make_mut(table));
}

pub fn drop_table(transaction: &mut Transaction, id: ObjectId) {
    transaction.state_mut().tables.remove(&id).unwrap();
}

/// A data file of `rows` rows with one column of integers, from `first` on.
pub fn file(name: &str, first: i64, rows: i64) -> NewFile {
    let stats = ColumnStats {
        bytes: Some(8 * rows),
        values: Some(rows),
        nulls: Some(0),
        min: Some(first.to_string()),
        max: Some((first + rows - 1).to_string()),
        nan: None,
    };
    NewFile {
        path: Location::relative(name),
        rows,
        bytes: 100 + 8 * rows,
        footer_bytes: 50,
        partition_values: Vec::new(),
        stats: BTreeMap::from([(1, stats)]),
        deleted: BTreeSet::new(),
        deletes: None,
    }
}

pub fn delete_file(name: &str, rows: i64) -> NewDeleteFile {
    NewDeleteFile { path: Location::relative(name), rows, bytes: 40 + 8 * rows, footer_bytes: 30 }
}

pub fn inline_delete(positions: &[i64]) -> NewDeletes {
    NewDeletes::Inline(positions.iter().copied().collect())
}

/// Inserts inlined rows of one integer each.
pub fn insert_inlined_rows(transaction: &mut Transaction, table: ObjectId, values: &[i64]) {
    let changes = transaction.changes_of(table);
    changes.inlined.extend(values.iter().map(|value| vec![Cell::Integer(*value)]));
    let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
    let stats = ColumnStats {
        values: Some(values.len() as i64),
        nulls: Some(0),
        min: Some(min.to_string()),
        max: Some(max.to_string()),
        ..ColumnStats::default()
    };
    changes.inlined_stats.insert(1, stats);
}

pub async fn begin(catalog: &Catalog) -> Transaction {
    Transaction::new(catalog.head().await.unwrap())
}

pub async fn commit(catalog: &Catalog, transaction: &Transaction) -> Result<Committed> {
    catalog.commit(transaction, &CommitNote::default()).await
}

/// Commits what `change` does to a new transaction.
pub async fn change(catalog: &Catalog, change: impl FnOnce(&mut Transaction)) -> Committed {
    let mut transaction = begin(catalog).await;
    change(&mut transaction);
    commit(catalog, &transaction).await.unwrap()
}

/// Creates a table of integers and commits. Returns its id.
pub async fn create_table_committed(catalog: &Catalog, name: &str) -> ObjectId {
    let committed = change(catalog, |transaction| {
        create_table(transaction, 0, name, integers("a"));
    })
    .await;
    *committed.objects.values().next().unwrap()
}

pub async fn data(catalog: &Catalog, table: ObjectId) -> TableData {
    let head = catalog.head().await.unwrap();
    TableData::clone(&*catalog.data(&head.tables[&table], head.snapshot).await.unwrap())
}

/// The qualified names of a state's tables.
pub fn names(state: &State) -> Vec<String> {
    let name = |table: &Arc<Table>| format!("{}.{}", state.schemas[&table.schema].name, table.name);
    let mut names: Vec<String> = state.tables.values().map(name).collect();
    names.sort();
    names
}

pub fn is_conflict<T: std::fmt::Debug>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Conflict(_)))
}

// DuckDB.

/// Runs a Python script with DuckDB's modules and returns its output. `con` is a connection that has the
/// warehouse attached as `l`, and in use.
pub fn duckdb(url: &str, script: &str) -> String {
    let python = harrier_servers::installation("duckdb.sh").expect("DuckDB was there before");
    let attach = match url.strip_prefix("sqlite:") {
        Some(path) => format!("ducklake:sqlite:{path}"),
        None => {
            let rest = url.strip_prefix("postgres://harrier@127.0.0.1:").unwrap();
            let (port, database) = rest.split_once('/').unwrap();
            format!("ducklake:postgres:host=127.0.0.1 port={port} user=harrier dbname={database}")
        }
    };
    let prelude = r#"
import duckdb, glob, os, sys
import duckdb_extension_ducklake, duckdb_extension_sqlite_scanner, duckdb_extension_postgres_scanner
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_sqlite_scanner, duckdb_extension_postgres_scanner, duckdb_extension_ducklake):
    folder = os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension")
    con.execute("LOAD '%s'" % glob.glob(folder)[0])
con.execute("SET TimeZone = 'UTC'")
def attach(options=""):
    con.execute("ATTACH '%s' AS l %s" % (sys.argv[1], options))
    con.execute("USE l")
def run(sql): con.execute(sql)
def show(sql):
    for row in con.execute(sql).fetchall(): print("|".join(str(value) for value in row))
"#;
    let output =
        Command::new(python).args(["-c", &format!("{prelude}\n{script}"), &attach]).output().unwrap();
    assert!(output.status.success(), "DuckDB failed:\n{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_string()
}
