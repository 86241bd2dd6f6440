//! The pages over invented sessions, statements and ranks, for the tests of the pages in a real browser and
//! for whoever changes them.
//!
//! Prints where it listens, and ends when its standard input does. `--actions`: statements can be canceled;
//! `--login`: role `ada` with password `lovelace`; `--moving`: rows are counted up; `--ill`: a rank is down;
//! `--empty`: nobody was there yet; `--many`: 200 statements have ended, the last with a text of 5 MB.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use harrier_error::{SqlError, SqlState};
use harrier_server::http::{self, Pages};
use harrier_server::overview::{
    Overview, QueueFacts, RankFacts, RankState, ServerFacts, SnapshotFacts, TableFacts,
};
use harrier_server::probe::Probe;
use harrier_server::registry::{Activity, Phase, Registry, SessionGuard, StatementEntry, Stop};
use harrier_session_api::query_profile::{Memory, Operator, QueryProfile, Share};

/// What a statement did on three ranks.
const THREE_RANKS: &str = include_str!("../tests/plans/three_ranks.json");

/// A statement that does always the same.
#[derive(Debug)]
struct Recorded(QueryProfile);

#[async_trait]
impl Probe for Recorded {
    fn snapshot(&self) -> QueryProfile {
        self.0.clone()
    }

    fn memory(&self) -> Vec<Memory> {
        self.snapshot().memory
    }

    async fn refresh(&self) -> QueryProfile {
        self.snapshot()
    }
}

fn three_ranks() -> QueryProfile {
    let told: serde_json::Value = serde_json::from_str(THREE_RANKS).expect("JSON");
    serde_json::from_value(serde_json::json!({ "slices": told["slices"] })).expect("work")
}

/// The same, when a part of the files was read, and with an operator that means no good.
fn hostile() -> QueryProfile {
    let mut work = three_ranks();
    for operator in work.slices.iter_mut().flat_map(|slice| &mut slice.operators) {
        for share in &mut operator.shares {
            *share = Share {
                rows: share.rows.map(|rows| rows / 3),
                busy_ns: share.busy_ns.map(|ns| ns / 3),
                read_bytes: share.read_bytes / 3,
                moved_bytes: share.moved_bytes / 3,
                ..*share
            };
        }
    }
    if let Some(slice) = work.slices.first_mut() {
        let name = "<script>document.title = 'taken'</script>".to_string();
        slice.operators.push(Operator { name, detail: "\"><img src=x>".to_string(), ..Operator::default() });
    }
    work
}

const LONG: &str = "SELECT o_orderpriority, count(*)\n  FROM orders JOIN lineitem ON l_orderkey = o_orderkey\n \
                    WHERE l_quantity > 3\n GROUP BY 1\n ORDER BY 2";

const HOSTILE: &str = "SELECT '<script>document.title = ''taken''</script>', \"<img src=x onerror=alert(1)>\" FROM t -- &amp; </code>";

struct Invented {
    since: SystemTime,
    is_ill: bool,
}

#[async_trait]
impl Overview for Invented {
    async fn server(&self) -> ServerFacts {
        ServerFacts {
            version: env!("CARGO_PKG_VERSION").to_string(),
            since: self.since,
            warehouse: "postgres://catalog.example.com/warehouse, s3://warehouse/tables".to_string(),
            listen: vec!["127.0.0.1:5433".to_string(), "/run/harrier/.s.PGSQL.5433".to_string()],
            closed: None,
            ranks_wanted: 8,
        }
    }

