//! A table's folder, and the one beside it with the lock, the journals and what statements have staged.
//!
//! For the table `t` that is `.harrier-t`, or `.harrier` in it if it is all of its store:
//!
//! | name | what it is |
//! |---|---|
//! | `lock-N` | the lock: of the highest number; held if that is odd |
//! | `owner-ID` | a statement that is writing; written anew as long as it lives |
//! | `journal-N` | what the holder of `lock-N` has decided and not completed; empty: it can decide nothing any more |
//! | `ID/…` | what a statement has staged |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use harrier_storage::{Options, Staging};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::time::Instant;
use url::Url;

use crate::object_store::lock::{Lock, POLL_MAX, Watched, poll_backoff};
use crate::object_store::recover::recover;
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

/// What a reader has seen before it listed the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The lock's number; `None` if there never was one.
    number: Option<u64>,
    /// When a lock was written that its holder has left: it may come back.
    held: Option<i64>,
    /// What is beside the table may not be looked at.
    is_blind: bool,
}

/// What is beside a table.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub locks: BTreeMap<u64, ObjectMeta>,
    pub owners: BTreeMap<String, ObjectMeta>,
    /// By the numbers of locks.
    pub journals: BTreeSet<u64>,
    /// Empty journals.
    pub voids: Vec<ObjectMeta>,
    pub statements: BTreeSet<String>,
    /// Files that their writers have not given their names.
    pub unfinished: Vec<ObjectMeta>,
}

impl Control {
    pub(crate) fn top(&self) -> Option<(u64, &ObjectMeta)> {
        self.locks.last_key_value().map(|(number, meta)| (*number, meta))
    }

    /// Whether nobody is showing anything.
    fn settled(&self) -> Option<Settled> {
        let state = self.state();
        (state.held.is_none() && self.journals.is_empty()).then_some(state)
    }

    fn state(&self) -> Settled {
        let held = self.top().filter(|(number, _)| number % 2 == 1);
        Settled {
            number: self.top().map(|(number, _)| number),
            held: held.map(|(_, lock)| lock.last_modified.timestamp_micros()),
            is_blind: false,
        }
    }

    /// Whether a file was written so recently, by the clock of the store; who asks has just written one.
    pub(crate) fn is_young(&self, file: &ObjectMeta, age: Duration) -> bool {
        let all = self.locks.values().chain(self.owners.values()).chain(&self.unfinished);
        let now = all.map(|file| file.last_modified).max().unwrap_or(file.last_modified);
        // What is newer than all of these is as young as can be.
        (now - file.last_modified).to_std().is_ok_and(|passed| passed < age) || now < file.last_modified
    }
}

impl Root {
    /// The table in the folder `table` of the store that `url` is in; `None` for a kind of store that is not
    /// known.
    ///
    /// Errors: what is said about the store is incomplete or wrong.
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

    /// A place beside the table.
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

    /// Where a statement stages.
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

    /// Looks at all that is beside the table.
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

    /// The files of the table that readers see.
    pub async fn list_table(&self) -> Result<Vec<ObjectMeta>> {
        self.list(&self.table).await
    }

    /// The names of the folders in one below the table's: `""`, or `k=v/…`.
    pub async fn folders_in(&self, folder: &str) -> Result<Vec<String>> {
        let folder = self.folder(folder);
        let found = match self.store().list_with_delimiter(Some(&folder)).await {
            Ok(found) => found.common_prefixes,
            Err(StoreError::NotFound { .. }) => vec![],
            Err(error) => return Err(error).at("list", &folder),
        };
        Ok(found.iter().filter_map(|folder| folder.filename().map(str::to_string)).collect())
    }

