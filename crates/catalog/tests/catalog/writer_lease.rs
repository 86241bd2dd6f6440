//! Writer lease and fencing: one process of several may commit; every commit carries its term, and former
//! holders are fenced off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use harrier_catalog::{Catalog, Error, Fence, Hook, Lease, Step};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A participating process, with its connections.
struct Participant {
    fence: Fence,
    lease: Lease,
    catalog: Catalog,
}

async fn participant(lake: &Lake, name: &str) -> Participant {
    let fence = Fence::new(name);
    let lease = Lease::open(&lake.url, fence.clone()).await.unwrap();
    let catalog = Catalog::open_fenced(&lake.url, Some(&fence)).await.unwrap();
    Participant { fence, lease, catalog }
}

/// Creates a table, in a transaction of its own.
async fn create_table_in(catalog: &Catalog, name: &str) -> Result<(), Error> {
    let mut transaction = begin(catalog).await;
    create_table(&mut transaction, 0, name, integers("a"));
    commit(catalog, &transaction).await.map(drop)
}

async fn take_lease(participant: &Participant, time: Duration) -> i64 {
    for _ in 0..200 {
        if let Some(term) = participant.lease.acquire(time).await.unwrap() {
            return term;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the lease was never free");
}

#[test]
fn only_the_lease_holder_commits() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let (one, other) = (participant(&lake, "one").await, participant(&lake, "other").await);
        assert!(matches!(create_table_in(&one.catalog, "early").await, Err(Error::ReadOnly(_))));
        assert_eq!(one.lease.holder().await.unwrap(), None);
        assert_eq!(one.lease.acquire(SHORT).await.unwrap(), Some(1));
        assert_eq!(other.lease.acquire(SHORT).await.unwrap(), None);
        create_table_in(&one.catalog, "a").await.unwrap();
        assert!(matches!(create_table_in(&other.catalog, "b").await, Err(Error::ReadOnly(_))));
        assert!(one.lease.renew(SHORT).await.unwrap());
        assert_eq!(take_lease(&other, LONG).await, 2);
        let holder = one.lease.holder().await.unwrap().unwrap();
        assert_eq!((holder.term, holder.name.as_str(), holder.is_alive), (2, "other", true));
        // The former holder does not know of its loss until it asks.
        assert_eq!(one.fence.term(), 1);
        assert!(matches!(create_table_in(&one.catalog, "c").await, Err(Error::ReadOnly(_))));
        create_table_in(&other.catalog, "d").await.unwrap();
        assert!(!one.lease.renew(LONG).await.unwrap());
        assert_eq!(one.fence.term(), 0);
        // Processes that do not participate are not fenced off.
        create_table_in(&lake.catalog, "e").await.unwrap();
        // A released lease is free at once; a holder may take it again.
        other.lease.release().await.unwrap();
        assert_eq!(one.lease.acquire(LONG).await.unwrap(), Some(3));
        assert_eq!(one.lease.acquire(LONG).await.unwrap(), Some(4));
        create_table_in(&one.catalog, "f").await.unwrap();
        let state = lake.catalog.head().await.unwrap();
        let mut names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "d", "e", "f"]);
    });
}

#[test]
fn stalled_commits_do_not_block_the_next_holder() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let (one, other) = (participant(&lake, "one").await, participant(&lake, "other").await);
        one.lease.acquire(SHORT).await.unwrap().unwrap();
        // It has its locks, and then stalls for long.
        let hook: Hook = Arc::new(|step| {
            Box::pin(async move {
                if step == Step::BeforeCommit {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                Ok(())
            })
        });
        one.catalog.set_hook(Some(hook));
        let catalog = one.catalog.clone();
        let stuck = tokio::spawn(async move { create_table_in(&catalog, "stuck").await });
        assert_eq!(take_lease(&other, LONG).await, 2);
        create_table_in(&other.catalog, "made").await.unwrap();
        // Its remaining requests were refused; it learns that the commit did not happen.
        let failed = stuck.await.unwrap();
        assert!(failed.is_err(), "{failed:?}");
        let state = lake.catalog.head().await.unwrap();
        let names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["made"]);
    });
}

/// A server whose lease expired and who took a new one: others may have served in between.
#[test]
fn commits_of_an_ended_term_are_fenced() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let one = Arc::new(participant(&lake, "one").await);
        one.lease.acquire(LONG).await.unwrap().unwrap();
        let (holder, url, commits) = (Arc::clone(&one), lake.url.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&commits);
        let hook: Hook = Arc::new(move |step| {
            let (holder, url) = (Arc::clone(&holder), url.clone());
            let is_first = step == Step::Statement(0) && count.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move {
                if is_first {
                    // The connection is lost, and with it the lock of the term.
                    end_connections(&url);
                    holder.fence.close();
                    assert_eq!(holder.lease.acquire(LONG).await.unwrap(), Some(2));
                }
                Ok(())
            })
        });
        one.catalog.set_hook(Some(hook));
        let outcome = create_table_in(&one.catalog, "late").await;
        one.catalog.set_hook(None);
        assert!(matches!(outcome, Err(Error::ReadOnly(_))), "{outcome:?}");
        assert_eq!(commits.load(Ordering::Relaxed), 1);
        create_table_in(&one.catalog, "new").await.unwrap();
        let state = lake.catalog.head().await.unwrap();
        let names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["new"]);
    });
}

/// A commit that has shown its term locks the term's row: the next term begins after the commit, not beside
/// it. The process is the same, so nobody ends the connection of the commit.
#[test]
fn terms_begin_after_commits_of_the_previous_term() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let one = Arc::new(participant(&lake, "one").await);
        one.lease.acquire(LONG).await.unwrap().unwrap();
        let (holder, url) = (Arc::clone(&one), lake.url.clone());
        let hook: Hook = Arc::new(move |step| {
            let (holder, url) = (Arc::clone(&holder), url.clone());
            Box::pin(async move {
                if step == Step::BeforeCommit {
                    let next = tokio::spawn(async move { holder.lease.acquire(LONG).await });
                    // One of the two is certain to happen.
                    while !next.is_finished() && lock_waiters(&url) == "0" {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    assert!(!next.is_finished(), "the next term has begun before the commit was over");
                }
                Ok(())
            })
        });
        one.catalog.set_hook(Some(hook));
        create_table_in(&one.catalog, "made").await.unwrap();
        one.catalog.set_hook(None);
        while one.fence.term() != 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(names(&lake.catalog.head().await.unwrap()), ["main.made"]);
    });
}

/// The number of connections to a catalog's database that wait for another one's lock.
fn lock_waiters(url: &str) -> String {
    let database = url.rsplit_once('/').unwrap().1;
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
    );
    server().psql("postgres", &sql)
}

#[test]
fn concurrent_candidates_take_the_lease_one_at_a_time() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let names = ["a", "b", "c", "d", "e", "f"];
        // All create the tables at the same time as well.
        let parts = join_all(names.map(|name| {
            let url = lake.url.clone();
            async move { Lease::open(&url, Fence::new(name)).await.unwrap() }
        }))
        .await;
        let terms = join_all(parts.iter().map(|lease| async { lease.acquire(LONG).await.unwrap() })).await;
        assert_eq!(terms.iter().flatten().count(), 1, "{terms:?}");
    });
}

/// Runs all futures concurrently.
async fn join_all<F: Future>(all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = all.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
