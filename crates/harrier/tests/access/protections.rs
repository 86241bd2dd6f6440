//! Every statement that reads, writes or deletes rows against every protection: privileges, column
//! privileges, row filters (row-level security) and views. Hidden rows appear in no message and stay
//! unchanged.

use crate::test_server::{Client, TestServer};

/// Text in all hidden values of the table.
const SECRET: &str = "geheim";

/// Rows that the role never sees, and columns that it may read.
const HIDDEN: &str =
    "SELECT string_agg(id || tenant || secret, ',' ORDER BY id) FROM p WHERE tenant <> 'mine'";

/// Statements that read `{t}`, a table or view with the columns `id`, `tenant` and `secret`.
const READS: &[&str] = &[
    "SELECT * FROM {t}",
    "SELECT secret FROM {t}",
    "TABLE {t}",
    "SELECT count(secret) FROM {t}",
    "SELECT max(secret) FROM {t}",
    "SELECT DISTINCT secret FROM {t}",
    "SELECT secret, row_number() OVER (ORDER BY secret) FROM {t}",
    "SELECT secret FROM {t} LIMIT 0",
    "SELECT secret FROM {t} WHERE false",
    "SELECT 1 FROM {t} WHERE secret LIKE 'geh%' AND false",
    "SELECT * FROM {t} WHERE secret = 'x' ORDER BY id LIMIT 5 OFFSET 100",
    "SELECT secret::int FROM {t}",
    "SELECT id FROM {t} WHERE secret::int > 0",
    "SELECT id FROM {t} WHERE 1 / (id - 5) > 0 AND secret <> ''",
    "SELECT (SELECT max(secret) FROM {t})",
    "SELECT 1 WHERE EXISTS (SELECT secret FROM {t} WHERE secret > '')",
    "SELECT 1 WHERE 'x' IN (SELECT secret FROM {t})",
    "SELECT a.secret FROM {t} a JOIN {t} b ON a.id = b.id",
    "SELECT a.secret FROM {t} a JOIN {t} b USING (id) WHERE b.secret::int = 0",
    "SELECT l.secret FROM mine m, LATERAL (SELECT secret FROM {t} WHERE id = m.id) l",
    "SELECT m.id FROM mine m LEFT JOIN {t} p ON p.id = m.id AND p.secret > ''",
    "SELECT secret FROM {t} UNION ALL SELECT 'x'",
    "SELECT secret FROM {t} EXCEPT SELECT 'x'",
    "SELECT note FROM mine INTERSECT SELECT secret FROM {t}",
    "WITH w AS (SELECT * FROM {t}) SELECT secret FROM w",
    "WITH RECURSIVE w AS (SELECT secret, 1 AS n FROM {t} UNION ALL SELECT secret, n + 1 FROM w WHERE n < 2) SELECT * FROM w",
    "SELECT secret FROM {t} TABLESAMPLE SYSTEM (50)",
    "SELECT secret FROM {t} AS OF SNAPSHOT 9",
    "SELECT secret FROM public.{t}",
    "SELECT secret FROM \"main\".\"{t}\"",
    "SELECT secret FROM warehouse.main.{t}",
    "SELECT string_agg(secret, ',') FROM {t} GROUP BY GROUPING SETS ((tenant), ())",
    "COPY {t} TO STDOUT",
    "COPY {t} (secret) TO STDOUT (FORMAT csv)",
    "COPY {t} TO STDOUT (FORMAT binary)",
    "COPY (SELECT secret FROM {t} WHERE false) TO STDOUT",
    "BEGIN; DECLARE c CURSOR FOR SELECT secret FROM {t}; FETCH ALL FROM c; ROLLBACK",
    "PREPARE s AS SELECT secret FROM {t}; EXECUTE s; DEALLOCATE s",
    "PREPARE s (text) AS SELECT id FROM {t} WHERE secret > $1; EXECUTE s('a'); DEALLOCATE s",
    "CREATE TEMP TABLE taken AS SELECT secret FROM {t}; SELECT * FROM taken; DROP TABLE taken",
    "CREATE TEMP TABLE taken AS SELECT secret FROM {t} LIMIT 0; DROP TABLE taken",
    "INSERT INTO mine SELECT id, secret FROM {t}; TABLE mine",
    "INSERT INTO mine SELECT id, secret FROM {t} WHERE false; TABLE mine",
    "INSERT INTO mine SELECT id, secret FROM {t} RETURNING note",
    "INSERT INTO mine VALUES (7, 'x') RETURNING (SELECT max(secret) FROM {t})",
    "UPDATE mine SET note = 'x' FROM {t} p WHERE p.id = mine.id RETURNING p.secret",
    "DELETE FROM mine RETURNING (SELECT string_agg(secret, ',') FROM {t})",
    "MERGE INTO mine m USING {t} p ON m.id = p.id WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (p.id, 'x') RETURNING p.secret",
    "UPDATE mine SET note = p.secret FROM {t} p WHERE p.id = mine.id; TABLE mine",
    "DELETE FROM mine WHERE note IN (SELECT secret FROM {t})",
    "MERGE INTO mine m USING {t} p ON m.id = p.id WHEN MATCHED THEN UPDATE SET note = p.secret; TABLE mine",
    "CREATE VIEW own AS SELECT secret FROM {t}; SELECT * FROM own; DROP VIEW own",
    "CREATE VIEW own AS SELECT secret FROM {t}; SELECT * FROM own LIMIT 0",
    "DROP VIEW own",
    "CREATE TABLE taken AS SELECT secret FROM {t}; TABLE taken",
    "CREATE TABLE taken AS SELECT secret FROM {t} WITH NO DATA",
    "DROP TABLE taken",
    "EXPLAIN SELECT secret FROM {t}",
    "EXPLAIN VERBOSE SELECT secret FROM {t}",
    "EXPLAIN (FORMAT JSON) SELECT secret FROM {t}",
    "EXPLAIN (FORMAT TREE) SELECT secret FROM {t} WHERE false",
    "EXPLAIN ANALYZE SELECT secret FROM {t}",
    "EXPLAIN (ANALYZE, VERBOSE) SELECT secret FROM {t} WHERE secret > 'geh'",
    "EXPLAIN INSERT INTO mine SELECT id, secret FROM {t} LIMIT 0",
];

