//! Send side of an O task: pairs are combined in a hash table, or written directly into one block per A task.
//!
//! A table outlives its O task unless pairs must be attributed to their O task: the rank's next O task
//! continues with it, so a key common to most tasks is sent once instead of once per task ([`flush_tables`]).
//!
//! # Memory bound
//! One block for each A task, and [`crate::Config::combine_bytes`] for the table plus one value; consecutive
//! O tasks reuse them. When streaming, one block for each A task and open window, with at most
//! [`WINDOWS_MAX`] windows: beyond that, the oldest window's blocks are sent before they are full.
//!
//! Source: mpi-d, section IV-A (the hash table, its spilling into partitions, the realignment of data);
//! hive-on-datampi, section IV-C (send partition lists).

use crate::datum::Rejected;
use crate::exchange::{JobStopped, SendQueues};
use crate::hash::{hash, part_of};
use crate::origin::{Origin, format_key};
use crate::records::{self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, pair_bytes};
use crate::table::{Combine, CombineError, Table, Upsert};
use harrier_interconnect::limits::{BLOCK_BYTES_HARD_MAX, HEADER_BYTES};
use harrier_interconnect::transport::Block;
use std::sync::Arc;

/// Chooses the A task of a key.
pub(crate) type Partition = dyn Fn(&[u8], usize) -> Result<usize, Rejected> + Send + Sync;

/// Pairs after which a table that combines next to nothing is abandoned.
const TRIAL_PAIRS: u64 = 1 << 20;

/// Share of combined pairs below which the table costs more than it saves.
const COMBINED_SHARE_MIN: f64 = 0.05;

/// Pairs that are looked up in the table together: enough for their cache misses to overlap, few enough to
/// stay in the L1 cache until they are used.
const BATCH_PAIRS: usize = 16;

/// Maximum number of windows with buffered pairs.
const WINDOWS_MAX: usize = 32;

/// Bytes of a batch at which it is looked up even if it has room for more pairs.
const BATCH_BYTES_MAX: usize = 4096;

/// Why a pair was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The job is stopping; the function should return.
    #[error("the job is to stop")]
    Stopped,
    /// The partitioner or the combiner rejects the pair, or it is too large.
    #[error("{0}")]
    Rejected(#[from] Rejected),
}

impl From<JobStopped> for EmitError {
    fn from(_: JobStopped) -> EmitError {
        EmitError::Stopped
    }
}

/// One window's partially filled blocks, by A task.
struct Partitions {
    window: u64,
    open: Vec<Open>,
}

#[derive(Default)]
struct Open {
    block: Option<Block>,
    pairs: u32,
}

/// A pair in the lookup batch; the bytes of all pairs are contiguous.
#[derive(Clone, Copy, Default)]
struct Pending {
    hash: u64,
    value: usize,
    end: usize,
    position: Option<u64>,
}

/// Pairs to be looked up together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    pairs: [Pending; BATCH_PAIRS],
    len: usize,
}

impl Batch {
    /// Adds a pair. Returns whether the batch is full.
    #[inline]
    fn push(&mut self, hash: u64, key: &[u8], value: &[u8], position: Option<u64>) -> bool {
        self.bytes.extend_from_slice(key);
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let end = self.bytes.len();
        self.pairs[self.len] = Pending { hash, value: value_at, end, position };
        self.len += 1;
        self.len == BATCH_PAIRS || end >= BATCH_BYTES_MAX
    }
}

/// Sends the pairs left in the O tasks' tables. Called when all of this rank's O tasks have ended.
///
/// Errors: a pair is rejected because it grew too large by combining; attributed to the last O task that
/// contributed. A stopping job reports nothing.
pub(crate) fn flush_tables(queues: &Arc<SendQueues>) -> Result<(), (u32, Rejected)> {
    // Taken first: an emitter takes this lock, too.
    let tables = std::mem::take(&mut *queues.tables.lock());
    for (o_task, table) in tables {
        let mut emitter = Emitter::new(queues, o_task, None);
        emitter.table = Some(table);
        match emitter.empty_table().and_then(|()| emitter.ship_all()) {
            Ok(()) => {}
            Err(EmitError::Stopped) => return Ok(()),
            Err(EmitError::Rejected(rejected)) => return Err((o_task, rejected)),
        }
    }
    Ok(())
}

