//! What an O task sends: pairs are combined in a table, or realigned at once into one block for each A task.
//!
//! A table outlives its O task where nobody has to know which one a pair is of: the next O task of this rank
//! goes on with it, so that a key that most of them have is sent once and not once for each ([`send_kept`]).
//!
//! # Memory bound
//! One block for each A task, and [`crate::Config::combine_bytes`] for the table and one value more; O tasks
//! that run one after the other use the same. When streaming, one block for each A task and open window, of
//! which there are at most [`WINDOWS_MAX`]: of more, what the oldest has is sent before it is full.
//!
//! Source: mpi-d, section IV-A (the hash table, its spilling into partitions, the realignment of data);
//! hive-on-datampi, section IV-C (send partition lists).

use crate::datum::Rejected;
use crate::exchange::{JobStopped, Outs};
use crate::hash::{hash, part_of};
use crate::origin::{Origin, shown};
use crate::records::{self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, pair_bytes};
use crate::table::{Combine, Refusal, Table, Upsert};
use harrier_interconnect::limits::{BLOCK_BYTES_HARD_MAX, HEADER_BYTES};
use harrier_interconnect::transport::Block;
use std::fmt;
use std::sync::Arc;

/// Chooses the A task of a key.
pub(crate) type Partition = dyn Fn(&[u8], usize) -> Result<usize, Rejected> + Send + Sync;

/// Pairs after which a table that combines next to nothing is given up.
const TRIAL_PAIRS: u64 = 1 << 20;

/// Share of pairs that are combined below which the table costs more than it saves.
const COMBINED_SHARE_MIN: f64 = 0.05;

/// Pairs that are looked up in the table together: enough for their cache misses to overlap, few enough for
/// all to stay in the first cache until they are used.
const BATCH_PAIRS: usize = 16;

/// Windows with pairs that wait for others of theirs.
const WINDOWS_MAX: usize = 32;

/// Bytes of a pair that does not wait for others.
const WAITING_BYTES_MAX: usize = 4096;

/// Why a pair was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The job is to stop; whoever hears this should end.
    Stopped,
    /// The partitioner or the combiner does not accept the pair, or it is too large.
    Rejected(Rejected),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::Stopped => f.write_str("the job is to stop"),
            EmitError::Rejected(rejected) => rejected.fmt(f),
        }
    }
}

impl std::error::Error for EmitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EmitError::Stopped => None,
            EmitError::Rejected(rejected) => Some(rejected),
        }
    }
}

impl From<JobStopped> for EmitError {
    fn from(_: JobStopped) -> EmitError {
        EmitError::Stopped
    }
}

impl From<Rejected> for EmitError {
    fn from(rejected: Rejected) -> EmitError {
        EmitError::Rejected(rejected)
    }
}

/// The pairs of one window to all A tasks, in blocks that are not full yet.
struct Partitions {
    window: u64,
    open: Vec<Open>,
}

#[derive(Default)]
struct Open {
    block: Option<Block>,
    pairs: u32,
}

/// A pair that waits to be looked up: its bytes lie one pair behind the other.
#[derive(Clone, Copy, Default)]
struct Waiting {
    hash: u64,
    value: usize,
    end: usize,
    position: Option<u64>,
}

/// Pairs that wait to be looked up together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    pairs: [Waiting; BATCH_PAIRS],
    len: usize,
}

impl Batch {
    /// Takes a pair. Returns whether none may follow.
    #[inline]
    fn push(&mut self, hash: u64, key: &[u8], value: &[u8], position: Option<u64>) -> bool {
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let end = self.bytes.len();
        self.pairs[self.len] = Waiting { hash, value: value_at, end, position };
        self.len += 1;
        self.len == BATCH_PAIRS || end >= WAITING_BYTES_MAX
    }
}

/// Sends what O tasks have left in their tables. To be called when all of this rank's have ended.
///
/// Errors: a pair is refused, as combined it is too large; with the last O task that had a part in it.
/// Nothing is said of a job that is to stop.
pub(crate) fn send_kept(outs: &Arc<Outs>) -> Result<(), (u32, Rejected)> {
    // Taken first: an emitter takes one, too.
    let tables = std::mem::take(&mut *outs.tables.lock());
    for (o_task, table) in tables {
        let mut emitter = Emitter::new(outs, o_task, None);
        emitter.table = Some(table);
        match emitter.empty_table().and_then(|()| emitter.ship_all()) {
            Ok(()) => {}
            Err(EmitError::Stopped) => return Ok(()),
            Err(EmitError::Rejected(rejected)) => return Err((o_task, rejected)),
        }
    }
    Ok(())
}

