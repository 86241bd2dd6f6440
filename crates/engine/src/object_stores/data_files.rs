//! A store wrapper whose listings contain data files only. Skipped are files and folders whose names begin
//! with `.` or `_`, which other programs also hide (`_SUCCESS`, `_temporary/`, `.part-0.parquet.crc`), and
//! the empty marker objects of folders.
//!
//! A hidden file or folder that is named explicitly is read: only names below the listed folder count as
//! hidden. A table partition's folder is data whatever its key begins with (`_key=1/`).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::object_stores::listing_cache;

/// Suffix of the marker object that Hadoop's S3 file systems create for an empty folder.
pub(crate) const FOLDER_MARKER: &str = "_$folder$";

/// Whether a file or folder of this name is hidden within a listed folder.
pub(crate) fn is_hidden(name: &str, is_folder: bool) -> bool {
    name.starts_with(['.', '_']) && !(is_folder && name.contains('='))
}

/// A store whose listings contain data files only. [`ObjectStore::list_with_offset`] lists everything.
#[derive(Debug)]
pub(crate) struct DataFiles {
    inner: Arc<dyn ObjectStore>,
    /// The store's number in the listing cache; `None` for stores that are not cached.
    cache_id: Option<usize>,
}

impl DataFiles {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, cache_id: None }
    }

    /// The same for a remote store, whose listings are cached while a statement is planned.
    pub(crate) fn with_cache(inner: Arc<dyn ObjectStore>) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        Self { inner, cache_id: Some(COUNT.fetch_add(1, Ordering::Relaxed)) }
    }
}

/// Lists everything below a folder of a store, data or not.
pub(crate) fn list_all(store: &dyn ObjectStore, folder: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
    store.list_with_offset(Some(folder), folder)
}

/// Whether an object below the folder `prefix` is data.
fn is_data(object: &ObjectMeta, prefix: Option<&Path>) -> bool {
    let key = object.location.as_ref();
    let below = prefix.and_then(|prefix| key.strip_prefix(prefix.as_ref())).unwrap_or(key);
    let below = below.trim_start_matches('/');
    if below.is_empty() {
        return object.size > 0;
    }
    let (folders, name) = below.rsplit_once('/').unwrap_or(("", below));
    let is_marker =
        object.size == 0 && (name.contains('=') || !name.contains('.') || name.ends_with(FOLDER_MARKER));
    !is_marker && !is_hidden(name, false) && !folders.split('/').any(|folder| is_hidden(folder, true))
}

impl fmt::Display for DataFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for DataFiles {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head && options.version.is_none() && options.if_match.is_none();
        let Some(store) = self.cache_id.filter(|_| is_head && options.if_none_match.is_none()) else {
            return self.inner.get_opts(location, options).await;
        };
        if let Some(cached) = listing_cache::get_file(store, location) {
            return Ok(cached);
        }
        let result = self.inner.get_opts(location, options).await?;
        listing_cache::put_file(store, location, &result);
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let below = prefix.cloned();
        let data = move |object: &ObjectMeta| futures::future::ready(is_data(object, below.as_ref()));
        let list = || self.inner.list(prefix).try_filter(data).boxed();
        match self.cache_id {
            Some(store) => listing_cache::list_folder(store, prefix, list),
            None => list(),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        listing_cache::count_listing();
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        listing_cache::count_listing();
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found.objects.retain(|object| is_data(object, prefix));
        found.common_prefixes.retain(|folder| !folder.filename().is_some_and(|name| is_hidden(name, true)));
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use datafusion::object_store::ObjectStoreExt;
    use datafusion::object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn listings_have_data_only() {
        let inner = Arc::new(InMemory::new());
        let objects = [
            ("t/a.csv", "1"),
            ("t/empty.csv", ""),
            ("t/_b.csv", "1"),
            ("t/.c.csv.crc", "1"),
            ("t/_SUCCESS", ""),
            ("t/_temporary/0/d.csv", "1"),
            ("t/.sparkStaging/e.csv", "1"),
            ("t/_key=1/f.csv", "1"),
            ("t/_key=2.5", ""),
            ("t/_key=3_$folder$", ""),
            ("t/sub", ""),
            ("t/sub/_g=h.csv", "1"),
            ("t/sub/i.csv", "1"),
            ("t", ""),
        ];
        for (key, bytes) in objects {
            inner.put(&Path::from(key), bytes.into()).await.unwrap();
        }
        let store = DataFiles::new(inner);
        let names = |found: Vec<ObjectMeta>| {
            let mut names: Vec<String> = found.iter().map(|object| object.location.to_string()).collect();
            names.sort();
            names
        };
        let listed = |folder: &str| {
            let found = store.list(Some(&Path::from(folder))).try_collect::<Vec<_>>();
            async move { names(found.await.unwrap()) }
        };
        assert_eq!(listed("t").await, ["t/_key=1/f.csv", "t/a.csv", "t/empty.csv", "t/sub/i.csv"]);
        // The folder is named explicitly.
        assert_eq!(listed("t/_temporary").await, ["t/_temporary/0/d.csv"]);
        let level = store.list_with_delimiter(Some(&Path::from("t"))).await.unwrap();
        assert_eq!(names(level.objects), ["t/a.csv", "t/empty.csv"]);
        let folders: Vec<String> = level.common_prefixes.iter().map(Path::to_string).collect();
        assert_eq!(folders, ["t/_key=1", "t/sub"]);
        let all: Vec<_> = list_all(&store, &Path::from("t")).try_collect().await.unwrap();
        assert_eq!(all.len(), objects.len() - 1);
    }
}
