//! Decompression of files with one or several members.
//!
//! Parallel compressors and `cat` create files of several members. DataFusion's streams stop after the first
//! member, except for gzip, and do not detect truncation. Its blocking decoders handle both: they run on a
//! thread of their own, which ends when the stream is dropped.
//!
//! Memory bound: a few pieces of the file and of the output, each at most [`PIECE_BYTES`] or as the store
//! delivers them.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::object_store::{GetResult, GetResultPayload};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

/// Bytes read from a file, or decompressed, at once.
const PIECE_BYTES: usize = 1 << 20;
/// Queue capacity on either side, in pieces.
const QUEUE: usize = 4;

/// The compression of a file by its name.
pub fn of_name(name: &str) -> FileCompressionType {
    match name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).as_deref() {
        Some("gz") => FileCompressionType::GZIP,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        Some("zst") => FileCompressionType::ZSTD,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

/// The bytes of an object, or of the requested range.
pub fn pieces(object: GetResult) -> BoxStream<'static, Result<Bytes>> {
    let range = object.range.clone();
    match object.payload {
        GetResultPayload::Stream(pieces) => pieces.map_err(DataFusionError::from).boxed(),
        GetResultPayload::File(mut file, _) => {
            let (sender, receiver) = mpsc::channel(QUEUE);
            let reading = SpawnedTask::spawn_blocking(move || {
                let mut rest = range.end - range.start;
                let sought = file.seek(SeekFrom::Start(range.start));
                let mut failed = sought.err();
                while failed.is_none() && rest > 0 {
                    let mut piece = BytesMut::zeroed(rest.min(PIECE_BYTES as u64) as usize);
                    let read = match read_some(&mut file, &mut piece) {
                        Ok(0) => break,
                        Ok(read) => read,
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    };
                    piece.truncate(read);
                    rest -= read as u64;
                    if sender.blocking_send(Ok(piece.freeze())).is_err() {
                        return;
                    }
                }
                if let Some(error) = failed {
                    drop(sender.blocking_send(Err(DataFusionError::IoError(error))));
                }
            });
            receiver_stream(receiver, reading, |error| DataFusionError::ExecutionJoin(Box::new(error)))
        }
    }
}

/// Decompresses `input`, the file `name`.
///
/// Errors: those of `input`; the file is damaged or truncated (XX001).
pub fn decompress(
    input: BoxStream<'static, Result<Bytes>>,
    compression: FileCompressionType,
    name: &str,
) -> BoxStream<'static, Result<Bytes>> {
    if !compression.is_compressed() {
        return input;
    }
    let (sender, compressed) = mpsc::channel(QUEUE);
    let feeding = SpawnedTask::spawn(async move {
        let mut input = input;
        while let Some(piece) = input.next().await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    });
    let (output, receiver) = mpsc::channel(QUEUE);
    let name = name.to_string();
    let of_file = name.clone();
    let decoding = SpawnedTask::spawn_blocking(move || {
        let failure = Arc::new(Mutex::new(None));
        let input = Pieces { pieces: compressed, present: Bytes::new(), failure: Arc::clone(&failure) };
        if let Err(error) = decode(input, compression, &output) {
            let error = failure.lock().take().unwrap_or_else(|| damaged_error(&name, &error.to_string()));
            drop(output.blocking_send(Err(error)));
        }
    });
    let pieces =
        receiver_stream(receiver, decoding, move |error| damaged_error(&of_file, &error.to_string()));
    // Keeps the feeding task alive.
    pieces.map(move |piece| (piece, &feeding).0).boxed()
}

fn decode(
    input: Pieces,
    compression: FileCompressionType,
    output: &mpsc::Sender<Result<Bytes>>,
) -> io::Result<()> {
    let mut decoder = compression.convert_read(input).map_err(io::Error::other)?;
    loop {
        let mut piece = BytesMut::zeroed(PIECE_BYTES);
        let read = read_some(&mut decoder, &mut piece)?;
        piece.truncate(read);
        // The receiver is gone, or the input has ended.
        if read == 0 || output.blocking_send(Ok(piece.freeze())).is_err() {
            return Ok(());
        }
    }
}

