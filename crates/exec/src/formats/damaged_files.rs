//! Panic guards around file-reading libraries: a panic means a damaged file (XX001), not a bug to report.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener};
use datafusion::object_store::ObjectMeta;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};

use harrier_error::{SqlError, SqlState};
use harrier_sqlstate::IntoDataFusionError;

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a library that reads a file: a panic there is not a bug of this program.
pub fn is_reading() -> bool {
    READING.get()
}

/// Runs `read`; maps a panic to the error that the file `name` is damaged (XX001). Blocks as `read` does.
pub fn read<T>(name: &str, read: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = READING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(read));
    READING.set(before);
    done.unwrap_or_else(|payload| Err(error_of(name, payload.as_ref())))
}

/// The same for a future that opens a file.
pub async fn open<T>(name: &str, opening: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let mut opening = Box::pin(opening);
    std::future::poll_fn(|context| match read(name, || Ok(opening.poll_unpin(context))) {
        Ok(polled) => polled,
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// The same for a stream of a file. It ends with its first error.
pub fn stream<T: 'static>(
    name: String,
    inner: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    GuardedStream { name, inner: Some(inner) }.boxed()
}

struct GuardedStream<T: 'static> {
    name: String,
    inner: Option<BoxStream<'static, Result<T>>>,
}

impl<T: 'static> Stream for GuardedStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(inner) = this.inner.as_mut() else { return Poll::Ready(None) };
        let polled = match read(&this.name, || Ok(inner.poll_next_unpin(context))) {
            Ok(polled) => polled,
            Err(error) => Poll::Ready(Some(Err(error))),
        };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            // The state that panicked may panic again when dropped.
            let inner = this.inner.take();
            drop(read(&this.name, || {
                drop(inner);
                Ok(())
            }));
        }
        polled
    }
}

/// The same for a file opener and its streams.
pub fn opener(inner: Arc<dyn FileOpener>) -> Arc<dyn FileOpener> {
    Arc::new(Opener(inner))
}

struct Opener(Arc<dyn FileOpener>);

impl FileOpener for Opener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let name = name_of(std::slice::from_ref(&file.object_meta));
        let opening = read(&name, || self.0.open(file))?;
        Ok(async move {
            let inner = open(&name, opening).await?;
            Ok(stream(name, inner))
        }
        .boxed())
    }
}

/// The name for errors: of a file, or of the folder of several.
pub fn name_of(files: &[ObjectMeta]) -> String {
    let location = files.first().map(|file| &file.location);
    let name = match files {
        [_] => location.and_then(|location| location.filename()).map(str::to_string),
        _ => location
            .and_then(|location| location.parts().nth_back(1))
            .map(|part| format!("{}/", part.as_ref())),
    };
    name.unwrap_or_default()
}

fn error_of(name: &str, payload: &(dyn Any + Send)) -> DataFusionError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    error(name, text)
}

/// The error of a damaged file.
pub fn error(name: &str, why: impl Into<String>) -> DataFusionError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("file \"{name}\" is damaged"))
        .with_detail(why)
        .into_datafusion()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn decoder_panics_are_corrupt_files() {
        let state = |result: Result<()>| harrier_sqlstate::of(&result.unwrap_err());
        assert_eq!(state(read("f", || panic!("index out of bounds"))), SqlState::DATA_CORRUPTED);
        assert!(!is_reading());
        assert_eq!(state(open("f", async { panic!("no") }).await), SqlState::DATA_CORRUPTED);
        let inner = futures::stream::iter(0..3).map(|at| {
            assert!(is_reading() && at < 1, "damaged");
            Ok(at)
        });
        let mut stream = stream("f".to_string(), inner.boxed());
        assert_eq!(stream.next().await.unwrap().unwrap(), 0);
        assert_eq!(state(stream.next().await.unwrap().map(drop)), SqlState::DATA_CORRUPTED);
        assert!(stream.next().await.is_none() && !is_reading());
    }
}
