//! pg_dump of a warehouse restored into PostgreSQL, and postgres_fdw reading a warehouse.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use harrier_servers::Postgres;

use crate::test_server::TestServer;

const TABLES: &str = r#"
CREATE SCHEMA "Sales";
CREATE TABLE kinds (yes boolean NOT NULL DEFAULT false, small smallint, n integer DEFAULT 7, big bigint, r real, f double precision,
    price numeric(12,2) DEFAULT 1.5, name text DEFAULT 'it''s', raw bytea, day date DEFAULT '2024-02-29', at time,
    stamp timestamp, moment timestamptz, tags text[], numbers integer[]);
COMMENT ON TABLE kinds IS 'all of them';
COMMENT ON COLUMN kinds.price IS 'in euros';
INSERT INTO kinds VALUES (true, -1, 2, 9007199254740993, 0.5, 1e300, -12.30, E'a\tb\\c\nd', '\x00ff', '1969-07-20', '23:59:59.5',
    '2024-01-02 03:04:05', '2024-01-02 03:04:05+00', ARRAY['a', NULL, 'b c'], ARRAY[1, 2]);
INSERT INTO kinds (yes) VALUES (false);
CREATE TABLE "Sales"."Mixed Case" ("Key" integer NOT NULL, "select" text);
INSERT INTO "Sales"."Mixed Case" SELECT x, x::text FROM generate_series(1, 100) g(x);
CREATE VIEW summed AS SELECT k.n, count(*) AS rows FROM kinds k GROUP BY k.n;
CREATE VIEW "Sales".of_both AS WITH own AS (SELECT "Key" FROM "Sales"."Mixed Case") SELECT count(*) AS all_rows FROM own, main.summed;
"#;

struct Pair {
    server: TestServer,
    postgres: &'static Postgres,
    database: String,
}

impl Pair {
    /// `None`, with a message, if PostgreSQL cannot be installed.
    fn start() -> Option<Self> {
        let postgres = Postgres::shared_instance()?;
        let server = TestServer::start(&["--launcher", "none"]);
        let pair = Self { server, postgres, database: postgres.new_database() };
        pair.query_warehouse(TABLES);
        Some(pair)
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.postgres.programs().join(name))
    }

    /// A client program that connects to the warehouse.
    fn of_warehouse(&self, name: &str) -> Command {
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
        let mut command = self.program(name);
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.server.port.to_string(),
            "-U",
            &user,
            "-d",
            "warehouse",
        ]);
        command
    }

    /// The warehouse's answer.
    fn query_warehouse(&self, sql: &str) -> String {
        run(self.of_warehouse("psql").args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// PostgreSQL's answer.
    fn query_postgres(&self, sql: &str) -> String {
        self.postgres.psql(&self.database, sql)
    }

    /// Writes pg_dump's output to a file in the server's folder.
    fn dump(&self, arguments: &[&str]) -> std::path::PathBuf {
        let path = self.server.folder.path().join("dump.sql");
        run(self
            .of_warehouse("pg_dump")
            .args(["--no-owner", "--no-privileges", "-f"])
            .arg(&path)
            .args(arguments));
        path
    }

    fn restore(&self, dump: &Path) {
        let port = self.postgres.port().to_string();
        let place = ["-h", "127.0.0.1", "-p", &port, "-U", "harrier", "-d", &self.database];
        run(self.program("psql").args(place).args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(dump));
    }
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

#[test]
fn a_warehouse_is_dumped_and_restored() {
    let Some(pair) = Pair::start() else { return };
    pair.restore(&pair.dump(&[]));
    for sql in [
        "SELECT * FROM public.kinds ORDER BY n NULLS FIRST, yes",
        "SELECT sum(\"Key\"), min(\"select\") FROM \"Sales\".\"Mixed Case\"",
        "SELECT * FROM public.summed ORDER BY n",
        "SELECT * FROM \"Sales\".of_both",
        "SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns \
         WHERE table_schema IN ('public', 'Sales') ORDER BY table_name, ordinal_position",
        "SELECT obj_description('public.kinds'::regclass), col_description('public.kinds'::regclass, 7)",
    ] {
        assert_eq!(pair.query_warehouse(sql), pair.query_postgres(sql), "{sql}");
    }
}

#[test]
fn schemas_and_tables_of_a_warehouse_are_dumped() {
    let Some(pair) = Pair::start() else { return };
    let text = |arguments: &[&str]| fs::read_to_string(pair.dump(arguments)).unwrap();
    let schema = text(&["--schema-only"]);
    assert!(schema.contains("CREATE TABLE public.kinds") && !schema.contains("COPY"), "{schema}");
    // The session that restores has another default for the setting.
    assert!(schema.contains("public.summed") && schema.contains("FROM public.kinds k"), "{schema}");
    for one in ["kinds", "public.kinds", "main.kinds"] {
        let one = text(&["--table", one, "--schema-only"]);
        assert!(one.contains("CREATE TABLE public.kinds") && !one.contains("Mixed Case"), "{one}");
    }
    for one in ["public", "main"] {
        let one = text(&["--schema", one, "--data-only", "--inserts"]);
        assert!(one.contains("INSERT INTO public.kinds VALUES") && !one.contains("Mixed Case"), "{one}");
    }
}

#[test]
fn postgres_fdw_reads_a_warehouse() {
    let Some(pair) = Pair::start() else { return };
    // PostgreSQL's server runs as another user.
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_string());
    pair.query_warehouse(&format!("CREATE ROLE \"{user}\" LOGIN SUPERUSER"));
    pair.query_warehouse("CREATE ROLE wrapper LOGIN SUPERUSER PASSWORD 'not a secret'");
    let port = pair.server.port;
    pair.query_postgres("CREATE EXTENSION postgres_fdw");
    pair.query_postgres(&format!(
        "CREATE SERVER lake FOREIGN DATA WRAPPER postgres_fdw \
         OPTIONS (host '127.0.0.1', port '{port}', dbname 'warehouse', use_remote_estimate 'true')"
    ));
    pair.query_postgres(
        "CREATE USER MAPPING FOR harrier SERVER lake OPTIONS (user 'wrapper', password 'not a secret')",
    );
    pair.query_postgres("IMPORT FOREIGN SCHEMA public LIMIT TO (kinds, summed) FROM SERVER lake INTO public");
    pair.query_postgres("CREATE SCHEMA named; IMPORT FOREIGN SCHEMA main FROM SERVER lake INTO named");
    let columns = "SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) \
                   FROM information_schema.columns WHERE table_name = 'kinds' AND table_schema = 'public'";
    assert_eq!(pair.query_postgres(columns), pair.query_warehouse(columns));
    let sql = "SELECT price, name FROM public.kinds WHERE n = 2";
    assert_eq!(pair.query_postgres(sql), pair.query_warehouse(sql));
    assert_eq!(
        pair.query_postgres("SELECT count(*) FROM named.kinds k JOIN public.summed s ON s.n = k.n"),
        "2"
    );
    // Its planner uses the costs that the warehouse reports.
    let plan = pair.query_postgres("EXPLAIN SELECT count(*) FROM public.kinds WHERE n > 1");
    assert!(plan.contains("Foreign Scan"), "{plan}");
}
