//! Limits of a job's memory, open files and tasks; and errors that a program ignores, which fail the job
//! nevertheless.

use harrier_mpid::session::{Arrangement, CombineBytes, Session, Shaping};
use harrier_mpid::{
    A_TASKS_MAX, BoxError, Cause, Config, Datum, Error, Job, Mode, O_TASKS_MAX, Parallelism, Rejected, Side,
    World, input,
};
use std::sync::Arc;

/// Values that grow as they are combined do not stay until the end of their O task.
#[test]
fn growing_combined_values_are_flushed_early() {
    const KEYS: u64 = 10;
    const ROUNDS: u64 = 500;
    let config = Config { threads: Some(1), combine_bytes: 1 << 16, ..Config::default() };
    let outcome = Job::<u64, str>::new("texts")
        .o_tasks(1)
        .a_tasks(1)
        .combine(|left: &str, right: &str| [left, right].concat())
        .run(
            &World::alone(),
            &config,
            |task| {
                for round in 0..ROUNDS {
                    (0..KEYS).try_for_each(|key| task.emit(&key, &format!("{round:0>100}")))?;
                }
                Ok(())
            },
            |task| {
                let mut bytes = 0;
                while let Some((_, text)) = task.next_pair()? {
                    bytes += text.len() as u64;
                }
                Ok(bytes)
            },
        )
        .unwrap();
    assert_eq!(outcome.outputs, [(0, KEYS * ROUNDS * 100)]);
    // Half a megabyte of values, in pieces smaller than the table's limit.
    let pairs_sent = outcome.report.counters.pairs_received;
    assert!(pairs_sent > 5 * KEYS, "{pairs_sent} pairs were sent");
}

/// More windows than there are blocks.
#[test]
fn many_windows_may_be_open() {
    const WINDOWS: u64 = 1000;
    let count = std::sync::Mutex::new(Vec::new());
    let report = Job::<u64, u64>::new("windows").o_tasks(1).a_tasks(3).stream(
        &World::alone(),
        &Config { threads: Some(1), ..Config::default() },
        10,
        |task| {
            // In no order of time, and each window several times.
            for time in (0..WINDOWS * 10).map(|at| at * 7919 % (WINDOWS * 10)) {
                task.emit(time, &(time % 10), &time)?;
            }
            Ok(())
        },
        |window, task| {
            let mut times = Vec::new();
            while let Some((_, time)) = task.next_pair()? {
                times.push(time);
            }
            count.lock().unwrap().push((window.begin, times));
            Ok(())
        },
    );
    report.unwrap();
    let mut all = Vec::new();
    for (begin, times) in count.into_inner().unwrap() {
        assert!(times.iter().all(|time| (begin..begin + 10).contains(time)), "{begin}: {times:?}");
        all.extend(times);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..WINDOWS * 10), "a pair is missing, or was given twice");
}

/// Runs a stream of `windows` windows with a combiner, all of which close before the first is taken, in a
/// loop. Returns how many runs were spilled, and how many of their files were open at a time.
fn run_small_windows(windows: u64, memory_bytes: u64) -> (u64, usize) {
    let folder = tempfile::tempdir().unwrap();
    let sum: Arc<CombineBytes> = Arc::new(|_, held, value, out| {
        out.extend(held.iter().zip(value).map(|(held, value)| held + value));
        Ok(())
    });
    let shaping = Shaping {
        mode: Mode::Streaming,
        window_width: 1,
        arrangement: Arrangement::Sorted,
        combine: Some(sum),
        ..Shaping::default()
    };
    let config = Config {
        a_tasks: Some(1),
        memory_bytes: Some(memory_bytes),
        spill_folders: vec![folder.path().to_path_buf()],
        ..Config::default()
    };
    let mut session = Session::start(&World::alone(), &config, "small windows", &shaping).unwrap();
    let (mut open_max, mut next) = (0, 0);
    while let Some((side, _)) = session.next_task() {
        if side == Side::O {
            for time in 0..windows {
                (0..20u32)
                    .for_each(|key| assert!(session.send_at(time, &key.to_be_bytes(), b"\x01").unwrap()));
                assert!(session.send_at(time, &7u32.to_be_bytes(), b"\x01").unwrap());
                session.advance(time + 1).unwrap();
            }
            session.end_input();
            continue;
        }
        // Unlinked files are still in the list of open ones.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open =
            open.filter(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.starts_with(&folder)));
        open_max = open_max.max(open.count());
        assert_eq!(session.window().map(|window| window.begin), Some(next));
        let mut received = Vec::new();
        while session.receive().unwrap() {
            let (key, value) = session.pair();
            received.push((u32::from_be_bytes(key.try_into().unwrap()), value[0]));
        }
        let expected: Vec<(u32, u8)> = (0..20).map(|key| (key, if key == 7 { 2 } else { 1 })).collect();
        assert_eq!(received, expected, "window {next}");
        next += 1;
    }
    assert_eq!(next, windows);
    (session.finish().unwrap().counters.runs_spilled, open_max)
}