/// What the pairs of one O task go through.
pub(crate) struct Emitter {
    outs: Arc<Outs>,
    partition: Option<Arc<Partition>>,
    combine: Option<Arc<dyn Combine>>,
    table: Option<Table>,
    /// As long as there is a table.
    batch: Option<Box<Batch>>,
    /// Where in its input the O task is; while pairs that have waited are looked up, where it was when it
    /// sent them.
    pub origin: Origin,
    /// Why a pair was refused; nothing more is sent.
    refused: Option<EmitError>,
    /// The O task and the place of the pair that was refused, if that is not the one which was sent last.
    blamed: Option<(u32, String)>,
    /// In batch jobs one; when streaming, one for each window that is open.
    windows: Vec<Partitions>,
    /// Bytes of pairs for which a block is made.
    block_pair_bytes: usize,
    pub pairs: u64,
    pub bytes: u64,
    pub combined: u64,
}

impl Emitter {
    pub fn new(outs: &Arc<Outs>, o_task: u32, partition: Option<Arc<Partition>>) -> Emitter {
        let combine = outs.plan.shape.combine.clone();
        Emitter {
            outs: Arc::clone(outs),
            partition,
            table: combine
                .is_some()
                .then(|| outs.tables.lock().pop().map(|(_, table)| table).unwrap_or_default()),
            batch: combine.is_some().then(Box::default),
            origin: Origin { o_task, ..Origin::default() },
            refused: None,
            blamed: None,
            combine,
            windows: Vec::new(),
            block_pair_bytes: outs.plan.config.block_bytes - HEADER_BYTES - BLOCK_HEADER_BYTES,
            pairs: 0,
            bytes: 0,
            combined: 0,
        }
    }

    /// Combines pairs no more: when streaming, they are told apart by window.
    pub fn without_table(mut self) -> Emitter {
        self.table = None;
        self.batch = None;
        self
    }