/// Statements that delete or change rows of the table `p` and of the view `v`.
const WRITES: &[&str] = &[
    "DELETE FROM p",
    "DELETE FROM p WHERE tenant <> 'mine'",
    "DELETE FROM p USING mine m WHERE m.id <> p.id",
    "WITH d AS (SELECT 5 AS id) DELETE FROM p WHERE id IN (SELECT id FROM d)",
    "UPDATE p SET secret = 'gone'",
    "UPDATE p SET secret = 'gone' RETURNING *",
    "UPDATE p SET id = 7 FROM p q WHERE p.id = q.id RETURNING q.secret",
    "DELETE FROM p RETURNING secret",
    "DELETE FROM p WHERE id > 0 RETURNING (SELECT string_agg(secret, ',') FROM p)",
    "INSERT INTO p VALUES (9, 'mine', 'x') RETURNING (SELECT string_agg(secret, ',') FROM p)",
    "INSERT INTO p VALUES (9, 'other', 'x') RETURNING id",
    "MERGE INTO p USING mine m ON true WHEN MATCHED THEN DELETE RETURNING *",
    "MERGE INTO p USING mine m ON p.id = m.id WHEN NOT MATCHED BY SOURCE THEN DELETE RETURNING secret",
    "UPDATE p SET tenant = 'mine'",
    "UPDATE p SET tenant = 'other' WHERE id = 1",
    "UPDATE p SET secret = m.note FROM mine m",
    "UPDATE p SET (id, tenant) = (id + 100, 'mine')",
    "INSERT INTO p VALUES (9, 'other', 'mine too')",
    "INSERT INTO p (id, tenant) VALUES (9, 'other')",
    "INSERT INTO p (id, tenant) SELECT 9, 'other'",
    "INSERT OVERWRITE p VALUES (9, 'mine', 'x')",
    "INSERT OVERWRITE TABLE p SELECT 9, 'mine', 'x'",
    "INSERT OVERWRITE p SELECT * FROM p",
    "INSERT OVERWRITE p SELECT * FROM p WHERE false",
    "EXPLAIN ANALYZE INSERT OVERWRITE p VALUES (9, 'mine', 'x')",
    "PREPARE w AS INSERT OVERWRITE p VALUES (9, 'mine', 'x'); EXECUTE w; DEALLOCATE w",
    "REPLACE INTO p VALUES (3, 'mine', 'x')",
    "TRUNCATE p",
    "TRUNCATE TABLE p, mine",
    "MERGE INTO p USING mine m ON p.id = m.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "MERGE INTO p USING mine m ON p.id = m.id WHEN MATCHED THEN DELETE",
    "MERGE INTO p USING mine m ON true WHEN MATCHED THEN UPDATE SET secret = 'x'",
    "MERGE INTO p USING mine m ON false WHEN NOT MATCHED THEN INSERT VALUES (9, 'other', 'x')",
    "COPY p FROM STDIN",
    "COPY p (id, tenant) FROM STDIN",
    "ALTER TABLE p DROP COLUMN secret",
    "ALTER TABLE p ALTER COLUMN id TYPE bigint",
    "ALTER TABLE p RENAME COLUMN tenant TO t",
    "ALTER TABLE p TRUNCATE PARTITION a",
    "ALTER TABLE p DROP PARTITION a",
    "ALTER TABLE p OWNER TO low",
    "CREATE OR REPLACE TABLE p (id int)",
    "CREATE OR REPLACE TABLE p AS SELECT 1 AS id",
    "CREATE OR REPLACE VIEW v AS SELECT 1 AS id",
    "DROP TABLE p",
    "DROP VIEW v",
    "DROP ROW FILTER ON p FROM low",
    "CREATE ROW FILTER ON p TO low USING (true)",
    "GRANT ALL ON p TO low",
    "OPTIMIZE p",
    "VACUUM",
    "DELETE FROM v",
    "UPDATE v SET secret = 'x'",
    "INSERT INTO v VALUES (9, 'mine', 'x')",
    "INSERT OVERWRITE v VALUES (9, 'mine', 'x')",
    "TRUNCATE v",
];

