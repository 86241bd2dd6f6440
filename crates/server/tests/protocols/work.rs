//! What is kept of statements that ran: of which, how much, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use harrier_server::probe::Probe;
use harrier_server::registry::{Phase, Registry, SessionGuard, StatementEntry};
use harrier_session_api::query_profile::{Memory, Operator, QueryProfile, Share, Slice};

/// Counts how often it is asked.
#[derive(Debug, Default)]
struct Counting {
    bytes: usize,
    looks: AtomicUsize,
    told: AtomicUsize,
    never: bool,
}

impl Counting {
    fn work(&self) -> QueryProfile {
        let operator = Operator {
            detail: "x".repeat(self.bytes),
            shares: vec![Share { moved_bytes: 3, ..Share::default() }],
            ..Operator::default()
        };
        QueryProfile {
            slices: vec![Slice { number: 0, ranks: 1, operators: vec![operator] }],
            ..QueryProfile::default()
        }
    }
}

#[async_trait]
impl Probe for Counting {
    fn snapshot(&self) -> QueryProfile {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.work()
    }

    fn memory(&self) -> Vec<Memory> {
        vec![]
    }

    async fn refresh(&self) -> QueryProfile {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if self.never {
            std::future::pending::<()>().await;
        }
        self.work()
    }
}

fn session(registry: &Arc<Registry>) -> SessionGuard {
    registry.enter(registry.next_session(), 1, "ada", "warehouse", None)
}

fn begun(registry: &Arc<Registry>, session: &SessionGuard, probe: &Arc<Counting>) -> Arc<StatementEntry> {
    let statement = registry.begin(&session.entry, "SELECT 1");
    statement.set_probe(Arc::clone(probe) as Arc<dyn Probe>);
    statement
}

#[test]
fn nobody_asks_what_a_fast_statement_did() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(Counting::default()));
    // A machine with nothing to spare may make one of them slow.
    for _ in 0..100 {
        let statement = begun(&registry, &session, &probe);
        registry.end(&statement, None);
    }
    assert!(probe.told.load(Ordering::Relaxed) < 100);
    assert_eq!(Arc::strong_count(&probe), 1);
}

#[tokio::test]
async fn a_statement_is_looked_at_now_and_then_however_many_watch_it() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(Counting::default()));
    let statement = begun(&registry, &session, &probe);
    assert!(statement.profile().is_none());
    for _ in 0..1000 {
        statement.refresh_profile().await;
    }
    assert!(probe.looks.load(Ordering::Relaxed) < 100, "{probe:?}");
    assert_eq!(statement.profile().unwrap().moved_bytes(), 3);
    tokio::time::sleep(Duration::from_millis(20)).await;
    registry.end(&statement, None);
    assert_eq!(probe.told.load(Ordering::Relaxed), 1);
    let looks = probe.looks.load(Ordering::Relaxed);
    statement.refresh_profile().await;
    assert_eq!(probe.looks.load(Ordering::Relaxed), looks);
    assert_eq!(registry.totals().moved_bytes.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn ranks_that_do_not_answer_hold_up_no_look_for_long() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(Counting { never: true, ..Counting::default() }));
    let statement = begun(&registry, &session, &probe);
    let look = tokio::time::timeout(Duration::from_secs(30), statement.refresh_profile()).await;
    // What is known without them is shown.
    assert_eq!(look.expect("given up").unwrap().moved_bytes(), 3);
}

#[test]
fn what_statements_did_is_kept_in_bounded_memory_and_the_oldest_forgotten_first() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(Counting { bytes: 5 << 20, ..Counting::default() }));
    for _ in 0..10 {
        let statement = begun(&registry, &session, &probe);
        std::thread::sleep(Duration::from_millis(10));
        registry.end(&statement, None);
    }
    // The latest first.
    let kept: Vec<bool> =
        registry.statements().iter().map(|statement| statement.profile().is_some()).collect();
    assert_eq!(kept.len(), 10);
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 6, "{kept:?}");
    assert!(kept.is_sorted_by(|one, other| one >= other), "{kept:?}");
}

#[test]
fn a_statement_that_waits_does_not_run_before_its_queue_says_so() {
    let registry = Arc::new(Registry::default());
    let session = session(&registry);
    let statement = registry.begin(&session.entry, "SELECT 1");
    statement.set_phase(Phase::Queued);
    // Its session has a stream of rows to be sent, and nothing in it yet.
    statement.set_phase(Phase::Running);
    assert_eq!(statement.phase(), Phase::Queued);
    statement.set_phase(Phase::Planning);
    statement.set_phase(Phase::Running);
    assert_eq!(statement.phase(), Phase::Running);
}

#[test]
fn of_a_long_text_the_beginning_is_kept_and_its_length() {
    let registry = Arc::new(Registry::default());
    let session = session(&registry);
    let text = format!("SELECT '{}'", "ü".repeat(3 << 20));
    let statement = registry.begin(&session.entry, &text);
    assert_eq!(statement.text_bytes, text.len());
    assert!(statement.text.len() < 100_000 && text.starts_with(&statement.text));
}
