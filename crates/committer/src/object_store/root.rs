//! A table's folder, and its control folder with the lock, journals and staged files.
//!
//! For the table `t` that is `.harrier-t`, or `.harrier` in it if the table is the whole store:
//!
//! | name | content |
//! |---|---|
//! | `lock-N` | the lock is the file of the highest number; held if that is odd |
//! | `owner-ID` | heartbeat of a writing statement, rewritten while it lives |
//! | `journal-N` | committed and uncompleted actions of the holder of `lock-N`; empty: it is fenced off |
//! | `ID/…` | staged files of a statement |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use harrier_storage::{Options, Staging};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use url::Url;

use crate::object_store::{At, Error, Result};

const BESIDE: &str = ".harrier";
pub(crate) const LOCK: &str = "lock-";
const OWNER: &str = "owner-";
const JOURNAL: &str = "journal-";
const UNFINISHED: &str = ".unfinished";

/// A table's folder.
#[derive(Debug, Clone)]
pub struct Root {
    pub(crate) staging: Arc<dyn Staging>,
    pub(crate) table: Path,
    control: Path,
}

/// A listing of the control folder.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub locks: BTreeMap<u64, ObjectMeta>,
    pub owners: BTreeMap<String, ObjectMeta>,
    /// Lock numbers.
    pub journals: BTreeSet<u64>,
    /// Empty journals.
    pub voids: Vec<ObjectMeta>,
    pub statements: BTreeSet<String>,
    /// Files that their writers have not renamed yet.
    pub unfinished: Vec<ObjectMeta>,
}

impl Control {
    pub(crate) fn top(&self) -> Option<(u64, &ObjectMeta)> {
        self.locks.last_key_value().map(|(number, meta)| (*number, meta))
    }

    /// Whether a file is younger than `age` by the store's clock; the caller has just written one.
    pub(crate) fn is_young(&self, file: &ObjectMeta, age: Duration) -> bool {
        let all = self.locks.values().chain(self.owners.values()).chain(&self.unfinished);
        let now = all.map(|file| file.last_modified).max().unwrap_or(file.last_modified);
        // A file newer than all of these is as young as possible.
        (now - file.last_modified).to_std().is_ok_and(|passed| passed < age) || now < file.last_modified
    }
}

impl Root {
    /// Opens the table in the folder `table` of the store of `url`; `None` for an unknown kind of store.
    ///
    /// Errors: the options of the store are incomplete or wrong.
    pub fn open(url: &Url, table: &Path, options: &Options) -> Result<Option<Self>> {
        let staging = harrier_storage::open_staging(url, options).at("open", table)?;
        Ok(staging.map(|staging| Self::of(staging, table)))
    }