/// Settings that the session may have while it tries.
const SETTINGS: &[&str] = &[
    "RESET ALL",
    "SET datafusion.sql_parser.dialect = 'mysql'",
    "SET datafusion.sql_parser.dialect = 'bigquery'",
    "SET datafusion.sql_parser.dialect = 'databricks'",
    "SET datafusion.sql_parser.dialect = 'spark'",
    "SET datafusion.sql_parser.dialect = 'mssql'",
    "SET datafusion.sql_parser.enable_ident_normalization = false",
    "SET datafusion.sql_parser.parse_float_as_decimal = true",
    "SET datafusion.sql_parser.recursion_limit = 10",
    "SET datafusion.sql_parser.default_null_ordering = 'nulls_first'",
    "SET TIME ZONE 'Pacific/Kiritimati'",
    "SET search_path = lab",
    "SET DateStyle = 'ISO, DMY'",
];

/// A warehouse with a table that a role may read only in part.
struct ProtectedTable {
    server: TestServer,
    admin: Client,
    low: Client,
    hidden: String,
}

impl ProtectedTable {
    fn new(grants: &[&str]) -> Self {
        let server = TestServer::start(&["--launcher", "none"]);
        let mut admin = server.client();
        for statement in [
            "CREATE ROLE low LOGIN",
            "CREATE SCHEMA lab",
            "CREATE TABLE p (id int, tenant text, secret text)",
            "INSERT INTO p SELECT x, 'other', 'geheim' || x FROM generate_series(3, 200) s(x)",
            "CREATE VIEW v WITH (security_barrier) AS SELECT id, tenant, secret FROM p WHERE tenant = 'mine'",
            "CREATE TABLE mine (id int, note text)",
            "GRANT ALL ON mine TO low",
            "GRANT CREATE ON SCHEMA main TO low",
            "GRANT USAGE ON SCHEMA lab TO low",
        ]
        .iter()
        .chain(grants)
        {
            execute(&mut admin, statement);
        }
        let low = Client::connect(server.port, &[("user", "low")]).unwrap();
        let hidden = admin.one(HIDDEN).unwrap();
        assert!(hidden.contains(SECRET));
        let mut protected = Self { server, admin, low, hidden };
        protected.restore();
        protected
    }

    /// Restores the rows that the role may have changed.
    fn restore(&mut self) {
        for statement in [
            "DELETE FROM p WHERE tenant = 'mine'",
            "INSERT INTO p VALUES (1, 'mine', 'a'), (2, 'mine', 'b')",
            "DELETE FROM mine",
            "INSERT INTO mine VALUES (1, 'one'), (3, 'three')",
        ] {
            execute(&mut self.admin, statement);
        }
    }

