//! A job whose tasks are asked for, in bytes: the other way round than [`crate::Job`], for languages whose programs have a loop of
//! their own.
//!
//! # Order of calls
//! [`Session::start`], then [`Session::next_task`] until there is none; between two of them [`Session::send`] in an O task,
//! [`Session::receive`] in an A task; last [`Session::finish`], also after an error. Start and finish are collective.
//!
//! # Threads
//! All calls on one thread. A rank runs one task at a time.

use crate::config::{Config, Mode};
use crate::counters::{Report, now};
use crate::datum::Rejected;
use crate::emit::{EmitError, Emitter};
use crate::error::{Cause, Error, Side};
use crate::job::ReceiveError;
use crate::running::{Running, Spec};
use crate::runs::KeyOrder;
use crate::store::{Shape, Source, Store};
use crate::table::{Combine, Refusal};
use crate::world::World;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use crate::store::Arrangement;

/// Joins two values of a key: is given the key, both values, and where to write what they are together.
pub type CombineBytes = dyn Fn(&[u8], &[u8], &[u8], &mut Vec<u8>) -> Result<(), Rejected> + Send + Sync;

/// Chooses the A task of a key.
pub type PartitionBytes = dyn Fn(&[u8], usize) -> usize + Send + Sync;

pub use crate::runs::CompareBytes;

/// What a job in bytes is; the same on every rank.
#[derive(Clone, Default)]
pub struct Shaping {
    pub arrangement: Arrangement,
    pub combine: Option<Arc<CombineBytes>>,
    /// Chooses the A task of a key, among so many.
    pub partition: Option<Arc<PartitionBytes>>,
    /// The order of keys; of their bytes if there is none.
    pub compare: Option<Arc<CompareBytes>>,
}

struct Combining(Arc<CombineBytes>);

impl Combine for Combining {
    fn combine(&self, key: &[u8], held: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Box<Refusal>> {
        (self.0)(key, held, value, out).map_err(|rejected| self.blame(key, held, value, rejected))
    }
}

impl Combining {
    /// There is no codec to ask, and a combiner says only that it does not accept two values: so each is tried with itself.
    #[cold]
    fn blame(&self, key: &[u8], held: &[u8], value: &[u8], rejected: Rejected) -> Box<Refusal> {
        let accepts = |one: &[u8]| (self.0)(key, one, one, &mut Vec::new()).is_ok();
        Box::new(match (accepts(held), accepts(value)) {
            (false, true) => Refusal::Held(rejected),
            (true, false) => Refusal::Came(rejected),
            _ => Refusal::Either(rejected),
        })
    }
}

/// The task that runs.
enum Current {
    None,
    O { index: u32, begin: Duration, emitter: Emitter },
    A { index: u32, begin: Duration, pairs: u64, source: Source, received: u64 },
}

/// See the module.
pub struct Session {
    running: Option<Running>,
    current: Current,
    /// Of A tasks that have not run; `None` before the O phase is over.
    stores: Option<VecDeque<(u32, Store)>>,
}

impl Session {
    /// Errors: as [`crate::Job::run`], of what goes before the first task.
    pub fn start(world: &World, config: &Config, name: &str, shaping: &Shaping) -> Result<Session, Error> {
        let shape = Shape {
            arrangement: shaping.arrangement,
            order: shaping.compare.clone().map_or(KeyOrder::Bytes, KeyOrder::Custom),
            combine: shaping.combine.clone().map(|combine| Arc::new(Combining(combine)) as Arc<dyn Combine>),
            run_bytes: config.run_bytes,
        };
        let partition = shaping.partition.clone().map(|partition| {
            let chooses: Arc<crate::emit::Partition> = Arc::new(move |key, parts| Ok(partition(key, parts)));
            chooses
        });
        let spec = Spec {
            name: name.to_string(),
            o_tasks: None,
            a_tasks: None,
            o_tasks_unless_told: None,
            shape,
            partition,
            owned: false,
            mode: Mode::Common,
            in_any_mode: false,
        };
        let config = Config { threads: Some(1), ..config.clone() };
        let running = Running::start(world, &config, spec, world.next_job())?;
        Ok(Session { running: Some(running), current: Current::None, stores: None })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the session is not finished")
    }

