//! Sequences: their definitions are transactional, their values are not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::*;
use harrier_catalog::sequences::{
    Sequence, SequenceOwner, SequenceType, SequenceValue, UncommittedValue, get, uncommitted_value,
};
use harrier_catalog::state::ObjectId;
use harrier_catalog::{Catalog, Error, Expiry, Fence, Lease, Transaction};
use harrier_error::SqlState;
use uuid::Uuid;

fn sequence(name: &str) -> Sequence {
    Sequence {
        id: -1,
        uuid: Uuid::new_v4().to_string(),
        schema: 0,
        name: name.to_string(),
        kind: SequenceType::BigInt,
        start: 1,
        increment: 1,
        min: i64::MIN,
        max: i64::MAX,
        cache: 1,
        cycles: false,
        owner: None,
        comment: None,
    }
}

fn add_sequence(transaction: &mut Transaction, mut sequence: Sequence) -> UncommittedValue {
    sequence.id = transaction.allocate_object();
    let value = uncommitted_value(sequence.start_value());
    transaction.values.insert(sequence.id, Arc::clone(&value));
    transaction.state_mut().sequences.insert(sequence.id, Arc::new(sequence));
    value
}

async fn create_sequence(catalog: &Catalog, name: &str) -> ObjectId {
    let mut transaction = begin(catalog).await;
    add_sequence(&mut transaction, sequence(name));
    commit(catalog, &transaction).await.unwrap();
    catalog.head().await.unwrap().sequence(0, name).unwrap().id
}

fn state_of<T: std::fmt::Debug>(outcome: Result<T, Error>) -> SqlState {
    match outcome {
        Err(Error::Refused(refusal)) => refusal.sqlstate,
        other => panic!("{other:?}"),
    }
}

/// In a catalog of an earlier version the first sequence creates the tables; everything round-trips.
#[test]
fn sequences_round_trip() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        assert!(lake.catalog.head().await.unwrap().sequences.is_empty());
        assert!(lake.catalog.sequence_values().await.unwrap().is_empty());
        let mut transaction = begin(&lake.catalog).await;
        let table = create_table(&mut transaction, 0, "t", integers("a"));
        let mut own = Sequence { comment: Some("c".to_string()), cycles: true, ..sequence("Own \"one\"") };
        own.owner = Some(SequenceOwner { table, column: 1, is_identity: true });
        let value = add_sequence(&mut transaction, own.clone());
        *value.lock().unwrap() = SequenceValue { last: i64::MIN, is_called: true };
        commit(&lake.catalog, &transaction).await.unwrap();

        let other = Catalog::open(&lake.url).await.unwrap();
        let state = other.head().await.unwrap();
        let stored = state.sequence(0, "Own \"one\"").unwrap();
        let table = state.table(0, "t").unwrap().id;
        let owner = Some(SequenceOwner { table, ..own.owner.unwrap() });
        assert_eq!(**stored, Sequence { id: stored.id, owner, ..own });
        assert_eq!(other.sequence_values().await.unwrap()[&stored.id], get(&value));
        assert_eq!(other.allocate_values(stored.id, 1).await.unwrap().first, i64::MIN + 1);

        // Another program drops the table: its sequence is dropped as well.
        lake.execute("UPDATE ducklake_table SET end_snapshot = begin_snapshot").await;
        assert!(Catalog::open(&lake.url).await.unwrap().head().await.unwrap().sequences.is_empty());
    });
}

/// Ranges allocated concurrently over separate connections are disjoint.
#[test]
fn concurrent_allocations_are_disjoint() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_sequence(&lake.catalog, "s").await;
        let mut tasks = Vec::new();
        for number in 0..4_u64 {
            let url = lake.url.clone();
            tasks.push(tokio::spawn(async move {
                let catalog = Catalog::open(&url).await.unwrap();
                let mut values = Vec::new();
                for round in 0..10 {
                    let range = catalog.allocate_values(id, 1 + (number + round) % 3).await.unwrap();
                    values.extend((0..range.count).map(|at| range.value(at)));
                }
                values
            }));
        }
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        let different: BTreeSet<i64> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(different.last(), Some(&(all.len() as i64)));
    });
}