    /// Sends a pair, now or later.
    #[inline]
    pub fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let hash = hash(key);
        if let (Some(table), Some(combine), None) = (&mut self.table, &self.combine, &self.refused) {
            match table.combine_hot(hash, key, value, &**combine) {
                Ok(false) => {}
                Ok(true) => {
                    self.combined += 1;
                    return Ok(());
                }
                Err(refusal) => return Err(self.refuse_combining(&refusal, hash, key)),
            }
        }
        match &mut self.batch {
            None => self.emit_to_window(0, hash, key, value),
            Some(batch) => match batch.push(hash, key, value, self.origin.position) {
                true => self.look_up(),
                false => Ok(()),
            },
        }
    }

    /// Puts the pairs that wait into the table. Costs what one of them would if it went alone, since the
    /// processor waits for all of their places in memory at once.
    pub fn look_up(&mut self) -> Result<(), EmitError> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let waiting = &batch.pairs[..batch.len];
        if let Some(table) = &mut self.table {
            table.touch(waiting.iter().map(|pair| pair.hash));
        }
        let position = self.origin.position;
        let mut begin = 0;
        for pair in waiting {
            self.origin.position = pair.position;
            let (key, value) = (&batch.bytes[begin..pair.value], &batch.bytes[pair.value..pair.end]);
            if let Err(error) = self.upsert(pair.hash, key, value) {
                return Err(self.refuse(error));
            }
            begin = pair.end;
        }
        self.origin.position = position;
        if self.table.is_some() {
            batch.len = 0;
            batch.bytes.clear();
            self.batch = Some(batch);
        }
        Ok(())
    }

    #[inline]
    fn upsert(&mut self, hash: u64, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        if let Some(table) = &mut self.table {
            let combine = self.combine.as_ref().expect("there is a table");
            match table.upsert(hash, key, value, &**combine, Some(&self.origin)) {
                Ok(put @ (Upsert::Combined | Upsert::Inserted)) => {
                    // Values may grow as they are combined.
                    let is_full = table.bytes() >= self.outs.plan.config.combine_bytes;
                    if put == Upsert::Combined {
                        self.combined += 1;
                    } else if self.partition.is_some() {
                        // When the table is emptied, nobody knows any more which record the key is from.
                        self.a_task_of(hash, key)?;
                    }
                    return if is_full { self.empty_table() } else { Ok(()) };
                }
                Ok(Upsert::Full) => self.empty_table()?,
                Err(refusal) => return Err(self.refuse_combining(&refusal, hash, key)),
            }
        }
        self.emit_to_window(0, hash, key, value)
    }

    /// Sends a pair of a window.
    #[inline]
    pub fn emit_in_window(&mut self, window: u64, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.emit_to_window(window, hash(key), key, value)
    }

    /// Nothing more is sent. Returns the error, for its first one.
    #[cold]
    pub fn refuse(&mut self, error: EmitError) -> EmitError {
        self.refused.get_or_insert(error).clone()
    }

    /// A value of the key was refused when it was to be combined: this one, or the one that the table has.
    #[cold]
    fn refuse_combining(&mut self, refusal: &Refusal, hash: u64, key: &[u8]) -> EmitError {
        let Rejected(mut why) = refusal.told(key);
        let held = self.table.as_ref().and_then(|table| table.place_of(hash, key));
        match (refusal, held) {
            (Refusal::Held(_), held) => {
                let unknown = (self.origin.o_task, "at a place that is not known".to_string());
                self.blamed.get_or_insert(held.unwrap_or(unknown));
            }
            (Refusal::Either(_), Some((o_task, place))) => {
                why.push_str(&format!("; the other one is from O task {o_task}"));
                if !place.is_empty() {
                    why.push_str(&format!(", {place}"));
                }
            }
            _ => {}
        }
        self.refuse(Rejected(why).into())
    }

    /// The O task whose pair was refused, and the pair's place in its input.
    pub fn blame(&self) -> (u32, String) {
        self.blamed.clone().unwrap_or_else(|| (self.origin.o_task, self.origin.place()))
    }

    /// The O task reads something else from now on.
    pub fn reads(&mut self, source: &str) {
        // Pairs that wait are of what was read before. The next one that is sent returns an error of theirs.
        if self.look_up().is_err() && self.blamed.is_none() {
            self.blamed = Some((self.origin.o_task, self.origin.place()));
        }
        self.origin.source = Some(source.into());
        self.origin.position = None;
    }

    fn empty_table(&mut self) -> Result<(), EmitError> {
        let Some(mut table) = self.table.take() else { return Ok(()) };
        for (hash, key, value) in table.iter() {
            if let Err(error) = self.emit_to_window(0, hash, key, value) {
                let EmitError::Rejected(Rejected(why)) = error else { return Err(error) };
                // It was combined from pairs of many places.
                self.blamed.get_or_insert((self.origin.o_task, String::new()));
                return Err(
                    self.refuse(Rejected(format!("what was combined of key {}: {why}", shown(key))).into())
                );
            }
        }
        let in_vain =
            self.pairs > TRIAL_PAIRS && (self.combined as f64) < self.pairs as f64 * COMBINED_SHARE_MIN;
        if !in_vain {
            table.clear();
            self.table = Some(table);
        }
        Ok(())
    }

    #[inline]
    fn emit_to_window(&mut self, window: u64, hash: u64, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        let a_task = self.a_task_of(hash, key)?;
        let at = match self.windows.iter().position(|open| open.window == window) {
            Some(at) => at,
            None => {
                if self.windows.len() >= WINDOWS_MAX {
                    self.send_oldest()?;
                }
                let open = (0..self.outs.plan.a_tasks).map(|_| Open::default()).collect();
                self.windows.push(Partitions { window, open });
                self.windows.len() - 1
            }
        };
        let bytes = pair_bytes(key.len(), value.len());
        let open = &mut self.windows[at].open[a_task];
        if let Some(block) = &open.block
            && block.len() + bytes > block.capacity()
        {
            self.ship(at, a_task, true)?;
        }
        let open = &mut self.windows[at].open[a_task];
        if open.block.is_none() {
            if bytes > BLOCK_BYTES_HARD_MAX - BLOCK_HEADER_BYTES {
                return Err(Rejected(format!("a pair of {bytes} bytes is too large for a block")).into());
            }
            open.block = Some(self.outs.block(a_task as u32, bytes.max(self.block_pair_bytes)));
        }
        let block = open.block.as_mut().expect("it was just made");
        let (lengths, length_bytes) = records::lengths(key.len(), value.len());
        block.extend_from_slice(&lengths[..length_bytes]);
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        open.pairs += 1;
        Ok(())
    }

    /// Errors: the partitioner does not accept the key, or chooses a task that there is not.
    #[inline]
    fn a_task_of(&self, hash: u64, key: &[u8]) -> Result<usize, EmitError> {
        let a_tasks = self.outs.plan.a_tasks as usize;
        match &self.partition {
            None => Ok(part_of(hash, a_tasks)),
            Some(partition) => match partition(key, a_tasks)? {
                a_task if a_task < a_tasks => Ok(a_task),
                a_task => Err(Rejected(format!("the partitioner chose A task {a_task} of {a_tasks}")).into()),
            },
        }
    }

    /// Sends what is in every block.
    fn ship_all(&mut self) -> Result<(), EmitError> {
        for at in 0..self.windows.len() {
            for a_task in 0..self.windows[at].open.len() {
                self.ship(at, a_task, false)?;
            }
        }
        Ok(())
    }

    /// Sends what is in one block. In the blocking style, and if a full block is why: what is in all of them,
    /// and waits.
    fn ship(&mut self, at: usize, a_task: usize, full: bool) -> Result<(), EmitError> {
        if full && self.outs.plan.config.blocking {
            let mut waits = Vec::new();
            for a_task in 0..self.windows[at].open.len() {
                waits.extend(self.ship_one(at, a_task, true)?);
            }
            for wait in waits {
                wait.blocking_recv().map_err(|_| EmitError::Stopped)?;
            }
            return Ok(());
        }
        self.ship_one(at, a_task, false).map(|_| ())
    }

    fn ship_one(
        &mut self,
        at: usize,
        a_task: usize,
        ask: bool,
    ) -> Result<Option<tokio::sync::oneshot::Receiver<()>>, EmitError> {
        let Partitions { window, open } = &mut self.windows[at];
        let window = *window;
        let pairs = std::mem::take(&mut open[a_task].pairs);
        let Some(block) = open[a_task].block.take() else { return Ok(None) };
        let header = self.header(BlockKind::Pairs, a_task as u32, pairs, window);
        Ok(self.outs.send(header, block, ask)?)
    }

    fn header(&self, kind: BlockKind, a_task: u32, pairs: u32, window: u64) -> BlockHeader {
        let generation = self.outs.plan.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.generation);
        BlockHeader { kind, o_task: self.origin.o_task, a_task, pairs, window, generation }
    }

    /// Windows before this one are complete: sends what is left of them, and says so to every A task.
    pub fn close_windows(&mut self, before: u64) -> Result<(), EmitError> {
        while let Some(at) = self.windows.iter().position(|open| open.window < before) {
            self.send_window(at)?;
        }
        self.tell_all(BlockKind::Watermark, before)
    }

    /// All windows are complete: sends what is left of them, and says so to every A task.
    pub fn end_windows(&mut self) -> Result<(), EmitError> {
        while !self.windows.is_empty() {
            self.send_window(0)?;
        }
        self.tell_all(BlockKind::TaskEnd, 0)
    }

    /// Sends what the window that is likely to close first has so far; more of its pairs may follow.
    #[cold]
    fn send_oldest(&mut self) -> Result<(), EmitError> {
        let oldest = self.windows.iter().enumerate().min_by_key(|(_, open)| open.window);
        oldest.map(|(at, _)| at).map_or(Ok(()), |at| self.send_window(at))
    }

    fn send_window(&mut self, at: usize) -> Result<(), EmitError> {
        for a_task in 0..self.windows[at].open.len() {
            self.ship(at, a_task, false)?;
        }
        self.windows.swap_remove(at);
        Ok(())
    }

    fn tell_all(&mut self, kind: BlockKind, window: u64) -> Result<(), EmitError> {
        for a_task in 0..self.outs.plan.a_tasks {
            let block = self.outs.block(a_task, 0);
            self.outs.send(self.header(kind, a_task, 0, window), block, false)?;
        }
        Ok(())
    }

    /// Whether pairs in the table may be sent when this O task is long over: what is restored from a
    /// checkpoint is told by O task, and what a partitioner does not accept is to be said of the task that it
    /// came from.
    fn may_keep(&self) -> bool {
        self.outs.plan.checkpoint.is_none() && self.partition.is_none()
    }

    /// Sends all that is left, but for what the next O task may combine with its own.
    pub fn finish(&mut self) -> Result<(), EmitError> {
        self.look_up()?;
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        if !self.may_keep() {
            self.empty_table()?;
        }
        // The next O task need not let a table of its own grow.
        self.outs.tables.lock().extend(self.table.take().map(|table| (self.origin.o_task, table)));
        self.ship_all()?;
        if self.outs.plan.checkpoint.is_some() {
            self.tell_all(BlockKind::TaskEnd, 0)?;
        }
        Ok(())
    }
}
