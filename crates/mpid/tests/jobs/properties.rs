//! Property tests of jobs over random codecs, partitioners, sizes, knobs and numbers of ranks: no pair is
//! lost, groups are complete, keys are ordered if requested, and N ranks have the result of one.
//!
//! Ranks are threads over a simulated network. `HARRIER_SEED` repeats a run of one seed.

use harrier_mpid::{Config, Datum, Error, Job, Kept, Outcome, SPANS_MAX, Side, World, hash};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::simulated_ranks::{config, on_ranks, seeds};

/// A type with random values.
trait Random: Datum + Ord + Clone + Debug + Send + Sync + 'static {
    fn random(random: &mut StdRng) -> Self;
    fn from_view(view: Self::View<'_>) -> Self;
}

impl Random for u32 {
    fn random(random: &mut StdRng) -> u32 {
        random.random_range(0..300)
    }

    fn from_view(view: u32) -> u32 {
        view
    }
}

impl Random for i64 {
    fn random(random: &mut StdRng) -> i64 {
        random.random_range(-40..40) * random.random_range(1..1 << 40)
    }

    fn from_view(view: i64) -> i64 {
        view
    }
}

impl Random for String {
    fn random(random: &mut StdRng) -> String {
        // Sometimes larger than a block.
        let length = if random.random_ratio(1, 500) { 5000 } else { random.random_range(0..9) };
        (0..length).map(|_| char::from(random.random_range(b'a'..b'e'))).collect()
    }

    fn from_view(view: &str) -> String {
        view.to_string()
    }
}

impl Random for Vec<u8> {
    fn random(random: &mut StdRng) -> Vec<u8> {
        (0..random.random_range(0..20)).map(|_| random.random_range(0..3)).collect()
    }

    fn from_view(view: &[u8]) -> Vec<u8> {
        view.to_vec()
    }
}

impl<A: Random, B: Random> Random for (A, B) {
    fn random(random: &mut StdRng) -> (A, B) {
        (A::random(random), B::random(random))
    }

