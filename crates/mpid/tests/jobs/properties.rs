//! What jobs promise, over random codecs, partitioners, sizes, knobs and numbers of ranks: the pairs that go
//! in come out, groups are complete, keys come in order when asked, and N ranks give what one gives.
//!
//! Ranks are threads over a simulated network. `HARRIER_SEED` repeats a run of one seed.

use harrier_mpid::{Config, Datum, Error, Job, Kept, Outcome, SPANS_MAX, Side, World, hash};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::simulated_ranks::{config, on_ranks, seeds};

/// A type whose values a test can make.
trait Random: Datum + Ord + Clone + Debug + Send + Sync + 'static {
    fn random(random: &mut StdRng) -> Self;
    fn back(view: Self::View<'_>) -> Self;
}

impl Random for u32 {
    fn random(random: &mut StdRng) -> u32 {
        random.random_range(0..300)
    }

    fn back(view: u32) -> u32 {
        view
    }
}

impl Random for i64 {
    fn random(random: &mut StdRng) -> i64 {
        random.random_range(-40..40) * random.random_range(1..1 << 40)
    }

    fn back(view: i64) -> i64 {
        view
    }
}

impl Random for String {
    fn random(random: &mut StdRng) -> String {
        // Now and then larger than a block.
        let length = if random.random_ratio(1, 500) { 5000 } else { random.random_range(0..9) };
        (0..length).map(|_| char::from(random.random_range(b'a'..b'e'))).collect()
    }

    fn back(view: &str) -> String {
        view.to_string()
    }
}

impl Random for Vec<u8> {
    fn random(random: &mut StdRng) -> Vec<u8> {
        (0..random.random_range(0..20)).map(|_| random.random_range(0..3)).collect()
    }

    fn back(view: &[u8]) -> Vec<u8> {
        view.to_vec()
    }
}

impl<A: Random, B: Random> Random for (A, B) {
    fn random(random: &mut StdRng) -> (A, B) {
        (A::random(random), B::random(random))
    }

