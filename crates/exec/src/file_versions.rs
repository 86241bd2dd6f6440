//! Pins files to the version that a statement listed. A file is read by several requests on several ranks;
//! replaced in between, it would return rows of both versions.
//!
//! ```text
//!   listing ─► version of each file ─► scan, on every rank ─► PinnedFiles ─► store
//!                                                               └─ every answer has this version, or 40001
//! ```
//!
//! A version is the object's e-tag, or its time and size if it has none.
//!
//! A local file may grow while it is read, as a log does: only the listed part is read.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    self, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload,
    OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, coalesce_ranges,
};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;

use crate::operators::file_scan::file_scan;
use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::FILE_REPLACED;

/// Wraps the store of a scan: each file is read in the version that the scan lists.
pub(crate) fn pin_scan(store: Arc<dyn ObjectStore>, scan: &FileScanConfig) -> Arc<dyn ObjectStore> {
    let url = scan.object_store_url.as_str();
    let is_local = url.starts_with("file:");
    let files = scan.file_groups.iter().flat_map(|group| group.files()).map(|file| &file.object_meta);
    let versions = files.map(|file| (file.location.clone(), file.clone())).collect();
    let prefix = if is_local { "/" } else { url }.to_string();
    Arc::new(PinnedFiles { inner: store, versions, is_local, prefix })
}

/// Wraps a store for reads before there is a scan (columns and statistics): files are read in the listed
/// version.
pub(crate) fn pin_objects(store: &Arc<dyn ObjectStore>, objects: &[ObjectMeta]) -> Arc<dyn ObjectStore> {
    // A store's display is its URL, except for the local disk's.
    let shown = store.to_string();
    let is_local = shown.starts_with("LocalFileSystem");
    let prefix = if is_local { "/".to_string() } else { format!("{shown}/") };
    let versions = objects.iter().map(|object| (object.location.clone(), object.clone())).collect();
    Arc::new(PinnedFiles { inner: Arc::clone(store), versions, is_local, prefix })
}