    fn from_view((a, b): (A::View<'_>, B::View<'_>)) -> (A, B) {
        (A::from_view(a), B::from_view(b))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ordering {
    Plain,
    Grouped,
    Sorted,
    Reversed,
}

/// The pairs that an O task emits, determined by the seed and its number.
fn pairs<K: Random, V: Random>(seed: u64, o_task: usize) -> Vec<(K, V)> {
    let mut random = StdRng::seed_from_u64(seed ^ (o_task as u64 + 1).wrapping_mul(0x9E37_79B9));
    let count = random.random_range(0..1500);
    (0..count).map(|_| (K::random(&mut random), V::random(&mut random))).collect()
}

/// Pairs of one A task.
type TaskPairs<K, V> = Vec<(K, V)>;

fn check<K: Random, V: Random>(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let config = config(&mut random, folder.path());
    let ranks = random.random_range(1..5);
    let (o_tasks, a_tasks) = (random.random_range(1..12), random.random_range(1..9));
    let ordering = *[Ordering::Plain, Ordering::Grouped, Ordering::Sorted, Ordering::Reversed]
        .choose(&mut random)
        .expect("some");
    let partitions = random.random_ratio(1, 3);
    let context = format!("seed {seed}: {ranks} ranks, {o_tasks} O, {a_tasks} A, {ordering:?}, {config:?}");
    let outcomes = on_ranks(seed, ranks, move |world| -> Result<Outcome<TaskPairs<K, V>>, Error> {
        let mut job = Job::<K, V>::new("properties").o_tasks(o_tasks).a_tasks(a_tasks);
        job = match ordering {
            Ordering::Plain => job.plain(),
            Ordering::Grouped => job,
            Ordering::Sorted => job.sorted(),
            Ordering::Reversed => job.sorted_by(|left, right| K::from_view(right).cmp(&K::from_view(left))),
        };
        if partitions {
            job = job.partition(|key, parts| format!("{:?}", K::from_view(key)).len() % parts);
        }
        job.run(
            world,
            &config,
            |task| {
                for (at, (key, value)) in pairs::<K, V>(seed, task.index()).into_iter().enumerate() {
                    task.at(at as u64);
                    task.emit(&key, &value)?;
                }
                Ok(())
            },
            |task| {
                let mut pairs_of_task = Vec::new();
                if ordering == Ordering::Plain {
                    while let Some((key, value)) = task.next_pair()? {
                        pairs_of_task.push((K::from_view(key), V::from_view(value)));
                    }
                    return Ok(pairs_of_task);
                }
                let mut keys = BTreeSet::new();
                while let Some(mut group) = task.next_group()? {
                    let key = K::from_view(group.key()?);
                    assert!(keys.insert(key.clone()), "a group in two places");
                    let before = pairs_of_task.len();
                    while let Some(value) = group.next_value()? {
                        pairs_of_task.push((key.clone(), V::from_view(value)));
                    }
                    assert!(pairs_of_task.len() > before, "a group without a value");
                }
                Ok(pairs_of_task)
            },
        )
    });
    let mut expected: Vec<(K, V)> = (0..o_tasks).flat_map(|o_task| pairs(seed, o_task)).collect();
    let mut got = Vec::new();
    let mut tasks = BTreeSet::new();
    let mut home: BTreeMap<K, usize> = BTreeMap::new();
    let mut reports = Vec::new();
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let outcome = outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
        for (a_task, pairs_of_task) in outcome.outputs {
            assert!(tasks.insert(a_task), "{context}: A task {a_task} ran twice");
            assert_eq!(a_task % ranks, rank, "{context}");
            match ordering {
                Ordering::Sorted => {
                    assert!(pairs_of_task.is_sorted_by_key(|(key, _)| key.clone()), "{context}")
                }
                Ordering::Reversed => {
                    assert!(pairs_of_task.windows(2).all(|pair| pair[0].0 >= pair[1].0), "{context}");
                }
                Ordering::Plain | Ordering::Grouped => {}
            }
            for (key, _) in &pairs_of_task {
                assert_eq!(
                    *home.entry(key.clone()).or_insert(a_task),
                    a_task,
                    "{context}: a key in two tasks"
                );
            }
            got.extend(pairs_of_task);
        }
        reports.push(outcome.report);
    }
    assert_eq!(tasks.len(), a_tasks, "{context}");
    got.sort();
    expected.sort();
    assert!(got == expected, "{context}: {} pairs of {}", got.len(), expected.len());
    for report in &reports {
        assert_eq!(report, &reports[0], "{context}");
        assert_eq!(report.counters.pairs_emitted, expected.len() as u64, "{context}");
        assert_eq!(report.counters.pairs_received, expected.len() as u64, "{context}");
        assert_eq!(
            (report.counters.o_tasks_run, report.counters.a_tasks_run),
            (o_tasks as u64, a_tasks as u64)
        );
    }
}

#[test]
fn output_pairs_equal_input_pairs() {
    for seed in seeds(12) {
        check::<u32, String>(seed);
        check::<i64, ()>(seed + 1);
        check::<String, i64>(seed + 2);
        check::<Vec<u8>, Vec<u8>>(seed + 3);
        check::<(String, u32), (u32, String)>(seed + 4);
    }
}

impl Random for () {
    fn random(_: &mut StdRng) {}

