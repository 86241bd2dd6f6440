//! Cache of store listings and file metadata during the planning of one query. Name resolution, format
//! detection, schema inference and the scan all begin with the same listing or HEAD request, each of which
//! costs money and latency; with the cache each is made once.
//!
//! Invariants: no entry outlives the planning of its query; listings from before a folder was seen at rest
//! are not used for its content ([`invalidate_folders`]). Memory bound: [`OBJECTS_MAX`] objects.
//!
//! Errors are not cached.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::object_store::path::Path;
use datafusion::object_store::{Attributes, GetResult, GetResultPayload, ObjectMeta, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;

/// Longer listings are not cached.
const OBJECTS_MAX: usize = 100_000;

tokio::task_local! {
    static CACHE: Arc<Mutex<Cache>>;
}

/// Keys are a store's number and a path in it.
#[derive(Debug, Default)]
struct Cache {
    files: HashMap<(usize, Path), (ObjectMeta, Attributes)>,
    folders: HashMap<(usize, Option<Path>), Arc<Vec<ObjectMeta>>>,
    objects: usize,
    /// Number of listings made.
    listings: usize,
}

/// Runs `planning` with a listing cache of its own.
pub(crate) async fn with_listing_cache<T>(planning: impl Future<Output = T>) -> T {
    CACHE.scope(Arc::default(), planning).await
}

/// Drops all cached listings of folders.
pub(crate) fn invalidate_folders() {
    let _ = CACHE.try_with(|cache| cache.lock().folders.clear());
}

/// Number of listings made so far; `None` without a cache.
pub(crate) fn listing_count() -> Option<usize> {
    CACHE.try_with(|cache| cache.lock().listings).ok()
}

/// Counts one listing.
pub(crate) fn count_listing() {
    let _ = CACHE.try_with(|cache| cache.lock().listings += 1);
}

fn current() -> Option<Arc<Mutex<Cache>>> {
    CACHE.try_with(Arc::clone).ok()
}

/// The cached metadata of a file.
pub(crate) fn get_file(store: usize, location: &Path) -> Option<GetResult> {
    let cache = current()?;
    let (meta, attributes) = cache.lock().files.get(&(store, location.clone()))?.clone();
    let payload = GetResultPayload::Stream(stream::empty().boxed());
    Some(GetResult { payload, meta, range: 0..0, attributes })
}

pub(crate) fn put_file(store: usize, location: &Path, result: &GetResult) {
    if let Some(cache) = current() {
        let entry = (result.meta.clone(), result.attributes.clone());
        cache.lock().files.insert((store, location.clone()), entry);
    }
}

/// The objects in a folder, from the cache or else from `list`, whose result is cached.
pub(crate) fn list_folder(
    store: usize,
    folder: Option<&Path>,
    list: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let Some(cache) = current() else { return list() };
    let key = (store, folder.cloned());
    if let Some(known) = cache.lock().folders.get(&key) {
        let known = Arc::clone(known);
        return stream::iter((0..known.len()).map(move |at| Ok(known[at].clone()))).boxed();
    }
    count_listing();
    let seen = Some(Vec::new());
    stream::unfold((list(), seen, cache, key), |(mut rest, mut seen, cache, key)| async move {
        match rest.next().await {
            Some(Ok(object)) => {
                if let Some(all) = &mut seen {
                    all.push(object.clone());
                }
                seen = seen.filter(|all| all.len() <= OBJECTS_MAX);
                Some((Ok(object), (rest, seen, cache, key)))
            }
            Some(Err(error)) => Some((Err(error), (rest, None, cache, key))),
            None => {
                if let Some(all) = seen {
                    let mut cache = cache.lock();
                    cache.objects += all.len();
                    if cache.objects <= OBJECTS_MAX {
                        cache.folders.insert(key, Arc::new(all));
                    }
                }
                None
            }
        }
    })
    .boxed()
}