    /// Runs a statement as the role. Returns the SQLSTATEs of its failures, and all messages and rows.
    fn run_and_collect_messages(&mut self, sql: &str) -> (Vec<String>, String) {
        let (mut states, mut messages) = (Vec::new(), String::new());
        for statement in sql.split("; ") {
            self.low.ask(statement);
            loop {
                let Some((kind, body)) = self.low.message() else {
                    panic!("{sql}: the server has gone: {}", self.server.log())
                };
                match kind {
                    b'G' => {
                        self.low.send(b'd', b"9\tother\tx\n");
                        self.low.send(b'c', b"");
                    }
                    b'E' => {
                        let fields: Vec<&[u8]> = body.split(|byte| *byte == 0).collect();
                        let state = fields.iter().find(|field| field.first() == Some(&b'C'));
                        states.extend(state.map(|state| String::from_utf8_lossy(&state[1..]).to_string()));
                    }
                    b'Z' => break,
                    _ => {}
                }
                messages.push_str(&String::from_utf8_lossy(&body));
                messages.push('\n');
            }
        }
        if self.low.state != b'I' {
            let _ = self.low.query("ROLLBACK");
        }
        (states, messages)
    }

    /// Asserts that no hidden value was sent or changed.
    fn check(&mut self, sql: &str, messages: &str) {
        // A message may repeat the text of the statement.
        let own = messages.replace("'geheim", "'");
        assert!(!own.contains(SECRET), "{sql}: {messages}");
        assert_eq!(self.admin.one(HIDDEN), Ok(self.hidden.clone()), "{sql}");
    }

    fn try_all(&mut self, setting: &str, table: &str, expected: impl Fn(&str, &[String])) {
        self.begin(setting);
        for statement in READS {
            let sql = statement.replace("{t}", table);
            let (states, messages) = self.run_and_collect_messages(&sql);
            self.check(&format!("{setting}; {sql}"), &messages);
            expected(&sql, &states);
        }
        let _ = self.low.query("DROP VIEW own");
        let _ = self.low.query("DROP TABLE taken");
        for sql in WRITES {
            let (_, messages) = self.run_and_collect_messages(sql);
            self.check(&format!("{setting}; {sql}"), &messages);
            self.restore();
        }
    }

    /// Starts a new session of the role with one setting.
    fn begin(&mut self, setting: &str) {
        self.low = Client::connect(self.server.port, &[("user", "low")]).unwrap();
        execute(&mut self.low, setting);
    }
}

fn execute(client: &mut Client, sql: &str) {
    client.query(sql).unwrap_or_else(|(state, message)| panic!("{sql}: {state} {message}"));
}

/// Asserts that a reading statement fails for lack of privilege, and only for that.
fn is_denied(sql: &str, states: &[String]) {
    let needs_nothing = ["DROP VIEW own", "DROP TABLE taken"].contains(&sql) || sql.contains("AS OF");
    assert!(needs_nothing || states.iter().any(|state| state == "42501"), "{sql}: {states:?}");
}

#[test]
fn statements_without_privileges_are_denied() {
    let mut protected = ProtectedTable::new(&[]);
    protected.try_all("RESET ALL", "p", is_denied);
    protected.try_all("RESET ALL", "v", is_denied);
}

#[test]
fn column_privileges_protect_other_columns() {
    let columns = "(id, tenant)";
    let mut protected = ProtectedTable::new(&[
        &format!("GRANT SELECT {columns}, INSERT {columns} ON p TO low"),
        &format!("GRANT SELECT {columns} ON v TO low"),
    ]);
    for table in ["p", "v"] {
        for statement in READS {
            let sql = statement.replace("{t}", table);
            let (states, messages) = protected.run_and_collect_messages(&sql);
            assert!(!messages.replace("'geheim", "'").contains(SECRET), "{sql}: {messages}");
            is_denied(&sql, &states);
        }
        for sql in [
            "SELECT id, tenant FROM {t}",
            "SELECT count(*) FROM {t}",
            "SELECT id FROM {t} LIMIT 0",
            "SELECT 1 FROM {t} WHERE tenant = 'x' AND false",
            "EXPLAIN (FORMAT JSON) SELECT id FROM {t}",
            "SELECT (SELECT max(id) FROM {t}), tenant FROM {t} a JOIN {t} b USING (id, tenant)",
        ] {
            execute(&mut protected.low, &sql.replace("{t}", table));
        }
    }
}