    fn from_view(_: ()) {}
}

/// With a combiner there is one value for each key, wherever it was combined.
#[test]
fn combined_values_are_the_sums() {
    for seed in seeds(16) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let ranks = random.random_range(1..5);
        let sorted = random.random_ratio(1, 2);
        let context = format!("seed {seed}: {ranks} ranks, sorted {sorted}, {config:?}");
        let outcomes = on_ranks(seed, ranks, move |world| {
            let job =
                Job::<String, i64>::new("sums").o_tasks(7).a_tasks(5).combine(|left, right| left + right);
            let job = if sorted { job.sorted() } else { job };
            job.run(
                world,
                &config,
                |task| {
                    for (key, value) in pairs::<String, u32>(seed, task.index()) {
                        task.emit(&key, &i64::from(value))?;
                    }
                    Ok(())
                },
                |task| {
                    let mut pairs_of_task = Vec::new();
                    while let Some(mut group) = task.next_group()? {
                        let first = group.next_value()?.ok_or("a group has a value")?;
                        assert_eq!(group.next_value()?, None);
                        pairs_of_task.push((group.key()?.to_string(), first));
                    }
                    assert!(!sorted || pairs_of_task.is_sorted());
                    Ok(pairs_of_task)
                },
            )
        });
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        for (key, value) in (0..7).flat_map(|o_task| pairs::<String, u32>(seed, o_task)) {
            *expected.entry(key).or_default() += i64::from(value);
        }
        let mut got = BTreeMap::new();
        for outcome in outcomes {
            let outcome = outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
            for (key, value) in outcome.outputs.into_iter().flat_map(|(_, pairs_of_task)| pairs_of_task) {
                assert_eq!(got.insert(key, value), None, "{context}: a key twice");
            }
        }
        assert_eq!(got, expected, "{context}");
    }
}

/// Rounds over kept pairs have the result of a plain loop on any number of ranks.
#[test]
fn rounds_equal_a_plain_loop() {
    const PARTS: usize = 6;
    const ROUNDS: u64 = 4;
    for seed in seeds(6) {
        let ranks = 1 + (seed % 4) as usize;
        let outcomes = on_ranks(seed, ranks, move |world| -> Result<Vec<u64>, Error> {
            let config = Config { threads: Some(2), ..Config::default() };
            let load = Job::<u64, u64>::new("load")
                .o_tasks(3)
                .a_tasks(PARTS)
                .partition(|key, parts| key as usize % parts);
            let loaded = load.run(
                world,
                &config,
                |task| (task.index() as u64..100).step_by(3).try_for_each(|key| Ok(task.emit(&key, &key)?)),
                |task| {
                    let kept = task.keep()?;
                    assert_eq!(kept.iter().count(), kept.len());
                    Ok(kept.iter().map(|pair| pair.map(|(key, _)| key)).collect::<Result<Vec<u64>, _>>()?)
                },
            )?;
            let mut kept: Kept<Vec<u64>> = loaded.keep(PARTS);
            for round in 0..ROUNDS {
                let job = Job::<u64, u64>::new("round").partition(|key, parts| key as usize % parts);
                job.round(
                    world,
                    &config,
                    &kept,
                    |task, part| part.iter().try_for_each(|number| Ok(task.emit(&(number * 7 + round), &1)?)),
                    |task, part| {
                        part.clear();
                        while let Some((number, _)) = task.next_pair()? {
                            assert_eq!(number as usize % PARTS, task.index());
                            part.push(number);
                        }
                        Ok(())
                    },
                )?;
            }
            Ok(kept.here().flat_map(|(_, part)| part.clone()).collect())
        });
        let mut got: Vec<u64> =
            outcomes.into_iter().flat_map(|numbers| numbers.expect("no failure")).collect();
        got.sort();
        let mut expected: Vec<u64> = (0..100).collect();
        for round in 0..ROUNDS {
            expected = expected.iter().map(|number| number * 7 + round).collect();
        }
        expected.sort();
        assert_eq!(got, expected, "seed {seed}");
    }
}