    fn back((a, b): (A::View<'_>, B::View<'_>)) -> (A, B) {
        (A::back(a), B::back(b))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Plain,
    Grouped,
    Sorted,
    Reversed,
}

/// The pairs that an O task emits: from the seed and its number alone.
fn pairs<K: Random, V: Random>(seed: u64, o_task: usize) -> Vec<(K, V)> {
    let mut random = StdRng::seed_from_u64(seed ^ (o_task as u64 + 1).wrapping_mul(0x9E37_79B9));
    let count = random.random_range(0..1500);
    (0..count).map(|_| (K::random(&mut random), V::random(&mut random))).collect()
}

/// What one A task was given.
type Given<K, V> = Vec<(K, V)>;

fn check<K: Random, V: Random>(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let config = config(&mut random, folder.path());
    let ranks = random.random_range(1..5);
    let (o_tasks, a_tasks) = (random.random_range(1..12), random.random_range(1..9));
    let asked =
        *[Asked::Plain, Asked::Grouped, Asked::Sorted, Asked::Reversed].choose(&mut random).expect("some");
    let partitions = random.random_ratio(1, 3);
    let context = format!("seed {seed}: {ranks} ranks, {o_tasks} O, {a_tasks} A, {asked:?}, {config:?}");
    let outcomes = on_ranks(seed, ranks, move |world| -> Result<Outcome<Given<K, V>>, Error> {
        let mut job = Job::<K, V>::new("properties").o_tasks(o_tasks).a_tasks(a_tasks);
        job = match asked {
            Asked::Plain => job.plain(),
            Asked::Grouped => job,
            Asked::Sorted => job.sorted(),
            Asked::Reversed => job.sorted_by(|left, right| K::back(right).cmp(&K::back(left))),
        };
        if partitions {
            job = job.partition(|key, parts| format!("{:?}", K::back(key)).len() % parts);
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
                let mut given = Vec::new();
                if asked == Asked::Plain {
                    while let Some((key, value)) = task.next_pair()? {
                        given.push((K::back(key), V::back(value)));
                    }
                    return Ok(given);
                }
                let mut keys = BTreeSet::new();
                while let Some(mut group) = task.next_group()? {
                    let key = K::back(group.key()?);
                    assert!(keys.insert(key.clone()), "a group in two places");
                    let before = given.len();
                    while let Some(value) = group.next_value()? {
                        given.push((key.clone(), V::back(value)));
                    }
                    assert!(given.len() > before, "a group without a value");
                }
                Ok(given)
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
        for (a_task, given) in outcome.outputs {
            assert!(tasks.insert(a_task), "{context}: A task {a_task} ran twice");
            assert_eq!(a_task % ranks, rank, "{context}");
            match asked {
                Asked::Sorted => assert!(given.is_sorted_by_key(|(key, _)| key.clone()), "{context}"),
                Asked::Reversed => {
                    assert!(given.windows(2).all(|pair| pair[0].0 >= pair[1].0), "{context}");
                }
                Asked::Plain | Asked::Grouped => {}
            }
            for (key, _) in &given {
                assert_eq!(
                    *home.entry(key.clone()).or_insert(a_task),
                    a_task,
                    "{context}: a key in two tasks"
                );
            }
            got.extend(given);
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
fn pairs_in_are_pairs_out() {
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

    fn back(_: ()) {}
}

/// With a combiner there is one value for each key, whichever way it was combined.
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
                    let mut given = Vec::new();
                    while let Some(mut group) = task.next_group()? {
                        let first = group.next_value()?.ok_or("a group has a value")?;
                        assert_eq!(group.next_value()?, None);
                        given.push((group.key()?.to_string(), first));
                    }
                    assert!(!sorted || given.is_sorted());
                    Ok(given)
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
            for (key, value) in outcome.outputs.into_iter().flat_map(|(_, given)| given) {
                assert_eq!(got.insert(key, value), None, "{context}: a key twice");
            }
        }
        assert_eq!(got, expected, "{context}");
    }
}

/// Rounds over what stays give on any number of ranks what a plain loop gives.
#[test]
fn rounds_give_what_a_loop_gives() {
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

/// Each window is given once, in order, with all pairs that were in time.
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
                    // Some come late.
                    (time - random.random_range(0..time.min(15) + 1), random.random_range(0..50))
                })
                .collect()
        };
        let context = format!("seed {seed}: {ranks} ranks, {o_tasks} O, {a_tasks} A, {config:?}");
        type Seen = Vec<(u64, usize, Vec<(u32, u64)>)>;
        let outcomes = on_ranks(seed, ranks, move |world| {
            let seen: std::sync::Mutex<Seen> = Default::default();
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
                    seen.lock().unwrap().push((window.begin, task.index(), counts));
                    Ok(())
                },
            );
            (report, seen.into_inner().unwrap())
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
        for (report, seen) in outcomes {
            let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(report.counters.late, late, "{context}");
            let mut last = BTreeMap::new();
            for (window, a_task, counts) in seen {
                assert!(last.insert(a_task, window).is_none_or(|before| before < window), "{context}");
                for (key, count) in counts {
                    assert_eq!(got.insert((window, key), count), None, "{context}: a window twice");
                }
            }
        }
        assert_eq!(got, expected, "{context}");
    }
}

/// A stream may run for ever: of its windows a rank remembers the last ones, and how many there were.
#[test]
fn a_long_stream_keeps_few_spans() {
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
    // The O task's is there, as it has run from the first window to the last.
    assert!(report.spans.iter().any(|span| span.side == Side::O));
}

/// A key goes to the A task that its hash says, in every process.
#[test]
fn hashes_stay_what_they_are() {
    assert_eq!(
        [hash(b"a"), hash(b"harrier"), hash(b"a key of more than sixteen bytes")].map(|hash| hash >> 56),
        [154, 206, 167]
    );
}