#[test]
fn values_are_not_rolled_back() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_sequence(&lake.catalog, "s").await;
        let mut transaction = begin(&lake.catalog).await;
        let value = add_sequence(&mut transaction, sequence("gone"));
        let copy = transaction.clone();
        sequence("gone").allocate(&mut value.lock().unwrap(), 3).unwrap();
        // A rollback to a savepoint does not give values back.
        assert_eq!(get(copy.values.values().next().unwrap()).last, 3);
        assert_eq!(lake.catalog.allocate_values(id, 2).await.unwrap().first, 1);
        drop(transaction);
        assert_eq!(lake.catalog.allocate_values(id, 2).await.unwrap().first, 3);
        assert_eq!(lake.catalog.head().await.unwrap().sequences.len(), 1);

        // Created again, it exists when that is committed.
        let mut transaction = begin(&lake.catalog).await;
        transaction.values.insert(id, uncommitted_value(SequenceValue { last: 70, is_called: false }));
        assert!(!transaction.is_empty());
        assert_eq!(lake.catalog.allocate_values(id, 1).await.unwrap().first, 5);
        commit(&lake.catalog, &transaction).await.unwrap();
        assert_eq!(lake.catalog.allocate_values(id, 1).await.unwrap().first, 70);

        assert_eq!(
            state_of(lake.catalog.set_value(id + 1, SequenceValue { last: 1, is_called: true }).await),
            "42P01"
        );
    });
}

#[test]
fn changes_of_sequences_conflict() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_sequence(&lake.catalog, "s").await;
        let alter = |transaction: &mut Transaction, increment: i64| {
            let other = Sequence { increment, ..Sequence::clone(&transaction.state.sequences[&id]) };
            transaction.state_mut().sequences.insert(id, Arc::new(other));
        };
        let (mut one, mut two) = (begin(&lake.catalog).await, begin(&lake.catalog).await);
        let mut three = begin(&lake.catalog).await;
        let mut four = begin(&lake.catalog).await;
        let mut five = begin(&lake.catalog).await;
        alter(&mut one, 5);
        add_sequence(&mut one, sequence("new"));
        alter(&mut two, 6);
        add_sequence(&mut three, sequence("new"));
        create_table(&mut four, 0, "new", integers("a"));
        five.state_mut().sequences.remove(&id);
        commit(&lake.catalog, &one).await.unwrap();
        for other in [&two, &three, &four] {
            assert!(matches!(commit(&lake.catalog, other).await, Err(Error::Conflict(_))));
        }
        assert_eq!(lake.catalog.allocate_values(id, 2).await.unwrap().value(1), 6);
        commit(&lake.catalog, &five).await.unwrap();
        assert_eq!(state_of(lake.catalog.allocate_values(id, 1).await), "42P01");
    });
}

#[test]
fn values_of_expired_sequences_are_removed() {
    on_both(async |kind| {
        let lake = lake(kind).await;
        let id = create_sequence(&lake.catalog, "s").await;
        let mut transaction = begin(&lake.catalog).await;
        transaction.state_mut().sequences.remove(&id);
        commit(&lake.catalog, &transaction).await.unwrap();
        assert_eq!(lake.catalog.sequence_values().await.unwrap().len(), 1);
        assert!(lake.catalog.at(1).await.unwrap().sequences.contains_key(&id));
        lake.catalog.expire(&Expiry::Versions(vec![0, 1])).await.unwrap();
        assert!(lake.catalog.sequence_values().await.unwrap().is_empty());
    });
}

/// A server whose lease another has taken allocates no values.
#[test]
fn only_the_lease_holder_allocates_values() {
    if skips_servers() {
        return;
    }
    run(async {
        let lake = lake(Kind::Postgres).await;
        let id = create_sequence(&lake.catalog, "s").await;
        let fence = Fence::new("one");
        let lease = Lease::open(&lake.url, fence.clone()).await.unwrap();
        let catalog = Catalog::open_fenced(&lake.url, Some(&fence)).await.unwrap();
        assert!(matches!(catalog.allocate_values(id, 1).await, Err(Error::ReadOnly(_))));
        lease.acquire(std::time::Duration::from_secs(60)).await.unwrap().unwrap();
        assert_eq!(catalog.allocate_values(id, 1).await.unwrap().first, 1);
        lake.execute("UPDATE harrier_term SET term = term + 1").await;
        assert!(matches!(catalog.allocate_values(id, 1).await, Err(Error::ReadOnly(_))));
        let value = SequenceValue { last: 9, is_called: true };
        assert!(matches!(catalog.set_value(id, value).await, Err(Error::ReadOnly(_))));
    });
}
