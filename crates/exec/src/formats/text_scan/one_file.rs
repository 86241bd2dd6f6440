//! Stores for DataFusion's reader of CSV, which give it bytes that are not those of a file: of a part of it,
//! or what is compressed in it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    self, Attributes, CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::of_lines;
use crate::formats::compression;

/// Files that are only read, each as a whole.
pub(super) struct GivenFiles(Given);

enum Given {
    Whole { inner: Arc<dyn ObjectStore>, compression: FileCompressionType },
    One { file: ObjectMeta, bytes: Mutex<Option<BoxStream<'static, Result<Bytes>>>> },
}

impl GivenFiles {
    /// What is in the files of a store, without their compression.
    pub(super) fn whole(inner: Arc<dyn ObjectStore>, compression: FileCompressionType) -> Self {
        Self(Given::Whole { inner, compression })
    }

    /// One file, whatever its name, of which there are these bytes. It is read once.
    pub(super) fn one(file: ObjectMeta, bytes: BoxStream<'static, Result<Bytes>>) -> Self {
        Self(Given::One { file, bytes: Mutex::new(Some(bytes)) })
    }
}

impl fmt::Debug for GivenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GivenFiles").field(&self.to_string()).finish()
    }
}

impl fmt::Display for GivenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Given::Whole { inner, .. } => inner.fmt(f),
            Given::One { file, .. } => file.location.fmt(f),
        }
    }
}

fn found(file: ObjectMeta, bytes: BoxStream<'static, Result<Bytes>>) -> GetResult {
    let range = 0..file.size;
    let bytes = bytes.map_err(|error| match error {
        DataFusionError::ObjectStore(error) => *error,
        error => object_store::Error::Generic { store: "text", source: Box::new(error) },
    });
    let payload = GetResultPayload::Stream(bytes.boxed());
    GetResult { payload, meta: file, range, attributes: Attributes::default() }
}

/// What such a store has not.
fn only_read<T>(what: &str) -> object_store::Result<T> {
    let (operation, implementer) = (what.to_string(), "text".to_string());
    Err(object_store::Error::NotImplemented { operation, implementer })
}

#[async_trait]
impl ObjectStore for GivenFiles {
    async fn get_opts(&self, location: &Path, _: GetOptions) -> object_store::Result<GetResult> {
        match &self.0 {
            Given::Whole { inner, compression } => {
                let object = inner.get(location).await?;
                let file = object.meta.clone();
                let name = location.filename().unwrap_or_default();
                let bytes = compression::decompressed(compression::pieces(object), *compression, name);
                Ok(found(file, of_lines(bytes, name)))
            }
            Given::One { file, bytes } => match bytes.lock().take() {
                Some(bytes) => Ok(found(file.clone(), bytes)),
                None => only_read("a second get"),
            },
        }
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
        only_read("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        only_read("put")
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        futures::stream::iter([only_read("delete")]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        futures::stream::iter([only_read("list")]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        only_read("list")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        only_read("copy")
    }
}
