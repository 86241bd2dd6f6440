//! Random histories of prepared statements concurrent with ALTER, DROP and transactions in two sessions, on
//! PostgreSQL and on `harrier serve`: each step returns the same rows, tag or SQLSTATE on both. A stale plan,
//! description or parameter type would return rows of other columns, or another error.
//!
//! While one session is in a transaction, only that session acts: on PostgreSQL the other one would block. A
//! seed is one history; `HARRIER_SEED` is the first one.

use harrier_servers::Postgres;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::test_server::{Answer, Client, TestServer};

const HISTORIES: u64 = 12;
const STEPS: usize = 60;
const SESSIONS: usize = 2;

const TABLES: [&str; 2] = ["t", "u"];
const COLUMNS: [&str; 4] = ["a", "b", "c", "d"];
const NAMES: [&str; 3] = ["p", "q", "r"];

/// A step of one session.
#[derive(Debug, Clone)]
enum Step {
    Simple(String),
    Prepare {
        name: &'static str,
        sql: String,
    },
    /// Binds values as text.
    Run {
        name: &'static str,
        values: Vec<String>,
        is_binary: bool,
    },
}

/// A server and its sessions.
struct Side {
    clients: Vec<Client>,
}

impl Side {
    fn new(port: u16, settings: &[(&str, &str)]) -> Self {
        let connect = |_| Client::connect(port, settings).unwrap();
        Self { clients: (0..SESSIONS).map(connect).collect() }
    }

    /// Returns the answer, the command tag and the transaction status.
    fn run(&mut self, session: usize, step: &Step) -> (Answer, String, u8) {
        let client = &mut self.clients[session];
        client.tag.clear();
        let answer = match step {
            Step::Simple(sql) => client.query(sql),
            Step::Prepare { name, sql } => {
                client.send(b'C', &[b"S", name.as_bytes(), b"\0"].concat());
                client.send(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat());
                client.send(b'D', &[b"S", name.as_bytes(), b"\0"].concat());
                client.send(b'S', b"");
                client.answer()
            }
            Step::Run { name, values, is_binary } => {
                let mut body = [b"\0", name.as_bytes(), b"\0\0\0"].concat();
                body.extend((values.len() as i16).to_be_bytes());
                for value in values {
                    body.extend((value.len() as i32).to_be_bytes());
                    body.extend(value.as_bytes());
                }
                // One format code for all columns, or text.
                body.extend(if *is_binary { &b"\0\x01\0\x01"[..] } else { &b"\0\0"[..] });
                client.send(b'B', &body);
                client.send(b'E', &[0; 5]);
                client.send(b'S', b"");
                client.answer()
            }
        };
        // Messages differ, and so does the order of rows with equal sort keys.
        let answer = answer.map(|mut rows| {
            rows.sort();
            rows
        });
        (answer.map_err(|(state, _)| (state, String::new())), client.tag.clone(), client.state)
    }
}

struct Draw {
    random: StdRng,
    /// Number of parameters of each prepared statement by session.
    parameters: [[Option<usize>; NAMES.len()]; SESSIONS],
    /// The session that is in a transaction.
    open: Option<usize>,
}

