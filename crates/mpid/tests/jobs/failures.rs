//! Failures of jobs are reported on every rank alike: user functions that fail or panic, invalid values, full
//! disks, rank failures; and jobs recover from checkpoints.

use harrier_mpid::session::{Session, Shaping};
use harrier_mpid::{
    BoxError, Cause, Config, Datum, Error, Job, Mode, Outcome, Rejected, Side, TaskError, World,
};
use harrier_sim::{Fault, Simulation, Weather};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;

const O_TASKS: usize = 6;
const A_TASKS: usize = 4;

/// Faults, by kind and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskFault {
    OFails,
    OPanics,
    AFails,
    APanics,
    /// An O task sends invalid UTF-8.
    NoText,
    /// The same, with combined keys and a partitioner that reads them.
    NoTextForThePartitioner,
    /// The combiner panics where two values first meet.
    CombinerPanics,
    /// The same, but they first meet at an A task.
    CombinerPanicsAtATask,
    /// The combiner's result is invalid where two values first meet.
    CombinerMakesNone,
    CombinerMakesNoneAtATask,
    PartitionerPanics,
    ComparatorPanics,
}

fn run_with_fault(world: &World, fault: TaskFault) -> Result<(), Error> {
    let mut config = Config { threads: Some(2), block_bytes: 1024, ..Config::default() };
    if matches!(fault, TaskFault::CombinerPanicsAtATask | TaskFault::CombinerMakesNoneAtATask) {
        // An O task buffers nothing for later values of the same key.
        config.combine_bytes = 1;
    }
    let mut job = Job::<String, u64>::new("wrong").o_tasks(O_TASKS).a_tasks(A_TASKS).sorted();
    match fault {
        TaskFault::CombinerPanics | TaskFault::CombinerPanicsAtATask => {
            job = job.combine(|_, _| -> u64 { panic!("combined in vain") });
        }
        TaskFault::CombinerMakesNone | TaskFault::CombinerMakesNoneAtATask => {
            job = job.combine(|left, right| (left + right) as u32);
        }
        TaskFault::NoTextForThePartitioner => {
            job = job.combine(|left, right| left + right).partition(|key, parts| key.len() % parts);
        }
        TaskFault::PartitionerPanics => job = job.partition(|_, _| panic!("parted in vain")),
        TaskFault::ComparatorPanics => job = job.sorted_by(|_, _| panic!("compared in vain")),
        _ => {}
    }
    let outcome = job.run(
        world,
        &config,
        |task| {
            task.reads("numbers");
            for number in 0..500u64 {
                task.at(number);
                task.emit(&format!("key {}", number % 50), &number)?;
                if task.index() == 3 && number == 123 {
                    match fault {
                        TaskFault::OFails => return Err("no more".into()),
                        TaskFault::OPanics => panic!("no more at all"),
                        TaskFault::NoText | TaskFault::NoTextForThePartitioner => {
                            task.emit_as(&b"\xff\xfe"[..], &1u64)?
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        },
        |task| -> Result<(), BoxError> {
            let mut groups = 0;
            while let Some(group) = task.next_group()? {
                group.key()?;
                groups += 1;
                match fault {
                    TaskFault::AFails if groups == 2 => return Err("enough".into()),
                    TaskFault::APanics if groups == 2 => panic!("enough of it"),
                    _ => {}
                }
            }
            Ok(())
        },
    );
    outcome.map(drop)
}

/// Runs `work` on every rank of a simulated gang. Returns its results by rank.
fn on_ranks<R: Send + 'static>(
    ranks: usize,
    prepare: impl FnOnce(&Simulation),
    work: impl Fn(&World) -> R + Send + Sync + 'static,
) -> (Vec<R>, Simulation) {
    let mut simulation = Simulation::new(7, ranks, Weather::ROUGH);
    prepare(&simulation);
    let work = Arc::new(work);
    let results: Vec<_> = simulation
        .ranks
        .iter()
        .map(|gang| {
            let (gang, work) = (gang.clone(), Arc::clone(&work));
            let (done, result) = oneshot::channel();
            std::thread::spawn(move || {
                let world = World::over(gang).expect("threads can be had");
                let outcome = work(&world);
                let _ = world.leave(1);
                let _ = done.send(outcome);
            });
            result
        })
        .collect();
    let outcomes = simulation.run(async {
        let mut outcomes = Vec::new();
        for result in results {
            outcomes.push(result.await.expect("no panic"));
        }
        outcomes
    });
    (outcomes.unwrap_or_else(|hang| panic!("{hang}")), simulation)
}

fn check(fault: TaskFault, error: &Error) {
    let Error::Task(task) = error else { panic!("{fault:?}: {error}") };
    let text = error.to_string();
    let (side, cause, words): (Side, Cause, &[&str]) = match fault {
        TaskFault::OFails => (Side::O, Cause::Failed, &["O task 3", "numbers at 123", "no more"]),
        TaskFault::OPanics => (Side::O, Cause::Panicked, &["O task 3", "numbers at 123", "no more at all"]),
        TaskFault::AFails => (Side::A, Cause::Failed, &["A task", "record", "key ", "enough"]),
        TaskFault::APanics => (Side::A, Cause::Panicked, &["A task", "record", "enough of it"]),
        TaskFault::NoText => (Side::A, Cause::Rejected, &["A task", "record", "UTF-8"]),
        TaskFault::NoTextForThePartitioner => {
            (Side::O, Cause::Rejected, &["O task 3", "numbers at 123", "UTF-8"])
        }
        TaskFault::CombinerPanics => (Side::O, Cause::Panicked, &["numbers at 50", "combined in vain"]),
        TaskFault::CombinerPanicsAtATask => {
            (Side::A, Cause::Panicked, &["values were combined (key \"key ", "combined in vain"])
        }
        TaskFault::CombinerMakesNone => {
            (Side::O, Cause::Rejected, &["numbers at 50", "the combiner made", "key \"key ", "8 bytes"])
        }
        TaskFault::CombinerMakesNoneAtATask => {
            (Side::A, Cause::Rejected, &["were combined", "the combiner made", "key \"key ", "8 bytes"])
        }
        TaskFault::PartitionerPanics => (Side::O, Cause::Panicked, &["numbers at 0", "parted in vain"]),
        TaskFault::ComparatorPanics => {
            (Side::A, Cause::Panicked, &["keys were compared (key", "compared in vain"])
        }
    };
    assert_eq!((task.side, task.cause), (side, cause), "{fault:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{fault:?}: {text}");
    }
}

const ALL: [TaskFault; 12] = [
    TaskFault::OFails,
    TaskFault::OPanics,
    TaskFault::AFails,
    TaskFault::APanics,
    TaskFault::NoText,
    TaskFault::NoTextForThePartitioner,
    TaskFault::CombinerPanics,
    TaskFault::CombinerPanicsAtATask,
    TaskFault::CombinerMakesNone,
    TaskFault::CombinerMakesNoneAtATask,
    TaskFault::PartitionerPanics,
    TaskFault::ComparatorPanics,
];

#[test]
fn failures_on_one_rank_name_their_task() {
    let world = World::alone();
    for fault in ALL {
        check(fault, &run_with_fault(&world, fault).unwrap_err());
    }
    let count = Job::<u32, ()>::new("right").o_tasks(2).run(
        &world,
        &Config::default(),
        |task| Ok(task.emit(&7, &())?),
        |task| {
            let mut pairs = 0;
            while task.next_pair()?.is_some() {
                pairs += 1;
            }
            Ok(pairs)
        },
    );
    assert_eq!(count.unwrap().outputs.iter().map(|(_, pairs)| pairs).sum::<i32>(), 2);
}

#[test]
fn all_ranks_report_the_same_error_without_leaks() {
    let (outcomes, mut simulation) =
        on_ranks(3, |_| {}, |world| ALL.map(|fault| run_with_fault(world, fault).unwrap_err()));
    for (at, fault) in ALL.into_iter().enumerate() {
        for errors in &outcomes {
            check(fault, &errors[at]);
            assert_eq!(errors[at].to_string(), outcomes[0][at].to_string(), "{fault:?}");
        }
    }
    assert_eq!(simulation.leaks(), []);
}

/// A word with one invalid value, as of a codec with a bug or of a program that sends other bytes.
struct Word(&'static str);

impl Datum for Word {
    type View<'a> = &'a str;
    const BYTE_ORDER: bool = true;

    fn encode<'a>(&'a self, _: &'a mut Vec<u8>) -> &'a [u8] {
        self.0.as_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<&str, Rejected> {
        match bytes {
            b"bad" => Err(Rejected("a bad word".to_string())),
            _ => <str as Datum>::decode(bytes),
        }
    }
}

/// How a job is executed.
#[derive(Clone, Copy, Debug)]
enum Execution {
    Once,
    Round,
    Stream,
}

/// Values are combined, and the value that O task 3 sends at 60 + `key` is invalid: the first one of its key,
/// or a later one.
fn run_bad_word(world: &World, execution: Execution, later: bool, key: u64) -> Error {
    let config = Config { threads: Some(2), block_bytes: 1024, ..Config::default() };
    let word = move |task: usize, at: u64| match at {
        // Keys repeat after 60; of this key there are none before.
        at if at % 60 == key && at < 60 && !later => None,
        at if at == 60 + key && task == 3 => Some(Word("bad")),
        at if at % 60 == key && !later && task != 3 => None,
        _ => Some(Word("good")),
    };
    let job = Job::<u64, Word>::new("words").combine(|left: &str, _| left.to_string()).sorted();
    const COUNT: u64 = 240;
    match execution {
        Execution::Once => job
            .o_tasks(O_TASKS)
            .a_tasks(A_TASKS)
            .run(
                world,
                &config,
                |task| {
                    task.reads("words");
                    for at in 0..COUNT {
                        task.at(at);
                        if let Some(word) = word(task.index(), at) {
                            task.emit(&(at % 60), &word)?;
                        }
                    }
                    Ok(())
                },
                |_| Ok(()),
            )
            .map(drop)
            .unwrap_err(),
        Execution::Round => {
            let parts = Job::<u64, ()>::new("parts").o_tasks(1).a_tasks(O_TASKS);
            let kept = parts.run(world, &config, |_| Ok(()), |_| Ok(())).unwrap().keep(O_TASKS);
            job.round(
                world,
                &config,
                &kept,
                |task, ()| {
                    task.reads("words");
                    for at in 0..COUNT {
                        task.at(at);
                        if let Some(word) = word(task.index(), at) {
                            task.emit(&(at % 60), &word)?;
                        }
                    }
                    Ok(())
                },
                |_, ()| Ok(()),
            )
            .map(drop)
            .unwrap_err()
        }
        Execution::Stream => job
            .o_tasks(O_TASKS)
            .a_tasks(A_TASKS)
            .stream(
                world,
                &config,
                1000,
                |task| {
                    task.reads("words");
                    for at in 0..COUNT {
                        task.at(at);
                        if let Some(word) = word(task.index(), at) {
                            task.emit(at, &(at % 60), &word)?;
                        }
                    }
                    Ok(())
                },
                |_, _| Ok(()),
            )
            .map(drop)
            .unwrap_err(),
    }
}

/// Wherever an invalid value meets another one, the error names its own task and record.
#[test]
fn rejected_combined_values_name_their_record() {
    let check = |error: &Error, key: u64, context: &str| {
        let Error::Task(TaskError { side, task, cause, place, message, .. }) = error else {
            panic!("{context}: {error}")
        };
        assert_eq!((*side, *task, *cause), (Side::O, 3, Cause::Rejected), "{context}: {error}");
        assert_eq!(*place, format!("words at {}", 60 + key), "{context}: {error}");
        assert!(message.contains("a bad word"), "{context}: {error}");
    };
    for execution in [Execution::Once, Execution::Round, Execution::Stream] {
        for later in [false, true] {
            for key in [0, 17, 59] {
                let context = format!("{execution:?}, later {later}, key {key}");
                check(&run_bad_word(&World::alone(), execution, later, key), key, &context);
            }
            let (errors, mut simulation) =
                on_ranks(3, |_| {}, move |world| run_bad_word(world, execution, later, 17));
            errors.iter().for_each(|error| check(error, 17, &format!("{execution:?}, later {later}")));
            assert_eq!(simulation.leaks(), []);
        }
    }
}

/// The combiner of a stream runs at A tasks only: errors of its results name the task and the window.
#[test]
fn combiner_errors_in_windows_name_the_window() {
    for panics in [false, true] {
        let job = Job::<u64, u64>::new("windows").o_tasks(2).a_tasks(3).combine(move |left, right| {
            assert!(!panics, "combined in vain");
            (left + right) as u16
        });
        let error = job.stream(
            &World::alone(),
            &Config::default(),
            10,
            |task| {
                task.emit(45, &7, &1)?;
                Ok(())
            },
            |_, _| Ok(()),
        );
        let error = error.unwrap_err().to_string();
        let why = if panics { "combined in vain" } else { "the combiner made" };
        assert!(error.starts_with("A task ") && error.contains("window from 40"), "{error}");
        assert!(error.contains(why) && error.contains("key \""), "{error}");
    }
    let error = Job::<u64, u64>::new("windows").o_tasks(1).a_tasks(1).stream(
        &World::alone(),
        &Config::default(),
        10,
        |task| {
            task.emit(45, &7, &1)?;
            Ok(())
        },
        |_, task| {
            task.next_pair()?;
            Err("enough".into())
        },
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("A task 0") && error.contains("window from 40, record 1"), "{error}");
}

/// Jobs over bytes have no codec: the error finds which of two values the combiner rejected, and where it was
/// sent.
#[test]
fn rejected_byte_values_name_their_record() {
    let combine: Arc<harrier_mpid::session::CombineBytes> = Arc::new(|_, held, value, out| {
        let number = |bytes: &[u8]| {
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| Rejected("no number".to_string()))
        };
        out.extend((number(held)? + number(value)?).to_le_bytes());
        Ok(())
    });
    // The task whose value is invalid, and how many values of its key it sends before.
    for (bad, before) in [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (1, 9)] {
        let config = Config { o_tasks: Some(3), a_tasks: Some(1), ..Config::default() };
        let world = World::alone();
        let shaping = Shaping { combine: Some(combine.clone()), ..Shaping::default() };
        let mut session = Session::start(&world, &config, "bytes", &shaping).unwrap();
        while let Some((Side::O, task)) = session.next_task() {
            assert!(session.reads(&format!("file {task}")));
            let sends = if task == bad { before + 1 } else { 12 };
            for at in 0..sends {
                assert!(session.at(100 + at));
                let value = if task == bad && at == before { &[1; 3][..] } else { &[1; 8] };
                // An earlier value may be rejected only now.
                let _ = session.send(b"key", value);
            }
        }
        let error = session.finish().unwrap_err();
        let Error::Task(TaskError { side, task, place, message, .. }) = &error else { panic!("{error}") };
        assert_eq!((*side, *task as usize), (Side::O, bad), "{error}");
        assert!(place.starts_with(&format!("file {bad} at {}", 100 + before)), "{error}");
        assert!(message.contains("key \"key\"") && message.contains("no number"), "{error}");
    }
}

/// A program that was started for another mode is refused on all ranks; one that only loads its input is not.
#[test]
fn modes_are_enforced() {
    let run = |world: &World, configured: Option<Mode>, does: Option<Mode>| -> Result<(), Error> {
        let config = Config { mode: configured, ..Config::default() };
        let job = Job::<u32, u32>::new("job").o_tasks(1).a_tasks(2);
        match does {
            None => job.in_any_mode().run(world, &config, |_| Ok(()), |_| Ok(())).map(drop),
            Some(Mode::Common) => job.run(world, &config, |_| Ok(()), |_| Ok(())).map(drop),
            Some(Mode::Iteration) => {
                let config = Config::default();
                let kept = job.run(world, &config, |_| Ok(()), |_| Ok(()))?.keep(2);
                let config = Config { mode: configured, ..config };
                let round = Job::<u32, u32>::new("job");
                round.round(world, &config, &kept, |_, ()| Ok(()), |_, ()| Ok(())).map(drop)
            }
            Some(Mode::Streaming) => job.stream(world, &config, 1, |_| Ok(()), |_, _| Ok(())).map(drop),
        }
    };
    let modes = [Mode::Common, Mode::Iteration, Mode::Streaming];
    for configured in modes.map(Some).into_iter().chain([None]) {
        for does in modes.map(Some).into_iter().chain([None]) {
            let (outcomes, mut simulation) = on_ranks(2, |_| {}, move |world| run(world, configured, does));
            for outcome in outcomes {
                match (configured, does) {
                    (Some(configured), Some(does)) if configured != does => {
                        let error = outcome.unwrap_err();
                        let words =
                            format!("job of mode {does}, and the program was started in mode {configured}");
                        assert!(
                            matches!(&error, Error::Configuration(message) if message.contains(&words)),
                            "{error}"
                        );
                    }
                    _ => outcome.unwrap_or_else(|error| panic!("{does:?} in {configured:?}: {error}")),
                }
            }
            assert_eq!(simulation.leaks(), []);
        }
    }
    let (session, _) = on_ranks(
        2,
        |_| {},
        |world| {
            let config = Config { mode: Some(Mode::Streaming), ..Config::default() };
            Session::start(world, &config, "program", &Shaping::default()).map(drop).unwrap_err().to_string()
        },
    );
    assert!(
        session.iter().all(|error| error.contains("mode COM") && error.contains("STREAM")),
        "{session:?}"
    );
}

/// Numbers of tasks in the configuration are used or refused, never ignored.
#[test]
fn configured_task_counts_are_enforced() {
    let configured = Config { o_tasks: Some(3), a_tasks: Some(2), ..Config::default() };
    let run = |job: Job<u64, u64>, config: &Config| {
        let numbers: Vec<u64> = (0..20).collect();
        job.run(
            &World::alone(),
            config,
            |task| task.share_of(&numbers).try_for_each(|number| Ok(task.emit(number, &1)?)),
            |task| {
                let mut sum = 0;
                while let Some((number, _)) = task.next_pair()? {
                    sum += number;
                }
                Ok(sum)
            },
        )
        .map(|outcome| {
            assert_eq!(outcome.outputs.iter().map(|(_, sum)| sum).sum::<u64>(), 190);
            (outcome.report.counters.o_tasks_run, outcome.report.counters.a_tasks_run)
        })
    };
    let job = || Job::<u64, u64>::new("numbers");
    assert_eq!(run(job().o_tasks_unless_told(7), &configured).unwrap(), (3, 2));
    let untold = Config { a_tasks: Some(2), ..Config::default() };
    assert_eq!(run(job().o_tasks_unless_told(7), &untold).unwrap(), (7, 2));
    assert_eq!(run(job().o_tasks(3).a_tasks(2), &configured).unwrap(), (3, 2));
    for (job, words) in
        [(job().o_tasks(4), "has 4 O tasks, and was told 3"), (job().a_tasks(4), "4 A tasks, and was told 2")]
    {
        let error = run(job, &configured).unwrap_err();
        assert!(matches!(&error, Error::Configuration(message) if message.contains(words)), "{error}");
    }
}

#[test]
fn mismatched_jobs_are_detected() {
    let (outcomes, mut simulation) = on_ranks(
        2,
        |_| {},
        |world| {
            let job = Job::<u32, u32>::new("job").o_tasks(2 + world.rank());
            job.run(world, &Config::default(), |_| Ok(()), |_| Ok(())).map(drop).unwrap_err().to_string()
        },
    );
    assert!(outcomes.iter().all(|error| error.contains("different jobs")), "{outcomes:?}");
    assert_eq!(simulation.leaks(), []);
}

/// Also by options that would make them wait for each other, or send a pair to different places.
#[test]
fn mismatched_job_options_are_detected() {
    let other = |world: &World| world.rank() == 1;
    let compare: Arc<harrier_mpid::session::CompareBytes> = Arc::new(|left, right| right.cmp(left));
    let partition: Arc<harrier_mpid::session::PartitionBytes> = Arc::new(|_, _| Ok(0));
    let streaming = Shaping { mode: Mode::Streaming, window_width: 10, ..Shaping::default() };
    let shapes = [
        (Shaping::default(), Shaping { mode: Mode::Iteration, ..Shaping::default() }),
        (Shaping::default(), Shaping { partition: Some(partition), ..Shaping::default() }),
        (Shaping::default(), Shaping { compare: Some(compare), ..Shaping::default() }),
        (streaming.clone(), Shaping { window_width: 20, ..streaming.clone() }),
        (streaming.clone(), Shaping { window_width: 0, ..streaming }),
    ];
    let (outcomes, mut simulation) = on_ranks(
        2,
        |_| {},
        move |world| {
            let messages = shapes.clone().map(|(first, second)| {
                let shaping = if other(world) { second } else { first };
                Session::start(world, &Config::default(), "program", &shaping).map(drop).unwrap_err()
            });
            let width = if other(world) { 10 } else { 20 };
            let job = Job::<u32, u32>::new("job").o_tasks(1);
            let stream = job.stream(world, &Config::default(), width, |_| Ok(()), |_, _| Ok(()));
            (messages.map(|error| error.to_string()), stream.unwrap_err().to_string())
        },
    );
    assert_eq!(outcomes[0], outcomes[1]);
    for (messages, stream) in outcomes {
        assert!(messages[..4].iter().all(|error| error.contains("different jobs")), "{messages:?}");
        assert!(messages[4].contains("have a width"), "{messages:?}");
        assert!(stream.contains("different jobs"), "{stream}");
    }
    assert_eq!(simulation.leaks(), []);
}

/// A session that is finished or dropped before its tasks are done fails the job on all ranks, and does not
/// affect the next job.
#[test]
fn unfinished_tasks_fail_the_job() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum EarlyExit {
        OTask,
        ATask,
        AtOnce,
        Dropped,
        DroppedByAll,
    }
    const ALL: [EarlyExit; 5] =
        [EarlyExit::OTask, EarlyExit::ATask, EarlyExit::AtOnce, EarlyExit::Dropped, EarlyExit::DroppedByAll];
    let run = |world: &World, early_exit: EarlyExit, mode: Mode| -> Option<Error> {
        let config = Config { a_tasks: Some(A_TASKS), block_bytes: 1024, ..Config::default() };
        let shaping = Shaping { mode, window_width: 10, ..Shaping::default() };
        let mut session = Session::start(world, &config, "left", &shaping).unwrap();
        let is_odd = world.rank() == world.ranks() - 1 || early_exit == EarlyExit::DroppedByAll;
        let asks = early_exit != EarlyExit::AtOnce || !is_odd;
        while let Some((side, _)) = asks.then(|| session.next_task()).flatten() {
            if side == Side::O {
                for number in 0..1000u64 {
                    let number = number.to_le_bytes();
                    let _ = match mode {
                        Mode::Streaming => session.send_at(0, &number, &number).map(drop),
                        _ => session.send(&number, &number),
                    };
                }
                session.end_input();
            }
            // Others may have had all O tasks; every rank has an A task.
            if is_odd && (side == Side::A || early_exit != EarlyExit::ATask) {
                break;
            }
        }
        if is_odd && matches!(early_exit, EarlyExit::Dropped | EarlyExit::DroppedByAll) {
            drop(session);
            return None;
        }
        Some(session.finish().unwrap_err())
    };
    for mode in [Mode::Common, Mode::Iteration, Mode::Streaming] {
        for ranks in [1, 3] {
            let work = move |world: &World| {
                let messages =
                    ALL.map(|early_exit| run(world, early_exit, mode).map(|error| error.to_string()));
                // It does not affect another job.
                (messages, sums(world, &Config::default(), &|_| Ok(())).unwrap())
            };
            let outcomes = match ranks {
                1 => vec![work(&World::alone())],
                _ => {
                    let (outcomes, mut simulation) = on_ranks(ranks, |_| {}, work);
                    assert_eq!(simulation.leaks(), []);
                    outcomes
                }
            };
            assert_eq!(outcomes.iter().map(|(_, sum)| sum).sum::<u64>(), SUM);
            for (at, early_exit) in ALL.iter().enumerate() {
                let messages: Vec<&String> =
                    outcomes.iter().filter_map(|(messages, _)| messages[at].as_ref()).collect();
                let context = format!("{mode}, {ranks} ranks, {early_exit:?}: {messages:?}");
                assert!(messages.iter().all(|error| *error == messages[0]), "{context}");
                let words = format!("rank {} ended the job before its tasks were done", ranks - 1);
                assert!(messages.iter().all(|error| error.contains(&words)), "{context}");
                let dropped = match early_exit {
                    EarlyExit::Dropped => 1,
                    EarlyExit::DroppedByAll => ranks,
                    _ => 0,
                };
                assert_eq!(messages.len(), ranks - dropped, "{context}");
            }
        }
    }
}

/// A program may exit on any rank before the others, and its launcher ends those: so every rank reports the
/// cause, not only the rank that failed.
#[test]
fn every_rank_reports_the_cause_of_failure() {
    for ranks in [1, 2, 3, 5] {
        let work = |world: &World| {
            let config = Config { o_tasks: Some(1), a_tasks: Some(A_TASKS), ..Config::default() };
            let mut session = Session::start(world, &config, "why", &Shaping::default()).unwrap();
            // No rank has an A task before the O task has ended, which it does not.
            while let Some((side, _)) = session.next_task() {
                assert_eq!(side, Side::O);
                session.fail("on purpose");
            }
            (session.failure(), session.finish().unwrap_err().to_string())
        };
        let outcomes = match ranks {
            1 => vec![work(&World::alone())],
            _ => {
                let (outcomes, mut simulation) = on_ranks(ranks, |_| {}, work);
                assert_eq!(simulation.leaks(), []);
                outcomes
            }
        };
        for (messages, error) in outcomes {
            assert_eq!(messages.as_ref(), Some(&error), "{ranks} ranks");
            assert!(error.contains("O task 0 on rank ") && error.contains("on purpose"), "{error}");
        }
    }
}

/// A rank that has left without the others is not waited for.
#[test]
fn one_rank_leaving_early_blocks_nobody() {
    let (outcomes, mut simulation) = on_ranks(
        3,
        |_| {},
        |world| match world.rank() {
            1 => Ok(0),
            _ => sums(world, &Config::default(), &|_| Ok(())),
        },
    );
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.is_ok(), rank == 1, "{outcomes:?}");
    }
    assert_eq!(simulation.leaks(), []);
}