/// Send path of one O task.
pub(crate) struct Emitter {
    queues: Arc<SendQueues>,
    partition: Option<Arc<Partition>>,
    combine: Option<Arc<dyn Combine>>,
    table: Option<Table>,
    /// Present as long as there is a table.
    batch: Option<Box<Batch>>,
    /// The O task's position in its input; while a batch is looked up, the position of the pair being looked
    /// up.
    pub origin: Origin,
    /// Why a pair was rejected; nothing more is sent.
    rejection: Option<EmitError>,
    /// O task and position of the rejected pair, if it is not the last one sent.
    blamed: Option<(u32, String)>,
    /// One in batch jobs; when streaming, one for each open window.
    windows: Vec<Partitions>,
    /// Block capacity for pairs.
    block_pair_bytes: usize,
    pub pairs: u64,
    pub bytes: u64,
    pub combined: u64,
}

impl Emitter {
    pub fn new(queues: &Arc<SendQueues>, o_task: u32, partition: Option<Arc<Partition>>) -> Emitter {
        let combine = queues.plan.shape.combine.clone();
        Emitter {
            queues: Arc::clone(queues),
            partition,
            table: combine
                .is_some()
                .then(|| queues.tables.lock().pop().map(|(_, table)| table).unwrap_or_default()),
            batch: combine.is_some().then(Box::default),
            origin: Origin { o_task, ..Origin::default() },
            rejection: None,
            blamed: None,
            combine,
            windows: Vec::new(),
            block_pair_bytes: queues.plan.config.block_bytes - HEADER_BYTES - BLOCK_HEADER_BYTES,
            pairs: 0,
            bytes: 0,
            combined: 0,
        }
    }

