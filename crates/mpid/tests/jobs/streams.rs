//! What streams promise, over random times, windows, knobs and numbers of ranks: every pair that is in time
//! is in its window, which is given once, in order and with all of them; N ranks give what a plain reckoning
//! gives, in functions ([`Job::stream`]) and in a loop ([`Session`]).
//!
//! Times begin anywhere, also near 2^64; widths are 1 to 2^64-1; some inputs have nothing, or say nothing of
//! how far they are.

use harrier_mpid::session::{Arrangement, CombineBytes, Session, Shaping};
use harrier_mpid::{Config, Error, Job, Mode, Side, Window, World};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::simulated_ranks::{config, on_ranks, seeds};

/// What an input does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u64, u32),
    Advance(u64),
}

/// A stream, from a seed.
#[derive(Clone, Debug)]
struct Stream {
    width: u64,
    inputs: Vec<Vec<Step>>,
    a_tasks: usize,
    arrangement: Arrangement,
    combines: bool,
    config: Config,
}

impl Stream {
    fn random(random: &mut StdRng, inputs: usize, config: Config) -> Stream {
        let width = *[1, 1, 2, 10, 1000, 1 << 40, 1 << 63, u64::MAX].choose(random).expect("some");
        let first = *[0, 0, 12_345, u64::MAX - 300, u64::MAX - 40, u64::MAX].choose(random).expect("some");
        let arrangements = [Arrangement::Plain, Arrangement::Grouped, Arrangement::Sorted];
        Stream {
            width,
            inputs: (0..inputs).map(|_| Stream::input(random, first)).collect(),
            a_tasks: random.random_range(1..5),
            arrangement: *arrangements.choose(random).expect("some"),
            combines: random.random_ratio(1, 2),
            config,
        }
    }

    fn input(random: &mut StdRng, first: u64) -> Vec<Step> {
        let count = if random.random_ratio(1, 4) { 0 } else { random.random_range(1..400) };
        let (says, late) = (random.random_ratio(3, 4), random.random_range(1..20));
        let mut time = first;
        let mut steps = Vec::new();
        for _ in 0..count {
            time = time.saturating_add(random.random_range(0..4));
            // Some come late.
            let of = time - random.random_range(0..late.min(time - first + 1));
            steps.push(Step::Send(of, random.random_range(0..30)));
            if says && random.random_ratio(1, 3) {
                // To and fro: what was said is not taken back.
                steps.push(Step::Advance(time.saturating_sub(random.random_range(0..8))));
            }
        }
        if random.random_ratio(1, 8) {
            steps.push(Step::Advance(u64::MAX));
            steps.push(Step::Send(u64::MAX, 1));
        }
        steps
    }

    /// By window and key, the values, of which with a combiner there is one; and how many are late.
    fn expected(&self) -> (Given, u64) {
        let (mut given, mut late) = (Given::new(), 0);
        for (input, steps) in self.inputs.iter().enumerate() {
            let mut horizon = 0;
            for (at, step) in steps.iter().enumerate() {
                match *step {
                    Step::Send(time, _) if time / self.width < horizon => late += 1,
                    Step::Send(time, key) => {
                        let begin = time - time % self.width;
                        given.entry((begin, key)).or_default().push(value(input, at));
                    }
                    Step::Advance(time) => horizon = horizon.max(time / self.width),
                }
            }
        }
        for values in given.values_mut() {
            values.sort_unstable();
            if self.combines {
                *values = vec![values.iter().sum()];
            }
        }
        (given, late)
    }

    /// In functions, on several threads. Returns what each A task was given of each window, in that order.
    fn by_functions(&self, world: &World) -> Result<(u64, Seen), Error> {
        let mut job = Job::<u32, u64>::new("stream").o_tasks(self.inputs.len()).a_tasks(self.a_tasks);
        job = match self.arrangement {
            Arrangement::Plain => job.plain(),
            Arrangement::Grouped => job,
            Arrangement::Sorted => job.sorted(),
        };
        if self.combines {
            job = job.combine(|left, right| left + right);
        }
        let seen: Mutex<Seen> = Mutex::default();
        let report = job.stream(
            world,
            &self.config,
            self.width,
            |task| {
                let input = task.index();
                for (at, step) in self.inputs[input].iter().enumerate() {
                    match *step {
                        Step::Send(time, key) => drop(task.emit(time, &key, &value(input, at))?),
                        Step::Advance(time) => task.advance(time)?,
                    }
                }
                Ok(())
            },
            |window, task| {
                let mut pairs = Vec::new();
                while let Some(pair) = task.next_pair()? {
                    pairs.push(pair);
                }
                seen.lock().unwrap().push((task.index(), window, pairs));
                Ok(())
            },
        )?;
        Ok((report.counters.late, seen.into_inner().unwrap()))
    }

