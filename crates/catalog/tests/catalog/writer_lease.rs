//! Of several processes one may commit: the lease, the term that every commit shows, and who is shut out by
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use harrier_catalog::{Catalog, Error, Fence, Hook, Lease, Step};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A process that takes part, with its connections.
struct Part {
    fence: Fence,
    lease: Lease,
    catalog: Catalog,
}

async fn part(lake: &Lake, name: &str) -> Part {
    let fence = Fence::new(name);
    let lease = Lease::open(&lake.url, fence.clone()).await.unwrap();
    let catalog = Catalog::open_fenced(&lake.url, Some(&fence)).await.unwrap();
    Part { fence, lease, catalog }
}

/// Makes a table, in a transaction of its own.
async fn make(catalog: &Catalog, name: &str) -> Result<(), Error> {
    let mut transaction = begin(catalog).await;
    create_table(&mut transaction, 0, name, integers("a"));
    commit(catalog, &transaction).await.map(drop)
}

async fn taken(part: &Part, time: Duration) -> i64 {
    for _ in 0..200 {
        if let Some(term) = part.lease.acquire(time).await.unwrap() {
            return term;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the lease was never free");
}

#[test]
fn only_the_holder_commits() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let (one, other) = (part(&lake, "one").await, part(&lake, "other").await);
        assert!(matches!(make(&one.catalog, "early").await, Err(Error::ReadOnly(_))));
        assert_eq!(one.lease.holder().await.unwrap(), None);
        assert_eq!(one.lease.acquire(SHORT).await.unwrap(), Some(1));
        assert_eq!(other.lease.acquire(SHORT).await.unwrap(), None);
        make(&one.catalog, "a").await.unwrap();
        assert!(matches!(make(&other.catalog, "b").await, Err(Error::ReadOnly(_))));
        assert!(one.lease.renew(SHORT).await.unwrap());
        assert_eq!(taken(&other, LONG).await, 2);
        let holder = one.lease.holder().await.unwrap().unwrap();
        assert_eq!((holder.term, holder.name.as_str(), holder.is_alive), (2, "other", true));
        // The former holder believes in itself until it asks.
        assert_eq!(one.fence.term(), 1);
        assert!(matches!(make(&one.catalog, "c").await, Err(Error::ReadOnly(_))));
        make(&other.catalog, "d").await.unwrap();
        assert!(!one.lease.renew(LONG).await.unwrap());
        assert_eq!(one.fence.term(), 0);
        // Who takes no part is not shut out.
        make(&lake.catalog, "e").await.unwrap();
        // What is given back is free at once; what one has already it may take again.
        other.lease.release().await.unwrap();
        assert_eq!(one.lease.acquire(LONG).await.unwrap(), Some(3));
        assert_eq!(one.lease.acquire(LONG).await.unwrap(), Some(4));
        make(&one.catalog, "f").await.unwrap();
        let state = lake.catalog.head().await.unwrap();
        let mut names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "d", "e", "f"]);
    });
}

#[test]
fn a_holder_that_stops_in_a_commit_holds_nobody_up() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let (one, other) = (part(&lake, "one").await, part(&lake, "other").await);
        one.lease.acquire(SHORT).await.unwrap().unwrap();
        // It has its locks, and then nothing is heard of it for long.
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
        let stuck = tokio::spawn(async move { make(&catalog, "stuck").await });
        assert_eq!(taken(&other, LONG).await, 2);
        make(&other.catalog, "made").await.unwrap();
        // What it still had to say fell on deaf ears; it finds out that it did not happen.
        let failed = stuck.await.unwrap();
        assert!(failed.is_err(), "{failed:?}");
        let state = lake.catalog.head().await.unwrap();
        let names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["made"]);
    });
}

/// A server whose lease ran out and who got a new one: others may have served in between.
#[test]
fn a_commit_of_an_ended_term_is_not_done_in_the_next_one() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let one = Arc::new(part(&lake, "one").await);
        one.lease.acquire(LONG).await.unwrap().unwrap();
        let (holder, url, begun) = (Arc::clone(&one), lake.url.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&begun);
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
        let outcome = make(&one.catalog, "late").await;
        one.catalog.set_hook(None);
        assert!(matches!(outcome, Err(Error::ReadOnly(_))), "{outcome:?}");
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        make(&one.catalog, "new").await.unwrap();
        let state = lake.catalog.head().await.unwrap();
        let names: Vec<_> = state.tables.values().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["new"]);
    });
}

/// A commit that has shown its term holds the term's row: the next term begins when the commit is over, not
/// beside it. The process is the same, so that nobody ends the connection of the commit.
#[test]
fn a_term_begins_when_commits_of_the_last_one_are_over() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let one = Arc::new(part(&lake, "one").await);
        one.lease.acquire(LONG).await.unwrap().unwrap();
        let (holder, url) = (Arc::clone(&one), lake.url.clone());
        let hook: Hook = Arc::new(move |step| {
            let (holder, url) = (Arc::clone(&holder), url.clone());
            Box::pin(async move {
                if step == Step::BeforeCommit {
                    let next = tokio::spawn(async move { holder.lease.acquire(LONG).await });
                    // Either is certain to come.
                    while !next.is_finished() && waiting_for_locks(&url) == "0" {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    assert!(!next.is_finished(), "the next term has begun before the commit was over");
                }
                Ok(())
            })
        });
        one.catalog.set_hook(Some(hook));
        make(&one.catalog, "made").await.unwrap();
        one.catalog.set_hook(None);
        while one.fence.term() != 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(names(&lake.catalog.head().await.unwrap()), ["main.made"]);
    });
}

/// How many connections to a catalog's database wait for another one's lock.
fn waiting_for_locks(url: &str) -> String {
    let database = url.rsplit_once('/').unwrap().1;
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
    );
    server().psql("postgres", &sql)
}

#[test]
fn many_that_want_it_get_it_one_at_a_time() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let names = ["a", "b", "c", "d", "e", "f"];
        // All make the tables at the same time, too.
        let parts = futures_of(names.map(|name| {
            let url = lake.url.clone();
            async move { Lease::open(&url, Fence::new(name)).await.unwrap() }
        }))
        .await;
        let terms = futures_of(parts.iter().map(|lease| async { lease.acquire(LONG).await.unwrap() })).await;
        assert_eq!(terms.iter().flatten().count(), 1, "{terms:?}");
    });
}

/// Runs all at once.
async fn futures_of<F: Future>(all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
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
