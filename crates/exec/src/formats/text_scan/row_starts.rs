//! Row boundaries of a CSV file that several output partitions read in parts.
//!
//! Whether a line end is in quotes depends on everything before it, so the first row after an offset is found
//! by reading up to there. All output partitions of a scan in a process share this state: a process reads a
//! file at most once more, up to its last part, without parsing. That is several times faster than parsing,
//! so splitting a file still pays.
//!
//! Memory bound: one piece of a file, and a few bytes per piece.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::object_store::path::Path;
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parking_lot::Mutex;

use super::quotes::{Quotes, SpecialBytes};
use super::unclosed_quote;

/// Bytes read at once.
const PIECE_BYTES: u64 = 4 << 20;

/// States of a file at regular offsets from its beginning.
type QuoteStates = Arc<tokio::sync::Mutex<Vec<Quotes>>>;

/// Known row boundaries of the files of a scan.
#[derive(Debug, Default)]
pub(super) struct RowStarts(Mutex<HashMap<(Path, u64), QuoteStates>>);

impl RowStarts {
    /// The first row of `file` at or after `from`; the end of the file, if there is none.
    ///
    /// Errors: an unclosed quote (22P04); those of the store.
    pub(super) async fn first(
        &self,
        store: &Arc<dyn ObjectStore>,
        file: &ObjectMeta,
        signs: SpecialBytes,
        from: u64,
    ) -> Result<Quotes> {
        let beginning = Quotes::new(signs);
        if from == 0 {
            return Ok(beginning);
        }
        // A row begins at `from` if the byte before it ends one.
        let from = from.min(file.size) - 1;
        let mut place = self.nearest(store, file, beginning, from).await?;
        let before = from - place.offset();
        if before > 0 {
            place.consume(&store.get_range(&file.location, place.offset()..from).await?);
        }
        while place.offset() < file.size {
            let end = (place.offset() + PIECE_BYTES).min(file.size);
            let piece = store.get_range(&file.location, place.offset()..end).await?;
            if place.consume_row(&piece).is_some() {
                return Ok(place);
            }
        }
        match place.open_since() {
            Some(line) => Err(unclosed_quote(file, line)),
            None => Ok(place),
        }
    }

    /// The nearest recorded position at or before `at`.
    async fn nearest(
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
            next.consume(&store.get_range(&file.location, begin..begin + PIECE_BYTES).await?);
            places.push(next);
        }
        Ok(places[(at / PIECE_BYTES) as usize].clone())
    }
}
