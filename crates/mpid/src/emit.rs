//! What an O task sends: pairs are combined in a table, or realigned at once into one block for each A task.
//!
//! # Memory bound
//! One block for each A task, and [`crate::Config::combine_bytes`] for the table.
//!
//! Source: mpi-d, section IV-A (the hash table, its spilling into partitions, the realignment of data); hive-on-datampi, section
//! IV-C (send partition lists).

use crate::datum::Rejected;
use crate::exchange::{JobStopped, Outs};
use crate::hash::{hash, part_of};
use crate::records::{self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, pair_bytes};
use crate::table::{Combine, Table, Upsert};
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

impl std::error::Error for EmitError {}

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

/// What the pairs of one O task go through.
pub(crate) struct Emitter {
    outs: Arc<Outs>,
    o_task: u32,
    partition: Option<Arc<Partition>>,
    combine: Option<Arc<dyn Combine>>,
    table: Option<Table>,
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
            o_task,
            partition,
            table: combine.is_some().then(Table::default),
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
        self
    }

    /// Sends a pair, now or later.
    #[inline]
    pub fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), EmitError> {
        self.pairs += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let hash = hash(key);
        if let Some(table) = &mut self.table {
            let combine = self.combine.as_ref().expect("there is a table");
            match table.upsert(hash, key, value, &**combine)? {
                Upsert::Combined => {
                    self.combined += 1;
                    return Ok(());
                }
                Upsert::Inserted => {
                    if table.bytes() < self.outs.plan.config.combine_bytes {
                        return Ok(());
                    }
                    return self.empty_table();
                }
                Upsert::Full => self.empty_table()?,
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

    fn empty_table(&mut self) -> Result<(), EmitError> {
        let Some(mut table) = self.table.take() else { return Ok(()) };
        for (hash, key, value) in table.iter() {
            self.emit_to_window(0, hash, key, value)?;
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
        let a_tasks = self.outs.plan.a_tasks as usize;
        let a_task = match &self.partition {
            None => part_of(hash, a_tasks),
            Some(partition) => match partition(key, a_tasks)? {
                a_task if a_task < a_tasks => a_task,
                a_task => {
                    return Err(
                        Rejected(format!("the partitioner chose A task {a_task} of {a_tasks}")).into()
                    );
                }
            },
        };
        let at = match self.windows.iter().position(|open| open.window == window) {
            Some(at) => at,
            None => {
                let open = (0..a_tasks).map(|_| Open::default()).collect();
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

    /// Sends what is in one block. In the blocking style, and if a full block is why: what is in all of them, and waits.
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
        BlockHeader { kind, o_task: self.o_task, a_task, pairs, window, generation }
    }

    /// Windows before this one are complete: sends what is left of them, and says so to every A task.
    pub fn close_windows(&mut self, before: u64) -> Result<(), EmitError> {
        while let Some(at) = self.windows.iter().position(|open| open.window < before) {
            for a_task in 0..self.windows[at].open.len() {
                self.ship(at, a_task, false)?;
            }
            self.windows.swap_remove(at);
        }
        self.tell_all(BlockKind::Watermark, before)
    }

    fn tell_all(&mut self, kind: BlockKind, window: u64) -> Result<(), EmitError> {
        for a_task in 0..self.outs.plan.a_tasks {
            let block = self.outs.block(a_task, 0);
            self.outs.send(self.header(kind, a_task, 0, window), block, false)?;
        }
        Ok(())
    }

    /// Sends all that is left. Returns pairs and bytes emitted, and pairs combined.
    pub fn finish(&mut self) -> Result<(), EmitError> {
        self.empty_table()?;
        for at in 0..self.windows.len() {
            for a_task in 0..self.windows[at].open.len() {
                self.ship(at, a_task, false)?;
            }
        }
        if self.outs.plan.checkpoint.is_some() {
            self.tell_all(BlockKind::TaskEnd, 0)?;
        }
        Ok(())
    }
}