/// At whatever frame a rank dies, the others report which rank it was, or have their results already.
#[test]
fn rank_failure_fails_the_job() {
    let mut losses = 0;
    for frame in (0..400).step_by(23) {
        for dead in [1, 2] {
            let mut simulation = Simulation::new(frame, 3, Weather::CALM);
            simulation.network.plan(frame, Fault::Kill(dead));
            let results: Vec<_> = simulation
                .ranks
                .iter()
                .map(|gang| {
                    let gang = gang.clone();
                    let (done, result) = oneshot::channel();
                    std::thread::spawn(move || {
                        let world = World::over(gang).expect("threads can be had");
                        let outcome =
                            sums(&world, &Config { block_bytes: 1024, ..Config::default() }, &|_| Ok(()));
                        let left = world.leave(1);
                        let _ = done.send(outcome.and_then(|sum| left.map(|()| sum)));
                    });
                    result
                })
                .collect();
            let outcomes = simulation.run(async {
                let mut outcomes = Vec::new();
                for (rank, result) in results.into_iter().enumerate() {
                    // The dead rank reports nothing.
                    if rank != dead {
                        outcomes.push(result.await.expect("no panic"));
                    }
                }
                outcomes
            });
            let outcomes = outcomes.unwrap_or_else(|hang| panic!("frame {frame}, rank {dead}: {hang}"));
            for outcome in outcomes {
                match outcome {
                    Ok(_) => {}
                    Err(Error::RankLost { rank, .. }) => {
                        assert_eq!(rank, dead, "frame {frame}");
                        losses += 1;
                    }
                    Err(error) => panic!("frame {frame}, rank {dead}: {error}"),
                }
            }
        }
    }
    assert!(losses > 10, "only {losses} ranks noticed a death");
}