    /// The files in a folder and below it that readers see.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        let found: Result<Vec<ObjectMeta>, StoreError> = self.store().list(Some(folder)).try_collect().await;
        let mut found = match found {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => vec![],
            Err(error) => return Err(error).at("list", folder),
        };
        found.retain(|file| {
            // A folder may have an object of its own, by its own name.
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

    /// That a put on the condition that there is nothing yet fails where there is something.
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

    /// Waits until nobody shows anything; completes what was left unfinished, if this process may.
    ///
    /// Errors: what is beside the table cannot be read, or what is left cannot be completed.
    pub fn settled(&self) -> BoxFuture<'_, Result<Settled>> {
        self.wait_until_settled().boxed()
    }

    async fn wait_until_settled(&self) -> Result<Settled> {
        let mut watched = Watched::default();
        let mut backoff = poll_backoff();
        loop {
            let control = match self.control().await {
                // Each folder by itself is whole all the same.
                Err(error) if error.is_denied() => {
                    return Ok(Settled { number: None, held: None, is_blind: true });
                }
                control => control?,
            };
            if let Some(settled) = control.settled() {
                return Ok(settled);
            }
            let is_left = match control.top() {
                Some((number, lock)) if number % 2 == 1 => {
                    watched.is_stale(number, lock, self.staging.lease())
                }
                _ => true,
            };
            if is_left {
                if control.journals.is_empty() {
                    // Its holder died before it decided anything, or cannot any more: writers will see to it.
                    return Ok(control.state());
                }
                match self.complete(&mut watched).await {
                    Ok(()) => continue,
                    Err(error) if error.is_denied() => return Ok(control.state()),
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(backoff.next().unwrap_or(POLL_MAX)).await;
        }
    }

    /// Whether nobody has shown anything since, as far as this process may know.
    pub fn is_settled(&self, since: Settled) -> BoxFuture<'_, Result<bool>> {
        let look = async move {
            match self.control().await {
                Err(error) if error.is_denied() => Ok(true),
                control => {
                    let control = control?;
                    Ok(control.state() == since && (since.held.is_none() || control.journals.is_empty()))
                }
            }
        };
        look.boxed()
    }

    async fn complete(&self, watched: &mut Watched) -> Result<()> {
        let lock = Lock::acquire_watched(self, "reader", watched).await?;
        let recovered = recover(self, &lock, "", &|_| {}).await;
        lock.release().await;
        // It is nothing of the statement that reads.
        recovered.map_err(Error::of_others)
    }
}

impl Settled {
    /// Whether nobody has ever shown anything here: locks of those who have stay.
    pub fn is_untouched(self) -> bool {
        !self.is_blind && self.number.is_none()
    }

    /// Whether nothing is known of what others do, so that only files themselves tell.
    pub fn is_blind(self) -> bool {
        self.is_blind
    }
}

/// A path below another one, as it is.
pub(crate) fn child(folder: &Path, name: &str) -> Path {
    let text = match folder.as_ref() {
        "" => name.to_string(),
        folder => format!("{folder}/{name}"),
    };
    Path::parse(&text).unwrap_or_else(|_| folder.clone().join(name))
}

/// How long something has looked the same.
pub(crate) type Since = Instant;

#[cfg(test)]
mod tests {
    use std::fmt;

    use bytes::Bytes;
    use futures::stream::BoxStream;
    use harrier_storage::{Shown, Staged, StagedWriter};
    use object_store::memory::InMemory;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions, PutOptions,
        PutResult,
    };

    use super::*;

    /// A store that takes no notice of conditions, if it is careless.
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

        fn late(&self) -> Duration {
            Duration::from_secs(5)
        }

        async fn begin(&self, _: &Path, _: &Path) -> object_store::Result<Box<dyn StagedWriter>> {
            Err(StoreError::NotImplemented { operation: "begin".into(), implementer: "memory".into() })
        }

        async fn show(&self, _: &Staged, _: &Path) -> object_store::Result<Shown> {
            Ok(Shown::Gone)
        }

        async fn take_back(&self, _: &Path) -> object_store::Result<()> {
            Ok(())
        }

        async fn put_whole(&self, path: &Path, bytes: Bytes) -> object_store::Result<()> {
            self.0.put(path, bytes.into()).await.map(drop)
        }

        async fn put_new(&self, path: &Path, bytes: Bytes) -> object_store::Result<bool> {
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
    fn the_folder_beside() {
        for (table, beside) in [("a/b/t", "a/b/.harrier-t/x"), ("t", ".harrier-t/x"), ("", ".harrier/x")] {
            assert_eq!(root(table, false).beside("x").as_ref(), beside);
        }
    }

    #[tokio::test]
    async fn a_store_without_conditions_is_refused() {
        let refused = root("t", true).begin("one").await;
        assert!(matches!(refused, Err(Error::NoConditions { .. })), "{refused:?}");
        root("t", false).begin("one").await.unwrap();
    }

    /// The lock is one holder's at a time, and numbers grow.
    #[tokio::test]
    async fn the_lock_is_held_by_one() {
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
