//! Failure propagation: fails a statement's rows as soon as one of its ranks is lost.
//!
//! Otherwise the loss is noticed only when an operator next polls the lost rank, and a computing operator may
//! not poll for seconds.

use crate::transport::remote_error;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use harrier_interconnect::StreamError;
use std::task::Poll;

/// Passes `rows` through until `loss` resolves to a rank and the reason: then fails (57P02) and drops `rows`.
pub fn fail_on_rank_loss(
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
