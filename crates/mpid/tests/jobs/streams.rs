//! Property tests of streams over random times, windows, knobs and numbers of ranks: each window is returned
//! once, in order, with every pair that was in time; N ranks have the result of a plain computation, with
//! functions ([`Job::stream`]) and in a loop ([`Session`]).
//!
//! Times start anywhere, also near 2^64; widths are 1 to 2^64-1; some inputs are empty, or report no
//! progress.

use harrier_mpid::session::{Arrangement, CombineBytes, Session, Shaping};
use harrier_mpid::{Config, Error, Job, Mode, Side, Window, World};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::simulated_ranks::{config, on_ranks, seeds};

/// The next step of an input.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u64, u32),
    Advance(u64),
}

/// A stream, determined by a seed.
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
            // Some are late.
            let of = time - random.random_range(0..late.min(time - first + 1));
            steps.push(Step::Send(of, random.random_range(0..30)));
            if says && random.random_ratio(1, 3) {
                // Advances forwards and backwards: a watermark never goes back.
                steps.push(Step::Advance(time.saturating_sub(random.random_range(0..8))));
            }
        }
        if random.random_ratio(1, 8) {
            steps.push(Step::Advance(u64::MAX));
            steps.push(Step::Send(u64::MAX, 1));
        }
        steps
    }

    /// Expected values by window and key, one each with a combiner; and the number of late pairs.
    fn expected_result(&self) -> (ValuesByWindow, u64) {
        let (mut expected_values, mut late) = (ValuesByWindow::new(), 0);
        for (input, steps) in self.inputs.iter().enumerate() {
            let mut horizon = 0;
            for (at, step) in steps.iter().enumerate() {
                match *step {
                    Step::Send(time, _) if time / self.width < horizon => late += 1,
                    Step::Send(time, key) => {
                        let begin = time - time % self.width;
                        expected_values.entry((begin, key)).or_default().push(value(input, at));
                    }
                    Step::Advance(time) => horizon = horizon.max(time / self.width),
                }
            }
        }
        for values in expected_values.values_mut() {
            values.sort_unstable();
            if self.combines {
                *values = vec![values.iter().sum()];
            }
        }
        (expected_values, late)
    }

    /// Runs the stream with functions, on several threads. Returns the pairs of each A task by window, in
    /// that order.
    fn run_functions(&self, world: &World) -> Result<(u64, WindowedPairs), Error> {
        let mut job = Job::<u32, u64>::new("stream").o_tasks(self.inputs.len()).a_tasks(self.a_tasks);
        job = match self.arrangement {
            Arrangement::Plain => job.plain(),
            Arrangement::Grouped => job,
            Arrangement::Sorted => job.sorted(),
        };
        if self.combines {
            job = job.combine(|left, right| left + right);
        }
        let windows: Mutex<WindowedPairs> = Mutex::default();
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
                windows.lock().unwrap().push((task.index(), window, pairs));
                Ok(())
            },
        )?;
        Ok((report.counters.late, windows.into_inner().unwrap()))
    }

    /// Runs the stream in a loop, with a piece of the input at a time.
    fn run_loop(&self, world: &World) -> Result<(u64, WindowedPairs), Error> {
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
        let (mut windows, mut late, mut at) = (WindowedPairs::new(), 0, 0);
        while let Some((side, index)) = session.next_task() {
            if side == Side::A {
                let window = session.window().expect("an A task has one");
                let mut pairs = Vec::new();
                while session.receive().expect("no failure") {
                    let (key, value) = session.pair();
                    pairs.push((u32::from_be_bytes(key.try_into().unwrap()), number(value)));
                }
                windows.push((index, window, pairs));
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
        Ok((counted, windows))
    }

    fn check(&self, context: &str, outcomes: Vec<Result<(u64, WindowedPairs), Error>>) {
        let (expected_result, expected_late) = self.expected_result();
        let (mut got, mut ends) = (ValuesByWindow::new(), BTreeMap::new());
        for (late, windows) in
            outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("{context}: {error}")))
        {
            assert_eq!(late, expected_late, "{context}");
            for (a_task, window, pairs) in windows {
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
            expected_result.iter().filter(|(key, values)| got.get(key) != Some(values)).take(5).collect();
        let odd: Vec<_> =
            got.iter().filter(|(key, values)| expected_result.get(key) != Some(values)).take(5).collect();
        assert!(got == expected_result, "{context}: {missing:?} expected, and {odd:?} given");
    }
}

/// By start of the window and key.
type ValuesByWindow = BTreeMap<(u64, u32), Vec<u64>>;

/// A task, window, and pairs.
type WindowedPairs = Vec<(usize, Window, Vec<(u32, u64)>)>;

/// A different value for each pair; a sum of any of them identifies them.
fn value(input: usize, at: usize) -> u64 {
    (input as u64 + 1) << 40 | at as u64
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn functions_equal_a_plain_computation() {
    for seed in seeds(40) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let (ranks, inputs) = (random.random_range(1..4), random.random_range(0..5));
        let stream = Stream::random(&mut random, inputs, config);
        let ran = stream.clone();
        let outcomes = on_ranks(seed, ranks, move |world| ran.run_functions(world));
        let Stream { width, a_tasks, arrangement, combines, .. } = &stream;
        let context = format!(
            "seed {seed}: {ranks} ranks, {inputs} O, {a_tasks} A, width {width}, {arrangement:?}, combines {combines}"
        );
        stream.check(&context, outcomes);
    }
}

#[test]
fn loops_equal_a_plain_computation() {
    for seed in seeds(40) {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let config = config(&mut random, folder.path());
        let ranks = random.random_range(1..4);
        let inputs = random.random_range(1..=ranks);
        let stream = Stream::random(&mut random, inputs, config);
        let ran = stream.clone();
        let outcomes = on_ranks(seed, ranks, move |world| ran.run_loop(world));
        let Stream { width, a_tasks, arrangement, combines, .. } = &stream;
        let context = format!(
            "seed {seed}: {ranks} ranks, {inputs} O, {a_tasks} A, width {width}, {arrangement:?}, combines {combines}"
        );
        stream.check(&context, outcomes);
    }
}
