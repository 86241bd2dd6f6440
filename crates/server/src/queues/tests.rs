//! Property tests of resource queues: random histories of the state machine, and of the futures around it.
//!
//! `HARRIER_SEED=17` repeats the history of one seed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use harrier_error::SqlError;

use super::state::OVERTAKES_MAX;
use super::*;
use crate::registry::Registry;

const PRIORITIES: [QueuePriority; 5] =
    [QueuePriority::Min, QueuePriority::Low, QueuePriority::Medium, QueuePriority::High, QueuePriority::Max];
const SMALL: f64 = 10.0;

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers for the same seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, range: std::ops::Range<usize>) -> usize {
        range.start + (self.next() % (range.end - range.start) as u64) as usize
    }

    fn is_lucky(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.between(0..all.len())]
    }
}

fn request(cost: f64, memory: u64) -> Request {
    Request { cost, memory }
}

fn admitted_ids(events: Vec<Event<()>>) -> Vec<u64> {
    events
        .into_iter()
        .map(|event| match event {
            Event::Admitted(id, ()) => id,
            Event::Refused(id, (), refusal) => panic!("{id} was refused: {refusal:?}"),
        })
        .collect()
}

fn state(definitions: Vec<QueueDefinition>, gang_max: Option<usize>) -> State<()> {
    let mut state = State::new(gang_max, SMALL);
    assert_eq!(state.define(definitions), vec![]);
    state
}

fn queue(name: &str, change: impl FnOnce(&mut QueueDefinition)) -> QueueDefinition {
    let mut definition = QueueDefinition::new(name);
    change(&mut definition);
    definition
}

#[test]
fn slots_are_admitted_in_fifo_order() {
    let mut state = state(vec![queue("q", |q| q.active_statements = Some(2))], None);
    let ids: Vec<u64> = (0..4).map(|_| state.enter("q", request(50.0, 0), ()).unwrap()).collect();
    assert_eq!(admitted_ids(state.advance()), ids[..2]);
    state.leave(ids[2]);
    assert_eq!(admitted_ids(state.advance()), Vec::<u64>::new());
    state.leave(ids[0]);
    assert_eq!(admitted_ids(state.advance()), ids[3..]);
}

#[test]
fn statements_wait_for_memory_at_the_head_of_the_queue() {
    let mut state = state(vec![queue("q", |q| q.memory_limit = Some(100))], None);
    let first = state.enter("q", request(50.0, 60), ()).unwrap();
    let large = state.enter("q", request(50.0, 100), ()).unwrap();
    let light = state.enter("q", request(50.0, 1), ()).unwrap();
    assert_eq!(admitted_ids(state.advance()), [first]);
    state.leave(first);
    assert_eq!(admitted_ids(state.advance()), [large]);
    state.leave(large);
    assert_eq!(admitted_ids(state.advance()), [light]);
    let refusal = state.enter("q", request(50.0, 101), ());
    assert_eq!(refusal, Err(Refusal::Memory { queue: "q".to_string(), requested: 101, limit: 100 }));
}

#[test]
fn statements_above_the_cost_limit_are_refused_or_run_alone() {
    let strict = queue("strict", |q| (q.max_cost, q.cost_overcommit) = (Some(100.0), false));
    let lenient = queue("lenient", |q| q.max_cost = Some(100.0));
    let mut state = state(vec![strict, lenient], None);
    assert!(matches!(state.enter("strict", request(101.0, 0), ()), Err(Refusal::Cost { .. })));
    let first = state.enter("lenient", request(60.0, 0), ()).unwrap();
    let second = state.enter("lenient", request(60.0, 0), ()).unwrap();
    let over = state.enter("lenient", request(f64::INFINITY, 0), ()).unwrap();
    let last = state.enter("lenient", request(20.0, 0), ()).unwrap();
    assert_eq!(admitted_ids(state.advance()), [first]);
    state.leave(first);
    assert_eq!(admitted_ids(state.advance()), [second]);
    state.leave(second);
    assert_eq!(admitted_ids(state.advance()), [over]);
    state.leave(over);
    assert_eq!(admitted_ids(state.advance()), [last]);
}

#[test]
fn small_statements_overtake_the_gang_without_starvation() {
    let mut state = state(vec![QueueDefinition::new("a"), QueueDefinition::new("b")], Some(1));
    let gang = state.enter("a", request(50.0, 0), ()).unwrap();
    let waits = state.enter("b", request(50.0, 0), ()).unwrap();
    assert_eq!(admitted_ids(state.advance()), [gang]);
    for _ in 0..OVERTAKES_MAX {
        let small = state.enter("b", request(1.0, 0), ()).unwrap();
        assert_eq!(admitted_ids(state.advance()), [small]);
    }
    let small = state.enter("b", request(1.0, 0), ()).unwrap();
    assert_eq!(admitted_ids(state.advance()), Vec::<u64>::new());
    state.leave(gang);
    let mut both = admitted_ids(state.advance());
    both.sort_unstable();
    assert_eq!(both, [waits, small]);
}

