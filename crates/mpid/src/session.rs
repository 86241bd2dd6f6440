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
use crate::table::Combine;
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
    fn combine(&self, key: &[u8], held: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Rejected> {
        (self.0)(key, held, value, out)
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
    /// Where in its input the last O task was when it ended.
    position: Option<u64>,
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
            shape,
            partition,
            owned: false,
            mode: Mode::Common,
        };
        let config = Config { threads: Some(1), ..config.clone() };
        let running = Running::start(world, &config, spec, world.next_job())?;
        Ok(Session { running: Some(running), current: Current::None, stores: None, position: None })
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the session is not finished")
    }

    /// Ends the current task well, and begins the next one. Waits for other ranks between the last O task and the first A task.
    /// `None`: there is none left, or the job is to stop.
    pub fn next_task(&mut self) -> Option<(Side, usize)> {
        self.end_task();
        self.position = None;
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
                let error = crate::exchange::store_error(error, index, self.running().world.launched_rank());
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
                self.position = emitter.position;
                self.running().o_task_done(index, begin, &emitter, 0);
                if let Err(EmitError::Rejected(rejected)) = finished {
                    self.fail_task(Side::O, index, Cause::Rejected, &rejected.to_string());
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

    /// Says where in its input the current O task is, for errors.
    pub fn at(&mut self, position: u64) {
        if let Current::O { emitter, .. } = &mut self.current {
            emitter.position = Some(position);
        }
    }

    /// Sends a pair from an O task. Returns at once, unless the send queue is full.
    ///
    /// Errors: the job is to stop, the pair is refused, or no O task runs.
    pub fn send(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        let Current::O { emitter, index, .. } = &mut self.current else {
            return Err(EmitError::Rejected(Rejected("only an O task sends".to_string())));
        };
        let index = *index;
        let sent = emitter.emit(key, value);
        if let Err(EmitError::Rejected(rejected)) = &sent {
            self.fail_task(Side::O, index, Cause::Rejected, &rejected.to_string());
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
                self.fail_task(Side::A, index, Cause::Rejected, &told.to_string());
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
        if let Some((side, index)) = self.task() {
            self.fail_task(side, index as u32, Cause::Failed, message);
        }
    }

    fn fail_task(&self, side: Side, index: u32, cause: Cause, message: &str) {
        let position = match &self.current {
            Current::O { emitter, .. } => emitter.position,
            _ => self.position,
        };
        let place = match (&self.current, position) {
            (Current::A { received, .. }, _) => format!("record {received}"),
            (_, Some(position)) => format!("at {position}"),
            (_, None) => String::new(),
        };
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
