//! What a job holds at most, and that an error which a program passes over fails the job all the same.

use harrier_mpid::session::{Arrangement, CombineBytes, Session, Shaping};
use harrier_mpid::{
    A_TASKS_MAX, BoxError, Cause, Config, Datum, Error, Job, Mode, O_TASKS_MAX, Parallelism, Rejected, Side,
    World, input,
};
use std::sync::Arc;

/// Values that grow as they are combined do not stay until the end of their O task.
#[test]
fn a_table_whose_values_grow_is_sent_in_time() {
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
    // Half a megabyte of values, in pieces of less than the table may hold.
    let sent = outcome.report.counters.pairs_received;
    assert!(sent > 5 * KEYS, "{sent} pairs were sent");
}

/// More windows than blocks are held for.
#[test]
fn as_many_windows_as_there_are_may_be_open() {
    const WINDOWS: u64 = 1000;
    let seen = std::sync::Mutex::new(Vec::new());
    let report = Job::<u64, u64>::new("windows").o_tasks(1).a_tasks(3).stream(
        &World::alone(),
        &Config { threads: Some(1), ..Config::default() },
        10,
        |task| {
            // Not in the order of their times, and each window several times.
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
            seen.lock().unwrap().push((window.begin, times));
            Ok(())
        },
    );
    report.unwrap();
    let mut all = Vec::new();
    for (begin, times) in seen.into_inner().unwrap() {
        assert!(times.iter().all(|time| (begin..begin + 10).contains(time)), "{begin}: {times:?}");
        all.extend(times);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..WINDOWS * 10), "a pair is missing, or was given twice");
}

/// Runs a stream of so many windows with a combiner, all of which close before the first is taken, in a loop. Returns how many runs were
/// spilled, and how many files of them were open at a time.
fn small_windows(windows: u64, memory_bytes: u64) -> (u64, usize) {
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
        // A file that has no name any more is still among those that are open.
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

/// Windows that have closed, and wait, are in memory as long as there is room, whatever their number.
#[test]
fn small_windows_wait_in_memory() {
    assert_eq!(small_windows(1500, 64 << 20), (0, 0));
}

/// Where there is none, they share files.
#[test]
fn small_windows_that_wait_on_disk_share_files() {
    let (runs, files) = small_windows(1500, 100_000);
    assert!(runs > 1000 && files <= 2, "{runs} runs in {files} files");
}

#[test]
fn without_input_there_is_an_empty_answer() {
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
fn tasks_and_splits_are_so_many_at_most() {
    let run = |o_tasks: usize, a_tasks: usize| {
        let job = Job::<u64, u64>::new("many").o_tasks(o_tasks).a_tasks(a_tasks);
        job.run(&World::alone(), &Config::default(), |_| Ok(()), |_| Ok(())).map(drop)
    };
    for (o_tasks, a_tasks, words) in
        [(1, A_TASKS_MAX + 1, "65537 A tasks: a job has 65536 at most"), (O_TASKS_MAX + 1, 1, "O tasks")]
    {
        let error = run(o_tasks, a_tasks).unwrap_err();
        assert!(matches!(&error, Error::Configuration(said) if said.contains(words)), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![b'\n'; O_TASKS_MAX + 1]).unwrap();
    assert_eq!(input::splits(std::slice::from_ref(&file), 2).unwrap().len(), O_TASKS_MAX / 2 + 1);
    let error = input::splits(&[file], 1).unwrap_err().to_string();
    assert!(error.contains("splits of 1 bytes are more than"), "{error}");
}

/// A number that is none if it is 13.
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
enum PassedOver {
    Emit,
    NextPair,
    NextValue,
}

fn pass_over(what: PassedOver) -> Error {
    let job = Job::<u64, Number>::new("unlucky").o_tasks(2).a_tasks(1);
    let job = match what {
        PassedOver::Emit => job.partition(|key, parts| if key == 13 { parts } else { 0 }),
        _ => job,
    };
    let o = move |task: &mut harrier_mpid::OTask<'_, u64, Number>| -> Result<(), BoxError> {
        for number in 0..20 {
            // On purpose.
            let _ = task.emit(&number, &Number(if what == PassedOver::Emit { 0 } else { number }));
        }
        Ok(())
    };
    let outcome = job.run(&World::alone(), &Config::default(), o, |task| {
        let mut seen = 0;
        match what {
            PassedOver::NextValue => {
                while let Ok(Some(mut group)) = task.next_group() {
                    while let Ok(Some(_)) = group.next_value() {
                        seen += 1;
                    }
                }
            }
            _ => {
                while let Ok(Some(_)) = task.next_pair() {
                    seen += 1;
                }
            }
        }
        Ok(seen)
    });
    outcome.map(|outcome| outcome.outputs).unwrap_err()
}

#[test]
fn an_error_that_is_passed_over_fails_the_job() {
    for what in [PassedOver::Emit, PassedOver::NextPair, PassedOver::NextValue] {
        match pass_over(what) {
            Error::Task(error) => {
                let side = if what == PassedOver::Emit { Side::O } else { Side::A };
                assert_eq!((error.side, error.cause), (side, Cause::Rejected), "{what:?}: {error}");
            }
            error => panic!("{what:?}: {error}"),
        }
    }
}