#[test]
fn gang_slots_are_shared_by_priority_weight() {
    let definitions = PRIORITIES.map(|priority| queue(priority.name(), |q| q.priority = priority));
    let mut state = state(definitions.to_vec(), Some(1));
    let mut queues = BTreeMap::new();
    for _ in 0..400 {
        for priority in PRIORITIES {
            queues.insert(state.enter(priority.name(), request(50.0, 0), ()).unwrap(), priority);
        }
    }
    let mut counts = BTreeMap::new();
    let mut running = admitted_ids(state.advance());
    for _ in 0..310 {
        assert_eq!(running.len(), 1);
        *counts.entry(queues[&running[0]]).or_insert(0) += 1;
        state.leave(running[0]);
        running = admitted_ids(state.advance());
    }
    // 310 slots over weights that add up to 31.
    assert_eq!(counts, PRIORITIES.into_iter().zip([10, 20, 40, 80, 160]).collect());
}

#[test]
fn queues_are_altered_while_statements_wait_and_run() {
    let mut state = state(vec![queue("q", |q| q.active_statements = Some(1))], None);
    let runs = state.enter("q", request(50.0, 10), ()).unwrap();
    let waits = state.enter("q", request(50.0, 10), ()).unwrap();
    let large = state.enter("q", request(50.0, 1000), ()).unwrap();
    assert_eq!(admitted_ids(state.advance()), [runs]);
    let narrow = queue("q", |q| (q.active_statements, q.memory_limit) = (Some(2), Some(100)));
    let refusal = Refusal::Memory { queue: "q".to_string(), requested: 1000, limit: 100 };
    assert_eq!(state.define(vec![narrow.clone()]), vec![Event::Refused(large, (), refusal)]);
    assert_eq!(admitted_ids(state.advance()), [waits]);
    let late = state.enter("q", request(50.0, 10), ()).unwrap();
    let refusal = Refusal::Dropped { queue: "q".to_string() };
    assert_eq!(state.define(vec![]), vec![Event::Refused(late, (), refusal)]);
    assert!(matches!(state.enter("q", request(0.0, 0), ()), Err(Refusal::NoQueue { .. })));
    assert_eq!(state.queues().count(), 1, "a queue stays as long as something of it runs");
    state.leave(runs);
    assert_eq!(state.define(vec![narrow]), vec![]);
    assert_eq!(state.queues().next().unwrap().1.running.len(), 1, "a queue of the same name goes on");
    state.leave(waits);
    assert_eq!(state.define(vec![]), vec![]);
    assert_eq!(state.queues().count(), 0);
}

/// The test's own model of a statement.
#[derive(Debug, Clone)]
struct ModelStatement {
    queue: String,
    request: Request,
    is_running: bool,
}

