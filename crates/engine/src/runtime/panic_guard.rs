//! Panic isolation: a panic in query code fails its statement, and the process lives.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{FutureExt, Stream, StreamExt};
use harrier_exec::formats::damaged_files;
use harrier_sqlstate::IntoDataFusionError;

/// Logs a panic as one line instead of a backtrace on standard error. Call it once, from `main`.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        // A library found a damaged file, or does not support a type: that is reported as an error.
        if damaged_files::is_reading() || harrier_sqlstate::is_of_missing_code(text_of(info.payload())) {
            return;
        }
        let place =
            info.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        tracing::warn!(place, message = text_of(info.payload()), "panic");
    }));
}

/// Awaits `future` and turns a panic in it into an error with the code XX000.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(|payload| Err(error_of(payload.as_ref())))
}

/// Wraps `stream` so that a panic ends it with an error of code XX000. After an error it yields nothing more
/// and releases its resources.
pub(crate) fn catch_stream_panic(stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    Box::pin(GuardedStream { schema: stream.schema(), stream: Some(stream) })
}

struct GuardedStream {
    schema: SchemaRef,
    stream: Option<SendableRecordBatchStream>,
}

impl Stream for GuardedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(stream) = self.stream.as_mut() else {
            return Poll::Ready(None);
        };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| stream.poll_next_unpin(context)))
            .unwrap_or_else(|payload| Poll::Ready(Some(Err(error_of(payload.as_ref())))));
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            // A stream that panicked may panic again when it is dropped.
            let stream = self.stream.take();
            let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(stream)));
        }
        polled
    }
}

impl RecordBatchStream for GuardedStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn error_of(payload: &(dyn Any + Send)) -> DataFusionError {
    harrier_sqlstate::of_panic(text_of(payload)).into_datafusion()
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::Schema;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use harrier_error::SqlState;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_of_the_statement() {
        let error = catch_panic::<()>(async { panic!("boom {}", 1) }).await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::INTERNAL_ERROR);
        assert_eq!(error.to_string(), "External error: internal error: boom 1");
        let error = catch_panic::<()>(async { panic!("offset overflow") }).await.unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::PROGRAM_LIMIT_EXCEEDED);

        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::new_empty(schema.clone());
        let stream = futures::stream::iter(0..3).map(move |i| {
            assert!(i < 1, "boom");
            Ok(batch.clone())
        });
        let mut stream = catch_stream_panic(Box::pin(RecordBatchStreamAdapter::new(schema, stream)));
        assert!(stream.next().await.unwrap().is_ok());
        let error = stream.next().await.unwrap().unwrap_err();
        assert_eq!(harrier_sqlstate::of(&error), SqlState::INTERNAL_ERROR);
        assert!(stream.next().await.is_none());
    }
}
