//! Errors of the generator. The call fails; files already finished stay.

use std::io;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::{Benchmark, SCALE_MAX, SCALE_MIN};

/// Error of a generator run. Only [`Error::Busy`] and [`Error::Stopped`] are transient and worth retrying.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scale is out of range. Nothing was changed.
    #[error("scale {scale} is out of range")]
    Scale { scale: f64 },
    /// The number of parts is out of range. Nothing was changed.
    #[error("number of parts is out of range")]
    Parts,
    /// The benchmark has no table of this name. Nothing was changed.
    #[error("{} has no table \"{table}\"", .benchmark.name())]
    NoTable { benchmark: Benchmark, table: String },
    /// Another call, in this process or another, holds the folder's lock. Nothing was changed.
    #[error("another process is generating into folder \"{}\"", .folder.display())]
    Busy { folder: PathBuf },
    /// A table's folder has a file that was not generated. The folder is not touched.
    #[error("folder \"{}\" has other files", .folder.display())]
    ForeignFile { folder: PathBuf, file: String },
    /// A table's folder has data of other parameters. The folder is not touched. `present` and `wanted`:
    /// JSON, as recorded beside the files; `present` is `None` if the record is missing.
    #[error("folder \"{}\" has other data", .folder.display())]
    OtherData { folder: PathBuf, present: Option<String>, wanted: String },
    /// [`crate::Progress::is_stopped`] returned true.
    #[error("canceling generation due to user request")]
    Stopped,
    /// An I/O error. `action`: the failed operation, as in `create file`.
    #[error("could not {action} \"{}\": {}", .path.display(), reason(.source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// The rows of a file could not be generated or encoded.
    #[error("could not write file \"{}\": {source}", .path.display())]
    Write { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Any error while a file is written.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The text of an I/O error, without its number.
fn reason(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    text
}

impl Error {
    /// Returns further facts as a sentence.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Scale { .. } => Some(format!("A scale is between {SCALE_MIN} and {SCALE_MAX}.")),
            Self::Parts => Some("A table has at least one part.".to_owned()),
            Self::ForeignFile { file, .. } => Some(format!("File \"{file}\" was not generated.")),
            Self::OtherData { present: Some(present), wanted, .. } => {
                Some(format!("It was generated as {present}; wanted is {wanted}."))
            }
            _ => None,
        }
    }

    /// Returns a remedy as a sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoTable { benchmark, .. } => {
                let names: Vec<&str> = benchmark.tables().iter().map(|table| table.name).collect();
                Some(format!("Its tables are {}.", names.join(", ")))
            }
            Self::OtherData { .. } => Some("Name another folder, or have the data made again.".to_owned()),
            Self::Stopped => Some("What is finished stays; the same command goes on from there.".to_owned()),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// Builds the error for the file at `path`, unwrapped from the errors of the libraries it passed through.
    pub(crate) fn of_writing(path: &Path, failure: Failure) -> Self {
        let failure = match failure.downcast::<Self>() {
            Ok(error) => return *error,
            Err(failure) => failure,
        };
        let failure = match failure.downcast::<io::Error>() {
            Ok(error) if error.get_ref().is_some() => {
                return Self::of_writing(path, error.into_inner().expect("it was just seen"));
            }
            Ok(error) => return Self::io("write file", path, *error),
            Err(failure) => failure,
        };
        let failure: Failure = match failure.downcast::<ParquetError>().map(|error| *error) {
            Ok(ParquetError::External(inner)) => return Self::of_writing(path, inner),
            Ok(error) => Box::new(error),
            Err(failure) => failure,
        };
        match failure.downcast::<ArrowError>().map(|error| *error) {
            Ok(ArrowError::IoError(_, inner)) => Self::of_writing(path, Box::new(inner)),
            Ok(ArrowError::ExternalError(inner)) => Self::of_writing(path, inner),
            Ok(error) => Self::Write { path: path.to_owned(), source: Box::new(error) },
            Err(source) => Self::Write { path: path.to_owned(), source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_causes_of_errors_are_found() {
        let check = |failure: Failure, message: &str| {
            let error = Error::of_writing(Path::new("a"), failure);
            assert_eq!(error.to_string(), message);
        };
        let full = || io::Error::from_raw_os_error(28);
        let disk = "could not write file \"a\": No space left on device";
        check(Box::new(full()), disk);
        check(Box::new(io::Error::other(full())), disk);
        check(Box::new(ParquetError::External(Box::new(full()))), disk);
        check(Box::new(ArrowError::IoError("it failed".to_owned(), full())), disk);
        check(Box::new(ArrowError::ExternalError(Box::new(full()))), disk);
        check(Box::new(io::Error::other(Error::Stopped)), "canceling generation due to user request");
        check(Box::new(ParquetError::EOF("x".to_owned())), "could not write file \"a\": EOF: x");
        check(io::Error::other("x").into(), "could not write file \"a\": x");
    }
}