/// Runs a random history, and checks the invariants after every step.
fn check_history(seed: u64) {
    let random = &mut Random(seed);
    let names = ["a", "b", "c", "d"];
    let mut gang_max = random.is_lucky(80).then(|| random.between(1..5));
    let mut definitions = random_definitions(random, &names);
    let mut state = State::new(gang_max, SMALL);
    assert_eq!(state.define(definitions.clone()), vec![]);
    let mut model: BTreeMap<u64, ModelStatement> = BTreeMap::new();
    // Statements admitted before a limit was lowered may exceed it.
    let mut were_lowered = false;
    for step in 0..400 {
        let mut events = Vec::new();
        match random.between(0..100) {
            0..50 => {
                let name = random.one_of(&names);
                let cost = random.one_of(&[0.0, 5.0, 20.0, 60.0, 150.0]);
                let request = request(cost, random.between(0..80) as u64);
                let definition = definitions.iter().find(|definition| definition.name == name);
                let is_refused = definition.is_none_or(|definition| {
                    definition.memory_limit.is_some_and(|limit| request.memory > limit)
                        || (!definition.cost_overcommit
                            && definition.max_cost.is_some_and(|limit| cost > limit))
                });
                let entered = state.enter(name, request, ());
                assert_eq!(entered.is_err(), is_refused, "seed {seed}, step {step}");
                if let Ok(id) = entered {
                    model.insert(id, ModelStatement { queue: name.to_string(), request, is_running: false });
                }
            }
            50..95 => {
                let ids: Vec<u64> = model.keys().copied().collect();
                if !ids.is_empty() {
                    let id = random.one_of(&ids);
                    state.leave(id);
                    model.remove(&id);
                }
            }
            95..98 => {
                definitions = random_definitions(random, &names);
                events = state.define(definitions.clone());
                were_lowered = true;
            }
            _ => {
                gang_max = random.is_lucky(80).then(|| random.between(1..5));
                state.limit(gang_max, SMALL);
                were_lowered = true;
            }
        }
        let before: Vec<u64> = model.iter().filter(|(_, it)| it.is_running).map(|(id, _)| *id).collect();
        events.extend(state.advance());
        for event in events {
            match event {
                Event::Admitted(id, ()) => {
                    let it = model.get_mut(&id).unwrap_or_else(|| panic!("{id} is nobody, seed {seed}"));
                    assert!(!std::mem::replace(&mut it.is_running, true), "{id} went twice, seed {seed}");
                }
                Event::Refused(id, (), _) => {
                    assert!(!model.remove(&id).unwrap().is_running, "{id} ran, seed {seed}");
                }
            }
        }
        if were_lowered && model.values().all(|it| !it.is_running) {
            were_lowered = false;
        }
        check_step(&state, &definitions, gang_max, &model, &before, were_lowered)
            .unwrap_or_else(|error| panic!("{error}; seed {seed}, step {step}\n{state:#?}"));
    }
    // The rest ends: all are admitted at last.
    while !model.is_empty() {
        let running: Vec<u64> = model.iter().filter(|(_, it)| it.is_running).map(|(id, _)| *id).collect();
        assert!(!running.is_empty(), "nobody runs and somebody waits, seed {seed}\n{state:#?}");
        let ended = random.one_of(&running);
        model.remove(&ended);
        state.leave(ended);
        for id in admitted_ids(state.advance()) {
            model.get_mut(&id).unwrap().is_running = true;
        }
    }
    assert_eq!(state.gang_running(), 0, "seed {seed}");
    assert!(state.queues().all(|(_, queue)| queue.running.is_empty() && queue.waiting.is_empty()));
}

fn random_definitions(random: &mut Random, names: &[&str]) -> Vec<QueueDefinition> {
    let names: Vec<&str> = names.iter().copied().filter(|_| random.is_lucky(90)).collect();
    names
        .into_iter()
        .map(|name| QueueDefinition {
            name: name.to_string(),
            active_statements: random.is_lucky(60).then(|| random.between(1..4)),
            memory_limit: random.is_lucky(60).then(|| random.between(20..120) as u64),
            priority: random.one_of(&PRIORITIES),
            max_cost: random.is_lucky(40).then_some(100.0),
            cost_overcommit: random.is_lucky(50),
        })
        .collect()
}

fn check_step(
    state: &State<()>,
    definitions: &[QueueDefinition],
    gang_max: Option<usize>,
    model: &BTreeMap<u64, ModelStatement>,
    before: &[u64],
    were_lowered: bool,
) -> Result<(), String> {
    let on_gang = model.values().filter(|it| it.is_running && it.request.cost >= SMALL).count();
    if state.gang_running() != on_gang {
        return Err(format!("{on_gang} are on the gang, not {}", state.gang_running()));
    }
    if gang_max.is_some_and(|most| on_gang > most) && !were_lowered {
        return Err(format!("{on_gang} are on the gang"));
    }
    for definition in definitions {
        let of_queue = |is_running: bool| {
            model.iter().filter(move |(_, it)| it.queue == definition.name && it.is_running == is_running)
        };
        let running: Vec<_> = of_queue(true).collect();
        let memory: u64 = running.iter().map(|(_, it)| it.request.memory).sum();
        let cost: f64 = running.iter().map(|(_, it)| it.request.cost).sum();
        let is_new = running.iter().any(|(id, _)| !before.contains(id));
        let is_over = definition.active_statements.is_some_and(|places| running.len() > places)
            || definition.memory_limit.is_some_and(|limit| memory > limit)
            || definition.max_cost.is_some_and(|limit| cost > limit && running.len() > 1);
        // Newly admitted statements keep to the limits, also after they were lowered.
        if is_over && (is_new || !were_lowered) {
            return Err(format!("limits of queue {} are exceeded", definition.name));
        }
        // The first waiting statement must lack a slot, memory, cost or the gang.
        let Some((id, head)) = of_queue(false).next() else { continue };
        let request = head.request;
        let has_place = definition.active_statements.is_none_or(|places| running.len() < places);
        let has_memory = definition.memory_limit.is_none_or(|limit| memory + request.memory <= limit);
        let has_cost = definition.max_cost.is_none_or(|limit| {
            if request.cost > limit { running.is_empty() } else { cost + request.cost <= limit }
        });
        let has_gang = request.cost < SMALL || gang_max.is_none_or(|most| on_gang < most);
        if has_place && has_memory && has_cost && has_gang {
            return Err(format!("{id} could go"));
        }
    }
    Ok(())
}