/// Fills `piece` as far as possible; 0 at the end.
fn read_some(input: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match input.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Return the bytes read before; the error repeats, as a decoder does not continue after it.
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Yields the pieces of a task, and its error if it ends early.
fn receiver_stream(
    receiver: mpsc::Receiver<Result<Bytes>>,
    task: SpawnedTask<()>,
    explain: impl FnOnce(tokio::task::JoinError) -> DataFusionError + Send + 'static,
) -> BoxStream<'static, Result<Bytes>> {
    let state = (receiver, Some((task, explain)));
    futures::stream::unfold(state, |(mut receiver, mut ending)| async move {
        if let Some(piece) = receiver.recv().await {
            return Some((piece, (receiver, ending)));
        }
        let (task, explain) = ending.take()?;
        let error = task.join().await.err()?;
        Some((Err(explain(error)), (receiver, None)))
    })
    .boxed()
}

fn damaged_error(name: &str, why: &str) -> DataFusionError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("compressed file \"{name}\" is damaged"))
        .with_detail(why)
        .into_datafusion()
}

/// Received pieces as a blocking reader. Input errors are stored separately, as they are not the decoder's.
struct Pieces {
    pieces: mpsc::Receiver<Result<Bytes>>,
    present: Bytes,
    failure: Arc<Mutex<Option<DataFusionError>>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.present.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => self.present = piece,
                Some(Err(error)) => {
                    *self.failure.lock() = Some(error);
                    return Err(io::Error::other("the file cannot be read"));
                }
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.present.len());
        buffer[..length].copy_from_slice(&self.present.split_to(length));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [FileCompressionType; 4] = [
        FileCompressionType::GZIP,
        FileCompressionType::BZIP2,
        FileCompressionType::XZ,
        FileCompressionType::ZSTD,
    ];

    async fn member(text: &'static str, kind: FileCompressionType) -> Vec<u8> {
        let text = futures::stream::iter([Ok(Bytes::from_static(text.as_bytes()))]).boxed();
        let pieces: Vec<Bytes> = kind.convert_to_compress_stream(text).unwrap().try_collect().await.unwrap();
        pieces.concat()
    }

    async fn read(file: &[u8], kind: FileCompressionType) -> Result<String> {
        let pieces: Vec<Result<Bytes>> =
            file.chunks(3).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let pieces = decompress(futures::stream::iter(pieces).boxed(), kind, "f");
        let pieces: Vec<Bytes> = pieces.try_collect().await?;
        Ok(String::from_utf8(pieces.concat()).unwrap())
    }

    #[tokio::test]
    async fn all_members_are_read() {
        for kind in KINDS {
            let file = [member("1,a\n2", kind).await, member(",b\n", kind).await].concat();
            assert_eq!(read(&file, kind).await.unwrap(), "1,a\n2,b\n", "{kind:?}");
        }
    }

    #[tokio::test]
    async fn truncated_files_are_corrupt() {
        for kind in KINDS {
            let whole = member("1,a\n2,b\n3,c\n", kind).await;
            let error = read(&whole[..whole.len() - 3], kind).await.unwrap_err();
            assert_eq!(harrier_sqlstate::of(&error), SqlState::DATA_CORRUPTED, "{kind:?}: {error}");
        }
    }

    #[tokio::test]
    async fn file_errors_keep_their_kind() {
        let denied = || DataFusionError::IoError(io::Error::from(io::ErrorKind::PermissionDenied));
        let input = futures::stream::iter([Err(denied())]).boxed();
        let read: Result<Vec<Bytes>> = decompress(input, FileCompressionType::GZIP, "f").try_collect().await;
        let state = harrier_sqlstate::of(&read.unwrap_err());
        assert_eq!(state, SqlState::INSUFFICIENT_PRIVILEGE);
    }
}
