//! Errors of a job, grouped by the largest unit that is dead.

use crate::wire::{Damaged, Reader, Writer};
use harrier_interconnect::StartError;
use std::fmt;

/// Error type of user functions.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The two sides of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    O,
    A,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::O => "O task",
            Side::A => "A task",
        })
    }
}

/// Kind of a task's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The user's function returned an error.
    Failed,
    /// The user's function panicked.
    Panicked,
    /// A codec rejected the bytes of a key or a value.
    Rejected,
}

/// A failed task and its position in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    pub side: Side,
    pub task: u32,
    pub rank: usize,
    pub cause: Cause,
    /// Position of the current record; empty before the first one.
    pub place: String,
    pub message: String,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on rank {}", self.side, self.task, self.rank)?;
        if !self.place.is_empty() {
            write!(f, ", {}", self.place)?;
        }
        let how = match (self.cause, self.side) {
            (Cause::Failed, _) => "failed",
            (Cause::Panicked, _) => "panicked",
            // By the partitioner, the combiner or the codec.
            (Cause::Rejected, Side::O) => "sent a pair that was refused",
            (Cause::Rejected, Side::A) => "was given what is no value",
        };
        write!(f, ": {how}: {}", self.message)
    }
}

impl std::error::Error for TaskError {}

/// Why a job has no result. The text includes that of its source; `Debug` prints the same text, because Rust
/// prints an error returned by `main` that way.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rendezvous of the ranks failed: no job can run.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The configuration is invalid for the job or this process: nothing has run.
    #[error("{0}")]
    Configuration(String),
    /// The job is dead: one of its tasks failed.
    #[error("{0}")]
    Task(#[source] TaskError),
    /// The job is dead: the program ended it on a rank before the rank's tasks were done.
    #[error("rank {rank} ended the job before its tasks were done: {message}")]
    Unfinished { rank: usize, message: String },
    /// The job is dead: spilling pairs to disk failed.
    #[error("rank {rank} could not spill pairs: {message}")]
    Spill { rank: usize, message: String },
    /// The job is dead: a checkpoint could not be written or read.
    #[error("the checkpoint of rank {rank}: {message}")]
    Checkpoint { rank: usize, message: String },
    /// The rank is dead, and with it every job.
    #[error("rank {rank} is lost: {reason}")]
    RankLost { rank: usize, reason: String },
    /// The job is dead: bytes in transit or on disk were corrupted. A bug, or damaged hardware.
    #[error("rank {rank} met {message}")]
    Damaged { rank: usize, message: String },
}

impl Error {
    /// Whether other jobs can still run on these ranks.
    pub fn leaves_the_ranks_alive(&self) -> bool {
        !matches!(self, Error::Start(_) | Error::RankLost { .. })
    }

    /// Encodes the error for other ranks; [`Error::Start`] never gets there.
    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            Error::Start(error) => out.u8(1).text(&error.to_string()),
            Error::Configuration(message) => out.u8(1).text(message),
            Error::Task(error) => {
                let side = u8::from(error.side == Side::A);
                let cause = match error.cause {
                    Cause::Failed => 0,
                    Cause::Panicked => 1,
                    Cause::Rejected => 2,
                };
                out.u8(2).u8(side).u32(error.task).u64(error.rank as u64).u8(cause);
                out.text(&error.place).text(&error.message)
            }
            Error::Spill { rank, message } => out.u8(3).u64(*rank as u64).text(message),
            Error::Checkpoint { rank, message } => out.u8(4).u64(*rank as u64).text(message),
            Error::RankLost { rank, reason } => out.u8(5).u64(*rank as u64).text(reason),
            Error::Damaged { rank, message } => out.u8(6).u64(*rank as u64).text(message),
            Error::Unfinished { rank, message } => out.u8(7).u64(*rank as u64).text(message),
        };
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Error, Damaged> {
        let ranked = |input: &mut Reader<'_>| -> Result<(usize, String), Damaged> {
            Ok((input.u64()? as usize, input.text()?))
        };
        Ok(match input.u8()? {
            1 => Error::Configuration(input.text()?),
            2 => Error::Task(TaskError {
                side: if input.u8()? == 0 { Side::O } else { Side::A },
                task: input.u32()?,
                rank: input.u64()? as usize,
                cause: match input.u8()? {
                    0 => Cause::Failed,
                    1 => Cause::Panicked,
                    _ => Cause::Rejected,
                },
                place: input.text()?,
                message: input.text()?,
            }),
            3 => ranked(input).map(|(rank, message)| Error::Spill { rank, message })?,
            4 => ranked(input).map(|(rank, message)| Error::Checkpoint { rank, message })?,
            5 => ranked(input).map(|(rank, reason)| Error::RankLost { rank, reason })?,
            6 => ranked(input).map(|(rank, message)| Error::Damaged { rank, message })?,
            7 => ranked(input).map(|(rank, message)| Error::Unfinished { rank, message })?,
            _ => return Err(Damaged("an error of no kind")),
        })
    }
}