#[test]
fn random_histories_respect_limits_without_starvation() {
    match std::env::var("HARRIER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => check_history(seed),
        None => (0..500).for_each(check_history),
    }
}

/// Upper bound on other admissions to the gang while one queue's head is ready: each other queue's share of
/// turns per turn of this queue, plus one that was due.
fn overtakes_bound(of: QueuePriority, others: &[QueuePriority]) -> u32 {
    others.iter().map(|other| other.weight().div_ceil(of.weight()) + 1).sum()
}

#[test]
fn gang_admission_is_fair_by_weight() {
    for seed in 0..200 {
        let random = &mut Random(seed);
        let priorities: Vec<QueuePriority> =
            (0..random.between(2..6)).map(|_| random.one_of(&PRIORITIES)).collect();
        let definitions = priorities.iter().enumerate();
        let definitions =
            definitions.map(|(at, priority)| queue(&at.to_string(), |q| q.priority = *priority));
        let mut state = state(definitions.collect(), Some(random.between(1..4)));
        let mut queue_of: BTreeMap<u64, usize> = BTreeMap::new();
        let mut running = Vec::new();
        // Per queue: waiting statements, and admissions of others since its head was ready.
        let mut waiting = vec![0u32; priorities.len()];
        let mut passed = vec![0u32; priorities.len()];
        for _ in 0..600 {
            if random.is_lucky(55) {
                // Queues come and go: an idle time is no claim to catch up.
                let at = random.between(0..priorities.len());
                let burst = random.between(1..6);
                for _ in 0..burst {
                    queue_of.insert(state.enter(&at.to_string(), request(50.0, 0), ()).unwrap(), at);
                    waiting[at] += 1;
                }
            } else if !running.is_empty() {
                state.leave(running.swap_remove(random.between(0..running.len())));
            }
            for id in admitted_ids(state.advance()) {
                let went = queue_of[&id];
                running.push(id);
                waiting[went] -= 1;
                passed[went] = 0;
                for at in 0..priorities.len() {
                    if at != went && waiting[at] > 0 {
                        passed[at] += 1;
                        let mut others = priorities.clone();
                        let own = others.remove(at);
                        let most = overtakes_bound(own, &others);
                        assert!(
                            passed[at] <= most,
                            "queue {at} was passed {} times, seed {seed}",
                            passed[at]
                        );
                    } else if waiting[at] == 0 {
                        passed[at] = 0;
                    }
                }
            }
        }
    }
}

fn entry() -> Arc<StatementEntry> {
    let registry = Arc::new(Registry::default());
    let session = registry.enter(registry.next_session(), 0, "role", "database", None);
    registry.begin(&session.entry, "SELECT 1")
}

fn limits(gang_statements: Option<usize>, wait: Option<Duration>) -> QueueLimits {
    QueueLimits { gang_statements, small_cost: SMALL, wait }
}

/// Waits until this many statements wait in the only queue.
async fn until_waiting(queues: &Queues, count: usize) {
    while queues.snapshot().0[0].waiting != count {
        tokio::task::yield_now().await;
    }
}

fn spawn(queues: &Queues, entry: &Arc<StatementEntry>) -> tokio::task::JoinHandle<Result<Ticket, SqlError>> {
    let (queues, entry) = (queues.clone(), Arc::clone(entry));
    tokio::spawn(async move { queues.admit("q", 50.0, 10, &entry).await })
}

#[tokio::test]
async fn queued_statements_are_listed_until_admitted() {
    let queues = Queues::new(vec![queue("q", |q| q.active_statements = Some(1))], limits(None, None));
    let (first, second) = (entry(), entry());
    let ticket = queues.admit("q", 50.0, 10, &first).await.unwrap();
    assert_eq!((first.phase(), first.queue().as_deref()), (Phase::Running, Some("q")));
    let waits = spawn(&queues, &second);
    until_waiting(&queues, 1).await;
    while second.phase() != Phase::Queued {
        tokio::task::yield_now().await;
    }
    let (snapshot, _) = queues.snapshot();
    assert_eq!((snapshot[0].running, snapshot[0].running_memory, snapshot[0].waiting), (1, 10, 1));
    assert!(snapshot[0].longest_wait > Duration::ZERO);
    drop(ticket);
    let ticket = waits.await.unwrap().unwrap();
    assert_eq!(second.phase(), Phase::Running);
    assert!(second.queue_wait() > Duration::ZERO);
    drop(ticket);
    let (snapshot, on_gang) = queues.snapshot();
    assert_eq!((snapshot[0].running, snapshot[0].admitted, on_gang), (0, 2, 0));
}