/// The e-tags of the files of a scan, in order, empty if missing; `None` if no file has one. Serialized plans
/// contain everything about files except these.
pub(crate) fn tags(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<String>> {
    let files = file_scan(plan)?.file_groups.iter().flat_map(|group| group.files());
    let tags: Vec<_> = files.map(|file| file.object_meta.e_tag.clone().unwrap_or_default()).collect();
    tags.iter().any(|tag| !tag.is_empty()).then_some(tags)
}

/// Adds the e-tags of [`tags`] to a plan.
pub(crate) fn with_tags(plan: Arc<dyn ExecutionPlan>, tags: Vec<String>) -> Arc<dyn ExecutionPlan> {
    let Some(scan) = file_scan(&plan) else { return plan };
    let mut scan = scan.clone();
    let mut tags = tags.into_iter();
    for group in &mut scan.file_groups {
        for at in 0..group.len() {
            group[at].object_meta.e_tag = tags.next().filter(|tag| !tag.is_empty());
        }
    }
    DataSourceExec::from_data_source(scan)
}

#[derive(Debug)]
struct PinnedFiles {
    inner: Arc<dyn ObjectStore>,
    versions: HashMap<Path, ObjectMeta>,
    is_local: bool,
    /// Prefix of file names in messages.
    prefix: String,
}

impl PinnedFiles {
    fn check(&self, found: &ObjectMeta) -> object_store::Result<()> {
        match self.versions.get(&found.location) {
            Some(named) if !is_version(named, found, self.is_local) => {
                Err(self.replaced_error(&found.location))
            }
            _ => Ok(()),
        }
    }

    fn replaced_error(&self, location: &Path) -> Error {
        let message = format!("file \"{}{location}\" {FILE_REPLACED}", self.prefix);
        let error = SqlError::new(SqlState::SERIALIZATION_FAILURE, message);
        Error::Generic { store: "files", source: Box::new(error.with_hint("run the statement again")) }
    }
}

/// Whether `found` is the version `named`.
fn is_version(named: &ObjectMeta, found: &ObjectMeta, is_local: bool) -> bool {
    // Gateways over file systems return empty tags for files put there by others.
    let tag = |object: &ObjectMeta| object.e_tag.clone().filter(|tag| !tag.trim_matches('"').is_empty());
    match (tag(named), tag(found)) {
        (Some(named_tag), Some(found_tag)) if is_local => {
            // Inode, time and size.
            let number = |tag: &str| tag.split('-').next().map(str::to_string);
            named_tag == found_tag || (number(&named_tag) == number(&found_tag) && found.size > named.size)
        }
        (Some(named), Some(found)) => named == found,
        // Listings have fractions of seconds that headers lack.
        _ => {
            let seconds = |object: &ObjectMeta| object.last_modified.timestamp();
            let is_known = seconds(named) != 0 && seconds(found) != 0;
            !is_known || (named.size == found.size && seconds(named) == seconds(found))
        }
    }
}

impl fmt::Display for PinnedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for PinnedFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let found = self.inner.get_opts(location, options).await?;
        self.check(&found.meta)?;
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        if !self.is_local {
            let read = |range| self.get_range(location, range);
            return coalesce_ranges(ranges, read, OBJECT_STORE_COALESCE_DEFAULT).await;
        }
        // The local store opens the file once for all ranges. If it is unchanged afterwards, it was the right
        // one.
        let read = self.inner.get_ranges(location, ranges).await;
        match self.inner.head(location).await {
            Ok(found) => self.check(&found)?,
            Err(error) => return read.and(Err(error)),
        }
        read
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use datafusion::datasource::listing::PartitionedFile;
    use datafusion::datasource::physical_plan::FileGroup;
    use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
    use datafusion::execution::TaskContext;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::object_store::local::LocalFileSystem;
    use datafusion::object_store::memory::InMemory;

    use super::*;
    use crate::transport::plan_codec;

    fn scan(url: &str, file: ObjectMeta) -> FileScanConfig {
        let source = Arc::new(ParquetSource::new(Arc::new(Schema::empty())));
        let file = PartitionedFile::new_from_meta(file);
        FileScanConfigBuilder::new(ObjectStoreUrl::parse(url).unwrap(), source).with_file(file).build()
    }

    #[test]
    fn versions_are_sent_to_ranks() {
        let file = |tag: Option<&str>| {
            let mut file = PartitionedFile::new("a.parquet", 4);
            file.object_meta.e_tag = tag.map(str::to_string);
            file
        };
        let source = Arc::new(ParquetSource::new(Arc::new(Schema::empty())));
        let scan = |files: Vec<PartitionedFile>| {
            let config =
                FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::clone(&source) as _)
                    .with_file_groups(vec![FileGroup::new(files.clone()), FileGroup::new(files)]);
            DataSourceExec::from_data_source(config.build()) as Arc<dyn ExecutionPlan>
        };
        let there = |plan: &Arc<dyn ExecutionPlan>| {
            plan_codec::decode(&plan_codec::encode(plan).unwrap(), &TaskContext::default()).unwrap()
        };
        let plan = scan(vec![file(Some("1")), file(None), file(Some("3"))]);
        assert_eq!(tags(&there(&plan)).unwrap(), ["1", "", "3", "1", "", "3"]);
        assert_eq!(tags(&there(&scan(vec![file(None)]))), None);
    }

    fn assert_replaced<T>(result: object_store::Result<T>) {
        let error = result.err().expect("it is another version");
        assert_eq!(harrier_sqlstate::of_object_store(&error).as_str(), "40001", "{error}");
    }

    /// As when columns and statistics are inferred, also for a truncated file.
    #[tokio::test]
    async fn columns_are_those_of_the_listed_object() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let location = Path::from("a.orc");
        store.put(&location, "123456".into()).await.unwrap();
        let listed = [store.head(&location).await.unwrap()];
        let pinned = pin_objects(&store, &listed);
        assert_eq!(pinned.get_range(&location, 4..6).await.unwrap(), "56");
        store.put(&location, "12".into()).await.unwrap();
        assert_replaced(pinned.get_range(&location, 0..2).await);
        assert_replaced(pinned.get(&location).await);
        // Files that were not listed are not pinned.
        let other = Path::from("b.orc");
        store.put(&other, "1".into()).await.unwrap();
        assert!(pinned.get(&other).await.is_ok());
    }

    #[tokio::test]
    async fn replaced_objects_are_not_read() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let location = Path::from("a.csv");
        store.put(&location, "1234".into()).await.unwrap();
        let listed = store.head(&location).await.unwrap();
        let pinned = pin_scan(Arc::clone(&store), &scan("s3://lake/", listed));
        assert_eq!(pinned.get_range(&location, 0..2).await.unwrap(), "12");
        store.put(&location, "5678".into()).await.unwrap();
        assert_replaced(pinned.get_range(&location, 2..4).await);
        assert_replaced(pinned.get_ranges(&location, &[0..1, 2..4]).await);
    }

    #[tokio::test]
    async fn a_file_of_a_disk_may_grow() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        let path = folder.path().join("a.csv");
        let location = Path::from_absolute_path(&path).unwrap();
        std::fs::write(&path, "1234").unwrap();
        let listed = store.head(&location).await.unwrap();
        let pinned = pin_scan(Arc::clone(&store), &scan("file:///", listed));
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"56"))
            .unwrap();
        assert_eq!(pinned.get_range(&location, 0..2).await.unwrap(), "12");
        assert_eq!(pinned.get_ranges(&location, &[0..1, 3..4]).await.unwrap(), ["1", "4"]);
        std::fs::write(&path, "123").unwrap();
        assert_replaced(pinned.get_range(&location, 0..2).await);
        let other = folder.path().join("b.csv");
        std::fs::write(&other, "1234567").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_replaced(pinned.get_range(&location, 0..2).await);
        assert_replaced(pinned.get_ranges(&location, &[0..1]).await);
        std::fs::remove_file(&path).unwrap();
        let gone = pinned.get_ranges(&location, &[0..1]).await;
        assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    }
}