    fn of(staging: Arc<dyn Staging>, table: &Path) -> Self {
        let text = table.as_ref();
        let control = match (text.rsplit_once('/'), text) {
            (_, "") => BESIDE.to_string(),
            (None, name) => format!("{BESIDE}-{name}"),
            (Some((above, name)), _) => format!("{above}/{BESIDE}-{name}"),
        };
        let control = Path::parse(control).expect("a part of a path is one");
        Self { staging, table: table.clone(), control }
    }

    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        self.staging.store()
    }

    /// A path in the control folder.
    fn beside(&self, name: &str) -> Path {
        child(&self.control, name)
    }

    pub(crate) fn lock_path(&self, number: u64) -> Path {
        self.beside(&format!("{LOCK}{number:020}"))
    }

    pub(crate) fn owner_path(&self, id: &str) -> Path {
        self.beside(&format!("{OWNER}{id}"))
    }

    pub(crate) fn journal_path(&self, number: u64) -> Path {
        self.beside(&format!("{JOURNAL}{number:020}"))
    }

    /// The staging folder of a statement.
    pub(crate) fn statement_path(&self, id: &str) -> Path {
        self.beside(id)
    }

    /// The folder of a table partition, or the table's for `""`.
    pub(crate) fn folder(&self, folder: &str) -> Path {
        match folder.trim_end_matches('/') {
            "" => self.table.clone(),
            folder => child(&self.table, folder),
        }
    }

    /// Lists the control folder.
    pub(crate) async fn control(&self) -> Result<Control> {
        let mut control = Control::default();
        let found = match self.store().list_with_delimiter(Some(&self.control)).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(control),
            Err(error) => return Err(error).at("list", &self.control),
        };
        let folders = found.common_prefixes.iter().filter_map(|folder| folder.filename());
        control.statements = folders.map(str::to_string).collect();
        for file in found.objects {
            let name = file.location.filename().unwrap_or_default();
            if name.ends_with(UNFINISHED) {
                control.unfinished.push(file);
            } else if let Some(number) = name.strip_prefix(LOCK).and_then(|number| number.parse().ok()) {
                control.locks.insert(number, file);
            } else if let Some(id) = name.strip_prefix(OWNER).map(str::to_string) {
                control.owners.insert(id, file);
            } else if let Some(number) = name.strip_prefix(JOURNAL).and_then(|number| number.parse().ok()) {
                match file.size {
                    0 => control.voids.push(file),
                    _ => drop(control.journals.insert(number)),
                }
            }
        }
        Ok(control)
    }

    /// Lists the visible files of the table.
    pub async fn list_table(&self) -> Result<Vec<ObjectMeta>> {
        self.list(&self.table).await
    }

    /// The names of the subfolders of one below the table's: `""`, or `k=v/…`.
    pub async fn folders_in(&self, folder: &str) -> Result<Vec<String>> {
        let folder = self.folder(folder);
        let found = match self.store().list_with_delimiter(Some(&folder)).await {
            Ok(found) => found.common_prefixes,
            Err(StoreError::NotFound { .. }) => vec![],
            Err(error) => return Err(error).at("list", &folder),
        };
        Ok(found.iter().filter_map(|folder| folder.filename().map(str::to_string)).collect())
    }

    /// Lists the visible files in a folder and below it.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        let found: Result<Vec<ObjectMeta>, StoreError> = self.store().list(Some(folder)).try_collect().await;
        let mut found = match found {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => vec![],
            Err(error) => return Err(error).at("list", folder),
        };
        found.retain(|file| {
            // A folder may have an object of its own, under its own name.
            let below = file.location.prefix_match(folder).map(|mut parts| {
                let mut named = false;
                let is_seen = parts.all(|part| {
                    named = true;
                    !part.as_ref().starts_with(['.', '_'])
                });
                named && is_seen
            });
            below.unwrap_or(false)
        });
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }

    /// Checks that a put-if-absent fails where there is an object.
    ///
    /// Errors: it does not (`NoConditions`).
    pub(crate) async fn check_conditions(&self, id: &str) -> Result<()> {
        let probe = self.beside(&format!("{id}{UNFINISHED}"));
        let none = || Error::NoConditions { path: self.table.to_string() };
        let put = || self.store().put_opts(&probe, PutPayload::from_static(b"probe"), PutMode::Create.into());
        let (first, second) = (put().await, put().await);
        let removed = self.store().delete(&probe).await;
        match (first, second) {
            (Ok(_), Err(StoreError::AlreadyExists { .. })) => removed.at("write to", &probe),
            (Ok(_), Ok(_)) | (Err(StoreError::NotImplemented { .. }), _) => Err(none()),
            (Err(StoreError::Generic { source, .. }), _) if source.to_string().contains("NotImplemented") => {
                Err(none())
            }
            (Err(error), _) | (_, Err(error)) => Err(error).at("write to", &probe),
        }
    }
}