    async fn ranks(&self) -> Vec<RankFacts> {
        let is_down = |number| self.is_ill && number == 5;
        let state = |number| match number {
            number if is_down(number) => RankState::Down,
            8 | 9 => RankState::Spare,
            _ => RankState::Working,
        };
        let rank = |number: usize| RankFacts {
            number,
            host: format!("node{:02}.example.com", number / 2 + 1),
            process: (!is_down(number)).then_some(4000 + number as u32),
            state: state(number),
            reason: is_down(number).then(|| "process 4005 was killed by signal 9 <SIGKILL>".to_string()),
            sent_bytes: 7_654_321_000 * number as u64,
            sent_frames: 54_321 * number as u64,
            open_streams: if number < 8 { 14 } else { 0 },
            reserved_bytes: if number < 8 { 314_572_800 + (number as u64) * 1_000_000 } else { 0 },
            memory_bytes: Some(16 << 30),
            resident_bytes: (!is_down(number)).then_some(1_234_567_890),
            processor_seconds: 12.25 * number as f64,
            busy_cores: (!is_down(number)).then_some(0.3 * number as f64),
            report_age: (!is_down(number)).then_some(Duration::from_millis(700)),
        };
        (0..10).map(rank).collect()
    }

    async fn queues(&self) -> Vec<QueueFacts> {
        let limit = |name: &str, value: &str| (name.to_string(), value.to_string());
        vec![
            QueueFacts {
                name: "default".to_string(),
                limits: vec![limit("active_statements", "8"), limit("memory_limit", "8GiB")],
                running: 2,
                admitted: 12_345,
                ..QueueFacts::default()
            },
            QueueFacts {
                name: "etl".to_string(),
                limits: vec![limit("active_statements", "1"), limit("priority", "low")],
                running: 1,
                waiting: 3,
                longest_wait: Duration::from_secs(95),
                admitted: 17,
                refused: 2,
            },
        ]
    }