    /// In a loop, with a piece of the input at a time.
    fn by_loop(&self, world: &World) -> Result<(u64, Seen), Error> {
        let sum: Arc<CombineBytes> = Arc::new(|_, held, value, out| {
            out.extend((number(held) + number(value)).to_be_bytes());
            Ok(())
        });
        let shaping = Shaping {
            mode: Mode::Streaming,
            window_width: self.width,
            arrangement: self.arrangement,
            combine: self.combines.then_some(sum),
            ..Shaping::default()
        };
        let tasks = (Some(self.inputs.len()), Some(self.a_tasks));
        let config = Config { o_tasks: tasks.0, a_tasks: tasks.1, ..self.config.clone() };
        let mut session = Session::start(world, &config, "stream", &shaping)?;
        let (mut seen, mut late, mut at) = (Seen::new(), 0, 0);
        while let Some((side, index)) = session.next_task() {
            if side == Side::A {
                let window = session.window().expect("an A task has one");
                let mut pairs = Vec::new();
                while session.receive().expect("no failure") {
                    let (key, value) = session.pair();
                    pairs.push((u32::from_be_bytes(key.try_into().unwrap()), number(value)));
                }
                seen.push((index, window, pairs));
                continue;
            }
            let steps = &self.inputs[index];
            for step in steps.iter().skip(at).take(7) {
                match *step {
                    Step::Send(time, key) => {
                        let value = value(index, at).to_be_bytes();
                        late += u64::from(!session.send_at(time, &key.to_be_bytes(), &value).unwrap());
                    }
                    Step::Advance(time) => session.advance(time).unwrap(),
                }
                at += 1;
            }
            if at == steps.len() {
                session.end_input();
            }
        }
        let counted = session.finish()?.counters.late;
        assert!(late <= counted, "{late} were late here, and {counted} on all ranks");
        Ok((counted, seen))
    }

    fn check(&self, context: &str, outcomes: Vec<Result<(u64, Seen), Error>>) {
        let (expected, expected_late) = self.expected();
        let (mut got, mut ends) = (Given::new(), BTreeMap::new());
        for (late, seen) in
            outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("{context}: {error}")))
        {
            assert_eq!(late, expected_late, "{context}");
            for (a_task, window, pairs) in seen {
                let before = ends.insert(a_task, window);
                assert!(
                    before.is_none_or(|before: Window| before < window),
                    "{context}: {before:?}, {window:?}"
                );
                assert!(window.begin.is_multiple_of(self.width), "{context}: {window:?}");
                assert_eq!(window.end, window.begin.saturating_add(self.width), "{context}");
                assert!(!pairs.is_empty(), "{context}: {window:?} of nothing");
                let keys: Vec<u32> = pairs.iter().map(|(key, _)| *key).collect();
                assert!(self.arrangement != Arrangement::Sorted || keys.is_sorted(), "{context}: {keys:?}");
                if self.arrangement == Arrangement::Grouped {
                    let mut groups: Vec<u32> =
                        keys.chunk_by(|left, right| left == right).map(|group| group[0]).collect();
                    groups.sort_unstable();
                    assert!(groups.windows(2).all(|two| two[0] < two[1]), "{context}: a group in two places");
                }
                for (key, value) in pairs {
                    got.entry((window.begin, key)).or_default().push(value);
                }
            }
        }
        got.values_mut().for_each(|values| values.sort_unstable());
        let missing: Vec<_> =
            expected.iter().filter(|(key, values)| got.get(key) != Some(values)).take(5).collect();
        let odd: Vec<_> =
            got.iter().filter(|(key, values)| expected.get(key) != Some(values)).take(5).collect();
        assert!(got == expected, "{context}: {missing:?} expected, and {odd:?} given");
    }
}

/// By begin of the window and key.
type Given = BTreeMap<(u64, u32), Vec<u64>>;

/// A task, window, and pairs.
type Seen = Vec<(usize, Window, Vec<(u32, u64)>)>;

/// Another one for each pair; a sum of any of them tells which.
fn value(input: usize, at: usize) -> u64 {
    (input as u64 + 1) << 40 | at as u64
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn functions_give_what_a_plain_reckoning_gives() {
    for seed in seeds(40) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let (ranks, inputs) = (random.random_range(1..4), random.random_range(0..5));
        let stream = Stream::random(&mut random, inputs, config);
        let ran = stream.clone();
        let outcomes = on_ranks(seed, ranks, move |world| ran.by_functions(world));
        let Stream { width, a_tasks, arrangement, combines, .. } = &stream;
        let context = format!(
            "seed {seed}: {ranks} ranks, {inputs} O, {a_tasks} A, width {width}, {arrangement:?}, combines {combines}"
        );
        stream.check(&context, outcomes);
    }
}

#[test]
fn a_loop_gives_what_a_plain_reckoning_gives() {
    for seed in seeds(40) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let ranks = random.random_range(1..4);
        let inputs = random.random_range(1..=ranks);
        let stream = Stream::random(&mut random, inputs, config);
        let ran = stream.clone();
        let outcomes = on_ranks(seed, ranks, move |world| ran.by_loop(world));
        let Stream { width, a_tasks, arrangement, combines, .. } = &stream;
        let context = format!(
            "seed {seed}: {ranks} ranks, {inputs} O, {a_tasks} A, width {width}, {arrangement:?}, combines {combines}"
        );
        stream.check(&context, outcomes);
    }
}