/// Each window is returned once, in order, with all pairs that were in time.
#[test]
fn windows_are_complete_and_in_order() {
    const WIDTH: u64 = 10;
    for seed in seeds(10) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let ranks = random.random_range(1..4);
        let (o_tasks, a_tasks) = (random.random_range(1..5), random.random_range(1..5));
        let script = move |o_task: usize| -> Vec<(u64, u32)> {
            let mut random = StdRng::seed_from_u64(seed ^ o_task as u64);
            let mut time = 0;
            (0..400)
                .map(|_| {
                    time += random.random_range(0..4);
                    // Some are late.
                    (time - random.random_range(0..time.min(15) + 1), random.random_range(0..50))
                })
                .collect()
        };
        let context = format!("seed {seed}: {ranks} ranks, {o_tasks} O, {a_tasks} A, {config:?}");
        type WindowCounts = Vec<(u64, usize, Vec<(u32, u64)>)>;
        let outcomes = on_ranks(seed, ranks, move |world| {
            let windows_seen: std::sync::Mutex<WindowCounts> = Default::default();
            let job = Job::<u32, u64>::new("windows").o_tasks(o_tasks).a_tasks(a_tasks).sorted();
            let report = job.stream(
                world,
                &config,
                WIDTH,
                |task| {
                    let mut newest = 0;
                    for (time, key) in script(task.index()) {
                        newest = newest.max(time);
                        task.emit(time, &key, &1)?;
                        task.advance(newest.saturating_sub(5))?;
                    }
                    Ok(())
                },
                |window, task| {
                    let mut counts = Vec::new();
                    while let Some(mut group) = task.next_group()? {
                        counts.push(group.fold(0, |sum, one| sum + one)?);
                    }
                    assert!(counts.is_sorted());
                    windows_seen.lock().unwrap().push((window.begin, task.index(), counts));
                    Ok(())
                },
            );
            (report, windows_seen.into_inner().unwrap())
        });
        let (mut expected, mut late) = (BTreeMap::<(u64, u32), u64>::new(), 0);
        for o_task in 0..o_tasks {
            let (mut newest, mut horizon) = (0, 0);
            for (time, key) in script(o_task) {
                newest = newest.max(time);
                match time / WIDTH < horizon {
                    true => late += 1,
                    false => *expected.entry((time / WIDTH * WIDTH, key)).or_default() += 1,
                }
                horizon = horizon.max(newest.saturating_sub(5) / WIDTH);
            }
        }
        let mut got = BTreeMap::new();
        for (report, windows_seen) in outcomes {
            let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(report.counters.late, late, "{context}");
            let mut last = BTreeMap::new();
            for (window, a_task, counts) in windows_seen {
                assert!(last.insert(a_task, window).is_none_or(|before| before < window), "{context}");
                for (key, count) in counts {
                    assert_eq!(got.insert((window, key), count), None, "{context}: a window twice");
                }
            }
        }
        assert_eq!(got, expected, "{context}");
    }
}

/// A stream may run for ever: a rank keeps the last spans of its windows, and their number.
#[test]
fn long_streams_keep_a_bounded_number_of_spans() {
    const MORE: u64 = 1000;
    let windows = SPANS_MAX as u64 + MORE;
    let config = Config { block_bytes: 1024, ..Config::default() };
    let report = Job::<u64, ()>::new("long").o_tasks(1).a_tasks(1).stream(
        &World::alone(),
        &config,
        1,
        |task| {
            for time in 0..windows {
                task.emit(time, &time, &())?;
                task.advance(time + 1)?;
            }
            Ok(())
        },
        |_, task| {
            assert!(task.next_pair()?.is_some());
            Ok(())
        },
    );
    let report = report.unwrap();
    assert_eq!(report.counters.a_tasks_run, windows);
    assert_eq!(report.spans.len(), SPANS_MAX);
    assert_eq!(report.spans_left_out, windows + 1 - SPANS_MAX as u64);
    assert!(report.timeline_csv().ends_with(" earlier tasks were left out\n"));
    // The O task's span is there, as it has run from the first window to the last.
    assert!(report.spans.iter().any(|span| span.side == Side::O));
}

/// The partitioning hash of a key is the same in every process.
#[test]
fn hashes_are_stable() {
    assert_eq!(
        [hash(b"a"), hash(b"harrier"), hash(b"a key of more than sixteen bytes")].map(|hash| hash >> 56),
        [154, 206, 167]
    );
}