/// Results of a survivor: surviving ranks, its part of the sum, O tasks in the final run, pairs received.
type SurvivorReport = Result<(usize, u64, u64, u64), Error>;

/// With a checkpoint, at whatever frame a rank dies, the others complete the same run with the right result,
/// and repeat only O tasks that were not committed. The dead rank's threads run on without a network, as
/// those of a host that was cut off do.
#[test]
fn survivors_recover_from_the_checkpoint() {
    const TRIES_MAX: u64 = 150;
    let (mut recovered, mut recovered_with_commits) = (0, 0);
    for attempt in 0..TRIES_MAX {
        // When tasks are committed depends on threads, and on the load of the machine.
        if attempt > 30 && recovered > 10 && recovered_with_commits > 3 {
            break;
        }
        let frame = attempt * 29 % (500 + 20 * attempt);
        for dead in [1, 2] {
            let folder = tempfile::tempdir().unwrap();
            let mut simulation = Simulation::new(frame, 3, Weather::CALM);
            simulation.network.plan(frame, Fault::Kill(dead));
            let results: Vec<_> = simulation
                .ranks
                .iter()
                .map(|gang| {
                    let gang = gang.clone();
                    let (done, result) = oneshot::channel();
                    let config = Config {
                        checkpoint: Some(folder.path().join("checkpoint")),
                        block_bytes: 1024,
                        threads: Some(1),
                        ..Config::default()
                    };
                    std::thread::spawn(move || {
                        let world = World::over(gang).expect("threads can be had");
                        let report: SurvivorReport = sum_job(&world, &config, &|_| Ok(())).map(|outcome| {
                            let counters = outcome.report.counters;
                            let sum = outcome.outputs.iter().map(|(_, sum)| sum).sum();
                            (world.ranks(), sum, counters.o_tasks_run, counters.pairs_received)
                        });
                        let _ = world.leave(0);
                        let _ = done.send(report);
                    });
                    result
                })
                .collect();
            let outcomes = simulation.run(async {
                let mut outcomes = Vec::new();
                for (rank, result) in results.into_iter().enumerate() {
                    if rank != dead {
                        outcomes.push(result.await.expect("no panic"));
                    }
                }
                outcomes
            });
            let context = format!("frame {frame}, rank {dead}");
            let outcomes = outcomes.unwrap_or_else(|hang| panic!("{context}: {hang}"));
            let report: Vec<_> = outcomes
                .into_iter()
                .map(|report| report.unwrap_or_else(|error| panic!("{context}: {error}")))
                .collect();
            assert!(report.windows(2).all(|pair| pair[0].0 == pair[1].0), "{context}: {report:?}");
            if report[0].0 == 2 {
                assert_eq!(report.iter().map(|(_, sum, ..)| sum).sum::<u64>(), SUM, "{context}: {report:?}");
                let (_, _, ran, received) = report[0];
                assert_eq!(received, 2000 * O_TASKS as u64, "{context}: {report:?}");
                recovered += 1;
                recovered_with_commits += u32::from(ran < O_TASKS as u64);
            }
        }
    }
    assert!(recovered > 10, "only {recovered} deaths came while the job ran");
    assert!(
        recovered_with_commits > 3,
        "only {recovered_with_commits} deaths came when something was committed"
    );
}

