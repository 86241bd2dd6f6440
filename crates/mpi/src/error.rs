//! Errors of MPI and of finding its library.

use std::path::{Path, PathBuf};

use crate::Abi;

/// An error of MPI or of finding it. The rank is dead; sent messages may have arrived; retrying within the
/// same process does not help.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// No MPI library could be loaded.
    #[error("no MPI library found")]
    LibraryNotFound {
        /// The files that were tried, each with the dynamic loader's message.
        tried: Vec<String>,
    },
    /// The library lacks a symbol that its binary interface requires.
    #[error("MPI library \"{}\" has no symbol \"{symbol}\"", .library.display())]
    SymbolMissing {
        /// The library.
        library: PathBuf,
        /// The missing symbol.
        symbol: String,
    },
    /// The library was loaded but is none of the known kinds of MPI.
    #[error("{}", unknown_kind(.library, .version))]
    UnknownAbi {
        /// The library.
        library: PathBuf,
        /// The result of `MPI_Get_library_version`, empty if there is no such function.
        version: String,
    },
    /// The configured library is of another kind than `HARRIER_MPI_ABI` requires.
    #[error("MPI library \"{}\" is of kind \"{found}\", not \"{wanted}\"", .library.display())]
    AbiMismatch {
        /// The library.
        library: PathBuf,
        /// The detected interface.
        found: Abi,
        /// The required interface.
        wanted: Abi,
    },
    /// An environment variable has an invalid value.
    #[error("invalid value \"{value}\" for environment variable {name}: expected {expected}")]
    InvalidSetting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// MPI was already initialised in this process.
    #[error("MPI was already initialised in this process")]
    AlreadyInitialized,
    /// The library does not support programs with threads, even if one thread makes all calls.
    #[error("MPI library does not support programs with threads (level {provided})")]
    ThreadsUnsupported {
        /// The level of `MPI_Init_thread` that it offers.
        provided: i32,
    },
    /// The launcher started another number of ranks than MPI reports: the library is not the launcher's.
    #[error("the launcher started {launched} ranks but MPI knows of {world}")]
    WorldMismatch {
        /// The number of ranks in the launcher's environment.
        launched: usize,
        /// The ranks of `MPI_COMM_WORLD`.
        world: usize,
        /// The library that was loaded.
        library: PathBuf,
    },
    /// The number of ranks that the launcher started is unknown, and the library, which may not be the
    /// launcher's, reports only one.
    #[error("a launcher started this process ({sign}), and MPI does not know of how many ranks")]
    WorldUnknown {
        /// The variable that shows the launcher, as `KEY=value`.
        sign: String,
        /// The library that was loaded.
        library: PathBuf,
    },
    /// A Slurm step whose tasks have no process manager through which Open MPI could connect them.
    #[error("srun started {tasks} tasks without a process manager that Open MPI knows")]
    NoProcessManager {
        /// The tasks of the step.
        tasks: usize,
    },
    /// The launcher started another process, which uses MPI and started this one.
    #[error(
        "this process was started by a rank that uses MPI itself ({name}, process {pid}), and has its {sign}"
    )]
    Nested {
        /// That process.
        pid: u32,
        /// The name of its program.
        name: String,
        /// The variable that both have, as `KEY=value`.
        sign: String,
    },
    /// The connection to the launcher that a variable names is not open: it belongs to another process.
    #[error(
        "{sign} is the launcher's connection to another process, which this one has inherited the variable of"
    )]
    Inherited {
        /// The variable, as `KEY=value`.
        sign: String,
    },
    /// An MPI function failed.
    #[error("{function} failed: {message}")]
    Call {
        /// Its name.
        function: &'static str,
        /// The code that it returned.
        code: i32,
        /// The code's class.
        class: i32,
        /// MPI's text for the code.
        message: String,
    },
    /// There is no such rank.
    #[error("rank {rank} does not exist among {size} ranks")]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// More bytes than one MPI call can take.
    #[error("{bytes} bytes exceed the {} bytes that one MPI call can take", i32::MAX)]
    TooLarge {
        /// The bytes.
        bytes: u64,
    },
    /// A message arrived with a tag that Harrier does not use.
    #[error("message from rank {sender} has the unexpected tag {tag}")]
    UnexpectedTag {
        /// The rank that sent it.
        sender: usize,
        /// Its tag.
        tag: i32,
    },
    /// MPI cannot be finalised while messages are in flight.
    #[error("cannot finalise MPI with {sends} sends and {receives} receives in flight")]
    InFlight {
        /// Sends not complete.
        sends: usize,
        /// Messages not delivered.
        receives: usize,
    },
}

fn unknown_kind(library: &Path, version: &str) -> String {
    match version {
        "" => format!("library \"{}\" is no MPI library", library.display()),
        _ => format!("MPI library \"{}\" is of an unknown kind: {version}", library.display()),
    }
}

impl MpiError {
    /// Suggests what the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            MpiError::LibraryNotFound { .. } => Some(
                "install Open MPI or MPICH, or name the library in HARRIER_MPI_LIBRARY; without mpirun or srun no MPI is needed"
                    .into(),
            ),
            MpiError::SymbolMissing { .. } | MpiError::UnknownAbi { .. } => Some(
                "Harrier knows Open MPI 4 and 5, MPICH 3.1 and later, and the MPI 5 standard interface; name another library in \
                 HARRIER_MPI_LIBRARY"
                    .into(),
            ),
            MpiError::AbiMismatch { .. } => {
                Some("unset HARRIER_MPI_ABI, or name a library of that kind in HARRIER_MPI_LIBRARY".into())
            }
            MpiError::WorldMismatch { launched, world, .. } if world < launched => Some(
                "this MPI library does not belong to the launcher: name the launcher's own library in HARRIER_MPI_LIBRARY, or its \
                 kind in HARRIER_MPI_ABI; under Slurm choose with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH); if no launcher \
                 started this process, its variables were inherited: --alone or HARRIER_ALONE=1 does without them"
                    .into(),
            ),
            MpiError::WorldUnknown { .. } => Some(
                "name the launcher's own MPI library in HARRIER_MPI_LIBRARY, or its kind in HARRIER_MPI_ABI; for a single process \
                 give --alone or HARRIER_ALONE=1"
                    .into(),
            ),
            MpiError::NoProcessManager { .. } => Some(
                "start it with srun --mpi=pmix; for a statement of its own in each task give --alone or HARRIER_ALONE=1".into(),
            ),
            MpiError::Nested { .. } | MpiError::Inherited { .. } => {
                Some("give --alone or HARRIER_ALONE=1 to what a rank starts by itself".into())
            }
            MpiError::ThreadsUnsupported { .. } => Some("use an MPI library built with support for threads".into()),
            _ => None,
        }
    }

    /// Further information for a `DETAIL` line.
    pub fn detail(&self) -> Option<String> {
        match self {
            MpiError::LibraryNotFound { tried } if !tried.is_empty() => {
                Some(format!("tried: {}", tried.join("; ")))
            }
            MpiError::WorldMismatch { library, .. } | MpiError::WorldUnknown { library, .. } => {
                Some(format!("the library is \"{}\"", library.display()))
            }
            MpiError::Call { code, class, .. } => Some(format!("MPI error code {code} of class {class}")),
            _ => None,
        }
    }
}
