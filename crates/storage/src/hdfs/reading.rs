//! What comes from HDFS in pieces: the bytes of a file, which are read on where they broke off, and the names
//! below a folder.
//!
//! Errors: what a DataNode or a NameNode that is gone was asked for is asked for again with growing pauses,
//! within the limits; they begin anew with every piece. A file that has another time or size by then is
//! another file, and is not read on.

use std::ops::Range;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use hdfs_native::HdfsError;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, Result};

use super::{Again, Hdfs, explain, may_help, said, silent};
use crate::retry::Retry;

impl Hdfs {
    /// The bytes `range` of a file that was found with this mark, and of which `stream` is the beginning.
    pub(super) fn read_on(
        &self,
        location: &Path,
        range: Range<u64>,
        e_tag: Option<String>,
        stream: BoxStream<'static, Result<Bytes>>,
    ) -> BoxStream<'static, Result<Bytes>> {
        let reading = Reading {
            location: location.clone(),
            rest: range,
            e_tag,
            stream,
            retry: Retry::new(self.limits),
            store: self.clone(),
        };
        // Who collects an empty body asks once more after its end.
        futures::stream::unfold(reading, |mut reading| async move {
            reading.next().await.map(|piece| (piece, reading))
        })
        .fuse()
        .boxed()
    }

    /// Every file below a folder, in no order.
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

struct Reading {
    store: Hdfs,
    location: Path,
    /// What is still to come.
    rest: Range<u64>,
    e_tag: Option<String>,
    stream: BoxStream<'static, Result<Bytes>>,
    retry: Retry,
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        while !self.rest.is_empty() {
            let limit = self.store.limits.request;
            let error = match tokio::time::timeout(limit, self.stream.next()).await {
                Ok(Some(Ok(bytes))) if bytes.is_empty() => continue,
                Ok(Some(Ok(bytes))) => {
                    self.rest.start += bytes.len() as u64;
                    self.retry = Retry::new(self.store.limits);
                    return Some(Ok(bytes));
                }
                Ok(Some(Err(error))) => match said(error) {
                    Ok(error) => error,
                    Err(error) => return self.failed(error),
                },
                Ok(None) => HdfsError::DataTransferError("bytes are missing at the end".to_string()),
                Err(_) => HdfsError::IOError(silent(limit)),
            };
            let is_broken = matches!(error, HdfsError::IOError(_) | HdfsError::DataTransferError(_));
            let opened = match (is_broken || may_help(&error, Again::Fine)) && self.retry.wait().await {
                true => self.open().await,
                false => Ok(None),
            };
            match opened {
                Ok(Some(stream)) => self.stream = stream,
                Ok(None) => return self.failed(explain(&self.store.root, self.location.as_ref(), error)),
                Err(error) => return self.failed(error),
            }
        }
        None
    }

    /// The rest of the file; `None` if it is another one.
    async fn open(&mut self) -> Result<Option<BoxStream<'static, Result<Bytes>>>> {
        let (store, location, rest) = (self.store.clone(), self.location.clone(), self.rest.clone());
        let found = store
            .ask(&location, Again::Fine, || {
                let options = GetOptions::new().with_range(Some(rest.clone()));
                store.inner.get_opts(&location, options)
            })
            .await?;
        let is_same = found.meta.e_tag == self.e_tag && found.range == rest;
        Ok(is_same.then(|| found.into_stream()))
    }

    fn failed(&mut self, error: Error) -> Option<Result<Bytes>> {
        self.rest = 0..0;
        Some(Err(error))
    }
}

struct Listing {
    store: Hdfs,
    folder: Option<Path>,
    stream: BoxStream<'static, Result<ObjectMeta>>,
    /// What was told already would be told again.
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
                Ok(Some(Err(error))) => match said(error) {
                    Ok(error) => error,
                    Err(error) => return self.failed(error),
                },
                Err(_) => HdfsError::IOError(silent(limit)),
            };
            if self.is_begun || !may_help(&error, Again::Fine) || !self.retry.wait().await {
                let folder = self.folder.as_ref().map(Path::as_ref).unwrap_or_default();
                let error = explain(&self.store.root, folder, error);
                return self.failed(error);
            }
            self.stream = self.store.inner.list(self.folder.as_ref());
        }
    }

    fn failed(&mut self, error: Error) -> Option<Result<ObjectMeta>> {
        self.stream = futures::stream::empty().boxed();
        Some(Err(error))
    }
}
