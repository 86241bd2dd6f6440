//! Where the rows of a file begin of which several output partitions read a part each.
//!
//! Whether a line end is one of a row is known of everything before it, so the first of a file's rows behind
//! a place is found by reading up to there. All output partitions of a scan in a process share what they have
//! read so: a process reads a file once more at most, up to its last part, without taking it apart. That is
//! several times as fast as taking apart is, and a file of many parts is read faster in parts all the same.
//!
//! Memory bound: one piece of a file, and a few bytes for each.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use super::quotes::{Quotes, Signs};
use super::unclosed;

/// So much is read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// A file's places, a piece apart each, from its beginning.
type Places = Arc<tokio::sync::Mutex<Vec<Quotes>>>;

/// What the parts of a scan know of its files.
#[derive(Debug, Default)]
pub(super) struct RowStarts(Mutex<HashMap<(Path, u64), Places>>);

impl RowStarts {
    /// The first row of `file` that begins at `from` or behind it; the end of the file, if there is none.
    ///
    /// Errors: a quote is open there and nothing closes it (22P04); the store's.
    pub(super) async fn first(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &ObjectMeta,
        signs: Signs,
        from: u64,
    ) -> Result<Quotes> {
        let beginning = Quotes::new(signs);
        if from == 0 {
            return Ok(beginning);
        }
        // A row begins at `from` if the byte before it ends one.
        let from = from.min(file.size) - 1;
        let mut place = self.place(store, file, beginning, from).await?;
        let before = from - place.offset();
        if before > 0 {
            place.take(&store.get_range(&file.location, place.offset()..from).await?);
        }
        while place.offset() < file.size {
            let end = (place.offset() + PIECE_BYTES).min(file.size);
            let piece = store.get_range(&file.location, place.offset()..end).await?;
            if place.take_row_end(&piece).is_some() {
                return Ok(place);
            }
        }
        match place.open_since() {
            Some(line) => Err(unclosed(file, line)),
            None => Ok(place),
        }
    }

    /// The last place before `at` of those that are a piece apart.
    async fn place(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &ObjectMeta,
        beginning: Quotes,
        at: u64,
    ) -> Result<Quotes> {
        let places = Arc::clone(self.0.lock().entry((file.location.clone(), file.size)).or_default());
        let mut places = places.lock().await;
        if places.is_empty() {
            places.push(beginning);
        }
        while (places.len() as u64) * PIECE_BYTES <= at {
            let mut next = places[places.len() - 1].clone();
            let begin = next.offset();
            next.take(&store.get_range(&file.location, begin..begin + PIECE_BYTES).await?);
            places.push(next);
        }
        Ok(places[(at / PIECE_BYTES) as usize].clone())
    }
}