    async fn tables(&self) -> Result<Vec<TableFacts>, SqlError> {
        let table = |(name, rows, bytes, files): (&str, u64, u64, u64)| TableFacts {
            schema: "public".to_string(),
            name: name.to_string(),
            rows,
            bytes,
            files,
            deleted_rows: rows / 1000,
            kept_rows: files % 3,
            partitioned_by: (files > 4).then(|| "month(l_shipdate), bucket(16, l_orderkey)".to_string()),
        };
        let tables = [
            ("customer", 150_000, 9_876_543, 4),
            ("lineitem", 6_001_215, 234_567_890, 16),
            ("orders", 1_500_000, 65_432_100, 8),
            ("a_table_with_a_name_that_is_about_as_long_as_names_may_be_63_by", 1, 512, 1),
        ];
        Ok(tables.map(table).into())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotFacts>, SqlError> {
        let snapshot = |id: u64| SnapshotFacts {
            id,
            at: self.since + Duration::from_secs(1000 * id),
            changes: format!("inserted_into_table:{id},created_table:\"main\".\"t<{id}>\""),
            author: Some("ada".to_string()),
            message: id.is_multiple_of(2).then(|| "night's load".to_string()),
        };
        Ok((1..=20).rev().map(snapshot).collect())
    }
}

/// A session that does what it is asked to stop.
fn session(registry: &Arc<Registry>, role: &str, application: &str) -> SessionGuard {
    let id = registry.next_session();
    let client = format!("192.0.2.{}:5{:04}", id % 250 + 1, id % 9999).parse().ok();
    let session = registry.enter(id, 1, role, "warehouse", client);
    session.entry.set_application(application);
    session
}

fn ran(
    registry: &Arc<Registry>,
    session: &SessionGuard,
    text: &str,
    rows: u64,
    failure: Option<(&str, &str)>,
) -> Arc<StatementEntry> {
    let statement = begun(registry, session, text, rows);
    registry.end(
        &statement,
        failure.map(|(state, message)| (SqlState::parse(state).unwrap(), message.to_string())),
    );
    session.entry.set_activity(Activity::Idle);
    statement
}

fn begun(registry: &Arc<Registry>, session: &SessionGuard, text: &str, rows: u64) -> Arc<StatementEntry> {
    let statement = registry.begin(&session.entry, text);
    session.entry.set_activity(Activity::Active);
    statement.set_queue("default");
    statement.set_phase(Phase::Running);
    statement.rows.store(rows, Ordering::Relaxed);
    statement.bytes.store(rows * 117, Ordering::Relaxed);
    statement
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| options.iter().any(|given| given == option);
    let registry = Arc::new(Registry::default());
    let _guards = if has("--empty") { Vec::new() } else { invent(&registry, has("--moving"), has("--many")) };
    let since = SystemTime::now() - Duration::from_secs(98_765);
    let mut pages = Pages::new(registry, Arc::new(Invented { since, is_ill: has("--ill") }));
    pages.actions = has("--actions");
    if has("--login") {
        pages.login = Some(Arc::new(|role: &str, password: &str| (role, password) == ("ada", "lovelace")));
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    http::serve(listener, pages, async move { drop(ended.await) }).await
}

/// Sessions and their statements. The sessions end with what is returned.
fn invent(registry: &Arc<Registry>, is_moving: bool, has_many: bool) -> Vec<SessionGuard> {
    let ada = session(registry, "ada", "psql");
    for day in 1..=(if has_many { 200 } else { 40 }) {
        ran(
            registry,
            &ada,
            &format!("INSERT INTO sales SELECT * FROM staging WHERE day = {day}"),
            day * 1000,
            None,
        );
    }
    if has_many {
        let rows: Vec<String> = (0..400_000).map(|row| format!("({row}, 'x{row}')")).collect();
        ran(registry, &ada, &format!("INSERT INTO t VALUES {}", rows.join(", ")), 400_000, None);
    }
    let bob = session(registry, "bob", "<b>notebook</b>");
    ran(registry, &bob, "SELECT 1 / 0", 0, Some(("22012", "division by zero")));
    ran(
        registry,
        &bob,
        "SELECT * FROM lineitem",
        12_345,
        Some(("57014", "canceling statement due to user request")),
    );
    let planned = begun(registry, &bob, LONG, 5);
    planned.set_on_gang();
    planned.set_probe(Arc::new(Recorded(three_ranks())));
    // What a statement that is faster did is not kept.
    std::thread::sleep(Duration::from_millis(50));
    registry.end(&planned, None);
    bob.entry.set_activity(Activity::IdleInTransaction);
    let eve = session(registry, "eve", "dbt");
    let hostile = begun(registry, &eve, HOSTILE, 3);
    hostile.set_probe(Arc::new(Recorded(self::hostile())));
    let waiting = session(registry, "etl", "etl");
    let queued = registry.begin(
        &waiting.entry,
        "CREATE TABLE summary AS SELECT region, sum(amount) FROM sales GROUP BY region",
    );
    queued.set_queue("etl");
    queued.set_phase(Phase::Queued);
    waiting.entry.set_activity(Activity::Active);
    let sleeping = session(registry, "ada", "a BI tool with quite a long name, version 12.3.4");

    // Who is asked to stop does, as the sessions of a server.
    let (asked, told) = (Arc::clone(registry), Arc::clone(&hostile));
    let (mut heard, mut heard_by_sleeping) = (eve.entry.listen(), sleeping.entry.listen());
    tokio::spawn(async move {
        while heard.changed().await.is_ok() {
            if matches!(heard.borrow().1, Some(Stop::Statement)) {
                asked.end(
                    &told,
                    Some((SqlState::QUERY_CANCELED, "canceling statement due to user request".to_string())),
                );
            }
        }
    });
    tokio::spawn(async move {
        while heard_by_sleeping.changed().await.is_ok() {
            if matches!(heard_by_sleeping.borrow().1, Some(Stop::Session)) {
                break;
            }
        }
        drop(sleeping);
    });
    if is_moving {
        let moving = Arc::clone(&hostile);
        tokio::spawn(async move {
            while !moving.has_ended() {
                moving.rows.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    vec![ada, bob, eve, waiting]
}