/// A job with a known result: the sum of the pairs of this rank's A tasks. `before` is called before each O
/// task.
fn sums(
    world: &World,
    config: &Config,
    before: &(impl Fn(usize) -> Result<(), BoxError> + Sync),
) -> Result<u64, Error> {
    Ok(sum_job(world, config, before)?.outputs.iter().map(|(_, sum)| sum).sum())
}

fn sum_job(
    world: &World,
    config: &Config,
    before: &(impl Fn(usize) -> Result<(), BoxError> + Sync),
) -> Result<Outcome<u64>, Error> {
    let job = Job::<u64, u64>::new("sums").o_tasks(O_TASKS).a_tasks(A_TASKS);
    job.run(
        world,
        config,
        |task| {
            before(task.index())?;
            for number in 0..2000 {
                task.emit(&(number % 97), &(number * O_TASKS as u64 + task.index() as u64))?;
            }
            Ok(())
        },
        |task| {
            let mut sum = 0;
            while let Some(mut group) = task.next_group()? {
                sum += group.fold(0, |sum, number| sum + number)?.1;
            }
            Ok(sum)
        },
    )
}

const SUM: u64 = (2000 * O_TASKS as u64) * (2000 * O_TASKS as u64 - 1) / 2;

/// A job that failed after some O tasks and is run again on other numbers of ranks runs only the remaining
/// ones, with the same result.
#[test]
fn jobs_resume_from_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = |folder: &Path| Config {
        checkpoint: Some(folder.join("checkpoint")),
        block_bytes: 1024,
        threads: Some(1),
        ..Config::default()
    };
    let ran = AtomicUsize::new(0);
    let one = config(folder.path());
    let error = sums(&World::alone(), &one, &|task| {
        ran.fetch_add(1, Ordering::Relaxed);
        if task == 4 { Err("death".into()) } else { Ok(()) }
    });
    assert!(error.unwrap_err().to_string().contains("O task 4"));
    assert_eq!(ran.load(Ordering::Relaxed), 5);
    let again = Arc::new(AtomicUsize::new(0));
    let (two, counted) = (config(folder.path()), Arc::clone(&again));
    let (outcomes, _) = on_ranks(
        2,
        |_| {},
        move |world| {
            sums(world, &two, &|task| {
                counted.fetch_add(1, Ordering::Relaxed);
                if task == 5 { Err("another death".into()) } else { Ok(()) }
            })
        },
    );
    assert!(outcomes[0].as_ref().unwrap_err().to_string().contains("O task 5"));
    // The blocks of the last committed O task may not all have been logged.
    assert!(again.load(Ordering::Relaxed) <= 3);
    let last = AtomicUsize::new(0);
    let sum = sums(&World::alone(), &config(folder.path()), &|_| {
        last.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(sum.unwrap(), SUM);
    assert!((1..=3).contains(&last.load(Ordering::Relaxed)));
    // The checkpoint is removed.
    assert_eq!(std::fs::read_dir(folder.path().join("checkpoint")).unwrap().count(), 0);
}

#[test]
fn unusable_checkpoints_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (outcomes, mut simulation) = on_ranks(
        2,
        |_| {},
        move |world| {
            sums(world, &Config { checkpoint: Some(file.clone()), ..Config::default() }, &|_| Ok(()))
        },
    );
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::Checkpoint { rank: 0, .. })), "{outcome:?}");
    }
    assert_eq!(simulation.leaks(), []);
}

/// A full disk is a folder that fails: the next one is used; without another, the job fails with the error.
#[test]
fn full_disks_fail_over_to_the_next_folder() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(&small)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: a small disk cannot be mounted here");
        return;
    }
    let config = |folders: Vec<std::path::PathBuf>| Config {
        memory_bytes: Some(1 << 12),
        spill_folders: folders,
        block_bytes: 4096,
        ..Config::default()
    };
    let spilled =
        sums(&World::alone(), &config(vec![small.clone(), folder.path().join("large")]), &|_| Ok(()));
    let failed = sums(&World::alone(), &config(vec![small.clone()]), &|_| Ok(()));
    let unmounted = std::process::Command::new("umount").arg(&small).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(spilled.unwrap(), SUM);
    let Err(Error::Spill { message, .. }) = failed else { panic!("{failed:?}") };
    assert!(message.contains("no folder is left") && message.contains("small"), "{message}");
}