/// A path below another one, without escaping.
pub(crate) fn child(folder: &Path, name: &str) -> Path {
    let text = match folder.as_ref() {
        "" => name.to_string(),
        folder => format!("{folder}/{name}"),
    };
    Path::parse(&text).unwrap_or_else(|_| folder.clone().join(name))
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use bytes::Bytes;
    use futures::stream::BoxStream;
    use harrier_storage::{PublishOutcome, Staged, StagedWriter};
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions, PutOptions,
        PutResult,
    };

    use super::*;
    use crate::object_store::lock::Lock;

    /// A store that ignores conditions, if it is careless.
    #[derive(Debug)]
    struct Store {
        inner: InMemory,
        careless: bool,
    }

    impl fmt::Display for Store {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.inner.fmt(f)
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Store {
        async fn put_opts(
            &self,
            location: &Path,
            payload: PutPayload,
            mut options: PutOptions,
        ) -> object_store::Result<PutResult> {
            if self.careless {
                options.mode = PutMode::Overwrite;
            }
            self.inner.put_opts(location, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            options: PutMultipartOptions,
        ) -> object_store::Result<Box<dyn MultipartUpload>> {
            self.inner.put_multipart_opts(location, options).await
        }

        async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
            self.inner.get_opts(location, options).await
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

    #[derive(Debug)]
    struct Memory(Arc<dyn ObjectStore>);

    #[async_trait::async_trait]
    impl Staging for Memory {
        fn store(&self) -> &Arc<dyn ObjectStore> {
            &self.0
        }

        fn binds_names(&self) -> bool {
            false
        }

        fn lease(&self) -> Duration {
            Duration::from_secs(5)
        }

        fn request_age_max(&self) -> Duration {
            Duration::from_secs(5)
        }

        async fn begin(&self, _: &Path, _: &Path) -> object_store::Result<Box<dyn StagedWriter>> {
            Err(StoreError::NotImplemented { operation: "begin".into(), implementer: "memory".into() })
        }

        async fn publish(&self, _: &Staged, _: &Path) -> object_store::Result<PublishOutcome> {
            Ok(PublishOutcome::Gone)
        }

        async fn discard(&self, _: &Path) -> object_store::Result<()> {
            Ok(())
        }

        async fn put_atomic(&self, path: &Path, bytes: Bytes) -> object_store::Result<()> {
            self.0.put(path, bytes.into()).await.map(drop)
        }

        async fn put_if_absent(&self, path: &Path, bytes: Bytes) -> object_store::Result<bool> {
            match self.0.put_opts(path, bytes.into(), PutMode::Create.into()).await {
                Err(StoreError::AlreadyExists { .. }) => Ok(false),
                put => put.map(|_| true),
            }
        }

        async fn check_writable(&self, _: &Path) -> object_store::Result<()> {
            Ok(())
        }
    }

    fn root(table: &str, careless: bool) -> Root {
        let store = Store { inner: InMemory::new(), careless };
        Root::of(Arc::new(Memory(Arc::new(store))), &Path::from(table))
    }

    #[test]
    fn control_folder_is_beside_the_table() {
        for (table, beside) in [("a/b/t", "a/b/.harrier-t/x"), ("t", ".harrier-t/x"), ("", ".harrier/x")] {
            assert_eq!(root(table, false).beside("x").as_ref(), beside);
        }
    }

    #[tokio::test]
    async fn stores_without_conditional_puts_are_refused() {
        let refused = root("t", true).begin("one").await;
        assert!(matches!(refused, Err(Error::NoConditions { .. })), "{refused:?}");
        root("t", false).begin("one").await.unwrap();
    }

    /// The lock has one holder at a time, and numbers grow.
    #[tokio::test]
    async fn lock_has_one_holder() {
        let root = root("t", false);
        let held = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut holders = Vec::new();
        for holder in 0..8 {
            let (root, held) = (root.clone(), Arc::clone(&held));
            holders.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let lock = Lock::acquire(&root, &holder.to_string()).await.unwrap();
                    assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    lock.release().await;
                }
            }));
        }
        for holder in holders {
            holder.await.unwrap();
        }
        assert_eq!(root.control().await.unwrap().top().map(|(number, _)| number), Some(80));
    }
}
