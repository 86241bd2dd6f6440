//! Object stores that feed DataFusion's CSV reader: a part of a file, or its decompressed content.

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

use super::limit_line_length;
use crate::formats::compression;

/// A read-only store of whole files.
pub(super) struct InputFiles(Input);

enum Input {
    Whole { inner: Arc<dyn ObjectStore>, compression: FileCompressionType },
    One { file: ObjectMeta, bytes: Mutex<Option<BoxStream<'static, Result<Bytes>>>> },
}

impl InputFiles {
    /// Decompresses the files of a store.
    pub(super) fn decompressing(inner: Arc<dyn ObjectStore>, compression: FileCompressionType) -> Self {
        Self(Input::Whole { inner, compression })
    }

    /// A single file with this content, under any name. It can be read once.
    pub(super) fn single(file: ObjectMeta, bytes: BoxStream<'static, Result<Bytes>>) -> Self {
        Self(Input::One { file, bytes: Mutex::new(Some(bytes)) })
    }
}

impl fmt::Debug for InputFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GivenFiles").field(&self.to_string()).finish()
    }
}

impl fmt::Display for InputFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Input::Whole { inner, .. } => inner.fmt(f),
            Input::One { file, .. } => file.location.fmt(f),
        }
    }
}

fn get_result(file: ObjectMeta, bytes: BoxStream<'static, Result<Bytes>>) -> GetResult {
    let range = 0..file.size;
    let bytes = bytes.map_err(|error| match error {
        DataFusionError::ObjectStore(error) => *error,
        error => object_store::Error::Generic { store: "text", source: Box::new(error) },
    });
    let payload = GetResultPayload::Stream(bytes.boxed());
    GetResult { payload, meta: file, range, attributes: Attributes::default() }
}

/// The error of an unsupported operation.
fn read_only_error<T>(what: &str) -> object_store::Result<T> {
    let (operation, implementer) = (what.to_string(), "text".to_string());
    Err(object_store::Error::NotImplemented { operation, implementer })
}

#[async_trait]
impl ObjectStore for InputFiles {
    async fn get_opts(&self, location: &Path, _: GetOptions) -> object_store::Result<GetResult> {
        match &self.0 {
            Input::Whole { inner, compression } => {
                let object = inner.get(location).await?;
                let file = object.meta.clone();
                let name = location.filename().unwrap_or_default();
                let bytes = compression::decompress(compression::pieces(object), *compression, name);
                Ok(get_result(file, limit_line_length(bytes, name)))
            }
            Input::One { file, bytes } => match bytes.lock().take() {
                Some(bytes) => Ok(get_result(file.clone(), bytes)),
                None => read_only_error("a second get"),
            },
        }
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> object_store::Result<PutResult> {
        read_only_error("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        read_only_error("put")
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        futures::stream::iter([read_only_error("delete")]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        futures::stream::iter([read_only_error("list")]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        read_only_error("list")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        read_only_error("copy")
    }
}