#[test]
fn row_filters_cannot_be_bypassed() {
    let mut protected = ProtectedTable::new(&[
        "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON p TO low",
        // In some dialects the name is a string literal, so that the condition is true for all rows.
        "CREATE ROW FILTER ON p TO low USING (\"tenant\" <> 'other' /* \"tenant\" */)",
    ]);
    for setting in SETTINGS {
        protected.try_all(setting, "p", |_, _| {});
        if !setting.contains("search_path") {
            assert_eq!(protected.low.one("SELECT count(*) FROM p").as_deref(), Ok("2"), "{setting}");
        }
    }
    protected.begin("RESET ALL");
    for sql in
        ["TRUNCATE p", "INSERT OVERWRITE p VALUES (9, 'mine', 'x')", "INSERT OVERWRITE p SELECT * FROM p"]
    {
        assert_eq!(protected.low.fails(sql), "42501", "{sql}");
    }
}

#[test]
fn views_hide_rows_of_their_tables() {
    let mut protected = ProtectedTable::new(&["GRANT SELECT ON v TO low"]);
    for setting in SETTINGS {
        protected.try_all(setting, "v", |_, _| {});
    }
    protected.begin("RESET ALL");
    assert_eq!(protected.low.one("SELECT count(*) FROM v").as_deref(), Ok("2"));
    // Conversion errors name the value, so rows outside the view must not be evaluated.
    assert_eq!(
        protected.low.one("SELECT count(*) FROM v WHERE 1 / (id - 5) IS NOT NULL").as_deref(),
        Ok("2")
    );
}

#[test]
fn current_user_in_row_filters_is_the_session_role() {
    let server = TestServer::start(&["--launcher", "none"]);
    let mut admin = server.client();
    for statement in [
        "CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE maker LOGIN; CREATE ROLE staff",
        "GRANT staff TO ann",
        "CREATE TABLE notes (owner text, at timestamptz, note text)",
        "INSERT INTO notes VALUES ('ann', '2024-01-01 23:30Z', 'a'), ('bob', '2024-01-02 00:30Z', 'b'), \
         ('staff', '2024-01-01 12:00Z', 's')",
        "GRANT SELECT ON notes TO PUBLIC",
        "GRANT CREATE ON SCHEMA main TO maker",
    ] {
        execute(&mut admin, statement);
    }
    let client = |role: &str| Client::connect(server.port, &[("user", role)]).unwrap();
    let (mut ann, mut bob, mut maker) = (client("ann"), client("bob"), client("maker"));
    let notes = "SELECT string_agg(note, '' ORDER BY note) FROM notes";
    let names = ["current_user", "CURRENT_USER", "user", "current_role", "session_user", "(SELECT 1)"];
    for name in names {
        let filter = format!("CREATE ROW FILTER ON notes TO PUBLIC USING (owner = {name})");
        if name.starts_with('(') {
            assert_eq!(admin.fails(&filter), "0A000");
            continue;
        }
        execute(&mut admin, &filter);
        assert_eq!(ann.one(notes).as_deref(), Ok("a"), "{name}");
        assert_eq!(bob.one(notes).as_deref(), Ok("b"), "{name}");
        execute(&mut ann, "SET ROLE 'staff'");
        let expected = if name == "session_user" { "a" } else { "s" };
        assert_eq!(ann.one(notes).as_deref(), Ok(expected), "{name}");
        execute(&mut ann, "SET SESSION AUTHORIZATION DEFAULT");
    }
    // Behind a view, its owner's row filters apply, with the name of the session's role.
    execute(&mut admin, "CREATE ROW FILTER ON notes TO PUBLIC USING (owner = current_user)");
    execute(&mut maker, "CREATE VIEW seen AS SELECT note, current_user AS reader FROM notes");
    execute(&mut maker, "GRANT SELECT ON seen TO PUBLIC");
    assert_eq!(ann.one("SELECT note || reader FROM seen").as_deref(), Ok("aann"));
    assert_eq!(bob.one("SELECT note || reader FROM seen").as_deref(), Ok("bbob"));
    // Times in a row filter are in UTC, whatever the session's time zone.
    execute(&mut admin, "CREATE ROW FILTER ON notes TO PUBLIC USING (at < '2024-01-02'::timestamptz)");
    for zone in ["UTC", "Pacific/Kiritimati", "America/New_York"] {
        execute(&mut ann, &format!("SET TIME ZONE '{zone}'"));
        assert_eq!(ann.one(notes).as_deref(), Ok("as"), "{zone}");
    }
    for (filter, state) in [
        ("count(*) > 0", "42803"),
        ("row_number() OVER () > 1", "42P20"),
        ("owner", "42804"),
        ("owner = ", "42601"),
    ] {
        let sql = format!("CREATE ROW FILTER ON notes TO PUBLIC USING ({filter})");
        assert_eq!(admin.fails(&sql), state, "{filter}");
    }
}