    /// Disables combining: when streaming, pairs are separated by window.
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
        if let (Some(table), Some(combine), None) = (&mut self.table, &self.combine, &self.rejection) {
            match table.combine_hot(hash, key, value, &**combine) {
                Ok(false) => {}
                Ok(true) => {
                    self.combined += 1;
                    return Ok(());
                }
                Err(combine_error) => return Err(self.reject_combining(&combine_error, hash, key)),
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

    /// Looks up the batched pairs in the table. Costs about as much as one lookup, since the cache misses
    /// overlap.
    pub fn look_up(&mut self) -> Result<(), EmitError> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let pending = &batch.pairs[..batch.len];
        if let Some(table) = &mut self.table {
            table.prefetch(pending.iter().map(|pair| pair.hash));
        }
        let position = self.origin.position;
        let mut begin = 0;
        for pair in pending {
            self.origin.position = pair.position;
            let (key, value) = (&batch.bytes[begin..pair.value], &batch.bytes[pair.value..pair.end]);
            if let Err(error) = self.upsert(pair.hash, key, value) {
                return Err(self.reject(error));
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
                    // Values may grow when combined.
                    let is_full = table.bytes() >= self.queues.plan.config.combine_bytes;
                    if put == Upsert::Combined {
                        self.combined += 1;
                    } else if self.partition.is_some() {
                        // Check the key now: when the table is flushed, its record is no longer known.
                        self.a_task_of(hash, key)?;
                    }
                    return if is_full { self.empty_table() } else { Ok(()) };
                }
                Ok(Upsert::Full) => self.empty_table()?,
                Err(combine_error) => return Err(self.reject_combining(&combine_error, hash, key)),
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

    /// Stops sending. Returns the error, for its first report.
    #[cold]
    pub fn reject(&mut self, error: EmitError) -> EmitError {
        self.rejection.get_or_insert(error).clone()
    }

    /// Rejects a value of the key during combining: this one, or the one in the table.
    #[cold]
    fn reject_combining(&mut self, combine_error: &CombineError, hash: u64, key: &[u8]) -> EmitError {
        let Rejected(mut why) = combine_error.for_key(key);
        let held = self.table.as_ref().and_then(|table| table.place_of(hash, key));
        match (combine_error, held) {
            (CombineError::Existing(_), held) => {
                let unknown = (self.origin.o_task, "at a place that is not known".to_string());
                self.blamed.get_or_insert(held.unwrap_or(unknown));
            }
            (CombineError::Either(_), Some((o_task, place))) => {
                why.push_str(&format!("; the other one is from O task {o_task}"));
                if !place.is_empty() {
                    why.push_str(&format!(", {place}"));
                }
            }
            _ => {}
        }
        self.reject(Rejected(why).into())
    }

    /// The O task whose pair was rejected, and the pair's position in its input.
    pub fn blame(&self) -> (u32, String) {
        self.blamed.clone().unwrap_or_else(|| (self.origin.o_task, self.origin.place()))
    }

    /// Sets the name of the O task's input.
    pub fn set_source(&mut self, source: &str) {
        // Batched pairs belong to the previous input. The next send returns their error.
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
                // The pair was combined from several positions.
                self.blamed.get_or_insert((self.origin.o_task, String::new()));
                return Err(self.reject(
                    Rejected(format!("what was combined of key {}: {why}", format_key(key))).into(),
                ));
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
        if let Some(error) = &self.rejection {
            return Err(error.clone());
        }
        let a_task = self.a_task_of(hash, key)?;
        let at = match self.windows.iter().position(|open| open.window == window) {
            Some(at) => at,
            None => {
                if self.windows.len() >= WINDOWS_MAX {
                    self.send_oldest()?;
                }
                let open = (0..self.queues.plan.a_tasks).map(|_| Open::default()).collect();
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
            open.block = Some(self.queues.block(a_task as u32, bytes.max(self.block_pair_bytes)));
        }
        let block = open.block.as_mut().expect("it was just made");
        let (lengths, length_bytes) = records::lengths(key.len(), value.len());
        block.extend_from_slice(&lengths[..length_bytes]);
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        open.pairs += 1;
        Ok(())
    }

    /// Errors: the partitioner rejects the key, or returns an invalid task.
    #[inline]
    fn a_task_of(&self, hash: u64, key: &[u8]) -> Result<usize, EmitError> {
        let a_tasks = self.queues.plan.a_tasks as usize;
        match &self.partition {
            None => Ok(part_of(hash, a_tasks)),
            Some(partition) => match partition(key, a_tasks)? {
                a_task if a_task < a_tasks => Ok(a_task),
                a_task => Err(Rejected(format!(
                    "the partitioner chose A task {a_task}, and there are the A tasks 0 to {}",
                    a_tasks.saturating_sub(1)
                ))
                .into()),
            },
        }
    }

    /// Sends every block, even if not full.
    fn ship_all(&mut self) -> Result<(), EmitError> {
        for at in 0..self.windows.len() {
            for a_task in 0..self.windows[at].open.len() {
                self.ship(at, a_task, false)?;
            }
        }
        Ok(())
    }

    /// Sends one block. In blocking mode, a full block sends all of them, and waits until they are received.
    fn ship(&mut self, at: usize, a_task: usize, full: bool) -> Result<(), EmitError> {
        if full && self.queues.plan.config.blocking {
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
        Ok(self.queues.send(header, block, ask)?)
    }

    fn header(&self, kind: BlockKind, a_task: u32, pairs: u32, window: u64) -> BlockHeader {
        let generation = self.queues.plan.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.generation);
        BlockHeader { kind, o_task: self.origin.o_task, a_task, pairs, window, generation }
    }

    /// Closes the windows before this one: sends their remaining pairs, and a watermark to every A task.
    pub fn close_windows(&mut self, before: u64) -> Result<(), EmitError> {
        while let Some(at) = self.windows.iter().position(|open| open.window < before) {
            self.send_window(at)?;
        }
        self.send_to_all(BlockKind::Watermark, before)
    }

    /// Closes all windows: sends their remaining pairs, and an end mark to every A task.
    pub fn end_windows(&mut self) -> Result<(), EmitError> {
        while !self.windows.is_empty() {
            self.send_window(0)?;
        }
        self.send_to_all(BlockKind::TaskEnd, 0)
    }

    /// Sends the pairs so far of the window that is likely to close first; more of its pairs may follow.
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

    fn send_to_all(&mut self, kind: BlockKind, window: u64) -> Result<(), EmitError> {
        for a_task in 0..self.queues.plan.a_tasks {
            let block = self.queues.block(a_task, 0);
            self.queues.send(self.header(kind, a_task, 0, window), block, false)?;
        }
        Ok(())
    }

    /// Whether pairs in the table may be sent after this O task has ended. Not with a checkpoint, which
    /// restores pairs by O task, nor with a partitioner, whose rejections must name the task of the pair.
    fn can_keep_table(&self) -> bool {
        self.queues.plan.checkpoint.is_none() && self.partition.is_none()
    }

    /// Sends the remaining pairs, except those that the next O task may combine with its own.
    pub fn finish(&mut self) -> Result<(), EmitError> {
        self.look_up()?;
        if let Some(error) = &self.rejection {
            return Err(error.clone());
        }
        if !self.can_keep_table() {
            self.empty_table()?;
        }
        // So the next O task need not grow a new table.
        self.queues.tables.lock().extend(self.table.take().map(|table| (self.origin.o_task, table)));
        self.ship_all()?;
        if self.queues.plan.checkpoint.is_some() {
            self.send_to_all(BlockKind::TaskEnd, 0)?;
        }
        Ok(())
    }
}
