//! What a query has found in stores while it is planned: what a name stands for, of what kind its files are,
//! what columns they have, and what of them is read all begin with the same listing, or the same look at a
//! file, each of which is a request that is paid for and waited for. They are made once.
//!
//! Invariants: nothing is remembered longer than one query is planned; nothing that was found before a folder
//! was seen at rest is taken for its content ([`forget`]). Memory bound: [`OBJECTS_MAX`] objects.
//!
//! Errors are not remembered.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::object_store::path::Path;
use datafusion::object_store::{Attributes, GetResult, GetResultPayload, ObjectMeta, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;

/// Longer listings are not remembered.
const OBJECTS_MAX: usize = 100_000;

tokio::task_local! {
    static FOUND: Arc<Mutex<Found>>;
}

/// By a number that is the store's own, and a place in it.
#[derive(Debug, Default)]
struct Found {
    files: HashMap<(usize, Path), (ObjectMeta, Attributes)>,
    folders: HashMap<(usize, Option<Path>), Arc<Vec<ObjectMeta>>>,
    objects: usize,
    /// Listings that were asked for.
    listings: usize,
}

/// `planning`, which makes each request of this kind once.
pub(crate) async fn remembering<T>(planning: impl Future<Output = T>) -> T {
    FOUND.scope(Arc::default(), planning).await
}

/// Has all folders listed anew.
pub(crate) fn forget() {
    let _ = FOUND.try_with(|found| found.lock().folders.clear());
}

/// How many listings have been asked for; `None` where none are remembered.
pub(crate) fn listings() -> Option<usize> {
    FOUND.try_with(|found| found.lock().listings).ok()
}

/// To be called when one is.
pub(crate) fn asked() {
    let _ = FOUND.try_with(|found| found.lock().listings += 1);
}

fn present() -> Option<Arc<Mutex<Found>>> {
    FOUND.try_with(Arc::clone).ok()
}

/// What was said of a file.
pub(crate) fn file(store: usize, location: &Path) -> Option<GetResult> {
    let found = present()?;
    let (meta, attributes) = found.lock().files.get(&(store, location.clone()))?.clone();
    let payload = GetResultPayload::Stream(stream::empty().boxed());
    Some(GetResult { payload, meta, range: 0..0, attributes })
}

pub(crate) fn keep_file(store: usize, location: &Path, said: &GetResult) {
    if let Some(found) = present() {
        let said = (said.meta.clone(), said.attributes.clone());
        found.lock().files.insert((store, location.clone()), said);
    }
}

/// What is in a folder, which `list` finds out if nobody has.
pub(crate) fn folder(
    store: usize,
    folder: Option<&Path>,
    list: impl FnOnce() -> BoxStream<'static, Result<ObjectMeta>>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let Some(found) = present() else { return list() };
    let key = (store, folder.cloned());
    if let Some(known) = found.lock().folders.get(&key) {
        let known = Arc::clone(known);
        return stream::iter((0..known.len()).map(move |at| Ok(known[at].clone()))).boxed();
    }
    asked();
    let seen = Some(Vec::new());
    stream::unfold((list(), seen, found, key), |(mut rest, mut seen, found, key)| async move {
        match rest.next().await {
            Some(Ok(object)) => {
                if let Some(all) = &mut seen {
                    all.push(object.clone());
                }
                seen = seen.filter(|all| all.len() <= OBJECTS_MAX);
                Some((Ok(object), (rest, seen, found, key)))
            }
            Some(Err(error)) => Some((Err(error), (rest, None, found, key))),
            None => {
                if let Some(all) = seen {
                    let mut found = found.lock();
                    found.objects += all.len();
                    if found.objects <= OBJECTS_MAX {
                        found.folders.insert(key, Arc::new(all));
                    }
                }
                None
            }
        }
    })
    .boxed()
}
