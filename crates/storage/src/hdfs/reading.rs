//! Resumable streams from HDFS: the bytes of a file, and the listing of a folder.
//!
//! Errors: requests to an unavailable DataNode or NameNode are retried with exponential backoff within the
//! limits; progress resets the backoff. A file whose time or size has changed is another file, and is not
//! resumed.

use std::ops::Range;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use hdfs_native::HdfsError;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, Result};

use super::{Hdfs, Idempotence, explain, hdfs_error, is_retriable, timeout_error};
use crate::retry::Retry;

impl Hdfs {
    /// Streams the bytes `range` of a file with this e-tag, resuming where `stream`, its beginning, breaks
    /// off.
    pub(super) fn read_on(
        &self,
        location: &Path,
        range: Range<u64>,
        e_tag: Option<String>,
        stream: BoxStream<'static, Result<Bytes>>,
    ) -> BoxStream<'static, Result<Bytes>> {
        let reading = ResumableRead {
            location: location.clone(),
            remaining: range,
            e_tag,
            stream,
            retry: Retry::new(self.limits),
            store: self.clone(),
        };
        // Collecting an empty body polls once more after the end.
        futures::stream::unfold(reading, |mut reading| async move {
            reading.next().await.map(|piece| (piece, reading))
        })
        .fuse()
        .boxed()
    }

    /// Lists every file below a folder, unordered.
    pub(super) fn files_below(&self, folder: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listing = Listing {
            folder: folder.cloned(),
            stream: self.inner.list(folder),
            is_begun: false,
            retry: Retry::new(self.limits),
            store: self.clone(),
        };
        futures::stream::unfold(listing, |mut listing| async move {
            listing.next().await.map(|file| (file, listing))
        })
        .fuse()
        .boxed()
    }
}

struct ResumableRead {
    store: Hdfs,
    location: Path,
    /// The remaining range.
    remaining: Range<u64>,
    e_tag: Option<String>,
    stream: BoxStream<'static, Result<Bytes>>,
    retry: Retry,
}

impl ResumableRead {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        while !self.remaining.is_empty() {
            let limit = self.store.limits.request;
            let error = match tokio::time::timeout(limit, self.stream.next()).await {
                Ok(Some(Ok(bytes))) if bytes.is_empty() => continue,
                Ok(Some(Ok(bytes))) => {
                    self.remaining.start += bytes.len() as u64;
                    self.retry = Retry::new(self.store.limits);
                    return Some(Ok(bytes));
                }
                Ok(Some(Err(error))) => match hdfs_error(error) {
                    Ok(error) => error,
                    Err(error) => return self.fail(error),
                },
                Ok(None) => HdfsError::DataTransferError("bytes are missing at the end".to_string()),
                Err(_) => HdfsError::IOError(timeout_error(limit)),
            };
            let is_broken = matches!(error, HdfsError::IOError(_) | HdfsError::DataTransferError(_));
            let opened = match (is_broken || is_retriable(&error, Idempotence::Idempotent))
                && self.retry.wait().await
            {
                true => self.open().await,
                false => Ok(None),
            };
            match opened {
                Ok(Some(stream)) => self.stream = stream,
                Ok(None) => return self.fail(explain(&self.store.root, self.location.as_ref(), error)),
                Err(error) => return self.fail(error),
            }
        }
        None
    }

    /// Opens the rest of the file; `None` if it is another file.
    async fn open(&mut self) -> Result<Option<BoxStream<'static, Result<Bytes>>>> {
        let (store, location, rest) = (self.store.clone(), self.location.clone(), self.remaining.clone());
        let found = store
            .call_store(&location, Idempotence::Idempotent, || {
                let options = GetOptions::new().with_range(Some(rest.clone()));
                store.inner.get_opts(&location, options)
            })
            .await?;
        let is_same = found.meta.e_tag == self.e_tag && found.range == rest;
        Ok(is_same.then(|| found.into_stream()))
    }

    fn fail(&mut self, error: Error) -> Option<Result<Bytes>> {
        self.remaining = 0..0;
        Some(Err(error))
    }
}

struct Listing {
    store: Hdfs,
    folder: Option<Path>,
    stream: BoxStream<'static, Result<ObjectMeta>>,
    /// Entries were returned: a restart would repeat them.
    is_begun: bool,
    retry: Retry,
}

impl Listing {
    async fn next(&mut self) -> Option<Result<ObjectMeta>> {
        loop {
            let limit = self.store.limits.request;
            let error = match tokio::time::timeout(limit, self.stream.next()).await {
                Ok(None) => return None,
                Ok(Some(Ok(file))) => {
                    self.is_begun = true;
                    return Some(Ok(file));
                }
                Ok(Some(Err(error))) => match hdfs_error(error) {
                    Ok(error) => error,
                    Err(error) => return self.fail(error),
                },
                Err(_) => HdfsError::IOError(timeout_error(limit)),
            };
            if self.is_begun || !is_retriable(&error, Idempotence::Idempotent) || !self.retry.wait().await {
                let folder = self.folder.as_ref().map(Path::as_ref).unwrap_or_default();
                let error = explain(&self.store.root, folder, error);
                return self.fail(error);
            }
            self.stream = self.store.inner.list(self.folder.as_ref());
        }
    }

    fn fail(&mut self, error: Error) -> Option<Result<ObjectMeta>> {
        self.stream = futures::stream::empty().boxed();
        Some(Err(error))
    }
}