impl Clone for Error {
    fn clone(&self) -> Error {
        let mut out = Writer::default();
        self.encode(&mut out);
        Error::decode(&mut Reader(&out.0)).expect("it was just written")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datum::Rejected;
    use crate::emit::EmitError;
    use crate::job::ReceiveError;
    use crate::spill::{SpillError, WriteError};
    use crate::store::StoreError;
    use std::error::Error as _;
    use std::io;

    /// Each error has a text that includes its source: programs print the text and search for the source.
    #[test]
    fn errors_have_texts_and_sources() {
        let task = TaskError {
            side: Side::A,
            task: 3,
            rank: 1,
            cause: Cause::Failed,
            place: "record 7".to_string(),
            message: "why".to_string(),
        };
        let io = || io::Error::other("the disk");
        let rejected = || Rejected("the value".to_string());
        let (rank, message) = (2, "a reason".to_string());
        let no_source: [BoxError; 9] = [
            Box::new(Error::Configuration(message.clone())),
            Box::new(Error::Unfinished { rank, message: message.clone() }),
            Box::new(Error::Spill { rank, message: message.clone() }),
            Box::new(Error::Checkpoint { rank, message: message.clone() }),
            Box::new(Error::RankLost { rank, reason: message.clone() }),
            Box::new(Error::Damaged { rank, message: message.clone() }),
            Box::new(ReceiveError::Spill(message.clone())),
            Box::new(SpillError::NoFolder(message.clone())),
            Box::new(ReceiveError::Damaged(message)),
        ];
        assert_eq!(format!("{:?}", Error::Task(task.clone())), "A task 3 on rank 1, record 7: failed: why");
        for error in no_source {
            assert!(error.to_string().contains("a reason") && error.source().is_none(), "{error:?}");
        }
        assert!(EmitError::Stopped.source().is_none() && !EmitError::Stopped.to_string().is_empty());
        let sources: [(BoxError, &str); 10] = [
            (Box::new(Error::Task(task)), "A task 3 on rank 1, record 7: failed: why"),
            (Box::new(Error::Start(StartError::Io(io()))), "the disk"),
            (Box::new(EmitError::Rejected(rejected())), "the value"),
            (Box::new(ReceiveError::Rejected(rejected())), "the value"),
            (Box::new(SpillError::Read(io())), "the disk"),
            (Box::new(SpillError::Descriptors(io())), "the disk"),
            (Box::new(SpillError::Damaged(Damaged("a run"))), "a run"),
            (Box::new(StoreError::Spill(SpillError::Read(io()))), "the disk"),
            (Box::new(StoreError::Rejected(rejected())), "the value"),
            (Box::new(WriteError::<StoreError>::Folder(io())), "the disk"),
        ];
        for (error, text) in sources {
            let source = error.source().unwrap_or_else(|| panic!("{error:?} has no source"));
            assert!(
                error.to_string().contains(text) && source.to_string().contains(text),
                "{error:?}: {source}"
            );
        }
        assert!(Error::Start(StartError::Io(io())).source().unwrap().source().unwrap().is::<io::Error>());
    }
}