    /// Ends the current task well, and begins the next one. Waits for other ranks between the last O task and the first A task.
    /// `None`: there is none left, or the job is to stop.
    pub fn next_task(&mut self) -> Option<(Side, usize)> {
        self.end_task();
        if self.stores.is_none() {
            if let Some(index) = self.running().take_task() {
                let emitter = self.running().o_task(index);
                self.current = Current::O { index, begin: now(), emitter };
                return Some((Side::O, index as usize));
            }
            let stores = self.running.as_mut().expect("the session is not finished").end_o_phase();
            self.stores = Some(stores.into());
        }
        if self.running().stop().is_set() {
            return None;
        }
        let (index, store) = self.stores.as_mut()?.pop_front()?;
        self.running().a_task_begins(&store);
        let (begin, pairs) = (now(), store.received_pairs);
        match store.finish() {
            Ok(source) => {
                self.current = Current::A { index, begin, pairs, source, received: 0 };
                Some((Side::A, index as usize))
            }
            Err(error) => {
                let error =
                    crate::exchange::store_error(error, index, None, self.running().world.launched_rank());
                self.running().stop().fail(error);
                None
            }
        }
    }

    fn end_task(&mut self) {
        match std::mem::replace(&mut self.current, Current::None) {
            Current::None => {}
            Current::O { index, begin, mut emitter } => {
                let finished = emitter.finish();
                self.running().o_task_done(index, begin, &emitter, 0);
                if let Err(EmitError::Rejected(rejected)) = finished {
                    self.fail_task(Side::O, emitter.blame(), Cause::Rejected, &rejected.to_string());
                }
            }
            Current::A { index, begin, pairs, .. } => self.running().span(Side::A, index, begin, pairs),
        }
    }

    /// Tasks of the current one's kind.
    pub fn tasks(&self, side: Side) -> usize {
        let plan = &self.running().plan;
        if side == Side::O { plan.o_tasks as usize } else { plan.a_tasks as usize }
    }

    /// The current task.
    pub fn task(&self) -> Option<(Side, usize)> {
        match &self.current {
            Current::None => None,
            Current::O { index, .. } => Some((Side::O, *index as usize)),
            Current::A { index, .. } => Some((Side::A, *index as usize)),
        }
    }

    /// Says what the current O task reads from now on, for errors. Returns whether one runs.
    pub fn reads(&mut self, source: &str) -> bool {
        let Current::O { emitter, .. } = &mut self.current else { return false };
        emitter.reads(source);
        true
    }

    /// Says where in what it reads the current O task is, such as a byte or a row, for errors. Returns whether one runs.
    pub fn at(&mut self, position: u64) -> bool {
        let Current::O { emitter, .. } = &mut self.current else { return false };
        emitter.origin.position = Some(position);
        true
    }

    /// Sends a pair from an O task. Returns at once, unless the send queue is full.
    ///
    /// Errors: the job is to stop, the pair is refused, or no O task runs.
    pub fn send(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        let Current::O { emitter, .. } = &mut self.current else {
            return Err(EmitError::Rejected(Rejected("only an O task sends".to_string())));
        };
        let sent = emitter.emit(key, value);
        if let Err(EmitError::Rejected(rejected)) = &sent {
            let blamed = emitter.blame();
            self.fail_task(Side::O, blamed, Cause::Rejected, &rejected.to_string());
        }
        sent
    }

    /// Goes to the next pair of an A task. Returns whether there is one.
    ///
    /// Errors: it cannot be read, or no A task runs.
    pub fn receive(&mut self) -> Result<bool, ReceiveError> {
        let Current::A { source, received, index, .. } = &mut self.current else {
            return Err(Rejected("only an A task receives".to_string()).into());
        };
        let index = *index;
        match source.advance() {
            Ok(more) => {
                *received += u64::from(more);
                Ok(more)
            }
            Err(error) => {
                let told = ReceiveError::from(error);
                let place = format!("record {received}");
                self.fail_task(Side::A, (index, place), Cause::Rejected, &told.to_string());
                Err(told)
            }
        }
    }

    /// Key and value of the current pair of an A task.
    pub fn pair(&self) -> (&[u8], &[u8]) {
        match &self.current {
            Current::A { source, received, .. } if *received > 0 => (source.key(), source.value()),
            _ => (&[], &[]),
        }
    }

    /// The current task has failed, and the job with it.
    pub fn fail(&mut self, message: &str) {
        let (side, blamed) = match &self.current {
            Current::None => return,
            Current::O { index, emitter, .. } => (Side::O, (*index, emitter.origin.place())),
            Current::A { index, received, .. } => (Side::A, (*index, format!("record {received}"))),
        };
        self.fail_task(side, blamed, Cause::Failed, message);
    }

    fn fail_task(&self, side: Side, (index, place): (u32, String), cause: Cause, message: &str) {
        let error = self.running().task_error(side, index, place, cause, message);
        self.running().stop().fail(error);
    }

    /// The end of the job on all ranks.
    ///
    /// Errors: as [`crate::Job::run`].
    pub fn finish(mut self) -> Result<Report, Error> {
        while self.next_task().is_some() {
            // Tasks that nobody asked for: an O task that sends nothing, an A task that reads nothing.
        }
        self.running.take().expect("it is finished once").end()
    }
}