/// Windows that have closed and wait are in memory as long as there is room, whatever their number.
#[test]
fn small_windows_are_buffered_in_memory() {
    assert_eq!(run_small_windows(1500, 64 << 20), (0, 0));
}

/// Without room in memory, they share files.
#[test]
fn spilled_small_windows_share_files() {
    let (runs, files) = run_small_windows(1500, 100_000);
    assert!(runs > 1000 && files <= 2, "{runs} runs in {files} files");
}

#[test]
fn empty_input_has_an_empty_output() {
    for parallelism in [Parallelism::Default, Parallelism::Enhanced] {
        let config = Config { parallelism, ..Config::default() };
        let outcome = Job::<u64, u64>::new("nothing").o_tasks_unless_told(0).run(
            &World::alone(),
            &config,
            |_| unreachable!("there is no O task"),
            |task| Ok(task.next_pair()?.is_none()),
        );
        let outputs = outcome.unwrap().outputs;
        assert!(!outputs.is_empty() && outputs.iter().all(|(_, is_empty)| *is_empty), "{outputs:?}");
    }
}

#[test]
fn numbers_of_tasks_and_splits_are_limited() {
    let run = |o_tasks: usize, a_tasks: usize| {
        let job = Job::<u64, u64>::new("many").o_tasks(o_tasks).a_tasks(a_tasks);
        job.run(&World::alone(), &Config::default(), |_| Ok(()), |_| Ok(())).map(drop)
    };
    for (o_tasks, a_tasks, words) in
        [(1, A_TASKS_MAX + 1, "65537 A tasks: a job has 65536 at most"), (O_TASKS_MAX + 1, 1, "O tasks")]
    {
        let error = run(o_tasks, a_tasks).unwrap_err();
        assert!(matches!(&error, Error::Configuration(message) if message.contains(words)), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![b'\n'; O_TASKS_MAX + 1]).unwrap();
    assert_eq!(input::splits(std::slice::from_ref(&file), 2).unwrap().len(), O_TASKS_MAX / 2 + 1);
    let error = input::splits(&[file], 1).unwrap_err().to_string();
    assert!(error.contains("splits of 1 bytes are more than"), "{error}");
}

/// A number; its codec rejects 13.
struct Number(u64);

impl Datum for Number {
    type View<'a> = u64;
    const BYTE_ORDER: bool = false;

    fn encode<'a>(&'a self, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        self.0.encode(buffer)
    }

    fn decode(bytes: &[u8]) -> Result<u64, Rejected> {
        match <u64 as Datum>::decode(bytes)? {
            13 => Err(Rejected("an unlucky number".to_string())),
            number => Ok(number),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum IgnoredError {
    Emit,
    NextPair,
    NextValue,
}

fn ignore_error(what: IgnoredError) -> Error {
    let job = Job::<u64, Number>::new("unlucky").o_tasks(2).a_tasks(1);
    let job = match what {
        IgnoredError::Emit => job.partition(|key, parts| if key == 13 { parts } else { 0 }),
        _ => job,
    };
    let o = move |task: &mut harrier_mpid::OTask<'_, u64, Number>| -> Result<(), BoxError> {
        for number in 0..20 {
            // Ignored on purpose.
            let _ = task.emit(&number, &Number(if what == IgnoredError::Emit { 0 } else { number }));
        }
        Ok(())
    };
    let outcome = job.run(&World::alone(), &Config::default(), o, |task| {
        let mut count = 0;
        match what {
            IgnoredError::NextValue => {
                while let Ok(Some(mut group)) = task.next_group() {
                    while let Ok(Some(_)) = group.next_value() {
                        count += 1;
                    }
                }
            }
            _ => {
                while let Ok(Some(_)) = task.next_pair() {
                    count += 1;
                }
            }
        }
        Ok(count)
    });
    outcome.map(|outcome| outcome.outputs).unwrap_err()
}

#[test]
fn ignored_errors_fail_the_job() {
    for what in [IgnoredError::Emit, IgnoredError::NextPair, IgnoredError::NextValue] {
        match ignore_error(what) {
            Error::Task(error) => {
                let side = if what == IgnoredError::Emit { Side::O } else { Side::A };
                assert_eq!((error.side, error.cause), (side, Cause::Rejected), "{what:?}: {error}");
            }
            error => panic!("{what:?}: {error}"),
        }
    }
}

/// A name; its codec rejects k13.
struct Name(String);

impl Datum for Name {
    type View<'a> = &'a str;
    const BYTE_ORDER: bool = true;

    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.0.as_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<&str, Rejected> {
        match <str as Datum>::decode(bytes)? {
            "k13" => Err(Rejected("an unlucky name".to_string())),
            name => Ok(name),
        }
    }
}

/// The place in the error of a job with two pairs of each of twenty keys, in order.
fn error_place<K: Datum + ?Sized + 'static, V: Datum + 'static>(
    key: impl Fn(&str) -> Box<K> + Sync,
    value: impl Fn(u64) -> V + Sync,
    a: impl Fn(&mut harrier_mpid::ATask<K, V>) -> Result<(), BoxError> + Sync,
) -> String {
    let job = Job::<K, V>::new("places").o_tasks(1).a_tasks(1).sorted();
    let outcome = job.run(
        &World::alone(),
        &Config::default(),
        |task| {
            for number in 0..40 {
                task.emit(&key(&format!("k{:02}", number / 2)), &value(number / 2))?;
            }
            Ok(())
        },
        a,
    );
    match outcome.map(|outcome| outcome.outputs).unwrap_err() {
        Error::Task(error) if error.side == Side::A => error.place,
        error => panic!("{error}"),
    }
}

/// Whatever an A task does with an invalid key or value, the error names the pair.
#[test]
fn rejected_values_name_their_pair() {
    let (text, name) = (|key: &str| Box::<str>::from(key), |key: &str| Box::new(Name(key.to_string())));
    let first = "record 27 (key \"k13\")";
    let by_pairs = error_place(text, Number, |task| {
        while task.next_pair()?.is_some() {}
        Ok(())
    });
    assert_eq!(by_pairs, first);
    let by_folding = error_place(text, Number, |task| {
        while let Some(mut group) = task.next_group()? {
            group.fold(0, |sum, number| sum + number)?;
        }
        Ok(())
    });
    assert_eq!(by_folding, first);
    // The key is checked after all of its values and the first pair behind them were read.
    for passes_over in [false, true] {
        let by_key = error_place(
            name,
            |number| number,
            |task| {
                while let Some(mut group) = task.next_group()? {
                    while group.next_value()?.is_some() {}
                    let key = group.key().map(drop);
                    if !passes_over {
                        key?;
                    }
                }
                Ok(())
            },
        );
        assert_eq!(by_key, "record 28 (key \"k13\")");
    }
    let by_kept = error_place(text, Number, |task| {
        let pairs = task.keep()?;
        pairs.iter().try_for_each(|pair| Ok(pair.map(drop)?))
    });
    assert_eq!(by_kept, "after its last record, 40");
}

/// Errors of user functions name the pair as well, also if the pair behind was read already.
#[test]
fn user_errors_name_their_pair() {
    let text = |key: &str| Box::<str>::from(key);
    for (unlucky, expected) in [("k13", "record 28 (key \"k13\")"), ("k19", "record 40 (key \"k19\")")] {
        let place = error_place(
            text,
            |number| number,
            |task| {
                while let Some(mut group) = task.next_group()? {
                    let (key, _) = group.fold(0, |sum, number| sum + number)?;
                    if key == unlucky {
                        return Err("on purpose".into());
                    }
                }
                Ok(())
            },
        );
        assert_eq!(place, expected);
    }
    let behind = error_place(
        text,
        |number| number,
        |task| {
            while task.next_pair()?.is_some() {}
            Err("on purpose".into())
        },
    );
    assert_eq!(behind, "after its last record, 40");
}

/// A value that the combiner rejects, and that meets another one only when runs are merged.
#[test]
fn combiner_errors_name_their_pair() {
    let folder = tempfile::tempdir().unwrap();
    let sum: Arc<CombineBytes> = Arc::new(|_, held, value, out| {
        out.extend(held);
        if held == value { Ok(()) } else { Err(Rejected("not the same".to_string())) }
    });
    for (spills, expected) in [(true, "record 301 (key \"bad\")"), (false, "while its pairs were combined")] {
        let shaping = Shaping { combine: Some(Arc::clone(&sum)), ..Shaping::default() };
        let config = Config {
            o_tasks: Some(1),
            a_tasks: Some(1),
            memory_bytes: Some(if spills { 1 } else { 1 << 30 }),
            combine_bytes: 1,
            block_bytes: 1024,
            spill_folders: vec![folder.path().to_path_buf()],
            ..Config::default()
        };
        let mut session = Session::start(&World::alone(), &config, "merged", &shaping).unwrap();
        while let Some((side, _)) = session.next_task() {
            if side == Side::A {
                while session.receive().is_ok_and(|more| more) {}
                continue;
            }
            session.send(b"bad", b"one").unwrap();
            (0..300).for_each(|at| session.send(format!("a{at:03}").as_bytes(), b"value").unwrap());
            session.send(b"bad", b"another").unwrap();
        }
        let Err(Error::Task(error)) = session.finish() else { panic!("there is no answer") };
        assert_eq!((error.side, &error.place[..]), (Side::A, expected), "{error}");
        assert!(error.message.contains("of key \"bad\": not the same"), "{error}");
        assert!(spills || error.message.ends_with(", pair 302 of those that came"), "{error}");
    }
}
