//! Ends a statement's rows as soon as a rank that works for it is lost.
//!
//! Without it the loss is noticed when an operator next asks the lost rank for rows, and an operator that
//! computes does not ask for seconds.

use crate::transport::remote_error;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use harrier_interconnect::StreamError;
use std::task::Poll;

/// `rows`, until `loss` tells of a rank and the reason: then an error (57P02), and what `rows` held is
/// released.
pub fn until(
    loss: BoxFuture<'static, (usize, String)>,
    rows: SendableRecordBatchStream,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let mut running = Some((loss, rows));
    let rows = stream::poll_fn(move |context| {
        let Some((loss, rows)) = &mut running else {
            return Poll::Ready(None);
        };
        match loss.poll_unpin(context) {
            Poll::Ready((rank, reason)) => {
                running = None;
                Poll::Ready(Some(Err(remote_error::from_stream(StreamError::Lost { rank, reason }))))
            }
            Poll::Pending => rows.poll_next_unpin(context),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}