impl Draw {
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all.choose(&mut self.random).unwrap().clone()
    }

    fn number(&mut self) -> i64 {
        self.random.random_range(0..5)
    }

    /// A column of the table or, sometimes, any name; `is_new`: a name that the table does not have.
    fn column(&mut self, columns: &[String], is_new: bool) -> String {
        let fitting: Vec<&str> = COLUMNS
            .into_iter()
            .filter(|name| columns.iter().any(|column| column == name) != is_new)
            .collect();
        match fitting.is_empty() || self.random.random_bool(0.05) {
            true => self.one_of(&COLUMNS).to_string(),
            false => self.one_of(&fitting).to_string(),
        }
    }

    fn step(&mut self, oracle: &mut Side) -> (usize, Step) {
        let session = self.open.unwrap_or_else(|| self.random.random_range(0..SESSIONS));
        let client = &mut oracle.clients[session];
        if client.state == b'E' && self.random.random_bool(0.8) {
            self.open = None;
            return (session, Step::Simple("ROLLBACK".to_string()));
        }
        let table = self.one_of(&TABLES);
        let sql = format!(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('{table}') AND attnum > 0 AND NOT attisdropped"
        );
        let columns: Vec<String> = match client.state {
            b'E' => vec![],
            _ => client.query(&sql).unwrap().into_iter().map(|mut row| row.remove(0).unwrap()).collect(),
        };
        let (column, other, new) =
            (self.column(&columns, false), self.column(&columns, false), self.column(&columns, true));
        let (x, y) = (self.number(), self.number());
        let prepared: Vec<usize> =
            (0..NAMES.len()).filter(|at| self.parameters[session][*at].is_some()).collect();
        let step = match self.random.random_range(0..24) {
            0..=3 => {
                let at = self.random.random_range(0..NAMES.len());
                let (sql, parameters) = match self.random.random_range(0..8) {
                    0 | 1 => (format!("SELECT * FROM {table} ORDER BY 1"), 0),
                    2 => (
                        format!("SELECT {column}, {other} FROM {table} WHERE {column} < $1 ORDER BY 1, 2"),
                        1,
                    ),
                    3 => (format!("SELECT count(*), max({column}) FROM {table}"), 0),
                    4 => (format!("INSERT INTO {table} ({column}) VALUES ($1)"), 1),
                    5 => (format!("UPDATE {table} SET {column} = $1 WHERE {other} = $2"), 2),
                    6 => (format!("DELETE FROM {table} WHERE {column} = $1"), 1),
                    _ => (format!("INSERT INTO {table} VALUES ($1, $2)"), 2),
                };
                self.parameters[session][at] = Some(parameters);
                Step::Prepare { name: NAMES[at], sql }
            }
            4..=11 if !prepared.is_empty() => {
                let at = self.one_of(&prepared);
                let count = self.parameters[session][at].unwrap_or_default();
                let values = (0..count).map(|_| self.number().to_string()).collect();
                Step::Run { name: NAMES[at], values, is_binary: self.random.random_bool(0.4) }
            }
            12 => Step::Simple(format!("ALTER TABLE {table} ADD COLUMN {new} INT")),
            13 => Step::Simple(format!("ALTER TABLE {table} ADD COLUMN {new} BIGINT DEFAULT {x}")),
            14 => Step::Simple(format!("ALTER TABLE {table} DROP COLUMN {column}")),
            15 => Step::Simple(format!("ALTER TABLE {table} RENAME COLUMN {column} TO {new}")),
            16 => Step::Simple(format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE BIGINT")),
            17..=19 => Step::Simple(format!("INSERT INTO {table} ({column}) VALUES ({x}), ({y})")),
            20 => Step::Simple(match columns.is_empty() {
                false => format!("DROP TABLE {table}"),
                true => format!("CREATE TABLE {table} (z INT, a INT, b BIGINT)"),
            }),
            _ => Step::Simple(match (self.open, self.random.random_range(0..4)) {
                (None, _) => {
                    self.open = Some(session);
                    "BEGIN".to_string()
                }
                (_, 0 | 1) => {
                    self.open = None;
                    self.one_of(&["COMMIT", "ROLLBACK"]).to_string()
                }
                (_, 2) => "SAVEPOINT s".to_string(),
                _ => "ROLLBACK TO s".to_string(),
            }),
        };
        (session, step)
    }

    /// A statement that failed to prepare does not exist.
    fn learn(&mut self, session: usize, step: &Step, is_done: bool) {
        if let Step::Prepare { name, .. } = step
            && !is_done
        {
            let at = NAMES.iter().position(|other| other == name).unwrap();
            self.parameters[session][at] = None;
        }
    }
}

#[test]
fn prepared_statements_after_ddl_equal_postgresql() {
    let Some(postgres) = Postgres::shared_instance() else { return };
    let database = postgres.new_database();
    let server = TestServer::start(&["--launcher", "none"]);
    let first = harrier_launch::seed();
    let (mut answer_count, mut change_count) = (0, 0);
    for seed in first..first + HISTORIES {
        let settings = [("user", "harrier"), ("database", database.as_str())];
        let mut oracle = Side::new(postgres.port(), &settings);
        let mut harrier = Side::new(server.port, &[]);
        for table in TABLES {
            for side in [&mut oracle, &mut harrier] {
                let _ = side.run(0, &Step::Simple(format!("DROP TABLE IF EXISTS {table}")));
                let setup = side.run(0, &Step::Simple(format!("CREATE TABLE {table} (z INT, a INT, b INT)")));
                assert!(setup.0.is_ok(), "{setup:?}");
            }
        }
        let mut draw =
            Draw { random: StdRng::seed_from_u64(seed), parameters: Default::default(), open: None };
        let mut log = Vec::new();
        for _ in 0..STEPS {
            let (session, step) = draw.step(&mut oracle);
            log.push(format!("session {session}: {step:?}"));
            let (oracle, harrier) = (oracle.run(session, &step), harrier.run(session, &step));
            draw.learn(session, &step, oracle.0.is_ok());
            answer_count += u64::from(oracle.0.is_ok());
            change_count += u64::from(oracle.0.as_ref().is_err_and(|(state, _)| state == "0A000"));
            assert_eq!(harrier, oracle, "seed {seed}; PostgreSQL is on the right\n{}", log.join("\n"));
        }
    }
    let all = HISTORIES * STEPS as u64;
    eprintln!("of {all} steps {answer_count} were answered, and of {change_count} the columns had changed");
    assert!(
        answer_count * 2 > all && change_count > 0,
        "of {all} steps {answer_count} were answered, {change_count} were stale"
    );
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
