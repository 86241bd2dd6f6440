//! Profiles of statements that ran: sampling, bounded memory, and eviction of the oldest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use harrier_server::probe::Probe;
use harrier_server::registry::{Phase, Registry, SessionGuard, StatementEntry};
use harrier_session_api::query_profile::{Memory, Operator, QueryProfile, Share, Slice};

/// Probe that counts its calls.
#[derive(Debug, Default)]
struct CountingProbe {
    bytes: usize,
    refreshes: AtomicUsize,
    snapshots: AtomicUsize,
    never: bool,
}

impl CountingProbe {
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
impl Probe for CountingProbe {
    fn snapshot(&self) -> QueryProfile {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        self.work()
    }

    fn memory(&self) -> Vec<Memory> {
        vec![]
    }

    async fn refresh(&self) -> QueryProfile {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        if self.never {
            std::future::pending::<()>().await;
        }
        self.work()
    }
}

fn session(registry: &Arc<Registry>) -> SessionGuard {
    registry.enter(registry.next_session(), 1, "ada", "warehouse", None)
}

fn begin_statement(
    registry: &Arc<Registry>,
    session: &SessionGuard,
    probe: &Arc<CountingProbe>,
) -> Arc<StatementEntry> {
    let statement = registry.begin(&session.entry, "SELECT 1");
    statement.set_probe(Arc::clone(probe) as Arc<dyn Probe>);
    statement
}

#[test]
fn fast_statements_are_not_profiled() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(CountingProbe::default()));
    // A busy machine may make one of them slow.
    for _ in 0..100 {
        let statement = begin_statement(&registry, &session, &probe);
        registry.end(&statement, None);
    }
    assert!(probe.snapshots.load(Ordering::Relaxed) < 100);
    assert_eq!(Arc::strong_count(&probe), 1);
}

#[tokio::test]
async fn profile_refreshes_are_rate_limited() {
    let registry = Arc::new(Registry::default());
    let (session, probe) = (session(&registry), Arc::new(CountingProbe::default()));
    let statement = begin_statement(&registry, &session, &probe);
    assert!(statement.profile().is_none());
    for _ in 0..1000 {
        statement.refresh_profile().await;
    }
    assert!(probe.refreshes.load(Ordering::Relaxed) < 100, "{probe:?}");
    assert_eq!(statement.profile().unwrap().moved_bytes(), 3);
    tokio::time::sleep(Duration::from_millis(20)).await;
    registry.end(&statement, None);
    assert_eq!(probe.snapshots.load(Ordering::Relaxed), 1);
    let refreshes = probe.refreshes.load(Ordering::Relaxed);
    statement.refresh_profile().await;
    assert_eq!(probe.refreshes.load(Ordering::Relaxed), refreshes);
    assert_eq!(registry.totals().moved_bytes.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn profile_refreshes_time_out_without_an_answer_of_ranks() {
    let registry = Arc::new(Registry::default());
    let (session, probe) =
        (session(&registry), Arc::new(CountingProbe { never: true, ..CountingProbe::default() }));
    let statement = begin_statement(&registry, &session, &probe);
    let profile = tokio::time::timeout(Duration::from_secs(30), statement.refresh_profile()).await;
    // The coordinator's own part of the profile is returned.
    assert_eq!(profile.expect("given up").unwrap().moved_bytes(), 3);
}

#[test]
fn profiles_are_evicted_oldest_first() {
    let registry = Arc::new(Registry::default());
    let (session, probe) =
        (session(&registry), Arc::new(CountingProbe { bytes: 5 << 20, ..CountingProbe::default() }));
    for _ in 0..10 {
        let statement = begin_statement(&registry, &session, &probe);
        std::thread::sleep(Duration::from_millis(10));
        registry.end(&statement, None);
    }
    // The latest first.
    let has_profile: Vec<bool> =
        registry.statements().iter().map(|statement| statement.profile().is_some()).collect();
    assert_eq!(has_profile.len(), 10);
    assert_eq!(has_profile.iter().filter(|has_profile| **has_profile).count(), 6, "{has_profile:?}");
    assert!(has_profile.is_sorted_by(|one, other| one >= other), "{has_profile:?}");
}

#[test]
fn queued_statements_do_not_run_before_admission() {
    let registry = Arc::new(Registry::default());
    let session = session(&registry);
    let statement = registry.begin(&session.entry, "SELECT 1");
    statement.set_phase(Phase::Queued);
    // Its session has a stream of rows to send, and no row yet.
    statement.set_phase(Phase::Running);
    assert_eq!(statement.phase(), Phase::Queued);
    statement.set_phase(Phase::Planning);
    statement.set_phase(Phase::Running);
    assert_eq!(statement.phase(), Phase::Running);
}

#[test]
fn long_statement_texts_are_truncated() {
    let registry = Arc::new(Registry::default());
    let session = session(&registry);
    let text = format!("SELECT '{}'", "ü".repeat(3 << 20));
    let statement = registry.begin(&session.entry, &text);
    assert_eq!(statement.text_bytes, text.len());
    assert!(statement.text.len() < 100_000 && text.starts_with(&statement.text));
}