#[tokio::test]
async fn failed_waits_have_sqlstates_and_leave_no_entry() {
    let narrow = queue("q", |q| {
        (q.active_statements, q.memory_limit) = (Some(1), Some(100));
        (q.max_cost, q.cost_overcommit) = (Some(100.0), false);
    });
    let queues = Queues::new(vec![narrow], limits(None, Some(Duration::from_millis(20))));
    let code = async |queue: &str, cost: f64, memory: u64| {
        queues
            .admit(queue, cost, memory, &entry())
            .await
            .map(drop)
            .map_err(|failure| failure.sqlstate.to_string())
    };
    assert_eq!(code("nowhere", 0.0, 0).await, Err("42704".to_string()));
    assert_eq!(code("q", 0.0, 101).await, Err("53200".to_string()));
    assert_eq!(code("q", 100.5, 0).await, Err("53400".to_string()));
    assert_eq!(code("q", f64::NAN, 0).await, Ok(()));
    let ticket = queues.admit("q", 0.0, 0, &entry()).await.unwrap();
    let late = entry();
    let failure = queues.admit("q", 0.0, 0, &late).await.unwrap_err();
    assert_eq!(failure.sqlstate, "55P03");
    assert!(late.queue_wait() >= Duration::from_millis(20) && late.phase() != Phase::Queued);
    let waits = tokio::spawn({
        let queues = queues.clone();
        async move { queues.admit("q", 0.0, 0, &entry()).await.map(drop) }
    });
    until_waiting(&queues, 1).await;
    queues.set(vec![]);
    assert_eq!(waits.await.unwrap().unwrap_err().sqlstate, "42704");
    drop(ticket);
    assert_eq!(queues.snapshot(), (vec![], 0));
}

#[tokio::test]
async fn canceled_waiters_block_nobody() {
    let queues = Queues::new(vec![queue("q", |q| q.active_statements = Some(1))], limits(None, None));
    let ticket = queues.admit("q", 50.0, 10, &entry()).await.unwrap();
    let entries = [entry(), entry(), entry()];
    let mut waits = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        waits.push(spawn(&queues, entry));
        until_waiting(&queues, at + 1).await;
    }
    let last = waits.pop().unwrap();
    waits[1].abort();
    until_waiting(&queues, 2).await;
    assert_ne!(entries[1].phase(), Phase::Queued);
    // Admitted, and dropped before it is notified.
    drop(ticket);
    waits[0].abort();
    let _ = last.await.unwrap().unwrap();
    drop(waits);
    let (snapshot, _) = queues.snapshot();
    assert_eq!((snapshot[0].running, snapshot[0].waiting), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_cancellation_respects_limits() {
    let definitions = ["a", "b", "c"].map(|name| {
        queue(name, |q| {
            (q.active_statements, q.memory_limit) = (Some(3), Some(40));
            q.priority = if name == "a" { QueuePriority::Max } else { QueuePriority::Low };
        })
    });
    let queues = Queues::new(definitions.to_vec(), limits(Some(4), None));
    let running = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..3000u64 {
        let (queues, running) = (queues.clone(), Arc::clone(&running));
        tasks.push(tokio::spawn(async move {
            let name = ["a", "b", "c"][number as usize % 3];
            let entry = entry();
            let admit = queues.admit(name, 50.0, number % 40, &entry);
            // Some are canceled after no, one or a few polls.
            let ticket = if number % 5 == 0 {
                let given_up = async {
                    for _ in 0..number % 7 {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! { biased; () = given_up => return false, ticket = admit => ticket }
            } else {
                admit.await
            };
            let ticket = ticket.unwrap();
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= 4, "{now} run");
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            drop(ticket);
            true
        }));
    }
    let mut went = 0;
    for task in tasks {
        went += usize::from(task.await.unwrap());
    }
    assert!(went >= 2400, "{went} went");
    let (snapshot, on_gang) = queues.snapshot();
    assert_eq!(on_gang, 0);
    assert!(snapshot.iter().all(|queue| queue.running == 0 && queue.waiting == 0));
}
